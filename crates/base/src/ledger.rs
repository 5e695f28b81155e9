//! Where every nanosecond of every CPU went: by function, and by what the function waited for.
//!
//! Time is booked when it is planned: an operation that will take 300 ns books its 300 ns at its
//! start, and whoever stretches it (an interrupt, a busy sibling) books the extra. So for each
//! CPU, at any moment, *booked = elapsed + what is planned beyond now*: the ledger closes.

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
    ColdCache User "user: refilling a cold cache",
    Idle Idle "idle",
    IdleExit Idle "idle exit latency",
    SyscallEntry Syscall "syscall entry",
    SyscallExit Syscall "syscall exit",
    PipeWrite Syscall "pipe_write",
    PipeRead Syscall "pipe_read",
    MutexLock Syscall "mutex_lock",
    UnixSend Syscall "unix_stream_sendmsg",
    UnixRecv Syscall "unix_stream_recvmsg",
    Futex Syscall "futex",
    Poll Syscall "poll",
    Sleep Syscall "nanosleep",
    Fork Syscall "copy_process",
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
    /// A socket's lock or lines.
    Socket,
    /// A task's own lines (`task_struct`), or its `pi_lock`.
    TaskLine,
    /// Machine-wide lines: root domain, nohz.
    Global,
}

impl Resource {
    /// Every resource, in order.
    pub const ALL: [Resource; 9] = [
        Resource::None,
        Resource::RqLock,
        Resource::RqLine,
        Resource::TgLoadAvg,
        Resource::LlcShared,
        Resource::PipeMutex,
        Resource::Socket,
        Resource::TaskLine,
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
            Resource::Socket => "socket",
            Resource::TaskLine => "task line",
            Resource::Global => "global line",
        }
    }
}

const NR_RESOURCES: usize = Resource::ALL.len();
const ROW: usize = Func::ALL.len() * NR_RESOURCES;

/// The entries of one CPU.
#[derive(Clone)]
pub struct LedgerRow([u64; ROW]);

impl LedgerRow {
    /// Books `d` for `func`.
    #[inline(always)]
    pub fn book(&mut self, func: Func, on: Resource, d: Ns) {
        self.0[at(func, on)] += d.0;
    }
}

/// Nanoseconds by CPU, function and resource. Fixed size.
#[derive(Clone)]
pub struct Ledger {
    rows: Vec<LedgerRow>,
}

#[inline(always)]
const fn at(func: Func, on: Resource) -> usize {
    // Own time first and side by side: a system call books five neighbours.
    on as usize * Func::ALL.len() + func as usize
}

impl Ledger {
    /// An empty ledger of `nr_cpus` CPUs.
    pub fn new(nr_cpus: usize) -> Ledger {
        Ledger { rows: (0..nr_cpus).map(|_| LedgerRow([0; ROW])).collect() }
    }
    /// Books `d` for `func` on `cpu`.
    #[inline(always)]
    pub fn book(&mut self, cpu: Cpu, func: Func, on: Resource, d: Ns) {
        self.rows[cpu.ix()].book(func, on, d);
    }
    /// The entries of `cpu`.
    #[inline(always)]
    pub fn row(&mut self, cpu: Cpu) -> &mut LedgerRow {
        &mut self.rows[cpu.ix()]
    }
    /// Takes back `d` that was planned but will not be spent: from `func`, and what `func` does
    /// not have from the CPU's largest entry of own time (an operation of several functions whose
    /// other parts are shortened too). The CPU's total shrinks by exactly `d`.
    pub fn unbook(&mut self, cpu: Cpu, func: Func, on: Resource, d: Ns) {
        let row = &mut self.rows[cpu.ix()].0;
        let from = &mut row[at(func, on)];
        let taken = d.0.min(*from);
        *from -= taken;
        let rest = d.0 - taken;
        if rest > 0 {
            let own = &mut row[..Func::ALL.len()];
            let most = own.iter_mut().max().expect("there are functions");
            *most -= rest;
        }
    }
    /// What is booked for (`func`, `on`) on `cpu`.
    pub fn get(&self, cpu: Cpu, func: Func, on: Resource) -> Ns {
        Ns(self.rows[cpu.ix()].0[at(func, on)])
    }
    /// Everything booked on `cpu`.
    pub fn total(&self, cpu: Cpu) -> Ns {
        Ns(self.rows[cpu.ix()].0.iter().fold(0, |sum, ns| ns.wrapping_add(sum)))
    }
    /// Sum over all CPUs of (`func`, `on`).
    pub fn sum(&self, func: Func, on: Resource) -> Ns {
        let sum = self.rows.iter().fold(0u64, |sum, row| sum.wrapping_add(row.0[at(func, on)]));
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
        let mut rows = self.rows.clone();
        for (row, old) in rows.iter_mut().zip(&earlier.rows) {
            for (a, b) in row.0.iter_mut().zip(&old.0) {
                *a = a.wrapping_sub(*b);
            }
        }
        Ledger { rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
