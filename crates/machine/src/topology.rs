//! Which CPUs share what: cores, L2, last-level cache, package and NUMA node.
//!
//! Every level is a partition of the CPUs, and levels nest: core ⊆ L2 ⊆ LLC ⊆ package. The last
//! level is the *scheduler's* (`sd_llc`): on x86 the L3 domain, on POWER the small core, where the
//! caches beyond it belong to no scheduling domain. Nodes nest with the LLC but not with the
//! package: one package may hold several nodes, and a guest may have nodes of several packages.
//!
//! `distance` is asked on every line transfer, so each CPU has a padded id, one bit field a level
//! (package | LLC | L2 | core | thread), and the highest bit in which two ids differ names the
//! class.

mod level;

use crate::SpecError;
use level::{Level, pad};
use serde::{Deserialize, Serialize};
use vruntime_base::{Cpu, CpuMask, id_type};

id_type!(
    /// A last-level cache group, dense, in order of its lowest CPU.
    LlcId(u16)
);
id_type!(
    /// A NUMA node that has CPUs, dense. [`Topology::node_number`] is the number Linux shows.
    NodeId(u16)
);
id_type!(
    /// A socket, dense, in order of its lowest CPU.
    PackageId(u16)
);

/// How far two CPUs are apart, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Distance {
    /// The same CPU.
    Same,
    /// Another thread of the same core.
    Smt,
    /// Another core with the same L2.
    L2,
    /// Another L2 in the same last-level cache group.
    Llc,
    /// Another last-level cache group in the same socket.
    Package,
    /// Another socket.
    Remote,
}

impl Distance {
    /// All classes, nearest first; the position is `self as usize`.
    pub const ALL: [Distance; 6] = [
        Distance::Same,
        Distance::Smt,
        Distance::L2,
        Distance::Llc,
        Distance::Package,
        Distance::Remote,
    ];
    /// The name used in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Distance::Same => "same",
            Distance::Smt => "smt",
            Distance::L2 => "l2",
            Distance::Llc => "llc",
            Distance::Package => "package",
            Distance::Remote => "remote",
        }
    }
}

/// The rules by which the kernel builds scheduling domains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// SMT, cluster, MC (= LLC), package.
    X86,
    /// SMT (= small core), cache, package. The MC level that Linux adds where the firmware reports
    /// core groups is left out.
    Powerpc,
}

/// Explicit sets, as sysfs lists them: entry `c` of each vector is the set that CPU `c` sees.
#[derive(Clone, Debug)]
pub struct TopologyMasks {
    /// The kernel's architecture.
    pub arch: Arch,
    /// Threads of the core of each CPU.
    pub smt: Vec<CpuMask>,
    /// CPUs sharing the L2 of each CPU.
    pub l2: Vec<CpuMask>,
    /// CPUs in the scheduler's last-level cache group of each CPU.
    pub llc: Vec<CpuMask>,
    /// CPUs in the socket of each CPU.
    pub package: Vec<CpuMask>,
    /// Nodes with CPUs: the number Linux shows, and the CPUs.
    pub nodes: Vec<(u32, CpuMask)>,
    /// `node_distance[i][j]` between `nodes[i]` and `nodes[j]`, as in the ACPI SLIT (local 10,
    /// others above).
    pub node_distance: Vec<Vec<u32>>,
}

/// Sharing of a machine, and the distance of any two CPUs.
#[derive(Clone, Debug)]
pub struct Topology {
    padded: Vec<u32>,
    /// Distance by the number of significant bits of the difference of two padded ids.
    class: [Distance; 33],
    arch: Arch,
    all: CpuMask,
    smt: Level,
    l2: Level,
    llc: Level,
    package: Level,
    node: Level,
    node_number: Vec<u32>,
    node_distance: Vec<u32>,
    node_reclaim_distance: u32,
}

impl Arch {
    /// The kernel's `RECLAIM_DISTANCE`: `include/linux/topology.h` and, for POWER, where every
    /// other node is beyond it, `arch/powerpc/include/asm/topology.h`.
    pub fn reclaim_distance(self) -> u32 {
        match self {
            Arch::X86 => 30,
            Arch::Powerpc => 10,
        }
    }
}

/// The `node_reclaim_distance` that the kernel sets on x86 CPUs of this vendor (as CPUID spells it)
/// and family, where it is not its architecture's: `arch/x86/kernel/cpu/amd.c` (Zen) and `hygon.c`.
pub fn node_reclaim_distance(vendor: &str, family: u32) -> Option<u32> {
    matches!((vendor, family), ("AuthenticAMD", 0x17..) | ("HygonGenuine", _)).then_some(32)
}

impl Topology {
    /// Builds from explicit sets and checks that each level is a partition and that levels nest.
    pub fn from_masks(m: &TopologyMasks) -> Result<Topology, SpecError> {
        let n = m.smt.len();
        if n == 0 || n > vruntime_base::MAX_CPUS {
            return Err(SpecError::new("topology", format!("{n} CPUs"), "1 … 1024 CPUs"));
        }
        for (name, v) in [("L2", &m.l2), ("LLC", &m.llc), ("package", &m.package)] {
            if v.len() != n {
                let found = format!("{} {name} sets", v.len());
                return Err(SpecError::new("topology", found, format!("one per CPU: {n}")));
            }
        }
        let smt = Level::new("core", &m.smt)?;
        let l2 = Level::new("L2", &m.l2)?;
        let llc = Level::new("LLC", &m.llc)?;
        let package = Level::new("package", &m.package)?;
        let (node, node_number) = nodes(&m.nodes, n)?;
        smt.nests_in("core", &l2, "L2")?;
        l2.nests_in("L2", &llc, "LLC")?;
        llc.nests_in("LLC", &package, "package")?;
        llc.nests_in("LLC", &node, "node")?;
        let node_distance = flatten(&m.node_distance, node_number.len())?;
        let all = CpuMask::first_n(n);
        let (padded, class) = pad(&[&smt, &l2, &llc, &package], n);
        Ok(Topology {
            padded,
            class,
            arch: m.arch,
            all,
            smt,
            l2,
            llc,
            package,
            node,
            node_number,
            node_distance,
            node_reclaim_distance: m.arch.reclaim_distance(),
        })
    }

    /// Number of CPUs; they are 0 … n-1.
    #[inline]
    pub fn nr_cpus(&self) -> usize {
        self.padded.len()
    }
    /// The same with another [`Topology::node_reclaim_distance`].
    pub fn with_node_reclaim_distance(self, distance: u32) -> Topology {
        Topology { node_reclaim_distance: distance, ..self }
    }
    /// The largest distance of nodes over which forks and execs balance and wakeups pull.
    pub fn node_reclaim_distance(&self) -> u32 {
        self.node_reclaim_distance
    }
    /// The kernel's architecture.
    pub fn arch(&self) -> Arch {
        self.arch
    }
    /// Every CPU.
    pub fn all(&self) -> &CpuMask {
        &self.all
    }
    /// Class of the distance between two CPUs.
    #[inline(always)]
    pub fn distance(&self, a: Cpu, b: Cpu) -> Distance {
        let differ = self.padded[a.ix()] ^ self.padded[b.ix()];
        self.class[(u32::BITS - differ.leading_zeros()) as usize]
    }
    /// Threads of the core of `c`, `c` among them.
    #[inline(always)]
    pub fn smt(&self, c: Cpu) -> &CpuMask {
        self.smt.set(c)
    }
    /// Dense number of the core of `c`.
    #[inline(always)]
    pub fn core_id(&self, c: Cpu) -> usize {
        self.smt.of[c.ix()] as usize
    }
    /// Number of cores.
    pub fn nr_cores(&self) -> usize {
        self.smt.sets.len()
    }
    /// Most threads in a core.
    pub fn smt_width(&self) -> usize {
        self.smt.sets.iter().map(CpuMask::weight).max().unwrap_or(1)
    }
    /// CPUs sharing the L2 of `c`.
    #[inline(always)]
    pub fn l2(&self, c: Cpu) -> &CpuMask {
        self.l2.set(c)
    }
    /// CPUs in the scheduler's last-level cache group of `c`.
    #[inline(always)]
    pub fn llc(&self, c: Cpu) -> &CpuMask {
        self.llc.set(c)
    }
    /// The last-level cache group of `c`.
    #[inline(always)]
    pub fn llc_id(&self, c: Cpu) -> LlcId {
        LlcId(self.llc.of[c.ix()])
    }
    /// CPUs of a last-level cache group.
    pub fn llc_cpus(&self, l: LlcId) -> &CpuMask {
        &self.llc.sets[l.ix()]
    }
    /// Number of last-level cache groups.
    pub fn nr_llcs(&self) -> usize {
        self.llc.sets.len()
    }
    /// The socket of `c`.
    #[inline(always)]
    pub fn package(&self, c: Cpu) -> PackageId {
        PackageId(self.package.of[c.ix()])
    }
    /// CPUs in the socket of `c`.
    #[inline(always)]
    pub fn package_cpus(&self, c: Cpu) -> &CpuMask {
        self.package.set(c)
    }
    /// Number of sockets.
    pub fn nr_packages(&self) -> usize {
        self.package.sets.len()
    }
    /// The NUMA node of `c`.
    #[inline(always)]
    pub fn node(&self, c: Cpu) -> NodeId {
        NodeId(self.node.of[c.ix()])
    }
    /// CPUs of a node.
    #[inline(always)]
    pub fn node_cpus(&self, n: NodeId) -> &CpuMask {
        &self.node.sets[n.ix()]
    }
    /// Number of nodes with CPUs.
    pub fn nr_nodes(&self) -> usize {
        self.node.sets.len()
    }
    /// The number Linux shows for a node.
    pub fn node_number(&self, n: NodeId) -> u32 {
        self.node_number[n.ix()]
    }
    /// ACPI SLIT distance of two nodes; 10 is local.
    #[inline]
    pub fn node_distance(&self, a: NodeId, b: NodeId) -> u32 {
        self.node_distance[a.ix() * self.nr_nodes() + b.ix()]
    }
}

/// Nodes in the given order, which must cover every CPU once.
fn nodes(list: &[(u32, CpuMask)], n: usize) -> Result<(Level, Vec<u32>), SpecError> {
    let mut of = vec![u16::MAX; n];
    for (i, (number, set)) in list.iter().enumerate() {
        if set.is_empty() {
            let expected = "CPUs (leave out nodes without any)";
            return Err(SpecError::new(format!("node {number}"), "no CPU", expected));
        }
        if list[..i].iter().any(|(earlier, _)| earlier == number) {
            let found = "the number twice";
            return Err(SpecError::new(format!("node {number}"), found, "each number once"));
        }
        for c in set.iter() {
            match of.get_mut(c.ix()) {
                Some(slot) if *slot == u16::MAX => *slot = i as u16,
                found => {
                    let found = if found.is_some() { "twice" } else { "beyond the last CPU" };
                    let found = format!("CPU {c} {found}");
                    let expected = format!("each of the CPUs 0-{} once", n - 1);
                    return Err(SpecError::new(format!("node {number}"), found, expected));
                }
            }
        }
    }
    if let Some(c) = of.iter().position(|&x| x == u16::MAX) {
        return Err(SpecError::new("nodes", format!("CPU {c} in no node"), "every CPU in one"));
    }
    let sets = list.iter().map(|&(_, set)| set).collect();
    Ok((Level { of, sets }, list.iter().map(|&(number, _)| number).collect()))
}

/// A CPU's distance to its own node, in ACPI's table.
const LOCAL_DISTANCE: u32 = 10;

/// Distances row by row. A kernel takes no table that has others in its diagonal, or none above
/// that elsewhere (`slit_valid`).
fn flatten(matrix: &[Vec<u32>], n: usize) -> Result<Vec<u32>, SpecError> {
    let at = "node_distance";
    if matrix.len() != n || matrix.iter().any(|row| row.len() != n) {
        let rows: Vec<usize> = matrix.iter().map(Vec::len).collect();
        let found = match *matrix {
            // What stands for a table that is not given.
            [ref only] if *only == [LOCAL_DISTANCE] => format!("none, and there are {n} nodes"),
            _ => format!("rows of {rows:?} values"),
        };
        return Err(SpecError::new(at, found, format!("{n} rows of {n} values")));
    }
    for (i, row) in matrix.iter().enumerate() {
        for (j, &d) in row.iter().enumerate() {
            if d > u32::from(u8::MAX) {
                let found = format!("{d} in row {i}, column {j}");
                return Err(SpecError::new(at, found, "at most 255, as in ACPI's table"));
            }
            if (d == LOCAL_DISTANCE) != (i == j) || d < LOCAL_DISTANCE {
                let found = format!("{d} in row {i}, column {j}");
                let expected = "10 for a node itself and more for others, as in ACPI's table";
                return Err(SpecError::new(at, found, expected));
            }
        }
    }
    Ok(matrix.concat())
}
