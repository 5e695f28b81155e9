//! The text of tracefs `trace`, of `trace-cmd report` and of `perf script`: one event a line.
//!
//! A `comm` may hold spaces, dashes and colons, so a line is taken apart from its `[cpu]`: the
//! thread id stands before it on the right, time and event behind it.
//!
//! libtraceevent's plugin, which the last two may use, has a form of its own for switches and
//! wakeups: `comm:pid [prio]`, read from its end.

use super::builder::{At, Builder, Named};
use super::input::Input;
use super::{Glimpses, Notes, Ran, Recorded};
use crate::lost::Lost;
use vruntime_base::{EventKind, flag};

/// No event's line comes near.
const LINE_MAX: usize = 1 << 16;
/// The first event comes within so many bytes: no header is longer.
const HEADER_MAX: u64 = 16 << 20;
/// Lines are in order of time but for a few, so that not all are held until the end.
const SETTLE: u64 = 1 << 16;

pub(super) fn read(input: &mut Input, glimpses: Glimpses) -> Result<(Recorded, Notes), String> {
    let start = input.get(0, LINE_MAX);
    if start.is_empty() {
        return Err("nothing".into());
    }
    if memchr::memchr(0, start).is_some() {
        return Err("bytes that are no text".into());
    }
    let mut text = Text { builder: Builder::new(glimpses).in_found_order(), ..Text::default() };
    let mut at = 0;
    loop {
        let window = input.window(at, LINE_MAX);
        let mut used = 0;
        for end in memchr::memchr_iter(b'\n', window) {
            text.line(&window[used..end], at + used as u64);
            used = end + 1;
        }
        if used == 0 && window.len() < LINE_MAX {
            // The last line has no end.
            text.line(window, at);
            break;
        }
        if used == 0 {
            let line = at;
            at = line_end(input, at);
            text.notes.at(line, format!("a line of {} bytes; left out", at - line));
        }
        at += used as u64;
        if text.events == 0 && at > HEADER_MAX {
            return Err(format!("no line of an event in the first {} MiB", HEADER_MAX >> 20));
        }
    }
    if text.events == 0 {
        return Err("no line of an event".into());
    }
    if text.lines < text.held {
        let (found, held) = (text.lines, text.held);
        text.notes.at(
            at,
            format!("{found} lines for the {held} events that the header tells: cut short?"),
        );
    }
    text.found.format = "text";
    let told = std::mem::take(&mut text.found.lost).or_more(text.overwritten);
    text.found.lost = told.or_more(text.lost_samples);
    Ok((text.found.with(text.builder), text.notes))
}

/// Behind the end of the line that `at` is in.
fn line_end(input: &mut Input, mut at: u64) -> u64 {
    loop {
        let window = input.window(at, LINE_MAX);
        if let Some(end) = memchr::memchr(b'\n', window) {
            return at + end as u64 + 1;
        }
        if window.is_empty() {
            return at;
        }
        at += window.len() as u64;
    }
}

#[derive(Default)]
struct Text {
    builder: Builder,
    notes: Notes,
    found: Recorded,
    events: u64,
    /// What was overwritten, by the header, and what perf counted as lost at its end: both may be
    /// told by lines between the events as well.
    overwritten: Lost,
    lost_samples: Lost,
    /// Events of the file, by its header, and lines that are no comment: a stack has several.
    held: u64,
    lines: u64,
    /// The latest time so far.
    latest: u64,
}

impl Text {
    fn line(&mut self, raw: &[u8], at: u64) {
        let line = String::from_utf8_lossy(raw);
        self.lines += u64::from(!line.starts_with('#') && !line.trim().is_empty());
        if let Some(event) = event(&line) {
            self.events += 1;
            if event.at.time < self.latest {
                self.notes.at(at, "earlier than a line before it; sorted by time");
            }
            self.latest = self.latest.max(event.at.time);
            if known(&mut self.builder, &event).is_none() {
                let text = format!("{} without the fields that it should have", event.name);
                self.notes.at(at, text);
            }
            if self.events.is_multiple_of(SETTLE) {
                self.builder.settle_all();
            }
        } else if let Some((cpu, n)) = lost_events(&line) {
            self.found.lost.add(Some(cpu), n.unwrap_or(0));
            let n = n.map_or("some".into(), |n| n.to_string());
            self.notes.at(at, format!("the recorder lost {n} events of CPU {cpu}"));
        } else if let Some((held, n)) = entries(&line) {
            self.held += held;
            self.overwritten.add(None, n);
            if n > 0 {
                let text = format!("the recorder has overwritten {n} events, the first ones");
                self.notes.at(at, text);
            }
        } else if let Some(n) = number(&line, "PERF_RECORD_LOST lost ") {
            self.found.lost.add(None, n);
            self.notes.at(at, format!("the recorder lost {n} events"));
        } else if let Some(n) = number(&line, "PERF_RECORD_LOST_SAMPLES lost ") {
            self.lost_samples.add(None, n);
        } else if names_event(&line) {
            self.notes.at(at, "not a whole line of an event; left out");
        }
    }
}

struct Line<'a> {
    at: At,
    pid: Option<u32>,
    tgid: Option<u32>,
    name: &'a str,
    rest: &'a str,
}

/// Which CPU lost events, and how many where that is known: `CPU:3 [LOST 12 EVENTS]` of the
/// kernel, `CPU:3 [12 EVENTS DROPPED]` of trace-cmd, or either without the number.
fn lost_events(line: &str) -> Option<(u16, Option<u64>)> {
    let (cpu, what) = line.strip_prefix("CPU:")?.split_once(" [")?;
    let words: Vec<&str> = what.trim_end().strip_suffix(']')?.split(' ').collect();
    let n = match words[..] {
        ["LOST", n, "EVENTS"] | [n, "EVENTS", "DROPPED"] => Some(n.parse().ok()?),
        ["LOST", "EVENTS"] | ["EVENTS", "DROPPED"] => None,
        _ => return None,
    };
    Some((cpu.parse().ok()?, n))
}

/// How many events the buffer holds, and how many are gone that it once held:
/// `# entries-in-buffer/entries-written: 3/5`.
fn entries(line: &str) -> Option<(u64, u64)> {
    let (left, written) =
        line.strip_prefix("# entries-in-buffer/entries-written: ")?.split_once('/')?;
    let written = written.split_whitespace().next()?.parse::<u64>().ok()?;
    let left = left.trim().parse().ok()?;
    Some((left, written.checked_sub(left)?))
}

/// The line was meant to be one of an event that a timeline has.
fn names_event(line: &str) -> bool {
    let names = ["switch:", "waking:", "wakeup:", "wakeup_new:", "migrate_task:", "stat_runtime:"];
    line.match_indices("sched_").any(|(at, sched)| {
        let name = &line[at + sched.len()..];
        line[..at].ends_with([' ', ':']) && names.iter().any(|known| name.starts_with(known))
    })
}

/// `comm-pid (tgid) [cpu] flags time: name: fields`. A comm may look like the CPU: what has a pid
/// before it is one. `perf script -F` may leave the pid out.
fn event(line: &str) -> Option<Line<'_>> {
    let mut all = line.match_indices(" [").filter_map(|(at, _)| {
        let (cpu, tail) = line[at + 2..].split_once("] ")?;
        parts(&line[..at], cpu.parse().ok()?, tail)
    });
    let first = all.next()?;
    if first.pid.is_some() {
        return Some(first);
    }
    Some(all.find(|later| later.pid.is_some()).unwrap_or(first))
}

fn parts<'a>(head: &str, cpu: u16, tail: &'a str) -> Option<Line<'a>> {
    let (who, tgid) = match head.trim_end().strip_suffix(')').and_then(|h| h.rsplit_once('(')) {
        Some((who, tgid)) => (who, tgid.trim().parse().ok()),
        None => (head, None),
    };
    let pid = pid(who.trim_end());
    let (before, fields) = tail.split_once(": ")?;
    let mut words = before.split_whitespace();
    let (last, first) = (words.next_back()?, words.next());
    let (time, flags) = (time(last)?, first.and_then(flags));
    let (name, rest) = since_the_last(fields.trim_start()).split_once(": ")?;
    let name = name.rsplit(':').next()?;
    Some(Line { at: At { time, cpu, pid, flags }, pid, tgid, name, rest })
}

/// What follows `(+12)`, the time since the event before (`trace-cmd report --ts-diff`).
fn since_the_last(fields: &str) -> &str {
    let time = fields.strip_prefix("(+").and_then(|rest| rest.split_once(')'));
    match time {
        Some((digits, rest)) if digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            rest.trim_start()
        }
        _ => fields,
    }
}

/// The thread id at the end: `comm-12` of tracefs, `comm 12` and `comm 11/12` of perf script, but
/// not that of `kworker/1`.
fn pid(who: &str) -> Option<u32> {
    let without = who.trim_end_matches(|c: char| c.is_ascii_digit());
    let process = || without[..without.len() - 1].ends_with(|c: char| c.is_ascii_digit());
    let is_pid = match without.chars().next_back() {
        Some('-') | None => true,
        Some('/') => process(),
        Some(c) => c.is_whitespace(),
    };
    who[without.len()..].parse().ok().filter(|_| is_pid)
}

/// `dNh2.`: interrupts off, reschedule wanted, context, and depths of disabling.
fn flags(word: &str) -> Option<u8> {
    let &[irqs, resched, context, ..] = word.as_bytes() else { return None };
    let irqs = match irqs {
        b'.' | b'b' | b'X' => 0,
        b'd' | b'D' => flag::IRQS_OFF,
        _ => return None,
    };
    let resched = match resched {
        b'.' | b'p' => 0,
        b'n' | b'N' => flag::NEED_RESCHED,
        b'l' | b'L' => flag::LAZY,
        b'b' | b'B' => flag::NEED_RESCHED | flag::LAZY,
        _ => return None,
    };
    let context = match context {
        b'.' => 0,
        b's' => flag::SOFTIRQ,
        b'H' => flag::HARDIRQ | flag::SOFTIRQ,
        b'h' | b'z' | b'Z' => flag::HARDIRQ,
        _ => return None,
    };
    Some(irqs | resched | context)
}

/// Seconds with up to nine decimals, in ns.
fn time(text: &str) -> Option<u64> {
    let (s, part) = text.split_once('.')?;
    let digits = part.len() as u32;
    let fraction =
        part.parse::<u64>().ok()?.checked_mul(10u64.checked_pow(9u32.checked_sub(digits)?)?)?;
    s.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// What stands between `key` and `end`.
fn between<'a>(text: &'a str, key: &str, end: &str) -> Option<&'a str> {
    let from = text.find(key)? + key.len();
    Some(&text[from..from + text[from..].find(end)?])
}

/// The number behind `key`.
fn number<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The CPU behind `key`.
fn cpu(text: &str, key: &str) -> Option<u32> {
    number::<u16>(text, key).map(u32::from)
}

/// A task by `comm`, `pid` and `prio` under a prefix.
fn task<'a>(text: &'a str, prefix: &str) -> Option<Named<'a>> {
    let comm = between(text, &format!("{prefix}comm="), &format!(" {prefix}pid="))?;
    let text = &text[text.find(&format!(" {prefix}pid="))?..];
    let pid = number(text, "pid=")?;
    let prio = Named::prio_from(number::<i64>(text, "prio=")?);
    Some(Named { pid, comm: comm.as_bytes(), prio })
}

/// A task as libtraceevent's plugin shows it: `comm:pid [prio]`.
fn plugin_task(text: &str) -> Option<Named<'_>> {
    let (who, prio) = text.strip_suffix(']')?.rsplit_once(" [")?;
    let (comm, pid) = who.rsplit_once(':')?;
    let prio = Named::prio_from(prio.parse::<i64>().ok()?);
    Some(Named { pid: pid.parse().ok()?, comm: comm.as_bytes(), prio })
}

/// `comm:pid [prio] S ==> comm:pid [prio]`
fn plugin_switch(text: &str) -> Option<(Named<'_>, &str, Named<'_>)> {
    text.match_indices(" ==> ").find_map(|(i, arrow)| {
        let (prev, state) = text[..i].rsplit_once(' ')?;
        Some((plugin_task(prev)?, state, plugin_task(&text[i + arrow.len()..])?))
    })
}

/// `comm:pid [prio] CPU:000`, on older kernels with `success=1` before the CPU.
fn plugin_wake(text: &str) -> Option<(Named<'_>, u32)> {
    let (who, cpu) = text.rsplit_once(" CPU:")?;
    let who = who.strip_suffix(" success=1").unwrap_or(who);
    Some((plugin_task(who)?, cpu.parse::<u16>().ok()?.into()))
}

/// `prev_comm=… prev_state=S ==> next_comm=…`
fn switch(text: &str) -> Option<(Named<'_>, &str, Named<'_>)> {
    // A comm may hold an arrow.
    let (prev, next) = text.split_at(text.rfind(" ==> next_comm=")?);
    let (_, state) = prev.rsplit_once("prev_state=")?;
    Some((task(prev, "prev_")?, state, task(next, "next_")?))
}

/// `comm=… target_cpu=000`
fn wake(text: &str) -> Option<(Named<'_>, u32)> {
    Some((task(text, "")?, cpu(text, "target_cpu=")?))
}

/// What became of a task that was switched away, as `b` of a switch. The plugin has no letter for
/// a state that only says that the task was preempted.
fn state(letters: &str) -> Option<u32> {
    Some(match letters.chars().next()? {
        'R' | '+' => 1,
        'X' | 'Z' => 2,
        _ => 0,
    })
}

/// The fields of `sched_stat_runtime`; its comm may hold anything.
fn ran(rest: &str) -> Option<Ran> {
    let text = &rest[rest.rfind(" pid=")?..];
    let vruntime = number(text, "vruntime=");
    Some(Ran { pid: number(text, "pid=")?, runtime: number(text, "runtime=")?, vruntime })
}

/// Adds an event of the kinds that a timeline has; `None` if its fields are not as they should be.
fn known(builder: &mut Builder, line: &Line) -> Option<()> {
    // `trace-cmd report` fills the event's name to a width.
    let (at, rest) = (line.at, line.rest.trim());
    if let (Some(pid), Some(tgid)) = (line.pid, line.tgid) {
        builder.tgid(pid, tgid);
    }
    let kind = match line.name {
        "sched_switch" => {
            let (prev, left, next) = switch(rest).or_else(|| plugin_switch(rest))?;
            builder.switch(at, prev, state(left)?, next);
            return Some(());
        }
        "sched_migrate_task" => {
            let (from, to) = (cpu(rest, "orig_cpu=")?, cpu(rest, "dest_cpu=")?);
            builder.migrate(at, task(rest, "")?, from, to);
            return Some(());
        }
        "sched_waking" => EventKind::Waking,
        "sched_wakeup" => EventKind::Wakeup,
        "sched_wakeup_new" => EventKind::WakeupNew,
        name => {
            builder.glimpse(at, if name == "sched_stat_runtime" { ran(rest) } else { None });
            return Some(());
        }
    };
    let (who, target) = wake(rest).or_else(|| plugin_wake(rest))?;
    builder.wake(at, kind, who, target);
    Some(())
}
