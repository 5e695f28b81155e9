//! The report of `vruntime study`: published and modelled figures side by side, as text for the
//! terminal or as a page in Markdown.

use std::fmt::Write;
use vruntime_measure::explain::{Explanation, signed};
use vruntime_measure::study::{Effect, Score, StudyRow};

/// What a study found.
#[derive(Clone, Copy, Debug)]
pub struct StudyReport<'a> {
    /// Name of the study.
    pub name: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Where the figures were published.
    pub source: &'a str,
    /// What a reader has to know.
    pub notes: &'a [String],
    /// What was simulated and what was extrapolated.
    pub effort: &'a str,
    /// The command that writes it as a page.
    pub command: &'a str,
    /// Id and settings of each case: machine, workload, kernels.
    pub cases: &'a [(String, String)],
    /// Figures.
    pub rows: &'a [StudyRow],
    /// Agreement.
    pub score: &'a Score,
    /// Question, command line that repeats its answer, answer.
    pub answers: &'a [(String, String, Explanation)],
}

/// For the terminal.
pub fn study_text(s: &StudyReport) -> String {
    let mut out = format!("{}\n{}\n{}\n", s.title, s.source, s.effort);
    for (case, what) in s.cases {
        writeln!(out, "\n{case}: {what}").unwrap();
        writeln!(
            out,
            "  {:<24}{:>10}{:>10}{:>9} {:>12}{:>10}{:>9}  effect",
            "", "published", "after", "%", "modelled", "after", "%"
        )
        .unwrap();
        for r in s.rows.iter().filter(|r| r.case == *case) {
            let name = r.metric.clone() + if r.scored { "" } else { " (not scored)" };
            let [a, b, c] = published(r);
            let [d, e, f] = modelled(r);
            writeln!(
                out,
                "  {name:<24}{a:>10}{b:>10}{c:>9} {d:>12}{e:>10}{f:>9}  {}{}",
                effect(r),
                stable(r)
            )
            .unwrap();
        }
    }
    writeln!(out, "\n{}", score_line(s.score)).unwrap();
    for (question, command, e) in s.answers {
        writeln!(out, "\n{question}\n{}\n  $ {command}", e.conclusion).unwrap();
    }
    for note in s.notes {
        writeln!(out, "\nNote: {note}").unwrap();
    }
    out
}

/// As a page.
pub fn study_page(s: &StudyReport) -> String {
    let mut out = format!("# {}\n\nSource of the published figures: {}.\n\n", s.title, s.source);
    writeln!(out, "Written by `{}`. {}\n", s.command, s.effort).unwrap();
    writeln!(out, "**{}**\n", score_line(s.score)).unwrap();
    if !s.answers.is_empty() {
        out += "## What the model says about the open questions\n";
    }
    for (question, command, e) in s.answers {
        writeln!(out, "\n### {question}\n\n{}\n\n    $ {command}\n", e.conclusion).unwrap();
        let maybe = |x: Option<f64>| x.map_or("-".into(), signed);
        if !e.is_noise() {
            out += "| part | share | amount | left out | alone |\n|---|---:|---:|---:|---:|\n";
            for p in &e.parts {
                let share = p.share.map_or("-".into(), |x| format!("{:.0} %", 100.0 * x));
                let (out_of, alone) = (maybe(p.knocked_out), maybe(p.alone));
                writeln!(
                    out,
                    "| {} | {share} | {} | {out_of} | {alone} |",
                    p.mechanism,
                    signed(p.amount)
                )
                .unwrap();
            }
        }
        out += "\n| without | before | after | difference |\n|---|---:|---:|---:|\n";
        writeln!(
            out,
            "| nothing | {} | {} | {} |",
            plain(e.before),
            plain(e.after),
            signed(e.delta)
        )
        .unwrap();
        for t in &e.tried {
            let [b, a] = [t.before, t.after].map(|x| x.map_or("-".into(), plain));
            writeln!(out, "| {} | {b} | {a} | {} |", t.mechanism, maybe(t.delta)).unwrap();
        }
    }
    out += "\n## Figures\n";
    for (case, what) in s.cases {
        writeln!(out, "\n### {case}\n\n{what}\n").unwrap();
        out += "| metric | published before | after | change | modelled before | after | change |";
        out += " effect |\n";
        out += "|---|---:|---:|---:|---:|---:|---:|---|\n";
        for r in s.rows.iter().filter(|r| r.case == *case) {
            let cells = [published(r), modelled(r)].concat().join(" | ");
            let not = if r.scored { "" } else { " (not scored)" };
            writeln!(out, "| {}{not} | {cells} | {}{} |", r.metric, effect(r), stable(r)).unwrap();
        }
    }
    if !s.notes.is_empty() {
        out += "\n## Notes\n\n";
    }
    s.notes.iter().for_each(|n| writeln!(out, "- {n}").unwrap());
    out
}

fn published(r: &StudyRow) -> [String; 3] {
    [plain(r.published_before), plain(r.published_after), percent(r.published_delta_pct)]
}

fn modelled(r: &StudyRow) -> [String; 3] {
    let show = |x: Option<f64>| x.map_or("-".into(), plain);
    [show(r.modelled_before), show(r.modelled_after), percent(r.modelled_delta_pct)]
}

fn percent(x: Option<f64>) -> String {
    x.map_or("-".into(), |x| format!("{x:+.1}"))
}

fn plain(x: f64) -> String {
    signed(x).trim_start_matches('+').to_string()
}

/// `agrees`, or what the model says instead.
fn effect(r: &StudyRow) -> String {
    let word = |e: Effect| match e {
        Effect::Improves => "improves",
        Effect::Worsens => "worsens",
        Effect::Neutral => "neutral",
    };
    match r.effect_modelled {
        Some(e) if e == r.effect_published => format!("{}: agrees", word(e)),
        Some(e) => format!("{}, model: {}", word(r.effect_published), word(e)),
        None => format!("{}, model: unknown", word(r.effect_published)),
    }
}

fn stable(r: &StudyRow) -> String {
    r.stable.map_or(String::new(), |(kept, of)| format!(" ({kept} of {of} draws)"))
}

fn score_line(s: &Score) -> String {
    let points = |x: Option<f64>| x.map_or("unknown".into(), |x| format!("{x:.1} points"));
    let by: Vec<String> =
        s.median_by_metric.iter().map(|(name, x)| format!("{name} {x:.1}")).collect();
    format!(
        "Effects: {} of {} agree (skill over \"always improves\": {}; neutral rows: {} of {}). \
         Median error of the change: {} ({}). Fitted numbers: {}.{}",
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
        ))
    )
}
