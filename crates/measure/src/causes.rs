//! Why and where, over the seeds of each kernel: tables of one column per kernel.
//!
//! *Equations.* Counts and times are sums over the seeds. A rate is the mean over the seeds of
//! (count / messages), or of (count / seconds) where nothing counts messages: as the rows of a
//! comparison are means over the seeds, so that the causes of switches add up to their row.

use crate::metrics::window;
use crate::stats::{mean, ratio};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use vruntime_base::{Category, Func, Resource};
use vruntime_kernel::record::RunRecord;

/// Figures by name, one column per kernel, in order of name. In JSON: name → figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table<T>(pub Vec<(&'static str, Vec<T>)>);

/// Counts.
pub type CauseTable = Table<u64>;

/// Rates in the order of a [`CauseTable`]; `None` where nothing is known to count per.
pub type RateTable = Table<Option<f64>>;

/// The three kinds of cause. Counts are sums over the seeds of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CauseTables {
    /// Context switches by cause.
    pub switches: CauseTable,
    /// Wakeup placements by rule.
    pub placements: CauseTable,
    /// Migrations by cause.
    pub migrations: CauseTable,
}

/// What causes are counted per.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Per {
    /// A message of the benchmark.
    Message,
    /// A second of the measured window.
    Second,
}

/// How often each cause was: means over the seeds of a kernel.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CauseRates {
    /// Per what.
    pub per: Per,
    /// Context switches by cause.
    pub switches: RateTable,
    /// Wakeup placements by rule.
    pub placements: RateTable,
    /// Migrations by cause.
    pub migrations: RateTable,
}

/// One of the three lists of a run.
type Pick = fn(&RunRecord) -> &[(&'static str, u64)];

/// CPU time of one function and resource, one column per kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTimeRow {
    /// Function.
    pub func: Func,
    /// What it waited for; [`Resource::None`] for its own work.
    pub resource: Resource,
    /// ns over all CPUs and seeds, per kernel.
    pub ns: Vec<u64>,
}

/// CPU time, in the order of the ledger. In JSON: `function` or `function: resource` → ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTime(pub Vec<CpuTimeRow>);

/// `function` for own time, `function: resource` for waiting.
pub fn place_name(func: Func, resource: Resource) -> String {
    match resource {
        Resource::None => func.name().to_string(),
        r => format!("{}: {}", func.name(), r.name()),
    }
}

impl CauseTable {
    /// Sums `pick(run)` over the runs of each kernel.
    pub fn of(kernels: &[&[RunRecord]], pick: Pick) -> CauseTable {
        let mut rows: Vec<(&'static str, Vec<u64>)> = Vec::new();
        for (k, runs) in kernels.iter().enumerate() {
            for &(name, n) in runs.iter().flat_map(pick) {
                let i = rows.binary_search_by(|row| row.0.cmp(name)).unwrap_or_else(|i| {
                    rows.insert(i, (name, vec![0; kernels.len()]));
                    i
                });
                rows[i].1[k] += n;
            }
        }
        Table(rows)
    }
    /// Sum of each column, for `columns` kernels.
    pub fn totals(&self, columns: usize) -> Vec<u64> {
        (0..columns).map(|k| self.0.iter().map(|row| row.1[k]).sum()).collect()
    }
}

impl CauseTables {
    /// Tables of one column each as the columns of one.
    pub fn side_by_side(columns: &[CauseTables]) -> CauseTables {
        let of = |pick: fn(&CauseTables) -> &CauseTable| {
            let mut rows: BTreeMap<&'static str, Vec<u64>> = BTreeMap::new();
            for (k, column) in columns.iter().enumerate() {
                for (name, counts) in &pick(column).0 {
                    rows.entry(name).or_insert_with(|| vec![0; columns.len()])[k] = counts[0];
                }
            }
            Table(rows.into_iter().collect())
        };
        CauseTables {
            switches: of(|t| &t.switches),
            placements: of(|t| &t.placements),
            migrations: of(|t| &t.migrations),
        }
    }
    /// The tables of `kernels`, each a slice of the runs of its seeds.
    pub fn of(kernels: &[&[RunRecord]]) -> CauseTables {
        CauseTables {
            switches: CauseTable::of(kernels, |r| &r.switches),
            placements: CauseTable::of(kernels, |r| &r.placements),
            migrations: CauseTable::of(kernels, |r| &r.migrations),
        }
    }
}

impl CauseRates {
    /// The rates of `kernels`, each a slice of the runs of its seeds.
    pub fn of(kernels: &[&[RunRecord]]) -> CauseRates {
        let counted = kernels.iter().copied().flatten().any(|r| r.counters.messages > 0);
        let per = if counted { Per::Message } else { Per::Second };
        let whole = |r: &RunRecord| match per {
            Per::Message => r.counters.messages as f64,
            Per::Second => window(r).0 as f64 / 1e9,
        };
        let rate = |r: &RunRecord, pick: Pick, name: &str| {
            let found = pick(r).iter().filter(|c| c.0 == name).map(|c| c.1).sum::<u64>();
            ratio(found as f64, whole(r))
        };
        let column = |runs: &[RunRecord], pick: Pick, name: &str| {
            mean(&runs.iter().filter_map(|r| rate(r, pick, name)).collect::<Vec<_>>())
        };
        let table = |pick: Pick| {
            let names = CauseTable::of(kernels, pick).0.into_iter().map(|row| row.0);
            let row = |name| (name, kernels.iter().map(|runs| column(runs, pick, name)).collect());
            Table(names.map(row).collect())
        };
        CauseRates {
            per,
            switches: table(|r| &r.switches),
            placements: table(|r| &r.placements),
            migrations: table(|r| &r.migrations),
        }
    }

    /// Rates a second of traces that span so many ns, one for each column of `tables`.
    pub fn of_traces(tables: &CauseTables, span_ns: &[u64]) -> CauseRates {
        let table = |counts: &CauseTable| {
            let rate = |(&n, &ns): (&u64, &u64)| ratio(n as f64, ns as f64 / 1e9);
            let row = |counts: &[u64]| counts.iter().zip(span_ns).map(rate).collect();
            Table(counts.0.iter().map(|(name, counts)| (*name, row(counts))).collect())
        };
        CauseRates {
            per: Per::Second,
            switches: table(&tables.switches),
            placements: table(&tables.placements),
            migrations: table(&tables.migrations),
        }
    }
}

impl CpuTime {
    /// The table of `kernels`, each a slice of the runs of its seeds. Rows without time are left
    /// out.
    pub fn of(kernels: &[&[RunRecord]]) -> CpuTime {
        let mut rows: Vec<CpuTimeRow> = Vec::new();
        for (k, runs) in kernels.iter().enumerate() {
            for &(func, resource, d) in runs.iter().flat_map(|r| &r.cpu_time) {
                if d.0 == 0 {
                    continue;
                }
                let key = (func, resource);
                let i =
                    rows.binary_search_by(|r| (r.func, r.resource).cmp(&key)).unwrap_or_else(|i| {
                        rows.insert(i, CpuTimeRow { func, resource, ns: vec![0; kernels.len()] });
                        i
                    });
                rows[i].ns[k] += d.0;
            }
        }
        CpuTime(rows)
    }
    /// ns that were not idle, per kernel, for `columns` kernels.
    pub fn busy(&self, columns: usize) -> Vec<u64> {
        let busy = || self.0.iter().filter(|r| r.func.category() != Category::Idle);
        (0..columns).map(|k| busy().map(|r| r.ns[k]).sum()).collect()
    }
    /// All ns, per kernel, for `columns` kernels.
    pub fn total(&self, columns: usize) -> Vec<u64> {
        (0..columns).map(|k| self.0.iter().map(|r| r.ns[k]).sum()).collect()
    }
}

impl<T: Serialize> Serialize for Table<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, figures) in &self.0 {
            map.serialize_entry(name, figures)?;
        }
        map.end()
    }
}

impl Serialize for CpuTime {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for row in &self.0 {
            map.serialize_entry(&place_name(row.func, row.resource), &row.ns)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Counting, metrics};
    use crate::sample::record;

    #[test]
    fn columns_add_up_over_seeds() {
        let a = [record("a", 1, 2.0), record("a", 2, 2.0)];
        let mut b = [record("b", 1, 1.0)];
        b[0].switches.push(("exits", 7));
        let t = CauseTables::of(&[&a, &b]);
        assert_eq!(
            t.switches.0,
            [("blocks", vec![6000, 3000]), ("exits", vec![0, 7]), ("preempted", vec![2000, 1000])]
        );
        let rates = CauseRates::of(&[&a, &b]);
        assert_eq!((rates.per, rates.switches.0[1].0), (Per::Message, "exits"));
        let c = CpuTime::of(&[&a, &b]);
        assert_eq!(c.busy(2), [1600, 800]);
        assert_eq!(c.total(2), [2000, 1000]);
    }

    /// The second seed has a tenth of the messages.
    #[test]
    fn rates_are_means_over_the_seeds() {
        let mut a = [record("a", 1, 2.0), record("a", 2, 2.0)];
        a[1].counters.messages = a[0].counters.messages / 10;
        let per_message = |r: &RunRecord| {
            let found = metrics(r, Counting::Rates);
            found.iter().find(|m| m.name == "switches_per_message").unwrap().value
        };
        let row = (per_message(&a[0]) + per_message(&a[1])) / 2.0;
        let rates = CauseRates::of(&[&a]);
        let total: f64 = rates.switches.0.iter().filter_map(|r| r.1[0]).sum();
        assert!((total - row).abs() < 1e-9 * row, "{total} is not {row}");
        // Without messages they are per second; a run without a window tells nothing.
        a.iter_mut().for_each(|r| r.counters.messages = 0);
        a[1].window.1 = a[1].window.0;
        let rates = CauseRates::of(&[&a]);
        assert_eq!((rates.per, rates.switches.0[0].1[0]), (Per::Second, Some(1500.0)));
    }
}
