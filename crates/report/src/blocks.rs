//! Causes and CPU time as blocks of rows, one column per kernel.

use crate::numbers::{head, tail, value};
use std::fmt::Write;
use vruntime_base::Category;
use vruntime_measure::causes::{CauseTable, place_name};
use vruntime_measure::{Comparison, CpuTime};

/// Width of what stands left of the columns.
pub const LEFT: usize = 36;
/// Width of a column.
pub const COLUMN: usize = 24;
/// Most rows of a block of causes, and of the block of CPU time; the rest is one row.
const CAUSES_MAX: usize = 16;
const PLACES_MAX: usize = 24;

/// The columns of a block.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Names of the kernels; the first is the base.
    pub names: &'a [String],
    /// Messages per kernel.
    pub messages: &'a [u64],
    /// Measured time per kernel in ns.
    pub measured_ns: &'a [u64],
}

impl<'a> Columns<'a> {
    /// One column for each kernel of a comparison.
    pub fn of(c: &'a Comparison) -> Columns<'a> {
        Columns { names: &c.kernels, messages: &c.messages, measured_ns: &c.measured_ns }
    }
    fn title(&self, group: &[usize], title: &str) -> String {
        let mut line = format!("{title:<LEFT$}");
        // A single column needs no name.
        for &k in group.iter().filter(|_| self.names.len() > 1) {
            line += &format!("{:>COLUMN$}", tail(&self.names[k], COLUMN - 2));
        }
        line.trim_end().to_string() + "\n"
    }
}

/// Kernel indices, at most `width` ≥ 2 a group; the base stands first in every group.
pub fn groups(nr_kernels: usize, width: usize) -> Vec<Vec<usize>> {
    let others: Vec<usize> = (1..nr_kernels).collect();
    if others.is_empty() {
        return (0..nr_kernels).map(|k| vec![k]).collect();
    }
    let with_base = |c: &[usize]| std::iter::once(0).chain(c.iter().copied()).collect();
    others.chunks(width - 1).map(with_base).collect()
}

/// A name and a count or ns per kernel.
type Line = (String, Vec<u64>);

/// The three blocks of causes.
pub fn all_causes_text(tables: &vruntime_measure::CauseTables, columns: Columns) -> String {
    causes_text("switches by cause", &tables.switches, columns)
        + &causes_text("placements by rule", &tables.placements, columns)
        + &causes_text("migrations by cause", &tables.migrations, columns)
}

/// `title`, then per cause how often per message (per second if nothing counts messages) and its
/// share of all, the largest share first. Empty if nothing was counted.
pub fn causes_text(title: &str, table: &CauseTable, columns: Columns) -> String {
    let n = columns.names.len();
    let totals = table.totals(n);
    if totals.iter().all(|&t| t == 0) {
        return String::new();
    }
    let (unit, per): (&str, Vec<f64>) = match columns.messages.iter().any(|&m| m > 0) {
        true => ("per message", columns.messages.iter().map(|&m| m as f64).collect()),
        false => ("per second", columns.measured_ns.iter().map(|&ns| ns as f64 / 1e9).collect()),
    };
    let lines = table.0.iter().map(|(name, counts)| (name.to_string(), counts.clone())).collect();
    let mut lines = largest_first(lines, &totals, CAUSES_MAX);
    lines.push(("total".into(), totals.clone()));

    let mut out = String::new();
    for group in groups(n, 3) {
        out += &columns.title(&group, &format!("{title}, {unit}"));
        for (name, counts) in &lines {
            write!(out, "  {:<w$}", head(name, LEFT - 2), w = LEFT - 2).unwrap();
            for &k in &group {
                let often =
                    if per[k] > 0.0 { value(counts[k] as f64 / per[k]) } else { "-".into() };
                write!(out, "{often:>14}{:>8.1} %", percent_of(counts[k], totals[k])).unwrap();
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// Function by own time or what it waited for, in % of the time that was not idle, the largest
/// first; for all kernels but the base also the change in points. Idle time follows in % of all.
pub fn cpu_time_text(cpu_time: &CpuTime, columns: Columns) -> String {
    let n = columns.names.len();
    let (busy, total) = (cpu_time.busy(n), cpu_time.total(n));
    if total.iter().all(|&t| t == 0) {
        return String::new();
    }
    let is_busy = |c: Category| c != Category::Idle;
    let lines = cpu_time.0.iter().filter(|r| is_busy(r.func.category()));
    let lines = lines.map(|r| (place_name(r.func, r.resource), r.ns.clone())).collect();
    let lines = largest_first(lines, &busy, PLACES_MAX);
    let idle: Line = ("idle, % of all".into(), (0..n).map(|k| total[k] - busy[k]).collect());

    let mut out = String::new();
    for group in groups(n, 3) {
        out += &columns.title(&group, "CPU time, % of non-idle");
        for line in &lines {
            out += &share_line(line, &busy, &group);
        }
        out += &share_line(&idle, &total, &group);
        out.push('\n');
    }
    out
}

fn share_line((name, ns): &Line, of: &[u64], group: &[usize]) -> String {
    let mut out = format!("  {:<w$}", head(name, LEFT - 2), w = LEFT - 2);
    let base = percent_of(ns[group[0]], of[group[0]]);
    for &k in group {
        let share = percent_of(ns[k], of[k]);
        match k {
            0 => write!(out, "{share:>22.2} %").unwrap(),
            _ => write!(out, "{share:>11.2} % {:>10}", format!("({})", points(share - base)))
                .unwrap(),
        }
    }
    out + "\n"
}

/// A change of a share with its sign; never `-0.00`.
fn points(x: f64) -> String {
    format!("{:+.2}", if x.abs() < 0.005 { 0.0 } else { x })
}

/// 100 · n / of; 0 for an empty whole.
fn percent_of(n: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * n as f64 / of as f64 }
}

/// Sorted by the largest share in any column; what comes after `max` lines becomes one.
fn largest_first(mut lines: Vec<Line>, totals: &[u64], max: usize) -> Vec<Line> {
    let largest = |l: &Line| -> f64 {
        l.1.iter().zip(totals).map(|(&n, &of)| percent_of(n, of)).fold(0.0, f64::max)
    };
    lines.sort_by(|a, b| largest(b).total_cmp(&largest(a)).then_with(|| a.0.cmp(&b.0)));
    if lines.len() > max {
        let rest = lines.split_off(max - 1);
        let sum = (0..totals.len()).map(|k| rest.iter().map(|l| l.1[k]).sum()).collect();
        lines.push((format!("({} more)", rest.len()), sum));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_in_every_group() {
        assert_eq!(groups(0, 3), Vec::<Vec<usize>>::new());
        assert_eq!(groups(1, 3), [[0]]);
        assert_eq!(groups(4, 3), [vec![0, 1, 2], vec![0, 3]]);
    }

    #[test]
    fn small_rows_are_folded() {
        let lines = (1..=5).map(|n| (format!("c{n}"), vec![n])).collect();
        let lines = largest_first(lines, &[15], 3);
        let want = [("c5", 5), ("c4", 4), ("(3 more)", 6)];
        assert_eq!(lines, want.map(|(s, n)| (s.to_string(), vec![n])));
    }
}
