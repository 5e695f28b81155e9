//! Sets real benchmarks on this machine beside the model of it and writes `docs/host-check.md`.
//!
//! The speed of a shared machine changes by a half within minutes. So it is measured in rounds:
//! each calibrates, runs every benchmark a few times, and simulates it on what was calibrated; a
//! difference is the mean of the rounds' differences, and its error follows from their spread. The
//! kernel is the one that the calibration takes for the one running here. `VRUNTIME` names the
//! program; the default builds it. `VRUNTIME_ROUNDS` is the number of rounds.

use crate::host_timers::{self, Timers};
use crate::host_tries::{self, Able, MIGRATIONS};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::Value;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A command line, and how often each round runs and simulates it.
struct Benchmark {
    command: &'static str,
    /// To CPU 0.
    pinned: bool,
    runs: usize,
}

const fn benchmark(command: &'static str, pinned: bool, runs: usize) -> Benchmark {
    Benchmark { command, pinned, runs }
}

/// Switches per message vary between runs of a second by a fifth of their mean.
const BENCHMARKS: [Benchmark; 6] = [
    benchmark("taskset -c 0 hackbench --pipe -g 1 -l 5000", true, 4),
    benchmark("taskset -c 0 hackbench --pipe --threads -g 1 -l 5000", true, 4),
    benchmark("taskset -c 0 perf bench sched pipe -l 50000", true, 4),
    benchmark("taskset -c 0 perf bench sched messaging -g 1 -l 2000", true, 4),
    benchmark("hackbench --pipe -g 1 -l 5000", false, 4),
    benchmark("perf bench sched pipe -l 50000", false, 2),
];

/// What they are run with, and the Debian package that each is in.
const PROGRAMS: [(&str, &str); 4] = [
    ("taskset", "util-linux"),
    ("hackbench", "rt-tests"),
    ("cyclictest", "rt-tests"),
    ("perf", "linux-perf"),
];

/// About a minute each.
const ROUNDS: usize = 10;

/// CPUs' worth of other work above which a machine is busy: then a benchmark does not count in
/// that round.
const BUSY: f64 = 0.05;

/// What is compared: values of single runs.
#[derive(Default)]
struct Figures {
    /// The benchmark's own time.
    seconds: Vec<f64>,
    /// CPU time that it used.
    cpu_seconds: Vec<f64>,
    /// Switches away from its tasks, voluntary and involuntary, a message.
    switches: Vec<f64>,
    migrations: Vec<f64>,
}

/// One benchmark in one round.
struct Pair {
    machine: Figures,
    model: Figures,
    /// CPUs that others used meanwhile.
    others: f64,
}

/// Measures, simulates, writes the page. `note` goes below the tables.
pub fn run(root: &Path, note: Option<&str>) -> bool {
    let path = root.join("docs/host-check.md");
    let write = |text| std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()));
    match page(note).and_then(write) {
        Ok(()) => true,
        Err(problem) => {
            eprintln!("host-check: {problem}");
            false
        }
    }
}

/// What one round found.
struct Round {
    /// The model's kernel.
    kernel: String,
    /// What `calibrate` says where one CPU cannot stand for all.
    cpus_differ: Option<String>,
    pairs: Vec<Pair>,
    timers: Vec<Timers>,
}

/// Calibrates, then every benchmark and timer, on the machine and in the model.
fn one_round(machine: &str, round: usize, able: &Able) -> Result<Round, String> {
    let json = vruntime(&["calibrate", "--json", "-o", machine])?;
    let (kernel, cpus_differ) = of_calibration(&json)?;
    let of_benchmark = |b: &Benchmark| {
        eprintln!("host-check: {}", b.command);
        pair(&kernel, machine, b, round, able.migrations)
    };
    let of_timer = |command: &&str| {
        eprintln!("host-check: {command}");
        host_timers::pair(&kernel, machine, command, round)
    };
    let pairs = BENCHMARKS.iter().map(of_benchmark).collect::<Result<_, _>>()?;
    let timers = able.timers.iter().map(of_timer).collect::<Result<_, _>>()?;
    Ok(Round { kernel, cpus_differ, pairs, timers })
}

/// The kernel that the calibration took for the running one, and what it says of CPUs that differ.
fn of_calibration(json: &str) -> Result<(String, Option<String>), String> {
    let report: Value = serde_json::from_str(json).map_err(|e| format!("calibrate: {e}"))?;
    let text = |name: &str| report[name].as_str().map(String::from);
    let kernel = text("kernel").ok_or("calibrate: no kernel stands for the running one")?;
    Ok((kernel, text("cpus_differ")))
}

fn page(note: Option<&str>) -> Result<String, String> {
    all_installed(&std::env::var_os("PATH").unwrap_or_default())?;
    let rounds = rounds()?;
    let able = host_tries::able(&output);
    able.left_out.iter().for_each(|problem| eprintln!("host-check: left out: {problem}"));
    let machine_file = std::env::temp_dir().join(format!("host-check-{}.toml", std::process::id()));
    let machine = machine_file.to_str().ok_or("the folder for temporary files is not UTF-8")?;
    let mut pairs: Vec<Vec<Pair>> = BENCHMARKS.iter().map(|_| Vec::new()).collect();
    let mut timers: Vec<Vec<Timers>> = able.timers.iter().map(|_| Vec::new()).collect();
    let (mut failed, mut of_model, mut cpus_differ) = (Vec::new(), String::new(), None);
    for round in 0..rounds {
        eprintln!("host-check: round {} of {rounds}: calibrates", round + 1);
        match one_round(machine, round, &able) {
            Ok(new) => {
                pairs.iter_mut().zip(new.pairs).for_each(|(all, p)| all.push(p));
                timers.iter_mut().zip(new.timers).for_each(|(all, t)| all.push(t));
                (of_model, cpus_differ) = (new.kernel, new.cpus_differ);
            }
            // Minutes of other rounds are not lost with it.
            Err(problem) => {
                eprintln!("host-check: round {} is left out: {problem}", round + 1);
                failed.push(problem);
            }
        }
        if round == 1 && failed.len() == 2 {
            break;
        }
    }
    // What it says is in the page.
    let _ = std::fs::remove_file(&machine_file);
    let rounds = pairs[0].len();
    if rounds < 2 {
        return Err(format!("{rounds} rounds succeeded, expected 2: {}", failed.join("; ")));
    }
    let dropped: usize = pairs.iter_mut().map(drop_disturbed).sum();
    let busiest = pairs.iter().flatten().map(|p| p.others).fold(0.0, f64::max);

    let mut out = String::from("# The model beside the machine\n\n");
    let host = |words: &[&str]| output(words).map(|(stdout, _)| stdout.trim().to_string());
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    line(format!(
        "Written by `cargo run -p xtask -- host-check`. Machine: {}, {} CPUs,\n\
         Linux {}; model: `-k {of_model}` on what `vruntime calibrate` measured just before,\n\
         in each of {rounds} rounds. Means ± their standard errors, over as many runs as seeds;\n\
         differences are those of the rounds. Switches and CPU time are `getrusage`'s, which\n\
         slows nothing, and of the whole command: to load one takes 7 to 32 ms that the model has\n\
         not; migrations are from one run a round under `perf stat`. While a benchmark ran, other\n\
         work took {busiest:.2} CPUs at the most; {dropped} of {} in which it took more than\n\
         {BUSY} do not count.\n",
        cpu_model(),
        host(&["nproc"])?,
        host(&["uname", "-r"])?,
        rounds * BENCHMARKS.len(),
    ));
    for problem in &failed {
        let first = problem.lines().next().unwrap_or_default();
        line(format!("One more round is left out: `{first}`\n"));
    }
    for problem in &able.left_out {
        line(format!("Left out, as this machine does not allow it: {problem}\n"));
    }
    if let Some(differ) = cpus_differ {
        line(format!("{differ}.\n"));
    }
    if busiest > BUSY {
        line(String::from(
            "**The machine was busy.** Other work lengthens the real times and changes who is\n\
             preempted: this page shows the form of the comparison, not its result.\n",
        ));
    }
    for (pinned, title) in [(true, "## On one CPU\n"), (false, "\n## On all CPUs\n")] {
        out += title;
        out += HEAD;
        for (b, pairs) in BENCHMARKS.iter().zip(&pairs).filter(|(b, _)| b.pinned == pinned) {
            out += &rows(b, pairs);
        }
    }
    out += &host_timers::section(&able.timers, &timers);
    if let Some(note) = note {
        writeln!(out, "\n{note}").expect("a string grows");
    }
    Ok(out)
}

/// An error that names the first program that is in no folder of `path`.
fn all_installed(path: &OsStr) -> Result<(), String> {
    let found = |program: &str| std::env::split_paths(path).any(|dir| dir.join(program).is_file());
    match PROGRAMS.iter().find(|(program, _)| !found(program)) {
        Some((program, package)) => Err(format!("no `{program}` here: install {package}")),
        None => Ok(()),
    }
}

/// Drops the rounds of a benchmark that other work disturbed, unless fewer than two were calm;
/// returns how many.
fn drop_disturbed(pairs: &mut Vec<Pair>) -> usize {
    let all = pairs.len();
    if pairs.iter().filter(|p| p.others <= BUSY).count() > 1 {
        pairs.retain(|p| p.others <= BUSY);
    }
    all - pairs.len()
}

fn rounds() -> Result<usize, String> {
    let Ok(n) = std::env::var("VRUNTIME_ROUNDS") else { return Ok(ROUNDS) };
    let number = n.parse().ok().filter(|n| *n > 1);
    number.ok_or_else(|| format!("VRUNTIME_ROUNDS={n}: expected a whole number from 2"))
}

const HEAD: &str = "
| benchmark | | switches per message | migrations | time, ms | CPU time, ms | other work, CPUs |
|---|---|---:|---:|---:|---:|---:|
";

/// One benchmark, here and simulated.
fn pair(
    kernel: &str,
    machine: &str,
    benchmark: &Benchmark,
    round: usize,
    migrations: bool,
) -> Result<Pair, String> {
    let before = Ticks::now()?;
    let real = measure(benchmark, migrations)?;
    let others = before.others_until(&Ticks::now()?);
    let model = simulate(kernel, machine, benchmark, round)?;
    Ok(Pair { machine: real, model, others })
}

/// The rows of a benchmark.
fn rows(benchmark: &Benchmark, pairs: &[Pair]) -> String {
    let row = |name: &str, who: &str, of: fn(&Pair) -> &Figures, others: &str| {
        let mean = |figure: fn(&Figures) -> &Vec<f64>| {
            Mean::of(&pairs.iter().flat_map(|p| figure(of(p)).clone()).collect::<Vec<_>>())
        };
        format!(
            "| {name} | {who} | {} | {} | {} | {} | {others} |\n",
            mean(|f| &f.switches).text(4),
            mean(|f| &f.migrations).text(1),
            mean(|f| &f.seconds).times(1e3).text(1),
            mean(|f| &f.cpu_seconds).times(1e3).text(1)
        )
    };
    let others = pairs.iter().map(|p| p.others).sum::<f64>() / pairs.len() as f64;
    let name = format!("`{}`, {} runs", benchmark.command, benchmark.runs * pairs.len());
    let mut rows = row(&name, "machine", |p| &p.machine, &format!("{others:.2}"));
    rows += &row("", "model", |p| &p.model, "");
    let percent = |figure: fn(&Figures) -> &Vec<f64>| {
        percent_over(pairs.iter().map(|p| (figure(&p.machine), figure(&p.model))))
    };
    rows += &format!(
        "| | model − machine | {} | | {} | {} | |\n",
        percent(|f| &f.switches),
        percent(|f| &f.seconds),
        percent(|f| &f.cpu_seconds)
    );
    rows
}

/// How many percent more the second of each pair is than the first: the mean of the pairs'
/// logarithms, so that neither side counts more, and its standard error.
pub fn percent_over<'a>(pairs: impl Iterator<Item = (&'a Vec<f64>, &'a Vec<f64>)>) -> String {
    let logs: Vec<f64> = pairs.map(|(a, b)| (Mean::of(b).mean / Mean::of(a).mean).ln()).collect();
    if !logs.iter().all(|l| l.is_finite()) {
        return "–".into();
    }
    let log = Mean::of(&logs);
    let quotient = log.mean.exp();
    format!("{:+.1} ± {:.1} %", (quotient - 1.0) * 100.0, quotient * log.error * 100.0)
}

/// A mean and its standard error.
#[derive(Clone, Copy)]
pub struct Mean {
    mean: f64,
    error: f64,
}

impl Mean {
    pub fn of(values: &[f64]) -> Mean {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Mean { mean, error: (squares / (n - 1.0) / n).sqrt() }
    }
    fn times(self, factor: f64) -> Mean {
        Mean { mean: self.mean * factor, error: self.error * factor }
    }
    pub fn text(self, digits: usize) -> String {
        if self.mean.is_nan() {
            return "–".into();
        }
        format!("{:.digits$} ± {:.digits$}", self.mean, self.error)
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

/// The benchmark on this machine: by itself, then its `migrations` under `perf stat`.
fn measure(benchmark: &Benchmark, migrations: bool) -> Result<Figures, String> {
    let command: Vec<&str> = benchmark.command.split(' ').collect();
    let messages = messages(&command)?;
    let mut figures = Figures::default();
    for _ in 0..benchmark.runs {
        let before = children()?;
        let (stdout, _) = output(&command)?;
        let after = children()?;
        let switches =
            |u: &Usage| u.voluntary_context_switches() + u.involuntary_context_switches();
        let cpu_time = |u: &Usage| (u.user_time() + u.system_time()).num_microseconds() as f64;
        let seconds =
            own_time(&stdout).ok_or_else(|| format!("{}: {stdout}", command.join(" ")))?;
        figures.seconds.push(seconds);
        figures.switches.push((switches(&after) - switches(&before)) as f64 / messages);
        figures.cpu_seconds.push((cpu_time(&after) - cpu_time(&before)) / 1e6);
    }
    if migrations {
        let (_, stderr) = output(&[&MIGRATIONS[..], &command].concat())?;
        figures.migrations.push(host_tries::counted(&stderr)?);
    }
    Ok(figures)
}

/// What the children used that this process has waited for, and theirs.
fn children() -> Result<Usage, String> {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|e| format!("getrusage: {e}"))
}

/// Messages of one run: 20 senders a group send each loop's to 20 receivers; in `perf bench sched
/// pipe` two tasks send one each.
fn messages(command: &[&str]) -> Result<f64, String> {
    let option = |name: &str| {
        let value = command.iter().skip_while(|w| **w != name).nth(1);
        value.and_then(|v| v.parse::<f64>().ok())
    };
    let loops = option("-l").ok_or_else(|| format!("{}: no -l", command.join(" ")))?;
    Ok(loops * option("-g").map_or(2.0, |groups| groups * 400.0))
}

/// The seconds in `Time: 0.107` (hackbench) or `Total time: 0.066 [sec]` (perf bench).
fn own_time(text: &str) -> Option<f64> {
    let line = text.lines().find(|l| l.to_ascii_lowercase().contains("time:"))?;
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

/// The JSON of so many runs of `command` to its end; every round has its own seeds.
pub fn whole_runs(
    kernel: &str,
    machine: &str,
    command: &str,
    runs: usize,
    round: usize,
) -> Result<Value, String> {
    let (seeds, kernel) = (runs.to_string(), format!("{kernel}+seed_offset={}", round * runs));
    let mut words = vec!["run", "-q", "--json", "--full", "-m", machine, "-k", &kernel];
    words.extend(["--seeds", &seeds, "-w", command]);
    serde_json::from_str(&vruntime(&words)?).map_err(|e| format!("{command}: {e}"))
}

/// The model of the same.
fn simulate(
    kernel: &str,
    machine: &str,
    benchmark: &Benchmark,
    round: usize,
) -> Result<Figures, String> {
    let command = benchmark.command;
    let json = whole_runs(kernel, machine, command, benchmark.runs, round)?;
    let mut figures = Figures::default();
    for run in json["runs"].as_array().into_iter().flatten() {
        let number = |v: &Value, what: &str| {
            v.as_f64().ok_or_else(|| format!("{command}: the model gives no {what}"))
        };
        let counter = |name: &str| number(&run["counters"][name], name);
        let switches = counter("voluntary_switches")? + counter("involuntary_switches")?;
        figures.seconds.push(number(&run["time_ns"], "time")? / 1e9);
        figures.switches.push(switches / counter("messages")?);
        figures.migrations.push(counter("cpu_migrations")?);
        figures.cpu_seconds.push(counter("task_clock_ns")? / 1e9);
    }
    Ok(figures)
}

/// Stdout of the program.
fn vruntime(args: &[&str]) -> Result<String, String> {
    let program = std::env::var("VRUNTIME").unwrap_or_default();
    let mut words: Vec<&str> = match program.as_str() {
        "" => ["cargo", "run", "--release", "-q", "-p", "vruntime", "--"].to_vec(),
        path => vec![path],
    };
    words.extend(args);
    Ok(output(&words)?.0)
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split_once(':')).map_or("unknown CPU".into(), |(_, n)| n.trim().into())
}

/// Stdout and stderr of a command that must succeed.
pub fn output(words: &[&str]) -> Result<(String, String), String> {
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
    fn a_missing_program_is_named_with_its_package() {
        let dir = std::env::temp_dir().join(format!("programs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.as_os_str();
        let put = |name: &str| std::fs::write(dir.join(name), "").unwrap();
        put("taskset");
        let missing = "no `hackbench` here: install rt-tests";
        assert_eq!(all_installed(path), Err(missing.to_string()));
        ["hackbench", "cyclictest", "perf"].iter().for_each(|name| put(name));
        assert_eq!(all_installed(path), Ok(()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn means_have_errors() {
        // The variance is 2, that of the mean of two is 1.
        let m = Mean::of(&[9.0, 11.0]);
        assert_eq!((m.mean, m.error), (10.0, 1.0));
        // What was left out.
        assert_eq!(Mean::of(&[]).text(1), "–");
    }

    /// Twice as much in one round, eight times in the other: four times, a factor of two at most
    /// in either direction; whatever else changed between the rounds does not count.
    #[test]
    fn differences_are_those_of_rounds() {
        let rounds = [(vec![9.0, 11.0], vec![20.0]), (vec![100.0], vec![700.0, 900.0])];
        let text = percent_over(rounds.iter().map(|(a, b)| (a, b)));
        assert_eq!(text, format!("+300.0 ± {:.1} %", 400.0 * 2f64.ln()));
        let none = [(vec![0.0], vec![1.0])];
        assert_eq!(percent_over(none.iter().map(|(a, b)| (a, b))), "–");
    }

    #[test]
    fn the_calibration_names_the_kernel() {
        let json = r#"{"kernel": "v6.12", "cpus_differ": null}"#;
        assert_eq!(of_calibration(json), Ok(("v6.12".into(), None)));
        let json = r#"{"kernel": "v6.1", "cpus_differ": "CPUs differ"}"#;
        assert_eq!(of_calibration(json), Ok(("v6.1".into(), Some("CPUs differ".into()))));
        assert!(of_calibration("{}").unwrap_err().contains("no kernel"));
    }

    /// What is kept because nothing better is there does not count as dropped.
    #[test]
    fn disturbed_rounds_are_dropped_if_others_are_left() {
        let dropped = |others: &[f64]| {
            let pair =
                |&others| Pair { others, machine: Figures::default(), model: Figures::default() };
            let mut pairs: Vec<Pair> = others.iter().map(pair).collect();
            (drop_disturbed(&mut pairs), pairs.len())
        };
        assert_eq!(dropped(&[0.0, 0.05, 0.06, 0.3]), (2, 2));
        assert_eq!(dropped(&[0.0, 0.06, 0.3]), (0, 3));
        assert_eq!(dropped(&[]), (0, 0));
    }

    #[test]
    fn messages_of_both_tools() {
        let of = |command: &str| messages(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(of("taskset -c 0 hackbench --pipe -g 2 -l 5000"), Ok(4e6));
        assert_eq!(of("perf bench sched pipe -l 50000"), Ok(1e5));
        assert_eq!(of("hackbench --pipe"), Err("hackbench --pipe: no -l".into()));
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
