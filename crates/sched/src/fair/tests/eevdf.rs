//! Decisions of EEVDF that can be checked by hand. Eight CPUs, base slice 2.8 ms, nice 0 unless
//! said. Times in ms of virtual time.

use super::*;
use crate::fair::eevdf::*;

fn board() -> Board {
    let mut b = Board::new(sample::v6_12(), 8);
    b.fair.cfs[0].min_vruntime = VTime(0);
    b
}

impl Board {
    /// Waits: (vruntime, deadline) in ms, slice 3 ms.
    fn wait(&mut self, v: u64, d: u64) -> SeId {
        let se = self.edf(v * MS, d * MS, 3 * MS);
        self.fair.restore_queued(se);
        se
    }
    /// Runs, unprotected.
    fn run(&mut self, v: u64, d: u64) -> SeId {
        let se = self.edf(v * MS, d * MS, 3 * MS);
        self.fair.restore_curr(se);
        se
    }
    fn protect(&mut self, se: SeId) {
        let e = &mut self.fair.ses[se.ix()];
        e.vlag = e.deadline.0 as i64;
    }
    pub fn pick(&self) -> (SeId, &'static str) {
        let (se, why) = self.fair.decide_pick_eevdf(&self.release, CfsId(0));
        (se, why.name)
    }
}

#[test]
fn v_is_the_weighted_mean_rounded_down() {
    let mut b = board();
    b.wait(10, 20);
    let c = b.run(13, 20);
    assert_eq!(b.fair.mean_vruntime(CfsId(0)), VTime(11_500_000));
    // Nice −5 has weight 3121: V = (10·1024 + 13·3121) / 4145 = 12.258865 ms.
    let e = &mut b.fair.ses[c.ix()];
    (e.weight, e.inv_weight) = crate::fair::weight::task_weight(-5, false);
    let v = (10 * MS * 1024 + 13 * MS * 3121) / 4145;
    assert_eq!(b.fair.mean_vruntime(CfsId(0)), VTime(v));
    // Below the reference point rounding still goes down.
    let mut b = board();
    b.fair.cfs[0].min_vruntime = VTime(100);
    for v in [97, 98] {
        let se = b.edf(v, v + 10, 3 * MS);
        b.fair.restore_queued(se);
    }
    assert_eq!(b.fair.mean_vruntime(CfsId(0)), VTime(97));
    // The reference point does not matter for V; moving it keeps the sum.
    b.fair.avg_vruntime(CfsId(0));
    assert_eq!(
        (b.fair.cfs[0].min_vruntime, b.fair.mean_vruntime(CfsId(0))),
        (VTime(97), VTime(97))
    );
    assert_eq!(b.fair.cfs[0].sum_w_vruntime, 1024);
}

#[test]
fn equality_is_eligible() {
    let mut b = board();
    let a = b.wait(10, 20);
    let c = b.wait(10, 21);
    assert!(b.fair.entity_eligible(CfsId(0), a) && b.fair.entity_eligible(CfsId(0), c));
    let d = b.wait(11, 12);
    assert!(!b.fair.entity_eligible(CfsId(0), d));
}

// --- pick -----------------------------------------------------------------------------------

#[test]
fn the_only_one_is_picked_whatever_it_is_owed() {
    let mut b = board();
    let c = b.run(10, 11);
    assert_eq!(b.pick(), (c, ALONE.name));
}

#[test]
fn earliest_deadline_of_the_eligible() {
    let mut b = board();
    b.wait(20, 21); // earliest, but ahead of V
    let y = b.wait(9, 23);
    b.wait(8, 24);
    b.run(12, 22); // V = 12.25
    b.fair.ses[3].vruntime = VTime(13 * MS); // V = 12.5: not eligible
    assert_eq!(b.pick(), (y, DEADLINE.name));
}

#[test]
fn the_running_one_needs_an_earlier_deadline_and_loses_ties() {
    let mut b = board();
    let w = b.wait(10, 20);
    let c = b.run(10, 20);
    assert_eq!(b.pick(), (w, DEADLINE.name));
    b.fair.ses[c.ix()].deadline = VTime(20 * MS - 1);
    assert_eq!(b.pick(), (c, CURR_DEADLINE.name));
}

#[test]
fn protection_holds_while_eligible() {
    let mut b = board();
    let w = b.wait(10, 12);
    let c = b.run(10, 20);
    b.protect(c);
    assert_eq!(b.pick(), (c, PROTECTED.name));
    // Past V it is of no use.
    b.fair.ses[c.ix()].vruntime = VTime(10 * MS + 1);
    assert_eq!(b.pick(), (w, DEADLINE.name));
    b.fair.ses[c.ix()].vruntime = VTime(10 * MS);
    b.release.run_to_parity = false;
    assert_eq!(b.pick(), (w, DEADLINE.name));
}

#[test]
pub(crate) fn an_eligible_next_buddy_comes_first() {
    let mut b = board();
    b.wait(10, 12);
    let late = b.wait(9, 50);
    let ahead = b.wait(12, 50);
    b.fair.cfs[0].next = late;
    assert_eq!(b.pick(), (late, BUDDY.name));
    b.fair.cfs[0].next = ahead;
    assert_eq!(b.pick().1, DEADLINE.name);
    b.fair.cfs[0].next = late;
    b.release.pick_buddy = false;
    assert_eq!(b.pick().1, DEADLINE.name);
}

// --- wakeup preemption, row by row ----------------------------------------------------------

struct Wakeup {
    b: Board,
    curr: Task,
    wakee: Task,
    need_resched: bool,
}

/// (vruntime, deadline) of the running entity, protected, and of the wakee.
fn wakeup(curr: (u64, u64), wakee: (u64, u64)) -> Wakeup {
    let mut b = board();
    let c = b.run(curr.0, curr.1);
    b.protect(c);
    let w = b.wait(wakee.0, wakee.1);
    Wakeup { b, curr: task(c), wakee: task(w), need_resched: false }
}

impl Wakeup {
    fn expect(&self, preempt: bool, cancel: bool, rule: &str) {
        let d = self.b.decide(&self.curr, &self.wakee, self.need_resched, false);
        assert_eq!((d.preempt, d.cancel_protection, d.rule.name), (preempt, cancel, rule));
    }
    fn slice(mut self, wakee: u64) -> Wakeup {
        // The queue's count of odd slices does not matter here.
        self.b.fair.ses[self.wakee.se.ix()].slice = wakee;
        self
    }
}

#[test]
fn row_8_and_9_only_a_picked_wakee_preempts() {
    // The running one is protected and eligible (V = 10.5): stays.
    wakeup((10, 20), (11, 12)).expect(false, false, NOT_PICKED.name);
    // It ran past V: an eligible wakee takes over at once.
    wakeup((12, 20), (11, 22)).expect(true, false, WOULD_PICK.name);
    // The protection ended with a new deadline: earlier deadline wins.
    let mut w = wakeup((10, 20), (10, 12));
    w.b.fair.ses[w.curr.se.ix()].vlag = 0;
    w.expect(true, false, WOULD_PICK.name);
}

#[test]
pub(crate) fn a_shorter_slice_ends_the_protection() {
    wakeup((10, 20), (10, 12)).expect(false, false, NOT_PICKED.name);
    wakeup((10, 20), (10, 12)).slice(MS).expect(true, true, "wakeup: shorter slice is picked");
    // Not eligible, or due later while the running one is eligible: no.
    wakeup((10, 20), (11, 12)).slice(MS).expect(false, false, NOT_PICKED.name);
    wakeup((10, 20), (10, 21)).slice(MS).expect(false, false, NOT_PICKED.name);
    let mut w = wakeup((10, 20), (10, 12)).slice(MS);
    w.b.release.preempt_short = false;
    w.expect(false, false, NOT_PICKED.name);
}

#[test]
pub(crate) fn rows_1_and_3_to_7() {
    use crate::fair::cfs::*;
    let past_v = || wakeup((12, 20), (11, 22));
    let mut w = past_v();
    w.wakee = w.curr.clone();
    w.expect(false, false, WAKEE_IS_CURR.name);
    let mut w = past_v();
    w.need_resched = true;
    w.expect(false, false, ALREADY.name);
    let mut w = past_v();
    w.b.release.wakeup_preemption = false;
    w.expect(false, false, FEATURE_OFF.name);
    let mut w = past_v();
    w.wakee.policy = Policy::Batch;
    w.expect(false, false, NOT_NORMAL.name);

    let set_idle = |w: &mut Wakeup, curr: bool, wakee: bool| {
        w.b.fair.ses[w.curr.se.ix()].idle = curr;
        w.b.fair.ses[w.wakee.se.ix()].idle = wakee;
        w.curr.policy = if curr { Policy::Idle } else { Policy::Normal };
        w.wakee.policy = if wakee { Policy::Idle } else { Policy::Normal };
    };
    let mut w = wakeup((10, 20), (11, 30));
    set_idle(&mut w, true, false);
    w.expect(true, true, CURR_SCHED_IDLE.name);
    // Before 6.12 the test came first and left the protection alone.
    w.b.release.idle_test_at_common_level = false;
    w.expect(true, false, CURR_SCHED_IDLE.name);
    let mut w = past_v();
    set_idle(&mut w, false, true);
    w.expect(false, false, IDLE_WAKEE.name);
    let mut w = past_v();
    set_idle(&mut w, true, true);
    w.expect(false, false, NOT_NORMAL.name);
}

// --- placement ------------------------------------------------------------------------------

/// A new task starts at V with half a slice, 1.4 ms (as counted in recordings on ≥ 8 CPUs).
#[test]
fn a_new_task_starts_with_half_a_slice() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let p = lab.spawn(Cpu(0), 0, TgId(0));
    assert_eq!(lab.se(p).deadline.since(lab.se(p).vruntime), 1_400_000);
    let mut lab = Lab::new(Release { fork_places_twice: true, ..sample::v6_12() }, "uma-8");
    let p = lab.spawn(Cpu(0), 0, TgId(0));
    assert_eq!(lab.se(p).deadline.since(lab.se(p).vruntime), 2_800_000);
}

/// From 6.12 on a fork neither accounts the parent nor ends its slice, which 6.6 and 6.10 do.
#[test]
fn a_fork_leaves_the_parent_alone() {
    for (fork_places_twice, accounted) in [(false, 0), (true, 5 * MS)] {
        let release = Release { fork_places_twice, ..sample::v6_12() };
        let mut lab = Lab::new(release, "uma-8");
        let parent = lab.spawn(Cpu(0), 0, TgId(0));
        lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        assert_eq!(lab.curr(Cpu(0)), parent);
        let before = lab.se(parent).vruntime;
        lab.pass(5 * MS);
        let child = TaskId::from_ix(lab.sh.tasks.len());
        lab.sh.tasks.push(crate::task::Task { cpu: Cpu(0), ..sample::task() });
        lab.hook(Cpu(0), |s, cx| s.task_new(cx, child, None));
        assert_eq!(lab.se(parent).vruntime.since(before), accounted as i64);
        assert_eq!(lab.sh.rqs[0].need_resched, fork_places_twice);
    }
}

/// A sleeps with a lag of -1 ms and becomes 88761/1024 times as heavy: of its own virtual time that
/// is as much less.
#[test]
fn lag_is_real_time_when_a_weight_changes() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let a = lab.spawn(Cpu(0), 0, TgId(0));
    lab.schedule(Cpu(0));
    lab.sleep(Cpu(0));
    lab.se_mut(a).vlag = -(MS as i64);
    lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, -20));
    assert_eq!(lab.se(a).vlag, -(MS as i64) * 1024 / 88_761);
}

/// A task that asks for the policy and nice value that it has: to 6.10 nothing happens; from 6.12
/// on it is taken off and put back, which accounts the 1 ms that it ran.
#[test]
pub fn the_same_policy_is_a_change_from_6_12_on() {
    for (release, changes) in [(sample::v6_1(), false), (sample::v6_12(), true)] {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        lab.pass(MS);
        let before = lab.se(a).vruntime;
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, 0));
        assert_eq!(lab.se(a).vruntime != before, changes);
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, 1));
        assert_eq!(lab.sh.tasks[a.ix()].nice, 1);
    }
}

/// A joins a queue of B (both nice 0): it is owed 1 ms, so it is placed 2 ms before V, and V then
/// lies 1 ms after it.
#[test]
fn lag_survives_the_insertion() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let _b = lab.spawn(Cpu(0), 0, TgId(0));
    let a = lab.spawn(Cpu(1), 0, TgId(0));
    lab.schedule(Cpu(1));
    lab.sleep(Cpu(1));
    lab.se_mut(a).vlag = MS as i64;
    lab.wake(a, Cpu(0));
    let v = lab.linux.fair.mean_vruntime(CfsId(0));
    assert_eq!(v.since(lab.se(a).vruntime), MS as i64);
    assert_eq!(lab.se(a).deadline.since(lab.se(a).vruntime), 2_800_000);
    // Into an empty queue lag is forgotten.
    lab.pass(20 * MS);
    let c = lab.spawn(Cpu(2), 0, TgId(0));
    lab.schedule(Cpu(2));
    lab.sleep(Cpu(2));
    lab.se_mut(c).vlag = MS as i64;
    lab.wake(c, Cpu(2));
    assert_eq!(lab.se(c).vruntime, lab.linux.fair.mean_vruntime(CfsId(2)));
}

#[test]
fn lag_is_clamped_to_two_slices_or_a_tick() {
    let mut b = board();
    let a = b.wait(0, 3);
    b.wait(100, 103);
    b.fair.update_entity_lag(a);
    // 2 · 3 ms = 6 ms exceeds the tick of 4 ms.
    assert_eq!(b.fair.ses[a.ix()].vlag, 6 * MS as i64);
    b.fair.ses[a.ix()].slice = MS;
    b.fair.update_entity_lag(a);
    assert_eq!(b.fair.ses[a.ix()].vlag, 4 * MS as i64);
}

// --- the running slice ----------------------------------------------------------------------

/// A and B alternate at the first tick of 1 ms after their slice of 2.8 ms; the first of each is
/// half a one, 1.4 ms.
#[test]
fn a_slice_ends_at_the_deadline() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
    let first = lab.schedule(Cpu(0));
    let mut ran = Vec::new();
    for _ in 0..40 {
        ran.push(lab.curr(Cpu(0)));
        run(&mut lab, &[Cpu(0)], 1);
    }
    let slices: Vec<(TaskId, usize)> =
        ran.chunk_by(|p, q| p == q).map(|s| (s[0], s.len())).collect();
    let second = if first == a { b } else { a };
    let of = |i: usize| ([first, second][i % 2], if i < 2 { 2 } else { 3 });
    assert_eq!(slices, (0..14).map(of).collect::<Vec<_>>());
}

// --- delayed dequeue ------------------------------------------------------------------------

/// A ran ahead of B and blocks while it owes: it stays queued until it is picked.
fn one_delayed() -> (Lab, TaskId, TaskId) {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
    let first = lab.schedule(Cpu(0));
    let (a, b) = if first == a { (a, b) } else { (b, a) };
    lab.pass(MS);
    lab.sleep(Cpu(0));
    (lab, a, b)
}

#[test]
fn who_owes_stays_in_the_queue() {
    let (lab, a, b) = one_delayed();
    assert_eq!(lab.curr(Cpu(0)), b);
    assert!(lab.se(a).sched_delayed && lab.sh.tasks[a.ix()].on_rq);
    let l = &lab.sh.loads[0];
    assert_eq!((l.nr_running, l.h_nr_queued, l.h_nr_delayed), (2, 2, 1));
    check_invariants(&lab);
}

#[test]
fn it_leaves_when_it_is_picked_and_keeps_no_positive_lag() {
    let (mut lab, a, b) = one_delayed();
    lab.pass(6 * MS);
    lab.tick(Cpu(0));
    assert_eq!(lab.schedule(Cpu(0)), b, "A was picked, left, and B goes on");
    assert!(!lab.sh.tasks[a.ix()].on_rq && !lab.se(a).sched_delayed);
    assert_eq!(lab.sh.loads[0].nr_running, 1);
    assert_eq!(lab.se(a).vlag, 0);
    check_invariants(&lab);
}

#[test]
fn woken_early_it_goes_on_where_it_is() {
    let (mut lab, a, _) = one_delayed();
    let before = lab.se(a).vruntime;
    lab.pass(MS / 2);
    lab.wake(a, Cpu(3));
    assert_eq!(lab.sh.tasks[a.ix()].cpu, Cpu(0), "no CPU is chosen");
    assert!(!lab.se(a).sched_delayed);
    assert_eq!(lab.se(a).vruntime, before, "it still owes");
    assert_eq!((lab.sh.loads[0].nr_running, lab.sh.loads[0].h_nr_delayed), (2, 0));
    check_invariants(&lab);
}

#[test]
fn woken_late_it_starts_anew_at_v() {
    let (mut lab, a, _) = one_delayed();
    lab.pass(2 * MS + MS / 2);
    lab.hook(Cpu(0), |s, cx| s.fair.update_curr(cx, CfsId(0)));
    let owed = lab.linux.fair.mean_vruntime(CfsId(0)).since(lab.se(a).vruntime);
    assert!(owed > 1, "{owed}");
    lab.wake(a, Cpu(0));
    let v = lab.linux.fair.mean_vruntime(CfsId(0));
    assert!(v.since(lab.se(a).vruntime).abs() <= 1, "at V, but for rounding");
    assert_eq!(lab.se(a).deadline.since(lab.se(a).vruntime), 2_800_000);
    check_invariants(&lab);
}

#[test]
fn the_dead_and_the_owed_leave_at_once() {
    let (mut lab, _, b) = one_delayed();
    // B is owed something: it leaves at once when it sleeps.
    lab.sleep(Cpu(0));
    assert!(!lab.sh.tasks[b.ix()].on_rq);
    check_invariants(&lab);
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    lab.spawn(Cpu(0), 0, TgId(0));
    lab.spawn(Cpu(0), 0, TgId(0));
    let p = lab.schedule(Cpu(0));
    lab.pass(MS);
    let gone = lab.hook(Cpu(0), |s, cx| {
        s.dequeue_task(cx, Cpu(0), p, DequeueFlags { sleep: true, special: true, save: false })
    });
    assert!(gone);
}

// --- yield, reweight, group slice -----------------------------------------------------------

#[test]
fn yield_forfeits_the_rest_of_the_request() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    lab.spawn(Cpu(0), 0, TgId(0));
    lab.spawn(Cpu(0), 0, TgId(0));
    let p = lab.schedule(Cpu(0));
    let (d, s) = (lab.se(p).deadline, lab.se(p).slice);
    lab.hook(Cpu(0), |s, cx| s.yield_task(cx, Cpu(0)));
    assert_eq!((lab.se(p).vruntime, lab.se(p).deadline), (d, d.plus(s as i64)));
    // Not eligible any more: a second yield changes nothing.
    lab.hook(Cpu(0), |s, cx| s.yield_task(cx, Cpu(0)));
    assert_eq!(lab.se(p).vruntime, d);
}

/// Twice the weight: half the lag and half the remaining request in virtual time, V unchanged.
#[test]
fn reweight_keeps_what_is_owed() {
    let mut b = board();
    let a = b.wait(8, 11);
    b.wait(12, 15);
    let v = b.fair.mean_vruntime(CfsId(0));
    assert_eq!(v, VTime(10 * MS));
    let weight = b.fair.ses[a.ix()].weight;
    b.fair.reweight_eevdf(&sample::v6_12(), a, Some(v), 2 * weight);
    let e = &b.fair.ses[a.ix()];
    assert_eq!((e.vruntime, e.deadline), (VTime(9 * MS), VTime(10 * MS + MS / 2)));
    b.fair.ses[a.ix()].vlag = 3000;
    b.fair.reweight_eevdf(&sample::v6_12(), a, None, 2 * weight);
    assert_eq!(b.fair.ses[a.ix()].vlag, 1500);
}

/// Slices of 3 ms: a lag of 12 counts as 6, from 6.10 on; at twice the weight that is 3.
#[test]
pub(crate) fn reweight_clamps_what_is_owed() {
    let mut b = board();
    let a = b.wait(8, 11);
    b.wait(32, 35);
    let v = b.fair.mean_vruntime(CfsId(0));
    assert_eq!(v, VTime(20 * MS));
    let weight = b.fair.ses[a.ix()].weight;
    b.fair.reweight_eevdf(&b.release, a, Some(v), 2 * weight);
    assert_eq!(b.fair.ses[a.ix()].vruntime, VTime(17 * MS));
}

#[test]
pub(crate) fn a_group_has_the_shortest_slice_below_it() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    let g = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, TgId(0)));
    lab.spawn(Cpu(0), 0, g);
    let p = lab.spawn(Cpu(0), 0, g);
    let group = |lab: &Lab| {
        let se = lab.linux.fair.cfs[lab.linux.fair.queue_of(g, Cpu(0)).ix()].se;
        lab.linux.fair.ses[se.ix()].slice
    };
    assert_eq!(group(&lab), 2_800_000);
    lab.hook(Cpu(0), |s, cx| s.dequeue_task(cx, Cpu(0), p, DequeueFlags::default()));
    let e = lab.se_mut(p);
    (e.slice, e.custom_slice) = (MS / 2, true);
    lab.hook(Cpu(0), |s, cx| s.enqueue_task(cx, Cpu(0), p, EnqueueFlags::default()));
    assert_eq!(group(&lab), MS / 2);
    check_invariants(&lab);
    lab.hook(Cpu(0), |s, cx| s.dequeue_task(cx, Cpu(0), p, DequeueFlags::default()));
    assert_eq!(group(&lab), 2_800_000);
}

/// A slice of 3 ms and a tick of 4 ms or 10 ms; 100 owed, entering with 335 beside 1024.
#[test]
fn limits_of_a_lag_and_what_of_it_survives_placement() {
    use crate::fair::eevdf::{inflated_lag, lag_limit};
    use crate::release::LagLimit::{LongestSlice, OwnSlice};
    let limits = |tick| [OwnSlice, LongestSlice].map(|l| lag_limit(l, 3 * MS, tick));
    assert_eq!([4 * MS, 10 * MS].map(limits), [[6 * MS, 7 * MS], [10 * MS, 13 * MS]]);
    assert_eq!([100, -100].map(|lag| inflated_lag(lag, 1024, 335)), [132, -132]);
}
