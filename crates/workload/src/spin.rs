//! Small loads for demonstrations and tests: tasks that only compute, and periodic sleepers.

use crate::args::Args;
use crate::{Entry, Launch, WorkloadError};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::*;

pub(crate) const ENTRIES: &[Entry] = &[SPIN, SLEEPER];

const SPIN: Entry = Entry {
    name: "spin",
    synopsis: "spin TASKS MILLISECONDS",
    description: "TASKS tasks that compute for MILLISECONDS each",
    parse: parse_spin,
};

const SLEEPER: Entry = Entry {
    name: "sleeper",
    synopsis: "sleeper TASKS PERIOD_US RUN_US COUNT",
    description: "TASKS tasks that sleep PERIOD_US and compute RUN_US, COUNT times",
    parse: parse_sleeper,
};

/// Tasks that do `count` times: sleep `period`, compute `run`.
struct Load {
    entry: &'static Entry,
    tasks: u32,
    period: Ns,
    run: Ns,
    count: u32,
    launch: Launch,
}

fn words(entry: &'static Entry, words: &[String], max: &[u64]) -> Result<Vec<u64>, WorkloadError> {
    let mut args = Args::new(entry.name, entry.synopsis, &[], words);
    let names: Vec<&str> = entry.synopsis.split(' ').skip(1).collect();
    let mut out = Vec::new();
    while let Some(w) = args.next()? {
        if w.starts_with('-') || out.len() == max.len() {
            return Err(args.unknown(&w));
        }
        out.push(args.check(names[out.len()], &w, 1, max[out.len()])?);
    }
    if out.len() < max.len() {
        return Err(args.bad(names[out.len()], entry.synopsis, "nothing"));
    }
    Ok(out)
}

fn parse_spin(w: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
    let v = words(&SPIN, w, &[100_000, 1_000_000])?;
    Ok(Arc::new(Load {
        entry: &SPIN,
        tasks: v[0] as u32,
        period: Ns::ZERO,
        run: Ns::from_ms(v[1]),
        count: 1,
        launch,
    }))
}

fn parse_sleeper(w: &[String], launch: Launch) -> Result<Arc<dyn Workload>, WorkloadError> {
    let v = words(&SLEEPER, w, &[100_000, 10_000_000, 10_000_000, 1_000_000_000])?;
    Ok(Arc::new(Load {
        entry: &SLEEPER,
        tasks: v[0] as u32,
        period: Ns::from_us(v[1]),
        run: Ns::from_us(v[2]),
        count: v[3] as u32,
        launch,
    }))
}

struct Body {
    period: Ns,
    run: Ns,
    count: u32,
}

impl Program for Body {
    fn next(&self, r: &mut Regs) -> Op {
        if r.i == self.count {
            return Op::Exit;
        }
        if r.j == 0 && self.period.0 > 0 {
            r.j = 1;
            return Op::Sleep(self.period);
        }
        r.j = 0;
        r.i += 1;
        Op::Run(self.run)
    }
}

struct Main {
    body: ProgramId,
    tasks: u32,
}

impl Program for Main {
    fn next(&self, r: &mut Regs) -> Op {
        let n = r.i;
        r.i += 1;
        if n == 0 {
            return Op::MarkStart;
        }
        if n <= self.tasks {
            return Op::Fork { program: self.body, regs: Regs::default(), thread: false };
        }
        match n - self.tasks {
            1 => Op::WaitChildren,
            2 => Op::MarkStop,
            _ => Op::Exit,
        }
    }
}

impl Workload for Load {
    fn command_line(&self) -> String {
        let p = self.launch.prefix();
        if self.period.0 == 0 {
            return format!("{p}spin {} {}", self.tasks, self.run.0 / 1_000_000);
        }
        let (period, run) = (self.period.0 / 1_000, self.run.0 / 1_000);
        format!("{p}sleeper {} {period} {run} {}", self.tasks, self.count)
    }
    fn comm(&self) -> &'static str {
        self.entry.name
    }
    fn description(&self) -> &'static str {
        self.entry.description
    }
    fn build(&self, b: &mut Builder) {
        let body = b.program(Body { period: self.period, run: self.run, count: self.count });
        let main = b.program(Main { body, tasks: self.tasks });
        b.root(main, Regs::default(), self.launch.root(16));
    }
    fn result(&self, time: Ns) -> String {
        format!(
            "{} tasks done in {}.{:03} ms\n",
            self.tasks,
            time.0 / 1_000_000,
            time.0 / 1_000 % 1_000
        )
    }
}
