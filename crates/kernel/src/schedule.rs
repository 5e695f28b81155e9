//! `__schedule()` and the context switch.
//!
//! *What.* Takes the run queue lock, dequeues a task that blocks, picks, balances if there is
//! nothing, and switches. After a wakeup that preempts the clock is left where that wakeup set it
//! (`RQCF_REQ_SKIP`).
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `__schedule`, `context_switch`.
//! *Equations.* A switch counts as voluntary if the task blocks, as involuntary otherwise; nothing
//! is counted if the same task goes on.
//! *Departures.* D1: the lock is held until the end of the switch; the few instructions after
//! `finish_task_switch` are part of the switch. What the next task finds cold it fetches without
//! the lock, the few lines that the switch itself reads of it too. D2: signals do not exist.
//! *Example.* A reader finds its pipe empty: `Block` → `Schedule` → dequeue, pick, switch.

use crate::frame::Frame;
use crate::program::ChannelId;
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::task::Step;
use vruntime_base::{Cause, CauseKind, Cpu, Event, EventKind, Func, Ns, Resource, Stream, TaskId};

use vruntime_sched::scheduler::{BalanceKind, BalanceStep, DequeueFlags, Pick};
use vruntime_sched::task::TaskState;

/// A woken task takes over from the idle task.
pub static IDLE_WOKEN: Cause = Cause::new(CauseKind::Switch, "idle: task woken");
/// The task ended.
pub static EXITS: Cause = Cause::new(CauseKind::Switch, "exits");
/// The task gave up the CPU by sched_yield.
pub static YIELDS: Cause = Cause::new(CauseKind::Switch, "sched_yield");
/// The task set its state but was woken before it slept, and another one was picked.
pub static WOKEN_BEFORE_SLEPT: Cause = Cause::new(CauseKind::Switch, "woken before it slept");
/// Preempted without a recorded request.
pub static PREEMPTED: Cause = Cause::new(CauseKind::Switch, "preempted");

impl Sim {
    /// `schedule()` begins.
    pub(crate) fn schedule(&mut self, c: Cpu) {
        self.stats.cpus[c.ix()].sched_count += 1;
        debug_assert!(!self.forgot_sleepers(c), "nobody was woken who sleeps for the mutex");
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        let at = self.now + self.work(c, Func::Schedule, self.machine.costs.schedule_base);
        self.lock_rq(c, c, at, Under::Schedule);
    }

    pub(crate) fn schedule_with_lock(&mut self, c: Cpu, mut at: Ns) {
        let prev = self.curr(c);
        if !std::mem::take(&mut self.sh.rqs[c.ix()].skip_clock_update) {
            self.update_rq_clock(c, at);
        }
        let state = self.sh.tasks[prev.ix()].state;
        if !self.is_idle_task(prev) && state != TaskState::Running {
            let special = state == TaskState::Dead;
            let before = self.sh.loads[c.ix()].nr_running;
            let (gone, cost) = self.hook(c, at, |s, cx| {
                s.dequeue_task(cx, c, prev, DequeueFlags { sleep: true, special, save: false })
            });
            at += cost;
            self.counts_at(c, at, before);
            if gone {
                self.sh.tasks[prev.ix()].on_rq = false;
            }
            if special {
                let ((), cost) = self.hook(c, at, |s, cx| s.task_dead(cx, prev));
                at += cost;
            }
        }
        if self.is_idle_task(prev)
            && self.sh.release.idle_shortcut
            && self.sh.loads[c.ix()].nr_running == 0
        {
            self.switch_to(c, prev, at);
            return;
        }
        self.pick(c, at, true);
    }

    fn pick(&mut self, c: Cpu, at: Ns, may_balance: bool) {
        let before = self.sh.loads[c.ix()].nr_running;
        let (pick, cost) = self.hook(c, at, |s, cx| s.pick_next_task(cx, c));
        let at = at + cost;
        // Delayed dequeues may have come to their end.
        self.counts_at(c, at, before);
        if !self.sh.tasks[self.curr(c).ix()].policy.is_fair() {
            // An RT task that leaves may have made room for another CPU's.
            self.take_moved(c, at);
        }
        match pick {
            Pick::Task(next) => self.switch_to(c, next, at),
            Pick::Nothing if may_balance => {
                let (step, cost) =
                    self.hook(c, at, |s, cx| s.balance_begin(cx, c, BalanceKind::Newidle));
                match step {
                    BalanceStep::Done => self.go_idle(c, at + cost),
                    step => {
                        self.hold_rq(c, c, at);
                        self.balance_plan(c, step, at, cost);
                    }
                }
            }
            Pick::Nothing => self.go_idle(c, at),
        }
    }

    /// Newidle balancing is over.
    pub(crate) fn schedule_again(&mut self, c: Cpu) {
        self.lock_rq(c, c, self.now, Under::ScheduleAgain);
    }

    pub(crate) fn schedule_again_with_lock(&mut self, c: Cpu, at: Ns) {
        self.update_rq_clock(c, at);
        self.pick(c, at, false);
    }

    fn go_idle(&mut self, c: Cpu, at: Ns) {
        let ((), cost) = self.hook(c, at, |s, cx| s.set_idle(cx, c));
        self.stats.cpus[c.ix()].sched_goidle += 1;
        self.switch_to(c, TaskId(u32::from(c.0)), at + cost);
    }

    /// `context_switch` to `next`, and what `next` does first.
    fn switch_to(&mut self, c: Cpu, next: TaskId, mut at: Ns) {
        // `rq->curr` changes before the switch itself.
        let chosen = at;
        let prev = self.curr(c);
        let cause = self.cpus[c.ix()].switch_cause.take();
        self.sh.rqs[c.ix()].need_resched = false;
        // What hooks asked for on the way here is done by this very switch.
        self.resched.retain(|r| r.0 != c);
        let (prev_idle, next_idle) = (self.is_idle_task(prev), self.is_idle_task(next));
        if prev != next {
            self.note_switch(c, prev, next, at, cause);
            // The idle task goes on with the address space that it found.
            let prev_mm = match self.sh.tasks[prev.ix()].mm {
                0 => self.cpus[c.ix()].borrowed_mm,
                mm => mm,
            };
            let same_mm = prev_mm == self.sh.tasks[next.ix()].mm;
            let costs = &self.machine.costs;
            let cost = if same_mm || self.sh.tasks[next.ix()].mm == 0 {
                costs.switch_same_mm
            } else {
                costs.switch_other_mm
            };
            at += self.jittered(c, Func::ContextSwitch, cost);
            at += self.borrow_mm(c, prev, next);
            if !prev_idle {
                self.sh.tasks[prev.ix()].on_cpu_until = at;
                let k = &mut self.tasks[prev.ix()];
                k.last_cpu = c;
                k.passed_stamp = self.cpus[c.ix()].passed.kib();
                if self.sh.tasks[prev.ix()].state == TaskState::Running {
                    k.runnable_since = chosen;
                }
            }
            self.sh.rqs[c.ix()].curr = next;
            if let Some(u) = self.unfinished(c) {
                u.curr_until = chosen;
            }
            if !next_idle {
                self.sh.tasks[next.ix()].on_cpu_until = Ns::NEVER;
                if !self.sh.tasks[next.ix()].policy.is_fair() {
                    at = self.balance_callback(c, at);
                }
            }
        }
        self.hold_rq(c, c, at);
        let cpu = &mut self.cpus[c.ix()];
        debug_assert!(cpu.level == 0);
        cpu.irqs_on(at);
        cpu.no_user();
        at += self.return_mm(c, next);
        if prev != next && !next_idle {
            at = self.start_running(c, next, chosen, at);
        }
        if next_idle {
            self.plan(c, at, Frame::EnterIdle);
            return;
        }
        self.resume(c, next, at);
    }

    /// What is due after a switch to a task of a higher class than fair, under the lock still.
    fn balance_callback(&mut self, c: Cpu, at: Ns) -> Ns {
        let ((), cost) = self.hook(c, at, |s, cx| s.balance_callback(cx, c));
        self.take_moved(c, at);
        self.carry_out_resched(c, at + cost)
    }

    /// Books and counts that `next`, chosen at `chosen`, begins to run at `at`; returns when what
    /// it needs first is there. Its sched delay is the tracepoints': until the switch begins.
    pub(crate) fn start_running(&mut self, c: Cpu, next: TaskId, chosen: Ns, at: Ns) -> Ns {
        let k = &mut self.tasks[next.ix()];
        if k.woken_at.0 != 0 {
            self.stats.wakeup_latency.record(at.saturating_sub(k.woken_at));
            k.woken_at = Ns::ZERO;
        }
        self.stats.count.cpu_migrations += u64::from(std::mem::take(&mut k.sched_migrated));
        self.stats.sched_delay.record(chosen.saturating_sub(k.runnable_since));
        let here = k.waited_here(chosen);
        k.waited_elsewhere = 0;
        let cpu = &mut self.stats.cpus[c.ix()];
        cpu.run_delay += here.0;
        cpu.pcount += 1;
        let at = at + self.fetch_woken(c, next);
        self.warm_up(c, next, at)
    }

    /// The task goes on with what is left of its operation, from `at` on.
    fn resume(&mut self, c: Cpu, p: TaskId, at: Ns) {
        let k = &mut self.tasks[p.ix()];
        if k.remaining.0 == 0 {
            self.plan(c, at, Frame::Task);
            return;
        }
        let slowdown = u64::from(self.cpus[c.ix()].slowdown);
        let wall = |work: Ns| work.mul_div(slowdown, 1024);
        let left = wall(k.remaining);
        let entry = wall(Ns(u64::from(k.remaining_entry))).min(left);
        (k.remaining, k.remaining_entry) = (Ns::ZERO, 0);
        self.sh.ledger.book(c, Func::SyscallEntry, Resource::None, entry);
        self.sh.ledger.book(c, Func::User, Resource::None, left - entry);
        let end = at + left;
        self.plan(c, end, Frame::Task);
        let cpu = &mut self.cpus[c.ix()];
        cpu.user_from = at;
        cpu.user_to = end - entry;
        cpu.func = Func::User;
    }

    /// Work whose cost varies by up to an eighth either way, by the seed.
    pub(crate) fn jittered(&mut self, c: Cpu, func: Func, ns: u32) -> Ns {
        let n = self.stats.switches_of[c.ix()];
        let r = self.sh.noise.below(Stream::Jitter, u64::from(c.0), n, 257);
        self.work(c, func, ns - ns / 8 + (u64::from(ns / 4) * r / 256) as u32)
    }

    /// Counters and causes of a switch.
    fn note_switch(
        &mut self,
        c: Cpu,
        prev: TaskId,
        next: TaskId,
        at: Ns,
        cause: Option<&'static Cause>,
    ) {
        self.stats.switches_of[c.ix()] += 1;
        self.stats.count.context_switches += 1;
        let prev_idle = self.is_idle_task(prev);
        self.stats.departs(c, prev, at);
        let state = self.sh.tasks[prev.ix()].state;
        let stays = state == TaskState::Running;
        let step = self.tasks[prev.ix()].step;
        let why: &'static Cause = if prev_idle {
            &IDLE_WOKEN
        } else if !stays {
            self.stats.count.voluntary_switches += 1;
            match state {
                TaskState::Dead => &EXITS,
                _ => self.tasks[prev.ix()].waits_for.cause(),
            }
        } else {
            self.stats.count.involuntary_switches += 1;
            let at_exit = step == Step::NextOp || self.tasks[prev.ix()].remaining.0 != 0;
            cause.unwrap_or(if at_exit { &PREEMPTED } else { &WOKEN_BEFORE_SLEPT })
        };
        self.stats.switches.count(why);
        self.trace(Event {
            a: next.0,
            b: match state {
                TaskState::Dead => 2,
                _ => u32::from(stays && !prev_idle),
            },
            cause: Some(why),
            ..Event::new(at, c, EventKind::Switch, prev)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;

    /// On the way to idle a CPU does not poll yet: who wakes a task there interrupts it, as soon
    /// as the lock is free. When it has left idle it polls until its tick runs again.
    #[test]
    fn a_cpu_polls_from_the_end_of_its_switch_to_idle() {
        let mut s = sim("v6.1");
        let (c, p) = (Cpu(0), TaskId(s.tasks.len() as u32 - 1));
        s.sh.rqs[c.ix()].curr = p;
        s.switch_to(c, TaskId(0), s.now);
        let cpu = &s.cpus[c.ix()];
        assert_eq!(
            (cpu.frames[0], s.polls(c), cpu.irqs_on_at),
            (Frame::EnterIdle, false, cpu.op_end)
        );
        s.now = cpu.op_end;
        s.act(c);
        assert!(s.polls(c) && s.cpus[c.ix()].is_stopped());
        s.leave_idle(c, s.now);
        s.now = s.cpus[c.ix()].op_end;
        s.act(c);
        assert_eq!((s.cpus[c.ix()].frames[0], s.polls(c)), (Frame::Flush, true));
    }

    /// An idle CPU keeps the last address space: to go on in it is cheaper than in another one.
    #[test]
    fn idle_goes_on_in_the_address_space_that_it_found() {
        let switched = |kept: bool| {
            let mut s = sim("v6.1");
            let (c, p) = (Cpu(0), TaskId(s.tasks.len() as u32 - 1));
            let mm = s.sh.tasks[p.ix()].mm;
            s.cpus[c.ix()].borrowed_mm = if kept { mm } else { mm + 1 };
            s.switch_to(c, p, Ns::ZERO);
            s.sh.ledger.sum(Func::ContextSwitch, Resource::None).0
        };
        let costs = sim("v6.1").machine.costs;
        let more = u64::from(costs.switch_other_mm - costs.switch_same_mm);
        assert!(more > 50 && switched(false) > switched(true) + more / 2, "{more}");
    }

    /// An idle CPU with nothing to run is told to reschedule. Since 6.12 it goes back to idle
    /// without asking the classes.
    #[test]
    fn an_idle_cpu_with_nothing_to_run_picks_up_to_6_11() {
        for (kernel, picks) in [("v6.1", true), ("v6.12", false)] {
            let mut s = sim(kernel);
            s.schedule_with_lock(Cpu(0), s.now);
            let asked = s.sh.ledger.sum(Func::PickNext, Resource::None) > Ns::ZERO;
            assert_eq!(asked, picks, "{kernel}");
        }
    }
}
