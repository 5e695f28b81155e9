//! The report of `vruntime study`: published and modelled figures side by side, as text for the
//! terminal or as a page in Markdown.

use crate::explain::{interval, plain};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use vruntime_measure::explain::{Explanation, signed};
use vruntime_measure::message_time::MessageTimeRow;
use vruntime_measure::study::{Effect, Score, StudyRow};

/// What a study found.
#[derive(Clone, Copy, Debug)]
pub struct StudyReport<'a> {
    /// Its name or file, as on a command line.
    pub name: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Where the figures were published.
    pub source: &'a str,
    /// What a reader has to know: title and paragraphs.
    pub notes: &'a [(&'a str, &'a str)],
    /// What was simulated and what was extrapolated.
    pub effort: &'a str,
    /// The command that writes it as a page.
    pub command: &'a str,
    /// Names that the cases have for kernels.
    pub kernels: &'a BTreeMap<String, String>,
    /// Changes up to this many percent count as none, by metric.
    pub neutral_pct: &'a BTreeMap<String, f64>,
    /// Id and settings of each case: machine, workload, kernels.
    pub cases: &'a [(String, String)],
    /// Figures.
    pub rows: &'a [StudyRow],
    /// Cases of which it is shown where the CPU time of a message goes.
    pub message_times: &'a [MessageTime],
    /// Agreement.
    pub score: &'a Score,
    /// What its authors left open.
    pub questions: &'a [Question<'a>],
}

/// What a study asks.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The question.
    pub text: &'a str,
    /// What the study's file says of it.
    pub words: Option<&'a str>,
    /// Command line that repeats the answer, and the answer, if it was asked for.
    pub answer: Option<(&'a str, &'a Explanation)>,
}

/// Where the CPU time of a message goes in a case, and what prices it there.
#[derive(Clone, Debug, serde::Serialize)]
pub struct MessageTime {
    /// The case.
    pub case: String,
    /// Its machine.
    pub machine: String,
    /// Parts.
    pub rows: Vec<MessageTimeRow>,
    /// The costs that the rows name, as the model has them, with source.
    pub costs: Vec<Price>,
}

/// A cost of the case's machine, with what was fitted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Price {
    /// Name in the cost table.
    pub name: &'static str,
    /// Least, middle and largest value, ns or permille.
    pub low_mid_high: [u32; 3],
    /// Where it comes from.
    pub source: String,
}

/// For the terminal.
pub fn study_text(s: &StudyReport) -> String {
    let mut out = format!("{}\n{}\n{}\n", s.title, s.source, s.effort);
    out += &kernel_names(s.kernels);
    for (case, what) in s.cases {
        writeln!(out, "\n{case}: {what}").unwrap();
        writeln!(
            out,
            "  {:<24}{:>10}{:>10}{:>9} {:>12}{:>10}{:>9}  effect",
            "", "published", "after", "%", "modelled", "after", "%"
        )
        .unwrap();
        for r in s.rows.iter().filter(|r| r.case == *case) {
            let [d, e, f] = modelled(r);
            writeln!(
                out,
                "{} {d:>12}{e:>10}{f:>9}  {}{}{}",
                published_columns(r),
                effect(r),
                stable(r),
                over_seeds(r).map_or(String::new(), |seeds| format!("; seeds {seeds}"))
            )
            .unwrap();
        }
    }
    for t in s.message_times {
        out += &message_time_text(t);
    }
    writeln!(out, "\n{}", score_line(s.score)).unwrap();
    for q in s.questions {
        writeln!(out, "\n{}", q.text).unwrap();
        if let Some((command, e)) = q.answer {
            writeln!(out, "{}\n  $ {command}", e.conclusion).unwrap();
        }
        q.words.iter().for_each(|words| writeln!(out, "{}", words.trim()).unwrap());
    }
    if !s.notes.is_empty() {
        writeln!(out, "\nWhat to know of it: `vruntime show study {}`.", s.name).unwrap();
    }
    out
}

/// As a page.
pub fn study_page(s: &StudyReport) -> String {
    let mut out = format!("# {}\n\nSource of the published figures: {}.\n\n", s.title, s.source);
    writeln!(out, "Written by `{}`. {}\n", s.command, s.effort).unwrap();
    writeln!(out, "**{}**\n", score_line(s.score)).unwrap();
    writeln!(out, "{}{SKILL}{}", kernel_names(s.kernels), bands(s.neutral_pct)).unwrap();
    if !s.questions.is_empty() {
        out += "## The open questions\n";
    }
    if s.questions.iter().any(|q| q.answer.is_some()) {
        out += COLUMNS;
    }
    for q in s.questions {
        writeln!(out, "\n### {}", q.text).unwrap();
        q.words.iter().for_each(|words| writeln!(out, "\n{}", words.trim()).unwrap());
        if let Some((command, e)) = q.answer {
            out += &answer_page(command, e);
        }
    }
    out += "\n## Figures\n";
    for (case, what) in s.cases {
        writeln!(out, "\n### {case}\n\n{what}\n").unwrap();
        let rows: Vec<&StudyRow> = s.rows.iter().filter(|r| r.case == *case).collect();
        let several = rows.iter().any(|r| over_seeds(r).is_some());
        let [head, rule] = if several { [" each seed |", "---|"] } else { [""; 2] };
        out += "| metric | published before | after | change | modelled before | after | change |";
        writeln!(out, " effect |{head}\n|---|---:|---:|---:|---:|---:|---:|---|{rule}").unwrap();
        for r in rows {
            let cells = [published(r), modelled(r)].concat().join(" | ");
            let not = if r.scored { "" } else { " (not scored)" };
            let seeds = several.then(|| format!(" {} |", over_seeds(r).unwrap_or_default()));
            let seeds = seeds.unwrap_or_default();
            let (metric, effect, stable) = (&r.metric, effect(r), stable(r));
            writeln!(out, "| {metric}{not} | {cells} | {effect}{stable} |{seeds}").unwrap();
        }
    }
    for t in s.message_times {
        out += &message_time_page(t);
    }
    out += &prices_page(s.message_times);
    if !s.notes.is_empty() {
        out += "\n## Notes\n";
    }
    for (title, text) in s.notes {
        writeln!(out, "\n### {title}\n\n{}", text.trim()).unwrap();
    }
    out
}

/// What the model says, the command that repeats it, and both tables.
fn answer_page(command: &str, e: &Explanation) -> String {
    let mut out = format!("\n{}\n\n    $ {command}\n\n", e.conclusion);
    let maybe = |x: Option<f64>| x.map_or("-".into(), signed);
    if !e.is_noise() {
        out += "| part | share | 97.5 % interval | amount | left out | alone |\n";
        out += "|---|---:|---:|---:|---:|---:|\n";
        for p in &e.parts {
            let cells = [
                p.mechanism.clone(),
                p.share.map_or("-".into(), percent_of_all),
                interval(p.ci_low, p.ci_high, percent_of_all),
                signed(p.amount),
                maybe(p.knocked_out),
                maybe(p.alone),
            ];
            writeln!(out, "| {} |", cells.join(" | ")).unwrap();
        }
        out.push('\n');
    }
    out += "| without | before | after | difference | mean size |\n";
    out += "|---|---:|---:|---:|---:|\n";
    let [before, after, delta] = [plain(e.before), plain(e.after), signed(e.delta)];
    writeln!(out, "| nothing | {before} | {after} | {delta} | |").unwrap();
    for t in &e.tried {
        let [b, a] = [t.before, t.after].map(|x| x.map_or("-".into(), plain));
        let [delta, left] = [maybe(t.delta), plain(t.left)];
        writeln!(out, "| {} | {b} | {a} | {delta} | {left} |", t.mechanism).unwrap();
    }
    out
}

/// What stands below the score of a page.
const SKILL: &str = "Skill: (agreeing − lazy) / (rows − lazy), where lazy is how many rows the \
                     answer \"always improves\" gets right. ";

/// What the columns of the answers' tables are.
const COLUMNS: &str = "
An *amount* is a part's fair share of the difference (Shapley). *Left out* is what goes when it
alone is left out, *alone* what there is when it is the only one of those taken apart. Of the
difference without something *mean size* is the mean over the seeds of its size, whichever its sign.
";

/// What names like `base` stand for, in a line, if there are any.
pub fn kernel_names(kernels: &BTreeMap<String, String>) -> String {
    let names: Vec<String> = kernels.iter().map(|(name, k)| format!("{name} = {k}")).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("Kernels: {}.\n", names.join(", ")),
    }
}

/// Which changes count as none.
fn bands(neutral_pct: &BTreeMap<String, f64>) -> String {
    let bands: Vec<String> = neutral_pct.iter().map(|(m, pct)| format!("{m} {pct}")).collect();
    match bands.is_empty() {
        true => String::new(),
        false => format!("A change of at most so many % counts as none: {}.\n", bands.join(", ")),
    }
}

/// ns a message, published and modelled, before and after, with what the model's change is.
fn message_time_cells(r: &MessageTimeRow) -> [String; 5] {
    let ns = |x: f64| format!("{x:.0}");
    let (b, a) = r.modelled;
    let [pb, pa] = r.published.map_or(["-".into(), "-".into()], |(b, a)| [ns(b), ns(a)]);
    [pb, pa, ns(b), ns(a), format!("{:+.0}", a - b)]
}

const MESSAGE_TIME: &str = "CPU time of a message, ns";

fn message_time_text(t: &MessageTime) -> String {
    let mut out = format!("\n{}: {MESSAGE_TIME}\n", t.case);
    writeln!(
        out,
        "  {:<32}{:>10}{:>10} {:>12}{:>10}{:>9}",
        "", "published", "after", "modelled", "after", "change"
    )
    .unwrap();
    for r in &t.rows {
        let [a, b, c, d, e] = message_time_cells(r);
        writeln!(out, "  {:<32}{a:>10}{b:>10} {c:>12}{d:>10}{e:>9}", r.part).unwrap();
    }
    out
}

fn message_time_page(t: &MessageTime) -> String {
    let mut out = format!("\n## {MESSAGE_TIME}: {}\n\n", t.case);
    out += "Published shares are of non-idle time; here they are of all time, so at most this. ";
    out += "Sums over all seeds: each counts by the messages that it passed. ";
    out += "The functions that were published come first, with all that they wait for; then what ";
    out += "all others wait for, then their own work.\n\n";
    out += "| part | published before | after | modelled before | after | change ";
    out += "| chiefly priced by |\n|---|---:|---:|---:|---:|---:|---|\n";
    for r in &t.rows {
        let cells = message_time_cells(r).join(" | ");
        writeln!(out, "| {} | {cells} | {} |", r.part, r.costs.join(", ")).unwrap();
    }
    out
}

/// What prices the parts of all cases, one table for each machine.
fn prices_page(cases: &[MessageTime]) -> String {
    let mut out = String::new();
    let machines: BTreeSet<&str> = cases.iter().map(|t| t.machine.as_str()).collect();
    for machine in machines {
        writeln!(out, "\n## Costs of {machine}\n").unwrap();
        out += "As the model has them: path costs are times the machine's `path_permille`.\n\n";
        out += "| cost, ns (shares, ‰) | low | mid | high | source |\n|---|---:|---:|---:|---|\n";
        let of_machine = cases.iter().filter(|t| t.machine == machine);
        let prices: BTreeMap<_, _> =
            of_machine.flat_map(|t| &t.costs).map(|p| (p.name, p)).collect();
        for (name, p) in prices {
            let [low, mid, high] = p.low_mid_high;
            writeln!(out, "| {name} | {low} | {mid} | {high} | {} |", p.source).unwrap();
        }
    }
    out
}

fn percent_of_all(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Metric and published figures as the terminal has them.
fn published_columns(r: &StudyRow) -> String {
    let name = r.metric.clone() + if r.scored { "" } else { " (not scored)" };
    let [before, after, change] = published(r);
    format!("  {name:<24}{before:>10}{after:>10}{change:>9}")
}

/// What was published of one case, `rows`, for the terminal.
pub fn published_text<'a>(rows: impl IntoIterator<Item = &'a StudyRow>) -> String {
    let mut out =
        format!("  {:<24}{:>10}{:>10}{:>9}  effect\n", "published", "before", "after", "%");
    for r in rows {
        writeln!(out, "{}  {}", published_columns(r), word(r.effect_published)).unwrap();
    }
    out
}

fn published(r: &StudyRow) -> [String; 3] {
    let spread = r.published_before_spread_pct.map_or(String::new(), |x| format!(" ± {x:.0} %"));
    let before = plain(r.published_before) + &spread;
    [before, plain(r.published_after), percent(r.published_delta_pct)]
}

fn modelled(r: &StudyRow) -> [String; 3] {
    let show = |x: Option<f64>| x.map_or("-".into(), plain);
    [show(r.modelled_before), show(r.modelled_after), percent(r.modelled_delta_pct)]
}

/// Each seed's figure before and after, if there are several: a mean hides two states.
fn over_seeds(r: &StudyRow) -> Option<String> {
    let list = |of: &[f64]| of.iter().map(|x| plain(*x)).collect::<Vec<_>>().join(" ");
    let several = r.seeds_before.len().max(r.seeds_after.len()) > 1;
    several.then(|| format!("{} → {}", list(&r.seeds_before), list(&r.seeds_after)))
}

fn percent(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| format!("{x:+.1}"))
}

/// `agrees`, or what the model says instead.
fn effect(r: &StudyRow) -> String {
    match r.effect_modelled {
        Some(e) if e == r.effect_published => format!("{}: agrees", word(e)),
        Some(e) => format!("{}, model: {}", word(r.effect_published), word(e)),
        None => format!("{}, model: unknown", word(r.effect_published)),
    }
}

fn word(e: Effect) -> &'static str {
    match e {
        Effect::Improves => "improves",
        Effect::Worsens => "worsens",
        Effect::Neutral => "neutral",
    }
}

/// How many draws keep the effect, and which if it is another one as they are simulated.
fn stable(r: &StudyRow) -> String {
    let Some((kept, of)) = r.stable else { return String::new() };
    let other = match r.stable_effect {
        other if other == r.effect_modelled => String::new(),
        Some(other) => format!(", of {} as they are simulated", word(other)),
        None => ", of no known effect as they are simulated".into(),
    };
    format!(" ({kept} of {of} draws{other})")
}

fn score_line(s: &Score) -> String {
    let points = |x: Option<f64>| x.map_or("unknown".into(), |x| format!("{x:.1} points"));
    let by: Vec<String> =
        s.median_by_metric.iter().map(|(name, x)| format!("{name} {x:.1}")).collect();
    format!(
        "Effects: {} of {} agree (skill over \"always improves\": {}; neutral rows: {} of {}). \
         Median error of the change: {} ({}). Fitted numbers: {}.{}{}",
        s.effects_right,
        s.rows,
        s.skill.map_or("undefined".into(), |x| format!("{x:.2}")),
        s.neutral_right,
        s.neutral_rows,
        points(s.median_abs_error_points),
        by.join(", "),
        s.fitted_parameters,
        s.stable.map_or(String::new(), |n| format!(
            " Kept by at least nine in ten cost tables: {n} of {} effects.",
            s.rows
        )),
        match s.rows_not_run {
            0 => String::new(),
            n => format!(" {n} rows are of cases that did not run, and count nowhere."),
        }
    )
}
