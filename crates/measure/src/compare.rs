//! Kernels side by side: the same machine, workload and seeds, the first kernel as the base.

use crate::causes::{CauseRates, CauseTables, CpuTime};
use crate::interval::{Delta, Sig, delta};
use crate::metrics::{Better, Counting, Metric, drift_pct, metrics, window};
use crate::stats::{correlation, mean, sd};
use serde::Serialize;
use std::collections::BTreeMap;
use vruntime_base::Ns;
use vruntime_kernel::record::RunRecord;

/// One metric over all kernels. Vectors have one entry per kernel; the first is the base, which
/// has no interval and is never significant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the metric.
    pub metric: &'static str,
    /// Unit of `base`, `value` and `sd`.
    pub unit: &'static str,
    /// Better direction.
    pub better: Better,
    /// Mean of the base.
    pub base: Option<f64>,
    /// Arithmetic mean over the seeds whose value every kernel knows that knows any; over its own
    /// if there is no such seed.
    pub value: Vec<Option<f64>>,
    /// Sample standard deviation over the same seeds.
    pub sd: Vec<Option<f64>>,
    /// Change from the base in %, positive for more, over the same seeds.
    pub delta_pct: Vec<Option<f64>>,
    /// Lower end of the interval of `delta_pct`.
    pub ci_low_pct: Vec<Option<f64>>,
    /// Upper end of the interval of `delta_pct`.
    pub ci_high_pct: Vec<Option<f64>>,
    /// The change is more than noise.
    pub significant: Vec<bool>,
    /// Number of those seeds that both the base and this kernel know.
    pub pairs: Vec<usize>,
}

/// How the runs of a kernel ended, in seeds, and how much of them was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ends {
    /// They reached the end of the benchmark.
    pub ended: usize,
    /// Their time is extrapolated from the window.
    pub extrapolated: usize,
    /// Their time is not known.
    pub unknown: usize,
    /// The shortest window.
    pub window_min_ns: u64,
    /// The longest.
    pub window_max_ns: u64,
    /// How much faster the second half of the window was than the first, in messages: mean of the
    /// seeds that did not end.
    pub drift_pct: Option<f64>,
}

impl Ends {
    fn of(runs: &[RunRecord]) -> Ends {
        let count = |is: fn(&RunRecord) -> bool| runs.iter().filter(|r| is(r)).count();
        let windows = || runs.iter().map(|r| window(r).0);
        Ends {
            ended: count(|r| r.complete),
            extrapolated: count(|r| !r.complete && r.time.is_some()),
            unknown: count(|r| !r.complete && r.time.is_none()),
            window_min_ns: windows().min().unwrap_or(0),
            window_max_ns: windows().max().unwrap_or(0),
            drift_pct: mean(&runs.iter().filter_map(drift_pct).collect::<Vec<_>>()),
        }
    }
}

/// A comparison; prints as the JSON of `vruntime compare`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// `vruntime/compare/1`.
    pub schema: &'static str,
    /// Machine name.
    pub machine: String,
    /// Command line of the workload.
    pub workload: String,
    /// Kernels as the user named them; the first is the base.
    pub kernels: Vec<String>,
    /// Seeds, of the base.
    pub seeds: Vec<u64>,
    /// From the benchmark's start to the measured window, mean over all runs of all kernels.
    pub warmup_ns: u64,
    /// Measured window, mean over the same.
    pub window_ns: u64,
    /// Some time is extrapolated from a window.
    pub extrapolated: bool,
    /// Every run reached the end of its benchmark.
    pub complete: bool,
    /// How the runs of each kernel ended.
    pub ends: Vec<Ends>,
    /// Whether counts are totals or rates.
    pub counting: Counting,
    /// The rule of `significant`.
    pub significance: Sig,
    /// Metrics.
    pub rows: Vec<Row>,
    /// Causes, summed over seeds.
    pub causes: CauseTables,
    /// How often they were: means over the seeds.
    pub cause_rates: CauseRates,
    /// CPU time in ns, summed over seeds and CPUs.
    pub cpu_time: CpuTime,
    /// Messages per kernel, summed over seeds.
    pub messages: Vec<u64>,
    /// Measured window per kernel in ns, summed over seeds.
    pub measured_ns: Vec<u64>,
    /// Pearson's correlation with the base over the seeds, by metric; null for the base. Near one
    /// means that pairing took the seeds' noise out of the interval.
    pub correlation: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// Compares `kernels`, each with its runs in the order of the same seeds.
pub fn compare(kernels: &[(String, Vec<RunRecord>)], sig: Sig) -> Comparison {
    let runs: Vec<&[RunRecord]> = kernels.iter().map(|k| k.1.as_slice()).collect();
    let all = || runs.iter().copied().flatten();
    let counting = Counting::of(all());
    let values: Vec<Vec<Vec<Metric>>> =
        runs.iter().map(|rs| rs.iter().map(|r| metrics(r, counting)).collect()).collect();

    let mut rows = Vec::new();
    let mut correlations = BTreeMap::new();
    for what in metric_order(values.iter().flatten()) {
        let columns: Vec<Vec<Option<f64>>> =
            values.iter().map(|rs| rs.iter().map(|ms| value_of(ms, what.name)).collect()).collect();
        correlations.insert(what.name, correlation_row(&columns));
        rows.push(row(&what, &columns, sig));
    }

    let base = runs.first().copied().unwrap_or_default();
    let first = base.first();
    let each = |of: &dyn Fn(&RunRecord) -> Ns| {
        let sum: u128 = all().map(|r| u128::from(of(r).0)).sum();
        (sum / all().count().max(1) as u128) as u64
    };
    Comparison {
        schema: "vruntime/compare/1",
        machine: first.map(|r| r.machine.clone()).unwrap_or_default(),
        workload: first.map(|r| r.workload.clone()).unwrap_or_default(),
        kernels: kernels.iter().map(|k| k.0.clone()).collect(),
        seeds: base.iter().map(|r| r.seed).collect(),
        warmup_ns: each(&|r| r.window.0.saturating_sub(r.started)),
        window_ns: each(&window),
        extrapolated: all().any(|r| r.time.is_some() && !r.complete),
        complete: all().all(|r| r.complete),
        ends: runs.iter().map(|rs| Ends::of(rs)).collect(),
        counting,
        significance: sig,
        rows,
        causes: CauseTables::of(&runs),
        cause_rates: CauseRates::of(&runs),
        cpu_time: CpuTime::of(&runs),
        messages: runs.iter().map(|rs| rs.iter().map(|r| r.counters.messages).sum()).collect(),
        measured_ns: runs.iter().map(|rs| rs.iter().map(|r| window(r).0).sum()).collect(),
        correlation: correlations,
    }
}

impl Comparison {
    /// The row of a metric.
    pub fn row(&self, metric: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.metric == metric)
    }
    /// True if the windows cover whole benchmarks, so that counts are totals.
    pub fn whole(&self) -> bool {
        self.counting == Counting::Totals
    }
}

/// Every metric that some run has, in the order in which runs give them.
fn metric_order<'a>(runs: impl Iterator<Item = &'a Vec<Metric>>) -> Vec<Metric> {
    let mut order: Vec<Metric> = Vec::new();
    for run in runs {
        let mut at = 0;
        for m in run {
            match order.iter().position(|o| o.name == m.name) {
                Some(i) => at = i + 1,
                None => {
                    order.insert(at, *m);
                    at += 1;
                }
            }
        }
    }
    order
}

fn value_of(run: &[Metric], name: &str) -> Option<f64> {
    run.iter().find(|m| m.name == name).map(|m| m.value)
}

/// The seeds that both columns know.
fn pairs(a: &[Option<f64>], b: &[Option<f64>]) -> (Vec<f64>, Vec<f64>) {
    a.iter().zip(b).filter_map(|(&a, &b)| Some((a?, b?))).unzip()
}

/// The samples that every column knows which knows any; all, if there is no such sample.
fn common(columns: &[Vec<Option<f64>>]) -> Vec<Vec<Option<f64>>> {
    let knows_any = |c: &&Vec<Option<f64>>| c.iter().any(Option::is_some);
    let in_all =
        |i: usize| columns.iter().filter(knows_any).all(|c| matches!(c.get(i), Some(Some(_))));
    let longest = columns.iter().map(Vec::len).max().unwrap_or(0);
    let kept: Vec<bool> = (0..longest).map(in_all).collect();
    if !kept.contains(&true) {
        return columns.to_vec();
    }
    let only = |c: &Vec<Option<f64>>| c.iter().zip(&kept).map(|(v, &k)| v.filter(|_| k)).collect();
    columns.iter().map(only).collect()
}

/// The row of a metric whose values are known per kernel and sample: of the samples that all know,
/// so that values and changes are of the same ones.
pub(crate) fn row(what: &Metric, columns: &[Vec<Option<f64>>], sig: Sig) -> Row {
    let columns = &common(columns);
    let known: Vec<Vec<f64>> =
        columns.iter().map(|c| c.iter().copied().flatten().collect()).collect();
    let mut row = Row {
        metric: what.name,
        unit: what.unit,
        better: what.better,
        base: known.first().and_then(|v| mean(v)),
        value: known.iter().map(|v| mean(v)).collect(),
        sd: known.iter().map(|v| sd(v)).collect(),
        delta_pct: Vec::new(),
        ci_low_pct: Vec::new(),
        ci_high_pct: Vec::new(),
        significant: Vec::new(),
        pairs: Vec::new(),
    };
    for (k, column) in columns.iter().enumerate() {
        let (base, other) = pairs(&columns[0], column);
        let d = match k {
            0 => Delta { pct: row.base.map(|_| 0.0), ..Delta::default() },
            _ => delta(&base, &other, sig),
        };
        row.pairs.push(base.len());
        row.delta_pct.push(d.pct);
        row.ci_low_pct.push(d.interval.map(|i| i.0));
        row.ci_high_pct.push(d.interval.map(|i| i.1));
        row.significant.push(d.significant);
    }
    row
}

fn correlation_row(columns: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let with_base = |(k, column): (usize, &Vec<Option<f64>>)| {
        let (base, other) = pairs(&columns[0], column);
        if k == 0 { None } else { correlation(&base, &other) }
    };
    columns.iter().enumerate().map(with_base).collect()
}

#[cfg(test)]
mod tests;
