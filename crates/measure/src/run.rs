//! One run for machines to read: the JSON of `vruntime run`.

use crate::causes::place_name;
use crate::metrics::{Counting, GroupRates, Metric, drift_pct, group_rates, metrics, window};
use serde::Serialize;
use std::collections::BTreeMap;
use vruntime_base::{Histogram, Ns};
use vruntime_kernel::program::Latency;
use vruntime_kernel::record::{Counters, IdleUse, RunRecord};

/// What is known of a distribution of durations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub count: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl From<&Histogram> for Percentiles {
    fn from(h: &Histogram) -> Percentiles {
        Percentiles {
            count: h.count(),
            mean_ns: h.mean().0,
            p50_ns: h.per_mille(500).0,
            p90_ns: h.per_mille(900).0,
            p99_ns: h.per_mille(990).0,
            p999_ns: h.per_mille(999).0,
            max_ns: h.max().0,
        }
    }
}

/// How late a thread was after its timers; null if no timer of it ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct MeasuredLatency {
    pub pid: u32,
    pub count: u64,
    pub min_ns: Option<u64>,
    pub last_ns: Option<u64>,
    pub mean_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

impl From<&Latency> for MeasuredLatency {
    fn from(l: &Latency) -> MeasuredLatency {
        let known = |t: Ns| (l.count > 0).then_some(t.0);
        MeasuredLatency {
            pid: l.pid,
            count: l.count,
            min_ns: known(l.min),
            last_ns: known(l.last),
            mean_ns: known(l.mean()),
            max_ns: known(l.max),
        }
    }
}

/// Causes of one run, name → count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunCauses {
    /// Context switches by cause.
    pub switches: BTreeMap<&'static str, u64>,
    /// Wakeup placements by rule.
    pub placements: BTreeMap<&'static str, u64>,
    /// Migrations by cause.
    pub migrations: BTreeMap<&'static str, u64>,
}

/// How CPUs used an idle state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// Its name.
    pub state: String,
    /// So often CPUs entered it.
    pub entered: u64,
    /// So long they were in it, without its exit latency, all CPUs.
    pub time_ns: u64,
}

impl From<&IdleUse> for IdleState {
    fn from(u: &IdleUse) -> IdleState {
        IdleState { state: u.state.clone(), entered: u.entered, time_ns: u.time.0 }
    }
}

/// What the checkers found; all zero is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Checks {
    /// Looks at which a CPU's `nr_running` did not fit its tasks.
    pub nr_running_wrong: u64,
    /// Looks at which a CPU was stopped with tasks on its queue and nobody to tell it, or with a
    /// softirq raised.
    pub stopped_with_work: u64,
    /// The longest time that a task waited while a CPU of its LLC was idle.
    pub idle_beside_waiting_ns: u64,
    /// The longest time that an RT task waited while a CPU that it may use ran nothing of its
    /// priority or above.
    pub rt_beside_lower_ns: u64,
    /// The largest gap of the ledger.
    pub ledger_gap_ns: u64,
}

/// A run; prints as the JSON of `vruntime run`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunJson {
    /// `vruntime/run/1`.
    pub schema: &'static str,
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
    /// Measured window, from and to, in ns since boot of the model.
    pub window: (u64, u64),
    /// From the benchmark's start to the window.
    pub warmup_ns: u64,
    /// Length of the window.
    pub window_ns: u64,
    /// The benchmark ended within the run.
    pub complete: bool,
    /// `time_ns` is extrapolated from the window.
    pub extrapolated: bool,
    /// How much faster the window's second half was than its first, in messages; null if the
    /// benchmark ended or counts none.
    pub drift_pct: Option<f64>,
    /// The benchmark's time; null if it cannot be known.
    pub time_ns: Option<u64>,
    /// Metrics; counts are totals if `counting` says so, otherwise per second.
    pub metrics: Vec<Metric>,
    /// Form of the counts in `metrics`.
    pub counting: Counting,
    /// Messages a second of the slowest, the middle and the fastest group; null for less than two.
    pub groups: Option<GroupRates>,
    /// Counters over the window.
    pub counters: BTreeMap<&'static str, u64>,
    /// Causes over the window.
    pub causes: RunCauses,
    /// ns by `function` or `function: resource`, all CPUs.
    pub cpu_time: BTreeMap<String, u64>,
    /// By idle state of the machine, from the shallowest on.
    pub idle_states: Vec<IdleState>,
    /// From the wakeup's start until the wakee runs.
    pub wakeup_latency: Percentiles,
    /// From becoming runnable until the switch begins.
    pub sched_delay: Percentiles,
    /// What the benchmark's own threads measured, in their order.
    pub latencies: Vec<MeasuredLatency>,
    /// Hash over all events, 16 hexadecimal digits.
    pub hash: String,
    /// Model events in the window.
    pub events: u64,
    /// Model memory per task in bytes.
    pub bytes_per_task: u64,
    /// The largest gap of the ledger on any CPU in ns: zero.
    pub ledger_gap_ns: u64,
    /// What the checkers found; null if they were not asked.
    pub checks: Option<Checks>,
}

impl From<&RunRecord> for RunJson {
    fn from(r: &RunRecord) -> RunJson {
        let counting = Counting::of(std::iter::once(r));
        let mut cpu_time = BTreeMap::new();
        for &(func, resource, d) in r.cpu_time.iter().filter(|e| e.2.0 > 0) {
            *cpu_time.entry(place_name(func, resource)).or_default() += d.0;
        }
        RunJson {
            schema: "vruntime/run/1",
            machine: r.machine.clone(),
            kernel: r.kernel.clone(),
            workload: r.workload.clone(),
            seed: r.seed,
            nr_cpus: r.nr_cpus,
            nr_tasks: r.nr_tasks,
            window: (r.window.0.0, r.window.1.0),
            warmup_ns: r.window.0.saturating_sub(r.started).0,
            window_ns: window(r).0,
            complete: r.complete,
            extrapolated: r.time.is_some() && !r.complete,
            drift_pct: drift_pct(r),
            time_ns: r.time.map(|t| t.0),
            metrics: metrics(r, counting),
            counting,
            groups: group_rates(r),
            counters: counters(&r.counters).into_iter().collect(),
            causes: RunCauses {
                switches: r.switches.iter().copied().collect(),
                placements: r.placements.iter().copied().collect(),
                migrations: r.migrations.iter().copied().collect(),
            },
            cpu_time,
            idle_states: r.idle_states.iter().map(IdleState::from).collect(),
            wakeup_latency: (&r.wakeup_latency).into(),
            sched_delay: (&r.sched_delay).into(),
            latencies: r.latencies.iter().map(MeasuredLatency::from).collect(),
            hash: format!("{:016x}", r.hash),
            events: r.events,
            bytes_per_task: r.bytes_per_task,
            ledger_gap_ns: r.ledger_gap,
            checks: r.checks.as_ref().map(|c| Checks {
                nr_running_wrong: c.nr_running_wrong,
                stopped_with_work: c.stopped_with_work,
                idle_beside_waiting_ns: c.idle_beside_waiting.0,
                rt_beside_lower_ns: c.rt_beside_lower.0,
                ledger_gap_ns: c.ledger_gap,
            }),
        }
    }
}

/// Every counter under its field name.
pub fn counters(c: &Counters) -> Vec<(&'static str, u64)> {
    macro_rules! named {
        ($($field:ident)*) => { vec![$((stringify!($field), c.$field)),*] };
    }
    named!(context_switches voluntary_switches involuntary_switches cpu_migrations wakeups
        wakeups_local wakeups_queued wakeups_on_rq wakeups_on_cpu sched_count sched_goidle ipis
        ticks messages forks syscalls task_clock_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::record;

    #[test]
    fn field_names_are_a_contract() {
        let json = serde_json::to_value(RunJson::from(&record("v6.5", 3, 2.0))).unwrap();
        for key in [
            "schema",
            "machine",
            "kernel",
            "workload",
            "seed",
            "window",
            "complete",
            "time_ns",
            "metrics",
            "counters",
            "causes",
            "cpu_time",
            "wakeup_latency",
            "hash",
            "events",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(json["schema"], "vruntime/run/1");
        assert_eq!(json["hash"], "0000000000000abc");
        assert!(json["checks"].is_null());
        assert_eq!(json["time_ns"], 2_000_000_000_u64);
        assert_eq!(json["metrics"][0]["metric"], "time");
        assert_eq!(json["counters"]["context_switches"], 4000);
        assert_eq!(json["cpu_time"]["pipe_read: pipe mutex"], 50);
        assert!(json["wakeup_latency"]["p99_ns"].as_u64().unwrap() > 90_000);
    }
}
