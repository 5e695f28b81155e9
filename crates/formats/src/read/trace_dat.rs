//! trace.dat of trace-cmd, versions 6 and 7: pages of the ring buffer, CPU by CPU.
//!
//! Facts: `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)`. Version 6 is one header with the pages
//! behind it. Version 7 is a list of options that say where sections are, which may be compressed;
//! pages are compressed in chunks.
//!
//! Departures: a file may hold several buffers; the first with events of the scheduler is read,
//! because events that two of them hold would count twice.

use super::builder::{At, Builder};
use super::bytes::Bytes;
use super::input::Input;
use super::ring_buffer::{self, Layout};
use super::tracepoint::{Taken, Tracepoints};
use super::tracing_data::{self, Cursor};
use super::{Glimpses, Notes, Recorded, zstd};
use crate::lost::Lost;
use crate::numbers::UNKNOWN;
use std::io::Read;

/// Ids of options that are of use here.
const DONE: u16 = 0;
const CPUSTAT: u16 = 2;
const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const UNAME: u16 = 5;
const OFFSET: u16 = 7;
const CPUCOUNT: u16 = 8;
const TSC2NSEC: u16 = 14;
const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const CMDLINES: u16 = 21;
/// A section's flag.
const COMPRESSED: u16 = 1;

/// No option and no table of CPUs is longer.
const OPTION_MAX: usize = 1 << 21;
/// No section other than pages is longer, unpacked; no chunk of pages is.
const SECTION_MAX: usize = 64 << 20;
/// No file has more options.
const OPTIONS_MAX: usize = 1 << 14;
const CPUS_MAX: u32 = 1 << 16;
const PAGE_MAX: usize = 1 << 24;

/// How parts of the file are compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    None,
    Zstd,
    Zlib,
    Unknown,
}

/// The pages of one CPU.
struct Data {
    cpu: u32,
    at: u64,
    size: u64,
}

/// One ring buffer.
struct Buffer {
    name: Vec<u8>,
    page: usize,
    packing: Packing,
    cpus: Vec<Data>,
}

/// From what the clock says to nanoseconds.
#[derive(Clone, Copy, Default)]
struct Clock {
    /// Multiplier and shift.
    scale: Option<(u32, u32)>,
    offset: i64,
}

impl Clock {
    fn ns(self, time: u64) -> u64 {
        let ns = match self.scale {
            Some((mult, shift)) => ((u128::from(time) * u128::from(mult)) >> shift.min(127)) as u64,
            None => time,
        };
        ns.saturating_add_signed(self.offset)
    }
}

struct State {
    builder: Builder,
    notes: Notes,
    points: Tracepoints,
    found: Recorded,
    /// Overwritten before they were read: what the statistics say, and what the pages do.
    overrun: Lost,
    missed: Lost,
    layout: Layout,
    clock: Clock,
    buffers: Vec<Buffer>,
    nr_cpus: u32,
    /// Bytes of pages that may still be read: no more than the file has.
    budget: u64,
    /// The same for compressed ones, whose stated size is that of their contents alone.
    packed_budget: u64,
    big: bool,
}

pub(super) fn read(input: &mut Input, glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    input.seekable().map_err(|e| format!("a pipe that cannot be kept ({e})"))?;
    let mut state = State {
        builder: Builder::new(glimpses),
        notes: Notes::default(),
        points: Tracepoints::default(),
        found: Recorded::default(),
        overrun: Lost::default(),
        missed: Lost::default(),
        layout: Layout::default(),
        clock: Clock::default(),
        buffers: vec![],
        nr_cpus: 0,
        budget: 0,
        packed_budget: 0,
        big: false,
    };
    let size = input.size().unwrap_or(0);
    let mut c = Cursor::input(input, 0, false);
    let start = tracing_data::start(&mut c).ok_or("a trace.dat whose header is cut short")?;
    (state.big, state.budget, state.packed_budget) = (c.big, size, size);
    let (at, done) = match start.version.as_slice() {
        b"6" => {
            state.found.format = "trace.dat v6";
            (c.at, state.version_6(&mut c, start.page))
        }
        b"7" => {
            state.found.format = "trace.dat v7";
            (c.at, state.version_7(&mut c))
        }
        other => {
            let version = String::from_utf8_lossy(other);
            return Err(format!("a trace.dat of version {version}; 6 and 7 are known"));
        }
    };
    if done.is_none() {
        // Where it ends is where the file does, unless a size in it is wrong.
        let end = c.at.min(size).max(at);
        state.notes.at(end, "the description of the trace is cut short");
    }
    state.buffers(input);
    state.overrun.at_least(&state.missed);
    for (cpu, n) in state.overrun.by_cpu() {
        state.found.lost.add(Some(cpu), n);
    }
    Ok((state.found.with(state.builder), state.notes))
}

impl State {
    fn version_6(&mut self, c: &mut Cursor, page: u32) -> Option<()> {
        self.layout_of(&tracing_data::headers(c)?);
        tracing_data::ftrace_events(c, &mut self.points)?;
        tracing_data::events(c, &mut self.points)?;
        // Addresses of functions, formats of printk.
        for _ in 0..2 {
            let size = c.u32()?;
            c.skip(size.into())?;
        }
        let (size, at) = (c.u64()?, c.at);
        self.names(c.get(at, size.min(SECTION_MAX as u64) as usize));
        c.skip(size)?;
        self.nr_cpus = c.u32()?.min(CPUS_MAX);
        let mut named = vec![];
        if c.get(c.at, 10) == b"options  \0" {
            c.skip(10)?;
            while let Some(id) = Some(c.u16()?).filter(|id| *id != DONE) {
                let size = c.u32()? as usize;
                let big = c.big;
                let option = c.bytes(size.min(OPTION_MAX))?.to_vec();
                let option = Bytes { of: &option, big };
                match id {
                    BUFFER => named.push((option.u64(0)?, option.string(8, size - 8)?.to_vec())),
                    _ => self.option(id, option, c.at),
                }
            }
        }
        let page = page as usize;
        let top = self.version_6_buffer(c, vec![], page);
        for (at, name) in named {
            c.at = at;
            if self.version_6_buffer(c, name, page).is_none() {
                self.notes.at(at, "the table of a buffer is cut short");
            }
        }
        top
    }

    /// A table of CPUs, with their pages elsewhere.
    fn version_6_buffer(&mut self, c: &mut Cursor, name: Vec<u8>, page: usize) -> Option<()> {
        let at = c.at;
        match c.bytes(10)? {
            b"flyrecord\0" => {}
            b"latency  \0" => {
                self.notes.at(at, "the text of a latency tracer; left out");
                return Some(());
            }
            _ => {
                self.notes.at(at, "neither `flyrecord` nor `latency`");
                return None;
            }
        }
        let mut cpus = vec![];
        for cpu in 0..self.nr_cpus {
            let (Some(at), Some(size)) = (c.u64(), c.u64()) else { break };
            cpus.push(Data { cpu, at, size });
        }
        let whole = cpus.len() == self.nr_cpus as usize;
        self.buffers.push(Buffer { name, page, packing: Packing::None, cpus });
        whole.then_some(())
    }

    fn version_7(&mut self, c: &mut Cursor) -> Option<()> {
        let packing = match c.string()?.as_slice() {
            b"none" => Packing::None,
            b"zstd" => Packing::Zstd,
            b"zlib" => Packing::Zlib,
            other => {
                let name = String::from_utf8_lossy(other).into_owned();
                self.notes.at(c.at, format!("compressed with {name}; expected none, zlib or zstd"));
                Packing::Unknown
            }
        };
        c.string()?;
        let mut next = c.u64()?;
        let mut sections = vec![];
        let mut count = 0;
        while next != 0 {
            let bytes = self.section(c, next, packing)?;
            let mut options = Cursor::part(&bytes, c.big);
            next = 0;
            while let (Some(id), Some(size)) = (options.u16(), options.u32()) {
                let at = options.at;
                let Some(option) = options.bytes(size as usize).map(<[u8]>::to_vec) else {
                    self.notes.at(c.at, "an option that is longer than its section");
                    break;
                };
                count += 1;
                let option = Bytes { of: &option, big: c.big };
                match id {
                    DONE => {
                        next = option.u64(0).unwrap_or(0);
                        break;
                    }
                    BUFFER => {
                        let packing = match option.u64(0).map(|at| is_packed(c, at)) {
                            Some(true) => packing,
                            _ => Packing::None,
                        };
                        if self.version_7_buffer(option, packing).is_none() {
                            self.notes.at(at, "the table of a buffer is cut short");
                        }
                    }
                    HEADER_INFO..=CMDLINES => sections.extend(option.u64(0).map(|at| (id, at))),
                    _ => self.option(id, option, at),
                }
            }
            if count > OPTIONS_MAX {
                self.notes.at(next, format!("more than {OPTIONS_MAX} options"));
                break;
            }
            count += 1;
        }
        // Addresses of functions and formats of printk may be large, and say nothing here.
        let wanted = [HEADER_INFO, FTRACE_EVENTS, EVENT_FORMATS, CMDLINES];
        for (id, at) in sections.into_iter().filter(|(id, _)| wanted.contains(id)) {
            let Some(bytes) = self.section(c, at, packing) else { continue };
            let mut part = Cursor::part(&bytes, c.big);
            let done = match id {
                HEADER_INFO => tracing_data::headers(&mut part).map(|page| self.layout_of(&page)),
                FTRACE_EVENTS => tracing_data::ftrace_events(&mut part, &mut self.points),
                EVENT_FORMATS => tracing_data::events(&mut part, &mut self.points),
                _ => part.u64().map(|_| self.names(&bytes[8..])),
            };
            if done.is_none() {
                self.notes.at(at, format!("section {id} is cut short"));
            }
        }
        Some(())
    }

    /// The contents of the section at `at`; says what is wrong with it.
    fn section(&mut self, c: &mut Cursor, at: u64, packing: Packing) -> Option<Vec<u8>> {
        c.at = at;
        let (id, flags, _, size) = (c.u16()?, c.u16()?, c.u32()?, c.u64()?);
        let limit = |n: u64| usize::try_from(n).ok().filter(|n| *n <= SECTION_MAX);
        let too_long = |notes: &mut Notes| {
            notes.at(at, format!("section {id} of more than {} MiB", SECTION_MAX >> 20));
        };
        if flags & COMPRESSED == 0 {
            // Options sections before trace-cmd 3.2 count more than they have.
            let Some(size) = limit(size) else {
                too_long(&mut self.notes);
                return None;
            };
            return Some(c.get(c.at, size).to_vec());
        }
        let (packed, size) = (c.u32()?, c.u32()?);
        let (Some(packed), Some(size)) = (limit(packed.into()), limit(size.into())) else {
            too_long(&mut self.notes);
            return None;
        };
        let from = c.at;
        let Some(bytes) = c.bytes(packed) else {
            self.notes.at(from, format!("section {id} is cut short"));
            return None;
        };
        match unpacked(bytes, size, packing) {
            Ok(bytes) => Some(bytes),
            Err(e) => {
                self.notes.at(from, format!("section {id} cannot be unpacked ({e})"));
                None
            }
        }
    }

    fn version_7_buffer(&mut self, option: Bytes, packing: Packing) -> Option<()> {
        let mut part = Cursor::part(option.of, option.big);
        let at = part.u64()?;
        let (name, clock) = (part.string()?, part.string()?);
        let (page, count) = (part.u32()? as usize, part.u32()?);
        self.clock_is(&clock, at);
        let mut cpus = vec![];
        for _ in 0..count {
            let (Some(cpu), Some(at), Some(size)) = (part.u32(), part.u64(), part.u64()) else {
                break;
            };
            cpus.push(Data { cpu, at, size });
        }
        let whole = cpus.len() == count as usize;
        self.buffers.push(Buffer { name, page, packing, cpus });
        whole.then_some(())
    }

    fn option(&mut self, id: u16, option: Bytes, at: u64) {
        let text = option.string(0, option.len()).map(String::from_utf8_lossy).unwrap_or_default();
        match id {
            UNAME => {
                let words: Vec<&str> = text.split_whitespace().collect();
                if let [_, host, release, .., arch] = words[..] {
                    let known = |word: &str| (word != UNKNOWN).then(|| word.into());
                    self.found.hostname = known(host);
                    self.found.release = known(release);
                    self.found.arch = known(arch);
                }
            }
            OFFSET => self.clock.offset = text.trim().parse().unwrap_or(0),
            CPUCOUNT => {
                self.found.nr_cpus = option.u32(0);
                self.nr_cpus = option.u32(0).unwrap_or(self.nr_cpus).min(CPUS_MAX);
            }
            TSC2NSEC => {
                self.clock.scale = option.u32(0).zip(option.u32(4)).filter(|(mult, _)| *mult != 0);
            }
            TRACECLOCK => {
                let chosen = text.split_once('[').and_then(|(_, t)| t.split_once(']'));
                self.clock_is(chosen.map_or("", |(name, _)| name).as_bytes(), at);
            }
            CPUSTAT => self.statistics(&text, at),
            _ => {}
        }
    }

    /// `overrun: 3` and its like.
    fn statistics(&mut self, text: &str, at: u64) {
        let number = |key: &str| {
            let line = text.lines().find_map(|l| l.trim().strip_prefix(key))?;
            line.trim().parse::<u64>().ok()
        };
        let overrun = number("overrun:").unwrap_or(0);
        let other = ["commit overrun:", "dropped events:"]
            .iter()
            .fold(0u64, |sum, key| sum.saturating_add(number(key).unwrap_or(0)));
        let lost = overrun.saturating_add(other);
        if lost > 0 {
            let cpu = number("CPU:").unwrap_or(0);
            self.overrun.add(u16::try_from(cpu).ok(), overrun);
            self.found.lost.add(u16::try_from(cpu).ok(), other);
            self.notes.at(at, format!("the recorder lost {lost} events of CPU {cpu}"));
        }
    }

    fn clock_is(&mut self, name: &[u8], at: u64) {
        if [&b"counter"[..], b"uptime"].contains(&name) {
            let name = String::from_utf8_lossy(name);
            let text = format!("the clock is `{name}`, which does not count nanoseconds");
            self.notes.at(at, text);
        }
    }

    fn layout_of(&mut self, header_page: &[u8]) {
        self.layout = Layout::parse(header_page).unwrap_or(self.layout);
    }

    /// Lines of thread id and name.
    fn names(&mut self, text: &[u8]) {
        for line in text.split(|b| *b == b'\n') {
            let line = String::from_utf8_lossy(line);
            let Some((pid, comm)) = line.trim().split_once(' ') else { continue };
            if let (Ok(pid), false) = (pid.parse(), comm == "<...>") {
                self.builder.called(pid, comm.as_bytes());
            }
        }
    }

    fn buffers(&mut self, input: &mut Input) {
        let buffers = std::mem::take(&mut self.buffers);
        let mut read: Option<String> = None;
        for buffer in &buffers {
            let name = String::from_utf8_lossy(&buffer.name).into_owned();
            let holds = buffer.cpus.iter().any(|d| d.size > 0);
            match &read {
                Some(first) if holds => {
                    let at = buffer.cpus.first().map_or(0, |d| d.at);
                    let text = format!("buffer `{name}` is left out; the events are of `{first}`");
                    self.notes.at(at, text);
                }
                Some(_) => {}
                None => {
                    for data in &buffer.cpus {
                        self.data(input, buffer, data);
                    }
                    read = (!self.builder.is_empty()).then_some(name);
                }
            }
        }
    }

    fn data(&mut self, input: &mut Input, buffer: &Buffer, data: &Data) {
        let sound = buffer.page.is_power_of_two() && (512..=PAGE_MAX).contains(&buffer.page);
        let Some(cpu) = u16::try_from(data.cpu).ok().filter(|_| sound) else {
            let text = format!("CPU {} with pages of {} bytes; left out", data.cpu, buffer.page);
            self.notes.at(data.at, text);
            return;
        };
        if data.size > self.budget {
            let cpu = data.cpu;
            self.notes.at(data.at, format!("the events of CPU {cpu} are not all in the file"));
        }
        let size = data.size.min(self.budget);
        self.budget -= size;
        let end = data.at.saturating_add(size);
        match buffer.packing {
            Packing::None => self.pages(input, data.at, end, buffer.page, cpu),
            _ => self.chunks(input, data.at, buffer, cpu),
        }
    }

    fn pages(&mut self, input: &mut Input, mut at: u64, end: u64, page: usize, cpu: u16) {
        while at < end {
            let size = page.min((end - at) as usize);
            let bytes = input.get(at, size);
            let read = bytes.len();
            if read > 0 {
                self.page(Bytes { of: bytes, big: self.big }, at, cpu);
            }
            if read < size {
                let text =
                    format!("the file ends; the events of CPU {cpu} should end at byte {end}");
                self.notes.at(at + read as u64, text);
                return;
            }
            at += size as u64;
        }
    }

    /// Pages in compressed chunks, with their number before them.
    fn chunks(&mut self, input: &mut Input, at: u64, buffer: &Buffer, cpu: u16) {
        let mut c = Cursor::input(input, at, self.big);
        for _ in 0..c.u32().unwrap_or(0) {
            let from = c.at;
            let (Some(packed), Some(size)) = (c.u32(), c.u32()) else {
                self.notes.at(from, format!("the file ends; chunks of CPU {cpu} are missing"));
                return;
            };
            let (packed, size) = (packed as usize, size as usize);
            let sound = packed as u64 <= self.packed_budget && size <= SECTION_MAX;
            let Some(bytes) = (if sound { c.bytes(packed) } else { None }) else {
                let text = format!("a chunk of CPU {cpu} that is not in the file");
                self.notes.at(from, text);
                return;
            };
            self.packed_budget -= packed as u64;
            match unpacked(bytes, size, buffer.packing) {
                Ok(pages) => {
                    for page in pages.chunks(buffer.page) {
                        self.page(Bytes { of: page, big: self.big }, from, cpu);
                    }
                }
                Err(e) => {
                    let text = format!("a chunk of CPU {cpu} that cannot be unpacked ({e})");
                    self.notes.at(from, text);
                }
            }
        }
    }

    fn page(&mut self, page: Bytes, at: u64, cpu: u16) {
        let State { builder, notes, points, clock, .. } = self;
        let said = ring_buffer::events(page, self.layout, |time, data, place| {
            let place = at + place as u64;
            match points.take(
                builder,
                At { time: clock.ns(time), cpu, pid: None, flags: None },
                data,
            ) {
                Taken::Event | Taken::Other => {}
                Taken::Undescribed => notes.at(place, "an event that the file does not describe"),
                Taken::Damaged => {
                    notes.at(place, "an event without the fields that it should have");
                }
            }
        });
        match said {
            Err(damage) => notes.at(at + damage.at as u64, damage.what),
            Ok(page) => {
                if let Some(missed) = page.missed {
                    self.missed.add(Some(cpu), missed.unwrap_or(0));
                    let n = missed.map_or("some".into(), |n| n.to_string());
                    notes.at(at, format!("{n} events of CPU {cpu} were lost before this page"));
                }
            }
        }
    }
}

/// True if the section at `at` says that it is compressed.
fn is_packed(c: &mut Cursor, at: u64) -> bool {
    let big = c.big;
    let flags = Bytes { of: c.get(at.saturating_add(2), 2), big }.u16(0);
    flags.is_some_and(|flags| flags & COMPRESSED != 0)
}

/// What `bytes` unpack to: exactly `size` bytes.
fn unpacked(bytes: &[u8], size: usize, packing: Packing) -> Result<Vec<u8>, String> {
    match packing {
        Packing::None => Ok(bytes.to_vec()),
        Packing::Zstd => zstd::unpack(bytes, size),
        Packing::Zlib => {
            let mut out = vec![];
            let mut from = flate2::read::ZlibDecoder::new(bytes).take(size as u64);
            from.read_to_end(&mut out).map_err(|e| e.to_string())?;
            match out.len() {
                n if n == size => Ok(out),
                n => Err(format!("{n} bytes instead of {size}")),
            }
        }
        Packing::Unknown => Err("the method is not known".into()),
    }
}
