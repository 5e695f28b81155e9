//! Decisions: what does the scheduler do in situations small enough to check by hand?
//!
//! The numbers to check with: uma-2 has scaling factor 2, the `…x…x…` machines of eight CPUs have
//! 4; ticks come every 4 ms.

mod scenario;

use expect_test::{Expect, expect};
use scenario::Scenario;

#[track_caller]
fn check(text: &str, expected: Expect) {
    expected.assert_eq(&Scenario::parse(text).outcome());
}

/// Period 12 ms, slice 6 ms: preempted at the first tick after it.
#[test]
fn cfs_runs_equal_tasks_for_a_slice_each() {
    check(
        "uma-2 v6.1, 44 ms
        A on 0: run 20ms
        B on 0: run 20ms",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 .AAAAAAABBBBBBBBAAAAAAAABBBBBBBBAAAAABBBB...
            cpu 1 ............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
               8.0 ms  cpu 0: A -> B: tick: slice used up
              16.0 ms  cpu 0: B -> A: tick: slice used up
              24.0 ms  cpu 0: A -> B: tick: slice used up
              32.0 ms  cpu 0: B -> A: tick: slice used up
              37.1 ms  cpu 0: A -> B: exits
              41.2 ms  cpu 0: B -> .: exits
            placed 2 x pinned
        "#]],
    )
}

/// Weights 1024 and 335: slices of 9.0 and 3.0 ms become 12 and 4 ms with the tick, three to one. New
/// and alone in their queues, A starts 12 ms and B 12 * 1024 / 335 = 36.7 ms behind: A's lead.
#[test]
fn cfs_shares_by_weight() {
    check(
        "uma-2 v6.1, 80 ms
        A on 0: run 80ms
        B on 0 nice 5: run 80ms",
        expect![[r#"
                  0         10        20        30        40        50        60        70
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAAAAAABBBBAAAAAAAAAAAABBBBAAAAAAAAAAAABBBBAAAAAAAAAAAABBBB
            cpu 1 ................................................................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              28.0 ms  cpu 0: A -> B: tick: slice used up
              32.0 ms  cpu 0: B -> A: tick: slice used up
              44.0 ms  cpu 0: A -> B: tick: slice used up
              48.0 ms  cpu 0: B -> A: tick: slice used up
              60.0 ms  cpu 0: A -> B: tick: slice used up
              64.0 ms  cpu 0: B -> A: tick: slice used up
              76.0 ms  cpu 0: A -> B: tick: slice used up
            placed 2 x pinned
        "#]],
    )
}

/// B's credit is 6 ms, more than the granularity of 2 ms, at both wakeups. In between it uses up
/// its slice of 6 ms at the tick at 16 ms and A runs until the tick after 22 ms.
#[test]
fn cfs_a_sleeper_preempts_a_hog() {
    check(
        "uma-2 v6.1, 32 ms
        B on 0: until 9ms, run 8ms, sleep 1ms, run 1ms
        A on 0: run 40ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAAABBBBBBBAAAAAAAABABAAAAA
            cpu 1 ................................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
               9.0 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              16.0 ms  cpu 0: B -> A: tick: slice used up
              24.0 ms  cpu 0: A -> B: tick: slice used up
              25.0 ms  cpu 0: B -> A: blocks
              26.0 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              27.1 ms  cpu 0: B -> A: exits
            placed 4 x pinned
        "#]],
    )
}

/// Woken 0.5 ms after it slept, B keeps its vruntime: 6 ms behind A at first, then 3.7, then 1.4,
/// less than the granularity of 2 ms. So it waits for the tick at which A is a slice ahead, 6.3 ms.
#[test]
fn cfs_a_short_sleep_gives_no_credit_twice() {
    check(
        "uma-2 v6.1, 28 ms
        B on 0: until 8500us, run 2800us, sleep 500us, run 2800us, sleep 500us, run 1ms
        A on 0: run 40ms",
        expect![[r#"
                  0         10        20
            cpu 0 .AAAAAAAABBABBBAAAAABAAAAAAA
            cpu 1 ............................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
               8.5 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              11.3 ms  cpu 0: B -> A: blocks
              11.8 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              14.6 ms  cpu 0: B -> A: blocks
              20.0 ms  cpu 0: A -> B: tick: a slice ahead of leftmost
              21.1 ms  cpu 0: B -> A: exits
            placed 5 x pinned
        "#]],
    )
}

/// It has the credit, but only a tick gives it the CPU: A has run for longer than its slice.
#[test]
fn cfs_a_batch_wakee_waits_for_the_tick() {
    check(
        "uma-2 v6.1, 20 ms
        B on 0 batch: until 10ms, run 1ms
        A on 0: run 40ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAAAAABAAAAAAA
            cpu 1 ....................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
              12.0 ms  cpu 0: A -> B: tick: slice used up
              13.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// Also when the wakee slept for so short a time that vruntime would not do it.
#[test]
fn cfs_sched_idle_is_preempted_at_once() {
    check(
        "uma-2 v6.1, 12 ms
        B on 0: until 2ms, run 1ms, sleep 200us, run 1ms, sleep 200us, run 3ms
        A on 0 idle: run 40ms",
        expect![[r#"
                  0         10
            cpu 0 .ABBBBBAAAAA
            cpu 1 ............
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
               2.0 ms  cpu 0: A -> B: wakeup: SCHED_IDLE is running
               3.0 ms  cpu 0: B -> A: blocks
               3.2 ms  cpu 0: A -> B: wakeup: SCHED_IDLE is running
               4.2 ms  cpu 0: B -> A: blocks
               4.4 ms  cpu 0: A -> B: wakeup: SCHED_IDLE is running
               7.5 ms  cpu 0: B -> A: exits
            placed 5 x pinned
        "#]],
    )
}

/// New, B starts at 12 * 1024 / 820 = 15 ms and A at 12. At A's first yield B is 2.5 ms ahead, more
/// than the granularity of 2 ms; at the second one it is 2 ms less the cost of yielding.
#[test]
fn cfs_yield_runs_the_second_within_the_granularity() {
    check(
        "uma-2 v6.1, 12 ms
        A on 0: run 500us, yield, loop
        B on 0 nice 1: run 3ms",
        expect![[r#"
                  0         10
            cpu 0 .ABBBAAAAAAA
            cpu 1 ............
               1.0 ms  cpu 0: . -> A: idle: task woken
               2.0 ms  cpu 0: A -> B: sched_yield
               5.1 ms  cpu 0: B -> A: exits
            placed 2 x pinned
        "#]],
    )
}

/// The slice of 1.4 ms is over at every tick.
#[test]
fn eevdf_runs_equal_tasks_for_a_tick_each() {
    check(
        "uma-2 v6.12, 24 ms
        A on 0: run 20ms
        B on 0: run 20ms",
        expect![[r#"
                  0         10        20
            cpu 0 .AAABBBBAAAABBBBAAAABBBB
            cpu 1 ........................
               1.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  cpu 0: A -> B: slice ended
               8.0 ms  cpu 0: B -> A: slice ended
              12.0 ms  cpu 0: A -> B: slice ended
              16.0 ms  cpu 0: B -> A: slice ended
              20.0 ms  cpu 0: A -> B: slice ended
            placed 2 x pinned
        "#]],
    )
}

/// Ticks of 1 ms: 0.7 ms at first, then 1.4 ms, which two ticks end.
#[test]
fn eevdf_gives_new_tasks_half_a_slice() {
    check(
        "uma-2 v6.12+hz=1000, 16 ms
        A on 0: run 10ms
        B on 0: run 10ms",
        expect![[r#"
                  0         10
            cpu 0 .ABAABBAABBAABBA
            cpu 1 ................
               1.0 ms  cpu 0: . -> A: idle: task woken
               2.0 ms  cpu 0: A -> B: slice ended
               3.0 ms  cpu 0: B -> A: slice ended
               5.0 ms  cpu 0: A -> B: slice ended
               7.0 ms  cpu 0: B -> A: slice ended
               9.0 ms  cpu 0: A -> B: slice ended
              11.0 ms  cpu 0: B -> A: slice ended
              13.0 ms  cpu 0: A -> B: slice ended
              15.0 ms  cpu 0: B -> A: slice ended
            placed 2 x pinned
        "#]],
    )
}

/// A slice of 10 ms, half for a new task. B is placed where A is, at the average, with the earlier
/// deadline; but A is protected until its own, 13 ms, which the tick at 16 ms finds.
#[test]
fn eevdf_a_wakee_without_lag_waits_for_the_slice() {
    check(
        "uma-2 v6.12+base_slice_ns=5000000, 24 ms
        A on 0: run 1ms, sleep 1ms, fork B, run 15ms
        B child: run 2ms",
        expect![[r#"
                  0         10        20
            cpu 0 .A.AAAAAAAAAAAAABBAA....
            cpu 1 ........................
               1.0 ms  cpu 0: . -> A: idle: task woken
               2.0 ms  cpu 0: A -> .: blocks
               3.1 ms  cpu 0: . -> A: idle: task woken
              16.0 ms  cpu 0: A -> B: slice ended
              18.1 ms  cpu 0: B -> A: exits
              20.2 ms  cpu 0: A -> .: exits
            placed 3 x pinned
        "#]],
    )
}

/// When B slept, A was 3 ms ahead of it: B's lag is 1.5 ms, which it still has when it is woken.
/// Then A is past the average and not eligible.
#[test]
fn eevdf_a_wakee_with_lag_preempts() {
    check(
        "uma-2 v6.12, 20 ms
        A on 0: run 40ms
        B on 0: until 10ms, run 2ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAAABBAAAAAAAA
            cpu 1 ....................
               1.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  cpu 0: A -> B: slice ended
               4.0 ms  cpu 0: B -> A: blocks
              10.0 ms  cpu 0: A -> B: wakeup: wakee is picked
              12.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// As above without RUN_TO_PARITY: B's earlier deadline decides at once.
#[test]
fn eevdf_without_protection_the_wakee_preempts() {
    check(
        "uma-2 v6.12+base_slice_ns=5000000-run_to_parity, 24 ms
        A on 0: run 1ms, sleep 1ms, fork B, run 15ms
        B child: run 2ms",
        expect![[r#"
                  0         10        20
            cpu 0 .A.BBAAAAAAAAAAAAAAA....
            cpu 1 ........................
               1.0 ms  cpu 0: . -> A: idle: task woken
               2.0 ms  cpu 0: A -> .: blocks
               3.1 ms  cpu 0: . -> A: idle: task woken
               3.1 ms  cpu 0: A -> B: wakeup: wakee is picked
               5.2 ms  cpu 0: B -> A: exits
              20.2 ms  cpu 0: A -> .: exits
            placed 3 x pinned
        "#]],
    )
}

/// B runs past the average and sleeps at 2 ms: it stays queued, is woken there at 2.5 ms without
/// a choice of CPU, and goes on when the average has come up to it.
#[test]
fn eevdf_a_task_that_sleeps_ineligible_stays_queued() {
    check(
        "uma-2 v6.12, 24 ms
        B on 0: run 1ms, sleep 500us, run 1ms
        A on 0: run 12ms",
        expect![[r#"
                  0         10        20
            cpu 0 .BAABAAAAAAAAAA.........
            cpu 1 ........................
               1.0 ms  cpu 0: . -> B: idle: task woken
               2.0 ms  cpu 0: B -> A: blocks
               4.0 ms  cpu 0: A -> B: slice ended
               5.1 ms  cpu 0: B -> A: exits
              15.2 ms  cpu 0: A -> .: exits
            placed 2 x pinned
            woken 1 x while queued
        "#]],
    )
}

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
               1.0 ms  cpu 1: B -> .: blocks
               1.0 ms  cpu 0: A -> .: blocks
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
               1.0 ms  cpu 1: B -> .: blocks
               1.0 ms  cpu 0: A -> .: blocks
               4.0 ms  cpu 1: . -> B: idle: task woken
               4.1 ms  cpu 0: . -> A: idle: task woken
               5.1 ms  cpu 0: A -> .: exits
               6.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            placed 1 x target idle
        "#]],
    )
}

/// nr_idle_scan is 0: A stays on the busy target until an idle balance, 8 ms after the start, pulls
/// it.
#[test]
fn before_the_first_balance_nothing_is_scanned() {
    check(
        "1x8x1 v6.1, 20 ms
        A: run 1ms, sleep 2ms, run 1ms
        B on 0: until 2500us, run 20ms",
        expect![[r#"
                  0         10
            cpu 0 .A.BBBBBBBBBBBBBBBBB
            cpu 1 ....................
            cpu 2 ........A...........
            cpu 3 ....................
            cpu 4 ....................
            cpu 5 ....................
            cpu 6 ....................
            cpu 7 ....................
               1.1 ms  cpu 0: . -> A: idle: task woken
               2.1 ms  cpu 0: A -> B: blocks
               2.1 ms  cpu 0: B -> .: blocks
               2.6 ms  cpu 0: . -> B: idle: task woken
               8.1 ms  A moved 0 -> 2: nohz idle balance, MC
               8.1 ms  cpu 2: . -> A: idle: task woken
               9.2 ms  cpu 2: A -> .: exits
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            placed 1 x target (no scan)
            migrated 1 x nohz idle balance, MC
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
               1.1 ms  cpu 1: C -> .: blocks
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> B: blocks
               1.1 ms  cpu 0: B -> .: blocks
              10.1 ms  cpu 1: . -> C: idle: task woken
              10.1 ms  cpu 0: . -> B: idle: task woken
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
               1.1 ms  cpu 1: C -> .: blocks
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> B: blocks
               1.1 ms  cpu 0: B -> .: blocks
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
               1.1 ms  cpu 0: A -> B: blocks
               1.1 ms  cpu 1: C -> .: blocks
               1.1 ms  cpu 3: D -> .: blocks
               1.1 ms  cpu 0: B -> .: blocks
              10.1 ms  cpu 1: . -> C: idle: task woken
              10.1 ms  cpu 0: . -> B: idle: task woken
              31.0 ms  A moved 0 -> 3: idle CPU seen in core search
              31.1 ms  cpu 3: . -> A: idle: task woken
              31.9 ms  cpu 3: A -> .: blocks
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
              10.2 ms  cpu 0: A -> .: exits
              10.2 ms  cpu 2: B -> .: exits
              10.2 ms  cpu 1: C -> .: exits
              10.3 ms  cpu 3: D -> .: exits
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

/// And is not preempted by any tick.
#[test]
fn rt_preempts_fair() {
    check(
        "uma-2 v6.1, 20 ms
        B on 0 fifo 10: until 3ms, run 8ms
        A on 0: run 6ms",
        expect![[r#"
                  0         10
            cpu 0 .AABBBBBBBBAAAA.....
            cpu 1 ....................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
               3.0 ms  cpu 0: A -> B: wakeup: higher class
              11.1 ms  cpu 0: B -> A: exits
              15.2 ms  cpu 0: A -> .: exits
            placed 3 x pinned
        "#]],
    )
}

/// B preempts C at once; D of C's priority waits for C to end.
#[test]
fn rt_fifo_by_priority() {
    check(
        "uma-2 v6.1, 20 ms
        B on 0 fifo 20: until 4ms, run 2ms
        D on 0 fifo 10: until 3ms, run 2ms
        C on 0 fifo 10: until 2ms, run 5ms
        A on 0: run 20ms",
        expect![[r#"
                  0         10
            cpu 0 .ACCBBCCCDDAAAAAAAAA
            cpu 1 ....................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> D: blocks
               1.0 ms  cpu 0: D -> C: blocks
               1.0 ms  cpu 0: C -> A: blocks
               2.0 ms  cpu 0: A -> C: wakeup: higher class
               4.0 ms  cpu 0: C -> B: rt: higher priority
               6.1 ms  cpu 0: B -> C: exits
               9.1 ms  cpu 0: C -> D: exits
              11.2 ms  cpu 0: D -> A: exits
            placed 7 x pinned
        "#]],
    )
}

/// Affinity that excludes the CPU it is on: the stopper takes it off.
#[test]
fn the_stopper_moves_a_running_task() {
    check(
        "uma-2 v6.1, 14 ms
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
               3.1 ms  cpu 1: stopper -> .: blocks
               8.0 ms  cpu 0: A -> B: tick: slice used up
              10.1 ms  cpu 0: B -> A: exits
              11.2 ms  cpu 0: A -> .: exits
            placed 2 x pinned
            placed 1 x slow path: idle CPU
            migrated 1 x stopper: exec or affinity
        "#]],
    )
}

/// Nine tasks: period 13.5 ms, slice 1.5 ms, so each tick switches. A to D start at 12 ms of
/// vruntime, the others, which came after A began to run, 12 ms later. When W is done, D is at
/// 19.2 and A at 19 ms: A is leftmost, but D, which W preempted, is within the granularity.
#[test]
fn cfs_the_last_buddy_goes_on_after_a_short_wakeup() {
    check(
        "uma-2 v6.1, 40 ms
        W on 0: until 31200us, run 500us
        A on 0: run 40ms
        B on 0: run 40ms
        C on 0: run 40ms
        D on 0: run 40ms
        E on 0: run 40ms
        F on 0: run 40ms
        G on 0: run 40ms
        H on 0: run 40ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAABBBBCCCCDDDDAAAABBBBCCCCDDDWDDDDAAAA
            cpu 1 ........................................
               1.0 ms  cpu 0: . -> W: idle: task woken
               1.0 ms  cpu 0: W -> A: blocks
               4.0 ms  cpu 0: A -> B: tick: slice used up
               8.0 ms  cpu 0: B -> C: tick: slice used up
              12.0 ms  cpu 0: C -> D: tick: slice used up
              16.0 ms  cpu 0: D -> A: tick: slice used up
              20.0 ms  cpu 0: A -> B: tick: slice used up
              24.0 ms  cpu 0: B -> C: tick: slice used up
              28.0 ms  cpu 0: C -> D: tick: slice used up
              31.2 ms  cpu 0: D -> W: wakeup: vruntime beyond granularity
              31.8 ms  cpu 0: W -> D: exits
              36.0 ms  cpu 0: D -> A: tick: slice used up
            placed 10 x pinned
        "#]],
    )
}

/// Its share of the period is 12 * 36 / 1060 = 0.4 ms; it gets 1.5 ms, which two ticks of 1 ms end.
/// Then it is 28 * 2 = 57 ms of vruntime further and waits until A is there.
#[test]
fn cfs_a_light_task_gets_the_minimal_granularity() {
    check(
        "uma-2 v6.1+hz=1000-start_debit, 80 ms
        A on 0: run 100ms
        B on 0 nice 15: run 8ms",
        expect![[r#"
                  0         10        20        30        40        50        60        70
            cpu 0 .AAAAAAAAAAAABBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABBAAAAAAAAAAAAAAAAAA
            cpu 1 ................................................................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              13.0 ms  cpu 0: A -> B: tick: slice used up
              15.0 ms  cpu 0: B -> A: tick: slice used up
              60.0 ms  cpu 0: A -> B: tick: slice used up
              62.0 ms  cpu 0: B -> A: tick: slice used up
            placed 2 x pinned
        "#]],
    )
}

/// A slice of 10 ms, half for a new task: A's ends at the tick at 8 ms. It goes on alone, without
/// being picked anew and thus unprotected. B's first sleep left it queued, the tick took it off
/// without lag, so at 9.5 ms it is placed at the average, with the later deadline. But at the next
/// tick A is past the average.
#[test]
fn eevdf_an_unprotected_task_past_the_average_is_preempted_at_the_tick() {
    check(
        "uma-2 v6.12+base_slice_ns=5000000, 20 ms
        B on 0: until 9500us, run 2ms
        A on 0: run 40ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAAAAABBAAAAAA
            cpu 1 ....................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
              12.0 ms  cpu 0: A -> B: unprotected and not eligible
              14.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// Ticks of 1 ms, slice 1.4 ms, half at first. At 1.5 ms A is past the average and forfeits
/// nothing. At 3.5 ms it goes from 1.0 to its deadline, 2.4 ms, at 5.5 ms from 2.9 to 3.8 ms: B is
/// always eligible then.
#[test]
fn eevdf_yield_forfeits_the_rest_of_the_slice() {
    check(
        "uma-2 v6.12+hz=1000, 16 ms
        A on 0: run 500us, yield, loop
        B on 0: run 4ms",
        expect![[r#"
                  0         10
            cpu 0 .ABABABAAAAAAAAA
            cpu 1 ................
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.5 ms  cpu 0: A -> B: sched_yield
               3.0 ms  cpu 0: B -> A: slice ended
               3.5 ms  cpu 0: A -> B: sched_yield
               5.0 ms  cpu 0: B -> A: slice ended
               5.5 ms  cpu 0: A -> B: sched_yield
               6.6 ms  cpu 0: B -> A: exits
            placed 2 x pinned
        "#]],
    )
}

/// A slice of 10 ms, half for new tasks. B has 1 ms left when it moves at 5.1 ms. A is protected
/// until 8 ms; B's deadline is over at 12 ms, A's, 10 ms later, at the tick at 24 ms.
#[test]
fn eevdf_a_task_that_moves_takes_its_deadline_along() {
    check(
        "uma-2 v6.12+base_slice_ns=5000000, 32 ms
        A on 0: run 24ms
        B: run 4ms, pin 0, run 8ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAABBBBAAAAAAAAAAAABBBBAAAA
            cpu 1 .BBBB...........................
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: . -> B: idle: task woken
               5.1 ms  cpu 1: B -> stopper: wakeup: higher class
               5.1 ms  B moved 1 -> 0: stopper: exec or affinity
               5.1 ms  cpu 1: stopper -> .: blocks
               8.0 ms  cpu 0: A -> B: slice ended
              12.0 ms  cpu 0: B -> A: slice ended
              24.0 ms  cpu 0: A -> B: slice ended
              28.1 ms  cpu 0: B -> A: exits
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
               1.1 ms  cpu 5: D -> .: blocks
               1.1 ms  cpu 0: A -> B: blocks
               1.1 ms  cpu 0: B -> .: blocks
               1.1 ms  cpu 2: . -> C: idle: task woken
               1.1 ms  cpu 2: C -> stopper: wakeup: higher class
               1.1 ms  C moved 2 -> 1: stopper: exec or affinity
               1.1 ms  cpu 2: stopper -> .: blocks
               1.2 ms  cpu 1: . -> C: idle: task woken
               1.2 ms  cpu 1: C -> .: blocks
              10.1 ms  cpu 5: . -> D: idle: task woken
              10.1 ms  cpu 0: . -> B: idle: task woken
              31.0 ms  A moved 0 -> 1: idle CPU in cluster
              31.1 ms  cpu 1: . -> A: idle: task woken
              32.1 ms  cpu 1: A -> .: blocks
              35.2 ms  cpu 0: B -> .: exits
              45.1 ms  cpu 1: . -> C: idle: task woken
              51.0 ms  A moved 1 -> 0: recent_used_cpu idle
              51.1 ms  cpu 0: . -> A: idle: task woken
              54.1 ms  cpu 0: A -> .: exits
            placed 1 x idle CPU in cluster
            placed 6 x pinned
            placed 1 x recent_used_cpu idle
            placed 1 x slow path: idle CPU
            placed 1 x slow path: local group idlest
            migrated 1 x idle CPU in cluster
            migrated 1 x recent_used_cpu idle
            migrated 1 x stopper: exec or affinity
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
               1.1 ms  cpu 1: B -> .: blocks
               1.1 ms  cpu 0: A -> .: blocks
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
               1.1 ms  cpu 1: B -> .: blocks
               1.1 ms  cpu 0: A -> C: blocks
               1.1 ms  cpu 0: C -> D: blocks
               1.1 ms  cpu 0: D -> .: blocks
               2.1 ms  cpu 0: . -> A: idle: task woken
               2.1 ms  cpu 0: A -> C: blocks
               2.1 ms  cpu 0: C -> .: exits
               4.1 ms  cpu 1: . -> B: idle: task woken
               4.1 ms  cpu 0: . -> D: idle: task woken
               4.2 ms  cpu 0: D -> .: exits
               5.1 ms  cpu 0: . -> A: idle: task woken
               6.2 ms  cpu 0: A -> .: exits
               7.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            placed 3 x slow path: local group idlest
            placed 1 x target (no cache domain)
            placed 3 x target idle
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
               1.1 ms  cpu 2: . -> B: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 2: B -> .: blocks
               5.1 ms  cpu 2: . -> B: idle: task woken
              20.1 ms  cpu 0: A -> stopper: wakeup: higher class
              20.1 ms  A moved 0 -> 1: active balance, MC
              20.1 ms  cpu 0: stopper -> .: blocks
              20.1 ms  cpu 1: . -> A: idle: task woken
            placed 3 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x active balance, MC
        "#]],
    )
}

/// 25 ticks, the first one 2 ms after A began to run.
#[test]
fn rt_round_robin_by_slices_of_100_ms() {
    check(
        "uma-2 v6.1, 130 ms
        B on 0 rr 5: until 4ms, run 10ms
        A on 0 rr 5: until 2ms, run 120ms",
        expect![[r#"
                  0         20        40        60        80        100       120
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABBBBBAAAAAAAAAA
            cpu 1 .................................................................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks
               1.0 ms  cpu 0: A -> .: blocks
               2.0 ms  cpu 0: . -> A: idle: task woken
             100.0 ms  cpu 0: A -> B: rt: round-robin slice used up
             110.1 ms  cpu 0: B -> A: exits
            placed 4 x pinned
        "#]],
    )
}
