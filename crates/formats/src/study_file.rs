//! Study files: a published experiment as rows of figures, the runs that reproduce it, and what
//! shall be explained.
//!
//! A study names its cases (machine, workload, the kernels before and after), the published rows of
//! each, how much to simulate, at most one fitted number a machine, and questions.

mod check;

use crate::error::FileError;
use crate::kernel_file::split_base;
use crate::text_file::{self, key_before, line_of, unknown_key};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use vruntime_machine::{hint, nearest_name};

include!(concat!(env!("OUT_DIR"), "/studies.rs"));

/// The version of the study format.
pub const STUDY_SCHEMA: &str = "study/1";

/// A study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// [`STUDY_SCHEMA`].
    pub schema: String,
    /// Name on the command line.
    pub name: String,
    /// One line for lists.
    pub title: String,
    /// Where the rows were published.
    pub source: String,
    /// What a reader has to know about the comparison.
    #[serde(default, rename = "note")]
    pub notes: Vec<Note>,
    /// Names for kernel expressions, with which those of the cases may begin.
    #[serde(default)]
    pub kernels: BTreeMap<String, String>,
    /// Changes up to this many percent count as none, by metric.
    #[serde(default)]
    pub neutral_pct: BTreeMap<String, f64>,
    /// How much to simulate.
    pub full: Effort,
    /// The same for `--quick`.
    pub quick: Effort,
    /// The same for each run of an answer to a question.
    pub explain: Effort,
    /// The same with each cost table that is drawn, if not as for `--quick`.
    draw: Option<Effort>,
    /// Runs.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
    /// Published figures.
    #[serde(rename = "row")]
    pub rows: Vec<PublishedRow>,
    /// What may be fitted, and how far.
    pub fitted: Option<Fitted>,
    /// Fitted numbers.
    #[serde(default, rename = "fit")]
    pub fits: Vec<Fit>,
    /// Ids of cases of which the report shows where the CPU time of a message goes.
    #[serde(default)]
    pub message_time: Vec<String>,
    /// What shall be explained.
    #[serde(default, rename = "question")]
    pub questions: Vec<StudyQuestion>,
    /// Where it was read from.
    #[serde(skip)]
    origin: String,
    /// What was read.
    #[serde(skip)]
    text: String,
}

/// Seeds of an effort at the most.
const MOST_SEEDS: u64 = 1_000;
/// Milliseconds at the most: a day.
const MOST_MS: u64 = 86_400_000;
/// Knock-outs that a question may take apart: each doubles the runs.
const MOST_SPLIT: usize = 6;

/// How much to simulate: [`Effort::span`] from the benchmark's start, with this many seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effort {
    loops_divided_by: Option<u32>,
    warmup_ms: Option<u64>,
    window_ms: Option<u64>,
    time: Option<TimeFrom>,
    /// Seeds 1 to this.
    pub seeds: u64,
}

/// What of a benchmark is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// All of it, with its loops divided by this; its time is multiplied by as much.
    Shortened(u32),
    /// A window; its time is extrapolated.
    Window {
        /// Not measured, from the benchmark's start.
        warmup_ms: u64,
        /// Measured.
        window_ms: u64,
        /// Whose progress gives the time.
        time: TimeFrom,
    },
}

impl Effort {
    /// What is simulated, or what is wrong with the table.
    fn checked(&self) -> Result<Span, String> {
        let ranges = [
            ("seeds", Some(self.seeds), MOST_SEEDS),
            ("warmup_ms", self.warmup_ms, MOST_MS),
            ("window_ms", self.window_ms, MOST_MS),
        ];
        for (name, value, most) in ranges {
            let low = u64::from(name != "warmup_ms");
            if value.is_some_and(|v| !(low..=most).contains(&v)) {
                let value = value.unwrap_or_default();
                return Err(format!("{name} = {value}: expected {low} to {most}"));
            }
        }
        match (self.loops_divided_by, self.warmup_ms, self.window_ms, self.time) {
            (Some(0), ..) => Err("loops_divided_by = 0: expected 1 or more".into()),
            (Some(by), None, None, None) => Ok(Span::Shortened(by)),
            (None, Some(warmup_ms), Some(window_ms), Some(time)) => {
                Ok(Span::Window { warmup_ms, window_ms, time })
            }
            _ => Err("expected loops_divided_by, or else warmup_ms, window_ms and time".into()),
        }
    }
    /// What is simulated.
    pub fn span(&self) -> Span {
        self.checked().expect("the reader has checked")
    }
}

/// Whose progress in the window gives the benchmark's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeFrom {
    /// The slowest group's, as the benchmark itself ends: for windows in which groups even out.
    SlowestGroup,
    /// That of all groups together: for windows so short that chance makes the slowest one slow.
    AllGroups,
}

/// What is run before and after the change.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name within the study.
    pub id: String,
    /// Machine, as for `-m`.
    pub machine: String,
    /// Workload, as for `-w`.
    pub workload: String,
    /// Kernel expression before the change.
    pub before: String,
    /// And after it.
    pub after: String,
    /// Seeds of a full run, if not as many as [`Study::full`] says.
    pub seeds: Option<u64>,
    /// A full run takes the benchmark to its end with so many times fewer loops, not a window of
    /// it, and the whole's time is so many times that run's: for machines on which some groups stay
    /// behind for seconds, which no window tells. Such a run has to be long beside its beginning.
    pub loops_divided_by: Option<u32>,
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Less.
    Improves,
    /// More.
    Worsens,
    /// Nothing worth the name.
    Neutral,
}

/// A published figure before and after.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Id of the published figure.
    pub id: String,
    /// Case that it belongs to.
    pub case: String,
    /// What it measures.
    pub metric: String,
    /// Published before the change.
    pub before: f64,
    /// Published after it.
    pub after: f64,
    /// How far runs before the change were published to scatter, percent.
    pub before_spread_pct: Option<f64>,
    /// The effect as published.
    pub effect: Effect,
    /// Counts in the score.
    #[serde(default = "yes")]
    pub scored: bool,
    /// Computed from published figures.
    #[serde(default)]
    pub derived: bool,
}

fn yes() -> bool {
    true
}

/// The one number of each machine that `--fit` may choose.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// What it multiplies.
    pub costs: FittedCosts,
    /// The least factor, in 1/1000.
    pub low: u32,
    /// The largest factor, in 1/1000.
    pub high: u32,
    /// Where the range comes from.
    pub source: String,
}

/// Costs that a fit multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FittedCosts {
    /// All path costs.
    Path,
    /// Line transfers between cores.
    LineTransfer,
}

/// One number of a machine, fitted on figures before the change.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Machine.
    pub machine: String,
    /// Ids of rows whose figure before the change it was fitted on.
    pub rows: Vec<String>,
    /// Factor on the costs that the study names, in 1/1000.
    pub permille: u32,
    /// What is left of those figures' error, root mean square in percent.
    pub residual_pct: f64,
}

/// What a reader has to know of one thing.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// What it is about.
    pub title: String,
    /// Paragraphs, an empty line between them.
    pub text: String,
}

/// A difference to explain.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StudyQuestion {
    /// Name within the study.
    pub id: String,
    /// The question.
    pub text: String,
    /// What the runs of the study's page say, in words.
    pub words: Option<String>,
    /// Case whose kernels differ.
    pub case: String,
    /// Workload, if not the case's.
    pub workload: Option<String>,
    /// Metric of `compare`.
    pub metric: String,
    /// Knock-outs to try.
    pub knockouts: Vec<String>,
    /// How many to take apart.
    pub split: usize,
    /// Seeds, if not as many as `[explain]` says.
    pub seeds: Option<u64>,
}

impl Study {
    /// How much to simulate with each cost table that is drawn.
    pub fn of_draws(&self) -> &Effort {
        self.draw.as_ref().unwrap_or(&self.quick)
    }
    /// Every effort has so many seeds.
    pub fn set_seeds(&mut self, seeds: u64) {
        let efforts = [&mut self.full, &mut self.quick, &mut self.explain];
        efforts.into_iter().chain(&mut self.draw).for_each(|effort| effort.seeds = seeds);
    }
    /// What is wrong with the table that has this `id`, or with a key (`table.key`), with its line.
    pub fn wrong(&self, id: &str, what: impl std::fmt::Display) -> FileError {
        let key = id.rsplit('.').next().unwrap_or(id);
        let line = line_with(&self.text, &format!("\"{id}\"")).or(line_with(&self.text, key));
        FileError::content(&self.origin, line, format!("`{id}`: {what}"))
    }
    /// What was fitted of `machine`, if anything was.
    pub fn fit_of(&self, machine: &str) -> Option<&Fit> {
        self.fits.iter().find(|f| f.machine == machine)
    }
}

/// The studies inside the program: name and TOML text, in the order of names and numbers.
pub fn builtin_studies() -> &'static [(&'static str, &'static str)] {
    STUDIES
}

/// The study `word`: a name or a TOML file.
pub fn study(word: &str) -> Result<Study, FileError> {
    if word.ends_with(".toml") {
        return study_str(&text_file::read(Path::new(word))?, word);
    }
    match STUDIES.iter().find(|(name, _)| *name == word) {
        Some((name, text)) => study_str(text, &format!("studies/{name}.toml")),
        None => Err(FileError::Usage(format!(
            "no study named `{word}`{}; `vruntime list studies` shows all",
            hint(nearest_name(word, STUDIES.iter().map(|&(n, _)| n)))
        ))),
    }
}

/// The study in the TOML text of `origin`.
pub fn study_str(text: &str, origin: &str) -> Result<Study, FileError> {
    let wrong = |line, message: String| FileError::content(origin, line, message);
    let line_with = |place: &str| line_with(text, place);
    let mut s: Study = toml::from_str(text).map_err(|e| {
        let at = e.span().map(|span| span.start);
        wrong(at.map(|at| line_of(text, at)), message_of(text, at, e.message()))
    })?;
    (s.origin, s.text) = (origin.into(), text.into());
    if s.schema != STUDY_SCHEMA {
        let message = format!("schema = `{}`, expected {STUDY_SCHEMA}", s.schema);
        return Err(wrong(line_with("schema"), message));
    }
    let efforts =
        [("full", s.full), ("quick", s.quick), ("explain", s.explain), ("draw", *s.of_draws())];
    for (name, e) in efforts {
        e.checked()
            .map_err(|what| wrong(line_with(&format!("[{name}]")), format!("[{name}]: {what}")))?;
    }
    for case in &mut s.cases {
        for kernel in [&mut case.before, &mut case.after] {
            if let Some(whole) = expanded(kernel, &s.kernels) {
                *kernel = whole;
            }
        }
    }
    check::check(&s).map_err(|(place, message)| wrong(line_with(&place), message))?;
    let (low, high) = s.fitted.as_ref().map_or((0, 0), |f| (f.low, f.high));
    if s.fitted.is_some() && (low == 0 || low > high) {
        let message = format!("factors from {low} to {high}: expected 1 or more, ascending");
        return Err(wrong(line_with("[fitted]"), message));
    }
    for (i, f) in s.fits.iter().enumerate() {
        if !(low..=high).contains(&f.permille) {
            let message = match s.fitted {
                Some(_) => format!("permille = {}: [fitted] allows {low} to {high}", f.permille),
                None => "a fit without [fitted], which says of what".into(),
            };
            return Err(wrong(line_with("[[fit]]"), message));
        }
        if s.fits[..i].iter().any(|g| g.machine == f.machine) {
            let message = format!("machine `{}` is fitted twice; one number is allowed", f.machine);
            return Err(wrong(line_with("[[fit]]"), message));
        }
    }
    Ok(s)
}

/// The line that sets the key `place`, or has it, in quotes, as its id; else the first that holds
/// it.
fn line_with(text: &str, place: &str) -> Option<usize> {
    let is_id = |l: &str| l.strip_prefix("id").is_some_and(|v| v.trim_start().starts_with('='));
    let sets = |l: &str| l.strip_prefix(place).is_some_and(|v| v.trim_start().starts_with('='));
    let position = |found: &dyn Fn(&str) -> bool| text.lines().position(|l| found(l.trim_start()));
    position(&|l| sets(l) || is_id(l) && place.starts_with('"') && l.contains(place))
        .or_else(|| position(&|l| l.contains(place)))
        .map(|at| at + 1)
}

/// What serde says about the value at byte `at`, with its key, or about a key, with the nearest.
fn message_of(text: &str, at: Option<usize>, message: &str) -> String {
    let message = message.trim();
    if let Some((key, valid)) = unknown_key(message) {
        return format!("unknown key `{key}`{}", hint(nearest_name(key, valid)));
    }
    let message = message
        .replace("expected u64", "expected a whole number from 0 on")
        .replace("expected u32", "expected a whole number from 0 on")
        .replace("expected f64", "expected a number");
    match at.and_then(|at| key_before(text, at)).filter(|_| message.starts_with("invalid ")) {
        Some(key) => format!("{key}: {message}"),
        None => message,
    }
}

/// `kernel` with the name that it begins with written out.
fn expanded(kernel: &str, names: &BTreeMap<String, String>) -> Option<String> {
    let (base, overrides) = split_base(kernel);
    Some(format!("{}{overrides}", names.get(base)?))
}

#[cfg(test)]
mod tests;
