//! What `shadow` replays: one row per recorded event, plain data, any origin.
//!
//! Values that a recording may lack are `Option`; the replay treats `None` as not known, never as
//! zero.

use super::alive::Alive;
use super::searched::Searched;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, CpuMask};
use vruntime_sched::task::Policy;

/// Bit of the flag on x86 (6.13 on).
const TIF_NEED_RESCHED_LAZY: i64 = 5;

/// Raw state of a task that has exited.
const TASK_DEAD: i64 = 0x80;
/// EXIT_DEAD and EXIT_ZOMBIE.
const EXIT_STATES: i64 = 0x30;
/// `prev_state` of a task that could run on, as the tracepoint shows it.
const PREEMPTED: i64 = 0x100;

/// Flag of a running task: a kernel thread.
pub(in crate::shadow) const PF_KTHREAD: i64 = 0x20_0000;

/// Flags of a wakeup ([`Row::wake_flags`]): the choice is for a new task.
pub const WF_FORK: i64 = 0x4;
/// … for a task that is woken.
pub const WF_TTWU: i64 = 0x8;
/// … and the waker is about to sleep.
pub const WF_SYNC: i64 = 0x10;
/// Of a rebuilt choice, beside them: whether the wakeup is synchronous is not known.
pub const SYNC_NOT_KNOWN: i64 = 1 << 32;
/// The same: whether the wakee's `wake_cpu` is where it last ran.
pub const PREV_NOT_KNOWN: i64 = 1 << 33;
/// The same: whether anything was chosen. The wakee may have been queued still, in delayed dequeue,
/// or on its way off its CPU.
pub const MAY_STAY: i64 = 1 << 34;

/// What the SCHED_* number of a fair task stands for.
pub fn fair_policy(number: i64) -> Policy {
    match number {
        3 => Policy::Batch,
        5 => Policy::Idle,
        _ => Policy::Normal,
    }
}

/// Kind of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// `sched_switch`.
    Switch,
    /// `sched_waking`: before the wakee's CPU is chosen.
    Waking,
    /// Return of `select_task_rq_fair`.
    SelectRq,
    /// `sched_migrate_task`: before the task's CPU changes.
    Migrate,
    /// `sched_wakeup`: after activation and the preemption check.
    Wakeup,
    /// `sched_wakeup_new`: after activation, before the preemption check.
    WakeupNew,
    /// A call of `resched_curr`; from 6.13 on a flag that was newly set (see
    /// [`Trace::shows_new_flags`]).
    NeedResched,
    /// A tick that found a fair task running, in a rebuilt trace: `n` is the task before it was
    /// accounted, if that is known, `p` after.
    Tick,
    /// Anything else; its run-queue columns are still used.
    Other,
}

/// A task's entity and its queue, as recorded in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Side {
    /// Task; 0 is an idle task.
    pub pid: i64,
    /// Kernel priority: below 100 real time, 100 … 139 fair.
    pub prio: i64,
    /// SCHED_* number.
    pub policy: i64,
    /// Weight × 1024.
    pub weight: u64,
    /// Virtual runtime.
    pub vruntime: u64,
    /// The true one may be this far off, either way; deadlines with it. Zero if recorded.
    pub slop: u64,
    /// Virtual deadline (EEVDF).
    pub deadline: u64,
    /// It may be so much earlier, if part of the request may have been used before it slept.
    pub due_less: u64,
    /// Lag, or while running the deadline at pick (EEVDF).
    pub vlag: i64,
    /// Request size (EEVDF).
    pub slice: u64,
    /// Total time run.
    pub sum_exec: u64,
    /// `se.on_rq`.
    pub on_rq: bool,
    /// In delayed dequeue. Rebuilt, and no longer `on_rq`: it may be.
    pub sched_delayed: bool,
    /// Level below the root.
    pub depth: i64,
    /// Load average.
    pub load_avg: u64,
    /// It may be this much more, if it was rebuilt; as the fields that end like this one.
    pub load_more: u64,
    /// Utilisation.
    pub util_avg: u64,
    /// See `load_more`; of the estimate as well.
    pub util_more: u64,
    /// Utilisation estimate.
    pub util_est: u64,
    /// It may be this much less, if it was rebuilt.
    pub util_est_less: u64,
    /// Number for its task group; 0 is the root.
    pub tg: i64,
    /// Entities on its queue.
    pub cfs_nr: i64,
    /// `min_vruntime` (CFS) or `zero_vruntime` of its queue.
    pub cfs_min_vruntime: u64,
    /// Load weight of its queue.
    pub cfs_load_weight: u64,
    /// See `load_more`.
    pub cfs_weight_more: u64,
    /// Utilisation of its queue.
    pub cfs_util_avg: u64,
    /// See `load_more`.
    pub cfs_util_more: u64,
    /// Load average of its queue.
    pub cfs_load_avg: u64,
    /// See `load_more`.
    pub cfs_load_more: u64,
    /// Lowest and highest runnable time of its queue, if it was rebuilt.
    pub cfs_runnable: Option<(u64, u64)>,
    /// The parent entity (group), if the task is below the root.
    pub parent: Option<Parent>,
}

/// The group entity above a task's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parent {
    /// Weight × 1024.
    pub weight: u64,
    /// Virtual runtime.
    pub vruntime: u64,
    /// Virtual deadline.
    pub deadline: u64,
    /// Lag or deadline at pick.
    pub vlag: i64,
    /// Request size.
    pub slice: u64,
}

impl Side {
    /// A task of the fair class (not the idle task).
    pub fn is_fair(&self) -> bool {
        self.pid != 0 && self.prio >= 100
    }
    /// A task of the real-time class (not a stopper).
    pub fn is_rt(&self) -> bool {
        self.pid != 0 && (1..100).contains(&self.prio)
    }
}

/// What a row's `common_flags` tell of the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags {
    /// The running task is to be rescheduled.
    pub need_resched: bool,
    /// … when it is convenient (6.13 on).
    pub lazy: bool,
    /// In an interrupt, hard or soft.
    pub interrupt: bool,
    /// In a hard one.
    pub hard: bool,
}

/// An event that is no row, for what it shows of its CPU.
#[derive(Clone, Copy, Debug)]
pub struct Glimpse {
    /// When, ns.
    pub ts: u64,
    /// Where.
    pub cpu: Cpu,
    /// Rows that come before it.
    pub before: usize,
    /// Task running there.
    pub curr_pid: i64,
    /// See [`Flags`].
    pub flags: Option<Flags>,
    /// The task that was just accounted.
    pub ran: Option<Ran>,
    /// By a tick, and whether that asked for a reschedule, as far as that can be told
    /// (`rebuild::answers`).
    pub tick: Option<Option<bool>>,
}

/// A task was accounted (`sched_stat_runtime`).
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Which.
    pub pid: i64,
    /// For how long, ns.
    pub runtime: u64,
    /// Its virtual runtime after that, where the kernel shows it.
    pub vruntime: Option<u64>,
}

/// One recorded event.
#[derive(Clone, Debug)]
pub struct Row {
    /// When, ns.
    pub ts: u64,
    /// Where.
    pub cpu: Cpu,
    /// What.
    pub kind: RowKind,
    /// Task running there (switch: the task switched from).
    pub curr_pid: i64,
    /// First argument. What the two are depends on the kind: read them by [`Row::src_cpu`] and the
    /// methods beside it.
    pub a: i64,
    /// Second argument.
    pub b: i64,
    /// The run queue that the columns below are of.
    pub rq_cpu: Cpu,
    /// `nr_running` of it.
    pub nr_running: Option<i64>,
    /// There may be this many more, in delayed dequeue or never seen. Zero if recorded.
    pub nr_more: i64,
    /// Rebuilt: fair ones of `nr_running`.
    pub nr_fair: Option<i64>,
    /// `nr_switches` of it.
    pub nr_switches: Option<i64>,
    /// `clock_task` of it.
    pub clock_task: Option<i64>,
    /// `p->wakee_flips`.
    pub wakee_flips: Option<i64>,
    /// `current->wakee_flips`.
    pub curr_wakee_flips: Option<i64>,
    /// `current` and `p` may have flipped this many times more.
    pub flips_more: (i64, i64),
    /// How much more they may be besides, each for itself.
    pub flips_own: (i64, i64),
    /// Whose flips before the recording that depends on: with the same task, both are as many
    /// more or as few.
    pub flips_of: (i64, i64),
    /// Either may have been halved since.
    pub flips_half: (bool, bool),
    /// `p->wake_cpu`.
    pub wake_cpu: Option<i64>,
    /// `p->recent_used_cpu`.
    pub recent_used_cpu: Option<i64>,
    /// `p->on_cpu`, on wakeup rows.
    pub on_cpu: Option<bool>,
    /// Flags of the task running there (`current->flags`).
    pub curr_flags: Option<i64>,
    /// CPUs that the task running there may use.
    pub curr_nr_cpus_allowed: Option<i64>,
    /// CPUs that the task may use.
    pub p_nr_cpus_allowed: Option<i64>,
    /// The task (switch: switched from).
    pub p: Side,
    /// Switch: the task switched to. Tick: see [`RowKind::Tick`].
    pub n: Option<Side>,
    /// Choice of a CPU: what it could see, where that was recorded.
    pub searched: Option<Box<Searched>>,
    /// Call chain: index into [`Trace::stacks`].
    pub stack: Option<usize>,
    /// What the event shows of its moment, if the format has it.
    pub flags: Option<Flags>,
    /// Activation or tick in a plain trace: the kernel asked for a reschedule, as far as that can
    /// be told (`rebuild::answers`).
    pub asked: Option<bool>,
    /// The same, and of an activation of whose execution there is a plain trace, too: the running
    /// task was to be rescheduled before.
    pub due: Option<bool>,
    /// Line in the file, for messages; in a plain trace the number of the event.
    pub line: u64,
}

impl Row {
    /// An event of which nothing is known yet but when and where it was.
    pub fn new(ts: u64, cpu: Cpu, kind: RowKind) -> Row {
        Row {
            ts,
            cpu,
            kind,
            curr_pid: 0,
            a: 0,
            b: 0,
            rq_cpu: cpu,
            nr_running: None,
            nr_more: 0,
            nr_fair: None,
            nr_switches: None,
            clock_task: None,
            wakee_flips: None,
            curr_wakee_flips: None,
            flips_more: (0, 0),
            flips_own: (0, 0),
            flips_of: (0, 0),
            flips_half: (false, false),
            wake_cpu: None,
            recent_used_cpu: None,
            on_cpu: None,
            curr_flags: None,
            curr_nr_cpus_allowed: None,
            p_nr_cpus_allowed: None,
            p: Side::default(),
            n: None,
            searched: None,
            stack: None,
            flags: None,
            asked: None,
            due: None,
            line: 0,
        }
    }
    /// Move: the CPU that the task leaves.
    pub fn src_cpu(&self) -> i64 {
        self.a
    }
    /// Move: the CPU that it goes to.
    pub fn dst_cpu(&self) -> i64 {
        self.b
    }
    /// The same, if it is one of the first `nr_cpus`.
    pub fn dst_ix(&self, nr_cpus: usize) -> Option<usize> {
        usize::try_from(self.b).ok().filter(|&to| to < nr_cpus)
    }
    /// Wakeup: the task's CPU, in a choice the one that was chosen.
    pub fn task_cpu(&self) -> i64 {
        self.a
    }
    /// Choice: why a CPU is wanted ([`WF_FORK`] and the constants beside it).
    pub fn wake_flags(&self) -> i64 {
        self.b
    }
    /// Switch: the state of the task switched from, raw; 0 if it can still run.
    pub fn prev_state(&self) -> i64 {
        self.b
    }
    /// Switch: it was preempted, as the event itself says.
    pub fn preempted(&self) -> bool {
        self.a != 0
    }
    /// Switch: the task switched from could run on.
    pub fn stays(&self) -> bool {
        let state = self.prev_state();
        state == 0 || self.preempted() || state & PREEMPTED != 0
    }
}

/// What the name of a kernel thread says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Named {
    /// It may use one CPU only, as `ksoftirqd/3` or `kworker/3:1`.
    Bound,
    /// The same, and it moves tasks that run: `migration/3`.
    Stopper,
    /// It may use all, as `kworker/u8:0`.
    Unbound,
    /// A kernel thread of which the name says no more, as `jbd2/vda-8` or `kcompactd0`.
    Kernel,
}

/// Beginnings of names of kernel threads.
const KERNEL: [&str; 17] = [
    "hwrng",
    "irq/",
    "jbd2/",
    "kauditd",
    "kblockd",
    "kcompactd",
    "kdamond",
    "kdevtmpfs",
    "khugepaged",
    "khungtaskd",
    "ksmd",
    "kswapd",
    "kthreadd",
    "oom_reaper",
    "rcu_",
    "scsi_",
    "xfsaild/",
];

impl Named {
    /// What `comm` says; `None` if it is not one of the names that only kernel threads have.
    pub fn of(comm: &str) -> Option<Named> {
        let kernel = KERNEL.iter().any(|k| comm.starts_with(k)).then_some(Named::Kernel);
        kernel.or_else(|| Named::by_cpu(comm))
    }

    fn by_cpu(comm: &str) -> Option<Named> {
        let (name, rest) = comm.split_once('/')?;
        let bound = ["ksoftirqd", "cpuhp", "rcuc", "irq_work", "idle_inject"];
        let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        match (name, rest.split_once(':')) {
            ("kworker", Some((cpu, _))) if number(cpu) => Some(Named::Bound),
            ("kworker", Some((pool, _))) if pool.strip_prefix('u').is_some_and(number) => {
                Some(Named::Unbound)
            }
            ("kworker", _) => Some(Named::Kernel),
            ("migration", None) if number(rest) => Some(Named::Stopper),
            (name, None) if bound.contains(&name) && number(rest) => Some(Named::Bound),
            _ => None,
        }
    }
}

/// A recording in memory, rows in order of time.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Events.
    pub rows: Vec<Row>,
    /// Call chains, innermost first.
    pub stacks: Vec<Vec<String>>,
    /// CPUs.
    pub nr_cpus: usize,
    /// The state was rebuilt from plain columns (`rebuild`).
    pub rebuilt: bool,
    /// What the names of tasks say of the CPUs that they may use.
    pub named: BTreeMap<i64, Named>,
    /// What programs tasks run: the same number, the same name.
    pub programs: BTreeMap<i64, usize>,
    /// CPUs in no scheduling domain.
    pub isolated: CpuMask,
    /// Other events, in order.
    pub glimpses: Vec<Glimpse>,
    /// When else CPUs executed something; empty: only rows tell.
    pub alive: Alive,
    /// Calls of `resched_curr` have no rows: what the kernel asked is told by [`Row::asked`].
    pub plain: bool,
    /// No wakeup was recorded: each of its rows stands for a waking, on the waker's CPU.
    pub wakings_only: bool,
}

impl Trace {
    /// The call chain of a row; empty if none was recorded.
    pub fn stack(&self, r: &Row) -> &[String] {
        r.stack.and_then(|i| self.stacks.get(i)).map_or(&[], Vec::as_slice)
    }
    /// `resched_curr` rows are of flags newly set (6.13 on), not of calls: a request that finds its
    /// flag set leaves no row.
    pub fn shows_new_flags(&self, r: &Row) -> bool {
        self.stack(r).first().is_some_and(|f| f == "__resched_curr")
    }
    /// The row tells that TIF_NEED_RESCHED_LAZY was set.
    pub fn is_lazy(&self, r: &Row) -> bool {
        r.kind == RowKind::NeedResched && self.shows_new_flags(r) && r.b == TIF_NEED_RESCHED_LAZY
    }
    /// Some function in the row's chain is `name` (compiler suffixes such as `.part.0` ignored).
    /// What an interrupt has interrupted comes after its entry and does not count.
    pub fn has_frame(&self, r: &Row, name: &str) -> bool {
        let mut own = self.stack(r).iter().take_while(|f| !f.starts_with("asm_"));
        own.any(|f| f.split('.').next() == Some(name))
    }
    /// The row was recorded in an interrupt (hard or soft), going by its call chain.
    pub fn in_interrupt(&self, r: &Row) -> bool {
        self.stack(r).iter().any(|f| {
            f.contains("softirq")
                || f.contains("sysvec_")
                || f.contains("irq_exit")
                || f.contains("common_interrupt")
                || f.contains("handle_irq")
        })
    }
    /// The task of `r` is switched from as it called `sched_yield`.
    pub fn yields(&self, r: &Row) -> bool {
        // A plain trace: nobody had asked (`rebuild::answers`).
        let called = || {
            let shown = self.stack(r).iter().any(|f| f.contains("sched_yield"));
            shown || r.due == Some(false)
        };
        r.kind == RowKind::Switch && r.p.is_fair() && r.p.on_rq && called()
    }
    /// The task of `r` is switched from for the last time: a row of the kernel's state shows
    /// TASK_DEAD, a plain trace only that it is a zombie.
    pub fn exits(&self, r: &Row) -> bool {
        let over = r.prev_state() & (TASK_DEAD | EXIT_STATES) != 0;
        r.kind == RowKind::Switch && over && !r.stays() && r.p.is_fair()
    }
    /// The call chain shows a wakeup (as opposed to a move by the balancer or the stopper).
    pub fn in_wakeup(&self, r: &Row) -> bool {
        if self.stack(r).is_empty() {
            return !r.p.on_rq;
        }
        self.has_frame(r, "try_to_wake_up") || self.has_frame(r, "wake_up_new_task")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A softirq of the timer's interrupt balances, in the middle of a wakeup.
    #[test]
    fn what_an_interrupt_interrupts_is_not_its_own() {
        let balances = ["set_task_cpu", "load_balance", "handle_softirqs"];
        let entry = ["sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt"];
        let wakes = ["_raw_spin_unlock_irqrestore", "try_to_wake_up", "wake_up_q"];
        let chain = |all: &[&[&str]]| all.concat().iter().map(|f| (*f).to_owned()).collect();
        let stacks = vec![chain(&[&balances, &entry, &wakes]), chain(&[&wakes])];
        let t = Trace { stacks, ..Trace::default() };
        let row = |i| Row { stack: Some(i), ..Row::new(1, Cpu(0), RowKind::Migrate) };
        assert_eq!([0, 1].map(|i| t.in_wakeup(&row(i))), [false, true]);
        assert_eq!([0, 1].map(|i| t.has_frame(&row(i), "load_balance")), [true, false]);
    }

    #[test]
    fn names_of_kernel_threads_say_where_they_may_run() {
        for (comm, named) in [
            ("kworker/12:1", Some(Named::Bound)),
            ("kworker/0:1H-kblockd", Some(Named::Bound)),
            ("kworker/u32:3", Some(Named::Unbound)),
            ("ksoftirqd/7", Some(Named::Bound)),
            ("rcuop/3", None),
            ("my/7", None),
            ("kworker/R-rcu_g", Some(Named::Kernel)),
            ("jbd2/vda-8", Some(Named::Kernel)),
            ("rcu_preempt", Some(Named::Kernel)),
            ("kthreadd", Some(Named::Kernel)),
            ("migration/", None),
            ("migration/15", Some(Named::Stopper)),
        ] {
            assert_eq!(Named::of(comm), named, "{comm}");
        }
    }
}
