//! Why, as far as a trace tells.
//!
//! *What.* Every switch, placement and migration of a [`Timeline`] under one name. A model run
//! carries the rule itself. A recording carries events only, so the name is the set of rules that
//! fit what was seen around the event: `a or b` means that the trace cannot tell them apart.
//! *Source.* Which context moves or preempts a task: `kernel/sched/{core,fair,rt,stop_task}.c` of
//! 6.1 to 6.18 as described in each mechanism of `vruntime-sched`.
//! *Equations.* None.
//! *Departures.* D1: a task that is not known to have been woken since its CPU's running task
//! got on is taken to have waited; events before the trace began are not known. D2: in a trace
//! without `sched_waking` a move just before the task's wakeup on the new CPU is its placement.
//! *Example.* CPU 1 runs A; B is woken there; then A, still runnable, gives way to B: `preempted,
//! a task was woken here`. Had nobody been woken it would be `slice ended or sched_yield`.

use crate::causes::{CauseTables, Table};
use crate::wakings::events;
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::{Event, EventKind, TaskId, Timeline};

/// `kernel/sched`: priorities below are real-time (or deadline, or a stopper).
const MAX_RT_PRIO: i16 = 100;

/// Counts by name.
type Counts = BTreeMap<&'static str, u64>;

/// What has to be remembered of a CPU.
#[derive(Clone, Default)]
struct CpuMemory {
    /// Somebody became runnable here since the running task got on.
    woken_here: bool,
    /// Migrations by this CPU onto itself whose cause the next event here decides.
    pulled: u64,
    /// Who runs, once a switch has said so.
    current: Option<u32>,
}

/// The causes of all events, one column.
pub fn timeline_causes(timeline: &Timeline) -> CauseTables {
    Judge::new(timeline).all()
}

/// The moves that a wakeup on the new CPU follows as the task's next event, by position.
fn placements(timeline: &Timeline) -> BTreeSet<usize> {
    let mut next: BTreeMap<u32, Event> = BTreeMap::new();
    let mut placed = BTreeSet::new();
    for (i, e) in (0..timeline.len()).rev().map(|i| (i, timeline.get(i))) {
        if e.kind == EventKind::Switch {
            next.insert(e.a, e);
        }
        let after = next.insert(e.task.0, e);
        let woken = after.is_some_and(|n| n.kind == EventKind::Wakeup && n.a == e.b);
        if e.kind == EventKind::Migrate && woken {
            placed.insert(i);
        }
    }
    placed
}

struct Judge<'a> {
    timeline: &'a Timeline,
    cpus: Vec<CpuMemory>,
    /// By task: woken by this CPU, and not yet on a queue.
    waking: Vec<Option<Waking>>,
    /// The trace has events of this kind.
    wakings: bool,
    wakeups: bool,
    /// Without wakings: the moves that were placements.
    placed: BTreeSet<usize>,
    switches: Counts,
    placements: Counts,
    migrations: Counts,
}

/// A `sched_waking` whose `sched_wakeup` has not come.
#[derive(Clone, Copy)]
struct Waking {
    waker_cpu: u32,
    prev_cpu: u32,
}

impl<'a> Judge<'a> {
    fn new(timeline: &'a Timeline) -> Judge<'a> {
        let any = |kinds: &[EventKind]| timeline.iter().any(|e| kinds.contains(&e.kind));
        let wakings = any(&[EventKind::Waking]);
        Judge {
            timeline,
            wakings,
            wakeups: wakings || any(&[EventKind::Wakeup, EventKind::WakeupNew]),
            placed: if wakings { BTreeSet::new() } else { placements(timeline) },
            cpus: vec![],
            waking: vec![],
            switches: Counts::new(),
            placements: Counts::new(),
            migrations: Counts::new(),
        }
    }
    fn all(mut self) -> CauseTables {
        for (i, e) in events(self.timeline).enumerate() {
            self.event(i, &e);
        }
        self.finish()
    }
    fn cpu(&mut self, cpu: u32) -> &mut CpuMemory {
        let i = cpu as usize;
        if self.cpus.len() <= i {
            self.cpus.resize(i + 1, CpuMemory::default());
        }
        &mut self.cpus[i]
    }
    fn waking(&mut self, task: u32) -> &mut Option<Waking> {
        let i = task as usize;
        if self.waking.len() <= i {
            self.waking.resize(i + 1, None);
        }
        &mut self.waking[i]
    }
    fn is_idle(&self, task: u32) -> bool {
        self.timeline.is_idle(TaskId(task))
    }
    fn is_stopper(&self, task: u32) -> bool {
        self.timeline.tasks().get(task as usize).is_some_and(|t| t.comm.starts_with("migration/"))
    }

    fn event(&mut self, i: usize, e: &Event) {
        let (cpu, task) = (u32::from(e.cpu.0), e.task.0);
        if !matches!(e.kind, EventKind::Migrate | EventKind::Runtime) {
            let leaves_to_sleep = e.kind == EventKind::Switch && e.b != 1;
            self.settle(cpu, leaves_to_sleep);
        }
        match e.kind {
            EventKind::Switch => {
                let why = e.cause.map_or_else(|| self.switch(cpu, e), |c| c.name);
                *self.switches.entry(why).or_default() += 1;
                // It runs: whatever woke it is over.
                *self.waking(e.a) = None;
                let memory = self.cpu(cpu);
                (memory.woken_here, memory.current) = (false, Some(e.a));
            }
            EventKind::Waking => {
                *self.waking(task) = Some(Waking { waker_cpu: cpu, prev_cpu: e.a });
            }
            EventKind::Wakeup | EventKind::WakeupNew => {
                let waking = self.waking(task).take();
                let why = match (e.cause, waking) {
                    (Some(cause), _) => cause.name,
                    (None, _) if e.kind == EventKind::WakeupNew => "new task",
                    (None, Some(w)) if e.a == w.prev_cpu => "previous CPU",
                    (None, Some(w)) if e.a == w.waker_cpu => "waker's CPU",
                    (None, Some(_)) => "a third CPU",
                    (None, None) if self.wakings => "woken before the trace began",
                    (None, None) => "no sched_waking in the trace",
                };
                *self.placements.entry(why).or_default() += 1;
                self.cpu(e.a).woken_here = true;
            }
            EventKind::Migrate => self.migrate(i, cpu, e),
            EventKind::Runtime => {}
        }
    }

    fn switch(&mut self, cpu: u32, e: &Event) -> &'static str {
        let woken_here = self.cpu(cpu).woken_here;
        if self.is_idle(e.task.0) {
            return match woken_here {
                true => "idle: task woken",
                false if self.wakeups => "idle: task pulled",
                false => "idle: task woken or pulled",
            };
        }
        match e.b {
            0 => "blocks",
            2 => "exits",
            // It may run and yet nothing does: a quota is used up (`throttle_cfs_rq`), or a
            // sibling's cookie forbids it.
            _ if self.is_idle(e.a) => "throttled or forced idle",
            _ if e.next_prio < MAX_RT_PRIO && e.next_prio < e.prio => {
                "preempted by a higher priority"
            }
            _ if woken_here => "preempted, a task was woken here",
            _ if !self.wakeups => "preempted, slice ended or sched_yield",
            _ => "slice ended or sched_yield",
        }
    }

    fn migrate(&mut self, i: usize, cpu: u32, e: &Event) {
        let (from, to) = (e.a, e.b);
        let current = self.cpu(cpu).current;
        let why = if let Some(cause) = e.cause {
            cause.name
        } else if self.waking(e.task.0).is_some() || self.placed.contains(&i) {
            "wakeup placement"
        } else if !self.wakeups {
            "placement or balance: no wakeups in the trace"
        } else if current.is_some_and(|c| self.is_stopper(c)) {
            "active balance, exec or affinity"
        } else if to == cpu && current.is_some_and(|c| self.is_idle(c)) {
            "periodic or nohz balance while idle"
        } else if to == cpu {
            self.cpu(cpu).pulled += 1;
            return;
        } else if from == cpu {
            "affinity or push"
        } else {
            "nohz balance for another CPU or affinity"
        };
        *self.migrations.entry(why).or_default() += 1;
    }

    /// Newidle balance pulls when the running task is about to sleep, so the next event of the CPU
    /// is that switch.
    fn settle(&mut self, cpu: u32, leaves_to_sleep: bool) {
        let pulled = std::mem::take(&mut self.cpu(cpu).pulled);
        if pulled > 0 {
            let why = if leaves_to_sleep {
                "newidle balance"
            } else {
                "periodic balance while busy or affinity"
            };
            *self.migrations.entry(why).or_default() += pulled;
        }
    }

    fn finish(mut self) -> CauseTables {
        for cpu in 0..self.cpus.len() {
            self.settle(cpu as u32, false);
        }
        let table =
            |counts: Counts| Table(counts.into_iter().map(|(name, n)| (name, vec![n])).collect());
        CauseTables {
            switches: table(self.switches),
            placements: table(self.placements),
            migrations: table(self.migrations),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, Ns, TaskRow};

    /// As part of a trace that has events of all kinds.
    fn judged(events: &[(u16, EventKind, u32, u32, u32)]) -> Vec<String> {
        judged_as(events, true)
    }

    /// Tasks: 0 idle, 1 and 2 ordinary, 3 FIFO, 4 the stopper.
    fn judged_as(events: &[(u16, EventKind, u32, u32, u32)], part: bool) -> Vec<String> {
        let row = |comm: &str, pid| TaskRow { comm: comm.into(), pid, tgid: pid };
        let prio_of = |task: u32| [120, 120, 120, 19, 0][task as usize];
        let mut t = Timeline::default();
        for (i, &(cpu, kind, task, a, b)) in events.iter().enumerate() {
            let (time, cpu, task) = (Ns(i as u64), Cpu(cpu), TaskId(task));
            let prio = prio_of(task.0);
            let next_prio = if kind == Switch { prio_of(a) } else { Event::NICE_0 };
            t.push(Event { a, b, prio, next_prio, ..Event::new(time, cpu, kind, task) });
        }
        t.name_tasks(vec![
            row("swapper/0", 0),
            row("A", 10),
            row("B", 11),
            row("cyclictest", 12),
            row("migration/0", 13),
        ]);
        let mut judge = Judge::new(&t);
        if part {
            (judge.wakings, judge.wakeups, judge.placed) = (true, true, BTreeSet::new());
        }
        let c = judge.all();
        let line = |(name, n): &(&'static str, Vec<u64>)| format!("{name} {}", n[0]);
        [c.switches, c.placements, c.migrations]
            .iter()
            .flat_map(|table| table.0.iter().map(line).collect::<Vec<_>>())
            .collect()
    }

    use EventKind::{Migrate, Switch, Wakeup, WakeupNew, Waking};

    #[test]
    fn a_preemption_follows_a_wakeup_and_a_slice_does_not() {
        let slice = [(0, Switch, 1, 2, 1)];
        assert_eq!(judged(&slice), ["slice ended or sched_yield 1"]);
        let wakeup = [(0, Waking, 2, 0, 1), (0, Wakeup, 2, 0, 0), (0, Switch, 1, 2, 1)];
        assert_eq!(judged(&wakeup), ["preempted, a task was woken here 1", "previous CPU 1"]);
        let fifo = [(0, Switch, 1, 3, 1), (0, Switch, 3, 1, 0)];
        assert_eq!(judged(&fifo), ["blocks 1", "preempted by a higher priority 1"]);
    }

    #[test]
    fn who_leaves_idle_was_woken_or_pulled() {
        let woken = [(0, WakeupNew, 1, 1, 0), (1, Switch, 0, 1, 1)];
        assert_eq!(judged(&woken), ["idle: task woken 1", "new task 1"]);
        let pulled = [(1, Switch, 2, 0, 0), (1, Migrate, 1, 0, 1), (1, Switch, 0, 1, 1)];
        let expected = ["blocks 1", "idle: task pulled 1", "periodic or nohz balance while idle 1"];
        assert_eq!(judged(&pulled), expected);
        let expected = [
            "blocks 1",
            "idle: task woken or pulled 1",
            "placement or balance: no wakeups in the trace 1",
        ];
        assert_eq!(judged_as(&pulled, false), expected, "nobody says who was woken");
    }

    /// Task 1 moves before its wakeup on the new CPU; task 2 does while it waits.
    #[test]
    fn without_sched_waking_a_placement_is_known_by_its_wakeup() {
        let rows = [
            (0, Migrate, 1, 0, 3),
            (0, Wakeup, 1, 3, 0),
            (0, Migrate, 2, 4, 5),
            (5, Switch, 0, 2, 1),
            (0, Wakeup, 2, 5, 0),
        ];
        let expected = [
            "idle: task pulled 1",
            "no sched_waking in the trace 2",
            "nohz balance for another CPU or affinity 1",
            "wakeup placement 1",
        ];
        assert_eq!(judged_as(&rows, false), expected);
        let switches = [(1, Switch, 1, 2, 1)];
        assert_eq!(judged_as(&switches, false), ["preempted, slice ended or sched_yield 1"]);
    }

    #[test]
    fn the_context_of_a_migration_tells_who_moved() {
        let wakeup = [(0, Waking, 2, 0, 1), (0, Migrate, 2, 0, 3), (0, Wakeup, 2, 3, 0)];
        assert_eq!(judged(&wakeup), ["a third CPU 1", "wakeup placement 1"]);
        let newidle = [(1, Migrate, 1, 0, 1), (1, Switch, 2, 1, 0)];
        assert_eq!(judged(&newidle), ["blocks 1", "newidle balance 1"]);
        let busy = [(1, Migrate, 1, 0, 1), (1, Switch, 2, 1, 1)];
        let found = judged(&busy);
        assert_eq!(found[1], "periodic balance while busy or affinity 1");
        let later = [&[(0, Waking, 1, 0, 1), (1, Switch, 0, 1, 1)], &newidle[..]].concat();
        assert!(!judged(&later).contains(&"wakeup placement 1".to_owned()), "it ran meanwhile");
        let stopper = [(0, Switch, 1, 4, 1), (0, Migrate, 1, 0, 5)];
        assert_eq!(judged(&stopper)[1], "active balance, exec or affinity 1");
        let elsewhere = [(0, Switch, 1, 0, 0), (0, Migrate, 2, 4, 5)];
        assert_eq!(judged(&elsewhere)[1], "nohz balance for another CPU or affinity 1");
    }
}
