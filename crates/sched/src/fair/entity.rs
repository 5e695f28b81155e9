//! What happens to one entity on one queue: the steps common to CFS and EEVDF.
//!
//! **What.** Enqueue, dequeue, becoming current, ceasing to be current, the tick; and
//! `update_curr`, which all of them call first so that what ran is accounted under the old state.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `enqueue_entity`, `dequeue_entity`,
//! `set_next_entity`, `put_prev_entity`, `entity_tick`, `update_curr`, `update_min_vruntime`.
//! **Equations.** vruntime += delta · NICE_0 / weight.
//! **Departures.** D1: a dequeue that is not a sleep always counts as a migration: the entity's
//! load is detached and attached again at the next enqueue, also for a change of policy in place.
//! D2: `clock_task` is `clock`.
//! **Example.** Nice-0 entity A runs for 3 ms and sleeps: its vruntime has grown by 3 ms when it
//! leaves, and `min_vruntime` follows the entity that is now leftmost.

use super::load::{AGE, UPDATE_TG, UpdateFlags};
use super::queue::Node;
use super::{CfsId, CfsRq, Fair, SeId};
use crate::cx::Cx;
use crate::scheduler::{DequeueFlags, EnqueueFlags};
use vruntime_base::{Ns, VTime};

/// How an entity leaves (`DEQUEUE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaveFlags {
    /// It sleeps.
    pub sleep: bool,
    /// It may not be delayed.
    pub special: bool,
    /// Its delayed dequeue is finished now.
    pub delayed: bool,
    /// It comes back at once: the queue's reference point stays.
    pub save: bool,
}

impl From<DequeueFlags> for LeaveFlags {
    fn from(f: DequeueFlags) -> LeaveFlags {
        LeaveFlags { sleep: f.sleep, special: f.special, delayed: false, save: f.save }
    }
}

impl CfsRq {
    /// `update_min_vruntime` of CFS; `curr`: where the running entity is, if it is queued.
    #[inline]
    fn advance_min_vruntime(&mut self, curr: Option<VTime>) {
        let left = self.queue.first().map(|n| n.vruntime);
        let least = match (curr, left) {
            (Some(curr), Some(left)) => curr.earlier(left),
            (Some(only), None) | (None, Some(only)) => only,
            (None, None) => return,
        };
        self.min_vruntime = self.min_vruntime.later(least);
    }
}

impl Fair {
    /// `update_curr`: accounts what the queue's current entity ran since the last call.
    #[inline]
    pub(crate) fn update_curr(&mut self, cx: &mut Cx, cfs: CfsId) {
        let q = &mut self.cfs[cfs.ix()];
        let curr = q.curr;
        if curr.is_none() {
            return;
        }
        let now = cx.sh.rqs[q.cpu.ix()].clock;
        let e = &mut self.ses[curr.ix()];
        if now <= e.exec_start {
            return;
        }
        let delta = now - e.exec_start;
        e.exec_start = now;
        e.ran += delta;
        if e.is_task()
            && let Some(accounted) = &mut cx.sh.accounted
        {
            accounted.push((e.task, delta, cx.resched.len()));
        }
        e.vruntime = e.vruntime.plus(e.virtual_time(delta.0) as i64);
        if !self.eevdf {
            q.advance_min_vruntime(e.on_rq.then_some(e.vruntime));
            return;
        }
        let ended = self.update_deadline(curr);
        self.update_min_vruntime(cx, cfs);
        self.resched_at_slice_end(cx, cfs, ended);
    }

    /// `update_min_vruntime`: the queue's reference point goes forward, never back.
    #[inline]
    pub(crate) fn update_min_vruntime(&mut self, cx: &Cx, cfs: CfsId) {
        if self.eevdf {
            if !cx.sh.release.zero_vruntime {
                self.advance_reference(cfs);
            }
            return;
        }
        let q = &mut self.cfs[cfs.ix()];
        let curr = if q.curr.is_some() { Some(&self.ses[q.curr.ix()]) } else { None };
        q.advance_min_vruntime(curr.filter(|e| e.on_rq).map(|e| e.vruntime));
    }

    /// `__enqueue_entity`.
    #[inline]
    pub(crate) fn tree_insert(&mut self, se: SeId) {
        let e = &self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        let mut node = Node { key: e.vruntime, vruntime: e.vruntime, se };
        if self.eevdf {
            node.key = e.deadline;
            let w = e.load();
            q.sum_w_vruntime += e.vruntime.since(q.min_vruntime) * w as i64;
            q.sum_weight += w;
        }
        q.queue.insert(node);
    }

    /// `__dequeue_entity`.
    #[inline]
    pub(crate) fn tree_remove(&mut self, se: SeId) {
        let e = &self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        let mut key = e.vruntime;
        if self.eevdf {
            key = e.deadline;
            let w = e.load();
            q.sum_w_vruntime -= e.vruntime.since(q.min_vruntime) * w as i64;
            q.sum_weight -= w;
        }
        q.queue.remove(key, se);
    }

    /// `account_entity_enqueue`.
    #[inline]
    pub(crate) fn account_enqueue(&mut self, se: SeId) {
        let idle = u32::from(self.se_is_idle(se));
        let e = &self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        q.load_weight += u64::from(e.weight);
        q.nr_queued += 1;
        q.idle_nr += idle;
        q.nr_odd_slices += u32::from(e.slice != self.tun.base_slice);
    }

    /// `account_entity_dequeue`.
    #[inline]
    pub(crate) fn account_dequeue(&mut self, se: SeId) {
        let idle = u32::from(self.se_is_idle(se));
        let e = &self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        q.load_weight -= u64::from(e.weight);
        q.nr_queued -= 1;
        q.idle_nr -= idle;
        q.nr_odd_slices -= u32::from(e.slice != self.tun.base_slice);
    }

    /// `se_update_runnable`: a group entity counts as many as are runnable below it.
    #[inline]
    pub(crate) fn se_update_runnable(&mut self, se: SeId) {
        let my_q = self.ses[se.ix()].my_q;
        if my_q.is_some() {
            let q = &mut self.cfs[my_q.ix()];
            q.runnable_weight = q.h_nr_runnable;
        }
    }

    /// `enqueue_entity`. `flags` are those of the task at its own level and a plain wakeup above.
    pub(crate) fn enqueue_entity(&mut self, cx: &mut Cx, se: SeId, flags: EnqueueFlags) {
        let cfs = self.ses[se.ix()].cfs_rq;
        let is_curr = self.cfs[cfs.ix()].curr == se;
        let initial = flags.initial && !cx.sh.release.fork_places_twice;
        let slept = flags.wakeup && !flags.migrated;
        if self.eevdf {
            if is_curr {
                self.place_entity_eevdf(cx, se, initial);
            }
            self.update_curr(cx, cfs);
        } else {
            // Whoever does not come straight from sleep on this CPU has a relative vruntime.
            if !slept && is_curr {
                self.make_absolute(se);
            }
            self.update_curr(cx, cfs);
            if !slept && !is_curr {
                self.make_absolute(se);
            }
        }
        self.update_load_avg(cx, se, UpdateFlags { tg: true, attach: true, detach: false });
        self.se_update_runnable(se);
        self.update_cfs_group(cx, se);
        if self.eevdf {
            if !is_curr {
                self.place_entity_eevdf(cx, se, initial);
            }
            self.account_enqueue(se);
        } else {
            self.account_enqueue(se);
            if flags.wakeup {
                self.place_entity_cfs(cx, se, flags);
            }
        }
        if !is_curr && (flags.migrated || !(flags.wakeup || flags.initial)) {
            // Its cache is not here any more.
            self.ses[se.ix()].exec_start = Ns::ZERO;
        }
        if !is_curr {
            self.tree_insert(se);
        }
        self.ses[se.ix()].on_rq = true;
        if !self.cfs[cfs.ix()].on_list {
            self.list_add_leaf_cfs_rq(cfs);
        }
    }

    /// The vruntime of an entity that has left its queue, without what only counts there.
    #[inline]
    pub(crate) fn make_relative(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        let min = self.cfs[e.cfs_rq.ix()].min_vruntime.0 as i64;
        e.vruntime = e.vruntime.plus(min.wrapping_neg());
    }

    /// The reverse, on the queue that it joins.
    #[inline]
    fn make_absolute(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        e.vruntime = e.vruntime.plus(self.cfs[e.cfs_rq.ix()].min_vruntime.0 as i64);
    }

    /// `dequeue_entity`. False if it stays in the queue (delayed dequeue).
    pub(crate) fn dequeue_entity(&mut self, cx: &mut Cx, se: SeId, flags: LeaveFlags) -> bool {
        let cfs = self.ses[se.ix()].cfs_rq;
        self.update_curr(cx, cfs);
        if self.eevdf {
            self.clear_buddies(se);
            if !flags.delayed
                && flags.sleep
                && !flags.special
                && cx.sh.release.delay_dequeue
                && !self.entity_eligible(cfs, se)
            {
                self.update_load_avg(cx, se, AGE);
                self.ses[se.ix()].sched_delayed = true;
                return false;
            }
        }
        let moves = !flags.sleep && self.ses[se.ix()].is_task();
        self.update_load_avg(cx, se, UpdateFlags { tg: true, attach: false, detach: moves });
        self.se_update_runnable(se);
        let is_curr = self.cfs[cfs.ix()].curr == se;
        if self.eevdf {
            self.update_entity_lag(se);
            if cx.sh.release.place_rel_deadline && !flags.sleep {
                let e = &mut self.ses[se.ix()];
                e.deadline = e.deadline.plus((e.vruntime.0 as i64).wrapping_neg());
                e.rel_deadline = true;
            }
        } else {
            self.clear_buddies(se);
        }
        if !is_curr {
            // The deadline may be relative by now: the tree knows the absolute one.
            self.tree_remove_left(se);
        }
        self.ses[se.ix()].on_rq = false;
        self.account_dequeue(se);
        if !self.eevdf && !flags.sleep {
            self.make_relative(se);
        }
        self.update_cfs_group(cx, se);
        if !flags.save {
            self.update_min_vruntime(cx, cfs);
        }
        if flags.delayed {
            let e = &mut self.ses[se.ix()];
            e.sched_delayed = false;
            if cx.sh.release.delay_zero {
                e.vlag = e.vlag.min(0);
            }
        }
        true
    }

    /// Removes an entity whose deadline may have been made relative.
    #[inline]
    fn tree_remove_left(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        if !(self.eevdf && e.rel_deadline) {
            self.tree_remove(se);
            return;
        }
        let relative = e.deadline;
        e.deadline = relative.plus(e.vruntime.0 as i64);
        self.tree_remove(se);
        self.ses[se.ix()].deadline = relative;
    }

    /// `set_next_entity`: the entity becomes current on its level, `picked` or as before.
    #[inline]
    pub(crate) fn set_next_entity(&mut self, cx: &mut Cx, se: SeId, picked: bool) {
        self.clear_buddies(se);
        if self.ses[se.ix()].on_rq {
            self.tree_remove(se);
            self.update_load_avg(cx, se, UPDATE_TG);
            if self.eevdf && (picked || !cx.sh.release.protects_at_pick_only) {
                self.protect(&cx.sh.release, se);
            }
        }
        let e = &mut self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        e.exec_start = cx.sh.rqs[q.cpu.ix()].clock;
        e.ran = Ns::ZERO;
        q.curr = se;
    }

    /// `put_prev_entity`: the entity is current no more.
    #[inline]
    pub(crate) fn put_prev_entity(&mut self, cx: &mut Cx, se: SeId) {
        let cfs = self.ses[se.ix()].cfs_rq;
        if self.ses[se.ix()].on_rq {
            self.update_curr(cx, cfs);
            self.tree_insert(se);
            self.update_load_avg(cx, se, AGE);
        }
        self.cfs[cfs.ix()].curr = SeId::NONE;
    }

    /// `entity_tick` of the current entity of one level.
    #[inline]
    pub(crate) fn entity_tick(&mut self, cx: &mut Cx, se: SeId) {
        let cfs = self.ses[se.ix()].cfs_rq;
        self.update_curr(cx, cfs);
        self.update_load_avg(cx, se, UPDATE_TG);
        self.update_cfs_group(cx, se);
        if !self.eevdf && self.cfs[cfs.ix()].nr_queued > 1 {
            self.check_preempt_tick(cx, se);
        }
    }

    /// `clear_buddies`: nobody prefers or skips this entity any more, on any level.
    #[inline]
    pub(crate) fn clear_buddies(&mut self, se: SeId) {
        let q = &self.cfs[self.ses[se.ix()].cfs_rq.ix()];
        let (last, next, skip) = (q.last == se, q.next == se, q.skip == se);
        if last {
            self.clear_upwards(se, |q| &mut q.last);
        }
        if next {
            self.clear_upwards(se, |q| &mut q.next);
        }
        if skip {
            self.clear_upwards(se, |q| &mut q.skip);
        }
    }

    fn clear_upwards(&mut self, mut se: SeId, buddy: fn(&mut CfsRq) -> &mut SeId) {
        while se.is_some() {
            let cfs = self.ses[se.ix()].cfs_rq;
            let b = buddy(&mut self.cfs[cfs.ix()]);
            if *b != se {
                return;
            }
            *b = SeId::NONE;
            se = self.ses[se.ix()].parent;
        }
    }

    /// `set_next_buddy`: prefer this entity, on all levels; never a SCHED_IDLE one.
    pub(crate) fn set_next_buddy(&mut self, se: SeId) {
        self.set_upwards(se, |q| &mut q.next);
    }

    /// `set_last_buddy`: likewise for the task that was preempted.
    pub(crate) fn set_last_buddy(&mut self, se: SeId) {
        self.set_upwards(se, |q| &mut q.last);
    }

    #[inline]
    fn set_upwards(&mut self, mut se: SeId, buddy: fn(&mut CfsRq) -> &mut SeId) {
        while se.is_some() {
            if !self.ses[se.ix()].on_rq || self.se_is_idle(se) {
                return;
            }
            let cfs = self.ses[se.ix()].cfs_rq;
            *buddy(&mut self.cfs[cfs.ix()]) = se;
            se = self.ses[se.ix()].parent;
        }
    }

    /// `se_is_idle`: a SCHED_IDLE task, or a group with cpu.idle.
    #[inline]
    pub fn se_is_idle(&self, se: SeId) -> bool {
        let e = &self.ses[se.ix()];
        if e.is_task() { e.idle } else { self.cfs_rq_is_idle(e.my_q) }
    }
}
