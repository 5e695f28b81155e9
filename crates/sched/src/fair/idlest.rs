//! The slow path of placement: the idlest CPU for a new task, or for one that calls exec.
//!
//! **What.** From the largest domain that balances on fork (or exec) downwards: the idlest group,
//! in it the idlest CPU, then the same in that CPU's smaller domains.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `find_idlest_cpu`,
//! `find_idlest_group`, `find_idlest_group_cpu`, `update_sg_wakeup_stats`.
//! **Equations.** avg_load = load · 1024 / capacity. With imb = 1024·(pct − 100)/100, a loaded
//! local group keeps the task if other + imb ≥ local (NUMA), other ≥ local + imb, or
//! 100·local ≤ pct·other.
//! **Departures.** D1: capacity is 1024 a CPU. D2: idle states are not known here, so among idle
//! CPUs the last to go idle is taken, as where exit latencies are equal. D3: no preferred NUMA
//! node.
//! **Example.** Two caches of two CPUs; 0 forks, 1 is busy, 2 and 3 are idle: the other cache has
//! two idle CPUs against none, and of those the one that went idle last is taken.

#[cfg(test)]
pub(crate) mod tests;

use super::Fair;
use crate::balance::imbalance::adjust_numa_imbalance;
use crate::balance::stats::{GroupStats, GroupType, cpu_util, group_classify, runnable};
use crate::cx::{Cx, Shared};
use crate::domains::{Domain, Domains, Group, SdFlags};
use crate::release::{NumaImbalance, Release};
use crate::scheduler::{Placement, WakeFlags};
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, Func, Ns, TaskId};

/// No domain balances on fork or exec, or none has a CPU the task may use.
pub static NO_DOMAIN: Cause = Cause::new(CauseKind::Placement, "slow path: no domain");
/// No other group is idler than the local one, at any level.
pub static LOCAL: Cause = Cause::new(CauseKind::Placement, "slow path: local group idlest");
/// The last to go idle in the idlest group.
pub static IDLE: Cause = Cause::new(CauseKind::Placement, "slow path: idle CPU");
/// A CPU that runs only SCHED_IDLE tasks.
pub static SCHED_IDLE: Cause = Cause::new(CauseKind::Placement, "slow path: SCHED_IDLE CPU");
/// The least loaded of the idlest group, in which no CPU is idle.
pub static LEAST_LOADED: Cause = Cause::new(CauseKind::Placement, "slow path: least loaded CPU");

/// The task that asks for a CPU, and its own part in the numbers of the CPU it is on.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// The task.
    pub p: TaskId,
    /// The CPU whose averages contain the task, if any (exec; not fork).
    pub on: Cpu,
    /// Its load there.
    pub h_load: u64,
    /// Its utilisation there.
    pub util: u32,
    /// Its utilisation estimate there.
    pub util_est: u32,
    /// Its runnable average there.
    pub runnable: u32,
}

impl Fair {
    /// The slow path of `select_task_rq_fair`.
    pub(super) fn select_idlest(
        &mut self,
        cx: &mut Cx,
        p: TaskId,
        prev: Cpu,
        flags: WakeFlags,
    ) -> Placement {
        let flag = if flags.fork { SdFlags::BALANCE_FORK } else { SdFlags::BALANCE_EXEC };
        let se = cx.sh.task(p).se;
        if !flags.fork {
            self.sync_entity_load_avg(se);
        }
        let avg = &self.ses[se.ix()].avg;
        let attached = avg.last_update_time != Ns::ZERO;
        let (util, runnable) = (avg.util_avg, avg.runnable_avg);
        let who = Newcomer {
            p,
            on: if attached { cx.sh.task(p).cpu } else { Cpu::NONE },
            h_load: if attached { self.task_h_load(cx, p) } else { 0 },
            util,
            util_est: if attached { Self::estimate(cx.sh, p) } else { 0 },
            runnable,
        };
        charge(cx, flag);
        find_idlest_cpu(cx.sh, &who, cx.cpu, prev, flag)
    }
}

/// Looking at every CPU of every level: of those below the top one, whose lines have come by then,
/// as at the levels of the CPU that asks.
fn charge(cx: &mut Cx, flag: SdFlags) {
    let Some(top) = top_domain(&cx.sh.domains, cx.cpu, flag) else { return };
    let span = cx.sh.domains.at(top).span;
    for c in span.iter() {
        cx.read_load_in_turn(c, Func::SelectTaskRq);
    }
    let levels = cx.sh.domains.slots(cx.cpu).start..=top;
    let looks: u32 = levels.map(|slot| cx.sh.domains.at(slot).weight).sum();
    cx.charge(Func::SelectTaskRq, cx.machine.costs.scan_cpu.saturating_mul(looks));
}

/// Slot of the highest domain of `cpu` up to which all have `flag`.
pub fn top_domain(d: &Domains, cpu: Cpu, flag: SdFlags) -> Option<usize> {
    d.slots(cpu).take_while(|&slot| d.at(slot).flags.has(flag)).last()
}

/// `find_idlest_cpu`, from the domains of `cpu`, the CPU that executes fork or exec.
pub fn find_idlest_cpu(
    sh: &Shared,
    who: &Newcomer,
    cpu: Cpu,
    prev: Cpu,
    flag: SdFlags,
) -> Placement {
    let d = &sh.domains;
    let allowed = sh.allowed(who.p);
    let Some(top) = top_domain(d, cpu, flag) else {
        return Placement { cpu: prev, rule: &NO_DOMAIN };
    };
    if !d.at(top).span.intersects(allowed) {
        return Placement { cpu: prev, rule: &NO_DOMAIN };
    }
    let mut cpu = cpu;
    let mut found = Placement { cpu, rule: &LOCAL };
    let mut slot = Some(top);
    while let Some(at) = slot {
        let child = at.checked_sub(1).filter(|s| *s >= d.slots(cpu).start);
        let sd = d.at(at);
        slot = child;
        if !sd.flags.has(flag) {
            continue;
        }
        let Some(g) = find_idlest_group(sh, sd, who, cpu) else { continue };
        let next = find_idlest_group_cpu(sh, g, allowed, cpu);
        found = next;
        if next.cpu == cpu {
            continue;
        }
        let weight = sd.weight;
        cpu = next.cpu;
        slot = d
            .slots(cpu)
            .take_while(|&s| d.at(s).weight < weight)
            .filter(|&s| d.at(s).flags.has(flag))
            .last();
    }
    if !allowed.has(found.cpu) && found.rule.id == LOCAL.id {
        return Placement { cpu: prev, rule: &NO_DOMAIN };
    }
    found
}

/// `find_idlest_group`: another group than the local one that is worth it, if any.
fn find_idlest_group<'d>(
    sh: &Shared,
    sd: &'d Domain,
    who: &Newcomer,
    this_cpu: Cpu,
) -> Option<&'d Group> {
    let allowed = sh.allowed(who.p);
    let mut local: Option<(&Group, GroupStats)> = None;
    let mut idlest: Option<(&Group, GroupStats)> = None;
    let start = sd.group_of(this_cpu);
    for i in 0..sd.groups.len() {
        let g = &sd.groups[(start + i) % sd.groups.len()];
        if !g.span.intersects(allowed) {
            continue;
        }
        let s = wakeup_stats(sh, sd, g, who, allowed);
        if g.span.has(this_cpu) {
            local = Some((g, s));
        } else if update_pick_idlest(&sh.release, idlest.as_ref().map(|x| &x.1), &s) {
            idlest = Some((g, s));
        }
    }
    let (group, other) = idlest?;
    let Some((local_group, local)) = local else { return Some(group) };
    if local.kind != other.kind {
        return (local.kind > other.kind).then_some(group);
    }
    let stays = match local.kind {
        GroupType::Overloaded | GroupType::FullyBusy => {
            let pct = u64::from(sd.imbalance_pct);
            let imbalance = 1024 * (pct - 100) / 100;
            (sd.flags.has(SdFlags::NUMA) && other.avg_load + imbalance >= local.avg_load)
                || other.avg_load >= local.avg_load + imbalance
                || 100 * local.avg_load <= pct * other.avg_load
        }
        GroupType::HasSpare => {
            (sd.flags.has(SdFlags::NUMA)
                && numa_stays(sh, sd, local_group, &local, &other, allowed))
                || local.idle_cpus >= other.idle_cpus
        }
        GroupType::Imbalanced | GroupType::SmtBalance => true,
    };
    (!stays).then_some(group)
}

fn numa_stays(
    sh: &Shared,
    sd: &Domain,
    local_group: &Group,
    local: &GroupStats,
    other: &GroupStats,
    allowed: &CpuMask,
) -> bool {
    if sh.release.numa_imbalance != NumaImbalance::ImbNumaNr {
        return local.idle_cpus > 0;
    }
    let usable = local_group.span.and(allowed).weight() as u32;
    let imb_numa_nr = sd.imb_numa_nr.min(usable);
    let imbalance = i64::from(local.idle_cpus.abs_diff(other.idle_cpus));
    adjust_numa_imbalance(imbalance, local.sum_nr_running + 1, imb_numa_nr) == 0
}

/// The new group is idler than the best so far.
fn update_pick_idlest(k: &Release, best: Option<&GroupStats>, s: &GroupStats) -> bool {
    let Some(best) = best else { return true };
    if s.kind != best.kind {
        return s.kind < best.kind;
    }
    match s.kind {
        GroupType::Overloaded | GroupType::FullyBusy => s.avg_load < best.avg_load,
        GroupType::HasSpare => {
            s.idle_cpus > best.idle_cpus
                || (s.idle_cpus == best.idle_cpus
                    && k.idlest_tie_by_util
                    && s.group_util < best.group_util)
        }
        GroupType::Imbalanced | GroupType::SmtBalance => false,
    }
}

/// `update_sg_wakeup_stats`: the group as if the task were not there.
fn wakeup_stats(
    sh: &Shared,
    sd: &Domain,
    g: &Group,
    who: &Newcomer,
    allowed: &CpuMask,
) -> GroupStats {
    let by_use_alone = sh.release.idlest_by_use_alone;
    let group_weight = if by_use_alone { 0 } else { g.weight };
    let mut s = GroupStats { group_weight, ..GroupStats::default() };
    for &c in sh.domains.group_cpus(g) {
        if sh.release.idlest_group_allowed_only && !allowed.has(c) {
            continue;
        }
        let mut l = sh.loads[c.ix()];
        let here = u32::from(sh.task(who.p).cpu == c && sh.task(who.p).on_rq);
        if who.on == c {
            l.load_avg = l.load_avg.saturating_sub(who.h_load);
            l.util_avg = l.util_avg.saturating_sub(who.util);
            l.util_est = l.util_est.saturating_sub(who.util_est);
            l.runnable_avg = l.runnable_avg.saturating_sub(who.runnable);
        }
        let nr_running = l.nr_running.saturating_sub(here);
        s.group_load += l.load_avg;
        s.group_util += u64::from(cpu_util(&sh.release, &l));
        s.group_runnable += runnable(&sh.release, &l);
        s.sum_h_nr_running += l.h_nr_queued.saturating_sub(here);
        s.sum_nr_running += nr_running;
        let rq = sh.rq(c);
        let idle_without = sh.curr_is_idle(c) || rq.curr == who.p;
        s.idle_cpus += u32::from(nr_running == 0 && idle_without && !rq.ttwu_pending);
    }
    s.group_capacity = 1024 * u64::from(g.weight);
    s.kind = match group_classify(sd.imbalance_pct, &s) {
        GroupType::Overloaded => GroupType::Overloaded,
        _ if sh.domains.imbalanced(g) => GroupType::Imbalanced,
        kind => kind,
    };
    if matches!(s.kind, GroupType::FullyBusy | GroupType::Overloaded) && !by_use_alone {
        s.avg_load = s.group_load * 1024 / s.group_capacity;
    }
    s
}

/// `find_idlest_group_cpu`.
fn find_idlest_group_cpu(sh: &Shared, g: &Group, allowed: &CpuMask, this_cpu: Cpu) -> Placement {
    let cpus = sh.domains.group_cpus(g);
    if let [only] = cpus {
        let rule = if sh.idle_cpu(*only) { &IDLE } else { &LEAST_LOADED };
        return Placement { cpu: *only, rule };
    }
    let mut least = (u64::MAX, this_cpu);
    let mut shallowest = None;
    let mut sched_idle = None;
    let mut latest = Ns::ZERO;
    for &c in cpus.iter().filter(|c| allowed.has(**c)) {
        if sh.release.rule_on(&SCHED_IDLE) && sh.sched_idle_cpu(c) {
            if !sh.release.sched_idle_last {
                return Placement { cpu: c, rule: &SCHED_IDLE };
            }
            sched_idle = sched_idle.or(Some(c));
            continue;
        }
        if sh.release.rule_on(&IDLE) && sh.idle_cpu(c) {
            // D2.
            if shallowest.is_none() || sh.rq(c).idle_stamp > latest {
                latest = sh.rq(c).idle_stamp;
                shallowest = Some(c);
            }
        } else if shallowest.is_none() && sh.loads[c.ix()].load_avg < least.0 {
            least = (sh.loads[c.ix()].load_avg, c);
        }
    }
    match shallowest {
        Some(cpu) => Placement { cpu, rule: &IDLE },
        None if sched_idle.is_some() => {
            Placement { cpu: sched_idle.unwrap_or(this_cpu), rule: &SCHED_IDLE }
        }
        None => Placement { cpu: least.1, rule: &LEAST_LOADED },
    }
}
