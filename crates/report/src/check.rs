//! `trace check`: how often our code decides as a recorded kernel did, as data and as text.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use vruntime_kernel::shadow::judge::result::{Disagreement, KindResult};

/// Rules applied less often than this say little.
pub const RARE: u64 = 30;

/// Disagreements of one recording that the text lists.
const SHOWN: usize = 40;

/// What was found in one recording.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingCheck {
    /// Name of its directory.
    pub name: String,
    /// Point release of the kernel that was recorded.
    pub version: String,
    /// Release that our code decided as, with overrides.
    pub release: String,
    /// Counts by kind of decision.
    pub kinds: Vec<KindResult>,
    /// Every disagreement.
    pub disagreements: Vec<Disagreement>,
    /// What was taken for granted because the recording does not tell.
    pub assumptions: Vec<String>,
    /// Damage that was stepped over.
    pub diagnostics: Vec<String>,
    /// Which file each kind of state comes from.
    pub sources: Vec<Source>,
}

/// Where state comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// `true` or `reconstructed`.
    pub state: &'static str,
    /// The file's name.
    pub file: String,
}

impl Source {
    /// State of this kind, from this file.
    pub fn new(state: &'static str, file: &str) -> Source {
        Source { state, file: file.into() }
    }
}

/// Outcome of `trace check`. As JSON it is the command's contract.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// `vruntime/trace-check/1`.
    pub schema: &'static str,
    /// Sums over all recordings.
    pub kinds: Vec<KindResult>,
    /// Rules of placement that were applied fewer than [`RARE`] times from each state.
    pub rare_rules: BTreeMap<String, u64>,
    /// Recording by recording.
    pub recordings: Vec<RecordingCheck>,
    /// Why others are not among them.
    pub refused: Vec<String>,
}

impl CheckReport {
    /// Sums up. `rules`: every rule of placement there is.
    pub fn new(recordings: Vec<RecordingCheck>, rules: &[&str]) -> CheckReport {
        let mut kinds: Vec<KindResult> = vec![];
        for k in recordings.iter().flat_map(|r| &r.kinds) {
            match kinds.iter_mut().find(|x| x.kind == k.kind && x.state == k.state) {
                Some(x) => x.add(k),
                None => kinds.push(k.clone()),
            }
        }
        // Of a recording with both, one decision is asked from either state.
        let count = |rule: &str| {
            let placement = kinds.iter().filter(|k| k.kind == "placement");
            placement.filter_map(|k| k.rules.get(rule)).max().copied().unwrap_or(0)
        };
        let rare_rules =
            rules.iter().map(|&r| (r.to_owned(), count(r))).filter(|r| r.1 < RARE).collect();
        CheckReport {
            schema: "vruntime/trace-check/1",
            kinds,
            rare_rules,
            recordings,
            refused: vec![],
        }
    }

    /// Sum of one kind, from the kernel's own state.
    pub fn kind(&self, kind: &str) -> Option<&KindResult> {
        self.kind_from(kind, "true")
    }

    /// Sum of one kind, from state of this origin.
    pub fn kind_from(&self, kind: &str, state: &str) -> Option<&KindResult> {
        self.kinds.iter().find(|k| k.kind == kind && k.state == state)
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut s = String::new();
        let width = self.recordings.iter().map(|r| r.name.len()).max().unwrap_or(0).max(9);
        for kind in &self.kinds {
            let _ = writeln!(
                s,
                "{}, {} state\n  {:width$} {:>7} {:>10} {:>8}  {:>10} {:>8}",
                kind.kind,
                kind.state,
                "recording",
                "all",
                "determined",
                "agree",
                "nontrivial",
                "agree",
            );
            for r in &self.recordings {
                if let Some(k) =
                    r.kinds.iter().find(|k| k.kind == kind.kind && k.state == kind.state)
                {
                    line(&mut s, &r.name, k, width);
                }
            }
            line(&mut s, "total", kind, width);
            list(&mut s, "rules", &kind.rules);
            list(&mut s, "not known", &kind.unknowns);
            if kind.set_aside > 0 {
                let (n, agree) = (kind.set_aside, percent(kind.set_aside_agree, kind.set_aside));
                let why = "tasks are in groups that are not recorded, or the kernel is another one";
                let _ = writeln!(s, "  set aside: {n}, of which {agree} agree; {why}");
            }
            s.push('\n');
        }
        if !self.rare_rules.is_empty() {
            let title = format!("placement rules exercised less than {RARE} times");
            list(&mut s, &title, &self.rare_rules);
            s.push('\n');
        }
        for r in &self.recordings {
            for from in &r.sources {
                let _ = writeln!(s, "{}: {} state from {}", r.name, from.state, from.file);
            }
            for d in r.assumptions.iter().chain(&r.diagnostics) {
                let _ = writeln!(s, "{}: {d}", r.name);
            }
        }
        for r in self.recordings.iter().filter(|r| !r.disagreements.is_empty()) {
            let n = r.disagreements.len();
            let _ = writeln!(s, "{} as {}: {n} disagreements", r.name, r.release);
            for d in r.disagreements.iter().take(SHOWN) {
                let _ = writeln!(
                    s,
                    "  {:>12}.{:09} line {} {} task {}: kernel {}, ours {} by {}\n      {}",
                    d.time / 1_000_000_000,
                    d.time % 1_000_000_000,
                    d.line,
                    d.kind,
                    d.task,
                    d.expected,
                    d.got,
                    d.rule,
                    d.state,
                );
            }
            if n > SHOWN {
                let _ = writeln!(s, "  … and {} more: --json has them all", n - SHOWN);
            }
        }
        s
    }
}

fn line(s: &mut String, name: &str, k: &KindResult, width: usize) {
    let all = k.determined + k.undetermined;
    let _ = writeln!(
        s,
        "  {name:width$} {all:>7} {:>10} {:>8}  {:>10} {:>8}",
        percent(k.determined, all),
        percent(k.agree, k.determined),
        k.nontrivial,
        percent(k.nontrivial_agree, k.nontrivial),
    );
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 {
        return "-".into();
    }
    // Rounded down, so that 100.00 % means all.
    let p = part * 10_000 / all;
    format!("{}.{:02} %", p / 100, p % 100)
}

fn list(s: &mut String, what: &str, counts: &BTreeMap<String, u64>) {
    if counts.is_empty() {
        return;
    }
    let mut v: Vec<_> = counts.iter().collect();
    v.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let v: Vec<String> = v.iter().map(|(n, c)| format!("{n} {c}")).collect();
    let _ = writeln!(s, "  {what}: {}", v.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_shares() {
        let mut k = KindResult::new("placement");
        k.count(true, true, "target idle");
        k.count(false, false, "target idle");
        k.miss(&["nr_idle_scan"]);
        let r = RecordingCheck {
            name: "x".into(),
            version: "6.1.192".into(),
            release: "v6.1".into(),
            kinds: vec![k],
            disagreements: vec![],
            assumptions: vec![],
            diagnostics: vec![],
            sources: vec![],
        };
        let c = CheckReport::new(vec![r.clone(), r], &["target idle", "idle core"]);
        let t = c.text();
        assert!(t.contains("total           6    66.66 %  50.00 %           2 100.00 %"), "{t}");
        assert!(t.contains("exercised less than 30 times: target idle 4, idle core 0"), "{t}");
    }

    #[test]
    fn rules_count_from_either_state() {
        let of = |state: &str, n: usize| {
            let mut k = KindResult::new("placement");
            k.state = state.into();
            (0..n).for_each(|_| k.count(true, true, "idle core"));
            k
        };
        let rare = |kinds: Vec<KindResult>| {
            let r = RecordingCheck {
                name: "x".into(),
                version: "6.1.192".into(),
                release: "v6.1".into(),
                kinds,
                disagreements: vec![],
                assumptions: vec![],
                diagnostics: vec![],
                sources: vec![],
            };
            CheckReport::new(vec![r], &["idle core"]).rare_rules
        };
        assert!(rare(vec![of("reconstructed", 30)]).is_empty());
        assert!(rare(vec![of("true", 30), of("reconstructed", 2)]).is_empty());
        assert_eq!(rare(vec![of("true", 20), of("reconstructed", 15)])["idle core"], 20);
    }
}
