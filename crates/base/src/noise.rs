//! Randomness without state: every draw is a function of (seed, stream, entity, counter).
//!
//! Because no generator is shared, adding a task or a CPU shifts nobody else's draws, and the same
//! draw can be made again. The mixing function is splitmix64's finaliser applied twice; its
//! vectors are frozen in the tests, so a run is the same on every machine and in every year.

/// What a draw is for. Each use has its own stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Stream {
    /// Variation of the cost of kernel paths.
    Jitter = 1,
    /// When each CPU's first tick falls.
    TickPhase = 2,
    /// Device and housekeeping interrupts.
    Interrupts = 3,
    /// The NI_RANDOM feature of newidle balancing.
    NiRandom = 4,
    /// Which CPU's event comes first at the same nanosecond; the CPU that `two_choices` looks at.
    Ties = 5,
    /// The written initial kernel (warm state): counter 0 is of a task, from 1 on of the balancing
    /// clocks of a CPU, a level each.
    WarmState = 6,
    /// Cost tables between low and high.
    Costs = 9,
    /// Random machines, kernels and workloads in tests.
    Test = 8,
}

/// All randomness of a run.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    seed: u64,
}

#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Noise {
    /// Noise of the run with this seed.
    pub fn new(seed: u64) -> Noise {
        Noise { seed: mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) }
    }
    /// 64 uniform bits.
    #[inline]
    pub fn bits(&self, stream: Stream, entity: u64, counter: u64) -> u64 {
        let s = self.seed ^ (stream as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mix(mix(s.wrapping_add(entity.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .wrapping_add(counter.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)))
    }
    /// Uniform in `0 … n-1`; zero for `n == 0`.
    #[inline]
    pub fn below(&self, stream: Stream, entity: u64, counter: u64, n: u64) -> u64 {
        ((u128::from(self.bits(stream, entity, counter)) * u128::from(n)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_vectors() {
        let n = Noise::new(1);
        let got = [
            n.bits(Stream::Jitter, 0, 0),
            n.bits(Stream::Jitter, 0, 1),
            n.bits(Stream::Ties, 7, 3),
            Noise::new(2).bits(Stream::Jitter, 0, 0),
        ];
        assert_eq!(got, FROZEN);
    }
    const FROZEN: [u64; 4] =
        [8230658228639021356, 11871295172113095883, 7614185012356781624, 13526687763087225748];

    #[test]
    fn below_is_uniform_enough() {
        let n = Noise::new(42);
        let mut count = [0u32; 8];
        for i in 0..80_000 {
            count[n.below(Stream::Test, 5, i, 8) as usize] += 1;
        }
        for c in count {
            assert!((9_600..10_400).contains(&c), "{count:?}");
        }
    }
}
