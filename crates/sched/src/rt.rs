//! The real-time class: SCHED_FIFO and SCHED_RR on per-CPU priority lists.
//!
//! *What.* The highest priority runs; equal priorities in order of arrival (FIFO) or in turns of
//! 100 ms (RR). A preempted task keeps its place at the head.
//! *Source.* facts/fair.md 9 (kernel/sched/rt.c).
//! *Equations.* A bitmap of non-empty lists; the pick is the head of the list of its highest bit.
//! *Departures.* D1: no push and pull between CPUs: a task that cannot run at once waits where
//! `select_task_rq_rt` put it. D2: no throttling. D3: the lowest CPU is the first one that runs
//! nothing of this class, near before far, without the cpupri table.
//! *Example.* A FIFO 80 task wakes on a CPU that runs a fair task: it preempts at once.

use crate::cx::Cx;
use crate::scheduler::Placement;
use crate::task::Policy;
use std::collections::VecDeque;
use vruntime_base::{Cause, CauseKind, Cpu, Func, Ns, TaskId};

/// Turn of a SCHED_RR task.
const RR_TIMESLICE: Ns = Ns::from_ms(100);

/// RT: stays where it last ran.
pub static RT_PREV: Cause = Cause::new(CauseKind::Placement, "rt: prev");
/// RT: a CPU that runs nothing of this class.
pub static RT_LOWEST: Cause = Cause::new(CauseKind::Placement, "rt: lowest CPU");
/// RT: a higher priority arrived.
pub static RT_HIGHER: Cause = Cause::new(CauseKind::Switch, "rt: higher priority woken");
/// RT: the turn of a SCHED_RR task is over.
pub static RR_TURN: Cause = Cause::new(CauseKind::Switch, "rt: SCHED_RR turn over");

/// The run queue of one CPU.
struct RtRq {
    /// Bit p set: list of priority p is not empty (99 is the highest).
    bitmap: u128,
    lists: Vec<VecDeque<TaskId>>,
    /// When the current task's turn began.
    turn_began: Ns,
}

/// The class on all CPUs.
pub struct Rt {
    cpus: Vec<RtRq>,
}

impl Rt {
    /// Empty queues.
    pub fn new(nr_cpus: usize) -> Rt {
        let rq = || RtRq { bitmap: 0, lists: Vec::new(), turn_began: Ns::ZERO };
        Rt { cpus: (0..nr_cpus).map(|_| rq()).collect() }
    }

    /// Queued tasks of the class are on `cpu` (the running one included).
    pub fn has_tasks(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.ix()].bitmap != 0
    }

    /// `enqueue_task_rt`: at the tail of its priority.
    pub fn enqueue(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
        let prio = cx.sh.task(p).rt_priority as usize;
        let rq = &mut self.cpus[cpu.ix()];
        if rq.lists.is_empty() {
            rq.lists = vec![VecDeque::new(); 100];
        }
        rq.lists[prio].push_back(p);
        rq.bitmap |= 1 << prio;
        cx.sh.loads[cpu.ix()].nr_running += 1;
    }

    /// `dequeue_task_rt`.
    pub fn dequeue(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
        let prio = cx.sh.task(p).rt_priority as usize;
        let rq = &mut self.cpus[cpu.ix()];
        rq.lists[prio].retain(|&x| x != p);
        if rq.lists[prio].is_empty() {
            rq.bitmap &= !(1 << prio);
        }
        cx.sh.loads[cpu.ix()].nr_running -= 1;
    }

    /// `wakeup_preempt_rt`: a higher priority takes the CPU.
    pub fn wakeup_preempt(&self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        let curr = cx.sh.rq(cpu).curr;
        if cx.sh.task(p).rt_priority > cx.sh.task(curr).rt_priority {
            cx.resched_curr(cpu, &RT_HIGHER);
        }
    }

    /// The head of the highest list.
    pub fn pick(&mut self, cx: &mut Cx, cpu: Cpu) -> Option<TaskId> {
        let rq = &mut self.cpus[cpu.ix()];
        if rq.bitmap == 0 {
            return None;
        }
        let prio = 127 - rq.bitmap.leading_zeros() as usize;
        let next = *rq.lists[prio].front()?;
        if cx.sh.rq(cpu).curr != next {
            rq.turn_began = cx.now;
        }
        Some(next)
    }

    /// `task_tick_rt`: SCHED_RR goes to the tail after its turn.
    pub fn tick(&mut self, cx: &mut Cx, cpu: Cpu) {
        let curr = cx.sh.rq(cpu).curr;
        let t = cx.sh.task(curr);
        let rq = &mut self.cpus[cpu.ix()];
        if t.policy != Policy::Rr || cx.now.saturating_sub(rq.turn_began) < RR_TIMESLICE {
            return;
        }
        rq.turn_began = cx.now;
        let list = &mut rq.lists[t.rt_priority as usize];
        if list.len() > 1 {
            list.rotate_left(1);
            cx.resched_curr(cpu, &RR_TURN);
        }
    }

    /// `sched_yield`: to the tail of its priority.
    pub fn yield_task(&mut self, cx: &mut Cx, cpu: Cpu) {
        let prio = cx.sh.task(cx.sh.rq(cpu).curr).rt_priority as usize;
        self.cpus[cpu.ix()].lists[prio].rotate_left(1);
    }

    /// `select_task_rq_rt`: prev, unless an equal or higher priority runs there.
    pub fn select(&self, cx: &mut Cx, p: TaskId, prev: Cpu) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let allowed = *cx.sh.allowed(p);
        let mine = cx.sh.task(p).rt_priority;
        let curr = cx.sh.task(cx.sh.rq(prev).curr);
        if allowed.has(prev) && curr.rt_priority < mine {
            return Placement { cpu: prev, rule: &RT_PREV };
        }
        let llc = *cx.machine.topo.llc(prev);
        let lowest = |set: vruntime_base::CpuMask| {
            set.iter_wrap(prev.ix()).find(|&c| cx.sh.task(cx.sh.rq(c).curr).rt_priority == 0)
        };
        let found = lowest(llc.and(&allowed)).or_else(|| lowest(allowed));
        match found {
            Some(cpu) => Placement { cpu, rule: &RT_LOWEST },
            None if allowed.has(prev) => Placement { cpu: prev, rule: &RT_PREV },
            None => Placement { cpu: allowed.first().unwrap_or(prev), rule: &RT_PREV },
        }
    }
}
