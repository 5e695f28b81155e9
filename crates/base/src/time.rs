//! Real time in whole nanoseconds, and virtual time as a type of its own so that the two cannot
//! be mixed up by accident.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Nanoseconds: a moment since the start of the run, or a span.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ns(pub u64);

impl Ns {
    /// Zero.
    pub const ZERO: Ns = Ns(0);
    /// Later than everything that happens; fits the event key (`time << 12 | slot`).
    pub const NEVER: Ns = Ns(u64::MAX >> 12);
    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Ns {
        Ns(us * 1_000)
    }
    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Ns {
        Ns(ms * 1_000_000)
    }
    /// `self - other`, or zero where `other` is later.
    #[inline(always)]
    pub fn saturating_sub(self, other: Ns) -> Ns {
        Ns(self.0.saturating_sub(other.0))
    }
    /// `self · num / den`, rounded down, with a 128-bit intermediate.
    #[inline]
    pub fn mul_div(self, num: u64, den: u64) -> Ns {
        Ns((u128::from(self.0) * u128::from(num) / u128::from(den)) as u64)
    }
    /// So many thousandths of it, rounded down; for times below 52 days.
    #[inline(always)]
    pub fn permille(self, n: u32) -> Ns {
        Ns(self.0 * u64::from(n) / 1000)
    }
}
impl Add for Ns {
    type Output = Ns;
    #[inline(always)]
    fn add(self, o: Ns) -> Ns {
        Ns(self.0 + o.0)
    }
}
impl Sub for Ns {
    type Output = Ns;
    #[inline(always)]
    fn sub(self, o: Ns) -> Ns {
        Ns(self.0 - o.0)
    }
}
impl AddAssign for Ns {
    #[inline(always)]
    fn add_assign(&mut self, o: Ns) {
        self.0 += o.0;
    }
}
impl SubAssign for Ns {
    #[inline(always)]
    fn sub_assign(&mut self, o: Ns) {
        self.0 -= o.0;
    }
}
impl fmt::Display for Ns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// Virtual time (`vruntime`, `deadline`, `min_vruntime`): wraps, so compare by signed difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct VTime(pub u64);

impl VTime {
    /// `self - other` as a signed distance; right as long as the two lie within 2^63 ns.
    #[inline(always)]
    pub fn since(self, other: VTime) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
    /// `self` is strictly earlier than `other`.
    #[inline(always)]
    pub fn before(self, other: VTime) -> bool {
        self.since(other) < 0
    }
    /// `self` moved by a signed distance.
    #[inline(always)]
    pub fn plus(self, d: i64) -> VTime {
        VTime(self.0.wrapping_add(d as u64))
    }
    /// The later of the two.
    #[inline(always)]
    pub fn later(self, other: VTime) -> VTime {
        if self.before(other) { other } else { self }
    }
    /// The earlier of the two.
    #[inline(always)]
    pub fn earlier(self, other: VTime) -> VTime {
        if other.before(self) { other } else { self }
    }
}
