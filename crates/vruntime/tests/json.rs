//! JSON: is every name that `--json` prints explained in docs/json.md?

use assert_cmd::Command;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Objects whose keys are causes, functions, costs and the like, not names of the format.
const MAPS: &[&str] = &[
    "switches",
    "placements",
    "migrations",
    "cpu_time",
    "correlation",
    "rules",
    "unknowns",
    "rare_rules",
    "machine",
    "kernel",
    "cost",
];

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                found.insert(name.clone());
                if !MAPS.contains(&name.as_str()) {
                    names(inner, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| names(inner, found)),
        _ => {}
    }
}

#[test]
fn every_name_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/json.md")).unwrap();
    let recording = root.join("tests/data/guest-6.1-16cpu-xfs-dbench6");
    let figures = tempfile::NamedTempFile::new().unwrap();
    let simulated = "-m uma-2 -w spin\u{a0}2\u{a0}3 --warmup 1ms --window 2ms -q";
    for command in [
        format!("run {simulated} -k v6.1 --checks"),
        format!("run {simulated} -k v6.1 --seeds 2"),
        "run -m uma-2 -w spin\u{a0}1\u{a0}1 -k v6.12 --full -q".into(),
        format!("compare {simulated} -k v6.1 -k v6.12 --seeds 2"),
        "list machines".into(),
        "show machine uma-2".into(),
        "show kernel v6.1".into(),
        "show workload hackbench".into(),
        format!("trace check {}", recording.display()),
        format!("trace why {} --at 12.1", recording.display()),
        format!("bench --case read --percent 1 -o {}", figures.path().display()),
    ] {
        let words = command.split(' ').map(|w| w.replace('\u{a0}', " "));
        let output =
            Command::cargo_bin("vruntime").unwrap().args(words).arg("--json").output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).expect(&command);
        let schema = value["schema"].as_str().expect("a schema");
        assert!(text.contains(schema), "{schema}");
        let mut found = BTreeSet::new();
        names(&value, &mut found);
        for name in found.iter().filter(|name| *name != "schema") {
            assert!(text.contains(&format!("`{name}`")), "{command}: `{name}` is not explained");
        }
    }
}
