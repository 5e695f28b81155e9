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
        timeline_of_window: false,
        schedstat: false,
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

/// Neither the checkers, which look at every CPU each millisecond, nor where the window opens.
#[test]
fn what_looks_on_changes_nothing() {
    for workload in ["hackbench -g 2 -f 4 -l 40", "sleeper 3 20000 100 10"] {
        let spec = RunSpec {
            seed: 3,
            sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
            ..RunSpec::new(
                builtin_machine("uma-8").unwrap(),
                kernel("v6.12").unwrap().release,
                vruntime::workload::parse(workload).unwrap(),
            )
        };
        let plain = run(&spec).unwrap();
        let watched = RunSpec { checks: true, timeline: 1_000_000, ..spec.clone() };
        let watched = run(&watched).unwrap();
        assert_eq!((plain.hash, &plain.counters), (watched.hash, &watched.counters));
        assert_eq!((plain.time, &plain.cpu_time), (watched.time, &watched.cpu_time));
        let opened_at = |warmup| {
            let window = Ns::from_ms(5_000);
            run(&RunSpec { sampling: Sampling::Window { warmup, window }, ..spec.clone() }).unwrap()
        };
        let (early, late) = (opened_at(Ns::ZERO), opened_at(Ns::from_us(1_500)));
        assert_eq!((early.hash, early.time), (late.hash, late.time), "{workload}");
    }
}

/// A frozen summary. If it moves, the change belongs into the CHANGELOG's "Results may differ".
#[track_caller]
fn golden(machine: &str, release: &str, workload: &str, expected: Expect) {
    let record = run(&RunSpec {
        sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
        checks: true,
        ..RunSpec::new(
            builtin_machine(machine).unwrap(),
            kernel(release).unwrap().release,
            vruntime::workload::parse(workload).unwrap(),
        )
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
            time 7218 us
            switches 119, voluntary 72, involuntary 21; migrations 22
            wakeups 72, local 17, queued 36; ipis 20; messages 64000
                 4 switch: blocks: no room to write
                50 switch: blocks: nothing to read
                 2 switch: blocks: waits for a child
                16 switch: exits
                26 switch: idle: task woken
                21 switch: wakeup: vruntime beyond granularity
                 4 placement: idle CPU in scan
                16 placement: prev idle
                 1 placement: recent_used_cpu idle
                43 placement: target (nothing idle)
                 1 placement: target idle
                 4 migration: idle CPU in scan
                 5 migration: newidle balance, MC
                 1 migration: recent_used_cpu idle
                14 migration: target (nothing idle)
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
            time 6428 us
            switches 46, voluntary 28, involuntary 2; migrations 10
            wakeups 28, local 4, queued 23; ipis 3; messages 64000
                 5 switch: blocks: no room to write
                 4 switch: blocks: nothing to read
                 3 switch: blocks: waits for a child
                16 switch: exits
                16 switch: idle: task woken
                 2 switch: slice ended
                 3 placement: idle CPU in scan
                 8 placement: prev idle
                 1 placement: recent_used_cpu idle
                11 placement: target (nothing idle)
                 4 placement: target idle
                 3 migration: idle CPU in scan
                 3 migration: newidle balance, MC
                 1 migration: recent_used_cpu idle
                 4 migration: target (nothing idle)
        "#]],
    );
}
