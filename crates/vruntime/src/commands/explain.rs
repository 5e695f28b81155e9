//! `vruntime explain`

use crate::batch::{Batch, run_specs};
use crate::cli::ExplainArgs;
use crate::explain::{Point, Question, answer, answer_so_far};
use crate::failure::{Done, Failure};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vruntime_kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime_machine::{hint, nearest_name};
use vruntime_measure::explain::Explanation;
use vruntime_measure::{Counting, METRICS, Metric, metrics};
use vruntime_report::explain_text;

/// Divides the difference of two kernels, and reports it.
pub fn explain(args: &ExplainArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    if args.kernel.len() != 2 {
        return Err(Failure::Usage("explain: give -k twice, the first is the base".into()));
    }
    if let Some((_, twice)) =
        args.tries.iter().enumerate().find(|(i, k)| args.tries[..*i].contains(k))
    {
        return Err(Failure::Usage(format!("explain: --try names `{twice}` twice")));
    }
    let batch = super::batch(s, &args.kernel, (1..=args.seeds).collect())?;
    let tries = if args.tries.is_empty() { Knockout::ALL } else { &args.tries };
    let split = usize::from(args.split);
    let mut known = Known::new();
    let e = explanation(&batch, &args.metric, tries, split, &args.plant, &mut known)?;
    super::note_tails(batch.sampling, known.values());
    if !s.form.json {
        return Ok(Done::new(explain_text(&e, "")).interrupted(e.interrupted));
    }
    let mut value = super::to_json(&e)?;
    value["sampling"] = super::sampling_json(batch.sampling);
    Ok(Done::json(&value).interrupted(e.interrupted))
}

/// Runs that are through, by all that they depend on: questions about the same kernels share them.
pub type Known = BTreeMap<String, RunRecord>;

/// Runs what it takes to divide the difference in `metric` between the two kernels of `batch`, but
/// for what is `known`.
pub fn explanation(
    batch: &Batch,
    metric: &str,
    tries: &[Knockout],
    split: usize,
    plant: &[(String, u32)],
    known: &mut Known,
) -> Result<Explanation, Failure> {
    if !METRICS.contains(&metric) {
        let hint = hint(nearest_name(metric, METRICS.into_iter()));
        let all = METRICS.join(", ");
        return Err(Failure::Usage(format!(
            "explain: no metric named `{metric}`{hint}; there are: {all}"
        )));
    }
    let mut counting = match batch.sampling {
        Sampling::Full { .. } => Counting::Totals,
        Sampling::Window { .. } => Counting::Rates,
    };
    let (mut unit, given_up) = (None, RefCell::new(BTreeSet::new()));
    let mut run = |points: &[Point], counting| -> Result<Vec<f64>, Failure> {
        let spec = |p: &Point| RunSpec {
            seed: p.seed,
            sampling: batch.sampling,
            checks: batch.checks,
            variation: Variation {
                without: p.without.iter().fold(batch.variation.without, |set, &k| set.with(k)),
                extra: p.extra.clone(),
                draw: None,
            },
            ..RunSpec::new(
                Arc::clone(&batch.machine),
                p.release.clone(),
                Arc::clone(&batch.workload),
            )
        };
        let specs: Vec<RunSpec> = points.iter().map(spec).collect();
        let keys = specs.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let new = keys.iter().zip(&specs).filter(|(key, _)| !known.contains_key(*key));
        let (new, specs): (Vec<String>, Vec<RunSpec>) =
            new.map(|(key, spec)| (key.clone(), spec.clone())).unzip();
        for (key, record) in new.into_iter().zip(run_specs(&specs, batch.threads, batch.quiet)?) {
            known.extend(record.map(|r| (key, r)));
        }
        let value = |key: &String| {
            let record = known.get(key).ok_or(Failure::Interrupted)?;
            if matches!(batch.sampling, Sampling::Full { .. }) && !record.complete {
                given_up.borrow_mut().insert(key.clone());
            }
            let all = metrics(record, counting);
            let m = find(&all, metric)?;
            unit = Some(m.unit);
            Ok(m.value)
        };
        keys.iter().map(value).collect()
    };
    let [a, b] = &batch.kernels[..] else { unreachable!("two kernels were given") };
    let question = Question {
        releases: [&a.release, &b.release],
        offsets: [a.seed_offset, b.seed_offset],
        plant,
        seeds: &batch.seeds,
        tries,
        split,
    };
    let mut ask = |counting| {
        let run = &mut |points: &[Point]| run(points, counting);
        match answer(&question, run) {
            Err(Failure::Interrupted) => {
                answer_so_far(&question, run).map(|e| Explanation { interrupted: true, ..e })
            }
            answer => answer,
        }
    };
    let mut e = ask(counting)?;
    if counting == Counting::Totals && !given_up.borrow().is_empty() {
        // Totals of runs that did not end say nothing; what they do a second does.
        counting = Counting::Rates;
        e = ask(counting)?;
    }
    (e.counting, e.given_up) = (counting, given_up.borrow().len());
    e.machine = batch.machine.name.clone();
    e.workload = batch.workload.command_line();
    e.metric = metric.into();
    e.unit = unit.unwrap_or_default();
    e.kernels = e.kernels.map(|k| format!("{k}{}", batch.variation.without));
    e.conclusion = e.conclude();
    Ok(e)
}

/// All that a run depends on.
fn key(s: &RunSpec) -> Result<String, Failure> {
    let release = serde_json::to_string(s.release.as_ref())
        .map_err(|e| Failure::Input(format!("kernel `{}`: {e}", s.release.name)))?;
    let machine = serde_json::to_string(s.machine.as_ref())
        .map_err(|e| Failure::Input(format!("machine `{}`: {e}", s.machine.name)))?;
    let workload = s.workload.command_line();
    let (seed, sampling, variation) = (s.seed, s.sampling, &s.variation);
    Ok(format!("{machine} {workload} {seed} {sampling:?} {variation:?} {release}"))
}

/// The metric `name` of a run.
fn find<'a>(all: &'a [Metric], name: &str) -> Result<&'a Metric, Failure> {
    all.iter().find(|m| m.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|m| m.name).collect();
        Failure::Usage(match name {
            "time" => "explain: a run's time cannot be known: a group made no progress in the \
                       window, or the run was given up; a longer --window or another --metric helps"
                .into(),
            _ => format!("explain: a run has no `{name}`; it has: {}", names.join(", ")),
        })
    })
}
