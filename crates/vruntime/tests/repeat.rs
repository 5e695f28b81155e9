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
            time 14936 us
            switches 18793, voluntary 11853, involuntary 2948; migrations 856
            wakeups 11923, local 5700, queued 4211; ipis 1999; messages 64000
                73 switch: blocks: no room to write
             11751 switch: blocks: nothing to read
                 3 switch: blocks: pipe mutex
                10 switch: blocks: waits for a child
                16 switch: exits
              3992 switch: idle: task woken
              2948 switch: wakeup: vruntime beyond granularity
                51 placement: idle CPU in scan
                17 placement: prev idle
                 3 placement: recent_used_cpu idle
              3817 placement: target (no scan)
              3271 placement: target (nothing idle)
               801 placement: target (scan limit)
              3113 placement: target idle
                51 migration: idle CPU in scan
                19 migration: newidle balance, MC
                 3 migration: recent_used_cpu idle
                96 migration: target (no scan)
               687 migration: target (nothing idle)
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
            time 10157 us
            switches 4135, voluntary 2164, involuntary 1063; migrations 468
            wakeups 2172, local 1833, queued 930; ipis 198; messages 64000
               104 switch: blocks: no room to write
              2032 switch: blocks: nothing to read
                12 switch: blocks: waits for a child
                16 switch: exits
               908 switch: idle: task woken
              1063 switch: wakeup: wakee is picked
                18 placement: idle CPU in scan
                98 placement: prev idle
                 2 placement: recent_used_cpu idle
               366 placement: target (no scan)
               647 placement: target (nothing idle)
               646 placement: target idle
                18 migration: idle CPU in scan
                13 migration: newidle balance, MC
                 2 migration: recent_used_cpu idle
                29 migration: target (no scan)
               406 migration: target (nothing idle)
        "#]],
    );
}
