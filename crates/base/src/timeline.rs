//! Events by columns: the one form that a model run and a recorded trace share.

use crate::{Cause, Cpu, Ns, TaskId};

/// What happened. The meaning of `a` and `b` in [`Event`] depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EventKind {
    /// `task` leaves the CPU, `a` = next task, `b` = 0 if `task` sleeps, 1 if it stayed
    /// runnable, 2 if it has exited.
    Switch,
    /// `task` is being woken by the CPU; `a` = CPU where it last ran, `b` = the waker.
    Waking,
    /// `task` became runnable; `a` = its CPU.
    Wakeup,
    /// `task` is new and became runnable; `a` = its CPU.
    WakeupNew,
    /// `task` is moved; `a` = from CPU, `b` = to CPU.
    Migrate,
    /// `task`, which runs somewhere, was accounted for `a` + 2^32 · `b` ns
    /// (`sched_stat_runtime`).
    Runtime,
}

/// One row of a [`Timeline`].
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub time: Ns,
    /// On which CPU.
    pub cpu: Cpu,
    /// What.
    pub kind: EventKind,
    /// To whom.
    pub task: TaskId,
    /// See [`EventKind`].
    pub a: u32,
    /// See [`EventKind`].
    pub b: u32,
    /// Why, where known.
    pub cause: Option<&'static Cause>,
    /// `common_flags`: see [`flag`]; 0 where they are not known.
    pub flags: u8,
    /// The kernel's priority of `task` at this moment: −1 deadline, 0 … 99 real time (99 less the
    /// real-time priority), 100 … 139 120 plus nice. [`EventKind::Runtime`] does not tell it.
    pub prio: i16,
    /// [`EventKind::Switch`]: the same of the next task.
    pub next_prio: i16,
}

impl Event {
    /// An event of an ordinary task that nothing more is known of.
    pub const fn new(time: Ns, cpu: Cpu, kind: EventKind, task: TaskId) -> Event {
        let (prio, next_prio) = (Event::NICE_0, Event::NICE_0);
        Event { time, cpu, kind, task, a: 0, b: 0, cause: None, flags: 0, prio, next_prio }
    }
    /// Priority of nice 0, as idle tasks have it, too.
    pub const NICE_0: i16 = 120;
}

/// Bits of `common_flags` (`enum trace_flag_type`), the same in every release.
pub mod flag {
    /// Interrupts are off.
    pub const IRQS_OFF: u8 = 0x01;
    /// TIF_NEED_RESCHED_LAZY of the running thread is set (6.13 on).
    pub const LAZY: u8 = 0x02;
    /// TIF_NEED_RESCHED of the running thread is set.
    pub const NEED_RESCHED: u8 = 0x04;
    /// In an interrupt.
    pub const HARDIRQ: u8 = 0x08;
    /// In a soft interrupt.
    pub const SOFTIRQ: u8 = 0x10;
}

/// A task that is seen to run on a CPU where the switches recorded so far leave the idle task: its
/// own switch may be missing. Some kernels record none from the idle task; buffers run over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenRunning {
    /// Since when, at the latest.
    pub since: Ns,
    /// Where.
    pub cpu: Cpu,
    /// Who.
    pub task: TaskId,
}

/// What a task is called. A model run and a recording both number tasks from 0; this says who
/// that is outside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TaskRow {
    /// `comm`.
    pub comm: String,
    /// Thread id; 0 for idle tasks.
    pub pid: u32,
    /// Process id.
    pub tgid: u32,
}

/// Events in order of time, held by columns.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    time: Vec<u64>,
    cpu: Vec<u16>,
    kind: Vec<EventKind>,
    task: Vec<u32>,
    a: Vec<u32>,
    b: Vec<u32>,
    cause: Vec<Option<&'static Cause>>,
    flags: Vec<u8>,
    prios: Vec<[i16; 2]>,
    tasks: Vec<TaskRow>,
    seen: Vec<SeenRunning>,
}

impl Timeline {
    /// Appends an event. Times must not decrease.
    pub fn push(&mut self, e: Event) {
        assert!(self.time.last().is_none_or(|&t| t <= e.time.0), "events out of order");
        self.time.push(e.time.0);
        self.cpu.push(e.cpu.0);
        self.kind.push(e.kind);
        self.task.push(e.task.0);
        self.a.push(e.a);
        self.b.push(e.b);
        self.cause.push(e.cause);
        self.flags.push(e.flags);
        self.prios.push([e.prio, e.next_prio]);
    }
    /// Names the tasks, by [`TaskId`].
    pub fn name_tasks(&mut self, tasks: Vec<TaskRow>) {
        self.tasks = tasks;
    }
    /// Tasks whose switches may be missing, in any order.
    pub fn note_seen(&mut self, mut seen: Vec<SeenRunning>) {
        seen.sort_by_key(|s| s.since);
        self.seen = seen;
    }
    /// Tasks whose switches may be missing, by time.
    pub fn seen(&self) -> &[SeenRunning] {
        &self.seen
    }
    /// Who the tasks are, by [`TaskId`]; empty if nobody said.
    pub fn tasks(&self) -> &[TaskRow] {
        &self.tasks
    }
    /// True if `task` is the idle task of some CPU.
    pub fn is_idle(&self, task: TaskId) -> bool {
        self.tasks.get(task.ix()).is_some_and(|row| row.pid == 0)
    }
    /// Time of the first event.
    pub fn first_time(&self) -> Option<Ns> {
        self.time.first().map(|&t| Ns(t))
    }
    /// From the first event to the last.
    pub fn span(&self) -> Ns {
        match (self.time.first(), self.time.last()) {
            (Some(first), Some(last)) => Ns(last - first),
            _ => Ns::ZERO,
        }
    }
    /// Time of the last event.
    pub fn last_time(&self) -> Option<Ns> {
        self.time.last().map(|&t| Ns(t))
    }
    /// Number of events.
    pub fn len(&self) -> usize {
        self.time.len()
    }
    /// True if there is no event.
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }
    /// Row `i`.
    pub fn get(&self, i: usize) -> Event {
        Event {
            time: Ns(self.time[i]),
            cpu: Cpu(self.cpu[i]),
            kind: self.kind[i],
            task: TaskId(self.task[i]),
            a: self.a[i],
            b: self.b[i],
            cause: self.cause[i],
            flags: self.flags[i],
            prio: self.prios[i][0],
            next_prio: self.prios[i][1],
        }
    }
    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }
}
