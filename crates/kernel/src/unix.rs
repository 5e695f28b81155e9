//! AF_UNIX stream sockets.
//!
//! *What.* A send puts one buffer on the peer's queue and wakes it; it blocks while the sender's
//! buffer memory is used up. A receive takes data off the queue and wakes the sender when enough
//! memory is free.
//! *Source.* Linux 6.1.192 and 6.12.117, net/unix/af_unix.c.
//! *Equations.* A buffer of up to 3,776 bytes is charged the power of two that holds them and 320
//! more, at least 512, and 256; up to 32,768 more lie in whole pages, and a longer message is
//! several buffers, each of which wakes. Sending one blocks at 212,992 or more charged bytes and
//! goes on when four times the charge is at most that. Bytes are copied in and out as those of
//! pipes are. What the sender's CPU has sent, received and run since pushes a buffer out of its L2
//! cache: receiving it takes `unix_cold` longer after two L2s of that (37 MiB, if those are more),
//! in proportion less after less, and more from there on, but not before 3.7 MiB, as the logarithm
//! is, up to `unix_far` at 73 MiB. `vruntime calibrate` measures 20 and 400 sockets of 250
//! messages.
//! *Departures.* D1: a receive takes from one buffer only: of a message of several it is called
//! again for each. D2: the queue lock is one line that
//! moves; holding it is not waited for. D3: a reader on another CPU fetches buffers at no further
//! cost; bytes that come through the same memory again are counted again. D4: what the next sender
//! waits for the memory of a cold buffer is paid with its receive.
//! *Example.* 100-byte messages: the 279th blocks, and sending goes on when 69 are left. They are
//! charged 768 bytes, so with an L2 of 1 MiB one is received `unix_cold` / 2 later after 1,365
//! others have been sent, or half of these sent and received.

use crate::cold::Passed;
use crate::frame::Frame;
use crate::program::{ChannelId, Op};
use crate::sim::{Channel, Sim};
use crate::task::{Step, WaitsFor};
use crate::variation::Knockout;
use crate::wait::WaitQueue;
use std::collections::VecDeque;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
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
    /// What had passed that CPU's caches before.
    since_kib: u32,
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
    /// Who counted the receivers' and the senders' file last.
    counted: [Cpu; 2],
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
            counted: [Cpu::NONE; 2],
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
    /// Puts `n` bytes on the queue; they pass the caches of `sender`.
    pub fn send(&mut self, n: u32, sender: Cpu, passed: &mut Passed) {
        let charge = truesize(n);
        self.queue.push_back(Buffer { left: n, charge, sender, since_kib: passed.kib() });
        self.charged += charge;
        passed.add(charge);
    }
    /// Takes up to `n` bytes off; true if a buffer was freed, which has passed the receiver's
    /// caches.
    pub fn receive(&mut self, n: u32, passed: &mut Passed) -> (u32, bool) {
        let Some(front) = self.queue.front_mut() else { return (0, false) };
        let got = n.min(front.left);
        front.left -= got;
        if front.left > 0 {
            return (got, false);
        }
        self.charged -= front.charge;
        passed.add(front.charge);
        self.queue.pop_front();
        (got, true)
    }
    /// Bytes that a receive of up to `n` gets.
    fn next_part(&self, n: u32) -> u32 {
        self.queue.front().map_or(0, |b| n.min(b.left))
    }
    /// KiB that have passed the sender of the next buffer since; `by` is a CPU's caches.
    fn kib_since(&self, by: impl Fn(Cpu) -> Passed) -> u32 {
        self.queue.front().map_or(0, |b| by(b.sender).since(b.since_kib))
    }
}

/// Bytes of a message that lie with the buffer's head (`SKB_MAX_HEAD`), and in pages beside it.
const HEAD: u32 = 3_776;
const PAGES: u32 = 32_768;
const PAGE: u32 = 4_096;

/// The longest buffer.
const LONGEST: u32 = HEAD + PAGES;

/// What a buffer of `n` bytes is charged with: it has a head in a power of two, `struct sk_buff` in
/// 256 bytes, and whole pages for what its head has no room for.
fn truesize(n: u32) -> u32 {
    let pages = n.saturating_sub(HEAD).next_multiple_of(PAGE);
    let head = n.saturating_sub(pages) + 320;
    pages + head.next_power_of_two().max(512) + 256
}

/// KiB in the buffers of 20 and of 400 sockets with 250 messages of 100 bytes.
const COLD_KIB: u32 = 3_750;
const FAR_KIB: u32 = 75_000;

/// What it takes more to receive a buffer since which `since` KiB have passed its sender's caches.
fn cold(costs: &Costs, l2_kib: u32, since: u32) -> u32 {
    let gone = l2_kib.saturating_mul(2).min(FAR_KIB / 2);
    let part = |of: u32, a: u32, b: u32| (u64::from(of) * u64::from(a) / u64::from(b)) as u32;
    if since < gone {
        return part(costs.unix_cold, since, gone);
    }
    let grows = gone.max(COLD_KIB);
    let way = log2(since.clamp(grows, FAR_KIB)) - log2(grows);
    let more = costs.unix_far.saturating_sub(costs.unix_cold);
    costs.unix_cold + part(more, way, log2(FAR_KIB) - log2(grows))
}

/// What receiving takes more in all, ns, where one CPU fills `sockets` with `each` messages of 100
/// bytes in turn and then drains them one after the other.
pub fn cold_when_drained(costs: &Costs, l2_kib: u32, sockets: usize, each: usize) -> u64 {
    let mut socks: Vec<UnixSock> = (0..sockets).map(|_| UnixSock::new(0)).collect();
    let (mut passed, mut total) = (Passed::default(), 0);
    for _ in 0..each {
        socks.iter_mut().for_each(|s| s.send(100, Cpu(0), &mut passed));
    }
    for s in &mut socks {
        for _ in 0..each {
            total += u64::from(cold(costs, l2_kib, s.kib_since(|_| passed)));
            s.receive(100, &mut passed);
        }
    }
    total
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
        let at = self.now + self.count_socket(c, p, ch, self.machine.costs.file_count);
        self.socket_from(c, p, ch, at);
    }

    /// It goes on: with the next buffer, or after a wait.
    pub(crate) fn socket_goes_on(&mut self, c: Cpu, p: TaskId) {
        let (Op::Write { to: ch, .. } | Op::Read { from: ch, .. }) = self.tasks[p.ix()].op else {
            return;
        };
        self.socket_from(c, p, ch, self.now);
    }

    /// `fget`, or `fput`, of a file that threads share: `ns` of work, and its line comes from
    /// whoever counted that end last.
    fn count_socket(&mut self, c: Cpu, p: TaskId, ch: ChannelId, ns: u32) -> Ns {
        let k = &self.tasks[p.ix()];
        if !k.multi_threaded || self.without.has(Knockout::FileCount) {
            return Ns::ZERO;
        }
        let end = usize::from(matches!(k.op, Op::Write { .. }));
        let from = std::mem::replace(&mut self.sock(ch).counted[end], c);
        let line = self.waited(c, Func::Fget, Resource::FileCount, self.transfer(from, c));
        line + self.work(c, Func::Fget, ns)
    }

    /// The lock and lines of the socket have come.
    fn socket_line(&mut self, c: Cpu, ch: ChannelId, func: Func) -> Ns {
        let last = std::mem::replace(&mut self.sock(ch).last_cpu, c);
        match self.without.has(Knockout::Socket) {
            true => Ns::ZERO,
            false => self.waited(c, func, Resource::Socket, self.transfer(last, c)),
        }
    }

    fn socket_from(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns) {
        match self.tasks[p.ix()].op {
            Op::Write { bytes, .. } => {
                let part = (bytes - self.tasks[p.ix()].done).min(LONGEST);
                let at = at + self.socket_line(c, ch, Func::UnixSend);
                if self.sock(ch).is_full() {
                    self.socket_wait(c, p, ch, at, false);
                    return;
                }
                let costs = &self.machine.costs;
                let pages = part.saturating_sub(HEAD).div_ceil(PAGE);
                let ns = costs.unix_send + costs.copy(part) + pages * costs.pipe_new_page;
                let at = at + self.work(c, Func::UnixSend, ns);
                self.tasks[p.ix()].step = Step::SocketSent;
                self.cpus[c.ix()].func = Func::UnixSend;
                self.plan(c, at, Frame::Task);
            }
            Op::Read { bytes, .. } => {
                let at = at + self.socket_line(c, ch, Func::UnixRecv);
                if self.sock(ch).is_empty() {
                    self.socket_wait(c, p, ch, at, true);
                    return;
                }
                let want = bytes - self.tasks[p.ix()].done;
                let costs = &self.machine.costs;
                let (cpus, l2_kib) = (&self.cpus, self.machine.caches.l2_kib);
                let sock = unix_sock(&mut self.channels, ch);
                let since = sock.kib_since(|by| cpus[by.ix()].passed);
                let copied = costs.copy(sock.next_part(want));
                let ns = costs.unix_recv + copied + cold(costs, l2_kib, since);
                let at = at + self.work(c, Func::UnixRecv, ns);
                self.tasks[p.ix()].step = Step::SocketReceived;
                self.cpus[c.ix()].func = Func::UnixRecv;
                self.plan(c, at, Frame::Task);
            }
            _ => unreachable!("a socket is read or written"),
        }
    }

    fn socket_wait(&mut self, c: Cpu, p: TaskId, ch: ChannelId, at: Ns, reader: bool) {
        let at = at + self.work(c, Func::WaitQueue, self.machine.costs.pipe_wait);
        let tasks = &mut self.tasks;
        let Channel::Unix(s) = &mut self.channels[ch.ix()] else { return };
        let queue = if reader { &mut s.rd_wait } else { &mut s.wr_wait };
        queue.add(tasks, p, false);
        self.tasks[p.ix()].waits_for = if reader { WaitsFor::Data(ch) } else { WaitsFor::Room(ch) };
        self.block(c, p, at, Step::SocketGoesOn, TaskState::Interruptible);
    }

    /// A buffer is on the queue: wake a receiver, and send the rest of the message.
    pub(crate) fn socket_sent(&mut self, c: Cpu, p: TaskId) {
        let Op::Write { to: ch, bytes } = self.tasks[p.ix()].op else { return };
        let k = &mut self.tasks[p.ix()];
        let part = (bytes - k.done).min(LONGEST);
        k.done += part;
        k.step = if k.done < bytes { Step::SocketGoesOn } else { Step::Woken };
        let passed = &mut self.cpus[c.ix()].passed;
        unix_sock(&mut self.channels, ch).send(part, c, passed);
        let mut at = self.now + self.work(c, Func::UnixSend, self.machine.costs.unix_wake_check);
        if self.tasks[p.ix()].step == Step::Woken {
            at += self.count_socket(c, p, ch, 0);
        }
        self.wake_all(c, ch, true);
        match (self.cpus[c.ix()].wakes.is_empty(), self.tasks[p.ix()].step) {
            (true, Step::Woken) => self.syscall_return(c, p, at),
            (true, _) => self.plan(c, at, Frame::Task),
            (false, _) => self.plan_wakes(c, at, Frame::Task),
        }
    }

    /// Data was taken: wake senders if there is room again.
    pub(crate) fn socket_received(&mut self, c: Cpu, p: TaskId) {
        let Op::Read { from: ch, bytes } = self.tasks[p.ix()].op else { return };
        let mut at = self.now;
        let want = bytes - self.tasks[p.ix()].done;
        let passed = &mut self.cpus[c.ix()].passed;
        let (n, freed) = unix_sock(&mut self.channels, ch).receive(want, passed);
        if n == 0 {
            // Somebody else took it while this call was on its way.
            self.socket_wait(c, p, ch, self.now, true);
            return;
        }
        let k = &mut self.tasks[p.ix()];
        k.done += n;
        k.again = k.done < bytes;
        if k.done == bytes {
            let group = self.sock(ch).group;
            self.stats.message(group, at);
        }
        at += self.count_socket(c, p, ch, 0);
        if freed && self.sock(ch).is_writable() {
            self.wake_all(c, ch, false);
        }
        if self.cpus[c.ix()].wakes.is_empty() {
            self.syscall_return(c, p, at);
            return;
        }
        self.tasks[p.ix()].step = Step::Woken;
        self.plan_wakes(c, at, Frame::Task);
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
    use crate::sample::{PIPE, sim, sim_on, uma_8};

    /// A reader that finds nothing has looked: the line that it looked at has come to its CPU.
    #[test]
    fn who_blocks_has_fetched_the_line_too() {
        let blocks_at = |last: Cpu| {
            let mut s = sim("v6.1");
            let (c, p) = (Cpu(0), TaskId(s.tasks.len() as u32 - 1));
            s.channels[PIPE.ix()] = Channel::Unix(UnixSock { last_cpu: last, ..UnixSock::new(0) });
            s.sh.rqs[c.ix()].curr = p;
            s.tasks[p.ix()].op = Op::Read { from: PIPE, bytes: 100 };
            s.socket_begin(c, p, PIPE);
            assert_eq!((s.cpus[c.ix()].frames[0], s.sock(PIPE).last_cpu), (Frame::Schedule, c));
            (s.cpus[c.ix()].op_end, s.transfer(Cpu(1), c))
        };
        let ((here, way), (away, _)) = (blocks_at(Cpu(0)), blocks_at(Cpu(1)));
        assert!(way > Ns::ZERO && away == here + way, "{here:?} {away:?}");
    }

    /// What SIOCOUTQ told of one message of so many bytes, Linux 6.18.
    #[test]
    fn a_message_is_charged_what_its_buffers_take() {
        for (bytes, charge) in [
            (1, 768),
            (100, 768),
            (704, 1_280),
            (1_000, 2_304),
            (2_000, 4_352),
            (3_000, 4_352),
            (4_096, 4_864),
            (10_000, 12_544),
        ] {
            assert_eq!(truesize(bytes), charge, "{bytes}");
        }
        assert_eq!(truesize(LONGEST), 32_768 + 4_096 + 256);
    }

    /// 100,000 bytes are two buffers of 36,544 and one of 26,912; the message is sent after the
    /// third.
    #[test]
    fn a_long_message_is_sent_buffer_by_buffer() {
        let mut s = sim("v6.1");
        let (c, p) = (Cpu(0), TaskId(s.tasks.len() as u32 - 1));
        s.channels[PIPE.ix()] = Channel::Unix(UnixSock::new(0));
        s.sh.rqs[c.ix()].curr = p;
        s.tasks[p.ix()].op = Op::Write { to: PIPE, bytes: 100_000 };
        let mut ends = vec![];
        for sent in [36_544, 73_088, 100_000] {
            s.socket_begin(c, p, PIPE);
            ends.push(s.cpus[c.ix()].op_end.0);
            s.socket_sent(c, p);
            let queued: u32 = s.sock(PIPE).queue.iter().map(|b| b.left).sum();
            // After the last the next message begins.
            let done = if sent < 100_000 { sent } else { 0 };
            assert_eq!((queued, s.tasks[p.ix()].done), (sent, done));
        }
        assert!(ends[0] == ends[1] && ends[2] < ends[1], "{ends:?}");
    }

    #[test]
    fn blocks_after_278_messages_resumes_at_69() {
        let mut s = UnixSock::new(0);
        let (mut passed, mut n) = (Passed::default(), 0);
        while !s.is_full() {
            s.send(100, Cpu(0), &mut passed);
            n += 1;
        }
        assert_eq!(n, 278);
        while !s.is_writable() {
            assert_eq!(s.receive(100, &mut passed), (100, true));
            n -= 1;
        }
        // Each of 278 was sent, and 209 of them received.
        assert_eq!((n, passed.kib()), (69, (278 + 209) * 768 / 1024));
    }

    /// Two senders wait for room, and the 209th receive leaves 69 messages: it wakes both. After
    /// that only a receive that frees a buffer looks at the senders, one of half of it does not.
    #[test]
    fn the_209th_receive_wakes_all_senders() {
        let mut s = sim_on(uma_8(), "v6.1", 3);
        let n = s.tasks.len() as u32;
        let [first, second, reader] = [n - 3, n - 2, n - 1].map(TaskId);
        let mut sock = UnixSock::new(0);
        (0..278).for_each(|_| sock.send(100, Cpu(1), &mut Passed::default()));
        s.channels[PIPE.ix()] = Channel::Unix(sock);
        for (c, p) in [(Cpu(1), first), (Cpu(2), second)] {
            s.tasks[p.ix()].op = Op::Write { to: PIPE, bytes: 100 };
            s.socket_begin(c, p, PIPE);
            assert_eq!(s.tasks[p.ix()].waits_for, WaitsFor::Room(PIPE));
        }
        let c = Cpu(0);
        s.sh.rqs[c.ix()].curr = reader;
        let mut woken_by = |bytes: u32, waits: Option<TaskId>| {
            if let Some(p) = waits {
                unix_sock(&mut s.channels, PIPE).wr_wait.add(&mut s.tasks, p, false);
            }
            let k = &mut s.tasks[reader.ix()];
            (k.op, k.done) = (Op::Read { from: PIPE, bytes }, 0);
            s.socket_received(c, reader);
            s.cpus[c.ix()].wakes.drain(..).map(|w| w.0).collect::<Vec<_>>()
        };
        for i in 1..=208 {
            assert_eq!(woken_by(100, None), [], "receive {i}");
        }
        assert_eq!(woken_by(100, None), [second, first]);
        assert_eq!(woken_by(50, Some(first)), []);
        assert_eq!(woken_by(50, None), [first]);
    }

    /// 1,365 messages of 768 bytes are 1,023.75 KiB. Half as many do it that are received as well,
    /// and those of another CPU do nothing.
    #[test]
    fn a_buffer_cools_with_what_passes_its_sender() {
        let costs = Costs { unix_cold: 1_000, ..Costs::FREE };
        for received in [false, true] {
            let (mut first, mut others) = (UnixSock::new(0), UnixSock::new(0));
            let mut passed = Passed::default();
            // Stamps wrap around.
            passed.add_kib(u32::MAX - 2);
            let mut elsewhere = Passed::default();
            first.send(100, Cpu(3), &mut passed);
            for _ in 0..if received { 682 } else { 1_364 } {
                others.send(100, Cpu(3), &mut passed);
                if received {
                    others.receive(100, &mut passed);
                }
                others.send(100, Cpu(4), &mut elsewhere);
            }
            let since = first.kib_since(|c| if c == Cpu(3) { passed } else { elsewhere });
            assert_eq!(since, 1_023);
            assert_eq!(cold(&costs, 1024, since), 499);
            assert_eq!(cold(&costs, 512, since), 999);
        }
    }

    /// 20 sockets are 3,750 KiB, 400 are 20 times as many, so 80 are 32 % and 160 55 % of the way.
    #[test]
    fn farther_buffers_take_longer_by_the_logarithm() {
        let costs = Costs { unix_cold: 200, unix_far: 1_200, ..Costs::FREE };
        let of = |sockets: u32| cold(&costs, 1024, sockets * COLD_KIB / 20);
        assert_eq!([0, 1, 2, 5, 20, 400, 1_000].map(of), [0, 18, 36, 91, 200, 1_200, 1_200]);
        for (sockets, want) in [(40, 431u32), (80, 663), (160, 894), (113, 778)] {
            assert!(of(sockets).abs_diff(want) < 25, "{sockets}: {}, not {want}", of(sockets));
        }
        // An L2 of 3.7 MiB: gone after 40 sockets, and from there on it grows.
        let of = |n| cold(&costs, COLD_KIB, n * COLD_KIB / 20);
        assert_eq!([10, 20, 40, 400, 1_000].map(of), [50, 100, 200, 1_200, 1_200]);
        // One that holds more than was measured.
        assert_eq!(
            [0, FAR_KIB / 4, FAR_KIB].map(|kib| cold(&costs, 1 << 20, kib)),
            [0, 100, 1_200]
        );
        // A draw may turn the two round.
        assert_eq!(cold(&Costs { unix_cold: 9, unix_far: 4, ..Costs::FREE }, 1024, 60_000), 9);
    }

    /// What passes between a send and its receive lies anywhere between nothing and twice what the
    /// sockets hold, spread as the sum of two dice: of a ramp up to that a sixth is lost.
    #[test]
    fn full_sockets_that_are_drained_in_turn() {
        let costs = Costs { unix_cold: 600, unix_far: 600, ..Costs::FREE };
        let of = |l2_kib, sockets: usize| {
            cold_when_drained(&costs, l2_kib, sockets, 250) / (250 * sockets as u64)
        };
        assert!(of(1875, 20).abs_diff(500) < 5, "{}", of(1875, 20));
        // A socket of its own: each message has 250 between its send and its receive, 187 KiB.
        assert!(of(1875, 1).abs_diff(600 * 187 / 3750) < 2, "{}", of(1875, 1));
        assert!(of(2048, 400) > 597, "{}", of(2048, 400));
    }
}
