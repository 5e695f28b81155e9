//! What people read: plain text, at most 110 columns wide. It prints what `measure` found and
//! calculates nothing but shares.
//!
//! [`compare_text`] sets kernels side by side, [`run_text`] describes one run; both print causes
//! and CPU time with [`blocks`] and numbers with [`numbers`]. [`check`] is the report of `trace
//! check`, [`schedstat_text`] what `/proc/schedstat` would show.

pub mod blocks;
pub mod check;
pub mod compare;
pub mod explain;
pub mod numbers;
pub mod run;
#[cfg(test)]
#[path = "../../measure/src/sample.rs"]
mod sample;
pub mod schedstat;
pub mod study;
pub mod trace_diff;

pub use compare::compare_text;
pub use explain::explain_text;
pub use run::run_text;
pub use schedstat::schedstat_text;
pub use trace_diff::trace_diff_text;
