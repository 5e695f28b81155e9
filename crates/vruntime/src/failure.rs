//! How a command ends, and the exit code that says so.

use std::fmt;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use vruntime_formats::error::FileError;
use vruntime_machine::{hint, nearest_name};

/// Exit code: done.
pub const DONE: u8 = 0;
/// Exit code: the command that was recorded failed.
pub const FINDING: u8 = 1;
/// Exit code: the command line is wrong.
pub const USAGE: u8 = 2;
/// Exit code: a file cannot be read or written, or is not what it should be.
pub const INPUT: u8 = 3;
/// Exit code: ended by ^C, SIGTERM or SIGHUP; what was complete has been reported.
pub const INTERRUPTED: u8 = 130;

/// Links that the system follows from one to another.
const LINKS_MAX: usize = 40;

/// What a command leaves: its result and its exit code.
pub struct Done {
    /// For stdout.
    pub stdout: String,
    /// [`DONE`], [`FINDING`] or [`INTERRUPTED`]; another if only a part is missing.
    pub code: u8,
}

impl Done {
    /// A result without findings.
    pub fn new(stdout: String) -> Done {
        Done { stdout, code: DONE }
    }
    /// The same result with this code.
    pub fn but(self, code: u8) -> Done {
        Done { code, ..self }
    }
    /// The same result, after ^C if `interrupted`.
    pub fn interrupted(mut self, interrupted: bool) -> Done {
        if interrupted {
            self.code = INTERRUPTED;
            // JSON has a field for it.
            if !self.stdout.starts_with('{') {
                self.stdout += "\ninterrupted: this is what was complete\n";
            }
        }
        self
    }
    /// The same result, though a file beside it may not have been written.
    pub fn beside(self, file: Result<(), Failure>) -> Done {
        let Err(failure) = file else { return self };
        eprintln!("vruntime: {failure}");
        Done { code: failure.code(), ..self }
    }
    /// A JSON object on one line.
    pub fn json(value: &serde_json::Value) -> Done {
        Done::new(format!("{value}\n"))
    }
}

/// Why a command gives no result. The text is for the user.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// A file is wrong.
    Input(String),
    /// ^C before anything was complete.
    Interrupted,
}

impl Failure {
    /// `--case TEXT` with a text that is in none of `cases`.
    pub fn no_case(text: &str, cases: &[&str]) -> Failure {
        let near = hint(nearest_name(text, cases.iter().copied()));
        let names = cases.join(", ");
        Failure::Usage(format!("--case: no case with `{text}` in its name{near}; cases: {names}"))
    }
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => USAGE,
            Failure::Input(_) => INPUT,
            Failure::Interrupted => INTERRUPTED,
        }
    }
}

/// Fails if `path` cannot be written, before anybody measures for minutes.
pub fn writable(path: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", path.display()));
    let dir = path.parent().filter(|dir| *dir != Path::new("") && !dir.is_dir());
    if let Some(dir) = dir {
        let (path, dir) = (path.display(), dir.display());
        return Err(Failure::Input(format!("{path}: there is no directory {dir}")));
    }
    let kind = path.metadata().map(|m| m.file_type());
    if kind.as_ref().is_ok_and(|k| k.is_fifo()) {
        return Ok(()); // Whoever reads it would see it closed.
    }
    if kind.is_ok_and(|k| k.is_file()) && same_file(path, Path::new("/dev/stdout")) {
        let path = path.display();
        return Err(Failure::Usage(format!("{path}: expected another file than standard output")));
    }
    let is_new = !path.exists();
    OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    // An empty file left behind by ^C would be read as a wrong one. A link to a file that is not
    // there yet stays.
    if is_new { std::fs::remove_file(destination(path)).map_err(failed) } else { Ok(()) }
}

/// Both names are, or will be, of one file.
pub fn same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => destination(a) == destination(b),
        _ => false,
    }
}

/// What is written where `path` is opened: links are followed, also to a file that is not there.
pub fn destination(path: &Path) -> PathBuf {
    let dir = |path: &Path| match path.parent() {
        Some(dir) if dir != Path::new("") => dir.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Ok(to) = path.read_link() else { break };
        path = dir(&path).join(to);
    }
    match (dir(&path).canonicalize(), path.file_name()) {
        (Ok(dir), Some(name)) => dir.join(name),
        _ => path,
    }
}

/// Makes the directory of a file that is written where the user named none.
pub fn make_directory_of(path: &Path) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", path.display()));
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Input(text) => f.write_str(text),
            Failure::Interrupted => f.write_str("interrupted before a run was complete"),
        }
    }
}

impl From<FileError> for Failure {
    fn from(e: FileError) -> Failure {
        if e.is_usage() { Failure::Usage(e.to_string()) } else { Failure::Input(e.to_string()) }
    }
}
