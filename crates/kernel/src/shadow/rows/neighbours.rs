//! The rows of one CPU in their order: which one comes before and after a row.

use super::trace::{Row, RowKind, Trace};

/// For every row, the time of the next event of the same CPU.
pub fn next_times(t: &Trace) -> Vec<u64> {
    let mut last = vec![u64::MAX; t.nr_cpus];
    let mut next = vec![u64::MAX; t.rows.len()];
    let mut glimpses = t.glimpses.iter().rev().peekable();
    for (i, r) in t.rows.iter().enumerate().rev() {
        while let Some(g) = glimpses.next_if(|g| g.before > i) {
            last[g.cpu.ix()] = g.ts;
        }
        next[i] = std::mem::replace(&mut last[r.cpu.ix()], r.ts);
    }
    next
}

/// For every row, the next row of the same CPU; accountings, of a plain trace, left out.
pub fn next_rows(t: &Trace) -> Vec<Option<usize>> {
    let mut last = vec![None; t.nr_cpus];
    let mut next = vec![None; t.rows.len()];
    for (i, r) in t.rows.iter().enumerate().rev() {
        next[i] = last[r.cpu.ix()];
        if !is_accounting(t, r) {
            last[r.cpu.ix()] = Some(i);
        }
    }
    next
}

/// For every row that is the `next` one of some, the last of them; accountings left out as well.
pub fn previous_rows(t: &Trace, next: &[Option<usize>]) -> Vec<Option<usize>> {
    let mut previous = vec![None; next.len()];
    for (i, n) in next.iter().enumerate() {
        if let Some(n) = n.filter(|_| !is_accounting(t, &t.rows[i])) {
            previous[n] = Some(i);
        }
    }
    previous
}

/// A rebuilt row that tells of a task's virtual time, and of nothing that happened.
fn is_accounting(t: &Trace, r: &Row) -> bool {
    t.rebuilt && r.kind == RowKind::Other
}
