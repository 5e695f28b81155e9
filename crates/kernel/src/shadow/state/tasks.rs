//! What is known of tasks beyond the row at hand: kernel thread, bound to one CPU, exiting,
//! allowed CPUs.
//!
//! Newer recordings show `current->flags` and `nr_cpus_allowed` in every row. For older ones the
//! same facts follow from the rows: a call chain that ends in `kthread` or in a system call; a
//! wakeup without `select_rq` row (the hook is called only if the task may use several CPUs).

use crate::shadow::rows::trace::{PF_KTHREAD, Row, RowKind, Trace};
use crate::shadow::rows::wakes::Wakes;
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::{Cpu, CpuMask};

const PF_EXITING: i64 = 0x4;

/// Facts by task.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    kthread: BTreeMap<i64, bool>,
    /// Wakeups that went through the choice of a CPU, and that did not.
    chosen: BTreeMap<i64, (u32, u32)>,
    has_affinity: bool,
}

impl Tasks {
    /// Collects them.
    pub fn new(t: &Trace, wakes: &Wakes) -> Tasks {
        let mut s = Tasks {
            has_affinity: t.rows.iter().any(|r| r.p_nr_cpus_allowed.is_some()),
            ..Tasks::default()
        };
        for r in &t.rows {
            let curr = if r.kind == RowKind::Switch { r.p.pid } else { r.curr_pid };
            let kernel = t.stack(r).iter().any(|f| f == "kthread" || f == "kthreadd");
            let user = t.stack(r).iter().any(|f| {
                f.starts_with("do_syscall")
                    || f.starts_with("entry_SYSCALL")
                    || f == "exc_page_fault"
            });
            if kernel || user {
                s.kthread.insert(curr, kernel);
            }
        }
        let first = t.rows.iter().position(|r| r.kind == RowKind::SelectRq).unwrap_or(usize::MAX);
        for w in &wakes.list {
            let Some(waking) = w.waking.filter(|&i| i > first) else { continue };
            let r = &t.rows[waking];
            if r.p.on_rq || r.p.pid == r.curr_pid || r.p_nr_cpus_allowed.is_some_and(|n| n <= 0) {
                continue;
            }
            let e = s.chosen.entry(w.pid).or_default();
            if w.select.is_some() {
                e.0 += 1;
            } else if r.on_cpu == Some(false) {
                e.1 += 1;
            }
        }
        s
    }

    /// The task running at `r` is a kernel thread that may use one CPU only.
    pub fn waker_is_per_cpu_kthread(&self, r: &Row) -> Option<bool> {
        if let (Some(f), Some(n)) = (r.curr_flags, r.curr_nr_cpus_allowed) {
            return Some(f & PF_KTHREAD != 0 && n == 1);
        }
        if r.curr_pid == 0 {
            return Some(true);
        }
        if self.kthread.get(&r.curr_pid) == Some(&false) {
            return Some(false);
        }
        match self.chosen.get(&r.curr_pid) {
            Some((1.., _)) => Some(false),
            Some((0, 1..)) => self.kthread.get(&r.curr_pid).copied(),
            _ => None,
        }
    }

    /// The task running at `r` is exiting.
    pub fn waker_exits(&self, t: &Trace, r: &Row) -> bool {
        match r.curr_flags {
            Some(f) => f & PF_EXITING != 0,
            None => t.has_frame(r, "do_exit"),
        }
    }

    /// CPUs that the wakee of `r` is known to be allowed on, and known not to be.
    ///
    /// Recordings without `p_nr_cpus_allowed` say nothing about affinity; then every task whose
    /// CPU was chosen at all is taken to be free (the report names this assumption).
    pub fn allowed(&self, r: &Row, nr_cpus: usize) -> Allowed {
        match r.p_nr_cpus_allowed {
            Some(n) if n >= nr_cpus as i64 => Allowed::Any,
            None if !self.has_affinity => Allowed::Any,
            n => Allowed::Some(n.unwrap_or(0)),
        }
    }
    /// As far as its wakeups tell, `pid` is a kernel thread that may use one CPU only.
    pub fn is_bound(&self, pid: i64) -> bool {
        matches!(self.chosen.get(&pid), Some((0, 1..))) && self.kthread.get(&pid) != Some(&false)
    }
    /// The recording shows affinities.
    pub fn has_affinity(&self) -> bool {
        self.has_affinity
    }
}

/// Affinity of a wakee as far as it is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// Every CPU.
    Any,
    /// This many CPUs, which ones is not recorded. Zero and less: not even how many; each such
    /// number stands for one span of time in which they stayed the same.
    Some(i64),
}

/// CPUs that tasks were seen on so far, by task and number of allowed CPUs.
#[derive(Clone, Debug, Default)]
pub struct SeenOn {
    on: BTreeMap<(i64, i64), CpuMask>,
    /// How many CPUs each task may use.
    nr: BTreeMap<i64, i64>,
    /// Tasks whose number has changed: until a CPU was chosen anew they may be on a forbidden one.
    changed: BTreeSet<i64>,
}

impl SeenOn {
    /// Takes in where `r` shows its tasks to be.
    pub fn note(&mut self, t: &Trace, r: &Row) {
        let by_affinity = |f: &String| {
            f == "migration_cpu_stop" || f == "affine_move_task" || f.contains("set_cpus_allowed")
        };
        if r.kind == RowKind::Migrate && t.stack(r).iter().any(by_affinity) {
            // It may use other CPUs from now on, maybe as many as before.
            self.on.retain(|&(pid, _), _| pid != r.p.pid);
            self.changed.insert(r.p.pid);
        }
        self.note_task(r.curr_pid, r.curr_nr_cpus_allowed, r.cpu);
        let before = matches!(r.kind, RowKind::Waking | RowKind::Migrate | RowKind::SelectRq);
        if matches!(r.kind, RowKind::Wakeup | RowKind::WakeupNew) {
            self.nr.extend(r.p_nr_cpus_allowed.map(|n| (r.p.pid, n)));
            self.changed.remove(&r.p.pid);
        }
        let p_nr = r.p_nr_cpus_allowed.filter(|&n| n >= 0 || !before);
        self.note_task(r.p.pid, p_nr, r.rq_cpu);
        if let Some(n) = &r.n {
            self.changed.remove(&n.pid);
        }
    }
    /// `pid`, which may use `nr` CPUs, is or ran on `c`.
    fn note_task(&mut self, pid: i64, nr: Option<i64>, c: Cpu) {
        let Some(nr) = nr else { return };
        if self.nr.insert(pid, nr).is_some_and(|before| before != nr) {
            self.changed.insert(pid);
        }
        if !self.changed.contains(&pid) {
            let seen = self.on.entry((pid, nr)).or_insert(CpuMask::EMPTY);
            if !seen.has(c) && nr > 0 && seen.weight() as i64 >= nr {
                // More than it may use: they have changed while it slept.
                *seen = CpuMask::EMPTY;
            }
            seen.set(c);
        }
    }
    /// `c` is allowed: it was seen there, or it is among as many CPUs as it may use.
    pub fn allowed(&self, pid: i64, nr: i64, c: Cpu) -> Option<bool> {
        let seen = self.on.get(&(pid, nr))?;
        if seen.has(c) {
            Some(true)
        } else if seen.weight() as i64 == nr {
            Some(false)
        } else {
            None
        }
    }
}

/// Our code is wrong about a choice once in twenty times at most: not so often in a row.
const OFTEN: u32 = 2;

/// Tasks whose affinity is not known and that show it by staying where they are, by task and span
/// of time in which the affinity stayed the same.
#[derive(Clone, Debug, Default)]
pub struct Stays {
    in_a_row: BTreeMap<(i64, i64), u32>,
}

impl Stays {
    /// Takes in a wakeup of `task`: it stayed; a free task would have gone elsewhere. True if it
    /// may use one CPU only, as earlier ones have shown, and stayed there: nothing was chosen.
    pub fn note(&mut self, task: (i64, i64), stayed: bool, elsewhere: bool) -> bool {
        let n = self.in_a_row.entry(task).or_default();
        let bound = *n >= OFTEN;
        match (stayed, elsewhere) {
            (false, _) => *n = 0,
            (true, true) => *n += 1,
            (true, false) => {}
        }
        bound && stayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::Side;

    /// Task 7 calls sched_setaffinity on CPU 5: it may use two CPUs now, but not this one, until
    /// the stopper has moved it.
    #[test]
    fn who_changes_its_affinity_may_run_where_it_may_not() {
        let row = |kind, cpu, nr| Row {
            curr_pid: 7,
            curr_nr_cpus_allowed: nr,
            ..Row::new(100, Cpu(cpu), kind)
        };
        let (mut s, t) = (SeenOn::default(), Trace::default());
        s.note(&t, &row(RowKind::NeedResched, 5, Some(16)));
        s.note(&t, &row(RowKind::NeedResched, 5, Some(2)));
        assert_eq!(s.allowed(7, 2, Cpu(5)), None);
        // It may use two others when it is seen on a third.
        let mut other = s.clone();
        for cpu in [1, 2, 3] {
            other.changed.clear();
            other.note(&t, &row(RowKind::NeedResched, cpu, Some(2)));
        }
        assert_eq!([1, 2, 3].map(|c| other.allowed(7, 2, Cpu(c))), [None, None, Some(true)]);
        let picked = Side { pid: 7, ..Side::default() };
        s.note(&t, &Row { curr_pid: 0, n: Some(picked), ..row(RowKind::Switch, 1, None) });
        s.note(&t, &row(RowKind::NeedResched, 1, Some(2)));
        assert_eq!([5, 1].map(|c| s.allowed(7, 2, Cpu(c))), [None, Some(true)]);
    }

    /// Task 7 may use CPU 5 only; then the stopper moves it to CPU 1, the only one from now on.
    #[test]
    fn who_is_moved_by_the_stopper_may_use_other_cpus() {
        let stacks = vec![vec!["move_queued_task".to_owned(), "migration_cpu_stop".to_owned()]];
        let t = Trace { stacks, ..Trace::default() };
        let runs = |cpu| Row {
            curr_pid: 7,
            curr_nr_cpus_allowed: Some(1),
            ..Row::new(100, Cpu(cpu), RowKind::NeedResched)
        };
        let mut s = SeenOn::default();
        s.note(&t, &runs(5));
        assert_eq!([5, 1].map(|c| s.allowed(7, 1, Cpu(c))), [Some(true), Some(false)]);
        let p = Side { pid: 7, ..Side::default() };
        let moved = Row { p, stack: Some(0), ..Row::new(100, Cpu(5), RowKind::Migrate) };
        s.note(&t, &moved);
        let n = Some(p);
        s.note(&t, &Row { n, ..Row::new(101, Cpu(1), RowKind::Switch) });
        s.note(&t, &runs(1));
        assert_eq!([5, 1].map(|c| s.allowed(7, 1, Cpu(c))), [Some(false), Some(true)]);
    }

    #[test]
    fn who_stays_twice_where_a_free_task_would_not_is_bound_until_it_moves() {
        let mut s = Stays::default();
        let mut note = |stayed, elsewhere| s.note((7, 0), stayed, elsewhere);
        // Where a free task would have stayed too, staying shows nothing.
        assert!(!note(true, false) && !note(true, false) && !note(true, true));
        assert!(!note(true, true), "the second one does not tell about itself");
        assert!(note(true, true) && note(true, false));
        assert!(!note(false, false) && !note(true, true));
    }
}
