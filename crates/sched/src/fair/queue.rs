//! The waiting entities of one level, in order.
//!
//! **What.** A sorted ring: the first entity is taken in constant time, a new one is found its
//! place by binary search, and insertion moves the shorter side only. CFS sorts by vruntime, EEVDF
//! by deadline; equal keys keep the order of insertion. The running entity is not in it.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c `__enqueue_entity`; the kernel uses
//! a red-black tree, the order is the same.
//! **Equations.** Order: (key, time of insertion), keys compared by signed difference.
//! **Departures.** D1: a ring instead of a tree. Queues of the model are short (tens), and a tree's
//! pointers cost more than moving a few hundred bytes. D2: the 6.6 tree (sorted by vruntime,
//! augmented with deadlines) is represented by the order of 6.8 and later.
//! **Example.** Keys 5, 3, 5, 4 inserted in this order come out as 3, 4, 5 (first), 5 (third).

use super::SeId;
use std::collections::VecDeque;
use vruntime_base::VTime;

/// A waiting entity: what picking looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Node {
    /// What the queue is sorted by.
    pub key: VTime,
    /// Virtual runtime.
    pub vruntime: VTime,
    /// The entity.
    pub se: SeId,
}

/// Sorted queue. Grows to its largest length and allocates nothing after that.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    nodes: VecDeque<Node>,
}

impl Queue {
    /// Number of entities.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// True if nobody waits.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    /// The entity at position `i` in order.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<&Node> {
        self.nodes.get(i)
    }
    /// The first entity in order.
    #[inline(always)]
    pub fn first(&self) -> Option<&Node> {
        self.nodes.front()
    }
    /// All in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }
    /// Adds an entity, after those with an equal key.
    #[inline]
    pub fn insert(&mut self, n: Node) {
        // Most insertions are at one of the ends.
        match self.nodes.back() {
            Some(last) if n.key.before(last.key) => {
                let i = self.nodes.partition_point(|m| !n.key.before(m.key));
                self.nodes.insert(i, n);
            }
            _ => self.nodes.push_back(n),
        }
    }
    /// Takes `se` out, which was inserted with `key`. Panics if it is not there.
    #[inline]
    pub fn remove(&mut self, key: VTime, se: SeId) {
        if self.nodes.front().is_some_and(|n| n.se == se) {
            self.nodes.pop_front();
            return;
        }
        let mut i = self.nodes.partition_point(|m| m.key.before(key));
        while self.nodes[i].se != se {
            assert!(self.nodes[i].key == key, "entity {se:?} is not queued at {key:?}");
            i += 1;
        }
        self.nodes.remove(i);
    }
    /// Takes everybody out.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(key: u64, se: u32) -> Node {
        Node { key: VTime(key), vruntime: VTime(key), se: SeId(se) }
    }

    #[test]
    fn equal_keys_keep_their_order() {
        let mut q = Queue::default();
        for (i, k) in [5, 3, 5, 4].into_iter().enumerate() {
            q.insert(node(k, i as u32));
        }
        let order: Vec<u32> = q.iter().map(|n| n.se.0).collect();
        assert_eq!(order, [1, 3, 0, 2]);
        q.remove(VTime(5), SeId(2));
        q.remove(VTime(3), SeId(1));
        let order: Vec<u32> = q.iter().map(|n| n.se.0).collect();
        assert_eq!(order, [3, 0]);
    }

    #[test]
    fn keys_may_wrap() {
        let mut q = Queue::default();
        q.insert(node(5, 0));
        q.insert(node(u64::MAX - 5, 1));
        q.insert(node(u64::MAX, 2));
        let order: Vec<u32> = q.iter().map(|n| n.se.0).collect();
        assert_eq!(order, [1, 2, 0]);
    }

    /// Model test: the queue is a list that is sorted stably after each insertion.
    #[test]
    fn is_a_stably_sorted_list() {
        use vruntime_base::{Noise, Stream};
        let noise = Noise::new(7);
        let (mut q, mut model) = (Queue::default(), Vec::<Node>::new());
        for i in 0..4000 {
            let r = |what, n| noise.below(Stream::Test, what, i, n);
            if model.is_empty() || r(0, 100) < 52 {
                let n = node(r(1, 50), i as u32);
                q.insert(n);
                model.push(n);
                model.sort_by_key(|n| n.key.0);
            } else {
                let n = model.remove(r(2, model.len() as u64) as usize);
                q.remove(n.key, n.se);
            }
            assert!(q.iter().eq(model.iter()));
        }
    }
}
