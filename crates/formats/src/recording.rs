//! A recording: a directory in which a kernel's scheduling events stand with the kernel's own
//! state at each of them.
//!
//! *Files.* `state.csv` (one row per event, columns addressed by name), `state-stacks.txt` (call
//! chains, innermost first), `topology.txt`, `features.txt`, `sched-tunables.txt`; each plain or
//! `.xz`. The kernel's version stands in `summary.json` or `README.md`.
//! *Source.* The recording kit of this project; see `tests/data/README.md`.
//! *Errors.* A damaged file gives what can be read of it and a diagnostic with file and line; an
//! error is only what leaves nothing to check.

use crate::error::{Diagnostic, FormatError};
use crate::table::Table;
use crate::text::{Text, need_text, read_text};
use crate::topology_text::{DumpedTopology, parse_topology};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vruntime_base::CpuMask;
use vruntime_machine::{TopologyMasks, hint, nearest_name, parse_cpulist};

/// Cells that every row has.
pub const NEEDED: &[&str] = &["ts_ns", "cpu", "curr_pid", "rq_cpu", "rq_nr_running", "p_pid"];

/// The least that a cell may be: a clock has run since the boot, and a queue holds no less than
/// nothing.
const LEAST: &[(&str, i64)] = &[("ts_ns", 1), ("rq_nr_running", 0)];

/// Events of a recording.
const EVENTS: &[&str] = &[
    "switch",
    "waking",
    "select_rq",
    "migrate",
    "wakeup",
    "wakeup_new",
    "need_resched",
    "psi_change",
    "memstall_enter",
    "memstall_leave",
];
/// Unknown events that are named.
const UNKNOWN_MAX: usize = 10;

/// Columns of every recording: a decision that lacked one would be taken from zeros. Others are not
/// known where they are missing.
pub const COLUMNS: &[&str] = &[
    "a",
    "b",
    "rq_clock_task",
    "stack",
    "p_prio",
    "p_policy",
    "p_weight",
    "p_vruntime",
    "p_deadline",
    "p_vlag_or_vprot",
    "p_slice",
    "p_sum_exec",
    "p_on_rq",
    "p_sched_delayed",
    "p_depth",
    "p_util_avg",
    "p_load_avg",
    "p_util_est",
    "p_tg",
    "p_cfs_nr_queued",
    "p_cfs_zero_vruntime",
    "p_cfs_load_weight",
    "p_cfs_util_avg",
    "p_cfs_load_avg",
    "p_par_weight",
    "p_par_vruntime",
    "p_par_deadline",
    "p_par_vlag",
    "p_par_slice",
    "n_pid",
    "n_prio",
    "n_policy",
    "n_weight",
    "n_vruntime",
    "n_deadline",
    "n_vlag_or_vprot",
    "n_slice",
    "n_sum_exec",
    "n_on_rq",
    "n_sched_delayed",
    "n_depth",
    "n_util_avg",
    "n_load_avg",
    "n_util_est",
    "n_tg",
    "n_cfs_nr_queued",
    "n_cfs_zero_vruntime",
    "n_cfs_load_weight",
    "n_cfs_util_avg",
    "n_cfs_load_avg",
    "n_par_weight",
    "n_par_vruntime",
    "n_par_deadline",
    "n_par_vlag",
    "n_par_slice",
];

/// What is known of the machine and its kernel.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// Point release, such as `6.1.192`; `None` if no file says it.
    pub version: Option<String>,
    /// Scheduler features as the kernel lists them (`SIS_UTIL`, `NO_SIS_PROP`).
    pub features: Vec<String>,
    /// `/sys/kernel/debug/sched/*`.
    pub tunables: BTreeMap<String, String>,
    /// CPUs and what they share; `None` if it was not recorded.
    pub topology: Option<TopologyMasks>,
    /// The kernel's number of each CPU of `topology`; empty if they are 0, 1, 2 …
    pub cpu_numbers: Vec<u32>,
    /// CPUs that the command line kept out of the scheduling domains, by the kernel's number.
    pub isolated: CpuMask,
    /// Whether wakeups pull tasks across each NUMA domain of a CPU (by the kernel's number), the
    /// smallest first; empty if that was not recorded.
    pub wake_affine_numa: BTreeMap<u32, Vec<bool>>,
    /// CONFIG_HZ, where a file says so.
    pub hz: Option<u32>,
}

/// A recording, open.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its directory.
    pub dir: PathBuf,
    /// Machine and kernel.
    pub meta: Meta,
    /// The events; the word of each row is the event's name.
    pub table: Table,
    /// Call chains by number, innermost function first.
    pub stacks: Vec<Vec<String>>,
    /// Damage that was stepped over.
    pub diagnostics: Vec<Diagnostic>,
}

impl Meta {
    /// What the files in the directory of the file `trace` say.
    pub fn beside(trace: &Path, diagnostics: &mut Vec<Diagnostic>) -> Result<Meta, FormatError> {
        Meta::in_dir(trace.parent().unwrap_or(Path::new("")), diagnostics)
    }

    /// What the files in `dir` say.
    pub fn in_dir(dir: &Path, diagnostics: &mut Vec<Diagnostic>) -> Result<Meta, FormatError> {
        let mut take = |name: &str| -> Result<Option<Text>, FormatError> {
            let t = read_text(dir, name)?;
            if let Some(t) = &t {
                diagnostics.extend(t.diagnostics.iter().cloned());
            }
            Ok(t)
        };
        let topology = take("topology.txt")?.map(|t| parse_topology(&t)).transpose()?;
        let domains = take("domains.txt")?.map_or(String::new(), |t| t.text);
        let cmdline = take("cmdline.txt")?;
        let isolated = cmdline.as_ref().map(|t| isolated(&t.text)).transpose();
        let features = take("features.txt")?.map_or(String::new(), |t| t.text);
        let tunables = take("sched-tunables.txt")?;
        let summary = take("summary.json")?.map_or(String::new(), |t| t.text);
        let dropped = summary.split("\"state_rows_dropped\":").nth(1).map_or("", str::trim_start);
        let dropped: u64 = leading_number(dropped).parse().unwrap_or(0);
        let readme = take("README.md")?.map_or(String::new(), |t| t.text);
        let tunables = tunables.map_or(BTreeMap::new(), |t| pairs(&t, diagnostics));
        if dropped > 0 {
            let text = format!("state.csv ends early: {dropped} more rows found no room");
            diagnostics.push(Diagnostic { path: dir.join("summary.json"), line: 0, text });
        }
        let isolated = isolated.unwrap_or_else(|list| {
            let path = cmdline.map_or(dir.to_owned(), |t| t.path);
            let text = format!("found isolcpus of \"{list}\", expected a list such as 1,4-7; none");
            diagnostics.push(Diagnostic { path, line: 1, text: text + " is taken to be isolated" });
            None
        });
        let mut meta = Meta {
            version: version(&summary, &readme),
            features: features.split_whitespace().map(str::to_owned).collect(),
            tunables,
            topology: None,
            cpu_numbers: vec![],
            isolated: isolated.flatten().unwrap_or(CpuMask::EMPTY),
            wake_affine_numa: wake_affine_numa(&domains),
            hz: readme.split("HZ=").nth(1).and_then(|s| leading_number(s).parse().ok()),
        };
        meta.set_topology(topology.as_ref());
        Ok(meta)
    }

    /// The CPUs are those of `topology`.
    pub fn set_topology(&mut self, topology: Option<&DumpedTopology>) {
        let gaps =
            |t: &DumpedTopology| t.numbers.iter().enumerate().any(|(ix, &n)| ix != n as usize);
        let numbers = topology.filter(|t| gaps(t)).map(|t| t.numbers.clone());
        self.cpu_numbers = numbers.unwrap_or_default();
        self.topology = topology.map(|t| t.masks.clone());
    }
}

/// See [`Meta::wake_affine_numa`]; `domains` is a dump of `/sys/kernel/debug/sched/domains`.
fn wake_affine_numa(domains: &str) -> BTreeMap<u32, Vec<bool>> {
    let mut of: BTreeMap<u32, BTreeMap<u32, bool>> = BTreeMap::new();
    for line in domains.lines() {
        let Some((at, flags)) = line.split_once("/flags:") else { continue };
        let number = |part: &str, name: &str| part.strip_prefix(name)?.parse().ok();
        let Some((cpu, domain)) = at.split_once('/') else { continue };
        let (Some(cpu), Some(domain)) = (number(cpu, "cpu"), number(domain, "domain")) else {
            continue;
        };
        let has = |flag| flags.split_whitespace().any(|f| f == flag);
        if has("SD_NUMA") {
            of.entry(cpu).or_default().insert(domain, has("SD_WAKE_AFFINE"));
        }
    }
    of.into_iter().map(|(cpu, all)| (cpu, all.into_values().collect())).collect()
}

impl Recording {
    /// `dir` holds a `state.csv`.
    pub fn has_state(dir: &Path) -> bool {
        ["state.csv", "state.csv.xz"].iter().any(|n| dir.join(n).is_file())
    }

    /// Opens the recording in `dir`.
    pub fn open(dir: &Path) -> Result<Recording, FormatError> {
        if !dir.is_dir() {
            return Err(FormatError::missing(dir, "such directory", "a recording with state.csv"));
        }
        let mut diagnostics = Vec::new();
        let state = need_text(dir, "state.csv")?;
        diagnostics.extend(state.diagnostics.iter().cloned());
        let table = Table::parse(&state, "event", NEEDED, LEAST, &mut diagnostics)?;
        if let Some(missing) = COLUMNS.iter().find(|n| !table.has(n)) {
            let expected = format!("a column {missing}");
            return Err(FormatError::syntax(&state.path, 1, "no such column", expected));
        }
        if table.is_empty() {
            return Err(match diagnostics.first() {
                Some(first) => FormatError::NothingLeft { first: first.to_string() },
                None => FormatError::syntax(&state.path, 2, "no event", "at least one row"),
            });
        }
        unknown_events(&table, &state.path, &mut diagnostics)?;
        let stacks = read_text(dir, "state-stacks.txt")?;
        let stacks = stacks.map(|t| {
            diagnostics.extend(t.diagnostics.iter().cloned());
            parse_stacks(&t, &mut diagnostics)
        });
        let meta = Meta::in_dir(dir, &mut diagnostics)?;
        let stacks = stacks.unwrap_or_else(|| {
            let text = "there is none: nothing tells who asked for a reschedule".to_owned();
            diagnostics.push(Diagnostic { path: dir.join("state-stacks.txt"), line: 0, text });
            vec![]
        });
        Ok(Recording { dir: dir.to_owned(), meta, table, stacks, diagnostics })
    }

    /// The last part of the directory's name.
    pub fn name(&self) -> String {
        self.dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    }
}

/// Notes events that no recording has; an error if there is no other.
fn unknown_events(
    table: &Table,
    path: &Path,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<(), FormatError> {
    let unknown: Vec<_> = table.words().filter(|(word, ..)| !EVENTS.contains(word)).collect();
    let rows: usize = unknown.iter().map(|(.., rows)| rows).sum();
    if rows == table.len() {
        let (word, line, _) = unknown[0];
        let found = format!("event `{word}`, and no other that is known");
        return Err(FormatError::syntax(
            path,
            line,
            found,
            format!("one of {}", EVENTS.join(", ")),
        ));
    }
    let mut note = |line, text| diagnostics.push(Diagnostic { path: path.to_owned(), line, text });
    for (word, line, rows) in unknown.iter().take(UNKNOWN_MAX) {
        let near = hint(nearest_name(word, EVENTS.iter().copied()));
        note(*line, format!("no event is named `{word}`{near}; rows with it, not read: {rows}"));
    }
    if unknown.len() > UNKNOWN_MAX {
        note(0, format!("{} names that no event has; rows with them: {rows}", unknown.len()));
    }
    Ok(())
}

/// `isolcpus=[flag,…]list`, unless its flags leave the scheduling domains out. A list that cannot
/// be read is the error.
fn isolated(cmdline: &str) -> Result<Option<CpuMask>, String> {
    let mut values = cmdline.split_whitespace().filter_map(|w| w.strip_prefix("isolcpus="));
    let Some(value) = values.next_back() else { return Ok(None) };
    let is_flag = |w: &&str| ["nohz", "domain", "managed_irq"].contains(w);
    let (flags, list): (Vec<&str>, Vec<&str>) = value.split(',').partition(is_flag);
    let domains = flags.is_empty() || flags.contains(&"domain");
    let list = list.join(",");
    if !domains {
        return Ok(None);
    }
    parse_cpulist(&list, "isolcpus").map(Some).map_err(|_| list)
}

fn leading_number(s: &str) -> &str {
    &s[..s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len())]
}

/// Lines `name: value`.
fn pairs(of: &Text, diagnostics: &mut Vec<Diagnostic>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (i, line) in of.text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
        match line.split_once(':') {
            Some((name, value)) => {
                out.insert(name.trim().to_owned(), value.trim().to_owned());
            }
            None => diagnostics.push(Diagnostic {
                path: of.path.clone(),
                line: i as u64 + 1,
                text: format!("\"{line}\" is no `name: value`; line left out"),
            }),
        }
    }
    out
}

/// A point release after `"kernel":` in the summary, or on the line `Kernel:` of the README.
fn version(summary: &str, readme: &str) -> Option<String> {
    let quoted = summary.split("\"kernel\"").nth(1).unwrap_or("");
    let told = readme.lines().find(|l| l.starts_with("Kernel:")).unwrap_or("");
    [quoted, told].iter().find_map(|s| {
        let word = s.split(|c: char| !(c.is_ascii_digit() || c == '.')).find(|w| {
            w.split('.').count() >= 2 && w.split('.').take(2).all(|n| n.parse::<u32>().is_ok())
        })?;
        Some(word.trim_matches('.').to_owned())
    })
}

/// Lines `number outer<…`, numbers ascending from 0 (gaps stay empty).
fn parse_stacks(t: &Text, d: &mut Vec<Diagnostic>) -> Vec<Vec<String>> {
    let mut out: Vec<Vec<String>> = Vec::new();
    for (i, line) in t.text.lines().enumerate() {
        let (number, chain) = line.split_once(' ').unwrap_or((line, ""));
        let Some(n) = number.parse::<usize>().ok().filter(|&n| n < 1 << 20) else {
            d.push(Diagnostic {
                path: t.path.clone(),
                line: i as u64 + 1,
                text: format!("\"{number}\" is no stack number; line left out"),
            });
            continue;
        };
        if out.len() <= n {
            out.resize(n + 1, vec![]);
        }
        out[n] = chain.split('<').map(str::to_owned).collect();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_stands_in_the_summary_or_the_readme() {
        let json = "{\n \"kernel\": \"6.1.192\",\n";
        assert_eq!(version(json, "").as_deref(), Some("6.1.192"));
        let readme = "# x\n\nKernel: Debian 6.12.117 (cloud-amd64, unmodified), booted\n";
        assert_eq!(version("", readme).as_deref(), Some("6.12.117"));
        assert_eq!(version("", "no kernel"), None);
    }

    #[test]
    fn isolated_cpus_stand_on_the_command_line() {
        let of =
            |s: &str| isolated(s).map(|m| m.map(|m| m.iter().map(|c| c.0).collect::<Vec<_>>()));
        assert_eq!(of("quiet isolcpus=2,6-7 x=1"), Ok(Some(vec![2, 6, 7])));
        assert_eq!(of("isolcpus=nohz,domain,3"), Ok(Some(vec![3])));
        assert_eq!(of("isolcpus=nohz,3"), Ok(None));
        assert_eq!(of("isolcpus=8-N"), Err("8-N".to_owned()));
        assert_eq!(of("isolcpus=all"), Err("all".to_owned()));
        assert_eq!(of("isolcpus=0-15:1/2"), Err("0-15:1/2".to_owned()));
        assert_eq!(of("quiet"), Ok(None));
    }

    /// Three nodes: CPU 0 is pulled from the second, not from the third.
    #[test]
    fn domains_say_how_far_wakeups_pull() {
        let domains = "cpu0/domain0/flags:SD_WAKE_AFFINE SD_SHARE_LLC \n\
                       cpu0/domain1/flags:SD_WAKE_AFFINE SD_NUMA \n\
                       cpu0/domain2/groups_flags:SD_WAKE_AFFINE SD_NUMA \n\
                       cpu0/domain2/flags:SD_SERIALIZE SD_NUMA \n";
        assert_eq!(wake_affine_numa(domains), [(0, vec![true, false])].into());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let e = Recording::open(Path::new("no/such")).unwrap_err();
        assert_eq!(
            e.to_string(),
            "no/such: there is no such directory; expected a recording with state.csv"
        );
    }
}
