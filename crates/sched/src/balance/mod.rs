//! Load balancing: which tasks go from which queue to which.
//!
//! | file | mechanism |
//! |---|---|
//! | `stats` | what is known of a group of CPUs, its classification, the limit of idle scans |
//! | `imbalance` | is there a group to pull from, how much, from which queue |
//! | `detach` | which tasks of the queue may move, and their move |
//! | `pass` | one `load_balance` of one domain, in phases |
//! | `newidle` | before a CPU goes idle |
//! | `periodic` | after a tick, domain by domain |
//! | `nohz` | on behalf of CPUs without a tick |
//! | `active` | the push of a running task by the stopper |
//! | `alone` | one pass while nothing else happens, for checkers |
//! | `gate` | what keeps an idle CPU from pulling a waiting task, for checkers |
//!
//! A pass reads statistics without locks, so time goes by between finding and taking: the driver
//! is told what to wait for or to lock ([`BalanceStep`]) and calls again. The protocol of
//! [`Balancer::begin`]: for newidle balancing the caller holds the lock of the CPU's own queue; if
//! the answer is not `Done`, the caller lets it go at once. `Done` never holds a lock.

mod active;
pub mod alone;
mod detach;
pub mod gate;
pub mod imbalance;
mod newidle;
mod nohz;
mod pass;
mod periodic;
pub mod stats;
#[cfg(test)]
pub(crate) mod tests;

use crate::cx::Cx;
use crate::domains::Domains;
use crate::fair::Fair;
use crate::scheduler::{BalanceKind, BalanceStep, Moved, TickWork};
use imbalance::Imbalance;
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, Func, Ns, Resource, Stream, TaskId};
use vruntime_machine::Line;

/// Why a CPU balances (`enum cpu_idle_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum IdleType {
    /// It is idle.
    #[default]
    Idle,
    /// It is busy.
    NotIdle,
    /// It is about to go idle.
    Newidle,
}

/// Counters of `/proc/schedstat` for a domain of a CPU and an idle type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LbStats {
    /// Passes.
    pub count: u64,
    /// Passes that found nothing to do.
    pub balanced: u64,
    /// Passes that found something and moved nothing.
    pub failed: u64,
    /// Sums of imbalances, by [`MigrationType`].
    pub imbalance: [u64; 3],
    /// Tasks moved.
    pub gained: u64,
    /// Of them cache hot.
    pub hot_gained: u64,
    /// Passes without a busiest queue.
    pub nobusyq: u64,
    /// Passes without a busiest group.
    pub nobusyg: u64,
}

/// Counters of a domain of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SdStats {
    /// By [`IdleType`].
    pub lb: [LbStats; 3],
    /// Active balances tried.
    pub alb_count: u64,
    /// Of them without a task to move.
    pub alb_failed: u64,
    /// Of them with one.
    pub alb_pushed: u64,
}

/// What a CPU keeps for each of its domains (`struct sched_domain`, the part that changes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SdState {
    /// Jiffies of the last periodic pass; below 0 if before the run.
    pub last_balance: i64,
    /// Interval while idle, ms.
    pub balance_interval: u32,
    /// Passes in a row that failed.
    pub nr_balance_failed: u32,
    /// Most that a newidle pass has cost lately, ns.
    pub max_newidle_lb_cost: u64,
    /// Jiffies when that was last raised or lowered.
    pub last_decay: u64,
    /// NI_RANDOM: passes asked for in this window.
    pub newidle_call: u32,
    /// NI_RANDOM: of them successful, weighted.
    pub newidle_success: u32,
    /// NI_RANDOM: chance of a pass in 1/1024.
    pub newidle_ratio: u32,
}

impl SdState {
    /// Jiffies of the next periodic pass at this interval.
    fn due(&self, interval: u64) -> u64 {
        self.last_balance.saturating_add_unsigned(interval).max(0) as u64
    }
}

/// One `load_balance` (`struct lb_env`).
#[derive(Clone, Debug)]
pub(crate) struct Env {
    slot: usize,
    idle: IdleType,
    dst_cpu: Cpu,
    new_dst_cpu: Cpu,
    src_cpu: Cpu,
    cpus: CpuMask,
    /// `cpus` is the domain's span.
    whole: bool,
    imbalance: Imbalance,
    all_pinned: bool,
    some_pinned: bool,
    need_break: bool,
    active: bool,
    nr_scanned: u32,
    loop_break: u32,
    loop_max: u32,
    nr_detached: u32,
    cause: &'static Cause,
    tasks: Vec<TaskId>,
}

/// Where a balancing stands between two calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// None is under way.
    Off,
    /// To the next domain.
    Next,
    /// Search the domain.
    Search,
    /// The source is locked: take tasks off.
    SourceLocked,
    /// The source has been let go.
    SourceLeft,
    /// The destination is locked: put tasks on.
    DestinationLocked,
    /// The destination has been let go.
    DestinationLeft,
    /// The source is locked once more: a push by its stopper?
    PushLocked,
    /// It has been let go; the push will not be.
    PushRefused,
    /// It has been let go; the push is arranged.
    PushArranged,
    /// The stopper has been asked.
    PushAsked,
    /// The pass is over.
    Ended,
}

/// A balancing of one CPU.
#[derive(Clone, Debug)]
struct Run {
    kind: BalanceKind,
    phase: Phase,
    /// The CPU that executes.
    cpu: Cpu,
    /// The CPU whose domains are walked.
    on: Cpu,
    slot: usize,
    /// No higher domain is balanced.
    stop: bool,
    pulled: u32,
    env: Env,
    newidle: newidle::State,
    periodic: periodic::State,
    nohz: nohz::State,
}

/// What balancing keeps besides its runs.
struct Tables {
    sds: Vec<SdState>,
    stats: Vec<SdStats>,
    idle_balance: Vec<bool>,
    nohz: nohz::Global,
    /// Who holds the global lock of SERIALIZE domains.
    serialized: Cpu,
    /// Until when its last holder did, which has ended its pass.
    serialized_until: Ns,
}

/// All state of load balancing.
pub struct Balancer {
    runs: Vec<Run>,
    tables: Tables,
    /// Tasks moved since the driver last asked.
    pub moved: Vec<Moved>,
}

/// What a step works on besides its run.
struct World<'w> {
    t: &'w mut Tables,
    moved: &'w mut Vec<Moved>,
    fair: &'w mut Fair,
}

impl Balancer {
    /// Nothing balanced yet.
    pub fn new(d: &Domains, nr_cpus: usize) -> Balancer {
        let sds = (0..d.nr_slots()).map(|slot| SdState {
            last_balance: 0,
            balance_interval: d.at(slot).min_interval(),
            nr_balance_failed: 0,
            max_newidle_lb_cost: 0,
            last_decay: 0,
            newidle_call: 512,
            newidle_success: 256,
            newidle_ratio: 512,
        });
        Balancer {
            runs: (0..nr_cpus).map(|c| Run::new(Cpu::from_ix(c))).collect(),
            tables: Tables {
                sds: sds.collect(),
                stats: vec![SdStats::default(); d.nr_slots()],
                idle_balance: vec![false; nr_cpus],
                nohz: nohz::Global::new(nr_cpus),
                serialized: Cpu::NONE,
                serialized_until: Ns::ZERO,
            },
            moved: Vec::with_capacity(64),
        }
    }

    /// The clocks of a machine that has been up for a while: the last pass of every domain of every
    /// CPU lies somewhere in the last interval of a busy CPU. Where all start together, nothing is
    /// balanced and no `nr_idle_scan` set for the first two seconds of a busy machine with 112 CPUs
    /// to a cache, and then by all at once.
    pub fn spread_clocks(&mut self, cx: &Cx) {
        for cpu in 0..cx.sh.rqs.len() {
            for (level, slot) in cx.sh.domains.slots(Cpu::from_ix(cpu)).enumerate() {
                let state = &mut self.tables.sds[slot];
                let interval = periodic::interval(cx.sh, state.balance_interval, true);
                let (cpu, level) = (cpu as u64, level as u64);
                let ago = cx.sh.noise.below(Stream::WarmState, cpu, 1 + level, interval);
                state.last_balance = -(ago as i64);
            }
        }
    }

    /// Begins a balancing of `kind` on `cpu`.
    pub fn begin(
        &mut self,
        fair: &mut Fair,
        cx: &mut Cx,
        cpu: Cpu,
        kind: BalanceKind,
    ) -> BalanceStep {
        let run = &mut self.runs[cpu.ix()];
        assert!(run.phase == Phase::Off, "CPU {cpu} balances already");
        let mut w = World { t: &mut self.tables, moved: &mut self.moved, fair };
        run.kind = kind;
        run.on = cpu;
        let goes_on = match kind {
            BalanceKind::Newidle => newidle::begin(run, &mut w, cx),
            BalanceKind::Periodic => {
                periodic::begin(run, &mut w, cx);
                true
            }
            BalanceKind::Nohz => nohz::begin(run, &mut w, cx),
        };
        if !goes_on {
            return BalanceStep::Done;
        }
        run.phase = Phase::Next;
        pass::advance(run, &mut w, cx)
    }

    /// Goes on after what the last step asked for was done.
    pub fn resume(&mut self, fair: &mut Fair, cx: &mut Cx, cpu: Cpu) -> BalanceStep {
        let run = &mut self.runs[cpu.ix()];
        assert!(run.phase != Phase::Off, "CPU {cpu} does not balance");
        let mut w = World { t: &mut self.tables, moved: &mut self.moved, fair };
        pass::advance(run, &mut w, cx)
    }

    /// `trigger_load_balance`, at the end of every tick.
    pub fn tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        let idle = cx.sh.idle_cpu(cpu);
        self.tables.idle_balance[cpu.ix()] = idle;
        if cx.sh.domains.of(cpu).is_empty() {
            return TickWork::default();
        }
        let softirq = cx.jiffies() >= cx.sh.rq(cpu).next_balance;
        let kick_ilb = if idle { None } else { nohz::kick(&mut self.tables, cx, cpu) };
        TickWork { softirq, kick_ilb }
    }

    /// The stopper of `cpu` takes a task off for `rqs[cpu].push_cpu`: the one to be attached there.
    pub fn active_balance(&mut self, fair: &mut Fair, cx: &mut Cx, cpu: Cpu) -> Option<TaskId> {
        let run = &mut self.runs[cpu.ix()];
        assert!(run.phase == Phase::Off, "CPU {cpu} balances, its stopper cannot run");
        let mut w = World { t: &mut self.tables, moved: &mut self.moved, fair };
        active::push(&mut run.env, &mut w, cx, cpu)
    }

    /// The task that [`Balancer::active_balance`] took off enters its CPU's queue.
    pub fn attach(&mut self, fair: &mut Fair, cx: &mut Cx, p: TaskId) {
        detach::attach_task(cx.sh.tasks[p.ix()].cpu, fair, cx, p);
    }

    /// The CPU stopped its tick (`nohz_balance_enter_idle`) or takes it up again.
    pub fn tick_stopped(&mut self, cx: &mut Cx, cpu: Cpu, stopped: bool) {
        nohz::tick_stopped(&mut self.tables, cx, cpu, stopped);
    }

    /// `update_idle_core`: the CPU goes idle; if its siblings are, the LLC may have an idle core.
    pub fn set_idle(&mut self, cx: &mut Cx, cpu: Cpu) {
        if !cx.sh.domains.smt_active() {
            return;
        }
        let llc = cx.sh.domains.llc_id(cpu);
        cx.read(Line::LlcShared(llc), Func::PickNext, Resource::LlcShared);
        if cx.sh.domains.shared_of(cpu).has_idle_cores {
            return;
        }
        let mut from = 0;
        while let Some(c) = cx.machine.topo.smt(cpu).next(from) {
            from = c.ix() + 1;
            if c != cpu && !cx.sh.idle_cpu(c) {
                return;
            }
        }
        cx.write(Line::LlcShared(llc), Func::PickNext, Resource::LlcShared);
        cx.sh.domains.shared_of_mut(cpu).has_idle_cores = true;
    }

    /// The CPU is in the middle of a balancing.
    #[cfg(test)]
    pub(crate) fn is_active(&self, cpu: Cpu) -> bool {
        self.runs[cpu.ix()].phase != Phase::Off
    }
    /// The counters of all domains, by slot ([`Domains::slots`]).
    pub fn stats(&self) -> &[SdStats] {
        &self.tables.stats
    }
    /// The state of the domain at `slot`.
    pub fn state(&self, slot: usize) -> &SdState {
        &self.tables.sds[slot]
    }
    /// The same for a written initial state.
    pub fn state_mut(&mut self, slot: usize) -> &mut SdState {
        &mut self.tables.sds[slot]
    }
}

/// `add_nr_running` for the balancer: the CPU had `before` tasks and has more now. The second task
/// of a CPU sets `rd->overload`.
#[inline(always)]
pub fn nr_running_grew(cx: &mut Cx, cpu: Cpu, before: u32) {
    if before < 2 && cx.sh.loads[cpu.ix()].nr_running >= 2 && !cx.sh.domains.overload {
        cx.write(Line::RootDomain, Func::EnqueueTask, Resource::Global);
        cx.sh.domains.overload = true;
    }
}

impl Run {
    fn new(cpu: Cpu) -> Run {
        Run {
            kind: BalanceKind::Newidle,
            phase: Phase::Off,
            cpu,
            on: cpu,
            slot: 0,
            stop: false,
            pulled: 0,
            env: Env {
                slot: 0,
                idle: IdleType::Idle,
                dst_cpu: cpu,
                new_dst_cpu: Cpu::NONE,
                src_cpu: cpu,
                cpus: CpuMask::EMPTY,
                whole: true,
                imbalance: Imbalance::default(),
                all_pinned: false,
                some_pinned: false,
                need_break: false,
                active: false,
                nr_scanned: 0,
                loop_break: 0,
                loop_max: 0,
                nr_detached: 0,
                cause: &MOVES[0][0],
                tasks: Vec::with_capacity(32),
            },
            newidle: newidle::State::default(),
            periodic: periodic::State::default(),
            nohz: nohz::State::default(),
        }
    }

    /// What the time of this balancing is booked under.
    fn func(&self) -> Func {
        if self.kind == BalanceKind::Newidle { Func::Newidle } else { Func::LoadBalance }
    }
}

/// The moment up to which this call has charged.
fn clock(cx: &Cx) -> Ns {
    cx.now + cx.cost
}

/// Jiffies so far ahead that no domain is due then: the next balancing if nothing is due earlier.
fn far(cx: &Cx) -> u64 {
    cx.jiffies() + 60 * u64::from(cx.sh.release.hz)
}

macro_rules! by_level {
    ($path:literal) => {
        [
            Cause::new(CauseKind::Migration, concat!($path, ", SMT")),
            Cause::new(CauseKind::Migration, concat!($path, ", CLS")),
            Cause::new(CauseKind::Migration, concat!($path, ", CACHE")),
            Cause::new(CauseKind::Migration, concat!($path, ", MC")),
            Cause::new(CauseKind::Migration, concat!($path, ", PKG")),
            Cause::new(CauseKind::Migration, concat!($path, ", NODE")),
            Cause::new(CauseKind::Migration, concat!($path, ", NUMA")),
        ]
    };
}

/// Causes of a move, by path and level.
static MOVES: [[Cause; 7]; 5] = [
    // A CPU that was about to go idle pulled it.
    by_level!("newidle balance"),
    // An idle CPU pulled it, by its own tick.
    by_level!("periodic balance while idle"),
    // A busy CPU pulled it.
    by_level!("periodic balance while busy"),
    // A CPU pulled it for another one, which is idle and has no tick.
    by_level!("nohz idle balance"),
    // It ran: the stopper of its CPU pushed it.
    by_level!("active balance"),
];

/// The path of [`MOVES`].
#[derive(Clone, Copy)]
enum Path {
    Newidle = 0,
    PeriodicIdle = 1,
    PeriodicBusy = 2,
    Nohz = 3,
    Active = 4,
}

fn cause(path: Path, level: &str) -> &'static Cause {
    let level = match level {
        "SMT" => 0,
        "CLS" => 1,
        "CACHE" => 2,
        "MC" => 3,
        "PKG" => 4,
        "NODE" => 5,
        _ => 6,
    };
    &MOVES[path as usize][level]
}
