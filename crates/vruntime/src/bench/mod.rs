//! `vruntime bench`: how fast the model itself is.
//!
//! Each case runs twice, with a window and with a longer one, on one thread; times and counters are
//! differences of the two, so start-up and warm-up do not count. Times are thread CPU time, divided
//! by X, the time of one step of a dependent xorshift64 chain taken before and after on the same
//! thread, so that figures of different machines can be compared. What is simulated is the same
//! every time, and whatever else a machine does only adds to the time: of some repetitions the
//! fastest run of each window counts, and the slowest shows how quiet the machine was.

mod alloc;
mod callgrind;
mod case;
mod read;
mod timing;

pub use alloc::{CountingAllocator, allocations, bytes_peak_since_reset, reset_bytes_peak};

use crate::cli::{BENCH_JSON, BenchArgs};
use crate::failure::{Done, Failure, make_directory_of, writable};
use crate::interrupt;

use case::{CASES, Case, KERNELS};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use timing::{Counts, Least, Pair};
use vruntime_base::{Category, Ns};
use vruntime_kernel::record::{RunRecord, RunSpec};
use vruntime_kernel::simulate::{Progress, run_watched};

/// One figure.
struct Row {
    case: &'static str,
    kernel: &'static str,
    metric: &'static str,
    value: f64,
}

/// Runs all cases, prints a table, writes the figures.
pub fn bench(args: &BenchArgs) -> Result<Done, Failure> {
    if let Some(only) = &args.only {
        return run_only(only);
    }
    let chosen = || CASES.iter().filter(|case| case.name.contains(&args.case));
    let reads = read::NAME.contains(&args.case);
    if chosen().next().is_none() && !reads {
        let names: Vec<_> = CASES.iter().map(|case| case.name).chain([read::NAME]).collect();
        return Err(Failure::no_case(&args.case, &names));
    }
    if args.output == Path::new(BENCH_JSON) {
        make_directory_of(&args.output)?;
    }
    writable(&args.output)?;
    interrupt::install();
    let mut rows = Vec::new();
    let ended = match measure_all(args, &mut rows) {
        Err(failure) if rows.is_empty() => return Err(failure),
        ended => ended,
    };
    let values = to_json(&rows);
    let written = write(&args.output, &values);
    let interrupted = matches!(ended, Err(Failure::Interrupted));
    let done = if args.form.json {
        let schema = "vruntime/bench/1";
        Done::json(&json!({"schema": schema, "interrupted": interrupted, "rows": values}))
    } else {
        let to = written.is_ok().then(|| format!("written to {}\n", args.output.display()));
        Done::new(table(&rows) + &to.unwrap_or_default())
    };
    // Whatever ended it, what was complete before has been measured for minutes.
    let done = if interrupted { done.interrupted(true) } else { done.beside(ended) };
    Ok(done.beside(written))
}

/// All cases that were chosen; `rows` has those that are complete, however it ends.
fn measure_all(args: &BenchArgs, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let kept = is_rewritten(&args.output);
    for case in CASES.iter().filter(|case| case.name.contains(&args.case)) {
        for kernel in KERNELS {
            eprintln!("vruntime: {} under {kernel}", case.name);
            let window = Ns((case.window.0 * args.percent / 100).max(1_000));
            measure(case, kernel, window, args.repeat, rows)?;
            let metric = "instructions_per_message";
            match callgrind::per_message(case, kernel) {
                Ok(Some(value)) => rows.push(Row { case: case.name, kernel, metric, value }),
                Ok(None) => {}
                Err(e) => {
                    eprintln!("vruntime: note: {} under {kernel}: no {metric}: {e}", case.name);
                }
            }
            // Each time: if the machine fails, what is complete is there. If it cannot be written,
            // the last one says so, below the figures.
            if kept {
                let _ = write(&args.output, &to_json(rows));
            }
            if interrupt::seen() {
                return Err(Failure::Interrupted);
            }
        }
    }
    if read::NAME.contains(&args.case) {
        eprintln!("vruntime: {}", read::NAME);
        read::measure(args.percent, rows)?;
    }
    Ok(())
}

/// A run with what it cost.
struct Costed {
    record: RunRecord,
    cpu_ns: f64,
    allocations: u64,
}

impl Costed {
    fn counts(&self) -> Counts {
        let c = &self.record.counters;
        let [messages, events, switches] =
            [c.messages, self.record.events, c.context_switches].map(|n| n as f64);
        Counts { messages, events, switches }
    }
}

fn costed(case: &Case, kernel: &str, window: Ns) -> Result<Costed, Failure> {
    let spec = case.spec(kernel, window)?;
    let (start, allocated) = (thread_cpu_ns(), allocations());
    let record = run(&spec)?;
    let (cpu_ns, allocations) = (thread_cpu_ns() - start, allocations() - allocated);
    Ok(Costed { record, cpu_ns, allocations })
}

/// The run to its end, unless ^C comes before.
fn run(spec: &RunSpec) -> Result<RunRecord, Failure> {
    let progress = Arc::new(Progress::default());
    interrupt::watch(&progress);
    let record = run_watched(spec, &progress).map_err(|e| Failure::Usage(e.to_string()))?;
    if progress.stop.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted);
    }
    Ok(record)
}

fn measure(
    case: &'static Case,
    kernel: &'static str,
    window: Ns,
    repeat: u64,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let mut pairs = Vec::new();
    let mut last = None;
    for _ in 0..repeat.max(1) {
        let before = xorshift_step_ns();
        let short = costed(case, kernel, Ns(window.0 / 4))?;
        let long = costed(case, kernel, Ns(window.0 / 4 + window.0))?;
        let x = [before, xorshift_step_ns()];
        pairs.push(Pair { x, short: short.cpu_ns, long: long.cpu_ns });
        last = Some((short, long));
    }
    let Some((short, long)) = last else { return Ok(()) };
    let (least, more) = (Least::of(&pairs), long.counts().beyond(short.counts()));
    let figures = timing::figures(least, more, window.0 as f64);
    if let Some(note) = timing::left_out(case.name, kernel, &figures) {
        eprintln!("vruntime: note: {note}");
    }
    let mut row = |metric, value| rows.push(Row { case: case.name, kernel, metric, value });
    row("x_ns", least.x);
    figures.iter().for_each(|(metric, value)| value.iter().for_each(|value| row(metric, *value)));
    row("idle_percent", idle_percent(&long.record));
    row("bytes_per_task", long.record.bytes_per_task as f64);
    // None is a result, too: there is no allocation in the loop.
    let allocated = long.allocations.checked_sub(short.allocations);
    if let Some(n) = allocated.filter(|_| cfg!(feature = "count-allocations") && more.events > 0.0)
    {
        row("allocations_per_event", n as f64 / more.events);
    }
    row("peak_rss_kib", peak_rss_kib());
    Ok(())
}

/// How much of the CPUs' time was idle, in the measured window.
fn idle_percent(r: &RunRecord) -> f64 {
    let sum = |of: fn(Category) -> bool| -> f64 {
        let rows = r.cpu_time.iter().filter(|e| of(e.0.category()));
        rows.map(|e| e.2.0 as f64).sum()
    };
    100.0 * sum(|c| c == Category::Idle) / sum(|_| true).max(1.0)
}

/// `CASE:KERNEL:WINDOW_NS`: that run alone; prints its messages.
fn run_only(text: &str) -> Result<Done, Failure> {
    let wrong = || Failure::Usage(format!("--only {text}: expected CASE:KERNEL:WINDOW_NS"));
    let mut parts = text.split(':');
    let mut part = || parts.next().ok_or_else(wrong);
    let case = Case::by_name(part()?).ok_or_else(wrong)?;
    let (kernel, window) = (part()?, part()?.parse().map_err(|_| wrong())?);
    let record = run(&case.spec(kernel, Ns(window))?)?;
    Ok(Done::new(format!("{}\n", record.counters.messages)))
}

fn thread_cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(0.0, |t| t.tv_sec() as f64 * 1e9 + t.tv_nsec() as f64)
}

/// X: thread CPU time of one step of a dependent xorshift64 chain, ns; the least of five.
fn xorshift_step_ns() -> f64 {
    const STEPS: u32 = 5_000_000;
    let mut x = std::hint::black_box(88_172_645_463_325_252_u64);
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let start = thread_cpu_ns();
        for _ in 0..STEPS {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        x = std::hint::black_box(x);
        least = least.min((thread_cpu_ns() - start) / f64::from(STEPS));
    }
    least
}

/// The most memory that this process has had so far, KiB.
fn peak_rss_kib() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| usage.max_rss() as f64)
}

/// Rows with kernel, and those of the first kernel once more without.
fn to_json(rows: &[Row]) -> Value {
    let plain = rows.iter().filter(|r| r.kernel == KERNELS[0]);
    let plain = plain.map(|r| json!({"case": r.case, "metric": r.metric, "value": r.value}));
    let full = rows
        .iter()
        .map(|r| json!({"case": r.case, "kernel": r.kernel, "metric": r.metric, "value": r.value}));
    plain.chain(full).collect()
}

/// A file may be written again and again. Whoever reads a pipe or a terminal wants one answer, and
/// a FIFO that was closed once has lost its reader.
fn is_rewritten(path: &Path) -> bool {
    path.metadata().map_or(true, |m| m.is_file())
}

fn write(path: &Path, values: &Value) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", path.display()));
    fs::write(path, format!("{values:#}\n")).map_err(failed)
}

/// One line for each metric and case, one column for each kernel.
fn table(rows: &[Row]) -> String {
    let mut out = format!("{:26} {:26}", "case", "metric");
    let mut line = |text: std::fmt::Arguments| out.write_fmt(text).expect("a string grows");
    KERNELS.iter().for_each(|kernel| line(format_args!("{kernel:>14}")));
    line(format_args!("\n"));
    // A kernel may be without a figure that another has.
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let name = (row.case, row.metric);
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        line(format_args!("{:26} {:26}", row.case, row.metric));
        for kernel in KERNELS {
            let same = |r: &&Row| (r.case, r.metric, r.kernel) == (row.case, row.metric, kernel);
            match rows.iter().find(same).map(|r| r.value) {
                Some(value) if value >= 1_000.0 => line(format_args!("{value:14.0}")),
                Some(value) => line(format_args!("{value:14.3}")),
                None => line(format_args!("{:>14}", "-")),
            }
        }
        line(format_args!("\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_what_any_kernel_has() {
        let row = |kernel, metric, value| Row { case: "c", kernel, metric, value };
        let [old, new] = KERNELS;
        let rows = [row(old, "x_ns", 1.5), row(new, "x_ns", 1.25), row(new, "late", 2_000.0)];
        let text = table(&rows);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(1).map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines, [["c", "x_ns", "1.500", "1.250"], ["c", "late", "-", "2000"]]);
    }
}
