//! The list of fair tasks of every CPU in the order in which the balancer goes through it, and what
//! else it asks of a task.
//!
//! *What.* A task enters at the head and goes there again whenever it is picked; the balancer
//! takes from the tail, and what it passes over goes to the head. A search that takes nothing goes
//! once round and leaves the order as it was – unless more tasks are queued than it looks at: then
//! it leaves no row and another order. That of who was in so long a list is not known until it
//! enters anew, nor is the place of a task that may have been queued, delayed, when it was woken.
//! *Departures.* D1: up to 6.11 a pick that keeps the running task puts it first without a row;
//! that changes its place among the others only while it runs, when it is not moved, unless others
//! came since.

use super::counts::in_balance;
use super::queues::CpuState;
use crate::shadow::rows::trace::{MAY_STAY, Row, RowKind, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// When a task last ran where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// Up to this `clock_task` of its CPU.
    At(i64),
    /// Not since it came here.
    NotHere,
}

/// Lists of all CPUs.
#[derive(Clone, Debug)]
pub struct Lists {
    /// Tasks by CPU, tail first.
    cpus: Vec<Vec<i64>>,
    ran: BTreeMap<i64, Ran>,
    /// Tasks that may be elsewhere in their list.
    unordered: BTreeSet<i64>,
    /// Tasks that one search looks at: the release's `nr_migrate`.
    looked_at: usize,
    /// By the CPU that moves: what it puts on together, from where to where, and the last one.
    batch: Vec<Option<(i64, i64, i64)>>,
}

impl Lists {
    /// At the start of the recording; a search of the balancer looks at `looked_at` tasks.
    pub fn new(nr_cpus: usize, looked_at: u32) -> Lists {
        Lists {
            cpus: vec![vec![]; nr_cpus],
            ran: BTreeMap::new(),
            unordered: BTreeSet::new(),
            looked_at: looked_at as usize,
            batch: vec![None; nr_cpus],
        }
    }

    /// Takes in a row.
    pub fn apply(&mut self, t: &Trace, r: &Row) {
        let c = r.rq_cpu.ix();
        match r.kind {
            RowKind::Switch => {
                if !(r.p.is_fair() && r.p.on_rq) {
                    self.remove(r.p.pid);
                    if r.p.sched_delayed {
                        // It may have kept its place, which shows at no wakeup that has begun.
                        self.unordered.insert(r.p.pid);
                    }
                }
                if let Some(clock) = r.clock_task.filter(|_| r.p.is_fair()) {
                    self.ran.insert(r.p.pid, Ran::At(clock));
                }
                if let Some(n) = r.n.filter(|n| n.is_fair()) {
                    self.first(r.cpu.ix(), n.pid);
                }
            }
            RowKind::Wakeup | RowKind::WakeupNew
                if r.p.is_fair() && r.p.on_rq && !self.cpus[c].contains(&r.p.pid) =>
            {
                let may_have_stayed = self.unordered.contains(&r.p.pid);
                self.first(c, r.p.pid);
                if may_have_stayed {
                    self.unordered.insert(r.p.pid);
                }
            }
            RowKind::Waking if !r.p.on_rq => self.remove(r.p.pid),
            RowKind::SelectRq if r.wake_flags() & MAY_STAY != 0 => {
                self.unordered.insert(r.p.pid);
            }
            RowKind::Migrate => {
                self.ran.insert(r.p.pid, Ran::NotHere);
                if !t.in_wakeup(r) {
                    self.moved(t, r);
                }
            }
            _ => {}
        }
        let goes_on = r.kind == RowKind::Migrate || r.kind == RowKind::NeedResched;
        let batch = &mut self.batch[r.cpu.ix()];
        *batch = batch.filter(|_| goes_on);
    }

    fn moved(&mut self, t: &Trace, r: &Row) {
        let list = &mut self.cpus[r.rq_cpu.ix()];
        if let (true, Some(at)) = (in_balance(t, r), list.iter().position(|&p| p == r.p.pid)) {
            list.rotate_left(at);
        }
        self.remove(r.p.pid);
        let Some(to) = r.dst_ix(self.cpus.len()) else { return };
        if !r.p.is_fair() {
            return;
        }
        // The last one taken off is put on first.
        let ends = (r.src_cpu(), r.dst_cpu());
        let last = self.batch[r.cpu.ix()].filter(|b| (b.0, b.1) == ends);
        self.batch[r.cpu.ix()] = Some((ends.0, ends.1, r.p.pid));
        let list = &mut self.cpus[to];
        let before = last.and_then(|(.., last)| list.iter().position(|&p| p == last));
        list.insert(before.unwrap_or(list.len()), r.p.pid);
        self.entered(to);
    }

    fn first(&mut self, c: usize, pid: i64) {
        self.remove(pid);
        self.cpus[c].push(pid);
        self.entered(c);
    }

    /// From now on a search may pass over some of `c`'s tasks and not reach the others.
    fn entered(&mut self, c: usize) {
        if self.cpus[c].len() > self.looked_at {
            self.unordered.extend(&self.cpus[c]);
        }
    }

    fn remove(&mut self, pid: i64) {
        self.unordered.remove(&pid);
        for list in &mut self.cpus {
            list.retain(|&p| p != pid);
        }
    }

    /// The tasks queued on CPU `c`, whose queue is `s`, the first to be asked first. `None`: not
    /// all of them have been seen entering, or not since the list was too long for one search.
    pub fn tail_first(&self, c: usize, s: &CpuState) -> Option<Vec<i64>> {
        let all: Vec<i64> =
            self.cpus[c].iter().copied().filter(|p| s.queued.contains_key(p)).collect();
        let ordered = !all.iter().any(|p| self.unordered.contains(p));
        (ordered && all.len() == s.queued.len()).then_some(all)
    }

    /// When `pid` last ran where it is; `None`: not since the recording began.
    pub fn ran(&self, pid: i64) -> Option<Ran> {
        self.ran.get(&pid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::Side;
    use crate::shadow::state::queues::Seen;
    use vruntime_base::Cpu;

    fn row(kind: RowKind, pid: i64) -> Row {
        let mut r = Row::new(0, Cpu(0), kind);
        r.p = Side { pid, prio: 120, on_rq: true, ..Side::default() };
        r
    }

    /// 1, 2 and 3 enter CPU 0, 1 is picked: 2 has waited longest. The balancer passes over 2 and
    /// takes 3: the order is then 1, 2.
    #[test]
    fn what_is_passed_over_goes_to_the_head() {
        let t = balancing();
        let mut l = Lists::new(2, 32);
        enter(&mut l, &t, &[1, 2, 3]);
        l.apply(&t, &pick(1));
        assert_eq!(l.cpus[0], [2, 3, 1]);
        let mut take = row(RowKind::Migrate, 3);
        (take.a, take.b, take.stack) = (0, 1, Some(0));
        l.apply(&t, &take);
        assert_eq!((&l.cpus[0][..], &l.cpus[1][..]), (&[1, 2][..], &[3][..]));
        assert_eq!(l.ran(3), Some(Ran::NotHere));
    }

    /// 1 and 2 are taken off together: 2 is put on first, so 1 is at the head.
    #[test]
    fn the_last_one_taken_off_is_put_on_first() {
        let t = balancing();
        let mut l = Lists::new(2, 32);
        enter(&mut l, &t, &[1, 2]);
        for pid in [1, 2] {
            take(&mut l, &t, pid);
        }
        assert_eq!(l.cpus[1], [2, 1]);
    }

    /// The same while CPU 1 chooses a CPU for somebody.
    #[test]
    fn what_another_cpu_does_meanwhile_ends_no_go() {
        let t = balancing();
        let on = |cpu| {
            let mut l = Lists::new(2, 32);
            enter(&mut l, &t, &[1, 2]);
            for pid in [1, 2] {
                take(&mut l, &t, pid);
                l.apply(&t, &Row { cpu: Cpu(cpu), ..row(RowKind::SelectRq, 9) });
            }
            l.cpus[1].clone()
        };
        assert_eq!((on(1), on(0)), (vec![2, 1], vec![1, 2]));
    }

    /// Two CPUs; the first call chain is the balancer's.
    fn balancing() -> Trace {
        let stacks = vec![vec!["set_task_cpu".to_owned(), "load_balance".to_owned()]];
        Trace { nr_cpus: 2, stacks, ..Trace::default() }
    }

    /// The balancer takes `pid` from CPU 0 to CPU 1.
    fn take(l: &mut Lists, t: &Trace, pid: i64) {
        let mut take = row(RowKind::Migrate, pid);
        (take.a, take.b, take.stack) = (0, 1, Some(0));
        l.apply(t, &take);
    }

    fn enter(l: &mut Lists, t: &Trace, pids: &[i64]) {
        pids.iter().for_each(|&pid| l.apply(t, &row(RowKind::Wakeup, pid)));
    }

    fn sleep(pid: i64) -> Row {
        let mut r = row(RowKind::Switch, pid);
        r.p.on_rq = false;
        r
    }

    fn order(l: &Lists) -> Option<Vec<i64>> {
        let mut s = CpuState::default();
        for &pid in &l.cpus[0] {
            let side = Side { pid, ..Side::default() };
            let (seq, exact, maybe) = (0, true, false);
            s.queued.insert(pid, Seen { side, vruntime: (0, 0), exact, seq, maybe });
        }
        l.tail_first(0, &s)
    }

    fn pick(pid: i64) -> Row {
        let n = Some(Side { pid, prio: 120, ..Side::default() });
        Row { n, ..row(RowKind::Switch, 0) }
    }

    /// 1 sleeps and is woken: if it was queued still, delayed, it did not go to the head.
    #[test]
    fn the_place_of_who_may_have_been_delayed_is_not_known() {
        let t = Trace { nr_cpus: 1, ..Trace::default() };
        let mut l = Lists::new(1, 32);
        enter(&mut l, &t, &[1, 2]);
        l.apply(&t, &sleep(1));
        assert_eq!(order(&l), Some(vec![2]));
        l.apply(&t, &Row { b: MAY_STAY, ..row(RowKind::SelectRq, 1) });
        assert_eq!(order(&l), Some(vec![2]));
        l.apply(&t, &row(RowKind::Wakeup, 1));
        assert_eq!(order(&l), None);
        l.apply(&t, &pick(1));
        assert_eq!(order(&l), Some(vec![2, 1]));
    }

    /// The wakeup of 1 began before a row showed that it slept, and may have stayed: no choice of a
    /// CPU tells. One that begins later does.
    #[test]
    fn who_is_woken_before_it_is_seen_to_sleep_may_have_kept_its_place() {
        let t = Trace { nr_cpus: 1, ..Trace::default() };
        let after = |waking: Option<Row>| {
            let mut l = Lists::new(1, 32);
            enter(&mut l, &t, &[1, 2]);
            let mut away = sleep(1);
            away.p.sched_delayed = true;
            l.apply(&t, &away);
            waking.iter().for_each(|r| l.apply(&t, r));
            l.apply(&t, &row(RowKind::Wakeup, 1));
            order(&l)
        };
        let waking = Row { kind: RowKind::Waking, ..sleep(1) };
        assert_eq!((after(None), after(Some(waking))), (None, Some(vec![2, 1])));
    }

    /// A search looks at two tasks: with three queued, 1 may have gone to the head without a row.
    #[test]
    fn the_order_of_a_long_list_is_not_known_until_its_tasks_enter_anew() {
        let t = Trace { nr_cpus: 1, ..Trace::default() };
        let mut l = Lists::new(1, 2);
        enter(&mut l, &t, &[1, 2]);
        assert_eq!(order(&l), Some(vec![1, 2]));
        l.apply(&t, &row(RowKind::Wakeup, 3));
        assert_eq!(order(&l), None);
        for pid in [2, 3] {
            l.apply(&t, &sleep(pid));
        }
        l.apply(&t, &row(RowKind::Wakeup, 4));
        assert_eq!(order(&l), None);
        l.apply(&t, &pick(1));
        assert_eq!(order(&l), Some(vec![4, 1]));
    }
}
