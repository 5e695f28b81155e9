//! Raw tracepoint data as events of a timeline, by the descriptions that the file itself holds.

use super::Ran;
use super::builder::{At, Builder, Named};
use super::bytes::Bytes;
use super::event_format::EventFormat;
use vruntime_base::EventKind;

/// The tracepoints that a file describes, by what `common_type` holds.
#[derive(Default)]
pub(super) struct Tracepoints {
    /// Place in `points` and 1, or 0.
    index: Vec<u32>,
    points: Vec<Tracepoint>,
}

/// One of them.
struct Tracepoint {
    /// For the kinds that a timeline has.
    kind: Option<EventKind>,
    /// Where its fields are; `None` if one that is needed has no description.
    plan: Option<Plan>,
    exited: u64,
    asleep: u64,
    common_pid: Option<Number>,
    common_flags: Option<Number>,
    /// Of `sched_stat_runtime`: thread, run time, virtual run time.
    ran: Option<(Number, Number, Option<Number>)>,
}

#[derive(Clone, Copy)]
struct Number {
    offset: usize,
    size: usize,
}

#[derive(Clone, Copy)]
struct Text {
    offset: usize,
    size: usize,
    place: Place,
}

/// Where a string is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    /// The field holds offset and length; the offset counts from the record.
    Located,
    /// … from the end of the field.
    Relative,
}

/// A task in a record.
#[derive(Clone, Copy)]
struct Who {
    comm: Text,
    pid: Number,
    prio: Number,
}

/// Fields of a record in the order of use.
#[derive(Clone, Copy)]
enum Plan {
    Switch { prev: Who, state: Number, next: Who },
    Migrate { who: Who, from: Number, to: Number },
    Wake { who: Who, target: Number },
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is an event of the timeline.
    Event,
    /// A timeline has no such events.
    Other,
    /// The file does not describe it.
    Undescribed,
    /// The record is too short, or a field that is needed has no description.
    Damaged,
}

impl Tracepoints {
    /// Adds the description of an event: the text of a `format` file.
    pub fn describe(&mut self, text: &[u8]) {
        let Some(format) = EventFormat::parse(&String::from_utf8_lossy(text)) else { return };
        let Ok(id) = u16::try_from(format.id) else { return };
        let id = usize::from(id);
        if self.index.len() <= id {
            self.index.resize(id + 1, 0);
        }
        self.points.push(Tracepoint::of(&format));
        self.index[id] = self.points.len() as u32;
    }
    /// Adds the event that `raw` is. The thread that ran is taken from the record if `at` does not
    /// say.
    pub fn take(&self, builder: &mut Builder, at: At, raw: Bytes) -> Taken {
        let Some(id) = raw.u16(0) else { return Taken::Damaged };
        let point = match self.index.get(usize::from(id)) {
            None | Some(0) => return Taken::Undescribed,
            Some(place) => &self.points[*place as usize - 1],
        };
        let at = point.place(at, raw);
        let Some(kind) = point.kind else {
            builder.glimpse(at, point.ran(raw));
            return Taken::Other;
        };
        match point.add(kind, builder, at, raw) {
            Some(()) => Taken::Event,
            None => Taken::Damaged,
        }
    }
}

impl Tracepoint {
    fn of(format: &EventFormat) -> Tracepoint {
        let number =
            |name: &str| format.field(name).map(|f| Number { offset: f.offset, size: f.size });
        let text = |name: &str| {
            let place = |f: &super::event_format::Field| match (f.data_loc, f.rel_loc) {
                (true, _) => Place::Located,
                (_, true) => Place::Relative,
                _ => Place::Here,
            };
            format.field(name).map(|f| Text { offset: f.offset, size: f.size, place: place(f) })
        };
        let who = |prefix: &str| {
            Some(Who {
                comm: text(&format!("{prefix}comm"))?,
                pid: number(&format!("{prefix}pid"))?,
                prio: number(&format!("{prefix}prio"))?,
            })
        };
        let kind = match format.name.as_str() {
            "sched_switch" => Some(EventKind::Switch),
            "sched_waking" => Some(EventKind::Waking),
            "sched_wakeup" => Some(EventKind::Wakeup),
            "sched_wakeup_new" => Some(EventKind::WakeupNew),
            "sched_migrate_task" => Some(EventKind::Migrate),
            _ => None,
        };
        let plan = || {
            Some(match kind? {
                EventKind::Switch => Plan::Switch {
                    prev: who("prev_")?,
                    state: number("prev_state")?,
                    next: who("next_")?,
                },
                EventKind::Migrate => Plan::Migrate {
                    who: who("")?,
                    from: number("orig_cpu")?,
                    to: number("dest_cpu")?,
                },
                _ => Plan::Wake { who: who("")?, target: number("target_cpu")? },
            })
        };
        let ran = || Some((number("pid")?, number("runtime")?, number("vruntime")));
        Tracepoint {
            kind,
            plan: plan(),
            exited: format.flag_bits("XZ"),
            asleep: format.all_flag_bits(),
            common_pid: number("common_pid"),
            common_flags: number("common_flags"),
            ran: (format.name == "sched_stat_runtime").then(ran).flatten(),
        }
    }
    /// `at` with what the record itself says of the moment.
    fn place(&self, at: At, raw: Bytes) -> At {
        let number = |n: Option<Number>| n.and_then(|n| raw.uint(n.offset, n.size));
        let pid = at.pid.or_else(|| number(self.common_pid).map(|n| n as u32));
        At { pid, flags: number(self.common_flags).map(|n| n as u8), ..at }
    }
    /// What a `sched_stat_runtime` tells.
    fn ran(&self, raw: Bytes) -> Option<Ran> {
        let number = |n: Number| raw.uint(n.offset, n.size);
        let (pid, runtime, vruntime) = self.ran?;
        let pid = number(pid)? as u32;
        Some(Ran { pid, runtime: number(runtime)?, vruntime: vruntime.and_then(number) })
    }
    fn add(&self, kind: EventKind, builder: &mut Builder, at: At, raw: Bytes) -> Option<()> {
        let number = |n: Number| raw.uint(n.offset, n.size);
        let cpu = |n: Number| u16::try_from(number(n)?).ok().map(u32::from);
        let named = |who: Who| {
            Some(Named {
                pid: number(who.pid)? as u32,
                comm: text(raw, who.comm)?,
                prio: Named::prio_from(number(who.prio)? as i32),
            })
        };
        match self.plan? {
            Plan::Switch { prev, state, next } => {
                let state = number(state)?;
                let b = match () {
                    () if state & self.exited != 0 => 2,
                    () if state & self.asleep != 0 => 0,
                    () => 1,
                };
                builder.switch(at, named(prev)?, b, named(next)?);
            }
            Plan::Migrate { who, from, to } => {
                builder.migrate(at, named(who)?, cpu(from)?, cpu(to)?);
            }
            Plan::Wake { who, target } => builder.wake(at, kind, named(who)?, cpu(target)?),
        }
        Some(())
    }
}

fn text<'a>(raw: Bytes<'a>, t: Text) -> Option<&'a [u8]> {
    if t.place == Place::Here {
        return raw.string(t.offset, t.size);
    }
    let location = raw.u32(t.offset)?;
    let base = if t.place == Place::Relative { t.offset + t.size } else { 0 };
    raw.string(base.checked_add((location & 0xffff) as usize)?, (location >> 16) as usize)
}
