//! `fork`, `exit` and `wait`.
//!
//! *What.* A child is made, placed by the slow path and enqueued; it begins with page faults: of
//! its new stack, a process also of what it shares with its parent for reading only. An exiting
//! task gives up its address space, goes from its autogroup to the root group (which asks for a
//! reschedule of its CPU), tells its parent and leaves for good.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/fork.c `copy_process`, kernel/exit.c `do_exit`,
//! kernel/sched/core.c `wake_up_new_task`, kernel/sched/autogroup.c `sched_autogroup_exit_task`,
//! mm/memory.c `do_wp_page`; recordings of 6.12 (the flag that is set when the parent is woken).
//! *Equations.* None.
//! *Departures.* D1: the memory of a child is shared in the model; a process copies all that it is
//! going to write when it begins. D2: task numbers are not used again.
//! *Example.* hackbench's main forks 40 children per group, then waits for each.

use crate::frame::Frame;
use crate::program::ChannelId;
use crate::program::{Op, ProgramId, Regs};
use crate::rq_lock::Under;
use crate::sim::Sim;
use crate::task::{KTask, Step, WaitsFor};
use vruntime_base::{Cpu, Func, Ns, TaskId};
use vruntime_sched::fair::SeId;
use vruntime_sched::task::TaskState;

/// The kernel's half of a task that does not exist yet.
pub(crate) fn blank_ktask(program: ProgramId, regs: Regs, parent: TaskId) -> KTask {
    KTask {
        step: Step::NextOp,
        op: Op::Yield,
        remaining: Ns::ZERO,
        remaining_entry: 0,
        done: 0,
        program,
        regs,
        parent,
        nr_children: 0,
        waits_for: WaitsFor::Nothing,
        wait_next: TaskId::NONE,
        exclusive: false,
        wake_next: false,
        sched_migrated: false,
        was_edge: false,
        again: false,
        multi_threaded: false,
        got: false,
        ends_run: false,
        footprint_kib: 0,
        last_cpu: Cpu::NONE,
        enqueued_by: Cpu::NONE,
        passed_stamp: 0,
        woken_at: Ns::ZERO,
        waited_elsewhere: 0,
        runnable_since: Ns::ZERO,
    }
}

impl Sim {
    pub(crate) fn fork_is_thread(&self, p: TaskId) -> bool {
        matches!(self.tasks[p.ix()].op, Op::Fork { thread: true, .. })
    }

    /// `p` is a thread that another of its process has made.
    pub(crate) fn is_thread(&self, p: TaskId) -> bool {
        let parent = self.tasks[p.ix()].parent;
        let mm = |p: TaskId| self.sh.tasks[p.ix()].mm;
        parent.is_some() && mm(parent) == mm(p)
    }

    /// `p` is on a CPU for the first time.
    pub(crate) fn start(&mut self, c: Cpu, p: TaskId) {
        let costs = &self.machine.costs;
        let cost = if self.is_thread(p) { costs.start_thread } else { costs.start_process };
        self.plan_kernel(c, p, Func::PageFault, cost, Step::ExitToUser);
    }

    /// Adds a task that inherits from `parent`; returns it.
    fn copy_process(&mut self, c: Cpu, parent: TaskId) -> TaskId {
        let Op::Fork { program, regs, thread } = self.tasks[parent.ix()].op else {
            unreachable!("not a fork")
        };
        let child = TaskId::from_ix(self.tasks.len());
        let from = &self.sh.tasks[parent.ix()];
        // Nothing resets the wakeup statistics at fork (kernel/fork.c).
        let mut t = from.clone();
        t.state = TaskState::New;
        t.on_rq = false;
        t.cpu = c;
        t.wake_cpu = c;
        t.se = SeId::NONE;
        t.on_cpu_until = Ns::ZERO;
        t.util_est_enqueued = 0;
        t.util_est_ewma = 0;
        t.cfs_tasks_next = TaskId::NONE;
        t.cfs_tasks_prev = TaskId::NONE;
        if thread {
            self.share_mm(t.mm);
        } else {
            self.stats.next_mm += 1;
            t.mm = self.stats.next_mm;
        }
        self.sh.tasks.push(t);
        let mut k = blank_ktask(program, regs, parent);
        k.footprint_kib = self.tasks[parent.ix()].footprint_kib;
        k.last_cpu = c;
        k.passed_stamp = self.cpus[c.ix()].passed.kib();
        k.multi_threaded = thread;
        k.step = Step::Start;
        self.tasks.push(k);
        self.tasks[parent.ix()].multi_threaded |= thread;
        self.tasks[parent.ix()].nr_children += 1;
        self.stats.count.forks += 1;
        child
    }

    /// What `p` waits for when it joins its threads, in the order in which it made them, and then
    /// waits for any of its processes. Looks at tasks from `KTask::done` on: who was before them
    /// is over.
    pub(crate) fn awaited_child(&mut self, p: TaskId) -> WaitsFor {
        if self.tasks[p.ix()].nr_children == 0 {
            return WaitsFor::Nothing;
        }
        let from = (self.tasks[p.ix()].done as usize).max(p.ix() + 1);
        let thread = (from..self.tasks.len())
            .map(TaskId::from_ix)
            .find(|&t| self.tasks[t.ix()].parent == p && self.is_thread(t));
        self.tasks[p.ix()].done = thread.map_or(self.tasks.len(), TaskId::ix) as u32;
        thread.map_or(WaitsFor::Child, WaitsFor::Thread)
    }

    /// The child is complete: woken by its parent, which then returns from `fork`.
    pub(crate) fn fork_end(&mut self, c: Cpu, p: TaskId) {
        let child = self.copy_process(c, p);
        let ((), cost) = self.hook(c, self.now, |s, cx| s.task_new(cx, child, Some(p)));
        self.tasks[p.ix()].step = Step::Woken;
        self.cpus[c.ix()].wakes.push_back((child, false));
        let at = self.carry_out_resched(c, self.now + cost);
        self.plan_wakes(c, at, Frame::Task);
    }

    /// `do_exit`: a thread wakes who joins it (`mm_release`), and nobody else learns of its end.
    pub(crate) fn exit_end(&mut self, c: Cpu, p: TaskId) {
        if !self.is_thread(p) {
            self.exit_mm_end(c, p);
            return;
        }
        self.mm_release(c, p);
        let parent = std::mem::replace(&mut self.tasks[p.ix()].parent, TaskId::NONE);
        self.tasks[parent.ix()].nr_children -= 1;
        self.tasks[p.ix()].step = Step::ExitMm;
        self.plan_wakes(c, self.now, Frame::Task);
    }

    /// `mm_release`: who joins `p` is to be woken.
    pub(crate) fn mm_release(&mut self, c: Cpu, p: TaskId) {
        let parent = self.tasks[p.ix()].parent;
        if parent.is_some() && self.tasks[parent.ix()].waits_for == WaitsFor::Thread(p) {
            self.cpus[c.ix()].wakes.push_back((parent, false));
        }
    }

    /// `p` gives up its address space and leaves its autogroup, which a task that exits does not
    /// belong to.
    pub(crate) fn exit_mm_end(&mut self, c: Cpu, p: TaskId) {
        let at = self.now + self.exit_mm(c, p);
        self.tasks[p.ix()].step = Step::ExitNotify;
        let autogroup = self.groups_of_workload.first().copied();
        let in_it = self.sh.release.autogroup && autogroup == Some(self.sh.tasks[p.ix()].tg);
        if in_it && self.sched.has_task_groups() {
            self.lock_rq(c, c, at, Under::Exit);
        } else {
            self.plan(c, at, Frame::Task);
        }
    }

    /// The rest of `do_exit` but for the last `schedule()`.
    pub(crate) fn exit_notify(&mut self, c: Cpu, p: TaskId) {
        let parent = self.tasks[p.ix()].parent;
        if self.tasks[p.ix()].ends_run {
            self.stats.over = true;
            self.stats.look = true;
        }
        if parent.is_some() {
            let k = &mut self.tasks[parent.ix()];
            k.nr_children -= 1;
            if k.waits_for == WaitsFor::Child {
                self.cpus[c.ix()].wakes.push_back((parent, true));
            }
        }
        self.cpus[c.ix()].mutex = ChannelId::NONE;
        self.sh.tasks[p.ix()].state = TaskState::Dead;
        self.plan_wakes(c, self.now, Frame::Schedule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sim;

    /// A reschedule asked for during the page faults of a new task is met where they end, whatever
    /// its program begins with.
    #[test]
    fn a_new_task_can_be_preempted_after_its_page_faults() {
        let reaches = |need_resched: bool| {
            let mut s = sim("v6.12");
            let (c, p) = (Cpu(2), TaskId::from_ix(s.tasks.len() - 1));
            s.sh.rqs[c.ix()].curr = p;
            s.start(c, p);
            s.now = s.cpus[c.ix()].op_end;
            s.sh.rqs[c.ix()].need_resched = need_resched;
            s.task_step(c);
            s.cpus[c.ix()].frames[0]
        };
        assert_eq!(reaches(false), Frame::Task);
        assert_ne!(reaches(true), Frame::Task);
    }

    /// What passed its CPU before it was made has not pushed out what it is going to use.
    #[test]
    fn a_child_begins_with_what_its_parent_has_in_the_cache() {
        let mut s = sim("v6.12");
        let (c, p) = (Cpu(2), TaskId::from_ix(s.tasks.len() - 1));
        s.cpus[c.ix()].passed.add_kib(5_000);
        s.tasks[p.ix()].op =
            Op::Fork { program: ProgramId(0), regs: Regs::default(), thread: true };
        let child = s.copy_process(c, p);
        assert_eq!(s.tasks[child.ix()].passed_stamp, s.cpus[c.ix()].passed.kib());
        assert!(s.tasks[child.ix()].passed_stamp >= 5_000);
    }

    /// A task joins its threads in the order in which it made them: the end of the second wakes
    /// nobody, that of the first wakes it, and its wakeup is not a sync one.
    #[test]
    fn threads_are_joined_in_order() {
        let mut s = sim("v6.12");
        let (c, p) = (Cpu(2), TaskId::from_ix(s.tasks.len() - 1));
        let mut fork = |thread: bool| {
            s.tasks[p.ix()].op = Op::Fork { program: ProgramId(0), regs: Regs::default(), thread };
            s.copy_process(c, p)
        };
        let [process, first, second] = [false, true, true].map(&mut fork);
        assert_eq!(s.awaited_child(p), WaitsFor::Thread(first));
        s.tasks[p.ix()].waits_for = WaitsFor::Thread(first);
        let mut woken = |thread: TaskId| {
            s.cpus[c.ix()].wakes.clear();
            s.exit_end(c, thread);
            (s.cpus[c.ix()].wakes.iter().copied().collect::<Vec<_>>(), s.awaited_child(p))
        };
        assert_eq!(woken(second), (vec![], WaitsFor::Thread(first)));
        assert_eq!(woken(first), (vec![(p, false)], WaitsFor::Child));
        s.tasks[p.ix()].nr_children -= 1;
        assert_eq!((s.awaited_child(p), s.is_thread(process)), (WaitsFor::Nothing, false));
    }

    /// Its end costs a thread less than a process, and its first page faults.
    #[test]
    fn a_thread_begins_and_ends_cheaply() {
        let takes = |thread: bool, step: Step| {
            let mut s = sim("v6.12");
            s.machine.costs.start_thread = 10;
            s.machine.costs.start_process = 20;
            s.machine.costs.exit_thread = 30;
            s.machine.costs.exit = 40;
            let n = s.tasks.len();
            let (c, p, parent) = (Cpu(2), TaskId::from_ix(n - 1), TaskId::from_ix(n - 2));
            s.sh.rqs[c.ix()].curr = p;
            s.tasks[p.ix()].parent = parent;
            if thread {
                s.sh.tasks[p.ix()].mm = s.sh.tasks[parent.ix()].mm;
            }
            s.tasks[p.ix()].op = Op::Exit;
            s.tasks[p.ix()].step = step;
            s.task_step(c);
            (s.cpus[c.ix()].op_end - s.now).0
        };
        let of = |thread| [Step::Start, Step::Begin].map(|step| takes(thread, step));
        assert_eq!((of(true), of(false)), ([10, 30], [20, 40]));
    }
}
