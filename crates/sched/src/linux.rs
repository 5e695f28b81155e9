//! The class stack of Linux: stop above RT above fair above idle.
//!
//! *What.* Sends each hook to the class of the task, and asks the classes from the top when a CPU
//! needs something to run.
//! *Source.* facts/fair.md 8.2, 9 (kernel/sched/core.c).
//! *Equations.* None.
//! *Departures.* D1: no deadline class and no fair server. D2: the stopper's queue is one flag.
//! *Example.* A FIFO task wakes on a CPU with a fair task: `wakeup_preempt` sees a higher class and
//! asks for a reschedule; `pick_next_task` finds it in the RT queue.

use crate::balance::Balancer;
use crate::cx::Cx;
use crate::domains::Domains;
use crate::fair::Fair;
use crate::release::Release;
use crate::rt::Rt;
use crate::scheduler::*;
use crate::task::{Policy, TaskState, TgId};
use vruntime_base::{Cause, CauseKind, Cpu, TaskId};
use vruntime_machine::Topology;

/// The idle task never keeps a CPU.
pub static IDLE_CURR: Cause = Cause::new(CauseKind::Switch, "idle CPU got work");
/// A task of a higher class was woken.
pub static HIGHER_CLASS: Cause = Cause::new(CauseKind::Switch, "higher class woken");
/// Only one CPU is allowed.
pub static ONLY_ALLOWED: Cause = Cause::new(CauseKind::Placement, "only allowed CPU");

/// All classes on all CPUs.
pub struct Linux {
    /// The fair class.
    pub fair: Fair,
    /// The real-time class.
    pub rt: Rt,
    /// Balancing of the fair class.
    pub balancer: Balancer,
    /// The stopper of the CPU is queued.
    stop: Vec<bool>,
}

impl Linux {
    /// The stack for a machine and a release.
    pub fn new(topo: &Topology, domains: &Domains, release: &Release) -> Linux {
        let nr_cpus = topo.nr_cpus();
        Linux {
            fair: Fair::new(nr_cpus, release),
            rt: Rt::new(nr_cpus),
            balancer: Balancer::new(domains, nr_cpus),
            stop: vec![false; nr_cpus],
        }
    }
}

impl Scheduler for Linux {
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId {
        self.fair.task_group_new(cx, parent)
    }

    fn task_new(&mut self, cx: &mut Cx, p: TaskId, parent: Option<TaskId>) {
        self.fair.task_new(cx, p, parent);
    }

    fn task_fork_place(&mut self, cx: &mut Cx, p: TaskId) {
        if cx.sh.task(p).policy.is_fair() {
            self.fair.task_fork_place(cx, p);
        }
    }

    fn task_dead(&mut self, cx: &mut Cx, p: TaskId) {
        if cx.sh.task(p).policy.is_fair() {
            self.fair.task_dead(cx, p);
        }
    }

    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, f: WakeFlags) -> Placement {
        let t = cx.sh.task(p);
        if t.nr_cpus_allowed == 1 {
            let cpu = cx.sh.allowed(p).first().unwrap_or(prev);
            return Placement { cpu, rule: &ONLY_ALLOWED };
        }
        match t.policy {
            Policy::Fifo | Policy::Rr => self.rt.select(cx, p, prev),
            Policy::Stop => Placement { cpu: prev, rule: &ONLY_ALLOWED },
            _ => self.fair.select_task_rq_fair(cx, p, prev, f),
        }
    }

    fn migrate_task_rq(&mut self, cx: &mut Cx, p: TaskId, new_cpu: Cpu) {
        if cx.sh.task(p).policy.is_fair() {
            self.fair.migrate_task_rq_fair(cx, p, new_cpu);
        }
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: EnqueueFlags) {
        match cx.sh.task(p).policy {
            Policy::Stop => {
                self.stop[cpu.ix()] = true;
                cx.sh.loads[cpu.ix()].nr_running += 1;
            }
            Policy::Fifo | Policy::Rr => self.rt.enqueue(cx, cpu, p),
            _ => self.fair.enqueue_task_fair(cx, cpu, p, flags),
        }
        self.balancer.note_nr_running(cx, cpu);
    }

    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: DequeueFlags) -> bool {
        match cx.sh.task(p).policy {
            Policy::Stop => {
                self.stop[cpu.ix()] = false;
                cx.sh.loads[cpu.ix()].nr_running -= 1;
                true
            }
            Policy::Fifo | Policy::Rr => {
                self.rt.dequeue(cx, cpu, p);
                true
            }
            _ => self.fair.dequeue_task_fair(cx, cpu, p, flags),
        }
    }

    fn is_delayed(&self, p: TaskId) -> bool {
        self.fair.is_delayed(p)
    }

    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: WakeFlags) {
        if cx.sh.curr_is_idle(cpu) {
            cx.resched_curr(cpu, &IDLE_CURR);
            return;
        }
        let curr = cx.sh.rq(cpu).curr;
        let (wakee, running) = (cx.sh.task(p).policy, cx.sh.task(curr).policy);
        if wakee.class_rank() > running.class_rank() {
            cx.resched_curr(cpu, &HIGHER_CLASS);
        } else if wakee.class_rank() == running.class_rank() {
            match wakee {
                Policy::Fifo | Policy::Rr => self.rt.wakeup_preempt(cx, cpu, p),
                Policy::Stop => {}
                _ => self.fair.wakeup_preempt_fair(cx, cpu, p, flags),
            }
        }
    }

    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        let stopper = TaskId::from_ix(cx.sh.rqs.len() + cpu.ix());
        let above = if self.stop[cpu.ix()] { Some(stopper) } else { self.rt.pick(cx, cpu) };
        if let Some(next) = above {
            self.fair.put_prev_for(cx, cpu, next);
            return Pick::Task(next);
        }
        match self.fair.pick_next_task_fair(cx, cpu) {
            Some(next) => Pick::Task(next),
            None => Pick::Nothing,
        }
    }

    fn set_idle(&mut self, cx: &mut Cx, cpu: Cpu) {
        self.balancer.set_idle(cx, cpu);
    }

    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8) {
        let cpu = cx.sh.task(p).cpu;
        // The task runs: off its class's queue, changed, and on the new one.
        debug_assert!(cx.sh.task(p).state == TaskState::Running);
        self.dequeue_task(cx, cpu, p, DequeueFlags::default());
        let t = &mut cx.sh.tasks[p.ix()];
        t.policy = policy;
        if policy.is_fair() {
            t.nice = prio;
            t.rt_priority = 0;
        } else {
            t.rt_priority = prio.max(1) as u8;
        }
        self.fair.set_params(cx, p);
        self.enqueue_task(cx, cpu, p, EnqueueFlags::default());
        self.fair.set_curr_task(cx, cpu, p);
    }

    fn yield_task(&mut self, cx: &mut Cx, cpu: Cpu) {
        match cx.sh.task(cx.sh.rq(cpu).curr).policy {
            Policy::Fifo | Policy::Rr => self.rt.yield_task(cx, cpu),
            Policy::Stop => {}
            _ => self.fair.yield_task_fair(cx, cpu),
        }
    }

    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        if !cx.sh.curr_is_idle(cpu) {
            match cx.sh.task(cx.sh.rq(cpu).curr).policy {
                Policy::Fifo | Policy::Rr => self.rt.tick(cx, cpu),
                Policy::Stop => {}
                _ => self.fair.task_tick_fair(cx, cpu),
            }
        }
        self.balancer.tick(&self.fair, cx, cpu)
    }

    fn tick_stopped(&mut self, cx: &mut Cx, cpu: Cpu, stopped: bool) {
        self.balancer.tick_stopped(cx, cpu, stopped);
    }

    fn balance_begin(&mut self, cx: &mut Cx, cpu: Cpu, kind: BalanceKind) -> BalanceStep {
        self.balancer.begin(&mut self.fair, cx, cpu, kind)
    }

    fn balance_continue(&mut self, cx: &mut Cx, cpu: Cpu) -> BalanceStep {
        self.balancer.resume(&mut self.fair, cx, cpu)
    }

    fn active_balance(&mut self, cx: &mut Cx, cpu: Cpu) -> Option<TaskId> {
        self.balancer.active_balance(&mut self.fair, cx, cpu)
    }

    fn take_moved(&mut self) -> &mut Vec<Moved> {
        &mut self.balancer.moved
    }
}
