//! Decisions of load balancing, each small enough to check by hand.

mod find;
mod passes;
