//! The real-time class: SCHED_FIFO and SCHED_RR.
//!
//! **What.** Every CPU keeps its RT tasks, the running one included, by priority and within a
//! priority in order of arrival; the first runs. FIFO tasks run until they block or yield, RR tasks
//! go behind their equals when their slice is used up.
//! **Source.** Linux 6.1.192, kernel/sched/rt.c: `enqueue_task_rt`, `check_preempt_curr_rt`,
//! `task_tick_rt`, `select_task_rq_rt`, `find_lowest_rq`.
//! **Equations.** RR slice = 100 ms, counted in ticks.
//! **Departures.** D1: one sorted list a CPU instead of a bitmap over 100 lists; same order. D2: no
//! push and pull: a waking task is placed once and then stays until it sleeps. D3:
//! `find_lowest_rq` takes the first fitting CPU after prev where the kernel rotates. D4: no
//! throttling. D5: a wakee of equal priority never moves ahead of a running task that could
//! migrate.
//! **Example.** FIFO 50 runs; FIFO 50 wakes: it queues behind. FIFO 51 wakes: it runs at once, and
//! the first goes on when it blocks, before its equal.

use crate::cx::Cx;
use crate::domains::SdFlags;
use crate::scheduler::{EnqueueFlags, Placement, WakeFlags};
use crate::task::Policy;
use std::collections::VecDeque;
use vruntime_base::{Cause, CauseKind, Cpu, Func, TaskId};

/// A task of higher priority woke up.
pub static HIGHER_PRIO: Cause = Cause::new(CauseKind::Resched, "rt: higher priority");
/// The slice of an RR task is used up, and an equal waits.
pub static RR_SLICE: Cause = Cause::new(CauseKind::Resched, "rt: round-robin slice used up");
/// The task stays where it was.
pub static RT_PREV: Cause = Cause::new(CauseKind::Placement, "rt: prev");
/// It goes to the CPU with the least important work.
pub static RT_LOWEST: Cause = Cause::new(CauseKind::Placement, "rt: lowest priority CPU");

/// RR slice in ms.
const RR_TIMESLICE_MS: u32 = 100;

#[derive(Clone, Copy, Debug)]
struct Entry {
    prio: u8,
    p: TaskId,
}

/// The RT class of all CPUs.
pub struct Rt {
    queues: Vec<VecDeque<Entry>>,
    /// Ticks left of an RR task's slice, by task.
    ticks_left: Vec<u16>,
}

impl Rt {
    /// No RT task anywhere.
    pub fn new(nr_cpus: usize) -> Rt {
        Rt { queues: vec![VecDeque::new(); nr_cpus], ticks_left: Vec::new() }
    }

    /// The most important task of `cpu`.
    #[inline(always)]
    pub fn first(&self, cpu: Cpu) -> Option<TaskId> {
        self.queues[cpu.ix()].front().map(|e| e.p)
    }

    /// Priority of the most important task of `cpu`; 0 if there is none.
    #[inline]
    fn top_prio(&self, cpu: Cpu) -> u8 {
        self.queues[cpu.ix()].front().map_or(0, |e| e.prio)
    }

    fn push_tail(&mut self, cpu: Cpu, e: Entry) {
        let q = &mut self.queues[cpu.ix()];
        let i = q.partition_point(|o| o.prio >= e.prio);
        q.insert(i, e);
    }

    fn remove(&mut self, cpu: Cpu, p: TaskId) -> Entry {
        let q = &mut self.queues[cpu.ix()];
        let i = q.iter().position(|e| e.p == p).expect("the RT task is queued on this CPU");
        q.remove(i).expect("the position was just found")
    }

    /// `enqueue_task_rt`.
    pub fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, _flags: EnqueueFlags) {
        cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
        self.push_tail(cpu, Entry { prio: cx.sh.task(p).rt_priority, p });
        cx.sh.loads[cpu.ix()].nr_running += 1;
    }

    /// `dequeue_task_rt`.
    pub fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
        self.remove(cpu, p);
        cx.sh.loads[cpu.ix()].nr_running -= 1;
    }

    /// `yield_task_rt`: behind all equals.
    pub fn yield_task(&mut self, cpu: Cpu, p: TaskId) {
        let e = self.remove(cpu, p);
        self.push_tail(cpu, e);
    }

    /// `check_preempt_curr_rt`; both tasks are of this class.
    pub fn wakeup_preempt(&self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        let curr = cx.sh.rq(cpu).curr;
        if cx.sh.task(p).rt_priority > cx.sh.task(curr).rt_priority {
            cx.resched_curr(cpu, &HIGHER_PRIO);
        }
    }

    /// `task_tick_rt`.
    pub fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        if cx.sh.task(p).policy != Policy::Rr {
            return;
        }
        if self.ticks_left.len() <= p.ix() {
            self.ticks_left.resize(p.ix() + 1, 0);
        }
        let slice = (RR_TIMESLICE_MS * cx.sh.release.hz / 1000).max(1) as u16;
        let left = &mut self.ticks_left[p.ix()];
        if *left == 0 {
            *left = slice;
        }
        *left -= 1;
        if *left != 0 {
            return;
        }
        *left = slice;
        let q = &self.queues[cpu.ix()];
        let prio = cx.sh.task(p).rt_priority;
        if q.iter().filter(|e| e.prio == prio).count() > 1 {
            self.yield_task(cpu, p);
            cx.resched_curr(cpu, &RR_SLICE);
        }
    }

    /// `select_task_rq_rt`.
    pub fn select_task_rq(&self, cx: &mut Cx, p: TaskId, prev: Cpu, flags: WakeFlags) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let stay = Placement { cpu: prev, rule: &RT_PREV };
        let (t, curr) = (cx.sh.task(p), cx.sh.task(cx.sh.rq(prev).curr));
        let curr_is_rt = matches!(curr.policy, Policy::Fifo | Policy::Rr);
        let must_share = curr.nr_cpus_allowed < 2 || curr.rt_priority >= t.rt_priority;
        if flags.exec || !(curr_is_rt && must_share) {
            return stay;
        }
        match self.find_lowest_rq(cx, p, prev) {
            Some(cpu) if self.top_prio(cpu) < t.rt_priority => Placement { cpu, rule: &RT_LOWEST },
            _ => stay,
        }
    }

    /// `find_lowest_rq`: a CPU whose most important task matters least, near `prev`.
    fn find_lowest_rq(&self, cx: &Cx, p: TaskId, prev: Cpu) -> Option<Cpu> {
        let allowed = cx.sh.allowed(p);
        let least = allowed.iter().map(|c| self.top_prio(c)).min()?;
        if least >= cx.sh.task(p).rt_priority {
            return None;
        }
        let lowest = |c: &Cpu| allowed.has(*c) && self.top_prio(*c) == least;
        if lowest(&prev) {
            return Some(prev);
        }
        let domains = &cx.sh.domains;
        for slot in domains.slots(prev) {
            let sd = domains.at(slot);
            if !sd.flags.has(SdFlags::WAKE_AFFINE) {
                continue;
            }
            if sd.span.has(cx.cpu) && lowest(&cx.cpu) {
                return Some(cx.cpu);
            }
            if let Some(c) = sd.span.iter_wrap(prev.ix() + 1).find(lowest) {
                return Some(c);
            }
        }
        if lowest(&cx.cpu) { Some(cx.cpu) } else { allowed.iter().find(lowest) }
    }
}

#[cfg(test)]
mod tests {
    use crate::fair::tests::Lab;
    use crate::sample;
    use crate::task::{Policy, TgId};
    use vruntime_base::{Cpu, TaskId};

    fn rt(lab: &mut Lab, policy: Policy, prio: i8) -> TaskId {
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        lab.hook(Cpu(0), |s, cx| crate::scheduler::Scheduler::set_policy(s, cx, p, policy, prio));
        p
    }

    fn lab() -> Lab {
        Lab::new(sample::v6_12(), "uma-8")
    }

    #[test]
    fn higher_priority_first_equals_in_order_of_arrival() {
        let mut lab = lab();
        let (a, b) = (rt(&mut lab, Policy::Fifo, 50), rt(&mut lab, Policy::Fifo, 50));
        assert_eq!(lab.schedule(Cpu(0)), a);
        lab.sh.rqs[0].need_resched = false;
        let c = rt(&mut lab, Policy::Fifo, 51);
        assert!(lab.sh.rqs[0].need_resched);
        assert_eq!(lab.schedule(Cpu(0)), c);
        assert_eq!(lab.sleep(Cpu(0)), a, "the preempted goes on before its equal");
        assert_eq!(lab.sleep(Cpu(0)), b);
        assert_eq!(lab.sleep(Cpu(0)), TaskId(0));
        assert_eq!(lab.sh.loads[0].nr_running, 0);
    }

    #[test]
    fn rt_beats_fair_and_fair_never_preempts_it() {
        let mut lab = lab();
        let f = lab.spawn(Cpu(0), -20, TgId(0));
        lab.schedule(Cpu(0));
        let r = rt(&mut lab, Policy::Fifo, 1);
        assert!(lab.sh.rqs[0].need_resched);
        assert_eq!(lab.schedule(Cpu(0)), r);
        lab.spawn(Cpu(0), -20, TgId(0));
        assert!(!lab.sh.rqs[0].need_resched);
        lab.sleep(Cpu(0));
        assert_ne!(lab.curr(Cpu(0)), r);
        crate::fair::tests::check_invariants(&lab);
        let _ = f;
    }

    /// 100 ms at 250 Hz are 25 ticks; a FIFO equal would have run for ever.
    #[test]
    fn round_robin_takes_turns_of_100_ms() {
        let mut lab = lab();
        let (a, b) = (rt(&mut lab, Policy::Rr, 10), rt(&mut lab, Policy::Rr, 10));
        assert_eq!(lab.schedule(Cpu(0)), a);
        let mut ticks = 0;
        while !lab.sh.rqs[0].need_resched {
            lab.pass(4_000_000);
            lab.tick(Cpu(0));
            ticks += 1;
        }
        assert_eq!((ticks, lab.schedule(Cpu(0))), (25, b));
    }

    #[test]
    fn a_running_task_changes_its_class_and_back() {
        for release in [sample::v6_1(), sample::v6_12()] {
            let mut lab = Lab::new(release, "uma-8");
            let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
            let p = lab.schedule(Cpu(0));
            let other = if p == a { b } else { a };
            for (policy, prio) in [(Policy::Fifo, 9), (Policy::Normal, 5), (Policy::Batch, -3)] {
                lab.pass(100_000);
                lab.hook(Cpu(0), |s, cx| {
                    crate::scheduler::Scheduler::set_policy(s, cx, p, policy, prio)
                });
                assert_eq!(lab.sh.loads[0].nr_running, 2);
                if policy.is_fair() {
                    crate::fair::tests::check_invariants(&lab);
                    assert_eq!(lab.linux.fair.cfs[0].curr, lab.sh.tasks[p.ix()].se);
                }
            }
            lab.sleep(Cpu(0));
            assert_eq!(lab.curr(Cpu(0)), other);
        }
    }
}
