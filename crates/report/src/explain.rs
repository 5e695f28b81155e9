//! The report of `vruntime explain`: a paragraph, the parts, and every knock-out that was tried.

use crate::numbers::tail;
use std::fmt::Write;
use vruntime_measure::explain::{Explanation, Kind, Part, signed};

/// Width of the paragraph.
const WIDTH: usize = 100;
/// Width of names.
const NAME: usize = 34;

/// The whole report.
pub fn explain_text(e: &Explanation, notes: &str) -> String {
    let mut out = String::new();
    let unit = if e.unit == "1" { String::new() } else { format!(" {}", e.unit) };
    let seeds = match e.seeds.len() {
        1 => "1 seed".into(),
        n => format!("{n} seeds"),
    };
    writeln!(out, "{} on {}, {seeds}\n", e.workload, e.machine).unwrap();
    for (kernel, value) in e.kernels.iter().zip([e.before, e.after]) {
        writeln!(out, "  {:<60}{:>14}{unit}", tail(kernel, 58), plain(value)).unwrap();
    }
    let ends = interval(e.delta_low, e.delta_high, signed);
    writeln!(
        out,
        "  {:<60}{:>14}{} {ends}\n",
        e.metric.clone() + " changes by",
        signed(e.delta),
        e.unit_of_amounts()
    )
    .unwrap();
    out += &wrapped(&e.conclusion);
    if !e.is_noise() {
        parts_table(&mut out, e);
    }
    if !e.tried.is_empty() {
        writeln!(
            out,
            "\n{:<NAME$}{:>14}{:>14}{:>14}{:>16}",
            "without", "before", "after", "difference", "mean size"
        )
        .unwrap();
    }
    for t in &e.tried {
        let show = |x: Option<f64>, f: fn(f64) -> String| x.map_or("-".into(), f);
        writeln!(
            out,
            "{:<NAME$}{:>14}{:>14}{:>14}{:>16}",
            format!("  {}", t.mechanism),
            show(t.before, plain),
            show(t.after, plain),
            show(t.delta, signed),
            plain(t.left)
        )
        .unwrap();
    }
    if !notes.is_empty() {
        writeln!(out, "\n{notes}").unwrap();
    }
    out
}

/// What the difference is made of.
fn parts_table(out: &mut String, e: &Explanation) {
    writeln!(
        out,
        "\n{:<NAME$}{:>9}{:>24} {:>11} {:>11} {:>11}",
        "part", "share", "97.5 % interval", "amount", "left out", "alone"
    )
    .unwrap();
    for (kind, title) in [(Kind::Mechanism, "mechanisms"), (Kind::Cost, "costs")] {
        let mut of = e.parts.iter().filter(|p| p.kind == kind).peekable();
        if of.peek().is_some() {
            writeln!(out, "  {title}").unwrap();
        }
        of.for_each(|p| *out += &part_line(p));
    }
    e.parts.iter().filter(|p| p.kind == Kind::Rest).for_each(|p| *out += &part_line(p));
    let split = e.tried.iter().filter(|t| t.split).count();
    if 0 < split && split < e.tried.len() && e.seeds.len() > 1 {
        let text = format!(
            "Costs are the {split} of {} knock-outs that leave the least, chosen by these seeds: \
             their intervals do not count that choice.",
            e.tried.len()
        );
        *out += "\n";
        *out += &wrapped(&text);
    }
}

fn part_line(p: &Part) -> String {
    // No "-0.0".
    let percent = |x: f64| format!("{:.1} %", if x.abs() < 0.0005 { 0.0 } else { 100.0 * x });
    let amount = |x: Option<f64>| x.map_or("-".into(), signed);
    format!(
        "{:<NAME$}{:>9} {:>23} {:>11} {:>11} {:>11}\n",
        format!("    {}", tail(&p.mechanism, NAME - 5)),
        p.share.map_or("-".into(), percent),
        interval(p.ci_low, p.ci_high, percent),
        signed(p.amount),
        amount(p.knocked_out),
        amount(p.alone)
    )
}

/// Both ends, or nothing where they are not known.
pub(crate) fn interval(low: Option<f64>, high: Option<f64>, show: fn(f64) -> String) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("({} ... {})", show(low), show(high)),
        _ => String::new(),
    }
}

/// Without the sign of a positive number.
pub(crate) fn plain(x: f64) -> String {
    signed(x).trim_start_matches('+').to_string()
}

/// `text` in lines of at most [`WIDTH`] columns.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let w = word.chars().count();
        if width > 0 && width + 1 + w > WIDTH {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += w;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_not_too_long_and_lose_nothing() {
        let text = "word ".repeat(100);
        let lines = wrapped(&text);
        assert!(lines.lines().all(|l| l.len() <= WIDTH));
        assert_eq!(lines.split_whitespace().count(), 100);
    }
}
