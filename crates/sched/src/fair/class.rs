//! The hooks of the fair class: tasks, over all levels of the hierarchy.
//!
//! **What.** A task's enqueue goes up level by level until a group entity is queued already; above
//! that only averages and weights change. Picking goes down from the root queue.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `enqueue_task_fair`,
//! `dequeue_task_fair`, `dequeue_entities`, `pick_next_task_fair`, `put_prev_task_fair`,
//! `set_next_task_fair`, `task_tick_fair`, `yield_task_fair`, `task_fork_fair`,
//! `migrate_task_rq_fair`, `check_preempt_wakeup`.
//! **Equations.** None of its own.
//! **Departures.** D1: no bandwidth control, no core scheduling. D2: an entity that is only
//! compared (SCHED_IDLE against others) has its runtime accounted as well. D3: the own work of
//! load tracking is charged for each level of an enqueue, a dequeue and a tick; what a switch does
//! of it is part of the pick. D4: every level is charged alike (`level`, `pick_level`): those above
//! a group entity that stays queued have no tree work (`tick_level` is a level without it), and a
//! switch within a group puts and sets nothing above it.
//! **Example.** Task A of group G blocks; it was the only one: G's entity leaves the root queue,
//! too.

use super::cfs::{PreemptDecision, PreemptView};
use super::eevdf::reweighted;
use super::entity::LeaveFlags;
use super::load::UPDATE_TG;
use super::{CfsId, Fair, SeId, weight};
use crate::cx::{Cx, Shared};
use crate::release::Release;
use crate::scheduler::{DequeueFlags, EnqueueFlags, WakeFlags};
use crate::task::{Policy, TaskState};
use vruntime_base::{Cause, Cpu, Func, Ns, TaskId, VTime};

/// Flags of a group entity that is queued because a task below it is.
const AS_WAKEUP: EnqueueFlags =
    EnqueueFlags { wakeup: true, migrated: false, initial: false, delayed: false };

/// How the counts of tasks in the hierarchy change.
#[derive(Clone, Copy)]
struct Delta {
    queued: u32,
    runnable: u32,
    idle: u32,
}

impl Fair {
    #[inline]
    fn levels(&self, se: SeId) -> u32 {
        u32::from(self.ses[se.ix()].depth) + 1
    }

    /// Spends the work of `func` on `se` and the groups above it: `base` once, `level` and load
    /// tracking for each.
    #[inline(always)]
    fn charge_levels(&self, cx: &mut Cx, func: Func, se: SeId, base: u32, level: u32) {
        let levels = self.levels(se);
        cx.charge(func, base + level * levels);
        cx.charge(Func::UpdateLoadAvg, cx.machine.costs.pelt * levels);
    }

    /// `enqueue_task_fair`.
    pub fn enqueue_task_fair(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: EnqueueFlags) {
        let t = &cx.sh.tasks[p.ix()];
        let task_se = t.se;
        let idle = u32::from(t.policy == Policy::Idle);
        self.set_task_rq(task_se, t.tg, cpu);
        let costs = &cx.machine.costs;
        self.charge_levels(cx, Func::EnqueueTask, task_se, costs.enqueue_base, costs.level);
        let still_delayed = self.ses[task_se.ix()].sched_delayed && !flags.delayed;
        if !still_delayed {
            self.util_est_enqueue(cx.sh, cpu, p);
        }
        if flags.delayed {
            self.requeue_delayed_entity(cx, task_se);
            self.for_each_queue(task_se, |q| q.h_nr_runnable += 1);
            self.mirror_counts(cx.sh, cpu);
            return;
        }
        let mut d = Delta { queued: 1, runnable: u32::from(!still_delayed), idle };
        let min_slice = cx.sh.release.group_min_slice;
        let mut slice = None;
        let mut flags = flags;
        let mut se = task_se;
        while se.is_some() && !self.ses[se.ix()].on_rq {
            if let (true, Some(slice)) = (min_slice, slice) {
                self.set_slice(se, slice);
                self.ses[se.ix()].custom_slice = true;
            }
            self.enqueue_entity(cx, se, flags);
            flags = AS_WAKEUP;
            slice = self.count_up(se, &mut d);
            se = self.ses[se.ix()].parent;
        }
        if se.is_some() && self.ses[se.ix()].sched_delayed {
            self.requeue_delayed_entity(cx, se);
        }
        while se.is_some() {
            self.update_ancestor(cx, se, min_slice, slice);
            slice = self.count_up(se, &mut d);
            se = self.ses[se.ix()].parent;
        }
        cx.sh.loads[cpu.ix()].nr_running += 1;
        self.mirror_counts(cx.sh, cpu);
        cx.sh.cfs_tasks_add(cpu, p);
    }

    /// Counts a task in the queue of `se`; returns the queue's shortest slice.
    #[inline]
    fn count_up(&mut self, se: SeId, d: &mut Delta) -> Option<u64> {
        let cfs = self.ses[se.ix()].cfs_rq;
        let q = &mut self.cfs[cfs.ix()];
        q.h_nr_queued += d.queued;
        q.h_nr_runnable += d.runnable;
        q.idle_h_nr += d.idle;
        if self.cfs_rq_is_idle(cfs) {
            d.idle = d.queued;
        }
        if self.eevdf { self.min_slice(cfs) } else { None }
    }

    #[inline]
    fn count_down(&mut self, cfs: CfsId, d: &mut Delta) {
        let q = &mut self.cfs[cfs.ix()];
        q.h_nr_queued -= d.queued;
        q.h_nr_runnable -= d.runnable;
        q.idle_h_nr -= d.idle;
        if self.cfs_rq_is_idle(cfs) {
            d.idle = d.queued;
        }
    }

    /// What an enqueue or dequeue below does to an entity that stays queued.
    #[inline]
    fn update_ancestor(&mut self, cx: &mut Cx, se: SeId, min_slice: bool, slice: Option<u64>) {
        self.update_load_avg(cx, se, UPDATE_TG);
        self.se_update_runnable(se);
        self.update_cfs_group(cx, se);
        if let (true, Some(slice)) = (min_slice, slice) {
            self.set_slice(se, slice);
        }
    }

    fn for_each_queue(&mut self, mut se: SeId, f: impl Fn(&mut super::CfsRq)) {
        while se.is_some() {
            let e = &self.ses[se.ix()];
            f(&mut self.cfs[e.cfs_rq.ix()]);
            se = e.parent;
        }
    }

    /// `dequeue_task_fair`. False if the task stays queued (delayed dequeue).
    pub fn dequeue_task_fair(
        &mut self,
        cx: &mut Cx,
        cpu: Cpu,
        p: TaskId,
        flags: DequeueFlags,
    ) -> bool {
        let se = cx.sh.tasks[p.ix()].se;
        let costs = &cx.machine.costs;
        self.charge_levels(cx, Func::DequeueTask, se, costs.dequeue_base, costs.level);
        if flags.sleep || !self.ses[se.ix()].sched_delayed {
            self.util_est_dequeue(cx.sh, cpu, p);
        }
        let early = cx.sh.release.util_est_first;
        if early && flags.sleep {
            self.util_est_update(cx.sh, p);
        }
        if !self.dequeue_entities(cx, cpu, se, flags.into()) {
            self.for_each_queue(se, |q| q.h_nr_runnable -= 1);
            self.mirror_counts(cx.sh, cpu);
            return false;
        }
        if !early && flags.sleep {
            self.util_est_update(cx.sh, p);
        }
        true
    }

    /// `dequeue_entities`: takes `first`, a task's entity or a delayed group's, off its queue, and
    /// the groups above it that have nothing left.
    fn dequeue_entities(
        &mut self,
        cx: &mut Cx,
        cpu: Cpu,
        first: SeId,
        mut flags: LeaveFlags,
    ) -> bool {
        let e = &self.ses[first.ix()];
        let p = e.task;
        let one = u32::from(e.is_task());
        // A task in delayed dequeue has not counted as runnable since it blocked.
        let mut d = Delta {
            queued: one,
            runnable: one * u32::from(!e.sched_delayed),
            idle: one * u32::from(e.idle),
        };
        let (sleep, min_slice) = (flags.sleep, cx.sh.release.group_min_slice);
        let was_sched_idle = cx.sh.sched_idle_cpu(cpu);
        let finishes = flags.delayed;
        let mut slice = None;
        let mut se = first;
        while se.is_some() {
            let cfs = self.ses[se.ix()].cfs_rq;
            if !self.dequeue_entity(cx, se, flags) {
                if se == first {
                    return false;
                }
                slice = self.min_slice(cfs);
                break;
            }
            self.count_down(cfs, &mut d);
            se = self.ses[se.ix()].parent;
            if self.cfs[cfs.ix()].load_weight != 0 {
                if self.eevdf {
                    slice = self.min_slice(cfs);
                }
                // Others of the group are still here: it keeps running as a group.
                if sleep && se.is_some() {
                    self.set_next_buddy(se);
                }
                break;
            }
            flags = LeaveFlags { sleep: true, special: false, delayed: false, ..flags };
        }
        while se.is_some() {
            self.update_ancestor(cx, se, min_slice, slice);
            let cfs = self.ses[se.ix()].cfs_rq;
            if self.eevdf {
                slice = self.min_slice(cfs);
            }
            self.count_down(cfs, &mut d);
            se = self.ses[se.ix()].parent;
        }
        self.mirror_counts(cx.sh, cpu);
        if p.is_some() {
            cx.sh.loads[cpu.ix()].nr_running -= 1;
            let soon = cx.sh.release.sched_idle_balances_soon && !was_sched_idle;
            if soon && cx.sh.sched_idle_cpu(cpu) {
                // Others' tasks are worth more than what is left here.
                cx.sh.rqs[cpu.ix()].next_balance = cx.jiffies();
            }
            cx.sh.cfs_tasks_del(cpu, p);
            if finishes {
                cx.sh.tasks[p.ix()].on_rq = false;
            }
        }
        true
    }

    /// `pick_next_entity` of one level, and why, without effects. The queue must not be empty; the
    /// current entity's vruntime must be up to date. Under EEVDF the answer may be an entity in
    /// delayed dequeue, which leaves before the level is asked again.
    pub fn decide_pick(&self, release: &Release, cfs: CfsId) -> (SeId, &'static Cause) {
        if self.eevdf {
            self.decide_pick_eevdf(release, cfs)
        } else {
            self.decide_pick_cfs(release, cfs)
        }
    }

    /// Whether the running entity of a level where others wait, just accounted, is to make room for
    /// them, and why. CFS asks at ticks, EEVDF whenever it accounts. `ended`: under EEVDF, it has
    /// used up its request ([`Fair::update_deadline`]).
    #[inline]
    pub fn decide_tick(&self, release: &Release, se: SeId, ended: bool) -> Option<&'static Cause> {
        if self.eevdf {
            self.decide_slice_end(release, self.ses[se.ix()].cfs_rq, se, ended)
        } else {
            self.decide_tick_cfs(release, se)
        }
    }

    /// The wakeup preemption decision, without effects.
    pub fn decide_wakeup_preempt(&self, v: &PreemptView) -> PreemptDecision {
        if self.eevdf {
            self.decide_wakeup_preempt_eevdf(v)
        } else {
            self.decide_wakeup_preempt_cfs(v)
        }
    }

    /// `pick_next_task_fair`: picks and makes current. `prev` is the entity of the task that ran,
    /// if that is a fair one and was not put yet.
    pub fn pick_next_task_fair(&mut self, cx: &mut Cx, cpu: Cpu, prev: SeId) -> Option<TaskId> {
        let se = self.pick_entity(cx, cpu)?;
        let costs = &cx.machine.costs;
        let ns = costs.pick_level * self.levels(se);
        cx.charge(Func::PickNext, ns);
        if prev != se {
            self.switch_entities(cx, prev, se);
        }
        let p = self.ses[se.ix()].task;
        if prev != se || cx.sh.release.repick_moves_first {
            cx.sh.cfs_tasks_to_head(cpu, p);
        }
        Some(p)
    }

    fn pick_entity(&mut self, cx: &mut Cx, cpu: Cpu) -> Option<SeId> {
        let root = CfsId(u32::from(cpu.0));
        let mut cfs = root;
        while self.cfs[root.ix()].nr_queued != 0 {
            let curr = self.cfs[cfs.ix()].curr;
            if curr.is_some() && self.ses[curr.ix()].on_rq {
                self.update_curr(cx, cfs);
            }
            let (se, _) = self.decide_pick(&cx.sh.release, cfs);
            if cx.sh.release.pick_clears_buddies {
                self.clear_buddies(se);
            }
            let e = &self.ses[se.ix()];
            if e.sched_delayed {
                self.end_delay(cx, cpu, se);
                cfs = root;
            } else if e.is_task() {
                return Some(se);
            } else {
                cfs = e.my_q;
            }
        }
        None
    }

    /// An entity in delayed dequeue was picked: now it leaves.
    fn end_delay(&mut self, cx: &mut Cx, cpu: Cpu, se: SeId) {
        let costs = &cx.machine.costs;
        self.charge_levels(cx, Func::DequeueTask, se, costs.dequeue_base, costs.level);
        let off = LeaveFlags { sleep: true, special: false, delayed: true, save: false };
        self.dequeue_entities(cx, cpu, se, off);
    }

    /// Puts the entities of `prev` and sets those of `se`, up to where their paths meet.
    #[inline]
    fn switch_entities(&mut self, cx: &mut Cx, mut prev: SeId, mut se: SeId) {
        while prev.is_some() && self.ses[prev.ix()].cfs_rq != self.ses[se.ix()].cfs_rq {
            let (depth, prev_depth) = (self.ses[se.ix()].depth, self.ses[prev.ix()].depth);
            if depth <= prev_depth {
                self.put_prev_entity(cx, prev);
                self.free_if_dead(cx.sh, prev);
                prev = self.ses[prev.ix()].parent;
            }
            if depth >= prev_depth {
                self.set_next_entity(cx, se, true);
                se = self.ses[se.ix()].parent;
            }
        }
        if prev.is_some() {
            self.put_prev_entity(cx, prev);
            self.free_if_dead(cx.sh, prev);
            self.set_next_entity(cx, se, true);
            return;
        }
        while se.is_some() {
            self.set_next_entity(cx, se, true);
            se = self.ses[se.ix()].parent;
        }
    }

    /// The entity of a task that has died and left can be used again.
    #[inline]
    fn free_if_dead(&mut self, sh: &Shared, se: SeId) {
        let p = self.ses[se.ix()].task;
        if p.is_some() && sh.tasks[p.ix()].state == TaskState::Dead {
            self.free_ses.push(se);
        }
    }

    /// `put_prev_task_fair`: the task runs no more and nobody of the class follows.
    pub(crate) fn put_prev_task_fair(&mut self, cx: &mut Cx, p: TaskId) {
        let mut se = cx.sh.tasks[p.ix()].se;
        self.free_if_dead(cx.sh, se);
        while se.is_some() {
            self.put_prev_entity(cx, se);
            se = self.ses[se.ix()].parent;
        }
    }

    /// `set_next_task_fair`: the task, which runs, is of this class from now on.
    pub(crate) fn set_next_task_fair(&mut self, cx: &mut Cx, p: TaskId) {
        let mut se = cx.sh.tasks[p.ix()].se;
        cx.sh.cfs_tasks_to_head(cx.sh.tasks[p.ix()].cpu, p);
        while se.is_some() {
            self.set_next_entity(cx, se, false);
            se = self.ses[se.ix()].parent;
        }
    }

    /// `task_tick_fair`.
    pub(crate) fn task_tick_fair(&mut self, cx: &mut Cx, p: TaskId) {
        let mut se = cx.sh.tasks[p.ix()].se;
        self.charge_levels(cx, Func::Tick, se, 0, cx.machine.costs.tick_level);
        while se.is_some() {
            self.entity_tick(cx, se);
            se = self.ses[se.ix()].parent;
        }
    }

    /// `yield_task_fair`.
    pub(crate) fn yield_task_fair(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId) {
        let t = &cx.sh.tasks[p.ix()];
        let (se, policy) = (t.se, t.policy);
        if cx.sh.loads[cpu.ix()].nr_running == 1 {
            return;
        }
        let cfs = self.ses[se.ix()].cfs_rq;
        self.clear_buddies(se);
        if self.eevdf || policy != Policy::Batch {
            self.update_curr(cx, cfs);
            cx.sh.rqs[cpu.ix()].skip_clock_update = true;
        }
        if !self.eevdf {
            // Vruntime stays: the others are merely preferred at the next pick.
            let mut se = se;
            while se.is_some() {
                let e = &self.ses[se.ix()];
                self.cfs[e.cfs_rq.ix()].skip = se;
                se = e.parent;
            }
            return;
        }
        let forfeits = cx.sh.release.yield_forfeits;
        if forfeits && !self.entity_eligible(cfs, se) {
            return;
        }
        let e = &mut self.ses[se.ix()];
        if forfeits {
            e.vruntime = e.deadline;
        }
        e.deadline = e.deadline.plus(e.virtual_time(e.slice) as i64);
        if forfeits {
            self.update_min_vruntime(cx, cfs);
        }
    }

    /// `check_preempt_wakeup`: the wakee `p` was just enqueued on `cpu`, whose current task is of
    /// the fair class.
    pub fn wakeup_preempt_fair(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: WakeFlags) {
        let curr = cx.sh.rqs[cpu.ix()].curr;
        if curr == p {
            return;
        }
        let need_resched = cx.need_resched(cpu);
        let (c, w) = (&cx.sh.tasks[curr.ix()], &cx.sh.tasks[p.ix()]);
        let normal = w.policy == Policy::Normal && cx.sh.release.wakeup_preemption;
        if !need_resched && normal {
            let (se, _) = self.matching(c.se, w.se);
            self.update_curr(cx, self.ses[se.ix()].cfs_rq);
        }
        let d = loop {
            let view = PreemptView {
                release: &cx.sh.release,
                curr: &cx.sh.tasks[curr.ix()],
                wakee: &cx.sh.tasks[p.ix()],
                need_resched,
                fork: flags.fork,
            };
            let d = self.decide_wakeup_preempt(&view);
            if d.delayed.is_none() {
                break d;
            }
            self.end_delay(cx, cpu, d.delayed);
        };
        if d.next.is_some() {
            self.set_next_buddy(d.next);
        }
        if d.cancel_protection {
            self.cancel_protection(d.curr);
        }
        if d.shorten_protection {
            self.shorten_protection(d.curr);
        }
        if d.preempt {
            cx.resched_curr(cpu, d.rule);
            if d.last.is_some() {
                self.set_last_buddy(d.last);
            }
        }
    }

    /// `sched_fork` and `task_fork_fair`: gives the new task `p` an entity and, but from 6.12 on,
    /// places it by its parent, which runs on `cx.cpu`, as if it were to run there.
    pub(crate) fn task_new_fair(&mut self, cx: &mut Cx, p: TaskId, cpu: Cpu) {
        let t = &cx.sh.tasks[p.ix()];
        let se = self.new_entity(p, t.tg, cpu);
        let e = &mut self.ses[se.ix()];
        e.idle = t.policy == Policy::Idle;
        (e.weight, e.inv_weight) = weight::task_weight(t.nice, e.idle);
        cx.sh.tasks[p.ix()].se = se;
        self.init_entity_runnable_average(se);
        if self.eevdf && !cx.sh.release.fork_places_twice {
            // The first enqueue places it, and the parent goes on as if nothing had been.
            return;
        }
        cx.sh.rqs[cpu.ix()].update_clock(cx.now);
        let cfs = self.ses[se.ix()].cfs_rq;
        let curr = self.cfs[cfs.ix()].curr;
        self.ses[se.ix()].vruntime = self.cfs[cfs.ix()].min_vruntime;
        if curr.is_some() {
            self.update_curr(cx, cfs);
            self.ses[se.ix()].vruntime = self.ses[curr.ix()].vruntime;
        }
        if self.eevdf {
            // The first enqueue places it once more.
            self.place_entity_eevdf(cx, se, true);
            return;
        }
        self.place_entity_cfs(cx, se, EnqueueFlags { initial: true, ..Default::default() });
        self.make_relative(se);
    }

    /// Changes the weight of a task that is not queued.
    pub(crate) fn set_task_weight(&mut self, release: &Release, se: SeId, nice: i8, idle: bool) {
        let e = &mut self.ses[se.ix()];
        let old = e.weight;
        e.idle = idle;
        (e.weight, e.inv_weight) = weight::task_weight(nice, idle);
        if self.eevdf {
            // `reweight_entity`: its lag in real time stays, and what is left of its slice.
            e.vlag = reweighted(e.vlag, old, e.weight);
            if release.reweight_places_again && e.rel_deadline {
                let left = e.deadline.0 as i64;
                e.deadline = VTime(reweighted(left, old, e.weight) as u64);
            }
        }
        if e.avg.load_sum != 0 {
            e.avg.load_avg = e.load() * e.avg.load_sum / super::pelt::divider(&e.avg);
        } else {
            e.avg.load_avg = e.load();
        }
    }

    /// `wake_up_new_task`: the CPU of `p` is known.
    pub(crate) fn task_fork_place_fair(&mut self, cx: &mut Cx, p: TaskId) {
        let t = &cx.sh.tasks[p.ix()];
        let (se, tg, cpu) = (t.se, t.tg, t.cpu);
        self.set_task_rq(se, tg, cpu);
        self.post_init_entity_util_avg(cx.sh, se);
    }

    /// `migrate_task_rq_fair`: `p`, which sleeps (or was just taken off a queue), goes to
    /// `new_cpu`. `p.cpu` still is the old one.
    pub fn migrate_task_rq_fair(&mut self, cx: &mut Cx, p: TaskId, new_cpu: Cpu) {
        let t = &cx.sh.tasks[p.ix()];
        let (se, tg, cpu, sleeps) = (t.se, t.tg, t.cpu, !t.on_rq);
        if sleeps {
            if !self.eevdf {
                self.make_relative(se);
            }
            self.remove_entity_load_avg(se);
            // `migrate_se_pelt_lag`: an idle CPU's queue was last brought up to date before it.
            if cx.sh.release.migrate_pelt_lag && cx.sh.curr_is_idle(cpu) {
                self.decay_sleeper(se, cx.now);
            }
        }
        self.ses[se.ix()].avg.last_update_time = Ns::ZERO;
        self.set_task_rq(se, tg, new_cpu);
        self.note_move(cx, p);
    }

    /// `task_dead_fair`: the queue it left subtracts its load.
    pub(crate) fn task_dead_fair(&mut self, p: TaskId, sh: &Shared) {
        self.remove_entity_load_avg(sh.tasks[p.ix()].se);
    }
}
