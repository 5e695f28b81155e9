//! A histogram of nanoseconds: powers of two, each in 128 equal parts, so that the middle of a
//! part is within 0.4 % of each value in it.

use crate::Ns;

/// Binary digits of a part's number.
const DIGITS: u64 = 7;
const SUB: u64 = 1 << DIGITS;
/// Powers of two up to that of two hours, and what is below the first.
const BUCKETS: usize = (44 - DIGITS as usize) * SUB as usize;

/// Counts of durations from 0 ns to about two hours; longer ones count in the last bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS], total: 0, sum: 0, max: 0 }
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    if ns < SUB {
        return ns as usize;
    }
    let top = 63 - u64::from(ns.leading_zeros());
    let part = (ns >> (top - DIGITS)) & (SUB - 1);
    (((top - DIGITS + 1) * SUB + part) as usize).min(BUCKETS - 1)
}

/// Middle of bucket `b` in ns.
fn middle(b: usize) -> u64 {
    let (row, part) = (b as u64 / SUB, b as u64 % SUB);
    if row == 0 {
        return part;
    }
    let width = 1 << (row - 1);
    (SUB + part) * width + width / 2
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, d: Ns) {
        self.counts[bucket(d.0)] += 1;
        self.total += 1;
        self.sum += d.0;
        self.max = self.max.max(d.0);
    }
    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.total
    }
    /// The longest duration.
    pub fn max(&self) -> Ns {
        Ns(self.max)
    }
    /// Mean, zero if empty.
    pub fn mean(&self) -> Ns {
        Ns(self.sum.checked_div(self.total).unwrap_or(0))
    }
    /// The smallest duration that at least `per_mille`/1000 of all do not exceed (middle of its
    /// bucket, never above the maximum); zero if empty.
    pub fn per_mille(&self, per_mille: u64) -> Ns {
        let want = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (b, &n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= want {
                return Ns(middle(b).min(self.max));
            }
        }
        Ns(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_near_the_middle_of_its_bucket() {
        for ns in [0, 1, 127, 128, 129, 255, 256, 257, 12_345, (1 << 30) - 1, (1 << 42) + 12345] {
            let m = middle(bucket(ns));
            assert!(m.abs_diff(ns) * 256 <= ns, "{ns} -> {m}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles() {
        let mut h = Histogram::default();
        for i in 1..=1000 {
            h.record(Ns(i * 1000));
        }
        let p50 = h.per_mille(500).0;
        assert!(p50.abs_diff(500_000) < 2_000, "{p50}");
        assert!(h.per_mille(1000).0.abs_diff(1_000_000) < 4_000);
        assert_eq!(h.mean(), Ns(500_500));
        assert_eq!(h.max(), Ns(1_000_000));
    }
}
