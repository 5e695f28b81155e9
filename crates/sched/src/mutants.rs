//! Mutants: which decision test of this crate notices if a switch is the other way round?
//!
//! Each line is a switch and a test that fails without it. Releases on the board of
//! [`crate::sample`] are changed while the test runs; `crates/vruntime/tests/mutants.rs` reads the
//! names here and looks for the other switches in recordings and scenarios.

use crate::balance::stats::tests as stats;
use crate::balance::tests::{find, passes};
use crate::fair::tests::{eevdf, groups, vprot};
use crate::release::{GroupReweight, KthreadStacking, NumaImbalance, Release, SliceProtection};
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
    balance_counts_delayed => find::delayed_tasks_count_where_the_release_counts_them;
    balance_prefers_idle_core => passes::a_whole_idle_core_goes_first_from_6_6_on;
    busy_factor = 32 => passes::a_busy_cpu_balances_late_and_only_as_the_first_of_its_group;
    cache_hot_buddy => passes::detach::buddies_are_hot_for_a_busy_puller;
    detach_first_wants_eligible => passes::detach::a_first_pass_leaves_ineligible_tasks;
    detach_skips_delayed => passes::detach::tasks_in_delayed_dequeue_are_passed_over;
    fully_busy_tie_takes_later => find::fully_busy_ties;
    group_min_slice => eevdf::a_group_has_the_shortest_slice_below_it;
    group_reweight = GroupReweight::Always => groups::an_empty_queue_reads_the_sum;
    group_reweight = GroupReweight::IfChanged => groups::an_empty_queue_reads_the_sum;
    group_reweight = GroupReweight::IfLoadedAndChanged => groups::an_empty_queue_reads_the_sum;
    imbalance_pct = 125 => find::two_overloaded_groups_are_compared_by_load;
    keep_percpu_kthreads => passes::detach::per_cpu_kthreads_stay;
    kthread_stacking = KthreadStacking::Absent =>
        crate::fair::select::tests::idle_sibling::kthread_stacking;
    loop_max_spares_pinned => passes::detach::pinned_tasks_use_up_the_scan;
    migrate_util_shifted => passes::detach::failures_shrink_the_utilisation_that_must_fit;
    new_task_util_scaled => groups::a_new_task_is_expected_to_use_half_of_what_is_left;
    newidle_failure_costs_more => passes::a_failure_costs_half_as_much_again_in_6_18;
    newidle_stops_on_refusal => passes::newidle_looks_further_unless_refused;
    numa_imbalance = NumaImbalance::None => find::numa_nodes_leave_a_pair_alone;
    pick_buddy => eevdf::an_eligible_next_buddy_comes_first;
    reweight_clamps_lag => eevdf::reweight_clamps_what_is_owed;
    reweight_places_again => vprot::the_running_entity_is_weighed_twice;
    sibling_imbalance_by_cores => find::a_busy_cpu_spreads_too_up_to_6_5;
    slice_protection = SliceProtection::Deadline => vprot::the_tick_ends_what_is_unprotected;
    tg_load_avg_ratelimit => groups::the_ratelimit_limits_writes_not_reads;
    util_boosted_by_runnable => find::runnable_time_boosts_the_choice_of_the_queue_from_6_5_on;
    util_est => stats::utilisation_of_a_cpu;
    util_est_single => groups::the_estimate_of_a_task_that_had_to_wait;
}

#[test]
fn each_is_noticed() {
    for (name, change, test) in MUTANTS {
        test();
        MUTATION.set(Some(*change));
        let noticed = catch_unwind(test).is_err();
        MUTATION.set(None);
        assert!(noticed, "no test failed with the switch changed: {name}");
    }
}
