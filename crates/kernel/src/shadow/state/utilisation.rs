//! What is known of the utilisation and the runnable time of a CPU at a moment: intervals.
//!
//! *What.* Rows show `util_avg` of a queue as it stood then; between rows only ticks (of a CPU that
//! runs something) and the balancer bring it up to date, up while a fair task runs and down while
//! none does. Moved tasks bring theirs; sleepers woken elsewhere and tasks that exit take it away
//! at the next update. `runnable_avg` is in no row: it is at least the utilisation, and at most
//! what the load would be if it were all of the lightest weight (both averages are sums over the
//! same time).
//! Averages change when a segment of 1.05 ms ends; what ran in the last one, which had not ended,
//! is added later, even if nothing runs any more.
//! *Equation.* runnable ≤ load · 1024 / weight of the lightest task.
//! *From a plain trace.* The values are intervals already, that of runnable time among them.

use super::loads::{Loads, Move, moved, moves, updates};
use super::queues::{CpuState, Queues};
use crate::shadow::rows::alive::Alive;
use crate::shadow::rows::trace::{RowKind, Side, Trace};
use vruntime_base::Cpu;
use vruntime_sched::fair::pelt::{LOAD_AVG_MAX, SEGMENT_NS, average_after};

const FULL: u64 = 1024;

/// Known utilisation of all CPUs.
#[derive(Clone, Debug)]
pub struct Utilisation<'a> {
    points: Vec<Vec<(u64, (u64, u64))>>,
    /// Rebuilt: the same of runnable time.
    runnable: Vec<Vec<(u64, (u64, u64))>>,
    /// Utilisation that may join or leave.
    moves: Vec<Vec<Move>>,
    lightest: u64,
    /// From when to when fair tasks ran on a CPU, of a state that was not rebuilt.
    busy: Vec<Vec<(u64, u64)>>,
    /// Times of a CPU's own rows.
    rows: Vec<Vec<u64>>,
    /// What a plain trace shows besides.
    events: &'a Alive,
    /// Time between two ticks.
    tick: u64,
}

/// Lowest and highest.
#[derive(Clone, Copy)]
struct Ends {
    lo: u64,
    hi: u64,
}

/// Ticks are late on an emulated machine, by one at the most; and if its CPU stands still, until
/// that goes on.
const LATE_TICKS: u64 = 2;

impl<'a> Utilisation<'a> {
    /// Collects it.
    pub fn new(t: &'a Trace, tick: u64) -> Utilisation<'a> {
        let n = t.nr_cpus;
        let mut s = Utilisation {
            points: vec![vec![]; n],
            runnable: vec![vec![]; n],
            moves: moves(t, |p| p.util_avg + p.util_more),
            lightest: FULL,
            busy: vec![vec![]; n],
            rows: vec![vec![]; n],
            events: &t.alive,
            tick,
        };
        let mut since = vec![0; n];
        for r in &t.rows {
            if r.kind == RowKind::Switch && !t.rebuilt {
                let from = std::mem::replace(&mut since[r.cpu.ix()], r.ts);
                s.busy[r.cpu.ix()].extend(r.p.is_fair().then_some((from, r.ts)));
            }
            s.rows[r.cpu.ix()].push(r.ts);
            for (c, side) in [(r.rq_cpu, Some(&r.p)), (r.cpu, r.n.as_ref())] {
                let Some(side) = side else { continue };
                if side.tg == 0 && (!t.rebuilt || updates(t, r)) {
                    let (lo, hi) = (side.cfs_util_avg, side.cfs_util_avg + side.cfs_util_more);
                    s.points[c.ix()].push((r.ts, (lo, hi)));
                    s.runnable[c.ix()].extend(side.cfs_runnable.map(|v| (r.ts, v)));
                }
                if side.is_fair() && side.weight > 0 {
                    s.lightest = s.lightest.min((side.weight >> 10).max(1));
                }
            }
        }
        s
    }

    /// Lowest and highest utilisation of `c`, whose queue is `s`, that a reader in `from ..= to`
    /// can have seen.
    pub fn at(&self, c: Cpu, s: &CpuState, from: u64, to: u64) -> (u64, u64) {
        let p = &self.points[c.ix()];
        let end = p.partition_point(|x| x.0 <= to);
        let Some(&(ts, last)) = p[..end].last() else { return (0, FULL) };
        let inside = p[..end].partition_point(|x| x.0 < from);
        let all = p[inside..end].iter().map(|x| x.1);
        let (mut lo, mut hi) = all.fold(last, |(l, h), x| (l.min(x.0), h.max(x.1)));
        let last = Ends { lo: last.0, hi: last.1 };
        let running = s.running.map(|(n, _)| n.is_fair());
        if running != Some(true) {
            lo = lo.min(average_after(last.lo, 0, to - ts).0);
            hi = hi.max(last.hi + self.pending(c, ts, last.hi));
        }
        if s.curr != Some(0) && running != Some(false) {
            let grown = |v: u64, dt| average_after(v.min(FULL), FULL, dt);
            hi = hi.max(grown(last.hi, to - ts).1);
            if running == Some(true) && ts < from {
                let late = self.late(c, to);
                lo = lo.max(grown(last.lo, (to - ts).saturating_sub(late)).0).min(hi);
            }
        }
        let (out, joined) = moved(&self.moves[c.ix()], ts, to);
        (lo.saturating_sub(out), hi + joined)
    }

    /// What the next update adds to the `util` that was seen on `c` at `ts`: what ran in a segment
    /// that had not ended. Once an update has shown another value since, nothing is left of it.
    fn pending(&self, c: Cpu, ts: u64, util: u64) -> u64 {
        let busy = &self.busy[c.ix()];
        let busy = &busy[..busy.partition_point(|x| x.0 < ts)];
        let Some(end) = busy.last().map(|x| x.1.min(ts)) else { return 0 };
        let p = &self.points[c.ix()];
        let then = p[..p.partition_point(|x| x.0 <= end)].last();
        if then.is_some_and(|x| x.1.1 != util) {
            return 0;
        }
        let from = end.saturating_sub(SEGMENT_NS);
        let ran = busy.iter().rev().take_while(|x| x.1 > from);
        let ran: u64 = ran.map(|x| x.1.min(end) - x.0.max(from)).sum();
        (FULL * (ran >> 10)).div_ceil(LOAD_AVG_MAX - FULL)
    }

    /// How long ago the last tick of `c`, which is busy at `now`, can have been: where a CPU
    /// executes something, no tick is due, and what it does later leaves no row.
    fn late(&self, c: Cpu, now: u64) -> u64 {
        match self.events.accounted(c, now) {
            Some(ts) => now - ts,
            None => now - self.silent_since(c, now) + LATE_TICKS * self.tick,
        }
    }

    /// Since when, at the earliest, `jiffies` can have been what they are at `now`. One busy CPU
    /// counts them for all, and while that stands still they stay the same.
    pub fn jiffies_since(&self, q: &Queues, now: u64) -> u64 {
        let busy = q.cpus.iter().enumerate().filter(|(_, s)| s.curr.is_some_and(|p| p != 0));
        let seen = busy.map(|(c, _)| self.silent_since(Cpu(c as u16), now)).min().unwrap_or(now);
        seen.saturating_sub(self.tick)
    }

    /// When `c` was last seen to execute something.
    fn silent_since(&self, c: Cpu, now: u64) -> u64 {
        let all = &self.rows[c.ix()];
        let row = all[..all.partition_point(|&ts| ts <= now)].last().copied();
        row.max(self.events.last(c, now)).unwrap_or(0)
    }

    /// The same with the estimate of what is queued, where the release has one.
    pub fn estimated(&self, c: Cpu, s: &CpuState, from: u64, to: u64) -> (u64, u64) {
        let (lo, hi) = self.at(c, s, from, to);
        let sum = |most: bool| -> u64 {
            let queued = s.queued.values().filter(|q| most || !q.side.sched_delayed);
            let of = |q: &Side| match most {
                true => q.util_est,
                false => q.util_est.saturating_sub(q.util_est_less),
            };
            queued.map(|q| of(&q.side)).sum()
        };
        (lo.max(sum(false)).min(FULL), hi.max(sum(true)).min(FULL))
    }

    /// Lowest and highest load.
    pub fn load(
        &self,
        c: Cpu,
        s: &CpuState,
        loads: &Loads,
        from: u64,
        to: u64,
    ) -> Option<(u64, u64)> {
        match s.running.is_some_and(|(n, _)| n.pid != 0) {
            true => loads.ticked(c, from, to, self.late(c, to)),
            false => loads.at(c, from, to),
        }
    }

    /// Lowest and highest runnable time of `c` at the same time.
    pub fn runnable(
        &self,
        c: Cpu,
        s: &CpuState,
        loads: &Loads,
        from: u64,
        to: u64,
    ) -> Option<(u64, u64)> {
        if let Some(&(ts, (lo, hi))) = self.runnable[c.ix()].iter().rfind(|x| x.0 <= to) {
            let at = |v: u64, n: u64| average_after(v, n * FULL, to - ts);
            let n = s.queued.len() as u64;
            let (lo, mut hi) = (lo.min(at(lo, n).0), hi.max(at(hi, n + s.nr_unseen()).1));
            let came =
                self.moves[c.ix()].iter().filter(|m| m.ts > ts && m.ts <= to && m.change > 0);
            hi += FULL * came.count() as u64;
            let left = self.moves[c.ix()].iter().any(|m| m.ts > ts && m.ts <= to && m.change < 0);
            return Some((if left { 0 } else { lo }, hi));
        }
        let (_, load) = self.load(c, s, loads, from, to)?;
        let least = self.at(c, s, from, to).0;
        Some((least, (load * FULL / self.lightest).max(least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{Glimpse, Ran, Row, Side};

    const MS: u64 = 1 << 20;

    fn recorded(util: u64) -> (Trace, CpuState) {
        let mut r = Row::new(0, Cpu(0), RowKind::Switch);
        let busy = Side { pid: 7, prio: 120, weight: 1 << 20, ..Side::default() };
        r.p = Side { cfs_util_avg: util, cfs_load_avg: 2 * util, cfs_load_weight: 2 << 20, ..busy };
        let mut s = CpuState::default();
        (s.curr, s.running) = (Some(7), Some((busy, 0)));
        (Trace { rows: vec![r], nr_cpus: 1, ..Trace::default() }, s)
    }

    /// Half of the way to 1024 and 2 % of the rest, where a segment more ends, in 32 ms while a
    /// task runs; half of it less 2 % left in 32 ms while none does.
    #[test]
    fn it_grows_while_a_task_runs_and_falls_while_none_does() {
        let (t, busy) = recorded(512);
        let u = Utilisation::new(&t, 16 * MS);
        assert_eq!(u.at(Cpu(0), &busy, 32 * MS, 32 * MS), (512, 774));
        let mut idle = busy;
        (idle.curr, idle.running) = (Some(0), Some((Side::default(), 0)));
        assert_eq!(u.at(Cpu(0), &idle, 32 * MS, 32 * MS), (250, 512));
    }

    /// As above, with a tick every ms, and an interrupt at 31 ms after which the CPU may have stood
    /// still again: what brings averages up to date is the accounting, last seen at 1 ns or 31 ms.
    #[test]
    fn an_interrupt_is_no_tick() {
        let (mut t, busy) = recorded(512);
        let event = |ts, accounts: bool| Glimpse {
            ts,
            cpu: Cpu(0),
            before: 1,
            curr_pid: 7,
            flags: None,
            ran: accounts.then_some(Ran { pid: 7, runtime: 1, vruntime: None }),
            tick: None,
        };
        let mut at = |accounts| {
            let glimpses = vec![event(1, true), event(31 * MS, accounts)];
            t.alive = Alive::new(&Trace { glimpses, nr_cpus: 1, ..Trace::default() });
            Utilisation::new(&t, MS).at(Cpu(0), &busy, 32 * MS, 32 * MS)
        };
        assert_eq!((at(false), at(true)), ((512, 774), (762, 774)));
    }

    /// 7 runs for half a segment, 512 units, and sleeps; what it adds is 512 · 1024 / 46718 = 11.2
    /// at the most. An update that shows 510 has added it.
    #[test]
    fn what_ran_in_a_segment_that_has_not_ended_is_added_later() {
        let (mut t, mut idle) = recorded(512);
        (idle.curr, idle.running) = (Some(0), Some((Side::default(), 0)));
        let mut row = |ts, kind, p: Side, util| {
            let p = Side { cfs_util_avg: util, ..p };
            t.rows.push(Row { p, ..Row::new(ts, Cpu(0), kind) });
            Utilisation::new(&t, MS).at(Cpu(0), &idle, ts, ts)
        };
        let seven = Side { pid: 7, prio: 120, ..Side::default() };
        row(4 * MS, RowKind::Switch, Side::default(), 500);
        let slept = 4 * MS + MS / 2;
        assert_eq!(row(slept, RowKind::Switch, seven, 500), (500, 512));
        assert_eq!(row(slept + 5, RowKind::Waking, seven, 500), (500, 512));
        assert_eq!(row(slept + MS, RowKind::Waking, seven, 510), (510, 510));
    }

    /// CPU 0 was last seen at 10 ms, CPU 1 at 20. At 21 ms a jiffy of 4 ms began at 17, or, if CPU
    /// 0 counts and stands still since then, at 6.
    #[test]
    fn jiffies_stand_still_with_the_cpu_that_counts_them() {
        let at = |ms, c| Row::new(ms * MS, Cpu(c), RowKind::Waking);
        let t = Trace { rows: vec![at(10, 0), at(20, 1)], nr_cpus: 2, ..Trace::default() };
        let mut q = Queues::new(&t);
        let since = |q: &Queues| Utilisation::new(&t, 4 * MS).jiffies_since(q, 21 * MS);
        assert_eq!(since(&q), 17 * MS);
        q.cpus[0].curr = Some(7);
        assert_eq!(since(&q), 6 * MS);
    }

    /// Until the queue is next brought up to date what has exited still counts.
    #[test]
    fn what_exits_takes_its_own_away_some_time() {
        let (mut t, mut idle) = recorded(512);
        (idle.curr, idle.running) = (Some(0), Some((Side::default(), 0)));
        t.rows[0].p.util_avg = 500;
        assert_eq!(Utilisation::new(&t, MS).at(Cpu(0), &idle, 0, 0), (512, 512));
        t.rows[0].b = 0x80;
        assert_eq!(Utilisation::new(&t, MS).at(Cpu(0), &idle, 0, 0), (12, 512));
    }

    /// A busy CPU of which nothing is seen for 32 ms may have stood still for as long.
    #[test]
    fn a_cpu_that_is_not_seen_may_have_had_no_tick() {
        let (mut t, busy) = recorded(512);
        let u = Utilisation::new(&t, 16 * MS);
        assert_eq!(u.at(Cpu(0), &busy, 32 * MS, 32 * MS), (512, 774));
        t.rows.push(Row {
            p: Side { tg: 1, ..busy.running.unwrap().0 },
            ..Row::new(64 * MS, Cpu(0), RowKind::Waking)
        });
        // Seen just now: the last tick was 32 ms ago at the most.
        let u = Utilisation::new(&t, 16 * MS);
        assert_eq!(u.at(Cpu(0), &busy, 64 * MS, 64 * MS), (768, 899));
    }

    #[test]
    fn runnable_time_lies_between_utilisation_and_load() {
        let (t, busy) = recorded(512);
        let range = Utilisation::new(&t, MS).runnable(Cpu(0), &busy, &Loads::new(&t), 0, 0);
        assert_eq!(range, Some((512, 1024)));
    }

    #[test]
    fn rebuilt_values_keep_both_their_ends() {
        let (mut t, mut busy) = recorded(512);
        t.rebuilt = true;
        t.rows[0].p.cfs_util_more = 256;
        t.rows[0].p.cfs_runnable = Some((512, 1024));
        let u = Utilisation::new(&t, 16 * MS);
        assert_eq!(u.at(Cpu(0), &busy, 0, 0), (512, 768));
        // It may have had no tick since.
        assert_eq!(u.at(Cpu(0), &busy, 64 * MS, 64 * MS), (512, 962));
        // One task waits for half of the way from 512 to 1024.
        busy.queued.insert(
            7,
            crate::shadow::state::queues::Seen {
                side: Side::default(),
                vruntime: (0, 0),
                exact: true,
                seq: 0,
                maybe: false,
            },
        );
        let at = u.runnable(Cpu(0), &busy, &Loads::new(&t), 32 * MS, 32 * MS);
        assert_eq!(at, Some((512, 1024)));
        // A row that brings nothing up to date does not show a later value, but that there were
        // ticks: the last one 32 ms ago at the most.
        t.rows.push(Row { ts: 64 * MS, kind: RowKind::Waking, ..t.rows[0].clone() });
        assert_eq!(Utilisation::new(&t, 16 * MS).at(Cpu(0), &busy, 64 * MS, 64 * MS), (768, 962));
    }
}
