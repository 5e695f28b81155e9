//! `perf bench sched messaging` and `perf bench sched pipe`.
//!
//! *Source.* Linux tools/perf/bench: sched-messaging.c, sched-pipe.c; the output is that of perf
//! 6.1.

use crate::args::Args;
use crate::messaging::Messaging;
use crate::{Entry, Launch, WorkloadError};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;

pub(crate) const ENTRIES: &[Entry] = &[MESSAGING, PIPE];

const MESSAGING: Entry = Entry {
    name: "perf bench sched messaging",
    synopsis: "perf bench sched messaging [-p|--pipe] [-t|--thread] [-g|--group N] \
               [-l|--nr_loops N]",
    description: "senders and receivers, as hackbench (perf)",
    parse: parse_messaging,
};

const PIPE: Entry = Entry {
    name: "perf bench sched pipe",
    synopsis: "perf bench sched pipe [-l|--loop N] [-T|--threaded]",
    description: "two tasks pass an integer to and fro over two pipes (perf)",
    parse: parse_pipe,
};

struct PerfMessaging(Messaging);

fn parse_messaging(words: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
    let mut m = Messaging {
        groups: 10,
        fds: 20,
        loops: 100,
        bytes: 100,
        kind: ChannelKind::UnixStream,
        threads: false,
        fifo: false,
        launch,
    };
    let known = &["-p", "--pipe", "-t", "--thread", "-g", "--group", "-l", "--nr_loops"];
    let mut args = Args::new(MESSAGING.name, MESSAGING.synopsis, known, words);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-p" | "--pipe" => m.kind = ChannelKind::Pipe,
            "-t" | "--thread" => m.threads = true,
            "-g" | "--group" => m.groups = args.number(&o, 1, 25_000)? as u32,
            "-l" | "--nr_loops" => m.loops = args.number(&o, 1, 100_000_000)? as u32,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(Arc::new(PerfMessaging(m)))
}

impl Workload for PerfMessaging {
    fn command_line(&self) -> String {
        let m = &self.0;
        format!(
            "{}perf bench sched messaging{}{} -g {} -l {}",
            m.launch.prefix(),
            if m.kind == ChannelKind::Pipe { " --pipe" } else { "" },
            if m.threads { " --thread" } else { "" },
            m.groups,
            m.loops
        )
    }
    fn comm(&self) -> &'static str {
        "sched-messaging"
    }
    fn description(&self) -> &'static str {
        MESSAGING.description
    }
    fn build(&self, b: &mut Builder) {
        self.0.build(b);
    }
    fn shortened(&self, by: u32) -> Option<Shortened> {
        let (m, whole, part) = self.0.shortened(by);
        Some(Shortened { workload: Arc::new(PerfMessaging(m)), whole, part })
    }
    fn result(&self, time: Ns) -> String {
        let m = &self.0;
        let word = if m.threads { "threads" } else { "processes" };
        format!(
            "# Running 'sched/messaging' benchmark:\n# 20 sender and receiver {word} per group\n\
             # {} groups == {} {word} run\n\n     Total time: {} [sec]\n",
            m.groups,
            m.nr_tasks(),
            seconds(time)
        )
    }
}

/// Seconds with three digits, as perf prints them.
fn seconds(t: Ns) -> String {
    format!("{}.{:03}", t.0 / 1_000_000_000, t.0 / 1_000_000 % 1_000)
}

/// Two tasks, two pipes, 4 bytes.
struct PerfPipe {
    loops: u32,
    threads: bool,
    launch: Launch,
}

fn parse_pipe(words: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
    let mut p = PerfPipe { loops: 1_000_000, threads: false, launch };
    let known = &["-l", "--loop", "-T", "--threaded"];
    let mut args = Args::new(PIPE.name, PIPE.synopsis, known, words);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-l" | "--loop" => p.loops = args.number(&o, 1, 1_000_000_000)? as u32,
            "-T" | "--threaded" => p.threads = true,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(Arc::new(p))
}

/// `k`: 0 reads the first pipe, then writes the second; 1 writes the first, then reads the second.
#[derive(Clone, Copy)]
struct Side {
    first: ChannelId,
    second: ChannelId,
    loops: u32,
}

impl Program for Side {
    fn next(&self, r: &mut Regs) -> Op {
        if r.i == self.loops {
            return Op::Exit;
        }
        r.j += 1;
        let begins = r.j == 1;
        if !begins {
            r.j = 0;
            r.i += 1;
        }
        match (r.k, begins) {
            (0, true) => Op::Read { from: self.first, bytes: 4 },
            (0, false) => Op::Write { to: self.second, bytes: 4 },
            (_, true) => Op::Write { to: self.first, bytes: 4 },
            (_, false) => Op::Read { from: self.second, bytes: 4 },
        }
    }
}

/// The first task. With threads it makes both sides; with processes it makes side 0 and is side 1.
struct PipeMain {
    side: Side,
    code: ProgramId,
    threads: bool,
}

impl Program for PipeMain {
    fn next(&self, r: &mut Regs) -> Op {
        let child = |k| Op::Fork {
            program: self.code,
            regs: Regs { k, ..Regs::default() },
            thread: self.threads,
        };
        r.pc += 1;
        match (r.pc, self.threads) {
            (1, _) => Op::MarkStart,
            (2, _) => child(0),
            (3, true) => child(1),
            (3, false) => {
                r.k = 1;
                match self.side.next(r) {
                    Op::Exit => Op::WaitChildren,
                    op => {
                        r.pc -= 1;
                        op
                    }
                }
            }
            (4, true) => Op::WaitChildren,
            (4, false) | (5, true) => Op::MarkStop,
            _ => Op::Exit,
        }
    }
}

impl Workload for PerfPipe {
    fn command_line(&self) -> String {
        format!(
            "{}perf bench sched pipe -l {}{}",
            self.launch.prefix(),
            self.loops,
            if self.threads { " --threaded" } else { "" }
        )
    }
    fn comm(&self) -> &'static str {
        "sched-pipe"
    }
    fn description(&self) -> &'static str {
        PIPE.description
    }
    fn build(&self, b: &mut Builder) {
        let group = b.progress_group(2 * u64::from(self.loops));
        let first = b.channel(ChannelKind::Pipe, Some(group));
        let second = b.channel(ChannelKind::Pipe, Some(group));
        let side = Side { first, second, loops: self.loops };
        let code = b.program(side);
        let main = b.program(PipeMain { side, code, threads: self.threads });
        b.root(main, Regs::default(), self.launch.root(4));
    }
    fn shortened(&self, by: u32) -> Option<Shortened> {
        let part = crate::part_of(self.loops, by);
        let workload = Arc::new(PerfPipe { loops: part, ..*self });
        Some(Shortened { workload, whole: self.loops, part })
    }
    fn result(&self, time: Ns) -> String {
        // perf counts in whole microseconds and prints six digits of the quotient.
        let us = u128::from(time.0 / 1_000);
        let loops = u128::from(self.loops);
        let millionths = (us * 1_000_000 + loops / 2) / loops;
        let per_op = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        let per_second = loops * 1_000_000 / us.max(1);
        format!(
            "# Running 'sched/pipe' benchmark:\n\
             # Executed {} pipe operations between two {}\n\n     \
             Total time: {} [sec]\n\n {per_op:>14} usecs/op\n {per_second:>14} ops/sec\n",
            self.loops,
            if self.threads { "threads" } else { "processes" },
            seconds(time)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::tests::steps;

    /// Both texts are what perf 6.1.187 printed.
    #[test]
    fn results_as_perf_prints_them() {
        let w = parse("perf bench sched pipe -T -l 1001").unwrap();
        assert_eq!(w.command_line(), "perf bench sched pipe -l 1001 --threaded");
        assert_eq!(
            w.result(Ns::from_us(6_927)),
            "# Running 'sched/pipe' benchmark:\n\
             # Executed 1001 pipe operations between two threads\n\n     \
             Total time: 0.006 [sec]\n\n       \
             6.920080 usecs/op\n         144507 ops/sec\n"
        );
        let w = parse("perf bench sched messaging -p --thr --gr 1 --nr 10").unwrap();
        assert_eq!(w.command_line(), "perf bench sched messaging --pipe --thread -g 1 -l 10");
        assert_eq!(
            w.result(Ns::from_us(4_321)),
            "# Running 'sched/messaging' benchmark:\n# 20 sender and receiver threads per group\n\
             # 1 groups == 40 threads run\n\n     Total time: 0.004 [sec]\n"
        );
    }

    #[test]
    fn slow_pipes_stay_in_their_columns() {
        let w = parse("perf bench sched pipe -l 100").unwrap();
        let text = w.result(Ns::from_us(6_173));
        assert!(text.contains("\n      61.730000 usecs/op\n          16199 ops/sec\n"), "{text}");
    }

    /// With processes main is one of the two sides; with threads it only waits.
    #[test]
    fn pipe_two_loops() {
        let side = Side { first: ChannelId(0), second: ChannelId(1), loops: 2 };
        let main = |threads| {
            steps(&PipeMain { side, code: ProgramId(0), threads }, Regs::default()).join(", ")
        };
        let both = "read 0: 4, write 1: 4, read 0: 4, write 1: 4, Exit";
        assert_eq!(steps(&side, Regs::default()).join(", "), both);
        assert_eq!(
            main(false),
            "MarkStart, fork 0 at 0, write 0: 4, read 1: 4, write 0: 4, read 1: 4, WaitChildren, \
             MarkStop, Exit"
        );
        assert_eq!(main(true), "MarkStart, fork 0 at 0, fork 0 at 1, WaitChildren, MarkStop, Exit");
    }

    #[test]
    fn a_wrong_benchmark_names_the_nearest() {
        let e = parse("perf bench sched mesaging").err().unwrap().to_string();
        assert!(e.contains("did you mean `perf bench sched messaging`?"), "{e}");
        let e = parse("perf bench sched pipe -x").err().unwrap().to_string();
        assert!(e.contains("unknown option `-x`"), "{e}");
    }
}
