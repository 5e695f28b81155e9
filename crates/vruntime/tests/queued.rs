//! Decisions: does a waker take the remote queue's lock, or does it leave the wakee on a list?
//!
//! `1x4x2` has one cache with the cores {0,4} {1,5} {2,6} {3,7}; `2x4x1` two caches, 0-3 and 4-7.
//! A busy CPU runs a hog; the waker is B.

mod scenario;

use scenario::Scenario;
use vruntime::base::EventKind;

/// Asserts how many wakeups were queued.
#[track_caller]
fn check(kernel: &str, text: &str, queued: u64) {
    let text = text.replace("KERNEL", kernel);
    let r = Scenario::parse(&text).record();
    assert_eq!(r.counters.wakeups_queued, queued, "{kernel}: {:?}", r.placements);
}

/// A, on CPU 2, is woken by B, on CPU 0, while H keeps CPU 2 busy. Timers wake their own CPU's
/// tasks, so that is the only wakeup that can be queued.
const BUSY: &str = "1x4x2 KERNEL, 12 ms
    A on 2: wait 0, run 1ms
    H on 2: run 20ms
    B on 0: until 6ms, wake 0, run 1ms";

#[test]
fn a_busy_cpu_of_the_same_cache_is_locked() {
    check("v6.1", BUSY, 0);
    check("v6.1+ttwu_queue=8", BUSY, 0);
    check("v6.1+ttwu_queue=none", BUSY, 0);
}

/// Half the cache: {0,2,4,6} and {1,3,5,7}. A quarter of it is a core.
#[test]
fn a_busy_cpu_of_another_group_gets_a_list() {
    check("v6.1+ttwu_queue=l2", BUSY, 1);
    check("v6.1+ttwu_queue=4", BUSY, 0);
    check("v6.1+ttwu_queue=mod2", BUSY, 0);
    check("v6.1+ttwu_queue=2", BUSY, 1);
    check("v6.1+ttwu_queue=mod4", BUSY, 1);
    check("v6.1+ttwu_queue=all", BUSY, 1);
}

/// The same with nothing else on A's CPU: since 6.0 that CPU enqueues for itself.
#[test]
fn an_idle_cpu_gets_a_list_since_6_0() {
    let text = BUSY.replace("H on 2", "H on 3");
    check("v6.1", &text, 1);
    check("v6.1+ttwu_queue_within=on-cpu", &text, 0);
    check("v6.1+ttwu_queue_within=never", &text, 0);
    check("v6.1+ttwu_queue_within=never,ttwu_queue=all", &text, 1);
    check("v6.1+ttwu_queue=none", &text, 0);
}

/// Another cache: a list in every release that has lists.
#[test]
fn a_cpu_of_another_cache_gets_a_list() {
    let text = BUSY.replace("1x4x2", "2x4x1").replace("on 2", "on 5");
    check("v6.1", &text, 1);
    check("v6.1+ttwu_queue_within=never", &text, 1);
    check("v6.1+ttwu_queue=mod4", &text, 1);
    check("v6.1+ttwu_queue=mod5", &text, 0);
    check("v6.1+ttwu_queue=none", &text, 0);
}

/// As in schedstat's `ttwu_local`, the waker counts: B's timer wakes it on its own CPU, A is woken
/// on another one, whether or not that takes A from its list itself.
#[test]
fn a_wakeup_is_local_on_the_wakers_own_cpu() {
    for kernel in ["v6.1", "v6.1+ttwu_queue=all"] {
        let r = Scenario::parse(&BUSY.replace("KERNEL", kernel)).record();
        assert_eq!((r.counters.wakeups, r.counters.wakeups_local), (2, 1), "{kernel}");
    }
}

/// A is woken from CPU 0 and D half a microsecond later from CPU 1; the interrupt to CPU 5 takes
/// longer than both need to put them on its list.
#[test]
fn the_list_was_newest_first_before_5_8() {
    let order = |kernel: &str| {
        let text = format!(
            "2x4x1 {kernel}, 12 ms
            A on 5: wait 0, run 1ms
            D on 5: wait 1, run 1ms
            H on 5: run 20ms
            B on 0: until 6ms, wake 0
            C on 1: until 6000500ns, wake 1"
        );
        let r = Scenario::parse(&text).record();
        assert_eq!(r.counters.wakeups_queued, 2);
        let woken = r.timeline.iter().filter(|e| e.kind == EventKind::Wakeup && e.cpu.0 == 5);
        woken.map(|e| e.task.0).collect::<Vec<_>>()
    };
    // Idle tasks and stoppers of eight CPUs come first.
    let (a, d) = (16, 17);
    assert_eq!(order("v6.1"), [a, d]);
    assert_eq!(order("v6.1+ttwu_list_order=lifo"), [d, a]);
}
