//! Where every nanosecond of every CPU went: by function, and by what the function waited for.
//!
//! Time is booked when it is planned: an operation that will take 300 ns books its 300 ns at its
//! start, and whoever stretches it (an interrupt, a busy sibling) books the extra. So for each
//! CPU, at any moment, *booked = elapsed + what is planned beyond now*: the ledger closes.
//!
//! A path whose steps always take the same time is booked by counting how often it was taken
//! ([`Trips`]); the steps' times are worked out when somebody looks.

use crate::{Cpu, Ns};

/// The coarse kind of a function's time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Category {
    /// The program itself.
    User,
    /// System calls, without the scheduler.
    Syscall,
    /// The scheduler.
    Scheduler,
    /// Interrupts, softirqs and ticks.
    Irq,
    /// The idle loop.
    Idle,
}

macro_rules! funcs {
    ($($name:ident $cat:ident $text:literal,)*) => {
        /// A function (or a step of one) that time is booked under, in the kernel's own names.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Func { $(#[doc = $text] $name,)* }
        impl Func {
            /// Every function, in order.
            pub const ALL: &'static [Func] = &[$(Func::$name,)*];
            /// Name as the kernel spells it.
            pub fn name(self) -> &'static str {
                match self { $(Func::$name => $text,)* }
            }
            /// What kind of time it is.
            pub fn category(self) -> Category {
                match self { $(Func::$name => Category::$cat,)* }
            }
        }
    };
}

funcs! {
    User User "user",
    Cancel User "user: pthread_cancel",
    ColdCache User "user: refilling a cold cache",
    Idle Idle "idle",
    IdleExit Idle "idle exit latency",
    SyscallEntry Syscall "syscall entry",
    SyscallExit Syscall "syscall exit",
    PipeWrite Syscall "pipe_write",
    PipeRead Syscall "pipe_read",
    FileUpdateTime Syscall "file_update_time",
    FileAccessed Syscall "file_accessed",
    MutexLock Syscall "mutex_lock",
    Fget Syscall "fget",
    UnixSend Syscall "unix_stream_sendmsg",
    UnixRecv Syscall "unix_stream_recvmsg",
    Futex Syscall "futex",
    Poll Syscall "poll",
    Sleep Syscall "nanosleep",
    Pipe Syscall "do_pipe2",
    Socketpair Syscall "__sys_socketpair",
    SynchronizeRcu Syscall "synchronize_rcu",
    Fork Syscall "copy_process",
    PageFault Syscall "exc_page_fault",
    Exec Syscall "execve",
    Exit Syscall "do_exit",
    Wait4 Syscall "wait4",
    WaitQueue Syscall "wake_up_common",
    TryToWakeUp Scheduler "try_to_wake_up",
    SelectTaskRq Scheduler "select_task_rq",
    SelectIdle Scheduler "select_idle_sibling",
    TtwuQueue Scheduler "ttwu_queue_wakelist",
    TtwuPending Scheduler "sched_ttwu_pending",
    EnqueueTask Scheduler "enqueue_task",
    DequeueTask Scheduler "dequeue_task",
    UpdateLoadAvg Scheduler "update_load_avg",
    UpdateCfsGroup Scheduler "update_cfs_group",
    PickNext Scheduler "pick_next_task",
    Schedule Scheduler "__schedule",
    ContextSwitch Scheduler "context_switch",
    RqLock Scheduler "raw_spin_rq_lock",
    Newidle Scheduler "newidle_balance",
    LoadBalance Scheduler "load_balance",
    Yield Scheduler "sched_yield",
    SetScheduler Scheduler "__sched_setscheduler",
    SetAffinity Scheduler "__set_cpus_allowed_ptr",
    MoveTask Scheduler "sched_move_task",
    Tick Irq "scheduler_tick",
    Timer Irq "hrtimer_interrupt",
    Ipi Irq "sysvec_call_function_single",
    Softirq Irq "handle_softirqs",
    Interrupt Irq "device interrupt",
    Nohz Idle "nohz",
}

/// What a function waited for; `None` is the function's own work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Resource {
    /// Not waiting.
    None,
    /// A run queue lock.
    RqLock,
    /// A cache line of another CPU's run queue.
    RqLine,
    /// `tg->load_avg`.
    TgLoadAvg,
    /// The line of `sd_llc_shared`.
    LlcShared,
    /// A pipe's mutex, or the line it lies on.
    PipeMutex,
    /// The lock of a pipe's wait queue.
    WaitQueueLock,
    /// A pipe's slot, and the bytes in its page.
    PipeData,
    /// The count of a file that threads share.
    FileCount,
    /// A socket's lock or lines.
    Socket,
    /// `mm->mm_count`, where threads share it.
    MmCount,
    /// A task's own lines (`task_struct`), or its `pi_lock`.
    TaskLine,
    /// A wakee that has not left its CPU yet (`p->on_cpu`).
    OnCpu,
    /// Machine-wide lines: root domain, nohz.
    Global,
}

impl Resource {
    /// Every resource, in order.
    pub const ALL: [Resource; 14] = [
        Resource::None,
        Resource::RqLock,
        Resource::RqLine,
        Resource::TgLoadAvg,
        Resource::LlcShared,
        Resource::PipeMutex,
        Resource::WaitQueueLock,
        Resource::PipeData,
        Resource::FileCount,
        Resource::Socket,
        Resource::MmCount,
        Resource::TaskLine,
        Resource::OnCpu,
        Resource::Global,
    ];
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Resource::None => "own",
            Resource::RqLock => "rq lock",
            Resource::RqLine => "rq line",
            Resource::TgLoadAvg => "tg->load_avg",
            Resource::LlcShared => "sd_llc_shared",
            Resource::PipeMutex => "pipe mutex",
            Resource::WaitQueueLock => "wait queue lock",
            Resource::PipeData => "pipe data",
            Resource::FileCount => "file count",
            Resource::Socket => "socket",
            Resource::MmCount => "mm_count",
            Resource::TaskLine => "task line",
            Resource::OnCpu => "on_cpu",
            Resource::Global => "global line",
        }
    }
}

const NR_RESOURCES: usize = Resource::ALL.len();
const ROW: usize = Func::ALL.len() * NR_RESOURCES;

/// The steps of a path, with what each takes.
pub type PathSteps = Vec<(Func, Ns)>;

/// Paths that can be counted at each pace.
pub const PATHS: usize = 8;

/// How often each path was taken, on one CPU at one pace: one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Trips([u64; PATHS]);

impl Trips {
    /// Books the steps of `path`.
    #[inline(always)]
    pub fn book(&mut self, path: usize) {
        self.0[path % PATHS] += 1;
    }
}

/// The entries of one CPU.
#[derive(Clone)]
pub struct LedgerRow {
    ns: [u64; ROW],
}

impl LedgerRow {
    /// Books `d` for `func`.
    #[inline(always)]
    pub fn book(&mut self, func: Func, on: Resource, d: Ns) {
        self.ns[at(func, on)] += d.0;
    }
    /// Enters the counted paths.
    fn settle<'a>(&mut self, counted: impl Iterator<Item = (&'a mut Trips, &'a [PathSteps])>) {
        for (trips, paths) in counted {
            for (times, steps) in trips.0.iter_mut().zip(paths) {
                for &(func, d) in steps {
                    self.ns[at(func, Resource::None)] += d.0 * *times;
                }
                *times = 0;
            }
        }
    }
}

/// Nanoseconds by CPU, function and resource. Fixed size.
#[derive(Clone)]
pub struct Ledger {
    rows: Vec<LedgerRow>,
    /// By CPU and pace: paths taken that are not in `rows` yet.
    trips: Vec<Trips>,
    /// By pace: the paths.
    paces: Vec<Vec<PathSteps>>,
}

#[inline(always)]
const fn at(func: Func, on: Resource) -> usize {
    // Own time first and side by side: a system call books five neighbours.
    on as usize * Func::ALL.len() + func as usize
}

impl Ledger {
    /// An empty ledger of `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize) -> Ledger {
        Ledger::with_paths(nr_cpus, Vec::new())
    }
    /// An empty ledger that can book paths by counting: for each pace (speed of a CPU) up to
    /// [`PATHS`] paths with what their steps take then.
    pub fn with_paths(nr_cpus: usize, paces: Vec<Vec<PathSteps>>) -> Ledger {
        assert!(paces.iter().all(|paths| paths.len() <= PATHS));
        let row = LedgerRow { ns: [0; ROW] };
        let trips = vec![Trips::default(); nr_cpus * paces.len()];
        Ledger { rows: vec![row; nr_cpus], trips, paces }
    }
    /// Forgets everything booked.
    pub fn clear(&mut self) {
        *self = Ledger::with_paths(self.rows.len(), std::mem::take(&mut self.paces));
    }
    /// Books `d` for `func` on `cpu`.
    #[inline(always)]
    pub fn book(&mut self, cpu: Cpu, func: Func, on: Resource, d: Ns) {
        self.rows[cpu.ix()].book(func, on, d);
    }
    /// The entries of `cpu`, and the paths it takes at `pace`.
    #[inline(always)]
    pub fn row(&mut self, cpu: Cpu, pace: usize) -> (&mut LedgerRow, &mut Trips) {
        (&mut self.rows[cpu.ix()], &mut self.trips[cpu.ix() * self.paces.len() + pace])
    }
    /// Which of `trips` are those of `cpu`.
    fn trips_of(&self, cpu: Cpu) -> std::ops::Range<usize> {
        cpu.ix() * self.paces.len()..(cpu.ix() + 1) * self.paces.len()
    }
    /// Enters the paths that `cpu` has taken.
    fn settle(&mut self, cpu: Cpu) {
        let own = self.trips_of(cpu);
        let paces = self.paces.iter().map(Vec::as_slice);
        self.rows[cpu.ix()].settle(self.trips[own].iter_mut().zip(paces));
    }
    /// (steps, how often taken) of each path of `cpu`.
    fn counted(&self, cpu: Cpu) -> impl Iterator<Item = (&PathSteps, u64)> {
        let own = &self.trips[self.trips_of(cpu)];
        own.iter().zip(&self.paces).flat_map(|(t, paths)| paths.iter().zip(t.0))
    }
    /// Takes back `d` that was planned but will not be spent: from `func`, and what `func` does
    /// not have from the CPU's largest entries (an operation of several functions whose other
    /// parts are shortened too). The CPU's total shrinks by exactly `d`.
    pub fn unbook(&mut self, cpu: Cpu, func: Func, on: Resource, d: Ns) {
        self.settle(cpu);
        let row = &mut self.rows[cpu.ix()];
        let (mut i, mut rest) = (at(func, on), d.0);
        loop {
            // What is negative (see `since`) has nothing to give.
            let has = row.ns[i].cast_signed().max(0).cast_unsigned();
            let taken = rest.min(has);
            row.ns[i] = row.ns[i].wrapping_sub(taken);
            rest -= taken;
            if rest == 0 {
                return;
            }
            i = (0..ROW).max_by_key(|&i| row.ns[i].cast_signed()).expect("there are functions");
            if row.ns[i].cast_signed() <= 0 {
                row.ns[i] = row.ns[i].wrapping_sub(rest);
                return;
            }
        }
    }
    /// What is booked for (`func`, `on`) on `cpu`.
    pub fn get(&self, cpu: Cpu, func: Func, on: Resource) -> Ns {
        let mut ns = self.rows[cpu.ix()].ns[at(func, on)];
        if on == Resource::None {
            for (steps, times) in self.counted(cpu) {
                ns += times * steps.iter().filter(|s| s.0 == func).map(|s| s.1.0).sum::<u64>();
            }
        }
        Ns(ns)
    }
    /// Everything booked on `cpu`.
    pub fn total(&self, cpu: Cpu) -> Ns {
        let booked = self.rows[cpu.ix()].ns.iter().fold(0u64, |sum, ns| ns.wrapping_add(sum));
        let each = |steps: &PathSteps| steps.iter().map(|s| s.1.0).sum::<u64>();
        let counted = self.counted(cpu).map(|(steps, times)| each(steps) * times).sum::<u64>();
        Ns(booked.wrapping_add(counted))
    }
    /// Sum over all CPUs of (`func`, `on`).
    pub fn sum(&self, func: Func, on: Resource) -> Ns {
        let of = |c| self.get(Cpu::from_ix(c), func, on).0;
        let sum = (0..self.rows.len()).fold(0u64, |sum, c| sum.wrapping_add(of(c)));
        // Taken back as a whole: nothing of it was spent since.
        Ns(if sum.cast_signed() < 0 { 0 } else { sum })
    }
    /// Non-zero sums over all CPUs, in order of function and resource.
    pub fn rows(&self) -> Vec<(Func, Resource, Ns)> {
        let mut v = Vec::new();
        for &f in Func::ALL {
            for r in Resource::ALL {
                let d = self.sum(f, r);
                if d.0 != 0 {
                    v.push((f, r, d));
                }
            }
        }
        v
    }
    /// What was booked since `earlier`, an older copy of the same ledger. An entry of a CPU may be
    /// negative (two's complement): time planned before may have been taken back since.
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let (mut now, mut then) = (self.clone(), earlier.clone());
        for c in 0..now.rows.len() {
            now.settle(Cpu::from_ix(c));
            then.settle(Cpu::from_ix(c));
            for (a, b) in now.rows[c].ns.iter_mut().zip(&then.rows[c].ns) {
                *a = a.wrapping_sub(*b);
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_path_is_the_same_as_its_steps() {
        let steps = vec![(Func::User, Ns(30)), (Func::SyscallEntry, Ns(5)), (Func::User, Ns(1))];
        let mut counted = Ledger::with_paths(2, vec![Vec::new(), vec![Vec::new(), steps.clone()]]);
        let mut booked = Ledger::new(2);
        let before = counted.clone();
        for _ in 0..7 {
            counted.row(Cpu(1), 1).1.book(1);
            for &(func, d) in &steps {
                booked.book(Cpu(1), func, Resource::None, d);
            }
        }
        assert_eq!(counted.rows(), booked.rows());
        assert_eq!(counted.total(Cpu(1)), Ns(7 * 36));
        assert_eq!(counted.since(&before).rows(), booked.rows());
        for ledger in [&mut counted, &mut booked] {
            ledger.unbook(Cpu(1), Func::User, Resource::None, Ns(217));
        }
        assert_eq!(counted.rows(), vec![(Func::SyscallEntry, Resource::None, Ns(35))]);
        assert_eq!(counted.rows(), booked.rows());
        counted.clear();
        assert_eq!(counted.total(Cpu(1)), Ns::ZERO);
    }

    /// 90 of 100 are taken back: 20 from the function named, which has no more, 50 and 20 from the
    /// largest of the rest, waiting or not.
    #[test]
    fn what_one_entry_does_not_have_the_largest_give() {
        let mut l = Ledger::new(1);
        let (line, user) = ((Func::PipeRead, Resource::RqLock), (Func::User, Resource::None));
        for ((func, on), ns) in [((Func::Exec, Resource::None), 20), (user, 30), (line, 50)] {
            l.book(Cpu(0), func, on, Ns(ns));
        }
        l.unbook(Cpu(0), Func::Exec, Resource::None, Ns(90));
        assert_eq!(l.rows(), [(user.0, user.1, Ns(10))]);
    }

    /// Planned before the window, cut short inside it: the window has less than nothing of it on
    /// this CPU, and the sum over CPUs is right.
    #[test]
    fn a_window_may_take_back_what_was_planned_before_it() {
        let mut l = Ledger::new(2);
        l.book(Cpu(0), Func::User, Resource::None, Ns(100));
        let before = l.clone();
        l.unbook(Cpu(0), Func::User, Resource::None, Ns(30));
        assert_eq!(l.since(&before).rows(), []);
        l.book(Cpu(1), Func::User, Resource::None, Ns(50));
        assert_eq!(l.since(&before).rows(), [(Func::User, Resource::None, Ns(20))]);
    }
}
