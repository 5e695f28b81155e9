//! `vruntime explain`

use crate::batch::{Batch, run_specs};
use crate::cli::ExplainArgs;
use crate::explain::{Point, Question, answer, answer_so_far, whole};
use crate::failure::{Done, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime_machine::{hint, nearest_name};
use vruntime_measure::explain::Explanation;
use vruntime_measure::metrics::whole as whole_run;
use vruntime_measure::{Counting, metric_names, metrics};
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
    let asked = Asked {
        batch: &batch,
        metric: &args.metric,
        tries,
        split: usize::from(args.split),
        plant: &args.plant,
        time_of: &|r| r.time,
    };
    let mut known = Known::new();
    let e = explanation(&asked, &mut known)?;
    super::note_windows(&batch, known.values());
    if !s.form.json {
        return Ok(Done::new(explain_text(&e, "")).interrupted(e.interrupted));
    }
    let mut value = super::to_json(&e)?;
    value["sampling"] = super::sampling_json(batch.sampling);
    Ok(Done::json(&value).interrupted(e.interrupted))
}

/// Runs that are through, by all that they depend on: questions about the same kernels share them.
pub type Known = BTreeMap<String, RunRecord>;

/// What is to be divided, and into what.
pub struct Asked<'a> {
    /// The two kernels, and how they are run.
    pub batch: &'a Batch,
    /// One of [`metric_names`].
    pub metric: &'a str,
    /// Knock-outs to try.
    pub tries: &'a [Knockout],
    /// How many of them to take apart.
    pub split: usize,
    /// Costs added under the second kernel.
    pub plant: &'a [(String, u32)],
    /// The benchmark's time by a run of it.
    pub time_of: &'a dyn Fn(&RunRecord) -> Option<Ns>,
}

/// Runs what it takes to divide the difference in `asked.metric` between the two kernels, but for
/// what is `known`.
pub fn explanation(asked: &Asked, known: &mut Known) -> Result<Explanation, Failure> {
    let Asked { batch, metric, .. } = *asked;
    if !metric_names().any(|name| name == metric) {
        let hint = hint(nearest_name(metric, metric_names()));
        let all = metric_names().collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!(
            "explain: no metric named `{metric}`{hint}; there are: {all}"
        )));
    }
    let [a, b] = &batch.kernels[..] else { unreachable!("two kernels were given") };
    let mut runs = Runs {
        asked,
        known,
        counting: Counting::Totals,
        unit: None,
        given_up: BTreeSet::new(),
        partial: false,
        unknown: BTreeSet::new(),
        has: Vec::new(),
    };
    let mut seeds = batch.seeds.clone();
    // The kernels as they are say what is to be left out before anything is taken apart.
    let mut first = true;
    let mut e = loop {
        runs.partial = false;
        runs.unknown.clear();
        let q = Question {
            releases: [&a.release, &b.release],
            offsets: [a.seed_offset, b.seed_offset],
            plant: asked.plant,
            seeds: &seeds,
            tries: asked.tries,
            split: asked.split,
        };
        let run = &mut |points: &[Point]| runs.values(points);
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
        let before = (runs.counting, seeds.len());
        if runs.partial {
            // Totals of runs that did not end say nothing; what they do a second does.
            runs.counting = Counting::Rates;
        }
        seeds.retain(|seed| !runs.unknown.contains(seed));
        if seeds.is_empty() {
            return Err(not_known(metric, &runs.has));
        }
        match e {
            Some(e) if before == (runs.counting, seeds.len()) => break e,
            _ => {}
        }
    };
    e.left_out = batch.seeds.iter().copied().filter(|seed| !seeds.contains(seed)).collect();
    (e.counting, e.given_up) = (runs.counting, runs.given_up.len());
    e.machine = batch.machine.name.clone();
    e.workload = batch.workload.command_line();
    e.metric = metric.into();
    e.unit = runs.unit.unwrap_or_default();
    e.kernels = e.kernels.map(|k| format!("{k}{}", batch.variation.without));
    e.conclusion = e.conclude();
    Ok(e)
}

/// Makes the runs that a question asks for, and keeps what they say of the question.
struct Runs<'a> {
    asked: &'a Asked<'a>,
    known: &'a mut Known,
    counting: Counting,
    unit: Option<&'static str>,
    /// Runs that were to end and did not.
    given_up: BTreeSet<String>,
    /// A run that was looked at measured a part only.
    partial: bool,
    /// Seeds with a run that does not know the metric.
    unknown: BTreeSet<u64>,
    /// What the last of those does know.
    has: Vec<&'static str>,
}

impl Runs<'_> {
    /// The metric at each point; not a number where its run does not know it.
    fn values(&mut self, points: &[Point]) -> Result<Vec<f64>, Failure> {
        let Asked { batch, time_of, .. } = *self.asked;
        let specs: Vec<RunSpec> = points.iter().map(|p| spec(batch, p)).collect();
        let keys = specs.iter().map(key).collect::<Result<Vec<_>, _>>()?;
        let new = keys.iter().zip(&specs).filter(|(key, _)| !self.known.contains_key(*key));
        let (new, specs): (Vec<String>, Vec<RunSpec>) =
            new.map(|(key, spec)| (key.clone(), spec.clone())).unzip();
        for (key, record) in new.into_iter().zip(run_specs(&specs, batch.threads, batch.quiet)?) {
            let timed = |mut r: RunRecord| {
                r.time = time_of(&r);
                r
            };
            self.known.extend(record.map(|r| (key, timed(r))));
        }
        keys.iter().zip(points).map(|(key, point)| self.value(key, point)).collect()
    }

    fn value(&mut self, key: &str, point: &Point) -> Result<f64, Failure> {
        let record = self.known.get(key).ok_or(Failure::Interrupted)?;
        if matches!(self.asked.batch.sampling, Sampling::Full { .. }) && !record.complete {
            self.given_up.insert(key.into());
        }
        self.partial |= !whole_run(record);
        let all = metrics(record, self.counting);
        let Some(m) = all.iter().find(|m| m.name == self.asked.metric) else {
            self.unknown.insert(point.of);
            self.has = all.iter().map(|m| m.name).collect();
            return Ok(f64::NAN);
        };
        self.unit = Some(m.unit);
        Ok(m.value)
    }
}

fn spec(batch: &Batch, p: &Point) -> RunSpec {
    RunSpec {
        seed: p.seed,
        sampling: batch.sampling,
        checks: batch.checks,
        variation: Variation {
            without: p.without.iter().fold(batch.variation.without, |set, &k| set.with(k)),
            extra: p.extra.clone(),
            draw: None,
        },
        ..RunSpec::new(Arc::clone(&batch.machine), p.release.clone(), Arc::clone(&batch.workload))
    }
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
