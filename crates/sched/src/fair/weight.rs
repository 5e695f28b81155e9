//! Nice weights, and the fixed-point arithmetic that turns real time into virtual time.
//!
//! **What.** A nice level is a weight; one step is about 25 % of weight or 10 % of CPU time.
//! Virtual time runs at `NICE_0 / weight` of real time.
//! **Source.** Linux 6.1.192, kernel/sched/core.c (`sched_prio_to_weight`, `sched_prio_to_wmult`),
//! fair.c (`__calc_delta`, `calc_delta_fair`); unchanged up to 6.18.
//! **Equations.** `calc_delta(d, w, lw) = d · w / lw`, computed as `(d · (w · inv)) >> 32` with
//! `inv = 2^32 / lw`; the factor is cut to 32 bits before it is multiplied with `d`, so the result
//! is up to a few units smaller than the quotient.
//! **Departures.** None: results equal the kernel's bit by bit.
//! **Example.** `calc_delta_fair` of 1 ms at nice 0 is 1 ms, at nice 5 (weight 335) 3.056716 ms.

/// Bits of extra resolution in a stored weight.
pub const LOAD_SHIFT: u32 = 10;
/// Stored weight of a nice-0 task.
pub const NICE_0_LOAD: u32 = 1024 << LOAD_SHIFT;

/// Weight of each nice level, −20 first.
pub const PRIO_TO_WEIGHT: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, // −20 …
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, // −10 …
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, // 0 …
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15, // 10 …
];

/// 2^32 / weight of each nice level, rounded to nearest.
pub const PRIO_TO_WMULT: [u32; 40] = [
    48388, 59856, 76040, 92818, 118348, 147320, 184698, 229616, 287308, 360437, // −20 …
    449829, 563644, 704093, 875809, 1099582, 1376151, 1717300, 2157191, 2708050,
    3363326, // −10 …
    4194304, 5237765, 6557202, 8165337, 10153587, 12820798, 15790321, 19976592, 24970740,
    31350126, // 0 …
    39045157, 49367440, 61356676, 76695844, 95443717, 119304647, 148102320, 186737708, 238609294,
    286331153, // 10 …
];

/// Weight of SCHED_IDLE, and its inverse.
pub const IDLE_WEIGHT: u32 = 3;
/// See [`IDLE_WEIGHT`].
pub const IDLE_WMULT: u32 = 1_431_655_765;

/// Stored weight and inverse of a task.
pub fn task_weight(nice: i8, sched_idle: bool) -> (u32, u32) {
    if sched_idle {
        return (IDLE_WEIGHT << LOAD_SHIFT, IDLE_WMULT);
    }
    let i = (i32::from(nice) + 20).clamp(0, 39) as usize;
    (PRIO_TO_WEIGHT[i] << LOAD_SHIFT, PRIO_TO_WMULT[i])
}

/// A weight without the extra resolution; at least 2 unless it is zero.
#[inline(always)]
pub fn scale_load_down(w: u64) -> u64 {
    if w == 0 { 0 } else { (w >> LOAD_SHIFT).max(2) }
}

/// Stored weight of a task of this priority, as the kernel's events give it (120 is nice 0).
pub fn weight_of_prio(prio: i64) -> u32 {
    task_weight((prio - 120).clamp(-20, 19) as i8, false).0
}

/// Inverse of the stored weight of a task: the table's, where it is one of the table's.
pub fn task_inverse(weight: u32) -> u32 {
    let tasks = |&nice: &i8| task_weight(nice, false).0 == weight;
    match (-20..20).find(tasks) {
        Some(nice) => task_weight(nice, false).1,
        None if weight == task_weight(0, true).0 => IDLE_WMULT,
        None => inv_weight(weight.into()),
    }
}

/// Virtual time of a task of this stored weight that runs `d` ns.
pub fn task_virtual_time(d: u64, weight: u64) -> u64 {
    let weight = (weight as u32).max(1 << LOAD_SHIFT);
    calc_delta_fair(d, weight, task_inverse(weight))
}

/// Inverse of a stored weight that is not in the table.
#[inline(always)]
pub fn inv_weight(w: u64) -> u32 {
    let w = scale_load_down(w);
    if w >= u64::from(u32::MAX) {
        1
    } else if w == 0 {
        u32::MAX
    } else {
        // The quotient of two 32-bit numbers: dividing them as such is several times faster.
        u32::MAX / w as u32
    }
}

/// `d · weight / lw`, where `inv` is the inverse of `lw` (zero: not known yet).
#[inline]
pub fn calc_delta(d: u64, weight: u64, lw: u64, inv: u32) -> u64 {
    let inv = if inv == 0 { inv_weight(lw) } else { inv };
    let mut fact = scale_load_down(weight);
    let mut shift = 32;
    let cut = |fact: &mut u64, shift: &mut u32| {
        let high = (*fact >> 32) as u32;
        if high != 0 {
            let bits = 32 - high.leading_zeros();
            *shift -= bits;
            *fact >>= bits;
        }
    };
    cut(&mut fact, &mut shift);
    fact *= u64::from(inv);
    cut(&mut fact, &mut shift);
    ((u128::from(d) * u128::from(fact)) >> shift) as u64
}

/// Real time `d` as virtual time of an entity with this stored weight and inverse.
#[inline(always)]
pub fn calc_delta_fair(d: u64, weight: u32, inv: u32) -> u64 {
    if weight == NICE_0_LOAD {
        return d;
    }
    calc_delta(d, u64::from(NICE_0_LOAD), u64::from(weight), inv)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms of nice 5 by the kernel's table; the inverse of a division gives 9 ns less for 40 ms.
    #[test]
    fn virtual_time_is_that_of_the_kernels_table() {
        assert_eq!(task_virtual_time(1_000_000, 335 << 10), 3_056_716);
        assert_eq!(task_virtual_time(40_000_000, 335 << 10), 122_268_657);
        assert_eq!(task_virtual_time(7, 1 << 20), 7);
    }

    #[test]
    fn inverse_table_is_two_to_the_32_over_the_weight() {
        for (w, inv) in PRIO_TO_WEIGHT.into_iter().zip(PRIO_TO_WMULT) {
            let exact = ((1u64 << 32) + u64::from(w) / 2) / u64::from(w);
            assert!(exact.abs_diff(u64::from(inv)) <= 1, "{w}: {inv}, not {exact}");
        }
        assert_eq!(u64::from(IDLE_WMULT), (1u64 << 32) / 3);
    }

    #[test]
    fn one_nice_level_is_a_quarter_of_weight() {
        for pair in PRIO_TO_WEIGHT.windows(2) {
            let permille = pair[0] * 1000 / pair[1];
            assert!((1190..=1290).contains(&permille), "{pair:?}");
        }
        assert_eq!(task_weight(0, false), (NICE_0_LOAD, 4_194_304));
        assert_eq!(task_weight(-20, false).0, 88761 << 10);
        assert_eq!(task_weight(19, false), (15 << 10, 286_331_153));
        assert_eq!(task_weight(7, true), (3 << 10, IDLE_WMULT));
    }

    /// Nice 3 (526): 2^32/526 = 8165337.07, of which both keep the whole; nice 5 (335): 12820797.9,
    /// which the table rounds up and the division cuts.
    #[test]
    fn a_task_has_the_inverse_of_the_table() {
        assert_eq!((task_inverse(335 << 10), inv_weight(335 << 10)), (12_820_798, 12_820_797));
        assert_eq!([526, 3].map(|w| task_inverse(w << 10)), [8_165_337, IDLE_WMULT]);
        assert_eq!(task_inverse(1000 << 10), inv_weight(1000 << 10));
    }

    /// Worked by hand: fact = 1024 · inv, cut to 32 bits, then (d · fact) >> shift.
    #[test]
    fn calc_delta_truncates_where_the_kernel_does() {
        // Nice 0 against itself does not go through the multiplication.
        assert_eq!(calc_delta_fair(1_000_000, NICE_0_LOAD, 4_194_304), 1_000_000);
        // Nice 5: fact = 1024 · 12820798 = 13128497152 = 0x3_0e84_9800; two bits too long, so
        // fact >>= 2 = 3282124288, shift = 30: 10^6 · 3282124288 >> 30 = 3056716.
        assert_eq!(calc_delta_fair(1_000_000, 335 << 10, 12_820_798), 3_056_716);
        // Nice −5: fact = 1024 · 1376151 = 1409178624, shift 32: 328099.
        assert_eq!(calc_delta_fair(1_000_000, 3121 << 10, 1_376_151), 328_099);
        // Half of a queue with two nice-0 tasks: inv = 0xffffffff / 2048 = 2097151 (cut), so 24 ms
        // give 5 ns less than 12 ms.
        assert_eq!(calc_delta(24_000_000, 1 << 20, 2 << 20, 0), 11_999_994);
        // An empty weight has the largest inverse; a weight below 2 counts as 2.
        assert_eq!(inv_weight(0), u32::MAX);
        assert_eq!(scale_load_down(1), 2);
        assert_eq!(scale_load_down(0), 0);
    }
}
