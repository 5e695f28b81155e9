//! Drives load balancing: the scheduler says what it needs next, the driver lets time pass and
//! takes locks.
//!
//! *What.* Newidle balancing inside `schedule()`, periodic and nohz balancing as a softirq.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/fair.c `load_balance`, `newidle_balance`.
//! *Equations.* None.
//! *Departures.* D1: while a run queue lock is waited for or held, interrupts are off.
//! *Example.* Find (time passes) → lock the source → detach → unlock → lock the destination →
//! attach → unlock.

use crate::frame::Frame;
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::stop::StopWork;
use vruntime_base::{Cause, Cpu, Event, EventKind, Ns, TaskId};
use vruntime_sched::scheduler::{BalanceKind, BalanceStep};
use vruntime_sched::task::TaskState;

impl Sim {
    /// A softirq begins to balance on `c` at `at`.
    pub(crate) fn begin_softirq(&mut self, c: Cpu, at: Ns) {
        self.cpus[c.ix()].softirq = false;
        let at = at + self.work(c, vruntime_base::Func::Softirq, self.machine.costs.softirq);
        let kind = if std::mem::take(&mut self.cpus[c.ix()].nohz_kick) {
            BalanceKind::Nohz
        } else {
            BalanceKind::Periodic
        };
        let (step, cost) = self.hook(c, at, |s, cx| s.balance_begin(cx, c, kind));
        self.balance_plan(c, step, at, cost);
    }

    /// The hook answered `step` at `at` and charged `cost`.
    pub(crate) fn balance_plan(&mut self, c: Cpu, step: BalanceStep, at: Ns, cost: Ns) {
        self.take_moved(c, at);
        let at = self.carry_out_resched(c, at + cost);
        if let BalanceStep::Unlock(rq) | BalanceStep::HandOver(rq) = step {
            self.hold_rq(c, rq, at);
        }
        self.balance_step(c, step);
        self.plan(c, at, Frame::Balance);
    }

    fn balance_step(&mut self, c: Cpu, step: BalanceStep) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.balance_step[cpu.level as usize] = step;
    }

    /// The time of the last step has passed: does what it asked for and calls the hook again.
    pub(crate) fn balance_do(&mut self, c: Cpu) {
        let cpu = &self.cpus[c.ix()];
        match cpu.balance_step[cpu.level as usize] {
            BalanceStep::Pass | BalanceStep::HandOver(_) => self.balance_next(c, self.now),
            BalanceStep::Unlock(_) => {
                if self.cpus[c.ix()].level == 1 {
                    self.cpus[c.ix()].irqs_on(self.now);
                }
                self.balance_next(c, self.now);
            }
            BalanceStep::Lock(rq) => {
                self.lock_rq(c, rq, self.now, Under::Balance);
            }
            BalanceStep::Stopper(rq) => {
                self.balance_step(c, BalanceStep::Pass);
                self.ask_stopper(c, rq, StopWork::ActiveBalance, self.now, Frame::Balance);
            }
            BalanceStep::Done => self.balance_done(c),
        }
    }

    pub(crate) fn balance_with_lock(&mut self, c: Cpu, rq: Cpu, at: Ns) {
        self.update_rq_clock(rq, at);
        self.balance_next(c, at);
    }

    fn balance_next(&mut self, c: Cpu, at: Ns) {
        let (step, cost) = self.hook(c, at, |s, cx| s.balance_continue(cx, c));
        self.balance_plan(c, step, at, cost);
    }

    fn balance_done(&mut self, c: Cpu) {
        let at = self.now;
        if self.cpus[c.ix()].level == 0 {
            // Newidle: interrupts stay off until the switch is done.
            self.cpus[c.ix()].irqs_off();
            self.plan(c, at, Frame::ScheduleAgain);
        } else {
            self.softirq_exit(c, at);
        }
    }

    /// Books the tasks that balancing has moved, in the order in which they were taken off.
    pub(crate) fn take_moved(&mut self, c: Cpu, at: Ns) {
        let mut nr = 0;
        while let Some(&m) = self.sched.moved().get(nr) {
            nr += 1;
            self.stats.migrations.count(m.cause);
            self.note_migration(m.task, c, m.from, m.to, at, m.cause);
        }
        self.sched.moved().clear();
    }

    /// Writes the event of a migration. The counter `cpu-migrations` is perf's: it counts when the
    /// task runs, however often it was moved before.
    pub(crate) fn note_migration(
        &mut self,
        p: TaskId,
        c: Cpu,
        from: Cpu,
        to: Cpu,
        at: Ns,
        cause: &'static Cause,
    ) {
        let k = &mut self.tasks[p.ix()];
        k.sched_migrated = true;
        if self.sh.tasks[p.ix()].state == TaskState::Running {
            // Each queue is charged what was waited on it (`sched_info_dequeue`).
            let here = k.waited_here(at).0;
            self.stats.cpus[from.ix()].run_delay += here;
            let here = u32::try_from(here).unwrap_or(u32::MAX);
            k.waited_elsewhere = k.waited_elsewhere.saturating_add(here);
        }
        self.trace(Event {
            a: u32::from(from.0),
            b: u32::from(to.0),
            cause: Some(cause),
            ..Event::new(at, c, EventKind::Migrate, p)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;

    /// It waits from 1 ms on, is pulled at 3 ms and at 4 ms, and runs at 6 ms.
    #[test]
    fn each_queue_is_charged_what_was_waited_on_it() {
        let mut s = sim("v6.12");
        let p = TaskId::from_ix(s.tasks.len() - 1);
        s.sh.tasks[p.ix()].state = TaskState::Running;
        s.tasks[p.ix()].runnable_since = Ns::from_ms(1);
        s.note_migration(p, Cpu(0), Cpu(1), Cpu(0), Ns::from_ms(3), &crate::stop::STOPPER_MOVE);
        s.note_migration(p, Cpu(0), Cpu(0), Cpu(2), Ns::from_ms(4), &crate::stop::STOPPER_MOVE);
        s.start_running(Cpu(2), p, Ns::from_ms(6), Ns::from_ms(6));
        let waited = [0, 1, 2].map(|c| s.stats.cpus[c].run_delay / 1_000_000);
        assert_eq!(waited, [1, 2, 2]);
        assert_eq!(s.tasks[p.ix()].waited_elsewhere, 0);
    }
}
