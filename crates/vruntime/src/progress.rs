//! What a person sees on stderr while runs are under way. Nothing if stderr is no terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use vruntime_kernel::simulate::Progress;
use vruntime_report::numbers::duration;

/// A bar over all runs, with simulated time and speed.
pub struct Bar {
    shared: Arc<Shared>,
    ticker: Option<JoinHandle<()>>,
}

struct Shared {
    bar: ProgressBar,
    over: AtomicBool,
    started: Instant,
    runs: Mutex<Vec<Arc<Progress>>>,
    /// Simulated ns of one run as far as known, for the bar's length.
    expected_ns: u64,
}

impl Bar {
    /// A bar over `nr_runs` runs of about `expected_ns` each; hidden if `quiet` or no terminal.
    pub fn new(nr_runs: usize, expected_ns: u64, quiet: bool) -> Bar {
        let hidden = quiet || !std::io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let length = expected_ns.saturating_mul(nr_runs as u64);
        let bar = ProgressBar::with_draw_target(Some(length), target);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}")
            .expect("the template is constant");
        bar.set_style(style.progress_chars("=> "));
        let shared = Arc::new(Shared {
            bar,
            over: AtomicBool::new(false),
            started: Instant::now(),
            runs: Mutex::default(),
            expected_ns,
        });
        let ticker = (!hidden).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                while !shared.over.load(Ordering::Relaxed) {
                    shared.draw(nr_runs);
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        });
        Bar { shared, ticker }
    }
    /// A run begins.
    pub fn add(&self, run: &Arc<Progress>) {
        let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.push(Arc::clone(run));
    }
}

impl Shared {
    fn draw(&self, nr_runs: usize) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |run: &Arc<Progress>| run.simulated_ns.load(Ordering::Relaxed);
        let simulated: u64 = runs.iter().map(load).sum();
        let events: u64 = runs.iter().map(|run| run.events.load(Ordering::Relaxed)).sum();
        let position: u64 = runs.iter().map(|run| load(run).min(self.expected_ns)).sum();
        let seconds = self.started.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_position(position);
        self.bar.set_message(format!(
            "run {} of {nr_runs}, {} simulated, {:.1} M events/s, 1 s takes {}",
            runs.len(),
            duration(simulated),
            events as f64 / seconds / 1e6,
            duration((seconds * 1e18 / simulated.max(1) as f64) as u64),
        ));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
        self.shared.bar.finish_and_clear();
    }
}
