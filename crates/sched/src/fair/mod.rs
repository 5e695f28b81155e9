//! The fair class: entities, their queues and groups, CFS and EEVDF, PELT, placement.
//!
//! | file | mechanism |
//! |---|---|
//! | `weight` | nice weights and the fixed-point `calc_delta` |
//! | `queue` | the sorted queue of waiting entities and its sums |
//! | `cfs` | placement, pick, wakeup and tick preemption of CFS |
//! | `eevdf` | the same for EEVDF, delayed dequeue, reweight |
//! | `entity` | enqueue, dequeue, set next, put prev, update_curr: common to both |
//! | `class` | the hooks on tasks, over all levels of the hierarchy |
//! | `pelt` | load tracking arithmetic |
//! | `load` | when averages are updated, attached, detached, propagated |
//! | `group` | `update_cfs_group` and `tg->load_avg` |
//! | `select` | `select_task_rq_fair`: wake_affine, select_idle_sibling |
//! | `idlest` | its slow path for fork and exec |

use crate::task::TgId;
use vruntime_base::{Cpu, Ns, TaskId, VTime, id_type};

id_type!(
    /// A scheduling entity: a task's, or a group's on one CPU.
    SeId(u32)
);
id_type!(
    /// A `cfs_rq`. `CfsId(n)` for n < nr_cpus is the root queue of CPU n.
    CfsId(u32)
);

/// PELT state (`struct sched_avg`) of an entity or a queue.
#[derive(Clone, Debug, Default)]
pub struct SchedAvg {
    /// When the sums were last brought up to date; zero: not attached anywhere.
    pub last_update_time: Ns,
    /// Decayed time runnable × weight (entity: × 1).
    pub load_sum: u64,
    /// Decayed time runnable × number runnable × 1024.
    pub runnable_sum: u64,
    /// Decayed time running × 1024.
    pub util_sum: u32,
    /// The part of the current 1024-unit segment that has passed.
    pub period_contrib: u32,
    /// Average load (weighted).
    pub load_avg: u64,
    /// Average number of runnable, 1024 = one.
    pub runnable_avg: u32,
    /// Average time running, 1024 = always.
    pub util_avg: u32,
}

/// `struct sched_entity`. Weights are scaled by 1024: nice 0 is 1,048,576.
#[derive(Clone, Debug)]
pub struct Entity {
    /// Virtual runtime.
    pub vruntime: VTime,
    /// EEVDF: virtual deadline.
    pub deadline: VTime,
    /// EEVDF: lag when not queued; while running the deadline at pick (protection, up to 6.12).
    pub vlag: i64,
    /// EEVDF: request size in ns.
    pub slice: u64,
    /// When the running entity was last accounted; zero after a migration (not cache hot).
    pub exec_start: Ns,
    /// Total time run.
    pub sum_exec: Ns,
    /// `sum_exec` when it was last picked.
    pub prev_sum_exec: Ns,
    /// Load tracking.
    pub avg: SchedAvg,
    /// Weight × 1024.
    pub weight: u32,
    /// 2^32 / (weight >> 10), zero: not computed yet.
    pub inv_weight: u32,
    /// The queue it is (or would be) on.
    pub cfs_rq: CfsId,
    /// The group entity above it; NONE at the root.
    pub parent: SeId,
    /// The queue below it, for a group entity; NONE for a task's.
    pub my_q: CfsId,
    /// Its task; NONE for a group entity.
    pub task: TaskId,
    /// Level: 0 at the root queue.
    pub depth: u8,
    /// In a queue (tree or curr).
    pub on_rq: bool,
    /// EEVDF: in delayed dequeue.
    pub sched_delayed: bool,
    /// EEVDF: `deadline` is relative (moves without sleeping).
    pub rel_deadline: bool,
    /// EEVDF: the slice was set by the user (or taken from below, for a group).
    pub custom_slice: bool,
    /// SCHED_IDLE task, or group with cpu.idle.
    pub idle: bool,
}

/// What migrated sleepers leave behind for the queue to subtract (`cfs_rq->removed`).
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Number of entities.
    pub nr: u32,
    /// Sum of load_avg.
    pub load_avg: u64,
    /// Sum of util_avg.
    pub util_avg: u64,
    /// Sum of runnable_avg.
    pub runnable_avg: u64,
}

/// `struct cfs_rq`: one level of one group on one CPU.
#[derive(Clone, Debug)]
pub struct CfsRq {
    /// Waiting entities in order (never `curr`).
    pub queue: queue::Queue,
    /// The running entity of this level, queued or not; NONE if none.
    pub curr: SeId,
    /// Next buddy.
    pub next: SeId,
    /// CFS: last buddy.
    pub last: SeId,
    /// CFS: skip buddy.
    pub skip: SeId,
    /// Entities on this level, curr included (`nr_running`, `nr_queued`).
    pub nr_queued: u32,
    /// Tasks below, delayed ones included (`h_nr_running`, `h_nr_queued`).
    pub h_nr_queued: u32,
    /// Of them runnable, i.e. without delayed ones (`h_nr_runnable`).
    pub h_nr_runnable: u32,
    /// Of them SCHED_IDLE.
    pub idle_h_nr: u32,
    /// Sum of weights × 1024 of all entities on this level, curr included (`load.weight`).
    pub load_weight: u64,
    /// CFS and EEVDF up to 6.10: `min_vruntime`; 6.12.117: `zero_vruntime`.
    pub min_vruntime: VTime,
    /// EEVDF: Σ (v_i − min_vruntime)·w_i over the queue (not curr), w = weight >> 10.
    pub sum_w_vruntime: i64,
    /// EEVDF: Σ w_i over the queue (not curr).
    pub sum_weight: u64,
    /// Load tracking.
    pub avg: SchedAvg,
    /// Utilisation estimate of the tasks below (root: of the CPU).
    pub util_est_enqueued: u32,
    /// Left behind by migrated sleepers.
    pub removed: Removed,
    /// Load to be propagated upwards (`prop_runnable_sum`), and whether there is any.
    pub prop_runnable_sum: i64,
    /// See `prop_runnable_sum`.
    pub propagate: bool,
    /// What this queue last added to `tg->load_avg`.
    pub tg_load_avg_contrib: u64,
    /// When it last did so (ratelimit).
    pub last_update_tg_load_avg: Ns,
    /// Hierarchical load and the jiffy it is of.
    pub h_load: u64,
    /// See `h_load`.
    pub last_h_load_update: u64,
    /// On the list of queues that still decay (`leaf_cfs_rq_list`).
    pub on_list: bool,
    /// Group.
    pub tg: TgId,
    /// CPU.
    pub cpu: Cpu,
    /// The group's entity on this CPU; NONE for the root group.
    pub se: SeId,
}

/// `struct task_group`.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    /// Parent group; the root is its own parent.
    pub parent: TgId,
    /// `cpu.weight` as shares × 1024; 1024 << 10 by default.
    pub shares: u64,
    /// Sum of the contributions of all CPUs: one atomic for the whole machine.
    pub load_avg: i64,
    /// First of its `nr_cpus` queues in the arena (`CfsId(first_cfs + cpu)`).
    pub first_cfs: CfsId,
    /// First of its `nr_cpus` entities (`SeId(first_se + cpu)`); NONE for the root group.
    pub first_se: SeId,
    /// cpu.idle of the group.
    pub idle: bool,
}

/// The fair class: all entities, queues and groups.
pub struct Fair {
    /// Number of CPUs.
    pub nr_cpus: usize,
    /// Entities of tasks and groups.
    pub ses: Vec<Entity>,
    /// Queues.
    pub cfs: Vec<CfsRq>,
    /// Groups; the first is the root.
    pub groups: Vec<TaskGroup>,
    /// Per CPU: the queues that still decay, children before parents.
    pub leaf_lists: Vec<Vec<CfsId>>,
}

pub mod idlest;
pub mod queue;
pub mod select;
