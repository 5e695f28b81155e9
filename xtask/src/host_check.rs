//! Sets real benchmarks on this machine beside the model of it and writes `docs/host-check.md`.
//!
//! The machine file is what `vruntime calibrate` last wrote; the kernel is the newest there is a
//! file of. `VRUNTIME` names the program; the default builds it. `VRUNTIME_RUNS` is a number of
//! runs for all benchmarks.

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A command line, and how often it is run here and simulated.
struct Benchmark {
    command: &'static str,
    /// To CPU 0.
    pinned: bool,
    runs: usize,
}

const fn benchmark(command: &'static str, pinned: bool, runs: usize) -> Benchmark {
    Benchmark { command, pinned, runs }
}

/// Switches per message vary between runs by a third of their mean and more. About 5 minutes.
const BENCHMARKS: [Benchmark; 6] = [
    benchmark("taskset -c 0 hackbench --pipe -g 1 -l 500", true, 30),
    benchmark("taskset -c 0 hackbench --pipe --threads -g 1 -l 500", true, 30),
    benchmark("taskset -c 0 perf bench sched pipe -l 50000", true, 30),
    benchmark("taskset -c 0 perf bench sched messaging -g 1 -l 500", true, 30),
    benchmark("hackbench --pipe -g 1 -l 500", false, 30),
    benchmark("perf bench sched pipe -l 50000", false, 10),
];

/// CPUs' worth of other work above which a machine is busy.
const BUSY: f64 = 0.05;

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
    let mut tables = String::new();
    let mut busiest: f64 = 0.0;
    for pinned in [true, false] {
        tables += if pinned { "## On one CPU\n" } else { "\n## On all CPUs\n" };
        tables += HEAD;
        for benchmark in BENCHMARKS.iter().filter(|b| b.pinned == pinned) {
            eprintln!("host-check: {}", benchmark.command);
            let (rows, others) = compare(&kernel, benchmark)?;
            tables += &rows;
            busiest = busiest.max(others);
        }
    }
    let host = |words: &[&str]| output(words).map(|(stdout, _)| stdout.trim().to_string());
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    line(format!(
        "Written by `cargo run -p xtask -- host-check`. Machine: {}, {} CPUs,\n\
         Linux {}; model: `-m host` as `vruntime calibrate` left it, `-k {kernel}`.\n\
         Means ± their standard errors, over as many runs as seeds. Counts and CPU time are\n\
         of runs under `perf stat`, which lengthens every switch; times are of runs by\n\
         themselves. While a benchmark ran, other work took {busiest:.2} CPUs at the most.\n",
        cpu_model(),
        host(&["nproc"])?,
        host(&["uname", "-r"])?,
    ));
    if busiest > BUSY {
        line(String::from(
            "**The machine was busy.** Other work lengthens the real times and changes who is\n\
             preempted: this page shows the form of the comparison, not its result.\n",
        ));
    }
    out += &tables;
    if let Some(note) = note {
        writeln!(out, "\n{note}").expect("a string grows");
    }
    Ok(out)
}

const HEAD: &str = "
| benchmark | | switches per message | migrations | time, ms | CPU time, ms | other work, CPUs |
|---|---|---:|---:|---:|---:|---:|
";

/// The rows of one benchmark, and how many CPUs others used while it ran here.
fn compare(kernel: &str, benchmark: &Benchmark) -> Result<(String, f64), String> {
    let command = benchmark.command;
    let runs = match std::env::var("VRUNTIME_RUNS") {
        Ok(n) => n
            .parse()
            .ok()
            .filter(|n| *n > 1)
            .ok_or_else(|| format!("VRUNTIME_RUNS={n}: expected a whole number from 2"))?,
        Err(_) => benchmark.runs,
    };
    let before = Ticks::now()?;
    let real = measure(command, runs)?;
    let others = before.others_until(&Ticks::now()?);
    let (model, messages) = simulate(kernel, command, runs)?;
    let row = |name: &str, who: &str, f: &Figures, others: &str| {
        format!(
            "| {name} | {who} | {} | {} | {} | {} | {others} |\n",
            Mean::of(&f.switches).times(1.0 / messages).text(4),
            Mean::of(&f.migrations).text(1),
            Mean::of(&f.seconds).times(1e3).text(1),
            Mean::of(&f.cpu_seconds).times(1e3).text(1)
        )
    };
    let mut rows =
        row(&format!("`{command}`, {runs} runs"), "machine", &real, &format!("{others:.2}"));
    rows += &row("", "model", &model, "");
    let percent = |real: &[f64], model: &[f64]| Mean::of(model).percent_over(&Mean::of(real));
    let (m, r) = (Mean::of(&model.migrations), Mean::of(&real.migrations));
    rows += &format!(
        "| | model − machine | {} | {:+.1} ± {:.1} | {} | {} | |\n",
        percent(&real.switches, &model.switches),
        m.mean - r.mean,
        m.error.hypot(r.error),
        percent(&real.seconds, &model.seconds),
        percent(&real.cpu_seconds, &model.cpu_seconds)
    );
    Ok((rows, others))
}

/// A mean and its standard error.
#[derive(Clone, Copy)]
struct Mean {
    mean: f64,
    error: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Mean {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Mean { mean, error: (squares / (n - 1.0) / n).sqrt() }
    }
    fn times(self, factor: f64) -> Mean {
        Mean { mean: self.mean * factor, error: self.error * factor }
    }
    fn text(self, digits: usize) -> String {
        format!("{:.digits$} ± {:.digits$}", self.mean, self.error)
    }
    /// How many percent more it is than `base`; errors of a quotient add up as squares.
    fn percent_over(self, base: &Mean) -> String {
        if base.mean == 0.0 || self.mean == 0.0 {
            return "–".into();
        }
        let quotient = self.mean / base.mean;
        let error = quotient * (self.error / self.mean).hypot(base.error / base.mean);
        format!("{:+.1} ± {:.1} %", (quotient - 1.0) * 100.0, error * 100.0)
    }
}

/// Ticks of CPU time since boot.
struct Ticks {
    nr_cpus: f64,
    all: f64,
    /// Not idle, time that a hypervisor took away included.
    busy: f64,
    /// Of this process and the children that it waited for.
    own: f64,
}

impl Ticks {
    fn now() -> Result<Ticks, String> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (stat, own) = (read("/proc/stat")?, read("/proc/self/stat")?);
        Ticks::of(&stat, &own).ok_or_else(|| "/proc/stat, /proc/self/stat: not as expected".into())
    }

    fn of(stat: &str, own: &str) -> Option<Ticks> {
        // user nice system idle iowait irq softirq steal; then guests, which user contains.
        let row: Vec<f64> = numbers(stat.lines().next()?.strip_prefix("cpu ")?).take(8).collect();
        let all: f64 = row.iter().sum();
        // Behind the name: the state, 10 fields, then utime stime cutime cstime.
        let own = own.rsplit_once(')')?.1.trim_start().split_once(' ')?.1;
        Some(Ticks {
            nr_cpus: stat.lines().filter(|l| l.starts_with("cpu")).count() as f64 - 1.0,
            all,
            busy: all - row.get(3)? - row.get(4)?,
            own: numbers(own).skip(10).take(4).sum(),
        })
    }

    /// CPUs that were busy on average until `end`, but not with this process or its children.
    fn others_until(&self, end: &Ticks) -> f64 {
        let others = (end.busy - self.busy) - (end.own - self.own);
        (others / (end.all - self.all) * end.nr_cpus).max(0.0)
    }
}

fn numbers(text: &str) -> impl Iterator<Item = f64> + '_ {
    text.split_whitespace().map_while(|n| n.parse().ok())
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

/// The benchmark on this machine: its time by itself, then its counts under `perf stat`, which
/// lengthens every switch.
fn measure(command: &str, runs: usize) -> Result<Figures, String> {
    let events = "context-switches,cpu-migrations,task-clock";
    let mut figures = Figures::default();
    for _ in 0..runs {
        let alone: Vec<&str> = command.split(' ').collect();
        let (stdout, _) = output(&alone)?;
        figures.seconds.push(own_time(&stdout).ok_or_else(|| format!("{command}: {stdout}"))?);
        let mut counted = vec!["perf", "stat", "-x", ",", "-e", events, "--"];
        counted.extend(&alone);
        let (_, stderr) = output(&counted)?;
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
fn simulate(kernel: &str, command: &str, runs: usize) -> Result<(Figures, f64), String> {
    let program = std::env::var("VRUNTIME").unwrap_or_default();
    let mut words: Vec<&str> = match program.as_str() {
        "" => ["cargo", "run", "--release", "-q", "-p", "vruntime", "--"].to_vec(),
        path => vec![path],
    };
    let seeds = runs.to_string();
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
    fn means_have_errors() {
        // The variance is 2, that of the mean of two is 1.
        let m = Mean::of(&[9.0, 11.0]);
        assert_eq!((m.mean, m.error), (10.0, 1.0));
        let (base, more) = (Mean { mean: 10.0, error: 0.3 }, Mean { mean: 20.0, error: 0.8 });
        // 3 % and 4 % are 5 % together, of a quotient of 2.
        assert_eq!(more.percent_over(&base), "+100.0 ± 10.0 %");
        assert_eq!(Mean { mean: 0.0, error: 0.0 }.percent_over(&base), "–");
    }

    #[test]
    fn other_work_is_what_we_did_not_do() {
        let stat = |user: u32, idle: u32, steal: u32| {
            format!("cpu  {user} 0 50 {idle} 10 0 0 {steal} 7 0\ncpu0 1\ncpu1 1\nintr 5\n")
        };
        let own = |ticks: u32| format!("7 (a) b) R 1 2 3 4 5 6 7 8 9 10 {ticks} 1 {ticks} 1 20");
        let before = Ticks::of(&stat(100, 1000, 0), &own(10)).unwrap();
        // 200 ticks on 2 CPUs: 120 user, 10 stolen, 70 idle; ours are 40, our children's 40.
        let after = Ticks::of(&stat(220, 1070, 10), &own(50)).unwrap();
        assert_eq!(before.others_until(&after), 0.5);
        assert!(Ticks::of("cpux", "").is_none());
    }
}
