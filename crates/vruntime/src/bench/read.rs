//! How fast a perf.data is read, beside perf itself.

use super::case::{CASES, KERNELS};
use super::{Row, run, thread_cpu_ns};
use crate::failure::Failure;
use crate::interrupt;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeValLike;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};
use vruntime_formats::lost::Lost;
use vruntime_formats::read;
use vruntime_formats::write::{Origin, TraceFormat, write_trace};

/// Name in the results.
pub(super) const NAME: &str = "read-perf-data";
/// Events of the trace that is read.
const EVENTS: u64 = 2_000_000;
/// The best of so many.
const TIMES: usize = 3;

/// Writes a model run on 48 CPUs as perf.data, and times how it is read.
pub(super) fn measure(percent: u64, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Input(format!("a trace of `vruntime bench`: {e}"));
    let (case, kernel) = (&CASES[1], KERNELS[0]);
    let mut spec = case.spec(kernel, case.window)?;
    spec.timeline = (EVENTS * percent / 100).max(1_000) as usize;
    let record = run(&spec)?;
    let file = tempfile::NamedTempFile::new().map_err(failed)?;
    let origin = Origin {
        release: Some(record.kernel.clone()),
        hostname: Some(record.machine.clone()),
        arch: Some("x86_64".into()),
        nr_cpus: record.nr_cpus,
        topology: None,
        command: vec!["vruntime".into(), "bench".into()],
        lost: Lost::default(),
    };
    let mut out = BufWriter::with_capacity(1 << 20, file.reopen().map_err(failed)?);
    write_trace(TraceFormat::PerfData, &record.timeline, &origin, &mut out).map_err(failed)?;
    drop(out);
    let samples = record.timeline.len() as f64;
    let mut best = f64::INFINITY;
    for _ in 0..TIMES {
        if interrupt::seen() {
            return Err(Failure::Interrupted);
        }
        let start = thread_cpu_ns();
        let recorded = read::open_with_runtimes(file.path());
        let recorded = recorded.map_err(|e| Failure::Input(e.to_string()))?;
        best = best.min(thread_cpu_ns() - start);
        assert_eq!(recorded.timeline.len(), record.timeline.len(), "what was written is read");
    }
    let mut row = |metric, value| rows.push(Row { case: NAME, kernel, metric, value });
    row("events", samples);
    row("events_per_second", samples / best * 1e9);
    if let Some(ns) = perf_timehist_ns(file.path()) {
        row("perf_timehist_per_second", samples / ns * 1e9);
    }
    Ok(())
}

/// CPU time that perf takes; `None` if it is not there.
fn perf_timehist_ns(file: &Path) -> Option<f64> {
    let used = || {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
        Some((usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e3)
    };
    let start = used()?;
    let mut perf = Command::new("perf");
    perf.args(["sched", "timehist", "-i"]).arg(file);
    let mut perf = perf.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    interrupt::waits_for(Some((perf.id(), Signal::SIGTERM)));
    let status = perf.wait();
    interrupt::waits_for(None);
    let took = used()? - start;
    (status.ok()?.success() && took > 0.0).then_some(took)
}
