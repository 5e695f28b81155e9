//! Why something happened. Every switch, placement and migration of a model run carries one cause.
//!
//! A cause is declared as a `static` beside the mechanism that sets it:
//! `pub static PREV_IDLE: Cause = Cause::new(CauseKind::Placement, "prev idle");`
//! There is no list of causes to edit. Counting uses the hash of the name, so counts and their
//! order do not depend on addresses.

/// What a cause explains.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CauseKind {
    /// Why a CPU went from one task to another.
    Switch,
    /// Why a waking or new task was put on this CPU.
    Placement,
    /// Why a task changed its CPU.
    Migration,
    /// Why a reschedule was asked for.
    Resched,
    /// Why the task that was picked was picked.
    Pick,
}

/// A named reason.
#[derive(Debug)]
pub struct Cause {
    /// What it explains.
    pub kind: CauseKind,
    /// The words a report prints.
    pub name: &'static str,
    /// Hash of kind and name; equal ids mean the same cause.
    pub id: u32,
}

impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.id == other.id
    }
}

impl Cause {
    /// Declares a cause. Names are unique within a kind.
    pub const fn new(kind: CauseKind, name: &'static str) -> Cause {
        let mut h: u32 = 0x811c_9dc5 ^ (kind as u32 + 1);
        let bytes = name.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            h = (h ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
            i += 1;
        }
        Cause { kind, name, id: h }
    }
}

const SLOTS: usize = 128;

/// How often each cause of one kind occurred. Constant size, no allocation when counting.
#[derive(Clone, Debug)]
pub struct CauseCounts {
    slots: Vec<(Option<&'static Cause>, u64)>,
}

impl Default for CauseCounts {
    fn default() -> Self {
        CauseCounts { slots: vec![(None, 0); SLOTS] }
    }
}

impl CauseCounts {
    /// Counts `cause` once. Panics if more than 128 different causes are counted.
    #[inline]
    pub fn count(&mut self, cause: &'static Cause) {
        self.add(cause, 1);
    }
    /// Counts `cause` `n` times.
    #[inline]
    pub fn add(&mut self, cause: &'static Cause, n: u64) {
        let mut i = cause.id as usize % SLOTS;
        for _ in 0..SLOTS {
            match self.slots[i].0 {
                Some(c) if c.id == cause.id => {
                    self.slots[i].1 += n;
                    return;
                }
                None => {
                    self.slots[i] = (Some(cause), n);
                    return;
                }
                _ => i = (i + 1) % SLOTS,
            }
        }
        panic!("more than {SLOTS} causes of one kind");
    }
    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &CauseCounts) {
        for &(c, n) in &other.slots {
            if let Some(c) = c {
                self.add(c, n);
            }
        }
    }
    /// What was counted, by name.
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
        let mut v: Vec<_> =
            self.slots.iter().filter_map(|&(c, n)| c.map(|c| (c.name, n))).collect();
        v.sort_unstable();
        v
    }
    /// Sum of all counts.
    pub fn total(&self) -> u64 {
        self.slots.iter().map(|s| s.1).sum()
    }
    /// The counts since `earlier`, an older copy of the same counter.
    pub fn since(&self, earlier: &CauseCounts) -> CauseCounts {
        let mut d = CauseCounts::default();
        for &(c, n) in &self.slots {
            let Some(c) = c else { continue };
            let before =
                earlier.slots.iter().find(|s| s.0.is_some_and(|x| x.id == c.id)).map_or(0, |s| s.1);
            if n > before {
                d.add(c, n - before);
            }
        }
        d
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    static A: Cause = Cause::new(CauseKind::Switch, "blocks");
    static B: Cause = Cause::new(CauseKind::Switch, "preempted");

    #[test]
    fn counts_by_name_and_difference() {
        let mut c = CauseCounts::default();
        c.count(&A);
        let old = c.clone();
        c.add(&B, 3);
        c.count(&A);
        assert_eq!(c.by_name(), [("blocks", 2), ("preempted", 3)]);
        assert_eq!(c.since(&old).by_name(), [("blocks", 1), ("preempted", 3)]);
        assert_eq!(c.total(), 5);
    }
}
