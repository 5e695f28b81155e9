//! When a task's nice value, class or allowed CPUs were changed, between which of its rows.
//!
//! *What.* Such a change takes a queued task off its queue and puts it back, without a row. EEVDF
//! places it anew by then, with what it is owed cut to the limit: its virtual times are not those
//! that were last seen. CFS leaves them as they are.
//! *Departures.* D1: a change back before the next row is not seen.

use crate::shadow::rows::trace::{Side, Trace};
use std::collections::BTreeMap;

/// By task, in order: the rows before and after a change.
#[derive(Clone, Debug, Default)]
pub struct Changes(BTreeMap<i64, Vec<(u64, u64)>>);

impl Changes {
    /// Collects them.
    pub fn new(t: &Trace) -> Changes {
        let mut all = Changes::default();
        // A rebuilt row may not know the nice value of its task, nor its allowed CPUs.
        if t.rebuilt || t.rows.iter().all(|r| r.p.deadline == 0) {
            return all;
        }
        let mut classes: BTreeMap<i64, (u64, (i64, i64))> = BTreeMap::new();
        let mut allowed: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        for r in &t.rows {
            for side in [Some(&r.p), r.n.as_ref()].into_iter().flatten().filter(|s| s.pid > 0) {
                let class = |s: &Side| (s.prio, s.policy);
                let before = classes.insert(side.pid, (r.ts, class(side)));
                all.note(side.pid, r.ts, before.filter(|b| b.1 != class(side)).map(|b| b.0));
            }
            if let Some(n) = r.p_nr_cpus_allowed.filter(|_| r.p.pid > 0) {
                let before = allowed.insert(r.p.pid, (r.ts, n));
                all.note(r.p.pid, r.ts, before.filter(|b| b.1 != n).map(|b| b.0));
            }
        }
        all
    }

    fn note(&mut self, pid: i64, to: u64, from: Option<u64>) {
        if let Some(from) = from {
            self.0.entry(pid).or_default().push((from, to));
        }
    }

    /// Whether `pid`, seen at `ts`, may be changed before it is seen again.
    pub fn follow(&self, pid: i64, ts: u64) -> bool {
        self.0.get(&pid).is_some_and(|all| all.iter().any(|&(from, to)| from <= ts && ts < to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{Row, RowKind};
    use vruntime_base::Cpu;

    /// 7 is seen at 10 and 20 with two CPUs, at 30 with four; 8 becomes nice 5 between 10 and 20.
    #[test]
    fn a_change_lies_between_two_rows_of_its_task() {
        let row = |ts, pid, prio, allowed| Row {
            p: Side { pid, prio, deadline: 1, ..Side::default() },
            p_nr_cpus_allowed: Some(allowed),
            ..Row::new(ts, Cpu(0), RowKind::Waking)
        };
        let rows = vec![row(10, 7, 120, 2), row(10, 8, 120, 4), row(20, 7, 120, 2)];
        let rows = [rows, vec![row(20, 8, 125, 4), row(30, 7, 120, 4)]].concat();
        let c = Changes::new(&Trace { rows: rows.clone(), ..Trace::default() });
        assert_eq!([10, 20, 29, 30].map(|ts| c.follow(7, ts)), [false, true, true, false]);
        assert_eq!([10, 20].map(|ts| c.follow(8, ts)), [true, false]);
        // CFS: no deadlines.
        let cfs = rows.into_iter().map(|r| Row { p: Side { deadline: 0, ..r.p }, ..r }).collect();
        assert!(!Changes::new(&Trace { rows: cfs, ..Trace::default() }).follow(7, 20));
    }
}
