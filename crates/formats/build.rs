//! Embeds `machines/*.toml`, `machines/costs/*.toml`, `kernels/*.toml` and `studies/*.toml`, so
//! that a new file needs no line of code.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let machines = root.join("../../machines");
    let mut code = String::new();
    list(&mut code, "MACHINES", &machines);
    list(&mut code, "COSTS", &machines.join("costs"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("machines.rs"), code).expect("OUT_DIR is writable");
    let mut code = String::new();
    list(&mut code, "KERNELS", &root.join("../../kernels"));
    fs::write(out.join("kernels.rs"), code).expect("OUT_DIR is writable");
    let mut code = String::new();
    list(&mut code, "STUDIES", &root.join("../../studies"));
    fs::write(out.join("studies.rs"), code).expect("OUT_DIR is writable");
}

/// A key by which 6.5 comes before 6.10, and 6.18 before 6.18.44.
fn natural(name: &str) -> Vec<(String, u64)> {
    let parts = name.split_inclusive(|c: char| !c.is_ascii_digit());
    parts
        .map(|part| {
            let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
            (part[digits.len()..].to_owned(), digits.parse().unwrap_or(0))
        })
        .collect()
}

/// Writes a table of (name, text) of the TOML files in `dir`, in the order of names and numbers.
fn list(code: &mut String, table: &str, dir: &Path) {
    println!("cargo::rerun-if-changed={}", dir.display());
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|e| e.expect("directory entry").path())
        .filter(|p| p.extension().is_some_and(|x| x == "toml"))
        .collect();
    files.sort_by_cached_key(|f| natural(&f.file_stem().expect("has a stem").to_string_lossy()));
    writeln!(code, "static {table}: &[(&str, &str)] = &[").expect("a string grows");
    for file in files {
        let name = file.file_stem().expect("has a stem").to_string_lossy().into_owned();
        let path = file.canonicalize().expect("exists");
        println!("cargo::rerun-if-changed={}", path.display());
        writeln!(code, "    ({name:?}, include_str!({path:?})),").expect("a string grows");
    }
    code.push_str("];\n");
}
