//! From events in any order to a `Timeline`.

use super::{Detail, Glimpse, Ran, Recorded};
use std::collections::HashMap;
use vruntime_base::{Cpu, Event, EventKind, Ns, TaskId, TaskRow};

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
    events: Vec<(Event, Detail)>,
    glimpses: Vec<Glimpse>,
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
        let detail = Detail { curr: at.pid, order: self.order(), ..Detail::default() };
        self.events.push((Event { time, cpu, kind, task, a, b, cause: None }, detail));
    }
    fn prio(&mut self, prio: u8, next_prio: u8) {
        if let Some((_, d)) = self.events.last_mut() {
            (d.prio, d.next_prio) = (prio, next_prio);
        }
    }
    /// The `common_flags` of the event just added.
    pub fn flags(&mut self, flags: Option<u8>) {
        if let Some((_, d)) = self.events.last_mut() {
            d.flags = flags;
        }
    }
    /// An event that is not for the timeline still shows its CPU.
    pub fn glimpse(&mut self, at: At, flags: Option<u8>, ran: Option<Ran>) {
        let order = self.order();
        self.glimpses.push(Glimpse { time: at.time, cpu: at.cpu, curr: at.pid, flags, ran, order });
    }
    fn order(&self) -> u32 {
        (self.events.len() + self.glimpses.len()) as u32
    }
    /// `prev` leaves; `state` as `b` of [`EventKind::Switch`].
    pub fn switch(&mut self, at: At, prev: Named, state: u32, next: Named) {
        let prev_id = self.named(prev, at.cpu);
        let next_id = self.named(next, at.cpu);
        self.push(at, EventKind::Switch, prev_id, next_id, state);
        self.prio(prev.prio, next.prio);
    }
    /// One of the three steps of a wakeup.
    pub fn wake(&mut self, at: At, kind: EventKind, who: Named, target: u32) {
        let task = self.named(who, at.cpu);
        let waker = if kind == EventKind::Waking { self.id(at.pid, at.cpu) } else { 0 };
        self.push(at, kind, task, target, waker);
        self.prio(who.prio, 0);
    }
    /// A task is moved.
    pub fn migrate(&mut self, at: At, who: Named, from: u32, to: u32) {
        let task = self.named(who, at.cpu);
        self.push(at, EventKind::Migrate, task, from, to);
        self.prio(who.prio, 0);
    }
    /// The events in order of time; simultaneous ones as they were found.
    pub fn finish(mut self) -> Recorded {
        self.events.sort_by_key(|e| e.0.time);
        self.glimpses.sort_by_key(|g| g.time);
        let mut r = Recorded { glimpses: self.glimpses, ..Recorded::default() };
        r.details.reserve_exact(self.events.len());
        for (event, detail) in self.events {
            r.timeline.push(event);
            r.details.push(detail);
        }
        r.timeline.name_tasks(self.tasks);
        r
    }
}
