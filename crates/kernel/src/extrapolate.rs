//! A benchmark's time from a window of it.
//!
//! *What.* Each group goes on at the rate it had in the window until it is through; the CPU time of
//! those that are through goes to the others, as far as their tasks were waiting for a CPU. The
//! last group's end is the benchmark's.
//! *Source.* hackbench's own: it ends with its slowest group.
//! *Equations.* r = messages of a group in the window / its length; R = that of all groups. While
//! the groups of a set S are left, each of them goes at s · r, s = min(R / Σ_S r, 1 + w / t): in
//! the window tasks waited for w on a run queue and ran for t.
//! *Departures.* D1: all messages take the same CPU time. D2: whoever does not wait for a CPU gains
//! nothing by a free one. D3: the window's rates are taken for those of the whole run.
//! *Example.* One CPU, two groups with 100 messages left: one made 30, the other 10 in 1 s. After
//! 3.33 s the first is through; the other has 66.7 left and, having waited for three quarters of
//! the time, now makes 40 a second: 1.67 s more.

use crate::record::GroupProgress;
use vruntime_base::Ns;

/// The time from `start` to the end of the last group after the `window`, in which tasks ran and
/// waited for so long. `None` if a group that is left made no progress.
pub fn extrapolate(
    groups: &[GroupProgress],
    start: Ns,
    window: (Ns, Ns),
    ran: Ns,
    waited: Ns,
) -> Option<Ns> {
    let made = |g: &GroupProgress| u128::from(g.at_window_end - g.at_window_start);
    let mut left: Vec<&GroupProgress> = groups.iter().filter(|g| g.finished_at.is_none()).collect();
    if groups.is_empty() || left.iter().any(|g| made(g) == 0) {
        return None;
    }
    if left.is_empty() {
        return groups.iter().filter_map(|g| g.finished_at).max().map(|end| end - start);
    }
    // Lengths of time at the window's own rate, in ns.
    let (from, to) = window;
    let span = u128::from((to - from).0);
    let needs = |g: &GroupProgress| u128::from(g.goal - g.at_window_end) * span / made(g);
    left.sort_by_key(|g| needs(g));
    let all: u128 = groups.iter().map(made).sum();
    let mut rest: u128 = left.iter().map(|g| made(g)).sum();
    let (ran, able) = (u128::from(ran.0.max(1)), u128::from((ran + waited).0.max(1)));
    let (mut takes, mut through) = (0, 0);
    for g in left {
        let part = needs(g) - through;
        // Faster by all / rest or by able / ran, whichever is less.
        takes += (part * rest / all).max(part * ran / able);
        through = needs(g);
        rest -= made(g);
    }
    Some((to + Ns(takes as u64)).saturating_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Ns = Ns::from_ms;

    /// A group that made what lies between `a` and `b` in the window.
    fn group(goal: u64, a: u64, b: u64) -> GroupProgress {
        GroupProgress { goal, at_window_start: a, at_window_end: b, finished_at: None }
    }

    /// Window 100 … 200 ms after a start at 0: group 0 makes 100 of its remaining 800 in it, group
    /// 1 makes 200 of 1000 remaining. Nobody waits for a CPU.
    #[test]
    fn with_cpus_for_all_the_slowest_group_decides() {
        let groups = [group(1000, 100, 200), group(1200, 0, 200)];
        let got = extrapolate(&groups, MS(0), (MS(100), MS(200)), MS(100), MS(0));
        assert_eq!(got, Some(MS(200 + 800)));
    }

    /// The header's example: two groups on one CPU share what it does, 40 messages a second.
    #[test]
    fn one_cpu_does_all_the_work_in_any_case() {
        let groups = [group(130, 0, 30), group(110, 0, 10)];
        let window = (Ns::ZERO, MS(1000));
        let got = extrapolate(&groups, MS(0), window, MS(1000), MS(3000)).unwrap();
        assert!(got.0.abs_diff(MS(1000 + 5000).0) < 10, "{got}");
        // Half of the wait remains: the last group is twice as fast as it was, 20 a second.
        let got = extrapolate(&groups, MS(0), window, MS(1000), MS(1000)).unwrap();
        assert!(got.0.abs_diff(MS(1000 + 3333 + 3333).0 + 666_666) < 10, "{got}");
    }

    #[test]
    fn a_group_without_progress_tells_nothing() {
        let window = (MS(1), MS(2));
        assert_eq!(extrapolate(&[group(10, 3, 3)], MS(0), window, MS(1), MS(0)), None);
        let done = GroupProgress { finished_at: Some(MS(2)), ..group(3, 3, 3) };
        assert_eq!(extrapolate(&[done], MS(0), window, MS(1), MS(0)), Some(MS(2)));
    }
}
