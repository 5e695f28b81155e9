//! What a run says: metrics, causes and the comparison of kernels, as plain data.
//!
//! Nothing here knows how a [`RunRecord`](vruntime_kernel::record::RunRecord) came about, prints
//! or reads a file. Reading order: [`metrics`] turns one run into named numbers, [`stats`] and
//! [`interval`] hold the arithmetic, [`compare`] sets kernels side by side, [`causes`] adds up why
//! and where, [`run`] is one run for machines to read.

pub mod causes;
pub mod compare;
pub mod explain;
pub mod interval;
pub mod message_time;
pub mod metrics;
pub mod run;
#[cfg(test)]
mod sample;
pub mod stats;
pub mod study;
pub mod timeline_causes;
pub mod timeline_queues;
pub mod timeline_stats;
pub mod trace_diff;
mod trace_parts;
pub mod wakings;

pub use causes::{CauseRates, CauseTables, CpuTime};
pub use compare::{Comparison, Ends, Row, compare};
pub use interval::Sig;
pub use metrics::{Better, Counting, METRICS, Metric, metric_names, metrics};
pub use run::RunJson;
pub use timeline_causes::timeline_causes;
pub use timeline_queues::wakeups_by;
pub use timeline_stats::{TimelineStats, timeline_stats};
pub use trace_diff::{TraceDiff, trace_diff};
