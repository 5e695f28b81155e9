//! Does anything grow with simulated time? In its own process, because it counts allocations.

use vruntime::base::Ns;
use vruntime::bench::{CountingAllocator, allocations};
use vruntime::formats::{kernel_file::kernel, machine_file::builtin_machine};
use vruntime::kernel::record::{RunSpec, Sampling};
use vruntime::kernel::simulate::run;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Allocations and events of a run with this window.
fn count(machine: &str, release: &str, workload: &str, window_ms: u64) -> (u64, u64) {
    let spec = RunSpec {
        sampling: Sampling::Window { warmup: Ns::from_ms(100), window: Ns::from_ms(window_ms) },
        ..RunSpec::new(
            builtin_machine(machine).unwrap(),
            kernel(release).unwrap().release,
            vruntime::workload::parse(workload).unwrap(),
        )
    };
    let before = allocations();
    let record = run(&spec).unwrap();
    (allocations() - before, record.events)
}

/// A list may outgrow what it once needed (0 to 3 times in 12 million events when this was
/// written); nothing allocates by the event.
#[test]
fn a_longer_run_allocates_no_more_than_a_shorter_one() {
    for (machine, workload) in [
        ("uma-2", "hackbench -g 1 --pipe --threads -l 1000000"),
        ("uma-8", "hackbench -g 2 -l 1000000"),
        ("numa-48", "hackbench -g 6 --pipe --threads -l 1000000"),
        ("uma-8", "cyclictest -t 20 -i 200 -d 0 -D 60"),
    ] {
        for release in ["v6.1+autogroup", "v6.12+autogroup"] {
            let (short, long) = [200, 400].map(|ms| count(machine, release, workload, ms)).into();
            let (events, more) = (long.1 - short.1, long.0.saturating_sub(short.0));
            let case = format!("{machine} {release} {workload}");
            assert!(events > 100_000, "{case}: {events} events");
            assert!(more <= 10, "{case}: {more} allocations in {events} events");
        }
    }
}
