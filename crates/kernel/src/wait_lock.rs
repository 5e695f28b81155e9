//! The spin locks of a pipe's wait queues: held over a wakeup.
//!
//! *What.* Who wakes the waiters of a queue holds its lock until the last of them has been woken.
//! Who wants the lock meanwhile, to sleep there or to wake, spins with interrupts off; the locks
//! are handed on in the order of asking.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/wait.c: `__wake_up_common_lock`,
//! `prepare_to_wait_event`.
//! *Equations.* Those of `vruntime_machine::Lock`: who spins has it three transfers after its
//! release. Its line is the mutex's (`struct pipe_inode_info`), so a lock that is
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
use vruntime_machine::{Lock, Request};

/// Which of a pipe's two wait queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// `rd_wait`.
    Readers,
    /// `wr_wait`.
    Writers,
}

/// The lock that a CPU holds, spins for as the first, or has held last.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Of which pipe; NONE: of none.
    ch: ChannelId,
    queue: Queue,
    lock: Lock,
}

impl Held {
    /// None so far.
    pub const NONE: Held =
        Held { ch: ChannelId::NONE, queue: Queue::Readers, lock: Lock::new(Cpu::NONE) };

    fn is(&self, ch: ChannelId, queue: Queue) -> bool {
        self.ch == ch && self.queue == queue
    }
}

impl Sim {
    /// `c` asks for the lock of a wait queue now. True: it may go on. False: it spins, and its
    /// task's step runs again when it has the lock.
    pub(crate) fn lock_queue(&mut self, c: Cpu, ch: ChannelId, queue: Queue) -> bool {
        if self.without.has(Knockout::WaitQueue) || self.holds_queue(c, ch, queue) {
            return true;
        }
        let holder = *self.holder(ch, queue);
        if holder.is_none() {
            return true;
        }
        let held = &mut self.cpus[holder.ix()].held;
        if !(held.is(ch, queue) && held.lock.is_held(self.now)) {
            return true;
        }
        let machine = &self.machine;
        let transfer = |a: Cpu, b: Cpu| machine.transfer(a, b);
        let request = held.lock.request(&mut self.spinners, c, self.now, transfer);
        let Request::Wait { grant_at } = request else { unreachable!("it is held") };
        let cpu = &mut self.cpus[c.ix()];
        cpu.irqs_off();
        cpu.lock_wait_since = self.now;
        self.plan(c, grant_at.unwrap_or(Ns::NEVER), Frame::QueueLocked);
        if grant_at.is_some() {
            self.hand_on(holder, c);
        }
        false
    }

    /// `c`, which has asked for the lock, holds it from now on until [`Sim::unlock_queue`].
    pub(crate) fn hold_queue(&mut self, c: Cpu, ch: ChannelId, queue: Queue) {
        if !self.holds_queue(c, ch, queue) {
            let mut lock = Lock::new(c);
            lock.request(&mut self.spinners, c, self.now, |_, _| Ns::ZERO);
            self.cpus[c.ix()].held = Held { ch, queue, lock };
            *self.holder(ch, queue) = c;
        }
    }

    fn holds_queue(&self, c: Cpu, ch: ChannelId, queue: Queue) -> bool {
        let held = &self.cpus[c.ix()].held;
        held.is(ch, queue) && held.lock.is_held_by(c)
    }

    /// If `c` holds the lock of a wait queue, it releases it at `at`.
    pub(crate) fn unlock_queue(&mut self, c: Cpu, at: Ns) {
        let lock = &mut self.cpus[c.ix()].held.lock;
        if !lock.is_held_by(c) {
            return;
        }
        let machine = &self.machine;
        let transfer = |a: Cpu, b: Cpu| machine.transfer(a, b);
        if let Some((first, granted)) = lock.hold(&self.spinners, c, at, transfer) {
            self.hand_on(c, first);
            self.grant(first, granted);
        }
    }

    /// `to`, the first CPU that spins, knows when it gets the lock: it keeps the lock's state from
    /// now on, for `from` may take another one.
    fn hand_on(&mut self, from: Cpu, to: Cpu) {
        let held = std::mem::replace(&mut self.cpus[from.ix()].held, Held::NONE);
        self.cpus[to.ix()].held = held;
        *self.holder(held.ch, held.queue) = to;
    }

    /// The lock that `c` spun for is its own now: its task goes on where it asked for it.
    pub(crate) fn queue_locked(&mut self, c: Cpu) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.held.lock.granted(&mut self.spinners, c, self.now);
        let waited = self.now - cpu.lock_wait_since;
        self.waited(c, Func::WaitQueue, Resource::WaitQueueLock, waited);
        let now = self.now;
        let cpu = &mut self.cpus[c.ix()];
        cpu.frames[0] = Frame::Task;
        cpu.irqs_on(now);
        self.task_step(c);
    }

    /// Whose `CpuSim::held` has the lock of this queue.
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
    use vruntime_machine::HANDOVER;
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
        s.cpus[C.ix()].held.lock.granted(&mut s.spinners, C, first);
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
