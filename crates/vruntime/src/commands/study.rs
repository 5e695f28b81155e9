//! `vruntime study`

use super::explain::explanation;
use crate::batch::{Batch, run_specs};
use crate::cli::StudyArgs;
use crate::failure::{Done, Failure};
use crate::interrupt;
use crate::machine_choice::machine;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::study_file::{
    Case, Effect as Published, Effort, Fit, FittedCosts, Span, Study, StudyQuestion, TimeFrom,
    study as read_study,
};
use vruntime_kernel::program::{Shortened, Workload};
use vruntime_kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime_machine::{MachineSpec, nearest_name};
use vruntime_measure::explain::Explanation;
use vruntime_measure::study::{Effect, METRICS, StudyRow, change_pct, score, study_metric};
use vruntime_report::study::{StudyReport, study_page, study_text};

/// Rounds of the fit; each halves the range.
const FIT_ROUNDS: usize = 6;

/// Lists the studies, or runs one.
pub fn study(args: &StudyArgs) -> Result<Done, Failure> {
    if args.name == "list" {
        return super::list::list(&crate::cli::ListArgs {
            what: super::list::What::Studies,
            json: args.json,
        });
    }
    let study = read_study(&args.name)
        .map_err(|e| if e.is_usage() { Failure::Usage } else { Failure::Input }(e.to_string()))?;
    let metrics = study.rows.iter().map(|r| (&r.id, r.metric.as_str()));
    if let Some((id, metric)) = metrics.into_iter().find(|(_, m)| !METRICS.contains(m)) {
        let near =
            nearest_name(metric, METRICS.iter().copied()).map(|n| format!(", nearest is `{n}`"));
        let near = near.unwrap_or_default();
        return Err(Failure::Input(format!(
            "study `{}`, `{id}`: no metric `{metric}`{near}",
            study.name
        )));
    }
    let mut lab = Lab::new(&study, args)?;
    if args.fit {
        return lab.fit();
    }
    lab.report(args)
}

/// What is run under one key.
type Key = (String, String, String);

/// What is complete: records of each key by seed.
type Records = BTreeMap<Key, Vec<RunRecord>>;

/// A study being carried out.
struct Lab<'a> {
    study: &'a Study,
    effort: Effort,
    machines: BTreeMap<String, Arc<MachineSpec>>,
    threads: usize,
    quiet: bool,
}

fn key(case: &Case, after: bool) -> Key {
    let kernel = if after { &case.after } else { &case.before };
    (case.machine.clone(), kernel.clone(), case.workload.clone())
}

impl Lab<'_> {
    fn new<'a>(study: &'a Study, args: &StudyArgs) -> Result<Lab<'a>, Failure> {
        let mut effort = if args.quick { study.quick } else { study.full };
        effort.seeds = args.seeds.unwrap_or(effort.seeds);
        let mut machines = BTreeMap::new();
        for case in &study.cases {
            if machines.contains_key(&case.machine) {
                continue;
            }
            let mut spec = machine(&case.machine)?;
            if let (Some(fitted), Some(fit), false) =
                (&study.fitted, study.fit_of(&case.machine), args.fit)
            {
                multiply(&mut spec, fitted.costs, fit.permille);
            }
            machines.insert(case.machine.clone(), Arc::new(spec));
        }
        let threads = args.threads as usize;
        Ok(Lab { study, effort, machines, threads, quiet: args.quiet })
    }

    /// Runs every key with every seed of `effort`; after ^C those are missing of which a seed is.
    fn run(
        &self,
        keys: &[Key],
        effort: &Effort,
        variation: &Variation,
    ) -> Result<Records, Failure> {
        let mut specs = Vec::new();
        let mut loops = Vec::new();
        for (machine, expression, workload) in keys {
            let choice = kernel(expression)?;
            let release = Arc::new(choice.release);
            let Part { workload, sampling, whole, part } = part(workload, effort)?;
            loops.push((whole, part));
            specs.extend((1..=effort.seeds).map(|seed| RunSpec {
                machine: Arc::clone(&self.machines[machine]),
                release: Arc::clone(&release),
                workload: Arc::clone(&workload),
                seed: seed.wrapping_add(choice.seed_offset),
                sampling,
                checks: false,
                variation: variation.clone(),
                timeline: 0,
            }));
        }
        let records = run_specs(&specs, self.threads, self.quiet)?;
        let mut complete = Records::new();
        for ((key, (whole, part)), of_key) in
            keys.iter().zip(loops).zip(records.chunks(effort.seeds as usize))
        {
            let Some(mut of_key) = of_key.iter().cloned().collect::<Option<Vec<_>>>() else {
                continue;
            };
            for record in &mut of_key {
                record.time = record.time.map(|t| t.mul_div(whole.into(), part.into()));
            }
            complete.insert(key.clone(), of_key);
        }
        Ok(complete)
    }

    /// Every key of the study once.
    fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for case in &self.study.cases {
            for k in [key(case, false), key(case, true)] {
                if !keys.contains(&k) {
                    keys.push(k);
                }
            }
        }
        keys
    }

    /// Mean of a metric over the runs of a key; `None` if a run does not know it.
    fn value(records: &[RunRecord], effort: &Effort, metric: &str) -> Option<f64> {
        let all_groups = matches!(effort.span(), Span::Window { time: TimeFrom::AllGroups, .. });
        let known: Option<Vec<f64>> =
            records.iter().map(|r| study_metric(metric, r, all_groups)).collect();
        vruntime_measure::stats::mean(&known?)
    }

    fn rows(&self, records: &Records, effort: &Effort) -> Vec<StudyRow> {
        let published = |e: Published| match e {
            Published::Improves => Effect::Improves,
            Published::Worsens => Effect::Worsens,
            Published::Neutral => Effect::Neutral,
        };
        let row = |r: &vruntime_formats::study_file::PublishedRow| {
            let case = self.case(&r.case);
            let value = |after| Self::value(records.get(&key(case, after))?, effort, &r.metric);
            let mut row = StudyRow {
                id: r.id.clone(),
                case: r.case.clone(),
                metric: r.metric.clone(),
                published_before: r.before,
                published_after: r.after,
                published_delta_pct: change_pct(r.before, r.after),
                modelled_before: None,
                modelled_after: None,
                modelled_delta_pct: None,
                effect_published: published(r.effect),
                effect_modelled: None,
                fitted: self.study.fits.iter().any(|f| f.rows.contains(&r.id)),
                scored: r.scored,
                derived: r.derived,
                stable: None,
            };
            let band = self.study.neutral_pct.get(&r.metric).copied().unwrap_or(0.0);
            row.model(value(false), value(true), band);
            row
        };
        self.study.rows.iter().map(row).collect()
    }

    fn case(&self, id: &str) -> &Case {
        self.study.cases.iter().find(|c| c.id == id).expect("the reader has checked")
    }

    /// Draws cost tables, with the effort of a quick run, and counts in how many each effect stays.
    fn uncertainty(&self, rows: &mut [StudyRow], draws: u64) -> Result<(), Failure> {
        for n in 1..=draws {
            let variation = Variation { draw: Some(n), ..Variation::default() };
            let effort = &self.study.quick;
            let drawn = self.run(&self.keys(), effort, &variation)?;
            if interrupt::seen() {
                break;
            }
            for (row, drawn) in rows.iter_mut().zip(self.rows(&drawn, effort)) {
                let (kept, of) = row.stable.unwrap_or_default();
                row.stable = Some((kept + usize::from(row.keeps_effect(&drawn)), of + 1));
            }
        }
        Ok(())
    }

    fn report(&self, args: &StudyArgs) -> Result<Done, Failure> {
        let records = self.run(&self.keys(), &self.effort, &Variation::default())?;
        if records.is_empty() {
            return Err(Failure::Interrupted);
        }
        let mut rows = self.rows(&records, &self.effort);
        let mut answers = Vec::new();
        if args.explain {
            for q in &self.study.questions {
                match self.answer(q) {
                    Err(Failure::Interrupted) => break,
                    answer => answers.push(answer?),
                }
            }
        }
        if let Some(draws) = args.uncertainty.filter(|_| !interrupt::seen()) {
            self.uncertainty(&mut rows, draws)?;
        }
        let interrupted = interrupt::seen();
        let score = score(&rows, self.study.fits.len());
        if args.json {
            let report = json!({
                "schema": "vruntime/study/1",
                "study": self.study.name,
                "quick": args.quick,
                "seeds": self.effort.seeds,
                "sampling": match self.effort.span() {
                    Span::Shortened(by) => json!({"mode": "shortened", "loops_divided_by": by}),
                    Span::Window { warmup_ms, window_ms, .. } => {
                        super::sampling_json(window(warmup_ms, window_ms))
                    }
                },
                "time_from": match self.effort.span() {
                    Span::Shortened(_) => "end",
                    Span::Window { time: TimeFrom::SlowestGroup, .. } => "slowest-group",
                    Span::Window { time: TimeFrom::AllGroups, .. } => "all-groups",
                },
                "rows": super::to_json(&rows)?,
                "score": super::to_json(&score)?,
                "answers": super::to_json(&answers.iter().map(|a| &a.2).collect::<Vec<_>>())?,
                "interrupted": interrupted,
            });
            return Ok(Done::json(&report).interrupted(interrupted));
        }
        let cases: Vec<(String, String)> =
            self.study.cases.iter().map(|c| (c.id.clone(), self.describe(c))).collect();
        let drawn = rows.iter().find_map(|r| r.stable).map_or(0, |(_, of)| of);
        let effort = self.describe_effort(args.quick, drawn, interrupted);
        let options = [
            args.quick.then(|| " --quick".to_string()),
            args.seeds.map(|n| format!(" --seeds {n}")),
            args.uncertainty.map(|n| format!(" --uncertainty {n}")),
            args.explain.then(|| " --explain".to_string()),
        ];
        let options: String = options.into_iter().flatten().collect();
        let command = format!("vruntime study {}{options} --page", self.study.name);
        let report = StudyReport {
            name: &self.study.name,
            title: &self.study.title,
            source: &self.study.source,
            notes: &self.study.notes,
            effort: &effort,
            command: &command,
            cases: &cases,
            rows: &rows,
            score: &score,
            answers: &answers,
        };
        let text = if args.page { study_page(&report) } else { study_text(&report) };
        Ok(Done::new(text).interrupted(interrupted))
    }

    fn describe(&self, c: &Case) -> String {
        let short = |expression: &str| {
            let named = self
                .study
                .kernels
                .iter()
                .filter(|(_, whole)| expression.starts_with(whole.as_str()));
            match named.max_by_key(|(_, whole)| whole.len()) {
                Some((name, whole)) => format!("{name}{}", &expression[whole.len()..]),
                None => expression.to_string(),
            }
        };
        format!("{} on {}, {} against {}", c.workload, c.machine, short(&c.after), short(&c.before))
    }

    fn describe_effort(&self, quick: bool, drawn: usize, interrupted: bool) -> String {
        let draws = match drawn {
            0 => String::new(),
            n => format!(
                " Cost tables drawn between low and high: {n}, each {}.",
                describe(&self.study.quick)
            ),
        };
        format!(
            "{}Simulated: {}.{draws}{}{}",
            if quick { "QUICK RUN: figures are rough. " } else { "" },
            describe(&self.effort),
            if interrupted { " Ended by ^C: what was not complete is missing." } else { "" },
            self.describe_fits()
        )
    }

    /// What was fitted, each in a sentence that begins with a blank.
    fn describe_fits(&self) -> String {
        let Some(fitted) = &self.study.fitted else { return String::new() };
        let costs = match fitted.costs {
            FittedCosts::Path => "all path costs",
            FittedCosts::LineTransfer => "line transfers between cores",
        };
        let sentence = |f: &Fit| {
            format!(
                " Fitted on {} figures before the change: {costs} of {}, {:.3} times the machine \
                 file's ({} to {} allowed: {}); residual {} %.",
                f.rows.len(),
                f.machine,
                f64::from(f.permille) / 1000.0,
                f64::from(fitted.low) / 1000.0,
                f64::from(fitted.high) / 1000.0,
                fitted.source,
                f.residual_pct
            )
        };
        self.study.fits.iter().map(sentence).collect()
    }

    fn answer(&self, q: &StudyQuestion) -> Result<(String, String, Explanation), Failure> {
        let (case, effort) = (self.case(&q.case), &self.study.explain);
        let tries: Vec<Knockout> = q
            .knockouts
            .iter()
            .map(|word| crate::cli::knockout(word))
            .collect::<Result<_, _>>()
            .map_err(|e| Failure::Input(format!("study `{}`, `{}`: {e}", self.study.name, q.id)))?;
        let Part { workload, sampling, .. } = part(&case.workload, effort)?;
        let batch = Batch {
            timeline: 0,
            machine: Arc::clone(&self.machines[&case.machine]),
            kernels: vec![kernel(&case.before)?, kernel(&case.after)?],
            workload,
            seeds: (1..=q.seeds.unwrap_or(effort.seeds)).collect(),
            sampling,
            variation: Variation::default(),
            threads: self.threads,
            checks: false,
            quiet: self.quiet,
        };
        let e = explanation(&batch, &q.metric, &tries, q.split, &[])?;
        let command = if self.study.fit_of(&case.machine).is_some() {
            // The machine of this study is not the one that -m would name.
            format!("vruntime study {} --explain", self.study.name)
        } else {
            format!(
                "vruntime explain -m {} -k '{}' -k '{}' -w '{}' --metric {} --try {} --split {} \
                 --seeds {} {}",
                case.machine,
                case.before,
                case.after,
                batch.workload.command_line(),
                q.metric,
                q.knockouts.join(","),
                q.split,
                batch.seeds.len(),
                match effort.span() {
                    Span::Shortened(_) => "--full".to_string(),
                    Span::Window { warmup_ms, window_ms, .. } =>
                        format!("--warmup {warmup_ms}ms --window {window_ms}ms"),
                }
            )
        };
        Ok((q.text.clone(), command, e))
    }

    /// Fits one number a machine on the times before the change, and prints it for the file.
    fn fit(&mut self) -> Result<Done, Failure> {
        let Some(fitted) = self.study.fitted.clone() else {
            let what =
                format!("study `{}` has no [fitted]: nothing may be fitted", self.study.name);
            return Err(Failure::Usage(what));
        };
        let mut out = String::new();
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            let mut base: Vec<(Key, f64, Vec<String>)> = Vec::new();
            for r in self.study.rows.iter().filter(|r| r.metric == "time" && r.scored) {
                let case = self.case(&r.case);
                let k = key(case, false);
                match base.iter_mut().find(|b| b.0 == k) {
                    _ if case.machine != name => {}
                    Some(b) => b.2.push(r.id.clone()),
                    None => base.push((k, r.before, vec![r.id.clone()])),
                }
            }
            if base.is_empty() {
                continue;
            }
            let plain = Arc::clone(&self.machines[&name]);
            let keys: Vec<Key> = base.iter().map(|b| b.0.clone()).collect();
            let (mut low, mut high) = (fitted.low, fitted.high);
            let mut best = (0, f64::INFINITY);
            for _ in 0..FIT_ROUNDS {
                // Times grow with costs, so the sign of the mean error says where to go on.
                let permille = low.midpoint(high);
                let mut spec = (*plain).clone();
                multiply(&mut spec, fitted.costs, permille);
                self.machines.insert(name.clone(), Arc::new(spec));
                let records = self.run(&keys, &self.effort, &Variation::default())?;
                let mut logs = Vec::new();
                for (k, published, _) in &base {
                    let no_time = "fit: a group made no progress, or a benchmark was given up";
                    let of_key = records.get(k).ok_or(Failure::Interrupted)?;
                    let got = Self::value(of_key, &self.effort, "time");
                    let got = got.ok_or_else(|| Failure::Usage(no_time.into()))?;
                    logs.push((published / got).ln());
                }
                let mean = logs.iter().sum::<f64>() / logs.len() as f64;
                let squares = logs.iter().map(|x| x * x).sum::<f64>() / logs.len() as f64;
                let residual = 100.0 * squares.sqrt();
                if residual < best.1 {
                    best = (permille, residual);
                }
                *(if mean > 0.0 { &mut low } else { &mut high }) = permille;
            }
            let (permille, residual) = best;
            let ids: Vec<String> =
                base.iter().flat_map(|b| &b.2).map(|id| format!("\"{id}\"")).collect();
            out += &format!(
                "[[fit]]\nmachine = \"{name}\"\nrows = [{}]\npermille = {permille}\n\
                 residual_pct = {residual:.1}\n",
                ids.join(", ")
            );
        }
        Ok(Done::new(out))
    }
}

/// How a benchmark is simulated, and how often.
fn describe(effort: &Effort) -> String {
    let simulated = match effort.span() {
        Span::Shortened(by) => {
            format!("benchmarks to their end with 1/{by} of their loops, times multiplied by {by}")
        }
        Span::Window { warmup_ms, window_ms, time } => {
            let from = match time {
                TimeFrom::SlowestGroup => "the slowest group's progress",
                TimeFrom::AllGroups => "the progress of all groups together",
            };
            format!(
                "{window_ms} ms after {warmup_ms} ms of warm-up, times extrapolated from {from} \
                 in that window"
            )
        }
    };
    format!("{simulated}; {} seed(s)", effort.seeds)
}

/// What is simulated of a workload: `part` of its `whole` loops.
struct Part {
    workload: Arc<dyn Workload>,
    sampling: Sampling,
    whole: u32,
    part: u32,
}

fn part(command: &str, effort: &Effort) -> Result<Part, Failure> {
    let workload = super::workload(command)?;
    match effort.span() {
        Span::Window { warmup_ms, window_ms, .. } => {
            Ok(Part { workload, sampling: window(warmup_ms, window_ms), whole: 1, part: 1 })
        }
        Span::Shortened(by) => {
            let Some(Shortened { workload, whole, part }) = workload.shortened(by) else {
                let what = format!("loops_divided_by: `{command}` cannot be shortened");
                return Err(Failure::Input(what));
            };
            Ok(Part {
                workload,
                sampling: Sampling::Full { limit: super::FULL_LIMIT },
                whole,
                part,
            })
        }
    }
}

fn window(warmup_ms: u64, window_ms: u64) -> Sampling {
    Sampling::Window { warmup: Ns::from_ms(warmup_ms), window: Ns::from_ms(window_ms) }
}

/// Multiplies `costs` by `permille`/1000: their middle values and their ranges.
fn multiply(spec: &mut MachineSpec, costs: FittedCosts, permille: u32) {
    match costs {
        FittedCosts::Path => spec.path_permille.scale(permille),
        FittedCosts::LineTransfer => {
            let line = &mut spec.costs.line_transfer;
            for cost in [&mut line.llc, &mut line.package, &mut line.remote] {
                cost.scale(permille);
            }
        }
    }
}
