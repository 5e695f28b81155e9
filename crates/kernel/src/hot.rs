//! The hottest path: out of one system call, through user mode, into the next.
//!
//! *What.* The fields that the end of a system call touches, borrowed apart so that each is looked
//! up once. The same code serves every system call; only its caller differs.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/entry/common.c `exit_to_user_mode_loop`.
//! *Equations.* exit + user code + entry, one operation; user mode lies between `user_from` and
//! `user_to`.
//! *Departures.* None.
//! *Example.* A write that wakes nobody: lock, copy, unlock, exit, user, entry are one operation.

use crate::frame::{CpuSim, Frame};
use crate::path::{Pace, Path};
use crate::pipe::Pipe;
use crate::pipe_ops::Rules;
use crate::program::{ChannelId, Op, Program};
use crate::sim::{Channel, Sim};
use crate::stats::Stats;
use crate::task::{KTask, Step};
use vruntime_base::{Cpu, Func, LedgerRow, Ns, Resource, TaskId, Trips};
use vruntime_machine::Machine;

/// One CPU and its current task.
pub(crate) struct Hot<'a> {
    pub c: Cpu,
    pub p: TaskId,
    pub cpu: &'a mut CpuSim,
    pub k: &'a mut KTask,
    pub row: &'a mut LedgerRow,
    pub trips: &'a mut Trips,
    pub machine: &'a Machine,
    pub pace: &'a Pace,
    pub stats: &'a mut Stats,
    programs: &'a [Box<dyn Program>],
    pub rules: Rules,
    need_resched: bool,
}

impl Sim {
    /// Borrows what the system calls of the current task of `c` need, and the channels.
    #[inline(always)]
    pub(crate) fn split(&mut self, c: Cpu) -> (Hot<'_>, &mut [Channel]) {
        let cpu = &mut self.cpus[c.ix()];
        let rq = &self.sh.rqs[c.ix()];
        let (row, trips) = self.sh.ledger.row(c, cpu.pace as usize);
        let hot = Hot {
            c,
            p: rq.curr,
            pace: &self.paces[cpu.pace as usize],
            cpu,
            k: &mut self.tasks[rq.curr.ix()],
            need_resched: rq.need_resched,
            row,
            trips,
            machine: &self.machine,
            stats: &mut self.stats,
            programs: &self.programs,
            rules: self.pipe_rules,
        };
        (hot, &mut self.channels)
    }

    /// The same, and the pipe `ch`.
    #[inline(always)]
    pub(crate) fn split_pipe(&mut self, c: Cpu, ch: ChannelId) -> (Hot<'_>, &mut Pipe) {
        let (hot, channels) = self.split(c);
        let Channel::Pipe(pipe) = &mut channels[ch.ix()] else { unreachable!("not a pipe") };
        (hot, pipe)
    }
}

impl Hot<'_> {
    /// Books `ns` of work at full speed for `func`; returns the time it takes.
    #[inline(always)]
    pub fn work(&mut self, func: Func, ns: u32) -> Ns {
        let d = self.pace.scale(ns);
        self.row.book(func, Resource::None, d);
        d
    }

    /// Books `path`; returns the time it takes.
    #[inline(always)]
    pub fn take(&mut self, path: Path) -> Ns {
        self.trips.book(path as usize);
        self.pace.ns(path)
    }

    /// Waits for a line: `share` (permille) of a transfer from `from`.
    #[inline(always)]
    pub fn fetch(&mut self, func: Func, on: Resource, (from, share): (Cpu, u32)) -> Ns {
        if from == self.c || from.is_none() {
            return Ns::ZERO;
        }
        let cost = self.machine.transfer(from, self.c).permille(share);
        self.row.book(func, on, cost);
        cost
    }

    /// The system call is done at `at`: leaves the kernel.
    #[inline(always)]
    pub fn syscall_return(&mut self, at: Ns) {
        let exit = self.work(Func::SyscallExit, self.machine.costs.syscall_exit);
        self.returned(at + exit);
    }

    /// In user mode again at `at`, unless it has to reschedule.
    #[inline(always)]
    pub fn returned(&mut self, at: Ns) {
        self.stats.count.syscalls += 1;
        if self.need_resched {
            self.k.step = Step::ExitToUser;
            self.cpu.no_user();
            self.cpu.frames[0] = Frame::Task;
            self.cpu.op_end = at;
            return;
        }
        self.next_op(at);
    }

    /// In user mode from `at` on: asks the program what it does next, and plans the way there.
    #[inline(always)]
    pub fn next_op(&mut self, at: Ns) {
        if self.k.again {
            // A message longer than what one call returned: the program's own read loop.
            self.k.again = false;
            self.k.wake_next = false;
            self.enter(at);
            return;
        }
        let program = &self.programs[self.k.program.ix()];
        loop {
            program.next_into(&mut self.k.regs, &mut self.k.op);
            match self.k.op {
                Op::MarkStart => {
                    self.stats.mark_start = Some(at);
                    self.stats.look = true;
                }
                Op::MarkStop => self.stats.mark_stop = Some(at),
                Op::Clock { latency, since } => {
                    self.k.regs.j = (at.0 / 1_000) as u32;
                    self.stats.latency(latency, self.p, at.saturating_sub(since));
                }
                _ => break,
            }
        }
        self.k.done = 0;
        self.k.wake_next = false;
        if let Op::Run(d) = self.k.op {
            self.k.step = Step::RunEnd;
            let d = Ns((d.0 * u64::from(self.pace.slowdown)) >> 10);
            self.row.book(Func::User, Resource::None, d);
            self.plan_user(at, at + d, at + d);
            return;
        }
        self.enter(at);
    }

    /// User code from `at` on, then into the kernel.
    #[inline(always)]
    fn enter(&mut self, at: Ns) {
        self.k.step = Step::Begin;
        let (way, before) = match self.k.multi_threaded && self.k.op.is_cancellation_point() {
            true => (Path::CancelAndEnter, self.pace.cancel),
            false => (Path::Enter, 0),
        };
        let to = at + Ns(u64::from(before + self.pace.user));
        let end = at + self.take(way);
        self.plan_user(at, to, end);
    }

    /// An operation that is in user mode from `from` to `to` and ends at `end`.
    #[inline(always)]
    fn plan_user(&mut self, from: Ns, to: Ns, end: Ns) {
        self.cpu.frames[0] = Frame::Task;
        self.cpu.op_end = end;
        self.cpu.user_from = from;
        self.cpu.user_to = to;
        self.cpu.func = Func::User;
    }
}
