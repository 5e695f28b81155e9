//! Timers: when does a sleeper wake, and what does cyclictest see of it?

mod scenario;

use expect_test::expect;
use scenario::check;
use vruntime::base::Ns;
use vruntime::formats::{kernel_file::kernel, machine_file::builtin_machine};
use vruntime::kernel::program::Latency;
use vruntime::kernel::record::{RunRecord, RunSpec};
use vruntime::kernel::simulate::run;

/// Both may be 3.5 ms late. A's CPU has nothing else to do: A wakes at 6 + 3.5 ms. On B's CPU H
/// runs, and with it ticks each ms: the one at 6 ms finds that B may wake. C is real-time and has
/// no slack.
#[test]
fn a_sleeper_wakes_with_the_first_interrupt_within_its_slack() {
    check(
        "uma-8 v6.12+hz=1000+timer_slack_ns=3500000, 12 ms
        A on 0: until 6ms, run 1ms
        B on 2 batch: until 6ms, run 1ms
        C on 4 fifo 10: until 6ms, run 1ms
        H on 2 idle: run 20ms",
        expect![[r#"
                  0         10
            cpu 0 ..........A.
            cpu 1 ............
            cpu 2 .HHHHHBHHHHH
            cpu 3 ............
            cpu 4 ......C.....
            cpu 5 ............
            cpu 6 ............
            cpu 7 ............
               1.0 ms  cpu 4: . -> C: idle: task woken
               1.0 ms  cpu 0: . -> A: idle: task woken
               1.0 ms  cpu 2: . -> B: idle: task woken
               1.0 ms  cpu 4: C -> .: blocks: timer
               1.0 ms  cpu 0: A -> .: blocks: timer
               1.0 ms  cpu 2: B -> H: blocks: timer
               6.0 ms  cpu 2: H -> B: wakeup: SCHED_IDLE is running
               6.0 ms  cpu 4: . -> C: idle: task woken
               7.1 ms  cpu 2: B -> H: exits
               7.1 ms  cpu 4: C -> .: exits
               9.5 ms  cpu 0: . -> A: idle: task woken
              10.6 ms  cpu 0: A -> .: exits
            placed 7 x pinned
        "#]],
    );
}

/// The latencies that `words` measures on `machine`, from its start to its end.
fn cyclictest(machine: &str, kernel_name: &str, words: &str) -> Vec<Latency> {
    ran(machine, kernel_name, words).latencies
}

fn ran(machine: &str, kernel_name: &str, words: &str) -> RunRecord {
    let r = run(&RunSpec {
        checks: true,
        ..RunSpec::new(
            builtin_machine(machine).unwrap(),
            kernel(kernel_name).unwrap().release,
            vruntime::workload::parse(&format!("cyclictest {words}")).unwrap(),
        )
    })
    .unwrap();
    assert!(r.complete);
    r
}

/// Nobody else is there: a real-time thread is late by what an interrupt, a wakeup and a switch
/// take, a few microseconds; another one by its slack on top, and exactly by as much more as that
/// grows.
#[test]
fn without_load_the_latency_is_the_slack_and_a_switch() {
    let mean = |kernel, words| cyclictest("uma-2", kernel, words)[0].mean();
    let rt = mean("v6.12", "-p 80 -a 0 -l 500");
    assert!((Ns(500)..Ns(5_000)).contains(&rt), "{rt:?}");
    let other = mean("v6.12", "-a 0 -l 500");
    assert!((Ns(50_000)..Ns(55_000)).contains(&other), "{other:?}");
    let more = mean("v6.12+timer_slack_ns=70000", "-a 0 -l 500");
    assert!((more.0 - other.0).abs_diff(20_000) < 100, "{other:?} {more:?}");
}

/// `/dev/cpu_dma_latency` keeps CPUs out of deep idle states: with 0 us they poll; without a limit
/// now and then, when ticks have been far between, the timer finds the CPU in C6.
#[test]
fn deep_idle_states_cost_latency_unless_forbidden() {
    let mean = |words| cyclictest("spr-2s", "v6.12", words)[0].mean();
    let polling = mean("-p 80 -a 0 -i 10000 -l 100");
    let c1 = mean("-p 80 -a 0 -i 10000 -l 100 --latency=2");
    let deep = mean("-p 80 -a 0 -i 10000 -l 100 --default-system");
    assert!(polling < c1 && c1 + Ns(10_000) < deep, "{polling:?} {c1:?} {deep:?}");
}

/// The write that asks for 0 us wakes all idle CPUs, whatever runs on them: they poll, and a CPU
/// that polls keeps its tick.
#[test]
fn with_a_latency_of_zero_all_cpus_keep_their_ticks() {
    let ticks = |words| ran("uma-8", "v6.12+hz=250", words).counters.ticks;
    // 8 CPUs, 250 a second, a second; the threads' start and end are beside it.
    let polling = ticks("-t 1 -p 80 -i 1000 -l 1000");
    assert!((1_990..2_030).contains(&polling), "{polling}");
    let idle = ticks("-t 1 -p 80 -i 1000 -l 1000 --default-system");
    assert!((250..300).contains(&idle), "of the thread's CPU alone: {idle}");
}

/// Each thread of its own counts as many loops as fit into those of the first.
#[test]
fn every_thread_measures() {
    let all = cyclictest("uma-8", "v6.6", "-t 3 -p 80 --priospread -l 300");
    let counts: Vec<u64> = all.iter().map(|l| l.count).collect();
    assert_eq!(counts, [300, 200, 150]);
    for l in all {
        assert!(l.min <= l.mean() && l.mean() <= l.max && l.min <= l.last, "{l:?}");
        assert!(l.last <= l.max && l.sum_us * 1_000 <= l.sum.0, "{l:?}");
        assert!(l.sum.0 < (l.sum_us + l.count) * 1_000, "each loop in whole microseconds: {l:?}");
    }
}
