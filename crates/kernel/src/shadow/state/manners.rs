//! How programs wake each other: synchronously or not.
//!
//! *What.* No event tells whether a wakeup was synchronous, but what the kernel chose may fit only
//! one of the two. Who wakes whom by which means is a habit of the programs (pipes and sockets
//! wake synchronously, locks and timers do not): what nearly all earlier wakeups of one program by
//! another have shown is taken for the next one. A choice never tells about itself.
//! *Equation.* Taken if at least [`LEAST`] wakeups have shown it and no more than one in twenty
//! of them the contrary.

use crate::shadow::rows::trace::Trace;
use std::collections::BTreeMap;

/// Fewer are no habit.
const LEAST: u32 = 10;

/// Two programs, or, where their names are not known, two tasks.
type Pair = ((bool, i64), (bool, i64));

/// What was shown so far, by waker and wakee: synchronous and not.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    shown: BTreeMap<Pair, (u32, u32)>,
}

impl Manners {
    fn pair(t: &Trace, waker: i64, wakee: i64) -> Pair {
        let of = |pid: i64| match t.programs.get(&pid) {
            Some(&n) => (true, n as i64),
            None => (false, pid),
        };
        (of(waker), of(wakee))
    }

    /// A wakeup of `wakee` by `waker` was synchronous, or was not.
    pub fn show(&mut self, t: &Trace, waker: i64, wakee: i64, sync: bool) {
        let n = self.shown.entry(Manners::pair(t, waker, wakee)).or_default();
        if sync {
            n.0 += 1;
        } else {
            n.1 += 1;
        }
    }

    /// Whether `waker` wakes `wakee` synchronously, if that has been shown often enough.
    pub fn of(&self, t: &Trace, waker: i64, wakee: i64) -> Option<bool> {
        let (sync, not) = *self.shown.get(&Manners::pair(t, waker, wakee))?;
        let all = sync + not;
        (all >= LEAST && sync.min(not) * 20 <= all).then_some(sync > not)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_habit_needs_ten_wakeups_and_bears_one_in_twenty_against_it() {
        let programs = [(1, 0), (2, 0), (3, 1)].into_iter().collect();
        let t = Trace { programs, ..Trace::default() };
        let mut m = Manners::default();
        (0..9).for_each(|_| m.show(&t, 1, 2, true));
        assert_eq!(m.of(&t, 1, 2), None);
        m.show(&t, 1, 2, true);
        assert_eq!(m.of(&t, 1, 2), Some(true));
        m.show(&t, 1, 2, false);
        assert_eq!(m.of(&t, 1, 2), None);
        (0..9).for_each(|_| m.show(&t, 2, 1, true));
        assert_eq!(m.of(&t, 1, 2), Some(true));
        assert_eq!(m.of(&t, 1, 3), None);
        // Without names each task stands for itself.
        (0..10).for_each(|_| m.show(&t, 8, 9, false));
        assert_eq!((m.of(&t, 8, 9), m.of(&t, 9, 8)), (Some(false), None));
    }
}
