//! Decisions: where does a task go, in situations small enough to check by hand?
//!
//! The numbers to check with: uma-2 has scaling factor 2, the `…x…x…` machines of eight CPUs have
//! 4; ticks come every 4 ms.

mod scenario;

use expect_test::expect;
use scenario::check;

/// The writer is alone on its CPU, so the target is its CPU; that is not idle, but prev is.
#[test]
fn a_sync_wakeup_goes_back_to_an_idle_prev() {
    check(
        "uma-2 v6.1, 8 ms
        A: read 0, run 1ms
        B on 1: until 4ms, write 0, run 2ms",
        expect![[r#"
                  0
            cpu 0 ....A...
            cpu 1 ....BB..
               1.0 ms  cpu 1: . -> B: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 1: B -> .: blocks: timer
               1.0 ms  cpu 0: A -> .: blocks: nothing to read
               4.0 ms  cpu 1: . -> B: idle: task woken
               4.1 ms  cpu 0: . -> A: idle: task woken
               5.1 ms  cpu 0: A -> .: exits
               6.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            placed 1 x prev idle
            placed 1 x slow path: local group idlest
        "#]],
    )
}

/// A futex wakeup is not sync: wake_affine finds prev idle and makes it the target.
#[test]
fn a_wakeup_goes_to_an_idle_prev() {
    check(
        "uma-2 v6.1, 8 ms
        A: wait 0, run 1ms
        B on 1: until 4ms, wake 0, run 2ms",
        expect![[r#"
                  0
            cpu 0 ....A...
            cpu 1 ....BB..
               1.0 ms  cpu 1: . -> B: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 1: B -> .: blocks: timer
               1.0 ms  cpu 0: A -> .: blocks: futex
               4.0 ms  cpu 1: . -> B: idle: task woken
               4.0 ms  cpu 0: . -> A: idle: task woken
               5.1 ms  cpu 0: A -> .: exits
               6.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            placed 1 x target idle
        "#]],
    )
}

/// The kernel is warm: the whole LLC may be scanned from the start, so A leaves the busy target
/// for the first idle CPU after it.
#[test]
fn a_warm_kernel_scans_from_the_start() {
    check(
        "1x8x1 v6.1, 20 ms
        A: run 1ms, sleep 2ms, run 1ms
        B on 0: until 2500us, run 20ms",
        expect![[r#"
                  0         10
            cpu 0 .A.BBBBBBBBBBBBBBBBB
            cpu 1 ....A...............
            cpu 2 ....................
            cpu 3 ....................
            cpu 4 ....................
            cpu 5 ....................
            cpu 6 ....................
            cpu 7 ....................
               1.1 ms  cpu 0: . -> A: idle: task woken
               2.1 ms  cpu 0: A -> B: blocks: timer
               2.1 ms  cpu 0: B -> .: blocks: timer
               2.6 ms  cpu 0: . -> B: idle: task woken
               4.1 ms  A moved 0 -> 1: idle CPU in scan
               4.1 ms  cpu 1: . -> A: idle: task woken
               5.1 ms  cpu 1: A -> .: exits
            placed 1 x idle CPU in scan
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x idle CPU in scan
        "#]],
    )
}

/// The target is busy, the scan begins behind it, CPU 1 is busy, too.
#[test]
fn a_wakeup_is_moved_to_an_idle_cpu() {
    check(
        "1x8x1 v6.1, 48 ms
        A: until 41ms, run 3ms
        B on 0: until 10ms, run 40ms
        C on 1: until 10ms, run 40ms",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 ..........BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
            cpu 1 ..........CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC
            cpu 2 .........................................AAA....
            cpu 3 ................................................
            cpu 4 ................................................
            cpu 5 ................................................
            cpu 6 ................................................
            cpu 7 ................................................
               1.1 ms  cpu 1: . -> C: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: C -> .: blocks: timer
               1.1 ms  cpu 0: A -> B: blocks: timer
               1.1 ms  cpu 0: B -> .: blocks: timer
              10.1 ms  cpu 0: . -> B: idle: task woken
              10.1 ms  cpu 1: . -> C: idle: task woken
              41.0 ms  A moved 0 -> 2: idle CPU in scan
              41.1 ms  cpu 2: . -> A: idle: task woken
              44.1 ms  cpu 2: A -> .: exits
            placed 1 x idle CPU in scan
            placed 4 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x idle CPU in scan
        "#]],
    )
}

/// CPU n and n + 4 are a core. CPU 1 is busy; the idle core of 2 is preferred to its sibling, 5.
#[test]
fn an_idle_core_is_preferred() {
    check(
        "1x4x2 v6.1, 48 ms
        A: until 41ms, run 3ms
        B on 0: until 10ms, run 40ms
        C on 1: until 10ms, run 40ms",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 ..........BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
            cpu 1 ..........CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC
            cpu 2 .........................................AAA....
            cpu 3 ................................................
            cpu 4 ................................................
            cpu 5 ................................................
            cpu 6 ................................................
            cpu 7 ................................................
               1.1 ms  cpu 1: . -> C: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: C -> .: blocks: timer
               1.1 ms  cpu 0: A -> B: blocks: timer
               1.1 ms  cpu 0: B -> .: blocks: timer
              10.1 ms  cpu 1: . -> C: idle: task woken
              10.1 ms  cpu 0: . -> B: idle: task woken
              41.0 ms  A moved 0 -> 2: idle core
              41.1 ms  cpu 2: . -> A: idle: task woken
              44.1 ms  cpu 2: A -> .: exits
            placed 1 x idle core
            placed 4 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x idle core
        "#]],
    )
}

/// CPU n and n + 2 are a core; both cores are half busy. The first wakeup searches for an idle core
/// and finds CPU 3 on the way. Then D takes CPU 3 and C leaves its sibling, 1, to A.
#[test]
fn without_an_idle_core_the_sibling_of_prev_is_taken() {
    check(
        "1x2x2 v6.1, 48 ms
        A: until 31ms, run 500us, until 41ms, run 1ms
        B on 0: until 10ms, run 40ms
        C on 1: until 10ms, run 26ms
        D on 3: until 35ms, run 10ms",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 ..........BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
            cpu 1 ..........CCCCCCCCCCCCCCCCCCCCCCCCCCC....AA.....
            cpu 2 ................................................
            cpu 3 ...............................A...DDDDDDDDDDDD.
               1.1 ms  cpu 1: . -> C: idle: task woken
               1.1 ms  cpu 3: . -> D: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> B: blocks: timer
               1.1 ms  cpu 1: C -> .: blocks: timer
               1.1 ms  cpu 0: B -> .: blocks: timer
               1.1 ms  cpu 3: D -> .: blocks: timer
              10.1 ms  cpu 0: . -> B: idle: task woken
              10.1 ms  cpu 1: . -> C: idle: task woken
              31.0 ms  A moved 0 -> 3: idle CPU seen in core search
              31.1 ms  cpu 3: . -> A: idle: task woken
              31.9 ms  cpu 3: A -> .: blocks: timer
              35.1 ms  cpu 3: . -> D: idle: task woken
              37.4 ms  cpu 1: C -> .: exits
              41.0 ms  A moved 3 -> 1: idle SMT sibling of prev
              41.1 ms  cpu 1: . -> A: idle: task woken
              42.8 ms  cpu 1: A -> .: exits
              46.7 ms  cpu 3: D -> .: exits
            placed 1 x idle CPU seen in core search
            placed 1 x idle SMT sibling of prev
            placed 6 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x idle CPU seen in core search
            migrated 1 x idle SMT sibling of prev
        "#]],
    )
}

/// B finds two idle CPUs on the other node and one here; then it is one each, and the local one is
/// taken; then only the other node has one.
#[test]
fn forks_spread_over_nodes() {
    check(
        "2x2x1 v6.1, 16 ms
        A: fork B, fork C, fork D, run 9ms
        B child: run 9ms
        C child: run 9ms
        D child: run 9ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAAA......
            cpu 1 .CCCCCCCCC......
            cpu 2 .BBBBBBBBB......
            cpu 3 .DDDDDDDDD......
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 2: . -> B: idle: task woken
               1.2 ms  cpu 1: . -> C: idle: task woken
               1.2 ms  cpu 3: . -> D: idle: task woken
              10.2 ms  cpu 2: B -> .: exits
              10.2 ms  cpu 1: C -> .: exits
              10.2 ms  cpu 0: A -> .: exits
              10.2 ms  cpu 3: D -> .: exits
            placed 3 x slow path: idle CPU
            placed 1 x slow path: local group idlest
        "#]],
    )
}

/// CPU 1 has nothing left when B ends and takes C, which waits behind A.
#[test]
fn newidle_pulls_a_waiting_task() {
    check(
        "uma-2 v6.1, 12 ms
        A on 0: run 8ms
        B on 1: run 1500us
        C: run 3ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAA...
            cpu 1 .BBCCC......
               1.0 ms  cpu 1: . -> B: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               2.6 ms  C moved 0 -> 1: newidle balance, MC
               2.6 ms  cpu 1: B -> C: exits
               5.7 ms  cpu 1: C -> .: exits
               9.1 ms  cpu 0: A -> .: exits
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x newidle balance, MC
        "#]],
    )
}

/// Affinity that excludes the CPU it is on: the stopper takes it off, up to 5.10 while it runs.
#[test]
fn the_stopper_moves_a_running_task() {
    check(
        "uma-2 v6.1-affinity_waits, 14 ms
        A on 0: run 8ms
        B: run 2ms, pin 0, run 2ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAABBA...
            cpu 1 .BB...........
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: . -> B: idle: task woken
               3.1 ms  cpu 1: B -> stopper: wakeup: higher class
               3.1 ms  B moved 1 -> 0: stopper: exec or affinity
               3.1 ms  cpu 1: stopper -> .: blocks: stopper has no work
               8.0 ms  cpu 0: A -> B: tick: slice used up
              10.1 ms  cpu 0: B -> A: exits
              11.2 ms  cpu 0: A -> .: exits
            placed 2 x pinned
            placed 1 x slow path: idle CPU
            migrated 1 x stopper: exec or affinity
        "#]],
    )
}

/// CPUs 2n and 2n + 1 share an L2. At 31 ms CPU 0 is busy, and the search of its cluster finds
/// CPU 1. At 51 ms that one is busy; CPU 0, where A was before, is idle and in the same cluster.
#[test]
fn the_cluster_is_searched_first() {
    check(
        "1x6x1x2 v6.12, 60 ms
        A: until 31ms, run 1ms, until 51ms, run 3ms
        B on 0: until 10ms, run 25ms
        C: pin 1, until 45ms, run 20ms
        D on 5: until 10ms, run 60ms",
        expect![[r#"
                  0         10        20        30        40        50
            cpu 0 ..........BBBBBBBBBBBBBBBBBBBBBBBBB................AAA......
            cpu 1 ...............................A.............CCCCCCCCCCCCCCC
            cpu 2 ............................................................
            cpu 3 ............................................................
            cpu 4 ............................................................
            cpu 5 ..........DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD
               1.1 ms  cpu 5: . -> D: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 5: D -> .: blocks: timer
               1.1 ms  cpu 0: A -> B: blocks: timer
               1.1 ms  cpu 0: B -> .: blocks: timer
               1.1 ms  cpu 2: . -> C: idle: task woken
               1.1 ms  cpu 2: C -> stopper: blocks: waits for the stopper
               1.1 ms  C moved 2 -> 1: pinned
               1.1 ms  cpu 2: stopper -> .: blocks: stopper has no work
               1.2 ms  cpu 1: . -> C: idle: task woken
               1.2 ms  cpu 1: C -> .: blocks: timer
              10.1 ms  cpu 0: . -> B: idle: task woken
              10.1 ms  cpu 5: . -> D: idle: task woken
              31.0 ms  A moved 0 -> 1: idle CPU in cluster
              31.1 ms  cpu 1: . -> A: idle: task woken
              32.1 ms  cpu 1: A -> .: blocks: timer
              35.2 ms  cpu 0: B -> .: exits
              45.1 ms  cpu 1: . -> C: idle: task woken
              51.0 ms  A moved 1 -> 0: recent_used_cpu idle
              51.1 ms  cpu 0: . -> A: idle: task woken
              54.1 ms  cpu 0: A -> .: exits
            placed 1 x idle CPU in cluster
            placed 7 x pinned
            placed 1 x recent_used_cpu idle
            placed 1 x slow path: idle CPU
            placed 1 x slow path: local group idlest
            migrated 1 x idle CPU in cluster
            migrated 1 x pinned
            migrated 1 x recent_used_cpu idle
        "#]],
    )
}

/// No cache is shared; the writer is alone on its CPU and will sleep soon, so it says.
#[test]
fn a_sync_wakeup_pulls_the_wakee_to_a_waker_alone() {
    check(
        "2x1x1 v6.1, 9 ms
        A: read 0, run 1ms
        B on 1: until 4ms, write 0, run 2ms",
        expect![[r#"
                  0
            cpu 0 .........
            cpu 1 ....BBA..
               1.1 ms  cpu 1: . -> B: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> .: blocks: nothing to read
               1.1 ms  cpu 1: B -> .: blocks: timer
               4.1 ms  cpu 1: . -> B: idle: task woken
               4.1 ms  A moved 0 -> 1: target (no cache domain)
               6.1 ms  cpu 1: B -> A: exits
               7.2 ms  cpu 1: A -> .: exits
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            placed 1 x target (no cache domain)
            migrated 1 x target (no cache domain)
        "#]],
    )
}

/// As above, but A has woken C and B has woken D before: one flip and two are as many as the cache
/// has CPUs, one.
#[test]
fn a_wide_waker_leaves_the_wakee_on_prev() {
    check(
        "2x1x1 v6.1, 9 ms
        A: until 2ms, wake 1, read 0, run 1ms
        C: wait 1
        D: wait 2
        B on 1: until 4ms, wake 2, run 1ms, write 0, run 2ms",
        expect![[r#"
                  0
            cpu 0 .....A...
            cpu 1 ....BBB..
               1.1 ms  cpu 1: . -> B: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  C moved 0 -> 1: newidle balance, NUMA
               1.1 ms  cpu 1: B -> C: blocks: timer
               1.1 ms  cpu 0: A -> D: blocks: timer
               1.1 ms  cpu 1: C -> .: blocks: futex
               1.1 ms  cpu 0: D -> .: blocks: futex
               2.1 ms  cpu 0: . -> A: idle: task woken
               2.1 ms  cpu 0: A -> .: blocks: nothing to read
               2.1 ms  cpu 1: . -> C: idle: task woken
               2.2 ms  cpu 1: C -> .: exits
               4.1 ms  cpu 1: . -> B: idle: task woken
               4.1 ms  cpu 0: . -> D: idle: task woken
               4.2 ms  cpu 0: D -> .: exits
               5.1 ms  cpu 0: . -> A: idle: task woken
               6.2 ms  cpu 0: A -> .: exits
               7.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            placed 3 x slow path: local group idlest
            placed 4 x target idle
            migrated 1 x newidle balance, NUMA
        "#]],
    )
}

/// CPU n and n + 2 are a core. Idle balancing, every 4 ms, cannot take a task that runs; at its
/// fourth failure, at 20 ms, it asks the stopper.
#[test]
fn two_busy_threads_of_a_core_are_spread() {
    check(
        "1x2x2 v6.1, 32 ms
        A: run 30ms
        B on 2: until 5ms, run 30ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAAAAAAAAAAAAAA............
            cpu 1 ....................AAAAAAAAAAAA
            cpu 2 .....BBBBBBBBBBBBBBBBBBBBBBBBBBB
            cpu 3 ................................
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 2: . -> B: idle: task woken
               1.1 ms  cpu 2: B -> .: blocks: timer
               5.1 ms  cpu 2: . -> B: idle: task woken
              20.1 ms  cpu 0: A -> stopper: wakeup: higher class
              20.1 ms  A moved 0 -> 1: active balance, MC
              20.1 ms  cpu 0: stopper -> .: blocks: stopper has no work
              20.1 ms  cpu 1: . -> A: idle: task woken
            placed 3 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x active balance, MC
        "#]],
    )
}

/// Two tasks are on CPU 0. When A wakes, one of four CPUs is drawn; unless that is CPU 0 it has
/// no task, and A goes there. It then stays where it is alone, whatever is drawn.
#[test]
fn two_choices_leave_the_longer_queue() {
    check(
        "1x4x1 v6.1+scheduler=two_choices, 16 ms
        A: run 1ms, sleep 2ms, loop
        B on 0: run 40ms
        C on 0: run 40ms",
        expect![[r#"
                  0         10
            cpu 0 .ABBBBBBCCCCCCCC
            cpu 1 ................
            cpu 2 ....A..A..A..A..
            cpu 3 ................
               1.1 ms  cpu 0: . -> A: idle: task woken
               2.1 ms  cpu 0: A -> B: blocks: timer
               4.1 ms  A moved 0 -> 2: two choices: drawn CPU
               4.1 ms  cpu 2: . -> A: idle: task woken
               5.1 ms  cpu 2: A -> .: blocks: timer
               7.2 ms  cpu 2: . -> A: idle: task woken
               8.0 ms  cpu 0: B -> C: rr: slice used up
               8.2 ms  cpu 2: A -> .: blocks: timer
              10.3 ms  cpu 2: . -> A: idle: task woken
              11.3 ms  cpu 2: A -> .: blocks: timer
              13.3 ms  cpu 2: . -> A: idle: task woken
              14.3 ms  cpu 2: A -> .: blocks: timer
            placed 1 x two choices: drawn CPU
            placed 6 x two choices: prev
            migrated 1 x two choices: drawn CPU
        "#]],
    )
}
