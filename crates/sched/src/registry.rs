//! The schedulers by name. A new one is its own file and one line here.

use crate::domains::Domains;
use crate::linux::Linux;
use crate::release::Release;
use crate::rr::Rr;
use crate::scheduler::Scheduler;
use vruntime_machine::Topology;

macro_rules! schedulers {
    ($($name:literal => |$topo:ident, $domains:ident, $release:ident| $new:expr;)*) => {
        /// Names that [`scheduler`] knows.
        pub const NAMES: &[&str] = &[$($name),*];

        /// Makes the scheduler `name`.
        pub fn scheduler(
            name: &str,
            topo: &Topology,
            domains: &Domains,
            release: &Release,
        ) -> Option<Box<dyn Scheduler>> {
            match name {
                $($name => {
                    let ($topo, $domains, $release) = (topo, domains, release);
                    Some(Box::new($new))
                })*
                _ => None,
            }
        }
    };
}

schedulers! {
    "linux" => |topo, domains, release| Linux::new(domains, release, topo.nr_cpus());
    "rr" => |topo, _domains, _release| Rr::new(topo);
}
