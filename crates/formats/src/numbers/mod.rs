//! The numbers by which formats that are both read and written name their parts.

pub(crate) mod perf_data;
pub(crate) mod perfetto;
