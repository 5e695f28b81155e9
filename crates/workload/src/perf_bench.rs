//! `perf bench sched messaging` and `perf bench sched pipe`.
//!
//! *Source.* Linux tools/perf/bench: sched-messaging.c, sched-pipe.c; the output is that of perf
//! 6.1.
//! *Departures.* D1: making the two pipes of `pipe` takes no time.

use crate::args::Args;
use crate::messaging::Messaging;
use crate::{Entry, Launch, WorkloadError};
use std::collections::BTreeMap;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;

pub(crate) const ENTRIES: &[Entry] = &[MESSAGING, PIPE];

const MESSAGING: Entry = Entry {
    name: "perf bench sched messaging",
    synopsis: "perf bench [-f|--format default|simple] [-r|--repeat N] sched messaging \
               [-p|--pipe] [-t|--thread] [-g|--group N] [-l|--nr_loops N]",
    description: "senders and receivers, as hackbench (perf)",
    parse: parse_messaging,
};

const PIPE: Entry = Entry {
    name: "perf bench sched pipe",
    synopsis: "perf bench [-f|--format default|simple] [-r|--repeat N] sched pipe [-l|--loop N] \
               [-T|--threaded] [-G|--cgroups A,B]",
    description: "two tasks pass an integer to and fro over two pipes (perf)",
    parse: parse_pipe,
};

/// Options of all collections.
const COMMON: [&str; 4] = ["-f", "--format", "-r", "--repeat"];

/// The words with the options that stand between `perf bench` and the collection behind its name.
pub(crate) fn common_options_last(words: &[String]) -> Vec<String> {
    let is_bench = |w: &[String]| w[0].rsplit('/').next() == Some("perf") && w[1] == "bench";
    let mut words = words.to_vec();
    if words.len() < 2 || !is_bench(&words) {
        return words;
    }
    let rest = &words[2..];
    // An option is one word with its value, or two. Long ones may be cut short.
    let is_common = |w: &&String| {
        let name = w.split('=').next().unwrap_or(w);
        let long = name.len() > 2 && name.starts_with("--");
        COMMON.iter().any(|c| if long { c.starts_with(name) } else { w.starts_with(c) })
    };
    let mut n = 0;
    while let Some(w) = rest.get(n).filter(is_common) {
        let alone = if w.starts_with("--") { !w.contains('=') } else { w.len() == 2 };
        n += 1 + usize::from(alone);
    }
    let options = 2..(2 + n).min(words.len());
    let collection = words.len().min(options.end + 2) - options.end;
    words[2..options.end + collection].rotate_left(options.len());
    words
}

/// How perf prints a result (`--format`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Default,
    Simple,
}

impl Format {
    /// Takes an option of all collections. `--repeat` is for others than these.
    fn take(&mut self, option: &str, args: &mut Args) -> Result<(), WorkloadError> {
        if matches!(option, "-r" | "--repeat") {
            return args.number(option, 1, u64::from(u32::MAX)).map(drop);
        }
        let expected = "`default` or `simple`";
        *self = match args.text(option, expected)?.as_str() {
            "default" => Format::Default,
            "simple" => Format::Simple,
            other => return Err(args.bad(option, expected, &format!("`{other}`"))),
        };
        Ok(())
    }
    fn words(self) -> &'static str {
        match self {
            Format::Default => "perf bench",
            Format::Simple => "perf bench --format simple",
        }
    }
}

struct PerfMessaging {
    m: Messaging,
    format: Format,
}

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
    let mut format = Format::Default;
    let known = &[
        "-p",
        "--pipe",
        "-t",
        "--thread",
        "-g",
        "--group",
        "-l",
        "--nr_loops",
        "-f",
        "--format",
        "-r",
        "--repeat",
    ];
    let mut args = Args::new(MESSAGING.name, MESSAGING.synopsis, known, words);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-p" | "--pipe" => m.kind = ChannelKind::Pipe,
            "-t" | "--thread" => m.threads = true,
            "-g" | "--group" => m.groups = args.number(&o, 1, 25_000)? as u32,
            "-l" | "--nr_loops" => m.loops = args.number(&o, 1, 100_000_000)? as u32,
            common if COMMON.contains(&common) => format.take(common, &mut args)?,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(Arc::new(PerfMessaging { m, format }))
}

impl Workload for PerfMessaging {
    fn command_line(&self) -> String {
        let m = &self.m;
        format!(
            "{}{} sched messaging{}{} -g {} -l {}",
            m.launch.prefix(),
            self.format.words(),
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
        self.m.build(b);
    }
    fn shortened(&self, by: u32) -> Option<Shortened> {
        let (m, whole, part) = self.m.shortened(by);
        Some(Shortened { workload: Arc::new(PerfMessaging { m, ..*self }), whole, part })
    }
    fn result(&self, time: Ns) -> String {
        if self.format == Format::Simple {
            return seconds(time) + "\n";
        }
        let m = &self.m;
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
#[derive(Clone)]
struct PerfPipe {
    loops: u32,
    threads: bool,
    /// Paths of the control groups of the two.
    cgroups: Option<[String; 2]>,
    format: Format,
    launch: Launch,
}

fn parse_pipe(words: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
    let format = Format::Default;
    let mut p = PerfPipe { loops: 1_000_000, threads: false, cgroups: None, format, launch };
    let known = &[
        "-l",
        "--loop",
        "-T",
        "--threaded",
        "-G",
        "--cgroups",
        "-f",
        "--format",
        "-r",
        "--repeat",
    ];
    let others = &["-n", "--nonblocking"];
    let mut args = Args::new(PIPE.name, PIPE.synopsis, known, words).but_not(others);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-l" | "--loop" => p.loops = args.number(&o, 1, 1_000_000_000)? as u32,
            "-T" | "--threaded" => p.threads = true,
            "-G" | "--cgroups" => p.cgroups = Some(two_cgroups(&mut args, &o)?),
            common if COMMON.contains(&common) => p.format.take(common, &mut args)?,
            other => return Err(args.unknown(other)),
        }
    }
    Ok(Arc::new(p))
}

/// `A,B`, paths below the root.
fn two_cgroups(args: &mut Args, option: &str) -> Result<[String; 2], WorkloadError> {
    let expected = "two control groups, as in -G a,b or -G top/a,top/b";
    let text = args.text(option, expected)?;
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') => {
            Ok([a.into(), b.into()])
        }
        _ => Err(args.bad(option, expected, &format!("`{text}`"))),
    }
}

/// Makes the control groups of these paths, with those above them.
fn make_cgroups(b: &mut Builder, paths: &[String; 2]) -> [u16; 2] {
    let mut made: BTreeMap<String, u16> = BTreeMap::new();
    paths.each_ref().map(|path| {
        let (mut group, mut so_far) = (0, String::new());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            so_far = so_far + "/" + name;
            group = *made.entry(so_far.clone()).or_insert_with(|| b.task_group(group));
        }
        group
    })
}

/// `k`: 0 reads the first pipe, then writes the second; 1 writes the first, then reads the second.
/// Before that it joins its control group, if there are any (`group`: it has).
#[derive(Clone, Copy)]
struct Side {
    first: ChannelId,
    second: ChannelId,
    loops: u32,
    /// 0: none.
    cgroups: [u16; 2],
}

impl Program for Side {
    fn next(&self, r: &mut Regs) -> Op {
        let cgroup = self.cgroups[r.k as usize];
        if cgroup != 0 && r.group == 0 {
            r.group = 1;
            return Op::JoinGroup(cgroup);
        }
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
            "{}{} sched pipe -l {}{}{}",
            self.launch.prefix(),
            self.format.words(),
            self.loops,
            if self.threads { " --threaded" } else { "" },
            self.cgroups.as_ref().map_or(String::new(), |[a, b]| format!(" -G {a},{b}")),
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
        let cgroups = self.cgroups.as_ref().map_or([0, 0], |paths| make_cgroups(b, paths));
        let side = Side { first, second, loops: self.loops, cgroups };
        let code = b.program(side);
        let main = b.program(PipeMain { side, code, threads: self.threads });
        b.root(main, Regs::default(), self.launch.root(4));
    }
    fn shortened(&self, by: u32) -> Option<Shortened> {
        let part = crate::part_of(self.loops, by);
        let workload = Arc::new(PerfPipe { loops: part, ..self.clone() });
        Some(Shortened { workload, whole: self.loops, part })
    }
    fn result(&self, time: Ns) -> String {
        if self.format == Format::Simple {
            return seconds(time) + "\n";
        }
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

    /// `perf bench -f simple sched pipe -l 1001` of perf 6.1 prints seconds and nothing else.
    #[test]
    fn options_of_all_collections_stand_before_them() {
        for command in [
            "perf bench -f simple sched pipe -l 1001",
            "perf bench -fsimple -r 5 sched pipe -l 1001",
            "/usr/bin/perf bench --format=simple --repeat 5 sched pipe -l 1001",
        ] {
            let w = parse(command).unwrap();
            assert_eq!(w.command_line(), "perf bench --format simple sched pipe -l 1001");
            assert_eq!(w.result(Ns::from_us(6_927)), "0.006\n");
            assert_eq!(parse(&w.command_line()).unwrap().command_line(), w.command_line());
        }
        let w = parse("perf bench --format default sched messaging -p").unwrap();
        assert_eq!(w.command_line(), "perf bench sched messaging --pipe -g 10 -l 100");
        let wrong = |command| parse(command).err().unwrap().to_string();
        let e = wrong("perf bench -f json sched pipe");
        let expected = "perf bench sched pipe: -f: expected `default` or `simple`, found `json`";
        assert_eq!(e, expected);
        assert!(wrong("perf bench -r 0 sched pipe").contains("from 1"), "-r 0");
        let e = wrong("perf bench -q sched pipe");
        assert!(e.starts_with("no workload `perf bench -q sched`, did you mean"), "{e}");
        for command in ["perf bench -f", "perf bench -f simple", "perf bench", "perf", "perf -f"] {
            assert!(wrong(command).starts_with("no workload `perf"), "{command}");
        }
    }

    /// With processes main is one of the two sides; with threads it only waits.
    #[test]
    fn pipe_two_loops() {
        let cgroups = [0, 0];
        let side = Side { first: ChannelId(0), second: ChannelId(1), loops: 2, cgroups };
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

    /// Both sides join before the first message, each its own; what two paths share is made once.
    #[test]
    fn pipe_in_control_groups() {
        let w = parse("perf bench sched pipe -l 1 -G top/a,top/b").unwrap();
        assert_eq!(w.command_line(), "perf bench sched pipe -l 1 -G top/a,top/b");
        let mut b = Builder::default();
        let groups = make_cgroups(&mut b, &["top/a".into(), "/top/b/".into()]);
        assert_eq!((groups, b.task_group(0)), ([2, 3], 4));
        let side = Side { first: ChannelId(0), second: ChannelId(1), loops: 1, cgroups: groups };
        let one = Regs { k: 1, ..Regs::default() };
        assert_eq!(steps(&side, one).join(", "), "JoinGroup(3), write 0: 4, read 1: 4, Exit");
        for wrong in ["-G a", "-G a,", "-G a,b,c", "-G"] {
            let e = parse(&format!("perf bench sched pipe {wrong}")).err().unwrap().to_string();
            assert!(e.contains("-G: expected two control groups"), "{e}");
        }
    }

    #[test]
    fn a_wrong_benchmark_names_the_nearest() {
        let e = parse("perf bench sched mesaging").err().unwrap().to_string();
        assert!(e.contains("did you mean `perf bench sched messaging`?"), "{e}");
        let e = parse("perf bench sched pipe -x").err().unwrap().to_string();
        assert!(e.contains("unknown option `-x`"), "{e}");
    }
}
