//! Whether a busiest group is worth a pull, and how much of what is to be moved.
//!
//! **What.** `find_busiest_group` after the statistics, `calculate_imbalance`,
//! `find_busiest_queue`.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `find_busiest_group`,
//! `calculate_imbalance`, `sibling_imbalance`, `adjust_numa_imbalance`, `find_busiest_queue`.
//! **Equations.** Both groups loaded: load to move =
//! min((busiest − avg)·cap(busiest), (avg − local)·cap(local)) / 1024, where avg is the load per
//! capacity of the domain. Local has spare: half the difference of tasks (siblings preferred) or of
//! idle CPUs. Sibling imbalance with c and C cores: (2·(c·N − C·n)⁺ + c + C)/(c + C).
//! **Departures.** D1: no misfit, asymmetric or energy-aware cases. D2: no NUMA classes of queues.
//! **Example.** Two LLCs of four CPUs; four tasks in one, none in the other: difference 4, two
//! move.

use super::IdleType;
use super::stats::{DomainStats, GroupStats, GroupType, Question, cpu_util, h_nr};
use crate::cx::Shared;
use crate::domains::SdFlags;
use crate::release::{LocalLoadChecks, NumaImbalance, Release};
use vruntime_base::Cpu;

/// What is counted when tasks are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MigrationType {
    /// Load.
    #[default]
    Load,
    /// Utilisation.
    Util,
    /// Tasks.
    Task,
}

/// A pull to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Imbalance {
    /// What is counted.
    pub kind: MigrationType,
    /// How much of it.
    pub amount: i64,
}

/// `find_busiest_group` with its statistics done: the group and the pull, or balanced.
pub fn find_busiest_group(
    k: &Release,
    q: &Question,
    sds: &DomainStats,
) -> Option<(usize, Imbalance)> {
    let (group, busiest) = sds.busiest.as_ref()?;
    let local = &sds.local.1;
    if busiest.kind != GroupType::Imbalanced && !worth_it(k, q, sds, local, busiest) {
        return None;
    }
    let imbalance = calculate_imbalance(k, q, sds, *local, busiest);
    (imbalance.amount != 0).then_some((*group, imbalance))
}

fn worth_it(
    k: &Release,
    q: &Question,
    sds: &DomainStats,
    local: &GroupStats,
    busiest: &GroupStats,
) -> bool {
    if local.kind > busiest.kind {
        return false;
    }
    if local.kind == GroupType::Overloaded {
        let pct = u64::from(q.sd.imbalance_pct);
        if local.avg_load >= busiest.avg_load
            || local.avg_load >= average(sds)
            || 100 * busiest.avg_load <= pct * local.avg_load
        {
            return false;
        }
    }
    if sds.prefer_sibling
        && local.kind == GroupType::HasSpare
        && sibling_imbalance(k, q, sds, local, busiest) > 1
    {
        return true;
    }
    busiest.kind == GroupType::Overloaded
        || (q.idle != IdleType::NotIdle
            && !(busiest.group_weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1)
            && busiest.sum_h_nr_running != 1)
}

/// Load per capacity of the domain.
fn average(sds: &DomainStats) -> u64 {
    sds.total_load * 1024 / sds.total_capacity
}

/// How many more tasks the busiest group has, by the number of cores where they differ.
fn sibling_imbalance(
    k: &Release,
    q: &Question,
    sds: &DomainStats,
    local: &GroupStats,
    busiest: &GroupStats,
) -> i64 {
    let (n, big) = (i64::from(local.sum_nr_running), i64::from(busiest.sum_nr_running));
    if !k.sibling_imbalance_by_cores {
        return (big - n).max(0);
    }
    let Some((busiest_group, _)) = sds.busiest else { return 0 };
    if q.idle == IdleType::NotIdle || big == 0 {
        return 0;
    }
    let c = i64::from(q.sd.groups[sds.local.0].cores);
    let b = i64::from(q.sd.groups[busiest_group].cores);
    if c == b {
        return (big - n).max(0);
    }
    let imbalance = (2 * (c * big - b * n).max(0) + c + b) / (c + b);
    // An empty group takes a task even if the ratio rounds to nothing.
    if imbalance <= 1 && n == 0 && big > 1 { 2 } else { imbalance }
}

/// `adjust_numa_imbalance` (5.18 on): a pair of tasks stays together while the node is nearly
/// empty.
pub fn adjust_numa_imbalance(imbalance: i64, dst_running: u32, imb_numa_nr: u32) -> i64 {
    if dst_running <= imb_numa_nr && imbalance <= 2 { 0 } else { imbalance }
}

fn calculate_imbalance(
    k: &Release,
    q: &Question,
    sds: &DomainStats,
    mut local: GroupStats,
    busiest: &GroupStats,
) -> Imbalance {
    let task = |amount| Imbalance { kind: MigrationType::Task, amount };
    if matches!(busiest.kind, GroupType::SmtBalance | GroupType::Imbalanced) {
        return task(1);
    }
    if local.kind == GroupType::HasSpare {
        let shares_llc = q.sd.flags.has(SdFlags::SHARE_LLC);
        if busiest.kind > GroupType::FullyBusy && (k.util_imbalance_in_llc || !shares_llc) {
            let amount = local.group_capacity.saturating_sub(local.group_util) as i64;
            if amount == 0 && q.idle != IdleType::NotIdle {
                return task(1);
            }
            return Imbalance { kind: MigrationType::Util, amount };
        }
        let by_tasks = busiest.group_weight == 1 || sds.prefer_sibling;
        let amount = if by_tasks {
            sibling_imbalance(k, q, sds, &local, busiest)
        } else {
            (i64::from(local.idle_cpus) - i64::from(busiest.idle_cpus)).max(0)
        };
        return task(numa_halved(k, q, amount, &local, busiest));
    }
    let load = |amount| Imbalance { kind: MigrationType::Load, amount };
    let avg = average(sds);
    if local.kind < GroupType::Overloaded {
        local.avg_load = local.group_load * 1024 / local.group_capacity;
        let checks = k.local_load_checks;
        if (checks != LocalLoadChecks::None && local.avg_load >= busiest.avg_load)
            || (checks == LocalLoadChecks::BusiestAndAverage && local.avg_load >= avg)
        {
            return load(0);
        }
    }
    let surplus = busiest.avg_load.wrapping_sub(avg).wrapping_mul(busiest.group_capacity);
    let room = avg.wrapping_sub(local.avg_load).wrapping_mul(local.group_capacity);
    load((surplus.min(room) / 1024) as i64)
}

/// Half the difference, less what NUMA nodes are allowed to differ by.
fn numa_halved(
    k: &Release,
    q: &Question,
    amount: i64,
    local: &GroupStats,
    busiest: &GroupStats,
) -> i64 {
    if !q.sd.flags.has(SdFlags::NUMA) {
        return amount >> 1;
    }
    match k.numa_imbalance {
        NumaImbalance::None => amount >> 1,
        NumaImbalance::Pair if busiest.sum_nr_running <= 2 => 0,
        NumaImbalance::Pair => amount >> 1,
        NumaImbalance::ImbNumaNr => {
            adjust_numa_imbalance(amount, local.sum_nr_running + 1, q.sd.imb_numa_nr) >> 1
        }
    }
}

/// `find_busiest_queue`: the CPU of the group to pull from; the first wins a tie.
pub fn find_busiest_queue(
    sh: &Shared,
    q: &Question,
    group: usize,
    imbalance: &Imbalance,
) -> Option<Cpu> {
    let k = &sh.release;
    let mut most = 0;
    let mut busiest = None;
    for &c in sh.domains.group_cpus(&q.sd.groups[group]) {
        let l = &sh.loads[c.ix()];
        let nr = h_nr(k, l);
        if (nr == 0 && !k.idle_queue_gives) || !q.cpus.has(c) {
            continue;
        }
        let much = match imbalance.kind {
            MigrationType::Load if nr == 1 && l.load_avg as i64 > imbalance.amount => continue,
            MigrationType::Load => l.load_avg,
            MigrationType::Util if nr <= 1 && k.util_queue_of_two => continue,
            MigrationType::Util => {
                let boost = if k.util_boosted_by_runnable { l.runnable_avg } else { 0 };
                u64::from(cpu_util(k, l).max(boost).min(1024))
            }
            MigrationType::Task => u64::from(nr),
        };
        if much > most {
            most = much;
            busiest = Some(c);
        }
    }
    busiest
}
