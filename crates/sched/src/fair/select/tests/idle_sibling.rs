//! An idle CPU near the target. The waker is on prev, so prev is the target, unless said otherwise.

use super::*;
use crate::sample::{v5_5, v5_7};

#[test]
fn target_idle() {
    check("this=0 prev=1 idle=1", 1, "target idle");
    check("this=1 prev=1 sched_idle=1", 1, "target idle");
    // The target is not tested for affinity.
    check("this=0 prev=1 idle=1 allowed=2", 1, "target idle");
}

#[test]
fn prev_idle() {
    // SYNC makes the waker's CPU the target; it is busy.
    check("this=0 prev=1 sync idle=1,2", 1, "prev idle");
    check("this=0 prev=1 sync sched_idle=1 idle=2", 1, "prev idle");
    // Prev in another cache does not count.
    check("llcs=2 this=0 prev=5 sync idle=2,5", 2, "idle CPU in scan");
}

#[test]
pub(crate) fn kthread_stacking() {
    check("this=1 prev=1 kthread idle=2", 1, "stacked on per-CPU kthread");
    check("this=1 prev=1 kthread idle=2 nr=1:2", 2, "idle CPU in scan");
    check("this=1 prev=1 kthread irq idle=2", 2, "idle CPU in scan");
    check("this=0 prev=1 kthread idle=2 load=1:0", 2, "idle CPU in scan");
    // 5.7 did not ask whether an interrupt wakes, 5.5 had no such rule.
    check_in(&v5_7(), "this=1 prev=1 kthread irq idle=2", 1, "stacked on per-CPU kthread");
    check_in(&v5_5(), "this=1 prev=1 kthread idle=2", 2, "idle CPU in scan");
}

#[test]
fn stacking_comes_after_idle_target() {
    check("this=1 prev=1 kthread idle=1", 1, "target idle");
}

#[test]
fn recent_used_cpu() {
    check("this=1 prev=1 recent=3 idle=2,3", 3, "recent_used_cpu idle");
    check("this=1 prev=1 recent=3 idle=2", 2, "idle CPU in scan");
    check("this=1 prev=1 recent=3 idle=2,3 allowed=0-2", 2, "idle CPU in scan");
    check("llcs=2 this=1 prev=1 recent=5 idle=2,5", 2, "idle CPU in scan");
    let recorded = |f: &str| run(&v6_1(), f).d.effects.recent_used_cpu;
    assert_eq!(recorded("this=1 prev=1 recent=3 idle=2"), Some(Cpu(1)));
    assert_eq!(recorded("this=1 prev=1 recent=3 idle=1"), None);
    assert_eq!(recorded("this=1 prev=1 recent=3 kthread"), None);
}

#[test]
fn no_cache_domain() {
    check("cores=1 llcs=4 this=1 prev=1 idle=2", 1, "target (no cache domain)");
}

#[test]
pub(crate) fn sibling_of_prev_before_the_scan() {
    // Cores {0,1} {2,3} {4,5} {6,7}.
    check("smt=2 this=2 prev=2 idle=3,4", 3, "idle SMT sibling of prev");
    check("smt=2 this=2 prev=2 idle=0,4", 4, "idle CPU in scan");
    check("smt=2 this=2 prev=2 sched_idle=3 idle=4", 3, "idle SMT sibling of prev");
    check("smt=2 this=2 prev=2 idle=3,4 allowed=2,4-7", 4, "idle CPU in scan");
    // Also when prev is not the target …
    check("smt=2 this=0 prev=2 sync idle=3", 3, "idle SMT sibling of prev");
    // … but not from another cache, and not while an idle core may exist.
    check("smt=2 llcs=2 this=0 prev=8 sync idle=9,4", 4, "idle CPU in scan");
    check("smt=2 this=2 prev=2 idle=3 idle_cores", 3, "idle CPU seen in core search");
}

#[test]
fn idle_core() {
    check("smt=2 this=2 prev=2 idle=3,4,6,7 idle_cores", 6, "idle core");
    // The first allowed thread of the core in the order of the scan, which starts at 3.
    check("smt=2 this=2 prev=2 idle=0,1 idle_cores", 0, "idle core");
    check("smt=2 this=2 prev=2 idle=0,1 idle_cores allowed=1-7", 1, "idle core");
    // No limit while the flag is set, except zero.
    check("smt=2 this=2 prev=2 idle=0,1 idle_cores scan=1", 0, "idle core");
    check("smt=2 this=2 prev=2 idle=0,1 idle_cores scan=0", 2, "target (no scan)");
}

#[test]
fn a_failed_core_search_clears_the_flag() {
    let clear = |f: &str| run(&v6_12(), f).d.effects.clear_idle_cores;
    assert_eq!(clear("smt=2 this=2 prev=2 idle=5,7 idle_cores"), Some(Cpu(2)));
    assert_eq!(clear("smt=2 this=2 prev=2 idle=6,7 idle_cores"), None);
    assert_eq!(clear("smt=2 this=2 prev=2 idle_cores"), Some(Cpu(2)));
    // The first idle thread passed: 5 before 7.
    check("smt=2 this=2 prev=2 idle=5,7 idle_cores", 5, "idle CPU seen in core search");
    // A thread with only SCHED_IDLE tasks counts while nothing is remembered.
    let f = "smt=2 this=2 prev=2 sched_idle=4 idle=5,7 idle_cores";
    check(f, 4, "idle CPU seen in core search");
    let f = "smt=2 this=2 prev=2 idle_cores";
    check(f, 2, "target (nothing idle)");
}

#[test]
fn the_scan_goes_round_from_the_next_cpu() {
    check("this=1 prev=1 idle=0,3", 3, "idle CPU in scan");
    check("this=3 prev=3 idle=0,2", 0, "idle CPU in scan");
    check("this=1 prev=1 idle=0", 0, "idle CPU in scan");
    check("this=1 prev=1 sched_idle=0", 0, "idle CPU in scan");
    check("this=1 prev=1", 1, "target (nothing idle)");
    check("this=1 prev=1 idle=0,2,3 allowed=1", 1, "target (nothing idle)");
}

#[test]
fn the_scan_ends_at_its_limit() {
    // From 1: 2, 3, 0. Three examined with limit 3, two with limit 2.
    check("this=1 prev=1 idle=0 scan=3", 0, "idle CPU in scan");
    check("this=1 prev=1 idle=0 scan=2", 1, "target (scan limit)");
    check("this=1 prev=1 idle=2 scan=0", 1, "target (no scan)");
    // CPUs that are not allowed do not count.
    check("this=1 prev=1 idle=0 scan=2 allowed=0,1,3", 0, "idle CPU in scan");
    let k = Release { sis_util: false, ..v6_1() };
    check_in(&k, "this=1 prev=1 idle=0 scan=0", 0, "idle CPU in scan");
    assert_eq!(run(&v6_1(), "this=1 prev=1 idle=0 scan=2").d.effects.nr_scanned, 2);
}

#[test]
fn the_cluster_comes_first_from_6_7_on() {
    // Clusters {0,1,2,3} {4,5,6,7}.
    let f = "cores=8 l2=4 this=2 prev=2 idle=1,4";
    check_in(&v6_1(), f, 4, "idle CPU in scan");
    check_in(&v6_12(), f, 1, "idle CPU in cluster");
    check_in(&v6_12(), "cores=8 l2=4 this=2 prev=2 idle=4", 4, "idle CPU in scan");
    // The limit counts over both: 3, 0, 1, 2 (the target too), then 4.
    check_in(&v6_12(), "cores=8 l2=4 this=2 prev=2 idle=4 scan=5", 4, "idle CPU in scan");
    check_in(&v6_12(), "cores=8 l2=4 this=2 prev=2 idle=4 scan=4", 2, "target (scan limit)");
}

#[test]
fn an_idle_core_in_the_cluster() {
    // Cores of two threads, two cores an L2: clusters {0-3} {4-7}.
    let f = "cores=4 smt=2 l2=2 this=2 prev=2 idle=0,1,4,5 idle_cores";
    check_in(&v6_12(), f, 0, "idle core in cluster");
    check_in(&v6_1(), f, 4, "idle core");
    // None in the cluster: the rest is searched, the idle thread passed is remembered.
    let f = "cores=4 smt=2 l2=2 this=2 prev=2 idle=1,4,5 idle_cores";
    check_in(&v6_12(), f, 4, "idle core");
    let f = "cores=4 smt=2 l2=2 this=2 prev=2 idle=1,5 idle_cores";
    check_in(&v6_12(), f, 1, "idle CPU seen in core search");
}

#[test]
fn hits_in_another_cluster_wait_for_the_scan() {
    // SYNC: target 0; prev 5 and recent 6 are in the other cluster.
    let f = "cores=8 l2=4 this=0 prev=5 recent=6 sync idle=5,6 scan=3";
    check_in(&v6_1(), f, 5, "prev idle");
    check_in(&v6_12(), f, 5, "prev idle, other cluster");
    let f = "cores=8 l2=4 this=0 prev=5 recent=6 sync idle=6 scan=3";
    check_in(&v6_1(), f, 6, "recent_used_cpu idle");
    check_in(&v6_12(), f, 6, "recent_used_cpu idle, other cluster");
    let f = "cores=8 l2=4 this=0 prev=5 recent=6 sync idle=2,5,6 scan=3";
    check_in(&v6_12(), f, 2, "idle CPU in cluster");
    let f = "cores=8 l2=4 this=0 prev=2 recent=6 sync idle=2,6";
    check_in(&v6_12(), f, 2, "prev idle");
}

#[test]
fn power_small_cores_scan_their_four_cpus() {
    // LLC = SMT level is covered by "smt" without further cores.
    check("cores=1 llcs=2 smt=4 this=1 prev=1 idle=2,4", 2, "idle SMT sibling of prev");
    check("cores=1 llcs=2 smt=4 this=1 prev=1 idle=4", 1, "target (nothing idle)");
}

#[test]
fn each_rule_can_be_disabled() {
    use crate::fair::select::idle_sibling as rule;
    let cases: [(&Cause, &str, u16, &str); 9] = [
        (&rule::TARGET_IDLE, "this=1 prev=1 idle=1,2", 2, "idle CPU in scan"),
        (&rule::PREV_IDLE, "this=0 prev=1 sync idle=1,3", 1, "idle CPU in scan"),
        (&rule::KTHREAD_STACKING, "this=1 prev=1 kthread idle=2", 2, "idle CPU in scan"),
        (&rule::RECENT_IDLE, "this=1 prev=1 recent=3 idle=2,3", 2, "idle CPU in scan"),
        (&rule::IDLE_SIBLING, "smt=2 this=2 prev=2 idle=3,4", 3, "idle CPU in scan"),
        (&rule::IDLE_CPU, "this=1 prev=1 idle=2", 1, "target (nothing idle)"),
        (
            &rule::IDLE_CORE,
            "smt=2 this=2 prev=2 idle=4,5 idle_cores",
            4,
            "idle CPU seen in core search",
        ),
        (
            &rule::CORE_SEARCH_CPU,
            "smt=2 this=2 prev=2 idle=5 idle_cores",
            2,
            "target (nothing idle)",
        ),
        (&rule::CLUSTER_CPU, "cores=8 l2=4 this=2 prev=2 idle=1,4", 4, "idle CPU in scan"),
    ];
    for (disabled, fixture, cpu, rule) in cases {
        let k = Release { disabled_rules: vec![disabled.id], ..v6_12() };
        check_in(&k, fixture, cpu, rule);
        assert_ne!(run(&v6_12(), fixture).d.rule.name, rule, "{fixture}: disabling shows nothing");
    }
}

#[test]
fn rule_names_are_unique() {
    let mut ids: Vec<u32> = rule_ids();
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n);
}

fn rule_ids() -> Vec<u32> {
    crate::fair::select::idle_sibling::RULES.iter().map(|r| r.id).collect()
}

#[test]
fn reads_in_the_kernels_order() {
    let o = run(&v6_1(), "smt=2 this=2 prev=2 recent=6 idle=0");
    assert_eq!(
        o.reads,
        [
            "idle 2",
            "idle 6",
            "idle_cores 2",
            "idle 3",
            "scan 2",
            "idle 3",
            "idle 4",
            "idle 5",
            "idle 6",
            "idle 7",
            "idle 0"
        ]
    );
}

/// The limit is below 1024: prev 2 stays although it is busy and 3 is idle, unless it has a whole
/// task's load or is forbidden.
#[test]
fn migration_limit() {
    let mut k = v6_1();
    check_in(&k, "this=0 prev=2 idle=3 moved", 3, "idle CPU in scan");
    k.migration_window_ns = 1_000_000;
    check_in(&k, "this=0 prev=2 idle=3", 3, "idle CPU in scan");
    check_in(&k, "this=0 prev=2 idle=3 moved load=2:1023", 2, "migration limit: prev");
    check_in(&k, "this=0 prev=2 idle=3 moved load=2:1024", 3, "idle CPU in scan");
    check_in(&k, "this=0 prev=2 idle=3 moved allowed=0-1,3", 3, "idle CPU in scan");
}
