//! Every decision of a recording is told, by the rule that the judge found.

use assert_cmd::Command;
use serde_json::Value;
use std::path::{Path, PathBuf};
use vruntime::trace_check::{Given, trace_check, trace_explain};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/guest-6.1-16cpu-xfs-dbench6")
}

fn vruntime(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::cargo_bin("vruntime").unwrap().args(args).output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_is_told_is_what_was_judged() {
    let path = recording();
    let told = trace_explain(&path, Given::default()).unwrap();
    let judged = trace_check(&[path], Given::default()).unwrap();
    assert_eq!(told.state, "true");
    for kind in [
        "placement",
        "placement_fork",
        "placement_exec",
        "wakeup_preemption",
        "pick",
        "tick_preemption",
        "migration",
    ] {
        let k = judged.kind(kind).unwrap();
        let of: Vec<_> = told.decisions.iter().filter(|d| d.kind == kind).collect();
        assert_eq!(of.len() as u64, k.determined + k.undetermined, "{kind}");
        let determined = of.iter().filter(|d| d.rule.is_some()).count() as u64;
        let differ = of.iter().filter(|d| d.ours.is_some()).count() as u64;
        assert_eq!((determined, determined - differ), (k.determined, k.agree), "{kind}");
        assert!(of.iter().all(|d| d.rule.is_some() == d.unknown.is_empty()), "{kind}");
    }
    let moved = told.decisions.iter().filter(|d| d.kind == "move");
    assert!(moved.clone().count() > 5 && moved.clone().all(|d| d.rule.is_some()));
}

/// What a plain trace does not tell of a queue is said to be unknown, not told as a number that
/// stands for it.
#[test]
fn what_is_not_known_is_no_figure() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("why.txt");
    let trace = path.to_str().unwrap();
    let of = ["-m", "uma-8", "-k", "v6.12"];
    let run = ["run", "--full", "-q", "-w", "hackbench -g 2 -l 100", "--trace", trace];
    assert_eq!(vruntime(&[&run[..], &of].concat()).0, Some(0));
    let why = ["trace", "why", trace, "--top", "--json"];
    let (code, out, err) = vruntime(&[&why[..], &of].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("in delayed dequeue") && out.contains("deadline not known"));
    let far = |ms: &str| ms.parse::<f64>().is_ok_and(|ms| ms.abs() > 100_000.0);
    let words: Vec<&str> = out.split([' ', '"']).collect();
    let told = words.windows(2).find(|w| w[1].starts_with("ms") && far(w[0]));
    assert!(told.is_none(), "{told:?}");
}

#[test]
fn a_moment_is_told_with_its_state() {
    let path = recording().display().to_string();
    let (code, out, err) = vruntime(&["trace", "why", &path, "--at", "10.05"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("The kernel:") && out.contains("Rule:"), "{out}");
    let (code, out, _) = vruntime(&["trace", "why", &path, "--task", "dbench", "--json"]);
    let value: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, value["schema"].as_str()), (Some(0), Some("vruntime/trace-why/1")));
    assert!(value["decisions"].as_array().unwrap().len() > 100);
    for (args, words) in
        [(["--at", "soon"], "expected seconds"), (["--task", "dbnch"], "nearest is `dbench`")]
    {
        let (code, out, err) = vruntime(&[&["trace", "why", &path][..], &args].concat());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(words), "{err}");
    }
}

#[test]
fn a_run_of_the_model_is_told_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.data").display().to_string();
    let run = "run -m uma-8 -k v6.12 --warmup 1ms --window 5ms -q --trace";
    let words: Vec<&str> =
        run.split(' ').chain([&file[..], "-w", "hackbench -g 1 -f 4 -l 100"]).collect();
    assert_eq!(vruntime(&words).0, Some(0));
    let (code, out, err) = vruntime(&["trace", "why", &file, "-m", "uma-8", "--top"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("kernel v6.12, reconstructed state"), "{out}");
    assert!(out.contains("target idle") && out.contains("curr is idle"), "{out}");
}
