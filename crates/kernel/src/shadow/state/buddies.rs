//! Whom CFS prefers at the next pick, or passes over: marks that the check of a wakeup, a stopper's
//! move and `sched_yield` leave, and that a pick or leaving the queue takes away.

use super::queues::Queues;
use crate::shadow::rows::trace::{Row, Side, Trace};
use vruntime_base::Cpu;
use vruntime_sched::release::{FairKind, Release};

/// The entities that CFS marks: a preemption check two, `sched_yield` one.
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

impl Queues {
    /// Takes in, before the pick of the switch `r`, what a call of `sched_yield` has marked.
    pub fn yielded(&mut self, t: &Trace, r: &Row, k: &Release) {
        if k.fair == FairKind::Cfs && t.yields(r) {
            let s = &mut self.cpus[r.cpu.ix()];
            s.buddies = Buddies { skip: Some(r.p.pid), ..s.buddies.without(r.p.pid) };
        }
    }

    /// `pid` should have been picked and was not. It may have lost a mark in a way that no event of
    /// a plain trace shows: its allowed CPUs or its nice value were changed while it waited.
    pub fn passed_over(&mut self, c: Cpu, pid: i64) {
        let s = &mut self.cpus[c.ix()];
        s.buddies = s.buddies.without(pid);
    }

    /// Takes in what the kernel's own preemption check did (the `resched_curr` rows `asked` of
    /// the activation `r`, or what a plain trace tells of it): CFS marks buddies.
    pub fn preempted(&mut self, t: &Trace, r: &Row, asked: &[usize], k: &Release) {
        let checked = asked.iter().any(|&i| {
            t.stack(&t.rows[i]).iter().take(3).any(|f| f.starts_with("check_preempt_wakeup"))
        });
        let s = &mut self.cpus[r.rq_cpu.ix()];
        if k.fair != FairKind::Cfs {
            return;
        }
        let crowded = r.p.cfs_nr >= 8;
        let last = s.curr.filter(|_| k.last_buddy && crowded);
        // Whoever preempts for its class is not marked.
        let idle = |side: &Side| self.idle_tasks.has(side);
        let by_class =
            s.running.is_some_and(|(n, _)| (idle(&n), idle(&r.p)) == (Some(true), Some(false)));
        let next = (!by_class || (k.next_buddy && crowded)).then_some(r.p.pid);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::RowKind;
    use crate::shadow::state::queues::CpuState;
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
}
