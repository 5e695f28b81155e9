//! The second driver of the scheduler: time and events come from a recorded trace, decisions from
//! the same code as under `simulate`, and what differs is reported.
//!
//! | folder, file | |
//! |---|---|
//! | `rows` | what a recording holds |
//! | `rebuild` | the state that a plain trace lets one rebuild, as rows of the same shape |
//! | `state` | what the rows tell of the kernel's state at a moment |
//! | `question` | that state as the scheduler's code wants it, and what is not known of it |
//! | `judge` | the kinds of decision: asked, compared, explained |
//! | `replay` | a recording row by row, the summary of it all |
//!
//! Each knows those above it.

pub mod judge;
pub mod question;
pub mod rebuild;
mod replay;
pub mod rows;
pub mod state;
#[cfg(test)]
mod tests;

pub use replay::{check, explain};
