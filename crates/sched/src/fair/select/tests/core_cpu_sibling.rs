//! An idle CPU near the target as 5.x searches for it. The waker is on prev, so prev is the target.

use super::*;
use crate::sample::{v5_5, v5_7};

fn check_5x(fixture: &str, cpu: u16, rule: &str) {
    check_in(&v5_5(), fixture, cpu, rule);
    check_in(&v5_7(), fixture, cpu, rule);
}

/// 4 · 976 / 1001 is not above 4: three CPUs are examined, 1 (the target itself), 2 and 3.
#[test]
pub(crate) fn the_scan_is_limited_by_what_it_is_worth() {
    check_5x("this=1 prev=1 idle=3 avg_idle=500000 cost=1000", 3, "idle CPU in scan");
    check_5x("this=1 prev=1 idle=0 avg_idle=500000 cost=1000", 1, "target (scan limit)");
    // 8 · 1953 / 3001 = 5: 1 to 4.
    check_5x("cores=8 this=1 prev=1 idle=4 cost=3000", 4, "idle CPU in scan");
    check_5x("cores=8 this=1 prev=1 idle=5 cost=3000", 1, "target (scan limit)");
    check_5x("this=1 prev=1 idle=0", 0, "idle CPU in scan");
    check_5x("this=1 prev=1", 1, "target (nothing idle)");
}

/// 2 is not allowed. It is one of the three in 5.5; 5.7 gets to 0.
#[test]
pub(crate) fn forbidden_cpus_count_in_5_5() {
    let f = "this=1 prev=1 idle=0 allowed=0,1,3 avg_idle=500000 cost=1000";
    check_in(&v5_5(), f, 1, "target (scan limit)");
    check_in(&v5_7(), f, 0, "idle CPU in scan");
}

/// Cores {0,1} {2,3} {4,5} {6,7}.
#[test]
pub(crate) fn core_then_cpu_then_sibling() {
    check_5x("smt=2 this=2 prev=2 idle=3,6,7 idle_cores", 6, "idle core");
    check_5x("smt=2 this=2 prev=2 idle=0,1 idle_cores allowed=1-7", 1, "idle core");
    // Without the flag, and where no core is whole, any CPU in order.
    check_5x("smt=2 this=2 prev=2 idle=3,6,7", 3, "idle CPU in scan");
    check_5x("smt=2 this=2 prev=2 idle=5,7 idle_cores", 5, "idle CPU in scan");
    let clear = |f: &str| run(&v5_7(), f).d.effects.clear_idle_cores;
    assert_eq!(clear("smt=2 this=2 prev=2 idle=5,7 idle_cores"), Some(Cpu(2)));
    assert_eq!(clear("smt=2 this=2 prev=2 idle=6,7 idle_cores"), None);
    // 8 · 976 / 2001 is not above 4: 3, 4, 5 and no further, but 2 is the target's sibling.
    let f = "smt=2 this=3 prev=3 idle=2 avg_idle=500000 cost=2000";
    check_5x(f, 2, "idle SMT sibling of target");
    check_in(&v6_1(), f, 2, "idle SMT sibling of prev");
}

/// Of four cores the first threads are busy: 5.7 looks at those, 5.5 at all eight. Then 2 to 5.
#[test]
pub(crate) fn a_busy_thread_ends_the_test_of_a_core_from_5_7_on() {
    for (k, looks) in [(v5_5(), 8 + 4), (v5_7(), 4 + 4)] {
        let d = run(&k, "smt=2 this=2 prev=2 idle=5,7 idle_cores").d;
        assert_eq!(d.effects.nr_scanned, looks, "{}", k.name);
    }
}

#[test]
pub(crate) fn sched_idle_cpus_are_second_choice_in_5_5() {
    let f = "this=1 prev=1 sched_idle=2 idle=3";
    check_in(&v5_5(), f, 3, "idle CPU in scan");
    check_in(&v5_7(), f, 2, "idle CPU in scan");
    // After a whole round what was met is forgotten, at the limit it is not.
    check_in(&v5_5(), "this=1 prev=1 sched_idle=2", 1, "target (nothing idle)");
    let f = "this=1 prev=1 sched_idle=2 avg_idle=500000 cost=1000";
    check_in(&v5_5(), f, 2, "SCHED_IDLE CPU in scan");
    check_in(&v5_5(), "smt=2 this=3 prev=3 sched_idle=2", 2, "idle SMT sibling of target");
}

#[test]
pub(crate) fn recent_used_cpu_is_written_when_it_helped() {
    let recent = |f: &str| run(&v5_7(), f).d.effects.recent_used_cpu;
    assert_eq!(recent("this=1 prev=1 recent=3 idle=2"), None);
    assert_eq!(recent("this=1 prev=1 recent=3 idle=3"), Some(Cpu(1)));
    // The waker's, after an affine wakeup.
    let waker = |f: &str| run(&v5_7(), f).d.effects.waker_recent_cpu;
    assert_eq!(waker("this=0 prev=1 idle=1"), Some(Cpu(0)));
    assert_eq!(waker("this=0 prev=1 idle=1 allowed=1-3"), None);
    assert_eq!(waker("this=0 prev=1 idle=1 flips=16,4"), None);
}
