//! What perf.data and trace.dat have in common: page layout, descriptions of events, names.
//!
//! Facts: `Documentation/trace-cmd/trace-cmd.dat.v6.5.txt` of trace-cmd; perf writes the same with
//! a version of its own.

use super::bytes::Bytes;
use super::input::Input;
use super::tracepoint::Tracepoints;

/// Begins both.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// No description of an event, and no name in these files, is longer.
const TEXT_MAX: usize = 1 << 20;

/// Where a [`Cursor`] reads.
pub(super) enum From<'a> {
    Input(&'a mut Input),
    Part(&'a [u8]),
}

/// Reads forward. Whatever is beyond the end of the file, or longer than anything of its kind, is
/// `None`.
pub(super) struct Cursor<'a> {
    pub from: From<'a>,
    pub at: u64,
    pub big: bool,
}

impl<'a> Cursor<'a> {
    pub fn input(input: &'a mut Input, at: u64, big: bool) -> Cursor<'a> {
        Cursor { from: From::Input(input), at, big }
    }
    /// Of bytes that are there already.
    pub fn part(bytes: &'a [u8], big: bool) -> Cursor<'a> {
        Cursor { from: From::Part(bytes), at: 0, big }
    }
    /// Up to `n` bytes from `at`.
    pub fn get(&mut self, at: u64, n: usize) -> &[u8] {
        match &mut self.from {
            From::Input(input) => input.get(at, n),
            From::Part(bytes) => {
                let all = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
                &all[..all.len().min(n)]
            }
        }
    }
    /// `n` bytes, held.
    pub fn bytes(&mut self, n: usize) -> Option<&[u8]> {
        let at = self.at;
        self.at = at.checked_add(n as u64)?;
        self.get(at, n).get(..n)
    }
    fn uint(&mut self, size: usize) -> Option<u64> {
        let big = self.big;
        Bytes { of: self.bytes(size)?, big }.uint(0, size)
    }
    pub fn u8(&mut self) -> Option<u8> {
        self.uint(1).map(|n| n as u8)
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.uint(4).map(|n| n as u32)
    }
    pub fn u16(&mut self) -> Option<u16> {
        self.uint(2).map(|n| n as u16)
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.uint(8)
    }
    /// Up to a 0, which is stepped over.
    pub fn string(&mut self) -> Option<Vec<u8>> {
        let bytes = self.get(self.at, 4096);
        let text = bytes[..memchr::memchr(0, bytes)?].to_vec();
        self.at += text.len() as u64 + 1;
        Some(text)
    }
    /// A text with its length before it.
    pub fn sized(&mut self) -> Option<&[u8]> {
        let n = usize::try_from(self.u64()?).ok().filter(|n| *n <= TEXT_MAX)?;
        self.bytes(n)
    }
    pub fn skip(&mut self, n: u64) -> Option<()> {
        self.at = self.at.checked_add(n)?;
        // What is stepped over has to be there.
        (n == 0 || !self.get(self.at - 1, 1).is_empty()).then_some(())
    }
}

/// What stands before everything else.
pub(super) struct Start {
    pub version: Vec<u8>,
    /// Bytes of a page.
    pub page: u32,
}

/// Magic, version, byte order, sizes of `long` and of a page.
pub(super) fn start(c: &mut Cursor) -> Option<Start> {
    if c.bytes(MAGIC.len())? != MAGIC {
        return None;
    }
    let version = c.string()?;
    c.big = c.u8()? == 1;
    c.u8()?;
    Some(Start { version, page: c.u32()? })
}

/// Texts that describe a page of the ring buffer and an event's header; gives the first.
pub(super) fn headers(c: &mut Cursor) -> Option<Vec<u8>> {
    c.string()?;
    let page = c.sized()?.to_vec();
    c.string()?;
    c.sized()?;
    Some(page)
}

/// Events of ftrace's own.
pub(super) fn ftrace_events(c: &mut Cursor, points: &mut Tracepoints) -> Option<()> {
    for _ in 0..c.u32()? {
        points.describe(c.sized()?);
    }
    Some(())
}

/// Events by their systems.
pub(super) fn events(c: &mut Cursor, points: &mut Tracepoints) -> Option<()> {
    for _ in 0..c.u32()? {
        c.string()?;
        for _ in 0..c.u32()? {
            points.describe(c.sized()?);
        }
    }
    Some(())
}

/// The whole of what perf.data holds of it. `None` if it ends too early; what was before is kept.
pub(super) fn perf(c: &mut Cursor, points: &mut Tracepoints) -> Option<()> {
    start(c)?;
    headers(c)?;
    ftrace_events(c, points)?;
    events(c, points)
}
