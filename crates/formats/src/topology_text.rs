//! A dump of sysfs: one `path:value` line per file below `cpu*/topology`, `cpu*/cache` and
//! `node*`.

use crate::error::FormatError;
use crate::text::Text;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{Arch, NodeId, Topology, TopologyMasks, parse_cpulist};

/// The CPUs of a dump, numbered from 0 without gaps.
#[derive(Clone, Debug)]
pub struct DumpedTopology {
    /// What they share.
    pub masks: TopologyMasks,
    /// The kernel's number of each: CPUs that are offline have no entry.
    pub numbers: Vec<u32>,
    /// The distances of its nodes were told, or there is one node; else they are 20.
    pub distances: bool,
}

impl DumpedTopology {
    /// As a dump of `topology` would be read.
    pub fn of(topology: &Topology) -> DumpedTopology {
        let t = topology;
        let each = |set: &dyn Fn(Cpu) -> CpuMask| t.all().iter().map(set).collect::<Vec<_>>();
        let nodes = || (0..t.nr_nodes()).map(|n| NodeId(n as u16));
        let masks = TopologyMasks {
            arch: t.arch(),
            smt: each(&|c| *t.smt(c)),
            l2: each(&|c| *t.l2(c)),
            llc: each(&|c| *t.llc(c)),
            package: each(&|c| *t.package_cpus(c)),
            nodes: nodes().map(|n| (t.node_number(n), *t.node_cpus(n))).collect(),
            node_distance: nodes()
                .map(|a| nodes().map(|b| t.node_distance(a, b)).collect())
                .collect(),
        };
        DumpedTopology { masks, numbers: (0..t.nr_cpus() as u32).collect(), distances: true }
    }
}

/// Reads the dump.
pub fn parse_topology(t: &Text) -> Result<DumpedTopology, FormatError> {
    let mut map = BTreeMap::new();
    for (i, line) in t.text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let Some((k, v)) = line.split_once(':') else {
            return Err(FormatError::syntax(
                &t.path,
                i as u64 + 1,
                format!("\"{line}\""),
                "a line path:value",
            ));
        };
        map.insert(k.trim(), (i as u64 + 1, v.trim()));
    }
    let number = |key: &&str| {
        let (n, rest) = key.strip_prefix("cpu")?.split_once('/')?;
        (rest == "topology/thread_siblings_list").then_some(n.parse().ok()?)
    };
    let mut numbers: Vec<u32> = map.keys().filter_map(number).collect();
    numbers.retain(|&n| (n as usize) < vruntime_base::MAX_CPUS);
    numbers.sort_unstable();
    let list = |key: &str| -> Result<Option<CpuMask>, FormatError> {
        let Some(&(line, v)) = map.get(key) else { return Ok(None) };
        let all = parse_cpulist(v, key).map_err(|_| {
            FormatError::syntax(&t.path, line, format!("\"{v}\""), "a list such as 0-3,8")
        })?;
        let online = |&n: &usize| numbers.get(n).is_some_and(|&c| all.has(Cpu(c as u16)));
        Ok(Some((0..numbers.len()).filter(online).map(Cpu::from_ix).collect()))
    };
    if numbers.is_empty() {
        return Err(FormatError::missing(
            &t.path,
            "cpu*/topology/thread_siblings_list",
            "a dump of /sys/devices/system/cpu/cpu*/topology",
        ));
    }
    let mut out = TopologyMasks {
        arch: Arch::X86,
        smt: vec![],
        l2: vec![],
        llc: vec![],
        package: vec![],
        nodes: vec![],
        node_distance: vec![],
    };
    for (ix, c) in numbers.iter().enumerate() {
        let own = CpuMask::one(Cpu::from_ix(ix));
        let at = |k: &str| format!("cpu{c}/topology/{k}");
        let core = list(&at("thread_siblings_list"))?.unwrap_or(own);
        out.smt.push(core);
        let package = list(&at("package_cpus_list"))?.or(list(&at("core_siblings_list"))?);
        out.package.push(package.unwrap_or(own));
        let (mut l2, mut llc, mut best) = (None, None, 0);
        for i in 0..8 {
            let at = |k: &str| format!("cpu{c}/cache/index{i}/{k}");
            let Some(&(_, level)) = map.get(at("level").as_str()) else { continue };
            let level: u32 = level.parse().unwrap_or(0);
            if map.get(at("type").as_str()).is_some_and(|&(_, v)| v == "Instruction") {
                continue;
            }
            let shared = list(&at("shared_cpu_list"))?;
            if level == 2 {
                l2 = shared;
            }
            if level > best {
                (best, llc) = (level, shared);
            }
        }
        // Threads of a core share its caches, told or not.
        out.l2.push(l2.unwrap_or(core));
        out.llc.push(llc.unwrap_or(core));
    }
    read_nodes(&mut out, &map, &list)?;
    nest(&mut out);
    Ok(DumpedTopology { masks: out, numbers, distances: true })
}

/// The kernel does not believe a core or cache that spans nodes.
fn nest(out: &mut TopologyMasks) {
    let all = CpuMask::first_n(out.smt.len());
    for c in 0..out.smt.len() {
        let node = out.nodes.iter().find(|n| n.1.has(Cpu::from_ix(c))).map_or(all, |n| n.1);
        out.smt[c] = out.smt[c].and(&node);
        out.l2[c] = out.l2[c].and(&node).or(&out.smt[c]);
        out.llc[c] = out.llc[c].and(&node).or(&out.l2[c]);
        out.package[c] = out.package[c].or(&out.llc[c]);
    }
}

fn read_nodes(
    out: &mut TopologyMasks,
    map: &BTreeMap<&str, (u64, &str)>,
    list: &dyn Fn(&str) -> Result<Option<CpuMask>, FormatError>,
) -> Result<(), FormatError> {
    let mut numbers: Vec<u32> = map
        .keys()
        .filter_map(|k| k.strip_prefix("node")?.split_once('/')?.0.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    // Nodes of memory alone have a place in the rows of distances, and no other.
    let mut has_cpus = Vec::new();
    for &n in &numbers {
        let cpus = list(&format!("node{n}/cpulist"))?.unwrap_or(CpuMask::EMPTY);
        has_cpus.push(!cpus.is_empty());
        if cpus.is_empty() {
            continue;
        }
        let row = map.get(format!("node{n}/distance").as_str()).map_or("10", |v| v.1);
        out.nodes.push((n, cpus));
        out.node_distance.push(row.split_whitespace().filter_map(|d| d.parse().ok()).collect());
    }
    for row in out.node_distance.iter_mut().filter(|r| r.len() == has_cpus.len()) {
        let mut keep = has_cpus.iter();
        row.retain(|_| keep.next() == Some(&true));
    }
    if out.nodes.is_empty() {
        out.nodes.push((0, CpuMask::first_n(out.smt.len())));
        out.node_distance.push(vec![10]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sub-NUMA clustering: package and last cache of all four CPUs, in two nodes.
    #[test]
    fn a_cache_ends_with_its_node() {
        let mut text = String::from("node0/cpulist:0-1\nnode1/cpulist:2-3\n");
        text += "node0/distance:10 11\nnode1/distance:11 10\n";
        for c in 0..4 {
            text += &format!("cpu{c}/topology/thread_siblings_list:{c}\n");
            text += &format!("cpu{c}/topology/package_cpus_list:0-3\n");
            text += &format!("cpu{c}/cache/index3/level:3\n");
            text += &format!("cpu{c}/cache/index3/shared_cpu_list:0-3\n");
        }
        let t = Text { path: "topology.txt".into(), text, diagnostics: vec![] };
        let masks = parse_topology(&t).unwrap().masks;
        assert_eq!(masks.llc.iter().map(CpuMask::weight).collect::<Vec<_>>(), [2; 4]);
        assert_eq!(masks.package, [CpuMask::first_n(4); 4]);
        vruntime_machine::Topology::from_masks(&masks).unwrap();
    }

    #[test]
    fn cpus_that_are_offline_and_nodes_of_memory_alone_leave_no_gap() {
        let mut text = String::from(
            "node0/cpulist:0-1\nnode0/distance:10 20 30\nnode1/cpulist:\n\
             node1/distance:20 10 40\nnode2/cpulist:4-5\nnode2/distance:30 40 10\n",
        );
        for (c, core) in [(0, "0-1"), (1, "0-1"), (4, "4"), (5, "5")] {
            text += &format!("cpu{c}/topology/thread_siblings_list:{core}\n");
            text += &format!("cpu{c}/topology/package_cpus_list:0-5\n");
        }
        let t = Text { path: "topology.txt".into(), text, diagnostics: vec![] };
        let d = parse_topology(&t).unwrap();
        assert_eq!(d.numbers, [0, 1, 4, 5]);
        let all = CpuMask::first_n(4);
        assert_eq!(d.masks.package, [all; 4]);
        assert_eq!(d.masks.smt[1], CpuMask::first_n(2));
        assert_eq!(d.masks.smt[2], CpuMask::one(Cpu(2)));
        assert_eq!(d.masks.nodes.iter().map(|n| n.0).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(d.masks.node_distance, [[10, 30], [30, 10]]);
        vruntime_machine::Topology::from_masks(&d.masks).unwrap();
    }
}
