//! `write` and `read` on a pipe: the mutex, the copy, and whom to wake.
//!
//! *What.* Lock, copy, unlock, wake – and sleep if the pipe is full or empty. While nobody has to
//! be woken, lock, copy, unlock and the way to the next system call are one operation.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c; mutexes:
//! kernel/locking/mutex.c as documented in Documentation/locking/mutex-design.rst.
//! *Equations.* A free mutex costs the transfer of its line. A spinner gets it three transfers
//! after its release: the owner's store takes the line from the spinner that looks at it, the
//! spinner looks again, and takes it. With the mutex comes what `pipe_lines` says of slot and data.
//! *Departures.* D1: a spinner may not overtake one that spins already; whoever sleeps for the
//! mutex is woken at its release and competes again. D2: pages are never missing. D3: where the
//! time of the release is known, the owner is through with the pipe, and no known interrupt comes
//! first, a spinner is granted the mutex in advance, in the same operation; an IPI in that time (a
//! microsecond or less) finds it holding, not spinning.
//! *Example.* Two senders meet on one pipe: the second spins until the first one's `free_at`, plus
//! three line transfers.

use crate::frame::{Frame, Rest};
use crate::hot::Hot;
use crate::path::Path;
use crate::pipe::Pipe;
use crate::program::{ChannelId, Op};
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use crate::variation::Knockout;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::HANDOVER;
use vruntime_sched::task::TaskState;

impl Sim {
    #[inline]
    fn channel_of(&self, p: TaskId) -> ChannelId {
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

    /// From the release of a mutex by `from` until the spinner `to` has it.
    fn handover(&self, from: Cpu, to: Cpu) -> Ns {
        Ns(HANDOVER * self.transfer(from, to).0)
    }

    #[inline(always)]
    fn pipe_rules(&self) -> Rules {
        Rules {
            wakes_on_freed_slot: self.sh.release.pipe_wakes_on_freed_slot,
            data_is_free: self.without.has(Knockout::PipeData),
            fget_exchanges: self.sh.release.fget_exchanges,
            files_are_free: self.without.has(Knockout::FileCount),
        }
    }

    /// The mutex of the pipe is taken: spins if its owner runs, else sleeps.
    #[inline(never)]
    fn pipe_contended(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        if self.without.has(Knockout::PipeMutex) {
            self.pipe_granted(c, p, ch, at);
            return;
        }
        let m = &self.pipe(ch).mutex;
        let (owner, last, free_at, alone) = (m.owner, m.last_cpu, m.free_at, m.spin_head.is_none());
        let owner_runs = self.sh.tasks[owner.ix()].on_cpu_until >= Ns::NEVER;
        if !owner_runs || self.sh.rqs[c.ix()].need_resched {
            self.mutex_block(c, p, ch, at);
            return;
        }
        // Not while the owner will look at the pipe again after its release: it must not see what
        // this operation does to it.
        let owner_is_through = self.tasks[owner.ix()].step == Step::Begin;
        if alone && owner_is_through && free_at <= self.cpus[last.ix()].interrupt_at() {
            let granted = at.max(free_at + self.handover(last, c));
            if granted < self.cpus[c.ix()].interrupt_at() {
                self.waited(c, Func::MutexLock, Resource::PipeMutex, granted - at);
                self.pipe_granted(c, p, ch, granted);
                return;
            }
        }
        self.spin_join(c, p, ch, at);
    }

    /// `c` joins the queue of spinners.
    fn spin_join(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        self.tasks[p.ix()].step = Step::MutexSpin;
        self.cpus[c.ix()].spin_next = Cpu::NONE;
        let m = &mut self.pipe(ch).mutex;
        let first = m.spin_head.is_none();
        let tail = m.spin_tail;
        m.spin_tail = c;
        let (free_at, last) = (m.free_at, m.last_cpu);
        if first {
            m.spin_head = c;
            let granted = if free_at >= Ns::NEVER {
                None
            } else {
                Some((free_at + self.handover(last, c)).max(at))
            };
            self.plan_spin(c, ch, at, granted);
        } else {
            self.cpus[tail.ix()].spin_next = c;
            self.plan_spin(c, ch, at, None);
        }
    }

    /// A spinner looks again: it has the mutex, or must give up, or goes on spinning.
    pub(crate) fn mutex_spin(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let now = self.now;
        let m = &self.pipe(ch).mutex;
        let (free_at, last, head) = (m.free_at, m.last_cpu, m.spin_head);
        let mine = head == c && free_at <= now;
        if mine {
            self.end_spin(c);
            self.spin_leave(c, ch);
            self.pipe_granted(c, p, ch, now);
        } else if self.sh.rqs[c.ix()].need_resched {
            self.end_spin(c);
            self.spin_leave(c, ch);
            self.mutex_block(c, p, ch, now);
        } else {
            let at = if head == c && free_at < Ns::NEVER {
                free_at + self.handover(last, c)
            } else {
                Ns::NEVER
            };
            self.cpus[c.ix()].op_end = at;
        }
    }

    /// `c` spins for the mutex of `ch` from `at` on, and looks again at `granted`.
    fn plan_spin(&mut self, c: Cpu, ch: ChannelId, at: Ns, granted: Option<Ns>) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.frames[0] = Frame::Task;
        cpu.op_end = granted.unwrap_or(Ns::NEVER);
        cpu.spin = ch;
        cpu.spin_since = at;
    }

    /// The spinner `c` shall look again at `at`.
    fn grant_spin(&mut self, c: Cpu, at: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        let at = at.max(cpu.spin_since);
        if cpu.level == 0 {
            cpu.op_end = at;
            self.arm(c);
        } else {
            cpu.granted = at;
        }
    }

    /// Spinning is over: books it.
    fn end_spin(&mut self, c: Cpu) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.spin = ChannelId::NONE;
        cpu.granted = Ns::NEVER;
        let d = self.now.saturating_sub(cpu.spin_since);
        self.sh.ledger.book(c, Func::MutexLock, Resource::PipeMutex, d);
    }

    /// `c` leaves the queue of spinners.
    fn spin_leave(&mut self, c: Cpu, ch: ChannelId) {
        let next = self.cpus[c.ix()].spin_next;
        self.cpus[c.ix()].spin_next = Cpu::NONE;
        let m = &mut self.pipe(ch).mutex;
        if m.spin_head == c {
            m.spin_head = next;
            if next.is_none() {
                m.spin_tail = Cpu::NONE;
            }
            let free_at = m.free_at;
            if next.is_some() && free_at < Ns::NEVER {
                let at = free_at.max(self.now) + self.handover(c, next);
                self.grant_spin(next, at);
            }
            return;
        }
        let mut at = m.spin_head;
        while self.cpus[at.ix()].spin_next != c {
            at = self.cpus[at.ix()].spin_next;
        }
        self.cpus[at.ix()].spin_next = next;
        if next.is_none() {
            self.pipe(ch).mutex.spin_tail = at;
        }
    }

    /// `p` sleeps until the mutex is released.
    fn mutex_block(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        let at = at + self.work(c, Func::MutexLock, self.machine.costs.mutex_sleep);
        let (owner, free_at) = (self.pipe(ch).mutex.owner, self.pipe(ch).mutex.free_at);
        if free_at <= self.now {
            // Released while we made up our mind.
            self.tasks[p.ix()].step = Step::MutexRetry;
            self.plan(c, at, Frame::Task);
            return;
        }
        let tasks = &mut self.tasks;
        if let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] {
            pipe.mutex.sleepers.add(tasks, p, true);
        }
        self.tasks[p.ix()].waits_for = WaitsFor::Mutex(ch);
        self.block(c, p, at, Step::MutexRetry, TaskState::Uninterruptible);
        self.cut_at_unlock(owner, ch, free_at);
    }

    /// The owner's operation goes on beyond the release of the mutex; now someone sleeps for it,
    /// so the operation is cut where the owner will have to wake the sleeper.
    fn cut_at_unlock(&mut self, owner: TaskId, ch: ChannelId, free_at: Ns) {
        let o = self.sh.tasks[owner.ix()].cpu;
        let holds = self.curr(o) == owner && self.holds_mutex(o, ch);
        let cpu = &mut self.cpus[o.ix()];
        let goes_on = match cpu.frames[0] {
            Frame::Task => cpu.op_end > free_at,
            // A reschedule is due where user mode begins.
            Frame::Schedule => true,
            _ => false,
        };
        if holds && goes_on && cpu.level == 0 && cpu.mutex == ch && free_at >= self.now {
            cpu.rest = Rest { takes: cpu.op_end - free_at, then: cpu.frames[0], ..Rest::NONE };
            if cpu.user_to > cpu.user_from {
                let user = (cpu.user_from - free_at, cpu.user_to - free_at);
                (cpu.rest.user_from, cpu.rest.user_to) = user;
            }
            cpu.no_user();
            cpu.op_end = free_at;
            cpu.frames[0] = Frame::MutexWake;
            cpu.mutex_wake = ch;
            self.arm(o);
        }
    }

    /// The mutex is released now: wakes the first sleeper, then the cut operation goes on.
    pub(crate) fn mutex_wake(&mut self, c: Cpu) {
        let ch = self.cpus[c.ix()].mutex_wake;
        self.wake_mutex_sleeper(c, ch);
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.plan_wakes(c, self.now, Frame::Rest);
    }

    fn wake_mutex_sleeper(&mut self, c: Cpu, ch: ChannelId) {
        let tasks = &mut self.tasks;
        if let Channel::Pipe(pipe) = &mut self.channels[ch.ix()]
            && let Some(w) = pipe.mutex.sleepers.pop(tasks)
        {
            self.cpus[c.ix()].wakes.push_back((w, false));
        }
    }

    /// The mutex that the current operation of `c` holds will be free at `free_at`.
    #[inline]
    pub(crate) fn mutex_free_at(&mut self, c: Cpu, ch: ChannelId, free_at: Ns) {
        let m = &mut self.pipe(ch).mutex;
        m.free_at = free_at;
        let head = m.spin_head;
        if head.is_some() {
            let at = free_at.max(self.now) + self.handover(c, head);
            self.grant_spin(head, at);
        }
    }

    /// The operation of `c` that took the mutex of `ch` has not yet come to its release.
    pub(crate) fn holds_mutex(&mut self, c: Cpu, ch: ChannelId) -> bool {
        let (p, now) = (self.curr(c), self.now);
        let m = &self.pipe(ch).mutex;
        m.owner == p && m.last_cpu == c && m.free_at > now && m.free_at < Ns::NEVER
    }

    /// An interrupt suspends an operation that holds a mutex: nobody knows when it is released.
    pub(crate) fn suspend_mutex(&mut self, c: Cpu) {
        let ch = self.cpus[c.ix()].mutex;
        if !self.holds_mutex(c, ch) {
            self.cpus[c.ix()].mutex = ChannelId::NONE;
            return;
        }
        let now = self.now;
        let m = &mut self.pipe(ch).mutex;
        let left = m.free_at - now;
        m.free_at = Ns::NEVER;
        let head = m.spin_head;
        self.cpus[c.ix()].mutex_left = left;
        if head.is_some() {
            self.grant_spin(head, Ns::NEVER);
        }
    }

    /// The interrupted operation that holds a mutex goes on at `at`.
    pub(crate) fn resume_mutex(&mut self, c: Cpu, at: Ns) {
        let ch = self.cpus[c.ix()].mutex;
        let free_at = at + self.cpus[c.ix()].mutex_left;
        self.mutex_free_at(c, ch, free_at);
        if !self.pipe(ch).mutex.sleepers.is_empty() {
            // Someone went to sleep for it in the meantime.
            self.cut_at_unlock(self.curr(c), ch, free_at);
        }
    }

    /// A spinner gets the mutex at `at`.
    fn pipe_granted(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        let rules = self.pipe_rules();
        let (mut hot, channels) = self.split(c, p);
        let Channel::Pipe(pipe) = &mut channels[ch.ix()] else { unreachable!("not a pipe") };
        hot.pipe_locked(pipe, c, p, ch, at, rules);
        let (next, free_at) = (pipe.mutex.spin_head, pipe.mutex.free_at);
        if next.is_some() {
            let at = free_at + self.handover(c, next);
            self.grant_spin(next, at);
        }
    }

    /// After a write: a reader if the pipe was empty, the next writer if there is room, and sleep
    /// if not everything fitted.
    pub(crate) fn write_unlocked(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        let Op::Write { bytes, .. } = self.tasks[p.ix()].op else { unreachable!() };
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.wake_mutex_sleeper(c, ch);
        let k = &self.tasks[p.ix()];
        let (complete, was_empty) = (k.done == bytes, k.was_edge);
        let wake_writer = complete && k.wake_next;
        let mut at = self.now;
        let poll = self.pipe(ch).poll_usage;
        if was_empty || (complete && poll) {
            at = self.wake_waiters(c, ch, at, true);
        }
        if wake_writer && !self.pipe(ch).is_full() {
            at = self.wake_waiters(c, ch, at, false);
        }
        let at = at + self.put_file_after(c, p, ch, complete);
        self.tasks[p.ix()].step = if complete { Step::Woken } else { Step::WritePrepare };
        self.plan_wakes(c, at, Frame::Task);
    }

    /// After a read: a writer if the pipe was full, the next reader if there is data, and sleep if
    /// there was nothing.
    pub(crate) fn read_unlocked(&mut self, c: Cpu, p: TaskId) {
        let ch = self.channel_of(p);
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.wake_mutex_sleeper(c, ch);
        let k = &self.tasks[p.ix()];
        let (complete, was_full, wake_reader) = (k.got, k.was_edge, k.wake_next);
        let mut at = self.now;
        if was_full {
            at = self.wake_waiters(c, ch, at, false);
        }
        if complete && wake_reader && !self.pipe(ch).is_empty() {
            at = self.wake_waiters(c, ch, at, true);
        }
        let at = at + self.put_file_after(c, p, ch, complete);
        self.tasks[p.ix()].step = if complete { Step::Woken } else { Step::ReadPrepare };
        self.plan_wakes(c, at, Frame::Task);
    }

    /// `fput` of a call that wakes someone, if the call is `over`.
    fn put_file_after(&mut self, c: Cpu, p: TaskId, ch: ChannelId, over: bool) -> Ns {
        if !over {
            return Ns::ZERO;
        }
        let rules = self.pipe_rules();
        let (mut hot, channels) = self.split(c, p);
        let Channel::Pipe(pipe) = &mut channels[ch.ix()] else { return Ns::ZERO };
        hot.put_file(pipe, c, rules)
    }

    /// `wake_up_interruptible_sync_poll`: everyone who waits non-exclusively, and one exclusive.
    fn wake_waiters(&mut self, c: Cpu, ch: ChannelId, at: Ns, readers: bool) -> Ns {
        let at = at + self.work(c, Func::WaitQueue, self.machine.costs.wait_queue_wake);
        let tasks = &mut self.tasks;
        let Channel::Pipe(pipe) = &mut self.channels[ch.ix()] else { return at };
        let queue = if readers { &mut pipe.rd_wait } else { &mut pipe.wr_wait };
        let wakes = &mut self.cpus[c.ix()].wakes;
        while let Some(w) = queue.pop(tasks) {
            wakes.push_back((w, true));
            if tasks[w.ix()].exclusive {
                break;
            }
        }
        at
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
        let at = self.now + self.work(c, Func::WaitQueue, self.machine.costs.pipe_wait);
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
struct Rules {
    wakes_on_freed_slot: bool,
    data_is_free: bool,
    fget_exchanges: bool,
    files_are_free: bool,
}

impl Hot<'_> {
    /// The task `p` holds the mutex from `at` on: copies, and plans the unlock – fused with what
    /// follows if nobody has to be woken there.
    #[inline(always)]
    fn pipe_locked(
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
            let put = self.put_file(pipe, c, rules);
            self.syscall_return(free_at + put);
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
