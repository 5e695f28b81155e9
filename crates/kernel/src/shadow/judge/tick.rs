//! Tick preemption: at a tick of a CPU whose queue holds more than the running task, does our code
//! ask for a reschedule as the kernel did?
//!
//! *What.* A tick that asks leaves a row from within `task_tick_fair`, which shows the running
//! entity as it was just accounted. A tick that does not ask leaves none; that it happened is
//! known only where the same interrupt went on to run expired timers, which a row shows. What the
//! interrupt woke before that came after the tick. A tick may ask twice, which is one decision.
//! Nontrivial: all of them, for a task alone on its queue is not asked about.
//! Most of what is judged are therefore ticks that asked.
//! *From a plain trace.* Every tick that accounted a task shows in its events, and mostly, as they
//! carry the flag, whether it asked (`rebuild::answers`). Groups do not show. At the root a request
//! ends to the nanosecond, so a task whose ticks have asked at other moments, twice and more than
//! once in twenty, is taken to be in one from then on. A tick never tells about itself.
//! *Departures.* D1: of a tick that is known by its timers the moment is known to half a tick.
//! D2: ticks of tasks in groups are not judged beyond the recorded level. D3: from a plain trace,
//! ticks that find the flag set are not decisions: whether they ask changes nothing.

use super::explain::{gap, size};
use super::result::{Disagreement, KindResult};
use crate::shadow::question::decide::Decider;
use crate::shadow::question::known::names::{ANSWER, DEADLINE, DUE, PLACEMENT};
use crate::shadow::question::known::{Asker, Unknown, explore};
use crate::shadow::question::levels::{
    CONTENT, DELAYED, Ent, GROUP, IMPLAUSIBLE, RUNNING, ent, ent_of, follows, level, members, off,
    plausible,
};
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use crate::shadow::state::queues::{LOST, NeedResched, Queues};
use std::collections::BTreeMap;
use vruntime_sched::fair::weight::task_virtual_time;
use vruntime_sched::release::{FairKind, Release};

/// Further off than any entity: virtual time.
const FAR: i64 = 1 << 34;

/// What is known of a CPU's running task since it was picked.
#[derive(Clone, Copy, Debug, Default)]
struct Picked {
    pid: i64,
    /// `prev_sum_exec`.
    sum_exec: u64,
    /// Moment and `clock_task` of the last row of this queue.
    clock: Option<(u64, i64)>,
    /// `clock_task` when the queue last became one of several.
    crowded: Option<i64>,
    /// Last tick that was seen.
    tick: u64,
    /// The task that it asked to give way, and its total time run.
    asked: (i64, u64),
    /// Tasks on the queue before the timer's interrupt that the last row is from.
    before: Option<usize>,
    /// A timer of that interrupt is about to wake a task.
    waking: bool,
}

/// The running task at a tick.
struct AtTick {
    side: Side,
    /// Lowest and highest virtual runtime and total time run.
    vruntime: (u64, u64),
    sum_exec: (u64, u64),
}

/// The row is from the timer's interrupt, or from what that went on to do.
fn in_timer(t: &Trace, r: &Row) -> bool {
    t.stack(r).iter().any(|f| f.contains("sysvec_apic_timer"))
}

/// Counts and disagreements of tick preemption.
pub struct Ticks<'a> {
    t: &'a Trace,
    k: &'a Release,
    decider: &'a Decider<'a>,
    picked: Vec<Picked>,
    new_flags_only: bool,
    /// Rebuilt: ticks of a task that were as our code says, and that were not.
    told: BTreeMap<i64, (u32, u32)>,
    /// Counts.
    pub counts: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Ticks<'a> {
    /// At the start of the recording.
    pub fn new(t: &'a Trace, k: &'a Release, decider: &'a Decider<'a>) -> Ticks<'a> {
        let asks = |r: &&Row| r.kind == RowKind::NeedResched;
        let new_flags_only = t.rows.iter().filter(asks).any(|r| t.shows_new_flags(r));
        Ticks {
            t,
            new_flags_only,
            k,
            decider,
            picked: vec![Picked::default(); t.nr_cpus],
            told: BTreeMap::new(),
            counts: KindResult::new("tick_preemption"),
            disagreements: vec![],
        }
    }

    /// Takes in a row, before `q` does.
    pub fn note(&mut self, r: &Row, q: &Queues) {
        let c = r.rq_cpu.ix();
        if let Some(clock) = r.clock_task {
            self.picked[c].clock = Some((r.ts, clock));
        }
        let interrupt = in_timer(self.t, r);
        let own = &mut self.picked[r.cpu.ix()];
        let here = q.cpus[r.cpu.ix()].queued.len();
        own.before = interrupt.then(|| own.before.unwrap_or(here));
        let alone = q.cpus[c].queued.len() < 2;
        let p = &mut self.picked[c];
        match r.kind {
            RowKind::Switch => {
                let n = r.n.unwrap_or_default();
                (p.pid, p.sum_exec) = (n.pid, n.sum_exec);
                p.crowded = if n.cfs_nr > 1 { r.clock_task } else { None };
            }
            RowKind::Wakeup | RowKind::WakeupNew if alone => p.crowded = r.clock_task,
            // The moment of an arrival by the balancer is not known.
            RowKind::Migrate if alone => {
                if let Some(to) = r.dst_ix(self.picked.len()) {
                    self.picked[to].crowded = None;
                }
            }
            _ => {}
        }
    }

    /// Checks the tick that `r` shows, if it shows one.
    pub fn check(&mut self, r: &Row, q: &Queues) {
        if r.kind == RowKind::Tick {
            return self.shown(r, q);
        }
        let half_a_tick = self.k.tick_ns() / 2;
        if r.kind == RowKind::NeedResched && self.t.has_frame(r, "task_tick_fair") {
            let own = &mut self.picked[r.cpu.ix()];
            own.tick = r.ts;
            let asks = (r.p.pid, r.p.sum_exec);
            if std::mem::replace(&mut own.asked, asks) == asks {
                return;
            }
            if r.rq_cpu == r.cpu && r.p.is_fair() {
                let exact = |x| (x, x);
                let now = AtTick {
                    side: r.p,
                    vruntime: exact(r.p.vruntime),
                    sum_exec: exact(r.p.sum_exec),
                };
                self.ask(r, q, now, true);
            }
            return;
        }
        let timers = in_timer(self.t, r) && self.t.has_frame(r, "run_timer_softirq");
        let own = &mut self.picked[r.cpu.ix()];
        // The rest of a wakeup is of the tick that its beginning was of.
        let waking = timers && matches!(r.kind, RowKind::Waking | RowKind::SelectRq);
        let goes_on = std::mem::replace(&mut own.waking, waking);
        let p = *own;
        if timers && goes_on {
            own.waking = r.kind != RowKind::Wakeup;
            return;
        }
        if !timers || r.ts.saturating_sub(p.tick) < half_a_tick {
            return;
        }
        self.picked[r.cpu.ix()].tick = r.ts;
        let s = &q.cpus[r.cpu.ix()];
        let (Some((side, seen)), Some((ts, clock))) = (s.running, p.clock) else { return };
        if !side.is_fair() || s.queued.len() < 2 || p.before.is_some_and(|n| n < 2) {
            return;
        }
        if self.new_flags_only && (s.need_resched != NeedResched::No || s.lazy.is_some()) {
            return self.counts.miss(&[DUE]);
        }
        let hi = (clock + r.ts.saturating_sub(ts) as i64 - seen).max(0) as u64;
        if hi < half_a_tick {
            // The tick may have come before the task was picked, or be the last one still.
            return;
        }
        if s.queued.values().any(|m| m.side.sched_delayed) {
            return self.counts.miss(&[DELAYED]);
        }
        let ran = (hi - half_a_tick, hi);
        let v = |d| side.vruntime.wrapping_add(task_virtual_time(d, side.weight));
        let now = AtTick {
            side,
            vruntime: (v(ran.0), v(ran.1)),
            sum_exec: (side.sum_exec + ran.0, side.sum_exec + ran.1),
        };
        self.ask(r, q, now, false);
    }

    /// A tick of a rebuilt trace.
    fn shown(&mut self, r: &Row, q: &Queues) {
        let several = q.cpus[r.cpu.ix()].queued.values().filter(|s| !s.maybe).count() > 1;
        if r.due == Some(true) {
            return; // D3
        }
        let Some(kernel) = r.asked else {
            if several {
                self.counts.miss(&[ANSWER]);
            }
            return;
        };
        if !several {
            if kernel {
                self.counts.miss(&[CONTENT]);
            }
            return;
        }
        if r.n.is_none() {
            return self.counts.miss(&[DEADLINE]);
        }
        let exact = |x| (x, x);
        let (vruntime, sum_exec) = (exact(r.p.vruntime), exact(r.p.sum_exec));
        self.ask(r, q, AtTick { side: r.p, vruntime, sum_exec }, kernel);
    }

    fn ask(&mut self, r: &Row, q: &Queues, now: AtTick, kernel: bool) {
        let s = &q.cpus[r.cpu.ix()];
        let nr = if kernel || self.t.rebuilt { now.side.cfs_nr } else { s.queued.len() as i64 };
        if nr < 2 {
            return;
        }
        if self.t.plain && !self.t.rebuilt {
            return self.counts.miss(&[ANSWER]);
        }
        if s.lost {
            return self.counts.miss(&[LOST]);
        }
        if now.side.tg != 0 {
            return self.counts.miss(&[GROUP]);
        }
        let picked = self.picked[r.cpu.ix()];
        let Some((mut before, clock)) = s.running.filter(|x| x.0.pid == now.side.pid) else {
            return self.counts.miss(&[RUNNING]);
        };
        before = r.n.unwrap_or(before);
        let shown = r.kind == RowKind::NeedResched && !self.t.rebuilt;
        if shown && !follows(&before, &Side { deadline: before.deadline, ..now.side }) {
            return self.counts.miss(&[RUNNING]);
        }
        if picked.pid != now.side.pid {
            return self.counts.miss(&[RUNNING]);
        }
        let eevdf = self.k.fair == FairKind::Eevdf;
        // The end of a request hangs on the others only in so far as there are any.
        let unseen = (self.t.rebuilt && eevdf).then(|| q.nr_unseen(r.cpu));
        let others = match members(s, 0, &[now.side.pid], nr, eevdf) {
            Ok(o) => o,
            Err(_) if unseen.is_some() => {
                s.queued.values().filter(|m| m.side.pid != now.side.pid).collect()
            }
            Err(missing) => return self.counts.miss(&[missing]),
        };
        if unseen.is_none() && eevdf && !plausible(now.vruntime.0, others.iter().copied()) {
            return self.counts.miss(&[IMPLAUSIBLE]);
        }
        // A deadline that passes while the task is alone is renewed without a row.
        let past = |v: u64| v.wrapping_sub(before.deadline) as i64 >= 0;
        let alone_until = picked.crowded.map(|c| (c - clock).max(0) as u64);
        let then = |d| before.vruntime.wrapping_add(task_virtual_time(d, before.weight));
        let renewed = !self.t.rebuilt
            && eevdf
            && past(now.vruntime.1)
            && alone_until.is_none_or(|d| past(then(d)));
        if renewed {
            return self.counts.miss(&[DEADLINE]);
        }
        let pid = now.side.pid;
        let question = |k: &mut Asker| {
            let half = Unknown { name: "moment of the tick", of: pid };
            let (lo, hi) = (now.sum_exec.0, now.sum_exec.1);
            let late = lo == hi || k.ask(half, &[1, 0]) == 1;
            let (v, sum) = if late { (now.vruntime.1, hi) } else { (now.vruntime.0, lo) };
            let off = off(k, &now.side);
            let v = v.wrapping_add(off);
            let deadline = before.deadline.wrapping_add(off);
            let curr = Ent { vruntime: v, deadline, delayed: false, ..ent_of(&before) };
            let mut ents = vec![curr];
            let anywhere = |k: &mut Asker, name, of| {
                let u = Unknown { name, of };
                v.wrapping_add(k.ask(u, &[-FAR, FAR]) as u64)
            };
            ents.extend(others.iter().filter_map(|m| match m.exact {
                true => ent(k, m),
                false => {
                    Some(Ent { vruntime: anywhere(k, PLACEMENT, m.side.pid), ..ent_of(&m.side) })
                }
            }));
            let unseen = unseen.unwrap_or(0);
            if unseen > 0 && k.truth(Unknown { name: CONTENT, of: 0 }, None, false) {
                let vruntime = anywhere(k, CONTENT, 1);
                let one = Ent { pid: -1, vruntime, delayed: true, ..ent_of(&now.side) };
                ents.extend(std::iter::repeat_n(one, unseen as usize));
            }
            let mut l = level(ents, Some(pid), s);
            l.protected = Decider::protected(self.k, &before, v.wrapping_sub(off));
            self.decider.tick(&l, sum.saturating_sub(picked.sum_exec))
        };
        let o = explore(question, |a, b| a.0 == b.0);
        if !o.determined {
            return self.counts.miss(&o.tipping);
        }
        let (ours, rule) = o.guess;
        if self.t.rebuilt {
            let told = self.told.entry(pid).or_default();
            let in_group = told.1 >= 2 && told.1 * 20 > told.0 + told.1;
            *(if ours == kernel { &mut told.0 } else { &mut told.1 }) += 1;
            if in_group || self.decider.one_level.contradicted() {
                return self.counts.set_aside(ours == kernel);
            }
        }
        self.counts.count(ours == kernel, true, rule);
        if ours != kernel {
            let word = |b| if b { "asks for a reschedule" } else { "lets it go on" };
            let list: Vec<String> = others
                .iter()
                .map(|m| {
                    let d = m.side.vruntime.wrapping_sub(now.vruntime.1) as i64;
                    format!("task {} vruntime {}", m.side.pid, gap(d))
                })
                .collect();
            self.disagreements.push(Disagreement {
                time: r.ts,
                line: r.line,
                kind: "tick_preemption".into(),
                task: pid,
                expected: word(kernel).into(),
                got: word(ours).into(),
                rule: rule.into(),
                state: format!(
                    "ran {} to {}; less its vruntime: deadline {}, {}",
                    size(now.sum_exec.0.saturating_sub(picked.sum_exec)),
                    size(now.sum_exec.1.saturating_sub(picked.sum_exec)),
                    gap(before.deadline.wrapping_sub(now.vruntime.1) as i64),
                    list.join(", "),
                ),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rebuild::rebuild;
    use crate::shadow::rows::trace::{Flags, Glimpse, Ran};
    use vruntime_base::Cpu;

    /// 1 and 2 are on CPU 0, from when it was idle; 1 runs, for a little more than half a request
    /// between two ticks, which ask as said. Decisions: determined, and agreeing.
    fn ticks(kernel: &str, asked: &[Option<bool>]) -> (u64, u64, u64) {
        let k = crate::shadow::tests::release(kernel);
        let half = k.base_slice_ns * k.scaling(2) / 2 + 1;
        let row = |ts, kind, pid, curr| {
            let p = Side { pid, prio: 120, ..Side::default() };
            Row { curr_pid: curr, p, ..Row::new(ts, Cpu(0), kind) }
        };
        let to = |pid| Some(Side { pid, prio: 120, ..Side::default() });
        let mut rows = vec![Row { b: 1, n: to(0), ..row(10, RowKind::Switch, 9, 9) }];
        for (ts, pid, curr) in [(20, 1, 0), (50, 2, 1)] {
            rows.push(row(ts, RowKind::Waking, pid, curr));
            rows.push(row(ts + 1, RowKind::Wakeup, pid, curr));
            if pid == 1 {
                rows.push(Row { n: to(1), ..row(30, RowKind::Switch, 0, 0) });
            }
        }
        let flags = Some(Flags { need_resched: false, lazy: false, interrupt: true, hard: true });
        let glimpse = |ts, before, runtime, tick| {
            let ran = Some(Ran { pid: 1, runtime, vruntime: None });
            Glimpse { ts, cpu: Cpu(0), before, curr_pid: 1, flags, ran, tick }
        };
        // The wakeup of 2 accounts as well.
        let mut glimpses = vec![glimpse(50, rows.len() - 1, 20, None)];
        for (i, tick) in asked.iter().enumerate() {
            let ts = 50 + half * (i as u64 + 1);
            glimpses.push(glimpse(ts, rows.len(), half, Some(*tick)));
        }
        let end = 30 + half * 10;
        rows.push(Row { n: to(2), ..row(end, RowKind::Switch, 1, 1) });
        let t = Trace { rows, nr_cpus: 2, plain: true, glimpses, ..Trace::default() };
        let t = rebuild(&t, &k);
        let c = judged(&t, &k);
        (c.determined, c.agree, c.undetermined)
    }

    /// What is counted over all rows of `t`.
    fn judged(t: &Trace, k: &Release) -> KindResult {
        let decider = Decider::new(k, 2, crate::shadow::state::one_level::OneLevel::new(false));
        let (mut ticks, mut queues) = (Ticks::new(t, k, &decider), Queues::new(t));
        for r in &t.rows {
            ticks.note(r, &queues);
            ticks.check(r, &queues);
            queues.apply(t, r);
        }
        ticks.counts
    }

    /// 1 runs on CPU 0 from 10 us on. Rows: us, kind, task, from which chain. Decisions.
    fn recorded(rows: &[(u64, RowKind, i64, Option<usize>)]) -> u64 {
        let stacks = [
            ["try_to_wake_up", "hrtimer_wakeup", "sysvec_apic_timer_interrupt"],
            ["try_to_wake_up", "run_timer_softirq", "sysvec_apic_timer_interrupt"],
            ["resched_curr", "task_tick_fair", "sysvec_apic_timer_interrupt"],
        ];
        let side = |pid, ran, cfs_nr| {
            let busy = Side { pid, prio: 120, on_rq: true, weight: 1 << 20, ..Side::default() };
            Side { vruntime: ran, sum_exec: ran, cfs_nr, ..busy }
        };
        let row = |us: u64, kind, p| {
            let clock_task = Some(us as i64 * 1000);
            Row { p, clock_task, ..Row::new(us * 1000, Cpu(0), kind) }
        };
        let first = row(10, RowKind::Switch, Side::default());
        let mut all = vec![Row { n: Some(side(1, 0, 1)), ..first }];
        all.extend(rows.iter().map(|&(us, kind, pid, stack)| {
            let ran = if pid == 1 { (us - 10) * 1000 } else { 0 };
            let on_rq = kind != RowKind::Waking;
            Row { stack, ..row(us, kind, Side { on_rq, ..side(pid, ran, 2) }) }
        }));
        let stacks = stacks.map(|s| s.map(str::to_owned).to_vec()).to_vec();
        let t = Trace { rows: all, stacks, nr_cpus: 2, ..Trace::default() };
        let k = crate::shadow::tests::release("v6.1");
        let c = judged(&t, &k);
        assert_eq!(c.agree, c.determined);
        c.determined
    }

    #[test]
    fn a_tick_is_judged_once_and_by_the_queue_that_it_found() {
        use RowKind::{NeedResched, Wakeup, Waking};
        let (hrtimer, softirq, tick) = (Some(0), Some(1), Some(2));
        let waits = (20, Wakeup, 2, None);
        // It asks, and asks again at once: the task has not run meanwhile.
        assert_eq!(recorded(&[waits, (7_000, NeedResched, 1, tick)]), 1);
        assert_eq!(
            recorded(&[waits, (7_000, NeedResched, 1, tick), (9_500, NeedResched, 1, tick)]),
            2
        );
        // What the softirq wakes takes long.
        let wakes = (3_000, Waking, 3, softirq);
        assert_eq!(recorded(&[waits, wakes]), 1);
        assert_eq!(recorded(&[waits, wakes, (5_500, NeedResched, 1, softirq)]), 1);
        assert_eq!(recorded(&[waits, wakes, (5_500, Waking, 4, softirq)]), 1);
        // The tick came before the timer that woke 2 or 4.
        let others = |pid| [(2_900, Waking, pid, hrtimer), (2_910, Wakeup, pid, hrtimer)];
        assert_eq!(recorded(&[&others(2)[..], &[wakes]].concat()), 0);
        assert_eq!(recorded(&[&[waits], &others(4)[..], &[wakes]].concat()), 1);
    }

    #[test]
    fn a_tick_of_a_plain_trace_asks_when_the_request_has_been_used_up() {
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(ticks("v6.12", &[no, yes]), (2, 2, 0));
        assert_eq!(ticks("v6.12", &[no, no]), (2, 1, 0));
        assert_eq!(ticks("v6.12", &[yes]), (1, 0, 0));
        assert_eq!(ticks("v6.12", &[no, None]), (1, 1, 1));
    }

    /// The kernel never asks, as for a task whose group's request goes on.
    #[test]
    fn a_task_whose_ticks_contradict_twice_is_taken_to_be_in_a_group() {
        assert_eq!(ticks("v6.6", &[Some(false); 6]), (4, 2, 2));
    }
}
