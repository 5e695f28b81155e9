//! The arithmetic of samples. Every function gives `None` where its answer would be undefined, and
//! no function gives a NaN or an infinity.

/// `x` if it is a finite number.
pub fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// `a / b`, if that is a number.
pub fn ratio(a: f64, b: f64) -> Option<f64> {
    if b == 0.0 { None } else { finite(a / b) }
}

/// Arithmetic mean; `None` for no values.
pub fn mean(v: &[f64]) -> Option<f64> {
    ratio(v.iter().sum(), v.len() as f64)
}

/// The middle value, or the mean of the two in the middle; `None` for no values.
pub fn median(mut v: Vec<f64>) -> Option<f64> {
    v.sort_by(f64::total_cmp);
    let n = v.len();
    let at = |i: usize| v.get(i).copied();
    if n % 2 == 1 { at(n / 2) } else { Some((at((n / 2).checked_sub(1)?)? + at(n / 2)?) / 2.0) }
}

/// Sample standard deviation (divisor n − 1); `None` below two values.
pub fn sd(v: &[f64]) -> Option<f64> {
    if v.len() < 2 {
        return None;
    }
    let m = mean(v)?;
    let ss: f64 = v.iter().map(|x| (x - m) * (x - m)).sum();
    finite((ss / (v.len() - 1) as f64).sqrt())
}

/// Pearson's correlation of pairs, −1 … 1; `None` below three pairs or if one side does not vary.
pub fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() || a.len() < 3 {
        return None;
    }
    let (ma, mb) = (mean(a)?, mean(b)?);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        ab += (x - ma) * (y - mb);
        aa += (x - ma) * (x - ma);
        bb += (y - mb) * (y - mb);
    }
    Some(ratio(ab, (aa * bb).sqrt())?.clamp(-1.0, 1.0))
}

/// The jackknife's pseudo-values of a figure that is `whole` of all parts, and so much without each
/// of them. Their mean is `whole`; the standard error of that is the figure's.
pub fn jackknife(whole: Option<f64>, without: Vec<Option<f64>>) -> Vec<Option<f64>> {
    let n = without.len() as f64;
    if n < 2.0 {
        return vec![whole];
    }
    let known: Vec<f64> = without.iter().copied().flatten().collect();
    let pseudo = |less: f64| Some(whole? + (n - 1.0) * (mean(&known)? - less));
    without.into_iter().map(|less| pseudo(less?)).collect()
}

/// The value that Student's t with `df` degrees of freedom does not exceed with probability `p`
/// (0 < p < 1, `df` ≥ 1); `None` outside.
pub fn t_quantile(p: f64, df: u32) -> Option<f64> {
    if !(p > 0.0 && p < 1.0) || df == 0 {
        return None;
    }
    if p < 0.5 {
        return t_quantile(1.0 - p, df).map(|t| -t);
    }
    let mut high = 1.0;
    while t_cdf(high, df) < p {
        high *= 2.0;
        if high > 1e15 {
            return None;
        }
    }
    let mut low = 0.0;
    while high - low > 1e-12 * high {
        let mid = 0.5 * (low + high);
        if t_cdf(mid, df) < p { low = mid } else { high = mid }
    }
    Some(0.5 * (low + high))
}

/// Probability that Student's t with `df` degrees of freedom does not exceed `t` ≥ 0.
fn t_cdf(t: f64, df: u32) -> f64 {
    let v = f64::from(df);
    1.0 - 0.5 * incomplete_beta(0.5 * v, 0.5, v / (v + t * t))
}

/// Regularised incomplete beta function I_x(a, b), by the continued fraction of DLMF 8.17.22.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; above it the symmetry I_x(a,b) = 1 - I_1-x(b,a).
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    front / beta_fraction(a, b, x)
}

/// The denominator 1 + d1/(1 + d2/(1 + …)), evaluated from its tail. The number of terms that count
/// grows with the root of the larger parameter.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let terms = 40 + 2 * a.max(b).sqrt() as u32;
    let mut f = 1.0;
    for k in (1..=terms).rev() {
        let m = f64::from(k / 2);
        let d = if k % 2 == 0 {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        };
        f = 1.0 + d / f;
    }
    f
}

/// ln Γ(x) for x > 0, by Stirling's series after moving x above 10.
fn ln_gamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 10.0 {
        below += x.ln();
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: Option<f64>, want: f64) {
        let got = got.expect("a number");
        assert!((got - want).abs() <= 1e-3 * want.abs().max(1e-3), "{got} is not {want}");
    }

    #[test]
    fn t_table() {
        // Two-sided 95 % column of the usual table, then other levels and tails.
        for (df, t) in [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)] {
            near(t_quantile(0.975, df), t);
        }
        near(t_quantile(0.995, 4), 4.604);
        near(t_quantile(0.95, 120), 1.658);
        near(t_quantile(0.975, 100_000), 1.960);
        near(t_quantile(0.025, 4), -2.776);
        assert_eq!(t_quantile(0.975, 0), None);
        assert_eq!(t_quantile(1.0, 4), None);
    }

    #[test]
    fn moments() {
        let v = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        near(mean(&v), 5.0);
        near(sd(&v), 2.138);
    }

    #[test]
    fn undefined_is_none() {
        assert_eq!(mean(&[]), None);
        assert_eq!(sd(&[1.0]), None);
        assert_eq!(correlation(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(ratio(f64::MAX, 1e-300), None);
    }

    #[test]
    fn correlation_of_pairs() {
        near(correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]), 1.0);
        near(correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), -1.0);
        near(correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]), 0.8);
    }
}
