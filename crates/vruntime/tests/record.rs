//! `vruntime record`, as a user types it. Recording itself needs root and perf or tracefs; where
//! there is neither, only the refusals are tested.

use assert_cmd::Command;
use std::path::Path;

fn vruntime(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_vruntime")).args(args).output().unwrap()
}

fn stderr(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nothing_is_written_for_a_program_that_does_not_exist() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("recording");
    let output = vruntime(&["record", "-o", to.to_str().unwrap(), "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`no-such-program`"), "{}", stderr(&output));
    assert!(!to.exists());
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "words").unwrap();
    let to = dir.path().to_str().unwrap();
    for force in [&[][..], &["--force"]] {
        let args = [&["record", "-o", to][..], force, &["--", "true"]].concat();
        let output = vruntime(&args);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(dir.path().join("thesis.tex").exists());
    }
}

/// Without a program to record with, what was recorded before is not lost.
#[test]
fn an_old_recording_stays_if_none_can_take_its_place() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["command.txt", "summary.json", "perf.data"] {
        std::fs::write(dir.path().join(name), "old").unwrap();
    }
    let to = dir.path().to_str().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_vruntime"))
        .args(["record", "--force", "--with", "perf", "-o", to, "--", "/bin/true"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(dir.path().join("perf.data").exists());
}

/// Records `sh -c 'exit 3'` and reads it back; returns false if this machine does not record.
fn records(with: &str, file: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("r");
    let to_text = to.to_str().unwrap();
    let command = ["--", "sh", "-c", "echo said; exit 3"];
    let args = [&["record", "--json", "--with", with, "-o", to_text][..], &command].concat();
    let output = vruntime(&args);
    if output.status.code() == Some(3) && stderr(&output).contains("cannot be recorded here") {
        return false;
    }
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    // The command's own words do not spoil the JSON.
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(stderr(&output).contains("said"));
    let tasks = json["stats"]["tasks"].as_array().unwrap();
    // That it left a CPU is all that every kernel tells: some write no switch away from an idle
    // task, and then nobody sees it come.
    assert!(tasks.iter().any(|t| t["comm"] == "sh" && t["nr_voluntary"].as_u64() > Some(0)));
    for name in [file, "topology.txt", "command.txt", "summary.json"] {
        assert!(to.join(name).is_file(), "{name}");
    }
    // A second recording replaces the first only if told so.
    assert_eq!(vruntime(&["record", "-o", to_text, "--", "true"]).status.code(), Some(2));
    let again = ["record", "--force", "--with", with, "-o", to_text, "--", "true"];
    assert_eq!(vruntime(&again).status.code(), Some(0));
    true
}

#[test]
fn perf_records() {
    if !records("perf", "perf.data") {
        eprintln!("perf does not record here");
    }
}

#[test]
fn tracefs_records_and_leaves_no_instance() {
    if !records("tracefs", "ftrace.txt") {
        return eprintln!("tracefs does not record here");
    }
    let instances = Path::new("/sys/kernel/tracing/instances");
    for entry in std::fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours = name.strip_prefix("vruntime-").and_then(|pid| pid.parse::<u32>().ok());
        assert!(ours.is_none_or(|pid| Path::new(&format!("/proc/{pid}")).exists()), "{name}");
    }
}
