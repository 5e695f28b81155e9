//! What a run counts. The window's figures are the difference of two snapshots.

use crate::program::{Builder, Latency, LatencyId};
use crate::record::{Counters, IdleUse};
use crate::schedstat::{Counted, CpuStats};
use vruntime_base::{CauseCounts, Cpu, Event, Histogram, Ledger, Ns, TaskId, Timeline};
use vruntime_machine::IdleState;

/// One progress group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub goal: u64,
    pub done: u64,
    pub at_start: u64,
    /// Messages at the middle of the window.
    pub at_half: u64,
    pub finished_at: Option<Ns>,
    /// Tasks seen to run and to wait for a CPU since the window began.
    pub seen_running: u64,
    pub seen_waiting: u64,
}

/// Counters of a run in progress.
pub(crate) struct Stats {
    /// What is counted over all CPUs; those of `cpus` are added where it is read.
    pub count: Counters,
    pub cpus: Vec<CpuStats>,
    pub switches: CauseCounts,
    pub placements: CauseCounts,
    pub migrations: CauseCounts,
    /// By idle state of the machine.
    pub idle: Vec<IdleUse>,
    pub wakeup_latency: Histogram,
    pub sched_delay: Histogram,
    pub groups: Vec<Group>,
    pub latencies: Vec<Latency>,
    /// Until when the task clock has counted the current task of each CPU.
    pub counted_until: Vec<Ns>,
    /// Until when it has counted one of the workload's on each CPU.
    pub tasks_until: Vec<Ns>,
    /// How long the current task of each CPU has been on it, in ns, up to there.
    pub running_for: Vec<u64>,
    /// Switches of each CPU: the counter of its cost jitter.
    pub switches_of: Vec<u64>,
    pub events: u64,
    pub hash: u64,
    pub mark_start: Option<Ns>,
    /// The loop shall call the control slot now.
    pub look: bool,
    pub mark_stop: Option<Ns>,
    /// The task that ends the run has exited.
    pub over: bool,
    pub next_mm: u32,
    pub timeline: Timeline,
    pub timeline_max: usize,
    /// Events ahead of the clock, the latest first.
    ahead: Vec<Event>,
    pub window: Option<Snapshot>,
    /// When half of the window was over.
    pub half: Option<Ns>,
}

/// The number of a task of the workload in traces, above those of stoppers on any machine.
pub(crate) fn pid(p: TaskId) -> u32 {
    const FIRST: u32 = 3000;
    FIRST + p.0
}

/// The counters when the window began.
pub(crate) struct Snapshot {
    pub at: Ns,
    pub count: Counters,
    pub switches: CauseCounts,
    pub placements: CauseCounts,
    pub migrations: CauseCounts,
    pub idle: Vec<IdleUse>,
    pub ledger: Ledger,
    pub events: u64,
    /// If they are asked for.
    pub schedstat: Counted,
}

impl Stats {
    pub(crate) fn new(
        nr_cpus: usize,
        idle: &[IdleState],
        b: &Builder,
        timeline_max: usize,
    ) -> Stats {
        Stats {
            count: Counters::default(),
            cpus: vec![CpuStats::default(); nr_cpus],
            switches: CauseCounts::default(),
            placements: CauseCounts::default(),
            migrations: CauseCounts::default(),
            idle: idle
                .iter()
                .map(|i| IdleUse { state: i.name.clone(), ..IdleUse::default() })
                .collect(),
            wakeup_latency: Histogram::default(),
            sched_delay: Histogram::default(),
            groups: b
                .goals
                .iter()
                .map(|&goal| Group {
                    goal,
                    done: 0,
                    at_start: 0,
                    at_half: 0,
                    finished_at: None,
                    seen_running: 0,
                    seen_waiting: 0,
                })
                .collect(),
            latencies: vec![Latency::default(); b.nr_latencies as usize],
            counted_until: vec![Ns::ZERO; nr_cpus],
            tasks_until: vec![Ns::ZERO; nr_cpus],
            running_for: vec![0; nr_cpus],
            switches_of: vec![0; nr_cpus],
            events: 0,
            hash: 0xcbf2_9ce4_8422_2325,
            mark_start: None,
            look: false,
            mark_stop: None,
            over: false,
            next_mm: 0,
            timeline: Timeline::default(),
            timeline_max,
            ahead: Vec::new(),
            window: None,
            half: None,
        }
    }

    /// Folds an event into the run's hash.
    #[inline(always)]
    pub(crate) fn fold(&mut self, t: Ns, c: Cpu) {
        self.hash = (self.hash ^ (t.0 << 10 | u64::from(c.0)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }

    /// The counters over all CPUs, at `at`: a task whose switch is planned and lies ahead has not
    /// run until then.
    pub(crate) fn counters(&self, at: Ns) -> Counters {
        let ahead = self.tasks_until.iter().map(|until| until.saturating_sub(at).0);
        let sum = |f: fn(&CpuStats) -> u64| self.cpus.iter().map(f).sum();
        Counters {
            wakeups_local: sum(|c| c.ttwu_local),
            sched_count: sum(|c| c.sched_count),
            sched_goidle: sum(|c| c.sched_goidle),
            task_clock_ns: self.count.task_clock_ns - ahead.sum::<u64>(),
            ..self.count.clone()
        }
    }

    /// A message of `group` has been received.
    #[inline(always)]
    pub(crate) fn message(&mut self, group: u16, at: Ns) {
        if let Some(g) = self.groups.get_mut(group as usize) {
            self.count.messages += 1;
            g.done += 1;
            if g.done == g.goal {
                g.finished_at = Some(at);
            }
        }
    }

    /// The current task `p` of `c` has been on it until `at`. Below tasks of the workload are an
    /// idle task and a stopper of each CPU.
    #[inline]
    pub(crate) fn task_clock(&mut self, c: Cpu, p: TaskId, at: Ns) {
        let nr_cpus = self.cpus.len();
        let until = &mut self.counted_until[c.ix()];
        let ran = at.saturating_sub(*until).0;
        self.running_for[c.ix()] += ran;
        if p.ix() >= 2 * nr_cpus {
            self.count.task_clock_ns += ran;
            self.tasks_until[c.ix()] = at.max(*until);
        }
        *until = at.max(*until);
    }

    /// `sched_info_depart`: the current task `p` of `c` leaves it at `at`.
    #[inline]
    pub(crate) fn departs(&mut self, c: Cpu, p: TaskId, at: Ns) {
        self.task_clock(c, p, at);
        let ran = std::mem::take(&mut self.running_for[c.ix()]);
        if p.ix() >= self.cpus.len() {
            self.cpus[c.ix()].rq_cpu_time += ran;
        }
    }

    /// `p` has measured a latency of the list `id`.
    pub(crate) fn latency(&mut self, id: LatencyId, p: TaskId, d: Ns) {
        if let Some(l) = self.latencies.get_mut(id.ix()) {
            l.add(pid(p), d);
        }
    }

    /// True if a timeline was asked for and is not full.
    #[inline]
    pub(crate) fn keeps_events(&self) -> bool {
        self.timeline.len() + self.ahead.len() < self.timeline_max
    }

    /// Keeps an event. What an operation costs puts it ahead of `now`, and others may come first.
    pub(crate) fn event(&mut self, now: Ns, e: Event) {
        self.events_until(now);
        let later = self.ahead.partition_point(|x| x.time > e.time);
        self.ahead.insert(later, e);
    }

    /// Moves the events up to `now` into the timeline: none of an earlier time will come.
    pub(crate) fn events_until(&mut self, now: Ns) {
        while let Some(e) = self.ahead.pop_if(|e| e.time <= now) {
            self.timeline.push(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::EventKind;

    /// A window that ends in a switch has its task's time up to there, the next window the rest.
    #[test]
    fn a_task_has_not_run_ahead_of_the_clock() {
        let mut s = Stats::new(1, &[], &Builder::default(), 0);
        let clock = |s: &Stats, at| s.counters(Ns(at)).task_clock_ns;
        s.task_clock(Cpu(0), TaskId(2), Ns(150));
        assert_eq!([100, 140, 150, 170].map(|at| clock(&s, at)), [100, 140, 150, 150]);
        // Idle from then on.
        s.task_clock(Cpu(0), TaskId(0), Ns(300));
        assert_eq!(clock(&s, 200), 150);
    }

    #[test]
    fn events_ahead_of_the_clock_wait_for_their_turn() {
        let mut s = Stats::new(1, &[], &Builder::default(), 4);
        for (now, time, task) in [(10, 40, 1), (20, 30, 2), (20, 20, 3), (30, 30, 4), (30, 31, 5)] {
            if s.keeps_events() {
                s.event(Ns(now), Event::new(Ns(time), Cpu(0), EventKind::Waking, TaskId(task)));
            }
        }
        s.events_until(Ns::NEVER);
        let order: Vec<_> = s.timeline.iter().map(|e| (e.time.0, e.task.0)).collect();
        assert_eq!(order, [(20, 3), (30, 2), (30, 4), (40, 1)]);
    }
}
