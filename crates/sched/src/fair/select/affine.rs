//! `wake_affine`: prev or the waker's CPU?
//!
//! **What.** Two steps. WA_IDLE looks for a reason in who is idle; if it finds none, WA_WEIGHT
//! compares the loads that the two CPUs would have. The waker's CPU must win: otherwise prev stays.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `wake_affine`,
//! `wake_affine_idle`, `wake_affine_weight`.
//! **Equations.** With t = h_load(wakee), c = h_load(waker) if SYNC else 0:
//! this_eff = (load(this) − c + t) · 100 · capacity(prev);
//! prev_eff = (load(prev) − t) · (100 + (imbalance_pct − 100)/2) · capacity(this) \[+ 1 if SYNC\];
//! this ⇔ this_eff < prev_eff; with SYNC also this ⇔ c > load(this). Without WA_BIAS both factors
//! are 1.
//! **Departures.** None.
//! **Example.** Loads 1024 and 1024, wakee 100, no SYNC, bias 108: 1124·100 > 924·108, prev stays.

use super::{PlacementView, WakeQuery};
use vruntime_base::{Cause, CauseKind, Cpu};

/// This CPU is idle (an interrupt wakes) and shares the cache with prev, which is busy.
pub static THIS_IDLE: Cause = Cause::new(CauseKind::Placement, "wake_affine: this idle");
/// This CPU is idle and shares the cache with prev, which is idle too: prev.
pub static BOTH_IDLE: Cause = Cause::new(CauseKind::Placement, "wake_affine: both idle");
/// The waker will sleep and is alone on its CPU.
pub static SYNC_ALONE: Cause = Cause::new(CauseKind::Placement, "wake_affine: sync waker alone");
/// Prev is idle: prev.
pub static PREV_IDLE: Cause = Cause::new(CauseKind::Placement, "wake_affine: prev idle");
/// The waker, who will sleep, is more load than its CPU has.
pub static SYNC_LOAD: Cause = Cause::new(CauseKind::Placement, "wake_affine: sync waker's load");
/// This CPU would be less loaded.
pub static WEIGHT: Cause = Cause::new(CauseKind::Placement, "wake_affine: less load here");
/// Nothing speaks for this CPU: prev.
pub static UNDECIDED: Cause = Cause::new(CauseKind::Placement, "wake_affine: undecided");

/// The rule is one of this file: the comparison was made.
pub(super) fn ran(rule: &Cause) -> bool {
    let rules = [&THIS_IDLE, &BOTH_IDLE, &SYNC_ALONE, &PREV_IDLE, &SYNC_LOAD, &WEIGHT, &UNDECIDED];
    rules.iter().any(|r| r.id == rule.id)
}

/// Prev or this CPU, at the domain with this slot of this CPU.
pub(super) fn wake_affine<S: PlacementView>(
    s: &mut S,
    q: &WakeQuery,
    slot: usize,
) -> (Cpu, &'static Cause) {
    if let Some(found) = if s.k().wa_idle { idle(s, q) } else { None } {
        return found;
    }
    let weighed = s.k().wa_weight.then(|| s.step("wake_affine_weight", |s| weight(s, q, slot)));
    match weighed.flatten() {
        Some(rule) => (q.this_cpu, rule),
        None => (q.prev, &UNDECIDED),
    }
}

/// `wake_affine_idle`.
fn idle<S: PlacementView>(s: &mut S, q: &WakeQuery) -> Option<(Cpu, &'static Cause)> {
    let (this, prev) = (q.this_cpu, q.prev);
    if s.idle_cpu(this) && s.d().share_llc(this, prev) {
        let prev_idle = s.idle_cpu(prev);
        if prev_idle && s.k().rule_on(&BOTH_IDLE) {
            return Some((prev, &BOTH_IDLE));
        }
        if !prev_idle && s.k().rule_on(&THIS_IDLE) {
            return Some((this, &THIS_IDLE));
        }
    }
    if q.sync && s.k().rule_on(&SYNC_ALONE) {
        let delayed = if s.k().wa_sync_minus_delayed { s.nr_delayed(this) } else { 0 };
        if s.nr_running(this).wrapping_sub(delayed) == 1 {
            return Some((this, &SYNC_ALONE));
        }
    }
    if s.k().wa_idle_prev && s.k().rule_on(&PREV_IDLE) && s.idle_cpu(prev) {
        return Some((prev, &PREV_IDLE));
    }
    None
}

/// `wake_affine_weight`: the rule that speaks for this CPU, if any.
fn weight<S: PlacementView>(s: &mut S, q: &WakeQuery, slot: usize) -> Option<&'static Cause> {
    let (this, prev) = (q.this_cpu, q.prev);
    let mut this_eff = s.cpu_load(this) as i64;
    if q.sync {
        let current = s.waker_h_load() as i64;
        if current > this_eff && s.k().rule_on(&SYNC_LOAD) {
            return Some(&SYNC_LOAD);
        }
        this_eff -= current;
    }
    let wakee = s.wakee_h_load() as i64;
    let imbalance_pct = i64::from(s.d().at(slot).imbalance_pct);
    let (this_factor, prev_factor) =
        if s.k().wa_bias { (100, 100 + (imbalance_pct - 100) / 2) } else { (1, 1) };
    this_eff = (this_eff + wakee) * this_factor * s.capacity_of(prev) as i64;
    let mut prev_eff = s.cpu_load(prev) as i64 - wakee;
    prev_eff = prev_eff * prev_factor * s.capacity_of(this) as i64;
    if q.sync {
        prev_eff += 1;
    }
    (this_eff < prev_eff && s.k().rule_on(&WEIGHT)).then_some(&WEIGHT)
}
