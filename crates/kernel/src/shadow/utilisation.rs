//! What is known of the utilisation and the runnable time of a CPU at a moment: intervals.
//!
//! *What.* Rows show `util_avg` of a queue as it stood then; between rows only ticks (of a CPU that
//! runs something) and the balancer bring it up to date, up while a fair task runs and down while
//! none does. Moved tasks
//! bring theirs; sleepers woken elsewhere take it away at the next update. `runnable_avg` is in no
//! row: it is at least the utilisation, and at most what the load would be if it were all of the
//! lightest weight (both averages are sums over the same time).
//! *Equation.* runnable ≤ load · 1024 / weight of the lightest task.

use super::loads::{Loads, decay};
use super::queues::CpuState;
use super::trace::{RowKind, Trace};
use vruntime_base::Cpu;

const FULL: u64 = 1024;

/// Known utilisation of all CPUs.
#[derive(Clone, Debug)]
pub struct Utilisation {
    points: Vec<Vec<(u64, u64)>>,
    /// Utilisation that may join or leave: when, signed.
    moves: Vec<Vec<(u64, i64)>>,
    lightest: u64,
    /// The longest time between two ticks of a busy CPU that is allowed for.
    late: u64,
}

/// Ticks are late on an emulated machine, by one at the most.
const LATE_TICKS: u64 = 2;

impl Utilisation {
    /// Collects it.
    pub fn new(t: &Trace, tick: u64) -> Utilisation {
        let n = t.nr_cpus;
        let mut s = Utilisation {
            points: vec![vec![]; n],
            moves: vec![vec![]; n],
            lightest: FULL,
            late: LATE_TICKS * tick,
        };
        for r in &t.rows {
            for (c, side) in [(r.rq_cpu, Some(&r.p)), (r.cpu, r.n.as_ref())] {
                let Some(side) = side else { continue };
                if side.tg == 0 {
                    s.points[c.ix()].push((r.ts, side.cfs_util_avg));
                }
                if side.is_fair() && side.weight > 0 {
                    s.lightest = s.lightest.min((side.weight >> 10).max(1));
                }
            }
            if r.kind == RowKind::Migrate {
                let util = r.p.util_avg as i64;
                if t.in_wakeup(r) {
                    s.moves[r.rq_cpu.ix()].push((r.ts, -util));
                } else if (0..n as i64).contains(&r.b) {
                    s.moves[r.b as usize].push((r.ts, util));
                }
            }
        }
        s
    }

    /// Lowest and highest utilisation of `c`, whose queue is `s`, that a reader in `from ..= to`
    /// can have seen.
    pub fn at(&self, c: Cpu, s: &CpuState, from: u64, to: u64) -> (u64, u64) {
        let p = &self.points[c.ix()];
        let end = p.partition_point(|x| x.0 <= to);
        let Some(&(ts, last)) = p[..end].last() else { return (0, FULL) };
        let inside = p[..end].partition_point(|x| x.0 < from);
        let all = p[inside..end].iter().map(|x| x.1);
        let (mut lo, mut hi) = all.fold((last, last), |(l, h), x| (l.min(x), h.max(x)));
        let running = s.running.map(|(n, _)| n.is_fair());
        if running != Some(true) {
            lo = lo.min(decay(last, 0, to - ts));
        }
        if s.curr != Some(0) && running != Some(false) {
            let grown = |dt| decay(last.min(FULL), FULL, dt);
            hi = hi.max(grown(to - ts));
            if running == Some(true) && ts < from {
                lo = lo.max(grown((to - ts).saturating_sub(self.late))).min(hi);
            }
        }
        for &(_, d) in self.moves[c.ix()].iter().filter(|m| m.0 > ts && m.0 <= to) {
            if d < 0 {
                lo = lo.saturating_sub(d.unsigned_abs());
            } else {
                hi += d as u64;
            }
        }
        (lo, hi)
    }

    /// The same with the estimate of what is queued, where the release has one.
    pub fn estimated(&self, c: Cpu, s: &CpuState, from: u64, to: u64) -> (u64, u64) {
        let (lo, hi) = self.at(c, s, from, to);
        let sum = |delayed: bool| -> u64 {
            let queued = s.queued.values().filter(|q| delayed || !q.side.sched_delayed);
            queued.map(|q| q.side.util_est).sum()
        };
        (lo.max(sum(false)).min(FULL), hi.max(sum(true)).min(FULL))
    }

    /// Lowest and highest load.
    pub fn load(
        &self,
        c: Cpu,
        s: &CpuState,
        loads: &Loads,
        from: u64,
        to: u64,
    ) -> Option<(u64, u64)> {
        match s.running.is_some_and(|(n, _)| n.pid != 0) {
            true => loads.ticked(c, from, to, self.late),
            false => loads.at(c, from, to),
        }
    }

    /// Lowest and highest runnable time of `c` at the same time.
    pub fn runnable(
        &self,
        c: Cpu,
        s: &CpuState,
        loads: &Loads,
        from: u64,
        to: u64,
    ) -> Option<(u64, u64)> {
        let (_, load) = self.load(c, s, loads, from, to)?;
        let least = self.at(c, s, from, to).0;
        Some((least, (load * FULL / self.lightest).max(least)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::trace::{Row, Side};

    const MS: u64 = 1 << 20;

    fn recorded(util: u64) -> (Trace, CpuState) {
        let mut r = Row::new(0, Cpu(0), RowKind::Switch);
        let busy = Side { pid: 7, prio: 120, weight: 1 << 20, ..Side::default() };
        r.p = Side { cfs_util_avg: util, cfs_load_avg: 2 * util, cfs_load_weight: 2 << 20, ..busy };
        let mut s = CpuState::default();
        (s.curr, s.running) = (Some(7), Some((busy, 0)));
        (Trace { rows: vec![r], nr_cpus: 1, ..Trace::default() }, s)
    }

    /// Half the way to 1024 in 32 ms while a task runs, half of it left in 32 ms while none does.
    #[test]
    fn it_grows_while_a_task_runs_and_falls_while_none_does() {
        let (t, busy) = recorded(512);
        let u = Utilisation::new(&t, 16 * MS);
        assert_eq!(u.at(Cpu(0), &busy, 32 * MS, 32 * MS), (512, 768));
        // The last tick was 32 ms ago at the most: half the way then, three quarters by now.
        assert_eq!(u.at(Cpu(0), &busy, 64 * MS, 64 * MS), (768, 896));
        let mut idle = busy;
        (idle.curr, idle.running) = (Some(0), Some((Side::default(), 0)));
        assert_eq!(u.at(Cpu(0), &idle, 32 * MS, 32 * MS), (256, 512));
    }

    #[test]
    fn runnable_time_lies_between_utilisation_and_load() {
        let (t, busy) = recorded(512);
        let range = Utilisation::new(&t, MS).runnable(Cpu(0), &busy, &Loads::new(&t), 0, 0);
        assert_eq!(range, Some((512, 1024)));
    }
}
