//! Which tasks the kernel counts as SCHED_IDLE: by their policy, or by a group above them.
//!
//! *What.* A CPU with nothing but such tasks is nearly as good as an idle one (`sched_idle_cpu`).
//! All tasks of a group with `cpu.idle` are such, whatever their policy. No row shows `cpu.idle`,
//! but the group's entity does: it has the weight of a SCHED_IDLE task, 3, on a CPU that runs all
//! of the group, and less on each of several.
//! *Equation.* A group whose entity is never seen heavier than 3 and at least once with exactly
//! 3 is idle, one that is ever heavier is not; of the others it is not known.
//! *Departures.* D1: `cpu.idle` is not changed while the recording goes on. D2: of two groups, one
//! in the other, rows show the inner one only. Where idle groups are seen at all, a task that deep
//! may be in another.

use crate::shadow::rows::trace::{Side, Trace, fair_policy};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use vruntime_sched::fair::weight::task_weight;
use vruntime_sched::task::Policy;

/// Who counts as SCHED_IDLE.
#[derive(Clone, Debug, Default)]
pub struct IdleTasks {
    by_policy: bool,
    /// Whether a group is idle, if that is known.
    groups: BTreeMap<i64, Option<bool>>,
    /// One is, or may be.
    by_group: bool,
}

fn by_policy(s: &Side) -> bool {
    s.pid != 0 && fair_policy(s.policy) == Policy::Idle
}

/// Whether a group is idle whose entity was this heavy at the most, × 1024.
fn is_idle(heaviest: u64) -> Option<bool> {
    match heaviest.cmp(&u64::from(task_weight(0, true).0)) {
        Ordering::Less => None,
        Ordering::Equal => Some(true),
        Ordering::Greater => Some(false),
    }
}

impl IdleTasks {
    /// Of all rows.
    pub fn new(t: &Trace) -> IdleTasks {
        let sides = || t.rows.iter().flat_map(|r| [Some(&r.p), r.n.as_ref()]).flatten();
        let mut heaviest = BTreeMap::<i64, u64>::new();
        for (tg, group) in sides().filter_map(|s| Some((s.tg, s.parent?))) {
            let so_far = heaviest.entry(tg).or_default();
            *so_far = group.weight.max(*so_far);
        }
        let groups: BTreeMap<_, _> = heaviest.into_iter().map(|(tg, w)| (tg, is_idle(w))).collect();
        let by_group = groups.values().any(|&idle| idle != Some(false));
        IdleTasks { by_policy: sides().any(by_policy), groups, by_group }
    }

    /// Some task counts, or may.
    pub fn any(&self) -> bool {
        self.by_policy || self.by_group
    }

    /// Whether the task of `s` counts.
    pub fn has(&self, s: &Side) -> Option<bool> {
        match self.groups.get(&s.tg).copied().unwrap_or(Some(false)) {
            _ if by_policy(s) => Some(true),
            Some(false) if s.depth > 1 && self.by_group => None,
            idle => idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{Parent, Row, RowKind};
    use vruntime_base::Cpu;

    /// Group 1 has `cpu.idle`: 3 on one CPU, less on two. Group 2 may have, group 3 has not. Of a
    /// task two levels deep it is not known.
    #[test]
    fn the_weight_of_its_entity_tells_an_idle_group() {
        let task = |tg: i64, weight: u64| {
            let parent = Some(Parent { weight, ..Parent::default() }).filter(|_| tg != 0);
            Side { pid: 9, tg, parent, depth: i64::from(tg != 0), ..Side::default() }
        };
        let row =
            |(tg, weight)| Row { p: task(tg, weight), ..Row::new(1, Cpu(0), RowKind::Wakeup) };
        let seen = |rows: &[(i64, u64)]| {
            let rows = rows.iter().copied().map(row).collect();
            IdleTasks::new(&Trace { rows, ..Trace::default() })
        };
        let idle = seen(&[(1, 1_400), (1, 3 << 10), (2, 1_400), (3, 3 << 10), (3, 100 << 10)]);
        let deep = Side { depth: 2, ..task(3, 0) };
        let policy = Side { policy: 5, ..task(0, 0) };
        assert_eq!(
            [0, 1, 2, 3].map(|tg| idle.has(&task(tg, 0))),
            [Some(false), Some(true), None, Some(false)]
        );
        assert_eq!([deep, policy].map(|s| idle.has(&s)), [None, Some(true)]);
        let none = seen(&[(0, 0), (3, 100 << 10)]);
        assert_eq!([idle.any(), none.any()], [true, false]);
        assert_eq!(none.has(&deep), Some(false));
    }
}
