//! Mistakes: does a wrong word, number or file end in a sentence that helps, and never in a panic,
//! a hang or a silent default?

use assert_cmd::Command;
use std::path::Path;

const PIPE: &str = "perf bench sched pipe -l 100";

fn vruntime(args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("vruntime").unwrap().args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A command must end with `code` and say all of `words` on stderr, nothing on stdout.
#[track_caller]
fn fails(args: &[&str], code: i32, words: &[&str]) {
    let (found, out, error) = vruntime(args);
    assert_eq!(found, code, "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: no `{word}` in: {error}");
    }
    assert!(!error.contains("panicked"), "{error}");
    assert!(out.is_empty(), "{args:?} wrote to stdout");
}

fn run<'a>(machine: &'a str, kernel: &'a str, workload: &'a str) -> Vec<&'a str> {
    vec!["run", "-m", machine, "-k", kernel, "-w", workload, "-q", "--warmup", "1ms"]
}

#[track_caller]
fn kernel(expression: &str, words: &[&str]) {
    fails(&run("uma-2", expression, PIPE), 2, words);
}

#[track_caller]
fn workload(command: &str, words: &[&str]) {
    fails(&run("uma-2", "v6.1", command), 2, words);
}

/// A tick that takes longer than it is to the next one leaves no time for the benchmark: the run is
/// given up. A larger cost than any may be is refused.
#[test]
fn costs_that_leave_no_time() {
    let explain = ["explain", "-m", "uma-2", "-q", "--warmup", "1ms", "--window", "2ms", "--seeds"];
    let kernels = ["1", "-k", "v6.12", "-k", "v6.12+hz=10000", "-w", "hackbench -g 1 -f 2 -l 20"];
    let planted = ["--metric", "irq", "--try", "scan", "--plant"];
    let all = [&explain[..], &kernels, &planted].concat();
    fails(&[&all[..], &["tick_base=110000"]].concat(), 2, &["a run has no `irq`"]);
    fails(&[&all[..], &["tick_base=1000000001"]].concat(), 2, &["`1000000001`", "at most"]);
}

#[test]
fn policies_that_a_scheduler_does_not_heed_are_noted() {
    let noted = |kernel: &str, workload: &str| {
        let (_, _, said) = vruntime(&run("uma-2", kernel, workload));
        said.contains("with scheduler = rr policies and nice values change nothing")
    };
    let rr = "v6.1+scheduler=rr";
    let nice = format!("nice -n 5 {PIPE}");
    assert!(noted(rr, &nice) && noted(rr, &format!("chrt -f 5 {PIPE}")));
    assert!(noted(rr, "cyclictest -p 80 -l 2"));
    assert!(!noted(rr, PIPE) && !noted("v6.1", &nice));
}

#[test]
fn groups_of_another_size_are_noted() {
    let said = |queue: &str| vruntime(&run("uma-8", &format!("v6.12+ttwu_queue={queue}"), PIPE)).2;
    assert!(
        said("3").contains("groups of 2 or 3 of the 8 CPUs of an LLC, not of 3"),
        "{}",
        said("3")
    );
    assert!(said("5").contains("groups of 4 of the 8 CPUs"), "{}", said("5"));
    assert!(!said("4").contains("groups of") && !said("llc").contains("groups of"));
}

#[test]
fn kernel_expressions() {
    kernel("v6.1+hz=0", &["hz = `0`", "from 24 to 10000"]);
    kernel("v6.1+hz=4294967295", &["from 24 to 10000"]);
    kernel("v6.1+imbalance_pct=0", &["imbalance_pct", "from 100"]);
    kernel("v6.12+base_slice_ns=0", &["base_slice_ns", "from 1000"]);
    kernel("v6.1+latency_ns=9223372036854775807", &["latency_ns", "to 1000000000"]);
    kernel("v6.1+busy_factor=0", &["busy_factor", "from 1"]);
    kernel("v6.1+", &["`v6.1+`", "a feature or tunable after `+`"]);
    kernel("v6.1++hz=100", &["after `+`"]);
    kernel("v6.1-", &["after `-`"]);
    kernel("v6.1+hz=100,hz=250", &["hz", "twice"]);
    kernel("v6.1-hz", &["hz is a number: expected `+hz=N`"]);
    kernel("v6.12+base_slice=700000", &["on or off; the time is base_slice_ns"]);
    kernel("v6.12-hz=1000", &["`-hz=1000`: `-` switches off", "`+hz=1000`"]);
    kernel("v6.13", &["`v6.13`, nearest is `v6.12`"]);
    kernel("./my-dir/k-sis_util", &["`./my-dir/k`"]);
    kernel("v6.1+name=mine", &["name", "no feature or tunable"]);
    kernel("v6.1+foo", &["`foo`", "vruntime list features"]);
    kernel("five", &["`five`", "v6.1", "v6.12", ".toml"]);
    kernel("", &["``", "v6.1", "v6.12"]);
}

#[test]
fn kernel_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k.toml");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/v6.1.toml");
    let text = std::fs::read_to_string(from).unwrap();
    let name = path.to_str().unwrap();
    std::fs::write(&path, text.replace("hz = 250", "hz = 0")).unwrap();
    fails(&run("uma-2", name, PIPE), 3, &["k.toml:", "hz = `0`", "from 24 to 10000"]);
    let with = |line: &str, words: &[&str]| {
        let key = line.split(' ').next().unwrap();
        let others = text.lines().filter(|l| !l.starts_with(&format!("{key} ")));
        let all: Vec<&str> = others.chain([line]).collect();
        std::fs::write(&path, all.join("\n")).unwrap();
        fails(&run("uma-2", name, PIPE), 3, words);
    };
    with("ttwu_queue = \"foo\"", &["k.toml:", ": ttwu_queue: `foo`, expected llc"]);
    with("ttwu_list_order = \"foo\"", &["ttwu_list_order: ", "`fifo` or `lifo`"]);
    with("base_slice_ns = -3", &["base_slice_ns: ", "a whole number from 0"]);
    with("inherit = \"v6.12\"", &["`inherit`", "every key", "-k v6.12+key=value"]);
    std::fs::write(&path, "name = \"mine\"\n").unwrap();
    fails(&run("uma-2", name, PIPE), 3, &["missing field", "every key"]);
}

/// A trace names its kernel; what another scheduler decided is no decision of EEVDF.
#[test]
fn a_run_under_another_scheduler_is_not_judged() {
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("of-rr.data");
    let trace = trace.to_str().unwrap();
    let mut args = run("uma-2", "v6.12+scheduler=rr", PIPE);
    args.extend(["--trace", trace]);
    let (code, _, error) = vruntime(&args);
    assert_eq!(code, 0, "{error}");
    let words = ["found a run under scheduler `rr`; expected `linux`"];
    fails(&["trace", "check", trace, "-m", "uma-2"], 3, &words);
}

/// What a kernel around another scheduler does not read, a note names: it changes nothing.
#[test]
fn what_round_robin_ignores_is_noted() {
    let hash = |overrides: &str| {
        let kernel = format!("v6.12+scheduler=rr{overrides}");
        let work = "perf bench sched messaging -g 1 -l 20";
        let run = run("uma-8", &kernel, work);
        let (code, out, error) = vruntime(&[&run[..], &["--json"]].concat());
        assert_eq!(code, 0, "{error}");
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        (value["hash"].as_str().unwrap().to_string(), error)
    };
    let (base, said) = hash("");
    assert!(said.is_empty(), "{said}");
    let ignored = "-sis_util,run_to_parity=off,autogroup=off,migration_cost_ns=1000,nr_migrate=1\
                   ,config_preemption=off,base_slice_ns=9000000,util_est=off,wakeup_preemption=off";
    for one in ignored.split(',') {
        let one = if one.starts_with('-') { one.into() } else { format!(",{one}") };
        let (other, said) = hash(&one);
        assert!(said.contains("with scheduler = rr"), "{one}: {said}");
        assert_eq!(other, base, "{one}");
    }
    assert_ne!(hash(",hz=1000").0, base);
}

/// Its counts are of its last moments, which look like a result.
#[test]
fn a_benchmark_that_ends_soon_after_its_warm_up_is_noted_once() {
    let base = ["-m", "uma-2", "-w", PIPE, "-k", "v6.1"];
    let said = |command: &str, more: &[&str]| {
        let (code, out, error) = vruntime(&[&[command][..], &base, more].concat());
        assert_eq!(code, 0, "{error}");
        (out, error.lines().filter(|l| l.contains("warm-up")).map(String::from).collect::<Vec<_>>())
    };
    let time = |out: &str| {
        let value: serde_json::Value = serde_json::from_str(out).unwrap();
        (value["time_ns"].as_u64().unwrap(), value["counters"]["messages"].as_u64().unwrap())
    };
    let (out, whole) = said("run", &["--full", "--json"]);
    let (ns, messages) = time(&out);
    assert!(whole.is_empty(), "{whole:?}");
    let warmup = format!("{}ns", ns - ns / 4);
    let (out, notes) = said("run", &["--warmup", &warmup, "--json"]);
    assert!(time(&out).1 < messages, "{out}");
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("vruntime: note: the benchmark ended "), "{note}");
    assert!(note.ends_with(": counts are of its tail; --warmup 0 counts all of it"), "{note}");
    let two = ["-k", "v6.1+seed_offset=7", "--seeds", "2", "--warmup", &warmup];
    let notes = said("compare", &two).1;
    assert!(notes.len() == 1 && notes[0].contains(" in 4 of 4 runs the benchmark"), "{notes:?}");
    let explained = [&two[..], &["--metric", "time", "--try", "ipi"]].concat();
    assert_eq!(said("explain", &explained).1.len(), 1);
    let (out, notes) = said("run", &["--warmup", "0", "--json"]);
    assert!(notes.is_empty() && time(&out) == (ns, messages), "{notes:?}");
    let early = format!("{}ns", ns / 4);
    assert!(said("run", &["--warmup", &early]).1.is_empty());
}

/// Forks of a second: the benchmark is not reached, and its figures are zeros.
#[test]
fn a_window_that_never_began_is_noted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    let cost = |of: u32| format!("{{ low = {of}, mid = {of}, high = {of}, source = \"x\" }}");
    let costs = format!("[costs]\nfork = {}\n\n[costs.line_transfer]", cost(100_000_000));
    let text =
        include_str!("../../../machines/uma-2.toml").replace("[costs.line_transfer]", &costs);
    let slow = format!("mhz = 3600\npath_permille = {}", cost(10_000));
    std::fs::write(&path, text.replace("mhz = 3600", &slow)).unwrap();
    let (code, _, said) = vruntime(&run(path.to_str().unwrap(), "v6.12", "hackbench -g 200 -l 1"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("in 1 of 1 runs the measured window never began"), "{said}");
}

/// `-q` is for progress.
#[test]
fn warnings_are_not_silenced() {
    let (code, _, error) = vruntime(&run("uma-2", "v6.1+place_lag", PIPE));
    assert!(code == 0 && error.contains("it changes nothing"), "{error}");
}

#[test]
fn options() {
    let base = run("uma-2", "v6.1", PIPE);
    let with = |more: &[&'static str]| [&base[..], more].concat();
    fails(&with(&["--window", "-1ms"]), 2, &["`-1ms`", "ns, us, ms or s"]);
    fails(&with(&["--seed", "-1"]), 2, &["`-1`", "a whole number from 0"]);
    fails(&with(&["--seed", "abc"]), 2, &["`abc`", "a whole number from 0"]);
    fails(&with(&["--seeds", "0"]), 2, &["`0`", "from 1 to 100000"]);
    fails(&with(&["-j", "-1"]), 2, &["`-1`", "a whole number from 0"]);
    fails(&with(&["--limit", "5s"]), 2, &["--full"]);
    fails(&["bench", "--case", "nothing"], 2, &["`nothing`", "hackbench-pipe-2"]);
}

#[test]
fn workloads() {
    workload("hackbench -x", &["unknown option `-x`; usage"]);
    workload("hackbench -g=5", &["-g: expected a whole number", "behind a space", "`=5`"]);
    workload("taskset -c 1-0 spin 1 1", &["taskset", "CPUs such as", "`1-0`"]);
    workload("taskset -c 2-3 spin 1 1", &["CPU 2 does not exist", "0-1"]);
    // As `sched_setaffinity` does, which fails only if nothing is left.
    let (code, _, said) = vruntime(&run("uma-2", "v6.1", "taskset -c 1-3 spin 1 1"));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("note: the machine has CPUs 0-1: taskset does without 2-3"), "{said}");
    workload("taskset zz spin 1 1", &["taskset", "`zz`"]);
    workload("taskset 0x10 spin 1 1", &["CPU 4 does not exist", "0-1"]);
    workload("nice -n 5", &["`nice -n 5`: expected a benchmark", "hackbench"]);
    workload("nice -x spin 1 1", &["nice", "`-x`"]);
    workload("chrt -f 0 spin 1 1", &["chrt", "from 1 to 99", "`0`"]);
    workload("chrt -d 0 spin 1 1", &["chrt", "--fifo", "`-d`"]);
}

#[test]
fn results_that_cannot_be_written() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let binary = assert_cmd::cargo::cargo_bin("vruntime");
    let list = || {
        let mut command = std::process::Command::new(&binary);
        command.args(["list", "features"]);
        command
    };
    let output = list().stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("stdout"));

    // A reader that has seen enough is no error.
    let mut child = list().stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // Nobody measures for minutes to be told then.
    for args in [["bench", "-o", "/proc/no/such"], ["calibrate", "-o", "/proc/no/such"]] {
        let start = std::time::Instant::now();
        fails(&args, 3, &["/proc/no"]);
        assert!(start.elapsed().as_secs() < 5, "{args:?} measured first");
    }
}

#[test]
fn machine_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/uma-2.toml");
    let good = std::fs::read_to_string(from).unwrap();
    let check = |text: &str, words: &[&str]| {
        std::fs::write(&path, text).unwrap();
        fails(&run(path.to_str().unwrap(), "v6.1", PIPE), 3, words);
    };
    let change = |from: &str, to: &str, words: &[&str]| {
        assert!(good.contains(from), "{from}");
        check(&good.replacen(from, to, 1), words);
    };
    let polls = "mhz = 3600\nguest_halt_poll_ns = 0";
    change("mhz = 3600", polls, &["guest_halt_poll_ns: ", "no idle state `haltpoll idle`"]);
    change("page_kib = 4", "page_kib = \"4\"", &["m.toml:6:", "page_kib", "a whole number"]);
    change("sockets = 1", "sockets = -1", &["m.toml:16:", "sockets", "a whole number"]);
    change("page_kib = 4", "page_kib = 3", &["m.toml:6: page_kib", "a power of two"]);
    let far = "node_distance = [[4000000000]]\nnumbering";
    change("numbering", far, &["m.toml:19: node_distance", "255"]);
    let no_slit = "node_distance = [[20]]\nnumbering";
    change("numbering", no_slit, &["m.toml:19: node_distance", "10 for a node itself"]);
    change("name = \"C1\"", "name = \"POLL\"", &["idle", "POLL"]);
    let soon = "target_residency_ns = 1";
    change("target_residency_ns = 200000", soon, &["m.toml:39: idle.C6", "residency"]);
    let names = &["m.toml:5: arch: found no name", "expected `x86` or `powerpc`"];
    change("arch = \"x86\"", "arch = 1", names);
    change("name = \"uma-2\"", "name = \"\"", &["name"]);
    change("name = \"uma-2\"", "name = \"\\u001b[31m\"", &["name", "control character"]);
    change("name = \"C1\"", "name = \"C\\n1\"", &["idle", "control character"]);
    let huge = "mhz = 18446744073709551615";
    change("mhz = 3600", huge, &["m.toml:7: mhz: ", "from 0 to 4294967295"]);
    let wide = "threads_per_core = 8\ncores_per_node";
    change("cores_per_node", wide, &["m.toml:9: smt_speed", "8 busy threads"]);
    check(good.split_once("[[idle]]").unwrap().0, &["`[[idle]]`", "exit_latency"]);
    // Three are there; cpuidle has at most ten.
    let state = good.rsplit_once("[[idle]]").unwrap().1;
    let and = |more: u32| {
        let one = |i| format!("\n[[idle]]{}", state.replace("C6", &format!("S{i}")));
        format!("{good}{}", (0..more).map(one).collect::<String>())
    };
    check(&and(8), &["m.toml:", "idle: found 11 states, expected at most 10"]);
    std::fs::write(&path, and(7)).unwrap();
    let (code, _, said) = vruntime(&run(path.to_str().unwrap(), "v6.1", PIPE));
    assert_eq!(code, 0, "{said}");
    check("<topology></topology>", &["<topology> without a version", "lstopo"]);
    let (head, rest) = good.split_once("[topology.regular]").unwrap();
    let (_, tail) = rest.split_once("\n\n").unwrap();
    let forms = |form: &str| format!("{head}{form}\n\n{tail}");
    let masks = "[topology.masks]\nsmt = [\"0\"]\nl2 = [\"0\", \"1\"]\nllc = [\"0-1\"]\n\
                 packages = [\"0-1\"]\nnodes = [\"0-1\"]\nnode_numbers = [0]";
    check(&forms(masks), &["core set of CPU 1", "found nothing"]);
    let nodes = "[topology.nodes]\ncores_per_llc = 1\nnumbering = \"siblings-adjacent\"\n\
                 nodes = [{ number = 0, package = 0, cpus = \"0\" }, \
                 { number = 0, package = 0, cpus = \"1\" }]\n\
                 node_distance = [[10, 20], [20, 10]]";
    check(&forms(nodes), &["node 0", "twice"]);
    let no_cpus = nodes.replacen("cpus = \"0\"", "cpus = \"\"", 1);
    check(&forms(&no_cpus), &["no CPUs in node 0", "leave out"]);
    let endless = run("/dev/zero", "v6.1", PIPE);
    fails(&endless, 3, &["/dev/zero", "MiB"]);
}

/// Is a mistake in a cost table said of the table?
#[test]
fn inherited_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (path, costs) = (dir.path().join("m.toml"), dir.path().join("costs"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    std::fs::create_dir(&costs).unwrap();
    std::fs::copy(root.join("uma-2.toml"), &path).unwrap();
    let good = std::fs::read_to_string(root.join("costs/x86-server.toml")).unwrap();
    let line = |of: &str| good.lines().position(|l| l.starts_with(of)).unwrap() + 1;
    let change = |from: &str, to: &str, words: &[&str]| {
        assert!(good.contains(from), "{from}");
        std::fs::write(costs.join("x86-server.toml"), good.replacen(from, to, 1)).unwrap();
        fails(&run(path.to_str().unwrap(), "v6.1", PIPE), 3, words);
    };
    let fork = format!("costs/x86-server.toml:{}: ", line("fork = "));
    change("fork = { low", "fork = { lo", &[&fork, "`lo`, nearest is `low`"]);
    change("fork = { low", "frok = { low", &[&fork, "`frok`, nearest is `fork`"]);
    change("fork = { low = ", "fork = { low = 9", &[&fork, "costs.fork: found low 9", "≤"]);
    let costs_at = format!("costs/x86-server.toml:{}: ", line("[costs]"));
    change("\nfork = ", "\n# fork = ", &[&costs_at, "missing field `fork`"]);
    let schema = "schema = \"costs/1\"";
    let cycle = &["x86-server.toml:", "a cycle, x86-server → x86-server"];
    change(schema, &format!("{schema}\ninherit = \"x86-server\""), cycle);
}

const UMA_8: &str = include_str!("../../../machines/uma-8.toml");

/// A cost of a machine's own is whole, or parts of it would be the inherited table's under a source
/// that does not say them.
#[test]
fn a_cost_without_one_of_its_fields() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    let place = format!("m.toml:{}: costs.pipe_write: missing field ", UMA_8.lines().count() + 3);
    for (cost, missing) in [
        ("low = 1, high = 900, source = \"me\"", "`mid`"),
        ("mid = 70, source = \"me\"", "`low`"),
        ("low = 1, mid = 2, high = 3", "`source`"),
        ("", "`low`"),
    ] {
        std::fs::write(&path, format!("{UMA_8}\n[costs]\npipe_write = {{ {cost} }}\n")).unwrap();
        let run = run(path.to_str().unwrap(), "v6.1", PIPE);
        fails(&run, 3, &[&format!("{place}{missing}")]);
    }
}

/// Of several idle states the one that is wrong is named, by number and line.
#[test]
fn a_mistake_in_a_later_idle_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.toml");
    let latency = "table_latency_ns = 85000";
    let line = UMA_8.lines().position(|l| l == latency).unwrap() + 1;
    std::fs::write(&path, UMA_8.replace(latency, "table_latency_ns = -5")).unwrap();
    let place = format!("m.toml:{line}: idle[2].table_latency_ns: ");
    fails(&run(path.to_str().unwrap(), "v6.1", PIPE), 3, &[&place, "`-5`"]);
}

/// A negative number is a wrong value, not an unknown option.
#[test]
fn negative_numbers_are_values() {
    let recording = "../../tests/data/guest-6.1-16cpu-xfs-dbench6";
    fails(&["trace", "why", recording, "--at", "-5"], 2, &["--at", "`-5`"]);
    fails(&["explain", "--split", "-1"], 2, &["-1", "1..=6"]);
    let twice = "explain -m uma-2 -k v6.1 -k v6.12 --without ipi --try scan,ipi -w";
    let twice: Vec<&str> = twice.split_whitespace().chain(["spin 1 1"]).collect();
    fails(&twice, 2, &["`ipi` is left out of every run by --without"]);
    let study = ["study", "l2-queued-wakeups"];
    fails(&[&study[..], &["-j", "-1"]].concat(), 2, &["`-1`", "a whole number from 0"]);
    fails(&[&study[..], &["--uncertainty", "-1"]].concat(), 2, &["`-1`", "a whole number from 1"]);
}

#[test]
fn archives() {
    let dir = tempfile::tempdir().unwrap();
    let check = |name: &str, bytes: &[u8], words: &[&str]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        fails(&run(path.to_str().unwrap(), "v6.1", PIPE), 3, words);
    };
    check("zeros.tar", &[0; 10240], &["zeros.tar: found zeros", "a copy of /sys"]);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/machines");
    let packed = std::fs::read(from.join("sysfs.tar.gz")).unwrap();
    let cut = &packed[..packed.len() / 2];
    check("cut.tar.gz", cut, &["gzip data that cannot be unpacked", "a whole one"]);
    let mut tar = vec![0; 600];
    tar[257..262].copy_from_slice(b"ustar");
    check("cut.tar", &tar, &["cut.tar: found a tar archive that cannot be read"]);
}
