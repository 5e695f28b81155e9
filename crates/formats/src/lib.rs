//! Everyone else's bytes, in and out.
//!
//! | module | format |
//! |---|---|
//! | `kernel_file` | kernels and kernel expressions |
//! | `machine_file` | machines and cost tables |
//! | `study_file` | studies: published figures and the runs that reproduce them |
//! | `error` | what is wrong with a file, where, and what was expected |
//! | `text` | text files, plain or `.xz`, whole or damaged |
//! | `xz` | `.xz`, damaged files included |
//! | `table` | a table of integers addressed by column name |
//! | `topology_text` | a dump of sysfs `cpu*/topology`, `cpu*/cache`, `node*` |
//! | `lost` | events that a recorder lost |
//! | `numbers` | the numbers by which perf.data and Perfetto name their parts |
//! | `write` | timelines as perf.data, trace.dat, Perfetto, text |
//! | `read` | recorded traces as timelines: perf.data, text of tracefs |
//! | `recording` | a directory with a kernel's recorded decisions and state (`state.csv`) |

pub mod error;
pub mod kernel_file;
pub mod lost;
pub mod machine_file;
mod numbers;
pub mod read;
pub mod recording;
pub mod study_file;
pub mod table;
pub mod text;
mod text_file;
pub mod topology_text;
pub mod write;
pub mod xz;
