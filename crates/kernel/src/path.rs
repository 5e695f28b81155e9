//! Paths through the kernel that nobody else sees or takes part in, as tables of steps.
//!
//! *What.* What a path does, step by step: which function, which cost of the machine. A path is
//! taken as one operation and booked by counting it. What other CPUs can see or take part in
//! (locks, lines, wakeups) lies between paths, in the code that takes them.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c, kernel/entry/common.c; glibc 2.36,
//! nptl/cancellation.c; the costs: the machine's cost table.
//! *Equations.* A step takes cost × slowdown / 1024; the slowdown is that of the busy threads in
//! the CPU's core.
//! *Departures.* D1: libc's part of a cancellation point is taken before the call, the half after
//! it included; glibc has done without since 2.41.
//! *Example.* `WRITE` on a thread with a busy sibling at 3/5 of full speed: 20 ns of unlocking take
//! 33 ns.

use vruntime_base::{Func, Ns, PathSteps};
use vruntime_machine::{Costs, Machine};

/// A table of steps.
type Table = &'static [(Func, fn(&Costs) -> u32)];

/// `mutex_lock` of a pipe, without the transfer of its line.
const LOCK: Table = &[(Func::MutexLock, |m| m.pipe_lock)];
/// The same after `fget` of a file that threads share; its `fput` is in it, the transfers of its
/// line are not.
const COUNT_AND_LOCK: Table = &[(Func::Fget, |m| m.file_count), (Func::MutexLock, |m| m.pipe_lock)];
/// `pipe_write` of up to 128 bytes to a page that is there, and the release of the mutex.
const WRITE: Table = &[(Func::PipeWrite, |m| m.pipe_write), (Func::MutexLock, |m| m.pipe_unlock)];
/// `pipe_read` of up to 128 bytes, and the release of the mutex.
const READ: Table = &[(Func::PipeRead, |m| m.pipe_read), (Func::MutexLock, |m| m.pipe_unlock)];
/// The end of `pipe_write`, and out.
const EXIT_WRITE: Table =
    &[(Func::FileUpdateTime, |m| m.pipe_mtime), (Func::SyscallExit, |m| m.syscall_exit)];
/// The end of `pipe_read`, and out.
const EXIT_READ: Table =
    &[(Func::FileAccessed, |m| m.pipe_atime), (Func::SyscallExit, |m| m.syscall_exit)];
/// Through user code and into the kernel again.
const ENTER: Table =
    &[(Func::User, |m| m.user_loop), (Func::SyscallEntry, |m| m.syscall_entry + m.bhb_clear)];
/// The same by way of a cancellation point of libc.
const CANCEL_AND_ENTER: Table = &[
    (Func::Cancel, |m| m.cancellation_point),
    (Func::User, |m| m.user_loop),
    (Func::SyscallEntry, |m| m.syscall_entry + m.bhb_clear),
];

/// A path, for [`Pace`].
#[derive(Clone, Copy)]
pub(crate) enum Path {
    CountAndLock,
    Write,
    Read,
    ExitWrite,
    ExitRead,
    CancelAndEnter,
    Lock,
    Enter,
}

const TABLES: [Table; 8] =
    [COUNT_AND_LOCK, WRITE, READ, EXIT_WRITE, EXIT_READ, CANCEL_AND_ENTER, LOCK, ENTER];

/// How long everything takes while some number of a core's threads are busy.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Time per unit of work, 1024 = full speed.
    pub slowdown: u32,
    /// Each path's steps together.
    ns: [u32; TABLES.len()],
    /// The part of `Enter` that is user code.
    pub user: u32,
    /// The part of `CancelAndEnter` that comes before it.
    pub cancel: u32,
}

impl Pace {
    /// `ns` of work at full speed.
    #[inline(always)]
    pub fn scale(&self, ns: u32) -> Ns {
        Ns((u64::from(ns) * u64::from(self.slowdown)) >> 10)
    }
    /// What `path` takes.
    #[inline(always)]
    pub fn ns(&self, path: Path) -> Ns {
        Ns(u64::from(self.ns[path as usize]))
    }
}

/// The paces of `machine`, from one busy thread in a core on, and their paths for the ledger.
pub(crate) fn paces(machine: &Machine) -> (Vec<Pace>, Vec<Vec<PathSteps>>) {
    let mut paces = Vec::new();
    let mut paths = Vec::new();
    for busy in 1..=machine.topo.smt_width() {
        let slowdown = 1024 * 1024 / machine.smt_speed(busy);
        let mut pace = Pace { slowdown, ns: [0; TABLES.len()], user: 0, cancel: 0 };
        pace.user = pace.scale(machine.costs.user_loop).0 as u32;
        pace.cancel = pace.scale(machine.costs.cancellation_point).0 as u32;
        let steps_of = |table: &Table| -> PathSteps {
            table.iter().map(|(func, cost)| (*func, pace.scale(cost(&machine.costs)))).collect()
        };
        let steps: Vec<PathSteps> = TABLES.iter().map(steps_of).collect();
        for (ns, steps) in pace.ns.iter_mut().zip(&steps) {
            *ns = steps.iter().map(|s| s.1.0).sum::<u64>() as u32;
        }
        paces.push(pace);
        paths.push(steps);
    }
    (paces, paths)
}
