//! Active balancing: the stopper of a CPU pushes a task away.
//!
//! **What.** Asked for by a pass that failed too often, the stopper (which has preempted whatever
//! ran) moves the first task from the tail that may run on the other CPU, hot or not.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `active_load_balance_cpu_stop`,
//! `detach_one_task`, `attach_one_task`.
//! **Equations.** None.
//! **Departures.** D1: a task in delayed dequeue goes over in one step, see [`super::detach`].
//! **Example.** A and the stopper are on CPU 1, CPU 0 is idle and asked: A goes to 0.

use super::detach::{can_migrate_task, detach_task};
use super::imbalance::Imbalance;
use super::{Env, IdleType, Path, World, cause};
use crate::cx::Cx;
use vruntime_base::{Cpu, TaskId};

/// Takes one task off `cpu`, whose lock is held, for its `push_cpu`: the one that is to be attached
/// there, if any.
pub(super) fn push(env: &mut Env, w: &mut World, cx: &mut Cx, cpu: Cpu) -> Option<TaskId> {
    let to = cx.sh.rq(cpu).push_cpu;
    if !std::mem::take(&mut cx.sh.rqs[cpu.ix()].active_balance)
        || cx.sh.loads[cpu.ix()].nr_running <= 1
    {
        return None;
    }
    let slot = cx.sh.domains.lowest_common(to, cpu)?;
    (env.slot, env.idle, env.active) = (slot, IdleType::Idle, true);
    (env.src_cpu, env.dst_cpu) = (cpu, to);
    // Asks for no amount, and counts as one by load.
    env.imbalance = Imbalance::default();
    env.cause = cause(Path::Active, cx.sh.domains.at(slot).name);
    w.t.stats[slot].alb_count += 1;
    let mut p = cx.sh.rq(cpu).cfs_tasks_tail;
    let state = w.t.sds[slot];
    while p.is_some() && can_migrate_task(env, &state, w.fair, cx.sh, p).is_none() {
        p = cx.sh.task(p).cfs_tasks_prev;
    }
    if p.is_none() {
        w.t.stats[slot].alb_failed += 1;
        return None;
    }
    detach_task(env, w.moved, w.fair, cx, p);
    w.t.stats[slot].lb[IdleType::Idle as usize].gained += 1;
    w.t.stats[slot].alb_pushed += 1;
    w.t.sds[slot].nr_balance_failed = 0;
    // None: a task in delayed dequeue, which has arrived already.
    env.tasks.pop()
}
