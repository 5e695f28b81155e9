//! What real-time tasks that never sleep leave to others, in situations small enough to check by
//! hand. Ticks come every 4 ms; periods are 40 ms here, of which RT tasks may use 30.

mod scenario;

use expect_test::expect;
use scenario::check;

/// The period begins when A wakes, at 1 ms; at 32 ms, the first tick beyond 30 ms, A has used 31.
/// The timer at 41 ms leaves 1 of them: the tick at 72 ms is the first again. With nothing else to
/// run the CPU idles.
#[test]
fn rt_tasks_are_throttled_to_6_11() {
    check(
        "uma-2 v6.1+rt_period_ns=40000000+rt_runtime_ns=30000000, 90 ms
        A on 0 fifo 10: run 200ms
        B on 0: run 10ms",
        expect![[r#"
                  0         20        40        60        80
            cpu 0 .AAAAAAAAAAAAAAABBBBBAAAAAAAAAAAAAAAB....AAAA
            cpu 1 .............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              32.0 ms  cpu 0: A -> B: rt: throttled
              41.0 ms  cpu 0: B -> A: rt: a new period
              72.0 ms  cpu 0: A -> B: rt: throttled
              73.0 ms  cpu 0: B -> .: exits
              81.1 ms  cpu 0: . -> A: idle: task woken
            placed 2 x pinned
        "#]],
    )
}

/// What is used of a period is forgotten with it: A may run its 30 ms at once.
#[test]
fn rt_tasks_that_sleep_are_not_throttled() {
    check(
        "uma-2 v6.1+rt_period_ns=40000000+rt_runtime_ns=30000000, 90 ms
        A on 0 fifo 10: until 2ms, run 20ms, sleep 20ms, run 29ms
        B on 0: run 40ms",
        expect![[r#"
                  0         20        40        60        80
            cpu 0 .AAAAAAAAAABBBBBBBBBBAAAAAAAAAAAAAAABBBBBBBBB
            cpu 1 .............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 0: A -> B: blocks: timer
               2.0 ms  cpu 0: B -> A: wakeup: higher class
              22.0 ms  cpu 0: A -> B: blocks: timer
              42.0 ms  cpu 0: B -> A: wakeup: higher class
              71.1 ms  cpu 0: A -> B: exits
            placed 4 x pinned
        "#]],
    )
}

/// B waits from 1 ms on, which the CPU idled: of a budget of 10 ms 9 are left, and at 31 ms no more
/// than that is left of 40. So the tick at 40 ms ends it, and the next budget is due 30 ms later,
/// 10 ms before its deadline at 80.
#[test]
fn the_fair_server_runs_what_waits_from_6_12_on() {
    check(
        "uma-2 v6.12+rt_period_ns=40000000+rt_runtime_ns=30000000, 90 ms
        A on 0 fifo 10: run 200ms
        B on 0: run 60ms",
        expect![[r#"
                  0         20        40        60        80
            cpu 0 .AAAAAAAAAAAAAAABBBBAAAAAAAAAAAAAAABBBBBBBAAA
            cpu 1 .............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              31.0 ms  cpu 0: A -> B: fair server: zero laxity
              40.0 ms  cpu 0: B -> A: fair server: budget used up
              70.0 ms  cpu 0: A -> B: fair server: zero laxity
              84.0 ms  cpu 0: B -> A: fair server: budget used up
            placed 2 x pinned
        "#]],
    )
}

/// B has to wait for its first sleep, too. It has not used up what it was served with when it comes
/// back, so it is served at once, with a new budget (`dl_defer_running` outlasts a sleep).
#[test]
fn who_was_served_is_served_again() {
    check(
        "uma-2 v6.12+rt_period_ns=40000000+rt_runtime_ns=30000000, 90 ms
        A on 0 fifo 10: run 200ms
        B on 0: until 50ms, run 4ms",
        expect![[r#"
                  0         20        40        60        80
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAAABBAAAAAAAAAAAAAAAAAA
            cpu 1 .............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              31.0 ms  cpu 0: A -> B: fair server: zero laxity
              31.0 ms  cpu 0: B -> A: blocks: timer
              50.0 ms  cpu 0: A -> B: fair server: zero laxity
              54.1 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// B sleeps twice, and A runs meanwhile. 5 and 3.0 ms of 9 are left then.
#[test]
fn sleep_does_not_end_the_service() {
    check(
        "uma-2 v6.12+rt_period_ns=40000000+rt_runtime_ns=30000000, 90 ms
        A on 0 fifo 10: run 200ms
        B on 0: run 2ms, sleep 1ms, run 2ms, sleep 1ms, run 20ms",
        expect![[r#"
                  0         20        40        60        80
            cpu 0 .AAAAAAAAAAAAAAABBABBBBBAAAAAAAAAAAAAAABBBBBA
            cpu 1 .............................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              31.0 ms  cpu 0: A -> B: fair server: zero laxity
              33.0 ms  cpu 0: B -> A: blocks: timer
              34.0 ms  cpu 0: A -> B: fair server: zero laxity
              36.0 ms  cpu 0: B -> A: blocks: timer
              37.0 ms  cpu 0: A -> B: fair server: zero laxity
              48.0 ms  cpu 0: B -> A: fair server: budget used up
              78.0 ms  cpu 0: A -> B: fair server: zero laxity
              87.1 ms  cpu 0: B -> A: exits
            placed 4 x pinned
        "#]],
    )
}

/// B is ineligible when it blocks, so it stays queued when CPU 1 pulls C away: at 38 ms there is
/// nobody to serve but B, which sleeps, and A goes on.
#[test]
fn who_is_in_delayed_dequeue_is_not_served() {
    check(
        "uma-2 v6.12+rt_period_ns=40000000+rt_runtime_ns=30000000, 60 ms
        A on 0 fifo 10: until 8ms, run 200ms
        B on 0: run 2500us, sleep 100ms
        C: run 40ms
        D on 1: run 10ms",
        expect![[r#"
                  0         10        20        30        40        50
            cpu 0 .BBBCCCCAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
            cpu 1 .DDDDDDDDDDCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC.............
               1.0 ms  cpu 1: . -> D: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 0: A -> B: blocks: timer
               3.5 ms  cpu 0: B -> C: blocks: timer
               8.0 ms  cpu 0: C -> A: wakeup: higher class
              11.1 ms  C moved 0 -> 1: newidle balance, MC
              11.1 ms  cpu 1: D -> C: exits
              46.7 ms  cpu 1: C -> .: exits
            placed 4 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x newidle balance, MC
        "#]],
    )
}

/// A has been alone for two periods and a half when it sleeps at 101 ms: the server begins with 10
/// ms until 141 then. 2 ms are used when A is back, so B, which waits from 103 ms on, is served at
/// 133 ms: not at once, though a deadline has passed long ago.
#[test]
fn who_had_nobody_to_serve_begins_anew() {
    check(
        "uma-2 v6.12+rt_period_ns=40000000+rt_runtime_ns=30000000, 150 ms
        A on 0 fifo 10: run 100ms, sleep 2ms, run 100ms
        B on 0: until 102ms, run 20ms",
        expect![[r#"
                  0         20        40        60        80        100       120       140
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAAAAABBBBBAAA
            cpu 1 ...........................................................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              31.0 ms  cpu 0: A -> B: fair server: zero laxity
              31.0 ms  cpu 0: B -> A: blocks: timer
             101.1 ms  cpu 0: A -> .: blocks: timer
             102.0 ms  cpu 0: . -> B: idle: task woken
             103.1 ms  cpu 0: B -> A: wakeup: higher class
             133.1 ms  cpu 0: A -> B: fair server: zero laxity
             144.0 ms  cpu 0: B -> A: fair server: budget used up
            placed 4 x pinned
        "#]],
    )
}
