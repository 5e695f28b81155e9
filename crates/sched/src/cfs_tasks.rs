//! `rq->cfs_tasks`: the fair tasks of a CPU, most recently run first.
//!
//! The list goes through the tasks themselves. Who enters it or begins to run stands at its head;
//! the balancer takes tasks from its tail, and puts at the head whom it may not take.

use crate::cx::Shared;
use vruntime_base::{Cpu, TaskId};

impl Shared {
    /// Puts `p`, which is in no list, at the head of the list of `cpu`.
    #[inline]
    pub fn cfs_tasks_add(&mut self, cpu: Cpu, p: TaskId) {
        let rq = &mut self.rqs[cpu.ix()];
        let old = std::mem::replace(&mut rq.cfs_tasks_head, p);
        let t = &mut self.tasks[p.ix()];
        (t.cfs_tasks_prev, t.cfs_tasks_next) = (TaskId::NONE, old);
        if old.is_some() {
            self.tasks[old.ix()].cfs_tasks_prev = p;
        } else {
            rq.cfs_tasks_tail = p;
        }
    }

    /// Takes `p` off the list of `cpu`.
    #[inline]
    pub(crate) fn cfs_tasks_del(&mut self, cpu: Cpu, p: TaskId) {
        let t = &mut self.tasks[p.ix()];
        let prev = std::mem::replace(&mut t.cfs_tasks_prev, TaskId::NONE);
        let next = std::mem::replace(&mut t.cfs_tasks_next, TaskId::NONE);
        let rq = &mut self.rqs[cpu.ix()];
        if prev.is_some() {
            self.tasks[prev.ix()].cfs_tasks_next = next;
        } else {
            rq.cfs_tasks_head = next;
        }
        if next.is_some() {
            self.tasks[next.ix()].cfs_tasks_prev = prev;
        } else {
            rq.cfs_tasks_tail = prev;
        }
    }

    /// Moves `p` to the head of the list of `cpu`, in which it is.
    #[inline]
    pub(crate) fn cfs_tasks_to_head(&mut self, cpu: Cpu, p: TaskId) {
        if self.rqs[cpu.ix()].cfs_tasks_head != p {
            self.cfs_tasks_del(cpu, p);
            self.cfs_tasks_add(cpu, p);
        }
    }
}
