//! Wakeups, put together from their rows: who woke whom, where it was put, when it was activated.

use super::trace::{RowKind, Trace, WF_FORK, WF_TTWU};
use std::collections::BTreeMap;
use vruntime_base::Cpu;

/// One wakeup (or fork). Rows are indices into [`Trace::rows`].
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// Wakee.
    pub pid: i64,
    /// `waking` row; a fork has none.
    pub waking: Option<usize>,
    /// `select_rq` row, if a CPU was chosen.
    pub select: Option<usize>,
    /// `wakeup` or `wakeup_new` row.
    pub wakeup: usize,
    /// CPU it was activated on.
    pub target: Cpu,
    /// The target activated it from its wake list.
    pub queued: bool,
}

/// All wakeups of a recording, and which wakeup a row belongs to.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    /// In order of their activation.
    pub list: Vec<Wake>,
    of_row: BTreeMap<usize, usize>,
}

impl Wakes {
    /// Puts them together.
    pub fn new(t: &Trace) -> Wakes {
        let mut w = Wakes::default();
        let mut open: BTreeMap<i64, (Option<usize>, Option<usize>)> = BTreeMap::new();
        for (i, r) in t.rows.iter().enumerate() {
            match r.kind {
                RowKind::Waking => {
                    open.insert(r.p.pid, (Some(i), None));
                }
                RowKind::SelectRq if r.wake_flags() & (WF_FORK | WF_TTWU) != 0 => {
                    open.entry(r.p.pid).or_default().1 = Some(i)
                }
                RowKind::Wakeup | RowKind::WakeupNew => {
                    let (waking, select) = open.remove(&r.p.pid).unwrap_or_default();
                    let first = select.or(waking);
                    let ix = w.list.len();
                    for row in [waking, select, Some(i)].into_iter().flatten() {
                        w.of_row.insert(row, ix);
                    }
                    w.list.push(Wake {
                        pid: r.p.pid,
                        waking,
                        select,
                        wakeup: i,
                        target: r.rq_cpu,
                        queued: first.is_some_and(|f| t.rows[f].cpu != r.cpu),
                    });
                }
                _ => {}
            }
        }
        w
    }
    /// The wakeup that row `row` is part of.
    pub fn of_row(&self, row: usize) -> Option<usize> {
        self.of_row.get(&row).copied()
    }
}
