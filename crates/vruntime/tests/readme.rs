//! The commands of README.md and docs/usage.md work as they stand there, simulations made short,
//! and their links lead to files. Pages of studies say what the studies do.

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use vruntime_formats::study_file::{builtin_studies, study};

/// What a newcomer reads, and how many commands it has at least.
const PAGES: [(&str, usize); 2] = [("README.md", 6), ("docs/usage.md", 12)];

/// Options that make a simulation short.
const TINY: [&str; 5] = ["--warmup", "1ms", "--window", "2ms", "-q"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}

/// The commands of the page's code blocks as words, simulations made short.
fn commands(page: &str) -> Vec<Vec<String>> {
    let joined = text(page).replace("\\\n", " ");
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
    for (page, least) in PAGES {
        let commands = commands(page);
        assert!(commands.len() >= least, "{page}: {commands:?}");
        for words in commands {
            if words[0] == "calibrate" {
                continue; // Measures this machine.
            }
            let mut command = Command::cargo_bin("vruntime").unwrap();
            let output = command.current_dir(root()).args(&words).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}: {words:?}: {}\n{error}", output.status);
            assert!(!output.stdout.is_empty(), "{page}: {words:?}");
        }
    }
}

#[test]
fn the_links_of_the_readme_lead_to_files() {
    for (page, _) in PAGES {
        let (text, folder) = (text(page), root().join(page).parent().unwrap().to_path_buf());
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let mut local = 0;
        for link in links.filter(|link| !link.contains("://")) {
            assert!(folder.join(link).exists(), "{page}: {link}");
            local += 1;
        }
        assert!(local >= 5, "{page}: {local} links");
    }
}

/// What a study's file says in words stands on its page, too.
#[test]
fn pages_of_studies_have_the_words_of_their_files() {
    for (name, _) in builtin_studies() {
        let (s, page) = (study(name).unwrap(), text(&format!("docs/studies/{name}.md")));
        let told = |heading: &str, words: &str| {
            let whole = format!("\n### {heading}\n\n{}\n", words.trim());
            assert!(page.contains(&whole), "docs/studies/{name}.md: {heading}");
        };
        s.notes.iter().for_each(|n| told(&n.title, &n.text));
        s.questions.iter().for_each(|q| q.words.iter().for_each(|words| told(&q.text, words)));
    }
}
