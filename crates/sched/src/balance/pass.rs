//! `load_balance`: one pass over one domain, in phases.
//!
//! **What.** Search (no lock) → lock the source, take tasks off, let go → lock the destination, put
//! them on, let go → again if not all was looked at, or for another destination, or without a
//! source whose tasks are all pinned. A pass that fails too often asks the source's stopper.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `load_balance` (6.12:
//! `sched_balance_rq`), `should_we_balance`, `need_active_balance`.
//! **Equations.** The interval doubles on "balanced" (not newidle) while below its maximum (512 ms
//! if all is pinned); otherwise it returns to its minimum.
//! **Departures.** D1: an active balance is for tasks that fail to move only; no capacity reasons.
//! D2: `rd->overload` is written when it changes; before 6.12 each pass over the top domain does.
//! **Example.** Two idle-scanning CPUs, one queue of two: the first locks it, takes one, lets go,
//! enters it at home; the second finds one left and takes none.

use super::detach::{BREAK, attach_tasks, detach_tasks};
use super::imbalance::{Imbalance, MigrationType, find_busiest_group, find_busiest_queue};
use super::stats::{DomainStats, Question, nr_idle_scan, update_sd_lb_stats};
use super::{IdleType, Path, Phase, Run, World, cause, clock, newidle, nohz, periodic};
use crate::cx::{Cx, Shared};
use crate::domains::{Domain, SdFlags};
use crate::scheduler::{BalanceKind, BalanceStep};
use vruntime_base::{Cpu, CpuMask, Resource};
use vruntime_machine::{Line, Topology};

/// Longest interval when all tasks are pinned, ms.
const MAX_PINNED_INTERVAL: u32 = 512;

/// Runs the balancing up to its next wait.
pub(super) fn advance(run: &mut Run, w: &mut World, cx: &mut Cx) -> BalanceStep {
    loop {
        if run.phase == Phase::Next {
            let more = match run.kind {
                BalanceKind::Newidle => newidle::next(run, w, cx),
                BalanceKind::Periodic => periodic::next(run, w, cx),
                BalanceKind::Nohz => nohz::next(run, w, cx),
            };
            if !more {
                run.phase = Phase::Off;
                return BalanceStep::Done;
            }
            run.phase = Phase::Search;
        }
        match phase(run, w, cx) {
            Goto(phase) => run.phase = phase,
            Ask(step, phase) => {
                run.phase = phase;
                return step;
            }
        }
    }
}

/// Goes through one phase of a pass.
pub(super) fn phase(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    match run.phase {
        Phase::Off | Phase::Next => unreachable!("handled by the callers"),
        Phase::Search => search(run, w, cx),
        Phase::Ended => ended(run, w, cx),
        Phase::SourceLocked => {
            let env = &mut run.env;
            let (state, stats) = (&w.t.sds[env.slot], &mut w.t.stats[env.slot]);
            detach_tasks(env, state, stats, w.moved, w.fair, cx);
            let src = env.src_cpu;
            let step = match env.tasks.is_empty() {
                true => BalanceStep::Unlock(src),
                false => BalanceStep::HandOver(src),
            };
            Ask(step, Phase::SourceLeft)
        }
        Phase::SourceLeft if run.env.tasks.is_empty() => after_detach(run, w, cx),
        Phase::SourceLeft => Ask(BalanceStep::Lock(run.env.dst_cpu), Phase::DestinationLocked),
        Phase::DestinationLocked => {
            attach_tasks(&mut run.env, w.fair, cx);
            Ask(BalanceStep::Unlock(run.env.dst_cpu), Phase::DestinationLeft)
        }
        Phase::DestinationLeft => after_detach(run, w, cx),
        Phase::PushLocked => {
            let arranged = arrange_push(run, cx);
            Ask(BalanceStep::Unlock(run.env.src_cpu), arranged)
        }
        Phase::PushRefused => {
            lengthen_interval(run, w, cx);
            plan_end(run, cx, 0)
        }
        Phase::PushArranged => Ask(BalanceStep::Stopper(run.env.src_cpu), Phase::PushAsked),
        Phase::PushAsked => {
            if cx.sh.release.active_balance_backs_off {
                back_off(run, w, cx);
            } else {
                reset_interval(run, w, cx);
            }
            plan_end(run, cx, 0)
        }
    }
}

/// How a phase ends.
pub(super) enum GoesTo {
    /// At once on to this one.
    Goto(Phase),
    /// The driver does this first.
    Ask(BalanceStep, Phase),
}
use GoesTo::{Ask, Goto};

impl GoesTo {
    /// The next phase, whatever comes before it.
    pub(super) fn to(self) -> Phase {
        match self {
            Goto(phase) | Ask(_, phase) => phase,
        }
    }
}

/// The domain at `slot` may be balanced: no other CPU balances one that goes one at a time.
pub(super) fn serialize(run: &Run, w: &mut World, cx: &Cx, slot: usize) -> bool {
    if !cx.sh.domains.at(slot).flags.has(SdFlags::SERIALIZE) {
        return true;
    }
    if w.t.serialized.is_none() && clock(cx) >= w.t.serialized_until {
        w.t.serialized = run.cpu;
    }
    w.t.serialized == run.cpu
}

/// Prepares a pass over the domain at `slot`.
pub(super) fn prepare(run: &mut Run, w: &mut World, cx: &Cx, slot: usize, idle: IdleType) {
    let sd = cx.sh.domains.at(slot);
    let path = match (run.kind, idle) {
        (BalanceKind::Newidle, _) => Path::Newidle,
        (BalanceKind::Nohz, _) => Path::Nohz,
        (_, IdleType::NotIdle) => Path::PeriodicBusy,
        _ => Path::PeriodicIdle,
    };
    let env = &mut run.env;
    env.slot = slot;
    env.idle = idle;
    env.dst_cpu = run.on;
    env.new_dst_cpu = Cpu::NONE;
    env.cpus = sd.span;
    env.whole = true;
    env.all_pinned = false;
    env.some_pinned = false;
    env.need_break = false;
    env.active = false;
    env.nr_scanned = 0;
    env.loop_break = BREAK;
    env.nr_detached = 0;
    env.cause = cause(path, sd.name);
    w.t.stats[slot].lb[idle as usize].count += 1;
}

/// From `should_we_balance` to the queue to pull from.
fn search(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    let func = run.func();
    let slot = run.env.slot;
    let idle = run.env.idle;
    cx.charge(func, cx.machine.costs.balance_domain);
    let sd = cx.sh.domains.at(slot);
    if !should_we_balance(cx.sh, &cx.machine.topo, sd, run.env.dst_cpu, idle, &run.env.cpus) {
        run.stop = true;
        return balanced(run, w, cx);
    }
    if cx.sh.release.numa_pass_is_exclusive && !serialize(run, w, cx, slot) {
        return balanced(run, w, cx);
    }
    if cx.sh.release.newidle_ages_tickless && idle == IdleType::Newidle {
        nohz::age_tickless(run, w, cx);
    }
    read_statistics(run, cx);
    let env = &run.env;
    let Found { sds, pull, queue } =
        find(cx.sh, run.on, slot, env.dst_cpu, idle, &env.cpus, env.whole);
    let d = &cx.sh.domains;
    let sd = d.at(slot);
    let top = slot + 1 == d.slots(run.on).end;
    let new_scan = (cx.sh.release.sis_util
        && idle != IdleType::Newidle
        && sd.weight == d.sd_llc_size(run.env.dst_cpu)
        && d.sd_llc(run.env.dst_cpu).is_some())
    .then(|| nr_idle_scan(sds.total_util, sd.weight, sd.imbalance_pct));
    if top && cx.sh.domains.overload != sds.overload {
        cx.write(Line::RootDomain, func, Resource::Global);
        cx.sh.domains.overload = sds.overload;
    }
    if let Some(nr) = new_scan
        && cx.sh.domains.shared_of(run.env.dst_cpu).nr_idle_scan != nr
    {
        let llc = cx.sh.domains.llc_id(run.env.dst_cpu);
        cx.write(Line::LlcShared(llc), func, Resource::LlcShared);
        cx.sh.domains.shared_of_mut(run.env.dst_cpu).nr_idle_scan = nr;
    }
    let stats = &mut w.t.stats[slot].lb[idle as usize];
    let Some((_, imbalance)) = pull else {
        stats.nobusyg += 1;
        return balanced(run, w, cx);
    };
    let Some(src) = queue else {
        stats.nobusyq += 1;
        return balanced(run, w, cx);
    };
    stats.imbalance[imbalance.kind as usize] += imbalance.amount as u64;
    let env = &mut run.env;
    env.imbalance = imbalance;
    env.src_cpu = src;
    let nr_running = cx.sh.loads[src.ix()].nr_running;
    env.all_pinned |= nr_running > 1 || !cx.sh.release.pinned_until_one_may_move;
    if nr_running <= 1 {
        return moved_or_failed(run, w, cx);
    }
    env.loop_max = cx.sh.release.nr_migrate.min(nr_running);
    Ask(BalanceStep::Lock(src), Phase::SourceLocked)
}

/// What a search of a domain finds.
pub(super) struct Found {
    /// What is known of its groups.
    pub sds: DomainStats,
    /// The group to pull from, and how much; or balanced.
    pub pull: Option<(usize, Imbalance)>,
    /// The queue of that group.
    pub queue: Option<Cpu>,
}

/// Searches the domain at `slot` of `on` for `dst`, with no lock and no effect.
pub(super) fn find(
    sh: &Shared,
    on: Cpu,
    slot: usize,
    dst: Cpu,
    idle: IdleType,
    cpus: &CpuMask,
    whole: bool,
) -> Found {
    let d = &sh.domains;
    let lowest = slot == d.slots(on).start;
    let q = Question {
        sd: d.at(slot),
        local: d.local(slot),
        child_prefers_sibling: !lowest && d.at(slot - 1).flags.has(SdFlags::PREFER_SIBLING),
        dst_cpu: dst,
        idle,
        cpus,
        whole,
    };
    let sds = update_sd_lb_stats(sh, &q);
    let pull = find_busiest_group(&sh.release, &q, &sds);
    let queue = pull.and_then(|(g, imbalance)| find_busiest_queue(sh, &q, g, &imbalance));
    Found { sds, pull, queue }
}

/// What reading the statistics of every CPU of the pass costs.
fn read_statistics(run: &Run, cx: &mut Cx) {
    let func = run.func();
    let mut from = 0;
    let mut n = 0;
    while let Some(c) = run.env.cpus.next(from) {
        from = c.ix() + 1;
        n += 1;
        cx.read_load_in_turn(c, func);
    }
    cx.charge(func, cx.machine.costs.balance_cpu.saturating_mul(n));
}

/// `should_we_balance`: one CPU of the local group does it, the first idle one if there is one.
pub(super) fn should_we_balance(
    sh: &Shared,
    topo: &Topology,
    sd: &Domain,
    dst: Cpu,
    idle: IdleType,
    cpus: &CpuMask,
) -> bool {
    if !cpus.has(dst) {
        return false;
    }
    if idle == IdleType::Newidle {
        if !sh.release.newidle_sees_wakeups {
            return true;
        }
        return sh.loads[dst.ix()].nr_running == 0 && !sh.rq(dst).ttwu_pending;
    }
    let group = &sd.groups[sd.group_of(dst)];
    let by_core = sh.release.balance_prefers_idle_core && !sd.flags.has(SdFlags::SHARE_CPUCAPACITY);
    let mut left = group.balance_mask.and(cpus);
    let mut first_smt = None;
    let mut from = 0;
    while let Some(c) = left.next(from) {
        from = c.ix() + 1;
        if !sh.idle_cpu(c) {
            continue;
        }
        if by_core && topo.smt(c).iter().any(|s| s != c && !sh.idle_cpu(s)) {
            first_smt = first_smt.or(Some(c));
            left = left.minus(topo.smt(c));
            continue;
        }
        return c == dst;
    }
    first_smt.or(group.balance_mask.first()) == Some(dst)
}

/// All locks are free after tasks were taken off, or not.
fn after_detach(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    let env = &mut run.env;
    let src = env.src_cpu;
    let again = Ask(BalanceStep::Lock(src), Phase::SourceLocked);
    if std::mem::take(&mut env.need_break) && env.nr_scanned < cx.sh.loads[src.ix()].nr_running {
        return again;
    }
    if env.new_dst_cpu.is_some() && env.imbalance.amount > 0 {
        env.cpus.clear(env.dst_cpu);
        env.whole = false;
        env.dst_cpu = std::mem::replace(&mut env.new_dst_cpu, Cpu::NONE);
        env.nr_scanned = 0;
        env.loop_break = BREAK;
        return again;
    }
    if env.some_pinned
        && env.imbalance.amount > 0
        && let Some(parent) = parent(cx.sh, env.slot, run.on)
    {
        mark(cx.sh, parent, true);
    }
    if env.all_pinned {
        env.cpus.clear(src);
        env.whole = false;
        let sd = cx.sh.domains.at(env.slot);
        if !env.cpus.is_subset(&sd.groups[cx.sh.domains.local(env.slot)].balance_mask) {
            env.nr_scanned = 0;
            env.loop_break = BREAK;
            return Goto(Phase::Search);
        }
        count_balanced(run, w, cx);
        return plan_end(run, cx, 0);
    }
    moved_or_failed(run, w, cx)
}

/// The slot of the domain above.
fn parent(sh: &Shared, slot: usize, on: Cpu) -> Option<usize> {
    Some(slot + 1).filter(|s| *s < sh.domains.slots(on).end)
}

/// Marks the local group at `slot` as imbalanced, or takes the mark away.
fn mark(sh: &mut Shared, slot: usize, imbalanced: bool) {
    let group = sh.domains.local(slot);
    sh.domains.set_imbalanced(slot, group, imbalanced);
}

fn moved_or_failed(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    let env = &run.env;
    let state = &mut w.t.sds[env.slot];
    let moved = env.nr_detached;
    if moved > 0 {
        state.nr_balance_failed = 0;
        reset_interval(run, w, cx);
        return plan_end(run, cx, moved);
    }
    w.t.stats[env.slot].lb[env.idle as usize].failed += 1;
    if env.idle != IdleType::Newidle {
        state.nr_balance_failed += 1;
    }
    if need_active_balance(run, w, cx.sh) {
        return Ask(BalanceStep::Lock(env.src_cpu), Phase::PushLocked);
    }
    reset_interval(run, w, cx);
    plan_end(run, cx, 0)
}

fn need_active_balance(run: &Run, w: &World, sh: &Shared) -> bool {
    let tries = sh.domains.at(run.env.slot).cache_nice_tries;
    (sh.release.active_balance_any_type || run.env.imbalance.kind == MigrationType::Task)
        && w.t.sds[run.env.slot].nr_balance_failed > tries + 2
}

/// The source is locked: asks for a push of what runs there, if it may run here.
fn arrange_push(run: &mut Run, cx: &mut Cx) -> Phase {
    let src = run.env.src_cpu;
    let curr = cx.sh.rq(src).curr;
    if !cx.sh.allowed(curr).has(run.on) {
        run.env.all_pinned |= cx.sh.release.pinned_until_one_may_move;
        return Phase::PushRefused;
    }
    run.env.all_pinned = false;
    let rq = &mut cx.sh.rqs[src.ix()];
    if rq.active_balance {
        // Somebody else has asked already.
        return Phase::PushAsked;
    }
    rq.active_balance = true;
    rq.push_cpu = run.on;
    Phase::PushArranged
}

/// There was an imbalance: the interval returns to its minimum.
fn reset_interval(run: &mut Run, w: &mut World, cx: &Cx) {
    w.t.sds[run.env.slot].balance_interval = cx.sh.domains.at(run.env.slot).min_interval();
}

/// A push was asked for: the interval doubles if it was asked for here, and the next pass moves hot
/// tasks.
fn back_off(run: &mut Run, w: &mut World, cx: &Cx) {
    let sd = cx.sh.domains.at(run.env.slot);
    let state = &mut w.t.sds[run.env.slot];
    state.nr_balance_failed = sd.cache_nice_tries + 1;
    if cx.sh.rq(run.env.src_cpu).push_cpu != run.on {
        state.balance_interval = sd.min_interval();
    } else if state.balance_interval < sd.max_interval() {
        state.balance_interval *= 2;
    }
}

/// Nothing to do, or somebody else's business.
fn balanced(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    if !run.env.all_pinned
        && let Some(parent) = parent(cx.sh, run.env.slot, run.on)
    {
        mark(cx.sh, parent, false);
    }
    count_balanced(run, w, cx);
    plan_end(run, cx, 0)
}

/// Counts as balanced.
fn count_balanced(run: &mut Run, w: &mut World, cx: &Cx) {
    let env = &run.env;
    w.t.stats[env.slot].lb[env.idle as usize].balanced += 1;
    w.t.sds[env.slot].nr_balance_failed = 0;
    lengthen_interval(run, w, cx);
}

/// The next pass may come later.
fn lengthen_interval(run: &mut Run, w: &mut World, cx: &Cx) {
    let env = &run.env;
    if env.idle == IdleType::Newidle {
        return;
    }
    let interval = &mut w.t.sds[env.slot].balance_interval;
    let longest = cx.sh.domains.at(env.slot).max_interval();
    if (env.all_pinned && *interval < MAX_PINNED_INTERVAL) || *interval < longest {
        *interval *= 2;
    }
}

/// The pass is over, once the time that it took has passed.
fn plan_end(run: &mut Run, cx: &Cx, moved: u32) -> GoesTo {
    run.env.nr_detached = moved;
    if cx.cost.0 > 0 { Ask(BalanceStep::Pass, Phase::Ended) } else { Goto(Phase::Ended) }
}

/// Back to the walk over domains.
fn ended(run: &mut Run, w: &mut World, cx: &mut Cx) -> GoesTo {
    let moved = run.env.nr_detached;
    if w.t.serialized == run.cpu {
        (w.t.serialized, w.t.serialized_until) = (Cpu::NONE, clock(cx));
    }
    match run.kind {
        BalanceKind::Newidle => newidle::after_pass(run, w, cx, moved),
        BalanceKind::Periodic | BalanceKind::Nohz => periodic::after_pass(run, w, cx, moved),
    }
    Goto(Phase::Next)
}
