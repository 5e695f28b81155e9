//! Prev or the waker's CPU.

use super::*;
use crate::fair::select::affine as rule;

#[test]
fn waker_on_prev() {
    check_target("this=1 prev=1", 1, "waker on prev");
}

#[test]
fn wide_wakers_leave_the_wakee_where_it_was() {
    // Four CPUs a cache: both must have turned 4 times, the larger 4 times the smaller.
    check_target("this=0 prev=1 flips=16,4 sync", 1, "wake_wide");
    check_target("this=0 prev=1 flips=4,16 sync", 1, "wake_wide");
    check_target("this=0 prev=1 flips=15,4 sync", 0, "wake_affine: sync waker alone");
    check_target("this=0 prev=1 flips=100,3 sync", 0, "wake_affine: sync waker alone");
}

#[test]
fn the_wakers_cpu_must_be_allowed() {
    check_target("this=0 prev=1 sync allowed=1-3", 1, "waker's CPU not allowed");
}

#[test]
fn no_domain_with_wake_affine_in_reach() {
    // Distance 31 exceeds node_reclaim_distance.
    check_target("sockets=2 far=31 this=0 prev=5 sync", 5, "no affine domain");
    check_target("sockets=2 far=30 this=0 prev=5 sync", 0, "wake_affine: sync waker alone");
}

#[test]
fn an_interrupt_on_an_idle_cpu_pulls_inside_the_cache() {
    check_target("this=0 prev=1 idle=0", 0, "wake_affine: this idle");
    check_target("this=0 prev=1 idle=0,1", 1, "wake_affine: both idle");
    // Another cache: the idle CPU here does not count, the idle prev does.
    check_target("llcs=2 this=0 prev=5 idle=0,5", 5, "wake_affine: prev idle");
}

#[test]
fn a_sync_waker_that_is_alone_pulls() {
    check_target("this=0 prev=1 sync", 0, "wake_affine: sync waker alone");
    check_target("this=0 prev=1 sync idle=1", 0, "wake_affine: sync waker alone");
    check_target("this=0 prev=1 sync nr=0:2 load=0:9", 1, "wake_affine: undecided");
}

#[test]
fn delayed_tasks_do_not_count_in_the_sync_test_from_6_12_on() {
    let fixture = "this=0 prev=1 sync nr=0:2 delayed=0:1 load=0:9";
    check_target_in(&v6_1(), fixture, 1, "wake_affine: undecided");
    check_target_in(&v6_12(), fixture, 0, "wake_affine: sync waker alone");
}

#[test]
fn an_idle_prev_is_kept() {
    check_target("this=0 prev=1 idle=1 nr=0:2", 1, "wake_affine: prev idle");
    // Where the kernel does not have the test (before 5.10), loads decide: 0 < (0 − 0) is false.
    let k = Release { wa_idle_prev: false, ..v6_1() };
    check_target_in(&k, "this=0 prev=1 idle=1 nr=0:2", 1, "wake_affine: undecided");
}

#[test]
fn loads_decide_with_a_bias() {
    // Inside MC the bias is 100 + 17/2 = 108: (1000 + 100)·100 = 110000 against (x − 100)·108.
    let f = |prev_load: u64| format!("this=0 prev=1 wakee_load=100 load=0:1000,1:{prev_load}");
    // x = 1118: 1018·108 = 109944, not more. x = 1119: 1019·108 = 110052.
    check_target(&f(1118), 1, "wake_affine: undecided");
    check_target(&f(1119), 0, "wake_affine: less load here");
    // Without the bias 1100 < x − 100.
    let k = Release { wa_bias: false, ..v6_1() };
    check_target_in(&k, &f(1200), 1, "wake_affine: undecided");
    check_target_in(&k, &f(1201), 0, "wake_affine: less load here");
    // SMT siblings: 100 + 10/2 = 105.
    let smt = |x: u64| format!("smt=2 this=0 prev=1 wakee_load=100 load=0:1000,1:{x}");
    check_target(&smt(1147), 1, "wake_affine: undecided");
    check_target(&smt(1148), 0, "wake_affine: less load here");
}

#[test]
fn a_sync_waker_takes_its_load_away() {
    // 300 waker's load against 200 on its CPU: pull at once.
    let f = "this=0 prev=1 sync nr=0:2 waker_load=300 load=0:200";
    check_target(f, 0, "wake_affine: sync waker's load");
    // (200 − 200 + 0)·100 = 0 < 0·108 + 1: the tie goes to this CPU.
    let f = "this=0 prev=1 sync nr=0:2 waker_load=200 load=0:200";
    check_target(f, 0, "wake_affine: less load here");
    // prev_eff may be negative.
    let f = "this=0 prev=1 wakee_load=50 load=0:0,1:10";
    check_target(f, 1, "wake_affine: undecided");
}

#[test]
fn features_switch_the_steps_off() {
    let k = Release { wa_idle: false, ..v6_1() };
    check_target_in(&k, "this=0 prev=1 sync load=0:10", 1, "wake_affine: undecided");
    let k = Release { wa_weight: false, ..v6_1() };
    check_target_in(&k, "this=0 prev=1 load=1:9999", 1, "wake_affine: undecided");
}

#[test]
fn rules_can_be_disabled_one_by_one() {
    let without = |rule: &Cause| Release { disabled_rules: vec![rule.id], ..v6_12() };
    let k = without(&rule::SYNC_ALONE);
    check_target_in(&k, "this=0 prev=1 sync load=0:9", 1, "wake_affine: undecided");
    let k = without(&rule::THIS_IDLE);
    check_target_in(&k, "this=0 prev=1 idle=0 load=0:9", 1, "wake_affine: undecided");
    let k = without(&rule::BOTH_IDLE);
    check_target_in(&k, "this=0 prev=1 idle=0,1", 1, "wake_affine: prev idle");
    let k = without(&rule::PREV_IDLE);
    check_target_in(&k, "this=0 prev=1 idle=1 nr=0:2", 1, "wake_affine: undecided");
    let k = without(&rule::WEIGHT);
    check_target_in(&k, "this=0 prev=1 load=1:9999", 1, "wake_affine: undecided");
    let k = without(&rule::SYNC_LOAD);
    let f = "this=0 prev=1 sync nr=0:2 waker_load=300 load=0:200,1:0";
    check_target_in(&k, f, 0, "wake_affine: less load here");
    let k = without(&WIDE);
    check_target_in(&k, "this=0 prev=1 flips=16,4 sync", 0, "wake_affine: sync waker alone");
}

#[test]
fn flips_count_changes_of_the_wakee_and_decay() {
    let mut waker = crate::sample::task();
    record_wakee(&mut waker, TaskId(7), 100, 250);
    record_wakee(&mut waker, TaskId(7), 101, 250);
    assert_eq!(waker.wakee_flips, 1);
    for i in 0..9 {
        record_wakee(&mut waker, TaskId(8 + i % 2), 102, 250);
    }
    assert_eq!(waker.wakee_flips, 10);
    // Not later than a second after the last decay (at 0): nothing; later: halved once.
    record_wakee(&mut waker, TaskId(8), 250, 250);
    assert_eq!((waker.wakee_flips, waker.wakee_flip_decay_ts), (10, 0));
    record_wakee(&mut waker, TaskId(8), 9000, 250);
    assert_eq!((waker.wakee_flips, waker.wakee_flip_decay_ts), (5, 9000));
}

#[test]
fn nothing_is_read_before_it_is_needed() {
    let o = run(&v6_1(), "this=0 prev=1 idle=1 sync");
    assert_eq!(o.reads, ["idle 0", "nr 0", "idle 0", "idle 1"]);
    let o = run(&v6_1(), "this=0 prev=1 idle=1 nr=0:2");
    assert_eq!(o.reads, ["idle 0", "idle 1", "idle 1"]);
    let o = run(&v6_1(), "this=0 prev=1 nr=0:2 load=1:9");
    assert_eq!(o.reads[..4], ["idle 0", "idle 1", "load 0", "load 1"]);
}
