//! `vruntime trace convert`: a trace in another format.

use crate::cli::TraceConvertArgs;
use crate::failure::{Done, Failure, same_file};
use crate::trace_file::{TraceFile, command_line, write_through};
use std::io;
use std::path::Path;
use vruntime_base::EventKind;
use vruntime_formats::read::{self, Recorded};
use vruntime_formats::write::{Content, Origin, TraceFormat, content};

/// A format by name.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Format {
    /// perf.data
    Perf,
    /// trace.dat of trace-cmd, version 6
    Dat,
    /// Perfetto
    Perfetto,
    /// The text of ftrace
    Text,
}

impl From<Format> for TraceFormat {
    fn from(format: Format) -> TraceFormat {
        match format {
            Format::Perf => TraceFormat::PerfData,
            Format::Dat => TraceFormat::TraceDat,
            Format::Perfetto => TraceFormat::Perfetto,
            Format::Text => TraceFormat::FtraceText,
        }
    }
}

/// Reads a trace and writes it. What is wrong with it goes to stderr.
pub fn convert(args: &TraceConvertArgs) -> Result<Done, Failure> {
    let out = args.output.as_deref().filter(|path| *path != Path::new("-"));
    let format = match (args.to, out) {
        (Some(format), _) => format.into(),
        (None, Some(path)) => {
            TraceFormat::of(path).map_err(|e| Failure::Usage(format!("{e}, or --to")))?
        }
        (None, None) => {
            return Err(Failure::Usage("to standard output: expected --to FORMAT".into()));
        }
    };
    let file = out.map(|path| {
        if same_file(&args.input, path) {
            let name = path.display();
            return Err(Failure::Usage(format!("{name}: expected another file to write to")));
        }
        TraceFile::new(path, format)
    });
    let file = file.transpose()?;
    let recorded = read::open_with_runtimes(&args.input)
        .and_then(Recorded::readable)
        .map_err(|e| Failure::Input(e.to_string()))?;
    for note in &recorded.diagnostics {
        eprintln!("vruntime: note: {note}");
    }
    let origin = origin(&recorded);
    let (timeline, cpus) = (&recorded.timeline, origin.nr_cpus);
    match &file {
        Some(file) => file.write(timeline, &origin)?,
        None => write_through(format, timeline, &origin, io::stdout().lock())
            .map_err(|e| Failure::Input(format!("standard output: {e}")))?,
    }
    let Content { events, made, left_out } = content(format, timeline, cpus);
    let mut said = String::new();
    if made > 0 {
        said += &format!("{made} of the events are sched_stat_runtime made of switches\n");
    }
    if left_out > 0 {
        said += &format!("left out: {left_out} sched_stat_runtime, which the format has not\n");
    }
    if recorded.others > 0 {
        let n = recorded.others;
        said += &format!("left out: {n} events of other kinds (interrupts, timers and the like)\n");
    }
    if format == TraceFormat::FtraceText {
        said += "times are cut to microseconds\n";
    }
    let beside = |file: &TraceFile| !same_file(file.path(), Path::new("/dev/stdout"));
    let Some(file) = file.filter(beside) else {
        said.lines().for_each(|line| eprintln!("vruntime: note: {line}"));
        return Ok(Done::new(String::new()));
    };
    let (name, tasks) = (file.path().display(), timeline.tasks().len());
    Ok(Done::new(format!("{name}: {events} events, {tasks} tasks, {cpus} CPUs\n{said}")))
}

/// What the recording says of where it comes from.
fn origin(recorded: &Recorded) -> Origin {
    let seen = recorded.timeline.iter().map(|e| {
        let other = match e.kind {
            EventKind::Switch | EventKind::Runtime => 0,
            EventKind::Migrate => e.a.max(e.b),
            _ => e.a,
        };
        other.max(e.cpu.0.into())
    });
    let lost = recorded.lost.by_cpu().map(|(cpu, _)| u32::from(cpu));
    let seen = seen.chain(lost).max().map_or(0, |cpu| cpu + 1);
    // A file that says it has more CPUs than there can be is damaged.
    let said = recorded.nr_cpus.filter(|n| *n <= 1 << 16).unwrap_or(0);
    Origin {
        release: recorded.release.clone(),
        hostname: recorded.hostname.clone(),
        arch: recorded.arch.clone(),
        nr_cpus: seen.max(said).max(1) as usize,
        topology: recorded.topology.clone(),
        command: command_line(),
        lost: recorded.lost.clone(),
    }
}
