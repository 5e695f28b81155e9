//! The hardware of **vruntime**: topology and distance classes, SMT speed, idle states, cold
//! caches, contended cache lines and locks, and the cost table. Knows nothing of tasks.
//!
//! | file | mechanism |
//! |---|---|
//! | `topology` | who shares what, how far two CPUs are apart |
//! | `topology_spec` | the same as a person writes it |
//! | `costs` | the cost table: low, mid, high and source |
//! | `lines` | cache lines with owner, sharers and a queue |
//! | `lock` | FIFO spin lock whose grant is an event of the waiter |
//! | `smt` | speed of threads that share a core |
//! | `idle` | idle states |
//! | `cache` | refetching a footprint after a move |
//! | `machine` | the parts together |

pub mod cache;
pub mod costs;
pub mod idle;
pub mod lines;
pub mod lock;
pub mod machine;
pub mod smt;
mod spec_error;
pub mod topology;
pub mod topology_spec;

pub use cache::Caches;
pub use costs::{Cost, CostRow, CostSpec, Costs, DistanceCost};
pub use idle::{IdleSpec, IdleState};
pub use lines::{Line, LineCost, LineKind, Lines};
pub use lock::{Lock, LockQueue, Request};
pub use machine::{Machine, MachineSpec, SCHEMA, Source};
pub use spec_error::{SpecError, nearest_name};
pub use topology::{Arch, Distance, LlcId, NodeId, PackageId, Topology, TopologyMasks};
pub use topology_spec::{Masks, NodeSpec, Nodes, Numbering, Regular, TopologySpec, parse_cpulist};
