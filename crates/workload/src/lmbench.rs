//! Latencies of lmbench: a token goes back and forth between two processes.
//!
//! *What.* `lat_pipe` and `lat_unix`: main forks a child; main writes a byte and reads the child's
//! answer, again and again. With `-P N` there are N such pairs at once, each of its own process.
//! *Source.* lmbench 3, lat_pipe.c, lat_unix.c, lib_timing.c (from memory).
//! *Equations.* Printed latency = time / round trips of a pair.
//! *Departures.* D1: the tool chooses how many round trips make a measurement so that it lasts
//! long enough, and prints the median of N; here a repetition is [`ROUND_TRIPS`], and it prints the
//! mean.
//! D2: no warm-up: the run has its own, and the time begins before pairs are forked, which the tool
//! waits for first: with many pairs and the default -N (1 in the tool if there is more than one
//! pair, 11 here) that is 10 to 20 % too much; a window after the forks has none of it. D3: making
//! pipes and sockets takes no time.
//! *Example.* `lat_pipe -N 1`: 1,000 times write, read in main, read, write in the child.

use crate::args::Args;
use crate::{Entry, Launch, WorkloadError};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;

pub(crate) const ENTRIES: &[Entry] = &[PIPE, UNIX];

const PIPE: Entry = Entry {
    name: "lat_pipe",
    synopsis: "lat_pipe [-P PAIRS] [-N REPETITIONS]",
    description: "pairs that pass a byte back and forth over pipes (lmbench)",
    parse: |words, launch| parse(&PIPE, ChannelKind::Pipe, words, launch),
};

const UNIX: Entry = Entry {
    name: "lat_unix",
    synopsis: "lat_unix [-P PAIRS] [-N REPETITIONS]",
    description: "pairs that pass a byte back and forth over AF_UNIX sockets (lmbench)",
    parse: |words, launch| parse(&UNIX, ChannelKind::UnixStream, words, launch),
};

/// Round trips in a repetition.
const ROUND_TRIPS: u32 = 1_000;
/// Cache that one of the processes uses over and over (estimate).
const FOOTPRINT_KIB: u16 = 4;

struct Latency {
    entry: &'static Entry,
    kind: ChannelKind,
    pairs: u32,
    repetitions: u32,
    launch: Launch,
}

fn parse(
    entry: &'static Entry,
    kind: ChannelKind,
    words: &[String],
    launch: Launch,
) -> Result<Arc<dyn Workload>, WorkloadError> {
    let mut l = Latency { entry, kind, pairs: 1, repetitions: 11, launch };
    let mut args = Args::new(entry.name, entry.synopsis, &["-P", "-N"], words);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-P" => l.pairs = args.number(&o, 1, 50_000)? as u32,
            "-N" => l.repetitions = args.number(&o, 1, 1_000_000)? as u32,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(Arc::new(l))
}

impl Latency {
    fn round_trips(&self) -> u32 {
        self.repetitions * ROUND_TRIPS
    }
}

/// One side of pair `k`, whose channels are `first + 2 k` there and `first + 2 k + 1` back.
/// `i`: round trips done; `j`: the next operation is the second of a round trip.
#[derive(Clone, Copy)]
struct Side {
    first: ChannelId,
    round_trips: u32,
    answers: bool,
    child: ProgramId,
}

impl Program for Side {
    fn next(&self, r: &mut Regs) -> Op {
        if !self.answers && r.pc == 0 {
            r.pc = 1;
            let regs = Regs { k: r.k, group: r.group, ..Regs::default() };
            return Op::Fork { program: self.child, regs, thread: false };
        }
        if r.i == self.round_trips {
            r.pc += 1;
            return if !self.answers && r.pc == 2 { Op::WaitChildren } else { Op::Exit };
        }
        let (there, back) = (self.first.0 + 2 * r.k, self.first.0 + 2 * r.k + 1);
        let (read, write) = if self.answers { (there, back) } else { (back, there) };
        let reads = (r.j == 0) == self.answers;
        r.j = 1 - r.j;
        r.i += u32::from(r.j == 0);
        if reads {
            Op::Read { from: ChannelId(read), bytes: 1 }
        } else {
            Op::Write { to: ChannelId(write), bytes: 1 }
        }
    }
}

/// Starts the pairs and waits for them.
struct Main {
    pairs: u32,
    side: ProgramId,
}

impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        r.i += 1;
        match r.i - 1 {
            0 => Op::MarkStart,
            n if n <= self.pairs => {
                let regs = Regs { k: n - 1, ..Regs::default() };
                Op::Fork { program: self.side, regs, thread: false }
            }
            n => match n - self.pairs {
                1 => Op::WaitChildren,
                2 => Op::MarkStop,
                _ => Op::Exit,
            },
        }
    }
}

impl Workload for Latency {
    fn command_line(&self) -> String {
        let (prefix, name) = (self.launch.prefix(), self.entry.name);
        format!("{prefix}{name} -P {} -N {}", self.pairs, self.repetitions)
    }
    fn comm(&self) -> &'static str {
        self.entry.name
    }
    fn description(&self) -> &'static str {
        self.entry.description
    }
    fn build(&self, b: &mut Builder) {
        let goal = 2 * u64::from(self.round_trips());
        let mut first = ChannelId::NONE;
        for pair in 0..self.pairs {
            let group = Some(b.progress_group(goal));
            let there = b.channel(self.kind, group);
            b.channel(self.kind, group);
            if pair == 0 {
                first = there;
            }
        }
        let side =
            Side { first, round_trips: self.round_trips(), answers: true, child: ProgramId(0) };
        let child = b.program(side);
        let side = b.program(Side { answers: false, child, ..side });
        let main = b.program(Main { pairs: self.pairs, side });
        b.root(main, Regs::default(), self.launch.root(FOOTPRINT_KIB));
    }
    fn result(&self, time: Ns) -> String {
        let name = match self.kind {
            ChannelKind::Pipe => "Pipe latency",
            ChannelKind::UnixStream => "AF_UNIX sock stream latency",
        };
        let tenths = time.0 * 10 / u64::from(self.round_trips());
        format!("{name}: {}.{:04} microseconds\n", tenths / 10_000, tenths % 10_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::tests::steps;

    #[test]
    fn two_round_trips_of_the_second_pair() {
        let child =
            Side { first: ChannelId(0), round_trips: 2, answers: true, child: ProgramId(0) };
        let parent = Side { answers: false, ..child };
        let regs = Regs { k: 1, ..Regs::default() };
        let both = "read 2: 1, write 3: 1, read 2: 1, write 3: 1, Exit";
        assert_eq!(steps(&child, regs).join(", "), both);
        assert_eq!(
            steps(&parent, regs).join(", "),
            "fork 0 at 1, write 2: 1, read 3: 1, write 2: 1, read 3: 1, WaitChildren, Exit"
        );
    }

    #[test]
    fn command_lines_and_results() {
        let w = parse("nice -n 3 lat_pipe -P 4").unwrap();
        assert_eq!(w.command_line(), "nice -n 3 lat_pipe -P 4 -N 11");
        assert_eq!(w.comm(), "lat_pipe");
        assert_eq!(w.result(Ns(55_123_456)), "Pipe latency: 5.0112 microseconds\n");
        let w = parse("lat_unix -N 1").unwrap();
        assert_eq!(w.result(Ns(9_000_049)), "AF_UNIX sock stream latency: 9.0000 microseconds\n");
        assert!(parse("lat_pipe -P 0").err().unwrap().to_string().contains("from 1 to 50000"));
        assert!(parse("lat_pip").err().unwrap().to_string().contains("`lat_pipe`"));
    }
}
