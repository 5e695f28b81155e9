//! Machine files: TOML by path or from the set inside the program, inherited cost tables, and the
//! machines that others describe: a sysfs tree, hwloc's XML, `lscpu`'s JSON.
//!
//! `inherit = "name"` names a cost table: `costs/name.toml` beside the machine file, or one inside
//! the program. Tables merge key by key and what the file says wins; a cost is replaced as a whole,
//! so a range never mixes with another one's source. Lists (idle states, SMT speeds) are replaced
//! as a whole as well. A cost table may inherit another one.

mod archive;
mod hwloc;
mod lscpu;
mod shape;
mod sources;
mod sysfs;

pub use shape::FROM_A_TABLE;
pub use sysfs::sysfs_machine;

use crate::error::FileError;
use crate::text_file::{self, key_before, line_of, line_that_sets, unknown_key};
use serde::Deserialize;
use sources::{Text, blame, place_of};
use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use vruntime_machine::{
    Arch, CostSpec, IdleSpec, MachineSpec, Numbering, SCHEMA, SpecError, hint, nearest_name,
};

include!(concat!(env!("OUT_DIR"), "/machines.rs"));

/// The version of the cost table format.
pub const COSTS_SCHEMA: &str = "costs/1";

/// What a number of a machine file may be.
const WHOLE: &str = "a whole number from 0 to 4294967295";

/// Longest chain of `inherit`.
const MAX_INHERIT: usize = 8;

/// The machines inside the program: name and TOML text, in the order of names and numbers.
pub fn builtin() -> &'static [(&'static str, &'static str)] {
    MACHINES
}

/// A machine inside the program by its name.
pub fn builtin_machine(name: &str) -> Result<MachineSpec, FileError> {
    let unknown = || {
        let message = format!("no machine named `{name}`{}", hint(nearest(MACHINES, name)));
        FileError::content("built-in machines", None, message)
    };
    load_machine_str(lookup(MACHINES, name).ok_or_else(unknown)?, name)
}

/// The machine that a file or directory describes: TOML, hwloc's XML, `lscpu`'s JSON, a copy of
/// `/sys` as a directory or as a tar archive, or a dump of one. What it is, its content says.
pub fn load_machine(path: &Path) -> Result<MachineSpec, FileError> {
    if path.is_dir() {
        return sysfs_machine(path);
    }
    let file = File::open(path).map_err(|e| FileError::read(path, e))?;
    let bytes = archive::read(path, file)?;
    if archive::is_tar(&bytes) {
        return sysfs::archived_machine(path, &bytes);
    }
    if !bytes.is_empty() && bytes.iter().all(|b| *b == 0) {
        return Err(wrong(path, None, "zeros and nothing else, as an empty tar archive", KINDS));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let newline = |b: &&u8| **b == b'\n';
        let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = before.iter().filter(newline).count() + 1;
        wrong(path, Some(line), "bytes that are not UTF-8", KINDS)
    })?;
    match text.trim_start().as_bytes() {
        [] => Err(wrong(path, None, "an empty file", KINDS)),
        [b'<', ..] => hwloc::hwloc_machine(path, &text),
        [b'{', ..] => lscpu::lscpu_machine(path, &text),
        [b'c', b'p', b'u', b'0'..=b'9', ..] => sysfs::dumped_machine(path, &text),
        _ => load_toml(path, &text),
    }
}

/// The cost tables beside the machine file `path` that it inherits.
pub fn inherited_tables(path: &Path) -> Vec<PathBuf> {
    let dir = costs_beside(path);
    let mut tables: Vec<PathBuf> = Vec::new();
    while tables.len() < MAX_INHERIT {
        let from = tables.last().map_or(path, |table| table);
        let table = text_file::read(from).ok().and_then(|text| text.parse::<Table>().ok());
        let name = table.as_ref().and_then(|table| table.get("inherit")?.as_str());
        let found = name.map(|name| dir.join(format!("{name}.toml")));
        let Some(found) = found.filter(|found| found.is_file()) else { break };
        tables.push(found);
    }
    tables
}

fn costs_beside(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new(".")).join("costs")
}

/// What a machine may be given as.
const KINDS: &str = "TOML, hwloc XML, `lscpu -J`, or a copy of /sys";

fn load_toml(path: &Path, text: &str) -> Result<MachineSpec, FileError> {
    load(text, &path.display().to_string(), Some(&costs_beside(path)))
}

/// The machine in a TOML text. `origin` names the text in error messages; inherited cost tables
/// are those inside the program.
pub fn load_machine_str(text: &str, origin: &str) -> Result<MachineSpec, FileError> {
    load(text, origin, None)
}

fn load(text: &str, origin: &str, costs_dir: Option<&Path>) -> Result<MachineSpec, FileError> {
    let mut table = parse(text, origin)?;
    let this = Text { origin: origin.into(), name: String::new(), text: text.into() };
    let mut sources = vec![this];
    inherit(&mut table, &mut sources, costs_dir)?;
    let states = table.get("idle").cloned();
    let spec = MachineSpec::deserialize(Value::Table(table))
        .map_err(|e| explain(&sources, &of_its_state(states.as_ref(), &e.to_string())))?;
    let wrong = |e: SpecError| blame(&sources, &e.at.clone(), false, e);
    if spec.schema != SCHEMA {
        let found = format!("`{}`", spec.schema);
        return Err(wrong(SpecError::new("schema", found, SCHEMA)));
    }
    spec.check().map_err(wrong)?;
    let topology = spec.build_topology().map_err(wrong)?;
    spec.check_speeds(&topology).map_err(wrong)?;
    Ok(spec)
}

/// Fills in what `table`, the last of `sources`, inherits and drops its `inherit` key. Cost tables
/// join `sources`.
fn inherit(
    table: &mut Table,
    sources: &mut Vec<Text>,
    costs_dir: Option<&Path>,
) -> Result<(), FileError> {
    let Some(value) = table.remove("inherit") else { return Ok(()) };
    let heir = &sources[sources.len() - 1..];
    let wrong = |message: String| Err(blame(heir, "inherit", false, message));
    let Value::String(name) = value else {
        return wrong(format!("inherit = {value}: expected the name of a cost table"));
    };
    if let Some(first) = sources.iter().position(|source| source.name == name) {
        let cycle: Vec<&str> = sources[first..].iter().map(|source| &source.name[..]).collect();
        let cycle = cycle.join(" → ");
        return wrong(format!("inherit = \"{name}\": a cycle, {cycle} → {name}"));
    }
    if sources.len() > MAX_INHERIT {
        return wrong(format!("inherit = \"{name}\": more than {MAX_INHERIT} tables in a chain"));
    }
    let (mut base, source) = cost_table(&name, heir, costs_dir)?;
    sources.push(source);
    inherit(&mut base, sources, costs_dir)?;
    merge(&mut base, std::mem::take(table));
    *table = base;
    Ok(())
}

/// The cost table `name`, without its `schema` key, that `heir` inherits.
fn cost_table(name: &str, heir: &[Text], dir: Option<&Path>) -> Result<(Table, Text), FileError> {
    let beside = dir.map(|d| d.join(format!("{name}.toml"))).filter(|p| p.is_file());
    let (text, origin) = match (&beside, lookup(COSTS, name)) {
        (Some(path), _) => (text_file::read(path)?, path.display().to_string()),
        (None, Some(text)) => (text.to_string(), format!("costs/{name}")),
        (None, None) => {
            let message = format!("no cost table named `{name}`{}", hint(nearest(COSTS, name)));
            return Err(blame(heir, "inherit", false, message));
        }
    };
    let mut table = parse(&text, &origin)?;
    let source = Text { origin, name: name.into(), text };
    match table.remove("schema") {
        Some(Value::String(s)) if s == COSTS_SCHEMA => Ok((table, source)),
        found => {
            let found = found.map_or("nothing".into(), |v| v.to_string());
            let wrong = SpecError::new("schema", found, COSTS_SCHEMA);
            Err(blame(&[source], "schema", false, wrong))
        }
    }
}

/// What every cost has.
const COST_FIELDS: [&str; 4] = ["low", "mid", "high", "source"];

/// Puts the keys of `over` into `base`. Tables merge, except costs, which are replaced: a part of
/// another's would stand under a source that does not say it.
fn merge(base: &mut Table, over: Table) {
    let is_cost = |t: &Table| COST_FIELDS.iter().any(|&field| t.contains_key(field));
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(b)), Value::Table(o)) if !is_cost(b) && !is_cost(&o) => merge(b, o),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn parse(text: &str, origin: &str) -> Result<Table, FileError> {
    toml::from_str(text).map_err(|e: toml::de::Error| {
        let line = e.span().map(|s| line_of(text, s.start));
        let mut message = e.message().to_string();
        let key = e.span().and_then(|s| key_before(text, s.start));
        let too_large = ["value was too large", "expected any valid TOML value"];
        if let Some(key) = key.filter(|_| too_large.iter().any(|end| message.ends_with(end))) {
            message = format!("{key}: a number that is too large, expected {WHOLE}");
        }
        FileError::content(origin, line, message)
    })
}

/// serde's `message` with the number of the idle state that it is about.
fn of_its_state(states: Option<&Value>, message: &str) -> String {
    let states = states.and_then(Value::as_array).into_iter().flatten();
    let wrong = states.map(|state| IdleSpec::deserialize(state.clone())).position(|s| s.is_err());
    match wrong {
        Some(i) => message.replacen("\nin `idle", &format!("\nin `idle[{i}]"), 1),
        None => message.to_owned(),
    }
}

/// Makes serde's message short, adds file and line of the offending key and the nearest valid one.
fn explain(sources: &[Text], message: &str) -> FileError {
    let (what, path) = message.trim().split_once("\nin `").unwrap_or((message.trim(), ""));
    let path = path.trim_end_matches('`');
    if let Some((key, valid)) = unknown_key(message) {
        let near = nearest_name(key, valid).or(CostSpec::nearest(key));
        let short = format!("unknown key `{key}`{}", hint(near));
        // In a list it stands in one of its tables.
        let sets = |t: &Text| Some((t.origin.clone(), line_that_sets(&t.text, key)?));
        let place = place_of(sources, &format!("{path}.{key}"))
            .map(|(origin, line)| (origin.to_owned(), line))
            .or_else(|| sources.iter().find_map(sets));
        let (origin, line) = place.unzip();
        let origin = origin.unwrap_or(sources[0].origin.clone());
        return FileError::content(&origin, line, short);
    }
    if what == "missing field `idle`" {
        let short = "missing `[[idle]]`, the list of idle states, shallow to deep: each has a \
                     name, table_latency_ns, target_residency_ns, polling and exit_latency";
        return FileError::content(&sources[0].origin, None, short);
    }
    let what = match what.strip_suffix(NO_NAME) {
        Some(_) => format!("found no name in quotes, expected {}", names_of(path)),
        None => what.replace("expected u32", &format!("expected {WHOLE}")),
    };
    // A cost without one of its fields stands where its others do.
    let field = what.strip_prefix("missing field ").map(|field| field.trim_matches('`'));
    let missing = field.is_some_and(|field| !COST_FIELDS.contains(&field));
    let short = if path.is_empty() { what } else { format!("{path}: {what}") };
    blame(sources, path, missing, short)
}

/// What serde says of anything but text where one of a few names is expected.
const NO_NAME: &str = "unit variant, expected string only";

/// The names that the key `path` may have as value.
fn names_of(path: &str) -> String {
    let none = || Value::String(String::new());
    let said = match path {
        "arch" => Arch::deserialize(none()).err(),
        _ => Numbering::deserialize(none()).err(),
    };
    let said = said.map_or(String::new(), |e| e.to_string());
    said.split_once("expected ").map_or("one", |(_, names)| names.trim()).to_owned()
}

/// The architecture that `uname -m` calls `name`.
fn arch_of(path: &Path, line: Option<usize>, name: &str) -> Result<Arch, FileError> {
    match name {
        "x86_64" | "amd64" | "i686" | "i386" => Ok(Arch::X86),
        "ppc64" | "ppc64le" | "ppc64el" => Ok(Arch::Powerpc),
        _ => {
            let expected = "x86_64, ppc64 or ppc64le: there are no costs for others";
            Err(wrong(path, line, format!("architecture `{name}`"), expected))
        }
    }
}

/// The name of a machine after its file.
fn stem(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    name.split('.').next().filter(|n| !n.is_empty()).unwrap_or("machine").to_string()
}

fn wrong(
    path: &Path,
    line: Option<usize>,
    found: impl Display,
    expected: impl Display,
) -> FileError {
    let message = format!("found {found}, expected {expected}");
    FileError::content(&path.display().to_string(), line, message)
}

fn lookup(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(n, _)| *n == name).map(|&(_, text)| text)
}

fn nearest(list: &[(&'static str, &str)], name: &str) -> Option<&'static str> {
    nearest_name(name, list.iter().map(|&(n, _)| n))
}
