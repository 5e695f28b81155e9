//! Causes and CPU time as blocks of rows, one column per kernel.

use crate::numbers::{head, tail, value};
use std::fmt::Write;
use vruntime_base::Category;
use vruntime_measure::causes::{CauseTable, Per, RateTable, place_name};
use vruntime_measure::{CauseRates, CauseTables, Comparison, CpuTime};

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
}

impl<'a> Columns<'a> {
    /// One column for each kernel of a comparison.
    pub fn of(c: &'a Comparison) -> Columns<'a> {
        Columns { names: &c.kernels }
    }
    fn title(&self, group: &[usize], title: &str, left: usize) -> String {
        let mut line = format!("{title:<left$}");
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

/// A name with a count or ns per kernel, of causes also with how often they were.
#[derive(Debug, PartialEq)]
struct Line {
    name: String,
    counts: Vec<u64>,
    rates: Vec<Option<f64>>,
}

/// The three blocks of causes.
pub fn all_causes_text(tables: &CauseTables, rates: &CauseRates, columns: Columns) -> String {
    [
        ("switches by cause", &tables.switches, &rates.switches),
        ("placements by rule", &tables.placements, &rates.placements),
        ("migrations by cause", &tables.migrations, &rates.migrations),
    ]
    .map(|(title, counts, often)| causes_text(title, counts, often, rates.per, columns))
    .concat()
}

/// `title`, then per cause how often per message (per second if nothing counts messages) and its
/// share of all, the largest share first. Empty if nothing was counted.
fn causes_text(
    title: &str,
    table: &CauseTable,
    rates: &RateTable,
    per: Per,
    columns: Columns,
) -> String {
    let n = columns.names.len();
    let totals = table.totals(n);
    if totals.iter().all(|&t| t == 0) {
        return String::new();
    }
    let lines = table.0.iter().zip(&rates.0).map(|((name, counts), (_, rates))| Line {
        name: name.to_string(),
        counts: counts.clone(),
        rates: rates.clone(),
    });
    let lines: Vec<Line> = lines.collect();
    let total = sum("total".into(), &lines, n);
    let mut lines = largest_first(lines, &totals, CAUSES_MAX);
    lines.push(total);

    let unit = match per {
        Per::Message => "per message",
        Per::Second => "per second",
    };
    let longest = lines.iter().map(|l| l.name.chars().count()).max().unwrap_or(0);
    let left = LEFT.max(2 + longest);
    let mut out = String::new();
    for group in groups(n, 3) {
        out += &columns.title(&group, &format!("{title}, {unit}"), left);
        for Line { name, counts, rates } in &lines {
            write!(out, "  {name:<w$}", w = left - 2).unwrap();
            for &k in &group {
                let often = rates[k].map_or("-".into(), value);
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
    let line = |name, counts| Line { name, counts, rates: vec![] };
    let lines = lines.map(|r| line(place_name(r.func, r.resource), r.ns.clone())).collect();
    let lines = largest_first(lines, &busy, PLACES_MAX);
    let idle = line("idle, % of all".into(), (0..n).map(|k| total[k] - busy[k]).collect());

    let mut out = String::new();
    for group in groups(n, 3) {
        out += &columns.title(&group, "CPU time, % of non-idle", LEFT);
        for line in &lines {
            out += &share_line(line, &busy, &group);
        }
        out += &share_line(&idle, &total, &group);
        out.push('\n');
    }
    out
}

fn share_line(Line { name, counts: ns, .. }: &Line, of: &[u64], group: &[usize]) -> String {
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
        l.counts.iter().zip(totals).map(|(&n, &of)| percent_of(n, of)).fold(0.0, f64::max)
    };
    lines.sort_by(|a, b| largest(b).total_cmp(&largest(a)).then_with(|| a.name.cmp(&b.name)));
    if lines.len() > max {
        let rest = lines.split_off(max - 1);
        lines.push(sum(format!("({} more)", rest.len()), &rest, totals.len()));
    }
    lines
}

/// All of `lines`, of so many columns, as one.
fn sum(name: String, lines: &[Line], columns: usize) -> Line {
    let counts = (0..columns).map(|k| lines.iter().map(|l| l.counts[k]).sum()).collect();
    let rate = |k: usize| lines.iter().map(|l| l.rates.get(k).copied().flatten()).sum();
    Line { name, counts, rates: (0..columns).map(rate).collect() }
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
        let line = |name: &str, n: u64| Line {
            name: name.into(),
            counts: vec![n],
            rates: vec![Some(n as f64 / 2.0)],
        };
        let lines = (1..=5).map(|n| line(&format!("c{n}"), n)).collect();
        let lines = largest_first(lines, &[15], 3);
        assert_eq!(lines, [line("c5", 5), line("c4", 4), line("(3 more)", 6)]);
    }
}
