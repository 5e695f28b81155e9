//! Tasks of the repository that are longer than a line of the Makefile.

mod host_check;
mod judge;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let passed = match task.as_str() {
        "check" => check(),
        "judge" => judge::run(&root(), &args.collect::<Vec<_>>()),
        "tidy" => tidy::run(&root()),
        "host-check" => host_check::run(&root(), args.next().as_deref()),
        _ => {
            eprintln!("usage: cargo run -p xtask -- check | host-check [NOTE] | judge DIR… | tidy");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Formatting, lints, tidy: everything, even if the first fails.
fn check() -> bool {
    let steps = [
        cargo(&["fmt", "--all", "--check"]),
        rustfmt(),
        cargo(&["clippy", "--workspace", "--all-targets", "-q", "--", "-D", "warnings"]),
        tidy::run(&root()),
    ];
    steps.iter().all(|passed| *passed)
}

/// Modules that a macro declares are out of `cargo fmt`'s sight.
fn rustfmt() -> bool {
    let files = tidy::source_files(&root());
    let status = Command::new("rustfmt")
        .args(["--check", "--edition", "2024"])
        .args(files)
        .current_dir(root())
        .status();
    status.is_ok_and(|s| s.success())
}

fn cargo(args: &[&str]) -> bool {
    eprintln!("cargo {}", args.join(" "));
    let status = Command::new("cargo").args(args).current_dir(root()).status();
    status.is_ok_and(|s| s.success())
}
