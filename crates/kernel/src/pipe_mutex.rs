//! The mutex of a pipe: who spins for it, who sleeps for it, who is woken.
//!
//! *What.* Who finds it taken spins while its owner runs, else sleeps; whoever releases it wakes
//! the first sleeper. A spinner that is told to reschedule does so as a runnable task; back on a
//! CPU it takes the mutex if it is free, and sleeps for it if not.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/locking/mutex.c, as documented in
//! Documentation/locking/mutex-design.rst.
//! *Equations.* A spinner gets it three transfers after its release: the owner's store takes the
//! line from the spinner that looks at it, the spinner looks again, and takes it.
//! *Departures.* D1: a spinner may not overtake one that spins already; whoever sleeps for the
//! mutex is woken at its release and competes again: it is never handed over. D2: where the
//! time of the release is known, the owner is through with the pipe, and no known interrupt comes
//! first, a spinner is granted the mutex in advance, in the same operation; an IPI in that time (a
//! microsecond or less) finds it holding, not spinning.
//! *Example.* Two senders meet on one pipe: the second spins until the first one's `free_at`, plus
//! three line transfers.

use crate::frame::{Frame, Rest};
use crate::program::ChannelId;
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use crate::variation::Knockout;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::HANDOVER;
use vruntime_sched::task::TaskState;

impl Sim {
    /// From the release of a mutex by `from` until the spinner `to` has it.
    fn handover(&self, from: Cpu, to: Cpu) -> Ns {
        Ns(HANDOVER * self.transfer(from, to).0)
    }

    /// The mutex of the pipe is taken: spins if its owner runs, else sleeps.
    #[inline(never)]
    pub(crate) fn pipe_contended(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        if self.without.has(Knockout::PipeMutex) {
            self.pipe_granted(c, p, ch, at);
            return;
        }
        let m = &self.pipe(ch).mutex;
        let (owner, last, free_at, alone) = (m.owner, m.last_cpu, m.free_at, m.spin_head.is_none());
        if self.sh.rqs[c.ix()].need_resched {
            self.give_up_spinning(c, p, at);
            return;
        }
        if self.sh.tasks[owner.ix()].on_cpu_until < Ns::NEVER {
            self.mutex_block(c, p, ch, at);
            return;
        }
        // Not while the owner will look at the pipe again after its release: it must not see what
        // this operation does to it.
        let owner_is_through = self.tasks[owner.ix()].step == Step::Begin;
        if alone && owner_is_through && free_at <= self.cpus[last.ix()].interrupt_at() {
            let granted = at.max(free_at + self.handover(last, c));
            if granted < self.cpus[c.ix()].interrupt_at() {
                self.waited(c, Func::MutexLock, Resource::PipeMutex, granted - at);
                self.pipe_granted(c, p, ch, granted);
                return;
            }
        }
        self.spin_join(c, p, ch, at);
    }

    /// `c` joins the queue of spinners.
    fn spin_join(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        self.tasks[p.ix()].step = Step::MutexSpin;
        self.cpus[c.ix()].spin_next = Cpu::NONE;
        let m = &mut self.pipe(ch).mutex;
        let first = m.spin_head.is_none();
        let tail = m.spin_tail;
        m.spin_tail = c;
        let (free_at, last) = (m.free_at, m.last_cpu);
        if first {
            m.spin_head = c;
            let granted = if free_at >= Ns::NEVER {
                None
            } else {
                Some((free_at + self.handover(last, c)).max(at))
            };
            self.plan_spin(c, ch, at, granted);
        } else {
            self.cpus[tail.ix()].spin_next = c;
            self.plan_spin(c, ch, at, None);
        }
    }

    /// A spinner looks again: it has the mutex, or must give up, or goes on spinning.
    pub(crate) fn mutex_spin(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let now = self.now;
        let m = &self.pipe(ch).mutex;
        let (free_at, last, head) = (m.free_at, m.last_cpu, m.spin_head);
        let mine = head == c && free_at <= now;
        if mine {
            self.end_spin(c);
            self.spin_leave(c, ch);
            self.pipe_granted(c, p, ch, now);
        } else if self.sh.rqs[c.ix()].need_resched {
            self.end_spin(c);
            self.spin_leave(c, ch);
            self.give_up_spinning(c, p, now);
        } else {
            let at = if head == c && free_at < Ns::NEVER {
                free_at + self.handover(last, c)
            } else {
                Ns::NEVER
            };
            self.cpus[c.ix()].op_end = at;
        }
    }

    /// Told to reschedule, `p` makes way as a runnable task.
    fn give_up_spinning(&mut self, c: Cpu, p: TaskId, at: Ns) {
        self.tasks[p.ix()].step = Step::MutexSlow;
        self.plan(c, at, Frame::Schedule);
    }

    /// Back on a CPU after [`Sim::give_up_spinning`]: takes the mutex if it is free, else sleeps.
    pub(crate) fn mutex_slow(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let now = self.now;
        let m = &self.pipe(ch).mutex;
        if m.free_at <= now && m.spin_head.is_none() {
            self.pipe_lock(c, p, now);
        } else {
            self.mutex_block(c, p, ch, now);
        }
    }

    /// `c` spins for the mutex of `ch` from `at` on, and looks again at `granted`.
    fn plan_spin(&mut self, c: Cpu, ch: ChannelId, at: Ns, granted: Option<Ns>) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.frames[0] = Frame::Task;
        cpu.op_end = granted.unwrap_or(Ns::NEVER);
        cpu.spin = ch;
        cpu.spin_since = at;
    }

    /// The spinner `c` shall look again at `at`.
    fn grant_spin(&mut self, c: Cpu, at: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        let at = at.max(cpu.spin_since);
        if cpu.level == 0 {
            cpu.op_end = at;
            self.arm(c);
        } else {
            cpu.granted = at;
        }
    }

    /// Spinning is over: books it.
    fn end_spin(&mut self, c: Cpu) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.spin = ChannelId::NONE;
        cpu.granted = Ns::NEVER;
        let d = self.now.saturating_sub(cpu.spin_since);
        self.sh.ledger.book(c, Func::MutexLock, Resource::PipeMutex, d);
    }

    /// `c` leaves the queue of spinners.
    fn spin_leave(&mut self, c: Cpu, ch: ChannelId) {
        let next = self.cpus[c.ix()].spin_next;
        self.cpus[c.ix()].spin_next = Cpu::NONE;
        let m = &mut self.pipe(ch).mutex;
        if m.spin_head == c {
            m.spin_head = next;
            if next.is_none() {
                m.spin_tail = Cpu::NONE;
            }
            let free_at = m.free_at;
            if next.is_some() && free_at < Ns::NEVER {
                let at = free_at.max(self.now) + self.handover(c, next);
                self.grant_spin(next, at);
            }
            return;
        }
        let mut at = m.spin_head;
        while self.cpus[at.ix()].spin_next != c {
            at = self.cpus[at.ix()].spin_next;
        }
        self.cpus[at.ix()].spin_next = next;
        if next.is_none() {
            self.pipe(ch).mutex.spin_tail = at;
        }
    }

    /// `p` sleeps until the mutex is released.
    fn mutex_block(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        let at = at + self.work(c, Func::MutexLock, self.machine.costs.mutex_sleep);
        let (owner, free_at) = (self.pipe(ch).mutex.owner, self.pipe(ch).mutex.free_at);
        if free_at <= self.now {
            // Released while we made up our mind.
            self.tasks[p.ix()].step = Step::MutexRetry;
            self.plan(c, at, Frame::Task);
            return;
        }
        let tasks = &mut self.tasks;
        if let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] {
            pipe.mutex.sleepers.add(tasks, p, true);
        }
        self.tasks[p.ix()].waits_for = WaitsFor::Mutex(ch);
        self.block(c, p, at, Step::MutexRetry, TaskState::Uninterruptible);
        self.cut_at_unlock(owner, ch, free_at);
    }

    /// The owner's operation goes on beyond the release of the mutex; now someone sleeps for it,
    /// so the operation is cut where the owner will have to wake the sleeper.
    fn cut_at_unlock(&mut self, owner: TaskId, ch: ChannelId, free_at: Ns) {
        let o = self.sh.tasks[owner.ix()].cpu;
        let holds = self.curr(o) == owner && self.holds_mutex(o, ch);
        let cpu = &mut self.cpus[o.ix()];
        let goes_on = match cpu.frames[0] {
            Frame::Task => cpu.op_end > free_at,
            // A reschedule is due where user mode begins.
            Frame::Schedule => true,
            _ => false,
        };
        if holds && goes_on && cpu.level == 0 && cpu.mutex == ch && free_at >= self.now {
            cpu.rest = Rest { takes: cpu.op_end - free_at, then: cpu.frames[0], ..Rest::NONE };
            if cpu.user_to > cpu.user_from {
                let user = (cpu.user_from - free_at, cpu.user_to - free_at);
                (cpu.rest.user_from, cpu.rest.user_to) = user;
            }
            cpu.no_user();
            cpu.op_end = free_at;
            cpu.frames[0] = Frame::MutexWake;
            cpu.mutex_wake = ch;
            self.arm(o);
        }
    }

    /// The mutex is released now: wakes the first sleeper, then the cut operation goes on.
    pub(crate) fn mutex_wake(&mut self, c: Cpu) {
        let ch = self.cpus[c.ix()].mutex_wake;
        self.wake_mutex_sleeper(c, ch);
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.plan_wakes(c, self.now, Frame::Rest);
    }

    pub(crate) fn wake_mutex_sleeper(&mut self, c: Cpu, ch: ChannelId) {
        let tasks = &mut self.tasks;
        if let Channel::Pipe(pipe) = &mut self.channels[ch.ix()]
            && let Some(w) = pipe.mutex.sleepers.pop(tasks)
        {
            self.cpus[c.ix()].wakes.push_back((w, false));
        }
    }

    /// The mutex that the current operation of `c` holds will be free at `free_at`.
    #[inline]
    pub(crate) fn mutex_free_at(&mut self, c: Cpu, ch: ChannelId, free_at: Ns) {
        let m = &mut self.pipe(ch).mutex;
        m.free_at = free_at;
        let head = m.spin_head;
        if head.is_some() {
            let at = free_at.max(self.now) + self.handover(c, head);
            self.grant_spin(head, at);
        }
    }

    /// The operation of `c` that took the mutex of `ch` has not yet come to its release.
    pub(crate) fn holds_mutex(&mut self, c: Cpu, ch: ChannelId) -> bool {
        let (p, now) = (self.curr(c), self.now);
        let m = &self.pipe(ch).mutex;
        m.owner == p && m.last_cpu == c && m.free_at > now && m.free_at < Ns::NEVER
    }

    /// An interrupt suspends an operation that holds a mutex: nobody knows when it is released.
    pub(crate) fn suspend_mutex(&mut self, c: Cpu) {
        let ch = self.cpus[c.ix()].mutex;
        if !self.holds_mutex(c, ch) {
            self.cpus[c.ix()].mutex = ChannelId::NONE;
            return;
        }
        let now = self.now;
        let m = &mut self.pipe(ch).mutex;
        let left = m.free_at - now;
        m.free_at = Ns::NEVER;
        let head = m.spin_head;
        self.cpus[c.ix()].mutex_left = left;
        if head.is_some() {
            self.grant_spin(head, Ns::NEVER);
        }
    }

    /// The interrupted operation that holds a mutex goes on at `at`.
    pub(crate) fn resume_mutex(&mut self, c: Cpu, at: Ns) {
        let ch = self.cpus[c.ix()].mutex;
        let free_at = at + self.cpus[c.ix()].mutex_left;
        self.mutex_free_at(c, ch, free_at);
        if !self.pipe(ch).mutex.sleepers.is_empty() {
            // Someone went to sleep for it in the meantime.
            self.cut_at_unlock(self.curr(c), ch, free_at);
        }
    }

    /// A spinner gets the mutex at `at`.
    fn pipe_granted(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        debug_assert_eq!(p, self.curr(c));
        let (mut hot, pipe) = self.split_pipe(c, ch);
        hot.pipe_locked(pipe, ch, at);
        let (next, free_at) = (pipe.mutex.spin_head, pipe.mutex.free_at);
        if next.is_some() {
            let at = free_at + self.handover(c, next);
            self.grant_spin(next, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Op;
    use crate::sample::{PIPE, sim};

    /// CPU 0 runs a writer that holds the pipe's mutex for another 500 ns, CPU 1 one that wants it.
    fn contended() -> (Sim, TaskId) {
        let mut s = sim("v6.1");
        let n = s.tasks.len() as u32;
        let (owner, p) = (TaskId(n - 2), TaskId(n - 1));
        for (c, p) in [(Cpu(0), owner), (Cpu(1), p)] {
            s.sh.rqs[c.ix()].curr = p;
            s.sh.tasks[p.ix()].cpu = c;
            s.sh.tasks[p.ix()].state = TaskState::Running;
            s.sh.tasks[p.ix()].on_cpu_until = Ns::NEVER;
            s.tasks[p.ix()].op = Op::Write { to: PIPE, bytes: 100 };
            s.tasks[p.ix()].step = Step::Begin;
            s.cpus[c.ix()].frames[0] = Frame::Task;
            s.cpus[c.ix()].op_end = Ns::NEVER;
        }
        let free_at = s.now + Ns(500);
        let m = &mut s.pipe(PIPE).mutex;
        (m.owner, m.last_cpu, m.free_at) = (owner, Cpu(0), free_at);
        // The owner will look at the pipe once more: nothing is granted in advance.
        s.tasks[owner.ix()].step = Step::WriteUnlocked;
        (s, p)
    }

    #[test]
    fn a_spinner_gets_it_three_transfers_after_its_release() {
        let (mut s, p) = contended();
        let at = s.now;
        s.pipe_contended(Cpu(1), p, PIPE, at);
        assert_eq!(s.tasks[p.ix()].step, Step::MutexSpin);
        let transfers = HANDOVER * s.transfer(Cpu(0), Cpu(1)).0;
        assert_eq!(s.cpus[1].op_end, at + Ns(500 + transfers));
    }

    /// It does not sleep for the mutex: who makes way while it spins stays runnable.
    #[test]
    fn a_spinner_that_must_reschedule_stays_runnable() {
        let (mut s, p) = contended();
        let at = s.now;
        s.pipe_contended(Cpu(1), p, PIPE, at);
        s.sh.rqs[1].need_resched = true;
        s.mutex_spin(Cpu(1), p);
        assert_eq!(s.cpus[1].frames[0], Frame::Schedule);
        assert_eq!(s.sh.tasks[p.ix()].state, TaskState::Running);
        let m = &s.pipe(PIPE).mutex;
        assert!(m.spin_head.is_none() && m.sleepers.is_empty());

        // Back on its CPU it spins no more: it sleeps if the mutex is still taken.
        s.sh.rqs[1].need_resched = false;
        s.mutex_slow(Cpu(1), p);
        assert_eq!(s.sh.tasks[p.ix()].state, TaskState::Uninterruptible);
        assert_eq!(s.pipe(PIPE).mutex.sleepers.head, p);
    }

    #[test]
    fn a_free_mutex_is_taken_after_rescheduling() {
        let (mut s, p) = contended();
        s.sh.rqs[1].need_resched = true;
        s.pipe_contended(Cpu(1), p, PIPE, s.now);
        assert_eq!(s.tasks[p.ix()].step, Step::MutexSlow);
        s.now += Ns(600);
        s.mutex_slow(Cpu(1), p);
        assert_eq!(s.pipe(PIPE).mutex.owner, p);
    }
}
