//! `run --trace`: a run's events as a file that other tools read.

use crate::batch::Batch;
use crate::failure::{Failure, writable};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use vruntime_formats::write::{Origin, TRACE_FILES, TraceFormat, write_trace};
use vruntime_kernel::record::RunRecord;
use vruntime_machine::Arch;
use vruntime_report::numbers::duration;

/// A trace that will be written.
pub struct TraceFile {
    path: PathBuf,
    format: TraceFormat,
}

impl TraceFile {
    /// Fails before the run if the name says no format or the file cannot be written.
    pub fn new(path: &Path) -> Result<TraceFile, Failure> {
        let format = TraceFormat::of(path).ok_or_else(|| {
            let name = path.display();
            Failure::Usage(format!("--trace {name}: expected a name that ends in {TRACE_FILES}"))
        })?;
        writable(path)?;
        Ok(TraceFile { path: path.into(), format })
    }

    /// Writes the events of `run`, and says on stderr if it has more than were kept.
    pub fn write(&self, batch: &Batch, run: &RunRecord) -> Result<(), Failure> {
        let timeline = &run.timeline;
        let origin = Origin {
            release: run.kernel.clone(),
            hostname: run.machine.clone(),
            arch: match batch.machine.arch {
                Arch::X86 => "x86_64".into(),
                Arch::Powerpc => "ppc64le".into(),
            },
            nr_cpus: run.nr_cpus,
            command: std::env::args().collect(),
        };
        let failed = |e| Failure::Input(format!("{}: {e}", self.path.display()));
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&self.path).map_err(failed)?);
        write_trace(self.format, timeline, &origin, &mut out).map_err(failed)?;
        if timeline.len() == batch.timeline {
            let at = timeline.last_time().map_or(0, |t| t.0);
            eprintln!(
                "vruntime: {}: ends at {} of simulated time, after {} events (--trace-events)",
                self.path.display(),
                duration(at),
                timeline.len()
            );
        }
        Ok(())
    }
}
