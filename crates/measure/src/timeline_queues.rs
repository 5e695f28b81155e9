//! Where tasks waited, and how far wakeups went.
//!
//! *What.* From the events of a [`Timeline`]: how many tasks waited on each CPU, over time; and
//! wakeups by any name for the way from the CPU where the task last ran to the one chosen.
//! *Source.* None; bookkeeping.
//! *Equations.* mean depth of a CPU = sum over its tasks of the time they waited there, divided by
//! the span of the timeline.
//! *Departures.* D1: a task that was runnable before its first event is not seen waiting.
//! *Example.* A runs on CPU 0 from 0 to 10; B is woken there at 4 and runs from 10 on: B waited
//! 6 of 10, the depth was 1 at most.

use crate::wakings::events;
use std::collections::BTreeMap;
use vruntime_base::{EventKind, TaskId, Timeline};

/// Tasks that waited on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Waiting now.
    depth: u64,
    since: u64,
    /// Time that tasks waited, summed over tasks.
    pub waited_ns: u64,
    /// Most at a time.
    pub depth_max: u64,
}

impl Queue {
    fn change(&mut self, time: u64, by: i64) {
        // Times of a damaged recording may be as far apart as numbers are.
        let waited = self.depth.saturating_mul(time - self.since);
        self.waited_ns = self.waited_ns.saturating_add(waited);
        self.since = time;
        self.depth = self.depth.saturating_add_signed(by);
        self.depth_max = self.depth_max.max(self.depth);
    }
}

/// A task's place.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Asleep, or not known.
    #[default]
    Away,
    Running,
    Waits(u32),
}

/// The queues of all CPUs on which somebody waited.
pub fn queues(timeline: &Timeline) -> BTreeMap<u32, Queue> {
    let mut queues: BTreeMap<u32, Queue> = BTreeMap::new();
    let mut places: Vec<Place> = vec![Place::Away; timeline.tasks().len()];
    let mut last = 0;
    let mut seen = timeline.seen().iter().peekable();
    for e in events(timeline) {
        let (time, cpu, task) = (e.time.0, u32::from(e.cpu.0), e.task.0);
        while let Some(s) = seen.next_if(|s| s.since <= e.time) {
            let place = places.get_mut(s.task.ix()).filter(|p| **p == Place::Waits(s.cpu.0.into()));
            if let Some(place) = place {
                *place = Place::Running;
                queues.entry(s.cpu.0.into()).or_default().change(s.since.0, -1);
            }
        }
        last = time;
        let was = places.get(task as usize).copied().unwrap_or_default();
        let mut go = |task: u32, to: Place| {
            if timeline.is_idle(TaskId(task)) {
                return;
            }
            if places.len() <= task as usize {
                places.resize(task as usize + 1, Place::Away);
            }
            let from = std::mem::replace(&mut places[task as usize], to);
            if from == to {
                return;
            }
            if let Place::Waits(cpu) = from {
                queues.entry(cpu).or_default().change(time, -1);
            }
            if let Place::Waits(cpu) = to {
                queues.entry(cpu).or_default().change(time, 1);
            }
        };
        match e.kind {
            EventKind::Switch => {
                go(task, if e.b == 1 { Place::Waits(cpu) } else { Place::Away });
                go(e.a, Place::Running);
            }
            // A task that is woken while it still runs does not wait.
            EventKind::Wakeup | EventKind::WakeupNew if was == Place::Away => {
                go(task, Place::Waits(e.a));
            }
            EventKind::Migrate if matches!(was, Place::Waits(_)) => go(task, Place::Waits(e.b)),
            _ => {}
        }
    }
    queues.values_mut().for_each(|q| q.change(last, 0));
    queues
}

/// Wakeups by `name` of the CPU where the task last ran and of the one chosen.
pub fn wakeups_by(
    timeline: &Timeline,
    name: impl Fn(u32, u32) -> &'static str,
) -> BTreeMap<&'static str, u64> {
    let mut prev: BTreeMap<u32, u32> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for e in events(timeline) {
        match e.kind {
            EventKind::Waking => drop(prev.insert(e.task.0, e.a)),
            EventKind::Wakeup => {
                if let Some(prev) = prev.remove(&e.task.0) {
                    *counts.entry(name(prev, e.a)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, Event, Ns, TaskRow};

    /// Tasks: 0 idle, then A, B, C.
    fn timeline(events: &[(u64, u16, EventKind, u32, u32, u32)]) -> Timeline {
        let mut t = Timeline::default();
        for &(time, cpu, kind, task, a, b) in events {
            let (time, cpu, task) = (Ns(time), Cpu(cpu), TaskId(task));
            t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
        }
        t.name_tasks((0..4).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
        t
    }

    use EventKind::{Migrate, Switch, Wakeup, Waking};

    #[test]
    fn depth_over_time() {
        let t = timeline(&[
            (0, 0, Switch, 0, 1, 1),
            (4, 0, Wakeup, 2, 0, 0),
            (6, 0, Wakeup, 3, 0, 0),
            (7, 1, Migrate, 3, 0, 1),
            (8, 1, Switch, 0, 3, 1),
            (10, 0, Switch, 1, 2, 1), // A waits now
            (12, 0, Switch, 2, 1, 0),
        ]);
        let queues = queues(&t);
        // B from 4 to 10, C from 6 to 7, A from 10 to 12.
        assert_eq!((queues[&0].waited_ns, queues[&0].depth_max), (6 + 1 + 2, 2));
        assert_eq!((queues[&1].waited_ns, queues[&1].depth_max), (1, 1));
    }

    #[test]
    fn wakeups_by_way() {
        let t =
            timeline(&[(0, 0, Waking, 1, 5, 0), (1, 0, Wakeup, 1, 6, 0), (2, 0, Wakeup, 2, 6, 0)]);
        let name = |a, b| if (a, b) == (5, 6) { "5 to 6" } else { "other" };
        assert_eq!(wakeups_by(&t, name), BTreeMap::from([("5 to 6", 1)]));
    }
}
