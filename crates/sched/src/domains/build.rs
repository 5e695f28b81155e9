//! Building the domains: levels, groups, NUMA masks, `imb_numa_nr`, and dropping what is
//! degenerate. See the [module text](super) for the rules.

use super::{Domain, Domains, Group, LlcShared, SdFlags, SdId, Top, cores_in};
use crate::release::Release;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{Arch, NodeId, Topology};

/// A level as the kernel's table has it, before any domain is built.
#[derive(Clone, Copy)]
struct Level {
    name: &'static str,
    kind: Kind,
    flags: SdFlags,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Smt,
    L2,
    Llc,
    Node,
    /// Nodes within this distance.
    Numa(u32),
}

/// A domain of one CPU before degenerate ones are dropped.
#[derive(Clone, Copy)]
struct Raw {
    level: usize,
    span: CpuMask,
    weight: u32,
    flags: SdFlags,
    imb_numa_nr: u32,
    one_group: bool,
}

impl Domains {
    /// Builds the domains of all CPUs.
    pub fn build(topo: &Topology, k: &Release) -> Domains {
        Domains::build_without(topo, k, &CpuMask::EMPTY)
    }

    /// Builds the domains with the CPUs `isolated` (`isolcpus=`) in none of them.
    pub fn build_without(topo: &Topology, k: &Release, isolated: &CpuMask) -> Domains {
        let on = &Spans { topo, active: topo.all().minus(isolated) };
        let levels = levels(topo, k);
        let mut d = Domains {
            sds: Vec::new(),
            ids: Vec::new(),
            first: vec![0],
            local: Vec::new(),
            imbalance: Vec::new(),
            tops: Vec::new(),
            cpu_list: Vec::new(),
            smt_active: topo.smt_width() > 1,
            cluster_active: false,
            shared: Vec::new(),
            overload: false,
        };
        // The domain at (level, lowest CPU of the span, node of an overlapping level), if built.
        let mut known: Vec<Vec<Option<SdId>>> = vec![vec![None; topo.nr_cpus()]; levels.len()];
        for c in topo.all().iter() {
            let chain = if isolated.has(c) { vec![] } else { raw_chain(on, &levels, c) };
            for raw in attach(chain) {
                let key = match levels[raw.level].kind {
                    Kind::Numa(_) => on.of(Kind::Node, c).first(),
                    _ => raw.span.first(),
                };
                let slot = &mut known[raw.level][key.expect("spans are not empty").ix()];
                let id = *slot.get_or_insert_with(|| {
                    d.sds.push(domain(on, &levels, &raw, c, k));
                    SdId::from_ix(d.sds.len() - 1)
                });
                d.ids.push(id);
                d.local.push(d.sd(id).group_of(c) as u16);
            }
            d.first.push(d.ids.len() as u32);
        }
        d.finish_groups(topo);
        d.tops = topo.all().iter().map(|c| d.top(topo, c)).collect();
        let first = |c: Cpu| d.tops[c.ix()].llc_first;
        let groups: Vec<u32> =
            topo.all().iter().map(|c| k.ttwu_queue.group_id(topo, c, first)).collect();
        for (top, group) in d.tops.iter_mut().zip(groups) {
            top.ttwu_group = group;
        }
        d.cluster_active = d.sds.iter().any(|sd| sd.flags.has(SdFlags::CLUSTER));
        d.shared = (0..topo.nr_llcs())
            .map(|l| LlcShared {
                nr_busy_cpus: topo.llc_cpus(vruntime_machine::LlcId::from_ix(l)).weight() as u32,
                has_idle_cores: false,
                nr_idle_scan: 0,
            })
            .collect();
        d
    }

    /// Group flags come from the domain that survived below, and lists from the spans.
    fn finish_groups(&mut self, topo: &Topology) {
        // One `sched_group_capacity` a level and first CPU that may balance for the group.
        let mut shared: BTreeMap<(u8, Cpu), u32> = BTreeMap::new();
        for i in 0..self.sds.len() {
            let level = self.sds[i].level;
            for g in 0..self.sds[i].groups.len() {
                let c = self.sds[i].groups[g].span.first().expect("groups are not empty");
                let below = self.of(c).iter().rfind(|id| self.sd(**id).level < level);
                let flags = below.map_or(SdFlags::default(), |id| self.sd(*id).flags);
                let start = self.cpu_list.len() as u32;
                let group = &mut self.sds[i].groups[g];
                group.flags = flags;
                let balancer = group.balance_mask.first().unwrap_or(c);
                let next = shared.len() as u32;
                group.sgc = *shared.entry((level, balancer)).or_insert(next);
                group.cores = cores_in(topo, &group.span);
                self.cpu_list.extend(group.span.iter());
                group.list = start..self.cpu_list.len() as u32;
            }
        }
        self.imbalance = vec![false; shared.len()];
    }

    fn top(&self, topo: &Topology, c: Cpu) -> Top {
        let llc = self.of(c).iter().rfind(|id| self.sd(**id).flags.has(SdFlags::SHARE_LLC));
        let llc = llc.copied().unwrap_or(SdId::NONE);
        let llc_first = if llc.is_some() { self.sd(llc).span.first() } else { None };
        let cluster = self.of(c).iter().find(|id| self.sd(**id).flags.has(SdFlags::CLUSTER));
        let cluster_first = cluster.and_then(|id| self.sd(*id).span.first());
        Top {
            llc,
            llc_size: if llc.is_some() { self.sd(llc).weight } else { 1 },
            llc_first: llc_first.unwrap_or(c),
            share_first: cluster_first.or(llc_first).unwrap_or(c),
            llc_id: topo.llc_id(c),
            ttwu_group: 0,
        }
    }
}

/// The levels of a machine, smallest first.
fn levels(topo: &Topology, k: &Release) -> Vec<Level> {
    let llc = SdFlags::SHARE_LLC;
    let smt = llc.with(SdFlags::SHARE_CPUCAPACITY);
    let cluster = if k.cluster_scan { llc.with(SdFlags::CLUSTER) } else { llc };
    let none = SdFlags::default();
    let level = |name, kind, flags| Level { name, kind, flags };
    let mut v = vec![level("SMT", Kind::Smt, smt)];
    match topo.arch() {
        Arch::X86 => {
            if k.cluster_level {
                v.push(level("CLS", Kind::L2, cluster));
            }
            v.push(level("MC", Kind::Llc, llc));
            // With several nodes in a package, x86 leaves this level out.
            if !package_holds_several_nodes(topo) {
                v.push(level("PKG", Kind::Node, none));
            }
        }
        Arch::Powerpc => {
            if topo.all().iter().any(|c| topo.l2(c) != topo.smt(c)) {
                v.push(level("CACHE", Kind::L2, llc));
            }
            v.push(level("PKG", Kind::Node, none));
        }
    }
    if topo.nr_nodes() > 1 {
        v.push(level("NODE", Kind::Node, none));
        for d in numa_distances(topo).into_iter().skip(1) {
            v.push(level("NUMA", Kind::Numa(d), SdFlags::NUMA));
        }
    }
    v
}

fn package_holds_several_nodes(topo: &Topology) -> bool {
    topo.all().iter().any(|c| {
        let (node, package) = (topo.node_cpus(topo.node(c)), topo.package_cpus(c));
        node != package && node.is_subset(package)
    })
}

/// The different node distances, ascending; the first is the local one.
fn numa_distances(topo: &Topology) -> Vec<u32> {
    let nodes = || (0..topo.nr_nodes()).map(NodeId::from_ix);
    let mut v: Vec<u32> =
        nodes().flat_map(|a| nodes().map(move |b| topo.node_distance(a, b))).collect();
    v.sort_unstable();
    v.dedup();
    v
}

/// The CPUs of a level that are not isolated.
struct Spans<'a> {
    topo: &'a Topology,
    active: CpuMask,
}

impl Spans<'_> {
    fn of(&self, kind: Kind, c: Cpu) -> CpuMask {
        let topo = self.topo;
        let all = match kind {
            Kind::Smt => *topo.smt(c),
            Kind::L2 => *topo.l2(c),
            Kind::Llc => *topo.llc(c),
            Kind::Node => *topo.node_cpus(topo.node(c)),
            Kind::Numa(d) => (0..topo.nr_nodes())
                .map(NodeId::from_ix)
                .filter(|n| topo.node_distance(topo.node(c), *n) <= d)
                .fold(CpuMask::EMPTY, |m, n| m.or(topo.node_cpus(n))),
        };
        all.and(&self.active)
    }
}

fn flags_of(topo: &Topology, level: &Level) -> SdFlags {
    let all = SdFlags::BALANCE_NEWIDLE
        .with(SdFlags::BALANCE_EXEC)
        .with(SdFlags::BALANCE_FORK)
        .with(SdFlags::WAKE_AFFINE)
        .with(SdFlags::PREFER_SIBLING)
        .with(level.flags);
    let Kind::Numa(distance) = level.kind else { return all };
    let numa = all.without(SdFlags::PREFER_SIBLING).with(SdFlags::SERIALIZE);
    if distance <= topo.node_reclaim_distance() {
        return numa;
    }
    numa.without(SdFlags::BALANCE_EXEC).without(SdFlags::BALANCE_FORK).without(SdFlags::WAKE_AFFINE)
}

/// All levels of `c` with `imb_numa_nr`, which is computed before any level is dropped.
fn raw_chain(on: &Spans, levels: &[Level], c: Cpu) -> Vec<Raw> {
    let mut chain: Vec<Raw> = Vec::new();
    for (level, l) in levels.iter().enumerate() {
        let span = on.of(l.kind, c);
        let weight = span.weight() as u32;
        let below = chain.last().map_or(1, |r| r.weight);
        chain.push(Raw {
            level,
            span,
            weight,
            flags: flags_of(on.topo, l),
            imb_numa_nr: 0,
            one_group: weight == below && level > 0 || weight == 1,
        });
    }
    let first_numa = chain.iter().find(|r| r.flags.has(SdFlags::NUMA)).map(|r| r.weight);
    let (mut imb, mut imb_span) = (0, 1);
    for i in 0..chain.len() {
        let r = chain[i];
        let child_shares = i > 0 && chain[i - 1].flags.has(SdFlags::SHARE_LLC);
        if !r.flags.has(SdFlags::SHARE_LLC) && child_shares {
            let nr_llcs = r.weight / chain[i - 1].weight;
            imb = if nr_llcs == 1 { r.weight >> 3 } else { nr_llcs }.max(1);
            imb_span = first_numa.unwrap_or(r.weight);
            chain[i].imb_numa_nr = imb;
        } else {
            chain[i].imb_numa_nr = imb * (r.weight / imb_span).max(1);
        }
    }
    chain
}

fn degenerate(r: &Raw) -> bool {
    let grouped = r.flags.any(SdFlags::NEEDS_GROUPS) && !r.one_group;
    r.weight == 1 || (!grouped && !r.flags.has(SdFlags::WAKE_AFFINE))
}

fn parent_degenerate(child: &Raw, parent: &Raw) -> bool {
    if degenerate(parent) {
        return true;
    }
    let meaningless = if parent.one_group { SdFlags::NEEDS_GROUPS } else { SdFlags::default() };
    child.weight == parent.weight && child.flags.has(parent.flags.without(meaningless))
}

/// `cpu_attach_domain`: what is left of the levels of a CPU.
fn attach(chain: Vec<Raw>) -> Vec<Raw> {
    let mut kept: Vec<Raw> = Vec::new();
    for parent in chain {
        match kept.last_mut() {
            Some(child) if parent_degenerate(child, &parent) => {
                if parent.flags.has(SdFlags::PREFER_SIBLING) {
                    child.flags = child.flags.with(SdFlags::PREFER_SIBLING);
                }
            }
            _ => kept.push(parent),
        }
    }
    if kept.first().is_some_and(degenerate) {
        kept.remove(0);
    }
    kept
}

fn domain(on: &Spans, levels: &[Level], raw: &Raw, c: Cpu, k: &Release) -> Domain {
    let f = raw.flags;
    let (imbalance_pct, cache_nice_tries) = if f.has(SdFlags::SHARE_CPUCAPACITY) {
        (110, 0)
    } else if f.has(SdFlags::SHARE_LLC) {
        (117, 1)
    } else {
        (k.imbalance_pct, if f.has(SdFlags::NUMA) { 2 } else { 1 })
    };
    Domain {
        name: levels[raw.level].name,
        span: raw.span,
        weight: raw.weight,
        flags: f,
        imbalance_pct,
        cache_nice_tries,
        imb_numa_nr: raw.imb_numa_nr,
        groups: groups(on, levels, raw, c),
        level: raw.level as u8,
    }
}

/// The groups in order of the ring: by first member; those of a NUMA level from `c`'s own on.
fn groups(on: &Spans, levels: &[Level], raw: &Raw, c: Cpu) -> Vec<Group> {
    let below = |m: Cpu| match raw.level {
        0 => CpuMask::one(m),
        l => on.of(levels[l - 1].kind, m),
    };
    let numa = matches!(levels[raw.level].kind, Kind::Numa(_));
    let start = if numa { c.ix() } else { 0 };
    let mut covered = CpuMask::EMPTY;
    let mut v = Vec::new();
    for m in raw.span.iter_wrap(start) {
        if covered.has(m) {
            continue;
        }
        let span = if numa { overlapping_group(on, levels, raw, m) } else { below(m) };
        covered = covered.or(&span);
        let balance_mask =
            if numa { span.iter().filter(|b| below(*b) == span).collect() } else { span };
        v.push(Group {
            span,
            balance_mask: if balance_mask == CpuMask::EMPTY { span } else { balance_mask },
            flags: SdFlags::default(),
            weight: span.weight() as u32,
            cores: 0,
            sgc: 0,
            list: 0..0,
        });
    }
    v
}

/// The group around `m`: its widest span below this level that stays inside the domain.
fn overlapping_group(on: &Spans, levels: &[Level], raw: &Raw, m: Cpu) -> CpuMask {
    let spans = (0..raw.level).rev().map(|l| on.of(levels[l].kind, m));
    spans.into_iter().find(|s| s.is_subset(&raw.span)).unwrap_or(CpuMask::one(m))
}
