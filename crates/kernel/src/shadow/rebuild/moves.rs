//! What moved a queued task, as far as a plain trace tells.
//!
//! *What.* A move is one event, whatever made it. A wakeup's lies between the start and the end of
//! the wakeup, on the waker's CPU. In a soft interrupt only the balancer moves what is queued: to
//! its own CPU, or, if that is idle, on behalf of another one. Elsewhere a CPU that pulls a task to
//! itself and does nothing more before it switches from a task that sleeps was about to go idle. A
//! stopper pushes what ran on its CPU: for the balancer if a soft interrupt woke it, or a CPU about
//! to go idle that the task then goes to; for exec or a change of affinity if the task itself woke
//! it.
//! *Departures.* D1: what else moves tasks without an interrupt (a change of affinity, an exchange
//! between nodes) is not told apart: the path is not known.

use crate::shadow::rows::neighbours::next_rows;
use crate::shadow::rows::trace::{Flags, Named, Row, RowKind, Trace};
use std::collections::BTreeMap;
use vruntime_base::Cpu;

/// What made a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mover {
    /// The task's own wakeup.
    Wakeup,
    /// A CPU about to go idle.
    Newidle,
    /// A CPU's periodic balancing, or a CPU's own part of balancing idle ones.
    Periodic,
    /// A CPU that balances on behalf of idle ones.
    Nohz,
    /// A stopper that pushes for the balancer.
    Active,
    /// Exec, or the task's own change of affinity.
    Own,
    /// Not known.
    Unknown,
}

impl Mover {
    /// All of them.
    pub const ALL: [Mover; 7] = [
        Mover::Wakeup,
        Mover::Newidle,
        Mover::Periodic,
        Mover::Nohz,
        Mover::Active,
        Mover::Own,
        Mover::Unknown,
    ];

    /// The functions that a call chain would show.
    pub fn chain(self) -> &'static [&'static str] {
        match self {
            Mover::Wakeup => &["try_to_wake_up"],
            Mover::Newidle => &["load_balance", "newidle_balance"],
            Mover::Periodic => &["load_balance", "rebalance_domains"],
            Mover::Nohz => &["load_balance", "_nohz_idle_balance"],
            Mover::Active => &["active_load_balance_cpu_stop"],
            Mover::Own => &["migration_cpu_stop"],
            Mover::Unknown => &[UNKNOWN],
        }
    }
}

/// In place of a chain.
pub const UNKNOWN: &str = "not known";

/// What made each move of `t`, by row.
pub fn movers(t: &Trace) -> BTreeMap<usize, Mover> {
    let next = next_rows(t);
    // Tasks that are being woken, and the CPU that does it.
    let mut waking: BTreeMap<i64, Cpu> = BTreeMap::new();
    // By stopper: the row that starts its last wakeup.
    let mut woken: BTreeMap<i64, usize> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (i, r) in t.rows.iter().enumerate() {
        match r.kind {
            RowKind::Waking => {
                waking.insert(r.p.pid, r.cpu);
                woken.insert(r.p.pid, i);
            }
            RowKind::Wakeup | RowKind::WakeupNew => {
                waking.remove(&r.p.pid);
            }
            RowKind::Switch => {
                waking.remove(&r.n.map_or(0, |n| n.pid));
            }
            RowKind::Migrate if waking.get(&r.p.pid) == Some(&r.cpu) => {
                all.insert(i, Mover::Wakeup);
            }
            RowKind::Migrate => {
                all.insert(i, mover(t, &next, &woken, i));
            }
            _ => {}
        }
    }
    all
}

fn is_soft(f: Flags) -> bool {
    f.interrupt && !f.hard
}

fn mover(t: &Trace, next: &[Option<usize>], woken: &BTreeMap<i64, usize>, i: usize) -> Mover {
    let r = &t.rows[i];
    let (Some(flags), true) = (r.flags, r.p.is_fair()) else { return Mover::Unknown };
    let to_itself = r.dst_cpu() == i64::from(r.cpu.0);
    let stopper = t.named.get(&r.curr_pid) == Some(&Named::Stopper);
    if is_soft(flags) {
        // Who runs keeps the CPU from balancing for others.
        let for_others = r.curr_pid == 0 || t.named.get(&r.curr_pid) == Some(&Named::Bound);
        return match (to_itself, for_others) {
            (true, _) => Mover::Periodic,
            (false, true) => Mover::Nohz,
            (false, false) => Mover::Unknown,
        };
    }
    if flags.interrupt {
        return Mover::Unknown;
    }
    if stopper && r.src_cpu() == i64::from(r.cpu.0) {
        let Some(&by) = woken.get(&r.curr_pid) else { return Mover::Unknown };
        let waker = &t.rows[by];
        return match waker.flags {
            Some(f) if is_soft(f) => Mover::Active,
            Some(f) if f.hard => Mover::Unknown,
            _ if waker.curr_pid == r.p.pid => Mover::Own,
            _ if r.dst_cpu() == i64::from(waker.cpu.0) && goes_to_sleep(t, next, by) => {
                Mover::Active
            }
            _ => Mover::Unknown,
        };
    }
    if to_itself && goes_to_sleep(t, next, i) { Mover::Newidle } else { Mover::Unknown }
}

/// From row `i` on its CPU does nothing but switch from a task that sleeps, interrupts and moves
/// to it left out.
fn goes_to_sleep(t: &Trace, next: &[Option<usize>], i: usize) -> bool {
    let of = &t.rows[i];
    let mut at = next[i];
    while let Some(j) = at {
        let r: &Row = &t.rows[j];
        let interrupt = r.flags.is_some_and(|f| f.interrupt);
        let pulls = r.kind == RowKind::Migrate && r.dst_cpu() == i64::from(r.cpu.0);
        let stopper = t.named.get(&r.p.pid) == Some(&Named::Stopper);
        match r.kind {
            RowKind::Switch => return r.p.pid == of.curr_pid && r.prev_state() != 0,
            _ if interrupt || pulls || stopper => at = next[j],
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::Side;

    const TASK: Flags = Flags { need_resched: false, lazy: false, interrupt: false, hard: false };
    const SOFT: Flags = Flags { interrupt: true, ..TASK };
    const HARD: Flags = Flags { hard: true, ..SOFT };

    /// On CPU 1, where `curr` runs.
    fn row(kind: RowKind, curr: i64, pid: i64, flags: Flags) -> Row {
        let p = Side { pid, prio: 120, ..Side::default() };
        Row { curr_pid: curr, p, flags: Some(flags), ..Row::new(0, Cpu(1), kind) }
    }
    /// 7 is moved from CPU `a` to CPU `b`.
    fn moves(curr: i64, a: i64, b: i64, flags: Flags) -> Row {
        Row { a, b, ..row(RowKind::Migrate, curr, 7, flags) }
    }
    /// `from` gives way to 7; it sleeps.
    fn sleeps(from: i64) -> Row {
        let n = Some(Side { pid: 7, prio: 120, ..Side::default() });
        Row { b: 1, n, ..row(RowKind::Switch, from, from, TASK) }
    }
    /// Of the first move in `rows`; 50 is the stopper of CPU 1.
    fn of(rows: Vec<Row>) -> Mover {
        let named = [(50, Named::Stopper), (60, Named::Bound)].into();
        let t = Trace { rows, nr_cpus: 4, plain: true, named, ..Trace::default() };
        *movers(&t).values().next().unwrap()
    }

    #[test]
    fn a_cpu_that_pulls_and_then_leaves_a_sleeper_was_about_to_go_idle() {
        let pull = || moves(5, 0, 1, TASK);
        assert_eq!(of(vec![pull(), sleeps(5)]), Mover::Newidle);
        let wakes = |flags| row(RowKind::Waking, 5, 8, flags);
        assert_eq!(of(vec![pull(), wakes(HARD), pull(), sleeps(5)]), Mover::Newidle);
        // It goes on after that, or is preempted, or moved the task elsewhere.
        assert_eq!(of(vec![pull(), wakes(TASK), sleeps(5)]), Mover::Unknown);
        assert_eq!(of(vec![pull(), Row { b: 0, ..sleeps(5) }]), Mover::Unknown);
        // Another CPU is about to wake the task, which is in delayed dequeue.
        let woken = Row { cpu: Cpu(0), ..row(RowKind::Waking, 6, 7, TASK) };
        assert_eq!(of(vec![woken, pull(), sleeps(5)]), Mover::Newidle);
        assert_eq!(of(vec![moves(5, 0, 2, TASK), sleeps(5)]), Mover::Unknown);
    }

    #[test]
    fn a_soft_interrupt_balances_its_own_cpu_or_for_idle_ones() {
        for (curr, to, mover) in [
            (5, 1, Mover::Periodic),
            (0, 1, Mover::Periodic),
            (0, 2, Mover::Nohz),
            (60, 2, Mover::Nohz),
            (5, 2, Mover::Unknown),
        ] {
            assert_eq!(of(vec![moves(curr, 0, to, SOFT)]), mover, "{curr} {to}");
        }
        assert_eq!(of(vec![moves(5, 0, 1, HARD)]), Mover::Unknown);
        let waking = row(RowKind::Waking, 5, 7, SOFT);
        assert_eq!(of(vec![waking, moves(5, 0, 1, SOFT)]), Mover::Wakeup);
    }

    /// The stopper of CPU 1 moves 7 to CPU 2.
    #[test]
    fn a_stopper_pushes_for_whom_it_was_woken_by() {
        let wakes = |curr, flags| Row { cpu: Cpu(2), ..row(RowKind::Waking, curr, 50, flags) };
        let push = || moves(50, 1, 2, TASK);
        let on_2 = |r| Row { cpu: Cpu(2), ..r };
        assert_eq!(of(vec![wakes(5, SOFT), push()]), Mover::Active);
        assert_eq!(of(vec![wakes(5, TASK), on_2(sleeps(5)), push()]), Mover::Active);
        assert_eq!(of(vec![wakes(7, TASK), push()]), Mover::Own);
        assert_eq!(of(vec![wakes(5, TASK), push(), on_2(sleeps(5))]), Mover::Active);
        let other = Row { cpu: Cpu(3), ..row(RowKind::Waking, 5, 50, TASK) };
        assert_eq!(of(vec![other, push()]), Mover::Unknown);
        assert_eq!(of(vec![push()]), Mover::Unknown);
    }
}
