//! Mutants: if one rule or switch is wrong, does a recording or a decision test notice?
//!
//! A mutant is caught if our code then contradicts a recorded kernel more often, or if the outcome
//! of a scenario of `decisions.rs`, `placement.rs` or `switches.rs` changes.

mod scenario;

use scenario::Scenario;
use std::path::Path;
use vruntime::base::{Cause, CauseKind};
use vruntime::formats::kernel_file::kernel;
use vruntime::formats::recording::Recording;
use vruntime::kernel::shadow::{self, trace::Trace};
use vruntime::machine::Topology;
use vruntime::sched::fair::select::{affine, idle_sibling};
use vruntime::sched::release::Release;
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

/// Each rule of placement off that has a test which can fail; the others are what is left then.
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
        &idle_sibling::CLUSTER_CPU,
        &idle_sibling::IDLE_CORE,
        &idle_sibling::IDLE_CPU,
        &idle_sibling::CORE_SEARCH_CPU,
    ];
    let all = wake_affine.into_iter().chain(select_idle_sibling);
    all.map(|rule| Mutant {
        name: format!("no rule `{}`", rule.name),
        change: Box::new(|k| k.disabled_rules.push(rule.id)),
    })
    .collect()
}

/// Each switch that one of the releases has on, the other way round. Many of them cannot show in
/// a decision on a small machine without groups: those that cost time, scale loads or break ties.
fn switches() -> Vec<Mutant> {
    let fields = |e| serde_json::to_value(kernel(e).unwrap().release).unwrap();
    let (old, new) = (fields("v6.1"), fields("v6.12"));
    let on = |f: &serde_json::Value, name: &str| f[name].as_bool();
    let names = old.as_object().unwrap().keys().cloned();
    names
        .filter(|name| on(&old, name) == Some(true) || on(&new, name) == Some(true))
        .map(|name| Mutant {
            name: name.clone(),
            change: Box::new(move |k| {
                let mut fields = serde_json::to_value(&*k).unwrap();
                fields[&name] = (!fields[&name].as_bool().unwrap()).into();
                *k = serde_json::from_value(fields).unwrap();
            }),
        })
        .collect()
}

/// Mutants that nothing here catches, each with the reason. A mutant that is neither caught nor
/// listed fails the test.
const UNSEEN: &[(&str, &str)] = &[
    ("no rule `wake_affine: both idle`", "equivalent: the rule after it keeps an idle prev too"),
    ("no rule `wake_affine: sync waker's load`", "needs a queue with less load than its own task"),
    ("keep_percpu_kthreads", "no workload has a kthread of the fair class"),
    ("group_min_slice", "no system call sets a slice"),
    ("zero_vruntime", "another reference point of the same differences; only rounding shows"),
    ("pick_buddy", "no scenario yet: a sleeper's group must still be eligible, and not be first"),
    ("reweight_clamps_lag", "no scenario yet: a group's lag beyond its bound at a reweight"),
    ("cache_hot_buddy", "no scenario yet: the only task to pull is a buddy"),
    ("ttwu_runnable_full", "no scenario yet: changes avg_idle by a wakeup of a queued task"),
    ("ttwu_runnable_skip_curr", "no scenario yet: the wakeup races with the sleep"),
    ("scan_stops_at_zero", "no scenario yet: a cluster scan must use up the limit"),
    ("util_est", "no hand-checkable scenario yet: a utilisation near the capacity"),
    ("util_est_single", "as util_est"),
    ("util_boosted_by_runnable", "as util_est"),
    ("balance_prefers_idle_core", "no hand-checkable scenario yet: who balances, not what"),
    ("migrate_util_shifted", "no hand-checkable scenario yet: repeated failure at a utilisation"),
    ("sibling_imbalance_by_cores", "no hand-checkable scenario yet: rounding by cores"),
    ("fully_busy_tie_takes_later", "two groups of exactly equal load: hundreds of ms of PELT"),
    ("newidle_stops_on_refusal", "no hand-checkable scenario yet: levels above a refusal"),
    ("tg_load_avg_ratelimit", "costs time only"),
    ("idle_shortcut", "costs time only"),
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
    for (what, mutants, least_pct) in [("rules", rules(), 80), ("switches", switches(), 60)] {
        let mut caught = 0;
        let mut missed = Vec::new();
        for m in &mutants {
            match caught_by(m, &judges, &outcomes) {
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
