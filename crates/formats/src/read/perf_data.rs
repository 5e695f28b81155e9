//! perf.data: records of `perf record`, with the tracing data that describes its tracepoints.
//!
//! Facts: tools/perf/Documentation/perf.data-file-format.txt and include/uapi/linux/perf_event.h.
//! Compressed records (`perf record -z`) are reported, not read.

use super::builder::{At, Builder, Named};
use super::event_format::{EventFormat, Field};
use super::{Glimpses, Notes, Ran, Recorded};
use std::collections::HashMap;
use vruntime_base::EventKind;

const COMM: u32 = 3;
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const HEADER_ATTR: u32 = 64;
const HEADER_TRACING_DATA: u32 = 66;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: [u32; 2] = [81, 83];
const FEATURE_TRACING_DATA: usize = 1;
const FEATURE_RELEASE: usize = 4;

/// Bytes of one byte order.
#[derive(Clone, Copy)]
struct Bytes<'a> {
    of: &'a [u8],
    big: bool,
}

impl<'a> Bytes<'a> {
    fn part(&self, at: usize, length: usize) -> Option<Bytes<'a>> {
        Some(Bytes { of: self.of.get(at..at.checked_add(length)?)?, big: self.big })
    }
    fn uint(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.part(at, size)?.of;
        let join = |sum: u64, b: &u8| sum << 8 | u64::from(*b);
        match size {
            1 | 2 | 4 | 8 if self.big => Some(bytes.iter().fold(0, join)),
            1 | 2 | 4 | 8 => Some(bytes.iter().rev().fold(0, join)),
            _ => None,
        }
    }
    fn u32(&self, at: usize) -> Option<u32> {
        self.uint(at, 4).map(|v| v as u32)
    }
    fn size(&self, at: usize) -> Option<usize> {
        usize::try_from(self.uint(at, 8)?).ok()
    }
    /// Up to the first 0.
    fn string(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        let bytes = self.part(at, length)?.of;
        Some(&bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(length)])
    }
}

/// What of a sample's layout has to be known to find its raw data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Attr {
    sample_type: u64,
    read_format: u64,
}

/// An event of the kinds that a timeline has, with its description.
struct Tracepoint {
    kind: Option<EventKind>,
    format: EventFormat,
    exited: u64,
    asleep: u64,
}

struct Reader<'a> {
    builder: Builder,
    notes: Notes,
    release: Option<String>,
    lost: u64,
    attrs: Vec<Attr>,
    by_id: HashMap<u64, Attr>,
    tracepoints: HashMap<u32, Tracepoint>,
    compressed: u64,
    glimpses: Glimpses,
    bytes: Bytes<'a>,
}

pub(super) fn read(bytes: &[u8], glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    let bytes =
        Bytes { of: bytes, big: bytes.starts_with(b"PERFILE2") == cfg!(target_endian = "big") };
    let mut r = Reader {
        builder: Builder::default(),
        notes: Notes::default(),
        release: None,
        lost: 0,
        attrs: vec![],
        by_id: HashMap::new(),
        tracepoints: HashMap::new(),
        compressed: 0,
        glimpses,
        bytes,
    };
    match bytes.uint(8, 8) {
        Some(16) => r.records(16, bytes.of.len()),
        Some(104..) => r.file().ok_or("a perf.data whose header is cut short")?,
        _ => return Err("a perf.data with a header of no known size".into()),
    }
    if r.compressed > 0 {
        r.notes
            .at(0, format!("{} compressed records (perf record -z) were left out", r.compressed));
    }
    let (release, lost) = (r.release, r.lost);
    Ok((Recorded { format: "perf.data", release, lost, ..r.builder.finish() }, r.notes))
}

impl Reader<'_> {
    fn file(&mut self) -> Option<()> {
        let b = self.bytes;
        let attr_size = b.size(16)?.max(1);
        let (attrs, attrs_size) = (b.size(24)?, b.size(32)?);
        let (data, data_size) = (b.size(40)?, b.size(48)?);
        for i in 0..(attrs_size / attr_size).min(b.of.len() / attr_size) {
            let Some(entry) = b.part(attrs.checked_add(i * attr_size)?, attr_size) else {
                self.notes.at(attrs, "the table of events is cut short");
                break;
            };
            let ids = attr_size.checked_sub(16).and_then(|at| {
                let (offset, size) = (entry.size(at)?, entry.size(at + 8)?);
                b.part(offset, size)
            });
            self.attr(entry, ids);
        }
        let end = data.checked_add(data_size)?;
        // The sections of the header's features follow the data, in order of their bits.
        let mut at = end;
        for feature in 0..256 {
            if b.uint(72 + feature / 64 * 8, 8)? >> (feature % 64) & 1 == 0 {
                continue;
            }
            let section = || b.part(b.size(at)?, b.size(at + 8)?);
            match section() {
                Some(s) => self.feature(feature, s, at),
                None => self.notes.at(at, format!("feature {feature} is not in the file")),
            }
            at = at.checked_add(16)?;
        }
        if end > b.of.len() || data_size == 0 {
            self.notes.at(b.of.len(), format!("the file ends; its data should end at byte {end}"));
        }
        let end = if data_size == 0 { b.of.len() } else { end.min(b.of.len()) };
        self.records(data, end);
        Some(())
    }
    /// A perf_event_attr and the ids of its events.
    fn attr(&mut self, attr: Bytes, ids: Option<Bytes>) {
        let (Some(sample_type), Some(read_format)) = (attr.uint(24, 8), attr.uint(32, 8)) else {
            return;
        };
        let attr = Attr { sample_type, read_format };
        for id in
            ids.iter().flat_map(|ids| (0..ids.of.len() / 8).filter_map(|i| ids.uint(i * 8, 8)))
        {
            self.by_id.insert(id, attr);
        }
        self.attrs.push(attr);
    }
    fn feature(&mut self, feature: usize, section: Bytes, at: usize) {
        if feature == FEATURE_TRACING_DATA {
            if self.tracing_data(section).is_none() {
                self.notes.at(at, "the descriptions of the events are cut short");
            }
        } else if feature == FEATURE_RELEASE {
            let text = section.string(4, section.of.len().saturating_sub(4));
            self.release = text.map(|t| String::from_utf8_lossy(t).into_owned());
        }
    }
    /// The formats of the events. `None` if they end too early; those before are kept.
    fn tracing_data(&mut self, b: Bytes) -> Option<()> {
        let version = b.string(10, b.of.len().checked_sub(10)?)?.len();
        let big = b.uint(10 + version + 1, 1)? == 1;
        let b = Bytes { big, ..b };
        let mut at = 10 + version + 1 + 1 + 1 + 4;
        for name in ["header_page", "header_event"] {
            at += name.len() + 1;
            at = at.checked_add(8)?.checked_add(b.size(at)?)?;
        }
        let count = b.u32(at)?;
        at += 4;
        for _ in 0..count {
            at = self.format(b, at)?;
        }
        let systems = b.u32(at)?;
        at += 4;
        for _ in 0..systems {
            at += b.string(at, b.of.len().checked_sub(at)?)?.len() + 1;
            let count = b.u32(at)?;
            at += 4;
            for _ in 0..count {
                at = self.format(b, at)?;
            }
        }
        Some(())
    }
    fn format(&mut self, b: Bytes, at: usize) -> Option<usize> {
        let size = b.size(at)?;
        let text = b.part(at + 8, size)?.of;
        if let Some(format) = EventFormat::parse(&String::from_utf8_lossy(text)) {
            let kind = match format.name.as_str() {
                "sched_switch" => Some(EventKind::Switch),
                "sched_waking" => Some(EventKind::Waking),
                "sched_wakeup" => Some(EventKind::Wakeup),
                "sched_wakeup_new" => Some(EventKind::WakeupNew),
                "sched_migrate_task" => Some(EventKind::Migrate),
                _ => None,
            };
            let (exited, asleep) = (format.flag_bits("XZ"), format.all_flag_bits());
            self.tracepoints.insert(format.id, Tracepoint { kind, format, exited, asleep });
        }
        Some(at + 8 + size)
    }
    fn records(&mut self, mut at: usize, end: usize) {
        while at < end {
            let b = self.bytes;
            let (Some(kind), Some(size)) = (b.u32(at), b.uint(at + 6, 2)) else {
                self.notes.at(at, "a record's header is cut short");
                return;
            };
            let size = size as usize;
            let whole = at.checked_add(size).is_some_and(|e| e <= end);
            let Some(record) = b.part(at, size).filter(|_| size >= 8 && whole) else {
                self.notes.at(at, format!("a record of {size} bytes, {} are left", end - at));
                return;
            };
            match self.record(kind, record, at) {
                Some(extra) => at = (at + size).saturating_add(extra),
                None => {
                    self.notes.at(at, format!("a record of kind {kind} that is too short for it"));
                    at += size;
                }
            }
        }
    }
    /// Takes in one record; gives how many bytes follow it outside.
    fn record(&mut self, kind: u32, r: Bytes, at: usize) -> Option<usize> {
        match kind {
            SAMPLE => self.sample(r, at)?,
            LOST => self.lost(r.uint(16, 8)?, at),
            LOST_SAMPLES => self.lost(r.uint(8, 8)?, at),
            COMM => self.builder.tgid(r.u32(12)?, 0, r.u32(8)?),
            HEADER_ATTR => {
                let size = r.u32(12)? as usize;
                let ids = r.part(8 + size, r.of.len().checked_sub(8 + size)?);
                self.attr(r.part(8, size)?, ids);
            }
            HEADER_TRACING_DATA => {
                let size = r.u32(8)? as usize;
                let from = at + r.of.len();
                let data = self.bytes.part(from, size.min(self.bytes.of.len() - from))?;
                if self.tracing_data(data).is_none() {
                    self.notes.at(from, "the descriptions of the events are cut short");
                }
                return size.checked_next_multiple_of(8);
            }
            HEADER_FEATURE => {
                let section = r.part(16, r.of.len().checked_sub(16)?)?;
                self.feature(r.size(8)?, section, at);
            }
            k if COMPRESSED.contains(&k) => self.compressed += 1,
            _ => {}
        }
        Some(0)
    }
    fn lost(&mut self, n: u64, at: usize) {
        self.lost = self.lost.saturating_add(n);
        self.notes.at(at, format!("the recorder lost {n} events"));
    }
    fn sample(&mut self, r: Bytes, offset: usize) -> Option<()> {
        let mut attr = *self.attrs.first()?;
        if attr.sample_type & 1 << 16 != 0 {
            attr = self.by_id.get(&r.uint(8, 8)?).copied().unwrap_or(attr);
        }
        let has = |bit: u32| attr.sample_type >> bit & 1 == 1;
        let mut at = 8 + 8 * (usize::from(has(16)) + usize::from(has(0)));
        let mut place = At { time: 0, cpu: 0, pid: 0 };
        let mut tgid = None;
        if has(1) {
            tgid = r.u32(at);
            place.pid = r.u32(at + 4)?;
            at += 8;
        }
        if has(2) {
            place.time = r.uint(at, 8)?;
            at += 8;
        }
        at += 8 * (usize::from(has(3)) + usize::from(has(6)) + usize::from(has(9)));
        if has(7) {
            place.cpu = r.u32(at)? as u16;
            at += 8;
        }
        at += 8 * usize::from(has(8));
        if has(4) {
            at = after_read(r, at, attr.read_format)?;
        }
        if has(5) {
            at = r.size(at)?.checked_mul(8)?.checked_add(at + 8)?;
        }
        if !has(10) {
            return Some(());
        }
        let raw = r.part(at.checked_add(4)?, r.u32(at)? as usize)?;
        let Some(tracepoint) = self.tracepoints.get(&(raw.uint(0, 2)? as u32)) else {
            self.notes.at(offset, "an event that the file does not describe");
            return Some(());
        };
        let flags = tracepoint.format.field("common_flags");
        let flags = flags.and_then(|f| raw.uint(f.offset, f.size)).map(|f| f as u8);
        let Some(kind) = tracepoint.kind else {
            if self.glimpses == Glimpses::Kept {
                self.builder.glimpse(place, flags, ran(tracepoint, raw));
            }
            return Some(());
        };
        if let Some(tgid) = tgid.filter(|_| place.pid != 0) {
            self.builder.tgid(place.pid, place.cpu, tgid);
        }
        add(&mut self.builder, tracepoint, kind, place, raw)?;
        self.builder.flags(flags);
        Some(())
    }
}

/// What a `sched_stat_runtime` tells.
fn ran(t: &Tracepoint, raw: Bytes) -> Option<Ran> {
    let number = |name: &str| t.format.field(name).and_then(|f| raw.uint(f.offset, f.size));
    (t.format.name == "sched_stat_runtime").then_some(())?;
    Some(Ran {
        pid: number("pid")? as u32,
        runtime: number("runtime")?,
        vruntime: number("vruntime"),
    })
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

/// Adds an event to the timeline; `None` if a field is missing.
fn add(builder: &mut Builder, t: &Tracepoint, kind: EventKind, at: At, raw: Bytes) -> Option<()> {
    let field = |name: &str| t.format.field(name);
    let number = |name: &str| field(name).and_then(|f| raw.uint(f.offset, f.size));
    let task = |comm: &str, pid: &str, prio: &str| {
        Some(Named {
            pid: number(pid)? as u32,
            comm: text(raw, field(comm)?)?,
            prio: (number(prio)? as i32).clamp(0, 255) as u8,
        })
    };
    match kind {
        EventKind::Switch => {
            let state = number("prev_state")?;
            let b = match () {
                () if state & t.exited != 0 => 2,
                () if state & t.asleep != 0 => 0,
                () => 1,
            };
            let prev = task("prev_comm", "prev_pid", "prev_prio")?;
            builder.switch(at, prev, b, task("next_comm", "next_pid", "next_prio")?);
        }
        EventKind::Migrate => {
            let (from, to) = (number("orig_cpu")? as u32, number("dest_cpu")? as u32);
            builder.migrate(at, task("comm", "pid", "prio")?, from, to);
        }
        _ => {
            let target = number("target_cpu")? as u32;
            builder.wake(at, kind, task("comm", "pid", "prio")?, target);
        }
    }
    Some(())
}

/// A string, in its place or located elsewhere.
fn text<'a>(raw: Bytes<'a>, f: &Field) -> Option<&'a [u8]> {
    if !f.data_loc {
        return raw.string(f.offset, f.size);
    }
    let location = raw.u32(f.offset)?;
    raw.string((location & 0xffff) as usize, (location >> 16) as usize)
}
