//! A dump of sysfs: one `path:value` line per file below `cpu*/topology`, `cpu*/cache` and
//! `node*`.

use crate::error::FormatError;
use crate::text::Text;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, CpuMask};

/// Which CPUs share what, per CPU, as sysfs says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyText {
    /// CPUs that share the core of CPU i.
    pub smt: Vec<CpuMask>,
    /// CPUs that share its level-2 cache.
    pub l2: Vec<CpuMask>,
    /// CPUs that share its last-level cache.
    pub llc: Vec<CpuMask>,
    /// CPUs of its package.
    pub package: Vec<CpuMask>,
    /// NUMA nodes with CPUs: number and CPUs. One node 0 of all CPUs if none is listed.
    pub nodes: Vec<(u32, CpuMask)>,
    /// Distances between them (local 10).
    pub node_distance: Vec<Vec<u32>>,
}

impl TopologyText {
    /// Number of CPUs.
    pub fn nr_cpus(&self) -> usize {
        self.smt.len()
    }

    /// Reads the dump.
    pub fn parse(t: &Text) -> Result<TopologyText, FormatError> {
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
        let list = |key: &str| -> Result<Option<CpuMask>, FormatError> {
            let Some(&(line, v)) = map.get(key) else { return Ok(None) };
            parse_cpu_list(v).map(Some).ok_or_else(|| {
                FormatError::syntax(&t.path, line, format!("\"{v}\""), "a list such as 0-3,8")
            })
        };
        let mut nr = 0;
        while map.contains_key(format!("cpu{nr}/topology/thread_siblings_list").as_str()) {
            nr += 1;
        }
        if nr == 0 {
            return Err(FormatError::missing(
                &t.path,
                "cpu0/topology/thread_siblings_list",
                "a dump of /sys/devices/system/cpu/cpu*/topology",
            ));
        }
        let mut out = TopologyText {
            smt: vec![],
            l2: vec![],
            llc: vec![],
            package: vec![],
            nodes: vec![],
            node_distance: vec![],
        };
        for c in 0..nr {
            let own = CpuMask::one(Cpu::from_ix(c));
            let at = |k: &str| format!("cpu{c}/topology/{k}");
            out.smt.push(list(&at("thread_siblings_list"))?.unwrap_or(own));
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
            out.l2.push(l2.unwrap_or(own));
            out.llc.push(llc.unwrap_or(own));
        }
        out.read_nodes(&map, &list)?;
        Ok(out)
    }

    fn read_nodes(
        &mut self,
        map: &BTreeMap<&str, (u64, &str)>,
        list: &dyn Fn(&str) -> Result<Option<CpuMask>, FormatError>,
    ) -> Result<(), FormatError> {
        let mut numbers: Vec<u32> = map
            .keys()
            .filter_map(|k| k.strip_prefix("node")?.split_once('/')?.0.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        for n in numbers {
            let Some(cpus) = list(&format!("node{n}/cpulist"))? else { continue };
            let row = map.get(format!("node{n}/distance").as_str()).map_or("10", |v| v.1);
            self.nodes.push((n, cpus));
            self.node_distance
                .push(row.split_whitespace().filter_map(|d| d.parse().ok()).collect());
        }
        if self.nodes.is_empty() {
            self.nodes.push((0, CpuMask::first_n(self.nr_cpus())));
            self.node_distance.push(vec![10]);
        }
        Ok(())
    }
}

/// A list as the kernel prints it: `0-3,8,10-11`.
pub fn parse_cpu_list(s: &str) -> Option<CpuMask> {
    let mut m = CpuMask::EMPTY;
    for part in s.trim().split(',').filter(|p| !p.is_empty()) {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let (a, b): (usize, usize) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
        if b >= vruntime_base::MAX_CPUS || a > b {
            return None;
        }
        (a..=b).for_each(|c| m.set(Cpu::from_ix(c)));
    }
    Some(m)
}
