//! What is known of the root load of a CPU at a moment: an interval.
//!
//! *What.* Rows show `load_avg` of a run queue as it stood then. Between rows only ticks (and the
//! balancer) bring it up to date, towards the load weight on the queue, which is known; so the
//! value lies between the last one seen and what full decay to now would give. Sleepers that
//! were woken elsewhere are subtracted at the next update, whenever that is.
//! *Groups.* The entity of a task group has a weight that follows the group's load elsewhere, and
//! its load with it; where one may have changed since the load was seen, nothing is known.
//! *Equation.* L(t) = W + (L₀ − W)·y^(t/1.048576 ms), y^32 = 1/2.

use super::counts::attached;
use crate::shadow::rows::neighbours::next_rows;
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use vruntime_base::Cpu;
use vruntime_sched::fair::pelt::average_after;

#[derive(Clone, Copy, Debug)]
struct Point {
    ts: u64,
    /// When it was brought up to date, as far as rows tell: the first one in a row to show it.
    since: u64,
    /// Lowest and highest, as all that follows.
    load: (u64, u64),
    weight: (u64, u64),
}

impl Point {
    /// What it has become by `now` if it was brought up to date since, or what it was.
    fn by(&self, now: u64) -> (u64, u64) {
        let dt = now.saturating_sub(self.ts);
        let lo = average_after(self.load.0, self.weight.0, dt).0;
        let hi = average_after(self.load.1, self.weight.1, dt).1;
        (self.load.0.min(lo), self.load.1.max(hi))
    }
}

/// Known loads of all CPUs.
#[derive(Clone, Debug)]
pub struct Loads {
    points: Vec<Vec<Point>>,
    /// Load that may join or leave.
    moves: Vec<Vec<Move>>,
    groups: Vec<GroupEvents>,
    rebuilt: bool,
}

/// Any load: nothing is known of it.
const ANY: (u64, u64) = (0, 1 << 20);

/// When entities of task groups on the root queue of one CPU can have been given another weight:
/// at an enqueue or dequeue below them, and at ticks while a task of theirs runs.
#[derive(Clone, Debug, Default)]
struct GroupEvents {
    at: Vec<u64>,
    /// Switches between tasks of groups and others, and whether one of a group runs then.
    runs: Vec<(u64, bool)>,
}

impl GroupEvents {
    fn note(&mut self, ts: u64) {
        if self.at.last() != Some(&ts) {
            self.at.push(ts);
        }
    }

    fn runs(&mut self, ts: u64, runs: bool) {
        if self.runs.last().is_some_and(|x| x.1) != runs {
            self.runs.push((ts, runs));
        }
    }

    /// One can have been in `since + 1 ..= to`.
    fn any(&self, since: u64, to: u64) -> bool {
        let until = |at: u64| self.runs.partition_point(|x| x.0 <= at);
        let (before, now) = (until(since), until(to));
        let ran = self.runs[..before].last().is_some_and(|x| x.1) && since < to;
        let first = self.at.partition_point(|&x| x <= since);
        ran || before < now || self.at.get(first).is_some_and(|&x| x <= to)
    }
}

/// By CPU. A trace without groups has no such events.
fn group_events(t: &Trace) -> Vec<GroupEvents> {
    let mut all = vec![GroupEvents::default(); t.nr_cpus];
    for r in &t.rows {
        let grouped = r.p.tg != 0;
        match r.kind {
            RowKind::Switch => {
                let next = r.n.is_some_and(|n| n.tg != 0);
                let here = &mut all[r.cpu.ix()];
                if grouped || next {
                    here.note(r.ts);
                }
                here.runs(r.ts, next);
            }
            RowKind::Wakeup | RowKind::WakeupNew if grouped => all[r.rq_cpu.ix()].note(r.ts),
            RowKind::Migrate if grouped => {
                all[r.rq_cpu.ix()].note(r.ts);
                if let Some(to) = r.dst_ix(t.nr_cpus) {
                    all[to].note(r.ts);
                }
            }
            _ => {}
        }
    }
    all
}

impl Loads {
    /// Collects them.
    pub fn new(t: &Trace) -> Loads {
        let n = t.nr_cpus;
        let moves = moves(t, |p| p.load_avg + p.load_more);
        let groups = group_events(t);
        let mut s = Loads { points: vec![vec![]; n], moves, groups, rebuilt: t.rebuilt };
        for r in &t.rows {
            let sides = [(r.rq_cpu, Some(&r.p)), (r.cpu, r.n.as_ref())];
            // Rebuilt loads are known where an event brings them up to date.
            let shows = match r.kind {
                _ if !t.rebuilt => true,
                _ => updates(t, r),
            };
            for (c, side) in sides.into_iter().filter(|_| shows) {
                let Some(side) = side.filter(|s| s.tg == 0) else { continue };
                let Side { cfs_load_avg: load, cfs_load_weight: weight, .. } = *side;
                let points = &mut s.points[c.ix()];
                let load = (load, load + side.cfs_load_more);
                let same = points.last().filter(|x: &&Point| x.load == load && !t.rebuilt);
                points.push(Point {
                    ts: r.ts,
                    since: same.map_or(r.ts, |x| x.since),
                    load,
                    weight: (weight >> 10, (weight + side.cfs_weight_more) >> 10),
                });
            }
        }
        s
    }

    /// Lowest and highest value that a reader in `from ..= to` can have seen; `None`: no row
    /// showed it before.
    pub fn at(&self, c: Cpu, from: u64, to: u64) -> Option<(u64, u64)> {
        let p = &self.points[c.ix()];
        let end = p.partition_point(|x| x.ts <= to);
        let inside = p[..end].partition_point(|x| x.ts < from);
        if inside < end && !self.rebuilt {
            let lo = p[inside..end].iter().map(|x| x.load.0).min()?;
            let hi = p[inside..end].iter().map(|x| x.load.1).max()?;
            let (_, joined) = moved(&self.moves[c.ix()], p[end - 1].ts, to);
            let known = !self.groups[c.ix()].any(from, to);
            return Some(if known { (lo, hi + joined) } else { ANY });
        }
        let last = *p[..end].last()?;
        if self.groups[c.ix()].any(last.ts, to) {
            return Some(ANY);
        }
        let now = average_after(last.load.0, last.weight.0, to - last.since);
        let (mut lo, mut hi) = (last.load.0.min(now.0), last.load.0.max(now.1));
        if self.rebuilt {
            (lo, hi) = last.by(to);
            for x in p[inside.saturating_sub(1)..end].windows(2) {
                let (l, h) = x[0].by(x[1].ts);
                (lo, hi) = (lo.min(l), hi.max(h));
            }
        }
        let (out, joined) = self.moved(c, &last, to);
        Some((lo.saturating_sub(out), hi + joined))
    }

    /// What can have left `c` by `to`, and what can have joined, since `last`. What left after the
    /// load was last brought up to date still counts in it.
    fn moved(&self, c: Cpu, last: &Point, to: u64) -> (u64, u64) {
        let moves = &self.moves[c.ix()];
        (moved(moves, last.since, to).0, moved(moves, last.ts, to).1)
    }

    /// As [`Loads::at`] for a CPU that has had ticks since it was last seen, the last one `late` ns
    /// ago at the most: what came before it has been brought up to date.
    pub fn ticked(&self, c: Cpu, from: u64, to: u64, late: u64) -> Option<(u64, u64)> {
        let (lo, hi) = self.at(c, from, to)?;
        let points = &self.points[c.ix()];
        let last = *points[..points.partition_point(|x| x.ts <= to)].last()?;
        if last.ts >= from || (lo, hi) == ANY {
            return Some((lo, hi));
        }
        let after = |dt: u64| {
            let least = average_after(last.load.0, last.weight.0, dt).0;
            (least, average_after(last.load.1, last.weight.1, dt).1)
        };
        let (then, now) = (after((to - last.ts).saturating_sub(late)), after(to - last.since));
        // What joined or left meanwhile may count already, or not yet.
        let (out, joined) = self.moved(c, &last, to);
        let least = then.0.min(now.0).saturating_sub(out);
        Some((lo.max(least), hi.min(then.1.max(now.1) + joined).max(lo)))
    }

    /// Lowest and highest root load seen on `c` in `from ..= to`, the last value before included.
    pub fn seen(&self, c: Cpu, from: u64, to: u64) -> Option<(u64, u64)> {
        let p = &self.points[c.ix()];
        let end = p.partition_point(|x| x.ts <= to);
        let start = p[..end].partition_point(|x| x.ts < from).saturating_sub(1);
        if self.groups[c.ix()].any(p[..end].get(start)?.ts, to) {
            return Some(ANY);
        }
        let lo = p[start..end].iter().map(|x| x.load.0).min()?;
        Some((lo, p[start..end].iter().map(|x| x.load.1).max()?))
    }

    /// Lowest and highest factor, in 1/4096, from the load of `c` at `now` to what it was at some
    /// moment from `since` on. Of a rebuilt load both ends move alike.
    pub fn refreshed(&self, c: Cpu, since: u64, now: u64) -> Option<(u64, u64)> {
        let p = &self.points[c.ix()];
        let end = p.partition_point(|x| x.ts <= now);
        let start = p[..end].partition_point(|x| x.ts < since);
        let last = p[..end].last()?;
        if self.groups[c.ix()].any(since.min(last.ts), now) {
            return None;
        }
        let (mut least, mut most) = (4096, 4096);
        for run in [|x: (u64, u64)| x.0, |x: (u64, u64)| x.1] {
            let weight = run(last.weight);
            let then = average_after(run(last.load), weight, now.saturating_sub(last.ts));
            let (a, b) = (then.0.min(run(last.load)), then.1.max(run(last.load)));
            let all = p[start.saturating_sub(1)..end].iter().map(|x| run(x.load));
            let (lo, hi) = (all.clone().min()?.min(a), all.max()?.max(b));
            least = least.min(lo * 4096 / (b + 1));
            most = most.max(hi * 4096 / (a + 1));
        }
        Some((least, most))
    }
}

/// A row of a rebuilt trace shows averages that have just been brought up to date.
pub fn updates(t: &Trace, r: &Row) -> bool {
    match r.kind {
        RowKind::Switch | RowKind::Wakeup | RowKind::WakeupNew | RowKind::Tick => true,
        RowKind::Migrate => !t.in_wakeup(r),
        _ => false,
    }
}

/// What a task brings to a queue or takes away.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// When it was moved, woken elsewhere, or exited.
    pub ts: u64,
    /// The same; that it has joined shows by then.
    by: u64,
    /// The latest of these up to here.
    all_by: u64,
    /// How much of the average, signed.
    pub change: i64,
}

/// By CPU, in order: what of an average, which `of` reads from a task, may join (moved there) or
/// leave (woken elsewhere, exited).
pub fn moves(t: &Trace, of: impl Fn(&Side) -> u64) -> Vec<Vec<Move>> {
    let next = next_rows(t);
    let mut all = vec![vec![]; t.nr_cpus];
    for (i, r) in t.rows.iter().enumerate() {
        let (ts, much) = (r.ts, of(&r.p) as i64);
        let leaves = Move { ts, by: ts, all_by: 0, change: -much };
        if t.exits(r) {
            all[r.cpu.ix()].push(leaves);
        }
        if r.kind == RowKind::Migrate {
            if t.in_wakeup(r) {
                all[r.rq_cpu.ix()].push(leaves);
            } else if let Some(to) = r.dst_ix(t.nr_cpus) {
                let by = attached(t, &next, i).map_or(ts, |n| t.rows[n].ts);
                all[to].push(Move { ts, by, all_by: 0, change: much });
            }
        }
    }
    for moves in &mut all {
        let mut latest = 0;
        for m in moves {
            latest = latest.max(m.by);
            m.all_by = latest;
        }
    }
    all
}

/// Of `moves`: what can have left in `from ..= to`, and what can have joined.
pub fn moved(moves: &[Move], from: u64, to: u64) -> (u64, u64) {
    let past = moves.partition_point(|m| m.all_by < from);
    let begun = moves.partition_point(|m| m.ts <= to);
    let some = moves.get(past..begun).unwrap_or_default();
    some.iter().filter(|m| m.by >= from).fold((0, 0), |(out, joined), m| match m.change {
        ..0 => (out + m.change.unsigned_abs(), joined),
        _ => (out, joined + m.change as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of 1781 under two tasks, seen at 0. A tick's request at 23 ms shows it before that
    /// brings it up to date, to 267 · y^23 = 162 less than 2048 if the last segment ends just then.
    #[test]
    fn a_row_that_shows_the_same_load_is_no_update() {
        let ms = 1_000_000;
        let p = Side { cfs_load_avg: 1781, cfs_load_weight: 2048 << 10, ..Side::default() };
        let rows = [0, 23 * ms].map(|ts| Row { p, ..Row::new(ts, Cpu(0), RowKind::NeedResched) });
        let t = Trace { rows: rows.to_vec(), nr_cpus: 1, ..Trace::default() };
        let at = 23 * ms + 100_000;
        assert_eq!(Loads::new(&t).at(Cpu(0), at, at), Some((1781, 1886)));
    }

    /// CPU 1 pulls 7, with a load of 824, to its own 1501. The row in which it accounts what runs
    /// there comes before 7 is on its queue.
    #[test]
    fn what_is_pulled_may_join_after_the_next_row() {
        let cfs_load_weight = 1501 << 10;
        let shows = |cfs_load_avg| Side { cfs_load_avg, cfs_load_weight, ..Side::default() };
        let seen = Row { p: shows(1501), ..Row::new(10, Cpu(1), RowKind::NeedResched) };
        let p = Side { pid: 7, load_avg: 824, on_rq: true, ..shows(1352) };
        let moves = Row { p, b: 1, rq_cpu: Cpu(0), ..Row::new(20, Cpu(1), RowKind::Migrate) };
        let accounts = Row { ts: 30, ..seen.clone() };
        let t = Trace { rows: vec![seen, moves, accounts], nr_cpus: 2, ..Trace::default() };
        let loads = Loads::new(&t);
        assert_eq!(loads.at(Cpu(1), 25, 35), Some((1501, 2325)));
        assert_eq!(loads.at(Cpu(1), 35, 40), Some((1500, 2325)));
    }

    /// CPU 0 is busy with a load of 2000 when 7, which sleeps there and has 900 of it, is woken on
    /// CPU 1. A tick later that has left, or is still to leave. What stands can show one less.
    #[test]
    fn a_tick_does_not_bring_back_what_was_woken_elsewhere() {
        let side = Side { cfs_load_avg: 2000, cfs_load_weight: 2000 << 10, ..Side::default() };
        let seen = Row { p: side, ..Row::new(0, Cpu(0), RowKind::Waking) };
        let p = Side { pid: 7, load_avg: 900, ..side };
        let moved = Row { p, a: 0, b: 1, ..Row::new(10, Cpu(1), RowKind::Migrate) };
        let moved = Row { rq_cpu: Cpu(0), ..moved };
        let tick = 4_000_000;
        let after = |rows| {
            let t = Trace { rows, nr_cpus: 2, ..Trace::default() };
            Loads::new(&t).ticked(Cpu(0), 2 * tick, 2 * tick, tick)
        };
        assert_eq!(after(vec![seen.clone()]), Some((1999, 2000)));
        assert_eq!(after(vec![seen.clone(), moved.clone()]), Some((1099, 2000)));
        // The tick's request still shows the load of before.
        let request = Row { kind: RowKind::NeedResched, ts: 2 * tick - 1, ..seen.clone() };
        assert_eq!(after(vec![seen, moved, request]), Some((1099, 2000)));
    }

    /// A task of a group wakes on CPU 0, or runs there, after the load was seen.
    #[test]
    fn groups_may_weigh_something_else_meanwhile() {
        let p = Side { cfs_load_avg: 1000, cfs_load_weight: 1000 << 10, ..Side::default() };
        let of_group = Side { pid: 7, tg: 5, on_rq: true, ..p };
        let row = |ts, kind, p| Row { p, ..Row::new(ts, Cpu(0), kind) };
        let seen = row(10, RowKind::NeedResched, p);
        let wakes = row(20, RowKind::Wakeup, of_group);
        let runs = Row { n: Some(of_group), ..row(5, RowKind::Switch, p) };
        let at = |rows: &[&Row], from, to| {
            let rows = rows.iter().map(|&r| r.clone()).collect();
            Loads::new(&Trace { rows, nr_cpus: 1, ..Trace::default() }).at(Cpu(0), from, to)
        };
        assert_eq!(at(&[&seen], 30, 30), Some((999, 1000)));
        assert_eq!(at(&[&seen, &wakes], 15, 15), Some((999, 1000)));
        assert_eq!(at(&[&seen, &wakes], 30, 30), Some(ANY));
        assert_eq!(at(&[&seen, &wakes], 9, 30), Some(ANY));
        assert_eq!(at(&[&runs, &seen], 15, 15), Some(ANY));
        assert_eq!(at(&[&runs, &seen], 10, 10), Some((1000, 1000)));
    }

    /// Rebuilt: the load of CPU 0, where a task of weight 1024 has run for long, was 1000 to 1024.
    #[test]
    fn a_tick_keeps_both_ends_of_a_rebuilt_load() {
        let side = Side {
            cfs_load_avg: 1000,
            cfs_load_more: 24,
            cfs_load_weight: 1024 << 10,
            ..Side::default()
        };
        let rows = vec![Row { p: side, ..Row::new(0, Cpu(0), RowKind::Switch) }];
        let t = Trace { rows, nr_cpus: 1, rebuilt: true, ..Trace::default() };
        let tick = 4_000_000;
        let at = 25 * tick;
        // Of the 24 a seventh is left 91 segments later, at the last tick.
        assert_eq!(Loads::new(&t).ticked(Cpu(0), at, at, tick), Some((1020, 1024)));
    }
}
