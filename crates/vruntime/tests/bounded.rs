//! Does anything grow with simulated time? In its own process, because it counts allocations.

use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::bench::{CountingAllocator, allocations};
use vruntime::formats::{kernel_file::kernel, machine_file::builtin_machine};
use vruntime::kernel::record::{RunSpec, Sampling};
use vruntime::kernel::simulate::run;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allocations and events of a run with this window.
fn count(window_ms: u64) -> (u64, u64) {
    let spec = RunSpec {
        machine: Arc::new(builtin_machine("uma-2").unwrap()),
        release: Arc::new(kernel("v6.1").unwrap().release),
        workload: vruntime::workload::parse("hackbench -g 1 --pipe --threads -l 1000000").unwrap(),
        seed: 1,
        sampling: Sampling::Window { warmup: Ns::from_ms(20), window: Ns::from_ms(window_ms) },
        variation: Default::default(),
        timeline: 0,
        schedstat: false,
        checks: false,
    };
    let before = allocations();
    let record = run(&spec).unwrap();
    (allocations() - before, record.events)
}

#[test]
fn a_longer_run_allocates_no_more_than_a_shorter_one() {
    let (short, long) = (count(20), count(220));
    let events = long.1 - short.1;
    let more = long.0.saturating_sub(short.0);
    assert!(events > 10_000, "{events} events");
    assert!(more * 1_000 < events, "{more} allocations in {events} events");
}
