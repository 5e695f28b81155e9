//! Pick: at every switch to a fair task, does our code pick the task that the kernel picked?
//!
//! *What.* The queue is the tracked set with the task switched from in its recorded state.
//! Nontrivial: two or more entities were queued.
//! *Departures.* D1: a pick that keeps the running task leaves no switch and is not seen.

use super::explain::gap;
use super::result::{Disagreement, KindResult};
use crate::shadow::question::decide::Decider;
use crate::shadow::question::known::names::PLACEMENT;
use crate::shadow::question::known::{Asker, Unknown, explore};
use crate::shadow::question::levels::{CONTENT, Ent, GROUP, IMPLAUSIBLE, ent, level, plausible};
use crate::shadow::rows::trace::Row;
use crate::shadow::state::buddies::Buddies;
use crate::shadow::state::queues::{LOST, Queues, Seen, span};
use vruntime_sched::release::{FairKind, Release};

/// What a check answered is not known, or when a task was moved.
const BUDDIES: &str = "whether a preemption check marked buddies";

/// A yield that kept its task leaves no row.
const SKIP: &str = "whether a task that yields has yielded without a switch";

/// Counts and disagreements of picks.
pub struct Picks<'a> {
    k: &'a Release,
    decider: &'a Decider<'a>,
    /// Counts.
    pub counts: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Picks<'a> {
    /// At the start of the recording.
    pub fn new(k: &'a Release, decider: &'a Decider<'a>) -> Picks<'a> {
        Picks { k, decider, counts: KindResult::new("pick"), disagreements: vec![] }
    }

    /// Checks the switch row `r`. The task that should have been picked, if another one was.
    pub fn check(&mut self, r: &Row, q: &Queues) -> Option<i64> {
        let n = r.n.filter(|n| n.is_fair())?;
        let s = &q.cpus[r.cpu.ix()];
        if s.lost {
            return self.missed(&[LOST]);
        }
        let mut queued: Vec<Seen> =
            s.queued.values().filter(|e| e.side.pid != r.p.pid).copied().collect();
        let stays = r.p.is_fair() && r.p.on_rq;
        let may_stay = !stays && r.p.sched_delayed;
        if stays || may_stay {
            let seq = s.queued.get(&r.p.pid).map_or(u64::MAX, |e| e.seq);
            let vruntime = span(&r.p);
            queued.push(Seen { side: r.p, vruntime, exact: true, seq, maybe: may_stay });
        }
        let same: Vec<Seen> = queued.iter().filter(|e| e.side.tg == n.tg).copied().collect();
        if same.len() < queued.len() {
            return self.missed(&[GROUP]);
        }
        // Who is in delayed dequeue may leave in the pick.
        let there = same.iter().filter(|e| !e.maybe);
        let least = there.clone().filter(|e| !e.side.sched_delayed).count() as i64;
        if !(least..=there.count() as i64).contains(&n.cfs_nr)
            || !same.iter().any(|e| e.side.pid == n.pid)
        {
            return self.missed(&[if n.tg == 0 { CONTENT } else { GROUP }]);
        }
        let eevdf = self.k.fair == FairKind::Eevdf;
        if eevdf && same.len() > 1 && same.iter().any(|e| !e.exact) {
            return self.missed(&[PLACEMENT]);
        }
        if eevdf && same.len() > 1 && !plausible(n.vruntime, &same) {
            return self.missed(&[IMPLAUSIBLE]);
        }
        let curr = stays.then_some(r.p.pid);
        let question = |k: &mut Asker| {
            let ents: Vec<Ent> = same.iter().filter_map(|e| ent(k, e)).collect();
            let mut l = level(ents, curr, s);
            if s.perhaps != Buddies::default()
                && k.truth(Unknown { name: BUDDIES, of: 0 }, None, true)
            {
                l.buddies = s.perhaps.or(l.buddies);
            }
            let skips = (0..=s.skips.len() as i64).collect::<Vec<_>>();
            if let i @ 1.. = k.ask(Unknown { name: SKIP, of: 0 }, &skips) {
                l.buddies.skip = s.skips[i as usize - 1];
            }
            l.protected = stays && Decider::protected(self.k, &r.p, r.p.vruntime);
            self.decider.pick(&l).unwrap_or((0, "nothing"))
        };
        let o = explore(question, |a, b| a.0 == b.0);
        if !o.determined {
            return self.missed(&o.tipping);
        }
        let (pid, rule) = o.guess;
        let agrees = pid == n.pid;
        if same.len() > 1 {
            if self.decider.one_level.contradicted() {
                self.counts.set_aside(agrees);
                return None;
            }
            self.decider.one_level.note(agrees);
        }
        self.counts.count(agrees, same.len() > 1, if same.len() > 1 { rule } else { "only one" });
        if !agrees {
            let buddy = |pid: Option<i64>| pid.map_or("none".into(), |pid| format!("task {pid}"));
            let list: Vec<String> = same
                .iter()
                .map(|e| {
                    let d = e.side.vruntime.wrapping_sub(n.vruntime) as i64;
                    let dl = e.side.deadline.wrapping_sub(n.deadline) as i64;
                    let tag = if e.side.sched_delayed { ", in delayed dequeue" } else { "" };
                    let (pid, weight) = (e.side.pid, e.side.weight >> 10);
                    let (d, dl) = (gap(d), gap(dl));
                    format!("task {pid} vruntime {d}, deadline {dl}, weight {weight}{tag}")
                })
                .collect();
            self.disagreements.push(Disagreement {
                time: r.ts,
                line: r.line,
                kind: "pick".into(),
                task: r.p.pid,
                expected: format!("task {}", n.pid),
                got: format!("task {pid}"),
                rule: rule.into(),
                state: format!(
                    "less the kernel's: {}; buddies: next {}, last {}",
                    list.join("; "),
                    buddy(s.buddies.next),
                    buddy(s.buddies.last)
                ),
            });
        }
        (!agrees).then_some(pid)
    }

    fn missed<'n>(&mut self, names: impl IntoIterator<Item = &'n &'static str>) -> Option<i64> {
        self.counts.miss(names);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{RowKind, Side, Trace};
    use crate::shadow::state::one_level::OneLevel;
    use crate::shadow::tests::release;
    use vruntime_base::Cpu;

    /// 1 gives way to 2 while 3 waits, or is in delayed dequeue: the row counts `nr`.
    #[test]
    fn a_queue_that_is_not_what_the_row_counts_is_not_judged() {
        let determined = |nr, sched_delayed| {
            let side =
                |pid| Side { pid, prio: 120, on_rq: true, weight: 1 << 20, ..Side::default() };
            let n = Side { cfs_nr: nr, ..side(2) };
            let row = Row { p: side(1), n: Some(n), ..Row::new(9, Cpu(0), RowKind::Switch) };
            determined_of(&row, [side(2), Side { sched_delayed, ..side(3) }])
        };
        assert_eq!([2, 3, 4].map(|nr| determined(nr, false)), [0, 1, 0]);
        assert_eq!([2, 3, 4].map(|nr| determined(nr, true)), [1, 1, 0]);
    }

    /// 1 sleeps; 2 has the earlier deadline. If 3 may have used up part of its request before it
    /// slept, its own may be earlier, and the pick is not determined.
    #[test]
    fn a_deadline_that_may_be_earlier_is_asked_about() {
        let determined = |due_less| {
            let side = |pid, deadline| {
                let (on_rq, weight) = (true, 1 << 20);
                Side { pid, prio: 120, on_rq, weight, deadline, ..Side::default() }
            };
            let n = Side { cfs_nr: 2, ..side(2, 100) };
            let p = Side { on_rq: false, ..side(1, 90) };
            let row = Row { p, n: Some(n), b: 1, ..Row::new(9, Cpu(0), RowKind::Switch) };
            determined_of(&row, [side(2, 100), Side { due_less, ..side(3, 120) }])
        };
        assert_eq!([0, 15, 25].map(determined), [1, 1, 0]);
    }

    /// How many picks at `row`, a switch on CPU 0 of v6.12 on which these wait, are determined.
    fn determined_of(row: &Row, waiting: [Side; 2]) -> u64 {
        let t = Trace { nr_cpus: 1, ..Trace::default() };
        let mut q = Queues::new(&t);
        for p in waiting {
            q.apply(&t, &Row { p, ..Row::new(5, Cpu(0), RowKind::Wakeup) });
        }
        let k = release("v6.12");
        let decider = Decider::new(&k, 1, OneLevel::new(false));
        let mut picks = Picks::new(&k, &decider);
        picks.check(row, &q);
        picks.counts.determined
    }
}
