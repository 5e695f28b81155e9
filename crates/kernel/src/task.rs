//! The kernel's half of a task (the scheduler's half is `vruntime_sched::task::Task`).

use crate::program::{ChannelId, FutexId, Op, ProgramId, Regs};
use vruntime_base::{Cause, CauseKind, Cpu, Ns, TaskId};

/// Where in its current system call (or between two) a task goes on when it is next on a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The operation in `KTask::op` begins: entered the kernel, about to take its first lock.
    Begin,
    /// User code of `Op::Run` has ended.
    RunEnd,
    /// A new task: the faults before its program begins.
    Start,
    /// Back in user mode: ask the program for the next operation.
    NextOp,
    /// At the end of a system call: preemption point, then user mode.
    ExitToUser,
    /// The pipe was full: get into the queue of writers, unless there is room by now.
    WritePrepare,
    /// The pipe was empty: get into the queue of readers, unless there is data by now.
    ReadPrepare,
    /// The pipe's mutex is released now, and what follows from a write happens.
    WriteUnlocked,
    /// The pipe's mutex is released now, and what follows from a read happens.
    ReadUnlocked,
    /// A write or read of a pipe wakes whom it has to.
    PipeWakes,
    /// A write or read of a pipe has woken whom it had to: its end.
    PipeEnd,
    /// A socket's next buffer, or the same after a wait.
    SocketGoesOn,
    /// A message has been put on a socket's queue.
    SocketSent,
    /// A message has been taken off a socket's queue.
    SocketReceived,
    /// The wait (or the wakeups) of a system call are over: it returns.
    Woken,
    /// `fork`: the child is complete and is woken.
    ForkEnd,
    /// The rest of `execve`.
    ExecEnd,
    /// `do_exit` gives up the address space and the autogroup.
    ExitEnd,
    /// It gives up its address space.
    ExitMm,
    /// It tells the parent and goes for good.
    ExitNotify,
    /// Spinning for a mutex.
    MutexSpin,
    /// Woken to try for the mutex again.
    MutexRetry,
    /// Rescheduled instead of spinning for the mutex: takes it if it is free, else sleeps.
    MutexSlow,
    /// The stopper: looks for work.
    Stopper,
}

/// What a sleeping task sleeps on: why it was switched away from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// Nothing: it does not sleep.
    Nothing,
    /// Data in a channel.
    Data(ChannelId),
    /// Room in a channel.
    Room(ChannelId),
    /// A futex.
    Futex(FutexId),
    /// A timer.
    Timer,
    /// A grace period of RCU.
    GracePeriod,
    /// The end of any child that is a process.
    Child,
    /// The end of this thread, which it joins.
    Thread(TaskId),
    /// A mutex.
    Mutex(ChannelId),
    /// The stopper, which is to move it.
    Stopper,
    /// Work for the stopper.
    Work,
}

static BLOCKS_READING: Cause = Cause::new(CauseKind::Switch, "blocks: nothing to read");
static BLOCKS_WRITING: Cause = Cause::new(CauseKind::Switch, "blocks: no room to write");
static BLOCKS_MUTEX: Cause = Cause::new(CauseKind::Switch, "blocks: pipe mutex");
static BLOCKS_FUTEX: Cause = Cause::new(CauseKind::Switch, "blocks: futex");
static BLOCKS_TIMER: Cause = Cause::new(CauseKind::Switch, "blocks: timer");
static BLOCKS_RCU: Cause = Cause::new(CauseKind::Switch, "blocks: synchronize_rcu");
static BLOCKS_CHILD: Cause = Cause::new(CauseKind::Switch, "blocks: waits for a child");
static BLOCKS_AFFINITY: Cause = Cause::new(CauseKind::Switch, "blocks: waits for the stopper");
static BLOCKS_STOPPER: Cause = Cause::new(CauseKind::Switch, "blocks: stopper has no work");
static BLOCKS: Cause = Cause::new(CauseKind::Switch, "blocks");

impl WaitsFor {
    /// Why a task that sleeps on this gave up its CPU.
    pub fn cause(self) -> &'static Cause {
        match self {
            WaitsFor::Nothing => &BLOCKS,
            WaitsFor::Data(_) => &BLOCKS_READING,
            WaitsFor::Room(_) => &BLOCKS_WRITING,
            WaitsFor::Mutex(_) => &BLOCKS_MUTEX,
            WaitsFor::Futex(_) => &BLOCKS_FUTEX,
            WaitsFor::Timer => &BLOCKS_TIMER,
            WaitsFor::GracePeriod => &BLOCKS_RCU,
            WaitsFor::Child | WaitsFor::Thread(_) => &BLOCKS_CHILD,
            WaitsFor::Stopper => &BLOCKS_AFFINITY,
            WaitsFor::Work => &BLOCKS_STOPPER,
        }
    }
}

/// The kernel's half of `task_struct`. What every system call touches comes first, on one cache
/// line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct KTask {
    /// Its operation.
    pub op: Op,
    /// Registers of its program.
    pub regs: Regs,
    /// Bytes of the operation already transferred; of a wait for children, see `awaited_child`.
    pub done: u32,
    /// Its program.
    pub program: ProgramId,
    /// Where it goes on.
    pub step: Step,
    /// The write or read has to pass on the wakeup (`wake_next_writer`, `wake_next_reader`).
    pub wake_next: bool,
    /// The pipe was empty (write) or full (read) when the mutex was taken.
    pub was_edge: bool,
    /// The last copy of a read got something.
    pub got: bool,
    /// The program calls `read` again for the rest of its message.
    pub again: bool,
    /// One of several threads of a program: they share a file table, so a system call counts the
    /// file it works on, and libc minds `pthread_cancel`.
    pub multi_threaded: bool,
    /// Waits exclusively.
    pub exclusive: bool,
    /// It has changed its CPU and has not run since: `sched_migrated`.
    pub sched_migrated: bool,
    /// Time left of the interrupted operation before `step`, at full speed.
    pub remaining: Ns,
    /// Of `remaining`, the ns at its end that are the entry into the kernel.
    pub remaining_entry: u32,
    /// Parent.
    pub parent: TaskId,
    /// Children that have not ended.
    pub nr_children: u32,
    /// What it sleeps on.
    pub waits_for: WaitsFor,
    /// Next in the wait queue.
    pub wait_next: TaskId,
    /// `CpuSim::passed` of its last CPU when it left.
    pub passed_stamp: u32,
    /// Cold-cache footprint in KiB.
    pub footprint_kib: u16,
    /// CPU on which it last ran.
    pub last_cpu: Cpu,
    /// CPU that enqueued it, until it runs.
    pub enqueued_by: Cpu,
    /// The run ends with it.
    pub ends_run: bool,
    /// Of its wait for a CPU, the ns spent on queues that it has left (up to 4 s).
    pub waited_elsewhere: u32,
    /// When its wakeup began; zero when it is not being woken.
    pub woken_at: Ns,
    /// Since when it has been waiting for a CPU.
    pub runnable_since: Ns,
}

impl KTask {
    /// What it has waited, at `at`, on the queue that it is on.
    pub fn waited_here(&self, at: Ns) -> Ns {
        let waited = at.saturating_sub(self.runnable_since);
        waited.saturating_sub(Ns(self.waited_elsewhere.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_system_call_touches_is_one_line() {
        assert!(std::mem::offset_of!(KTask, remaining) <= 64);
        assert_eq!(size_of::<KTask>(), 128);
    }
}
