//! A kernel release: which variant of each mechanism it has, its features and its tunables.
//!
//! A release is data (`kernels/*.toml`), never a test in mechanism code: mechanisms read the
//! switches below and know no version numbers. Field names double as the names of command line
//! overrides (`v6.1+sis_util=off,base_slice_ns=3000000`). Features carry the kernel's own names
//! (`/sys/kernel/debug/sched/features`), in lower case.

pub use crate::ttwu_queue::{TtwuListOrder, TtwuPendingSeen, TtwuQueue, TtwuQueueWithin};
use serde::{Deserialize, Serialize};
use vruntime_base::Cause;

/// Which fair class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FairKind {
    /// Completely Fair Scheduler (up to 6.5).
    Cfs,
    /// Earliest eligible virtual deadline first (6.6 on).
    Eevdf,
}

/// The preemption model in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preempt {
    /// Kernel code is preempted nowhere; a reschedule waits for the return to user mode.
    None,
}

/// When `sched_ttwu_pending` clears `rq->ttwu_pending`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TtwuPendingClear {
    /// Before the queued tasks are enqueued: for a moment the CPU looks idle again (6.1).
    BeforeEnqueue,
    /// After all of them are enqueued (6.2 on).
    AfterEnqueue,
}

/// How a busy CPU tells a tickless one to balance, and what comes of it if that one polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NohzKick {
    /// By an interrupt (to 5.7).
    Interrupt,
    /// By a function call, which a polling CPU sees without an interrupt – as a request to
    /// reschedule, and so it does not balance (5.8 to 6.12).
    CallLostOnPolling,
    /// By a function call; polling CPUs balance too (6.13, and stable releases since December
    /// 2024).
    Call,
}

/// What keeps real-time tasks from taking all of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RtLimit {
    /// Nothing, or next to nothing: up to 5.9 a CPU borrows what others have left of theirs.
    None,
    /// RT tasks are throttled beyond their runtime in each period (5.10 to 6.11).
    Throttling,
    /// Fair tasks that wait for them get the rest of each period (6.12 on).
    FairServer,
}

/// Which idle periods the menu governor leaves out where they are not alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftOut {
    /// Those as long as the longest (to 6.14).
    Longest,
    /// Those as long as the longest or the shortest, whichever is farther from the mean (6.15 on).
    Farthest,
}

/// When the menu governor looks how long it is to the next timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksTimers {
    /// At each choice (to 6.5).
    Always,
    /// Unless the last idle periods let it expect one of at most 15 us (6.6 on).
    IfLong,
    /// So, and always without tick (7.0 on, long-term).
    IfLongOrStopped,
}

/// The rule that lets a task stack on the per-CPU kthread that wakes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KthreadStacking {
    /// There is none (before 5.6).
    Absent,
    /// Also for wakeups from an interrupt on top of the kthread (5.6 to 5.16).
    Always,
    /// Only when the kthread itself does the waking (5.17 on).
    InTask,
}

/// How much imbalance between NUMA nodes is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaImbalance {
    /// None (5.5).
    None,
    /// A fixed pair of tasks (5.7).
    Pair,
    /// `imb_numa_nr`, from the topology (5.18 on).
    ImbNumaNr,
}

/// `update_cfs_group`: when the group entity is reweighted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupReweight {
    /// On every call (up to 6.5).
    Always,
    /// Only when the weight changes (6.6, 6.10).
    IfChanged,
    /// Only when it changes, and not read at all for a queue without weight (6.12 on).
    IfLoadedAndChanged,
}

/// How the running entity's protection from eligible others is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceProtection {
    /// It lasts until the deadline of the pick is renewed (6.6 to 6.12).
    Deadline,
    /// It lasts until a virtual time of its own, `vprot`: the end of the shortest slice on the
    /// queue (6.18).
    Vprot,
}

/// How far what an entity is owed, or owes, is kept when it leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LagLimit {
    /// Two of its own slices, at least a tick (up to 6.19).
    OwnSlice,
    /// The longest slice on the queue and a tick (7.0, 6.18.18).
    LongestSlice,
}

/// Which searches `select_idle_sibling` makes, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleSearch {
    /// An idle core, an idle CPU, an idle sibling of the target; each from the target on (5.x).
    CoreCpuSibling,
    /// An idle sibling of prev, then one walk for a core or a CPU from the next CPU on (5.12 on).
    SiblingFirst,
}

/// What keeps a group that is not overloaded from taking load of one that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalLoadChecks {
    /// Nothing (5.5).
    None,
    /// More load than the busiest group (5.7).
    Busiest,
    /// That, or more than the domain (6.1 on).
    BusiestAndAverage,
}

macro_rules! release {
    ($($(#[doc = $doc:literal])* $name:ident : $ty:ty,)*) => {
        /// One kernel release with all overrides applied. See the module text.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Release {
            $($(#[doc = $doc])* pub $name: $ty,)*
            /// Ids of rules whose test always fails: for knock-outs and for tests of checkers.
            #[serde(skip)]
            pub disabled_rules: Vec<u32>,
        }
        impl Release {
            /// Name and meaning of every field, in order.
            pub const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),*)),)*];
        }
    };
}

release! {
    /// Short name, as in `-k v6.1`.
    name: String,
    /// Exact point release that the facts were read from.
    version: String,
    /// One line for `vruntime list kernels`.
    description: String,
    /// Scheduler behind the hooks: `linux` (the class stack) or another of `vruntime list
    /// schedulers`.
    scheduler: String,
    /// Ticks per second (CONFIG_HZ).
    hz: u32,
    /// Layout of `/proc/schedstat`.
    schedstat_version: u32,
    /// Preemption model.
    preempt: Preempt,
    /// Fair class: `cfs` or `eevdf`.
    fair: FairKind,

    /// CFS: a sleeper gets half of `latency_ns` as credit, not all.
    gentle_fair_sleepers: bool,
    /// CFS: a new task starts one slice behind.
    start_debit: bool,
    /// CFS: prefer the task that was preempted by a wakeup.
    last_buddy: bool,
    /// CFS: a pick that keeps the running task ends what it is marked as, too (up to 5.13).
    pick_clears_buddies: bool,
    /// Mark the wakee as next buddy on every wakeup.
    next_buddy: bool,
    /// EEVDF: use the next buddy when picking (6.12 on).
    pick_buddy: bool,
    /// Buddies count as cache hot for the balancer.
    cache_hot_buddy: bool,
    /// A wakeup may preempt.
    wakeup_preemption: bool,
    /// CFS: period from the number of tasks in the whole hierarchy.
    alt_period: bool,
    /// CFS: at the tick a slice counts as at most `latency_ns` (6.5).
    tick_slice_capped: bool,
    /// CFS: a SCHED_IDLE sleeper's credit is `min_granularity_ns` instead of `latency_ns` (6.1
    /// on).
    idle_sleeper_granularity: bool,
    /// CFS: a wakee that moved counts as having slept for long, so it is placed as a sleeper even
    /// if it has run ahead (6.3-rc, from 829c1651e9 to a53ce18cac).
    moved_counts_as_long_sleep: bool,
    /// CFS: a slice is at least `min_granularity_ns`.
    base_slice: bool,
    /// EEVDF: keep the lag over a sleep.
    place_lag: bool,
    /// EEVDF: a new task starts with half a slice.
    place_deadline_initial: bool,
    /// EEVDF: a task that moves without sleeping keeps its relative deadline.
    place_rel_deadline: bool,
    /// EEVDF: the running task is protected until its deadline.
    run_to_parity: bool,
    /// EEVDF: how that protection is kept: `deadline` or `vprot`.
    slice_protection: SliceProtection,
    /// EEVDF: only a pick protects; a change of the running task's policy or affinity ends its
    /// protection (7.0, 6.18.18; bcd74b2ffdd0).
    protects_at_pick_only: bool,
    /// EEVDF: a wakee with a shorter slice ends that protection.
    preempt_short: bool,
    /// EEVDF: a wakeup that does not preempt leaves the running task no more protection than the
    /// shortest slice on the queue, whoever has it (6.19 on, 6.18.33).
    wakeup_shortens_protection: bool,
    /// EEVDF: the pick of the wakeup check takes entities in delayed dequeue off the queue, as any
    /// other pick does (7.1, 6.18.33).
    wakeup_ends_delay: bool,
    /// EEVDF: a new task preempts nobody unless its slice is shorter (6.19 on, 6.18.33).
    wakeup_spares_for_new: bool,
    /// EEVDF: SCHED_IDLE counts only where the paths of the two tasks meet (6.12 on).
    idle_test_at_common_level: bool,
    /// EEVDF: a task that blocks while ineligible stays in the queue.
    delay_dequeue: bool,
    /// EEVDF: such a task keeps no positive lag.
    delay_zero: bool,
    /// EEVDF: fork placement writes the deadline once more at enqueue, with a full slice (6.6 to
    /// 6.10).
    fork_places_twice: bool,
    /// EEVDF: the bound of a lag: `own-slice` or `longest-slice`.
    lag_limit: LagLimit,
    /// EEVDF: the lag is clamped before a queued entity is reweighted (6.10 on).
    reweight_clamps_lag: bool,
    /// EEVDF: a queued entity that is reweighted leaves and is placed again (6.18).
    reweight_places_again: bool,
    /// EEVDF: yielding forfeits the rest of the request.
    yield_forfeits: bool,
    /// EEVDF: the reference point follows the average (`zero_vruntime`) instead of never going
    /// back.
    zero_vruntime: bool,
    /// EEVDF: a group entity takes the shortest slice below it.
    group_min_slice: bool,

    /// Wakeups go through the wake list across these groups: `llc`, `l2`, `8` (as few groups as
    /// there can be of at most eight CPUs of an LLC), `mod192` (by CPU number), `all` (every
    /// remote wakeup), `none` (the waker always takes the lock).
    ttwu_queue: TtwuQueue,
    /// Which wakeups within a group do so as well: `never`, `on-cpu`, `nothing-running`.
    ttwu_queue_within: TtwuQueueWithin,
    /// A stopper never goes on a wake list (6.16 on, 6.12 long-term).
    ttwu_stop_direct: bool,
    /// Order of the wake list: `fifo` or `lifo`.
    ttwu_list_order: TtwuListOrder,
    /// When `ttwu_pending` is cleared.
    ttwu_pending_clear: TtwuPendingClear,
    /// Who sees `ttwu_pending`: `nowhere`, `idle-tests`, `everywhere` (all tests of placement).
    ttwu_pending: TtwuPendingSeen,
    /// A wakeup of a task still on the CPU is handed to that CPU.
    ttwu_on_cpu_handover: bool,
    /// How a tickless CPU is told to balance: `interrupt`, `call-lost-on-polling`, `call`.
    nohz_kick: NohzKick,
    /// A kicked CPU balances for the others from the lowest number on and then always for itself;
    /// the next kick is due with the others, and a CPU that stops its tick causes none (to 5.12;
    /// 7a82e5f52a35, 7fd7a9e0caba).
    nohz_own_turn_apart: bool,
    /// Outliers among the last idle periods that the menu governor leaves out: `longest`,
    /// `farthest` (from the mean).
    menu_leaves_out: LeftOut,
    /// When the menu governor looks for the next timer: `always`, `if-long`, `if-long-or-stopped`.
    menu_checks_timers: ChecksTimers,
    /// Rather than poll, the menu governor enters only a state that pays within 15 us (6.19 on,
    /// long-term).
    menu_polls_before_long: bool,
    /// The on_rq wakeup path also updates avg_idle and runs the class hooks (up to 6.1).
    ttwu_runnable_full: bool,
    /// On the on_rq path, no preemption check while the task is still running (6.5 on).
    ttwu_runnable_skip_curr: bool,
    /// A task that leaves its own CPU out of its affinity sleeps until the stopper has moved it
    /// (5.11 on); else it is preempted.
    affinity_waits: bool,
    /// `sched_setscheduler` with the policy and nice value that a task of the fair class has puts
    /// it on its queue anew (6.12 on).
    setscheduler_always_changes: bool,
    /// What keeps RT tasks from taking all of a CPU: `none`, `throttling` (5.10 to 6.11; before,
    /// they borrowed what other CPUs had left), `fair-server` (6.12 on).
    rt_limit: RtLimit,
    /// A real-time task that looks for a CPU takes any of those that fit, not the one with the
    /// lowest number (5.11 on, 14e292f8d453).
    rt_lowest_rotates: bool,

    /// Limit the idle scan by the expected idle time over what a scan costs (5.x).
    sis_prop: bool,
    /// Limit the idle scan by the utilisation of the LLC.
    sis_util: bool,
    /// `wake_affine` looks at idle CPUs.
    wa_idle: bool,
    /// `wake_affine` compares loads.
    wa_weight: bool,
    /// `wake_affine` favours the waker by half the imbalance percentage.
    wa_bias: bool,
    /// `wake_affine`: an idle prev is kept (5.10 on).
    wa_idle_prev: bool,
    /// `wake_affine`: tasks in delayed dequeue do not count in the sync test.
    wa_sync_minus_delayed: bool,
    /// Stacking on per-CPU kthreads.
    kthread_stacking: KthreadStacking,
    /// Which searches for an idle CPU there are: `core-cpu-sibling` or `sibling-first`.
    idle_search: IdleSearch,
    /// A CPU with only SCHED_IDLE tasks is second choice in a search (5.5).
    sched_idle_last: bool,
    /// CPUs that the task may not use count in the limited scan (5.5).
    scan_counts_forbidden: bool,
    /// The search for an idle core leaves a core at the first busy thread (5.7 on, bec2860a2bd6;
    /// with `sibling-first` once an idle CPU is known, whatever this says).
    core_test_stops_early: bool,
    /// `recent_used_cpu` is written when it helps, and the waker's after an affine wakeup (5.x).
    recent_used_on_hit: bool,
    /// Search the cluster (shared L2) before the LLC (6.7 on).
    cluster_scan: bool,
    /// CPUs of an L2 cache are a domain of their own on x86 (5.16 on).
    cluster_level: bool,
    /// `find_idlest_group` sums only the CPUs the task may use (long-term back-port).
    idlest_group_allowed_only: bool,
    /// `find_idlest_group`: of groups with as many idle CPUs the one less used, not the first (5.9
    /// on, 3edecfef0285).
    idlest_tie_by_util: bool,
    /// `find_idlest_group` knows neither the size of a group nor the load of a busy one: with any
    /// task use alone makes it overloaded, and of overloaded groups the local one is idlest (5.5;
    /// 289de3598481, 6c8116c914b6).
    idlest_by_use_alone: bool,
    /// Utilisation estimate.
    util_est: bool,
    /// The estimate of a task that sleeps is updated before its utilisation is (6.12 on).
    util_est_first: bool,
    /// Utilisation estimate: one value per task, which waiting tasks keep (6.8 on).
    util_est_single: bool,
    /// Choosing a queue to pull utilisation from, `runnable_avg` counts if larger (6.5 on).
    util_boosted_by_runnable: bool,

    /// NUMA passes of every kind, newidle too, are one CPU's at a time, asked once it is to
    /// balance; who comes second counts as balanced (6.19 on, 6.18.10). Else only periodic ones,
    /// and who comes second does nothing.
    numa_pass_is_exclusive: bool,
    /// NI_RANDOM: skip newidle passes at random, by their success.
    ni_random: bool,
    /// Newidle balancing is over when a wakeup is queued for the CPU (5.8 on).
    newidle_sees_wakeups: bool,
    /// Newidle: at least `migration_cost_ns` of idle time must be expected, not the cost of the
    /// lowest domain (5.x).
    newidle_fixed_guard: bool,
    /// Newidle: while load may still decay on tickless CPUs each pass brings those of its domain up
    /// to date (to 5.12; 0826530de3cb).
    newidle_ages_tickless: bool,
    /// A CPU that comes to have SCHED_IDLE tasks only balances at its next tick, and then as often
    /// as an idle one (5.6 on, 323af6deaf70).
    sched_idle_balances_soon: bool,
    /// The interval of a busy CPU is a tick less (6.1 on).
    busy_interval_less_one: bool,
    /// Interval of a busy CPU = interval of an idle one times this.
    busy_factor: u32,
    /// Imbalance percentage of levels that share no cache.
    imbalance_pct: u32,
    /// NUMA imbalance left alone.
    numa_imbalance: NumaImbalance,
    /// A group is overloaded by waiting tasks too, not by utilisation only (5.7 on).
    overloaded_by_runnable: bool,
    /// Of two groups with as many idle CPUs the one with more tasks is busier (5.7 on).
    spare_tie_by_tasks: bool,
    /// Spare capacity is filled by utilisation also where the cache is shared (5.x).
    util_imbalance_in_llc: bool,
    /// What keeps a group that is not overloaded from taking load: `none`, `busiest`,
    /// `busiest-and-average`.
    local_load_checks: LocalLoadChecks,
    /// A queue of two or more counts as pinned until a task that may move was seen, though it is
    /// empty by the time it is locked, and once more if the running task may not be pushed (to
    /// 5.11; 8a41dfcda7a3, acb4decc1e90).
    pinned_until_one_may_move: bool,
    /// A queue that gives utilisation has two tasks (5.7 on).
    util_queue_of_two: bool,
    /// A queue without tasks, whose sleepers left load or utilisation, can be the busiest (to 5.11;
    /// fc488ffd4297).
    idle_queue_gives: bool,
    /// A task fits into an imbalance of half its load; failures beyond `cache_nice_tries` lift
    /// that (5.x).
    migrate_load_halved: bool,
    /// A task whose load rounds to nothing counts for 1 (5.7.10 on).
    migrate_load_at_least_one: bool,
    /// `lb_hot_gained` counts tasks that are moved, not those that may be (6.15 on, long-term).
    hot_gained_when_moved: bool,
    /// Between threads of a core no task is cache hot (5.12 on).
    threads_never_hot: bool,
    /// Active balance also where load or utilisation was to be moved (5.x).
    active_balance_any_type: bool,
    /// An active balance doubles the interval, and the next pass moves hot tasks (5.x).
    active_balance_backs_off: bool,
    /// `should_we_balance` prefers a whole idle core (6.6 on).
    balance_prefers_idle_core: bool,
    /// A core with several busy threads is a group type of its own (6.6 on).
    smt_balance: bool,
    /// Built with CONFIG_PREEMPTION (PREEMPT_DYNAMIC has it): newidle stops after one task.
    config_preemption: bool,
    /// Tasks that may not move do not count against `nr_migrate` as long as none may (6.5, 6.6).
    loop_max_spares_pinned: bool,
    /// Failed passes halve a task's utilisation too before it is compared (long-term, 6.10 on).
    migrate_util_shifted: bool,
    /// Sibling imbalance is normalised by the number of cores (6.6 on).
    sibling_imbalance_by_cores: bool,
    /// A fully busy group of equal load replaces the one found before (6.5 on).
    fully_busy_tie_takes_later: bool,
    /// Newidle ends its walk as soon as the CPU may not balance (6.10 on).
    newidle_stops_on_refusal: bool,
    /// Balancing never detaches per-CPU kthreads.
    keep_percpu_kthreads: bool,
    /// Balancing by anything but load leaves tasks in delayed dequeue alone (6.18).
    detach_skips_delayed: bool,
    /// A first pass leaves ineligible tasks where they are if their queue at the destination has
    /// others (6.18).
    detach_first_wants_eligible: bool,
    /// A newidle pass that found nothing costs half as much again as the dearest so far, and no
    /// cost counts for more than `migration_cost_ns` + 200 ns (6.18).
    newidle_failure_costs_more: bool,
    /// Newidle passes, too, let the cost of a search decay, and a rise puts that off; before, only
    /// periodic ones did, all levels above one that decayed included (5.16 on, e60b56e46b38).
    newidle_delays_decay: bool,
    /// Balancer statistics count tasks in delayed dequeue.
    balance_counts_delayed: bool,
    /// A sleeper that leaves an idle CPU's queue takes its averages as they are by then, not as
    /// that queue last saw them (6.0 on).
    migrate_pelt_lag: bool,
    /// `tg->load_avg` is written at most once a millisecond per queue (6.7 on).
    tg_load_avg_ratelimit: bool,
    /// What decays is taken out of the sum of the group above as well, not only when that group's
    /// own queue decays (5.13 on, 02da26ad5ed6).
    blocked_updates_parent_sum: bool,
    /// A queue that has decayed to nothing is looked after until its group's sum no longer counts
    /// it (6.19 on, 6.12 and 6.18 long-term).
    leaf_stays_while_contributing: bool,
    /// A pick that keeps the running task puts it first in the list that the balancer goes through
    /// (up to 6.11).
    repick_moves_first: bool,
    /// When group entities are reweighted.
    group_reweight: GroupReweight,
    /// A new task's first utilisation uses the scaled-down weight.
    new_task_util_scaled: bool,
    /// The idle loop goes back to idle without asking the classes (6.12 on).
    idle_shortcut: bool,
    /// PowerPC does not count who borrows an address space (6.4 on).
    lazy_tlb_shootdown: bool,
    /// `fget` reads a file's count and then exchanges it, two transfers of its line where adding
    /// takes one (up to 6.12).
    fget_exchanges: bool,
    /// A system call begins with clearing the branch history, by a loop where the processor has no
    /// control for it (6.9 on, and 6.1 and 6.6 from 6.1.85 and 6.6.26 on).
    clears_bhb: bool,

    /// Pipe: each write and read looks whether the inode's times are to be set (up to 6.14).
    pipe_updates_times: bool,
    /// Pipe: a reader wakes a writer only when it freed a slot (6.14 on).
    pipe_wakes_on_freed_slot: bool,

    /// `sched_rt_period_us`, in ns; the fair server's period.
    rt_period_ns: u64,
    /// `sched_rt_runtime_us`, in ns: what RT tasks may use of each period; all of it: no limit. The
    /// fair server has the rest.
    rt_runtime_ns: u64,
    /// EEVDF: request size in ns before CPU scaling.
    base_slice_ns: u64,
    /// CFS: targeted latency in ns before CPU scaling.
    latency_ns: u64,
    /// CFS: minimal granularity in ns before CPU scaling.
    min_granularity_ns: u64,
    /// CFS: minimal granularity of SCHED_IDLE entities in ns, not scaled.
    idle_min_granularity_ns: u64,
    /// CFS: wakeup granularity in ns before CPU scaling.
    wakeup_granularity_ns: u64,
    /// A task that ran within this many ns is cache hot.
    migration_cost_ns: u64,
    /// A wakee that moved `migration_quota` times within this many ns stays on prev while prev's
    /// load is below `migration_prev_load`; 0 for no such limit (proposed in August 2023).
    migration_window_ns: u64,
    /// Moves that a task has free in a window of that limit.
    migration_quota: u32,
    /// Load of the root queue below which that limit prefers prev; a nice 0 task alone has 1024,
    /// one in a group its part of the group's share.
    migration_prev_load: u64,
    /// The most tasks moved in one balance pass.
    nr_migrate: u32,
    /// A timer that ends the sleep of a task may be late by so many ns, so as to expire together
    /// with another (`PR_SET_TIMERSLACK`); not if the task is real-time.
    timer_slack_ns: u32,
    /// Schedule all tasks of a workload in one task group of their own (autogroup).
    autogroup: bool,
}

impl Release {
    /// The rule with this cause may apply.
    #[inline(always)]
    pub fn rule_on(&self, rule: &Cause) -> bool {
        self.disabled_rules.is_empty() || !self.disabled_rules.contains(&rule.id)
    }
    /// Factor of CPU scaling: `1 + ilog2(min(cpus, 8))`.
    pub fn scaling(&self, nr_cpus: usize) -> u64 {
        1 + u64::from(nr_cpus.clamp(1, 8).ilog2())
    }
    /// Length of a tick in ns.
    pub fn tick_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }
}
