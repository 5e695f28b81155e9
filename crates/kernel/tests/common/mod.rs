//! A small messaging workload for tests of the kernel alone: groups of senders and receivers, as
//! hackbench has them, without its start protocol.
use vruntime_base::Ns;
use vruntime_kernel::program::*;

/// Groups × fds senders and receivers.
#[derive(Clone)]
pub struct Messaging {
    pub groups: u32,
    pub fds: u32,
    pub loops: u32,
    pub bytes: u32,
    pub kind: ChannelKind,
}

struct Sender {
    first: u32,
    fds: u32,
    loops: u32,
    bytes: u32,
}
struct Receiver {
    messages: u32,
    bytes: u32,
}
struct Main {
    m: Messaging,
    sender: Vec<ProgramId>,
    receiver: ProgramId,
}

impl Program for Sender {
    fn next(&self, r: &mut Regs) -> Op {
        if r.i == self.loops {
            return Op::Exit;
        }
        let to = ChannelId(self.first + r.j);
        r.j += 1;
        if r.j == self.fds {
            r.j = 0;
            r.i += 1;
        }
        Op::Write { to, bytes: self.bytes }
    }
}
impl Program for Receiver {
    fn next(&self, r: &mut Regs) -> Op {
        if r.i == self.messages {
            return Op::Exit;
        }
        r.i += 1;
        Op::Read { from: ChannelId(r.k), bytes: self.bytes }
    }
}
impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        let per = 2 * self.m.fds;
        let n = r.i;
        r.i += 1;
        if n < per * self.m.groups {
            let (g, t) = (n / per, n % per);
            let program = if t < self.m.fds { self.receiver } else { self.sender[g as usize] };
            let k = g * self.m.fds + t % self.m.fds;
            return Op::Fork { program, regs: Regs { k, ..Regs::default() }, thread: true };
        }
        match n - per * self.m.groups {
            0 => Op::MarkStart,
            1 => Op::WaitChildren,
            2 => Op::MarkStop,
            _ => Op::Exit,
        }
    }
}
impl Workload for Messaging {
    fn command_line(&self) -> String {
        format!("messaging {} groups, {} fds, {} loops", self.groups, self.fds, self.loops)
    }
    fn comm(&self) -> &'static str {
        "messaging"
    }
    fn description(&self) -> &'static str {
        "senders and receivers"
    }
    fn build(&self, b: &mut Builder) {
        let mut sender = Vec::new();
        let messages = self.fds * self.loops;
        for g in 0..self.groups {
            let pg = b.progress_group(u64::from(self.fds) * u64::from(messages));
            for _ in 0..self.fds {
                b.channel(self.kind, Some(pg));
            }
            sender.push(b.program(Sender {
                first: g * self.fds,
                fds: self.fds,
                loops: self.loops,
                bytes: self.bytes,
            }));
        }
        let receiver = b.program(Receiver { messages, bytes: self.bytes });
        let main = b.program(Main { m: self.clone(), sender, receiver });
        b.root(main, Regs::default(), RootTask::default());
    }
    fn result(&self, t: Ns) -> String {
        t.to_string()
    }
}
