//! Why and where, added up over the seeds of each kernel: tables of one column per kernel.

use serde::ser::{Serialize, SerializeMap, Serializer};
use std::collections::BTreeMap;
use vruntime_base::{Category, Func, Resource};
use vruntime_kernel::record::RunRecord;

/// Counts by name, one column per kernel, in order of name. In JSON: name → counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CauseTable(pub Vec<(&'static str, Vec<u64>)>);

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
    pub fn of<'a>(
        kernels: &[&'a [RunRecord]],
        pick: impl Fn(&'a RunRecord) -> &'a [(&'static str, u64)],
    ) -> CauseTable {
        let mut rows: Vec<(&'static str, Vec<u64>)> = Vec::new();
        for (k, runs) in kernels.iter().enumerate() {
            for &(name, n) in runs.iter().flat_map(&pick) {
                let i = rows.binary_search_by(|row| row.0.cmp(name)).unwrap_or_else(|i| {
                    rows.insert(i, (name, vec![0; kernels.len()]));
                    i
                });
                rows[i].1[k] += n;
            }
        }
        CauseTable(rows)
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
            CauseTable(rows.into_iter().collect())
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

impl Serialize for CauseTable {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, counts) in &self.0 {
            map.serialize_entry(name, counts)?;
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
        let c = CpuTime::of(&[&a, &b]);
        assert_eq!(c.busy(2), [1600, 800]);
        assert_eq!(c.total(2), [2000, 1000]);
    }
}
