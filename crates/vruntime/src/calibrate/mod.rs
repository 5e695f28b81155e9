//! `vruntime calibrate`: measures this machine and writes the machine file that `-m host` reads.
//!
//! `probe` measures, `derive` turns measurements into costs, `fit` finds the one fitted factor,
//! `file` writes. What each cost is made from is documented in `docs/calibrate.md`.

mod derive;
mod file;
mod fit;
mod probe;

use crate::cli::CalibrateArgs;
use crate::failure::{Done, Failure, writable};
use crate::machine_choice::calibrated;
use derive::{Derived, Measured, derive};
use probe::Sample;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};
use vruntime_base::Cpu;
use vruntime_formats::machine_file::sysfs_machine;
use vruntime_machine::{Distance, Topology};

/// Short enough for a CPU to be found polling, where it polls at all.
const SHORT_GAP: Duration = Duration::from_micros(20);
/// Long enough for a halt.
const LONG_GAP: Duration = Duration::from_millis(2);

/// Measures, derives, writes, reports.
pub fn calibrate(args: &CalibrateArgs) -> Result<Done, Failure> {
    if let Some(cpu) = args.echo {
        let failed = |e: io::Error| Failure::Input(format!("echo: {e}"));
        probe::echo(cpu, io::stdin().lock(), io::stdout()).map_err(failed)?;
        return Ok(Done::new(String::new()));
    }
    let path = args.output.clone().or_else(calibrated).ok_or_else(|| {
        Failure::Usage("neither XDG_CACHE_HOME nor HOME is set: where to? Use -o FILE".into())
    })?;
    writable(&path)?;
    let base = sysfs_machine(Path::new("/sys"))?;
    let topo = base.topology.build(base.arch).map_err(|e| Failure::Input(e.to_string()))?;
    let load = load_average();
    if load > 0.5 {
        eprintln!("vruntime: load average {load}: other work disturbs the measurement");
    }
    let failed = |e: io::Error| Failure::Input(format!("measuring: {e}"));
    let measured = measure(&topo).map_err(failed)?;
    let origin = format!("measured by vruntime calibrate on {}", today());
    let derived = derive(&base, &measured, &origin);
    let head = format!("The machine this was run on, {origin}, load average {load}.");
    let text = file::text(&derived.spec, &derived.measured, &head)
        .map_err(|e| Failure::Input(format!("{}: {e}", path.display())))?;
    write(&path, &text)?;
    if args.json {
        return Ok(Done::json(&report_json(&path, &measured, &derived, load)));
    }
    Ok(Done::new(report(&path, &measured, &derived)))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::Input(format!("{}: {e}", path.display()));
    fs::write(path, text).map_err(failed)
}

fn measure(topo: &Topology) -> io::Result<Measured> {
    let (write, read) = probe::pipe(0)?;
    let (mut lines, mut wakeups) = (Vec::new(), Vec::new());
    for (distance, a, b) in pairs(topo) {
        lines.push((distance, probe::line_transfer(a, b)?));
        let short = probe::wakeup(a, b, SHORT_GAP, 2_000)?;
        wakeups.push((distance, short, probe::wakeup(a, b, LONG_GAP, 300)?));
    }
    Ok(Measured {
        syscall: probe::syscall(0)?,
        write,
        read,
        threads: probe::threads_round_trip(0)?,
        processes: probe::processes_round_trip(0)?,
        lines,
        wakeups,
        long_gap: LONG_GAP.as_nanos() as u64,
    })
}

/// For every distance that occurs, CPU 0 (or the first CPU that has one) and the farthest-numbered
/// CPU at that distance.
fn pairs(topo: &Topology) -> Vec<(Distance, usize, usize)> {
    let n = topo.nr_cpus();
    let find = |d: Distance| {
        let at = |a: usize| {
            let fits = |b: &usize| topo.distance(Cpu::from_ix(a), Cpu::from_ix(*b)) == d;
            (a + 1..n).rev().find(fits).map(|b| (d, a, b))
        };
        (0..n).find_map(at)
    };
    Distance::ALL.into_iter().filter(|d| *d != Distance::Same).filter_map(find).collect()
}

/// Name and value of everything measured.
fn samples(m: &Measured) -> Vec<(String, Sample)> {
    let mut rows = vec![
        ("system call (getppid)".to_string(), m.syscall),
        ("pipe write, 100 bytes".into(), m.write),
        ("pipe read, 100 bytes".into(), m.read),
        ("round trip, 2 threads, 1 CPU".into(), m.threads),
        ("round trip, 2 processes, 1 CPU".into(), m.processes),
    ];
    let name = |d: &Distance| format!("{d:?}").to_lowercase();
    rows.extend(m.lines.iter().map(|(d, s)| (format!("line transfer, {}", name(d)), *s)));
    for (d, short, long) in &m.wakeups {
        rows.push((format!("wakeup after 20 us, {}", name(d)), *short));
        rows.push((format!("wakeup after 2 ms, {}", name(d)), *long));
    }
    rows
}

fn report(path: &Path, m: &Measured, d: &Derived) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    line(format!("{:32} {:>9} {:>9} {:>9}", "measured, ns", "10 %", "median", "90 %"));
    for (name, s) in samples(m) {
        line(format!("{name:32} {:9.1} {:9.1} {:9.1}", s.low, s.mid, s.high));
    }
    line(format!("\n{:32} {:>9} {:>9} {:>9}", "cost, ns", "low", "mid", "high"));
    for row in d.spec.costs.iter().filter(|r| d.measured.iter().any(|n| n == r.name)) {
        let c = row.cost;
        line(format!("{:32} {:9} {:9} {:9}", row.name, c.low, c.mid, c.high));
    }
    line(match &d.fit {
        Some(f) => format!(
            "\nfit: scheduler paths times {:.3}, so that `{}` under {} takes {:.0} ns\n\
             ({:.0} measured)",
            f.factor,
            fit::PING_PONG,
            f.kernel,
            f.modelled,
            m.threads.mid
        ),
        None => "\nfit: no factor makes the model's ping-pong as long as the measured one; the \
                 scheduler's paths keep the table's costs"
            .into(),
    });
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
        "measured": samples(m).into_iter().map(sample).collect::<Vec<_>>(),
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
    fn one_pair_for_each_distance() {
        let spec = builtin_machine("milan-2s").unwrap();
        let topo = spec.topology.build(spec.arch).unwrap();
        let distances: Vec<_> = pairs(&topo).iter().map(|p| p.0).collect();
        use Distance::{Llc, Package, Remote, Smt};
        assert_eq!(distances, [Smt, Llc, Package, Remote]);
    }
}
