//! Physics: does queueing wakeups outside a shared L2 help where, and only where, there is
//! something to gain?
//!
//! The gain is how many more messages a second pass with `ttwu_queue=l2` than with `llc`.

mod scenario;

use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::formats::kernel_file::kernel;
use vruntime::kernel::record::{Knockout, RunSpec, Sampling, Variation};
use vruntime::kernel::simulate::run;
use vruntime::machine::MachineSpec;
use vruntime::workload::parse;

/// Messages in a window under `llc` and `l2`, summed over seeds.
fn messages(machine: &MachineSpec, groups: u32, without: &[Knockout]) -> [f64; 2] {
    ["llc", "l2"].map(|queue| {
        let of_seed = |seed| {
            let spec = RunSpec {
                machine: Arc::new(machine.clone()),
                release: Arc::new(kernel(&format!("v6.1+ttwu_queue={queue}")).unwrap().release),
                workload: parse(&format!("hackbench -g {groups} -f 10 --pipe --threads -l 100000"))
                    .unwrap(),
                seed,
                sampling: Sampling::Window { warmup: Ns::from_ms(40), window: Ns::from_ms(60) },
                checks: false,
                variation: Variation {
                    without: without.iter().copied().collect(),
                    ..Variation::default()
                },
                timeline: 0,
            };
            run(&spec).unwrap().counters.messages as f64
        };
        (1..=2).map(of_seed).sum()
    })
}

/// Gain in percent.
fn gain(machine: &MachineSpec, groups: u32, without: &[Knockout]) -> f64 {
    let [llc, l2] = messages(machine, groups, without);
    100.0 * (l2 - llc) / llc
}

/// The machine with its lines `factor`/4 as far away from one another.
fn stretched(name: &str, factor: u32) -> MachineSpec {
    let mut m = scenario::machine(name);
    let t = &mut m.costs.line_transfer;
    for cost in [&mut t.llc, &mut t.package, &mut t.remote] {
        (cost.low, cost.mid, cost.high) =
            (cost.low * factor / 4, cost.mid * factor / 4, cost.high * factor / 4);
    }
    m
}

/// One group fits the machine: every wakeup finds an idle CPU, whose wakees are queued anyway. The
/// two kernels do the same, to the message.
#[test]
fn one_group_sees_no_difference() {
    let [llc, l2] = messages(&stretched("1x32x2", 4), 1, &[]);
    assert!(llc > 100_000.0 && llc == l2, "{llc} and {l2}");
}

/// Nothing to contend for, nothing to save: what is left is the noise of another schedule.
#[test]
fn without_contention_the_kernels_tie() {
    let gain = gain(&stretched("1x32x2", 4), 6, Knockout::ALL);
    assert!(gain.abs() < 2.0, "{gain:.2} %");
}

/// Lines four times as far away make remote enqueues and lock hand-overs dearer.
#[test]
fn more_distance_gives_a_larger_gain() {
    let [near, far] = [4, 16].map(|factor| gain(&stretched("1x32x2", factor), 12, &[]));
    assert!(far > near, "{near:.2} % and {far:.2} %");
}
