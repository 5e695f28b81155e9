//! `vruntime study`

use super::explain::{Asked, Known, explanation};
use crate::batch::Batch;
use crate::cli::{Json, StudyArgs};
use crate::failure::{DONE, Done, Failure, INPUT};
use crate::interrupt;
use crate::lab::{Lab, part, shortened, window};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::study_file::{
    Case, Effort, Fit, FittedCosts, Span, Study, StudyQuestion, TimeFrom, study as read_study,
};
use vruntime_kernel::record::{Knockout, Variation};
use vruntime_machine::{hint, nearest_name};
use vruntime_measure::explain::Explanation;
use vruntime_measure::metric_names;
use vruntime_measure::study::{METRICS, score};
use vruntime_report::study::{Question, StudyReport, study_page, study_text};

/// Lists the studies, or runs one.
pub fn study(args: &StudyArgs) -> Result<Done, Failure> {
    if args.name == "list" {
        return super::list::list(&crate::cli::ListArgs {
            what: super::list::What::Studies,
            form: Json { json: args.form.json },
        });
    }
    let mut study = read_study(&args.name)?;
    if let Some(text) = &args.case {
        only(&mut study, text)?;
    }
    if let Some(seeds) = args.seeds {
        study.set_seeds(seeds);
    }
    if args.quick {
        (study.full, study.explain) = (study.quick, study.quick);
        study.cases.iter_mut().for_each(|c| c.loops_divided_by = None);
    }
    if args.quick || args.seeds.is_some() {
        study.cases.iter_mut().for_each(|c| c.seeds = None);
        study.questions.iter_mut().for_each(|q| q.seeds = None);
    }
    check(&study, args)?;
    let mut lab = Lab::new(&study, args)?;
    if args.fit {
        return lab.fit();
    }
    report(&lab, args)
}

/// Leaves of `study` the cases whose id contains `text`, and what belongs to them.
fn only(study: &mut Study, text: &str) -> Result<(), Failure> {
    let ids: Vec<&str> = study.cases.iter().map(|c| c.id.as_str()).collect();
    if !ids.iter().any(|id| id.contains(text)) {
        return Err(Failure::no_case(text, &ids));
    }
    study.cases.retain(|c| c.id.contains(text));
    let cases = &study.cases;
    let left = |id: &String| cases.iter().any(|c| c.id == *id);
    study.rows.retain(|r| left(&r.case));
    study.message_time.retain(left);
    study.questions.retain(|q| left(&q.case));
    study.fits.retain(|f| cases.iter().any(|c| c.machine == f.machine));
    Ok(())
}

/// Everything that the study names exists – of machines [`Lab::new`] says so; better known before
/// hours of runs than after them.
fn check(study: &Study, args: &StudyArgs) -> Result<(), Failure> {
    let wrong = |id: &str, what: String| Failure::from(study.wrong(id, what));
    let of_rows = study.rows.iter().map(|r| (r.id.as_str(), &r.metric));
    for (id, metric) in of_rows.chain(study.neutral_pct.keys().map(|m| ("neutral_pct", m))) {
        if !METRICS.contains(&metric.as_str()) {
            let near = hint(nearest_name(metric, METRICS.iter().copied()));
            return Err(wrong(id, format!("no metric `{metric}`{near}")));
        }
    }
    if let Some(r) = study.rows.iter().find(|r| !study.neutral_pct.contains_key(&r.metric)) {
        let what = format!("[neutral_pct] has no `{}`: expected up to which % is none", r.metric);
        return Err(wrong(&r.id, what));
    }
    for (name, expression) in &study.kernels {
        kernel(expression).map_err(|e| wrong(&format!("kernels.{name}"), e.to_string()))?;
    }
    let drawn = args.uncertainty.map(|_| study.of_draws());
    for c in &study.cases {
        for effort in [Some(&study.full), drawn].into_iter().flatten() {
            part(&c.workload, effort).map_err(|e| wrong(&c.id, e.to_string()))?;
        }
        if let Some(by) = c.loops_divided_by {
            shortened(&c.workload, by).map_err(|e| wrong(&c.id, e.to_string()))?;
        }
        for expression in [&c.before, &c.after] {
            kernel(expression).map_err(|e| wrong(&c.id, e.to_string()))?;
        }
    }
    for q in &study.questions {
        knockouts(q).map_err(|e| wrong(&q.id, e))?;
        if !metric_names().any(|name| name == q.metric) {
            let near = hint(nearest_name(&q.metric, metric_names()));
            return Err(wrong(&q.id, format!("no metric `{}`{near}", q.metric)));
        }
        let case = study.cases.iter().find(|c| c.id == q.case);
        if let Some(line) = q.workload.as_ref().or(case.map(|c| &c.workload)) {
            part(line, &study.explain).map_err(|e| wrong(&q.id, e.to_string()))?;
        }
    }
    Ok(())
}

/// The knock-outs that a question tries.
fn knockouts(q: &StudyQuestion) -> Result<Vec<Knockout>, String> {
    q.knockouts.iter().map(|word| crate::cli::knockout(word)).collect()
}

/// Figures, answers and draws, as asked for; after ^C what is complete.
fn report(lab: &Lab, args: &StudyArgs) -> Result<Done, Failure> {
    let records = lab.run(&lab.keys(&lab.effort), &lab.effort, &Variation::default())?;
    if records.is_empty() {
        return Err(Failure::Interrupted);
    }
    if let Span::Window { warmup_ms, window_ms, .. } = lab.effort.span() {
        let of_windows = records.iter().filter(|(key, _)| key.loops_divided_by.is_none());
        let of_windows = of_windows.flat_map(|(_, of_key)| of_key);
        super::note_tails(window(warmup_ms, window_ms), of_windows);
    }
    note_windows(lab, args);
    let mut rows = lab.rows(&records, &lab.effort);
    let (mut answers, mut told, mut known) = (BTreeMap::new(), Vec::new(), Known::new());
    let mut unanswered = DONE;
    if args.explain {
        for q in &lab.study.questions {
            match answer(lab, args, q, &mut known) {
                Ok(answer) => {
                    told.push(told_json(q, Some(&answer.0), Ok(&answer.1))?);
                    answers.insert(&q.id, answer);
                }
                Err(Failure::Interrupted) => break,
                Err(e) => {
                    // The figures are there, and other questions may have answers.
                    eprintln!("vruntime: study `{}`, `{}`: {e}", lab.study.name, q.id);
                    told.push(told_json(q, None, Err(e.to_string()))?);
                    unanswered = INPUT;
                }
            }
        }
    }
    if let Some(draws) = args.uncertainty.filter(|_| !interrupt::seen()) {
        lab.uncertainty(&mut rows, args.first_draw..args.first_draw + draws)?;
    }
    let interrupted = interrupt::seen();
    let score = score(&rows, lab.study.fits.len());
    let message_times = lab.message_times(&records, &rows);
    if args.form.json {
        let report = json!({
            "schema": "vruntime/study/1",
            "study": lab.study.name,
            "quick": args.quick,
            "seeds": lab.effort.seeds,
            "sampling": match lab.effort.span() {
                Span::Shortened(by) => json!({"mode": "shortened", "loops_divided_by": by}),
                Span::Window { warmup_ms, window_ms, .. } => {
                    super::sampling_json(window(warmup_ms, window_ms))
                }
            },
            "time_from": match lab.effort.span() {
                Span::Shortened(_) => "end",
                Span::Window { time: TimeFrom::SlowestGroup, .. } => "slowest-group",
                Span::Window { time: TimeFrom::AllGroups, .. } => "all-groups",
            },
            "loops_divided_by": to_the_end(lab),
            "rows": super::to_json(&rows)?,
            "message_time": super::to_json(&message_times)?,
            "score": super::to_json(&score)?,
            "first_draw": args.uncertainty.map(|_| args.first_draw),
            "answers": told,
            "interrupted": interrupted,
        });
        return Ok(Done::json(&report).but(unanswered).interrupted(interrupted));
    }
    let cases: Vec<(String, String)> =
        lab.study.cases.iter().map(|c| (c.id.clone(), settings(lab.study, c))).collect();
    let drawn = rows.iter().find_map(|r| r.stable).map_or(0, |(_, of)| of);
    let effort = describe_effort(lab, args, drawn, interrupted);
    let options = [
        args.case.as_ref().map(|text| format!(" --case {}", shell_words::quote(text))),
        args.quick.then(|| " --quick".to_string()),
        args.seeds.map(|n| format!(" --seeds {n}")),
        args.uncertainty.map(|n| format!(" --uncertainty {n}")),
        (args.first_draw > 1).then(|| format!(" --first-draw {}", args.first_draw)),
        args.explain.then(|| " --explain".to_string()),
    ];
    let options: String = options.into_iter().flatten().collect();
    let name = shell_words::quote(&args.name);
    let command = format!("vruntime study {name}{options} --page");
    let question = |q| question(q, answers.get(&q.id));
    let questions: Vec<Question> = lab.study.questions.iter().filter_map(question).collect();
    let notes: Vec<(&str, &str)> =
        lab.study.notes.iter().map(|n| (n.title.as_str(), n.text.as_str())).collect();
    let report = StudyReport {
        name: &name,
        title: &lab.study.title,
        source: &lab.study.source,
        notes: &notes,
        effort: &effort,
        command: &command,
        kernels: &lab.study.kernels,
        neutral_pct: &lab.study.neutral_pct,
        cases: &cases,
        rows: &rows,
        message_times: &message_times,
        score: &score,
        questions: &questions,
    };
    let text = if args.page { study_page(&report) } else { study_text(&report) };
    Ok(Done::new(text).but(unanswered).interrupted(interrupted))
}

/// Notes each machine that is looked at for too short a time.
fn note_windows(lab: &Lab, args: &StudyArgs) {
    let of_draws = args.uncertainty.map(|_| *lab.study.of_draws());
    let of_answers = args.explain.then_some(lab.study.explain);
    let efforts = [Some(lab.effort), of_draws, of_answers];
    let mut spans: Vec<u64> = Vec::new();
    for effort in efforts.into_iter().flatten() {
        if let Span::Window { window_ms, .. } = effort.span() {
            spans.push(window_ms);
        }
    }
    spans.sort_unstable();
    spans.dedup();
    for (name, machine) in &lab.machines {
        let Ok(topology) = machine.build_topology() else { continue };
        let nr_cpus = topology.nr_cpus() as u64;
        let notes = spans.iter().filter_map(|&ms| super::short_window(Ns::from_ms(ms), nr_cpus));
        notes.for_each(|note| eprintln!("vruntime: note: {name}: {note}"));
    }
}

/// Workload, machine and kernels, those that the study names by their names.
pub fn settings(study: &Study, c: &Case) -> String {
    let short = |expression: &str| {
        let of = |name: &String, whole: &String| {
            let rest = expression.strip_prefix(whole.as_str())?;
            // `v6.1` is no beginning of `v6.12`.
            let ends = rest.is_empty() || rest.starts_with(['+', '-', ',']);
            ends.then(|| (whole.len(), format!("{name}{rest}")))
        };
        let named = study.kernels.iter().filter_map(|(name, whole)| of(name, whole));
        named.max().map_or_else(|| expression.to_string(), |(_, short)| short)
    };
    format!("{} on {}, {} against {}", c.workload, c.machine, short(&c.after), short(&c.before))
}

/// Cases that are simulated to their end, each with what its loops are divided by.
fn to_the_end<'a>(lab: &Lab<'a>) -> BTreeMap<&'a str, u32> {
    lab.study.cases.iter().filter_map(|c| Some((c.id.as_str(), c.loops_divided_by?))).collect()
}

/// What was simulated, drawn and fitted.
fn describe_effort(lab: &Lab, args: &StudyArgs, drawn: usize, interrupted: bool) -> String {
    let draws = match drawn {
        0 => String::new(),
        n => format!(
            " Cost tables drawn between low and high: {n}{}, each {}.",
            match args.first_draw {
                1 => String::new(),
                first => format!(" from number {first} on"),
            },
            describe(lab.study.of_draws())
        ),
    };
    let by = interrupt::name();
    let ended = format!(" Ended by {by}: what was not complete is missing.");
    let cases = &lab.study.cases;
    let more: String = cases.iter().fold(String::new(), |text, c| match c.seeds {
        Some(n) if n != lab.effort.seeds => format!("{text}, {n} of {}", c.id),
        _ => text,
    });
    let mut by_divisor: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (id, by) in to_the_end(lab) {
        by_divisor.entry(by).or_default().push(id);
    }
    let more = by_divisor.iter().fold(more, |text, (by, ids)| {
        let ids = ids.join(", ");
        format!("{text}; to the end with 1/{by} of the loops, {by} times that run's time: {ids}")
    });
    format!(
        "{}Simulated: {}{more}.{draws}{}{}",
        if args.quick { "QUICK RUN: figures are rough. " } else { "" },
        describe(&lab.effort),
        if interrupted { &ended } else { "" },
        describe_fits(lab)
    )
}

/// What was fitted, each in a sentence that begins with a blank.
fn describe_fits(lab: &Lab) -> String {
    let Some(fitted) = &lab.study.fitted else { return String::new() };
    if lab.study.fits.is_empty() {
        return " Nothing is fitted.".into();
    }
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
    lab.study.fits.iter().map(sentence).collect()
}

/// The question as the report has it, if there is anything to say of it.
fn question<'a>(
    q: &'a StudyQuestion,
    answer: Option<&'a (String, Explanation)>,
) -> Option<Question<'a>> {
    let answer = answer.map(|(command, e)| (command.as_str(), e));
    let said = q.words.is_some() || answer.is_some();
    said.then_some(Question { text: &q.text, words: q.words.as_deref(), answer })
}

/// Command line that repeats the answer, and the answer.
fn answer(
    lab: &Lab,
    args: &StudyArgs,
    q: &StudyQuestion,
    known: &mut Known,
) -> Result<(String, Explanation), Failure> {
    let (case, effort) = (lab.case(&q.case), &lab.study.explain);
    let tries = knockouts(q).map_err(Failure::Input)?;
    let part = part(q.workload.as_ref().unwrap_or(&case.workload), effort)?;
    let batch = Batch {
        timeline: 0,
        timeline_of_window: false,
        schedstat: false,
        machine: Arc::clone(&lab.machines[&case.machine]),
        kernels: vec![kernel(&case.before)?, kernel(&case.after)?],
        workload: Arc::clone(&part.workload),
        seeds: (1..=q.seeds.unwrap_or(effort.seeds)).collect(),
        sampling: part.sampling,
        variation: Variation::default(),
        threads: lab.threads,
        checks: false,
        quiet: lab.quiet,
    };
    let asked = Asked {
        batch: &batch,
        metric: &q.metric,
        tries: &tries,
        split: q.split,
        plant: &[],
        time_of: &|r| part.time_of(r),
    };
    let e = explanation(&asked, known)?;
    let own_time = q.metric == "time" && part.has_own_time();
    let command = if own_time || lab.study.fit_of(&case.machine).is_some() {
        // `explain` has another machine of that name, or another time.
        let quick = if args.quick { " --quick" } else { "" };
        let seeds = args.seeds.map_or(String::new(), |n| format!(" --seeds {n}"));
        let [study, case] = [&args.name, &case.id].map(|word| shell_words::quote(word));
        format!("vruntime study {study} --case {case}{quick} --explain{seeds}")
    } else {
        format!(
            "vruntime explain -m {} -k '{}' -k '{}' -w '{}' --metric {} --try {} --split {} \
             --seeds {} {}",
            shell_words::quote(&case.machine),
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
    Ok((command, e))
}

/// A question with its answer, or why it has none.
fn told_json(
    q: &StudyQuestion,
    command: Option<&str>,
    answer: Result<&Explanation, String>,
) -> Result<Value, Failure> {
    let (answer, error) = match answer {
        Ok(answer) => (super::to_json(answer)?, None),
        Err(e) => (Value::Null, Some(e)),
    };
    let (id, text) = (&q.id, &q.text);
    Ok(json!({"id": id, "text": text, "command": command, "answer": answer, "error": error}))
}

/// How a benchmark is simulated, and how often.
fn describe(effort: &Effort) -> String {
    let simulated = match effort.span() {
        Span::Shortened(by) => {
            format!(
                "benchmarks to their end with 1/{by} of their loops; of the whole's time, what the \
                 group in the middle took counts {by} times, what the last one needed beyond it \
                 {:.1} times (the root: such delays add up as a random walk does)",
                f64::from(by).sqrt()
            )
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
    let s = if effort.seeds == 1 { "" } else { "s" };
    format!("{simulated}; {} seed{s}", effort.seeds)
}
