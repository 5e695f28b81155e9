//! Wakeups of a plain trace: what a choice of a CPU can have seen of who wakes whom.
//!
//! *What.* A plain trace shows that a task is woken and where it is put. From the wakeups before it
//! follow the flips of waker and wakee ([`Flips`], least and most), and from who wakes, in which
//! context, whether the wakeup may be synchronous. The choice becomes a row of its own.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/fair.c `record_wakee`; callers of
//! `__wake_up_sync_key`.
//! *Equations.* flips grow by one with each other wakee, and halve at the first wakeup more than a
//! second after the last halving; when that was is known once a task has woken nobody for a second.
//! *Departures.* D1: flips from before the recording are between none and [`MOST_FLIPS`].
//! *Example.* 1 wakes 2, 3, 2: three flips, or two if it had woken 2 before the recording.

use super::moves::Mover;
use super::queue_frame::Span;
use super::rebuilder::Rebuilder;
use crate::shadow::rows::trace::{
    MAY_STAY, Named, PREV_NOT_KNOWN, Row, RowKind, SYNC_NOT_KNOWN, Trace, WF_TTWU,
};
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::Cpu;

/// A task may be on its CPU for so long after the row that shows it leave, unless the next one does
/// something there, and off its queue for so long before.
const LEAVING_NS: u64 = 50_000;
/// More flips than this change nothing: no factor of `wake_wide` is larger.
pub(in crate::shadow) const MOST_FLIPS: i64 = 1 << 12;
/// What halves flips.
const SECOND: u64 = 1_000_000_000;

/// A second is counted in jiffies, of which both ends may be one off.
const JIFFIES: u64 = 20_000_000;

/// No wakee yet: who was the last one before the recording is not known.
const BEFORE: i64 = -1;
/// One of two.
const NOT_SURE: i64 = -2;

/// Wakeup statistics of a task. When they were last halved before the recording is not known, nor,
/// at first, whether they are halved at a wakeup: once at most in the second since `since`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flips {
    /// At least so many, if they have not been halved since `since`.
    least: i64,
    most: i64,
    /// `most` as it was at `since`.
    most_then: i64,
    last_wakee: i64,
    since: Option<u64>,
    /// They were halved at `since`, and have not been halved since.
    exact: bool,
    /// The wakeup before.
    last: u64,
    /// The task, or ancestor, whose flips before the recording are not known.
    of: i64,
    /// How much of the distance between `least` and `most` is not of those, but of wakeups that are
    /// not known well: no other task shares it.
    own: i64,
}

impl Flips {
    fn unknown(of: i64) -> Flips {
        let most = MOST_FLIPS;
        let (least, since, exact, last) = (0, None, false, 0);
        Flips { least, most, most_then: most, last_wakee: BEFORE, since, exact, last, of, own: 0 }
    }

    /// Lowest and highest number.
    fn ends(&self) -> (i64, i64) {
        (if self.exact { self.least } else { self.least >> 1 }, self.most)
    }

    /// Halves what a wakeup at `now` halves, or may halve.
    fn decay(&mut self, now: u64) {
        let since = self.since.unwrap_or(now);
        let quiet = self.since.is_some() && now - self.last > SECOND + JIFFIES;
        if quiet || (self.exact && now - since > SECOND + JIFFIES) {
            let (least, most) = self.ends();
            (self.least, self.most) = (least >> 1, most >> 1);
            (self.exact, self.since) = (true, Some(now));
        } else if self.exact && now - since > SECOND - JIFFIES {
            (self.exact, self.since) = (false, Some(now));
        } else if !self.exact && now - since > SECOND + JIFFIES {
            self.least >>= 1;
            self.most = (self.most_then >> 1) + self.most - self.most_then;
            self.since = Some(now);
        } else {
            self.since = Some(since);
            return;
        }
        self.most_then = self.most;
        self.own = self.own.min(self.most - self.least);
    }

    /// `record_wakee`; where it is not `sure` that a CPU was chosen, it may not have been called.
    fn record(&mut self, wakee: i64, now: u64, sure: bool) {
        let without = *self;
        self.decay(now);
        let doubt = self.most - self.least;
        self.last = now;
        if self.last_wakee != wakee {
            self.least += i64::from(self.last_wakee >= 0);
            self.most += 1;
            self.last_wakee = wakee;
        }
        if !sure {
            self.least = self.least.min(without.least);
            self.most = self.most.max(without.most);
            self.exact &= self.since == without.since;
            if without.last_wakee != wakee {
                self.last_wakee = NOT_SURE;
            }
        }
        // The first wakeup's doubt is one of what was before.
        if !sure || without.last_wakee != BEFORE {
            self.own += self.most - self.least - doubt;
        }
    }
    /// The distance between least and most: what `of` had before the recording, and its own.
    fn doubts(&self) -> (i64, i64) {
        (self.most - self.least - self.own, self.own)
    }
}

impl Rebuilder<'_> {
    /// The running task itself does it, not an interrupt.
    pub(super) fn by_running(&self, r: &Row) -> bool {
        r.curr_pid == self.cpus[r.cpu.ix()].running() && r.flags.is_none_or(|f| !f.interrupt)
    }

    pub(super) fn waking(&mut self, r: &Row) -> Row {
        let at = self.cpu_of(r.task_cpu(), r.rq_cpu);
        if r.p.is_fair() && !self.on.contains_key(&r.p.pid) {
            self.averages.asleep(r.p.pid, r.p.prio, at);
        }
        if self.by_running(r) {
            self.cpus[r.cpu.ix()].acts();
        }
        let mut row = self.plain(r, at);
        row.p.on_rq = self.on.contains_key(&r.p.pid);
        self.wakes.insert(r.cpu.ix(), (r.p.pid, r.p.prio, at));
        self.woken_by.insert(r.p.pid, r.cpu.ix());
        row
    }

    /// The CPU that wakes `pid`, which was on `at`, has its queue's lock: if the task is delayed,
    /// it is queued anew before the running task is accounted, other than one that slept.
    fn requeue(&mut self, (pid, prio, at): (i64, i64, usize), now: u64) {
        match self.on.get(&pid).filter(|_| self.is_delayed(pid)) {
            Some(&c) => {
                self.asleep.remove(&pid);
                self.cpus[c].enter(pid, prio, None, &self.tuning);
                self.averages.enter(pid, prio, c, now);
            }
            None => self.cpus[at].may_requeue(pid),
        }
    }

    /// A CPU was chosen for `pid`, or it is on a wake list: it has left the queue of `from`.
    pub(super) fn departs(&mut self, pid: i64, from: usize, now: u64) {
        self.wakes.retain(|_, wakes| wakes.0 != pid);
        if self.cpus[from].departs(pid) {
            self.on.remove(&pid);
            self.averages.gone(pid, now);
        }
    }

    /// The task of `r` becomes runnable on `c`: if it was delayed it is queued anew, or has left.
    fn wakes_up(&mut self, r: &Row, c: usize) {
        let pid = r.p.pid;
        self.wakes.retain(|_, wakes| wakes.0 != pid);
        // Who queues it anew is its waker itself. What a CPU takes off its wake list had left.
        let by = self.woken_by.remove(&pid).filter(|_| !self.t.wakings_only);
        let listed = by.is_some_and(|by| by != r.cpu.ix());
        match self.on.get(&pid).filter(|_| self.is_delayed(pid)) {
            Some(&from) if from != c => self.departs(pid, from, r.ts),
            Some(_) if !listed => self.requeue((pid, r.p.prio, c), r.ts),
            _ if listed && self.cpus[c].woken(pid) => {
                self.on.remove(&pid);
                self.averages.gone(pid, r.ts);
            }
            _ => {}
        }
    }

    /// `by` accounts `pid`, which runs: on the queue that it wakes a task on, maybe.
    pub(super) fn accounts(&mut self, by: usize, pid: i64, now: u64) {
        let Some(&wakes) = self.wakes.get(&by) else { return };
        if self.cpus[self.on.get(&wakes.0).copied().unwrap_or(wakes.2)].runs(pid) {
            self.wakes.remove(&by);
            self.requeue(wakes, now);
        }
    }

    /// Of the running task of row `r`; each CPU has an idle task.
    fn flips_of_curr(&mut self, r: &Row) -> &mut Flips {
        let curr = (r.curr_pid, if r.curr_pid == 0 { r.cpu.ix() } else { 0 });
        self.flips.entry(curr).or_insert(Flips::unknown(r.curr_pid))
    }

    /// The choice of a CPU of the wakeup that starts at row `i`.
    pub(super) fn choice(&mut self, i: usize, next: u64) -> Option<Row> {
        let r = &self.t.rows[i];
        if r.p.pid == r.curr_pid || r.p.prio < 100 {
            return None;
        }
        if let Some(&on) = self.on.get(&r.p.pid) {
            // If it is about to leave, the waker may wait until it has, and choose then.
            if on != r.cpu.ix() {
                self.flips_of_curr(r).record(r.p.pid, r.ts, false);
            }
            return None;
        }
        if let Some(Named::Bound | Named::Stopper) = self.t.named.get(&r.p.pid) {
            return None; // It may use one CPU: nothing is chosen.
        }
        let rest = self.t.rows[i + 1..].iter();
        let done = rest
            .clone()
            .find(|x| x.p.pid == r.p.pid && matches!(x.kind, RowKind::Wakeup | RowKind::Waking))?;
        let prev = self.cpu_of(r.task_cpu(), r.rq_cpu);
        let left = self.left_at.get(&r.p.pid).copied().unwrap_or(0);
        let unheard = self.heard[prev] <= left && r.ts < left + LEAVING_NS;
        // Who is delayed is queued anew by its waker, who leaves by its own CPU.
        let unheard = unheard || self.left_early.contains(&r.p.pid);
        let there = match self.t.wakings_only {
            true => done.rq_cpu.ix() == prev && prev != r.cpu.ix(),
            false => done.cpu != r.cpu && done.cpu.ix() == prev,
        };
        let leaving = there && unheard;
        let delayed = done.cpu == r.cpu && self.cpus[prev].hides(r.p.pid);
        let w = self.flips_of_curr(r);
        w.record(r.p.pid, r.ts, !leaving && !delayed);
        let w = *w;
        let p = *self.flips.entry((r.p.pid, 0)).or_insert(Flips::unknown(r.p.pid));
        let mut row = self.plain(r, prev);
        row.kind = RowKind::SelectRq;
        // Not a row of the recording: nothing else on the CPU lies between.
        row.ts = next.min(done.ts);
        row.a = done.task_cpu();
        row.b = WF_TTWU | if self.may_be_sync(r) { SYNC_NOT_KNOWN } else { 0 };
        if leaving || delayed {
            row.b |= MAY_STAY;
        }
        if self.pods && self.t.named.get(&r.p.pid) == Some(&Named::Unbound) {
            row.b |= PREV_NOT_KNOWN;
        }
        row.wake_cpu = Some(prev as i64);
        (row.curr_wakee_flips, row.wakee_flips) = (Some(w.least), Some(p.least));
        let (of_w, of_p) = (w.doubts(), p.doubts());
        row.flips_more = (of_w.0, of_p.0);
        row.flips_own = (of_w.1, of_p.1);
        row.flips_of = (w.of, p.of);
        let half = |f: Flips| !f.exact && f.since.is_some();
        row.flips_half = (half(w), half(p));
        Some(row)
    }

    /// The wakeup may be synchronous: not if it wakes a kernel thread or comes from one, from a
    /// hard interrupt or from the idle task. A soft interrupt may hand over what a socket received.
    fn may_be_sync(&self, r: &Row) -> bool {
        let kernel = |pid: i64| self.t.named.contains_key(&pid);
        let ours = r.curr_pid == 0 || kernel(r.curr_pid);
        !kernel(r.p.pid)
            && match r.flags {
                Some(f) => !f.hard && (f.interrupt || !ours),
                None => true,
            }
    }

    /// The wakeup of row `i`.
    pub(super) fn wakeup(&mut self, i: usize) -> Row {
        let t = self.t;
        let r = &t.rows[i];
        let c = self.cpu_of(r.task_cpu(), r.rq_cpu);
        let pid = r.p.pid;
        self.cpus[c].update(r.ts, &self.tuning);
        self.wakes_up(r, c);
        if r.kind == RowKind::WakeupNew {
            self.cpus[c].enter_new(pid, r.p.prio, &self.tuning);
            if r.p.is_fair() {
                self.averages.fork(pid, r.p.prio, c, r.ts);
            }
            let inherited = *self.flips_of_curr(r);
            self.flips.insert((pid, 0), inherited);
        } else if !self.on.contains_key(&pid) {
            let slept = self.asleep.remove(&pid).map(|(home, v, drift, lag)| {
                let f = &mut self.cpus[home];
                if home != c {
                    f.departs(pid);
                }
                let v = v.widened(f.drift - drift).plus(Span::at(f.origin.unwrap_or(0)));
                (v.minus(f.min_vruntime), lag)
            });
            self.cpus[c].enter(pid, r.p.prio, slept, &self.tuning);
            if self.beside_who_leaves.contains(&i) {
                self.cpus[c].will_change(pid);
            }
            if r.p.is_fair() {
                self.averages.enter(pid, r.p.prio, c, r.ts);
            }
        }
        if self.cpus[c].is_queued(pid) {
            self.on.insert(pid, c);
        }
        if r.cpu.ix() != c || !self.by_running(r) {
            self.cpus[c].came_late(pid, r.ts);
        }
        if self.tuning.wakeup_ends_delay() {
            let gone = self.cpus[c].may_have_picked();
            self.take_off(r.ts, c, gone);
        }
        let mut row = self.plain(r, c);
        row.clock_task = Some(self.cpus[c].clock(r.ts));
        row.p = self.side(c, &r.p);
        row.p.on_rq = true;
        row
    }
}

/// Wakeups on a CPU whose running task may be no part of what the wakee is placed by: it exits, and
/// has left its autogroup, or it sleeps, and its CPU pulls others as nothing else was left.
pub(super) fn beside_who_leaves(t: &Trace, movers: &BTreeMap<usize, Mover>) -> BTreeSet<usize> {
    // By CPU: when its task is first seen to leave.
    let mut leaves: BTreeMap<Cpu, u64> = BTreeMap::new();
    let mut beside = BTreeSet::new();
    for (i, r) in t.rows.iter().enumerate().rev() {
        match r.kind {
            RowKind::Switch if t.exits(r) => drop(leaves.insert(r.cpu, r.ts)),
            RowKind::Switch => drop(leaves.remove(&r.cpu)),
            RowKind::Migrate if movers.get(&i) == Some(&Mover::Newidle) => {
                leaves.insert(r.cpu, r.ts);
            }
            RowKind::Wakeup if leaves.get(&r.rq_cpu).is_some_and(|l| l - r.ts < LEAVING_NS) => {
                beside.insert(i);
            }
            _ => {}
        }
    }
    beside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::Flags;
    use crate::shadow::tests::{pulled, rebuilt, rebuilt_as, row, switch, woken};

    /// 1 sleeps and comes back beside 2. Where it is placed is known if 2 runs on, or sleeps later;
    /// not if 2 ends soon after, and may be in another group by then, nor if it sleeps and its CPU
    /// pulls 3, for which it may have left.
    #[test]
    fn who_is_woken_beside_one_that_leaves_is_anywhere() {
        let slop = |after: u64, prev_state: i64, pulls: bool| {
            let mut rows = vec![switch(10, 0, 9, 0, true), switch(11, 1, 9, 0, true)];
            rows.extend(woken(12, 0, 1, 0));
            rows.push(switch(20, 0, 0, 1, false));
            for pid in [3, 4] {
                rows.extend(woken(22, 1, pid, 0));
            }
            rows.push(switch(25, 1, 0, 4, false));
            rows.push(switch(1_000_000, 0, 1, 0, true));
            rows.push(row(1_000_100, 0, RowKind::WakeupNew, 2, 0));
            rows.push(switch(1_000_200, 0, 0, 2, false));
            rows.extend(woken(2_000_000, 0, 1, 2));
            let end = 2_000_000 + after;
            if pulls {
                rows.push(pulled(end - 10, 3, 2));
            }
            rows.push(Row { b: prev_state, ..switch(end, 0, 2, 1, true) });
            let rows = rebuilt_as("v6.12", rows, &[]);
            rows.iter().rfind(|r| r.kind == RowKind::Wakeup).unwrap().p.slop
        };
        let (zombie, sleeps, soon, late) = (0x20, 1, 10_000, 10 * LEAVING_NS);
        let known =
            [slop(soon, sleeps, false), slop(late, zombie, false), slop(late, sleeps, true)];
        assert!(known.iter().all(|&slop| slop < 10), "{known:?}");
        let anywhere = [slop(soon, zombie, false), slop(soon, sleeps, true)];
        assert!(anywhere.iter().all(|&slop| slop > 1 << 30), "{anywhere:?}");
    }

    /// What was before the recording goes with an ancestor's; whether 4 was recorded, and so
    /// whether 5 is a flip, is the task's own.
    #[test]
    fn who_was_woken_is_ones_own_doubt() {
        let mut f = Flips::unknown(1);
        let mut own = |wakee, sure| {
            f.record(wakee, 10 * wakee as u64, sure);
            f.doubts().1
        };
        assert_eq!([own(2, true), own(3, true), own(4, false), own(5, true)], [0, 0, 1, 2]);
        assert_eq!(f.doubts(), (MOST_FLIPS + 1, 2));
    }

    /// 1 wakes 2 and 3 in turn, every 100 ms. Nine flips are at least four: some wakeup in the
    /// first second may have halved them. After a second in which it wakes nobody they are halved
    /// for sure, and no more within the next one.
    #[test]
    fn when_flips_are_halved_is_known_after_a_second_without() {
        let mut f = Flips::unknown(1);
        f.most = 40;
        f.most_then = 40;
        let ms = 1_000_000;
        for i in 0..10 {
            f.record(2 + i % 2, i as u64 * 100 * ms, true);
        }
        assert_eq!(f.ends(), (4, 50));
        // In the second second it has been halved once for sure: at the first, or here; or twice.
        f.record(2, 1_100 * ms, true);
        assert_eq!(f.ends(), ((9 / 2 + 1) / 2, 40 / 2 + 10 + 1));
        f.record(3, 2_300 * ms, true);
        assert_eq!((f.exact, f.ends()), (true, (2 / 2 + 1, 31 / 2 + 1)));
        f.record(2, 3_200 * ms, true);
        assert_eq!((f.exact, f.ends()), (true, (3, 17)));
        // Whether it was woken by a choice is not known.
        f.record(3, 3_210 * ms, false);
        assert_eq!(f.ends(), (3, 18));
        f.record(2, 3_220 * ms, true);
        assert_eq!(f.ends(), (3, 19));
    }

    /// What the parent flipped before the recording is not known; its child has as many more, and
    /// either may have halved them.
    #[test]
    fn a_childs_unknown_flips_are_its_parents() {
        let mut rows = vec![switch(10, 0, 9, 1, false)];
        rows.push(row(20, 0, RowKind::WakeupNew, 2, 1));
        rows.extend(woken(30, 0, 3, 1));
        rows.push(switch(40, 0, 1, 2, false));
        rows.extend(woken(50, 0, 4, 2));
        let rows = rebuilt(rows, &[]);
        let of = |pid| rows.iter().find(|r| r.kind == RowKind::SelectRq && r.p.pid == pid).unwrap();
        assert_eq!((of(3).flips_of, of(4).flips_of), ((1, 3), (1, 4)));
        assert_eq!(of(4).flips_half, (true, false));
        assert!(of(3).flips_more.0 > 4000 && of(4).flips_more.0 > 4000);
    }

    /// 1 leaves CPU 0, and 9 wakes it from CPU 1, or an interrupt does from its own. CPU 0 may have
    /// been heard of since.
    #[test]
    fn who_is_on_its_way_off_its_cpu_may_stay_there() {
        let may_stay = |after: u64, cpu: u16, heard: bool| {
            let mut rows = vec![switch(10, 0, 0, 1, false), switch(20, 1, 0, 9, false)];
            rows.push(switch(1_000, 0, 1, 0, true));
            rows.extend(heard.then(|| row(1_001, 0, RowKind::Waking, 8, 0)));
            let curr = if cpu == 1 { 9 } else { 0 };
            let [waking, wakeup] = woken(1_000 + after, cpu, 1, curr).map(|r| Row { a: 0, ..r });
            rows.extend([waking, Row { cpu: Cpu(0), ..wakeup }]);
            let rows = rebuilt(rows, &[]);
            let choice = rows.iter().find(|r| r.kind == RowKind::SelectRq).unwrap();
            choice.wake_flags() & MAY_STAY != 0
        };
        assert!(may_stay(LEAVING_NS - 1, 1, false) && !may_stay(LEAVING_NS, 1, false));
        assert!(!may_stay(10, 0, false) && !may_stay(10, 1, true));
    }

    /// CPU 1 begins to wake 1, of CPU 0, which then sleeps ahead of 2 and stays, delayed. It is
    /// queued anew, and picked when 2 sleeps; or has left by then, as 2 had slept before.
    #[test]
    fn a_delayed_task_is_queued_anew_under_the_lock() {
        let last = |idle: bool| {
            let mut rows = vec![switch(10, 0, 9, 0, true), switch(11, 1, 9, 3, true)];
            rows.extend(woken(12, 0, 1, 0));
            rows.push(switch(20, 0, 0, 1, false));
            rows.push(row(30, 0, RowKind::WakeupNew, 2, 1));
            rows.push(Row { a: 0, ..row(999_990, 1, RowKind::Waking, 1, 3) });
            rows.push(switch(1_000_000, 0, 1, 2, true));
            rows.extend(idle.then(|| switch(1_000_100, 0, 2, 0, true)));
            rows.push(Row { a: 0, ..row(1_000_200, 1, RowKind::Wakeup, 1, 3) });
            let from = if idle { 0 } else { 2 };
            rows.push(switch(1_000_300, 0, from, 1, !idle));
            let rows = rebuilt_as("v6.12", rows, &[]);
            let of = |kind| rows.iter().rfind(|r| r.kind == kind).unwrap();
            let picked = of(RowKind::Switch).n.unwrap();
            assert!(!picked.sched_delayed && picked.on_rq && picked.vruntime > 0, "{idle}");
            (of(RowKind::Wakeup).nr_running, picked.cfs_nr)
        };
        assert_eq!([last(false), last(true)], [(Some(2), 1), (Some(1), 1)]);
    }

    /// Nothing is known of how far 1 and 2 have come. 1 sleeps beside 2: it may be delayed.
    #[test]
    fn who_may_be_delayed_may_stay() {
        let may_stay = |kernel: &str| {
            let mut rows = vec![switch(10, 0, 9, 0, true)];
            rows.extend(woken(20, 0, 1, 0).into_iter().chain(woken(30, 0, 2, 0)));
            rows.push(switch(40, 0, 0, 1, false));
            rows.push(switch(1_000, 0, 1, 2, true));
            rows.extend(woken(900_000, 0, 1, 2));
            let rows = rebuilt_as(kernel, rows, &[]);
            let choice = rows.iter().rfind(|r| r.kind == RowKind::SelectRq).unwrap();
            let may_stay = choice.wake_flags() & MAY_STAY != 0;
            // The pick of 2 may have been made beside it.
            let away = rows.iter().rfind(|r| r.kind == RowKind::Switch).unwrap().p;
            assert_eq!((away.on_rq, away.sched_delayed), (false, may_stay), "{kernel}");
            may_stay
        };
        assert!(may_stay("v6.12") && !may_stay("v6.1"));
    }

    #[test]
    fn only_wakeups_of_programs_by_programs_or_soft_interrupts_may_be_synchronous() {
        let none = Flags { need_resched: false, lazy: false, interrupt: false, hard: false };
        let soft = Flags { interrupt: true, ..none };
        let hard = Flags { hard: true, ..soft };
        for (curr, pid, flags, may) in [
            (1, 2, none, true),
            (1, 2, soft, true),
            (1, 2, hard, false),
            (0, 2, none, false),
            (0, 2, soft, true),
            (9, 2, none, false),
            (1, 9, soft, false),
        ] {
            let mut rows = vec![switch(10, 0, 5, curr, false)];
            rows.extend(woken(30, 0, pid, curr).map(|r| Row { flags: Some(flags), ..r }));
            let rows = rebuilt(rows, &[(9, Named::Kernel)]);
            let choice = rows.iter().find(|r| r.kind == RowKind::SelectRq).unwrap();
            let not_known = choice.wake_flags() & SYNC_NOT_KNOWN != 0;
            assert_eq!(not_known, may, "{curr} wakes {pid}, {flags:?}");
        }
    }
}
