//! `vruntime trace`

use crate::cli::{Setting, TraceCheckArgs, TraceDiffArgs, TraceWhyArgs};
use crate::failure::{DONE, Done, Failure, INPUT};
use crate::machine_choice::machine;
use crate::trace_check::{Given, trace_check, trace_explain};
use crate::trace_why::{self, Question, moment};
use serde_json::json;
use std::path::Path;
use vruntime_formats::kernel_file::{LINUX, kernel};
use vruntime_formats::read::{self, Recorded};
use vruntime_machine::Topology;
use vruntime_measure::trace_diff;
use vruntime_report::trace_diff_text;

/// The CPUs that `-m` names.
pub(super) fn topology(word: &str) -> Result<Topology, Failure> {
    let machine = machine(word)?;
    machine.build_topology().map_err(|e| Failure::Input(e.to_string()))
}

/// Recorded decisions are those of Linux's own classes.
fn judges(scheduler: &str) -> Result<(), Failure> {
    if scheduler == LINUX {
        return Ok(());
    }
    let expected = format!("expected `{LINUX}`: recorded decisions are those of its classes");
    Err(Failure::Usage(format!("found scheduler `{scheduler}`; {expected}")))
}

impl Setting {
    /// The CPUs, if they are named. A wrong kernel expression is a mistake of the command line, not
    /// of a recording.
    fn topology(&self) -> Result<Option<Topology>, Failure> {
        if let Some(k) = self.kernel.as_deref().map(kernel).transpose()? {
            judges(&k.release.scheduler)?;
        }
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
    if args.form.json {
        let decisions = trace_why::select(&found, &question).map_err(Failure::Usage)?;
        let all: Vec<_> = decisions.iter().copied().cloned().collect();
        return Ok(Done::json(&json!({
            "schema": "vruntime/trace-why/1",
            "name": found.name,
            "release": found.release,
            "state": found.state,
            "assumptions": found.assumptions,
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
    let done = if args.form.json {
        Done::json(&super::to_json(&report)?)
    } else {
        Done::new(report.text())
    };
    Ok(done.but(code))
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
    if args.form.json {
        return Ok(Done::json(&super::to_json(&diff)?));
    }
    Ok(Done::new(trace_diff_text(&diff)))
}
