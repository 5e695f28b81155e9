//! What a plain trace, events without state, lets one infer: rows of the recorded shape.
//!
//! | file | |
//! |---|---|
//! | `answers` | whether the kernel asked for a reschedule |
//! | `moves` | who moved a task |
//! | `rebuilder` | the rows anew, one by one, with what is known by then |
//! | `wakeups` | its part for wakeups: a row for the choice of a CPU, flips |
//! | `span` | intervals |
//! | `queue_frame` | virtual times of one CPU's queue |
//! | `delayed` | delayed dequeue in it, and what picks tell |
//! | `averages` | load and utilisation |
//! | `tuning` | what a release says about placement |

pub mod answers;
pub mod averages;
pub mod delayed;
pub mod moves;
pub mod queue_frame;
pub mod rebuilder;
pub mod span;
pub mod tuning;
pub mod wakeups;

pub use rebuilder::rebuild;
