//! `vruntime bench`: how fast the model itself is.
//!
//! Each case runs twice, with a window and with a longer one, on one thread; all figures are
//! differences of the two, so start-up and warm-up do not count. Times are thread CPU time, divided
//! by X, the time of one step of a dependent xorshift64 chain taken before and after on the same
//! thread, so that figures of different machines can be compared. What is simulated is the same
//! every time, and whatever else a machine does only adds to the time: of some repetitions the
//! fastest run of each window counts, and the slowest shows how quiet the machine was.

mod alloc;
mod callgrind;
mod case;
mod read;

pub use alloc::{CountingAllocator, allocations, bytes_peak_since_reset, reset_bytes_peak};

use crate::cli::{BENCH_JSON, BenchArgs};
use crate::failure::{Done, Failure, make_directory_of, writable};

use case::{CASES, Case, KERNELS};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use vruntime_base::{Category, Ns};
use vruntime_kernel::record::RunRecord;
use vruntime_kernel::simulate::run;

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
    let mut rows = Vec::new();
    for case in chosen() {
        for kernel in KERNELS {
            eprintln!("vruntime: {} under {kernel}", case.name);
            let window = Ns((case.window.0 * args.percent / 100).max(1_000));
            measure(case, kernel, window, args.repeat, &mut rows)?;
            if let Some(instructions) = callgrind::per_message(case, kernel) {
                let metric = "instructions_per_message";
                rows.push(Row { case: case.name, kernel, metric, value: instructions });
            }
            // Each time: whoever stops a long measurement keeps what is complete. If it fails, the
            // last one says so, below the figures.
            let _ = write(&args.output, &to_json(&rows));
        }
    }
    if reads {
        eprintln!("vruntime: {}", read::NAME);
        read::measure(args.percent, &mut rows)?;
    }
    let values = to_json(&rows);
    let written = write(&args.output, &values);
    let done = if args.form.json {
        Done::json(&json!({"schema": "vruntime/bench/1", "rows": values}))
    } else {
        let to = written.is_ok().then(|| format!("written to {}\n", args.output.display()));
        Done::new(table(&rows) + &to.unwrap_or_default())
    };
    Ok(done.beside(written))
}

/// A run with what it cost.
struct Costed {
    record: RunRecord,
    cpu_ns: f64,
    allocations: u64,
}

fn costed(case: &Case, kernel: &str, window: Ns) -> Result<Costed, Failure> {
    let spec = case.spec(kernel, window)?;
    let (start, allocated) = (thread_cpu_ns(), allocations());
    let record = run(&spec).map_err(|e| Failure::Usage(e.to_string()))?;
    let (cpu_ns, allocations) = (thread_cpu_ns() - start, allocations() - allocated);
    Ok(Costed { record, cpu_ns, allocations })
}

fn measure(
    case: &'static Case,
    kernel: &'static str,
    window: Ns,
    repeat: u64,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    // Times in X. A difference of two runs is too small if the shorter one was disturbed, so the
    // fastest of each kind are taken before they are subtracted.
    let (mut x, mut least_short, mut least_long) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let mut most_long = 0.0_f64;
    let mut pair = None;
    for _ in 0..repeat.max(1) {
        let before = xorshift_step_ns();
        let short = costed(case, kernel, Ns(window.0 / 4))?;
        let long = costed(case, kernel, Ns(window.0 / 4 + window.0))?;
        let around = (before + xorshift_step_ns()) / 2.0;
        x = x.min(around);
        least_short = least_short.min(short.cpu_ns / around);
        least_long = least_long.min(long.cpu_ns / around);
        most_long = most_long.max(long.cpu_ns / around);
        pair = Some((short, long));
    }
    let Some((short, long)) = pair else { return Ok(()) };
    let (fastest, slowest) = (least_long - least_short, most_long - least_short);
    let counters = |r: &RunRecord| {
        [r.counters.messages, r.events, r.counters.context_switches].map(|n| n as f64)
    };
    let (a, b) = (counters(&short.record), counters(&long.record));
    let [messages, events, switches] = [0, 1, 2].map(|i| (b[i] - a[i]).max(1.0));
    let mut row = |metric, value| rows.push(Row { case: case.name, kernel, metric, value });
    row("x_ns", x);
    row("ns_per_message_over_x", fastest / messages);
    row("ns_per_message_over_x_max", slowest / messages);
    row("ns_per_event_over_x", fastest / events);
    row("ns_per_switch_over_x", fastest / switches);
    row("ns_per_simulated_ns_over_x", fastest / window.0 as f64);
    row("events_per_message", events / messages);
    row("switches_per_message", switches / messages);
    row("idle_percent", idle_percent(&long.record));
    row("switches_per_second", switches / (fastest * x) * 1e9);
    row("bytes_per_task", long.record.bytes_per_task as f64);
    if cfg!(feature = "count-allocations") {
        let more = long.allocations.saturating_sub(short.allocations);
        row("allocations_per_event", more as f64 / events);
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
    let record = run(&case.spec(kernel, Ns(window))?).map_err(|e| Failure::Usage(e.to_string()))?;
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
    for row in rows.iter().filter(|r| r.kernel == KERNELS[0]) {
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
