//! The machine in `lscpu`'s JSON: the table of `lscpu -J -e`, which is exact, or the summary of
//! `lscpu -J`, which leaves out which CPUs share a core or a cache.
//!
//! Source: the output of util-linux 2.38; later versions put the summary's lines below one
//! another in `children`. What the summary leaves out is taken as Linux numbers CPUs: caches and
//! sockets hold neighbours, and the threads of a core are in the same place of each range of
//! their node's list (`0-3,8-11`), or neighbours if there is one range. The machine's sources say
//! so.

use super::shape::{Cache, CpuShape, Node, Shape, source};
use super::{arch_of, stem, wrong};
use crate::error::FileError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use vruntime_base::{Cpu, CpuMask, MAX_CPUS};
use vruntime_machine::{Arch, MachineSpec, nearest_name, node_reclaim_distance, parse_cpulist};

const EXPECTED: &str = "the output of `lscpu -J` or `lscpu -J -e`";
const ORIGIN: &str = "lscpu";

/// Reads the text of `path`.
pub(super) fn lscpu_machine(path: &Path, text: &str) -> Result<MachineSpec, FileError> {
    let json: Value = serde_json::from_str(text)
        .map_err(|e| wrong(path, Some(e.line()), e.to_string(), EXPECTED))?;
    let shape = match (json["cpus"].as_array(), json["lscpu"].as_array()) {
        (Some(rows), _) => table(path, rows)?,
        (None, Some(lines)) => summary(path, lines)?,
        (None, None) => {
            let keys: Vec<String> =
                json.as_object().into_iter().flatten().map(|(k, _)| format!("`{k}`")).collect();
            return Err(wrong(path, None, format!("keys {}", keys.join(", ")), EXPECTED));
        }
    };
    shape.machine(path)
}

/// The CPUs with the same number in a column.
type Groups = BTreeMap<u64, CpuMask>;

/// `lscpu -J -e`.
fn table(path: &Path, rows: &[Value]) -> Result<Shape, FileError> {
    let cell = |row: &Value, key: &str| -> Result<String, FileError> {
        match row.get(key) {
            Some(Value::Number(n)) => Ok(n.to_string()),
            Some(Value::String(s)) => Ok(s.clone()),
            _ => {
                let has: Vec<&str> =
                    row.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
                let near = nearest_name(key, has.iter().copied());
                let near = near.map(|n| format!(" (nearest is `{n}`)")).unwrap_or_default();
                let found = format!("a CPU without `{key}`{near}");
                Err(wrong(path, None, found, "the columns of `lscpu -J -e`"))
            }
        }
    };
    let number = |row: &Value, key: &str| -> Result<u64, FileError> {
        let text = cell(row, key)?;
        text.trim().parse().map_err(|_| {
            wrong(path, None, format!("`{key}`: `{text}`"), "a number (offline CPUs have none)")
        })
    };
    let offline = |row: &&Value| {
        !matches!(&row["online"], Value::Bool(false)) && row["online"].as_str() != Some("no")
    };
    let caches_of = |row: &Value| {
        let named = row.as_object().into_iter().flatten();
        named.map(|(k, _)| k).find(|k| k.starts_with("l1d") || k.starts_with("l1:")).cloned()
    };
    let [mut cores, mut sockets, mut nodes] = [const { Groups::new() }; 3];
    let mut caches: BTreeMap<(u32, u64), CpuMask> = BTreeMap::new();
    let mut cpus = Vec::new();
    for row in rows.iter().filter(offline) {
        let cpu = number(row, "cpu")?;
        if cpu >= MAX_CPUS as u64 {
            return Err(wrong(path, None, format!("CPU {cpu}"), format!("less than {MAX_CPUS}")));
        }
        let cpu = Cpu::from_ix(cpu as usize);
        cores.entry(number(row, "core")?).or_insert(CpuMask::EMPTY).set(cpu);
        sockets.entry(number(row, "socket")?).or_insert(CpuMask::EMPTY).set(cpu);
        let node = if row.get("node").is_some() { number(row, "node")? } else { 0 };
        nodes.entry(node).or_insert(CpuMask::EMPTY).set(cpu);
        cpus.push(cpu);
        let Some(key) = caches_of(row) else { continue };
        let ids = cell(row, &key)?;
        for (name, id) in key.split(':').zip(ids.split(':')) {
            let level = name.trim_start_matches('l').trim_end_matches(['d', 'i']).parse();
            if let (Ok(level), Ok(id), false) = (level, id.parse(), name.ends_with('i')) {
                caches.entry((level, id)).or_insert(CpuMask::EMPTY).set(cpu);
            }
        }
    }
    let of = |groups: &Groups, cpu: Cpu| {
        groups.values().find(|g| g.has(cpu)).copied().unwrap_or(CpuMask::one(cpu))
    };
    let shape_of = |&cpu: &Cpu| CpuShape {
        threads: of(&cores, cpu),
        package: of(&sockets, cpu),
        caches: (caches.iter().filter(|(_, set)| set.has(cpu)))
            .map(|(&(level, _), &shared)| Cache { level, kib: usual_kib(level), shared })
            .collect(),
    };
    whole(path, &cpus)?;
    let guesses = vec![
        source("architecture", "not in `lscpu -J -e`: taken as x86-64"),
        source("cache sizes", "not in `lscpu -J -e`: usual ones"),
        source("node distances", "not in lscpu: what the kernel assumes without a table"),
    ];
    cpus.sort();
    let cpus = cpus.iter().map(shape_of).collect();
    Ok(shape(path, Arch::X86, cpus, nodes.into_iter().map(|(n, s)| (n as u32, s)), guesses))
}

/// `lscpu -J`.
fn summary(path: &Path, lines: &[Value]) -> Result<Shape, FileError> {
    let mut fields = BTreeMap::new();
    collect(lines, &mut fields, 0);
    let text = |name: &str| -> Result<&str, FileError> {
        fields.get(name).map(String::as_str).ok_or_else(|| {
            wrong(path, None, format!("no `{name}:`"), format!("{EXPECTED} (in English: LC_ALL=C)"))
        })
    };
    let count = |name: &str| -> Result<usize, FileError> {
        let found = text(name)?;
        let number = found.parse().ok().filter(|n| (1..=MAX_CPUS).contains(n));
        number.ok_or_else(|| {
            let expected = format!("a number from 1 to {MAX_CPUS}");
            wrong(path, None, format!("`{name}: {found}`"), expected)
        })
    };
    let list = |name: &str, text: &str| {
        parse_cpulist(text, name)
            .map_err(|e| FileError::content(&path.display().to_string(), None, e))
    };
    let arch = arch_of(path, None, text("Architecture")?)?;
    let online = list("On-line CPU(s) list", text("On-line CPU(s) list")?)?;
    let all: Vec<Cpu> = online.iter().collect();
    whole(path, &all)?;
    let width = count("Thread(s) per core")?;
    let sockets = count("Socket(s)")?;
    let mut nodes: Vec<(u32, CpuMask, &str)> = Vec::new();
    for (name, value) in &fields {
        let number = name.strip_prefix("NUMA node").and_then(|r| r.strip_suffix(" CPU(s)"));
        if let Some(number) = number.and_then(|n| n.parse().ok()) {
            let set = list(name, value)?.and(&online);
            if !set.is_empty() {
                nodes.push((number, set, value));
            }
        }
    }
    nodes.sort_by_key(|n| n.0);
    if nodes.is_empty() {
        nodes.push((0, online, text("On-line CPU(s) list")?));
    }
    let mut cores = Vec::new();
    for (number, set, _) in &nodes {
        let at = format!("{width} threads per core in node {number} with CPUs {set}");
        cores.extend(
            split_cores(set, width)
                .ok_or_else(|| wrong(path, None, at, "whole cores; `lscpu -J -e` says which"))?,
        );
    }
    let groups = |what: &str, n: usize| {
        if n == all.len() {
            return Ok(all.iter().map(|&c| CpuMask::one(c)).collect());
        }
        if n == 0 || !cores.len().is_multiple_of(n) {
            let found = format!("{n} {what} for {} cores", cores.len());
            return Err(wrong(path, None, found, "a divisor; `lscpu -J -e` says which share"));
        }
        let join = |part: &[CpuMask]| part.iter().fold(CpuMask::EMPTY, |a, b| a.or(b));
        Ok(cores.chunks(cores.len() / n).map(join).collect::<Vec<_>>())
    };
    let packages = groups("sockets", sockets)?;
    let mut caches: Vec<(u32, u32, Vec<CpuMask>)> = Vec::new();
    for (name, level) in [("L1d cache", 1), ("L2 cache", 2), ("L3 cache", 3), ("L4 cache", 4)] {
        let Some(text) = fields.get(name) else { continue };
        let (kib, instances) = cache_line(text).ok_or_else(|| {
            wrong(path, None, format!("`{name}: {text}`"), "as in `2 MiB (2 instances)`")
        })?;
        // Before 2.37 the size is that of one cache and their number is not told.
        let n = instances.unwrap_or(if level < 3 { cores.len() } else { sockets });
        let each = if instances.is_some() { kib / n.max(1) as u64 } else { kib };
        caches.push((level, each.min(u64::from(u32::MAX)) as u32, groups(name, n)?));
    }
    let of = |groups: &[CpuMask], cpu: Cpu| {
        groups.iter().find(|g| g.has(cpu)).copied().unwrap_or(CpuMask::one(cpu))
    };
    let shape_of = |&cpu: &Cpu| CpuShape {
        threads: of(&cores, cpu),
        package: of(&packages, cpu),
        caches: caches
            .iter()
            .map(|(level, kib, sets)| Cache { level: *level, kib: *kib, shared: of(sets, cpu) })
            .collect(),
    };
    let guesses = vec![
        source(
            "which CPUs share",
            "not in `lscpu -J`: as Linux usually numbers (`lscpu -J -e` is exact)",
        ),
        source("node distances", "not in lscpu: what the kernel assumes without a table"),
    ];
    let cpus = all.iter().map(shape_of).collect();
    let told = |name: &str| fields.get(name).map_or("", String::as_str);
    let family = told("CPU family").parse().unwrap_or(0);
    let reclaim_distance = node_reclaim_distance(told("Vendor ID"), family);
    let shape = shape(path, arch, cpus, nodes.into_iter().map(|(n, s, _)| (n, s)), guesses);
    Ok(Shape { reclaim_distance, ..shape })
}

/// The lines of a summary, those below others included, by name.
fn collect(lines: &[Value], into: &mut BTreeMap<String, String>, depth: usize) {
    for line in lines {
        if let (Some(name), Some(data)) = (line["field"].as_str(), line["data"].as_str()) {
            into.insert(name.trim_end_matches(':').to_string(), data.trim().to_string());
        }
        if let (Some(children), true) = (line["children"].as_array(), depth < 8) {
            collect(children, into, depth + 1);
        }
    }
}

/// The cores of a node, in order of their first threads.
fn split_cores(node: &CpuMask, width: usize) -> Option<Vec<CpuMask>> {
    let cpus: Vec<Cpu> = node.iter().collect();
    if width == 0 || !cpus.len().is_multiple_of(width) {
        return None;
    }
    let breaks = cpus.windows(2).filter(|w| w[1].ix() != w[0].ix() + 1).count();
    let cores = cpus.len() / width;
    // One range per thread: the second threads come after all cores.
    let apart = width > 1 && breaks + 1 == width;
    let thread = |core: usize, t: usize| if apart { t * cores + core } else { core * width + t };
    let core = |c: usize| (0..width).map(|t| cpus[thread(c, t)]).collect::<CpuMask>();
    Some((0..cores).map(core).collect())
}

/// KiB and instances of `64 KiB (2 instances)`, `2 MiB` or `32K`.
fn cache_line(text: &str) -> Option<(u64, Option<usize>)> {
    let (size, rest) = text.split_once('(').unwrap_or((text, ""));
    let size = size.trim();
    let digits = size.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(size.len());
    let (whole, part) = size[..digits].split_once('.').unwrap_or((&size[..digits], ""));
    let tenth = part.chars().next().and_then(|c| c.to_digit(10)).unwrap_or(0);
    let tenths = whole.parse::<u64>().ok()?.checked_mul(10)? + u64::from(tenth);
    let kib = match size[digits..].trim().chars().next()? {
        'K' => 1,
        'M' => 1024,
        'G' => 1 << 20,
        _ => return None,
    };
    let instances = rest.split_whitespace().next().and_then(|n| n.parse().ok());
    Some((tenths.checked_mul(kib)? / 10, instances))
}

pub(super) fn usual_kib(level: u32) -> u32 {
    [32, 32, 1024, 32 << 10][level.min(3) as usize]
}

fn whole(path: &Path, cpus: &[Cpu]) -> Result<(), FileError> {
    let set: CpuMask = cpus.iter().copied().collect();
    if cpus.is_empty() || set.weight() != cpus.len() || set != CpuMask::first_n(cpus.len()) {
        let expected = "each CPU once and no holes; bring the others online";
        return Err(wrong(path, None, format!("CPUs {set}"), expected));
    }
    Ok(())
}

fn shape(
    path: &Path,
    arch: Arch,
    cpus: Vec<CpuShape>,
    nodes: impl Iterator<Item = (u32, CpuMask)>,
    guesses: Vec<vruntime_machine::Source>,
) -> Shape {
    let nodes: Vec<(u32, CpuMask)> = nodes.collect();
    let far = |i: usize| (0..nodes.len()).map(|j| if i == j { 10 } else { 20 }).collect();
    let node =
        |(i, &(number, cpus)): (usize, &(u32, CpuMask))| Node { number, cpus, distance: far(i) };
    let nodes = nodes.iter().enumerate().map(node).collect();
    Shape {
        name: stem(path),
        origin: ORIGIN,
        arch,
        cpus,
        nodes,
        idle: vec![],
        mhz: None,
        reclaim_distance: None,
        guest_halt_poll_ns: None,
        guesses,
    }
}
