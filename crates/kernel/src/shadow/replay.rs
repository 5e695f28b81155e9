//! The replay: row by row, what the scheduler's code would have decided, and what the row tells.

use super::judge::explain::{self, Explained, Found};
use super::judge::idlest::{self, Idlest};
use super::judge::migration::Migrations;
use super::judge::pick::Picks;
use super::judge::placement::{self, Facts, Placements};
use super::judge::preempt::Preempts;
use super::judge::result::ShadowResult;
use super::judge::tick::Ticks;
use super::question::decide::Decider;
use super::rows::neighbours::next_rows;
use super::rows::trace::{Row, RowKind, Side, Trace};
use super::rows::wakes::Wakes;
use super::state::idle::Idleness;
use super::state::loads::Loads;
use super::state::one_level::OneLevel;
use super::state::queues::Queues;
use super::state::tasks::Tasks;
use super::state::utilisation::Utilisation;
use vruntime_machine::Topology;
use vruntime_sched::domains::Domains;
use vruntime_sched::release::{Release, TtwuPendingClear};

/// Replays `trace`, recorded on a machine of `topology` that ran `release`.
pub fn check(trace: &Trace, topology: &Topology, release: &Release) -> ShadowResult {
    replay(trace, topology, release, None)
}

/// As [`check`], with every decision in words.
pub fn explain(
    trace: &Trace,
    topology: &Topology,
    release: &Release,
) -> (ShadowResult, Vec<Explained>) {
    let mut log = vec![];
    let found = replay(trace, topology, release, Some(&mut log));
    (found, log)
}

fn replay(
    trace: &Trace,
    topology: &Topology,
    release: &Release,
    log: Option<&mut Vec<Explained>>,
) -> ShadowResult {
    let wakes = Wakes::new(trace);
    let slack = typical_wakeup_ns(trace, &wakes);
    let clear_first = release.ttwu_pending_clear == TtwuPendingClear::BeforeEnqueue;
    let idle = &Idleness::new(trace, &wakes, slack, clear_first);
    let loads = &Loads::new(trace);
    let tasks = &Tasks::new(trace, &wakes);
    let domains = &Domains::build_without(topology, release, &trace.isolated);
    let utils = &Utilisation::new(trace, release.tick_ns());
    let wakes = &wakes;
    let facts = Facts { trace, topology, domains, release, wakes, idle, loads, tasks, utils };
    let decider = Decider::new(release, trace.nr_cpus, OneLevel::new(trace.rebuilt));
    let next = next_rows(trace);
    let mut replay = Replay::new(&facts, &decider, &next, slack, log);
    let (from, to) = window(trace);
    for (i, r) in trace.rows.iter().enumerate() {
        replay.row(i, r, (from..=to).contains(&r.ts));
    }
    replay.result()
}

/// Where a replay is: the state as of the last row, and what was found so far.
struct Replay<'a> {
    f: &'a Facts<'a>,
    queues: Queues,
    /// By CPU, the calls of `resched_curr` since its last activation or switch.
    resched_rows: Vec<Vec<usize>>,
    /// By CPU, the last move of a task that it made.
    last_move: Vec<Option<usize>>,
    placements: Placements<'a>,
    idlest: Idlest<'a>,
    preempts: Preempts<'a>,
    picks: Picks<'a>,
    ticks: Ticks<'a>,
    migrations: Migrations<'a>,
    log: Option<&'a mut Vec<Explained>>,
}

impl<'a> Replay<'a> {
    fn new(
        f: &'a Facts<'a>,
        decider: &'a Decider<'a>,
        next: &'a [Option<usize>],
        slack: u64,
        log: Option<&'a mut Vec<Explained>>,
    ) -> Replay<'a> {
        Replay {
            f,
            queues: Queues::new(f.trace),
            resched_rows: vec![vec![]; f.trace.nr_cpus],
            last_move: vec![None; f.trace.nr_cpus],
            placements: Placements::new(f),
            idlest: Idlest::new(f, next, slack),
            preempts: Preempts::new(f.trace, f.release, decider, next, 2 * slack),
            picks: Picks::new(f.release, decider),
            ticks: Ticks::new(f.trace, f.release, decider),
            migrations: Migrations::new(f, next, slack),
            log,
        }
    }

    /// Row `i`. Questions are asked of rows `inside` the window, on the state before the row; the
    /// row itself tells its part after that.
    fn row(&mut self, i: usize, r: &Row, inside: bool) {
        self.ticks.note(r, &self.queues);
        if inside {
            self.tick(r);
        }
        match r.kind {
            RowKind::SelectRq if inside && placement::is_slow(r) => self.fork_or_exec(i, r),
            RowKind::SelectRq if inside => self.placement(i),
            RowKind::Wakeup | RowKind::WakeupNew => self.activation(i, r, inside),
            RowKind::Switch => self.switch(r, inside),
            RowKind::NeedResched => {
                self.resched_rows[r.cpu.ix()].push(i);
                self.arrival(i, r);
            }
            RowKind::Migrate if inside => self.migration(i, r),
            _ => {}
        }
        if r.kind == RowKind::Migrate {
            self.last_move[r.cpu.ix()] = Some(i);
        }
        self.note(i, r);
    }

    fn tick(&mut self, r: &Row) {
        self.ticks.check(r, &self.queues);
        if let Some(log) = &mut self.log {
            let mut found = Found::of(&mut self.ticks.counts, &self.ticks.disagreements);
            log.extend(explain::tick(&mut found, r, &self.queues.cpus[r.cpu.ix()]));
        }
    }

    fn fork_or_exec(&mut self, i: usize, r: &Row) {
        let all = &mut self.idlest;
        let known = all.check(i, &self.queues, &self.migrations);
        if let Some(log) = &mut self.log {
            let fork = idlest::is_fork(r);
            let counts = if fork { &mut all.forks } else { &mut all.execs };
            let mut found = Found::of(counts, &all.disagreements);
            let state = known.map_or(vec![], |m| idlest::state(&m, self.f));
            log.extend(explain::idlest(&mut found, r, state));
        }
    }

    fn placement(&mut self, i: usize) {
        let all = &mut self.placements;
        all.check(i, &self.queues);
        if let Some(log) = &mut self.log {
            let mut found = Found::of(&mut all.fast, &all.disagreements);
            log.extend(explain::placement(&mut found, self.f, i, &self.queues));
        }
    }

    /// Whether the check for preemption asked tells of the queue, after it was judged.
    fn activation(&mut self, i: usize, r: &Row, inside: bool) {
        let here = &mut self.resched_rows[r.cpu.ix()];
        let all = &mut self.preempts;
        if inside {
            all.check(i, here, &self.queues);
            if let Some(log) = &mut self.log {
                let kernel = all.kernel;
                let mut found = Found::of(&mut all.counts, &all.disagreements);
                log.extend(explain::preemption(&mut found, kernel, r, &self.queues));
            }
        }
        self.queues.preempted(self.f.trace, r, &all.asked(i, here), self.f.release);
        here.clear();
    }

    /// A task that a stopper has moved is put to the same check as one that wakes up. Of several
    /// that the balancer attaches, a request does not tell which asked.
    fn arrival(&mut self, i: usize, r: &Row) {
        let t = self.f.trace;
        let moved = self.last_move[r.cpu.ix()].map(|m| &t.rows[m]);
        let Some(moved) = moved.filter(|m| m.dst_ix(t.nr_cpus) == Some(r.rq_cpu.ix())) else {
            return;
        };
        if ["move_queued_task", "attach_one_task"].iter().any(|f| t.has_frame(r, f)) {
            let p = Side { cfs_nr: r.p.cfs_nr, ..moved.p };
            self.queues.preempted(t, &Row { p, ..r.clone() }, &[i], self.f.release);
        }
    }

    fn switch(&mut self, r: &Row, inside: bool) {
        self.queues.yielded(self.f.trace, r, self.f.release);
        if inside {
            let passed_over = self.picks.check(r, &self.queues);
            if let Some(log) = &mut self.log {
                let mut found = Found::of(&mut self.picks.counts, &self.picks.disagreements);
                log.extend(explain::pick(&mut found, r, &self.queues));
            }
            if let Some(pid) = passed_over.filter(|_| self.f.trace.rebuilt) {
                self.queues.passed_over(r.cpu, pid);
            }
        }
        self.resched_rows[r.cpu.ix()].clear();
    }

    fn migration(&mut self, i: usize, r: &Row) {
        let all = &mut self.migrations;
        let judged = all.check(i, &self.queues);
        if let Some(log) = &mut self.log {
            let (t, q) = (self.f.trace, &self.queues);
            let last = |kind: &str| all.disagreements.iter().rfind(|d| d.kind == kind);
            let (source, tasks) = (last("migration"), last("migration_tasks"));
            let mut source = Found { counts: &mut all.sources, differs: source };
            let mut taken = Found { counts: &mut all.tasks, differs: tasks };
            let told = judged.then(|| explain::migration(&mut source, &mut taken, t, r, q));
            log.extend(told.flatten().or_else(|| explain::moved(t, r, q)));
        }
    }

    /// What the row tells for later questions.
    fn note(&mut self, i: usize, r: &Row) {
        self.idlest.note(i, &self.queues);
        self.queues.apply(self.f.trace, r);
        self.queues.attached(self.f.trace, r, self.f.release);
        self.migrations.note(i, &self.queues);
        self.placements.note_cpu(i, r);
        self.placements.note_util(r, &self.queues);
        if r.kind == RowKind::Switch && r.n.is_some_and(|n| n.pid == 0) {
            self.placements.note_idle(r);
        }
    }

    fn result(self) -> ShadowResult {
        let mut disagreements = self.placements.disagreements;
        disagreements.extend(self.idlest.disagreements);
        disagreements.extend(self.preempts.disagreements);
        disagreements.extend(self.picks.disagreements);
        disagreements.extend(self.ticks.disagreements);
        disagreements.extend(self.migrations.disagreements);
        disagreements.sort_by_key(|d| d.time);
        let mut kinds = vec![
            self.placements.fast,
            self.idlest.forks,
            self.idlest.execs,
            self.preempts.counts,
            self.picks.counts,
            self.ticks.counts,
            self.migrations.sources,
            self.migrations.tasks,
        ];
        kinds.retain(|k| k.determined + k.undetermined > 0);
        if self.f.trace.rebuilt {
            for k in &mut kinds {
                k.state = "reconstructed".into();
            }
        }
        ShadowResult { kinds, disagreements }
    }
}

/// Median time from `waking` to `select_rq`: how long a stretch of kernel code takes on the
/// machine of the recording.
fn typical_wakeup_ns(t: &Trace, wakes: &Wakes) -> u64 {
    let mut d: Vec<u64> = wakes
        .list
        .iter()
        .filter_map(|w| Some(t.rows[w.select?].ts - t.rows[w.waking?].ts))
        .collect();
    d.sort_unstable();
    d.get(d.len() / 2).copied().unwrap_or(1_000)
}

/// The span in which all tracepoints were being recorded: they are switched on and off one after
/// another.
fn window(t: &Trace) -> (u64, u64) {
    let kinds = [RowKind::Switch, RowKind::Waking, RowKind::Wakeup, RowKind::NeedResched];
    let of = |k: RowKind| t.rows.iter().filter(move |r| r.kind == k).map(|r| r.ts);
    let from = kinds.iter().filter_map(|&k| of(k).min()).max().unwrap_or(0);
    let to = kinds.iter().filter_map(|&k| of(k).max()).min().unwrap_or(u64::MAX);
    (from, to)
}
