//! What is known of the kernel's state at a moment, from the rows so far or from all of them.
//!
//! | file | |
//! |---|---|
//! | `queues` | who is queued where, with what state |
//! | `buddies` | whom a check or a yield has marked |
//! | `changes` | when nice values, classes and allowed CPUs were changed |
//! | `lists` | in which order the balancer goes through them |
//! | `counts` | how many tasks a CPU had |
//! | `loads`, `utilisation` | averages of a CPU, as intervals |
//! | `rt_use` | what real-time tasks may have taken of a CPU |
//! | `idle` | which CPUs could be seen idle, and when |
//! | `idle_tasks` | who counts as SCHED_IDLE |
//! | `tasks` | a task beyond its rows: kernel thread, exiting, allowed CPUs |
//! | `scan_limit` | what `nr_idle_scan` can be |
//! | `manners` | who wakes whom synchronously |
//! | `one_level` | whether all tasks compete on one level |

pub mod buddies;
pub mod changes;
pub mod counts;
pub mod idle;
pub mod idle_tasks;
pub mod lists;
pub mod loads;
pub mod manners;
pub mod one_level;
pub mod queues;
mod rt_use;
pub mod scan_limit;
pub mod tasks;
pub mod utilisation;
