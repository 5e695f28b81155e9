//! The class stack of Linux: stop > rt > fair > idle, behind the seam.
//!
//! **What.** Each hook goes to the class of the task; a class with something to run beats all below
//! it, but for the limits of the RT class; a waking task of a higher class always preempts.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/core.c: `__pick_next_task`,
//! `check_preempt_curr`, `__sched_setscheduler`; stop_task.c, idle.c.
//! **Equations.** None.
//! **Departures.** D1: no deadline class, no sched_ext. D2: the class of the task that ran is left
//! (`put_prev_task`) only when its successor is known, also over a newidle balance.
//! **Example.** A stopper wakes on a CPU that runs a FIFO task: it runs next, then the FIFO task.

use crate::balance::gate::Gate;
use crate::balance::{Balancer, SdStats, nr_running_grew};
use crate::cx::{Cx, Shared};
use crate::domains::Domains;
use crate::fair::{Fair, SeId};
use crate::fair_server::{BUDGET_USED, FairServer};
use crate::registry::Entry;
use crate::release::Release;
use crate::rt::Rt;
use crate::scheduler::{
    BalanceKind, BalanceStep, DequeueFlags, EnqueueFlags, Moved, Pick, Placement, Scheduler,
    TickWork, WakeFlags,
};
use crate::task::{AffinityId, Policy, Task, TaskState, TgId};
use vruntime_base::{Cause, CauseKind, Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::Topology;

/// For the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "linux",
    description: "the class stack: stop, RT, fair, idle",
    heeds_policies: true,
    make: |topo, domains, release| Box::new(Linux::new(topo, domains, release)),
};

/// The CPU was idle.
pub static WAS_IDLE: Cause = Cause::new(CauseKind::Resched, "wakeup: CPU was idle");
/// The wakee is of a higher class.
pub static HIGHER_CLASS: Cause = Cause::new(CauseKind::Resched, "wakeup: higher class");
/// The running task changed its policy and is no longer the most important one.
pub static POLICY_CHANGED: Cause = Cause::new(CauseKind::Resched, "policy changed");
/// A running task has gone to another group.
pub static GROUP_CHANGED: Cause = Cause::new(CauseKind::Resched, "group changed");
/// The task may run on this CPU only.
pub static PINNED: Cause = Cause::new(CauseKind::Placement, "pinned");

/// The classes of a Linux kernel.
pub struct Linux {
    /// The fair class.
    pub fair: Fair,
    /// The real-time class.
    pub rt: Rt,
    /// What RT tasks leave to the fair class.
    pub server: FairServer,
    /// The stopper of each CPU while it is queued, else NONE.
    stop: Vec<TaskId>,
    /// Load balancing of the fair class.
    pub balancer: Balancer,
    nr_cpus: usize,
}

/// The classes with tasks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Idle,
    Fair,
    Rt,
    Stop,
}

impl Linux {
    /// The stack of this release.
    pub fn new(topo: &Topology, domains: &Domains, release: &Release) -> Linux {
        let nr_cpus = topo.nr_cpus();
        Linux {
            fair: Fair::new(nr_cpus, release),
            rt: Rt::new(nr_cpus, release),
            server: FairServer::new(nr_cpus, release),
            stop: vec![TaskId::NONE; nr_cpus],
            balancer: Balancer::new(domains, nr_cpus),
            nr_cpus,
        }
    }

    /// Whether `p` is queued, and whether it runs.
    fn is_on(&self, cx: &Cx, p: TaskId) -> (bool, bool) {
        let t = cx.sh.task(p);
        (t.on_rq && t.state != TaskState::New, cx.sh.rq(t.cpu).curr == p)
    }

    /// `sched_setscheduler` within the RT class.
    fn set_rt_priority(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: u8) {
        let t = &mut cx.sh.tasks[p.ix()];
        (t.policy, t.rt_priority) = (policy, prio);
        let cpu = t.cpu;
        if self.is_on(cx, p).0 {
            cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
            cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
            self.rt.change_prio(cpu, p, prio);
        }
    }

    /// Takes `p` off its queue, lets `what` change it, and puts it back; if it `stays`, at the same
    /// priority in the same group, to its place.
    fn change(
        &mut self,
        cx: &mut Cx,
        p: TaskId,
        stays: bool,
        what: impl FnOnce(&mut Linux, &mut Cx),
    ) {
        let (queued, running) = self.is_on(cx, p);
        let cpu = cx.sh.task(p).cpu;
        cx.sh.rqs[cpu.ix()].update_clock(cx.now);
        if queued {
            let flags = DequeueFlags { save: stays, ..DequeueFlags::default() };
            self.dequeue_task(cx, cpu, p, flags);
        }
        if running {
            self.put_prev(cx, p);
        }
        what(self, cx);
        if queued {
            self.enqueue_task(cx, cpu, p, EnqueueFlags::default());
        }
        if running && self.class(cx, p) == Class::Fair {
            self.fair.set_next_task_fair(cx, p);
        }
    }

    #[inline(always)]
    fn class_of(&self, p: TaskId, t: &Task) -> Class {
        if p.ix() < self.nr_cpus {
            return Class::Idle;
        }
        match t.policy {
            Policy::Normal | Policy::Batch | Policy::Idle => Class::Fair,
            Policy::Fifo | Policy::Rr => Class::Rt,
            Policy::Stop => Class::Stop,
        }
    }

    #[inline(always)]
    fn class(&self, cx: &Cx, p: TaskId) -> Class {
        self.class_of(p, &cx.sh.tasks[p.ix()])
    }

    /// `put_prev_task` where the next task is of another class.
    #[inline]
    fn put_prev(&mut self, cx: &mut Cx, prev: TaskId) {
        if self.class(cx, prev) == Class::Fair {
            self.fair.put_prev_task_fair(cx, prev);
        }
    }

    /// An RT task runs on `cpu` from here on; before, one of `prev_class` did.
    fn rt_begins(&mut self, cx: &mut Cx, cpu: Cpu, prev_class: Class) {
        self.rt.throttle.begins(cpu, cx.now);
        if prev_class != Class::Rt {
            self.server.rt_begins(cx, cpu, self.fair.cfs[cpu.ix()].h_nr_runnable);
        }
    }

    /// `p`, of a class above fair, runs next on `cpu`; before, one of `prev_class` did.
    fn next_above(&mut self, cx: &mut Cx, cpu: Cpu, prev_class: Class, p: TaskId) -> Pick {
        let prev = cx.sh.rq(cpu).curr;
        if self.class(cx, p) == Class::Rt {
            self.rt.wait_for(cx, cpu);
            self.rt_begins(cx, cpu, prev_class);
        }
        if p != prev {
            self.put_prev(cx, prev);
            let until = cx.sh.tasks[p.ix()].on_cpu_until;
            if until < Ns::NEVER {
                // Moved a moment ago, it is still being switched out elsewhere.
                let now = cx.now + cx.cost;
                cx.wait(Func::PickNext, Resource::RqLock, until.saturating_sub(now));
            }
        }
        Pick::Task(p)
    }

    /// The fair tasks of `cpu`, if it has some, go before its RT tasks now.
    fn is_served(&mut self, cx: &Cx, cpu: Cpu) -> bool {
        self.server.serves(cpu)
            && self.fair.cfs[cpu.ix()].h_nr_runnable > 0
            && !self.server.ran(cpu, cx.now)
    }

    /// The most important class with something to run on `cpu`.
    fn top_class(&self, cpu: Cpu) -> Class {
        if self.stop[cpu.ix()].is_some() {
            Class::Stop
        } else if self.rt.first(cpu).is_some() {
            Class::Rt
        } else {
            Class::Fair
        }
    }
}

impl Scheduler for Linux {
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId {
        let tg = self.fair.new_group(parent);
        cx.machine.lines.grow_groups(self.fair.groups.len());
        tg
    }

    fn task_new(&mut self, cx: &mut Cx, p: TaskId, parent: Option<TaskId>) {
        if !matches!(self.class(cx, p), Class::Fair | Class::Rt) {
            return;
        }
        let cpu = if parent.is_some() { cx.cpu } else { cx.sh.tasks[p.ix()].cpu };
        self.fair.task_new_fair(cx, p, cpu);
    }

    fn task_fork_place(&mut self, cx: &mut Cx, p: TaskId) {
        if self.class(cx, p) == Class::Fair {
            self.fair.task_fork_place_fair(cx, p);
        }
    }

    fn task_dead(&mut self, cx: &mut Cx, p: TaskId) {
        if self.class(cx, p) == Class::Fair {
            self.fair.task_dead_fair(p, cx.sh);
        }
    }

    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, flags: WakeFlags) -> Placement {
        if cx.sh.tasks[p.ix()].nr_cpus_allowed <= 1 {
            let cpu = cx.sh.allowed(p).first().unwrap_or(prev);
            return Placement { cpu, rule: &PINNED };
        }
        match self.class(cx, p) {
            Class::Fair => self.fair.select_task_rq_fair(cx, p, prev, flags),
            Class::Rt => self.rt.select_task_rq(cx, p, prev, flags),
            Class::Stop | Class::Idle => Placement { cpu: prev, rule: &PINNED },
        }
    }

    fn migrate_task_rq(&mut self, cx: &mut Cx, p: TaskId, new_cpu: Cpu) {
        if self.class(cx, p) == Class::Fair {
            self.fair.migrate_task_rq_fair(cx, p, new_cpu);
        }
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: EnqueueFlags) {
        let before = cx.sh.loads[cpu.ix()].nr_running;
        match self.class(cx, p) {
            Class::Fair => {
                self.fair.enqueue_task_fair(cx, cpu, p, flags);
                if self.rt.top_prio(cpu) > 0 {
                    self.server.starts(cx, cpu);
                }
            }
            Class::Rt => {
                self.rt.enqueue_task(cx, cpu, p);
                self.rt.is_put(cx, cpu);
            }
            Class::Stop => {
                cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
                self.stop[cpu.ix()] = p;
                cx.sh.loads[cpu.ix()].nr_running += 1;
            }
            Class::Idle => unreachable!("the idle task is never enqueued"),
        }
        nr_running_grew(cx, cpu, before);
    }

    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: DequeueFlags) -> bool {
        match self.class(cx, p) {
            Class::Fair => return self.fair.dequeue_task_fair(cx, cpu, p, flags),
            Class::Rt => self.rt.dequeue_task(cx, cpu, p),
            Class::Stop => {
                cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
                self.stop[cpu.ix()] = TaskId::NONE;
                cx.sh.loads[cpu.ix()].nr_running -= 1;
            }
            Class::Idle => unreachable!("the idle task is never dequeued"),
        }
        true
    }

    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: WakeFlags) {
        let curr = cx.sh.rqs[cpu.ix()].curr;
        let (ours, theirs) = (self.class(cx, p), self.class(cx, curr));
        if theirs == Class::Idle {
            cx.resched_curr(cpu, &WAS_IDLE);
        } else if ours > theirs && cx.sh.release.rule_on(&HIGHER_CLASS) {
            cx.resched_curr(cpu, &HIGHER_CLASS);
        } else if ours == theirs {
            match ours {
                Class::Fair => self.fair.wakeup_preempt_fair(cx, cpu, p, flags),
                Class::Rt => self.rt.wakeup_preempt(cx, cpu, p),
                Class::Stop | Class::Idle => {}
            }
        }
        if ours == Class::Rt && theirs >= Class::Rt {
            self.rt.task_woken(cx, cpu, p, &mut self.balancer.moved);
        }
        cx.preempt_check_done(cpu);
        if ours == Class::Rt {
            let pushed = self.balancer.moved.iter().map(|m| m.to);
            for put in std::iter::once(cpu).chain(pushed) {
                self.rt.is_put(cx, put);
            }
        }
    }

    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        cx.charge(Func::PickNext, cx.machine.costs.pick_base);
        let prev = cx.sh.rqs[cpu.ix()].curr;
        let stopper = self.stop[cpu.ix()];
        let left = cx.sh.tasks[prev.ix()].state != TaskState::Running;
        let prev_class = self.class(cx, prev);
        if left && prev_class >= Class::Rt && self.rt.needs_pull(cx, cpu, prev) {
            self.rt.pull(cx, cpu, &mut self.balancer.moved);
        }
        if !left && prev_class == Class::Rt {
            self.rt.update_curr(cx, cpu);
        }
        if stopper.is_some() {
            return self.next_above(cx, cpu, prev_class, stopper);
        }
        let rt = self.rt.first(cpu);
        if let Some(p) = rt
            && !self.is_served(cx, cpu)
        {
            return self.next_above(cx, cpu, prev_class, p);
        }
        let prev_se = match prev_class {
            Class::Fair => cx.sh.tasks[prev.ix()].se,
            Class::Idle => SeId::NONE,
            Class::Rt | Class::Stop => {
                self.server.rt_ends(cpu, cx.now);
                SeId::NONE
            }
        };
        match (self.fair.pick_next_task_fair(cx, cpu, prev_se), rt) {
            (Some(p), _) => Pick::Task(p),
            // Who was to be served was in delayed dequeue.
            (None, Some(p)) => self.next_above(cx, cpu, Class::Fair, p),
            (None, None) => Pick::Nothing,
        }
    }

    fn balance_callback(&mut self, cx: &mut Cx, cpu: Cpu) {
        if self.class(cx, cx.sh.rqs[cpu.ix()].curr) == Class::Rt {
            self.rt.push(cx, cpu, &mut self.balancer.moved);
        }
    }

    fn set_idle(&mut self, cx: &mut Cx, cpu: Cpu) {
        let prev = cx.sh.rqs[cpu.ix()].curr;
        self.put_prev(cx, prev);
        self.balancer.set_idle(cx, cpu);
    }

    fn is_delayed(&self, sh: &Shared, p: TaskId) -> bool {
        let se = sh.task(p).se;
        se.is_some() && self.fair.ses[se.ix()].sched_delayed
    }

    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8) {
        let (before, t) = (self.class(cx, p), cx.sh.task(p));
        let (nice, same_policy) = (t.nice, t.policy == policy);
        let same = match before {
            Class::Fair => prio == nice && !cx.sh.release.setscheduler_always_changes,
            _ => prio.max(1) as u8 == t.rt_priority,
        };
        if same_policy && same {
            return;
        }
        if before == Class::Rt && !policy.is_fair() {
            self.set_rt_priority(cx, p, policy, prio.max(1) as u8);
        } else {
            // `set_user_nice` keeps the place; `sched_setscheduler` does if the priority stays.
            let stays = same_policy || prio == nice;
            self.change(cx, p, stays && policy.is_fair(), |linux, cx| {
                let t = &mut cx.sh.tasks[p.ix()];
                t.policy = policy;
                if policy.is_fair() {
                    (t.nice, t.rt_priority) = (prio, 0);
                    let idle = policy == Policy::Idle;
                    linux.fair.set_task_weight(&cx.sh.release, t.se, prio, idle);
                } else {
                    t.rt_priority = prio.max(1) as u8;
                }
            });
        }
        let (queued, running) = self.is_on(cx, p);
        let (cpu, class) = (cx.sh.task(p).cpu, self.class(cx, p));
        match (before, class) {
            (Class::Fair, Class::Rt) if running => self.rt_begins(cx, cpu, before),
            (Class::Rt, Class::Fair) if running => self.server.rt_ends(cpu, cx.now),
            _ => {}
        }
        // `switched_to`, else `prio_changed` of its class.
        let beaten = match class {
            Class::Rt => self.rt.top_prio(cpu) > cx.sh.task(p).rt_priority,
            Class::Fair if before == class => prio > nice && self.fair.cfs[cpu.ix()].nr_queued > 1,
            Class::Fair => true,
            _ => false,
        };
        if running && (beaten || self.top_class(cpu) > class) {
            cx.resched_curr(cpu, &POLICY_CHANGED);
        } else if queued && !running {
            self.wakeup_preempt(cx, cpu, p, WakeFlags::default());
        }
    }

    /// A real-time task keeps its place among its equals (`DEQUEUE_SAVE` without `DEQUEUE_MOVE`).
    fn set_affinity(&mut self, cx: &mut Cx, p: TaskId, affinity: AffinityId, n: u16) {
        match self.class(cx, p) {
            Class::Fair => self.change(cx, p, true, |_, cx| cx.sh.tasks[p.ix()].allow(affinity, n)),
            _ => cx.sh.tasks[p.ix()].allow(affinity, n),
        }
    }

    fn set_task_group(&mut self, cx: &mut Cx, p: TaskId, tg: TgId) {
        self.change(cx, p, false, |_, cx| cx.sh.tasks[p.ix()].tg = tg);
        if self.is_on(cx, p).1 {
            cx.resched_curr(cx.sh.task(p).cpu, &GROUP_CHANGED);
        }
    }

    fn has_task_groups(&self) -> bool {
        true
    }

    fn yield_task(&mut self, cx: &mut Cx, cpu: Cpu) {
        let p = cx.sh.rqs[cpu.ix()].curr;
        match self.class(cx, p) {
            Class::Fair => self.fair.yield_task_fair(cx, cpu, p),
            Class::Rt => self.rt.yield_task(cpu, p),
            Class::Stop | Class::Idle => {}
        }
    }

    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        let rq = &mut cx.sh.rqs[cpu.ix()];
        rq.update_clock(cx.now);
        let p = rq.curr;
        match self.class(cx, p) {
            Class::Fair => {
                self.fair.task_tick_fair(cx, p);
                if self.server.serves(cpu) && self.server.ran(cpu, cx.now) {
                    cx.resched_curr(cpu, &BUDGET_USED);
                }
            }
            Class::Rt => {
                self.rt.task_tick(cx, cpu, p);
                if self.fair.cfs[cpu.ix()].h_nr_runnable > 0 {
                    self.server.starts(cx, cpu);
                }
            }
            Class::Stop | Class::Idle => {}
        }
        self.balancer.tick(cx, cpu)
    }

    fn timer(&mut self, cx: &mut Cx, cpu: Cpu) {
        self.rt.period(cx);
        self.server.timer(cx, cpu, self.fair.cfs[cpu.ix()].h_nr_runnable);
    }

    fn rt_throttled(&self, cpu: Cpu) -> bool {
        self.rt.throttle.is_throttled(cpu)
    }

    fn fair_goes_first(&self, cpu: Cpu) -> bool {
        self.server.serves(cpu)
    }

    fn warm(&mut self, cx: &Cx) {
        self.balancer.spread_clocks(cx);
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

    fn active_attach(&mut self, cx: &mut Cx, p: TaskId) {
        self.balancer.attach(&mut self.fair, cx, p);
    }

    fn domain_stats(&self) -> &[SdStats] {
        self.balancer.stats()
    }

    fn gate(
        &self,
        sh: &Shared,
        topo: &Topology,
        jiffies: u64,
        cpu: Cpu,
        p: TaskId,
    ) -> Option<Gate> {
        Some(self.balancer.gate(&self.fair, sh, topo, jiffies, cpu, p))
    }

    fn moved(&mut self) -> &mut Vec<Moved> {
        &mut self.balancer.moved
    }
}
