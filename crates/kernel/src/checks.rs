//! Checkers that look at a run from outside, once a millisecond.
//!
//! *What.* Is every runnable task on exactly one run queue; does a CPU stay stopped that has been
//! asked to reschedule or has a softirq raised; does an idle CPU sit beside a waiting task of its
//! LLC, and for how long; does an RT task wait while a CPU that it may use runs something less
//! important; is the ledger closed. In debug builds, too, at each step of a task: did it wake one
//! of those that slept for its mutex.
//! *Source.* ARCHITECTURE.md, invariant 6.
//! *Equations.* On each CPU: tasks with `on_rq` there = `rq->nr_running`.
//! *Departures.* D1: a task that is on its way from one queue to another is on none; how long is
//! not looked at.
//! *Example.* A scheduler that forgets a preempted task: `nr_running` says 1, two tasks say
//! `on_rq`.

use crate::program::Op;
use crate::sim::{Channel, Sim};
use crate::task::Step;
use vruntime_base::{Cpu, Ns, TaskId};
use vruntime_sched::balance::gate::Gate;
use vruntime_sched::task::TaskState;

/// What the checkers found; all zero is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Looks at which a CPU's `nr_running` did not fit its tasks.
    pub nr_running_wrong: u64,
    /// Looks at which a CPU was stopped with tasks on its queue and nobody to tell it, or with a
    /// softirq raised.
    pub stopped_with_work: u64,
    /// The longest time that a runnable task waited while a CPU of its LLC that it may use was
    /// idle, to a millisecond.
    pub idle_beside_waiting: Ns,
    /// The task that waited so long.
    pub waiting_task: TaskId,
    /// What kept that CPU from pulling it; of several idle CPUs, the one that came closest.
    pub gate: Option<Gate>,
    /// The longest time that an RT task waited while a CPU that it may use ran nothing of its
    /// priority or above, to a millisecond.
    pub rt_beside_lower: Ns,
    /// The largest gap of the ledger.
    pub ledger_gap: u64,
}

/// State of the checkers between two looks.
pub(crate) struct Checker {
    pub report: CheckReport,
    /// By task: since when it has been waiting beside an idle CPU.
    since: Vec<Ns>,
    /// By task: since when it, an RT task, has been waiting beside less important work.
    rt_since: Vec<Ns>,
}

/// How long a wait has lasted by the look at `t`, which is since `since`; the task has been
/// runnable since `began`. Who has run since the last look waits anew.
fn waited(since: &mut Ns, waits: bool, began: Ns, t: Ns) -> Ns {
    *since = if waits { Ns(since.0.min(t.0).max(began.0)) } else { Ns::NEVER };
    t.saturating_sub(*since)
}

impl Default for Checker {
    fn default() -> Self {
        let report = CheckReport {
            nr_running_wrong: 0,
            stopped_with_work: 0,
            idle_beside_waiting: Ns::ZERO,
            waiting_task: TaskId::NONE,
            gate: None,
            rt_beside_lower: Ns::ZERO,
            ledger_gap: 0,
        };
        Checker { report, since: Vec::new(), rt_since: Vec::new() }
    }
}

impl Sim {
    /// One look at time `t`.
    pub(crate) fn check(&mut self, k: &mut Checker, t: Ns) {
        self.settle_all(t);
        let nr_cpus = self.cpus.len();
        k.since.resize(self.tasks.len(), Ns::NEVER);
        k.rt_since.resize(self.tasks.len(), Ns::NEVER);
        let mut count = vec![0u32; nr_cpus];
        for (i, task) in self.sh.tasks.iter().enumerate().skip(nr_cpus) {
            let is_rt = task.policy.is_rt();
            let throttled = is_rt && self.sched.rt_throttled(task.cpu);
            let on_rq = task.on_rq && !task.migrating;
            if on_rq && !throttled {
                count[task.cpu.ix()] += 1;
            }
            let waits = on_rq
                && !throttled
                && task.state == TaskState::Running
                && self.sh.rqs[task.cpu.ix()].curr != TaskId::from_ix(i);
            let idle_near = waits && {
                let near =
                    self.machine.topo.llc(task.cpu).and(self.sh.affinities.get(task.affinity));
                let open = |c: Cpu| !is_rt || !self.sched.rt_throttled(c);
                near.iter()
                    .any(|c| self.cpus[c.ix()].is_stopped() && self.sh.idle_cpu(c) && open(c))
            };
            let rt_waits = waits
                && is_rt
                && self.sh.affinities.get(task.affinity).iter().any(|c| {
                    let curr = &self.sh.tasks[self.sh.rqs[c.ix()].curr.ix()];
                    let served = self.sched.fair_goes_first(c) && !self.sh.curr_is_idle(c);
                    let open = !served && !self.sched.rt_throttled(c);
                    open && curr.rt_priority < task.rt_priority
                });
            let began = self.tasks[i].runnable_since;
            let rt_waited = waited(&mut k.rt_since[i], rt_waits, began, t);
            k.report.rt_beside_lower = k.report.rt_beside_lower.max(rt_waited);
            let waited = waited(&mut k.since[i], idle_near, began, t);
            if waited > k.report.idle_beside_waiting {
                k.report.idle_beside_waiting = waited;
                k.report.waiting_task = TaskId::from_ix(i);
                k.report.gate = self.gate(TaskId::from_ix(i), t);
            }
        }
        for (c, &n) in count.iter().enumerate() {
            let cpu = &self.cpus[c];
            let rq = &self.sh.rqs[c];
            // Somebody has told it, and nothing is on its way there that makes it look.
            let told = rq.need_resched || !cpu.wake_list.is_empty();
            let lost = told && cpu.ipi_at >= Ns::NEVER;
            let not_told = n > 0 && !rq.need_resched;
            let has_work = lost || not_told || cpu.softirq || cpu.nohz_kick || cpu.kicked;
            let r = &mut k.report;
            r.nr_running_wrong += u64::from(n != self.sh.loads[c].nr_running);
            r.stopped_with_work += u64::from(cpu.is_stopped() && has_work);
        }
        let gap = (0..nr_cpus).map(|c| self.ledger_gap(Cpu::from_ix(c))).max().unwrap_or(0);
        k.report.ledger_gap = k.report.ledger_gap.max(gap);
    }

    /// Who runs on `c` was the last to hold a mutex, which it has released; tasks sleep for it, and
    /// none of them has been woken: that one would be on its way and not in the queue.
    pub(crate) fn forgot_sleepers(&self, c: Cpu) -> bool {
        let p = self.curr(c);
        let ch = self.cpus[c.ix()].mutex;
        let Some(Channel::Pipe(pipe)) = self.channels.get(ch.ix()).filter(|_| ch.is_some()) else {
            return false;
        };
        let m = &pipe.mutex;
        let mine = m.owner == p && m.free_at <= self.now && m.spin_head.is_none();
        if !mine || m.sleepers.is_empty() || self.tasks[p.ix()].step != Step::Begin {
            return false;
        }
        let wants =
            |op| matches!(op, Op::Write { to: x, .. } | Op::Read { from: x, .. } if x == ch);
        let tries = self.tasks.iter().filter(|k| k.step == Step::MutexRetry && wants(k.op)).count();
        tries == m.sleepers.len(&self.tasks)
    }

    /// What keeps the idle CPUs of the LLC of `p`, which waits, from pulling it.
    fn gate(&self, p: TaskId, t: Ns) -> Option<Gate> {
        let (topo, task) = (&self.machine.topo, self.sh.task(p));
        let near = topo.llc(task.cpu).and(self.sh.affinities.get(task.affinity));
        let jiffies = t.0 / self.sh.release.tick_ns();
        near.iter()
            .filter(|&c| self.cpus[c.ix()].is_stopped() && self.sh.idle_cpu(c))
            .filter_map(|c| self.sched.gate(&self.sh, topo, jiffies, c, p))
            .max_by_key(|gate| gate.held.order())
    }

    /// Booked time of `c` that is neither elapsed nor planned.
    pub(crate) fn ledger_gap(&self, c: Cpu) -> u64 {
        let booked = self.sh.ledger.total(c);
        (self.now + self.cpus[c.ix()].planned(self.now)).0.abs_diff(booked.0)
    }
}
