//! The range of every number of a release: outside it a mechanism divides by zero, overflows, or
//! means nothing.

use crate::release::Release;

/// A number out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRange {
    /// The field.
    pub name: &'static str,
    /// What it was set to.
    pub found: u64,
    /// The smallest value it may have.
    pub least: u64,
    /// The largest.
    pub most: u64,
}

impl OutOfRange {
    /// What would be right.
    pub fn expected(&self) -> String {
        format!("a whole number from {} to {}", self.least, self.most)
    }
}

/// Durations are a second at the most: with weights and CPU scaling they stay far from overflow.
const SECOND: u64 = 1_000_000_000;

/// Finds the first number of `r` that is out of its range.
pub fn check(r: &Release) -> Result<(), OutOfRange> {
    let wrong = |&(_, found, least, most): &Range| !(least..=most).contains(&found);
    match ranges(r).into_iter().find(wrong) {
        Some((name, found, least, most)) => Err(OutOfRange { name, found, least, most }),
        None => Ok(()),
    }
}

/// What the number `name` may be.
pub fn expected(r: &Release, name: &str) -> Option<String> {
    let (name, found, least, most) = ranges(r).into_iter().find(|range| range.0 == name)?;
    Some(OutOfRange { name, found, least, most }.expected())
}

/// Name, value, least and most.
type Range = (&'static str, u64, u64, u64);

fn ranges(r: &Release) -> Vec<Range> {
    vec![
        // 24 is the least that any architecture offers; a tick of 100 us is one already.
        ("hz", u64::from(r.hz), 24, 10_000),
        ("schedstat_version", r.schedstat_version.into(), 15, 17),
        ("busy_factor", r.busy_factor.into(), 1, 1_000),
        // 100 is "no imbalance at all".
        ("imbalance_pct", r.imbalance_pct.into(), 100, 1_000),
        ("nr_migrate", r.nr_migrate.into(), 0, 1_000_000),
        ("rt_period_ns", r.rt_period_ns, 100_000, SECOND),
        ("rt_runtime_ns", r.rt_runtime_ns, 1_000, SECOND),
        ("base_slice_ns", r.base_slice_ns, 1_000, SECOND),
        ("latency_ns", r.latency_ns, 1_000, SECOND),
        ("min_granularity_ns", r.min_granularity_ns, 1_000, SECOND),
        ("idle_min_granularity_ns", r.idle_min_granularity_ns, 1_000, SECOND),
        ("wakeup_granularity_ns", r.wakeup_granularity_ns, 0, SECOND),
        ("migration_cost_ns", r.migration_cost_ns, 0, SECOND),
        ("migration_window_ns", r.migration_window_ns, 0, SECOND),
        ("migration_quota", r.migration_quota.into(), 1, 1_000_000),
        ("timer_slack_ns", r.timer_slack_ns.into(), 0, SECOND),
        ("migration_prev_load", r.migration_prev_load, 0, 1_000_000_000),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn both_ends_are_inside() {
        for hz in [24, 10_000] {
            assert_eq!(check(&Release { hz, ..sample::v6_1() }), Ok(()));
        }
        for hz in [0, 23, 10_001, u32::MAX] {
            let e = check(&Release { hz, ..sample::v6_12() }).unwrap_err();
            assert_eq!((e.name, e.found), ("hz", u64::from(hz)));
            assert_eq!(e.expected(), "a whole number from 24 to 10000");
        }
    }

    /// A new number in the release needs a range.
    #[test]
    fn no_number_is_left_out() {
        let fields = toml::Table::try_from(sample::v6_1()).unwrap();
        for (name, value) in &fields {
            let Some(n) = value.as_integer() else { continue };
            let mut wrong = fields.clone();
            wrong.insert(name.clone(), i64::from(u32::MAX).into());
            let found = wrong.try_into().map(|r: Release| check(&r));
            assert!(found.unwrap().is_err(), "{name} = {n} has no range");
        }
    }
}
