//! (skeleton) What placement may look at, and what it answers.

use vruntime_base::{Cause, Cpu};

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

/// Everything that the fast path of placement reads and that changes from moment to moment.
///
/// Under `simulate` a call reads the model and charges the cache lines; under `shadow` it reads
/// recorded values and notes what was not known. Static facts (topology, domains, release) come
/// as arguments instead.
pub trait PlacementView {
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
}

/// What a placement changes besides choosing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effects {
    /// Write `p->recent_used_cpu`.
    pub recent_used_cpu: Option<Cpu>,
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
    /// What else to do.
    pub effects: Effects,
}
