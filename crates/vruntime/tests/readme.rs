//! The README's commands work as they stand there, simulations made short.

use assert_cmd::Command;
use std::path::{Path, PathBuf};

/// Options that make a simulation short.
const TINY: [&str; 5] = ["--warmup", "1ms", "--window", "2ms", "-q"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The commands of the README's code blocks as words, simulations made short.
fn readme_commands() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let joined = text.replace("\\\n", " ");
    let commands = joined.lines().filter_map(|l| l.trim().strip_prefix("$ vruntime "));
    commands.map(|command| shorten(shell_words::split(command).unwrap())).collect()
}

fn shorten(mut words: Vec<String>) -> Vec<String> {
    let simulates = ["run", "compare", "explain"].contains(&words[0].as_str());
    for option in ["--warmup", "--window"] {
        if let Some(at) = words.iter().position(|w| w == option) {
            words.drain(at..at + 2);
        }
    }
    if let Some(at) = words.iter().position(|w| w == "--seeds") {
        words[at + 1] = "2".into();
    }
    if simulates {
        words.extend(TINY.map(String::from));
    }
    words
}

#[test]
fn the_commands_of_the_readme_work() {
    let commands = readme_commands();
    assert!(commands.len() >= 3, "{commands:?}");
    for words in commands {
        if words[0] == "calibrate" {
            continue; // Measures this machine.
        }
        let mut command = Command::cargo_bin("vruntime").unwrap();
        let output = command.current_dir(root()).args(&words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}\n{error}", output.status);
        assert!(!output.stdout.is_empty(), "{words:?}");
    }
}
