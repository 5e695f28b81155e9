//! `vruntime trace diff` and the causes of `trace stat`, on traces of model runs.

use assert_cmd::Command;
use std::path::Path;
use std::process::Output;

fn vruntime(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vruntime")).args(args).output().unwrap()
}

/// Writes the trace of a short run under `kernel`.
fn trace(dir: &Path, kernel: &str) -> String {
    let file = dir.join(format!("{kernel}.data")).to_str().unwrap().to_owned();
    let workload = "hackbench -g 1 -f 4 --pipe -l 200 -s 100";
    let run = ["run", "-m", "uma-2", "-k", kernel, "-w", workload, "--trace", &file];
    assert_eq!(vruntime(&run).status.code(), Some(0));
    file
}

#[test]
fn two_kernels_traces_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (trace(dir.path(), "v6.1"), trace(dir.path(), "v6.12"));
    let output = vruntime(&["trace", "diff", &a, &b]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    for expected in ["voluntary_switches", "sched_delay_p99", "blocks", "v6.12.data", "(base)"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let output = vruntime(&["trace", "diff", "--json", "--slices", "4", &a, &a]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["schema"], "vruntime/trace-diff/1");
    assert_eq!(json["slices"], 4);
    for row in json["rows"].as_array().unwrap() {
        assert_eq!(row["significant"][1], false, "{row}");
    }
}

#[test]
fn what_stat_counts_by_cause_is_what_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "v6.12");
    let output = vruntime(&["trace", "stat", "--json", &file]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let total = |table: &str| -> u64 {
        let counts = json["causes"][table].as_object().unwrap().values();
        counts.map(|v| v[0].as_u64().unwrap()).sum()
    };
    let events = |name: &str| json["stats"]["events"][name].as_u64().unwrap_or(0);
    assert_eq!(total("switches"), events("sched_switch"));
    assert_eq!(total("placements"), events("sched_wakeup") + events("sched_wakeup_new"));
    assert_eq!(total("migrations"), events("sched_migrate_task"));
}

#[test]
fn a_wrong_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = trace(dir.path(), "v6.1");
    let missing = dir.path().join("nowhere.data");
    let output = vruntime(&["trace", "diff", &file, missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere.data"));
    assert_eq!(vruntime(&["trace", "diff", &file]).status.code(), Some(2));
    let slices = ["trace", "diff", &file, &file, "--slices", "1"];
    assert_eq!(vruntime(&slices).status.code(), Some(2));
}
