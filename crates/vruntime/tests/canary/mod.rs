//! A deliberately wrong policy: round robin with one fault. Checkers that let it pass are defects.

use vruntime::base::{Cpu, TaskId};
use vruntime::machine::Topology;
use vruntime::sched::cx::Cx;
use vruntime::sched::rr::{PREV, Rr};
use vruntime::sched::scheduler::*;
use vruntime::sched::task::{Policy, TaskState, TgId};

/// What is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// Now and then a preempted task is on no queue.
    Forgets,
    /// Now and then a task that leaves still counts.
    Miscounts,
    /// A task goes back to its CPU even if others are idle.
    Stacks,
    /// Now and then nobody tells an idle CPU that it has a task.
    DropsWakeup,
}

impl Fault {
    /// How many occasions make one fault.
    fn rarity(self) -> u32 {
        if self == Fault::DropsWakeup { 3 } else { 60 }
    }
}

/// The scheduler.
pub struct Canary {
    rr: Rr,
    fault: Fault,
    occasions: u32,
}

impl Canary {
    pub fn new(topo: &Topology, fault: Fault) -> Canary {
        Canary { rr: Rr::new(topo), fault, occasions: 0 }
    }
    /// An occasion for `fault`: is it taken?
    fn strikes(&mut self, fault: Fault) -> bool {
        if fault == self.fault {
            self.occasions += 1;
        }
        fault == self.fault && self.occasions.is_multiple_of(fault.rarity())
    }
}

impl Scheduler for Canary {
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, f: WakeFlags) -> Placement {
        let place = self.rr.select_task_rq(cx, p, prev, f);
        if self.fault == Fault::Stacks { Placement { cpu: prev, rule: &PREV } } else { place }
    }
    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: DequeueFlags) -> bool {
        let gone = self.rr.dequeue_task(cx, cpu, p, f);
        if self.strikes(Fault::Miscounts) {
            cx.sh.loads[cpu.ix()].nr_running += 1;
        }
        gone
    }
    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: WakeFlags) {
        if !self.strikes(Fault::DropsWakeup) {
            self.rr.wakeup_preempt(cx, cpu, p, f);
        }
    }
    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        let pick = self.rr.pick_next_task(cx, cpu);
        let prev = cx.sh.rq(cpu).curr;
        let t = cx.sh.task(prev);
        let preempted = t.on_rq && t.state == TaskState::Running && !cx.sh.curr_is_idle(cpu);
        if let Pick::Task(next) = pick
            && preempted
            && next != prev
            && self.strikes(Fault::Forgets)
        {
            // Off the queue, but counted.
            cx.sh.rqs[cpu.ix()].curr = next;
            self.rr.dequeue_task(cx, cpu, prev, DequeueFlags::default());
            cx.sh.rqs[cpu.ix()].curr = prev;
            cx.sh.loads[cpu.ix()].nr_running += 1;
        }
        pick
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, f: EnqueueFlags) {
        self.rr.enqueue_task(cx, cpu, p, f);
    }
    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        self.rr.task_tick(cx, cpu)
    }
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId {
        self.rr.task_group_new(cx, parent)
    }
    fn moved(&mut self) -> &mut Vec<Moved> {
        self.rr.moved()
    }
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8) {
        self.rr.set_policy(cx, p, policy, prio);
    }
}
