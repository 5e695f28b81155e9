//! A benchmark's time from a window of it.
//!
//! *What.* Each group goes on at the rate it had in the window until it is through; the CPU time of
//! those that are through goes to the others, as far as their tasks were waiting for a CPU. The
//! last group's end is the benchmark's.
//! *Source.* hackbench's own: it ends with its slowest group.
//! *Equations.* r = messages of a group in the window / its length; R = that of all groups. While
//! the groups of a set S are left, each of them goes at s · r, s = min(R / Σ_S r, 1 + w / t): of
//! the group's tasks w were seen waiting for a CPU and t running, all told, once a millisecond.
//! *Departures.* D1: all messages take the same CPU time. D2: whoever does not wait for a CPU gains
//! nothing by a free one. D3: the window's rates are taken for those of the whole run. D4: of more
//! than 100 groups those end together that are within a thousandth of the time.
//! *Example.* One CPU, two groups with 100 messages left: one made 30, the other 10 in 1 s, in
//! which its task waited for 750 ms and ran for 250. After 3.33 s the first is through; the other
//! has 66.7 left and now makes 40 a second: 1.67 s more.

use crate::record::GroupProgress;
use vruntime_base::Ns;

/// One, as the factor of a rate.
const ONE: u128 = 1 << 32;
/// So many groups are followed one by one.
const FEW: usize = 100;

/// A group that is not through.
struct Left {
    /// Time that it needs at the window's rate, ns.
    needs: u128,
    /// Messages in the window.
    made: u128,
    /// By how much it can go faster.
    most: u128,
}

/// The time from `start` to the end of the last group after the `window`. `None` if a group that is
/// left made no progress.
pub fn extrapolate(groups: &[GroupProgress], start: Ns, window: (Ns, Ns)) -> Option<Ns> {
    let made = |g: &GroupProgress| u128::from(g.at_window_end - g.at_window_start);
    let is_left = |g: &&GroupProgress| g.finished_at.is_none();
    if groups.is_empty() || groups.iter().filter(is_left).any(|g| made(g) == 0) {
        return None;
    }
    if groups.iter().all(|g| g.finished_at.is_some()) {
        return groups.iter().filter_map(|g| g.finished_at).max().map(|end| end - start);
    }
    let (from, to) = window;
    let span = u128::from((to - from).0);
    let all: u128 = groups.iter().map(made).sum();
    let mut left: Vec<Left> = groups
        .iter()
        .filter(is_left)
        .map(|g| Left {
            needs: u128::from(g.goal - g.at_window_end) * span / made(g),
            made: made(g),
            most: match (u128::from(g.seen_running), u128::from(g.seen_waiting)) {
                // Never seen to run: nothing is known of a limit.
                (0, _) => u128::from(u64::MAX),
                (ran, waited) => ONE * (ran + waited) / ran,
            },
        })
        .collect();
    let mut takes = 0;
    while !left.is_empty() {
        let rest: u128 = left.iter().map(|g| g.made).sum();
        let speed = |g: &Left| (ONE * all / rest).min(g.most);
        let first = left.iter().map(|g| (g.needs * ONE).div_ceil(speed(g))).min().unwrap_or(0);
        let step = if left.len() > FEW { first.max((span + takes) / 1_000) } else { first };
        takes += step;
        for g in &mut left {
            g.needs = g.needs.saturating_sub(step * speed(g) / ONE);
        }
        left.retain(|g| g.needs > 0);
    }
    Some((to + Ns(takes as u64)).saturating_sub(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Ns = Ns::from_ms;

    /// A group that made what lies between `a` and `b` in the window, seen running and waiting.
    fn group(goal: u64, a: u64, b: u64, seen: (u64, u64)) -> GroupProgress {
        GroupProgress {
            goal,
            at_window_start: a,
            at_half: 0,
            at_window_end: b,
            finished_at: None,
            seen_running: seen.0,
            seen_waiting: seen.1,
        }
    }

    fn near(got: Option<Ns>, want: Ns) {
        let got = got.unwrap();
        assert!(got.0.abs_diff(want.0) < 10, "{got} is not {want}");
    }

    /// Window 100 … 200 ms after a start at 0: group 0 makes 100 of its remaining 800 in it, group
    /// 1 makes 200 of 1000 remaining. Nobody waits for a CPU.
    #[test]
    fn with_cpus_for_all_the_slowest_group_decides() {
        let groups = [group(1000, 100, 200, (100, 0)), group(1200, 0, 200, (100, 0))];
        near(extrapolate(&groups, MS(0), (MS(100), MS(200))), MS(200 + 800));
    }

    /// The header's example: two groups on one CPU share what it does, 40 messages a second.
    #[test]
    fn one_cpu_does_all_the_work_in_any_case() {
        let window = (Ns::ZERO, MS(1000));
        let with = |seen| [group(130, 0, 30, (750, 250)), group(110, 0, 10, seen)];
        near(extrapolate(&with((250, 750)), MS(0), window), MS(1000 + 5000));
        // It waited half as often: left alone it is twice as fast as it was, 20 a second.
        let got = extrapolate(&with((250, 250)), MS(0), window);
        near(got, MS(1000 + 3333 + 3333) + Ns(666_666));
    }

    /// A group that hardly ran is not held to what the others waited: with the CPU to itself it
    /// does what they did.
    #[test]
    fn a_starved_group_catches_up() {
        let window = (Ns::ZERO, MS(1000));
        let seen = [(500, 500), (500, 500), (1, 999)];
        let [a, b, c] = [100, 100, 1].map(|n| (1000, n));
        let groups: Vec<GroupProgress> = [a, b, c]
            .into_iter()
            .zip(seen)
            .map(|((goal, n), seen)| group(goal, 0, n, seen))
            .collect();
        // 900, 900 and 999 at 201 a second.
        let got = extrapolate(&groups, MS(0), window).unwrap();
        assert!(got.0.abs_diff(MS(1000 + 13_925).0) < MS(10).0, "{got}");
    }

    #[test]
    fn many_groups_end_as_few_do() {
        let window = (Ns::ZERO, MS(1000));
        let groups: Vec<GroupProgress> =
            (0..400).map(|i| group(1000 + i, 0, 50 + i % 7, (10, 30))).collect();
        let sum = |of: fn(&GroupProgress) -> u64| groups.iter().map(of).sum::<u64>();
        // Until few are left the CPUs do as much as in the window; those go four times as fast.
        let (goals, made) = (sum(|g| g.goal), sum(|g| g.at_window_end));
        let got = extrapolate(&groups, MS(0), window).unwrap().0;
        let want = 1_000_000_000 * goals / made;
        assert!(got > want && got < want + want / 30, "{got} is not {want}");
    }

    #[test]
    fn a_group_without_progress_tells_nothing() {
        let window = (MS(1), MS(2));
        assert_eq!(extrapolate(&[group(10, 3, 3, (1, 1))], MS(0), window), None);
        let done = GroupProgress { finished_at: Some(MS(2)), ..group(3, 3, 3, (1, 1)) };
        assert_eq!(extrapolate(&[done], MS(0), window), Some(MS(2)));
    }
}
