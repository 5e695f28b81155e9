//! How much of a CPU's capacity real-time tasks may have taken.

use std::collections::VecDeque;
use vruntime_sched::fair::pelt::{SEGMENT_NS, decay_load};

/// How much of a CPU real-time tasks have used.
#[derive(Clone, Debug, Default)]
pub(super) struct RtUse {
    /// When one was switched from, and the decayed sum of what they ran by then. The first lies
    /// before `STALE_NS`.
    seen: VecDeque<(u64, u64)>,
}

/// `rq->cpu_capacity` may be as old: a pass of the lowest domain brings it up to date, on a busy
/// CPU once in 16 ms for each CPU of that domain.
const STALE_NS: u64 = 16 * 16 * 1_000_000;

impl RtUse {
    /// At `ts`.
    fn at(&self, ts: u64) -> u64 {
        let last = self.seen.iter().rfind(|x| x.0 <= ts);
        last.map_or(0, |&(then, used)| decay_load(used, (ts - then) / SEGMENT_NS))
    }

    /// One that ran for `ran` is switched from at `ts`.
    pub(super) fn ends(&mut self, ts: u64, ran: u64) {
        let used = self.at(ts) + ran;
        while self.seen.get(1).is_some_and(|x| x.0 + STALE_NS < ts) {
            self.seen.pop_front();
        }
        self.seen.push_back((ts, used));
    }

    /// The most in the `STALE_NS` before `now`.
    pub(super) fn most(&self, now: u64) -> u64 {
        let begin = now.saturating_sub(STALE_NS);
        let inside = self.seen.iter().filter(|x| (begin..=now).contains(&x.0));
        inside.map(|x| x.1).fold(self.at(begin), u64::max)
    }
}
