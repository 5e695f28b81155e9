//! `vruntime calibrate`: measures this machine and writes the machine file that `-m host` reads.
//!
//! `probe` measures, `round` what takes one CPU several times; `derive` turns measurements into
//! costs, `fit` finds the one fitted factor, `stopped` what a wakeup of a stopped CPU would take in
//! the model, `file` writes. `alike` tells whether one CPU can stand for all. What each cost is
//! made from is documented in `docs/calibrate.md`.

mod alike;
mod derive;
mod file;
mod fit;
mod idle;
mod probe;
mod round;
mod stopped;
mod visits;
mod wakes;

use crate::cli::CalibrateArgs;
use crate::failure::{Done, Failure, make_directory_of, writable};
use crate::machine_choice::calibrated;
use derive::{Derived, Line, Measured, derive, line_transfers};
use probe::Sample;
use round::{CROWD, Round, cold_memory};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};
use visits::Visits;
use vruntime_base::Cpu;
use vruntime_formats::machine_file::sysfs_machine;
use vruntime_machine::{Distance, IdleSpec, Topology};
use wakes::Wakes;

/// Measures, derives, writes, reports.
pub fn calibrate(args: &CalibrateArgs) -> Result<Done, Failure> {
    if let Some(cpu) = args.echo {
        let failed = |e: io::Error| Failure::Input(format!("echo: {e}"));
        probe::echo(cpu, io::stdin().lock(), io::stdout()).map_err(failed)?;
        return Ok(Done::new(String::new()));
    }
    let failed = |e: io::Error| Failure::Input(format!("measuring: {e}"));
    if args.round {
        let caches = sysfs_machine(Path::new("/sys"))?.caches;
        let round = Round::measure(0, caches).map_err(failed)?;
        return Ok(Done::json(&json!(round)));
    }
    let path = args.output.clone().or_else(calibrated).ok_or_else(|| {
        Failure::Usage("neither XDG_CACHE_HOME nor HOME is set: where to? Use -o FILE".into())
    })?;
    if args.output.is_none() {
        make_directory_of(&path)?;
    }
    writable(&path)?;
    let base = sysfs_machine(Path::new("/sys"))?;
    let topo = base.build_topology().map_err(|e| Failure::Input(e.to_string()))?;
    probe::may_use(topo.nr_cpus()).map_err(failed)?;
    let load = load_average();
    if load > 0.5 {
        eprintln!("vruntime: load average {load}: other work disturbs the measurement");
    }
    let differ = alike::difference(Path::new("/sys"), topo.nr_cpus());
    if let Some(differ) = &differ {
        eprintln!("vruntime: {differ}");
    }
    let measured = measure(&topo, &base.idle).map_err(failed)?;
    let origin = format!("measured by vruntime calibrate on {}", today());
    if measured.exits.is_empty() {
        eprintln!("vruntime: no idle state was reached: exit latencies stay the table's");
    }
    let derived = derive(&base, &measured, &origin, fit::sets_pipe_times());
    let mut head = format!("The machine this was run on, {origin}, load average {load}.");
    head.extend(differ.iter().map(|text| format!("\n{text}.")));
    let own: Vec<&str> =
        derived.measured.iter().chain(&derived.others).map(String::as_str).collect();
    let text = file::text(&derived.spec, &own, &head)
        .map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
    write(&path, &text)?;
    if args.form.json {
        let mut report = report_json(&path, &measured, &derived, load);
        report["kernel"] = json!(fit::running_kernel().map(|k| k.name));
        report["cpus_differ"] = json!(differ);
        return Ok(Done::json(&report));
    }
    Ok(Done::new(report(&path, &measured, &derived)))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::Input(format!("{}: {e}", path.display()));
    fs::write(path, text).map_err(failed)
}

fn measure(topo: &Topology, idle: &[IdleSpec]) -> io::Result<Measured> {
    let groups = pairs(topo);
    // A second for the lines of each distance: a pair takes some 40 ms, and 384 CPUs have 73,536.
    let most = 25;
    let mut lines = Vec::new();
    for (distance, of_it) in &groups {
        for (a, b) in spread(of_it, most) {
            let took = probe::line_transfer(a, b)?;
            lines.push(Line { distance: *distance, a, b, took });
        }
    }
    let nearest = nearest(&groups);
    let mut visits = Vec::new();
    let mut wakeups = Vec::new();
    for (distance, of_it) in &groups {
        visits.push(Visits::measure(*distance, of_it[0].0, of_it[0].1)?);
        let took = probe::wakeup(of_it[0].0, of_it[0].1, idle::SHORT_GAP, 2_000)?.took;
        wakeups.push((*distance, took));
    }
    // CPUs of different caches enqueue for themselves; nobody takes their locks.
    let near = groups.iter().find(|(d, _)| matches!(d, Distance::L2 | Distance::Llc));
    let wakes = near.map(|(_, of_it)| Wakes::measure(of_it[0].0, of_it[0].1)).transpose()?;
    Ok(Measured {
        round: Round::typical()?,
        lines,
        visits,
        wakes,
        wakeups,
        nearest,
        exits: nearest.map_or(Ok(vec![]), |(a, b)| idle::exits(a, b, idle))?,
    })
}

/// Two CPUs.
type Pair = (usize, usize);

/// The pairs of CPUs by distance, nearest first, those of CPU 0 with the farthest-numbered CPU
/// first.
fn pairs(topo: &Topology) -> Vec<(Distance, Vec<Pair>)> {
    let n = topo.nr_cpus();
    let at = |d: Distance| -> Vec<Pair> {
        let all = (0..n).flat_map(|a| (a + 1..n).rev().map(move |b| (a, b)));
        all.filter(|&(a, b)| topo.distance(Cpu::from_ix(a), Cpu::from_ix(b)) == d).collect()
    };
    let all = Distance::ALL.into_iter().filter(|d| *d != Distance::Same).map(|d| (d, at(d)));
    all.filter(|(_, of_it)| !of_it.is_empty()).collect()
}

/// The nearest two CPUs that are no threads of one core, where there are any: a waker that spins
/// keeps its core from the deeper idle states.
fn nearest(groups: &[(Distance, Vec<Pair>)]) -> Option<Pair> {
    let beyond = groups.iter().find(|(distance, _)| *distance != Distance::Smt);
    beyond.or(groups.first()).map(|(_, of_it)| of_it[0])
}

/// At most `most` of them, the first and the rest evenly over all.
fn spread(all: &[Pair], most: usize) -> Vec<Pair> {
    let n = all.len().min(most);
    (0..n).map(|i| all[i * all.len() / n]).collect()
}

/// The name of the row that not all caches allow.
const COLD: &str = "cold thread's round trip less a warm one's";

/// Name and value of everything measured.
fn samples(m: &Measured) -> Vec<(String, Sample)> {
    let calls = |c: &probe::Calls, of: &str| {
        let name = |call: &str| format!("{call}, {of}");
        [
            (name("getppid"), c.getppid),
            (name("fcntl(F_GETFL)"), c.fcntl),
            (name("pipe write, 100 bytes"), c.write),
            (name("pipe read, 100 bytes"), c.read),
        ]
    };
    let mut rows = [calls(&m.round.one, "1 thread"), calls(&m.round.two, "2 threads")].concat();
    rows.extend([
        ("unix socket send, 100 bytes".into(), m.round.sockets.send),
        ("unix socket receive, 100 bytes".into(), m.round.sockets.recv),
        ("both, 20 sockets of 250 messages".into(), m.round.sockets.backlog),
        ("both, 400 sockets of 250 messages".into(), m.round.sockets.crowded),
        ("round trip, 2 threads, 1 CPU".into(), m.round.threads),
        ("round trip, 2 processes, 1 CPU".into(), m.round.processes),
        (format!("round trip, {CROWD} threads, 1 CPU"), m.round.many_threads),
        (format!("round trip, {CROWD} processes, 1 CPU"), m.round.many_processes),
    ]);
    rows.extend(m.round.cold.map(|cold| (COLD.into(), cold)));
    for (distance, n, took) in line_transfers(&m.lines) {
        let pairs = if n == 1 { String::new() } else { format!(", {n} pairs") };
        rows.push((format!("line transfer, {}{pairs}", distance.name()), took));
    }
    rows.extend(m.visits.iter().flat_map(Visits::samples));
    rows.extend(m.wakes.iter().flat_map(Wakes::samples));
    let us = |gap: Duration| format!("{:.0} us", gap.as_secs_f64() * 1e6);
    for (d, took) in &m.wakeups {
        rows.push((format!("wakeup after {}, {}", us(idle::SHORT_GAP), d.name()), *took));
    }
    for exit in &m.exits {
        let (name, gap) = (&exit.name, us(exit.gap));
        rows.push((format!("wakeup from {name} ({gap})"), exit.took));
        rows.push((format!("its write ({gap})"), exit.sent));
    }
    rows
}

fn report(path: &Path, m: &Measured, d: &Derived) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    line(format!("{:36} {:>9} {:>9} {:>9}", "measured, ns", "10 %", "mid", "90 %"));
    for (name, s) in samples(m) {
        // Differences can be below zero.
        let note = match (s.mid <= 0.0, s.low < 0.0) {
            (true, _) => "  lost in noise",
            (_, true) => "  near the noise",
            _ => "",
        };
        line(format!("{name:36} {:9.1} {:9.1} {:9.1}{note}", s.low, s.mid, s.high));
    }
    if m.round.cold.is_none() {
        let reason = cold_memory(d.spec.caches).err().unwrap_or_default();
        line(format!("{COLD:36}  not measured: {reason}"));
    }
    line(format!("\n{:36} {:>9} {:>9} {:>9}", "cost, ns", "low", "mid", "high"));
    for row in d.spec.costs.iter().filter(|r| d.measured.iter().any(|n| n == r.name)) {
        let c = row.cost;
        line(format!("{:36} {:9} {:9} {:9}", row.name, c.low, c.mid, c.high));
    }
    line(match &d.fit {
        Some(f) => format!(
            "\nfit: scheduler paths times {:.3}, so that `{}` under {} takes {:.0} ns\n\
             ({:.0} measured)",
            f.factor,
            fit::PING_PONG,
            f.kernel,
            f.modelled,
            m.round.threads.mid
        ),
        None => "\nfit: no factor makes the model's ping-pong as long as the measured one; the \
                 scheduler's paths keep the table's costs"
            .into(),
    });
    let percent = 100.0 * m.round.interrupted;
    line(format!(
        "a thread is interrupted for {percent:.1} % of its time, and path costs by that longer"
    ));
    line(format!("written to {}", path.display()));
    out
}

fn report_json(path: &Path, m: &Measured, d: &Derived, load: f64) -> Value {
    let sample = |(name, s): (String, Sample)| {
        let (low, median, high) = (s.low, s.mid, s.high);
        json!({"name": name, "low": low, "median": median, "high": high})
    };
    json!({
        "schema": "vruntime/calibrate/1",
        "file": path,
        "load_average": load,
        "interrupted": m.round.interrupted,
        "measured": samples(m).into_iter().map(sample).collect::<Vec<_>>(),
        "line_transfers": m.lines.iter().map(|l| {
            json!({"a": l.a, "b": l.b, "distance": l.distance.name(),
                   "low": l.took.low, "median": l.took.mid, "high": l.took.high})
        }).collect::<Vec<_>>(),
        "costs": d.spec.costs.iter()
            .filter(|r| d.measured.iter().any(|n| n == r.name))
            .map(|r| json!({"name": r.name, "cost": r.cost}))
            .collect::<Vec<_>>(),
        "fit": d.fit.as_ref().map(|f| {
            json!({"factor": f.factor, "modelled": f.modelled, "kernel": f.kernel})
        }),
    })
}

/// The first figure of /proc/loadavg; 0 where there is none.
fn load_average() -> f64 {
    let text = fs::read_to_string(PathBuf::from("/proc/loadavg")).unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// The date in UTC, as 2026-11-21.
fn today() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Year, month and day of a day since 1970-01-01: eras of 400 years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::machine_file::builtin_machine;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(civil(19_782), (2024, 2, 29));
    }

    #[test]
    fn every_pair_has_its_distance() {
        let spec = builtin_machine("milan-2s").unwrap();
        let topo = spec.build_topology().unwrap();
        let all = pairs(&topo);
        use Distance::{Llc, Package, Remote, Smt};
        let distances: Vec<_> = all.iter().map(|p| p.0).collect();
        assert_eq!(distances, [Smt, Llc, Package, Remote]);
        let n = topo.nr_cpus();
        assert_eq!(all.iter().map(|p| p.1.len()).sum::<usize>(), n * (n - 1) / 2);
    }

    /// A thread of a core cannot measure how its sibling leaves a state of the core.
    #[test]
    fn sleepers_are_woken_from_another_core() {
        let topo = builtin_machine("milan-2s").unwrap().build_topology().unwrap();
        let all = pairs(&topo);
        let (a, b) = nearest(&all).unwrap();
        assert_eq!(topo.distance(Cpu::from_ix(a), Cpu::from_ix(b)), Distance::Llc);
        // A core alone has nothing else.
        assert_eq!(nearest(&all[..1]), Some(all[0].1[0]));
        assert_eq!(nearest(&[]), None);
    }

    #[test]
    fn a_few_pairs_are_taken_from_all_over() {
        let all: Vec<Pair> = (0..100).map(|a| (a, a + 1)).collect();
        assert_eq!(spread(&all, 4), [(0, 1), (25, 26), (50, 51), (75, 76)]);
        assert_eq!(spread(&all[..2], 4), [(0, 1), (1, 2)]);
        assert!(spread(&[], 4).is_empty());
    }
}
