//! Exactly where a pass stops: tasks looked at, loads that fit, and what is left to the source.

use super::*;
use crate::sample::{v5_7, v6_18};

/// Every task is hot, so a pass looks at all that it may and takes none.
fn looks(nr_migrate: u32, tasks: usize) -> String {
    let mut lab = Lab::new(&Release { nr_migrate, ..no_dice() }, 1, 4, 1, 0);
    let ids = lab.tasks(2, tasks);
    ids.iter().for_each(|p| lab.ran(*p, Ns(1)));
    lab.newidle(0)
}

/// The source is let go after every 32, and a 33rd is wanted only if it may be looked at.
#[test]
fn the_sources_lock_is_let_go_every_32_tasks() {
    let once = "lock 2, unlock 2, ";
    assert_eq!(looks(32, 33), format!("{once}done 0"));
    assert_eq!(looks(33, 33), format!("{once}done 0"));
    assert_eq!(looks(100, 32), format!("{once}done 0"));
    assert_eq!(looks(100, 34), format!("{once}{once}done 0"));
    // Looks 1–32, 33–64, 65–96, and the last four; the one that ends a round counts as a look.
    assert_eq!(looks(100, 100), format!("{once}{once}{once}{once}done 0"));
}

/// CPU 2 runs neither of its two light tasks just now. Both fit, but an idle CPU leaves one.
#[test]
fn an_idle_cpu_leaves_one_task() {
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    let light = lab.tasks(2, 2);
    light.iter().for_each(|p| lab.ran(*p, Ns::from_ms(1)));
    lab.tasks(3, 3);
    // The group is overloaded by runnable time; by utilisation CPU 2 is the busiest.
    lab.sh.loads[2].util_est = 1024;
    lab.sh.loads[3].util_avg = 512;
    lab.sh.rqs[2].curr = TaskId(2);
    lab.sh.rqs[0].avg_idle = Ns::from_ms(1);
    let pkg = lab.slot(0, 1);
    lab.state(0, 0).last_balance = 1 << 40;
    lab.balancer.state_mut(pkg).last_balance = 0;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.lb(0, 1, IdleType::Idle).imbalance[1], 2048);
    assert_eq!((lab.nr(0), lab.nr(2)), (1, 1));
}

/// v5.7, load 1023 a task: half of it, 511, fits into 511 of load and not into 510.
/// avg = (L + 3072)/4; with L = 342: 853 − 342 = 511, with 343 and 344: 853 and 854, 510.
#[test]
fn half_a_load_fits_exactly() {
    for (local, amount, moved) in [(342, 511, 1), (343, 510, 0)] {
        let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
        lab.tasks(0, 1);
        lab.tasks(2, 3);
        lab.fair.cfs[0].avg.load_avg = local;
        lab.periodic(0);
        assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [amount, 0, 0]);
        assert_eq!(lab.moved().len(), moved, "{amount}");
    }
}

/// 512 of load: half of the first task's 1023 fits, and then nothing is left for a second.
#[test]
fn what_moved_counts_against_the_load() {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(2, 5);
    // avg = (1024 + 5120)/4 = 1536: 512 of load.
    lab.periodic(0);
    assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [512, 0, 0]);
    assert_eq!(lab.moved().len(), 1);
    // 7168/4 = 1792 of load: 769 are left, into which half of the second's fits, and nothing after.
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(2, 7);
    lab.fair.cfs[0].avg.load_avg = 0;
    lab.periodic(0);
    assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [1792, 0, 0]);
    assert_eq!(lab.moved().len(), 2);
}

/// A task of 256 after two failures counts as 64: it fits into 64 of utilisation, not into 60.
#[test]
fn utilisation_fits_exactly() {
    for (util, moved) in [(1008, 1), (1009, 0)] {
        let mut lab = Lab::new(&no_dice(), 2, 4, 1, 0);
        (4..8).for_each(|c| drop(lab.tasks(c, 2)));
        for c in 0..4 {
            lab.sh.loads[c].util_avg = util;
            let a = &mut lab.fair.cfs[c].avg;
            (a.util_avg, a.last_update_time) = (util, lab.now);
        }
        let pkg = lab.slot(0, 1);
        lab.balancer.state_mut(pkg).nr_balance_failed = 2;
        lab.sh.rqs[0].avg_idle = Ns::from_ms(1);
        lab.newidle(0);
        assert_eq!(lab.moved().len(), moved, "{util}");
    }
}

/// LLCs {0,1} {2,3}; the waiting tasks of 2 may run on 1: CPU 0 would pull them there in a periodic
/// pass, not on its way to idle.
#[test]
fn newidle_pulls_for_itself_only() {
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    let ids = lab.tasks(2, 4);
    ids[1..].iter().for_each(|p| lab.pin(*p, &[1, 2]));
    lab.newidle(0);
    assert_eq!(lab.moved(), [""; 0]);
}

/// 6.18: a task that is not eligible stays where it would wait here, too; an idle CPU takes it.
#[test]
fn an_idle_cpu_takes_ineligible_tasks() {
    let mut lab = Lab::new(&Release { ni_random: false, ..v6_18() }, 1, 4, 1, 0);
    let ids = lab.tasks(2, 3);
    let se = lab.sh.task(ids[1]).se;
    lab.fair.tree_remove(se);
    lab.fair.ses[se.ix()].vruntime = lab.fair.ses[se.ix()].vruntime.plus(100_000);
    lab.fair.tree_insert(se);
    lab.newidle(0);
    assert_eq!(lab.moved(), [format!("{} 2→0 newidle balance, MC", ids[1])]);
}

/// SCHED_IDLE tasks are never hot, nor is a buddy for a CPU that has nothing else to run.
#[test]
fn some_tasks_are_never_hot() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 2);
    lab.ran(ids[1], Ns(1));
    lab.sh.tasks[ids[1].ix()].policy = crate::task::Policy::Idle;
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 2);
    lab.fair.cfs[2].next = lab.sh.task(ids[1]).se;
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
}

/// Three light tasks on CPU 2, one to be moved. The one at the tail may go to 1 only, the next goes
/// to 0: then nothing is left for 1.
#[test]
fn what_was_moved_is_not_asked_for_again() {
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    let ids = lab.tasks(2, 3);
    lab.sh.loads[2].runnable_avg = 9;
    lab.pin(ids[1], &[1, 2]);
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.moved(), [format!("{} 2→0 periodic balance while idle, PKG", ids[2])]);
}

/// The same on a core: a pinned task is no matter for the level above if as many moved as should.
#[test]
fn a_pinned_task_matters_only_if_it_was_wanted() {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    let ids = lab.tasks(1, 3);
    lab.pin(ids[1], &[1]);
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
    let mc = lab.slot(0, 1);
    assert_eq!(lab.imbalanced(mc), [false, false]);
}

/// Nothing but pinned tasks: the interval grows beyond its maximum, here 8 ms, up to 512 ms.
#[test]
fn the_interval_of_pinned_tasks_grows_to_512_ms() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 3).iter().for_each(|p| lab.pin(*p, &[2]));
    for (before, after) in [(4, 8), (8, 16), (256, 512), (512, 512)] {
        (lab.state(0, 0).balance_interval, lab.state(0, 0).last_balance) = (before, 0);
        lab.periodic(0);
        assert_eq!(lab.state(0, 0).balance_interval, after);
    }
}
