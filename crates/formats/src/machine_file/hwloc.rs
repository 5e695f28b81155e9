//! The machine in hwloc's XML, versions 2 and 3 (`lstopo --of xml`).
//!
//! Source: the XML that hwloc 2.9 writes, and its description in "Importing and exporting
//! topologies from/to XML files" of hwloc's documentation. Sets are hexadecimal words, the
//! highest first; NUMA nodes are memory children, so only their sets count, not their depth.

use super::shape::{Cache, CpuShape, Node, Shape, source};
use super::{arch_of, stem, wrong};
use crate::error::FileError;
use roxmltree::{Document, Node as Xml, ParsingOptions};
use std::fmt::Display;
use std::path::Path;
use vruntime_base::{Cpu, CpuMask, MAX_CPUS};
use vruntime_machine::{MachineSpec, node_reclaim_distance};

/// Elements within one another: a machine has some fifteen levels.
const DEPTH_MAX: usize = 100;

/// Reads the text of `path`.
pub(super) fn hwloc_machine(path: &Path, text: &str) -> Result<MachineSpec, FileError> {
    if let Some(line) = too_deep(text) {
        let found = format!("more than {DEPTH_MAX} elements within one another");
        return Err(wrong(path, Some(line), found, "XML written by hwloc"));
    }
    // hwloc names its DTD, which is never fetched.
    let options = ParsingOptions { allow_dtd: true, nodes_limit: 4 << 20 };
    let doc = Document::parse_with_options(text, options).map_err(|e| {
        wrong(path, Some(e.pos().row as usize), e.to_string(), "XML written by hwloc")
    })?;
    let file = File { path, doc: &doc };
    let root = doc.root_element();
    let (name, version) = (root.tag_name().name(), root.attribute("version"));
    let major = version.and_then(|v| v.split('.').next());
    if name != "topology" || !matches!(major, Some("2" | "3")) {
        let found = match version {
            Some(version) => format!("<{name} version=\"{version}\">"),
            None => format!("<{name}> without a version"),
        };
        let expected =
            "<topology version=\"2.0\"> or 3, as `lstopo --of xml` of hwloc 2 or 3 writes";
        return Err(file.wrong(root, found, expected));
    }
    file.machine()
}

/// The line where elements lie deeper than in any machine: the parser calls itself for each.
fn too_deep(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while let Some(n) = text[at..].find('<') {
        at += n;
        let rest = &text[at..];
        let until = |end: &str| rest.find(end).map_or(rest.len(), |n| n + end.len());
        at += match rest.as_bytes() {
            [_, b'!', b'-', b'-', ..] => until("-->"),
            [_, b'!', b'[', ..] => until("]]>"),
            [_, b'?', ..] => until("?>"),
            [_, b'!', ..] => 2,
            [_, b'/', ..] => {
                depth = depth.saturating_sub(1);
                until(">")
            }
            _ => {
                let length = tag_length(rest);
                depth += usize::from(!rest[..length].ends_with("/>"));
                if depth > DEPTH_MAX {
                    return Some(1 + text[..at].matches('\n').count());
                }
                length
            }
        };
    }
    None
}

/// Bytes of the tag at the start of `text`, whose values may hold a `>`.
fn tag_length(text: &str) -> usize {
    let mut quote = None;
    let end = text.bytes().position(|b| match quote {
        Some(q) => {
            quote = quote.filter(|_| b != q);
            false
        }
        None => {
            quote = Some(b).filter(|b| matches!(b, b'"' | b'\''));
            b == b'>'
        }
    });
    end.map_or(text.len(), |n| n + 1)
}

struct File<'a> {
    path: &'a Path,
    doc: &'a Document<'a>,
}

impl<'a> File<'a> {
    fn machine(&self) -> Result<MachineSpec, FileError> {
        let mut guesses = Vec::new();
        let named = |name: &str| self.doc.descendants().find(|x| x.attribute("name") == Some(name));
        let told = |name: &str| named(name).and_then(|x| x.attribute("value")).unwrap_or("");
        let family = told("CPUFamilyNumber").parse().unwrap_or(0);
        let reclaim_distance = node_reclaim_distance(told("CPUVendor"), family);
        let info = named("Architecture");
        let arch = match info.and_then(|x| x.attribute("value")) {
            Some(name) => arch_of(self.path, info.map(|x| self.line(x)), name)?,
            None => {
                guesses.push(source("architecture", "not in the XML: taken as x86-64"));
                vruntime_machine::Arch::X86
            }
        };
        let mut cpus: Vec<Option<CpuShape>> = Vec::new();
        for pu in self.objects("PU") {
            let index = self.index(pu)?;
            if index >= MAX_CPUS {
                let expected = format!("a CPU number below {MAX_CPUS}");
                return Err(self.wrong(pu, format!("CPU {index}"), expected));
            }
            cpus.resize_with(cpus.len().max(index + 1), || None);
            if cpus[index].replace(self.cpu(pu, index)?).is_some() {
                return Err(self.wrong(pu, format!("CPU {index} twice"), "each CPU once"));
            }
        }
        let n = cpus.len();
        let cpus: Vec<CpuShape> = cpus.into_iter().flatten().collect();
        if n == 0 || cpus.len() < n {
            let found = format!("{} CPUs with numbers up to {}", cpus.len(), n.saturating_sub(1));
            return Err(self.wrong(self.doc.root_element(), found, "CPUs without holes"));
        }
        let nodes = self.nodes(&CpuMask::first_n(n))?;
        let shape = Shape {
            name: stem(self.path),
            origin: "hwloc XML",
            arch,
            cpus,
            nodes,
            idle: vec![],
            mhz: None,
            reclaim_distance,
            guest_halt_poll_ns: None,
            guesses,
        };
        shape.machine(self.path)
    }

    /// What contains a PU.
    fn cpu(&self, pu: Xml<'a, 'a>, index: usize) -> Result<CpuShape, FileError> {
        let own = CpuMask::one(Cpu::from_ix(index));
        let (mut threads, mut package, mut machine) = (own, None, own);
        let mut caches = Vec::new();
        for x in pu.ancestors().skip(1).filter(|x| x.has_tag_name("object")) {
            let kind = x.attribute("type").unwrap_or("");
            match kind {
                "Core" => threads = self.set(x)?,
                "Package" => package = Some(self.set(x)?),
                "Machine" => machine = self.set(x)?,
                // Instruction caches are L1iCache and the like.
                _ if kind.ends_with("Cache") && !kind.ends_with("iCache") => {
                    let bytes = self.number(x, "cache_size")?;
                    caches.push(Cache {
                        level: self.number(x, "depth")?.min(9) as u32,
                        kib: (bytes >> 10).min(u64::from(u32::MAX)) as u32,
                        shared: self.set(x)?,
                    });
                }
                _ => {}
            }
        }
        Ok(CpuShape { threads, caches, package: package.unwrap_or(machine) })
    }

    /// The nodes that have CPUs, by number.
    fn nodes(&self, online: &CpuMask) -> Result<Vec<Node>, FileError> {
        let mut nodes = Vec::new();
        for x in self.objects("NUMANode") {
            let cpus = self.set(x)?.and(online);
            if !cpus.is_empty() {
                nodes.push(Node { number: self.index(x)? as u32, cpus, distance: vec![] });
            }
        }
        if nodes.is_empty() {
            nodes.push(Node { number: 0, cpus: *online, distance: vec![] });
        }
        nodes.sort_by_key(|n| n.number);
        let numbers: Vec<u32> = nodes.iter().map(|n| n.number).collect();
        let table = self.distances()?;
        for node in &mut nodes {
            let to = |other: &u32| match &table {
                Some((x, indexes, values)) => {
                    let at = |n: u32| indexes.iter().position(|&i| i == u64::from(n));
                    let value = at(node.number)
                        .zip(at(*other))
                        .and_then(|(i, j)| values.get(i * indexes.len() + j));
                    value.map(|&v| v.min(u64::from(u32::MAX)) as u32).ok_or_else(|| {
                        let expected = format!("a distance from node {} to {other}", node.number);
                        self.wrong(*x, format!("{} values", values.len()), expected)
                    })
                }
                // What the kernel assumes without a table.
                None => Ok(if *other == node.number { 10 } else { 20 }),
            };
            node.distance = numbers.iter().map(to).collect::<Result<_, _>>()?;
        }
        Ok(nodes)
    }

    /// The kernel's node distances: the element, the nodes, and a row for each.
    #[allow(clippy::type_complexity)]
    fn distances(&self) -> Result<Option<(Xml<'a, 'a>, Vec<u64>, Vec<u64>)>, FileError> {
        let table = self.doc.descendants().find(|x| {
            x.has_tag_name("distances2")
                && x.attribute("type") == Some("NUMANode")
                && x.attribute("name") == Some("NUMALatency")
        });
        let Some(x) = table else { return Ok(None) };
        let numbers = |tag: &str| {
            let text: Vec<&str> =
                x.children().filter(|c| c.has_tag_name(tag)).filter_map(|c| c.text()).collect();
            let words = text.iter().flat_map(|t| t.split_whitespace());
            let number = |w: &str| {
                w.parse().map_err(|_| self.wrong(x, format!("`{w}` in <{tag}>"), "a number"))
            };
            words.map(number).collect::<Result<Vec<u64>, _>>()
        };
        Ok(Some((x, numbers("indexes")?, numbers("u64values")?)))
    }

    fn objects(&self, kind: &'static str) -> impl Iterator<Item = Xml<'a, 'a>> + use<'a> {
        let is = move |x: &Xml| x.has_tag_name("object") && x.attribute("type") == Some(kind);
        self.doc.descendants().filter(is)
    }

    fn index(&self, x: Xml) -> Result<usize, FileError> {
        Ok(self.number(x, "os_index")? as usize)
    }

    fn number(&self, x: Xml, key: &str) -> Result<u64, FileError> {
        let text = x.attribute(key);
        text.and_then(|t| t.parse().ok()).ok_or_else(|| {
            let found = text.map_or(format!("no {key}"), |t| format!("{key}=\"{t}\""));
            self.wrong(x, found, format!("a number in {key}"))
        })
    }

    /// The set of CPUs of an object.
    fn set(&self, x: Xml) -> Result<CpuMask, FileError> {
        let text = x.attribute("cpuset").unwrap_or("");
        let unusable = || {
            let found = format!("cpuset=\"{text}\"");
            self.wrong(x, found, format!("words such as 0x0000000f, CPUs below {MAX_CPUS}"))
        };
        let mut mask = CpuMask::EMPTY;
        for (i, word) in text.rsplit(',').enumerate() {
            // hwloc leaves out words that are zero.
            let digits = word.trim().trim_start_matches("0x");
            let bits = match digits {
                "" if text.is_empty() => return Err(unusable()),
                "" => 0,
                _ => u32::from_str_radix(digits, 16).map_err(|_| unusable())?,
            };
            for bit in (0..32).filter(|b| bits >> b & 1 == 1) {
                if i * 32 + bit >= MAX_CPUS {
                    return Err(unusable());
                }
                mask.set(Cpu::from_ix(i * 32 + bit));
            }
        }
        Ok(mask)
    }

    fn line(&self, x: Xml) -> usize {
        self.doc.text_pos_at(x.range().start).row as usize
    }
    fn wrong(&self, x: Xml, found: impl Display, expected: impl Display) -> FileError {
        wrong(self.path, Some(self.line(x)), found, expected)
    }
}
