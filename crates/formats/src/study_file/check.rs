//! What a study's tables say of one another: every name is one, every figure is in its range.

use super::{Case, Effect, Fit, MOST_SEEDS, MOST_SPLIT, PublishedRow, Study, StudyQuestion};
use crate::kernel_file::{builtin_kernels, split_base};
use vruntime_machine::{hint, nearest_name};

/// A place in the text, and what is wrong there.
pub(super) type Wrong = (String, String);

/// Finds the first thing that is wrong.
pub(super) fn check(s: &Study) -> Result<(), Wrong> {
    ids(s)?;
    for (metric, &percent) in &s.neutral_pct {
        if !(0.0..=100.0).contains(&percent) {
            let message = format!("neutral_pct: {metric} = {percent}: expected 0 to 100");
            return Err((metric.clone(), message));
        }
    }
    if s.cases.is_empty() {
        return Err(("case".into(), "no [[case]]: expected what is run".into()));
    }
    s.kernels.iter().try_for_each(|(name, kernel)| alias(s, name, kernel))?;
    s.cases.iter().try_for_each(|c| case(s, c))?;
    s.rows.iter().try_for_each(|r| row(s, r))?;
    s.message_time.iter().try_for_each(|id| one_of(&cases(s), "case", "message_time", id))?;
    s.questions.iter().try_for_each(|q| question(s, q))?;
    s.fits.iter().try_for_each(|f| fit(s, f))
}

/// What is wrong with the table that has this `id`.
fn wrong(id: &str, what: impl std::fmt::Display) -> Wrong {
    (quoted(id), format!("`{id}`: {what}"))
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// The table `by` names a `what` that there is.
fn one_of(known: &[&str], what: &str, by: &str, name: &str) -> Result<(), Wrong> {
    if known.contains(&name) {
        return Ok(());
    }
    let near = hint(nearest_name(name, known.iter().copied()));
    Err((quoted(name), format!("`{by}`: no {what} `{name}`{near}")))
}

fn cases(s: &Study) -> Vec<&str> {
    s.cases.iter().map(|c| c.id.as_str()).collect()
}

/// None is given twice, and no figure of a case has two rows.
fn ids(s: &Study) -> Result<(), Wrong> {
    for (i, row) in s.rows.iter().enumerate() {
        let same = |r: &&PublishedRow| r.case == row.case && r.metric == row.metric;
        if let Some(first) = s.rows[..i].iter().find(same) {
            let what = format!("the row `{}` has `{}` of that case already", first.id, row.metric);
            return Err(wrong(&row.id, what));
        }
    }
    let rows: Vec<&str> = s.rows.iter().map(|r| r.id.as_str()).collect();
    let questions: Vec<&str> = s.questions.iter().map(|q| q.id.as_str()).collect();
    for (what, ids) in [("case", cases(s)), ("row", rows), ("question", questions)] {
        if let Some((_, twice)) = ids.iter().enumerate().find(|(i, id)| ids[..*i].contains(id)) {
            return Err((quoted(twice), format!("two {what}s have the id `{twice}`")));
        }
    }
    Ok(())
}

/// An expression that begins with the name of `[kernels]` can be told from all others.
fn alias(s: &Study, name: &str, kernel: &str) -> Result<(), Wrong> {
    let base = split_base(kernel).0;
    if s.kernels.contains_key(base) {
        let message = format!("kernels: `{name}`: expected a kernel, not `{base}` of [kernels]");
        return Err((name.into(), message));
    }
    let expected = if name.contains(['+', '-', ',']) {
        "a name without `+`, `-` and `,`"
    } else if builtin_kernels().iter().any(|(known, _)| *known == name) {
        "a name that no kernel has"
    } else {
        return Ok(());
    };
    Err((name.into(), format!("kernels: `{name}`: expected {expected}")))
}

fn seeds(id: &str, n: Option<u64>) -> Result<(), Wrong> {
    match n {
        Some(n) if !(1..=MOST_SEEDS).contains(&n) => {
            Err(wrong(id, format!("seeds = {n}: expected 1 to {MOST_SEEDS}")))
        }
        _ => Ok(()),
    }
}

fn case(s: &Study, c: &Case) -> Result<(), Wrong> {
    seeds(&c.id, c.seeds)?;
    if c.loops_divided_by == Some(0) {
        return Err(wrong(&c.id, "loops_divided_by = 0: expected 1 or more"));
    }
    for expression in [&c.before, &c.after] {
        let (base, _) = split_base(expression);
        let builtin = builtin_kernels().iter().any(|(name, _)| *name == base);
        let near = nearest_name(base, s.kernels.keys().map(String::as_str));
        if let (false, false, Some(near)) = (builtin, base.ends_with(".toml"), near) {
            let message = format!("`{}`: no kernel named `{base}`, nearest is `{near}`", c.id);
            return Err((quoted(expression), message));
        }
    }
    Ok(())
}

fn row(s: &Study, r: &PublishedRow) -> Result<(), Wrong> {
    one_of(&cases(s), "case", &r.id, &r.case)?;
    if let Some(x) = r.before_spread_pct.filter(|x| !(0.0..=100.0).contains(x)) {
        return Err(wrong(&r.id, format!("before_spread_pct = {x}: expected 0 to 100")));
    }
    let (before, after) = (r.before, r.after);
    if !(before.is_finite() && before > 0.0) {
        return Err(wrong(&r.id, format!("before = {before}: expected more than 0")));
    }
    if !(after.is_finite() && after >= 0.0) {
        return Err(wrong(&r.id, format!("after = {after}: expected at least 0")));
    }
    let (effect, fits) = match r.effect {
        Effect::Improves => ("improves", after < before),
        Effect::Worsens => ("worsens", after > before),
        Effect::Neutral => return Ok(()),
    };
    if !fits {
        let what = format!("effect = \"{effect}\", but from {before} to {after}");
        return Err(wrong(&r.id, what));
    }
    Ok(())
}

fn question(s: &Study, q: &StudyQuestion) -> Result<(), Wrong> {
    one_of(&cases(s), "case", &q.id, &q.case)?;
    let twice = q.knockouts.iter().enumerate().find(|(i, k)| q.knockouts[..*i].contains(k));
    if let Some((_, twice)) = twice {
        return Err(wrong(&q.id, format!("knockouts name `{twice}` twice")));
    }
    if !(1..=MOST_SPLIT).contains(&q.split) {
        return Err(wrong(&q.id, format!("split = {}: expected 1 to {MOST_SPLIT}", q.split)));
    }
    if q.knockouts.is_empty() {
        return Err(wrong(&q.id, "knockouts = []: expected at least one"));
    }
    seeds(&q.id, q.seeds)
}

fn fit(s: &Study, f: &Fit) -> Result<(), Wrong> {
    const FIT: &str = "[[fit]]";
    let machines: Vec<&str> = s.cases.iter().map(|c| c.machine.as_str()).collect();
    one_of(&machines, "case on machine", FIT, &f.machine)?;
    let on_machine =
        |r: &PublishedRow| s.cases.iter().any(|c| c.id == r.case && c.machine == f.machine);
    let rows = |wanted: &dyn Fn(&PublishedRow) -> bool| -> Vec<&str> {
        s.rows.iter().filter(|r| wanted(r)).map(|r| r.id.as_str()).collect()
    };
    for row in &f.rows {
        one_of(&rows(&|_| true), "row", FIT, row)?;
        one_of(&rows(&on_machine), &format!("row on {}", f.machine), FIT, row)?;
    }
    if f.rows.is_empty() || !(f.residual_pct.is_finite() && f.residual_pct >= 0.0) {
        let found = format!("{} rows, residual_pct = {}", f.rows.len(), f.residual_pct);
        return Err((FIT.into(), format!("{found}: expected at least one, and 0 or more")));
    }
    Ok(())
}
