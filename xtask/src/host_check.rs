//! Sets real benchmarks on this machine beside the model of it and writes `docs/host-check.md`.
//!
//! The machine file is what `vruntime calibrate` last wrote; the kernel is the newest there is a
//! file of. `VRUNTIME` names the program; the default builds it.

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Real runs of each benchmark, and seeds of the model.
const RUNS: usize = 11;

/// One benchmark, pinned to CPU 0 or free.
const BENCHMARKS: [(&str, bool); 6] = [
    ("taskset -c 0 hackbench --pipe -g 1 -l 500", true),
    ("taskset -c 0 hackbench --pipe --threads -g 1 -l 500", true),
    ("taskset -c 0 perf bench sched pipe -l 50000", true),
    ("taskset -c 0 perf bench sched messaging -g 1 -l 500", true),
    ("hackbench --pipe -g 1 -l 500", false),
    ("perf bench sched pipe -l 50000", false),
];

/// What is compared.
#[derive(Default)]
struct Figures {
    /// The benchmark's own time.
    seconds: Vec<f64>,
    /// CPU time that it used.
    cpu_seconds: Vec<f64>,
    switches: Vec<f64>,
    migrations: Vec<f64>,
}

/// Measures, simulates, writes the page. `note` goes below the tables.
pub fn run(root: &Path, note: Option<&str>) -> bool {
    match page(root, note) {
        Ok(text) => std::fs::write(root.join("docs/host-check.md"), text).is_ok(),
        Err(problem) => {
            eprintln!("host-check: {problem}");
            false
        }
    }
}

fn page(root: &Path, note: Option<&str>) -> Result<String, String> {
    let kernel = newest_kernel(root)?;
    let mut out = String::from("# The model beside the machine\n\n");
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    let host = |words: &[&str]| output(words).map(|(stdout, _)| stdout.trim().to_string());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(f64::NAN);
    line(format!(
        "Written by `cargo run -p xtask -- host-check`. Machine: {}, {} CPUs,\n\
         Linux {}; model: `-m host` as `vruntime calibrate` left it, `-k {kernel}`.\n\
         Medians of {RUNS} runs and {RUNS} seeds. Load average when it began: {load}.\n",
        cpu_model(),
        host(&["nproc"])?,
        host(&["uname", "-r"])?,
    ));
    // Not `load > 0.5`: an unknown load is no quiet machine.
    if !matches!(load.partial_cmp(&0.5), Some(std::cmp::Ordering::Less)) {
        line(String::from(
            "**The machine was busy.** Other work lengthens the real times and changes who is\n\
             preempted: this page shows the form of the comparison, not its result.\n",
        ));
    }
    for pinned in [true, false] {
        line(String::from(if pinned { "## On one CPU\n" } else { "\n## On all CPUs\n" }));
        line(
            "| benchmark | | switches per message | migrations | time, ms | CPU time, ms |".into(),
        );
        line("|---|---|---:|---:|---:|---:|".into());
        for (command, _) in BENCHMARKS.iter().filter(|b| b.1 == pinned) {
            eprintln!("host-check: {command}");
            let real = measure(command)?;
            let (model, messages) = simulate(&kernel, command)?;
            let row = |who: &str, f: &Figures, name: &str| {
                format!(
                    "| {name} | {who} | {:.4} | {:.0} | {:.1} | {:.1} |",
                    median(&f.switches) / messages,
                    median(&f.migrations),
                    median(&f.seconds) * 1e3,
                    median(&f.cpu_seconds) * 1e3
                )
            };
            line(row("machine", &real, &format!("`{command}`")));
            line(row("model", &model, ""));
            let percent = |a: &[f64], b: &[f64]| match median(a) {
                0.0 => "–".to_string(),
                a => format!("{:+.1} %", (median(b) / a - 1.0) * 100.0),
            };
            line(format!(
                "| | model − machine | {} | {:+.0} | {} | {} |",
                percent(&real.switches, &model.switches),
                median(&model.migrations) - median(&real.migrations),
                percent(&real.seconds, &model.seconds),
                percent(&real.cpu_seconds, &model.cpu_seconds)
            ));
        }
    }
    if let Some(note) = note {
        line(format!("\n{note}"));
    }
    Ok(out)
}

/// The kernel file with the highest version.
fn newest_kernel(root: &Path) -> Result<String, String> {
    let files = std::fs::read_dir(root.join("kernels")).map_err(|e| format!("kernels: {e}"))?;
    let version = |name: &str| -> Option<Vec<u32>> {
        name.strip_prefix('v')?.split('.').map(|n| n.parse().ok()).collect()
    };
    let names = files.flatten().filter_map(|f| {
        f.file_name().to_str().and_then(|n| n.strip_suffix(".toml")).map(String::from)
    });
    let newest = names.filter_map(|n| version(&n).map(|v| (v, n))).max();
    newest.map(|(_, name)| name).ok_or_else(|| "kernels: no file such as v6.12.toml".into())
}

/// The benchmark on this machine, under `perf stat`.
fn measure(command: &str) -> Result<Figures, String> {
    let events = "context-switches,cpu-migrations,task-clock";
    let mut figures = Figures::default();
    for _ in 0..RUNS {
        let mut words = vec!["perf", "stat", "-x", ",", "-e", events, "--"];
        words.extend(command.split(' '));
        let (stdout, stderr) = output(&words)?;
        figures.seconds.push(own_time(&stdout).ok_or_else(|| format!("{command}: {stdout}"))?);
        let count = |name: &str| {
            let row = stderr.lines().find(|l| l.contains(name));
            let value = row.and_then(|l| l.split(',').next()?.parse::<f64>().ok());
            value.ok_or_else(|| format!("{command}: perf stat counts no {name}: {stderr}"))
        };
        figures.switches.push(count("context-switches")?);
        figures.migrations.push(count("cpu-migrations")?);
        figures.cpu_seconds.push(count("task-clock")? / 1e3);
    }
    Ok(figures)
}

/// The seconds in `Time: 0.107` (hackbench) or `Total time: 0.066 [sec]` (perf bench).
fn own_time(text: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.to_ascii_lowercase().contains("time:"))?;
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

/// The model of the same, and the messages of one run.
fn simulate(kernel: &str, command: &str) -> Result<(Figures, f64), String> {
    let program = std::env::var("VRUNTIME").unwrap_or_default();
    let mut words: Vec<&str> = match program.as_str() {
        "" => ["cargo", "run", "--release", "-q", "-p", "vruntime", "--"].to_vec(),
        path => vec![path],
    };
    let seeds = RUNS.to_string();
    words.extend(["run", "-q", "--json", "--full", "-m", "host", "-k", kernel]);
    words.extend(["--seeds", &seeds, "-w", command]);
    let (stdout, _) = output(&words)?;
    let json: Value = serde_json::from_str(&stdout).map_err(|e| format!("{command}: {e}"))?;
    let mut figures = Figures::default();
    let mut messages = 0.0;
    for run in json["runs"].as_array().into_iter().flatten() {
        let number = |v: &Value, what: &str| {
            v.as_f64().ok_or_else(|| format!("{command}: the model gives no {what}"))
        };
        let counters = &run["counters"];
        figures.seconds.push(number(&run["time_ns"], "time")? / 1e9);
        figures.switches.push(number(&counters["context_switches"], "switches")?);
        figures.migrations.push(number(&counters["cpu_migrations"], "migrations")?);
        let busy = run["cpu_time"].as_object().into_iter().flatten().filter(|(f, _)| *f != "idle");
        figures.cpu_seconds.push(busy.filter_map(|(_, v)| v.as_f64()).sum::<f64>() / 1e9);
        messages = number(&counters["messages"], "messages")?;
    }
    Ok((figures, messages))
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split_once(':')).map_or("unknown CPU".into(), |(_, n)| n.trim().into())
}

/// Stdout and stderr of a command that must succeed.
fn output(words: &[&str]) -> Result<(String, String), String> {
    let result = Command::new(words[0]).args(&words[1..]).env("LC_ALL", "C").output();
    let result = result.map_err(|e| format!("{}: {e}", words[0]))?;
    let stderr = String::from_utf8_lossy(&result.stderr).into_owned();
    if !result.status.success() {
        return Err(format!("{}: {}: {stderr}", words.join(" "), result.status));
    }
    Ok((String::from_utf8_lossy(&result.stdout).into_owned(), stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_tools() {
        assert_eq!(own_time("Running in\nTime: 0.107\n"), Some(0.107));
        assert_eq!(own_time("# Running\n\n     Total time: 0.066 [sec]\n"), Some(0.066));
        assert_eq!(own_time("nothing"), None);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert!(median(&[]).is_nan());
    }
}
