//! The records of perf.data: samples, names, losses, and those that hold others compressed.
//!
//! Facts: include/uapi/linux/perf_event.h; `struct perf_record_*` in
//! tools/lib/perf/include/perf/event.h. The payloads of compressed records are one stream, whose
//! content is records again, cut anywhere.

use super::builder::At;
use super::bytes::Bytes;
use super::input::Input;
use super::perf_data::State;
use super::tracepoint::Taken;
use super::tracing_data::{self, Cursor};
use super::zstd::Unpacker;
use crate::numbers::perf_data::{record, sample};
use std::collections::HashMap;

/// The kernel's own records end here, and the recorder's begin.
const KERNEL_MAX: u32 = 32;
const RECORDER_MAX: u32 = 96;

/// A record's size is a number of two bytes.
const RECORD_MAX: usize = 1 << 16;
/// Records that have to follow one another for a place to be believed.
const RECORDS_IN_A_ROW: usize = 3;
/// Bytes without a record after which nobody looks on.
const SEARCH_MAX: u64 = 64 << 20;
/// Ids of events, of which there is one per event and CPU.
const IDS_MAX: usize = 1 << 20;

/// What of a sample has to be known to find its raw data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Layout {
    /// Byte of thread, time and CPU.
    tid: Option<usize>,
    time: Option<usize>,
    cpu: Option<usize>,
    /// Where the parts begin that have no fixed length.
    rest: usize,
    read_format: Option<u64>,
    callchain: bool,
    raw: bool,
    identified: bool,
}

impl Layout {
    fn of(sample_type: u64, read_format: u64) -> Layout {
        let has = |part: u64| sample_type & part != 0;
        let mut at = 8;
        let mut place = |part: u64| {
            has(part).then(|| {
                at += 8;
                at - 8
            })
        };
        let identified = place(sample::IDENTIFIER).is_some();
        place(sample::IP);
        let (tid, time) = (place(sample::TID), place(sample::TIME));
        let _ = (place(sample::ADDR), place(sample::ID), place(sample::STREAM_ID));
        let cpu = place(sample::CPU);
        place(sample::PERIOD);
        Layout {
            tid,
            time,
            cpu,
            rest: at,
            read_format: has(sample::READ).then_some(read_format),
            callchain: has(sample::CALLCHAIN),
            raw: has(sample::RAW),
            identified,
        }
    }
    /// The CPU in what `sample_id_all` puts behind a record that is no sample: the last word, but
    /// for the identifier.
    fn cpu_behind(&self, behind: Bytes) -> Option<u16> {
        self.cpu?;
        let last = behind.len().checked_sub(if self.identified { 16 } else { 8 })?;
        u16::try_from(behind.u32(last)?).ok()
    }
}

/// The layouts of all events.
#[derive(Default)]
pub(super) struct Layouts {
    first: Option<Layout>,
    /// Not all are as the first.
    differ: bool,
    by_id: HashMap<u64, Layout>,
    /// Ids taken in, the same one again included.
    nr_ids: usize,
}

impl Layouts {
    pub fn room_for_ids(&self) -> usize {
        IDS_MAX - self.nr_ids
    }
    /// A `perf_event_attr` and the ids of its events.
    pub fn add(&mut self, attr: Bytes, ids: Bytes) {
        let (Some(sample_type), Some(read_format)) = (attr.u64(24), attr.u64(32)) else { return };
        let layout = Layout::of(sample_type, read_format);
        self.differ |= *self.first.get_or_insert(layout) != layout;
        let nr_ids = (ids.len() / 8).min(self.room_for_ids());
        self.nr_ids += nr_ids;
        for i in 0..nr_ids {
            if let Some(id) = ids.u64(8 * i) {
                self.by_id.insert(id, layout);
            }
        }
    }
    fn of(&self, sample: Bytes) -> Option<Layout> {
        let first = self.first?;
        if self.differ && first.identified {
            return Some(self.by_id.get(&sample.u64(8)?).copied().unwrap_or(first));
        }
        Some(first)
    }
}

/// What follows a record outside of it.
enum Outside {
    Nothing,
    TracingData(u64),
    Skip(u64),
}

/// Goes through records.
pub(super) struct Records<'a> {
    state: &'a mut State,
    big: bool,
    unpacker: Unpacker,
    /// Unpacked, and not a whole record yet.
    unpacked: Vec<u8>,
    /// The stream of compressed records is damaged.
    broken: bool,
}

impl<'a> Records<'a> {
    pub fn new(state: &'a mut State, big: bool) -> Records<'a> {
        Records { state, big, unpacker: Unpacker::default(), unpacked: vec![], broken: false }
    }

    /// Reads the records from `at` to `end`, or all there are.
    pub fn read(mut self, input: &mut Input, mut at: u64, end: Option<u64>) {
        loop {
            let end = end.unwrap_or(u64::MAX);
            let window = input.window(at, RECORD_MAX);
            let length = (end - at.min(end)).min(window.len() as u64) as usize;
            if length == 0 {
                break;
            }
            let window = Bytes { of: &window[..length], big: self.big };
            let is_last = length < RECORD_MAX;
            match self.some(window, at, is_last) {
                Step::On(n) => at += n as u64,
                Step::Outside(n, Outside::TracingData(size)) => {
                    at += n as u64;
                    let mut c = Cursor::input(input, at, self.big);
                    if tracing_data::perf(&mut c, &mut self.state.points).is_none() {
                        self.note(at, "the descriptions of the events are cut short");
                    }
                    at = at.saturating_add(size.saturating_add(7) & !7);
                }
                Step::Outside(n, Outside::Skip(size)) => {
                    at = at.saturating_add(n as u64).saturating_add(size);
                }
                Step::Outside(n, Outside::Nothing) => at += n as u64,
                Step::Lost(n) => {
                    let from = at + n as u64;
                    match self.next_record(input, from, end) {
                        Some(next) => {
                            let skipped = next - from;
                            self.note(from, format!("{skipped} bytes that are no record"));
                            at = next;
                        }
                        None => {
                            self.note(from, "what follows is no record");
                            break;
                        }
                    }
                }
                Step::Cut(n, size) => {
                    let left = length - n;
                    let at = at + n as u64;
                    self.note(at, format!("a record of {size} bytes, of which {left} are there"));
                    break;
                }
            }
        }
        self.finish(at);
    }

    fn note(&mut self, at: u64, text: impl std::fmt::Display) {
        self.state.notes.at(at, text);
    }

    /// Takes in the whole records of `window`, which begins at byte `at`.
    fn some(&mut self, window: Bytes, at: u64, is_last: bool) -> Step {
        let mut from = 0;
        while let Some((kind, size)) = header(window, from) {
            if size < 8 || kind == 0 {
                return Step::Lost(from);
            }
            let Some(record) = window.part(from, size) else {
                return if is_last { Step::Cut(from, size) } else { Step::On(from) };
            };
            match self.record(kind, record, at + from as u64) {
                Some(Outside::Nothing) => {}
                Some(outside) => return Step::Outside(from + size, outside),
                None => {
                    let text = format!("a record of kind {kind} that is too short for it");
                    self.note(at + from as u64, text);
                }
            }
            from += size;
        }
        match window.len() - from {
            rest if rest > 0 && is_last => Step::Cut(from, 8),
            _ => Step::On(from),
        }
    }

    /// The next place where records follow one another.
    fn next_record(&self, input: &mut Input, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end && at - from < SEARCH_MAX {
            let window = input.window(at, RECORDS_IN_A_ROW * RECORD_MAX);
            let length = (end - at).min(window.len() as u64) as usize;
            let window = Bytes { of: &window[..length], big: self.big };
            let is_last = length < RECORDS_IN_A_ROW * RECORD_MAX;
            let until = if is_last { length } else { length - (RECORDS_IN_A_ROW - 1) * RECORD_MAX };
            // Records begin at multiples of 8 from the first.
            let found = (8..until).step_by(8).find(|i| in_a_row(window, *i, is_last));
            if let Some(i) = found {
                return Some(at + i as u64);
            }
            if is_last {
                return None;
            }
            at += (until - 8) as u64 / 8 * 8;
        }
        None
    }

    /// Takes in one record; `None` if it is too short.
    fn record(&mut self, kind: u32, r: Bytes, at: u64) -> Option<Outside> {
        match kind {
            record::SAMPLE => self.sample(r, at)?,
            record::LOST => {
                let (cpu, n) = self.lost(r, 16, at)?;
                self.state.found.lost.add(cpu, n);
            }
            record::LOST_SAMPLES => {
                let (cpu, n) = self.lost(r, 8, at)?;
                self.state.lost_samples.add(cpu, n);
            }
            record::COMM => {
                let (tgid, pid) = (r.u32(8)?, r.u32(12)?);
                self.state.builder.tgid(pid, tgid);
                self.state.builder.called(pid, r.string(16, r.len().checked_sub(16)?.min(16))?);
            }
            // Compressed records are unpacked later than the marks between them are read.
            record::FINISHED_ROUND if self.unpacker.is_new() => self.state.builder.round(),
            record::HEADER_ATTR => {
                let size = r.u32(12)? as usize;
                let ids = r.from(8usize.checked_add(size)?)?;
                self.state.layouts.add(r.part(8, size)?, ids);
            }
            record::HEADER_TRACING_DATA => return Some(Outside::TracingData(r.u32(8)?.into())),
            record::AUXTRACE => return Some(Outside::Skip(r.u64(8)?)),
            record::HEADER_FEATURE => self.state.feature(r.u64(8)?, r.from(16)?),
            record::COMPRESSED => self.compressed(r.from(8)?, at),
            record::COMPRESSED_2 => self.compressed(r.part(16, r.size(8)?)?, at),
            _ => {}
        }
        Some(Outside::Nothing)
    }

    /// A record whose number of lost events stands at byte `place`: of which CPU, and how many.
    fn lost(&mut self, r: Bytes, place: usize, at: u64) -> Option<(Option<u16>, u64)> {
        let n = r.u64(place)?;
        let behind = r.from(place + 8)?;
        let cpu = self.state.layouts.of(r).and_then(|layout| layout.cpu_behind(behind));
        self.note(at, format!("the recorder lost {n} events"));
        Some((cpu, n))
    }

    fn compressed(&mut self, payload: Bytes, at: u64) {
        if self.broken {
            self.note(at, "a compressed record behind damage; left out");
            return;
        }
        let mut unpacker = std::mem::take(&mut self.unpacker);
        let done = unpacker.push(payload.of, |bytes| self.unpacked(bytes, at));
        self.unpacker = unpacker;
        if let Err(e) = done {
            self.broken = true;
            self.note(at, format!("a compressed record that cannot be unpacked ({e})"));
        }
    }

    /// Takes in bytes that came out of a compressed record at byte `at`.
    fn unpacked(&mut self, bytes: &[u8], at: u64) {
        let mut all = std::mem::take(&mut self.unpacked);
        all.extend_from_slice(bytes);
        let mut from = 0;
        while let Some((kind, size)) = header(Bytes { of: &all, big: self.big }, from) {
            if size < 8 {
                self.note(at, "what is compressed there is no record");
                all.clear();
                from = 0;
                break;
            }
            let Some(record) = (Bytes { of: &all, big: self.big }).part(from, size) else { break };
            // A compressed record in a compressed record has no meaning.
            if ![record::COMPRESSED, record::COMPRESSED_2].contains(&kind)
                && self.record(kind, record, at).is_none()
            {
                self.note(
                    at,
                    format!("a compressed record of kind {kind} that is too short for it"),
                );
            }
            from += size;
        }
        all.drain(..from);
        self.unpacked = all;
    }

    fn finish(mut self, at: u64) {
        let mut unpacker = std::mem::take(&mut self.unpacker);
        let done = match self.broken {
            true => Ok(()),
            false => unpacker.finish(|bytes| self.unpacked(bytes, at)),
        };
        let left = self.unpacked.len();
        if let Err(e) = done {
            self.note(at, format!("the end of the compressed records is missing ({e})"));
        } else if left > 0 {
            self.note(at, format!("the compressed records end with {left} bytes of a record"));
        }
    }

    fn sample(&mut self, r: Bytes, offset: u64) -> Option<()> {
        let Some(layout) = self.state.layouts.of(r) else {
            self.note(offset, "a sample of an event that the file does not describe");
            return Some(());
        };
        let tgid = layout.tid.and_then(|at| r.u32(at));
        let pid = layout.tid.and_then(|at| r.u32(at + 4));
        let time = layout.time.map_or(Some(0), |at| r.u64(at))?;
        let cpu = layout.cpu.map_or(Some(0), |at| r.u32(at))?;
        let cpu = u16::try_from(cpu).ok()?;
        let mut at = layout.rest;
        if let Some(format) = layout.read_format {
            at = after_read(r, at, format)?;
        }
        if layout.callchain {
            at = r.size(at)?.checked_mul(8)?.checked_add(at)?.checked_add(8)?;
        }
        if !layout.raw {
            return Some(());
        }
        let raw = r.part(at.checked_add(4)?, r.u32(at)? as usize)?;
        let place = At { time, cpu, pid, flags: None };
        match self.state.points.take(&mut self.state.builder, place, raw) {
            Taken::Event => {
                if let (Some(tgid), Some(pid)) = (tgid, pid) {
                    self.state.builder.tgid(pid, tgid);
                }
            }
            Taken::Other => {}
            Taken::Undescribed => self.note(offset, "an event that the file does not describe"),
            Taken::Damaged => self.note(offset, "an event without the fields that it should have"),
        }
        Some(())
    }
}

/// How far a look at some records came.
enum Step {
    /// So many bytes were whole records.
    On(usize),
    /// … and what follows is no record but belongs to the last.
    Outside(usize, Outside),
    /// … and what follows is no record.
    Lost(usize),
    /// … and what follows is the beginning of a record of that size.
    Cut(usize, usize),
}

/// Kind and size of the record at `at`.
fn header(b: Bytes, at: usize) -> Option<(u32, usize)> {
    let header = b.part(at, 8)?;
    Some((header.u32(0)?, header.u16(6)?.into()))
}

/// True if records that could be some follow one another from `at`.
fn in_a_row(b: Bytes, mut at: usize, is_last: bool) -> bool {
    for _ in 0..RECORDS_IN_A_ROW {
        let Some((kind, size)) = header(b, at) else { return is_last && at == b.len() };
        let known =
            (1..KERNEL_MAX).contains(&kind) || (record::HEADER_ATTR..RECORDER_MAX).contains(&kind);
        if !known || size < 8 || size % 8 != 0 {
            return false;
        }
        at += size;
    }
    at <= b.len()
}

/// The byte after the counter values of a sample.
fn after_read(r: Bytes, at: usize, format: u64) -> Option<usize> {
    let has = |bit: u32| (format >> bit & 1) as usize;
    let (times, each) = (has(0) + has(1), 1 + has(2) + has(4));
    let words = match has(3) {
        0 => each + times,
        _ => r.size(at)?.checked_mul(each)?.checked_add(1 + times)?,
    };
    words.checked_mul(8)?.checked_add(at)
}
