//! AF_UNIX stream sockets.
//!
//! *What.* A send puts one buffer on the peer's queue and wakes it; it blocks while the sender's
//! buffer memory is used up. A receive takes data off the queue and wakes the sender when enough
//! memory is free.
//! *Source.* Linux 6.1.192 and 6.12.117, net/unix/af_unix.c.
//! *Equations.* A message of n bytes is charged 512·⌈(n + 320)/512⌉ + 256 bytes; sending blocks at
//! 212,992 or more charged bytes and goes on when four times the charge is at most that. A buffer
//! has left the sender's L2 cache if its CPU has sent more bytes since than that holds; receiving
//! it takes `unix_cold` longer, `unix_far` if those are 73 MiB or more, and in between as the
//! logarithm of their number is: `vruntime calibrate` measures 20 and 400 sockets of 250 messages.
//! *Departures.* D1: a receive takes from one buffer only. D2: the queue lock is one line that
//! moves; holding it is not waited for. D3: nothing but buffers pushes buffers out, and a reader
//! on another CPU fetches them at no further cost. D4: what the next sender waits for the memory
//! of a cold buffer is paid with its receive.
//! *Example.* 100-byte messages: the 279th blocks, and sending goes on when 69 are left. They are
//! charged 768 bytes, so 1,365 of them, on five sockets, fill an L2 of 1 MiB.

use crate::frame::Frame;
use crate::program::{ChannelId, Op};
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use crate::wait::WaitQueue;
use std::collections::VecDeque;
use vruntime_base::{Cpu, Func, Resource, TaskId};
use vruntime_machine::Costs;
use vruntime_sched::task::TaskState;

/// net.core.wmem_default.
const SNDBUF: u32 = 212_992;

/// What one send put on the queue.
#[derive(Clone, Copy, Debug)]
struct Buffer {
    /// Bytes that nobody has received yet.
    left: u32,
    /// What it is charged.
    charge: u32,
    /// By whom.
    sender: Cpu,
    /// What that CPU had sent before, KiB, modulo 2³².
    sent_kib: u32,
}

/// Charged bytes that a CPU has sent, in KiB, modulo 2³².
fn kib(sent: u64) -> u32 {
    (sent >> 10) as u32
}

/// One direction of a socket pair.
#[derive(Debug)]
pub struct UnixSock {
    /// Receivers that wait.
    pub rd_wait: WaitQueue,
    /// Senders that wait.
    pub wr_wait: WaitQueue,
    queue: VecDeque<Buffer>,
    charged: u32,
    last_cpu: Cpu,
    /// Progress group; `u16::MAX` for none.
    pub group: u16,
}

impl UnixSock {
    /// An empty queue.
    pub fn new(group: u16) -> UnixSock {
        UnixSock {
            rd_wait: WaitQueue::default(),
            wr_wait: WaitQueue::default(),
            queue: VecDeque::new(),
            charged: 0,
            last_cpu: Cpu::NONE,
            group,
        }
    }
    /// No data.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// A send has to wait.
    pub fn is_full(&self) -> bool {
        self.charged >= SNDBUF
    }
    /// Waiting senders are woken (`unix_writable`).
    fn is_writable(&self) -> bool {
        self.charged * 4 <= SNDBUF
    }
    /// Puts `n` bytes on the queue; `sent` is what `sender` has sent so far, charged bytes.
    pub fn send(&mut self, n: u32, sender: Cpu, sent: &mut u64) {
        let charge = 512 * (n + 320).div_ceil(512) + 256;
        self.queue.push_back(Buffer { left: n, charge, sender, sent_kib: kib(*sent) });
        self.charged += charge;
        *sent += u64::from(charge);
    }
    /// Takes up to `n` bytes off; true if a buffer was freed.
    pub fn receive(&mut self, n: u32) -> (u32, bool) {
        let Some(front) = self.queue.front_mut() else { return (0, false) };
        let got = n.min(front.left);
        front.left -= got;
        if front.left > 0 {
            return (got, false);
        }
        self.charged -= front.charge;
        self.queue.pop_front();
        (got, true)
    }
    /// KiB that the sender of the next buffer has sent since; `sent` is what a CPU has sent by now.
    fn kib_since(&self, sent: impl Fn(Cpu) -> u64) -> u32 {
        self.queue.front().map_or(0, |b| kib(sent(b.sender)).wrapping_sub(b.sent_kib))
    }
}

/// KiB in the buffers of 20 and of 400 sockets with 250 messages of 100 bytes: between these the
/// cost goes from `unix_cold` to `unix_far`.
const COLD_KIB: u32 = 3_750;
const FAR_KIB: u32 = 75_000;

/// What it takes more to receive a buffer since which its CPU has sent `since` KiB.
fn cold(costs: &Costs, l2_kib: u32, since: u32) -> u32 {
    if since <= l2_kib {
        return 0;
    }
    let way = log2(since.clamp(COLD_KIB, FAR_KIB)) - log2(COLD_KIB);
    let more = costs.unix_far.saturating_sub(costs.unix_cold);
    costs.unix_cold + more * way / (log2(FAR_KIB) - log2(COLD_KIB))
}

/// log2 of up to 2²² in 1024ths, linear between powers of two.
const fn log2(x: u32) -> u32 {
    let whole = x.ilog2();
    (whole << 10) + (x << 10 >> whole) - 1024
}

fn unix_sock(channels: &mut [Channel], ch: ChannelId) -> &mut UnixSock {
    match &mut channels[ch.ix()] {
        Channel::Unix(s) => s,
        Channel::Pipe(_) => unreachable!("a pipe used as a socket"),
    }
}

impl Sim {
    fn sock(&mut self, ch: ChannelId) -> &mut UnixSock {
        unix_sock(&mut self.channels, ch)
    }

    /// A send or receive begins.
    pub(crate) fn socket_begin(&mut self, c: Cpu, p: TaskId, ch: ChannelId) {
        let last = self.sock(ch).last_cpu;
        let move_line = self.transfer(last, c);
        self.sock(ch).last_cpu = c;
        match self.tasks[p.ix()].op {
            Op::Write { .. } => {
                if self.sock(ch).is_full() {
                    self.socket_wait(c, p, ch, false);
                    return;
                }
                let at = self.now + self.waited(c, Func::UnixSend, Resource::Socket, move_line);
                let at = at + self.work(c, Func::UnixSend, self.machine.costs.unix_send);
                self.tasks[p.ix()].step = Step::SocketSent;
                self.cpus[c.ix()].func = Func::UnixSend;
                self.plan(c, at, Frame::Task);
            }
            _ => {
                if self.sock(ch).is_empty() {
                    self.socket_wait(c, p, ch, true);
                    return;
                }
                let costs = &self.machine.costs;
                let (cpus, l2_kib) = (&self.cpus, self.machine.caches.l2_kib);
                let sock = unix_sock(&mut self.channels, ch);
                let since = sock.kib_since(|by| cpus[by.ix()].socket_bytes);
                let ns = costs.unix_recv + cold(costs, l2_kib, since);
                let at = self.now + self.waited(c, Func::UnixRecv, Resource::Socket, move_line);
                let at = at + self.work(c, Func::UnixRecv, ns);
                self.tasks[p.ix()].step = Step::SocketReceived;
                self.cpus[c.ix()].func = Func::UnixRecv;
                self.plan(c, at, Frame::Task);
            }
        }
    }

    fn socket_wait(&mut self, c: Cpu, p: TaskId, ch: ChannelId, reader: bool) {
        let at = self.now + self.work(c, Func::WaitQueue, self.machine.costs.pipe_wait);
        let tasks = &mut self.tasks;
        let Channel::Unix(s) = &mut self.channels[ch.ix()] else { return };
        let queue = if reader { &mut s.rd_wait } else { &mut s.wr_wait };
        queue.add(tasks, p, false);
        self.tasks[p.ix()].waits_for = if reader { WaitsFor::Data(ch) } else { WaitsFor::Room(ch) };
        self.block(c, p, at, Step::Begin, TaskState::Interruptible);
    }

    /// The message is on the queue: wake a receiver.
    pub(crate) fn socket_sent(&mut self, c: Cpu, p: TaskId) {
        let Op::Write { to: ch, bytes } = self.tasks[p.ix()].op else { return };
        let sent = &mut self.cpus[c.ix()].socket_bytes;
        unix_sock(&mut self.channels, ch).send(bytes, c, sent);
        let at = self.now + self.work(c, Func::UnixSend, self.machine.costs.unix_wake_check);
        self.wake_all(c, ch, true);
        if self.cpus[c.ix()].wakes.is_empty() {
            self.syscall_return(c, p, at);
            return;
        }
        self.tasks[p.ix()].step = Step::Woken;
        self.plan_wakes(c, at, Frame::Task);
    }

    /// Data was taken: wake senders if there is room again.
    pub(crate) fn socket_received(&mut self, c: Cpu, p: TaskId) {
        let Op::Read { from: ch, bytes } = self.tasks[p.ix()].op else { return };
        let now = self.now;
        let want = bytes - self.tasks[p.ix()].done;
        let (n, freed) = self.sock(ch).receive(want);
        if n == 0 {
            // Somebody else took it while this call was on its way.
            self.socket_wait(c, p, ch, true);
            return;
        }
        let k = &mut self.tasks[p.ix()];
        k.done += n;
        k.again = k.done < bytes;
        if k.done == bytes {
            let group = self.sock(ch).group;
            self.stats.message(group, now);
        }
        if freed && self.sock(ch).is_writable() {
            self.wake_all(c, ch, false);
        }
        if self.cpus[c.ix()].wakes.is_empty() {
            self.syscall_return(c, p, now);
            return;
        }
        self.tasks[p.ix()].step = Step::Woken;
        self.plan_wakes(c, now, Frame::Task);
    }

    fn wake_all(&mut self, c: Cpu, ch: ChannelId, readers: bool) {
        let tasks = &mut self.tasks;
        let Channel::Unix(s) = &mut self.channels[ch.ix()] else { return };
        let queue = if readers { &mut s.rd_wait } else { &mut s.wr_wait };
        while let Some(w) = queue.pop(tasks) {
            self.cpus[c.ix()].wakes.push_back((w, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_after_278_messages_resumes_at_69() {
        let mut s = UnixSock::new(0);
        let (mut n, mut sent) = (0, 0);
        while !s.is_full() {
            s.send(100, Cpu(0), &mut sent);
            n += 1;
        }
        assert_eq!(n, 278);
        while !s.is_writable() {
            assert_eq!(s.receive(100), (100, true));
            n -= 1;
        }
        assert_eq!((n, sent), (69, 278 * 768));
    }

    /// 1,366 messages of 768 bytes are 1,024.5 KiB, 1,367 are 1,025.25: a whole KiB beyond 1 MiB.
    #[test]
    fn a_buffer_is_cold_after_a_cache_of_others() {
        let (mut first, mut others) = (UnixSock::new(0), UnixSock::new(0));
        // Stamps wrap around.
        let mut sent = ((1 << 32) - 4) << 10;
        first.send(100, Cpu(3), &mut sent);
        for n in 2..=1_368 {
            others.send(100, Cpu(3), &mut sent);
            let since = first.kib_since(|c| if c == Cpu(3) { sent } else { 0 });
            let costs = Costs { unix_cold: 1, ..Costs::FREE };
            assert_eq!(cold(&costs, 1024, since) == 1, n >= 1_367, "after {n}");
        }
    }

    /// 400 sockets have 20 times the bytes of 20, so 80 are 32 % and 160 55 % of the way.
    #[test]
    fn farther_buffers_take_longer_by_the_logarithm() {
        let costs = Costs { unix_cold: 200, unix_far: 1_200, ..Costs::FREE };
        let of = |sockets: u32| cold(&costs, 1024, sockets * COLD_KIB / 20);
        assert_eq!([2, 10, 20, 400, 1_000].map(of), [0, 200, 200, 1_200, 1_200]);
        for (sockets, want) in [(40, 431u32), (80, 663), (160, 894), (113, 778)] {
            assert!(of(sockets).abs_diff(want) < 25, "{sockets}: {}, not {want}", of(sockets));
        }
        // A draw may turn the two round.
        assert_eq!(cold(&Costs { unix_cold: 9, unix_far: 4, ..Costs::FREE }, 1024, 60_000), 9);
    }
}
