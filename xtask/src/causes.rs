//! `docs/causes.md`: every cause that a report can print, from the declarations in the sources.
//!
//! A cause is one line, `static NAME: Cause = Cause::new(CauseKind::Kind, "words");`, with a
//! comment above it that says more; the causes of a move are declared by path
//! (`by_level!("path")`).

use crate::tidy::{is_test, show, sources};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The page.
pub const PAGE: &str = "docs/causes.md";
/// Kinds in the order of the page: name in the sources, heading, what a cause of it explains.
const KINDS: [(&str, &str, &str); 5] = [
    ("Placement", "Placements", "Why a task that wakes up or is new was put on this CPU."),
    ("Migration", "Migrations", "Why a task changed its CPU."),
    ("Resched", "Reschedules", "Why the running task was asked to go, or was not."),
    ("Switch", "Switches", "Why a CPU went from one task to another, if nobody asked for it."),
    ("Pick", "Picks", "Why the task that was picked was picked."),
];

/// A declared cause.
#[derive(PartialEq, Eq, Debug)]
struct Declared {
    kind: String,
    name: String,
    /// Its comment, in one line.
    says: String,
}

/// Writes the page. False if that failed.
pub fn run(root: &Path) -> bool {
    let written = fs::write(root.join(PAGE), page(root, &sources(root).0));
    written.inspect_err(|e| eprintln!("causes: {PAGE}: {e}")).is_ok()
}

/// The page that the sources ask for.
pub fn page(root: &Path, files: &[(PathBuf, String)]) -> String {
    let mut all = Vec::new();
    for (path, text) in files {
        let at = show(root, path);
        if at.starts_with("crates/") && !is_test(&at) && at != "crates/base/src/cause.rs" {
            all.extend(declared(text).into_iter().map(|d| (d, at.clone())));
        }
    }
    let mut out = String::from(
        "# Causes\n\nWhat the tables of `run`, `compare` and `trace why` call the causes of \
         switches, placements and migrations, and\nwhere the rule is written. LEVEL is a domain's \
         name. Made by `cargo run -p xtask -- causes`.\n",
    );
    for (kind, heading, what) in KINDS {
        write!(out, "\n## {heading}\n\n{what}\n\n").unwrap();
        out += "| cause | | file |\n|---|---|---|\n";
        for (d, at) in all.iter().filter(|(d, _)| d.kind == kind) {
            writeln!(out, "| {} | {} | `{at}` |", d.name, d.says).unwrap();
        }
    }
    out
}

fn declared(text: &str) -> Vec<Declared> {
    let (mut all, mut says): (Vec<Declared>, Vec<&str>) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///").or(line.strip_prefix("//")) {
            says.push(comment.trim());
            continue;
        }
        let joined = says.join(" ").replace('|', "\\|");
        let quoted = |s: &str| s.split('"').nth(1).map(str::to_string);
        if let Some((_, new)) = line.split_once(": Cause = Cause::new(CauseKind::")
            && let Some((kind, words)) = new.split_once(',')
            && let Some(name) = quoted(words)
        {
            all.push(Declared { kind: kind.into(), name, says: joined });
        } else if let Some(path) = line.strip_prefix("by_level!(").and_then(quoted) {
            let name = format!("{path}, LEVEL");
            all.push(Declared { kind: "Migration".into(), name, says: joined });
        }
        says.clear();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_with_their_comments() {
        let text = "/// No more.\nlet x = 1;\n/// Two\n/// lines.\n\
                    pub static A: Cause = Cause::new(CauseKind::Pick, \"a b\");\n\
                    static B: Cause = Cause::new(CauseKind::Switch, \"c\");\n    \
                    // A push.\n    by_level!(\"active balance\"),\n";
        let of = |kind: &str, name: &str, says: &str| Declared {
            kind: kind.into(),
            name: name.into(),
            says: says.into(),
        };
        let want = [
            of("Pick", "a b", "Two lines."),
            of("Switch", "c", ""),
            of("Migration", "active balance, LEVEL", "A push."),
        ];
        assert_eq!(declared(text), want);
    }
}
