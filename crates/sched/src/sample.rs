//! Releases and machines that tests of this crate share.

use crate::cx::{Shared, WakeStats};
use crate::domains::Domains;
use crate::release::Release;
use crate::task::{Affinities, Rq, RqLoad, Task, TaskState};
use serde::de::value::MapDeserializer;
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, Visitor};
use std::cell::Cell;
use vruntime_base::{Cpu, CpuMask, Ledger, Noise, Ns};
use vruntime_machine::{
    Arch, Caches, Cost, CostSpec, IdleSpec, Machine, MachineSpec, Numbering, Regular, SCHEMA,
    Topology, TopologySpec,
};

thread_local! {
    /// What a test of mutants changes in every release of this module.
    pub static MUTATION: Cell<Option<fn(&mut Release)>> = const { Cell::new(None) };
}

/// The kernel in the text of a file, as a test of mutants wants it.
fn release(text: &str) -> Release {
    let mut k = toml::from_str(text).expect("a kernel file");
    if let Some(change) = MUTATION.get() {
        change(&mut k);
    }
    k
}

macro_rules! releases {
    ($($name:ident $file:literal)*) => {
        $(pub fn $name() -> Release {
            release(include_str!(concat!("../../../kernels/", $file)))
        })*
    };
}

releases! {
    v5_5 "v5.5.toml"
    v5_7 "v5.7.toml"
    v6_1 "v6.1.toml"
    v6_5 "v6.5.toml"
    v6_12 "v6.12.toml"
    v6_18 "v6.18.toml"
    v6_18_44 "v6.18.44.toml"
}

/// Equal sockets with one node each: `sockets × cores`, `smt` threads a core (numbered side by
/// side), `cores_per_llc`.
pub fn sockets(sockets: u32, cores: u32, smt: u32, cores_per_llc: u32) -> Regular {
    let distance = |a, b| if a == b { 10 } else { 21 };
    Regular {
        sockets,
        nodes_per_socket: 1,
        cores_per_node: cores,
        threads_per_core: smt,
        cores_per_l2: 1,
        cores_per_llc,
        numbering: Numbering::SiblingsAdjacent,
        node_distance: (0..sockets)
            .map(|a| (0..sockets).map(|b| distance(a, b)).collect())
            .collect(),
    }
}

/// The machine of this shape.
pub fn build(arch: Arch, shape: Regular) -> Topology {
    TopologySpec::Regular(shape).build(arch).expect("a valid machine")
}

/// The same shape, numbered as is usual for `arch`.
pub fn regular(arch: Arch, nr: u32, cores: u32, smt: u32, cores_per_llc: u32) -> Topology {
    let numbering = match arch {
        Arch::X86 => Numbering::SiblingsLast,
        Arch::Powerpc => Numbering::PowerSmt8,
    };
    build(arch, Regular { numbering, ..sockets(nr, cores, smt, cores_per_llc) })
}

/// A sleeping nice-0 task that never did anything.
pub fn task() -> Task {
    let state = TaskState::Interruptible;
    Task { state, nr_cpus_allowed: u16::MAX, ..Task::new(Cpu(0), 1) }
}

/// A machine on which every cost is `ns`, and a thread of a core with busy siblings keeps its
/// speed.
pub fn machine(topology: TopologySpec, arch: Arch, ns: u32) -> Machine {
    let cost = |v| Cost { low: v, mid: v, high: v, source: "test".into() };
    let spec = MachineSpec {
        schema: SCHEMA.into(),
        name: "test".into(),
        description: String::new(),
        arch,
        page_kib: 4,
        mhz: 1000,
        path_permille: cost(1000),
        caches: Caches { l1_kib: 32, l2_kib: 512, llc_mib: 32 },
        smt_speed: vec![cost(1024); 8],
        idle: vec![IdleSpec {
            name: "POLL".into(),
            table_latency_ns: 0,
            target_residency_ns: 0,
            polling: true,
            exit_latency: cost(0),
        }],
        topology,
        node_reclaim_distance: None,
        guest_halt_poll_ns: None,
        costs: CostSpec::deserialize(Every(ns)).expect("all costs alike"),
        sources: Vec::new(),
    };
    Machine::new(&spec).expect("a valid machine")
}

/// Deserialises into a structure whose numbers are all alike.
#[derive(Clone, Copy)]
struct Every(u32);

impl<'de> Deserializer<'de> for Every {
    type Error = de::value::Error;
    fn deserialize_any<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Self::Error> {
        v.visit_u32(self.0)
    }
    fn deserialize_string<V: Visitor<'de>>(self, v: V) -> Result<V::Value, Self::Error> {
        v.visit_str("test")
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        v: V,
    ) -> Result<V::Value, Self::Error> {
        v.visit_map(MapDeserializer::new(fields.iter().map(|f| (*f, self))))
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for Every {
    type Deserializer = Every;
    fn into_deserializer(self) -> Every {
        self
    }
}

/// The run queue of an idle CPU.
pub fn rq(c: Cpu) -> Rq {
    Rq { avg_idle: Ns::from_ms(1), max_idle_balance_cost: Ns(500_000), ..Rq::idle(c) }
}

/// The shared state of an idle machine.
pub fn shared(topo: &Topology, k: Release) -> Shared {
    let n = topo.nr_cpus();
    let domains = Domains::build(topo, &k);
    Shared {
        wakes: vec![WakeStats::default(); domains.nr_slots()],
        domains,
        release: k,
        tasks: (0..n).map(|c| Task { cpu: Cpu::from_ix(c), ..task() }).collect(),
        rqs: (0..n).map(|c| rq(Cpu::from_ix(c))).collect(),
        loads: vec![RqLoad::default(); n],
        affinities: Affinities::new(n),
        nohz_idle: CpuMask::EMPTY,
        ledger: Ledger::new(n),
        noise: Noise::new(1),
        accounted: None,
        timers: vec![],
    }
}
