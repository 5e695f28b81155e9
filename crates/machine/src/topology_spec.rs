//! The topology as a person writes it, in one of three forms: `regular`, `nodes` (unequal nodes,
//! otherwise regular) and `masks` (every set written out, as read from a running machine).

use crate::SpecError;
use crate::topology::{Arch, Topology, TopologyMasks};
use serde::{Deserialize, Serialize};
use vruntime_base::{Cpu, CpuMask, MAX_CPUS};

/// How Linux numbers the threads of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Numbering {
    /// First threads of all cores, then second threads: CPU i and CPU i + nr_cores (x86 servers).
    SiblingsLast,
    /// The threads of a core follow one another.
    SiblingsAdjacent,
    /// Two small cores share a run of numbers, one takes the even and one the odd ones: an SMT8
    /// core of POWER9 and POWER10 is {0,2,4,6} and {1,3,5,7}.
    PowerSmt8,
}

/// The three forms of a topology.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopologySpec {
    /// Everything equal.
    Regular(Regular),
    /// Nodes of any size, regular inside.
    Nodes(Nodes),
    /// Every set written out.
    Masks(Masks),
}

/// A machine of equal sockets, nodes, caches and cores.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regular {
    /// Sockets.
    pub sockets: u32,
    /// NUMA nodes in a socket.
    #[serde(default = "one")]
    pub nodes_per_socket: u32,
    /// Cores in a node. A core is what the kernel's SMT domain spans: on POWER, a small core.
    pub cores_per_node: u32,
    /// Threads in a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Cores that share an L2.
    #[serde(default = "one")]
    pub cores_per_l2: u32,
    /// Cores in the scheduler's last-level cache group.
    pub cores_per_llc: u32,
    /// How CPUs are numbered.
    pub numbering: Numbering,
    /// ACPI SLIT distances; may be left out for one node.
    #[serde(default = "local_only")]
    pub node_distance: Vec<Vec<u32>>,
}

/// A machine of unequal nodes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Threads in a core.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// Cores that share an L2.
    #[serde(default = "one")]
    pub cores_per_l2: u32,
    /// Cores in the scheduler's last-level cache group; a node's last group may be smaller.
    pub cores_per_llc: u32,
    /// How CPUs are numbered inside a node.
    pub numbering: Numbering,
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// ACPI SLIT distances in the order of `nodes`.
    #[serde(default = "local_only")]
    pub node_distance: Vec<Vec<u32>>,
}

/// One node of [`Nodes`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The number Linux shows.
    pub number: u32,
    /// The socket that holds it.
    pub package: u32,
    /// Its CPUs, as `0-31,64-95`.
    pub cpus: String,
}

/// A machine written out. Each list holds the groups of one level as CPU lists.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Masks {
    /// Threads of each core.
    pub smt: Vec<String>,
    /// CPUs of each L2.
    pub l2: Vec<String>,
    /// CPUs of each last-level cache group.
    pub llc: Vec<String>,
    /// CPUs of each socket.
    pub packages: Vec<String>,
    /// CPUs of each node.
    pub nodes: Vec<String>,
    /// The number Linux shows for each node.
    pub node_numbers: Vec<u32>,
    /// ACPI SLIT distances in the order of `nodes`.
    #[serde(default = "local_only")]
    pub node_distance: Vec<Vec<u32>>,
}

fn one() -> u32 {
    1
}
fn local_only() -> Vec<Vec<u32>> {
    vec![vec![10]]
}

impl TopologySpec {
    /// The topology described, or what is wrong with the description.
    pub fn build(&self, arch: Arch) -> Result<Topology, SpecError> {
        let masks = match self {
            TopologySpec::Regular(r) => from_nodes(&r.to_nodes()?, arch, "topology.regular"),
            TopologySpec::Nodes(n) => from_nodes(n, arch, "topology.nodes"),
            TopologySpec::Masks(m) => from_lists(m, arch),
        }?;
        Topology::from_masks(&masks)
    }
}

impl Regular {
    /// The same machine with its nodes written out.
    fn to_nodes(&self) -> Result<Nodes, SpecError> {
        let key = |k: &str| format!("topology.regular.{k}");
        let counts = [
            ("sockets", self.sockets),
            ("nodes_per_socket", self.nodes_per_socket),
            ("cores_per_node", self.cores_per_node),
            ("threads_per_core", self.threads_per_core),
        ];
        let mut cpus = 1usize;
        for (name, n) in counts {
            if n == 0 || n as usize > MAX_CPUS {
                return Err(SpecError::new(key(name), n, format!("1 … {MAX_CPUS}")));
            }
            cpus = cpus.saturating_mul(n as usize);
        }
        if cpus > MAX_CPUS {
            let found = format!("{cpus} CPUs");
            return Err(SpecError::new("topology.regular", found, format!("at most {MAX_CPUS}")));
        }
        let llc = self.cores_per_llc;
        if llc == 0 || !self.cores_per_node.is_multiple_of(llc) {
            let expected = format!("a divisor of cores_per_node = {}", self.cores_per_node);
            let near = (1..=self.cores_per_node)
                .filter(|d| self.cores_per_node.is_multiple_of(*d))
                .min_by_key(|d| d.abs_diff(llc));
            let e = SpecError::new(key("cores_per_llc"), llc, expected);
            return Err(near.map_or(e.clone(), |d| e.nearest(d)));
        }
        let nr_nodes = self.sockets * self.nodes_per_socket;
        let per_node = self.cores_per_node as usize;
        let nr_cores = nr_nodes as usize * per_node;
        let threads = self.threads_per_core as usize;
        let nodes = (0..nr_nodes).map(|node| {
            let first = node as usize * per_node;
            let set: CpuMask = match self.numbering {
                Numbering::SiblingsLast => (0..threads)
                    .flat_map(|t| (first..first + per_node).map(move |c| t * nr_cores + c))
                    .map(Cpu::from_ix)
                    .collect(),
                Numbering::SiblingsAdjacent | Numbering::PowerSmt8 => {
                    (first * threads..(first + per_node) * threads).map(Cpu::from_ix).collect()
                }
            };
            let package = node / self.nodes_per_socket;
            NodeSpec { number: node, package, cpus: set.to_string() }
        });
        Ok(Nodes {
            threads_per_core: self.threads_per_core,
            cores_per_l2: self.cores_per_l2,
            cores_per_llc: llc,
            numbering: self.numbering,
            nodes: nodes.collect(),
            node_distance: self.node_distance.clone(),
        })
    }
}

/// Sets of a machine whose nodes are regular inside.
fn from_nodes(n: &Nodes, arch: Arch, at: &str) -> Result<TopologyMasks, SpecError> {
    let sets: Vec<CpuMask> = n
        .nodes
        .iter()
        .map(|s| parse_cpulist(&s.cpus, &format!("{at}: CPUs of node {}", s.number)))
        .collect::<Result<_, _>>()?;
    let nr_cpus = sets.iter().map(CpuMask::weight).sum::<usize>();
    let threads = n.threads_per_core as usize;
    if threads == 0 || n.cores_per_l2 == 0 || !n.cores_per_llc.is_multiple_of(n.cores_per_l2) {
        let found = format!("cores_per_l2 = {}, threads_per_core = {threads}", n.cores_per_l2);
        let expected = format!("at least 1, and a divisor of cores_per_llc = {}", n.cores_per_llc);
        return Err(SpecError::new(at, found, expected));
    }
    if nr_cpus == 0 || nr_cpus > MAX_CPUS || n.cores_per_llc == 0 {
        let found = format!("{nr_cpus} CPUs, {} cores per LLC", n.cores_per_llc);
        return Err(SpecError::new(at, found, format!("1 … {MAX_CPUS} CPUs, at least one core")));
    }
    let empty = vec![CpuMask::EMPTY; nr_cpus];
    let mut m = TopologyMasks {
        arch,
        smt: empty.clone(),
        l2: empty.clone(),
        llc: empty.clone(),
        package: empty,
        nodes: n.nodes.iter().zip(&sets).map(|(s, &set)| (s.number, set)).collect(),
        node_distance: n.node_distance.clone(),
    };
    for (spec, set) in n.nodes.iter().zip(&sets) {
        let cores = cores_of(n, spec, set, at)?;
        for (per_group, level) in [
            (1, &mut m.smt),
            (n.cores_per_l2 as usize, &mut m.l2),
            (n.cores_per_llc as usize, &mut m.llc),
        ] {
            for group in cores.chunks(per_group) {
                let union = group.iter().fold(CpuMask::EMPTY, |u, core| u.or(core));
                assign(level, &union, at)?;
            }
        }
        let of_package = n.nodes.iter().zip(&sets).filter(|(s, _)| s.package == spec.package);
        let package = of_package.fold(CpuMask::EMPTY, |u, (_, s)| u.or(s));
        assign(&mut m.package, &package, at)?;
    }
    Ok(m)
}

/// The cores of a node as sets, in order.
fn cores_of(
    n: &Nodes,
    node: &NodeSpec,
    set: &CpuMask,
    at: &str,
) -> Result<Vec<CpuMask>, SpecError> {
    let threads = n.threads_per_core as usize;
    let run = if n.numbering == Numbering::PowerSmt8 { 2 * threads } else { threads };
    let weight = set.weight();
    if weight == 0 {
        let found = format!("no CPUs in node {}", node.number);
        return Err(SpecError::new(at, found, "CPUs in each node: leave out one that has none"));
    }
    if !weight.is_multiple_of(run) {
        let found = format!("{weight} CPUs in node {}", node.number);
        return Err(SpecError::new(at, found, format!("a multiple of {run}")));
    }
    let nr_cores = weight / threads;
    let mut cores = vec![CpuMask::EMPTY; nr_cores];
    for (i, c) in set.iter().enumerate() {
        let core = match n.numbering {
            Numbering::SiblingsLast => i % nr_cores,
            Numbering::SiblingsAdjacent => i / threads,
            Numbering::PowerSmt8 => i / run * 2 + i % 2,
        };
        cores[core].set(c);
    }
    Ok(cores)
}

/// Gives every member of `set` that set.
fn assign(level: &mut [CpuMask], set: &CpuMask, at: &str) -> Result<(), SpecError> {
    for c in set.iter() {
        let slot = level.get_mut(c.ix()).ok_or_else(|| {
            SpecError::new(at, format!("CPU {c}"), "CPU numbers 0 … n-1 without holes")
        })?;
        *slot = *set;
    }
    Ok(())
}

fn from_lists(m: &Masks, arch: Arch) -> Result<TopologyMasks, SpecError> {
    let at = "topology.masks";
    let parse = |name: &str, lists: &[String]| -> Result<Vec<CpuMask>, SpecError> {
        lists.iter().map(|l| parse_cpulist(l, &format!("{at}.{name}"))).collect()
    };
    let nodes = parse("nodes", &m.nodes)?;
    if nodes.len() != m.node_numbers.len() {
        let found = format!("{} numbers", m.node_numbers.len());
        let expected = format!("one for each of the {} nodes", nodes.len());
        return Err(SpecError::new(format!("{at}.node_numbers"), found, expected));
    }
    let nr_cpus = nodes.iter().map(CpuMask::weight).sum::<usize>();
    let spread = |name: &str, lists: &[String]| -> Result<Vec<CpuMask>, SpecError> {
        let mut level = vec![CpuMask::EMPTY; nr_cpus];
        for set in parse(name, lists)? {
            assign(&mut level, &set, &format!("{at}.{name}"))?;
        }
        Ok(level)
    };
    Ok(TopologyMasks {
        arch,
        smt: spread("smt", &m.smt)?,
        l2: spread("l2", &m.l2)?,
        llc: spread("llc", &m.llc)?,
        package: spread("packages", &m.packages)?,
        nodes: m.node_numbers.iter().copied().zip(nodes).collect(),
        node_distance: m.node_distance.clone(),
    })
}

/// A CPU list as Linux prints it (`0-3,8,10-11`). `at` says where it stands, for the error.
pub fn parse_cpulist(text: &str, at: &str) -> Result<CpuMask, SpecError> {
    let wrong = |part: &str| {
        SpecError::new(at, format!("`{part}`"), "CPU numbers and ranges such as `0-3,8`")
    };
    let mut mask = CpuMask::EMPTY;
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let first: usize = a.trim().parse().map_err(|_| wrong(part))?;
        let last: usize = b.trim().parse().map_err(|_| wrong(part))?;
        if last < first || last >= MAX_CPUS {
            let expected = format!("an ascending range below {MAX_CPUS}");
            return Err(SpecError::new(at, format!("`{part}`"), expected));
        }
        for c in first..=last {
            mask.set(Cpu::from_ix(c));
        }
    }
    Ok(mask)
}

#[cfg(test)]
mod tests;
