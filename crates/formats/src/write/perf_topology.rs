//! The machine in the header of a perf.data, as `read::perf_topology` reads it.
//!
//! Cores, packages, caches of the second and of the last level, and nodes; of their sizes nothing.

use super::perf_data::string;
use crate::numbers::perf_data::feature;
use crate::topology_text::DumpedTopology;
use vruntime_base::{Cpu, CpuMask};

/// Version of the section of caches.
const CACHES: u32 = 1;

/// The sections, by their bits.
pub(super) fn sections(told: &DumpedTopology) -> [(u64, Vec<u8>); 3] {
    let m = &told.masks;
    let list = |set: &CpuMask| -> String {
        set.iter().map(|c| Cpu(told.numbers[c.ix()] as u16)).collect::<CpuMask>().to_string()
    };
    let mut cores = vec![];
    for sets in [&m.package, &m.smt] {
        let sets = each_once(sets);
        put(&mut cores, &[sets.len() as u32]);
        sets.iter().for_each(|set| cores.extend(string(&list(set))));
    }
    let mut nodes = vec![];
    put(&mut nodes, &[m.nodes.len() as u32]);
    for (number, set) in &m.nodes {
        // All memory, and what is free: two words each.
        put(&mut nodes, &[*number, 0, 0, 0, 0]);
        nodes.extend(string(&list(set)));
    }
    let (l2, llc) = (each_once(&m.l2), each_once(&m.llc));
    let mut caches = vec![];
    put(&mut caches, &[CACHES, (l2.len() + llc.len()) as u32]);
    for (level, sets) in [(2, l2), (3, llc)] {
        for set in sets {
            // Size of a line, sets and ways.
            put(&mut caches, &[level, 64, 0, 0]);
            ["Unified", "", &list(&set)].iter().for_each(|text| caches.extend(string(text)));
        }
    }
    [(feature::CPU_TOPOLOGY, cores), (feature::NUMA_TOPOLOGY, nodes), (feature::CACHE, caches)]
}

/// The sets of which each CPU has one, in the order of their first CPUs.
fn each_once(sets: &[CpuMask]) -> Vec<CpuMask> {
    let first = |(c, set): &(usize, &CpuMask)| set.first() == Some(Cpu::from_ix(*c));
    sets.iter().enumerate().filter(first).map(|(_, set)| *set).collect()
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}
