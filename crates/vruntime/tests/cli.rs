//! The command line as a user meets it: what commands print, and mistakes.

use assert_cmd::Command;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;

/// Options that make a simulation short.
const TINY: [&str; 5] = ["--warmup", "1ms", "--window", "2ms", "-q"];
const HACKBENCH: &str = "hackbench -g 1 -f 4 --pipe --threads -l 200 -s 100";

fn vruntime(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("vruntime").unwrap();
    command.args(args);
    command
}

/// Stdout of a command that must succeed.
#[track_caller]
fn stdout(args: &[&str]) -> String {
    let output = vruntime(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The one JSON object of a command, with the schema checked.
#[track_caller]
fn json(args: &[&str], schema: &str) -> Value {
    let text = stdout(args);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(value["schema"], schema);
    value
}

/// A command must fail with `code`, say `words` on stderr and nothing on stdout.
#[track_caller]
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let output = vruntime(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: no `{word}` in: {error}");
    }
    assert!(!error.contains("panicked"), "{error}");
    assert!(output.stdout.is_empty(), "{args:?} wrote to stdout");
}

/// `run` with one thing replaced.
fn run<'a>(machine: &'a str, kernel: &'a str, workload: &'a str) -> Vec<&'a str> {
    [&["run", "-m", machine, "-k", kernel, "-w", workload], &TINY[..]].concat()
}

#[test]
fn a_trace_is_bounded_and_its_name_says_its_format() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let with = |options: &[&str]| -> Vec<String> {
        let all = [&run("uma-8", "v6.12", HACKBENCH)[..], options].concat();
        all.into_iter().map(String::from).collect()
    };
    let fails_with = |code: i32, options: &[&str], words: &[&str]| {
        let args = with(options);
        fails(&args.iter().map(String::as_str).collect::<Vec<_>>(), code, words);
    };
    let fails = |options: &[&str], words: &[&str]| fails_with(2, options, words);
    fails(&["--trace", &path("a.xyz")], &["a.xyz", "`.data` (perf)", "`.pftrace`"]);
    fails(&["--trace", &path("a.txt"), "--seeds", "2"], &["cannot be used with"]);
    fails_with(3, &["--trace", &path("none/a.txt")], &["there is no directory"]);
    fails(&["--trace-events", "5"], &["--trace"]);
    let args = with(&["--trace", &path("a.txt"), "--trace-events", "30"]);
    let output = vruntime(&args.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--trace-events 30"));
    let text = std::fs::read_to_string(path("a.txt")).unwrap();
    // A switch away from a task that was not accounted brings its run time along.
    let events = text.lines().filter(|l| !l.starts_with('#')).count();
    assert!((30..40).contains(&events), "{events}");
}

#[test]
fn unknown_names_are_usage_errors_with_the_nearest_name() {
    fails(&run("uma3", "v6.1", HACKBENCH), 2, &["`uma3`", "uma-2"]);
    fails(&run("uma-2", "v6.l", HACKBENCH), 2, &["`v6.l`", "v6.1"]);
    fails(&run("uma-2", "v6.1+sis_utl", HACKBENCH), 2, &["`sis_utl`", "sis_util"]);
    fails(&run("uma-2", "v6.1+hz=fast", HACKBENCH), 2, &["hz", "`fast`", "a whole number"]);
    fails(&run("uma-2", "v6.1+sis_util=2", HACKBENCH), 2, &["on or off"]);
    fails(&run("uma-2", "v6.1+scheduler=lunix", HACKBENCH), 2, &["lunix", "linux"]);
    fails(&run("uma-2", "v6.1", "hackbnch"), 2, &["`hackbnch`", "hackbench"]);
    fails(&run("uma-2", "v6.1", "hackbench --grops 3"), 2, &["--grops"]);
    fails(&run("uma-2", "v6.1", "cyclictest -h 100"), 2, &["`-h` is not modelled"]);
    fails(&run("none.xml", "v6.1", HACKBENCH), 3, &["none.xml: No such file"]);
    fails(&["runn"], 2, &["runn", "run"]);
    fails(&["list", "kernel"], 2, &["kernels"]);
    fails(&["show", "machine", "uma3"], 2, &["uma-2"]);
    fails(&["run", "--windw", "1s"], 2, &["--windw"]);
    fails(&[], 2, &["Usage"]);
}

#[test]
fn wrong_values_are_usage_errors() {
    let base = ["run", "-m", "uma-2", "-k", "v6.1", "-w", HACKBENCH];
    fails(&[&base[..], &["--window", "3"]].concat(), 2, &["ns, us, ms or s"]);
    for zero in [&["--window", "0s"][..], &["--window", "0"], &["--full", "--limit", "0"]] {
        fails(&[&base[..], zero].concat(), 2, &["longer than 0"]);
    }
    fails(&[&base[..], &["--seeds", "0"]].concat(), 2, &["--seeds"]);
    fails(&[&base[..], &["--seed", "1", "--seeds", "2"]].concat(), 2, &["--seed"]);
    let one = ["compare", "-m", "uma-2", "-k", "v6.1", "-w", HACKBENCH];
    fails(&one, 2, &["twice"]);
}

#[test]
fn a_bad_file_is_an_input_error_with_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let machine = file("machine.toml", "schema = \"machine/1\"\nname = [\n");
    fails(&run(&machine, "v6.1", HACKBENCH), 3, &["machine.toml:2"]);
    let kernel = file("kernel.toml", "name = \"mine\"\nherz = 250\n");
    fails(&run("uma-2", &kernel, HACKBENCH), 3, &["kernel.toml:2", "`herz`", "hz"]);
    fails(&run("no/such.toml", "v6.1", HACKBENCH), 3, &["no/such.toml"]);
    fails(&run("uma-2", "no/such.toml", HACKBENCH), 3, &["no/such.toml"]);
}

#[test]
fn run_json_is_one_object_and_the_same_for_any_number_of_threads() {
    let args = [&run("uma-8", "v6.1", HACKBENCH)[..6], &[HACKBENCH], &TINY].concat();
    let with = |threads| {
        let args = [&args[..], &["--json", "--seeds", "3", "-j", threads]].concat();
        json(&args, "vruntime/run/1")
    };
    let one = with("1");
    assert_eq!(one["runs"].as_array().unwrap().len(), 3);
    assert!(one["runs"][0]["counters"]["messages"].as_u64().unwrap() > 0);
    assert_eq!(one, with("3"));
}

#[test]
fn compare_json_keeps_its_contract() {
    let args = ["compare", "-m", "uma-8", "-k", "v6.1", "-k", "v6.1+hz=1000", "-w", HACKBENCH];
    let args = [&args[..], &TINY, &["--seeds", "2", "--json"]].concat();
    let value = json(&args, "vruntime/compare/1");
    assert_eq!(value["kernels"], serde_json::json!(["v6.1", "v6.1+hz=1000"]));
    let rows = value["rows"].as_array().unwrap();
    for metric in [
        "time",
        "context_switches",
        "voluntary_switches",
        "involuntary_switches",
        "migrations",
        "wakeup_latency_p99",
    ] {
        let row = rows.iter().find(|r| r["metric"] == metric).expect(metric);
        for key in ["value", "delta_pct", "ci_low_pct", "ci_high_pct", "significant"] {
            assert_eq!(row[key].as_array().expect(key).len(), 2, "{metric} {key}");
        }
        assert!(row["unit"].is_string() && row["better"].is_string());
    }
    for causes in ["switches", "placements", "migrations"] {
        assert!(value["causes"][causes].is_object());
    }
    assert!(value["cpu_time"].is_object());
}

#[test]
fn a_kernel_against_itself_differs_in_nothing() {
    let args = ["compare", "-m", "uma-8", "-k", "v6.1", "-k", "v6.1", "-w", HACKBENCH];
    let args = [&args[..], &TINY, &["--seeds", "2", "--json"]].concat();
    let value = json(&args, "vruntime/compare/1");
    for row in value["rows"].as_array().unwrap() {
        assert_eq!(row["value"][0], row["value"][1], "{row}");
        assert_ne!(row["significant"][1], true, "{row}");
    }
}

#[test]
fn lists_and_details_have_text_and_json() {
    for what in ["machines", "kernels", "workloads", "features", "schedulers"] {
        assert!(!stdout(&["list", what]).is_empty());
        let value = json(&["list", what, "--json"], "vruntime/list/1");
        assert_eq!(value["kind"], what);
        assert!(!value["items"].as_array().unwrap().is_empty());
    }
    let features = stdout(&["list", "features"]);
    let has = |name: &str| features.lines().any(|l| l.split(' ').next() == Some(name));
    assert!(has("seed_offset") && has("sis_util") && !has("version"), "{features}");
    for (what, name) in [
        ("machine", "milan-2s"),
        ("kernel", "v6.1-sis_util"),
        ("workload", HACKBENCH),
        ("study", "kernel-robot"),
    ] {
        assert!(!stdout(&["show", what, name]).is_empty());
        json(&["show", what, name, "--json"], "vruntime/show/1");
    }
    let value = json(&["show", "kernel", "v6.1-sis_util", "--json"], "vruntime/show/1");
    assert_eq!(value["kernel"]["sis_util"], false);
}

#[test]
fn manual_pages_and_completions() {
    assert!(stdout(&["man"]).contains(".TH"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&["completions", shell]).contains("vruntime"));
    }
    let dir = tempfile::tempdir().unwrap();
    stdout(&["man", "-o", dir.path().to_str().unwrap()]);
    assert!(dir.path().join("vruntime-compare.1").is_file());
    assert!(stdout(&["--version"]).starts_with("vruntime "));
    assert!(stdout(&["run", "--help"]).contains("--window"));
}

#[test]
fn an_interrupt_reports_the_seeds_that_are_complete() {
    let binary = assert_cmd::cargo::cargo_bin("vruntime");
    let child = std::process::Command::new(binary)
        .args(["run", "-m", "uma-2", "-k", "v6.1", "-w", "perf bench sched pipe -l 100000000"])
        .args(["--seeds", "10000", "-j", "1", "--json", "-q"])
        .args(["--warmup", "1ms", "--window", "20ms"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    has_worked(&child, 100);
    let value = interrupted(child);
    assert!(!value["runs"].as_array().unwrap().is_empty());
}

/// The second kernel takes seconds, during which the file shows that the first is through.
#[test]
fn an_interrupted_bench_reports_the_cases_that_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bench.json");
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("vruntime"))
        .args(["bench", "--case", "pipe-2", "--percent", "2", "--repeat", "12", "--json", "-o"])
        .arg(&file)
        .env("PATH", "") // No valgrind, which takes minutes.
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let through = || serde_json::from_slice::<Value>(&std::fs::read(&file).ok()?).ok();
    let mut tries = 0..6_000;
    while through().is_none() {
        tries.next().expect("a minute is enough for one kernel");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let value = interrupted(child);
    let rows = value["rows"].as_array().unwrap();
    let of = |kernel| rows.iter().filter(|r| r["kernel"] == kernel).count();
    assert!(of("v6.1") > 5 && of("v6.12") == 0, "{value}");
    // The file has them as well.
    assert_eq!(through().unwrap(), value["rows"]);
}

/// Waits until the process has had so much CPU time, in clock ticks (10 ms): how far it is depends
/// on what else this machine does.
fn has_worked(child: &std::process::Child, ticks: u64) {
    for _ in 0..6_000 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        // The name may have blanks; utime and stime are the 12th and 13th field after it.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11);
        let worked: u64 = fields.take(2).map(|f| f.parse::<u64>().unwrap()).sum();
        if worked >= ticks {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{ticks} ticks of CPU time take more than a minute");
}

/// What the process reports after this signal.
fn ended_by(signal: Signal, mut child: std::process::Child) -> String {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, signal).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    text
}

/// ^C now: what the process reports.
fn interrupted(child: std::process::Child) -> Value {
    let text = ended_by(Signal::SIGINT, child);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["interrupted"], true);
    value
}

#[test]
fn a_signal_has_its_name() {
    let binary = assert_cmd::cargo::cargo_bin("vruntime");
    let child = std::process::Command::new(binary)
        .args(["compare", "-m", "uma-2", "-k", "v6.1", "-k", "v6.12", "-w", HACKBENCH])
        .args(["--seeds", "10000", "-j", "1", "-q", "--warmup", "1ms", "--window", "2ms"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    has_worked(&child, 100);
    let text = ended_by(Signal::SIGTERM, child);
    assert!(text.contains("ended by SIGTERM before all seeds"), "{text}");
}

/// `timeout` signals its child, and then the group that the child is in.
#[test]
fn two_signals_at_once_are_one() {
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("vruntime"))
        .args(["run", "-m", "uma-2", "-k", "v6.1", "-w", HACKBENCH, "--json", "--seeds", "10000"])
        .args(["-j", "1", "-q", "--warmup", "1ms", "--window", "2ms"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    has_worked(&child, 100);
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    interrupted(child);
}

#[test]
fn an_interrupted_study_keeps_its_rows_and_the_draws_that_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    std::fs::write(&path, small_study()).unwrap();
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin("vruntime"))
        .args(["study", path.to_str().unwrap(), "--uncertainty", "10000"])
        .args(["-j", "1", "--json", "-q"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    has_worked(&child, 400);
    let row = &interrupted(child)["rows"][0];
    assert!(row["modelled_delta_pct"].is_number(), "{row}");
    let draws = row["stable"][1].as_u64().unwrap_or(0);
    assert!((1..10_000).contains(&draws), "{row}");
}

/// A study of one case, with a fit, draws and a question.
fn small_study() -> String {
    let effort = "{ warmup_ms = 1, window_ms = 4, seeds = 1, time = \"all-groups\" }";
    format!(
        "schema = \"study/1\"\nname = \"my\"\ntitle = \"a title\"\nsource = \"a source\"\n\
         kernels = {{ old = \"v6.1-autogroup\" }}\nneutral_pct = {{ time = 2.5 }}\n\
         fitted = {{ costs = \"path\", low = 800, high = 1250, source = \"a guess\" }}\n\
         full = {effort}\nquick = {{ loops_divided_by = 2, seeds = 1 }}\nexplain = {effort}\n\
         [[case]]\nid = \"c\"\nmachine = \"uma-8\"\nworkload = \"{HACKBENCH}\"\n\
         before = \"old\"\nafter = \"old+ttwu_queue=l2\"\n\
         [[row]]\nid = \"c.time\"\ncase = \"c\"\nmetric = \"time\"\nbefore = 2\nafter = 1\n\
         effect = \"improves\"\n\
         [[note]]\ntitle = \"Costs\"\ntext = \"\"\"\nOf a\nmachine.\n\nOthers.\n\"\"\"\n\
         [[question]]\nid = \"q\"\ntext = \"Why?\"\nwords = \"For this.\"\ncase = \"c\"\n\
         workload = \"hackbench -g 2 -f 3 -l 100\"\n\
         metric = \"messages_per_second\"\nknockouts = [\"rq_lock\"]\nsplit = 1\n"
    )
}

#[test]
fn a_study_sets_published_and_modelled_figures_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("my.toml");
    let text = small_study();
    std::fs::write(&path, &text).unwrap();
    let file = path.to_str().unwrap();
    let v = json(&["study", file, "--json", "-q", "--quick"], "vruntime/study/1");
    let quick = v["rows"][0].clone();
    let v = json(&["study", file, "--json", "-q", "--uncertainty", "2"], "vruntime/study/1");
    let row = &v["rows"][0];
    assert_eq!((&row["id"], &row["metric"]), (&"c.time".into(), &"time".into()));
    assert_eq!(row["published_delta_pct"], -50.0);
    for key in ["modelled_before", "modelled_after", "modelled_delta_pct"] {
        assert!(row[key].is_number(), "{key}: {row}");
    }
    assert_eq!(row["stable"][1], 2);
    // What the draws keep is the effect of as little as is simulated of them.
    assert_eq!(row["stable_effect"], quick["effect_modelled"]);
    assert!(v["score"]["stable"].is_number());
    assert_eq!((&v["score"]["rows"], &v["score"]["fitted_parameters"]), (&1.into(), &0.into()));
    let one = ["study", file, "--json", "-q", "--uncertainty", "1"];
    let kept = |first| {
        let v = json(&[&one[..], &["--first-draw", first]].concat(), "vruntime/study/1");
        assert_eq!(v["first_draw"].to_string(), first);
        v["rows"][0]["stable"][0].as_u64().unwrap()
    };
    assert_eq!(row["stable"][0], kept("1") + kept("2"), "the two, one at a time");
    fails(&["study", file, "--first-draw", "2"], 2, &["--uncertainty"]);
    let v = json(&["study", file, "--json", "-q", "--quick"], "vruntime/study/1");
    assert_eq!(v["sampling"], serde_json::json!({"mode": "shortened", "loops_divided_by": 2}));
    let half = HACKBENCH.replace("-l 200", "-l 100");
    let run = ["run", "-m", "uma-8", "-k", "v6.1-autogroup", "-w", &half, "--full", "--json", "-q"];
    let run = json(&run, "vruntime/run/1");
    // Twice what the group in the middle took, and the last one's delay times the root of two.
    let of_half =
        v["rows"][0]["modelled_before"].as_f64().unwrap() * 1e9 / run["time_ns"].as_f64().unwrap();
    assert!((2f64.sqrt()..2.0).contains(&of_half), "{of_half}");
    let page = stdout(&["study", file, "-q", "--page", "--explain"]);
    assert!(page.starts_with("# a title"), "{page}");
    assert!(page.contains("## The open questions\n\nAn *amount*"), "{page}");
    assert!(page.contains("\n\n### Why?\n\nFor this.\n\nOf "), "{page}");
    assert!(page.contains("\nKernels: old = v6.1-autogroup.\nSkill: "), "{page}");
    assert!(page.contains(" counts as none: time 2.5.\n\n## The"), "{page}");
    let notes = "\n## Notes\n\n### Costs\n\nOf a\nmachine.\n\nOthers.\n";
    assert!(page.ends_with(notes), "{page}");
    assert!(
        page.contains(&format!("Written by `vruntime study {file} --explain --page`.")),
        "{page}"
    );
    assert!(page.contains("$ vruntime explain -m uma-8 -k 'v6.1-autogroup'"), "{page}");
    assert!(page.contains("-g 2 -f 3 -l 100") && !page.contains("each seed"), "{page}");
    let v = json(&["study", file, "--json", "-q", "--seeds", "3"], "vruntime/study/1");
    assert_eq!(v["rows"][0]["seeds_after"].as_array().map(Vec::len), Some(3));
    let told = stdout(&["study", file, "-q", "--quick"]);
    let said =
        format!("\n\nWhy?\nFor this.\n\nWhat to know of it: `vruntime show study {file}`.\n");
    assert!(told.ends_with(&said), "{told}");
    let shown = stdout(&["show", "study", file]);
    let rows = "  published                   before     after        %  effect\n  \
                time                          2.00      1.00    -50.0  improves\n\n";
    let said = format!("{rows}Why?\nFor this.\n\nCosts\nOf a\nmachine.\n\nOthers.\n");
    assert!(
        shown.starts_with("a title\na source\nKernels: old = v6.1-autogroup.\n\nc: "),
        "{shown}"
    );
    assert!(shown.ends_with(&said), "{shown}");
    let v = json(&["show", "study", file, "--json"], "vruntime/show/1");
    assert_eq!((&v["rows"][0]["before"], &v["notes"][0]["title"]), (&2.0.into(), &"Costs".into()));
    let page = stdout(&["study", file, "-q", "--page", "--seeds", "2"]);
    assert!(page.contains(" effect | each seed |\n") && page.contains(" → "), "{page}");
    let seeds_of_case = text.replace("before = \"old\"\n", "before = \"old\"\nseeds = 2\n");
    let spread = seeds_of_case.replace("before = 2\n", "before = 2\nbefore_spread_pct = 25\n");
    std::fs::write(&path, spread).unwrap();
    let page = stdout(&["study", file, "-q", "--page"]);
    assert!(page.contains("; 1 seed, 2 of c.") && page.contains(" | each seed |\n"), "{page}");
    assert!(page.contains("| time | 2.00 ± 25 % | 1.00 |"), "{page}");
    let page = stdout(&["study", file, "-q", "--page", "--seeds", "1"]);
    assert!(page.contains("; 1 seed.") && !page.contains("each seed"), "{page}");
    // Another case wants more runs of the same kernel: they are not this one's.
    let d = "[[case]]\nid = \"d\"\nmachine = \"uma-8\"\nworkload = \"hackbench -g 1 -f 4 --pipe \
             --threads -l 200 -s 100\"\nbefore = \"old\"\nafter = \"old\"\nseeds = 3\n[[row]]";
    std::fs::write(&path, text.replacen("[[row]]", d, 1)).unwrap();
    let v = json(&["study", file, "--json", "-q"], "vruntime/study/1");
    for seeds in ["seeds_before", "seeds_after"] {
        assert_eq!(v["rows"][0][seeds].as_array().map(Vec::len), Some(1), "{v}");
    }
    // One wants the benchmark's end with fewer loops: its time is so many times what that takes.
    let end = text.replacen("[[row]]", "loops_divided_by = 2\n[[row]]", 1);
    std::fs::write(&path, &end).unwrap();
    let v = json(&["study", file, "--json", "-q"], "vruntime/study/1");
    assert_eq!(v["loops_divided_by"], serde_json::json!({"c": 2}));
    let of_half = v["rows"][0]["modelled_before"].as_f64().unwrap() * 1e9;
    assert_eq!(of_half.round(), 2.0 * run["time_ns"].as_f64().unwrap());
    let page = stdout(&["study", file, "-q", "--page"]);
    assert!(
        page.contains("; to the end with 1/2 of the loops, 2 times that run's time: c"),
        "{page}"
    );
    // It has no warm-up that it could end soon after, as the same case's window does.
    let [text_of_long, end_of_long] = [&text, &end].map(|t| t.replace("-l 200 ", "-l 4000 "));
    std::fs::write(&path, &end_of_long).unwrap();
    let v = json(&["study", file, "--json", "-q"], "vruntime/study/1");
    let seconds = v["rows"][0]["modelled_before"].as_f64().unwrap();
    let warmup = format!("warmup_ms = {},", (600.0 * seconds).round());
    for (text, noted) in [(text_of_long, true), (end_of_long, false)] {
        std::fs::write(&path, text.replace("warmup_ms = 1,", &warmup)).unwrap();
        let mut study = assert_cmd::Command::cargo_bin("vruntime").unwrap();
        let run = study.args(["study", file, "-q"]).output().unwrap();
        let notes = String::from_utf8(run.stderr).unwrap();
        assert_eq!(notes.contains("after its warm-up of"), noted, "{warmup} {notes}");
    }
    std::fs::write(&path, end.replacen("by = 2\n[[row]]", "by = 201\n[[row]]", 1)).unwrap();
    fails(&["study", file, "-q"], 3, &["`c`", "= 201: expected at most its loops, 200"]);
    let many = text.replace("loops_divided_by = 2,", "loops_divided_by = 201,");
    std::fs::write(&path, many).unwrap();
    fails(&["study", file, "-q", "--quick"], 3, &["`c`", "= 201: expected at most its loops, 200"]);
    let idle = text.replace("metric = \"time\"", "metric = \"idle\"");
    std::fs::write(&path, idle.replace("{ time = 2.5", "{ idle = 2.5")).unwrap();
    fails(&["study", file, "-q", "--fit"], 3, &["no scored row of `time`"]);
    std::fs::write(&path, &text).unwrap();
    let fit = stdout(&["study", file, "-q", "--fit"]);
    assert!(fit.starts_with("[[fit]]\nmachine = \"uma-8\"\nrows = [\"c.time\"]\n"), "{fit}");
    let too_far = fit.replace("permille = ", "permille = 9");
    std::fs::write(&path, text.clone() + &too_far).unwrap();
    fails(&["study", file, "-q"], 3, &["[fitted] allows 800 to 1250"]);
    std::fs::write(&path, text + &fit).unwrap();
    assert_eq!(
        stdout(&["study", file, "-q", "--fit"]),
        fit,
        "a fit does not build on the last one"
    );
    let v = json(&["study", file, "--json", "-q"], "vruntime/study/1");
    assert_eq!(v["score"]["fitted_parameters"], 1);
    assert_eq!(v["rows"][0]["fitted"], true);

    // Wrong names are known before anything runs.
    for (right, wrong, words) in [
        ("machine = \"uma-8\"", "machine = \"uma-9\"", ["my.toml:12: `c`", "named `uma-9`"]),
        ("old+ttwu_queue=l2", "old+ttwu_queu=l2", ["`c`", "ttwu_queue"]),
        ("hackbench -g", "hackbensh -g", ["`c`", "hackbench"]),
        ("\"rq_lock\"", "\"rq_lok\"", ["`q`", "rq_lock"]),
        ("-g 2", "--groops 2", ["`q`", "--groups"]),
        ("metric = \"time\"", "metric = \"tim\"", ["`c.time`", "`time`"]),
        ("{ time = 2.5", "{ tyme = 2.5", ["`neutral_pct`", "`time`"]),
        ("{ time = 2.5", "{ idle = 2.5", ["`c.time`", "[neutral_pct] has no `time`"]),
        ("messages_per_second", "messages_a_second", ["`q`", "`messages_per_second`"]),
        ("old+ttwu_queue=l2", "old+scheduler=rrr", ["my", "no scheduler `rrr`, nearest is `rr`"]),
        ("hackbench -g", "taskset -c 77 hackbench -g", ["my", "CPU 77 does not exist"]),
        ("before = 2", "before = 0.0", ["`c.time`", "before = 0: expected more than 0"]),
        ("after = 1", "after = nan", ["`c.time`", "after = NaN: expected at least 0"]),
        ("time = 2.5", "time = -2", ["my.toml:6", "time = -2: expected 0 to 100"]),
        ("[\"rq_lock\"]", "[\"ipi\", \"ipi\"]", ["`q`", "name `ipi` twice"]),
        ("kernels = {", "kernels = { unused = \"v9\",", ["my.toml:5: `kernels.unused`", "`v9`"]),
    ] {
        std::fs::write(&path, small_study().replace(right, wrong)).unwrap();
        fails(&["study", file, "-q"], 3, &words);
    }
    // That a run has no such metric is known when it is there: the figures stay.
    let no_latency = small_study().replace("messages_per_second", "timer_latency_mean");
    std::fs::write(&path, no_latency).unwrap();
    let output = vruntime(&["study", file, "-q", "--explain"]).output().unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(out.contains("improves") && error.contains("`q`"), "{out}{error}");
    assert!(error.contains("uma-8: a window of 4.00 ms is shorter than the 8 ms"), "{error}");
    fails(&["study", file, "--fit", "--explain"], 2, &["--explain"]);
    fails(
        &[
            "explain",
            "-m",
            "uma-2",
            "-k",
            "v6.1",
            "-k",
            "v6.12",
            "-w",
            HACKBENCH,
            "--try",
            "rq_lock,ipi,rq_lock",
        ],
        2,
        &["`rq_lock` twice"],
    );

    fails(&["study", "l2-queued-wakeup"], 2, &["l2-queued-wakeups"]);
    let wrong = ["study", "l2-queued-wakeups", "--case", "spr-nolimt.g10"];
    fails(&wrong, 2, &["no case with `spr-nolimt.g10`", "nearest is `spr-nolimit.g10`"]);
    fails(&["study", "no.toml"], 3, &["no.toml"]);
    std::fs::write(&path, "schema = \"study/1\"\nnam = 3\n").unwrap();
    fails(&["study", file], 3, &["my.toml:2", "nam"]);
    assert!(stdout(&["study", "list"]).contains("l2-queued-wakeups"));
    assert_eq!(stdout(&["study", "list"]), stdout(&["list", "studies"]));
}

/// Two machines of one name are two machines, `--seeds` holds for answers, too, and `--quick` makes
/// them rough.
#[test]
fn answers_of_a_study_are_of_its_machines_and_seeds() {
    let dir = tempfile::tempdir().unwrap();
    let spec = include_str!("../../../machines/uma-8.toml");
    let small = dir.path().join("m.toml");
    std::fs::write(&small, spec.replace("_node = 8", "_node = 2").replace("_llc = 8", "_llc = 2"))
        .unwrap();
    let two = small_study()
        + &format!(
            "[[case]]\nid = \"d\"\nmachine = \"{}\"\nworkload = \"{HACKBENCH}\"\n\
             before = \"old\"\nafter = \"old+ttwu_queue=l2\"\n\
             [[question]]\nid = \"r\"\ntext = \"And here?\"\ncase = \"d\"\n\
             workload = \"hackbench -g 2 -f 3 -l 100\"\n\
             metric = \"messages_per_second\"\nknockouts = [\"rq_lock\"]\nsplit = 1\n",
            small.display()
        );
    let path = dir.path().join("my.toml");
    std::fs::write(&path, two).unwrap();
    let study = ["study", path.to_str().unwrap(), "-q", "--json", "--explain"];
    let v = json(&study, "vruntime/study/1");
    let of = |i: usize| &v["answers"][i];
    assert_ne!(of(0)["answer"]["before"], of(1)["answer"]["before"]);
    assert_eq!((&of(0)["id"], &of(1)["text"]), (&"q".into(), &"And here?".into()));
    assert!(of(0)["error"].is_null() && of(0)["command"].is_string(), "{v}");
    let v = json(&[&study[..], &["--seeds", "2", "--quick"]].concat(), "vruntime/study/1");
    for answer in v["answers"].as_array().unwrap() {
        let answer = &answer["answer"];
        assert_eq!(answer["seeds"], serde_json::json!([1, 2]));
        assert_eq!(answer["workload"], "hackbench --process -g 2 -f 3 -l 50 -s 100");
    }
    // One case alone, with its rows and its question.
    for (case, rows) in [("c", 1), ("d", 0)] {
        let v = json(&[&study[..], &["--case", case]].concat(), "vruntime/study/1");
        let len = |key: &str| v[key].as_array().unwrap().len();
        assert_eq!((len("rows"), len("answers")), (rows, 1), "{v}");
    }
}

/// Totals of runs that did not end say nothing.
#[test]
fn what_is_explained_of_runs_that_were_given_up_is_per_second() {
    let explain = ["explain", "-q", "-m", "uma-2", "-k", "v6.1", "-k", "v6.1+hz=1000", "--full"];
    let workload = ["-w", "hackbench -g 1 -l 1000", "--metric", "context_switches"];
    let all = [&explain[..], &workload, &["--try", "rq_lock", "--json"]].concat();
    let v = json(&all, "vruntime/explain/1");
    assert_eq!(
        (&v["unit"], &v["counting"], &v["given_up"]),
        (&"1".into(), &"totals".into(), &0.into())
    );
    let v = json(&[&all[..], &["--limit", "10ms"]].concat(), "vruntime/explain/1");
    assert_eq!((&v["unit"], &v["counting"]), (&"1/s".into(), &"rates".into()));
    assert!(v["given_up"].as_u64() > Some(0));
    assert!(v["conclusion"].as_str().unwrap().contains("did not end"), "{v}");
}

/// One output over another is refused, by whatever name; a link to a file that is yet to be made
/// stays; and what cannot be written takes no report with it.
#[test]
fn outputs_take_nothing_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let run = ["run", "-m", "uma-2", "-k", "v6.1", "-w", "spin 1 1", "--full", "-q"];
    let (trace, same) = (path("a.txt"), path("./a.txt"));
    let both = ["--trace", &trace, "--schedstat", &same];
    fails(&[&run[..], &both].concat(), 2, &["--schedstat", "expected another file"]);

    let later = path("later.txt");
    std::os::unix::fs::symlink(path("not-yet.txt"), &later).unwrap();
    stdout(&[&run[..], &["--trace", &later]].concat());
    assert!(Path::new(&later).is_symlink() && Path::new(&path("not-yet.txt")).is_file());

    let full = [&run[..], &["--schedstat", "/dev/full"]].concat();
    let output = vruntime(&full).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Performance counter stats"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/full: "));

    std::fs::hard_link(path("not-yet.txt"), path("again.txt")).unwrap();
    let (from, to) = (path("not-yet.txt"), path("again.txt"));
    fails(&["trace", "convert", &from, &to], 2, &["expected another file"]);
}

#[test]
fn groups_of_a_machine_have_their_sizes() {
    let text = stdout(&["show", "machine", "power10-96"]);
    for line in ["packages  3 of 32, 8, 56 CPUs", "nodes     5 of 8, 24, 8, 8, 48 CPUs"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("cores     24 of 4 CPUs"), "{text}");
}
