//! How much two paired samples differ, and whether that is more than noise.
//!
//! *What.* Both samples come from the same seeds in the same order, so noise that a seed brings to
//! both cancels in the differences d.
//! *Source.* Student's t for paired samples.
//! *Equations.* delta = mean(d) / |mean(base)|; interval = delta ± t · sd(d) / √n / |mean(base)|
//! with n − 1 degrees of freedom.
//! *Departures.* D1: intervals are of 97.5 %, [`LEVEL`], so that of 100 rows without a difference
//! no more than five have a star: the base mean in the divisor is itself a sample, and 3 to 10
//! seeds are too few to rely on the normality that 95 % would need. D2: differences without any
//! variance give an interval of length zero from three seeds on; with two it may be chance and
//! there is none.
//! *Example.* base 10 11 12, other 9 10.1 11: d = −1 −0.9 −1, so −8.8 %, between −10.7 and −6.9 %.

use crate::stats::{mean, ratio, sd, t_quantile};
use serde::Serialize;

/// Probability that the interval covers the true difference if the differences are normal.
pub const LEVEL: f64 = 0.975;

/// When a difference is called significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sig {
    /// The paired interval excludes zero.
    #[default]
    Interval,
    /// As mmtests' star: the difference of the means exceeds 1.96·sd(base) + 1.96·sd(other). It is
    /// no t-test: it knows neither pairs nor the number of runs.
    Mmtests,
}

/// The difference of a sample from its base, in % of the base mean.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Delta {
    /// 100 · (mean(other) − mean(base)) / |mean(base)|; `None` for a zero base.
    pub pct: Option<f64>,
    /// Interval of `pct`; `None` if there are too few seeds to say.
    pub interval: Option<(f64, f64)>,
    /// More than noise, by the rule of [`Sig`].
    pub significant: bool,
}

/// Compares samples paired by index. Unpaired rests are ignored.
pub fn delta(base: &[f64], other: &[f64], sig: Sig) -> Delta {
    let n = base.len().min(other.len());
    let (base, other) = (&base[..n], &other[..n]);
    let d: Vec<f64> = base.iter().zip(other).map(|(b, o)| o - b).collect();
    if n > 0 && d.iter().all(|&x| x == 0.0) {
        let interval = (n > 2).then_some((0.0, 0.0));
        return Delta { pct: Some(0.0), interval, significant: false };
    }
    let (Some(base_mean), Some(change)) = (mean(base), mean(&d)) else {
        return Delta::default();
    };
    let pct = |x: f64| ratio(100.0 * x, base_mean.abs());
    let half = half_width(base, other, &d);
    let interval = half.and_then(|h| Some((pct(change - h)?, pct(change + h)?)));
    let significant = match sig {
        // Also of a base of zero, of which nothing is a percentage.
        Sig::Interval => half.is_some_and(|h| change.abs() > h),
        Sig::Mmtests => match (sd(base), sd(other)) {
            (Some(a), Some(b)) => change.abs() > 1.96 * a + 1.96 * b,
            _ => false,
        },
    };
    Delta { pct: pct(change), interval, significant }
}

/// Half the interval of the mean of the differences `d`, in the metric's unit.
fn half_width(base: &[f64], other: &[f64], d: &[f64]) -> Option<f64> {
    let n = d.len();
    let spread = sd(d)?;
    let scale = base.iter().chain(other).fold(0.0_f64, |m, x| m.max(x.abs()));
    // Differences that are equal but for the rounding of the subtraction.
    if spread <= 1e-12 * scale {
        return (n >= 3).then_some(0.0);
    }
    let t = t_quantile(0.5 + 0.5 * LEVEL, n as u32 - 1)?;
    Some(t * spread / (n as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_example() {
        let x = delta(&[10.0, 11.0, 12.0], &[9.0, 10.1, 11.0], Sig::Interval);
        let (low, high) = x.interval.unwrap();
        assert_eq!(format!("{:.1} {low:.1} {high:.1}", x.pct.unwrap()), "-8.8 -10.7 -6.9");
        assert!(x.significant);
    }

    #[test]
    fn one_seed_says_nothing() {
        let x = delta(&[10.0], &[5.0], Sig::Interval);
        assert_eq!(x, Delta { pct: Some(-50.0), interval: None, significant: false });
        assert!(!delta(&[10.0], &[5.0], Sig::Mmtests).significant);
        assert_eq!(delta(&[], &[], Sig::Interval), Delta::default());
    }

    #[test]
    fn no_variance() {
        let same = |x: &[f64]| delta(x, x, Sig::Interval);
        let none = Delta { pct: Some(0.0), interval: None, significant: false };
        assert_eq!(same(&[1.0, 2.0]), none);
        assert_eq!(same(&[1.0, 2.0, 3.0]), Delta { interval: Some((0.0, 0.0)), ..none });
        let two = delta(&[1.0, 2.0], &[2.0, 3.0], Sig::Interval);
        assert!(two.interval.is_none() && !two.significant);
        let three = delta(&[0.1, 0.2, 0.3], &[1.1, 1.2, 1.3], Sig::Interval);
        assert!(three.significant, "{three:?}");
    }

    #[test]
    fn zero_base_has_no_percentage() {
        let x = delta(&[0.0, 0.0, 0.0], &[1.0, 1.1, 0.9], Sig::Interval);
        assert_eq!((x.pct, x.interval, x.significant), (None, None, true));
        assert!(!delta(&[0.0, 0.0, 0.0], &[1.0, -1.1, 0.9], Sig::Interval).significant);
        assert_eq!(delta(&[0.0, 0.0], &[0.0, 0.0], Sig::Interval).pct, Some(0.0));
    }

    #[test]
    fn mmtests_star() {
        // Means 46 and 37, sd 1 each: 9 > 3.92.
        let (a, b) = ([45.0, 46.0, 47.0], [38.0, 37.0, 36.0]);
        assert!(delta(&a, &b, Sig::Mmtests).significant);
        // sd 3 each: 9 < 11.76, although the pairs all agree.
        let (a, b) = ([43.0, 46.0, 49.0], [34.1, 37.0, 39.9]);
        assert!(!delta(&a, &b, Sig::Mmtests).significant);
        assert!(delta(&a, &b, Sig::Interval).significant);
    }
}
