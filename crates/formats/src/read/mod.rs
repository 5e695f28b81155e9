//! Recorded traces as a `Timeline`. What a file is, its contents say.
//!
//! | module | is |
//! |---|---|
//! | `event_format` | the kernel's description of an event, for every binary format |
//! | `perf_data` | perf.data, as a file or a pipe's contents, of either byte order |
//! | `trace_text` | the text of tracefs `trace` and of `perf script` |

mod builder;
pub mod event_format;
mod perf_data;
mod trace_text;

use crate::error::{Diagnostic, FormatError};
use std::path::{Path, PathBuf};
use vruntime_base::Timeline;

/// A recording as read.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What it is: `perf.data` or `text`.
    pub format: &'static str,
    /// Its events and tasks.
    pub timeline: Timeline,
    /// What each event of the timeline tells beyond it.
    pub details: Vec<Detail>,
    /// The other events, in order of time, if they were asked for.
    pub glimpses: Vec<Glimpse>,
    /// The kernel's release, where the file says it.
    pub release: Option<String>,
    /// Events that the recorder says it lost.
    pub lost: u64,
    /// Damage that was stepped over. The list is bounded.
    pub diagnostics: Vec<Diagnostic>,
}

/// Bits of `common_flags` (`enum trace_flag_type`), the same in every release.
pub mod flag {
    /// TIF_NEED_RESCHED_LAZY of the running thread is set (6.13 on).
    pub const LAZY: u8 = 0x02;
    /// TIF_NEED_RESCHED of the running thread is set.
    pub const NEED_RESCHED: u8 = 0x04;
    /// In an interrupt.
    pub const HARDIRQ: u8 = 0x08;
    /// In a soft interrupt.
    pub const SOFTIRQ: u8 = 0x10;
}

/// What an event tells of the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Detail {
    /// Thread running there.
    pub curr: u32,
    /// Priority of the event's task then.
    pub prio: u8,
    /// Switch: of the next one.
    pub next_prio: u8,
    /// See [`flag`]; `None` if the format does not show them.
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
    /// See [`flag`].
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

/// Reads a trace, plain or `.xz`. A file that is no trace is an error; damage is a diagnostic.
pub fn open(path: &Path) -> Result<Recorded, FormatError> {
    read(path, Glimpses::Left)
}

/// As [`open`], with the glimpses.
pub fn open_in_full(path: &Path) -> Result<Recorded, FormatError> {
    read(path, Glimpses::Kept)
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
        if path.is_file() && (binary || text) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether events that are not part of a timeline are of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Glimpses {
    Left,
    Kept,
}

fn read(path: &Path, glimpses: Glimpses) -> Result<Recorded, FormatError> {
    let mut bytes = std::fs::read(path).map_err(|e| FormatError::io(path, e))?;
    let mut complaint = None;
    if bytes.starts_with(b"\xfd7zXZ\0") {
        (bytes, complaint) = crate::xz::decompress(&bytes);
    }
    let (mut recorded, notes) = parse_with(&bytes, glimpses)
        .map_err(|found| FormatError::syntax(path, 0, found, "perf.data, or text of tracefs"))?;
    let note = |text| Diagnostic { path: path.to_owned(), line: 0, text };
    recorded.diagnostics.extend(complaint.map(|e| note(format!("damaged .xz ({e})"))));
    recorded.diagnostics.extend(notes.0.into_iter().map(note));
    Ok(recorded)
}

#[cfg(test)]
fn parse(bytes: &[u8]) -> Result<(Recorded, Notes), String> {
    parse_with(bytes, Glimpses::Kept)
}

/// Reads the contents of a trace; the error says what was found instead of one.
fn parse_with(bytes: &[u8], glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    if bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP") {
        return perf_data::read(bytes, glimpses);
    }
    if bytes.starts_with(b"\x17\x08Dtracing") {
        return Err("a trace.dat, which is not read yet".into());
    }
    trace_text::read(bytes, glimpses)
}

/// What is wrong, with byte offsets.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn at(&mut self, offset: usize, text: impl std::fmt::Display) {
        if self.0.len() < DIAGNOSTICS_MAX {
            self.0.push(format!("byte {offset}: {text}"));
        } else if self.0.len() == DIAGNOSTICS_MAX {
            self.0.pop();
            self.0.push("more of the same is not listed".into());
        }
    }
}

#[cfg(test)]
mod tests;
