//! Two traces in the table of a comparison.

use crate::blocks::{Columns, all_causes_text};
use crate::compare::{legend_of_stars, rows_text};
use crate::numbers::duration;
use vruntime_measure::{CauseRates, TraceDiff};

/// What tells two names apart: the words between those that they begin and end with alike.
fn labels(names: &[String]) -> Vec<String> {
    let words = |name: &String| -> Vec<String> {
        name.split_inclusive(|c: char| !c.is_alphanumeric() && c != '.').map(String::from).collect()
    };
    let mut all: Vec<Vec<String>> = names.iter().map(words).collect();
    let alike = |all: &[Vec<String>], at: fn(&[String]) -> Option<&String>| {
        // One word of each stays.
        all.iter().all(|w| w.len() > 1 && at(w) == at(&all[0]))
    };
    while alike(&all, <[_]>::last) {
        all.iter_mut().for_each(|w| drop(w.pop()));
    }
    while alike(&all, <[_]>::first) {
        all.iter_mut().for_each(|w| drop(w.remove(0)));
    }
    let trimmed = |w: &Vec<String>| w.concat().trim_end_matches(['-', '_', '/']).to_string();
    let found: Vec<String> = all.iter().map(trimmed).collect();
    if found.first() == found.last() { names.to_vec() } else { found }
}

/// The whole report.
pub fn trace_diff_text(d: &TraceDiff) -> String {
    let mut out = String::new();
    for (k, name) in d.traces.iter().enumerate() {
        let (title, mark) = if k == 0 { ("traces", "  (base)") } else { ("", "") };
        let length = duration(d.span_ns[k]);
        out += &format!("{title:<12}{name}: {length}, {} events{mark}\n", d.events[k]);
    }
    out += &format!(
        "intervals   from {} slices of each trace, so not of how far runs differ; counts are per \
         second\n\n",
        d.slices
    );
    let names = labels(&d.traces);
    out += &rows_text(&d.rows, &names);
    out += &legend_of_stars(d.significance);
    out.push('\n');
    let rates = CauseRates::of_traces(&d.causes, &d.span_ns);
    out += &all_causes_text(&d.causes, &rates, Columns { names: &names });
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Cpu, Event, EventKind, Ns, TaskId, Timeline};
    use vruntime_measure::{Sig, trace_diff};

    #[test]
    fn columns_are_named_by_what_differs() {
        let of = |a: &str, b: &str| labels(&[a.to_string(), b.to_string()]);
        assert_eq!(of("t/6.12-none-g1/perf.data", "t/6.12-full-g1/perf.data"), ["none", "full"]);
        assert_eq!(of("a.data", "b.data"), ["a.data", "b.data"]);
        assert_eq!(of("same", "same"), ["same", "same"]);
        assert_eq!(of("x/run", "x/run-2"), ["run", "run-2"]);
    }

    fn preempted_every(period: u64) -> Timeline {
        let mut t = Timeline::default();
        for i in 0..100 {
            let (time, task) = (Ns(i * period), TaskId(1 + i as u32 % 2));
            let (cpu, kind, a) = (Cpu(0), EventKind::Switch, 2 - i as u32 % 2);
            t.push(Event { a, b: 1, ..Event::new(time, cpu, kind, task) });
        }
        t
    }

    #[test]
    fn both_columns_and_the_cause_are_there() {
        let (a, b) = (preempted_every(2_000_000), preempted_every(1_000_000));
        let d = trace_diff([("none.data", &a), ("full.data", &b)], 5, Sig::Interval);
        let text = trace_diff_text(&d);
        let line = text.lines().find(|l| l.contains("involuntary_switches")).unwrap();
        assert!(line.contains("100.00%"), "{text}");
        assert!(text.contains("slice ended or sched_yield"), "{text}");
        assert!(text.contains("none.data: 198.00 ms, 100 events  (base)"), "{text}");
        assert!(text.lines().all(|l| l.len() <= 110), "{text}");
    }
}
