//! `vruntime run`

use crate::cli::RunArgs;
use crate::failure::{Done, Failure, same_file, writable};
use crate::machine_choice;
use crate::trace_file::TraceFile;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use vruntime_formats::kernel_file::kernel_path;
use vruntime_kernel::program::Workload;
use vruntime_kernel::record::{RunRecord, Sampling};
use vruntime_measure::RunJson;
use vruntime_measure::stats::{mean, sd};
use vruntime_report::numbers::duration;
use vruntime_report::{run_text, schedstat_text};

/// Runs one kernel with one or several seeds.
pub fn run(args: &RunArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    let seeds = args.seeds.map_or(vec![args.seed], |n| (1..=n).collect());
    let mut batch = super::batch(s, std::slice::from_ref(&args.kernel), seeds)?;
    spare_inputs(args)?;
    let trace = args.trace.as_deref().map(TraceFile::of_run).transpose()?;
    if trace.is_some() {
        batch.timeline = args.trace_events as usize;
        batch.timeline_of_window = args.trace_window;
    }
    if let Some(path) = &args.schedstat {
        writable(path)?;
        if args.trace.as_deref().is_some_and(|trace| same_file(trace, path)) {
            let name = path.display();
            return Err(Failure::Usage(format!("--schedstat {name}: expected another file")));
        }
        batch.schedstat = true;
    }
    let mut records = batch.run()?;
    super::note_windows(&batch, records.by_kernel.iter().flatten());
    let runs = records.by_kernel.remove(0);
    let trace = trace.map_or(Ok(()), |trace| trace.write_run(&batch, &runs[0]));
    let counters = match (&args.schedstat, &runs[0].schedstat) {
        (Some(path), Some(counters)) => fs::write(path, schedstat_text(counters))
            .map_err(|e| Failure::Input(format!("{}: {e}", path.display()))),
        _ => Ok(()),
    };
    let done = if s.form.json {
        Done::json(&run_json(&runs, batch.sampling, records.interrupted)?)
    } else {
        Done::new(text(&runs, batch.workload.as_ref()))
    };
    Ok(done.interrupted(records.interrupted).beside(trace).beside(counters))
}

/// Refuses to write over what describes the run.
fn spare_inputs(args: &RunArgs) -> Result<(), Failure> {
    let mut inputs = machine_choice::files(&args.simulation.machine);
    inputs.extend(kernel_path(&args.kernel).map(PathBuf::from));
    for (option, path) in [("--trace", &args.trace), ("--schedstat", &args.schedstat)] {
        let Some(path) = path else { continue };
        if let Some(input) = inputs.iter().find(|input| same_file(input, path)) {
            let (path, input) = (path.display(), input.display());
            let why = format!("{option} {path}: {input} is read: expected another file");
            return Err(Failure::Usage(why));
        }
    }
    Ok(())
}

/// `runs` holds every run; the fields of a single one stand beside it as well.
fn run_json(runs: &[RunRecord], sampling: Sampling, interrupted: bool) -> Result<Value, Failure> {
    let all = super::to_json(&runs.iter().map(RunJson::from).collect::<Vec<_>>())?;
    let mut value = match runs {
        [_] => all[0].clone(),
        _ => json!({
            "schema": "vruntime/run/1",
            "machine": runs[0].machine,
            "kernel": runs[0].kernel,
            "workload": runs[0].workload,
        }),
    };
    value["sampling"] = super::sampling_json(sampling);
    value["interrupted"] = interrupted.into();
    value["runs"] = all;
    Ok(value)
}

/// The report of the first run; with several seeds, below a table of all times.
fn text(runs: &[RunRecord], workload: &dyn Workload) -> String {
    let result = |r: &RunRecord| {
        let lines = r.time.map_or(String::new(), |t| workload.result(t));
        lines + &workload.latency_lines(&r.latencies)
    };
    if let [only] = runs {
        return run_text(only, &result(only));
    }
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    for r in runs {
        let time = r.time.map_or("not known".into(), |t| duration(t.0));
        let how = if r.complete { "" } else { ", extrapolated" };
        line(format!("seed {:<8} {time}{how}", r.seed));
    }
    let times: Vec<f64> = runs.iter().filter_map(|r| r.time.map(|t| t.0 as f64)).collect();
    if let (Some(mean), Some(sd)) = (mean(&times), sd(&times)) {
        let (n, mean, sd) = (times.len(), duration(mean as u64), duration(sd as u64));
        line(format!("mean {:8} {mean}, standard deviation {sd} ({n} seeds)", ""));
    }
    line(format!("\nThe first seed:\n\n{}", run_text(&runs[0], &result(&runs[0]))));
    out
}
