//! `trace check`: replays recordings and compares the kernel's decisions with ours.
//!
//! A recording is a directory with the kernel's own state (`state.csv`), with plain traces, or
//! both; or one plain trace, with what stands beside it. From the kernel's state the judge asks
//! with the true values, from a plain trace with those that can be rebuilt; of several plain traces
//! the fullest is taken, and where there is none, the plain columns of `state.csv`.

use crate::cpu_numbers::CpuNumbers;
use crate::recorded_release::{assumptions, expression_of, series};
use crate::replay;
use crate::replay_plain::plain_trace;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vruntime_formats::error::FormatError;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::read::{self, Recorded};
use vruntime_formats::recording::{Meta, Recording};
use vruntime_kernel::shadow;
use vruntime_kernel::shadow::judge::explain::Explained;
use vruntime_kernel::shadow::rows::alive::Alive;
use vruntime_kernel::shadow::rows::trace::{Row, RowKind, Trace};
use vruntime_machine::{Topology, node_reclaim_distance};
use vruntime_report::check::{CheckReport, RecordingCheck, Source};
use vruntime_sched::domains::{Domains, SdFlags};
use vruntime_sched::fair::select::idle_sibling;
use vruntime_sched::release::Release;

/// Events on CPUs that the machine has not, in 1/1000, from which on it is the wrong machine.
const FOREIGN_PERMILLE: usize = 10;
/// Bytes that the rows of a trace may take.
const MEMORY_MAX: usize = 4 << 30;
/// As they are recorded, and as state is rebuilt in them.
const COPIES: usize = 2;
const OPTION_M: &str = "topology.txt (a dump of sysfs, plain or .xz) beside it, or -m MACHINE";
/// A trace with more nodes than these has to be told which of them are nearer.
const NODES_OF_ONE_DISTANCE: usize = 2;

/// What the caller says instead of the recordings.
#[derive(Clone, Copy, Default)]
pub struct Given<'a> {
    /// A kernel expression.
    pub kernel: Option<&'a str>,
    /// The machine.
    pub topology: Option<&'a Topology>,
}

/// Checks the recordings in `paths`: directories, or files of plain traces. The report names those
/// that cannot be checked; it is an error if none can.
pub fn trace_check(paths: &[PathBuf], given: Given) -> Result<CheckReport, FormatError> {
    let (mut checks, mut refused) = (vec![], vec![]);
    for path in paths {
        match Found::open(path).and_then(|found| found.check(given)) {
            Ok(check) => checks.push(check),
            Err(e) => refused.push(e),
        }
    }
    if checks.is_empty() && !refused.is_empty() {
        return Err(refused.remove(0));
    }
    let rules: Vec<&str> = idle_sibling::RULES.iter().map(|c| c.name).collect();
    let refused = refused.iter().map(ToString::to_string).collect();
    Ok(CheckReport { refused, ..CheckReport::new(checks, &rules) })
}

/// One recording, read.
struct Found {
    path: PathBuf,
    name: String,
    meta: Meta,
    state: Option<Recording>,
    plain: Option<(PathBuf, Recorded)>,
    /// A trace describes the CPUs, not a topology.txt.
    described_by_trace: bool,
    diagnostics: Vec<String>,
}

impl Found {
    fn open(path: &Path) -> Result<Found, FormatError> {
        let is_recording = path.is_dir() && !read::is_perf_directory(path);
        if is_recording { Found::in_dir(path) } else { Found::file(path) }
    }

    fn file(path: &Path) -> Result<Found, FormatError> {
        let recorded = read::open_in_full(path)?.readable()?;
        let mut diagnostics = vec![];
        let mut meta = Meta::beside(path, &mut diagnostics)?;
        meta.version = recorded.release.clone().or(meta.version);
        let found = Found {
            path: path.to_owned(),
            name: last_part(path),
            meta,
            state: None,
            plain: Some((path.to_owned(), recorded)),
            described_by_trace: false,
            diagnostics: diagnostics.iter().map(ToString::to_string).collect(),
        };
        Ok(found.described())
    }

    fn in_dir(dir: &Path) -> Result<Found, FormatError> {
        let mut diagnostics = vec![];
        let state = if Recording::has_state(dir) { Some(Recording::open(dir)?) } else { None };
        let plain = fullest(dir, &mut diagnostics)?;
        if plain.is_none() && state.is_none() {
            let files = "state.csv, perf.data, trace.dat or ftrace.txt, plain or .xz";
            return Err(match diagnostics.into_iter().next() {
                Some(first) => FormatError::syntax(dir, 0, first, "a trace that can be read"),
                None => FormatError::missing(dir, "recording", files),
            });
        }
        let mut meta = match &state {
            Some(r) => r.meta.clone(),
            None => {
                let mut said = vec![];
                let meta = Meta::in_dir(dir, &mut said)?;
                diagnostics.extend(said.iter().map(ToString::to_string));
                meta
            }
        };
        let header = plain.as_ref().and_then(|(_, r)| r.release.clone());
        meta.version = meta.version.or(header);
        if let Some(r) = &state {
            diagnostics.extend(r.diagnostics.iter().map(ToString::to_string));
        }
        let (path, name) = (dir.to_owned(), last_part(dir));
        let described_by_trace = false;
        Ok(Found { path, name, meta, state, plain, described_by_trace, diagnostics }.described())
    }

    /// With what its trace says of the CPUs, if no file does.
    fn described(mut self) -> Found {
        let told = self.plain.as_ref().and_then(|(_, r)| r.topology.as_ref());
        let Some(told) = told.filter(|_| self.meta.topology.is_none()) else { return self };
        self.meta.set_topology(Some(told));
        self.described_by_trace = true;
        if !told.distances && told.masks.nodes.len() == NODES_OF_ONE_DISTANCE {
            let text = "not told how far its two nodes are from each other; 20 is taken";
            self.diagnostics.push(format!("{}: {text}", self.path.display()));
        }
        self
    }

    /// The machine and the kernel, as `given` or as recorded.
    fn setting(&self, given: Given) -> Result<Setting, FormatError> {
        if given.kernel.is_none() {
            series(&self.path, &self.meta)?;
        }
        let topology = match (given.topology, &self.meta.topology) {
            (Some(t), _) => t.clone(),
            (None, Some(masks)) => {
                let nodes = masks.nodes.len();
                if self.described_by_trace && nodes > NODES_OF_ONE_DISTANCE {
                    let what = format!("word of the distances of its {nodes} nodes");
                    return Err(FormatError::missing(&self.path, what, OPTION_M));
                }
                Topology::from_masks(masks).map_err(|e| {
                    let file = self.path.join("topology.txt");
                    let file = if self.described_by_trace { &self.path } else { &file };
                    FormatError::syntax(file, 0, e.to_string(), "a consistent topology")
                })?
            }
            (None, None) => return Err(FormatError::missing(&self.path, "topology", OPTION_M)),
        };
        let nr_cpus = topology.nr_cpus();
        let cpus = match given.topology {
            Some(_) => CpuNumbers::without_gaps(nr_cpus),
            None => CpuNumbers::of(&self.meta, nr_cpus),
        };
        let expression = expression_of(&self.path, &self.meta, nr_cpus, given.kernel)?;
        let release: Release = kernel(&expression)
            .map_err(|e| FormatError::syntax(&self.path, 0, e.to_string(), "a kernel expression"))?
            .release;
        let topology = match given.topology {
            Some(_) => topology,
            None => self.with_recorded_reach(topology, &cpus, &release),
        };
        Ok(Setting { topology, cpus, expression, release })
    }

    /// `topology` with the `node_reclaim_distance` that the recorded domains show, if they do.
    fn with_recorded_reach(&self, topology: Topology, cpus: &CpuNumbers, k: &Release) -> Topology {
        let told = &self.meta.wake_affine_numa;
        let as_told = |t: &Topology| {
            let d = Domains::build_without(t, k, &cpus.mask(&self.meta.isolated));
            told.iter().all(|(&cpu, told)| {
                let of = cpus.cpu(cpu.into()).map_or(&[][..], |c| d.of(c));
                let numa = of.iter().map(|&sd| d.sd(sd).flags).filter(|f| f.has(SdFlags::NUMA));
                numa.map(|f| f.has(SdFlags::WAKE_AFFINE)).eq(told.iter().copied())
            })
        };
        if told.is_empty() || as_told(&topology) {
            return topology;
        }
        let zen = node_reclaim_distance("AuthenticAMD", 0x17).expect("Zen has its own");
        let other = topology.clone().with_node_reclaim_distance(zen);
        if as_told(&other) { other } else { topology }
    }

    /// The rows with the kernel's own state.
    fn true_rows(
        &mut self,
        s: &Setting,
        plain: Option<&Trace>,
    ) -> Result<Option<Trace>, FormatError> {
        let Some(state) = &self.state else { return Ok(None) };
        let path = self.path.join("state.csv");
        room_for(&path, state.table.len())?;
        let (mut trace, foreign, first) = replay::trace(state, &s.cpus);
        refuse_foreign(&path, foreign, state.table.len(), s.cpus.count())?;
        self.diagnostics.extend(first.map(|first| {
            let expected = format!("expected one of {} CPUs", s.cpus.count());
            format!("{first}; {expected}; such rows left out: {foreign}")
        }));
        let alive = plain.map(|plain| Alive::beside(&trace, plain)).unwrap_or_default();
        let activates = |r: &&mut Row| matches!(r.kind, RowKind::Wakeup | RowKind::WakeupNew);
        for r in trace.rows.iter_mut().filter(activates).filter(|r| r.cpu == r.rq_cpu) {
            r.due = alive.due(r.cpu, r.p.pid, r.ts);
        }
        trace.alive = alive;
        Ok(Some(trace))
    }

    /// The rows of the plain trace, and its file's name.
    fn plain_rows(&mut self, s: &Setting) -> Result<Option<(String, Trace)>, FormatError> {
        let Some((path, recorded)) = &self.plain else { return Ok(None) };
        room_for(path, recorded.timeline.len())?;
        let (mut trace, foreign) = plain_trace(recorded, &s.cpus, &s.release);
        trace.isolated = s.cpus.mask(&self.meta.isolated);
        self.diagnostics.extend(recorded.diagnostics.iter().map(ToString::to_string));
        refuse_foreign(path, foreign, recorded.timeline.len(), s.cpus.count())?;
        if foreign > 0 {
            let said = format!("{foreign} events on CPUs outside of 0-{}", s.cpus.count() - 1);
            self.diagnostics.push(format!("{}: {said}; left out", path.display()));
        }
        Ok(Some((last_part(path), trace)))
    }

    fn check(mut self, given: Given) -> Result<RecordingCheck, FormatError> {
        let setting = self.setting(given)?;
        let (topology, release) = (&setting.topology, &setting.release);
        let mut found = shadow::judge::result::ShadowResult::default();
        let mut sources = vec![];
        let mut affinity = self.state.is_none();
        let mut plain = self.plain_rows(&setting)?;
        if let Some(trace) = self.true_rows(&setting, plain.as_ref().map(|(_, t)| t))? {
            affinity = records_affinity(&trace);
            found = shadow::check(&trace, topology, release);
            sources.push(Source::new("true", "state.csv"));
            plain.get_or_insert_with(|| ("state.csv".to_owned(), trace));
        }
        if let Some((file, trace)) = &plain {
            let rebuilt = rebuilt(trace, topology, release);
            found.kinds.extend(rebuilt.kinds);
            found.disagreements.extend(rebuilt.disagreements);
            sources.push(Source::new("reconstructed", file));
        }
        Ok(RecordingCheck {
            name: self.name,
            version: self.meta.version.clone().unwrap_or_else(|| "unknown".into()),
            release: setting.expression,
            kinds: found.kinds,
            disagreements: found.disagreements,
            assumptions: assumptions(
                &self.meta,
                release,
                topology.nr_cpus(),
                affinity,
                plain.is_some(),
            ),
            diagnostics: self.diagnostics,
            sources,
        })
    }
}

/// Whether the rows say on how many CPUs a wakee may run.
fn records_affinity(trace: &Trace) -> bool {
    trace.rows.iter().any(|r| r.p_nr_cpus_allowed.is_some())
}

/// What a recording is judged against.
struct Setting {
    topology: Topology,
    cpus: CpuNumbers,
    expression: String,
    release: Release,
}

/// Every decision of a recording in words.
#[derive(Clone, Debug, Default)]
pub struct Explanation {
    /// Name of its file or directory.
    pub name: String,
    /// Release that our code decided as, with overrides.
    pub release: String,
    /// `true` or `reconstructed`.
    pub state: &'static str,
    /// In order of the recording.
    pub decisions: Vec<Explained>,
    /// Names of tasks by thread id.
    pub names: BTreeMap<i64, String>,
    /// What is taken for granted.
    pub assumptions: Vec<String>,
    /// Damage that was stepped over.
    pub diagnostics: Vec<String>,
}

/// Explains the recording in `path`: from the kernel's own state where it is recorded.
pub fn trace_explain(path: &Path, given: Given) -> Result<Explanation, FormatError> {
    let mut opened = Found::open(path)?;
    let setting = opened.setting(given)?;
    let named = |r: &Recorded| -> BTreeMap<i64, String> {
        r.timeline.tasks().iter().map(|t| (i64::from(t.pid), t.comm.clone())).collect()
    };
    let names = opened.plain.as_ref().map(|(_, r)| named(r)).unwrap_or_default();
    let plain = opened.plain_rows(&setting)?.map(|(_, trace)| trace);
    let (state, trace) = match opened.true_rows(&setting, plain.as_ref())? {
        Some(trace) => ("true", trace),
        None => {
            let trace = plain.unwrap_or_default();
            ("reconstructed", shadow::rebuild::rebuild(&trace, &setting.release))
        }
    };
    let (_, decisions) = shadow::explain(&trace, &setting.topology, &setting.release);
    let plain = state == "reconstructed";
    let affinity = plain || records_affinity(&trace);
    let nr_cpus = setting.topology.nr_cpus();
    Ok(Explanation {
        assumptions: assumptions(&opened.meta, &setting.release, nr_cpus, affinity, plain),
        name: opened.name,
        release: setting.expression,
        state,
        decisions,
        names,
        diagnostics: opened.diagnostics,
    })
}

/// The check from what a plain trace lets one rebuild.
fn rebuilt(
    t: &Trace,
    topology: &Topology,
    release: &Release,
) -> shadow::judge::result::ShadowResult {
    let plain = shadow::rebuild::rebuild(t, release);
    let mut found = shadow::check(&plain, topology, release);
    for d in &mut found.disagreements {
        d.kind += ", reconstructed";
    }
    found
}

/// An error if so many of `all` events are of CPUs that the machine has not that it is the wrong
/// one.
pub fn refuse_foreign(
    path: &Path,
    foreign: usize,
    all: usize,
    nr_cpus: usize,
) -> Result<(), FormatError> {
    if foreign * 1000 <= all * FOREIGN_PERMILLE {
        return Ok(());
    }
    let found = format!("{foreign} events on CPUs outside of 0-{}", nr_cpus - 1);
    let expected = format!("events of a machine of {nr_cpus} CPUs; -m names another");
    Err(FormatError::syntax(path, 0, found, expected))
}

/// An error if `rows` rows take more memory than there may be.
fn room_for(path: &Path, rows: usize) -> Result<(), FormatError> {
    let row = COPIES * size_of::<Row>();
    let rows_max = MEMORY_MAX / row;
    if rows <= rows_max {
        return Ok(());
    }
    let mib = (rows as u128 * row as u128) >> 20;
    let found = format!("{rows} rows, which take {mib} MiB");
    let cut = "a part is `perf script --time FROM,TO`, `trace-cmd split`, a shorter state.csv";
    Err(FormatError::syntax(path, 0, found, format!("{rows_max} rows at the most: {cut}")))
}

fn last_part(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into())
}

/// The plain trace in `dir` that tells most, with what any of them says of the CPUs; what cannot be
/// read is noted.
fn fullest(
    dir: &Path,
    diagnostics: &mut Vec<String>,
) -> Result<Option<(PathBuf, Recorded)>, FormatError> {
    let mut best: Option<(PathBuf, Recorded)> = None;
    let mut topology = None;
    // Text has times to the microsecond only.
    let worth = |r: &Recorded| r.timeline.len() * if r.format == "text" { 95 } else { 100 };
    for path in read::traces_in(dir)? {
        match read::open_in_full(&path).and_then(Recorded::readable) {
            Ok(mut r) => {
                topology = topology.or(r.topology.take());
                if best.as_ref().is_none_or(|(_, b)| worth(&r) > worth(b)) {
                    best = Some((path, r));
                }
            }
            Err(e) => diagnostics.push(e.to_string()),
        }
    }
    if let Some((_, best)) = &mut best {
        best.topology = topology;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_is_too_long_is_refused_with_its_length() {
        let most = MEMORY_MAX / COPIES / size_of::<Row>();
        assert!(most > 1_000_000 && room_for(Path::new("x"), most).is_ok());
        let said = room_for(Path::new("x"), 100_000_000).unwrap_err().to_string();
        let parts = ["x: found 100000000 rows", " MiB", &most.to_string(), "perf script --time"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}
