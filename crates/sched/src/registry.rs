//! The schedulers by name. Each file has its [`Entry`]; `lib.rs` lists the files.

use crate::domains::Domains;
use crate::release::Release;
use crate::scheduler::Scheduler;
use vruntime_machine::{Topology, hint, nearest_name};

/// A scheduler in the registry.
pub struct Entry {
    /// Value of the kernel field `scheduler`.
    pub name: &'static str,
    /// One line for `vruntime list schedulers`.
    pub description: &'static str,
    /// Policies and nice values of tasks make a difference.
    pub heeds_policies: bool,
    /// Makes one.
    pub make: fn(&Topology, &Domains, &Release) -> Box<dyn Scheduler>,
}

/// Every scheduler.
pub const SCHEDULERS: &[Entry] = crate::SCHEDULERS;

/// Fails with a message if there is no scheduler `name`.
pub fn check(name: &str) -> Result<(), String> {
    let names: Vec<&str> = SCHEDULERS.iter().map(|s| s.name).collect();
    if names.contains(&name) {
        return Ok(());
    }
    let near = hint(nearest_name(name, names.iter().copied()));
    Err(format!("no scheduler `{name}`{near}; there are: {}", names.join(", ")))
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
