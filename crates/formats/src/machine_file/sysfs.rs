//! The machine that a sysfs tree shows: sets written out, costs of the nearest built-in table.
//!
//! What sysfs does not tell (costs, clock, page size) comes from `x86-server` or `power10` and
//! says so in its sources; a calibration replaces it.

use super::{FileError, inherit};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{
    Arch, Caches, Cost, CostSpec, IdleSpec, MachineSpec, Masks, SCHEMA, Source, SpecError,
    TopologySpec, parse_cpulist,
};

/// The part of a machine that a cost table gives.
#[derive(Deserialize)]
struct Inherited {
    path_permille: Cost,
    smt_speed: Vec<Cost>,
    costs: CostSpec,
}

/// One cache of a CPU.
struct Cache {
    level: u32,
    kib: u32,
    shared: CpuMask,
}

/// The machine of the sysfs mounted (or copied) at `root`, usually `/sys`.
pub fn sysfs_machine(root: &Path) -> Result<MachineSpec, FileError> {
    let tree = Tree { root: root.join("devices/system") };
    let online = tree.cpulist("cpu/online")?;
    let n = online.weight();
    if n == 0 || online != CpuMask::first_n(n) {
        return Err(FileError::Sysfs {
            path: tree.root.join("cpu/online"),
            found: online.to_string(),
            expected: "CPUs without holes; bring the others online".into(),
        });
    }
    let arch = if tree.has("cpu/cpu0/dscr") { Arch::Powerpc } else { Arch::X86 };
    let table = if arch == Arch::Powerpc { "power10" } else { "x86-server" };
    let mut inherited = Table::new();
    inherited.insert("inherit".into(), Value::String(table.into()));
    inherit(&mut inherited, "sysfs", None, 0)?;
    let Inherited { path_permille, mut smt_speed, costs } =
        Inherited::deserialize(Value::Table(inherited)).map_err(|e| FileError::Toml {
            origin: format!("costs/{table}"),
            line: None,
            message: e.to_string(),
        })?;
    let masks = masks(&tree, arch, &online)?;
    let width = masks.smt.iter().filter_map(|l| parse_cpulist(l, "smt").ok());
    extend_speeds(&mut smt_speed, width.map(|m| m.weight()).max().unwrap_or(1));
    let mhz = tree.number("cpu/cpu0/cpufreq/cpuinfo_max_freq").map(|khz| khz / 1000);
    let spec = MachineSpec {
        schema: SCHEMA.into(),
        name: "host".into(),
        description: format!("{n} CPUs as sysfs shows them"),
        arch,
        page_kib: if arch == Arch::Powerpc { 64 } else { 4 },
        mhz: mhz.unwrap_or(3400),
        path_permille,
        caches: cache_sizes(&tree.caches(Cpu(0))?),
        smt_speed,
        idle: idle_states(&tree),
        topology: TopologySpec::Masks(masks),
        costs,
        sources: vec![
            source("topology, caches, idle table", "sysfs"),
            source("mhz", if mhz.is_some() { "sysfs, cpufreq" } else { "not in sysfs: a guess" }),
            source("page size", "not in sysfs: usual for the architecture"),
            source("costs", &format!("table {table}, not of this machine")),
        ],
    };
    let wrong = |source: SpecError| FileError::Spec { origin: root.display().to_string(), source };
    spec.check().map_err(wrong)?;
    spec.topology.build(arch).map_err(wrong)?;
    Ok(spec)
}

/// The sets of every level, made to nest as the kernel makes them nest.
fn masks(tree: &Tree, arch: Arch, online: &CpuMask) -> Result<Masks, FileError> {
    let (node_numbers, nodes, node_distance) = tree.nodes(online)?;
    let [mut smt, mut l2, mut llc, mut package] = [const { Vec::new() }; 4];
    for c in online.iter() {
        let node = nodes.iter().find(|m| m.has(c)).copied().unwrap_or(*online);
        let threads = tree.topology(c, &["core_cpus_list", "thread_siblings_list"])?;
        // The kernel does not believe a core or cache that spans nodes.
        let threads = threads.and(&node);
        let caches = tree.caches(c)?;
        let level = |l: u32| caches.iter().find(|x| x.level == l).map(|x| x.shared.and(&node));
        let second = level(2).unwrap_or(threads).or(&threads);
        let last = caches.iter().map(|x| x.level).max().and_then(level).unwrap_or(second);
        smt.push(threads);
        l2.push(second);
        // On POWER the scheduler's group ends at the L2.
        llc.push(if arch == Arch::Powerpc { second } else { last.or(&second) });
        let socket = tree.topology(c, &["package_cpus_list", "core_siblings_list"])?;
        package.push(socket.and(online).or(&last));
    }
    join(&mut package, &llc);
    Ok(Masks {
        smt: groups(&smt),
        l2: groups(&l2),
        llc: groups(&llc),
        packages: groups(&package),
        nodes: nodes.iter().map(CpuMask::to_string).collect(),
        node_numbers,
        node_distance,
    })
}

/// Joins packages that a guest's cache group spans.
fn join(package: &mut [CpuMask], llc: &[CpuMask]) {
    for group in llc {
        let whole = group.iter().fold(CpuMask::EMPTY, |u, c| u.or(&package[c.ix()]));
        for c in whole.iter() {
            package[c.ix()] = whole;
        }
    }
}

/// The different sets as CPU lists, in order of first appearance.
fn groups(of: &[CpuMask]) -> Vec<String> {
    let first = |&(i, set): &(usize, &CpuMask)| set.first() == Some(Cpu::from_ix(i));
    of.iter().enumerate().filter(first).map(|(_, set)| set.to_string()).collect()
}

fn cache_sizes(caches: &[Cache]) -> Caches {
    let kib = |level: u32| caches.iter().find(|c| c.level == level).map(|c| c.kib);
    let last = caches.iter().max_by_key(|c| c.level).map_or(0, |c| c.kib);
    let l1_kib = kib(1).unwrap_or(32);
    let l2_kib = kib(2).unwrap_or(l1_kib);
    Caches { l1_kib, l2_kib, llc_mib: last.max(l2_kib).div_ceil(1024) }
}

/// States of CPU 0, or a halt where the kernel has no table (most guests).
fn idle_states(tree: &Tree) -> Vec<IdleSpec> {
    let mut states = Vec::new();
    loop {
        let at = format!("cpu/cpu0/cpuidle/state{}", states.len());
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
        states.push(IdleSpec {
            polling: name == "POLL" || name == "snooze" || desc.contains("MWAIT"),
            name,
            table_latency_ns: table,
            target_residency_ns: us("residency").saturating_mul(1000),
            exit_latency,
        });
    }
    if states.is_empty() {
        states.push(IdleSpec {
            name: "halt".into(),
            table_latency_ns: 0,
            target_residency_ns: 0,
            polling: false,
            exit_latency: guest_halt(),
        });
    }
    states
}

fn guest_halt() -> Cost {
    Cost {
        low: 1000,
        mid: 4000,
        high: 10000,
        source: "typical, from memory: a halt exit through a hypervisor, 2-10 us".into(),
    }
}

/// Speeds for wider cores than the table knows: the core's throughput stays.
fn extend_speeds(speeds: &mut Vec<Cost>, width: usize) {
    while speeds.len() < width {
        let k = speeds.len() as u32;
        let scale = |v: u32| (v * k / (k + 1)).max(1);
        let Some(last) = speeds.last() else { return };
        let next = Cost {
            low: scale(scale(last.low)),
            mid: scale(last.mid),
            high: last.high,
            source: "estimate: the core does no more with one thread more".into(),
        };
        speeds.push(next);
    }
}

fn source(what: &str, place: &str) -> Source {
    Source { what: what.into(), place: place.into() }
}

/// `/sys/devices/system`.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn has(&self, at: &str) -> bool {
        self.root.join(at).exists()
    }
    fn text(&self, at: &str) -> Result<String, FileError> {
        let path = self.root.join(at);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().to_string()),
            Err(source) => Err(FileError::Read { path, source }),
        }
    }
    fn number(&self, at: &str) -> Option<u32> {
        self.text(at).ok()?.parse().ok()
    }
    fn cpulist(&self, at: &str) -> Result<CpuMask, FileError> {
        let text = self.text(at)?;
        parse_cpulist(&text, at)
            .map_err(|source| FileError::Spec { origin: self.root.display().to_string(), source })
    }
    /// The first of several names of a topology file.
    fn topology(&self, c: Cpu, names: &[&str]) -> Result<CpuMask, FileError> {
        let at = |name: &str| format!("cpu/cpu{c}/topology/{name}");
        let name = names.iter().find(|n| self.has(&at(n))).unwrap_or(&names[0]);
        self.cpulist(&at(name))
    }
    /// Data and unified caches of a CPU.
    fn caches(&self, c: Cpu) -> Result<Vec<Cache>, FileError> {
        let mut caches = Vec::new();
        for i in 0.. {
            let at = format!("cpu/cpu{c}/cache/index{i}");
            let Some(level) = self.number(&format!("{at}/level")) else { break };
            if self.text(&format!("{at}/type"))? == "Instruction" {
                continue;
            }
            let size = self.text(&format!("{at}/size")).unwrap_or_default();
            let kib = size.trim_end_matches('K').parse().unwrap_or(0);
            let shared = self.cpulist(&format!("{at}/shared_cpu_list"))?;
            caches.push(Cache { level, kib, shared });
        }
        Ok(caches)
    }
    /// Numbers, CPUs and distances of the nodes that have CPUs; one node if there is no table.
    #[allow(clippy::type_complexity)]
    fn nodes(
        &self,
        online: &CpuMask,
    ) -> Result<(Vec<u32>, Vec<CpuMask>, Vec<Vec<u32>>), FileError> {
        if !self.has("node/online") {
            return Ok((vec![0], vec![*online], vec![vec![10]]));
        }
        let listed: Vec<Cpu> = self.cpulist("node/online")?.iter().collect();
        let mut sets = Vec::new();
        for node in &listed {
            sets.push(self.cpulist(&format!("node/node{node}/cpulist"))?.and(online));
        }
        let with_cpus: Vec<usize> = (0..listed.len()).filter(|&i| !sets[i].is_empty()).collect();
        let mut distance = Vec::new();
        for &i in &with_cpus {
            let at = format!("node/node{}/distance", listed[i]);
            let text = self.text(&at)?;
            let row: Vec<u32> = text.split_whitespace().filter_map(|d| d.parse().ok()).collect();
            if row.len() != listed.len() {
                return Err(FileError::Sysfs {
                    path: self.root.join(at),
                    found: format!("`{text}`"),
                    expected: format!("{} distances", listed.len()),
                });
            }
            distance.push(with_cpus.iter().map(|&j| row[j]).collect());
        }
        let numbers = with_cpus.iter().map(|&i| u32::from(listed[i].0)).collect();
        Ok((numbers, with_cpus.iter().map(|&i| sets[i]).collect(), distance))
    }
}
