//! Decisions of load balancing, each small enough to check by hand.

pub(crate) mod find;
pub(crate) mod passes;
