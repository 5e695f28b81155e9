//! Which CPU acts next: a binary winner tree over one key per slot.
//!
//! *What.* Every CPU has exactly one next event; so have a few devices. The tree holds the key
//! `time << 12 | slot` of each and the smallest of each pair up to the root, so the next event is
//! read at the root and changing one costs at most log2(n) comparisons, without allocation.
//! *Source.* Tournament trees, Knuth, The Art of Computer Programming 3, 5.4.1.
//! *Equations.* `tree[i] = min(tree[2i], tree[2i+1])`.
//! *Departures.* None.
//! *Example.* See the test: simultaneous events come out in order of slot.

use vruntime_base::Ns;

/// Bits of a key that hold the slot.
const SLOT_BITS: u32 = 12;

/// The winner tree.
pub struct Events {
    tree: Vec<u64>,
    leaves: usize,
}

impl Events {
    /// `n` slots (at most 4096), all of them at [`Ns::NEVER`].
    pub fn new(n: usize) -> Events {
        assert!(n <= 1 << SLOT_BITS);
        let leaves = n.next_power_of_two();
        let mut e = Events { tree: vec![u64::MAX; 2 * leaves], leaves };
        for slot in 0..n {
            e.set(slot, Ns::NEVER);
        }
        e
    }
    /// Slot `slot` acts next at `at`.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Ns) {
        let mut i = self.leaves + slot;
        self.tree[i] = at.0 << SLOT_BITS | slot as u64;
        while i > 1 {
            let winner = self.tree[i].min(self.tree[i ^ 1]);
            i >>= 1;
            if self.tree[i] == winner {
                break;
            }
            self.tree[i] = winner;
        }
    }
    /// The next event: when and which slot.
    #[inline(always)]
    pub fn next(&self) -> (Ns, usize) {
        let key = self.tree[1];
        (Ns(key >> SLOT_BITS), (key & ((1 << SLOT_BITS) - 1)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Noise, Stream};

    #[test]
    fn simultaneous_events_come_in_order_of_slot() {
        let mut e = Events::new(5);
        e.set(3, Ns(10));
        e.set(1, Ns(10));
        e.set(4, Ns(9));
        assert_eq!(e.next(), (Ns(9), 4));
        e.set(4, Ns(11));
        assert_eq!(e.next(), (Ns(10), 1));
        e.set(1, Ns::NEVER);
        assert_eq!(e.next(), (Ns(10), 3));
    }

    #[test]
    fn equals_a_naive_minimum() {
        let noise = Noise::new(7);
        for n in [1usize, 2, 3, 48, 320, 1030] {
            let mut e = Events::new(n);
            let mut naive = vec![Ns::NEVER; n];
            for i in 0..2000 {
                let slot = noise.below(Stream::Test, n as u64, i * 2, n as u64) as usize;
                let at = Ns(noise.below(Stream::Test, n as u64, i * 2 + 1, 1000));
                e.set(slot, at);
                naive[slot] = at;
                let want = naive.iter().enumerate().map(|(s, &t)| (t, s)).min().unwrap();
                assert_eq!(e.next(), want);
            }
        }
    }
}
