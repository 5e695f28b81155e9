//! The schedulers by name. Each file has its [`Entry`]; `lib.rs` lists the files.

use crate::domains::Domains;
use crate::release::Release;
use crate::scheduler::Scheduler;
use vruntime_machine::Topology;

/// A scheduler in the registry.
pub struct Entry {
    /// Value of the kernel field `scheduler`.
    pub name: &'static str,
    /// One line for `vruntime list schedulers`.
    pub description: &'static str,
    /// Makes one.
    pub make: fn(&Topology, &Domains, &Release) -> Box<dyn Scheduler>,
}

/// Every scheduler.
pub const SCHEDULERS: &[Entry] = crate::SCHEDULERS;

/// All names, for a message.
pub fn names() -> String {
    SCHEDULERS.iter().map(|s| s.name).collect::<Vec<_>>().join(", ")
}

/// The scheduler `name` for a machine and a release; `None` if there is no such scheduler.
pub fn scheduler(
    name: &str,
    topo: &Topology,
    domains: &Domains,
    release: &Release,
) -> Option<Box<dyn Scheduler>> {
    let entry = SCHEDULERS.iter().find(|s| s.name == name)?;
    Some((entry.make)(topo, domains, release))
}
