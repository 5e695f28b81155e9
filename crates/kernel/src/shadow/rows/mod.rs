//! What a recording holds: its rows, and how they belong together.
//!
//! | file | |
//! |---|---|
//! | `trace` | the rows that are replayed |
//! | `neighbours` | the row before and after, on the same CPU |
//! | `alive` | when a CPU is seen to execute something |
//! | `wakes` | the rows of one wakeup put together |
//! | `searched` | what a choice could see, where the recording tells it |

pub mod alive;
pub mod neighbours;
pub mod searched;
pub mod trace;
pub mod wakes;
