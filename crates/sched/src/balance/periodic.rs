//! Periodic balancing: every domain of a CPU at its interval.
//!
//! **What.** After a tick the CPU walks its domains from the smallest up and balances those that
//! are due. A busy CPU does so less often. NUMA domains are balanced by one CPU at a time.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `rebalance_domains` (6.12:
//! `sched_balance_domains`), `get_sd_balance_interval`.
//! **Equations.** interval = balance_interval ms, times busy_factor if busy; in jiffies, rounded
//! up; less one if busy (6.1 on); within 1 … hz·cpus/10.
//! **Departures.** D1: updating the CPU's blocked averages takes no lock.
//! **Example.** 16 CPUs share a cache, 250 Hz: idle 16 ms = 4 jiffies, busy 256 ms = 64 − 1
//! jiffies.

use super::newidle::update_newidle_cost;
use super::{IdleType, Run, World, far, nohz, pass};
use crate::cx::{Cx, Shared};
use vruntime_base::{Cpu, Ns};

/// What a walk keeps between passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    idle: IdleType,
    busy: bool,
    next_balance: u64,
    max_cost: u64,
    need_decay: bool,
}

/// `get_sd_balance_interval`, jiffies.
pub(super) fn interval(sh: &Shared, balance_interval: u32, busy: bool) -> u64 {
    let hz = u64::from(sh.release.hz);
    let factor = if busy { u64::from(sh.release.busy_factor) } else { 1 };
    let jiffies = (u64::from(balance_interval) * factor * hz).div_ceil(1000);
    let longest = (hz * sh.rqs.len() as u64 / 10).max(1);
    let less = u64::from(busy && sh.release.busy_interval_less_one);
    jiffies.saturating_sub(less).clamp(1, longest)
}

/// The softirq after a tick.
pub(super) fn begin(run: &mut Run, w: &mut World, cx: &mut Cx) {
    w.fair.update_blocked_averages(cx, run.cpu);
    let idle = if w.t.idle_balance[run.cpu.ix()] { IdleType::Idle } else { IdleType::NotIdle };
    walk(run, cx, run.cpu, idle);
}

/// Starts a walk over the domains of `on`.
pub(super) fn walk(run: &mut Run, cx: &Cx, on: Cpu, idle: IdleType) {
    run.on = on;
    run.slot = cx.sh.domains.slots(on).start;
    run.stop = false;
    run.periodic = State {
        idle,
        busy: is_busy(cx.sh, on, idle),
        next_balance: u64::MAX,
        max_cost: 0,
        need_decay: false,
    };
}

fn is_busy(sh: &Shared, cpu: Cpu, idle: IdleType) -> bool {
    let like_idle = sh.release.sched_idle_balances_soon && sh.sched_idle_cpu(cpu);
    idle != IdleType::Idle && !like_idle
}

/// Goes to the next domain that is due. False: over.
pub(super) fn next(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    let end = cx.sh.domains.slots(run.on).end;
    while run.slot < end {
        let slot = run.slot;
        let hz = u64::from(cx.sh.release.hz);
        let state = &mut w.t.sds[slot];
        let decayed = update_newidle_cost(state, 0, u64::MAX, cx.jiffies(), hz);
        let once = !cx.sh.release.newidle_delays_decay && run.periodic.need_decay;
        run.periodic.need_decay = decayed || once;
        run.periodic.max_cost += state.max_newidle_lb_cost;
        if run.stop {
            if !run.periodic.need_decay {
                break;
            }
            run.slot += 1;
            continue;
        }
        let interval = interval(cx.sh, state.balance_interval, run.periodic.busy);
        let next = state.due(interval);
        let due = cx.jiffies() >= next;
        let late = cx.sh.release.numa_pass_is_exclusive;
        if due && (late || pass::serialize(run, w, cx, slot)) {
            pass::prepare(run, w, cx, slot, run.periodic.idle);
            return true;
        }
        note_next(run, next);
        run.slot += 1;
    }
    finish(run, w, cx);
    false
}

fn note_next(run: &mut Run, at: u64) {
    run.periodic.next_balance = run.periodic.next_balance.min(at);
}

/// A pass is over.
pub(super) fn after_pass(run: &mut Run, w: &mut World, cx: &mut Cx, moved: u32) {
    let slot = run.env.slot;
    if moved > 0 {
        let idle = if cx.sh.idle_cpu(run.on) { IdleType::Idle } else { IdleType::NotIdle };
        run.periodic.idle = idle;
        run.periodic.busy = is_busy(cx.sh, run.on, idle);
    }
    let state = &mut w.t.sds[slot];
    state.last_balance = cx.jiffies() as i64;
    let interval = interval(cx.sh, state.balance_interval, run.periodic.busy);
    note_next(run, state.due(interval));
    run.slot = slot + 1;
}

/// The walk is over: when the next is due.
fn finish(run: &mut Run, w: &mut World, cx: &mut Cx) {
    let floor = cx.sh.release.migration_cost_ns;
    let latest = far(cx);
    let rq = &mut cx.sh.rqs[run.on.ix()];
    if run.periodic.need_decay {
        rq.max_idle_balance_cost = Ns(run.periodic.max_cost.max(floor));
    }
    if run.periodic.next_balance < latest {
        rq.next_balance = run.periodic.next_balance;
        if run.periodic.idle == IdleType::Idle {
            nohz::walk_ended(w, cx, run.on);
        }
    }
}
