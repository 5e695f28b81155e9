//! **vruntime**: a deterministic discrete-event laboratory for the Linux CPU scheduler.
//!
//! This crate is the command line and the façade over the others: [`machine_choice`] and
//! [`batch`] turn names and seeds into runs, [`commands`] holds one file per command.

pub mod batch;
pub mod bench;
pub mod calibrate;
pub mod cli;
pub mod commands;
pub mod cpu_numbers;
pub mod duration;
pub mod explain;
pub mod failure;
pub mod interrupt;
mod lab;
pub mod machine_choice;
pub mod progress;
pub mod record;
mod recorded_release;
pub mod replay;
pub mod replay_plain;
pub mod trace_check;
mod trace_file;
pub mod trace_why;

pub use vruntime_base as base;
pub use vruntime_formats as formats;
pub use vruntime_kernel as kernel;
pub use vruntime_machine as machine;
pub use vruntime_measure as measure;
pub use vruntime_report as report;
pub use vruntime_sched as sched;
pub use vruntime_workload as workload;
