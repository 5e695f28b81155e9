//! When a CPU is seen to execute something.
//!
//! *What.* A recorded machine's CPU can stand still for long, if it is a virtual one whose host
//! runs another. What it read before is as old as its last event. Rows of the scheduler are rare;
//! a plain trace of the same execution has many more events (ticks, interrupts, accounting), and
//! the last of them before a pass of the balancer tells when the pass can have begun. And they
//! carry TIF_NEED_RESCHED, which some set without a call that leaves a row (RCU, of a task that has
//! been in the kernel for long), and which is cleared without one where the same task goes on.
//! *Departures.* Left out are events that the pass itself makes: moves, and accounting of what
//! another CPU runs, whose queue it takes tasks from.

use super::trace::{Flags, RowKind, Trace};
use std::collections::BTreeMap;
use vruntime_base::Cpu;

/// Events of the same switch lie this near in two recordings of one execution, ns.
const NEAR_NS: u64 = 1_000_000;
/// No event is written so much earlier or later in one of them, ns.
const SAME_NS: u64 = 50_000;
/// A wakeup takes no longer from its beginning to its event, ns.
const JUST_BEFORE_NS: u64 = 200_000;
/// Of a hundred switches so many have to be in both.
const IN_BOTH: usize = 90;

/// By CPU, in order: what a plain trace shows of it.
#[derive(Clone, Debug, Default)]
pub struct Alive {
    /// Times of its own events.
    moments: Vec<Vec<u64>>,
    /// Of them those that accounted its running task, and so brought its averages up to date.
    accounted: Vec<Vec<u64>>,
    /// Whom they accounted outside of an interrupt, not to be rescheduled: by a wakeup, or as it
    /// yields.
    own: Vec<Vec<(u64, i64)>>,
    /// All that carry flags, in the order of the trace.
    flagged: Vec<Vec<Flagged>>,
}

/// What an event shows of its CPU.
#[derive(Clone, Copy, Debug)]
struct Flagged {
    ts: u64,
    flags: Flags,
    /// The task that it tells to be awake.
    wakee: Option<i64>,
}

/// By CPU.
fn flagged(plain: &Trace) -> Vec<Vec<Flagged>> {
    let rows = plain.rows.iter().enumerate().filter_map(|(i, r)| {
        let wakes = matches!(r.kind, RowKind::Wakeup | RowKind::WakeupNew);
        let wakee = wakes.then_some(r.p.pid);
        Some(((i, true), r.cpu, Flagged { ts: r.ts, flags: r.flags?, wakee }))
    });
    let glimpses = plain.glimpses.iter().filter_map(|g| {
        Some(((g.before, false), g.cpu, Flagged { ts: g.ts, flags: g.flags?, wakee: None }))
    });
    let mut all: Vec<_> = rows.chain(glimpses).collect();
    all.sort_by_key(|x| x.0);
    let mut of = vec![vec![]; plain.nr_cpus];
    all.into_iter().for_each(|(_, cpu, f)| of[cpu.ix()].push(f));
    of
}

impl Alive {
    /// Of `plain`; nothing if it has no events but rows.
    pub fn new(plain: &Trace) -> Alive {
        if plain.glimpses.is_empty() {
            return Alive::default();
        }
        let n = plain.nr_cpus;
        let (moments, accounted) = (vec![vec![]; n], vec![vec![]; n]);
        let own = vec![vec![]; n];
        let mut found = Alive { moments, accounted, own, flagged: flagged(plain) };
        let rows = plain.rows.iter().filter(|r| r.kind != RowKind::Migrate);
        rows.for_each(|r| found.moments[r.cpu.ix()].push(r.ts));
        for g in plain.glimpses.iter().filter(|g| g.ran.is_none_or(|ran| ran.pid == g.curr_pid)) {
            found.moments[g.cpu.ix()].push(g.ts);
            found.accounted[g.cpu.ix()].extend(g.ran.map(|_| g.ts));
            let own = g.flags.is_none_or(|f| !f.interrupt && !f.need_resched);
            found.own[g.cpu.ix()].extend(g.ran.filter(|_| own).map(|ran| (g.ts, ran.pid)));
        }
        found.moments.iter_mut().for_each(|all| all.sort_unstable());
        found
    }

    /// The same for the rows of `state`, if `plain` recorded the same execution on the same clock;
    /// else nothing.
    pub fn beside(state: &Trace, plain: &Trace) -> Alive {
        match is_same_execution(state, plain) {
            true => Alive::new(plain),
            false => Alive::default(),
        }
    }

    /// When `c` was last seen to execute something before `ts`, where all that it does is seen.
    pub fn before(&self, c: Cpu, ts: u64) -> Option<u64> {
        let ends = self.moments.get(c.ix())?.last()?;
        if *ends < ts { None } else { last(&self.moments, c, ts) }
    }

    /// When `c` next executed something after `ts`, where all that it does is seen.
    pub fn after(&self, c: Cpu, ts: u64) -> Option<u64> {
        let all = self.moments.get(c.ix())?;
        all.get(all.partition_point(|&x| x <= ts)).copied()
    }

    /// When `c` was last seen to execute something before `ts`; not all may be seen.
    pub fn last(&self, c: Cpu, ts: u64) -> Option<u64> {
        last(&self.moments, c, ts)
    }

    /// Whether the task running on `c` was to be rescheduled when `c` began to wake `wakee` there,
    /// which it had done by `ts`: as the event before that tells, if it is not long before.
    pub fn due(&self, c: Cpu, wakee: i64, ts: u64) -> Option<bool> {
        let all = self.flagged.get(c.ix())?;
        let from = all.partition_point(|x| x.ts + NEAR_NS < ts);
        let near = all[from..].iter().take_while(|x| x.ts <= ts + NEAR_NS);
        let wakeups = near.enumerate().filter(|(_, x)| x.wakee == Some(wakee));
        let (at, woken) = wakeups.min_by_key(|(_, x)| x.ts.abs_diff(ts))?;
        let before = all[..from + at].last().filter(|x| x.ts + JUST_BEFORE_NS >= woken.ts)?;
        Some(before.flags.need_resched)
    }

    /// Whether `pid`, running on `c` from `from` to `to`, was accounted outside of an interrupt
    /// while it was not to be rescheduled; `None`: not all may be seen.
    pub fn accounted_itself(&self, c: Cpu, pid: i64, from: u64, to: u64) -> Option<bool> {
        self.moments.get(c.ix())?.last().filter(|&&last| last >= to)?;
        let all = self.own.get(c.ix())?;
        let since = all.partition_point(|x| x.0 + SAME_NS < from);
        let mut here = all[since..].iter().take_while(|x| x.0 <= to + SAME_NS);
        Some(here.any(|x| x.1 == pid))
    }

    /// When `c` last accounted its running task before `ts`.
    pub fn accounted(&self, c: Cpu, ts: u64) -> Option<u64> {
        last(&self.accounted, c, ts)
    }
}

/// The last of `c` in `all` before `ts`.
fn last(all: &[Vec<u64>], c: Cpu, ts: u64) -> Option<u64> {
    let all = all.get(c.ix())?;
    all[..all.partition_point(|&x| x < ts)].last().copied()
}

/// The two have the same switches at the same times.
fn is_same_execution(state: &Trace, plain: &Trace) -> bool {
    let switches = |t: &Trace| -> Vec<_> {
        let all = t.rows.iter().filter(|r| r.kind == RowKind::Switch);
        all.map(|r| ((r.cpu, r.p.pid, r.n.map_or(0, |n| n.pid)), r.ts)).collect()
    };
    let mut told: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    let theirs = switches(plain);
    theirs.iter().for_each(|&(key, ts)| told.entry(key).or_default().push(ts));
    let (Some(first), Some(last)) = (theirs.first(), theirs.last()) else { return false };
    let mut ours = switches(state);
    ours.retain(|s| (first.1 + NEAR_NS..last.1.saturating_sub(NEAR_NS)).contains(&s.1));
    let is_near = |of: &[u64], ts: u64| {
        let from = of.partition_point(|&x| x + NEAR_NS < ts);
        of.get(from).is_some_and(|&x| x <= ts + NEAR_NS)
    };
    let both = ours.iter().filter(|(k, ts)| told.get(k).is_some_and(|of| is_near(of, *ts))).count();
    !ours.is_empty() && both * 100 >= ours.len() * IN_BOTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{Glimpse, Ran, Row};
    use crate::shadow::tests::{row, switch};

    fn plain(at: u64) -> Trace {
        let rows = vec![switch(at, 0, 1, 2, true), row(at + 40, 1, RowKind::Migrate, 3, 1)];
        let glimpse = |ts, cpu, pid| Glimpse {
            ts,
            cpu: Cpu(cpu),
            before: 1,
            curr_pid: 1,
            flags: None,
            ran: Some(Ran { pid, runtime: 5, vruntime: None }),
            tick: None,
        };
        let glimpses = vec![glimpse(at + 10, 1, 1), glimpse(at + 20, 1, 9)];
        let last = switch(at + 5 * NEAR_NS, 0, 2, 0, true);
        Trace { rows: [rows, vec![last]].concat(), glimpses, nr_cpus: 2, ..Trace::default() }
    }

    /// CPU 1 accounts its own task, then one of CPU 0's, and takes a task over.
    #[test]
    fn what_a_pass_does_elsewhere_is_part_of_it() {
        let alive = Alive::new(&plain(100));
        assert_eq!(alive.moments, [vec![100, 100 + 5 * NEAR_NS], vec![110]]);
        assert_eq!(alive.accounted, [vec![], vec![110]]);
        let itself = |pid, to| alive.accounted_itself(Cpu(1), pid, 100, to);
        assert_eq!(
            [itself(1, 110), itself(9, 110), itself(1, 200)],
            [Some(true), Some(false), None]
        );
        assert_eq!((alive.before(Cpu(0), 200), alive.before(Cpu(1), 200)), (Some(100), None));
    }

    /// 7 and then 8 wake on CPU 0; the flag is set before the first, and not before the second, or
    /// nothing is known from just before.
    #[test]
    fn the_flag_is_what_the_event_before_the_wakeup_shows() {
        let flags =
            |need_resched| Flags { need_resched, lazy: false, interrupt: false, hard: false };
        let waking =
            |ts, pid, set| Row { flags: Some(flags(set)), ..row(ts, 0, RowKind::Waking, pid, 0) };
        let wakeup =
            |ts, pid| Row { flags: Some(flags(true)), ..row(ts, 0, RowKind::Wakeup, pid, 0) };
        let at = 3 * NEAR_NS;
        let rows =
            vec![waking(at, 7, true), wakeup(at, 7), waking(at + 10, 8, false), wakeup(at + 10, 8)];
        let mut t = plain(at);
        t.rows = rows;
        t.glimpses.clear();
        let flagged = flagged(&t);
        let alive = Alive { flagged, ..Alive::default() };
        assert_eq!(
            [7, 8, 9].map(|pid| alive.due(Cpu(0), pid, at + 20)),
            [Some(true), Some(false), None]
        );
        t.rows.remove(2);
        t.rows[2].ts += JUST_BEFORE_NS;
        let alive = Alive { flagged: super::flagged(&t), ..Alive::default() };
        assert_eq!(alive.due(Cpu(0), 8, at + 20), None);
    }

    /// The state shows a switch that the plain trace has 20 ns, or 2 ms, earlier.
    #[test]
    fn another_execution_tells_nothing() {
        let at = 2 * NEAR_NS;
        let state = |late| {
            let rows = vec![switch(at + late, 0, 1, 2, true)];
            Trace { rows, nr_cpus: 2, ..Trace::default() }
        };
        let mut told = plain(at);
        told.rows.insert(0, switch(1, 1, 0, 1, false));
        assert_eq!(Alive::beside(&state(20), &told).moments[1], [1, at + 10]);
        assert!(Alive::beside(&state(2 * NEAR_NS), &told).moments.is_empty());
    }
}
