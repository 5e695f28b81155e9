//! `cyclictest`: how late a task wakes after its timer.
//!
//! *What.* Main starts threads and waits for them. Each sleeps until an absolute time, looks at the
//! clock, notes how late it is, and adds its interval; times that have gone by already are left
//! out. The first thread's interval is `-i`, that of each next one longer by `-d`.
//! *Source.* rt-tests 2.40, cyclictest.c (options and output by running it).
//! *Equations.* Latency = time after `clock_nanosleep` − time that it was to end. A thread makes
//! `-l` loops, or as many as fit into `-D`, periods that it misses included. Thread n runs on the
//! n-th CPU that main may use, whether there is an `-a` or not.
//! *Departures.* D1: the first thread that is through with `-l` loops ends the tool; here the
//! others make as many loops as fit into that time, if none is missed. D2: reading the clock costs
//! nothing. D3: no histogram, no tracing, no SMI counter. D4: main sleeps until the end; the tool's
//! looks every 10 ms.
//! *Example.* `cyclictest -t 2 -i 1000 -l 3`: sleeps until 1, 2, 3 ms after the start in the first
//! thread, until 1.5 and 3 ms in the second.

use crate::args::Args;
use crate::{Entry, Launch, WorkloadError};
use std::fmt::Write;
use std::sync::Arc;
use vruntime_base::{Cpu, CpuMask, Ns};
use vruntime_kernel::program::*;
use vruntime_machine::parse_cpulist;
use vruntime_sched::task::Policy;

pub(crate) const ENTRIES: &[Entry] = &[CYCLICTEST];

const CYCLICTEST: Entry = Entry {
    name: "cyclictest",
    synopsis: "cyclictest [-t [N]] [-a [CPUS]] [-S] [-p PRIO] [--policy NAME] [--priospread] \
               [-i USEC] [-d USEC] [-l LOOPS] [-D TIME] [--latency USEC] [--default-system] \
               [--laptop] [-N] [-m] [-q] [-n]",
    description: "threads that sleep and measure how late they wake (rt-tests)",
    parse: |words, launch| Ok(Arc::new(read(words, launch)?)),
};

/// What the tool shows as the shortest latency until there is one, in either unit.
const MIN_AT_FIRST: u64 = 1_000_000;

/// Options that take a value or change what is simulated, then those that do not.
const KNOWN: &[&str] = &[
    "-t",
    "--threads",
    "-a",
    "--affinity",
    "-S",
    "--smp",
    "-p",
    "--priority",
    "--policy",
    "--priospread",
    "-i",
    "--interval",
    "-d",
    "--distance",
    "-l",
    "--loops",
    "-D",
    "--duration",
    "--latency",
    "--default-system",
    "--laptop",
    "-N",
    "--nsecs",
    "-m",
    "--mlockall",
    "-q",
    "--quiet",
    "-n",
];

/// What rt-tests 2.40 has besides: other clocks, alignments, reports and tracing.
const OTHERS: &[&str] = &[
    "-A",
    "--aligned",
    "-b",
    "--breaktrace",
    "-c",
    "--clock",
    "-F",
    "--fifo",
    "-h",
    "--histogram",
    "-H",
    "--histofall",
    "--histfile",
    "--json",
    "--mainaffinity",
    "-M",
    "--refresh_on_max",
    "-o",
    "--oscope",
    "-r",
    "--relative",
    "-R",
    "--resolution",
    "--secaligned",
    "-s",
    "--system",
    "--smi",
    "--spike",
    "--tracemark",
    "-u",
    "--unbuffered",
    "-v",
    "--verbose",
    "--dbg_cyclictest",
    "-x",
    "--posix_timers",
];

/// The clock of a program counts microseconds in 32 bits.
const LONGEST_S: u32 = 4_294;

/// Cache that a thread uses over and over, in KiB (estimate).
const FOOTPRINT_KIB: u16 = 4;

/// How many threads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Threads {
    Some(u32),
    /// One for each CPU.
    All,
}

/// Where they run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Affinity {
    /// Each on a CPU of its own, of those that main may use: `-a`, and what the tool does without.
    All,
    /// The same, of these.
    Of(CpuMask),
}

#[derive(Clone)]
struct Cyclictest {
    threads: Threads,
    affinity: Affinity,
    policy: Policy,
    priority: u8,
    priospread: bool,
    interval_us: u32,
    distance_us: u32,
    loops: u32,
    duration_s: u32,
    dma_latency_us: Option<u32>,
    in_ns: bool,
    launch: Launch,
}

fn read(words: &[String], launch: Launch) -> Result<Cyclictest, WorkloadError> {
    let mut c = Cyclictest {
        threads: Threads::Some(1),
        affinity: Affinity::All,
        policy: Policy::Normal,
        priority: 0,
        priospread: false,
        interval_us: 1_000,
        distance_us: 500,
        loops: 0,
        duration_s: 0,
        dma_latency_us: Some(0),
        in_ns: false,
        launch,
    };
    let (mut policy, mut distance, mut smp) = (None, None, false);
    let mut args = Args::new(CYCLICTEST.name, CYCLICTEST.synopsis, KNOWN, words).but_not(OTHERS);
    while let Some(o) = args.next()? {
        match o.as_str() {
            "-t" | "--threads" => {
                c.threads = match args.optional() {
                    Some(n) => Threads::Some(args.check(&o, &n, 1, 10_000)? as u32),
                    None => Threads::All,
                }
            }
            "-a" | "--affinity" => {
                c.affinity = match args.optional() {
                    Some(list) => Affinity::Of(cpus(&args, &o, &list)?),
                    None => Affinity::All,
                }
            }
            "-S" | "--smp" => smp = true,
            "-p" | "--priority" => c.priority = args.number(&o, 0, 99)? as u8,
            "--policy" => policy = Some(policy_of(&mut args, &o)?),
            "--priospread" => c.priospread = true,
            "-i" | "--interval" => c.interval_us = args.number(&o, 1, 1_000_000)? as u32,
            "-d" | "--distance" => distance = Some(args.number(&o, 0, 100_000)? as u32),
            "-l" | "--loops" => c.loops = args.number(&o, 0, 1_000_000_000)? as u32,
            "-D" | "--duration" => c.duration_s = duration(&mut args, &o)?,
            "--latency" => c.dma_latency_us = Some(args.number(&o, 0, 1_000_000)? as u32),
            "--default-system" | "--laptop" => c.dma_latency_us = None,
            "-N" | "--nsecs" => c.in_ns = true,
            // Pages are never missing here, and the report comes at the end anyway.
            "-m" | "--mlockall" | "-q" | "--quiet" | "-n" => {}
            other => return Err(args.unknown(other)),
        }
    }
    if smp {
        (c.threads, c.affinity) = (Threads::All, Affinity::All);
    }
    c.distance_us = distance.unwrap_or(c.distance_us);
    // A priority is one of SCHED_FIFO, whatever else was asked for; so are several.
    c.policy = match policy {
        Some(policy) if policy.is_rt() => policy,
        _ if c.priority > 0 || c.priospread => Policy::Fifo,
        policy => policy.unwrap_or(Policy::Normal),
    };
    if let Threads::Some(nr_threads) = c.threads
        && c.priospread
        && nr_threads > u32::from(c.priority_of(0, nr_threads))
    {
        let expected = format!("-p of at least {nr_threads}, one for each thread");
        return Err(args.bad("--priospread", &expected, &c.priority.to_string()));
    }
    let longest = u64::from(LONGEST_S) * 1_000_000 / u64::from(c.interval_us);
    if c.duration_s == 0 && u64::from(c.loops) >= longest {
        let expected = format!("less than {LONGEST_S} s in all, {longest} loops");
        return Err(args.bad("-l", &expected, &c.loops.to_string()));
    }
    Ok(c)
}

fn cpus(args: &Args, option: &str, list: &str) -> Result<CpuMask, WorkloadError> {
    let found = parse_cpulist(list, "").ok().filter(|cpus| !cpus.is_empty());
    found.ok_or_else(|| args.bad(option, "CPUs such as `3` or `0-3,8`", &format!("`{list}`")))
}

fn policy_of(args: &mut Args, option: &str) -> Result<Policy, WorkloadError> {
    let name = args.text(option, POLICIES)?;
    match name.to_lowercase().as_str() {
        "other" | "normal" => Ok(Policy::Normal),
        "batch" => Ok(Policy::Batch),
        "idle" => Ok(Policy::Idle),
        "fifo" => Ok(Policy::Fifo),
        "rr" => Ok(Policy::Rr),
        _ => Err(args.bad(option, POLICIES, &format!("`{name}`"))),
    }
}

const POLICIES: &str = "other, normal, batch, idle, fifo or rr";

/// Seconds, or with `m`, `h`, `d` minutes, hours, days.
fn duration(args: &mut Args, option: &str) -> Result<u32, WorkloadError> {
    const EXPECTED: &str = "seconds, or as in 2m, 1h; less than 4294 s";
    let text = args.text(option, EXPECTED)?;
    let (digits, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let unit = match unit {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u32>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
    let seconds = seconds.filter(|s| (1..LONGEST_S).contains(s));
    seconds.ok_or_else(|| args.bad(option, EXPECTED, &format!("`{text}`")))
}

impl Cyclictest {
    fn is_rt(&self) -> bool {
        self.policy.is_rt()
    }

    /// Without `-p` a real-time priority is one more than there are threads.
    fn priority_of(&self, thread: u32, nr_threads: u32) -> u8 {
        let first = match self.priority {
            0 if self.is_rt() => (nr_threads + 1).min(99) as u8,
            priority => priority,
        };
        let less = if self.priospread { thread.min(98) as u8 } else { 0 };
        first.saturating_sub(less).max(u8::from(self.is_rt()))
    }

    /// Where its threads may run, one after the other.
    fn cpus(&self, nr_cpus: usize) -> Vec<Cpu> {
        match &self.affinity {
            Affinity::All => self.allowed(nr_cpus).iter().collect(),
            Affinity::Of(cpus) => cpus.iter().collect(),
        }
    }

    fn nr_threads(&self, nr_cpus: usize) -> u32 {
        match self.threads {
            Threads::Some(n) => n,
            Threads::All => self.cpus(nr_cpus).len() as u32,
        }
    }

    /// The CPUs that main may use.
    fn allowed(&self, nr_cpus: usize) -> CpuMask {
        self.launch.cpus.unwrap_or(CpuMask::first_n(nr_cpus))
    }

    fn interval_of(&self, thread: u32) -> u32 {
        self.interval_us + thread * self.distance_us
    }

    /// How often `thread` sleeps.
    fn loops_of(&self, thread: u32) -> u32 {
        let interval = u64::from(self.interval_of(thread));
        let by_time = u64::from(self.duration_s) * 1_000_000 / interval;
        let by_loops = u64::from(self.loops) * u64::from(self.interval_us) / interval;
        let loops = match (self.loops, self.duration_s) {
            (0, 0) => u64::from(u32::MAX),
            (0, _) => by_time,
            (_, 0) => by_loops,
            _ => by_time.min(by_loops),
        };
        loops.max(1) as u32
    }
}

/// One thread. `i`: loops done; `k`: when to wake next, in us; `j`: the time, as the clock gave it.
struct Thread {
    cpu: Option<Cpu>,
    policy: Policy,
    /// Priority, or nice value.
    prio: i8,
    interval_us: u32,
    loops: u32,
    /// Periods that were missed count, too.
    by_time: bool,
    latency: LatencyId,
}

/// What a thread does next (`pc`).
const PIN: u16 = 0;
const POLICY: u16 = 1;
const START: u16 = 2;
const FIRST: u16 = 3;
const SLEEP: u16 = 4;
const LOOK: u16 = 5;
const NEXT: u16 = 6;

impl Program for Thread {
    fn next(&self, r: &mut Regs) -> Op {
        let wake = |r: &Regs| Ns::from_us(u64::from(r.k));
        loop {
            r.pc += 1;
            match r.pc - 1 {
                PIN => {
                    if let Some(cpu) = self.cpu {
                        return Op::Pin(cpu);
                    }
                }
                POLICY => return Op::SetPolicy { policy: self.policy, prio: self.prio },
                START => return Op::Clock { latency: LatencyId::NONE, since: Ns::ZERO },
                FIRST => r.k = r.j.saturating_add(self.interval_us),
                // Beyond the clock's range nothing can be told.
                SLEEP if r.i >= self.loops || r.k == u32::MAX => return Op::Exit,
                SLEEP => return Op::SleepUntil(wake(r)),
                LOOK => return Op::Clock { latency: self.latency, since: wake(r) },
                NEXT => {
                    let missed = r.j.saturating_sub(r.k) / self.interval_us;
                    r.i += 1 + if self.by_time { missed } else { 0 };
                    r.k = r.k.saturating_add((missed + 1).saturating_mul(self.interval_us));
                    r.pc = SLEEP;
                }
                _ => unreachable!("after the last step comes an earlier one"),
            }
        }
    }
}

/// Starts the threads and waits for them. `i`: steps done.
struct Main {
    threads: Vec<ProgramId>,
}

impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        r.i += 1;
        let n = r.i as usize - 1;
        if n == 0 {
            return Op::MarkStart;
        }
        if let Some(&program) = self.threads.get(n - 1) {
            return Op::Fork { program, regs: Regs::default(), thread: true };
        }
        match n - self.threads.len() {
            1 => Op::WaitChildren,
            2 => Op::MarkStop,
            _ => Op::Exit,
        }
    }
}

impl Workload for Cyclictest {
    fn command_line(&self) -> String {
        let mut s = format!("{}cyclictest", self.launch.prefix());
        match self.threads {
            Threads::Some(n) => write!(s, " -t {n}"),
            Threads::All => write!(s, " -t"),
        }
        .expect("a string grows");
        match self.affinity {
            Affinity::All => {}
            Affinity::Of(cpus) => s += &format!(" -a {cpus}"),
        }
        let name = match self.policy {
            Policy::Batch => " --policy=batch",
            Policy::Idle => " --policy=idle",
            Policy::Rr => " --policy=rr",
            Policy::Fifo if self.priority == 0 && !self.priospread => " --policy=fifo",
            _ => "",
        };
        s += name;
        if self.priority > 0 {
            s += &format!(" -p {}", self.priority);
        }
        if self.priospread {
            s += " --priospread";
        }
        s += &format!(" -i {} -d {}", self.interval_us, self.distance_us);
        if self.loops > 0 {
            s += &format!(" -l {}", self.loops);
        }
        if self.duration_s > 0 {
            s += &format!(" -D {}", self.duration_s);
        }
        match self.dma_latency_us {
            Some(0) => {}
            Some(us) => s += &format!(" --latency={us}"),
            None => s += " --default-system",
        }
        if self.in_ns {
            s += " -N";
        }
        s
    }

    fn comm(&self) -> &'static str {
        CYCLICTEST.name
    }

    fn description(&self) -> &'static str {
        CYCLICTEST.description
    }

    fn build(&self, b: &mut Builder) {
        let (cpus, nr_threads) = (self.cpus(b.nr_cpus), self.nr_threads(b.nr_cpus));
        b.cpu_dma_latency = self.dma_latency_us.map(|us| Ns::from_us(us.into()));
        b.binds(cpus.iter().copied());
        let mut threads = Vec::new();
        for n in 0..nr_threads {
            let latency = b.latency();
            threads.push(b.program(Thread {
                cpu: cpus.get(n as usize % cpus.len().max(1)).copied(),
                // Its threads are SCHED_OTHER unless they are real-time.
                policy: if self.is_rt() { self.policy } else { Policy::Normal },
                prio: match self.is_rt() {
                    true => self.priority_of(n, nr_threads) as i8,
                    false => self.launch.nice,
                },
                interval_us: self.interval_of(n),
                loops: self.loops_of(n),
                by_time: self.loops == 0 || n > 0,
                latency,
            }));
        }
        let main = b.program(Main { threads });
        b.sets_policies |= self.is_rt();
        b.root(main, Regs::default(), self.launch.root(FOOTPRINT_KIB));
    }

    fn result(&self, _: Ns) -> String {
        String::new()
    }

    fn latency_lines(&self, measured: &[Latency]) -> String {
        let mut s = String::new();
        if let Some(us) = self.dma_latency_us {
            s += &format!("# /dev/cpu_dma_latency set to {us}us\n");
        }
        let (unit, width) = if self.in_ns { (1, 8) } else { (1_000, 5) };
        let nr_threads = measured.len() as u32;
        for (n, l) in (0..).zip(measured) {
            let of = |t: Ns| t.0 / unit;
            let min = if l.count == 0 { MIN_AT_FIRST } else { of(l.min) };
            writeln!(
                s,
                "T:{n:2} ({:5}) P:{:2} I:{} C:{:7} Min:{:7} Act:{:width$} Avg:{:width$} Max:{:8}",
                l.pid,
                self.priority_of(n, nr_threads),
                self.interval_of(n),
                l.count,
                min,
                of(l.last),
                if self.in_ns { l.mean().0 } else { l.mean_us() },
                of(l.max),
            )
            .expect("a string grows");
        }
        s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn thread(interval_us: u32, loops: u32) -> Thread {
        let (latency, cpu) = (LatencyId(0), Some(Cpu(3)));
        let (policy, prio, by_time) = (Policy::Fifo, 80, false);
        Thread { cpu, policy, prio, interval_us, loops, by_time, latency }
    }

    /// Runs a thread on a clock that shows `times`, in us.
    fn with_clock(t: &Thread, times: &[u32]) -> String {
        let (mut r, mut times) = (Regs::default(), times.iter());
        let mut out = Vec::new();
        loop {
            match t.next(&mut r) {
                Op::Pin(cpu) => out.push(format!("pin {}", cpu.0)),
                Op::SetPolicy { prio, .. } => out.push(format!("prio {prio}")),
                Op::SleepUntil(t) => out.push(format!("until {}", t.0 / 1_000)),
                Op::Clock { latency: LatencyId::NONE, .. } => r.j = *times.next().unwrap(),
                Op::Clock { since, .. } => {
                    r.j = *times.next().unwrap();
                    out.push(format!("late {}", u64::from(r.j) - since.0 / 1_000));
                }
                _ => return out.join(", "),
            }
        }
    }

    /// The second wakeup is 2,100 us late: the times 2,300 and 3,300 have gone by.
    #[test]
    fn times_that_have_gone_by_are_left_out() {
        let steps = with_clock(&thread(1_000, 3), &[300, 1_304, 4_400, 5_301]);
        assert_eq!(
            steps,
            "pin 3, prio 80, until 1300, late 4, until 2300, late 2100, until 5300, late 1"
        );
        // By time they count: five periods are over.
        let by_time = Thread { by_time: true, ..thread(1_000, 5) };
        assert_eq!(with_clock(&by_time, &[300, 1_304, 4_400, 5_301]), steps);
        let by_time = Thread { by_time: true, ..thread(1_000, 4) };
        assert!(steps.starts_with(&with_clock(&by_time, &[300, 1_304, 4_400])));
    }

    /// A thread that nothing else ends does so where its clock ends.
    #[test]
    fn the_clock_has_an_end() {
        let start = u32::MAX - 2_500;
        let times = [start, start + 1_000, start + 2_000];
        let steps = with_clock(&thread(1_000, u32::MAX), &times);
        assert_eq!(steps.matches("until").count(), 2, "{steps}");
    }

    /// As rt-tests 2.40 does on two CPUs.
    #[test]
    fn threads_are_bound_and_have_the_tools_priorities() {
        let cpus = |words: &str, nr_cpus: usize| {
            let w = parse(words).unwrap();
            let b = Builder::of(w.as_ref(), nr_cpus);
            b.bound_to().iter().map(|c| c.0).collect::<Vec<_>>()
        };
        assert_eq!(cpus("cyclictest -t 3", 2), [0, 1]);
        assert_eq!(cpus("taskset -c 1 cyclictest -t 2 -a", 2), [1]);
        assert_eq!(cpus("taskset -c 2-3 cyclictest -t", 8), [2, 3]);
        let line = |words: &str, n: usize| {
            let w = parse(words).unwrap();
            let lines = w.latency_lines(&vec![Latency::default(); n]);
            let of = |l: &str, key: &str| l.split(key).nth(1).map(|r| r[..2].trim().to_string());
            let lines = lines.lines().skip(1);
            lines.map(|l| of(l, "P:").unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("cyclictest --policy=fifo -t 2", 2), "3 3");
        assert_eq!(line("cyclictest -t --policy=rr", 2), "3 3");
        assert_eq!(line("cyclictest -p 5 --policy=batch", 1), "5");
        assert_eq!(line("cyclictest -p 4 --priospread -t 4", 4), "4 3 2 1");
        assert!(parse("cyclictest -p 2 --priospread -t 4").is_err());
        assert_eq!(line("cyclictest --priospread -t 4", 4), "5 4 3 2");
        // -S is -t -a; the distance stays.
        assert_eq!(parse("cyclictest -S").unwrap().command_line(), "cyclictest -t -i 1000 -d 500");
    }

    #[test]
    fn longer_than_the_clock_is_refused() {
        let of = |w: &str| parse(w).err().map_or(String::new(), |e| e.to_string());
        assert_eq!(of("cyclictest -i 500000 -l 8587"), "");
        assert!(of("cyclictest -i 500000 -l 8588").contains("less than 4294 s in all, 8588 loops"));
        assert!(of("cyclictest -D 72m").contains("found `72m`"));
        assert!(of("cyclictest -D 1w").contains("found `1w`"));
        assert!(of("cyclictest -i 700000 -l 6135").contains("6134 loops"));
        assert!(of("cyclictest -p 2 --priospread -t 3").contains("-p of at least 3"));
        assert!(of("cyclictest --policy=deadline").contains("other, normal, batch"));
        assert!(of("cyclictest -a 3-1").contains("found `3-1`"));
        assert!(of("cyclictest -t 0").contains("from 1 to 10000"));
    }

    #[test]
    fn there_is_a_thread_for_each_cpu_of_the_list() {
        let c = |words: &str| {
            let words = shell_words::split(words).unwrap();
            read(&words, Launch::default()).ok().unwrap().nr_threads(8)
        };
        assert_eq!(["-t -a 0-1", "-a 0-1 -t", "-S -a 0", "-t", "-a 0-1"].map(c), [2, 2, 8, 8, 1]);
    }

    #[test]
    fn other_threads_end_with_the_first() {
        let c = |words: &str| {
            read(&shell_words::split(words).unwrap(), Launch::default()).ok().unwrap()
        };
        // 2,000 loops of 1 ms: 2 s, so 1,333 of 1.5 ms and 1,000 of 2 ms.
        let t = c("-t 3 -l 2000");
        assert_eq!([0, 1, 2].map(|n| t.loops_of(n)), [2_000, 1_333, 1_000]);
        let t = c("-t3 -D 1m -i 10000 -d 0");
        assert_eq!([0, 2].map(|n| t.loops_of(n)), [6_000, 6_000]);
        assert_eq!(c("").loops_of(0), u32::MAX);
    }

    /// The lines are those of rt-tests 2.40.
    #[test]
    fn lines_as_cyclictest_prints_them() {
        let w = parse("cyclictest -p 80 -a 0 -l 2000 -q").unwrap();
        assert_eq!(w.command_line(), "cyclictest -t 1 -a 0 -p 80 -i 1000 -d 500 -l 2000");
        let us = Ns::from_us;
        let (min, last, sum, max) = (us(5), us(8), us(46_000), us(25_916));
        // Each is cut to whole microseconds before they are added: 22, not 23, on average.
        let l = Latency { pid: 19_446, count: 2_000, min, last, sum, sum_us: 45_500, max };
        assert_eq!(
            w.latency_lines(&[l]),
            "# /dev/cpu_dma_latency set to 0us\n\
             T: 0 (19446) P:80 I:1000 C:   2000 Min:      5 Act:    8 Avg:   22 Max:   25916\n"
        );
        let none = w.latency_lines(&[Latency::default()]);
        let counts = none.split("C:").last();
        assert_eq!(counts, Some("      0 Min:1000000 Act:    0 Avg:    0 Max:       0\n"));
    }
}
