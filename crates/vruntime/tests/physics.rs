//! Physics: queueing wakeups outside a shared L2 changes nothing where there is nothing to gain.

mod scenario;

use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::formats::kernel_file::kernel;
use vruntime::kernel::record::{RunSpec, Sampling, Variation};
use vruntime::kernel::simulate::run;
use vruntime::machine::MachineSpec;
use vruntime::workload::parse;

/// Messages in a window under `llc` and `l2`, summed over seeds.
fn messages(machine: &MachineSpec, groups: u32) -> [f64; 2] {
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
                variation: Variation::default(),
                timeline: 0,
            };
            run(&spec).unwrap().counters.messages as f64
        };
        (1..=2).map(of_seed).sum()
    })
}

/// One group fits the machine: every wakeup finds an idle CPU, whose wakees are queued anyway. The
/// two kernels do the same, to the message.
#[test]
fn one_group_sees_no_difference() {
    let [llc, l2] = messages(&scenario::machine("1x32x2"), 1);
    assert!(llc > 100_000.0 && llc == l2, "{llc} and {l2}");
}
