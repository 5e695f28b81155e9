//! Migration: for every pass of the balancer that moved tasks, would our code have moved them?
//!
//! *What.* Moves in one call of `load_balance` from one queue to one CPU are one decision: given
//! that this CPU balanced this domain (the lowest that holds source and destination: in a higher
//! one both are in the local group), does our code find the same queue and take the same tasks off
//! it, in the same order? A push by the stopper is one as well: the same task? Nontrivial: the pass
//! had a choice, of queues outside of its group with two tasks or more or of tasks that wait.
//! *State that is not recorded.* When the domain is balanced, and the draw of NI_RANDOM, are taken
//! from the recording. `nr_balance_failed` is zero after a pass that moved something and grows by
//! one an interval at most; a group can be marked imbalanced if tasks that may not run everywhere
//! were there lately.
//! *Time.* The statistics are read shortly before the first move, or, if the CPU stood still, as
//! wakeups show that it did not take in, before that.
//! *From a plain trace.* What moved a task is inferred (`rebuild::moves`); where it is not known, a
//! pass is undetermined.
//! *Departures.* D1: passes that moved nothing leave no row and are not judged.

use super::explain::range;
use super::passes::{Batch, Path, moved_together};
use super::placement::Facts;
use super::result::{Disagreement, KindResult};
use crate::shadow::question::known::{Asker, explore};
use crate::shadow::question::levels::{CONTENT, GROUP, plausible};
use crate::shadow::question::moment::{CpuThen, Ground, Moment, Pulled, QueueThen, TaskThen};
use crate::shadow::rows::neighbours::previous_rows;
use crate::shadow::rows::trace::{PF_KTHREAD, Row, RowKind, Trace};
use crate::shadow::state::counts::{Count, Counts, READS, with_delayed};
use crate::shadow::state::lists::{Lists, Ran};
use crate::shadow::state::queues::{Queues, Seen};
use crate::shadow::state::tasks::SeenOn;
use std::cell::RefCell;
use std::collections::BTreeMap;
use vruntime_base::Cpu;
use vruntime_sched::balance::IdleType;
use vruntime_sched::balance::alone::{LoneEnd, LonePass};
use vruntime_sched::balance::imbalance::MigrationType;
use vruntime_sched::domains::Group;
use vruntime_sched::scheduler::BalanceKind;

const PATH: &str = "the path of the move";
const ORDER: &str = "order of the queue's list";
const LATELY_NS: u64 = 200_000_000;
const SECOND: u64 = 1_000_000_000;

/// Counts and disagreements of migrations.
pub struct Migrations<'a> {
    f: &'a Facts<'a>,
    batches: BTreeMap<usize, Batch>,
    prev: Vec<Option<usize>>,
    slack: u64,
    counts: Counts,
    lists: Lists,
    seen: SeenOn,
    kthreads: BTreeMap<i64, bool>,
    /// Allowed CPUs by task: when shown, how many.
    spans: BTreeMap<i64, Vec<(u64, i64)>>,
    /// When a task that may not run everywhere was last one of several on a CPU.
    pinned: Vec<u64>,
    /// When a pass of a CPU over a domain last moved something, by slot.
    moved: BTreeMap<usize, u64>,
    clocks: Vec<Option<(u64, i64)>>,
    start: u64,
    ground: RefCell<Ground>,
    /// Counts of the queues pulled from.
    pub sources: KindResult,
    /// Counts of the tasks taken.
    pub tasks: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Migrations<'a> {
    /// At the start of the recording. `next`: for every row, the next one of the same CPU.
    pub fn new(f: &'a Facts<'a>, next: &[Option<usize>], slack: u64) -> Migrations<'a> {
        let t = f.trace;
        let prev = previous_rows(t, next);
        let mut spans: BTreeMap<i64, Vec<(u64, i64)>> = BTreeMap::new();
        for r in &t.rows {
            for (pid, n) in [(r.p.pid, r.p_nr_cpus_allowed), (r.curr_pid, r.curr_nr_cpus_allowed)] {
                let list = spans.entry(pid).or_default();
                if let Some(n) = n.filter(|&n| list.last().is_none_or(|l| l.1 != n)) {
                    list.push((r.ts, n));
                }
            }
        }
        Migrations {
            batches: moved_together(t, &prev),
            prev,
            slack,
            counts: Counts::new(t, next, slack),
            kthreads: kthreads(t),
            lists: Lists::new(t.nr_cpus, f.release.nr_migrate),
            seen: SeenOn::default(),
            spans,
            pinned: vec![0; t.nr_cpus],
            moved: BTreeMap::new(),
            clocks: vec![None; t.nr_cpus],
            start: t.rows.first().map_or(0, |r| r.ts),
            ground: RefCell::new(Ground::new(f.topology, f.domains, f.release)),
            f,
            sources: KindResult::new("migration"),
            tasks: KindResult::new("migration_tasks"),
            disagreements: vec![],
        }
    }

    /// Takes in row `i`, after it was checked.
    pub fn note(&mut self, i: usize, q: &Queues) {
        let t = self.f.trace;
        let r = &t.rows[i];
        self.lists.apply(t, r);
        if let Some(clock) = r.clock_task {
            self.clocks[r.rq_cpu.ix()] = Some((r.ts, clock));
        }
        self.seen.note(t, r);
        let here = &q.cpus[r.rq_cpu.ix()].queued;
        let two = here.len() > 1 || r.nr_running.is_some_and(|n| n + r.nr_more > 1);
        if two && here.keys().any(|&pid| self.is_limited(pid, r.ts)) {
            self.pinned[r.rq_cpu.ix()] = r.ts;
        }
        if let Some(b) = self.batches.get(&i)
            && let Some(slot) = self.slot(b)
        {
            self.moved.insert(slot, r.ts);
        }
    }

    /// The CPU whose domains are balanced.
    fn on(&self, b: &Batch) -> Cpu {
        let r = &self.f.trace.rows[b.rows[0]];
        match b.path {
            Path::Balance(BalanceKind::Nohz) | Path::Active => Cpu(r.dst_cpu() as u16),
            Path::Balance(_) | Path::Unknown => r.cpu,
        }
    }

    /// The domain that was balanced.
    fn slot(&self, b: &Batch) -> Option<usize> {
        let d = self.f.domains;
        let src = Cpu(self.f.trace.rows[b.rows[0]].src_cpu() as u16);
        d.slots(self.on(b)).find(|&s| d.at(s).span.has(src))
    }

    /// Checks the pass whose first move is row `at`, if it is one. True if it was counted.
    pub fn check(&mut self, at: usize, q: &Queues) -> bool {
        let Some(b) = self.batches.get(&at) else { return false };
        if b.path == Path::Unknown {
            self.tasks.miss(&[PATH]);
            return false;
        }
        let Some(slot) = self.slot(b) else { return false };
        let b = b.clone();
        let in_group = |c: Cpu| q.cpus[c.ix()].queued.values().any(|m| m.side.tg != 0);
        if self.f.domains.at(slot).span.iter().any(in_group) {
            // Rows of its tasks show their own queues only.
            if b.path != Path::Active {
                self.sources.miss(&[GROUP]);
            }
            self.tasks.miss(&[GROUP]);
            return true;
        }
        let mut m = self.moment(&b, slot, q);
        if b.path != Path::Active {
            m.source_only = true;
            self.compare(&b, &m, q);
            m.source_only = false;
        }
        self.compare(&b, &m, q);
        true
    }

    /// Asks for the queue that is pulled from, or for the tasks that are taken off it.
    fn compare(&mut self, b: &Batch, m: &Moment, q: &Queues) {
        let t = self.f.trace;
        let r = &t.rows[b.rows[0]];
        let src = Cpu(r.src_cpu() as u16);
        let question = |k: &mut Asker| match b.path {
            Path::Active => self.ground.borrow_mut().push(k, m, src, self.queue(src, b, q)),
            _ => self.ground.borrow_mut().pull(k, m, |c| self.queue(c, b, q)),
        };
        let took = |a: &Pulled| !a.tasks.is_empty();
        let same = |a: &Pulled, b: &Pulled| match m.source_only {
            true => a.src == b.src,
            // That it took some is given.
            false => !took(a) || !took(b) || (a.src, &a.tasks) == (b.src, &b.tasks),
        };
        let o = explore(question, same);
        let kernel: Vec<i64> = b.rows.iter().map(|&i| t.rows[i].p.pid).collect();
        let mut runs = o.all.iter().filter(|x| !m.source_only && took(&x.0));
        let ours = runs.next().map_or(&o.guess, |x| &x.0);
        let agrees = ours.src == Some(src) && (m.source_only || ours.tasks == kernel);
        let rule = self.rule(m, b, ours);
        let choice = match m.source_only {
            true => self.other_queues(m, src),
            false => q.cpus[src.ix()].queued.len() > 2,
        };
        let result = if m.source_only { &mut self.sources } else { &mut self.tasks };
        let missing = o.all.iter().find_map(|x| x.0.missing);
        let other = runs.find(|x| !same(&x.0, ours));
        if !o.determined || missing.is_some() || other.is_some() {
            let mut names = o.tipping.clone();
            if let (true, Some(run)) = (names.is_empty(), other) {
                names.extend(run.1.iter().map(|a| a.0.name));
            }
            names.extend(missing);
            return result.miss(&names);
        }
        result.count(agrees, choice, &rule);
        if !agrees {
            let kind = result.kind.clone();
            let list = |l: &[i64]| match l {
                [] => "nothing".to_owned(),
                l => l.iter().map(|p| format!("task {p}")).collect::<Vec<_>>().join(", "),
            };
            let (expected, got) = match (m.source_only, ours.src) {
                (true, None) => (format!("from CPU {src}"), end_text(ours.end)),
                (true, Some(c)) => (format!("from CPU {src}"), format!("from CPU {c}")),
                (false, _) => {
                    (list(&kernel), format!("{} ({})", list(&ours.tasks), end_text(ours.end)))
                }
            };
            self.disagreements.push(Disagreement {
                time: r.ts,
                line: r.line,
                kind,
                task: r.p.pid,
                expected: format!("{expected} to CPU {}", r.dst_cpu()),
                got,
                rule,
                state: self.state_text(m, b, q),
            });
        }
    }

    fn rule(&self, m: &Moment, b: &Batch, ours: &Pulled) -> String {
        if let Some(cause) = ours.cause {
            return cause.into();
        }
        let path = match (b.path, m.pass.idle) {
            (Path::Active, _) => "active balance",
            (Path::Balance(BalanceKind::Newidle), _) => "newidle balance",
            (Path::Balance(BalanceKind::Nohz), _) => "nohz idle balance",
            (_, IdleType::NotIdle) => "periodic balance while busy",
            _ => "periodic balance while idle",
        };
        format!("{path}, {}", self.f.domains.at(m.pass.slot).name)
    }

    /// Another queue could have been pulled from.
    fn other_queues(&self, m: &Moment, src: Cpu) -> bool {
        let sd = self.f.domains.at(m.pass.slot);
        let local = &sd.groups[sd.group_of(m.pass.on)].span;
        let two = |c: Cpu| m.cpus[c.ix()].counts.iter().any(|n| n.all > 1);
        sd.span.iter().any(|c| !local.has(c) && c != src && two(c))
    }

    fn moment(&self, b: &Batch, slot: usize, q: &Queues) -> Moment {
        let t = self.f.trace;
        let d = self.f.domains;
        let r = &t.rows[b.rows[0]];
        let to = t.rows[b.detaches].ts.saturating_sub(1);
        let earliest = self.reads_from(r.cpu, to);
        let from = match self.prev[b.detaches].map(|i| &t.rows[i]) {
            // What it moved before was put on its queue first.
            Some(p) if p.kind == RowKind::Migrate => earliest.max(p.ts.midpoint(to)),
            Some(p) => earliest.max(p.ts),
            None => earliest,
        };
        let on = self.on(b);
        let kind = match b.path {
            Path::Balance(kind) => kind,
            _ => BalanceKind::Periodic,
        };
        let idle = match kind {
            BalanceKind::Newidle => IdleType::Newidle,
            _ if b.again && self.f.idle.at(on, from, to, None) != Some(true) => IdleType::NotIdle,
            BalanceKind::Nohz => IdleType::Idle,
            BalanceKind::Periodic if r.curr_pid == 0 => IdleType::Idle,
            BalanceKind::Periodic => IdleType::NotIdle,
        };
        let sd = d.at(slot);
        let mut cpus = vec![CpuThen::default(); t.nr_cpus];
        for c in sd.span.iter() {
            cpus[c.ix()] = self.cpu_then(c, q, from, to);
        }
        if kind == BalanceKind::Newidle {
            // It has nothing, and its idle task does not run yet.
            let own = &mut cpus[on.ix()];
            own.counts = vec![Default::default()];
            (own.delayed, own.idle) = (0, Some(false));
        }
        let lowest = slot == d.slots(on).start;
        let marked = match lowest {
            true => vec![],
            false => {
                (0..sd.groups.len()).filter(|&g| self.may_be_marked(&sd.groups[g], r)).collect()
            }
        };
        let failed = match b.path {
            // The pass that asked for the push had failed.
            Path::Active => vec![1],
            _ => self.failed(slot, r.ts),
        };
        Moment {
            pass: LonePass { kind, on, slot, idle },
            cpus,
            source: sd.group_of(Cpu(r.src_cpu() as u16)),
            marked,
            failed,
            source_only: false,
        }
    }

    /// What `nr_balance_failed` can be: at most one more an interval since the last move, and one
    /// before the first of them is over, for a pass is due by the last pass and not by the move.
    fn failed(&self, slot: usize, now: u64) -> Vec<u32> {
        let sd = self.f.domains.at(slot);
        let interval = u64::from(sd.min_interval()) * 1_000_000;
        let since = now.saturating_sub(self.moved.get(&slot).copied().unwrap_or(0));
        let most = since / interval.max(self.f.release.tick_ns()) + 1;
        let tries = sd.cache_nice_tries;
        let mut failed = vec![0, 1, tries + 1, tries + 4];
        failed.dedup();
        failed.retain(|&n| u64::from(n) <= most);
        failed
    }

    /// The balancer may find that `pid` may not go where it pulls to. Of a kernel thread of one CPU
    /// it does not ask.
    fn is_limited(&self, pid: i64, now: u64) -> bool {
        let user = || self.kthreads.get(&pid) == Some(&false);
        let n = self.span(pid, now);
        // Less than one: not known.
        n.is_some_and(|n| n < self.f.trace.nr_cpus as i64 && (n != 1 || user()))
    }

    /// Tasks that may not run everywhere were in `g` lately.
    pub(super) fn may_be_marked(&self, g: &Group, r: &Row) -> bool {
        let near = |c: Cpu| {
            let ts = self.pinned[c.ix()];
            ts != 0 && r.ts.saturating_sub(ts) < LATELY_NS
        };
        g.span.iter().any(near)
    }

    /// The earliest moment at which `c` can have read a number, if it was done with that at `to`.
    pub(super) fn reads_from(&self, c: Cpu, to: u64) -> u64 {
        let seen = self.f.trace.alive.before(c, to);
        seen.unwrap_or_else(|| self.reads_lately(c, to))
    }

    /// The same, of what `c` reads long after it was last seen, as a task that calls exec does.
    /// Without a tick it cannot have executed for so long: it stood still.
    pub(super) fn chooses_from(&self, c: Cpu, to: u64) -> u64 {
        let seen = self.f.trace.alive.before(c, to);
        let lately = self.reads_lately(c, to);
        match seen {
            Some(ts) if to - ts > self.f.release.tick_ns() => ts.min(lately),
            Some(ts) => ts.max(lately),
            None => lately,
        }
    }

    /// The same by the time that reading takes.
    fn reads_lately(&self, c: Cpu, to: u64) -> u64 {
        let stalled = self.stalled_since(c, to).map(|ts| ts.saturating_sub(self.slack));
        to.saturating_sub(READS * self.slack).min(stalled.unwrap_or(to))
    }

    /// Since when `c` has not served the interrupt of a wakeup that was sent to it, if it has not
    /// at `now`: it would have, in the middle of a pass. A recorded machine's CPU can stand still
    /// for long, and what it read before is as old.
    fn stalled_since(&self, c: Cpu, now: u64) -> Option<u64> {
        let t = self.f.trace;
        let sent = self.f.wakes.list.iter().filter_map(|w| {
            let sent = t.rows[w.select?].ts;
            let pending = w.queued && w.target == c && sent <= now && t.rows[w.wakeup].ts > now;
            pending.then_some(sent)
        });
        sent.min()
    }

    /// What is known of `c`, whose queue is in `q`, when its numbers are read in `from ..= to`.
    pub(super) fn cpu_then(&self, c: Cpu, q: &Queues, from: u64, to: u64) -> CpuThen {
        let f = self.f;
        let s = &q.cpus[c.ix()];
        let idle = f.idle.at(c, from, to, None);
        let load = self.f.utils.load(c, s, f.loads, from, to).unwrap_or((0, 1 << 20));
        let util = match f.release.util_est {
            true => self.f.utils.estimated(c, s, from, to),
            false => self.f.utils.at(c, s, from, to),
        };
        let runnable = self.f.utils.runnable(c, s, f.loads, from, to).unwrap_or((0, 1 << 20));
        let counts = match idle {
            Some(true) => vec![Count::default()],
            _ => self.counts.at(c, from, to),
        };
        let delayed = q.nr_delayed(c);
        let counts = match f.trace.rebuilt {
            true => counts,
            false => with_delayed(counts, s.queued.len() as i64 - delayed.1 as i64, delayed),
        };
        let (least, most) = q.capacity(c, to);
        let used = most - least;
        let (delayed, were_delayed) = (delayed.0 as i64, s.were_delayed(from));
        CpuThen { counts, delayed, were_delayed, idle, load, util, runnable, used }
    }

    /// The queue of `c` when the pass `b` locked it.
    fn queue(&self, c: Cpu, b: &Batch, q: &Queues) -> Result<QueueThen, &'static str> {
        let t = self.f.trace;
        let r = &t.rows[b.rows[0]];
        let s = &q.cpus[c.ix()];
        if b.path == Path::Active && q.nr_unseen(c) > 0 {
            return Err(CONTENT);
        }
        let nr = match c.ix() == r.src_cpu() as usize && r.p.tg == 0 && !t.rebuilt {
            true => Some(r.p.cfs_nr + 1),
            false => {
                let before = r.ts.saturating_sub(1);
                self.counts.at(c, before, before).first().map(|n| n.fair)
            }
        };
        if nr != Some(s.queued.len() as i64) {
            return Err(if s.queued.values().any(|m| m.side.tg != 0) { GROUP } else { CONTENT });
        }
        let order = self.lists.tail_first(c.ix(), s).ok_or(ORDER)?;
        let clock = match self.clocks[c.ix()] {
            _ if c.ix() == r.src_cpu() as usize => r.clock_task,
            Some((ts, clock)) => Some(clock + r.ts.saturating_sub(ts) as i64),
            None => None,
        };
        let of = order.first().map_or(0, |p| s.queued[p].side.vruntime);
        let placed = s.queued.values().all(|m| m.exact && m.side.tg == 0 && m.side.slop == 0)
            && plausible(of, s.queued.values());
        let (root, refreshed) = self.h_load(c, r.ts, r.ts.saturating_sub(self.f.release.tick_ns()));
        let tasks = order.iter().map(|p| {
            let m = &s.queued[p];
            let own = b.rows.iter().map(|&i| &t.rows[i]).find(|r| r.p.pid == *p);
            let mut task = self.task_then(m, own, r, clock);
            (task.curr, task.buddy) = (s.curr == Some(*p), s.is_buddy(*p));
            if !placed {
                task.vruntime = (0, task.slice);
            }
            let (lo, hi) = (m.side.load_avg, m.side.load_avg + m.side.load_more);
            task.h_load = match m.side.tg {
                0 => (lo * refreshed.0 / (root.1 + 1), hi * refreshed.1 / (root.0 + 1)),
                _ => (0, 2 * hi),
            };
            task
        });
        Ok(QueueThen { tasks: tasks.collect(), placed })
    }

    /// Lowest and highest load of the queue of `c` now, and when `h_load` was last brought up to
    /// date, which is once a jiffy; this one began `since` then.
    fn h_load(&self, c: Cpu, now: u64, since: u64) -> ((u64, u64), (u64, u64)) {
        let root = self.f.loads.at(c, now, now).unwrap_or((0, 1 << 20));
        let seen = self.f.loads.seen(c, since, now).unwrap_or(root);
        (root, (seen.0.min(root.0), seen.1.max(root.1)))
    }

    /// Lowest and highest utilisation of `c` without the estimate of what is queued.
    pub(super) fn util(&self, c: Cpu, q: &Queues, from: u64, to: u64) -> (u64, u64) {
        self.f.utils.at(c, &q.cpus[c.ix()], from, to)
    }

    /// Lowest and highest `task_h_load` of the task of `r`, which is on the queue that `r` shows.
    pub(super) fn own_h_load(&self, r: &Row, q: &Queues) -> (u64, u64) {
        if r.p.tg != 0 {
            return (0, 2 * r.p.load_avg);
        }
        let (_, refreshed) = self.h_load(r.rq_cpu, r.ts, self.f.utils.jiffies_since(q, r.ts));
        let share = |h_load: u64| r.p.load_avg * h_load / (r.p.cfs_load_avg + 1);
        (share(refreshed.0), share(refreshed.1))
    }

    /// Whether `pid`, which may use `n` CPUs, may use `c`.
    pub(super) fn may_use(&self, pid: i64, n: i64, c: Cpu) -> Option<bool> {
        self.seen.allowed(pid, n, c)
    }

    fn task_then(&self, m: &Seen, own: Option<&Row>, r: &Row, clock: Option<i64>) -> TaskThen {
        let pid = m.side.pid;
        let f = self.f;
        let slack = self.slack;
        let age = match (self.lists.ran(pid), clock) {
            (Some(Ran::NotHere), _) => (u64::MAX, u64::MAX),
            (Some(Ran::At(then)), Some(now)) => {
                let d = (now - then).max(0) as u64;
                (d, d + slack)
            }
            (None, _) => (r.ts.saturating_sub(self.start), u64::MAX),
            (_, None) => (0, u64::MAX),
        };
        let (mut allowed, mut bound) = (BTreeMap::new(), false);
        let n = own.and_then(|o| o.p_nr_cpus_allowed).or_else(|| self.span(pid, r.ts));
        match n {
            Some(1) if self.kthreads.get(&pid) == Some(&true) => bound = true,
            Some(n) if n >= f.trace.nr_cpus as i64 => {
                allowed = f.topology.all().iter().map(|c| (c, true)).collect();
            }
            Some(n) => {
                for c in f.topology.all().iter() {
                    // Who may use one CPU may be about to be moved to another one.
                    if let Some(known) = self.seen.allowed(pid, n, c).filter(|_| n != 1) {
                        allowed.insert(c, known);
                    }
                }
            }
            None if !f.tasks.has_affinity() => {
                bound = f.tasks.is_bound(pid);
                allowed = f.topology.all().iter().map(|c| (c, true)).collect();
            }
            None => {}
        }
        TaskThen {
            pid,
            policy: m.side.policy,
            weight: m.side.weight,
            vruntime: (m.vruntime.0, m.side.deadline),
            slice: m.side.slice,
            delayed: m.side.sched_delayed,
            bound,
            allowed,
            age,
            util: match m.side.util_more {
                0 => (m.side.util_avg.max(m.side.util_est), m.side.util_avg.max(m.side.util_est)),
                more => (m.side.util_avg, m.side.util_avg + more),
            },
            ..TaskThen::unseen()
        }
    }

    /// How many CPUs `pid` may use, if that is the same before and after `now`.
    fn span(&self, pid: i64, now: u64) -> Option<i64> {
        let list = self.spans.get(&pid)?;
        let end = list.partition_point(|x| x.0 <= now);
        match (end.checked_sub(1).map(|i| list[i].1), list.get(end).map(|x| x.1)) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => a.or(b),
        }
    }

    fn state_text(&self, m: &Moment, b: &Batch, q: &Queues) -> String {
        let sd = self.f.domains.at(m.pass.slot);
        let cpu = |c: Cpu| {
            let t = &m.cpus[c.ix()];
            let n: Vec<String> = t.counts.iter().map(|n| n.all.to_string()).collect();
            let idle = match t.idle {
                Some(true) => ", idle",
                None => ", perhaps idle",
                _ => "",
            };
            let [load, util, runnable] = [t.load, t.util, t.runnable].map(range);
            let tasks = n.join(" or ");
            format!("{c}{idle}, tasks {tasks}, load {load}, util {util}, runnable {runnable}")
        };
        let group = |g: &Group| g.span.iter().map(cpu).collect::<Vec<_>>().join("; ");
        let groups: Vec<String> = sd.groups.iter().map(|g| format!("[{}]", group(g))).collect();
        let by = match m.pass.idle {
            IdleType::Idle => "an idle CPU",
            IdleType::NotIdle => "a busy CPU",
            IdleType::Newidle => "a CPU about to go idle",
        };
        let mut s = format!("{} for {by}, CPUs by group: {};", sd.name, groups.join(" "));
        let src = Cpu(self.f.trace.rows[b.rows[0]].src_cpu() as u16);
        s += " queue, tail first:";
        match self.queue(src, b, q) {
            Ok(l) => {
                let tasks = l.tasks.iter().map(|t| {
                    let bound = if t.bound { " bound" } else { "" };
                    let ran = match t.age.0 {
                        _ if t.curr => "runs".into(),
                        age @ ..SECOND => format!("ran {} us ago", age / 1000),
                        _ => "has not run for a second".into(),
                    };
                    format!(" {}{bound} {ran}", t.pid)
                });
                s += &tasks.collect::<Vec<_>>().join(",");
            }
            Err(e) => s += &format!(" {e}"),
        }
        s
    }
}

/// How a pass ended, in words.
fn end_text(end: LoneEnd) -> String {
    match end {
        LoneEnd::NotItsTurn => "not this CPU's turn".into(),
        LoneEnd::NoGroup => "no group is busy enough".into(),
        LoneEnd::NoQueue => "the busiest group has no queue to pull from".into(),
        LoneEnd::Pull(what) => {
            let unit = match what.kind {
                MigrationType::Load => "load",
                MigrationType::Util => "utilisation",
                MigrationType::Task => "tasks",
            };
            format!("to be moved: {unit} {}", what.amount)
        }
    }
}

/// Which tasks are kernel threads.
fn kthreads(t: &Trace) -> BTreeMap<i64, bool> {
    let flags = t.rows.iter().filter(|r| r.kind != RowKind::Switch).filter_map(|r| {
        let flags = r.curr_flags?;
        Some((r.curr_pid, flags & PF_KTHREAD != 0))
    });
    t.named.keys().map(|&pid| (pid, true)).chain(flags).collect()
}
