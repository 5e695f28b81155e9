//! Which tasks of a queue move, and the move.
//!
//! **What.** From the tail of the list of tasks (the one that ran longest ago), each task is asked
//! whether it may move and whether it fits into what is left of the imbalance. What was taken off
//! is put on the other queue later, under that queue's lock.
//! **Source.** Linux 6.1.192, 6.12.117 and 6.18.2, kernel/sched/fair.c: `detach_tasks`,
//! `can_migrate_task`, `task_hot`, `detach_one_task`, `attach_tasks`.
//! **Equations.** A task fits if (amount >> nr_balance_failed) ≤ imbalance. It is hot if it ran
//! less than migration_cost ago on the source.
//! **Departures.** D1: no NUMA locality verdict, no throttled groups. D2: a task in delayed dequeue
//! moves in one step, since a wakeup could find it between two queues otherwise. D3: a kernel
//! thread bound to one CPU counts as KTHREAD_IS_PER_CPU.
//! **Example.** Imbalance of one task, three tasks A (head), B, C (tail); C is pinned, B ran 0.1 ms
//! ago: C and B go to the head of the list, A runs: nothing moves.

use super::imbalance::MigrationType;
use super::{Env, IdleType, SdState, SdStats};
use crate::cx::{Cx, Shared};
use crate::domains::SdFlags;
use crate::fair::Fair;
use crate::scheduler::{DequeueFlags, EnqueueFlags, Moved, WakeFlags};
use crate::task::Policy;
use vruntime_base::{Cause, CauseKind, Cpu, Func, TaskId};

/// A task was moved to a CPU that is idle.
pub static PULLED_TO_IDLE: Cause = Cause::new(CauseKind::Resched, "balance: CPU was idle");

/// Tasks scanned before the source's lock is let go.
pub(super) const BREAK: u32 = 32;

/// `detach_tasks`: takes tasks off `env.src_cpu`, whose lock is held.
pub(super) fn detach_tasks(
    env: &mut Env,
    state: &SdState,
    stats: &mut SdStats,
    moved: &mut Vec<Moved>,
    fair: &mut Fair,
    cx: &mut Cx,
) {
    let src = env.src_cpu;
    let seen_only = cx.sh.release.pinned_until_one_may_move;
    if cx.sh.loads[src.ix()].nr_running <= 1 && !seen_only {
        env.all_pinned = false;
        return;
    }
    if env.imbalance.amount <= 0 {
        return;
    }
    let mut nr_detached = 0;
    loop {
        let p = cx.sh.rq(src).cfs_tasks_tail;
        if p.is_none() || (env.idle != IdleType::NotIdle && nr_running(cx.sh, src) <= 1) {
            break;
        }
        env.nr_scanned += 1;
        let spared = cx.sh.release.loop_max_spares_pinned && env.all_pinned;
        if env.nr_scanned > env.loop_max && !spared {
            break;
        }
        if env.nr_scanned > env.loop_break {
            env.loop_break += BREAK;
            env.need_break = true;
            break;
        }
        let may = can_migrate_task(env, state, fair, cx.sh, p);
        let moves = may.is_some() && fits(env, state, fair, cx, p);
        let counts = moves || !cx.sh.release.hot_gained_when_moved;
        stats.lb[env.idle as usize].hot_gained += u64::from(may == Some(true) && counts);
        if !moves {
            // It will be asked last.
            cx.sh.cfs_tasks_to_head(src, p);
            continue;
        }
        detach_task(env, moved, fair, cx, p);
        nr_detached += 1;
        let one_is_enough = cx.sh.release.config_preemption && env.idle == IdleType::Newidle;
        if one_is_enough || env.imbalance.amount <= 0 {
            break;
        }
    }
    env.nr_detached += nr_detached;
    stats.lb[env.idle as usize].gained += u64::from(nr_detached);
}

fn nr_running(sh: &Shared, c: Cpu) -> u32 {
    sh.loads[c.ix()].nr_running
}

/// What the task counts for where load is moved.
fn load(fair: &mut Fair, cx: &mut Cx, p: TaskId) -> i64 {
    let least = u64::from(cx.sh.release.migrate_load_at_least_one);
    fair.task_h_load(cx, p).max(least) as i64
}

/// Takes the task's part out of the imbalance, if there is room for it.
fn fits(env: &mut Env, state: &SdState, fair: &mut Fair, cx: &mut Cx, p: TaskId) -> bool {
    let shift = state.nr_balance_failed.min(63);
    let (amount, shift) = match env.imbalance.kind {
        MigrationType::Task => {
            env.imbalance.amount -= 1;
            return true;
        }
        MigrationType::Load if cx.sh.release.migrate_load_halved => {
            let load = load(fair, cx, p);
            let tries = cx.sh.domains.at(env.slot).cache_nice_tries;
            if load / 2 > env.imbalance.amount && state.nr_balance_failed <= tries {
                return false;
            }
            env.imbalance.amount -= load;
            return true;
        }
        MigrationType::Load => (load(fair, cx, p), shift),
        MigrationType::Util => {
            let shift = if cx.sh.release.migrate_util_shifted { shift } else { 0 };
            (i64::from(fair.task_util_est(cx.sh, p)), shift)
        }
    };
    if amount >> shift > env.imbalance.amount {
        return false;
    }
    env.imbalance.amount -= amount;
    true
}

/// `can_migrate_task`: whether the task is hot, if it may be moved.
pub(super) fn can_migrate_task(
    env: &mut Env,
    state: &SdState,
    fair: &Fair,
    sh: &Shared,
    p: TaskId,
) -> Option<bool> {
    let t = sh.task(p);
    let k = &sh.release;
    let by_load = env.imbalance.kind == MigrationType::Load;
    if k.detach_skips_delayed && !by_load && fair.ses[t.se.ix()].sched_delayed {
        return None;
    }
    if k.detach_first_wants_eligible && state.nr_balance_failed == 0 && waits(env, fair, sh, p) {
        return None;
    }
    if sh.release.keep_percpu_kthreads && t.is_per_cpu_kthread() {
        return None;
    }
    let allowed = sh.allowed(p);
    if !allowed.has(env.dst_cpu) {
        env.some_pinned = true;
        if env.idle != IdleType::Newidle && env.new_dst_cpu.is_none() && !env.active {
            let sd = sh.domains.at(env.slot);
            let others = sd.groups[sh.domains.local(env.slot)].balance_mask.and(&env.cpus);
            env.new_dst_cpu = others.and(allowed).first().unwrap_or(Cpu::NONE);
        }
        return None;
    }
    env.all_pinned = false;
    if sh.rq(env.src_cpu).curr == p {
        return None;
    }
    if env.active {
        return Some(false);
    }
    let hot = task_hot(env, fair, sh, p);
    if hot && state.nr_balance_failed <= sh.domains.at(env.slot).cache_nice_tries {
        return None;
    }
    Some(hot)
}

/// `task_is_ineligible_on_dst_cpu`: the task is not its queue's next, and would have to wait at
/// the destination as well.
fn waits(env: &Env, fair: &Fair, sh: &Shared, p: TaskId) -> bool {
    let t = sh.task(p);
    let dst = &fair.cfs[fair.queue_of(t.tg, env.dst_cpu).ix()];
    sh.release.place_lag
        && dst.nr_queued != 0
        && !fair.entity_eligible(fair.ses[t.se.ix()].cfs_rq, t.se)
}

/// `task_hot`.
fn task_hot(env: &Env, fair: &Fair, sh: &Shared, p: TaskId) -> bool {
    let t = sh.task(p);
    let smt = sh.release.threads_never_hot
        && sh.domains.at(env.slot).flags.has(SdFlags::SHARE_CPUCAPACITY);
    if !t.policy.is_fair() || t.policy == Policy::Idle || smt {
        return false;
    }
    let se = &fair.ses[t.se.ix()];
    if sh.release.cache_hot_buddy && sh.loads[env.dst_cpu.ix()].nr_running > 0 {
        let cfs = &fair.cfs[se.cfs_rq.ix()];
        if cfs.next == t.se || cfs.last == t.se {
            return true;
        }
    }
    let delta = sh.rq(env.src_cpu).clock.0 as i64 - se.exec_start.0 as i64;
    delta < sh.release.migration_cost_ns as i64
}

/// Takes `p` off and gives it to `env.dst_cpu`, whose queue it enters in [`attach_tasks`].
pub(super) fn detach_task(
    env: &mut Env,
    moved: &mut Vec<Moved>,
    fair: &mut Fair,
    cx: &mut Cx,
    p: TaskId,
) {
    let (from, to) = (env.src_cpu, env.dst_cpu);
    cx.charge(Func::LoadBalance, cx.machine.costs.detach_task);
    fair.dequeue_task_fair(cx, from, p, DequeueFlags::default());
    fair.migrate_task_rq_fair(cx, p, to);
    let t = &mut cx.sh.tasks[p.ix()];
    t.cpu = to;
    t.wake_cpu = to;
    moved.push(Moved { task: p, from, to, cause: env.cause });
    if fair.ses[cx.sh.task(p).se.ix()].sched_delayed {
        // D2.
        enter(to, fair, cx, p);
    } else {
        cx.sh.tasks[p.ix()].migrating = true;
        env.tasks.push(p);
    }
}

/// `attach_tasks`: what was taken off enters `env.dst_cpu`, whose lock is held; last off, first on.
pub(super) fn attach_tasks(env: &mut Env, fair: &mut Fair, cx: &mut Cx) {
    while let Some(p) = env.tasks.pop() {
        attach_task(env.dst_cpu, fair, cx, p);
    }
}

/// `attach_task`.
pub(super) fn attach_task(dst: Cpu, fair: &mut Fair, cx: &mut Cx, p: TaskId) {
    cx.charge(Func::LoadBalance, cx.machine.costs.attach_task);
    cx.sh.tasks[p.ix()].migrating = false;
    enter(dst, fair, cx, p);
}

/// `p` enters the queue of `dst` and may preempt what runs there, in delayed dequeue or not.
fn enter(dst: Cpu, fair: &mut Fair, cx: &mut Cx, p: TaskId) {
    let before = cx.sh.loads[dst.ix()].nr_running;
    fair.enqueue_task_fair(cx, dst, p, EnqueueFlags::default());
    super::nr_running_grew(cx, dst, before);
    // Where a pass runs alone the destination's tasks have no entities.
    let curr = cx.sh.task(cx.sh.rq(dst).curr);
    if cx.sh.curr_is_idle(dst) {
        cx.resched_curr(dst, &PULLED_TO_IDLE);
    } else if curr.policy.is_fair() && curr.se.is_some() {
        fair.wakeup_preempt_fair(cx, dst, p, WakeFlags::default());
    }
    cx.preempt_check_done(dst);
}
