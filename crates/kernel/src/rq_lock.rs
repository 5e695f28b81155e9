//! The run queue locks: asked for when their taker gets there, and what is done under them.
//!
//! *What.* Who needs a lock says when it will have got there. At that moment it asks: the lock is
//! free, or it waits in the lock's line. What it does next it does when it has the lock and the
//! queue's lines.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `raw_spin_rq_lock_nested` and its
//! callers.
//! *Equations.* See `vruntime_machine::Lock`; lines: `queue_lines`.
//! *Departures.* D1: a CPU asks for one run queue lock at a time and keeps it until what it does
//! under it is done; where the kernel holds two (moves between queues) it goes through them one by
//! one.
//! *Example.* A wakeup takes 700 ns until the wakee's queue is chosen: the lock is asked for then,
//! not when the wakeup begins, and who asks in between goes first.

use crate::frame::Frame;
use crate::sim::Sim;
use crate::variation::Knockout;
use vruntime_base::{Cpu, Func, Ns, Resource};
use vruntime_machine::{Line, Request};

/// What is done under a run queue's lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Under {
    /// `ttwu_do_activate` by the waker.
    Wake,
    /// `ttwu_runnable`: the wakee was queued when its waker looked.
    WakeRunnable,
    /// `sched_ttwu_pending`.
    Flush,
    /// `__schedule`.
    Schedule,
    /// `__schedule` after newidle balancing.
    ScheduleAgain,
    /// `scheduler_tick`.
    Tick,
    /// The next step of a balancer's pass.
    Balance,
    /// A stopper takes a task off its own queue.
    Stop,
    /// A stopper puts a task on another queue.
    StopAttach,
    /// `sched_yield`.
    Yield,
    /// A task changes its policy, group or affinity.
    Change,
    /// A task that exits leaves its autogroup.
    Exit,
}

impl Under {
    /// The function that waits for the queue's lines.
    fn func(self) -> Func {
        match self {
            Under::Wake => Func::EnqueueTask,
            Under::WakeRunnable => Func::TryToWakeUp,
            Under::Flush => Func::TtwuPending,
            Under::Schedule => Func::Schedule,
            Under::ScheduleAgain => Func::PickNext,
            Under::Tick => Func::Tick,
            Under::Balance | Under::Stop | Under::StopAttach => Func::LoadBalance,
            Under::Yield => Func::Yield,
            Under::Change => Func::SetScheduler,
            Under::Exit => Func::Exit,
        }
    }
}

impl Sim {
    /// At `at`, `c` asks for the lock of `rq`, for `under`.
    pub(crate) fn lock_rq(&mut self, c: Cpu, rq: Cpu, at: Ns, under: Under) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.irqs_off();
        cpu.lock = (rq, under);
        if at > self.now {
            self.plan(c, at, Frame::AskLock);
        } else {
            self.ask_lock(c);
        }
    }

    /// `c` asks for its lock now.
    pub(crate) fn ask_lock(&mut self, c: Cpu) {
        let (rq, under) = self.cpus[c.ix()].lock;
        let request = if self.without.has(Knockout::RqLock) {
            Request::Granted { cost: Ns::ZERO }
        } else {
            let machine = &self.machine;
            let transfer = |a: Cpu, b: Cpu| machine.transfer(a, b);
            self.rq_locks[rq.ix()].request(&mut self.spinners, c, self.now, transfer)
        };
        match request {
            Request::Granted { .. } => {
                // Whoever holds the lock owns its line: scanners that read it will miss again.
                let cost = self.machine.write(Line::Rq(rq), c).total();
                let cost = if self.without.has(Knockout::RqLine) { Ns::ZERO } else { cost };
                let at = self.now + self.waited(c, Func::RqLock, Resource::RqLine, cost);
                let at = at + self.fetch_queue(c, rq, under.func());
                self.with_lock(c, at);
            }
            Request::Wait { grant_at } => {
                self.plan(c, grant_at.unwrap_or(Ns::NEVER), Frame::Locked);
                self.cpus[c.ix()].lock_wait_since = self.now;
            }
        }
    }

    /// The lock that `c` waited for is granted now.
    pub(crate) fn locked(&mut self, c: Cpu) {
        let cpu = &self.cpus[c.ix()];
        let (rq, under) = cpu.lock;
        let waited = self.now - cpu.lock_wait_since;
        self.rq_locks[rq.ix()].granted(&mut self.spinners, c, self.now);
        // The hand-over itself was part of the grant's time.
        self.machine.lines.take_over(Line::Rq(rq), c);
        self.waited(c, Func::RqLock, Resource::RqLock, waited);
        let at = self.now + self.fetch_queue(c, rq, under.func());
        self.with_lock(c, at);
    }

    /// `c` has its lock, and the queue's lines at `at`.
    fn with_lock(&mut self, c: Cpu, at: Ns) {
        let (rq, under) = self.cpus[c.ix()].lock;
        match under {
            Under::Wake => self.wake_activate(c, at),
            Under::WakeRunnable => self.wake_runnable(c, at),
            Under::Flush => self.flush_with_lock(c, at),
            Under::Schedule => self.schedule_with_lock(c, at),
            Under::ScheduleAgain => self.schedule_again_with_lock(c, at),
            Under::Tick => self.tick_with_lock(c, at),
            Under::Balance => self.balance_with_lock(c, rq, at),
            Under::Stop => self.stop_with_lock(c, at),
            Under::StopAttach => self.stop_attach_with_lock(c, at),
            Under::Yield => self.yield_with_lock(c, at),
            Under::Change | Under::Exit => self.change_with_lock(c, at),
        }
    }

    /// `c` is done with `rq` at `at` but for the reschedules that it asked for: who is told by an
    /// interrupt is told under the lock. The lock is released at the time returned.
    pub(crate) fn unlock_rq(&mut self, c: Cpu, rq: Cpu, at: Ns) -> Ns {
        let at = self.carry_out_resched(c, at);
        self.hold_rq(c, rq, at);
        at
    }

    /// `c` will release the lock of `rq` at `until`.
    pub(crate) fn hold_rq(&mut self, c: Cpu, rq: Cpu, until: Ns) {
        if self.without.has(Knockout::RqLock) {
            return;
        }
        let machine = &self.machine;
        let transfer = |a: Cpu, b: Cpu| machine.transfer(a, b);
        if let Some((waiter, at)) = self.rq_locks[rq.ix()].hold(&self.spinners, c, until, transfer)
        {
            self.grant(waiter, at);
        }
    }

    /// `c`, which waits for a lock, gets it at `at`.
    pub(crate) fn grant(&mut self, c: Cpu, at: Ns) {
        self.cpus[c.ix()].op_end = at;
        self.arm(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;
    use crate::schedule::YIELDS;

    /// CPU 0 has put a task on CPU 1, which runs another, and asks it to reschedule: CPU 2 gets
    /// the lock when the interrupt has been sent and the lock has come over.
    #[test]
    fn who_is_interrupted_is_so_under_the_lock() {
        let mut s = sim("v6.1");
        let (by, on, next) = (Cpu(0), Cpu(1), Cpu(2));
        let way = s.machine.transfer(by, next);
        let free = |_: Cpu, _: Cpu| Ns::ZERO;
        s.rq_locks[on.ix()].request(&mut s.spinners, by, s.now, free);
        s.rq_locks[on.ix()].request(&mut s.spinners, next, s.now, free);
        s.cpus[on.ix()].frames[0] = Frame::Task;
        s.cpus[on.ix()].polling = false;
        s.resched.push((on, &YIELDS));
        let done = Ns(s.now.0 + 1_000);
        let sent = done + Ns(u64::from(s.machine.costs.ipi_send));
        assert_eq!((s.unlock_rq(by, on, done), s.stats.count.ipis), (sent, 1));
        assert_eq!(s.cpus[next.ix()].op_end, Ns(sent.0 + vruntime_machine::HANDOVER * way.0));
    }
}
