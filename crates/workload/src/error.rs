//! What can be wrong with a command line.

use crate::workloads;
use thiserror::Error;

/// Why a command line is no workload. Every message says what was read and what was expected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Quotes do not match.
    #[error("workload `{command}`: {why}")]
    Quoting {
        /// The command line.
        command: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing to run.
    #[error("workload `{command}`: expected a benchmark, found none; there are: {known}")]
    Nothing {
        /// The command line.
        command: String,
        /// All names.
        known: String,
    },
    /// No such program.
    #[error("no workload `{name}`{nearest}; there are: {known}")]
    Unknown {
        /// First words of the command.
        name: String,
        /// ", did you mean …", or nothing.
        nearest: String,
        /// All names.
        known: String,
    },
    /// No such option.
    #[error("{program}: unknown option `{option}`{nearest}; usage: {synopsis}")]
    Option {
        /// Whose option.
        program: &'static str,
        /// What was read.
        option: String,
        /// ", did you mean …", or nothing.
        nearest: String,
        /// What is understood.
        synopsis: &'static str,
    },
    /// An option of the real tool that the model does not have.
    #[error("{program}: `{option}` is not modelled; usage: {synopsis}")]
    NotModelled {
        /// Whose option.
        program: &'static str,
        /// What was read.
        option: String,
        /// What is understood.
        synopsis: &'static str,
    },
    /// A value is missing, no number, or out of range.
    #[error("{program}: {option}: expected {expected}, found {found}")]
    Value {
        /// Whose option.
        program: &'static str,
        /// Which option.
        option: String,
        /// What would be right.
        expected: String,
        /// What was read.
        found: String,
    },
}

/// `, did you mean `x`?` if one of `known` is near to `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    known
        .into_iter()
        .filter(|k| k.len() > 2) // One letter is near to every other one.
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(d, k)| *d <= 1 + k.len() / 3)
        .min()
        .map_or(String::new(), |(_, k)| format!(", did you mean `{k}`?"))
}

pub(crate) fn unknown_workload(command: &str, words: &[String]) -> WorkloadError {
    let names = workloads().map(|e| e.name);
    let known = names.clone().collect::<Vec<_>>().join(", ");
    if words.is_empty() {
        return WorkloadError::Nothing { command: command.into(), known };
    }
    let name = if words.first().is_some_and(|w| w == "perf") {
        words.iter().take(4).cloned().collect::<Vec<_>>().join(" ")
    } else {
        words.first().cloned().unwrap_or_default()
    };
    WorkloadError::Unknown { nearest: nearest(&name, names), name, known }
}
