//! How many events a recorder lost, and of which CPU.

use std::collections::BTreeMap;

/// Events that a recorder says it lost, by CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost(BTreeMap<u16, u64>);

impl Lost {
    /// `n` more of `cpu`. What is of no known CPU counts as the first one's.
    pub fn add(&mut self, cpu: Option<u16>, n: u64) {
        if n > 0 {
            let lost = self.0.entry(cpu.unwrap_or(0)).or_default();
            *lost = lost.saturating_add(n);
        }
    }

    /// At least as many of each CPU as `other` says: two reports of the same loss.
    pub(crate) fn at_least(&mut self, other: &Lost) {
        for (cpu, n) in other.by_cpu() {
            let lost = self.0.entry(cpu).or_default();
            *lost = n.max(*lost);
        }
    }

    /// The one of two reports of the same losses that has more of them.
    pub(crate) fn or_more(self, other: Lost) -> Lost {
        if other.total() > self.total() { other } else { self }
    }

    /// CPUs that lost some, and how many.
    pub fn by_cpu(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.0.iter().map(|(cpu, n)| (*cpu, *n))
    }

    /// Of all CPUs.
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }
}
