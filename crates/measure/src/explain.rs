//! A difference taken apart: how much of it each mechanism or cost carries.
//!
//! *Method.* A *game*: for every set S of parts, v(S) is the difference that is left when only the
//! parts in S are present. A part's share is its Shapley value, the mean over all orders of adding
//! the parts one after another; the shares and v(∅) add up to v(all) exactly. Everything is
//! computed seed by seed, so that intervals are paired.
//! *Equations.* φ(r) = Σ over S without r of |S|!(n−|S|−1)!/n! · (v(S ∪ r) − v(S)). Of two parts r
//! and s alone, v(rs) − v(r) − v(s) + v(∅) is beyond what each does: of the sign of the difference
//! if it takes both, of the other if either will do.

use crate::interval::LEVEL;
use crate::metrics::Counting;
use crate::stats::{jackknife, mean, sd, t_quantile};
use serde::Serialize;

/// The values of all sets of `n` parts: `value[set][seed]`, where bit i of `set` is part i.
#[derive(Clone, Debug)]
pub struct Game {
    /// Number of parts.
    pub n: usize,
    /// 2ⁿ rows with one value a seed.
    pub value: Vec<Vec<f64>>,
}

impl Game {
    /// Shapley value of each part, seed by seed.
    pub fn shapley(&self) -> Vec<Vec<f64>> {
        let seeds = self.value.first().map_or(0, Vec::len);
        let orders = factorial(self.n);
        (0..self.n)
            .map(|part| {
                let mut share = vec![0.0; seeds];
                for set in (0..1usize << self.n).filter(|set| set >> part & 1 == 0) {
                    let size = set.count_ones() as usize;
                    let weight = factorial(size) * factorial(self.n - size - 1) / orders;
                    let with = &self.value[set | 1 << part];
                    for (s, (a, b)) in share.iter_mut().zip(self.value[set].iter().zip(with)) {
                        *s += weight * (b - a);
                    }
                }
                share
            })
            .collect()
    }
    /// What disappears when `part` alone is left out.
    pub fn knocked_out(&self, part: usize) -> Vec<f64> {
        let all = (1 << self.n) - 1;
        minus(&self.value[all], &self.value[all & !(1 << part)])
    }
    /// What appears when `part` is the only one of them that is present.
    pub fn alone(&self, part: usize) -> Vec<f64> {
        minus(&self.value[1 << part], &self.value[0])
    }
    /// What appears when `a` and `b` are the only ones that are present.
    pub fn both(&self, a: usize, b: usize) -> Vec<f64> {
        minus(&self.value[1 << a | 1 << b], &self.value[0])
    }
}

fn factorial(n: usize) -> f64 {
    (1..=n).map(|k| k as f64).product()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something that differs between the two kernels.
    Mechanism,
    /// A cost or a piece of knowledge that both have, and that one of them meets more often.
    Cost,
    /// What none of the costs taken apart carries.
    Rest,
}

/// One part of a difference. Amounts are in the metric's unit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Part {
    /// Name of the mechanism or knock-out.
    pub mechanism: String,
    /// What it is.
    pub kind: Kind,
    /// Its part of the difference, 1 is all of it; null for a difference of zero.
    pub share: Option<f64>,
    /// Lower end of the interval of `share` over the seeds; null with one seed.
    pub ci_low: Option<f64>,
    /// Upper end.
    pub ci_high: Option<f64>,
    /// The same as an amount.
    pub amount: f64,
    /// Amount that disappears when it alone is left out.
    pub knocked_out: Option<f64>,
    /// Amount that appears when it alone of those taken apart is present.
    pub alone: Option<f64>,
}

/// Two parts that are present without the others. Amounts are in the metric's unit.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    /// Names of the two.
    pub mechanisms: [String; 2],
    /// What they are.
    pub kind: Kind,
    /// Amount that appears with both.
    pub amount: f64,
    /// How much of it is beyond the sum of what appears with each.
    pub beyond: f64,
    /// Lower end of the interval of `beyond` over the seeds; null where it is not known.
    pub beyond_low: Option<f64>,
    /// Upper end.
    pub beyond_high: Option<f64>,
}

/// A pair is told of if so much of the difference is beyond what each of the two does.
const TOLD: f64 = 0.1;
/// No more pairs than these.
const PAIRS_TOLD: usize = 3;

/// A knock-out that was tried, and what the difference is without it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tried {
    /// Name of the knock-out.
    pub mechanism: String,
    /// The first kernel's value without it.
    pub before: Option<f64>,
    /// The second's.
    pub after: Option<f64>,
    /// The difference without it.
    pub delta: Option<f64>,
    /// How far the kernels are apart without it with one seed, whichever is ahead, on average.
    pub left: f64,
    /// The costs taken apart have it among them.
    pub split: bool,
}

/// An explained difference; prints as the JSON of `vruntime explain`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Explanation {
    /// `vruntime/explain/1`.
    pub schema: &'static str,
    /// Machine name.
    pub machine: String,
    /// Command line of the workload.
    pub workload: String,
    /// The two kernels.
    pub kernels: [String; 2],
    /// Seeds.
    pub seeds: Vec<u64>,
    /// What differs, as a metric of `compare`.
    pub metric: String,
    /// Its unit.
    pub unit: &'static str,
    /// Value under the first kernel, mean of the seeds.
    pub before: f64,
    /// Value under the second.
    pub after: f64,
    /// after − before.
    pub delta: f64,
    /// Lower end of its interval.
    pub delta_low: Option<f64>,
    /// Upper end.
    pub delta_high: Option<f64>,
    /// Mechanisms; then costs and their rest.
    pub parts: Vec<Part>,
    /// Every two of the mechanisms, and of the costs.
    pub pairs: Vec<Pair>,
    /// Every knock-out that was tried.
    pub tried: Vec<Tried>,
    /// Whether counts are totals or rates.
    pub counting: Counting,
    /// Seeds that are left out: a run of theirs does not know the metric.
    pub left_out: Vec<u64>,
    /// Runs that did not end in the time they were given: counts are rates then.
    pub given_up: usize,
    /// ^C ended it: what is not complete is missing.
    pub interrupted: bool,
    /// In words.
    pub conclusion: String,
}

/// Mean and interval of `v`. Two that are equal have none: they tell nothing of a third (D2 of
/// `interval`).
pub fn interval(v: &[f64]) -> (f64, Option<(f64, f64)>) {
    let m = mean(v).unwrap_or(0.0);
    let half = half_width(v).filter(|h| v.len() >= 3 || *h > 1e-12 * m.abs());
    (m, half.map(|h| (m - h, m + h)))
}

fn half_width(v: &[f64]) -> Option<f64> {
    let t = t_quantile(0.5 + 0.5 * LEVEL, v.len().checked_sub(1)? as u32)?;
    Some(t * sd(v)? / (v.len() as f64).sqrt())
}

/// The part with this amount a seed, of a difference of that much.
pub fn part(mechanism: String, kind: Kind, amount: &[f64], delta: &[f64]) -> Part {
    let ends = share_interval(amount, delta);
    Part {
        mechanism,
        kind,
        share: share(amount, delta),
        ci_low: ends.map(|(low, _)| low),
        ci_high: ends.map(|(_, high)| high),
        amount: mean(amount).unwrap_or(0.0),
        knocked_out: None,
        alone: None,
    }
}

fn share(amount: &[f64], delta: &[f64]) -> Option<f64> {
    crate::stats::ratio(mean(amount)?, mean(delta)?)
}

/// The interval of a share. A seed's part and its difference vary together, so it is that of the
/// ratio, by leaving out one seed at a time.
fn share_interval(amount: &[f64], delta: &[f64]) -> Option<(f64, f64)> {
    let without = |v: &[f64], i: usize| [&v[..i], &v[i + 1..]].concat();
    let shares = (0..amount.len()).map(|i| share(&without(amount, i), &without(delta, i)));
    let pseudo = jackknife(share(amount, delta), shares.collect());
    let pseudo = pseudo.into_iter().collect::<Option<Vec<_>>>()?;
    // Shares that are equal are so by arithmetic: of a part that is all there is.
    let (m, half) = (mean(&pseudo)?, half_width(&pseudo)?);
    Some((m - half, m + half))
}

/// The parts of `game`, largest first, named in its order. `delta` is the mean difference that
/// shares are fractions of.
pub fn parts_of(game: &Game, names: &[String], kind: Kind, delta: &[f64]) -> Vec<Part> {
    let mut parts: Vec<Part> = game
        .shapley()
        .iter()
        .enumerate()
        .map(|(i, amount)| Part {
            knocked_out: mean(&game.knocked_out(i)),
            alone: mean(&game.alone(i)),
            ..part(names[i].clone(), kind, amount, delta)
        })
        .collect();
    parts.sort_by(|a, b| b.amount.abs().total_cmp(&a.amount.abs()));
    parts
}

/// Every two parts of `game`, the one first that does most beyond what each does.
pub fn pairs_of(game: &Game, names: &[String], kind: Kind) -> Vec<Pair> {
    let twos = (0..game.n).flat_map(|b| (0..b).map(move |a| (a, b)));
    let mut pairs: Vec<Pair> = twos
        .map(|(a, b)| {
            let both = game.both(a, b);
            let beyond = minus(&minus(&both, &game.alone(a)), &game.alone(b));
            let (mean_beyond, ends) = interval(&beyond);
            Pair {
                mechanisms: [names[a].clone(), names[b].clone()],
                kind,
                amount: mean(&both).unwrap_or(0.0),
                beyond: mean_beyond,
                beyond_low: ends.map(|e| e.0),
                beyond_high: ends.map(|e| e.1),
            }
        })
        .collect();
    pairs.sort_by(|a, b| b.beyond.abs().total_cmp(&a.beyond.abs()));
    pairs
}

impl Explanation {
    /// The pairs of which it matters most that they come together, if the seeds are sure of that.
    fn pairs_told(&self) -> Vec<&Pair> {
        let told = |p: &&Pair| {
            let sure = match (p.beyond_low, p.beyond_high) {
                (Some(low), Some(high)) => low > 0.0 || high < 0.0,
                _ => true,
            };
            sure && p.beyond.abs() >= TOLD * self.delta.abs()
        };
        let mut pairs: Vec<&Pair> = self.pairs.iter().filter(told).collect();
        pairs.sort_by(|a, b| b.beyond.abs().total_cmp(&a.beyond.abs()));
        pairs.truncate(PAIRS_TOLD);
        pairs
    }

    /// The interval of the difference holds zero: there is nothing to take apart, and parts of it
    /// mean nothing.
    pub fn is_noise(&self) -> bool {
        let ends = (self.delta_low, self.delta_high);
        self.delta == 0.0 || matches!(ends, (Some(low), Some(high)) if low <= 0.0 && high >= 0.0)
    }

    /// What stands behind an amount: a difference of percentages is in points, for it is not in
    /// percent of one of them.
    pub fn unit_of_amounts(&self) -> String {
        match self.unit {
            "1" => String::new(),
            "%" => " points".into(),
            unit => format!(" {unit}"),
        }
    }

    /// The finding in a few sentences.
    pub fn conclude(&self) -> String {
        let mut text = self.finding();
        match &self.left_out[..] {
            [] => {}
            [seed] => {
                text += &format!(
                    " Seed {seed} is left out: there is a run of it whose {} is not known.",
                    self.metric
                );
            }
            seeds => {
                text += &format!(
                    " {} seeds are left out: there are runs of theirs whose {} is not known.",
                    seeds.len(),
                    self.metric
                );
            }
        }
        if self.given_up > 0 {
            text += &format!(
                " {} of the runs did not end in the time that they were given: counts are per \
                 second.",
                self.given_up
            );
        }
        if self.interrupted {
            text += " Ended before all runs were complete: what was not is missing.";
        }
        text
    }

    fn finding(&self) -> String {
        let unit = self.unit_of_amounts();
        let amount = |x: f64| format!("{}{unit}", signed(x));
        let sure = match (self.delta_low, self.delta_high) {
            (Some(low), Some(high)) if low <= 0.0 && high >= 0.0 => {
                return format!(
                    "The difference of {} in {} is within the noise of {} seeds ({} ... {}): there \
                     is nothing to explain.",
                    amount(self.delta),
                    self.metric,
                    self.seeds.len(),
                    signed(low),
                    signed(high)
                );
            }
            (Some(_), Some(_)) => "",
            _ if self.delta == 0.0 => {
                let n = self.seeds.len();
                let seeds = if n == 1 { "one seed".into() } else { format!("{n} seeds") };
                return format!(
                    "There is no difference in {} with {seeds}: there is nothing to explain.",
                    self.metric
                );
            }
            _ if self.seeds.len() == 1 => " (one seed: no interval)",
            _ => " (seeds that agree in everything, which may be chance: no interval)",
        };
        let mut text = format!("Of {} in {}{sure}", amount(self.delta), self.metric);
        let of = |kind: Kind| self.parts.iter().filter(move |p| p.kind == kind);
        let list = |kind: Kind| -> Vec<String> {
            of(kind).map(|p| format!("{} {}", amount(p.amount), p.mechanism)).collect()
        };
        if of(Kind::Mechanism).count() > 1 {
            text += &format!(", by mechanism: {}", list(Kind::Mechanism).join(", "));
        }
        if of(Kind::Cost).count() > 0 {
            text += &format!(", by cost: {}", list(Kind::Cost).join(", "));
        }
        for rest in of(Kind::Rest) {
            text += &format!("; the rest, {}, by none that was taken apart", amount(rest.amount));
        }
        text += ".";
        for p in self.pairs_told() {
            let [a, b] = &p.mechanisms;
            text += &match p.beyond * self.delta > 0.0 {
                true => format!(" It takes both {a} and {b} for {} of it.", amount(p.beyond)),
                false => format!(" Either of {a} and {b} does for {} of it.", amount(-p.beyond)),
            };
        }
        let largest = self.tried.iter().filter(|t| t.split);
        let left: Vec<String> = largest
            .filter_map(|t| Some(format!("without {} it is {}", t.mechanism, amount(t.delta?))))
            .collect();
        if !left.is_empty() {
            text += &format!(" The difference left: {}.", left.join(", "));
        }
        let mut tell = |what: &str, applies: fn(f64) -> bool| {
            let found: Vec<String> = self
                .tried
                .iter()
                .filter_map(|t| Some((t, t.delta.filter(|_| !t.split)?)))
                .filter(|(_, left)| crate::stats::ratio(*left, self.delta).is_some_and(applies))
                .map(|(t, left)| format!("without {} ({})", t.mechanism, amount(left)))
                .collect();
            if !found.is_empty() {
                text += &format!(" It {what} {}.", found.join(", "));
            }
        };
        tell("turns round", |share| share < -0.5);
        tell("is larger", |share| share > 1.5);
        text
    }
}

/// A number with its sign and three significant digits, or as many as it has before its point.
pub fn signed(x: f64) -> String {
    let digits = if x == 0.0 { 0 } else { (2 - x.abs().log10().floor() as i32).clamp(0, 9) };
    if digits == 0 && x.abs().round() >= 1_000.0 {
        let sign = if x < 0.0 { '-' } else { '+' };
        return format!("{sign}{}", thousands(x.abs().round() as u64));
    }
    let text = format!("{x:+.0$}", digits as usize);
    if text.trim_start_matches(['+', '-', '0', '.']).is_empty() { "0".into() } else { text }
}

/// `1234567` as `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn game(value: &[f64]) -> Game {
        let n = value.len().ilog2() as usize;
        Game { n, value: value.iter().map(|&v| vec![v]).collect() }
    }

    #[test]
    fn two_seeds_that_agree_have_no_interval() {
        assert_eq!(interval(&[-4.0, -4.0]), (-4.0, None));
        assert_eq!(interval(&[-4.0; 3]), (-4.0, Some((-4.0, -4.0))));
        assert!(interval(&[-4.0, -3.0]).1.is_some());
    }

    #[test]
    fn what_adds_up_is_split_as_it_is() {
        // Parts of 10, 20 and −5.
        let v: Vec<f64> = (0..8)
            .map(|s| {
                10.0 * f64::from(s & 1) + 20.0 * f64::from(s >> 1 & 1) - 5.0 * f64::from(s >> 2)
            })
            .collect();
        let got: Vec<f64> = game(&v).shapley().iter().map(|v| v[0]).collect();
        for (got, want) in got.iter().zip([10.0, 20.0, -5.0]) {
            assert!((got - want).abs() < 1e-9, "{got} is not {want}");
        }
    }

    /// Two parts that only work together have half each; both knock-outs find all of it.
    #[test]
    fn what_takes_two_is_shared() {
        let g = game(&[0.0, 0.0, 0.0, 8.0]);
        assert_eq!(g.shapley(), [[4.0], [4.0]]);
        assert_eq!((g.knocked_out(0), g.alone(0)), (vec![8.0], vec![0.0]));
    }

    /// By hand: two parts of 8 that only work together, and two that both do all of it.
    #[test]
    fn pairs_that_take_both_and_pairs_of_which_either_will_do() {
        let names = ["a".to_string(), "b".to_string()];
        let beyond = |v: &[f64]| {
            let p = pairs_of(&game(v), &names, Kind::Cost).remove(0);
            (p.amount, p.beyond)
        };
        assert_eq!(beyond(&[0.0, 0.0, 0.0, 8.0]), (8.0, 8.0));
        assert_eq!(beyond(&[1.0, 9.0, 9.0, 9.0]), (8.0, -8.0));
        assert_eq!(beyond(&[1.0, 3.0, 4.0, 6.0]), (5.0, 0.0));
        assert!(pairs_of(&game(&[0.0, 1.0]), &names[..1], Kind::Cost).is_empty());
    }

    #[test]
    fn shares_add_up() {
        let v: Vec<f64> = (0..16).map(|s| f64::from(s * s % 7)).collect();
        let g = game(&v);
        let sum: f64 = g.shapley().iter().map(|v| v[0]).sum();
        assert!((sum - (v[15] - v[0])).abs() < 1e-9);
    }

    /// By hand: of −3 and −5, −2 and −2 are 4/8; without the first seed 2/5, without the second
    /// 2/3; their distance is 4/15, so the standard error √(1/2 · 2 · (2/15)²) = 2/15, and with one
    /// degree of freedom 97.5 % are within 25.45 of them.
    #[test]
    fn a_share_is_of_the_seeds_that_it_is_seen_in() {
        let p = part("x".into(), Kind::Cost, &[-2.0, -2.0], &[-3.0, -5.0]);
        assert_eq!((p.amount, p.share), (-2.0, Some(0.5)));
        let half = (p.ci_high.unwrap() - p.ci_low.unwrap()) / 2.0;
        assert!((half - 25.452 * 2.0 / 15.0).abs() < 1e-3, "{half}");
        // All of it is all of it, however much it varies.
        let whole = part("x".into(), Kind::Mechanism, &[-3.0, -5.0], &[-3.0, -5.0]);
        assert_eq!((whole.share, whole.ci_low, whole.ci_high), (Some(1.0), Some(1.0), Some(1.0)));
        let one = part("x".into(), Kind::Cost, &[1.0], &[2.0]);
        assert_eq!((one.share, one.ci_low), (Some(0.5), None));
        assert_eq!(part("x".into(), Kind::Cost, &[1.0], &[0.0]).share, None);
    }

    #[test]
    fn separators() {
        let all = [0, 999, 1000, 123_456, 1_234_567].map(thousands);
        assert_eq!(all, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn numbers_keep_three_digits() {
        for (x, text) in
            [(-23.456, "-23.5"), (0.012345, "+0.0123"), (0.0, "0"), (-123_456.4, "-123,456")]
        {
            assert_eq!(signed(x), text);
        }
    }
}
