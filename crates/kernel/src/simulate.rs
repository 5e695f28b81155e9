//! `run`: one simulated run from its specification to its record, and nothing else.

use crate::checks::{CheckReport, Checker};
use crate::extrapolate::extrapolate;
use crate::frame::Frame;
use crate::program::{Latency, Op};
use crate::record::{FULL_LIMIT, GroupProgress, IdleUse, RunRecord, RunSpec, Sampling};
use crate::schedstat::Counted;
use crate::sim::{Channel, Sim};
use crate::stats::{Snapshot, pid};
use crate::task::KTask;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vruntime_base::{Cpu, Func, Histogram, Ledger, Ns, Resource, TaskId, TaskRow, Timeline};
use vruntime_machine::Topology;
use vruntime_sched::fair::Entity;
use vruntime_sched::scheduler::Scheduler;
use vruntime_sched::task::{Task, TaskState};

pub use crate::boot::SetupError;

/// How often the run looks at the world outside, in simulated time.
const CHECK: Ns = Ns::from_ms(1);

/// Tells the outside how far a run is, and tells the run to stop.
#[derive(Default)]
pub struct Progress {
    /// Simulated ns so far.
    pub simulated_ns: AtomicU64,
    /// Events so far.
    pub events: AtomicU64,
    /// Set to end the run early; its record is then incomplete.
    pub stop: AtomicBool,
}

/// What would keep `spec` from being run, whatever its seed.
pub fn check(spec: &RunSpec) -> Result<(), SetupError> {
    Sim::boot(spec).map(drop)
}

/// Runs `spec`. The same specification gives the same record, whatever runs beside it.
pub fn run(spec: &RunSpec) -> Result<RunRecord, SetupError> {
    run_watched(spec, &Progress::default())
}

/// As [`run`], with a view from outside. `progress` never changes what is simulated, except by
/// ending it.
pub fn run_watched(spec: &RunSpec, progress: &Progress) -> Result<RunRecord, SetupError> {
    Ok(drive(Sim::boot(spec)?, spec, progress))
}

/// As [`run`], with a scheduler of the caller's instead of the release's: for tests of the checkers
/// and for schedulers outside the registry.
pub fn run_with(
    spec: &RunSpec,
    make: &dyn Fn(&Topology) -> Box<dyn Scheduler>,
) -> Result<RunRecord, SetupError> {
    let sim = Sim::boot_with(spec, &|topo, _, _| Some(make(topo)))?;
    Ok(drive(sim.expect("a scheduler is always made"), spec, &Progress::default()))
}

/// From the booted `sim` to its record.
fn drive(mut sim: Sim, spec: &RunSpec, progress: &Progress) -> RunRecord {
    let control = sim.cpus.len();
    sim.events.set(control, CHECK);
    let checker = spec.checks.then(Checker::default);
    let mut watch = Watch { progress, spec, warm: false, checker };
    sim.run(&mut watch);
    let checks = watch.checker.map(|k| k.report);
    sim.into_record(spec, checks)
}

/// State of the control slot.
pub(crate) struct Watch<'a> {
    progress: &'a Progress,
    spec: &'a RunSpec,
    /// The warm-up is over.
    warm: bool,
    checker: Option<Checker>,
}

impl Sim {
    /// The control slot's event: windows, limits, the outside world. True ends the run.
    #[inline(never)]
    pub(crate) fn control(&mut self, w: &mut Watch, t: Ns) -> bool {
        w.progress.simulated_ns.store(t.0, Ordering::Relaxed);
        w.progress.events.store(self.stats.events, Ordering::Relaxed);
        if w.progress.stop.load(Ordering::Relaxed) {
            return true;
        }
        if let Some(k) = &mut w.checker {
            self.check(k, t);
        }
        if self.is_dead() {
            return true;
        }
        let mut next = t + CHECK;
        // From the benchmark's start, in case it is over before the warm-up is.
        if self.stats.mark_start.is_some() && self.stats.window.is_none() {
            self.open_window(t, w.spec);
        }
        match w.spec.sampling {
            Sampling::Full { limit } => {
                if t >= limit {
                    return true;
                }
                next = next.min(limit);
            }
            Sampling::Window { warmup, window } => {
                if let Some(start) = self.stats.mark_start {
                    if w.warm {
                        self.look_at_groups();
                        self.note_half(t, window);
                    } else if t >= start + warmup {
                        w.warm = true;
                        self.open_window(t, w.spec);
                    }
                    let opened = self.stats.window.as_ref().map_or(t, |s| s.at);
                    let due = if w.warm { opened + window } else { start + warmup };
                    if t >= due {
                        return true;
                    }
                    next = next.min(due);
                } else if t >= FULL_LIMIT {
                    // What comes before the benchmark takes longer than it may itself.
                    self.open_window(t, w.spec);
                    return true;
                }
            }
        }
        self.events.set(self.cpus.len(), next);
        false
    }

    /// Who runs and who waits for a CPU at this moment, by the group of the channel in use. A task
    /// that waits elsewhere, as one that has not begun, may be what any group is waiting for.
    fn look_at_groups(&mut self) {
        let nr_cpus = self.cpus.len();
        let mut elsewhere = 0;
        for (i, (k, t)) in self.tasks.iter().zip(&self.sh.tasks).enumerate().skip(nr_cpus) {
            if !t.on_rq || t.state != TaskState::Running || t.mm == 0 {
                continue;
            }
            let runs = self.sh.rqs[t.cpu.ix()].curr.ix() == i;
            let group = match k.op {
                Op::Read { from: ch, .. } | Op::Write { to: ch, .. } => {
                    match &self.channels[ch.ix()] {
                        Channel::Pipe(pipe) => pipe.group,
                        Channel::Unix(sock) => sock.group,
                    }
                }
                _ => u16::MAX,
            };
            match self.stats.groups.get_mut(usize::from(group)) {
                Some(g) if runs => g.seen_running += 1,
                Some(g) => g.seen_waiting += 1,
                None => elsewhere += u64::from(!runs),
            }
        }
        self.stats.groups.iter_mut().for_each(|g| g.seen_waiting += elsewhere);
    }

    /// How far the groups are when half of the `window` is over, or soon after.
    fn note_half(&mut self, t: Ns, window: Ns) {
        let s = &mut self.stats;
        let opened = s.window.as_ref().map_or(t, |w| w.at);
        if s.half.is_none() && t >= opened + Ns(window.0 / 2) {
            s.half = Some(t);
            s.groups.iter_mut().for_each(|g| g.at_half = g.done);
        }
    }

    /// Nothing can happen any more: every CPU is stopped, and no timer or interrupt is pending.
    fn is_dead(&self) -> bool {
        self.cpus.iter().all(|c| c.is_stopped() && c.ipi_at >= Ns::NEVER && c.timer_at >= Ns::NEVER)
    }

    fn open_window(&mut self, at: Ns, spec: &RunSpec) {
        self.settle_all(at);
        let ledger = self.spent(None);
        let schedstat = if spec.schedstat { self.counted() } else { Counted::default() };
        let s = &mut self.stats;
        if spec.timeline_of_window {
            s.events_until(at);
            s.timeline = Timeline::default();
        }
        s.wakeup_latency = Histogram::default();
        s.sched_delay = Histogram::default();
        s.latencies.fill(Latency::default());
        for g in &mut s.groups {
            (g.at_start, g.seen_running, g.seen_waiting) = (g.done, 0, 0);
        }
        s.window = Some(Snapshot {
            at,
            count: s.counters(at),
            switches: s.switches.clone(),
            placements: s.placements.clone(),
            migrations: s.migrations.clone(),
            idle: s.idle.clone(),
            ledger,
            events: s.events,
            schedstat,
        });
    }

    /// Books waiting and idle time up to `t` on all CPUs.
    pub(crate) fn settle_all(&mut self, t: Ns) {
        for c in 0..self.cpus.len() {
            let c = Cpu::from_ix(c);
            self.settle(c, t);
            self.stats.task_clock(c, self.curr(c), t);
        }
    }

    /// The ledger since `from` without what is planned and lies ahead. Of a kernel path that is
    /// cut here the whole rest is taken from the function that the CPU is in.
    fn spent(&self, from: Option<&Ledger>) -> Ledger {
        let mut ledger = match from {
            Some(from) => self.sh.ledger.since(from),
            None => self.sh.ledger.clone(),
        };
        for (c, cpu) in self.cpus.iter().enumerate() {
            let user = cpu.planned_user(self.now);
            let kernel = cpu.planned(self.now).saturating_sub(user);
            let func = match cpu.frames[0] {
                Frame::IdleExit | Frame::EnterIdle => Func::IdleExit,
                _ => cpu.func,
            };
            for (func, ahead) in [(Func::User, user), (func, kernel)] {
                if ahead.0 > 0 {
                    ledger.unbook(Cpu::from_ix(c), func, Resource::None, ahead);
                }
            }
        }
        ledger
    }

    fn into_record(mut self, spec: &RunSpec, checks: Option<CheckReport>) -> RunRecord {
        let end = self.now;
        self.settle_all(end);
        if self.stats.window.is_none() {
            // The benchmark was over before anybody looked: the whole run is the window.
            self.stats.window = Some(Snapshot {
                at: Ns::ZERO,
                count: Default::default(),
                switches: Default::default(),
                placements: Default::default(),
                migrations: Default::default(),
                idle: Default::default(),
                ledger: Ledger::new(self.cpus.len()),
                events: 0,
                schedstat: Counted::default(),
            });
        }
        let gaps = (0..self.cpus.len()).map(|c| self.ledger_gap(Cpu::from_ix(c)));
        let ledger_gap = gaps.max().unwrap_or(0);
        let bytes = self.bytes_per_task();
        let nr_cpus = self.cpus.len();
        let nr_tasks = self.tasks.len() - 2 * nr_cpus;
        if spec.timeline > 0 {
            self.stats.events_until(Ns::NEVER);
            let rows = self.task_rows(spec.workload.comm());
            self.stats.timeline.name_tasks(rows);
        }
        let from = self.stats.window.as_ref().map(|w| &w.schedstat);
        let schedstat = from.filter(|_| spec.schedstat).map(|from| self.schedstat(from));
        let spent = self.spent(self.stats.window.as_ref().map(|w| &w.ledger));
        let mut s = self.stats;
        let w = s.window.take().expect("set above");
        let started = s.mark_start.unwrap_or(Ns::ZERO);
        let groups: Vec<GroupProgress> = s
            .groups
            .iter()
            .map(|g| GroupProgress {
                goal: g.goal,
                at_window_start: g.at_start,
                at_half: g.at_half,
                at_window_end: g.done,
                finished_at: g.finished_at,
                seen_running: g.seen_running,
                seen_waiting: g.seen_waiting,
            })
            .collect();
        let time = match (s.mark_start, s.mark_stop) {
            (Some(a), Some(b)) => Some(b - a),
            (Some(a), None) if matches!(spec.sampling, Sampling::Window { .. }) => {
                extrapolate(&groups, a, (w.at, end))
            }
            _ => None,
        };
        let used = |(i, u): (usize, &IdleUse)| u.since(w.idle.get(i));
        let idle_states = s.idle.iter().enumerate().map(used).collect();
        RunRecord {
            machine: spec.machine.name.clone(),
            kernel: format!("{}{}", spec.release.name, spec.variation.without),
            workload: spec.workload.command_line(),
            seed: spec.seed,
            nr_cpus,
            nr_tasks,
            started,
            window: (w.at, end),
            half: s.half,
            complete: s.mark_stop.is_some(),
            time,
            groups,
            counters: s.counters(end).since(&w.count),
            switches: s.switches.since(&w.switches).by_name(),
            placements: s.placements.since(&w.placements).by_name(),
            migrations: s.migrations.since(&w.migrations).by_name(),
            cpu_time: spent.rows(),
            idle_states,
            wakeup_latency: s.wakeup_latency,
            sched_delay: s.sched_delay,
            latencies: s.latencies,
            events: s.events - w.events,
            hash: s.hash,
            bytes_per_task: bytes,
            ledger_gap,
            checks,
            timeline: s.timeline,
            schedstat,
        }
    }

    /// The tasks as a trace names them. Every address space is a process.
    fn task_rows(&self, comm: &str) -> Vec<TaskRow> {
        let nr_cpus = self.cpus.len();
        let mut first_of_mm = BTreeMap::new();
        let row = |(i, t): (usize, &vruntime_sched::task::Task)| {
            let (comm, pid) = match (i < nr_cpus, i < 2 * nr_cpus) {
                (true, _) => (format!("swapper/{i}"), 0),
                (_, true) => (format!("migration/{}", i - nr_cpus), i as u32 + 1),
                _ => (comm.to_string(), pid(TaskId::from_ix(i))),
            };
            let tgid = match i < 2 * nr_cpus {
                true => pid,
                false => *first_of_mm.entry(t.mm).or_insert(pid),
            };
            TaskRow { comm, pid, tgid }
        };
        self.sh.tasks.iter().enumerate().map(row).collect()
    }

    /// Bytes of all arrays that grow with tasks, per task.
    fn bytes_per_task(&self) -> u64 {
        let n = (self.tasks.len() - 2 * self.cpus.len()).max(1);
        let fixed = size_of::<Task>() + size_of::<KTask>() + size_of::<Entity>();
        let channels = self.channels.len() * size_of::<Channel>();
        (fixed + channels / n) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_costs_at_most_384_bytes() {
        // hackbench has one channel for two tasks. A list of wakeups adds 8 bytes at times.
        let task = size_of::<Task>() + size_of::<KTask>() + size_of::<Entity>();
        let all = task + size_of::<Channel>() / 2;
        assert!(all <= 384, "{all}");
    }
}
