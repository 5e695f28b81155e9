//! `write` and `read` on a pipe: the mutex, the copy, and whom to wake.
//!
//! *What.* Lock, copy, unlock, wake – and sleep if the pipe is full or empty. While nobody has to
//! be woken, lock, copy, unlock and the way to the next system call are one operation.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c. Up to 6.14 a call that moved data ends with
//! `file_update_time` or `file_accessed`.
//! *Equations.* A free mutex costs the transfer of its line; one that is taken: see `pipe_mutex`.
//! With the mutex comes what `pipe_lines` says of slot and data.
//! Waiters are woken, and go to sleep, under the lock of their queue: see `wait_lock`.
//! *Departures.* D1: pages are never missing, and an inode's times, set once a tick, share no line
//! with anything.
//! *Example.* The reader of an empty pipe sleeps. A sender locks, copies, unlocks, wakes it, and
//! returns to user mode; the next sender finds data and wakes nobody.

use crate::frame::Frame;
use crate::hot::Hot;
use crate::path::Path;
use crate::pipe::Pipe;
use crate::program::{ChannelId, Op};
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use crate::variation::Knockout;
use crate::wait_lock::Queue;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_sched::task::TaskState;

impl Sim {
    #[inline]
    pub(crate) fn channel_of(&self, p: TaskId) -> ChannelId {
        match self.tasks[p.ix()].op {
            Op::Write { to, .. } => to,
            Op::Read { from, .. } => from,
            _ => unreachable!("not an operation on a channel"),
        }
    }

    /// Takes the mutex of the pipe that `p` reads or writes, at `at` (now, or soon).
    pub(crate) fn pipe_lock(&mut self, c: Cpu, p: TaskId, at: Ns) {
        let ch = self.channel_of(p);
        self.pipe_call(c, p, ch, at, false);
    }

    /// See [`Sim::pipe_lock`]; `ch` is the pipe. The system call may begin here.
    #[inline(always)]
    pub(crate) fn pipe_call(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns, begins: bool) {
        let rules = self.pipe_rules();
        let no_mutex = self.without.has(Knockout::PipeMutex);
        let (mut hot, channels) = self.split(c, p);
        let Channel::Pipe(pipe) = &mut channels[ch.ix()] else { unreachable!("not a pipe") };
        let mut at = at + hot.take(Path::Lock);
        if begins {
            at += hot.get_file(pipe, c, rules);
        }
        let m = &pipe.mutex;
        if m.free_at > at || m.spin_head.is_some() {
            hot.cpu.no_user();
            hot.cpu.mutex = ChannelId::NONE;
            self.pipe_contended(c, p, ch, at);
            return;
        }
        if m.last_cpu != c && m.last_cpu.is_some() && !no_mutex {
            let cost = hot.machine.transfer(m.last_cpu, c);
            hot.row.book(Func::MutexLock, Resource::PipeMutex, cost);
            at += cost;
        }
        hot.pipe_locked(pipe, c, p, ch, at, rules);
    }

    #[inline(always)]
    pub(crate) fn pipe_rules(&self) -> Rules {
        Rules {
            wakes_on_freed_slot: self.sh.release.pipe_wakes_on_freed_slot,
            updates_times: self.sh.release.pipe_updates_times,
            data_is_free: self.without.has(Knockout::PipeData),
            fget_exchanges: self.sh.release.fget_exchanges,
            files_are_free: self.without.has(Knockout::FileCount),
        }
    }

    /// After a write: a reader if the pipe was empty, the next writer if there is room, and sleep
    /// if not everything fitted.
    pub(crate) fn write_unlocked(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let complete = self.write_is_complete(p);
        let pipe = self.pipe(ch);
        let (poll, full) = (pipe.poll_usage, pipe.is_full());
        let k = &mut self.tasks[p.ix()];
        k.was_edge |= complete && poll;
        k.wake_next &= complete && !full;
        self.after_unlock(c, p, ch);
    }

    /// After a read: a writer if the pipe was full, the next reader if there is data, and sleep if
    /// there was nothing.
    pub(crate) fn read_unlocked(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let empty = self.pipe(ch).is_empty();
        let k = &mut self.tasks[p.ix()];
        k.wake_next &= k.got && !empty;
        self.after_unlock(c, p, ch);
    }

    /// The mutex is released: who sleeps for it is woken first.
    fn after_unlock(&mut self, c: Cpu, p: TaskId, ch: ChannelId) {
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.wake_mutex_sleeper(c, ch);
        if self.cpus[c.ix()].wakes.is_empty() {
            self.pipe_wakes(c, p);
        } else {
            self.tasks[p.ix()].step = Step::PipeWakes;
            self.plan_wakes(c, self.now, Frame::Task);
        }
    }

    /// The wakeups after a write or read: who waits for what it has changed (`KTask::was_edge`),
    /// then the next who does the same (`wake_next`), each under the lock of their queue.
    pub(crate) fn pipe_wakes(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let writes = matches!(self.tasks[p.ix()].op, Op::Write { .. });
        let complete = if writes { self.write_is_complete(p) } else { self.tasks[p.ix()].got };
        let k = &mut self.tasks[p.ix()];
        let (first, second) = (k.was_edge, k.wake_next);
        let mut at = self.now;
        if first || second {
            let queue = if first == writes { Queue::Readers } else { Queue::Writers };
            k.step = Step::PipeWakes;
            if !self.lock_queue(c, ch, queue) {
                return;
            }
            at = self.wake_waiters(c, ch, queue);
        }
        let k = &mut self.tasks[p.ix()];
        k.was_edge = false;
        k.wake_next = first && second;
        if !k.wake_next {
            k.step = match (complete, writes) {
                (true, _) => Step::PipeEnd,
                (false, true) => Step::WritePrepare,
                (false, false) => Step::ReadPrepare,
            };
        }
        self.plan_wakes(c, at, Frame::Task);
    }

    fn write_is_complete(&self, p: TaskId) -> bool {
        let k = &self.tasks[p.ix()];
        matches!(k.op, Op::Write { bytes, .. } if k.done == bytes)
    }

    /// The wakeups of a write or read are done.
    pub(crate) fn pipe_end(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let rules = self.pipe_rules();
        let at = self.now;
        let (mut hot, channels) = self.split(c, p);
        let Channel::Pipe(pipe) = &mut channels[ch.ix()] else { unreachable!("not a pipe") };
        let end = hot.end_call(pipe, c, rules);
        hot.syscall_return(at + end);
    }

    /// `wake_up_interruptible_sync_poll` under the queue's lock: everyone who waits
    /// non-exclusively, and one exclusive. Returns when the first wakeup begins.
    fn wake_waiters(&mut self, c: Cpu, ch: ChannelId, queue: Queue) -> Ns {
        let tasks = &mut self.tasks;
        let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] else { unreachable!("not a pipe") };
        let waiters = match queue {
            Queue::Readers => &mut pipe.rd_wait,
            Queue::Writers => &mut pipe.wr_wait,
        };
        let wakes = &mut self.cpus[c.ix()].wakes;
        while let Some(w) = waiters.pop(tasks) {
            wakes.push_back((w, true));
            if tasks[w.ix()].exclusive {
                break;
            }
        }
        if !self.cpus[c.ix()].wakes.is_empty() {
            self.hold_queue(c, ch, queue);
        }
        self.now + self.work(c, Func::WaitQueue, self.machine.costs.wait_queue_wake)
    }

    /// A writer that found the pipe full queues itself, unless there is room by now.
    pub(crate) fn write_prepare(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        self.tasks[p.ix()].wake_next = true;
        let full = self.pipe(ch).is_full();
        self.prepare_or_relock(c, p, ch, full, false);
    }

    /// A reader that found the pipe empty queues itself, unless there is data by now.
    pub(crate) fn read_prepare(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        self.tasks[p.ix()].wake_next = true;
        let empty = self.pipe(ch).is_empty();
        self.prepare_or_relock(c, p, ch, empty, true);
    }

    fn prepare_or_relock(&mut self, c: Cpu, p: TaskId, ch: ChannelId, wait: bool, reader: bool) {
        let wanted = if reader { Queue::Readers } else { Queue::Writers };
        if wait && !self.lock_queue(c, ch, wanted) {
            return;
        }
        let at = self.now + self.work(c, Func::WaitQueue, self.machine.costs.pipe_wait);
        self.unlock_queue(c, at);
        if !wait {
            self.pipe_lock(c, p, at);
            return;
        }
        let tasks = &mut self.tasks;
        let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] else { return };
        let queue = if reader { &mut pipe.rd_wait } else { &mut pipe.wr_wait };
        queue.add(tasks, p, true);
        let (on, step) = if reader {
            (WaitsFor::Data(ch), Step::ReadPrepare)
        } else {
            (WaitsFor::Room(ch), Step::WritePrepare)
        };
        self.tasks[p.ix()].waits_for = on;
        self.block(c, p, at, step, TaskState::Interruptible);
    }
}

/// What pipes do under the kernel in force, and what is left out.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    wakes_on_freed_slot: bool,
    updates_times: bool,
    data_is_free: bool,
    fget_exchanges: bool,
    files_are_free: bool,
}

impl Hot<'_> {
    /// The task `p` holds the mutex from `at` on: copies, and plans the unlock – fused with what
    /// follows if nobody has to be woken there.
    #[inline(always)]
    pub(crate) fn pipe_locked(
        &mut self,
        pipe: &mut Pipe,
        c: Cpu,
        p: TaskId,
        ch: ChannelId,
        at: Ns,
        rules: Rules,
    ) {
        let (quiet, free_at);
        let machine = self.machine;
        let costs = &machine.costs;
        let transfer = |from: Cpu, to: Cpu| {
            if rules.data_is_free { Ns::ZERO } else { machine.transfer(from, to) }
        };
        if let Op::Write { bytes, .. } = self.k.op {
            let want = bytes - self.k.done;
            let was_empty = pipe.is_empty();
            let lines = pipe.fetch_for_write(c, costs, transfer);
            let (n, new_slots) = pipe.write(want, !self.k.wake_next);
            self.k.done += n;
            self.k.was_edge = was_empty;
            self.k.step = Step::WriteUnlocked;
            self.cpu.func = Func::PipeWrite;
            quiet = n == want && !was_empty && !pipe.poll_usage && !self.k.wake_next;
            free_at = at + self.copied(Path::Write, n, new_slots * costs.pipe_new_page) + lines;
            self.row.book(Func::PipeWrite, Resource::PipeData, lines);
        } else {
            let Op::Read { bytes, .. } = self.k.op else { unreachable!("not on a channel") };
            let was_full = pipe.is_full();
            let lines = match pipe.is_empty() {
                true => Ns::ZERO,
                false => pipe.fetch_for_read(c, costs, transfer),
            };
            let (n, freed) = pipe.read(bytes - self.k.done);
            self.k.done += n;
            self.k.got = n > 0;
            self.k.was_edge = was_full && (!rules.wakes_on_freed_slot || freed);
            self.k.again = n > 0 && self.k.done < bytes;
            self.k.step = Step::ReadUnlocked;
            self.cpu.func = Func::PipeRead;
            quiet = n > 0 && !self.k.was_edge && !self.k.wake_next;
            if self.k.done == bytes {
                self.stats.message(pipe.group, at);
            }
            free_at = at + self.copied(Path::Read, n, 0) + lines;
            self.row.book(Func::PipeRead, Resource::PipeData, lines);
        }
        let m = &mut pipe.mutex;
        m.owner = p;
        m.last_cpu = c;
        m.free_at = free_at;
        self.cpu.mutex = ch;
        if quiet && m.sleepers.is_empty() {
            let func = self.cpu.func;
            let end = self.end_call(pipe, c, rules);
            self.syscall_return(free_at + end);
            self.cpu.func = func;
        } else {
            self.cpu.no_user();
            self.cpu.frames[0] = Frame::Task;
            self.cpu.op_end = free_at;
        }
    }

    /// `fget`: what counting the file costs, if threads share it.
    #[inline(always)]
    fn get_file(&mut self, pipe: &mut Pipe, c: Cpu, rules: Rules) -> Ns {
        if !self.k.multi_threaded || rules.files_are_free {
            return Ns::ZERO;
        }
        let transfers = if rules.fget_exchanges { 2 } else { 1 };
        self.take(Path::CountFile) + self.fetch_count(pipe, c, transfers)
    }

    /// What follows the mutex and the wakeups: the inode's times, then `fput`.
    #[inline(always)]
    fn end_call(&mut self, pipe: &mut Pipe, c: Cpu, rules: Rules) -> Ns {
        let costs = &self.machine.costs;
        let times = match (rules.updates_times, self.k.op) {
            (false, _) => Ns::ZERO,
            (true, Op::Write { .. }) => self.work(Func::FileUpdateTime, costs.pipe_mtime),
            (true, _) => self.work(Func::FileAccessed, costs.pipe_atime),
        };
        times + self.put_file(pipe, c, rules)
    }

    /// `fput`: what counting the file costs if another CPU has done so since.
    #[inline(always)]
    fn put_file(&mut self, pipe: &mut Pipe, c: Cpu, rules: Rules) -> Ns {
        if !self.k.multi_threaded || rules.files_are_free {
            return Ns::ZERO;
        }
        self.fetch_count(pipe, c, 1)
    }

    /// The count comes from wherever it was changed last, in so many transfers.
    #[inline(always)]
    fn fetch_count(&mut self, pipe: &mut Pipe, c: Cpu, transfers: u64) -> Ns {
        let from = pipe.mutex.lines.count_file(c, matches!(self.k.op, Op::Write { .. }));
        let cost = Ns(transfers * self.machine.transfer(from, c).0);
        if cost != Ns::ZERO {
            self.row.book(Func::Fget, Resource::FileCount, cost);
        }
        cost
    }

    /// Books the copy of `n` bytes and `more` work with it; returns the time until the unlock.
    #[inline(always)]
    fn copied(&mut self, path: Path, n: u32, more: u32) -> Ns {
        let d = self.take(path);
        if n <= 128 && more == 0 {
            return d;
        }
        let kib =
            (u64::from(self.machine.costs.pipe_copy_kib) * u64::from(n.saturating_sub(128))) >> 10;
        d + self.work(self.cpu.func, more + kib as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{PIPE, sim};

    /// A write to an empty pipe whose reader sleeps: the wakeup begins when it does whatever the
    /// times of the inode take, and the call ends later by that.
    #[test]
    fn times_are_set_after_the_wakeup() {
        let ends = |mtime: u32| {
            let mut s = sim("v6.12");
            s.machine.costs.pipe_mtime = mtime;
            let n = s.tasks.len() as u32;
            let (c, writer, reader) = (Cpu(0), TaskId(n - 2), TaskId(n - 1));
            s.sh.rqs[c.ix()].curr = writer;
            let k = &mut s.tasks[writer.ix()];
            k.op = Op::Write { to: PIPE, bytes: 100 };
            (k.done, k.was_edge) = (100, true);
            let Channel::Pipe(pipe) = &mut s.channels[PIPE.ix()] else { panic!("not a pipe") };
            pipe.rd_wait.add(&mut s.tasks, reader, true);
            s.write_unlocked(c, writer);
            assert_eq!((s.cpus[c.ix()].frames[0], s.cpus[c.ix()].wakes.len()), (Frame::Wake, 1));
            let wakes = s.cpus[c.ix()].op_end;
            assert_eq!(s.tasks[writer.ix()].step, Step::PipeEnd);
            s.pipe_end(c, writer);
            (wakes, s.cpus[c.ix()].user_from)
        };
        let (without, with) = (ends(0), ends(1_000));
        assert_eq!(with, (without.0, without.1 + Ns(1_000)));
    }
}
