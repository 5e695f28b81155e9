//! perf.data as perf 5 and later read it.
//!
//! Source: `tools/perf/Documentation/perf.data-file-format.txt` and `perf_event.h` of Linux. One
//! attribute per tracepoint, told apart by the identifier that begins each sample; the records of
//! a task's name come first, so that `perf sched` shows names.

use super::Origin;
use super::perf_topology;
use super::tracepoints::{TRACEPOINTS, Walk};
use super::tracing_data::tracing_data;
use crate::numbers::perf_data::{FILE_HEADER, MAGIC, feature, record, sample};
use std::io::{self, Seek, SeekFrom, Write};
use vruntime_base::Timeline;

/// Bytes of an attribute: `PERF_ATTR_SIZE_VER5`, that perf 4.4 and later know.
const ATTR: u64 = 112;
/// With the place of its identifiers.
const ATTR_ENTRY: u64 = ATTR + 16;

const TYPE_TRACEPOINT: u32 = 2;
const MISC_KERNEL: u16 = 1;

const SAMPLE: u64 =
    sample::IDENTIFIER | sample::TID | sample::TIME | sample::CPU | sample::PERIOD | sample::RAW;
/// Bits of the flags word of an attribute.
const DISABLED: u64 = 1;
const COMM: u64 = 1 << 9;
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// Records between two marks that everything before the mark before may be shown.
const ROUND: u32 = 4096;

/// Writes the file.
pub(super) fn write(
    timeline: &Timeline,
    origin: &Origin,
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let nr = TRACEPOINTS.len() as u64;
    let ids_at = FILE_HEADER;
    let attrs_at = ids_at + 8 * nr;
    let data_at = attrs_at + ATTR_ENTRY * nr;
    out.write_all(&[0; FILE_HEADER as usize])?;
    for i in 0..nr {
        out.write_all(&identifier(i as usize).to_le_bytes())?;
    }
    for (i, point) in TRACEPOINTS.iter().enumerate() {
        out.write_all(&attribute(point.id.into(), i == 0))?;
        out.write_all(&(ids_at + 8 * i as u64).to_le_bytes())?;
        out.write_all(&8u64.to_le_bytes())?;
    }
    let data_size = records(timeline, origin, out)?;
    let features = features(timeline, origin);
    let mut at = data_at + data_size + 16 * features.len() as u64;
    let mut flags = 0u64;
    for (bit, bytes) in &features {
        flags |= 1 << bit;
        out.write_all(&at.to_le_bytes())?;
        out.write_all(&(bytes.len() as u64).to_le_bytes())?;
        at += bytes.len() as u64;
    }
    for (_, bytes) in &features {
        out.write_all(bytes)?;
    }
    out.seek(SeekFrom::Start(0))?;
    out.write_all(MAGIC)?;
    let words = [
        FILE_HEADER,
        ATTR_ENTRY,
        attrs_at,
        ATTR_ENTRY * nr,
        data_at,
        data_size,
        0,
        0,
        flags,
        0,
        0,
        0,
    ];
    for word in words {
        out.write_all(&word.to_le_bytes())?;
    }
    out.flush()
}

fn identifier(point: usize) -> u64 {
    point as u64 + 1
}

fn attribute(id: u64, first: bool) -> Vec<u8> {
    let mut flags = DISABLED | SAMPLE_ID_ALL;
    if first {
        flags |= COMM;
    }
    let mut out = Vec::with_capacity(ATTR as usize);
    out.extend_from_slice(&TYPE_TRACEPOINT.to_le_bytes());
    out.extend_from_slice(&(ATTR as u32).to_le_bytes());
    // config, sample_period, sample_type, read_format, flags.
    for word in [id, 1, SAMPLE, 0, flags] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.resize(ATTR as usize, 0);
    out
}

/// Writes the records and says how many bytes they take.
fn records(timeline: &Timeline, origin: &Origin, out: &mut impl Write) -> io::Result<u64> {
    let mut written = 0;
    let mut record = Vec::with_capacity(256);
    let mut put = |kind: u32, misc: u16, body: &[u8]| {
        let size = 8 + body.len();
        out.write_all(&kind.to_le_bytes())?;
        out.write_all(&misc.to_le_bytes())?;
        out.write_all(&(size as u16).to_le_bytes())?;
        written += size as u64;
        out.write_all(body)
    };
    let start = timeline.first_time().map_or(0, |first| first.0);
    for task in timeline.tasks().iter().filter(|t| t.pid != 0) {
        record.clear();
        record.extend_from_slice(&task.tgid.to_le_bytes());
        record.extend_from_slice(&task.pid.to_le_bytes());
        super::tracepoints::comm(&task.comm, &mut record);
        trailer(&mut record, task.tgid, task.pid, start, 0);
        put(record::COMM, 0, &record)?;
    }
    for (cpu, n) in origin.lost.by_cpu() {
        record.clear();
        record.extend_from_slice(&identifier(0).to_le_bytes());
        record.extend_from_slice(&n.to_le_bytes());
        trailer(&mut record, 0, 0, start, cpu);
        put(record::LOST, 0, &record)?;
    }
    let mut in_round = 0;
    Walk::new(timeline, origin.nr_cpus).each(|hit| {
        record.clear();
        record.extend_from_slice(&identifier(hit.point).to_le_bytes());
        record.extend_from_slice(&hit.current.tgid.to_le_bytes());
        record.extend_from_slice(&hit.current.pid.to_le_bytes());
        record.extend_from_slice(&hit.time.to_le_bytes());
        record.extend_from_slice(&u64::from(hit.cpu.0).to_le_bytes());
        record.extend_from_slice(&1u64.to_le_bytes());
        // The raw data with its length fills whole words of 8 bytes.
        let raw_at = record.len();
        record.extend_from_slice(&[0; 4]);
        hit.encode(&mut record);
        record.resize(record.len().next_multiple_of(8), 0);
        let raw = (record.len() - raw_at - 4) as u32;
        record[raw_at..raw_at + 4].copy_from_slice(&raw.to_le_bytes());
        put(record::SAMPLE, MISC_KERNEL, &record)?;
        in_round += 1;
        if in_round == ROUND {
            in_round = 0;
            put(record::FINISHED_ROUND, 0, &[])?;
        }
        Ok::<(), io::Error>(())
    })?;
    Ok(written)
}

/// What `sample_id_all` puts behind a record that is no sample.
fn trailer(record: &mut Vec<u8>, tgid: u32, pid: u32, time: u64, cpu: u16) {
    record.extend_from_slice(&tgid.to_le_bytes());
    record.extend_from_slice(&pid.to_le_bytes());
    for word in [time, cpu.into(), identifier(0)] {
        record.extend_from_slice(&word.to_le_bytes());
    }
}

/// Feature sections in order of their bits.
fn features(timeline: &Timeline, origin: &Origin) -> Vec<(u64, Vec<u8>)> {
    let nr_cpus = origin.nr_cpus as u32;
    let mut cpus = nr_cpus.to_le_bytes().to_vec();
    cpus.extend_from_slice(&nr_cpus.to_le_bytes());
    let mut command = (origin.command.len() as u32).to_le_bytes().to_vec();
    for word in &origin.command {
        command.extend(string(word));
    }
    let version = Some(string(concat!("vruntime ", env!("CARGO_PKG_VERSION"))));
    let known = |text: &Option<String>| text.as_deref().map(string);
    let sections = [
        (feature::TRACING_DATA, Some(tracing_data("0.6", timeline))),
        (feature::HOSTNAME, known(&origin.hostname)),
        (feature::OSRELEASE, known(&origin.release)),
        (feature::VERSION, version),
        (feature::ARCH, known(&origin.arch)),
        (feature::NRCPUS, Some(cpus)),
        (feature::CMDLINE, Some(command)),
    ];
    let told = sections.into_iter().filter_map(|(bit, section)| Some((bit, section?)));
    told.chain(origin.topology.iter().flat_map(perf_topology::sections)).collect()
}

/// Length and text, the text filled with zeros to 64 bytes.
pub(super) fn string(text: &str) -> Vec<u8> {
    let size = (text.len() + 1).next_multiple_of(64);
    let mut out = (size as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.resize(4 + size, 0);
    out
}
