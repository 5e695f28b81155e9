//! Where a recording's bytes come from: a file, a pipe, either of them compressed with xz.
//!
//! A reader asks for bytes by their place. Only a window of them is held, and memory is taken for
//! bytes that were really read: no size that a file states is believed. Bytes of a pipe can be
//! asked for in order only; a format that needs more asks for [`Input::seekable`].

use super::Refusal;
use crate::xz::{self, Counted};
use std::collections::BTreeSet;
use std::fs::{File, FileType, Metadata};
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

enum Source {
    Seek(Box<dyn ReadSeek>),
    Stream(Box<dyn Read>),
}

/// Bytes of a recording.
pub(super) struct Input {
    source: Source,
    /// The bytes at hand, the first of which is number `at` of the file.
    buffer: Vec<u8>,
    at: u64,
    /// Why reading ended early, and at which byte.
    failure: Option<(u64, io::Error)>,
    /// Files that belong to this one, by number.
    parts: Vec<(u32, Input)>,
}

impl Input {
    /// Opens a file or a pipe, standard input if `path` is `-`, or what `perf record --threads`
    /// leaves: a directory with a file `data` and the records of each thread in `data.0`, ….
    pub fn open(path: &Path) -> Result<Input, Refusal> {
        if !is_perf_directory(path) {
            return Input::open_file(path);
        }
        let mut input = Input::open_file(&path.join("data"))?;
        for n in threads(path) {
            input.parts.push((n, Input::open_file(&path.join(format!("data.{n}")))?));
        }
        Ok(input)
    }

    /// Files that belong to this one.
    pub fn parts(&mut self) -> Vec<(u32, Input)> {
        std::mem::take(&mut self.parts)
    }

    fn open_file(path: &Path) -> Result<Input, Refusal> {
        let file = match path.to_str() {
            Some("-") => io::stdin().as_fd().try_clone_to_owned()?.into(),
            _ => {
                // Before it is opened: opening a device may already do something.
                readable(path, &std::fs::metadata(path)?)?;
                File::open(path)?
            }
        };
        let found = file.metadata()?;
        readable(path, &found)?;
        let source = match found.is_file() {
            true => Source::Seek(Box::new(file)),
            false => Source::Stream(Box::new(file)),
        };
        Ok(Input::new(source).decompressed())
    }

    fn new(source: Source) -> Input {
        Input { source, buffer: vec![], at: 0, failure: None, parts: vec![] }
    }

    /// Bytes that are there already.
    pub fn memory(bytes: &[u8]) -> Input {
        Input::new(Source::Seek(Box::new(Cursor::new(bytes.to_vec())))).decompressed()
    }

    /// As a pipe would hand it over.
    #[cfg(test)]
    pub fn pipe(bytes: &[u8]) -> Input {
        Input::new(Source::Stream(Box::new(Cursor::new(bytes.to_vec())))).decompressed()
    }

    fn decompressed(mut self) -> Input {
        if !self.get(0, 6).starts_with(b"\xfd7zXZ\0") {
            return self;
        }
        let packed: Box<dyn Read> = match self.source {
            Source::Seek(mut file) => match file.seek(SeekFrom::Start(0)) {
                Ok(_) => Box::new(file),
                Err(e) => {
                    return Input { source: Source::Seek(file), failure: Some((0, e)), ..self };
                }
            },
            Source::Stream(rest) => Box::new(Cursor::new(self.buffer).chain(rest)),
        };
        Input::new(Source::Stream(Box::new(xz::reader(packed))))
    }

    /// Makes any byte available at any time: what comes through a pipe goes to a nameless file.
    pub fn seekable(&mut self) -> io::Result<()> {
        if let Source::Stream(stream) = &mut self.source {
            let mut file = tempfile::tempfile()?;
            io::copy(&mut self.buffer.as_slice(), &mut file)?;
            let start = self.at + self.buffer.len() as u64;
            // What could be read of a damaged file is worth having.
            let mut counted = Counted { of: stream, read: 0 };
            if let Err(e) = io::copy(&mut counted, &mut file) {
                self.failure = Some((start + counted.read, e));
            }
            *self =
                Input { failure: self.failure.take(), ..Input::new(Source::Seek(Box::new(file))) };
        }
        Ok(())
    }

    /// Size, if it is known without reading everything.
    pub fn size(&mut self) -> Option<u64> {
        match &mut self.source {
            Source::Seek(file) => file.seek(SeekFrom::End(0)).ok(),
            Source::Stream(_) => None,
        }
    }

    /// `len` bytes from `at`, less only where the file ends.
    pub fn get(&mut self, at: u64, len: usize) -> &[u8] {
        let all = self.window(at, len);
        &all[..all.len().min(len)]
    }

    /// All bytes at hand from `at`, at least `len` unless the file ends before.
    pub fn window(&mut self, at: u64, len: usize) -> &[u8] {
        let held = self.at + self.buffer.len() as u64;
        if at < self.at || at.saturating_add(len as u64) > held {
            self.fill(at, len);
        }
        match at.checked_sub(self.at).and_then(|n| usize::try_from(n).ok()) {
            Some(from) if from <= self.buffer.len() => &self.buffer[from..],
            _ => &[],
        }
    }

    fn fill(&mut self, at: u64, len: usize) {
        if self.failure.is_some() && at >= self.at {
            return;
        }
        let want = len.max(CHUNK) as u64;
        let read = match &mut self.source {
            Source::Seek(file) => {
                self.buffer.clear();
                self.at = at;
                file.seek(SeekFrom::Start(at))
                    .and_then(|_| file.take(want).read_to_end(&mut self.buffer))
            }
            Source::Stream(stream) => {
                let Some(ahead) = at.checked_sub(self.at) else { return };
                let drop = ahead.min(self.buffer.len() as u64);
                self.buffer.drain(..drop as usize);
                self.at += drop;
                let skip = ahead - drop;
                io::copy(&mut stream.take(skip), &mut io::sink()).and_then(|skipped| {
                    self.at += skipped;
                    let more = want.saturating_sub(self.buffer.len() as u64);
                    stream.take(more).read_to_end(&mut self.buffer)
                })
            }
        };
        if let Err(e) = read {
            self.failure = Some((self.at + self.buffer.len() as u64, e));
        }
    }

    /// Why reading ended early, and at which byte.
    pub fn failure(&self) -> Option<&(u64, io::Error)> {
        self.failure.as_ref()
    }
}

/// True for what `perf record --threads` leaves.
pub fn is_perf_directory(path: &Path) -> bool {
    path.join("data").is_file() && !threads(path).is_empty()
}

/// The numbers of the files `data.0`, `data.1`, … in a directory.
fn threads(path: &Path) -> BTreeSet<u32> {
    let names = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.strip_prefix("data.")?.parse().ok());
    numbers.filter(|n| path.join(format!("data.{n}")).is_file()).collect()
}

/// A file or what a pipe looks like. A device may have no end, a directory has no bytes.
fn readable(path: &Path, found: &Metadata) -> Result<(), Refusal> {
    let kind = found.file_type();
    if kind.is_file() || kind.is_fifo() || kind.is_socket() {
        return Ok(());
    }
    let hint = ["perf.data", "perf.data.xz", "trace.dat", "trace.dat.xz", "data"]
        .iter()
        .map(|name| path.join(name))
        .find(|file| kind.is_dir() && file.is_file());
    let hint = hint.map_or(String::new(), |f| format!(" (with {} in it)", f.display()));
    Err(Refusal::Found(format!("{}{hint}", named(kind))))
}

fn named(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a directory",
        () if kind.is_char_device() => "a character device",
        () if kind.is_block_device() => "a block device",
        () => "neither a file nor a pipe",
    }
}
