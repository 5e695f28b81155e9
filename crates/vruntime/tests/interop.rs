//! Do perf and trace-cmd read what `run --trace` writes, and see in it what we see? Where a tool
//! is not installed its test says so and passes: `.ci/run` installs them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;
use vruntime::base::{EventKind, Ns, TaskId, Timeline};
use vruntime::formats::kernel_file::kernel;
use vruntime::formats::lost::Lost;
use vruntime::formats::machine_file::builtin_machine;
use vruntime::formats::topology_text::DumpedTopology;
use vruntime::formats::write::{Origin, TraceFormat, write_trace};
use vruntime::kernel::record::{RunSpec, Sampling};
use vruntime::kernel::simulate::run;
use vruntime::measure::timeline_stats;

const NR_CPUS: usize = 48;

/// A run on 48 CPUs, its time-line and its traces.
struct Sample {
    dir: TempDir,
    timeline: Timeline,
}

fn sample() -> &'static Sample {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let numa_48 = builtin_machine("numa-48").unwrap();
        let spec = RunSpec {
            sampling: Sampling::Full { limit: Ns::from_ms(5_000) },
            timeline: 1_000_000,
            ..RunSpec::new(
                numa_48.clone(),
                kernel("v6.12").unwrap().release,
                vruntime::workload::parse("hackbench -g 2 -l 60").unwrap(),
            )
        };
        let timeline = run(&spec).unwrap().timeline;
        let dir = tempfile::tempdir().unwrap();
        let origin = Origin {
            release: Some("6.12.0".into()),
            hostname: Some("numa-48".into()),
            arch: Some("x86_64".into()),
            nr_cpus: NR_CPUS,
            topology: Some(DumpedTopology::of(&numa_48.build_topology().unwrap())),
            command: vec!["vruntime".into(), "run".into()],
            lost: Lost::default(),
        };
        for name in ["perf.data", "trace.dat", "trace.pftrace", "trace.txt"] {
            let path = dir.path().join(name);
            let mut out = BufWriter::new(File::create(&path).unwrap());
            write_trace(TraceFormat::of(&path).unwrap(), &timeline, &origin, &mut out).unwrap();
        }
        Sample { dir, timeline }
    })
}

/// What a tool prints about a trace; `None` if the tool is not installed.
fn tool(words: &[&str], file: &str) -> Option<String> {
    let path = sample().dir.path().join(file);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg("-i").arg(path).env("LC_ALL", "C");
    let output = match command.output() {
        Ok(output) => output,
        Err(_) => {
            eprintln!("{} is not installed: not compared", words[0]);
            return None;
        }
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {complaint}");
    assert!(!complaint.contains("rror") && !complaint.contains("ailed"), "{complaint}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How often each event should be in a file. A switch away from a task that was not accounted
/// since it was switched in comes with its run time.
fn expected(timeline: &Timeline) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut accounted = BTreeSet::new();
    for e in timeline.iter() {
        let name = match e.kind {
            EventKind::Switch => "sched_switch",
            EventKind::Waking => "sched_waking",
            EventKind::Wakeup => "sched_wakeup",
            EventKind::WakeupNew => "sched_wakeup_new",
            EventKind::Migrate => "sched_migrate_task",
            EventKind::Runtime => "sched_stat_runtime",
        };
        *counts.entry(name.to_string()).or_insert(0) += 1;
        if e.kind == EventKind::Runtime {
            accounted.insert(e.task);
        }
        if e.kind == EventKind::Switch && !accounted.remove(&e.task) && !is_idle(e.task) {
            *counts.entry("sched_stat_runtime".to_string()).or_insert(0) += 1;
        }
    }
    assert!(counts.len() == 6 && counts.values().all(|&n| n > 50), "{counts:?}");
    counts
}

fn is_idle(task: TaskId) -> bool {
    task.ix() < NR_CPUS
}

/// Counts the events in lines of text, which name them as `sched_…:`.
fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let word = line.split_whitespace().find(|w| w.contains("sched_") && w.ends_with(':'));
        if let Some(word) = word {
            let name = word.trim_end_matches(':').trim_start_matches("sched:");
            *counts.entry(name.to_string()).or_insert(0) += 1;
        }
    }
    counts
}

/// What `perf sched` computes, computed here: per task its run time, how many runs that was, how
/// often it waited for one, and the longest wait.
#[derive(Default, Debug, PartialEq)]
struct Figures {
    run_ns: u64,
    /// The same by accounting.
    accounted_ns: u64,
    runs: u64,
    waits: u64,
    delay_ns_max: u64,
}

fn figures(timeline: &Timeline) -> BTreeMap<u32, Figures> {
    let pid = |task: TaskId| timeline.tasks()[task.ix()].pid;
    let mut of: BTreeMap<u32, Figures> = BTreeMap::new();
    let mut since: BTreeMap<u32, u64> = BTreeMap::new();
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let mut running: BTreeMap<u32, bool> = BTreeMap::new();
    let mut accounted = BTreeSet::new();
    for e in timeline.iter() {
        let time = e.time.0;
        match e.kind {
            EventKind::Switch => {
                let (prev, next) = (pid(e.task), pid(TaskId(e.a)));
                if prev != 0 {
                    let start = since.remove(&prev).unwrap_or(time);
                    let figures = of.entry(prev).or_default();
                    figures.run_ns += time - start;
                    if !accounted.remove(&prev) {
                        figures.accounted_ns += time - start;
                    }
                    figures.runs += 1;
                    running.insert(prev, false);
                    if e.b == 1 {
                        waiting.insert(prev, time);
                    }
                }
                if next != 0 {
                    since.insert(next, time);
                    running.insert(next, true);
                    let figures = of.entry(next).or_default();
                    if let Some(from) = waiting.remove(&next) {
                        figures.waits += 1;
                        figures.delay_ns_max = figures.delay_ns_max.max(time - from);
                    }
                }
            }
            EventKind::Runtime => {
                accounted.insert(pid(e.task));
                let ran = u64::from(e.b) << 32 | u64::from(e.a);
                of.entry(pid(e.task)).or_default().accounted_ns += ran;
            }
            EventKind::Wakeup | EventKind::WakeupNew => {
                let task = pid(e.task);
                if !running.get(&task).copied().unwrap_or(false) {
                    waiting.entry(task).or_insert(time);
                }
            }
            _ => {}
        }
    }
    of
}

/// Nanoseconds of a number of milliseconds with three places.
fn ns(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    whole.parse::<u64>().unwrap() * 1_000_000 + part.parse::<u64>().unwrap() * 1_000
}

#[test]
fn perf_script_shows_every_event() {
    let Some(text) = tool(&["perf", "script"], "perf.data") else { return };
    assert_eq!(counted(&text), expected(&sample().timeline));
    let first = text.lines().find(|l| l.contains("sched_switch")).unwrap();
    assert!(first.contains("prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> "));
}

#[test]
fn perf_report_describes_the_machine() {
    let words = ["perf", "report", "--header-only", "-I"];
    let Some(text) = tool(&words, "perf.data") else { return };
    for line in ["sibling sockets : 0-11,24-35", "sibling threads : 0,24", "L3 Unified"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let node = text.lines().find(|l| l.contains("node1 cpu list")).unwrap();
    assert!(node.ends_with("12-23,36-47"), "{node}");
}

#[test]
fn perf_sched_latency_gives_our_figures() {
    let Some(text) = tool(&["perf", "sched", "latency", "-p"], "perf.data") else { return };
    let ours = figures(&sample().timeline);
    let mut compared = 0;
    for line in text.lines() {
        let Some((task, rest)) = line.trim().split_once('|') else { continue };
        let Some(pid) = task.trim().rsplit(':').next().and_then(|p| p.parse::<u32>().ok()) else {
            continue;
        };
        let of = &ours[&pid];
        let cells: Vec<&str> = rest.split('|').map(str::trim).collect();
        let run = ns(cells[0].trim_end_matches(" ms"));
        assert!(run.abs_diff(of.accounted_ns) <= 1_000, "{line}: {of:?}");
        assert_eq!(cells[1].parse::<u64>().unwrap(), of.waits, "{line}: {of:?}");
        let max = ns(cells[3].trim_start_matches("max:").trim().trim_end_matches(" ms"));
        assert!(max.abs_diff(of.delay_ns_max) <= 1_000, "{line}: {of:?}");
        compared += 1;
    }
    assert!(compared >= 80, "{text}");
}

#[test]
fn perf_sched_timehist_gives_our_figures() {
    let Some(text) = tool(&["perf", "sched", "timehist", "-s"], "perf.data") else { return };
    let ours = figures(&sample().timeline);
    let stats = timeline_stats(&sample().timeline);
    let (mut compared, mut alike) = (0, 0);
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once('[').and_then(|(_, r)| r.split_once(']')) else {
            continue;
        };
        let Ok(pid) = pid.split('/').next().unwrap().parse::<u32>() else { continue };
        let cells: Vec<&str> = rest.split_whitespace().collect();
        let of = &ours[&pid];
        assert_eq!(cells[1].parse::<u64>().unwrap(), of.runs, "{line}: {of:?}");
        assert!(ns(cells[2]).abs_diff(of.run_ns) <= 1_000, "{line}: {of:?}");
        compared += 1;
        // perf also counts what ran from the trace's start; of the others each figure is the same.
        let runs = stats.tasks.iter().find(|t| t.pid == pid).unwrap().runs;
        if runs.count == of.runs {
            let known = [(runs.min_ns, 3), (runs.mean_ns, 4), (runs.max_ns, 5)];
            assert!(
                known.iter().all(|&(x, i)| ns(cells[i]).abs_diff(x) <= 1_000),
                "{line}: {runs:?}"
            );
            let stddev: f64 = cells[6].parse().unwrap();
            assert!((stddev - runs.stddev_percent).abs() < 0.5, "{line}: {runs:?}");
            alike += 1;
        }
    }
    assert!(compared >= 80 && alike >= 40, "{compared} {alike} {text}");
    assert!(text.contains("(x 48)"), "{text}");
}

#[test]
fn perf_sched_map_draws_every_switch() {
    let Some(text) = tool(&["perf", "sched", "map"], "perf.data") else { return };
    let switches = sample().timeline.iter().filter(|e| e.kind == EventKind::Switch).count();
    assert_eq!(text.lines().filter(|l| l.contains(" secs")).count(), switches);
}

#[test]
fn trace_cmd_reports_every_event() {
    let Some(text) = tool(&["trace-cmd", "report"], "trace.dat") else { return };
    assert_eq!(counted(&text), expected(&sample().timeline));
    assert!(text.starts_with("cpus=48"), "{}", &text[..200]);
    assert!(!text.contains("EVENTS DROPPED") && !text.contains("[<unknown>"), "{text}");
    let time = |line: &str| {
        let word = line.split_whitespace().find(|w| w.ends_with(':') && w.contains('.'));
        let (s, part) = word.unwrap().trim_end_matches(':').split_once('.').unwrap();
        s.parse::<u64>().unwrap() * 1_000_000 + part.parse::<u64>().unwrap()
    };
    let last = time(text.lines().last().unwrap());
    let end = sample().timeline.last_time().unwrap().0;
    assert!(last.abs_diff(end / 1_000) <= 1, "{last} µs, {end} ns");
}

#[test]
fn the_text_names_every_event() {
    let text = std::fs::read_to_string(sample().dir.path().join("trace.txt")).unwrap();
    assert_eq!(counted(&text), expected(&sample().timeline));
}

/// Field numbers and contents of a protobuf message; numbers have no content.
fn message(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let varint = |bytes: &mut &[u8]| {
        let mut n = 0u64;
        for i in 0.. {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            n |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                break;
            }
        }
        n
    };
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let n = varint(&mut bytes);
        let content = match key & 7 {
            0 => &bytes[..0],
            2 => {
                let (content, rest) = bytes.split_at(n as usize);
                bytes = rest;
                content
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, n, content));
    }
    fields
}

#[test]
fn perfetto_has_every_switch_and_wakeup_in_order() {
    let bytes = std::fs::read(sample().dir.path().join("trace.pftrace")).unwrap();
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let mut last = [0; NR_CPUS];
    let mut threads = 0;
    for (_, _, packet) in message(&bytes) {
        for (field, _, content) in message(packet) {
            match field {
                1 => {
                    let bundle = message(content);
                    let cpu = bundle.iter().find(|f| f.0 == 1).unwrap().1 as usize;
                    for (_, _, event) in bundle.iter().filter(|f| f.0 == 2) {
                        let fields = message(event);
                        let time = fields.iter().find(|f| f.0 == 1).unwrap().1;
                        assert!(time >= last[cpu], "CPU {cpu} at {time}");
                        last[cpu] = time;
                        // Of time, thread and flags only one is the event.
                        let kind = fields.iter().find(|f| ![1, 2, 5].contains(&f.0)).unwrap().0;
                        *counts.entry(kind).or_insert(0) += 1;
                    }
                }
                2 => threads += message(content).len(),
                10 => {}
                // SystemInfo: the names of `uname`.
                45 => assert!(content.windows(6).any(|w| w == b"6.12.0"), "{content:?}"),
                other => panic!("packet field {other}"),
            }
        }
    }
    let expected = expected(&sample().timeline);
    let names = [(4, "sched_switch"), (17, "sched_wakeup"), (20, "sched_waking")];
    for (field, name) in
        names.into_iter().chain([(114, "sched_wakeup_new"), (491, "sched_migrate_task")])
    {
        assert_eq!(counts[&field], expected[name], "{name}");
    }
    let named = sample().timeline.tasks().iter().filter(|t| t.pid != 0).count();
    assert_eq!(threads, named);
}

/// Runs vruntime, which must succeed without a word on stderr.
fn vruntime(args: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_vruntime")).args(args).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{args:?}: {complaint}");
    output.stdout
}

/// The figures of a trace, without what only its format decides.
fn figures_of(path: &str) -> serde_json::Value {
    let value: serde_json::Value =
        serde_json::from_slice(&vruntime(&["trace", "stat", "--json", path])).unwrap();
    assert_eq!(value["diagnostics"], serde_json::json!([]), "{path}");
    serde_json::json!({ "stats": value["stats"], "causes": value["causes"] })
}

/// Through every format and back. The text of ftrace has times in µs, so only what is counted has
/// to be the same there.
#[test]
fn a_converted_trace_has_the_same_figures() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let first = sample().dir.path().join("perf.data").to_str().unwrap().to_string();
    let expected = figures_of(&first);
    assert!(expected["stats"]["tasks"].as_array().unwrap().len() > 80);
    let mut last = first;
    for name in ["a.dat", "b.pftrace", "c.data", "d.pftrace", "e.dat", "f.data"] {
        let next = path(name);
        vruntime(&["trace", "convert", &last, &next]);
        assert!(figures_of(&next) == expected, "{last} to {next}");
        last = next;
    }
    vruntime(&["trace", "convert", &last, &path("g.txt")]);
    let text = figures_of(&path("g.txt"));
    assert_eq!(text["stats"]["events"], expected["stats"]["events"]);
    let total = |v: &serde_json::Value| v["stats"]["sched_delay"]["count"].as_u64().unwrap();
    assert!(total(&text).abs_diff(total(&expected)) * 50 < total(&expected), "{text}");
    let piped = vruntime(&["trace", "convert", &last, "--to", "dat"]);
    assert!(piped == std::fs::read(path("e.dat")).unwrap());
}

/// C is ordinary first, then FIFO, and preempts only then; D has a deadline.
#[test]
fn a_priority_is_that_of_its_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let switches = [
        ("B-11", 120, "C-10", 120),
        ("C-10", 120, "B-11", 120),
        ("B-11", 120, "C-10", 19),
        ("C-10", 19, "D-12", -1),
        ("D-12", -1, "B-11", 120),
    ];
    let mut text = String::new();
    for (i, (from, prio, to, next_prio)) in switches.into_iter().enumerate() {
        let (prev, next) = (from.split_once('-').unwrap(), to.split_once('-').unwrap());
        text += &format!(
            "{from} [000] d... 100.00{i}000: sched_switch: prev_comm={} prev_pid={} \
             prev_prio={prio} prev_state=R ==> next_comm={} next_pid={} next_prio={next_prio}\n",
            prev.0, prev.1, next.0, next.1
        );
    }
    std::fs::write(path("a.txt"), text).unwrap();
    let prios = |file: &str| -> Vec<(i16, i16)> {
        let timeline = vruntime::formats::read::open(file.as_ref()).unwrap().timeline;
        timeline
            .iter()
            .filter(|e| e.kind == EventKind::Switch)
            .map(|e| (e.prio, e.next_prio))
            .collect()
    };
    let expected = switches.map(|s| (s.1, s.3));
    let mut last = path("a.txt");
    for name in ["b.data", "c.dat", "d.pftrace", "e.txt"] {
        let next = path(name);
        vruntime(&["trace", "convert", &last, &next]);
        assert_eq!(prios(&next), expected, "{last} to {next}");
        last = next;
    }
    let stat = String::from_utf8(vruntime(&["trace", "stat", &last])).unwrap();
    let row = stat.lines().find(|l| l.contains("preempted by a higher priority")).unwrap();
    assert!(row.ends_with("40.0 %"), "two of five: {row}");
}

/// The switch to B is missing, but B is seen to wake C; that of D is missing, and nobody saw it.
#[test]
fn who_runs_without_a_switch_runs_in_a_converted_trace_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let switch = |time: &str, from: &str, state: &str, to: &str| {
        let (prev, next) = (from.split_once('-').unwrap(), to.split_once('-').unwrap());
        format!(
            "{from} [000] d... {time}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 \
             prev_state={state} ==> next_comm={} next_pid={} next_prio=120\n",
            prev.0, prev.1, next.0, next.1
        )
    };
    let text = switch("100.000000", "A-10", "S", "swapper/0-0")
        + "B-11 [000] d... 100.002000: sched_waking: comm=C pid=12 prio=120 target_cpu=001\n"
        + &switch("100.005000", "B-11", "S", "swapper/0-0")
        + &switch("105.000000", "D-13", "S", "swapper/0-0");
    std::fs::write(path("a.txt"), text).unwrap();
    let clock = |file: &str| {
        let json = vruntime(&["trace", "stat", file, "--json"]);
        serde_json::from_slice::<serde_json::Value>(&json).unwrap()["stats"]["task_clock_ns"]
            .clone()
    };
    assert_eq!(clock(&path("a.txt")), 3_000_000);
    for name in ["b.data", "b.dat"] {
        vruntime(&["trace", "convert", &path("a.txt"), &path(name)]);
        assert_eq!(clock(&path(name)), 3_000_000, "{name}");
    }
}

/// A file of version 7 with compressed sections, as trace-cmd itself makes it.
#[test]
fn what_trace_cmd_converts_to_version_7_is_read() {
    let v6 = sample().dir.path().join("trace.dat");
    let expected = figures_of(v6.to_str().unwrap());
    for method in ["zstd", "zlib", "none"] {
        let v7 = sample().dir.path().join(format!("{method}.dat"));
        let made = Command::new("trace-cmd")
            .args(["convert", "--file-version", "7", "--compression", method, "-i"])
            .arg(&v6)
            .arg("-o")
            .arg(&v7)
            .output();
        match made {
            Ok(output) if output.status.success() => {
                assert!(figures_of(v7.to_str().unwrap()) == expected, "{method}");
            }
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("trace-cmd cannot write {method}: not compared ({why})");
            }
            Err(_) => eprintln!("trace-cmd is not installed: not compared"),
        }
    }
}
