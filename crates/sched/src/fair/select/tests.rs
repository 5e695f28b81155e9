//! Decisions of placement, each small enough to check by hand.
//!
//! A fixture is a line of words: `llcs=2 cores=2 smt=2` (caches, cores in a cache, threads in a
//! core; threads of a core and cores of a cache follow one another), `l2=2` (cores in an L2),
//! `sockets=2`, then the state: `idle=3,5` (all others run one task), `sched_idle=2`,
//! `this=0 prev=2`, `sync`, `recent=1`, `idle_cores`, `scan=4`, `allowed=0-3`, `kthread`, `irq`,
//! `nr=0:3,1:2` (nr_running), `delayed=0:1`, `load=0:2048`, `waker_load=…`, `wakee_load=…`,
//! `flips=waker,wakee`, `moved` (the migration limit is used up), `avg_idle=… cost=…` (what
//! SIS_PROP goes by, ns).

use super::*;
use crate::fixture::{Fixture, number};
use crate::sample::{self, v6_1, v6_12};
use vruntime_machine::{Arch, parse_cpulist};

struct Fake<'a> {
    k: &'a Release,
    t: &'a Topology,
    d: &'a Domains,
    idle: CpuMask,
    sched_idle: CpuMask,
    allowed: CpuMask,
    nr: Vec<u32>,
    delayed: Vec<u32>,
    load: Vec<u64>,
    waker_load: u64,
    wakee_load: u64,
    flips: (u32, u32),
    kthread: bool,
    irq: bool,
    recent: Cpu,
    idle_cores: bool,
    scan: u32,
    moved: bool,
    budget: (u64, u64),
    reads: Vec<String>,
}

impl Fixed for Fake<'_> {
    fn k(&self) -> &Release {
        self.k
    }
    fn t(&self) -> &Topology {
        self.t
    }
    fn d(&self) -> &Domains {
        self.d
    }
}

impl PlacementView for Fake<'_> {
    fn allowed(&mut self, c: Cpu) -> bool {
        self.allowed.has(c)
    }
    fn idle_cpu(&mut self, c: Cpu) -> bool {
        self.reads.push(format!("idle {c}"));
        self.idle.has(c)
    }
    fn sched_idle_cpu(&mut self, c: Cpu) -> bool {
        self.sched_idle.has(c)
    }
    fn nr_running(&mut self, c: Cpu) -> u32 {
        self.reads.push(format!("nr {c}"));
        self.nr[c.ix()]
    }
    fn nr_delayed(&mut self, c: Cpu) -> u32 {
        self.delayed[c.ix()]
    }
    fn cpu_load(&mut self, c: Cpu) -> u64 {
        self.reads.push(format!("load {c}"));
        self.load[c.ix()]
    }
    fn capacity_of(&mut self, _: Cpu) -> u64 {
        1024
    }
    fn wakee_h_load(&mut self) -> u64 {
        self.wakee_load
    }
    fn waker_h_load(&mut self) -> u64 {
        self.waker_load
    }
    fn waker_flips(&mut self) -> u32 {
        self.flips.0
    }
    fn wakee_flips(&mut self) -> u32 {
        self.flips.1
    }
    fn waker_is_per_cpu_kthread(&mut self) -> bool {
        self.kthread
    }
    fn in_task(&mut self) -> bool {
        !self.irq
    }
    fn recent_used_cpu(&mut self) -> Cpu {
        self.recent
    }
    fn has_idle_cores(&mut self, c: Cpu) -> bool {
        self.reads.push(format!("idle_cores {c}"));
        self.idle_cores
    }
    fn nr_idle_scan(&mut self, c: Cpu) -> u32 {
        self.reads.push(format!("scan {c}"));
        self.scan
    }
    fn scan_budget(&mut self) -> (u64, u64) {
        self.budget
    }
    fn moved_lately(&mut self) -> bool {
        self.moved
    }
}

struct Outcome {
    d: Decision,
    reads: Vec<String>,
}

fn run(k: &Release, fixture: &str) -> Outcome {
    let f = Fixture::new(fixture);
    let n = |key: &str, default: u32| f.number(key, default);
    let mask = |key: &str| parse_cpulist(f.get(key).unwrap_or(""), key).expect("a list of CPUs");
    let (sockets, cores, llcs) = (n("sockets", 1), n("cores", 4), n("llcs", 1));
    let mut shape = sample::sockets(sockets, cores * llcs, n("smt", 1), cores);
    shape.cores_per_l2 = n("l2", 1);
    if sockets > 1 {
        shape.node_distance = vec![vec![10, n("far", 21)], vec![n("far", 21), 10]];
    }
    let t = sample::build(Arch::X86, shape);
    let cpus = t.nr_cpus();
    let per_cpu = |key: &str, default: u32| {
        let mut v = vec![default; cpus];
        f.by_cpu(key).into_iter().for_each(|(c, x)| v[c] = x);
        v
    };
    let idle = mask("idle");
    let mut nr = per_cpu("nr", 1);
    idle.iter().for_each(|c| nr[c.ix()] = 0);
    let flips = f.get("flips").map_or((0, 0), |flips| {
        let (a, b) = flips.split_once(',').expect("waker,wakee");
        (number(a), number(b))
    });
    let d = Domains::build(&t, k);
    let mut v = Fake {
        k,
        t: &t,
        d: &d,
        idle,
        sched_idle: mask("sched_idle"),
        allowed: if f.has("allowed") { mask("allowed") } else { *t.all() },
        nr,
        delayed: per_cpu("delayed", 0),
        load: per_cpu("load", 0).into_iter().map(u64::from).collect(),
        waker_load: n("waker_load", 0).into(),
        wakee_load: n("wakee_load", 0).into(),
        flips,
        kthread: f.has("kthread"),
        irq: f.has("irq"),
        recent: Cpu(n("recent", n("prev", 0)) as u16),
        idle_cores: f.has("idle_cores"),
        scan: n("scan", 8),
        moved: f.has("moved"),
        budget: (n("avg_idle", 1_000_000).into(), n("cost", 0).into()),
        reads: Vec::new(),
    };
    let q = WakeQuery {
        this_cpu: Cpu(n("this", 0) as u16),
        prev: Cpu(n("prev", 0) as u16),
        sync: f.has("sync"),
    };
    Outcome { d: select_task_rq(&mut v, &q), reads: v.reads }
}

fn check_in(k: &Release, fixture: &str, cpu: u16, rule: &str) {
    let o = run(k, fixture);
    assert_eq!((o.d.choice.0, o.d.rule.name), (cpu, rule), "{fixture} (reads: {:?})", o.reads);
}

/// The same decision in 6.1 and in 6.12.
fn check(fixture: &str, cpu: u16, rule: &str) {
    check_in(&v6_1(), fixture, cpu, rule);
    check_in(&v6_12(), fixture, cpu, rule);
}

fn check_target_in(k: &Release, fixture: &str, cpu: u16, rule: &str) {
    let o = run(k, fixture);
    assert_eq!((o.d.target.0, o.d.affine.name), (cpu, rule), "{fixture} (reads: {:?})", o.reads);
}

fn check_target(fixture: &str, cpu: u16, rule: &str) {
    check_target_in(&v6_1(), fixture, cpu, rule);
    check_target_in(&v6_12(), fixture, cpu, rule);
}

mod affine;
pub(crate) mod core_cpu_sibling;
pub(crate) mod idle_sibling;
