//! perf.data: records, features and parts of samples.
//!
//! Facts: tools/perf/Documentation/perf.data-file-format.txt, include/uapi/linux/perf_event.h and
//! `enum perf_user_event_type` in tools/lib/perf/include/perf/event.h.

/// What the file begins with.
pub(crate) const MAGIC: &[u8] = b"PERFILE2";
/// Bytes of a file's header.
pub(crate) const FILE_HEADER: u64 = 104;

/// Kinds of records.
pub(crate) mod record {
    pub(crate) const LOST: u32 = 2;
    pub(crate) const COMM: u32 = 3;
    pub(crate) const SAMPLE: u32 = 9;
    pub(crate) const LOST_SAMPLES: u32 = 13;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const HEADER_TRACING_DATA: u32 = 66;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const COMPRESSED_2: u32 = 83;
}

/// Feature sections, by the bit that announces them.
pub(crate) mod feature {
    pub(crate) const TRACING_DATA: u64 = 1;
    pub(crate) const HOSTNAME: u64 = 3;
    pub(crate) const OSRELEASE: u64 = 4;
    pub(crate) const VERSION: u64 = 5;
    pub(crate) const ARCH: u64 = 6;
    pub(crate) const NRCPUS: u64 = 7;
    pub(crate) const CMDLINE: u64 = 11;
    pub(crate) const CPU_TOPOLOGY: u64 = 13;
    pub(crate) const NUMA_TOPOLOGY: u64 = 14;
    pub(crate) const CACHE: u64 = 20;
    pub(crate) const DIR_FORMAT: u64 = 24;
}

/// Bits of `sample_type`. The parts of a sample stand in the order IDENTIFIER, IP, TID, TIME, ADDR,
/// ID, STREAM_ID, CPU, PERIOD, READ, CALLCHAIN, RAW.
pub(crate) mod sample {
    pub(crate) const IP: u64 = 1 << 0;
    pub(crate) const TID: u64 = 1 << 1;
    pub(crate) const TIME: u64 = 1 << 2;
    pub(crate) const ADDR: u64 = 1 << 3;
    pub(crate) const READ: u64 = 1 << 4;
    pub(crate) const CALLCHAIN: u64 = 1 << 5;
    pub(crate) const ID: u64 = 1 << 6;
    pub(crate) const CPU: u64 = 1 << 7;
    pub(crate) const PERIOD: u64 = 1 << 8;
    pub(crate) const STREAM_ID: u64 = 1 << 9;
    pub(crate) const RAW: u64 = 1 << 10;
    pub(crate) const IDENTIFIER: u64 = 1 << 16;
}
