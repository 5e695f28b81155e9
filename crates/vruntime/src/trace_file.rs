//! `run --trace` and `trace convert`: events as a file that other tools read.

use crate::batch::Batch;
use crate::failure::{Failure, destination, writable};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::Builder;
use vruntime_base::Timeline;
use vruntime_formats::lost::Lost;
use vruntime_formats::topology_text::DumpedTopology;
use vruntime_formats::write::{Origin, TraceFormat, write_trace};
use vruntime_kernel::record::RunRecord;
use vruntime_machine::Arch;
use vruntime_report::numbers::duration;

/// The command line of this program, for the origin of what it writes.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A trace that will be written.
pub struct TraceFile {
    path: PathBuf,
    format: TraceFormat,
}

impl TraceFile {
    /// Fails before there is anything to write if the file cannot be written.
    pub fn new(path: &Path, format: TraceFormat) -> Result<TraceFile, Failure> {
        writable(path)?;
        Ok(TraceFile { path: path.into(), format })
    }

    /// The file that `--trace` names.
    pub fn of_run(path: &Path) -> Result<TraceFile, Failure> {
        let format = TraceFormat::of(path);
        TraceFile::new(path, format.map_err(|e| Failure::Usage(format!("--trace {e}")))?)
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `timeline`. The file has its name when it is whole: half a trace its readers would
    /// take for a damaged one.
    pub fn write(&self, timeline: &Timeline, origin: &Origin) -> Result<(), Failure> {
        let failed = |e| Failure::Input(format!("{}: {e}", self.path.display()));
        if self.path.metadata().is_ok_and(|m| !m.is_file()) {
            let pipe = File::options().write(true).open(&self.path).map_err(failed)?;
            return write_through(self.format, timeline, origin, pipe).map_err(failed);
        }
        let path = destination(&self.path);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let directly = || {
            let file = File::create(&path).map_err(failed)?;
            self.put(timeline, origin, file).map_err(failed)
        };
        let unfinished = Builder::new()
            .prefix(".vruntime-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory);
        match unfinished {
            Ok(unfinished) => {
                let (file, unfinished) = unfinished.into_parts();
                self.put(timeline, origin, file).map_err(failed)?;
                unfinished.persist(&path).map_err(|e| failed(e.error))
            }
            // A file where no other may be made.
            Err(_) if path.is_file() => directly(),
            Err(e) => Err(failed(e)),
        }
    }

    fn put(&self, timeline: &Timeline, origin: &Origin, file: File) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        write_trace(self.format, timeline, origin, &mut out)
    }

    /// Writes the events of `run`, and says on stderr if it has more than were kept.
    pub fn write_run(&self, batch: &Batch, run: &RunRecord) -> Result<(), Failure> {
        let timeline = &run.timeline;
        let topology = batch.machine.build_topology().ok();
        let origin = Origin {
            release: Some(run.kernel.clone()),
            hostname: Some(run.machine.clone()),
            arch: Some(match batch.machine.arch {
                Arch::X86 => "x86_64".into(),
                Arch::Powerpc => "ppc64le".into(),
            }),
            nr_cpus: run.nr_cpus,
            topology: topology.as_ref().map(DumpedTopology::of),
            command: command_line(),
            lost: Lost::default(),
        };
        self.write(timeline, &origin)?;
        if timeline.len() == batch.timeline {
            let at = timeline.last_time().map_or(0, |t| t.0);
            eprintln!(
                "vruntime: {}: ends at {} of simulated time: --trace-events {}",
                self.path.display(),
                duration(at),
                timeline.len()
            );
        }
        Ok(())
    }
}

/// Writes into a pipe or a device. A format is written out of order, so that it takes a nameless
/// file on its way there.
pub fn write_through(
    format: TraceFormat,
    timeline: &Timeline,
    origin: &Origin,
    mut out: impl Write,
) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile()?);
    write_trace(format, timeline, origin, &mut file)?;
    let mut file = file.into_inner()?;
    file.seek(SeekFrom::Start(0))?;
    match io::copy(&mut file, &mut out).and_then(|_| out.flush()) {
        // A reader that has seen enough is no error.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
}
