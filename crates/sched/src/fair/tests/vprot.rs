//! Decisions of 6.18 that can be checked by hand: protection by `vprot`, reweight by placement.
//! Eight CPUs, base slice 2.8 ms, nice 0. Times in ms of virtual time.

use super::*;
use crate::fair::eevdf::*;

fn board() -> Board {
    let mut b = Board::new(sample::v6_18(), 8);
    b.fair.cfs[0].min_vruntime = VTime(0);
    b
}

impl Board {
    /// Waits: vruntime, deadline and slice in ms.
    fn waits_for(&mut self, v: u64, d: u64, slice: u64) -> SeId {
        let se = self.edf(v * MS, d * MS, slice * MS);
        self.fair.restore_queued(se);
        se
    }
    /// Likewise runs, protected from now on.
    fn runs_for(&mut self, v: u64, d: u64, slice: u64) -> SeId {
        let se = self.edf(v * MS, d * MS, slice * MS);
        self.fair.restore_curr(se);
        self.fair.protect(&self.release, se);
        se
    }
    fn vprot(&self, se: SeId) -> u64 {
        self.fair.ses[se.ix()].vlag as u64
    }
}

/// Slices of 6 ms and a deadline 6 ms on: nobody's is shorter, so it is the deadline.
#[test]
fn equal_slices_protect_until_the_deadline() {
    let mut b = board();
    b.waits_for(10, 16, 6);
    let c = b.runs_for(10, 16, 6);
    assert_eq!(b.vprot(c), 16 * MS);
    b.fair.ses[c.ix()].vruntime = VTime(16 * MS - 1);
    assert!(b.fair.is_protected(c));
    b.fair.ses[c.ix()].vruntime = VTime(16 * MS);
    assert!(!b.fair.is_protected(c));
}

/// Somebody has a slice of 2 ms: protected for 2 ms of its 6. Without RUN_TO_PARITY it is the base
/// slice before CPU scaling, 0.7 ms, whoever waits.
#[test]
fn the_shortest_slice_protects() {
    let mut b = board();
    b.waits_for(10, 16, 2);
    let c = b.runs_for(10, 16, 6);
    assert_eq!(b.vprot(c), 12 * MS);
    b.release.run_to_parity = false;
    b.fair.protect(&b.release, c);
    assert_eq!(b.vprot(c), 10 * MS + 700_000);
    // Its own deadline is nearer than that.
    b.fair.ses[c.ix()].deadline = VTime(10 * MS + 5);
    b.fair.protect(&b.release, c);
    assert_eq!(b.vprot(c), 10 * MS + 5);
}

/// V = 10: both are eligible, the waiting one is due earlier, yet the running one is protected.
#[test]
fn protection_holds_with_and_without_parity() {
    for parity in [true, false] {
        let mut b = board();
        b.release.run_to_parity = parity;
        let w = b.waits_for(10, 12, 6);
        let c = b.runs_for(10, 16, 6);
        assert_eq!(b.pick(), (c, PROTECTED.name));
        b.fair.ses[c.ix()].vlag = 10 * MS as i64;
        assert_eq!(b.pick(), (w, DEADLINE.name));
    }
}

/// Used up is the request, or before it the protection.
#[test]
pub(crate) fn the_tick_ends_what_is_unprotected() {
    let mut b = board();
    b.waits_for(10, 16, 2);
    let c = b.runs_for(10, 16, 6);
    let why =
        |b: &Board, ended| b.fair.decide_slice_end(&b.release, CfsId(0), c, ended).map(|c| c.name);
    assert_eq!(why(&b, false), None);
    assert_eq!(why(&b, true), Some(SLICE_ENDED.name));
    b.fair.ses[c.ix()].vruntime = VTime(12 * MS);
    assert_eq!(why(&b, false), Some(QUANTUM_ENDED.name));
}

#[track_caller]
fn expect(b: &Board, curr: SeId, wakee: SeId, what: (bool, bool, bool), rule: &str) {
    let d = b.decide(&task(curr), &task(wakee), false, false);
    let got = (d.preempt, d.cancel_protection, d.shorten_protection);
    assert_eq!((got, d.rule.name), (what, rule));
}

/// The wakee is due earlier and V = 10 makes both eligible. Equal slices: the protection holds. A
/// shorter one is picked as if there were none.
#[test]
fn a_shorter_wakee_that_is_picked_preempts() {
    let mut b = board();
    let c = b.runs_for(10, 16, 6);
    let w = b.waits_for(10, 12, 6);
    expect(&b, c, w, (false, false, false), NOT_PICKED.name);
    let mut b = board();
    let c = b.runs_for(10, 16, 6);
    let w = b.waits_for(10, 12, 2);
    expect(&b, c, w, (true, true, false), SHORTER.name);
    b.release.preempt_short = false;
    expect(&b, c, w, (false, false, false), NOT_PICKED.name);
}

/// V = 11 with the wakee at 12: not eligible, so not picked; the running one keeps only 2 of the 6
/// ms that it was protected for.
#[test]
fn a_shorter_wakee_that_is_not_picked_shortens_the_protection() {
    let mut b = board();
    let c = b.runs_for(10, 16, 6);
    let w = b.waits_for(12, 14, 2);
    expect(&b, c, w, (false, false, true), NOT_PICKED.name);
    assert_eq!(b.vprot(c), 16 * MS);
    b.fair.shorten_protection(c);
    assert_eq!(b.vprot(c), 12 * MS);
    b.fair.cancel_protection(c);
    assert_eq!(b.vprot(c), 10 * MS);
}

/// Two entities of weight 1024, A at 8 with deadline 11, B at 12: V = 10, A's lag is 2. At twice
/// the weight that is 1, and 1.5 of its request are left. A leaves; V = 12 without it; placed with
/// W = 1024: v = 12 − 1·(1024 + 2048)/1024 = 9.
#[test]
fn a_waiting_entity_is_reweighted_by_placement() {
    let (mut lab, a, _) = pair();
    reweight(&mut lab, a);
    let e = lab.se(a);
    assert_eq!((e.vruntime, e.deadline), (VTime(9 * MS), VTime(10 * MS + MS / 2)));
}

/// The same while A runs: it counts, with its new weight, in V = (8·2048 + 12·1024)/3072 = 9.333,
/// and once more in what its lag is scaled by: v = V − 1·(3072 + 2048)/3072 = 7.667.
#[test]
pub(crate) fn the_running_entity_is_weighed_twice() {
    let (mut lab, a, _) = pair();
    let se = lab.sh.tasks[a.ix()].se;
    lab.hook(Cpu(0), |s, cx| s.fair.set_next_entity(cx, se, true));
    reweight(&mut lab, a);
    let e = lab.se(a);
    assert_eq!((e.vruntime, e.deadline), (VTime(7_666_667), VTime(9_166_667)));
}

/// A and B on CPU 0, waiting.
fn pair() -> (Lab, TaskId, TaskId) {
    let mut lab = Lab::new(sample::v6_18(), "uma-8");
    let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
    for p in [a, b] {
        let se = lab.sh.tasks[p.ix()].se;
        lab.linux.fair.tree_remove(se);
    }
    lab.linux.fair.cfs[0].min_vruntime = VTime(0);
    for (p, v, d) in [(a, 8, 11), (b, 12, 15)] {
        let e = lab.se_mut(p);
        (e.vruntime, e.deadline) = (VTime(v * MS), VTime(d * MS));
        let se = lab.sh.tasks[p.ix()].se;
        lab.linux.fair.tree_insert(se);
    }
    (lab, a, b)
}

fn reweight(lab: &mut Lab, p: TaskId) {
    let se = lab.sh.tasks[p.ix()].se;
    let weight = 2 * lab.se(p).weight;
    lab.hook(Cpu(0), |s, cx| s.fair.reweight_entity(cx, se, weight));
}

/// A moves to `SCHED_IDLE` with 1.5 ms of its slice left, 1024 to 3: off the queue its deadline is
/// relative, and 6.18 scales it as it does its lag. 6.12 keeps it.
#[test]
fn what_is_left_of_a_slice_is_scaled_with_the_weight() {
    for (release, want) in [(sample::v6_18(), 1_500_000 * 1024 / 3), (sample::v6_12(), 1_500_000)] {
        let mut lab = Lab::new(release, "uma-8");
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        let se = lab.sh.tasks[p.ix()].se;
        let e = lab.se_mut(p);
        (e.rel_deadline, e.deadline, e.vlag) = (true, VTime(1_500_000), 300);
        lab.linux.fair.set_task_weight(&lab.sh.release, se, 0, true);
        assert_eq!((lab.se(p).deadline, lab.se(p).vlag), (VTime(want), 102_400));
    }
}
