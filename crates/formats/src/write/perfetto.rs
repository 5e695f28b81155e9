//! Perfetto's trace: protobuf packets with bundles of ftrace events per CPU.
//!
//! Source: `protos/perfetto/trace/{trace,trace_packet}.proto`, `ftrace/{ftrace_event_bundle,
//! ftrace_event,ftrace_stats,sched}.proto`, `system_info.proto` and `ps/process_tree.proto` of
//! Perfetto. Only numbers and strings are needed, so the wire format is written by hand.
//!
//! Departures: there is no message for `sched_stat_runtime`; the viewer finds run times by the
//! switches.

use super::Origin;
use super::tracepoints::{Hit, MIGRATE, RUNTIME, SWITCH, Value, WAKEUP, WAKING, Walk};
use crate::numbers::perfetto::{
    PACKET, bundle, event, ftrace_stats, packet, process_tree, system_info, wakeup,
};
use std::io::{self, Write};
use vruntime_base::Timeline;

/// Events of a CPU in one bundle.
const BUNDLE: usize = 512;
/// The only writer of the trace.
const SEQUENCE: u64 = 1;

/// Writes the file.
pub(super) fn write(timeline: &Timeline, origin: &Origin, out: &mut impl Write) -> io::Result<()> {
    packet(out, packet::SYSTEM_INFO, &system_info(origin))?;
    packet(out, packet::PROCESS_TREE, &process_tree(timeline))?;
    let mut bundles: Vec<(usize, Vec<u8>)> = vec![(0, Vec::new()); origin.nr_cpus];
    Walk::new(timeline, origin.nr_cpus).each(|hit| {
        let Some(number) = message_of(hit.point) else { return Ok(()) };
        let (count, bundle) = &mut bundles[hit.cpu.ix()];
        bytes(bundle::EVENT, &event(hit, number), bundle);
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
    if origin.lost.total() > 0 {
        packet(out, packet::FTRACE_STATS, &statistics(origin, ftrace_stats::START_OF_TRACE))?;
        packet(out, packet::FTRACE_STATS, &statistics(origin, ftrace_stats::END_OF_TRACE))?;
    }
    out.flush()
}

fn flush(out: &mut impl Write, cpu: usize, events: &mut Vec<u8>) -> io::Result<()> {
    let mut bundle = Vec::with_capacity(events.len() + 8);
    number(bundle::CPU, cpu as u64, &mut bundle);
    bundle.append(events);
    packet(out, packet::FTRACE_EVENTS, &bundle)
}

/// A packet with one message in it.
fn packet(out: &mut impl Write, field: u64, message: &[u8]) -> io::Result<()> {
    let mut packet = Vec::with_capacity(message.len() + 16);
    bytes(field, message, &mut packet);
    number(packet::SEQUENCE, SEQUENCE, &mut packet);
    let mut framed = Vec::with_capacity(packet.len() + 8);
    bytes(PACKET, &packet, &mut framed);
    out.write_all(&framed)
}

/// The field of `FtraceEvent` for a tracepoint.
fn message_of(point: usize) -> Option<u64> {
    match point {
        SWITCH => Some(event::SWITCH),
        WAKEUP => Some(event::WAKEUP),
        WAKING => Some(event::WAKING),
        MIGRATE => Some(event::MIGRATE),
        RUNTIME => None,
        _ => Some(event::WAKEUP_NEW),
    }
}

fn event(hit: &Hit, message: u64) -> Vec<u8> {
    let mut fields = Vec::with_capacity(80);
    let is_wakeup = ![SWITCH, MIGRATE].contains(&hit.point);
    for (i, value) in hit.values().iter().enumerate() {
        // Wakeups have `success` before the CPU.
        let field = if is_wakeup && i == 3 { wakeup::TARGET_CPU } else { i as u64 + 1 };
        match value {
            Value::Comm(name) => bytes(field, name.as_bytes(), &mut fields),
            Value::Number(n) => number(field, *n as u64, &mut fields),
        }
    }
    if is_wakeup {
        number(wakeup::SUCCESS, 1, &mut fields);
    }
    let mut out = Vec::with_capacity(fields.len() + 24);
    number(event::TIMESTAMP, hit.time, &mut out);
    number(event::PID, hit.current.pid.into(), &mut out);
    if hit.flags != 0 {
        number(event::COMMON_FLAGS, hit.flags.into(), &mut out);
    }
    bytes(message, &fields, &mut out);
    out
}

/// The kernel and the machine.
fn system_info(origin: &Origin) -> Vec<u8> {
    use system_info::{NR_CPUS, UTSNAME, utsname};
    let mut names = Vec::new();
    bytes(utsname::SYSNAME, b"Linux", &mut names);
    for (field, text) in [(utsname::RELEASE, &origin.release), (utsname::MACHINE, &origin.arch)] {
        if let Some(text) = text {
            // A reader of the release wants to begin with a number.
            let text = text.strip_prefix('v').unwrap_or(text);
            bytes(field, text.as_bytes(), &mut names);
        }
    }
    let mut out = Vec::new();
    bytes(UTSNAME, &names, &mut out);
    number(NR_CPUS, origin.nr_cpus as u64, &mut out);
    out
}

/// What was lost: the viewer takes the difference of start and end.
fn statistics(origin: &Origin, phase: u64) -> Vec<u8> {
    use ftrace_stats::{CPU_STATS, END_OF_TRACE, PHASE, cpu_stats};
    let mut out = Vec::new();
    number(PHASE, phase, &mut out);
    for (cpu, n) in origin.lost.by_cpu() {
        let mut row = Vec::new();
        number(cpu_stats::CPU, cpu.into(), &mut row);
        number(cpu_stats::OVERRUN, if phase == END_OF_TRACE { n } else { 0 }, &mut row);
        bytes(CPU_STATS, &row, &mut out);
    }
    out
}

fn process_tree(timeline: &Timeline) -> Vec<u8> {
    use process_tree::{PROCESSES, THREADS, process, thread};
    let mut out = Vec::new();
    for task in timeline.tasks().iter().filter(|t| t.pid != 0) {
        let mut row = Vec::new();
        if task.pid == task.tgid {
            number(process::PID, task.pid.into(), &mut row);
            bytes(process::CMDLINE, task.comm.as_bytes(), &mut row);
            bytes(PROCESSES, &row, &mut out);
        } else {
            number(thread::TID, task.pid.into(), &mut row);
            bytes(thread::NAME, task.comm.as_bytes(), &mut row);
            number(thread::TGID, task.tgid.into(), &mut row);
            bytes(THREADS, &row, &mut out);
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

fn number(field: u64, n: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(n, out);
}

fn bytes(field: u64, content: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}
