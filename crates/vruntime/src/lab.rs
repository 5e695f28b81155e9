//! A study being carried out: its runs, its rows, its draws of cost tables, its fit.

use crate::batch::run_specs;
use crate::cli::StudyArgs;
use crate::commands::workload as workload_of;
use crate::failure::{Done, Failure};
use crate::interrupt;
use crate::machine_choice::machine;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::study_file::{
    Case, Effect as Published, Effort, Fitted, FittedCosts, PublishedRow, Span, Study, TimeFrom,
};
use vruntime_kernel::program::{Shortened, Workload};
use vruntime_kernel::record::{FULL_LIMIT, RunRecord, RunSpec, Sampling, Variation};
use vruntime_machine::MachineSpec;
use vruntime_machine::costs::CostRow;
use vruntime_measure::message_time::message_time;
use vruntime_measure::stats::mean;
use vruntime_measure::study::{
    Effect, StudyRow, change_pct, study_metric, time_of_all, whole_time,
};
use vruntime_report::study::{MessageTime, Price};

/// Factors over the allowed range that a fit tries; then it tries half a step either side of the
/// best. Near a collapse times do not grow steadily with costs, so nothing is gained by halving.
const FIT_GRID: u32 = 5;

/// What is run under one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    machine: String,
    kernel: String,
    workload: String,
    /// See [`Case::loops_divided_by`].
    pub loops_divided_by: Option<u32>,
}

/// What is complete: records of each key by seed.
pub type Records = BTreeMap<Key, Vec<RunRecord>>;

/// A study being carried out.
pub struct Lab<'a> {
    /// What it is.
    pub study: &'a Study,
    /// How much is simulated.
    pub effort: Effort,
    /// With the study's fit.
    pub machines: BTreeMap<String, Arc<MachineSpec>>,
    /// Threads; 0 for one per CPU.
    pub threads: usize,
    /// No progress bar.
    pub quiet: bool,
}

impl Lab<'_> {
    /// The machines with what was fitted, unless it is to be fitted now.
    pub fn new<'a>(study: &'a Study, args: &StudyArgs) -> Result<Lab<'a>, Failure> {
        let effort = study.full;
        let mut machines = BTreeMap::new();
        for case in &study.cases {
            if machines.contains_key(&case.machine) {
                continue;
            }
            let mut spec = machine(&case.machine).map_err(|e| study.wrong(&case.id, e))?;
            if let (Some(fitted), Some(fit), false) =
                (&study.fitted, study.fit_of(&case.machine), args.fit)
            {
                multiply(&mut spec, fitted.costs, fit.permille);
            }
            machines.insert(case.machine.clone(), Arc::new(spec));
        }
        let threads = args.workers.threads as usize;
        Ok(Lab { study, effort, machines, threads, quiet: args.workers.quiet })
    }

    fn key(&self, case: &Case, after: bool, effort: &Effort) -> Key {
        let kernel = if after { &case.after } else { &case.before };
        Key {
            machine: case.machine.clone(),
            kernel: kernel.clone(),
            workload: case.workload.clone(),
            loops_divided_by: case.loops_divided_by.filter(|_| *effort == self.effort),
        }
    }

    /// Seeds of `case`: it may want others in a full run.
    fn seeds_of_case(&self, case: &Case, effort: &Effort) -> u64 {
        case.seeds.filter(|_| *effort == self.effort).unwrap_or(effort.seeds)
    }

    /// Seeds of `key`: as many as one of its cases wants.
    fn seeds(&self, key: &Key, effort: &Effort) -> u64 {
        let of_key = |c: &&Case| [false, true].map(|x| self.key(c, x, effort)).contains(key);
        let cases = self.study.cases.iter().filter(of_key);
        cases.map(|c| self.seeds_of_case(c, effort)).max().unwrap_or(effort.seeds)
    }

    /// The records of `case`; another one may want more of the same.
    fn records_of<'r>(
        &self,
        records: &'r Records,
        case: &Case,
        after: bool,
        effort: &Effort,
    ) -> Option<&'r [RunRecord]> {
        let runs = records.get(&self.key(case, after, effort))?;
        Some(&runs[..runs.len().min(self.seeds_of_case(case, effort) as usize)])
    }

    /// Runs every key with every seed of `effort`; after ^C those are missing of which a seed is.
    pub fn run(
        &self,
        keys: &[Key],
        effort: &Effort,
        variation: &Variation,
    ) -> Result<Records, Failure> {
        let mut specs = Vec::new();
        let mut parts = Vec::new();
        for key in keys {
            let seeds = self.seeds(key, effort);
            let choice = kernel(&key.kernel)?;
            let release = Arc::new(choice.release);
            let part = part_of(&key.workload, key.loops_divided_by, effort)?;
            specs.extend((1..=seeds).map(|seed| RunSpec {
                seed: seed.wrapping_add(choice.seed_offset),
                sampling: part.sampling,
                variation: variation.clone(),
                ..RunSpec::new(
                    Arc::clone(&self.machines[&key.machine]),
                    Arc::clone(&release),
                    Arc::clone(&part.workload),
                )
            }));
            parts.push((part, seeds as usize));
        }
        // What is wrong stands in the study, not on the command line.
        let records = run_specs(&specs, self.threads, self.quiet).map_err(|e| match e {
            Failure::Usage(e) => Failure::Input(format!("study `{}`: {e}", self.study.name)),
            e => e,
        })?;
        let mut records = records.into_iter();
        let mut complete = Records::new();
        for (key, (part, seeds)) in keys.iter().zip(parts) {
            let of_key: Vec<_> = records.by_ref().take(seeds).collect();
            let Some(mut of_key) = of_key.into_iter().collect::<Option<Vec<_>>>() else {
                continue;
            };
            for record in &mut of_key {
                record.time = part.time_of(record);
            }
            complete.insert(key.clone(), of_key);
        }
        Ok(complete)
    }

    /// Every key of the study once.
    pub fn keys(&self, effort: &Effort) -> Vec<Key> {
        let mut keys = Vec::new();
        for case in &self.study.cases {
            for k in [false, true].map(|after| self.key(case, after, effort)) {
                if !keys.contains(&k) {
                    keys.push(k);
                }
            }
        }
        keys
    }

    /// A metric of each run of a key; nothing if a run does not know it.
    fn values(records: &[RunRecord], metric: &str) -> Vec<f64> {
        let known: Option<Vec<f64>> = records.iter().map(|r| study_metric(metric, r)).collect();
        known.unwrap_or_default()
    }

    /// Published figures beside those of `records`, which `effort` made.
    pub fn rows(&self, records: &Records, effort: &Effort) -> Vec<StudyRow> {
        let row = |r: &PublishedRow| {
            let case = self.case(&r.case);
            let values = |after| {
                let runs = self.records_of(records, case, after, effort);
                runs.map_or(Vec::new(), |runs| Self::values(runs, &r.metric))
            };
            let mut row = published_row(self.study, r);
            let band = self.study.neutral_pct.get(&r.metric).copied().unwrap_or(0.0);
            row.model(values(false), values(true), band);
            row
        };
        self.study.rows.iter().map(row).collect()
    }

    /// The case of this id.
    pub fn case(&self, id: &str) -> &Case {
        self.study.cases.iter().find(|c| c.id == id).expect("the reader has checked")
    }

    /// Where the CPU time of a message goes in the cases that the study wants it of.
    pub fn message_times(&self, records: &Records, rows: &[StudyRow]) -> Vec<MessageTime> {
        let of = |id: &String| {
            let case = self.case(id);
            let rows: Vec<&StudyRow> = rows.iter().filter(|r| r.case == *id).collect();
            let [before, after] =
                [false, true].map(|after| self.records_of(records, case, after, &self.effort));
            let by = case.loops_divided_by;
            let Part { whole, part, .. } = part_of(&case.workload, by, &self.effort).ok()?;
            let rows = message_time(before?, after?, &rows, f64::from(whole) / f64::from(part));
            // As the model uses them.
            let machine = &self.machines[&case.machine];
            let mut costs = machine.costs.clone();
            costs.scale_paths(machine.path_permille.mid);
            let named = costs.iter().filter(|c| rows.iter().any(|r| r.is_priced_by(c.name)));
            let price = |c: CostRow| Price {
                name: c.name,
                low_mid_high: [c.cost.low, c.cost.mid, c.cost.high],
                source: c.cost.source.clone(),
            };
            Some(MessageTime {
                case: id.clone(),
                machine: case.machine.clone(),
                costs: named.map(price).collect(),
                rows,
            })
        };
        self.study.message_time.iter().filter_map(of).collect()
    }

    /// Draws cost tables and counts in how many each effect stays what it is with the costs in the
    /// middle, when as much is simulated.
    pub fn uncertainty(&self, rows: &mut [StudyRow], draws: Range<u64>) -> Result<(), Failure> {
        let effort = self.study.of_draws();
        let middle = match *effort == self.effort {
            true => rows.to_vec(),
            false => {
                self.rows(&self.run(&self.keys(effort), effort, &Variation::default())?, effort)
            }
        };
        for n in draws {
            let variation = Variation { draw: Some(n), ..Variation::default() };
            let drawn = self.run(&self.keys(effort), effort, &variation)?;
            if interrupt::seen() {
                break;
            }
            let drawn = self.rows(&drawn, effort);
            for ((row, middle), drawn) in rows.iter_mut().zip(&middle).zip(drawn) {
                let (kept, of) = row.stable.unwrap_or_default();
                row.stable = Some((kept + usize::from(middle.keeps_effect(&drawn)), of + 1));
                row.stable_effect = middle.effect_modelled;
            }
        }
        Ok(())
    }

    /// Fits one number a machine on the times before the change, and prints it for the file.
    pub fn fit(&mut self) -> Result<Done, Failure> {
        let Some(fitted) = self.study.fitted.clone() else {
            let what =
                format!("study `{}` has no [fitted]: nothing may be fitted", self.study.name);
            return Err(Failure::Usage(what));
        };
        let mut out = String::new();
        for name in self.machines.keys().cloned().collect::<Vec<_>>() {
            match self.fit_machine(&name, &fitted) {
                // What is fitted has taken long enough.
                Err(Failure::Interrupted) if !out.is_empty() => {
                    return Ok(Done::new(out).interrupted(true));
                }
                text => out += &text?,
            }
        }
        if out.is_empty() {
            let what = format!("study `{}`: no scored row of `time` to fit on", self.study.name);
            return Err(Failure::Input(what));
        }
        Ok(Done::new(out))
    }

    /// The fit of one machine, as the file has it; nothing if no base row is of that machine.
    fn fit_machine(&mut self, name: &str, fitted: &Fitted) -> Result<String, Failure> {
        let mut base: Vec<Base> = Vec::new();
        for r in self.study.rows.iter().filter(|r| r.metric == "time" && r.scored) {
            let case = self.case(&r.case);
            let k = self.key(case, false, &self.effort);
            match base.iter_mut().find(|b| b.key == k) {
                _ if case.machine != name => {}
                Some(b) => b.ids.push(r.id.clone()),
                None => base.push(Base { key: k, published: r.before, ids: vec![r.id.clone()] }),
            }
        }
        if base.is_empty() {
            return Ok(String::new());
        }
        let plain = Arc::clone(&self.machines[name]);
        let span = fitted.high - fitted.low;
        let step = span / (FIT_GRID - 1);
        let range = fitted.low..=fitted.high;
        let grid: Vec<u32> =
            (0..FIT_GRID).map(|i| fitted.low + span * i / (FIT_GRID - 1)).collect();
        let mut best = (0u32, f64::INFINITY);
        for fine in [false, true] {
            let beside = [best.0.saturating_sub(step / 2), best.0 + step / 2];
            let factors = if fine { &beside[..] } else { &grid };
            for &permille in factors.iter().filter(|f| range.contains(f)) {
                let mut spec = (*plain).clone();
                multiply(&mut spec, fitted.costs, permille);
                self.machines.insert(name.into(), Arc::new(spec));
                let residual = self.residual(name, permille, &base)?;
                if residual < best.1 {
                    best = (permille, residual);
                }
            }
        }
        let ids: Vec<String> =
            base.iter().flat_map(|b| &b.ids).map(|id| format!("\"{id}\"")).collect();
        Ok(format!(
            "[[fit]]\nmachine = \"{name}\"\nrows = [{}]\npermille = {}\n\
                 residual_pct = {:.1}\n",
            ids.join(", "),
            best.0,
            best.1
        ))
    }

    /// How far, in percent, the machine `name` as it is now is from the times of `base`: the root
    /// of the mean square of the logarithms.
    fn residual(&self, name: &str, permille: u32, base: &[Base]) -> Result<f64, Failure> {
        let keys: Vec<Key> = base.iter().map(|b| b.key.clone()).collect();
        let records = self.run(&keys, &self.effort, &Variation::default())?;
        let (mut squares, mut times) = (0.0, Vec::new());
        for b in base {
            let of_key = records.get(&b.key).ok_or(Failure::Interrupted)?;
            let no_time = "fit: a group made no progress, or a benchmark was given up";
            let time = mean(&Self::values(of_key, "time"));
            let time = time.ok_or_else(|| Failure::Input(no_time.into()))?;
            squares += (time / b.published).ln().powi(2);
            times.push(format!("{time:.1} ({})", b.published));
        }
        let residual = 100.0 * (squares / base.len() as f64).sqrt();
        if !self.quiet {
            let (factor, times) = (f64::from(permille) / 1000.0, times.join(", "));
            eprintln!("fit: {name}, times {factor:.3}: {times} s; residual {residual:.1} %");
        }
        Ok(residual)
    }
}

/// A published time before a change, for the fit.
struct Base {
    key: Key,
    published: f64,
    /// Rows that it stands in.
    ids: Vec<String>,
}

/// What is simulated of a workload: `part` of its `whole` loops.
pub struct Part {
    /// With these loops.
    pub workload: Arc<dyn Workload>,
    /// How long.
    pub sampling: Sampling,
    /// Loops.
    pub whole: u32,
    part: u32,
    time_by: TimeBy,
}

/// What tells the time of the whole benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeBy {
    /// The progress of all groups together, in a window.
    AllGroups,
    /// The run's time, what the last group needs beyond the others by chance: [`whole_time`].
    Chance,
    /// The run's time: what the last group needs beyond the others grows with the loops.
    Loops,
}

impl Part {
    /// The time of the whole benchmark, by this run of the part.
    pub fn time_of(&self, r: &RunRecord) -> Option<Ns> {
        match self.time_by {
            TimeBy::AllGroups if !r.complete => time_of_all(r),
            TimeBy::Loops => {
                r.time.map(|time| Ns(time.0 * u64::from(self.whole) / u64::from(self.part)))
            }
            TimeBy::AllGroups | TimeBy::Chance => whole_time(r, self.whole, self.part),
        }
    }
    /// It is not what a run of the whole would say of itself.
    pub fn has_own_time(&self) -> bool {
        self.time_by == TimeBy::AllGroups || self.whole != self.part
    }
}

/// What `effort` simulates of a workload, or a case with so many times fewer loops of it.
fn part_of(command: &str, by: Option<u32>, effort: &Effort) -> Result<Part, Failure> {
    match by {
        Some(by) => Ok(Part { time_by: TimeBy::Loops, ..shortened(command, by)? }),
        None => part(command, effort),
    }
}

/// See [`Part`].
pub fn part(command: &str, effort: &Effort) -> Result<Part, Failure> {
    match effort.span() {
        Span::Window { warmup_ms, window_ms, time } => Ok(Part {
            workload: workload_of(command)?,
            sampling: window(warmup_ms, window_ms),
            whole: 1,
            part: 1,
            time_by: match time {
                TimeFrom::AllGroups => TimeBy::AllGroups,
                TimeFrom::SlowestGroup => TimeBy::Chance,
            },
        }),
        Span::Shortened(by) => shortened(command, by),
    }
}

/// The workload with so many times fewer loops, or what is wrong with that.
pub fn shortened(command: &str, by: u32) -> Result<Part, Failure> {
    let Some(Shortened { workload, whole, part }) = workload_of(command)?.shortened(by) else {
        let what = format!("loops_divided_by: `{command}` cannot be shortened");
        return Err(Failure::Input(what));
    };
    if by > whole {
        let what = format!("loops_divided_by = {by}: expected at most its loops, {whole}");
        return Err(Failure::Input(what));
    }
    let sampling = Sampling::Full { limit: FULL_LIMIT };
    Ok(Part { workload, sampling, whole, part, time_by: TimeBy::Chance })
}

/// A window after a warm-up.
pub fn window(warmup_ms: u64, window_ms: u64) -> Sampling {
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

/// A row of `study` before anything was run.
pub fn published_row(study: &Study, r: &PublishedRow) -> StudyRow {
    StudyRow {
        id: r.id.clone(),
        case: r.case.clone(),
        metric: r.metric.clone(),
        published_before: r.before,
        published_before_spread_pct: r.before_spread_pct,
        published_after: r.after,
        published_delta_pct: change_pct(r.before, r.after),
        modelled_before: None,
        modelled_after: None,
        modelled_delta_pct: None,
        seeds_before: Vec::new(),
        seeds_after: Vec::new(),
        effect_published: match r.effect {
            Published::Improves => Effect::Improves,
            Published::Worsens => Effect::Worsens,
            Published::Neutral => Effect::Neutral,
        },
        effect_modelled: None,
        fitted: study.fits.iter().any(|f| f.rows.contains(&r.id)),
        scored: r.scored,
        derived: r.derived,
        stable: None,
        stable_effect: None,
    }
}
