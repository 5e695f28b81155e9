//! `try_to_wake_up`: whom, where to, and how the wakee gets there.
//!
//! *What.* Three separate moments: the choice of a CPU, the queueing there (by the wake list or by
//! the remote lock), and the enqueue under the lock. A task that is still queued, or still on its
//! CPU, takes its own paths.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/core.c `try_to_wake_up`, `ttwu_queue`.
//! *Equations.* Wake list or remote lock: see `vruntime_sched::ttwu_queue`. What is changed under a
//! run queue's lock is changed in one event, but seen without the lock when it is done
//! (`vruntime_sched::task::Unfinished`): by the choice of a CPU, and by the test for the wake list.
//! *Departures.* D1: a wakee on its way off a CPU whose wake list may not be used is spun for in
//! one step once that CPU has chosen its next task; until then the waker looks every 200 ns.
//! D2: `pi_lock` is part of the wakee's lines. D3: `p->on_rq` is zero from the beginning of a
//! dequeue on, as up to 6.11; later kernels clear it at the end, and a waker that comes in between
//! waits for the lock where the model may hand the wakee over. D4: fork and exec see everything at
//! once, as everybody does of moves between queues; `ttwu_pending` is seen from the event on that
//! sets it.
//! *Example.* A write to a pipe whose reader sleeps on an idle CPU of the same LLC: choose
//! (reader's CPU), wake list, the idle CPU leaves its loop, enqueues, switches.

use crate::frame::{Frame, Ipi, WakeOp};
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::variation::Knockout;
use vruntime_base::{Cpu, Event, EventKind, Func, Ns, Resource, TaskId};
use vruntime_sched::cx::Shared;
use vruntime_sched::release::{TtwuListOrder, TtwuPendingClear, TtwuPendingSeen};
use vruntime_sched::scheduler::{EnqueueFlags, WakeFlags};
use vruntime_sched::task::{Policy, TaskState, Unfinished};
use vruntime_sched::ttwu_queue::ttwu_queue_cond;

/// How often a waker that spins for `p->on_cpu` looks again, in the model.
const ON_CPU_LOOK: Ns = Ns(200);
/// Lines of a task that its new CPU fetches from the waker's (estimate: 3 to 5).
const TASK_LINES: u64 = 4;

impl Sim {
    /// Plans the wakeups in `CpuSim::wakes` at `at`; afterwards `then` acts on the same level.
    pub(crate) fn plan_wakes(&mut self, c: Cpu, at: Ns, then: Frame) {
        let cpu = &mut self.cpus[c.ix()];
        if cpu.wakes.is_empty() {
            self.unlock_queue(c, at);
            self.plan(c, at, then);
            return;
        }
        cpu.after_wake[cpu.level as usize] = then;
        cpu.irqs_off();
        self.plan(c, at, Frame::Wake);
    }

    /// This wakeup is done at `at`: the next one, or what comes after them.
    fn wake_done(&mut self, c: Cpu, at: Ns) {
        let at = self.carry_out_resched(c, at);
        let cpu = &mut self.cpus[c.ix()];
        if cpu.wakes.is_empty() {
            let then = cpu.after_wake[cpu.level as usize];
            self.unlock_queue(c, at);
            let cpu = &mut self.cpus[c.ix()];
            // Newidle balancing has told a stopper: interrupts stay off until the switch.
            if cpu.level > 0 || then != Frame::Balance {
                cpu.irqs_on(at);
            }
            self.plan(c, at, then);
        } else {
            self.plan(c, at, Frame::Wake);
        }
    }

    /// `try_to_wake_up` (or `wake_up_new_task`) begins.
    pub(crate) fn wake_begin(&mut self, c: Cpu) {
        let first = self.cpus[c.ix()].wakes.pop_front();
        let (p, sync) = first.expect("a wakeup was planned for somebody");
        let t = &self.sh.tasks[p.ix()];
        let (state, prev) = (t.state, t.cpu);
        let mut at = self.now;
        if state == TaskState::New {
            self.wake_new(c, p);
            return;
        }
        let lines = self.task_lines(1, self.tasks[p.ix()].last_cpu, c);
        at += self.waited(c, Func::TryToWakeUp, Resource::TaskLine, lines);
        at += self.work(c, Func::TryToWakeUp, self.machine.costs.ttwu);
        if matches!(state, TaskState::Running | TaskState::Waking | TaskState::Dead) {
            self.wake_done(c, at);
            return;
        }
        self.stats.count.wakeups += 1;
        self.tasks[p.ix()].woken_at = self.now;
        self.trace(Event {
            a: u32::from(prev.0),
            b: self.curr(c).0,
            ..Event::new(self.now, c, EventKind::Waking, p)
        });
        self.cpus[c.ix()].wake = WakeOp { p, target: prev, sync, migrated: false, new: false };
        if self.sh.tasks[p.ix()].on_rq {
            self.wake_on_rq(c, prev, at);
        } else {
            self.wake_off_rq(c, at);
        }
    }

    /// The wakee was queued on `rq` when `c` looked.
    fn wake_on_rq(&mut self, c: Cpu, rq: Cpu, at: Ns) {
        self.cpus[c.ix()].wake.target = rq;
        self.lock_rq(c, rq, at, Under::WakeRunnable);
    }

    /// The wakee is not queued: from here on nobody else wakes it. It may be on its CPU still.
    fn wake_off_rq(&mut self, c: Cpu, at: Ns) {
        let wake = &mut self.cpus[c.ix()].wake;
        let t = &mut self.sh.tasks[wake.p.ix()];
        wake.target = t.cpu;
        t.state = TaskState::Waking;
        self.wake_off_cpu(c, at, true);
    }

    /// The spinning waker looks again.
    pub(crate) fn wake_look(&mut self, c: Cpu) {
        self.wake_off_cpu(c, self.now, false);
    }

    /// Hands the wakee over to the CPU that it has not left yet, or waits until it has and chooses.
    /// Who spins for it has found that the wake list may not be used.
    fn wake_off_cpu(&mut self, c: Cpu, mut at: Ns, first_look: bool) {
        let WakeOp { p, target: prev, sync, .. } = self.cpus[c.ix()].wake;
        let on_cpu_until = self.sh.tasks[p.ix()].on_cpu_until;
        let handover = first_look
            && self.sh.release.ttwu_on_cpu_handover
            && self.wants_wake_list(c, prev, true, at);
        if on_cpu_until >= Ns::NEVER && !handover {
            // Its CPU is still looking for something else to run: spin until it has switched.
            at += self.waited(c, Func::TryToWakeUp, Resource::OnCpu, ON_CPU_LOOK);
            self.plan(c, at, Frame::WakeLook);
            return;
        }
        if on_cpu_until > at {
            if handover {
                self.stats.count.wakeups_on_cpu += 1;
                self.queue_on_list(c, at);
                return;
            }
            at += self.waited(c, Func::TryToWakeUp, Resource::OnCpu, on_cpu_until - at);
        }
        let wake_cpu = self.sh.tasks[p.ix()].wake_cpu;
        let flags = WakeFlags { sync, ..WakeFlags::default() };
        let (place, cost) = self.hook(c, at, |s, cx| s.select_task_rq(cx, p, wake_cpu, flags));
        at += cost;
        self.stats.placements.count(place.rule);
        let wake = &mut self.cpus[c.ix()].wake;
        wake.target = place.cpu;
        wake.migrated = place.cpu != prev;
        if wake.migrated {
            self.stats.migrations.count(place.rule);
            self.note_migration(p, c, prev, place.cpu, at, place.rule);
        }
        self.plan(c, at, Frame::WakeQueue);
    }

    /// A new task: choose, then enqueue under the lock of the CPU chosen.
    fn wake_new(&mut self, c: Cpu, p: TaskId) {
        let prev = self.sh.tasks[p.ix()].cpu;
        let flags = WakeFlags { fork: true, ..WakeFlags::default() };
        let (place, cost) = self.hook(c, self.now, |s, cx| s.select_task_rq(cx, p, prev, flags));
        self.stats.placements.count(place.rule);
        let t = &mut self.sh.tasks[p.ix()];
        t.cpu = place.cpu;
        t.wake_cpu = place.cpu;
        t.recent_used_cpu = prev;
        self.tasks[p.ix()].woken_at = self.now;
        self.cpus[c.ix()].wake =
            WakeOp { p, target: place.cpu, sync: false, migrated: false, new: true };
        let ((), cost2) = self.hook(c, self.now + cost, |s, cx| s.task_fork_place(cx, p));
        let at = self.carry_out_resched(c, self.now + cost + cost2);
        self.plan(c, at, Frame::WakeQueue);
    }

    /// The CPU is chosen: `set_task_cpu` and `ttwu_queue`.
    pub(crate) fn wake_queue(&mut self, c: Cpu) {
        let mut at = self.now;
        let WakeOp { p, target, migrated, new, .. } = self.cpus[c.ix()].wake;
        if migrated {
            let ((), cost) = self.hook(c, at, |s, cx| s.migrate_task_rq(cx, p, target));
            at += cost;
            let t = &mut self.sh.tasks[p.ix()];
            t.cpu = target;
            t.wake_cpu = target;
        }
        if !new && self.wants_wake_list(c, target, false, at) {
            self.queue_on_list(c, at);
            return;
        }
        self.lock_rq(c, target, at, Under::Wake);
    }

    /// See [`vruntime_sched::ttwu_queue`].
    #[inline]
    fn wants_wake_list(&self, c: Cpu, target: Cpu, on_cpu: bool, at: Ns) -> bool {
        let Shared { release, domains, tasks, .. } = &self.sh;
        let stopper = tasks[self.cpus[c.ix()].wake.p.ix()].policy == Policy::Stop;
        let nr_running = self.sh.seen_nr_running(target, at);
        ttwu_queue_cond(release, domains, c, target, stopper, nr_running, on_cpu)
    }

    /// `__ttwu_queue_wakelist`: the wakee goes on the target's list; the target is told if the
    /// list was empty.
    fn queue_on_list(&mut self, c: Cpu, mut at: Ns) {
        let WakeOp { p, target, migrated, .. } = self.cpus[c.ix()].wake;
        self.stats.count.wakeups_queued += 1;
        self.ttwu_stat(c, target);
        at += self.work(c, Func::TtwuQueue, self.machine.costs.wake_list_push);
        let lines = self.rq_lines(2, target, c);
        at += self.waited(c, Func::TtwuQueue, Resource::RqLine, lines);
        self.sh.rqs[target.ix()].ttwu_pending =
            self.sh.release.ttwu_pending != TtwuPendingSeen::Nowhere;
        let cpu = &mut self.cpus[target.ix()];
        cpu.wake_list.push((p, migrated, c));
        if cpu.wake_list.len() == 1 {
            at = self.notify(c, target, at, Ipi::Call);
        }
        self.wake_done(c, at);
    }

    /// `n` lines of a task go from `from` to `to`.
    fn task_lines(&self, n: u64, from: Cpu, to: Cpu) -> Ns {
        let free = self.without.has(Knockout::TaskLine);
        if free { Ns::ZERO } else { Ns(n * self.transfer(from, to).0) }
    }

    /// `n` lines of a run queue go from `from` to `to`.
    fn rq_lines(&self, n: u64, from: Cpu, to: Cpu) -> Ns {
        let free = self.without.has(Knockout::RqLine);
        if free { Ns::ZERO } else { Ns(n * self.transfer(from, to).0) }
    }

    /// `ttwu_do_activate` on the target's run queue, whose lock `c` holds.
    pub(crate) fn wake_activate(&mut self, c: Cpu, mut at: Ns) {
        let op = self.cpus[c.ix()].wake;
        at += self.fetch_wakee(c, op.p);
        at = self.activate(c, op, at);
        if !op.new {
            self.ttwu_stat(c, op.target);
        }
        let at = self.unlock_rq(c, op.target, at);
        self.wake_done(c, at);
    }

    /// Enqueues the wakee, with the preemption check; executed by `c` under the target's lock.
    fn activate(&mut self, c: Cpu, op: WakeOp, at: Ns) -> Ns {
        let WakeOp { p, target, sync, migrated, new } = op;
        self.update_rq_clock(target, at);
        let flags =
            EnqueueFlags { wakeup: !new, migrated, initial: new, ..EnqueueFlags::default() };
        let wake = WakeFlags { sync, fork: new, ..WakeFlags::default() };
        self.sh.tasks[p.ix()].state = TaskState::Running;
        let before = self.sh.loads[target.ix()].nr_running;
        let (counted, cost) = self.hook(c, at, |s, cx| {
            s.enqueue_task(cx, target, p, flags);
            cx.sh.tasks[p.ix()].on_rq = true;
            let counted = cx.cost;
            s.wakeup_preempt(cx, target, p, wake);
            counted
        });
        self.counts_at(target, at + counted, before);
        let k = &mut self.tasks[p.ix()];
        k.runnable_since = at + cost;
        k.waits_for = crate::task::WaitsFor::Nothing;
        if !new {
            self.sh.rqs[target.ix()].update_avg_idle(at);
        }
        let kind = if new { EventKind::WakeupNew } else { EventKind::Wakeup };
        self.trace(Event { a: u32::from(target.0), ..Event::new(at + cost, c, kind, p) });
        if !self.sh.tasks[p.ix()].policy.is_fair() {
            self.take_moved(c, at + cost);
        }
        at + cost
    }

    /// What is seen of `rq` while it is being changed; nothing if changes are seen at once.
    pub(crate) fn unfinished(&mut self, rq: Cpu) -> Option<&mut Unfinished> {
        (!self.without.has(Knockout::StaleRq)).then(|| &mut self.sh.rqs[rq.ix()].unfinished)
    }

    /// Tasks may have come to `rq` or gone: they are counted at `done`, where there were `before`.
    pub(crate) fn counts_at(&mut self, rq: Cpu, done: Ns, before: u32) {
        let (now, after) = (self.now, self.sh.loads[rq.ix()].nr_running);
        if after != before
            && let Some(u) = self.unfinished(rq)
        {
            u.counts_at(now, done, before, after > before);
        }
    }

    /// `ttwu_runnable`: the wakee is still queued; if it is still so under the lock, it only
    /// becomes runnable again.
    pub(crate) fn wake_runnable(&mut self, c: Cpu, mut at: Ns) {
        let WakeOp { p, target, sync, .. } = self.cpus[c.ix()].wake;
        self.update_rq_clock(target, at);
        let t = &self.sh.tasks[p.ix()];
        let (on_rq, cpu, state) = (t.on_rq, t.cpu, t.state);
        if !on_rq || cpu != target {
            // It left the queue while we waited for the lock.
            self.hold_rq(c, target, at);
            match state {
                TaskState::Waking | TaskState::Dead => self.wake_done(c, at),
                _ if on_rq => self.wake_on_rq(c, cpu, at),
                _ => self.wake_off_rq(c, at),
            }
            return;
        }
        self.stats.count.wakeups_on_rq += 1;
        self.ttwu_stat(c, target);
        let delayed = self.sched.is_delayed(&self.sh, p);
        let running = self.curr(target) == p;
        let skip = running && self.sh.release.ttwu_runnable_skip_curr;
        self.sh.tasks[p.ix()].state = TaskState::Running;
        if delayed {
            at += self.fetch_wakee(c, p);
        }
        let ((), cost) = self.hook(c, at, |s, cx| {
            if delayed {
                let flags = EnqueueFlags { delayed: true, ..EnqueueFlags::default() };
                s.enqueue_task(cx, target, p, flags);
            }
            if !skip {
                s.wakeup_preempt(cx, target, p, WakeFlags { sync, ..WakeFlags::default() });
            }
        });
        at += cost;
        self.trace(Event { a: u32::from(target.0), ..Event::new(at, c, EventKind::Wakeup, p) });
        if running {
            self.tasks[p.ix()].woken_at = Ns::ZERO;
        } else {
            self.tasks[p.ix()].runnable_since = at;
        }
        self.tasks[p.ix()].waits_for = crate::task::WaitsFor::Nothing;
        if self.sh.release.ttwu_runnable_full {
            self.sh.rqs[target.ix()].update_avg_idle(at);
        }
        let at = self.unlock_rq(c, target, at);
        self.wake_done(c, at);
    }

    /// `sched_ttwu_pending` begins: this CPU enqueues what is on its wake list.
    pub(crate) fn flush(&mut self, c: Cpu) {
        let cpu = &mut self.cpus[c.ix()];
        if cpu.wake_list.is_empty() {
            self.flush_done(c, self.now);
            return;
        }
        // Whoever is pushed while it waits for its lock finds the list empty and tells it anew.
        cpu.flushing.append(&mut cpu.wake_list);
        if self.sh.release.ttwu_pending_clear == TtwuPendingClear::BeforeEnqueue {
            self.sh.rqs[c.ix()].ttwu_pending = false;
        }
        self.lock_rq(c, c, self.now, Under::Flush);
    }

    pub(crate) fn flush_with_lock(&mut self, c: Cpu, mut at: Ns) {
        let mut list = std::mem::take(&mut self.cpus[c.ix()].flushing);
        if self.sh.release.ttwu_list_order == TtwuListOrder::Lifo {
            list.reverse();
        }
        for &(p, migrated, waker) in &list {
            at += self.work(c, Func::TtwuPending, self.machine.costs.flush_task);
            let lines = self.task_lines(TASK_LINES, waker, c);
            at += self.waited(c, Func::TtwuPending, Resource::TaskLine, lines);
            let op = WakeOp { p, target: c, sync: false, migrated, new: false };
            at = self.activate(c, op, at);
        }
        list.clear();
        self.cpus[c.ix()].flushing = list; // keeps the capacity
        if std::mem::take(&mut self.sh.rqs[c.ix()].ttwu_pending)
            && let Some(u) = self.unfinished(c)
        {
            u.pending_until = at;
        }
        let at = self.unlock_rq(c, c, at);
        self.flush_done(c, at);
    }

    /// After the wake list: back to where the flush was called from.
    fn flush_done(&mut self, c: Cpu, at: Ns) {
        if self.cpus[c.ix()].level == 2 {
            self.irq_exit(c, at);
        } else if std::mem::take(&mut self.cpus[c.ix()].kicked) {
            self.cpus[c.ix()].nohz_kick = true;
            self.softirq_in_idle(c, at);
        } else {
            self.plan(c, at, Frame::Schedule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;
    use crate::variation::Knockouts;

    /// CPU 0 enqueues a task on CPU 1, which then runs it until it sleeps. Whoever looks without
    /// the lock sees each change when it is complete.
    #[test]
    fn a_look_without_the_lock_sees_what_is_complete() {
        let mut s = sim("v6.5");
        let (by, on) = (Cpu(0), Cpu(1));
        let p = TaskId::from_ix(s.sh.tasks.len() - 1);
        let before = |t: Ns| Ns(t.0 - 1);
        s.sh.tasks[p.ix()].cpu = on;
        s.cpus[by.ix()].wake.p = p;
        let op = WakeOp { p, target: on, sync: false, migrated: false, new: true };
        let done = s.activate(by, op, s.now);
        assert!(done > s.now && s.sh.loads[on.ix()].nr_running == 1);
        let idle = |s: &Sim, t| s.sh.seen_idle_cpu(on, t);
        assert_eq!([before(done), done].map(|t| idle(&s, t)), [true, false]);

        s.now = done;
        s.schedule_with_lock(on, done);
        assert_eq!(s.curr(on), p);
        s.now = s.cpus[on.ix()].op_end;
        s.sh.tasks[p.ix()].state = TaskState::Interruptible;
        s.schedule_with_lock(on, s.now);
        let gone = s.sh.rqs[on.ix()].unfinished.nr_until;
        assert!(gone > s.now && s.sh.loads[on.ix()].nr_running == 0);
        let listed = |s: &Sim, t| s.wants_wake_list(by, on, true, t);
        assert_eq!([before(gone), gone].map(|t| listed(&s, t)), [false, true]);
        while s.curr(on) == p {
            s.now = s.cpus[on.ix()].op_end;
            s.act(on);
        }
        let chosen = s.sh.rqs[on.ix()].unfinished.curr_until;
        assert_eq!([before(chosen), chosen].map(|t| idle(&s, t)), [false, true]);
    }

    /// Without `stale_rq` everybody sees it when it begins.
    #[test]
    fn a_look_that_is_never_stale_sees_what_is_begun() {
        let mut s = sim("v6.5");
        s.without = Knockouts::default().with(Knockout::StaleRq);
        let p = TaskId::from_ix(s.sh.tasks.len() - 1);
        let op = WakeOp { p, target: Cpu(1), sync: false, migrated: false, new: true };
        let done = s.activate(Cpu(0), op, s.now);
        assert!(done > s.now && !s.sh.seen_idle_cpu(Cpu(1), s.now));
    }

    /// CPU 1 has a task that set its state and was not dequeued yet, and has been idle for 8 us
    /// before. Up to 6.1 the wakeup of such a task, too, counts them.
    #[test]
    fn the_wakeup_of_a_queued_task_ends_an_idle_period_up_to_6_1() {
        for (kernel, counts) in [("v6.1", true), ("v6.12", false)] {
            let mut s = sim(kernel);
            let (by, on) = (Cpu(0), Cpu(1));
            let p = TaskId::from_ix(s.sh.tasks.len() - 1);
            s.sh.tasks[p.ix()].cpu = on;
            let op = WakeOp { p, target: on, sync: false, migrated: false, new: true };
            s.now = s.activate(by, op, s.now);
            s.sh.tasks[p.ix()].state = TaskState::Interruptible;
            s.sh.rqs[on.ix()].idle_stamp = s.now;
            let before = s.sh.rqs[on.ix()].avg_idle;
            s.now += Ns(8_000);
            s.cpus[by.ix()].wakes.push_back((p, false));
            s.wake_begin(by);
            while s.sh.tasks[p.ix()].state != TaskState::Running {
                s.now = s.cpus[by.ix()].op_end;
                s.act(by);
            }
            assert_eq!(s.stats.count.wakeups_on_rq, 1);
            let rq = &s.sh.rqs[on.ix()];
            let found = (rq.avg_idle < before, rq.idle_stamp == Ns::ZERO);
            assert_eq!(found, (counts, counts), "{kernel}");
        }
    }

    /// CPU 1 takes two tasks off its wake list in one event. Kernels that clear `ttwu_pending`
    /// first let it look idle until the first one is counted; later ones never.
    #[test]
    fn a_cpu_with_a_wake_list_looks_idle_until_the_first_task_counts() {
        for (kernel, looks_idle) in [("v6.1", true), ("v6.5", false)] {
            let mut s = sim(kernel);
            let on = Cpu(1);
            let nr = s.sh.tasks.len();
            for p in [nr - 2, nr - 1].map(TaskId::from_ix) {
                s.sh.tasks[p.ix()].cpu = on;
                s.cpus[on.ix()].wake_list.push((p, false, Cpu(0)));
            }
            s.sh.rqs[on.ix()].ttwu_pending = true;
            s.flush(on);
            while s.sh.loads[on.ix()].nr_running == 0 {
                s.now = s.cpus[on.ix()].op_end;
                s.act(on);
            }
            assert_eq!(s.sh.loads[on.ix()].nr_running, 2);
            let counted = s.sh.rqs[on.ix()].unfinished.nr_until;
            let first = Ns(counted.0 - 1);
            assert!(first > s.now && counted < s.cpus[on.ix()].op_end);
            let idle = [first, counted].map(|t| s.sh.seen_idle_cpu(on, t));
            assert_eq!(idle, [looks_idle, false], "{kernel}");
        }
    }

    /// CPU 1 has taken a task off its wake list and waits for its lock; the list is empty, so who
    /// pushes the next one tells it anew, and that one waits for another look.
    #[test]
    fn who_is_pushed_while_the_list_is_being_emptied_is_told_of_anew() {
        let mut s = sim("v6.5");
        let (c, on) = (Cpu(0), Cpu(1));
        let nr = s.sh.tasks.len();
        let [p, q] = [nr - 2, nr - 1].map(TaskId::from_ix);
        for task in [p, q] {
            s.sh.tasks[task.ix()].cpu = on;
        }
        s.cpus[on.ix()].wake_list.push((p, false, c));
        s.flush(on);
        assert!(s.cpus[on.ix()].wake_list.is_empty());
        let told = s.stats.count.ipis;
        s.cpus[c.ix()].wake = WakeOp { p: q, target: on, sync: false, migrated: false, new: false };
        s.queue_on_list(c, s.now);
        assert_eq!(s.stats.count.ipis, told + 1);
        while s.sh.loads[on.ix()].nr_running == 0 {
            s.now = s.cpus[on.ix()].op_end;
            s.act(on);
        }
        assert_eq!((s.sh.loads[on.ix()].nr_running, s.cpus[on.ix()].wake_list.len()), (1, 1));
    }
}
