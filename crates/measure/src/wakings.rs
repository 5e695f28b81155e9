//! Traces without `sched_wakeup`.
//!
//! *What.* `perf sched record` of newer perf records `sched_waking` instead of `sched_wakeup`. In
//! such a trace a waking stands for both: the task is runnable from then on, as `perf sched
//! timehist` has it, on the CPU that it was moved to, else on its previous one.
//! *Source.* `try_to_wake_up` of 6.1 to 6.18: `trace_sched_waking`, `select_task_rq`,
//! `set_task_cpu` with `trace_sched_migrate_task`, `trace_sched_wakeup`, on one CPU with interrupts
//! off.
//! *Equations.* None.
//! *Departures.* D1: a waking of a task that still runs or waits ends with no choice of a CPU; it
//! is taken to have stayed.
//! *Example.* CPU 1: waking of B (previous CPU 2), migration of B from 2 to 3. B is runnable on CPU
//! 3 from the migration on.

use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::{Event, EventKind, Timeline};

/// The events of `timeline`, with a wakeup for each waking if it has none.
pub fn events(timeline: &Timeline) -> impl Iterator<Item = Event> {
    let placed = Placed::of(timeline);
    timeline.iter().enumerate().flat_map(move |(i, e)| {
        let wakeup = placed.as_ref().and_then(|p| p.wakeup(i, &e));
        std::iter::once(e).chain(wakeup)
    })
}

/// Where the wakings of a trace without wakeups ended.
#[derive(Debug)]
pub struct Placed {
    moves: BTreeSet<usize>,
}

impl Placed {
    /// Those of `timeline`; `None` if wakeups were recorded.
    pub fn of(timeline: &Timeline) -> Option<Placed> {
        placements(timeline).map(|moves| Placed { moves })
    }
    /// The wakeup that event `e`, the one at position `i`, stands for besides.
    pub fn wakeup(&self, i: usize, e: &Event) -> Option<Event> {
        let cpu = match e.kind {
            EventKind::Waking if !self.moves.contains(&i) => e.a,
            EventKind::Migrate if self.moves.contains(&i) => e.b,
            _ => return None,
        };
        Some(Event { kind: EventKind::Wakeup, a: cpu, b: 0, cause: None, ..*e })
    }
}

/// The wakings that ended with a move, and these moves, by position; `None` if wakeups were
/// recorded.
fn placements(timeline: &Timeline) -> Option<BTreeSet<usize>> {
    let mut moves = BTreeSet::new();
    let mut last: BTreeMap<u16, (usize, Event)> = BTreeMap::new();
    for (i, e) in timeline.iter().enumerate() {
        match e.kind {
            EventKind::Wakeup => return None,
            EventKind::Runtime => continue,
            EventKind::Migrate => {
                let waking = last
                    .get(&e.cpu.0)
                    .filter(|(_, w)| w.kind == EventKind::Waking && w.task == e.task && w.a == e.a);
                moves.extend(waking.iter().flat_map(|(w, _)| [*w, i]));
            }
            _ => {}
        }
        last.insert(e.cpu.0, (i, e));
    }
    Some(moves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventKind::{Migrate, Switch, Wakeup, Waking};
    use vruntime_base::{Cpu, Ns, TaskId};

    fn timeline(rows: &[(u64, u16, EventKind, u32, u32, u32)]) -> Timeline {
        let mut t = Timeline::default();
        for &(time, cpu, kind, task, a, b) in rows {
            let (time, cpu, task) = (Ns(time), Cpu(cpu), TaskId(task));
            t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
        }
        t
    }

    fn woken(rows: &[(u64, u16, EventKind, u32, u32, u32)]) -> Vec<(u64, u32, u32)> {
        let t = timeline(rows);
        let wakeups = events(&t).filter(|e| e.kind == Wakeup);
        wakeups.map(|e| (e.time.0, e.task.0, e.a)).collect()
    }

    /// Task 7 stays on CPU 2; task 8 is moved from there to CPU 3, and once more by CPU 3 itself.
    #[test]
    fn a_waking_stands_for_the_wakeup_that_was_not_recorded() {
        let rows = [
            (10, 1, Waking, 7, 2, 0),
            (20, 1, Waking, 8, 2, 0),
            (21, 2, Switch, 0, 7, 1),
            (22, 1, Migrate, 8, 2, 3),
            (30, 3, Migrate, 8, 3, 4),
        ];
        assert_eq!(woken(&rows), [(10, 7, 2), (22, 8, 3)]);
        let recorded = [&rows[..], &[(40, 1, Wakeup, 9, 0, 0)]].concat();
        assert_eq!(woken(&recorded), [(40, 9, 0)]);
        assert_eq!(events(&timeline(&rows)).count(), 7);
    }
}
