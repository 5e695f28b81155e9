//! Tasks of the repository that are longer than a line of the Makefile.

mod causes;
mod host_check;
mod host_timers;
mod host_tries;
mod judge;
mod recordings;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let passed = match task.as_str() {
        "check" => check(),
        "causes" => causes::run(&root()),
        "judge" => judge::run(&root(), &args.collect::<Vec<_>>()),
        "recordings" => recordings::run(&root(), &args.collect::<Vec<_>>()),
        "tidy" => tidy::run(&root()),
        "fuzz" => fuzz(args.next().as_deref().unwrap_or("60")),
        "host-check" => host_check::run(&root(), args.next().as_deref()),
        _ => {
            eprintln!(
                "usage: cargo run -p xtask -- causes | check | fuzz SECONDS | host-check [NOTE] \
                 | judge DIR… | recordings DIR… | tidy"
            );
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

/// Formatting, lints, tidy: everything, even if the first fails; the last line names what failed.
fn check() -> bool {
    let clippy = ["clippy", "--workspace", "--all-targets", "-q", "--", "-D", "warnings"];
    let steps = [
        ("cargo fmt", cargo(&["fmt", "--all", "--check"])),
        ("rustfmt", rustfmt()),
        ("clippy", cargo(&clippy)),
        ("tidy", tidy::run(&root())),
    ];
    let failed: Vec<&str> = steps.iter().filter(|(_, passed)| !passed).map(|(n, _)| *n).collect();
    match failed.as_slice() {
        [] => eprintln!("check: fmt, clippy and tidy pass"),
        names => eprintln!("check: {} failed", names.join(", ")),
    }
    failed.is_empty()
}

/// Damages files for so many seconds and reads them.
fn fuzz(seconds: &str) -> bool {
    let words = ["test", "--release", "-p", "vruntime", "--test", "fuzz", "--", "--nocapture"];
    eprintln!("VRUNTIME_FUZZ_SECONDS={seconds} cargo {}", words.join(" "));
    let mut command = Command::new("cargo");
    command.args(words).env("VRUNTIME_FUZZ_SECONDS", seconds).current_dir(root());
    command.status().is_ok_and(|s| s.success())
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
