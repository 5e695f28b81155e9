//! Mutants: if one rule or switch is wrong, does a recording or a decision test notice?
//!
//! A mutant is caught if our code then contradicts a recorded kernel more often, or if the outcome
//! of a scenario of `decisions.rs`, `placement.rs`, `switches.rs` or `starved.rs` changes, or if a
//! decision test of the scheduler's crate fails, which that crate's own test of mutants proves.

mod scenario;

use scenario::{PING_PONG, Scenario};
use std::path::Path;
use vruntime::formats::kernel_file::{builtin_kernels, kernel};
use vruntime::formats::recording::Recording;
use vruntime::kernel::shadow::{self, rows::trace::Trace};
use vruntime::machine::Topology;
use vruntime::sched::fair::select::{self, affine, idle_sibling};
use vruntime::sched::fair::{cfs, eevdf, idlest};
use vruntime::sched::release::Release;
use vruntime::sched::{linux, rt};
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
        let (trace, ..) = vruntime::replay::trace(&recording, &cpus);
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
    let files = [
        include_str!("decisions.rs"),
        include_str!("placement.rs"),
        include_str!("switches.rs"),
        include_str!("starved.rs"),
    ];
    let calls = files.iter().flat_map(|f| f.split("    check(\n        \"").skip(1));
    calls.map(|call| call.split_once('"').unwrap().0).chain(PING_PONG).collect()
}

/// One change of a release.
struct Mutant {
    name: String,
    change: Box<dyn Fn(&mut Release)>,
}

/// Each rule off that has a test which can fail; the others are what is left then. The rules of
/// balancing are arithmetic: docs/mutants.md.
fn rules() -> Vec<Mutant> {
    macro_rules! rules {
        ($($rule:path)*) => {
            vec![$(Mutant {
                name: format!("no rule {}", stringify!($rule)),
                change: Box::new(|k| k.disabled_rules.push($rule.id)),
            }),*]
        };
    }
    rules! {
        select::WIDE
        affine::THIS_IDLE affine::BOTH_IDLE affine::SYNC_ALONE affine::PREV_IDLE
        affine::SYNC_LOAD affine::WEIGHT
        idle_sibling::TARGET_IDLE idle_sibling::PREV_IDLE idle_sibling::KTHREAD_STACKING
        idle_sibling::RECENT_IDLE idle_sibling::IDLE_SIBLING idle_sibling::TARGET_SIBLING
        idle_sibling::CLUSTER_CPU idle_sibling::IDLE_CORE idle_sibling::IDLE_CPU
        idle_sibling::CORE_SEARCH_CPU
        idlest::IDLE idlest::SCHED_IDLE
        linux::HIGHER_CLASS
        cfs::ALREADY cfs::CURR_SCHED_IDLE cfs::NOT_NORMAL cfs::IDLE_GROUP cfs::IDLE_WAKEE
        cfs::VRUNTIME eevdf::WOULD_PICK eevdf::SHORTER eevdf::NEW
        cfs::SLICE_USED cfs::AHEAD
        eevdf::SLICE_ENDED eevdf::SHORT_ENDED eevdf::QUANTUM_ENDED
        cfs::SKIPPED cfs::NEXT_BUDDY cfs::LAST_BUDDY
        eevdf::PROTECTED eevdf::CURR_DEADLINE eevdf::BUDDY
        rt::RT_LOWEST rt::RT_PUSH rt::RT_PULL rt::HIGHER_PRIO rt::RR_SLICE
    }
}

/// Each switch as another release has it: every value that one of the releases inside the program
/// gives to a field which is not the name, the class, a layout or a length of time.
fn switches() -> Vec<Mutant> {
    const OTHERS: [&str; 8] = [
        "name",
        "version",
        "description",
        "scheduler",
        "fair",
        "hz",
        "preempt",
        "schedstat_version",
    ];
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
    let lines = |table: &str| {
        let table = text.split_once(&format!("{table}! {{\n")).unwrap().1;
        let names = table.split_once("\n}\n").unwrap().0.lines();
        names.filter_map(|l| Some(l.split_once(" =>")?.0.trim())).collect::<Vec<_>>()
    };
    let kebab = |word: &str| {
        let split = word.char_indices().map(|(i, c)| match c.is_uppercase() && i > 0 {
            true => format!("-{}", c.to_lowercase()),
            false => c.to_lowercase().to_string(),
        });
        split.collect::<String>()
    };
    let rules = lines("\nrules").into_iter().map(|rule| format!("no rule {rule}"));
    let switch = |name: &str| match name.split_once(" = ") {
        Some((name, value)) => format!("{name} = {}", kebab(value.rsplit("::").next().unwrap())),
        None => name.to_string(),
    };
    rules.chain(lines("\nmutants").into_iter().map(switch)).collect()
}

/// Mutants that nothing here catches, each with the reason. A mutant that is neither caught nor
/// listed fails the test, and so does one that is listed and caught.
const UNSEEN: &[(&str, &str)] = &[
    ("no rule affine::BOTH_IDLE", "equivalent: the rule after it keeps an idle prev too"),
    ("no rule affine::SYNC_LOAD", "needs a queue with less load than its own task"),
    (
        "no rule idle_sibling::TARGET_SIBLING",
        "5.x, after a search for any idle CPU that was cut short before it came to the sibling",
    ),
    ("zero_vruntime", "another reference point of the same differences; only rounding shows"),
    ("ttwu_runnable_full", "what idling is expected to last; kernel/src/wakeup.rs has the test"),
    ("ttwu_runnable_skip_curr", "equivalent: a wakee that runs does not preempt itself"),
    (
        "ttwu_pending_clear = before-enqueue",
        "a look between the flag and the lock; kernel/src/wakeup.rs has the test",
    ),
    ("pipe_wakes_on_freed_slot", "a pipe of whole pages; kernel/src/pipe_ops.rs has the test"),
    ("lazy_tlb_shootdown", "a cost; kernel/src/lazy_tlb.rs has the test"),
    ("menu_leaves_out = longest", "an idle state; kernel/src/menu.rs has the test"),
    ("menu_polls_before_long", "an idle state; kernel/src/menu.rs has the test"),
    ("fget_exchanges", "a cost; tests/knockouts.rs has the test"),
    ("clears_bhb", "a cost; tests/knockouts.rs has the test"),
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
    let mut unseen = Vec::new();
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
                None => missed.push(m.name.clone()),
            }
        }
        println!("{what}: caught {caught} of {}; not caught: {missed:?}", mutants.len());
        let unlisted = missed.iter().filter(|m| !UNSEEN.iter().any(|u| u.0 == **m));
        assert_eq!(unlisted.collect::<Vec<_>>(), [""; 0], "{what}: caught by nothing");
        assert!(caught * 100 >= mutants.len() * least_pct, "{what}: not caught: {missed:?}");
        unseen.extend(missed);
    }
    let seen = UNSEEN.iter().map(|u| u.0).filter(|name| !unseen.iter().any(|m| m == name));
    assert_eq!(seen.collect::<Vec<_>>(), [""; 0], "listed, but caught or no mutant");
}
