//! A dump of sysfs: one `path:value` line per file below `cpu*/topology`, `cpu*/cache` and
//! `node*`.

use crate::error::FormatError;
use crate::text::Text;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::{Arch, TopologyMasks, parse_cpulist};

/// Reads the dump.
pub fn parse_topology(t: &Text) -> Result<TopologyMasks, FormatError> {
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
        parse_cpulist(v, key).map(Some).map_err(|_| {
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
    let mut out = TopologyMasks {
        arch: Arch::X86,
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
    read_nodes(&mut out, &map, &list)?;
    Ok(out)
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
    for n in numbers {
        let Some(cpus) = list(&format!("node{n}/cpulist"))? else { continue };
        let row = map.get(format!("node{n}/distance").as_str()).map_or("10", |v| v.1);
        out.nodes.push((n, cpus));
        out.node_distance.push(row.split_whitespace().filter_map(|d| d.parse().ok()).collect());
    }
    if out.nodes.is_empty() {
        out.nodes.push((0, CpuMask::first_n(out.smt.len())));
        out.node_distance.push(vec![10]);
    }
    Ok(())
}
