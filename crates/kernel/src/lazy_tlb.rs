//! The address space that a kernel thread borrows.
//!
//! *What.* The idle task and kernel threads run in the address space of whoever ran before them
//! and count themselves in `mm->mm_count`: one more when a user task leaves the CPU to them, one
//! less when they leave it to a user task. So does a task that exits, from `exit_mm` on. Threads
//! share that count, so where they sleep often, its line goes round the machine.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `context_switch` (the count goes up
//! under the run queue's lock), `finish_task_switch` (down, after it); commit c1753fd02a00 (6.5)
//! names hackbench on 224 Sapphire Rapids CPUs as what showed it. PowerPC does without since 6.4
//! (`MMU_LAZY_TLB_SHOOTDOWN`).
//! *Equations.* Up and down are writes of the line, see `vruntime_machine::lines`, and half of
//! `mm_refcount` each.
//! *Departures.* D1: the count of a process with one thread costs no transfer: it travels with its
//! task, whose move is paid for as a cold cache. D2: nothing else shares the line (true from 6.5
//! on). D3: TLB shootdown at exit is not modelled.
//! *Example.* Two threads of a process sleep on CPUs 0 and 1, 60 apart. CPU 0 goes idle: 0. CPU 1
//! goes idle: 60. CPU 0 wakes its thread: 60.

use crate::sim::Sim;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::Line;
use vruntime_machine::topology::Arch;

/// The address spaces that several threads run in: number and index of the line, ascending.
#[derive(Clone, Debug, Default)]
pub struct SharedMms(Vec<(u32, u32)>);

impl SharedMms {
    fn find(&self, mm: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&mm, |&(of, _)| of)
    }
    fn line(&self, mm: u32) -> Option<Line> {
        self.find(mm).ok().map(|i| Line::MmCount(self.0[i].1))
    }
}

impl Sim {
    /// A second thread runs in `mm`.
    pub(crate) fn share_mm(&mut self, mm: u32) {
        if let Err(i) = self.shared_mms.find(mm) {
            let nr = self.shared_mms.0.len();
            self.shared_mms.0.insert(i, (mm, nr as u32));
            self.machine.lines.grow_mms(nr + 1);
        }
    }

    fn counts_borrowers(&self) -> bool {
        !(self.sh.release.lazy_tlb_shootdown && self.machine.topo.arch() == Arch::Powerpc)
    }

    /// `exit_mm` of `p`: from now on it borrows, as a kernel thread does. Returns the time it
    /// takes.
    pub(crate) fn exit_mm(&mut self, c: Cpu, p: TaskId) -> Ns {
        let mm = self.sh.tasks[p.ix()].mm;
        self.cpus[c.ix()].borrowed_mm = mm;
        self.count_mm(c, mm)
    }

    /// `prev` leaves `c` to `next`: a kernel thread borrows its address space, unless it had only
    /// borrowed that itself. Returns the time it takes.
    pub(crate) fn borrow_mm(&mut self, c: Cpu, prev: TaskId, next: TaskId) -> Ns {
        let mm = self.sh.tasks[prev.ix()].mm;
        let borrowed = self.cpus[c.ix()].borrowed_mm != 0;
        if mm == 0 || self.sh.tasks[next.ix()].mm != 0 || borrowed {
            return Ns::ZERO;
        }
        self.cpus[c.ix()].borrowed_mm = mm;
        self.count_mm(c, mm)
    }

    /// A user task runs on `c`: what kernel threads before it had borrowed is given back.
    pub(crate) fn return_mm(&mut self, c: Cpu, next: TaskId) -> Ns {
        let mm = self.cpus[c.ix()].borrowed_mm;
        if mm == 0 || self.sh.tasks[next.ix()].mm == 0 {
            return Ns::ZERO;
        }
        self.cpus[c.ix()].borrowed_mm = 0;
        self.count_mm(c, mm)
    }

    fn count_mm(&mut self, c: Cpu, mm: u32) -> Ns {
        if !self.counts_borrowers() {
            return Ns::ZERO;
        }
        let own = self.work(c, Func::ContextSwitch, self.machine.costs.mm_refcount / 2);
        let Some(line) = self.shared_mms.line(mm) else { return own };
        let cost = self.machine.write(line, c).total();
        own + self.waited(c, Func::ContextSwitch, Resource::MmCount, cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;

    /// A thread that exits counts up in `exit_mm` and not when it leaves its CPU; who runs there
    /// next counts down.
    #[test]
    fn a_task_that_exits_borrows_what_was_its_own() {
        let mut s = sim("v6.12");
        s.machine.costs.mm_refcount = 10;
        let (c, n) = (Cpu(2), s.tasks.len());
        let (idle, p, q) = (TaskId::from_ix(2), TaskId::from_ix(n - 1), TaskId::from_ix(n - 2));
        assert_eq!(s.sh.tasks[idle.ix()].mm, 0);
        let mut after = |exits: bool, next: TaskId| {
            let exit = if exits { s.exit_mm(c, p) } else { Ns::ZERO };
            let switch = s.borrow_mm(c, p, next) + s.return_mm(c, next);
            let then = if next == idle { s.return_mm(c, q) } else { Ns::ZERO };
            [exit, switch, then].map(|t| t.0 / 5)
        };
        assert_eq!(after(true, idle), [1, 0, 1]);
        assert_eq!(after(true, q), [1, 1, 0]);
        assert_eq!(after(false, idle), [0, 1, 1], "it sleeps");
        assert_eq!(after(false, q), [0, 0, 0]);
    }
}
