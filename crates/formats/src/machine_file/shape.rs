//! What other people's descriptions of a machine tell, and the machine made of it: sets written
//! out, costs of the nearest built-in table.
//!
//! What they do not tell (costs, clock, page size) comes from `x86-server` or `power10` and says
//! so in its sources; a calibration replaces it.

use super::inherit;
use super::sources::Text;
use crate::error::FileError;
use serde::Deserialize;
use std::path::Path;
use toml::{Table, Value};
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{
    Arch, Caches, Cost, CostSpec, IdleSpec, MachineSpec, Masks, SCHEMA, Source, SpecError,
    TopologySpec,
};

/// How the source of costs ends that were not measured on the machine.
pub const FROM_A_TABLE: &str = ", not of this machine";

/// The part of a machine that a cost table gives.
#[derive(Deserialize)]
struct Inherited {
    path_permille: Cost,
    smt_speed: Vec<Cost>,
    costs: CostSpec,
}

/// One cache that holds data.
pub(super) struct Cache {
    pub level: u32,
    pub kib: u32,
    pub shared: CpuMask,
}

/// One CPU.
pub(super) struct CpuShape {
    /// The threads of its core.
    pub threads: CpuMask,
    /// Its data and unified caches.
    pub caches: Vec<Cache>,
    /// The CPUs of its socket.
    pub package: CpuMask,
}

/// One NUMA node that has CPUs.
pub(super) struct Node {
    pub number: u32,
    pub cpus: CpuMask,
    /// To every node, in their order.
    pub distance: Vec<u32>,
}

/// A machine as somebody else describes it.
pub(super) struct Shape {
    pub name: String,
    /// "sysfs", "hwloc XML", "lscpu".
    pub origin: &'static str,
    pub arch: Arch,
    /// CPU 0 first, without holes.
    pub cpus: Vec<CpuShape>,
    pub nodes: Vec<Node>,
    /// Empty where nothing is known.
    pub idle: Vec<IdleSpec>,
    pub mhz: Option<u32>,
    /// The kernel's `node_reclaim_distance`, where the vendor has one of its own.
    pub reclaim_distance: Option<u32>,
    /// The parameter of the module haltpoll, where it is loaded.
    pub guest_halt_poll_ns: Option<u32>,
    /// Guesses that were made, each with its reason.
    pub guesses: Vec<Source>,
}

impl Shape {
    /// The machine, with the costs of a table.
    pub(super) fn machine(self, path: &Path) -> Result<MachineSpec, FileError> {
        let (arch, n, origin) = (self.arch, self.cpus.len(), self.origin);
        let table = if arch == Arch::Powerpc { "power10" } else { "x86-server" };
        let mut inherited = Table::new();
        inherited.insert("inherit".into(), Value::String(table.into()));
        let heir = Text { origin: origin.into(), name: String::new(), text: String::new() };
        inherit(&mut inherited, &mut vec![heir], None)?;
        let Inherited { path_permille, mut smt_speed, costs } =
            Inherited::deserialize(Value::Table(inherited))
                .map_err(|e| FileError::content(&format!("costs/{table}"), None, e))?;
        let width = self.cpus.iter().map(|c| c.threads.weight()).max().unwrap_or(1);
        extend_speeds(&mut smt_speed, width);
        let mut sources = vec![source("topology, caches", origin)];
        let idle = if self.idle.is_empty() {
            sources.push(source("idle states", &format!("{origin} has none: a guest's halt")));
            vec![halt()]
        } else {
            sources.push(source("idle states", origin));
            self.idle.clone()
        };
        let mhz = if self.mhz.is_some() { "cpufreq" } else { "not told: a guess" };
        sources.extend([
            source("mhz", &format!("{origin}, {mhz}")),
            source("page size", "not told: usual for the architecture"),
            source("costs", &format!("table {table}{FROM_A_TABLE}")),
        ]);
        sources.extend(self.guesses.clone());
        let spec = MachineSpec {
            schema: SCHEMA.into(),
            name: self.name.clone(),
            description: format!("{n} CPUs as {origin} shows them"),
            arch,
            page_kib: if arch == Arch::Powerpc { 64 } else { 4 },
            mhz: self.mhz.unwrap_or(3400),
            path_permille,
            caches: cache_sizes(self.cpus.first().map_or(&[], |c| &c.caches)),
            smt_speed,
            idle,
            topology: TopologySpec::Masks(self.masks()),
            node_reclaim_distance: self.reclaim_distance,
            guest_halt_poll_ns: self.guest_halt_poll_ns,
            costs,
            sources,
        };
        let wrong = |e: SpecError| FileError::content(&path.display().to_string(), None, e);
        spec.check().map_err(wrong)?;
        spec.build_topology().map_err(wrong)?;
        Ok(spec)
    }

    /// The sets of every level, made to nest as the kernel makes them nest.
    fn masks(&self) -> Masks {
        let online = CpuMask::first_n(self.cpus.len());
        let [mut smt, mut l2, mut llc, mut package] = [const { Vec::new() }; 4];
        for (i, cpu) in self.cpus.iter().enumerate() {
            let own = self.nodes.iter().find(|n| n.cpus.has(Cpu::from_ix(i)));
            let node = own.map_or(online, |n| n.cpus);
            // The kernel does not believe a core or cache that spans nodes.
            let level =
                |l: u32| cpu.caches.iter().find(|x| x.level == l).map(|x| x.shared.and(&node));
            // A core of eight on POWER is two of four to the scheduler (`cpu_smallcore_mask`):
            // those that share an L1.
            let small = level(1).filter(|_| self.arch == Arch::Powerpc);
            let threads = cpu.threads.and(&node).and(&small.unwrap_or(node));
            let second = level(2).unwrap_or(threads).or(&threads);
            let last = cpu.caches.iter().map(|x| x.level).max().and_then(level).unwrap_or(second);
            smt.push(threads);
            l2.push(second);
            // On POWER the scheduler's group ends at the L2.
            llc.push(if self.arch == Arch::Powerpc { second } else { last.or(&second) });
            package.push(cpu.package.and(&online).or(&last));
        }
        join(&mut package, &llc);
        Masks {
            smt: groups(&smt),
            l2: groups(&l2),
            llc: groups(&llc),
            packages: groups(&package),
            nodes: self.nodes.iter().map(|n| n.cpus.to_string()).collect(),
            node_numbers: self.nodes.iter().map(|n| n.number).collect(),
            node_distance: self.nodes.iter().map(|n| n.distance.clone()).collect(),
        }
    }
}

/// What halts a guest whose kernel has no table of idle states.
fn halt() -> IdleSpec {
    IdleSpec {
        name: "halt".into(),
        table_latency_ns: 0,
        target_residency_ns: 0,
        polling: false,
        exit_latency: guest_halt(),
    }
}

/// The exit from it.
pub(super) fn guest_halt() -> Cost {
    Cost {
        low: 1000,
        mid: 4000,
        high: 10000,
        source: "typical, from memory: a halt exit through a hypervisor, 2-10 us".into(),
    }
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

pub(super) fn source(what: &str, place: &str) -> Source {
    Source { what: what.into(), place: place.into() }
}
