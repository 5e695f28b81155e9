//! Published figures beside modelled ones, and how well they agree.
//!
//! *Equations.* A change is 100 · (after − before) / before. A modelled effect is neutral if the
//! change is at most the metric's band. skill = (right − base) / (rows − base), where base is how
//! many rows the answer "always improves" gets right: 0 is no better than that answer, 1 is
//! perfect. The error of a row is |modelled change − published change| in points. Of a benchmark
//! that did 1/s of its loops the whole takes s · m + √s · (t − m), m when the group in the middle
//! was through and t when all were ([`whole_time`]).

use crate::metrics::window;
use crate::stats::{mean, median, ratio};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use vruntime_base::{Category, Func, Ns};
use vruntime_kernel::record::RunRecord;

/// Metrics that a study's row may have.
pub const METRICS: [&str; 14] = [
    // s.
    "time",
    // % of all CPU time.
    "idle",
    // % of the searches of `select_idle_cpu` that the limit of SIS_UTIL ended (6.0 on).
    "search_cut",
    // % of the placements that such a search moved to an idle CPU.
    "search_move",
    // % of non-idle CPU time, with all waiting: these three.
    "rq_spin",
    "update_cfs_group",
    "update_load_avg",
    // Thousands a second and CPU: these five. Searches are those of `select_idle_cpu`.
    "context_switch",
    "involuntary",
    "migration",
    "placement",
    "search",
    // % of the times that a task gave up its CPU, those in which it waited for room to write.
    "write_sleep",
    // Each message.
    "migration_per_message",
];

/// Rules of placement that end `select_idle_cpu` with an idle CPU (without clusters).
const FOUND: [&str; 3] = ["idle core", "idle CPU seen in core search", "idle CPU in scan"];
/// Those that end it by the limit of SIS_UTIL.
const CUT: [&str; 2] = ["target (no scan)", "target (scan limit)"];
/// It has looked at all CPUs.
const LOOKED: &str = "target (nothing idle)";
/// No task gave up its CPU in this switch.
const FROM_IDLE: &str = "idle: task woken";
/// It waited for a reader.
const NO_ROOM: &str = "blocks: no room to write";

/// The value of a study's metric in one run; `None` if it has none there.
pub fn study_metric(name: &str, r: &RunRecord) -> Option<f64> {
    let busy: Ns = sum(r, |f| f.category() != Category::Idle);
    let share = |func: Func| ratio(100.0 * sum(r, |f| f == func).0 as f64, busy.0 as f64);
    let seconds = window(r).0 as f64 / 1e9;
    let rate = |n: f64| ratio(n / 1000.0, seconds * r.nr_cpus as f64);
    let count = |of: &[(&str, u64)], rules: &[&str]| {
        of.iter().filter(|(rule, _)| rules.contains(rule)).map(|(_, n)| *n as f64).sum::<f64>()
    };
    let searches = || count(&r.placements, &[&FOUND[..], &CUT, &[LOOKED]].concat());
    let all = |of: &[(&str, u64)]| of.iter().map(|(_, n)| *n as f64).sum::<f64>();
    match name {
        "time" => r.time.map(|t| t.0 as f64 / 1e9),
        "idle" => {
            let idle = sum(r, |f| f.category() == Category::Idle).0 as f64;
            ratio(100.0 * idle, busy.0 as f64 + idle)
        }
        "search_cut" => ratio(100.0 * count(&r.placements, &CUT), searches()),
        "search_move" => ratio(100.0 * count(&r.migrations, &FOUND), all(&r.placements)),
        "rq_spin" => share(Func::RqLock),
        "update_cfs_group" => share(Func::UpdateCfsGroup),
        "update_load_avg" => share(Func::UpdateLoadAvg),
        "context_switch" => rate(r.counters.context_switches as f64),
        "involuntary" => rate(r.counters.involuntary_switches as f64),
        "migration" => rate(r.counters.cpu_migrations as f64),
        "placement" => rate(all(&r.placements)),
        "search" => rate(searches()),
        "write_sleep" => {
            let left = all(&r.switches) - count(&r.switches, &[FROM_IDLE]);
            ratio(100.0 * count(&r.switches, &[NO_ROOM]), left)
        }
        "migration_per_message" => {
            ratio(r.counters.cpu_migrations as f64, r.counters.messages as f64)
        }
        _ => None,
    }
}

fn sum(r: &RunRecord, of: impl Fn(Func) -> bool) -> Ns {
    r.cpu_time.iter().filter(|e| of(e.0)).fold(Ns::ZERO, |sum, e| sum + e.2)
}

/// The time of a benchmark with `whole` loops, of which `r` is a complete run with `part` of them.
///
/// What all groups need grows with the loops. What the last one needs beyond the one in the middle
/// does not: groups are ahead and behind by chance, for a while each, and such differences add up
/// as the steps of a random walk do, with the root of their number.
pub fn whole_time(r: &RunRecord, whole: u32, part: u32) -> Option<Ns> {
    let time = r.time?.0 as f64;
    let through = r.groups.iter().filter_map(|g| g.finished_at);
    let middle = median(through.map(|at| at.saturating_sub(r.started).0 as f64).collect());
    let middle = middle.unwrap_or(time).min(time);
    let times = f64::from(whole) / f64::from(part);
    Some(Ns((times * middle + times.sqrt() * (time - middle)).round() as u64))
}

/// The time by which all messages are done at the rate of the window.
pub fn time_of_all(r: &RunRecord) -> Option<Ns> {
    let (from, to) = r.window;
    let made: u64 = r.groups.iter().map(|g| g.at_window_end - g.at_window_start).sum();
    let left: u64 = r.groups.iter().map(|g| g.goal - g.at_window_end).sum();
    let more = ratio(left as f64 * to.saturating_sub(from).0 as f64, made as f64)?;
    Some(to.saturating_sub(r.started) + Ns(more.round() as u64))
}

/// What a change does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Less (every metric of a study is better if lower).
    Improves,
    /// More.
    Worsens,
    /// Nothing worth the name.
    Neutral,
}

/// The effect of a change of `pct` percent where up to `band` counts as none.
pub fn effect_of(pct: f64, band: f64) -> Effect {
    match pct {
        p if p.abs() <= band => Effect::Neutral,
        p if p < 0.0 => Effect::Improves,
        _ => Effect::Worsens,
    }
}

/// A published figure and the model's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StudyRow {
    /// Id of the published figure.
    pub id: String,
    /// Case of the study.
    pub case: String,
    /// What it measures.
    pub metric: String,
    /// Published before the change.
    pub published_before: f64,
    /// How far its runs were published to scatter, %; null if that was not told.
    pub published_before_spread_pct: Option<f64>,
    /// Published after it.
    pub published_after: f64,
    /// Published change in %.
    pub published_delta_pct: Option<f64>,
    /// Modelled before the change.
    pub modelled_before: Option<f64>,
    /// Modelled after it.
    pub modelled_after: Option<f64>,
    /// Modelled change in %.
    pub modelled_delta_pct: Option<f64>,
    /// What `modelled_before` is the mean of: the figures of the seeds, in their order.
    pub seeds_before: Vec<f64>,
    /// The same of `modelled_after`.
    pub seeds_after: Vec<f64>,
    /// Effect as published.
    pub effect_published: Effect,
    /// Effect of the modelled change; null if it is not known.
    pub effect_modelled: Option<Effect>,
    /// A number of the machine was fitted on the figure before the change.
    pub fitted: bool,
    /// Counts in the score.
    pub scored: bool,
    /// Computed from published figures.
    pub derived: bool,
    /// Of the cost tables drawn, how many keep the effect of the one in the middle; null if none
    /// were.
    pub stable: Option<(usize, usize)>,
    /// The effect that they keep: with the costs in the middle, as much simulated as with the
    /// drawn ones.
    pub stable_effect: Option<Effect>,
}

impl StudyRow {
    fn right(&self) -> bool {
        self.effect_modelled == Some(self.effect_published)
    }
    /// Error of the modelled change in points.
    pub fn error(&self) -> Option<f64> {
        Some((self.modelled_delta_pct? - self.published_delta_pct?).abs())
    }
    /// True if `drawn`, the same row with other costs, has the same effect: a change keeps its
    /// sign, and where there was none there is none.
    pub fn keeps_effect(&self, drawn: &StudyRow) -> bool {
        let sign = |r: &StudyRow| r.modelled_delta_pct.map(f64::signum);
        match self.effect_modelled {
            Some(Effect::Neutral) => drawn.effect_modelled == Some(Effect::Neutral),
            Some(_) => sign(self) == sign(drawn),
            None => false,
        }
    }
    /// Sets the model's figures: those of the seeds, none if they are not known.
    pub fn model(&mut self, before: Vec<f64>, after: Vec<f64>, band: f64) {
        let means = (mean(&before), mean(&after));
        (self.seeds_before, self.seeds_after) = (before, after);
        (self.modelled_before, self.modelled_after) = means;
        self.modelled_delta_pct = means.0.zip(means.1).and_then(|(b, a)| change_pct(b, a));
        self.effect_modelled = self.modelled_delta_pct.map(|pct| effect_of(pct, band));
    }
}

/// The change from `before` to `after` in %; nothing that stays nothing is no change.
pub fn change_pct(before: f64, after: f64) -> Option<f64> {
    if before == after { Some(0.0) } else { ratio(100.0 * (after - before), before.abs()) }
}

/// How well a study's rows agree.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Score {
    /// Rows that count.
    pub rows: usize,
    /// Rows of cases that did not run, as after ^C: they count nowhere here.
    pub rows_not_run: usize,
    /// Effects that agree.
    pub effects_right: usize,
    /// Over the answer "always improves"; null if that answer is always right.
    pub skill: Option<f64>,
    /// Published neutral rows among them.
    pub neutral_rows: usize,
    /// Those that the model calls neutral as well.
    pub neutral_right: usize,
    /// Median error of the change in points.
    pub median_abs_error_points: Option<f64>,
    /// The same by metric.
    pub median_by_metric: BTreeMap<String, f64>,
    /// Effects that at least nine in ten of the cost tables drawn keep; null if none were drawn.
    pub stable: Option<usize>,
    /// Fitted numbers.
    pub fitted_parameters: usize,
}

/// The score of `rows`.
pub fn score(rows: &[StudyRow], fitted_parameters: usize) -> Score {
    // A case that never ran says nothing, right or wrong.
    let with = |known: fn(&StudyRow) -> bool| -> BTreeSet<&str> {
        rows.iter().filter(|&r| known(r)).map(|r| r.case.as_str()).collect()
    };
    let (before, after) =
        (with(|r| r.modelled_before.is_some()), with(|r| r.modelled_after.is_some()));
    let ran = &before & &after;
    let asked: Vec<&StudyRow> = rows.iter().filter(|r| r.scored).collect();
    let scored: Vec<&StudyRow> =
        asked.iter().filter(|r| ran.contains(r.case.as_str())).copied().collect();
    let count = |f: &dyn Fn(&StudyRow) -> bool| scored.iter().filter(|r| f(r)).count();
    let right = count(&StudyRow::right);
    let base = count(&|r| r.effect_published == Effect::Improves);
    let neutral = |r: &StudyRow| r.effect_published == Effect::Neutral;
    let stable = |r: &StudyRow| r.stable.is_some_and(|(kept, of)| 10 * kept >= 9 * of);
    let errors = |metric: Option<&str>| -> Option<f64> {
        let of = scored.iter().filter(|r| metric.is_none_or(|m| r.metric == m));
        median(of.filter_map(|r| r.error()).collect())
    };
    let by = METRICS.iter().filter_map(|&m| Some((m.to_string(), errors(Some(m))?)));
    Score {
        rows: scored.len(),
        rows_not_run: asked.len() - scored.len(),
        effects_right: right,
        skill: ratio(right as f64 - base as f64, (scored.len() - base) as f64),
        neutral_rows: count(&neutral),
        neutral_right: count(&|r| neutral(r) && r.right()),
        median_abs_error_points: errors(None),
        median_by_metric: by.collect(),
        stable: scored.iter().any(|r| r.stable.is_some()).then(|| count(&stable)),
        fitted_parameters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use vruntime_base::Resource;
    use vruntime_formats::kernel_file;
    use vruntime_formats::machine_file::builtin_machine;
    use vruntime_kernel::record::{GroupProgress, RunSpec, Sampling};
    use vruntime_kernel::simulate::run;

    fn row(published: (f64, f64), effect: Effect, modelled: (f64, f64)) -> StudyRow {
        let mut r = StudyRow {
            id: "x".into(),
            case: "c".into(),
            metric: "time".into(),
            published_before: published.0,
            published_before_spread_pct: None,
            published_after: published.1,
            published_delta_pct: change_pct(published.0, published.1),
            modelled_before: None,
            modelled_after: None,
            modelled_delta_pct: None,
            seeds_before: vec![],
            seeds_after: vec![],
            effect_published: effect,
            effect_modelled: None,
            fitted: false,
            scored: true,
            derived: false,
            stable: None,
            stable_effect: None,
        };
        r.model(vec![modelled.0], vec![modelled.1], 2.5);
        r
    }

    /// Three of four effects are right where "always improves" gets two: half of what was missing.
    #[test]
    fn skill_is_over_the_lazy_answer() {
        let rows = [
            row((46.0, 37.0), Effect::Improves, (50.0, 45.0)),
            row((70.0, 70.0), Effect::Neutral, (60.0, 60.6)),
            row((70.0, 70.0), Effect::Neutral, (60.0, 70.0)),
            row((10.0, 5.0), Effect::Improves, (10.0, 8.0)),
        ];
        let s = score(&rows, 1);
        assert_eq!((s.rows, s.effects_right, s.neutral_rows, s.neutral_right), (4, 3, 2, 1));
        assert_eq!(s.skill, Some(0.5));
        // Errors 9.57, 1.0, 16.7, 30: the median is between the middle two.
        let median = s.median_abs_error_points.unwrap();
        assert!((median - (9.565 + 16.667) / 2.0).abs() < 0.01, "{median}");
        assert_eq!(s.fitted_parameters, 1);
    }

    /// Three groups are through 4, 5 and 8 ms after the start, of a 100th of the loops: the middle
    /// one needs 500 ms for all of them, the last one 10 times its 3 ms more.
    #[test]
    fn the_last_group_falls_back_as_a_random_walk_does() {
        let mut r = sample::record("x", 1, 0.008);
        let ms = Ns::from_ms;
        (r.started, r.time) = (ms(1), Some(ms(8)));
        let group = |at| GroupProgress {
            goal: 1,
            at_window_start: 0,
            at_half: 0,
            at_window_end: 1,
            finished_at: Some(ms(at)),
            seen_running: 1,
            seen_waiting: 0,
        };
        r.groups = [9, 5, 6].map(group).to_vec();
        assert_eq!(whole_time(&r, 100, 1), Some(ms(530)));
        assert_eq!(whole_time(&r, 7, 7), r.time);
        // One group, or none that is counted, is its own middle.
        r.groups = vec![group(9)];
        assert_eq!(whole_time(&r, 100, 1), Some(ms(800)));
        r.groups.clear();
        assert_eq!(whole_time(&r, 100, 1), Some(ms(800)));
        r.time = None;
        assert_eq!(whole_time(&r, 100, 1), None);
    }

    /// Two groups of 1,000 messages did 300 and 200 in a window of 2 s: of the other 700 and 800
    /// all are done 1500 · 2/500 = 6 s after its end.
    #[test]
    fn all_are_through_at_the_rate_of_all_together() {
        let mut r = sample::record("x", 1, 3.0);
        let group = |(at_window_start, at_window_end)| GroupProgress {
            goal: 1_000,
            at_window_start,
            at_half: at_window_start,
            at_window_end,
            finished_at: None,
            seen_running: 1,
            seen_waiting: 0,
        };
        r.window = (Ns::from_ms(1_000), Ns::from_ms(3_000));
        r.groups = [(0, 300), (0, 200)].map(group).to_vec();
        assert_eq!(time_of_all(&r), Some(Ns::from_ms(9_000)));
        // The time is from the start on.
        r.started = Ns::from_ms(500);
        assert_eq!(time_of_all(&r), Some(Ns::from_ms(8_500)));
        // What came before the window does not tell the rate: 1400 · 2/400 = 7 s.
        r.groups = [(100, 300), (100, 300)].map(group).to_vec();
        assert_eq!(time_of_all(&r), Some(Ns::from_ms(9_500)));
        r.groups = [(300, 300)].map(group).to_vec();
        assert_eq!(time_of_all(&r), None, "nothing moves");
    }

    /// A complete run of `workload`.
    fn complete(machine: &str, kernel: &str, workload: &str) -> RunRecord {
        let machine = builtin_machine(machine).unwrap();
        let release = kernel_file::kernel(kernel).unwrap().release;
        let spec = RunSpec::new(machine, release, vruntime_workload::parse(workload).unwrap());
        let sampling = Sampling::Full { limit: Ns::from_ms(2_000) };
        run(&RunSpec { sampling, ..spec }).unwrap()
    }

    /// Searches are told by the names of rules, as a run has them.
    #[test]
    fn searches_for_an_idle_cpu_are_known_by_their_rules() {
        let mut r = complete("numa-48", "v6.5", "hackbench -g 6 -f 8 --pipe --threads -l 400");
        let has = |rule: &&str| r.placements.iter().any(|(name, n)| name == rule && *n > 0);
        // No limit of no CPU at all: that is for busier machines.
        assert!(FOUND.iter().chain(&CUT[1..]).chain(&[LOOKED]).all(has), "{:?}", r.placements);
        r.placements =
            [FOUND[0], FOUND[2], CUT[0], CUT[1], LOOKED, "prev idle"].map(|n| (n, 10)).into();
        r.migrations = vec![(FOUND[2], 9), ("recent_used_cpu idle", 7)];
        r.cpu_time = vec![
            (Func::Idle, Resource::None, Ns(20)),
            (Func::IdleExit, Resource::None, Ns(5)),
            (Func::RqLock, Resource::RqLock, Ns(75)),
        ];
        // 60 placements, 50 of them by a search, in a us on 48 CPUs.
        r.window = (Ns(0), Ns(1_000));
        let metrics = ["search_cut", "search_move", "idle", "rq_spin", "placement", "search"];
        let got = metrics.map(|name| study_metric(name, &r).unwrap().round());
        assert_eq!(got, [40.0, 15.0, 25.0, 100.0, 1_250.0, 1_042.0]);
    }

    #[test]
    fn rates_are_thousands_a_second_and_cpu() {
        let mut r = sample::record("x", 1, 0.008);
        (r.window, r.nr_cpus) = ((Ns(1_000_000), Ns(3_000_000)), 4);
        r.counters.context_switches = 800;
        r.counters.involuntary_switches = 160;
        r.counters.cpu_migrations = 40;
        let rates = ["context_switch", "involuntary", "migration"];
        let got = rates.map(|name| study_metric(name, &r).unwrap());
        assert_eq!(got, [100.0, 20.0, 5.0]);
    }

    /// Causes are told by their names, as a run has them.
    #[test]
    fn sleeps_for_room_are_a_share_of_what_left_a_cpu() {
        let mut r = complete("uma-2", "v6.12", "hackbench -g 1 -f 2 --pipe -l 4000");
        let has = |rule| r.switches.iter().any(|(name, n)| *name == rule && *n > 0);
        assert!(has(NO_ROOM) && has(FROM_IDLE), "{:?}", r.switches);
        r.switches = vec![(NO_ROOM, 3), (FROM_IDLE, 90), ("blocks: nothing to read", 7)];
        assert_eq!(study_metric("write_sleep", &r), Some(30.0));
    }

    #[test]
    fn without_anything_but_improvements_there_is_no_skill() {
        let s = score(&[row((2.0, 1.0), Effect::Improves, (2.0, 1.0))], 0);
        assert_eq!((s.effects_right, s.skill), (1, None));
        assert_eq!(score(&[], 0).median_abs_error_points, None);
    }

    /// The second case did not run; of the first a metric is not known, which is no agreement.
    #[test]
    fn cases_that_did_not_run_count_nowhere() {
        let known = row((2.0, 1.0), Effect::Improves, (2.0, 1.0));
        let unknown = StudyRow {
            modelled_before: None,
            modelled_after: None,
            effect_modelled: None,
            ..known.clone()
        };
        let other = StudyRow { case: "other".into(), ..unknown.clone() };
        let s = score(&[known, unknown, other], 0);
        assert_eq!((s.rows, s.rows_not_run, s.effects_right), (2, 1, 1));
    }

    #[test]
    fn an_effect_is_kept_by_its_sign_or_by_staying_away() {
        let with = |after| row((10.0, 8.0), Effect::Improves, (10.0, after));
        let (better, none) = (with(8.0), with(10.1));
        assert!(better.keeps_effect(&with(9.9)) && !better.keeps_effect(&with(10.1)));
        assert!(none.keeps_effect(&with(9.9)) && !none.keeps_effect(&with(11.0)));
        let mut unknown = with(8.0);
        unknown.model(vec![], vec![1.0], 2.5);
        assert!(!unknown.keeps_effect(&better) && !better.keeps_effect(&unknown));
    }

    #[test]
    fn nine_draws_in_ten_make_an_effect_stable() {
        let kept = |stable| StudyRow { stable, ..row((2.0, 1.0), Effect::Improves, (2.0, 1.0)) };
        let rows = [kept(Some((18, 20))), kept(Some((17, 20)))];
        assert_eq!(score(&rows, 0).stable, Some(1));
        assert_eq!(score(&[kept(None)], 0).stable, None);
    }

    /// Two seeds in two states.
    #[test]
    fn seeds_are_kept_beside_their_mean() {
        let mut r = row((1.0, 1.0), Effect::Neutral, (1.0, 1.0));
        r.model(vec![100.0, 100.0], vec![300.0, 100.0], 2.5);
        assert_eq!((r.modelled_before, r.modelled_after), (Some(100.0), Some(200.0)));
        assert_eq!(r.modelled_delta_pct, Some(100.0));
        assert_eq!((r.seeds_before, r.seeds_after), (vec![100.0; 2], vec![300.0, 100.0]));
    }

    #[test]
    fn an_unknown_change_is_not_right() {
        let mut r = row((2.0, 1.0), Effect::Improves, (2.0, 1.0));
        r.model(vec![], vec![1.0], 2.5);
        assert!(!r.right() && r.error().is_none());
    }
}
