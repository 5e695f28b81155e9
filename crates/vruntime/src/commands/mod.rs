//! One file per command.

pub mod compare;
pub mod completions;
pub mod explain;
pub mod list;
pub mod man;
pub mod run;
pub mod show;
pub mod study;
pub mod trace;
pub mod trace_convert;
pub mod trace_stat;

use crate::batch::Batch;
use crate::cli::Simulation;
use crate::failure::Failure;
use crate::machine_choice::machine;
use serde_json::{Value, json};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::{KernelChoice, kernel};
use vruntime_kernel::program::{Builder, Workload};
use vruntime_kernel::record::{FULL_LIMIT, RunRecord, Sampling, Variation};
use vruntime_machine::{LlcId, Topology};
use vruntime_report::numbers::duration;
use vruntime_sched::registry::SCHEDULERS;
use vruntime_sched::release::{Release, TtwuQueue};

/// The workload that a command line names.
pub(crate) fn workload(command: &str) -> Result<Arc<dyn Workload>, Failure> {
    vruntime_workload::parse(command).map_err(|e| Failure::Usage(e.to_string()))
}

/// What the options that `run`, `compare` and `explain` share ask for.
fn batch(s: &Simulation, kernels: &[String], seeds: Vec<u64>) -> Result<Batch, Failure> {
    if s.limit.is_some() && !s.full {
        return Err(Failure::Usage("--limit only means something with --full".into()));
    }
    let limit = s.limit.unwrap_or(FULL_LIMIT);
    if s.window.0 == 0 || limit.0 == 0 {
        return Err(Failure::Usage("--window and --limit must be longer than 0".into()));
    }
    let machine = machine(&s.machine)?;
    let nr_cpus = machine.build_topology().map_or(1, |topology| topology.nr_cpus());
    let kernels: Vec<_> = kernels.iter().map(|k| kernel(k)).collect::<Result<_, _>>()?;
    for note in kernels.iter().flat_map(|k| &k.notes) {
        eprintln!("vruntime: note: {note}");
    }
    let workload = workload(&s.workload)?;
    note_policies(&kernels, workload.as_ref(), nr_cpus);
    note_absent(workload.as_ref(), nr_cpus);
    if let Ok(topology) = machine.build_topology() {
        kernels.iter().filter_map(|k| uneven_groups(&k.release, &topology)).for_each(|note| {
            eprintln!("vruntime: note: {note}");
        });
    }
    Ok(Batch {
        machine: Arc::new(machine),
        kernels,
        workload,
        seeds,
        sampling: if s.full {
            Sampling::Full { limit }
        } else {
            Sampling::Window { warmup: s.warmup, window: s.window }
        },
        variation: variation(s),
        threads: s.workers.threads as usize,
        checks: s.checks,
        timeline: 0,
        timeline_of_window: false,
        schedstat: false,
        quiet: s.workers.quiet,
    })
}

/// What to know of a `taskset` for more CPUs than there are.
fn note_absent(workload: &dyn Workload, nr_cpus: usize) {
    let absent = Builder::of(workload, nr_cpus).absent();
    if !absent.is_empty() {
        eprintln!(
            "vruntime: note: the machine has CPUs 0-{}: taskset does without {absent}",
            nr_cpus - 1
        );
    }
}

/// What to know of groups of another size than `ttwu_queue` says, as it does not divide an LLC.
fn uneven_groups(k: &Release, topology: &Topology) -> Option<String> {
    let TtwuQueue::Threads(n) = k.ttwu_queue else { return None };
    let llcs = (0..topology.nr_llcs()).map(LlcId::from_ix);
    let mut of = llcs.map(|l| topology.llc_cpus(l).weight());
    let llc = of.find(|cpus| !cpus.is_multiple_of(n as usize))?;
    let groups = llc.div_ceil(n as usize);
    let sizes = match (llc / groups, llc.div_ceil(groups)) {
        (least, most) if least == most => most.to_string(),
        (least, most) => format!("{least} or {most}"),
    };
    let name = &k.name;
    Some(format!("kernel `{name}`: groups of {sizes} of the {llc} CPUs of an LLC, not of {n}"))
}

/// What to know of a scheduler that does not do what `nice`, `chrt` or the benchmark asks for.
fn note_policies(kernels: &[KernelChoice], workload: &dyn Workload, nr_cpus: usize) {
    let asks = Builder::of(workload, nr_cpus).asks_for_policies();
    let heeds = |name: &str| SCHEDULERS.iter().any(|s| s.name == name && s.heeds_policies);
    for k in kernels.iter().filter(|k| asks && !heeds(&k.release.scheduler)) {
        let (kernel, scheduler) = (&k.release.name, &k.release.scheduler);
        eprintln!(
            "vruntime: note: kernel `{kernel}`: with scheduler = {scheduler} policies and nice \
             values change nothing"
        );
    }
}

/// What to know of a window that is too short for the slowest balancing. The domain of all CPUs is
/// balanced every as many ms as it has CPUs (`sd->balance_interval`), by a busy CPU 16 times as
/// seldom, 32 times up to 5.7 (`sd->busy_factor`).
fn short_window(window: Ns, nr_cpus: u64) -> Option<String> {
    (window < Ns::from_ms(nr_cpus)).then(|| {
        format!(
            "a window of {} is shorter than the {nr_cpus} ms after which an idle CPU balances over \
             all {nr_cpus} CPUs: what that moves is left to chance",
            duration(window.0)
        )
    })
}

/// What to know of the windows by which the `runs` of a batch were measured.
fn note_windows<'a>(batch: &Batch, runs: impl Iterator<Item = &'a RunRecord> + Clone) {
    if let Sampling::Window { window, .. } = batch.sampling
        && runs.clone().any(|r| !r.complete)
        && let Ok(topology) = batch.machine.build_topology()
        && let Some(note) = short_window(window, topology.nr_cpus() as u64)
    {
        eprintln!("vruntime: note: {note}");
    }
    note_tails(batch.sampling, runs.clone());
    if let Sampling::Window { .. } = batch.sampling {
        note_unbegun(runs);
    }
}

/// What to know of runs whose benchmark did not start in the time there is.
fn note_unbegun<'a>(runs: impl Iterator<Item = &'a RunRecord>) {
    let (mut all, mut unbegun) = (0, 0);
    for r in runs {
        all += 1;
        unbegun += usize::from(r.window.0 == r.window.1 && !r.complete);
    }
    if unbegun > 0 {
        let limit = duration(FULL_LIMIT.0);
        eprintln!(
            "vruntime: note: in {unbegun} of {all} runs the measured window never began: the \
             benchmark did not start within {limit}; counts of these are 0"
        );
    }
}

/// What to know of runs whose counts are of the benchmark's last moments, because it ended within a
/// second warm-up.
fn note_tails<'a>(sampling: Sampling, runs: impl Iterator<Item = &'a RunRecord>) {
    let Sampling::Window { warmup, .. } = sampling else { return };
    let runs: Vec<&RunRecord> = runs.collect();
    let times = runs.iter().filter(|r| r.complete).filter_map(|r| r.time);
    let after = times.filter_map(|time| time.0.checked_sub(warmup.0));
    let short: Vec<u64> = after.filter(|&after| after < warmup.0).collect();
    let Some(&soonest) = short.iter().min() else { return };
    let (soonest, warmup) = (duration(soonest), duration(warmup.0));
    let ended = match runs.len() {
        1 => format!("the benchmark ended {soonest} after its warm-up of {warmup}"),
        n => format!(
            "in {} of {n} runs the benchmark ended soon after its warm-up of {warmup}, at the \
             soonest {soonest}",
            short.len()
        ),
    };
    eprintln!("vruntime: note: {ended}: counts are of its tail; --warmup 0 counts all of it");
}

/// What `--without` leaves out.
fn variation(s: &Simulation) -> Variation {
    Variation { without: s.without.iter().copied().collect(), ..Variation::default() }
}

/// How much was simulated, for JSON.
fn sampling_json(s: Sampling) -> Value {
    match s {
        Sampling::Full { limit } => json!({"mode": "full", "limit": limit.0}),
        Sampling::Window { warmup, window } => {
            json!({"mode": "window", "warmup": warmup.0, "window": window.0})
        }
    }
}

/// A result as JSON.
fn to_json(value: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|e| Failure::Input(format!("JSON: {e}")))
}
