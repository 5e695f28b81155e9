//! When each CPU's first passes fall.

use super::*;

/// 16 CPUs share a cache: a busy one balances it every 16 · 16 ms = 64 jiffies, less one.
#[test]
fn clocks_of_a_machine_that_has_been_up_are_spread_over_the_interval_of_a_busy_cpu() {
    let mut lab = Lab::new(&no_dice(), 1, 16, 1, 0);
    lab.at(0, |b, _, cx| b.spread_clocks(cx));
    let mut due: Vec<i64> = (0..16).map(|c| lab.state(c, 0).last_balance + 63).collect();
    due.sort();
    assert!(due.iter().all(|&at| (1..=63).contains(&at)), "{due:?}");
    let gaps = due.windows(2).map(|w| w[1] - w[0]);
    assert!(gaps.max() < Some(20) && due[0] < 20 && due[15] > 43, "{due:?}");
}

/// What lies before the run is due as what lies in it.
#[test]
fn a_pass_before_the_run_counts() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(1, 1);
    lab.tasks(2, 4);
    lab.fair.cfs[0].avg.load_avg = 0;
    lab.now = Ns::from_ms(4 * 5);
    lab.state(0, 0).last_balance = 5 - 14;
    assert_eq!(lab.periodic(0), "done 0");
    lab.state(0, 0).last_balance = 5 - 15;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
}

/// 250 ticks a second, 4 CPUs: 4 ms are a jiffy, 5 ms two; busy 16 times as long, less one, and at
/// most 0.1 s a CPU.
#[test]
fn intervals_in_jiffies() {
    let lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let jiffies = |ms, busy| crate::balance::periodic::interval(&lab.sh, ms, busy);
    assert_eq!([jiffies(4, false), jiffies(5, false), jiffies(8, false)], [1, 2, 2]);
    assert_eq!([jiffies(4, true), jiffies(24, true), jiffies(64, true)], [15, 95, 100]);
}

/// CPU 1 balances its core; MC is the turn of CPU 0. The costs of all levels decay by 253/256 all
/// the same, once a second, and their sum is what the CPU expects of newidle balancing.
#[test]
fn costs_decay_where_another_cpu_balances() {
    for (last_decay, sum, pkg) in
        [(0, 253_000 + 506_000 + 1_012_000, 1_012_000), (299, 9, 1_024_000)]
    {
        let mut lab = Lab::new(&no_dice(), 2, 2, 2, 0);
        lab.now = Ns::from_ms(4 * 300);
        lab.sh.rqs[1].max_idle_balance_cost = Ns(9);
        for (level, cost) in [(0, 256_000), (1, 512_000), (2, 1_024_000)] {
            let s = lab.state(1, level);
            s.max_newidle_lb_cost = cost;
            s.last_decay = if level == 2 { last_decay } else { 0 };
        }
        lab.periodic(1);
        assert_eq!(lab.lb(1, 0, IdleType::Idle).count, 1);
        assert_eq!(lab.lb(1, 1, IdleType::Idle).balanced, 1);
        assert_eq!(lab.lb(1, 2, IdleType::Idle).count, 0);
        assert_eq!(lab.sh.rq(Cpu(1)).max_idle_balance_cost, Ns(sum));
        assert_eq!(lab.state(1, 2).max_newidle_lb_cost, pkg);
    }
}

/// A task of its own, come amid a pass that moved nothing, does not make the CPU a busy one yet.
#[test]
fn a_walk_goes_on_as_it_began() {
    let mut lab = Lab::new(&no_dice(), 2, 4, 1, 10);
    lab.tasks(4, 1);
    lab.at(0, |b, _, cx| b.tick(cx, Cpu(0)));
    let step = lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Periodic));
    assert_eq!(step, BalanceStep::Pass);
    lab.tasks(0, 1);
    while lab.balancer.is_active(Cpu(0)) {
        lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
    }
    assert_eq!(lab.lb(0, 1, IdleType::Idle).count, 1);
    assert_eq!(lab.lb(0, 1, IdleType::NotIdle).count, 0);
}

/// What is due in a minute or later is not noted.
#[test]
fn the_next_balancing_is_noted_if_within_a_minute() {
    for (last, next) in [(14_998, 250 + 14_999), (14_999, 7)] {
        let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
        lab.sh.rqs[0].next_balance = 7;
        lab.state(0, 0).last_balance = 250 + last;
        lab.periodic(0);
        assert_eq!(lab.sh.rq(Cpu(0)).next_balance, next);
    }
}
