//! The machine that a sysfs tree shows: mounted, copied, in an archive, or as a dump of
//! `path:value` lines.

use super::archive;
use super::lscpu::usual_kib;
use super::shape::{Cache, CpuShape, Node, Shape, guest_halt, source};
use super::wrong;
use crate::error::FileError;
use crate::text_file;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{
    Arch, Cost, IdleSpec, MachineSpec, Source, node_reclaim_distance, parse_cpulist,
};

/// Where the files are below a root, as `/sys` has them.
const SYSTEM: &str = "devices/system/";

/// The machine of the sysfs mounted (or copied) at `root`, usually `/sys`.
pub fn sysfs_machine(root: &Path) -> Result<MachineSpec, FileError> {
    let places =
        [root.join("devices/system"), root.join("sys/devices/system"), root.join("system")];
    let found = places.iter().find(|p| p.join("cpu").is_dir());
    let found = found.cloned().or_else(|| root.join("cpu").is_dir().then(|| root.to_path_buf()));
    let Some(system) = found else {
        let expected = "a copy of /sys with devices/system/cpu in it";
        return Err(wrong(root, None, "a directory of other files", expected));
    };
    // A mounted /sys has it beside.
    let beside = root.parent().filter(|_| root.ends_with("sys")).map(|p| p.join("proc/cpuinfo"));
    let cpuinfo = [Some(root.join("proc/cpuinfo")), beside].into_iter().flatten();
    let cpuinfo = cpuinfo.filter_map(|p| fs::read_to_string(p).ok()).next().unwrap_or_default();
    Tree { path: system.clone(), files: Files::Below(system), cpuinfo }.machine("host")
}

/// The machine of a sysfs tree in a tar archive, plain or compressed.
pub(super) fn archived_machine(path: &Path, bytes: &[u8]) -> Result<MachineSpec, FileError> {
    let all = archive::unpack(path, bytes, |name| {
        name.ends_with("proc/cpuinfo")
            || name
                .split_once(SYSTEM)
                .is_some_and(|(_, at)| at.starts_with("cpu/") || at.starts_with("node/"))
    })?;
    let cpuinfo = all.iter().find(|(name, _)| name.ends_with("cpuinfo"));
    let cpuinfo = cpuinfo.map_or(String::new(), |(_, text)| text.clone());
    let below = |(name, text): (String, String)| {
        name.split_once(SYSTEM).map(|(_, at)| (at.to_string(), text))
    };
    let files: BTreeMap<_, _> = all.into_iter().filter_map(below).collect();
    if files.is_empty() {
        let expected = "a copy of /sys with devices/system/cpu in it";
        return Err(wrong(path, None, "an archive of other files", expected));
    }
    Tree { path: path.into(), files: Files::Held(files), cpuinfo }.machine(&super::stem(path))
}

/// The machine of a dump: lines such as `cpu0/cache/index0/level:1`.
pub(super) fn dumped_machine(path: &Path, text: &str) -> Result<MachineSpec, FileError> {
    let mut files = BTreeMap::new();
    let mut last = 0;
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        let Some((at, value)) = line.split_once(':') else {
            let expected = "`path:value`, as in `cpu0/cache/index0/level:1`";
            return Err(wrong(path, Some(i + 1), format!("`{line}`"), expected));
        };
        let folder = at.split('/').next().unwrap_or("").trim_end_matches(char::is_numeric);
        if folder == "cpu" && at.contains("/topology/") {
            let number = at[3..].split('/').next().and_then(|n| n.parse::<usize>().ok());
            last = last.max(number.unwrap_or(0));
        }
        files.insert(format!("{folder}/{at}"), value.trim().to_string());
    }
    files.entry("cpu/online".into()).or_insert_with(|| format!("0-{last}"));
    let nodes: Vec<&str> = files
        .keys()
        .filter_map(|k| k.strip_prefix("node/node")?.strip_suffix("/cpulist"))
        .collect();
    if !nodes.is_empty() {
        let nodes = nodes.join(",");
        files.insert("node/online".into(), nodes);
    }
    let cpuinfo = String::new();
    Tree { path: path.into(), files: Files::Held(files), cpuinfo }.machine(&super::stem(path))
}

fn is_power(cpuinfo: &str) -> bool {
    cpuinfo.lines().any(|l| l.starts_with("cpu\t") && l.contains("POWER"))
}

/// What the vendor and the family of the first CPU say.
fn reclaim_distance(cpuinfo: &str) -> Option<u32> {
    let told = |key: &str| {
        let line = cpuinfo.lines().filter_map(|l| l.split_once(':')).find(|l| l.0.trim() == key);
        line.map_or("", |l| l.1.trim())
    };
    node_reclaim_distance(told("vendor_id"), told("cpu family").parse().unwrap_or(0))
}

/// The idle states of CPU 0 that the governor may choose: all but those that somebody has
/// disabled. If nothing else is left it takes the first.
fn idle_states(tree: &Tree) -> Vec<IdleSpec> {
    let (mut states, mut first) = (Vec::new(), None);
    for i in 0.. {
        let at = format!("cpu/cpu0/cpuidle/state{i}");
        let Ok(name) = tree.text(&format!("{at}/name")) else { break };
        let desc = tree.text(&format!("{at}/desc")).unwrap_or_default();
        let us = |key: &str| tree.number(&format!("{at}/{key}")).unwrap_or(0);
        let table = us("latency").saturating_mul(1000).min(Cost::MAX / 2);
        let exit_latency = if name.starts_with("haltpoll") {
            guest_halt()
        } else {
            Cost {
                low: table / 4,
                mid: table / 2 + table / 4,
                high: (table * 2).max(100),
                source: "estimate: sysfs cpuidle latency; real exits a quarter to twice of it"
                    .into(),
            }
        };
        let state = IdleSpec {
            polling: name == "POLL" || name == "snooze" || desc.contains("MWAIT"),
            name,
            table_latency_ns: table,
            target_residency_ns: us("residency").saturating_mul(1000),
            exit_latency,
        };
        if us("disable") == 0 {
            states.push(state);
        } else if i == 0 {
            first = Some(state);
        }
    }
    if states.is_empty() { first.into_iter().collect() } else { states }
}

/// The files below `/sys/devices/system`.
enum Files {
    Below(PathBuf),
    Held(BTreeMap<String, String>),
}

/// `/sys/devices/system`.
struct Tree {
    /// For messages.
    path: PathBuf,
    files: Files,
    /// The `/proc/cpuinfo` beside the tree, if there is one.
    cpuinfo: String,
}

impl Tree {
    fn machine(&self, name: &str) -> Result<MachineSpec, FileError> {
        let online = self.cpulist("cpu/online")?;
        let n = online.weight();
        if n == 0 || online != CpuMask::first_n(n) {
            let expected = "CPUs without holes; bring the others online";
            return Err(wrong(&self.path.join("cpu/online"), None, online.to_string(), expected));
        }
        let (mut cpus, mut guesses) = (Vec::new(), Vec::new());
        if self.cpuinfo.lines().any(|l| l.starts_with("CPU implementer")) {
            super::arch_of(&self.path, None, "aarch64")?;
        }
        let power = is_power(&self.cpuinfo) || self.has("cpu/cpu0/dscr");
        for c in online.iter() {
            cpus.push(CpuShape {
                threads: self.topology(c, &["core_cpus_list", "thread_siblings_list"])?,
                caches: self.caches(c, &mut guesses)?,
                package: self.topology(c, &["package_cpus_list", "core_siblings_list"])?,
            });
        }
        let mhz = self.number("cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz / 1000);
        let shape = Shape {
            name: name.into(),
            origin: "sysfs",
            arch: if power { Arch::Powerpc } else { Arch::X86 },
            cpus,
            nodes: self.nodes(&online)?,
            idle: idle_states(self),
            mhz,
            guesses,
            reclaim_distance: reclaim_distance(&self.cpuinfo),
            // Of a copy of /sys; an archive is read for its devices alone.
            guest_halt_poll_ns: self.number("../../module/haltpoll/parameters/guest_halt_poll_ns"),
        };
        shape.machine(&self.path)
    }
    fn has(&self, at: &str) -> bool {
        match &self.files {
            Files::Below(root) => root.join(at).exists(),
            Files::Held(files) => files.contains_key(at),
        }
    }
    fn text(&self, at: &str) -> Result<String, FileError> {
        match &self.files {
            Files::Below(root) => Ok(text_file::read(&root.join(at))?.trim().to_string()),
            Files::Held(files) => match files.get(at) {
                Some(text) => Ok(text.trim().to_string()),
                None => Err(wrong(&self.path, None, format!("no {at}"), "what sysfs has there")),
            },
        }
    }
    fn number(&self, at: &str) -> Option<u32> {
        self.text(at).ok()?.parse().ok()
    }
    fn cpulist(&self, at: &str) -> Result<CpuMask, FileError> {
        let text = self.text(at)?;
        parse_cpulist(&text, at)
            .map_err(|e| FileError::content(&self.path.display().to_string(), None, e))
    }
    /// The first of several names of a topology file.
    fn topology(&self, c: Cpu, names: &[&str]) -> Result<CpuMask, FileError> {
        let at = |name: &str| format!("cpu/cpu{c}/topology/{name}");
        let name = names.iter().find(|n| self.has(&at(n))).unwrap_or(&names[0]);
        self.cpulist(&at(name))
    }
    /// Data and unified caches of a CPU; a size that cannot be read is guessed.
    fn caches(&self, c: Cpu, guesses: &mut Vec<Source>) -> Result<Vec<Cache>, FileError> {
        let mut caches = Vec::new();
        for i in 0.. {
            let at = format!("cpu/cpu{c}/cache/index{i}");
            let Some(level) = self.number(&format!("{at}/level")) else { break };
            if self.text(&format!("{at}/type"))? == "Instruction" {
                continue;
            }
            let size = self.text(&format!("{at}/size")).unwrap_or_default();
            let kib = size.trim_end_matches('K').parse().unwrap_or_else(|_| {
                let guess = format!("`{size}` is no number of KiB: the usual one");
                let guess = source(&format!("size of the L{level}"), &guess);
                if !guesses.contains(&guess) {
                    guesses.push(guess);
                }
                usual_kib(level)
            });
            let shared = self.cpulist(&format!("{at}/shared_cpu_list"))?;
            caches.push(Cache { level, kib, shared });
        }
        Ok(caches)
    }
    /// The nodes that have CPUs; one if there is no table.
    fn nodes(&self, online: &CpuMask) -> Result<Vec<Node>, FileError> {
        if !self.has("node/online") {
            return Ok(vec![Node { number: 0, cpus: *online, distance: vec![10] }]);
        }
        let listed: Vec<Cpu> = self.cpulist("node/online")?.iter().collect();
        let mut sets = Vec::new();
        for node in &listed {
            sets.push(self.cpulist(&format!("node/node{node}/cpulist"))?.and(online));
        }
        let with_cpus: Vec<usize> = (0..listed.len()).filter(|&i| !sets[i].is_empty()).collect();
        let mut nodes = Vec::new();
        for &i in &with_cpus {
            let at = format!("node/node{}/distance", listed[i]);
            let text = self.text(&at)?;
            let row: Vec<u32> = text.split_whitespace().filter_map(|d| d.parse().ok()).collect();
            if row.len() != listed.len() {
                let expected = format!("{} distances", listed.len());
                return Err(wrong(&self.path.join(at), None, format!("`{text}`"), expected));
            }
            let number = u32::from(listed[i].0);
            let distance = with_cpus.iter().map(|&j| row[j]).collect();
            nodes.push(Node { number, cpus: sets[i], distance });
        }
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_machine::TopologySpec;

    fn tree(files: &[(String, &str)], cpuinfo: &str) -> Tree {
        let files = files.iter().map(|(at, v)| (at.clone(), v.to_string())).collect();
        Tree { path: "sys".into(), files: Files::Held(files), cpuinfo: cpuinfo.into() }
    }

    fn eight(arch: Option<&str>) -> Vec<(String, &'static str)> {
        let mut files = vec![("cpu/online".to_string(), "0-7")];
        for c in 0..8 {
            files.push((format!("cpu/cpu{c}/topology/thread_siblings_list"), "0-7"));
            files.push((format!("cpu/cpu{c}/topology/core_siblings_list"), "0-7"));
            for (index, level) in [(0, "1"), (1, "2"), (2, "3")] {
                let at = |file: &str| format!("cpu/cpu{c}/cache/index{index}/{file}");
                let shared = if c % 2 == 0 { "0,2,4,6" } else { "1,3,5,7" };
                files.push((at("level"), level));
                files.push((at("type"), "Unified"));
                files.push((at("shared_cpu_list"), shared));
            }
        }
        files.extend(arch.map(|file| (file.to_string(), "0")));
        files
    }

    /// A core of eight threads with two L1s is two cores of four, as the kernel takes it.
    #[test]
    fn a_big_core_of_power_is_two_small_ones() {
        let spec = tree(&eight(Some("cpu/cpu0/dscr")), "").machine("p10").unwrap();
        let TopologySpec::Masks(masks) = spec.topology else { panic!("{:?}", spec.topology) };
        assert_eq!(masks.smt, ["0,2,4,6", "1,3,5,7"]);
        assert_eq!(masks.llc, ["0,2,4,6", "1,3,5,7"]);
    }

    #[test]
    fn a_disabled_idle_state_is_not_there() {
        let names = |disabled: [&'static str; 3]| -> Vec<String> {
            let mut files = eight(None);
            for (i, name) in ["POLL", "C1", "C6"].into_iter().enumerate() {
                let at = |file: &str| format!("cpu/cpu0/cpuidle/state{i}/{file}");
                files.extend([(at("name"), name), (at("disable"), disabled[i])]);
            }
            let spec = tree(&files, "").machine("a").unwrap();
            spec.idle.into_iter().map(|s| s.name).collect()
        };
        assert_eq!(names(["0", "0", "0"]), ["POLL", "C1", "C6"]);
        assert_eq!(names(["0", "1", "0"]), ["POLL", "C6"]);
        assert_eq!(names(["1", "0", "1"]), ["C1"]);
        // The governor takes the first, whatever it is told.
        assert_eq!(names(["1", "1", "1"]), ["POLL"]);
    }

    #[test]
    fn arm_is_refused() {
        let e = tree(&eight(None), "processor\t: 0\nCPU implementer\t: 0x41\n").machine("a");
        let e = e.unwrap_err().to_string();
        assert!(e.contains("architecture `aarch64`") && e.contains("x86_64, ppc64"), "{e}");
    }
}
