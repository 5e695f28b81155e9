//! What `nr_idle_scan` of a last-level cache can be: an interval.
//!
//! *What.* The balancer computes the limit now and then from the utilisation of the cache's CPUs;
//! neither the moment nor the value is recorded. At first anything is possible. A search whose
//! outcome depends on the limit tells something about it. From then on the limit is what it was,
//! or what any utilisation seen since would give.
//! *Equation.* [`nr_idle_scan`], of the sum of utilisations.
//! *Departures.* D1: utilisation between rows is bounded, not known: an idle CPU's lies between
//! full decay and its last value, a busy one's between its last value and full growth, and may
//! be the sum of its tasks' estimates. A pass that finds several tasks none of which may go to its
//! CPU goes on without theirs, and what it then sums up lacks that CPU. D2: of a plain trace that
//! is not taken in.

use super::queues::Queues;
use crate::shadow::rows::trace::Row;
use std::collections::BTreeSet;
use vruntime_base::Cpu;
use vruntime_machine::{LlcId, Topology};
use vruntime_sched::balance::stats::nr_idle_scan;
use vruntime_sched::domains::Domains;
use vruntime_sched::fair::pelt::average_after;

/// Utilisation of a CPU when last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Util {
    ts: u64,
    /// Lowest and highest.
    avg: (u64, u64),
}

#[derive(Clone, Debug)]
struct Llc {
    cpus: Vec<Cpu>,
    pct: u32,
    range: (u64, u64),
}

/// Limits of all last-level caches.
#[derive(Clone, Debug)]
pub struct ScanLimits {
    llcs: Vec<Llc>,
    utils: Vec<Option<Util>>,
    /// Tasks that may not use all CPUs, as last seen.
    bound: BTreeSet<i64>,
    rebuilt: bool,
}

impl ScanLimits {
    /// Nothing is known.
    pub fn new(t: &Topology, d: &Domains, rebuilt: bool) -> ScanLimits {
        let mut llcs: Vec<Llc> = Vec::new();
        for l in 0..t.nr_llcs() {
            let all = t.llc_cpus(LlcId::from_ix(l));
            // Isolated CPUs are in no domain.
            let id = all.iter().map(|c| d.sd_llc(c)).find(|id| id.is_some());
            let (pct, span) = match id {
                Some(id) => (d.sd(id).imbalance_pct, d.sd(id).span),
                None => (117, *all),
            };
            let cpus: Vec<Cpu> = span.iter().collect();
            let range = (0, cpus.len() as u64);
            llcs.push(Llc { cpus, pct, range });
        }
        ScanLimits { llcs, utils: vec![None; t.nr_cpus()], bound: BTreeSet::new(), rebuilt }
    }

    /// Lowest and highest possible limit of cache `llc`.
    pub fn range(&self, llc: usize) -> (u64, u64) {
        self.llcs[llc].range
    }

    /// A search has shown that the limit lies in `range`.
    pub fn learn(&mut self, llc: usize, range: (u64, u64)) {
        let r = &mut self.llcs[llc].range;
        if range.0 <= range.1 {
            *r = range;
        }
    }

    /// Takes in the utilisation that `r` shows; the balancer may compute the limit at any moment.
    pub fn row(&mut self, r: &Row, queues: &Queues) {
        for (c, side) in [(r.rq_cpu, Some(&r.p)), (r.cpu, r.n.as_ref())] {
            if let Some(side) = side.filter(|s| s.tg == 0) {
                let avg = (side.cfs_util_avg, side.cfs_util_avg + side.cfs_util_more);
                self.utils[c.ix()] = Some(Util { ts: r.ts, avg });
            }
        }
        match r.p_nr_cpus_allowed.filter(|_| !self.rebuilt) {
            Some(n) if n < self.utils.len() as i64 => _ = self.bound.insert(r.p.pid),
            Some(_) => _ = self.bound.remove(&r.p.pid),
            None => {}
        }
        for l in &mut self.llcs {
            if !l.cpus.contains(&r.cpu) && !l.cpus.contains(&r.rq_cpu) {
                continue;
            }
            let w = l.cpus.len() as u32;
            let (mut lo, mut hi) = (0, 0);
            for c in &l.cpus {
                let (a, b) = bounds(self.utils[c.ix()], &queues.cpus[c.ix()], r.ts);
                let queued = &queues.cpus[c.ix()].queued;
                let left_out = queued.len() > 1 && queued.keys().all(|p| self.bound.contains(p));
                lo += if left_out { 0 } else { a };
                hi += b;
            }
            let least = u64::from(nr_idle_scan(hi, w, l.pct));
            let most = u64::from(nr_idle_scan(lo, w, l.pct));
            l.range = (l.range.0.min(least), l.range.1.max(most));
        }
    }
}

/// Lowest and highest utilisation of a CPU now.
fn bounds(u: Option<Util>, s: &super::queues::CpuState, now: u64) -> (u64, u64) {
    let Some(u) = u else { return (0, 1024) };
    let dt = now.saturating_sub(u.ts);
    if s.curr == Some(0) {
        return (average_after(u.avg.0, 0, dt).0, u.avg.1);
    }
    let est: u64 = s.queued.values().map(|q| q.side.util_est).sum();
    (u.avg.0.min(1024), average_after(u.avg.1, 1024, dt).1.max(est).min(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{RowKind, Side, Trace};
    use crate::shadow::tests::{cores, release};

    /// Of four CPUs of a cache two are fully used: 2 · 1024 / 4 = 512 each, so two may be looked
    /// at, or fewer if the others are used as well. If the two tasks on each are bound, a pass of
    /// another CPU may sum up the others alone: four.
    #[test]
    fn a_pass_may_leave_out_cpus_whose_tasks_are_bound() {
        let limit = |allowed: i64| {
            let (topo, k) = (cores(4, 4), release("v6.12"));
            let mut limits = ScanLimits::new(&topo, &Domains::build(&topo, &k), false);
            limits.learn(0, (0, 0));
            let t = Trace { nr_cpus: 4, ..Trace::default() };
            let mut queues = Queues::new(&t);
            for c in 0..2u16 {
                for (i, kind) in [RowKind::Wakeup, RowKind::Switch].into_iter().enumerate() {
                    let pid = 7 + i64::from(2 * c) + i as i64;
                    let cfs_util_avg = 1024;
                    let p = Side { pid, prio: 120, on_rq: true, cfs_util_avg, ..Side::default() };
                    let n = Some(p).filter(|_| kind == RowKind::Switch);
                    let from = if n.is_some() { Side::default() } else { p };
                    let allowed = Some(allowed);
                    let shows = Row { p, p_nr_cpus_allowed: allowed, ..Row::new(1, Cpu(c), kind) };
                    queues.apply(&t, &Row { p: from, n, ..shows.clone() });
                    limits.row(&shows, &queues);
                }
            }
            limits.range(0)
        };
        // After the first of them nothing was known of three.
        assert_eq!((limit(4), limit(2)), ((0, 3), (0, 4)));
    }
}
