//! The rest of the kernel around the scheduler: event loop, system calls, wakeups, interrupts,
//! and the two drivers of the same scheduler, `simulate` and `shadow`.

pub mod program;
pub mod record;
pub mod shadow;
