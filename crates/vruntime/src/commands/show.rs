//! `vruntime show`

use super::study::settings;
use super::to_json;
use crate::cli::{ShowArgs, ShowCommand};
use crate::failure::{Done, Failure};
use crate::lab::published_row;
use crate::machine_choice::machine;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use vruntime_base::{Cpu, CpuMask};
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::study_file::{self, Study};
use vruntime_machine::{MachineSpec, Topology};
use vruntime_report::study::{kernel_names, published_text};
use vruntime_sched::release::Release;
use vruntime_workload::workloads;

/// Sizes of so many groups are listed one by one.
const SIZES_LISTED: usize = 8;

/// Shows one thing in full.
pub fn show(command: &ShowCommand) -> Result<Done, Failure> {
    match command {
        ShowCommand::Machine(args) => show_machine(args),
        ShowCommand::Kernel(args) => show_kernel(args),
        ShowCommand::Workload(args) => show_workload(args),
        ShowCommand::Study(args) => show_study(args),
    }
}

fn show_machine(args: &ShowArgs) -> Result<Done, Failure> {
    let spec = machine(&args.name)?;
    let topo = spec.build_topology().map_err(|e| Failure::Input(e.to_string()))?;
    if args.form.json {
        return Ok(Done::json(&json!({
            "schema": "vruntime/show/1",
            "kind": "machine",
            "nr_cpus": topo.nr_cpus(),
            "machine": to_json(&spec)?,
        })));
    }
    let mut out = String::new();
    machine_text(&mut out, &spec, &topo).expect("a string grows");
    Ok(Done::new(out))
}

fn machine_text(out: &mut String, spec: &MachineSpec, topo: &Topology) -> std::fmt::Result {
    writeln!(out, "{}: {}\n", spec.name, spec.description)?;
    writeln!(
        out,
        "CPUs      {} at {} MHz, pages of {} KiB",
        topo.nr_cpus(),
        spec.mhz,
        spec.page_kib
    )?;
    let c = spec.caches;
    writeln!(out, "caches    L1 {} KiB, L2 {} KiB, LLC {} MiB", c.l1_kib, c.l2_kib, c.llc_mib)?;
    for (name, set) in levels() {
        let sets = (0..topo.nr_cpus()).map(|i| set(topo, Cpu::from_ix(i)));
        let sizes: BTreeMap<_, usize> = sets.map(|s| (s.first(), s.weight())).collect();
        let (n, sizes) = (sizes.len(), sizes_text(&sizes.into_values().collect::<Vec<_>>()));
        writeln!(out, "{name:9} {n} of {sizes} CPUs, the first is {}", set(topo, Cpu(0)))?;
    }
    writeln!(out, "\nidle state  exit latency ns (low … high)  source")?;
    for s in &spec.idle {
        let e = &s.exit_latency;
        writeln!(out, "{:10}  {} ({} … {})  {}", s.name, e.mid, e.low, e.high, e.source)?;
    }
    writeln!(out, "\nthreads of a core busy, speed of each in 1/1024 (low … high)  source")?;
    for (busy, s) in (1..).zip(&spec.smt_speed) {
        writeln!(out, "{busy:10}  {} ({} … {})  {}", s.mid, s.low, s.high, s.source)?;
    }
    let head = "cost, ns (shares, ‰)";
    writeln!(out, "\n{head:26} {:>7} {:>7} {:>7}  source", "low", "mid", "high")?;
    for row in spec.costs.iter() {
        let c = row.cost;
        writeln!(out, "{:26} {:>7} {:>7} {:>7}  {}", row.name, c.low, c.mid, c.high, c.source)?;
    }
    let p = &spec.path_permille;
    writeln!(out, "\npath costs × {} ‰ ({} … {}): {}", p.mid, p.low, p.high, p.source)?;
    writeln!(out, "\nsources")?;
    spec.sources.iter().try_for_each(|s| writeln!(out, "  {}: {}", s.what, s.place))
}

/// `8`, `8, 24, 8`, or, of many that differ, `8 to 48`.
fn sizes_text(sizes: &[usize]) -> String {
    match (sizes.iter().min(), sizes.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) if sizes.len() > SIZES_LISTED => format!("{least} to {most}"),
        _ => sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The set of a CPU at one level.
type SetOf = fn(&Topology, Cpu) -> CpuMask;

/// The levels of a topology by name.
fn levels() -> [(&'static str, SetOf); 5] {
    [
        ("cores", |t, c| *t.smt(c)),
        ("L2", |t, c| *t.l2(c)),
        ("LLC", |t, c| *t.llc(c)),
        ("packages", |t, c| *t.package_cpus(c)),
        ("nodes", |t, c| *t.node_cpus(t.node(c))),
    ]
}

fn show_kernel(args: &ShowArgs) -> Result<Done, Failure> {
    let choice = kernel(&args.name)?;
    let values = to_json(&choice.release)?;
    if args.form.json {
        return Ok(Done::json(&json!({
            "schema": "vruntime/show/1",
            "kind": "kernel",
            "seed_offset": choice.seed_offset,
            "kernel": values,
        })));
    }
    let mut out = String::new();
    for &(name, doc) in Release::FIELDS {
        let value = match &values[name] {
            Value::String(s) => s.clone(),
            Value::Bool(b) => if *b { "on" } else { "off" }.into(),
            other => other.to_string(),
        };
        // What is longer than its column has the line to itself.
        let value =
            if value.len() > 16 { value + "\n" + &" ".repeat(45) } else { format!("{value:16}") };
        writeln!(out, "{name:28} {value} {}", doc.trim()).expect("a string grows");
    }
    Ok(Done::new(out))
}

fn show_workload(args: &ShowArgs) -> Result<Done, Failure> {
    if let Some(e) = workloads().find(|e| e.name == args.name) {
        if args.form.json {
            return Ok(Done::json(&json!({
                "schema": "vruntime/show/1",
                "kind": "workload",
                "name": e.name,
                "synopsis": e.synopsis,
                "description": e.description,
            })));
        }
        return Ok(Done::new(format!("{}\n{}\n", e.synopsis, e.description)));
    }
    let w = super::workload(&args.name)?;
    if args.form.json {
        return Ok(Done::json(&json!({
            "schema": "vruntime/show/1",
            "kind": "workload",
            "command_line": w.command_line(),
            "description": w.description(),
        })));
    }
    Ok(Done::new(format!("{}\n{}\n", w.command_line(), w.description())))
}

fn show_study(args: &ShowArgs) -> Result<Done, Failure> {
    let s = study_file::study(&args.name)?;
    if args.form.json {
        return Ok(Done::json(&json!({
            "schema": "vruntime/show/1",
            "kind": "study",
            "name": s.name,
            "title": s.title,
            "source": s.source,
            "kernels": s.kernels,
            "cases": to_json(&s.cases)?,
            "rows": to_json(&s.rows)?,
            "questions": to_json(&s.questions)?,
            "notes": to_json(&s.notes)?,
        })));
    }
    let mut out = String::new();
    study_text(&mut out, &s).expect("a string grows");
    Ok(Done::new(out))
}

fn study_text(out: &mut String, s: &Study) -> std::fmt::Result {
    write!(out, "{}\n{}\n{}", s.title, s.source, kernel_names(&s.kernels))?;
    for c in &s.cases {
        writeln!(out, "\n{}: {}", c.id, settings(s, c))?;
        let of_case = s.rows.iter().filter(|r| r.case == c.id);
        let rows: Vec<_> = of_case.map(|r| published_row(s, r)).collect();
        write!(out, "{}", published_text(&rows))?;
    }
    for q in &s.questions {
        let words = q.words.as_deref().unwrap_or("(the study's file says nothing of it)");
        writeln!(out, "\n{}\n{}", q.text, words.trim())?;
    }
    s.notes.iter().try_for_each(|n| writeln!(out, "\n{}\n{}", n.title, n.text.trim()))
}
