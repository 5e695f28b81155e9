//! `select_task_rq_fair`: where a waking task goes.
//!
//! **What.** A wakeup first settles on a *target*, the CPU where the wakee last ran or the CPU of
//! the waker (`wake_affine`), then looks for an idle CPU near it (`select_idle_sibling`). The
//! decision is a pure function of what [`PlacementView`] shows; everything it changes is in
//! [`Effects`]. Each way to a CPU is a rule with its own [`Cause`].
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `select_task_rq_fair`,
//! `record_wakee`, `wake_wide`; the two halves are in [`affine`] and [`idle_sibling`], the slow
//! path of fork and exec in [`super::idlest`].
//! **Equations.** wide ⇔ lo ≥ llc_size and hi ≥ lo · llc_size, with hi and lo the larger and
//! smaller of the two `wakee_flips`.
//! **Departures.** D1: no energy-aware placement, no asymmetric capacity, no core scheduling, no
//! preempted virtual CPUs. D2: WF_CURRENT_CPU (6.6 on, seccomp only) is not modelled.
//! **Example.** CPUs 0-3 share a cache. 0 wakes a task that last ran on 2. If 0 runs only the waker
//! and the wakeup is SYNC, the target is 0; it is busy, 2 is idle: the task goes to 2 by the rule
//! "prev idle".

pub mod affine;
mod core_cpu_sibling;
pub mod idle_sibling;
mod sim;
#[cfg(test)]
pub(crate) mod tests;

use super::migration_limit::KEEP_PREV;
use crate::domains::{Domains, SdFlags};
use crate::release::Release;
use crate::task::Task;
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, TaskId};
use vruntime_machine::Topology;

/// The wakeup that asks for a CPU.
#[derive(Clone, Copy, Debug)]
pub struct WakeQuery {
    /// CPU that executes the wakeup.
    pub this_cpu: Cpu,
    /// `prev`: where the wakee last ran (`p->wake_cpu`).
    pub prev: Cpu,
    /// WF_SYNC, and the waker is not exiting.
    pub sync: bool,
}

/// What a decision reads that never changes. It asks the view for it, which may own what it is
/// part of.
pub trait Fixed {
    /// The release.
    fn k(&self) -> &Release;
    /// The machine.
    fn t(&self) -> &Topology;
    /// Its domains.
    fn d(&self) -> &Domains;
}

/// Everything that the fast path of placement reads and that changes from moment to moment.
///
/// Under `simulate` a call reads the model and charges the cache lines; under `shadow` it reads
/// recorded values and notes what was not known. Values are asked for in the kernel's order and
/// only when the kernel would read them.
pub trait PlacementView: Fixed {
    /// A step whose outcome is all that the rest of the decision knows of the values that it
    /// asks for: where they are not known, the outcomes that are possible stand for them.
    #[inline]
    fn step<T: Copy + PartialEq>(
        &mut self,
        _name: &'static str,
        mut outcome: impl FnMut(&mut Self) -> T,
    ) -> T {
        outcome(self)
    }
    /// From here on CPUs are tested one after the other, all known beforehand.
    fn scan_begins(&mut self) {}
    /// The wakee may run on `c`.
    fn allowed(&mut self, c: Cpu) -> bool;
    /// `available_idle_cpu(c)`.
    fn idle_cpu(&mut self, c: Cpu) -> bool;
    /// `sched_idle_cpu(c)`.
    fn sched_idle_cpu(&mut self, c: Cpu) -> bool;
    /// `rq->nr_running`.
    fn nr_running(&mut self, c: Cpu) -> u32;
    /// Tasks of them in delayed dequeue.
    fn nr_delayed(&mut self, c: Cpu) -> u32;
    /// `cpu_load(c)`: root `load_avg`.
    fn cpu_load(&mut self, c: Cpu) -> u64;
    /// `capacity_of(c)`.
    fn capacity_of(&mut self, c: Cpu) -> u64;
    /// `task_h_load` of the wakee.
    fn wakee_h_load(&mut self) -> u64;
    /// `task_h_load` of the waker (`current`).
    fn waker_h_load(&mut self) -> u64;
    /// `current->wakee_flips` after `record_wakee`.
    fn waker_flips(&mut self) -> u32;
    /// `p->wakee_flips`.
    fn wakee_flips(&mut self) -> u32;
    /// `current` is a kernel thread bound to one CPU.
    fn waker_is_per_cpu_kthread(&mut self) -> bool;
    /// The wakeup comes from task context.
    fn in_task(&mut self) -> bool;
    /// `p->recent_used_cpu`.
    fn recent_used_cpu(&mut self) -> Cpu;
    /// `sd_llc_shared->has_idle_cores` of `c`'s LLC.
    fn has_idle_cores(&mut self, c: Cpu) -> bool;
    /// `sd_llc_shared->nr_idle_scan` of `c`'s LLC.
    fn nr_idle_scan(&mut self, c: Cpu) -> u32;
    /// `rq->avg_idle` of the waker's CPU and the `avg_scan_cost` of its LLC, ns (SIS_PROP).
    fn scan_budget(&mut self) -> (u64, u64) {
        (1_000_000, 0)
    }
    /// The waker's CPU's clock, ns: what a scan costs is measured by it (SIS_PROP).
    fn clock_ns(&mut self) -> u64 {
        0
    }
    /// The wakee has used up its moves ([`super::migration_limit`]).
    fn moved_lately(&mut self) -> bool {
        false
    }
    /// The CPUs of `span` that the wakee may use.
    fn allowed_in(&mut self, span: &CpuMask) -> CpuMask {
        span.iter().filter(|c| self.allowed(*c)).collect()
    }
}

/// What a placement changes besides choosing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effects {
    /// Write `p->recent_used_cpu`.
    pub recent_used_cpu: Option<Cpu>,
    /// Write `current->recent_used_cpu`, the waker's.
    pub waker_recent_cpu: Option<Cpu>,
    /// SIS_PROP: a scan that did not end at its limit took so long, ns, besides examining CPUs.
    pub scan_ns: Option<u64>,
    /// Clear `has_idle_cores` of this CPU's LLC.
    pub clear_idle_cores: Option<Cpu>,
    /// CPUs examined by the scan.
    pub nr_scanned: u32,
}

/// Outcome of the decision.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// The CPU.
    pub choice: Cpu,
    /// The rule that chose it.
    pub rule: &'static Cause,
    /// The CPU around which the search went: prev or the waker's.
    pub target: Cpu,
    /// The rule that chose the target.
    pub affine: &'static Cause,
    /// What else to do.
    pub effects: Effects,
}

/// The wakee's and the waker's flips say that one has many partners.
pub static WIDE: Cause = Cause::new(CauseKind::Placement, "wake_wide");
/// The wakee may not run on this CPU: prev is the target.
static WAKER_NOT_ALLOWED: Cause = Cause::new(CauseKind::Placement, "waker's CPU not allowed");
/// This CPU is prev.
static WAKER_ON_PREV: Cause = Cause::new(CauseKind::Placement, "waker on prev");
/// No domain that pulls wakees has both CPUs: prev is the target.
static NO_AFFINE_DOMAIN: Cause = Cause::new(CauseKind::Placement, "no affine domain");

/// Chooses a CPU for a wakeup (WF_TTWU). `record_wakee` has been called.
#[inline]
pub fn select_task_rq<S: PlacementView>(s: &mut S, q: &WakeQuery) -> Decision {
    let mut effects = Effects::default();
    if s.k().migration_window_ns > 0 && stays(s, q.prev) {
        let rule = &KEEP_PREV;
        return Decision { choice: q.prev, rule, target: q.prev, affine: rule, effects };
    }
    let (target, affine) = target(s, q);
    let (choice, rule) = idle_sibling::select_idle_sibling(s, q, target, &mut effects);
    let want_affine = affine.id != WIDE.id && affine.id != WAKER_NOT_ALLOWED.id;
    if s.k().recent_used_on_hit && want_affine {
        effects.waker_recent_cpu = Some(q.this_cpu);
    }
    Decision { choice, rule, target, affine, effects }
}

/// The migration limit keeps the wakee on `prev`.
fn stays<S: PlacementView>(s: &mut S, prev: Cpu) -> bool {
    s.k().rule_on(&KEEP_PREV)
        && s.moved_lately()
        && s.allowed(prev)
        && s.cpu_load(prev) < s.k().migration_prev_load
}

/// Prev, or the waker's CPU where `wake_affine` says so, and why.
#[inline]
fn target<S: PlacementView>(s: &mut S, q: &WakeQuery) -> (Cpu, &'static Cause) {
    if s.step("wake_wide", |s| wake_wide(s, q.this_cpu)) {
        return (q.prev, &WIDE);
    }
    if !s.allowed(q.this_cpu) {
        return (q.prev, &WAKER_NOT_ALLOWED);
    }
    let prev_in_reach = |slot: &usize| {
        let sd = s.d().at(*slot);
        sd.flags.has(SdFlags::WAKE_AFFINE) && sd.span.has(q.prev)
    };
    match s.d().slots(q.this_cpu).find(prev_in_reach) {
        None => (q.prev, &NO_AFFINE_DOMAIN),
        Some(_) if q.this_cpu == q.prev => (q.prev, &WAKER_ON_PREV),
        Some(slot) => affine::wake_affine(s, q, slot),
    }
}

/// The waker wakes so many different tasks that pulling them would crowd its cache.
#[inline]
fn wake_wide<S: PlacementView>(s: &mut S, this_cpu: Cpu) -> bool {
    let (waker, wakee) = (s.waker_flips(), s.wakee_flips());
    let factor = u64::from(s.d().sd_llc_size(this_cpu));
    let (hi, lo) = (u64::from(waker.max(wakee)), u64::from(waker.min(wakee)));
    s.k().rule_on(&WIDE) && lo >= factor && hi >= lo * factor
}

/// `record_wakee`: counts how often `waker` turns to another wakee, with a decay of one half at
/// most once a second.
pub fn record_wakee(waker: &mut Task, p: TaskId, jiffies: u64, hz: u32) {
    let now = jiffies as u32;
    let since = now.wrapping_sub(waker.wakee_flip_decay_ts) as i32;
    if since > hz as i32 {
        waker.wakee_flips >>= 1;
        waker.wakee_flip_decay_ts = now;
    }
    if waker.last_wakee != p {
        waker.last_wakee = p;
        waker.wakee_flips += 1;
    }
}
