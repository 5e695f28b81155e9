//! The scheduler: the seam ([`scheduler`]), the class stack of Linux behind it, and other
//! schedulers. Knows nothing of the event queue, of system calls or of benchmarks.

pub mod balance;
mod cfs_tasks;
pub mod cx;
pub mod domains;
pub mod fair;
pub mod fair_server;
pub mod limits;
pub mod registry;
pub mod release;
pub mod rt;
pub mod rt_throttle;
pub mod scheduler;
pub mod task;
pub mod ttwu_queue;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod sample;

/// Declares the modules of schedulers and lists what each calls `ENTRY`.
macro_rules! schedulers {
    ($($module:ident)*) => {
        $(pub mod $module;)*
        const SCHEDULERS: &[registry::Entry] = &[$($module::ENTRY),*];
    };
}

// A new scheduler is a file and its name here.
schedulers! {
    linux
    rr
    two_choices
}
