//! Rules of the repository that a compiler does not know. Each finding names file, line and rule.

use crate::causes;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Which crates each crate may depend on. An arrow never points up.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("machine", &["base"]),
    ("sched", &["base", "machine"]),
    ("kernel", &["base", "machine", "sched"]),
    ("workload", &["base", "machine", "sched", "kernel"]),
    ("measure", &["base", "machine", "sched", "kernel"]),
    ("formats", &["base", "machine", "sched"]),
    ("report", &["base", "machine", "sched", "kernel", "measure"]),
    (
        "vruntime",
        &["base", "machine", "sched", "kernel", "workload", "measure", "formats", "report"],
    ),
];

/// Crates whose code must give the same result everywhere.
const SIMULATION: &[&str] = &["base", "machine", "sched", "kernel", "workload"];

/// What their code may not say.
const FORBIDDEN: &[&str] = &[
    "f32",
    "f64",
    "HashMap",
    "HashSet",
    "std::time",
    "std::thread",
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
];

/// Files and folders of mechanisms: each file must have the five-part header. In a folder, `mod.rs`
/// and tests need none.
const MECHANISMS: &[&str] = &[
    "crates/machine/src/cache.rs",
    "crates/machine/src/idle.rs",
    "crates/machine/src/lines.rs",
    "crates/machine/src/lines/visits.rs",
    "crates/machine/src/lock.rs",
    "crates/sched/src/balance",
    "crates/sched/src/domains/mod.rs",
    "crates/sched/src/fair",
    "crates/sched/src/fair_server.rs",
    "crates/sched/src/linux.rs",
    "crates/sched/src/rr.rs",
    "crates/sched/src/rt.rs",
    "crates/sched/src/rt_throttle.rs",
    "crates/sched/src/ttwu_queue.rs",
    "crates/kernel/src/balance.rs",
    "crates/kernel/src/boot.rs",
    "crates/kernel/src/event.rs",
    "crates/kernel/src/files.rs",
    "crates/kernel/src/fork.rs",
    "crates/kernel/src/frame.rs",
    "crates/kernel/src/haltpoll.rs",
    "crates/kernel/src/idle.rs",
    "crates/kernel/src/irq.rs",
    "crates/kernel/src/menu.rs",
    "crates/kernel/src/pipe.rs",
    "crates/kernel/src/pipe_lines.rs",
    "crates/kernel/src/pipe_mutex.rs",
    "crates/kernel/src/pipe_ops.rs",
    "crates/kernel/src/rq_lock.rs",
    "crates/kernel/src/schedule.rs",
    "crates/kernel/src/sim.rs",
    "crates/kernel/src/smt.rs",
    "crates/kernel/src/stop.rs",
    "crates/kernel/src/syscall.rs",
    "crates/kernel/src/unix.rs",
    "crates/kernel/src/wait_lock.rs",
    "crates/kernel/src/wakeup.rs",
];

const HEADER: [&str; 5] = ["What.", "Source.", "Equations.", "Departures.", "Example."];
const LINES_SOFT: usize = 500;
const LINES_HARD: usize = 700;
const COLUMNS: usize = 100;

/// Prints all findings; true if there is none. Long files below the hard limit are only noted.
pub fn run(root: &Path) -> bool {
    let (files, unread) = sources(root);
    for (path, text) in &files {
        let lines = text.lines().count();
        if lines > LINES_SOFT && lines <= LINES_HARD {
            eprintln!("tidy: note: {}: {lines} lines, look twice", show(root, path));
        }
    }
    let found = [unread, findings(root, &files)].concat();
    for finding in &found {
        eprintln!("tidy: {finding}");
    }
    eprintln!("tidy: {} files, {} findings", files.len(), found.len());
    found.is_empty()
}

fn findings(root: &Path, files: &[(PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, allowed) in ARROWS {
        let path = root.join("crates").join(name).join("Cargo.toml");
        match fs::read_to_string(&path) {
            Ok(text) => {
                found.extend(arrows(name, allowed, &text));
                found.extend(reasons(name, &text));
            }
            Err(e) => found.push(format!("{}: {e}", show(root, &path))),
        }
    }
    for (path, text) in files {
        let at = show(root, path);
        found.extend(shape(&at, text));
        if SIMULATION.iter().any(|name| at.starts_with(&format!("crates/{name}/src/"))) {
            found.extend(forbidden(&at, text));
        }
        if is_mechanism(&at) || begins_header(&at, text) {
            found.extend(header(&at, text));
        }
    }
    for path in MECHANISMS {
        if path.ends_with(".rs") && !files.iter().any(|(file, _)| show(root, file) == *path) {
            found.push(format!("{path}: in tidy's list of mechanisms, but there is no such file"));
        }
    }
    let page = fs::read_to_string(root.join(causes::PAGE)).unwrap_or_default();
    if page != causes::page(root, files) {
        found.push(format!("{}: not of these sources: run `xtask causes`", causes::PAGE));
    }
    found
}

/// Every source file.
pub fn source_files(root: &Path) -> Vec<PathBuf> {
    sources(root).0.into_iter().map(|(path, _)| path).collect()
}

/// Every Rust file of the repository, and what could not be read.
pub fn sources(root: &Path) -> (Vec<(PathBuf, String)>, Vec<String>) {
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).and_then(|all| all.collect::<Result<Vec<_>, _>>());
        let entries = entries.unwrap_or_else(|e| {
            unread.push(format!("{}: {e}", show(root, &folder)));
            Vec::new()
        });
        for path in entries.iter().map(|entry| entry.path()) {
            if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|x| x == "rs") {
                match fs::read_to_string(&path) {
                    Ok(text) => files.push((path, text)),
                    Err(e) => unread.push(format!("{}: {e}", show(root, &path))),
                }
            }
        }
    }
    files.sort();
    (files, unread)
}

pub fn show(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// Dependencies of crate `name` on crates that it may not know. Tests may know more.
fn arrows(name: &str, allowed: &[&str], manifest: &str) -> Vec<String> {
    let table: Table = match manifest.parse() {
        Ok(table) => table,
        Err(e) => return vec![format!("crates/{name}/Cargo.toml: {e}")],
    };
    let mut found = Vec::new();
    for section in ["dependencies", "build-dependencies"] {
        let keys = table.get(section).and_then(Value::as_table).into_iter().flat_map(Table::keys);
        for other in keys.filter_map(|key| key.strip_prefix("vruntime-")) {
            if !allowed.contains(&other) {
                found.push(format!("crates/{name}/Cargo.toml: `{name}` may not know `{other}`"));
            }
        }
    }
    found
}

/// Dependencies from outside without a line that says why.
fn reasons(name: &str, manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_dependencies, mut reason) = (false, false);
    for (i, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies]");
        }
        let own = line.starts_with("vruntime") || line.starts_with("serde");
        if in_dependencies && line.contains('=') && !line.starts_with('#') && !own && !reason {
            // A reason covers the lines below it up to the next blank line or reason.
            found.push(format!("crates/{name}/Cargo.toml:{}: no line says why: {line}", i + 1));
        }
        reason = line.starts_with('#') || (reason && !line.is_empty() && !own);
    }
    found
}

/// Length of file and lines, and what must not be left behind.
fn shape(at: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LINES_HARD {
        found.push(format!("{at}: {lines} lines, at most {LINES_HARD}"));
    }
    // A snapshot shows what a person would see, at its own width.
    let mut snapshot = false;
    for (i, line) in text.lines().enumerate() {
        snapshot = (snapshot || line.contains("expect![[")) && !line.contains("]]");
        let columns = line.chars().count();
        if columns > COLUMNS && !snapshot {
            found.push(format!("{at}:{}: {columns} columns, at most {COLUMNS}", i + 1));
        }
        for left in [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")] {
            if line.contains(left) {
                found.push(format!("{at}:{}: `{left}…`", i + 1));
            }
        }
    }
    found
}

/// Words that simulation code may not say. Comments and tests may.
fn forbidden(at: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if is_test(at) {
        return found;
    }
    // The indentation of an item that is for tests only: it goes on to the first line as far out
    // that closes it.
    let mut for_tests = None;
    for (i, line) in text.lines().enumerate() {
        let indentation = line.len() - line.trim_start().len();
        if let Some(outer) = for_tests {
            let ends = indentation == outer && line.ends_with([';', '}', ',']);
            for_tests = for_tests.filter(|_| !ends || line.is_empty());
            continue;
        }
        if line.trim_start().starts_with("#[cfg(test)]") {
            for_tests = Some(indentation);
            continue;
        }
        let code = line.split("//").next().unwrap_or(line);
        for word in FORBIDDEN {
            if has_word(code, word) {
                found.push(format!("{at}:{}: `{word}` in a simulation crate", i + 1));
            }
        }
    }
    found
}

pub fn is_test(at: &str) -> bool {
    at.ends_with("/tests.rs") || at.contains("/tests/") || at.ends_with("/sample.rs")
}

/// `word` in `code` with no letter, digit or underscore on either side.
fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(i, _)| !code[..i].ends_with(part) && !code[i + word.len()..].starts_with(part))
}

fn is_mechanism(at: &str) -> bool {
    let in_folder = |m: &str| at.starts_with(&format!("{m}/")) && !at.ends_with("/mod.rs");
    MECHANISMS.iter().any(|m| at == *m || in_folder(m)) && !is_test(at)
}

/// Whoever writes the first part of a mechanism's header writes all, but for the judge, whose files
/// rebuild what mechanisms of others have done.
fn begins_header(at: &str, text: &str) -> bool {
    !at.starts_with("crates/kernel/src/shadow/") && head(text).contains("*What.*")
}

/// The comment at the top of a file.
fn head(text: &str) -> String {
    text.lines().take_while(|l| l.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

/// Parts that a mechanism's header lacks.
fn header(at: &str, text: &str) -> Vec<String> {
    let head = head(text);
    let missing = HEADER.iter().filter(|part| !head.contains(**part));
    missing.map(|part| format!("{at}: the header has no part `{part}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_repository_is_tidy() {
        let root = crate::root();
        let (files, unread) = sources(&root);
        assert!(files.len() > 50, "only {} files found", files.len());
        let found = [unread, findings(&root, &files)].concat();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    /// No test runs the recording kit, which needs root and minutes.
    #[test]
    fn the_scripts_that_record_can_be_read_by_a_shell() {
        let dir = crate::root().join("record");
        let guest = ["guest/init", "guest/capture.sh"];
        let own = ["lib.sh", "setup", "record-guest", "record-host", "summarise"];
        for script in own.into_iter().chain(guest) {
            let read = Command::new("sh").arg("-n").arg(dir.join(script)).status().unwrap();
            assert!(read.success(), "{script}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_tidy() {
        let root = std::env::temp_dir().join(format!("tidy-{}", std::process::id()));
        fs::create_dir_all(root.join("crates")).unwrap();
        fs::write(root.join("crates/x.rs"), [0xff]).unwrap();
        let (files, unread) = sources(&root);
        fs::remove_dir_all(&root).unwrap();
        assert!(files.is_empty());
        let of = |name: &str| unread.iter().any(|line| line.starts_with(&format!("{name}: ")));
        assert!(unread.len() == 2 && of("crates/x.rs") && of("xtask"), "{unread:?}");
    }

    /// What is for tests only may say it: one line, or to the brace that closes the item.
    #[test]
    fn forbidden_words_are_found_after_what_is_for_tests() {
        let of = |text: &str| forbidden("crates/sched/src/x.rs", text).len();
        assert_eq!(of("#[cfg(test)]\nmod tests;\nlet x: f64;\n"), 1);
        let with_block = "impl X {\n    #[cfg(test)]\n    fn a(\n        b: f64,\n    ) {\n        \
                          b\n\n    }\n    fn c(d: f64) {}\n}\n";
        assert_eq!(of(with_block), 1);
        assert_eq!(of("#[cfg(test)]\nmod tests {\n    let x: f64;\n}\n"), 0);
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let up = "[dependencies]\nvruntime-kernel.workspace = true\n";
        assert_eq!(arrows("sched", &["base"], up).len(), 1);
        let for_tests = "[dev-dependencies]\nvruntime-kernel.workspace = true\n";
        assert!(arrows("sched", &["base"], for_tests).is_empty());
    }

    #[test]
    fn a_dependency_needs_a_reason() {
        let manifest =
            "[dependencies]\nserde.workspace = true\n# Why.\ntoml = \"1\"\n\nx = \"1\"\n";
        assert_eq!(reasons("a", manifest).len(), 1);
    }

    #[test]
    fn a_clock_in_a_simulation_crate_is_found() {
        let at = "crates/sched/src/x.rs";
        assert_eq!(forbidden(at, "use std::time::Instant;\nlet x: f64;").len(), 2);
        assert!(forbidden(at, "// std::time\nlet buf64 = 1;\n#[cfg(test)]\nf64").is_empty());
    }

    #[test]
    fn long_lines_files_and_leftovers_are_found() {
        assert_eq!(shape("x", &"x".repeat(101)).len(), 1);
        assert_eq!(shape("x", &"x\n".repeat(701)).len(), 1);
        assert_eq!(shape("x", concat!("todo", "!()")).len(), 1);
    }

    #[test]
    fn a_header_without_example_is_found() {
        let text = "//! *What.* a\n//! *Source.* b\n//! *Equations.* c\n//! *Departures.* none\n";
        assert_eq!(header("x", text), ["x: the header has no part `Example.`"]);
        assert!(begins_header("crates/kernel/src/x.rs", text) && !begins_header("x", "//! What."));
        assert!(!begins_header("crates/kernel/src/shadow/rebuild/x.rs", text));
    }
}
