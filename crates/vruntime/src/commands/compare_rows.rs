//! The rows of `compare`: means over seeds, and the change against the base with its interval.

use super::compare::Sig;
use serde::Serialize;
use vruntime_kernel::record::RunRecord;

/// One metric over all kernels. Entries of the base say "no change".
#[derive(Debug, Serialize)]
pub struct Row {
    /// Name.
    pub metric: &'static str,
    /// "ns" or "count".
    pub unit: &'static str,
    /// "lower", or "neither" where more is neither better nor worse.
    pub better: &'static str,
    /// Mean of the base.
    pub base: Option<f64>,
    /// Mean of each kernel.
    pub value: Vec<Option<f64>>,
    /// Change of each kernel against the base.
    pub delta_pct: Vec<Option<f64>>,
    /// Lower end of the 95 % interval of that change; needs two seeds.
    pub ci_low_pct: Vec<Option<f64>>,
    /// Upper end.
    pub ci_high_pct: Vec<Option<f64>>,
    /// By the chosen rule.
    pub significant: Vec<Option<bool>>,
}

/// A metric: name, unit, what is better, and how to get it from a record.
type Metric = (&'static str, &'static str, &'static str, fn(&RunRecord) -> Option<f64>);

const METRICS: [Metric; 8] = [
    ("time", "ns", "lower", |r| r.time.map(|t| t.0 as f64)),
    ("context_switches", "count", "neither", |r| Some(r.counters.context_switches as f64)),
    ("voluntary_switches", "count", "neither", |r| Some(r.counters.voluntary_switches as f64)),
    ("involuntary_switches", "count", "neither", |r| Some(r.counters.involuntary_switches as f64)),
    ("migrations", "count", "neither", |r| Some(r.counters.cpu_migrations as f64)),
    ("messages", "count", "neither", |r| Some(r.counters.messages as f64)),
    ("wakeup_latency_p50", "ns", "lower", |r| Some(r.wakeup_latency.per_mille(500).0 as f64)),
    ("wakeup_latency_p99", "ns", "lower", |r| Some(r.wakeup_latency.per_mille(990).0 as f64)),
];

/// All rows. `paired`: run i of every kernel has the same seed, so differences are taken run by run.
pub fn rows(by_kernel: &[Vec<RunRecord>], paired: bool, sig: Sig) -> Vec<Row> {
    METRICS.iter().map(|metric| row(by_kernel, metric, paired, sig)).collect()
}

fn row(by_kernel: &[Vec<RunRecord>], metric: &Metric, paired: bool, sig: Sig) -> Row {
    let &(name, unit, better, get) = metric;
    // A metric that one run does not have has no honest mean.
    let values: Vec<Option<Vec<f64>>> =
        by_kernel.iter().map(|runs| runs.iter().map(get).collect()).collect();
    let value: Vec<Option<f64>> = values.iter().map(|v| v.as_deref().map(mean)).collect();
    let mut row = Row {
        metric: name,
        unit,
        better,
        base: value[0],
        value,
        delta_pct: Vec::new(),
        ci_low_pct: Vec::new(),
        ci_high_pct: Vec::new(),
        significant: Vec::new(),
    };
    for of_kernel in &values {
        let both = values[0].as_deref().zip(of_kernel.as_deref());
        let c = both.and_then(|(base, v)| change(base, v, paired, sig));
        row.delta_pct.push(c.as_ref().map(|c| c.delta));
        row.ci_low_pct.push(c.as_ref().and_then(|c| c.half.map(|h| c.delta - h)));
        row.ci_high_pct.push(c.as_ref().and_then(|c| c.half.map(|h| c.delta + h)));
        row.significant.push(c.and_then(|c| c.significant));
    }
    row
}

/// A change in percent of the base.
struct Change {
    delta: f64,
    half: Option<f64>,
    significant: Option<bool>,
}

fn change(base: &[f64], v: &[f64], paired: bool, sig: Sig) -> Option<Change> {
    let scale = 100.0 / Some(mean(base)).filter(|m| *m != 0.0)?;
    let delta = (mean(v) - mean(base)) * scale;
    let n = base.len() as f64;
    let half = (base.len() > 1).then(|| {
        if paired {
            let d: Vec<f64> = base.iter().zip(v).map(|(a, b)| b - a).collect();
            t_95(n - 1.0) * (variance(&d) / n).sqrt() * scale
        } else {
            // Welch: each kernel's own variance.
            let (a, b) = (variance(base) / n, variance(v) / n);
            let df = if a + b > 0.0 { (a + b).powi(2) * (n - 1.0) / (a * a + b * b) } else { n };
            t_95(df) * (a + b).sqrt() * scale
        }
    });
    let significant = match sig {
        Sig::Interval => half.map(|h| delta.abs() > h),
        Sig::Mmtests => (base.len() > 1)
            .then(|| delta.abs() > 1.96 * (variance(base).sqrt() + variance(v).sqrt()) * scale),
    };
    Some(Change { delta, half, significant })
}

fn mean(v: &[f64]) -> f64 {
    v.iter().sum::<f64>() / v.len() as f64
}

/// Unbiased variance.
fn variance(v: &[f64]) -> f64 {
    let m = mean(v);
    v.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (v.len() as f64 - 1.0)
}

/// The 97.5 % quantile of Student's t: a table up to 10 degrees of freedom, then an expansion in
/// 1/df that is right to three digits.
fn t_95(df: f64) -> f64 {
    const TABLE: [f64; 10] =
        [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match TABLE.get((df.floor() as usize).saturating_sub(1)) {
        Some(t) => *t,
        None => 1.959_96 + 2.372 / df + 2.823 / (df * df),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_t() {
        assert_eq!(t_95(1.0), 12.706);
        for (df, t) in [(11.0, 2.201), (20.0, 2.086), (30.0, 2.042), (100.0, 1.984)] {
            assert!((t_95(df) - t).abs() < 2e-3, "{df}: {} {t}", t_95(df));
        }
    }

    #[test]
    fn a_paired_difference_by_hand() {
        // Differences 1, 2, 3: mean 2, variance 1, half-width 4.303 / sqrt(3).
        let c = change(&[10.0, 20.0, 30.0], &[11.0, 22.0, 33.0], true, Sig::Interval).unwrap();
        assert!((c.delta - 10.0).abs() < 1e-9);
        assert!((c.half.unwrap() - 4.303 / 3f64.sqrt() * 5.0).abs() < 1e-9);
        assert_eq!(c.significant, Some(false));
        let c = change(&[10.0, 20.0, 30.0], &[11.0, 22.0, 33.0], true, Sig::Mmtests).unwrap();
        assert_eq!(c.significant, Some(false));
    }

    #[test]
    fn one_seed_has_no_interval_and_no_star() {
        let c = change(&[10.0], &[20.0], true, Sig::Interval).unwrap();
        assert_eq!((c.delta, c.half, c.significant), (100.0, None, None));
        assert!(change(&[0.0, 0.0], &[1.0, 1.0], true, Sig::Interval).is_none());
    }

    #[test]
    fn equal_kernels_differ_in_nothing() {
        let c = change(&[10.0, 12.0], &[10.0, 12.0], true, Sig::Interval).unwrap();
        assert_eq!((c.delta, c.half, c.significant), (0.0, Some(0.0), Some(false)));
    }
}
