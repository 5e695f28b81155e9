//! Outputs: is what a command writes kept apart from what it reads, and from its other outputs?

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SPIN: [&str; 4] = ["run", "-q", "-w", "spin 1 1"];

fn spin(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vruntime"));
    command.current_dir(dir).args(SPIN);
    command
}

/// What `vruntime` says in `dir`, if it succeeds.
#[track_caller]
fn vruntime(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vruntime"));
    let output = command.current_dir(dir).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Ends with `code` and `words` on stderr.
#[track_caller]
fn refused(dir: &Path, args: &[&str], words: &str) {
    let output = spin(dir).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
    assert!(error.contains(words), "{args:?}: {error}");
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Not every file name is UTF-8; the command line in a trace has what can be shown of it.
#[test]
fn a_name_may_be_any_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let name =
        |end: &str| std::ffi::OsStr::from_bytes(&[b"a\xff", end.as_bytes()].concat()).to_owned();
    let [text, data] = [".txt", ".data"].map(name);
    let made = spin(dir.path())
        .args(["-m", "uma-2", "-k", "v6.1", "--trace"])
        .arg(&text)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut convert = Command::new(env!("CARGO_BIN_EXE_vruntime"));
    convert.current_dir(dir.path()).args(["trace", "convert"]).args([&text, &data]);
    let made = convert.output().unwrap();
    assert!(made.status.success() && dir.path().join(&data).exists(), "{made:?}");
}

#[test]
fn what_describes_a_run_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("costs")).unwrap();
    let inputs = [
        ("machines/uma-2.toml", "m.toml"),
        ("machines/costs/x86-server.toml", "costs/x86-server.toml"),
        ("kernels/v6.12.toml", "k.toml"),
    ];
    for (from, to) in inputs {
        fs::copy(repository(from), dir.join(to)).unwrap();
    }
    symlink("m.toml", dir.join("link.txt")).unwrap();
    let run = ["-m", "m.toml", "-k", "k.toml"];
    for output in [
        ["--schedstat", "m.toml"],
        ["--schedstat", "./k.toml"],
        ["--schedstat", "costs/x86-server.toml"],
        ["--trace", "link.txt"],
    ] {
        refused(dir, &[&run[..], &output[..]].concat(), "is read: expected another file");
    }
    for (from, to) in inputs {
        assert_eq!(fs::read(repository(from)).unwrap(), fs::read(dir.join(to)).unwrap(), "{to}");
    }
}

#[test]
fn two_outputs_are_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    symlink("a.txt", dir.join("b.txt")).unwrap();
    let run = ["-m", "uma-2", "-k", "v6.12", "--trace", "a.txt", "--schedstat", "b.txt"];
    refused(dir, &run, "--schedstat b.txt: expected another file");
    assert!(!dir.join("a.txt").exists());
    // The link itself may be written through.
    let run = ["-m", "uma-2", "-k", "v6.12", "--schedstat", "b.txt"];
    assert!(spin(dir).args(run).output().unwrap().status.success());
    assert!(fs::read_to_string(dir.join("a.txt")).unwrap().starts_with("version"));
}

#[test]
fn counters_go_into_a_pipe_but_not_under_the_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = ["-m", "uma-2", "-k", "v6.12", "--schedstat", "/dev/stdout"];
    let Output { status, stdout, .. } = spin(dir.path()).args(run).output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success() && text.starts_with("version") && text.contains("task-clock"));
    let file = fs::File::create(dir.path().join("out")).unwrap();
    let status = spin(dir.path()).args(run).stdout(file).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// Whoever reads a FIFO gets all figures, once: it is not opened for each case and kernel.
#[test]
fn figures_of_all_kernels_go_into_one_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let from = fifo.clone();
    let reader = std::thread::spawn(move || fs::read_to_string(from).unwrap());
    let mut bench = Command::new(env!("CARGO_BIN_EXE_vruntime"));
    bench.args(["bench", "--case", "pipe-2", "--percent", "1", "--repeat", "1", "-o"]).arg(&fifo);
    // No valgrind, which takes minutes.
    let output = bench.env("PATH", "").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let values: serde_json::Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    for kernel in ["v6.1", "v6.12"] {
        assert!(values.as_array().unwrap().iter().any(|v| v["kernel"] == kernel), "{values}");
    }
}

/// Accounting alone makes no trace that anything reads.
#[test]
fn a_trace_of_accounting_alone_is_not_converted() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("r.txt"), dir.path().join("r.dat"));
    let line = "a-7 ( 7) [000] d..2. 1.000100: sched_stat_runtime: comm=a pid=7 runtime=897 [ns]\n";
    fs::write(&from, line).unwrap();
    let mut convert = Command::new(env!("CARGO_BIN_EXE_vruntime"));
    let output = convert.args(["trace", "convert"]).args([&from, &to]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no scheduling event can be read"), "{said}");
    assert!(!to.exists());
}

/// What `trace convert` says is what the files hold.
#[test]
fn a_conversion_counts_what_it_has_written() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = ["-m", "uma-2", "-k", "v6.12", "--trace", "t.data"];
    assert!(spin(dir).args(run).output().unwrap().status.success());
    let vruntime = |args: &[&str]| String::from_utf8(vruntime(dir, args).stdout).unwrap();
    let said = vruntime(&["trace", "convert", "t.data", "t.txt"]);
    let text = fs::read_to_string(dir.join("t.txt")).unwrap();
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    let (runtimes, others): (Vec<&str>, _) = lines.partition(|l| l.contains("sched_stat_runtime"));
    let (all, others) = (runtimes.len() + others.len(), others.len());
    assert!(said.starts_with(&format!("t.txt: {all} events, ")), "{said}");
    assert!(text.contains(&format!("entries-in-buffer/entries-written: {all}/{all} ")));
    let said = vruntime(&["trace", "convert", "t.data", "t.pftrace"]);
    assert!(said.starts_with(&format!("t.pftrace: {others} events, ")), "{said}");
    let left_out = format!("left out: {} sched_stat_runtime", runtimes.len());
    assert!(said.contains(&left_out) && !runtimes.is_empty(), "{said}");
    // What the recorder saw beside the scheduler is counted.
    let switch = text.find(" sched_switch:").unwrap();
    let line = text[..switch].rfind('\n').unwrap() + 1;
    let irq = format!("{} irq_handler_entry: irq=9 name=acpi\n", &text[line..switch]);
    fs::write(dir.join("irq.txt"), text.clone() + &irq + &irq).unwrap();
    let said = vruntime(&["trace", "convert", "irq.txt", "t.data"]);
    assert!(said.contains("left out: 2 events of other kinds"), "{said}");
    // A text does not say which kernel it is of, and no file made of it does.
    for name in ["t.data", "t.dat", "t.pftrace"] {
        vruntime(&["trace", "convert", "irq.txt", name]);
        assert!(
            vruntime(&["trace", "stat", name, "--json"]).contains("\"release\":null"),
            "{name}"
        );
    }
}

/// A report and the trace of the same run tell the same sched delay, to the nanosecond.
#[test]
fn a_delay_is_the_same_in_report_and_trace() {
    let dir = tempfile::tempdir().unwrap();
    let mean = |args: &[&str], at: &str| {
        let output = vruntime(dir.path(), args);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        value.pointer(at).unwrap().as_u64().unwrap()
    };
    let run = ["run", "-m", "uma-2", "-k", "v6.12", "-w", "perf bench sched pipe -l 2000", "-q"];
    let run = [&run[..], &["--full", "--json", "--trace", "t.data"]].concat();
    let told = mean(&run, "/sched_delay/mean_ns");
    let stat = ["trace", "stat", "t.data", "--json"];
    assert_eq!(told, mean(&stat, "/stats/sched_delay/mean_ns"));
    assert!((50..5_000).contains(&told), "{told}");
}

/// One event has no duration, so nothing a second.
#[test]
fn a_trace_of_one_moment_has_no_rates() {
    let dir = tempfile::tempdir().unwrap();
    let next = "next_comm=swapper/0 next_pid=0 next_prio=120";
    let line = format!(
        "a-7 ( 7) [000] d..2. 1.000100: sched_switch: prev_comm=a prev_pid=7 prev_prio=120 \
         prev_state=S ==> {next}\n"
    );
    fs::write(dir.path().join("one.txt"), line).unwrap();
    let text =
        String::from_utf8(vruntime(dir.path(), &["trace", "stat", "one.txt"]).stdout).unwrap();
    assert!(text.contains("                1  # - K/sec\n"), "{text}");
}

/// perf.data and trace.dat are written out of order, which a pipe cannot be; and whoever reads a
/// conversion there learns what it lacks.
#[test]
fn a_pipe_takes_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let run = ["-m", "uma-2", "-k", "v6.12", "--trace", "t.data"];
    assert!(spin(dir).args(run).output().unwrap().status.success());
    let convert = |to: &[&str]| vruntime(dir, &[&["trace", "convert", "t.data"], to].concat());
    for (name, format) in [("f.data", "perf"), ("f.dat", "dat")] {
        let fifo = dir.join(name);
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn(move || fs::read(fifo).unwrap());
        convert(&[name]);
        let whole = reader.join().unwrap();
        assert!(whole.len() > 4_000, "{}", whole.len());
        for to in ["-", "/dev/stdout"] {
            let output = convert(&[to, "--to", format]);
            // It holds the command line.
            assert!(output.stdout.len().abs_diff(whole.len()) < 500, "{to}: {}", whole.len());
            assert!(output.stderr.is_empty(), "{output:?}");
        }
    }
    let said = convert(&["-", "--to", "text"]).stderr;
    assert_eq!(String::from_utf8(said).unwrap(), "vruntime: note: times are cut to microseconds\n");
}

/// A benchmark of 60 ms.
const RUN: [&str; 8] = ["run", "-m", "uma-8", "-k", "v6.12", "-w", "hackbench -g 1 -l 2000", "-q"];

/// What the window's figures count are the events of its trace, no more and no less.
#[test]
fn a_trace_of_the_window_has_what_the_window_counts() {
    let (counters, stat) = traced_window("20ms");
    let (traced, causes) = (&stat["stats"], &stat["causes"]["switches"]);
    assert!(counters["context_switches"].as_u64().unwrap() > 1_000, "{counters}");
    assert_eq!(traced["context_switches"], counters["context_switches"]);
    assert_eq!(traced["events"]["sched_waking"], counters["wakeups"]);
    assert_eq!(causes["blocks"][0], counters["voluntary_switches"]);
    // One that ends in the warm-up is measured whole.
    let (counters, stat) = traced_window("200ms");
    assert_eq!(stat["stats"]["events"]["sched_waking"], counters["wakeups"]);
    assert_eq!(stat["causes"]["switches"]["exits"][0], 40);
}

/// Room for no more than the warm-up's events leaves that for the window's.
#[test]
fn a_trace_of_the_window_begins_with_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let window = ["--warmup", "20ms", "--window", "1ms", "--json"];
    let trace = ["--trace", "w.txt", "--trace-window", "--trace-events", "100"];
    let output = vruntime(dir.path(), &[&RUN[..], &window, &trace].concat());
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let opened = record["window"][0].as_f64().unwrap() / 1e9;
    let text = fs::read_to_string(dir.path().join("w.txt")).unwrap();
    let mut events = text.lines().filter(|line| !line.starts_with('#'));
    let time = |line: &str| -> f64 {
        let words = line.split_whitespace();
        words.filter_map(|word| word.strip_suffix(':')?.parse().ok()).next().unwrap()
    };
    let first = time(events.next().unwrap());
    assert!((opened - 1e-6..opened + 1e-3).contains(&first), "{first} s, {opened} s");
}

/// A run's counters, and what `trace stat` says of the trace of its window.
fn traced_window(warmup: &str) -> (serde_json::Value, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let json = |args: &[&str]| -> serde_json::Value {
        let output = vruntime(dir.path(), &[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let window = ["--warmup", warmup, "--window", "10ms", "--trace", "w.data", "--trace-window"];
    let mut record = json(&[&RUN[..], &window].concat());
    (record["counters"].take(), json(&["trace", "stat", "w.data"]))
}
