//! trace.dat, version 6, as trace-cmd 1 to 3 and KernelShark read it.
//!
//! Source: `Documentation/trace-cmd/trace-cmd.dat.v6.5.txt` of trace-cmd, and the layout of ring
//! buffer pages in `Documentation/trace/ring-buffer-map.rst` and `events/header_event` of Linux.
//!
//! The pages of a CPU stand together, so the timeline is walked twice: once to learn how many
//! pages each CPU fills, once to put each page into its place.

use super::Origin;
use super::tracepoints::Walk;
use super::tracing_data::{PAGE, PAGE_HEADER, tracing_data};
use crate::numbers::UNKNOWN;
use std::io::{self, Seek, SeekFrom, Write};
use vruntime_base::Timeline;

/// Bits of the time since the event before; longer ones take an event of their own.
const DELTA_BITS: u32 = 27;
const TIME_EXTEND: u32 = 30;
/// Bits of the longest time since the event before; what comes after more begins a page.
const LONGEST_BITS: u32 = DELTA_BITS + 32;

/// Writes the file.
pub(super) fn write(
    timeline: &Timeline,
    origin: &Origin,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let mut header = tracing_data("6", timeline);
    header.extend_from_slice(&(origin.nr_cpus as u32).to_le_bytes());
    options(origin, &mut header);
    header.extend_from_slice(b"flyrecord\0");
    let mut pages = vec![0u64; origin.nr_cpus];
    pack(timeline, origin.nr_cpus, |cpu, _| {
        pages[cpu] += 1;
        Ok(())
    })?;
    let table = header.len() + 16 * origin.nr_cpus;
    let mut next = (table.next_multiple_of(PAGE)) as u64;
    let mut places = Vec::with_capacity(origin.nr_cpus);
    for n in &pages {
        let size = n * PAGE as u64;
        header.extend_from_slice(&next.to_le_bytes());
        header.extend_from_slice(&size.to_le_bytes());
        places.push(next);
        next += size;
    }
    out.write_all(&header)?;
    pack(timeline, origin.nr_cpus, |cpu, page| {
        out.seek(SeekFrom::Start(places[cpu]))?;
        places[cpu] += PAGE as u64;
        out.write_all(page)
    })?;
    if pages.iter().all(|&n| n == 0) {
        out.write_all(&vec![0; table.next_multiple_of(PAGE) - table])?;
    }
    out.flush()
}

/// What the file says of its machine; trace-cmd converts no file without.
fn options(origin: &Origin, out: &mut Vec<u8>) {
    const DONE: u16 = 0;
    const CPUSTAT: u16 = 2;
    const UNAME: u16 = 5;
    const CPUCOUNT: u16 = 8;
    let [host, release, arch] = [&origin.hostname, &origin.release, &origin.arch]
        .map(|text| text.as_deref().unwrap_or(UNKNOWN));
    let uname = format!("Linux {host} {release} {arch}\0");
    out.extend_from_slice(b"options  \0");
    let nr_cpus = (origin.nr_cpus as u32).to_le_bytes();
    let lost = origin.lost.by_cpu().map(|(cpu, n)| format!("CPU: {cpu}\noverrun: {n}\n\0"));
    let lost: Vec<String> = lost.collect();
    let known = [(UNAME, uname.as_bytes()), (CPUCOUNT, &nr_cpus)];
    for (id, option) in known.into_iter().chain(lost.iter().map(|l| (CPUSTAT, l.as_bytes()))) {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(option.len() as u32).to_le_bytes());
        out.extend_from_slice(option);
    }
    out.extend_from_slice(&DONE.to_le_bytes());
}

/// Packs the events of each CPU into pages and hands over each page.
fn pack(
    timeline: &Timeline,
    nr_cpus: usize,
    mut full: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut pages: Vec<Page> = (0..nr_cpus).map(|_| Page::default()).collect();
    let mut event = Vec::with_capacity(96);
    Walk::new(timeline, nr_cpus).each(|hit| {
        event.clear();
        hit.encode(&mut event);
        let page = &mut pages[hit.cpu.ix()];
        if !page.fits(hit.time, event.len()) {
            full(hit.cpu.ix(), page.finish())?;
            *page = Page { bytes: std::mem::take(&mut page.bytes), ..Page::default() };
            page.bytes.clear();
        }
        page.push(hit.time, &event);
        Ok::<(), io::Error>(())
    })?;
    for (cpu, page) in pages.iter_mut().enumerate().filter(|(_, p)| !p.bytes.is_empty()) {
        full(cpu, page.finish())?;
    }
    Ok(())
}

/// A page being filled.
#[derive(Default)]
struct Page {
    bytes: Vec<u8>,
    last: u64,
}

impl Page {
    fn fits(&self, time: u64, event: usize) -> bool {
        let near = self.bytes.is_empty() || (time - self.last) >> LONGEST_BITS == 0;
        // With the longest header: an extended time, and the length in a word of its own.
        near && self.bytes.len().max(PAGE_HEADER) + 8 + 8 + event.next_multiple_of(4) <= PAGE
    }

    fn push(&mut self, time: u64, event: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&time.to_le_bytes());
            self.bytes.extend_from_slice(&[0; 8]);
            self.last = time;
        }
        let delta = time - self.last;
        self.last = time;
        let low = (delta & ((1 << DELTA_BITS) - 1)) as u32;
        let short = delta >> DELTA_BITS == 0;
        if !short {
            self.word(TIME_EXTEND | low << 5);
            self.word((delta >> DELTA_BITS) as u32);
        }
        let delta = if short { low } else { 0 };
        let words = event.len().div_ceil(4) as u32;
        // Up to 28 words the length stands in the header itself.
        if words <= 28 {
            self.word(words | delta << 5);
        } else {
            self.word(delta << 5);
            self.word(4 + words * 4);
        }
        self.bytes.extend_from_slice(event);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    fn finish(&mut self) -> &[u8] {
        let used = (self.bytes.len() - PAGE_HEADER) as u64;
        self.bytes[8..16].copy_from_slice(&used.to_le_bytes());
        self.bytes.resize(PAGE, 0);
        &self.bytes
    }
}
