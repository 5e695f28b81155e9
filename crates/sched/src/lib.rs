//! The scheduler: the seam ([`scheduler`]), the class stack of Linux behind it, and other
//! schedulers. Knows nothing of the event queue, of system calls or of benchmarks.

pub mod balance;
pub mod cx;
pub mod domains;
pub mod fair;
pub mod limits;
pub mod linux;
pub mod registry;
pub mod release;
pub mod rr;
pub mod rt;
pub mod scheduler;
pub mod task;
pub mod ttwu_queue;

#[cfg(test)]
mod sample;
