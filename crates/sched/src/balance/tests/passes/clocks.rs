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
