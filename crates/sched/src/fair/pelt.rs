//! Per-entity load tracking: integer arithmetic of the decaying averages.
//!
//! **What.** Time is cut into segments of 1024 units (a unit is 1024 ns). A sum takes 1 for every
//! unit in which its owner was runnable (or ran), and loses a factor y per segment.
//! **Source.** Linux 6.1.192, kernel/sched/pelt.c (`___update_load_sum`, `accumulate_sum`,
//! `__accumulate_pelt_segments`, `decay_load`), sched-pelt.h; unchanged 5.5 to 6.18.
//! **Equations.** y^32 = 1/2. LOAD_AVG_MAX = 1024 · Σ y^n = 47742 in integers. After d units that
//! complete p segments: `sum' = sum · y^p + c`, `c = (1024 − contrib) · y^p +
//! (MAX − MAX · y^p − 1024) + rest`; `avg = weight · sum / (MAX − 1024 + contrib)`.
//! **Departures.** D1: CPU capacity and frequency are constant, so `clock_pelt` is `clock_task`,
//! and the correction after an idle period of a saturated CPU (`lost_idle_time`) is left out.
//! **Example.** A task that runs for 32 segments after being idle for ever has util_avg near 512.

use super::SchedAvg;
use vruntime_base::Ns;

/// Limit of a sum of 1024 per segment.
pub const LOAD_AVG_MAX: u64 = 47_742;
/// The smallest divider an average can have.
pub const MIN_DIVIDER: u64 = LOAD_AVG_MAX - 1024;
/// Segments after which half is left.
const HALF_LIFE: u64 = 32;

/// y^n as a 32-bit fraction, n = 0 … 31.
const DECAY: [u32; 32] = [
    0xffffffff, 0xfa83b2da, 0xf5257d14, 0xefe4b99a, 0xeac0c6e6, 0xe5b906e6, 0xe0ccdeeb, 0xdbfbb796,
    0xd744fcc9, 0xd2a81d91, 0xce248c14, 0xc9b9bd85, 0xc5672a10, 0xc12c4cc9, 0xbd08a39e, 0xb8fbaf46,
    0xb504f333, 0xb123f581, 0xad583ee9, 0xa9a15ab4, 0xa5fed6a9, 0xa2704302, 0x9ef5325f, 0x9b8d39b9,
    0x9837f050, 0x94f4efa8, 0x91c3d373, 0x8ea4398a, 0x8b95c1e3, 0x88980e80, 0x85aac367, 0x82cd8698,
];

/// `val · y^n`.
#[inline]
pub fn decay_load(val: u64, n: u64) -> u64 {
    if n > HALF_LIFE * 63 {
        return 0;
    }
    let val = val >> (n / HALF_LIFE);
    ((u128::from(val) * u128::from(DECAY[(n % HALF_LIFE) as usize])) >> 32) as u64
}

/// Nanoseconds of a segment.
pub const SEGMENT_NS: u64 = 1 << 20;

/// Lowest and highest average `ns` later, if whatever it is of has stood at `level` since: full
/// segments count, and where in its segment it stood is not known, so that one more can have ended.
/// The kernel cuts at every step: what has come down to its level, or stands at it, can show one
/// less.
pub fn average_after(avg: u64, level: u64, ns: u64) -> (u64, u64) {
    if ns == 0 {
        return (avg, avg);
    }
    let segments = ns / SEGMENT_NS;
    // With a fraction: small values fall as well.
    const FRACTION: u32 = 20;
    let gap = |n| decay_load(avg.abs_diff(level).min(1 << 40) << FRACTION, n);
    let (near, far) = (gap(segments).div_ceil(1 << FRACTION), gap(segments + 1) >> FRACTION);
    match avg >= level {
        true => (level.saturating_sub(1) + far, level + near),
        false => (level - near, level - far),
    }
}

/// Averages of nothing that have been kept since the first unit of time. A group's entities begin
/// so (`online_fair_sched_group`): attached before any task is, so that what comes up from below is
/// counted once.
pub const OF_NOTHING: SchedAvg = SchedAvg {
    last_update_time: Ns(1 << 10),
    period_contrib: 1,
    load_sum: 0,
    runnable_sum: 0,
    util_sum: 0,
    load_avg: 0,
    runnable_avg: 0,
    util_avg: 0,
};

/// What an average is divided by at this point of the segment.
#[inline(always)]
pub fn divider(sa: &SchedAvg) -> u64 {
    MIN_DIVIDER + u64::from(sa.period_contrib)
}

/// Brings the sums to `now`. True if a segment was completed: only then do averages change.
///
/// `load` is how much counts per unit for the load, `runnable` how many are runnable; both are
/// ignored without load.
#[inline]
pub fn update_sum(now: Ns, sa: &mut SchedAvg, load: u64, runnable: u64, running: bool) -> bool {
    if now < sa.last_update_time {
        sa.last_update_time = now;
        return false;
    }
    let units = (now.0 - sa.last_update_time.0) >> 10;
    if units == 0 {
        return false;
    }
    sa.last_update_time.0 += units << 10;
    let total = units + u64::from(sa.period_contrib);
    let completed = total >= 1024;
    let contrib = if completed { complete_segments(sa, total) } else { units };
    sa.period_contrib = (total % 1024) as u32;
    if load != 0 {
        sa.load_sum += load * contrib;
        sa.runnable_sum += (runnable * contrib) << 10;
        if running {
            sa.util_sum += (contrib as u32) << 10;
        }
    }
    completed
}

/// Decays the sums by the segments that are complete `total` units after the current one began;
/// returns what the units since the last update count. Seldom called: most updates are
/// microseconds apart.
#[inline(never)]
fn complete_segments(sa: &mut SchedAvg, total: u64) -> u64 {
    let segments = total / 1024;
    sa.load_sum = decay_load(sa.load_sum, segments);
    sa.runnable_sum = decay_load(sa.runnable_sum, segments);
    sa.util_sum = decay_load(u64::from(sa.util_sum), segments) as u32;
    decay_load(1024 - u64::from(sa.period_contrib), segments)
        + (LOAD_AVG_MAX - decay_load(LOAD_AVG_MAX, segments) - 1024)
        + total % 1024
}

/// Recomputes the averages from the sums.
#[inline(never)]
pub fn update_avg(sa: &mut SchedAvg, weight: u64) {
    let d = divider(sa);
    sa.load_avg = weight * sa.load_sum / d;
    sa.runnable_avg = (sa.runnable_sum / d) as u32;
    sa.util_avg = (u64::from(sa.util_sum) / d) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One segment in ns.
    fn run(sa: &mut SchedAvg, ns: u64, on: bool) {
        let now = Ns(sa.last_update_time.0 + ns);
        if update_sum(now, sa, u64::from(on), u64::from(on), on) {
            update_avg(sa, 1024);
        }
    }

    fn fresh() -> SchedAvg {
        SchedAvg { last_update_time: Ns(SEGMENT_NS), ..SchedAvg::default() }
    }

    #[test]
    fn halves_the_distance_in_32_periods() {
        // A little less than half of the distance is left, or 2 % less with one segment more.
        assert_eq!(average_after(0, 1024, 32 * SEGMENT_NS), (512, 523));
        assert_eq!(average_after(1024, 0, 32 * SEGMENT_NS), (501, 512));
        assert_eq!(average_after(1000, 0, SEGMENT_NS - 1), (978, 1000));
        assert_eq!(average_after(1000, 0, 0), (1000, 1000));
        assert_eq!(average_after(1000, 0, u64::MAX), (0, 0));
    }

    /// What has run for seconds shows 1023 as well as 1024, by where in a segment it is looked at.
    #[test]
    fn what_stands_at_its_level_can_show_one_less() {
        let mut sa = fresh();
        run(&mut sa, 4_000_000_000, true);
        let mut seen: Vec<u64> = vec![];
        for _ in 0..100 {
            run(&mut sa, 4_100_000, true);
            seen.push(u64::from(sa.util_avg));
        }
        let (least, most) = average_after(1024, 1024, 4_100_000);
        assert_eq!((seen.iter().min(), seen.iter().max()), (Some(&least), Some(&most)));
    }

    #[test]
    fn y_to_the_32_is_one_half() {
        assert_eq!(decay_load(1 << 20, 32), (1 << 19) - 1);
        // One step, 32 times over, loses half but for what truncation takes.
        let v = (0..32).fold(1u64 << 30, |v, _| decay_load(v, 1));
        assert!(((1 << 29) - 64..=1 << 29).contains(&v), "{v}");
        assert_eq!(decay_load(u64::MAX, 2017), 0);
    }

    #[test]
    fn the_series_reaches_47742_and_stays() {
        // The published constant is the sum of integer steps.
        let (mut sum, mut steps) = (0u64, 0);
        loop {
            let next = decay_load(sum, 1) + 1024;
            if next == sum {
                break;
            }
            sum = next;
            steps += 1;
        }
        assert!((47_742 - 40..=47_742).contains(&sum), "{sum} after {steps}");
        let mut sa = fresh();
        for _ in 0..1000 {
            run(&mut sa, SEGMENT_NS, true);
        }
        assert!(sa.load_sum <= LOAD_AVG_MAX);
        for avg in [sa.load_avg, u64::from(sa.util_avg), u64::from(sa.runnable_avg)] {
            assert!((1023..=1024).contains(&avg), "{sa:?}");
        }
    }

    #[test]
    fn half_is_reached_after_32_segments_and_lost_after_32_more() {
        let mut sa = fresh();
        for _ in 0..32 {
            run(&mut sa, SEGMENT_NS, true);
        }
        assert!((510..=524).contains(&sa.util_avg), "{}", sa.util_avg);
        let up = sa.util_avg;
        for _ in 0..32 {
            run(&mut sa, SEGMENT_NS, false);
        }
        assert!(sa.util_avg.abs_diff(up / 2) <= 2, "{} of {up}", sa.util_avg);
    }

    /// In one go or in small steps: equal up to truncation.
    #[test]
    fn steps_do_not_matter_much() {
        let (mut a, mut b) = (fresh(), fresh());
        run(&mut a, 40 * SEGMENT_NS + 333_000, true);
        for _ in 0..1000 {
            run(&mut b, (40 * SEGMENT_NS + 333_000) / 1000, true);
        }
        assert!(a.util_avg.abs_diff(b.util_avg) <= 3, "{} {}", a.util_avg, b.util_avg);
    }

    /// By hand: 3 units before and 5 after a segment's end.
    #[test]
    fn a_segment_boundary_by_hand() {
        let mut sa = SchedAvg { period_contrib: 1021, load_sum: 1000, ..fresh() };
        assert!(update_sum(Ns(SEGMENT_NS + 8 * 1024), &mut sa, 1, 1, true));
        // 1000·y = 978, 3·y = 2, MAX − MAX·y − 1024 = 47742 − 46718 − 1024 = 0 + rest 5.
        assert_eq!(decay_load(LOAD_AVG_MAX, 1), 46_718);
        assert_eq!((sa.load_sum, sa.period_contrib), (978 + 2 + 5, 5));
        // Less than a unit changes nothing and keeps the remainder for later.
        let before = sa.last_update_time;
        assert!(!update_sum(Ns(before.0 + 1023), &mut sa, 1, 1, true));
        assert_eq!(sa.last_update_time, before);
    }
}
