//! `vruntime trace`

use crate::cli::{Setting, TraceCheckArgs, TraceDiffArgs, TraceStatArgs, TraceWhyArgs};
use crate::failure::{DONE, Done, Failure, INPUT};
use crate::machine_choice::machine;
use crate::trace_check::{Given, trace_check, trace_explain};
use crate::trace_why::{self, Question, moment};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use vruntime_base::Cpu;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::read::{self, Recorded};
use vruntime_machine::{Distance, Topology};
use vruntime_measure::{
    CauseTables, TimelineStats, timeline_causes, timeline_stats, trace_diff, wakeups_by,
};
use vruntime_report::blocks::{Columns, all_causes_text};
use vruntime_report::trace_diff_text;

/// The CPUs that `-m` names.
fn topology(word: &str) -> Result<Topology, Failure> {
    let machine = machine(word)?;
    machine.topology.build(machine.arch).map_err(|e| Failure::Input(e.to_string()))
}

impl Setting {
    /// The CPUs, if they are named. A wrong kernel expression is a mistake of the command line, not
    /// of a recording.
    fn topology(&self) -> Result<Option<Topology>, Failure> {
        self.kernel.as_deref().map(kernel).transpose()?;
        self.machine.as_deref().map(topology).transpose()
    }
    fn given<'a>(&'a self, topology: &'a Option<Topology>) -> Given<'a> {
        Given { kernel: self.kernel.as_deref(), topology: topology.as_ref() }
    }
}

/// What made a decision of a recording.
pub fn why(args: &TraceWhyArgs) -> Result<Done, Failure> {
    let topology = args.setting.topology()?;
    let at = args.at.as_deref().map(moment).transpose();
    let at = at.map_err(|e| Failure::Usage(format!("--at {e}")))?;
    let question = Question { task: args.task.clone(), at };
    let given = args.setting.given(&topology);
    let found = trace_explain(&args.path, given).map_err(|e| Failure::Input(e.to_string()))?;
    if args.json {
        let decisions = trace_why::select(&found, &question).map_err(Failure::Usage)?;
        let all: Vec<_> = decisions.iter().copied().cloned().collect();
        return Ok(Done::json(&json!({
            "schema": "vruntime/trace-why/1",
            "name": found.name,
            "release": found.release,
            "state": found.state,
            "diagnostics": found.diagnostics,
            "rules": super::to_json(&trace_why::rules(&all))?,
            "decisions": super::to_json(&all)?,
        })));
    }
    trace_why::text(&found, &question, args.top).map(Done::new).map_err(Failure::Usage)
}

/// Replays recorded decisions through the model's own code.
pub fn check(args: &TraceCheckArgs) -> Result<Done, Failure> {
    let topology = args.setting.topology()?;
    let given = args.setting.given(&topology);
    let report = trace_check(&args.paths, given).map_err(|e| Failure::Input(e.to_string()))?;
    for why in &report.refused {
        eprintln!("vruntime: not checked: {why}");
    }
    let code = if report.refused.is_empty() { DONE } else { INPUT };
    let done = if args.markdown {
        let tables =
            ["true", "reconstructed"].map(|s| format!("State: {s}\n\n{}", report.markdown(s)));
        Done::new(tables.join("\n"))
    } else if args.json {
        Done::json(&super::to_json(&report)?)
    } else {
        Done::new(report.text())
    };
    Ok(done.but(code))
}

/// Figures of a recorded trace.
pub fn stat(args: &TraceStatArgs) -> Result<Done, Failure> {
    let recorded = read::open(&args.path)
        .and_then(Recorded::readable)
        .map_err(|e| Failure::Input(e.to_string()))?;
    let mut stats = timeline_stats(&recorded.timeline);
    let causes = timeline_causes(&recorded.timeline);
    let ways = args.machine.as_deref().map(|m| wakeups_by_distance(m, &recorded)).transpose()?;
    if let Some(task) = &args.task {
        stats.tasks.retain(|t| t.comm == *task || t.pid.to_string() == *task);
        if stats.tasks.is_empty() {
            return Err(Failure::Usage(format!("no task of the trace is called {task}")));
        }
    }
    if let Some(cpu) = args.cpu {
        stats.cpus.retain(|c| c.cpu == cpu);
        if stats.cpus.is_empty() {
            return Err(Failure::Usage(format!("no event of the trace concerns CPU {cpu}")));
        }
    }
    if args.json {
        let notes: Vec<String> = recorded.diagnostics.iter().map(ToString::to_string).collect();
        return Ok(Done::json(&json!({
            "schema": "vruntime/trace-stat/1",
            "format": recorded.format,
            "release": recorded.release,
            "lost": recorded.lost,
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

fn wakeups_by_distance(machine: &str, recorded: &Recorded) -> Result<Ways, Failure> {
    let topology = topology(machine)?;
    let nr_cpus = topology.nr_cpus() as u32;
    Ok(wakeups_by(&recorded.timeline, |from, to| {
        if from.max(to) >= nr_cpus {
            return "outside of the machine";
        }
        match topology.distance(Cpu(from as u16), Cpu(to as u16)) {
            Distance::Same => "same CPU",
            Distance::Smt => "same core",
            Distance::L2 => "same L2",
            Distance::Llc => "same LLC",
            Distance::Package => "same package",
            Distance::Remote => "another package",
        }
    }))
}

/// Two traces in the table of a comparison.
pub fn diff(args: &TraceDiffArgs) -> Result<Done, Failure> {
    let read = |path: &Path| -> Result<Recorded, Failure> {
        let recorded = read::open(path)
            .and_then(Recorded::readable)
            .map_err(|e| Failure::Input(e.to_string()))?;
        for d in &recorded.diagnostics {
            eprintln!("vruntime: {d}");
        }
        if recorded.timeline.is_empty() {
            return Err(Failure::Input(format!("{}: no scheduling event", path.display())));
        }
        Ok(recorded)
    };
    let (base, other) = (read(&args.base)?, read(&args.other)?);
    let names = [&args.base, &args.other].map(|p| p.display().to_string());
    let traces = [(&*names[0], &base.timeline), (&*names[1], &other.timeline)];
    let diff = trace_diff(traces, args.slices as usize, args.sig.into());
    if args.json {
        return Ok(Done::json(&super::to_json(&diff)?));
    }
    Ok(Done::new(trace_diff_text(&diff)))
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
        recorded.lost
    );
    for d in &recorded.diagnostics {
        out += &format!("note: {d}\n");
    }
    for (name, count) in &stats.events {
        out += &format!("{name:<20} {count:>10}\n");
    }
    let columns =
        Columns { names: &[String::new()], messages: &[0], measured_ns: &[stats.span_ns] };
    out.push('\n');
    out += &all_causes_text(causes, columns);
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
