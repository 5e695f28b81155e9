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
    /// Takes `p` off the list if it is on it.
    pub fn remove(&mut self, tasks: &mut [KTask], p: TaskId) {
        let mut prev = TaskId::NONE;
        let mut at = self.head;
        while at.is_some() {
            let next = tasks[at.ix()].wait_next;
            if at == p {
                if prev.is_none() {
                    self.head = next;
                } else {
                    tasks[prev.ix()].wait_next = next;
                }
                if self.tail == p {
                    self.tail = prev;
                }
                tasks[p.ix()].wait_next = TaskId::NONE;
                return;
            }
            prev = at;
            at = next;
        }
    }
}
