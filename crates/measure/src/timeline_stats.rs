//! Figures of a [`Timeline`], recorded or of a model run: what each task and each CPU did.

use crate::timeline_queues::queues;
use serde::Serialize;
use std::collections::BTreeMap;
use vruntime_base::{EventKind, TaskId, Timeline};

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
    /// Events by kind, as tracefs names them.
    pub events: BTreeMap<&'static str, u64>,
    /// Tasks that ran or were woken, without idle tasks, by run time.
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
}

/// Computes the figures.
pub fn timeline_stats(timeline: &Timeline) -> TimelineStats {
    let mut tasks: Vec<TaskFigures> = vec![];
    let mut memory: Vec<Memory> = vec![];
    let mut cpus: BTreeMap<u32, CpuFigures> = BTreeMap::new();
    let mut since: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    let mut events = BTreeMap::new();
    let rows = timeline.tasks();
    let idle = |task: u32| timeline.is_idle(TaskId(task));
    let label = |task: u32| match rows.get(task as usize) {
        Some(r) => format!("{}:{}", r.comm, r.pid),
        None => format!("task:{task}"),
    };
    let mut seen = timeline.seen().iter().peekable();
    for e in timeline.iter() {
        while let Some(s) = seen.next_if(|s| s.since <= e.time) {
            let (cpu, task) = (u32::from(s.cpu.0), s.task.0);
            let Some((from, runs)) = since.get_mut(&cpu).filter(|now| idle(now.1)) else {
                continue;
            };
            let on = cpus.entry(cpu).or_default();
            on.idle_ns += s.since.0 - *from;
            on.idle_unrecorded_ns += s.since.0 - *from;
            on.nr_unrecorded += 1;
            (*from, *runs) = (s.since.0, task);
            if let Some(known) = memory.get_mut(task as usize) {
                known.woken = None;
            }
        }
        *events.entry(name(e.kind)).or_default() += 1;
        let (t, cpu, task) = (e.time.0, u32::from(e.cpu.0), e.task.0);
        let next = if e.kind == EventKind::Switch { e.a } else { task };
        let length = task.max(next) as usize + 1;
        if tasks.len() < length {
            tasks.resize_with(length, TaskFigures::default);
            memory.resize(length, Memory::default());
        }
        let (figures, known) = (&mut tasks[task as usize], &mut memory[task as usize]);
        match e.kind {
            EventKind::Switch => {
                let on = cpus.entry(cpu).or_default();
                on.nr_switches += 1;
                on.nr_idle_to_idle += u64::from(idle(task) && idle(next));
                if let Some((from, runs)) = since.insert(cpu, (t, next)) {
                    let passed = t - from;
                    if idle(task) {
                        on.idle_ns += passed;
                    } else if runs != task {
                        on.unknown_ns += passed;
                    } else {
                        on.busy_ns += passed;
                        figures.run_time_ns = figures.run_time_ns.saturating_add(passed);
                        figures.runs.add(passed);
                    }
                }
                if e.b == 1 {
                    figures.nr_involuntary += 1;
                    if !idle(task) {
                        on.nr_involuntary += 1;
                        *figures.preempted_by.entry(label(next)).or_default() += 1;
                    }
                } else {
                    on.nr_voluntary += u64::from(!idle(task));
                    figures.nr_voluntary += 1;
                }
                *known = Memory::default();
                if let Some(woken) = memory[next as usize].woken.take() {
                    tasks[next as usize].delays.add(t - woken, t);
                    if !idle(next) {
                        on.delays.add(t - woken, t);
                    }
                }
            }
            EventKind::Waking => known.waking = Some((cpu, e.a)),
            EventKind::Wakeup | EventKind::WakeupNew => {
                figures.nr_wakeups += 1;
                cpus.entry(e.a).or_default().nr_wakeups += 1;
                // A task that is woken while it still runs does not wait.
                if since.get(&e.a).is_none_or(|&(_, runs)| runs != task) {
                    known.woken.get_or_insert(t);
                }
                if let Some((waker, prev)) = known.waking.take() {
                    match e.a {
                        a if a == prev => figures.nr_woken_on_prev += 1,
                        a if a == waker => figures.nr_woken_on_waker += 1,
                        _ => figures.nr_woken_elsewhere += 1,
                    }
                }
            }
            EventKind::Migrate => {
                figures.nr_migrations += 1;
                cpus.entry(e.a).or_default().nr_migrated_out += 1;
                cpus.entry(e.b).or_default().nr_migrated_in += 1;
            }
            EventKind::Runtime => {}
        }
    }
    for (cpu, queue) in queues(timeline) {
        let on = cpus.entry(cpu).or_default();
        (on.waited_ns, on.depth_max) = (queue.waited_ns, queue.depth_max);
    }
    finish(timeline, tasks, cpus, events)
}

fn finish(
    timeline: &Timeline,
    mut tasks: Vec<TaskFigures>,
    cpus: BTreeMap<u32, CpuFigures>,
    events: BTreeMap<&'static str, u64>,
) -> TimelineStats {
    let mut delays = Delays::default();
    for (i, task) in tasks.iter_mut().enumerate() {
        let row = timeline.tasks().get(i);
        delays.ns.extend_from_slice(&task.delays.ns);
        delays.longest = delays.longest.max(task.delays.longest);
        task.comm = row.map_or_else(|| format!("task {i}"), |r| r.comm.clone());
        task.pid = row.map_or(i as u32 + 1, |r| r.pid);
        task.sched_delay = Delay::of(std::mem::take(&mut task.delays));
        task.runs = task.runs.done();
    }
    tasks.retain(|t| {
        t.pid != 0 && t.run_time_ns + t.nr_voluntary + t.nr_involuntary + t.nr_wakeups > 0
    });
    tasks.sort_by_key(|t| (std::cmp::Reverse(t.run_time_ns), t.pid));
    let sum = |of: fn(&TaskFigures) -> u64| tasks.iter().map(of).fold(0, u64::saturating_add);
    let task_clock_ns = sum(|t| t.run_time_ns);
    let migrations = sum(|t| t.nr_migrations);
    let context_switches = cpus.values().map(|c| c.nr_switches).sum();
    let cpu = |(cpu, mut c): (u32, CpuFigures)| {
        let sched_delay = Delay::of(std::mem::take(&mut c.delays));
        CpuFigures { cpu, sched_delay, ..c }
    };
    let cpus = cpus.into_iter().map(cpu).collect();
    TimelineStats {
        span_ns: timeline.span().0,
        events,
        tasks,
        cpus,
        task_clock_ns,
        context_switches,
        migrations,
        sched_delay: Delay::of(delays),
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
mod tests {
    use super::*;

    /// CPU 0: the idle task, then A leaves that nobody switched in, then B, then idle again.
    #[test]
    fn time_before_a_switch_that_is_missing_is_nobodys() {
        use vruntime_base::{Cpu, Event, Ns, TaskRow};
        let mut t = Timeline::default();
        for (time, task, a) in [(0, 1, 0), (10, 1, 2), (13, 2, 0), (20, 0, 1)] {
            let (time, cpu, task) = (Ns(time), Cpu(0), TaskId(task));
            t.push(Event {
                time,
                cpu,
                kind: EventKind::Switch,
                task,
                a,
                b: 0,
                cause: None,
                flags: 0,
            });
        }
        t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
        let stats = timeline_stats(&t);
        let cpu = &stats.cpus[0];
        assert_eq!((cpu.unknown_ns, cpu.busy_ns, cpu.idle_ns), (10, 3, 7));
        assert_eq!((stats.tasks[0].pid, stats.tasks[0].run_time_ns), (2, 3));
    }

    /// CPU 0 goes idle at 2. A is woken at 3, is seen to run at 5 and leaves at 9; what it is seen
    /// to do later, after its switch, or on a CPU where it was switched in, tells nothing.
    #[test]
    fn a_task_that_is_seen_runs_though_its_switch_is_missing() {
        use vruntime_base::{Cpu, Event, Ns, SeenRunning, TaskRow};
        let mut t = Timeline::default();
        let switch = EventKind::Switch;
        let rows = [(0, switch, 1, 2), (2, switch, 2, 0), (3, EventKind::Wakeup, 1, 0)];
        for (time, kind, task, a) in rows.into_iter().chain([(9, switch, 1, 2), (12, switch, 2, 0)])
        {
            let (time, cpu, task) = (Ns(time), Cpu(0), TaskId(task));
            t.push(Event { time, cpu, kind, task, a, b: 0, cause: None, flags: 0 });
        }
        t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
        let at = |since, task| SeenRunning { since: Ns(since), cpu: Cpu(0), task: TaskId(task) };
        t.note_seen(vec![at(10, 1), at(5, 1)]);
        let stats = timeline_stats(&t);
        let cpu = &stats.cpus[0];
        assert_eq!((cpu.unknown_ns, cpu.idle_ns, cpu.busy_ns), (0, 3, 9));
        assert_eq!((cpu.nr_unrecorded, cpu.idle_unrecorded_ns), (1, 3));
        let times: Vec<_> = stats.tasks.iter().map(|t| (t.pid, t.run_time_ns)).collect();
        assert_eq!(times, [(2, 5), (1, 4)]);
        assert_eq!(stats.sched_delay.count, 0);
        assert_eq!((cpu.waited_ns, cpu.nr_switches), (2, 4));
    }

    /// A sleeps on CPU 0 and is woken and moved to CPU 1, where it waits from 4 to 9 until B, still
    /// runnable, makes room. Idle tasks count nowhere.
    #[test]
    fn each_cpu_has_its_switches_moves_and_delays() {
        use EventKind::{Migrate, Switch, Wakeup};
        use vruntime_base::{Cpu, Event, Ns, TaskRow};
        let mut t = Timeline::default();
        for (time, cpu, kind, task, a, b) in [
            (0, 0, Switch, 0, 1, 1),
            (1, 1, Switch, 0, 2, 1),
            (2, 0, Switch, 1, 0, 0),
            (3, 0, Migrate, 1, 0, 1),
            (4, 0, Wakeup, 1, 1, 0),
            (9, 1, Switch, 2, 1, 1),
        ] {
            let (time, cpu, task) = (Ns(time), Cpu(cpu), TaskId(task));
            t.push(Event { time, cpu, kind, task, a, b, cause: None, flags: 0 });
        }
        t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
        let stats = timeline_stats(&t);
        let of = |c: &CpuFigures| {
            let switches = [c.nr_switches, c.nr_voluntary, c.nr_involuntary];
            (switches, c.nr_migrated_out, c.nr_migrated_in, c.sched_delay.count)
        };
        let cpus: Vec<_> = stats.cpus.iter().map(of).collect();
        assert_eq!(cpus, [([2, 1, 0], 1, 0, 0), ([2, 0, 1], 0, 1, 1)]);
        let delay = stats.cpus[1].sched_delay;
        assert_eq!((delay.max_ns, delay.max_at_ns, delay), (5, 9, stats.sched_delay));
    }

    /// 2, 4 and 6: their deviation is 2, that of their mean 2/√3, 28.9 % of 4.
    #[test]
    fn single_runs_are_as_perf_sums_them_up() {
        let mut r = Runs::default();
        [4, 2, 6].into_iter().for_each(|ns| r.add(ns));
        let r = r.done();
        assert_eq!((r.count, r.min_ns, r.mean_ns, r.max_ns), (3, 2, 4, 6));
        assert!((r.stddev_percent - 28.867_513).abs() < 1e-6, "{r:?}");
        let mut once = Runs::default();
        once.add(5);
        assert_eq!((once.done().stddev_percent, Runs::default().done().mean_ns), (0.0, 0));
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let d = Delay::of(Delays { ns: (1..=200).rev().collect(), longest: (200, 7) });
        assert_eq!(d.max_at_ns, 7);
        assert_eq!((d.p50_ns, d.p95_ns, d.p99_ns, d.max_ns, d.mean_ns), (100, 190, 198, 200, 100));
    }
}
