//! From the times and counters of a short window and a longer one to figures.
//!
//! Whatever else a machine does only adds to a time. So the least of each kind (the short window,
//! the long one, X) is taken of all repetitions first: a ratio of times taken together would be
//! least where X was disturbed. A difference that is not above zero says nothing and is left out.

/// What one repetition took, ns of thread CPU time.
#[derive(Clone, Copy)]
pub struct Pair {
    /// X before the two runs and after them.
    pub x: [f64; 2],
    pub short: f64,
    pub long: f64,
}

/// The least of each kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Least {
    pub x: f64,
    /// What the longer window takes more.
    pub more: f64,
    /// The same of its slowest run.
    pub more_max: f64,
}

impl Least {
    pub fn of(pairs: &[Pair]) -> Least {
        let least = |of: fn(&Pair) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
        let short = least(|p| p.short);
        let slowest = pairs.iter().map(|p| p.long).fold(0.0, f64::max);
        Least {
            x: least(|p| p.x[0].min(p.x[1])),
            more: least(|p| p.long) - short,
            more_max: slowest - short,
        }
    }
}

/// What was simulated.
#[derive(Clone, Copy)]
pub struct Counts {
    pub messages: f64,
    pub events: f64,
    pub switches: f64,
}

impl Counts {
    /// What this one has more.
    pub fn beyond(self, short: Counts) -> Counts {
        Counts {
            messages: self.messages - short.messages,
            events: self.events - short.events,
            switches: self.switches - short.switches,
        }
    }
}

/// A figure, or `None` where the windows were too short for it.
pub type Figure = (&'static str, Option<f64>);

/// The figures that are differences. `window` is what the longer one is longer, ns.
pub fn figures(least: Least, more: Counts, window: f64) -> Vec<Figure> {
    let ratio = |a: f64, b: f64| (a > 0.0 && b > 0.0).then(|| a / b);
    let Least { x, more: ns, more_max } = least;
    let Counts { messages, events, switches } = more;
    vec![
        ("ns_per_message_over_x", ratio(ns / x, messages)),
        ("ns_per_message_over_x_max", ratio(more_max / x, messages)),
        ("ns_per_event_over_x", ratio(ns / x, events)),
        ("ns_per_switch_over_x", ratio(ns / x, switches)),
        ("ns_per_simulated_ns_over_x", ratio(ns / x, window)),
        ("events_per_message", ratio(events, messages)),
        ("switches_per_message", ratio(switches, messages)),
        ("switches_per_second", ratio(switches * 1e9, ns)),
    ]
}

/// The note about those that are not there, if there are any.
pub fn left_out(case: &str, kernel: &str, figures: &[Figure]) -> Option<String> {
    let names: Vec<_> = figures.iter().filter(|f| f.1.is_none()).map(|f| f.0).collect();
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!(
        "{case} under {kernel}: {names}: left out, the longer of two windows as short as these \
         shows no more than the shorter; a larger --percent makes them longer, a larger --repeat \
         finds calmer moments"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MORE: Counts = Counts { messages: 100.0, events: 300.0, switches: 20.0 };

    fn named(figures: &[Figure], name: &str) -> Option<f64> {
        figures.iter().find(|f| f.0 == name).unwrap().1
    }

    /// In the second repetition only X was disturbed: its ratios are the lowest, and wrong.
    #[test]
    fn a_disturbed_x_makes_nothing_faster() {
        let calm = Pair { x: [2.0, 2.1], short: 1_000.0, long: 5_000.0 };
        let pairs = [calm, Pair { x: [4.0, 4.0], short: 1_100.0, long: 5_200.0 }];
        let least = Least::of(&pairs);
        assert_eq!(least, Least { x: 2.0, more: 4_000.0, more_max: 4_200.0 });
        let all = figures(least, MORE, 1e6);
        assert_eq!(named(&all, "ns_per_message_over_x"), Some(20.0));
        assert_eq!(named(&all, "ns_per_message_over_x_max"), Some(21.0));
        assert_eq!(named(&all, "switches_per_second"), Some(20.0 / 4_000.0 * 1e9));
        assert_eq!(left_out("a", "v6.1", &all), None);
    }

    #[test]
    fn a_difference_that_is_not_above_zero_is_left_out() {
        let least = Least::of(&[Pair { x: [2.0, 2.0], short: 5_000.0, long: 4_000.0 }]);
        let all = figures(least, Counts { switches: 0.0, ..MORE }, 1e6);
        let shown: Vec<_> = all.iter().filter(|f| f.1.is_some()).collect();
        assert_eq!(shown, [&("events_per_message", Some(3.0))]);
        let note = left_out("hackbench-pipe-2", "v6.1", &all).unwrap();
        assert!(note.starts_with("hackbench-pipe-2 under v6.1: ns_per_message_over_x, "), "{note}");
        assert!(note.contains("switches_per_second: left out") && note.contains("--percent"));
    }
}
