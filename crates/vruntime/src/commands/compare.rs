//! `vruntime compare`

use super::compare_rows::{Row, rows};
use super::run_text::grouped;
use crate::batch::Records;
use crate::cli::CompareArgs;
use crate::duration::show;
use crate::failure::{Done, Failure};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use vruntime_base::Resource;
use vruntime_kernel::record::{RunRecord, Sampling};

/// What makes a difference significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sig {
    /// The 95 % confidence interval of the difference does not hold zero
    Interval,
    /// The difference exceeds the two half-widths 1.96 sd together, as mmtests prints its star
    Mmtests,
}

/// Causes or functions that are printed before the rest is left to `--json`.
const LINES: usize = 8;

/// Runs every kernel with every seed and compares.
pub fn compare(args: &CompareArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    if args.kernel.len() < 2 {
        return Err(Failure::Usage(
            "compare: give -k at least twice, the first is the base".into(),
        ));
    }
    let batch = super::batch(s, &args.kernel, (1..=args.seeds).collect())?;
    let records = batch.run()?;
    let paired = batch.kernels.iter().all(|k| k.seed_offset == batch.kernels[0].seed_offset);
    let rows = rows(&records.by_kernel, paired, args.sig);
    let done = if s.json {
        Done::json(&json(&records, &rows, batch.sampling, args.sig))
    } else {
        Done::new(text(&records, &rows))
    };
    Ok(done.interrupted(records.interrupted))
}

/// A map of one kernel's runs: name → sum over the seeds.
type Sums = BTreeMap<String, u64>;

/// What is counted by name: title, JSON key, and how to get it from a record.
type Kind = (&'static str, fn(&RunRecord, &mut Sums));

const SWITCHES: Kind = ("switches", |r, sums| add(sums, &r.switches));
const PLACEMENTS: Kind = ("placements", |r, sums| add(sums, &r.placements));
const MIGRATIONS: Kind = ("migrations", |r, sums| add(sums, &r.migrations));
const CPU_TIME: Kind = ("cpu_time", |r, sums| {
    for (func, on, d) in &r.cpu_time {
        let name = match on {
            Resource::None => func.name().to_string(),
            on => format!("{}, waiting for {}", func.name(), on.name()),
        };
        *sums.entry(name).or_default() += d.0;
    }
});

fn add(sums: &mut Sums, counts: &[(&'static str, u64)]) {
    for &(name, n) in counts {
        *sums.entry(name.to_string()).or_default() += n;
    }
}

/// Name → sum over the seeds, one for each kernel.
fn by_name(records: &Records, kind: Kind) -> BTreeMap<String, Vec<u64>> {
    let nr_kernels = records.by_kernel.len();
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (k, runs) in records.by_kernel.iter().enumerate() {
        let mut sums = Sums::new();
        runs.iter().for_each(|r| kind.1(r, &mut sums));
        for (name, n) in sums {
            all.entry(name).or_insert_with(|| vec![0; nr_kernels])[k] = n;
        }
    }
    all
}

fn json(records: &Records, rows: &[Row], sampling: Sampling, sig: Sig) -> Value {
    let first = &records.by_kernel[0][0];
    let map = |kind| {
        let names = by_name(records, kind).into_iter();
        Value::Object(names.map(|(name, n)| (name, json!(n))).collect::<Map<_, _>>())
    };
    json!({
        "schema": "vruntime/compare/1",
        "machine": first.machine,
        "workload": first.workload,
        "kernels": records.by_kernel.iter().map(|runs| &runs[0].kernel).collect::<Vec<_>>(),
        "seeds": records.by_kernel[0].len(),
        "sampling": super::sampling_json(sampling),
        "significance": format!("{sig:?}").to_lowercase(),
        "interrupted": records.interrupted,
        "rows": rows,
        "causes": {
            "switches": map(SWITCHES),
            "placements": map(PLACEMENTS),
            "migrations": map(MIGRATIONS),
        },
        "cpu_time": map(CPU_TIME),
    })
}

fn text(records: &Records, rows: &[Row]) -> String {
    let mut out = String::new();
    write_text(&mut out, records, rows).expect("a string grows");
    out
}

fn write_text(out: &mut String, records: &Records, rows: &[Row]) -> std::fmt::Result {
    let first = &records.by_kernel[0][0];
    writeln!(out, "{}", first.workload)?;
    writeln!(
        out,
        "{}, {} CPUs, {} tasks, {} seeds\n",
        first.machine,
        first.nr_cpus,
        first.nr_tasks,
        records.by_kernel[0].len()
    )?;
    let width = records.by_kernel.iter().map(|runs| runs[0].kernel.len()).max().unwrap_or(0);
    for row in rows {
        writeln!(out, "{}", row.metric)?;
        for (k, runs) in records.by_kernel.iter().enumerate() {
            let value = row.value[k].map_or("not known".into(), |v| match row.unit {
                "ns" => show(v as u64),
                _ => grouped(v as u64),
            });
            write!(out, "  {:width$}  {value:>18}", runs[0].kernel)?;
            match (k, row.delta_pct[k]) {
                (0, _) | (_, None) => writeln!(out)?,
                (_, Some(delta)) => {
                    let interval = row.ci_low_pct[k].zip(row.ci_high_pct[k]);
                    let interval =
                        interval.map_or(String::new(), |(a, b)| format!("  [{a:+.2}, {b:+.2}]"));
                    let star = if row.significant[k] == Some(true) { " *" } else { "" };
                    writeln!(out, "  {delta:+8.2} %{interval}{star}")?;
                }
            }
        }
    }
    for (title, kind) in [
        ("switches by cause", SWITCHES),
        ("placements by rule", PLACEMENTS),
        ("migrations by cause", MIGRATIONS),
        ("CPU time by function", CPU_TIME),
    ] {
        let mut names: Vec<_> = by_name(records, kind).into_iter().collect();
        names.sort_by_key(|(_, n)| std::cmp::Reverse(n.iter().copied().max()));
        if !names.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for (name, n) in names.iter().take(LINES) {
            let cell = |&n: &u64| if kind.0 == CPU_TIME.0 { show(n) } else { grouped(n) };
            let cells: Vec<String> = n.iter().map(|n| format!("{:>16}", cell(n))).collect();
            writeln!(out, "{}  {name}", cells.join(""))?;
        }
    }
    writeln!(out, "\n* the 95 % interval of the difference does not hold zero; sums are over seeds")
}
