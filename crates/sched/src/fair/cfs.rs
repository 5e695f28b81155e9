//! The Completely Fair Scheduler: placement, pick, preemption by wakeups and by the tick.
//!
//! **What.** The entity with the least virtual runtime runs. Sleepers get a credit, wakeups preempt
//! only beyond a granularity, the tick preempts when the slice is used up.
//! **Source.** Linux 6.1.192, kernel/sched/fair.c: `sched_slice`, `place_entity`,
//! `pick_next_entity`, `wakeup_preempt_entity`, `check_preempt_wakeup`, `check_preempt_tick`.
//! **Equations.** period(n) = n · min_gran if n > 8, else latency. slice = period · weight / load,
//! level by level. Sleeper: v = max(v, min_vruntime − latency / 2). New: v = min_vruntime + slice.
//! Wakeup: preempt iff curr.v − wakee.v > gran(wakee).
//! **Departures.** D1: no bandwidth control. D2: `child_runs_first` is off.
//! **Example.** On 8 CPUs (latency 24 ms, granularity 4 ms) a task that slept long is placed 12 ms
//! before `min_vruntime`; it preempts a CPU hog at once, for 12 ms > 4 ms.

use super::weight::{calc_delta, calc_delta_fair};
use super::{CfsId, Fair, SeId};
use crate::cx::Cx;
use crate::release::Release;
use crate::scheduler::EnqueueFlags;
use crate::task::{Policy, Task};
use vruntime_base::{Cause, CauseKind, VTime};

/// The wakee is the current task, or the current task is about to be rescheduled anyway.
pub static WAKEE_IS_CURR: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee is running");
/// See [`WAKEE_IS_CURR`].
pub static ALREADY: Cause = Cause::new(CauseKind::Resched, "wakeup: reschedule is due already");
/// The current task is SCHED_IDLE and the wakee is not.
pub static CURR_SCHED_IDLE: Cause = Cause::new(CauseKind::Resched, "wakeup: SCHED_IDLE is running");
/// BATCH and IDLE tasks preempt nobody.
pub static NOT_NORMAL: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee is not NORMAL");
/// The feature is off.
pub static FEATURE_OFF: Cause = Cause::new(CauseKind::Resched, "wakeup: preemption is off");
/// The current task's group is idle and the wakee's is not.
pub static IDLE_GROUP: Cause = Cause::new(CauseKind::Resched, "wakeup: an idle group is running");
/// The wakee's group is idle and the current task's is not.
pub static IDLE_WAKEE: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee's group is idle");
/// The wakee is more than the granularity behind.
pub static VRUNTIME: Cause = Cause::new(CauseKind::Resched, "wakeup: vruntime beyond granularity");
/// It is not.
pub static WITHIN: Cause = Cause::new(CauseKind::Resched, "wakeup: vruntime within granularity");
/// The tick found the slice used up.
pub static SLICE_USED: Cause = Cause::new(CauseKind::Resched, "tick: slice used up");
/// The tick found the current task more than a slice ahead of the leftmost.
pub static AHEAD: Cause = Cause::new(CauseKind::Resched, "tick: a slice ahead of leftmost");

/// Picked: least vruntime.
pub static LEFTMOST: Cause = Cause::new(CauseKind::Pick, "leftmost");
/// Picked: the next buddy.
pub static NEXT_BUDDY: Cause = Cause::new(CauseKind::Pick, "next buddy");
/// Picked: the last buddy.
pub static LAST_BUDDY: Cause = Cause::new(CauseKind::Pick, "last buddy");
/// Picked: the second, since the first yielded.
pub static SKIPPED: Cause = Cause::new(CauseKind::Pick, "second, first yielded");

/// Outcome of a wakeup preemption check.
#[derive(Clone, Copy, Debug)]
pub struct PreemptDecision {
    /// Reschedule the current task.
    pub preempt: bool,
    /// Why, or why not.
    pub rule: &'static Cause,
    /// Entity of the current task on the level where both meet.
    pub curr: SeId,
    /// Entity of the wakee on that level.
    pub wakee: SeId,
    /// This entity and those above it become next buddies, if not NONE.
    pub next: SeId,
    /// CFS: likewise the last buddies.
    pub last: SeId,
    /// EEVDF: the current entity's protection ends.
    pub cancel_protection: bool,
    /// EEVDF: it lasts no longer than the shortest slice on the queue from now on.
    pub shorten_protection: bool,
    /// EEVDF: this entity, in delayed dequeue, leaves the queue, and the check is made again; NONE
    /// if this is the outcome.
    pub delayed: SeId,
}

impl PreemptDecision {
    /// Nothing happens.
    pub(crate) fn no(rule: &'static Cause, curr: SeId, wakee: SeId) -> PreemptDecision {
        PreemptDecision {
            preempt: false,
            rule,
            curr,
            wakee,
            next: SeId::NONE,
            last: SeId::NONE,
            cancel_protection: false,
            shorten_protection: false,
            delayed: SeId::NONE,
        }
    }
    /// The current task is rescheduled.
    pub(crate) fn yes(rule: &'static Cause, curr: SeId, wakee: SeId) -> PreemptDecision {
        PreemptDecision { preempt: true, ..PreemptDecision::no(rule, curr, wakee) }
    }
}

/// What a wakeup preemption check may look at besides the entities.
#[derive(Clone, Copy, Debug)]
pub struct PreemptView<'a> {
    /// The release.
    pub release: &'a Release,
    /// The task that runs; of the fair class.
    pub curr: &'a Task,
    /// The wakee.
    pub wakee: &'a Task,
    /// TIF_NEED_RESCHED of the current task.
    pub need_resched: bool,
    /// The wakee is new.
    pub fork: bool,
}

/// How far before `min_vruntime` a sleeper enters at the most.
#[inline]
pub fn sleeper_credit(latency: u64, gentle: bool) -> u64 {
    if gentle { latency / 2 } else { latency }
}

impl Fair {
    /// `wakeup_preempt_entity`: should `b` preempt `a`? −1: it is not behind; 0: within the
    /// granularity; 1: beyond it.
    #[inline]
    pub fn wakeup_preempt_entity(&self, a: SeId, b: SeId) -> i32 {
        let (a, b) = (&self.ses[a.ix()], &self.ses[b.ix()]);
        let d = a.vruntime.since(b.vruntime);
        if d <= 0 {
            return -1;
        }
        let gran = calc_delta_fair(self.tun.wakeup_granularity, b.weight, b.inv_weight);
        i32::from(d > gran as i64)
    }

    /// `pick_next_entity`: the entity to run on this level, and why. `curr` takes part if it is
    /// still queued. The queue must not be empty of both.
    pub fn decide_pick_cfs(&self, k: &Release, cfs: CfsId) -> (SeId, &'static Cause) {
        let q = &self.cfs[cfs.ix()];
        let curr = q.curr;
        let runs = curr.is_some() && self.ses[curr.ix()].on_rq;
        let curr_before = |v: VTime| runs && self.ses[curr.ix()].vruntime.before(v);
        let left = match q.queue.first() {
            Some(n) if !curr_before(n.vruntime) => n.se,
            _ => curr,
        };
        let (mut se, mut rule) = (left, &LEFTMOST);
        if q.skip.is_some() && q.skip == se && k.rule_on(&SKIPPED) {
            let second = if se == curr { q.queue.first() } else { q.queue.get(1) };
            let second = match second {
                Some(n) if se == curr || !curr_before(n.vruntime) => n.se,
                _ if se != curr && runs => curr,
                _ => SeId::NONE,
            };
            if second.is_some() && self.wakeup_preempt_entity(second, left) < 1 {
                (se, rule) = (second, &SKIPPED);
            }
        }
        let buddy = |se: SeId, rule| {
            se.is_some() && self.wakeup_preempt_entity(se, left) < 1 && k.rule_on(rule)
        };
        if buddy(q.next, &NEXT_BUDDY) {
            return (q.next, &NEXT_BUDDY);
        }
        if buddy(q.last, &LAST_BUDDY) {
            return (q.last, &LAST_BUDDY);
        }
        (se, rule)
    }

    /// `check_preempt_wakeup` without its effects. The current entity's vruntime on the level
    /// where both meet must be up to date.
    pub fn decide_wakeup_preempt_cfs(&self, v: &PreemptView) -> PreemptDecision {
        let (curr, wakee) = (v.curr.se, v.wakee.se);
        if curr == wakee {
            return PreemptDecision::no(&WAKEE_IS_CURR, curr, wakee);
        }
        let many = |cfs: CfsId| self.cfs[cfs.ix()].nr_queued >= self.tun.nr_latency;
        let crowded = many(self.ses[curr.ix()].cfs_rq);
        let mut d = self.decide_cfs(v, curr, wakee, crowded);
        if v.release.next_buddy && crowded && !v.fork {
            d.next = wakee;
        }
        d
    }

    fn decide_cfs(
        &self,
        v: &PreemptView,
        curr: SeId,
        wakee: SeId,
        crowded: bool,
    ) -> PreemptDecision {
        let on = |rule| v.release.rule_on(rule);
        if v.need_resched && on(&ALREADY) {
            return PreemptDecision::no(&ALREADY, curr, wakee);
        }
        let last = |se: SeId| {
            let e = &self.ses[se.ix()];
            let wanted = v.release.last_buddy && crowded && e.on_rq && e.is_task();
            if wanted { se } else { SeId::NONE }
        };
        let curr_idle = v.curr.policy == Policy::Idle;
        let wakee_idle = v.wakee.policy == Policy::Idle;
        if curr_idle && !wakee_idle && on(&CURR_SCHED_IDLE) {
            let d = PreemptDecision::yes(&CURR_SCHED_IDLE, curr, wakee);
            return PreemptDecision { last: last(curr), ..d };
        }
        if v.wakee.policy != Policy::Normal && on(&NOT_NORMAL) {
            return PreemptDecision::no(&NOT_NORMAL, curr, wakee);
        }
        if !v.release.wakeup_preemption {
            return PreemptDecision::no(&FEATURE_OFF, curr, wakee);
        }
        let (se, pse) = self.matching(curr, wakee);
        match (self.se_is_idle(se), self.se_is_idle(pse)) {
            (true, false) if on(&IDLE_GROUP) => {
                let d = PreemptDecision::yes(&IDLE_GROUP, se, pse);
                return PreemptDecision { last: last(se), ..d };
            }
            (false, true) if on(&IDLE_WAKEE) => {
                return PreemptDecision::no(&IDLE_WAKEE, se, pse);
            }
            _ => {}
        }
        if self.wakeup_preempt_entity(se, pse) == 1 && on(&VRUNTIME) {
            let d = PreemptDecision::yes(&VRUNTIME, se, pse);
            return PreemptDecision { next: pse, last: last(se), ..d };
        }
        PreemptDecision::no(&WITHIN, se, pse)
    }

    /// `check_preempt_tick` without its effects: the reason to reschedule, if there is one.
    pub fn decide_tick_cfs(&self, release: &Release, se: SeId) -> Option<&'static Cause> {
        let e = &self.ses[se.ix()];
        let mut ideal = self.sched_slice(release, se);
        if release.tick_slice_capped {
            ideal = ideal.min(self.tun.latency);
        }
        let ran = e.ran.0;
        if ran > ideal && release.rule_on(&SLICE_USED) {
            return Some(&SLICE_USED);
        }
        if ran < self.tun.min_granularity {
            return None;
        }
        let left = self.cfs[e.cfs_rq.ix()].queue.first()?;
        // Virtual time is compared with real time, as the kernel does.
        let ahead = e.vruntime.since(left.vruntime) > ideal as i64;
        (ahead && release.rule_on(&AHEAD)).then_some(&AHEAD)
    }

    /// `check_preempt_tick`.
    pub(crate) fn check_preempt_tick(&mut self, cx: &mut Cx, se: SeId) {
        if let Some(why) = self.decide_tick(&cx.sh.release, se, false) {
            let cpu = self.cfs[self.ses[se.ix()].cfs_rq.ix()].cpu;
            cx.resched_curr(cpu, why);
            if why.id == SLICE_USED.id {
                self.clear_buddies(se);
            }
        }
    }

    /// `sched_slice`: the share of the period that is this entity's, in real time.
    pub fn sched_slice(&self, release: &Release, first: SeId) -> u64 {
        let e = &self.ses[first.ix()];
        let q = &self.cfs[e.cfs_rq.ix()];
        let n = if release.alt_period { self.cfs[q.cpu.ix()].h_nr_queued } else { q.nr_queued };
        let n = n + u32::from(!e.on_rq);
        let mut slice = if n > self.tun.nr_latency {
            u64::from(n) * self.tun.min_granularity
        } else {
            self.tun.latency
        };
        let mut se = first;
        while se.is_some() {
            let e = &self.ses[se.ix()];
            let mut load = self.cfs[e.cfs_rq.ix()].load_weight;
            if !e.on_rq {
                load += u64::from(e.weight);
            }
            slice = calc_delta(slice, u64::from(e.weight), load, 0);
            se = e.parent;
        }
        if release.base_slice {
            // An empty queue does not count as one of idle entities (sched_idle_cfs_rq).
            let all_idle = q.nr_queued != 0 && q.idle_nr == q.nr_queued;
            slice = slice.max(if self.se_is_idle(first) && !all_idle {
                self.tun.idle_min_granularity
            } else {
                self.tun.min_granularity
            });
        }
        slice
    }

    /// `place_entity` for a wakeup or, if `flags.initial`, a new task.
    pub(crate) fn place_entity_cfs(&mut self, cx: &Cx, se: SeId, flags: EnqueueFlags) {
        let release = &cx.sh.release;
        let initial = flags.initial;
        let e = &self.ses[se.ix()];
        let q = &self.cfs[e.cfs_rq.ix()];
        let mut v = q.min_vruntime;
        if initial {
            if release.start_debit {
                v = v.plus(e.virtual_time(self.sched_slice(release, se)) as i64);
            }
        } else {
            let small = release.idle_sleeper_granularity && self.se_is_idle(se);
            let mut credit = if small { self.tun.min_granularity } else { self.tun.latency };
            credit = sleeper_credit(credit, release.gentle_fair_sleepers);
            v = v.plus(-(credit as i64));
        }
        let now = cx.sh.rqs[q.cpu.ix()].clock;
        let e = &mut self.ses[se.ix()];
        // After a very long sleep the difference could have wrapped.
        let long_sleep = now.saturating_sub(e.exec_start).0 > (1 << 63) / 1024
            || (release.moved_counts_as_long_sleep && flags.migrated);
        e.vruntime = if !initial && long_sleep { v } else { e.vruntime.later(v) };
    }
}
