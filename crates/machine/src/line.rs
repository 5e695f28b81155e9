//! The contended lines by name: the scheduler's words that CPUs share.

use crate::topology::LlcId;
use std::fmt;
use vruntime_base::Cpu;

/// A named line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Line {
    /// `rq->__lock`, `rq->nr_running` and what else idle scans read of a CPU.
    Rq(Cpu),
    /// Load and utilisation of a CPU's root queue (`cfs_rq->avg`).
    RqLoad(Cpu),
    /// `sd_llc_shared`: has_idle_cores, nr_busy_cpus, nr_idle_scan.
    LlcShared(LlcId),
    /// `tg->load_avg` of a task group, by its index.
    TgLoadAvg(u32),
    /// `mm->mm_count` of an address space that threads share, by its index.
    MmCount(u32),
    /// `rd->overload`, `rd->overutilized`.
    RootDomain,
    /// `nohz.idle_cpus_mask`, `nohz.nr_cpus`.
    Nohz,
}

/// A class of lines: what a knock-out makes free.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LineKind {
    /// See [`Line::Rq`].
    Rq,
    /// See [`Line::RqLoad`].
    RqLoad,
    /// See [`Line::LlcShared`].
    LlcShared,
    /// See [`Line::TgLoadAvg`].
    TgLoadAvg,
    /// See [`Line::MmCount`].
    MmCount,
    /// See [`Line::RootDomain`].
    RootDomain,
    /// See [`Line::Nohz`].
    Nohz,
}

impl LineKind {
    /// All kinds.
    pub const ALL: [LineKind; 7] = [
        LineKind::Rq,
        LineKind::RqLoad,
        LineKind::LlcShared,
        LineKind::TgLoadAvg,
        LineKind::MmCount,
        LineKind::RootDomain,
        LineKind::Nohz,
    ];
    /// Name as used in reports and knock-outs.
    pub const fn name(self) -> &'static str {
        match self {
            LineKind::Rq => "rq",
            LineKind::RqLoad => "rq_load",
            LineKind::LlcShared => "sd_llc_shared",
            LineKind::TgLoadAvg => "tg_load_avg",
            LineKind::MmCount => "mm_count",
            LineKind::RootDomain => "root_domain",
            LineKind::Nohz => "nohz",
        }
    }
}

impl Line {
    /// The class of this line.
    #[inline(always)]
    pub const fn kind(self) -> LineKind {
        match self {
            Line::Rq(_) => LineKind::Rq,
            Line::RqLoad(_) => LineKind::RqLoad,
            Line::LlcShared(_) => LineKind::LlcShared,
            Line::TgLoadAvg(_) => LineKind::TgLoadAvg,
            Line::MmCount(_) => LineKind::MmCount,
            Line::RootDomain => LineKind::RootDomain,
            Line::Nohz => LineKind::Nohz,
        }
    }
}

impl Line {
    /// Whoever touches it more than once in one event works for some 100 ns in between, so a CPU
    /// that waits for the line gets it in between, too.
    #[inline(always)]
    pub const fn touched_at_intervals(self) -> bool {
        matches!(self, Line::TgLoadAvg(_))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.kind().name();
        match self {
            Line::Rq(c) | Line::RqLoad(c) => write!(f, "{name}[{c}]"),
            Line::LlcShared(l) => write!(f, "{name}[{}]", l.0),
            Line::TgLoadAvg(g) | Line::MmCount(g) => write!(f, "{name}[{g}]"),
            Line::RootDomain | Line::Nohz => f.write_str(name),
        }
    }
}
