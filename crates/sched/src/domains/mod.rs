//! Scheduling domains: which CPUs balance among one another, in which groups, at which price.
//!
//! **What.** Every CPU has a list of domains, smallest first. A domain's span is cut into groups,
//! the spans of the domains below. Domains are immutable and shared by all CPUs of a span; what
//! changes (intervals, failures, costs) belongs to [`crate::balance`], in a table with the same
//! index as the lists here ([`Domains::slots`]). The exceptions are [`LlcShared`], which placement
//! reads, and `overload`, which every enqueue may set.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/topology.c: `default_topology`, `sd_init`,
//! `sd_degenerate`, `cpu_attach_domain`, `update_top_cache_domain`, `sched_init_numa`;
//! arch/x86/kernel/smpboot.c; arch/powerpc/kernel/smp.c.
//! **Equations.** min_interval = weight ms, max_interval = 2·weight ms; `imb_numa_nr` of the first
//! level above the LLC = weight/8 if it holds one LLC, else the number of LLCs; of a level above
//! that: imb · max(1, weight / weight of the first NUMA level).
//! **Departures.** D1: no asymmetric capacity and no asymmetric packing. D2: the level called DIE
//! up to 6.6 is called PKG throughout. D3: CPUs never go offline.
//! **Example.** Two sockets of 96 cores with two threads, eight cores an LLC: CPU 0 has
//! `SMT 2, MC 16, PKG 192, NUMA 384`, and `imb_numa_nr` is 12 in PKG and NUMA.

mod build;
#[cfg(test)]
mod tests;

use std::ops::Range;
use vruntime_base::{Cpu, CpuMask, id_type};
use vruntime_machine::{LlcId, Topology};

id_type!(
    /// A domain in [`Domains`]; all CPUs of its span share it.
    SdId(u32)
);

/// Flags of a domain (`SD_*`). EXEC and FORK have the values of the wake flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SdFlags(pub u16);

impl SdFlags {
    /// Balance when a CPU is about to go idle.
    pub const BALANCE_NEWIDLE: SdFlags = SdFlags(0x1);
    /// Balance on exec.
    pub const BALANCE_EXEC: SdFlags = SdFlags(0x2);
    /// Balance on fork.
    pub const BALANCE_FORK: SdFlags = SdFlags(0x4);
    /// A wakeup may pull its wakee to the waker.
    pub const WAKE_AFFINE: SdFlags = SdFlags(0x10);
    /// Hardware threads of one core.
    pub const SHARE_CPUCAPACITY: SdFlags = SdFlags(0x20);
    /// The last-level cache is shared.
    pub const SHARE_LLC: SdFlags = SdFlags(0x40);
    /// The L2 is shared (6.7 on).
    pub const CLUSTER: SdFlags = SdFlags(0x80);
    /// Only one CPU of the machine balances it at a time.
    pub const SERIALIZE: SdFlags = SdFlags(0x100);
    /// Spread tasks over sibling domains.
    pub const PREFER_SIBLING: SdFlags = SdFlags(0x200);
    /// Crosses NUMA nodes; its groups may overlap.
    pub const NUMA: SdFlags = SdFlags(0x400);
    /// Flags that mean nothing with a single group.
    const NEEDS_GROUPS: SdFlags = SdFlags(0x7e7);

    /// Has all of `f`.
    #[inline(always)]
    pub const fn has(self, f: SdFlags) -> bool {
        self.0 & f.0 == f.0
    }
    /// Has any of `f`.
    #[inline(always)]
    pub const fn any(self, f: SdFlags) -> bool {
        self.0 & f.0 != 0
    }
    /// Both together.
    pub const fn with(self, f: SdFlags) -> SdFlags {
        SdFlags(self.0 | f.0)
    }
    /// `self` less those of `f`.
    pub const fn without(self, f: SdFlags) -> SdFlags {
        SdFlags(self.0 & !f.0)
    }
}

/// A group of a domain (`struct sched_group`).
#[derive(Clone, Debug)]
pub struct Group {
    /// Its CPUs.
    pub span: CpuMask,
    /// CPUs that may balance for it (`group_balance_mask`).
    pub balance_mask: CpuMask,
    /// Flags of the domain below.
    pub flags: SdFlags,
    /// Number of CPUs.
    pub weight: u32,
    /// Number of cores.
    pub cores: u32,
    /// Place of what it shares with the same group of other domains of its level
    /// (`struct sched_group_capacity`).
    sgc: u32,
    /// Its CPUs once more, in [`Domains::cpu_list`].
    list: Range<u32>,
}

/// A domain (`struct sched_domain` without what changes).
#[derive(Clone, Debug)]
pub struct Domain {
    /// `SMT`, `CLS`, `CACHE`, `MC`, `PKG`, `NODE`, `NUMA`.
    pub name: &'static str,
    /// Its CPUs.
    pub span: CpuMask,
    /// Number of CPUs.
    pub weight: u32,
    /// What it is and does.
    pub flags: SdFlags,
    /// Imbalance that is left alone, in percent.
    pub imbalance_pct: u32,
    /// Failed balances before cache-hot tasks move.
    pub cache_nice_tries: u32,
    /// `imb_numa_nr`.
    pub imb_numa_nr: u32,
    /// Groups in the order of the ring.
    pub groups: Vec<Group>,
    /// Position in the levels before degenerate ones were dropped.
    level: u8,
}

impl Domain {
    /// Least balance interval, ms.
    pub fn min_interval(&self) -> u32 {
        self.weight
    }
    /// Largest balance interval, ms.
    pub fn max_interval(&self) -> u32 {
        2 * self.weight
    }
    /// Position of the group of `cpu` in [`Domain::groups`]; of its own CPU, [`Domains::local`].
    #[inline]
    pub fn group_of(&self, cpu: Cpu) -> usize {
        self.groups.iter().position(|g| g.span.has(cpu)).expect("every CPU has a group")
    }
}

/// `sd_llc_shared`: one per LLC; the one part of the domains that changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LlcShared {
    /// CPUs that are busy: one that stopped its tick counts again from its next busy tick on.
    pub nr_busy_cpus: u32,
    /// A whole core may be idle.
    pub has_idle_cores: bool,
    /// CPUs that an idle scan may examine (SIS_UTIL).
    pub nr_idle_scan: u32,
}

/// Cached pointers of a CPU (`update_top_cache_domain`).
#[derive(Clone, Copy, Debug)]
struct Top {
    llc: SdId,
    llc_size: u32,
    llc_first: Cpu,
    share_first: Cpu,
    llc_id: LlcId,
    ttwu_group: u32,
}

/// The scheduling domains of every CPU.
#[derive(Clone, Debug)]
pub struct Domains {
    sds: Vec<Domain>,
    /// Lists of all CPUs, one after the other.
    ids: Vec<SdId>,
    /// Where each CPU's list starts; one entry more than CPUs.
    first: Vec<u32>,
    /// By slot: position of the CPU's own group.
    local: Vec<u16>,
    /// `sgc->imbalance`: the level below was left uneven by tasks that may not go elsewhere.
    imbalance: Vec<bool>,
    tops: Vec<Top>,
    cpu_list: Vec<Cpu>,
    smt_active: bool,
    cluster_active: bool,
    /// By [`LlcId`].
    pub shared: Vec<LlcShared>,
    /// `rd->overload`: some CPU has had two tasks since a pass over all CPUs found none.
    pub overload: bool,
}

impl Domains {
    /// The domains of `cpu`, smallest first.
    #[inline(always)]
    pub fn of(&self, cpu: Cpu) -> &[SdId] {
        &self.ids[self.slots(cpu)]
    }
    /// Index of each of them in a table with one entry per CPU and domain.
    #[inline(always)]
    pub fn slots(&self, cpu: Cpu) -> Range<usize> {
        self.first[cpu.ix()] as usize..self.first[cpu.ix() + 1] as usize
    }
    /// Length of such a table.
    pub fn nr_slots(&self) -> usize {
        self.ids.len()
    }
    /// The domain at `slot` of such a table.
    #[inline(always)]
    pub fn at(&self, slot: usize) -> &Domain {
        &self.sds[self.ids[slot].ix()]
    }
    /// A domain.
    #[inline(always)]
    pub fn sd(&self, id: SdId) -> &Domain {
        &self.sds[id.ix()]
    }
    /// The id of the domain at `slot`.
    #[inline(always)]
    pub fn id_at(&self, slot: usize) -> SdId {
        self.ids[slot]
    }
    /// Number of different domains.
    #[cfg(test)]
    pub(crate) fn nr_domains(&self) -> usize {
        self.sds.len()
    }
    /// Position of the CPU's own group in the domain at `slot`: the local group.
    #[inline(always)]
    pub fn local(&self, slot: usize) -> usize {
        self.local[slot].into()
    }
    /// The level below `g` was left uneven by tasks that may not go elsewhere (`group_imbalanced`).
    #[inline(always)]
    pub fn imbalanced(&self, g: &Group) -> bool {
        self.imbalance[g.sgc as usize]
    }
    /// Marks a group of the domain at `slot`, in all domains of that level, or takes the mark away.
    pub fn set_imbalanced(&mut self, slot: usize, group: usize, flag: bool) {
        let sgc = self.at(slot).groups[group].sgc;
        self.imbalance[sgc as usize] = flag;
    }
    /// CPUs of a group, ascending.
    #[inline(always)]
    pub fn group_cpus(&self, g: &Group) -> &[Cpu] {
        &self.cpu_list[g.list.start as usize..g.list.end as usize]
    }
    /// `sd_llc`: the highest domain that shares the last-level cache; NONE if there is none.
    #[inline(always)]
    pub fn sd_llc(&self, cpu: Cpu) -> SdId {
        self.tops[cpu.ix()].llc
    }
    /// `sd_llc_size`.
    #[inline(always)]
    pub fn sd_llc_size(&self, cpu: Cpu) -> u32 {
        self.tops[cpu.ix()].llc_size
    }
    /// `cpus_share_cache`.
    #[inline(always)]
    pub fn share_llc(&self, a: Cpu, b: Cpu) -> bool {
        a == b || self.tops[a.ix()].llc_first == self.tops[b.ix()].llc_first
    }
    /// The same group of direct wakeups ([`crate::ttwu_queue`]).
    #[inline(always)]
    pub fn share_ttwu_group(&self, a: Cpu, b: Cpu) -> bool {
        self.tops[a.ix()].ttwu_group == self.tops[b.ix()].ttwu_group
    }
    /// `cpus_share_resources`: the same cluster, or the same LLC where there is no cluster.
    #[inline(always)]
    pub fn share_cluster(&self, a: Cpu, b: Cpu) -> bool {
        a == b || self.tops[a.ix()].share_first == self.tops[b.ix()].share_first
    }
    /// `sched_cluster_active`.
    #[inline(always)]
    pub fn cluster_active(&self) -> bool {
        self.cluster_active
    }
    /// `sched_smt_present`.
    #[inline(always)]
    pub fn smt_active(&self) -> bool {
        self.smt_active
    }
    /// Index of `cpu`'s LLC in [`Domains::shared`].
    #[inline(always)]
    pub fn llc_id(&self, cpu: Cpu) -> LlcId {
        self.tops[cpu.ix()].llc_id
    }
    /// The lowest domain of `cpu` that contains `other`.
    pub fn lowest_common(&self, cpu: Cpu, other: Cpu) -> Option<usize> {
        self.slots(cpu).find(|&slot| self.at(slot).span.has(other))
    }
    /// The domains of `cpu` as text: `SMT 2, MC 16`.
    pub fn describe(&self, cpu: Cpu) -> String {
        let one = |&id: &SdId| format!("{} {}", self.sd(id).name, self.sd(id).weight);
        self.of(cpu).iter().map(one).collect::<Vec<_>>().join(", ")
    }
    /// `sd_llc_shared` of `cpu`.
    #[inline(always)]
    pub fn shared_of(&self, cpu: Cpu) -> &LlcShared {
        &self.shared[self.llc_id(cpu).ix()]
    }
    /// The same for writing.
    #[inline(always)]
    pub fn shared_of_mut(&mut self, cpu: Cpu) -> &mut LlcShared {
        let llc = self.llc_id(cpu).ix();
        &mut self.shared[llc]
    }
}

/// Number of cores with a CPU in `span`.
pub(crate) fn cores_in(topo: &Topology, span: &CpuMask) -> u32 {
    let mut rest = *span;
    let mut cores = 0;
    while let Some(c) = rest.first() {
        rest = rest.minus(topo.smt(c));
        cores += 1;
    }
    cores
}
