//! `perf bench sched messaging` and `perf bench sched pipe`.
//!
//! *Source.* facts/workloads.md 1, 2 (tools/perf/bench/sched-messaging.c, sched-pipe.c).

use crate::args::Args;
use crate::messaging::Messaging;
use crate::{Entry, Launch, WorkloadError};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;

pub(crate) const MESSAGING: Entry = Entry {
    name: "perf bench sched messaging",
    synopsis: "perf bench sched messaging [-p|--pipe] [-t|--thread] [-g|--group N] \
               [-l|--nr_loops N]",
    description: "senders and receivers, as hackbench (perf)",
    parse: parse_messaging,
};

pub(crate) const PIPE: Entry = Entry {
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
    fn description(&self) -> &'static str {
        MESSAGING.description
    }
    fn build(&self, b: &mut Builder) {
        self.0.build(b);
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

/// `k`: 0 reads pipe 1 then writes pipe 2; 1 writes pipe 1 then reads pipe 2.
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

struct PipeMain {
    side: ProgramId,
    threads: bool,
}

impl Program for PipeMain {
    fn next(&self, r: &mut Regs) -> Op {
        r.pc += 1;
        let child = |k| Op::Fork {
            program: self.side,
            regs: Regs { k, ..Regs::default() },
            thread: self.threads,
        };
        match r.pc {
            1 => Op::MarkStart,
            2 => child(0),
            3 => child(1),
            4 => Op::WaitChildren,
            5 => Op::MarkStop,
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
    fn description(&self) -> &'static str {
        PIPE.description
    }
    fn build(&self, b: &mut Builder) {
        let group = b.progress_group(2 * u64::from(self.loops));
        let first = b.channel(ChannelKind::Pipe, Some(group));
        let second = b.channel(ChannelKind::Pipe, Some(group));
        let side = b.program(Side { first, second, loops: self.loops });
        let main = b.program(PipeMain { side, threads: self.threads });
        b.root(main, Regs::default(), self.launch.root(4));
    }
    fn result(&self, time: Ns) -> String {
        let per_op = time.0 / u64::from(self.loops);
        let ops = (u128::from(self.loops) * 1_000_000_000 / u128::from(time.0.max(1))) as u64;
        format!(
            "# Running 'sched/pipe' benchmark:\n# Executed {} pipe operations between two {}\n\n     \
             Total time: {} [sec]\n\n       {}.{:06} usecs/op\n         {ops} ops/sec\n",
            self.loops,
            if self.threads { "threads" } else { "processes" },
            seconds(time),
            per_op / 1_000,
            per_op % 1_000 * 1_000
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use vruntime_base::Ns;

    #[test]
    fn results_as_perf_prints_them() {
        let w = parse("perf bench sched pipe -l 1000").unwrap();
        assert_eq!(w.command_line(), "perf bench sched pipe -l 1000");
        let text = w.result(Ns::from_us(5_123));
        assert!(text.contains("Total time: 0.005 [sec]"), "{text}");
        assert!(text.contains("5.123000 usecs/op"), "{text}");
        assert!(text.contains("195198 ops/sec"), "{text}");
        let w = parse("perf bench sched messaging -p -t -g 2").unwrap();
        assert!(w.result(Ns::from_ms(95)).contains("# 2 groups == 80 threads run"));
    }

    #[test]
    fn a_wrong_benchmark_names_the_nearest() {
        let e = parse("perf bench sched mesaging").err().unwrap().to_string();
        assert!(e.contains("did you mean `perf bench sched messaging`?"), "{e}");
        let e = parse("perf bench sched pipe -x").err().unwrap().to_string();
        assert!(e.contains("unknown option `-x`"), "{e}");
    }
}
