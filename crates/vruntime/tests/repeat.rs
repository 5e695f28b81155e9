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
            time 16703 us
            switches 29396, voluntary 16166, involuntary 5264; migrations 789
            wakeups 16247, local 11463, queued 8111; ipis 2363; messages 64000
                49 switch: blocks: no room to write
             16089 switch: blocks: nothing to read
                 5 switch: blocks: pipe mutex
                 7 switch: blocks: waits for a child
                16 switch: exits
              7966 switch: idle: task woken
              5264 switch: wakeup: vruntime beyond granularity
                54 placement: idle CPU in scan
                 6 placement: prev idle
                 5 placement: recent_used_cpu idle
              3194 placement: target (no scan)
              4058 placement: target (nothing idle)
               950 placement: target (scan limit)
              6995 placement: target idle
                54 migration: idle CPU in scan
                22 migration: newidle balance, MC
                 5 migration: recent_used_cpu idle
                 4 migration: target (no scan)
               704 migration: target (nothing idle)
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
            time 8352 us
            switches 2423, voluntary 1337, involuntary 849; migrations 507
            wakeups 1362, local 937, queued 260; ipis 336; messages 64000
               361 switch: blocks: no room to write
               952 switch: blocks: nothing to read
                 8 switch: blocks: waits for a child
                16 switch: exits
               237 switch: idle: task woken
               848 switch: wakeup: wakee is picked
                 1 switch: woken before it slept
                19 placement: idle CPU in scan
                36 placement: prev idle
                 1 placement: recent_used_cpu idle
               306 placement: target (no scan)
               586 placement: target (nothing idle)
                41 placement: target idle
                19 migration: idle CPU in scan
                11 migration: newidle balance, MC
                 1 migration: recent_used_cpu idle
               133 migration: target (no scan)
               343 migration: target (nothing idle)
        "#]],
    );
}
