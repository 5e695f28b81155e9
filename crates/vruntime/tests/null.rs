//! Null: does a comparison of a kernel with itself find nothing?
//!
//! Both sides are the same kernel with seeds of their own, so every significant row is a mistake of
//! the statistics. At a level of 5 % there may be some, but no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::formats::kernel_file::kernel;
use vruntime::formats::machine_file::builtin_machine;
use vruntime::kernel::record::{RunRecord, RunSpec, Sampling};
use vruntime::kernel::simulate::run;
use vruntime::measure::compare::compare;
use vruntime::measure::interval::Sig;

const COMPARISONS: u64 = 200;
const SEEDS: u64 = 5;

fn records(first_seed: u64) -> Vec<RunRecord> {
    let machine = Arc::new(builtin_machine("uma-2").unwrap());
    let release = Arc::new(kernel("v6.1").unwrap().release);
    let workload =
        vruntime::workload::parse("hackbench -g 1 -f 2 --pipe --threads -l 100").unwrap();
    let one = |seed| RunSpec {
        machine: Arc::clone(&machine),
        release: Arc::clone(&release),
        workload: Arc::clone(&workload),
        seed,
        sampling: Sampling::Full { limit: Ns::from_ms(1_000) },
        checks: false,
        variation: Default::default(),
        timeline: 0,
        schedstat: false,
    };
    (first_seed..first_seed + SEEDS).map(|seed| run(&one(seed)).unwrap()).collect()
}

#[test]
fn a_kernel_differs_from_itself_in_no_more_rows_than_the_level_allows() {
    let mut starred = BTreeMap::<&str, u64>::new();
    let (mut rows, mut known) = (0, 0);
    for n in 0..COMPARISONS {
        let sides = [2 * n, 2 * n + 1].map(|side| records(1 + side * SEEDS));
        let [a, b] = sides.map(|runs| (String::from("v6.1"), runs));
        for row in compare(&[a, b], Sig::default()).rows {
            rows += 1;
            known += u64::from(row.ci_low_pct[1].is_some());
            *starred.entry(row.metric).or_default() += u64::from(row.significant[1]);
        }
    }
    let stars: u64 = starred.values().sum();
    println!("{stars} of {rows} rows starred, {known} with an interval: {starred:?}");
    assert!(known >= COMPARISONS * 5, "only {known} rows have an interval");
    assert!(stars * 20 <= known, "{stars} of {known} rows starred: {starred:?}");
}
