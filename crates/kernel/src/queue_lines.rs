//! The lines of a run queue and of a task, which go to whoever works on them.
//!
//! *What.* Whoever works on a run queue under its lock – its own CPU, a waker that enqueues there,
//! a balancer – leaves the queue's lines (counters, tree, averages) in its cache; the next one to
//! work on it waits for them, most of all the queue's own CPU after a wakeup from outside. A waker
//! waits for the lines of a wakee that ran elsewhere, and the CPU that the wakee runs on waits for
//! those that the waker wrote. A wakeup by the wake list leaves the queue's lines where they are.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `ttwu_do_activate`, `__schedule`. How
//! long each of them waits is four shares of a transfer in the machine's cost table, measured on
//! two CPUs of a Sapphire Rapids guest by `vruntime calibrate`, without the line of the lock and
//! that of the wakee's state, which are told apart.
//! *Equations.* T(x) = transfer from CPU x. A holder of the lock waits for `queue_from_outside` ·
//! T(last holder) on another CPU's queue, for `queue_back` · T(last holder) on its own – nothing if
//! it was the last itself. Enqueueing: `wakee` · T(CPU it ran on). Running it: `wakee_back` ·
//! T(CPU that enqueued it).
//! *Departures.* D1: every holder is taken to touch all of a queue's lines, a tick as much as an
//! enqueue. D2: how many tasks were enqueued from outside does not matter; after seven the queue's
//! own CPU waits half as long again as after one. D3: lines of other tasks in the tree stay where
//! they are. D4: what a wakeup by the wake list moves is not measured: one line of the wakee's
//! state, two of the list and four of the task (`wakeup.rs`; the estimates of 3 to 5 and 2 to 3).
//! *Example.* T = 100, shares 2.5, 10, 5 and 6. CPU 0 wakes two tasks that ran on CPU 1 and are
//! queued there: 250 and 500 for the first, 500 for the second. CPU 1 then calls `schedule()`:
//! 1,000, and 600 before either of them runs.

use crate::sim::Sim;
use crate::variation::Knockout;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::Costs;

/// Who worked last on each run queue, under its lock.
pub(crate) struct QueueLines(Vec<Cpu>);

impl QueueLines {
    /// Every queue with its own CPU.
    pub fn new(nr_cpus: usize) -> QueueLines {
        QueueLines((0..nr_cpus).map(Cpu::from_ix).collect())
    }
    /// `c` works on `rq`, of whose last worker a line takes what `transfer` says.
    #[inline]
    fn go_to(&mut self, c: Cpu, rq: Cpu, costs: &Costs, transfer: impl Fn(Cpu) -> Ns) -> Ns {
        let last = std::mem::replace(&mut self.0[rq.ix()], c);
        if last == c {
            return Ns::ZERO;
        }
        let permille = if c == rq { costs.queue_back } else { costs.queue_from_outside };
        transfer(last).permille(permille)
    }
}

impl Sim {
    /// `c` has the lock of `rq`, and `func` waits for the queue's lines: how long they take.
    #[inline]
    pub(crate) fn fetch_queue(&mut self, c: Cpu, rq: Cpu, func: Func) -> Ns {
        let machine = &self.machine;
        let wait = self.queue_lines.go_to(c, rq, &machine.costs, |from| machine.transfer(from, c));
        if wait == Ns::ZERO || self.without.has(Knockout::RqLine) {
            return Ns::ZERO;
        }
        self.waited(c, func, Resource::RqLine, wait)
    }

    /// `c` enqueues the wakee `p`: how long its lines take.
    pub(crate) fn fetch_wakee(&mut self, c: Cpu, p: TaskId) -> Ns {
        let k = &mut self.tasks[p.ix()];
        k.enqueued_by = c;
        let from = k.last_cpu;
        self.fetch_task(c, from, self.machine.costs.wakee, Func::EnqueueTask)
    }

    /// `p` begins to run on `c`: how long the lines take that its waker wrote.
    pub(crate) fn fetch_woken(&mut self, c: Cpu, p: TaskId) -> Ns {
        let from = std::mem::replace(&mut self.tasks[p.ix()].enqueued_by, Cpu::NONE);
        self.fetch_task(c, from, self.machine.costs.wakee_back, Func::ContextSwitch)
    }

    fn fetch_task(&mut self, c: Cpu, from: Cpu, permille: u32, func: Func) -> Ns {
        if from.is_none() || self.without.has(Knockout::TaskLine) {
            return Ns::ZERO;
        }
        let wait = self.transfer(from, c).permille(permille);
        self.waited(c, func, Resource::TaskLine, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAKER: Cpu = Cpu(0);
    const OWNER: Cpu = Cpu(1);

    /// Shares of the file's example.
    fn costs() -> Costs {
        Costs { queue_from_outside: 2_500, queue_back: 10_000, ..Costs::FREE }
    }

    #[test]
    fn a_queues_lines_are_fetched_once_by_whoever_works_on_it_anew() {
        let mut lines = QueueLines::new(2);
        let mut go = |c| lines.go_to(c, OWNER, &costs(), |_| Ns(100));
        assert_eq!(go(OWNER), Ns(0), "its own from the start");
        assert_eq!(go(WAKER), Ns(250), "the first wakee");
        assert_eq!(go(WAKER), Ns(0), "the second");
        assert_eq!(go(OWNER), Ns(1_000), "schedule()");
        assert_eq!(go(OWNER), Ns(0));
    }

    #[test]
    fn lines_come_from_the_last_holder_not_from_the_queues_own_cpu() {
        let mut lines = QueueLines::new(3);
        let far = |from: Cpu| if from == OWNER { Ns(100) } else { Ns(300) };
        assert_eq!(lines.go_to(WAKER, OWNER, &costs(), far), Ns(250));
        assert_eq!(lines.go_to(Cpu(2), OWNER, &costs(), far), Ns(750), "another waker");
        assert_eq!(lines.go_to(WAKER, Cpu(2), &costs(), far), Ns(750), "another queue");
    }
}
