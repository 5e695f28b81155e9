//! The fair class: entities, their queues and groups, CFS and EEVDF, PELT, placement.
//!
//! | file | mechanism |
//! |---|---|
//! | `class` | the hooks on tasks, over all levels of the hierarchy; the end of a delayed dequeue |
//! | `entity` | enqueue, dequeue (or its delay), set next, put prev, update_curr: of one level |
//! | `cfs` | placement, pick, wakeup and tick preemption of CFS |
//! | `eevdf` | the same for EEVDF, protection, reweight, a wakeup during a delayed dequeue |
//! | `queue` | the sorted queue of waiting entities and its sums |
//! | `weight` | nice weights and the fixed-point `calc_delta` |
//! | `pelt` | load tracking arithmetic |
//! | `load` | when averages are updated, attached, detached, propagated |
//! | `group` | `update_cfs_group` and `tg->load_avg` |
//! | `select` | `select_task_rq_fair`: wake_affine, select_idle_sibling |
//! | `idlest` | its slow path for fork and exec |
//! | `migration_limit` | a limit for how often wakeups move a task; never merged |

use crate::release::{FairKind, LagLimit, Release, SliceProtection};
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
    /// EEVDF: lag when not queued; while running its protection: the deadline at pick, or `vprot`.
    pub vlag: i64,
    /// EEVDF: request size in ns.
    pub slice: u64,
    /// When the running entity was last accounted; zero after a migration (not cache hot).
    pub exec_start: Ns,
    /// Time run since it was last picked.
    pub ran: Ns,
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
    /// Its utilisation changed since util_est last looked (UTIL_AVG_UNCHANGED is clear).
    pub util_changed: bool,
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
    /// Of them SCHED_IDLE tasks and groups with cpu.idle (`idle_nr_running`).
    pub idle_nr: u32,
    /// Tasks below, delayed ones included (`h_nr_running`, `h_nr_queued`).
    pub h_nr_queued: u32,
    /// Of them runnable, i.e. without delayed ones (`h_nr_runnable`).
    pub h_nr_runnable: u32,
    /// The same when the entity of its group was last brought up to date (`se->runnable_weight`).
    pub runnable_weight: u32,
    /// Tasks below that are SCHED_IDLE or in a group with cpu.idle.
    pub idle_h_nr: u32,
    /// Sum of weights × 1024 of all entities on this level, curr included (`load.weight`).
    pub load_weight: u64,
    /// `min_vruntime`, or `zero_vruntime` where the release has that switch.
    pub min_vruntime: VTime,
    /// EEVDF: Σ (v_i − min_vruntime)·w_i over the queue (not curr), w = weight >> 10.
    pub sum_w_vruntime: i64,
    /// EEVDF: Σ w_i over the queue (not curr).
    pub sum_weight: u64,
    /// EEVDF: entities on this level whose slice is not the default one.
    pub nr_odd_slices: u32,
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

/// Tunables with CPU scaling applied, in ns.
#[derive(Clone, Debug)]
pub struct Tunables {
    /// CFS: `sched_latency`.
    pub latency: u64,
    /// CFS: `sched_min_granularity`.
    pub min_granularity: u64,
    /// CFS: the same for SCHED_IDLE.
    pub idle_min_granularity: u64,
    /// CFS: `sched_wakeup_granularity`.
    pub wakeup_granularity: u64,
    /// CFS: `sched_nr_latency`.
    pub nr_latency: u32,
    /// EEVDF: `sched_base_slice`.
    pub base_slice: u64,
    /// Length of a tick.
    pub tick: u64,
}

impl Tunables {
    /// Those of `release` on `nr_cpus` CPUs.
    pub fn new(release: &Release, nr_cpus: usize) -> Tunables {
        let factor = release.scaling(nr_cpus);
        let nr_latency = release.latency_ns.div_ceil(release.min_granularity_ns.max(1));
        Tunables {
            latency: release.latency_ns * factor,
            min_granularity: release.min_granularity_ns * factor,
            idle_min_granularity: release.idle_min_granularity_ns,
            wakeup_granularity: release.wakeup_granularity_ns * factor,
            nr_latency: nr_latency as u32,
            base_slice: release.base_slice_ns * factor,
            tick: release.tick_ns(),
        }
    }
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
    /// EEVDF, not CFS.
    pub eevdf: bool,
    /// EEVDF: the reference point follows V (see the release switch).
    pub zero_vruntime: bool,
    /// EEVDF: a virtual time of its own protects the running entity (see the release switch).
    pub vprot: bool,
    /// EEVDF: what bounds a lag (see the release switch).
    pub lag_limit: LagLimit,
    /// Tunables of this machine.
    pub tun: Tunables,
    /// SIS_PROP: what a scan for an idle CPU costs the CPU, ns.
    pub avg_scan_cost: Vec<u64>,
    /// Entities of tasks that are gone.
    free_ses: Vec<SeId>,
    /// Moves of each task; empty without a migration limit.
    moves: Vec<migration_limit::Moves>,
}

impl Entity {
    /// A nice-0 entity of nobody, not queued.
    pub fn new() -> Entity {
        let (weight, inv_weight) = weight::task_weight(0, false);
        Entity {
            vruntime: VTime(0),
            deadline: VTime(0),
            vlag: 0,
            slice: 0,
            exec_start: Ns::ZERO,
            ran: Ns::ZERO,
            avg: SchedAvg::default(),
            weight,
            inv_weight,
            cfs_rq: CfsId::NONE,
            parent: SeId::NONE,
            my_q: CfsId::NONE,
            task: TaskId::NONE,
            depth: 0,
            on_rq: false,
            sched_delayed: false,
            rel_deadline: false,
            custom_slice: false,
            idle: false,
            // A new task has no estimate: its first sleep makes one.
            util_changed: true,
        }
    }
    /// It belongs to a task, not to a group.
    #[inline(always)]
    pub fn is_task(&self) -> bool {
        self.my_q.is_none()
    }
    /// Weight without the extra resolution.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        weight::scale_load_down(u64::from(self.weight))
    }
    /// Real time `d` as this entity's virtual time.
    #[inline(always)]
    pub fn virtual_time(&self, d: u64) -> u64 {
        weight::calc_delta_fair(d, self.weight, self.inv_weight)
    }
    /// Changes the weight.
    pub fn set_weight(&mut self, weight: u32) {
        self.weight = weight;
        self.inv_weight = weight::inv_weight(u64::from(weight));
    }
}

impl Default for Entity {
    fn default() -> Self {
        Entity::new()
    }
}

impl CfsRq {
    /// An empty queue of `tg` on `cpu`.
    pub fn new(tg: TgId, cpu: Cpu, se: SeId) -> CfsRq {
        CfsRq {
            queue: queue::Queue::default(),
            curr: SeId::NONE,
            next: SeId::NONE,
            last: SeId::NONE,
            skip: SeId::NONE,
            nr_queued: 0,
            h_nr_queued: 0,
            h_nr_runnable: 0,
            runnable_weight: 0,
            idle_nr: 0,
            idle_h_nr: 0,
            load_weight: 0,
            // The kernel starts close to the wrap so that mistakes show early.
            min_vruntime: VTime((-(1i64 << 20)) as u64),
            sum_w_vruntime: 0,
            sum_weight: 0,
            nr_odd_slices: 0,
            avg: SchedAvg::default(),
            util_est_enqueued: 0,
            removed: Removed::default(),
            prop_runnable_sum: 0,
            propagate: false,
            tg_load_avg_contrib: 0,
            last_update_tg_load_avg: Ns::ZERO,
            h_load: 0,
            last_h_load_update: u64::MAX,
            on_list: false,
            tg,
            cpu,
            se,
        }
    }
}

impl Fair {
    /// An empty class with the root group only.
    pub fn new(nr_cpus: usize, release: &Release) -> Fair {
        let root = TaskGroup {
            parent: TgId(0),
            shares: u64::from(weight::NICE_0_LOAD),
            load_avg: 0,
            first_cfs: CfsId(0),
            first_se: SeId::NONE,
            idle: false,
        };
        let queue = |c| CfsRq::new(TgId(0), Cpu::from_ix(c), SeId::NONE);
        Fair {
            nr_cpus,
            ses: Vec::new(),
            cfs: (0..nr_cpus).map(queue).collect(),
            groups: vec![root],
            leaf_lists: vec![Vec::new(); nr_cpus],
            eevdf: release.fair == FairKind::Eevdf,
            zero_vruntime: release.zero_vruntime,
            vprot: release.slice_protection == SliceProtection::Vprot,
            lag_limit: release.lag_limit,
            tun: Tunables::new(release, nr_cpus),
            avg_scan_cost: vec![0; nr_cpus],
            free_ses: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// Makes a group below `parent` with the default weight.
    pub fn new_group(&mut self, parent: TgId) -> TgId {
        let tg = TgId::from_ix(self.groups.len());
        let (first_cfs, first_se) = (CfsId::from_ix(self.cfs.len()), SeId::from_ix(self.ses.len()));
        self.groups.push(TaskGroup {
            parent,
            shares: u64::from(weight::NICE_0_LOAD),
            load_avg: 0,
            first_cfs,
            first_se,
            idle: false,
        });
        for c in 0..self.nr_cpus {
            let cpu = Cpu::from_ix(c);
            let (my_q, se) = (CfsId::from_ix(self.cfs.len()), SeId::from_ix(self.ses.len()));
            self.cfs.push(CfsRq::new(tg, cpu, se));
            let (avg, slice) = (pelt::OF_NOTHING, self.tun.base_slice);
            let mut e = Entity { my_q, slice, avg, ..Entity::new() };
            self.place_below(&mut e, parent, cpu);
            e.vruntime = self.cfs[e.cfs_rq.ix()].min_vruntime;
            self.ses.push(e);
        }
        tg
    }

    /// Gives a task an entity of its own, not queued.
    pub fn new_entity(&mut self, task: TaskId, tg: TgId, cpu: Cpu) -> SeId {
        let mut e = Entity { task, slice: self.tun.base_slice, ..Entity::new() };
        self.place_below(&mut e, tg, cpu);
        if let Some(se) = self.free_ses.pop() {
            self.ses[se.ix()] = e;
            return se;
        }
        self.ses.push(e);
        SeId::from_ix(self.ses.len() - 1)
    }

    /// The queue of `tg` on `cpu`.
    #[inline(always)]
    pub fn queue_of(&self, tg: TgId, cpu: Cpu) -> CfsId {
        CfsId(self.groups[tg.ix()].first_cfs.0 + u32::from(cpu.0))
    }

    fn place_below(&self, e: &mut Entity, tg: TgId, cpu: Cpu) {
        let cfs = self.queue_of(tg, cpu);
        (e.cfs_rq, e.parent, e.depth) = self.place_on(cfs);
    }

    /// What an entity of `cfs` says of its place.
    #[inline]
    fn place_on(&self, cfs: CfsId) -> (CfsId, SeId, u8) {
        let parent = self.cfs[cfs.ix()].se;
        let depth = if parent.is_some() { self.ses[parent.ix()].depth + 1 } else { 0 };
        (cfs, parent, depth)
    }

    /// `set_task_rq`: the entity belongs to `tg` on `cpu` from now on.
    #[inline]
    pub fn set_task_rq(&mut self, se: SeId, tg: TgId, cpu: Cpu) {
        let cfs = self.queue_of(tg, cpu);
        if self.ses[se.ix()].cfs_rq != cfs {
            let place = self.place_on(cfs);
            let e = &mut self.ses[se.ix()];
            (e.cfs_rq, e.parent, e.depth) = place;
        }
    }

    /// A queue of the root group.
    #[inline(always)]
    pub fn is_root(&self, cfs: CfsId) -> bool {
        cfs.ix() < self.nr_cpus
    }

    /// `cfs_rq_is_idle`: all of the queue is SCHED_IDLE because its group is.
    #[inline(always)]
    pub(crate) fn cfs_rq_is_idle(&self, cfs: CfsId) -> bool {
        self.groups[self.cfs[cfs.ix()].tg.ix()].idle
    }

    /// The entities of two tasks (or their ancestors) that meet on one queue
    /// (`find_matching_se`).
    pub fn matching(&self, mut a: SeId, mut b: SeId) -> (SeId, SeId) {
        while self.ses[a.ix()].depth > self.ses[b.ix()].depth {
            a = self.ses[a.ix()].parent;
        }
        while self.ses[b.ix()].depth > self.ses[a.ix()].depth {
            b = self.ses[b.ix()].parent;
        }
        while self.ses[a.ix()].cfs_rq != self.ses[b.ix()].cfs_rq {
            a = self.ses[a.ix()].parent;
            b = self.ses[b.ix()].parent;
        }
        (a, b)
    }

    /// Puts an entity whose fields hold a recorded state into the queue it belongs to, without
    /// placing it, aging it or asking for anything: for checkers that rebuild a moment.
    ///
    /// `cfs_rq`, `vruntime`, `weight`, and for EEVDF `deadline` and `slice`, must be set; the
    /// queue's `min_vruntime` as well.
    pub fn restore_queued(&mut self, se: SeId) {
        self.account_enqueue(se);
        self.ses[se.ix()].on_rq = true;
        self.tree_insert(se);
    }

    /// The same for the running entity.
    pub fn restore_curr(&mut self, se: SeId) {
        self.account_enqueue(se);
        self.ses[se.ix()].on_rq = true;
        let cfs = self.ses[se.ix()].cfs_rq;
        self.cfs[cfs.ix()].curr = se;
    }

    /// Its protection holds, or not.
    pub fn restore_protection(&mut self, se: SeId, holds: bool) {
        let e = &mut self.ses[se.ix()];
        let until = if self.vprot { e.vruntime.plus(i64::from(holds)) } else { e.deadline };
        e.vlag = until.0 as i64;
        if !holds {
            self.cancel_protection(se);
        }
    }

    /// Empties a queue for the next recorded moment. The entities stay.
    pub fn restore_empty(&mut self, cfs: CfsId) {
        let q = &mut self.cfs[cfs.ix()];
        q.queue.clear();
        (q.curr, q.next, q.last, q.skip) = (SeId::NONE, SeId::NONE, SeId::NONE, SeId::NONE);
        (q.nr_queued, q.nr_odd_slices, q.load_weight) = (0, 0, 0);
        (q.sum_w_vruntime, q.sum_weight) = (0, 0);
    }
}

pub mod cfs;
pub mod class;
pub mod eevdf;
pub mod entity;
pub mod group;
pub mod idlest;
pub mod load;
pub mod migration_limit;
pub mod pelt;
pub mod queue;
pub mod select;
pub mod weight;

#[cfg(test)]
pub(crate) mod tests;
