//! Interrupts: ticks, timers, inter-processor interrupts, and what happens on the way out.
//!
//! *What.* An interrupt suspends the current level, does its work, and on return runs pending
//! softirqs and, if it came from user mode, reschedules.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `scheduler_tick`, kernel/softirq.c
//! `irq_exit`, kernel/smp.c.
//! *Equations.* The interrupted operation ends later by exactly the time the interrupt took.
//! *Departures.* D1: ticks of all CPUs fall on the same grid with a small random offset each (the
//! kernel without skew_tick), exactly a tick apart, and interrupts count as the task's time. So a
//! slice of a whole number of ticks (3 ms at 1,000 Hz) ends at the last of them if the task has
//! nice 0, and for any other weight, whose rounding loses a nanosecond, one later. Real ticks come
//! early or late, and with CONFIG_IRQ_TIME_ACCOUNTING take their own time off: there it ends one
//! later. D2: other device interrupts are a random extra at every eighth tick. D3: softirqs run
//! again as long as interrupts raise them; there is no ksoftirqd.
//! *Example.* A task computes in user mode, a tick finds its slice used up: tick, irq exit,
//! `schedule()`.

use crate::frame::{Frame, Ipi};
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::task::{Step, WaitsFor};
use vruntime_base::{Cpu, Func, Ns, Resource, Stream, TaskId};
use vruntime_sched::release::NohzKick;

impl Sim {
    /// An interrupt is due on `c` now.
    #[inline(never)]
    pub(crate) fn interrupt(&mut self, c: Cpu) {
        let now = self.now;
        let stopped = self.cpus[c.ix()].is_stopped();
        let mut at = now;
        if stopped {
            self.set_busy(c, true);
            at += self.wake_from_stop(c, now);
        }
        let cpu = &mut self.cpus[c.ix()];
        let level = cpu.level as usize;
        let newidle = level == 0 && matches!(cpu.frames[0], Frame::Balance);
        debug_assert!(!newidle, "newidle balancing on {c} is interrupted");
        let waits = stopped || cpu.op_end >= Ns::NEVER;
        cpu.saved[level] = if waits { Ns::NEVER } else { cpu.op_end - now };
        cpu.suspended_at[level] = now;
        if level == 0 && cpu.spin.is_some() {
            cpu.granted = cpu.op_end;
        }
        if cpu.mutex.is_some() && level == 0 {
            self.suspend_mutex(c);
        }
        if !stopped && level == 0 {
            self.settle(c, now);
        }
        let cpu = &mut self.cpus[c.ix()];
        cpu.level = 2;
        cpu.irqs_off();
        cpu.op_end = at;
        let tick = cpu.tick_at <= now;
        let timer = cpu.timer_at <= now || tick && cpu.next_timer_may_expire(now);
        let ipi = cpu.ipi_at <= now;
        self.sh.rqs[c.ix()].in_interrupt = true;
        if timer {
            at = self.timer_interrupt(c, at);
        }
        if ipi {
            let cpu = &mut self.cpus[c.ix()];
            let [call, resched, kick] =
                [Ipi::Call, Ipi::Resched, Ipi::NohzKick].map(|ipi| cpu.take_ipi(ipi, now));
            let entries = u32::from(call) + u32::from(resched) + u32::from(kick);
            at += self.work(c, Func::Ipi, entries.saturating_mul(self.machine.costs.ipi_entry));
            if kick {
                self.cpus[c.ix()].nohz_kick = true;
                self.cpus[c.ix()].softirq = true;
            }
            if call && !timer {
                self.plan(c, at, Frame::Flush);
                return;
            }
            if call {
                // The timer's wakeups come first; the list is flushed after them.
                self.plan_wakes(c, at, Frame::Flush);
                return;
            }
        }
        if timer {
            self.plan_wakes(c, at, Frame::IrqExit);
            return;
        }
        if tick {
            at += self.work(c, Func::Tick, self.machine.costs.timer_irq);
            self.tick(c, at);
            return;
        }
        self.irq_exit(c, at);
    }

    /// Expired sleepers of this CPU are to be woken.
    fn timer_interrupt(&mut self, c: Cpu, at: Ns) -> Ns {
        let now = self.now;
        let mut at = at + self.work(c, Func::Timer, self.machine.costs.timer_irq);
        let cpu = &mut self.cpus[c.ix()];
        cpu.in_timer_irq = true;
        let mut scheduler = false;
        while cpu.next_timer_may_expire(now) {
            let Some(std::cmp::Reverse((_, p, _))) = cpu.timers.pop() else { break };
            if p == u32::from(c.0) {
                scheduler = true;
                continue;
            }
            let waits_for = self.tasks[p as usize].waits_for;
            if matches!(waits_for, WaitsFor::Timer | WaitsFor::GracePeriod) {
                cpu.wakes.push_back((TaskId(p), false));
            }
        }
        cpu.timer_at = cpu.timers.peek().map_or(Ns::NEVER, |r| r.0.0);
        cpu.update_irq();
        if scheduler {
            self.update_rq_clock(c, at);
            let ((), cost) = self.hook(c, at, |s, cx| s.timer(cx, c));
            at = self.carry_out_resched(c, at + cost);
        }
        at
    }

    /// The scheduler has started timers: their entries have the id of the CPU's idle task, which
    /// never sleeps.
    #[cold]
    pub(crate) fn start_timers(&mut self) {
        while let Some((c, at)) = self.sh.timers.pop() {
            self.cpus[c.ix()].start_timer(at, u32::from(c.0), 0);
            self.arm(c);
        }
    }

    /// The tick: what the interrupt does first, then the run queue lock.
    fn tick(&mut self, c: Cpu, at: Ns) {
        let tick_ns = self.sh.release.tick_ns();
        let cpu = &mut self.cpus[c.ix()];
        cpu.tick_at += Ns(tick_ns);
        cpu.update_irq();
        self.stats.count.ticks += 1;
        let mut at = at + self.work(c, Func::Tick, self.machine.costs.tick_base);
        let n = self.now.0 / tick_ns;
        if self.sh.noise.below(Stream::Interrupts, u64::from(c.0), n, 8) == 0 {
            at += self.work(c, Func::Interrupt, self.machine.costs.interrupt);
        }
        self.lock_rq(c, c, at, Under::Tick);
    }

    pub(crate) fn tick_with_lock(&mut self, c: Cpu, at: Ns) {
        self.update_rq_clock(c, at);
        let (work, cost) = self.hook(c, at, |s, cx| s.task_tick(cx, c));
        let mut at = self.unlock_rq(c, c, at + cost);
        if work.softirq {
            self.cpus[c.ix()].softirq = true;
        }
        if let Some(ilb) = work.kick_ilb {
            at = self.kick(c, ilb, at);
        }
        self.irq_exit(c, at);
    }

    /// `kick_ilb`: `ilb` shall balance for the tickless CPUs. Returns when `c` has done its part.
    fn kick(&mut self, c: Cpu, ilb: Cpu, at: Ns) -> Ns {
        let polls = self.polls(ilb);
        if polls && self.sh.release.nohz_kick != NohzKick::Interrupt {
            self.cpus[ilb.ix()].kicked = true;
            return self.notify(c, ilb, at, Ipi::NohzKick);
        }
        self.interrupt_cpu(c, ilb, at, Ipi::NohzKick)
    }

    /// The interrupt returns at `at` to whatever it interrupted.
    pub(crate) fn irq_exit(&mut self, c: Cpu, at: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        debug_assert!(cpu.level == 2);
        if std::mem::take(&mut cpu.in_timer_irq) && cpu.tick_at <= at {
            return self.tick(c, at);
        }
        let below = usize::from(cpu.in_softirq);
        if below == 0 && cpu.softirq {
            cpu.level = 1;
            cpu.irqs_on(at);
            cpu.in_softirq = true;
            self.begin_softirq(c, at);
            return;
        }
        self.sh.rqs[c.ix()].in_interrupt = below == 1;
        self.return_to(c, below, at);
    }

    /// The idle loop of `c` runs softirqs at `at`, then calls `schedule()`.
    pub(crate) fn softirq_in_idle(&mut self, c: Cpu, at: Ns) {
        self.sh.rqs[c.ix()].in_interrupt = true;
        let cpu = &mut self.cpus[c.ix()];
        debug_assert!(cpu.level == 0 && cpu.mutex.is_none() && cpu.spin.is_none());
        cpu.frames[0] = Frame::Schedule;
        (cpu.saved[0], cpu.suspended_at[0]) = (Ns::ZERO, at);
        cpu.level = 1;
        cpu.in_softirq = true;
        cpu.irqs_on(at);
        self.begin_softirq(c, at);
    }

    /// Softirqs are done: what an interrupt has raised meanwhile comes next, else back to the task
    /// or the idle loop.
    pub(crate) fn softirq_exit(&mut self, c: Cpu, at: Ns) {
        if self.cpus[c.ix()].softirq {
            self.begin_softirq(c, at);
            return;
        }
        self.sh.rqs[c.ix()].in_interrupt = false;
        self.cpus[c.ix()].in_softirq = false;
        self.return_to(c, 0, at);
    }

    /// Level `level` goes on at `at`.
    fn return_to(&mut self, c: Cpu, level: usize, at: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.level = level as u8;
        cpu.irqs_on(at);
        let left = cpu.saved[level];
        if level == 0 {
            if cpu.is_stopped() {
                self.after_irq_in_idle(c, at);
                return;
            }
            if cpu.spin.is_some() {
                // Spinning for a mutex: look again when it is granted, or at once to give up.
                let granted = cpu.granted;
                // Work that was planned before the wait began is still to be done.
                let before = cpu.spin_since.saturating_sub(cpu.suspended_at[0]);
                cpu.spin_since = at + before;
                let at = cpu.spin_since;
                cpu.op_end = if self.sh.rqs[c.ix()].need_resched { at } else { granted.max(at) };
                if granted >= Ns::NEVER && !self.sh.rqs[c.ix()].need_resched {
                    cpu.op_end = Ns::NEVER;
                }
                return;
            }
        }
        debug_assert!(left < Ns::NEVER, "an interrupted operation without an end");
        let end = at + left;
        cpu.op_end = end;
        if level != 0 {
            return;
        }
        // Everything of the interrupted operation moves by the time the interrupt took.
        let shift = at - self.cpus[c.ix()].suspended_at[0];
        let cpu = &mut self.cpus[c.ix()];
        if cpu.user_to > cpu.user_from {
            cpu.user_from += shift;
            cpu.user_to += shift;
        }
        if cpu.mutex.is_some() {
            self.resume_mutex(c, at);
        }
        let cpu = &self.cpus[c.ix()];
        if self.sh.rqs[c.ix()].need_resched
            && matches!(cpu.frames[0], Frame::Task)
            && cpu.user_to > cpu.user_from
            && cpu.user_to > at
        {
            let cut = cpu.user_from.max(at);
            self.cut(c, cut);
        }
    }

    /// Puts the task to sleep until `until`, or up to `slack` ns longer.
    pub(crate) fn sleep_until(&mut self, c: Cpu, p: TaskId, until: Ns, slack: u32) {
        let until = until + Ns(u64::from(slack));
        self.tasks[p.ix()].waits_for = WaitsFor::Timer;
        self.tasks[p.ix()].step = Step::Woken;
        self.cpus[c.ix()].start_timer(until, p.0, slack);
    }

    /// Time that a spinner or a stopped CPU has spent until `t` is booked.
    pub(crate) fn settle(&mut self, c: Cpu, t: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        if cpu.is_stopped() {
            self.book_idle(c, t);
        } else if cpu.waits_for_lock() {
            let d = t.saturating_sub(cpu.lock_wait_since);
            cpu.lock_wait_since = t.max(cpu.lock_wait_since);
            let of_queue = matches!(cpu.frames[0], Frame::QueueLocked) && cpu.level == 0;
            let (func, resource) = match of_queue {
                true => (Func::WaitQueue, Resource::WaitQueueLock),
                false => (Func::RqLock, Resource::RqLock),
            };
            self.sh.ledger.book(c, func, resource, d);
        } else if cpu.level == 0 && cpu.spin.is_some() {
            let d = t.saturating_sub(cpu.spin_since);
            cpu.spin_since = t.max(cpu.spin_since);
            self.sh.ledger.book(c, Func::MutexLock, Resource::PipeMutex, d);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;

    /// CPU 0 kicks CPU 1, which is idle: whether that took an interrupt, and what CPU 1 does next
    /// when it has seen it.
    fn kick(kernel: &str, polling: bool) -> (u64, u8, Frame) {
        let mut s = sim(kernel);
        s.cpus[1].polling = polling;
        s.kick(Cpu(0), Cpu(1), s.now);
        let ipis = s.stats.count.ipis;
        if ipis > 0 {
            s.now = s.cpus[1].ipi_at;
            s.interrupt(Cpu(1));
        } else {
            while matches!(s.cpus[1].frames[0], Frame::IdleExit | Frame::Flush) {
                s.now = s.cpus[1].op_end;
                s.act(Cpu(1));
            }
        }
        let cpu = &s.cpus[1];
        (ipis, cpu.level, cpu.frames[0])
    }

    /// A reschedule that arrives first is served without the call that is still on its way; each
    /// has an entry of its own.
    #[test]
    fn interrupts_arrive_one_by_one() {
        let mut s = sim("v6.1");
        s.cpus[1].polling = false;
        s.cpus[1].ipi_arrives(Ipi::Resched, Ns(2_000_000));
        s.cpus[1].ipi_arrives(Ipi::Call, Ns(2_000_300));
        s.now = Ns(2_000_000);
        s.interrupt(Cpu(1));
        let entry = || s.sh.ledger.sum(Func::Ipi, Resource::None).0;
        assert_eq!(entry(), u64::from(s.machine.costs.ipi_entry));
        assert_eq!(s.cpus[1].ipi_at, Ns(2_000_300));
    }

    /// A sleeper's timer and the tick are due at once: one interrupt, and one entry.
    #[test]
    fn a_tick_shares_the_timers_interrupt() {
        let mut s = sim("v6.1");
        s.cpus[1].timer_at = Ns(2_000_000);
        s.cpus[1].tick_at = Ns(2_000_000);
        s.cpus[1].update_irq();
        s.now = Ns(2_000_000);
        s.interrupt(Cpu(1));
        for _ in 0..2 {
            s.now = s.cpus[1].op_end;
            s.act(Cpu(1));
        }
        assert_eq!(s.stats.count.ticks, 1);
        let entry = s.sh.ledger.sum(Func::Timer, Resource::None).0;
        assert_eq!(entry, u64::from(s.machine.costs.timer_irq));
        let tick = s.sh.ledger.sum(Func::Tick, Resource::None).0;
        assert!(tick >= u64::from(s.machine.costs.tick_base), "{tick}");
        assert!(tick < u64::from(s.machine.costs.tick_base + s.machine.costs.timer_irq), "{tick}");
    }

    /// A CPU that balances for others may be kicked again: its interrupt raises the softirq anew.
    /// Were that forgotten, every later kick would find one pending, and none would come through.
    #[test]
    fn a_kick_during_a_softirq_is_heard_after_it() {
        let mut s = sim("v6.1");
        s.cpus[1].polling = false;
        for raised in [false, true] {
            s.kick(Cpu(0), Cpu(1), s.now);
            if raised {
                // As soon as the softirq lets interrupts in.
                s.cpus[1].ipi_at = s.cpus[1].irqs_on_at;
            }
            s.now = s.cpus[1].ipi_at;
            s.interrupt(Cpu(1));
            let cpu = &s.cpus[1];
            assert_eq!((cpu.level, cpu.in_softirq, cpu.softirq), (1, true, raised));
        }
        s.softirq_exit(Cpu(1), s.now);
        let cpu = &s.cpus[1];
        assert_eq!((cpu.level, cpu.in_softirq, cpu.softirq), (1, true, false));
        s.softirq_exit(Cpu(1), s.now);
        assert_eq!(s.cpus[1].level, 0);
    }

    /// The softirq runs on top of the idle loop either way. Who was told by a store reschedules
    /// after it, from idle to idle if there is nothing; who was interrupted stays in idle.
    #[test]
    fn a_polling_cpu_is_kicked_without_an_interrupt_from_5_8_on() {
        for kernel in ["v5.7", "v6.5", "v6.12"] {
            assert_eq!(kick(kernel, false), (1, 1, Frame::Idle), "{kernel}");
        }
        assert_eq!(kick("v5.7", true), (1, 1, Frame::Idle));
        for kernel in ["v6.5", "v6.12"] {
            assert_eq!(kick(kernel, true), (0, 1, Frame::Schedule), "{kernel}");
        }
    }
}
