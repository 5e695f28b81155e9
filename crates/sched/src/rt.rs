//! The real-time class: SCHED_FIFO and SCHED_RR.
//!
//! **What.** Every CPU keeps its RT tasks, the running one included, by priority and within a
//! priority in order of arrival; the first runs. FIFO tasks run until they block or yield, RR tasks
//! go behind their equals when their slice is used up. A task that has to wait is *pushed* to a CPU
//! whose work matters less, after a wakeup or a switch; a CPU that is about to run something less
//! important than before *pulls* one that waits elsewhere.
//! **Source.** Linux 6.1.192, kernel/sched/rt.c: `enqueue_task_rt`, `check_preempt_curr_rt`,
//! `task_tick_rt`, `select_task_rq_rt`, `find_lowest_rq`, `task_woken_rt`, `push_rt_task`,
//! `balance_rt`, `pull_rt_task`.
//! **Equations.** RR slice = 100 ms, counted in ticks.
//! **Departures.** D1: one sorted list a CPU instead of a bitmap over 100 lists; same order. D2:
//! push and pull take the other CPU's lock for nothing but the move itself, and wait for it only
//! while a task is being put on that queue; a pull goes to the other queues directly where
//! RT_PUSH_IPI asks them by interrupts, one after the other, and they push to whatever CPU matters
//! least. D3: `find_lowest_rq` takes the first fitting CPU after prev where the kernel, from 5.11
//! on, rotates. D4: a wakee of equal priority never moves ahead of a running task that could
//! migrate. D5: a task that leaves the class, or has a lower priority than before, pulls nothing.
//! **Example.** FIFO 50 runs; FIFO 50 wakes and may run here only: it queues behind. FIFO 51 wakes:
//! it runs at once, and the first is pushed to another CPU, or goes on when 51 blocks, before its
//! equal.

use crate::balance::nr_running_grew;
use crate::cx::Cx;
use crate::domains::SdFlags;
use crate::release::Release;
use crate::rt_throttle::Throttle;
use crate::scheduler::{Moved, Placement, WakeFlags};
use crate::task::Policy;
use std::collections::VecDeque;
use vruntime_base::{Cause, CauseKind, Cpu, Func, Ns, Resource, TaskId};

/// A task of higher priority woke up.
pub static HIGHER_PRIO: Cause = Cause::new(CauseKind::Resched, "rt: higher priority");
/// The slice of an RR task is used up, and an equal waits.
pub static RR_SLICE: Cause = Cause::new(CauseKind::Resched, "rt: round-robin slice used up");
/// The task stays where it was.
pub static RT_PREV: Cause = Cause::new(CauseKind::Placement, "rt: prev");
/// It goes to the CPU with the least important work.
pub static RT_LOWEST: Cause = Cause::new(CauseKind::Placement, "rt: lowest priority CPU");

/// A task of a higher priority than what runs was pushed or pulled here.
pub static RT_MOVED: Cause = Cause::new(CauseKind::Resched, "rt: pushed to a less important CPU");
/// It had to wait where it was and went to a CPU whose work matters less.
pub static RT_PUSH: Cause = Cause::new(CauseKind::Migration, "rt: push");
/// It had to wait, and this CPU was about to run something less important.
pub static RT_PULL: Cause = Cause::new(CauseKind::Migration, "rt: pull");

/// RT tasks have used what they may use of this period.
pub static THROTTLED: Cause = Cause::new(CauseKind::Resched, "rt: throttled");
/// The next period has begun.
pub static UNTHROTTLED: Cause = Cause::new(CauseKind::Resched, "rt: a new period");

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
    /// CPUs with two RT tasks or more (`rd->rto_count`).
    nr_overloaded: u32,
    /// Who may not run for now.
    pub throttle: Throttle,
    /// Until when what was last put on a queue is on its way, its lock held for that long.
    busy_until: Vec<Ns>,
}

impl Rt {
    /// No RT task anywhere.
    pub fn new(nr_cpus: usize, release: &Release) -> Rt {
        Rt {
            queues: vec![VecDeque::new(); nr_cpus],
            ticks_left: Vec::new(),
            nr_overloaded: 0,
            throttle: Throttle::new(nr_cpus, release),
            busy_until: vec![Ns::ZERO; nr_cpus],
        }
    }

    /// The task of `cpu` that runs next, if any may.
    #[inline(always)]
    pub fn first(&self, cpu: Cpu) -> Option<TaskId> {
        let first = self.queues[cpu.ix()].front()?;
        if self.throttle.is_throttled(cpu) { None } else { Some(first.p) }
    }

    /// A task has been put on the queue of `cpu`, as of all that this hook has cost so far.
    pub fn is_put(&mut self, cx: &Cx, cpu: Cpu) {
        let until = &mut self.busy_until[cpu.ix()];
        *until = (*until).max(cx.now + cx.cost);
    }

    /// Waits until what is on its way to `cpu` is there.
    pub fn wait_for(&self, cx: &mut Cx, cpu: Cpu) {
        let until = self.busy_until[cpu.ix()];
        cx.wait(Func::RqLock, Resource::RqLock, until.saturating_sub(cx.now + cx.cost));
    }

    /// `update_curr_rt`: the running task of `cpu` is of this class.
    pub fn update_curr(&mut self, cx: &mut Cx, cpu: Cpu) {
        if self.throttle.ran(cpu, cx.now) {
            cx.sh.loads[cpu.ix()].nr_running -= self.queues[cpu.ix()].len() as u32;
        }
        if self.throttle.is_throttled(cpu) {
            cx.resched_curr(cpu, &THROTTLED);
        }
    }

    /// The timer of the throttling has expired: who was throttled and may run counts again.
    pub fn period(&mut self, cx: &mut Cx) {
        let queues = &self.queues;
        for cpu in self.throttle.period(cx, |cpu| queues[cpu.ix()].len() as u32) {
            let before = cx.sh.loads[cpu.ix()].nr_running;
            cx.sh.loads[cpu.ix()].nr_running += self.queues[cpu.ix()].len() as u32;
            nr_running_grew(cx, cpu, before);
            let curr = cx.sh.task(cx.sh.rq(cpu).curr);
            if self.top_prio(cpu) > curr.rt_priority {
                cx.resched_curr(cpu, &UNTHROTTLED);
            }
        }
    }

    /// Priority of the most important task of `cpu`; 0 if there is none.
    #[inline]
    pub fn top_prio(&self, cpu: Cpu) -> u8 {
        self.queues[cpu.ix()].front().map_or(0, |e| e.prio)
    }

    fn push_tail(&mut self, cpu: Cpu, e: Entry) {
        let q = &mut self.queues[cpu.ix()];
        let i = q.partition_point(|o| o.prio >= e.prio);
        q.insert(i, e);
        self.nr_overloaded += u32::from(q.len() == 2);
    }

    fn remove(&mut self, cpu: Cpu, p: TaskId) -> Entry {
        let q = &mut self.queues[cpu.ix()];
        let i = q.iter().position(|e| e.p == p).expect("the RT task is queued on this CPU");
        self.nr_overloaded -= u32::from(q.len() == 2);
        q.remove(i).expect("the position was just found")
    }

    /// `enqueue_task_rt`.
    pub fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        cx.charge(Func::EnqueueTask, cx.machine.costs.enqueue_base);
        self.push_tail(cpu, Entry { prio: cx.sh.task(p).rt_priority, p });
        cx.sh.loads[cpu.ix()].nr_running += u32::from(!self.throttle.is_throttled(cpu));
        self.throttle.queued(cx);
    }

    /// `dequeue_task_rt`.
    pub fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        cx.charge(Func::DequeueTask, cx.machine.costs.dequeue_base);
        if cx.sh.rq(cpu).curr == p {
            self.update_curr(cx, cpu);
        }
        self.remove(cpu, p);
        cx.sh.loads[cpu.ix()].nr_running -= u32::from(!self.throttle.is_throttled(cpu));
    }

    /// `p`, queued on `cpu`, gets another priority: with the same it keeps its place, with a lower
    /// one it goes before its new equals, with a higher one behind them.
    pub fn change_prio(&mut self, cpu: Cpu, p: TaskId, prio: u8) {
        let q = &mut self.queues[cpu.ix()];
        let at = q.iter().position(|e| e.p == p).expect("the RT task is queued on this CPU");
        let before = q[at].prio;
        if before == prio {
            return;
        }
        q.remove(at);
        let lowered = prio < before;
        let at = q.partition_point(|o| o.prio > prio || (o.prio == prio && !lowered));
        q.insert(at, Entry { prio, p });
    }

    /// `yield_task_rt`: behind all equals.
    pub fn yield_task(&mut self, cpu: Cpu, p: TaskId) {
        let e = self.remove(cpu, p);
        self.push_tail(cpu, e);
    }

    /// `check_preempt_curr_rt`; both tasks are of this class.
    pub fn wakeup_preempt(&self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        let curr = cx.sh.rq(cpu).curr;
        let higher = cx.sh.task(p).rt_priority > cx.sh.task(curr).rt_priority;
        if higher && cx.sh.release.rule_on(&HIGHER_PRIO) {
            cx.resched_curr(cpu, &HIGHER_PRIO);
        }
    }

    /// `pick_next_pushable_task`: the most important task that waits on `cpu` beside `curr` and may
    /// run elsewhere; on `to`, if that is some CPU.
    fn pushable(&self, cx: &Cx, cpu: Cpu, curr: TaskId, to: Cpu) -> Option<Entry> {
        let free = |e: &&Entry| {
            let allowed = cx.sh.allowed(e.p);
            e.p != curr && if to.is_some() { allowed.has(to) } else { allowed.weight() > 1 }
        };
        self.queues[cpu.ix()].iter().find(free).copied()
    }

    /// `task_woken_rt`: the wakee was enqueued on `cpu` and has to wait for an RT task.
    pub fn task_woken(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, moved: &mut Vec<Moved>) {
        let curr = cx.sh.rq(cpu).curr;
        let (w, c) = (cx.sh.task(p), cx.sh.task(curr));
        let waits = p != curr && !cx.need_resched(cpu) && w.nr_cpus_allowed > 1;
        if waits && (c.nr_cpus_allowed < 2 || c.rt_priority >= w.rt_priority) {
            self.push(cx, cpu, moved);
        }
    }

    /// `push_rt_tasks`: as long as a waiting task finds a CPU whose work matters less, it goes
    /// there.
    pub fn push(&mut self, cx: &mut Cx, cpu: Cpu, moved: &mut Vec<Moved>) {
        let curr = cx.sh.rq(cpu).curr;
        while self.nr_overloaded > 0
            && cx.sh.release.rule_on(&RT_PUSH)
            && let Some(e) = self.pushable(cx, cpu, curr, Cpu::NONE)
        {
            if e.prio > cx.sh.task(curr).rt_priority {
                cx.resched_curr(cpu, &HIGHER_PRIO);
                return;
            }
            match self.find_lowest_rq(cx, e.p, cpu) {
                Some(to) if to != cpu => self.move_task(cx, e.p, cpu, to, &RT_PUSH, moved),
                _ => return,
            }
        }
    }

    /// `balance_rt`: `prev`, a stopper or an RT task, has left, and what is next on `cpu` matters
    /// less.
    pub fn needs_pull(&self, cx: &Cx, cpu: Cpu, prev: TaskId) -> bool {
        let prev = cx.sh.task(prev);
        let rule = cx.sh.release.rule_on(&RT_PULL);
        let less = prev.policy == Policy::Stop || self.top_prio(cpu) < prev.rt_priority;
        self.nr_overloaded > 0 && less && rule
    }

    /// `pull_rt_task`: from each overloaded CPU the task that has to wait there and matters more
    /// than anything here.
    pub fn pull(&mut self, cx: &mut Cx, cpu: Cpu, moved: &mut Vec<Moved>) {
        for from in (0..self.queues.len()).map(Cpu::from_ix) {
            if from == cpu || self.queues[from.ix()].len() < 2 {
                continue;
            }
            let curr = cx.sh.rq(from).curr;
            let Some(e) = self.pushable(cx, from, curr, cpu) else { continue };
            // It may be about to run where it is.
            let waits = e.prio <= cx.sh.task(curr).rt_priority;
            if waits && e.prio > self.top_prio(cpu) {
                self.move_task(cx, e.p, from, cpu, &RT_PULL, moved);
            }
        }
    }

    /// A waiting task goes from one queue to another and runs there next.
    fn move_task(
        &mut self,
        cx: &mut Cx,
        p: TaskId,
        from: Cpu,
        to: Cpu,
        cause: &'static Cause,
        moved: &mut Vec<Moved>,
    ) {
        self.wait_for(cx, from);
        self.wait_for(cx, to);
        self.dequeue_task(cx, from, p);
        let t = &mut cx.sh.tasks[p.ix()];
        (t.cpu, t.wake_cpu) = (to, to);
        let before = cx.sh.loads[to.ix()].nr_running;
        self.enqueue_task(cx, to, p);
        nr_running_grew(cx, to, before);
        self.is_put(cx, to);
        moved.push(Moved { task: p, from, to, cause });
        if cause.id == RT_PUSH.id {
            cx.resched_curr(to, &RT_MOVED);
        }
    }

    /// `task_tick_rt`.
    pub fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        self.update_curr(cx, cpu);
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
        let others = q.iter().filter(|e| e.prio == prio).count() > 1;
        if others && cx.sh.release.rule_on(&RR_SLICE) {
            self.yield_task(cpu, p);
            cx.resched_curr(cpu, &RR_SLICE);
        }
    }

    /// `select_task_rq_rt`.
    pub fn select_task_rq(&self, cx: &mut Cx, p: TaskId, prev: Cpu, flags: WakeFlags) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let stay = Placement { cpu: prev, rule: &RT_PREV };
        let (t, curr) = (cx.sh.task(p), cx.sh.task(cx.sh.rq(prev).curr));
        // A stopper is one, too, of the highest priority.
        let curr_is_rt = !curr.policy.is_fair();
        let must_share = curr.nr_cpus_allowed < 2 || curr.rt_priority >= t.rt_priority;
        if flags.exec || !(curr_is_rt && must_share) {
            return stay;
        }
        match self.find_lowest_rq(cx, p, prev) {
            _ if !cx.sh.release.rule_on(&RT_LOWEST) => stay,
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
            let from = if cx.sh.release.rt_lowest_rotates { prev.ix() + 1 } else { 0 };
            if let Some(c) = sd.span.iter_wrap(from).find(lowest) {
                return Some(c);
            }
        }
        if lowest(&cx.cpu) { Some(cx.cpu) } else { allowed.iter().find(lowest) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
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

    /// A runs, B and C wait, all at 50, D at 40. Round-robin at 50 keeps A's place. At 40 it makes
    /// room for the other two and goes before D, who has been at 40 all the time.
    #[test]
    fn a_lower_priority_goes_before_its_equals() {
        let mut lab = lab();
        let [a, b, c, d] = [50, 50, 50, 40].map(|prio| rt_on(&mut lab, Cpu(0), prio));
        assert_eq!(lab.schedule(Cpu(0)), a);
        lab.sh.rqs[0].need_resched = false;
        let mut change = |policy, prio| {
            lab.hook(Cpu(0), |s, cx| {
                crate::scheduler::Scheduler::set_policy(s, cx, a, policy, prio)
            });
            lab.sh.rqs[0].need_resched
        };
        assert!(!change(Policy::Fifo, 50) && !change(Policy::Rr, 50));
        assert!(change(Policy::Fifo, 40));
        assert_eq!(lab.schedule(Cpu(0)), b);
        assert_eq!([(); 3].map(|()| lab.sleep(Cpu(0))), [c, a, d]);
    }

    /// A stopper is a real-time task of the highest priority that may not leave.
    #[test]
    fn who_wakes_under_a_stopper_goes_elsewhere() {
        for policy in [Policy::Stop, Policy::Normal] {
            let mut lab = lab();
            let stopper = lab.spawn(Cpu(0), 0, TgId(0));
            pin(&mut lab, stopper, &[0]);
            lab.schedule(Cpu(0));
            let t = &mut lab.sh.tasks[stopper.ix()];
            (t.policy, t.rt_priority) = (policy, if policy.is_fair() { 0 } else { 99 });
            let p = lab.spawn(Cpu(1), 0, TgId(0));
            let t = &mut lab.sh.tasks[p.ix()];
            (t.policy, t.rt_priority) = (Policy::Fifo, 50);
            let place = lab.hook(Cpu(0), |s, cx| {
                s.rt.select_task_rq(cx, p, Cpu(0), crate::scheduler::WakeFlags::default())
            });
            assert_eq!(place.rule.id == super::RT_PREV.id, policy.is_fair());
        }
    }

    #[test]
    fn rt_beats_fair_and_fair_never_preempts_it() {
        let mut lab = lab();
        lab.spawn(Cpu(0), -20, TgId(0));
        lab.schedule(Cpu(0));
        let r = rt(&mut lab, Policy::Fifo, 1);
        assert!(lab.sh.rqs[0].need_resched);
        assert_eq!(lab.schedule(Cpu(0)), r);
        lab.spawn(Cpu(0), -20, TgId(0));
        assert!(!lab.sh.rqs[0].need_resched);
        lab.sleep(Cpu(0));
        assert_ne!(lab.curr(Cpu(0)), r);
        crate::fair::tests::check_invariants(&lab);
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

    /// 50 is on CPU 0 alone when 60 is enqueued there. Once 60 runs, 50 is pushed to CPU 1, which
    /// has nothing; bound to CPU 0 it waits.
    #[test]
    fn the_preempted_is_pushed() {
        for bound in [false, true] {
            let mut lab = lab();
            let a = rt(&mut lab, Policy::Fifo, 50);
            if bound {
                pin(&mut lab, a, &[0]);
            }
            assert_eq!(lab.schedule(Cpu(0)), a);
            let b = rt(&mut lab, Policy::Fifo, 60);
            assert_eq!(lab.schedule(Cpu(0)), b);
            lab.hook(Cpu(0), |s, cx| crate::scheduler::Scheduler::balance_callback(s, cx, Cpu(0)));
            let to = if bound { Cpu(0) } else { Cpu(1) };
            assert_eq!(lab.sh.tasks[a.ix()].cpu, to);
            assert_eq!(lab.sh.loads[to.ix()].nr_running, 1 + u32::from(bound));
            assert_eq!(lab.sh.rqs[1].need_resched, !bound);
        }
    }

    /// All CPUs but 0 and 1 run FIFO 90. 50 and 40 are on CPU 0, 45 runs on 1. When 45 sleeps CPU 1
    /// pulls 40, which waits; 50 runs and stays. Where 40 may not go, nothing happens.
    #[test]
    fn a_cpu_pulls_when_its_work_matters_less() {
        for bound in [false, true] {
            let mut lab = lab();
            let a = rt(&mut lab, Policy::Fifo, 50);
            pin(&mut lab, a, &[0]);
            assert_eq!(lab.schedule(Cpu(0)), a);
            let c = rt_on(&mut lab, Cpu(1), 45);
            assert_eq!(lab.schedule(Cpu(1)), c);
            let b = rt_on(&mut lab, Cpu(0), 40);
            pin(&mut lab, b, if bound { &[0] } else { &[0, 1] });
            let next = lab.sleep(Cpu(1));
            assert_eq!(next, if bound { TaskId(1) } else { b });
            assert_eq!(lab.sh.tasks[b.ix()].cpu, if bound { Cpu(0) } else { Cpu(1) });
        }
    }

    /// FIFO 50 runs on CPU 4, and 40 is to wake there, from CPU 5 under FIFO 60: any of the idle
    /// ones. D3, and 5.x: the lowest number.
    #[test]
    pub(crate) fn in_5_x_the_lowest_number_is_taken() {
        for (release, to) in [(sample::v5_7(), 0), (sample::v6_1(), 6)] {
            let mut lab = Lab::new(release, "uma-8");
            for (cpu, prio) in [(4, 50), (5, 60)] {
                rt_on(&mut lab, Cpu(cpu), prio);
                lab.schedule(Cpu(cpu));
            }
            let p = lab.spawn(Cpu(7), 0, TgId(0));
            let t = &mut lab.sh.tasks[p.ix()];
            (t.policy, t.rt_priority) = (Policy::Fifo, 40);
            let place = lab.hook(Cpu(5), |s, cx| {
                s.rt.select_task_rq(cx, p, Cpu(4), crate::scheduler::WakeFlags::default())
            });
            assert_eq!(place.cpu, Cpu(to));
        }
    }

    fn rt_on(lab: &mut Lab, cpu: Cpu, prio: i8) -> TaskId {
        let p = lab.spawn(cpu, 0, TgId(0));
        pin(lab, p, &[cpu.0]);
        lab.hook(cpu, |s, cx| {
            crate::scheduler::Scheduler::set_policy(s, cx, p, Policy::Fifo, prio)
        });
        p
    }

    fn pin(lab: &mut Lab, p: TaskId, cpus: &[u16]) {
        let mask = cpus.iter().map(|c| Cpu(*c)).collect();
        lab.sh.tasks[p.ix()].allow(lab.sh.affinities.intern(mask), cpus.len() as u16);
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
