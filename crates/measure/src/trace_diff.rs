//! Two traces side by side.
//!
//! *What.* The figures of both in the rows of a comparison, and their causes in two columns.
//! *Source.* Of this project: `vruntime trace stat`, and [`interval`](crate::interval) for pairs.
//! *Equations.* Counts are per second of trace. Figures are those of the whole traces, as `trace
//! stat` has them. Each trace is cut into slices of equal length, and a row's interval comes from
//! what each figure would be without one of them ([`trace_parts`](crate::trace_parts)): the first
//! slice of one is set against the first of the other, and so on.
//! *Departures.* D1: slices of one recording are taken as independent, and two recordings as if
//! they were all there is: how far runs of one kernel differ from each other is not seen. Of 276
//! pairs of equal short runs of the model a row of placements had a star in up to 19 %. D2: the
//! longest delay has no interval, for which leaving out parts is no way.
//! *Example.* Ten slices of A with 100 switches a second each, of B with 90: −10 %, interval of
//! length zero.

use crate::causes::CauseTables;
use crate::compare::{Row, row};
use crate::interval::Sig;
use crate::metrics::{Better, Metric};
use crate::stats::ratio;
use crate::timeline_causes::timeline_causes;
use crate::timeline_stats::timeline_parts;
use crate::trace_parts::{Parts, Sum, Sums};
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
    let [a, b] = traces.map(|(_, t)| figures(&timeline_parts(t, slices)));
    let known = |(a, b): &(Figure, Figure)| a.1.iter().chain(&b.1).any(Option::is_some);
    let pairs = a.into_iter().zip(b).filter(known);
    TraceDiff {
        schema: "vruntime/trace-diff/1",
        traces: traces.map(|(name, _)| name.to_owned()).into(),
        span_ns: traces.map(|(_, t)| t.span().0).into(),
        events: traces.map(|(_, t)| t.len()).into(),
        slices,
        significance: sig,
        rows: pairs.map(|(a, b)| row(&a.0, &[a.1, b.1], sig)).collect(),
        causes: CauseTables::side_by_side(&traces.map(|(_, t)| timeline_causes(t))),
    }
}

/// What a figure is called, and its pseudo-values.
type Figure = (Metric, Vec<Option<f64>>);

/// All figures of a trace.
fn figures(parts: &Parts) -> Vec<Figure> {
    let of = |s: &Sums, sum: Sum| s[sum as usize] as f64;
    let rate = |sum| move |s: &Sums| ratio(of(s, sum), of(s, Sum::TimeNs) / 1e9);
    let placed = |s: &Sums| of(s, Sum::OnPrev) + of(s, Sum::OnWaker) + of(s, Sum::Elsewhere);
    let share = |sum| move |s: &Sums| ratio(100.0 * of(s, sum), placed(s));
    let mut out = vec![];
    let mut put = |name, unit, better, values| {
        out.push((Metric { name, unit, better, value: 0.0 }, values));
    };
    for (name, sum) in [
        ("context_switches", Sum::Switches),
        ("voluntary_switches", Sum::Voluntary),
        ("involuntary_switches", Sum::Involuntary),
        ("wakeups", Sum::Wakeups),
    ] {
        put(name, "1/s", Better::None, parts.pseudo(rate(sum)));
    }
    for (name, sum) in [
        ("woken_on_prev", Sum::OnPrev),
        ("woken_on_waker", Sum::OnWaker),
        ("woken_elsewhere", Sum::Elsewhere),
    ] {
        put(name, "%", Better::None, parts.pseudo(share(sum)));
    }
    put("migrations", "1/s", Better::None, parts.pseudo(rate(Sum::Migrations)));
    let mean = |s: &Sums| ratio(of(s, Sum::DelayNs), of(s, Sum::Delays));
    put("sched_delay_mean", "ns", Better::Lower, parts.pseudo(mean));
    for (name, percent) in
        [("sched_delay_p50", 50), ("sched_delay_p95", 95), ("sched_delay_p99", 99)]
    {
        put(name, "ns", Better::Lower, parts.pseudo_delay(percent));
    }
    put("sched_delay_max", "ns", Better::Lower, vec![parts.longest_delay()]);
    let idle =
        |s: &Sums| ratio(100.0 * of(s, Sum::IdleNs), of(s, Sum::BusyNs) + of(s, Sum::IdleNs));
    put("idle", "%", Better::None, parts.pseudo(idle));
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
            let event = Event::new(Ns(i * period), Cpu(0), EventKind::Switch, TaskId(task));
            t.push(Event { a, b: 1, ..event });
        }
        let row = |comm: &str, pid| TaskRow { comm: comm.into(), pid, tgid: pid };
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
        assert_eq!(
            d.causes.switches.0,
            [("preempted, slice ended or sched_yield", vec![1_001, 2_001])]
        );
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

    /// The figures of the whole, however many the slices: a wakeup in one slice whose task runs in
    /// the next, an idle time longer than a slice.
    #[test]
    fn figures_are_those_of_the_whole() {
        use EventKind::{Switch, Wakeup};
        let mut t = alternating(1_000, 11);
        let rows =
            [(12_000, Switch, 2, 0, 0), (30_000, Wakeup, 2, 0, 0), (39_000, Switch, 0, 2, 0)];
        for (time, kind, task, a, b) in rows {
            let (time, cpu, task) = (Ns(time), Cpu(0), TaskId(task));
            t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
        }
        for slices in [1, 2, 7, 40] {
            let d = trace_diff([("a", &t), ("a", &t)], slices, Sig::Interval);
            let value = |name| {
                let row = d.rows.iter().find(|r| r.metric == name);
                row.and_then(|r| r.value[1]).map(|v: f64| (v * 10.0).round() / 10.0)
            };
            let found = ["idle", "sched_delay_p99", "sched_delay_mean"].map(value);
            assert_eq!(found, [Some(69.2), Some(9_000.0), Some(9_000.0)], "{slices} slices");
        }
    }
}
