//! Figures of a [`Timeline`], recorded or of a model run: what each task and each CPU did.

use crate::timeline_queues::queues;
use crate::trace_parts::{Parts, Sum};
use crate::wakings::events;
use serde::Serialize;
use std::collections::BTreeMap;
use vruntime_base::{Event, EventKind, SeenRunning, TaskId, Timeline};

/// What one task did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TaskFigures {
    /// Name.
    pub comm: String,
    /// Thread id.
    pub pid: u32,
    /// Time on a CPU, from switch to switch.
    pub run_time_ns: u64,
    /// The single times on a CPU.
    pub runs: Runs,
    /// Times it left a CPU to sleep or exit.
    pub nr_voluntary: u64,
    /// Times it left a CPU while runnable.
    pub nr_involuntary: u64,
    /// Who came in its stead when it left while runnable: `comm:pid` and how often.
    pub preempted_by: BTreeMap<String, u64>,
    /// Wakeups, those of new tasks among them.
    pub nr_wakeups: u64,
    /// Wakeups onto the CPU where it last ran, of those with a known `sched_waking`.
    pub nr_woken_on_prev: u64,
    /// Wakeups onto the waker's CPU, of those not on the previous one.
    pub nr_woken_on_waker: u64,
    /// Wakeups onto a third CPU.
    pub nr_woken_elsewhere: u64,
    /// Times it was moved.
    pub nr_migrations: u64,
    /// From wakeup to CPU: mean, median, 95th and 99th percentile (nearest rank), longest.
    pub sched_delay: Delay,
    #[serde(skip)]
    delays: Delays,
}

/// Times on a CPU, in the figures of `perf sched timehist -s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Runs {
    /// How many (`sched-in`): those that end with a switch that was recorded.
    pub count: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Standard deviation of the mean, in % of the mean (perf's `stddev`).
    pub stddev_percent: f64,
    #[serde(skip)]
    sum: u64,
    /// Running mean and sum of squared differences from it.
    #[serde(skip)]
    mean: f64,
    #[serde(skip)]
    squares: f64,
}

impl Runs {
    fn add(&mut self, ns: u64) {
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum = self.sum.saturating_add(ns);
        let off = ns as f64 - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (ns as f64 - self.mean);
    }
    fn done(mut self) -> Runs {
        self.mean_ns = self.sum / self.count.max(1);
        if self.count > 1 && self.mean > 0.0 {
            let n = self.count as f64;
            self.stddev_percent = 100.0 * (self.squares / (n - 1.0) / n).sqrt() / self.mean;
        }
        self
    }
}

/// A distribution of waiting times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 95th percentile.
    pub p95_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// When the longest ended, in the trace's time.
    pub max_at_ns: u64,
}

/// Single waiting times.
#[derive(Clone, Debug, Default)]
struct Delays {
    ns: Vec<u64>,
    /// The longest, and when it ended.
    longest: (u64, u64),
}

impl Delays {
    fn add(&mut self, ns: u64, until: u64) {
        self.ns.push(ns);
        if self.longest < (ns, 0) {
            self.longest = (ns, until);
        }
    }
}

impl Delay {
    fn of(delays: Delays) -> Delay {
        let Delays { mut ns, longest } = delays;
        ns.sort_unstable();
        let Some(&max_ns) = ns.last() else { return Delay::default() };
        let rank = |percent: usize| ns[(ns.len() * percent).div_ceil(100).max(1) - 1];
        let count = ns.len() as u64;
        let mean_ns = (ns.iter().map(|&v| u128::from(v)).sum::<u128>() / u128::from(count)) as u64;
        let (p50_ns, p95_ns, p99_ns) = (rank(50), rank(95), rank(99));
        Delay { count, mean_ns, p50_ns, p95_ns, p99_ns, max_ns, max_at_ns: longest.1 }
    }
}

/// What one CPU did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CpuFigures {
    /// Which.
    pub cpu: u32,
    /// Switches on it.
    pub nr_switches: u64,
    /// Those away from a task that went to sleep or ended.
    pub nr_voluntary: u64,
    /// Those away from a task that was still runnable.
    pub nr_involuntary: u64,
    /// Time in tasks, between its first and its last switch.
    pub busy_ns: u64,
    /// Time in the idle task, between its first and its last switch.
    pub idle_ns: u64,
    /// Time that ends with a switch away from another task than was switched in: a switch is
    /// missing.
    pub unknown_ns: u64,
    /// Of that, what ends with the idle task leaving.
    pub unknown_left_idle_ns: u64,
    /// Wakeups that chose it.
    pub nr_wakeups: u64,
    /// Tasks that were moved to it.
    pub nr_migrated_in: u64,
    /// Tasks that were moved away from it.
    pub nr_migrated_out: u64,
    /// From wakeup to CPU, of the tasks that came to run on it.
    pub sched_delay: Delay,
    /// Times a task was seen to run where the last switch had left the idle task: its own is not in
    /// the recording. Its time counts from there, its delay does not.
    pub nr_unrecorded: u64,
    /// Of the time in the idle task, what ended like that.
    pub idle_unrecorded_ns: u64,
    /// Switches from the idle task to itself.
    pub nr_idle_to_idle: u64,
    /// Time that tasks waited on it, summed over tasks; divided by the span, the mean depth of its
    /// queue.
    pub waited_ns: u64,
    /// Tasks that waited on it at most at a time.
    pub depth_max: u64,
    #[serde(skip)]
    delays: Delays,
}

/// Figures of a whole timeline.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TimelineStats {
    /// From the first event to the last.
    pub span_ns: u64,
    /// Time that tasks ran, all CPUs; divided by the span, the CPUs utilized.
    pub task_clock_ns: u64,
    /// Switches on all CPUs.
    pub context_switches: u64,
    /// Times that tasks were moved.
    pub migrations: u64,
    /// As `perf stat` counts them: tasks that run after they were moved, however often.
    pub cpu_migrations: u64,
    /// Events by kind, as tracefs names them.
    pub events: BTreeMap<&'static str, u64>,
    /// Tasks that ran, were woken or moved, without idle tasks, by run time.
    pub tasks: Vec<TaskFigures>,
    /// CPUs that switched or were chosen.
    pub cpus: Vec<CpuFigures>,
    /// From wakeup to CPU, over all tasks but idle ones.
    pub sched_delay: Delay,
}

/// What has to be remembered of a task between events.
#[derive(Clone, Copy, Default)]
struct Memory {
    woken: Option<u64>,
    waking: Option<(u32, u32)>,
    /// It was moved, and has not run since.
    moved: bool,
    /// Where it ran last.
    ran_on: Option<u32>,
}

/// Computes the figures.
pub fn timeline_stats(timeline: &Timeline) -> TimelineStats {
    Walk::over(timeline, 1).finish()
}

/// Counts of `slices` parts of equal length; their sums are those of [`timeline_stats`].
pub(crate) fn timeline_parts(timeline: &Timeline, slices: usize) -> Parts {
    Walk::over(timeline, slices).parts
}

/// Events in their order.
struct Walk<'a> {
    timeline: &'a Timeline,
    tasks: Vec<TaskFigures>,
    memory: Vec<Memory>,
    cpus: BTreeMap<u32, CpuFigures>,
    /// By CPU: since when who runs.
    since: BTreeMap<u32, (u64, u32)>,
    cpu_migrations: u64,
    /// Moves were recorded; else a task has moved that runs where it did not run last.
    has_moves: bool,
    parts: Parts,
}

impl<'a> Walk<'a> {
    fn over(timeline: &'a Timeline, slices: usize) -> Walk<'a> {
        let mut walk = Walk {
            timeline,
            tasks: vec![],
            memory: vec![],
            cpus: BTreeMap::new(),
            since: BTreeMap::new(),
            cpu_migrations: 0,
            has_moves: timeline.iter().any(|e| e.kind == EventKind::Migrate),
            parts: Parts::new(timeline, slices),
        };
        let mut seen = timeline.seen().iter().peekable();
        for e in events(timeline) {
            while let Some(s) = seen.next_if(|s| s.since <= e.time) {
                walk.seen(s);
            }
            walk.event(&e);
        }
        walk
    }

    fn is_idle(&self, task: u32) -> bool {
        self.timeline.is_idle(TaskId(task))
    }

    /// A task is seen to run; if the last switch here was to the idle task, its own is missing.
    fn seen(&mut self, s: &SeenRunning) {
        let (cpu, task, at) = (u32::from(s.cpu.0), s.task.0, s.since.0);
        let Some(&(from, _)) = self.since.get(&cpu).filter(|now| self.is_idle(now.1)) else {
            return;
        };
        self.since.insert(cpu, (at, task));
        let on = self.cpus.entry(cpu).or_default();
        on.idle_ns += at - from;
        on.idle_unrecorded_ns += at - from;
        on.nr_unrecorded += 1;
        self.parts.spend(from, at, Sum::IdleNs);
        if let Some(known) = self.memory.get_mut(task as usize) {
            known.woken = None;
        }
    }

    fn event(&mut self, e: &Event) {
        let (t, cpu, task) = (e.time.0, u32::from(e.cpu.0), e.task.0);
        let next = if e.kind == EventKind::Switch { e.a } else { task };
        let length = task.max(next) as usize + 1;
        if self.tasks.len() < length {
            self.tasks.resize_with(length, TaskFigures::default);
            self.memory.resize(length, Memory::default());
        }
        let known = &mut self.memory[task as usize];
        match e.kind {
            EventKind::Switch => self.switch(e),
            EventKind::Waking => known.waking = Some((cpu, e.a)),
            EventKind::Wakeup | EventKind::WakeupNew => {
                // A task that is woken while it still runs does not wait.
                if self.since.get(&e.a).is_none_or(|&(_, runs)| runs != task) {
                    known.woken.get_or_insert(t);
                }
                let waking = known.waking.take();
                self.cpus.entry(e.a).or_default().nr_wakeups += 1;
                let figures = &mut self.tasks[task as usize];
                figures.nr_wakeups += 1;
                self.parts.add(t, Sum::Wakeups, 1);
                if let Some((waker, prev)) = waking {
                    let (count, sum) = match e.a {
                        a if a == prev => (&mut figures.nr_woken_on_prev, Sum::OnPrev),
                        a if a == waker => (&mut figures.nr_woken_on_waker, Sum::OnWaker),
                        _ => (&mut figures.nr_woken_elsewhere, Sum::Elsewhere),
                    };
                    *count += 1;
                    self.parts.add(t, sum, 1);
                }
            }
            EventKind::Migrate => {
                self.moves(task, e.a, e.b);
            }
            EventKind::Runtime => {}
        }
    }

    /// `task` goes from one CPU to another.
    fn moves(&mut self, task: u32, from: u32, to: u32) {
        self.tasks[task as usize].nr_migrations += 1;
        self.cpus.entry(from).or_default().nr_migrated_out += 1;
        self.cpus.entry(to).or_default().nr_migrated_in += 1;
        self.memory[task as usize].moved = true;
    }

    fn switch(&mut self, e: &Event) {
        let (t, cpu, task, next) = (e.time.0, u32::from(e.cpu.0), e.task.0, e.a);
        let (was_idle, goes_idle) = (self.is_idle(task), self.is_idle(next));
        let before = self.since.insert(cpu, (t, next));
        let ran_idle = before.is_some_and(|(_, runs)| self.is_idle(runs));
        let on = self.cpus.entry(cpu).or_default();
        let figures = &mut self.tasks[task as usize];
        on.nr_switches += 1;
        on.nr_idle_to_idle += u64::from(was_idle && goes_idle);
        self.parts.add(t, Sum::Switches, 1);
        if let Some((from, runs)) = before {
            let passed = t - from;
            if was_idle && ran_idle {
                on.idle_ns += passed;
                self.parts.spend(from, t, Sum::IdleNs);
            } else if runs != task {
                on.unknown_ns += passed;
                on.unknown_left_idle_ns += if was_idle { passed } else { 0 };
            } else {
                on.busy_ns += passed;
                figures.run_time_ns = figures.run_time_ns.saturating_add(passed);
                figures.runs.add(passed);
                self.parts.spend(from, t, Sum::BusyNs);
            }
        }
        if !was_idle && e.b == 1 {
            figures.nr_involuntary += 1;
            on.nr_involuntary += 1;
            self.parts.add(t, Sum::Involuntary, 1);
            *figures.preempted_by.entry(label(self.timeline, next)).or_default() += 1;
        } else if !was_idle {
            figures.nr_voluntary += 1;
            on.nr_voluntary += 1;
            self.parts.add(t, Sum::Voluntary, 1);
        }
        self.memory[task as usize].woken = None;
        let memory = &mut self.memory[next as usize];
        memory.waking = None;
        let ran_on = memory.ran_on.replace(cpu).filter(|_| !self.has_moves && !goes_idle);
        if let Some(before) = ran_on.filter(|&before| before != cpu) {
            self.moves(next, before, cpu);
        }
        if std::mem::take(&mut self.memory[next as usize].moved) {
            self.cpu_migrations += 1;
            self.parts.add(t, Sum::Migrations, 1);
        }
        if let Some(woken) = self.memory[next as usize].woken.take().filter(|_| !goes_idle) {
            self.tasks[next as usize].delays.add(t - woken, t);
            self.cpus.entry(cpu).or_default().delays.add(t - woken, t);
            self.parts.delay(t, t - woken);
        }
    }

    fn finish(mut self) -> TimelineStats {
        for (cpu, queue) in queues(self.timeline) {
            let on = self.cpus.entry(cpu).or_default();
            (on.waited_ns, on.depth_max) = (queue.waited_ns, queue.depth_max);
        }
        let mut counts = BTreeMap::new();
        for e in self.timeline.iter() {
            *counts.entry(name(e.kind)).or_default() += 1;
        }
        let mut delays = Delays::default();
        for (i, task) in self.tasks.iter_mut().enumerate() {
            let row = self.timeline.tasks().get(i);
            delays.ns.extend_from_slice(&task.delays.ns);
            delays.longest = delays.longest.max(task.delays.longest);
            task.comm = row.map_or_else(|| format!("task {i}"), |r| r.comm.clone());
            task.pid = row.map_or(i as u32 + 1, |r| r.pid);
            task.sched_delay = Delay::of(std::mem::take(&mut task.delays));
            task.runs = task.runs.done();
        }
        let mut tasks = self.tasks;
        tasks.retain(|t| {
            let counts = [t.nr_voluntary, t.nr_involuntary, t.nr_wakeups, t.nr_migrations];
            t.pid != 0 && (t.run_time_ns > 0 || counts.iter().any(|&n| n > 0))
        });
        tasks.sort_by_key(|t| (std::cmp::Reverse(t.run_time_ns), t.pid));
        let sum = |of: fn(&TaskFigures) -> u64| tasks.iter().map(of).fold(0, u64::saturating_add);
        let task_clock_ns = sum(|t| t.run_time_ns);
        let migrations = sum(|t| t.nr_migrations);
        let context_switches = self.cpus.values().map(|c| c.nr_switches).sum();
        let cpu = |(cpu, mut c): (u32, CpuFigures)| {
            let sched_delay = Delay::of(std::mem::take(&mut c.delays));
            CpuFigures { cpu, sched_delay, ..c }
        };
        TimelineStats {
            span_ns: self.timeline.span().0,
            events: counts,
            cpus: self.cpus.into_iter().map(cpu).collect(),
            tasks,
            task_clock_ns,
            context_switches,
            migrations,
            cpu_migrations: self.cpu_migrations,
            sched_delay: Delay::of(delays),
        }
    }
}

fn label(timeline: &Timeline, task: u32) -> String {
    match timeline.tasks().get(task as usize) {
        Some(r) => format!("{}:{}", r.comm, r.pid),
        None => format!("task:{task}"),
    }
}

fn name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Switch => "sched_switch",
        EventKind::Waking => "sched_waking",
        EventKind::Wakeup => "sched_wakeup",
        EventKind::WakeupNew => "sched_wakeup_new",
        EventKind::Migrate => "sched_migrate_task",
        EventKind::Runtime => "sched_stat_runtime",
    }
}

#[cfg(test)]
mod tests;
