//! The table in `docs/traces.md`: every form of every recording beside the figures that other
//! tools took from it (`summary.json`).

use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The events of a timeline.
const EVENTS: [&str; 5] =
    ["sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task"];
/// Forms of a recording: what the table calls them, the file, their place in the summary.
const FORMS: [(&str, &str, &str); 3] = [
    ("perf.data", "perf.data", "perf"),
    ("ftrace text", "ftrace.txt", "ftrace"),
    ("trace.dat", "trace.dat", "trace_dat"),
];
/// What a perf.data is converted to, one after the other.
const CONVERTED: [&str; 4] = ["a.dat", "b.pftrace", "c.data", "d.txt"];
/// perf prints µs, and adds up what it has rounded.
const RUN_TIME_MS: f64 = 0.01;

/// Reads the recordings in `dirs` and puts the table into the page. False if that failed, or a
/// figure differs.
pub fn run(root: &Path, dirs: &[String]) -> bool {
    let built = Command::new("cargo")
        .args(["build", "-q", "-p", "vruntime"])
        .current_dir(root)
        .status()
        .is_ok_and(|s| s.success());
    let done = match built {
        false => Err("vruntime does not build".into()),
        true => table(root, dirs)
            .and_then(|t| rewrite(&root.join("docs/traces.md"), &t.0).map(|()| t.1)),
    };
    match done {
        Ok(0) => true,
        Ok(n) => {
            eprintln!("recordings: {n} figures differ");
            false
        }
        Err(e) => {
            eprintln!("recordings: {e}");
            false
        }
    }
}

/// The table, and how many figures differ.
fn table(root: &Path, dirs: &[String]) -> Result<(String, usize), String> {
    if dirs.is_empty() {
        return Err("expected the folders of recordings".into());
    }
    let mut out = String::from("| recording | events |");
    for (name, ..) in FORMS {
        let _ = write!(out, " {name} |");
    }
    out += " converted |\n|---|---:|---|---|---|---|\n";
    let (mut differ, mut compared, mut events) = (0, 0, 0);
    for dir in dirs.iter().map(Path::new) {
        let name = dir.file_name().map_or("?".into(), |n| n.to_string_lossy().into_owned());
        let summary = dir.join("summary.json");
        let text = std::fs::read_to_string(&summary).map_err(|e| at(&summary, e))?;
        let summary: Value = serde_json::from_str(&text).map_err(|e| at(&summary, e))?;
        let mut cells = vec![];
        let mut of_perf = None;
        for (_, file, key) in FORMS {
            let Some(path) = found(dir, file) else {
                cells.push("–".into());
                continue;
            };
            let stat = stat(root, &path)?;
            let checks = checks(&summary, key, &stat);
            compared += checks.len();
            cells.push(cell(&checks, &mut differ));
            if key == "perf" {
                let counts = stat["stats"]["events"].as_object();
                events += counts.map_or(0, sum);
                of_perf = Some((path, stat));
            }
        }
        let Some((path, stat)) = of_perf else {
            return Err(format!("{}: no perf.data", dir.display()));
        };
        let checks = converted(root, &path, &stat)?;
        compared += checks.len();
        cells.push(cell(&checks, &mut differ));
        let count = stat["stats"]["events"].as_object().map_or(0, sum);
        let _ = writeln!(out, "| {name} | {count} | {} |", cells.join(" | "));
        eprintln!("{name}");
    }
    let _ = writeln!(out, "| **all** | {events} | {compared} figures, {differ} differ | | | |");
    Ok((out, differ))
}

fn at(path: &Path, e: impl std::fmt::Display) -> String {
    format!("{}: {e}", path.display())
}

/// `dir/file`, plain or compressed.
fn found(dir: &Path, file: &str) -> Option<PathBuf> {
    [dir.join(file), dir.join(format!("{file}.xz"))].into_iter().find(|p| p.is_file())
}

fn vruntime(root: &Path, words: &[&str], files: &[&Path]) -> Result<Vec<u8>, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let output = Command::new(target.join("debug/vruntime"))
        .args(words)
        .args(files)
        .current_dir(root)
        .output()
        .map_err(|e| format!("vruntime: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("vruntime {}: {why}", words.join(" ")));
    }
    Ok(output.stdout)
}

fn stat(root: &Path, path: &Path) -> Result<Value, String> {
    let path = path.canonicalize().map_err(|e| at(path, e))?;
    let text = vruntime(root, &["trace", "stat", "--json"], &[&path])?;
    serde_json::from_slice(&text).map_err(|e| at(&path, e))
}

/// One figure: what it is, ours, theirs.
type Check = (String, f64, f64);

/// Figures of one form beside those in the summary.
fn checks(summary: &Value, form: &str, stat: &Value) -> Vec<Check> {
    let mut out = vec![];
    let (said, stats) = (&summary[form], &stat["stats"]);
    let number = |v: &Value| v.as_f64().unwrap_or(0.0);
    for name in EVENTS {
        out.push((name.into(), number(&stats["events"][name]), number(&said["by_event"][name])));
    }
    if let Some(states) = said["switches_by_prev_state"].as_object() {
        let theirs = |is: fn(&str) -> bool| {
            states.iter().filter(|(s, _)| is(s)).map(|(_, n)| number(n)).sum::<f64>()
        };
        let runnable = |s: &str| s.starts_with('R');
        let tasks = |field: &str| total(&stats["tasks"], field);
        // Idle tasks, which are no rows of their own, are always runnable.
        let all = total(&stats["cpus"], "nr_switches");
        let sleeping = tasks("nr_voluntary");
        out.push(("left runnable".into(), all - sleeping, theirs(runnable)));
        out.push(("left to sleep or exit".into(), sleeping, theirs(|s| !s.starts_with('R'))));
    }
    let mut by_cpu =
        vec![("switches_by_cpu", "nr_switches"), ("wakeups_by_target_cpu", "nr_wakeups")];
    let event = |name: &str| number(&said["by_event"][name]);
    // Where wakings stand for wakeups, the CPUs that these chose are not in the summary.
    if event("sched_wakeup") == 0.0 && event("sched_waking") > 0.0 {
        by_cpu.pop();
        let theirs = event("sched_waking") + event("sched_wakeup_new");
        out.push(("nr_wakeups".into(), total(&stats["cpus"], "nr_wakeups"), theirs));
    }
    for (theirs, ours) in by_cpu {
        for (cpu, n) in said[theirs].as_object().into_iter().flatten() {
            let row = |row: &&Value| row["cpu"].as_u64() == cpu.parse().ok();
            let row = stats["cpus"].as_array().into_iter().flatten().find(row);
            let found = row.map_or(0.0, |row| number(&row[ours]));
            out.push((format!("{ours} of CPU {cpu}"), found, number(n)));
        }
    }
    for lost in ["lost_records", "overrun"] {
        if let Some(n) = said[lost].as_f64() {
            let dropped = number(&said["dropped"]);
            // The text holds no count of what was overwritten.
            if form != "ftrace" {
                out.push(("lost".into(), number(&stat["lost"]), n + dropped));
            }
        }
    }
    if form == "perf" {
        let history = &summary["perf_sched_timehist"];
        let run = not_left_idle(stats) / 1e6;
        let theirs = number(&history["run_time_ms"]);
        let same = (run - theirs).abs() <= RUN_TIME_MS;
        out.push(("run time, ms".into(), if same { theirs } else { run }, theirs));
        let switches = number(&stats["events"]["sched_switch"]);
        out.push(("context switches".into(), switches, number(&history["context_switches"])));
    }
    out
}

/// The same file through all formats, beside itself.
fn converted(root: &Path, path: &Path, stat_of: &Value) -> Result<Vec<Check>, String> {
    let dir = root.join("target/recordings");
    std::fs::create_dir_all(&dir).map_err(|e| at(&dir, e))?;
    let mut from = path.canonicalize().map_err(|e| at(path, e))?;
    let mut out = vec![];
    for name in CONVERTED {
        let to = dir.join(name);
        vruntime(root, &["trace", "convert"], &[&from, &to])?;
        let stat = stat(root, &to)?;
        let (ours, first) = (&stat["stats"], &stat_of["stats"]);
        for event in EVENTS {
            let number = |v: &Value| v["events"][event].as_f64().unwrap_or(0.0);
            out.push((format!("{name}: {event}"), number(ours), number(first)));
        }
        // Times of ftrace's text are in µs.
        if !name.ends_with(".txt") {
            // Who is seen to run without a switch is lost with the events that showed it.
            out.push((format!("{name}: run time"), not_left_idle(ours), not_left_idle(first)));
            let complete = total(&first["cpus"], "nr_unrecorded") == 0.0;
            let run_time = complete.then_some("run_time_ns");
            for field in run_time.into_iter().chain(["nr_involuntary"]) {
                let sum = |v: &Value| total(&v["tasks"], field);
                out.push((format!("{name}: {field}"), sum(ours), sum(first)));
            }
            let delay = |v: &Value| v["sched_delay"]["p99_ns"].as_f64().unwrap_or(0.0);
            out.push((format!("{name}: sched delay, p99"), delay(ours), delay(first)));
        }
        from = to;
    }
    Ok(out)
}

/// perf gives the time since the last switch to whoever leaves, known or not.
fn not_left_idle(stats: &Value) -> f64 {
    let time = |field: &str| total(&stats["cpus"], field);
    let unknown = time("unknown_ns") - time("unknown_left_idle_ns");
    time("busy_ns") + unknown + time("idle_unrecorded_ns")
}

fn sum(counts: &Map<String, Value>) -> u64 {
    counts.values().filter_map(Value::as_u64).sum()
}

fn total(rows: &Value, field: &str) -> f64 {
    rows.as_array().into_iter().flatten().filter_map(|row| row[field].as_f64()).sum()
}

/// How many figures are the same, and each that is not.
fn cell(checks: &[Check], differ: &mut usize) -> String {
    let wrong: Vec<String> = checks
        .iter()
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(what, ours, theirs)| format!("{what}: {ours}, not {theirs}"))
        .collect();
    *differ += wrong.len();
    match wrong.len() {
        0 => format!("{} =", checks.len()),
        n => format!("{} =; {}", checks.len() - n, wrong.join("; ")),
    }
}

/// Replaces the page's table, from its head to its last row.
fn rewrite(page: &Path, table: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(page).map_err(|e| at(page, e))?;
    let missing = |what: &str| format!("{}: no {what}", page.display());
    let start = text.find("| recording |").ok_or_else(|| missing("table of recordings"))?;
    let last = text[start..].find("| **all** |").ok_or_else(|| missing("last row"))?;
    let end = text[start + last..].find('\n').ok_or_else(|| missing("end of the table"))?;
    let new = format!("{}{table}{}", &text[..start], &text[start + last + end + 1..]);
    std::fs::write(page, new).map_err(|e| at(page, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_compared_one_by_one() {
        let summary = json!({"perf": {
            "by_event": {"sched_switch": 3},
            "switches_by_prev_state": {"S": 1, "R": 1, "R+": 1},
            "switches_by_cpu": {"0": 3},
        }, "perf_sched_timehist": {"run_time_ms": 1.001, "context_switches": 3}});
        let stat = json!({"lost": 0, "stats": {
            "events": {"sched_switch": 3},
            "tasks": [{"nr_voluntary": 1}],
            "cpus": [{"cpu": 0, "nr_switches": 2, "busy_ns": 900_400, "unknown_ns": 150_000,
                      "unknown_left_idle_ns": 50_000}],
        }});
        let mut differ = 0;
        let text = cell(&checks(&summary, "perf", &stat), &mut differ);
        assert_eq!(
            (text.as_str(), differ),
            ("8 =; left runnable: 1, not 2; nr_switches of CPU 0: 2, not 3", 2)
        );
    }

    /// 5 wakings and a new task; of the CPU where wakeups were chosen only the new one is known.
    #[test]
    fn wakings_without_wakeups_are_compared_as_a_sum() {
        let summary = json!({"ftrace": {
            "by_event": {"sched_waking": 5, "sched_wakeup_new": 1},
            "wakeups_by_target_cpu": {"0": 1},
        }});
        let stat = |wakeups: u64| {
            json!({"stats": {
                "events": {"sched_waking": 5, "sched_wakeup_new": 1},
                "cpus": [{"cpu": 0, "nr_wakeups": 3}, {"cpu": 1, "nr_wakeups": wakeups}],
            }})
        };
        let mut differ = 0;
        assert_eq!(cell(&checks(&summary, "ftrace", &stat(3)), &mut differ), "6 =");
        assert_eq!(
            cell(&checks(&summary, "ftrace", &stat(2)), &mut differ),
            "5 =; nr_wakeups: 5, not 6"
        );
    }
}
