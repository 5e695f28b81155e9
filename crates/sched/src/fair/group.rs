//! Task groups: how a group's weight is shared among its CPUs, and the one word that all CPUs
//! write for it.
//!
//! **What.** A group has one weight for the whole machine. Each CPU's group entity gets the part
//! that its queue has of the group's load. The sum of all loads, `tg->load_avg`, is an atomic that
//! every CPU reads at each enqueue, dequeue and tick, and writes when its own part has changed.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `update_tg_load_avg`,
//! `calc_group_shares`, `update_cfs_group`, `reweight_entity`; ratelimit: 6.7.
//! **Equations.** load = max(weight, load_avg) of the queue; shares = tg.shares · load /
//! (tg.load_avg − contrib + load), between 2 and tg.shares. A write happens iff
//! |load_avg − contrib| > contrib / 64.
//! **Departures.** D1: no bandwidth control (throttling). D2: where the release reweights to the
//! same weight, the entity's load_avg is not recomputed from its sum a moment before its segment
//! ends.
//! **Example.** A group runs one nice-0 task on each of two CPUs: both group entities have half of
//! the group's weight.

use super::weight::scale_load_down;
use super::{CfsId, Fair, SeId};
use crate::cx::Cx;
use crate::release::GroupReweight;
use vruntime_base::{Func, Ns, Resource};
use vruntime_machine::Line;

/// The least time between two writes of one queue, where they are limited.
const RATELIMIT: Ns = Ns::from_ms(1);
/// The smallest weight of a group entity (MIN_SHARES), without extra resolution applied.
const MIN_SHARES: u64 = 2;

/// `calc_group_shares` from its inputs.
pub fn calc_group_shares(
    shares: u64,
    weight: u64,
    load_avg: u64,
    tg_load: i64,
    contrib: u64,
) -> u64 {
    let load = scale_load_down(weight).max(load_avg);
    let total = tg_load - contrib as i64 + load as i64;
    if load != 0 && total == load as i64 {
        // No other CPU has load: the usual case of a group that fits one CPU.
        return shares.max(MIN_SHARES);
    }
    let mut part = (shares * load) as i64;
    if total != 0 {
        part /= total;
    }
    part.clamp(MIN_SHARES as i64, shares as i64) as u64
}

/// The rule of `update_tg_load_avg`: the change is worth a write.
#[inline(always)]
pub fn contribution_changed(load_avg: u64, contrib: u64) -> bool {
    load_avg.abs_diff(contrib) > contrib / 64
}

impl Fair {
    /// `update_tg_load_avg`: publishes this queue's load if it changed enough.
    #[inline(never)]
    pub(crate) fn update_tg_load_avg(&mut self, cx: &mut Cx, cfs: CfsId) {
        if self.is_root(cfs) {
            return;
        }
        let q = &mut self.cfs[cfs.ix()];
        let now = cx.sh.rqs[q.cpu.ix()].clock;
        if cx.sh.release.tg_load_avg_ratelimit
            && now.saturating_sub(q.last_update_tg_load_avg) < RATELIMIT
        {
            return;
        }
        if !contribution_changed(q.avg.load_avg, q.tg_load_avg_contrib) {
            return;
        }
        let tg = &mut self.groups[q.tg.ix()];
        tg.load_avg += q.avg.load_avg as i64 - q.tg_load_avg_contrib as i64;
        q.tg_load_avg_contrib = q.avg.load_avg;
        q.last_update_tg_load_avg = now;
        let line = Line::TgLoadAvg(u32::from(q.tg.0));
        cx.write(line, Func::UpdateLoadAvg, Resource::TgLoadAvg);
    }

    /// `update_cfs_group`: gives a group entity the weight that its queue's load deserves.
    #[inline]
    pub(crate) fn update_cfs_group(&mut self, cx: &mut Cx, se: SeId) {
        let e = &self.ses[se.ix()];
        if e.is_task() {
            return;
        }
        let q = &self.cfs[e.my_q.ix()];
        let when = cx.sh.release.group_reweight;
        if when == GroupReweight::IfLoadedAndChanged && q.load_weight == 0 {
            return;
        }
        cx.read(Line::TgLoadAvg(u32::from(q.tg.0)), Func::UpdateCfsGroup, Resource::TgLoadAvg);
        let tg = &self.groups[q.tg.ix()];
        let contrib = q.tg_load_avg_contrib;
        let weight =
            calc_group_shares(tg.shares, q.load_weight, q.avg.load_avg, tg.load_avg, contrib);
        if when == GroupReweight::Always || weight != u64::from(e.weight) {
            self.reweight_entity(cx, se, weight as u32);
        }
    }

    /// `reweight_entity`: changes the weight of an entity, queued or not.
    pub(crate) fn reweight_entity(&mut self, cx: &mut Cx, se: SeId, weight: u32) {
        let e = &self.ses[se.ix()];
        let (cfs, on_rq, old) = (e.cfs_rq, e.on_rq, e.weight);
        let is_curr = self.cfs[cfs.ix()].curr == se;
        let queued = on_rq && !is_curr;
        if on_rq && (is_curr || self.eevdf) {
            // What ran so far ran at the old weight.
            self.update_curr(cx, cfs);
        }
        if old == weight {
            // CFS comes here even so; only the accounting above has an effect (D2).
            return;
        }
        if on_rq && self.eevdf && cx.sh.release.reweight_places_again {
            self.reweight_by_placement(cx, se, weight);
            self.mirror_averages(cx.sh, cfs);
            return;
        }
        let mean = if on_rq && self.eevdf { Some(self.avg_vruntime(cfs)) } else { None };
        if let (true, Some(_)) = (queued, mean) {
            self.tree_remove(se);
        }
        self.dequeue_load_avg(se);
        if self.eevdf {
            self.reweight_eevdf(&cx.sh.release, se, mean, weight);
        }
        if on_rq {
            let q = &mut self.cfs[cfs.ix()];
            q.load_weight = q.load_weight - u64::from(old) + u64::from(weight);
        }
        self.ses[se.ix()].set_weight(weight);
        self.enqueue_load_avg(se);
        if self.eevdf && queued {
            self.tree_insert(se);
        }
        if self.eevdf && on_rq {
            self.update_min_vruntime(cx, cfs);
        }
        self.mirror_averages(cx.sh, cfs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NICE_0: u64 = 1024 << 10;

    #[test]
    fn a_group_alone_on_its_cpu_has_all_its_shares() {
        assert_eq!(calc_group_shares(NICE_0, NICE_0, 1024, 1024, 1024), NICE_0);
    }

    #[test]
    fn two_cpus_with_equal_load_have_half_each() {
        assert_eq!(calc_group_shares(NICE_0, NICE_0, 1024, 2048, 1024), NICE_0 / 2);
    }

    /// The queue's weight counts before its average has caught up: 1024/(512 − 0 + 1024).
    #[test]
    fn weight_counts_where_it_exceeds_the_average() {
        assert_eq!(calc_group_shares(NICE_0, NICE_0, 10, 512, 0), NICE_0 * 1024 / 1536);
    }

    #[test]
    fn shares_stay_within_bounds() {
        assert_eq!(calc_group_shares(NICE_0, 0, 0, 1 << 40, 0), 2);
        assert_eq!(calc_group_shares(NICE_0, 0, 0, 0, 0), 2);
        // Another CPU's stale contribution cannot give more than everything.
        assert_eq!(calc_group_shares(NICE_0, NICE_0, 1024, 500, 800), NICE_0);
        assert_eq!(calc_group_shares(NICE_0, NICE_0, 1024, -5000, 0), 2);
    }

    #[test]
    fn a_64th_is_not_enough_to_write() {
        assert!(!contribution_changed(1024 + 16, 1024));
        assert!(contribution_changed(1024 + 17, 1024));
        assert!(!contribution_changed(1024 - 16, 1024));
        assert!(contribution_changed(1024 - 17, 1024));
        assert!(contribution_changed(1, 0));
        assert!(!contribution_changed(0, 0));
    }
}
