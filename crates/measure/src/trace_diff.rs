//! Two traces side by side.
//!
//! *What.* The figures of both in the rows of a comparison, and their causes in two columns.
//! *Equations.* Counts are per second of trace. Each trace is cut into slices of equal length, and
//! a row's interval comes from the figures of the slices (batch means): the first slice of one is
//! set against the first of the other, and so on.
//! *Departures.* D1: slices of one recording are taken as independent. A workload with phases
//! longer than a slice makes the interval too wide, never the difference wrong.
//! *Example.* Ten slices of A with 100 switches a second each, of B with 90: −10 %, interval of
//! length zero.

use crate::causes::CauseTables;
use crate::compare::{Row, row};
use crate::interval::Sig;
use crate::metrics::{Better, Metric};
use crate::stats::ratio;
use crate::timeline_causes::timeline_causes;
use crate::timeline_stats::{TimelineStats, timeline_stats};
use serde::Serialize;
use vruntime_base::Timeline;

/// The difference of two traces; prints as the JSON of `vruntime trace diff`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceDiff {
    /// `vruntime/trace-diff/1`.
    pub schema: &'static str,
    /// Names of the traces; the first is the base.
    pub traces: Vec<String>,
    /// From the first event to the last, per trace.
    pub span_ns: Vec<u64>,
    /// Events, per trace.
    pub events: Vec<usize>,
    /// Slices of each trace.
    pub slices: usize,
    /// The rule of `significant`.
    pub significance: Sig,
    /// Figures. Counts are per second.
    pub rows: Vec<Row>,
    /// Causes: counts over the whole trace, one column each.
    pub causes: CauseTables,
}

/// Compares two traces, each cut into `slices`.
pub fn trace_diff(traces: [(&str, &Timeline); 2], slices: usize, sig: Sig) -> TraceDiff {
    let figures: Vec<Vec<Vec<Metric>>> = traces.map(|(_, t)| cut(t, slices)).into();
    let columns = |name: &str| -> Vec<Vec<Option<f64>>> {
        let of = |slice: &Vec<Metric>| slice.iter().find(|m| m.name == name).map(|m| m.value);
        figures.iter().map(|trace| trace.iter().map(of).collect()).collect()
    };
    let mut seen: Vec<Metric> = vec![];
    for m in figures.iter().flatten().flatten() {
        if !seen.iter().any(|s| s.name == m.name) {
            seen.push(*m);
        }
    }
    // A slice without a single wakeup lacks their shares; the order is that of `figures_of`.
    seen.sort_by_key(|m| NAMES.iter().position(|n| *n == m.name));
    TraceDiff {
        schema: "vruntime/trace-diff/1",
        traces: traces.map(|(name, _)| name.to_owned()).into(),
        span_ns: traces.map(|(_, t)| t.span().0).into(),
        events: traces.map(|(_, t)| t.len()).into(),
        slices,
        significance: sig,
        rows: seen.iter().map(|m| row(m, &columns(m.name), sig)).collect(),
        causes: CauseTables::side_by_side(&traces.map(|(_, t)| timeline_causes(t))),
    }
}

/// The figures of each of `slices` parts of equal length; none if there is nothing to cut.
fn cut(t: &Timeline, slices: usize) -> Vec<Vec<Metric>> {
    let first = t.first_time().map_or(0, |first| first.0);
    let length = t.span().0.div_ceil(slices as u64);
    if length == 0 {
        return vec![];
    }
    let mut parts: Vec<Vec<Metric>> = Vec::with_capacity(slices);
    let mut part = Timeline::default();
    let mut close = |part: &mut Timeline| {
        part.name_tasks(t.tasks().to_vec());
        let figures = figures_of(&timeline_stats(part), length);
        *part = Timeline::default();
        parts.push(figures);
    };
    let mut end = first + length;
    for e in t.iter() {
        while e.time.0 >= end && end - first < length * slices as u64 {
            close(&mut part);
            end += length;
        }
        part.push(e);
    }
    close(&mut part);
    parts
}

const NAMES: [&str; 14] = [
    "context_switches",
    "voluntary_switches",
    "involuntary_switches",
    "wakeups",
    "woken_on_prev",
    "woken_on_waker",
    "woken_elsewhere",
    "migrations",
    "sched_delay_mean",
    "sched_delay_p50",
    "sched_delay_p95",
    "sched_delay_p99",
    "sched_delay_max",
    "idle",
];

/// Named figures of one slice of `length` ns, in the order of [`NAMES`].
fn figures_of(s: &TimelineStats, length: u64) -> Vec<Metric> {
    let mut out = Vec::new();
    let mut put = |name, unit, better, value: Option<f64>| {
        if let Some(value) = value {
            out.push(Metric { name, unit, better, value });
        }
    };
    let seconds = length as f64 / 1e9;
    let rate = |n: u64| ratio(n as f64, seconds);
    let sum = |f: &dyn Fn(&crate::timeline_stats::TaskFigures) -> u64| s.tasks.iter().map(f).sum();
    let (voluntary, involuntary): (u64, u64) =
        (sum(&|t| t.nr_voluntary), sum(&|t| t.nr_involuntary));
    let none = Better::None;
    let switches: u64 = s.cpus.iter().map(|c| c.nr_switches).sum();
    put("context_switches", "1/s", none, rate(switches));
    put("voluntary_switches", "1/s", none, rate(voluntary));
    put("involuntary_switches", "1/s", none, rate(involuntary));
    put("wakeups", "1/s", none, rate(sum(&|t| t.nr_wakeups)));
    let by_place: [u64; 3] = [
        sum(&|t| t.nr_woken_on_prev),
        sum(&|t| t.nr_woken_on_waker),
        sum(&|t| t.nr_woken_elsewhere),
    ];
    let placed: u64 = by_place.iter().sum();
    for (name, n) in ["woken_on_prev", "woken_on_waker", "woken_elsewhere"].iter().zip(by_place) {
        put(name, "%", none, ratio(100.0 * n as f64, placed as f64));
    }
    put("migrations", "1/s", none, rate(sum(&|t| t.nr_migrations)));
    let d = s.sched_delay;
    for (name, ns) in [
        ("sched_delay_mean", d.mean_ns),
        ("sched_delay_p50", d.p50_ns),
        ("sched_delay_p95", d.p95_ns),
        ("sched_delay_p99", d.p99_ns),
        ("sched_delay_max", d.max_ns),
    ] {
        put(name, "ns", Better::Lower, (d.count > 0).then_some(ns as f64));
    }
    let busy: u64 = s.cpus.iter().map(|c| c.busy_ns).sum();
    let idle: u64 = s.cpus.iter().map(|c| c.idle_ns).sum();
    put("idle", "%", none, ratio(100.0 * idle as f64, (busy + idle) as f64));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, Event, EventKind, Ns, TaskId, TaskRow};

    /// One CPU on which A and B alternate every `period` ns, `n` times.
    fn alternating(period: u64, n: u64) -> Timeline {
        let mut t = Timeline::default();
        for i in 0..n {
            let (task, a) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
            t.push(Event {
                time: Ns(i * period),
                cpu: Cpu(0),
                kind: EventKind::Switch,
                task: TaskId(task),
                a,
                b: 1,
                cause: None,
                flags: 0,
            });
        }
        let row = |comm: &str, pid| TaskRow { comm: comm.into(), pid, tgid: pid, prio: 120 };
        t.name_tasks(vec![row("swapper", 0), row("A", 1), row("B", 2)]);
        t
    }

    #[test]
    fn half_the_period_is_twice_the_switches() {
        let (a, b) = (alternating(1_000, 1_001), alternating(500, 2_001));
        let d = trace_diff([("a", &a), ("b", &b)], 10, Sig::Interval);
        let row = d.rows.iter().find(|r| r.metric == "involuntary_switches").unwrap();
        let pct = row.delta_pct[1].unwrap();
        assert!((pct - 100.0).abs() < 1.0, "{pct}");
        assert!(row.significant[1]);
        assert_eq!(d.causes.switches.0, [("slice ended or sched_yield", vec![1_001, 2_001])]);
        assert_eq!(d.span_ns, [1_000_000, 1_000_000]);
        assert!(d.rows.iter().all(|r| r.metric != "woken_on_prev"));
    }

    #[test]
    fn a_trace_does_not_differ_from_itself() {
        let a = alternating(1_000, 777);
        let d = trace_diff([("a", &a), ("a", &a)], 7, Sig::Interval);
        assert!(d.rows.iter().all(|r| !r.significant[1] && r.delta_pct[1].unwrap_or(0.0) == 0.0));
        let empty = Timeline::default();
        for pair in [[("none", &empty), ("a", &a)], [("a", &a), ("none", &empty)]] {
            let d = trace_diff(pair, 7, Sig::Interval);
            assert!(d.rows.iter().all(|r| !r.significant[1]));
            let known = usize::from(pair[0].0 == "none");
            assert_eq!(d.causes.switches.0[0].1[known], 777);
        }
    }

    #[test]
    fn every_figure_has_its_place() {
        for m in figures_of(&timeline_stats(&alternating(1_000, 50)), 50_000) {
            assert!(NAMES.contains(&m.name), "{}", m.name);
        }
    }
}
