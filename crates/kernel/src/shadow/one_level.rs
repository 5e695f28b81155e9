//! Whether the tasks of a plain trace compete on one level.
//!
//! *What.* A plain trace does not say which task group a task is in; all are taken to be in one.
//! Where that is wrong, picks and preemptions contradict it: a group's tasks share its weight. Once
//! more than one in [`ONE_IN`] of the decisions among several did so, what is decided on a queue
//! counts as not known.
//! *Departures.* D1: what was decided until then stays counted, as it was.

use std::cell::Cell;

/// So many agree for each one that differs, at least; in groups of the recorded `psi-tree` it is
/// one in five, on one level one in several hundred.
const ONE_IN: u32 = 12;
/// Fewer decisions say nothing.
const LEAST: u32 = 40;

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
        self.taken && all >= LEAST && differ * ONE_IN > all
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
    fn one_in_five_contradicts_and_one_in_twenty_does_not() {
        let after = |taken, every: u32| {
            let l = OneLevel::new(taken);
            (1..=LEAST).for_each(|i| l.note(i % every != 0));
            l.contradicted()
        };
        assert!(after(true, 5) && !after(true, 20) && !after(false, 5));
        let few = OneLevel::new(true);
        few.note(false);
        assert!(!few.contradicted());
    }
}
