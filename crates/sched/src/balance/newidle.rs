//! Newidle balancing: a CPU that would go idle looks for work elsewhere.
//!
//! **What.** Only if some CPU has two tasks and the CPU expects to be idle for longer than the
//! search takes; from the smallest domain upwards until something was found or the expected idle
//! time is spent.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `newidle_balance` (6.12:
//! `sched_balance_newidle`), `update_newidle_cost`, `update_newidle_stats`.
//! **Equations.** A domain is searched only if avg_idle ≥ spent + max_newidle_lb_cost. NI_RANDOM:
//! with r = 1 + newidle_ratio, searched if a draw from 0 … 1023 is ≤ r; a success counts
//! (1024 + r/2)/r; at 1024 calls ratio = successes, both halved. max cost decays by 253/256 a
//! second.
//! **Departures.** D1: the draw is keyed by CPU and number of draws.
//! **Example.** avg_idle 20 µs, costs 1 µs (SMT), 8 µs (MC), 30 µs (NUMA): after SMT and MC found
//! nothing, 9 + 30 > 20 ends the search.

use super::{IdleType, Run, SdState, World, clock, nohz, pass, periodic};
use crate::cx::Cx;
use crate::domains::SdFlags;
use vruntime_base::{Cpu, Func, Ns, Resource, Stream};
use vruntime_machine::Line;

/// What a newidle balancing keeps between passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pass_began: Ns,
    spent: u64,
    next_balance: u64,
    /// What a success counts.
    weight: u32,
    /// Draws made so far.
    nr_draws: u64,
}

/// The tests before the first domain. False: the CPU goes idle at once.
pub(super) fn begin(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    let cpu = run.cpu;
    cx.charge(Func::Newidle, cx.machine.costs.newidle_base);
    run.pulled = 0;
    if cx.sh.release.newidle_sees_wakeups && cx.sh.rq(cpu).ttwu_pending {
        return false;
    }
    cx.sh.rqs[cpu.ix()].idle_stamp = cx.sh.rq(cpu).clock;
    cx.read(Line::RootDomain, Func::Newidle, Resource::Global);
    let first = cx.sh.domains.slots(cpu).start;
    let has_domain = !cx.sh.domains.of(cpu).is_empty();
    let avg_idle = cx.sh.rq(cpu).avg_idle.0;
    run.newidle.next_balance = cx.jiffies() + u64::from(cx.sh.release.hz);
    let worth = if cx.sh.release.newidle_fixed_guard || !has_domain {
        cx.sh.release.migration_cost_ns
    } else {
        w.t.sds[first].max_newidle_lb_cost
    };
    if !has_domain || !cx.sh.domains.overload || avg_idle < worth {
        if has_domain {
            update_next_balance(run, w, cx, first);
        }
        move_next_balance_forward(run, cx);
        nohz::newly_idle(w, cx, cpu);
        return false;
    }
    run.newidle.pass_began = clock(cx);
    run.newidle.spent = 0;
    run.stop = false;
    run.slot = first;
    w.fair.update_blocked_averages(cx, cpu);
    true
}

/// Goes to the next domain to be searched. False: over.
pub(super) fn next(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    let end = cx.sh.domains.slots(run.cpu).end;
    while run.slot < end && !run.stop {
        let slot = run.slot;
        update_next_balance(run, w, cx, slot);
        let state = &w.t.sds[slot];
        if cx.sh.rq(run.cpu).avg_idle.0 < run.newidle.spent + state.max_newidle_lb_cost {
            break;
        }
        run.slot += 1;
        if cx.sh.domains.at(slot).flags.has(SdFlags::BALANCE_NEWIDLE) {
            if !draw(run, w, cx, slot) {
                continue;
            }
            pass::prepare(run, w, cx, slot, IdleType::Newidle);
            return true;
        }
        run.stop = has_work(cx, run.cpu);
    }
    finish(run, w, cx);
    false
}

/// NI_RANDOM: whether to search the domain at `slot`, by its past success.
fn draw(run: &mut Run, w: &mut World, cx: &Cx, slot: usize) -> bool {
    run.newidle.weight = 1;
    if !cx.sh.release.ni_random {
        return true;
    }
    let ratio = 1 + w.t.sds[slot].newidle_ratio;
    let n = run.newidle.nr_draws;
    run.newidle.nr_draws += 1;
    if cx.sh.noise.below(Stream::NiRandom, u64::from(run.cpu.0), n, 1024) > u64::from(ratio) {
        update_newidle_stats(&mut w.t.sds[slot], 0);
        return false;
    }
    run.newidle.weight = (1024 + ratio / 2) / ratio;
    true
}

/// A pass is over: what it cost, and whether to go on.
pub(super) fn after_pass(run: &mut Run, w: &mut World, cx: &Cx, moved: u32) {
    let now = clock(cx);
    let cost = now.saturating_sub(run.newidle.pass_began).0;
    run.newidle.pass_began = now;
    run.newidle.spent += cost;
    run.pulled += moved;
    let state = &mut w.t.sds[run.env.slot];
    if cost > 0 {
        update_newidle_stats(state, if moved > 0 { run.newidle.weight } else { 0 });
    }
    let k = &cx.sh.release;
    let (cost, limit) = if !k.newidle_failure_costs_more {
        (cost, u64::MAX)
    } else {
        let failed = 3 * state.max_newidle_lb_cost / 2;
        (if moved > 0 { cost } else { failed }, k.migration_cost_ns + 200)
    };
    if k.newidle_delays_decay {
        update_newidle_cost(state, cost, limit, cx.jiffies(), u64::from(k.hz));
    } else {
        state.max_newidle_lb_cost = state.max_newidle_lb_cost.max(cost);
    }
    let refused = std::mem::take(&mut run.stop);
    run.stop = moved > 0
        || if cx.sh.release.newidle_stops_on_refusal { refused } else { has_work(cx, run.cpu) };
}

fn has_work(cx: &Cx, cpu: Cpu) -> bool {
    cx.sh.loads[cpu.ix()].nr_running > 0
        || (cx.sh.release.newidle_sees_wakeups && cx.sh.rq(cpu).ttwu_pending)
}

/// Keeps the larger of the old and the new cost, at most `limit`, or lets the old one decay. True
/// if it decayed.
pub(super) fn update_newidle_cost(
    state: &mut SdState,
    cost: u64,
    limit: u64,
    jiffies: u64,
    hz: u64,
) -> bool {
    if cost > state.max_newidle_lb_cost {
        state.max_newidle_lb_cost = cost.min(limit);
        state.last_decay = jiffies;
        return false;
    }
    let due = jiffies > state.last_decay + hz;
    if due {
        state.max_newidle_lb_cost = state.max_newidle_lb_cost * 253 / 256;
        state.last_decay = jiffies;
    }
    due
}

fn update_newidle_stats(state: &mut SdState, success: u32) {
    state.newidle_call += 1;
    state.newidle_success += success;
    if state.newidle_call >= 1024 {
        state.newidle_ratio = state.newidle_success;
        state.newidle_call /= 2;
        state.newidle_success /= 2;
    }
}

fn update_next_balance(run: &mut Run, w: &World, cx: &Cx, slot: usize) {
    let state = &w.t.sds[slot];
    let next = state.due(periodic::interval(cx.sh, state.balance_interval, false));
    run.newidle.next_balance = run.newidle.next_balance.min(next);
}

fn move_next_balance_forward(run: &Run, cx: &mut Cx) {
    let rq = &mut cx.sh.rqs[run.cpu.ix()];
    rq.next_balance = rq.next_balance.min(run.newidle.next_balance);
}

fn finish(run: &mut Run, w: &mut World, cx: &mut Cx) {
    let l = &cx.sh.loads[run.cpu.ix()];
    let found = run.pulled > 0 || l.nr_running > 0;
    move_next_balance_forward(run, cx);
    let rq = &mut cx.sh.rqs[run.cpu.ix()];
    rq.max_idle_balance_cost = rq.max_idle_balance_cost.max(Ns(run.newidle.spent));
    if found {
        rq.idle_stamp = Ns::ZERO;
    } else {
        nohz::newly_idle(w, cx, run.cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> SdState {
        SdState {
            last_balance: 0,
            balance_interval: 8,
            nr_balance_failed: 0,
            max_newidle_lb_cost: 0,
            last_decay: 0,
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
        }
    }

    #[test]
    fn the_cost_rises_at_once_and_decays_once_a_second() {
        let mut s = state();
        assert!(!update_newidle_cost(&mut s, 2560, u64::MAX, 1000, 250));
        assert_eq!((s.max_newidle_lb_cost, s.last_decay), (2560, 1000));
        assert!(!update_newidle_cost(&mut s, 100, u64::MAX, 1250, 250));
        // Just as dear as before is not dearer.
        assert!(!update_newidle_cost(&mut s, 2560, u64::MAX, 1250, 250));
        assert_eq!(s.last_decay, 1000);
        assert!(update_newidle_cost(&mut s, 100, u64::MAX, 1251, 250));
        assert_eq!((s.max_newidle_lb_cost, s.last_decay), (2530, 1251));
    }

    /// A pull that took 400 us; then failures at half as much again each: 600 us, cut to 500.2.
    #[test]
    fn a_limit_cuts_the_cost() {
        let mut s = state();
        update_newidle_cost(&mut s, 400_000, 500_200, 1000, 250);
        assert_eq!(s.max_newidle_lb_cost, 400_000);
        update_newidle_cost(&mut s, 600_000, 500_200, 1001, 250);
        assert_eq!(s.max_newidle_lb_cost, 500_200);
    }

    #[test]
    fn the_ratio_is_the_success_of_a_window() {
        let mut s = state();
        for _ in 0..511 {
            update_newidle_stats(&mut s, 0);
        }
        assert_eq!((s.newidle_call, s.newidle_ratio), (1023, 512));
        update_newidle_stats(&mut s, 2);
        assert_eq!((s.newidle_call, s.newidle_success, s.newidle_ratio), (512, 129, 258));
    }
}
