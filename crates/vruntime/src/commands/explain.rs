//! `vruntime explain`

use crate::batch::{Batch, run_specs};
use crate::cli::ExplainArgs;
use crate::explain::{Point, Question, answer, answer_so_far, whole};
use crate::failure::{Done, Failure};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime_machine::{hint, nearest_name};
use vruntime_measure::explain::Explanation;
use vruntime_measure::metrics::whole as whole_run;
use vruntime_measure::{Counting, METRICS, metrics};
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
    if let Some(k) = args.tries.iter().find(|&&k| s.without.contains(&k)) {
        let what =
            format!("explain: `{k}` is left out of every run by --without: --try finds nothing");
        return Err(Failure::Usage(what));
    }
    let batch = super::batch(s, &args.kernel, (1..=args.seeds).collect())?;
    let tries = if args.tries.is_empty() { Knockout::ALL } else { &args.tries };
    let split = usize::from(args.split);
    let mut known = Known::new();
    let e = explanation(&batch, &args.metric, tries, split, &args.plant, &|r| r.time, &mut known)?;
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
/// for what is `known`. `time_of` gives the benchmark's time by a run of it.
#[allow(clippy::too_many_arguments)]
pub fn explanation(
    batch: &Batch,
    metric: &str,
    tries: &[Knockout],
    split: usize,
    plant: &[(String, u32)],
    time_of: &dyn Fn(&RunRecord) -> Option<Ns>,
    known: &mut Known,
) -> Result<Explanation, Failure> {
    if !METRICS.contains(&metric) {
        let hint = hint(nearest_name(metric, METRICS.into_iter()));
        let all = METRICS.join(", ");
        return Err(Failure::Usage(format!(
            "explain: no metric named `{metric}`{hint}; there are: {all}"
        )));
    }
    let (mut unit, given_up) = (None, RefCell::new(BTreeSet::new()));
    // Of the runs that were looked at: whether some measured a part only, whose seeds do not know
    // the metric, and what one of those does know.
    let (partial, unknown) = (Cell::new(false), RefCell::new(BTreeSet::new()));
    let has: RefCell<Vec<&str>> = RefCell::default();
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
            let timed = |mut r: RunRecord| {
                r.time = time_of(&r);
                r
            };
            known.extend(record.map(|r| (key, timed(r))));
        }
        let value = |(key, point): (&String, &Point)| {
            let record = known.get(key).ok_or(Failure::Interrupted)?;
            if matches!(batch.sampling, Sampling::Full { .. }) && !record.complete {
                given_up.borrow_mut().insert(key.clone());
            }
            partial.set(partial.get() || !whole_run(record));
            let all = metrics(record, counting);
            let Some(m) = all.iter().find(|m| m.name == metric) else {
                unknown.borrow_mut().insert(point.of);
                *has.borrow_mut() = all.iter().map(|m| m.name).collect();
                return Ok(f64::NAN);
            };
            unit = Some(m.unit);
            Ok(m.value)
        };
        keys.iter().zip(points).map(value).collect()
    };
    let [a, b] = &batch.kernels[..] else { unreachable!("two kernels were given") };
    let mut seeds = batch.seeds.clone();
    let mut counting = Counting::Totals;
    // The kernels as they are say what is to be left out before anything is taken apart.
    let mut first = true;
    let mut e = loop {
        partial.set(false);
        unknown.borrow_mut().clear();
        let q = Question {
            releases: [&a.release, &b.release],
            offsets: [a.seed_offset, b.seed_offset],
            plant,
            seeds: &seeds,
            tries,
            split,
        };
        let run = &mut |points: &[Point]| run(points, counting);
        let e = match std::mem::take(&mut first) {
            true => whole(&q, run).map(|()| None),
            false => answer(&q, run).map(Some),
        };
        let e = match e {
            Err(Failure::Interrupted) => {
                answer_so_far(&q, run).map(|e| Some(Explanation { interrupted: true, ..e }))
            }
            e => e,
        }?;
        let before = (counting, seeds.len());
        if partial.get() {
            // Totals of runs that did not end say nothing; what they do a second does.
            counting = Counting::Rates;
        }
        seeds.retain(|seed| !unknown.borrow().contains(seed));
        if seeds.is_empty() {
            return Err(not_known(metric, &has.borrow()));
        }
        match e {
            Some(e) if before == (counting, seeds.len()) => break e,
            _ => {}
        }
    };
    e.left_out = batch.seeds.iter().copied().filter(|seed| !seeds.contains(seed)).collect();
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

/// Every seed has a run without the metric `name`, one of which has those.
fn not_known(name: &str, has: &[&str]) -> Failure {
    Failure::Usage(match name {
        "time" => "explain: a run's time cannot be known: a group made no progress in the \
                   window, or the run was given up; a longer --window or another --metric helps"
            .into(),
        _ => format!("explain: a run has no `{name}`; it has: {}", has.join(", ")),
    })
}
