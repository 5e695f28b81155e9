//! The counters of `/proc/schedstat`.
//!
//! **What.** Per CPU: how often it scheduled, went idle, woke tasks, and how long tasks ran and
//! waited on it. Per domain of a CPU: what balancing did, and wakeups that crossed it.
//! **Source.** Linux 6.1.192, 6.12.117 and 6.18.2: kernel/sched/stats.c, stats.h, core.c
//! (`ttwu_stat`), Documentation/scheduler/sched-stats.rst.
//! **Equations.** None.
//! **Departures.** D1: counts are of the measured window, not since boot. D2: a woken task that
//! runs already is no wakeup here.
//! **Example.** CPU 0 wakes a task on CPU 1 of its cache: `ttwu_count` of CPU 0 and
//! `ttwu_wake_remote` of its lowest domain with CPU 1 grow by one, `ttwu_local` does not.

use crate::sim::Sim;
use vruntime_base::{Cpu, CpuMask};
use vruntime_sched::balance::SdStats;
pub use vruntime_sched::balance::{IdleType, LbStats};
use vruntime_sched::cx::WakeStats;

/// Counters of a CPU; times in ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuStats {
    /// `sched_yield` calls.
    pub yld_count: u64,
    /// Calls of `schedule()`.
    pub sched_count: u64,
    /// Of them such that picked the idle task.
    pub sched_goidle: u64,
    /// Wakeups by this CPU.
    pub ttwu_count: u64,
    /// Of them such of tasks that stay on it.
    pub ttwu_local: u64,
    /// How long tasks ran, of those that have left it since.
    pub rq_cpu_time: u64,
    /// How long they waited to run.
    pub run_delay: u64,
    /// How often one began to run.
    pub pcount: u64,
}

/// A domain of a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainStats {
    /// The CPU.
    pub cpu: Cpu,
    /// The domain's name.
    pub name: &'static str,
    /// Its CPUs.
    pub span: CpuMask,
    /// What balancing did.
    pub balance: SdStats,
    /// Wakeups.
    pub wakes: WakeStats,
}

/// The counters of the measured window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedstat {
    /// Version of the layout that the release prints: 15, 16 or 17.
    pub version: u32,
    /// Ticks since boot at the window's end.
    pub jiffies: u64,
    /// Every CPU.
    pub cpus: Vec<CpuStats>,
    /// Every domain, CPU by CPU, the lowest first.
    pub domains: Vec<DomainStats>,
}

/// The counters at one moment, as they are kept.
#[derive(Clone, Default)]
pub(crate) struct Counted {
    cpus: Vec<CpuStats>,
    balance: Vec<SdStats>,
    wakes: Vec<WakeStats>,
}

impl CpuStats {
    fn since(&self, e: &CpuStats) -> CpuStats {
        CpuStats {
            yld_count: self.yld_count - e.yld_count,
            sched_count: self.sched_count - e.sched_count,
            sched_goidle: self.sched_goidle - e.sched_goidle,
            ttwu_count: self.ttwu_count - e.ttwu_count,
            ttwu_local: self.ttwu_local - e.ttwu_local,
            rq_cpu_time: self.rq_cpu_time - e.rq_cpu_time,
            run_delay: self.run_delay - e.run_delay,
            pcount: self.pcount - e.pcount,
        }
    }
}

fn balance_since(now: &SdStats, e: &SdStats) -> SdStats {
    let lb = |i: usize| {
        let (now, e) = (&now.lb[i], &e.lb[i]);
        LbStats {
            count: now.count - e.count,
            balanced: now.balanced - e.balanced,
            failed: now.failed - e.failed,
            imbalance: std::array::from_fn(|k| now.imbalance[k] - e.imbalance[k]),
            gained: now.gained - e.gained,
            hot_gained: now.hot_gained - e.hot_gained,
            nobusyq: now.nobusyq - e.nobusyq,
            nobusyg: now.nobusyg - e.nobusyg,
        }
    };
    SdStats {
        lb: std::array::from_fn(lb),
        alb_count: now.alb_count - e.alb_count,
        alb_failed: now.alb_failed - e.alb_failed,
        alb_pushed: now.alb_pushed - e.alb_pushed,
    }
}

/// `INITIAL_JIFFIES`: five minutes before 32 bits of them wrap.
fn initial_jiffies(hz: u32) -> u64 {
    (1 << 32) - 300 * u64::from(hz)
}

impl Sim {
    /// `ttwu_stat`: `c` has woken a task that is on `target` now.
    pub(crate) fn ttwu_stat(&mut self, c: Cpu, target: Cpu) {
        let cpu = &mut self.stats.cpus[c.ix()];
        cpu.ttwu_count += 1;
        if target == c {
            cpu.ttwu_local += 1;
        } else if let Some(slot) = self.sh.domains.lowest_common(c, target) {
            self.sh.wakes[slot].ttwu_wake_remote += 1;
        }
    }

    /// A copy of all counters.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            cpus: self.stats.cpus.clone(),
            balance: self.sched.domain_stats().to_vec(),
            wakes: self.sh.wakes.clone(),
        }
    }

    /// What was counted since `from`; since boot if that is empty.
    pub(crate) fn schedstat(&self, from: &Counted) -> Schedstat {
        let (release, d) = (&self.sh.release, &self.sh.domains);
        let cpu = |(i, now): (usize, &CpuStats)| {
            now.since(&from.cpus.get(i).copied().unwrap_or_default())
        };
        let balance = self.sched.domain_stats();
        let before = |slot| from.balance.get(slot).copied().unwrap_or_default();
        let mut domains = Vec::new();
        for cpu in (0..self.cpus.len()).map(Cpu::from_ix) {
            for slot in d.slots(cpu) {
                let wakes = from.wakes.get(slot).copied().unwrap_or_default();
                let now = &self.sh.wakes[slot];
                domains.push(DomainStats {
                    cpu,
                    name: d.at(slot).name,
                    span: d.at(slot).span,
                    balance: balance
                        .get(slot)
                        .map_or_else(SdStats::default, |now| balance_since(now, &before(slot))),
                    wakes: WakeStats {
                        ttwu_wake_remote: now.ttwu_wake_remote - wakes.ttwu_wake_remote,
                        ttwu_move_affine: now.ttwu_move_affine - wakes.ttwu_move_affine,
                    },
                });
            }
        }
        Schedstat {
            version: release.schedstat_version,
            jiffies: initial_jiffies(release.hz) + self.now.0 / release.tick_ns(),
            cpus: self.stats.cpus.iter().enumerate().map(cpu).collect(),
            domains,
        }
    }
}
