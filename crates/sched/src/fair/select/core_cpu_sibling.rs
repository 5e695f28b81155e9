//! The search of the last-level cache as 5.x makes it: a core, a CPU, a sibling.
//!
//! **What.** Three searches one after the other, each from the target on: for a whole idle core
//! while there may be one; for an idle CPU, as many as the expected idle time is worth; for an idle
//! sibling of the target.
//! **Source.** Linux 5.5-rc5 and 5.7.14, kernel/sched/fair.c: `select_idle_core`,
//! `select_idle_cpu`, `select_idle_smt`.
//! **Equations.** SIS_PROP: with idle = avg_idle / 512 and cost = avg_scan_cost + 1 of the waker's
//! CPU, nr = W·idle / cost if W·idle > 4·cost, else 4; nr − 1 CPUs are examined. avg_scan_cost +=
//! (time − avg_scan_cost)/8 after a scan that did not end at nr.
//! **Departures.** None.
//! **Example.** Four CPUs without SMT; target 1 is busy, 0 is idle, avg_idle 0.5 ms, a scan costs
//! 1 us: 4 · 976 < 4 · 1001, so nr = 4; 1, 2 and 3 are examined, 0 is not: the target.

use super::idle_sibling::{
    Found, IDLE_CORE, IDLE_CPU, SCHED_IDLE_CPU, TARGET_NOTHING_IDLE, TARGET_SCAN_LIMIT,
    TARGET_SIBLING, idle,
};
use super::{Effects, PlacementView};
use vruntime_base::{Cause, Cpu};

/// The CPU and rule, or why there is none.
pub(super) fn search<S: PlacementView>(
    s: &mut S,
    this_cpu: Cpu,
    target: Cpu,
    effects: &mut Effects,
) -> Result<Found, &'static Cause> {
    s.scan_begins();
    if let Some(c) = select_idle_core(s, target, effects) {
        return Ok((c, &IDLE_CORE));
    }
    let scan = select_idle_cpu(s, this_cpu, target, effects);
    if let Ok(found) = scan {
        return Ok(found);
    }
    match select_idle_smt(s, target, effects) {
        Some(c) => Ok((c, &TARGET_SIBLING)),
        None => scan,
    }
}

/// A core all of whose threads are idle.
fn select_idle_core<S: PlacementView>(
    s: &mut S,
    target: Cpu,
    effects: &mut Effects,
) -> Option<Cpu> {
    if !s.d().smt_active() || !s.has_idle_cores(target) {
        return None;
    }
    let span = s.d().sd(s.d().sd_llc(target)).span;
    let mut left = s.allowed_in(&span);
    for (mut from, end) in [(target.ix(), usize::MAX), (0, target.ix())] {
        while let Some(c) = left.next(from).filter(|c| c.ix() < end) {
            from = c.ix() + 1;
            let core = *s.t().smt(c);
            let mut whole = true;
            for thread in core.iter() {
                effects.nr_scanned += 1;
                whole &= s.idle_cpu(thread);
                if !whole && s.k().core_test_stops_early {
                    break;
                }
            }
            if whole && s.k().rule_on(&IDLE_CORE) {
                return Some(c);
            }
            left = left.minus(&core);
        }
    }
    effects.clear_idle_cores = Some(target);
    None
}

/// An idle CPU among those that a scan is worth.
fn select_idle_cpu<S: PlacementView>(
    s: &mut S,
    this_cpu: Cpu,
    target: Cpu,
    effects: &mut Effects,
) -> Result<Found, &'static Cause> {
    if s.d().sd_llc(this_cpu).is_none() {
        return Err(&TARGET_NOTHING_IDLE);
    }
    let span = s.d().sd(s.d().sd_llc(target)).span;
    let nr = if s.k().sis_prop { scan_limit(s, span.weight() as u64) } else { u64::MAX };
    let began = s.clock_ns();
    let (all, last) = (s.k().scan_counts_forbidden, s.k().sched_idle_last);
    let mut sched_idle = None;
    let mut n = 0;
    for c in span.iter_wrap(target.ix()) {
        if !all && !s.allowed(c) {
            continue;
        }
        n += 1;
        if n >= nr {
            return sched_idle.map(|c| (c, &SCHED_IDLE_CPU)).ok_or(&TARGET_SCAN_LIMIT);
        }
        if all && !s.allowed(c) {
            continue;
        }
        effects.nr_scanned += 1;
        let hit = if last { s.idle_cpu(c) } else { idle(s, c) };
        if hit && s.k().rule_on(&IDLE_CPU) {
            effects.scan_ns = Some(s.clock_ns() - began);
            return Ok((c, &IDLE_CPU));
        }
        if last && sched_idle.is_none() && s.sched_idle_cpu(c) {
            sched_idle = Some(c);
        }
    }
    // Whatever was met is forgotten after a whole round.
    effects.scan_ns = Some(s.clock_ns() - began);
    Err(&TARGET_NOTHING_IDLE)
}

/// SIS_PROP: CPUs to examine, plus one.
fn scan_limit<S: PlacementView>(s: &mut S, weight: u64) -> u64 {
    let (avg_idle, avg_scan_cost) = s.scan_budget();
    let (worth, cost) = (weight * (avg_idle / 512), avg_scan_cost + 1);
    if worth > 4 * cost { worth / cost } else { 4 }
}

/// An idle sibling of the target.
fn select_idle_smt<S: PlacementView>(s: &mut S, target: Cpu, effects: &mut Effects) -> Option<Cpu> {
    if !s.d().smt_active() || !s.k().rule_on(&TARGET_SIBLING) {
        return None;
    }
    let last = s.k().sched_idle_last;
    let mut sched_idle = None;
    for c in s.t().smt(target).iter() {
        if !s.allowed(c) {
            continue;
        }
        effects.nr_scanned += 1;
        if if last { s.idle_cpu(c) } else { idle(s, c) } {
            return Some(c);
        }
        if last && sched_idle.is_none() && s.sched_idle_cpu(c) {
            sched_idle = Some(c);
        }
    }
    sched_idle
}
