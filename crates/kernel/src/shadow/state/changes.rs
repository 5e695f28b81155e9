//! When a task's nice value, class or allowed CPUs were changed, between which of its rows.
//!
//! *What.* Such a change takes a queued task off its queue and puts it back, without a row. EEVDF
//! places it anew by then, with what it is owed cut to the limit: its virtual times are not those
//! that were last seen. CFS leaves them as they are. A running task may be of another class from
//! then on.
//! *Departures.* D1: a change back before the next row is not seen.

use crate::shadow::rows::trace::{Side, Trace};
use std::collections::BTreeMap;

/// By task, in order: the rows before and after a change.
type Spans = BTreeMap<i64, Vec<(u64, u64)>>;

/// The changes of a recording.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Of a fair task that leave it placed anew.
    placed: Spans,
    /// To or from the fair class.
    classes: Spans,
}

impl Changes {
    /// Collects them.
    pub fn new(t: &Trace) -> Changes {
        let mut all = Changes::default();
        // A rebuilt row may not know the nice value of its task, nor its allowed CPUs.
        if t.rebuilt {
            return all;
        }
        let eevdf = t.rows.iter().any(|r| r.p.deadline != 0);
        let mut manners: BTreeMap<i64, (u64, Side)> = BTreeMap::new();
        let mut allowed: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        for r in &t.rows {
            for side in [Some(&r.p), r.n.as_ref()].into_iter().flatten().filter(|s| s.pid > 0) {
                let Some((from, before)) = manners.insert(side.pid, (r.ts, *side)) else {
                    continue;
                };
                if (before.prio, before.policy) != (side.prio, side.policy) {
                    note(&mut all.placed, side.pid, from, r.ts);
                }
                if before.is_fair() != side.is_fair() {
                    note(&mut all.classes, side.pid, from, r.ts);
                }
            }
            let shown = r.p_nr_cpus_allowed.filter(|_| r.p.pid > 0);
            let before = shown.and_then(|n| Some((n, allowed.insert(r.p.pid, (r.ts, n))?)));
            if let Some((_, (from, _))) = before.filter(|(n, (_, was))| n != was) {
                note(&mut all.placed, r.p.pid, from, r.ts);
            }
        }
        if !eevdf {
            all.placed.clear();
        }
        all
    }

    /// Whether `pid`, seen at `ts`, may be placed anew before it is seen again.
    pub fn follow(&self, pid: i64, ts: u64) -> bool {
        during(&self.placed, pid, ts)
    }

    /// Whether `pid`, seen at `ts`, leaves the fair class or comes to it before it is seen again.
    pub fn class_follows(&self, pid: i64, ts: u64) -> bool {
        during(&self.classes, pid, ts)
    }
}

fn note(all: &mut Spans, pid: i64, from: u64, to: u64) {
    all.entry(pid).or_default().push((from, to));
}

fn during(all: &Spans, pid: i64, ts: u64) -> bool {
    all.get(&pid).is_some_and(|all| all.iter().any(|&(from, to)| from <= ts && ts < to))
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
        assert!(!c.class_follows(8, 10));
        // CFS: no deadlines.
        let cfs = rows.into_iter().map(|r| Row { p: Side { deadline: 0, ..r.p }, ..r }).collect();
        assert!(!Changes::new(&Trace { rows: cfs, ..Trace::default() }).follow(7, 20));
    }
}
