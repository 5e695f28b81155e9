//! Knowledge of recorded values, and whether what is not known matters.
//!
//! *What.* A decision asks for values. Where a value is not known exactly, the view lists the
//! values that are possible: both truth values, or the two ends of an interval (decisions are
//! monotone in each number that they read). The decision is then run again for every combination
//! of possible values that its path can read. It is *determined* if all runs give the same
//! outcome; otherwise the values that tip it are named.
//! A *step* of a decision hands on nothing but its outcome. It is tried for itself, and in the
//! runs of the decision its outcome counts as one value: eight truth values of which one step
//! makes one are two runs of all else, not 256.
//! *Departures.* D1: after [`MOST_RUNS`] runs (of some questions more, unless one value alone tips
//! them) the question counts as undetermined, or sooner where many times as many would be needed.

use std::collections::BTreeSet;
use std::iter::repeat_n;

/// The most combinations that are tried for one decision.
pub const MOST_RUNS: usize = 1024;

/// After so many runs, and whenever they have doubled, it is asked how many there will be.
const LOOK_AT: usize = 32;
/// Above so many times the most that are tried the rest is not worth its time, and above more times
/// the fewer runs there have been. Branches are of unequal size, hence the margin.
fn hopeless(runs: usize) -> u128 {
    (768 / runs).max(3) as u128
}

/// Missing values that several questions share, as the report names them.
pub mod names {
    /// A plain trace has no rows of requests, and its flags tell nothing here.
    pub const ANSWER: &str = "whether the kernel asked: no event shows it";
    /// Real-time tasks may have used a part of it.
    pub const CAPACITY: &str = "capacity of a CPU";
    /// Of the running task; a renewal while it is alone leaves no row.
    pub const DEADLINE: &str = "deadline of the running task";
    /// A request for a flag that is set already leaves no row where rows are of flags.
    pub const DUE: &str = "whether the kernel asked: the flag was set already";
    /// It went idle, or was woken, between the rows around the question.
    pub const IDLE: &str = "idle state of a CPU that changed meanwhile";
    /// Rows of moves show a task before it is placed.
    pub const PLACEMENT: &str = "placement of a task moved by the balancer";
    /// Whether only SCHED_IDLE tasks are there.
    pub const SCHED_IDLE: &str = "sched_idle_cpu";
}

/// A value that was asked for and is not known: kind of value and which one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unknown {
    /// The missing value, as the report names it.
    pub name: &'static str,
    /// CPU or task that it belongs to.
    pub of: i64,
}

/// A value that a run asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    of: Unknown,
    /// So many values are possible.
    options: usize,
    /// This one of them was taken.
    taken: usize,
    value: i64,
}

/// A step, and the ways in which it can end.
#[derive(Debug)]
struct Step {
    name: &'static str,
    /// The answers given before it.
    before: Vec<Assumed>,
    /// Of each outcome, values that lead to it; none: there are too many to tell.
    ways: Vec<Vec<Assumed>>,
    tipping: BTreeSet<&'static str>,
}

/// Answers one run's questions about unknown values, following a script of earlier answers.
#[derive(Debug, Default)]
pub struct Asker {
    asked: Vec<Asked>,
    script: Vec<usize>,
    /// Of a step: what is answered already.
    given: Vec<Assumed>,
    /// Those tried last: the answers before them change seldom from run to run.
    steps: Vec<Step>,
}

impl Asker {
    /// The value of `u` in this run; `options[0]` is the best guess. One option: it is known.
    pub fn ask(&mut self, u: Unknown, options: &[i64]) -> i64 {
        if let [only] = options {
            return *only;
        }
        if let Some(before) = self.asked.iter().find(|a| a.of == u) {
            return before.value;
        }
        if let Some(given) = self.given.iter().find(|a| a.0 == u) {
            return given.1;
        }
        let taken = self.script.get(self.asked.len()).copied().unwrap_or(0);
        let value = options[taken];
        self.asked.push(Asked { of: u, options: options.len(), taken, value });
        value
    }
    /// What a report calls the missing value: of a step, those which tip it.
    fn names(&self, asked: &Asked) -> Vec<&'static str> {
        match self.steps.iter().find(|s| s.name == asked.of.name) {
            Some(step) => step.tipping.iter().copied().collect(),
            None => vec![asked.of.name],
        }
    }
    /// This step has been tried after the same answers.
    fn tried(&self, name: &str) -> Option<&Step> {
        let same = |s: &Step| {
            s.before.len() == self.asked.len()
                && s.before.iter().zip(&self.asked).all(|(b, a)| *b == (a.of, a.value))
        };
        self.steps.iter().find(|s| s.name == name && same(s))
    }
    fn assumed(&self) -> Vec<Assumed> {
        self.asked.iter().map(|a| (a.of, a.value)).collect()
    }
    /// Another run, whose first answers are those of `script`, and then the best guesses.
    fn follow(&mut self, script: impl IntoIterator<Item = usize>) {
        self.script.clear();
        self.script.extend(script);
        self.asked.clear();
    }
    /// Another run, the next in the order of all combinations; false if this was the last.
    fn follow_next(&mut self) -> bool {
        let Some(last) = self.asked.iter().rposition(|a| a.taken + 1 < a.options) else {
            return false;
        };
        self.script.clear();
        self.script.extend(self.asked[..=last].iter().map(|a| a.taken));
        self.script[last] += 1;
        self.asked.clear();
        true
    }
    /// As [`Asker::ask`], for a truth value: `None` is not known, guess `guess`.
    pub fn truth(&mut self, u: Unknown, known: Option<bool>, guess: bool) -> bool {
        match known {
            Some(v) => v,
            None => self.ask(u, &[guess as i64, !guess as i64]) != 0,
        }
    }
}

/// The outcome of a step of the question that `v` answers by its asker `k`.
pub fn step<V, T: Copy + PartialEq>(
    v: &mut V,
    k: impl Fn(&mut V) -> &mut Asker,
    name: &'static str,
    mut outcome: impl FnMut(&mut V) -> T,
) -> T {
    if k(v).tried(name).is_none() {
        let mut outer = std::mem::take(k(v));
        let before = outer.assumed();
        let alone = Asker { given: before.clone(), ..Asker::default() };
        let tried = explore_from(
            alone,
            MOST_RUNS,
            true,
            |asker| {
                std::mem::swap(k(v), asker);
                let found = outcome(v);
                std::mem::swap(k(v), asker);
                found
            },
            |a, b| a == b,
        );
        let mut ends: Vec<(T, Vec<Assumed>)> = vec![];
        if tried.complete {
            for end in tried.all {
                if !ends.iter().any(|e| e.0 == end.0) {
                    ends.push(end);
                }
            }
        }
        let ways = ends.into_iter().map(|e| e.1).collect();
        outer.steps.retain(|s| s.name != name);
        outer.steps.push(Step { name, before, ways, tipping: tried.tipping });
        *k(v) = outer;
    }
    let asker = k(v);
    let ways = asker.tried(name).map_or(0, |s| s.ways.len());
    if ways > 0 {
        let options: Vec<i64> = (0..ways as i64).collect();
        let taken = asker.ask(Unknown { name, of: 0 }, &options) as usize;
        let step = asker.steps.iter().find(|s| s.name == name);
        asker.given = step.map_or(vec![], |s| s.ways[taken].clone());
    }
    let found = outcome(v);
    k(v).given.clear();
    found
}

/// A value that a run assumed.
pub type Assumed = (Unknown, i64);

/// All outcomes of a question.
#[derive(Clone, Debug)]
pub struct Outcomes<T> {
    /// Outcome for the best guesses.
    pub guess: T,
    /// All outcomes, the best guess first, each with the values that its run assumed.
    pub all: Vec<(T, Vec<Assumed>)>,
    /// They are all there are: otherwise the values that were asked first have their best guesses,
    /// and nothing is shown by what the outcomes have in common.
    pub complete: bool,
    /// Every run gives the same outcome (by the comparison handed to [`explore`]).
    pub determined: bool,
    /// Values that tip the outcome.
    pub tipping: BTreeSet<&'static str>,
}

/// Runs `question` for every combination of the unknown values it reads.
pub fn explore<T: Clone>(
    question: impl FnMut(&mut Asker) -> T,
    same: impl Fn(&T, &T) -> bool,
) -> Outcomes<T> {
    explore_up_to(MOST_RUNS, question, same)
}

/// The same where only the guess and what tips it are asked for: it ends with the first that does.
pub fn explore_until_tipped<T: Clone>(
    question: impl FnMut(&mut Asker) -> T,
    same: impl Fn(&T, &T) -> bool,
) -> Outcomes<T> {
    explore_from(Asker::default(), MOST_RUNS, false, question, same)
}

/// The same with up to `most` runs.
pub fn explore_up_to<T: Clone>(
    most: usize,
    question: impl FnMut(&mut Asker) -> T,
    same: impl Fn(&T, &T) -> bool,
) -> Outcomes<T> {
    explore_from(Asker::default(), most, true, question, same)
}

fn explore_from<T: Clone>(
    mut asker: Asker,
    most: usize,
    all: bool,
    mut question: impl FnMut(&mut Asker) -> T,
    same: impl Fn(&T, &T) -> bool,
) -> Outcomes<T> {
    let guess = question(&mut asker);
    let mut out = Outcomes {
        guess: guess.clone(),
        all: vec![(guess.clone(), asker.assumed())],
        complete: true,
        determined: true,
        tipping: BTreeSet::new(),
    };
    if asker.asked.is_empty() {
        return out;
    }
    // Each value alone, and then all combinations.
    let first = asker.asked.clone();
    for (at, asked) in first.iter().enumerate() {
        for i in 1..asked.options {
            asker.follow(repeat_n(0, at).chain([i]));
            if !same(&question(&mut asker), &guess) {
                out.tipping.extend(asker.names(asked));
            }
        }
    }
    asker.asked = first;
    // More would only tell what the outcomes have in common.
    let most = if out.tipping.is_empty() { most } else { most.min(MOST_RUNS) };
    for n in 1..=most {
        if !all && !out.tipping.is_empty() {
            break;
        }
        if !asker.follow_next() {
            out.determined = out.tipping.is_empty();
            return out;
        }
        let outcome = question(&mut asker);
        if !same(&outcome, &guess) && out.tipping.is_empty() {
            let other = asker.asked.iter().filter(|a| a.taken != 0);
            out.tipping.extend(other.flat_map(|a| asker.names(a)));
        }
        out.all.push((outcome, asker.assumed()));
        let look = n >= LOOK_AT && n.is_power_of_two();
        if look && runs_needed(n, &asker.asked) > hopeless(n) * most as u128 {
            break;
        }
    }
    (out.complete, out.determined) = (false, false);
    if out.tipping.is_empty() {
        out.tipping.extend(asker.asked.iter().flat_map(|a| asker.names(a)));
    }
    out
}

/// What `n` runs, the last of which asked `last`, make likely for all: had each value as many runs
/// below it as the others of its kind, this part of them would be done.
fn runs_needed(n: usize, last: &[Asked]) -> u128 {
    let (mut done, mut each) = (0, 1 << 64);
    for a in last {
        each /= a.options as u128;
        done += each * a.taken as u128;
    }
    ((n as u128) << 64) / (done + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Unknown = Unknown { name: "a", of: 0 };
    const B: Unknown = Unknown { name: "b", of: 0 };

    #[test]
    fn a_value_that_does_not_tip_the_outcome_leaves_it_determined() {
        let o = explore(
            |k| {
                let _ = k.truth(A, None, true);
                true
            },
            |x, y| x == y,
        );
        assert!(o.determined && o.tipping.is_empty());
        let o = explore(|k| k.truth(A, None, true) && k.truth(B, Some(true), true), |x, y| x == y);
        assert!(!o.determined);
        assert_eq!(o.tipping.into_iter().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn two_values_that_only_tip_it_together_are_found() {
        let o = explore(|k| k.truth(A, None, true) | k.truth(B, None, true), |x, y| x == y);
        assert!(!o.determined);
        assert_eq!(o.tipping.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    /// All of ten are tried, with 1023 runs more; of thirty that is seen to be in vain.
    #[test]
    fn what_would_need_far_more_runs_is_given_up_soon() {
        let all_of = |nr: i64| {
            let mut runs = 0;
            let question = |k: &mut Asker| {
                runs += 1;
                (0..nr).filter(|&of| k.truth(Unknown { of, ..A }, None, false)).count()
            };
            (explore(question, |x, y| x == y).complete, runs)
        };
        assert_eq!(all_of(10), (true, 1 + 10 + 1023));
        assert_eq!(all_of(30), (false, 1 + 30 + LOOK_AT));
    }

    /// One value alone tips it: the other nine are tried alone as well, and no more.
    #[test]
    fn where_only_what_tips_it_is_asked_for_the_first_ends_it() {
        let mut runs = 0;
        let o = explore_until_tipped(
            |k| {
                runs += 1;
                (0..10).filter(|&of| k.truth(Unknown { of, ..A }, None, of == 0)).count() > 0
            },
            |x, y| x == y,
        );
        assert!(!o.determined && o.tipping.contains("a"));
        assert_eq!(runs, 1 + 10);
    }

    /// Ten values of which one step makes one: apart from the step's own 1,024 runs there are three
    /// of the question. What tips it is named by the values, not by the step.
    #[test]
    fn a_step_counts_as_one_value() {
        struct V<'k>(&'k mut Asker);
        let ask = |v: &mut V, name, of| v.0.truth(Unknown { name, of }, None, false);
        let mut outer = 0;
        let o = explore(
            |k| {
                outer += 1;
                let mut v = V(k);
                let first = ask(&mut v, "first", 0);
                let all = |v: &mut V| (0..10).filter(|&of| ask(v, "ten", of)).count() == 10;
                let second = step(&mut v, |v| v.0, "all ten", all);
                first || second
            },
            |x, y| x == y,
        );
        assert_eq!((o.complete, o.determined, o.all.len()), (true, false, 4));
        assert_eq!(o.tipping.into_iter().collect::<Vec<_>>(), ["first", "ten"]);
        assert_eq!(outer, 1 + 2 + 3);
    }

    /// A value that the question has asked for keeps its answer in the step.
    #[test]
    fn a_step_goes_by_the_answers_given_before_it() {
        struct V<'k>(&'k mut Asker);
        let ask = |v: &mut V| v.0.truth(A, None, false);
        let o = explore(
            |k| {
                let mut v = V(k);
                let before = ask(&mut v);
                before == step(&mut v, |v| v.0, "again", |v| ask(v))
            },
            |x, y| x == y,
        );
        assert!(o.guess && o.determined);
    }
}
