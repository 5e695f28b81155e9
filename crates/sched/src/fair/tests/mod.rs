//! Tests of the fair class: decisions that can be checked by hand, and invariants under random
//! sequences of hooks.

pub(crate) mod cfs;
mod clock;
pub(crate) mod eevdf;
pub(crate) mod groups;
pub(crate) mod longterm;
mod shares;
mod swarm;
pub(crate) mod vprot;

use super::cfs::{PreemptDecision, PreemptView};
use super::{CfsId, Entity, Fair, SeId, pelt};
use crate::cx::{Cx, Shared, WakeStats};
use crate::domains::Domains;
use crate::linux::Linux;
use crate::release::Release;
use crate::sample;
use crate::scheduler::*;
use crate::task::{Affinities, Policy, RqLoad, Task, TaskState, TgId};
use vruntime_base::{Cause, Cpu, CpuMask, Ledger, Noise, Ns, TaskId, VTime};
use vruntime_machine::Machine;

/// One ms in ns.
pub const MS: u64 = 1_000_000;

/// A class with one root queue on one of `nr_cpus` CPUs, for pure decisions.
pub struct Board {
    pub fair: Fair,
    pub release: Release,
}

impl Board {
    pub fn new(release: Release, nr_cpus: usize) -> Board {
        Board { fair: Fair::new(nr_cpus, &release), release }
    }
    /// An entity of a task with this vruntime, not queued.
    pub fn entity(&mut self, v: u64) -> SeId {
        let n = self.fair.ses.len() as u32;
        let se = self.fair.new_entity(TaskId(100 + n), TgId(0), Cpu(0));
        self.fair.ses[se.ix()].vruntime = VTime(v);
        se
    }
    /// The same, waiting in the queue.
    pub fn waits(&mut self, v: u64) -> SeId {
        let se = self.entity(v);
        self.fair.restore_queued(se);
        se
    }
    /// The same, running.
    pub fn runs(&mut self, v: u64) -> SeId {
        let se = self.entity(v);
        self.fair.restore_curr(se);
        se
    }
    /// An EEVDF entity with vruntime, deadline and slice.
    pub fn edf(&mut self, v: u64, deadline: u64, slice: u64) -> SeId {
        let se = self.entity(v);
        let e: &mut Entity = &mut self.fair.ses[se.ix()];
        e.deadline = VTime(deadline);
        e.slice = slice;
        e.custom_slice = true;
        se
    }
    /// Does `wakee`, just enqueued, preempt `curr`?
    pub fn decide(
        &self,
        curr: &Task,
        wakee: &Task,
        need_resched: bool,
        fork: bool,
    ) -> PreemptDecision {
        let release = &self.release;
        let view = PreemptView { release, curr, wakee, need_resched, fork };
        self.fair.decide_wakeup_preempt(&view)
    }
}

/// The task of this entity, like any other.
pub fn task(se: SeId) -> Task {
    Task { se, ..sample::task() }
}

/// The class stack on a whole machine, driven by hand.
pub struct Lab {
    pub linux: Linux,
    pub sh: Shared,
    pub machine: Machine,
    pub resched: Vec<(Cpu, &'static Cause)>,
    pub now: Ns,
    /// By task: how long it has run.
    ran: Vec<u64>,
}

impl Lab {
    pub fn new(release: Release, machine: &str) -> Lab {
        let spec = vruntime_formats::machine_file::builtin_machine(machine).expect("a machine");
        Lab::on(release, Machine::new(&spec).expect("a machine"))
    }
    pub fn on(release: Release, machine: Machine) -> Lab {
        let n = machine.topo.nr_cpus();
        let domains = Domains::build(&machine.topo, &release);
        let linux = Linux::new(&machine.topo, &domains, &release);
        let rq = |c: usize| sample::rq(Cpu::from_ix(c));
        let mut idle = sample::task();
        idle.policy = Policy::Idle;
        idle.state = TaskState::Running;
        let sh = Shared {
            wakes: vec![WakeStats::default(); domains.nr_slots()],
            domains,
            tasks: vec![idle; n],
            rqs: (0..n).map(rq).collect(),
            loads: vec![RqLoad::default(); n],
            affinities: Affinities::new(n),
            nohz_idle: CpuMask::EMPTY,
            ledger: Ledger::new(n),
            noise: Noise::new(1),
            accounted: None,
            timers: vec![],
            release,
        };
        Lab { linux, sh, machine, resched: Vec::new(), now: Ns::from_ms(1000), ran: Vec::new() }
    }

    /// Calls a hook on `cpu` at the present moment.
    pub fn hook<R>(&mut self, cpu: Cpu, f: impl FnOnce(&mut Linux, &mut Cx) -> R) -> R {
        self.sh.rqs[cpu.ix()].clock = self.now;
        self.machine.event_time = self.now;
        let mut cx = Cx {
            now: self.now,
            cpu,
            sh: &mut self.sh,
            machine: &mut self.machine,
            cost: Ns::ZERO,
            slowdown: 1024,
            resched: &mut self.resched,
        };
        let r = f(&mut self.linux, &mut cx);
        while let Some((c, _)) = self.resched.pop() {
            self.sh.rqs[c.ix()].need_resched = true;
        }
        r
    }

    /// A new task that has been enqueued on `cpu`.
    pub fn spawn(&mut self, cpu: Cpu, nice: i8, tg: TgId) -> TaskId {
        let p = TaskId::from_ix(self.sh.tasks.len());
        let mut t = sample::task();
        (t.nice, t.tg, t.cpu, t.wake_cpu, t.state) = (nice, tg, cpu, cpu, TaskState::Running);
        self.sh.tasks.push(t);
        self.hook(cpu, |s, cx| {
            s.task_new(cx, p, None);
            s.task_fork_place(cx, p);
            let flags = EnqueueFlags { initial: true, ..EnqueueFlags::default() };
            s.enqueue_task(cx, cpu, p, flags);
            cx.sh.tasks[p.ix()].on_rq = true;
            s.wakeup_preempt(cx, cpu, p, WakeFlags { fork: true, ..WakeFlags::default() });
        });
        p
    }

    pub fn se(&self, p: TaskId) -> &Entity {
        &self.linux.fair.ses[self.sh.tasks[p.ix()].se.ix()]
    }
    pub fn se_mut(&mut self, p: TaskId) -> &mut Entity {
        &mut self.linux.fair.ses[self.sh.tasks[p.ix()].se.ix()]
    }
    pub fn curr(&self, cpu: Cpu) -> TaskId {
        self.sh.rqs[cpu.ix()].curr
    }
    pub fn pass(&mut self, ns: u64) {
        self.now += Ns(ns);
        self.ran.resize(self.sh.tasks.len(), 0);
        self.sh.rqs.iter().for_each(|rq| self.ran[rq.curr.ix()] += ns);
    }
    /// How long `p` has run, all told.
    pub fn ran(&self, p: TaskId) -> u64 {
        self.ran[p.ix()]
    }
    pub fn tick(&mut self, cpu: Cpu) {
        self.hook(cpu, |s, cx| {
            s.task_tick(cx, cpu);
        });
    }
    /// `schedule()`: returns what runs now.
    pub fn schedule(&mut self, cpu: Cpu) -> TaskId {
        let next = self.hook(cpu, |s, cx| match s.pick_next_task(cx, cpu) {
            Pick::Task(p) => p,
            Pick::Nothing => {
                s.set_idle(cx, cpu);
                TaskId(u32::from(cpu.0))
            }
        });
        let rq = &mut self.sh.rqs[cpu.ix()];
        (rq.curr, rq.need_resched) = (next, false);
        next
    }
    /// The current task of `cpu` sleeps; returns what runs now.
    pub fn sleep(&mut self, cpu: Cpu) -> TaskId {
        let p = self.curr(cpu);
        self.sh.tasks[p.ix()].state = TaskState::Interruptible;
        let gone = self.hook(cpu, |s, cx| {
            s.dequeue_task(cx, cpu, p, DequeueFlags { sleep: true, ..DequeueFlags::default() })
        });
        if gone {
            self.sh.tasks[p.ix()].on_rq = false;
        }
        self.schedule(cpu)
    }
    /// Wakes the sleeping `p` on `cpu`, which may be another one than before.
    pub fn wake(&mut self, p: TaskId, cpu: Cpu) {
        let t = &self.sh.tasks[p.ix()];
        let (old, on_rq) = (t.cpu, t.on_rq);
        let (delayed, migrated) = (on_rq, !on_rq && old != cpu);
        let cpu = if on_rq { old } else { cpu };
        self.sh.tasks[p.ix()].state = TaskState::Running;
        self.hook(cpu, |s, cx| {
            if migrated {
                s.migrate_task_rq(cx, p, cpu);
                cx.sh.tasks[p.ix()].cpu = cpu;
            }
            let flags = EnqueueFlags { wakeup: !delayed, migrated, initial: false, delayed };
            s.enqueue_task(cx, cpu, p, flags);
            cx.sh.tasks[p.ix()].on_rq = true;
            s.wakeup_preempt(cx, cpu, p, WakeFlags::default());
        });
    }
    /// Moves a queued task that does not run, as the balancer does.
    pub fn move_queued(&mut self, p: TaskId, to: Cpu) {
        let from = self.sh.tasks[p.ix()].cpu;
        self.hook(from, |s, cx| s.dequeue_task(cx, from, p, DequeueFlags::default()));
        self.sh.tasks[p.ix()].cpu = to;
        self.hook(to, |s, cx| s.enqueue_task(cx, to, p, EnqueueFlags::default()));
    }
}

/// Runs `cpus` for `ms` milliseconds with a tick each.
pub fn run(lab: &mut Lab, cpus: &[Cpu], ms: u64) {
    for _ in 0..ms {
        lab.pass(MS);
        for &c in cpus {
            lab.tick(c);
            if lab.sh.rqs[c.ix()].need_resched {
                lab.schedule(c);
            }
        }
    }
}

/// Recomputes from the entities what the queues keep, and compares.
pub fn check_invariants(lab: &Lab) {
    let f = &lab.linux.fair;
    let n = f.nr_cpus;
    let mut queued = vec![0u32; n];
    let mut runnable = vec![0u32; n];
    for (i, t) in lab.sh.tasks.iter().enumerate().skip(n) {
        if !t.policy.is_fair() || t.state == TaskState::Dead {
            continue;
        }
        let e = &f.ses[t.se.ix()];
        assert_eq!(e.on_rq, t.on_rq, "task {i}");
        if e.on_rq {
            assert_eq!(f.cfs[e.cfs_rq.ix()].cpu, t.cpu, "task {i} is queued on its CPU");
            queued[t.cpu.ix()] += 1;
            runnable[t.cpu.ix()] += u32::from(!e.sched_delayed);
        }
    }
    for c in 0..n {
        let l = &lab.sh.loads[c];
        assert_eq!(l.h_nr_queued, queued[c]);
        assert_eq!(l.nr_running, queued[c]);
        assert_eq!(l.h_nr_delayed, queued[c] - runnable[c]);
        assert_eq!(l.load_avg, f.cfs[c].avg.load_avg);
        assert_eq!(l.util_avg, f.cfs[c].avg.util_avg);
        let mut len = 0;
        let mut p = lab.sh.rqs[c].cfs_tasks_head;
        while p.is_some() {
            len += 1;
            assert!(lab.sh.tasks[p.ix()].on_rq);
            p = lab.sh.tasks[p.ix()].cfs_tasks_next;
        }
        assert_eq!(len, queued[c], "the list of fair tasks is complete");
    }
    let mut contrib = vec![0i64; f.groups.len()];
    for (i, q) in f.cfs.iter().enumerate() {
        contrib[q.tg.ix()] += q.tg_load_avg_contrib as i64;
        let mut ses: Vec<SeId> = q.queue.iter().map(|x| x.se).collect();
        let (mut s, mut l) = (0i64, 0u64);
        for x in q.queue.iter() {
            let e = &f.ses[x.se.ix()];
            assert!(e.on_rq && e.vruntime == x.vruntime && e.cfs_rq == CfsId::from_ix(i));
            s += e.vruntime.since(q.min_vruntime) * e.load() as i64;
            l += e.load();
        }
        if f.eevdf {
            assert_eq!((q.sum_w_vruntime, q.sum_weight), (s, l));
        }
        if q.curr.is_some() && f.ses[q.curr.ix()].on_rq {
            ses.push(q.curr);
        }
        assert_eq!(q.nr_queued as usize, ses.len());
        let w: u64 = ses.iter().map(|s| u64::from(f.ses[s.ix()].weight)).sum();
        assert_eq!(q.load_weight, w);
        let odd = ses.iter().filter(|s| f.ses[s.ix()].slice != f.tun.base_slice).count();
        assert_eq!(q.nr_odd_slices as usize, odd);
        let h: u32 = ses
            .iter()
            .map(|s| {
                let e = &f.ses[s.ix()];
                if e.is_task() { 1 } else { f.cfs[e.my_q.ix()].h_nr_queued }
            })
            .sum();
        assert_eq!(q.h_nr_queued, h);
        let keys: Vec<_> = q.queue.iter().map(|x| x.key).collect();
        assert!(keys.windows(2).all(|k| !k[1].before(k[0])));
    }
    for (g, c) in contrib.iter().enumerate().skip(1) {
        assert_eq!(f.groups[g].load_avg, *c, "tg->load_avg is the sum of contributions");
    }
    check_utilisation(f);
}

/// The utilisation of a queue is that of its attached entities, whether they run, wait or sleep,
/// and of those that left and were not subtracted yet. Each is brought to the queue's moment.
fn check_utilisation(f: &Fair) {
    let mut sums: Vec<(u64, u64)> = f.cfs.iter().map(|q| (q.removed.util_avg, 0)).collect();
    for (i, e) in f.ses.iter().enumerate() {
        let q = &f.cfs[e.cfs_rq.ix()];
        if e.avg.last_update_time == Ns::ZERO {
            continue;
        }
        let mut avg = e.avg.clone();
        let running = q.curr == SeId::from_ix(i);
        pelt::update_sum(q.avg.last_update_time, &mut avg, u64::from(e.on_rq), 0, running);
        let sum = &mut sums[e.cfs_rq.ix()];
        *sum = (sum.0 + u64::from(avg.util_sum) / pelt::divider(&avg), sum.1 + 1);
    }
    for (i, (q, (sum, n))) in f.cfs.iter().zip(sums).enumerate() {
        let util = u64::from(q.avg.util_sum) / pelt::divider(&q.avg);
        // What truncation and group entities that follow later leave: 21 was the most.
        assert!(util.abs_diff(sum) <= 32, "queue {i}: {util}, its {n} entities {sum}");
    }
}
