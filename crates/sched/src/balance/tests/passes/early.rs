//! What passes of 5.x did differently.

use super::*;
use crate::sample::{v5_5, v5_7};

/// 0.5 ms of idle time must be expected, whatever a search costs.
#[test]
pub(crate) fn newidle_needs_half_a_millisecond() {
    for (avg_idle, steps) in
        [(499_999, "done 0"), (500_000, "lock 2, unlock 2, lock 0, unlock 0, done 2")]
    {
        let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
        lab.tasks(2, 3);
        lab.sh.rqs[0].avg_idle = Ns(avg_idle);
        assert_eq!(lab.newidle(0), steps);
    }
}

/// A wakeup on its list does not keep the CPU from looking for more.
#[test]
pub(crate) fn newidle_does_not_see_queued_wakeups() {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(2, 3);
    lab.sh.rqs[0].ttwu_pending = true;
    assert_eq!(lab.newidle(0), "lock 2, unlock 2, lock 0, unlock 0, done 2");
}

/// 4 ms · 32 at 250 Hz: 32 jiffies, none less.
#[test]
pub(crate) fn a_busy_cpu_balances_at_twice_the_interval() {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(1, 1);
    lab.tasks(2, 4);
    lab.fair.cfs[0].avg.load_avg = 0;
    lab.state(0, 0).last_balance = 250 - 31;
    assert_eq!(lab.periodic(0), "done 0");
    lab.state(0, 0).last_balance = 250 - 32;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
}

/// CPU 0 finds nothing, 1.2 s after the costs of its levels last changed: they stay, where later
/// releases let them decay. A costlier pass does not put the next decay off.
#[test]
pub(crate) fn newidle_lets_no_cost_decay_in_5_x() {
    for (k, kept, raised) in [(v5_7(), 256_000, 0), (v6_1(), 253_000, 300)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 10);
        lab.now = Ns::from_ms(4 * 300);
        lab.sh.domains.overload = true;
        lab.state(0, 0).max_newidle_lb_cost = 256_000;
        lab.newidle(0);
        assert_eq!(lab.state(0, 0).max_newidle_lb_cost, kept);
        *lab.state(0, 0) = SdState { max_newidle_lb_cost: 0, last_decay: 0, ..*lab.state(0, 0) };
        lab.sh.domains.overload = true;
        lab.newidle(0);
        assert!(lab.state(0, 0).max_newidle_lb_cost > 0);
        assert_eq!(lab.state(0, 0).last_decay, raised);
    }
}

/// Two sockets of two caches. CPU 1 is refused at MC; the costs of its core and of NUMA are due to
/// decay. Since the first has, 5.x comes to the last; later releases end at PKG.
#[test]
fn a_decay_below_lets_those_above_decay_in_5_x() {
    for (k, numa) in [(v5_7(), 1_012_000), (v6_1(), 1_024_000)] {
        let mut lab = Lab::new(&k, 1, 8, 2, 0);
        lab.machine = machine_at(sockets(2, 4, 2, 2), 0);
        lab.sh = shared(&lab.machine.topo, k.clone());
        lab.balancer = Balancer::new(&lab.sh.domains, lab.sh.rqs.len());
        lab.now = Ns::from_ms(4 * 300);
        for (level, last_decay) in [0, 299, 299, 0].into_iter().enumerate() {
            let s = lab.state(1, level);
            (s.max_newidle_lb_cost, s.last_decay) = (1_024_000, last_decay);
        }
        lab.periodic(1);
        assert_eq!(lab.lb(1, 1, IdleType::Idle).balanced, 1);
        assert_eq!(lab.state(1, 3).max_newidle_lb_cost, numa);
    }
}

/// A SCHED_IDLE task leaves the interval at 4 ms, a jiffy; in 5.5 the CPU is busy: 32 jiffies.
#[test]
fn sched_idle_tasks_make_a_cpu_busy_in_5_5() {
    for (k, jiffies, passes) in [(v5_7(), 1, 1), (v5_5(), 31, 0), (v5_5(), 32, 1)] {
        let mut lab = Lab::new(&k, 1, 4, 1, 0);
        lab.tasks(0, 1);
        lab.sh.loads[0].idle_h_nr = 1;
        lab.state(0, 0).last_balance = 250 - jiffies;
        lab.periodic(0);
        assert_eq!(lab.lb(0, 0, IdleType::NotIdle).count, passes);
    }
}

/// avg = (200 + 3072)/4 = 818; 618 of load may move; a task has 1023, half of it fits at once.
#[test]
pub(crate) fn half_a_tasks_load_must_fit() {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(2, 3);
    lab.fair.cfs[0].avg.load_avg = 200;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [618, 0, 0]);
}

/// The task ran a moment ago on the other thread of the core.
#[test]
pub(crate) fn a_task_is_hot_on_its_core_too() {
    let mut lab = Lab::new(&v5_7(), 1, 2, 2, 0);
    let ids = lab.tasks(1, 2);
    lab.ran(ids[1], Ns(1));
    lab.newidle(0);
    assert_eq!(lab.moved(), [""; 0]);
}

/// 24 of utilisation may move to CPU 0, a task has 256: the fourth failure asks the stopper, though
/// no task was to be counted. The interval doubles, to 8 ms at most; a next pass moves hot tasks.
#[test]
pub(crate) fn active_balance_for_utilisation_and_its_pause() {
    [4, 8].into_iter().for_each(pause_after_a_push);
}

fn pause_after_a_push(interval: u32) {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    lab.tasks(2, 2);
    lab.sh.loads[0].util_avg = 1000;
    let a = &mut lab.fair.cfs[0].avg;
    (a.util_avg, a.last_update_time) = (1000, lab.now);
    (lab.state(0, 0).nr_balance_failed, lab.state(0, 0).balance_interval) = (3, interval);
    let steps = "lock 2, unlock 2, lock 2, unlock 2, stopper 2, done 0";
    assert_eq!(lab.periodic(0), steps);
    assert_eq!(lab.lb(0, 0, IdleType::Idle).imbalance, [0, 24, 0]);
    assert_eq!((lab.state(0, 0).nr_balance_failed, lab.state(0, 0).balance_interval), (2, 8));
}

/// As before, but the running task may not leave CPU 2: that it was asked makes the pass one that
/// found all pinned, whose interval grows beyond 8 ms.
#[test]
pub(crate) fn who_cannot_be_pushed_is_pinned_in_5_x() {
    let mut lab = Lab::new(&v5_7(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 2);
    lab.pin(ids[0], &[2]);
    lab.sh.loads[0].util_avg = 1000;
    let a = &mut lab.fair.cfs[0].avg;
    (a.util_avg, a.last_update_time) = (1000, lab.now);
    (lab.state(0, 0).nr_balance_failed, lab.state(0, 0).balance_interval) = (3, 8);
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 2, unlock 2, done 0");
    assert_eq!(lab.state(0, 0).balance_interval, 16);
}

/// CPU 2 is left with one task by the time it is locked. 5.x has not seen one that may move, leaves
/// 2 out and goes to 3; later releases end there.
#[test]
fn an_emptied_queue_is_left_out_in_5_x() {
    for (k, next) in [(v5_7(), BalanceStep::Lock(Cpu(3))), (v6_1(), BalanceStep::Done)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        lab.tasks(2, 4);
        lab.tasks(3, 3);
        let step = lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Newidle));
        assert_eq!(step, BalanceStep::Lock(Cpu(2)));
        lab.sh.loads[2].nr_running = 1;
        let step = lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
        assert_eq!(step, BalanceStep::Unlock(Cpu(2)));
        assert_eq!(lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0))), next);
    }
}

/// The tasks of a large group weigh nothing. Of 3 that may move each takes 1; in 5.5 it takes
/// nothing, and all that wait go.
#[test]
pub(crate) fn tasks_without_load_move_without_end_in_5_5() {
    for (k, moved) in [(v5_5(), 5), (v5_7(), 3)] {
        let mut lab = Lab::new(&k, 1, 4, 1, 0);
        lab.tasks(0, 1);
        let ids = lab.tasks(2, 6);
        for p in ids {
            let se = lab.sh.task(p).se;
            lab.fair.ses[se.ix()].avg.load_avg = 0;
        }
        lab.fair.cfs[0].avg.load_avg = 2044;
        lab.periodic(0);
        assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [3, 0, 0]);
        assert_eq!(lab.moved().len(), moved);
    }
}
