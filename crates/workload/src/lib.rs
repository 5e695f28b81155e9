//! The benchmarks, with the real tools' command lines, structure and result lines.
//!
//! Each file with a workload has a list `ENTRIES` of them; `messaging` is what hackbench and `perf
//! bench sched messaging` have in common. A new workload is a file and its name in the list below.

mod args;
mod error;
mod launch;
mod messaging;

pub use error::WorkloadError;
pub use launch::Launch;

use std::sync::Arc;
use vruntime_kernel::program::Workload;

/// A workload in the registry.
pub struct Entry {
    /// First words of its command line.
    pub name: &'static str,
    /// Its options.
    pub synopsis: &'static str,
    /// One line of description.
    pub description: &'static str,
    /// Makes it from the words after the name.
    parse: fn(&[String], Launch) -> Parsed,
}

/// A workload, or what is wrong with its command line.
type Parsed = Result<Arc<dyn Workload>, WorkloadError>;

/// Declares the modules of workloads and lists what each calls `ENTRIES`.
macro_rules! workloads {
    ($($module:ident)*) => {
        $(mod $module;)*
        const FILES: &[&[Entry]] = &[$($module::ENTRIES),*];
    };
}

workloads! {
    cyclictest
    hackbench
    lmbench
    perf_bench
    spin
}

/// About one in `by` of `loops`, but at least one.
fn part_of(loops: u32, by: u32) -> u32 {
    (loops / by.max(1)).max(1)
}

/// Every workload.
pub fn workloads() -> impl Iterator<Item = &'static Entry> + Clone {
    FILES.iter().flat_map(|entries| entries.iter())
}

/// The workload that `command` runs. `taskset -c N`, `nice -n N` and `chrt` may stand in front.
pub fn parse(command: &str) -> Result<Arc<dyn Workload>, WorkloadError> {
    let words = shell_words::split(command)
        .map_err(|e| WorkloadError::Quoting { command: command.into(), why: e.to_string() })?;
    let (launch, words) = launch::parse(&words)?;
    // A program may be named by its path.
    let mut words = perf_bench::common_options_last(words);
    if let Some((_, name)) = words.first().and_then(|w| w.rsplit_once('/')) {
        words[0] = name.to_string();
    }
    for e in workloads() {
        let name: Vec<&str> = e.name.split(' ').collect();
        if words.len() >= name.len() && words.iter().zip(&name).all(|(w, n)| w == n) {
            return (e.parse)(&words[name.len()..], launch);
        }
    }
    Err(error::unknown_workload(command, &words))
}

#[cfg(test)]
mod tests {
    use vruntime_kernel::program::{Op, Program, Regs};

    /// What a program does that starts with these registers, to its end.
    pub fn steps(p: &dyn Program, mut r: Regs) -> Vec<String> {
        let mut out = Vec::new();
        loop {
            let op = p.next(&mut r);
            out.push(match op {
                Op::Write { to, bytes } => format!("write {}: {bytes}", to.0),
                Op::Read { from, bytes } => format!("read {}: {bytes}", from.0),
                Op::Open(ch) => format!("open {}", ch.0),
                Op::Poll(ch) => format!("poll {}", ch.0),
                Op::Fork { program, regs, .. } => format!("fork {} at {}", program.0, regs.k),
                op => format!("{op:?}"),
            });
            if matches!(op, Op::Exit) {
                return out;
            }
        }
    }
}
