//! Which of the texts that make up a machine says something, and in which line.

use crate::error::FileError;
use crate::text_file::line_of;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A machine file, or a cost table that it inherits.
pub(super) struct Text {
    /// Names it in messages.
    pub origin: String,
    /// What it is inherited as.
    pub name: String,
    pub text: String,
}

/// What messages of a topology leave away, one or the other.
const FORMS: [&str; 3] = ["topology.regular", "topology.nodes", "topology.masks"];

/// An error about the key `path` (`a.b[2].c`, words behind it do no harm), said of the first of
/// `sources`, machine first, that has the most of it. What is `missing` there should have been in
/// the last.
pub(super) fn blame(
    sources: &[Text],
    path: &str,
    missing: bool,
    message: impl ToString,
) -> FileError {
    let path = path.split([':', ' ']).next().unwrap_or("");
    let of_topology = path.strip_prefix("topology.");
    let forms = FORMS.map(|form| format!("{form}.{}", of_topology.unwrap_or(path)));
    let place = |text: &str| {
        let in_topology = || forms.iter().filter_map(|path| find(text, path)).max();
        let plain = find(text, path).filter(|_| !path.is_empty());
        match of_topology {
            Some(_) => plain.max(in_topology()),
            None => plain.or_else(|| in_topology().filter(|_| !path.is_empty())),
        }
    };
    let mut best: Option<(usize, &Text, usize)> = None;
    for source in sources {
        let deepest = best.map_or(0, |(depth, ..)| depth);
        let more = |(depth, _): &(usize, usize)| *depth + usize::from(missing) > deepest;
        if let Some((depth, line)) = place(&source.text).filter(more) {
            best = Some((depth, source, line));
        }
    }
    let origin = best.map_or(&sources[0], |(_, source, _)| source);
    let line = best.map(|(.., line)| line);
    FileError::content(&origin.origin, line, message)
}

/// File and line of the first of `sources` that has the whole of the key `path`.
pub(super) fn place_of<'s>(sources: &'s [Text], path: &str) -> Option<(&'s str, usize)> {
    let whole = path.split('.').count();
    sources.iter().find_map(|source| {
        let (depth, line) = find(&source.text, path)?;
        (depth == whole).then_some((&source.origin[..], line))
    })
}

/// How many of the keys of `path` stand in a TOML text, and the line of the last of them.
fn find(text: &str, path: &str) -> Option<(usize, usize)> {
    let root = DeTable::parse(text).ok()?;
    let mut here: Option<&DeTable> = Some(root.get_ref());
    let (mut depth, mut at) = (0, None);
    let mut keys = path.split('.').peekable();
    while let (Some(table), Some(key)) = (here, keys.next()) {
        let (key, index) = match key.split_once('[') {
            Some((key, index)) => (key, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (key, None),
        };
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == key) else {
            break;
        };
        (depth, at) = (depth + 1, Some(name.span().start));
        here = value.get_ref().as_table();
        if let DeValue::Array(all) = value.get_ref() {
            // By place, or by name.
            let named = |of: &Spanned<DeValue>, key: &str| {
                let name = of.get_ref().as_table().and_then(|t| t.get("name"));
                name.and_then(|n| n.get_ref().as_str()) == Some(key)
            };
            let element = match (index, keys.peek()) {
                (Some(index), _) => all.get(index),
                (None, Some(key)) => all.iter().find(|of| named(of, key)).inspect(|_| {
                    depth += 1;
                }),
                (None, None) => None,
            };
            if index.is_none() && element.is_some() {
                keys.next();
            }
            at = element.map_or(at, |element| Some(element.span().start));
            here = element.and_then(|element| element.get_ref().as_table());
        }
    }
    Some((depth, line_of(text, at?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "mhz = 3\nspeed = [\n { low = 1 },\n { low = 2 },\n]\n[costs]\n\
                        a = 1\n[costs.x]\nllc = 1\n[costs.y]\nllc = { mid = 2 }\n\
                        [[idle]]\nname = \"C1\"\n[[idle]]\nname = \"C6\"\nus = 7\n";

    #[test]
    fn a_key_has_its_line() {
        for (path, expected) in [
            ("mhz", (1, 1)),
            ("speed[1]", (1, 4)),
            ("speed[1].low", (2, 4)),
            ("costs.a", (2, 7)),
            ("costs.b", (1, 6)),
            ("costs.x.llc", (3, 9)),
            ("costs.y.llc", (3, 11)),
            ("costs.y.llc.mid", (4, 11)),
            ("idle.C6", (2, 14)),
            ("idle.C6.us", (3, 16)),
            ("idle", (1, 12)),
        ] {
            assert_eq!(find(TEXT, path), Some(expected), "{path}");
        }
        assert_eq!(find(TEXT, "arch"), None);
    }

    #[test]
    fn who_says_it_is_blamed() {
        let source = |origin: &str, text: &str| Text {
            origin: origin.into(),
            name: origin.into(),
            text: text.into(),
        };
        let sources = [source("m", "[costs]\na = 1\n"), source("t", "[costs]\nb = 2\na = 3\n")];
        let said = |path, missing| blame(&sources, path, missing, "x").to_string();
        assert_eq!(said("costs.a", false), "m:2: x");
        assert_eq!(said("costs.b", false), "t:2: x");
        assert_eq!(said("costs.c", false), "m:1: x");
        assert_eq!(said("costs", true), "t:1: x");
        assert_eq!([said("mhz", true), said("", true)], ["m: x", "m: x"]);
        let topology = [source("m", "mhz = 1\n[topology.nodes]\nnode_distance = [[10]]\n")];
        let said = |path| blame(&topology, path, false, "x").to_string();
        assert_eq!([said("node_distance"), said("mhz")], ["m:3: x", "m:1: x"]);
        let paths = ["topology.node_distance", "topology.nodes.node_distance", "topology.none"];
        assert_eq!(paths.map(said), ["m:3: x", "m:3: x", "m:2: x"]);
    }
}
