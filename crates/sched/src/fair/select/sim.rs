//! Placement of the running model: reads the model's state and charges what reading costs.
//!
//! **What.** `Fair::select_task_rq_fair`: `record_wakee`, the decision, its effects; the slow path
//! for fork and exec.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `select_task_rq_fair`.
//! **Equations.** Cost = `select_base` + `wake_affine` if two CPUs compete + `scan_cpu` for each
//! CPU the scan examined, besides the cache lines read on the way.
//! **Departures.** D1: every CPU has the full capacity of 1024.
//! **Example.** A wakeup that finds its target idle reads one run queue line and costs
//! `select_base`.

use super::{Facts, PlacementView, WakeQuery, affine, record_wakee, select_task_rq};
use crate::cx::Cx;
use crate::domains::Domains;
use crate::fair::Fair;
use crate::release::Release;
use crate::scheduler::{Placement, WakeFlags};
use crate::task::TaskState;
use vruntime_base::{Cpu, CpuMask, Func, Resource, TaskId};
use vruntime_machine::{Line, Topology};

impl Fair {
    /// `select_task_rq_fair`: chooses a CPU for `p`, which last ran on `prev`.
    pub fn select_task_rq_fair(
        &mut self,
        cx: &mut Cx,
        p: TaskId,
        prev: Cpu,
        flags: WakeFlags,
    ) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        if flags.fork || flags.exec {
            return self.select_idlest(cx, p, prev, flags);
        }
        let waker = cx.sh.rq(cx.cpu).curr;
        let (jiffies, hz) = (cx.jiffies(), cx.sh.release.hz);
        record_wakee(&mut cx.sh.tasks[waker.ix()], p, jiffies, hz);
        let exiting = cx.sh.task(waker).state == TaskState::Dead;
        let q = WakeQuery { this_cpu: cx.cpu, prev, sync: flags.sync && !exiting };
        let d = select_task_rq(&mut SimView { cx, fair: self, p, waker }, &q);
        if affine::ran(d.affine) {
            cx.charge(Func::SelectTaskRq, cx.machine.costs.wake_affine);
        }
        cx.charge(Func::SelectIdle, cx.machine.costs.scan_cpu * d.effects.nr_scanned);
        if let Some(recent) = d.effects.recent_used_cpu {
            cx.sh.tasks[p.ix()].recent_used_cpu = recent;
        }
        if let Some(c) = d.effects.clear_idle_cores {
            let llc = cx.sh.domains.llc_id(c);
            cx.write(Line::LlcShared(llc), Func::SelectIdle, Resource::LlcShared);
            cx.sh.domains.shared_of_mut(c).has_idle_cores = false;
        }
        Placement { cpu: d.choice, rule: d.rule }
    }
}

/// What a wakeup sees in the running model.
struct SimView<'v, 'a> {
    cx: &'v mut Cx<'a>,
    fair: &'v mut Fair,
    p: TaskId,
    waker: TaskId,
}

impl Facts for SimView<'_, '_> {
    #[inline(always)]
    fn k(&self) -> &Release {
        &self.cx.sh.release
    }
    #[inline(always)]
    fn t(&self) -> &Topology {
        &self.cx.machine.topo
    }
    #[inline(always)]
    fn d(&self) -> &Domains {
        &self.cx.sh.domains
    }
}

impl SimView<'_, '_> {
    #[inline(always)]
    fn read_rq(&mut self, c: Cpu) {
        self.cx.read(Line::Rq(c), Func::SelectIdle, Resource::RqLine);
    }
    #[inline(always)]
    fn read_shared(&mut self, c: Cpu) {
        let llc = self.cx.sh.domains.llc_id(c);
        self.cx.read(Line::LlcShared(llc), Func::SelectIdle, Resource::LlcShared);
    }
}

impl PlacementView for SimView<'_, '_> {
    #[inline]
    fn allowed(&mut self, c: Cpu) -> bool {
        self.cx.sh.allowed(self.p).has(c)
    }
    #[inline]
    fn idle_cpu(&mut self, c: Cpu) -> bool {
        self.read_rq(c);
        self.cx.sh.idle_cpu(c)
    }
    #[inline]
    fn sched_idle_cpu(&mut self, c: Cpu) -> bool {
        self.cx.sh.sched_idle_cpu(c)
    }
    fn nr_running(&mut self, c: Cpu) -> u32 {
        self.read_rq(c);
        self.cx.sh.loads[c.ix()].nr_running
    }
    fn nr_delayed(&mut self, c: Cpu) -> u32 {
        self.cx.sh.loads[c.ix()].h_nr_delayed
    }
    fn cpu_load(&mut self, c: Cpu) -> u64 {
        self.cx.read(Line::RqLoad(c), Func::SelectTaskRq, Resource::RqLine);
        self.cx.sh.loads[c.ix()].load_avg
    }
    fn capacity_of(&mut self, _: Cpu) -> u64 {
        1024
    }
    fn wakee_h_load(&mut self) -> u64 {
        self.fair.task_h_load(self.cx, self.p)
    }
    fn waker_h_load(&mut self) -> u64 {
        self.fair.task_h_load(self.cx, self.waker)
    }
    #[inline]
    fn waker_flips(&mut self) -> u32 {
        self.cx.sh.task(self.waker).wakee_flips
    }
    #[inline]
    fn wakee_flips(&mut self) -> u32 {
        self.cx.sh.task(self.p).wakee_flips
    }
    fn waker_is_per_cpu_kthread(&mut self) -> bool {
        let waker = self.cx.sh.task(self.waker);
        waker.kthread && waker.nr_cpus_allowed == 1
    }
    fn in_task(&mut self) -> bool {
        !self.cx.sh.rq(self.cx.cpu).in_interrupt
    }
    #[inline]
    fn recent_used_cpu(&mut self) -> Cpu {
        self.cx.sh.task(self.p).recent_used_cpu
    }
    fn has_idle_cores(&mut self, c: Cpu) -> bool {
        self.read_shared(c);
        self.cx.sh.domains.shared_of(c).has_idle_cores
    }
    fn nr_idle_scan(&mut self, c: Cpu) -> u32 {
        self.read_shared(c);
        self.cx.sh.domains.shared_of(c).nr_idle_scan
    }
    #[inline]
    fn allowed_in(&mut self, span: &CpuMask) -> CpuMask {
        self.cx.sh.allowed(self.p).and(span)
    }
}
