//! `-m`: a machine's name, a TOML file, or `host`.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use vruntime_formats::machine_file::{builtin, builtin_machine, load_machine, sysfs_machine};
use vruntime_machine::{MachineSpec, nearest_name};

/// The machine that this program runs on.
pub const HOST: &str = "host";

/// The machine that `word` names.
pub fn machine(word: &str) -> Result<MachineSpec, Failure> {
    if word == HOST {
        return host();
    }
    if word.ends_with(".toml") || word.contains('/') {
        return Ok(load_machine(Path::new(word))?);
    }
    let names = || builtin().iter().map(|&(name, _)| name).chain([HOST]);
    if names().any(|name| name == word) {
        return Ok(builtin_machine(word)?);
    }
    let near = nearest_name(word, names()).map(|n| format!(", nearest is `{n}`"));
    Err(Failure::Usage(format!(
        "no machine named `{word}`{}; `vruntime list machines` shows all, a file ends in .toml",
        near.unwrap_or_default()
    )))
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
