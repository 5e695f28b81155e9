//! How many tasks every CPU had, over the recording.
//!
//! *What.* Rows show `nr_running` and the fair tasks of a queue as they stood then. What changed
//! them came shortly before the row (an activation, a sleep) or, of a move by the balancer, between
//! the row and the next one of the CPU that moved the task. A question about a span in which a
//! count changed is answered with all values that it took. A task that enters or leaves the fair
//! class while it is queued leaves no row: it counts as fair and as not, until it is seen again.
//! *Departures.* D1: tasks in delayed dequeue leave inside a pick; the count may have fallen at any
//! time since the last row.

use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use std::collections::BTreeMap;
use vruntime_base::Cpu;

/// Tasks of all classes, and fair ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// `nr_running`.
    pub all: i64,
    /// Of them fair, those in delayed dequeue included.
    pub fair: i64,
    /// Of these in delayed dequeue, if no row has shown it.
    pub hidden: i64,
}

/// From the first number that a pass of the balancer or the slow path reads to the row of what it
/// decides: this many times as long as the choice of a CPU for a wakeup at the most.
pub(in crate::shadow) const READS: u64 = 4;

/// More unseen tasks than these: the count is not known.
const MOST_HIDDEN: i64 = 4;

/// The count became this somewhere in `lo ..= hi`.
#[derive(Clone, Copy, Debug)]
struct Point {
    lo: u64,
    hi: u64,
    count: Count,
    /// There may be this many more, in delayed dequeue.
    more: i64,
}

/// Somewhere in `lo ..= hi` a queued task changed its class.
#[derive(Clone, Copy, Debug)]
struct Change {
    lo: u64,
    hi: u64,
    /// Of the fair tasks.
    more: i64,
}

/// Counts of all CPUs.
#[derive(Clone, Debug)]
pub struct Counts {
    points: Vec<Vec<Point>>,
    changes: Vec<Vec<Change>>,
}

/// By CPU: who was queued and in another class when it was seen next.
fn changes(t: &Trace) -> Vec<Vec<Change>> {
    let mut changes = vec![vec![]; t.nr_cpus];
    let mut last: BTreeMap<i64, (u64, Cpu, &Side)> = BTreeMap::new();
    for r in &t.rows {
        let sides = [Some((r.rq_cpu, &r.p)), r.n.as_ref().map(|n| (r.cpu, n))];
        for (c, side) in sides.into_iter().flatten().filter(|(_, s)| s.pid != 0) {
            let Some((lo, from, was)) = last.insert(side.pid, (r.ts, c, side)) else { continue };
            if was.on_rq && was.is_fair() != side.is_fair() {
                let more = if was.is_fair() { -1 } else { 1 };
                let change = Change { lo, hi: r.ts, more };
                changes[from.ix()].push(change);
                // It was moved in between, before or after.
                if c != from {
                    changes[c.ix()].push(change);
                }
            }
        }
    }
    changes
}

/// The CPU of a switch has nothing left, and looked for tasks elsewhere in between.
fn goes_idle(r: &Row) -> bool {
    r.p.pid != 0 && r.n.as_ref().is_some_and(|n| n.pid == 0)
}

impl Counts {
    /// `next`: for every row, the next one of the same CPU. `tail`: the longest time from a change
    /// to its row that is allowed for, ns.
    pub fn new(t: &Trace, next: &[Option<usize>], tail: u64) -> Counts {
        let mut s = Counts { points: vec![vec![]; t.nr_cpus], changes: changes(t) };
        // Since when a CPU that pulls before it goes idle has been at it.
        let mut pulls: Vec<Option<u64>> = vec![None; t.nr_cpus];
        // When the CPU was chosen that a task is being activated on.
        let mut chosen: BTreeMap<i64, u64> = BTreeMap::new();
        for (i, r) in t.rows.iter().enumerate() {
            let balances = r.kind == RowKind::Migrate && !t.in_wakeup(r);
            if r.kind == RowKind::SelectRq {
                chosen.insert(r.p.pid, r.ts);
            }
            if let Some(all) = r.nr_running {
                let began = match r.kind {
                    RowKind::Switch => match pulls[r.cpu.ix()] {
                        Some(ts) => ts.saturating_sub(tail),
                        None if goes_idle(r) => r.ts.saturating_sub(READS * tail),
                        None => r.ts.saturating_sub(tail),
                    },
                    // Taken off just now, by the row's own pass.
                    RowKind::Migrate if balances => r.ts,
                    RowKind::Wakeup | RowKind::WakeupNew => {
                        let since = chosen.remove(&r.p.pid).map_or(0, |ts| ts + 1);
                        r.ts.saturating_sub(tail).max(since).min(r.ts)
                    }
                    _ => r.ts.saturating_sub(tail),
                };
                s.shown(r, all, began);
            }
            match r.kind {
                RowKind::Switch => pulls[r.cpu.ix()] = None,
                RowKind::Migrate if balances => {
                    pulls[r.cpu.ix()].get_or_insert(r.ts);
                    if let Some(to) = r.dst_ix(t.nr_cpus) {
                        let hi = attached(t, next, i).map_or(r.ts + tail, |n| t.rows[n].ts);
                        let last = s.points[to].last().map_or(Count::default(), |p| p.count);
                        let fair = last.fair + i64::from(r.p.is_fair());
                        let count = Count { all: last.all + 1, fair, hidden: 0 };
                        let more = s.points[to].last().map_or(0, |p| p.more);
                        s.points[to].push(Point { lo: r.ts, hi, count, more });
                    }
                }
                _ => {}
            }
        }
        s
    }

    fn shown(&mut self, r: &Row, all: i64, lo: u64) {
        let points = &mut self.points[r.rq_cpu.ix()];
        let last = points.last().copied();
        let fair = match last {
            _ if r.nr_fair.is_some() => r.nr_fair.unwrap_or(all),
            _ if r.p.tg == 0 => r.p.cfs_nr,
            Some(l) => l.count.fair + all - l.count.all,
            None => all,
        };
        let (count, more) = (Count { all, fair, hidden: 0 }, r.nr_more);
        let Some(last) = last else {
            return points.push(Point { lo: 0, hi: r.ts, count, more });
        };
        if (last.count, last.more) != (count, more) {
            let sleeps = i64::from(r.kind == RowKind::Switch && !r.p.on_rq && r.p.pid != 0);
            let drained = r.kind == RowKind::Switch && all < last.count.all - sleeps;
            let lo = if drained { last.hi } else { lo.max(last.hi) };
            points.push(Point { lo: lo.min(r.ts), hi: r.ts, count, more });
        } else if last.hi > r.ts {
            // It had arrived by then.
            points.last_mut().expect("there is one").hi = r.ts;
        }
    }

    /// What a reader in `from ..= to` can have seen, the likeliest first. Empty: not known.
    pub fn at(&self, c: Cpu, from: u64, to: u64) -> Vec<Count> {
        let points = &self.points[c.ix()];
        let base = points.iter().rposition(|p| p.hi <= from);
        let start = base.map_or(0, |b| b + 1);
        let reach = points[start..].iter().take_while(|p| p.lo <= to);
        let mut all: Vec<&Point> = base.map(|b| &points[b]).into_iter().chain(reach).collect();
        all.reverse();
        let mut seen: Vec<Count> = vec![];
        for p in all {
            if p.more > MOST_HIDDEN {
                return vec![];
            }
            for n in 0..=p.more {
                let c = Count { all: p.count.all + n, fair: p.count.fair + n, hidden: n };
                if !seen.contains(&c) {
                    seen.push(c);
                }
            }
        }
        for change in self.changes[c.ix()].iter().filter(|x| x.lo <= to && x.hi >= from) {
            for i in 0..seen.len() {
                let n = Count { fair: seen[i].fair + change.more, ..seen[i] };
                if (n.hidden..=n.all).contains(&n.fair) && !seen.contains(&n) {
                    seen.push(n);
                }
            }
        }
        seen
    }
}

/// `counts` of a queue of which `others` fair tasks are known not to be in delayed dequeue, and
/// `delayed` (at least, at most) to be: what such tasks there are more than at least is there, or a
/// pick has taken them off without a row.
pub fn with_delayed(counts: Vec<Count>, others: i64, delayed: (u64, u64)) -> Vec<Count> {
    let (least, most) = (delayed.0 as i64, delayed.1 as i64);
    let options = |n: Count| {
        let may_have_left = (n.fair - others).clamp(least, most) - least;
        (0..=may_have_left).map(move |gone| Count {
            all: n.all - gone,
            fair: n.fair - gone,
            hidden: n.hidden + may_have_left - gone,
        })
    };
    counts.into_iter().flat_map(options).collect()
}

/// The row after the tasks that `i` and the rows of its batch have moved were put on their queue.
pub fn attached(t: &Trace, next: &[Option<usize>], i: usize) -> Option<usize> {
    let ends = |r: &Row| (r.src_cpu(), r.dst_cpu());
    let same = |r: &Row| r.kind == RowKind::Migrate && ends(r) == ends(&t.rows[i]);
    let mut n = next[i]?;
    while is_detaching(t, &t.rows[n]) || same(&t.rows[n]) {
        n = next[n]?;
    }
    Some(n)
}

/// A row from within the balancer taking a task off its queue, other than the move itself.
pub fn is_detaching(t: &Trace, r: &Row) -> bool {
    r.kind == RowKind::NeedResched
        && in_balance(t, r)
        && ["dequeue_task_fair", "detach_task", "dequeue_entities"]
            .iter()
            .any(|f| t.has_frame(r, f))
}

/// A row from within a pass of the balancer.
pub fn in_balance(t: &Trace, r: &Row) -> bool {
    t.has_frame(r, "load_balance") || t.has_frame(r, "sched_balance_rq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::neighbours::next_rows;

    fn shows(ts: u64, kind: RowKind, nr: i64) -> Row {
        let mut r = Row::new(ts, Cpu(0), kind);
        (r.nr_running, r.p.cfs_nr, r.p.pid, r.p.prio) = (Some(nr), nr, 7, 120);
        r
    }

    #[test]
    fn a_count_is_all_that_it_was_in_the_span() {
        let rows = vec![
            shows(1_000, RowKind::Switch, 1),
            shows(5_000, RowKind::Wakeup, 2),
            shows(9_000, RowKind::Wakeup, 2),
        ];
        let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
        let next = next_rows(&t);
        let c = Counts::new(&t, &next, 100);
        let at = |from, to| c.at(Cpu(0), from, to).iter().map(|c| c.all).collect::<Vec<_>>();
        assert_eq!(at(2_000, 4_899), [1]);
        assert_eq!(at(2_000, 4_900), [2, 1], "the activation may be this long before its row");
        assert_eq!(at(5_000, 8_000), [2]);
    }

    /// Between the sleep and the switch to the idle task the CPU looks for tasks.
    #[test]
    fn a_cpu_that_goes_idle_may_have_been_empty_for_a_pass() {
        let switch = |next| {
            let mut r = shows(5_000, RowKind::Switch, 0);
            r.n = Some(Side { pid: next, ..r.p });
            r
        };
        for (next, since) in [(0, 4_600), (8, 4_900)] {
            let rows = vec![shows(1_000, RowKind::Switch, 1), switch(next)];
            let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
            let c = Counts::new(&t, &next_rows(&t), 100);
            let at = |ts| c.at(Cpu(0), ts, ts).iter().map(|c| c.all).collect::<Vec<_>>();
            assert_eq!([at(since - 1), at(since)], [vec![1], vec![0, 1]], "{next}");
        }
    }

    /// Of two tasks one is in delayed dequeue; a reschedule was asked for, and the pick may have
    /// taken it off.
    #[test]
    fn a_delayed_task_may_be_gone() {
        let two = vec![Count { all: 2, fair: 2, hidden: 0 }];
        assert_eq!(with_delayed(two.clone(), 1, (1, 1)), two);
        let either =
            vec![Count { all: 2, fair: 2, hidden: 1 }, Count { all: 1, fair: 1, hidden: 0 }];
        assert_eq!(with_delayed(two, 1, (0, 1)), either);
        // A row has shown since that it is.
        let one = vec![Count { all: 1, fair: 1, hidden: 0 }];
        assert_eq!(with_delayed(one.clone(), 1, (0, 1)), one);
    }

    /// A task is not there before its CPU is chosen.
    #[test]
    fn a_count_changes_after_the_choice_of_the_cpu() {
        let rows = vec![
            shows(1_000, RowKind::Switch, 1),
            shows(4_950, RowKind::SelectRq, 1),
            shows(5_000, RowKind::Wakeup, 2),
        ];
        let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
        let next = next_rows(&t);
        let c = Counts::new(&t, &next, 100);
        let at = |ts| c.at(Cpu(0), ts, ts).iter().map(|c| c.all).collect::<Vec<_>>();
        assert_eq!((at(4_949), at(4_950), at(4_960)), (vec![1], vec![1], vec![2, 1]));
    }

    /// A move shows its task on the new queue somewhere before the mover's next row.
    #[test]
    fn a_moved_task_arrives_before_the_movers_next_row() {
        let mut from = shows(2_000, RowKind::Migrate, 1);
        (from.cpu, from.a, from.b, from.p.on_rq) = (Cpu(1), 0, 1, true);
        let mut after = shows(3_000, RowKind::Switch, 1);
        (after.cpu, after.rq_cpu) = (Cpu(1), Cpu(1));
        let rows = vec![shows(1_000, RowKind::Switch, 2), from, after];
        let t = Trace { rows, nr_cpus: 2, ..Trace::default() };
        let next = next_rows(&t);
        let c = Counts::new(&t, &next, 100);
        let at =
            |c: &Counts, cpu, ts| c.at(Cpu(cpu), ts, ts).iter().map(|c| c.all).collect::<Vec<_>>();
        assert_eq!((at(&c, 0, 1_500), at(&c, 0, 2_000)), (vec![2], vec![1]));
        assert_eq!(at(&c, 1, 2_500).first(), Some(&1));
        assert_eq!(at(&c, 1, 3_000), [1]);
    }

    /// Of two fair tasks the running one becomes a real-time task.
    #[test]
    fn who_changes_its_class_is_fair_or_not_until_it_is_seen_again() {
        let mut rows = vec![shows(1_000, RowKind::Wakeup, 2), shows(5_000, RowKind::Wakeup, 2)];
        (rows[0].p.on_rq, rows[1].p.on_rq) = (true, true);
        (rows[1].p.prio, rows[1].nr_fair) = (49, Some(1));
        let at = |rows: &[Row], ts| {
            let t = Trace { rows: rows.to_vec(), nr_cpus: 1, ..Trace::default() };
            let found = Counts::new(&t, &next_rows(&t), 100).at(Cpu(0), ts, ts);
            found.iter().map(|c| (c.all, c.fair)).collect::<Vec<_>>()
        };
        assert_eq!(at(&rows, 3_000), [(2, 2), (2, 1)]);
        assert_eq!(at(&rows, 6_000), [(2, 1)]);
        // Asleep it may do so as it likes.
        rows[0].p.on_rq = false;
        assert_eq!(at(&rows, 3_000), [(2, 2)]);
    }

    /// Thirty do: there are as many values as that, and not as ways to get there.
    #[test]
    fn many_who_change_their_class_are_counted_by_how_many_have() {
        let seen = |pid, ts, prio| {
            let mut r = shows(ts, RowKind::Wakeup, 30);
            (r.p.pid, r.p.prio, r.p.on_rq) = (pid, prio, true);
            Row { nr_fair: Some(30), ..r }
        };
        let before = (1..=30).map(|pid| seen(pid, 1_000 + pid as u64, 120));
        let after = (1..=30).map(|pid| seen(pid, 9_000 + pid as u64, 49));
        let t = Trace { rows: before.chain(after).collect(), nr_cpus: 1, ..Trace::default() };
        let found = Counts::new(&t, &next_rows(&t), 100).at(Cpu(0), 5_000, 5_000);
        assert_eq!(
            found.iter().map(|c| c.fair).collect::<Vec<_>>(),
            Vec::from_iter((0..=30).rev())
        );
    }

    /// One may be there in delayed dequeue; of very many the count is not known.
    #[test]
    fn what_may_be_there_unseen_is_counted_both_ways() {
        let at = |more| {
            let r = Row { nr_more: more, nr_fair: Some(2), ..shows(1_000, RowKind::Wakeup, 2) };
            let t = Trace { rows: vec![r], nr_cpus: 1, ..Trace::default() };
            let next = next_rows(&t);
            Counts::new(&t, &next, 100).at(Cpu(0), 2_000, 2_000)
        };
        let count = |all, hidden| Count { all, fair: all, hidden };
        assert_eq!(at(1), [count(2, 0), count(3, 1)]);
        assert!(at(64).is_empty());
    }
}
