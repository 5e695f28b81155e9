//! Whether the tasks of a plain trace compete on one level.
//!
//! *What.* A plain trace does not say which task group a task is in; all are taken to be in one.
//! Where that is wrong, picks and preemptions contradict it: a group's tasks share its weight. Once
//! too many of the decisions among several did so ([`TOO_MANY`]), what is decided on a queue is set
//! aside: it counts as not known, and is counted apart with how much of it agrees, for the kernel
//! may as well be another one than it is judged as.
//! *Departures.* D1: what was decided until then stays counted, as it was.

use std::cell::Cell;

/// More than one in so many differs of at least so many: in groups of the recorded `psi-tree` it is
/// one in five, under autogroups one in twenty, on one level one in several hundred.
const TOO_MANY: [(u32, u32); 2] = [(12, 40), (30, 200)];

/// What picks and preemptions have said so far.
#[derive(Debug)]
pub struct OneLevel {
    taken: bool,
    seen: Cell<(u32, u32)>,
}

impl OneLevel {
    /// `taken`: it is not known, but taken to be so.
    pub fn new(taken: bool) -> OneLevel {
        OneLevel { taken, seen: Cell::default() }
    }

    /// It is contradicted too often.
    pub fn contradicted(&self) -> bool {
        let (all, differ) = self.seen.get();
        let too_many = |&(one_in, least): &(u32, u32)| all >= least && differ * one_in > all;
        self.taken && TOO_MANY.iter().any(too_many)
    }

    /// A decision among several agreed, or not.
    pub fn note(&self, agrees: bool) {
        let (all, differ) = self.seen.get();
        self.seen.set((all + 1, differ + u32::from(!agrees)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_twenty_contradicts_and_one_in_forty_does_not() {
        let after = |taken, all, every: u32| {
            let l = OneLevel::new(taken);
            (1..=all).for_each(|i| l.note(i % every != 0));
            l.contradicted()
        };
        assert!(after(true, 40, 5) && !after(true, 40, 20) && !after(false, 40, 5));
        assert!(after(true, 200, 20) && !after(true, 200, 40));
        let few = OneLevel::new(true);
        few.note(false);
        assert!(!few.contradicted());
    }
}
