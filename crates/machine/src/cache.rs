//! Cold caches: what is paid to refetch data that was left elsewhere or pushed out.
//!
//! **What.** A task has a footprint. On another CPU the part that its old CPU's caches could hold
//! is fetched again, from the nearest level that both CPUs share. On its own CPU it is fetched from
//! the nearest level that holds it together with what has passed the CPU's caches since.
//! **Source.** Load latencies and cache sizes per machine (its file); parallelism of misses as
//! usual for pointer-light kernel and message code.
//! **Equations.** `refill = min(footprint, held) · refill_kib[distance]`, where `held` is the L1
//! for a CPU that shares the L2, the L2 for one that shares the LLC, and the LLC beyond it.
//! **Departures.** D1: caches lose the oldest data first and hold nothing but footprints and what
//! else is said to have passed; what is pushed out of the LLC comes back at its price. D2: no
//! bandwidth limit. D3: code is part of the footprint.
//! **Example.** L2 512 KiB, `refill_kib.llc` = 60: a footprint of 100 KiB costs 6 µs, one of 4 MiB
//! costs 30.72 µs. L1 32 KiB, `refill_kib.l2` = 25: 4 KiB cost nothing after 28 KiB of other tasks
//! and 100 ns after 29.

use crate::topology::Distance;
use serde::{Deserialize, Serialize};
use vruntime_base::Ns;

/// Cache sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caches {
    /// L1 data cache of a core, KiB.
    pub l1_kib: u32,
    /// One L2, KiB.
    pub l2_kib: u32,
    /// One last-level cache, MiB; the L2 where that is the last.
    pub llc_mib: u32,
}

impl Caches {
    /// How much of a footprint must be fetched again at each distance, KiB.
    pub fn held_kib(&self) -> [u32; 6] {
        let llc_kib = self.llc_mib.saturating_mul(1024);
        [0, 0, self.l1_kib, self.l2_kib, llc_kib, llc_kib]
    }

    /// From where a footprint comes back on the CPU where it was used last, after `others_kib` have
    /// passed.
    pub fn pushed_to(&self, footprint_kib: u32, others_kib: u32) -> Distance {
        let kib = footprint_kib.saturating_add(others_kib);
        match others_kib {
            0 => Distance::Same,
            _ if kib <= self.l1_kib => Distance::Same,
            _ if kib <= self.l2_kib => Distance::L2,
            _ => Distance::Llc,
        }
    }
}

/// Cost of fetching `footprint_kib` again at `distance`; `rate` is ns per KiB by distance.
pub fn refill(footprint_kib: u32, distance: Distance, held_kib: &[u32; 6], rate: &[u32; 6]) -> Ns {
    let d = distance as usize;
    Ns(u64::from(footprint_kib.min(held_kib[d])) * u64::from(rate[d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example() {
        let held = Caches { l1_kib: 32, l2_kib: 512, llc_mib: 32 }.held_kib();
        let rate = [0, 0, 25, 60, 130, 260];
        assert_eq!(refill(100, Distance::Llc, &held, &rate), Ns(6_000));
        assert_eq!(refill(4096, Distance::Llc, &held, &rate), Ns(30_720));
        assert_eq!(refill(4096, Distance::Smt, &held, &rate), Ns(0));
        assert_eq!(refill(100, Distance::L2, &held, &rate), Ns(800));
    }

    #[test]
    fn others_push_a_footprint_outwards() {
        let caches = Caches { l1_kib: 32, l2_kib: 512, llc_mib: 32 };
        let rate = [0, 0, 25, 60, 130, 260];
        let cost =
            |own, others| refill(own, caches.pushed_to(own, others), &caches.held_kib(), &rate);
        assert_eq!([cost(4, 0), cost(4, 28), cost(4, 29)], [Ns(0), Ns(0), Ns(100)]);
        assert_eq!([cost(4, 508), cost(4, 509)], [Ns(100), Ns(240)]);
        // Alone, even a footprint larger than the L1 finds what is there to be found.
        assert_eq!(cost(100, 0), Ns(0));
        assert_eq!(cost(100, u32::MAX), Ns(6_000));
    }
}
