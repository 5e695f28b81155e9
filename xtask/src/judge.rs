//! The tables of agreement in `docs/judge.md`, from what `trace check` says now: from the kernel's
//! own state, and from plain traces.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Kinds, their heads, and what their nontrivial decisions are called.
const KINDS: [(&str, &str, &str); 8] = [
    ("placement", "placement", "elsewhere"),
    ("wakeup_preemption", "preemption", "in the class"),
    ("pick", "pick", "of several"),
    ("tick_preemption", "tick", "of several"),
    ("migration", "migration", "of several"),
    ("migration_tasks", "tasks", "of several"),
    ("placement_fork", "fork", "elsewhere"),
    ("placement_exec", "exec", "elsewhere"),
];

/// The tables, in the order of the page: where the state is from, and how many of the kinds.
const TABLES: [(&str, usize); 2] = [("true", 8), ("reconstructed", 6)];

/// Judges the recordings in `dirs` and puts the tables into the page. False if that failed.
pub fn run(root: &Path, dirs: &[String]) -> bool {
    match report(root, dirs).and_then(|report| rewrite(&root.join("docs/judge.md"), &report)) {
        Ok(()) => true,
        Err(e) => {
            eprintln!("judge: {e}");
            false
        }
    }
}

fn report(root: &Path, dirs: &[String]) -> Result<Value, String> {
    if dirs.is_empty() {
        return Err("expected the folders of recordings".into());
    }
    let checked = Command::new("cargo")
        .args(["run", "-q", "-p", "vruntime", "--", "trace", "check", "--json"])
        .args(dirs)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !checked.status.success() {
        return Err(format!("vruntime trace check: {}", checked.status));
    }
    serde_json::from_slice(&checked.stdout).map_err(|e| format!("vruntime trace check: {e}"))
}

/// Replaces the rows of the page's tables, each from its head to the line after its total.
fn rewrite(page: &Path, report: &Value) -> Result<(), String> {
    let mut text = std::fs::read_to_string(page).map_err(|e| format!("{}: {e}", page.display()))?;
    let missing = |what: &str| format!("{}: no {what}", page.display());
    let mut from = 0;
    // Other tables of recordings stand between these.
    let head = format!("| recording | {} determined", KINDS[0].1);
    for (state, kinds) in TABLES {
        let start = from + text[from..].find(&head).ok_or_else(|| missing(state))?;
        let total = text[start..].find("| **total** |").ok_or_else(|| missing("total"))?;
        let end = text[start + total..].find('\n').ok_or_else(|| missing("end of the table"))?;
        let new = table(report, state, kinds);
        text.replace_range(start..start + total + end + 1, &new);
        from = start + new.len();
    }
    std::fs::write(page, text).map_err(|e| format!("{}: {e}", page.display()))
}

fn table(report: &Value, state: &str, kinds: usize) -> String {
    let kinds = &KINDS[..kinds];
    let mut out = String::from("| recording |");
    for (_, name, nontrivial) in kinds {
        let _ = write!(out, " {name} determined % | agree % | {nontrivial} |");
    }
    out.push_str("\n|---|");
    out.push_str(&"---|---|---|".repeat(kinds.len()));
    out.push('\n');
    for recording in report["recordings"].as_array().into_iter().flatten() {
        let name = recording["name"].as_str().unwrap_or("?");
        let name = name.strip_prefix("guest-").unwrap_or(name);
        row(&mut out, name, &recording["kinds"], state, kinds);
    }
    row(&mut out, "**total**", &report["kinds"], state, kinds);
    out
}

fn row(out: &mut String, name: &str, found: &Value, state: &str, kinds: &[(&str, &str, &str)]) {
    let _ = write!(out, "| {name} |");
    for (kind, ..) in kinds {
        let all = found.as_array().into_iter().flatten();
        let found = all.clone().find(|k| k["kind"] == *kind && k["state"] == state);
        let n = |field: &str| found.and_then(|k| k[field].as_u64()).unwrap_or(0);
        let _ = write!(
            out,
            " {} | {} | {} of {} |",
            percent(n("determined"), n("determined") + n("undetermined")),
            percent(n("agree"), n("determined")),
            n("nontrivial_agree"),
            n("nontrivial"),
        );
    }
    out.push('\n');
}

/// Rounded down to a tenth.
fn percent(part: u64, all: u64) -> String {
    match (part * 1000).checked_div(all) {
        Some(permille) => format!("{}.{}", permille / 10, permille % 10),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_rounds_down_and_counts() {
        let kinds = json!([{"kind": "pick", "state": "true", "determined": 999, "undetermined": 1,
            "agree": 998, "nontrivial": 7, "nontrivial_agree": 6}]);
        let mut out = String::new();
        row(&mut out, "x", &kinds, "true", &KINDS);
        let none = " – | – | 0 of 0 |";
        let (before, after) = (none.repeat(2), none.repeat(5));
        assert_eq!(out, format!("| x |{before} 99.9 | 99.8 | 6 of 7 |{after}\n"));
    }
}
