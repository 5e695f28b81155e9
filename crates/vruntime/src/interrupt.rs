//! ^C: the first one ends the runs under way, so that what is complete can be reported; the second
//! ends the program.

use crate::failure::INTERRUPTED;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use vruntime_kernel::simulate::Progress;

static SEEN: AtomicBool = AtomicBool::new(false);
static RUNS: Mutex<Vec<Weak<Progress>>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// True after the first ^C.
pub fn seen() -> bool {
    SEEN.load(Ordering::SeqCst)
}

/// From now on ^C is seen instead of ending the program.
pub fn install() {
    // Without a handler ^C ends the program at once, which is no reason not to run.
    INSTALL.call_once(|| drop(ctrlc::set_handler(on_signal)));
}

/// ^C stops the run that `progress` belongs to.
pub fn watch(progress: &Arc<Progress>) {
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    runs.retain(|run| run.strong_count() > 0);
    runs.push(Arc::downgrade(progress));
    drop(runs);
    if seen() {
        progress.stop.store(true, Ordering::Relaxed);
    }
}

fn on_signal() {
    if SEEN.swap(true, Ordering::SeqCst) {
        std::process::exit(i32::from(INTERRUPTED));
    }
    for run in RUNS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        if let Some(progress) = run.upgrade() {
            progress.stop.store(true, Ordering::Relaxed);
        }
    }
}
