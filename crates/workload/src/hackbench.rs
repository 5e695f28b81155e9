//! hackbench of rt-tests: its options, its output.
//!
//! The old command line (`hackbench -pipe 60 process 100000`) is understood as well. Releases of
//! the tool disagree on `--process` and `--processes`; either is read.

use crate::args::Args;
use crate::messaging::Messaging;
use crate::{Entry, Launch, WorkloadError};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::{Builder, ChannelKind, Shortened, Workload};

pub(crate) const ENTRIES: &[Entry] = &[ENTRY];

const ENTRY: Entry = Entry {
    name: "hackbench",
    synopsis: "hackbench [-p|--pipe] [-P|--process | -T|--threads] [-g|--groups N] [-f|--fds N] \
               [-l|--loops N] [-s|--datasize BYTES] [-F|--fifo]",
    description: "groups of senders and receivers over pipes or sockets (rt-tests)",
    parse,
};

const OPTIONS: &[&str] = &[
    "-p",
    "--pipe",
    "-P",
    "--processes",
    "-T",
    "--threads",
    "-g",
    "--groups",
    "-f",
    "--fds",
    "-l",
    "--loops",
    "-s",
    "--datasize",
    "-F",
    "--fifo",
];

/// What rt-tests 2.40 has besides.
const OTHERS: &[&str] = &["-i", "--inet", "-h", "--help"];

/// The most tasks that a run may have.
pub(crate) const MAX_TASKS: u64 = 1_000_000;

struct Hackbench(Messaging);

fn parse(words: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
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
    // The old spelling has a long option with one dash.
    let words: Vec<String> =
        words.iter().map(|w| if w == "-pipe" { "--pipe".into() } else { w.clone() }).collect();
    let mut args = Args::new("hackbench", ENTRY.synopsis, OPTIONS, &words).but_not(OTHERS);
    let mut old_numbers = 0;
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-p" | "--pipe" => m.kind = ChannelKind::Pipe,
            "-P" | "--processes" | "process" => m.threads = false,
            "-T" | "--threads" | "thread" => m.threads = true,
            "-g" | "--groups" => m.groups = args.number(&o, 1, 65_000)? as u32,
            "-f" | "--fds" => m.fds = args.number(&o, 1, 1_000)? as u32,
            "-l" | "--loops" => m.loops = args.number(&o, 1, 1_000_000_000)? as u32,
            "-s" | "--datasize" => m.bytes = args.number(&o, 1, 1 << 20)? as u32,
            "-F" | "--fifo" => m.fifo = true,
            word if !word.starts_with('-') && old_numbers < 2 => {
                if old_numbers == 0 {
                    m.groups = args.check("groups", word, 1, 65_000)? as u32;
                } else {
                    m.loops = args.check("loops", word, 1, 1_000_000_000)? as u32;
                }
                old_numbers += 1;
            }
            other => return Err(args.unknown(other)),
        }
    }
    if m.nr_tasks() > MAX_TASKS {
        let expected = format!("at most {MAX_TASKS} tasks (2 · groups · fds)");
        return Err(args.bad("-g, -f", &expected, &m.nr_tasks().to_string()));
    }
    if u64::from(m.fds) * u64::from(m.loops) > u64::from(u32::MAX) {
        let found = format!("{} · {}", m.fds, m.loops);
        return Err(args.bad("-f, -l", "fds · loops below 2^32", &found));
    }
    Ok(Arc::new(Hackbench(m)))
}

impl Workload for Hackbench {
    fn command_line(&self) -> String {
        let m = &self.0;
        format!(
            "{}hackbench{} {} -g {} -f {} -l {} -s {}{}",
            m.launch.prefix(),
            if m.kind == ChannelKind::Pipe { " --pipe" } else { "" },
            if m.threads { "--threads" } else { "--process" },
            m.groups,
            m.fds,
            m.loops,
            m.bytes,
            if m.fifo { " --fifo" } else { "" }
        )
    }
    fn comm(&self) -> &'static str {
        "hackbench"
    }
    fn description(&self) -> &'static str {
        ENTRY.description
    }
    fn build(&self, b: &mut Builder) {
        self.0.build(b);
    }
    fn shortened(&self, by: u32) -> Option<Shortened> {
        let (m, whole, part) = self.0.shortened(by);
        Some(Shortened { workload: Arc::new(Hackbench(m)), whole, part })
    }
    fn result(&self, time: Ns) -> String {
        let m = &self.0;
        let tasks = m.nr_tasks();
        format!(
            "Running in {} mode with {} groups using {} file descriptors each (== {tasks} tasks)\n\
             Each sender will pass {} messages of {} bytes\nTime: {}.{:03}\n",
            if m.threads { "threaded" } else { "process" },
            m.groups,
            2 * m.fds,
            m.loops,
            m.bytes,
            time.0 / 1_000_000_000,
            time.0 / 1_000_000 % 1_000
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use vruntime_base::Ns;

    fn line(c: &str) -> String {
        match parse(c) {
            Ok(w) => w.command_line(),
            Err(e) => format!("error: {e}"),
        }
    }

    #[test]
    fn real_command_lines() {
        let same = "hackbench --pipe --threads -g 20 -f 20 -l 480000 -s 100";
        assert_eq!(line("hackbench -g 20 -f 20 --pipe --threads -l 480000 -s 100"), same);
        assert_eq!(line("hackbench -pT -g20 --fds=20 --loops 480000 --datasize=100"), same);
        assert_eq!(line("hackbench --pi --thr --group 20 --fd 20 --loop 480000 --data 100"), same);
        let fifo = "hackbench --process -g 10 -f 20 -l 100 -s 100 --fifo";
        assert_eq!(line("hackbench --processes -F"), fifo);
        assert_eq!(line("hackbench --process --fifo"), fifo);
        assert_eq!(line("hackbench 10 process 100 -F"), fifo);
        assert_eq!(
            line("hackbench -pipe 60 process 100000"),
            "hackbench --pipe --process -g 60 -f 20 -l 100000 -s 100"
        );
        assert_eq!(
            line("taskset -c 3 nice -n 5 hackbench"),
            "taskset -c 3 nice -n 5 hackbench --process -g 10 -f 20 -l 100 -s 100"
        );
    }

    #[test]
    fn errors_say_what_was_expected() {
        assert_eq!(
            line("hackbench -g 0"),
            "error: hackbench: -g: expected a whole number from 1 to 65000, found `0`"
        );
        assert!(line("hackbench --gruops 3").contains("did you mean `--groups`?"));
        assert!(line("hackbench -i -g 1").contains("hackbench: `-i` is not modelled; usage:"));
        assert!(line("hackbench --inet").contains("`--inet` is not modelled"));
        assert!(line("hackbench --f 3").contains("unknown option `--f`"));
        assert!(line("hackbench -l 1e12").contains("from 1 to 1000000000, found `1e12`"));
        assert!(line("hackbench -f 1000 -l 1000000000").contains("below 2^32"));
        assert!(line("hackbench --pipe=3").starts_with("error: hackbench: options"));
        assert!(line("hackbehch -p").contains("did you mean `hackbench`?"));
        assert!(line("hackbench -g").contains("found nothing"));
        assert!(line("hackbench -g 65000 -f 1000").contains("at most 1000000 tasks"));
        assert!(line("hackbench 'x").starts_with("error: workload `hackbench 'x`"));
        assert!(line("").contains("expected a benchmark, found none"));
    }

    #[test]
    fn result_as_the_tool_prints_it() {
        let w = parse("hackbench -g 20 -f 20 --pipe --threads -l 20000").unwrap();
        assert_eq!(
            w.result(Ns(12_345_678_901)),
            "Running in threaded mode with 20 groups using 40 file descriptors each \
             (== 800 tasks)\nEach sender will pass 20000 messages of 100 bytes\nTime: 12.345\n"
        );
    }
}
