//! (skeleton) Scheduling domains.
/// Scheduling domains of every CPU.
pub struct Domains {}
