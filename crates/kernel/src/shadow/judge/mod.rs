//! The kinds of decision: asked of our code, compared with what the kernel did, and told.
//!
//! | file | |
//! |---|---|
//! | `placement`, `idlest` | a CPU for a wakeup; for a fork or an exec |
//! | `preempt`, `tick` | whether the running task is asked to go: at a wakeup, at a tick |
//! | `pick` | the next task |
//! | `migration`, `passes` | what the balancer moved; which moves are one pass |
//! | `explain` | decisions in words |
//! | `result` | what a check found |

pub mod explain;
pub mod idlest;
pub mod migration;
mod passes;
pub mod pick;
pub mod placement;
pub mod preempt;
pub mod result;
pub mod tick;
