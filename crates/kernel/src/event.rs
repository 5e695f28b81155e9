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
/// Nodes of the largest tree. The tree has always this size, so that an index is in it by
/// construction; only the first `2 * leaves` are used.
const NODES: usize = 2 << SLOT_BITS;

/// The winner tree.
pub struct Events {
    tree: Box<[u64; NODES]>,
    leaves: usize,
}

impl Events {
    /// `n` slots (at most 4096), all of them at [`Ns::NEVER`].
    pub fn new(n: usize) -> Events {
        assert!(n <= 1 << SLOT_BITS);
        let tree = vec![u64::MAX; NODES].try_into().expect("that many nodes");
        let mut e = Events { tree, leaves: n.next_power_of_two() };
        for slot in 0..n {
            e.set(slot, Ns::NEVER);
        }
        e
    }
    /// Slot `slot` acts next at `at`: plays all its matches again.
    #[inline]
    pub fn set(&mut self, slot: usize, at: Ns) {
        let mut i = (self.leaves + slot) % NODES;
        let mut winner = at.0 << SLOT_BITS | slot as u64;
        self.tree[i] = winner;
        if i == 1 {
            return;
        }
        loop {
            winner = winner.min(self.tree[(i ^ 1) % NODES]);
            i >>= 1;
            self.tree[i % NODES] = winner;
            if i == 1 {
                return;
            }
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
