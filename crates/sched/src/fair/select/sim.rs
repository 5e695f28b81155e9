//! Placement of the running model: reads the model's state and charges what reading costs.
//!
//! **What.** `Fair::select_task_rq_fair`: `record_wakee`, the decision, its effects; the slow path
//! for fork and exec.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `select_task_rq_fair`.
//! **Equations.** Cost = `select_base` + `wake_affine` if two CPUs compete + `scan_cpu` for each
//! CPU the scan examined, besides the cache lines read on the way: `idle_test` of a transfer for a
//! CPU that is tested alone, `idle_scan` for one of a scan, whose loads overlap.
//! **Departures.** D1: every CPU has the full capacity of 1024. D2: `ttwu_move_affine` counts as
//! from 6.1 on; 5.x counts a choice of prev by an idle test, too.
//! **Example.** A wakeup that finds its target idle reads one run queue line and costs
//! `select_base`.

use super::{Fixed, PlacementView, WakeQuery, affine, record_wakee, select_task_rq};
use crate::cx::Cx;
use crate::domains::Domains;
use crate::fair::Fair;
use crate::release::{Release, TtwuPendingSeen};
use crate::scheduler::{Placement, WakeFlags};
use crate::task::TaskState;
use vruntime_base::{Cause, CauseKind, Cpu, CpuMask, Func, Resource, TaskId};
use vruntime_machine::{Line, Topology};

/// The CPU chosen was not allowed.
pub static FALLBACK: Cause = Cause::new(CauseKind::Placement, "fallback (choice not allowed)");

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
        let found = if flags.fork || flags.exec {
            self.select_idlest(cx, p, prev, flags)
        } else {
            self.select_for_wakeup(cx, p, prev, flags)
        };
        if cx.sh.allowed(p).has(found.cpu) { found } else { select_fallback_rq(cx, p) }
    }

    fn select_for_wakeup(
        &mut self,
        cx: &mut Cx,
        p: TaskId,
        prev: Cpu,
        flags: WakeFlags,
    ) -> Placement {
        let waker = cx.sh.rq(cx.cpu).curr;
        let (jiffies, hz) = (cx.jiffies(), cx.sh.release.hz);
        record_wakee(&mut cx.sh.tasks[waker.ix()], p, jiffies, hz);
        let exiting = cx.sh.task(waker).state == TaskState::Dead;
        let q = WakeQuery { this_cpu: cx.cpu, prev, sync: flags.sync && !exiting };
        let d = select_task_rq(&mut SimView { cx, fair: self, p, waker, in_scan: false }, &q);
        if affine::ran(d.affine) {
            cx.charge(Func::SelectTaskRq, cx.machine.costs.wake_affine);
            let pulled =
                (d.target == q.this_cpu).then(|| cx.sh.domains.lowest_common(q.this_cpu, prev));
            if let Some(slot) = pulled.flatten() {
                cx.sh.wakes[slot].ttwu_move_affine += 1;
            }
        }
        let before = cx.cost;
        cx.charge(Func::SelectIdle, cx.machine.costs.scan_cpu.saturating_mul(d.effects.nr_scanned));
        if cx.sh.release.sis_prop
            && let Some(ns) = d.effects.scan_ns
        {
            let took = (ns + (cx.cost - before).0) as i64;
            let avg = &mut self.avg_scan_cost[cx.cpu.ix()];
            *avg = (*avg as i64 + (took - *avg as i64) / 8) as u64;
        }
        if let Some(c) = d.effects.waker_recent_cpu {
            cx.sh.tasks[waker.ix()].recent_used_cpu = c;
        }
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

/// The CPU chosen is not allowed (the affinity changed while the task slept): one of the same node,
/// else any.
fn select_fallback_rq(cx: &Cx, p: TaskId) -> Placement {
    let topo = &cx.machine.topo;
    let allowed = cx.sh.allowed(p);
    let near = topo.node_cpus(topo.node(cx.sh.task(p).cpu)).and(allowed).first();
    let cpu = near.or(allowed.first()).expect("a task may run somewhere");
    Placement { cpu, rule: &FALLBACK }
}

/// What a wakeup sees in the running model.
struct SimView<'v, 'a> {
    cx: &'v mut Cx<'a>,
    fair: &'v mut Fair,
    p: TaskId,
    waker: TaskId,
    in_scan: bool,
}

impl Fixed for SimView<'_, '_> {
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
        if self.in_scan {
            let share = self.cx.machine.costs.idle_scan;
            self.cx.read_in_turn(Line::Rq(c), Func::SelectIdle, share);
        } else {
            self.cx.read_for_idle_test(c, Func::SelectIdle);
        }
    }
    /// Wakees on the list of `c` count beyond the idle tests.
    #[inline(always)]
    fn has_pending(&self, c: Cpu) -> bool {
        self.cx.sh.release.ttwu_pending == TtwuPendingSeen::Everywhere
            && self.cx.sh.seen_pending(c, self.cx.now)
    }
    #[inline(always)]
    fn read_shared(&mut self, c: Cpu) {
        let llc = self.cx.sh.domains.llc_id(c);
        self.cx.read(Line::LlcShared(llc), Func::SelectIdle, Resource::LlcShared);
    }
}

impl PlacementView for SimView<'_, '_> {
    fn scan_begins(&mut self) {
        self.in_scan = true;
    }
    #[inline]
    fn allowed(&mut self, c: Cpu) -> bool {
        self.cx.sh.allowed(self.p).has(c)
    }
    #[inline]
    fn idle_cpu(&mut self, c: Cpu) -> bool {
        self.read_rq(c);
        self.cx.sh.seen_idle_cpu(c, self.cx.now)
    }
    #[inline]
    fn sched_idle_cpu(&mut self, c: Cpu) -> bool {
        self.cx.sh.seen_sched_idle_cpu(c, self.cx.now) && !self.has_pending(c)
    }
    fn nr_running(&mut self, c: Cpu) -> u32 {
        self.read_rq(c);
        self.cx.sh.seen_nr_running(c, self.cx.now) + u32::from(self.has_pending(c))
    }
    fn nr_delayed(&mut self, c: Cpu) -> u32 {
        self.cx.sh.loads[c.ix()].h_nr_delayed
    }
    fn cpu_load(&mut self, c: Cpu) -> u64 {
        self.cx.read(Line::RqLoad(c), Func::SelectTaskRq, Resource::RqLine);
        let pending = if self.has_pending(c) { self.wakee_h_load() } else { 0 };
        self.cx.sh.loads[c.ix()].load_avg + pending
    }
    fn capacity_of(&mut self, _: Cpu) -> u64 {
        1024
    }
    fn wakee_h_load(&mut self) -> u64 {
        self.fair.task_h_load(self.cx, self.p)
    }
    fn waker_h_load(&mut self) -> u64 {
        let t = self.cx.sh.task(self.waker);
        if !t.policy.is_fair() && t.se.is_some() {
            // Its queue moves with it (`set_task_cpu`), though it is not on it.
            let (se, tg, cpu) = (t.se, t.tg, t.cpu);
            self.fair.set_task_rq(se, tg, cpu);
        }
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
        self.cx.sh.task(self.waker).is_per_cpu_kthread()
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
    fn scan_budget(&mut self) -> (u64, u64) {
        (self.cx.sh.rq(self.cx.cpu).avg_idle.0, self.fair.avg_scan_cost[self.cx.cpu.ix()])
    }
    fn clock_ns(&mut self) -> u64 {
        self.cx.cost.0
    }
    fn moved_lately(&mut self) -> bool {
        self.fair.moved_lately(&self.cx.sh.release, self.p, self.cx.now)
    }
    #[inline]
    fn allowed_in(&mut self, span: &CpuMask) -> CpuMask {
        self.cx.sh.allowed(self.p).and(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{machine, shared, sockets, task, v5_7, v6_1};
    use crate::task::{Policy, Rq, RqLoad, Task, TgId};
    use vruntime_base::Ns;
    use vruntime_machine::{Arch, Regular, TopologySpec};

    /// Four CPUs without SMT in one LLC; the waker, task 4, runs on 0, the wakee, 5, slept on 1.
    /// Returns the choice and what it cost at 10 ns for everything.
    fn wake(f: impl FnOnce(&mut Cx, TaskId)) -> (Placement, u64, Cpu) {
        wake_with(WakeFlags::default(), f)
    }

    fn wake_with(flags: WakeFlags, f: impl FnOnce(&mut Cx, TaskId)) -> (Placement, u64, Cpu) {
        wake_on(sockets(1, 4, 1, 4), Cpu(1), |fair, cx, p| {
            f(cx, p);
            let found = fair.select_task_rq_fair(cx, p, Cpu(1), flags);
            (found, cx.cost.0, cx.sh.task(p).recent_used_cpu)
        })
    }

    /// Likewise on any machine, the wakee having slept on `prev`; `f` makes the wakeup.
    fn wake_on<R>(shape: Regular, prev: Cpu, f: impl FnOnce(&mut Fair, &mut Cx, TaskId) -> R) -> R {
        let mut machine = machine(TopologySpec::Regular(shape), Arch::X86, 10);
        (machine.costs.idle_test, machine.costs.idle_scan) = (2_000, 500);
        let mut sh = shared(&machine.topo, v6_1());
        sh.domains.shared[0].nr_idle_scan = 4;
        let waker = TaskId::from_ix(sh.tasks.len());
        let p = TaskId(waker.0 + 1);
        sh.tasks.push(task());
        sh.tasks.push(Task { cpu: prev, recent_used_cpu: prev, ..task() });
        let mut fair = Fair::new(machine.topo.nr_cpus(), &sh.release);
        let mut cx = Cx {
            now: Ns::from_ms(1),
            cpu: Cpu(0),
            sh: &mut sh,
            machine: &mut machine,
            cost: Ns::ZERO,
            slowdown: 1024,
            resched: &mut Vec::new(),
        };
        fair.task_new_fair(&mut cx, waker, Cpu(0));
        fair.task_new_fair(&mut cx, p, prev);
        cx.cost = Ns::ZERO;
        cx.sh.rqs[0].curr = waker;
        cx.sh.loads[0].nr_running = 1;
        f(&mut fair, &mut cx, p)
    }

    /// A waker of the real-time class that came from CPU 3 takes its queue with it.
    #[test]
    fn the_load_of_a_waker_that_is_no_fair_task_is_on_its_cpu() {
        wake(|cx, _| {
            let (mut fair, waker) = (Fair::new(4, &cx.sh.release), TaskId(4));
            fair.task_new_fair(cx, waker, Cpu(3));
            cx.sh.tasks[waker.ix()].policy = Policy::Fifo;
            let se = cx.sh.task(waker).se;
            assert_eq!(fair.ses[se.ix()].cfs_rq, fair.queue_of(TgId(0), Cpu(3)));
            let mut view = SimView { fair: &mut fair, cx, p: TaskId(5), waker, in_scan: false };
            view.waker_h_load();
            assert_eq!(fair.ses[se.ix()].cfs_rq, fair.queue_of(TgId(0), Cpu(0)));
        });
    }

    #[test]
    fn an_idle_prev_costs_its_line() {
        // select_base, wake_affine, the lines of CPU 1: two transfers.
        let (found, cost, _) = wake(|_, _| ());
        assert_eq!((found.cpu, found.rule.name, cost), (Cpu(1), "target idle", 40));
    }

    #[test]
    fn a_scan_costs_each_cpu_it_examines() {
        // Prev is busy. Lines of 1, two transfers; of 2 and 3, half a one each in the scan; of the
        // loads of 1 (0 is local), of LlcShared (local); base, wake_affine, two CPUs examined.
        let (found, cost, recent) = wake(|cx, _| {
            for c in [1, 2] {
                cx.sh.rqs[c].curr = TaskId(99);
                cx.sh.loads[c].nr_running = 1;
            }
            cx.sh.loads[0].load_avg = 2000;
        });
        assert_eq!((found.cpu, found.rule.name), (Cpu(3), "idle CPU in scan"));
        assert_eq!(cost, 10 + 10 + 2 * 10 + 20 + 2 * 5 + 10);
        assert_eq!(recent, Cpu(1));
    }

    /// In 5.7 CPU 1 is looked at, 2 and 3, which is idle: 10 ns each, and the first time half a
    /// transfer for 2 and 3 each. The mean moves by an eighth of the difference, towards 40, then
    /// towards 30. A scan that ends at its limit leaves it alone.
    #[test]
    fn the_mean_cost_of_a_scan_follows_by_an_eighth() {
        wake_on(sockets(1, 4, 1, 4), Cpu(1), |fair, cx, p| {
            cx.sh.release = v5_7();
            for c in [1, 2] {
                cx.sh.rqs[c].curr = TaskId(99);
                cx.sh.loads[c].nr_running = 1;
            }
            cx.sh.loads[0].load_avg = 2000;
            let mut wake = |cx: &mut Cx, mean: Option<u64>, rule: &str| {
                fair.avg_scan_cost[0] = mean.unwrap_or(fair.avg_scan_cost[0]);
                let found = fair.select_task_rq_fair(cx, p, Cpu(1), WakeFlags::default());
                assert_eq!(found.rule.name, rule);
                fair.avg_scan_cost[0]
            };
            assert_eq!(wake(cx, None, "idle CPU in scan"), 40 / 8);
            assert_eq!(wake(cx, None, "idle CPU in scan"), 5 + (30 - 5) / 8);
            assert_eq!(wake(cx, Some(1_000), "idle CPU in scan"), 1_000 - (1_000 - 30) / 8);
            (cx.sh.rqs[3].curr, cx.sh.loads[3].nr_running) = (TaskId(99), 1);
            assert_eq!(wake(cx, Some(100_000), "target (scan limit)"), 100_000);
        });
    }

    /// CPU 0 runs the waker alone and wakes SYNC, so it is the target, unless the wakee on its list
    /// counts as a second task. Prev is idle and gets the wakee either way.
    #[test]
    fn a_pending_wakee_counts_in_the_sync_test_where_asked() {
        let sync = WakeFlags { sync: true, ..WakeFlags::default() };
        let rule = |seen: TtwuPendingSeen| {
            let (found, ..) = wake_with(sync, |cx, _| {
                cx.sh.release.ttwu_pending = seen;
                cx.sh.rqs[0].ttwu_pending = true;
            });
            (found.cpu, found.rule.name)
        };
        assert_eq!(rule(TtwuPendingSeen::IdleTests), (Cpu(1), "prev idle"));
        assert_eq!(rule(TtwuPendingSeen::Everywhere), (Cpu(1), "target idle"));
    }

    /// Prev has a SCHED_IDLE task only and passes as idle, unless the wakee on its list counts.
    #[test]
    fn a_pending_wakee_counts_against_a_sched_idle_cpu_where_asked() {
        let rule = |seen: TtwuPendingSeen| {
            let (found, ..) = wake(|cx, _| {
                cx.sh.release.ttwu_pending = seen;
                cx.sh.rqs[1].curr = TaskId(99);
                cx.sh.rqs[1].ttwu_pending = true;
                (cx.sh.loads[1].nr_running, cx.sh.loads[1].idle_h_nr) = (1, 1);
                cx.sh.loads[0].load_avg = 2000;
            });
            (found.cpu, found.rule.name)
        };
        assert_eq!(rule(TtwuPendingSeen::IdleTests), (Cpu(1), "target idle"));
        assert_eq!(rule(TtwuPendingSeen::Everywhere), (Cpu(2), "idle CPU in scan"));
    }

    /// A wakeup at 1 ms looks at CPU 1, of which something is changed by then or a moment later.
    #[test]
    fn a_change_is_not_seen_before_it_is_made() {
        let moment = |of: fn(&mut Rq, &mut RqLoad, Ns)| {
            let at = |done: u64| {
                let (found, ..) = wake(|cx, _| {
                    of(&mut cx.sh.rqs[1], &mut cx.sh.loads[1], Ns(done));
                    cx.sh.loads[0].load_avg = 2000;
                });
                found.cpu
            };
            (at(1_000_000), at(1_000_001))
        };
        let (one, another) = (Cpu(1), Cpu(2));
        let enqueue = |rq: &mut Rq, load: &mut RqLoad, done| {
            load.nr_running = 1;
            rq.unfinished.counts_at(Ns(1), done, 0, true);
        };
        assert_eq!(moment(enqueue), (another, one), "still looks idle");
        let dequeue = |rq: &mut Rq, _: &mut RqLoad, done| {
            rq.unfinished.counts_at(Ns(1), done, 1, false);
        };
        assert_eq!(moment(dequeue), (one, another));
        let switch = |rq: &mut Rq, _: &mut RqLoad, done| rq.unfinished.curr_until = done;
        assert_eq!(moment(switch), (one, another));
        let flush = |rq: &mut Rq, _: &mut RqLoad, done| rq.unfinished.pending_until = done;
        assert_eq!(moment(flush), (one, another));
    }

    #[test]
    fn a_choice_that_is_not_allowed_is_replaced() {
        let (found, ..) = wake(|cx, p| {
            let only = [Cpu(2), Cpu(3)].into_iter().collect();
            cx.sh.tasks[p.ix()].affinity = cx.sh.affinities.intern(only);
        });
        assert_eq!((found.cpu, found.rule.name), (Cpu(2), "fallback (choice not allowed)"));
    }

    /// The wakee slept on CPU 5 of the node 4-7 and may use 1 and 6 now: not the first of them, but
    /// that of its node.
    #[test]
    fn the_fallback_is_on_the_node_of_the_task_if_it_may() {
        wake_on(sockets(2, 4, 1, 4), Cpu(5), |fair, cx, p| {
            let mut allow = |cpus: [u16; 2]| {
                let mask = cpus.map(Cpu).into_iter().collect();
                cx.sh.tasks[p.ix()].affinity = cx.sh.affinities.intern(mask);
                let found = fair.select_task_rq_fair(cx, p, Cpu(5), WakeFlags::default());
                assert_eq!(found.rule.name, "fallback (choice not allowed)");
                found.cpu
            };
            assert_eq!(allow([1, 6]), Cpu(6));
            assert_eq!(allow([1, 2]), Cpu(1));
        });
    }
}
