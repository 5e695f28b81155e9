//! The second driver of the scheduler: time and events come from a recorded trace, decisions from
//! the same code as under `simulate`, and what differs is reported.
//!
//! | folder | |
//! |---|---|
//! | `rows` | what a recording holds |
//! | `rebuild` | the state that a plain trace lets one rebuild, as rows of the same shape |
//! | `state` | what the rows tell of the kernel's state at a moment |
//! | `question` | that state as the scheduler's code wants it, and what is not known of it |
//! | `judge` | the kinds of decision: asked, compared, explained |
//!
//! Each knows those above it; `rebuild` takes virtual times from `question::decide` as well.

pub mod judge;
pub mod question;
pub mod rebuild;
pub mod rows;
pub mod state;
#[cfg(test)]
mod tests;

use judge::explain::{self, Explained, Found};
use judge::idlest::{self, Idlest};
use judge::migration::Migrations;
use judge::pick::Picks;
use judge::placement::{self, Facts, Placements};
use judge::preempt::Preempts;
use judge::result::ShadowResult;
use judge::tick::Ticks;
use question::decide::Decider;
use rows::neighbours::next_rows;
use rows::trace::{RowKind, Trace};
use rows::wakes::Wakes;
use state::idle::Idleness;
use state::loads::Loads;
use state::one_level::OneLevel;
use state::queues::Queues;
use state::tasks::Tasks;
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
    mut log: Option<&mut Vec<Explained>>,
) -> ShadowResult {
    let wakes = Wakes::new(trace);
    let slack = typical_wakeup_ns(trace, &wakes);
    let clear_first = release.ttwu_pending_clear == TtwuPendingClear::BeforeEnqueue;
    let idle = Idleness::new(trace, &wakes, slack, clear_first);
    let loads = Loads::new(trace);
    let tasks = Tasks::new(trace, &wakes);
    let (idle, loads, tasks) = (&idle, &loads, &tasks);
    let domains = &Domains::build_without(topology, release, &trace.isolated);
    let facts = Facts { trace, topology, domains, release, wakes: &wakes, idle, loads, tasks };
    let next = next_rows(trace);
    let one_level = OneLevel::new(trace.rebuilt);
    let decider = Decider::new(release, trace.nr_cpus, one_level);
    let mut queues = Queues::new(trace);
    let mut placements = Placements::new(&facts);
    let mut preempts = Preempts::new(trace, release, &decider, &next, 2 * slack);
    let mut picks = Picks::new(release, &decider);
    let mut ticks = Ticks::new(trace, release, &decider);
    let mut migrations = Migrations::new(&facts, &next, slack);
    let mut idlest = Idlest::new(&facts, &next, slack);
    let (from, to) = window(trace);
    let mut resched_rows: Vec<Vec<usize>> = vec![vec![]; trace.nr_cpus];
    for (i, r) in trace.rows.iter().enumerate() {
        let inside = (from..=to).contains(&r.ts);
        ticks.note(r, &queues);
        if inside {
            ticks.check(r, &queues);
            if let Some(log) = &mut log {
                let mut found = Found::of(&mut ticks.counts, &ticks.disagreements);
                log.extend(explain::tick(&mut found, r, &queues.cpus[r.cpu.ix()]));
            }
        }
        let here = &mut resched_rows[r.cpu.ix()];
        match r.kind {
            RowKind::SelectRq if inside && placement::is_slow(r) => {
                let known = idlest.check(i, &queues, &migrations);
                if let Some(log) = &mut log {
                    let fork = idlest::is_fork(r);
                    let counts = if fork { &mut idlest.forks } else { &mut idlest.execs };
                    let mut found = Found::of(counts, &idlest.disagreements);
                    let state = known.map_or(vec![], |m| idlest::state(&m, &facts));
                    log.extend(explain::idlest(&mut found, r, state));
                }
            }
            RowKind::SelectRq if inside => {
                placements.check(i, &queues);
                if let Some(log) = &mut log {
                    let mut found = Found::of(&mut placements.fast, &placements.disagreements);
                    log.extend(explain::placement(&mut found, &facts, i, &queues));
                }
            }
            RowKind::Wakeup | RowKind::WakeupNew => {
                if inside {
                    preempts.check(i, here, &queues);
                    if let Some(log) = &mut log {
                        let kernel = preempts.kernel;
                        let mut found = Found::of(&mut preempts.counts, &preempts.disagreements);
                        log.extend(explain::preemption(&mut found, kernel, r, &queues));
                    }
                }
                queues.preempted(trace, r, &preempts.asked(i, here), release);
                here.clear();
            }
            RowKind::Switch => {
                queues.yielded(trace, r, release);
                if inside {
                    picks.check(r, &queues);
                    if let Some(log) = &mut log {
                        let mut found = Found::of(&mut picks.counts, &picks.disagreements);
                        log.extend(explain::pick(&mut found, r, &queues));
                    }
                }
                here.clear();
            }
            RowKind::NeedResched => here.push(i),
            RowKind::Migrate if inside => {
                let judged = migrations.check(i, &queues);
                if let Some(log) = &mut log {
                    let m = &mut migrations;
                    let of = |kind: &str| m.disagreements.iter().rfind(|d| d.kind == kind);
                    let (sources, tasks) = (of("migration"), of("migration_tasks"));
                    let mut source = Found { counts: &mut m.sources, differs: sources };
                    let mut taken = Found { counts: &mut m.tasks, differs: tasks };
                    let told = judged
                        .then(|| explain::migration(&mut source, &mut taken, trace, r, &queues));
                    log.extend(told.flatten().or_else(|| explain::moved(trace, r, &queues)));
                }
            }
            _ => {}
        }
        idlest.note(i, &queues);
        queues.apply(trace, r);
        migrations.note(i, &queues);
        placements.note_cpu(r);
        placements.note_util(r, &queues);
        if r.kind == RowKind::Switch && r.n.is_some_and(|n| n.pid == 0) {
            placements.note_idle(r);
        }
    }
    let mut disagreements = placements.disagreements;
    disagreements.extend(idlest.disagreements);
    disagreements.extend(preempts.disagreements);
    disagreements.extend(picks.disagreements);
    disagreements.extend(ticks.disagreements);
    disagreements.extend(migrations.disagreements);
    disagreements.sort_by_key(|d| d.time);
    let mut kinds = vec![
        placements.fast,
        idlest.forks,
        idlest.execs,
        preempts.counts,
        picks.counts,
        ticks.counts,
        migrations.sources,
        migrations.tasks,
    ];
    kinds.retain(|k| k.determined + k.undetermined > 0);
    if trace.rebuilt {
        for k in &mut kinds {
            k.state = "reconstructed".into();
        }
    }
    ShadowResult { kinds, disagreements }
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
