//! The rest of the kernel around the scheduler: event loop, system calls, wakeups, interrupts,
//! and the two drivers of the same scheduler, `simulate` and `shadow`.
//!
//! Reading order: [`program`] and [`record`] say what goes in and out; `sim` is the loop, `frame`
//! what a CPU is in the middle of, `act` the dispatch; then `syscall`, `pipe_ops`, `pipe_mutex`,
//! `wait_lock`, `wakeup`, `schedule`, `irq`, `idle`, `balance`.

mod act;
mod balance;
mod boot;
mod checks;
mod cold;
mod event;
mod extrapolate;
mod files;
mod fork;
mod frame;
mod haltpoll;
mod hot;
mod idle;
mod irq;
mod lazy_tlb;
mod menu;
mod path;
pub mod pipe;
mod pipe_lines;
mod pipe_mutex;
mod pipe_ops;
pub mod program;
mod queue_lines;
pub mod record;
mod rq_lock;
#[cfg(test)]
mod sample;
pub mod schedstat;
mod schedule;
pub mod shadow;
mod sim;
pub mod simulate;
mod smt;
mod stats;
mod stop;
mod syscall;
mod task;
mod unix;
pub mod variation;
mod wait;
mod wait_lock;
mod wakeup;

pub use unix::cold_when_drained;
