//! What a choice of a CPU could see of other CPUs, where the recording tells it.
//!
//! *What.* The state was read as `select_task_rq_fair` began and again as it ended. A value that
//! was the same both times is known; one that changed meanwhile can be either, or anything between.
//! *Source.* `record/bpf/state.bpf.c`, `look`.
//! *Departures.* D1: a value that changed twice between the two moments counts as known.

use vruntime_base::{Cpu, CpuMask};
use vruntime_machine::Topology;

/// As the choice began and as it ended.
pub type Twice<T> = [T; 2];

/// What one choice could see.
#[derive(Clone, Debug)]
pub struct Searched {
    /// `idle_cpu` holds.
    pub idle: Twice<CpuMask>,
    /// The wakee may use these.
    pub allowed: CpuMask,
    /// The waker's CPU and prev.
    pub ends: [End; 2],
    /// `task_h_load` of the wakee and of the waker, as it ended.
    pub h_load: [u64; 2],
}

/// One of the two CPUs between which `wake_affine` decides.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Which.
    pub cpu: Cpu,
    /// `cpu_load`.
    pub load: Twice<u64>,
    /// `capacity_of`.
    pub capacity: Twice<u64>,
    /// Tasks of its queue.
    pub nr_running: Twice<u64>,
    /// Those of them in delayed dequeue.
    pub nr_delayed: Twice<u64>,
    /// `has_idle_cores` of its cache; `None` without one.
    pub idle_cores: Option<Twice<bool>>,
    /// `nr_idle_scan` of it.
    pub idle_scan: Option<Twice<u64>>,
}

impl Searched {
    /// `idle_cpu(c)`; `None`: it changed.
    pub fn idle(&self, c: Cpu) -> Option<bool> {
        same(self.idle.map(|m| m.has(c)))
    }
    /// Lowest and highest `cpu_load` of `c`; `None` if it is neither end.
    pub fn load(&self, c: Cpu) -> Option<(u64, u64)> {
        self.end(c).map(|e| range(e.load))
    }
    /// As [`Searched::load`], `capacity_of`.
    pub fn capacity(&self, c: Cpu) -> Option<(u64, u64)> {
        self.end(c).map(|e| range(e.capacity))
    }
    /// As [`Searched::load`], tasks of its queue.
    pub fn nr_running(&self, c: Cpu) -> Option<(u64, u64)> {
        self.end(c).map(|e| range(e.nr_running))
    }
    /// As [`Searched::load`], tasks in delayed dequeue.
    pub fn nr_delayed(&self, c: Cpu) -> Option<(u64, u64)> {
        self.end(c).map(|e| range(e.nr_delayed))
    }
    /// `has_idle_cores` of the cache of `c`.
    pub fn idle_cores(&self, t: &Topology, c: Cpu) -> Option<bool> {
        same(self.cache(t, c)?.idle_cores?)
    }
    /// Lowest and highest `nr_idle_scan` of the cache of `c`.
    pub fn idle_scan(&self, t: &Topology, c: Cpu) -> Option<(u64, u64)> {
        self.cache(t, c)?.idle_scan.map(range)
    }
    fn end(&self, c: Cpu) -> Option<&End> {
        self.ends.iter().find(|e| e.cpu == c)
    }
    fn cache(&self, t: &Topology, c: Cpu) -> Option<&End> {
        self.ends.iter().find(|e| t.llc_id(e.cpu) == t.llc_id(c))
    }
}

fn same(v: Twice<bool>) -> Option<bool> {
    (v[0] == v[1]).then_some(v[0])
}

fn range([a, b]: Twice<u64>) -> (u64, u64) {
    (a.min(b), a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU 1 went idle meanwhile, and the load of CPU 0 rose from 5 to 7.
    #[test]
    fn what_changed_can_be_either() {
        let end = |cpu, load| End {
            cpu: Cpu(cpu),
            load,
            capacity: [1024, 900],
            nr_running: [1, 1],
            nr_delayed: [0, 0],
            idle_cores: None,
            idle_scan: None,
        };
        let s = Searched {
            idle: [0b0100, 0b0110].map(CpuMask::from_word),
            allowed: CpuMask::first_n(4),
            ends: [end(0, [5, 7]), end(3, [9, 9])],
            h_load: [0, 0],
        };
        let idle = [0, 1, 2, 3].map(|c| s.idle(Cpu(c)));
        assert_eq!(idle, [Some(false), None, Some(true), Some(false)]);
        assert_eq!([0, 3, 1].map(|c| s.load(Cpu(c))), [Some((5, 7)), Some((9, 9)), None]);
        assert_eq!(s.capacity(Cpu(0)), Some((900, 1024)));
    }
}
