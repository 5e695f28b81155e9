//! Perfetto: the fields of its messages.
//!
//! Facts: `protos/perfetto/trace/{trace,trace_packet}.proto`, `ftrace/{ftrace_event_bundle,
//! ftrace_event,sched}.proto` and `ps/process_tree.proto` of Perfetto 51.

/// `Trace.packet`.
pub(crate) const PACKET: u64 = 1;

/// `TracePacket`.
pub(crate) mod packet {
    pub(crate) const FTRACE_EVENTS: u64 = 1;
    pub(crate) const PROCESS_TREE: u64 = 2;
    pub(crate) const SEQUENCE: u64 = 10;
    pub(crate) const FTRACE_STATS: u64 = 34;
    pub(crate) const SYSTEM_INFO: u64 = 45;
    pub(crate) const COMPRESSED: u64 = 50;
}

/// `SystemInfo`.
pub(crate) mod system_info {
    pub(crate) const UTSNAME: u64 = 1;
    pub(crate) const NR_CPUS: u64 = 8;
    /// `Utsname`.
    pub(crate) mod utsname {
        pub(crate) const SYSNAME: u64 = 1;
        pub(crate) const RELEASE: u64 = 3;
        pub(crate) const MACHINE: u64 = 4;
    }
}

/// `FtraceEventBundle`.
pub(crate) mod bundle {
    pub(crate) const CPU: u64 = 1;
    pub(crate) const EVENT: u64 = 2;
    pub(crate) const LOST_EVENTS: u64 = 3;
    pub(crate) const COMPACT_SCHED: u64 = 4;
}

/// `FtraceStats`.
pub(crate) mod ftrace_stats {
    pub(crate) const PHASE: u64 = 1;
    pub(crate) const CPU_STATS: u64 = 2;
    /// `FtraceStats.Phase`.
    pub(crate) const START_OF_TRACE: u64 = 1;
    pub(crate) const END_OF_TRACE: u64 = 2;
    /// `FtraceCpuStats`.
    pub(crate) mod cpu_stats {
        pub(crate) const CPU: u64 = 1;
        pub(crate) const OVERRUN: u64 = 3;
        pub(crate) const COMMIT_OVERRUN: u64 = 4;
        pub(crate) const DROPPED_EVENTS: u64 = 8;
    }
}

/// `FtraceEvent`.
pub(crate) mod event {
    pub(crate) const TIMESTAMP: u64 = 1;
    pub(crate) const PID: u64 = 2;
    pub(crate) const SWITCH: u64 = 4;
    pub(crate) const COMMON_FLAGS: u64 = 5;
    pub(crate) const WAKEUP: u64 = 17;
    pub(crate) const WAKING: u64 = 20;
    pub(crate) const WAKEUP_NEW: u64 = 114;
    pub(crate) const MIGRATE: u64 = 491;
}

/// `SchedSwitchFtraceEvent`: the name of who leaves and of who comes, each with thread id and
/// priority behind it.
pub(crate) mod switch {
    pub(crate) const PREV_COMM: u64 = 1;
    pub(crate) const PREV_STATE: u64 = 4;
    pub(crate) const NEXT_COMM: u64 = 5;
}

/// `SchedWakingFtraceEvent` and its like; thread id and priority stand behind the name.
pub(crate) mod wakeup {
    pub(crate) const COMM: u64 = 1;
    pub(crate) const SUCCESS: u64 = 4;
    pub(crate) const TARGET_CPU: u64 = 5;
}

/// `SchedMigrateTaskFtraceEvent`.
pub(crate) mod migrate {
    pub(crate) const COMM: u64 = 1;
    pub(crate) const ORIG_CPU: u64 = 4;
    pub(crate) const DEST_CPU: u64 = 5;
}

/// `ProcessTree`.
pub(crate) mod process_tree {
    pub(crate) const PROCESSES: u64 = 1;
    pub(crate) const THREADS: u64 = 2;
    /// `ProcessTree.Process`.
    pub(crate) mod process {
        pub(crate) const PID: u64 = 1;
        pub(crate) const CMDLINE: u64 = 3;
    }
    /// `ProcessTree.Thread`.
    pub(crate) mod thread {
        pub(crate) const TID: u64 = 1;
        pub(crate) const NAME: u64 = 2;
        pub(crate) const TGID: u64 = 3;
    }
}
