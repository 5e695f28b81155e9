//! Ids, time, random streams, CPU sets, causes and the columnar [`Timeline`]: the vocabulary that
//! every other crate speaks. Knows nothing of machines, schedulers or kernels.

mod cause;
mod hist;
mod ids;
mod ledger;
mod mask;
mod noise;
mod time;
mod timeline;

pub use cause::{Cause, CauseCounts, CauseKind};
pub use hist::Histogram;
pub use ids::{Cpu, TaskId};
pub use ledger::{Category, Func, Ledger, LedgerRow, PathSteps, Resource, Trips};
pub use mask::{CpuMask, MAX_CPUS};
pub use noise::{Noise, Stream};
pub use time::{Ns, VTime};
pub use timeline::{Event, EventKind, SeenRunning, TaskRow, Timeline, flag};
