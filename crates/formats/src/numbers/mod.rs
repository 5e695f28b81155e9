//! The numbers by which formats that are both read and written name their parts.

pub(crate) mod perf_data;
pub(crate) mod perfetto;

/// What a trace.dat says of its machine where nobody knows: trace-cmd reads none that says nothing.
pub(crate) const UNKNOWN: &str = "unknown";
