//! The stopper threads (`migration/N`): they move tasks that run, or that may not stay.
//!
//! *What.* Work is put on a CPU's list and its stopper is woken; the stopper preempts whatever
//! runs, takes a task off under the lock of its own run queue, lets that go, and puts the task on
//! under the lock of the other one. *Source.* Linux 6.1.192 and 6.12.117, kernel/stop_machine.c,
//! kernel/sched/fair.c `active_load_balance_cpu_stop`, kernel/sched/core.c `migration_cpu_stop`.
//! *Equations.* None. *Departures.* D1: work is done one after the other in order of arrival.
//! *Example.* A task calls exec and the slow path prefers another CPU: the stopper of its CPU moves
//! it.

use crate::frame::Frame;
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::task::{Step, WaitsFor};
use vruntime_base::{Cause, CauseKind, Cpu, Ns, TaskId};
use vruntime_sched::scheduler::{DequeueFlags, EnqueueFlags, WakeFlags};
use vruntime_sched::task::TaskState;

/// A task was moved because of exec or a new affinity.
pub static STOPPER_MOVE: Cause = Cause::new(CauseKind::Migration, "stopper: exec or affinity");

/// What a stopper is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopWork {
    /// `active_load_balance_cpu_stop`.
    ActiveBalance,
    /// `migration_cpu_stop`: move this task.
    Move {
        /// Whom.
        p: TaskId,
        /// Where to.
        to: Cpu,
    },
}

impl Sim {
    /// The stopper task of `c`.
    pub(crate) fn stopper_of(&self, c: Cpu) -> TaskId {
        TaskId::from_ix(self.cpus.len() + c.ix())
    }

    /// `cpu_stop_queue_work` on `target`, executed by `c`; afterwards `then` acts.
    pub(crate) fn ask_stopper(&mut self, c: Cpu, target: Cpu, work: StopWork, at: Ns, then: Frame) {
        self.stop_work[target.ix()].push(work);
        let stopper = self.stopper_of(target);
        self.cpus[c.ix()].wakes.push_back((stopper, false));
        self.plan_wakes(c, at, then);
    }

    /// The stopper runs: the next piece of work, or sleep.
    pub(crate) fn stopper(&mut self, c: Cpu, p: TaskId) {
        if self.stop_work[c.ix()].is_empty() {
            self.tasks[p.ix()].waits_for = WaitsFor::Work;
            self.block(c, p, self.now, Step::Stopper, TaskState::Interruptible);
            return;
        }
        self.lock_rq(c, c, self.now, Under::Stop);
    }

    fn stop_target(&self, c: Cpu, p: TaskId) -> Cpu {
        match self.stop_work[c.ix()][0] {
            StopWork::ActiveBalance => self.sh.tasks[p.ix()].cpu,
            StopWork::Move { to, .. } => to,
        }
    }

    /// Holds its own lock: takes the task off, releases the lock, then asks for the other one, as
    /// the kernel does (never both).
    pub(crate) fn stop_with_lock(&mut self, c: Cpu, mut at: Ns) {
        self.update_rq_clock(c, at);
        let work = self.stop_work[c.ix()][0];
        let moving = match work {
            StopWork::ActiveBalance => {
                let (detached, cost) = self.hook(c, at, |s, cx| s.active_balance(cx, c));
                at += cost;
                self.take_moved(c, at);
                detached
            }
            StopWork::Move { p, .. } => {
                let t = &self.sh.tasks[p.ix()];
                if t.on_rq && t.cpu == c {
                    let (_, cost) =
                        self.hook(c, at, |s, cx| s.dequeue_task(cx, c, p, DequeueFlags::default()));
                    at += cost;
                    self.sh.tasks[p.ix()].migrating = true;
                    self.note_migration(p, c, c, self.stop_target(c, p), at, &STOPPER_MOVE);
                    self.stats.migrations.count(&STOPPER_MOVE);
                    Some(p)
                } else {
                    if t.cpu == c {
                        self.sh.tasks[p.ix()].wake_cpu = self.stop_target(c, p);
                    }
                    None
                }
            }
        };
        at = self.unlock_rq(c, c, at);
        let Some(p) = moving else {
            self.stop_done(c, at);
            return;
        };
        let to = self.stop_target(c, p);
        self.cpus[c.ix()].wake.p = p;
        self.lock_rq(c, to, at, Under::StopAttach);
    }

    pub(crate) fn stop_attach_with_lock(&mut self, c: Cpu, at: Ns) {
        let p = self.cpus[c.ix()].wake.p;
        let to = self.stop_target(c, p);
        let active = self.stop_work[c.ix()][0] == StopWork::ActiveBalance;
        self.update_rq_clock(to, at);
        let ((), cost) = self.hook(c, at, |s, cx| {
            if active {
                s.active_attach(cx, p);
            } else {
                s.migrate_task_rq(cx, p, to);
                let t = &mut cx.sh.tasks[p.ix()];
                (t.cpu, t.wake_cpu) = (to, to);
                s.enqueue_task(cx, to, p, EnqueueFlags::default());
                let t = &mut cx.sh.tasks[p.ix()];
                (t.on_rq, t.migrating) = (true, false);
                s.wakeup_preempt(cx, to, p, WakeFlags::default());
            }
        });
        let at = self.unlock_rq(c, to, at + cost);
        self.stop_done(c, at);
    }

    fn stop_done(&mut self, c: Cpu, at: Ns) {
        let done = self.stop_work[c.ix()].remove(0);
        self.cpus[c.ix()].irqs_on(at);
        match done {
            // `complete_all`: it sleeps until this is done.
            StopWork::Move { p, .. } if self.sh.tasks[p.ix()].state != TaskState::Running => {
                self.cpus[c.ix()].wakes.push_back((p, false));
                self.plan_wakes(c, at, Frame::Task);
            }
            _ => self.plan(c, at, Frame::Task),
        }
    }
}
