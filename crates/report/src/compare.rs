//! Kernels side by side, in the table that mmtests' users know.
//!
//! A percentage is positive where the kernel is *better* than the base, if the metric has a better
//! direction; otherwise where there is *more*. A star says that the change is more than noise.

use crate::blocks::{COLUMN, Columns, all_causes_text, cpu_time_text, groups};
use crate::numbers::{duration, maybe, percent, tail, unsteady_text, value};
use vruntime_measure::{Better, Comparison, Ends, Row, Sig};

/// The whole report. `notes` (what was fitted, what a machine file says of itself, …) stands below
/// the header as it is.
pub fn compare_text(c: &Comparison, notes: &str) -> String {
    let mut out = header(c);
    for line in notes.lines() {
        out += line;
        out.push('\n');
    }
    out.push('\n');
    out += &table(c);
    let columns = Columns::of(c);
    out += &all_causes_text(&c.causes, &c.cause_rates, columns);
    out += &cpu_time_text(&c.cpu_time, columns);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// What was compared, how much of it was simulated, and how well the seeds pair.
pub fn header(c: &Comparison) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out += &format!("{name:<12}{text}\n");
    line("machine", &c.machine);
    line("workload", &c.workload);
    for (k, name) in c.kernels.iter().enumerate() {
        line(if k == 0 { "kernels" } else { "" }, &format!("{name}{}", base_mark(k)));
    }
    line("seeds", &seeds(&c.seeds));
    for (i, text) in simulated(c).iter().enumerate() {
        line(if i == 0 { "simulated" } else { "" }, text);
    }
    for (i, text) in unsteady(c).iter().enumerate() {
        line(if i == 0 { "not steady" } else { "" }, text);
    }
    if let Some(text) = pairing(c) {
        line("pairing", &text);
    }
    out
}

fn base_mark(k: usize) -> &'static str {
    if k == 0 { "  (base)" } else { "" }
}

/// How much was simulated; where kernels differ in that, each has a line.
fn simulated(c: &Comparison) -> Vec<String> {
    if c.whole() {
        return vec!["from start to end; counts are totals".into()];
    }
    let warmup = duration(c.warmup_ns);
    let first = c.ends.first().copied().unwrap_or_default();
    let alike = |e: &Ends| how(e) == how(&first) && window_text(e) == window_text(&first);
    if !c.ends.iter().all(alike) {
        let head = format!("warm-up {warmup}; counts are per second of the window");
        let of = |(name, e): (&String, &Ends)| {
            format!("{name}: window {}, {}", window_text(e), seeds_text(e))
        };
        return std::iter::once(head).chain(c.kernels.iter().zip(&c.ends).map(of)).collect();
    }
    let head = format!("warm-up {warmup}, window {}; counts are per second", window_text(&first));
    match how(&first) {
        [false, true, false] => {
            vec![head + ", time is extrapolated", "from each group's progress".into()]
        }
        [true, false, false] => vec![head + " of the window"],
        _ => vec![head + " of the window", format!("every kernel: {}", seeds_text(&first))],
    }
}

/// Whether runs ended, were extrapolated, have no time.
fn how(e: &Ends) -> [bool; 3] {
    [e.ended, e.extrapolated, e.unknown].map(|seeds| seeds > 0)
}

fn window_text(e: &Ends) -> String {
    let (least, most) = (duration(e.window_min_ns), duration(e.window_max_ns));
    if least == most { least } else { format!("{least} to {most}") }
}

/// `ended in 1, extrapolated in 2 of 3 seeds`.
fn seeds_text(e: &Ends) -> String {
    let all = [(e.ended, "ended"), (e.extrapolated, "extrapolated"), (e.unknown, "time unknown")];
    let parts = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{what} in {n}"));
    let seeds = e.ended + e.extrapolated + e.unknown;
    format!("{} of {seeds} seeds", parts.collect::<Vec<_>>().join(", "))
}

/// `1-5, 9`; long lists are counted.
fn seeds(seeds: &[u64]) -> String {
    let consecutive = seeds.windows(2).all(|w| w[1] == w[0] + 1);
    match seeds {
        [] => "none".into(),
        [one] => format!("{one} (one seed: no intervals)"),
        [first, .., last] if consecutive => format!("{first}-{last} ({})", seeds.len()),
        _ if seeds.len() > 12 => format!("{}, … ({})", seeds[0], seeds.len()),
        _ => seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The kernels whose pace was not that of the whole window.
fn unsteady(c: &Comparison) -> Vec<String> {
    let of = |(name, e): (&String, &Ends)| {
        unsteady_text(e.drift_pct).map(|text| format!("{name}: {text}"))
    };
    let mut lines: Vec<String> = c.kernels.iter().zip(&c.ends).filter_map(of).collect();
    if !lines.is_empty() {
        lines.push("a longer --warmup, or --full, tells more".into());
    }
    lines
}

/// Correlation of `time` over the paired seeds.
fn pairing(c: &Comparison) -> Option<String> {
    let all = c.correlation.get("time")?;
    let known: Vec<String> = all.iter().flatten().map(|r| format!("{r:.2}")).collect();
    if known.is_empty() {
        return None;
    }
    Some(format!("correlation of time over the seeds with the base: {}", known.join(", ")))
}

/// The table of metrics. Two kernels have the interval beside the change, more have it below.
fn table(c: &Comparison) -> String {
    rows_text(&c.rows, &c.kernels) + &legend(c)
}

/// Rows under the names of their columns, the base first in each group.
pub fn rows_text(rows: &[Row], names: &[String]) -> String {
    let n = names.len();
    let beside = n == 2;
    let mut out = String::new();
    for group in groups(n, 3) {
        let mut title = " ".repeat(36);
        for &k in &group {
            title += &format!("{:>COLUMN$}", tail(&names[k], COLUMN - 2));
        }
        if beside {
            title += "       97.5 % interval";
        }
        out += title.trim_end();
        out.push('\n');
        for row in rows {
            out += &row_text(row, &group, beside);
            if row.metric == "time" && row.sd.iter().any(Option::is_some) {
                out += &spread_text(row, &group);
            }
        }
        out.push('\n');
    }
    out
}

/// What a sign and a star mean.
pub fn legend_of_stars(significance: Sig) -> String {
    let star = match significance {
        Sig::Interval => "the paired 97.5 % interval excludes zero",
        Sig::Mmtests => "as mmtests: beyond 1.96 sd + 1.96 sd",
    };
    format!("positive % = better (time, latency, messages), else more; * = {star}\n")
}

fn legend(c: &Comparison) -> String {
    if c.rows.is_empty() {
        return "nothing was measured\n\n".into();
    }
    let mut text = legend_of_stars(c.significance);
    if c.kernels.len() > 2 && c.seeds.len() > 1 {
        text += "[low, high] = 97.5 % interval of the change\n";
    }
    let seeds = c.seeds.len();
    for row in &c.rows {
        if row.pairs.iter().any(|&p| p < seeds) {
            let least = row.pairs.iter().min().copied().unwrap_or(0);
            text += &format!("{}: known for {least} of {seeds} seeds\n", row.metric);
        }
    }
    text + "\n"
}

/// `metric` and its unit in 36 columns.
fn label(kind: &str, metric: &str, unit: &str) -> String {
    let unit = if unit == "1" { "" } else { unit };
    format!("{kind:<9}{metric:<22} {unit:<4}")
}

fn row_text(row: &Row, group: &[usize], beside: bool) -> String {
    let mut out = label("Amean", row.metric, row.unit);
    for &k in group {
        let (open, close) = if row.significant[k] { ('*', '*') } else { ('(', ')') };
        let change = row.delta_pct[k].map_or("     - ".into(), |d| percent(towards(row, d)));
        out += &format!("{:>13} {open}{change}%{close}", maybe(row.value[k]));
        if beside && let Some((low, high)) = interval(row, k) {
            out += &format!(" [{},{}]", percent(low), percent(high));
        }
    }
    out = out.trim_end().to_string() + "\n";
    if !beside && group.iter().any(|&k| interval(row, k).is_some()) {
        let mut line = " ".repeat(36);
        for &k in group {
            let text = interval(row, k).map_or(String::new(), |(low, high)| {
                format!("[{},{}]", percent(low), percent(high))
            });
            line += &format!("{text:>COLUMN$}");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Standard deviation and coefficient of variation of `row`.
fn spread_text(row: &Row, group: &[usize]) -> String {
    let mut sd = label("Stddev", row.metric, row.unit);
    let mut cv = label("CoeffVar", row.metric, "%");
    for &k in group {
        sd += &format!("{:>13}{:11}", maybe(row.sd[k]), "");
        let ratio = row.sd[k].zip(row.value[k]).filter(|v| v.1 != 0.0).map(|(s, m)| 100.0 * s / m);
        cv += &format!("{:>13}{:11}", ratio.map_or("-".into(), value), "");
    }
    format!("{}\n{}\n", sd.trim_end(), cv.trim_end())
}

/// A change in % turned so that positive is better.
fn towards(row: &Row, pct: f64) -> f64 {
    if row.better == Better::Lower { -pct } else { pct }
}

/// The interval of the change, turned so that positive is better, lower end first.
fn interval(row: &Row, k: usize) -> Option<(f64, f64)> {
    let (low, high) = row.ci_low_pct[k].zip(row.ci_high_pct[k])?;
    match row.better {
        Better::Lower => Some((-high, -low)),
        _ => Some((low, high)),
    }
}

#[cfg(test)]
mod tests;
