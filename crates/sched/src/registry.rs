//! The schedulers by name: one line each.

use crate::domains::Domains;
use crate::linux::Linux;
use crate::release::Release;
use crate::rr::Rr;
use crate::scheduler::Scheduler;
use vruntime_machine::Topology;

type Make = fn(&Topology, &Domains, &Release) -> Box<dyn Scheduler>;

/// Name, how to make one, and one line for `vruntime list schedulers`.
pub const SCHEDULERS: &[(&str, Make, &str)] = &[
    ("linux", |t, d, r| Box::new(Linux::new(t, d, r)), "the class stack: stop, RT, fair, idle"),
    ("rr", |t, _, _| Box::new(Rr::new(t)), "round robin, the template for a new scheduler"),
];

/// All names, for a message.
pub fn names() -> String {
    SCHEDULERS.iter().map(|s| s.0).collect::<Vec<_>>().join(", ")
}

/// The scheduler `name` for a machine and a release; `None` if there is no such scheduler.
pub fn scheduler(
    name: &str,
    topo: &Topology,
    domains: &Domains,
    release: &Release,
) -> Option<Box<dyn Scheduler>> {
    let (_, make, _) = SCHEDULERS.iter().find(|s| s.0 == name)?;
    Some(make(topo, domains, release))
}
