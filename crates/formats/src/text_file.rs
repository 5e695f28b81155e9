//! Small text files that a person wrote.

use crate::error::FileError;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// No machine or kernel file comes near.
const MAX_MIB: u64 = 16;

/// The text of `path`; an error if it is larger than any such file, as a device may be.
pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    text(path).map_err(|source| FileError::read(path, source))
}

fn text(path: &Path) -> io::Result<String> {
    let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    let mut bytes = Vec::new();
    let read = File::open(path)?.take((MAX_MIB << 20) + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_MIB << 20 {
        return Err(wrong(format!("larger than {MAX_MIB} MiB: expected a TOML file")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        wrong(format!("line {line}: bytes that are not UTF-8; expected a TOML file"))
    })
}

/// The line of `text`, from 1, that `byte` is in.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte].iter().filter(|&&b| b == b'\n').count() + 1
}

/// The key that serde's message says is unknown, and those that it lists as known.
pub(crate) fn unknown_key(message: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let mut quoted = message.split_once("unknown field `")?.1.split('`');
    let key = quoted.next()?;
    Some((key, quoted.skip(1).step_by(2)))
}

/// The line of a TOML text that sets `key`, or has it in a table's name.
pub(crate) fn line_that_sets(text: &str, key: &str) -> Option<usize> {
    let sets = |at: &usize| {
        let after = text[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
        !text[..*at].ends_with(in_key) && after.starts_with(['=', ']', '.'])
    };
    text.match_indices(key).map(|(at, _)| at).find(sets).map(|at| line_of(text, at))
}

/// The key whose value begins at `byte` of a TOML text.
pub(crate) fn key_before(text: &str, byte: usize) -> Option<&str> {
    let before = text.get(..byte)?.trim_end().strip_suffix('=')?.trim_end();
    let key = &before[before.trim_end_matches(in_key).len()..];
    (!key.is_empty()).then_some(key)
}

/// May be a part of a key without quotes.
fn in_key(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}
