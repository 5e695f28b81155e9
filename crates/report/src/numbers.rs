//! Numbers as people read them.

pub use vruntime_measure::explain::thousands;

/// With an SI prefix, as perf stat has it: `12.345 K`, `987.654 `; the unit comes after.
pub fn si(x: f64) -> String {
    for (scale, prefix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")] {
        if x.abs() >= scale {
            return format!("{:.3} {prefix}", x / scale);
        }
    }
    format!("{x:.3} ")
}

/// A span of `ns` nanoseconds in the unit that suits it: `850 ns`, `12.35 us`, `1.200 s`.
pub fn duration(ns: u64) -> String {
    let x = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.2} us", x / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", x / 1e6),
        _ => format!("{:.3} s", x / 1e9),
    }
}

/// A mean of unknown size, with the digits that matter: `0.000123`, `0.04600`, `0.4600`, `4.600`,
/// `46.00`, `1,234,567`.
pub fn value(x: f64) -> String {
    match x.abs() {
        0.0 => "0.00".into(),
        a if a < 0.000_01 => format!("{x:.3e}"),
        a if a < 0.01 => format!("{x:.6}"),
        a if a < 0.1 => format!("{x:.5}"),
        a if a < 1.0 => format!("{x:.4}"),
        a if a < 10.0 => format!("{x:.3}"),
        a if a < 100_000.0 => format!("{x:.2}"),
        a if a >= 1e12 => format!("{x:.4e}"),
        a => {
            let sign = if x < 0.0 { "-" } else { "" };
            format!("{sign}{}", thousands(a.round() as u64))
        }
    }
}

/// [`value`], or `-` where there is none.
pub fn maybe(x: Option<f64>) -> String {
    x.map_or_else(|| "-".into(), value)
}

/// A percentage in 7 characters, two decimals: `  19.57`; what does not fit is `>9999`, `<-99999`.
pub fn percent(x: f64) -> String {
    // No "-0.00".
    let x = if x.abs() < 0.005 { 0.0 } else { x };
    match x {
        x if x >= 9999.995 => "  >9999".into(),
        x if x <= -99_999.5 => "<-99999".into(),
        x if x <= -999.995 => format!("{x:>7.0}"),
        x => format!("{x:>7.2}"),
    }
}

/// `text` in at most `width` characters. Kernel expressions differ at their end, so it keeps that.
pub fn tail(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width {
        return text.into();
    }
    std::iter::once('…').chain(text.chars().skip(n + 1 - width)).collect()
}

/// `text` in at most `width` characters, cut at its end.
pub fn head(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

/// Halves of a window that differ by less are called steady.
const UNSTEADY_PCT: f64 = 5.0;

/// What a window says whose second half was `drift` % faster than its first, if that is much.
pub(crate) fn unsteady_text(drift: Option<f64>) -> Option<String> {
    let drift = drift.filter(|d| d.abs() >= UNSTEADY_PCT)?;
    let (by, than) = (drift.abs(), if drift > 0.0 { "faster" } else { "slower" });
    Some(format!("second half of the window {by:.0} % {than} than the first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_durations() {
        assert_eq!([1.5, 12_345.0, 2e9].map(si), ["1.500 ", "12.345 K", "2.000 G"]);
        let all = [850, 12_345, 12_345_678, 1_200_000_000].map(duration);
        assert_eq!(all, ["850 ns", "12.35 us", "12.35 ms", "1.200 s"]);
    }

    #[test]
    fn means() {
        let all = [0.0, 0.000_123, 0.46, 4.6, 46.0, 1_234_567.0, -200_000.0].map(value);
        assert_eq!(all, ["0.00", "0.000123", "0.4600", "4.600", "46.00", "1,234,567", "-200,000"]);
        assert_eq!(maybe(None), "-");
        assert_eq!(
            [19.567, -0.001, 1e6, -1e4, -1e5].map(percent),
            ["  19.57", "   0.00", "  >9999", " -10000", "<-99999"]
        );
    }

    #[test]
    fn long_names() {
        assert_eq!(tail("v6.5+ttwu_queue=l2", 10), "…_queue=l2");
        assert_eq!(head("select_idle_sibling", 10), "select_id…");
        assert_eq!(tail("v6.5", 10), "v6.5");
    }
}
