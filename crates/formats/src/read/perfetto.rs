//! Perfetto's trace: packets with bundles of ftrace events per CPU, of which switches and wakings
//! may stand in columns ("compact sched").
//!
//! Facts: `protos/perfetto/trace/{trace,trace_packet}.proto`, `ftrace/{ftrace_event_bundle,
//! ftrace_event,ftrace_stats,sched}.proto` and `ps/process_tree.proto` of Perfetto 51.
//!
//! Departures: a switch in columns does not say who left; that is who came at the switch before,
//! so that the first of each CPU is left out. Clocks are not converted into one another.

use super::builder::{At, Builder, Named};
use super::input::Input;
use super::protobuf::{Fields, Value, fields, numbers, varint};
use super::{Glimpses, Notes, Recorded};
use crate::numbers::perfetto::{
    self as known, bundle, event, ftrace_stats, migrate, packet, process_tree, switch, system_info,
    wakeup,
};
use std::collections::HashMap;
use std::io::Read;
use vruntime_base::EventKind;

/// `Trace.packet` with its wire type, bytes.
const PACKET: u8 = (known::PACKET << 3 | 2) as u8;
/// No packet is longer: what a buffer of the recorder holds.
const PACKET_MAX: u64 = 256 << 20;
/// Bytes without a packet after which nobody looks on.
const SEARCH_MAX: u64 = 64 << 20;
/// Compressed packets that unpack to more than this many times their size are damaged.
const RATIO: u64 = 1000;

/// Bits of a task's state as the kernel has reported them since 4.14.
const EXITED: u64 = 0x30;
const ASLEEP: u64 = 0xff;

#[derive(Default)]
struct State {
    builder: Builder,
    notes: Notes,
    found: Recorded,
    /// Who runs on each CPU, as far as switches said.
    current: HashMap<u16, Who>,
    /// Losses of each CPU before the recording.
    lost_before: HashMap<u64, u64>,
}

#[derive(Clone, Default)]
struct Who {
    pid: u32,
    comm: Vec<u8>,
    prio: i16,
}

impl Who {
    fn named(&self) -> Named<'_> {
        Named { pid: self.pid, comm: &self.comm, prio: self.prio }
    }
}

/// True if the first packet is one.
pub(super) fn is_one(input: &mut Input) -> bool {
    matches!(packet(input, 0), Packet::Whole { .. })
}

/// What is at a place.
enum Packet {
    Whole {
        header: usize,
        length: usize,
    },
    /// It begins as one, and the file ends before it does.
    Cut,
    None,
}

fn packet(input: &mut Input, at: u64) -> Packet {
    let start = input.get(at, 12);
    let Some((&PACKET, rest)) = start.split_first() else { return Packet::None };
    let Some((length, size)) = varint(rest).filter(|(n, _)| *n <= PACKET_MAX) else {
        return Packet::None;
    };
    let (header, length) = (1 + size, length as usize);
    let bytes = input.get(at, header + length);
    match bytes.get(header..header + length) {
        None => Packet::Cut,
        Some(bytes) if fields(bytes).sound() => Packet::Whole { header, length },
        Some(_) => Packet::None,
    }
}

pub(super) fn read(input: &mut Input, glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    let mut state = State { builder: Builder::new(glimpses), ..State::default() };
    state.found.format = "Perfetto";
    let mut at = 0;
    loop {
        match packet(input, at) {
            Packet::Whole { header, length } => {
                let bytes = input.get(at, header + length);
                state.packet(&bytes[header..], at, true);
                at += (header + length) as u64;
            }
            _ if input.get(at, 1).is_empty() => break,
            found => match next_packet(input, at) {
                Some(next) => {
                    state.notes.at(at, format!("{} bytes that are no packet", next - at));
                    at = next;
                }
                None => {
                    let text = match found {
                        Packet::Cut => "a packet that is cut short",
                        _ => "what follows is no packet",
                    };
                    state.notes.at(at, text);
                    break;
                }
            },
        }
    }
    Ok((state.found.with(state.builder), state.notes))
}

/// The next place where a packet stands and another, or the end, behind it.
fn next_packet(input: &mut Input, from: u64) -> Option<u64> {
    let mut at = from + 1;
    while at - from < SEARCH_MAX {
        let window = input.window(at, 1);
        if window.is_empty() {
            return None;
        }
        let Some(i) = memchr::memchr(PACKET, window) else {
            at += window.len() as u64;
            continue;
        };
        at += i as u64;
        if let Packet::Whole { header, length } = packet(input, at) {
            let behind = input.get(at + (header + length) as u64, 1);
            if length > 0 && behind.first().is_none_or(|b| *b == PACKET) {
                return Some(at);
            }
        }
        at += 1;
    }
    None
}

impl State {
    fn packet(&mut self, packet: &[u8], at: u64, may_hold_packets: bool) {
        for (field, value) in fields(packet).flatten() {
            let Some(message) = value.bytes() else { continue };
            match field {
                packet::FTRACE_EVENTS => self.bundle(message, at),
                packet::PROCESS_TREE => self.process_tree(message),
                packet::FTRACE_STATS => self.statistics(message, at),
                packet::SYSTEM_INFO => self.system_info(message),
                packet::COMPRESSED if may_hold_packets => self.compressed(message, at),
                _ => {}
            }
        }
    }

    fn compressed(&mut self, packed: &[u8], at: u64) {
        let mut bytes = vec![];
        let limit = packed.len() as u64 * RATIO;
        let mut from = flate2::read::ZlibDecoder::new(packed).take(limit);
        let read = from.read_to_end(&mut bytes);
        for (field, value) in fields(&bytes).flatten() {
            if let (known::PACKET, Some(packet)) = (field, value.bytes()) {
                self.packet(packet, at, false);
            }
        }
        if let Err(e) = read {
            self.notes.at(at, format!("compressed packets that are damaged ({e})"));
        } else if !fields(&bytes).sound() {
            self.notes.at(at, "compressed packets that are cut short");
        }
    }

    fn bundle(&mut self, bundle: &[u8], at: u64) {
        let all = fields(bundle);
        let cpu = all.get(bundle::CPU).and_then(Value::number).unwrap_or(0);
        let Ok(cpu) = u16::try_from(cpu) else {
            self.notes.at(at, format!("events of CPU {cpu}; left out"));
            return;
        };
        if all.get(bundle::LOST_EVENTS).and_then(Value::number) == Some(1) {
            self.notes.at(at, format!("events of CPU {cpu} were lost before these"));
        }
        for (field, value) in all.flatten() {
            let Some(message) = value.bytes() else { continue };
            let done = match field {
                bundle::EVENT => self.event(message, cpu),
                bundle::COMPACT_SCHED => self.columns(message, cpu, at),
                _ => Some(()),
            };
            if done.is_none() {
                self.notes.at(at, "an event without the fields that it should have");
            }
        }
    }

    /// A `FtraceEvent`.
    fn event(&mut self, event: &[u8], cpu: u16) -> Option<()> {
        let kinds =
            [event::SWITCH, event::WAKEUP, event::WAKING, event::WAKEUP_NEW, event::MIGRATE];
        let mut time = 0;
        let (mut pid, mut flags) = (None, None);
        let mut found = None;
        for (field, value) in fields(event).flatten() {
            match (field, value) {
                (event::TIMESTAMP, Value::Number(n)) => time = n,
                (event::PID, Value::Number(n)) => pid = Some(n as u32),
                (event::COMMON_FLAGS, Value::Number(n)) => flags = Some(n as u8),
                (field, Value::Bytes(message)) if kinds.contains(&field) => {
                    found = Some((field, fields(message)));
                }
                _ => {}
            }
        }
        let Some((kind, message)) = found else {
            self.builder.glimpse(At { time, cpu, pid, flags }, None);
            return Some(());
        };
        let at = At { time, cpu, pid, flags };
        let number = |field: u64| message.get(field).and_then(Value::number);
        // What is zero may be left out.
        let cpu_of = |field: u64| as_cpu(number(field).unwrap_or(0));
        match kind {
            event::SWITCH => {
                let prev = who(message, switch::PREV_COMM)?;
                let next = who(message, switch::NEXT_COMM)?;
                let state = state(number(switch::PREV_STATE).unwrap_or(0));
                self.builder.switch(at, prev.named(), state, next.named());
                self.current.insert(cpu, next);
            }
            event::MIGRATE => {
                let task = who(message, migrate::COMM)?;
                let (from, to) = (cpu_of(migrate::ORIG_CPU)?, cpu_of(migrate::DEST_CPU)?);
                self.builder.migrate(at, task.named(), from, to);
            }
            _ => {
                let kind = match kind {
                    event::WAKING => EventKind::Waking,
                    event::WAKEUP => EventKind::Wakeup,
                    _ => EventKind::WakeupNew,
                };
                let task = who(message, wakeup::COMM)?;
                self.builder.wake(at, kind, task.named(), cpu_of(wakeup::TARGET_CPU)?);
            }
        }
        Some(())
    }

    /// `CompactSched`: times as differences, names as places in a table.
    fn columns(&mut self, compact: &[u8], cpu: u16, at: u64) -> Option<()> {
        const COLUMNS: usize = 13;
        let mut columns: [Vec<u64>; COLUMNS] = Default::default();
        let mut names: Vec<&[u8]> = vec![];
        for (field, value) in fields(compact).flatten() {
            match (field as usize, value) {
                (5, Value::Bytes(name)) => names.push(name),
                (column @ 1..COLUMNS, value) => numbers(value, &mut columns[column]),
                _ => {}
            }
        }
        let times = |deltas: &[u64]| {
            let add = |sum: &mut u64, delta: &u64| {
                *sum = sum.wrapping_add(*delta);
                Some(*sum)
            };
            deltas.iter().scan(0u64, add).collect::<Vec<u64>>()
        };
        let task = |pid: usize, prio: usize, name: usize, i: usize| {
            Some(Who {
                pid: *columns[pid].get(i)? as u32,
                comm: names.get(usize::try_from(*columns[name].get(i)?).ok()?)?.to_vec(),
                prio: Named::prio_from(*columns[prio].get(i)? as i32),
            })
        };
        let (switches, wakings) = (times(&columns[1]), times(&columns[7]));
        let (mut s, mut w) = (0, 0);
        while s < switches.len() || w < wakings.len() {
            let waking = match (switches.get(s), wakings.get(w)) {
                (Some(switch), Some(waking)) => waking <= switch,
                (None, _) => true,
                _ => false,
            };
            if waking {
                let pid = self.current.get(&cpu).map(|who| who.pid);
                let place = At { time: wakings[w], cpu, pid, flags: None };
                let target = as_cpu(*columns[9].get(w)?)?;
                self.builder.wake(place, EventKind::Waking, task(8, 10, 11, w)?.named(), target);
                w += 1;
                continue;
            }
            let next = task(3, 4, 6, s)?;
            let left = state(*columns[2].get(s)?);
            match self.current.insert(cpu, next.clone()) {
                Some(prev) => {
                    let place = At { time: switches[s], cpu, pid: Some(prev.pid), flags: None };
                    self.builder.switch(place, prev.named(), left, next.named());
                }
                None => {
                    let text = format!("the first switch of CPU {cpu} does not say who left");
                    self.notes.at(at, text);
                }
            }
            s += 1;
        }
        Some(())
    }

    fn process_tree(&mut self, tree: &[u8]) {
        use process_tree::{PROCESSES, THREADS, process, thread};
        for (field, value) in fields(tree).flatten() {
            let Some(message) = value.bytes().map(fields) else { continue };
            let number = |field: u64| message.get(field).and_then(Value::number).map(|n| n as u32);
            let text =
                |field: u64| message.flatten().find(|f| f.0 == field).and_then(|f| f.1.bytes());
            let (pid, name, tgid) = match field {
                PROCESSES => (number(process::PID), text(process::CMDLINE), number(process::PID)),
                THREADS => (number(thread::TID), text(thread::NAME), number(thread::TGID)),
                _ => continue,
            };
            let Some(pid) = pid else { continue };
            if let Some(tgid) = tgid {
                self.builder.tgid(pid, tgid);
            }
            if let Some(name) = name {
                // The command may have a path before it.
                let base = name.rsplit(|b| *b == b'/').next().unwrap_or(name);
                self.builder.called(pid, &base[..base.len().min(15)]);
            }
        }
    }

    /// `FtraceStats` at the start and at the end.
    fn statistics(&mut self, stats: &[u8], at: u64) {
        use cpu_stats::{COMMIT_OVERRUN, CPU, DROPPED_EVENTS, OVERRUN};
        use ftrace_stats::{CPU_STATS, END_OF_TRACE, PHASE, cpu_stats};
        let at_end = fields(stats).get(PHASE).and_then(Value::number) == Some(END_OF_TRACE);
        for (_, value) in fields(stats).flatten().filter(|f| f.0 == CPU_STATS) {
            let Some(of) = value.bytes().map(fields) else { continue };
            let number = |field: u64| of.get(field).and_then(Value::number).unwrap_or(0);
            let kinds = [OVERRUN, COMMIT_OVERRUN, DROPPED_EVENTS];
            let sum = kinds.iter().fold(0u64, |sum, f| sum.saturating_add(number(*f)));
            let before = self.lost_before.entry(number(CPU)).or_default();
            let lost = sum.saturating_sub(*before);
            *before = sum;
            if at_end && lost > 0 {
                let cpu = number(CPU);
                self.found.lost.add(u16::try_from(cpu).ok(), lost);
                self.notes.at(at, format!("the recorder lost {lost} events of CPU {cpu}"));
            }
        }
    }

    fn system_info(&mut self, info: &[u8]) {
        use system_info::{NR_CPUS, UTSNAME, utsname};
        let info = fields(info);
        let nr_cpus = info.get(NR_CPUS).and_then(Value::number);
        self.found.nr_cpus = nr_cpus.and_then(|n| u32::try_from(n).ok()).or(self.found.nr_cpus);
        let Some(names) = info.get(UTSNAME).and_then(Value::bytes).map(fields) else { return };
        let text = |field: u64| {
            let text = names.get(field).and_then(Value::bytes)?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        self.found.release = text(utsname::RELEASE);
        self.found.arch = text(utsname::MACHINE);
    }
}

/// The number of a CPU, if it can be one.
fn as_cpu(n: u64) -> Option<u32> {
    u16::try_from(n).ok().map(u32::from)
}

/// A task whose name is field `first`, with thread id and priority behind it.
fn who(message: Fields, first: u64) -> Option<Who> {
    let number = |field: u64| message.get(field).and_then(Value::number);
    Some(Who {
        comm: message.get(first)?.bytes()?.to_vec(),
        pid: number(first + 1).unwrap_or(0) as u32,
        prio: Named::prio_from(number(first + 2)? as i32),
    })
}

/// What became of a task that was switched away, as `b` of a switch.
fn state(bits: u64) -> u32 {
    match bits {
        bits if bits & EXITED != 0 => 2,
        bits if bits & ASLEEP != 0 => 0,
        _ => 1,
    }
}
