//! `/proc/schedstat` of a run: what is counted where, and the layout of each version.

mod scenario;

use scenario::Scenario;
use std::collections::BTreeMap;
use vruntime::base::{Cpu, EventKind};
use vruntime::kernel::schedstat::Schedstat;
use vruntime::report::schedstat_text;

/// A, on CPU 2, is woken by B, on CPU 0, while H keeps CPU 2 busy; B's sleep ends by a timer of its
/// own CPU. Cores are {0,4} {1,5} {2,6} {3,7}, all in one cache.
const WAKES: &str = "1x4x2 KERNEL, 12 ms
    A on 2: wait 0, run 1ms
    H on 2: run 20ms
    B on 0: until 6ms, wake 0, run 1ms";

fn schedstat(kernel: &str, text: &str) -> Schedstat {
    Scenario::parse(&text.replace("KERNEL", kernel)).record().schedstat.unwrap()
}

#[test]
fn wakeups_count_at_the_waker_and_at_the_lowest_domain_with_the_target() {
    let s = schedstat("v6.1", WAKES);
    let cpu = |c: usize| (s.cpus[c].ttwu_count, s.cpus[c].ttwu_local);
    assert_eq!((cpu(0), cpu(2)), ((2, 1), (0, 0)));
    let remote: Vec<_> =
        s.domains.iter().filter(|d| d.wakes.ttwu_wake_remote > 0).map(|d| d.cpu.0).collect();
    assert_eq!(remote, [0]);
    let of_0: Vec<_> = s.domains.iter().filter(|d| d.cpu.0 == 0).collect();
    let remote: Vec<_> = of_0.iter().map(|d| (d.name, d.wakes.ttwu_wake_remote)).collect();
    assert_eq!(remote, [("SMT", 0), ("MC", 1)]);
}

/// Two tasks share CPU 1 for 12 ms but for what booting takes, and neither may leave it: one of
/// them waits at any moment, and each switch lets another one begin. Who has it at the end has not
/// left it yet (`sched_info_depart`), nor has who never does.
#[test]
fn time_on_the_queue_is_time_run_or_waited() {
    let text = "uma-2 v6.1, 30 ms\n    A on 1: run 40ms\n    B on 1: run 40ms";
    let record = Scenario::parse(text).record();
    // Since when who waits has waited, and who runs has run.
    let (mut queued, mut begun) = (BTreeMap::new(), None);
    let (mut ran, mut waited, mut switches) = (0, 0, 0);
    for e in record.timeline.iter() {
        let now = e.time.0;
        if e.kind == EventKind::WakeupNew {
            queued.insert(e.task.0, now);
        }
        if e.kind == EventKind::Switch && e.cpu == Cpu(1) {
            ran += begun.map_or(0, |then| now - then);
            queued.insert(e.task.0, now);
            waited += now - queued[&e.a];
            begun = Some(now);
            switches += 1;
        }
    }
    assert!(switches > 3);
    let s = record.schedstat.unwrap();
    let c = s.cpus[1];
    assert_eq!((c.rq_cpu_time, c.run_delay, c.pcount), (ran, waited, switches));
    assert_eq!((c.yld_count, c.sched_count, s.cpus[0].rq_cpu_time), (0, switches, 0));
    assert_eq!((c.yld_count, s.cpus[0].rq_cpu_time), (0, 0));
    let s = schedstat("v6.1", "uma-2 KERNEL, 12 ms\n    A on 1: run 20ms");
    assert_eq!((s.cpus[1].rq_cpu_time, s.cpus[1].pcount), (0, 1));
}

#[test]
fn a_wakee_that_is_pulled_counts_as_moved_affine() {
    // A writer is about to sleep (sync) and alone on CPU 1: A, whose CPU 0 is busy, goes there.
    let text = "uma-2 KERNEL, 12 ms
        A: read 0, run 1ms
        H on 0: run 20ms
        B on 1: until 6ms, write 0";
    let s = schedstat("v6.1", text);
    let moved: Vec<_> = s.domains.iter().map(|d| (d.cpu.0, d.wakes.ttwu_move_affine)).collect();
    assert_eq!(moved, [(0, 0), (1, 1)]);
}

/// Numbers in a line of a kernel that prints the version, by the first letters of the line.
fn columns(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().map(|l| {
        let word = l.split(' ').next().unwrap();
        (word.trim_end_matches(|c: char| c.is_ascii_digit()), l.split(' ').count())
    });
    lines.collect()
}

#[test]
fn the_layout_is_that_of_the_release() {
    // The beginnings of recorded files.
    const V15: &str = "version 15
timestamp 4294897225
cpu0 0 0 1092 425 462 302 5264318484 656184676 1224
domain0 f 267 261 5 10 1 0 0 261 26 26 0 0 0 0 0 26 29 26 2 4 1 0 0 26 0 0 0 0 0 0 0 0 0 160 58 0";
    const V16: &str = "version 16
timestamp 4294896599
cpu0 0 0 536 239 265 118 2104722908 782979259 1118
domain0 3 12 12 0 0 0 0 0 12 416 416 0 1 0 0 0 415 47 45 1 2 1 0 0 45 0 0 0 0 0 0 0 0 0 2 0 0";
    const V17: &str = "version 17
timestamp 4294896223
cpu0 0 0 1148 476 388 185 1250081400 537502441 1167
domain0 MC f 5 5 0 0 0 0 0 0 0 1 4 214 200 13 0 0 15 0 1 0 0 200 21 14 4 0 0 8 0 3 0 0 14 0 0 0 \
0 0 0 0 0 0 203 28 0";
    for (kernel, real) in [("v6.1", V15), ("v6.12", V16), ("v6.18", V17)] {
        let text = schedstat_text(&schedstat(kernel, WAKES));
        assert_eq!(columns(&text), columns(real), "{text}");
        assert_eq!(text.lines().next(), real.lines().next());
        assert_eq!(text.lines().filter(|l| l.starts_with("domain")).count(), 16);
    }
    let text = schedstat_text(&schedstat("v6.18", WAKES));
    assert!(text.contains("\ndomain0 SMT 11 ") && text.contains("\ndomain1 MC ff "), "{text}");
}
