//! One run as named numbers.
//!
//! *Equations.* Shares are of all CPU time that is not idle, in %: `scheduler` = Σ time of
//! functions of that category / Σ time of non-idle functions, waiting included; `rq_lock_wait` =
//! Σ time waited for run queue locks / the same. `idle` is of all CPU time.

use crate::stats::{median, ratio};
use serde::Serialize;
use vruntime_base::{Category, Func, Histogram, Ns, Resource};
use vruntime_kernel::record::{GroupProgress, RunRecord};

/// Which direction of a metric is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better (times, latencies).
    Lower,
    /// More is better (throughput).
    Higher,
    /// Neither: a count that explains.
    None,
}

/// How counts of events are given. A comparison uses one form for all its runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// As they are: comparable if every run did the whole benchmark.
    Totals,
    /// Per second of the measured window.
    Rates,
}

impl Counting {
    /// Totals if every run measured the whole of its benchmark, otherwise rates.
    pub fn of<'a>(mut runs: impl Iterator<Item = &'a RunRecord>) -> Counting {
        match runs.all(whole) {
            true => Counting::Totals,
            false => Counting::Rates,
        }
    }
}

/// True if the window covers the benchmark from its start to its end.
pub fn whole(r: &RunRecord) -> bool {
    r.complete && r.window.0 <= r.started
}

/// A named number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Metric {
    /// Name, as in `--json` and tables.
    #[serde(rename = "metric")]
    pub name: &'static str,
    /// Unit: `s`, `ns`, `1` (a count or a ratio), `1/s`, `%`.
    pub unit: &'static str,
    /// Better direction.
    pub better: Better,
    /// Value in `unit`; finite.
    pub value: f64,
}

/// Length of the measured window.
pub fn window(r: &RunRecord) -> Ns {
    r.window.1.saturating_sub(r.window.0)
}

/// How evenly the benchmark's groups got on: messages a second of each while it had some to do.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct GroupRates {
    /// Of the slowest group, which gives a benchmark its time.
    pub slowest: f64,
    /// Of the one in the middle.
    pub median: f64,
    /// Of the fastest.
    pub fastest: f64,
}

/// The rates of the groups that had messages left in the window; `None` for fewer than two.
pub fn group_rates(r: &RunRecord) -> Option<GroupRates> {
    let (from, to) = r.window;
    let rate = |g: &GroupProgress| {
        let until = g.finished_at.unwrap_or(to).min(to).saturating_sub(from);
        let made = g.at_window_end - g.at_window_start;
        ratio(made as f64 * 1e9, until.0 as f64)
    };
    let mut rates: Vec<f64> = r.groups.iter().filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    match rates[..] {
        [slowest, .., fastest] => {
            median(rates).map(|median| GroupRates { slowest, median, fastest })
        }
        _ => None,
    }
}

/// How much faster, in % (negative: slower), the second half of the window was than the first, in
/// messages of the groups that are not through. `None` for a run that came to its end, or without
/// messages in one of them.
pub fn drift_pct(r: &RunRecord) -> Option<f64> {
    let half = r.half.filter(|_| !r.complete)?;
    let left = || r.groups.iter().filter(|g| g.finished_at.is_none());
    let first: u64 = left().map(|g| g.at_half - g.at_window_start).sum();
    let second: u64 = left().map(|g| g.at_window_end - g.at_half).sum();
    let rate = |made: u64, from: Ns, to: Ns| ratio(made as f64, to.saturating_sub(from).0 as f64);
    let (first, second) = (rate(first, r.window.0, half)?, rate(second, half, r.window.1)?);
    ratio(second, first).filter(|q| *q > 0.0).map(|q| 100.0 * (q - 1.0))
}

/// All names that [`metrics`] gives, and what they mean.
pub const METRICS: [(&str, &str); 21] = [
    ("time", "s: what the benchmark would print; its slowest group ends it"),
    ("context_switches", "of all CPUs; a second if a run measured part of its benchmark"),
    ("voluntary_switches", "those of tasks that slept"),
    ("involuntary_switches", "those of tasks that could have gone on"),
    ("migrations", "changes of a task's CPU, counted as context_switches are"),
    ("wakeup_latency_p50", "ns from the begin of try_to_wake_up until the wakee runs: median"),
    ("wakeup_latency_p99", "the same: 99th percentile"),
    (
        "sched_delay_p99",
        "ns from being queued until the switch to the task begins: 99th percentile",
    ),
    ("timer_latency_mean", "ns that cyclictest's threads ran late, in the mean"),
    ("timer_latency_max", "the same, at the most"),
    ("switches_per_message", "context switches by messages; a message is one write"),
    ("migrations_per_message", "the same of migrations"),
    ("messages_per_second", "of simulated time"),
    ("user", "% of the time in which CPUs were not idle: the programs"),
    ("syscall", "% of the same: system calls without the scheduler; their waiting included"),
    ("scheduler", "% of the same: wakeups, switches, balancing; their waiting included"),
    ("irq", "% of the same: interrupts, softirqs and ticks; their waiting included"),
    ("rq_lock_wait", "% of the same: waiting for run queues' locks, by whatever function"),
    ("tg_load_avg", "% of the same: waiting for tg->load_avg"),
    ("pipe_mutex_wait", "% of the same: waiting for pipes' mutexes"),
    ("idle", "% of all CPU time"),
];

/// The names of [`METRICS`].
pub fn metric_names() -> impl Iterator<Item = &'static str> {
    METRICS.into_iter().map(|(name, _)| name)
}

/// The metrics of one run in the order of reports. What the run cannot tell (the time of a run that
/// was given up, latencies without a wakeup, ratios per message without messages) is absent.
pub fn metrics(r: &RunRecord, counting: Counting) -> Vec<Metric> {
    let mut out = Vec::new();
    let mut put = |name, unit, better, value: Option<f64>| {
        if let Some(value) = value {
            out.push(Metric { name, unit, better, value });
        }
    };
    let seconds = window(r).0 as f64 / 1e9;
    let messages = r.counters.messages as f64;
    put("time", "s", Better::Lower, r.time.map(|t| t.0 as f64 / 1e9));

    let (count_unit, per) = match counting {
        Counting::Totals => ("1", 1.0),
        Counting::Rates => ("1/s", seconds),
    };
    let c = &r.counters;
    for (name, n) in [
        ("context_switches", c.context_switches),
        ("voluntary_switches", c.voluntary_switches),
        ("involuntary_switches", c.involuntary_switches),
        ("migrations", c.cpu_migrations),
    ] {
        put(name, count_unit, Better::None, ratio(n as f64, per));
    }

    let latency = Better::Lower;
    put("wakeup_latency_p50", "ns", latency, percentile(&r.wakeup_latency, 500));
    put("wakeup_latency_p99", "ns", latency, percentile(&r.wakeup_latency, 990));
    put("sched_delay_p99", "ns", latency, percentile(&r.sched_delay, 990));
    let measured = r.latencies.iter().filter(|l| l.count > 0);
    let (count, sum) =
        measured.clone().fold((0, 0), |(count, sum), l| (count + l.count, sum + l.sum.0));
    put("timer_latency_mean", "ns", latency, ratio(sum as f64, count as f64));
    put(
        "timer_latency_max",
        "ns",
        latency,
        measured.map(|l| l.max.0 as f64).max_by(f64::total_cmp),
    );

    let switches = ratio(c.context_switches as f64, messages);
    put("switches_per_message", "1", Better::None, switches);
    put("migrations_per_message", "1", Better::None, ratio(c.cpu_migrations as f64, messages));
    if c.messages > 0 {
        put("messages_per_second", "1/s", Better::Higher, ratio(messages, seconds));
    }

    let of = |f: &dyn Fn(Func, Resource) -> bool| -> f64 {
        // A sum of nothing is -0.0 in Rust, which would be printed so.
        r.cpu_time.iter().filter(|e| f(e.0, e.1)).fold(0.0, |sum, e| sum + e.2.0 as f64)
    };
    let all = of(&|_, _| true);
    let busy = of(&|f, _| f.category() != Category::Idle);
    let share = |part: f64, whole: f64| ratio(100.0 * part, whole);
    for (name, category) in [
        ("user", Category::User),
        ("syscall", Category::Syscall),
        ("scheduler", Category::Scheduler),
        ("irq", Category::Irq),
    ] {
        put(name, "%", Better::None, share(of(&|f, _| f.category() == category), busy));
    }
    for (name, resource) in [
        ("rq_lock_wait", Resource::RqLock),
        ("tg_load_avg", Resource::TgLoadAvg),
        ("pipe_mutex_wait", Resource::PipeMutex),
    ] {
        let waited = of(&|f, on| on == resource && f.category() != Category::Idle);
        put(name, "%", Better::None, share(waited, busy));
    }
    put("idle", "%", Better::None, share(all - busy, all));
    out
}

/// Percentile in ns; `None` for an empty histogram.
fn percentile(h: &Histogram, per_mille: u64) -> Option<f64> {
    (h.count() > 0).then(|| h.per_mille(per_mille).0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::record;

    fn value(m: &[Metric], name: &str) -> Option<f64> {
        m.iter().find(|m| m.name == name).map(|m| m.value)
    }

    /// The record has messages, latencies and a time: no metric is absent.
    #[test]
    fn all_names_are_known() {
        let found: Vec<&str> =
            metrics(&record("a", 1, 2.0), Counting::Totals).iter().map(|m| m.name).collect();
        assert!(metric_names().eq(found));
    }

    #[test]
    fn shares_close() {
        let m = metrics(&record("a", 1, 2.0), Counting::Totals);
        let sum: f64 =
            ["user", "syscall", "scheduler", "irq"].iter().filter_map(|n| value(&m, n)).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        assert_eq!(value(&m, "idle"), Some(20.0));
        assert_eq!(value(&m, "rq_lock_wait"), Some(12.5));
        assert!(value(&m, "tg_load_avg").unwrap().is_sign_positive());
    }

    #[test]
    fn counts_are_totals_or_rates() {
        let mut r = record("a", 1, 2.0);
        assert_eq!(value(&metrics(&r, Counting::Totals), "context_switches"), Some(4000.0));
        assert_eq!(value(&metrics(&r, Counting::Rates), "context_switches"), Some(2000.0));
        assert_eq!(Counting::of([&r].into_iter()), Counting::Totals);
        r.complete = false;
        assert_eq!(Counting::of([&r].into_iter()), Counting::Rates);
    }

    #[test]
    fn unknown_is_absent() {
        let mut r = record("a", 1, 2.0);
        r.time = None;
        r.counters = Default::default();
        r.wakeup_latency = Histogram::default();
        r.latencies.clear();
        r.cpu_time.clear();
        r.window.1 = r.window.0;
        let m = metrics(&r, Counting::Rates);
        let names: Vec<_> = m.iter().map(|m| m.name).collect();
        assert_eq!(names, ["sched_delay_p99"]);
    }
}
