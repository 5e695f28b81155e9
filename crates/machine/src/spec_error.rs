//! What is wrong with a machine description: where, what was read, what was expected.

use std::fmt;

/// A mistake in a machine description. Its text can be shown to a user as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpecError {
    /// The key or object, such as `topology.regular.cores_per_llc`.
    pub at: String,
    /// What was read.
    pub found: String,
    /// What would have been right.
    pub expected: String,
    /// The nearest valid name or value, if there is one.
    pub nearest: Option<String>,
}

impl SpecError {
    /// An error without a nearest valid value.
    pub fn new(
        at: impl Into<String>,
        found: impl fmt::Display,
        expected: impl Into<String>,
    ) -> SpecError {
        SpecError {
            at: at.into(),
            found: found.to_string(),
            expected: expected.into(),
            nearest: None,
        }
    }
    /// The same error with the nearest valid name or value.
    pub fn nearest(mut self, value: impl fmt::Display) -> SpecError {
        self.nearest = Some(value.to_string());
        self
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.at, self.found, self.expected)?;
        match &self.nearest {
            Some(n) => write!(f, " (nearest: {n})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SpecError {}

/// The shortest candidate that begins with `name`, else the one with the smallest edit distance,
/// unless all differ in more than half of its letters.
pub fn nearest_name<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let rank = |c: &str| (name.is_empty() || !c.starts_with(name), edits(name, c));
    let ((differs, distance), best) = candidates.map(|c| (rank(c), c)).min_by_key(|&(r, _)| r)?;
    (!differs || distance <= name.len() / 2).then_some(best)
}

/// How a message about an unknown name goes on: `, nearest is …`, or nothing.
pub fn hint(nearest: Option<&str>) -> String {
    nearest.map(|n| format!(", nearest is `{n}`")).unwrap_or_default()
}

/// Levenshtein distance in bytes.
fn edits(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name() {
        let names = ["ttwu", "tick_base", "tick_level"];
        assert_eq!(nearest_name("tick_levle", names.into_iter()), Some("tick_level"));
        assert_eq!(nearest_name("ttw", names.into_iter()), Some("ttwu"));
        assert_eq!(nearest_name("zzzzzz", names.into_iter()), None);
    }

    #[test]
    fn reads_as_a_sentence() {
        let e = SpecError::new("costs.tick", "`tick`", "a cost name").nearest("tick_base");
        assert_eq!(
            e.to_string(),
            "costs.tick: found `tick`, expected a cost name (nearest: tick_base)"
        );
    }
}
