//! Virtual times of one CPU's queue as far as a plain trace tells them: intervals.
//!
//! *What.* Running adds the time that went by; entering places as `place_entity` does, applied to
//! both ends. A task alone on its CPU has an exact time by choice of the origin. Where events tell
//! for how long a task was accounted, that counts, and a request ends (EEVDF) when they say so.
//! *Equations.* CFS: a sleeper enters at max(v, min_vruntime − credit); a queued entity is never
//! further than the credit behind `min_vruntime`, and a lone one never ahead of it. EEVDF: a
//! sleeper enters at V − lag·(W + w)/W, V the weighted mean; a lone one leaves with no lag.
//! *Departures.* D1: the clock of a row is that of the queue give or take [`CLOCK_NS`].

use super::decide::Decider;
use super::trace::Side;
use std::collections::{BTreeMap, BTreeSet};
use vruntime_sched::fair::weight;
use vruntime_sched::release::{FairKind, Release};

/// Time between taking the clock of the queue and writing the row.
const CLOCK_NS: i64 = 5_000;
/// Nothing is known: further than any real distance, near enough for sums.
const FAR: i64 = 1 << 40;
const ORIGIN: i64 = 1 << 44;
const NICE_0: u64 = 1 << 20;
/// More tasks than these make no difference.
pub const MOST_TASKS: i64 = 64;

/// An interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Lowest.
    pub lo: i64,
    /// Highest.
    pub hi: i64,
}

impl Span {
    /// One value.
    pub const fn at(v: i64) -> Span {
        Span { lo: v, hi: v }
    }
    /// Midway.
    pub fn middle(self) -> i64 {
        self.lo + (self.hi - self.lo) / 2
    }
    /// Both ends further apart by `by`.
    pub fn widened(self, by: i64) -> Span {
        Span { lo: self.lo - by, hi: self.hi + by }
    }
    /// All differences.
    pub fn minus(self, o: Span) -> Span {
        Span { lo: self.lo - o.hi, hi: self.hi - o.lo }
    }
    /// All sums.
    pub fn plus(self, o: Span) -> Span {
        Span { lo: self.lo + o.lo, hi: self.hi + o.hi }
    }
    fn max(self, o: Span) -> Span {
        Span { lo: self.lo.max(o.lo), hi: self.hi.max(o.hi) }
    }
    fn min(self, o: Span) -> Span {
        Span { lo: self.lo.min(o.lo), hi: self.hi.min(o.hi) }
    }
    fn clamp(self, lo: i64, hi: i64) -> Span {
        Span { lo: self.lo.clamp(lo, hi), hi: self.hi.clamp(lo, hi) }
    }
}

/// What the release says about placement.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    eevdf: bool,
    credit: i64,
    slice: i64,
    period: i64,
    lag_most: i64,
    half_first: bool,
    keeps_request: bool,
}

impl Tuning {
    /// Of `k` on `nr_cpus`.
    pub fn new(k: &Release, nr_cpus: usize) -> Tuning {
        let scaled = |ns: u64| (ns * k.scaling(nr_cpus)) as i64;
        let latency = scaled(k.latency_ns);
        let slice = scaled(k.base_slice_ns);
        Tuning {
            eevdf: k.fair == FairKind::Eevdf,
            credit: if k.gentle_fair_sleepers { latency / 2 } else { latency },
            slice,
            period: latency,
            lag_most: (2 * slice).max(k.tick_ns() as i64),
            half_first: k.place_deadline_initial,
            keeps_request: k.place_rel_deadline,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entity {
    weight: u64,
    v: Span,
    /// Deadline less the middle of `v` when it was set, as an absolute time.
    deadline: i64,
    picked: i64,
    /// The kernel's own `v` when it was last accounted in this run.
    told: Option<i64>,
    /// Virtual time since it was last accounted, by the clock.
    open: i64,
    /// The distance from `v` to `deadline` is known.
    due_known: bool,
}

/// What is known of a task that may be in delayed dequeue: its virtual time stands still.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    weight: u64,
    v: Span,
    /// Latest deadline.
    due: i64,
}

/// One CPU.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    ents: BTreeMap<i64, Entity>,
    real_time: BTreeSet<i64>,
    curr: i64,
    since: u64,
    /// `min_vruntime`.
    pub min_vruntime: Span,
    /// How far the origin may have moved, summed.
    pub drift: i64,
    /// Where the kernel's own origin lies, once an event has told.
    pub origin: Option<i64>,
    complete: bool,
    /// Tasks that may have stayed for delayed dequeue.
    hidden: BTreeMap<i64, Hidden>,
    started: bool,
    /// EEVDF: events tell when a task is accounted.
    accounts: bool,
    /// Virtual time that was taken to be accounted, and the event of which is to come.
    ahead: i64,
    /// When the running task was picked, and for how long it has been accounted since.
    accounted: Option<(u64, u64)>,
}

fn weight_of(prio: i64) -> u64 {
    u64::from(weight::task_weight((prio - 120).clamp(-20, 19) as i8, false).0)
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
    /// `pid` hides from now on.
    pub fn hide(&mut self, pid: i64) {
        let v = Span { lo: -FAR, hi: FAR }.plus(self.min_vruntime);
        self.hidden.insert(pid, Hidden { weight: NICE_0, v, due: v.hi + FAR });
    }

    /// Hidden tasks of which the pick of `pid`, which has just been made, shows that they are gone:
    /// they were due before it, and eligible.
    fn gone(&self, pid: i64) -> Vec<i64> {
        let Some(n) = self.ents.get(&pid).filter(|n| n.due_known) else { return vec![] };
        let Some((mean, weight)) = self.mean() else { return vec![] };
        // Others that hide may hold the mean back.
        let (mut sum, mut all) = (i128::from(mean.lo) * i128::from(weight), i128::from(weight));
        for h in self.hidden.values().filter(|h| h.v.lo < mean.lo) {
            sum += i128::from(h.v.lo) * i128::from(h.weight);
            all += i128::from(h.weight);
        }
        let mean = (sum / all.max(1)) as i64;
        let picked = n.deadline - (n.v.hi - n.v.lo) / 2;
        let gone = |h: &Hidden| self.complete && h.v.hi <= mean && h.due < picked;
        self.hidden.iter().filter(|h| gone(h.1)).map(|h| *h.0).collect()
    }
    /// `pid` runs.
    pub fn runs(&self, pid: i64) -> bool {
        self.curr == pid
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
            let d = Decider::virtual_time(ran, e.weight) as i64;
            e.v = e.v.plus(Span::at(d));
            e.open += d;
            if t.eevdf && !self.accounts && e.v.middle() >= e.deadline {
                e.deadline = e.v.middle() + t.virtual_slice(e.weight);
            }
        }
        let least = self.ents.values().map(|e| e.v).reduce(Span::min);
        if let Some(v) = least {
            self.min_vruntime = self.min_vruntime.max(v);
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
            let slop = (e.v.hi - e.v.lo) / 2;
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
            (e.v, e.told) = (Span::at(v), Some(v));
        }
        self.update(now, t);
    }

    /// `pid`, which runs, was accounted for `runtime` (EEVDF).
    pub fn ran(&mut self, pid: i64, runtime: u64, now: u64, t: &Tuning) {
        self.update(now, t);
        self.accounts = true;
        let Some(e) = self.ents.get_mut(&pid).filter(|_| pid == self.curr) else { return };
        let d = Decider::virtual_time(runtime, e.weight) as i64;
        self.accounted = self.accounted.map(|(picked, ran)| (picked, ran + runtime));
        let open = std::mem::take(&mut e.open) + std::mem::take(&mut self.ahead);
        e.v = e.v.plus(Span::at(d - open));
        if e.v.middle() >= e.deadline {
            e.deadline = e.v.middle() + t.virtual_slice(e.weight);
        }
    }

    /// The clock of the queue, in so far as it counts for the running task: `now`, or, since that
    /// was picked, as far as it has been accounted.
    pub fn clock(&self, now: u64) -> i64 {
        match self.accounted {
            Some((picked, ran)) if self.accounts => (picked + ran) as i64,
            _ => now as i64,
        }
    }

    /// A tick, among several, has asked (EEVDF): it has found the request of `pid` at its end.
    pub fn ended(&mut self, pid: i64, t: &Tuning) {
        if let Some(e) = self.ents.get_mut(&pid) {
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
            None if self.accounts => e.v = e.v.plus(Span::at(-open)),
            None => {}
        }
    }

    /// `pid` may have stayed for delayed dequeue.
    pub fn hides(&self, pid: i64) -> bool {
        self.hidden.contains_key(&pid)
    }

    /// `pid` is being woken: it hides no longer. True if it may have done so until now.
    pub fn woken(&mut self, pid: i64) -> bool {
        self.hidden.remove(&pid).is_some()
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

    fn insert(&mut self, pid: i64, prio: i64, v: Span, slice: i64, due_known: bool) {
        let weight = weight_of(prio);
        let deadline = v.middle() + Decider::virtual_time(slice.max(0) as u64, weight) as i64;
        let e = Entity { weight, v, deadline, picked: 0, told: None, open: 0, due_known };
        self.ents.insert(pid, e);
    }

    /// `pid`, which has just entered, may be due at another time (EEVDF).
    pub fn forget_deadline(&mut self, pid: i64) {
        if let Some(e) = self.ents.get_mut(&pid) {
            e.due_known = false;
        }
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

    /// `pid` (0: none) runs from now on. The answer is who, as that shows, hides no longer.
    pub fn run(&mut self, pid: i64, now: u64, t: &Tuning) -> Vec<i64> {
        (self.curr, self.since) = (pid, now);
        self.accounted = self.ents.contains_key(&pid).then_some((now, 0));
        if pid == 0 {
            self.ents.clear();
            self.real_time.clear();
            self.hidden.clear();
            self.complete = true;
            return vec![];
        }
        let gone = self.gone(pid);
        self.hidden.retain(|h, _| !gone.contains(h));
        let lone = self.ents.len() == 1 && self.complete && self.hidden.is_empty();
        if let Some(e) = self.ents.get_mut(&pid) {
            if lone && self.origin.is_none() {
                let gap = self.min_vruntime.minus(e.v).clamp(0, t.credit);
                let at = e.v.middle();
                self.drift += (e.v.hi - e.v.lo) / 2;
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

    /// Lowest and highest weighted mean, and the weight; `None`: nothing is queued.
    fn mean(&self) -> Option<(Span, i64)> {
        let w: i128 = self.ents.values().map(|e| i128::from(e.weight)).sum();
        let sum = |of: fn(&Entity) -> i64| -> i64 {
            let s: i128 =
                self.ents.values().map(|e| i128::from(of(e)) * i128::from(e.weight)).sum();
            (s / w.max(1)) as i64
        };
        let mean = Span { lo: sum(|e| e.v.lo), hi: sum(|e| e.v.hi) };
        let mut open = 0;
        if let Some(e) = self.ents.get(&self.curr).filter(|_| self.accounts) {
            // The kernel's own mean counts what was accounted.
            open = (i128::from(e.open) * i128::from(e.weight) / w.max(1)) as i64;
        }
        (w > 0).then(|| (mean.minus(Span::at(open)), w as i64))
    }

    /// `pid` leaves; its virtual time and lag.
    pub fn leave(&mut self, pid: i64, t: &Tuning) -> Option<(Span, Span)> {
        self.real_time.remove(&pid);
        let lone = self.ents.len() == 1;
        let (mean, _) = self.mean()?;
        let e = self.ents.remove(&pid)?;
        if !t.eevdf {
            return Some((e.v, Span::default()));
        }
        let lag = mean.minus(e.v).clamp(-t.lag_most, t.lag_most);
        let lag = if lone && self.complete && self.hidden.is_empty() { Span::at(0) } else { lag };
        if lag.lo < 0 && pid == self.curr {
            // It stays, delayed, if its lag is negative; then it leaves with none.
            let far = if e.due_known { 0 } else { FAR };
            let due = e.deadline + (e.v.hi - e.v.lo) / 2 + far;
            self.hidden.insert(pid, Hidden { weight: e.weight, v: e.v, due });
            return Some((e.v, Span { lo: lag.lo, hi: lag.hi.max(0) }));
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
        self.hidden.remove(&pid);
        let m = self.min_vruntime;
        let v = if t.eevdf {
            let lag = slept.map_or(Span { lo: -t.lag_most, hi: t.lag_most }, |s| s.1);
            match self.mean() {
                None => m,
                Some((mean, w)) => {
                    let own = weight_of(prio) as i64;
                    let up = |l: i64| (i128::from(l) * i128::from(w + own) / i128::from(w)) as i64;
                    mean.minus(Span { lo: up(lag.lo), hi: up(lag.hi) })
                }
            }
        } else {
            let own = slept.map_or(Span { lo: -FAR, hi: FAR }, |s| s.0).plus(m);
            own.max(m.plus(Span::at(-t.credit)))
        };
        // Whether it was delayed shows only since the recording began, or the CPU was idle.
        self.insert(pid, prio, v, t.slice, slept.is_some() || self.complete);
    }

    /// A new task enters.
    pub fn enter_new(&mut self, pid: i64, prio: i64, t: &Tuning) {
        if t.eevdf {
            let slice = if t.half_first { t.slice / 2 } else { t.slice };
            let v = self.mean().map_or(self.min_vruntime, |m| m.0);
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
        let hides = !self.hidden.is_empty() && self.ents.len() > 1;
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
            s.slop = ((e.v.hi - e.v.lo) / 2) as u64;
            s.deadline = e.deadline as u64;
            s.vlag = e.picked;
            s.on_rq = true;
        } else {
            s.weight = if prio >= 100 { weight_of(prio) } else { NICE_0 };
        }
        s
    }
}

impl Tuning {
    /// The release has EEVDF.
    pub fn is_eevdf(&self) -> bool {
        self.eevdf
    }
    fn virtual_slice(&self, weight: u64) -> i64 {
        Decider::virtual_time(self.slice as u64, weight) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 uses up its request and sleeps while it is ahead of 2: it may stay, delayed. When 2 has
    /// come by, a pick of 3, which is due later, shows that 1 has gone; one of 2 before does not.
    #[test]
    fn a_pick_of_one_that_is_due_later_shows_that_a_delayed_task_has_gone() {
        let k = vruntime_formats::kernel_file::kernel("v6.12").unwrap().release;
        let t = Tuning::new(&k, 2);
        let (mut f, slice) = (Frame::default(), k.base_slice_ns * k.scaling(2));
        f.ran(9, 0, 1, &t);
        assert!(f.run(0, 1, &t).is_empty());
        let none = Some((Span::at(0), Span::at(0)));
        f.enter(1, 120, none, &t);
        f.enter(2, 120, none, &t);
        f.run(1, 2, &t);
        f.ran(1, slice, 2 + slice, &t);
        f.settle(1);
        let (_, lag) = f.leave(1, &t).unwrap();
        assert_eq!((lag, f.nr_running()), (Span { lo: -(slice as i64) / 2, hi: 0 }, (1, 1)));
        assert!(f.run(2, 3 + slice, &t).is_empty(), "it was picked because 1 is ahead");
        f.ran(2, 3 * slice, 3 + 4 * slice, &t);
        f.enter(3, 120, none, &t);
        assert_eq!((f.run(3, 4 + 4 * slice, &t), f.nr_running()), (vec![1], (2, 0)));
    }

    /// Half a request by the clock, a quarter by the event: the event counts.
    #[test]
    fn what_an_event_says_of_a_run_time_counts() {
        let k = vruntime_formats::kernel_file::kernel("v6.12").unwrap().release;
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
