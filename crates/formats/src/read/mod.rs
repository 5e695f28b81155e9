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
use std::path::Path;
use vruntime_base::Timeline;

/// A recording as read.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    /// What it is: `perf.data` or `text`.
    pub format: &'static str,
    /// Its events and tasks.
    pub timeline: Timeline,
    /// The kernel's release, where the file says it.
    pub release: Option<String>,
    /// Events that the recorder says it lost.
    pub lost: u64,
    /// Damage that was stepped over. The list is bounded.
    pub diagnostics: Vec<Diagnostic>,
}

/// Where the list of diagnostics ends.
const DIAGNOSTICS_MAX: usize = 100;

/// Reads a trace, plain or `.xz`. A file that is no trace is an error; damage is a diagnostic.
pub fn open(path: &Path) -> Result<Recorded, FormatError> {
    let mut bytes = std::fs::read(path).map_err(|e| FormatError::io(path, e))?;
    let mut complaint = None;
    if bytes.starts_with(b"\xfd7zXZ\0") {
        (bytes, complaint) = crate::xz::decompress(&bytes);
    }
    let (mut recorded, notes) = parse(&bytes)
        .map_err(|found| FormatError::syntax(path, 0, found, "perf.data, or text of tracefs"))?;
    let note = |text| Diagnostic { path: path.to_owned(), line: 0, text };
    recorded.diagnostics.extend(complaint.map(|e| note(format!("damaged .xz ({e})"))));
    recorded.diagnostics.extend(notes.0.into_iter().map(note));
    Ok(recorded)
}

/// Reads the contents of a trace; the error says what was found instead of one.
fn parse(bytes: &[u8]) -> Result<(Recorded, Notes), String> {
    if bytes.starts_with(b"PERFILE2") || bytes.starts_with(b"2ELIFREP") {
        return perf_data::read(bytes);
    }
    if bytes.starts_with(b"\x17\x08Dtracing") {
        return Err("a trace.dat, which is not read yet".into());
    }
    trace_text::read(bytes)
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
