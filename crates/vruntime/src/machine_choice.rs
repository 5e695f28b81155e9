//! `-m`: a machine's name, a file or directory that describes one, or `host`.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use vruntime_formats::machine_file::{
    FROM_A_TABLE, builtin, builtin_machine, inherited_tables, load_machine, sysfs_machine,
};
use vruntime_machine::{MachineSpec, hint, nearest_name};

/// The machine that this program runs on.
pub const HOST: &str = "host";

/// The machine that `word` names.
pub fn machine(word: &str) -> Result<MachineSpec, Failure> {
    if word == HOST {
        return host();
    }
    if let Some(path) = place(word) {
        return described(path);
    }
    if names().any(|name| name == word) {
        return Ok(builtin_machine(word)?);
    }
    Err(Failure::Usage(format!(
        "no machine named `{word}`{}; `vruntime list machines` shows all; a file may be \
         TOML, hwloc XML, `lscpu -J`, or a copy of /sys",
        hint(nearest_name(word, names()))
    )))
}

/// The files that are read for the machine `word`.
pub fn files(word: &str) -> Vec<PathBuf> {
    let path = if word == HOST { calibrated() } else { place(word).map(PathBuf::from) };
    let tables = path.iter().flat_map(|path| inherited_tables(path)).collect();
    path.into_iter().chain::<Vec<PathBuf>>(tables).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    builtin().iter().map(|&(name, _)| name).chain([HOST])
}

/// The file or directory that `word` names, if it is no machine's name.
fn place(word: &str) -> Option<&Path> {
    let path = Path::new(word);
    let is_path =
        [".toml", ".xml", ".json"].iter().any(|end| word.ends_with(end)) || word.contains('/');
    (is_path || (path.exists() && !names().any(|name| name == word))).then_some(path)
}

/// The machine in a file or directory; if it is not our own format, its costs are a table's.
fn described(path: &Path) -> Result<MachineSpec, Failure> {
    let spec = load_machine(path)?;
    if spec.sources.iter().any(|s| s.place.ends_with(FROM_A_TABLE)) {
        let file = path.display();
        eprintln!(
            "vruntime: {file}: its topology is that machine's, its costs are a table's. `vruntime \
             show machine {file}` says what is from where."
        );
    }
    Ok(spec)
}

/// What `vruntime calibrate` last wrote, or else sysfs with the costs of the nearest table.
fn host() -> Result<MachineSpec, Failure> {
    if let Some(path) = calibrated().filter(|p| p.is_file()) {
        return Ok(load_machine(&path)?);
    }
    let spec = sysfs_machine(Path::new("/sys"))?;
    eprintln!(
        "vruntime: `host` is not calibrated: its topology is this machine's, its costs are a \
         table's. `vruntime calibrate` measures them."
    );
    Ok(spec)
}

/// Where `calibrate` leaves the host's machine file: `$XDG_CACHE_HOME/vruntime/host.toml`, or the
/// same below `~/.cache`.
pub fn calibrated() -> Option<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")))?;
    Some(cache.join("vruntime/host.toml"))
}
