//! SMT: does a computation take its time, however often its sibling comes and goes?

mod scenario;

use scenario::Scenario;

/// CPU 0 and 1 are a core; a thread beside a busy one has 63/102 of its speed. B and C call each
/// other: 50 us of B, in which A waits, then C for 50 us of work, beside which A computes. Each
/// turn takes 50 us, 81 us for C, and 10 to 20 us of system calls and wakeups; A does some 55 us of
/// its 10 ms in it, so it takes about 180 turns, 26 ms. What is left of A's computation has to
/// be measured in work: it is preempted at one speed and goes on at another, and the speed changes
/// while an interrupt is handled.
#[test]
fn a_sibling_that_comes_and_goes_neither_makes_nor_takes_work() {
    for kernel in ["v6.1", "v6.12"] {
        let text = format!(
            "1x1x2 {kernel}, 60 ms
            A on 0: run 10ms
            B on 0 nice -10: wait 0, run 50us, wake 1, loop
            C on 1: run 50us, wake 0, wait 1, loop"
        );
        let outcome = Scenario::parse(&text).outcome();
        let end = outcome.lines().find(|l| l.contains("A -> ") && l.ends_with("exits"));
        let end = end.unwrap_or_else(|| panic!("{kernel}: A does not end"));
        let at: f64 = end.split_whitespace().next().unwrap().parse().unwrap();
        assert!((20.0..32.0).contains(&at), "{kernel}: {end}");
    }
}
