//! Switches: what does a switch of a release change, in situations small enough to check by hand?
//!
//! Each test is one that `mutants.rs` finds to fail when the switch is the other way round.

mod scenario;

use expect_test::expect;
use scenario::{PING_PONG, Scenario, check};

/// Groups of one and of nine tasks. Ten tasks make a period of 10 · 1.5 = 15 ms (scaled: 1.5 ms is
/// twice 0.75), half of which is A's; eight ticks of 1 ms are the first that exceed 7.5 ms. With
/// `alt_period` off the root queue counts its two groups: 12 ms, 6 ms, seven ticks.
#[test]
fn cfs_the_period_counts_the_tasks_of_all_groups() {
    check(
        "uma-2 v6.1+hz=1000, 32 ms
        A on 0 group 1: run 40ms
        B on 0 group 2: run 40ms
        C on 0 group 2: run 40ms
        D on 0 group 2: run 40ms
        E on 0 group 2: run 40ms
        F on 0 group 2: run 40ms
        G on 0 group 2: run 40ms
        H on 0 group 2: run 40ms
        I on 0 group 2: run 40ms
        J on 0 group 2: run 40ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAAABBCCDDEEAAAAAAAAFFGGHHI
            cpu 1 ................................
               1.0 ms  cpu 0: . -> A: idle: task woken
               9.0 ms  cpu 0: A -> B: tick: slice used up
              11.0 ms  cpu 0: B -> C: tick: slice used up
              13.0 ms  cpu 0: C -> D: tick: slice used up
              15.0 ms  cpu 0: D -> E: tick: slice used up
              17.0 ms  cpu 0: E -> A: tick: slice used up
              25.0 ms  cpu 0: A -> F: tick: slice used up
              27.0 ms  cpu 0: F -> G: tick: slice used up
              29.0 ms  cpu 0: G -> H: tick: slice used up
              31.0 ms  cpu 0: H -> I: tick: slice used up
            placed 10 x pinned
        "#]],
    )
}

/// Weights 88761 and nine of 1024: of a period of 10 · 1.5 = 15 ms A has 13.6 ms, which 14 ticks
/// would exceed. 6.5 counts the latency of 12 ms at the most: 13 ticks.
#[test]
fn cfs_the_tick_caps_the_slice_at_the_latency() {
    check(
        "uma-2 v6.5+hz=1000-start_debit, 40 ms
        A on 0 nice -20: run 60ms
        B on 0: run 40ms
        C on 0: run 40ms
        D on 0: run 40ms
        E on 0: run 40ms
        F on 0: run 40ms
        G on 0: run 40ms
        H on 0: run 40ms
        I on 0: run 40ms
        J on 0: run 40ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAAAAAAAABBCCDDEEFFGGHHIIJJAAAAAAAA
            cpu 1 ........................................
               1.0 ms  cpu 0: . -> A: idle: task woken
              14.0 ms  cpu 0: A -> B: tick: slice used up
              16.0 ms  cpu 0: B -> C: tick: slice used up
              18.0 ms  cpu 0: C -> D: tick: slice used up
              20.0 ms  cpu 0: D -> E: tick: slice used up
              22.0 ms  cpu 0: E -> F: tick: slice used up
              24.0 ms  cpu 0: F -> G: tick: slice used up
              26.0 ms  cpu 0: G -> H: tick: slice used up
              28.0 ms  cpu 0: H -> I: tick: slice used up
              30.0 ms  cpu 0: I -> J: tick: slice used up
              32.0 ms  cpu 0: J -> A: tick: slice used up
            placed 10 x pinned
        "#]],
    )
}

/// Ticks of 1 ms, slice 1.5 ms. Fork gives a new task half of it, but up to 6.10 the enqueue places
/// it once more, as no new task: two ticks from the first slice on (6.12: one at first).
#[test]
fn eevdf_a_new_task_had_a_whole_slice_up_to_6_10() {
    check(
        "uma-2 v6.10+hz=1000, 12 ms
        A on 0: run 10ms
        B on 0: run 10ms",
        expect![[r#"
                  0         10
            cpu 0 .AABBAABBAAB
            cpu 1 ............
               1.0 ms  cpu 0: . -> A: idle: task woken
               3.0 ms  cpu 0: A -> B: slice ended
               5.0 ms  cpu 0: B -> A: slice ended
               7.0 ms  cpu 0: A -> B: slice ended
               9.0 ms  cpu 0: B -> A: slice ended
              11.0 ms  cpu 0: A -> B: slice ended
            placed 2 x pinned
        "#]],
    )
}

/// The same with the first EEVDF.
#[test]
fn eevdf_a_new_task_had_a_whole_slice_from_the_beginning() {
    check(
        "uma-2 v6.6+hz=1000, 8 ms
        A on 0: run 10ms
        B on 0: run 10ms",
        expect![[r#"
                  0
            cpu 0 .AABBAAB
            cpu 1 ........
               1.0 ms  cpu 0: . -> A: idle: task woken
               3.0 ms  cpu 0: A -> B: slice ended
               5.0 ms  cpu 0: B -> A: slice ended
               7.0 ms  cpu 0: A -> B: slice ended
            placed 2 x pinned
        "#]],
    )
}

/// A is SCHED_IDLE, but where the paths of A and B meet stands A's group, which is not: B has to
/// wait for the tick. In 6.6 the task alone counted and B would run at once.
#[test]
fn eevdf_an_idle_task_counts_as_idle_only_among_its_siblings() {
    check(
        "uma-2 v6.12, 24 ms
        A on 0 group 1 idle: run 40ms
        B on 0: until 9ms, run 500us",
        expect![[r#"
                  0         10        20
            cpu 0 .AAAAAAAAAAABAAAAAAAAAAA
            cpu 1 ........................
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> A: blocks: timer
              12.0 ms  cpu 0: A -> B: slice ended
              12.6 ms  cpu 0: B -> A: exits
            placed 3 x pinned
        "#]],
    )
}

/// B may use one CPU of the other node and both of this one, CPU 0 of which A has. One idle allowed
/// CPU here, one there: B stays. If the forbidden CPU 3 counted, the other node would have two and
/// win.
#[test]
fn a_group_is_as_idle_as_its_allowed_cpus() {
    check(
        "2x2x1 v6.1, 8 ms
        A: run 1ms
        B on 0-2: run 3ms",
        expect![[r#"
                  0
            cpu 0 .A......
            cpu 1 .BBB....
            cpu 2 ........
            cpu 3 ........
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: . -> B: idle: task woken
               2.1 ms  cpu 0: A -> .: exits
               4.2 ms  cpu 1: B -> .: exits
            placed 1 x slow path: idle CPU
            placed 1 x slow path: local group idlest
        "#]],
    )
}

/// CPU 1 has been idle for 100 us again and again, which keeps its tick on – but not for the whole
/// of a sleep of 100 ms.
#[test]
fn a_tick_that_finds_its_cpu_idle_again_and_again_stops() {
    let short = "sleep 100us, ".repeat(30);
    let text = format!("uma-2 v6.1+hz=1000, 110 ms\nA on 1: {short}sleep 100ms\nprint ticks");
    let outcome = Scenario::parse(&text).outcome();
    let ticks: u64 = figure(&outcome, "ticks");
    assert!((3..20).contains(&ticks), "{outcome}");
}

/// The printed counter `name` of an outcome.
fn figure(outcome: &str, name: &str) -> u64 {
    let line = outcome.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{name}: {outcome}"))
}

/// A call of `sched_yield` goes back to user mode as any other.
#[test]
fn a_yield_is_a_system_call() {
    let calls = |text: &str| {
        figure(&Scenario::parse(&format!("{text}\nprint syscalls")).outcome(), "syscalls")
    };
    let none = calls("uma-2 v6.1, 4 ms\nA on 0: run 100us");
    assert_eq!(calls("uma-2 v6.1, 4 ms\nA on 0: run 50us, yield, yield, run 50us"), none + 2);
}

/// No cache is shared, so B does not take the lock of A's queue but puts A on CPU 1's list.
#[test]
fn a_wakeup_across_a_cache_goes_through_the_wake_list() {
    check(
        "2x1x1 v6.1, 8 ms
        A on 1: wait 0, run 500us
        B on 0: until 3ms, wake 0, run 1ms
        print wakeups_queued",
        expect![[r#"
                  0
            cpu 0 ...B....
            cpu 1 ...A....
               1.1 ms  cpu 1: . -> A: idle: task woken
               1.1 ms  cpu 0: . -> B: idle: task woken
               1.1 ms  cpu 0: B -> .: blocks: timer
               1.1 ms  cpu 1: A -> .: blocks: futex
               3.1 ms  cpu 0: . -> B: idle: task woken
               3.1 ms  cpu 1: . -> A: idle: task woken
               3.7 ms  cpu 1: A -> .: exits
               4.1 ms  cpu 0: B -> .: exits
            placed 4 x pinned
            wakeups_queued: 1
        "#]],
    )
}

/// In 6.1 such a wakeup takes the list within a cache too, as A's CPU runs nothing. In 5.7 B takes
/// the lock of the queue.
#[test]
fn a_wakeup_within_the_cache_took_the_lock() {
    check(
        "uma-2 v5.7, 6 ms
        A on 1: wait 0, run 500us
        B on 0: until 3ms, wake 0, run 1ms
        print wakeups_queued",
        expect![[r#"
                  0
            cpu 0 ...B..
            cpu 1 ...A..
               1.0 ms  cpu 1: . -> A: idle: task woken
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  cpu 0: B -> .: blocks: timer
               1.0 ms  cpu 1: A -> .: blocks: futex
               3.0 ms  cpu 0: . -> B: idle: task woken
               3.1 ms  cpu 1: . -> A: idle: task woken
               3.6 ms  cpu 1: A -> .: exits
               4.1 ms  cpu 0: B -> .: exits
            placed 4 x pinned
            wakeups_queued: 0
        "#]],
    )
}

/// Both are on the list before CPU 1 is out of its idle state. First come, first enqueued: A, which
/// then has the same deadline as C: each was alone when it went to sleep, and so is owed nothing.
#[test]
fn the_wake_list_is_served_in_order() {
    check(
        "2x1x1 v6.12, 72 ms
        A on 1: until 3ms, wait 0, run 1ms
        C on 1: until 5ms, wait 1, run 1ms
        B on 0: until 65ms, wake 0, wake 1, run 1ms
        print wakeups_queued",
        expect![[r#"
                  0         10        20        30        40        50        60        70
            cpu 0 .................................................................B......
            cpu 1 .................................................................AC.....
               1.1 ms  cpu 0: . -> B: idle: task woken
               1.1 ms  cpu 1: . -> A: idle: task woken
               1.1 ms  cpu 0: B -> .: blocks: timer
               1.1 ms  cpu 1: A -> C: blocks: timer
               1.1 ms  cpu 1: C -> .: blocks: timer
               3.1 ms  cpu 1: . -> A: idle: task woken
               3.1 ms  cpu 1: A -> .: blocks: futex
               5.1 ms  cpu 1: . -> C: idle: task woken
               5.1 ms  cpu 1: C -> .: blocks: futex
              65.1 ms  cpu 0: . -> B: idle: task woken
              65.1 ms  cpu 1: . -> A: idle: task woken
              66.1 ms  cpu 0: B -> .: exits
              66.2 ms  cpu 1: A -> C: exits
              67.3 ms  cpu 1: C -> .: exits
            placed 8 x pinned
            wakeups_queued: 2
        "#]],
    )
}

/// The same list newest first. D ran on CPU 1 meanwhile, so that both sleepers are placed at the
/// same point, half a latency before the queue's reference point.
#[test]
fn the_wake_list_was_served_newest_first() {
    check(
        "2x1x1 v5.7, 72 ms
        A on 1: wait 0, run 1ms
        C on 1: wait 1, run 1ms
        D on 1: until 5ms, run 30ms
        B on 0: until 65ms, wake 0, wake 1, run 1ms",
        expect![[r#"
                  0         10        20        30        40        50        60        70
            cpu 0 .................................................................B......
            cpu 1 .....DDDDDDDDDDDDDDDDDDDDDDDDDDDDDD..............................CA.....
               1.1 ms  cpu 0: . -> B: idle: task woken
               1.1 ms  cpu 1: . -> A: idle: task woken
               1.1 ms  cpu 0: B -> .: blocks: timer
               1.1 ms  cpu 1: A -> C: blocks: futex
               1.1 ms  cpu 1: C -> D: blocks: futex
               1.1 ms  cpu 1: D -> .: blocks: timer
               5.1 ms  cpu 1: . -> D: idle: task woken
              35.2 ms  cpu 1: D -> .: exits
              65.1 ms  cpu 0: . -> B: idle: task woken
              65.1 ms  cpu 1: . -> C: idle: task woken
              66.1 ms  cpu 0: B -> .: exits
              66.2 ms  cpu 1: C -> A: exits
              67.3 ms  cpu 1: A -> .: exits
            placed 8 x pinned
        "#]],
    )
}

/// The second message finds A on its way to sleep, still on its CPU: the wakeup is handed to that
/// CPU without waiting for it, and without a choice of CPU.
#[test]
fn a_wakee_that_has_not_left_its_cpu_is_left_to_it() {
    check(
        "2x1x1 v6.1, 4 ms
        A on 0: read 0, loop
        B on 1: run 200ns, write 0, run 200ns, write 0
        print wakeups_on_cpu, wakeups_queued",
        expect![[r#"
                  0
            cpu 0 ....
            cpu 1 ....
               1.1 ms  cpu 1: . -> B: idle: task woken
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> .: blocks: nothing to read
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 0: A -> .: blocks: nothing to read
               1.1 ms  cpu 1: B -> .: exits
            placed 2 x pinned
            wakeups_on_cpu: 1
            wakeups_queued: 1
        "#]],
    )
}

/// B sleeps at once. C and D wait behind A; CPU 1 takes C and stops, since something waits for it
/// now. Without CONFIG_PREEMPTION it would take D as well.
#[test]
fn newidle_of_a_preemptible_kernel_takes_one_task() {
    check(
        "2x1x1 v6.1, 24 ms
        A: run 40ms
        B: until 15ms, run 1ms
        C: run 3ms
        D: wait 1, run 200us",
        expect![[r#"
                  0         10        20
            cpu 0 .AAAAAAAAAAAAAAAAAAAAAAA
            cpu 1 .CCC...........B........
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 1: . -> B: idle: task woken
               1.1 ms  C moved 0 -> 1: newidle balance, NUMA
               1.1 ms  cpu 1: B -> C: blocks: timer
               4.2 ms  cpu 1: C -> .: exits
               8.0 ms  cpu 0: A -> D: tick: slice used up
               8.0 ms  cpu 0: D -> A: blocks: futex
              15.1 ms  cpu 1: . -> B: idle: task woken
              16.1 ms  cpu 1: B -> .: exits
            placed 1 x slow path: idle CPU
            placed 3 x slow path: local group idlest
            placed 1 x target idle
            migrated 1 x newidle balance, NUMA
        "#]],
    )
}

/// CPU n and n + 2 are a core. The other core is idle; the fourth pass without success asks the
/// stopper. Before 6.6 two tasks on the two threads of a core had a CPU each and were left alone.
#[test]
fn two_busy_threads_are_moved_to_an_idle_core() {
    check(
        "2x1x2 v6.12, 32 ms
        A: run 40ms
        B on 2: run 40ms",
        expect![[r#"
                  0         10        20        30
            cpu 0 .AAAAAAAAAAAAAAAAAAA............
            cpu 1 ....................AAAAAAAAAAAA
            cpu 2 .BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB
            cpu 3 ................................
               1.1 ms  cpu 0: . -> A: idle: task woken
               1.1 ms  cpu 2: . -> B: idle: task woken
              20.1 ms  cpu 0: A -> stopper: wakeup: higher class
              20.1 ms  A moved 0 -> 1: active balance, NUMA
              20.1 ms  cpu 0: stopper -> .: blocks: stopper has no work
              20.1 ms  cpu 1: . -> A: idle: task woken
            placed 2 x pinned
            placed 1 x slow path: local group idlest
            migrated 1 x active balance, NUMA
        "#]],
    )
}

/// C went to sleep beside A while ineligible and stays queued. Two on CPU 0, as 6.12 counts, is one
/// too many: CPU 1 pulls C and is its prev at 42 ms. Were it not counted, C would stay.
#[test]
fn newidle_sees_a_task_in_delayed_dequeue() {
    check(
        "uma-2 v6.12, 48 ms
        A idle: run 2ms
        B on 1 idle: run 500us
        C: until 42ms, run 500us",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 .AA.............................................
            cpu 1 .B........................................C.....
               1.0 ms  cpu 1: . -> B: idle: task woken
               1.0 ms  cpu 0: . -> C: idle: task woken
               1.0 ms  cpu 0: C -> A: blocks: timer
               1.6 ms  C moved 0 -> 1: newidle balance, MC
               1.6 ms  cpu 1: B -> .: exits
               3.1 ms  cpu 0: A -> .: exits
              42.1 ms  cpu 1: . -> C: idle: task woken
              42.6 ms  cpu 1: C -> .: exits
            placed 1 x pinned
            placed 2 x slow path: local group idlest
            placed 1 x target idle
            migrated 1 x newidle balance, MC
        "#]],
    )
}

/// As before, but CPU 1 is busy when C's timer, which stayed behind, fires on the idle CPU 0.
#[test]
fn an_interrupt_on_an_idle_cpu_takes_the_wakee() {
    check(
        "uma-2 v6.12, 48 ms
        A idle: run 2ms
        B on 1 idle: run 500us
        C: until 42ms, run 500us
        D on 1: until 20ms, run 40ms",
        expect![[r#"
                  0         10        20        30        40
            cpu 0 .AA.......................................C.....
            cpu 1 .B..................DDDDDDDDDDDDDDDDDDDDDDDDDDDD
               1.0 ms  cpu 1: . -> D: idle: task woken
               1.0 ms  cpu 0: . -> C: idle: task woken
               1.0 ms  cpu 1: D -> B: blocks: timer
               1.0 ms  cpu 0: C -> A: blocks: timer
               1.6 ms  C moved 0 -> 1: newidle balance, MC
               1.6 ms  cpu 1: B -> .: exits
               3.1 ms  cpu 0: A -> .: exits
              20.0 ms  cpu 1: . -> D: idle: task woken
              42.0 ms  C moved 1 -> 0: target idle
              42.0 ms  cpu 0: . -> C: idle: task woken
              42.6 ms  cpu 0: C -> .: exits
            placed 3 x pinned
            placed 2 x slow path: local group idlest
            placed 1 x target idle
            migrated 1 x newidle balance, MC
            migrated 1 x target idle
        "#]],
    )
}

/// B has a load of 1024, C one of a little less, since it began later, E one of 15 at the most.
/// 1024 + 15 against C's: more, but less than C's and half of 17 % above it. E goes to the waker;
/// without the bias it would stay.
#[test]
fn a_nearly_equal_load_favours_the_waker() {
    check(
        "uma-2 v6.1, 20 ms
        B on 0: run 11ms, wake 0, run 40ms
        E nice 19: wait 0, run 1ms
        C on 1: until 2ms, run 40ms",
        expect![[r#"
                  0         10
            cpu 0 .BBBBBBBBBBBBBBBEBBB
            cpu 1 ..CCCCCCCCCCCCCCCCCC
               1.0 ms  cpu 1: . -> C: idle: task woken
               1.0 ms  cpu 0: . -> B: idle: task woken
               1.0 ms  E moved 0 -> 1: newidle balance, MC
               1.0 ms  cpu 1: C -> E: blocks: timer
               1.0 ms  cpu 1: E -> .: blocks: futex
               2.0 ms  cpu 1: . -> C: idle: task woken
              12.0 ms  E moved 1 -> 0: target (no scan)
              16.0 ms  cpu 0: B -> E: tick: slice used up
              17.1 ms  cpu 0: E -> B: exits
            placed 3 x pinned
            placed 1 x slow path: local group idlest
            placed 1 x target (no scan)
            migrated 1 x newidle balance, MC
            migrated 1 x target (no scan)
        "#]],
    )
}

/// The autogroup of a task that exits is not its own any more: it goes to the root group, and its
/// CPU is to reschedule when it wakes its parent, as in recordings of 6.12.
#[test]
fn who_exits_has_left_its_autogroup_before_it_wakes_its_parent() {
    let wakings = |kernel: &str| {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("trace.txt");
        let made = assert_cmd::Command::cargo_bin("vruntime")
            .unwrap()
            .args(["run", "-q", "--full", "-m", "uma-2", "-k", kernel, "--trace"])
            .arg(&trace)
            .args(["-w", "hackbench -g 1 -f 1 -l 2"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let text = std::fs::read_to_string(&trace).unwrap();
        // Main is woken for the last time by the last of its children.
        let last = text.lines().rfind(|l| l.contains("sched_waking:") && l.contains("pid=3004"));
        last.expect("main is woken").split_whitespace().nth(2).unwrap().to_string()
    };
    for kernel in ["v6.1", "v6.12"] {
        assert!(wakings(kernel).contains('n'), "{kernel}");
        assert!(!wakings(&format!("{kernel}-autogroup")).contains('n'), "{kernel}");
    }
}

/// A asks for the other CPU alone. From 5.11 on it sleeps until the stopper has moved it, which
/// wakes it there; before, the stopper preempts it and puts it on the other queue.
#[test]
fn who_leaves_its_cpu_waits_for_the_stopper() {
    let text = "A on 0: run 2ms, pin 1, run 2ms";
    check(
        &format!("uma-2 v6.1, 6 ms\n{text}"),
        expect![[r#"
              0
        cpu 0 .AA...
        cpu 1 ...AA.
           1.0 ms  cpu 0: . -> A: idle: task woken
           3.0 ms  cpu 0: A -> stopper: blocks: waits for the stopper
           3.0 ms  A moved 0 -> 1: pinned
           3.0 ms  cpu 0: stopper -> .: blocks: stopper has no work
           3.1 ms  cpu 1: . -> A: idle: task woken
           5.1 ms  cpu 1: A -> .: exits
        placed 3 x pinned
        migrated 1 x pinned
    "#]],
    );
    check(
        &format!("uma-2 v5.7, 6 ms\n{text}"),
        expect![[r#"
              0
        cpu 0 .AA...
        cpu 1 ...AA.
           1.0 ms  cpu 0: . -> A: idle: task woken
           3.0 ms  cpu 0: A -> stopper: wakeup: higher class
           3.0 ms  A moved 0 -> 1: stopper: exec or affinity
           3.0 ms  cpu 0: stopper -> .: blocks: stopper has no work
           3.1 ms  cpu 1: . -> A: idle: task woken
           5.1 ms  cpu 1: A -> .: exits
        placed 2 x pinned
        migrated 1 x stopper: exec or affinity
    "#]],
    );
}

/// A, who is ahead of B, sleeps with its dequeue delayed: the stopper finds it on its queue and
/// puts it, delayed, on the other one, where it is woken.
#[test]
fn who_leaves_its_cpu_with_a_delayed_dequeue_is_moved_like_that() {
    check(
        "uma-2 v6.12, 12 ms
        A on 0: run 5ms, pin 1, run 2ms
        B on 0: run 8ms",
        expect![[r#"
                  0         10
            cpu 0 .AAABBBBAABB
            cpu 1 ..........AA
               1.0 ms  cpu 0: . -> A: idle: task woken
               4.0 ms  cpu 0: A -> B: slice ended
               8.0 ms  cpu 0: B -> A: slice ended
              10.0 ms  cpu 0: A -> stopper: blocks: waits for the stopper
              10.0 ms  A moved 0 -> 1: stopper: exec or affinity
              10.0 ms  cpu 0: stopper -> B: blocks: stopper has no work
              10.1 ms  cpu 1: . -> A: idle: task woken
            placed 3 x pinned
            migrated 1 x stopper: exec or affinity
            woken 1 x while queued
        "#]],
    );
}

/// Half of what is as short as the exit latency counts, so the last eight idle periods are 0 us.
/// To 6.5 the governor takes that for granted and enters C1; from 6.6 on it tells nothing, and one
/// stay in nine is in C6, which takes 40 us to leave.
#[test]
fn idle_periods_of_nothing_tell_nothing_from_6_6_on() {
    let [old, new] =
        PING_PONG.map(|text| figure(&Scenario::parse(text).outcome(), "context_switches"));
    assert!(old > new * 3 / 2, "{old} {new}");
}
