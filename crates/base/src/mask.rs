//! A set of CPUs with the kernel's iteration order: ascending numbers, or ascending from a given
//! CPU and round to it again (`for_each_cpu_wrap`).

use crate::Cpu;
use std::fmt;

/// The most CPUs a machine may have.
pub const MAX_CPUS: usize = 1024;
const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs 0 … 1023.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CpuMask {
    words: [u64; WORDS],
}

impl Default for CpuMask {
    fn default() -> CpuMask {
        CpuMask::EMPTY
    }
}

impl CpuMask {
    /// The empty set.
    pub const EMPTY: CpuMask = CpuMask { words: [0; WORDS] };

    /// The set {0 … n-1}. Panics if `n` exceeds [`MAX_CPUS`].
    pub fn first_n(n: usize) -> CpuMask {
        assert!(n <= MAX_CPUS);
        let mut m = CpuMask::EMPTY;
        for w in 0..n / 64 {
            m.words[w] = u64::MAX;
        }
        if !n.is_multiple_of(64) {
            m.words[n / 64] = (1 << (n % 64)) - 1;
        }
        m
    }
    /// The CPUs of the first 64 whose bit in `w` is set.
    pub fn from_word(w: u64) -> CpuMask {
        let mut m = CpuMask::EMPTY;
        m.words[0] = w;
        m
    }
    /// The set of the one CPU `c`.
    pub fn one(c: Cpu) -> CpuMask {
        let mut m = CpuMask::EMPTY;
        m.set(c);
        m
    }
    /// Adds `c`.
    #[inline(always)]
    pub fn set(&mut self, c: Cpu) {
        self.words[c.ix() >> 6] |= 1 << (c.ix() & 63);
    }
    /// Takes `c` out.
    #[inline(always)]
    pub fn clear(&mut self, c: Cpu) {
        self.words[c.ix() >> 6] &= !(1 << (c.ix() & 63));
    }
    /// True if `c` is in the set.
    #[inline(always)]
    pub fn has(&self, c: Cpu) -> bool {
        self.words[c.ix() >> 6] >> (c.ix() & 63) & 1 != 0
    }
    /// True for the empty set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }
    /// Number of CPUs in the set.
    #[inline]
    pub fn weight(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }
    /// The lowest CPU, if any.
    #[inline]
    pub fn first(&self) -> Option<Cpu> {
        self.next(0)
    }
    /// The lowest CPU whose number is at least `from`, if any.
    #[inline]
    pub fn next(&self, from: usize) -> Option<Cpu> {
        if from >= MAX_CPUS {
            return None;
        }
        let mut w = from >> 6;
        let mut bits = self.words[w] & (u64::MAX << (from & 63));
        loop {
            if bits != 0 {
                return Some(Cpu((w * 64 + bits.trailing_zeros() as usize) as u16));
            }
            w += 1;
            if w == WORDS {
                return None;
            }
            bits = self.words[w];
        }
    }
    /// Members of both sets.
    #[inline]
    pub fn and(&self, o: &CpuMask) -> CpuMask {
        let mut m = *self;
        for (a, b) in m.words.iter_mut().zip(&o.words) {
            *a &= b;
        }
        m
    }
    /// Members of either set.
    #[inline]
    pub fn or(&self, o: &CpuMask) -> CpuMask {
        let mut m = *self;
        for (a, b) in m.words.iter_mut().zip(&o.words) {
            *a |= b;
        }
        m
    }
    /// Members of `self` that are not in `o`.
    #[inline]
    pub fn minus(&self, o: &CpuMask) -> CpuMask {
        let mut m = *self;
        for (a, b) in m.words.iter_mut().zip(&o.words) {
            *a &= !b;
        }
        m
    }
    /// True if every member of `self` is in `o`.
    pub fn is_subset(&self, o: &CpuMask) -> bool {
        self.words.iter().zip(&o.words).all(|(a, b)| a & !b == 0)
    }
    /// True if the sets share a member.
    #[inline]
    pub fn intersects(&self, o: &CpuMask) -> bool {
        self.words.iter().zip(&o.words).any(|(a, b)| a & b != 0)
    }
    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + use<> {
        Walk { mask: *self, at: 0, end: MAX_CPUS }
    }
    /// Members in ascending order from `start` on, then those below it: every member once.
    pub fn iter_wrap(&self, start: usize) -> impl Iterator<Item = Cpu> + use<> {
        let start = start.min(MAX_CPUS);
        Walk { mask: *self, at: start, end: MAX_CPUS }.chain(Walk {
            mask: *self,
            at: 0,
            end: start,
        })
    }
}

impl FromIterator<Cpu> for CpuMask {
    fn from_iter<I: IntoIterator<Item = Cpu>>(it: I) -> Self {
        let mut m = CpuMask::EMPTY;
        for c in it {
            m.set(c);
        }
        m
    }
}

struct Walk {
    mask: CpuMask,
    at: usize,
    end: usize,
}
impl Iterator for Walk {
    type Item = Cpu;
    #[inline]
    fn next(&mut self) -> Option<Cpu> {
        let c = self.mask.next(self.at)?;
        if c.ix() >= self.end {
            return None;
        }
        self.at = c.ix() + 1;
        Some(c)
    }
}

/// As the kernel prints a list of CPUs: `0-3,8,10-11`.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut from = 0;
        let mut sep = "";
        while let Some(a) = self.next(from) {
            let mut b = a.ix();
            while b + 1 < MAX_CPUS && self.has(Cpu::from_ix(b + 1)) {
                b += 1;
            }
            if b == a.ix() {
                write!(f, "{sep}{a}")?;
            } else {
                write!(f, "{sep}{a}-{b}")?;
            }
            sep = ",";
            from = b + 1;
        }
        Ok(())
    }
}
impl fmt::Debug for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_like_the_kernel() {
        let m: CpuMask = [3, 64, 65, 70, 1023].into_iter().map(Cpu).collect();
        let wrap: Vec<u16> = m.iter_wrap(65).map(|c| c.0).collect();
        assert_eq!(wrap, [65, 70, 1023, 3, 64]);
        let plain: Vec<u16> = m.iter().map(|c| c.0).collect();
        assert_eq!(plain, [3, 64, 65, 70, 1023]);
        assert_eq!(m.iter_wrap(1024).count(), 5);
    }

    #[test]
    fn prints_like_the_kernel() {
        let m: CpuMask = [0, 1, 2, 8, 10, 11].into_iter().map(Cpu).collect();
        assert_eq!(m.to_string(), "0-2,8,10-11");
        assert_eq!(CpuMask::first_n(1024).weight(), 1024);
        assert_eq!(CpuMask::first_n(5).to_string(), "0-4");
    }

    #[test]
    fn set_algebra() {
        let a = CpuMask::first_n(70);
        let b = CpuMask::first_n(66);
        assert_eq!(a.minus(&b).to_string(), "66-69");
        assert!(b.is_subset(&a) && !a.is_subset(&b));
        assert_eq!(a.and(&b), b);
        assert_eq!(a.or(&b), a);
    }
}
