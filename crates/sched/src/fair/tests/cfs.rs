//! Decisions of CFS that can be checked by hand. Eight CPUs: latency 24 ms, minimal granularity
//! 3 ms, wakeup granularity 4 ms, crowded from 8 entities on. Times are vruntimes in ms.

use super::*;
use crate::fair::cfs::*;

fn board() -> Board {
    Board::new(sample::v6_1(), 8)
}

fn name(c: &'static Cause) -> &'static str {
    c.name
}

#[test]
fn tunables_scale_with_the_cpus() {
    let t = |n| {
        let t = Fair::new(n, &sample::v6_1()).tun;
        (t.latency / 1000, t.min_granularity / 1000, t.wakeup_granularity / 1000, t.nr_latency)
    };
    assert_eq!(t(1), (6_000, 750, 1_000, 8));
    assert_eq!(t(2), (12_000, 1_500, 2_000, 8));
    assert_eq!(t(4), (18_000, 2_250, 3_000, 8));
    assert_eq!(t(384), (24_000, 3_000, 4_000, 8));
}

// --- pick -----------------------------------------------------------------------------------

#[test]
fn leftmost_runs_and_a_tie_goes_to_the_one_that_waits() {
    let mut b = board();
    let curr = b.runs(10 * MS);
    let w = b.waits(10 * MS);
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, w);
    b.fair.ses[curr.ix()].vruntime = VTime(10 * MS - 1);
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, curr);
}

#[test]
fn a_skipped_leftmost_gives_way_to_a_second_within_granularity() {
    let mut b = board();
    let first = b.waits(10 * MS);
    let second = b.waits(14 * MS);
    b.fair.cfs[0].skip = first;
    let (se, rule) = b.fair.decide_pick_cfs(&b.release, CfsId(0));
    assert_eq!((se, name(rule)), (second, SKIPPED.name));
    // 4 ms and one ns: beyond it.
    let mut b = board();
    let first = b.waits(10 * MS);
    b.waits(14 * MS + 1);
    b.fair.cfs[0].skip = first;
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, first);
}

#[test]
fn a_skipped_current_gives_way_to_the_first_that_waits() {
    let mut b = board();
    let curr = b.runs(10 * MS);
    let w = b.waits(12 * MS);
    b.fair.cfs[0].skip = curr;
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, w);
}

#[test]
fn the_current_is_second_when_it_sorts_before_the_next() {
    let mut b = board();
    let first = b.waits(10 * MS);
    b.waits(12 * MS);
    let curr = b.runs(11 * MS);
    b.fair.cfs[0].skip = first;
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, curr);
}

#[test]
fn next_beats_last_beats_leftmost_all_within_granularity() {
    let mut b = board();
    let left = b.waits(10 * MS);
    let last = b.waits(13 * MS);
    let next = b.waits(14 * MS);
    let far = b.waits(15 * MS);
    b.fair.cfs[0].last = last;
    assert_eq!(name(b.fair.decide_pick_cfs(&b.release, CfsId(0)).1), LAST_BUDDY.name);
    b.fair.cfs[0].next = next;
    let (se, rule) = b.fair.decide_pick_cfs(&b.release, CfsId(0));
    assert_eq!((se, name(rule)), (next, NEXT_BUDDY.name));
    b.fair.cfs[0].next = far;
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, last);
    b.fair.cfs[0].last = far;
    assert_eq!(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0, left);
}

// --- wakeup preemption, row by row ----------------------------------------------------------

/// Current at `curr` ms, wakee at `wakee` ms, with `others` more far behind.
struct Wakeup {
    b: Board,
    curr: Task,
    wakee: Task,
    need_resched: bool,
    fork: bool,
}

fn wakeup(curr: u64, wakee: u64, others: u32) -> Wakeup {
    let mut b = board();
    let c = b.runs(curr * MS);
    let w = b.waits(wakee * MS);
    for _ in 0..others {
        b.waits(500 * MS);
    }
    Wakeup { b, curr: task(c), wakee: task(w), need_resched: false, fork: false }
}

impl Wakeup {
    fn decide(&self) -> PreemptDecision {
        self.b.decide(&self.curr, &self.wakee, self.need_resched, self.fork)
    }
    fn idle(mut self, curr: bool, wakee: bool) -> Wakeup {
        for (t, idle) in [(&mut self.curr, curr), (&mut self.wakee, wakee)] {
            self.b.fair.ses[t.se.ix()].idle = idle;
            t.policy = if idle { Policy::Idle } else { Policy::Normal };
        }
        self
    }
    fn expect(&self, preempt: bool, rule: &'static Cause) {
        let d = self.decide();
        assert_eq!((d.preempt, d.rule.name), (preempt, rule.name));
    }
}

#[test]
fn row_1_the_running_task_is_the_wakee() {
    let mut w = wakeup(20, 0, 0);
    w.wakee = w.curr.clone();
    w.expect(false, &WAKEE_IS_CURR);
}

#[test]
fn row_2_next_buddy_marks_any_wakee_of_a_crowded_queue() {
    let mut w = wakeup(20, 20, 6);
    w.b.release.next_buddy = true;
    assert_eq!(w.decide().next, w.wakee.se);
    w.fork = true;
    assert!(w.decide().next.is_none());
    let mut w = wakeup(20, 20, 5);
    w.b.release.next_buddy = true;
    assert!(w.decide().next.is_none());
}

#[test]
fn row_3_a_reschedule_is_due_already() {
    let mut w = wakeup(20, 0, 0);
    w.need_resched = true;
    w.expect(false, &ALREADY);
}

#[test]
fn row_4_sched_idle_gives_way_at_once() {
    wakeup(0, 20, 0).idle(true, false).expect(true, &CURR_SCHED_IDLE);
    wakeup(20, 0, 0).idle(true, true).expect(false, &NOT_NORMAL);
}

#[test]
fn row_5_batch_and_a_switched_off_feature_never_preempt() {
    let mut w = wakeup(20, 0, 0);
    w.wakee.policy = Policy::Batch;
    w.expect(false, &NOT_NORMAL);
    let mut w = wakeup(20, 0, 0);
    w.b.release.wakeup_preemption = false;
    w.expect(false, &FEATURE_OFF);
}

#[test]
fn row_8_more_than_the_granularity() {
    wakeup(14, 10, 0).expect(false, &WITHIN);
    wakeup(10, 14, 0).expect(false, &WITHIN);
    let w = wakeup(15, 10, 0);
    w.expect(true, &VRUNTIME);
    assert_eq!(w.decide().next, w.wakee.se);
    let mut w = wakeup(14, 10, 0);
    w.b.fair.ses[w.curr.se.ix()].vruntime = VTime(14 * MS + 1);
    w.expect(true, &VRUNTIME);
}

#[test]
fn the_granularity_is_the_wakees_virtual_time() {
    // Nice 5: 4 ms are 12.226 ms virtual.
    let mut w = wakeup(22, 10, 0);
    let e = &mut w.b.fair.ses[w.wakee.se.ix()];
    (e.weight, e.inv_weight) = crate::fair::weight::task_weight(5, false);
    w.expect(false, &WITHIN);
    w.b.fair.ses[w.curr.se.ix()].vruntime = VTime(23 * MS);
    w.expect(true, &VRUNTIME);
}

#[test]
fn the_preempted_is_last_buddy_of_a_crowded_queue() {
    let w = wakeup(20, 0, 6);
    assert_eq!(w.decide().last, w.curr.se);
    assert!(wakeup(20, 0, 5).decide().last.is_none());
    let mut w = wakeup(20, 0, 6);
    w.b.release.last_buddy = false;
    assert!(w.decide().last.is_none());
}

/// Row 6 and 7: two groups, one of them idle.
#[test]
pub(crate) fn rows_6_and_7_idle_groups() {
    let mut b = board();
    let (g, h) = (b.fair.new_group(TgId(0)), b.fair.new_group(TgId(0)));
    let (tc, tw) =
        (b.fair.new_entity(TaskId(50), g, Cpu(0)), b.fair.new_entity(TaskId(51), h, Cpu(0)));
    let (gc, gw) = (b.fair.ses[tc.ix()].parent, b.fair.ses[tw.ix()].parent);
    b.fair.ses[gc.ix()].vruntime = VTime(0);
    b.fair.ses[gw.ix()].vruntime = VTime(100 * MS);
    b.fair.restore_curr(tc);
    b.fair.restore_curr(gc);
    b.fair.restore_queued(tw);
    b.fair.restore_queued(gw);
    let mut w = Wakeup { b, curr: task(tc), wakee: task(tw), need_resched: false, fork: false };
    w.expect(false, &WITHIN);
    assert_eq!((w.decide().curr, w.decide().wakee), (gc, gw));
    w.b.fair.groups[g.ix()].idle = true;
    w.expect(true, &IDLE_GROUP);
    w.b.fair.groups[h.ix()].idle = true;
    w.expect(false, &WITHIN);
    w.b.fair.groups[g.ix()].idle = false;
    w.b.fair.ses[gc.ix()].vruntime = VTime(900 * MS);
    w.expect(false, &IDLE_WAKEE);
}

// --- the tick -------------------------------------------------------------------------------

fn tick(ran: u64, curr_v: u64, left_v: u64) -> Option<&'static str> {
    let mut b = board();
    let c = b.runs(curr_v * MS);
    b.waits(left_v * MS);
    // Two nice-0 tasks: ideal is 12 ms (less 6 ns by truncation).
    b.fair.cfs[0].h_nr_queued = 2;
    b.fair.ses[c.ix()].ran = Ns(ran);
    b.fair.decide_tick_cfs(&b.release, c).map(name)
}

#[test]
fn the_tick_preempts_when_the_slice_is_used_up() {
    assert_eq!(tick(12 * MS, 10, 10), Some(SLICE_USED.name));
    assert_eq!(tick(11_999_994, 10, 10), None);
    assert_eq!(tick(11_999_995, 10, 10), Some(SLICE_USED.name));
}

#[test]
fn the_tick_preempts_after_the_granularity_when_far_ahead() {
    assert_eq!(tick(3 * MS - 1, 40, 10), None);
    assert_eq!(tick(3 * MS, 40, 10), Some(AHEAD.name));
    assert_eq!(tick(3 * MS, 21, 10), None);
    assert_eq!(tick(3 * MS, 5, 10), None);
}

#[test]
fn slices_by_number_and_weight() {
    let mut b = board();
    let se = b.waits(0);
    b.fair.cfs[0].h_nr_queued = 1;
    assert_eq!(b.fair.sched_slice(&b.release, se) / 1000, 23_999);
    for _ in 0..8 {
        b.waits(0);
    }
    // Nine tasks: the period is 27 ms, the slice 3 ms; without truncation, and never less.
    b.fair.cfs[0].h_nr_queued = 9;
    assert_eq!(b.fair.sched_slice(&b.release, se), 3 * MS);
    // At nice 19 the share is 44 µs: the floor is the minimal granularity.
    let e = &mut b.fair.ses[se.ix()];
    let old = u64::from(e.weight);
    (e.weight, e.inv_weight) = crate::fair::weight::task_weight(19, false);
    b.fair.cfs[0].load_weight += u64::from(b.fair.ses[se.ix()].weight);
    b.fair.cfs[0].load_weight -= old;
    assert_eq!(b.fair.sched_slice(&b.release, se), 3 * MS);
    b.release.base_slice = false;
    assert_eq!(b.fair.sched_slice(&b.release, se) / 1000, 49);
}

/// An idle task gets the short floor beside others that are not idle entities of this level, and
/// in an empty queue, which is not one of idle entities; among its like it gets the usual one.
#[test]
fn an_idle_task_has_a_short_slice_unless_all_of_its_level_are_idle() {
    let mut b = board();
    let idle = |b: &mut Board| {
        let se = b.entity(0);
        let e = &mut b.fair.ses[se.ix()];
        e.idle = true;
        (e.weight, e.inv_weight) = crate::fair::weight::task_weight(0, true);
        se
    };
    let new = idle(&mut b);
    // 60 ms for 20 tasks, of which it has 3 parts of 3,000: less than either floor.
    b.fair.cfs[0].h_nr_queued = 20;
    b.fair.cfs[0].load_weight = 3_000 << 10;
    assert_eq!(b.fair.sched_slice(&b.release, new), 750_000, "the queue is empty");
    let other = idle(&mut b);
    b.fair.restore_queued(other);
    assert_eq!(b.fair.sched_slice(&b.release, new), 3 * MS, "all are idle");
    // Elsewhere in the hierarchy no idle task runs: that does not matter.
    b.fair.cfs[0].idle_h_nr = 0;
    assert_eq!(b.fair.sched_slice(&b.release, new), 3 * MS, "all of this level are idle");
    b.waits(0);
    assert_eq!(b.fair.sched_slice(&b.release, new), 750_000, "one is not");
}

// --- placement ------------------------------------------------------------------------------

/// New tasks start level.
fn level_lab() -> Lab {
    Lab::new(Release { start_debit: false, ..sample::v6_1() }, "uma-8")
}

/// START_DEBIT: a new task starts one slice behind; alone 24 ms, as the second of two 12 ms.
#[test]
fn a_new_task_starts_one_slice_behind() {
    let mut lab = Lab::new(sample::v6_1(), "uma-8");
    let min = lab.linux.fair.cfs[0].min_vruntime;
    for ms in [24, 12, 8] {
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        let behind = lab.se(p).vruntime.since(min);
        assert!((ms * MS as i64 - behind).abs() < 100, "{behind}, not {ms} ms");
    }
}

/// A hog has run for a second; a task that slept long is placed 12 ms before min_vruntime and
/// preempts it; one that slept for a moment keeps its vruntime and does not.
#[test]
fn sleepers_get_half_the_latency() {
    let mut lab = level_lab();
    let hog = lab.spawn(Cpu(0), 0, TgId(0));
    let other = lab.spawn(Cpu(0), 0, TgId(0));
    let first = lab.schedule(Cpu(0));
    lab.pass(MS);
    lab.sleep(Cpu(0));
    let (sleeper, hog) = if first == hog { (hog, other) } else { (other, hog) };
    assert_eq!(lab.curr(Cpu(0)), hog);
    lab.pass(MS);
    lab.wake(sleeper, Cpu(0));
    assert!(!lab.sh.rqs[0].need_resched, "both have run for 1 ms");
    // On to a long sleep.
    lab.pass(4 * MS);
    lab.tick(Cpu(0));
    lab.schedule(Cpu(0));
    while lab.curr(Cpu(0)) != sleeper {
        lab.pass(4 * MS);
        lab.tick(Cpu(0));
        lab.schedule(Cpu(0));
    }
    lab.sleep(Cpu(0));
    lab.pass(1000 * MS);
    lab.tick(Cpu(0));
    let min = lab.linux.fair.cfs[0].min_vruntime;
    lab.wake(sleeper, Cpu(0));
    assert_eq!(min.since(lab.se(sleeper).vruntime), 12 * MS as i64);
    assert!(lab.sh.rqs[0].need_resched);
    assert_eq!(lab.schedule(Cpu(0)), sleeper);
}

/// Half of the minimal granularity of 3 ms, in 5.x half of the latency of 24 ms.
#[test]
pub(crate) fn a_sched_idle_sleeper_gets_less_credit_from_6_1_on() {
    for (k, credit_us) in [(sample::v6_1(), 1_500), (sample::v5_7(), 12_000)] {
        let mut lab = Lab::new(k, "uma-8");
        lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        lab.hook(Cpu(0), |s, cx| {
            s.set_policy(cx, p, Policy::Idle, 0);
            s.dequeue_task(cx, Cpu(0), p, DequeueFlags { sleep: true, ..DequeueFlags::default() });
        });
        let t = &mut lab.sh.tasks[p.ix()];
        (t.on_rq, t.state) = (false, TaskState::Interruptible);
        let min = lab.linux.fair.cfs[0].min_vruntime;
        lab.se_mut(p).vruntime = min.plus(-1_000_000_000);
        lab.wake(p, Cpu(0));
        assert_eq!(min.since(lab.se(p).vruntime), credit_us * 1000);
    }
}

/// A task that has run 3 ms ahead keeps that over a wakeup; not in 6.3-rc if the wakeup moves it.
#[test]
pub(crate) fn in_6_3_rc_a_move_makes_a_sleeper_of_who_ran_ahead() {
    for (moved_counts, to, ahead_ms) in [(false, Cpu(1), 3), (true, Cpu(1), -12), (true, Cpu(0), 3)]
    {
        let mut k = sample::v6_1();
        k.moved_counts_as_long_sleep |= moved_counts;
        let mut lab = Lab::new(k, "uma-8");
        for cpu in [Cpu(0), Cpu(1)] {
            lab.spawn(cpu, 0, TgId(0));
            lab.schedule(cpu);
        }
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        let min = |lab: &Lab, c: Cpu| lab.linux.fair.cfs[c.ix()].min_vruntime;
        lab.hook(Cpu(0), |s, cx| {
            s.dequeue_task(cx, Cpu(0), p, DequeueFlags { sleep: true, ..DequeueFlags::default() });
        });
        lab.se_mut(p).vruntime = min(&lab, Cpu(0)).plus(3 * MS as i64);
        let t = &mut lab.sh.tasks[p.ix()];
        (t.on_rq, t.state) = (false, TaskState::Interruptible);
        lab.wake(p, to);
        let ahead = lab.se(p).vruntime.since(min(&lab, to));
        assert_eq!(ahead, ahead_ms * MS as i64, "{moved_counts} {to}");
    }
}

/// A task that moves keeps its distance from the queue's reference point.
#[test]
fn vruntime_is_relative_between_queues() {
    let mut lab = Lab::new(sample::v6_1(), "uma-8");
    let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
    lab.spawn(Cpu(1), 0, TgId(0));
    let runs = lab.schedule(Cpu(0));
    let waits = if runs == a { b } else { a };
    lab.schedule(Cpu(1));
    for cpu in [Cpu(0), Cpu(1)] {
        lab.pass(700 * MS);
        lab.tick(cpu);
    }
    let distance =
        |lab: &Lab, c: usize| lab.se(waits).vruntime.since(lab.linux.fair.cfs[c].min_vruntime);
    // Bring the queue up to date first, as the move itself would.
    lab.tick(Cpu(0));
    let before = distance(&lab, 0);
    lab.move_queued(waits, Cpu(1));
    assert_eq!(distance(&lab, 1), before);
    assert_ne!(lab.linux.fair.cfs[0].min_vruntime, lab.linux.fair.cfs[1].min_vruntime);
}

/// A has run 10 ms more than B, which waits and is all that keeps the queue's reference point back.
/// Off the queue for a change of affinity, policy or nice value B keeps its lead; for a change of
/// policy and nice value the point follows A, and B comes back level with it.
#[test]
fn who_comes_back_at_once_keeps_its_lead() {
    for k in [sample::v5_7(), sample::v6_1(), sample::v6_5()] {
        for (to, keeps) in [
            (None, true),
            (Some((Policy::Batch, 0)), true),
            (Some((Policy::Normal, 5)), true),
            (Some((Policy::Batch, 5)), false),
        ] {
            let mut lab = Lab::new(k.clone(), "uma-8");
            let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
            let runs = lab.schedule(Cpu(0));
            let waits = if runs == a { b } else { a };
            lab.se_mut(runs).vruntime = lab.se(waits).vruntime;
            lab.pass(10 * MS);
            lab.tick(Cpu(0));
            let lead = |lab: &Lab| lab.se(runs).vruntime.since(lab.se(waits).vruntime);
            assert_eq!(lead(&lab), 10 * MS as i64);
            lab.hook(Cpu(0), |s, cx| match to {
                Some((policy, nice)) => s.set_policy(cx, waits, policy, nice),
                None => {
                    let t = cx.sh.task(waits);
                    s.set_affinity(cx, waits, t.affinity, t.nr_cpus_allowed);
                }
            });
            assert_eq!(lead(&lab), if keeps { 10 * MS as i64 } else { 0 }, "{} {to:?}", k.name);
        }
    }
}

/// B has run ahead when A yields. A keeps its vruntime, and B runs unless it is more than the
/// granularity of 4 ms ahead. It goes on until it is, and then A runs and is skipped no more.
#[test]
fn yield_skips_within_the_granularity() {
    for (ahead, skips) in [(3 * MS, true), (4 * MS, true), (4 * MS + 1, false)] {
        let mut lab = level_lab();
        lab.spawn(Cpu(0), 0, TgId(0));
        lab.spawn(Cpu(0), 0, TgId(0));
        let runs_for = |lab: &mut Lab, ns| {
            lab.pass(ns);
            lab.tick(Cpu(0));
            lab.schedule(Cpu(0))
        };
        let b = lab.schedule(Cpu(0));
        let a = runs_for(&mut lab, ahead);
        assert_ne!(a, b);
        let before = lab.se(a).vruntime;
        lab.hook(Cpu(0), |s, cx| s.yield_task(cx, Cpu(0)));
        assert_eq!(lab.se(a).vruntime, before);
        assert_eq!(lab.schedule(Cpu(0)), if skips { b } else { a }, "{ahead}");
        if skips {
            assert_eq!(runs_for(&mut lab, 4 * MS - ahead), b, "{ahead}");
            assert_eq!(runs_for(&mut lab, 1), a, "{ahead}");
            assert!(lab.linux.fair.cfs[0].skip.is_none());
        }
        assert_eq!(lab.se(a).vruntime, before);
    }
}

/// Nobody is near enough to run instead of who has yielded. At its next preemption it is skipped
/// once more, but not up to 5.13: its mark has gone with the pick that kept it.
#[test]
pub(crate) fn who_goes_on_after_a_yield_is_marked_from_5_14_on() {
    let marked = |release: Release| {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        let b = lab.spawn(Cpu(0), 0, TgId(0));
        let behind = lab.se(b).vruntime.plus(-20 * MS as i64);
        let se = lab.sh.tasks[a.ix()].se;
        lab.linux.fair.ses[se.ix()].vruntime = behind;
        lab.hook(Cpu(0), |s, cx| s.yield_task(cx, Cpu(0)));
        assert_eq!(lab.schedule(Cpu(0)), a);
        lab.linux.fair.cfs[0].skip == se
    };
    assert_eq!((marked(sample::v5_7()), marked(sample::v6_1())), (false, true));
}
