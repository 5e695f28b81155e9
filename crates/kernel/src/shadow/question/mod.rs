//! A question to the scheduler's own code: what is known, put together as that code wants it.
//!
//! | file | |
//! |---|---|
//! | `known` | values that are not known, and whether they matter |
//! | `levels` | one level of a queue |
//! | `decide` | the decision code of the fair class, asked about a level |
//! | `moment` | a pass of the balancer, put together for its own code |
//! | `choice` | a choice of the slow path, put together for its own code |

pub mod choice;
pub mod decide;
pub mod known;
pub mod levels;
pub mod moment;
