//! ^C, SIGTERM and SIGHUP: the first one ends the runs under way, so that what is complete can be
//! reported; the second ends the program, unless it comes with the first (`timeout` signals its
//! child and then the group that the child is in).

use crate::failure::INTERRUPTED;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use vruntime_kernel::simulate::Progress;

/// The first signal, and when it came.
static FIRST: OnceLock<(i32, Instant)> = OnceLock::new();
/// What comes so soon after the first comes with it.
const WITH_IT: Duration = Duration::from_millis(500);
static RUNS: Mutex<Vec<Weak<Progress>>> = Mutex::new(Vec::new());
/// A program that we wait for, and what makes it end.
static CHILD: Mutex<Option<(Pid, Signal)>> = Mutex::new(None);
/// A ring buffer of tracefs that would record for ever.
static BUFFER: Mutex<Option<PathBuf>> = Mutex::new(None);
static INSTALL: Once = Once::new();

/// True after the first signal.
pub fn seen() -> bool {
    FIRST.get().is_some()
}

/// What the first signal is called.
pub fn name() -> &'static str {
    match FIRST.get() {
        Some((SIGTERM, _)) => "SIGTERM",
        Some((SIGHUP, _)) => "SIGHUP",
        _ => "^C",
    }
}

/// From now on signals are seen instead of ending the program.
pub fn install() {
    INSTALL.call_once(|| {
        // Without a handler a signal ends the program at once, which is no reason not to run.
        let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
        let wait = move || signals.forever().for_each(on_signal);
        drop(std::thread::Builder::new().name("signals".into()).spawn(wait));
    });
}

/// We wait for `child`, which `signal` makes end: it is sent that when a signal comes that may have
/// come to us alone. A ^C goes to it as well.
pub fn waits_for(child: Option<(u32, Signal)>) {
    let child = child.map(|(pid, signal)| (Pid::from_raw(pid as i32), signal));
    *locked(&CHILD) = child;
    // A signal may have come before there was anybody to pass it on to.
    if let Some((pid, ends)) = child.filter(|_| seen()) {
        let _ = kill(pid, ends);
    }
}

/// A second signal removes this ring buffer of tracefs.
pub fn removes(buffer: Option<PathBuf>) {
    *locked(&BUFFER) = buffer;
}

/// A signal stops the run that `progress` belongs to.
pub fn watch(progress: &Arc<Progress>) {
    let mut runs = locked(&RUNS);
    runs.retain(|run| run.strong_count() > 0);
    runs.push(Arc::downgrade(progress));
    drop(runs);
    if seen() {
        progress.stop.store(true, Ordering::Relaxed);
    }
}

/// What it holds is whole at any moment, whoever panicked with it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn on_signal(signal: i32) {
    if FIRST.set((signal, Instant::now())).is_err() {
        if FIRST.get().is_some_and(|(_, at)| at.elapsed() < WITH_IT) {
            return;
        }
        eprintln!("vruntime: ended by a second signal: nothing more is reported");
        if let Some(buffer) = &*locked(&BUFFER) {
            let _ = fs::remove_dir(buffer);
        }
        if let Some((child, _)) = *locked(&CHILD) {
            let _ = kill(child, Signal::SIGKILL);
        }
        std::process::exit(i32::from(INTERRUPTED));
    }
    if signal != SIGINT
        && let Some((child, ends)) = *locked(&CHILD)
    {
        // It may have ended by itself.
        let _ = kill(child, ends);
    }
    for run in locked(&RUNS).iter() {
        if let Some(progress) = run.upgrade() {
            progress.stop.store(true, Ordering::Relaxed);
        }
    }
}
