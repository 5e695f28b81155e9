//! Does a comparison of a kernel with itself, over other seeds, find nothing?
//!
//! The noise is the model's own. A twin of this test with worse, made-up noise is beside `compare`.

use std::collections::BTreeMap;
use vruntime_base::Ns;
use vruntime_formats::kernel_file;
use vruntime_formats::machine_file::builtin_machine;
use vruntime_kernel::record::{RunRecord, RunSpec, Sampling};
use vruntime_kernel::simulate::run;
use vruntime_measure::{Comparison, Sig, compare};

const KERNELS: [&str; 2] = ["v6.1", "v6.12"];

/// Those runs of `n` seeds from `first` on that come to their end.
fn runs(machine: &str, command: &str, kernel: &str, first: u64, n: u64) -> Vec<RunRecord> {
    let mut spec = RunSpec {
        sampling: Sampling::Full { limit: Ns::from_ms(2_000) },
        ..RunSpec::new(
            builtin_machine(machine).unwrap(),
            kernel_file::kernel(kernel).unwrap().release,
            vruntime_workload::parse(command).unwrap(),
        )
    };
    let mut of_seed = |seed| {
        spec.seed = seed;
        run(&spec).unwrap()
    };
    (first..first + n).map(&mut of_seed).filter(|r| r.complete).collect()
}

fn two(a: &[RunRecord], b: &[RunRecord]) -> Comparison {
    compare(&[("a".into(), a.to_vec()), ("b".into(), b.to_vec())], Sig::Interval)
}

/// At most 5 % of the rows that have an interval are starred, whatever the number of seeds: each
/// star is a mistake of the statistics. No seed occurs twice: on small machines a seed's noise is
/// much the same whatever the kernel, and rows of one comparison go together, so that fewer seeds
/// would be fewer observations than they look.
#[test]
fn a_kernel_against_itself() {
    let (mut comparisons, mut rows, mut starred) = ([0; 3], [0; 3], [0; 3]);
    let mut metrics = BTreeMap::<&str, usize>::new();
    let (mut first, n) = (1, 240);
    for machine in ["uma-2", "l5420"] {
        for command in [
            "hackbench -g 1 -f 4 -l 40 --pipe",
            "hackbench -g 2 -f 4 -l 40 --pipe --threads",
            "sleeper 6 100 70 40",
        ] {
            for kernel in KERNELS {
                let all = runs(machine, command, kernel, first, n);
                first += n;
                for (i, seeds) in [3, 5, 10].into_iter().enumerate() {
                    for both in all.chunks_exact(2 * seeds) {
                        let c = two(&both[..seeds], &both[seeds..]);
                        comparisons[i] += 1;
                        rows[i] += c.rows.iter().filter(|r| r.ci_low_pct[1].is_some()).count();
                        for row in c.rows.iter().filter(|r| r.significant[1]) {
                            starred[i] += 1;
                            *metrics.entry(row.metric).or_default() += 1;
                        }
                    }
                }
            }
        }
    }
    println!("starred {starred:?} of {rows:?} rows in {comparisons:?} comparisons: {metrics:?}");
    assert!(comparisons.iter().sum::<usize>() >= 200, "{comparisons:?}");
    for i in 0..3 {
        assert!(rows[i] >= 5 * comparisons[i], "few rows have an interval: {rows:?}");
        assert!(starred[i] > 0, "no noise at all is no test: {starred:?}");
        assert!(starred[i] * 20 <= rows[i], "starred {starred:?} of {rows:?}");
    }
}

/// The test above must be able to fail: twice as many messages take longer.
#[test]
fn more_work_is_found() {
    let of = |loops| runs("uma-2", &format!("hackbench -g 2 -f 4 -l {loops}"), KERNELS[0], 1, 100);
    let (less, more) = (of(40), of(80));
    let (mut found, mut n) = (0, 0);
    for (a, b) in less.chunks_exact(5).zip(more.chunks_exact(5)) {
        n += 1;
        found += usize::from(two(a, b).row("time").is_some_and(|time| time.significant[1]));
    }
    println!("found in {found} of {n}");
    assert!(n >= 10 && found * 10 >= n * 8, "{found} of {n}");
}
