//! perf.data: header, events and feature sections of what `perf record` wrote.
//!
//! Facts: tools/perf/Documentation/perf.data-file-format.txt and include/uapi/linux/perf_event.h.
//! A file of a foreign byte order is one whose magic is written backwards. What goes through a
//! pipe has no sections; the same comes as records before the first sample. The recorder's threads
//! leave their records in files of their own, without a header (`Input::parts`).

use super::builder::Builder;
use super::bytes::Bytes;
use super::input::Input;
use super::perf_records::{Layouts, Records};
use super::perf_topology::Told;
use super::tracepoint::Tracepoints;
use super::tracing_data::{self, Cursor};
use super::{Glimpses, Notes, Recorded};
use crate::lost::Lost;
use crate::numbers::perf_data::{FILE_HEADER, feature};

pub(super) const MAGIC_FOREIGN: &[u8] = b"2ELIFREP";

/// Bits for features in the header.
const FEATURES: u64 = 256;
/// Header of a pipe.
const PIPE_HEADER: u64 = 16;
/// No event is described by more bytes.
const ENTRY_MAX: usize = 1 << 16;
/// Features that are read, but for the descriptions of events.
const READ: [u64; 7] = [
    feature::HOSTNAME,
    feature::OSRELEASE,
    feature::ARCH,
    feature::NRCPUS,
    feature::CPU_TOPOLOGY,
    feature::NUMA_TOPOLOGY,
    feature::CACHE,
];
/// No section of them is longer: some 200 bytes for each cache.
const SECTION_MAX: u64 = 1 << 22;
/// No recorder asks for more kinds of events.
const EVENTS_MAX: u64 = 1 << 12;

/// What the header and its like say.
pub(super) struct State {
    pub builder: Builder,
    pub notes: Notes,
    pub points: Tracepoints,
    pub layouts: Layouts,
    pub found: Recorded,
    pub told: Told,
    /// What the recorder counted as lost at its end. From Linux 6.0 and perf 6.1 on that is what
    /// the records in the buffers tell, once more.
    pub lost_samples: Lost,
}

pub(super) fn read(input: &mut Input, glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    let big = input.get(0, 8) == MAGIC_FOREIGN;
    let mut state = State {
        builder: Builder::new(glimpses),
        notes: Notes::default(),
        points: Tracepoints::default(),
        layouts: Layouts::default(),
        found: Recorded { format: "perf.data", ..Recorded::default() },
        told: Told::default(),
        lost_samples: Lost::default(),
    };
    let size = Bytes { of: input.get(8, 8), big }.u64(0);
    match size {
        Some(PIPE_HEADER) => {
            state.found.format = "perf.data (pipe)";
            Records::new(&mut state, big).read(input, PIPE_HEADER, None);
        }
        Some(FILE_HEADER..) => {
            input.seekable().map_err(|e| format!("a pipe that cannot be kept ({e})"))?;
            state.file(input, big).ok_or("a perf.data whose header is cut short")?;
        }
        _ => return Err("a perf.data with a header of no known size".into()),
    }
    let lost = std::mem::take(&mut state.found.lost);
    state.found.lost = lost.or_more(state.lost_samples);
    state.found.topology = state.told.topology(state.found.arch.as_deref());
    Ok((state.found.with(state.builder), state.notes))
}

impl State {
    fn file(&mut self, input: &mut Input, big: bool) -> Option<()> {
        let header = input.get(0, FILE_HEADER as usize).to_vec();
        let header = Bytes { of: &header, big };
        let (entry_size, attrs, attrs_size) = (header.u64(16)?, header.u64(24)?, header.u64(32)?);
        let (data, data_size) = (header.u64(40)?, header.u64(48)?);
        let flags = header.part(72, 32)?;
        self.attrs(input, big, attrs, entry_size, attrs_size);
        let end = data.checked_add(data_size)?;
        let size = input.size()?;
        let has = |f: u64| flags.u64(f as usize / 64 * 8).is_some_and(|w| w >> (f % 64) & 1 == 1);
        let sections: Vec<u64> = (0..FEATURES).filter(|f| has(*f)).collect();
        if data_size == 0 {
            let text = "the recorder did not close the file: nothing says where its data ends";
            self.notes.at(48, text);
        } else if size < end.saturating_add(16 * sections.len() as u64) {
            let lacks = if has(feature::TRACING_DATA) {
                ", the descriptions of its events among them"
            } else {
                ""
            };
            let text = format!(
                "the file ends; its data should end at byte {end}, and {} sections about it follow \
                 there{lacks}",
                sections.len()
            );
            self.notes.at(size, text);
        } else {
            for (i, feature) in sections.iter().enumerate() {
                self.section(input, big, *feature, end + 16 * i as u64);
            }
        }
        let end = if data_size == 0 { size } else { end };
        Records::new(self, big).read(input, data, Some(end));
        let parts = input.parts();
        if has(feature::DIR_FORMAT) && parts.is_empty() {
            let text = "the recorder's threads wrote files beside this one: read their directory";
            self.notes.at(72, text);
        }
        let mut expected = 0;
        for (n, mut part) in parts {
            if n > expected {
                let text = format!("data.{n} without data.{}, which has other records", n - 1);
                self.notes.at(72, text);
            }
            expected = n + 1;
            self.notes.within(&format!("data.{n}"));
            Records::new(self, big).read(&mut part, 0, None);
            if let Some((at, e)) = part.failure() {
                self.notes.at(*at, e);
            }
        }
        Some(())
    }

    /// The table of events: each a `perf_event_attr` and the place of its ids.
    fn attrs(&mut self, input: &mut Input, big: bool, at: u64, entry_size: u64, size: u64) {
        let Some(entry) = usize::try_from(entry_size).ok().filter(|n| (40..ENTRY_MAX).contains(n))
        else {
            self.notes.at(16, format!("events described by {entry_size} bytes each; left out"));
            return;
        };
        let count = size / entry_size;
        if count > EVENTS_MAX {
            self.notes.at(32, format!("{count} events; expected {EVENTS_MAX} at the most"));
        }
        let wanted = count.min(EVENTS_MAX);
        let table = input.get(at, wanted as usize * entry).to_vec();
        let whole = table.chunks_exact(entry);
        if (whole.len() as u64) < wanted {
            let end = at.saturating_add((whole.len() * entry) as u64);
            self.notes.at(end, "the table of events is cut short");
        }
        for (i, attr) in whole.enumerate() {
            let from = at.saturating_add((i * entry) as u64);
            let attr = Bytes { of: attr, big };
            let (ids, ids_size) = (attr.u64(entry - 16), attr.u64(entry - 8));
            let (Some(ids), Some(ids_size)) = (ids, ids_size) else { return };
            let room = self.layouts.room_for_ids() as u64 * 8;
            let ids_at = input.get(ids, ids_size.min(room) as usize);
            if (ids_at.len() as u64) < ids_size {
                self.notes.at(from, "the ids of an event are not all in the file");
            }
            self.layouts.add(attr, Bytes { of: ids_at, big });
        }
    }

    /// A section whose place is written at `at`.
    fn section(&mut self, input: &mut Input, big: bool, feature: u64, at: u64) {
        let place = Bytes { of: input.get(at, 16), big };
        let (Some(from), Some(size)) = (place.u64(0), place.u64(8)) else { return };
        if feature == feature::TRACING_DATA {
            let mut c = Cursor::input(input, from, big);
            if tracing_data::perf(&mut c, &mut self.points).is_none() {
                let at = c.at;
                let at = at.min(input.size().unwrap_or(at));
                self.notes.at(at, "the descriptions of the events are cut short");
            }
        } else if READ.contains(&feature) {
            let bytes = input.get(from, size.min(SECTION_MAX) as usize);
            if (bytes.len() as u64) < size {
                self.notes.at(at, format!("section {feature} is not in the file"));
            }
            self.feature(feature, Bytes { of: bytes, big });
        }
    }

    /// What a section, or the record in its place, says.
    pub fn feature(&mut self, feature: u64, section: Bytes) {
        let text = || {
            let text = section.string(4, section.len().checked_sub(4)?)?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        match feature {
            feature::HOSTNAME => self.found.hostname = text(),
            feature::OSRELEASE => self.found.release = text(),
            feature::ARCH => self.found.arch = text(),
            feature::NRCPUS => self.found.nr_cpus = section.u32(0),
            _ => self.told.section(feature, section),
        }
    }
}
