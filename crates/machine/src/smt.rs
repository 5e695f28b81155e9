//! SMT: how fast a thread runs while its siblings are busy.
//!
//! **What.** A thread's speed depends on nothing but the number of busy threads in its core, and
//! changes at the moment that number changes.
//! **Source.** Throughput per core with all threads busy over one thread busy, as vendors and
//! benchmark papers give it; values per machine in its file.
//! **Equations.** `speed(k)` in 1/1024 of full speed for `k` busy threads in the core;
//! `wall = ⌈work · 1024 / speed⌉`, `work = ⌊wall · speed / 1024⌋`.
//! **Departures.** D1: all programs suffer alike. D2: a polling idle thread counts as idle.
//! **Example.** At speed 640, 100 ns of work take 160 ns, and 160 ns yield 100 ns of work.

use vruntime_base::Ns;

/// Full speed.
pub const FULL_SPEED: u32 = 1024;

/// Time that `work` (ns at full speed) takes at `speed`, rounded up.
#[inline]
pub fn wall_time(work: Ns, speed: u32) -> Ns {
    if speed == FULL_SPEED {
        return work;
    }
    Ns((work.0 * u64::from(FULL_SPEED)).div_ceil(u64::from(speed)))
}

/// Work (ns at full speed) done in `wall` at `speed`, rounded down.
#[inline]
pub fn work_done(wall: Ns, speed: u32) -> Ns {
    Ns(wall.0 * u64::from(speed) / u64::from(FULL_SPEED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example() {
        assert_eq!(wall_time(Ns(100), 640), Ns(160));
        assert_eq!(work_done(Ns(160), 640), Ns(100));
    }

    #[test]
    fn work_is_neither_lost_nor_made() {
        for speed in [1, 333, 461, 640, 1023, 1024] {
            for work in [0, 1, 7, 100, 12_345] {
                assert_eq!(work_done(wall_time(Ns(work), speed), speed), Ns(work));
            }
        }
    }
}
