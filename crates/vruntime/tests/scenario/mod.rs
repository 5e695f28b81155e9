//! Scenarios that a person can check by hand: a few lines of text become a run of the real model
//! and its time-line.
//!
//! ```text
//! uma-2 v6.1, 24 ms            machine, kernel expression, length of the run
//! A on 0: run 8ms              a task bound to CPU 0
//! F on 0-1 group 1: run 3ms    to two CPUs, in a task group of its own beside the others
//! B nice 5: sleep 5ms, run 4ms a free task; `batch`, `idle`, `fifo 10` and `rr 10` are policies
//! C: run 1ms, fork D, run 1ms  a task that starts D …
//! D child: run 3ms             … which is declared as a child
//! E: run 1ms, sleep 2ms, loop  goes on for ever
//! print ipis, user             counters, and CPU time by function, of the whole run
//! ```
//!
//! Machines are built-in names or `SOCKETSxCORESxTHREADS`, a numa-48 of that size with one cache a
//! socket; `xN` more lets N cores share an L2, a cluster. All tasks are woken at 1 ms on CPU 0 (or
//! the CPU they are bound to) in the order of the text, as new tasks. `wait 0` and `wake 0` are a
//! futex, `write 0` and `read 0` a pipe; `until 5ms` sleeps until a moment. There is no autogroup
//! and no timer slack unless the expression says so.
//!
//! The time-line has one row per CPU and one column per millisecond (per two in runs of more than
//! 80 ms), with the task that ran longest in it; `.` is idle. Then come the switches between tasks,
//! and counts of causes.

#![allow(dead_code, reason = "no test that has this module uses all of it")]

use expect_test::Expect;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use vruntime::base::{Cpu, CpuMask, EventKind, Ns};
use vruntime::formats::{kernel_file::kernel, machine_file::builtin_machine};
use vruntime::kernel::program::{
    Builder, ChannelId, ChannelKind, FutexId, Op, Program, ProgramId, Regs, RootTask, Workload,
};
use vruntime::kernel::record::{RunRecord, RunSpec, Sampling};
use vruntime::kernel::simulate::run;
use vruntime::machine::topology_spec::{Numbering, TopologySpec};
use vruntime::machine::{MachineSpec, parse_cpulist};
use vruntime::measure::RunJson;
use vruntime::measure::run::counters;
use vruntime::sched::release::Release;
use vruntime::sched::task::Policy;

/// The scenario `text` has the outcome `expected`.
#[track_caller]
pub fn check(text: &str, expected: Expect) {
    expected.assert_eq(&Scenario::parse(text).outcome());
}

/// Two tasks hand a byte to and fro, and each CPU idles for just under 2 us at a time. Each switch
/// is as the one before: `switches.rs` counts them, the test of mutants compares them.
pub const PING_PONG: [&str; 2] = [
    "uma-8 v6.1, 8 ms
    A on 0: write 0, read 1, loop
    B on 1: read 0, write 1, loop
    print context_switches",
    "uma-8 v6.12, 8 ms
    A on 0: write 0, read 1, loop
    B on 1: read 0, write 1, loop
    print context_switches",
];

/// Begins the line that says which figures belong to the outcome.
const PRINT: &str = "print ";

/// A parsed scenario.
pub struct Scenario {
    machine: MachineSpec,
    pub release: Release,
    length: Ns,
    tasks: Vec<Scripted>,
    printed: Vec<String>,
}

/// One task of a scenario.
#[derive(Clone)]
struct Scripted {
    letter: char,
    cpus: Option<CpuMask>,
    group: u16,
    policy: Policy,
    nice: i8,
    rt_priority: i8,
    child: bool,
    script: Vec<Word>,
    again: bool,
}

/// One word of a script.
#[derive(Clone, Copy, Debug)]
enum Word {
    Op(Op),
    Fork(char),
}

/// The machine `name`: built-in, or `SOCKETSxCORESxTHREADS`.
pub fn machine(name: &str) -> MachineSpec {
    let sizes: Vec<u32> = name.split('x').filter_map(|n| n.parse().ok()).collect();
    let (sockets, cores, threads, l2) = match sizes[..] {
        [sockets, cores, threads] => (sockets, cores, threads, 1),
        [sockets, cores, threads, l2] => (sockets, cores, threads, l2),
        _ => return builtin_machine(name).unwrap(),
    };
    let mut m = builtin_machine("numa-48").unwrap();
    m.name = name.into();
    let TopologySpec::Regular(r) = &mut m.topology else { panic!("numa-48 is regular") };
    r.sockets = sockets;
    (r.cores_per_node, r.cores_per_llc, r.threads_per_core) = (cores, cores, threads);
    r.cores_per_l2 = l2;
    r.numbering = Numbering::SiblingsLast;
    let row = |a| (0..sockets).map(|b| if a == b { 10 } else { 21 }).collect();
    r.node_distance = (0..sockets).map(row).collect();
    m.smt_speed.truncate(threads as usize);
    m
}

fn ms(word: &str) -> Ns {
    if let Some(ns) = word.strip_suffix("ns") {
        return Ns(ns.parse().unwrap());
    }
    if let Some(us) = word.strip_suffix("us") {
        return Ns(us.parse::<u64>().unwrap() * 1_000);
    }
    Ns::from_ms(word.strip_suffix("ms").expect("a time in ms, us or ns").parse().unwrap())
}

impl Scenario {
    pub fn parse(text: &str) -> Scenario {
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
        let (what, length) = lines.next().unwrap().rsplit_once(", ").unwrap();
        let (m, expression) = what.split_once(' ').unwrap();
        let mut release = kernel(expression).unwrap().release;
        release.autogroup &= expression.contains("autogroup");
        if !expression.contains("timer_slack_ns") {
            release.timer_slack_ns = 0;
        }
        Scenario {
            machine: machine(m),
            release,
            length: ms(&length.replace(' ', "")),
            tasks: lines.clone().filter(|l| !l.starts_with(PRINT)).map(Scripted::parse).collect(),
            printed: lines
                .filter_map(|l| l.strip_prefix(PRINT))
                .flat_map(|l| l.split(", ").map(String::from))
                .collect(),
        }
    }

    /// Its tasks as a workload. With a `main`, that forks them and waits for their end.
    pub fn workload(self, main: bool) -> Arc<dyn Workload> {
        Arc::new(Script { tasks: self.tasks, main })
    }

    pub fn record(self) -> RunRecord {
        let spec = RunSpec {
            sampling: Sampling::Full { limit: self.length },
            checks: true,
            timeline: 100_000,
            schedstat: true,
            ..RunSpec::new(
                self.machine,
                self.release,
                Arc::new(Script { tasks: self.tasks, main: false }),
            )
        };
        let record = run(&spec).unwrap();
        let checks = record.checks.unwrap();
        assert_eq!((checks.nr_running_wrong, checks.stopped_with_work), (0, 0), "{checks:?}");
        assert_eq!(record.ledger_gap, 0, "{checks:?}");
        record
    }

    /// Time-line, switches and causes of a run of it.
    pub fn outcome(self) -> String {
        let (length, tasks, printed) = (self.length, self.tasks.clone(), self.printed.clone());
        let record = self.record();
        let names = letters(&record, &tasks);
        let name = |id: u32| match names.get(&id) {
            Some(letter) => letter.to_string(),
            None if (id as usize) < record.nr_cpus => ".".into(),
            None => "stopper".into(),
        };
        let mut text = rows(&record, length, &names);
        for e in record.timeline.iter() {
            let at = e.time.0 as f64 / 1e6;
            let why = e.cause.map_or("", |c| c.name);
            let _ = match e.kind {
                EventKind::Switch => {
                    let (from, to) = (name(e.task.0), name(e.a));
                    writeln!(text, "{at:6.1} ms  cpu {}: {from} -> {to}: {why}", e.cpu)
                }
                EventKind::Migrate => {
                    let task = name(e.task.0);
                    writeln!(text, "{at:6.1} ms  {task} moved {} -> {}: {why}", e.a, e.b)
                }
                _ => Ok(()),
            };
        }
        for (what, counts) in [("placed", &record.placements), ("migrated", &record.migrations)] {
            for (cause, n) in counts {
                let _ = writeln!(text, "{what} {n} x {cause}");
            }
        }
        if record.counters.wakeups_on_rq != 0 {
            let _ = writeln!(text, "woken {} x while queued", record.counters.wakeups_on_rq);
        }
        let counters = counters(&record.counters);
        let times = &RunJson::from(&record).cpu_time;
        for name in printed {
            let count = counters.iter().find(|c| c.0 == name).map(|c| c.1.to_string());
            let time = || times.get(&name).map(|ns| format!("{ns} ns"));
            let figure = count.or_else(time).unwrap_or("none".into());
            let _ = writeln!(text, "{name}: {figure}");
        }
        text
    }
}

/// Letters by task id: roots in the order of the text, then children in the order of forks.
fn letters(record: &RunRecord, tasks: &[Scripted]) -> BTreeMap<u32, char> {
    let first = 2 * record.nr_cpus as u32;
    let roots = tasks.iter().filter(|t| !t.child);
    let children = tasks.iter().filter(|t| t.child);
    (first..).zip(roots.chain(children).map(|t| t.letter)).collect()
}

/// One row per CPU.
fn rows(record: &RunRecord, length: Ns, names: &BTreeMap<u32, char>) -> String {
    let ms = length.0.div_ceil(1_000_000);
    let width = if ms > 80 { 2 } else { 1 };
    let (columns, column_ns) = (ms.div_ceil(width) as usize, width * 1_000_000);
    let mut text = String::from("      ");
    for column in (0..columns).step_by(10) {
        let _ = write!(text, "{:<10}", column as u64 * width);
    }
    text = text.trim_end().to_owned() + "\n";
    for c in 0..record.nr_cpus {
        let mut ran = vec![BTreeMap::<char, u64>::new(); columns];
        let (mut from, mut letter) = (0, '.');
        let switches = record.timeline.iter().filter(|e| e.kind == EventKind::Switch);
        let mine = switches.filter(|e| e.cpu.ix() == c).map(|e| (e.time.0, e.a));
        for (to, next) in mine.chain([(length.0, 0)]) {
            while from < to.min(length.0) {
                let end = to.min((from / column_ns + 1) * column_ns);
                *ran[(from / column_ns) as usize].entry(letter).or_default() += end - from;
                from = end;
            }
            letter = names.get(&next).copied().unwrap_or('.');
        }
        let longest = |m: &BTreeMap<char, u64>| *m.iter().max_by_key(|x| x.1).unwrap().0;
        let row: String = ran.iter().map(longest).collect();
        let _ = writeln!(text, "cpu {c} {row}");
    }
    text
}

impl Scripted {
    fn parse(line: &str) -> Scripted {
        let (head, body) = line.split_once(": ").unwrap();
        let mut head = head.split(' ');
        let letter = head.next().unwrap().chars().next().unwrap();
        let mut task = Scripted {
            letter,
            cpus: None,
            group: 0,
            policy: Policy::Normal,
            nice: 0,
            rt_priority: 0,
            child: false,
            script: vec![],
            again: false,
        };
        while let Some(word) = head.next() {
            if word == "on" {
                task.cpus = Some(parse_cpulist(head.next().unwrap(), line).unwrap());
                continue;
            }
            let mut number = || head.next().unwrap().parse::<i16>().unwrap();
            match word {
                "group" => task.group = number() as u16,
                "nice" => task.nice = number() as i8,
                "batch" => task.policy = Policy::Batch,
                "idle" => task.policy = Policy::Idle,
                "fifo" => (task.policy, task.rt_priority) = (Policy::Fifo, number() as i8),
                "rr" => (task.policy, task.rt_priority) = (Policy::Rr, number() as i8),
                "child" => task.child = true,
                _ => panic!("`{word}` in `{line}`"),
            }
        }
        if task.rt_priority != 0 {
            let op = Op::SetPolicy { policy: task.policy, prio: task.rt_priority };
            task.script.push(Word::Op(op));
            task.policy = Policy::Normal;
        }
        for words in body.split(", ") {
            let (verb, object) = words.split_once(' ').unwrap_or((words, ""));
            let number = || object.parse::<u32>().unwrap();
            task.script.push(Word::Op(match verb {
                "run" => Op::Run(ms(object)),
                "sleep" => Op::Sleep(ms(object)),
                "until" => Op::SleepUntil(ms(object)),
                "pin" => Op::Pin(Cpu(number() as u16)),
                "wait" => Op::FutexWait(FutexId(number())),
                "wake" => Op::FutexWake { futex: FutexId(number()), n: 1 },
                "write" => Op::Write { to: ChannelId(number()), bytes: 1 },
                "read" => Op::Read { from: ChannelId(number()), bytes: 1 },
                "yield" => Op::Yield,
                "exec" => Op::Exec,
                "fork" => {
                    task.script.push(Word::Fork(object.chars().next().unwrap()));
                    continue;
                }
                "loop" => {
                    task.again = true;
                    continue;
                }
                _ => panic!("`{words}` in `{line}`"),
            }));
        }
        task
    }
}

/// The workload of a scenario.
struct Script {
    tasks: Vec<Scripted>,
    main: bool,
}

/// The code of one task.
struct Code {
    ops: Vec<Op>,
    again: bool,
}

impl Program for Code {
    fn next(&self, r: &mut Regs) -> Op {
        let at = r.pc as usize;
        r.pc += 1;
        if self.again && at + 1 == self.ops.len() {
            r.pc = 0;
        }
        self.ops.get(at).copied().unwrap_or(Op::Exit)
    }
}

impl Workload for Script {
    fn command_line(&self) -> String {
        let line = |t: &Scripted| {
            let (policy, nice, cpus) = (t.policy, t.nice, t.cpus);
            format!("{policy:?} {nice} {cpus:?} {:?}", t.script)
        };
        format!("scenario {}", self.tasks.iter().map(line).collect::<Vec<_>>().join("; "))
    }
    fn comm(&self) -> &'static str {
        "task"
    }
    fn description(&self) -> &'static str {
        "tasks that follow a script"
    }
    fn build(&self, b: &mut Builder) {
        for _ in 0..4 {
            b.futex();
            b.channel(ChannelKind::Pipe, None);
        }
        let place = |letter| self.tasks.iter().position(|t| t.letter == letter).unwrap();
        let id = |letter| ProgramId(place(letter) as u16);
        let fork = |letter| Op::Fork { program: id(letter), regs: Regs::default(), thread: true };
        for t in &self.tasks {
            let mut ops = Vec::new();
            if self.main {
                // What a root has from the start, a child has to ask for.
                ops.extend(t.cpus.and_then(|cpus| cpus.first()).map(Op::Pin));
                ops.push(Op::SetPolicy { policy: t.policy, prio: t.nice });
            }
            ops.extend(t.script.iter().map(|w| match *w {
                Word::Op(op) => op,
                Word::Fork(letter) => fork(letter),
            }));
            b.program(Code { ops, again: t.again });
        }
        if self.main {
            let mut ops = vec![Op::MarkStart];
            ops.extend(self.tasks.iter().map(|t| fork(t.letter)));
            ops.extend([Op::WaitChildren, Op::MarkStop]);
            let main = b.program(Code { ops, again: false });
            b.root(main, Regs::default(), RootTask::default());
            return;
        }
        for t in self.tasks.iter().filter(|t| !t.child) {
            let how = RootTask {
                cpus: t.cpus,
                group: t.group,
                policy: t.policy,
                nice: t.nice,
                ends_run: false,
                ..RootTask::default()
            };
            b.root(id(t.letter), Regs::default(), how);
        }
    }
    fn result(&self, time: Ns) -> String {
        time.to_string()
    }
}
