//! Open files: making channels, and the table that their descriptors are in.
//!
//! *What.* `pipe` and `socketpair` take two descriptors of the table of open files that the threads
//! of a process share. A table that is full is copied to one of twice the size; where threads share
//! it, whoever makes it grow waits for a grace period of RCU first, as others may be about to enter
//! a file in the old one.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/file.c `expand_fdtable`, `alloc_fdtable`,
//! include/linux/fdtable.h `NR_OPEN_DEFAULT`; kernel/rcu/tree.h `RCU_JIFFIES_TILL_FORCE_QS`.
//! Measured in a guest with 2 CPUs (6.18, HZ=250), 400 sleeping threads: 5 to 28 ms, mean 13.
//! Costs: `pipe_open`, `unix_open`; asking for a grace period costs what a timer does.
//! *Equations.* Sizes: 64, 128, 256, … A grace period begins at the caller's next tick, looks for
//! idle CPUs `1 + (HZ > 250) + (HZ > 500)` ticks later, as a timer counts them, and tells the
//! caller at its next tick: in all that many and one to two ticks, 8 to 12 ms with HZ=250, 4 to 5
//! with 1000.
//! *Departures.* D1: no grace period is under way, which would have to end first or might do; its
//! work takes no time but the caller's. D2: only channels are opened, and nothing is closed; three
//! files are open at first, in every address space, whomever it was forked from. D3: a second
//! thread that opens meanwhile does not wait. D4: a process that has had threads counts as shared.
//! *Example.* hackbench with threads and 32 groups has 1,287 files open: five grace periods.

use crate::program::ChannelId;
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use vruntime_base::{Cpu, Func, Ns, TaskId};
use vruntime_sched::task::TaskState;

/// The table of open files of an address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileTable {
    open: u32,
    size: u32,
}

impl Default for FileTable {
    fn default() -> Self {
        FileTable { open: 3, size: 64 }
    }
}

impl FileTable {
    /// Makes room for `n` more; returns whether the table had to grow.
    fn reserve(&mut self, n: u32) -> bool {
        let fits = self.open + n <= self.size;
        if !fits {
            self.size *= 2;
        }
        !fits
    }
}

impl Sim {
    /// `pipe` or `socketpair`.
    pub(crate) fn open_channel(&mut self, c: Cpu, p: TaskId, ch: ChannelId) {
        let mm = self.sh.tasks[p.ix()].mm as usize;
        if self.files.len() <= mm {
            self.files.resize(mm + 1, FileTable::default());
        }
        let files = &mut self.files[mm];
        if files.reserve(2) && self.tasks[p.ix()].multi_threaded {
            self.synchronize_rcu(c, p, Step::Begin);
            return;
        }
        files.open += 2;
        let costs = &self.machine.costs;
        let (func, cost) = match self.channels[ch.ix()] {
            Channel::Pipe(_) => (Func::Pipe, costs.pipe_open),
            Channel::Unix(_) => (Func::Socketpair, costs.unix_open),
        };
        self.plan_kernel(c, p, func, cost, Step::Woken);
    }

    /// `p` sleeps until a grace period has passed, then goes on at `step`.
    fn synchronize_rcu(&mut self, c: Cpu, p: TaskId, step: Step) {
        let release = &self.sh.release;
        let tick = Ns(release.tick_ns());
        let first_look = 1 + u64::from(release.hz > 250) + u64::from(release.hz > 500);
        let begins = self.cpus[c.ix()].tick_after(self.now, tick);
        let at = self.now + self.work(c, Func::SynchronizeRcu, self.machine.costs.hrtimer_start);
        self.sleep_until(c, p, begins + Ns((first_look + 1) * tick.0), 0);
        self.tasks[p.ix()].waits_for = WaitsFor::GracePeriod;
        self.block(c, p, at, step, TaskState::Uninterruptible);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::sample::{PIPE, sim};

    /// A task opens a pipe with `open` files open: where it is then, and which timer it has set.
    fn opens(kernel: &str, open: u32, threads: bool) -> (Sim, TaskId, Option<Ns>) {
        let mut s = sim(kernel);
        let (c, p) = (Cpu(3), TaskId::from_ix(s.tasks.len() - 1));
        s.sh.rqs[c.ix()].curr = p;
        s.tasks[p.ix()].multi_threaded = threads;
        let mm = s.sh.tasks[p.ix()].mm as usize;
        s.files = vec![FileTable { open, size: 64 }; mm + 1];
        s.now = Ns::from_ms(100);
        s.open_channel(c, p, PIPE);
        let timer = s.cpus[c.ix()].timers.peek().map(|t| t.0.0);
        (s, p, timer)
    }

    #[test]
    fn a_table_that_threads_share_grows_after_a_grace_period() {
        let waits = [("v6.1+hz=250", 2..=3), ("v6.1+hz=300", 3..=4), ("v6.1+hz=1000", 4..=5)];
        for (kernel, ticks) in waits {
            let (mut s, p, timer) = opens(kernel, 63, true);
            let waits = timer.expect("a timer") - s.now;
            let tick = s.sh.release.tick_ns();
            let [from, to] = [ticks.start(), ticks.end()].map(|n| Ns(n * tick));
            assert!(from < waits && waits <= to, "{kernel}: {waits}");
            assert_eq!(s.tasks[p.ix()].waits_for, WaitsFor::GracePeriod);
            assert_eq!(s.sh.tasks[p.ix()].state, TaskState::Uninterruptible);
            // Woken, it finds room.
            s.open_channel(Cpu(3), p, PIPE);
            assert_eq!(s.tasks[p.ix()].step, Step::Woken);
            let files = s.files[s.sh.tasks[p.ix()].mm as usize];
            assert_eq!((files.open, files.size), (65, 128));
        }
    }

    #[test]
    fn a_process_alone_or_with_room_left_does_not_wait() {
        for (open, threads) in [(63, false), (62, true)] {
            let (s, p, timer) = opens("v6.1", open, threads);
            assert_eq!((timer, s.tasks[p.ix()].step), (None, Step::Woken));
            assert_eq!(s.cpus[3].frames[0], Frame::Task);
        }
    }
}
