//! Wait queues: who sleeps for what, exclusive waiters last.

use crate::task::KTask;
use vruntime_base::TaskId;

/// `struct wait_queue_head`: a list through `KTask::wait_next`.
#[derive(Clone, Copy, Debug)]
pub struct WaitQueue {
    /// First waiter.
    pub head: TaskId,
    /// Last waiter.
    pub tail: TaskId,
}

impl Default for WaitQueue {
    fn default() -> Self {
        WaitQueue { head: TaskId::NONE, tail: TaskId::NONE }
    }
}

impl WaitQueue {
    /// No one waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }
    /// How many wait.
    pub fn len(&self, tasks: &[KTask]) -> usize {
        let waiters = |p: &TaskId| Some(tasks[p.ix()].wait_next).filter(|p| p.is_some());
        let first = Some(self.head).filter(|p| p.is_some());
        std::iter::successors(first, waiters).count()
    }
    /// Adds `p`: exclusive waiters at the end, others at the front, as the kernel does.
    pub fn add(&mut self, tasks: &mut [KTask], p: TaskId, exclusive: bool) {
        let k = &mut tasks[p.ix()];
        debug_assert!(k.wait_next.is_none());
        k.exclusive = exclusive;
        if self.head.is_none() {
            self.head = p;
            self.tail = p;
        } else if exclusive {
            tasks[self.tail.ix()].wait_next = p;
            self.tail = p;
        } else {
            tasks[p.ix()].wait_next = self.head;
            self.head = p;
        }
    }
    /// Takes the first waiter off the list.
    pub fn pop(&mut self, tasks: &mut [KTask]) -> Option<TaskId> {
        let p = self.head;
        if p.is_none() {
            return None;
        }
        self.head = tasks[p.ix()].wait_next;
        tasks[p.ix()].wait_next = TaskId::NONE;
        if self.head.is_none() {
            self.tail = TaskId::NONE;
        }
        Some(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::blank_ktask;
    use crate::program::{ProgramId, Regs};

    /// Exclusive waiters come in the order of asking, behind all others, of whom the latest comes
    /// first.
    #[test]
    fn exclusive_waiters_come_last_in_their_order() {
        let blank = blank_ktask(ProgramId(0), Regs::default(), TaskId::NONE);
        let mut tasks = vec![blank; 5];
        let mut queue = WaitQueue::default();
        for (p, exclusive) in [(1, true), (2, true), (3, false), (4, false)] {
            queue.add(&mut tasks, TaskId(p), exclusive);
        }
        assert_eq!(queue.len(&tasks), 4);
        let order: Vec<u32> = std::iter::from_fn(|| Some(queue.pop(&mut tasks)?.0)).collect();
        assert_eq!(order, [4, 3, 1, 2]);
        // Empty again, it starts anew.
        queue.add(&mut tasks, TaskId(2), true);
        queue.add(&mut tasks, TaskId(1), true);
        assert_eq!(
            [(); 3].map(|()| queue.pop(&mut tasks)),
            [Some(TaskId(2)), Some(TaskId(1)), None]
        );
    }
}
