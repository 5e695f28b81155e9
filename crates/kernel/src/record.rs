//! What goes into a run and what comes out of it: plain data.

pub use crate::checks::CheckReport;
use crate::program::{Latency, Workload};
pub use crate::schedstat::Schedstat;
pub use crate::variation::{Knockout, Knockouts, Variation};
use std::sync::Arc;
use vruntime_base::{Func, Histogram, Ns, Resource, Timeline};
use vruntime_machine::MachineSpec;
use vruntime_sched::release::Release;

/// What to simulate.
#[derive(Clone)]
pub struct RunSpec {
    /// The machine.
    pub machine: Arc<MachineSpec>,
    /// The kernel with its overrides.
    pub release: Arc<Release>,
    /// The benchmark.
    pub workload: Arc<dyn Workload>,
    /// Seed of all randomness.
    pub seed: u64,
    /// How much to simulate.
    pub sampling: Sampling,
    /// Let the checkers look at the run every millisecond (slow; changes nothing else).
    pub checks: bool,
    /// How the model differs for this run.
    pub variation: Variation,
    /// Keep a [`Timeline`] of at most this many events.
    pub timeline: usize,
    /// Only what happens in the measured window.
    pub timeline_of_window: bool,
    /// Keep the counters of every CPU and domain ([`Schedstat`]).
    pub schedstat: bool,
}

/// A full run that has not ended after this much simulated time is given up, if nothing else is
/// said.
pub const FULL_LIMIT: Ns = Ns(600_000_000_000);

impl RunSpec {
    /// The whole benchmark up to [`FULL_LIMIT`], with seed 1, on the model as it is; no checks, no
    /// timeline, no schedstat. What differs stands before it:
    /// `RunSpec { seed: 2, ..RunSpec::new(machine, release, workload) }`.
    pub fn new(
        machine: impl Into<Arc<MachineSpec>>,
        release: impl Into<Arc<Release>>,
        workload: Arc<dyn Workload>,
    ) -> RunSpec {
        RunSpec {
            machine: machine.into(),
            release: release.into(),
            workload,
            seed: 1,
            sampling: Sampling::Full { limit: FULL_LIMIT },
            checks: false,
            variation: Variation::default(),
            timeline: 0,
            timeline_of_window: false,
            schedstat: false,
        }
    }
}

/// How much of the benchmark is simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampling {
    /// From start to end, but no longer than this.
    Full {
        /// Simulated time after which the run is given up as incomplete.
        limit: Ns,
    },
    /// From the benchmark's start: `warmup`, then `window`; ends earlier if the benchmark does.
    /// The benchmark time is extrapolated from each group's progress in the window.
    Window {
        /// Not measured.
        warmup: Ns,
        /// Measured.
        window: Ns,
    },
}

/// perf stat's and schedstat's counters, over the measured window and all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Counters {
    pub context_switches: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub cpu_migrations: u64,
    pub wakeups: u64,
    pub wakeups_local: u64,
    pub wakeups_queued: u64,
    pub wakeups_on_rq: u64,
    pub wakeups_on_cpu: u64,
    pub sched_count: u64,
    pub sched_goidle: u64,
    pub ipis: u64,
    pub ticks: u64,
    pub messages: u64,
    pub forks: u64,
    pub syscalls: u64,
    /// How long tasks of the workload were on a CPU, from switch to switch.
    pub task_clock_ns: u64,
}

impl Counters {
    /// The counts since `earlier`, an older copy of the same counters.
    pub fn since(&self, e: &Counters) -> Counters {
        Counters {
            context_switches: self.context_switches - e.context_switches,
            voluntary_switches: self.voluntary_switches - e.voluntary_switches,
            involuntary_switches: self.involuntary_switches - e.involuntary_switches,
            cpu_migrations: self.cpu_migrations - e.cpu_migrations,
            wakeups: self.wakeups - e.wakeups,
            wakeups_local: self.wakeups_local - e.wakeups_local,
            wakeups_queued: self.wakeups_queued - e.wakeups_queued,
            wakeups_on_rq: self.wakeups_on_rq - e.wakeups_on_rq,
            wakeups_on_cpu: self.wakeups_on_cpu - e.wakeups_on_cpu,
            sched_count: self.sched_count - e.sched_count,
            sched_goidle: self.sched_goidle - e.sched_goidle,
            ipis: self.ipis - e.ipis,
            ticks: self.ticks - e.ticks,
            messages: self.messages - e.messages,
            forks: self.forks - e.forks,
            syscalls: self.syscalls - e.syscalls,
            task_clock_ns: self.task_clock_ns - e.task_clock_ns,
        }
    }
}

/// How CPUs used an idle state, as `usage` and `time` of cpuidle in sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleUse {
    /// Its name.
    pub state: String,
    /// So often CPUs entered it.
    pub entered: u64,
    /// So long they were in it, without its exit latency, all CPUs.
    pub time: Ns,
}

impl IdleUse {
    /// What came after `from`, if there was a before.
    pub(crate) fn since(&self, from: Option<&IdleUse>) -> IdleUse {
        let (entered, time) = from.map_or((0, Ns::ZERO), |f| (f.entered, f.time));
        let state = self.state.clone();
        IdleUse { state, entered: self.entered - entered, time: self.time - time }
    }
}

/// One progress group of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupProgress {
    /// Messages to do.
    pub goal: u64,
    /// Messages done when the window began.
    pub at_window_start: u64,
    /// Messages done at [`RunRecord::half`].
    pub at_half: u64,
    /// Messages done when it ended.
    pub at_window_end: u64,
    /// When the goal was reached, if it was.
    pub finished_at: Option<Ns>,
    /// How many of its tasks were seen to run in the window, all looks together; one a millisecond.
    pub seen_running: u64,
    /// The same of those that waited for a CPU; those of no group that is known count in each.
    pub seen_waiting: u64,
}

/// What a run gives. Everything but `spec` strings is over the measured window.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// Machine name.
    pub machine: String,
    /// Kernel expression.
    pub kernel: String,
    /// Command line of the workload.
    pub workload: String,
    /// Seed.
    pub seed: u64,
    /// CPUs of the machine.
    pub nr_cpus: usize,
    /// Tasks that ever existed, idle tasks and stoppers not counted.
    pub nr_tasks: usize,
    /// When the benchmark took its start time.
    pub started: Ns,
    /// The measured window.
    pub window: (Ns, Ns),
    /// When half of it was over, or within a millisecond of that.
    pub half: Option<Ns>,
    /// The benchmark ended within the run.
    pub complete: bool,
    /// The benchmark's time: measured if complete, otherwise extrapolated; `None` if it cannot be
    /// known (a group made no progress, or the run was given up).
    pub time: Option<Ns>,
    /// Progress by group.
    pub groups: Vec<GroupProgress>,
    /// Counters.
    pub counters: Counters,
    /// Switches by cause.
    pub switches: Vec<(&'static str, u64)>,
    /// Wakeup placements by rule.
    pub placements: Vec<(&'static str, u64)>,
    /// Migrations by cause.
    pub migrations: Vec<(&'static str, u64)>,
    /// CPU time by function and resource, all CPUs.
    pub cpu_time: Vec<(Func, Resource, Ns)>,
    /// By idle state of the machine: how often and how long CPUs were in it.
    pub idle_states: Vec<IdleUse>,
    /// From the wakeup's start until the wakee runs.
    pub wakeup_latency: Histogram,
    /// From becoming runnable until the switch to it begins, after wakeups, forks and preemptions.
    pub sched_delay: Histogram,
    /// Latencies that the benchmark measured itself.
    pub latencies: Vec<Latency>,
    /// Model events in the window.
    pub events: u64,
    /// Hash over all events of the run.
    pub hash: u64,
    /// Bytes per task, all arrays of the model that grow with tasks.
    pub bytes_per_task: u64,
    /// The largest difference on any CPU between booked time and time elapsed or planned: zero.
    pub ledger_gap: u64,
    /// What the checkers found, if they were asked.
    pub checks: Option<CheckReport>,
    /// Events, if asked for.
    pub timeline: Timeline,
    /// The counters of every CPU and domain, if asked for.
    pub schedstat: Option<Schedstat>,
}
