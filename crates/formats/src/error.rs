//! What is wrong with a file, where, and what was expected.

use std::path::{Path, PathBuf};

/// A kernel, a machine or a study that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The command line names none, or changes it to what it cannot be.
    #[error("{0}")]
    Usage(String),
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file says something else than it should.
    #[error("{origin}{}: {message}", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Content {
        /// The file, or a name inside the program.
        origin: String,
        /// Line, from 1, where it is known.
        line: Option<usize>,
        /// What was read and what was expected.
        message: String,
    },
}

impl FileError {
    /// True if the command line is wrong, false if a file is.
    pub fn is_usage(&self) -> bool {
        matches!(self, FileError::Usage(_))
    }
    pub(crate) fn read(path: &Path, source: std::io::Error) -> FileError {
        FileError::Read { path: path.into(), source }
    }
    pub(crate) fn content(origin: &str, line: Option<usize>, message: impl ToString) -> FileError {
        FileError::Content { origin: origin.into(), line, message: message.to_string() }
    }
}

/// A recording that cannot be used at all. Damage that leaves something to read is a
/// [`Diagnostic`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The file cannot be opened or read.
    #[error("{path}: cannot read: {source}")]
    Io {
        /// File.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Something needed is not there.
    #[error("{path}: there is no {what}; expected {expected}")]
    Missing {
        /// Directory or file.
        path: PathBuf,
        /// What was looked for.
        what: String,
        /// What would have been right.
        expected: String,
    },
    /// The text says something else than it should.
    #[error("{}: found {found}; expected {expected}", place(path, *line))]
    Syntax {
        /// File.
        path: PathBuf,
        /// Line, from 1; 0 if the whole file is meant.
        line: u64,
        /// What was read.
        found: String,
        /// What would have been right.
        expected: String,
    },
    /// A trace so damaged that nothing of it is left.
    #[error("no scheduling event can be read: {first}")]
    NothingLeft {
        /// The first damage, with its place.
        first: String,
    },
    /// The recording comes from a kernel that there is no model of.
    #[error("{path}: no model for release {version}; have {have}, of which -k takes one")]
    NoModel {
        /// Recording.
        path: PathBuf,
        /// Its kernel.
        version: String,
        /// Releases there are models of.
        have: String,
    },
}

impl FormatError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> FormatError {
        FormatError::Io { path: path.to_owned(), source }
    }
    /// A [`FormatError::Syntax`].
    pub fn syntax(
        path: &Path,
        line: u64,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> FormatError {
        FormatError::Syntax {
            path: path.to_owned(),
            line,
            found: found.into(),
            expected: expected.into(),
        }
    }
    /// A [`FormatError::Missing`].
    pub fn missing(
        path: &Path,
        what: impl Into<String>,
        expected: impl Into<String>,
    ) -> FormatError {
        FormatError::Missing { path: path.to_owned(), what: what.into(), expected: expected.into() }
    }
}

/// Damage that was stepped over: what was read and what was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// File.
    pub path: PathBuf,
    /// Line, from 1; 0 if the whole file is meant.
    pub line: u64,
    /// What was found, expected and done about it.
    pub text: String,
}

/// `file:line`, or the file alone if it is meant as a whole.
fn place(path: &Path, line: u64) -> String {
    match line {
        0 => path.display().to_string(),
        _ => format!("{}:{line}", path.display()),
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", place(&self.path, self.line), self.text)
    }
}
