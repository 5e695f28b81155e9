//! Perfetto's trace: protobuf packets with bundles of ftrace events per CPU.
//!
//! Source: `protos/perfetto/trace/{trace,trace_packet}.proto`, `ftrace/{ftrace_event_bundle,
//! ftrace_event,sched}.proto` and `ps/process_tree.proto` of Perfetto. Only numbers and strings
//! are needed, so the wire format is written by hand.
//!
//! Departures: there is no message for `sched_stat_runtime`; the viewer finds run times by the
//! switches.

use super::Origin;
use super::tracepoints::{Hit, MIGRATE, RUNTIME, SWITCH, Value, WAKEUP, WAKING, Walk};
use std::io::{self, Write};
use vruntime_base::Timeline;

/// Events of a CPU in one bundle.
const BUNDLE: usize = 512;
/// The only writer of the trace.
const SEQUENCE: u64 = 1;

/// Writes the file.
pub(super) fn write(timeline: &Timeline, origin: &Origin, out: &mut impl Write) -> io::Result<()> {
    packet(out, 2, &process_tree(timeline))?;
    let mut bundles: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new()); origin.nr_cpus];
    Walk::new(timeline, origin.nr_cpus).each(|hit| {
        let Some(number) = message_of(hit.point) else { return Ok(()) };
        let (count, bundle) = &mut bundles[hit.cpu.ix()];
        bytes(2, &event(hit, number), bundle);
        *count += 1;
        if *count == BUNDLE {
            flush(out, hit.cpu.ix(), bundle)?;
            *count = 0;
        }
        Ok::<(), io::Error>(())
    })?;
    for (cpu, (_, bundle)) in bundles.iter_mut().enumerate().filter(|(_, b)| b.0 > 0) {
        flush(out, cpu, bundle)?;
    }
    out.flush()
}

fn flush(out: &mut impl Write, cpu: usize, events: &mut Vec<u8>) -> io::Result<()> {
    let mut bundle = Vec::with_capacity(events.len() + 8);
    number(1, cpu as u64, &mut bundle);
    bundle.append(events);
    packet(out, 1, &bundle)
}

/// A packet with one message in it.
fn packet(out: &mut impl Write, field: u32, message: &[u8]) -> io::Result<()> {
    let mut packet = Vec::with_capacity(message.len() + 16);
    bytes(field, message, &mut packet);
    number(10, SEQUENCE, &mut packet);
    let mut framed = Vec::with_capacity(packet.len() + 8);
    bytes(1, &packet, &mut framed);
    out.write_all(&framed)
}

/// The field of `FtraceEvent` for a tracepoint.
fn message_of(point: usize) -> Option<u32> {
    match point {
        SWITCH => Some(4),
        WAKEUP => Some(17),
        WAKING => Some(20),
        MIGRATE => Some(491),
        RUNTIME => None,
        _ => Some(114),
    }
}

fn event(hit: &Hit, message: u32) -> Vec<u8> {
    let mut fields = Vec::with_capacity(80);
    let is_wakeup = ![SWITCH, MIGRATE].contains(&hit.point);
    for (i, value) in hit.values().iter().enumerate() {
        // Wakeups have `success` before the CPU.
        let field = if is_wakeup && i == 3 { 5 } else { i as u32 + 1 };
        match value {
            Value::Comm(name) => bytes(field, name.as_bytes(), &mut fields),
            Value::Number(n) => number(field, *n, &mut fields),
        }
    }
    if is_wakeup {
        number(4, 1, &mut fields);
    }
    let mut out = Vec::with_capacity(fields.len() + 24);
    number(1, hit.time, &mut out);
    number(2, hit.current.pid.into(), &mut out);
    bytes(message, &fields, &mut out);
    out
}

fn process_tree(timeline: &Timeline) -> Vec<u8> {
    let mut out = Vec::new();
    for task in timeline.tasks().iter().filter(|t| t.pid != 0) {
        let mut row = Vec::new();
        number(1, task.pid.into(), &mut row);
        if task.pid == task.tgid {
            bytes(3, task.comm.as_bytes(), &mut row);
            bytes(1, &row, &mut out);
        } else {
            bytes(2, task.comm.as_bytes(), &mut row);
            number(3, task.tgid.into(), &mut row);
            bytes(2, &row, &mut out);
        }
    }
    out
}

fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(field: u32, n: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3, out);
    varint(n, out);
}

fn bytes(field: u32, content: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}
