//! Timelines as the traces that other tools read.
//!
//! | module | format | read by |
//! |---|---|---|
//! | `tracepoints` | a timeline's events, their fields as the kernel lays them out | the others |
//! | `tracing_data` | descriptions of events, as perf.data and trace.dat hold them | the two |
//! | `perf_data` | perf.data | `perf sched`, `perf script` |
//! | `trace_dat` | trace.dat, version 6 | trace-cmd, KernelShark |
//! | `perfetto` | Perfetto's protobuf | ui.perfetto.dev |
//! | `ftrace_text` | what `/sys/kernel/tracing/trace` prints | people |

mod ftrace_text;
mod perf_data;
mod perf_topology;
mod perfetto;
mod trace_dat;
mod tracepoints;
mod tracing_data;

use crate::lost::Lost;
use crate::topology_text::DumpedTopology;
use std::convert::Infallible;
use std::io::{self, Seek, Write};
use std::path::Path;
use tracepoints::{RUNTIME, Walk};
use vruntime_base::{EventKind, Timeline};

/// A format that can be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceFormat {
    /// perf.data.
    PerfData,
    /// trace.dat, version 6.
    TraceDat,
    /// Perfetto.
    Perfetto,
    /// ftrace's text.
    FtraceText,
}

impl TraceFormat {
    /// The format that a file's name asks for, or what was expected.
    pub fn of(path: &Path) -> Result<TraceFormat, String> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("data") => Ok(TraceFormat::PerfData),
            Some("dat") => Ok(TraceFormat::TraceDat),
            Some("pftrace" | "perfetto-trace") => Ok(TraceFormat::Perfetto),
            Some("txt") => Ok(TraceFormat::FtraceText),
            _ => Err(format!(
                "{}: expected a name that ends in `.data` (perf), `.dat` (trace-cmd), `.pftrace` \
                 (Perfetto) or `.txt` (ftrace text)",
                path.display()
            )),
        }
    }
}

/// Where a trace comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Kernel release, if it is known.
    pub release: Option<String>,
    /// Name of the machine, if it is known.
    pub hostname: Option<String>,
    /// `uname -m`, if it is known.
    pub arch: Option<String>,
    /// CPUs.
    pub nr_cpus: usize,
    /// What they share, if it is known: for perf.data.
    pub topology: Option<DumpedTopology>,
    /// The command line that made it.
    pub command: Vec<String>,
    /// What its recorder lost.
    pub lost: Lost,
}

/// What a file holds of a timeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Content {
    /// Events in the file.
    pub events: usize,
    /// Of them `sched_stat_runtime` that the timeline has not: made at the switch away from a task.
    pub made: usize,
    /// `sched_stat_runtime` of the timeline for which the format has no event.
    pub left_out: usize,
}

/// What a file of `format` holds of `timeline` on `nr_cpus` CPUs.
pub fn content(format: TraceFormat, timeline: &Timeline, nr_cpus: usize) -> Content {
    let told = timeline.iter().filter(|e| e.cpu.ix() < nr_cpus && e.kind == EventKind::Runtime);
    let (told, mut all, mut runtimes) = (told.count(), 0, 0);
    let counted: Result<(), Infallible> = Walk::new(timeline, nr_cpus).each(|hit| {
        all += 1;
        runtimes += usize::from(hit.point == RUNTIME);
        Ok(())
    });
    let Ok(()) = counted;
    match format {
        TraceFormat::Perfetto => Content { events: all - runtimes, made: 0, left_out: told },
        _ => Content { events: all, made: runtimes - told, left_out: 0 },
    }
}

/// Writes `timeline`. Nothing is held but a page per CPU.
pub fn write_trace(
    format: TraceFormat,
    timeline: &Timeline,
    origin: &Origin,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    match format {
        TraceFormat::PerfData => perf_data::write(timeline, origin, out),
        TraceFormat::TraceDat => trace_dat::write(timeline, origin, out),
        TraceFormat::Perfetto => perfetto::write(timeline, origin, out),
        TraceFormat::FtraceText => ftrace_text::write(timeline, origin, out),
    }
}
