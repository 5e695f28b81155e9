//! What a CPU is in the middle of.
//!
//! *What.* A CPU works on up to three levels: the current task (or the idle loop), softirqs on top
//! of it, and interrupts on top of both. Each level has one frame: what acts when the level's
//! current operation ends. An interrupted level keeps the time it still needs.
//! *Source.* The usual nesting of contexts in Linux (`in_task`, `in_softirq`, `in_hardirq`).
//! *Equations.* None.
//! *Departures.* D1: interrupts do not nest.
//! *Example.* A tick during a system call: level 0 keeps what is left of the call, level 2 runs the
//! tick, level 1 balances if the tick asked for it, then level 0 goes on.

use crate::cold::{Asids, Passed};
use crate::haltpoll::Haltpoll;
use crate::menu::Menu;
use crate::program::ChannelId;
use crate::rq_lock::Under;
use crate::wait_lock::Held;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use vruntime_base::{Cause, Cpu, Func, Ns, TaskId};
use vruntime_sched::scheduler::BalanceStep;

/// What acts when the current operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Frame {
    /// The current task goes on at its step.
    Task,
    /// The idle loop is about to stop the CPU.
    EnterIdle,
    /// The CPU is stopped.
    Idle,
    /// The CPU comes out of idle.
    IdleExit,
    /// The lock of `CpuSim::lock` is asked for.
    AskLock,
    /// That lock is granted.
    Locked,
    /// The lock of a pipe's wait queue is granted.
    QueueLocked,
    /// try_to_wake_up begins for the first of `CpuSim::wakes`.
    Wake,
    /// The waker looks again whether the wakee has left its CPU.
    WakeLook,
    /// A CPU was chosen: queue the wakee there.
    WakeQueue,
    /// The tasks on this CPU's wake list are enqueued: take the lock.
    Flush,
    /// `schedule()`: take the lock.
    Schedule,
    /// Newidle balancing is over: take the lock again.
    ScheduleAgain,
    /// Balancing goes on with `CpuSim::balance_step`.
    Balance,
    /// The interrupt returns.
    IrqExit,
    /// The mutex of a pipe, `CpuSim::mutex_wake`, is released while someone sleeps for it; then the
    /// operation that was cut goes on.
    MutexWake,
    /// The operation that was cut goes on.
    Rest,
}

/// A wakeup in progress.
#[derive(Clone, Copy, Debug)]
pub struct WakeOp {
    /// Whom.
    pub p: TaskId,
    /// Where to.
    pub target: Cpu,
    /// `wake_flags & WF_SYNC`.
    pub sync: bool,
    /// The CPU changes.
    pub migrated: bool,
    /// A new task.
    pub new: bool,
}

/// The second part of an operation, counted from where the first one ended.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// How long it takes.
    pub takes: Ns,
    /// Its user mode begins.
    pub user_from: Ns,
    /// Its user mode ends.
    pub user_to: Ns,
    /// What acts then.
    pub then: Frame,
}

impl Rest {
    /// Nothing is left.
    pub const NONE: Rest =
        Rest { takes: Ns::ZERO, user_from: Ns::ZERO, user_to: Ns::ZERO, then: Frame::Task };
}

/// An inter-processor interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipi {
    /// Wake list (call function single).
    Call,
    /// Reschedule.
    Resched,
    /// Nohz kick.
    NohzKick,
}

/// One CPU of the model. What every event touches comes first, on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct CpuSim {
    /// When the current level's operation ends.
    pub op_end: Ns,
    /// Interrupts are off until this moment; NEVER while that is not known, as in an interrupt.
    pub irqs_on_at: Ns,
    /// Earliest of the three below.
    pub irq_at: Ns,
    /// The part of the level 0 operation in which the CPU is in user mode (preemptible).
    pub user_from: Ns,
    /// See `user_from`.
    pub user_to: Ns,
    /// Time per unit of work, 1024 = full speed.
    pub slowdown: u32,
    /// The mutex held by the current operation; NONE if none.
    pub mutex: ChannelId,
    /// The pipe for whose mutex its task spins (level 0, interrupts on); NONE if none.
    pub spin: ChannelId,
    /// Next CPU that spins for the same mutex.
    pub spin_next: Cpu,
    /// By level: what acts next.
    pub frames: [Frame; 3],
    /// Current level.
    pub level: u8,
    /// Level 1 is in use (running, or interrupted by level 2).
    pub in_softirq: bool,
    /// Whom a stretched operation is booked on.
    pub func: Func,
    /// Which of `Sim::paces` it goes at.
    pub pace: u8,
    /// By interrupted level: time it still needs; NEVER if it waits.
    pub saved: [Ns; 2],
    /// By interrupted level: when it was interrupted.
    pub suspended_at: [Ns; 2],
    /// The run queue whose lock it asks for, waits for or holds, and for what, with interrupts off.
    pub lock: (Cpu, Under),
    /// Since when it waits for that lock, or for that of a wait queue.
    pub lock_wait_since: Ns,
    /// The lock of a wait queue that it holds or is to get next, and who spins for it.
    pub held: Held,
    /// Since when; in the future while work that comes first is still being done.
    pub spin_since: Ns,
    /// The address space that kernel threads here have borrowed; 0 for none.
    pub borrowed_mm: u32,
    /// A mutex was granted at this moment while the CPU served an interrupt.
    pub granted: Ns,
    /// Next tick; NEVER while stopped.
    pub tick_at: Ns,
    /// The first pending inter-processor interrupt.
    pub ipi_at: Ns,
    /// By [`Ipi`]: when it arrives.
    ipi_due: [Ns; 3],
    /// Earliest timer.
    pub timer_at: Ns,
    /// It serves the interrupt of the timer, which a tick that is due shares.
    pub in_timer_irq: bool,
    /// Sleepers by the latest time to wake them, and how much sooner that may be, in ns.
    pub timers: BinaryHeap<Reverse<(Ns, u32, u32)>>,
    /// Offset of this CPU's ticks.
    pub tick_phase: Ns,
    /// The remote wake list (`call_single_queue`): wakee, whether it migrated, waker's CPU.
    pub wake_list: Vec<(TaskId, bool, Cpu)>,
    /// Those of them that it has taken off and enqueues when it has its lock.
    pub flushing: Vec<(TaskId, bool, Cpu)>,
    /// Wakeups to do now.
    pub wakes: VecDeque<(TaskId, bool)>,
    /// The wakeup in progress.
    pub wake: WakeOp,
    /// By level: what acts after the wakeups.
    pub after_wake: [Frame; 3],
    /// Softirq balancing to be run.
    pub softirq: bool,
    /// For the tickless CPUs too.
    pub nohz_kick: bool,
    /// It was told to do so while it polled.
    pub kicked: bool,
    /// Since when the CPU is idle.
    pub idle_since: Ns,
    /// Until when its idle time is booked.
    pub idle_booked: Ns,
    /// It counts among the busy threads of its core.
    pub busy: bool,
    /// Idle state it is in.
    pub idle_state: u8,
    /// Woken from idle by a store, not by an interrupt.
    pub polling: bool,
    /// What the choice of the idle state is made by.
    pub menu: Menu,
    /// The same of the haltpoll governor.
    pub haltpoll: Haltpoll,
    /// How long the interrupted operation will still hold it.
    pub mutex_left: Ns,
    /// By level: what balancing does next.
    pub balance_step: [BalanceStep; 3],
    /// The pipe whose mutex is released next.
    pub mutex_wake: ChannelId,
    /// What is left of an operation that was cut to wake a sleeper of a mutex.
    pub rest: Rest,
    /// Why the next switch will happen.
    pub switch_cause: Option<&'static Cause>,
    /// What has passed its caches.
    pub passed: Passed,
    /// That, when it switched last.
    pub switched_stamp: u32,
    /// Address spaces whose translations are here.
    pub asids: Asids,
}

impl CpuSim {
    /// A CPU that has been idle from the start.
    pub fn new(tick_phase: Ns) -> CpuSim {
        CpuSim {
            level: 0,
            irqs_on_at: Ns::ZERO,
            frames: [Frame::Idle; 3],
            op_end: Ns::NEVER,
            saved: [Ns::ZERO; 2],
            suspended_at: [Ns::ZERO; 2],
            in_softirq: false,
            user_from: Ns::ZERO,
            user_to: Ns::ZERO,
            func: Func::User,
            lock: (Cpu::NONE, Under::Schedule),
            lock_wait_since: Ns::ZERO,
            held: Held::NONE,
            spin: ChannelId::NONE,
            spin_since: Ns::ZERO,
            borrowed_mm: 0,
            granted: Ns::NEVER,
            irq_at: Ns::NEVER,
            tick_at: Ns::NEVER,
            ipi_at: Ns::NEVER,
            ipi_due: [Ns::NEVER; 3],
            timer_at: Ns::NEVER,
            in_timer_irq: false,
            timers: BinaryHeap::new(),
            tick_phase,
            wake_list: Vec::with_capacity(16),
            flushing: Vec::with_capacity(16),
            wakes: VecDeque::with_capacity(4),
            wake: WakeOp {
                p: TaskId::NONE,
                target: Cpu::NONE,
                sync: false,
                migrated: false,
                new: false,
            },
            after_wake: [Frame::Task; 3],
            softirq: false,
            nohz_kick: false,
            kicked: false,
            idle_since: Ns::ZERO,
            idle_booked: Ns::ZERO,
            busy: false,
            idle_state: 0,
            polling: true,
            menu: Menu::default(),
            haltpoll: Haltpoll::default(),
            slowdown: 1024,
            pace: 0,
            mutex: ChannelId::NONE,
            mutex_left: Ns::ZERO,
            spin_next: Cpu::NONE,
            balance_step: [BalanceStep::Pass; 3],
            mutex_wake: ChannelId::NONE,
            rest: Rest::NONE,
            switch_cause: None,
            passed: Passed::default(),
            switched_stamp: 0,
            asids: Asids::default(),
        }
    }
    /// When the next interrupt will be served.
    #[inline(always)]
    pub fn interrupt_at(&self) -> Ns {
        self.irq_at.max(self.irqs_on_at)
    }
    /// When it acts next.
    #[inline(always)]
    pub fn acts_at(&self) -> Ns {
        self.op_end.min(self.interrupt_at())
    }
    /// Interrupts are on from `at`, unless this is one.
    #[inline(always)]
    pub fn irqs_on(&mut self, at: Ns) {
        if self.level < 2 {
            self.irqs_on_at = at;
        }
    }
    /// Interrupts are off.
    #[inline(always)]
    pub fn irqs_off(&mut self) {
        self.irqs_on_at = Ns::NEVER;
    }
    /// When it has, or would have, its first tick after `at`.
    pub fn tick_after(&self, at: Ns, tick: Ns) -> Ns {
        let phase = self.tick_phase;
        let n = at.saturating_sub(phase).0 / tick.0 + 1;
        Ns(n * tick.0) + phase
    }
    /// Recomputes the time of the next interrupt.
    #[inline]
    pub fn update_irq(&mut self) {
        self.irq_at = self.tick_at.min(self.ipi_at).min(self.timer_at);
    }
    /// An interrupt is on its way and arrives at `at`, if none of its kind comes before.
    pub fn ipi_arrives(&mut self, ipi: Ipi, at: Ns) {
        let due = &mut self.ipi_due[ipi as usize];
        *due = at.min(*due);
        if at < self.ipi_at {
            self.ipi_at = at;
            self.update_irq();
        }
    }
    /// Takes an interrupt that has arrived by `now`, if there is one of the kind.
    pub fn take_ipi(&mut self, ipi: Ipi, now: Ns) -> bool {
        let due = &mut self.ipi_due[ipi as usize];
        let arrived = *due <= now;
        if arrived {
            *due = Ns::NEVER;
            self.ipi_at = self.ipi_due.into_iter().min().unwrap_or(Ns::NEVER);
            self.update_irq();
        }
        arrived
    }
    /// A timer for `task` is to expire at `at`, or up to `slack` ns before.
    pub fn start_timer(&mut self, at: Ns, task: u32, slack: u32) {
        self.timers.push(Reverse((at, task, slack)));
        if at < self.timer_at {
            self.timer_at = at;
            self.update_irq();
        }
    }
    /// The timer that is due next expires if an interrupt comes at `now`.
    #[inline]
    pub fn next_timer_may_expire(&self, now: Ns) -> bool {
        self.timers.peek().is_some_and(|Reverse((t, _, slack))| t.0 <= now.0 + u64::from(*slack))
    }
    /// Stopped in the idle loop.
    #[inline(always)]
    pub fn is_stopped(&self) -> bool {
        self.level == 0 && matches!(self.frames[0], Frame::Idle)
    }
    /// It waits for the lock of a run queue or of a wait queue.
    #[inline(always)]
    pub fn waits_for_lock(&self) -> bool {
        matches!(self.frames[usize::from(self.level)], Frame::Locked | Frame::QueueLocked)
    }
    /// Time that is booked but lies after `now`: the rest of the operations of all levels.
    pub fn planned(&self, now: Ns) -> Ns {
        let mut sum = Ns::ZERO;
        let ends = |t: Ns| t < Ns::NEVER;
        if self.is_stopped() {
            return self.idle_booked.saturating_sub(now);
        }
        if self.waits_for_lock() {
            // All that came before the wait is done.
        } else if self.level == 0 && self.spin.is_some() {
            sum += self.spin_since.saturating_sub(now);
        } else if ends(self.op_end) {
            sum += self.op_end - now;
        }
        if self.level == 2 && self.in_softirq && ends(self.saved[1]) {
            sum += self.saved[1];
        }
        if self.level > 0 && self.spin.is_some() {
            // Work planned before the wait began.
            sum += self.spin_since.saturating_sub(self.suspended_at[0]);
        } else if self.level > 0 && ends(self.saved[0]) {
            sum += self.saved[0];
        }
        sum + self.rest.takes
    }
    /// User mode of what is planned from `now` on.
    pub fn planned_user(&self, now: Ns) -> Ns {
        let from = if self.level == 0 { now } else { self.suspended_at[0] };
        let rest = self.rest.user_to - self.rest.user_from;
        self.user_to.saturating_sub(from.max(self.user_from)) + rest
    }
    /// No user mode in the current operation.
    #[inline(always)]
    pub fn no_user(&mut self) {
        self.user_from = Ns::ZERO;
        self.user_to = Ns::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_event_touches_is_one_line() {
        assert_eq!(std::mem::offset_of!(CpuSim, saved), 64);
    }
}
