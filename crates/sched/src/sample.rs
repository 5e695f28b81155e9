//! Releases and machines that tests of this crate share.

use crate::cx::{Shared, WakeStats};
use crate::domains::Domains;
use crate::release::*;
use crate::task::{Affinities, Rq, RqLoad, Task, TaskState};
use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use std::cell::Cell;
use vruntime_base::{Cpu, CpuMask, Ledger, Noise, Ns};
use vruntime_machine::{
    Arch, Caches, Cost, CostSpec, IdleSpec, Machine, MachineSpec, Numbering, RECLAIM_DISTANCE,
    Regular, SCHEMA, Topology, TopologySpec,
};

thread_local! {
    /// What a test of mutants changes in every release of this module.
    pub static MUTATION: Cell<Option<fn(&mut Release)>> = const { Cell::new(None) };
}

fn mutated(mut k: Release) -> Release {
    if let Some(change) = MUTATION.get() {
        change(&mut k);
    }
    k
}

/// 6.1.192 as Debian builds it.
pub fn v6_1() -> Release {
    mutated(facts_6_1())
}

/// 5.5-rc5 as Debian builds it.
pub fn v5_5() -> Release {
    mutated(facts_5_5())
}

/// 5.7.14 as Debian builds it.
pub fn v5_7() -> Release {
    mutated(facts_5_7())
}

/// 6.12.117 as Debian builds it.
pub fn v6_12() -> Release {
    mutated(facts_6_12())
}

/// 6.18.2 as Debian builds it.
pub fn v6_18() -> Release {
    mutated(facts_6_18())
}

/// 6.18.44.
pub fn v6_18_44() -> Release {
    mutated(facts_6_18_44())
}

fn facts_6_1() -> Release {
    Release {
        name: "v6.1".into(),
        version: "6.1.192".into(),
        description: String::new(),
        scheduler: "linux".into(),
        hz: 250,
        schedstat_version: 15,
        preempt: Preempt::None,
        fair: FairKind::Cfs,
        gentle_fair_sleepers: true,
        start_debit: true,
        last_buddy: true,
        next_buddy: false,
        pick_buddy: false,
        cache_hot_buddy: true,
        wakeup_preemption: true,
        alt_period: true,
        idle_sleeper_granularity: true,
        base_slice: true,
        tick_slice_capped: false,
        place_lag: false,
        place_deadline_initial: false,
        place_rel_deadline: false,
        run_to_parity: false,
        slice_protection: SliceProtection::Deadline,
        wakeup_shortens_protection: false,
        wakeup_ends_delay: false,
        wakeup_spares_for_new: false,
        preempt_short: false,
        idle_test_at_common_level: false,
        delay_dequeue: false,
        delay_zero: false,
        fork_places_twice: false,
        lag_limit: LagLimit::OwnSlice,
        reweight_clamps_lag: false,
        reweight_places_again: false,
        yield_forfeits: false,
        zero_vruntime: false,
        group_min_slice: false,
        ttwu_queue: TtwuQueue::Llc,
        ttwu_queue_within: TtwuQueueWithin::NothingRunning,
        ttwu_list_order: TtwuListOrder::Fifo,
        ttwu_pending_clear: TtwuPendingClear::BeforeEnqueue,
        ttwu_pending: TtwuPendingSeen::IdleTests,
        ttwu_on_cpu_handover: true,
        ttwu_runnable_full: true,
        ttwu_runnable_skip_curr: false,
        sis_prop: false,
        sis_util: true,
        wa_idle: true,
        wa_weight: true,
        wa_bias: true,
        wa_idle_prev: true,
        wa_sync_minus_delayed: false,
        kthread_stacking: KthreadStacking::InTask,
        idle_search: IdleSearch::SiblingFirst,
        sched_idle_last: false,
        scan_counts_forbidden: false,
        recent_used_on_hit: false,
        cluster_scan: false,
        idlest_group_allowed_only: true,
        util_est: true,
        util_est_single: false,
        util_boosted_by_runnable: false,
        ni_random: true,
        newidle_sees_wakeups: true,
        newidle_fixed_guard: false,
        busy_interval_less_one: true,
        busy_factor: 16,
        imbalance_pct: 117,
        numa_imbalance: NumaImbalance::ImbNumaNr,
        overloaded_by_runnable: true,
        spare_tie_by_tasks: true,
        util_imbalance_in_llc: false,
        local_load_checks: LocalLoadChecks::BusiestAndAverage,
        util_queue_of_two: true,
        migrate_load_halved: false,
        threads_never_hot: true,
        active_balance_any_type: false,
        active_balance_backs_off: false,
        balance_prefers_idle_core: false,
        smt_balance: false,
        config_preemption: true,
        loop_max_spares_pinned: false,
        migrate_util_shifted: true,
        sibling_imbalance_by_cores: false,
        fully_busy_tie_takes_later: false,
        newidle_stops_on_refusal: false,
        keep_percpu_kthreads: true,
        detach_skips_delayed: false,
        detach_first_wants_eligible: false,
        newidle_failure_costs_more: false,
        balance_counts_delayed: true,
        tg_load_avg_ratelimit: false,
        group_reweight: GroupReweight::Always,
        new_task_util_scaled: false,
        idle_shortcut: false,
        lazy_tlb_shootdown: false,
        fget_exchanges: true,
        pipe_wakes_on_freed_slot: false,
        base_slice_ns: 750_000,
        latency_ns: 6_000_000,
        min_granularity_ns: 750_000,
        idle_min_granularity_ns: 750_000,
        wakeup_granularity_ns: 1_000_000,
        migration_cost_ns: 500_000,
        migration_window_ns: 0,
        migration_quota: 1,
        migration_prev_load: 1024,
        nr_migrate: 32,
        timer_slack_ns: 50_000,
        autogroup: false,
        disabled_rules: Vec::new(),
    }
}

fn facts_5_7() -> Release {
    Release {
        name: "v5.7".into(),
        version: "5.7.14".into(),
        alt_period: false,
        idle_sleeper_granularity: false,
        base_slice: false,
        ttwu_queue_within: TtwuQueueWithin::Never,
        ttwu_list_order: TtwuListOrder::Lifo,
        ttwu_on_cpu_handover: false,
        sis_prop: true,
        sis_util: false,
        wa_idle_prev: false,
        kthread_stacking: KthreadStacking::Always,
        idle_search: IdleSearch::CoreCpuSibling,
        recent_used_on_hit: true,
        idlest_group_allowed_only: false,
        ni_random: false,
        newidle_sees_wakeups: false,
        newidle_fixed_guard: true,
        busy_interval_less_one: false,
        busy_factor: 32,
        imbalance_pct: 125,
        numa_imbalance: NumaImbalance::Pair,
        util_imbalance_in_llc: true,
        local_load_checks: LocalLoadChecks::Busiest,
        migrate_load_halved: true,
        threads_never_hot: false,
        active_balance_any_type: true,
        active_balance_backs_off: true,
        config_preemption: false,
        migrate_util_shifted: false,
        keep_percpu_kthreads: false,
        ..facts_6_1()
    }
}

fn facts_5_5() -> Release {
    Release {
        name: "v5.5".into(),
        version: "5.5-rc5".into(),
        kthread_stacking: KthreadStacking::Absent,
        sched_idle_last: true,
        scan_counts_forbidden: true,
        numa_imbalance: NumaImbalance::None,
        overloaded_by_runnable: false,
        spare_tie_by_tasks: false,
        local_load_checks: LocalLoadChecks::None,
        util_queue_of_two: false,
        ..facts_5_7()
    }
}

fn facts_6_12() -> Release {
    Release {
        name: "v6.12".into(),
        version: "6.12.117".into(),
        schedstat_version: 16,
        fair: FairKind::Eevdf,
        pick_buddy: true,
        place_lag: true,
        place_deadline_initial: true,
        place_rel_deadline: true,
        run_to_parity: true,
        preempt_short: true,
        idle_test_at_common_level: true,
        delay_dequeue: true,
        delay_zero: true,
        reweight_clamps_lag: true,
        yield_forfeits: true,
        zero_vruntime: true,
        group_min_slice: true,
        ttwu_pending_clear: TtwuPendingClear::AfterEnqueue,
        ttwu_runnable_full: false,
        ttwu_runnable_skip_curr: true,
        wa_sync_minus_delayed: true,
        cluster_scan: true,
        util_est_single: true,
        util_boosted_by_runnable: true,
        balance_prefers_idle_core: true,
        smt_balance: true,
        sibling_imbalance_by_cores: true,
        fully_busy_tie_takes_later: true,
        newidle_stops_on_refusal: true,
        tg_load_avg_ratelimit: true,
        group_reweight: GroupReweight::IfLoadedAndChanged,
        idle_shortcut: true,
        lazy_tlb_shootdown: true,
        base_slice_ns: 700_000,
        ..facts_6_1()
    }
}

fn facts_6_18() -> Release {
    Release {
        name: "v6.18".into(),
        version: "6.18.2".into(),
        schedstat_version: 17,
        slice_protection: SliceProtection::Vprot,
        reweight_places_again: true,
        zero_vruntime: false,
        idlest_group_allowed_only: false,
        ni_random: false,
        detach_skips_delayed: true,
        detach_first_wants_eligible: true,
        newidle_failure_costs_more: true,
        balance_counts_delayed: false,
        new_task_util_scaled: true,
        pipe_wakes_on_freed_slot: true,
        fget_exchanges: false,
        ..facts_6_12()
    }
}

fn facts_6_18_44() -> Release {
    Release {
        name: "v6.18.44".into(),
        version: "6.18.44".into(),
        wakeup_shortens_protection: true,
        wakeup_ends_delay: true,
        wakeup_spares_for_new: true,
        lag_limit: LagLimit::LongestSlice,
        zero_vruntime: true,
        ni_random: true,
        newidle_failure_costs_more: false,
        ..facts_6_18()
    }
}

/// A machine of equal sockets with one node each: `sockets × cores`, `smt` threads a core,
/// `cores_per_llc`.
pub fn regular(arch: Arch, sockets: u32, cores: u32, smt: u32, cores_per_llc: u32) -> Topology {
    let distance = |a, b| if a == b { 10 } else { 21 };
    TopologySpec::Regular(Regular {
        sockets,
        nodes_per_socket: 1,
        cores_per_node: cores,
        threads_per_core: smt,
        cores_per_l2: 1,
        cores_per_llc,
        numbering: match arch {
            Arch::X86 => Numbering::SiblingsLast,
            Arch::Powerpc => Numbering::PowerSmt8,
        },
        node_distance: (0..sockets)
            .map(|a| (0..sockets).map(|b| distance(a, b)).collect())
            .collect(),
    })
    .build(arch)
    .expect("a valid machine")
}

/// A sleeping nice-0 task that never did anything.
pub fn task() -> Task {
    let state = TaskState::Interruptible;
    Task { state, nr_cpus_allowed: u16::MAX, ..Task::new(Cpu(0), 1) }
}

/// A machine on which every cost is `ns`, and a thread of a core with busy siblings keeps its
/// speed.
pub fn machine(topology: TopologySpec, arch: Arch, ns: u32) -> Machine {
    let cost = |v| Cost { low: v, mid: v, high: v, source: "test".into() };
    let spec = MachineSpec {
        schema: SCHEMA.into(),
        name: "test".into(),
        description: String::new(),
        arch,
        page_kib: 4,
        mhz: 1000,
        path_permille: cost(1000),
        caches: Caches { l1_kib: 32, l2_kib: 512, llc_mib: 32 },
        smt_speed: vec![cost(1024); 8],
        idle: vec![IdleSpec {
            name: "POLL".into(),
            table_latency_ns: 0,
            target_residency_ns: 0,
            polling: true,
            exit_latency: cost(0),
        }],
        topology,
        node_reclaim_distance: RECLAIM_DISTANCE,
        costs: CostSpec::deserialize(Every(ns)).expect("all costs alike"),
        sources: Vec::new(),
    };
    Machine::new(&spec).expect("a valid machine")
}

/// Deserialises into a structure whose numbers are all alike.
#[derive(Clone, Copy)]
struct Every(u32);

impl<'de> Deserializer<'de> for Every {
    type Error = de::value::Error;
    fn deserialize_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Self::Error> {
        v.visit_u32(self.0)
    }
    fn deserialize_string<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Self::Error> {
        v.visit_str("test")
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Self::Error> {
        v.visit_map(MapDeserializer::new(fields.iter().map(|f| (*f, self))))
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for Every {
    type Deserializer = Every;
    fn into_deserializer(self) -> Every {
        self
    }
}

/// The run queue of an idle CPU.
pub fn rq(c: Cpu) -> Rq {
    Rq { avg_idle: Ns::from_ms(1), max_idle_balance_cost: Ns(500_000), ..Rq::idle(c) }
}

/// The shared state of an idle machine.
pub fn shared(topo: &Topology, k: Release) -> Shared {
    let n = topo.nr_cpus();
    let domains = Domains::build(topo, &k);
    Shared {
        wakes: vec![WakeStats::default(); domains.nr_slots()],
        domains,
        release: k,
        tasks: (0..n).map(|c| Task { cpu: Cpu::from_ix(c), ..task() }).collect(),
        rqs: (0..n).map(|c| rq(Cpu::from_ix(c))).collect(),
        loads: vec![RqLoad::default(); n],
        affinities: Affinities::new(n),
        nohz_idle: CpuMask::EMPTY,
        ledger: Ledger::new(n),
        noise: Noise::new(1),
        accounted: None,
    }
}
