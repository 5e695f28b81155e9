//! The seam between the kernel and its scheduler. Everything a CPU asks of a scheduler is a method
//! of [`Scheduler`]; the class stack of Linux ([`crate::linux`]) and the template [`crate::rr`]
//! implement it. Hooks take a CPU, not a queue, so that a scheduler may keep one queue for all.
//!
//! Contracts common to all hooks: they run at `cx.now` on `cx.cpu`, with the lock of the run queue
//! they change held by the caller; they charge their cost to `cx`; they never loop over time.

use crate::balance::SdStats;
use crate::balance::gate::Gate;
use crate::cx::{Cx, Shared};
use crate::task::{AffinityId, Policy, TgId};
use vruntime_base::{Cause, Cpu, TaskId};
use vruntime_machine::Topology;

/// Where a task is put, and by which rule.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// The CPU chosen; always one that the task may use.
    pub cpu: Cpu,
    /// The rule that chose it.
    pub rule: &'static Cause,
}

/// Why a CPU is being chosen (`wake_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeFlags {
    /// WF_SYNC: the waker says that it will sleep soon.
    pub sync: bool,
    /// WF_FORK: a new task.
    pub fork: bool,
    /// WF_EXEC: a task that calls exec.
    pub exec: bool,
}

/// How a task enters a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EnqueueFlags {
    /// ENQUEUE_WAKEUP: it slept.
    pub wakeup: bool,
    /// ENQUEUE_MIGRATED: it slept on another CPU.
    pub migrated: bool,
    /// ENQUEUE_INITIAL: it is new.
    pub initial: bool,
    /// ENQUEUE_DELAYED: it is in delayed dequeue and becomes runnable again.
    pub delayed: bool,
}

/// How a task leaves a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DequeueFlags {
    /// DEQUEUE_SLEEP: it blocks (or dies).
    pub sleep: bool,
    /// It dies or stops: never delayed.
    pub special: bool,
    /// DEQUEUE_SAVE without DEQUEUE_MOVE: it comes back at once, to its place.
    pub save: bool,
}

/// Outcome of [`Scheduler::pick_next_task`].
#[derive(Clone, Copy, Debug)]
pub enum Pick {
    /// Run this task (possibly the one that runs already).
    Task(TaskId),
    /// Nothing to run; the driver may first begin a newidle balancing
    /// ([`Scheduler::balance_begin`]).
    Nothing,
}

/// What the driver must do before it calls a balancing hook again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BalanceStep {
    /// Let `cx.cost` pass with no run queue locked.
    Pass,
    /// Take the lock of this run queue (after `cx.cost` passed).
    Lock(Cpu),
    /// Let `cx.cost` pass, then release the lock of this run queue.
    Unlock(Cpu),
    /// As `Unlock`, but interrupts stay off: tasks are between two queues.
    HandOver(Cpu),
    /// Ask the stopper of this CPU to run [`Scheduler::active_balance`]; then go on.
    Stopper(Cpu),
    /// Finished.
    Done,
}

/// Which balancing is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BalanceKind {
    /// The CPU is about to go idle (`newidle_balance`).
    Newidle,
    /// SCHED_SOFTIRQ after a tick (`rebalance_domains`).
    Periodic,
    /// On behalf of all CPUs without a tick (`nohz_idle_balance`).
    Nohz,
}

/// What a tick asks for (see [`Scheduler::task_tick`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TickWork {
    /// Raise SCHED_SOFTIRQ here.
    pub softirq: bool,
    /// Kick this CPU to balance for the tickless ones.
    pub kick_ilb: Option<Cpu>,
}

/// A scheduler. See the module text for the contracts that hold for every hook. Hooks with a body
/// may be left out by a scheduler that keeps nothing there: it then balances nothing and yields to
/// nobody.
pub trait Scheduler {
    /// Makes room for the next task group; ids are dense. `parent` is always an earlier group.
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId;

    /// `sched_fork`: `p` has just been added to `cx.sh.tasks`; `parent` is its parent, if it has
    /// one. Charges nothing.
    fn task_new(&mut self, cx: &mut Cx, p: TaskId, parent: Option<TaskId>) {
        let _ = (cx, p, parent);
    }

    /// `wake_up_new_task`, after the CPU was chosen and set, before the first enqueue.
    fn task_fork_place(&mut self, cx: &mut Cx, p: TaskId) {
        let _ = (cx, p);
    }

    /// `p` has died and was dequeued for good.
    fn task_dead(&mut self, cx: &mut Cx, p: TaskId) {
        let _ = (cx, p);
    }

    /// Chooses a CPU for a waking (or new, or exec'ing) task. No run queue is locked.
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, flags: WakeFlags) -> Placement;

    /// `migrate_task_rq`: the sleeping `p` goes from its CPU to `new_cpu` (called before
    /// `p.cpu` changes; the old run queue is not locked).
    fn migrate_task_rq(&mut self, cx: &mut Cx, p: TaskId, new_cpu: Cpu) {
        let _ = (cx, p, new_cpu);
    }

    /// Adds `p` to `cpu`'s queue.
    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: EnqueueFlags);

    /// Takes `p` off. False if the task stays queued (delayed dequeue); it then counts as
    /// sleeping but remains `on_rq`.
    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: DequeueFlags) -> bool;

    /// `p` was just enqueued on `cpu`: calls [`Cx::resched_curr`] if it should run instead of
    /// the current task.
    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: WakeFlags);

    /// Picks what runs next and makes it current in the classes (`put_prev_task`,
    /// `set_next_task`). `cx.sh.rqs[cpu].curr` still is the previous task.
    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick;

    /// The task just picked, not of the fair class, is current on `cpu`, whose lock is still held:
    /// other RT tasks may have to go elsewhere (`push_rt_tasks` among the balance callbacks).
    fn balance_callback(&mut self, cx: &mut Cx, cpu: Cpu) {
        let _ = (cx, cpu);
    }

    /// The CPU goes idle for good: the idle task becomes current (`set_next_task_idle`).
    fn set_idle(&mut self, cx: &mut Cx, cpu: Cpu) {
        let _ = (cx, cpu);
    }

    /// `p` is queued but counts as sleeping (delayed dequeue).
    fn is_delayed(&self, sh: &Shared, p: TaskId) -> bool {
        let _ = (sh, p);
        false
    }

    /// `sched_setscheduler`: `p` gets `policy` with `prio` (nice value of the
    /// fair class, priority of the RT class).
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8);

    /// `__do_set_cpus_allowed`: `p` may use the CPUs of `affinity`, `n` of them.
    fn set_affinity(&mut self, cx: &mut Cx, p: TaskId, affinity: AffinityId, n: u16) {
        cx.sh.tasks[p.ix()].allow(affinity, n);
    }

    /// `sched_move_task`: the current task `p` goes to the group `tg`.
    fn set_task_group(&mut self, cx: &mut Cx, p: TaskId, tg: TgId) {
        cx.sh.tasks[p.ix()].tg = tg;
    }
    /// It has task groups, and so autogroups that tasks leave when they exit.
    fn has_task_groups(&self) -> bool {
        false
    }

    /// `sched_yield` of the current task.
    fn yield_task(&mut self, cx: &mut Cx, cpu: Cpu) {
        let _ = (cx, cpu);
    }

    /// The periodic tick.
    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork;

    /// A timer of [`Cx::start_timer`] has expired on `cpu`. No run queue is locked.
    fn timer(&mut self, cx: &mut Cx, cpu: Cpu) {
        let _ = (cx, cpu);
    }

    /// The RT tasks of `cpu` may not run and do not count in `nr_running` ([`crate::rt_throttle`]).
    fn rt_throttled(&self, cpu: Cpu) -> bool {
        let _ = cpu;
        false
    }

    /// The fair tasks of `cpu` go before RT tasks ([`crate::fair_server`]).
    fn fair_goes_first(&self, cpu: Cpu) -> bool {
        let _ = cpu;
        false
    }

    /// Boot is over: the state of a machine that has been up for a while.
    fn warm(&mut self, cx: &Cx) {
        let _ = cx;
    }

    /// The CPU stopped its tick (`nohz_balance_enter_idle`) or, if `!stopped`, takes it up again.
    fn tick_stopped(&mut self, cx: &mut Cx, cpu: Cpu, stopped: bool) {
        let _ = (cx, cpu, stopped);
    }

    /// Begins balancing of `kind` on `cpu`. Only one balancing runs on a CPU at a time.
    fn balance_begin(&mut self, cx: &mut Cx, cpu: Cpu, kind: BalanceKind) -> BalanceStep {
        let _ = (cx, cpu, kind);
        BalanceStep::Done
    }

    /// Goes on with the balancing begun on `cpu`, after what the last step asked for was done.
    fn balance_continue(&mut self, cx: &mut Cx, cpu: Cpu) -> BalanceStep {
        let _ = (cx, cpu);
        BalanceStep::Done
    }

    /// The stopper on `cpu`, whose lock is held, takes one task off for `rqs[cpu].push_cpu`; the
    /// task belongs there from now on.
    fn active_balance(&mut self, cx: &mut Cx, cpu: Cpu) -> Option<TaskId> {
        let _ = (cx, cpu);
        None
    }

    /// That task enters the queue of its CPU, whose lock is held now, and no other.
    fn active_attach(&mut self, cx: &mut Cx, p: TaskId) {
        let _ = (cx, p);
    }

    /// Counters of balancing of the domains, by slot; none if it does not balance.
    fn domain_stats(&self) -> &[SdStats] {
        &[]
    }

    /// What keeps `cpu`, which is idle, from pulling `p`, which waits elsewhere: for checkers.
    /// `jiffies`: the time. None: it does not balance.
    fn gate(
        &self,
        sh: &Shared,
        topo: &Topology,
        jiffies: u64,
        cpu: Cpu,
        p: TaskId,
    ) -> Option<Gate> {
        let _ = (sh, topo, jiffies, cpu, p);
        None
    }

    /// Tasks moved since the driver last asked, with the cause; the driver empties it and does
    /// the bookkeeping of migrations (counters, cold cache, resched after attach).
    fn moved(&mut self) -> &mut Vec<Moved>;
}

/// A task that balancing moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Which task.
    pub task: TaskId,
    /// From where.
    pub from: Cpu,
    /// To where.
    pub to: Cpu,
    /// By which path.
    pub cause: &'static Cause,
}
