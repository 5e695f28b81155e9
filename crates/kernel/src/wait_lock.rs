//! The spin locks of a pipe's wait queues: held over a wakeup.
//!
//! *What.* Who wakes the waiters of a queue holds its lock until the last of them has been woken.
//! Who wants the lock meanwhile, to sleep there or to wake, spins with interrupts off; the locks
//! are handed on in the order of asking.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/wait.c: `__wake_up_common_lock`,
//! `prepare_to_wait_event`.
//! *Equations.* Who spins has the lock three transfers after its release, as with
//! `vruntime_machine::Lock`. Its line is the mutex's (`struct pipe_inode_info`), so a lock that is
//! free costs nothing beyond `pipe_wait` and `wait_queue_wake`.
//! *Departures.* D1: who goes to sleep holds it for no time (some 20 ns). D2: nobody else takes it:
//! up to 6.6 who takes or frees a slot does (one message in a thousand). D3: the queues of Unix
//! sockets are always free.
//! *Example.* A reader has freed a slot and wakes the first writer, 6 us. A writer that has found
//! the pipe full 1 us after it began spins for 5 us and three transfers, then sleeps.

use crate::frame::Frame;
use crate::program::ChannelId;
use crate::sim::{Channel, Sim};
use crate::variation::Knockout;
use vruntime_base::{Cpu, Func, Ns, Resource};
use vruntime_machine::HANDOVER;

/// Which of a pipe's two wait queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// `rd_wait`.
    Readers,
    /// `wr_wait`.
    Writers,
}

/// The lock that a CPU holds, or has held last, and who spins for it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Of which pipe; NONE: of none.
    ch: ChannelId,
    queue: Queue,
    /// Until when; NEVER while that is not known.
    until: Ns,
    /// Who spins for it: the first and the last, through `CpuSim::spin_next`.
    first: Cpu,
    last: Cpu,
}

impl Held {
    /// None so far.
    pub const NONE: Held = Held {
        ch: ChannelId::NONE,
        queue: Queue::Readers,
        until: Ns::ZERO,
        first: Cpu::NONE,
        last: Cpu::NONE,
    };

    fn is(&self, ch: ChannelId, queue: Queue) -> bool {
        self.ch == ch && self.queue == queue
    }
}

impl Sim {
    /// `c` asks for the lock of a wait queue now. True: it may go on. False: it spins, and its
    /// task's step runs again when it has the lock.
    pub(crate) fn lock_queue(&mut self, c: Cpu, ch: ChannelId, queue: Queue) -> bool {
        let mine = &self.cpus[c.ix()].held;
        if self.without.has(Knockout::WaitQueue) || mine.is(ch, queue) && mine.until == Ns::NEVER {
            return true;
        }
        let holder = *self.holder(ch, queue);
        let free = |h: &Held| !h.is(ch, queue) || h.until <= self.now;
        if holder.is_none() || free(&self.cpus[holder.ix()].held) {
            return true;
        }
        let cpu = &mut self.cpus[c.ix()];
        cpu.irqs_off = true;
        cpu.spin_next = Cpu::NONE;
        cpu.lock_wait_since = self.now;
        self.plan(c, Ns::NEVER, Frame::QueueLocked);
        let held = &mut self.cpus[holder.ix()].held;
        let last = std::mem::replace(&mut held.last, c);
        if last.is_none() {
            held.first = c;
        } else {
            self.cpus[last.ix()].spin_next = c;
        }
        let until = self.cpus[holder.ix()].held.until;
        if until < Ns::NEVER {
            self.hand_on(holder, until);
        }
        false
    }

    /// `c`, which has asked for the lock, holds it from now on until [`Sim::unlock_queue`].
    pub(crate) fn hold_queue(&mut self, c: Cpu, ch: ChannelId, queue: Queue) {
        let held = &mut self.cpus[c.ix()].held;
        if !(held.is(ch, queue) && held.until == Ns::NEVER) {
            *held = Held { ch, queue, until: Ns::NEVER, ..Held::NONE };
            *self.holder(ch, queue) = c;
        }
    }

    /// If `c` holds the lock of a wait queue, it releases it at `at`.
    pub(crate) fn unlock_queue(&mut self, c: Cpu, at: Ns) {
        let held = &mut self.cpus[c.ix()].held;
        if held.until < Ns::NEVER {
            return;
        }
        held.until = at;
        if held.first.is_some() {
            self.hand_on(c, at);
        }
    }

    /// The first CPU that spins gets the lock that `from` releases at `at`.
    fn hand_on(&mut self, from: Cpu, at: Ns) {
        let held = std::mem::replace(&mut self.cpus[from.ix()].held, Held::NONE);
        let to = held.first;
        let granted = at + Ns(HANDOVER * self.transfer(from, to).0);
        let next = self.cpus[to.ix()].spin_next;
        let last = if next.is_some() { held.last } else { Cpu::NONE };
        let cpu = &mut self.cpus[to.ix()];
        cpu.held = Held { until: Ns::NEVER, first: next, last, ..held };
        cpu.spin_next = Cpu::NONE;
        cpu.op_end = granted;
        *self.holder(held.ch, held.queue) = to;
        self.arm(to);
    }

    /// The lock that `c` spun for is its own now: its task goes on where it asked for it.
    pub(crate) fn queue_locked(&mut self, c: Cpu) {
        let waited = self.now - self.cpus[c.ix()].lock_wait_since;
        self.waited(c, Func::WaitQueue, Resource::WaitQueueLock, waited);
        let now = self.now;
        let cpu = &mut self.cpus[c.ix()];
        cpu.frames[0] = Frame::Task;
        cpu.irqs_on(now);
        self.task_step(c);
    }

    /// Who has taken the lock of this queue last.
    fn holder(&mut self, ch: ChannelId, queue: Queue) -> &mut Cpu {
        let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] else { unreachable!("not a pipe") };
        &mut pipe.wakers[queue as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Op;
    use crate::sample::{PIPE, sim};
    use crate::task::{Step, WaitsFor};
    use vruntime_sched::task::TaskState;

    const A: Cpu = Cpu(0);
    const B: Cpu = Cpu(1);
    const C: Cpu = Cpu(2);

    /// CPU A wakes one of the writers; B runs another, which has found the pipe full.
    fn woken_by_a() -> Sim {
        let mut s = sim("v6.1");
        let p = s.tasks.len() - 1;
        s.sh.rqs[B.ix()].curr = vruntime_base::TaskId(p as u32);
        s.sh.tasks[p].cpu = B;
        s.sh.tasks[p].state = TaskState::Running;
        s.tasks[p].op = Op::Write { to: PIPE, bytes: 100 };
        s.tasks[p].step = Step::WritePrepare;
        s.tasks[p].waits_for = WaitsFor::Nothing;
        let Channel::Pipe(pipe) = &mut s.channels[PIPE.ix()] else { unreachable!() };
        assert_eq!(pipe.write(16 * 4096, true).0, 16 * 4096);
        assert!(s.lock_queue(A, PIPE, Queue::Writers));
        s.hold_queue(A, PIPE, Queue::Writers);
        s
    }

    fn three_transfers(s: &Sim, from: Cpu, to: Cpu) -> Ns {
        Ns(HANDOVER * s.transfer(from, to).0)
    }

    #[test]
    fn who_would_sleep_spins_until_the_waker_is_done() {
        let mut s = woken_by_a();
        let (p, began) = (s.tasks.len() - 1, s.now);
        s.task_step(B);
        assert_eq!((s.cpus[B.ix()].op_end, s.tasks[p].waits_for), (Ns::NEVER, WaitsFor::Nothing));
        s.unlock_queue(A, began + Ns(5_000));
        let granted = began + Ns(5_000) + three_transfers(&s, A, B);
        assert_eq!(s.cpus[B.ix()].op_end, granted);
        s.now = granted;
        s.act(B);
        assert_eq!(s.tasks[p].waits_for, WaitsFor::Room(PIPE));
        let booked = s.sh.ledger.get(B, Func::WaitQueue, Resource::WaitQueueLock);
        assert_eq!(booked, granted - began);
        // It has let go of the lock, at the end of what it did under it.
        s.now = s.cpus[B.ix()].op_end;
        assert!(s.lock_queue(C, PIPE, Queue::Writers));
    }

    #[test]
    fn in_the_order_of_asking() {
        let mut s = woken_by_a();
        let released = s.now + Ns(1_000);
        assert!(!s.lock_queue(C, PIPE, Queue::Writers) && !s.lock_queue(B, PIPE, Queue::Writers));
        s.unlock_queue(A, released);
        let first = released + three_transfers(&s, A, C);
        assert_eq!((s.cpus[C.ix()].op_end, s.cpus[B.ix()].op_end), (first, Ns::NEVER));
        s.unlock_queue(C, first);
        assert_eq!(s.cpus[B.ix()].op_end, first + three_transfers(&s, C, B));
    }

    /// The end of a wakeup is known before it comes: until then the lock is not free.
    #[test]
    fn held_until_the_wakeup_ends() {
        let mut s = woken_by_a();
        let released = s.now + Ns(1_000);
        s.unlock_queue(A, released);
        assert!(s.lock_queue(B, PIPE, Queue::Readers));
        assert!(!s.lock_queue(B, PIPE, Queue::Writers));
        assert_eq!(s.cpus[B.ix()].op_end, released + three_transfers(&s, A, B));
        s = woken_by_a();
        s.unlock_queue(A, released);
        s.now = released;
        assert!(s.lock_queue(B, PIPE, Queue::Writers));
    }
}
