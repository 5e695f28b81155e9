//! Which CPUs could be seen idle, and when.
//!
//! *What.* `idle_cpu(c)` is: the idle task is current, nothing is queued and no wakeup is pending.
//! Switch rows give the first; a *claim* (a wakeup sent to `c`, a task moved to `c`) stands for
//! the other two, from the choice of the CPU to the first switch on it after the activation.
//! *Time.* A row is written a little after (switch) or before (choice of a CPU) the effect that it
//! tells of. Each effect therefore has a span; a question about a CPU whose state changes inside
//! the asked window is answered "not known".
//! *Servers.* A deadline server that another CPU's timer queues is something to run until the CPU
//! has gone through `schedule`, which leaves no row if the idle task runs on.
//! *Departures.* D1: kernels that clear `ttwu_pending` before they enqueue (6.1) show the CPU idle
//! again for a moment that is not recorded; from the choice to the activation row such a CPU is
//! "not known".

use crate::shadow::rows::neighbours::next_rows;
use crate::shadow::rows::trace::{Row, RowKind, Trace};
use crate::shadow::rows::wakes::Wakes;
use vruntime_base::Cpu;

/// The idle task became (or ceased to be) current somewhere in `lo ..= hi`.
#[derive(Clone, Copy, Debug)]
struct Turn {
    lo: u64,
    hi: u64,
    idle: bool,
}

/// Not idle from somewhere in `lo ..= hi` until `end`, whatever is current.
#[derive(Clone, Copy, Debug)]
struct Claim {
    lo: u64,
    hi: u64,
    end: u64,
    wake: Option<usize>,
}

/// Idleness of all CPUs over the recording.
#[derive(Clone, Debug)]
pub struct Idleness {
    /// By CPU, in the order of time.
    turns: Vec<Vec<Turn>>,
    /// By CPU, in the order of `lo`.
    claims: Vec<Vec<Claim>>,
    /// For every claim, the latest `end` up to it.
    ends: Vec<Vec<u64>>,
    /// The first row on the CPU shows its idle task current.
    first: Vec<Option<bool>>,
}

/// Something is queued on a CPU whose idle task runs, and no wakeup.
fn queues_server(t: &Trace, r: &Row) -> bool {
    r.kind == RowKind::NeedResched
        && r.p.pid == 0
        && r.nr_running.is_some_and(|n| n > 0)
        && t.has_frame(r, "dl_task_timer")
}

impl Idleness {
    /// `slack`: the longest time from an effect to its row that is allowed for, ns.
    /// `clear_first`: the release clears `ttwu_pending` before it enqueues.
    pub fn new(t: &Trace, wakes: &Wakes, slack: u64, clear_first: bool) -> Idleness {
        let n = t.nr_cpus;
        let (turns, claims) = (vec![vec![]; n], vec![vec![]; n]);
        let mut s = Idleness { turns, claims, ends: vec![], first: vec![None; n] };
        // Where a wakeup is shown by its waking only, the CPU may go idle before it enqueues it.
        let ends_claims = |next: i64| !t.wakings_only || next != 0;
        let mut switch_times: Vec<Vec<u64>> = vec![vec![]; n];
        let next = next_rows(t);
        let tail = 2 * slack;
        let mut prev_ts = vec![0u64; n];
        let mut switches: Vec<Option<i64>> = vec![None; n];
        for r in &t.rows {
            let c = r.cpu.ix();
            let curr = if r.kind == RowKind::Switch { r.p.pid } else { r.curr_pid };
            s.first[c].get_or_insert(curr == 0);
            if r.kind == RowKind::Switch {
                let idle = r.n.is_some_and(|n| n.pid == 0);
                if ends_claims(r.n.map_or(0, |n| n.pid)) {
                    switch_times[c].push(r.ts);
                }
                let lo = r.ts.saturating_sub(slack).max(prev_ts[c]);
                let before = std::mem::replace(&mut switches[c], r.nr_switches);
                if before.zip(r.nr_switches).is_some_and(|(b, now)| now - b > 1) {
                    // Rows were lost: anything may have been current since the last one.
                    s.turns[c].push(Turn { lo: prev_ts[c], hi: r.ts, idle: !idle });
                    s.turns[c].push(Turn { lo: prev_ts[c], hi: r.ts, idle });
                } else if idle || r.p.pid == 0 {
                    s.turns[c].push(Turn { lo: if idle { lo } else { r.ts }, hi: r.ts, idle });
                }
            }
            prev_ts[c] = r.ts;
        }
        let ends = |c: usize, after: u64| {
            let all = &switch_times[c];
            all.get(all.partition_point(|&ts| ts <= after)).copied().unwrap_or(u64::MAX)
        };
        for (i, w) in wakes.list.iter().enumerate() {
            let done = t.rows[w.wakeup].ts;
            // A move to the chosen CPU has its row before the wakeup shows there.
            let moves = |n: &usize| {
                let n = &t.rows[*n];
                n.kind == RowKind::Migrate && n.p.pid == t.rows[w.wakeup].p.pid
            };
            let after = |f: usize| {
                let at = |n: usize| next[n].map_or(done, |n| t.rows[n].ts);
                match next[f].filter(moves) {
                    Some(n) => at(n).min(t.rows[n].ts + slack),
                    None => at(f),
                }
                .min(done)
            };
            let (mut lo, mut hi) = match w.select.or(w.waking) {
                // The choice of a CPU is no event of a plain trace: it comes after that of waking.
                // Without a wake list nothing shows on the chosen CPU before the task is enqueued.
                Some(f) if t.rebuilt => {
                    let hi = if w.queued { after(f) } else { done };
                    (w.waking.map_or(done, |i| t.rows[i].ts), hi)
                }
                Some(f) => (t.rows[f].ts, after(f)),
                None => (done.saturating_sub(slack), done),
            };
            let end = ends(w.target.ix(), done);
            let claims = &mut s.claims[w.target.ix()];
            lo = lo.min(hi);
            let elsewhere = t.rows[w.wakeup].cpu != w.target;
            if t.wakings_only && clear_first && elsewhere {
                hi = end; // D1, and when the activation was is not known.
            }
            if w.queued && clear_first {
                // Pending until shortly before the activation; then, for a moment, nothing (D1).
                let clear = done.saturating_sub(tail).max(lo);
                claims.push(Claim { lo, hi: hi.min(clear), end: clear, wake: Some(i) });
                (lo, hi) = (clear, done);
            }
            claims.push(Claim { lo, hi, end, wake: Some(i) });
        }
        for (i, r) in t.rows.iter().enumerate() {
            if r.kind == RowKind::Migrate
                && !t.in_wakeup(r)
                && let Some(c) = r.dst_ix(n)
            {
                let end = ends(c, r.ts);
                // A pick takes a delayed task off, and that of an idle CPU may leave no row.
                let hi = match r.p.sched_delayed {
                    true => end,
                    false => next[i].map_or(r.ts + slack, |x| t.rows[x].ts),
                };
                s.claims[c].push(Claim { lo: r.ts, hi, end, wake: None });
            }
        }
        for (i, r) in t.rows.iter().enumerate().filter(|(_, r)| queues_server(t, r)) {
            let c = r.rq_cpu;
            let ends_it = |x: &&Row| x.cpu == c || x.rq_cpu == c && x.nr_running == Some(0);
            let seen = t.rows[i + 1..].iter().find(ends_it).map_or(u64::MAX, |x| x.ts);
            let alive = t.alive.after(c, r.ts).map(|ts| ts.min(seen));
            let (hi, end) = (alive.map_or(seen, |_| r.ts), alive.unwrap_or(seen));
            let claim = Claim { lo: r.ts.saturating_sub(slack), hi, end, wake: None };
            let done = end.saturating_add(tail);
            s.claims[c.ix()].push(claim);
            s.claims[c.ix()].push(Claim { lo: end, hi: done, end: done, wake: None });
        }
        for claims in &mut s.claims {
            claims.sort_by_key(|k| k.lo);
            let latest = |max: &mut u64, k: &Claim| {
                *max = k.end.max(*max);
                Some(*max)
            };
            s.ends.push(claims.iter().scan(0, latest).collect());
        }
        s
    }

    /// `idle_cpu(c)` at some moment of `from ..= to`, the effect of wakeup `own` left out.
    /// `None`: it may be either.
    pub fn at(&self, c: Cpu, from: u64, to: u64, own: Option<usize>) -> Option<bool> {
        let (mut can_idle, mut can_busy) = self.current(c, from, to);
        let (claims, ends) = (&self.claims[c.ix()], &self.ends[c.ix()]);
        let begun = claims.partition_point(|k| k.lo <= to);
        let open = ends.partition_point(|&end| end <= from);
        for k in claims.get(open..begun).unwrap_or_default() {
            if k.end > from && (own.is_none() || k.wake != own) {
                can_busy = true;
                if k.hi <= from && k.end > to {
                    can_idle = false;
                }
            }
        }
        match (can_idle, can_busy) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Whether the idle task can be, and can fail to be, current in `from ..= to`.
    fn current(&self, c: Cpu, from: u64, to: u64) -> (bool, bool) {
        let turns = &self.turns[c.ix()];
        let (past, ahead) = turns.split_at(turns.partition_point(|k| k.hi <= from));
        let state = past.last().map(|k| k.idle).or(self.first[c.ix()]);
        let (mut can_idle, mut can_busy) = (false, false);
        for k in ahead.iter().take_while(|k| k.lo <= to) {
            can_idle |= k.idle;
            can_busy |= !k.idle;
        }
        match state {
            Some(true) => can_idle = true,
            Some(false) => can_busy = true,
            None => (can_idle, can_busy) = (true, true),
        }
        (can_idle, can_busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rebuild::rebuild;
    use crate::shadow::tests::{release, row, switch, woken};

    /// CPU 1 is idle when the balancer brings 2. If that only waits to be taken off by a pick, one
    /// may have done so since, and CPU 1 goes on with the idle task without a switch.
    #[test]
    fn a_task_in_delayed_dequeue_may_leave_a_cpu_idle() {
        let seen = |sched_delayed| {
            let mut moves = row(1_000, 0, RowKind::Migrate, 2, 1);
            (moves.b, moves.p.on_rq, moves.p.sched_delayed) = (1, true, sched_delayed);
            let rows = vec![switch(10, 0, 9, 1, false), switch(20, 1, 8, 0, true), moves];
            let t = Trace { rows, nr_cpus: 2, ..Trace::default() };
            let idle = Idleness::new(&t, &Wakes::new(&t), 300, false);
            [990, 1_010, 5_000].map(|at| idle.at(Cpu(1), at, at, None))
        };
        assert_eq!(seen(false), [Some(true), None, Some(false)]);
        assert_eq!(seen(true), [Some(true), None, None]);
    }

    /// CPU 1 is idle when a timer on CPU 0 queues its deadline server at 1,000; at 5,000 CPU 1 is
    /// seen to go on with its idle task.
    #[test]
    fn a_server_that_is_queued_keeps_a_cpu_busy_until_it_has_looked() {
        let asks = |by: &str| {
            let row = row(1_000, 0, RowKind::NeedResched, 0, 1);
            let asks = Row { rq_cpu: Cpu(1), nr_running: Some(1), stack: Some(0), ..row };
            let later = Row { nr_running: Some(0), ..row_of_1(5_000) };
            let rows = vec![switch(10, 0, 9, 1, false), switch(20, 1, 8, 0, true), asks, later];
            let stacks = vec![vec!["resched_curr".to_owned(), by.to_owned()]];
            let t = Trace { rows, stacks, nr_cpus: 2, ..Trace::default() };
            let idle = Idleness::new(&t, &Wakes::new(&t), 300, false);
            [600, 1_010, 4_900, 5_700].map(|at| idle.at(Cpu(1), at, at, None))
        };
        assert_eq!(asks("dl_task_timer"), [Some(true), None, None, Some(true)]);
        assert_eq!(asks("sched_tick"), [Some(true); 4]);
    }

    fn row_of_1(ts: u64) -> Row {
        row(ts, 1, RowKind::Waking, 7, 0)
    }

    /// CPU 1 is idle. CPU 0 chooses it for 2 and writes the row of the move at 1,000; CPU 1 takes 2
    /// off its wake list at 9,000. When the wakeup began to show there is not known for 300 ns.
    #[test]
    fn a_wakeup_shows_a_little_after_the_row_of_its_move() {
        let k = release("v6.12");
        let mut rows = vec![switch(10, 0, 9, 1, false), switch(20, 1, 8, 0, true)];
        let waking = woken(990, 0, 2, 1)[0].clone();
        let moves = Row { a: 0, b: 1, ..row(1_000, 0, RowKind::Migrate, 2, 1) };
        let wakeup = Row { a: 1, ..row(9_000, 1, RowKind::Wakeup, 2, 0) };
        rows.extend([waking, moves, wakeup]);
        let t = Trace { rows, nr_cpus: 2, plain: true, ..Trace::default() };
        let t = rebuild(&t, &k);
        let idle = Idleness::new(&t, &Wakes::new(&t), 300, false);
        let seen = [980, 1_010, 1_299, 1_301, 8_000].map(|at| idle.at(Cpu(1), at, at, None));
        assert_eq!(seen, [Some(true), None, None, Some(false), Some(false)]);
    }
}
