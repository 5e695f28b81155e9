//! From events in any order to a `Timeline`.

use std::collections::HashMap;
use vruntime_base::{Cpu, Event, EventKind, Ns, TaskId, TaskRow, Timeline};

/// A task as an event names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub pid: u32,
    pub comm: &'a [u8],
    pub prio: u8,
}

/// Where and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub time: u64,
    pub cpu: u16,
    /// The thread that ran there.
    pub pid: u32,
}

/// Collects events and the names of their tasks.
#[derive(Default)]
pub(super) struct Builder {
    events: Vec<Event>,
    tasks: Vec<TaskRow>,
    /// By thread id; idle tasks, which share thread id 0, by CPU.
    ids: HashMap<(u32, u16), u32>,
}

impl Builder {
    fn id(&mut self, pid: u32, cpu: u16) -> u32 {
        let tasks = &mut self.tasks;
        *self.ids.entry((pid, if pid == 0 { cpu } else { 0 })).or_insert_with(|| {
            tasks.push(TaskRow { pid, tgid: pid, prio: 120, ..TaskRow::default() });
            (tasks.len() - 1) as u32
        })
    }
    fn named(&mut self, who: Named, cpu: u16) -> u32 {
        let id = self.id(who.pid, cpu);
        let row = &mut self.tasks[id as usize];
        if row.comm.as_bytes() != who.comm {
            row.comm = String::from_utf8_lossy(who.comm).into_owned();
        }
        row.prio = who.prio;
        id
    }
    /// `pid` is a thread of process `tgid`.
    pub fn tgid(&mut self, pid: u32, cpu: u16, tgid: u32) {
        let id = self.id(pid, cpu);
        self.tasks[id as usize].tgid = tgid;
    }
    fn push(&mut self, at: At, kind: EventKind, task: u32, a: u32, b: u32) {
        let (time, cpu, task) = (Ns(at.time), Cpu(at.cpu), TaskId(task));
        self.events.push(Event { time, cpu, kind, task, a, b, cause: None });
    }
    /// `prev` leaves; `state` as `b` of [`EventKind::Switch`].
    pub fn switch(&mut self, at: At, prev: Named, state: u32, next: Named) {
        let prev = self.named(prev, at.cpu);
        let next = self.named(next, at.cpu);
        self.push(at, EventKind::Switch, prev, next, state);
    }
    /// One of the three steps of a wakeup.
    pub fn wake(&mut self, at: At, kind: EventKind, who: Named, target: u32) {
        let task = self.named(who, at.cpu);
        let waker = if kind == EventKind::Waking { self.id(at.pid, at.cpu) } else { 0 };
        self.push(at, kind, task, target, waker);
    }
    /// A task is moved.
    pub fn migrate(&mut self, at: At, who: Named, from: u32, to: u32) {
        let task = self.named(who, at.cpu);
        self.push(at, EventKind::Migrate, task, from, to);
    }
    /// The events in order of time; simultaneous ones as they were found.
    pub fn finish(mut self) -> Timeline {
        self.events.sort_by_key(|e| e.time);
        let mut timeline = Timeline::default();
        self.events.into_iter().for_each(|e| timeline.push(e));
        timeline.name_tasks(self.tasks);
        timeline
    }
}
