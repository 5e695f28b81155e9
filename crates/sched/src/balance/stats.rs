//! What balancing knows of a group of CPUs, and how busy it calls it.
//!
//! **What.** One pass over a domain's CPUs sums load, utilisation, runnable time, tasks and idle
//! CPUs by group, classifies each group, and keeps the busiest one that is not the puller's own.
//! The same pass sets the limit of idle scans (`nr_idle_scan`).
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `update_sd_lb_stats`,
//! `update_sg_lb_stats`, `group_classify`, `update_sd_pick_busiest`, `update_idle_cpu_scan`.
//! **Equations.** With cap = 1024·weight, pct = imbalance_pct:
//! overloaded ⇔ nr > weight ∧ (cap·100 < util·pct ∨ cap·pct < runnable·100);
//! spare ⇔ nr < weight ∨ (cap·pct ≥ runnable·100 ∧ cap·100 > util·pct); fully busy otherwise.
//! nr_idle_scan = (1024 − min(x²·pct²/(10000·1024), 1024))·W/1024, x = average utilisation of a
//! CPU.
//! **Departures.** D1: capacity is always 1024 a CPU: no thermal, interrupt or RT share, so no
//! misfit tasks of reduced capacity. D2: no asymmetric packing or capacity. D3: no NUMA classes of
//! queues.
//! **Example.** W = 16, x = 512, pct = 117: tmp = 350, nr_idle_scan = 674·16/1024 = 10.

use crate::balance::IdleType;
use crate::cx::Shared;
use crate::domains::{Domain, Group, SdFlags};
use crate::release::Release;
use crate::task::RqLoad;
use vruntime_base::{Cpu, CpuMask};

/// How busy a group is, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum GroupType {
    /// Has CPU time to spare.
    #[default]
    HasSpare,
    /// Every CPU is used, none is short.
    FullyBusy,
    /// A core with several busy threads while the puller has time (6.6 on).
    SmtBalance,
    /// Affinity kept a balance pass below from succeeding.
    Imbalanced,
    /// More tasks than it can serve.
    Overloaded,
}

/// `struct sg_lb_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// Load per capacity; only computed where needed.
    pub avg_load: u64,
    /// Sum of load_avg.
    pub group_load: u64,
    /// Sum of utilisation.
    pub group_util: u64,
    /// Sum of runnable_avg.
    pub group_runnable: u64,
    /// Capacity.
    pub group_capacity: u64,
    /// Tasks of all classes.
    pub sum_nr_running: u32,
    /// Fair tasks.
    pub sum_h_nr_running: u32,
    /// Idle CPUs.
    pub idle_cpus: u32,
    /// CPUs.
    pub group_weight: u32,
    /// Verdict.
    pub kind: GroupType,
}

/// `struct sd_lb_stats`.
#[derive(Clone, Debug, Default)]
pub struct DomainStats {
    /// The busiest group that is not the local one: index and numbers.
    pub busiest: Option<(usize, GroupStats)>,
    /// The puller's group.
    pub local: (usize, GroupStats),
    /// Load of all groups.
    pub total_load: u64,
    /// Capacity of all groups.
    pub total_capacity: u64,
    /// Utilisation of all groups.
    pub total_util: u64,
    /// Some CPU has more than one task.
    pub overload: bool,
    /// Tasks go to sibling domains first.
    pub prefer_sibling: bool,
}

/// Who balances what.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The domain.
    pub sd: &'a Domain,
    /// Position of the local group.
    pub local: usize,
    /// Its child prefers siblings.
    pub child_prefers_sibling: bool,
    /// The puller.
    pub dst_cpu: Cpu,
    /// Why it balances.
    pub idle: IdleType,
    /// CPUs that take part.
    pub cpus: &'a CpuMask,
    /// All of the domain's do.
    pub whole: bool,
}

/// `cpu_util_cfs`.
#[inline(always)]
pub fn cpu_util(k: &Release, l: &RqLoad) -> u32 {
    let util = if k.util_est { l.util_avg.max(l.util_est) } else { l.util_avg };
    util.min(1024)
}

/// Runnable time of a CPU, where the classification looks at it.
#[inline(always)]
pub fn runnable(k: &Release, l: &RqLoad) -> u64 {
    if k.overloaded_by_runnable { l.runnable_avg.into() } else { 0 }
}

/// Fair tasks of a CPU as the balancer counts them.
#[inline(always)]
pub fn h_nr(k: &Release, l: &RqLoad) -> u32 {
    if k.balance_counts_delayed { l.h_nr_queued } else { l.h_nr_queued - l.h_nr_delayed }
}

/// `group_has_capacity`, `group_is_overloaded` and the type that follows from the numbers alone.
pub fn group_classify(imbalance_pct: u32, s: &GroupStats) -> GroupType {
    let pct = u64::from(imbalance_pct);
    let enough_util = s.group_capacity * 100 > s.group_util * pct;
    let short_util = s.group_capacity * 100 < s.group_util * pct;
    let short_runnable = s.group_capacity * pct < s.group_runnable * 100;
    if s.sum_nr_running > s.group_weight && (short_util || short_runnable) {
        GroupType::Overloaded
    } else if s.sum_nr_running < s.group_weight || (!short_runnable && enough_util) {
        GroupType::HasSpare
    } else {
        GroupType::FullyBusy
    }
}

/// `update_sd_lb_stats`, without its effects.
pub fn update_sd_lb_stats(sh: &Shared, q: &Question) -> DomainStats {
    let k = &sh.release;
    let n = q.sd.groups.len();
    let local = q.local;
    let mut sds = DomainStats { prefer_sibling: q.child_prefers_sibling, ..Default::default() };
    for i in 0..n {
        let g = if local + i < n { local + i } else { local + i - n };
        let group = &q.sd.groups[g];
        let (mut s, overload) = sum_group(sh, q, group);
        sds.overload |= overload;
        s.kind = classify(sh, q, group, &s, g == local);
        if s.kind == GroupType::Overloaded {
            s.avg_load = s.group_load * 1024 / s.group_capacity;
        }
        sds.total_load += s.group_load;
        sds.total_capacity += s.group_capacity;
        sds.total_util += s.group_util;
        if g == local {
            sds.local = (g, s);
        } else if pick_busiest(k, q.sd, sds.busiest.as_ref(), &s) {
            sds.busiest = Some((g, s));
        }
    }
    sds
}

/// `update_sg_lb_stats`: the sums, and whether some CPU has more than one task.
#[inline]
fn sum_group(sh: &Shared, q: &Question, group: &Group) -> (GroupStats, bool) {
    let k = &sh.release;
    let mut s = GroupStats { group_weight: group.weight, ..GroupStats::default() };
    let mut overload = false;
    for &c in sh.domains.group_cpus(group) {
        if !q.whole && !q.cpus.has(c) {
            continue;
        }
        let l = &sh.loads[c.ix()];
        s.group_load += l.load_avg;
        s.group_util += u64::from(cpu_util(k, l));
        s.group_runnable += runnable(k, l);
        s.sum_h_nr_running += h_nr(k, l);
        s.sum_nr_running += l.nr_running;
        overload |= l.nr_running > 1;
        s.idle_cpus += u32::from(l.nr_running == 0 && sh.idle_cpu(c));
    }
    s.group_capacity = 1024 * u64::from(group.weight);
    (s, overload)
}

/// `group_classify` with the reasons that the numbers do not show.
fn classify(sh: &Shared, q: &Question, g: &Group, s: &GroupStats, local: bool) -> GroupType {
    let by_numbers = group_classify(q.sd.imbalance_pct, s);
    if by_numbers == GroupType::Overloaded {
        GroupType::Overloaded
    } else if sh.domains.imbalanced(g) {
        GroupType::Imbalanced
    } else if sh.release.smt_balance
        && !local
        && q.idle != IdleType::NotIdle
        && g.flags.has(SdFlags::SHARE_CPUCAPACITY)
        && s.sum_h_nr_running > 1
    {
        GroupType::SmtBalance
    } else {
        by_numbers
    }
}

/// `update_sd_pick_busiest`: `s` is busier than the busiest so far.
fn pick_busiest(
    k: &Release,
    sd: &Domain,
    busiest: Option<&(usize, GroupStats)>,
    s: &GroupStats,
) -> bool {
    if s.sum_h_nr_running == 0 {
        return false;
    }
    // What the search starts from: a group with nothing but idle CPUs.
    let Some((b, busiest)) = busiest else { return true };
    if s.kind != busiest.kind {
        return s.kind > busiest.kind;
    }
    match s.kind {
        GroupType::Overloaded => s.avg_load > busiest.avg_load,
        GroupType::Imbalanced => false,
        GroupType::SmtBalance if s.idle_cpus != 0 || busiest.idle_cpus != 0 => {
            more_spare(k, s, busiest)
        }
        // A tie: the load is that of overloaded groups only, here 0.
        GroupType::SmtBalance | GroupType::FullyBusy => {
            k.fully_busy_tie_takes_later && !sd.groups[*b].flags.has(SdFlags::SHARE_CPUCAPACITY)
        }
        GroupType::HasSpare => more_spare(k, s, busiest),
    }
}

/// Fewer idle CPUs, or as many and more tasks.
fn more_spare(k: &Release, s: &GroupStats, busiest: &GroupStats) -> bool {
    s.idle_cpus < busiest.idle_cpus
        || (s.idle_cpus == busiest.idle_cpus
            && k.spare_tie_by_tasks
            && s.sum_nr_running > busiest.sum_nr_running)
}

/// `update_idle_cpu_scan`: CPUs that an idle scan may examine.
pub fn nr_idle_scan(sum_util: u64, llc_weight: u32, imbalance_pct: u32) -> u32 {
    let w = u64::from(llc_weight);
    let x = sum_util / w;
    let pct = u64::from(imbalance_pct);
    let tmp = (x * x * pct * pct / (10_000 * 1024)).min(1024);
    ((1024 - tmp) * w / 1024) as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// W, average utilisation, pct.
    fn scan(w: u32, x: u64, pct: u32) -> u32 {
        nr_idle_scan(x * u64::from(w), w, pct)
    }

    #[test]
    fn nr_idle_scan_as_update_idle_cpu_scan_computes_it() {
        assert_eq!(scan(16, 0, 117), 16);
        assert_eq!([scan(16, 256, 117), scan(16, 512, 117), scan(16, 768, 117)], [14, 10, 3]);
        // The first average utilisation with no scan at all.
        for (w, pct, x) in [(16, 117, 848), (8, 117, 820), (4, 117, 759), (4, 110, 807)] {
            assert_eq!((scan(w, x, pct), scan(w, x - 1, pct)), (0, 1), "W {w} pct {pct}");
        }
        assert_eq!(scan(16, 1024, 117), 0);
    }

    fn group(weight: u32, nr: u32, util: u64, runnable: u64) -> GroupStats {
        GroupStats {
            group_weight: weight,
            group_capacity: 1024 * u64::from(weight),
            sum_nr_running: nr,
            sum_h_nr_running: nr,
            group_util: util,
            group_runnable: runnable,
            ..GroupStats::default()
        }
    }

    #[test]
    fn classification_by_numbers() {
        let kind = |w, nr, util, runnable| group_classify(117, &group(w, nr, util, runnable));
        // cap 2048: util·117 > 204800 from 1751 on; runnable·100 > 239616 from 2397 on.
        assert_eq!(kind(2, 1, 2048, 9999), GroupType::HasSpare);
        assert_eq!(kind(2, 2, 1750, 0), GroupType::HasSpare);
        assert_eq!(kind(2, 2, 1751, 0), GroupType::FullyBusy);
        assert_eq!(kind(2, 2, 0, 2396), GroupType::HasSpare);
        assert_eq!(kind(2, 2, 0, 2397), GroupType::FullyBusy);
        assert_eq!(kind(2, 3, 1751, 0), GroupType::Overloaded);
        assert_eq!(kind(2, 3, 0, 2397), GroupType::Overloaded);
        assert_eq!(kind(2, 3, 1750, 2396), GroupType::HasSpare);
        // At both limits: 5120·100 = 4096·125, 5120·125 = 6400·100. Neither spare nor short.
        let kind = |nr, util, runnable| group_classify(125, &group(5, nr, util, runnable));
        assert_eq!([kind(5, 4096, 6400), kind(6, 4096, 6400)], [GroupType::FullyBusy; 2]);
        assert_eq!([kind(6, 4097, 6400), kind(6, 4095, 6401)], [GroupType::Overloaded; 2]);
        assert_eq!(kind(6, 4095, 6400), GroupType::HasSpare);
    }

    #[test]
    pub(crate) fn utilisation_of_a_cpu() {
        let l = RqLoad { util_avg: 300, util_est: 500, ..RqLoad::default() };
        let k = crate::sample::v6_1();
        assert_eq!(cpu_util(&k, &l), 500);
        assert_eq!(cpu_util(&Release { util_est: false, ..k.clone() }, &l), 300);
        assert_eq!(cpu_util(&k, &RqLoad { util_avg: 2000, ..l }), 1024);
    }
}
