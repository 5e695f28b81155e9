//! What every scheduler knows of a task, and of a CPU.

use crate::fair::SeId;
use vruntime_base::{Cpu, CpuMask, Ns, TaskId, id_type};

id_type!(
    /// A task group. `TgId(0)` is the root group.
    TgId(u16)
);
id_type!(
    /// An interned set of allowed CPUs. `AffinityId(0)` is "all CPUs".
    AffinityId(u16)
);

/// Scheduling policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// SCHED_NORMAL (SCHED_OTHER).
    Normal,
    /// SCHED_BATCH.
    Batch,
    /// SCHED_IDLE.
    Idle,
    /// SCHED_FIFO.
    Fifo,
    /// SCHED_RR.
    Rr,
    /// The stopper (`migration/N`): above everything.
    Stop,
}

impl Policy {
    /// Handled by the fair class.
    #[inline(always)]
    pub fn is_fair(self) -> bool {
        matches!(self, Policy::Normal | Policy::Batch | Policy::Idle)
    }
    /// Handled by the real-time class.
    #[inline(always)]
    pub fn is_rt(self) -> bool {
        matches!(self, Policy::Fifo | Policy::Rr)
    }
}

/// `p->__state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TaskState {
    /// TASK_NEW: not yet woken for the first time.
    New,
    /// TASK_RUNNING: runnable or running.
    Running,
    /// TASK_INTERRUPTIBLE.
    Interruptible,
    /// TASK_UNINTERRUPTIBLE.
    Uninterruptible,
    /// TASK_WAKING: between the decision where to put it and its enqueue.
    Waking,
    /// TASK_DEAD.
    Dead,
}

/// The scheduler's half of `task_struct`.
#[derive(Clone, Debug)]
pub struct Task {
    /// Policy.
    pub policy: Policy,
    /// Nice value, −20 … 19.
    pub nice: i8,
    /// RT priority 1 … 99, 0 for the fair class.
    pub rt_priority: u8,
    /// State.
    pub state: TaskState,
    /// Queued on `cpu`'s run queue (also while running, also in delayed dequeue).
    pub on_rq: bool,
    /// TASK_ON_RQ_MIGRATING: taken off one queue, and not yet on the other.
    pub migrating: bool,
    /// A kernel thread.
    pub kthread: bool,
    /// `task_cpu(p)`: the CPU whose run queue it belongs to.
    pub cpu: Cpu,
    /// `p->wake_cpu`.
    pub wake_cpu: Cpu,
    /// `p->recent_used_cpu`.
    pub recent_used_cpu: Cpu,
    /// Allowed CPUs.
    pub affinity: AffinityId,
    /// Number of allowed CPUs.
    pub nr_cpus_allowed: u16,
    /// Task group.
    pub tg: TgId,
    /// Its entity in the fair class.
    pub se: SeId,
    /// `p->on_cpu` is set while now < this moment; `Ns::NEVER` while it runs.
    pub on_cpu_until: Ns,
    /// `p->wakee_flips`.
    pub wakee_flips: u32,
    /// `p->wakee_flip_decay_ts`, jiffies.
    pub wakee_flip_decay_ts: u32,
    /// `p->last_wakee`.
    pub last_wakee: TaskId,
    /// Address space; tasks with the same value are threads of one process.
    pub mm: u32,
    /// `util_est.enqueued`.
    pub util_est_enqueued: u32,
    /// `util_est.ewma`.
    pub util_est_ewma: u32,
    /// Neighbours in the CPU's list of fair tasks (`rq->cfs_tasks`, most recently run first).
    pub cfs_tasks_next: TaskId,
    /// See `cfs_tasks_next`.
    pub cfs_tasks_prev: TaskId,
}

impl Task {
    /// A kernel thread that is bound to one CPU.
    #[inline(always)]
    pub fn is_per_cpu_kthread(&self) -> bool {
        self.kthread && self.nr_cpus_allowed == 1
    }
    /// It may use the CPUs of `affinity`, `n` of them.
    pub fn allow(&mut self, affinity: AffinityId, n: u16) {
        (self.affinity, self.nr_cpus_allowed) = (affinity, n);
    }
    /// A task of the fair class that does not exist yet, on `cpu` and allowed on `nr_cpus` CPUs.
    pub fn new(cpu: Cpu, nr_cpus: usize) -> Task {
        Task {
            policy: Policy::Normal,
            nice: 0,
            rt_priority: 0,
            state: TaskState::New,
            on_rq: false,
            migrating: false,
            kthread: false,
            cpu,
            wake_cpu: cpu,
            recent_used_cpu: cpu,
            affinity: AffinityId(0),
            nr_cpus_allowed: nr_cpus as u16,
            tg: TgId(0),
            se: SeId::NONE,
            on_cpu_until: Ns::ZERO,
            wakee_flips: 0,
            wakee_flip_decay_ts: 0,
            last_wakee: TaskId::NONE,
            mm: 0,
            util_est_enqueued: 0,
            util_est_ewma: 0,
            cfs_tasks_next: TaskId::NONE,
            cfs_tasks_prev: TaskId::NONE,
        }
    }
}

/// What every scheduler knows of a CPU: the part of `struct rq` that is not a class's own.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Rq {
    /// `rq->curr`; the CPU's idle task when idle.
    pub curr: TaskId,
    /// `rq->clock`; also `clock_task` (D: interrupts are not subtracted).
    pub clock: Ns,
    /// RQCF_REQ_SKIP: the clock is that of an event that asked for a reschedule, and the next
    /// `schedule()` leaves it there.
    pub skip_clock_update: bool,
    /// TIF_NEED_RESCHED of `curr`.
    pub need_resched: bool,
    /// `rq->ttwu_pending`.
    pub ttwu_pending: bool,
    /// An interrupt is being served on top of `curr` (`!in_task()`).
    pub in_interrupt: bool,
    /// The CPU stopped its tick (`ts->tick_stopped`).
    pub tick_stopped: bool,
    /// `rq->active_balance` is set and the stopper has been asked to push to `push_cpu`.
    pub active_balance: bool,
    /// Destination of the active balance.
    pub push_cpu: Cpu,
    /// What is being changed under its lock. Scans read what stands up to here: one cache line.
    pub unfinished: Unfinished,
    /// `rq->idle_stamp`, zero if not idle.
    pub idle_stamp: Ns,
    /// `rq->avg_idle`.
    pub avg_idle: Ns,
    /// `rq->max_idle_balance_cost`.
    pub max_idle_balance_cost: Ns,
    /// `rq->next_balance`, jiffies.
    pub next_balance: u64,
    /// `rq->last_blocked_load_update_tick`, jiffies.
    pub last_blocked_update: u64,
    /// `rq->has_blocked_load`: a tickless CPU has averages that decay.
    pub has_blocked_load: bool,
    /// Most and least recently run fair task (`rq->cfs_tasks`).
    pub cfs_tasks_head: TaskId,
    /// See `cfs_tasks_head`.
    pub cfs_tasks_tail: TaskId,
}

/// A run queue that is being changed under its lock: until the change is made, whoever looks
/// without the lock finds what was before. (`nr_running` is counted at the end of
/// `enqueue_task_fair` and `dequeue_task_fair`, after all that they wait for.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unfinished {
    /// Moment of the event that changes it.
    pub changed_at: Ns,
    /// `nr_running` before the change.
    pub nr_running: u32,
    /// Until when that is found.
    pub nr_until: Ns,
    /// Until when `rq->curr` is found to be a task: the switch to idle.
    pub curr_until: Ns,
    /// Until when `ttwu_pending` is found set.
    pub pending_until: Ns,
}

impl Unfinished {
    /// In an event at `now` a task comes or goes: it is counted at `done`, where there were
    /// `before`. Of several that come in one event (a wake list) the first one's is kept, which
    /// tells an idle CPU from a busy one; of several that go the last one's.
    #[inline(always)]
    pub fn counts_at(&mut self, now: Ns, done: Ns, before: u32, comes: bool) {
        if comes && self.changed_at == now && now < self.nr_until {
            return;
        }
        (self.changed_at, self.nr_until, self.nr_running) = (now, done, before);
    }
}

impl Rq {
    /// Of a CPU that idles, at time zero and without a history of idling.
    pub fn idle(c: Cpu) -> Rq {
        Rq {
            curr: TaskId::from_ix(c.ix()),
            clock: Ns::ZERO,
            skip_clock_update: false,
            need_resched: false,
            ttwu_pending: false,
            in_interrupt: false,
            tick_stopped: false,
            active_balance: false,
            push_cpu: c,
            unfinished: Unfinished::default(),
            idle_stamp: Ns::ZERO,
            avg_idle: Ns::ZERO,
            max_idle_balance_cost: Ns::ZERO,
            next_balance: 0,
            last_blocked_update: 0,
            has_blocked_load: false,
            cfs_tasks_head: TaskId::NONE,
            cfs_tasks_tail: TaskId::NONE,
        }
    }
}

impl Rq {
    /// `update_rq_clock`: the clock is at `now`, unless a holder of the lock has taken it further
    /// (which only a lock that is free allows).
    #[inline(always)]
    pub fn update_clock(&mut self, now: Ns) {
        self.clock = self.clock.max(now);
    }
    /// A task was woken on this CPU at `now`: takes the idle period that began at `idle_stamp` into
    /// the average (`avg_idle += (period - avg_idle) / 8`, at most twice
    /// `max_idle_balance_cost`).
    pub fn update_avg_idle(&mut self, now: Ns) {
        if self.idle_stamp == Ns::ZERO {
            return;
        }
        let delta = now.saturating_sub(self.idle_stamp).0 as i64;
        let avg = self.avg_idle.0 as i64;
        let avg = avg + (delta - avg) / 8;
        self.avg_idle = Ns((avg as u64).min(2 * self.max_idle_balance_cost.0));
        self.idle_stamp = Ns::ZERO;
    }
}

/// Per-CPU numbers that balancing and placement scan, side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RqLoad {
    /// `rq->nr_running`: tasks of all classes, including delayed ones.
    pub nr_running: u32,
    /// Fair tasks in the hierarchy, including delayed ones (`h_nr_running`, `h_nr_queued`).
    pub h_nr_queued: u32,
    /// Fair tasks of them in delayed dequeue.
    pub h_nr_delayed: u32,
    /// Fair tasks of them that are SCHED_IDLE (or in an idle group).
    pub idle_h_nr: u32,
    /// Root `cfs_rq->avg.load_avg`.
    pub load_avg: u64,
    /// Root `cfs_rq->avg.util_avg`.
    pub util_avg: u32,
    /// Root `cfs_rq->avg.runnable_avg`.
    pub runnable_avg: u32,
    /// Root `cfs_rq->avg.util_est.enqueued`.
    pub util_est: u32,
}

/// Interned affinity masks.
#[derive(Clone, Debug)]
pub struct Affinities {
    masks: Vec<CpuMask>,
}

impl Affinities {
    /// Only "all `nr_cpus` CPUs" at first.
    pub fn new(nr_cpus: usize) -> Affinities {
        Affinities { masks: vec![CpuMask::first_n(nr_cpus)] }
    }
    /// The id of `mask`, made if new.
    pub fn intern(&mut self, mask: CpuMask) -> AffinityId {
        if let Some(i) = self.masks.iter().position(|m| *m == mask) {
            return AffinityId::from_ix(i);
        }
        self.masks.push(mask);
        AffinityId::from_ix(self.masks.len() - 1)
    }
    /// The mask of `id`.
    #[inline(always)]
    pub fn get(&self, id: AffinityId) -> &CpuMask {
        &self.masks[id.ix()]
    }
}
