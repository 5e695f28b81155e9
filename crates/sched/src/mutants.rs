//! Mutants: which decision test of this crate notices if a switch is the other way round, or if a
//! rule is off?
//!
//! Each line is a switch or a rule and a test that fails without it. Releases on the board of
//! [`crate::sample`] are changed while the test runs; `crates/vruntime/tests/mutants.rs` reads the
//! names here and looks for the others in recordings and scenarios.

use crate::balance::stats::tests as stats;
use crate::balance::tests::{find, passes};
use crate::fair::select::tests::core_cpu_sibling;
use crate::fair::tests::{self, groups, longterm, vprot};
use crate::fair::{cfs, eevdf, idlest};
use crate::release::*;
use crate::sample::MUTATION;
use std::panic::catch_unwind;

macro_rules! change {
    ($k:ident, $switch:ident) => {
        $k.$switch = !$k.$switch
    };
    ($k:ident, $switch:ident, $value:expr) => {
        $k.$switch = $value
    };
}

macro_rules! mutants {
    ($($switch:ident $(= $value:expr)? => $test:path;)*) => {
        const MUTANTS: &[(&str, fn(&mut Release), fn())] =
            &[$((stringify!($switch $(= $value)?), |k| change!(k, $switch $(, $value)?), $test)),*];
    };
}

mutants! {
    active_balance_any_type => passes::early::active_balance_for_utilisation_and_its_pause;
    active_balance_backs_off => passes::early::active_balance_for_utilisation_and_its_pause;
    balance_counts_delayed => find::delayed_tasks_count_where_the_release_counts_them;
    balance_prefers_idle_core => passes::a_whole_idle_core_goes_first_from_6_6_on;
    blocked_updates_parent_sum => groups::the_sum_of_the_outer_group_follows_from_5_13_on;
    busy_factor = 16 => passes::early::a_busy_cpu_balances_at_twice_the_interval;
    busy_factor = 32 => passes::a_busy_cpu_balances_late_and_only_as_the_first_of_its_group;
    busy_interval_less_one => passes::early::a_busy_cpu_balances_at_twice_the_interval;
    cache_hot_buddy => passes::detach::buddies_are_hot_for_a_busy_puller;
    core_test_stops_early => core_cpu_sibling::a_busy_thread_ends_the_test_of_a_core_from_5_7_on;
    detach_first_wants_eligible => passes::detach::a_first_pass_leaves_ineligible_tasks;
    detach_skips_delayed => passes::detach::tasks_in_delayed_dequeue_are_passed_over;
    fully_busy_tie_takes_later => find::fully_busy_ties;
    group_min_slice => tests::eevdf::a_group_has_the_shortest_slice_below_it;
    group_reweight = GroupReweight::Always => groups::an_empty_queue_reads_the_sum;
    group_reweight = GroupReweight::IfChanged => groups::an_empty_queue_reads_the_sum;
    group_reweight = GroupReweight::IfLoadedAndChanged => groups::an_empty_queue_reads_the_sum;
    hot_gained_when_moved =>
        passes::detach::a_hot_task_is_gained_when_it_is_moved_from_6_15_on;
    idle_queue_gives => find::an_idle_queue_is_busiest_in_5_x;
    idlest_by_use_alone => idlest::tests::busy_groups_are_alike_in_5_5;
    idlest_tie_by_util => idlest::tests::of_groups_as_idle_the_one_less_used_from_5_9_on;
    idle_search = IdleSearch::CoreCpuSibling =>
        crate::fair::select::tests::idle_sibling::sibling_of_prev_before_the_scan;
    idle_search = IdleSearch::SiblingFirst => core_cpu_sibling::core_then_cpu_then_sibling;
    idle_sleeper_granularity => tests::cfs::a_sched_idle_sleeper_gets_less_credit_from_6_1_on;
    idle_test_at_common_level => tests::eevdf::rows_1_and_3_to_7;
    imbalance_pct = 117 => find::a_group_with_more_load_takes_none_from_5_7_on;
    imbalance_pct = 125 => find::two_overloaded_groups_are_compared_by_load;
    keep_percpu_kthreads => passes::detach::per_cpu_kthreads_stay;
    kthread_stacking = KthreadStacking::Always =>
        crate::fair::select::tests::idle_sibling::kthread_stacking;
    kthread_stacking = KthreadStacking::InTask =>
        crate::fair::select::tests::idle_sibling::kthread_stacking;
    kthread_stacking = KthreadStacking::Absent =>
        crate::fair::select::tests::idle_sibling::kthread_stacking;
    leaf_stays_while_contributing => groups::a_queue_that_is_still_counted_is_looked_after;
    pick_clears_buddies => tests::cfs::who_goes_on_after_a_yield_is_marked_from_5_14_on;
    repick_moves_first => groups::who_is_picked_once_more_goes_first_up_to_6_11;
    local_load_checks = LocalLoadChecks::None =>
        find::a_group_with_more_load_takes_none_from_5_7_on;
    local_load_checks = LocalLoadChecks::Busiest =>
        find::a_group_with_more_load_takes_none_from_5_7_on;
    local_load_checks = LocalLoadChecks::BusiestAndAverage =>
        find::a_group_with_more_load_takes_none_from_5_7_on;
    lag_limit = LagLimit::LongestSlice => longterm::the_longest_slice_bounds_a_lag;
    lag_limit = LagLimit::OwnSlice => longterm::the_longest_slice_bounds_a_lag;
    loop_max_spares_pinned => passes::detach::pinned_tasks_use_up_the_scan;
    migrate_load_halved => passes::early::half_a_tasks_load_must_fit;
    migrate_pelt_lag => groups::a_sleeper_that_leaves_an_idle_cpu_has_decayed;
    migrate_util_shifted => passes::detach::failures_shrink_the_utilisation_that_must_fit;
    moved_counts_as_long_sleep => tests::cfs::in_6_3_rc_a_move_makes_a_sleeper_of_who_ran_ahead;
    new_task_util_scaled => groups::a_new_task_is_expected_to_use_half_of_what_is_left;
    newidle_delays_decay => passes::early::newidle_lets_no_cost_decay_in_5_x;
    newidle_failure_costs_more => passes::a_failure_costs_half_as_much_again_in_6_18;
    migrate_load_at_least_one => passes::early::tasks_without_load_move_without_end_in_5_5;
    newidle_ages_tickless => passes::nohz::in_5_x_a_newidle_pass_ages_tickless_cpus;
    newidle_fixed_guard => passes::early::newidle_needs_half_a_millisecond;
    newidle_sees_wakeups => passes::early::newidle_does_not_see_queued_wakeups;
    newidle_stops_on_refusal => passes::newidle_looks_further_unless_refused;
    nohz_own_turn_apart => passes::nohz::in_5_x_the_kicked_cpu_comes_apart;
    nohz_kick = NohzKick::CallLostOnPolling =>
        passes::nohz::a_kick_of_a_polling_cpu_is_lost_before_2025;
    nohz_kick = NohzKick::Call => passes::nohz::a_kick_of_a_polling_cpu_is_lost_before_2025;
    numa_pass_is_exclusive =>
        passes::idle::newidle_passes_of_numa_levels_are_one_at_a_time_from_6_19_on;
    numa_imbalance = NumaImbalance::None => find::numa_nodes_leave_a_pair_alone;
    numa_imbalance = NumaImbalance::Pair => find::numa_nodes_leave_a_pair_alone;
    numa_imbalance = NumaImbalance::ImbNumaNr => find::numa_nodes_leave_a_pair_alone;
    overloaded_by_runnable => find::waiting_overloads_a_group_from_5_7_on;
    pick_buddy => tests::eevdf::an_eligible_next_buddy_comes_first;
    pinned_until_one_may_move => passes::early::who_cannot_be_pushed_is_pinned_in_5_x;
    protects_at_pick_only => longterm::a_change_of_the_running_task_ends_its_protection;
    recent_used_on_hit => core_cpu_sibling::recent_used_cpu_is_written_when_it_helped;
    reweight_clamps_lag => tests::eevdf::reweight_clamps_what_is_owed;
    reweight_places_again => vprot::the_running_entity_is_weighed_twice;
    sched_idle_balances_soon => groups::a_cpu_left_with_idle_tasks_balances_soon;
    rt_lowest_rotates => crate::rt::tests::in_5_x_the_lowest_number_is_taken;
    scan_counts_forbidden => core_cpu_sibling::forbidden_cpus_count_in_5_5;
    sched_idle_last => idlest::tests::a_sched_idle_cpu_comes_after_idle_ones_in_5_5;
    sibling_imbalance_by_cores => find::a_busy_cpu_spreads_too_up_to_6_5;
    setscheduler_always_changes => tests::eevdf::the_same_policy_is_a_change_from_6_12_on;
    sis_prop => core_cpu_sibling::the_scan_is_limited_by_what_it_is_worth;
    slice_protection = SliceProtection::Deadline => vprot::the_tick_ends_what_is_unprotected;
    spare_tie_by_tasks => find::spare_groups_by_tasks_from_5_7_on;
    tg_load_avg_ratelimit => groups::the_ratelimit_limits_writes_not_reads;
    threads_never_hot => passes::early::a_task_is_hot_on_its_core_too;
    util_est_first => groups::the_estimate_before_or_after_the_last_stretch;
    ttwu_stop_direct => crate::ttwu_queue::tests::since_6_12_a_stopper_is_never_queued;
    util_boosted_by_runnable => find::runnable_time_boosts_the_choice_of_the_queue_from_6_5_on;
    util_est => stats::utilisation_of_a_cpu;
    util_imbalance_in_llc => find::inside_the_cache_5_x_moves_utilisation;
    util_queue_of_two => find::utilisation_comes_from_a_queue_of_two_from_5_7_on;
    wakeup_ends_delay => longterm::who_is_in_delayed_dequeue_saves_nobody;
    wakeup_shortens_protection => longterm::any_short_slice_shortens_the_protection;
    wakeup_spares_for_new => longterm::a_new_task_preempts_nobody;
    util_est_single => groups::the_estimate_of_a_task_that_had_to_wait;
}

macro_rules! rules {
    ($($rule:path => $test:path;)*) => {
        const RULES: &[(&str, fn(&mut Release), fn())] = &[
            $((stringify!($rule), |k| k.disabled_rules.push($rule.id), $test)),*
        ];
    };
}

rules! {
    cfs::IDLE_GROUP => tests::cfs::rows_6_and_7_idle_groups;
    cfs::IDLE_WAKEE => tests::cfs::rows_6_and_7_idle_groups;
    eevdf::BUDDY => tests::eevdf::an_eligible_next_buddy_comes_first;
    eevdf::NEW => longterm::a_new_task_preempts_nobody;
    eevdf::QUANTUM_ENDED => vprot::the_tick_ends_what_is_unprotected;
    eevdf::SHORTER => tests::eevdf::a_shorter_slice_ends_the_protection;
    idlest::SCHED_IDLE => idlest::tests::a_sched_idle_cpu_is_taken_at_once;
}

#[test]
fn each_is_noticed() {
    for (name, change, test) in MUTANTS.iter().chain(RULES) {
        test();
        MUTATION.set(Some(*change));
        let noticed = catch_unwind(test).is_err();
        MUTATION.set(None);
        assert!(noticed, "no test failed without it: {name}");
    }
}
