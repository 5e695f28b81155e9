//! `trace why`: what made a switch, a wakeup or a migration of a recording.

use crate::trace_check::Explanation;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use vruntime_kernel::shadow::judge::explain::Explained;
use vruntime_machine::{hint, nearest_name};

/// Decisions about one moment: those of the same task this far around it, ns.
const AROUND: u64 = 2_000_000;
/// The most decisions that are told in full.
const TOLD: usize = 6;
/// The most decisions that are listed.
const LISTED: usize = 40;

/// How often a rule decided.
#[derive(Clone, Debug, Serialize)]
pub struct RuleCount {
    /// Kind of decision.
    pub kind: &'static str,
    /// The rule, or what is not known.
    pub rule: String,
    /// Decisions.
    pub count: u64,
    /// Of them, those in which the kernel did something else.
    pub differ: u64,
}

/// The question.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Thread id or name of a task.
    pub task: Option<String>,
    /// A moment, ns.
    pub at: Option<u64>,
}

/// Seconds with up to nine decimals, in ns.
pub fn moment(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}`: expected seconds as the trace has them, as in 8.873270");
    let (s, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(s) || !digits(part) || part.len() > 9 {
        return Err(wrong());
    }
    let seconds: u64 = s.parse().map_err(|_| wrong())?;
    let ns: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    seconds.checked_mul(1_000_000_000).and_then(|s| s.checked_add(ns)).ok_or_else(wrong)
}

/// The rules by count, most frequent first.
pub fn rules(decisions: &[Explained]) -> Vec<RuleCount> {
    let mut counts: BTreeMap<(&'static str, String), (u64, u64)> = BTreeMap::new();
    for d in decisions {
        let rule = d.rule.clone().unwrap_or_else(|| format!("not known: {}", d.unknown.join(", ")));
        let c = counts.entry((d.kind, rule)).or_default();
        *c = (c.0 + 1, c.1 + u64::from(d.ours.is_some()));
    }
    let mut list: Vec<RuleCount> = counts
        .into_iter()
        .map(|((kind, rule), (count, differ))| RuleCount { kind, rule, count, differ })
        .collect();
    list.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.rule.cmp(&b.rule)));
    list
}

/// The decisions that `q` asks for, in order of time.
pub fn select<'a>(e: &'a Explanation, q: &Question) -> Result<Vec<&'a Explained>, String> {
    let is_task = |d: &&Explained| match &q.task {
        Some(t) => d.task.to_string() == *t || e.names.get(&d.task) == Some(t),
        None => true,
    };
    let mut all: Vec<&Explained> = e.decisions.iter().filter(is_task).collect();
    all.sort_by_key(|d| d.time);
    if let (true, Some(t)) = (all.is_empty(), &q.task) {
        if e.names.is_empty() && t.parse::<i64>().is_err() {
            return Err(format!("names are not recorded: expected a thread id, found `{t}`"));
        }
        let mut names: Vec<&str> = e.names.values().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let near = hint(nearest_name(t, names.iter().copied()));
        return Err(format!("no decision is about a task `{t}`{near}"));
    }
    let Some(at) = q.at else { return Ok(all) };
    let nearest = all.iter().min_by_key(|d| d.time.abs_diff(at)).copied();
    let Some(nearest) = nearest else { return Ok(vec![]) };
    all.retain(|d| d.task == nearest.task && d.time.abs_diff(nearest.time) <= AROUND);
    let first = all.iter().position(|d| d.time == nearest.time).unwrap_or(0);
    let from = first.saturating_sub(TOLD / 2).min(all.len().saturating_sub(TOLD));
    Ok(all.into_iter().skip(from).take(TOLD).collect())
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// One decision as a paragraph and a table.
fn told(e: &Explanation, d: &Explained) -> String {
    let name = e.names.get(&d.task).map_or(String::new(), |n| format!(" ({n})"));
    let mut s = format!(
        "{} s, CPU {}: {}\n",
        seconds(d.time),
        d.cpu,
        match d.kind {
            "pick" => format!("{}; {}{name}.", d.event, d.kernel),
            _ => format!("task {}{name} {}. The kernel: {}.", d.task, d.event, d.kernel),
        }
    );
    s += &match (&d.rule, &d.ours) {
        (Some(rule), None) if d.kind == "move" => format!("Path: {rule}."),
        (Some(rule), None) => format!("Rule: {rule}. The model's code decides the same."),
        (Some(rule), Some(ours)) => {
            format!("The model's code differs: {ours}, by the rule: {rule}.")
        }
        (None, _) => format!(
            "The trace does not tell which rule it was. It hangs on: {}.",
            d.unknown.join(", ")
        ),
    };
    s += "\n";
    let width = d.state.iter().map(|(n, _)| n.chars().count()).max().unwrap_or(0);
    for (name, value) in &d.state {
        let _ = writeln!(s, "    {name:width$}  {value}");
    }
    s
}

/// The answer for people.
pub fn text(e: &Explanation, q: &Question, top: bool) -> Result<String, String> {
    let found = select(e, q)?;
    let mut s = format!("{}, kernel {}, {} state\n", e.name, e.release, e.state);
    for d in e.assumptions.iter().chain(&e.diagnostics) {
        let _ = writeln!(s, "note: {d}");
    }
    if let Some(at) = q.at.filter(|at| found.iter().all(|d| d.time.abs_diff(*at) > AROUND)) {
        let _ =
            writeln!(s, "note: nothing was decided near {} s; the nearest is told", seconds(at));
    }
    s += "\n";
    if top || (q.at.is_none() && q.task.is_none()) {
        let decisions: Vec<Explained> = found.into_iter().cloned().collect();
        s += &format!("{:<18} {:>8} {:>8}  rule\n", "kind", "count", "differ");
        for r in rules(&decisions) {
            let _ = writeln!(s, "{:<18} {:>8} {:>8}  {}", r.kind, r.count, r.differ, r.rule);
        }
        return Ok(s);
    }
    if q.at.is_some() {
        let paragraphs: Vec<String> = found.iter().map(|d| told(e, d)).collect();
        return Ok(s + &paragraphs.join("\n"));
    }
    for d in found.iter().take(LISTED) {
        let rule = d.rule.clone().unwrap_or_else(|| "not known".into());
        let mark = if d.ours.is_some() { " (the model's code differs)" } else { "" };
        let (at, kind, kernel) = (seconds(d.time), d.kind, &d.kernel);
        let _ = writeln!(s, "{at} CPU {:<3} {kind:<18} {kernel}: {rule}{mark}", d.cpu);
    }
    if found.len() > LISTED {
        let _ = writeln!(s, "… and {} more; --at TIME tells of one", found.len() - LISTED);
    }
    Ok(s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(time: u64, task: i64, rule: Option<&str>) -> Explained {
        Explained {
            time,
            cpu: 1,
            line: 1,
            kind: "placement",
            task,
            event: "is woken by task 9; it last ran on CPU 0".into(),
            kernel: "CPU 3".into(),
            ours: None,
            rule: rule.map(str::to_owned),
            unknown: if rule.is_none() { vec!["nr_idle_scan"] } else { vec![] },
            state: vec![("recent_used_cpu".into(), "2".into())],
        }
    }

    fn explanation() -> Explanation {
        let decisions = vec![
            decision(1_000_000_000, 7, Some("target idle")),
            decision(5_000_000_000, 8, None),
            decision(5_000_001_000, 7, Some("target idle")),
        ];
        let names = BTreeMap::from([(7, "hackbench".to_owned())]);
        Explanation { decisions, names, ..Explanation::default() }
    }

    #[test]
    fn moments_are_read_to_the_nanosecond() {
        assert_eq!(moment("8.87327"), Ok(8_873_270_000));
        assert_eq!(moment("12"), Ok(12_000_000_000));
        for wrong in ["", "x", "1.", "1.0000000001", "-1.0", "99999999999999999999.0"] {
            assert!(moment(wrong).unwrap_err().contains("expected seconds"), "{wrong}");
        }
    }

    #[test]
    fn the_nearest_decision_of_the_task_is_told() {
        let e = explanation();
        let at = |t: &str, task: Option<&str>| {
            let q = Question { at: Some(moment(t).unwrap()), task: task.map(str::to_owned) };
            text(&e, &q, false).unwrap()
        };
        let s = at("4.9", None);
        assert!(s.contains("task 8 is woken") && s.contains("hangs on: nr_idle_scan"), "{s}");
        let s = at("4.9", Some("hackbench"));
        assert!(s.contains("5.000001000 s, CPU 1: task 7 (hackbench) is woken"), "{s}");
        assert!(s.contains("Rule: target idle.") && s.contains("recent_used_cpu  2"), "{s}");
        let q = Question { task: Some("hackbnch".into()), at: None };
        assert!(text(&e, &q, false).unwrap_err().ends_with("nearest is `hackbench`"));
        for (far, said) in [("5.1", true), ("5.0015", false)] {
            let note = "note: nothing was decided near 5.100000000 s; the nearest is told\n";
            assert_eq!(at(far, None).contains(note), said, "{far}");
        }
        let top = text(&e, &Question::default(), true).unwrap();
        assert!(top.contains("placement                 2        0  target idle"), "{top}");
    }
}
