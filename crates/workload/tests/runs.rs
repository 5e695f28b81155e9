//! Does every workload do on the model what its tool would have done?

use vruntime_base::{Func, Ns};
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::machine_file::builtin_machine;
use vruntime_kernel::record::{RunRecord, RunSpec, Sampling};
use vruntime_kernel::simulate::run;
use vruntime_workload::workloads;

/// A whole run on two CPUs.
fn whole(command: &str) -> RunRecord {
    sampled(command, Sampling::Full { limit: Ns::from_ms(60_000) })
}

fn sampled(command: &str, sampling: Sampling) -> RunRecord {
    let spec = RunSpec {
        sampling,
        checks: true,
        ..RunSpec::new(
            builtin_machine("uma-2").unwrap(),
            kernel("v6.1").unwrap().release,
            vruntime_workload::parse(command).unwrap(),
        )
    };
    run(&spec).unwrap()
}

/// The run ends by itself, with this many tasks and, for each group, this many messages.
fn does(command: &str, tasks: usize, groups: &[u64]) {
    let r = whole(command);
    assert!(r.complete && r.time.is_some(), "{command}: not complete");
    assert_eq!(r.nr_tasks, tasks, "{command}: tasks");
    let done: Vec<u64> = r.groups.iter().map(|g| g.at_window_end).collect();
    let goals: Vec<u64> = r.groups.iter().map(|g| g.goal).collect();
    assert_eq!((done.as_slice(), goals.as_slice()), (groups, groups), "{command}");
}

#[test]
fn messaging() {
    does("hackbench -g 2 -f 3 -l 50", 13, &[450, 450]);
    does("hackbench -g 2 -f 3 -l 50 --pipe --threads", 13, &[450, 450]);
    does("hackbench -g 1 -f 2 -l 50 --pipe --fifo", 5, &[200]);
    does("perf bench sched messaging -g 1 -l 5", 41, &[2000]);
}

#[test]
fn ping_pong() {
    does("perf bench sched pipe -l 100", 2, &[200]);
    does("perf bench sched pipe -l 100 -T", 3, &[200]);
    does("taskset -c 1 perf bench sched pipe -l 100", 2, &[200]);
    does("perf bench sched pipe -l 100 -G a,b", 2, &[200]);
    does("taskset -c 1 perf bench sched pipe -l 100 -T -G top/a,top/b", 3, &[200]);
}

/// The ledger's idle time is what CPUs spent in idle states and on the way into them, in the whole
/// run as in a window that begins and ends in the middle of idle periods.
#[test]
fn idle_states_add_up() {
    let enter = u64::from(builtin_machine("uma-2").unwrap().costs.idle_enter.mid);
    let window = Sampling::Window { warmup: Ns::from_ms(3), window: Ns::from_ms(7) };
    for sampling in [Sampling::Full { limit: Ns::from_ms(60_000) }, window] {
        let r = sampled("perf bench sched pipe -l 5000", sampling);
        let booked = r.cpu_time.iter().find(|row| row.0 == Func::Idle).unwrap().2.0;
        let time: u64 = r.idle_states.iter().map(|u| u.time.0).sum();
        let entered: u64 = r.idle_states.iter().map(|u| u.entered).sum();
        let ways = (booked - time) / enter;
        assert!(entered > 100 && ways.abs_diff(entered) <= 2, "{ways}: {:?}", r.idle_states);
    }
}

/// Two messages a round trip, of which a repetition has 1,000.
#[test]
fn latencies() {
    does("lat_pipe -P 2 -N 1", 5, &[2000, 2000]);
    does("lat_unix -P 2 -N 1", 5, &[2000, 2000]);
    does("lat_unix -N 2", 3, &[4000]);
    does("cyclictest -t 2 -l 5", 3, &[]);
}

/// No workload is left out.
#[test]
fn each_has_a_case() {
    let cases = include_str!("runs.rs");
    let missing = workloads().filter(|w| !cases.contains(&format!("does(\"{} ", w.name)));
    assert_eq!(missing.map(|w| w.name).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn small_loads() {
    does("spin 3 10", 4, &[]);
    does("sleeper 3 1000 100 20", 4, &[]);
    does("nice -n 5 chrt -b 0 sleeper 3 1000 100 20", 4, &[]);
}

/// A window gets of a long computation what lies in it: 20 ms of one second on one of two CPUs,
/// and of tasks that compute for 5 ms now and then neither more nor less than all CPUs' time.
#[test]
fn a_window_has_its_part_of_long_computations() {
    let in_window = |command: &str| {
        let (warmup, window) = (Ns::from_ms(20), Ns::from_ms(20));
        let r = sampled(command, Sampling::Window { warmup, window });
        let sum = |what: &dyn Fn(Func) -> bool| {
            r.cpu_time.iter().filter(|row| what(row.0)).map(|row| row.2.0).sum::<u64>()
        };
        (sum(&|f| f == Func::User), sum(&|_| true))
    };
    let near = |found: u64, ns: u64| assert!(found.abs_diff(ns) < ns / 100, "{found}, not {ns}");
    let (user, all) = in_window("spin 1 1000");
    near(user, 20_000_000);
    near(all, 40_000_000);
    let (user, all) = in_window("sleeper 8 5000 4000 100");
    assert!(user > 30_000_000, "{user}");
    near(all, 40_000_000);
}

/// A window has all CPUs' time and no more, however short it is: what is planned when it begins or
/// ends, an exit from a deep idle state above all, is cut.
#[test]
fn a_short_window_has_exactly_its_time() {
    for (command, us) in
        [("hackbench -g 1 -l 1000", 10), ("hackbench --pipe -g 2 -l 1000", 1), ("spin 1 50", 40)]
    {
        for warmup in [Ns::ZERO, Ns::from_us(700), Ns::from_ms(10)] {
            let r = sampled(command, Sampling::Window { warmup, window: Ns::from_us(us) });
            let sum: u64 = r.cpu_time.iter().map(|row| row.2.0).sum();
            assert_eq!(sum, 2 * us * 1_000, "{command}, {warmup:?}");
        }
    }
}

/// Two switches an operation if both tasks share a CPU.
#[test]
fn ping_pong_on_one_cpu_switches_twice_an_operation() {
    let r = whole("taskset -c 1 perf bench sched pipe -l 1000");
    let switches = r.counters.context_switches;
    assert!((1_990..2_100).contains(&switches), "{switches}");
}

#[test]
fn small_and_page_sized_messages() {
    for size in [1, 1000, 4095, 4096] {
        does(&format!("hackbench -g 1 -f 2 -l 50 -s {size} --pipe"), 5, &[200]);
        does(&format!("hackbench -g 1 -f 2 -l 50 -s {size}"), 5, &[200]);
    }
}

#[test]
fn messages_of_many_pages() {
    for size in [5000, 8192, 65_536, 100_000, 1 << 20] {
        does(&format!("hackbench -g 1 -f 2 -l 50 -s {size}"), 5, &[200]);
    }
    for size in [5000, 8192, 65_536] {
        does(&format!("hackbench -g 1 -f 2 -l 50 -s {size} --pipe"), 5, &[200]);
    }
}

/// The tool reads on until it has a whole message.
#[test]
fn messages_larger_than_a_pipe() {
    for size in [100_000, 1 << 20] {
        does(&format!("hackbench -g 1 -f 2 -l 50 -s {size} --pipe"), 5, &[200]);
    }
}
