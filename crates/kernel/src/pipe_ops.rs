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
use crate::variation::{Knockout, Knockouts};
use crate::wait_lock::Queue;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_sched::release::Release;
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
        debug_assert_eq!(p, self.curr(c));
        let ch = self.channel_of(p);
        let (mut hot, pipe) = self.split_pipe(c, ch);
        if let Err(at) = hot.pipe_call(pipe, ch, at, false) {
            self.pipe_contended(c, p, ch, at);
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
        let at = self.now;
        let (mut hot, pipe) = self.split_pipe(c, ch);
        hot.end_call(pipe, at);
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
    fget_exchanges: bool,
    mutex_is_free: bool,
    data_is_free: bool,
    files_are_free: bool,
}

impl Rules {
    pub(crate) fn new(release: &Release, without: &Knockouts) -> Rules {
        Rules {
            wakes_on_freed_slot: release.pipe_wakes_on_freed_slot,
            fget_exchanges: release.fget_exchanges,
            mutex_is_free: without.has(Knockout::PipeMutex),
            data_is_free: without.has(Knockout::PipeData),
            files_are_free: without.has(Knockout::FileCount),
        }
    }
}

impl Hot<'_> {
    /// The current task writes to or reads from `pipe` (`ch`) from `at` on; the system call may
    /// begin here. If it finds the mutex taken, it does so at the time returned.
    #[inline(always)]
    pub fn pipe_call(
        &mut self,
        pipe: &mut Pipe,
        ch: ChannelId,
        mut at: Ns,
        begins: bool,
    ) -> Result<(), Ns> {
        if begins && self.counts_files() {
            at += self.take(Path::CountAndLock);
            at += self.fetch_count(pipe, if self.rules.fget_exchanges { 2 } else { 1 });
        } else {
            at += self.take(Path::Lock);
        }
        let m = &pipe.mutex;
        if m.free_at > at || m.spin_head.is_some() {
            self.cpu.no_user();
            self.cpu.mutex = ChannelId::NONE;
            return Err(at);
        }
        if !self.rules.mutex_is_free {
            at += self.fetch(Func::MutexLock, Resource::PipeMutex, (m.last_cpu, 1_000));
        }
        self.pipe_locked(pipe, ch, at);
        Ok(())
    }

    /// The current task holds the mutex from `at` on.
    #[inline(always)]
    pub fn pipe_locked(&mut self, pipe: &mut Pipe, ch: ChannelId, at: Ns) {
        let (free_at, quiet) = match self.k.op {
            Op::Write { bytes, .. } => self.copy_in(pipe, bytes, at),
            Op::Read { bytes, .. } => self.copy_out(pipe, bytes, at),
            _ => unreachable!("not an operation on a channel"),
        };
        let m = &mut pipe.mutex;
        m.owner = self.p;
        m.last_cpu = self.c;
        m.free_at = free_at;
        self.cpu.mutex = ch;
        if quiet && m.sleepers.is_empty() {
            let func = self.cpu.func;
            self.end_call(pipe, free_at);
            self.cpu.func = func;
        } else {
            self.cpu.no_user();
            self.cpu.frames[0] = Frame::Task;
            self.cpu.op_end = free_at;
        }
    }

    /// Writes under the mutex, from `at` on; returns when it lets go of it, and whether nobody has
    /// to be woken then.
    #[inline(always)]
    fn copy_in(&mut self, pipe: &mut Pipe, bytes: u32, at: Ns) -> (Ns, bool) {
        let costs = &self.machine.costs;
        let want = bytes - self.k.done;
        let was_empty = pipe.is_empty();
        let line = pipe.fetch_for_write(self.c, costs);
        let (n, new_slots) = pipe.write(want, !self.k.wake_next);
        self.k.done += n;
        self.k.was_edge = was_empty;
        self.k.step = Step::WriteUnlocked;
        self.cpu.func = Func::PipeWrite;
        let quiet = n == want && !was_empty && !pipe.poll_usage && !self.k.wake_next;
        let at = at + self.copied(Path::Write, n, new_slots * costs.pipe_new_page);
        (at + self.fetch_data(Func::PipeWrite, line), quiet)
    }

    /// Reads under the mutex, from `at` on; returns when it lets go of it, and whether nobody has
    /// to be woken then.
    #[inline(always)]
    fn copy_out(&mut self, pipe: &mut Pipe, bytes: u32, at: Ns) -> (Ns, bool) {
        let was_full = pipe.is_full();
        let line = match pipe.is_empty() {
            true => (Cpu::NONE, 0),
            false => pipe.fetch_for_read(self.c, &self.machine.costs),
        };
        let (n, freed) = pipe.read(bytes - self.k.done);
        self.k.done += n;
        self.k.got = n > 0;
        self.k.was_edge = was_full && (!self.rules.wakes_on_freed_slot || freed);
        self.k.again = n > 0 && self.k.done < bytes;
        self.k.step = Step::ReadUnlocked;
        self.cpu.func = Func::PipeRead;
        let quiet = n > 0 && !self.k.was_edge && !self.k.wake_next;
        if self.k.done == bytes {
            self.stats.message(pipe.group, at);
        }
        let at = at + self.copied(Path::Read, n, 0);
        (at + self.fetch_data(Func::PipeRead, line), quiet)
    }

    /// Waits for the line of a slot or its page.
    #[inline(always)]
    fn fetch_data(&mut self, func: Func, line: (Cpu, u32)) -> Ns {
        match self.rules.data_is_free {
            true => Ns::ZERO,
            false => self.fetch(func, Resource::PipeData, line),
        }
    }

    /// Mutex and wakeups are behind it at `at`: the inode's times, `fput`, and out.
    #[inline(always)]
    fn end_call(&mut self, pipe: &mut Pipe, mut at: Ns) {
        if self.counts_files() {
            at += self.fetch_count(pipe, 1);
        }
        let writes = matches!(self.k.op, Op::Write { .. });
        let exit = self.take(if writes { Path::ExitWrite } else { Path::ExitRead });
        self.returned(at + exit);
    }

    /// `fget` and `fput` count the file, as threads share it.
    #[inline(always)]
    fn counts_files(&self) -> bool {
        self.k.multi_threaded && !self.rules.files_are_free
    }

    /// The count comes from wherever it was changed last, in so many transfers.
    #[inline(always)]
    fn fetch_count(&mut self, pipe: &mut Pipe, transfers: u32) -> Ns {
        let writes = matches!(self.k.op, Op::Write { .. });
        let from = pipe.mutex.lines.count_file(self.c, writes);
        self.fetch(Func::Fget, Resource::FileCount, (from, 1_000 * transfers))
    }

    /// Books the copy of `n` bytes and `more` work with it; returns the time until the unlock.
    #[inline(always)]
    fn copied(&mut self, path: Path, n: u32, more: u32) -> Ns {
        let d = self.take(path);
        if n <= 128 && more == 0 {
            return d;
        }
        d + self.work(self.cpu.func, more + self.machine.costs.copy(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{PIPE, sim, sim_on, uma_8};

    /// A write to an empty pipe whose reader sleeps: the wakeup begins when it does whatever the
    /// times of the inode take, and the call ends later by that.
    #[test]
    fn times_are_set_after_the_wakeup() {
        let ends = |mtime: u32| {
            let mut s = sim("v6.12");
            s.machine.costs.pipe_mtime = mtime;
            s.paces = crate::path::paces(&s.machine).0;
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

    /// A byte of a pipe that is full of whole pages frees no slot. Up to 6.13 a reader wakes a
    /// writer all the same; the rest of the page frees one.
    #[test]
    fn a_read_that_frees_no_slot_wakes_a_writer_up_to_6_13() {
        for (kernel, wakes) in [("v6.12", true), ("v6.18", false)] {
            let mut s = sim(kernel);
            let (c, reader) = (Cpu(0), TaskId::from_ix(s.tasks.len() - 1));
            s.sh.rqs[c.ix()].curr = reader;
            assert_eq!(s.pipe(PIPE).write(16 * 4096, true), (16 * 4096, 16));
            let edges = [1, 4095].map(|bytes| {
                let k = &mut s.tasks[reader.ix()];
                (k.op, k.done) = (Op::Read { from: PIPE, bytes }, 0);
                s.pipe_lock(c, reader, s.now);
                s.now = s.cpus[c.ix()].op_end;
                s.tasks[reader.ix()].was_edge
            });
            assert_eq!(edges, [wakes, true], "{kernel}");
        }
    }

    /// The first two wait exclusively, the third does not: it comes first, and one of them second.
    #[test]
    fn all_that_wait_not_exclusively_are_woken_and_one_exclusive() {
        let mut s = sim_on(uma_8(), "v6.12", 3);
        let n = s.tasks.len() as u32;
        let [first, second, third] = [n - 3, n - 2, n - 1].map(TaskId);
        let Channel::Pipe(pipe) = &mut s.channels[PIPE.ix()] else { panic!("not a pipe") };
        for (p, exclusive) in [(first, true), (second, true), (third, false)] {
            pipe.rd_wait.add(&mut s.tasks, p, exclusive);
        }
        let woken = [(); 2].map(|()| {
            s.wake_waiters(Cpu(0), PIPE, Queue::Readers);
            s.cpus[0].wakes.drain(..).map(|w| w.0).collect::<Vec<_>>()
        });
        assert_eq!(woken, [vec![third, first], vec![second]]);
    }
}
