//! What a hook is given: the shared state, the machine to charge, and how to ask for a reschedule.

use crate::domains::Domains;
use crate::release::Release;
use crate::task::{Affinities, Rq, RqLoad, Task, Unfinished};
use vruntime_base::{Cause, Cpu, CpuMask, Func, Ledger, Noise, Ns, Resource, TaskId};
use vruntime_machine::{Line, Machine};

/// State that all schedulers share and that the rest of the kernel reads.
pub struct Shared {
    /// The release in force.
    pub release: Release,
    /// Scheduling domains of every CPU.
    pub domains: Domains,
    /// All tasks; the idle task of CPU n is task n.
    pub tasks: Vec<Task>,
    /// All CPUs.
    pub rqs: Vec<Rq>,
    /// What balancing scans, by CPU.
    pub loads: Vec<RqLoad>,
    /// Interned affinity masks.
    pub affinities: Affinities,
    /// What wakeups count, by slot of a CPU's domain ([`Domains::slots`]).
    pub wakes: Vec<WakeStats>,
    /// CPUs that stopped their tick, until their next busy tick (`nohz.idle_cpus_mask`).
    pub nohz_idle: CpuMask,
    /// Where CPU time went.
    pub ledger: Ledger,
    /// All randomness.
    pub noise: Noise,
    /// If a timeline is kept: whom the last hook accounted, for how long, and how many reschedules
    /// it had asked for before.
    pub accounted: Option<Vec<(TaskId, Ns, usize)>>,
    /// Timers that the last hook has started, on which CPU and for when; the driver empties it.
    pub timers: Vec<(Cpu, Ns)>,
}

/// Counters of wakeups in `/proc/schedstat`, for a domain of the waker's CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeStats {
    /// Wakeups on another CPU whose lowest common domain this is.
    pub ttwu_wake_remote: u64,
    /// Wakees that `wake_affine` pulled to this CPU.
    pub ttwu_move_affine: u64,
}

impl Shared {
    /// The task `p`.
    #[inline(always)]
    pub fn task(&self, p: TaskId) -> &Task {
        &self.tasks[p.ix()]
    }
    /// The CPU's shared part of the run queue.
    #[inline(always)]
    pub fn rq(&self, c: Cpu) -> &Rq {
        &self.rqs[c.ix()]
    }
    /// `rq->curr` is the idle task.
    #[inline(always)]
    pub fn curr_is_idle(&self, c: Cpu) -> bool {
        self.rqs[c.ix()].curr.0 == u32::from(c.0)
    }
    /// `idle_cpu()`: runs the idle task, has nothing queued and no wakeup on its list.
    #[inline(always)]
    pub fn idle_cpu(&self, c: Cpu) -> bool {
        let rq = &self.rqs[c.ix()];
        rq.curr.0 == u32::from(c.0) && self.loads[c.ix()].nr_running == 0 && !rq.ttwu_pending
    }
    /// `rq->nr_running` as it is found at `now` without the lock.
    #[inline(always)]
    pub fn seen_nr_running(&self, c: Cpu, now: Ns) -> u32 {
        let Unfinished { nr_running, nr_until, .. } = self.rqs[c.ix()].unfinished;
        if now < nr_until { nr_running } else { self.loads[c.ix()].nr_running }
    }
    /// `rq->ttwu_pending` as it is found at `now`.
    #[inline(always)]
    pub fn seen_pending(&self, c: Cpu, now: Ns) -> bool {
        let rq = &self.rqs[c.ix()];
        rq.ttwu_pending || now < rq.unfinished.pending_until
    }
    /// `idle_cpu()` as it is found at `now` without the lock.
    #[inline(always)]
    pub fn seen_idle_cpu(&self, c: Cpu, now: Ns) -> bool {
        self.curr_is_idle(c)
            && now >= self.rqs[c.ix()].unfinished.curr_until
            && self.seen_nr_running(c, now) == 0
            && !self.seen_pending(c, now)
    }
    /// `sched_idle_cpu()` as it is found at `now` without the lock.
    #[inline(always)]
    pub fn seen_sched_idle_cpu(&self, c: Cpu, now: Ns) -> bool {
        let nr_running = self.seen_nr_running(c, now);
        nr_running > 0 && nr_running == self.loads[c.ix()].idle_h_nr
    }
    /// `sched_idle_cpu()`: has tasks, and all of them are SCHED_IDLE.
    #[inline(always)]
    pub fn sched_idle_cpu(&self, c: Cpu) -> bool {
        let l = &self.loads[c.ix()];
        l.nr_running > 0 && l.nr_running == l.idle_h_nr
    }
    /// The CPUs `p` may run on.
    #[inline(always)]
    pub fn allowed(&self, p: TaskId) -> &CpuMask {
        self.affinities.get(self.tasks[p.ix()].affinity)
    }
}

/// The context of one call of a hook, on one CPU at one moment.
///
/// What the hook touches it charges here; the driver turns [`Cx::cost`] into elapsed time. What is
/// charged is booked in the ledger at once.
pub struct Cx<'a> {
    /// The moment of the call.
    pub now: Ns,
    /// The CPU that executes the code.
    pub cpu: Cpu,
    /// Shared state.
    pub sh: &'a mut Shared,
    /// The hardware.
    pub machine: &'a mut Machine,
    /// Time spent so far in this call, waiting included.
    pub cost: Ns,
    /// Slow-down of this CPU by a busy sibling: time per unit of work in 1/1024.
    pub slowdown: u32,
    /// Reschedules asked for, with the reason; the driver empties it.
    pub resched: &'a mut Vec<(Cpu, &'static Cause)>,
}

impl Cx<'_> {
    /// Spends `ns` of work at full speed in `func`.
    #[inline(always)]
    pub fn charge(&mut self, func: Func, ns: u32) {
        let d = Ns((u64::from(ns) * u64::from(self.slowdown)) >> 10);
        self.sh.ledger.book(self.cpu, func, Resource::None, d);
        self.cost += d;
    }
    /// Waits `d` in `func` for `on`.
    #[inline(always)]
    pub fn wait(&mut self, func: Func, on: Resource, d: Ns) {
        if d.0 != 0 {
            self.sh.ledger.book(self.cpu, func, on, d);
            self.cost += d;
        }
    }
    /// `func` reads `line`; the time goes under `on`.
    #[inline(always)]
    pub fn read(&mut self, line: Line, func: Func, on: Resource) {
        let c = self.machine.read(line, self.cpu);
        self.wait(func, on, c.own + c.wait);
    }
    /// `func` reads a CPU's lines for an idle test; the time goes under [`Resource::RqLine`].
    /// Without a share of a transfer to take, the line stays where it is.
    #[inline(always)]
    pub fn read_for_idle_test(&mut self, cpu: Cpu, func: Func) {
        let share = self.machine.costs.idle_test;
        if share == 0 {
            return;
        }
        let c = self.machine.read(Line::Rq(cpu), self.cpu);
        let own = c.own.permille(share);
        self.wait(func, Resource::RqLine, own + c.wait);
    }
    /// `func` reads `line` as one of many whose addresses are known beforehand: the CPU has several
    /// on their way at a time, so each takes `share` permille of what it would take alone. Without
    /// a share to take, the line stays where it is.
    #[inline(always)]
    pub fn read_in_turn(&mut self, line: Line, func: Func, share: u32) {
        if share == 0 {
            return;
        }
        let c = self.machine.read(line, self.cpu);
        self.wait(func, Resource::RqLine, c.total().permille(share));
    }
    /// `func` looks at the load of `cpu` as one of many.
    #[inline(always)]
    pub fn read_load_in_turn(&mut self, cpu: Cpu, func: Func) {
        let share = self.machine.costs.balance_scan;
        self.read_in_turn(Line::Rq(cpu), func, share);
        self.read_in_turn(Line::RqLoad(cpu), func, share);
    }
    /// `func` writes `line`; the time goes under `on`.
    #[inline(always)]
    pub fn write(&mut self, line: Line, func: Func, on: Resource) {
        let c = self.machine.write(line, self.cpu);
        self.wait(func, on, c.own + c.wait);
    }
    /// Asks for a reschedule of `cpu`; what that means is the preemption model's business. The
    /// first reason counts: nothing happens if a reschedule is due already.
    #[inline]
    pub fn resched_curr(&mut self, cpu: Cpu, why: &'static Cause) {
        if !self.need_resched(cpu) {
            self.resched.push((cpu, why));
        }
    }
    /// [`crate::scheduler::Scheduler::timer`] is to be called on `cpu` at `at`. Such a timer cannot
    /// be taken back.
    pub fn start_timer(&mut self, cpu: Cpu, at: Ns) {
        self.sh.timers.push((cpu, at));
    }
    /// A reschedule of `cpu` is due, or was asked for in this call.
    #[inline]
    pub fn need_resched(&self, cpu: Cpu) -> bool {
        self.sh.rqs[cpu.ix()].need_resched || self.resched.iter().any(|r| r.0 == cpu)
    }
    /// The last act of `wakeup_preempt` on `cpu`: if it is to reschedule, the time from here on is
    /// the next task's, not that of whoever runs now.
    #[inline]
    pub fn preempt_check_done(&mut self, cpu: Cpu) {
        let queued = self.sh.curr_is_idle(cpu) || self.sh.tasks[self.sh.rq(cpu).curr.ix()].on_rq;
        self.sh.rqs[cpu.ix()].skip_clock_update |= queued && self.need_resched(cpu);
    }
    /// `jiffies`.
    #[inline(always)]
    pub fn jiffies(&self) -> u64 {
        self.now.0 / self.sh.release.tick_ns()
    }
}
