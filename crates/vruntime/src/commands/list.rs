//! `vruntime list`

use crate::cli::ListArgs;
use crate::failure::{Done, Failure};
use crate::machine_choice::HOST;
use clap::ValueEnum;
use serde_json::{Value, json};
use vruntime_formats::kernel_file::{builtin_kernels, features, kernel};
use vruntime_formats::machine_file::{builtin, builtin_machine};
use vruntime_formats::study_file::{builtin_studies, study};
use vruntime_kernel::record::Knockout;
use vruntime_machine::costs::CostSpec;
use vruntime_measure::METRICS;
use vruntime_sched::registry;
use vruntime_workload::workloads;

/// What can be listed.
#[derive(Clone, Copy, ValueEnum)]
pub enum What {
    /// For -m
    Machines,
    /// For -k
    Kernels,
    /// For -w
    Workloads,
    /// What may follow a kernel's name: its switches and tunables
    Features,
    /// For --without: what a run can leave out of the model
    Knockouts,
    /// For `explain --metric`: the rows of `compare`
    Metrics,
    /// For --plant and `[costs]` of a machine file: the entries of a cost table
    Costs,
    /// For `vruntime study`
    Studies,
    /// Values of the kernel field `scheduler`
    Schedulers,
}

/// Name and one line about it.
type Item = (String, String);

/// Prints the list.
pub fn list(args: &ListArgs) -> Result<Done, Failure> {
    let items = items(args.what)?;
    if args.form.json {
        let kind = args.what.to_possible_value().map(|v| v.get_name().to_string());
        let items: Vec<Value> =
            items.iter().map(|(name, text)| json!({"name": name, "description": text})).collect();
        return Ok(Done::json(&json!({"schema": "vruntime/list/1", "kind": kind, "items": items})));
    }
    let width = items.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = items.iter().map(|(name, text)| format!("{name:width$}  {text}").trim_end().into());
    Ok(Done::new(lines.map(|line: String| line + "\n").collect()))
}

fn items(what: What) -> Result<Vec<Item>, Failure> {
    Ok(match what {
        What::Machines => {
            let mut items = Vec::new();
            for (name, _) in builtin() {
                items.push((name.to_string(), builtin_machine(name)?.description));
            }
            let host = "the machine this program runs on; `vruntime calibrate` measures its costs";
            items.push((HOST.into(), host.into()));
            items
        }
        What::Kernels => {
            let mut items = Vec::new();
            for (name, _) in builtin_kernels() {
                items.push((name.to_string(), kernel(name)?.release.description));
            }
            items
        }
        What::Workloads => workloads()
            .map(|e| (e.name.to_string(), format!("{}: {}", e.description, e.synopsis)))
            .collect(),
        What::Features => described(features()),
        What::Knockouts => described(Knockout::ALL.iter().map(|k| (k.name(), k.doc()))),
        What::Metrics => described(METRICS.into_iter()),
        What::Costs => described(CostSpec::described()),
        What::Studies => {
            let mut items = Vec::new();
            for (name, _) in builtin_studies() {
                let study = study(name)?;
                items.push((name.to_string(), study.title));
            }
            items
        }
        What::Schedulers => described(registry::SCHEDULERS.iter().map(|e| (e.name, e.description))),
    })
}

/// Those whose name and description the program has as they are.
fn described(all: impl Iterator<Item = (&'static str, &'static str)>) -> Vec<Item> {
    all.map(|(name, text)| (name.to_string(), text.to_string())).collect()
}
