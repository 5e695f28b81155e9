//! The same rows with the state that a plain trace lets one rebuild.
//!
//! *What.* A plain trace tells who ran where and when, who was woken by whom, and where to. From
//! that alone [`rebuild`] makes rows of the recorded shape; the judge then asks the same questions
//! of them. Virtual times, loads and utilisation are intervals; affinity is left out. Read are
//! time, CPU, kind, tasks, priorities, `prev_state`, the CPUs of wakeups and moves, and calls of
//! `resched_curr` (the answer that preemption is compared with).
//! *Frame.* Virtual times of one CPU count from an origin of that CPU. When a task runs alone the
//! origin is chosen anew so that its time is exact; sleepers' intervals widen by what that moves.
//! *Departures.* D1: all tasks are taken to be SCHED_NORMAL or real-time and in one group. D2: a
//! task that changed its CPU less than twice may be bound to one (a kernel worker moves once, when
//! it is bound), unless its name says. D3: `select_rq` is put before the next row of
//! the waker's CPU. D4: rows of kind `Other` say what a pick tells of tasks that wait, and of those
//! in delayed dequeue which have left, or may have.
//! *Changes.* A task is seen with another priority than before: from when it was last seen with the
//! old one nothing is known of its virtual time. After `sched_yield` it may be a request ahead.

use super::averages::Averages;
use super::delayed::Gone;
use super::moves::{Mover, movers};
use super::queue_frame::{Frame, Span, weight_of};
use super::tuning::Tuning;
use super::wakeups::{Flips, beside_who_leaves};
use crate::shadow::rows::alive::Alive;
use crate::shadow::rows::neighbours::next_times;
use crate::shadow::rows::trace::{Glimpse, Named, PF_KTHREAD, Row, RowKind, Side, Trace};
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::Cpu;
use vruntime_sched::release::{FairKind, Release};

/// `prev_state`: stopped, traced, parked or dead; who goes to sleep like this is not delayed.
const SPECIAL_STATES: i64 = 0xfc;

pub(super) struct Rebuilder<'a> {
    pub(super) t: &'a Trace,
    pub(super) tuning: Tuning,
    pub(super) cpus: Vec<Frame>,
    /// Where a task is queued.
    pub(super) on: BTreeMap<i64, usize>,
    /// Sleeping tasks: where, virtual time there, drift of the frame then, lag.
    pub(super) asleep: BTreeMap<i64, (usize, Span, i64, Span)>,
    /// When a task was last switched from.
    pub(super) left_at: BTreeMap<i64, u64>,
    /// Time of the last event on each CPU.
    pub(super) heard: Vec<u64>,
    pub(super) flips: BTreeMap<(i64, usize), Flips>,
    /// Unbound workers belong to some CPUs, and the work queue may send them there (6.6 on: our
    /// releases with EEVDF).
    pub(super) pods: bool,
    /// Tasks that may be bound (D2).
    stays: BTreeSet<i64>,
    pub(super) averages: Averages<'a>,
    /// What made the moves, by row.
    movers: BTreeMap<usize, Mover>,
    /// Moves after which the same pass takes another task before it puts them on its queue.
    more: BTreeSet<usize>,
    /// Tasks that a pass of a CPU has taken so far.
    in_hand: BTreeMap<usize, Vec<Taken>>,
    /// Rows of tasks in delayed dequeue that have left, or may have, as of the last row.
    left: Vec<Row>,
    /// By CPU: the task that it is waking, with its priority, and where that was.
    pub(super) wakes: BTreeMap<usize, (i64, i64, usize)>,
    /// By task that is being woken: the CPU that does it.
    pub(super) woken_by: BTreeMap<i64, usize>,
    /// Tasks that left their queue, to sleep, before a row tells it: their CPU pulled.
    pub(super) left_early: BTreeSet<i64>,
    /// For how long tasks have been accounted.
    ran: BTreeMap<i64, u64>,
    /// Tasks that call `sched_yield`: not each call leads to a switch.
    yielders: BTreeSet<i64>,
    /// Wakeups on a CPU whose running task may have left by then.
    pub(super) beside_who_leaves: BTreeSet<usize>,
    /// Priority that a task was last seen with.
    prios: BTreeMap<i64, i64>,
    /// Tasks that will be seen with another one: what they are until then is not known.
    changing: BTreeSet<i64>,
    /// Tasks that a stopper moved or woke, and how often: their affinity may have been changed.
    stopped: BTreeMap<i64, i64>,
}

/// A task that was taken off one queue and is not on the other yet.
struct Taken {
    pid: i64,
    prio: i64,
    /// Virtual time beyond that of the queue it left, and lag.
    time: (Span, Span),
    request: Option<i64>,
}

/// Moves that the next row of their CPU follows with another one between the same queues.
fn batches(t: &Trace) -> BTreeSet<usize> {
    let mut last: BTreeMap<Cpu, usize> = BTreeMap::new();
    let mut more = BTreeSet::new();
    for (i, r) in t.rows.iter().enumerate() {
        let before = last.insert(r.cpu, i);
        let same = |j: &usize| {
            let b = &t.rows[*j];
            b.kind == RowKind::Migrate && (b.a, b.b) == (r.a, r.b)
        };
        more.extend(before.filter(same).filter(|_| r.kind == RowKind::Migrate));
    }
    more
}

/// `t` as a plain trace tells it.
pub fn rebuild(t: &Trace, k: &Release) -> Trace {
    let mut seen: BTreeMap<i64, (u16, u32)> = BTreeMap::new();
    for r in t.rows.iter().filter(|r| r.kind == RowKind::Switch) {
        for s in [Some(r.p), r.n].into_iter().flatten() {
            let (at, moves) = seen.entry(s.pid).or_insert((r.cpu.0, 0));
            *moves += u32::from(*at != r.cpu.0);
            *at = r.cpu.0;
        }
    }
    let stays = seen.iter().filter(|s| s.1.1 < 2).map(|s| *s.0).collect();
    let tuning = Tuning::new(k, t.nr_cpus);
    let movers = movers(t);
    let mut b = Rebuilder {
        t,
        tuning,
        cpus: vec![Frame::default(); t.nr_cpus],
        on: BTreeMap::new(),
        asleep: BTreeMap::new(),
        left_at: BTreeMap::new(),
        heard: vec![0; t.nr_cpus],
        flips: BTreeMap::new(),
        pods: k.fair == FairKind::Eevdf,
        stays,
        averages: Averages::new(k, t.nr_cpus, t.rows.first().map_or(1, |r| r.ts.max(1))),
        more: batches(t),
        in_hand: BTreeMap::new(),
        left: vec![],
        wakes: BTreeMap::new(),
        woken_by: BTreeMap::new(),
        left_early: BTreeSet::new(),
        ran: BTreeMap::new(),
        yielders: t.rows.iter().filter(|r| yields(t, r)).map(|r| r.p.pid).collect(),
        beside_who_leaves: beside_who_leaves(t, &movers),
        movers,
        prios: BTreeMap::new(),
        changing: BTreeSet::new(),
        stopped: BTreeMap::new(),
    };
    let mut changes = changes(t);
    let next = next_times(t);
    let mut rows = Vec::with_capacity(t.rows.len());
    let mut glimpses = t.glimpses.iter().peekable();
    for (i, r) in t.rows.iter().enumerate() {
        while let Some(g) = glimpses.next_if(|g| g.before <= i) {
            b.heard[g.cpu.ix()] = g.ts;
            b.averages.reach(g.ts);
            rows.extend(b.account(g));
            rows.append(&mut b.left);
        }
        b.averages.reach(r.ts);
        shown(r).for_each(|s| b.note_prio(s, r.ts));
        match r.kind {
            RowKind::Switch => rows.push(b.switch(r)),
            RowKind::Waking => {
                b.note_stopper(r);
                let choice = b.choice(i, next[i]);
                rows.push(b.waking(r));
                rows.extend(choice);
            }
            RowKind::Wakeup | RowKind::WakeupNew => rows.push(b.wakeup(i)),
            RowKind::Migrate => rows.push(b.migrate(i, next[i])),
            RowKind::NeedResched => rows.push(b.need_resched(r)),
            RowKind::SelectRq | RowKind::Tick | RowKind::Other => {}
        }
        b.heard[r.cpu.ix()] = r.ts;
        rows.append(&mut b.left);
        for (pid, prio) in changes.remove(&i).into_iter().flatten() {
            b.will_change(pid, prio, r.ts);
        }
    }
    rows.sort_by_key(|r| r.ts);
    // What the other rows say about the call chain of a move.
    let mut stacks = t.stacks.clone();
    stacks.extend(Mover::ALL.map(|m| m.chain().iter().map(|f| (*f).to_owned()).collect()));
    Trace {
        rows,
        stacks,
        rebuilt: true,
        nr_cpus: t.nr_cpus,
        isolated: t.isolated,
        named: t.named.clone(),
        programs: t.programs.clone(),
        glimpses: vec![],
        alive: Alive::new(t),
        plain: t.plain,
        wakings_only: t.wakings_only,
    }
}

/// The task of `r` is switched from as it called `sched_yield`.
fn yields(t: &Trace, r: &Row) -> bool {
    t.yields(r) || r.kind == RowKind::Switch && r.due == Some(false)
}

/// The tasks that `r` shows with their priority.
fn shown(r: &Row) -> impl Iterator<Item = &Side> {
    use RowKind::{Migrate, Switch, Wakeup, WakeupNew, Waking};
    let tells = matches!(r.kind, Switch | Waking | Wakeup | WakeupNew | Migrate);
    [Some(&r.p), r.n.as_ref()].into_iter().flatten().filter(move |s| tells && s.pid != 0)
}

/// By row: tasks that are seen next with another priority than in that row, and which.
fn changes(t: &Trace) -> BTreeMap<usize, Vec<(i64, i64)>> {
    let mut next = BTreeMap::new();
    let mut changes: BTreeMap<usize, Vec<(i64, i64)>> = BTreeMap::new();
    for (i, r) in t.rows.iter().enumerate().rev() {
        for s in shown(r) {
            if let Some(prio) = next.insert(s.pid, s.prio).filter(|&prio| prio != s.prio) {
                changes.entry(i).or_default().push((s.pid, prio));
            }
        }
    }
    changes
}

impl Rebuilder<'_> {
    /// The task of `s` is seen with this priority.
    fn note_prio(&mut self, s: &Side, now: u64) {
        self.changing.remove(&s.pid);
        let Some(before) = self.prios.insert(s.pid, s.prio).filter(|&p| p != s.prio) else {
            return;
        };
        if let Some(&c) = self.on.get(&s.pid) {
            self.cpus[c].update(now, &self.tuning);
            self.cpus[c].has_changed(s.pid, s.prio, &self.tuning);
        } else if let Some(slept) = self.asleep.get_mut(&s.pid) {
            slept.3 = self.tuning.reweighted(slept.3, before, s.prio);
        }
        self.averages.has_changed(s.pid, s.prio, now);
    }

    /// See [`changes`].
    fn will_change(&mut self, pid: i64, prio: i64, now: u64) {
        let Some(&before) = self.prios.get(&pid) else { return };
        self.changing.insert(pid);
        if let Some(&c) = self.on.get(&pid) {
            self.cpus[c].update(now, &self.tuning);
            self.cpus[c].will_change(pid);
        }
        self.averages.will_change(pid, before, prio, now);
    }

    /// A row with nothing but plain columns.
    pub(super) fn plain(&self, r: &Row, at: usize) -> Row {
        let (nr_running, nr_more) = self.cpus[at].nr_running();
        let named = |pid: i64| self.t.named.get(&pid).copied();
        let allowed = |n: Named| match n {
            Named::Unbound => Some(self.t.nr_cpus as i64),
            Named::Kernel => None,
            Named::Bound | Named::Stopper => Some(1),
        };
        let told = named(r.p.pid).and_then(allowed).is_some();
        let stays = self.stays.contains(&r.p.pid) && !told;
        let p_allowed = match self.stopped.get(&r.p.pid) {
            _ if matches!(named(r.p.pid), Some(Named::Bound | Named::Stopper)) => 1,
            Some(times) => -times,
            None if stays => 0,
            None => self.t.nr_cpus as i64,
        };
        let mut p = Side { pid: r.p.pid, prio: r.p.prio, ..Side::default() };
        self.averages.tell(&mut p, at);
        Row {
            curr_pid: r.curr_pid,
            a: r.a,
            b: r.b,
            rq_cpu: Cpu::from_ix(at),
            nr_running: Some(nr_running),
            nr_more,
            nr_fair: Some(self.cpus[at].nr_fair()),
            clock_task: Some(r.ts as i64),
            p_nr_cpus_allowed: Some(p_allowed),
            curr_flags: named(r.curr_pid).map(|_| PF_KTHREAD),
            curr_nr_cpus_allowed: named(r.curr_pid).and_then(allowed),
            p,
            flags: r.flags,
            asked: r.asked,
            due: r.due,
            line: r.line,
            ..Row::new(r.ts, r.cpu, r.kind)
        }
    }

    /// `pid` is known to be in delayed dequeue.
    pub(super) fn is_delayed(&self, pid: i64) -> bool {
        self.on.get(&pid).is_some_and(|&c| self.cpus[c].is_delayed(pid))
    }

    /// The state of a task on `c`.
    pub(super) fn side(&self, c: usize, s: &Side) -> Side {
        let mut side = self.cpus[c].side(s.pid, s.prio, &self.tuning);
        side.sum_exec = self.ran.get(&s.pid).copied().unwrap_or(0);
        self.averages.tell(&mut side, c);
        side
    }

    pub(super) fn cpu_of(&self, n: i64, or: Cpu) -> usize {
        usize::try_from(n).ok().filter(|&c| c < self.cpus.len()).unwrap_or(or.ix())
    }

    fn switch(&mut self, r: &Row) -> Row {
        let c = r.cpu.ix();
        let n = r.n.unwrap_or_default();
        self.wakes.remove(&c);
        let f = &mut self.cpus[c];
        f.update(r.ts, &self.tuning);
        self.left_at.insert(r.p.pid, r.ts);
        let left_early = self.left_early.remove(&r.p.pid);
        if !left_early && f.has_run() && !f.runs(r.p.pid) {
            // Rows are missing: who waits here is not known.
            for pid in f.forget_others(r.p.pid) {
                self.on.remove(&pid);
                self.averages.leave(pid, true, r.ts);
            }
        }
        let f = &mut self.cpus[c];
        if r.p.pid != 0 && !left_early {
            f.ensure(r.p.pid, r.p.prio, &self.tuning);
            f.settle(r.p.pid);
        }
        let stays = r.p.pid != 0 && r.stays();
        if r.p.is_fair() && !left_early && !self.on.contains_key(&r.p.pid) {
            self.averages.enter(r.p.pid, r.p.prio, c, r.ts);
        }
        let yields = stays && yields(self.t, r);
        if yields {
            self.cpus[c].may_yield(r.p.pid, &self.tuning);
        }
        let t = match r.prev_state() & SPECIAL_STATES {
            0 => self.tuning,
            _ => self.tuning.without_delay(),
        };
        let delayed = !stays && self.cpus[c].delay(r.p.pid, &t);
        let mut p = self.side(c, &r.p);
        p.on_rq = stays || delayed;
        if delayed {
            let lag = self.tuning.lag_after_delay(weight_of(r.p.prio));
            self.asleep.insert(r.p.pid, (c, Span::at(0), 0, lag));
            self.averages.leave(r.p.pid, true, r.ts);
        } else if r.p.pid != 0 && !stays && !left_early {
            if let Some((v, lag)) = self.cpus[c].leave(r.p.pid, &t) {
                let own = Span::at(self.cpus[c].origin.unwrap_or(0));
                self.asleep.insert(r.p.pid, (c, v.minus(own), self.cpus[c].drift, lag));
            }
            self.on.remove(&r.p.pid);
            let hides = self.cpus[c].hides(r.p.pid);
            p.sched_delayed = hides;
            self.averages.leave(r.p.pid, hides, r.ts);
        } else if r.p.pid != 0 && stays {
            self.on.insert(r.p.pid, c);
        }
        if n.pid != 0 {
            if let Some(old) = self.on.insert(n.pid, c).filter(|&o| o != c) {
                self.cpus[old].leave(n.pid, &self.tuning);
            }
            self.cpus[c].ensure(n.pid, n.prio, &self.tuning);
            if n.is_fair() {
                self.averages.enter(n.pid, n.prio, c, r.ts);
            }
        }
        if self.cpus[c].hides(r.p.pid) {
            self.tell(r.ts, c, r.p.pid);
        }
        let gone = self.cpus[c].run(n.pid, r.ts, &self.tuning);
        self.take_off(r.ts, c, gone);
        for pid in std::mem::take(&mut self.cpus[c].learnt) {
            self.tell(r.ts, c, pid);
        }
        let next = Some(n.pid).filter(|_| n.pid == 0 || n.is_fair());
        self.averages.run(c, next, r.ts);
        self.averages.tell(&mut p, c);
        if self.t.exits(r) {
            self.averages.exit(r.p.pid, r.ts);
        }
        let mut row = self.plain(r, c);
        let next = self.side(c, &n);
        // Both sides tell how many were queued with the task switched from.
        (row.p, row.n) = (p, Some(next));
        row.due = yields.then_some(false);
        row
    }

    /// `c` pulls as it has nothing left: its running task, which a row will show to sleep, has
    /// left, and after it whoever was delayed there.
    fn found_nothing(&mut self, c: usize, now: u64) {
        let pid = self.cpus[c].running();
        if !self.tuning.is_eevdf() || pid == 0 || !self.left_early.insert(pid) {
            return;
        }
        let f = &mut self.cpus[c];
        f.update(now, &self.tuning);
        f.settle(pid);
        let lag = match f.delay(pid, &self.tuning) {
            true => {
                self.tuning.lag_after_delay(weight_of(self.prios.get(&pid).copied().unwrap_or(120)))
            }
            false => f.leave(pid, &self.tuning).map_or(Span::at(0), |left| left.1),
        };
        self.asleep.insert(pid, (c, Span::at(0), f.drift, lag));
        self.on.remove(&pid);
        self.averages.leave(pid, false, now);
        let (came, gone) = self.cpus[c].came_to_nothing(now, &self.tuning);
        self.take_off(now, c, gone);
        for pid in came {
            self.tell(now, c, pid);
        }
    }

    /// Tasks on `c` in delayed dequeue have left by `now`, or may have.
    pub(super) fn take_off(&mut self, now: u64, c: usize, gone: Vec<Gone>) {
        for Gone { pid, sure } in gone {
            if sure {
                self.averages.gone(pid, now);
            }
            self.on.remove(&pid);
            self.tell(now, c, pid);
        }
    }

    /// A row that says what is known of `pid` on `c`: it is queued, or may be, in delayed dequeue.
    fn tell(&mut self, now: u64, c: usize, pid: i64) {
        let f = &self.cpus[c];
        let mut row = Row::new(now, Cpu::from_ix(c), RowKind::Other);
        row.p =
            f.side_if_delayed(pid, &self.tuning).unwrap_or_else(|| f.side(pid, 120, &self.tuning));
        row.curr_pid = f.running();
        self.left.push(row);
    }

    /// An event that tells for how long a queued task has run, and maybe its virtual time.
    fn account(&mut self, g: &Glimpse) -> Option<Row> {
        let ran = g.ran?;
        *self.ran.entry(ran.pid).or_default() += ran.runtime;
        self.accounts(g.cpu.ix(), ran.pid, g.ts);
        let c = *self.on.get(&ran.pid)?;
        let f = &mut self.cpus[c];
        let mut before = f.side(ran.pid, 120, &self.tuning);
        let changing = self.changing.contains(&ran.pid);
        let known = !changing && (!self.tuning.is_eevdf() || f.knows_deadline(ran.pid));
        match ran.vruntime {
            Some(v) if !self.tuning.is_eevdf() => f.account(ran.pid, v as i64, g.ts, &self.tuning),
            _ if self.tuning.is_eevdf() && f.ran(ran.pid, ran.runtime, g.ts, &self.tuning) => {
                let gone = f.may_have_picked();
                self.take_off(g.ts, c, gone);
            }
            _ => {}
        }
        let f = &mut self.cpus[c];
        let own = g.flags.is_none_or(|f| !f.interrupt) && f.runs(ran.pid);
        if own && self.yielders.contains(&ran.pid) {
            f.may_yield(ran.pid, &self.tuning);
        }
        let tick = g.tick.filter(|_| c == g.cpu.ix() && f.runs(ran.pid));
        if !f.is_queued(ran.pid) || tick.or(ran.vruntime.map(|_| None)).is_none() {
            return None;
        }
        let several = f.nr_running().0 > 1;
        if self.tuning.is_eevdf() && several && tick == Some(Some(true)) {
            f.ended(ran.pid, &self.tuning);
        }
        if tick.is_some() {
            self.averages.tick(c, g.ts);
        }
        let f = &self.cpus[c];
        let mut row = Row::new(g.ts, g.cpu, RowKind::Other);
        row.curr_pid = g.curr_pid;
        row.rq_cpu = Cpu::from_ix(c);
        row.clock_task = Some(f.clock(g.ts));
        row.p = self.side(c, &Side { pid: ran.pid, prio: 120, ..Side::default() });
        if let Some(asked) = tick {
            row.kind = RowKind::Tick;
            row.asked = asked;
            row.due = g.flags.map(|f| f.need_resched || f.lazy);
            self.averages.tell(&mut before, c);
            row.n = known.then_some(before);
        }
        Some(row)
    }

    /// A stopper moves or wakes the task of `r`.
    fn note_stopper(&mut self, r: &Row) {
        if self.t.named.get(&r.curr_pid) == Some(&Named::Stopper) {
            *self.stopped.entry(r.p.pid).or_default() += 1;
        }
    }

    /// What moves a task writes the row, and puts the task on its new queue before its next row.
    fn migrate(&mut self, i: usize, next: u64) -> Row {
        let r = &self.t.rows[i];
        self.note_stopper(r);
        let (from, to) = (self.cpu_of(r.src_cpu(), r.rq_cpu), self.cpu_of(r.dst_cpu(), r.rq_cpu));
        let mover = self.movers.get(&i).copied().unwrap_or(Mover::Unknown);
        let chain = Mover::ALL.iter().position(|&m| m == mover);
        let stack = chain.map(|at| self.t.stacks.len() + at);
        if mover == Mover::Wakeup {
            let row = Row { stack, ..self.plain(r, from) };
            self.departs(r.p.pid, from, r.ts);
            self.averages.chosen(r.p.pid, r.ts);
            return row;
        }
        if self.cpus[from].woken(r.p.pid) {
            self.on.remove(&r.p.pid);
            self.cpus[to].hide(r.p.pid);
            self.averages.chosen(r.p.pid, r.ts);
            let mut row = Row { stack, ..self.plain(r, from) };
            (row.p.on_rq, row.p.sched_delayed) = (true, true);
            return row;
        }
        if mover == Mover::Newidle && r.cpu.ix() == to {
            self.found_nothing(to, r.ts);
        }
        self.cpus[from].ensure(r.p.pid, r.p.prio, &self.tuning);
        self.cpus[from].update(r.ts, &self.tuning);
        self.cpus[to].update(r.ts, &self.tuning);
        let request = self.cpus[from].request_left(r.p.pid);
        let left = self.cpus[from].leave(r.p.pid, &self.tuning);
        self.on.remove(&r.p.pid);
        // The row tells how many are left.
        if r.p.is_fair() {
            self.averages.enter(r.p.pid, r.p.prio, to, r.ts);
        }
        let mut row = Row { stack, ..self.plain(r, from) };
        if let Some((v, lag)) = left {
            let relative = v.minus(self.cpus[from].min_vruntime);
            let taken = Taken { pid: r.p.pid, prio: r.p.prio, time: (relative, lag), request };
            self.in_hand.entry(r.cpu.ix()).or_default().push(taken);
        }
        if self.more.contains(&i) {
            return row;
        }
        let hand = self.in_hand.remove(&r.cpu.ix()).unwrap_or_default();
        self.attach(to, &hand, next.saturating_sub(r.ts));
        hand.iter().filter(|p| p.pid != r.p.pid).for_each(|p| self.tell(r.ts, to, p.pid));
        if hand.last().is_some_and(|p| p.pid == r.p.pid) {
            row.p = self.side(to, &r.p);
            self.averages.tell(&mut row.p, from);
        }
        row
    }

    /// `attach_tasks`: those that a pass has in its hands go on `to`, the last taken first.
    fn attach(&mut self, to: usize, hand: &[Taken], within: u64) {
        for p in hand.iter().rev() {
            self.cpus[to].account_now();
            self.cpus[to].enter(p.pid, p.prio, Some(p.time), &self.tuning);
            self.cpus[to].keep_request(p.pid, p.request, &self.tuning);
            self.cpus[to].may_enter_later(p.pid, within, &self.tuning);
            self.on.insert(p.pid, to);
        }
    }

    fn need_resched(&mut self, r: &Row) -> Row {
        let c = self.cpu_of(r.task_cpu(), r.rq_cpu);
        self.cpus[c].update(r.ts, &self.tuning);
        let mut row = self.plain(r, c);
        row.p = self.side(c, &r.p);
        row.stack = r.stack;
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::tests::{pulled, rebuilt, rebuilt_as, row, switch, woken};

    /// 1, on CPU 0 of v6.12, makes 2 and runs. It ends: it leaves at once. It sleeps ahead of
    /// 2: it stays, until the CPU goes idle; no CPU is chosen when it is woken before.
    #[test]
    fn who_sleeps_ahead_stays_and_who_ends_does_not() {
        let sleeps = |prev_state: i64, then: Vec<Row>| {
            let mut rows = vec![switch(10, 0, 9, 0, true)];
            rows.extend(woken(12, 0, 1, 0));
            rows.push(switch(20, 0, 0, 1, false));
            rows.push(row(30, 0, RowKind::WakeupNew, 2, 1));
            let away = switch(1_000_000, 0, 1, 2, true);
            rows.push(Row { b: prev_state, ..away });
            rows.extend(then);
            rebuilt_as("v6.12", rows, &[])
        };
        let stays = |rows: &[Row]| rows.iter().any(|r| r.p.pid == 1 && r.p.sched_delayed);
        assert!(stays(&sleeps(1, vec![])) && !stays(&sleeps(0x20, vec![])));
        let idle = vec![switch(1_200_000, 0, 2, 0, true)];
        let gone = |r: &Row| r.kind == RowKind::Other && r.p.pid == 1 && !r.p.on_rq;
        assert!(sleeps(1, idle).iter().any(gone));
        let chosen = |r: &Row| r.kind == RowKind::SelectRq && r.p.pid == 1 && r.ts > 30;
        assert!(!sleeps(1, woken(1_200_000, 0, 1, 2).into()).iter().any(chosen));
        assert!(sleeps(0x20, woken(1_200_000, 0, 1, 2).into()).iter().any(chosen));
    }

    /// CPU 0 pulls 2 as nothing is left when 1 sleeps: 1 has left alone, and 2 starts on an empty
    /// queue.
    #[test]
    fn who_sleeps_has_left_when_its_cpu_pulls() {
        let mut rows = vec![switch(10, 0, 9, 0, true), switch(11, 1, 9, 0, true)];
        rows.extend(woken(12, 0, 1, 0));
        rows.push(switch(20, 0, 0, 1, false));
        for pid in [2, 3] {
            rows.extend(woken(22, 1, pid, 0));
        }
        rows.push(switch(25, 1, 0, 3, false));
        rows.push(pulled(1_000_000, 2, 1));
        rows.push(switch(1_000_100, 0, 1, 2, true));
        let rows = rebuilt_as("v6.12", rows, &[]);
        let last = rows.iter().rfind(|r| r.kind == RowKind::Switch).unwrap();
        assert_eq!((last.p.on_rq, last.n.unwrap().cfs_nr, last.nr_running), (false, 1, Some(1)));
        assert_eq!((last.p.cfs_load_weight >> 10, last.p.cfs_weight_more), (1024, 0));
        assert!(!rows.iter().any(|r| r.p.pid == 1 && r.p.sched_delayed));
    }

    /// 1 sleeps ahead of 2 and stays, delayed; 2 sleeps behind it, and CPU 0 pulls 3. 2 is owed
    /// half of what 1 was ahead, and, woken beside 3, gets it.
    #[test]
    fn who_leaves_beside_a_delayed_one_is_owed_something() {
        let mut rows = vec![switch(10, 0, 9, 0, true), switch(11, 1, 9, 0, true)];
        for (cpu, pid) in [(0, 1), (0, 2), (1, 3), (1, 4)] {
            let new = row(12, cpu, RowKind::WakeupNew, pid, 0);
            rows.push(Row { a: i64::from(cpu), ..new });
        }
        rows.extend([switch(20, 0, 0, 1, false), switch(25, 1, 0, 4, false)]);
        rows.push(switch(1_000_020, 0, 1, 2, true));
        rows.push(pulled(1_100_000, 3, 2));
        rows.push(switch(1_100_100, 0, 2, 3, true));
        rows.extend(woken(1_200_000, 0, 2, 3));
        let rows = rebuilt_as("v6.12", rows, &[]);
        let of = |kind| rows.iter().rfind(|r| r.kind == kind).unwrap();
        let (woken, runs) = (of(RowKind::Wakeup).p, of(RowKind::Switch).n.unwrap());
        let behind = (runs.vruntime + 99_900).wrapping_sub(woken.vruntime) as i64;
        assert!((850_000..950_000).contains(&behind), "{behind}");
    }

    /// 1 and 2 are on CPU 0; CPU 1 pulls 2, and one is left.
    #[test]
    fn a_task_that_was_pulled_away_is_no_longer_counted() {
        let mut rows = vec![switch(10, 0, 9, 0, true)];
        rows.extend(woken(12, 0, 1, 0));
        rows.push(switch(20, 0, 0, 1, false));
        rows.extend(woken(30, 0, 2, 1));
        rows.push(Row { a: 0, b: 1, ..row(40, 1, RowKind::Migrate, 2, 0) });
        let rows = rebuilt(rows, &[]);
        let nr = |kind| rows.iter().rfind(|r| r.kind == kind).and_then(|r| r.nr_running);
        assert_eq!((nr(RowKind::Wakeup), nr(RowKind::Migrate)), (Some(2), Some(1)));
        assert!(rows.iter().all(|r| r.rq_cpu != Cpu(0) || r.nr_more == 0));
    }
}
