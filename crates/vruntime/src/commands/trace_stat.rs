//! `vruntime trace stat`

use super::trace::topology;
use crate::cli::TraceStatArgs;
use crate::cpu_numbers::CpuNumbers;
use crate::failure::{Done, Failure};
use crate::trace_check::refuse_foreign;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use vruntime_base::{Event, EventKind};
use vruntime_formats::read::{self, Recorded};
use vruntime_formats::recording::Meta;
use vruntime_formats::topology_text::DumpedTopology;
use vruntime_machine::{Distance, Topology, hint, nearest_name};
use vruntime_measure::{
    CauseRates, CauseTables, TimelineStats, timeline_causes, timeline_stats, wakeups_by,
};
use vruntime_report::blocks::{Columns, all_causes_text};

/// Of those who preempted a task, so many are named.
const TOLD: usize = 3;

/// Figures of a recorded trace.
pub fn stat(args: &TraceStatArgs) -> Result<Done, Failure> {
    let mut recorded = read::open(&args.path)
        .and_then(Recorded::readable)
        .map_err(|e| Failure::Input(e.to_string()))?;
    if recorded.release.is_none() {
        // What is wrong beside the trace is told where the machine is read.
        let meta = Meta::beside(&args.path, &mut vec![]).ok();
        recorded.release = meta.and_then(|meta| meta.version);
    }
    let mut stats = timeline_stats(&recorded.timeline);
    let causes = timeline_causes(&recorded.timeline);
    let cpus = match &args.machine {
        Some(machine) => {
            let topology = topology(machine)?;
            let numbers = CpuNumbers::without_gaps(topology.nr_cpus());
            fits(&args.path, &recorded, &numbers)?;
            Some((topology, numbers))
        }
        None => described(&args.path, recorded.topology.as_ref()),
    };
    let ways = cpus.map(|(topology, numbers)| wakeups_by_distance(&topology, &numbers, &recorded));
    if let Some(task) = &args.task {
        let near = nearest_name(task, stats.tasks.iter().map(|t| t.comm.as_str()));
        let none = format!("no task of the trace is called `{task}`{}", hint(near));
        stats.tasks.retain(|t| t.comm == *task || t.pid.to_string() == *task);
        if stats.tasks.is_empty() {
            return Err(Failure::Usage(none));
        }
    }
    if let Some(cpu) = args.cpu {
        stats.cpus.retain(|c| c.cpu == cpu);
        if stats.cpus.is_empty() {
            return Err(Failure::Usage(format!("no event of the trace concerns CPU {cpu}")));
        }
    }
    if args.form.json {
        let notes: Vec<String> = recorded.diagnostics.iter().map(ToString::to_string).collect();
        return Ok(Done::json(&json!({
            "schema": "vruntime/trace-stat/1",
            "format": recorded.format,
            "release": recorded.release,
            "lost": recorded.lost.total(),
            "diagnostics": notes,
            "stats": super::to_json(&stats)?,
            "causes": super::to_json(&causes)?,
            "wakeups_by_distance": ways,
        })));
    }
    Ok(Done::new(stat_text(&recorded, &stats, &causes, ways.as_ref())))
}

/// Wakeups by the distance, on a machine, from the CPU where the task last ran to the one chosen.
type Ways = BTreeMap<&'static str, u64>;

/// The CPUs that a `topology.txt` beside the trace describes, or else the trace; what cannot be
/// read is told.
fn described(trace: &Path, told: Option<&DumpedTopology>) -> Option<(Topology, CpuNumbers)> {
    let said = |e: String| eprintln!("vruntime: note: {e}; wakeups are not counted by distance");
    let mut meta = Meta::beside(trace, &mut vec![]).map_err(|e| said(e.to_string())).ok()?;
    let by = if meta.topology.is_some() { "topology.txt" } else { "the CPUs of the trace" };
    if meta.topology.is_none() {
        meta.set_topology(told);
    }
    let topology = Topology::from_masks(meta.topology.as_ref()?);
    let topology = topology.map_err(|e| said(format!("{by}: {e}"))).ok()?;
    let numbers = CpuNumbers::of(&meta, topology.nr_cpus());
    Some((topology, numbers))
}

/// An error if the recording is of another machine.
fn fits(path: &Path, recorded: &Recorded, numbers: &CpuNumbers) -> Result<(), Failure> {
    let known = |cpu: u32| numbers.cpu(i64::from(cpu)).is_some();
    let here = |e: &Event| {
        known(e.cpu.0.into())
            && match e.kind {
                EventKind::Switch | EventKind::Runtime => true,
                EventKind::Migrate => known(e.a) && known(e.b),
                _ => known(e.a),
            }
    };
    let foreign = recorded.timeline.iter().filter(|e| !here(e)).count();
    refuse_foreign(path, foreign, recorded.timeline.len(), numbers.count())
        .map_err(|e| Failure::Input(e.to_string()))
}

fn wakeups_by_distance(topology: &Topology, numbers: &CpuNumbers, recorded: &Recorded) -> Ways {
    wakeups_by(&recorded.timeline, |from, to| {
        let known = |cpu: u32| numbers.cpu(i64::from(cpu));
        let Some((from, to)) = known(from).zip(known(to)) else { return "outside of the machine" };
        match topology.distance(from, to) {
            Distance::Same => "same CPU",
            Distance::Smt => "same core",
            Distance::L2 => "same L2",
            Distance::Llc => "same LLC",
            Distance::Package => "same package",
            Distance::Remote => "another package",
        }
    })
}

fn stat_text(
    recorded: &Recorded,
    stats: &TimelineStats,
    causes: &CauseTables,
    ways: Option<&Ways>,
) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let release = recorded.release.as_deref().unwrap_or("unknown");
    let mut out = format!(
        "{}, kernel {release}, {:.3} ms, {} events lost\n",
        recorded.format,
        ms(stats.span_ns),
        recorded.lost.total()
    );
    for d in &recorded.diagnostics {
        out += &format!("note: {d}\n");
    }
    for (name, count) in &stats.events {
        out += &format!("{name:<20} {count:>10}\n");
    }
    // One event has no duration.
    let by_time = |n: f64, unit: &str| match stats.span_ns {
        0 => format!("- {unit}"),
        span => format!("{:.3} {unit}", n / span as f64),
    };
    let rate = |n: u64| by_time(n as f64 * 1e6, "K/sec");
    let cpus = by_time(stats.task_clock_ns as f64, "CPUs utilized");
    for (name, value, rest) in [
        ("task-clock", format!("{:.3} ms", ms(stats.task_clock_ns)), cpus),
        ("context-switches", stats.context_switches.to_string(), rate(stats.context_switches)),
        ("cpu-migrations", stats.cpu_migrations.to_string(), rate(stats.cpu_migrations)),
    ] {
        let _ = writeln!(out, "{name:<20} {value:>16}  # {rest}");
    }
    out.push('\n');
    let rates = CauseRates::of_traces(causes, &[stats.span_ns]);
    out += &all_causes_text(causes, &rates, Columns { names: &[String::new()] });
    if let Some(ways) = ways {
        out += "wakeups by distance from the previous CPU\n";
        ways.iter().for_each(|(way, n)| out += &format!("  {way:<30} {n:>10}\n"));
        out.push('\n');
    }
    out += "task                     run_ms   volunt  involunt  wakeups  on_prev on_waker \
               other migrations  delay_ms: mean    p50    p99    max\n";
    for t in &stats.tasks {
        let d = t.sched_delay;
        let name = format!("{}:{}", t.comm, t.pid);
        let _ = writeln!(
            out,
            "{name:<22} {:>8.3} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>10} {:>15.3} {:>6.3} \
             {:>6.3} {:>6.3}",
            ms(t.run_time_ns),
            t.nr_voluntary,
            t.nr_involuntary,
            t.nr_wakeups,
            t.nr_woken_on_prev,
            t.nr_woken_on_waker,
            t.nr_woken_elsewhere,
            t.nr_migrations,
            ms(d.mean_ns),
            ms(d.p50_ns),
            ms(d.p99_ns),
            ms(d.max_ns)
        );
    }
    out += "\ntask                   sched-in run_ms: min       avg       max stddev  \
            longest delay: ms     until, s  preempted by\n";
    for t in &stats.tasks {
        let (d, r) = (t.sched_delay, t.runs);
        let until = match d.count {
            0 => "-".into(),
            _ => format!("{}.{:06}", d.max_at_ns / 1_000_000_000, d.max_at_ns / 1_000 % 1_000_000),
        };
        let _ = writeln!(
            out,
            "{:<22} {:>8} {:>11.3} {:>9.3} {:>9.3} {:>5.1}% {:>18.3} {until:>12}  {}",
            format!("{}:{}", t.comm, t.pid),
            r.count,
            ms(r.min_ns),
            ms(r.mean_ns),
            ms(r.max_ns),
            r.stddev_percent,
            ms(d.max_ns),
            most_often(&t.preempted_by)
        );
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out += "\ncpu   switches    busy_ms    idle_ms unknown_ms  wakeups idle_to_idle \
            waiting: mean max\n";
    for c in &stats.cpus {
        let _ = writeln!(
            out,
            "{:>3} {:>10} {:>10.3} {:>10.3} {:>10.3} {:>8} {:>12} {:>13.3} {:>3}",
            c.cpu,
            c.nr_switches,
            ms(c.busy_ns),
            ms(c.idle_ns),
            ms(c.unknown_ns),
            c.nr_wakeups,
            c.nr_idle_to_idle,
            c.waited_ns as f64 / stats.span_ns.max(1) as f64,
            c.depth_max
        );
    }
    out += "\ncpu     volunt  involunt  moved_in moved_out  delay_ms: mean    p50    p99    max\n";
    for c in &stats.cpus {
        let d = c.sched_delay;
        let _ = writeln!(
            out,
            "{:>3} {:>10} {:>9} {:>9} {:>9} {:>15.3} {:>6.3} {:>6.3} {:>6.3}",
            c.cpu,
            c.nr_voluntary,
            c.nr_involuntary,
            c.nr_migrated_in,
            c.nr_migrated_out,
            ms(d.mean_ns),
            ms(d.p50_ns),
            ms(d.p99_ns),
            ms(d.max_ns)
        );
    }
    let unrecorded = stats.cpus.iter().filter(|c| c.nr_unrecorded > 0);
    for c in unrecorded {
        let _ = writeln!(
            out,
            "note: cpu {}: {} switches from the idle task are not in the recording; the run \
             time of their tasks counts from when they were first seen",
            c.cpu, c.nr_unrecorded
        );
    }
    out
}

/// The tasks that came most often, and how often.
fn most_often(by: &BTreeMap<String, u64>) -> String {
    let mut by: Vec<(&String, &u64)> = by.iter().collect();
    by.sort_by_key(|&(name, n)| (std::cmp::Reverse(n), name));
    let told: Vec<String> = by.iter().take(TOLD).map(|(name, n)| format!("{name} ×{n}")).collect();
    let more = if by.len() > TOLD { ", …" } else { "" };
    told.join(", ") + more
}
