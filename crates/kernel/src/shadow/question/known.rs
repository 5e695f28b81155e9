//! Knowledge of recorded values, and whether what is not known matters.
//!
//! *What.* A decision asks for values. Where a value is not known exactly, the view lists the
//! values that are possible: both truth values, or the two ends of an interval (decisions are
//! monotone in each number that they read). The decision is then run again for every combination
//! of possible values that its path can read. It is *determined* if all runs give the same
//! outcome; otherwise the values that tip it are named.
//! *Departures.* D1: after [`MOST_RUNS`] runs the question counts as undetermined, or sooner where
//! many times as many would be needed.

use std::collections::BTreeSet;
use std::iter::repeat_n;

/// The most combinations that are tried for one decision.
pub const MOST_RUNS: usize = 1024;

/// After so many runs it is asked how many there will be.
const LOOK_EVERY: usize = 256;
/// Above so many times the most that are tried the rest is not worth its time. Branches are of
/// unequal size, hence the margin.
const HOPELESS: u128 = 3;

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

/// Answers one run's questions about unknown values, following a script of earlier answers.
#[derive(Debug, Default)]
pub struct Asker {
    asked: Vec<Asked>,
    script: Vec<usize>,
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
        let taken = self.script.get(self.asked.len()).copied().unwrap_or(0);
        let value = options[taken];
        self.asked.push(Asked { of: u, options: options.len(), taken, value });
        value
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

/// The same with up to `most` runs.
pub fn explore_up_to<T: Clone>(
    most: usize,
    mut question: impl FnMut(&mut Asker) -> T,
    same: impl Fn(&T, &T) -> bool,
) -> Outcomes<T> {
    let mut asker = Asker::default();
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
                out.tipping.insert(asked.of.name);
            }
        }
    }
    asker.asked = first;
    for n in 1..=most {
        if !asker.follow_next() {
            out.determined = out.tipping.is_empty();
            return out;
        }
        let outcome = question(&mut asker);
        if !same(&outcome, &guess) && out.tipping.is_empty() {
            out.tipping.extend(asker.asked.iter().filter(|a| a.taken != 0).map(|a| a.of.name));
        }
        out.all.push((outcome, asker.assumed()));
        if n % LOOK_EVERY == 0 && runs_needed(n, &asker.asked) > HOPELESS * most as u128 {
            break;
        }
    }
    (out.complete, out.determined) = (false, false);
    if out.tipping.is_empty() {
        out.tipping.extend(asker.asked.iter().map(|a| a.of.name));
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
        assert_eq!(all_of(30), (false, 1 + 30 + LOOK_EVERY));
    }
}
