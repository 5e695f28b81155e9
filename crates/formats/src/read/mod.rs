//! Recorded traces as a `Timeline`. What a file is, its contents say.
//!
//! | module | is |
//! |---|---|
//! | `input` | where bytes come from: a file, a pipe, either compressed |
//! | `bytes`, `zstd` | numbers of either byte order; compressed parts |
//! | `event_format` | the kernel's description of an event, for every binary format |
//! | `tracepoint` | raw tracepoint data as events, by those descriptions |
//! | `tracing_data` | what perf.data and trace.dat have in common |
//! | `perf_data`, `perf_records` | perf.data, as a file or through a pipe, of either byte order |
//! | `perf_topology` | the machine that perf.data describes |
//! | `trace_dat`, `ring_buffer` | trace.dat, versions 6 and 7, and the kernel's pages in it |
//! | `perfetto`, `protobuf` | Perfetto's packets, columns of switches among them |
//! | `trace_text` | the text of tracefs `trace`, `trace-cmd report` and `perf script` |
//! | `builder` | events in any order as a timeline |

mod builder;
mod bytes;
pub mod event_format;
mod input;
mod perf_data;
mod perf_records;
mod perf_topology;
mod perfetto;
mod protobuf;
mod ring_buffer;
mod trace_dat;
mod trace_text;
mod tracepoint;
mod tracing_data;
mod zstd;

use crate::error::{Diagnostic, FormatError};
use crate::lost::Lost;
use crate::numbers::perf_data::MAGIC;
use crate::topology_text::DumpedTopology;
use builder::Builder;
use input::Input;
pub use input::is_perf_directory;
use std::io;
use std::path::{Path, PathBuf};
use vruntime_base::{EventKind, Timeline};

/// A recording as read.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What it is, as in `perf.data` or `text`.
    pub format: &'static str,
    /// Its events and tasks.
    pub timeline: Timeline,
    /// What each event of the timeline tells beyond it, if that was asked for.
    pub details: Vec<Detail>,
    /// The other events, in order of time, if they were asked for.
    pub glimpses: Vec<Glimpse>,
    /// How many other events there are.
    pub others: u64,
    /// The kernel's release, where the file says it.
    pub release: Option<String>,
    /// The machine's name, where the file says it.
    pub hostname: Option<String>,
    /// `uname -m`, where the file says it.
    pub arch: Option<String>,
    /// CPUs of the machine, where the file says it.
    pub nr_cpus: Option<u32>,
    /// Its CPUs and what they share, where the file says it.
    pub topology: Option<DumpedTopology>,
    /// Events that the recorder says it lost.
    pub lost: Lost,
    /// Damage that was stepped over. The list is bounded.
    pub diagnostics: Vec<Diagnostic>,
}

impl Recorded {
    /// With the events of `builder`.
    fn with(self, builder: Builder) -> Recorded {
        let Recorded { timeline, details, glimpses, others, .. } = builder.finish();
        Recorded { timeline, details, glimpses, others, ..self }
    }
}

/// What an event tells of the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Thread running there.
    pub curr: u32,
    /// See [`vruntime_base::flag`]; `None` if the format does not show them.
    pub flags: Option<u8>,
    /// Place among all events of the file, glimpses included.
    pub order: u32,
}

/// An event that is not part of a timeline, for what it shows of its CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Glimpse {
    /// When, ns.
    pub time: u64,
    /// Where.
    pub cpu: u16,
    /// Thread running there.
    pub curr: u32,
    /// See [`vruntime_base::flag`].
    pub flags: Option<u8>,
    /// `sched_stat_runtime`.
    pub ran: Option<Ran>,
    /// As [`Detail::order`].
    pub order: u32,
}

/// A thread was accounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ran {
    /// Which.
    pub pid: u32,
    /// For how long, ns.
    pub runtime: u64,
    /// Its virtual runtime after that, where the kernel shows it.
    pub vruntime: Option<u64>,
}

/// Where the list of diagnostics ends.
const DIAGNOSTICS_MAX: usize = 100;
/// What can be read.
const EXPECTED: &str =
    "perf.data, trace.dat, Perfetto, or text of tracefs or of perf script, plain or .xz";

/// Reads a trace, plain or `.xz`; `-` is standard input. A file that is no trace is an error;
/// damage is a diagnostic.
pub fn open(path: &Path) -> Result<Recorded, FormatError> {
    read(path, Glimpses::Left)
}

/// As [`open`], with details and glimpses.
pub fn open_in_full(path: &Path) -> Result<Recorded, FormatError> {
    read(path, Glimpses::Kept)
}

/// As [`open`]; a timeline says, too, when tasks were accounted ([`EventKind::Runtime`]).
pub fn open_with_runtimes(path: &Path) -> Result<Recorded, FormatError> {
    read(path, Glimpses::Runtimes)
}

/// Reads what a trace holds, wherever it comes from; `name` is for messages.
pub fn of_bytes(name: &Path, bytes: &[u8]) -> Result<Recorded, FormatError> {
    from(Input::memory(bytes), name, Glimpses::Left)
}

/// Files in `dir` that are traces going by their names, in order of name.
pub fn traces_in(dir: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let mut found = vec![];
    for entry in std::fs::read_dir(dir).map_err(|e| FormatError::io(dir, e))? {
        let path = entry.map_err(|e| FormatError::io(dir, e))?.path();
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        let name = name.strip_suffix(".xz").unwrap_or(&name);
        let ends = |list: &[&str]| list.iter().any(|e| name.ends_with(e));
        let text = name.ends_with(".txt") && (name.contains("trace") || name.contains("script"));
        let binary = ends(&["perf.data", ".dat", ".pftrace", ".perfetto-trace"]);
        if path.is_file() && (binary || text) || binary && is_perf_directory(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether details, and events that are not part of a timeline, are of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Glimpses {
    Left,
    /// Of accounting only, as events of the timeline.
    Runtimes,
    Kept,
}

fn read(path: &Path, glimpses: Glimpses) -> Result<Recorded, FormatError> {
    let name = match path.to_str() {
        Some("-") => Path::new("standard input"),
        _ => path,
    };
    let input = Input::open(path).map_err(|why| match why {
        Refusal::Io(e) => FormatError::io(name, e),
        Refusal::Found(found) => FormatError::syntax(name, 0, found, EXPECTED),
    })?;
    from(input, name, glimpses)
}

impl Recorded {
    /// An error if damage has left no event of it.
    pub fn readable(self) -> Result<Recorded, FormatError> {
        match self.diagnostics.first() {
            Some(first) if !has_events(&self.timeline) => {
                Err(FormatError::NothingLeft { first: first.to_string() })
            }
            _ => Ok(self),
        }
    }
}

/// Accounting alone says nothing of who ran where.
fn has_events(timeline: &Timeline) -> bool {
    timeline.iter().any(|e| e.kind != EventKind::Runtime)
}

fn from(mut input: Input, name: &Path, glimpses: Glimpses) -> Result<Recorded, FormatError> {
    let (mut recorded, notes) = parse(&mut input, glimpses)
        .map_err(|found| FormatError::syntax(name, 0, found, EXPECTED))?;
    let note = |text| Diagnostic { path: name.to_owned(), line: 0, text };
    recorded.diagnostics.extend(notes.texts().map(note));
    Ok(recorded)
}

/// Why something is not read at all.
enum Refusal {
    Io(io::Error),
    /// What was found instead of a trace.
    Found(String),
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        Refusal::Io(e)
    }
}

/// Reads the contents of a trace; the error says what was found instead of one.
fn parse(input: &mut Input, glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    let start = input.get(0, 16);
    let read = if start.starts_with(MAGIC) || start.starts_with(perf_data::MAGIC_FOREIGN) {
        perf_data::read(input, glimpses)
    } else if start.starts_with(tracing_data::MAGIC) {
        trace_dat::read(input, glimpses)
    } else if perfetto::is_one(input) {
        perfetto::read(input, glimpses)
    } else {
        trace_text::read(input, glimpses)
    };
    match (read, input.failure()) {
        (Ok((recorded, mut notes)), failure) => {
            if let Some((at, e)) = failure {
                notes.at(*at, e);
            }
            if !has_events(&recorded.timeline) {
                notes.at(0, "no event of the scheduler in it");
            }
            Ok((recorded, notes))
        }
        (Err(_), Some((at, e))) => Err(format!("{at} bytes, then: {e}")),
        (Err(e), None) => Err(e),
    }
}

/// What is wrong, with byte offsets. What is wrong in many places is said once, with the first.
#[derive(Default)]
struct Notes {
    /// The file that offsets are in, if it is not the first.
    part: String,
    list: Vec<(u64, String, u64)>,
    not_listed: u64,
}

impl Notes {
    /// What follows is about another file.
    fn within(&mut self, part: &str) {
        self.part = format!("{part}: ");
    }
    fn at(&mut self, offset: u64, text: impl std::fmt::Display) {
        let text = format!("{}{text}", self.part);
        if let Some((_, _, count)) = self.list.iter_mut().find(|(_, t, _)| *t == text) {
            *count += 1;
        } else if self.list.len() < DIAGNOSTICS_MAX {
            self.list.push((offset, text, 1));
        } else {
            self.not_listed += 1;
        }
    }
    /// As they are shown.
    fn texts(self) -> impl Iterator<Item = String> {
        let rest =
            (self.not_listed > 0).then(|| format!("{} more are not listed", self.not_listed));
        let shown = self.list.into_iter().map(|(offset, text, count)| match count {
            1 => format!("byte {offset}: {text}"),
            n => format!("byte {offset}: {text} (and {} more of the same)", n - 1),
        });
        shown.chain(rest)
    }
}

#[cfg(test)]
mod foreign;
#[cfg(test)]
mod tests;
