//! The run queues as the rows show them: who is queued where, with what state.
//!
//! *What.* Wakeups and switches show the entity they are about; a waiting entity does not change
//! until a row shows it again, so the set of last-seen states is the queue. Moves by the balancer
//! show the entity before it is placed on the new queue: its virtual time there is an interval
//! (CFS) or not known (EEVDF).
//! *Lost rows.* A switch from another task than the one that was switched to last: what happened to
//! the queue since then is not known, and who waits there after it only as rows show it anew.
//! *Departures.* D1: rows show the order in which the balancer detaches tasks; it attaches them in
//! the reverse order. Moves to one CPU within a millisecond count as one go.
//! *Running entity.* Its state at any `clock_task` follows from the last time it was seen:
//! `exec_start = clock at pick + run time since`.

use super::buddies::{Buddies, yielders};
use super::changes::Changes;
use super::idle_tasks::IdleTasks;
use super::rt_use::RtUse;
use crate::shadow::rebuild::queue_frame::MOST_TASKS;
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vruntime_base::Cpu;
use vruntime_sched::fair::pelt::average_after;
use vruntime_sched::fair::weight::task_virtual_time;

/// Nothing is known of it: the ends are as far apart as the comparison allows.
const UNKNOWN_VRUNTIME: (u64, u64) = (0, u64::MAX >> 2);
/// Rows are missing between two switches.
pub const LOST: &str = "what happened where rows were lost";
const BATCH_NS: u64 = 1_000_000;

/// An entity as last seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// State.
    pub side: Side,
    /// Lowest and highest possible virtual runtime.
    pub vruntime: (u64, u64),
    /// Lag, slice and deadline are exact.
    pub exact: bool,
    /// Order of insertion into its queue.
    pub seq: u64,
    /// Rebuilt: it may have left, as it was in delayed dequeue.
    pub maybe: bool,
}

/// Whether TIF_NEED_RESCHED of the running task is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NeedResched {
    /// No.
    #[default]
    No,
    /// A row at this moment set it; a pass through `schedule` that kept the task would have
    /// cleared it without a row.
    SetAt(u64),
}

/// One CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuState {
    /// Running task; `None` before the first row on the CPU.
    pub curr: Option<i64>,
    /// Its state and the `clock_task` that it is of; `None`: not known.
    pub running: Option<(Side, i64)>,
    /// Moment of the last switch.
    pub since: u64,
    /// The next switch is not from `curr`.
    pub lost: bool,
    /// Queued fair tasks (the running one included), by pid.
    pub queued: BTreeMap<i64, Seen>,
    /// See [`NeedResched`].
    pub need_resched: NeedResched,
    /// When TIF_NEED_RESCHED_LAZY of the running task was set, if it was since the last switch.
    pub lazy: Option<u64>,
    /// Those that are marked.
    pub buddies: Buddies,
    /// Those that may be: if a preemption check asked, which no event of a plain trace tells.
    pub perhaps: Buddies,
    /// Who else may be passed over, or nobody.
    pub skips: Vec<Option<i64>>,
    /// Moves to this CPU that the balancer makes in one go: last row, and order of the next one.
    batch: (u64, u64),
    /// Who of the last such go is marked: acting CPU and source.
    pub(super) marked_by: Option<(Cpu, i64)>,
    /// By group: last `min_vruntime` of its queue here and when it was first seen. A row may show
    /// it before it is brought up to date.
    min_vruntime: BTreeMap<i64, (u64, u64)>,
    nr: Option<i64>,
    nr_more: i64,
    moved_in: i64,
    /// Lately: how many were in delayed dequeue, and until when.
    delayed_until: VecDeque<(u64, u64)>,
    /// The running task is of another class by the next row that shows it.
    class_changes: bool,
    rt_used: RtUse,
}

/// Lowest and highest virtual runtime of a recorded state.
pub fn span(s: &Side) -> (u64, u64) {
    (s.vruntime.wrapping_sub(s.slop), s.vruntime.wrapping_add(s.slop))
}

impl CpuState {
    /// The queue that `side` is on is this far at `ts`.
    fn shows_min(&mut self, side: &Side, ts: u64) {
        let shown = (side.cfs_min_vruntime, ts);
        let seen = self.min_vruntime.entry(side.tg).or_insert(shown);
        if seen.0 != shown.0 {
            *seen = shown;
        }
    }
    /// Known to be in delayed dequeue, and to be there.
    fn nr_delayed(&self) -> u64 {
        self.queued.values().filter(|q| q.side.sched_delayed && !q.maybe).count() as u64
    }
    /// How many were, at one time or another since `from`, before it became what it is.
    pub fn were_delayed(&self, from: u64) -> Vec<i64> {
        self.delayed_until.iter().filter(|x| x.0 >= from).map(|x| x.1 as i64).collect()
    }
    /// See [`Queues::nr_unseen`].
    pub fn nr_unseen(&self) -> u64 {
        self.nr_more.clamp(0, MOST_TASKS) as u64
    }
}

/// All CPUs.
#[derive(Clone, Debug)]
pub struct Queues {
    /// By CPU number.
    pub cpus: Vec<CpuState>,
    seq: u64,
    on: BTreeMap<i64, usize>,
    pub(super) idle_tasks: IdleTasks,
    changes: Changes,
    /// CFS: those that yield at some time.
    pub(super) yielders: BTreeSet<i64>,
    /// Time of the row taken in last.
    now: u64,
    /// By CPU: switches after which rows are missing.
    gaps: Vec<BTreeSet<u64>>,
}

/// By CPU: moments of the switches to a task that the next switch is not from, or after which the
/// kernel counted more than the next one.
fn gaps(t: &Trace) -> Vec<BTreeSet<u64>> {
    let mut gaps = vec![BTreeSet::new(); t.nr_cpus];
    let mut last: Vec<Option<(u64, i64, Option<i64>)>> = vec![None; t.nr_cpus];
    for r in t.rows.iter().filter(|r| r.kind == RowKind::Switch) {
        let c = r.cpu.ix();
        let n = r.n.unwrap_or_default();
        let Some((ts, pid, nr)) = last[c].replace((r.ts, n.pid, r.nr_switches)) else { continue };
        let more = nr.zip(r.nr_switches).is_some_and(|(before, now)| now - before > 1);
        if pid != r.p.pid || more {
            gaps[c].insert(ts);
        }
    }
    gaps
}

impl Queues {
    /// At the start of the recording.
    pub fn new(t: &Trace) -> Queues {
        Queues {
            cpus: vec![CpuState::default(); t.nr_cpus],
            seq: 0,
            on: BTreeMap::new(),
            idle_tasks: IdleTasks::new(t),
            changes: Changes::new(t),
            yielders: yielders(t),
            now: 0,
            gaps: gaps(t),
        }
    }

    /// Takes in a row.
    pub fn apply(&mut self, t: &Trace, r: &Row) {
        let rq = r.rq_cpu.ix();
        self.now = r.ts;
        if r.nr_running.is_some() {
            (self.cpus[rq].nr, self.cpus[rq].nr_more) = (r.nr_running, r.nr_more);
            self.cpus[rq].moved_in = 0;
        }
        self.cpus[rq].shows_min(&r.p, r.ts);
        if r.kind != RowKind::Switch {
            let curr = &mut self.cpus[r.cpu.ix()].curr;
            curr.get_or_insert(r.curr_pid);
        }
        let delayed = self.cpus[rq].nr_delayed();
        let s = &mut self.cpus[rq];
        if s.curr == Some(r.p.pid) && self.changes.class_follows(r.p.pid, r.ts) {
            (s.class_changes, s.running) = (true, None);
        }
        // What it lends or had been lent may have made it a real-time task.
        s.class_changes |= s.curr == Some(r.p.pid) && t.has_frame(r, "rt_mutex_setprio");
        match r.kind {
            RowKind::Switch => self.switch(r),
            RowKind::Wakeup | RowKind::WakeupNew if r.p.is_fair() && r.p.on_rq => {
                self.put(rq, &r.p, span(&r.p), true);
            }
            RowKind::Waking if !r.p.on_rq => self.drop_task(r.p.pid),
            RowKind::Migrate if !t.in_wakeup(r) => self.moved(r, t.rebuilt),
            RowKind::NeedResched => self.need_resched(t, r),
            // A call of exec shows its task, which runs.
            RowKind::SelectRq if !t.rebuilt && r.p.on_rq => self.shows_running(r),
            RowKind::Other | RowKind::Tick if t.rebuilt => self.told(r),
            _ => {}
        }
        let s = &mut self.cpus[rq];
        if s.nr_delayed() != delayed {
            while s.delayed_until.front().is_some_and(|x| x.0 + BATCH_NS < r.ts) {
                s.delayed_until.pop_front();
            }
            s.delayed_until.push_back((r.ts, delayed));
        }
    }

    fn switch(&mut self, r: &Row) {
        let c = r.cpu.ix();
        let n = r.n.unwrap_or_default();
        if self.cpus[c].lost {
            self.forget(c);
        }
        if r.p.is_fair() && r.p.on_rq {
            self.put(c, &r.p, span(&r.p), true);
        } else {
            self.drop_task(r.p.pid);
        }
        if n.is_fair() {
            self.put(c, &n, span(&n), true);
        }
        let s = &mut self.cpus[c];
        s.shows_min(&n, r.ts);
        if r.p.pid == 0 {
            // Until now it has stood still.
            s.min_vruntime.values_mut().for_each(|seen| seen.1 = r.ts);
        }
        if r.p.is_rt() || s.class_changes {
            s.rt_used.ends(r.ts, r.ts.saturating_sub(s.since));
        }
        s.class_changes = self.changes.class_follows(n.pid, r.ts);
        s.curr = Some(n.pid);
        s.lost = self.gaps[c].contains(&r.ts);
        s.running = r.clock_task.filter(|_| !s.class_changes).map(|k| (n, k));
        s.since = r.ts;
        s.need_resched = NeedResched::No;
        s.lazy = None;
        if s.perhaps.next == Some(n.pid) && r.p.on_rq {
            // It preempts: the check had asked.
            s.buddies.last = s.perhaps.last.take().or(s.buddies.last);
        }
        s.unmark(n.pid);
        // Delayed entities leave inside the pick, without a row: the one that it would pick first
        // by its deadline, then the next. Not the one that the row shows queued.
        if n.pid == 0 || n.tg == 0 {
            let left = n.cfs_nr.max(0) as usize;
            while s.queued.len() > left {
                let delayed = s.queued.iter().filter(|q| q.1.side.sched_delayed && *q.0 != r.p.pid);
                let first =
                    delayed.min_by_key(|q| q.1.side.deadline.wrapping_sub(n.deadline) as i64);
                let Some((&pid, _)) = first else { break };
                s.queued.remove(&pid);
                self.on.remove(&pid);
            }
        }
    }

    /// Who waits on `c` is not known.
    fn forget(&mut self, c: usize) {
        let s = &mut self.cpus[c];
        (s.buddies, s.perhaps) = (Buddies::default(), Buddies::default());
        s.skips.clear();
        for pid in std::mem::take(&mut s.queued).into_keys() {
            self.on.remove(&pid);
        }
    }

    /// A row of the kernel tells a virtual time without the queue's own, a rebuilt one with it.
    fn moved(&mut self, r: &Row, rebuilt: bool) {
        self.drop_task(r.p.pid);
        let Some(to) = r.dst_ix(self.cpus.len()) else { return };
        self.cpus[to].moved_in += 1;
        if !r.p.is_fair() {
            return;
        }
        let (lo, ts) = self.cpus[to].min_vruntime.get(&r.p.tg).copied().unwrap_or((0, 0));
        let hi = lo.wrapping_add(self.fastest(to, r.p.tg, r.ts.saturating_sub(ts)));
        let at = |v: u64| r.p.vruntime.wrapping_add(v);
        let range = match ts {
            _ if rebuilt => span(&r.p),
            0 => UNKNOWN_VRUNTIME,
            _ => (at(lo), at(hi)),
        };
        self.put(to, &r.p, range, false);
        // The balancer attaches what it detached last first (D1).
        let (last, order) = self.cpus[to].batch;
        let goes_on = order > 0 && r.ts.saturating_sub(last) < BATCH_NS;
        if !goes_on {
            self.cpus[to].marked_by = None;
        }
        let order = if goes_on { order - 1 } else { self.seq + 1000 };
        self.seq = self.seq.max(order) + 1;
        self.cpus[to].batch = (r.ts, order);
        if let Some(s) = self.cpus[to].queued.get_mut(&r.p.pid) {
            s.seq = order;
        }
    }

    /// How far the virtual time of group `tg`'s queue can have gone on `cpu` in `ns`: as fast as
    /// that of the lightest there.
    fn fastest(&self, cpu: usize, tg: i64, ns: u64) -> u64 {
        let s = &self.cpus[cpu];
        if s.curr == Some(0) {
            return 0;
        }
        let of_group = s.queued.values().filter(|q| q.side.tg == tg && q.side.weight > 0);
        of_group.map(|q| task_virtual_time(ns, q.side.weight)).fold(ns, u64::max)
    }

    /// A row of a rebuilt trace. The running task was accounted: its state now is exact. Or a pick
    /// took a delayed one off, or may have, or told something of one that waits.
    fn told(&mut self, r: &Row) {
        let c = r.rq_cpu.ix();
        let s = &mut self.cpus[c];
        if !r.p.on_rq {
            return self.drop_task(r.p.pid);
        }
        if let (true, Some(clock)) = (s.curr == Some(r.p.pid), r.clock_task) {
            s.running = Some((Side { prio: s.running.map_or(120, |x| x.0.prio), ..r.p }, clock));
        } else if s.curr != Some(r.p.pid) {
            self.put(c, &r.p, span(&r.p), true);
            if let Some(s) = self.cpus[c].queued.get_mut(&r.p.pid) {
                s.maybe = r.p.sched_delayed;
            }
        }
    }

    fn need_resched(&mut self, t: &Trace, r: &Row) {
        let s = &mut self.cpus[r.rq_cpu.ix()];
        let clears = r.cpu == r.rq_cpu && t.has_frame(r, "__schedule") && !t.in_interrupt(r);
        if t.is_lazy(r) {
            s.lazy = (!clears).then_some(r.ts);
        } else {
            s.need_resched = if clears { NeedResched::No } else { NeedResched::SetAt(r.ts) };
        }
        if s.curr == Some(r.p.pid) && t.has_frame(r, "task_tick_fair") {
            s.buddies = s.buddies.without(r.p.pid);
        }
        self.shows_running(r);
    }

    /// If the task of `r` runs, this is its state now.
    fn shows_running(&mut self, r: &Row) {
        let s = &mut self.cpus[r.rq_cpu.ix()];
        if s.curr != Some(r.p.pid) || r.p.pid == 0 {
            return;
        }
        if let Some((side, clock)) = &mut s.running {
            *clock += r.p.sum_exec.wrapping_sub(side.sum_exec) as i64;
            *side = r.p;
        }
    }

    fn put(&mut self, cpu: usize, side: &Side, vruntime: (u64, u64), exact: bool) {
        let old = match self.on.insert(side.pid, cpu) {
            Some(c) if c != cpu => self.cpus[c].queued.remove(&side.pid).and(None),
            _ => self.cpus[cpu].queued.get(&side.pid).map(|s: &Seen| s.seq),
        };
        self.seq += 1;
        let running = self.cpus[cpu].curr == Some(side.pid);
        let seq = old.filter(|_| !running).unwrap_or(self.seq);
        let exact = exact && !self.changes.follow(side.pid, self.now);
        let seen = Seen { side: *side, vruntime, exact, seq, maybe: false };
        self.cpus[cpu].queued.insert(side.pid, seen);
    }

    fn drop_task(&mut self, pid: i64) {
        if let Some(c) = self.on.remove(&pid) {
            let s = &mut self.cpus[c];
            s.queued.remove(&pid);
            s.unmark(pid);
        }
    }

    /// `sched_idle_cpu(c)`, read since `from`.
    pub fn sched_idle(&self, c: Cpu, from: u64) -> Option<bool> {
        if !self.idle_tasks.any() {
            return Some(false);
        }
        let s = &self.cpus[c.ix()];
        let (curr, _) = s.running.filter(|_| !s.lost && s.since < from)?;
        if curr.pid != 0 && !curr.is_fair() {
            return Some(false);
        }
        let of_curr = (curr.pid != 0).then(|| self.idle_tasks.has(&curr)).flatten();
        let nr = s.nr.filter(|_| s.nr_more + s.moved_in == 0);
        let seen = s.queued.len() as i64;
        match nr {
            _ if of_curr == Some(false) => return Some(false),
            Some(1) => return of_curr,
            // Who left without a row is still among the queued.
            Some(nr) if seen > nr => return None,
            _ => {}
        }
        let of = |q: &Seen| {
            let stays = !q.maybe && !q.side.sched_delayed;
            self.idle_tasks.has(&q.side).filter(|&idle| idle || stays)
        };
        let others = s.queued.values().filter(|q| q.side.pid != curr.pid).map(of);
        let of_all = others.fold(of_curr, |all, one| match (all, one) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        });
        of_all.filter(|&idle| nr == Some(seen) || !idle)
    }

    /// Lowest and highest `nr_running` of `c` that a placement between `waking` and `select` can
    /// have read.
    pub fn nr_running(&self, c: Cpu, select: &Row, waking: &Row) -> (u64, u64) {
        let s = &self.cpus[c.ix()];
        let mut seen = vec![];
        for r in [select, waking] {
            if r.rq_cpu == c {
                seen.extend(r.nr_running);
                seen.extend(r.nr_running.map(|n| n + r.nr_more));
            }
        }
        if seen.is_empty() {
            seen.extend(s.nr);
            seen.extend(s.nr.map(|n| n + s.nr_more + s.moved_in));
        }
        let lo = seen.iter().min().copied().unwrap_or(0).max(0) as u64;
        (lo, seen.iter().max().map_or(MOST_TASKS as u64, |&n| n.max(0) as u64))
    }

    /// Rebuilt: tasks on `c` that may be in delayed dequeue.
    pub fn nr_hidden(&self, c: Cpu) -> u64 {
        Some(self.cpus[c.ix()].nr_more).filter(|&n| n < MOST_TASKS).unwrap_or(0) as u64
    }

    /// Rebuilt: tasks on `c` that are known to be in delayed dequeue.
    pub fn nr_surely_delayed(&self, c: Cpu) -> u64 {
        let delayed = |q: &&Seen| q.side.sched_delayed && !q.maybe;
        self.cpus[c.ix()].queued.values().filter(delayed).count() as u64
    }

    /// Rebuilt: tasks on `c` that no row has shown, or that may be in delayed dequeue, at the most.
    pub fn nr_unseen(&self, c: Cpu) -> u64 {
        self.cpus[c.ix()].nr_unseen()
    }

    /// Lowest and highest number of delayed tasks queued on `c`. A pick takes them off without a
    /// row; it may have since a reschedule was asked for, or fewer tasks than we know of are left.
    pub fn nr_delayed(&self, c: Cpu) -> (u64, u64) {
        let s = &self.cpus[c.ix()];
        let n = s.queued.values().filter(|q| q.side.sched_delayed).count() as u64;
        let asked = s.need_resched != NeedResched::No || s.lazy.is_some();
        let others = s.queued.len() as u64 - n;
        let left = s.nr.filter(|_| !asked).map_or(0, |nr| nr.max(0) as u64).saturating_sub(others);
        (n.min(left), n)
    }

    /// Lowest and highest `capacity_of(c)`: full, less what real-time tasks may have used.
    pub fn capacity(&self, c: Cpu, now: u64) -> (u64, u64) {
        let s = &self.cpus[c.ix()];
        let runs = s.class_changes || s.running.is_some_and(|(n, _)| n.is_rt());
        let used = s.rt_used.most(now) + if runs { now.saturating_sub(s.since) } else { 0 };
        (1024 - (used * 1024 / 47_742_000).min(1023), 1024)
    }

    /// Lowest and highest load average of the task running on `c`, and its group.
    pub fn curr_load(&self, c: Cpu, now: u64) -> Option<((u64, u64), i64)> {
        let s = &self.cpus[c.ix()];
        let (side, _) = s.running?;
        let (lo, hi) = (side.load_avg, side.load_avg + side.load_more);
        let grown = |load| average_after(load, side.weight >> 10, now.saturating_sub(s.since));
        Some(((lo.min(grown(lo).0), hi.max(grown(hi).1)), side.tg))
    }
}

#[cfg(test)]
mod tests;
