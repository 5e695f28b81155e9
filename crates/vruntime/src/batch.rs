//! Many runs beside one another: kernels × seeds.
//!
//! A run never knows its neighbours, and results are kept by place, not by time, so the result is
//! the same for any number of threads.

use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Bar;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use vruntime_formats::kernel_file::KernelChoice;
use vruntime_kernel::program::Workload;
use vruntime_kernel::record::{RunRecord, RunSpec, Sampling, Variation};
use vruntime_kernel::simulate::{self, Progress, SetupError, run_watched};
use vruntime_machine::MachineSpec;

/// What to run: every kernel with every seed.
pub struct Batch {
    /// The machine.
    pub machine: Arc<MachineSpec>,
    /// The kernels.
    pub kernels: Vec<KernelChoice>,
    /// The benchmark.
    pub workload: Arc<dyn Workload>,
    /// The seeds; a kernel adds its offset.
    pub seeds: Vec<u64>,
    /// How much of the benchmark.
    pub sampling: Sampling,
    /// How the model differs.
    pub variation: Variation,
    /// Threads; 0 for one per CPU.
    pub threads: usize,
    /// Let the checkers look at every run.
    pub checks: bool,
    /// Keep this many events of each run.
    pub timeline: usize,
    /// Only those of the measured window.
    pub timeline_of_window: bool,
    /// Keep the counters of every CPU and domain.
    pub schedstat: bool,
    /// No progress bar.
    pub quiet: bool,
}

/// What came out.
pub struct Records {
    /// By kernel, then by seed; only seeds that are complete for every kernel.
    pub by_kernel: Vec<Vec<RunRecord>>,
    /// ^C ended it before all seeds were complete.
    pub interrupted: bool,
}

impl Batch {
    /// Runs everything. Fails if nothing was complete when ^C came, or if a specification is wrong.
    pub fn run(&self) -> Result<Records, Failure> {
        // Seed by seed, so that ^C leaves as many complete seeds as possible.
        let specs: Vec<RunSpec> = self
            .seeds
            .iter()
            .flat_map(|&seed| self.kernels.iter().map(move |k| self.spec(k, seed)))
            .collect();
        let results = run_specs(&specs, self.threads, self.quiet)?;
        let mut by_kernel: Vec<Vec<RunRecord>> = vec![Vec::new(); self.kernels.len()];
        let mut interrupted = false;
        let mut results = results.into_iter();
        for _ in &self.seeds {
            let of_seed: Vec<_> = results.by_ref().take(self.kernels.len()).collect();
            if of_seed.iter().any(Option::is_none) {
                interrupted = true;
                continue;
            }
            for (kernel, record) in by_kernel.iter_mut().zip(of_seed.into_iter().flatten()) {
                kernel.push(record);
            }
        }
        if by_kernel.iter().any(Vec::is_empty) {
            return Err(Failure::Interrupted);
        }
        Ok(Records { by_kernel, interrupted })
    }

    fn spec(&self, kernel: &KernelChoice, seed: u64) -> RunSpec {
        RunSpec {
            seed: seed.wrapping_add(kernel.seed_offset),
            sampling: self.sampling,
            variation: self.variation.clone(),
            timeline: self.timeline,
            timeline_of_window: self.timeline_of_window,
            schedstat: self.schedstat,
            checks: self.checks,
            ..RunSpec::new(
                Arc::clone(&self.machine),
                kernel.release.clone(),
                Arc::clone(&self.workload),
            )
        }
    }
}

/// Runs `specs` beside one another with a progress bar, begun in their order; `None` where ^C came
/// before the end.
pub fn run_specs(
    specs: &[RunSpec],
    threads: usize,
    quiet: bool,
) -> Result<Vec<Option<RunRecord>>, Failure> {
    interrupt::install();
    check(specs)?;
    let expected_ns = specs.first().map_or(0, |s| match s.sampling {
        Sampling::Full { limit } => limit.0,
        Sampling::Window { warmup, window } => warmup.0 + window.0,
    });
    let bar = Bar::new(specs.len(), expected_ns, quiet);
    run_in_order(specs, threads, &bar)
}

/// Refuses `specs` if one of them cannot be run: better known before the others are than after.
fn check(specs: &[RunSpec]) -> Result<(), Failure> {
    let mut checked = BTreeSet::new();
    for s in specs {
        let (machine, workload) = (Arc::as_ptr(&s.machine), s.workload.command_line());
        if checked.insert((machine, &s.release.name, workload, format!("{:?}", s.variation))) {
            simulate::check(s).map_err(|e| failure(e, s))?;
        }
    }
    Ok(())
}

fn failure(e: SetupError, s: &RunSpec) -> Failure {
    match e {
        SetupError::Machine(e) => Failure::Input(format!("machine {}: {e}", s.machine.name)),
        e => Failure::Usage(e.to_string()),
    }
}

/// See [`run_specs`].
fn run_in_order(
    specs: &[RunSpec],
    threads: usize,
    bar: &Bar,
) -> Result<Vec<Option<RunRecord>>, Failure> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.min(specs.len()))
        .build()
        .map_err(|e| Failure::Usage(format!("threads: {e}")))?;
    let results: Vec<OnceLock<RunRecord>> = specs.iter().map(|_| OnceLock::new()).collect();
    let refused: Mutex<Option<(SetupError, usize)>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    pool.broadcast(|_| {
        while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < specs.len())
        {
            if interrupt::seen() {
                break;
            }
            let progress = Arc::new(Progress::default());
            interrupt::watch(&progress);
            bar.add(&progress);
            let blame = Blame(&specs[i]);
            let result = run_watched(&specs[i], &progress);
            drop(blame);
            match result {
                Ok(record) if !progress.stop.load(Ordering::Relaxed) => {
                    let _ = results[i].set(record);
                }
                Ok(_) => {}
                Err(e) => {
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some((e, i));
                    next.store(specs.len(), Ordering::Relaxed);
                }
            }
        }
    });
    match refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((e, i)) => Err(failure(e, &specs[i])),
        None => Ok(results.into_iter().map(OnceLock::into_inner).collect()),
    }
}

/// Names the run in which the model panicked: that is a bug, and this line repeats it.
struct Blame<'a>(&'a RunSpec);

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let RunSpec { machine, release, workload, seed, sampling, variation, .. } = self.0;
            eprintln!(
                "vruntime: a bug in the model; it happened in: -m {} -k {} -w '{}' --seed {seed}, \
                 {sampling:?}, {variation:?}{}",
                machine.name,
                release.name,
                workload.command_line(),
                variation.without
            );
        }
    }
}
