//! Dispatch: what acts on a CPU when its operation has ended.

use crate::frame::{Frame, Ipi, Rest};
use crate::sim::Sim;
use vruntime_base::{Cause, Cpu, Func, Ns, Resource};

impl Sim {
    /// The operation of `c` ends now: lets its frame act.
    #[inline(never)]
    pub(crate) fn act(&mut self, c: Cpu) {
        let cpu = &self.cpus[c.ix()];
        match cpu.frames[cpu.level as usize] {
            Frame::Task => self.task_step(c),
            Frame::AskLock => self.ask_lock(c),
            Frame::Locked => self.locked(c),
            Frame::QueueLocked => self.queue_locked(c),
            Frame::EnterIdle => self.enter_idle(c),
            Frame::Idle => self.polled_long_enough(c),
            Frame::IdleExit => self.idle_exit(c),
            Frame::Wake => self.wake_begin(c),
            Frame::WakeLook => self.wake_look(c),
            Frame::WakeQueue => self.wake_queue(c),
            Frame::Flush => self.flush(c),
            Frame::Schedule => self.schedule(c),
            Frame::ScheduleAgain => self.schedule_again(c),
            Frame::Balance => self.balance_do(c),
            Frame::IrqExit => self.irq_exit(c, self.now),
            Frame::MutexWake => self.mutex_wake(c),
            Frame::Rest => self.go_on(c),
        }
    }

    /// The operation of `c` that was cut to wake a sleeper of a mutex goes on.
    fn go_on(&mut self, c: Cpu) {
        let now = self.now;
        let rest = std::mem::replace(&mut self.cpus[c.ix()].rest, Rest::NONE);
        self.plan(c, now + rest.takes, rest.then);
        if rest.user_to > rest.user_from {
            let cpu = &mut self.cpus[c.ix()];
            (cpu.user_from, cpu.user_to) = (now + rest.user_from, now + rest.user_to);
            if self.sh.rqs[c.ix()].need_resched {
                self.preempt_at_exit(c);
            }
        }
    }

    /// Carries out the reschedules that a hook called by `c` asked for, as of `at`; returns when
    /// `c` has sent the interrupts this takes.
    pub(crate) fn carry_out_resched(&mut self, c: Cpu, mut at: Ns) -> Ns {
        while let Some((target, why)) = self.resched.pop() {
            at = self.resched_curr(c, target, why, at);
        }
        at
    }

    /// `resched_curr(target)`, executed by `c`: sets TIF_NEED_RESCHED and sees to it that the
    /// target notices.
    fn resched_curr(&mut self, c: Cpu, target: Cpu, why: &'static Cause, at: Ns) -> Ns {
        let rq = &mut self.sh.rqs[target.ix()];
        if rq.need_resched {
            return at;
        }
        rq.need_resched = true;
        self.cpus[target.ix()].switch_cause = Some(why);
        if target == c {
            return at;
        }
        self.notify(c, target, at, Ipi::Resched)
    }

    /// `target` shall look at its flags (and its wake list): by a store if it polls in idle, else
    /// by an interrupt. Returns when `c` has done its part.
    pub(crate) fn notify(&mut self, c: Cpu, target: Cpu, at: Ns, ipi: Ipi) -> Ns {
        if self.polls(target) {
            self.sh.rqs[target.ix()].need_resched = true;
            if self.cpus[target.ix()].is_stopped() {
                let seen = at + self.transfer(c, target);
                self.leave_idle(target, seen);
            }
            return at;
        }
        self.interrupt_cpu(c, target, at, ipi)
    }

    /// TIF_POLLING_NRFLAG: it looks at its flags in idle. Not yet on the way to idle, in the
    /// switch; still when it leaves, until the tick runs again.
    pub(crate) fn polls(&self, c: Cpu) -> bool {
        let cpu = &self.cpus[c.ix()];
        match cpu.frames[0] {
            Frame::Idle => cpu.polling,
            Frame::IdleExit | Frame::Flush => true,
            _ => false,
        }
    }

    /// `c` sends `target` an interrupt at `at`. Returns when it has done so.
    pub(crate) fn interrupt_cpu(&mut self, c: Cpu, target: Cpu, at: Ns, ipi: Ipi) -> Ns {
        self.stats.count.ipis += 1;
        let sent = at + self.work(c, vruntime_base::Func::Ipi, self.machine.costs.ipi_send);
        let arrives = sent + self.machine.ipi(c, target);
        self.cpus[target.ix()].ipi_arrives(ipi, arrives);
        if ipi == Ipi::Resched {
            self.preempt_at_exit(target);
        }
        self.arm(target);
        sent
    }

    /// TIF_NEED_RESCHED was set for `c`: if its current operation is still on its way to user
    /// mode, it will notice there. (In user mode only an interrupt makes it notice.)
    pub(crate) fn preempt_at_exit(&mut self, c: Cpu) {
        let cpu = &self.cpus[c.ix()];
        if cpu.level != 0 || !matches!(cpu.frames[0], Frame::Task) {
            return;
        }
        if cpu.spin.is_some() {
            // A spinner gives up when it should reschedule.
            let cpu = &mut self.cpus[c.ix()];
            cpu.op_end = self.now.max(cpu.spin_since);
            self.arm(c);
            return;
        }
        // Still in the kernel, or on the way out of an interrupt: it looks when it returns.
        let edge = cpu.user_from.max(cpu.irqs_on_at);
        if edge > self.now && edge < cpu.user_to {
            self.cut(c, edge);
            self.arm(c);
        }
    }

    /// Ends the task's operation at `cut`, inside its user span, with a call of `schedule()`; what
    /// is left is kept with the task.
    pub(crate) fn cut(&mut self, c: Cpu, cut: Ns) {
        let p = self.curr(c);
        let cpu = &mut self.cpus[c.ix()];
        debug_assert!(cpu.level == 0 && cpu.op_end >= cut);
        let left = cpu.op_end - cut;
        let entry = cpu.op_end.saturating_sub(cpu.user_to).min(left);
        self.sh.ledger.unbook(c, Func::SyscallEntry, Resource::None, entry);
        self.sh.ledger.unbook(c, Func::User, Resource::None, left - entry);
        let slowdown = cpu.slowdown;
        let work = |wall: Ns| wall.mul_div(1024, u64::from(slowdown)).max(Ns(1).min(wall));
        let k = &mut self.tasks[p.ix()];
        (k.remaining, k.remaining_entry) = (work(left), work(entry).0 as u32);
        cpu.op_end = cut;
        cpu.frames[0] = Frame::Schedule;
        cpu.no_user();
    }
}
