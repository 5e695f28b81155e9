//! The machine and its kernel, in the files that a recording has beside its events.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What is known about the machine that records.
pub struct Surroundings {
    /// `uname -r`.
    pub release: String,
    /// Name and text of each file.
    pub files: BTreeMap<&'static str, String>,
    /// What could not be read, and what follows from that.
    pub missing: Vec<String>,
}

/// Files of sysfs that tell the topology, below a CPU's directory.
const TOPOLOGY: [&str; 5] = [
    "thread_siblings_list",
    "cluster_cpus_list",
    "core_siblings_list",
    "package_cpus_list",
    "physical_package_id",
];
/// The same of one of its caches.
const CACHE: [&str; 4] = ["level", "type", "size", "shared_cpu_list"];

impl Surroundings {
    /// Reads `/sys` and `/proc`.
    pub fn of_this_machine() -> Surroundings {
        let mut all = Surroundings {
            release: word(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default(),
            files: BTreeMap::new(),
            missing: vec![],
        };
        all.files.insert("topology.txt", topology(Path::new("/sys/devices/system")));
        all.files.extend(word(Path::new("/proc/cmdline")).map(|l| ("cmdline.txt", l + "\n")));
        all.files.insert("sysctl.txt", sysctl(Path::new("/proc/sys/kernel")));
        let debug = Path::new("/sys/kernel/debug/sched");
        match word(&debug.join("features")) {
            Some(features) => {
                all.files.insert("features.txt", features + "\n");
                all.files.insert("sched-tunables.txt", tunables(debug));
                all.files.insert("domains.txt", domains(debug));
            }
            None => all.missing.push(format!(
                "{}: not readable, so features and tunables are not recorded; `mount -t debugfs \
                 none /sys/kernel/debug` as root shows them",
                debug.display()
            )),
        }
        all
    }
}

/// The text of a small file without its line end.
fn word(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_string())
}

/// Names in `dir` that are `prefix` and a number, by number.
fn numbered(dir: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|e| e.file_name().into_string().ok());
    let number = |name: &str| name.strip_prefix(prefix)?.parse::<u32>().ok();
    let mut found: Vec<(u32, String)> = names.filter_map(|n| Some((number(&n)?, n))).collect();
    found.sort_unstable();
    found.into_iter().map(|f| f.1).collect()
}

/// Lines `path:value`.
fn topology(system: &Path) -> String {
    let mut out = String::new();
    let mut put = |dir: &Path, name: String| {
        if let Some(value) = word(&dir.join(&name)) {
            out += &format!("{name}:{value}\n");
        }
    };
    let cpus = system.join("cpu");
    for cpu in numbered(&cpus, "cpu") {
        for index in numbered(&cpus.join(&cpu).join("cache"), "index") {
            CACHE.iter().for_each(|file| put(&cpus, format!("{cpu}/cache/{index}/{file}")));
        }
        TOPOLOGY.iter().for_each(|file| put(&cpus, format!("{cpu}/topology/{file}")));
    }
    let nodes = system.join("node");
    for node in numbered(&nodes, "node") {
        ["cpulist", "distance"].iter().for_each(|file| put(&nodes, format!("{node}/{file}")));
    }
    out
}

/// Lines `path:value` of the scheduling domains, which show while `verbose` is on.
fn domains(debug: &Path) -> String {
    let verbose = debug.join("verbose");
    let before = word(&verbose);
    let set = |value: &str| fs::write(&verbose, value).is_ok();
    let turned_on = before.as_deref() == Some("N") && set("Y");
    let (all, mut out) = (debug.join("domains"), String::new());
    for cpu in numbered(&all, "cpu") {
        for domain in numbered(&all.join(&cpu), "domain") {
            for file in ["name", "flags", "min_interval", "max_interval", "imbalance_pct"] {
                if let Some(value) = word(&all.join(&cpu).join(&domain).join(file)) {
                    out += &format!("{cpu}/{domain}/{file}:{value}\n");
                }
            }
        }
    }
    if turned_on {
        set("N");
    }
    out
}

/// Lines `kernel.name = value` of what concerns the scheduler.
fn sysctl(kernel: &Path) -> String {
    let mut out = String::new();
    let entries = fs::read_dir(kernel).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort_unstable();
    for name in names.iter().filter(|n| n.starts_with("sched_") || *n == "numa_balancing") {
        if let Some(value) = word(&kernel.join(name)) {
            out += &format!("kernel.{name} = {value}\n");
        }
    }
    out
}

/// Lines `name: value`.
fn tunables(debug: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(debug)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().is_file())
        .filter_map(|e| e.file_name().into_string().ok())
        // One table of all run queues, not a tunable.
        .filter(|n| n != "debug")
        .collect();
    names.sort_unstable();
    let line = |n: &String| Some(format!("{n}: {}\n", word(&debug.join(n))?));
    names.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dump_of_this_machine_is_a_topology() {
        let text = topology(Path::new("/sys/devices/system"));
        assert!(text.contains("cpu0/topology/thread_siblings_list:"), "{text}");
    }

    #[test]
    fn numbers_are_sorted_as_numbers() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpufreq", "cpu0"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(numbered(dir.path(), "cpu"), ["cpu0", "cpu2", "cpu10"]);
    }
}
