//! `trace stat` of what is no trace, as a user meets it: a clear error, soon, in little memory.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// KiB of address space: far below what reading a device to its end would take.
const MEMORY_KIB: u64 = 1_000_000;

/// `vruntime trace stat FILE` with little memory: exit code and stderr.
#[track_caller]
fn stat(file: &str, stdin: Stdio) -> (i32, String) {
    let start = Instant::now();
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" trace stat \"$1\""))
        .args([env!("CARGO_BIN_EXE_vruntime"), file])
        .stdin(stdin)
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "{file}: {:?}", start.elapsed());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), error)
}

#[track_caller]
fn refused(file: &str, stdin: Stdio, words: &str) {
    let (code, error) = stat(file, stdin);
    assert_eq!(code, 3, "{file}: {error}");
    assert!(error.contains(words) && error.lines().count() == 1, "{file}: {error}");
}

fn written(dir: &TempDir, name: &str, bytes: &[u8]) -> String {
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().into()
}

/// A file that says it is a TiB.
fn sparse(path: &Path, start: &[u8]) -> String {
    std::fs::write(path, start).unwrap();
    File::options().write(true).open(path).unwrap().set_len(1 << 40).unwrap();
    path.to_str().unwrap().into()
}

#[test]
fn devices_and_directories() {
    refused("/dev/zero", Stdio::null(), "/dev/zero: found a character device; expected perf.data");
    refused("/dev/null", Stdio::null(), "found a character device");
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path().to_str().unwrap(), Stdio::null(), "found a directory");
    written(&dir, "perf.data", b"");
    refused(dir.path().to_str().unwrap(), Stdio::null(), "perf.data in it)");
    refused("/nowhere/x", Stdio::null(), "/nowhere/x: cannot read: ");
}

#[test]
fn standard_input() {
    let zero = || Stdio::from(File::open("/dev/zero").unwrap());
    refused("-", zero(), "standard input: found a character device");
    let endless = |words: &[&str]| {
        let mut source = Command::new(words[0]);
        source.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::null());
        source.spawn().unwrap()
    };
    let mut zeros = endless(&["cat", "/dev/zero"]);
    refused("-", zeros.stdout.take().unwrap().into(), "found bytes that are no text");
    let mut lines = endless(&["yes"]);
    refused("-", lines.stdout.take().unwrap().into(), "no line of an event in the first 16 MiB");
    for mut source in [zeros, lines] {
        let _ = source.kill();
        let _ = source.wait();
    }
}

#[test]
fn files_that_are_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    refused(&written(&dir, "empty", b""), Stdio::null(), "empty: found nothing; expected ");
    let binary: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
    refused(&written(&dir, "binary", &binary), Stdio::null(), "found bytes that are no text");
    refused(&written(&dir, "poem", b"Tyger tyger\n"), Stdio::null(), "found no line of an event");
    refused(&sparse(&dir.path().join("sparse"), b""), Stdio::null(), "bytes that are no text");
    refused(&written(&dir, "a.xz", b"\xfd7zXZ\0 and no more"), Stdio::null(), "the .xz is damaged");
    refused(&written(&dir, "short", b"PERFILE2"), Stdio::null(), "header of no known size");
}

/// A header that promises what is not there takes no memory for it.
#[test]
fn a_perf_data_of_promises() {
    let dir = tempfile::tempdir().unwrap();
    let mut header = b"PERFILE2".to_vec();
    for word in [104u64, 128, 104, 1 << 39, 1 << 20, 1 << 39, 0, 0, u64::MAX, 0, 0, 0] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    for (name, file) in [
        ("promises", written(&dir, "promises", &header)),
        ("sparse promises", sparse(&dir.path().join("sparse"), &header)),
    ] {
        let (code, error) = stat(&file, Stdio::null());
        assert_eq!(code, 3, "{name}");
        assert!(error.contains("no scheduling event can be read: "), "{name}: {error}");
    }
}

/// As `trace check` refuses it.
#[test]
fn a_trace_of_another_machine_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.txt");
    let vruntime = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_vruntime")).args(args).arg(&trace).output().unwrap()
    };
    let pipe = "perf bench sched messaging -g 1 -l 10";
    let run = ["run", "-q", "-m", "uma-8", "-k", "v6.12", "-w", pipe, "--trace"];
    assert!(vruntime(&run).status.success());
    let refused = vruntime(&["trace", "stat", "-m", "uma-2"]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{error}");
    assert!(error.contains("events on CPUs outside of 0-1"), "{error}");
    assert!(vruntime(&["trace", "stat", "-m", "uma-8"]).status.success());
}

/// A task may be called what it likes; a terminal that obeyed it would show another report.
#[test]
fn names_do_not_command_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let switch = |at: &str, prev: &str, next: &str| {
        format!(
            "  <idle>-0     [000] d..2.   {at}: sched_switch: prev_comm={prev} prev_prio=120 \
             prev_state=S ==> next_comm={next} next_prio=120\n"
        )
    };
    let (idle, evil) = ("swapper/0 prev_pid=0", "e\x1b[2Jl next_pid=7");
    let back = switch("1.000009", "e\x1b[2Jl prev_pid=7", "swapper/0 next_pid=0");
    let text = "# tracer: nop\n".to_string() + &switch("1.000001", idle, evil) + &back;
    let file = written(&dir, "t.txt", text.as_bytes());
    let output = Command::new(env!("CARGO_BIN_EXE_vruntime"))
        .args(["trace", "stat", &file])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("e\u{fffd}[2Jl:7") && !text.contains('\x1b'), "{text}");
}

#[test]
fn a_task_that_is_not_there_has_a_nearest_name() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let file = data.join("guest-6.1-16cpu-xfs-dbench6/ftrace.txt.xz");
    let output = Command::new(env!("CARGO_BIN_EXE_vruntime"))
        .args(["trace", "stat", file.to_str().unwrap(), "--task", "dbnch"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("called `dbnch`, nearest is `dbench`"), "{error}");
}
