//! What tasks do: programs as small state machines over system calls.
//!
//! The kernel asks a task's program for its next operation when the last one is complete. Code is
//! shared between tasks ([`Program`]), data is a few registers per task ([`Regs`]), so a task costs
//! bytes, not kilobytes.

use std::sync::Arc;
use vruntime_base::{Cpu, CpuMask, Ns, id_type};
use vruntime_sched::task::Policy;

id_type!(
    /// A pipe or a connected socket pair (one direction).
    ChannelId(u32)
);
id_type!(
    /// A futex word.
    FutexId(u32)
);
id_type!(
    /// A list of latencies that a program measures.
    LatencyId(u32)
);
id_type!(
    /// The code of a program.
    ProgramId(u16)
);

/// A program's own variables, private to each task. A child starts with what its parent passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regs {
    /// Program counter, for the program's own use.
    pub pc: u16,
    /// Progress group (see [`Builder::progress_group`]), for the program's own use.
    pub group: u16,
    /// Free for the program.
    pub i: u32,
    /// Free for the program; what [`Op::Clock`] gives.
    pub j: u32,
    /// Free for the program.
    pub k: u32,
}

/// One operation. All but `Run`, `Mark` and `Clock` enter the kernel.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Compute in user mode for this long at full speed.
    Run(Ns),
    /// `write(fd, buf, bytes)`; blocks while the channel is full.
    Write {
        /// Where to.
        to: ChannelId,
        /// How much.
        bytes: u32,
    },
    /// `read(fd, buf, bytes)`; blocks while the channel is empty.
    Read {
        /// Where from.
        from: ChannelId,
        /// How much: the program calls it again until it has all of it.
        bytes: u32,
    },
    /// `poll` for input without time limit; returns at once if there is some.
    Poll(ChannelId),
    /// `pipe` or `socketpair`: what making the channel costs. It is there from the start; a program
    /// that does not open its channels has them free.
    Open(ChannelId),
    /// `fork` (or `pthread_create`): the child runs `program` with `regs`.
    Fork {
        /// Code of the child.
        program: ProgramId,
        /// Its registers.
        regs: Regs,
        /// Shares the address space.
        thread: bool,
    },
    /// `execve`: same task, new program image.
    Exec,
    /// `waitpid` until all children have ended.
    WaitChildren,
    /// The task ends.
    Exit,
    /// `nanosleep` for this long.
    Sleep(Ns),
    /// `clock_nanosleep(TIMER_ABSTIME)`: until this moment since the start of the run.
    SleepUntil(Ns),
    /// Waits on the futex.
    FutexWait(FutexId),
    /// Wakes up to `n` waiters.
    FutexWake {
        /// Which word.
        futex: FutexId,
        /// At most so many.
        n: u32,
    },
    /// `sched_yield`.
    Yield,
    /// `sched_setaffinity` of the task itself to the one CPU (must be a CPU of the machine).
    Pin(Cpu),
    /// `sched_setscheduler` of the task itself.
    SetPolicy {
        /// Policy.
        policy: Policy,
        /// Nice value (fair) or RT priority.
        prio: i8,
    },
    /// The task joins a task group of the workload ([`Builder::task_group`]), as by a write to its
    /// `cgroup.threads`.
    JoinGroup(u16),
    /// The benchmark takes its start time. Costs nothing.
    MarkStart,
    /// The benchmark takes its stop time. Costs nothing.
    MarkStop,
    /// `clock_gettime`: the time since the start of the run, in whole us, is in `j` from now on;
    /// how much later than `since` it is becomes one of the latencies. Costs nothing.
    Clock {
        /// To which list the latency goes; [`LatencyId::NONE`] for none.
        latency: LatencyId,
        /// The moment that was waited for.
        since: Ns,
    },
}

impl Op {
    /// POSIX calls it a cancellation point (pthreads(7)); libc minds it in programs with threads.
    #[inline(always)]
    pub fn is_cancellation_point(&self) -> bool {
        use Op::{Poll, Read, Sleep, SleepUntil, WaitChildren, Write};
        matches!(
            self,
            Write { .. } | Read { .. } | Poll(_) | Sleep(_) | SleepUntil(_) | WaitChildren
        )
    }
}

/// The code of a program: a pure function of the registers.
pub trait Program: Send + Sync {
    /// The operation that follows the one just completed.
    fn next(&self, regs: &mut Regs) -> Op;
    /// The same, written where it is kept: a copy of it just after it was made would wait for its
    /// parts to reach the cache.
    #[inline]
    fn next_into(&self, regs: &mut Regs, op: &mut Op) {
        *op = self.next(regs);
    }
}

/// How a channel carries data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelKind {
    /// `pipe(2)`.
    Pipe,
    /// One direction of `socketpair(AF_UNIX, SOCK_STREAM)`.
    UnixStream,
}

/// What a workload wants to exist when the run starts.
#[derive(Default)]
pub struct Builder {
    pub(crate) programs: Vec<Box<dyn Program>>,
    pub(crate) channels: Vec<(ChannelKind, Option<u16>)>,
    pub(crate) nr_futexes: u32,
    pub(crate) roots: Vec<(ProgramId, Regs, RootTask)>,
    pub(crate) goals: Vec<u64>,
    pub(crate) nr_latencies: u32,
    pub(crate) bound_to: CpuMask,
    /// Programs change their tasks' policies ([`Op::SetPolicy`]).
    pub sets_policies: bool,
    /// Parents of the task groups 1, 2, …
    pub(crate) groups: Vec<u16>,
    /// CPUs of the machine.
    pub nr_cpus: usize,
    /// What the benchmark writes to `/dev/cpu_dma_latency`: no idle state is entered whose exit
    /// latency, as cpuidle knows it, is longer.
    pub cpu_dma_latency: Option<Ns>,
}

/// How a task that exists from the start runs.
#[derive(Clone, Copy, Debug)]
pub struct RootTask {
    /// Only these CPUs, if set.
    pub cpus: Option<CpuMask>,
    /// Its task group: 0 is the workload's own, each other number a group beside that.
    pub group: u16,
    /// Policy.
    pub policy: Policy,
    /// Nice value.
    pub nice: i8,
    /// Priority 1 … 99 of SCHED_FIFO and SCHED_RR, otherwise 0.
    pub rt_priority: u8,
    /// Cold-cache footprint in KiB (of each task that runs this workload).
    pub footprint_kib: u16,
    /// The run ends when this task exits.
    pub ends_run: bool,
    /// A shell has started it: it comes with the shell's wakeup statistics.
    pub from_shell: bool,
}

impl Default for RootTask {
    fn default() -> Self {
        RootTask {
            cpus: None,
            group: 0,
            policy: Policy::Normal,
            nice: 0,
            rt_priority: 0,
            footprint_kib: 4,
            ends_run: true,
            from_shell: false,
        }
    }
}

impl Builder {
    /// What `workload` wants on a machine with so many CPUs.
    pub fn of(workload: &dyn Workload, nr_cpus: usize) -> Builder {
        let mut b = Builder { nr_cpus, ..Builder::default() };
        workload.build(&mut b);
        b
    }
    /// Adds code.
    pub fn program(&mut self, p: impl Program + 'static) -> ProgramId {
        self.programs.push(Box::new(p));
        ProgramId::from_ix(self.programs.len() - 1)
    }
    /// Adds a channel. Each completed read of a channel in a progress group counts as one message.
    pub fn channel(&mut self, kind: ChannelKind, group: Option<u16>) -> ChannelId {
        self.channels.push((kind, group));
        ChannelId::from_ix(self.channels.len() - 1)
    }
    /// Adds a futex word.
    pub fn futex(&mut self) -> FutexId {
        self.nr_futexes += 1;
        FutexId(self.nr_futexes - 1)
    }
    /// Says that programs bind tasks to these CPUs.
    pub fn binds(&mut self, cpus: impl Iterator<Item = Cpu>) {
        cpus.for_each(|c| self.bound_to.set(c));
    }
    /// CPUs that programs bind tasks to.
    pub fn bound_to(&self) -> &CpuMask {
        &self.bound_to
    }
    /// CPUs that the machine has not, of those that tasks are to run on from the start: the kernel
    /// takes the others alone. None where a task is left without any, for then it refuses.
    pub fn absent(&self) -> CpuMask {
        let has = CpuMask::first_n(self.nr_cpus);
        let asked = self.roots.iter().filter_map(|(_, _, how)| how.cpus);
        if asked.clone().any(|cpus| !cpus.intersects(&has)) {
            return CpuMask::EMPTY;
        }
        asked.fold(CpuMask::EMPTY, |all, cpus| all.or(&cpus.minus(&has)))
    }
    /// Some task is not to run under SCHED_NORMAL at nice 0.
    pub fn asks_for_policies(&self) -> bool {
        let asks = |how: &RootTask| how.policy != Policy::Normal || how.nice != 0;
        self.sets_policies || self.roots.iter().any(|(_, _, how)| asks(how))
    }
    /// Adds a list of latencies.
    pub fn latency(&mut self) -> LatencyId {
        self.nr_latencies += 1;
        LatencyId(self.nr_latencies - 1)
    }
    /// Adds a task group below `parent`; 0 is the root.
    pub fn task_group(&mut self, parent: u16) -> u16 {
        self.groups.push(parent);
        self.groups.len() as u16
    }
    /// Adds a progress group that is complete after `goal` messages.
    pub fn progress_group(&mut self, goal: u64) -> u16 {
        self.goals.push(goal);
        (self.goals.len() - 1) as u16
    }
    /// Adds a task that exists from the start.
    pub fn root(&mut self, program: ProgramId, regs: Regs, how: RootTask) {
        self.roots.push((program, regs, how));
    }
}

/// A benchmark: builds its programs and prints its result as the real tool does.
pub trait Workload: Send + Sync {
    /// The command line, normalised.
    fn command_line(&self) -> String;
    /// What its tasks are called in traces, `comm` of the real ones.
    fn comm(&self) -> &'static str;
    /// One line for `vruntime list workloads`.
    fn description(&self) -> &'static str;
    /// Adds programs, channels and the first tasks.
    fn build(&self, b: &mut Builder);
    /// The result lines of the real tool for a benchmark time of `time`.
    fn result(&self, time: Ns) -> String;
    /// What the real tool prints of the latencies that its programs measured.
    fn latency_lines(&self, _measured: &[Latency]) -> String {
        String::new()
    }
    /// The same with fewer loops, about one in `by` but at least one; `None` if it has none.
    fn shortened(&self, _by: u32) -> Option<Shortened> {
        None
    }
}

/// Latencies of one list, over the measured window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The task that measured last, by its number in traces; 0 if none did.
    pub pid: u32,
    /// How many.
    pub count: u64,
    /// The shortest.
    pub min: Ns,
    /// The last.
    pub last: Ns,
    /// All together.
    pub sum: Ns,
    /// All together, each in whole microseconds.
    pub sum_us: u64,
    /// The longest.
    pub max: Ns,
}

impl Latency {
    /// The task `pid` has measured `d`.
    pub(crate) fn add(&mut self, pid: u32, d: Ns) {
        self.min = if self.count == 0 { d } else { self.min.min(d) };
        self.max = self.max.max(d);
        self.sum += d;
        self.sum_us += d.0 / 1_000;
        self.last = d;
        self.count += 1;
        self.pid = pid;
    }

    /// Their mean; zero if there are none.
    pub fn mean(&self) -> Ns {
        Ns(self.sum.0 / self.count.max(1))
    }

    /// The mean of a tool that cuts each to whole microseconds.
    pub fn mean_us(&self) -> u64 {
        self.sum_us / self.count.max(1)
    }
}

/// A workload that does part of the loops of another.
pub struct Shortened {
    /// It.
    pub workload: Arc<dyn Workload>,
    /// Loops of the whole one.
    pub whole: u32,
    /// Its loops.
    pub part: u32,
}
