//! `-m`: a machine's name, a file or directory that describes one, or `host`.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use vruntime_formats::machine_file::{
    FROM_A_TABLE, builtin, builtin_machine, load_machine, sysfs_machine,
};
use vruntime_machine::{MachineSpec, hint, nearest_name};

/// The machine that this program runs on.
pub const HOST: &str = "host";

/// The machine that `word` names.
pub fn machine(word: &str) -> Result<MachineSpec, Failure> {
    if word == HOST {
        return host();
    }
    let path = Path::new(word);
    if [".toml", ".xml", ".json"].iter().any(|end| word.ends_with(end)) || word.contains('/') {
        return described(path);
    }
    let names = || builtin().iter().map(|&(name, _)| name).chain([HOST]);
    if names().any(|name| name == word) {
        return Ok(builtin_machine(word)?);
    }
    if path.exists() {
        return described(path);
    }
    Err(Failure::Usage(format!(
        "no machine named `{word}`{}; `vruntime list machines` shows all; a file may be \
         TOML, hwloc XML, `lscpu -J`, or a copy of /sys",
        hint(nearest_name(word, names()))
    )))
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
