//! Virtual times of one CPU's queue as far as a plain trace tells them: intervals.
//!
//! *What.* Running adds the time that went by; entering places as `place_entity` does, applied to
//! both ends. A task alone on its CPU has an exact time by choice of the origin.
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
    hidden: BTreeSet<i64>,
    started: bool,
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
            if t.eevdf && e.v.middle() >= e.deadline {
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

    /// `pid` stops running: time since it was last accounted is not its own.
    pub fn settle(&mut self, pid: i64) {
        if let Some(e) = self.ents.get_mut(&pid)
            && let Some(v) = e.told.take()
        {
            e.v = Span::at(v);
        }
    }

    /// `pid` may have stayed for delayed dequeue.
    pub fn hides(&self, pid: i64) -> bool {
        self.hidden.contains(&pid)
    }

    /// `pid` is being woken: it hides no longer.
    pub fn woken(&mut self, pid: i64) {
        self.hidden.remove(&pid);
    }

    /// A task that is here, though no row put it here.
    pub fn ensure(&mut self, pid: i64, prio: i64, t: &Tuning) {
        if prio < 100 {
            self.real_time.insert(pid);
        } else if !self.ents.contains_key(&pid) {
            let v = self.min_vruntime.widened(FAR);
            self.insert(pid, prio, v, t.slice);
            self.complete = false;
        }
    }

    fn insert(&mut self, pid: i64, prio: i64, v: Span, slice: i64) {
        let weight = weight_of(prio);
        let deadline = v.middle() + Decider::virtual_time(slice.max(0) as u64, weight) as i64;
        self.ents.insert(pid, Entity { weight, v, deadline, picked: 0, told: None });
    }

    /// `pid` (0: none) runs from now on.
    pub fn run(&mut self, pid: i64, now: u64, t: &Tuning) {
        (self.curr, self.since) = (pid, now);
        if pid == 0 {
            self.ents.clear();
            self.real_time.clear();
            self.hidden.clear();
            self.complete = true;
            return;
        }
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
                e.v = e.v.widened(CLOCK_NS);
            }
            e.picked = e.deadline;
        }
    }

    /// Lowest and highest weighted mean, and the weight; `None`: nothing is queued.
    fn mean(&self) -> Option<(Span, i64)> {
        let w: i128 = self.ents.values().map(|e| i128::from(e.weight)).sum();
        let sum = |of: fn(&Entity) -> i64| -> i64 {
            let s: i128 =
                self.ents.values().map(|e| i128::from(of(e)) * i128::from(e.weight)).sum();
            (s / w.max(1)) as i64
        };
        (w > 0).then(|| (Span { lo: sum(|e| e.v.lo), hi: sum(|e| e.v.hi) }, w as i64))
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
            self.hidden.insert(pid);
            return Some((e.v, lag.max(Span::at(lag.lo)).min(Span::at(lag.hi.max(0)))));
        }
        Some((e.v, lag))
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
        self.insert(pid, prio, v, t.slice);
    }

    /// A new task enters.
    pub fn enter_new(&mut self, pid: i64, prio: i64, t: &Tuning) {
        if t.eevdf {
            let slice = if t.half_first { t.slice / 2 } else { t.slice };
            let v = self.mean().map_or(self.min_vruntime, |m| m.0);
            if prio >= 100 {
                return self.insert(pid, prio, v, slice);
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
    fn virtual_slice(&self, weight: u64) -> i64 {
        Decider::virtual_time(self.slice as u64, weight) as i64
    }
}
