//! Senders and receivers in groups: what hackbench and `perf bench sched messaging` do.
//!
//! *What.* Each group has n channels, n receivers (one a channel) and n senders (each writes to all
//! n channels in turn). Main makes a channel just before its receiver. Every task first writes a
//! byte to a common *ready* channel and polls a common *wake* channel; main reads all ready bytes,
//! takes the start time, writes one byte to *wake* – which nobody reads, so all pollers go on at
//! once – and waits for its children. With `--fifo` main is SCHED_FIFO from after the last fork on,
//! its children are not.
//! *Source.* hackbench.c of rt-tests; Linux tools/perf/bench/sched-messaging.c.
//! *Equations.* Messages = groups · n² · loops.
//! *Departures.* D1: the processes do not close the ends that they do not use.
//! *Example.* 1 group of 2 channels, 1 loop: main makes channel 0, R0, channel 1, R1, S0, S1; S0
//! writes to 0 and 1.

use crate::Launch;
use vruntime_kernel::program::*;
use vruntime_sched::task::Policy;

/// Bytes of cache that one of these tasks uses over and over: its stack, its message, its part of
/// the kernel stack (estimate).
const FOOTPRINT_KIB: u16 = 4;

/// Shape of the benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messaging {
    pub groups: u32,
    pub fds: u32,
    pub loops: u32,
    pub bytes: u32,
    pub kind: ChannelKind,
    pub threads: bool,
    /// Main makes itself SCHED_FIFO once its children are there; the children stay as they are.
    pub fifo: bool,
    pub launch: Launch,
}

impl Messaging {
    /// Tasks other than main.
    pub(crate) fn nr_tasks(&self) -> u64 {
        2 * u64::from(self.groups) * u64::from(self.fds)
    }

    /// The same with about one loop in `by`; the loops of the whole and its own.
    pub(crate) fn shortened(&self, by: u32) -> (Messaging, u32, u32) {
        let part = crate::part_of(self.loops, by);
        (Messaging { loops: part, ..*self }, self.loops, part)
    }

    /// Adds everything to `b`.
    pub(crate) fn build(&self, b: &mut Builder) {
        let ready = b.channel(self.kind, None);
        let wake = b.channel(self.kind, None);
        let per_receiver = u64::from(self.fds) * u64::from(self.loops);
        let mut first = ChannelId::NONE;
        for g in 0..self.groups {
            let group = b.progress_group(u64::from(self.fds) * per_receiver);
            for i in 0..self.fds {
                let ch = b.channel(self.kind, Some(group));
                if g == 0 && i == 0 {
                    first = ch;
                }
            }
        }
        let sender =
            b.program(Sender { ready, wake, fds: self.fds, loops: self.loops, bytes: self.bytes });
        let receiver =
            b.program(Receiver { ready, wake, messages: self.fds * self.loops, bytes: self.bytes });
        let main = b.program(Main { shape: *self, ready, wake, first, sender, receiver });
        b.root(main, Regs::default(), self.launch.root(FOOTPRINT_KIB));
    }
}

/// The first task. `i` counts children made, then ready bytes read; `j` is 1 when the next child
/// has its channel.
struct Main {
    shape: Messaging,
    ready: ChannelId,
    wake: ChannelId,
    first: ChannelId,
    sender: ProgramId,
    receiver: ProgramId,
}

impl Main {
    /// Makes child number `n`: its channel if it is a receiver, then itself.
    fn child(&self, r: &mut Regs, n: u32) -> Op {
        let fds = self.shape.fds;
        let (group, t) = (n / (2 * fds), n % (2 * fds));
        let channels = self.first.0 + group * fds;
        let mut regs = Regs { group: group as u16, ..Regs::default() };
        let program = if t < fds {
            regs.k = channels + t;
            if r.j == 0 {
                r.j = 1;
                return Op::Open(ChannelId(regs.k));
            }
            self.receiver
        } else {
            regs.k = channels;
            self.sender
        };
        r.j = 0;
        r.i += 1;
        Op::Fork { program, regs, thread: self.shape.threads }
    }
}

impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        let tasks = self.shape.nr_tasks() as u32;
        loop {
            let n = r.i;
            match r.pc {
                made @ (0 | 1) => {
                    r.pc += 1;
                    return Op::Open([self.ready, self.wake][usize::from(made)]);
                }
                2 | 4 if n == tasks => r.i = 0,
                2 => return self.child(r, n),
                3 if !self.shape.fifo => {}
                3 => {
                    r.pc += 1;
                    return Op::SetPolicy { policy: Policy::Fifo, prio: 1 };
                }
                4 => {
                    r.i += 1;
                    return Op::Read { from: self.ready, bytes: 1 };
                }
                end => {
                    r.pc += 1;
                    return match end {
                        5 => Op::MarkStart,
                        6 => Op::Write { to: self.wake, bytes: 1 },
                        7 => Op::WaitChildren,
                        8 => Op::MarkStop,
                        _ => Op::Exit,
                    };
                }
            }
            r.pc += 1;
        }
    }
}

/// What every child does first; `None` when it is through.
fn start(r: &mut Regs, ready: ChannelId, wake: ChannelId) -> Option<Op> {
    if r.pc == 2 {
        return None;
    }
    r.pc += 1;
    Some(if r.pc == 1 { Op::Write { to: ready, bytes: 1 } } else { Op::Poll(wake) })
}

/// `k`: first channel of the group; `i`: loops done; `j`: next channel.
struct Sender {
    ready: ChannelId,
    wake: ChannelId,
    fds: u32,
    loops: u32,
    bytes: u32,
}

impl Program for Sender {
    #[inline]
    fn next(&self, r: &mut Regs) -> Op {
        if let Some(op) = start(r, self.ready, self.wake) {
            return op;
        }
        if r.i == self.loops {
            return Op::Exit;
        }
        let to = ChannelId(r.k + r.j);
        r.j += 1;
        if r.j == self.fds {
            r.j = 0;
            r.i += 1;
        }
        Op::Write { to, bytes: self.bytes }
    }
}

/// `k`: its channel; `i`: messages read.
struct Receiver {
    ready: ChannelId,
    wake: ChannelId,
    messages: u32,
    bytes: u32,
}

impl Program for Receiver {
    #[inline]
    fn next(&self, r: &mut Regs) -> Op {
        if let Some(op) = start(r, self.ready, self.wake) {
            return op;
        }
        if r.i == self.messages {
            return Op::Exit;
        }
        r.i += 1;
        Op::Read { from: ChannelId(r.k), bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::steps;

    #[test]
    fn one_group_of_two() {
        let (ready, wake) = (ChannelId(0), ChannelId(1));
        let s = Sender { ready, wake, fds: 2, loops: 2, bytes: 100 };
        assert_eq!(
            steps(&s, Regs { k: 2, ..Regs::default() }),
            [
                "write 0: 1",
                "poll 1",
                "write 2: 100",
                "write 3: 100",
                "write 2: 100",
                "write 3: 100",
                "Exit"
            ]
        );
        let r = Receiver { ready, wake, messages: 4, bytes: 100 };
        assert_eq!(
            steps(&r, Regs { k: 3, ..Regs::default() }),
            [
                "write 0: 1",
                "poll 1",
                "read 3: 100",
                "read 3: 100",
                "read 3: 100",
                "read 3: 100",
                "Exit"
            ]
        );
    }

    #[test]
    fn main_makes_receivers_first_each_with_its_channel() {
        let shape = Messaging {
            groups: 1,
            fds: 2,
            loops: 1,
            bytes: 100,
            kind: ChannelKind::Pipe,
            threads: true,
            fifo: false,
            launch: Launch::default(),
        };
        let m = |fifo| Main {
            shape: Messaging { fifo, ..shape },
            ready: ChannelId(0),
            wake: ChannelId(1),
            first: ChannelId(2),
            sender: ProgramId(7),
            receiver: ProgramId(8),
        };
        let fifo = steps(&m(true), Regs::default());
        assert_eq!(
            fifo[7..10],
            ["fork 7 at 2", "SetPolicy { policy: Fifo, prio: 1 }", "read 0: 1"]
        );
        assert_eq!(
            steps(&m(false), Regs::default()),
            [
                "open 0",
                "open 1",
                "open 2",
                "fork 8 at 2",
                "open 3",
                "fork 8 at 3",
                "fork 7 at 2",
                "fork 7 at 2",
                "read 0: 1",
                "read 0: 1",
                "read 0: 1",
                "read 0: 1",
                "MarkStart",
                "write 1: 1",
                "WaitChildren",
                "MarkStop",
                "Exit"
            ]
        );
    }
}
