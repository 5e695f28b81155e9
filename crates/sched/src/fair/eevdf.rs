//! Earliest eligible virtual deadline first.
//!
//! **What.** Every entity has a lag, what it is owed. Whoever is owed something is eligible; of
//! those the one with the earliest virtual deadline runs, and once picked it is protected until its
//! deadline. A task that blocks while it owes stays in the queue until it owes nothing.
//! **Source.** Linux 6.12.117 and 6.18.2, kernel/sched/fair.c: `avg_vruntime`, `entity_eligible`,
//! `update_entity_lag`, `place_entity`, `pick_eevdf`, `update_deadline`, `reweight_eevdf`,
//! `requeue_delayed_entity`, `check_preempt_wakeup_fair`; switches for 6.6 and 6.10, and for what
//! 6.18.44 took over from 7.0 and 7.1 (commits 6e3c0a4e1ad1, ac8e69e69363).
//! **Equations.** V = ref + floor(Σ(v_i − ref)·w_i / Σ w_i). eligible ⇔ Σ(v_j − ref)·w_j ≥
//! (v_i − ref)·Σ w_j. lag = clamp(V − v, ± virtual(max(2·slice, tick))), from 7.0 on
//! ± virtual(longest slice of the queue + tick). Placement: v = V − lag · (W + w)/W;
//! deadline = v + virtual(slice).
//! **Departures.** D1: 6.6 picks from a tree ordered by vruntime and resolves equal deadlines
//! differently. D2: the wakeup check knows no buddies.
//! **Example.** A and B, nice 0, base slice 3 ms. A runs 3 ms: its deadline moves 3 ms on, V = 1.5
//! ms, A is not eligible, B is: B runs.

use super::cfs::{
    ALREADY, CURR_SCHED_IDLE, FEATURE_OFF, IDLE_GROUP, IDLE_WAKEE, NOT_NORMAL, PreemptDecision,
    PreemptView, WAKEE_IS_CURR,
};
use super::load::AGE;
use super::{CfsId, Fair, SeId};
use crate::cx::Cx;
use crate::release::{LagLimit, Release};
use crate::task::Policy;
use vruntime_base::{Cause, CauseKind, VTime};

/// The running entity reached its deadline.
pub static SLICE_ENDED: Cause = Cause::new(CauseKind::Resched, "slice ended");
/// It lost its protection to a shorter slice and is no longer eligible.
pub static SHORT_ENDED: Cause = Cause::new(CauseKind::Resched, "unprotected and not eligible");
/// It came to the end of its protection.
pub static QUANTUM_ENDED: Cause = Cause::new(CauseKind::Resched, "protection used up");
/// The wakee would be picked.
pub static WOULD_PICK: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee is picked");
/// Likewise, after its shorter slice ended the protection.
pub static SHORTER: Cause = Cause::new(CauseKind::Resched, "wakeup: shorter slice is picked");
/// It would not.
pub static NOT_PICKED: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee is not picked");
/// It would perhaps, but it is new.
pub static NEW: Cause = Cause::new(CauseKind::Resched, "wakeup: wakee is new");

/// Picked: nothing else is there.
pub static ALONE: Cause = Cause::new(CauseKind::Pick, "only one");
/// Picked: the running entity is protected.
pub static PROTECTED: Cause = Cause::new(CauseKind::Pick, "protected until its deadline");
/// Picked: earliest deadline among the eligible.
pub static DEADLINE: Cause = Cause::new(CauseKind::Pick, "earliest eligible deadline");
/// Picked: the running entity has the earliest deadline.
pub static CURR_DEADLINE: Cause = Cause::new(CauseKind::Pick, "running, earliest deadline");
/// Picked: an eligible next buddy.
pub static BUDDY: Cause = Cause::new(CauseKind::Pick, "eligible next buddy");

/// What an entity can be owed, or owe, as real time, ns. `slice`: its own, or the longest on its
/// queue.
#[inline]
pub fn lag_limit(limit: LagLimit, slice: u64, tick: u64) -> u64 {
    match limit {
        LagLimit::OwnSlice => (2 * slice).max(tick),
        LagLimit::LongestSlice => slice + tick,
    }
}

/// How far from V an entity with this lag and of weight `own` enters a queue of weight `w`: it
/// pulls V towards itself, and what it is owed must survive that. Weights as `scale_load_down`.
#[inline]
pub fn inflated_lag(lag: i64, w: u64, own: u64) -> i64 {
    lag * (w + own) as i64 / w as i64
}

/// The virtual time `d`, of an entity of weight `old`, for the same real time at weight `new`.
#[inline(always)]
pub fn reweighted(d: i64, old: u32, new: u32) -> i64 {
    d * i64::from(old) / i64::from(new)
}

impl Fair {
    /// Σ (v − ref)·w and Σ w of a queue, the running entity included.
    #[inline]
    fn sums(&self, cfs: CfsId) -> (i64, i64) {
        let q = &self.cfs[cfs.ix()];
        let (mut s, mut w) = (q.sum_w_vruntime, q.sum_weight as i64);
        if q.curr.is_some() {
            let e = &self.ses[q.curr.ix()];
            if e.on_rq {
                s += e.vruntime.since(q.min_vruntime) * e.load() as i64;
                w += e.load() as i64;
            }
        }
        (s, w)
    }

    /// V of a queue as it stands.
    pub fn mean_vruntime(&self, cfs: CfsId) -> VTime {
        let (s, w) = self.sums(cfs);
        let d = if w == 0 { 0 } else { s.div_euclid(w) };
        self.cfs[cfs.ix()].min_vruntime.plus(d)
    }

    /// `avg_vruntime`: V, and where the release says so the reference point goes there.
    #[inline]
    pub(crate) fn avg_vruntime(&mut self, cfs: CfsId) -> VTime {
        let v = self.mean_vruntime(cfs);
        if self.zero_vruntime {
            self.move_reference(cfs, v);
        }
        v
    }

    #[inline]
    fn move_reference(&mut self, cfs: CfsId, to: VTime) {
        let q = &mut self.cfs[cfs.ix()];
        let d = to.since(q.min_vruntime);
        q.sum_w_vruntime -= q.sum_weight as i64 * d;
        q.min_vruntime = to;
    }

    /// The reference point of releases where it follows the least vruntime and never goes back.
    pub(crate) fn advance_reference(&mut self, cfs: CfsId) {
        let q = &self.cfs[cfs.ix()];
        let mut least = q.queue.iter().map(|n| n.vruntime).reduce(VTime::earlier);
        if q.curr.is_some() && self.ses[q.curr.ix()].on_rq {
            let v = self.ses[q.curr.ix()].vruntime;
            least = Some(least.map_or(v, |l| l.earlier(v)));
        }
        if let Some(v) = least.filter(|v| q.min_vruntime.before(*v)) {
            self.move_reference(cfs, v);
        }
    }

    /// `vruntime_eligible`.
    #[inline(always)]
    fn eligible_at(&self, cfs: CfsId, sums: (i64, i64), v: VTime) -> bool {
        let key = v.since(self.cfs[cfs.ix()].min_vruntime);
        i128::from(sums.0) >= i128::from(key) * i128::from(sums.1)
    }

    /// `entity_eligible`: the entity is owed something, or nothing is owed either way.
    #[inline]
    pub fn entity_eligible(&self, cfs: CfsId, se: SeId) -> bool {
        self.eligible_at(cfs, self.sums(cfs), self.ses[se.ix()].vruntime)
    }

    /// `entity_lag`: V − v within the bounds that one request can make.
    #[inline]
    fn entity_lag(&self, mean: VTime, se: SeId) -> i64 {
        let e = &self.ses[se.ix()];
        let slice = match self.lag_limit {
            LagLimit::OwnSlice => e.slice,
            LagLimit::LongestSlice => self.max_slice(e.cfs_rq).unwrap_or(e.slice),
        };
        let limit = e.virtual_time(lag_limit(self.lag_limit, slice, self.tun.tick)) as i64;
        mean.since(e.vruntime).clamp(-limit, limit)
    }

    /// `update_entity_lag` when an entity leaves.
    #[inline]
    pub(crate) fn update_entity_lag(&mut self, se: SeId) {
        let mean = self.avg_vruntime(self.ses[se.ix()].cfs_rq);
        self.ses[se.ix()].vlag = self.entity_lag(mean, se);
    }

    /// `update_deadline`: true if the request was used up; then there is a new one.
    #[inline]
    pub fn update_deadline(&mut self, se: SeId) -> bool {
        let e = &self.ses[se.ix()];
        if e.vruntime.before(e.deadline) {
            return false;
        }
        if !e.custom_slice {
            self.set_slice(se, self.tun.base_slice);
        }
        let e = &mut self.ses[se.ix()];
        e.deadline = e.vruntime.plus(e.virtual_time(e.slice) as i64);
        true
    }

    /// The part of `update_curr` that may ask for a reschedule.
    #[inline]
    pub(crate) fn resched_at_slice_end(&mut self, cx: &mut Cx, cfs: CfsId, ended: bool) {
        let q = &self.cfs[cfs.ix()];
        let curr = q.curr;
        if q.nr_queued <= 1 {
            return;
        }
        if let Some(why) = self.decide_tick(&cx.sh.release, curr, ended) {
            cx.resched_curr(self.cfs[cfs.ix()].cpu, why);
            self.clear_buddies(curr);
        }
    }

    /// Whether the running entity, just accounted, is to make room for others of its queue.
    /// `ended`: it has used up its request.
    #[inline]
    pub fn decide_slice_end(
        &self,
        release: &Release,
        cfs: CfsId,
        curr: SeId,
        ended: bool,
    ) -> Option<&'static Cause> {
        let on = |rule| release.rule_on(rule);
        if ended && on(&SLICE_ENDED) {
            return Some(&SLICE_ENDED);
        }
        if self.vprot {
            return (!self.is_protected(curr) && on(&QUANTUM_ENDED)).then_some(&QUANTUM_ENDED);
        }
        let gone =
            release.preempt_short && !self.is_protected(curr) && !self.entity_eligible(cfs, curr);
        (gone && on(&SHORT_ENDED)).then_some(&SHORT_ENDED)
    }

    /// The running entity's protection lasts: it still has the deadline that it had when it was
    /// picked, or it has not come to its `vprot`.
    #[inline(always)]
    pub fn is_protected(&self, se: SeId) -> bool {
        let e = &self.ses[se.ix()];
        if self.vprot {
            return e.vruntime.before(VTime(e.vlag as u64));
        }
        e.vlag == e.deadline.0 as i64
    }

    /// `set_protect_slice`: what protects the entity, which becomes current.
    #[inline]
    pub(crate) fn protect(&mut self, release: &Release, se: SeId) {
        let e = &self.ses[se.ix()];
        let mut until = e.deadline;
        if self.vprot {
            let shortest = if release.run_to_parity {
                self.min_slice(e.cfs_rq).unwrap_or(e.slice)
            } else {
                release.base_slice_ns
            };
            if shortest < e.slice {
                until = until.earlier(e.vruntime.plus(e.virtual_time(shortest) as i64));
            }
        }
        self.ses[se.ix()].vlag = until.0 as i64;
    }

    /// `update_protect_slice`: somebody with a shorter slice waits.
    pub(crate) fn shorten_protection(&mut self, se: SeId) {
        let e = &self.ses[se.ix()];
        let shortest = self.min_slice(e.cfs_rq).unwrap_or(e.slice);
        let until = e.vruntime.plus(e.virtual_time(shortest) as i64);
        let e = &mut self.ses[se.ix()];
        e.vlag = VTime(e.vlag as u64).earlier(until).0 as i64;
    }

    /// Changes the slice of an entity, queued or not.
    #[inline]
    pub(crate) fn set_slice(&mut self, se: SeId, slice: u64) {
        let e = &mut self.ses[se.ix()];
        if e.slice == slice {
            return;
        }
        if e.on_rq {
            let base = self.tun.base_slice;
            let q = &mut self.cfs[e.cfs_rq.ix()];
            q.nr_odd_slices += u32::from(slice != base);
            q.nr_odd_slices -= u32::from(e.slice != base);
        }
        e.slice = slice;
    }

    /// `cfs_rq_min_slice`: the shortest slice on a queue, None if nobody is there.
    pub(crate) fn min_slice(&self, cfs: CfsId) -> Option<u64> {
        self.equal_slice(cfs).or_else(|| self.slices(cfs).min())
    }

    /// `cfs_rq_max_slice`, likewise.
    fn max_slice(&self, cfs: CfsId) -> Option<u64> {
        self.equal_slice(cfs).or_else(|| self.slices(cfs).max())
    }

    /// The slice of everybody on a queue, if none has one of its own.
    fn equal_slice(&self, cfs: CfsId) -> Option<u64> {
        let q = &self.cfs[cfs.ix()];
        (q.nr_queued != 0 && q.nr_odd_slices == 0).then_some(self.tun.base_slice)
    }

    fn slices(&self, cfs: CfsId) -> impl Iterator<Item = u64> + '_ {
        let q = &self.cfs[cfs.ix()];
        let curr = (q.curr.is_some() && self.ses[q.curr.ix()].on_rq).then_some(q.curr);
        q.queue.iter().map(|n| n.se).chain(curr).map(|s| self.ses[s.ix()].slice)
    }

    /// `place_entity`: where a joining entity starts, given what it was owed when it left.
    pub(crate) fn place_entity_eevdf(&mut self, cx: &Cx, se: SeId, initial: bool) {
        let release = &cx.sh.release;
        if !self.ses[se.ix()].custom_slice {
            self.set_slice(se, self.tun.base_slice);
        }
        let cfs = self.ses[se.ix()].cfs_rq;
        let mean = self.avg_vruntime(cfs);
        let q = &self.cfs[cfs.ix()];
        let mut lag = 0;
        if release.place_lag && q.nr_queued != 0 {
            // The newcomer pulls V towards itself; what it is owed must survive that.
            let w = self.sums(cfs).1.max(1);
            let e = &self.ses[se.ix()];
            lag = inflated_lag(e.vlag, w as u64, e.load());
        }
        let e = &mut self.ses[se.ix()];
        e.vruntime = mean.plus(-lag);
        if e.rel_deadline {
            e.deadline = e.deadline.plus(e.vruntime.0 as i64);
            e.rel_deadline = false;
            return;
        }
        let mut request = e.virtual_time(e.slice);
        if release.place_deadline_initial && initial {
            request /= 2;
        }
        e.deadline = e.vruntime.plus(request as i64);
    }

    /// `reweight_eevdf`: keeps what the entity is owed in real time. `mean` is V if it is queued.
    pub(crate) fn reweight_eevdf(
        &mut self,
        release: &Release,
        se: SeId,
        mean: Option<VTime>,
        weight: u32,
    ) {
        let e = &self.ses[se.ix()];
        let scale = |d| reweighted(d, e.weight, weight);
        let Some(mean) = mean else {
            let vlag = scale(e.vlag);
            self.ses[se.ix()].vlag = vlag;
            return;
        };
        let lag = if release.reweight_clamps_lag {
            self.entity_lag(mean, se)
        } else {
            mean.since(e.vruntime)
        };
        let (v, deadline) = (mean.plus(-scale(lag)), mean.plus(scale(e.deadline.since(mean))));
        let e = &mut self.ses[se.ix()];
        (e.vruntime, e.deadline) = (v, deadline);
    }

    /// `reweight_entity` of a queued entity where it leaves, is scaled and is placed again. If it
    /// is the current one it stays so meanwhile: the placement sees it with its new weight.
    pub(crate) fn reweight_by_placement(&mut self, cx: &mut Cx, se: SeId, weight: u32) {
        let cfs = self.ses[se.ix()].cfs_rq;
        let is_curr = self.cfs[cfs.ix()].curr == se;
        self.update_entity_lag(se);
        if !is_curr {
            self.tree_remove(se);
        }
        self.account_dequeue(se);
        self.dequeue_load_avg(se);
        let e = &mut self.ses[se.ix()];
        let scale = |d| reweighted(d, e.weight, weight);
        e.vlag = scale(e.vlag);
        e.deadline = VTime(scale(e.deadline.since(e.vruntime)) as u64);
        e.rel_deadline = true;
        e.set_weight(weight);
        self.enqueue_load_avg(se);
        self.place_entity_eevdf(cx, se, false);
        self.account_enqueue(se);
        if !is_curr {
            self.tree_insert(se);
        }
        self.update_min_vruntime(cx, cfs);
    }

    /// `pick_eevdf`: the eligible entity with the earliest deadline, or the protected one.
    /// `protect`: whether protection counts.
    pub fn pick_eevdf(
        &self,
        release: &Release,
        cfs: CfsId,
        protect: bool,
    ) -> (SeId, &'static Cause) {
        let q = &self.cfs[cfs.ix()];
        let runs = q.curr.is_some() && self.ses[q.curr.ix()].on_rq;
        if q.nr_queued == 1 {
            return (if runs { q.curr } else { q.queue.first().map_or(q.curr, |n| n.se) }, &ALONE);
        }
        let sums = self.sums(cfs);
        let curr =
            (runs && self.eligible_at(cfs, sums, self.ses[q.curr.ix()].vruntime)).then_some(q.curr);
        if let Some(c) = curr
            && protect
            && (release.run_to_parity || self.vprot)
            && self.is_protected(c)
            && release.rule_on(&PROTECTED)
        {
            return (c, &PROTECTED);
        }
        let best = q.queue.iter().find(|n| self.eligible_at(cfs, sums, n.vruntime));
        match (best, curr) {
            (Some(b), Some(c))
                if self.ses[c.ix()].deadline.before(b.key) && release.rule_on(&CURR_DEADLINE) =>
            {
                (c, &CURR_DEADLINE)
            }
            (Some(b), _) => (b.se, &DEADLINE),
            (None, Some(c)) => (c, &CURR_DEADLINE),
            // Somebody is always eligible: not all can be above their mean.
            (None, None) => (q.queue.first().map_or(q.curr, |n| n.se), &DEADLINE),
        }
    }

    /// `pick_next_entity`: the entity to run on this level, and why. It may be a delayed one,
    /// which the caller takes off before it asks again.
    pub fn decide_pick_eevdf(&self, release: &Release, cfs: CfsId) -> (SeId, &'static Cause) {
        let next = self.cfs[cfs.ix()].next;
        if (release.pick_buddy || release.next_buddy)
            && next.is_some()
            && self.ses[next.ix()].on_rq
            && self.entity_eligible(cfs, next)
            && release.rule_on(&BUDDY)
        {
            return (next, &BUDDY);
        }
        self.pick_eevdf(release, cfs, true)
    }

    /// `check_preempt_wakeup_fair` without its effects. The current entity's vruntime on the
    /// level where both meet must be up to date.
    pub fn decide_wakeup_preempt_eevdf(&self, v: &PreemptView) -> PreemptDecision {
        let (curr, wakee) = (v.curr.se, v.wakee.se);
        if curr == wakee {
            return PreemptDecision::no(&WAKEE_IS_CURR, curr, wakee);
        }
        let mut d = self.decide_eevdf(v, curr, wakee);
        if v.release.next_buddy && !v.fork && !self.ses[wakee.ix()].sched_delayed {
            d.next = wakee;
        }
        d
    }

    fn decide_eevdf(&self, v: &PreemptView, curr: SeId, wakee: SeId) -> PreemptDecision {
        let on = |rule| v.release.rule_on(rule);
        if v.need_resched && on(&ALREADY) {
            return PreemptDecision::no(&ALREADY, curr, wakee);
        }
        let late_idle_test = v.release.idle_test_at_common_level;
        let curr_idle = v.curr.policy == Policy::Idle && v.wakee.policy != Policy::Idle;
        if !late_idle_test && curr_idle && on(&CURR_SCHED_IDLE) {
            return PreemptDecision::yes(&CURR_SCHED_IDLE, curr, wakee);
        }
        if !v.release.wakeup_preemption {
            return PreemptDecision::no(&FEATURE_OFF, curr, wakee);
        }
        let not_normal = v.wakee.policy != Policy::Normal && on(&NOT_NORMAL);
        if !late_idle_test && not_normal {
            return PreemptDecision::no(&NOT_NORMAL, curr, wakee);
        }
        let (se, pse) = self.matching(curr, wakee);
        let idle = if self.ses[se.ix()].is_task() { &CURR_SCHED_IDLE } else { &IDLE_GROUP };
        match (self.se_is_idle(se), self.se_is_idle(pse)) {
            (true, false) if on(idle) => {
                let d = PreemptDecision::yes(idle, se, pse);
                return PreemptDecision { cancel_protection: late_idle_test, ..d };
            }
            (false, true) if on(&IDLE_WAKEE) => {
                return PreemptDecision::no(&IDLE_WAKEE, se, pse);
            }
            _ => {}
        }
        if not_normal {
            return PreemptDecision::no(&NOT_NORMAL, se, pse);
        }
        let cfs = self.ses[se.ix()].cfs_rq;
        let cancel = v.release.preempt_short && on(&SHORTER) && self.preempts_short(cfs, se, pse);
        if v.fork && !cancel && v.release.wakeup_spares_for_new && on(&NEW) {
            return PreemptDecision::no(&NEW, se, pse);
        }
        let picked = self.pick_eevdf(v.release, cfs, !cancel).0;
        let preempt = picked == pse && (cancel || on(&WOULD_PICK));
        let rule = match (preempt, cancel) {
            (true, true) => &SHORTER,
            (true, false) => &WOULD_PICK,
            (false, _) => &NOT_PICKED,
        };
        let no = PreemptDecision::no(rule, se, pse);
        if v.release.wakeup_ends_delay && self.ses[picked.ix()].sched_delayed {
            return PreemptDecision { delayed: picked, ..no };
        }
        let shortens = self.vprot && (cancel || v.release.wakeup_shortens_protection);
        PreemptDecision {
            preempt,
            // By `vprot`, only if the wakee is picked; otherwise the protection shrinks.
            cancel_protection: cancel && (preempt || !self.vprot),
            shorten_protection: shortens && !preempt,
            ..no
        }
    }

    /// PREEMPT_SHORT: a wakee with a shorter slice; where a deadline protects, it must be eligible
    /// and due earlier.
    fn preempts_short(&self, cfs: CfsId, se: SeId, pse: SeId) -> bool {
        let (e, p) = (&self.ses[se.ix()], &self.ses[pse.ix()]);
        if self.vprot {
            return p.slice < e.slice;
        }
        p.slice < e.slice
            && self.entity_eligible(cfs, pse)
            && (p.deadline.before(e.deadline) || !self.entity_eligible(cfs, se))
    }

    /// Ends the protection of a running entity.
    pub(crate) fn cancel_protection(&mut self, se: SeId) {
        if self.is_protected(se) {
            let e = &mut self.ses[se.ix()];
            let gone = if self.vprot { e.vruntime } else { e.deadline.plus(1) };
            e.vlag = gone.0 as i64;
        }
    }

    /// `requeue_delayed_entity`: a task in delayed dequeue is woken before that has ended.
    pub(crate) fn requeue_delayed_entity(&mut self, cx: &mut Cx, se: SeId) {
        let cfs = self.ses[se.ix()].cfs_rq;
        let is_curr = self.cfs[cfs.ix()].curr == se;
        if cx.sh.release.delay_zero {
            self.update_entity_lag(se);
            if self.ses[se.ix()].vlag > 0 {
                // It stayed to work off what it owed, not to collect: it starts anew at V.
                if !is_curr {
                    self.tree_remove(se);
                }
                self.cfs[cfs.ix()].nr_queued -= 1;
                self.ses[se.ix()].vlag = 0;
                self.place_entity_eevdf(cx, se, false);
                self.cfs[cfs.ix()].nr_queued += 1;
                if !is_curr {
                    self.tree_insert(se);
                }
            }
        }
        self.update_load_avg(cx, se, AGE);
        self.ses[se.ix()].sched_delayed = false;
    }
}
