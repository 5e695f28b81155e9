//! The hardware of **vruntime**: topology and distance classes, SMT speeds, idle states, cold
//! caches, contended cache lines and locks, and the cost table. Knows nothing of tasks.
//!
//! | file | mechanism |
//! |---|---|
//! | `topology` | who shares what, how far two CPUs are apart |
//! | `topology_spec` | the same as a person writes it |
//! | `cost` | one value: low, mid, high and source |
//! | `costs` | the cost table |
//! | `line` | the names of contended cache lines |
//! | `lines` | cache lines with owner, sharers and a queue |
//! | `lock` | FIFO spin lock whose grant is an event of the waiter |
//! | `idle` | idle states |
//! | `cache` | refetching a footprint |
//! | `machine` | the parts together |

pub mod cache;
pub mod cost;
pub mod costs;
pub mod idle;
pub mod line;
pub mod lines;
pub mod lock;
pub mod machine;
mod spec_error;
pub mod topology;
pub mod topology_spec;

pub use cache::Caches;
pub use cost::{Cost, DistanceCost};
pub use costs::{CostRow, CostSpec, Costs};
pub use idle::{Governor, IdleSpec, IdleState};
pub use line::{Line, LineKind};
pub use lines::{LineCost, Lines};
pub use lock::{HANDOVER, Lock, LockQueue, Request};
pub use machine::{Machine, MachineSpec, SCHEMA, Source};
pub use spec_error::{SpecError, hint, nearest_name};
pub use topology::{
    Arch, Distance, LlcId, NodeId, PackageId, Topology, TopologyMasks, node_reclaim_distance,
};
pub use topology_spec::{Masks, NodeSpec, Nodes, Numbering, Regular, TopologySpec, parse_cpulist};
