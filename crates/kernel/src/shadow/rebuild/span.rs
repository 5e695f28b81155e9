//! Intervals of virtual time.

/// Nothing is known: further than any real distance, near enough for sums.
pub const FAR: i64 = 1 << 40;

/// An interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Lowest.
    pub lo: i64,
    /// Highest.
    pub hi: i64,
}

impl Span {
    /// Nothing is known.
    pub const ANY: Span = Span { lo: -FAR, hi: FAR };
    /// One value.
    pub const fn at(v: i64) -> Span {
        Span { lo: v, hi: v }
    }
    /// Midway.
    pub fn middle(self) -> i64 {
        self.lo + (self.hi - self.lo) / 2
    }
    /// How far from the middle an end may be.
    pub fn slop(self) -> i64 {
        self.hi - self.middle()
    }
    /// Both ends further apart by `by`.
    pub fn widened(self, by: i64) -> Span {
        Span { lo: self.lo - by, hi: self.hi + by }
    }
    /// All differences.
    pub fn minus(self, o: Span) -> Span {
        Span { lo: self.lo - o.hi, hi: self.hi - o.lo }
    }
    /// All sums.
    pub fn plus(self, o: Span) -> Span {
        Span { lo: self.lo + o.lo, hi: self.hi + o.hi }
    }
    pub(super) fn max(self, o: Span) -> Span {
        Span { lo: self.lo.max(o.lo), hi: self.hi.max(o.hi) }
    }
    pub(super) fn min(self, o: Span) -> Span {
        Span { lo: self.lo.min(o.lo), hi: self.hi.min(o.hi) }
    }
    pub(super) fn hull(self, o: Span) -> Span {
        Span { lo: self.lo.min(o.lo), hi: self.hi.max(o.hi) }
    }
    pub(super) fn clamp(self, lo: i64, hi: i64) -> Span {
        Span { lo: self.lo.clamp(lo, hi), hi: self.hi.clamp(lo, hi) }
    }
}
