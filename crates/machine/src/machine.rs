//! A machine: its description as a file gives it, and the same ready for a run.

use crate::SpecError;
use crate::cache::{Caches, refill};
use crate::cost::Cost;
use crate::costs::{CostSpec, Costs};
use crate::idle::{Governor, IdleSpec, IdleState};
use crate::line::Line;
use crate::lines::{LineCost, Lines};
use crate::topology::{Arch, Distance, Topology};
use crate::topology_spec::TopologySpec;
use serde::{Deserialize, Serialize};
use vruntime_base::{Cpu, Ns};

/// The version of the machine format.
pub const SCHEMA: &str = "machine/1";

/// A thread without busy siblings.
const FULL_SPEED: u32 = 1024;
/// Larger pages hold nothing that the model counts.
const MAX_PAGE_KIB: u32 = 1024;
/// As cpuidle's `CPUIDLE_STATE_MAX`; the number of a state has a byte in a run.
const MAX_IDLE_STATES: usize = 10;
/// Ten times the fastest clock there is.
const MAX_MHZ: u32 = 100_000;

/// A machine as its file describes it, with inherited costs filled in.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// [`SCHEMA`].
    pub schema: String,
    /// What `-m` calls it.
    pub name: String,
    /// One sentence for lists.
    pub description: String,
    /// The kernel's architecture.
    pub arch: Arch,
    /// Page size, KiB.
    pub page_kib: u32,
    /// Clock of a busy core, MHz. For reports: costs are in ns already.
    pub mhz: u32,
    /// Factor on all path costs in 1/1000: how this machine's cores compare with the one that the
    /// (inherited) table describes.
    pub path_permille: Cost,
    /// Cache sizes.
    pub caches: Caches,
    /// Speed of a thread in 1/1024 of full, by number of busy threads in its core, from 1 on.
    pub smt_speed: Vec<Cost>,
    /// Idle states, shallow to deep.
    pub idle: Vec<IdleSpec>,
    /// Who shares what.
    pub topology: TopologySpec,
    /// The largest distance of nodes over which forks and execs balance and wakeups pull: 32 on
    /// AMD Zen; elsewhere that of the architecture, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_reclaim_distance: Option<u32>,
    /// How long a CPU of a guest polls at the most before it halts, ns: the parameter of the module
    /// haltpoll, whose state `haltpoll idle` the machine has to have. 200,000 if it is not given, 0
    /// not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_halt_poll_ns: Option<u32>,
    /// What everything costs.
    pub costs: CostSpec,
    /// Where statements about this machine come from.
    pub sources: Vec<Source>,
}

/// Where a statement about a machine comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Which statements.
    pub what: String,
    /// Publication, measurement, or "general knowledge".
    #[serde(rename = "where")]
    pub place: String,
}

impl MachineSpec {
    /// Its topology.
    pub fn build_topology(&self) -> Result<Topology, SpecError> {
        let topo = self.topology.build(self.arch)?;
        Ok(match self.node_reclaim_distance {
            Some(distance) => topo.with_node_reclaim_distance(distance),
            None => topo,
        })
    }

    /// Checks everything but the topology, which is checked when it is built.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.schema != SCHEMA {
            return Err(SpecError::new("schema", format!("`{}`", self.schema), SCHEMA));
        }
        if self.name.trim().is_empty() {
            return Err(SpecError::new("name", "nothing", "what -m calls the machine"));
        }
        if !self.page_kib.is_power_of_two() || self.page_kib > MAX_PAGE_KIB {
            let expected = format!("a power of two up to {MAX_PAGE_KIB}");
            return Err(SpecError::new("page_kib", self.page_kib, expected));
        }
        if !(1..=MAX_MHZ).contains(&self.mhz) {
            return Err(SpecError::new("mhz", self.mhz, format!("1 … {MAX_MHZ}")));
        }
        for (what, text) in [("name", &self.name), ("description", &self.description)] {
            printable(what, text)?;
        }
        let polls = Governor::of(&self.idle, None) != Governor::Menu;
        if self.guest_halt_poll_ns.is_some() && !polls {
            let expected = "one: it is how long such a guest polls before it halts";
            let at = "guest_halt_poll_ns";
            return Err(SpecError::new(at, "no idle state `haltpoll idle`", expected));
        }
        self.costs.check()?;
        self.path_permille.check("path_permille")?;
        for (i, c) in self.smt_speed.iter().enumerate() {
            c.check(&format!("smt_speed[{i}]"))?;
            let full = FULL_SPEED;
            if c.low == 0 || c.high > full || (i == 0 && c.low != full) {
                let found = format!("{} … {}", c.low, c.high);
                let expected = format!("1 … {full}, and {full} for one busy thread");
                return Err(SpecError::new(format!("smt_speed[{i}]"), found, expected));
            }
        }
        let caches = self.caches;
        let sizes =
            [("l1_kib", caches.l1_kib), ("l2_kib", caches.l2_kib), ("llc_mib", caches.llc_mib)];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(SpecError::new(format!("caches.{name}"), 0, "a size above 0"));
        }
        if self.idle.is_empty() {
            return Err(SpecError::new("idle", "no state", "at least one"));
        }
        if self.idle.len() > MAX_IDLE_STATES {
            let found = format!("{} states", self.idle.len());
            return Err(SpecError::new("idle", found, format!("at most {MAX_IDLE_STATES}")));
        }
        self.idle.iter().try_for_each(|s| s.exit_latency.check(&format!("idle.{}", s.name)))?;
        check_order(&self.idle)
    }

    /// Checks that cores of `topo` are no wider than there are speeds.
    pub fn check_speeds(&self, topo: &Topology) -> Result<(), SpecError> {
        if topo.smt_width() <= self.smt_speed.len() {
            return Ok(());
        }
        let found = format!("{} speeds", self.smt_speed.len());
        let expected = format!("one for each of {} busy threads", topo.smt_width());
        Err(SpecError::new("smt_speed", found, expected))
    }
}

/// Reports print `text` as it is.
fn printable(what: &str, text: &str) -> Result<(), SpecError> {
    match text.contains(char::is_control) {
        true => Err(SpecError::new(what, format!("{text:?}"), "no control character")),
        false => Ok(()),
    }
}

/// Each idle state has a name of its own and pays later than the one before.
fn check_order(states: &[IdleSpec]) -> Result<(), SpecError> {
    for (i, state) in states.iter().enumerate() {
        let at = format!("idle.{}", state.name);
        if state.name.is_empty() || states[..i].iter().any(|s| s.name == state.name) {
            return Err(SpecError::new("idle", format!("`{}`", state.name), "a name not used yet"));
        }
        printable("idle", &state.name)?;
        let before = i.checked_sub(1).map_or(0, |b| states[b].target_residency_ns);
        if state.target_residency_ns < before {
            let found = format!("target_residency_ns = {}", state.target_residency_ns);
            let expected = format!("at least {before}, that of the state before");
            return Err(SpecError::new(at, found, expected));
        }
    }
    Ok(())
}

/// A machine ready for a run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What `-m` calls it.
    pub name: String,
    /// Who shares what.
    pub topo: Topology,
    /// What everything costs, ns.
    pub costs: Costs,
    /// Contended cache lines. One task group (the root) has a line; more come with
    /// [`Lines::grow_groups`].
    pub lines: Lines,
    /// Idle states, shallow to deep.
    pub idle: Vec<IdleState>,
    /// Who chooses among them.
    pub governor: Governor,
    /// Cache sizes.
    pub caches: Caches,
    /// Page size, KiB.
    pub page_kib: u32,
    /// Clock of a busy core, MHz.
    pub mhz: u32,
    /// The driver's current moment: requests to lines are made at the start of an event, so that
    /// they arrive in order.
    pub event_time: Ns,
    held_kib: [u32; 6],
    /// By number of busy threads; entry 0 is full speed as well.
    smt_speed: Vec<u32>,
}

impl Machine {
    /// The machine with every cost at its middle value.
    pub fn new(spec: &MachineSpec) -> Result<Machine, SpecError> {
        Machine::choose(spec, |_, c| c.mid, Costs::mid(&spec.costs))
    }

    /// The machine with every cost drawn between low and high, for tests of how far a result
    /// depends on them. `f` gives 64 uniform bits for a name and is asked once per name.
    pub fn draw(spec: &MachineSpec, mut f: impl FnMut(&str) -> u64) -> Result<Machine, SpecError> {
        let costs = Costs::draw(&spec.costs, &mut f);
        Machine::choose(spec, |name, c| c.draw(f(name)), costs)
    }

    fn choose(
        spec: &MachineSpec,
        mut value: impl FnMut(&str, &Cost) -> u32,
        mut costs: Costs,
    ) -> Result<Machine, SpecError> {
        spec.check()?;
        let topo = spec.build_topology()?;
        spec.check_speeds(&topo)?;
        costs.scale_paths(value("path_permille", &spec.path_permille));
        let mut smt_speed = vec![FULL_SPEED];
        for (i, c) in spec.smt_speed.iter().enumerate() {
            // More busy threads never make a thread faster, whatever is drawn.
            let speed = value(&format!("smt_speed.{}", i + 1), c);
            smt_speed.push(speed.min(smt_speed[i]));
        }
        let idle = spec.idle.iter().map(|s| IdleState {
            name: s.name.clone(),
            table_latency_ns: s.table_latency_ns,
            target_residency_ns: s.target_residency_ns,
            polling: s.polling,
            exit_latency_ns: value(&format!("idle.{}", s.name), &s.exit_latency),
        });
        Ok(Machine {
            name: spec.name.clone(),
            idle: idle.collect(),
            governor: Governor::of(&spec.idle, spec.guest_halt_poll_ns),
            lines: Lines::new(&topo, 1),
            costs,
            caches: spec.caches,
            page_kib: spec.page_kib,
            mhz: spec.mhz,
            event_time: Ns::ZERO,
            held_kib: spec.caches.held_kib(),
            smt_speed,
            topo,
        })
    }

    /// A machine of this topology on which nothing takes time: for checkers that ask about a
    /// moment.
    pub fn free(topo: &Topology) -> Machine {
        let caches = Caches { l1_kib: 1, l2_kib: 1, llc_mib: 1 };
        Machine {
            name: "free".into(),
            idle: vec![],
            governor: Governor::Menu,
            lines: Lines::new(topo, 1),
            costs: Costs::FREE,
            caches,
            page_kib: 4,
            mhz: 1,
            event_time: Ns::ZERO,
            held_kib: caches.held_kib(),
            smt_speed: vec![FULL_SPEED; topo.smt_width() + 1],
            topo: topo.clone(),
        }
    }

    /// A read of `line` by `cpu`, at [`Machine::event_time`].
    #[inline(always)]
    pub fn read(&mut self, line: Line, cpu: Cpu) -> LineCost {
        self.lines.read(line, cpu, self.event_time, &self.costs, &self.topo)
    }
    /// A write of `line` by `cpu`, at [`Machine::event_time`].
    #[inline(always)]
    pub fn write(&mut self, line: Line, cpu: Cpu) -> LineCost {
        self.lines.write(line, cpu, self.event_time, &self.costs, &self.topo)
    }
    /// One-way transfer of a cache line from `from` to `to`. Nothing if it is there, or if nobody
    /// has it (`Cpu::NONE`).
    #[inline(always)]
    pub fn transfer(&self, from: Cpu, to: Cpu) -> Ns {
        if from == to || from.is_none() {
            return Ns::ZERO;
        }
        Ns(u64::from(self.costs.line_transfer[self.topo.distance(from, to) as usize]))
    }
    /// From the sender's command to the target's interrupt handler.
    #[inline]
    pub fn ipi(&self, from: Cpu, to: Cpu) -> Ns {
        Ns(u64::from(self.costs.ipi_deliver[self.topo.distance(from, to) as usize]))
    }
    /// Refetching a footprint over `distance`.
    #[inline]
    pub fn refill(&self, footprint_kib: u32, distance: Distance) -> Ns {
        refill(footprint_kib, distance, &self.held_kib, &self.costs.refill_kib)
    }
    /// Speed in 1/1024 of full of each of `busy_threads` busy threads of one core.
    #[inline]
    pub fn smt_speed(&self, busy_threads: usize) -> u32 {
        self.smt_speed[busy_threads]
    }
    /// Busy siblings slow nobody down any more: a knock-out.
    pub fn set_full_speed(&mut self) {
        self.smt_speed.fill(FULL_SPEED);
    }
}
