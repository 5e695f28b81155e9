//! What a newidle balancing keeps: stamps, clocks, costs and the chance of the next.

use super::*;
use crate::sample::{v6_18, v6_18_44};
use vruntime_base::{Func, Stream};

/// CPU 0 begins a newidle balancing that takes time, gets a task of its own meanwhile, goes on.
fn gets_work_meanwhile(lab: &mut Lab) {
    let step = lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Newidle));
    assert_eq!(step, BalanceStep::Pass);
    lab.tasks(0, 1);
    while lab.balancer.is_active(Cpu(0)) {
        lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
    }
}

#[test]
fn the_idle_stamp_stays_while_nothing_is_found() {
    let stamp = |lab: &Lab| lab.sh.rq(Cpu(0)).idle_stamp;
    for (tasks, found) in [(1, false), (3, true)] {
        let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
        lab.sh.rqs[0].clock = lab.now;
        lab.tasks(2, tasks);
        lab.sh.domains.overload = true;
        lab.newidle(0);
        assert_eq!(stamp(&lab), if found { Ns::ZERO } else { lab.now }, "{tasks} tasks");
    }
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 10);
    lab.tasks(2, 1);
    lab.sh.domains.overload = true;
    lab.sh.rqs[0].clock = lab.now;
    gets_work_meanwhile(&mut lab);
    assert_eq!(stamp(&lab), Ns::ZERO);
}

/// Up to 6.6 a task of its own ends the walk as well; later the next domain is asked and refuses,
/// without a look at its groups.
#[test]
fn a_task_of_its_own_ends_the_walk() {
    for (k, passes) in [(no_dice(), 0), (Release { ni_random: false, ..v6_12() }, 1)] {
        let mut lab = Lab::new(&k, 2, 4, 1, 10);
        lab.tasks(4, 1);
        lab.sh.domains.overload = true;
        gets_work_meanwhile(&mut lab);
        assert_eq!(lab.lb(0, 0, IdleType::Newidle).count, 1);
        let above = lab.lb(0, 1, IdleType::Newidle);
        assert_eq!((above.count, above.balanced, above.nobusyg), (passes, passes, 0));
    }
}

/// 6.12: so does what was pulled.
#[test]
fn a_pull_ends_the_walk() {
    let mut lab = Lab::new(&Release { ni_random: false, ..v6_12() }, 2, 4, 1, 0);
    lab.tasks(2, 3);
    assert_eq!(lab.newidle(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.lb(0, 1, IdleType::Newidle).count, 0);
}

/// Jiffy 250; the cache's domain is due at 301 (1 jiffy), the machine's at 102 (8 ms, 2 jiffies).
/// Where the CPU looks at the first domain only, the second does not count.
#[test]
fn the_next_periodic_balancing_comes_no_later() {
    for (overload, next) in [(false, 301), (true, 102)] {
        let mut lab = Lab::new(&no_dice(), 2, 4, 1, 0);
        lab.sh.domains.overload = overload;
        lab.sh.rqs[0].next_balance = 10_000;
        lab.state(0, 0).last_balance = 300;
        lab.state(0, 1).last_balance = 100;
        lab.newidle(0);
        assert_eq!(lab.sh.rq(Cpu(0)).next_balance, next);
    }
    // Nothing to balance: in a second.
    let mut lab = Lab::new(&no_dice(), 1, 1, 1, 0);
    lab.sh.rqs[0].next_balance = u64::MAX;
    lab.newidle(0);
    assert_eq!(lab.sh.rq(Cpu(0)).next_balance, 250 + 250);
}

/// All costs 10 ns: the pass over the cache takes 80, which with 120 is what the CPU expects to be
/// idle for, with 121 is more.
#[test]
fn what_a_pass_took_counts_against_the_idle_time() {
    for (cost, passes) in [(120, 1), (121, 0)] {
        let mut lab = Lab::new(&no_dice(), 2, 4, 1, 10);
        lab.tasks(4, 1);
        lab.sh.domains.overload = true;
        lab.sh.rqs[0].avg_idle = Ns(200);
        lab.state(0, 1).max_newidle_lb_cost = cost;
        lab.newidle(0);
        assert_eq!(lab.lb(0, 1, IdleType::Newidle).count, passes);
        // Booked under its own name.
        let rows = lab.sh.ledger.rows();
        let booked = |func| rows.iter().any(|r| r.0 == func && r.2 > Ns::ZERO);
        assert!(booked(Func::Newidle) && !booked(Func::LoadBalance));
    }
}

/// All costs 0.1 ms: 0.5 for the pass, 0.3 for six lines of three CPUs, which overlap by half.
#[test]
fn dear_passes_are_remembered() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 100_000);
    lab.sh.rqs[0].avg_idle = Ns::from_ms(100);
    lab.tasks(2, 1);
    lab.sh.domains.overload = true;
    lab.newidle(0);
    assert_eq!(lab.sh.rq(Cpu(0)).max_idle_balance_cost, Ns(800_000));
    // 6.18: a successful one at most migration_cost and 200 ns.
    let mut lab = Lab::new(&Release { ni_random: false, ..v6_18() }, 1, 4, 1, 100_000);
    lab.sh.rqs[0].avg_idle = Ns::from_ms(100);
    lab.tasks(2, 3);
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
    assert_eq!(lab.state(0, 0).max_newidle_lb_cost, 500_200);
}

/// 6.18: what a successful pass took counts as it is, a failed one as half as much again as ever.
#[test]
fn a_success_costs_what_it_took() {
    let mut lab = Lab::new(&Release { ni_random: false, ..v6_18() }, 1, 4, 1, 10);
    lab.tasks(2, 3);
    lab.state(0, 0).max_newidle_lb_cost = 20;
    let began = lab.now;
    lab.newidle(0);
    assert_eq!(lab.moved().len(), 1);
    let took = (lab.now - began).0;
    let cost = lab.state(0, 0).max_newidle_lb_cost;
    assert!(cost > 100 && cost <= took, "{cost} of {took}");
}

/// NI_RANDOM: searched if the draw d is no more than r = 1 + ratio; a success then counts
/// (1024 + r/2)/r.
#[test]
fn the_chance_of_a_search_and_what_success_counts() {
    let draw = |lab: &Lab, n| lab.sh.noise.below(Stream::NiRandom, 0, n, 1024) as u32;
    // A machine that has drawn `n` times.
    let drawn = |n: u64| {
        let mut lab = Lab::new(&v6_1(), 1, 4, 1, 10);
        for _ in 0..n {
            lab.sh.domains.overload = true;
            lab.state(0, 0).newidle_ratio = 1023;
            lab.newidle(0);
        }
        assert_eq!(lab.lb(0, 0, IdleType::Newidle).count, n, "all were searched");
        lab.tasks(2, 3);
        lab
    };
    // A draw with which one rounding or another shows.
    let first = drawn(0);
    let rounds_up = |d| (40..120).contains(&d) && (1024 + d / 2) / d > 1024 / d;
    let n = (0..).find(|n| rounds_up(draw(&first, *n))).unwrap();
    let d = draw(&first, n);
    for (ratio, searched) in [(d - 2, false), (d - 1, true)] {
        let mut lab = drawn(n);
        let s = lab.state(0, 0);
        (s.newidle_ratio, s.newidle_call, s.newidle_success) = (ratio, 0, 0);
        lab.newidle(0);
        let s = *lab.state(0, 0);
        let weight = if searched { (1024 + d / 2) / d } else { 0 };
        assert_eq!((s.newidle_call, s.newidle_success), (1, weight), "draw {d}, ratio {ratio}");
        assert_eq!(lab.lb(0, 0, IdleType::Newidle).count, n + u64::from(searched));
    }
    // A failure counts as a call.
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 10);
    lab.tasks(2, 1);
    lab.sh.domains.overload = true;
    lab.newidle(0);
    let s = lab.state(0, 0);
    assert_eq!((s.newidle_call, s.newidle_success), (513, 256));
}

/// The second task of a CPU makes the machine overloaded; the first and the third change nothing.
#[test]
fn overload_is_set_by_the_second_task() {
    for (before, now, overload) in [(0, 1, false), (1, 2, true), (0, 2, true), (2, 3, false)] {
        let mut lab = Lab::new(&no_dice(), 1, 4, 1, 10);
        lab.sh.loads[1].nr_running = now;
        let grew = |lab: &mut Lab| {
            let began = lab.now;
            lab.at(1, |_, _, cx| crate::balance::nr_running_grew(cx, Cpu(1), before));
            lab.now > began
        };
        // The line is written once.
        assert_eq!((grew(&mut lab), grew(&mut lab)), (overload, false), "{before} to {now}");
        assert_eq!(lab.sh.domains.overload, overload);
    }
}

/// CPUs 0 and 2 look for work at the same time. CPU 0 is still reading what the other node has when
/// CPU 2 comes to that level: from 6.19 on that one does not search it.
#[test]
pub(crate) fn newidle_passes_of_numa_levels_are_one_at_a_time_from_6_19_on() {
    for (k, searches) in [(v6_18(), 1), (v6_18_44(), 0)] {
        let k = Release { ni_random: false, ..k };
        let mut lab = Lab::numa(&k, 2, 1, 10);
        let began = lab.now;
        for c in [0, 2] {
            lab.sh.domains.overload = true;
            lab.now = began;
            lab.newidle(c);
        }
        assert_eq!(lab.lb(0, 1, IdleType::Newidle).nobusyg, 1);
        let lb = lab.lb(2, 1, IdleType::Newidle);
        assert_eq!((lb.count, lb.balanced, lb.nobusyg), (1, 1, searches));
    }
}
