//! The tracepoints of a timeline, and their fields as the kernel lays them out.
//!
//! Source: `/sys/kernel/tracing/events/sched/*/format` of Linux 6.12. A reader takes offsets from
//! the descriptions inside the file, so that the layout here need not be that of any release.
//!
//! Departures: where a timeline does not say when a task was accounted, `sched_stat_runtime` comes
//! at the switch away from it with the time since it was switched in; `perf sched latency` takes
//! run times from it. A preempted task has `prev_state` R (0) and not R+ (0x100), because perf
//! before 6.8 looks that number up in a string of nine letters.

use std::collections::HashSet;
use vruntime_base::{Cpu, Event, EventKind, TaskId, TaskRow, Timeline};

/// One field of an event. Numbers are little-endian; `char` is `comm`.
pub(super) struct Field {
    pub kind: &'static str,
    pub name: &'static str,
    pub size: usize,
    pub signed: bool,
}

impl Field {
    /// Where the field lies if the one before it ends at `end`: numbers are aligned to their size.
    pub(super) const fn offset(&self, end: usize) -> usize {
        if self.size > 8 { end } else { end.next_multiple_of(self.size) }
    }
}

const fn field(kind: &'static str, name: &'static str, size: usize) -> Field {
    Field { kind, name, size, signed: true }
}

/// One kind of event.
pub(super) struct Tracepoint {
    pub name: &'static str,
    pub id: u16,
    pub fields: &'static [Field],
    pub print: &'static str,
}

/// Bytes of `comm`.
pub(super) const COMM: usize = 16;
/// `common_type`, `common_flags`, `common_preempt_count`, `common_pid`.
pub(super) const COMMON_FIELDS: [Field; 4] = [
    Field { kind: "unsigned short", name: "common_type", size: 2, signed: false },
    Field { kind: "unsigned char", name: "common_flags", size: 1, signed: false },
    Field { kind: "unsigned char", name: "common_preempt_count", size: 1, signed: false },
    field("int", "common_pid", 4),
];

const WAKE_FIELDS: [Field; 4] = [
    field("char", "comm", COMM),
    field("pid_t", "pid", 4),
    field("int", "prio", 4),
    field("int", "target_cpu", 4),
];
const WAKE_PRINT: &str = "\"comm=%s pid=%d prio=%d target_cpu=%03d\", \
    REC->comm, REC->pid, REC->prio, REC->target_cpu";

pub(super) const SWITCH: usize = 0;
pub(super) const WAKING: usize = 1;
pub(super) const WAKEUP: usize = 2;
pub(super) const WAKEUP_NEW: usize = 3;
pub(super) const MIGRATE: usize = 4;
pub(super) const RUNTIME: usize = 5;

/// All kinds. Ids are the files' own.
pub(super) static TRACEPOINTS: [Tracepoint; 6] = [
    Tracepoint {
        name: "sched_switch",
        id: 301,
        fields: &[
            field("char", "prev_comm", COMM),
            field("pid_t", "prev_pid", 4),
            field("int", "prev_prio", 4),
            field("long", "prev_state", 8),
            field("char", "next_comm", COMM),
            field("pid_t", "next_pid", 4),
            field("int", "next_prio", 4),
        ],
        print: "\"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s ==> next_comm=%s \
        next_pid=%d next_prio=%d\", REC->prev_comm, REC->prev_pid, REC->prev_prio, \
        REC->prev_state ? __print_flags(REC->prev_state, \"|\", { 0x1, \"S\" }, { \
        0x10, \"X\" }) : \"R\", REC->next_comm, REC->next_pid, REC->next_prio",
    },
    Tracepoint { name: "sched_waking", id: 302, fields: &WAKE_FIELDS, print: WAKE_PRINT },
    Tracepoint { name: "sched_wakeup", id: 303, fields: &WAKE_FIELDS, print: WAKE_PRINT },
    Tracepoint { name: "sched_wakeup_new", id: 304, fields: &WAKE_FIELDS, print: WAKE_PRINT },
    Tracepoint {
        name: "sched_migrate_task",
        id: 305,
        fields: &[
            field("char", "comm", COMM),
            field("pid_t", "pid", 4),
            field("int", "prio", 4),
            field("int", "orig_cpu", 4),
            field("int", "dest_cpu", 4),
        ],
        print: "\"comm=%s pid=%d prio=%d orig_cpu=%d dest_cpu=%d\", REC->comm, REC->pid, \
        REC->prio, REC->orig_cpu, REC->dest_cpu",
    },
    Tracepoint {
        name: "sched_stat_runtime",
        id: 306,
        fields: &[
            field("char", "comm", COMM),
            field("pid_t", "pid", 4),
            Field { kind: "u64", name: "runtime", size: 8, signed: false },
        ],
        print: "\"comm=%s pid=%d runtime=%Lu [ns]\", REC->comm, REC->pid, (unsigned long \
        long)REC->runtime",
    },
];

/// The value of a field.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Comm(&'a str),
    Number(i64),
}

/// One event as it goes into a file.
pub(super) struct Hit<'a> {
    pub time: u64,
    pub cpu: Cpu,
    /// Index in [`TRACEPOINTS`].
    pub point: usize,
    /// `common_flags`.
    pub flags: u8,
    /// Who ran there.
    pub current: &'a TaskRow,
    values: [Value<'a>; 7],
}

impl Hit<'_> {
    pub(super) fn point(&self) -> &'static Tracepoint {
        &TRACEPOINTS[self.point]
    }
    /// The fields' values in their order.
    pub(super) fn values(&self) -> &[Value<'_>] {
        &self.values[..self.point().fields.len()]
    }
    /// Appends the event with its common fields.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.point().id.to_le_bytes());
        out.extend_from_slice(&[self.flags, 0]);
        out.extend_from_slice(&self.current.pid.to_le_bytes());
        for (field, value) in self.point().fields.iter().zip(self.values()) {
            out.resize(start + field.offset(out.len() - start), 0);
            match value {
                Value::Comm(name) => comm(name, out),
                Value::Number(n) => out.extend_from_slice(&n.to_le_bytes()[..field.size]),
            }
        }
    }
}

/// Appends a `comm`, cut as the kernel cuts it.
pub(super) fn comm(name: &str, out: &mut Vec<u8>) {
    let bytes = name.as_bytes();
    let mut field = [0; COMM];
    let n = bytes.len().min(COMM - 1);
    field[..n].copy_from_slice(&bytes[..n]);
    out.extend_from_slice(&field);
}

/// A task that the timeline does not name.
static UNKNOWN: TaskRow = TaskRow { comm: String::new(), pid: 0, tgid: 0 };

/// Walks through a timeline and knows who runs where.
pub(super) struct Walk<'a> {
    timeline: &'a Timeline,
    /// Who runs on each CPU, and since when, if that is known.
    current: Vec<(TaskId, Option<u64>)>,
    /// Tasks of which the timeline has said how long they ran since they were switched in.
    accounted: HashSet<TaskId>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(timeline: &'a Timeline, nr_cpus: usize) -> Walk<'a> {
        // Before its first switch a CPU runs whom that switch ends.
        let mut current: Vec<Option<TaskId>> = vec![None; nr_cpus];
        let mut left = nr_cpus;
        for e in timeline.iter().filter(|e| e.cpu.ix() < nr_cpus) {
            if left == 0 {
                break;
            }
            if e.kind == EventKind::Switch && current[e.cpu.ix()].is_none() {
                current[e.cpu.ix()] = Some(e.task);
                left -= 1;
            }
        }
        let current = current.into_iter().map(|t| (t.unwrap_or(TaskId::NONE), None)).collect();
        Walk { timeline, current, accounted: HashSet::new() }
    }

    fn task(&self, id: TaskId) -> &'a TaskRow {
        self.timeline.tasks().get(id.ix()).unwrap_or(&UNKNOWN)
    }

    /// Calls `each` with every event of the files, in order of time.
    pub(super) fn each<E>(
        mut self,
        mut each: impl FnMut(&Hit<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (timeline, nr_cpus) = (self.timeline, self.current.len());
        let mut seen = timeline.seen().iter().peekable();
        for e in timeline.iter().filter(|e| e.cpu.ix() < nr_cpus) {
            while let Some(s) = seen.next_if(|s| s.since <= e.time) {
                // Its own switch is missing.
                let now = self.current.get_mut(s.cpu.ix()).filter(|n| timeline.is_idle(n.0));
                if let Some(now) = now {
                    *now = (s.task, Some(s.since.0));
                }
            }
            let time = e.time.0;
            let now = &mut self.current[e.cpu.ix()];
            if e.kind == EventKind::Waking && timeline.tasks().get(e.b as usize).is_some() {
                // The waker is who runs, whatever the switches that are there say.
                let waker = TaskId(e.b);
                if now.0 != waker {
                    *now = (waker, None);
                }
            }
            let (current, since) = *now;
            if e.kind == EventKind::Runtime {
                self.accounted.insert(e.task);
            }
            let told = e.kind == EventKind::Switch && self.accounted.remove(&e.task);
            // What it ran is known only of whom a switch brought here.
            let ran = since.filter(|_| current == e.task).map(|since| time - since);
            let task = self.task(e.task);
            if let Some(ran) = ran.filter(|_| e.kind == EventKind::Switch && !told && task.pid != 0)
            {
                let values = [Value::Comm(&task.comm), pid(task), Value::Number(ran as i64)];
                each(&self.hit(&e, RUNTIME, current, &values))?;
            }
            each(&self.of(&e, current))?;
            if e.kind == EventKind::Switch {
                self.current[e.cpu.ix()] = (TaskId(e.a), Some(time));
            }
        }
        Ok(())
    }

    fn of(&self, e: &Event, current: TaskId) -> Hit<'a> {
        let task = self.task(e.task);
        let name = Value::Comm(&task.comm);
        let (a, b) = (Value::Number(e.a.into()), Value::Number(e.b.into()));
        let wake = |point| self.hit(e, point, current, &[name, pid(task), prio(e.prio), a]);
        match e.kind {
            EventKind::Switch => {
                let next = self.task(TaskId(e.a));
                let idle = task.pid == 0;
                let state = Value::Number(match e.b {
                    _ if idle => 0,
                    0 => 1,
                    2 => 0x10,
                    _ => 0,
                });
                let next_name = Value::Comm(&next.comm);
                let values =
                    [name, pid(task), prio(e.prio), state, next_name, pid(next), prio(e.next_prio)];
                self.hit(e, SWITCH, current, &values)
            }
            EventKind::Waking => wake(WAKING),
            EventKind::Wakeup => wake(WAKEUP),
            EventKind::WakeupNew => wake(WAKEUP_NEW),
            EventKind::Migrate => {
                self.hit(e, MIGRATE, current, &[name, pid(task), prio(e.prio), a, b])
            }
            EventKind::Runtime => {
                let ran = u64::from(e.b) << 32 | u64::from(e.a);
                self.hit(e, RUNTIME, current, &[name, pid(task), Value::Number(ran as i64)])
            }
        }
    }

    fn hit(&self, e: &Event, point: usize, current: TaskId, given: &[Value<'a>]) -> Hit<'a> {
        let mut values = [Value::Number(0); 7];
        values[..given.len()].copy_from_slice(given);
        let (time, cpu, flags, current) = (e.time.0, e.cpu, e.flags, self.task(current));
        Hit { time, cpu, point, flags, current, values }
    }
}

fn pid(task: &TaskRow) -> Value<'_> {
    Value::Number(task.pid.into())
}
fn prio(prio: i16) -> Value<'static> {
    Value::Number(prio.into())
}
