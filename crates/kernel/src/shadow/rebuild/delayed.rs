//! Delayed dequeue from a plain trace, and what picks tell of the tasks that wait.
//!
//! *What.* A task that sleeps while it is not eligible stays on its queue until a pick takes it off
//! (6.12 on); no event shows either. Where the intervals of virtual time suffice, both follow from
//! the kernel's own rule, and the task is a delayed entity of the [`Frame`]. Where they do not, it
//! may be there or not: it *hides*.
//! *Rule.* Asleep with v > V: it stays. A pick takes off, one by one, who is delayed, eligible, and
//! due before all others that are eligible. Who was picked in the end is known: a delayed task due
//! earlier, or eligible when that one was not, has gone; its lag is nought from then on.
//! *What a pick tells.* Whoever is picked is behind the mean of the others, and due no later than
//! any of them that is eligible. Both intervals narrow by that.
//! *Departures.* D1: a task that goes to sleep leaves before the row that shows it. Who entered in
//! between, at most [`LATE_NS`] before, may or may not have counted when its lag was taken.

use super::queue_frame::{Entity, FAR, Frame, NICE_0, Span};
use super::tuning::Tuning;
use crate::shadow::rows::trace::Side;

/// A task that leaves its queue to sleep is switched from within this time, unless its CPU pulls.
const LATE_NS: u64 = 300_000;

/// What is known of a task that may be in delayed dequeue: its virtual time stands still.
#[derive(Clone, Copy, Debug)]
pub struct Hidden {
    pub(super) weight: u64,
    pub(super) v: Span,
    /// Latest deadline.
    pub(super) due: i64,
    /// Where it is if it has just been queued anew.
    pub(super) anew: Option<Span>,
}

impl Hidden {
    /// It is where `e` was.
    fn of(e: &Entity) -> Hidden {
        Hidden { weight: e.weight, v: e.v, due: e.due().hi, anew: None }
    }

    /// Its virtual time is known well enough to reckon with.
    pub(super) fn is_near(&self) -> bool {
        self.v.hi - self.v.lo < FAR
    }
}

/// A task that a pick has taken off the queue, or, if that is not sure, may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone {
    /// It.
    pub pid: i64,
    /// It has left.
    pub sure: bool,
}

impl Frame {
    /// `pid` hides from now on.
    pub fn hide(&mut self, pid: i64) {
        let v = Span::ANY.plus(self.min_vruntime);
        self.hidden.insert(pid, Hidden { weight: NICE_0, v, due: v.hi + FAR, anew: None });
    }

    /// Hidden tasks of which the pick of `pid`, which has just been made, shows that they are gone:
    /// they were due before it, and eligible.
    fn gone(&self, pid: i64) -> Vec<i64> {
        let Some(n) = self.ents.get(&pid).filter(|n| n.due_known) else { return vec![] };
        let Some(mean) = self.mean_of_all() else { return vec![] };
        let gone = |h: &Hidden| self.complete && h.v.hi <= mean.lo && h.due < n.due().lo;
        self.hidden.iter().filter(|h| gone(h.1)).map(|h| *h.0).collect()
    }

    /// `pid`, which was `e` and runs no longer, sleeps, with this lag to this mean: it may stay,
    /// delayed. The lag that it has once it is not.
    pub(super) fn may_stay(
        &mut self,
        pid: i64,
        e: &Entity,
        mean: Span,
        lag: Span,
        t: &Tuning,
    ) -> Span {
        // If it stays, it is ahead of the mean.
        let v = Span { lo: e.v.lo.max(mean.lo).min(e.v.hi), hi: e.v.hi };
        self.hidden.insert(pid, Hidden { v, ..Hidden::of(e) });
        Span { hi: lag.hi.max(0), ..t.lag_after_delay(e.weight) }
    }

    /// `pid`, which runs, sleeps. True: it certainly stays on the queue, delayed.
    pub fn delay(&mut self, pid: i64, t: &Tuning) -> bool {
        let Some(mean) = self.mean_when_leaving().filter(|_| t.delays && self.complete) else {
            return false;
        };
        let others = self.ents.len() > 1;
        let Some(e) = self.ents.get_mut(&pid).filter(|e| others && e.v.lo > mean.hi) else {
            return false;
        };
        e.delayed = true;
        true
    }

    /// `pid` sleeps, and is known to be queued.
    pub fn is_delayed(&self, pid: i64) -> bool {
        self.ents.get(&pid).is_some_and(|e| e.delayed)
    }

    /// `pid` was picked: who is delayed no longer, or may not be.
    pub(super) fn was_picked(&mut self, pid: i64) -> Vec<Gone> {
        let picked = self.ents.get(&pid).map(|e| (e.v, e.due()));
        let mut gone = picked.map_or(vec![], |(v, due)| self.taken_off(v, due));
        let shown = self.gone(pid);
        self.hidden.retain(|h, _| !shown.contains(h));
        gone.extend(shown.into_iter().map(|pid| Gone { pid, sure: true }));
        gone
    }

    /// Nothing is left to run: nobody is delayed.
    pub(super) fn all_taken_off(&mut self) -> Vec<Gone> {
        let delayed = self.ents.iter().filter(|e| e.1.delayed).map(|e| *e.0);
        let left: Vec<i64> = self.hidden.keys().copied().chain(delayed).collect();
        self.hidden.clear();
        left.into_iter().map(|pid| Gone { pid, sure: true }).collect()
    }

    /// Delayed tasks that have left, or may have (these hide from now on), as a task with virtual
    /// time `v` and a deadline in `due` was picked: as long as there are any that are eligible and
    /// due earlier, or it is not eligible itself, a pick takes one of them off.
    fn taken_off(&mut self, v: Span, due: Span) -> Vec<Gone> {
        let mut gone = vec![];
        while let Some(mean) = self.mean_of_all() {
            let may = |e: &Entity| {
                let before = e.due().lo <= due.hi || v.hi > mean.lo;
                e.delayed && e.v.lo <= mean.hi && before
            };
            let first = self.ents.iter().filter(|e| may(e.1)).min_by_key(|e| e.1.deadline);
            let Some((&pid, &e)) = first else { break };
            let sure = e.v.hi <= mean.lo && (e.due().hi < due.lo || v.lo > mean.hi);
            if !sure {
                self.hidden.insert(pid, Hidden::of(&e));
            }
            self.ents.remove(&pid);
            gone.push(Gone { pid, sure });
        }
        gone
    }

    /// There may have been a pick that left no row: it kept the running task.
    pub fn may_have_picked(&mut self) -> Vec<Gone> {
        let Some(mean) = self.mean_of_all() else { return vec![] };
        let eligible = self.ents.values().filter(|e| !e.delayed && e.v.hi <= mean.lo);
        let hi = eligible.map(|e| e.due().hi).min().unwrap_or(i64::MAX);
        self.taken_off(Span { lo: i64::MIN, hi: mean.lo }, Span { lo: i64::MIN, hi })
    }

    /// What the pick of `pid` tells: it is eligible, behind the others' mean, and of all that are
    /// none is due earlier.
    pub(super) fn learn(&mut self, pid: i64) {
        let (Some(mean), Some(all)) = (self.mean_of_others(pid), self.mean_of_all()) else {
            return;
        };
        let Some(picked) = self.ents.get(&pid).map(Entity::due) else { return };
        let mut first = i64::MAX;
        for (&other, e) in &mut self.ents {
            if other == pid || e.delayed || e.v.hi > all.lo {
                continue;
            }
            first = first.min(e.due().hi);
            if e.narrow_due(Span { lo: picked.lo, hi: i64::MAX }) {
                self.learnt.push(other);
            }
        }
        if let Some(e) = self.ents.get_mut(&pid) {
            e.narrow(Span { lo: i64::MIN, hi: mean.hi });
            e.narrow_due(Span { lo: i64::MIN, hi: first });
        }
    }

    /// The mean when the running task sleeps, with those that came late or without.
    pub(super) fn mean_when_leaving(&mut self) -> Option<Span> {
        let with = self.mean_of_all()?;
        let may_be_late = self.late.iter().filter(|l| l.1 + LATE_NS > self.since);
        let late: Vec<_> =
            may_be_late.filter_map(|l| Some((l.0, self.ents.remove(&l.0)?))).collect();
        let without = self.mean_of_all().filter(|_| !late.is_empty());
        self.ents.extend(late);
        Some(without.map_or(with, |w| w.hull(with)))
    }

    /// `pid`, which has just entered, was not put here by the running task.
    pub fn came_late(&mut self, pid: i64, now: u64) {
        self.late.push((pid, now));
    }

    /// The running task does something.
    pub fn acts(&mut self) {
        self.late.clear();
    }

    /// The mean without `pid`.
    fn mean_of_others(&mut self, pid: i64) -> Option<Span> {
        let e = self.ents.remove(&pid)?;
        let mean = self.mean_of_all();
        self.ents.insert(pid, e);
        mean
    }

    /// [`Frame::mean`], whoever of those that hide may be there.
    pub(super) fn mean_of_all(&self) -> Option<Span> {
        let (lo, hi, w) = self.sums();
        if w == 0 {
            return None;
        }
        // Farthest with all that are beyond it, the farthest of them first.
        let farthest = |sum: i128, side: i128, hidden: Vec<(i64, u64)>| {
            let (mut sum, mut all) = (sum, w);
            for (v, own) in hidden {
                let (v, own) = (i128::from(v), i128::from(own));
                if side * (v * all - sum) > 0 {
                    (sum, all) = (sum + v * own, all + own);
                }
            }
            sum.div_euclid(all) as i64
        };
        let hidden = |end: fn(&Hidden) -> i64| -> Vec<_> {
            let mut all: Vec<_> = self.hidden.values().map(|h| (end(h), h.weight)).collect();
            all.sort_unstable();
            all
        };
        let mut ahead = hidden(|h| h.v.hi);
        ahead.reverse();
        let lo = farthest(lo, -1, hidden(|h| h.v.lo));
        Some(Span { lo, hi: farthest(hi, 1, ahead) })
    }

    /// `pid` may have stayed for delayed dequeue.
    pub fn hides(&self, pid: i64) -> bool {
        self.hidden.contains_key(&pid)
    }

    /// `pid` is woken elsewhere, or moved: it is not delayed here. True if it was, or may be.
    pub fn woken(&mut self, pid: i64) -> bool {
        let delayed = self.is_delayed(pid);
        if delayed {
            self.ents.remove(&pid);
        }
        self.hidden.remove(&pid).is_some() || delayed
    }

    /// `pid`, which was or may have been in delayed dequeue, is known to have left: in a pick, if
    /// not before. When it was made the next switch tells; until then the task may count. True if
    /// it was here.
    pub fn departs(&mut self, pid: i64) -> bool {
        if let Some(e) = self.ents.get(&pid).copied().filter(|e| e.delayed) {
            self.ents.remove(&pid);
            self.hidden.insert(pid, Hidden::of(&e));
        }
        let here = self.hides(pid);
        if here {
            self.departed.push(pid);
        }
        here
    }

    /// `pid`, which may be in delayed dequeue, is woken: if it is, it may start anew here, before
    /// the running task is accounted.
    pub fn may_requeue(&mut self, pid: i64) {
        let mean = self.mean_of_all();
        if let Some(h) = self.hidden.get_mut(&pid) {
            h.anew = mean;
        }
    }

    /// `pid`, delayed, is woken: it stays where it is, or, if it has become eligible, enters anew
    /// with no lag.
    pub(super) fn requeue(&mut self, pid: i64, t: &Tuning) {
        let Some(&(mut e)) = self.ents.get(&pid) else { return };
        // What it is owed counts its own part in the mean, and has to be more than nothing.
        let mut owed = |v: i64| {
            let at = Entity { v: Span::at(v), delayed: false, ..e };
            self.ents.insert(pid, at);
            self.mean_of_all().map_or(Span::at(0), |mean| mean.minus(at.v))
        };
        let (may, anew) = (owed(e.v.lo).hi > 0, owed(e.v.hi).lo > 0);
        self.ents.remove(&pid);
        e.delayed = false;
        if t.delay_zero && may {
            let rest = self.mean_of_all().unwrap_or(self.min_vruntime);
            e.v = if anew { rest } else { e.v.hull(rest) };
            e.deadline = e.v.middle() + t.virtual_slice(e.weight);
            e.due_known = anew;
        }
        self.ents.insert(pid, e);
    }

    /// The state of `pid`, which may be in delayed dequeue, if it is.
    pub fn side_if_delayed(&self, pid: i64, t: &Tuning) -> Option<Side> {
        let h = self.hidden.get(&pid).filter(|h| h.is_near())?;
        let mut s = Side { weight: h.weight, ..self.side(pid, 120, t) };
        (s.vruntime, s.slop) = (h.v.middle() as u64, h.v.slop() as u64);
        s.deadline = h.due as u64;
        (s.on_rq, s.sched_delayed) = (true, true);
        Some(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_LAG: Option<(Span, Span)> = Some((Span::at(0), Span::at(0)));

    /// A CPU of v6.12 that was idle and on which `pids` have entered in turn; and the slice.
    fn queue(pids: &[i64]) -> (Frame, Tuning, i64) {
        let k = crate::shadow::tests::release("v6.12");
        let t = Tuning::new(&k, 2);
        let mut f = Frame::default();
        f.ran(9, 0, 1, &t);
        assert!(f.run(0, 1, &t).is_empty());
        for &pid in pids {
            f.enter(pid, 120, NO_LAG, &t);
        }
        (f, t, (k.base_slice_ns * k.scaling(2)) as i64)
    }
    /// `pid` runs from `from` on, for `ns`.
    fn runs(f: &mut Frame, t: &Tuning, pid: i64, from: u64, ns: i64) -> Vec<Gone> {
        let gone = f.run(pid, from, t);
        f.ran(pid, ns as u64, from + ns as u64, t);
        f.settle(pid);
        gone
    }
    fn left(pid: i64) -> Vec<Gone> {
        vec![Gone { pid, sure: true }]
    }

    /// 1 uses up its request and sleeps while it is ahead of 2: it stays, delayed. 2 is picked as 1
    /// is not eligible; when 2 has come by, a pick of 3, which is due later, takes 1 off.
    #[test]
    fn a_delayed_task_is_taken_off_by_the_pick_of_one_due_later() {
        let (mut f, t, slice) = queue(&[1, 2]);
        assert!(runs(&mut f, &t, 1, 2, slice).is_empty());
        assert!(f.delay(1, &t) && f.is_delayed(1));
        assert!(runs(&mut f, &t, 2, 3 + slice as u64, 3 * slice).is_empty());
        f.enter(3, 120, NO_LAG, &t);
        assert_eq!((f.run(3, 9 * slice as u64, &t), f.nr_running()), (left(1), (2, 0)));
    }

    /// 2 is picked though 1, delayed, was eligible and 2 was not: 1 was taken off first, however
    /// late it was due.
    #[test]
    fn a_pick_of_one_that_is_not_eligible_shows_that_a_delayed_task_has_gone() {
        let (mut f, t, slice) = queue(&[1, 2]);
        runs(&mut f, &t, 1, 2, slice / 4);
        assert!(f.delay(1, &t));
        runs(&mut f, &t, 2, slice as u64, slice / 2);
        assert_eq!(f.run(2, 3 * slice as u64, &t), left(1));
    }

    /// Asleep with lag to its credit, or alone, a task leaves at once.
    #[test]
    fn who_is_eligible_is_not_delayed() {
        let (mut f, t, slice) = queue(&[1, 2]);
        runs(&mut f, &t, 1, 2, slice / 4);
        runs(&mut f, &t, 2, slice as u64, slice / 8);
        assert!(!f.delay(2, &t));
        assert_eq!(f.leave(2, &t).unwrap().1, Span::at(slice / 16));
        assert!(!f.delay(1, &t));
    }

    /// Woken before V has come by, a delayed task stays where it stood; afterwards it starts at V.
    #[test]
    fn a_delayed_task_that_is_woken_stays_or_starts_anew() {
        for (ahead, stays) in [(slice_of(8), true), (slice_of(2), false)] {
            let (mut f, t, slice) = queue(&[1, 2]);
            runs(&mut f, &t, 1, 2, slice / 4);
            let stood = f.ents[&1].v;
            assert!(f.delay(1, &t));
            runs(&mut f, &t, 2, slice as u64, ahead);
            f.enter(1, 120, None, &t);
            let now = if stays { stood } else { f.ents[&2].v };
            assert!(!f.is_delayed(1) && f.ents[&1].due_known);
            assert_eq!(f.ents[&1].v, now);
        }
    }
    fn slice_of(part: i64) -> i64 {
        queue(&[]).2 / part
    }

    /// 2 has run `more` than 1, which is delayed, had. What 1 is owed counts its own part in V and
    /// is rounded down: at 1 that is nothing, and 1 keeps its place and its deadline.
    #[test]
    fn who_is_owed_less_than_a_nanosecond_does_not_start_anew() {
        for (more, starts_anew) in [(0, false), (1, false), (2, true)] {
            let (mut f, t, slice) = queue(&[1, 2]);
            runs(&mut f, &t, 1, 2, slice / 4);
            assert!(f.delay(1, &t));
            let (stood, due) = (f.ents[&1].v, f.ents[&1].deadline);
            runs(&mut f, &t, 2, slice as u64, slice / 4 + more);
            f.enter(1, 120, None, &t);
            let kept = f.ents[&1].v == stood && f.ents[&1].deadline == due;
            assert_eq!(!kept, starts_anew, "{more}");
            assert!(f.ents[&1].due_known);
        }
    }

    /// 1 may be delayed when it sleeps, or not: woken, it has a new request, or what is left of the
    /// old one.
    #[test]
    fn who_may_have_been_delayed_may_have_an_earlier_deadline() {
        let due_less = |slop: i64| {
            let (mut f, t, slice) = queue(&[1, 2]);
            runs(&mut f, &t, 1, 2, slice / 4);
            let e = f.ents.get_mut(&1).unwrap();
            e.v = e.v.widened(slop);
            if !f.delay(1, &t) {
                f.leave(1, &t);
            }
            f.enter(1, 120, None, &t);
            f.side(1, 120, &t).due_less
        };
        let slice = slice_of(1);
        assert_eq!([due_less(0), due_less(slice)], [0, slice as u64]);
    }

    /// Two that hide, 9 ns and 4 ns behind the mean of the queue: with the first alone it is 5 ns
    /// further back, and the second no longer behind it.
    #[test]
    fn who_is_ahead_of_the_mean_with_another_does_not_lower_it() {
        let (mut f, _, _) = queue(&[1]);
        let m = f.mean_of_all().unwrap().lo;
        for (pid, behind) in [(2, 9), (3, 4)] {
            let v = Span { lo: m - behind, hi: m };
            f.hidden.insert(pid, Hidden { weight: NICE_0, v, due: m, anew: None });
        }
        assert_eq!(f.mean_of_all(), Some(Span { lo: m - 5, hi: m }));
    }

    /// 3 may have any lag. That 1 is picked, and not 3, shows that 3 is due no earlier; that 3 is,
    /// that it is behind the others' mean.
    #[test]
    fn a_pick_tells_of_lags_that_are_not_known() {
        let (mut f, t, slice) = queue(&[1, 2]);
        f.enter(3, 120, None, &t);
        let width = |f: &Frame| f.ents[&3].v.hi - f.ents[&3].v.lo;
        let before = width(&f);
        assert!(before > 2 * slice);
        f.run(3, 2, &t);
        assert!(width(&f) < before && f.ents[&3].v.hi == f.ents[&1].v.hi);
    }

    /// 2 came when 1 may have left already: its lag is with 2 or without. Had 1 done something
    /// since, it would be with it.
    #[test]
    fn who_came_late_may_not_have_counted() {
        for acts in [false, true] {
            let (mut f, t, slice) = queue(&[1]);
            f.run(1, 2, &t);
            f.ran(1, slice as u64 / 4, 2 + slice as u64 / 4, &t);
            f.enter(2, 120, Some((Span::at(0), Span::at(-100))), &t);
            f.came_late(2, 2 + slice as u64 / 4);
            if acts {
                f.acts();
            }
            f.settle(1);
            assert!(!f.delay(1, &t));
            assert_eq!(f.leave(1, &t).unwrap().1, Span { lo: if acts { 100 } else { 0 }, hi: 100 });
        }
    }
}
