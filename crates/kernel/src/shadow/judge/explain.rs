//! Decisions in words: what the kernel did, by which rule our code does the same or not, and what
//! was known of the state.
//!
//! A move by the balancer is told with its pass. Other moves, and those of a plain trace, are named
//! by the path that made them, going by the call chain or by who ran there.

use super::placement::Facts;
use super::result::{Disagreement, KindResult, Outcome};
use crate::shadow::rebuild::moves::UNKNOWN;
use crate::shadow::rebuild::wakeups::MOST_FLIPS;
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use crate::shadow::state::queues::{CpuState, Queues};
use serde::Serialize;
use vruntime_base::Cpu;
use vruntime_sched::fair::weight::task_virtual_time;

/// One decision.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// When, ns.
    pub time: u64,
    /// On which CPU.
    pub cpu: u16,
    /// Line of `state.csv`, or number of the event.
    pub line: u64,
    /// `placement`, `placement_fork`, `placement_exec`, `wakeup_preemption`, `pick`,
    /// `tick_preemption`, `migration`, or `move`: one that is not judged.
    pub kind: &'static str,
    /// Task that it is about.
    pub task: i64,
    /// What happened.
    pub event: String,
    /// What the kernel decided.
    pub kernel: String,
    /// What our code decides, if it is not the same.
    pub ours: Option<String>,
    /// The rule that our code took; of a move, the path.
    pub rule: Option<String>,
    /// Values that are not known and tip the decision.
    pub unknown: Vec<&'static str>,
    /// The state that it saw: name and value.
    pub state: Vec<(String, String)>,
}

/// What was found out about one decision.
pub(in crate::shadow) struct Found<'a> {
    /// Its kind's counts, whose last outcome this is.
    pub counts: &'a mut KindResult,
    /// The last disagreement of the kind.
    pub differs: Option<&'a Disagreement>,
}

impl<'a> Found<'a> {
    /// Of the decision that was just counted.
    pub fn of(counts: &'a mut KindResult, disagreements: &'a [Disagreement]) -> Found<'a> {
        Found { counts, differs: disagreements.last() }
    }
    fn take(
        &mut self,
        r: &Row,
        kind: &'static str,
        task: i64,
        event: String,
        kernel: String,
    ) -> Option<Explained> {
        let (rule, unknown, agrees) = match self.counts.last.take()? {
            Outcome::Rule(name, agrees) => (Some(name), vec![], agrees),
            Outcome::Missing(names) => (None, names, true),
        };
        let ours = self.differs.filter(|_| !agrees).map(|d| d.got.clone());
        let (time, cpu, line, state) = (r.ts, r.cpu.0, r.line, vec![]);
        Some(Explained { time, cpu, line, kind, task, event, kernel, ours, rule, unknown, state })
    }
}

fn yes(b: Option<bool>) -> &'static str {
    match b {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    }
}

/// With its sign.
pub(super) fn ms(ns: i64) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    format!("{sign}{}", size(ns.unsigned_abs()))
}

/// A difference of virtual times, which is far where one of them is not known.
pub(super) fn gap(ns: i64) -> String {
    if ns.unsigned_abs() > 1 << 38 { "not known".into() } else { ms(ns) }
}

/// In ms, to the microsecond.
pub(super) fn size(ns: u64) -> String {
    let us = ns.saturating_add(500) / 1_000;
    format!("{}.{:03} ms", us / 1_000, us % 1_000)
}

/// A number known as far as from and to.
pub(super) fn range((lo, hi): (u64, u64)) -> String {
    if lo == hi { lo.to_string() } else { format!("{lo} to {hi}") }
}

/// `value` in words, if there is one.
pub(super) fn known<T>(value: Option<T>, words: impl Fn(T) -> String) -> String {
    value.map_or("not known".into(), words)
}

/// How many, known as far as from and to; above 64 nothing is.
pub(super) fn tasks((lo, hi): (u64, u64)) -> String {
    if hi >= 64 && lo != hi { "not known".into() } else { range((lo, hi)) }
}

fn entry(name: impl Into<String>, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

/// A choice of a CPU, row `at`.
pub(in crate::shadow) fn placement(
    found: &mut Found,
    f: &Facts,
    at: usize,
    q: &Queues,
) -> Option<Explained> {
    let r = &f.trace.rows[at];
    let own = f.wakes.of_row(at);
    let waking = own.and_then(|w| f.wakes.list[w].waking).map_or(r, |i| &f.trace.rows[i]);
    let prev = r.wake_cpu.unwrap_or(-1);
    let event = format!("is woken by task {}; it last ran on CPU {prev}", r.curr_pid);
    let mut e = found.take(r, "placement", r.p.pid, event, format!("CPU {}", r.task_cpu()))?;
    let idle = |c: Cpu| f.idle.at(c, waking.ts, r.ts, own);
    let mut near = vec![];
    if let Some(prev) = usize::try_from(prev).ok().filter(|&c| c < f.trace.nr_cpus) {
        let prev = Cpu::from_ix(prev);
        e.state.push(entry(format!("CPU {prev} (prev) idle"), yes(idle(prev))));
        near.extend(f.topology.llc(prev).iter());
    }
    e.state.push(entry(format!("CPU {} (waker's) idle", r.cpu), yes(idle(r.cpu))));
    near.extend(f.topology.llc(r.cpu).iter());
    near.sort_unstable();
    near.dedup();
    let name = |c: &Cpu| match idle(*c) {
        Some(true) => Some(c.to_string()),
        Some(false) => None,
        None => Some(format!("{c}?")),
    };
    let list: Vec<String> = near.iter().filter_map(name).collect();
    e.state.push(entry("idle in both caches (? = not known)", list.join(" ")));
    let running = tasks(q.nr_running(r.cpu, r, waking));
    e.state.push(entry(format!("tasks on CPU {}", r.cpu), running));
    let flips = |n: Option<i64>, more: i64| match n {
        Some(n) if more == 0 => n.to_string(),
        Some(n) if more >= MOST_FLIPS => format!("{n} and those from before the trace"),
        Some(n) => format!("{n} or up to {more} more"),
        None => "not known".into(),
    };
    e.state.push(entry(
        "wakee_flips of the waker",
        flips(r.curr_wakee_flips, r.flips_more.0 + r.flips_own.0),
    ));
    e.state.push(entry(
        "wakee_flips of the wakee",
        flips(r.wakee_flips, r.flips_more.1 + r.flips_own.1),
    ));
    let recent = waking.recent_used_cpu.map_or("not recorded".into(), |c| c.to_string());
    e.state.push(entry("recent_used_cpu", recent));
    for c in [Some(r.cpu), usize::try_from(prev).ok().map(Cpu::from_ix)].into_iter().flatten() {
        if c.ix() < f.trace.nr_cpus
            && let Some(load) = f.loads.at(c, waking.ts, r.ts)
        {
            e.state.push(entry(format!("load of CPU {c}"), range(load)));
        }
    }
    e.state.dedup_by(|a, b| a.0 == b.0);
    Some(e)
}

/// A choice of a CPU for a new task, or for one that calls exec.
pub(in crate::shadow) fn idlest(
    found: &mut Found,
    r: &Row,
    state: Vec<(String, String)>,
) -> Option<Explained> {
    let (kind, event) = match super::idlest::is_fork(r) {
        true => ("placement_fork", format!("is forked by task {} on CPU {}", r.curr_pid, r.cpu)),
        false => ("placement_exec", format!("calls exec on CPU {}", r.cpu)),
    };
    let mut e = found.take(r, kind, r.p.pid, event, format!("CPU {}", r.task_cpu()))?;
    e.state = state;
    Some(e)
}

/// The preemption check of an activation.
pub(in crate::shadow) fn preemption(
    found: &mut Found,
    kernel: Option<bool>,
    r: &Row,
    q: &Queues,
) -> Option<Explained> {
    let s = &q.cpus[r.rq_cpu.ix()];
    let curr = s.curr.unwrap_or(-1);
    let event = match curr {
        0 => format!("becomes runnable on CPU {}, which is idle", r.rq_cpu),
        _ => format!("becomes runnable on CPU {}, where task {curr} runs", r.rq_cpu),
    };
    let kernel = match kernel {
        Some(true) => "asks for a reschedule",
        Some(false) => "leaves the running task alone",
        None => "not known",
    };
    let mut e = found.take(r, "wakeup_preemption", r.p.pid, event, kernel.into())?;
    if let Some((side, clock)) = s.running.filter(|(side, _)| side.pid != 0) {
        let ran = r.clock_task.unwrap_or(0) - clock;
        e.state
            .push(entry("running", format!("task {}, for {}", side.pid, size(ran.max(0) as u64))));
        e.state.push(entry("vruntime, wakee - running", virtual_gap(&r.p, &side, ran)));
        e.state.push(entry("weights (wakee, running)", weights(&r.p, &side)));
    }
    e.state.push(entry("entities on the queue", r.p.cfs_nr.to_string()));
    Some(e)
}

fn weights(a: &Side, b: &Side) -> String {
    format!("{}, {}", a.weight >> 10, b.weight >> 10)
}

fn virtual_gap(wakee: &Side, curr: &Side, ran: i64) -> String {
    let ran = task_virtual_time(ran.max(0) as u64, curr.weight);
    let gap = wakee.vruntime.wrapping_sub(curr.vruntime.wrapping_add(ran)) as i64;
    let slop = wakee.slop.saturating_add(curr.slop);
    match slop {
        0 => ms(gap),
        s if s > VAGUE => "not known".into(),
        s => format!("{} give or take {}", ms(gap), size(s)),
    }
}

/// A switch to a fair task.
pub(in crate::shadow) fn pick(found: &mut Found, r: &Row, q: &Queues) -> Option<Explained> {
    let n = r.n?;
    let event = match (r.p.pid, r.p.on_rq) {
        (0, _) => format!("CPU {} leaves its idle task", r.cpu),
        (p, true) => format!("CPU {} switches from task {p}, which could run on", r.cpu),
        (p, false) => format!("CPU {} switches from task {p}, which sleeps", r.cpu),
    };
    let kernel = format!("task {} is picked", n.pid);
    let mut e = found.take(r, "pick", n.pid, event, kernel)?;
    let mut all: Vec<Side> = q.cpus[r.cpu.ix()].queued.values().map(|s| s.side).collect();
    all.retain(|s| s.pid != r.p.pid && s.pid != n.pid);
    all.push(n);
    if r.p.is_fair() && r.p.on_rq {
        all.push(r.p);
    }
    e.state = entities(&all, &n);
    Some(e)
}

/// A virtual time of which no more is known than this, 17 s, is told as unknown: what stands for
/// "nothing is known" is some multiple of it.
const VAGUE: u64 = 1 << 34;

fn entities(all: &[Side], of: &Side) -> Vec<(String, String)> {
    let far = |s: &Side| s.slop > VAGUE || of.slop > VAGUE;
    all.iter()
        .map(|s| {
            let v = s.vruntime.wrapping_sub(of.vruntime) as i64;
            let dl = s.deadline.wrapping_sub(of.vruntime) as i64;
            let mut text = match far(s) && s.pid != of.pid {
                true => "vruntime not known".to_owned(),
                false => format!("vruntime {}", ms(v)),
            };
            if s.deadline != 0 && !far(s) {
                text += &format!(", deadline {}", gap(dl));
            }
            text += &format!(", weight {}", s.weight >> 10);
            if s.sched_delayed {
                text += ", in delayed dequeue";
            }
            entry(format!("task {}", s.pid), text)
        })
        .collect()
}

/// A tick of a CPU with several entities.
pub(in crate::shadow) fn tick(found: &mut Found, r: &Row, s: &CpuState) -> Option<Explained> {
    let asked = r.kind == RowKind::NeedResched || r.asked == Some(true);
    let kernel = match (r.kind, r.asked) {
        (RowKind::Tick, None) => "not known",
        _ if asked => "asks for a reschedule",
        _ => "lets it go on",
    };
    let curr = s.curr.unwrap_or(r.p.pid);
    let event = format!("is found running by a tick of CPU {}", r.cpu);
    let mut e = found.take(r, "tick_preemption", curr, event, kernel.into())?;
    let all: Vec<Side> = s.queued.values().map(|s| s.side).collect();
    let of = s.running.map_or(r.p, |x| x.0);
    e.state = entities(&all, &of);
    Some(e)
}

/// The pass of the balancer whose first move is `r`. `found`: of the queue pulled from; `tasks`: of
/// what was taken off it.
pub(in crate::shadow) fn migration(
    found: &mut Found,
    tasks: &mut Found,
    t: &Trace,
    r: &Row,
    q: &Queues,
) -> Option<Explained> {
    let moved = moved(t, r, q)?;
    let mut e = found.take(r, "migration", r.p.pid, moved.event, moved.kernel)?;
    e.state = moved.state;
    let taken = match (tasks.counts.last.take()?, tasks.differs) {
        (Outcome::Rule(_, true), _) => "the model's code takes the same".into(),
        (Outcome::Rule(..), Some(d)) => format!("{}; the model's code: {}", d.expected, d.got),
        (Outcome::Rule(..), None) => "the model's code takes others".into(),
        (Outcome::Missing(names), _) => format!("hang on: {}", names.join(", ")),
    };
    e.state.push(entry("tasks taken", taken));
    Some(e)
}

/// A move of a queued task.
pub(in crate::shadow) fn moved(t: &Trace, r: &Row, q: &Queues) -> Option<Explained> {
    if r.kind != RowKind::Migrate || t.in_wakeup(r) {
        return None;
    }
    let nr = |c: i64| usize::try_from(c).ok().and_then(|c| q.cpus.get(c));
    let tasks =
        |c: i64| nr(c).map_or("not known".into(), |s| format!("{} seen queued", s.queued.len()));
    let (path, unknown) = path(t, r);
    Some(Explained {
        time: r.ts,
        cpu: r.cpu.0,
        line: r.line,
        kind: "move",
        task: r.p.pid,
        event: format!("is moved by CPU {}, on which task {} runs", r.cpu, r.curr_pid),
        kernel: format!("from CPU {} to CPU {}", r.src_cpu(), r.dst_cpu()),
        ours: None,
        rule: path.map(str::to_owned),
        unknown,
        state: vec![
            entry(format!("CPU {} (from)", r.src_cpu()), tasks(r.src_cpu())),
            entry(format!("CPU {} (to)", r.dst_cpu()), tasks(r.dst_cpu())),
        ],
    })
}

/// What made a move: functions of the call chain, in the words of both spellings of the kernel.
const PATHS: [(&str, &str); 12] = [
    ("newidle_balance", "newidle balance"),
    ("sched_balance_newidle", "newidle balance"),
    ("active_load_balance_cpu_stop", "active balance"),
    ("_nohz_idle_balance", "balance on behalf of an idle CPU"),
    ("nohz_idle_balance", "balance on behalf of an idle CPU"),
    ("rebalance_domains", "periodic balance"),
    ("sched_balance_domains", "periodic balance"),
    ("migrate_swap_stop", "exchange between nodes"),
    ("sched_exec", "exec"),
    ("migration_cpu_stop", "stopper: exec or a change of affinity"),
    ("set_cpus_allowed_ptr", "change of affinity"),
    ("__set_cpus_allowed_ptr", "change of affinity"),
];

fn path(t: &Trace, r: &Row) -> (Option<&'static str>, Vec<&'static str>) {
    if !t.stack(r).is_empty() && !t.has_frame(r, UNKNOWN) {
        let found = PATHS.iter().find(|p| t.has_frame(r, p.0));
        return (Some(found.map_or("another path", |p| p.1)), vec![]);
    }
    match r.flags {
        Some(f) if f.interrupt => (Some("periodic balance, or on behalf of an idle CPU"), vec![]),
        Some(_) => (Some("newidle balance, active balance, exec or affinity"), vec![]),
        None => (None, vec!["the path of the move"]),
    }
}
