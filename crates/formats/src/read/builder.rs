//! From events in any order to a `Timeline`.

use super::{Detail, Glimpse, Glimpses, Ran, Recorded};
use std::collections::HashMap;
use vruntime_base::{Cpu, Event, EventKind, Ns, SeenRunning, TaskId, TaskRow, Timeline};

/// A task as an event names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub pid: u32,
    pub comm: &'a [u8],
    /// See [`Event::prio`].
    pub prio: i16,
}

impl Named<'_> {
    /// A priority as a file holds it; a damaged file may hold anything.
    pub fn prio_from(raw: impl Into<i64>) -> i16 {
        raw.into().clamp(-1, 139) as i16
    }
}

/// Where and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub time: u64,
    pub cpu: u16,
    /// The thread that ran there, where it is known.
    pub pid: Option<u32>,
    /// `common_flags`, where they are known.
    pub flags: Option<u8>,
}

/// Collects events and the names of their tasks.
///
/// A recorder writes the events of each CPU in order, one CPU after another, and marks the ends of
/// its rounds: an event that comes after a mark is not older than any before the mark before
/// ([`Builder::round`]). So only two rounds are held in the order of the file.
#[derive(Default)]
pub(super) struct Builder {
    /// In order of time, and complete up to its end.
    timeline: Timeline,
    /// Not yet in order.
    pending: Vec<Event>,
    /// Older than the end of `timeline`.
    late: Vec<Event>,
    /// Latest time, and what it was at the last mark.
    latest: u64,
    latest_of_round: u64,
    /// Simultaneous events stay as they were found.
    as_found: bool,
    /// Accounting becomes part of the timeline.
    runtimes: bool,
    /// Events that did not.
    others: u64,
    /// Events with their details, and the others, if they are asked for.
    full: Option<Full>,
    tasks: Vec<Task>,
    threads: Threads,
    /// Tasks of idle CPUs, which share thread id 0, by CPU.
    idle: HashMap<u16, u32>,
    /// Since when each CPU is in its idle task, by its latest switch.
    idle_since: Vec<Option<u64>>,
    seen: Vec<SeenRunning>,
}

#[derive(Default)]
struct Full {
    events: Vec<(Event, Detail)>,
    glimpses: Vec<Glimpse>,
}

impl Full {
    fn order(&self) -> u32 {
        (self.events.len() + self.glimpses.len()) as u32
    }
}

struct Task {
    row: TaskRow,
    comm: Vec<u8>,
    /// Time of the event that told the name: the latest counts, whatever is read last.
    told: u64,
}

impl Builder {
    pub fn new(glimpses: Glimpses) -> Builder {
        let full = (glimpses == Glimpses::Kept).then(Full::default);
        Builder { full, runtimes: glimpses == Glimpses::Runtimes, ..Builder::default() }
    }
    /// Simultaneous events stay as they were found: the file has all CPUs in one order.
    pub fn in_found_order(self) -> Builder {
        Builder { as_found: true, ..self }
    }
    fn id(&mut self, pid: u32, cpu: u16) -> u32 {
        let next = self.tasks.len() as u32;
        let id = match pid {
            0 => *self.idle.entry(cpu).or_insert(next),
            _ => self.threads.get_or_insert(pid, next),
        };
        if id == next {
            let row = TaskRow { pid, tgid: pid, ..TaskRow::default() };
            self.tasks.push(Task { row, comm: vec![], told: 0 });
        }
        id
    }
    fn named(&mut self, who: Named, at: At) -> u32 {
        let id = self.id(who.pid, at.cpu);
        let task = &mut self.tasks[id as usize];
        if at.time >= task.told {
            task.told = at.time;
            if task.comm != who.comm {
                task.comm.clear();
                task.comm.extend_from_slice(who.comm);
            }
        }
        id
    }
    /// `pid` is a thread of process `tgid`.
    pub fn tgid(&mut self, pid: u32, tgid: u32) {
        if pid != 0 {
            let id = self.id(pid, 0);
            self.tasks[id as usize].row.tgid = tgid;
        }
    }
    /// `pid` is called `comm`, unless an event says another name.
    pub fn called(&mut self, pid: u32, comm: &[u8]) {
        if pid != 0 {
            let id = self.id(pid, 0);
            let task = &mut self.tasks[id as usize];
            if task.comm.is_empty() {
                task.comm.extend_from_slice(comm);
            }
        }
    }
    fn push(&mut self, at: At, kind: EventKind, task: u32, a: u32, b: u32, prios: [i16; 2]) {
        let flags = at.flags.unwrap_or(0);
        let [prio, next_prio] = prios;
        let event = Event::new(Ns(at.time), Cpu(at.cpu), kind, TaskId(task));
        let event = Event { a, b, flags, prio, next_prio, ..event };
        match &mut self.full {
            None => {
                self.latest = self.latest.max(at.time);
                self.pending.push(event);
            }
            Some(full) => {
                let (curr, order) = (at.pid.unwrap_or(0), full.order());
                let detail = Detail { curr, flags: at.flags, order };
                full.events.push((event, detail));
            }
        }
    }
    /// An event that is not for the timeline still shows its CPU.
    pub fn glimpse(&mut self, at: At, ran: Option<Ran>) {
        if ran.is_some() {
            self.runs(at, ran);
        }
        if let (true, Some(ran)) = (self.runtimes, ran) {
            let task = self.id(ran.pid, at.cpu);
            let (lo, hi) = (ran.runtime as u32, (ran.runtime >> 32) as u32);
            self.push(at, EventKind::Runtime, task, lo, hi, [Event::NICE_0; 2]);
        } else {
            self.others += 1;
        }
        if let Some(full) = &mut self.full {
            let (curr, order) = (at.pid.unwrap_or(0), full.order());
            let At { time, cpu, flags, .. } = at;
            full.glimpses.push(Glimpse { time, cpu, curr, flags, ran, order });
        }
    }
    /// The thread that runs there did something, or was accounted. If its CPU is in its idle task
    /// by all switches so far, its own may be missing.
    fn runs(&mut self, at: At, ran: Option<Ran>) {
        let Some(pid) = at.pid.filter(|&pid| pid != 0 && pid <= Threads::MAX) else { return };
        let Some(idle) = self.idle_since.get_mut(usize::from(at.cpu)) else { return };
        let Some(since) = idle.take_if(|since| *since <= at.time) else { return };
        let runtime = ran.filter(|r| r.pid == pid).map_or(0, |r| r.runtime);
        let since = Ns(at.time.saturating_sub(runtime).max(since));
        let task = TaskId(self.id(pid, at.cpu));
        self.seen.push(SeenRunning { since, cpu: Cpu(at.cpu), task });
    }
    /// `prev` leaves; `state` as `b` of [`EventKind::Switch`].
    pub fn switch(&mut self, at: At, prev: Named, state: u32, next: Named) {
        let prev_id = self.named(prev, at);
        let next_id = self.named(next, at);
        let cpu = usize::from(at.cpu);
        if self.idle_since.len() <= cpu {
            self.idle_since.resize(cpu + 1, None);
        }
        self.idle_since[cpu] = (next.pid == 0).then_some(at.time);
        self.push(at, EventKind::Switch, prev_id, next_id, state, [prev.prio, next.prio]);
    }
    /// One of the three steps of a wakeup.
    pub fn wake(&mut self, at: At, kind: EventKind, who: Named, target: u32) {
        self.runs(at, None);
        let task = self.named(who, at);
        let waker = match (kind, at.pid) {
            (EventKind::Waking, Some(pid)) => self.id(pid, at.cpu),
            _ => TaskId::NONE.0,
        };
        self.push(at, kind, task, target, waker, [who.prio, Event::NICE_0]);
    }
    /// A task is moved.
    pub fn migrate(&mut self, at: At, who: Named, from: u32, to: u32) {
        self.runs(at, None);
        let task = self.named(who, at);
        self.push(at, EventKind::Migrate, task, from, to, [who.prio, Event::NICE_0]);
    }
    /// True if there is no event.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.timeline.is_empty()
            && self.full.as_ref().is_none_or(|f| f.events.is_empty())
    }
    /// The recorder's mark: what comes now is not older than what was there at the last mark.
    pub fn round(&mut self) {
        let until = std::mem::replace(&mut self.latest_of_round, self.latest);
        self.settle(until);
    }
    /// What comes now is not older than what is there.
    pub fn settle_all(&mut self) {
        self.settle(self.latest);
    }
    fn settle(&mut self, until: u64) {
        // Stable: simultaneous events stay as they were found.
        self.pending.sort_by_key(|e| e.time);
        let n = self.pending.partition_point(|e| e.time.0 <= until);
        if !self.as_found {
            simultaneous(&mut self.pending[..n], |e| e);
        }
        let end = self.timeline.last_time().map_or(0, |t| t.0);
        for e in self.pending.drain(..n) {
            match e.time.0 < end {
                true => self.late.push(e),
                false => self.timeline.push(e),
            }
        }
    }
    /// Everything in order of time; for simultaneous events see [`simultaneous`].
    pub fn finish(mut self) -> Recorded {
        let mut r = Recorded { others: self.others, ..Recorded::default() };
        if let Some(mut full) = self.full.take() {
            full.events.sort_by_key(|e| e.0.time);
            if !self.as_found {
                simultaneous(&mut full.events, |e| &e.0);
            }
            full.glimpses.sort_by_key(|g| g.time);
            r.details.reserve_exact(full.events.len());
            for (event, detail) in full.events {
                r.timeline.push(event);
                r.details.push(detail);
            }
            r.glimpses = full.glimpses;
        } else {
            self.settle(u64::MAX);
            r.timeline = self.timeline;
            if !self.late.is_empty() {
                self.late.sort_by_key(|e| e.time);
                r.timeline = merged(&r.timeline, &self.late);
            }
        }
        let rows = self
            .tasks
            .into_iter()
            .map(|t| TaskRow { comm: String::from_utf8_lossy(&t.comm).into_owned(), ..t.row });
        r.timeline.name_tasks(rows.collect());
        r.timeline.note_seen(self.seen);
        r
    }
}

/// Simultaneous events of different CPUs, whose order a file by CPUs does not hold, come in the
/// order of a wakeup, whatever the file; those of one CPU keep their order.
fn simultaneous<T>(events: &mut [T], of: fn(&T) -> &Event) {
    // More at once are a clock that stands still.
    const MOST: usize = 64;
    for group in events.chunk_by_mut(|a, b| of(a).time == of(b).time) {
        if group.len() <= MOST && group.iter().any(|e| of(e).cpu != of(&group[0]).cpu) {
            in_order_of_a_wakeup(group, of);
        }
    }
}

fn in_order_of_a_wakeup<T>(group: &mut [T], of: fn(&T) -> &Event) {
    let rank = |e: &T| match of(e).kind {
        EventKind::Waking => 0,
        EventKind::Migrate => 1,
        EventKind::Wakeup | EventKind::WakeupNew => 2,
        EventKind::Runtime => 3,
        EventKind::Switch => 4,
    };
    for done in 0..group.len() {
        let rest = &group[done..];
        let cpu = |i: usize| of(&rest[i]).cpu;
        let is_first = |i: &usize| (0..*i).all(|before| cpu(before) != cpu(*i));
        let key = |i: &usize| (rank(&rest[*i]), cpu(*i).0);
        if let Some(next) = (0..rest.len()).filter(is_first).min_by_key(key) {
            group[done..=done + next].rotate_right(1);
        }
    }
}

/// Both in one order; of simultaneous ones those of `most` come first.
fn merged(most: &Timeline, late: &[Event]) -> Timeline {
    let mut out = Timeline::default();
    let mut late = late.iter().copied().peekable();
    for e in most.iter() {
        while let Some(l) = late.next_if(|l| l.time < e.time) {
            out.push(l);
        }
        out.push(e);
    }
    late.for_each(|l| out.push(l));
    out
}

/// Tasks by thread id: a table in pages up to the kernel's largest thread id, a map beyond it.
#[derive(Default)]
struct Threads {
    pages: Vec<Option<Box<[u32; Threads::PAGE]>>>,
    beyond: HashMap<u32, u32>,
}

impl Threads {
    const PAGE: usize = 256;
    /// `PID_MAX_LIMIT` of 64-bit kernels.
    const MAX: u32 = 4 << 20;

    fn get_or_insert(&mut self, pid: u32, new: u32) -> u32 {
        if pid > Threads::MAX {
            return *self.beyond.entry(pid).or_insert(new);
        }
        let (page, place) = (pid as usize / Threads::PAGE, pid as usize % Threads::PAGE);
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let page = self.pages[page].get_or_insert_with(|| Box::new([u32::MAX; Threads::PAGE]));
        if page[place] == u32::MAX {
            page[place] = new;
        }
        page[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On CPU 0 a switch and then a waking; at the same time on CPU 1 a wakeup.
    #[test]
    fn simultaneous_events_of_different_cpus_come_in_order_of_a_wakeup() {
        let who = |pid| Named { pid, comm: b"x", prio: 120 };
        let at = |cpu| At { time: 5, cpu, pid: Some(1), flags: None };
        let kinds = |mut b: Builder| {
            b.switch(at(0), who(1), 1, who(2));
            b.wake(at(0), EventKind::Waking, who(3), 1);
            b.wake(at(1), EventKind::Wakeup, who(3), 1);
            b.finish().timeline.iter().map(|e| e.kind).collect::<Vec<_>>()
        };
        let (switch, waking, wakeup) = (EventKind::Switch, EventKind::Waking, EventKind::Wakeup);
        assert_eq!(kinds(Builder::default()), [wakeup, switch, waking]);
        assert_eq!(kinds(Builder::default().in_found_order()), [switch, waking, wakeup]);
        let judged = || Builder::new(Glimpses::Kept);
        assert_eq!(kinds(judged()), [wakeup, switch, waking]);
        assert_eq!(kinds(judged().in_found_order()), [switch, waking, wakeup]);
    }

    /// CPU 0 goes idle. 3 is accounted there for 4 ns: it runs since 6, its switch is missing;
    /// what it does then tells no more. On CPU 1, which has not switched, nothing is missing.
    #[test]
    fn who_acts_on_an_idle_cpu_is_seen() {
        let at = |time, cpu, pid| At { time, cpu, pid: Some(pid), flags: None };
        let who = |pid| Named { pid, comm: b"x", prio: 120 };
        let ran = |pid, runtime| Some(Ran { pid, runtime, vruntime: None });
        let mut b = Builder::default();
        b.switch(at(5, 0, 2), who(2), 1, who(0));
        b.wake(at(5, 0, 0), EventKind::Waking, who(3), 0);
        b.glimpse(at(8, 1, 4), ran(4, 3));
        b.glimpse(at(10, 0, 3), ran(3, 4));
        b.wake(at(11, 0, 3), EventKind::Waking, who(2), 0);
        let timeline = b.finish().timeline;
        let seen: Vec<_> = timeline.seen().iter().map(|s| (s.since, s.cpu)).collect();
        assert_eq!(seen, [(Ns(6), Cpu(0))]);
        assert_eq!(timeline.tasks()[timeline.seen()[0].task.ix()].pid, 3);
    }

    /// Buffers are read CPU by CPU: the name told last in time counts, not the one read last.
    #[test]
    fn a_task_bears_the_name_that_it_had_last() {
        let at = |time, cpu| At { time, cpu, pid: Some(1), flags: None };
        let named = |comm| Named { pid: 3, comm, prio: 120 };
        let mut b = Builder::default();
        b.wake(at(8, 1), EventKind::Wakeup, named(b"kworker/0:1H"), 1);
        b.wake(at(5, 0), EventKind::Wakeup, named(b"kthreadd"), 0);
        assert_eq!(b.finish().timeline.tasks()[0].comm, "kworker/0:1H");
    }

    #[test]
    fn rounds_put_events_in_order_and_late_ones_are_not_lost() {
        let mut b = Builder::default();
        let add = |b: &mut Builder, times: &[u64]| {
            for &time in times {
                let who = Named { pid: 5_000_000, comm: b"x", prio: 120 };
                b.migrate(At { time, cpu: 0, pid: None, flags: None }, who, 0, 1);
            }
            b.round();
        };
        for times in [&[10, 30, 5, 20][..], &[40, 35, 15], &[50, 45, 12], &[60]] {
            add(&mut b, times);
        }
        assert!(b.timeline.len() >= 4, "{}", b.timeline.len());
        let times: Vec<u64> = b.finish().timeline.iter().map(|e| e.time.0).collect();
        assert_eq!(times, [5, 10, 12, 15, 20, 30, 35, 40, 45, 50, 60]);
    }
}
