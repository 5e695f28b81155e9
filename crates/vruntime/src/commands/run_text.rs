//! What `vruntime run` prints for a person.

use crate::duration::show;
use std::fmt::Write;
use vruntime_base::{Category, Resource};
use vruntime_kernel::program::Workload;
use vruntime_kernel::record::{Counters, RunRecord, Sampling};

/// Lines of a table that are printed before the rest is summed up.
const ROWS: usize = 12;

/// The whole report: the benchmark's own lines, then what `perf stat` and schedstat would say.
pub fn text(runs: &[RunRecord], workload: &dyn Workload, sampling: Sampling) -> String {
    let mut out = String::new();
    write_text(&mut out, runs, workload, sampling).expect("a string grows");
    out
}

fn write_text(
    out: &mut String,
    runs: &[RunRecord],
    workload: &dyn Workload,
    sampling: Sampling,
) -> std::fmt::Result {
    let first = &runs[0];
    writeln!(out, "{}", first.workload)?;
    if let [only] = runs
        && let Some(time) = only.time
    {
        writeln!(out, "{}", workload.result(time).trim_end())?;
    }
    writeln!(out, "\nmachine   {}, {} CPUs", first.machine, first.nr_cpus)?;
    writeln!(out, "kernel    {}", first.kernel)?;
    writeln!(out, "tasks     {}", first.nr_tasks)?;
    for r in runs {
        writeln!(out, "seed {:<4} {}", r.seed, time_line(r, sampling))?;
    }
    let times: Vec<u64> = runs.iter().filter_map(|r| r.time.map(|t| t.0)).collect();
    if times.len() > 1 {
        let mean = times.iter().sum::<u64>() / times.len() as u64;
        writeln!(out, "mean      {}", show(mean))?;
    }
    counter_lines(out, runs)?;
    for (title, of) in [
        ("switches", (|r| &r.switches) as fn(&RunRecord) -> &Vec<(&'static str, u64)>),
        ("placements", |r| &r.placements),
        ("migrations", |r| &r.migrations),
    ] {
        cause_lines(out, title, runs, of)?;
    }
    cpu_time_lines(out, runs)?;
    let h = &first.wakeup_latency;
    let at = |p| show(h.per_mille(p).0);
    writeln!(
        out,
        "\nwakeup latency (seed {}): p50 {}, p90 {}, p99 {}, max {}",
        first.seed,
        at(500),
        at(900),
        at(990),
        show(h.max().0)
    )
}

fn time_line(r: &RunRecord, sampling: Sampling) -> String {
    let window = show(r.window.1.saturating_sub(r.window.0).0);
    match (r.time, r.complete, sampling) {
        (Some(t), true, _) => format!("{}, simulated from start to end", show(t.0)),
        (Some(t), false, Sampling::Window { warmup, .. }) => {
            format!("{}, extrapolated from {window} after {} of warm-up", show(t.0), show(warmup.0))
        }
        (Some(t), false, _) => format!("{}, extrapolated from {window}", show(t.0)),
        (None, ..) => format!("time not known: not all groups made progress in {window}"),
    }
}

/// The counters by `perf stat`-like name.
pub fn counters(c: &Counters) -> impl Iterator<Item = (&'static str, u64)> {
    [
        ("context-switches", c.context_switches),
        ("voluntary-switches", c.voluntary_switches),
        ("involuntary-switches", c.involuntary_switches),
        ("cpu-migrations", c.cpu_migrations),
        ("wakeups", c.wakeups),
        ("wakeups-local", c.wakeups_local),
        ("wakeups-queued", c.wakeups_queued),
        ("wakeups-on-rq", c.wakeups_on_rq),
        ("wakeups-on-cpu", c.wakeups_on_cpu),
        ("sched-count", c.sched_count),
        ("sched-goidle", c.sched_goidle),
        ("ipis", c.ipis),
        ("ticks", c.ticks),
        ("messages", c.messages),
        ("forks", c.forks),
        ("syscalls", c.syscalls),
    ]
    .into_iter()
}

/// Counts of all runs together, and per simulated CPU second.
fn counter_lines(out: &mut String, runs: &[RunRecord]) -> std::fmt::Result {
    let spans = runs
        .iter()
        .map(|r| u128::from(r.window.1.saturating_sub(r.window.0).0) * r.nr_cpus as u128);
    let cpu_ns = spans.sum::<u128>().max(1);
    writeln!(out)?;
    for (i, (name, _)) in counters(&runs[0].counters).enumerate() {
        let of = |r: &RunRecord| counters(&r.counters).nth(i).map_or(0, |(_, n)| n);
        let n: u64 = runs.iter().map(of).sum();
        let per_second = u128::from(n) * 1_000_000_000 / cpu_ns;
        writeln!(out, "{:>18}  {name:22} # {per_second} /s per CPU", grouped(n))?;
    }
    Ok(())
}

fn cause_lines(
    out: &mut String,
    title: &str,
    runs: &[RunRecord],
    of: fn(&RunRecord) -> &Vec<(&'static str, u64)>,
) -> std::fmt::Result {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for &(name, n) in runs.iter().flat_map(of) {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += n,
            None => sums.push((name, n)),
        }
    }
    table(out, &format!("{title} by cause"), sums, grouped)
}

fn cpu_time_lines(out: &mut String, runs: &[RunRecord]) -> std::fmt::Result {
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut by_category = [(Category::User, 0u64); 5];
    let categories =
        [Category::User, Category::Syscall, Category::Scheduler, Category::Irq, Category::Idle];
    for (slot, category) in by_category.iter_mut().zip(categories) {
        slot.0 = category;
    }
    for (func, on, d) in runs.iter().flat_map(|r| &r.cpu_time) {
        if let Some(slot) = by_category.iter_mut().find(|(c, _)| *c == func.category()) {
            slot.1 += d.0;
        }
        let name = match on {
            Resource::None => func.name().to_string(),
            on => format!("{}, waiting for {}", func.name(), on.name()),
        };
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += d.0,
            None => sums.push((name, d.0)),
        }
    }
    let all = by_category.iter().map(|(_, ns)| ns).sum::<u64>().max(1);
    let share = |ns: u64| format!("{:.2} %", ns as f64 * 100.0 / all as f64);
    let parts: Vec<String> = by_category
        .iter()
        .map(|&(c, ns)| format!("{} {}", format!("{c:?}").to_lowercase(), share(ns)))
        .collect();
    writeln!(out, "\nCPU time: {}", parts.join(", "))?;
    table(out, "CPU time by function", sums, share)
}

/// The largest rows first; small ones together.
fn table(
    out: &mut String,
    title: &str,
    mut rows: Vec<(impl AsRef<str>, u64)>,
    value: impl Fn(u64) -> String,
) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.1));
    writeln!(out, "\n{title}")?;
    for (name, n) in rows.iter().take(ROWS) {
        writeln!(out, "{:>18}  {}", value(*n), name.as_ref())?;
    }
    if let Some(rest) = rows.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let sum = rest.iter().map(|(_, n)| n).sum();
        writeln!(out, "{:>18}  {} more", value(sum), rest.len())?;
    }
    Ok(())
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_three_digits() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(123), "123");
        assert_eq!(grouped(1_234), "1,234");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
