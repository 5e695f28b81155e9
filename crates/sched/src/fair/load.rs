//! When averages are brought up to date, and how tasks carry their share from queue to queue.
//!
//! **What.** An update ages an entity and its queue, takes off what migrated sleepers left
//! (`removed`), passes a child queue's change on to the group entity, and attaches or detaches the
//! entity. Only then may the group's shared sum be written (see [`super::group`]).
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `update_load_avg`,
//! `update_cfs_rq_load_avg`, `attach_entity_load_avg`, `detach_entity_load_avg`,
//! `propagate_entity_load_avg`, `update_blocked_averages`, `update_cfs_rq_h_load`,
//! `post_init_entity_util_avg`, `util_est_*`.
//! **Equations.** New task: util = min(cap, cfs.util · w / (cfs.load + 1)), cap = (1024 −
//! cfs.util)/2. Hierarchical load: h(child) = h(parent) · se.load / (parent.load + 1).
//! **Departures.** D1: utilisation changes do not drive a frequency governor. D2: irq, RT and
//! thermal pressure have no averages. D3: the line and the lock of `removed` are free: who migrates
//! a sleeper writes one line of the CPU it leaves, which reads that back at its next update. D4:
//! 5.5 and 5.7 keep sums of 64 bits whole; here theirs are cut as those of 5.17 and later.
//! **Example.** A task that sleeps on CPU 0 is woken on CPU 1: its averages go to `removed` of CPU
//! 0 and are subtracted there at the next update; CPU 1 adds them at the enqueue, from 6.0 on less
//! what has decayed while CPU 0 was idle.

use super::pelt::{self, MIN_DIVIDER};
use super::weight::scale_load_down;
use super::{CfsId, CfsRq, Entity, Fair, SeId};
use crate::cx::{Cx, Shared};
use crate::release::Release;
use crate::task::Task;
use vruntime_base::{Cpu, Ns, TaskId};
use vruntime_machine::Line;

/// What an update may do besides aging.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UpdateFlags {
    /// UPDATE_TG: `tg->load_avg` may be written.
    pub tg: bool,
    /// DO_ATTACH: attach the entity if it is not attached anywhere.
    pub attach: bool,
    /// DO_DETACH: detach it, it migrates while queued.
    pub detach: bool,
}

/// Age only.
pub const AGE: UpdateFlags = UpdateFlags { tg: false, attach: false, detach: false };
/// UPDATE_TG.
pub const UPDATE_TG: UpdateFlags = UpdateFlags { tg: true, attach: false, detach: false };

/// The smallest difference of utilisation that util_est reacts to.
const UTIL_EST_MARGIN: u32 = 1024 / 100;

/// `sub_positive`.
#[inline(always)]
fn sub(a: &mut u64, b: u64) {
    *a = a.saturating_sub(b);
}
#[inline(always)]
fn sub32(a: &mut u32, b: u64) {
    *a = u64::from(*a).saturating_sub(b) as u32;
}
/// A sum is not less than its average can stem from. The kernel compares as `max_t(u32, …)` and so
/// keeps the lower 32 bits of sums that have 64: the load of more than 88 tasks of nice 0 wraps
/// when one of them leaves, and its average follows at the next update.
#[inline(always)]
fn at_least(sum: u64, avg: u64) -> u64 {
    u64::from((sum as u32).max((avg * MIN_DIVIDER) as u32))
}
/// `add_positive`.
#[inline(always)]
fn add(a: u64, d: i64) -> u64 {
    (a as i64 + d).max(0) as u64
}

impl Entity {
    /// Ages the averages to `now`. `running`: it is its queue's current entity; `below`: tasks that
    /// a group's entity counts as runnable.
    #[inline]
    fn age(&mut self, now: Ns, running: bool, below: u32) {
        let runnable = if !self.is_task() {
            u64::from(below)
        } else {
            u64::from(self.on_rq && !self.sched_delayed)
        };
        if pelt::update_sum(now, &mut self.avg, u64::from(self.on_rq), runnable, running) {
            let w = self.load();
            pelt::update_avg(&mut self.avg, w);
            self.util_changed = true;
        }
    }
}

impl CfsRq {
    /// `update_cfs_rq_load_avg`. True if averages changed ("decayed").
    #[inline]
    fn update_load_avg(&mut self, now: Ns) -> bool {
        let mut decayed = false;
        if self.removed.nr != 0 {
            self.subtract_removed();
            decayed = true;
        }
        let load = scale_load_down(self.load_weight);
        let running = self.curr.is_some();
        if pelt::update_sum(now, &mut self.avg, load, u64::from(self.h_nr_runnable), running) {
            pelt::update_avg(&mut self.avg, 1);
            decayed = true;
        }
        decayed
    }

    #[inline(never)]
    fn subtract_removed(&mut self) {
        let r = std::mem::take(&mut self.removed);
        let sa = &mut self.avg;
        let d = pelt::divider(sa);
        sub(&mut sa.load_avg, r.load_avg);
        sub(&mut sa.load_sum, r.load_avg * d);
        sa.load_sum = at_least(sa.load_sum, sa.load_avg);
        sub32(&mut sa.util_avg, r.util_avg);
        sub32(&mut sa.util_sum, r.util_avg * d);
        sa.util_sum = at_least(u64::from(sa.util_sum), u64::from(sa.util_avg)) as u32;
        sub32(&mut sa.runnable_avg, r.runnable_avg);
        sub(&mut sa.runnable_sum, r.runnable_avg * d);
        sa.runnable_sum = at_least(sa.runnable_sum, u64::from(sa.runnable_avg));
        // Runnable is load without weight: what the group entity above loses.
        self.propagate = true;
        self.prop_runnable_sum += -((r.runnable_avg * d) as i64) >> 10;
    }
}

impl Fair {
    /// `update_load_avg` of `se` and its queue.
    #[inline]
    pub(crate) fn update_load_avg(&mut self, cx: &mut Cx, se: SeId, flags: UpdateFlags) {
        let e = &mut self.ses[se.ix()];
        let (cfs, my_q) = (e.cfs_rq, e.my_q);
        let q = &self.cfs[cfs.ix()];
        let (now, running) = (cx.sh.rqs[q.cpu.ix()].clock, q.curr == se);
        let attached = e.avg.last_update_time != Ns::ZERO;
        if attached {
            let below = if my_q.is_some() { self.cfs[my_q.ix()].runnable_weight } else { 0 };
            e.age(now, running, below);
        }
        let before = self.cfs[cfs.ix()].avg.last_update_time;
        let mut decayed = self.cfs[cfs.ix()].update_load_avg(now);
        if self.is_root(cfs) && self.cfs[cfs.ix()].avg.last_update_time != before {
            // Who reads these averages misses from now on. What the writer waits for is among the
            // queue's lines, which come with the lock.
            cx.machine.write(Line::RqLoad(Cpu::from_ix(cfs.ix())), cx.cpu);
        }
        if my_q.is_some() && self.cfs[my_q.ix()].propagate {
            self.propagate_entity_load_avg(my_q, se);
            decayed = true;
        }
        if flags.attach && !attached {
            self.attach_entity_load_avg(se);
            self.update_tg_load_avg(cx, cfs);
        } else if flags.detach {
            self.detach_entity_load_avg(se);
            self.update_tg_load_avg(cx, cfs);
        } else if decayed {
            if flags.tg {
                self.update_tg_load_avg(cx, cfs);
            }
        } else {
            return;
        }
        self.mirror_averages(cx.sh, cfs);
    }

    /// `propagate_entity_load_avg`: a group entity takes over what changed in the queue below it.
    #[inline(never)]
    fn propagate_entity_load_avg(&mut self, child: CfsId, se: SeId) {
        let cfs = self.ses[se.ix()].cfs_rq;
        let c = &mut self.cfs[child.ix()];
        c.propagate = false;
        let mut runnable_sum = std::mem::take(&mut c.prop_runnable_sum);
        let (util, runnable) = (c.avg.util_avg, c.avg.runnable_avg);
        let (child_load_sum, child_weight) = (c.avg.load_sum, scale_load_down(c.load_weight));
        let e = &mut self.ses[se.ix()];
        let q = &mut self.cfs[cfs.ix()];
        q.propagate = true;
        q.prop_runnable_sum += runnable_sum;
        let d = pelt::divider(&q.avg);

        let delta = i64::from(util) - i64::from(e.avg.util_avg);
        if delta != 0 {
            let sum = (u64::from(util) * d) as u32;
            let delta_sum = i64::from(sum) - i64::from(e.avg.util_sum);
            (e.avg.util_avg, e.avg.util_sum) = (util, sum);
            q.avg.util_avg = add(u64::from(q.avg.util_avg), delta) as u32;
            let sum = add(u64::from(q.avg.util_sum), delta_sum);
            q.avg.util_sum = at_least(sum, u64::from(q.avg.util_avg)) as u32;
        }
        let delta = i64::from(runnable) - i64::from(e.avg.runnable_avg);
        if delta != 0 {
            let sum = u64::from(runnable) * d;
            let delta_sum = sum as i64 - e.avg.runnable_sum as i64;
            (e.avg.runnable_avg, e.avg.runnable_sum) = (runnable, sum);
            q.avg.runnable_avg = add(u64::from(q.avg.runnable_avg), delta) as u32;
            let sum = add(q.avg.runnable_sum, delta_sum);
            q.avg.runnable_sum = at_least(sum, u64::from(q.avg.runnable_avg));
        }
        if runnable_sum == 0 {
            return;
        }
        if runnable_sum >= 0 {
            // Until the CPU is saturated runnable time adds up; after that it is all of the time.
            runnable_sum = (runnable_sum + e.avg.load_sum as i64).min(d as i64);
        } else {
            // What is left, if all tasks below are equally runnable; never more than before.
            let estimate = child_load_sum.checked_div(child_weight).unwrap_or(0);
            runnable_sum = (e.avg.load_sum as i64).min(estimate as i64);
        }
        let running_sum = i64::from(e.avg.util_sum >> 10);
        let runnable_sum = runnable_sum.max(running_sum) as u64;
        let w = e.load();
        let load_avg = w * runnable_sum / d;
        let delta = load_avg as i64 - e.avg.load_avg as i64;
        if delta == 0 {
            return;
        }
        let delta_sum = (w * runnable_sum) as i64 - (w * e.avg.load_sum) as i64;
        e.avg.load_sum = runnable_sum;
        e.avg.load_avg = load_avg;
        q.avg.load_avg = add(q.avg.load_avg, delta);
        q.avg.load_sum = at_least(add(q.avg.load_sum, delta_sum), q.avg.load_avg);
    }

    /// `attach_entity_load_avg`: the entity's averages join its queue's.
    #[inline(never)]
    pub fn attach_entity_load_avg(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        let d = pelt::divider(&q.avg);
        let w = e.load();
        let sa = &mut e.avg;
        sa.last_update_time = q.avg.last_update_time;
        sa.period_contrib = q.avg.period_contrib;
        sa.util_sum = (u64::from(sa.util_avg) * d) as u32;
        sa.runnable_sum = u64::from(sa.runnable_avg) * d;
        let sum = sa.load_avg * d;
        sa.load_sum = if w < sum { sum / w } else { 1 };
        q.avg.load_avg += sa.load_avg;
        q.avg.load_sum += w * sa.load_sum;
        q.avg.util_avg += sa.util_avg;
        q.avg.util_sum += sa.util_sum;
        q.avg.runnable_avg += sa.runnable_avg;
        q.avg.runnable_sum += sa.runnable_sum;
        q.propagate = true;
        q.prop_runnable_sum += sa.load_sum as i64;
    }

    /// `detach_entity_load_avg`: the reverse; the entity belongs to no queue afterwards.
    #[inline(never)]
    pub fn detach_entity_load_avg(&mut self, se: SeId) {
        self.dequeue_load_avg(se);
        let e = &mut self.ses[se.ix()];
        let q = &mut self.cfs[e.cfs_rq.ix()];
        let (sa, a) = (&mut q.avg, &mut e.avg);
        sub32(&mut sa.util_avg, u64::from(a.util_avg));
        sub32(&mut sa.util_sum, u64::from(a.util_sum));
        sa.util_sum = at_least(u64::from(sa.util_sum), u64::from(sa.util_avg)) as u32;
        sub32(&mut sa.runnable_avg, u64::from(a.runnable_avg));
        sub(&mut sa.runnable_sum, a.runnable_sum);
        sa.runnable_sum = at_least(sa.runnable_sum, u64::from(sa.runnable_avg));
        q.propagate = true;
        q.prop_runnable_sum -= a.load_sum as i64;
        a.last_update_time = Ns::ZERO;
    }

    /// Takes the entity's load (not its utilisation) off its queue.
    #[inline]
    pub(crate) fn dequeue_load_avg(&mut self, se: SeId) {
        let e = &self.ses[se.ix()];
        let sa = &mut self.cfs[e.cfs_rq.ix()].avg;
        sub(&mut sa.load_avg, e.avg.load_avg);
        sub(&mut sa.load_sum, e.load() * e.avg.load_sum);
        sa.load_sum = at_least(sa.load_sum, sa.load_avg);
    }

    /// Adds the entity's load to its queue after a change of weight.
    #[inline]
    pub(crate) fn enqueue_load_avg(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        let w = e.load();
        e.avg.load_avg = w * e.avg.load_sum / pelt::divider(&e.avg);
        let sa = &mut self.cfs[e.cfs_rq.ix()].avg;
        sa.load_avg += e.avg.load_avg;
        sa.load_sum += w * e.avg.load_sum;
    }

    /// `sync_entity_load_avg`: ages a sleeping entity to the last update of its queue.
    pub fn sync_entity_load_avg(&mut self, se: SeId) {
        let queue = self.cfs[self.ses[se.ix()].cfs_rq.ix()].avg.last_update_time;
        self.decay_sleeper(se, queue);
    }

    /// `__update_load_avg_blocked_se`: brings the averages of an entity that is not queued to
    /// `now`. That is no use of the CPU: the estimate stays as it is.
    pub fn decay_sleeper(&mut self, se: SeId, now: Ns) {
        let e = &mut self.ses[se.ix()];
        if e.avg.last_update_time != Ns::ZERO && pelt::update_sum(now, &mut e.avg, 0, 0, false) {
            let w = e.load();
            pelt::update_avg(&mut e.avg, w);
        }
    }

    /// `remove_entity_load_avg`: a sleeper leaves; its queue subtracts its share later.
    pub fn remove_entity_load_avg(&mut self, se: SeId) {
        if self.ses[se.ix()].avg.last_update_time == Ns::ZERO {
            return;
        }
        self.sync_entity_load_avg(se);
        let e = &self.ses[se.ix()];
        let r = &mut self.cfs[e.cfs_rq.ix()].removed;
        r.nr += 1;
        r.util_avg += u64::from(e.avg.util_avg);
        r.load_avg += e.avg.load_avg;
        r.runnable_avg += u64::from(e.avg.runnable_avg);
    }

    /// `init_entity_runnable_average` of a new task: it starts with the load of its weight.
    pub fn init_entity_runnable_average(&mut self, se: SeId) {
        let e = &mut self.ses[se.ix()];
        e.avg = super::SchedAvg { load_avg: e.load(), ..Default::default() };
    }

    /// `post_init_entity_util_avg`: what a new task is expected to use, when its CPU is known.
    pub(crate) fn post_init_entity_util_avg(&mut self, sh: &Shared, se: SeId) {
        let e = &mut self.ses[se.ix()];
        let q = &self.cfs[e.cfs_rq.ix()].avg;
        let cap = (1024 - i64::from(q.util_avg)) / 2;
        if cap > 0 {
            let cap = cap as u64;
            e.avg.util_avg = if q.util_avg == 0 {
                cap as u32
            } else {
                let w =
                    if sh.release.new_task_util_scaled { e.load() } else { u64::from(e.weight) };
                (u64::from(q.util_avg) * w / (q.load_avg + 1)).min(cap) as u32
            };
        }
        e.avg.runnable_avg = e.avg.util_avg;
    }

    /// `update_blocked_averages`: brings all queues of `cpu` that still decay up to date, and
    /// forgets those that are down to nothing. True if something is left to decay.
    pub fn update_blocked_averages(&mut self, cx: &mut Cx, cpu: Cpu) -> bool {
        let rq = &mut cx.sh.rqs[cpu.ix()];
        rq.update_clock(cx.now);
        let now = rq.clock;
        let mut left = false;
        let mut i = 0;
        while i < self.leaf_lists[cpu.ix()].len() {
            let cfs = self.leaf_lists[cpu.ix()][i];
            if self.cfs[cfs.ix()].update_load_avg(now) {
                self.update_tg_load_avg(cx, cfs);
            }
            let q = &self.cfs[cfs.ix()];
            let (se, propagate) = (q.se, q.propagate);
            if se.is_some() {
                let a = &self.ses[se.ix()].avg;
                if a.load_avg != 0 || a.util_avg != 0 || propagate {
                    let sums = cx.sh.release.blocked_updates_parent_sum;
                    self.update_load_avg(cx, se, if sums { UPDATE_TG } else { AGE });
                }
            }
            let q = &self.cfs[cfs.ix()];
            let a = &q.avg;
            left |= a.load_avg != 0 || a.util_avg != 0;
            let counted = q.tg_load_avg_contrib != 0 && cx.sh.release.leaf_stays_while_contributing;
            let nothing = a.load_sum == 0 && a.util_sum == 0 && a.runnable_sum == 0;
            let decayed = nothing && !counted;
            if decayed && q.load_weight == 0 && !self.child_is_on_list(cfs, i) {
                self.cfs[cfs.ix()].on_list = false;
                self.leaf_lists[cpu.ix()].remove(i);
            } else {
                i += 1;
            }
        }
        self.mirror_averages(cx.sh, CfsId(u32::from(cpu.0)));
        let jiffy = cx.jiffies();
        let rq = &mut cx.sh.rqs[cpu.ix()];
        rq.last_blocked_update = jiffy;
        rq.has_blocked_load &= left;
        left
    }

    /// `child_cfs_rq_on_list`: a queue that stands before place `i` passes its changes on to `cfs`.
    fn child_is_on_list(&self, cfs: CfsId, i: usize) -> bool {
        let list = &self.leaf_lists[self.cfs[cfs.ix()].cpu.ix()];
        list[..i].iter().any(|c| self.ses[self.cfs[c.ix()].se.ix()].cfs_rq == cfs)
    }

    /// `list_add_leaf_cfs_rq`: the queue and its ancestors decay from now on.
    pub(crate) fn list_add_leaf_cfs_rq(&mut self, mut cfs: CfsId) {
        loop {
            let q = &mut self.cfs[cfs.ix()];
            if !q.on_list {
                q.on_list = true;
                let (cpu, level) = (q.cpu.ix(), self.level(cfs));
                let list = &self.leaf_lists[cpu];
                let at = list.iter().position(|&c| self.level(c) <= level).unwrap_or(list.len());
                self.leaf_lists[cpu].insert(at, cfs);
            }
            let se = self.cfs[cfs.ix()].se;
            if se.is_none() {
                return;
            }
            cfs = self.ses[se.ix()].cfs_rq;
        }
    }

    /// Distance of a queue from the root queue.
    fn level(&self, cfs: CfsId) -> u8 {
        let se = self.cfs[cfs.ix()].se;
        if se.is_some() { self.ses[se.ix()].depth + 1 } else { 0 }
    }

    /// What the rest of the system reads of a CPU's load.
    #[inline]
    pub(crate) fn mirror_averages(&self, sh: &mut Shared, cfs: CfsId) {
        if self.is_root(cfs) {
            let a = &self.cfs[cfs.ix()].avg;
            let l = &mut sh.loads[cfs.ix()];
            l.load_avg = a.load_avg;
            l.util_avg = a.util_avg;
            l.runnable_avg = a.runnable_avg;
        }
    }

    /// What the rest of the system reads of a CPU's number of fair tasks.
    #[inline]
    pub(crate) fn mirror_counts(&self, sh: &mut Shared, cpu: Cpu) {
        let q = &self.cfs[cpu.ix()];
        let l = &mut sh.loads[cpu.ix()];
        l.h_nr_queued = q.h_nr_queued;
        l.h_nr_delayed = q.h_nr_queued - q.h_nr_runnable;
        l.idle_h_nr = q.idle_h_nr;
    }

    /// `task_h_load`: the part of the CPU's load that is `p`'s, through all groups. The queues'
    /// shares are computed at most once a jiffy.
    pub fn task_h_load(&mut self, cx: &mut Cx, p: TaskId) -> u64 {
        let se = cx.sh.tasks[p.ix()].se;
        let jiffy = cx.jiffies();
        let cfs = self.ses[se.ix()].cfs_rq;
        let h = self.h_load(cfs, jiffy);
        self.ses[se.ix()].avg.load_avg * h / (self.cfs[cfs.ix()].avg.load_avg + 1)
    }

    fn h_load(&mut self, cfs: CfsId, jiffy: u64) -> u64 {
        let q = &self.cfs[cfs.ix()];
        if q.last_h_load_update == jiffy {
            return q.h_load;
        }
        let h = if q.se.is_none() {
            q.avg.load_avg
        } else {
            let e = &self.ses[q.se.ix()];
            let (load, parent) = (e.avg.load_avg, e.cfs_rq);
            self.h_load(parent, jiffy) * load / (self.cfs[parent.ix()].avg.load_avg + 1)
        };
        let q = &mut self.cfs[cfs.ix()];
        (q.h_load, q.last_h_load_update) = (h, jiffy);
        h
    }

    /// `_task_util_est`: the estimate alone.
    #[inline]
    pub(crate) fn estimate(sh: &Shared, p: TaskId) -> u32 {
        let t = &sh.tasks[p.ix()];
        t.util_est_ewma.max(t.util_est_enqueued)
    }

    /// `task_util_est`: the larger of utilisation and its estimate.
    pub fn task_util_est(&self, sh: &Shared, p: TaskId) -> u32 {
        self.ses[sh.tasks[p.ix()].se.ix()].avg.util_avg.max(Self::estimate(sh, p))
    }

    #[inline]
    pub(crate) fn util_est_enqueue(&mut self, sh: &mut Shared, cpu: Cpu, p: TaskId) {
        if sh.release.util_est {
            let q = &mut self.cfs[cpu.ix()];
            q.util_est_enqueued += Self::estimate(sh, p);
            sh.loads[cpu.ix()].util_est = q.util_est_enqueued;
        }
    }

    #[inline]
    pub(crate) fn util_est_dequeue(&mut self, sh: &mut Shared, cpu: Cpu, p: TaskId) {
        if sh.release.util_est {
            let q = &mut self.cfs[cpu.ix()];
            q.util_est_enqueued = q.util_est_enqueued.saturating_sub(Self::estimate(sh, p));
            sh.loads[cpu.ix()].util_est = q.util_est_enqueued;
        }
    }

    /// `util_est_update` at the end of an activation.
    #[inline]
    pub(crate) fn util_est_update(&mut self, sh: &mut Shared, p: TaskId) {
        let t = &mut sh.tasks[p.ix()];
        estimate_update(&sh.release, t, &mut self.ses[t.se.ix()]);
    }

    /// Brings the averages of `se`, if they are attached, and of its queue to `now`, without what a
    /// change means to groups.
    pub fn age(&mut self, now: Ns, se: SeId) {
        let e = &mut self.ses[se.ix()];
        let running = self.cfs[e.cfs_rq.ix()].curr == se;
        if e.avg.last_update_time != Ns::ZERO {
            let below = if e.is_task() { 0 } else { self.cfs[e.my_q.ix()].runnable_weight };
            e.age(now, running, below);
        }
        self.cfs[e.cfs_rq.ix()].update_load_avg(now);
    }
}

/// `util_est_update`: `t` has slept since its entity `e` last used the CPU.
#[inline]
pub fn estimate_update(k: &Release, t: &mut Task, e: &mut Entity) {
    if !k.util_est || !e.util_changed {
        return;
    }
    let (util, runnable) = (e.avg.util_avg, e.avg.runnable_avg);
    if k.util_est_single {
        if t.util_est_ewma <= util {
            t.util_est_ewma = util;
        } else {
            let diff = t.util_est_ewma - util;
            // Less use while the task had to wait for the CPU says nothing about its needs.
            if diff >= UTIL_EST_MARGIN && util + UTIL_EST_MARGIN >= runnable {
                t.util_est_ewma = (4 * t.util_est_ewma - diff) / 4;
            }
        }
        e.util_changed = false;
        return;
    }
    let last = std::mem::replace(&mut t.util_est_enqueued, util);
    if t.util_est_ewma < util {
        t.util_est_ewma = util;
    } else if t.util_est_ewma - util < UTIL_EST_MARGIN {
        if last.abs_diff(util) < UTIL_EST_MARGIN {
            // Nothing worth storing: the next dequeue looks again.
            t.util_est_enqueued = last;
            return;
        }
    } else {
        t.util_est_ewma = (3 * t.util_est_ewma + util) / 4;
    }
    e.util_changed = false;
}
