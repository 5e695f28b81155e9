//! A benchmark's time from a window of it.
//!
//! *What.* Each group goes on at the rate it had in the window until it is through; the CPU time of
//! those that are through goes to the others, as far as their tasks were waiting for a CPU. The
//! last group's end is the benchmark's.
//! *Source.* hackbench's own: it ends with its slowest group.
//! *Equations.* r = messages of a group in the window / its length; R = that of all groups. While
//! the groups of a set S are left, each of them goes at s · r, s = min(R / Σ_S r, 1 + w / t): w time
//! that tasks of the window waited on a run queue, t time that they ran.
//! *Departures.* D1: all messages take the same CPU time. D2: whoever does not wait for a CPU gains
//! nothing by a free one. D3: the window's rates are taken for those of the whole run.
//! *Example.* One CPU, two groups with 100 messages left: one made 30, the other 10 in 1 s. After
//! 3.33 s the first is through; the other has 66.7 left and, having waited for three quarters of
//! the time, now makes 40 a second: 1.67 s more.

use crate::record::GroupProgress;
use vruntime_base::Ns;

/// The time from `start` to the end of the last group after the `window`; `most` is the factor by
/// which tasks that wait for nobody are faster. `None` if a group that is left made no progress.
pub fn extrapolate(groups: &[GroupProgress], start: Ns, window: (Ns, Ns), most: f64) -> Option<Ns> {
    let made = |g: &GroupProgress| g.at_window_end - g.at_window_start;
    let mut left: Vec<&GroupProgress> = groups.iter().filter(|g| g.finished_at.is_none()).collect();
    if groups.is_empty() || left.iter().any(|g| made(g) == 0) {
        return None;
    }
    // In windows, at the window's own rate.
    let needs = |g: &GroupProgress| (g.goal - g.at_window_end) as f64 / made(g) as f64;
    left.sort_by(|a, b| needs(a).total_cmp(&needs(b)));
    let all: u64 = groups.iter().map(made).sum();
    let mut rest: u64 = left.iter().map(|g| made(g)).sum();
    let (mut windows, mut through) = (0.0, 0.0);
    for g in left {
        let faster = (all as f64 / rest as f64).min(most);
        windows += (needs(g) - through) / faster;
        through = needs(g);
        rest -= made(g);
    }
    let (from, to) = window;
    let last_known = groups.iter().filter_map(|g| g.finished_at).max().unwrap_or(start);
    let end =
        if windows > 0.0 { to + Ns(((to - from).0 as f64 * windows) as u64) } else { last_known };
    Some(end.saturating_sub(start))
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
        let got = extrapolate(&groups, MS(0), (MS(100), MS(200)), 1.0);
        assert_eq!(got, Some(MS(200 + 800)));
    }

    /// The header's example: two groups on one CPU share what it does, 40 messages a second.
    #[test]
    fn one_cpu_does_all_the_work_in_any_case() {
        let groups = [group(130, 0, 30), group(110, 0, 10)];
        let window = (Ns::ZERO, MS(1000));
        let got = extrapolate(&groups, MS(0), window, 4.0).unwrap();
        assert!(got.0.abs_diff(MS(1000 + 5000).0) < 10, "{got}");
        // Half of the wait remains: the last group is twice as fast as it was, 20 a second.
        let got = extrapolate(&groups, MS(0), window, 2.0).unwrap();
        assert!(got.0.abs_diff(MS(1000 + 3333 + 3333).0 + 666_666) < 10, "{got}");
    }

    #[test]
    fn a_group_without_progress_tells_nothing() {
        assert_eq!(extrapolate(&[group(10, 3, 3)], MS(0), (MS(1), MS(2)), 1.0), None);
        let done = GroupProgress { finished_at: Some(MS(2)), ..group(3, 3, 3) };
        assert_eq!(extrapolate(&[done], MS(0), (MS(1), MS(2)), 1.0), Some(MS(2)));
    }
}
