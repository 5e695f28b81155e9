//! Mutants: if one rule or switch is wrong, does a recording or a decision test notice?
//!
//! A mutant is caught if our code then contradicts a recorded kernel more often, or if the outcome
//! of a scenario of `decisions.rs`, `placement.rs` or `switches.rs` changes, or if a decision test
//! of the scheduler's crate fails, which that crate's own test of mutants proves.

mod scenario;

use scenario::Scenario;
use std::path::Path;
use vruntime::base::{Cause, CauseKind};
use vruntime::formats::kernel_file::{builtin_kernels, kernel};
use vruntime::formats::recording::Recording;
use vruntime::kernel::shadow::{self, trace::Trace};
use vruntime::machine::Topology;
use vruntime::sched::fair::select::{affine, idle_sibling};
use vruntime::sched::release::Release;
use vruntime::sched::rt;
use vruntime::trace_check::{Given, trace_check};

/// A recording, ready to be judged by.
struct Judge {
    trace: Trace,
    topology: Topology,
    release: Release,
    /// Contradictions of the true release.
    base: u64,
}

impl Judge {
    fn new(name: &str) -> Judge {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name);
        let report = trace_check(std::slice::from_ref(&path), Given::default()).unwrap();
        let recording = Recording::open(&path).unwrap();
        let topology = Topology::from_masks(recording.meta.topology.as_ref().unwrap()).unwrap();
        let cpus = vruntime::cpu_numbers::CpuNumbers::without_gaps(topology.nr_cpus());
        let (trace, _) = vruntime::replay::trace(&recording, &cpus);
        let release = kernel(&report.recordings[0].release).unwrap().release;
        let mut judge = Judge { trace, topology, release, base: 0 };
        judge.base = judge.contradictions(&judge.release);
        judge
    }
    fn contradictions(&self, k: &Release) -> u64 {
        let found = shadow::check(&self.trace, &self.topology, k);
        found.kinds.iter().map(|k| k.determined - k.agree).sum()
    }
}

/// The scenarios of the decision tests, from their text.
fn scenarios() -> Vec<&'static str> {
    let files =
        [include_str!("decisions.rs"), include_str!("placement.rs"), include_str!("switches.rs")];
    let calls = files.iter().flat_map(|f| f.split("    check(\n        \"").skip(1));
    calls.map(|call| call.split_once('"').unwrap().0).collect()
}

/// One change of a release.
struct Mutant {
    name: String,
    change: Box<dyn Fn(&mut Release)>,
}

/// Each rule of placement, and of moving RT tasks, off that has a test which can fail; the others
/// are what is left then.
fn rules() -> Vec<Mutant> {
    static WIDE: Cause = Cause::new(CauseKind::Placement, "wake_wide");
    let wake_affine = [
        &WIDE,
        &affine::THIS_IDLE,
        &affine::BOTH_IDLE,
        &affine::SYNC_ALONE,
        &affine::PREV_IDLE,
        &affine::SYNC_LOAD,
        &affine::WEIGHT,
    ];
    let select_idle_sibling = [
        &idle_sibling::TARGET_IDLE,
        &idle_sibling::PREV_IDLE,
        &idle_sibling::KTHREAD_STACKING,
        &idle_sibling::RECENT_IDLE,
        &idle_sibling::IDLE_SIBLING,
        &idle_sibling::TARGET_SIBLING,
        &idle_sibling::CLUSTER_CPU,
        &idle_sibling::IDLE_CORE,
        &idle_sibling::IDLE_CPU,
        &idle_sibling::CORE_SEARCH_CPU,
    ];
    let rt = [&rt::RT_LOWEST, &rt::RT_PUSH, &rt::RT_PULL];
    let all = wake_affine.into_iter().chain(select_idle_sibling).chain(rt);
    all.map(|rule| Mutant {
        name: format!("no rule `{}`", rule.name),
        change: Box::new(|k| k.disabled_rules.push(rule.id)),
    })
    .collect()
}

/// Each switch as another release has it: every value that one of the releases inside the program
/// gives to a field which is not the name, the class or a length of time.
fn switches() -> Vec<Mutant> {
    const OTHERS: [&str; 7] =
        ["name", "version", "description", "scheduler", "fair", "hz", "preempt"];
    let fields = |e| serde_json::to_value(kernel(e).unwrap().release).unwrap();
    let all: Vec<_> = builtin_kernels().iter().map(|(name, _)| fields(name)).collect();
    let mut mutants: Vec<Mutant> = Vec::new();
    for name in all[0].as_object().unwrap().keys() {
        if OTHERS.contains(&name.as_str()) || name.ends_with("_ns") {
            continue;
        }
        let mut values: Vec<&serde_json::Value> = Vec::new();
        all.iter().map(|f| &f[name]).for_each(|v| {
            if !values.contains(&v) {
                values.push(v);
            }
        });
        if values.len() < 2 && values != [&serde_json::Value::Bool(true)] {
            continue;
        }
        if values[0].is_boolean() {
            let (field, label) = (name.clone(), name.clone());
            let flip = move |f: &mut serde_json::Value| f[&field] = (f[&field] == false).into();
            mutants.push(Mutant { name: label, change: Box::new(move |k| edit(k, &flip)) });
            continue;
        }
        for value in values {
            let (field, value) = (name.clone(), value.clone());
            let label = format!("{name} = {}", value.to_string().trim_matches('"'));
            let set = move |f: &mut serde_json::Value| f[&field] = value.clone();
            mutants.push(Mutant { name: label, change: Box::new(move |k| edit(k, &set)) });
        }
    }
    mutants
}

/// Changes the release as its fields.
fn edit(k: &mut Release, change: &dyn Fn(&mut serde_json::Value)) {
    let mut fields = serde_json::to_value(&*k).unwrap();
    change(&mut fields);
    *k = serde_json::from_value(fields).unwrap();
}

/// Those that the decision tests of the scheduler's crate notice: the test there proves it. A
/// value is written as there, `GroupReweight::IfChanged` for `if-changed`.
fn noticed_below() -> Vec<String> {
    let text = include_str!("../../sched/src/mutants.rs");
    let table = text.split_once("mutants! {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let kebab = |word: &str| {
        let split = word.char_indices().map(|(i, c)| match c.is_uppercase() && i > 0 {
            true => format!("-{}", c.to_lowercase()),
            false => c.to_lowercase().to_string(),
        });
        split.collect::<String>()
    };
    let names = table.lines().filter_map(|line| line.split_once(" =>")).map(|x| x.0.trim());
    names
        .map(|name| match name.split_once(" = ") {
            Some((name, value)) => {
                format!("{name} = {}", kebab(value.rsplit("::").next().unwrap()))
            }
            None => name.to_string(),
        })
        .collect()
}

/// Mutants that nothing here catches, each with the reason. A mutant that is neither caught nor
/// listed fails the test.
const UNSEEN: &[(&str, &str)] = &[
    ("no rule `wake_affine: both idle`", "equivalent: the rule after it keeps an idle prev too"),
    ("no rule `wake_affine: sync waker's load`", "needs a queue with less load than its own task"),
    (
        "no rule `idle SMT sibling of target`",
        "5.x, after a search for any idle CPU that was cut short before it came to the sibling",
    ),
    ("ttwu_queue_within = never", "where a wakee waits; tests/queued.rs has the tests"),
    ("zero_vruntime", "another reference point of the same differences; only rounding shows"),
    ("ttwu_runnable_full", "no scenario yet: changes avg_idle by a wakeup of a queued task"),
    ("ttwu_runnable_skip_curr", "equivalent: a wakee that runs does not preempt itself"),
    (
        "ttwu_pending_clear = before-enqueue",
        "no scenario yet: somebody looks between the flag and the lock",
    ),
    ("pipe_wakes_on_freed_slot", "no scenario yet: a pipe that is full of whole pages"),
    ("lazy_tlb_shootdown", "a cost; kernel/src/lazy_tlb.rs has the test"),
    ("fget_exchanges", "a cost; kernel/src/pipe_lines.rs names it"),
    ("idle_shortcut", "no scenario yet: nothing but a task wakes an idle CPU here"),
];

/// What caught `m`, if anything did.
fn caught_by(m: &Mutant, judges: &[Judge], outcomes: &[(&str, String)]) -> Option<String> {
    for judge in judges {
        let mut k = judge.release.clone();
        (m.change)(&mut k);
        let n = judge.contradictions(&k);
        if n > judge.base {
            return Some(format!(
                "recording of {}, {} more contradictions",
                k.name,
                n - judge.base
            ));
        }
    }
    outcomes.iter().find_map(|(text, expected)| {
        let mut scenario = Scenario::parse(text);
        (m.change)(&mut scenario.release);
        (scenario.outcome() != *expected).then(|| text.lines().next().unwrap().to_owned())
    })
}

#[test]
fn wrong_rules_and_switches_are_noticed() {
    let judges = ["guest-6.1-16cpu-xfs-dbench6", "guest-6.12-16cpu-preempt-full-hackbench-pipe-g1"]
        .map(Judge::new);
    let outcomes: Vec<(&str, String)> =
        scenarios().into_iter().map(|t| (t, Scenario::parse(t).outcome())).collect();
    let below = noticed_below();
    for (what, mutants, least_pct) in [("rules", rules(), 80), ("switches", switches(), 90)] {
        let mut caught = 0;
        let mut missed = Vec::new();
        for m in &mutants {
            let below = || below.contains(&m.name).then(|| "test of vruntime-sched".to_string());
            match caught_by(m, &judges, &outcomes).or_else(below) {
                Some(by) => {
                    caught += 1;
                    println!("{}: {by}", m.name);
                }
                None => missed.push(m.name.as_str()),
            }
        }
        println!("{what}: caught {caught} of {}; not caught: {missed:?}", mutants.len());
        let unlisted = missed.iter().filter(|m| !UNSEEN.iter().any(|u| u.0 == **m));
        assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&&str>::new(), "{what}: caught by nothing");
        assert!(caught * 100 >= mutants.len() * least_pct, "{what}: not caught: {missed:?}");
    }
}
