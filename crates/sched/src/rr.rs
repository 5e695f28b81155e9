//! Round robin: the template for a scheduler of your own. Copy this file, change what you like,
//! and add one line to [`crate::registry`].
//!
//! **What.** Each CPU has one queue, first come first served, and everybody runs for at most
//! [`SLICE_TICKS`]. A woken task stays on its CPU if that is idle, else goes to the first idle CPU
//! that shares its last-level cache, else stays all the same.
//! **Source.** None: it exists to be read.
//! **Equations.** None.
//! **Departures.** No priorities, no groups, no balancing. Only the stoppers (`migration/N`) go
//! first, since the rest of the kernel relies on them.
//! **Example.** A, B and C are CPU hogs on one CPU with 250 ticks a second: A runs 4 ms, then B,
//! then C, then A.

use crate::cx::Cx;
use crate::scheduler::*;
use crate::task::{Policy, TaskState, TgId};
use std::collections::VecDeque;
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, Func, TaskId};
use vruntime_machine::Topology;

/// How long a task runs while others wait.
const SLICE_TICKS: u32 = 1;

// Every decision names its reason; reports count them.
static PREV_IDLE: Cause = Cause::new(CauseKind::Placement, "rr: prev is idle");
static IDLE_IN_LLC: Cause = Cause::new(CauseKind::Placement, "rr: idle CPU in the LLC");
static PREV: Cause = Cause::new(CauseKind::Placement, "rr: prev, nothing is idle");
static WAS_IDLE: Cause = Cause::new(CauseKind::Resched, "rr: CPU was idle");
static STOPPER: Cause = Cause::new(CauseKind::Resched, "rr: stopper");
static SLICE_OVER: Cause = Cause::new(CauseKind::Resched, "rr: slice used up");

/// What this scheduler knows of a CPU.
#[derive(Clone, Default)]
struct Queue {
    /// Tasks that wait; the running one is not here.
    waiting: VecDeque<TaskId>,
    /// Ticks since the running task was picked.
    ticks: u32,
}

/// Round robin on every CPU.
pub struct Rr {
    queues: Vec<Queue>,
    llc: Vec<CpuMask>,
    nr_groups: u16,
    moved: Vec<Moved>,
}

impl Rr {
    /// Empty queues.
    pub fn new(topo: &Topology) -> Rr {
        Rr {
            queues: vec![Queue::default(); topo.nr_cpus()],
            llc: topo.all().iter().map(|c| *topo.llc(c)).collect(),
            nr_groups: 1,
            moved: Vec::new(),
        }
    }
}

impl Scheduler for Rr {
    /// Where a woken task goes.
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, _: WakeFlags) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let allowed = *cx.sh.allowed(p);
        if allowed.has(prev) && cx.sh.idle_cpu(prev) {
            return Placement { cpu: prev, rule: &PREV_IDLE };
        }
        let near = self.llc[prev.ix()].and(&allowed);
        if let Some(cpu) = near.iter_wrap(prev.ix()).find(|c| cx.sh.idle_cpu(*c)) {
            return Placement { cpu, rule: &IDLE_IN_LLC };
        }
        let cpu = if allowed.has(prev) { prev } else { allowed.first().unwrap_or(prev) };
        Placement { cpu, rule: &PREV }
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: EnqueueFlags) {
        cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
        cx.sh.loads[cpu.ix()].nr_running += 1;
        // A task that is woken before it was switched out is not waiting: it runs.
        if cx.sh.rq(cpu).curr == p {
            return;
        }
        let waiting = &mut self.queues[cpu.ix()].waiting;
        if cx.sh.task(p).policy == Policy::Stop {
            waiting.push_front(p);
        } else {
            waiting.push_back(p);
        }
    }

    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: DequeueFlags) -> bool {
        cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
        cx.sh.loads[cpu.ix()].nr_running -= 1;
        self.queues[cpu.ix()].waiting.retain(|&q| q != p);
        true
    }

    /// Should the task that was just enqueued run at once?
    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: WakeFlags) {
        if cx.sh.curr_is_idle(cpu) {
            cx.resched_curr(cpu, &WAS_IDLE);
        } else if cx.sh.task(p).policy == Policy::Stop {
            cx.resched_curr(cpu, &STOPPER);
        }
    }

    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        cx.charge(Func::Tick, cx.machine.costs.tick_base);
        let q = &mut self.queues[cpu.ix()];
        q.ticks += 1;
        if q.ticks >= SLICE_TICKS && !q.waiting.is_empty() {
            cx.resched_curr(cpu, &SLICE_OVER);
        }
        TickWork::default()
    }

    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        cx.charge(Func::PickNext, cx.machine.costs.pick_base);
        let prev = cx.sh.rq(cpu).curr;
        let t = cx.sh.task(prev);
        let still_runs = t.on_rq && t.state == TaskState::Running && t.cpu == cpu;
        let q = &mut self.queues[cpu.ix()];
        q.ticks = 0;
        if still_runs && prev.ix() >= self.llc.len() {
            match t.policy {
                Policy::Stop => q.waiting.push_front(prev),
                _ => q.waiting.push_back(prev),
            }
        }
        q.waiting.pop_front().map_or(Pick::Nothing, Pick::Task)
    }

    // What follows has nothing to do here.

    fn task_group_new(&mut self, _: &mut Cx, _parent: TgId) -> TgId {
        self.nr_groups += 1;
        TgId(self.nr_groups - 1)
    }
    fn task_new(&mut self, _: &mut Cx, _: TaskId, _parent: Option<TaskId>) {}
    fn task_fork_place(&mut self, _: &mut Cx, _: TaskId) {}
    fn task_dead(&mut self, _: &mut Cx, _: TaskId) {}
    fn migrate_task_rq(&mut self, _: &mut Cx, _: TaskId, _new_cpu: Cpu) {}
    fn set_idle(&mut self, _: &mut Cx, _: Cpu) {}
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, _prio: i8) {
        cx.sh.tasks[p.ix()].policy = policy;
    }
    fn yield_task(&mut self, _: &mut Cx, _: Cpu) {}
    fn tick_stopped(&mut self, _: &mut Cx, _: Cpu, _stopped: bool) {}
    fn balance_begin(&mut self, _: &mut Cx, _: Cpu, _: BalanceKind) -> BalanceStep {
        BalanceStep::Done { pulled: 0 }
    }
    fn balance_continue(&mut self, _: &mut Cx, _: Cpu) -> BalanceStep {
        BalanceStep::Done { pulled: 0 }
    }
    fn active_balance(&mut self, _: &mut Cx, _: Cpu) -> Option<TaskId> {
        None
    }
    fn take_moved(&mut self) -> &mut Vec<Moved> {
        &mut self.moved
    }
}
