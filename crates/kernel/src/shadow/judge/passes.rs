//! Which rows are one pass of the balancer: moves of one CPU from one queue to another, with no
//! other row of that CPU between them.
//!
//! A push by the stopper is a pass for itself. In a plain trace the path is not recorded: moves
//! that may be the balancer's are taken for one pass as well.

use crate::shadow::rebuild::moves::UNKNOWN;
use crate::shadow::rows::trace::{Row, RowKind, Trace};
use crate::shadow::state::counts::{in_balance, is_detaching};
use std::collections::BTreeMap;
use vruntime_sched::scheduler::BalanceKind;

/// Which path moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    Balance(BalanceKind),
    Active,
    /// Rebuilt: maybe the balancer.
    Unknown,
}

/// Moves of one pass.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) path: Path,
    pub(super) rows: Vec<usize>,
    /// Earliest row of the first task's removal.
    pub(super) detaches: usize,
    /// The softirq had moved a task to this CPU before.
    pub(super) again: bool,
}

/// The passes that moved something, by their first row.
pub(super) fn moved_together(t: &Trace, prev: &[Option<usize>]) -> BTreeMap<usize, Batch> {
    let mut all: BTreeMap<usize, Batch> = BTreeMap::new();
    // By CPU: the pass that its next row may belong to; pulls by this softirq.
    let mut open: Vec<Option<usize>> = vec![None; t.nr_cpus];
    let mut pulled: Vec<Vec<i64>> = vec![vec![]; t.nr_cpus];
    for (i, r) in t.rows.iter().enumerate() {
        let c = r.cpu.ix();
        if r.kind == RowKind::Switch {
            pulled[c].clear();
        }
        if t.rebuilt && r.kind == RowKind::Other {
            continue;
        }
        let Some(path) = path(t, r) else {
            if !is_detaching(t, r) {
                open[c] = None;
            }
            continue;
        };
        let known = |c: i64| (0..t.nr_cpus as i64).contains(&c);
        if !known(r.src_cpu()) || !known(r.dst_cpu()) {
            continue;
        }
        if let Some(b) = open[c].and_then(|first| all.get_mut(&first)) {
            let first = &t.rows[b.rows[0]];
            let same = first.src_cpu() == r.src_cpu() && first.dst_cpu() == r.dst_cpu();
            if b.path == path && same && path != Path::Active {
                b.rows.push(i);
                continue;
            }
        }
        let mut detaches = i;
        while let Some(p) = prev[detaches].filter(|&p| is_detaching(t, &t.rows[p])) {
            detaches = p;
        }
        let again = pulled[c].contains(&r.dst_cpu())
            && !matches!(path, Path::Balance(BalanceKind::Newidle));
        pulled[c].push(r.dst_cpu());
        open[c] = Some(i);
        all.insert(i, Batch { path, rows: vec![i], detaches, again });
    }
    all
}

/// What moved the task of `r`, if the balancer did.
fn path(t: &Trace, r: &Row) -> Option<Path> {
    if r.kind != RowKind::Migrate {
        return None;
    }
    if t.has_frame(r, "active_load_balance_cpu_stop") {
        return Some(Path::Active);
    }
    if t.has_frame(r, UNKNOWN) && r.p.is_fair() {
        return Some(Path::Unknown);
    }
    let any = |names: &[&str]| names.iter().any(|f| t.has_frame(r, f));
    let kind = if !in_balance(t, r) {
        return None;
    } else if any(&["newidle_balance", "sched_balance_newidle"]) {
        BalanceKind::Newidle
    } else if any(&["_nohz_idle_balance", "nohz_idle_balance"]) {
        BalanceKind::Nohz
    } else if any(&["rebalance_domains", "sched_balance_domains"]) {
        BalanceKind::Periodic
    } else {
        return None;
    };
    Some(Path::Balance(kind))
}
