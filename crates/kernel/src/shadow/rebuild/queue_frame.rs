//! Virtual times of one CPU's queue as far as a plain trace tells them: intervals.
//!
//! *What.* Running adds the time that went by; entering places as `place_entity` does, applied to
//! both ends. A task alone on its CPU has an exact time by choice of the origin. Where events tell
//! for how long a task was accounted, that counts, and a request ends (EEVDF) when they say so.
//! *Equations.* CFS: a sleeper enters at max(v, min_vruntime − credit); a queued entity is never
//! further than the credit behind `min_vruntime`, and a lone one never ahead of it. EEVDF: a
//! sleeper enters at V − lag·(W + w)/W, V the weighted mean; a lone one leaves with no lag. Delayed
//! dequeue: [`super::delayed`].
//! *Departures.* D1: the clock of a row is that of the queue give or take [`CLOCK_NS`].

use super::delayed::{Gone, Hidden};
pub use super::span::{FAR, Span};
use super::tuning::Tuning;
use crate::shadow::rows::trace::Side;
use std::collections::{BTreeMap, BTreeSet};
use vruntime_sched::fair::eevdf::inflated_lag;
use vruntime_sched::fair::weight::task_virtual_time;
use vruntime_sched::fair::weight::{LOAD_SHIFT, weight_of_prio};

/// Time between taking the clock of the queue and writing the row.
const CLOCK_NS: i64 = 5_000;
const ORIGIN: i64 = 1 << 44;
/// Weight of nice 0.
pub const NICE_0: u64 = 1 << 20;
/// More tasks than these make no difference.
pub const MOST_TASKS: i64 = 64;

/// A queued fair task.
#[derive(Clone, Copy, Debug)]
pub struct Entity {
    pub(super) weight: u64,
    pub(super) v: Span,
    /// Deadline less the middle of `v` when it was set, as an absolute time.
    pub(super) deadline: i64,
    pub(super) picked: i64,
    /// The kernel's own `v` when it was last accounted in this run.
    pub(super) told: Option<i64>,
    /// Virtual time since it was last accounted, by the clock.
    pub(super) open: i64,
    /// The distance from `v` to `deadline` is known.
    pub(super) due_known: bool,
    /// It sleeps, and is still queued.
    pub(super) delayed: bool,
}

impl Entity {
    /// Earliest and latest deadline.
    pub(super) fn due(&self) -> Span {
        let slop = self.v.slop();
        Span::at(self.deadline).widened(if self.due_known { slop } else { FAR })
    }

    /// It is in `v` instead, as far from its deadline as before.
    fn place(&mut self, v: Span) {
        self.deadline += v.middle() - self.v.middle();
        self.v = v;
    }

    /// It is in `v`, too. True if that tells anything.
    pub(super) fn narrow(&mut self, v: Span) -> bool {
        let (lo, hi) = (self.v.lo.max(v.lo), self.v.hi.min(v.hi));
        let tells = lo <= hi && self.v != Span { lo, hi };
        if tells {
            self.place(Span { lo, hi });
        }
        tells
    }

    /// Its deadline is in `due`, too.
    pub(super) fn narrow_due(&mut self, due: Span) -> bool {
        let request = self.deadline - self.v.middle();
        let v = |due: i64| due.saturating_sub(request);
        self.due_known && self.narrow(Span { lo: v(due.lo), hi: v(due.hi) })
    }
}

/// One CPU.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    pub(super) ents: BTreeMap<i64, Entity>,
    real_time: BTreeSet<i64>,
    pub(super) curr: i64,
    pub(super) since: u64,
    /// `min_vruntime`.
    pub min_vruntime: Span,
    /// How far the origin may have moved, summed.
    pub drift: i64,
    /// Where the kernel's own origin lies, once an event has told.
    pub origin: Option<i64>,
    pub(super) complete: bool,
    /// Tasks that may have stayed for delayed dequeue.
    pub(super) hidden: BTreeMap<i64, Hidden>,
    /// Those of them that have left by now.
    pub(super) departed: Vec<i64>,
    /// Queued tasks of which more is known than was told last.
    pub learnt: Vec<i64>,
    /// Who entered since the running task last did anything itself, and when: it may have left by
    /// then, on its way to sleep.
    pub(super) late: Vec<(i64, u64)>,
    started: bool,
    has_run: bool,
    /// EEVDF: events tell when a task is accounted.
    accounts: bool,
    /// Virtual time that was taken to be accounted, and the event of which is to come.
    ahead: i64,
    /// When the running task was picked, and for how long it has been accounted since.
    accounted: Option<(u64, u64)>,
}

pub(super) fn weight_of(prio: i64) -> u64 {
    weight_of_prio(prio).into()
}

impl Frame {
    /// Tasks known to be on the queue, and how many more there may be.
    pub fn nr_running(&self) -> (i64, i64) {
        let n = self.ents.len() + self.real_time.len();
        (n as i64, if self.complete { self.hidden.len() as i64 } else { MOST_TASKS })
    }
    /// Fair tasks known to be on the queue.
    pub fn nr_fair(&self) -> i64 {
        self.ents.len() as i64
    }
    /// Who runs.
    pub fn running(&self) -> i64 {
        self.curr
    }
    /// `pid` runs.
    pub fn runs(&self, pid: i64) -> bool {
        self.curr == pid
    }
    /// A switch was seen.
    pub fn has_run(&self) -> bool {
        self.has_run
    }
    /// All but `pid` are forgotten: they may be here or not. Who they were.
    pub fn forget_others(&mut self, pid: i64) -> Vec<i64> {
        let others: Vec<i64> = self.ents.keys().copied().filter(|&p| p != pid).collect();
        self.ents.retain(|&p, _| p == pid);
        self.real_time.retain(|&p| p == pid);
        self.hidden.clear();
        self.late.clear();
        self.complete = false;
        others
    }
    /// `pid` is queued.
    pub fn is_queued(&self, pid: i64) -> bool {
        self.ents.contains_key(&pid)
    }

    /// Time goes on to `now`.
    pub fn update(&mut self, now: u64, t: &Tuning) {
        if !self.started {
            self.min_vruntime = Span::at(ORIGIN);
            self.started = true;
        }
        let ran = now.saturating_sub(self.since);
        self.since = now;
        if let Some(e) = self.ents.get_mut(&self.curr) {
            let d = task_virtual_time(ran, e.weight) as i64;
            e.v = e.v.plus(Span::at(d));
            e.open += d;
            if t.eevdf && !self.accounts && e.v.middle() >= e.deadline {
                e.deadline = e.v.middle() + t.virtual_slice(e.weight);
            }
        }
        // Where events tell when the running task is accounted, `min_vruntime` waits for them.
        let open = |pid: i64, e: &Entity| match self.origin {
            Some(_) if pid == self.curr => e.open,
            _ => 0,
        };
        let least =
            self.ents.iter().map(|(&pid, e)| e.v.minus(Span::at(open(pid, e)))).reduce(Span::min);
        if let Some(v) = least {
            self.min_vruntime = self.min_vruntime.max(v);
            // Tasks of which nothing is known lift the upper end, one after the other.
            self.min_vruntime.hi = self.min_vruntime.hi.min(self.min_vruntime.lo + 2 * FAR);
            if self.origin.is_some() && self.min_vruntime.hi > v.hi + t.credit {
                self.min_vruntime.hi = v.hi + t.credit;
                self.min_vruntime.lo = self.min_vruntime.lo.min(self.min_vruntime.hi);
            }
        }
    }

    /// An event tells the virtual time `v` of `pid`, which was just accounted.
    pub fn account(&mut self, pid: i64, v: i64, now: u64, t: &Tuning) {
        if t.eevdf {
            return;
        }
        self.update(now, t);
        let Some(e) = self.ents.get(&pid) else { return };
        if self.origin.is_none() {
            let by = v - e.v.middle();
            let slop = e.v.slop();
            self.origin = Some(by);
            self.drift += slop;
            let shift = Span { lo: by - slop, hi: by + slop };
            self.min_vruntime = self.min_vruntime.plus(shift);
            for e in self.ents.values_mut() {
                e.v = e.v.plus(shift);
                e.deadline += by;
                e.picked += by;
            }
        }
        if let Some(e) = self.ents.get_mut(&pid) {
            (e.v, e.told, e.open) = (Span::at(v), Some(v), 0);
        }
        self.update(now, t);
    }

    /// `pid`, which runs, was accounted for `runtime` (EEVDF). True if that ended its request.
    pub fn ran(&mut self, pid: i64, runtime: u64, now: u64, t: &Tuning) -> bool {
        self.update(now, t);
        self.accounts = true;
        let Some(e) = self.ents.get_mut(&pid).filter(|_| pid == self.curr) else { return false };
        let d = task_virtual_time(runtime, e.weight) as i64;
        self.accounted = self.accounted.map(|(picked, ran)| (picked, ran + runtime));
        let open = std::mem::take(&mut e.open) + std::mem::take(&mut self.ahead);
        e.v = e.v.plus(Span::at(d - open));
        let ended = e.v.middle() >= e.deadline;
        if ended {
            e.deadline = e.v.middle() + t.virtual_slice(e.weight);
        }
        ended
    }

    /// The clock of the queue, in so far as it counts for the running task: `now`, or, since that
    /// was picked, as far as it has been accounted.
    pub fn clock(&self, now: u64) -> i64 {
        match self.accounted {
            Some((picked, ran)) if self.accounts => (picked + ran) as i64,
            _ => now as i64,
        }
    }

    /// A tick, among several, has asked (EEVDF): it has found the request of `pid` at its end, or,
    /// before that, that it is not eligible and not protected (`PREEMPT_SHORT`).
    pub fn ended(&mut self, pid: i64, t: &Tuning) {
        let before = |e: &&mut Entity| e.due_known && e.v.hi < e.deadline;
        if let Some(e) = self.ents.get_mut(&pid).filter(|e| !before(e)) {
            e.deadline = e.v.middle() + t.virtual_slice(e.weight);
            e.due_known = true;
        }
    }

    /// The distance from the virtual time of `pid` to its deadline is known.
    pub fn knows_deadline(&self, pid: i64) -> bool {
        self.accounts && self.ents.get(&pid).is_some_and(|e| e.due_known)
    }

    /// `pid` stops running: time since it was last accounted is not its own.
    pub fn settle(&mut self, pid: i64) {
        self.ahead = 0;
        let Some(e) = self.ents.get_mut(&pid) else { return };
        let open = std::mem::take(&mut e.open);
        match e.told.take() {
            Some(v) => e.v = Span::at(v),
            None if self.accounts || self.origin.is_some() => e.v = e.v.plus(Span::at(-open)),
            None => {}
        }
    }

    /// A task that is here, though no row put it here.
    pub fn ensure(&mut self, pid: i64, prio: i64, t: &Tuning) {
        if prio < 100 {
            self.real_time.insert(pid);
        } else if !self.ents.contains_key(&pid) {
            let v = self.min_vruntime.widened(FAR);
            self.insert(pid, prio, v, t.slice, false);
            self.complete = false;
        }
    }

    /// The weight or the class of `pid` changes before it is next seen: what it does until then
    /// is not known.
    pub fn will_change(&mut self, pid: i64) {
        if let Some(e) = self.ents.get_mut(&pid) {
            (e.v, e.due_known, e.told) = (e.v.widened(FAR), false, None);
        }
    }

    /// The queue was empty a moment ago: whoever was delayed here has left, and whoever waits has
    /// come since, and was placed by nobody or by who came first, not by the task that was taken to
    /// be here. Returns who has come, and who has left.
    pub fn came_to_nothing(&mut self, now: u64, t: &Tuning) -> (Vec<i64>, Vec<Gone>) {
        let mut came = self.ents.clone();
        came.retain(|_, e| !e.delayed);
        let gone = self.run(0, now, t);
        self.ents = came;
        let pids: Vec<i64> = self.ents.keys().copied().collect();
        pids.iter().for_each(|&pid| self.will_change(pid));
        (pids, gone)
    }

    /// `pid`, which is here, is seen to have `prio` from now on.
    pub fn has_changed(&mut self, pid: i64, prio: i64, t: &Tuning) {
        self.ents.remove(&pid);
        if prio >= 100 {
            self.real_time.remove(&pid);
        }
        let complete = self.complete;
        self.ensure(pid, prio, t);
        self.complete = complete;
    }

    /// `pid`, which runs and was just accounted, may have called `sched_yield` (EEVDF): then it has
    /// got a new request and, where the release says so, if it was eligible, has given up what was
    /// left of the old one.
    pub fn may_yield(&mut self, pid: i64, t: &Tuning) {
        let alone = self.ents.len() + self.real_time.len() < 2 && self.complete;
        let Some(mean) = self.mean().filter(|_| t.eevdf && !alone) else { return };
        let Some(e) = self.ents.get_mut(&pid) else { return };
        e.due_known = false;
        if t.yield_forfeits {
            // Whoever else is here has a part in the mean.
            let others = if self.complete { 0 } else { FAR };
            let hi = e.v.hi.max(mean.hi + t.virtual_slice(e.weight) + others);
            e.place(Span { hi, ..e.v });
        }
    }

    fn insert(&mut self, pid: i64, prio: i64, v: Span, slice: i64, due_known: bool) {
        let weight = weight_of(prio);
        let deadline = v.middle() + task_virtual_time(slice.max(0) as u64, weight) as i64;
        let (picked, told, open, delayed) = (0, None, 0, false);
        let e = Entity { weight, v, deadline, picked, told, open, due_known, delayed };
        self.ents.insert(pid, e);
    }

    /// How far the deadline of `pid` is from its virtual time, if that is known.
    pub fn request_left(&self, pid: i64) -> Option<i64> {
        self.ents.get(&pid).filter(|e| e.due_known).map(|e| e.deadline - e.v.middle())
    }

    /// `pid`, which has just been moved here, keeps what is left of its request.
    pub fn keep_request(&mut self, pid: i64, left: Option<i64>, t: &Tuning) {
        if let Some(e) = self.ents.get_mut(&pid).filter(|_| t.keeps_request) {
            e.due_known = left.is_some();
            e.deadline = left.map_or(e.deadline, |left| e.v.middle() + left);
        }
    }

    /// `pid` (0: none) runs from now on. The answer is who, as that shows, is delayed no longer.
    pub fn run(&mut self, pid: i64, now: u64, t: &Tuning) -> Vec<Gone> {
        (self.curr, self.since, self.has_run) = (pid, now, true);
        self.late.clear();
        for pid in std::mem::take(&mut self.departed) {
            self.hidden.remove(&pid);
        }
        self.accounted = self.ents.contains_key(&pid).then_some((now, 0));
        if pid == 0 {
            let left = self.all_taken_off();
            self.ents.clear();
            self.real_time.clear();
            self.complete = true;
            return left;
        }
        if let Some(e) = self.ents.get_mut(&pid).filter(|e| e.delayed) {
            // It has been woken, and no row showed it.
            (e.delayed, e.v, e.due_known) = (false, e.v.widened(FAR), false);
        }
        let gone = self.was_picked(pid);
        let lone = self.ents.len() == 1 && self.complete && self.hidden.is_empty();
        if t.eevdf && self.complete {
            self.learn(pid);
        }
        if let Some(e) = self.ents.get_mut(&pid) {
            if lone && self.origin.is_none() {
                let gap = self.min_vruntime.minus(e.v).clamp(0, t.credit);
                let at = e.v.middle();
                self.drift += e.v.slop();
                e.deadline += at - e.v.middle();
                e.v = Span::at(at);
                self.min_vruntime = Span::at(at).plus(gap);
            } else {
                e.v = e.v.widened(if self.accounts { 0 } else { CLOCK_NS });
            }
            e.open = 0;
            e.picked = e.deadline;
        }
        gone
    }

    /// Lowest and highest Σ v·w of what is queued, as the kernel counts it, and Σ w.
    pub(super) fn sums(&self) -> (i128, i128, i128) {
        let mut sums = (0, 0, 0);
        for (&pid, e) in &self.ents {
            // The kernel's own mean counts what was accounted.
            let open = if pid == self.curr && self.accounts { e.open } else { 0 };
            let (w, of) = (i128::from(e.weight), |v: i64| i128::from(v - open));
            sums = (sums.0 + of(e.v.lo) * w, sums.1 + of(e.v.hi) * w, sums.2 + w);
        }
        sums
    }

    /// Lowest and highest weighted mean; `None`: nothing is queued.
    pub(super) fn mean(&self) -> Option<Span> {
        let (lo, hi, w) = self.sums();
        let mean = |sum: i128| sum.div_euclid(w) as i64;
        (w > 0).then(|| Span { lo: mean(lo), hi: mean(hi) })
    }

    /// `pid` leaves; its virtual time and lag.
    pub fn leave(&mut self, pid: i64, t: &Tuning) -> Option<(Span, Span)> {
        self.real_time.remove(&pid);
        let lone = self.ents.len() == 1;
        let mean = if pid == self.curr { self.mean_when_leaving() } else { self.mean_of_all() }?;
        let e = self.ents.remove(&pid)?;
        if !t.eevdf {
            return Some((e.v, Span::default()));
        }
        let lag = match self.complete {
            true if lone && self.hidden.is_empty() => Span::at(0),
            true => t.limited(mean.minus(e.v), e.weight),
            // Whoever else is here has a part in the mean.
            false => t.limited(Span::ANY, e.weight),
        };
        if lag.lo < 0 && pid == self.curr && t.delays {
            return Some((e.v, self.may_stay(pid, &e, mean, lag, t)));
        }
        Some((e.v, lag))
    }

    /// A task is being moved here: who runs is accounted first, though the event of that follows.
    pub fn account_now(&mut self) {
        if let Some(e) = self.ents.get_mut(&self.curr) {
            self.ahead += std::mem::take(&mut e.open);
        }
    }

    /// `pid` enters. `slept`: its distance from `min_vruntime` and its lag when it left.
    pub fn enter(&mut self, pid: i64, prio: i64, slept: Option<(Span, Span)>, t: &Tuning) {
        if prio < 100 {
            self.real_time.insert(pid);
            return;
        }
        if self.is_delayed(pid) {
            return self.requeue(pid, t);
        }
        let (m, mean, stood) = (self.min_vruntime, self.mean_of_all(), self.hidden.remove(&pid));
        let placed = |lag: Span| {
            // Whoever hides may have a part in the weight.
            let w = self.ents.values().map(|e| e.weight).sum::<u64>().max(1 << LOAD_SHIFT);
            let all = w + self.hidden.values().map(|h| h.weight).sum::<u64>();
            let own = weight_of(prio) >> LOAD_SHIFT;
            let up = |l: i64| [w, all].map(|w| inflated_lag(l, w >> LOAD_SHIFT, own));
            let (lo, hi) = (up(lag.lo), up(lag.hi));
            let up = Span { lo: lo[0].min(lo[1]), hi: hi[0].max(hi[1]) };
            mean.map_or(m, |mean| mean.minus(up))
        };
        let most = t.limited(Span::ANY, weight_of(prio));
        let mut v = if t.eevdf {
            placed(slept.map_or(most, |s| s.1))
        } else {
            let own = slept.map_or(Span::ANY, |s| s.0).plus(m);
            own.max(m.plus(Span::at(-t.credit)))
        };
        if let Some(h) = stood {
            let near = placed(most);
            v = v.hull(h.v.clamp(near.lo, near.hi)).hull(h.anew.unwrap_or(v));
        }
        // Whether it was delayed shows only since the recording began, or the CPU was idle.
        let due_known = stood.is_none() && (slept.is_some() || self.complete);
        self.insert(pid, prio, v, t.slice, due_known);
    }

    /// `pid`, which has just entered, may have done so up to `late` ns from now on: by then the
    /// running task has moved what it is placed by.
    pub fn may_enter_later(&mut self, pid: i64, late: u64, t: &Tuning) {
        let all: u64 = self.ents.iter().filter(|e| *e.0 != pid).map(|e| e.1.weight).sum();
        let Some(w) = self.ents.get(&self.curr).map(|e| e.weight) else { return };
        let ran = task_virtual_time(late, w) as i64;
        let by = if t.eevdf {
            (i128::from(ran) * i128::from(w) / i128::from(all.max(1))) as i64
        } else {
            ran
        };
        if let Some(e) = self.ents.get_mut(&pid) {
            e.place(Span { hi: e.v.hi + by, ..e.v });
        }
    }

    /// A new task enters.
    pub fn enter_new(&mut self, pid: i64, prio: i64, t: &Tuning) {
        if t.eevdf {
            let slice = if t.half_first { t.slice / 2 } else { t.slice };
            let v = self.mean_of_all().unwrap_or(self.min_vruntime);
            if prio >= 100 {
                return self.insert(pid, prio, v, slice, true);
            }
        }
        let ahead = Span { lo: 0, hi: t.period };
        self.enter(pid, prio, Some((ahead, Span::at(0))), t);
    }

    /// The state of `pid` as a row shows it.
    pub fn side(&self, pid: i64, prio: i64, t: &Tuning) -> Side {
        // A hidden task that is picked leaves: it cannot be picked instead of a lone one.
        let hides = self.hidden.values().any(|h| !h.is_near()) && self.ents.len() > 1;
        let unseen = i64::from(!self.complete || hides);
        let mut s = Side {
            pid,
            prio,
            slice: t.slice as u64,
            cfs_nr: self.ents.len() as i64 + unseen,
            cfs_min_vruntime: self.min_vruntime.middle() as u64,
            ..Side::default()
        };
        if let Some(e) = self.ents.get(&pid) {
            s.weight = e.weight;
            s.vruntime = e.v.middle() as u64;
            s.slop = e.v.slop() as u64;
            s.deadline = e.deadline as u64;
            s.due_less = if t.eevdf && !e.due_known { s.slice } else { 0 };
            s.vlag = e.picked;
            s.on_rq = true;
            s.sched_delayed = e.delayed;
        } else {
            s.weight = if prio >= 100 { weight_of(prio) } else { NICE_0 };
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 and 2 start at the same time on a CPU that was idle before, or may not have been.
    fn one_and_two(t: &Tuning, was_idle: bool) -> Frame {
        let mut f = Frame::default();
        f.update(1, t);
        if was_idle {
            f.run(0, 1, t);
        }
        for pid in [1, 2] {
            f.enter(pid, 120, Some((Span::at(0), Span::at(0))), t);
        }
        f
    }

    /// 1, of three, was accounted for 2 ns and has run for one more: V is two thirds of a
    /// nanosecond further, which counts as none.
    #[test]
    fn the_mean_is_rounded_once() {
        let t = Tuning::new(&crate::shadow::tests::release("v6.12"), 2);
        let mut f = one_and_two(&t, true);
        f.enter(3, 120, Some((Span::at(0), Span::at(0))), &t);
        f.ran(9, 0, 1, &t);
        f.run(1, 1, &t);
        f.ran(1, 2, 3, &t);
        f.update(4, &t);
        assert_eq!(f.mean(), Some(f.ents[&2].v));
    }

    #[test]
    fn what_a_row_says_holds_both_ends() {
        for hi in [0, 1, 2, 7] {
            let s = Span { lo: -11, hi };
            assert!(s.middle() - s.slop() <= s.lo && s.middle() + s.slop() == s.hi, "{s:?}");
        }
    }

    /// A task runs 10 ms by the clock and is accounted for one: so far has `min_vruntime` come.
    #[test]
    fn what_was_accounted_lifts_min_vruntime() {
        let t = Tuning::new(&crate::shadow::tests::release("v6.1"), 2);
        let mut f = Frame::default();
        f.update(1, &t);
        f.run(0, 1, &t);
        f.enter(1, 120, Some((Span::at(0), Span::at(0))), &t);
        f.run(1, 1, &t);
        let start = 1_000_000_000;
        f.account(1, start, 1, &t);
        f.update(10_000_001, &t);
        f.account(1, start + 1_000_000, 10_000_001, &t);
        assert_eq!(f.min_vruntime, Span::at(start + 1_000_000));
    }

    /// 1 runs beside 2 and leaves. Had the CPU not been idle before, somebody else may be there.
    #[test]
    fn a_lag_counts_only_those_known() {
        let k = crate::shadow::tests::release("v6.12");
        let t = Tuning::new(&k, 2);
        let lag = |was_idle| one_and_two(&t, was_idle).leave(1, &t).unwrap().1;
        assert_eq!(lag(true), Span::at(0));
        assert_eq!(lag(false), t.limited(Span::ANY, NICE_0));
    }

    /// 1 runs beside 2; 3 is moved there, and put there up to 3 us later. By then 1 has moved
    /// `min_vruntime` by as much, or the mean of both by half.
    #[test]
    fn who_is_moved_may_enter_later() {
        for (kernel, by) in [("v6.1", 3_000), ("v6.12", 1_500)] {
            let t = Tuning::new(&crate::shadow::tests::release(kernel), 2);
            let mut f = one_and_two(&t, true);
            f.run(1, 1, &t);
            f.enter(3, 120, Some((Span::at(0), Span::at(0))), &t);
            let before = f.ents[&3].v;
            f.may_enter_later(3, 3_000, &t);
            assert_eq!(f.ents[&3].v, Span { hi: before.hi + by, ..before }, "{kernel}");
        }
    }

    /// 1 and 2 start at the same time, and 1 yields: it may have given up its request, up to one
    /// from the mean. 2 is reniced unseen, and then seen: nothing is known of it but its weight.
    #[test]
    fn what_yields_or_is_reniced_is_not_known() {
        let k = crate::shadow::tests::release("v6.18.44");
        let t = Tuning::new(&k, 2);
        let mut f = one_and_two(&t, true);
        f.run(1, 1, &t);
        let (v, slice) = (f.ents[&1].v, (k.base_slice_ns * k.scaling(2)) as i64);
        f.may_yield(1, &t);
        // The clock of 1 is known to 5 us, and the mean to half of that.
        let hi = v.middle() + CLOCK_NS / 2 + slice;
        assert_eq!((f.ents[&1].v, f.ents[&1].due_known), (Span { hi, ..v }, false));
        f.will_change(2);
        assert!(f.ents[&2].v.slop() >= FAR && f.ents[&2].weight == NICE_0);
        f.has_changed(2, 125, &t);
        assert!(f.ents[&2].v.slop() >= FAR && f.ents[&2].weight == weight_of(125));
        f.has_changed(2, 90, &t);
        assert_eq!((f.nr_running().0, f.nr_fair()), (2, 1));
    }

    /// A tick that asks before the deadline has not found the request at its end.
    #[test]
    fn a_tick_ends_a_request_at_its_end() {
        let t = Tuning::new(&crate::shadow::tests::release("v6.12"), 2);
        let deadline = |left: i64| {
            let mut f = one_and_two(&t, true);
            let e = f.ents.get_mut(&1).unwrap();
            (e.due_known, e.deadline) = (true, e.v.hi + left);
            let (v, before) = (e.v.middle(), e.deadline);
            f.ended(1, &t);
            (f.ents[&1].deadline - v, before - v)
        };
        let (kept, before) = deadline(1_000);
        assert_eq!(kept, before);
        assert_eq!(deadline(0).0, t.virtual_slice(NICE_0));
    }

    /// 1 sleeps and its CPU looks for something to do; 2 has come meanwhile, placed beside nobody.
    #[test]
    fn who_came_while_a_cpu_looked_for_work_is_anywhere() {
        let t = Tuning::new(&crate::shadow::tests::release("v6.12"), 2);
        let mut f = one_and_two(&t, true);
        f.run(1, 1, &t);
        f.leave(1, &t);
        assert!(f.ents[&2].v.slop() < FAR);
        assert_eq!(f.came_to_nothing(2, &t).0, [2]);
        assert!(f.ents[&2].v.slop() >= FAR && !f.ents[&2].due_known);
        // 3, placed by the mean of 2 and 3, is anywhere, too, and so is what it is owed later.
        f.enter(3, 120, Some((Span::at(0), Span::at(0))), &t);
        assert!(f.complete && f.leave(3, &t).unwrap().1.slop() > 1_000);
    }

    /// Half a request by the clock, a quarter by the event: the event counts.
    #[test]
    fn what_an_event_says_of_a_run_time_counts() {
        let k = crate::shadow::tests::release("v6.12");
        let t = Tuning::new(&k, 2);
        let (mut f, slice) = (Frame::default(), k.base_slice_ns * k.scaling(2));
        f.update(1, &t);
        f.run(0, 1, &t);
        f.enter(1, 120, Some((Span::at(0), Span::at(0))), &t);
        f.run(1, 2, &t);
        f.ran(1, slice / 4, 2 + slice / 2, &t);
        assert_eq!(f.request_left(1), Some((slice - slice / 4) as i64));
        assert_eq!(f.clock(2 + slice), 2 + (slice / 4) as i64);
    }
}
