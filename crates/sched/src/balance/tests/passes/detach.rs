//! Which tasks of a busy CPU may be taken: cache hot, buddies, bound, delayed, not eligible.

use super::*;
use crate::sample::{v6_5, v6_18};

#[test]
fn hot_tasks_move_after_failures() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 3);
    // 0.4 ms ago is hot, 0.5 ms ago is not.
    lab.ran(ids[1], Ns(499_999));
    lab.ran(ids[2], Ns(500_000));
    lab.newidle(0);
    assert_eq!(lab.moved(), [format!("{} 2→0 newidle balance, MC", ids[2])]);
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 3);
    lab.ran(ids[1], Ns(1));
    lab.ran(ids[2], Ns(1));
    lab.newidle(0);
    assert_eq!(lab.moved(), [""; 0]);
    // cache_nice_tries of MC is 1.
    lab.state(0, 0).nr_balance_failed = 2;
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
    assert_eq!(lab.lb(0, 0, IdleType::Newidle).hot_gained, 1);
    assert_eq!(lab.state(0, 0).nr_balance_failed, 0);
}

#[test]
fn threads_of_a_core_share_their_cache() {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    let ids = lab.tasks(1, 2);
    lab.ran(ids[1], Ns(1));
    assert_eq!(lab.newidle(0), "lock 1, unlock 1, lock 0, unlock 0, done 1");
    assert_eq!(lab.moved(), [format!("{} 1→0 newidle balance, SMT", ids[1])]);
}

#[test]
pub(crate) fn buddies_are_hot_for_a_busy_puller() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 4);
    lab.tasks(0, 1);
    let se = lab.sh.task(ids[1]).se;
    lab.fair.cfs[2].next = se;
    // avg of the domain 1024, of the local CPU 0: 1024 of load may move, a task has 1023.
    lab.fair.cfs[0].avg.load_avg = 0;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.moved(), [format!("{} 2→0 periodic balance while busy, MC", ids[2])]);
}

#[test]
pub(crate) fn per_cpu_kthreads_stay() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 2);
    lab.sh.tasks[ids[1].ix()].kthread = true;
    lab.pin(ids[1], &[2]);
    lab.newidle(0);
    assert_eq!(lab.moved(), [""; 0]);
    // Nor do they make the group of {0,1} imbalanced for the level above, as a pinned task would.
    for (kthread, flag) in [(true, false), (false, true)] {
        let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
        let p = lab.tasks(1, 2)[1];
        lab.sh.tasks[p.ix()].kthread = kthread;
        lab.pin(p, &[1]);
        lab.newidle(0);
        let mc = lab.slot(0, 1);
        assert_eq!(lab.imbalanced(mc), [flag, false]);
    }
}

/// Of six tasks the four at the tail, the running one first, are pinned, and a pass may look at
/// four: it ends with nothing. 6.5 and 6.6 do not count while all that was seen is pinned, and take
/// the fifth.
#[test]
pub(crate) fn pinned_tasks_use_up_the_scan() {
    for spares in [false, true] {
        let mut k = Release { nr_migrate: 4, ..no_dice() };
        k.loop_max_spares_pinned ^= spares;
        let mut lab = Lab::new(&k, 1, 4, 1, 0);
        let ids = lab.tasks(2, 6);
        ids[..4].iter().for_each(|p| lab.pin(*p, &[2]));
        lab.newidle(0);
        let taken =
            if spares { vec![format!("{} 2→0 newidle balance, MC", ids[4])] } else { vec![] };
        assert_eq!(lab.moved(), taken);
    }
}

/// Group {4..7} overloaded, 96 of utilisation to spare on this side; a task of 256, half of what
/// the first left, fits after two failures, 256 >> 2 = 64, where failures count.
#[test]
pub(crate) fn failures_shrink_the_utilisation_that_must_fit() {
    for shifted in [true, false] {
        let mut k = no_dice();
        k.migrate_util_shifted ^= !shifted;
        let mut lab = Lab::new(&k, 2, 4, 1, 0);
        (4..8).for_each(|c| drop(lab.tasks(c, 2)));
        for c in 0..4 {
            lab.sh.loads[c].util_avg = 1000;
            let a = &mut lab.fair.cfs[c].avg;
            (a.util_avg, a.last_update_time) = (1000, lab.now);
        }
        let pkg = lab.slot(0, 1);
        for failed in [1, 2] {
            let state = lab.balancer.state_mut(pkg);
            (state.nr_balance_failed, state.last_balance) = (failed, 0);
            lab.sh.rqs[0].avg_idle = Ns::from_ms(1);
            lab.newidle(0);
            let moved = lab.moved().len();
            assert_eq!(moved, usize::from(shifted && failed == 2), "{failed} failures");
        }
    }
}

/// 0.1 ms of virtual time apart: only what is behind the mean is eligible.
#[test]
pub(crate) fn a_first_pass_leaves_ineligible_tasks() {
    for (k, failed, moves) in [(v6_18(), 0, 1), (v6_18(), 1, 2), (v6_12(), 0, 2)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        let ids = lab.tasks(2, 6);
        let own = lab.tasks(0, 1);
        // The list's tail is asked first: ids[1], which is far ahead of the others.
        let se = lab.sh.task(ids[1]).se;
        lab.fair.tree_remove(se);
        let e = &mut lab.fair.ses[se.ix()];
        e.vruntime = e.vruntime.plus(100_000);
        lab.fair.tree_insert(se);
        // Balancing while busy counts load: room for two tasks.
        lab.fair.cfs[0].avg.load_avg = 0;
        lab.state(0, 0).nr_balance_failed = failed;
        lab.periodic(0);
        let moved = lab.moved();
        let first = moved.iter().any(|m| m.starts_with(&format!("{} ", ids[1])));
        assert_eq!(first, moves == 2, "{moved:?} {own:?}");
    }
}

/// Balancing by tasks, not load: a newidle pull of one of two waiting ones.
#[test]
pub(crate) fn tasks_in_delayed_dequeue_are_passed_over() {
    for (k, pulled) in [(v6_18(), 2), (v6_12(), 1)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        let ids = lab.tasks(2, 3);
        let se = lab.sh.task(ids[1]).se;
        lab.fair.ses[se.ix()].sched_delayed = true;
        lab.fair.cfs[2].h_nr_runnable -= 1;
        lab.newidle(0);
        assert_eq!(lab.moved(), [format!("{} 2→0 newidle balance, MC", ids[pulled])]);
    }
}

/// CPU 0 runs a task that is 20 ms past the mean and not protected: who comes takes its place,
/// though it be in delayed dequeue.
#[test]
fn who_arrives_in_delayed_dequeue_preempts_too() {
    for delayed in [false, true] {
        let mut lab = Lab::new(&Release { ni_random: false, ..v6_12() }, 1, 4, 1, 0);
        let ids = lab.tasks(2, 4);
        let own = lab.tasks(0, 1)[0];
        // 1024 of load may move, a task has 1023.
        lab.fair.cfs[0].avg.load_avg = 0;
        let own = lab.sh.task(own).se;
        let e = &mut lab.fair.ses[own.ix()];
        e.vruntime = e.vruntime.plus(20_000_000);
        (e.deadline, e.vlag) = (e.vruntime.plus(3_000_000), 0);
        if delayed {
            let se = lab.sh.task(ids[1]).se;
            lab.fair.ses[se.ix()].sched_delayed = true;
            lab.fair.cfs[2].h_nr_runnable -= 1;
        }
        lab.resched.clear();
        lab.periodic(0);
        assert_eq!(lab.moved(), [format!("{} 2→0 periodic balance while busy, MC", ids[1])]);
        let asked: Vec<_> = lab.resched.iter().map(|(c, why)| (c.0, why.name)).collect();
        assert_eq!(asked, [(0, crate::fair::eevdf::WOULD_PICK.name)], "delayed: {delayed}");
    }
}

/// A push counts as one by load, whatever the pass before counted on that CPU: here a newidle pull
/// by tasks.
#[test]
fn a_push_takes_a_task_in_delayed_dequeue() {
    let mut lab = Lab::new(&Release { ni_random: false, ..v6_18() }, 1, 4, 1, 0);
    lab.tasks(2, 3);
    lab.newidle(0);
    let a = lab.balancer.moved[0].task;
    let se = lab.sh.task(a).se;
    lab.fair.ses[se.ix()].sched_delayed = true;
    lab.fair.cfs[0].h_nr_runnable -= 1;
    // The stopper of CPU 0 is to push it to CPU 1.
    lab.sh.loads[0].nr_running += 1;
    lab.sh.rqs[0].curr = TaskId(0);
    (lab.sh.rqs[0].active_balance, lab.sh.rqs[0].push_cpu) = (true, Cpu(1));
    lab.at(0, |b, f, cx| b.active_balance(f, cx, Cpu(0)));
    assert_eq!(lab.moved().last(), Some(&format!("{a} 0→1 active balance, MC")));
}

/// Hot, and by two failures cold enough; but a quarter of its 1023 is more than the 168 that may
/// move. 6.1.192 has what 6.15 changed.
#[test]
pub(crate) fn a_hot_task_is_gained_when_it_is_moved_from_6_15_on() {
    for (k, gained) in [(v6_5(), 2), (v6_1(), 0)] {
        let mut lab = Lab::new(&k, 1, 4, 1, 0);
        lab.tasks(0, 1);
        let ids = lab.tasks(2, 3);
        lab.ran(ids[1], Ns(1));
        lab.ran(ids[2], Ns(1));
        lab.fair.cfs[0].avg.load_avg = 800;
        lab.state(0, 0).nr_balance_failed = 2;
        lab.periodic(0);
        assert_eq!(lab.moved(), [""; 0]);
        assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [168, 0, 0]);
        assert_eq!(lab.lb(0, 0, IdleType::NotIdle).hot_gained, gained);
    }
}
