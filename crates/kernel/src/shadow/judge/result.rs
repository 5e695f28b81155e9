//! What a check found.

use serde::Serialize;
use std::collections::BTreeMap;

/// Why a decision is set aside.
const CONTRADICTED: &str = "whether all tasks compete on one level";

/// Counts for one kind of decision.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KindResult {
    /// `placement`, `wakeup_preemption`, `pick`, …
    pub kind: String,
    /// Where the inputs come from: `true` (the kernel's own state) or `reconstructed`.
    pub state: String,
    /// Decisions whose inputs were known as far as they matter.
    pub determined: u64,
    /// Of them, those in which our code decides as the kernel did.
    pub agree: u64,
    /// Decisions that hang on a value that is not known.
    pub undetermined: u64,
    /// Of the determined, those with a real choice (see the documentation of the kind).
    pub nontrivial: u64,
    /// Of these, those in which our code decides as the kernel did.
    pub nontrivial_agree: u64,
    /// Decisions by the rule that our code took (determined ones).
    pub rules: BTreeMap<String, u64>,
    /// Undetermined decisions by the value that was missing (one decision can miss several).
    pub unknowns: BTreeMap<String, u64>,
    /// Of the undetermined, those set aside because too many before them contradicted what was
    /// taken for granted (`state::one_level`).
    pub set_aside: u64,
    /// Of these, those in which our code decides as the kernel did.
    pub set_aside_agree: u64,
    /// The decision counted last.
    #[serde(skip)]
    pub last: Option<Outcome>,
}

/// How one decision ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Determined: by this rule, and whether that is what the kernel did.
    Rule(String, bool),
    /// Undetermined: what is missing.
    Missing(Vec<&'static str>),
}

impl KindResult {
    /// No decision yet.
    pub fn new(kind: &str) -> KindResult {
        KindResult { kind: kind.into(), state: "true".into(), ..KindResult::default() }
    }
    /// Adds the counts of `o`.
    pub fn add(&mut self, o: &KindResult) {
        self.determined += o.determined;
        self.agree += o.agree;
        self.undetermined += o.undetermined;
        self.nontrivial += o.nontrivial;
        self.nontrivial_agree += o.nontrivial_agree;
        self.set_aside += o.set_aside;
        self.set_aside_agree += o.set_aside_agree;
        for (k, v) in &o.rules {
            *self.rules.entry(k.clone()).or_default() += v;
        }
        for (k, v) in &o.unknowns {
            *self.unknowns.entry(k.clone()).or_default() += v;
        }
    }
    /// Counts one determined decision.
    pub fn count(&mut self, agrees: bool, nontrivial: bool, rule: &str) {
        self.last = Some(Outcome::Rule(rule.to_owned(), agrees));
        self.determined += 1;
        self.agree += u64::from(agrees);
        self.nontrivial += u64::from(nontrivial);
        self.nontrivial_agree += u64::from(nontrivial && agrees);
        *self.rules.entry(rule.to_owned()).or_default() += 1;
    }
    /// Counts one decision that is set aside.
    pub fn set_aside(&mut self, agrees: bool) {
        self.set_aside += 1;
        self.set_aside_agree += u64::from(agrees);
        self.miss(&[CONTRADICTED]);
    }
    /// Counts one undetermined decision.
    pub fn miss<'a>(&mut self, names: impl IntoIterator<Item = &'a &'static str>) {
        self.undetermined += 1;
        let names: Vec<&'static str> = names.into_iter().copied().collect();
        for n in &names {
            *self.unknowns.entry((*n).to_owned()).or_default() += 1;
        }
        self.last = Some(Outcome::Missing(names));
    }
}

/// One decision in which our code differs from the kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Disagreement {
    /// When, ns.
    pub time: u64,
    /// Line of `state.csv`.
    pub line: u64,
    /// Kind of decision.
    pub kind: String,
    /// Task that it is about.
    pub task: i64,
    /// What the kernel decided.
    pub expected: String,
    /// What our code decides.
    pub got: String,
    /// The rule that our code took.
    pub rule: String,
    /// The state that it saw.
    pub state: String,
}

/// Outcome of the check of one recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShadowResult {
    /// Counts by kind.
    pub kinds: Vec<KindResult>,
    /// Every disagreement, in order of time.
    pub disagreements: Vec<Disagreement>,
}
