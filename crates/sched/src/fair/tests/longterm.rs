//! What 6.18.44 does otherwise than 6.18.2, by hand. Eight CPUs, base slice 2.8 ms, nice 0. Times
//! in ms of virtual time.

use super::*;
use crate::fair::eevdf::*;

fn decide(b: &Board, curr: SeId, wakee: SeId, fork: bool) -> PreemptDecision {
    b.decide(&task(curr), &task(wakee), false, fork)
}

/// The running entity at `v`, protected until 20, and the wakee.
fn board(release: Release, v: u64, wakee: (u64, u64), slice: u64) -> (Board, SeId, SeId) {
    let mut b = Board::new(release, 8);
    b.fair.cfs[0].min_vruntime = VTime(0);
    let c = b.edf(v * MS, 20 * MS, 6 * MS);
    b.fair.restore_curr(c);
    b.fair.protect(&b.release, c);
    let w = b.edf(wakee.0 * MS, wakee.1 * MS, slice * MS);
    b.fair.restore_queued(w);
    (b, c, w)
}

/// The running entity is past V and the wakee is not, but D, in delayed dequeue and due first,
/// would be picked. It leaves, and then the wakee preempts. Up to 6.18.2 D saves the running one.
#[test]
pub(crate) fn who_is_in_delayed_dequeue_saves_nobody() {
    for (release, leaves) in [(sample::v6_18(), false), (sample::v6_18_44(), true)] {
        let (mut b, c, w) = board(release, 12, (9, 22), 6);
        let d = b.edf(8 * MS, 14 * MS, 6 * MS);
        b.fair.ses[d.ix()].sched_delayed = true;
        b.fair.restore_queued(d);
        let first = decide(&b, c, w, false);
        assert_eq!((first.preempt, first.delayed), (false, if leaves { d } else { SeId::NONE }));
        b.fair.tree_remove(d);
        b.fair.cfs[0].nr_queued -= 1;
        let then = decide(&b, c, w, false);
        assert_eq!((then.preempt, then.delayed.is_none()), (true, true));
    }
}

/// The same with tasks, whose first requests end at 1.4. A runs for 1 ms and blocks while it owes;
/// B runs for 1.2. Now V = 1.1: A owes nothing, B does. C, woken at V, makes A leave and B go.
#[test]
fn a_wakeup_takes_it_off_the_queue() {
    for (release, nr_running) in [(sample::v6_18(), 3), (sample::v6_18_44(), 2)] {
        let mut lab = Lab::new(release, "uma-8");
        let [a, b, c] = [(); 3].map(|()| lab.spawn(Cpu(0), 0, TgId(0)));
        lab.hook(Cpu(0), |s, cx| {
            s.dequeue_task(cx, Cpu(0), c, DequeueFlags { sleep: true, ..DequeueFlags::default() })
        });
        lab.sh.tasks[c.ix()].on_rq = false;
        assert_eq!(lab.schedule(Cpu(0)), a);
        lab.pass(MS);
        assert_eq!(lab.sleep(Cpu(0)), b);
        assert!(lab.se(a).sched_delayed);
        lab.pass(MS + MS / 5);
        lab.wake(c, Cpu(0));
        assert_eq!(lab.sh.loads[0].nr_running, nr_running);
        assert_eq!(lab.sh.tasks[a.ix()].on_rq, nr_running == 3);
        assert_eq!(lab.sh.rqs[0].need_resched, nr_running == 2);
        check_invariants(&lab);
    }
}

/// V = 11 with the wakee at 12. It does not preempt; somebody with a slice of 2 waits, and that is
/// what is left of the protection. Up to 6.18.2 only if it is the wakee's.
#[test]
pub(crate) fn any_short_slice_shortens_the_protection() {
    for (release, shortens) in [(sample::v6_18(), false), (sample::v6_18_44(), true)] {
        let (mut b, c, w) = board(release, 10, (12, 18), 6);
        let short = b.edf(12 * MS, 14 * MS, 2 * MS);
        b.fair.restore_queued(short);
        let d = decide(&b, c, w, false);
        assert_eq!((d.preempt, d.shorten_protection), (false, shortens));
        b.fair.shorten_protection(c);
        assert_eq!(b.fair.ses[c.ix()].vlag as u64, 12 * MS);
    }
}

/// The running entity is past V. A wakee takes over, a new task does not, unless its slice is
/// shorter.
#[test]
pub(crate) fn a_new_task_preempts_nobody() {
    for (release, new) in [(sample::v6_18(), true), (sample::v6_18_44(), false)] {
        let (b, c, w) = board(release.clone(), 12, (9, 15), 6);
        assert!(decide(&b, c, w, false).preempt);
        let d = decide(&b, c, w, true);
        assert_eq!(d.preempt, new);
        assert_eq!(d.rule.name, if new { WOULD_PICK.name } else { NEW.name });
        let (b, c, w) = board(release, 12, (9, 11), 2);
        assert_eq!(decide(&b, c, w, true).rule.name, SHORTER.name);
    }
}

/// A tick of 4 ms. 20 ms behind V an entity with a slice of 1 keeps max(2·1, 4) = 4; where the
/// longest slice on the queue counts, 6 + 4.
#[test]
pub(crate) fn the_longest_slice_bounds_a_lag() {
    for (release, kept) in [(sample::v6_18(), 4), (sample::v6_18_44(), 10)] {
        let mut b = Board::new(release, 8);
        b.fair.cfs[0].min_vruntime = VTime(0);
        let late = b.edf(10 * MS, 11 * MS, MS);
        let other = b.edf(50 * MS, 56 * MS, 6 * MS);
        b.fair.restore_queued(late);
        b.fair.restore_curr(other);
        b.fair.update_entity_lag(late);
        assert_eq!(b.fair.ses[late.ix()].vlag, kept * MS as i64);
    }
}

/// A runs, B waits in the same group. A change of A's affinity takes it off its queue and puts it
/// back: 6.18.2 protects it anew. In 6.18.44 its protection was overwritten by its lag; that of the
/// group, which stays queued for B, holds.
#[test]
pub(crate) fn a_change_of_the_running_task_ends_its_protection() {
    for (release, protected) in [(sample::v6_18(), true), (sample::v6_18_44(), false)] {
        let mut lab = Lab::new(release, "uma-8");
        let g = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, TgId(0)));
        lab.spawn(Cpu(0), 0, TgId(0));
        for _ in 0..2 {
            lab.spawn(Cpu(0), 0, g);
        }
        let mut a = lab.schedule(Cpu(0));
        while lab.sh.task(a).tg != g || lab.ran(a) < 20 * MS {
            lab.pass(4 * MS);
            lab.tick(Cpu(0));
            a = lab.schedule(Cpu(0));
        }
        lab.pass(MS / 10);
        let is = |lab: &Lab| {
            let se = lab.sh.task(a).se;
            [se, lab.se(a).parent].map(|se| lab.linux.fair.is_protected(se))
        };
        assert_eq!(is(&lab), [true, true]);
        lab.hook(Cpu(0), |s, cx| {
            let t = cx.sh.task(a);
            s.set_affinity(cx, a, t.affinity, t.nr_cpus_allowed);
        });
        assert_eq!(is(&lab), [protected, true]);
    }
}
