//! What a release says about placement, in the units of a rebuilt queue.
//!
//! *What.* The limits and credits of [`vruntime_sched::fair`], worked out once for a machine.
//! *Departures.* D1: all tasks ask for the usual slice.

use super::queue_frame::{FAR, Span};
use vruntime_sched::fair::Tunables;
use vruntime_sched::fair::cfs::sleeper_credit;
use vruntime_sched::fair::eevdf::{lag_limit, reweighted};
use vruntime_sched::fair::weight::{task_virtual_time, weight_of_prio};
use vruntime_sched::release::{FairKind, Release};

/// What the release says about placement.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    pub(super) eevdf: bool,
    pub(super) credit: i64,
    pub(super) slice: i64,
    pub(super) period: i64,
    lag_most: u64,
    pub(super) half_first: bool,
    pub(super) keeps_request: bool,
    pub(super) delays: bool,
    pub(super) delay_zero: bool,
    wakeup_ends_delay: bool,
    pub(super) yield_forfeits: bool,
}

impl Tuning {
    /// Of `k` on `nr_cpus`.
    pub fn new(k: &Release, nr_cpus: usize) -> Tuning {
        let Tunables { latency, base_slice: slice, tick, .. } = Tunables::new(k, nr_cpus);
        Tuning {
            eevdf: k.fair == FairKind::Eevdf,
            credit: sleeper_credit(latency, k.gentle_fair_sleepers) as i64,
            slice: slice as i64,
            period: latency as i64,
            lag_most: lag_limit(k.lag_limit, slice, tick),
            half_first: k.place_deadline_initial && !k.fork_places_twice,
            keeps_request: k.place_rel_deadline,
            delays: k.delay_dequeue,
            delay_zero: k.delay_zero,
            wakeup_ends_delay: k.wakeup_ends_delay,
            yield_forfeits: k.yield_forfeits,
        }
    }

    /// For a task that is not delayed, whatever its lag: it ends, or is stopped.
    pub fn without_delay(&self) -> Tuning {
        Tuning { delays: false, ..*self }
    }

    /// `lag` within what the kernel lets an entity of `weight` be owed, or owe.
    pub(super) fn limited(&self, lag: Span, weight: u64) -> Span {
        let most = task_virtual_time(self.lag_most, weight) as i64;
        lag.clamp(-most, most)
    }
    /// Lag of a task of `weight` that a pick took off, delayed: it was eligible by then.
    pub fn lag_after_delay(&self, weight: u64) -> Span {
        let owed = Span { lo: 0, hi: if self.delay_zero { 0 } else { FAR } };
        self.limited(owed, weight)
    }
    /// A lag, left at one priority, at another one (EEVDF).
    pub fn reweighted(&self, lag: Span, from: i64, to: i64) -> Span {
        if !self.eevdf || from < 100 || to < 100 {
            return lag;
        }
        let at_new = |lag| reweighted(lag, weight_of_prio(from), weight_of_prio(to));
        Span { lo: at_new(lag.lo), hi: at_new(lag.hi) }
    }
    /// Wakeups pick, too.
    pub fn wakeup_ends_delay(&self) -> bool {
        self.wakeup_ends_delay
    }
    /// The release has EEVDF.
    pub fn is_eevdf(&self) -> bool {
        self.eevdf
    }
    pub(super) fn virtual_slice(&self, weight: u64) -> i64 {
        task_virtual_time(self.slice as u64, weight) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue_frame::{Frame, weight_of};
    use super::*;

    /// Two slices, or a tick if that is longer, at nice 0; 3.0567 times as much virtual time at
    /// nice 5.
    #[test]
    fn what_a_light_task_may_be_owed_is_more_virtual_time() {
        let k = crate::shadow::tests::release("v6.12");
        let t = Tuning::new(&k, 2);
        let most = |prio| t.limited(Span::ANY, weight_of(prio)).hi as u64;
        let limit = (2 * k.base_slice_ns * k.scaling(2)).max(k.tick_ns());
        assert_eq!((most(120), most(125) * 1000 / limit), (limit, 3_056));
        assert_eq!(t.lag_after_delay(weight_of(125)).hi, 0);
    }

    /// A new task's request is half a slice, unless its first enqueue places it once more.
    #[test]
    fn a_new_task_asks_for_half_a_slice_or_a_whole_one() {
        for (kernel, part) in [("v6.6", 1), ("v6.10", 1), ("v6.12", 2), ("v6.18", 2)] {
            let k = crate::shadow::tests::release(kernel);
            let t = Tuning::new(&k, 2);
            let mut f = Frame::default();
            f.run(0, 1, &t);
            f.enter_new(1, 120, &t);
            let slice = (k.base_slice_ns * k.scaling(2)) as i64;
            assert_eq!(f.request_left(1), Some(slice / part), "{kernel}");
        }
    }
}
