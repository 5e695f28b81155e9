//! Whom the fair class prefers at the next pick, or passes over: marks that the check of a wakeup,
//! a move and `sched_yield` leave, and that a pick or leaving the queue takes away.
//!
//! *What.* CFS marks a wakee that preempts, and whom that preempts if the queue is long. By
//! NEXT_BUDDY each task that is put to the check is marked, whatever that answers: in EEVDF always,
//! in CFS if the queue is long; not a new one, nor one in delayed dequeue or SCHED_IDLE.
//! *Yields.* Who yields in CFS is passed over until it is really picked: where the pick that
//! follows keeps it, the mark stays, and no row tells. Of a task that yields at some time it is
//! therefore not known, when it is switched from and can run on, whether it is marked. Where a
//! plain trace lies beside the state it may be only if it was accounted meanwhile, outside of an
//! interrupt. The same holds of one that is to be rescheduled when it returns from an earlier
//! yield: it is switched from again in the same call.

use super::queues::{CpuState, NeedResched, Queues};
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace, fair_policy};
use std::collections::BTreeSet;
use vruntime_base::Cpu;
use vruntime_sched::release::{FairKind, Release};
use vruntime_sched::task::Policy;

/// From so many tasks on the queue of CFS is long.
const CROWDED: i64 = 8;

/// The entities that are marked: by a preemption check two, by `sched_yield` one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Buddies {
    /// The wakee.
    pub next: Option<i64>,
    /// Whom it preempts, if the queue is long.
    pub last: Option<i64>,
    /// Who yielded.
    pub skip: Option<i64>,
}

impl Buddies {
    /// Without `pid`, which was picked or has left.
    pub fn without(self, pid: i64) -> Buddies {
        let keep = |x: Option<i64>| x.filter(|&x| x != pid);
        Buddies { next: keep(self.next), last: keep(self.last), skip: keep(self.skip) }
    }
    /// Where it marks nobody, those of `o`.
    pub fn or(self, o: Buddies) -> Buddies {
        let (next, last) = (self.next.or(o.next), self.last.or(o.last));
        Buddies { next, last, skip: self.skip.or(o.skip) }
    }
}

impl CpuState {
    /// Whether `pid` is preferred at the next pick.
    pub fn is_buddy(&self, pid: i64) -> Option<bool> {
        let marks = |b: &Buddies| [b.next, b.last].contains(&Some(pid));
        let sure = marks(&self.buddies) && self.perhaps == Buddies::default();
        let none = !marks(&self.buddies) && !marks(&self.perhaps);
        (sure || none).then_some(sure)
    }

    /// `pid` was picked or has left.
    pub(super) fn unmark(&mut self, pid: i64) {
        self.buddies = self.buddies.without(pid);
        self.perhaps = self.perhaps.without(pid);
        self.skips.iter_mut().for_each(|s| *s = s.filter(|&s| s != pid));
        self.skips.dedup();
        if self.skips.iter().all(|s| *s == self.buddies.skip) {
            self.skips.clear();
        }
    }
}

/// Who is seen to yield.
pub(super) fn yielders(t: &Trace) -> BTreeSet<i64> {
    t.rows.iter().filter(|r| t.yields(r)).map(|r| r.p.pid).collect()
}

impl Queues {
    /// Takes in, before the pick of the switch `r`, what a call of `sched_yield` has marked.
    pub fn yielded(&mut self, t: &Trace, r: &Row, k: &Release) {
        if k.fair != FairKind::Cfs {
            return;
        }
        let s = &mut self.cpus[r.cpu.ix()];
        let pending = !t.rebuilt && s.need_resched != NeedResched::No;
        if t.yields(r) && !pending {
            s.buddies = Buddies { skip: Some(r.p.pid), ..s.buddies.without(r.p.pid) };
            s.skips.clear();
            return;
        }
        let stays = r.p.is_fair() && r.p.on_rq && self.yielders.contains(&r.p.pid);
        if !stays || (s.buddies.skip == Some(r.p.pid) && s.skips.is_empty()) {
            return;
        }
        // SCHED_BATCH is not accounted.
        let told = (fair_policy(r.p.policy) != Policy::Batch)
            .then(|| t.alive.accounted_itself(r.cpu, r.p.pid, s.since, r.ts));
        if told.flatten() != Some(false) && !s.skips.contains(&Some(r.p.pid)) {
            s.skips.push(Some(r.p.pid));
        }
    }

    /// `pid` should have been picked and was not. It may have lost a mark in a way that no event of
    /// a plain trace shows: its allowed CPUs or its nice value were changed while it waited.
    pub fn passed_over(&mut self, c: Cpu, pid: i64) {
        self.cpus[c.ix()].unmark(pid);
    }

    /// Takes in what the kernel's own preemption check did (the `resched_curr` rows `asked` of
    /// the activation `r`, or what a plain trace tells of it).
    pub fn preempted(&mut self, t: &Trace, r: &Row, asked: &[usize], k: &Release) {
        let checked = asked.iter().any(|&i| {
            t.stack(&t.rows[i]).iter().take(3).any(|f| f.starts_with("check_preempt_wakeup"))
        });
        let c = r.rq_cpu;
        if k.fair == FairKind::Cfs {
            let s = &mut self.cpus[c.ix()];
            let last = s.curr.filter(|_| k.last_buddy && r.p.cfs_nr >= CROWDED);
            // Whoever preempts for its class is not marked.
            let idle = |side: &Side| self.idle_tasks.has(side);
            let by_class =
                s.running.is_some_and(|(n, _)| (idle(&n), idle(&r.p)) == (Some(true), Some(false)));
            let next = (!by_class).then_some(r.p.pid);
            let marks = Buddies { next, last, skip: None };
            let both_fair = r.p.is_fair()
                && s.running.is_some_and(|(n, _)| n.is_fair() && ![0, r.p.pid].contains(&n.pid));
            let asked = match r.asked {
                _ if !t.rebuilt => Some(checked),
                _ if !both_fair || r.due == Some(true) => Some(false),
                asked => asked,
            };
            match asked {
                Some(true) => s.buddies = marks.or(s.buddies),
                Some(false) => {}
                None => s.perhaps = marks,
            }
        }
        if r.kind != RowKind::WakeupNew {
            self.put_to_check(c, &r.p, r.p.cfs_nr, k, true);
        }
    }

    /// Takes in, after the move `r`, that who arrives is put to the same check. Of those that the
    /// balancer takes in one go the first is put on last.
    pub fn attached(&mut self, t: &Trace, r: &Row, k: &Release) {
        if !k.next_buddy || r.kind != RowKind::Migrate || t.in_wakeup(r) {
            return;
        }
        let Some(to) = r.dst_ix(self.cpus.len()) else { return };
        let by = Some((r.cpu, r.src_cpu()));
        if self.cpus[to].marked_by == by {
            return;
        }
        // Another CPU may put it there after the next pick.
        let to = Cpu(to as u16);
        if self.put_to_check(to, &r.p, self.cpus[to.ix()].queued.len() as i64, k, r.cpu == to) {
            self.cpus[to.ix()].marked_by = by;
        }
    }

    /// NEXT_BUDDY: `p`, put to the check on `c` where then are `nr`, is marked, or, if that is not
    /// `certain`, may be.
    fn put_to_check(&mut self, c: Cpu, p: &Side, nr: i64, k: &Release, certain: bool) -> bool {
        let s = &mut self.cpus[c.ix()];
        let short = k.fair == FairKind::Cfs && nr < CROWDED;
        let fair = match (s.curr, s.running) {
            (Some(0), _) => Some(false),
            (Some(curr), _) if curr == p.pid => Some(false),
            (_, running) => running.map(|(n, _)| n.is_fair()),
        };
        let idle = self.idle_tasks.has(p);
        let marks = k.next_buddy && !short && p.is_fair() && !p.sched_delayed;
        match (fair, idle) {
            _ if !marks => return false,
            (Some(false), _) | (_, Some(true)) => return false,
            (Some(true), Some(false)) if certain => {
                s.buddies.next = Some(p.pid);
                s.perhaps.next = None;
            }
            _ => s.perhaps.next = Some(p.pid),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::kernel_file::kernel;

    /// 2 wakes up on CPU 0, where 1 runs, `nr` are queued and the check asked or not.
    fn after_wakeup(nr: i64, asked: Option<bool>, due: bool) -> CpuState {
        let t = Trace { rebuilt: true, nr_cpus: 1, ..Trace::default() };
        let mut q = Queues::new(&t);
        let side = |pid| Side { pid, prio: 120, on_rq: true, cfs_nr: nr, ..Side::default() };
        (q.cpus[0].curr, q.cpus[0].running) = (Some(1), Some((side(1), 0)));
        let wakeup = Row::new(10, Cpu(0), RowKind::Wakeup);
        let wakeup = Row { p: side(2), asked, due: Some(due), ..wakeup };
        q.preempted(&t, &wakeup, &[], &kernel("v6.1").unwrap().release);
        q.cpus.swap_remove(0)
    }

    /// The check of CFS marks a wakee that is behind `policy`'s task in virtual time, but not one
    /// that preempts SCHED_IDLE (5).
    #[test]
    fn who_preempts_for_its_class_is_no_buddy() {
        let stacks = vec![vec!["resched_curr".to_owned(), "check_preempt_wakeup".to_owned()]];
        let asked = Row { stack: Some(0), ..Row::new(9, Cpu(0), RowKind::NeedResched) };
        let next = |policy| {
            let side =
                |pid, policy| Side { pid, policy, prio: 120, on_rq: true, ..Side::default() };
            let wakeup = Row { p: side(2, 0), ..Row::new(10, Cpu(0), RowKind::Wakeup) };
            let seen = Row { p: side(1, policy), ..asked.clone() };
            let rows = vec![seen, wakeup.clone()];
            let t = Trace { rows, stacks: stacks.clone(), nr_cpus: 1, ..Trace::default() };
            let mut q = Queues::new(&t);
            (q.cpus[0].curr, q.cpus[0].running) = (Some(1), Some((side(1, policy), 0)));
            q.preempted(&t, &wakeup, &[0], &kernel("v6.1").unwrap().release);
            q.cpus[0].buddies.next
        };
        assert_eq!([next(0), next(5)], [Some(2), None]);
    }

    /// 1 yields to 2 and is skipped until it is picked; preempted, it is not.
    #[test]
    fn who_yields_is_skipped_until_it_is_picked() {
        let side = |pid| Side { pid, prio: 120, on_rq: true, cfs_nr: 2, ..Side::default() };
        let switch = |from, to, stack| {
            let n = Some(side(to));
            Row { p: side(from), n, stack, ..Row::new(9, Cpu(0), RowKind::Switch) }
        };
        let stacks = vec![vec!["schedule".to_owned(), "__do_sys_sched_yield".to_owned()]];
        let t = Trace { stacks, nr_cpus: 1, ..Trace::default() };
        let k = kernel("v6.1").unwrap().release;
        let mut q = Queues::new(&t);
        let mut skips = |r| {
            q.yielded(&t, &r, &k);
            let before = q.cpus[0].buddies.skip;
            q.apply(&t, &r);
            (before, q.cpus[0].buddies.skip)
        };
        assert_eq!(skips(switch(1, 2, Some(0))), (Some(1), Some(1)));
        assert_eq!(skips(switch(2, 1, None)), (Some(1), None));
        // It was to be rescheduled before it was back from the call.
        q.cpus[0].need_resched = NeedResched::SetAt(9);
        q.yielded(&t, &switch(1, 2, Some(0)), &k);
        assert_eq!(q.cpus[0].buddies.skip, None);
    }

    /// 1 yields and is preempted later: a yield that kept it may have marked it until it is picked.
    #[test]
    fn who_yields_at_some_time_may_be_skipped_whenever_it_is_preempted() {
        let side = |pid| Side { pid, prio: 120, on_rq: true, cfs_nr: 3, ..Side::default() };
        let switch = |ts, from, to, stack| {
            let n = Some(side(to));
            Row { p: side(from), n, stack, ..Row::new(ts, Cpu(0), RowKind::Switch) }
        };
        let all = [(1, 2, Some(0)), (2, 1, None), (1, 2, None), (2, 3, None), (3, 1, None)];
        let rows = all.iter().zip(9..).map(|(&(a, b, s), ts)| switch(ts, a, b, s)).collect();
        let stacks = vec![vec!["schedule".to_owned(), "__do_sys_sched_yield".to_owned()]];
        let t = Trace { rows, stacks, nr_cpus: 1, ..Trace::default() };
        let k = kernel("v6.1").unwrap().release;
        let mut q = Queues::new(&t);
        let mut skips = vec![];
        for r in &t.rows {
            q.yielded(&t, r, &k);
            skips.push((q.cpus[0].buddies.skip, q.cpus[0].skips.clone()));
            q.apply(&t, r);
        }
        let maybe = (None, vec![Some(1)]);
        assert_eq!(
            skips,
            [(Some(1), vec![]), (Some(1), vec![]), maybe.clone(), maybe.clone(), maybe]
        );
        assert!(q.cpus[0].skips.is_empty());
    }

    #[test]
    fn a_plain_trace_tells_buddies_by_the_answer() {
        let none = Buddies::default();
        let both = Buddies { next: Some(2), last: Some(1), ..none };
        assert_eq!(after_wakeup(8, Some(true), false).buddies, both);
        let short = after_wakeup(7, Some(true), false);
        assert_eq!(short.buddies, Buddies { last: None, ..both }, "nobody is kept in mind");
        for s in [after_wakeup(8, Some(false), false), after_wakeup(8, None, true)] {
            assert_eq!((s.buddies, s.perhaps), (none, none));
        }
        let s = after_wakeup(8, None, false);
        assert_eq!((s.buddies, s.perhaps), (none, both));
        assert_eq!(both.without(2), Buddies { next: None, ..both });
    }

    /// 1 runs on CPU 0 and wakes `p`: EEVDF by NEXT_BUDDY marks it, though it did not ask.
    #[test]
    fn by_next_buddy_who_is_put_to_the_check_is_marked() {
        let side = |pid| Side { pid, prio: 120, on_rq: true, cfs_nr: 7, ..Side::default() };
        let mut k = kernel("v6.12").unwrap().release;
        let next = |k: &Release, kind, p: Side, curr| {
            let row = Row { p, ..Row::new(10, Cpu(0), kind) };
            let t = Trace { rows: vec![row.clone()], nr_cpus: 1, ..Trace::default() };
            let mut q = Queues::new(&t);
            (q.cpus[0].curr, q.cpus[0].running) = (Some(curr), Some((side(curr), 0)));
            q.preempted(&t, &row, &[], k);
            q.cpus[0].buddies.next
        };
        assert_eq!(next(&k, RowKind::Wakeup, side(2), 1), None);
        k.next_buddy = true;
        assert_eq!(next(&k, RowKind::Wakeup, side(2), 1), Some(2));
        assert_eq!(next(&k, RowKind::WakeupNew, side(2), 1), None);
        assert_eq!(next(&k, RowKind::Wakeup, side(2), 0), None, "nobody runs");
        assert_eq!(next(&k, RowKind::Wakeup, Side { policy: 5, ..side(2) }, 1), None);
        let mut cfs = kernel("v6.1").unwrap().release;
        cfs.next_buddy = true;
        assert_eq!(next(&cfs, RowKind::Wakeup, side(2), 1), None);
        assert_eq!(next(&cfs, RowKind::Wakeup, Side { cfs_nr: 8, ..side(2) }, 1), Some(2));
    }

    /// CPU 0, or 1, moves 2 and 3 to CPU 0, where 1 runs: 2, put on last, is marked, or may be.
    #[test]
    fn by_next_buddy_who_is_moved_is_marked() {
        let side = |pid| Side { pid, prio: 120, on_rq: true, ..Side::default() };
        let mut k = kernel("v6.12").unwrap().release;
        k.next_buddy = true;
        let marks = |by| {
            let t = Trace { nr_cpus: 2, ..Trace::default() };
            let mut q = Queues::new(&t);
            (q.cpus[0].curr, q.cpus[0].running) = (Some(1), Some((side(1), 0)));
            for (ts, pid) in [(10, 2), (11, 3)] {
                let row = Row { p: side(pid), a: 1, ..Row::new(ts, Cpu(by), RowKind::Migrate) };
                let row = Row { rq_cpu: Cpu(1), ..row };
                q.apply(&t, &row);
                q.attached(&t, &row, &k);
            }
            (q.cpus[0].buddies.next, q.cpus[0].perhaps.next)
        };
        assert_eq!((marks(0), marks(1)), ((Some(2), None), (None, Some(2))));
    }
}
