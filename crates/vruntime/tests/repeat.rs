//! Repeat: is a run a function of its specification, and does it still say what it said?

use expect_test::{Expect, expect};
use std::fmt::Write;
use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::batch::Batch;
use vruntime::formats::kernel_file::kernel;
use vruntime::formats::machine_file::builtin_machine;
use vruntime::kernel::record::{RunRecord, RunSpec, Sampling};
use vruntime::kernel::simulate::run;

fn batch(threads: usize) -> Vec<RunRecord> {
    let batch = Batch {
        timeline: 0,
        machine: Arc::new(builtin_machine("numa-48").unwrap()),
        kernels: ["v6.1", "v6.12"].map(|k| kernel(k).unwrap()).to_vec(),
        variation: Default::default(),
        workload: vruntime::workload::parse("hackbench -g 3 -f 5 --pipe --threads -l 40").unwrap(),
        seeds: (1..=4).collect(),
        sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
        threads,
        checks: false,
        quiet: true,
    };
    let Ok(records) = batch.run() else { panic!("the batch failed") };
    records.by_kernel.into_iter().flatten().collect()
}

#[test]
fn runs_are_the_same_on_any_number_of_threads_and_again() {
    let one = batch(1);
    for other in [batch(1), batch(2), batch(7)] {
        for (a, b) in one.iter().zip(&other) {
            assert_eq!((a.hash, a.time, &a.counters), (b.hash, b.time, &b.counters));
            assert_eq!((&a.switches, &a.cpu_time), (&b.switches, &b.cpu_time));
        }
    }
    let mut hashes: Vec<u64> = one.iter().map(|r| r.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), one.len(), "different specifications give different runs");
}

#[test]
fn what_looks_on_changes_nothing() {
    let spec = RunSpec {
        machine: Arc::new(builtin_machine("uma-8").unwrap()),
        release: Arc::new(kernel("v6.12").unwrap().release),
        workload: vruntime::workload::parse("hackbench -g 2 -f 4 -l 40").unwrap(),
        seed: 3,
        sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
        checks: false,
        variation: Default::default(),
        timeline: 0,
    };
    let plain = run(&spec).unwrap();
    let watched = run(&RunSpec { checks: true, timeline: 1_000_000, ..spec }).unwrap();
    assert_eq!(plain.counters, watched.counters);
    assert_eq!((plain.time, &plain.cpu_time), (watched.time, &watched.cpu_time));
}

/// A frozen summary. If it moves, the change belongs into the CHANGELOG's "Results may differ".
#[track_caller]
fn golden(machine: &str, release: &str, workload: &str, expected: Expect) {
    let record = run(&RunSpec {
        machine: Arc::new(builtin_machine(machine).unwrap()),
        release: Arc::new(kernel(release).unwrap().release),
        workload: vruntime::workload::parse(workload).unwrap(),
        seed: 1,
        sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
        checks: true,
        variation: Default::default(),
        timeline: 0,
    })
    .unwrap();
    let c = &record.counters;
    let mut text = format!("time {} us\n", record.time.unwrap().0 / 1_000);
    let _ = writeln!(
        text,
        "switches {}, voluntary {}, involuntary {}; migrations {}",
        c.context_switches, c.voluntary_switches, c.involuntary_switches, c.cpu_migrations
    );
    let _ = writeln!(
        text,
        "wakeups {}, local {}, queued {}; ipis {}; messages {}",
        c.wakeups, c.wakeups_local, c.wakeups_queued, c.ipis, c.messages
    );
    let causes = [&record.switches, &record.placements, &record.migrations];
    for (what, causes) in ["switch", "placement", "migration"].iter().zip(causes) {
        for (cause, n) in causes {
            let _ = writeln!(text, "{n:6} {what}: {cause}");
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn golden_hackbench_on_cfs() {
    golden(
        "uma-8",
        "v6.1",
        "hackbench -g 2 -f 4 --pipe --threads -l 2000",
        expect![[r#"
            time 17065 us
            switches 27680, voluntary 18720, involuntary 3137; migrations 1178
            wakeups 18816, local 1412, queued 6222; ipis 2467; messages 64000
                72 switch: blocks: no room to write
             18622 switch: blocks: nothing to read
                 3 switch: blocks: pipe mutex
                 7 switch: blocks: waits for a child
                16 switch: exits
              5823 switch: idle: task woken
              3137 switch: wakeup: vruntime beyond granularity
               302 placement: idle CPU in scan
                 4 placement: prev idle
               118 placement: recent_used_cpu idle
              5588 placement: target (no scan)
              5163 placement: target (nothing idle)
              2275 placement: target (scan limit)
              4497 placement: target idle
               302 migration: idle CPU in scan
                43 migration: newidle balance, MC
               118 migration: recent_used_cpu idle
                 1 migration: target (no scan)
               714 migration: target (nothing idle)
        "#]],
    );
}

#[test]
fn golden_hackbench_on_eevdf() {
    golden(
        "uma-8",
        "v6.12",
        "hackbench -g 2 -f 4 --pipe --threads -l 2000",
        expect![[r#"
            time 8384 us
            switches 2371, voluntary 1306, involuntary 856; migrations 640
            wakeups 1313, local 781, queued 235; ipis 230; messages 64000
               169 switch: blocks: no room to write
              1111 switch: blocks: nothing to read
                10 switch: blocks: waits for a child
                16 switch: exits
               209 switch: idle: task woken
               856 switch: wakeup: wakee is picked
                19 placement: idle CPU in scan
                38 placement: prev idle
                 1 placement: recent_used_cpu idle
               278 placement: target (no scan)
               606 placement: target (nothing idle)
                51 placement: target idle
                19 migration: idle CPU in scan
                22 migration: newidle balance, MC
                 1 migration: recent_used_cpu idle
               180 migration: target (no scan)
               418 migration: target (nothing idle)
        "#]],
    );
}
