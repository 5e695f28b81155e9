//! The state of machine and kernel when a run starts: a *warm* kernel, written down.
//!
//! *What.* All CPUs idle with their ticks stopped, every LLC open to a full idle scan, idle cores
//! known; idle tasks, stoppers, and the workload's first tasks, which are woken at 1 ms one after
//! another.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `sched_init` (initial averages); the
//! idle scan is what an idle machine's balance passes leave behind.
//! *Equations.* `avg_idle = 2 · migration_cost`, `max_idle_balance_cost = migration_cost`.
//! *Departures.* D1: a freshly booted kernel has stopped no tick yet. D2: load averages start at
//! nothing and load is nowhere; the workload's warm-up brings both.
//! *Example.* `Sim::boot` of `uma-2`: tasks 0 and 1 are idle, 2 and 3 stoppers, 4 is the
//! workload's main.

use crate::event::Events;
use crate::fork::blank_ktask;
use crate::frame::CpuSim;
use crate::frame::Frame;
use crate::lazy_tlb::SharedMms;
use crate::menu::Choice;
use crate::pipe::Pipe;
use crate::pipe_ops::Rules;
use crate::program::{Builder, ChannelKind, ProgramId, Regs};
use crate::queue_lines::QueueLines;
use crate::record::RunSpec;
use crate::sim::{Channel, Sim};
use crate::stats::Stats;
use crate::task::{KTask, Step, WaitsFor};
use crate::unix::UnixSock;
use crate::wait::WaitQueue;
use vruntime_base::{Cpu, CpuMask, Ledger, Noise, Ns, Stream, TaskId};
use vruntime_machine::{Lock, LockQueue, SpecError, Topology, hint, idle};
use vruntime_sched::cx::{Shared, WakeStats};
use vruntime_sched::domains::Domains;
use vruntime_sched::registry;
use vruntime_sched::release::Release;
use vruntime_sched::scheduler::Scheduler;
use vruntime_sched::task::{Affinities, Policy, Rq, RqLoad, Task, TaskState, TgId};

/// When the workload's first task is woken.
const FIRST_WAKE: Ns = Ns::from_ms(1);
/// Ticks fall within this many ns after the grid (D1 of `irq`).
const TICK_SPREAD: u64 = 2_000;

/// Makes the scheduler of a run.
pub(crate) type MakeScheduler<'a> =
    &'a dyn Fn(&Topology, &Domains, &Release) -> Option<Box<dyn Scheduler>>;

/// Why a run cannot be set up.
#[derive(Debug)]
pub enum SetupError {
    /// The machine file does not describe a machine.
    Machine(SpecError),
    /// There is no such cost to add to.
    Cost {
        /// The name.
        name: String,
        /// The nearest name of a cost.
        nearest: Option<&'static str>,
    },
    /// There is no such scheduler.
    Scheduler(String),
    /// A task is bound to a CPU that the machine does not have.
    Pin {
        /// The CPU asked for.
        cpu: Cpu,
        /// CPUs of the machine.
        nr_cpus: usize,
    },
    /// A task may run nowhere.
    NoCpu,
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SetupError::Machine(e) => write!(f, "machine: {e}"),
            SetupError::Cost { name, nearest } => {
                let near = hint(*nearest);
                write!(f, "no cost named `{name}`{near}; `vruntime show machine NAME` has all")
            }
            SetupError::Scheduler(name) => {
                f.write_str(&registry::check(name).err().unwrap_or_default())
            }
            SetupError::NoCpu => write!(f, "a task is bound to no CPU"),
            SetupError::Pin { cpu, nr_cpus } => {
                write!(f, "CPU {cpu} does not exist: the machine has CPUs 0-{}", nr_cpus - 1)
            }
        }
    }
}
impl std::error::Error for SetupError {}

/// `wakee_flips` of a task that a shell has started, and how far it varies: fork copies the
/// counter, and in recordings of Debian 6.1 and 6.12 first tasks of hackbench came with 8 to 18.
const FLIPS: (u32, u64) = (8, 11);

impl Sim {
    /// Machine, kernel and workload of `spec` at time zero.
    pub(crate) fn boot(spec: &RunSpec) -> Result<Sim, SetupError> {
        let name = &spec.release.scheduler;
        Sim::boot_with(spec, &|t, d, r| registry::scheduler(name, t, d, r))?
            .ok_or_else(|| SetupError::Scheduler(name.clone()))
    }

    /// As `boot`, with the scheduler that `make` gives; `None` if it gives none.
    pub(crate) fn boot_with(
        spec: &RunSpec,
        make: MakeScheduler,
    ) -> Result<Option<Sim>, SetupError> {
        let mut machine = spec.variation.machine(&spec.machine)?;
        let release = spec.variation.release(&spec.release);
        let nr_cpus = machine.topo.nr_cpus();
        let noise = Noise::new(spec.seed);
        let domains = Domains::build(&machine.topo, &release);
        machine.lines.grow_groups(2);
        let Some(sched) = make(&machine.topo, &domains, &release) else { return Ok(None) };

        let mut b = Builder::of(spec.workload.as_ref(), nr_cpus);
        if let Some(cpu) = b.bound_to.next(nr_cpus) {
            return Err(SetupError::Pin { cpu, nr_cpus });
        }
        if let Some(limit) = b.cpu_dma_latency {
            idle::keep_within(&mut machine.idle, limit);
        }

        if !release.clears_bhb {
            machine.costs.bhb_clear = 0;
        }
        if !release.pipe_updates_times {
            (machine.costs.pipe_mtime, machine.costs.pipe_atime) = (0, 0);
        }
        let (paces, paths) = crate::path::paces(&machine);
        let spread = TICK_SPREAD.min(release.tick_ns());
        let tick_phase = |c| Ns(noise.below(Stream::TickPhase, c, 0, spread));
        let warm = |c| warm_rq(Cpu::from_ix(c), release.migration_cost_ns);
        let mut sh = Shared {
            wakes: vec![WakeStats::default(); domains.nr_slots()],
            domains,
            tasks: Vec::new(),
            rqs: (0..nr_cpus).map(warm).collect(),
            loads: vec![RqLoad::default(); nr_cpus],
            affinities: Affinities::new(nr_cpus),
            nohz_idle: CpuMask::EMPTY,
            ledger: Ledger::with_paths(nr_cpus, paths),
            noise,
            accounted: (spec.timeline > 0).then(Vec::new),
            timers: vec![],
            release,
        };
        let tasks = idle_tasks_and_stoppers(&mut sh);
        let (slot_of, cpu_of) = slots(nr_cpus, &noise);
        let nr_cores = machine.topo.nr_cores();
        let page = machine.page_kib * 1024;
        let pipe_rules = Rules::new(&sh.release, &spec.variation.without);
        let stats = Stats::new(nr_cpus, &machine.idle, &b, spec.timeline);
        let mut sim = Sim {
            now: Ns::ZERO,
            sched,
            sh,
            machine,
            resched: Vec::with_capacity(8),
            events: Events::new(nr_cpus + 2),
            cpus: (0..nr_cpus as u64).map(|c| CpuSim::new(tick_phase(c))).collect(),
            tasks,
            channels: b.channels.iter().map(|&(kind, group)| channel(kind, group, page)).collect(),
            files: Vec::new(),
            futexes: vec![WaitQueue::default(); b.nr_futexes as usize],
            programs: std::mem::take(&mut b.programs),
            shared_mms: SharedMms::default(),
            rq_locks: (0..nr_cpus).map(|c| Lock::new(Cpu::from_ix(c))).collect(),
            queue_lines: QueueLines::new(nr_cpus),
            spinners: LockQueue::new(nr_cpus),
            stop_work: vec![Vec::new(); nr_cpus],
            core_busy: vec![0; nr_cores],
            paces,
            slot_of,
            cpu_of,
            stats,
            groups_of_workload: vec![TgId(0)],
            without: spec.variation.without,
            pipe_rules,
        };
        sim.idle_for_a_while();
        sim.make_groups(&b.groups);
        for &(program, regs, how) in &b.roots {
            sim.add_root(program, regs, how)?;
        }
        Ok(Some(sim))
    }

    /// All CPUs go idle and stop their ticks, but where the limit of `/dev/cpu_dma_latency` leaves
    /// only polling: the write that sets it wakes all idle CPUs, which choose again.
    fn idle_for_a_while(&mut self) {
        let tick = Ns(self.sh.release.tick_ns());
        for c in (0..self.cpus.len()).map(Cpu::from_ix) {
            for t in [TaskId::from_ix(c.ix()), self.stopper_of(c)] {
                self.hook(c, Ns::ZERO, |s, cx| s.task_new(cx, t, None));
            }
            let Choice { state, stop_tick } = self.choose_idle_state(c, Ns::NEVER, None);
            let cpu = &mut self.cpus[c.ix()];
            cpu.idle_state = state as u8;
            cpu.polling = self.machine.idle[state].polling;
            if stop_tick {
                self.sh.rqs[c.ix()].tick_stopped = true;
                self.hook(c, Ns::ZERO, |s, cx| s.tick_stopped(cx, c, true));
            } else {
                cpu.tick_at = cpu.tick_after(Ns::ZERO, tick);
                cpu.update_irq();
                self.arm(c);
            }
        }
        // A machine that has been idle for a while has had its balance passes: all CPUs of an LLC
        // may be scanned, and there are idle cores.
        for c in (0..self.cpus.len()).map(Cpu::from_ix) {
            let weight = self.machine.topo.llc(c).weight() as u32;
            let shared = self.sh.domains.shared_of_mut(c);
            shared.nr_idle_scan = weight;
            shared.has_idle_cores = true;
        }
        self.hook(Cpu(0), Ns::ZERO, |s, cx| s.warm(cx));
        // What booting charged was not lived through.
        self.sh.ledger.clear();
    }

    /// The workload's task groups; each of `parents` is one more, below that.
    fn make_groups(&mut self, parents: &[u16]) {
        if self.sh.release.autogroup {
            self.groups_of_workload.clear();
        }
        for &parent in parents {
            // The workload's own is the first; a control group is never below an autogroup.
            self.group(0);
            let parent = if parent == 0 { TgId(0) } else { self.group(parent) };
            self.new_group(parent);
        }
    }

    /// Task group `n` of the workload. Groups are made in order.
    fn group(&mut self, n: u16) -> TgId {
        while self.groups_of_workload.len() <= usize::from(n) {
            self.new_group(TgId(0));
        }
        self.groups_of_workload[usize::from(n)]
    }

    fn new_group(&mut self, parent: TgId) {
        let (tg, _) = self.hook(Cpu(0), Ns::ZERO, |s, cx| s.task_group_new(cx, parent));
        self.groups_of_workload.push(tg);
    }

    /// A task that exists from the start: it sleeps until a timer wakes it.
    fn add_root(
        &mut self,
        program: ProgramId,
        regs: Regs,
        how: crate::program::RootTask,
    ) -> Result<(), SetupError> {
        let nr_cpus = self.cpus.len();
        let has = CpuMask::first_n(nr_cpus);
        let asked = how.cpus.unwrap_or(has);
        // `sched_setaffinity` fails only if none of them is there.
        let allowed = asked.and(&has);
        let none =
            || asked.first().map_or(SetupError::NoCpu, |cpu| SetupError::Pin { cpu, nr_cpus });
        let cpu = allowed.first().ok_or_else(none)?;
        let p = TaskId::from_ix(self.tasks.len());
        let mut t = Task::new(cpu, nr_cpus);
        t.policy = how.policy;
        t.nice = how.nice;
        t.rt_priority = how.rt_priority;
        t.tg = self.group(how.group);
        if how.from_shell {
            let more = self.sh.noise.below(Stream::WarmState, u64::from(p.0), 0, FLIPS.1);
            t.wakee_flips = FLIPS.0 + more as u32;
        }
        self.stats.next_mm += 1;
        t.mm = self.stats.next_mm;
        t.allow(self.sh.affinities.intern(allowed), allowed.weight() as u16);
        self.sh.tasks.push(t);
        let mut k = blank_ktask(program, regs, TaskId::NONE);
        k.ends_run = how.ends_run;
        k.footprint_kib = how.footprint_kib;
        k.waits_for = WaitsFor::Timer;
        self.tasks.push(k);
        self.hook(cpu, Ns::ZERO, |s, cx| s.task_new(cx, p, None));
        let order = self.cpus[cpu.ix()].timers.len() as u64;
        let sim_cpu = &mut self.cpus[cpu.ix()];
        sim_cpu.start_timer(FIRST_WAKE + Ns(order * 10_000), p.0, 0);
        debug_assert!(matches!(sim_cpu.frames[0], Frame::Idle));
        self.arm(cpu);
        Ok(())
    }
}

/// The tasks of the kernel, numbered first: of each CPU its idle task, then of each its stopper.
fn idle_tasks_and_stoppers(sh: &mut Shared) -> Vec<KTask> {
    let nr_cpus = sh.rqs.len();
    let mut tasks = Vec::new();
    for i in 0..2 * nr_cpus {
        let cpu = Cpu::from_ix(i % nr_cpus);
        let stopper = i >= nr_cpus;
        let mut t = Task::new(cpu, nr_cpus);
        t.kthread = true;
        t.allow(sh.affinities.intern(CpuMask::one(cpu)), 1);
        t.state = if stopper { TaskState::Interruptible } else { TaskState::Running };
        t.policy = if stopper { Policy::Stop } else { Policy::Idle };
        // `sched_set_stop_task`.
        t.rt_priority = if stopper { 99 } else { 0 };
        sh.tasks.push(t);
        let mut k = blank_ktask(ProgramId(0), Regs::default(), TaskId::NONE);
        k.step = Step::Stopper;
        k.waits_for = if stopper { WaitsFor::Work } else { WaitsFor::Nothing };
        tasks.push(k);
    }
    tasks
}

/// In which order simultaneous events of CPUs come: the slot of each CPU, and the CPU of each slot.
fn slots(nr_cpus: usize, noise: &Noise) -> (Vec<u16>, Vec<Cpu>) {
    let mut order: Vec<usize> = (0..nr_cpus).collect();
    order.sort_by_key(|&c| noise.bits(Stream::Ties, c as u64, 0));
    let mut slot_of = vec![0; nr_cpus];
    for (slot, &c) in order.iter().enumerate() {
        slot_of[c] = slot as u16;
    }
    (slot_of, order.into_iter().map(Cpu::from_ix).collect())
}

fn channel(kind: ChannelKind, group: Option<u16>, page: u32) -> Channel {
    let group = group.unwrap_or(u16::MAX);
    match kind {
        ChannelKind::Pipe => Channel::Pipe(Pipe::new(page, group)),
        ChannelKind::UnixStream => Channel::Unix(UnixSock::new(group)),
    }
}

/// The run queue of a CPU that has been idle for a while.
fn warm_rq(c: Cpu, migration_cost: u64) -> Rq {
    Rq {
        avg_idle: Ns(2 * migration_cost),
        max_idle_balance_cost: Ns(migration_cost),
        ..Rq::idle(c)
    }
}
