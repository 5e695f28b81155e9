//! `vruntime trace convert`: a trace in another format.

use crate::cli::TraceConvertArgs;
use crate::failure::{Done, Failure, same_file};
use crate::trace_file::{TraceFile, command_line};
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;
use vruntime_base::EventKind;
use vruntime_formats::read::{self, Recorded};
use vruntime_formats::write::{Content, Origin, TraceFormat, content, write_trace};

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
    let Some(file) = file else {
        let failed = |e: io::Error| Failure::Input(format!("standard output: {e}"));
        to_stdout(format, &recorded, &origin).map_err(failed)?;
        return Ok(Done::new(String::new()));
    };
    file.write(&recorded.timeline, &origin)?;
    let (name, tasks, cpus) =
        (file.path().display(), recorded.timeline.tasks().len(), origin.nr_cpus);
    let Content { events, made, left_out } = content(format, &recorded.timeline, cpus);
    let mut said = format!("{name}: {events} events, {tasks} tasks, {cpus} CPUs\n");
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
    Ok(Done::new(said))
}

/// A format is written out of order, so that it takes a nameless file on its way into a pipe.
fn to_stdout(format: TraceFormat, recorded: &Recorded, origin: &Origin) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
    write_trace(format, &recorded.timeline, origin, &mut file)?;
    let mut file = file.into_inner()?;
    file.seek(SeekFrom::Start(0))?;
    let mut stdout = io::stdout().lock();
    match io::copy(&mut file, &mut stdout).and_then(|_| stdout.flush()) {
        // A reader that has seen enough is no error.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
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
