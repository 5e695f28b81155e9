//! The same rows with the state that a plain trace lets one rebuild.
//!
//! *What.* A plain trace tells who ran where and when, who was woken by whom, and where to. From
//! that alone [`rebuild`] makes rows of the recorded shape; the judge then asks the same questions
//! of them. Virtual times are intervals ([`Side::slop`]); loads, utilisation and affinity are left
//! out. Read are time, CPU, kind, tasks, priorities, `prev_state`, the CPUs of wakeups and moves,
//! and calls of `resched_curr` (the answer that preemption is compared with).
//! *Frame.* Virtual times of one CPU count from an origin of that CPU. When a task runs alone the
//! origin is chosen anew so that its time is exact; sleepers' intervals widen by what that moves.
//! *Departures.* D1: all tasks are taken to be SCHED_NORMAL or real-time and in one group. D2: a
//! task that changed its CPU less than twice may be bound to one (a kernel worker moves once, when
//! it is bound). D3: `select_rq` is put before the next row of
//! the waker's CPU. D4: a task that may have stayed for delayed dequeue hides in the queue until
//! the CPU goes idle.

use super::queue_frame::{Frame, Span, Tuning};
use super::trace::{Row, RowKind, Side, Trace};
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::Cpu;
use vruntime_sched::release::Release;

/// Bit of `Row::b` of a `select_rq` row: whether the wakeup is synchronous is not known.
pub const SYNC_NOT_KNOWN: i64 = 1 << 32;
/// More flips than this change nothing: no factor of `wake_wide` is larger.
const MOST_FLIPS: i64 = 1 << 12;
const JIFFIES_1S: u64 = 1_000_000_000;

/// Wakeup statistics of a task.
#[derive(Clone, Copy, Debug)]
struct Flips {
    least: i64,
    most: i64,
    last_wakee: i64,
    decayed: Option<u64>,
}

impl Flips {
    const UNKNOWN: Flips = Flips { least: 0, most: MOST_FLIPS, last_wakee: -1, decayed: None };

    /// `record_wakee`.
    fn record(&mut self, wakee: i64, now: u64) {
        match self.decayed {
            Some(then) if now - then > JIFFIES_1S => {
                (self.least, self.most) = (self.least >> 1, self.most >> 1);
                self.decayed = Some(now);
            }
            Some(_) => {}
            None => {
                self.least >>= 1;
                self.decayed = Some(now);
            }
        }
        if self.last_wakee != wakee {
            self.least += i64::from(self.last_wakee >= 0);
            self.most += 1;
            self.last_wakee = wakee;
        }
    }
}

struct Rebuilder<'a> {
    t: &'a Trace,
    tuning: Tuning,
    cpus: Vec<Frame>,
    /// Where a task is queued.
    on: BTreeMap<i64, usize>,
    /// Sleeping tasks: where, virtual time there, drift of the frame then, lag.
    asleep: BTreeMap<i64, (usize, Span, i64, Span)>,
    flips: BTreeMap<(i64, usize), Flips>,
    /// Tasks that may be bound (D2).
    stays: BTreeSet<i64>,
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
    let mut b = Rebuilder {
        t,
        tuning,
        cpus: vec![Frame::default(); t.nr_cpus],
        on: BTreeMap::new(),
        asleep: BTreeMap::new(),
        flips: BTreeMap::new(),
        stays,
    };
    let next = super::idle::next_times(t);
    let mut rows = Vec::with_capacity(t.rows.len());
    for (i, r) in t.rows.iter().enumerate() {
        match r.kind {
            RowKind::Switch => rows.push(b.switch(r)),
            RowKind::Waking => {
                let choice = b.choice(i, next[i]);
                rows.push(b.waking(r));
                rows.extend(choice);
            }
            RowKind::Wakeup | RowKind::WakeupNew => rows.push(b.wakeup(r)),
            RowKind::Migrate => rows.push(b.migrate(i)),
            RowKind::NeedResched => rows.push(b.need_resched(r)),
            RowKind::SelectRq | RowKind::Other => {}
        }
    }
    rows.sort_by_key(|r| r.ts);
    // What the order of rows says about the call chain of a move (see `migrate`).
    let mut stacks = t.stacks.clone();
    stacks.push(vec!["try_to_wake_up".to_owned()]);
    Trace {
        rows,
        stacks,
        rebuilt: true,
        nr_cpus: t.nr_cpus,
        isolated: t.isolated,
        glimpses: vec![],
        plain: t.plain,
    }
}

impl Rebuilder<'_> {
    /// A row with nothing but plain columns.
    fn plain(&self, r: &Row, at: usize) -> Row {
        let bound = self.stays.contains(&r.p.pid);
        Row {
            curr_pid: r.curr_pid,
            a: r.a,
            b: r.b,
            rq_cpu: Cpu::from_ix(at),
            nr_running: self.cpus[at].nr_running(),
            clock_task: Some(r.ts as i64),
            p_nr_cpus_allowed: Some(if bound { 0 } else { self.t.nr_cpus as i64 }),
            p: Side { pid: r.p.pid, prio: r.p.prio, ..Side::default() },
            flags: r.flags,
            asked: r.asked,
            due: r.due,
            line: r.line,
            ..Row::new(r.ts, r.cpu, r.kind)
        }
    }

    /// The state of a task on `c`.
    fn side(&self, c: usize, s: &Side) -> Side {
        self.cpus[c].side(s.pid, s.prio, &self.tuning)
    }

    fn cpu_of(&self, n: i64, or: Cpu) -> usize {
        usize::try_from(n).ok().filter(|&c| c < self.cpus.len()).unwrap_or(or.ix())
    }

    fn switch(&mut self, r: &Row) -> Row {
        let c = r.cpu.ix();
        let n = r.n.unwrap_or_default();
        let f = &mut self.cpus[c];
        f.update(r.ts, &self.tuning);
        if r.p.pid != 0 {
            f.ensure(r.p.pid, r.p.prio, &self.tuning);
        }
        let stays = r.p.pid != 0 && (r.b == 0 || r.a != 0 || r.b & 0x100 != 0);
        let mut p = self.side(c, &r.p);
        p.on_rq = stays;
        if r.p.pid != 0 && !stays {
            if let Some((v, lag)) = self.cpus[c].leave(r.p.pid, &self.tuning) {
                self.asleep.insert(r.p.pid, (c, v, self.cpus[c].drift, lag));
            }
            self.on.remove(&r.p.pid);
        } else if r.p.pid != 0 {
            self.on.insert(r.p.pid, c);
        }
        if n.pid != 0 {
            if let Some(old) = self.on.insert(n.pid, c).filter(|&o| o != c) {
                self.cpus[old].leave(n.pid, &self.tuning);
            }
            self.cpus[c].ensure(n.pid, n.prio, &self.tuning);
        }
        self.cpus[c].run(n.pid, r.ts, &self.tuning);
        let mut row = self.plain(r, c);
        let next = self.side(c, &n);
        // Both sides tell how many were queued with the task switched from.
        (row.p, row.n) = (p, Some(next));
        row
    }

    fn waking(&mut self, r: &Row) -> Row {
        let at = self.cpu_of(r.a, r.rq_cpu);
        let mut row = self.plain(r, at);
        row.p.on_rq = self.on.contains_key(&r.p.pid);
        row
    }

    /// The choice of a CPU of the wakeup that starts at row `i`.
    fn choice(&mut self, i: usize, next: u64) -> Option<Row> {
        let r = &self.t.rows[i];
        if self.on.contains_key(&r.p.pid) || r.p.pid == r.curr_pid || r.p.prio < 100 {
            return None;
        }
        let rest = self.t.rows[i + 1..].iter();
        let done = rest
            .clone()
            .find(|x| x.p.pid == r.p.pid && matches!(x.kind, RowKind::Wakeup | RowKind::Waking))?;
        let prev = self.cpu_of(r.a, r.rq_cpu);
        let waker = (r.curr_pid, if r.curr_pid == 0 { r.cpu.ix() } else { 0 });
        let w = self.flips.entry(waker).or_insert(Flips::UNKNOWN);
        w.record(r.p.pid, r.ts);
        let w = *w;
        let p = *self.flips.entry((r.p.pid, 0)).or_insert(Flips::UNKNOWN);
        let mut row = self.plain(r, prev);
        row.kind = RowKind::SelectRq;
        // Not a row of the recording: nothing else on the CPU lies between.
        row.ts = next.min(done.ts);
        row.a = done.a;
        row.b = 8 | SYNC_NOT_KNOWN;
        row.wake_cpu = Some(prev as i64);
        (row.curr_wakee_flips, row.wakee_flips) = (Some(w.least), Some(p.least));
        row.flips_more = (w.most - w.least, p.most - p.least);
        Some(row)
    }

    fn wakeup(&mut self, r: &Row) -> Row {
        let c = self.cpu_of(r.a, r.rq_cpu);
        let pid = r.p.pid;
        self.cpus[c].update(r.ts, &self.tuning);
        if r.kind == RowKind::WakeupNew {
            self.cpus[c].enter_new(pid, r.p.prio, &self.tuning);
            let parent = (r.curr_pid, if r.curr_pid == 0 { r.cpu.ix() } else { 0 });
            let inherited = *self.flips.entry(parent).or_insert(Flips::UNKNOWN);
            self.flips.insert((pid, 0), inherited);
        } else if !self.on.contains_key(&pid) {
            let slept = self.asleep.remove(&pid).map(|(home, v, drift, lag)| {
                let f = &mut self.cpus[home];
                f.woken(pid);
                let v = v.widened(f.drift - drift);
                (v.minus(f.min_vruntime), lag)
            });
            self.cpus[c].enter(pid, r.p.prio, slept, &self.tuning);
        }
        if self.cpus[c].is_queued(pid) {
            self.on.insert(pid, c);
        }
        let mut row = self.plain(r, c);
        row.p = self.side(c, &r.p);
        row.p.on_rq = true;
        row
    }

    fn migrate(&mut self, i: usize) -> Row {
        let r = &self.t.rows[i];
        let (from, to) = (self.cpu_of(r.a, r.rq_cpu), self.cpu_of(r.b, r.rq_cpu));
        let mut row = self.plain(r, from);
        if !self.on.contains_key(&r.p.pid) {
            // Not queued: it moves because it is being woken.
            row.stack = Some(self.t.stacks.len());
            return row;
        }
        self.cpus[from].update(r.ts, &self.tuning);
        self.cpus[to].update(r.ts, &self.tuning);
        if let Some((v, lag)) = self.cpus[from].leave(r.p.pid, &self.tuning) {
            let relative = v.minus(self.cpus[from].min_vruntime);
            self.cpus[to].enter(r.p.pid, r.p.prio, Some((relative, lag)), &self.tuning);
            self.on.insert(r.p.pid, to);
            row.p = self.side(to, &r.p);
            let m = self.cpus[to].min_vruntime;
            row.p.vruntime = row.p.vruntime.wrapping_sub(m.middle() as u64);
        }
        row
    }

    fn need_resched(&mut self, r: &Row) -> Row {
        let c = self.cpu_of(r.a, r.rq_cpu);
        self.cpus[c].update(r.ts, &self.tuning);
        let mut row = self.plain(r, c);
        row.p = self.side(c, &r.p);
        row.stack = r.stack;
        row
    }
}
