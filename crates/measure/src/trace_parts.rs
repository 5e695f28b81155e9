//! Parts of equal length of a timeline, and what the whole would be without one of them.
//!
//! *What.* How far a figure of the whole hangs on single parts: the jackknife that leaves out one
//! part at a time. It gives an interval to any figure, also to shares and percentiles, which are
//! not the means of those of the parts.
//! *Source.* B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapter 11.
//! *Equations.* With θ of the whole and θ₋ᵢ without part i of n, pseudo-value i is
//! θ + (n − 1) (θ̄₋ − θ₋ᵢ), θ̄₋ the mean of all θ₋ᵢ: their mean is θ, and their standard error that
//! of the jackknife. Of a rate they are the parts' own rates.
//! *Departures.* D1: parts count as independent.
//! *Example.* 1, 2 and 6 switches in a second each: θ = 3 a second; without each 4, 3.5 and 1.5;
//! pseudo-values 1, 2 and 6.

use crate::stats::jackknife;
use vruntime_base::Timeline;

/// What is added up.
#[derive(Clone, Copy)]
pub(crate) enum Sum {
    Switches,
    Voluntary,
    Involuntary,
    Wakeups,
    OnPrev,
    OnWaker,
    Elsewhere,
    Migrations,
    BusyNs,
    IdleNs,
    DelayNs,
    Delays,
    TimeNs,
}

/// By [`Sum`].
pub(crate) type Sums = [u64; 13];

/// What happened in one part. Times on a CPU are split where parts meet; a delay belongs to the
/// part in which it ends.
#[derive(Clone, Default)]
struct Part {
    sums: Sums,
    delays: Vec<u64>,
}

/// The parts of a timeline.
pub(crate) struct Parts {
    first: u64,
    length: u64,
    list: Vec<Part>,
}

impl Parts {
    pub fn new(t: &Timeline, slices: usize) -> Parts {
        let first = t.first_time().map_or(0, |first| first.0);
        let length = t.span().0.div_ceil(slices as u64).max(1);
        let mut part = Part::default();
        if t.span().0 > 0 {
            part.sums[Sum::TimeNs as usize] = length;
        }
        Parts { first, length, list: vec![part; slices] }
    }
    fn index(&self, time: u64) -> usize {
        let i = time.saturating_sub(self.first) / self.length;
        (i as usize).min(self.list.len() - 1)
    }
    /// Adds `n` to a sum of the part that `time` lies in.
    pub fn add(&mut self, time: u64, sum: Sum, n: u64) {
        let i = self.index(time);
        let sum = &mut self.list[i].sums[sum as usize];
        *sum = sum.saturating_add(n);
    }
    /// A delay that ended at `time`.
    pub fn delay(&mut self, time: u64, ns: u64) {
        self.add(time, Sum::DelayNs, ns);
        self.add(time, Sum::Delays, 1);
        let i = self.index(time);
        self.list[i].delays.push(ns);
    }
    /// Adds the time from `from` to `to` to a sum of the parts that it lies in.
    pub fn spend(&mut self, from: u64, to: u64, sum: Sum) {
        let (begin, end) = (self.index(from), self.index(to));
        for i in begin..=end {
            let starts = self.first + i as u64 * self.length;
            let from = if i == begin { from } else { starts };
            let to = if i == end { to } else { starts + self.length };
            self.add(from, sum, to - from);
        }
    }
    /// Pseudo-values of a figure that follows from the sums.
    pub fn pseudo(&self, figure: impl Fn(&Sums) -> Option<f64>) -> Vec<Option<f64>> {
        let mut whole = Sums::default();
        for part in &self.list {
            whole.iter_mut().zip(part.sums).for_each(|(w, p)| *w = w.saturating_add(p));
        }
        let without = |part: &Part| {
            let mut less = whole;
            less.iter_mut().zip(part.sums).for_each(|(w, p)| *w -= p);
            figure(&less)
        };
        jackknife(figure(&whole), self.list.iter().map(without).collect())
    }
    /// The longest delay, ns.
    pub fn longest_delay(&self) -> Option<f64> {
        self.list.iter().flat_map(|p| &p.delays).max().map(|&ns| ns as f64)
    }
    /// Pseudo-values of the delay at `percent` (nearest rank), ns.
    pub fn pseudo_delay(&self, percent: u64) -> Vec<Option<f64>> {
        let of_part = |(i, p): (usize, &Part)| p.delays.iter().map(|&ns| (ns, i)).collect();
        let mut all: Vec<(u64, usize)> = vec![];
        self.list.iter().enumerate().for_each(|p| all.extend::<Vec<_>>(of_part(p)));
        all.sort_unstable();
        let mut places: Vec<Vec<usize>> = vec![vec![]; self.list.len()];
        all.iter().enumerate().for_each(|(at, &(_, i))| places[i].push(at));
        // The one of rank `percent` among those that are not at `places`.
        let at_rank = |places: &[usize]| {
            let n = (all.len() - places.len()) as u64;
            let k = ((n * percent).div_ceil(100).max(1) - 1) as usize;
            let before = places.iter().enumerate().take_while(|(j, at)| **at - j <= k).count();
            (n > 0).then(|| all[k + before].0 as f64)
        };
        jackknife(at_rank(&[]), places.iter().map(|p| at_rank(p)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, Event, EventKind, Ns, TaskId};

    /// Three parts of 10 ns.
    fn parts() -> Parts {
        let mut t = Timeline::default();
        for time in [100, 129] {
            let (time, kind) = (Ns(time), EventKind::Runtime);
            let (cpu, task) = (Cpu(0), TaskId(0));
            t.push(Event::new(time, cpu, kind, task));
        }
        Parts::new(&t, 3)
    }

    fn rounded(v: Vec<Option<f64>>) -> Vec<i64> {
        v.into_iter().map(|x| x.unwrap().round() as i64).collect()
    }

    #[test]
    fn pseudo_values_of_a_rate_are_the_parts_rates() {
        let mut p = parts();
        for (time, n) in [(100, 1), (119, 2), (125, 6)] {
            p.add(time, Sum::Switches, n);
        }
        let rate = |s: &Sums| {
            Some(10.0 * s[Sum::Switches as usize] as f64 / s[Sum::TimeNs as usize] as f64)
        };
        assert_eq!(rounded(p.pseudo(rate)), [1, 2, 6]);
    }

    #[test]
    fn time_is_split_where_parts_meet() {
        let mut p = parts();
        p.spend(105, 123, Sum::IdleNs);
        let idle: Vec<u64> = p.list.iter().map(|p| p.sums[Sum::IdleNs as usize]).collect();
        assert_eq!(idle, [5, 10, 3]);
    }

    /// 1 to 9, three to a part: the median is 5, and without each part 6.5, 5 and 3.5 by nearest
    /// rank 6, 3 and 3: 5 + 2 (4 - 6), 5 + 2 (4 - 3) and the same.
    #[test]
    fn a_percentile_is_that_of_all_delays() {
        let mut p = parts();
        (1..=9).for_each(|ns| p.delay(100 + 10 * ((ns - 1) / 3), ns));
        assert_eq!(rounded(p.pseudo_delay(50)), [1, 7, 7]);
        assert_eq!(parts().pseudo_delay(50), [None, None, None]);
    }
}
