//! Decisions: who runs next, and for how long, in situations small enough to check by hand?
//!
//! The numbers to check with: uma-2 has scaling factor 2, the `…x…x…` machines of eight CPUs have
//! 4; ticks come every 4 ms.

mod scenario;

use expect_test::expect;
use scenario::check;

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

/// Weights 1024 and 335: slices of 9.0 and 3.0 ms become 12 and 4 ms with the tick, three to one.
/// New and alone in their queues, A starts 12 ms and B 12 * 1024 / 335 = 36.7 ms behind: A's lead.
#[test]
fn cfs_shares_by_weight() {
    check(
        "uma-2 v6.1, 76 ms
        A on 0: run 80ms
        B on 0 nice 5: run 80ms",
        expect![[r#"
                  0         10        20        30        40        50        60        70
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAAAAAABBBBAAAAAAAAAAAABBBBAAAAAAAAAAAABBBBAAAAAAAAAAAA
            cpu 1 ............................................................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              28.0 ms  cpu 0: A -> B: tick: slice used up
              32.0 ms  cpu 0: B -> A: tick: slice used up
              44.0 ms  cpu 0: A -> B: tick: slice used up
              48.0 ms  cpu 0: B -> A: tick: slice used up
              60.0 ms  cpu 0: A -> B: tick: slice used up
              64.0 ms  cpu 0: B -> A: tick: slice used up
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
               1.0 ms  cpu 0: B -> A: blocks: timer
               9.0 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              16.0 ms  cpu 0: B -> A: tick: slice used up
              24.0 ms  cpu 0: A -> B: tick: slice used up
              25.0 ms  cpu 0: B -> A: blocks: timer
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
               1.0 ms  cpu 0: B -> A: blocks: timer
               8.5 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              11.3 ms  cpu 0: B -> A: blocks: timer
              11.8 ms  cpu 0: A -> B: wakeup: vruntime beyond granularity
              14.6 ms  cpu 0: B -> A: blocks: timer
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
               1.0 ms  cpu 0: B -> A: blocks: timer
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
               1.0 ms  cpu 0: B -> A: blocks: timer
               2.0 ms  cpu 0: A -> B: wakeup: SCHED_IDLE is running
               3.0 ms  cpu 0: B -> A: blocks: timer
               3.2 ms  cpu 0: A -> B: wakeup: SCHED_IDLE is running
               4.2 ms  cpu 0: B -> A: blocks: timer
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
               2.0 ms  cpu 0: A -> .: blocks: timer
               3.1 ms  cpu 0: . -> A: idle: task woken
              16.0 ms  cpu 0: A -> B: slice ended
              18.0 ms  cpu 0: B -> A: exits
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
               4.0 ms  cpu 0: B -> A: blocks: timer
              10.0 ms  cpu 0: A -> B: wakeup: wakee is picked
              12.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// The same task as SCHED_BATCH preempts nobody: the tick at 12 ms ends A's slice.
#[test]
fn eevdf_a_batch_wakee_waits_for_the_tick() {
    check(
        "uma-2 v6.12, 20 ms
        A on 0: run 40ms
        B on 0 batch: until 10ms, run 2ms",
        expect![[r#"
                  0         10
            cpu 0 .AAAAAAAAAAABBAAAAAA
            cpu 1 ....................
               1.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  cpu 0: A -> B: slice ended
               4.0 ms  cpu 0: B -> A: blocks: timer
              12.0 ms  cpu 0: A -> B: slice ended
              14.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// The wakee without lag from before, without RUN_TO_PARITY: B's earlier deadline decides at once.
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
               2.0 ms  cpu 0: A -> .: blocks: timer
               3.1 ms  cpu 0: . -> A: idle: task woken
               3.1 ms  cpu 0: A -> B: wakeup: wakee is picked
               5.1 ms  cpu 0: B -> A: exits
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
               2.0 ms  cpu 0: B -> A: blocks: timer
               4.0 ms  cpu 0: A -> B: slice ended
               5.1 ms  cpu 0: B -> A: exits
              15.2 ms  cpu 0: A -> .: exits
            placed 2 x pinned
            woken 1 x while queued
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
               1.0 ms  cpu 0: B -> A: blocks: timer
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
               1.0 ms  cpu 0: B -> D: blocks: timer
               1.0 ms  cpu 0: D -> C: blocks: timer
               1.0 ms  cpu 0: C -> A: blocks: timer
               2.0 ms  cpu 0: A -> C: wakeup: higher class
               4.0 ms  cpu 0: C -> B: rt: higher priority
               6.1 ms  cpu 0: B -> C: exits
               9.1 ms  cpu 0: C -> D: exits
              11.2 ms  cpu 0: D -> A: exits
            placed 7 x pinned
        "#]],
    )
}

/// Nine tasks: period 13.5 ms, slice 1.5 ms, so each tick switches. A to D start at 12 ms of
/// vruntime, the others, which came after A began to run, 12 ms later. When W is done, D is at
/// 19.2 and A at 19 ms: A is leftmost, but D, which W preempted, is within the granularity. B and
/// C are some ns apart after their first turns.
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
            cpu 0 .AAABBBBCCCCDDDDAAAACCCCBBBBDDDWDDDDAAAA
            cpu 1 ........................................
               1.0 ms  cpu 0: . -> W: idle: task woken
               1.0 ms  cpu 0: W -> A: blocks: timer
               4.0 ms  cpu 0: A -> B: tick: slice used up
               8.0 ms  cpu 0: B -> C: tick: slice used up
              12.0 ms  cpu 0: C -> D: tick: slice used up
              16.0 ms  cpu 0: D -> A: tick: slice used up
              20.0 ms  cpu 0: A -> C: tick: slice used up
              24.0 ms  cpu 0: C -> B: tick: slice used up
              28.0 ms  cpu 0: B -> D: tick: slice used up
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
               1.0 ms  cpu 0: B -> A: blocks: timer
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
        "uma-2 v6.12-affinity_waits+base_slice_ns=5000000, 32 ms
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
               5.1 ms  cpu 1: stopper -> .: blocks: stopper has no work
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
               1.0 ms  cpu 0: B -> A: blocks: timer
               1.0 ms  cpu 0: A -> .: blocks: timer
               2.0 ms  cpu 0: . -> A: idle: task woken
             100.0 ms  cpu 0: A -> B: rt: round-robin slice used up
             110.1 ms  cpu 0: B -> A: exits
            placed 4 x pinned
        "#]],
    )
}

/// A runs on CPU 0 when the more important B is woken there, which may run nowhere else: A is
/// pushed to CPU 1, which has only fair work.
#[test]
fn rt_pushes_the_preempted_task() {
    check(
        "uma-2 v6.1, 16 ms
        A fifo 10: until 2ms, run 8ms
        B on 0 fifo 20: until 4ms, run 4ms
        C on 1: run 20ms",
        expect![[r#"
                  0         10
            cpu 0 ..AABBBB........
            cpu 1 .CCCAAAAAACCCCCC
               1.0 ms  cpu 1: . -> C: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 0: A -> B: blocks: timer
               1.0 ms  cpu 0: B -> .: blocks: timer
               2.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  cpu 0: A -> B: rt: higher priority
               4.0 ms  A moved 0 -> 1: rt: push
               4.0 ms  cpu 1: C -> A: rt: pushed to a less important CPU
               8.1 ms  cpu 0: B -> .: exits
              10.1 ms  cpu 1: A -> C: exits
            placed 3 x pinned
            placed 1 x rt: prev
            placed 1 x slow path: local group idlest
            migrated 1 x rt: push
        "#]],
    )
}

/// C, woken at 3 ms, has to wait: A and B matter more. At 6 ms CPU 1 has nothing that matters as
/// much as B did and pulls C from CPU 0.
#[test]
fn rt_pulls_a_waiting_task() {
    check(
        "uma-2 v6.12, 16 ms
        A on 0 fifo 30: until 2ms, run 12ms
        B on 1 fifo 20: until 2ms, run 4ms
        C fifo 10: until 3ms, run 4ms
        D on 1: run 20ms",
        expect![[r#"
                  0         10
            cpu 0 ..AAAAAAAAAAAA..
            cpu 1 .DBBBBCCCCDDDDDD
               1.0 ms  cpu 1: . -> B: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 1: B -> D: blocks: timer
               1.0 ms  cpu 0: A -> C: blocks: timer
               1.0 ms  cpu 0: C -> .: blocks: timer
               2.0 ms  cpu 1: D -> B: wakeup: higher class
               2.0 ms  cpu 0: . -> A: idle: task woken
               6.1 ms  C moved 0 -> 1: rt: pull
               6.1 ms  cpu 1: B -> C: exits
              10.1 ms  cpu 1: C -> D: exits
              14.1 ms  cpu 0: A -> .: exits
            placed 5 x pinned
            placed 1 x rt: prev
            placed 1 x slow path: local group idlest
            migrated 1 x rt: pull
        "#]],
    )
}

/// B, of A's priority, finds A on its CPU and goes where nothing matters.
#[test]
fn rt_an_equal_goes_elsewhere() {
    check(
        "uma-2 v6.1, 12 ms
        A on 0 fifo 10: until 2ms, run 6ms
        B fifo 10: until 4ms, run 4ms
        C on 1: run 20ms",
        expect![[r#"
                  0         10
            cpu 0 ..AAAAAA....
            cpu 1 .CCCBBBBCCCC
               1.0 ms  cpu 1: . -> C: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 0: A -> B: blocks: timer
               1.0 ms  cpu 0: B -> .: blocks: timer
               2.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  B moved 0 -> 1: rt: lowest priority CPU
               4.0 ms  cpu 1: C -> B: wakeup: higher class
               8.1 ms  cpu 1: B -> C: exits
               8.1 ms  cpu 0: A -> .: exits
            placed 3 x pinned
            placed 1 x rt: lowest priority CPU
            placed 1 x slow path: local group idlest
            migrated 1 x rt: lowest priority CPU
        "#]],
    )
}
