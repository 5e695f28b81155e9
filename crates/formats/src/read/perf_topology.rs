//! The CPUs that a perf.data describes: cores, packages, caches and nodes.
//!
//! Facts: tools/perf/Documentation/perf.data-file-format.txt (HEADER_CPU_TOPOLOGY,
//! HEADER_NUMA_TOPOLOGY, HEADER_CACHE). `perf record` copies sysfs into them, lists of CPUs as
//! they stand there; so they become lines of a dump, and the dump is read as any other. How far
//! nodes are from each other is not copied; into a pipe perf writes no caches. On POWER the
//! scheduler's small cores are not in them.

use super::bytes::Bytes;
use crate::numbers::perf_data::feature;
use crate::text::Text;
use crate::topology_text::{DumpedTopology, parse_topology};
use std::fmt::Write;
use std::path::Path;
use vruntime_machine::parse_cpulist;

/// A node's number and its memory, before the list of its CPUs.
const NODE_AND_MEMORY: usize = 4 + 8 + 8;

/// What the sections said so far.
#[derive(Default)]
pub(super) struct Told {
    /// Lines of a dump of sysfs.
    dump: String,
    has_caches: bool,
}

impl Told {
    /// Takes what the section `feature` says; what is cut short is left out.
    pub fn section(&mut self, feature: u64, section: Bytes) {
        let mut at = Place { section, at: 0 };
        let _ = match feature {
            feature::CPU_TOPOLOGY => self.cores(&mut at),
            feature::NUMA_TOPOLOGY => self.nodes(&mut at),
            feature::CACHE => self.caches(&mut at),
            _ => None,
        };
    }

    /// The machine, if its cores and caches were told.
    pub fn topology(self, arch: Option<&str>) -> Option<DumpedTopology> {
        let power = arch.is_some_and(|a| a.starts_with("ppc"));
        if !self.has_caches || power {
            return None;
        }
        let text = Text { path: Path::new("").into(), text: self.dump, diagnostics: vec![] };
        let told = parse_topology(&text).ok()?;
        Some(DumpedTopology { distances: told.masks.nodes.len() == 1, ..told })
    }

    /// Lists of packages, then of cores.
    fn cores(&mut self, at: &mut Place) -> Option<()> {
        for file in ["package_cpus_list", "thread_siblings_list"] {
            for _ in 0..at.u32()? {
                let list = at.string()?;
                self.of_each(&list, &format!("topology/{file}"), &list);
            }
        }
        Some(())
    }

    /// For each cache: level, line size, sets and ways; type, size and CPUs.
    fn caches(&mut self, at: &mut Place) -> Option<()> {
        at.u32()?;
        for _ in 0..at.u32()? {
            let level = at.u32()?;
            at.skip(12);
            let (kind, _size, list) = (at.string()?, at.string()?, at.string()?);
            // One cache of a level has data; the other has only code.
            if kind != "Instruction" {
                self.of_each(&list, &format!("cache/index{level}/level"), &level.to_string());
                self.of_each(&list, &format!("cache/index{level}/shared_cpu_list"), &list);
                self.has_caches = true;
            }
        }
        Some(())
    }

    fn nodes(&mut self, at: &mut Place) -> Option<()> {
        let mut nodes = Vec::new();
        for _ in 0..at.u32()? {
            let number = at.u32()?;
            at.skip(NODE_AND_MEMORY - 4);
            nodes.push((number, at.string()?));
        }
        for (own, list) in &nodes {
            let distance = |(other, _): &(u32, String)| if own == other { "10 " } else { "20 " };
            let row: String = nodes.iter().map(distance).collect();
            let _ = writeln!(self.dump, "node{own}/cpulist:{list}\nnode{own}/distance:{row}");
        }
        Some(())
    }

    /// The same line for each CPU of `list`.
    fn of_each(&mut self, list: &str, file: &str, value: &str) {
        for c in parse_cpulist(list, file).iter().flat_map(|all| all.iter()) {
            let _ = writeln!(self.dump, "cpu{c}/{file}:{value}");
        }
    }
}

/// A place in a section.
struct Place<'a> {
    section: Bytes<'a>,
    at: usize,
}

impl Place<'_> {
    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }
    fn u32(&mut self) -> Option<u32> {
        let n = self.section.u32(self.at)?;
        self.skip(4);
        Some(n)
    }
    /// Its room, then as much, of which a 0 ends the text.
    fn string(&mut self) -> Option<String> {
        let room = self.u32()? as usize;
        let text = self.section.string(self.at, room)?;
        self.skip(room);
        Some(String::from_utf8_lossy(text).trim().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, CpuMask};

    struct Section(Vec<u8>);

    impl Section {
        fn new() -> Section {
            Section(vec![])
        }
        fn n(mut self, n: u32) -> Section {
            self.0.extend(n.to_le_bytes());
            self
        }
        fn s(mut self, text: &str) -> Section {
            self = self.n(64);
            self.0.extend(text.bytes());
            self.0.resize(self.0.len() + 64 - text.len(), 0);
            self
        }
        fn cache(self, level: u32, kind: &str, list: &str) -> Section {
            self.n(level).n(64).n(64).n(8).s(kind).s("32K").s(list)
        }
        fn node(self, number: u32, list: &str) -> Section {
            self.n(number).n(0).n(1).n(0).n(1).s(list)
        }
        fn bytes(&self) -> Bytes<'_> {
            Bytes { of: &self.0, big: false }
        }
    }

    /// Two packages, a node each, of two cores with two threads; CPUs 2 and 6 are offline.
    fn told() -> Told {
        let cores = Section::new().n(2).s("0-1,4-5").s("3,7");
        let cores = cores.n(4).s("0,4").s("1,5").s("3").s("7");
        let caches = Section::new().n(1).n(5);
        let caches = caches.cache(1, "Data", "0,4").cache(1, "Instruction", "0-7");
        let caches = caches.cache(2, "Unified", "1,5");
        let caches = caches.cache(3, "Unified", "0-1,4-5").cache(3, "Unified", "3,7");
        let nodes = Section::new().n(2).node(0, "0-1,4-5").node(1, "3,7");
        let mut told = Told::default();
        told.section(feature::CPU_TOPOLOGY, cores.bytes());
        told.section(feature::CACHE, caches.bytes());
        told.section(feature::NUMA_TOPOLOGY, nodes.bytes());
        told
    }

    fn set(cpus: &[u16]) -> CpuMask {
        cpus.iter().map(|&c| Cpu(c)).collect()
    }

    #[test]
    fn cores_caches_packages_and_nodes_are_those_of_sysfs() {
        let t = told().topology(Some("x86_64")).unwrap();
        assert_eq!(t.numbers, [0, 1, 3, 4, 5, 7]);
        let (near, far) = (set(&[0, 1, 3, 4]), set(&[2, 5]));
        assert_eq!(t.masks.smt[..3], [set(&[0, 3]), set(&[1, 4]), set(&[2])]);
        assert_eq!(t.masks.l2[..3], [set(&[0, 3]), set(&[1, 4]), set(&[2])]);
        assert_eq!(t.masks.llc, [near, near, far, near, near, far]);
        assert_eq!(t.masks.package, t.masks.llc);
        assert_eq!(t.masks.nodes, [(0, near), (1, far)]);
        assert!(!t.distances, "they are not in the file");
    }

    #[test]
    fn nothing_is_told_of_power_or_without_caches() {
        assert!(told().topology(Some("ppc64le")).is_none());
        let mut cores = Told::default();
        cores.section(feature::CPU_TOPOLOGY, Section::new().n(1).s("0").n(1).s("0").bytes());
        assert!(cores.topology(Some("x86_64")).is_none());
        assert!(Told::default().topology(Some("x86_64")).is_none());
    }

    /// However short a section is, what is whole in it counts and nothing fails.
    #[test]
    fn sections_may_be_cut_short() {
        let cores = Section::new().n(1).s("0-1").n(2).s("0").s("1");
        for length in 0..cores.0.len() {
            let mut told = Told::default();
            let cut = Bytes { of: &cores.0[..length], big: false };
            told.section(feature::CPU_TOPOLOGY, cut);
            let _ = told.topology(None);
        }
    }
}
