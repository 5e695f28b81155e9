//! Round robin: the template for a new scheduler. Copy this file, change the hooks, add its name to
//! the list in `lib.rs`.
//!
//! *What.* Every CPU has a queue in order of arrival and gives each task a slice of two ticks. A
//! waking task goes back to its CPU, or to the first idle CPU that shares its last-level cache.
//! There is no balancing and there are no priorities, except that the stopper always goes first.
//! *Source.* The textbook.
//! *Equations.* A task that has run for [`SLICE_TICKS`] ticks while others wait goes to the end.
//! *Departures.* D1: task groups, nice values and policies are accepted and ignored. D2: hooks that
//! are left out do what [`Scheduler`] does by itself, nothing.
//! *Example.* Tasks A and B on one CPU at 250 Hz run 8 ms each in turn.

use crate::cx::Cx;
use crate::registry::Entry;
use crate::scheduler::*;
use crate::task::{Policy, TaskState, TgId};
use std::collections::VecDeque;
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, Func, TaskId};
use vruntime_machine::Topology;

/// For the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "rr",
    description: "round robin, the template for a new scheduler",
    heeds_policies: false,
    make: |topo, _, _| Box::new(Rr::new(topo)),
};

/// Ticks in a slice.
const SLICE_TICKS: u32 = 2;

/// The task goes back to where it last ran.
pub static PREV: Cause = Cause::new(CauseKind::Placement, "rr: prev");
/// Its CPU is busy, another one of its LLC is idle.
pub static IDLE: Cause = Cause::new(CauseKind::Placement, "rr: idle CPU of the LLC");
/// The slice is used up and another task waits.
pub static SLICE_END: Cause = Cause::new(CauseKind::Switch, "rr: slice used up");
/// The CPU was idle, or the stopper has work.
pub static FIRST_WORK: Cause = Cause::new(CauseKind::Switch, "rr: idle CPU or stopper");

/// One CPU.
#[derive(Clone, Default)]
struct Queue {
    waiting: VecDeque<TaskId>,
    ticks: u32,
}

/// The scheduler.
pub struct Rr {
    cpus: Vec<Queue>,
    llc: Vec<CpuMask>,
    nr_groups: u16,
    moved: Vec<Moved>,
}

impl Rr {
    /// One empty queue for each CPU of `topo`.
    pub fn new(topo: &Topology) -> Rr {
        let n = topo.nr_cpus();
        Rr {
            cpus: vec![Queue::default(); n],
            llc: (0..n).map(|c| *topo.llc(Cpu::from_ix(c))).collect(),
            nr_groups: 1,
            moved: Vec::new(),
        }
    }
}

impl Scheduler for Rr {
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, _: WakeFlags) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let allowed = *cx.sh.allowed(p);
        let near = self.llc[prev.ix()].and(&allowed);
        let idle = near.iter_wrap(prev.ix()).find(|&c| cx.sh.seen_idle_cpu(c, cx.now));
        match idle {
            Some(cpu) if cpu != prev => Placement { cpu, rule: &IDLE },
            _ if allowed.has(prev) => Placement { cpu: prev, rule: &PREV },
            _ => Placement { cpu: allowed.first().unwrap_or(prev), rule: &PREV },
        }
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: EnqueueFlags) {
        cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
        cx.sh.loads[cpu.ix()].nr_running += 1;
        let q = &mut self.cpus[cpu.ix()].waiting;
        if cx.sh.task(p).policy == Policy::Stop { q.push_front(p) } else { q.push_back(p) }
    }

    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: DequeueFlags) -> bool {
        cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
        cx.sh.loads[cpu.ix()].nr_running -= 1;
        if cx.sh.rq(cpu).curr != p {
            self.cpus[cpu.ix()].waiting.retain(|&x| x != p);
        }
        true
    }

    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _: WakeFlags) {
        if cx.sh.curr_is_idle(cpu) || cx.sh.task(p).policy == Policy::Stop {
            cx.resched_curr(cpu, &FIRST_WORK);
        }
    }

    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        cx.charge(Func::PickNext, cx.machine.costs.pick_base);
        let q = &mut self.cpus[cpu.ix()];
        let prev = cx.sh.rq(cpu).curr;
        let t = cx.sh.task(prev);
        if !cx.sh.curr_is_idle(cpu) && t.on_rq && t.state == TaskState::Running {
            q.waiting.push_back(prev);
        }
        q.ticks = 0;
        q.waiting.pop_front().map_or(Pick::Nothing, Pick::Task)
    }

    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        cx.charge(Func::Tick, cx.machine.costs.tick_level);
        let q = &mut self.cpus[cpu.ix()];
        q.ticks += 1;
        if q.ticks >= SLICE_TICKS && !q.waiting.is_empty() {
            cx.resched_curr(cpu, &SLICE_END);
        }
        TickWork::default()
    }

    fn task_group_new(&mut self, _: &mut Cx, _: TgId) -> TgId {
        self.nr_groups += 1;
        TgId(self.nr_groups - 1)
    }
    fn moved(&mut self) -> &mut Vec<Moved> {
        &mut self.moved
    }
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, _: i8) {
        cx.sh.tasks[p.ix()].policy = policy;
    }
}
