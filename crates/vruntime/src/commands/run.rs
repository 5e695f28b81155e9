//! `vruntime run`

use super::run_text;
use crate::cli::RunArgs;
use crate::failure::{Done, Failure};
use serde_json::{Map, Value, json};
use vruntime_base::Histogram;
use vruntime_kernel::record::{Counters, RunRecord, Sampling};

/// Runs one kernel with one or several seeds.
pub fn run(args: &RunArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    let seeds = args.seeds.map_or(vec![args.seed], |n| (1..=n).collect());
    let batch = super::batch(s, std::slice::from_ref(&args.kernel), seeds)?;
    let mut records = batch.run()?;
    let runs = records.by_kernel.remove(0);
    let done = if s.json {
        Done::json(&run_json(&runs, batch.sampling, records.interrupted))
    } else {
        Done::new(run_text::text(&runs, batch.workload.as_ref(), batch.sampling))
    };
    Ok(done.interrupted(records.interrupted))
}

fn run_json(runs: &[RunRecord], sampling: Sampling, interrupted: bool) -> Value {
    let first = &runs[0];
    json!({
        "schema": "vruntime/run/1",
        "machine": first.machine,
        "kernel": first.kernel,
        "workload": first.workload,
        "nr_cpus": first.nr_cpus,
        "nr_tasks": first.nr_tasks,
        "sampling": super::sampling_json(sampling),
        "interrupted": interrupted,
        "runs": runs.iter().map(record_json).collect::<Vec<_>>(),
    })
}

/// A record as JSON; times in ns.
pub fn record_json(r: &RunRecord) -> Value {
    json!({
        "seed": r.seed,
        "complete": r.complete,
        "time": r.time.map(|t| t.0),
        "started": r.started.0,
        "window": [r.window.0.0, r.window.1.0],
        "counters": counters_json(&r.counters),
        "causes": {
            "switches": map(&r.switches),
            "placements": map(&r.placements),
            "migrations": map(&r.migrations),
        },
        "cpu_time": r.cpu_time.iter().map(|(func, on, d)| {
            json!({"function": func.name(), "waiting_for": on.name(), "ns": d.0})
        }).collect::<Vec<_>>(),
        "wakeup_latency": histogram_json(&r.wakeup_latency),
        "sched_delay": histogram_json(&r.sched_delay),
        "events": r.events,
        "hash": format!("{:016x}", r.hash),
        "bytes_per_task": r.bytes_per_task,
    })
}

fn map(counts: &[(&'static str, u64)]) -> Value {
    Value::Object(
        counts.iter().map(|&(name, n)| (name.to_string(), n.into())).collect::<Map<_, _>>(),
    )
}

fn counters_json(c: &Counters) -> Value {
    run_text::counters(c).map(|(name, n)| (name.replace('-', "_"), Value::from(n))).collect()
}

fn histogram_json(h: &Histogram) -> Value {
    json!({
        "count": h.count(),
        "mean": h.mean().0,
        "p50": h.per_mille(500).0,
        "p90": h.per_mille(900).0,
        "p99": h.per_mille(990).0,
        "p999": h.per_mille(999).0,
        "max": h.max().0,
    })
}
