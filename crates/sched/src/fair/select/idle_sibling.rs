//! `select_idle_sibling`: an idle CPU near the target.
//!
//! **What.** Cheap tests first (target, prev, the CPU used before prev, the sibling of prev), then
//! a search of the last-level cache: for a whole idle core while there may be one, else for any
//! idle CPU, as far as the utilisation of the cache allows. If all fails, the target, busy or not.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `select_idle_sibling`,
//! `select_idle_cpu`, `select_idle_core`, `select_idle_smt`, `__select_idle_cpu`.
//! **Equations.** CPUs examined without an idle core ≤ `nr_idle_scan` (SIS_UTIL, see
//! [`crate::balance`]).
//! **Departures.** None. What 5.x searches is in [`super::core_cpu_sibling`].
//! **Example.** Four CPUs, no SMT; target 1 and prev 1 are busy, 0 is idle, nr_idle_scan 4: the
//! scan goes 2, 3, 0 and takes 0.

use super::{Effects, Fixed, PlacementView, WakeQuery, core_cpu_sibling};
use crate::domains::SdFlags;
use crate::release::{IdleSearch, KthreadStacking};
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask};

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)*) => {
        $($(#[doc = $doc])+ pub static $name: Cause = Cause::new(CauseKind::Placement, $text);)*
        /// Every rule of this file.
        pub static RULES: &[&Cause] = &[$(&$name,)*];
    };
}

rules! {
    /// The target is idle.
    TARGET_IDLE = "target idle";
    /// Prev is idle and shares the target's cache.
    PREV_IDLE = "prev idle";
    /// The waker is a kernel thread bound to prev and will be off it soon.
    KTHREAD_STACKING = "stacked on per-CPU kthread";
    /// The CPU used before prev is idle and shares the target's cache.
    RECENT_IDLE = "recent_used_cpu idle";
    /// The target has no domain that shares a cache.
    NO_LLC = "target (no cache domain)";
    /// No idle core is known, and a sibling of prev is idle.
    IDLE_SIBLING = "idle SMT sibling of prev";
    /// No idle core and no idle CPU was found, but a sibling of the target is idle (5.x).
    TARGET_SIBLING = "idle SMT sibling of target";
    /// A whole core of the target's cluster is idle.
    CLUSTER_CORE = "idle core in cluster";
    /// A CPU of the target's cluster is idle.
    CLUSTER_CPU = "idle CPU in cluster";
    /// A whole core is idle.
    IDLE_CORE = "idle core";
    /// An idle CPU was found within the scan limit.
    IDLE_CPU = "idle CPU in scan";
    /// The scan ended at its limit, after a CPU with only SCHED_IDLE tasks (5.5).
    SCHED_IDLE_CPU = "SCHED_IDLE CPU in scan";
    /// There was no idle core, but an idle CPU was passed on the way.
    CORE_SEARCH_CPU = "idle CPU seen in core search";
    /// Nothing better than an idle prev in another cluster.
    PREV_OTHER_CLUSTER = "prev idle, other cluster";
    /// Nothing better than an idle recent_used_cpu in another cluster.
    RECENT_OTHER_CLUSTER = "recent_used_cpu idle, other cluster";
    /// The cache is so busy that no scan was made.
    TARGET_NO_SCAN = "target (no scan)";
    /// The scan ended at its limit.
    TARGET_SCAN_LIMIT = "target (scan limit)";
    /// All was examined, nothing is idle.
    TARGET_NOTHING_IDLE = "target (nothing idle)";
}

pub(super) type Found = (Cpu, &'static Cause);

/// An idle CPU in the LLC of `target`, or `target`.
#[inline]
pub(super) fn select_idle_sibling<S: PlacementView>(
    s: &mut S,
    q: &WakeQuery,
    target: Cpu,
    effects: &mut Effects,
) -> Found {
    let prev = q.prev;
    if s.k().rule_on(&TARGET_IDLE) && idle(s, target) {
        return (target, &TARGET_IDLE);
    }
    let mut fallback = None;
    if prev != target && s.d().share_llc(prev, target) && s.k().rule_on(&PREV_IDLE) && idle(s, prev)
    {
        if near(s, prev, target) {
            return (prev, &PREV_IDLE);
        }
        fallback = Some((prev, &PREV_OTHER_CLUSTER));
    }
    if stacks_on_kthread(s, q) {
        return (prev, &KTHREAD_STACKING);
    }
    let recent = s.recent_used_cpu();
    if !s.k().recent_used_on_hit {
        effects.recent_used_cpu = Some(prev);
    }
    if recent != prev
        && recent != target
        && s.d().share_llc(recent, target)
        && s.k().rule_on(&RECENT_IDLE)
        && idle(s, recent)
        && s.allowed(recent)
    {
        effects.recent_used_cpu = Some(prev);
        if near(s, recent, target) {
            return (recent, &RECENT_IDLE);
        }
        fallback = fallback.or(Some((recent, &RECENT_OTHER_CLUSTER)));
    }
    if s.d().sd_llc(target).is_none() {
        return (target, &NO_LLC);
    }
    if s.k().idle_search == IdleSearch::CoreCpuSibling {
        return match core_cpu_sibling::search(s, q.this_cpu, target, effects) {
            Ok(found) => found,
            Err(why) => (target, why),
        };
    }
    let mut has_idle_core = false;
    if s.d().smt_active() {
        has_idle_core = s.has_idle_cores(target);
        if !has_idle_core
            && s.d().share_llc(prev, target)
            && s.k().rule_on(&IDLE_SIBLING)
            && let Some(c) = select_idle_smt(s, prev, effects)
        {
            return (c, &IDLE_SIBLING);
        }
    }
    match select_idle_cpu(s, target, has_idle_core, effects) {
        Ok(found) => found,
        Err(why) => fallback.unwrap_or((target, why)),
    }
}

/// `available_idle_cpu || sched_idle_cpu`.
#[inline(always)]
pub(super) fn idle<S: PlacementView>(s: &mut S, c: Cpu) -> bool {
    s.idle_cpu(c) || s.sched_idle_cpu(c)
}

/// A hit outside the target's cluster is only remembered (where clusters are known).
#[inline(always)]
fn near<S: Fixed>(s: &S, c: Cpu, target: Cpu) -> bool {
    !s.d().cluster_active() || s.d().share_cluster(c, target)
}

fn stacks_on_kthread<S: PlacementView>(s: &mut S, q: &WakeQuery) -> bool {
    let kind = s.k().kthread_stacking;
    kind != KthreadStacking::Absent
        && s.k().rule_on(&KTHREAD_STACKING)
        && s.waker_is_per_cpu_kthread()
        && (kind == KthreadStacking::Always || s.in_task())
        && q.prev == q.this_cpu
        && s.nr_running(q.this_cpu) <= 1
}

/// `select_idle_smt`: the first idle sibling of `prev`.
fn select_idle_smt<S: PlacementView>(s: &mut S, prev: Cpu, effects: &mut Effects) -> Option<Cpu> {
    let mut from = 0;
    while let Some(c) = s.t().smt(prev).next(from) {
        from = c.ix() + 1;
        if c == prev || !s.allowed(c) || !s.d().share_llc(c, prev) {
            continue;
        }
        effects.nr_scanned += 1;
        if idle(s, c) {
            return Some(c);
        }
    }
    None
}

/// What a search keeps while it goes over CPUs.
struct Search {
    /// CPUs still to be considered.
    cpus: CpuMask,
    /// Core search: the first idle CPU passed.
    idle_cpu: Option<Cpu>,
    /// CPUs that may still be examined, plus one.
    nr: i64,
}

/// `select_idle_cpu`: the CPU and rule, or why there is none.
fn select_idle_cpu<S: PlacementView>(
    s: &mut S,
    target: Cpu,
    has_idle_core: bool,
    effects: &mut Effects,
) -> Result<Found, &'static Cause> {
    s.scan_begins();
    let llc = s.d().sd_llc(target);
    let span = s.d().sd(llc).span;
    let mut search = Search { cpus: s.allowed_in(&span), idle_cpu: None, nr: i64::from(i32::MAX) };
    if s.k().sis_util {
        search.nr = i64::from(s.nr_idle_scan(target)) + 1;
        if search.nr == 1 {
            return Err(&TARGET_NO_SCAN);
        }
    }
    let cluster = s.d().cluster_active()
        && s.d().sd(llc).groups[0].flags.has(SdFlags::CLUSTER)
        && s.k().rule_on(&CLUSTER_CPU);
    if cluster {
        let whole = search.cpus;
        let here = *s.t().l2(target);
        search.cpus = whole.and(&here);
        let found = walk(s, target, has_idle_core, &mut search, effects)?;
        if let Some((c, whole_core)) = found {
            return Ok((c, if whole_core { &CLUSTER_CORE } else { &CLUSTER_CPU }));
        }
        search.cpus = whole.minus(&here);
    }
    if let Some((c, whole_core)) = walk(s, target, has_idle_core, &mut search, effects)? {
        return Ok((c, if whole_core { &IDLE_CORE } else { &IDLE_CPU }));
    }
    if has_idle_core {
        effects.clear_idle_cores = Some(target);
    }
    match search.idle_cpu {
        Some(c) if s.k().rule_on(&CORE_SEARCH_CPU) => Ok((c, &CORE_SEARCH_CPU)),
        _ => Err(&TARGET_NOTHING_IDLE),
    }
}

/// Goes over `search.cpus` from the one after `target` round to it: the hit, and whether it is a
/// whole core; an error at the limit.
fn walk<S: PlacementView>(
    s: &mut S,
    target: Cpu,
    has_idle_core: bool,
    search: &mut Search,
    effects: &mut Effects,
) -> Result<Option<(Cpu, bool)>, &'static Cause> {
    let core_rule = s.k().rule_on(&IDLE_CORE);
    let cpu_rule = s.k().rule_on(&IDLE_CPU);
    let start = target.ix() + 1;
    for (from, end) in [(start, usize::MAX), (0, start)] {
        let mut from = from;
        while let Some(c) = search.cpus.next(from).filter(|c| c.ix() < end) {
            from = c.ix() + 1;
            if has_idle_core {
                if select_idle_core(s, c, search, effects) && core_rule {
                    return Ok(Some((c, true)));
                }
                continue;
            }
            search.nr -= 1;
            if search.nr <= 0 {
                return Err(&TARGET_SCAN_LIMIT);
            }
            effects.nr_scanned += 1;
            if idle(s, c) && cpu_rule {
                return Ok(Some((c, false)));
            }
        }
    }
    Ok(None)
}

/// `select_idle_core`: the whole core of `core` is idle. If not, it is taken out of the search.
fn select_idle_core<S: PlacementView>(
    s: &mut S,
    core: Cpu,
    search: &mut Search,
    effects: &mut Effects,
) -> bool {
    let mut whole = true;
    let mut from = 0;
    while let Some(c) = s.t().smt(core).next(from) {
        from = c.ix() + 1;
        effects.nr_scanned += 1;
        if s.idle_cpu(c) {
            if search.idle_cpu.is_none() && search.cpus.has(c) {
                search.idle_cpu = Some(c);
            }
            continue;
        }
        whole = false;
        if search.idle_cpu.is_some() {
            break;
        }
        if s.sched_idle_cpu(c) && search.cpus.has(c) {
            search.idle_cpu = Some(c);
            break;
        }
    }
    if !whole {
        search.cpus = search.cpus.minus(s.t().smt(core));
    }
    whole
}
