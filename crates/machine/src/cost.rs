//! One value of the cost table: a range, the value the model uses, and a source.

use crate::SpecError;
use crate::topology::Distance;
use serde::{Deserialize, Serialize};

/// A value with its uncertainty and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// The least that is plausible.
    pub low: u32,
    /// What the model uses.
    pub mid: u32,
    /// The most that is plausible.
    pub high: u32,
    /// Where the value comes from: a publication, memory, or the reasoning of an estimate.
    pub source: String,
}

/// `ns` · `permille`/1000, rounded to nearest, at most [`Cost::MAX`].
pub(crate) fn scaled(ns: u32, permille: u32) -> u32 {
    let exact = (u64::from(ns) * u64::from(permille) + 500) / 1000;
    exact.min(u64::from(Cost::MAX)) as u32
}

impl Cost {
    /// The largest value a cost may have: a tenth of a second, more than any path takes; sums of a
    /// few of them fit into 32 bits.
    pub const MAX: u32 = 100_000_000;

    /// Checks `low ≤ mid ≤ high ≤ MAX` and that a source is named.
    pub fn check(&self, name: &str) -> Result<(), SpecError> {
        if !(self.low <= self.mid && self.mid <= self.high) {
            let found = format!("low {}, mid {}, high {}", self.low, self.mid, self.high);
            return Err(SpecError::new(name, found, "low ≤ mid ≤ high"));
        }
        if self.high > Cost::MAX {
            return Err(SpecError::new(name, self.high, format!("at most {}", Cost::MAX)));
        }
        if self.source.trim().is_empty() {
            return Err(SpecError::new(name, "no source", "where the value comes from"));
        }
        Ok(())
    }
    /// Multiplies the value and its range by `permille`/1000, rounded, at most [`Cost::MAX`].
    pub fn scale(&mut self, permille: u32) {
        for ns in [&mut self.low, &mut self.mid, &mut self.high] {
            *ns = scaled(*ns, permille);
        }
    }
    /// The value in low … high that 64 uniform bits select.
    pub fn draw(&self, bits: u64) -> u32 {
        let span = u64::from(self.high - self.low) + 1;
        self.low + ((u128::from(bits) * u128::from(span)) >> 64) as u32
    }
}

/// One [`Cost`] for each [`Distance`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistanceCost {
    /// The same CPU.
    pub same: Cost,
    /// Another thread of the core.
    pub smt: Cost,
    /// Another core with the same L2.
    pub l2: Cost,
    /// The same last-level cache group.
    pub llc: Cost,
    /// The same socket.
    pub package: Cost,
    /// Another socket.
    pub remote: Cost,
}

impl DistanceCost {
    /// The cost of one class.
    pub fn at(&self, d: Distance) -> &Cost {
        match d {
            Distance::Same => &self.same,
            Distance::Smt => &self.smt,
            Distance::L2 => &self.l2,
            Distance::Llc => &self.llc,
            Distance::Package => &self.package,
            Distance::Remote => &self.remote,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_rounds_and_stays_in_bounds() {
        let mut c = Cost { low: 1, mid: 3, high: 5, source: "test".into() };
        c.scale(1500);
        assert_eq!((c.low, c.mid, c.high), (2, 5, 8));
        c.scale(u32::MAX);
        c.scale(u32::MAX);
        assert_eq!(c.high, Cost::MAX);
    }

    #[test]
    fn draws_cover_the_range_and_nothing_else() {
        let c = Cost { low: 10, mid: 12, high: 19, source: "test".into() };
        assert_eq!(c.draw(0), 10);
        assert_eq!(c.draw(u64::MAX), 19);
        assert_eq!(c.draw(1 << 63), 15);
    }

    #[test]
    fn a_range_must_ascend_and_have_a_source() {
        let mut c = Cost { low: 3, mid: 2, high: 9, source: "test".into() };
        assert!(c.check("x").is_err());
        c.mid = 3;
        assert!(c.check("x").is_ok());
        c.source = " ".into();
        assert!(c.check("x").is_err());
    }
}
