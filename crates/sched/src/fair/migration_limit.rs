//! The migration rate limit: a task that has just moved stays where it is while it may.
//!
//! **What.** Each task has a window that begins with its first move. Once the quota of moves is
//! used up, a wakeup in the rest of the window treats prev as if it were idle, as long as its load
//! is small.
//! **Source.** Desnoyers, mail of 24 August 2023 in the thread of "sched: Introduce
//! cpus_share_l2c" (1 ms, "migrated more than once", a load threshold); never merged.
//! **Equations.** stay ⇔ now − start < window and moves ≥ quota and load(prev) < threshold.
//! **Departures.** D1: moves by the balancer count as well, but are never refused. D2: the load is
//! that of the root queue, as in `wake_affine`: of tasks in a group (autogroup) it is their part of
//! the group's share, so that many of them stay below the threshold.
//! **Example.** Window 1 ms, quota 1, threshold 1024: a task moved at 10.0 ms is woken at 10.4 ms;
//! its CPU has a load of 700, so it stays there although another CPU is idle. At 11.0 ms it may
//! move again.

use super::Fair;
use crate::cx::Cx;
use crate::release::Release;
use vruntime_base::{Cause, CauseKind, Ns, TaskId};

/// The wakee has moved lately and prev is not too busy.
pub static KEEP_PREV: Cause = Cause::new(CauseKind::Placement, "migration limit: prev");

/// The moves of one task in its window.
#[derive(Clone, Copy, Default)]
pub struct Moves {
    start: Ns,
    count: u32,
}

impl Moves {
    fn note(&mut self, k: &Release, now: Ns) {
        if self.count == 0 || now.saturating_sub(self.start).0 >= k.migration_window_ns {
            *self = Moves { start: now, count: 0 };
        }
        self.count += 1;
    }
    fn used_up(&self, k: &Release, now: Ns) -> bool {
        self.count > 0
            && self.count >= k.migration_quota
            && now.saturating_sub(self.start).0 < k.migration_window_ns
    }
}

impl Fair {
    /// `p` moves to another CPU.
    #[inline]
    pub(crate) fn note_move(&mut self, cx: &Cx, p: TaskId) {
        let k = &cx.sh.release;
        if k.migration_window_ns == 0 {
            return;
        }
        if self.moves.len() <= p.ix() {
            self.moves.resize(cx.sh.tasks.len(), Moves::default());
        }
        self.moves[p.ix()].note(k, cx.now);
    }
    /// `p` has no move left in its window.
    pub(crate) fn moved_lately(&self, k: &Release, p: TaskId, now: Ns) -> bool {
        self.moves.get(p.ix()).is_some_and(|m| m.used_up(k, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::v6_1;

    #[test]
    fn a_quota_lasts_for_a_window() {
        let us = |t: u64| Ns(t * 1000);
        let mut k = v6_1();
        (k.migration_window_ns, k.migration_quota) = (1_000_000, 2);
        let mut m = Moves::default();
        assert!(!m.used_up(&k, us(0)));
        m.note(&k, us(10_000));
        assert!(!m.used_up(&k, us(10_100)));
        m.note(&k, us(10_500));
        assert!(m.used_up(&k, us(10_600)));
        assert!(m.used_up(&k, us(10_999)));
        assert!(!m.used_up(&k, us(11_000)));
        m.note(&k, us(11_200));
        assert!(!m.used_up(&k, us(11_300)));
    }
}
