//! The questions that `explain` asks the model, and the order in which it asks them.
//!
//! First every knock-out alone, under both kernels: the difference that is left says how much hangs
//! on it. Those that leave the least, seed by seed, are taken apart exactly, in all combinations,
//! so that both directions (out of the whole, into what is left without them) count the same. One
//! that leaves more than there was hides a part of the difference, and one that turns it round
//! makes a machine do something else; both are told, and taken apart last. What differs between
//! the kernels is taken apart likewise, from the one kernel to the other.
//!
//! Nothing here runs a model: the caller gives a function from points to values.

use crate::failure::Failure;
use serde_json::{Map, Value};
use vruntime_kernel::record::Knockout;
use vruntime_measure::Counting;
use vruntime_measure::explain::{
    Explanation, Game, Kind, Pair, Part, Tried, interval, pairs_of, part, parts_of,
};
use vruntime_measure::stats::mean;
use vruntime_sched::release::Release;

/// Differing mechanisms that are taken apart exactly; more are ranked and the least become one.
const MECHANISMS_MAX: usize = 4;
/// Fields that only name a release or what it prints.
const IDENTITY: [&str; 4] = ["name", "version", "description", "schedstat_version"];

/// One run to make.
#[derive(Clone, Debug)]
pub struct Point {
    /// The kernel.
    pub release: Release,
    /// Left out of the model.
    pub without: Vec<Knockout>,
    /// Added to costs.
    pub extra: Vec<(String, u32)>,
    /// The seed.
    pub seed: u64,
    /// The question's seed that it belongs to.
    pub of: u64,
}

/// What to explain.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The two kernels.
    pub releases: [&'a Release; 2],
    /// Added to the seeds of each.
    pub offsets: [u64; 2],
    /// Costs added under the second.
    pub plant: &'a [(String, u32)],
    /// Seeds.
    pub seeds: &'a [u64],
    /// Knock-outs to try.
    pub tries: &'a [Knockout],
    /// How many of them to take apart.
    pub split: usize,
}

/// Gives the value of each point; not a number where its run does not know it.
pub type Runner<'a> = dyn FnMut(&[Point]) -> Result<Vec<f64>, Failure> + 'a;

/// Asks and divides. The caller names machine, workload and metric.
pub fn answer(q: &Question, run: &mut Runner) -> Result<Explanation, Failure> {
    let whole = pair(q, run, &[vec![]])?.remove(0);
    let delta = whole.delta();

    let singles = pair(q, run, &q.tries.iter().map(|&k| vec![k]).collect::<Vec<_>>())?;
    let mut order: Vec<usize> = (0..q.tries.len()).collect();
    order.sort_by(|&a, &b| singles[a].left().total_cmp(&singles[b].left()));
    let chosen: Vec<usize> = order.iter().copied().take(q.split).collect();

    let (mut parts, mut pairs) = mechanisms(q, run, &whole)?;
    let (game, names) = costs(q, run, &whole, &singles, &chosen)?;
    parts.extend(parts_of(&game, &names, Kind::Cost, &delta));
    pairs.extend(pairs_of(&game, &names, Kind::Cost));
    parts.push(part("rest".into(), Kind::Rest, &game.value[0], &delta));

    let tried =
        order.iter().map(|&i| tried(q.tries[i], &singles[i], chosen.contains(&i))).collect();
    Ok(explanation(q, &whole, parts, pairs, tried))
}

/// After ^C: the seeds and knock-outs that are through; nothing is taken apart.
pub fn answer_so_far(q: &Question, run: &mut Runner) -> Result<Explanation, Failure> {
    let mut seeds = q.seeds.to_vec();
    seeds.retain(|&seed| pair(&Question { seeds: &[seed], ..*q }, run, &[vec![]]).is_ok());
    if seeds.is_empty() {
        return Err(Failure::Interrupted);
    }
    let q = &Question { seeds: &seeds, ..*q };
    let whole = pair(q, run, &[vec![]])?.remove(0);
    let mut rows = Vec::new();
    for &k in q.tries {
        if let Ok(sides) = pair(q, run, &[vec![k]]) {
            rows.push(tried(k, &sides[0], false));
        }
    }
    rows.sort_by(|a, b| a.left.total_cmp(&b.left));
    Ok(explanation(q, &whole, Vec::new(), Vec::new(), rows))
}

fn tried(knockout: Knockout, s: &Sides, split: bool) -> Tried {
    Tried {
        mechanism: knockout.name().into(),
        before: mean(&s.before),
        after: mean(&s.after),
        delta: mean(&s.delta()),
        left: s.left(),
        split,
    }
}

fn explanation(
    q: &Question,
    whole: &Sides,
    parts: Vec<Part>,
    pairs: Vec<Pair>,
    tried: Vec<Tried>,
) -> Explanation {
    let (delta, ends) = interval(&whole.delta());
    let mut names = q.releases.map(|r| r.name.clone());
    for (cost, ns) in q.plant {
        names[1] += &format!(" and {cost} + {ns} ns");
    }
    Explanation {
        schema: "vruntime/explain/1",
        machine: String::new(),
        workload: String::new(),
        kernels: names,
        seeds: q.seeds.to_vec(),
        metric: String::new(),
        unit: "",
        before: mean(&whole.before).unwrap_or(0.0),
        after: mean(&whole.after).unwrap_or(0.0),
        delta,
        delta_low: ends.map(|e| e.0),
        delta_high: ends.map(|e| e.1),
        parts,
        pairs,
        tried,
        counting: Counting::Totals,
        left_out: Vec::new(),
        given_up: 0,
        interrupted: false,
        conclusion: String::new(),
    }
}

/// Values of both kernels, by seed.
struct Sides {
    before: Vec<f64>,
    after: Vec<f64>,
}

impl Sides {
    fn delta(&self) -> Vec<f64> {
        self.after.iter().zip(&self.before).map(|(a, b)| a - b).collect()
    }

    /// How far the kernels are apart with one seed, whichever is ahead, on average: differences
    /// of both signs are not nothing because they add up to it.
    fn left(&self) -> f64 {
        let apart: Vec<f64> = self.delta().iter().map(|d| d.abs()).collect();
        mean(&apart).unwrap_or(0.0)
    }
}

/// The two kernels as they are, for each seed.
pub fn whole(q: &Question, run: &mut Runner) -> Result<(), Failure> {
    pair(q, run, &[vec![]]).map(|_| ())
}

/// Both kernels without each of `sets`.
fn pair(q: &Question, run: &mut Runner, sets: &[Vec<Knockout>]) -> Result<Vec<Sides>, Failure> {
    let mut points = Vec::new();
    for without in sets {
        for side in [0, 1] {
            points.extend(q.seeds.iter().map(|&seed| Point {
                release: q.releases[side].clone(),
                without: without.clone(),
                extra: if side == 1 { q.plant.to_vec() } else { Vec::new() },
                seed: seed.wrapping_add(q.offsets[side]),
                of: seed,
            }));
        }
    }
    let values = if points.is_empty() { Vec::new() } else { run(&points)? };
    let n = q.seeds.len();
    let sides = |v: &[f64]| Sides { before: v[..n].to_vec(), after: v[n..].to_vec() };
    Ok(values.chunks(2 * n).map(sides).collect())
}

/// The game of the chosen knock-outs: a part is present if it is not left out.
fn costs(
    q: &Question,
    run: &mut Runner,
    whole: &Sides,
    singles: &[Sides],
    chosen: &[usize],
) -> Result<(Game, Vec<String>), Failure> {
    let n = chosen.len();
    let all = (1usize << n) - 1;
    let mut value = vec![Vec::new(); 1 << n];
    value[all] = whole.delta();
    for (bit, &i) in chosen.iter().enumerate() {
        value[all & !(1 << bit)] = singles[i].delta();
    }
    let missing: Vec<usize> = (0..=all).filter(|&set| value[set].is_empty()).collect();
    let out_of = |&set: &usize| -> Vec<Knockout> {
        (0..n).filter(|bit| set >> bit & 1 == 0).map(|bit| q.tries[chosen[bit]]).collect()
    };
    let sides = pair(q, run, &missing.iter().map(out_of).collect::<Vec<_>>())?;
    for (set, s) in missing.into_iter().zip(&sides) {
        value[set] = s.delta();
    }
    let names = chosen.iter().map(|&i| q.tries[i].name().to_string()).collect();
    Ok((Game { n, value }, names))
}

/// Something that differs between the kernels.
#[derive(Clone)]
enum Difference {
    Field(String),
    Planted(String, u32),
    Several(Vec<Difference>),
}

impl Difference {
    fn name(&self) -> String {
        match self {
            Difference::Field(name) => name.clone(),
            Difference::Planted(cost, ns) => format!("{cost} + {ns} ns"),
            Difference::Several(all) => format!("{} others together", all.len()),
        }
    }
    fn apply(&self, to: &mut Map<String, Value>, b: &Map<String, Value>, p: &mut Point) {
        match self {
            Difference::Field(name) => {
                to.insert(name.clone(), b[name].clone());
            }
            Difference::Planted(cost, ns) => p.extra.push((cost.clone(), *ns)),
            Difference::Several(all) => all.iter().for_each(|d| d.apply(to, b, p)),
        }
    }
}

fn fields(r: &Release) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(r) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err(Failure::Input(format!("kernel `{}` has no fields", r.name))),
    }
}

/// What differs, taken apart.
fn mechanisms(
    q: &Question,
    run: &mut Runner,
    whole: &Sides,
) -> Result<(Vec<Part>, Vec<Pair>), Failure> {
    let (a, b) = (fields(q.releases[0])?, fields(q.releases[1])?);
    let differs = |name: &&String| !IDENTITY.contains(&name.as_str()) && a[*name] != b[*name];
    let mut all: Vec<Difference> =
        a.keys().filter(differs).map(|name| Difference::Field(name.clone())).collect();
    all.extend(q.plant.iter().map(|(cost, ns)| Difference::Planted(cost.clone(), *ns)));
    let delta = whole.delta();
    match &all[..] {
        [] => return Ok((vec![], vec![])),
        [one] => return Ok((vec![part(one.name(), Kind::Mechanism, &delta, &delta)], vec![])),
        _ => {}
    }
    // Both ends are the kernels themselves; in between, the base's seeds.
    let mut values = |sets: &[Vec<&Difference>]| -> Result<Vec<Vec<f64>>, Failure> {
        let mut points = Vec::new();
        for set in sets {
            for &seed in q.seeds {
                let (mut fields, mut p) = (
                    a.clone(),
                    Point {
                        release: q.releases[0].clone(),
                        without: Vec::new(),
                        extra: Vec::new(),
                        seed: seed.wrapping_add(q.offsets[0]),
                        of: seed,
                    },
                );
                set.iter().for_each(|d| d.apply(&mut fields, &b, &mut p));
                p.release = serde_json::from_value(Value::Object(fields))
                    .map_err(|e| Failure::Usage(format!("explain: a kernel in between: {e}")))?;
                points.push(p);
            }
        }
        let values = if points.is_empty() { Vec::new() } else { run(&points)? };
        Ok(values.chunks(q.seeds.len()).map(<[f64]>::to_vec).collect())
    };
    if all.len() > MECHANISMS_MAX {
        // The effect of taking one back from the second kernel decides who is taken apart.
        let sets: Vec<Vec<&Difference>> = (0..all.len())
            .map(|out| (0..all.len()).filter(|&i| i != out).map(|i| &all[i]).collect())
            .collect();
        let without = values(&sets)?;
        let after = mean(&whole.after).unwrap_or(0.0);
        let effect = |i: &usize| (after - mean(&without[*i]).unwrap_or(0.0)).abs();
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|x, y| effect(y).total_cmp(&effect(x)));
        let mut kept: Vec<Difference> = order.iter().map(|&i| all[i].clone()).collect();
        let rest = kept.split_off(MECHANISMS_MAX - 1);
        kept.push(Difference::Several(rest));
        all = kept;
    }
    let full = (1usize << all.len()) - 1;
    let between: Vec<usize> = (1..full).collect();
    let in_set = |&set: &usize| -> Vec<&Difference> {
        (0..all.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| &all[bit]).collect()
    };
    let mut value = vec![whole.before.clone()];
    value.extend(values(&between.iter().map(in_set).collect::<Vec<_>>())?);
    value.push(whole.after.clone());
    let names: Vec<String> = all.iter().map(Difference::name).collect();
    let game = Game { n: all.len(), value };
    Ok((parts_of(&game, &names, Kind::Mechanism, &delta), pairs_of(&game, &names, Kind::Mechanism)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::kernel_file::kernel;

    /// A model that is a formula: the queue mode costs 10 through rq_lock and 3 otherwise, hz costs
    /// 1, a planted ns 0.5; each seed adds itself to both sides.
    fn formula(p: &Point) -> f64 {
        let l2 = p.release.ttwu_queue.to_string() == "l2";
        let lock = if p.without.contains(&Knockout::RqLock) { 0.0 } else { 10.0 };
        let hz = if p.release.hz == 1000 { 1.0 } else { 0.0 };
        let planted: u32 = p.extra.iter().map(|e| e.1).sum();
        let queue = if l2 { 0.0 } else { lock + 3.0 };
        100.0 + p.seed as f64 + queue + hz + 0.5 * f64::from(planted)
    }

    fn explained(b: &str, plant: &[(String, u32)]) -> (Explanation, usize) {
        explained_by(formula, 2, b, plant)
    }

    fn explained_by(
        formula: fn(&Point) -> f64,
        split: usize,
        b: &str,
        plant: &[(String, u32)],
    ) -> (Explanation, usize) {
        let (a, b) = (kernel("v6.1").unwrap(), kernel(b).unwrap());
        let q = Question {
            releases: [&a.release, &b.release],
            offsets: [0, 0],
            plant,
            seeds: &[1, 2, 3],
            tries: Knockout::ALL,
            split,
        };
        let mut runs = 0;
        let mut run = |points: &[Point]| -> Result<Vec<f64>, Failure> {
            runs += points.len();
            Ok(points.iter().map(formula).collect())
        };
        let e = answer(&q, &mut run).unwrap();
        (e, runs)
    }

    fn share(e: &Explanation, name: &str) -> f64 {
        let p = e.parts.iter().find(|p| p.mechanism == name).expect("a part");
        assert!((p.ci_high.unwrap() - p.ci_low.unwrap()).abs() < 1e-9, "no noise, no width");
        p.amount
    }

    #[test]
    fn one_mechanism_through_one_cost() {
        let (e, runs) = explained("v6.1+ttwu_queue=l2", &[]);
        assert_eq!((e.before, e.after, e.delta), (115.0, 102.0, -13.0));
        assert_eq!(share(&e, "ttwu_queue"), -13.0);
        assert_eq!(share(&e, "rq_lock"), -10.0);
        assert_eq!(share(&e, "rest"), -3.0);
        assert_eq!(e.tried[0].mechanism, "rq_lock");
        assert_eq!(e.tried[0].delta, Some(-3.0));
        // All, each knock-out alone, and both of two out: 15 pairs of 3 seeds.
        assert_eq!(runs, (1 + Knockout::ALL.len() + 1) * 2 * 3);
    }

    /// Of -4 the costs of rq_lock are -10. Without tg_load_avg it is +26 and without ipi -13: that
    /// is told, but neither is taken apart before what leaves less.
    #[test]
    fn what_turns_a_difference_round_or_hides_it_is_told() {
        fn turns(p: &Point) -> f64 {
            let l2 = p.release.ttwu_queue.to_string() == "l2";
            let turned = l2 && p.without.contains(&Knockout::TgLoadAvg);
            let hidden = l2 && !p.without.contains(&Knockout::Ipi);
            formula(p) + if turned { 30.0 } else { 0.0 } + if hidden { 9.0 } else { 0.0 }
        }
        let (e, _) = explained_by(turns, 1, "v6.1+ttwu_queue=l2", &[]);
        assert_eq!((e.delta, e.tried.last().map(|t| &*t.mechanism)), (-4.0, Some("tg_load_avg")));
        let text = Explanation { unit: "1", ..e }.conclude();
        let end = "It turns round without rq_lock (+6.00), without tg_load_avg (+26.0). \
                   It is larger without ipi (-13.0).";
        assert!(text.ends_with(end), "{text}");
    }

    /// Of -13 the 10 need two costs, or are there with either of them. No other leaves less.
    #[test]
    fn two_that_act_only_together_and_two_of_which_one_will_do() {
        fn left_out(p: &Point) -> (bool, f64) {
            let out = [Knockout::ALL[0], Knockout::ALL[1]].map(|k| p.without.contains(&k));
            let of = if p.release.ttwu_queue.to_string() == "l2" { 0.0 } else { 1.0 };
            (out[0] && out[1], if out[0] || out[1] { 3.0 * of } else { 13.0 * of })
        }
        let told = |formula| {
            let (e, _) = explained_by(formula, 2, "v6.1+ttwu_queue=l2", &[]);
            assert_eq!((e.delta, e.pairs.len(), e.pairs[0].amount), (-13.0, 1, -10.0));
            let text = Explanation { unit: "1", ..e }.conclude();
            text.split(". ").nth(1).unwrap().to_string()
        };
        let both = told(|p| left_out(p).1);
        let [a, b] = [0, 1].map(|i| Knockout::ALL[i].name());
        assert_eq!(both, format!("It takes both {a} and {b} for -10.0 of it"));
        let either = told(|p| {
            let l2 = p.release.ttwu_queue.to_string() == "l2";
            if l2 {
                0.0
            } else if left_out(p).0 {
                3.0
            } else {
                13.0
            }
        });
        assert_eq!(either, format!("Either of {a} and {b} does for -10.0 of it"));
    }

    /// Without ipi the seeds differ by -21, 0 and +21: nothing on average, and more than rq_lock
    /// leaves.
    #[test]
    fn seeds_that_go_both_ways_leave_something() {
        fn both_ways(p: &Point) -> f64 {
            let l2 = p.release.ttwu_queue.to_string() == "l2";
            let turned = l2 && p.without.contains(&Knockout::Ipi);
            formula(p) + if turned { 13.0 + 21.0 * (p.seed as f64 - 2.0) } else { 0.0 }
        }
        let (e, _) = explained_by(both_ways, 1, "v6.1+ttwu_queue=l2", &[]);
        assert_eq!((&*e.tried[0].mechanism, e.tried[0].left), ("rq_lock", 3.0));
        let ipi = e.tried.iter().find(|t| t.mechanism == "ipi").unwrap();
        assert_eq!((ipi.delta, ipi.left, ipi.split), (Some(0.0), 14.0, false));
    }

    #[test]
    fn no_difference_is_not_taken_apart() {
        let (e, _) = explained("v6.1", &[]);
        let none = Explanation { seeds: vec![1, 2], delta_low: None, delta_high: None, ..e };
        assert!(none.is_noise());
        let text = "There is no difference in  with 2 seeds: there is nothing to explain.";
        assert_eq!(none.conclude(), text);
        let some = Explanation { delta: -1.0, ..none };
        assert!(!some.is_noise());
        assert!(some.conclude().contains("(seeds that agree in everything, which may be chance:"));
    }

    #[test]
    fn mechanisms_and_a_planted_cost_are_told_apart() {
        let (e, _) = explained("v6.1+ttwu_queue=l2,hz=1000", &[("ttwu".into(), 8)]);
        assert_eq!(e.delta, -8.0);
        assert_eq!(share(&e, "ttwu_queue"), -13.0);
        assert_eq!(share(&e, "hz"), 1.0);
        assert_eq!(share(&e, "ttwu + 8 ns"), 4.0);
    }

    #[test]
    fn many_mechanisms_are_ranked_first() {
        let (e, _) =
            explained("v6.1+ttwu_queue=l2,hz=1000-wa_idle-wa_weight-wa_bias-util_est", &[]);
        assert_eq!(share(&e, "ttwu_queue"), -13.0);
        assert_eq!(share(&e, "hz"), 1.0);
        assert_eq!(share(&e, "3 others together"), 0.0);
    }
}
