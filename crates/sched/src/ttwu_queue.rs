//! Queued wakeups: when the waker takes the remote run queue's lock itself, and when it leaves the
//! wakee on the wake list of its CPU.
//!
//! *What.* CPUs form groups. Within a group the waker enqueues the wakee itself; a wakee of another
//! group, or one whose CPU has nothing else to do, goes on that CPU's list.
//! *Source.* Linux 5.5 to 6.18, kernel/sched/core.c `ttwu_queue_cond`; grouping by L2: Desnoyers,
//! "sched: Introduce cpus_share_l2c", RFC v3 of August 2023; groups of N threads: his mail in that
//! thread of 24 August 2023.
//! *Equations.* queued ⇔ group(waker) ≠ group(target), or another CPU and (from 6.0 on) the
//! target's nr_running = 0, or (5.8 to 5.19) the wakee is still on the CPU and nr_running ≤ 1.
//! Groups of N: the r-th CPU of an LLC is in group r mod ⌈size / N⌉ of that LLC.
//! *Departures.* D1: N counts CPUs by their rank in the LLC where the mail takes the CPU number;
//! with the usual numbering both give the same groups.
//! *Example.* An LLC of CPUs 0-7 and 192-199, groups of 8: modulo 2; 0, 2, 4, 6, 192, 194, 196 and
//! 198 enqueue directly among themselves.

use crate::domains::Domains;
use crate::release::Release;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use vruntime_base::Cpu;
use vruntime_machine::Topology;

/// What a wakeup is queued across.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Word", into = "String")]
pub enum TtwuQueue {
    /// Nothing: the waker always takes the lock (NO_TTWU_QUEUE).
    None,
    /// Last-level caches.
    Llc,
    /// Level 2 caches.
    L2,
    /// As few groups as there can be of at most so many CPUs of an LLC, in turn.
    Threads(u32),
    /// Groups of CPUs with the same number modulo this, wherever they are.
    Modulo(u32),
    /// CPUs: every remote wakeup is queued.
    All,
}

/// A value as files and expressions give it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a word, a number or a switch")]
enum Word {
    Switch(bool),
    Number(u32),
    Text(String),
}

impl TryFrom<Word> for TtwuQueue {
    type Error = String;
    fn try_from(word: Word) -> Result<TtwuQueue, String> {
        match word {
            Word::Switch(true) => Ok(TtwuQueue::Llc),
            Word::Switch(false) => Ok(TtwuQueue::None),
            Word::Number(n) => n.to_string().parse(),
            Word::Text(text) => text.parse(),
        }
    }
}

impl FromStr for TtwuQueue {
    type Err = String;
    fn from_str(word: &str) -> Result<TtwuQueue, String> {
        let positive = |n: &str| n.parse().ok().filter(|&n: &u32| n > 0);
        match word {
            "none" | "off" | "false" => return Ok(TtwuQueue::None),
            "llc" | "on" | "true" => return Ok(TtwuQueue::Llc),
            "l2" => return Ok(TtwuQueue::L2),
            "all" => return Ok(TtwuQueue::All),
            _ => {}
        }
        let modulo = word.strip_prefix("mod").and_then(positive).map(TtwuQueue::Modulo);
        modulo.or_else(|| positive(word).map(TtwuQueue::Threads)).ok_or_else(|| {
            format!(
                "`{word}`, expected llc (on), l2, none (off), all, 8 (groups of at most so many \
                 CPUs of an LLC), or mod192 (groups by CPU number)"
            )
        })
    }
}

impl fmt::Display for TtwuQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TtwuQueue::None => f.write_str("none"),
            TtwuQueue::Llc => f.write_str("llc"),
            TtwuQueue::L2 => f.write_str("l2"),
            TtwuQueue::Threads(n) => write!(f, "{n}"),
            TtwuQueue::Modulo(n) => write!(f, "mod{n}"),
            TtwuQueue::All => f.write_str("all"),
        }
    }
}

impl From<TtwuQueue> for String {
    fn from(q: TtwuQueue) -> String {
        q.to_string()
    }
}

/// Which wakeups within a group are queued all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TtwuQueueWithin {
    /// None (5.5, 5.7).
    Never,
    /// Of a wakee that is still on its CPU, next to at most one other task (5.8 to 5.19).
    OnCpu,
    /// To a CPU with nothing queued (6.0 on).
    NothingRunning,
}

/// Order in which a CPU takes wakees off its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TtwuListOrder {
    /// As they were put on it (5.8 on).
    Fifo,
    /// The latest first (up to 5.7).
    Lifo,
}

/// Who sees that a CPU has wakees on its list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TtwuPendingSeen {
    /// Nobody: such a CPU looks idle until it has enqueued them.
    Nowhere,
    /// The tests for an idle CPU (`idle_cpu()`), as in every release.
    IdleTests,
    /// On the way to a wakee's CPU also the tests of `nr_running`, of loads and of SCHED_IDLE
    /// CPUs (proposed in August 2023): a list counts as one task with the load of the wakee.
    Everywhere,
}

impl TtwuQueue {
    /// `group_id(cpu)` of the direct wakeups. `llc` gives the first CPU of a CPU's LLC domain.
    pub fn group_id(self, topo: &Topology, c: Cpu, llc: impl Fn(Cpu) -> Cpu) -> u32 {
        let of = |c: Cpu| u32::from(c.0);
        match self {
            TtwuQueue::None => 0,
            TtwuQueue::All => of(c),
            TtwuQueue::Llc => of(llc(c)),
            TtwuQueue::L2 => of(topo.l2(c).first().unwrap_or(c)),
            TtwuQueue::Modulo(n) => of(c) % n,
            TtwuQueue::Threads(n) => {
                let cpus: Vec<Cpu> = topo.all().iter().filter(|&o| llc(o) == llc(c)).collect();
                let rank = cpus.iter().position(|&o| o == c).expect("a CPU is in its own LLC");
                of(cpus[rank % cpus.len().div_ceil(n as usize)])
            }
        }
    }
}

/// `ttwu_queue_cond`: the wakee goes on the wake list of `target`. `stopper`: it is a stopper;
/// `on_cpu`: it is still being switched out there.
#[inline]
pub fn ttwu_queue_cond(
    k: &Release,
    d: &Domains,
    waker: Cpu,
    target: Cpu,
    stopper: bool,
    nr_running: u32,
    on_cpu: bool,
) -> bool {
    if k.ttwu_queue == TtwuQueue::None || stopper && k.ttwu_stop_direct {
        return false;
    }
    if !d.share_ttwu_group(waker, target) {
        return true;
    }
    match k.ttwu_queue_within {
        TtwuQueueWithin::NothingRunning => waker != target && nr_running == 0,
        TtwuQueueWithin::OnCpu => on_cpu && nr_running <= 1,
        TtwuQueueWithin::Never => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sample::{regular, v6_1, v6_12};
    use vruntime_machine::Arch;

    /// Two LLCs of 8 CPUs: 0-3 and 8-11, 4-7 and 12-15; siblings are n and n + 8, as on machines
    /// that number them last. An L2 is a core.
    fn topo() -> Topology {
        regular(Arch::X86, 1, 8, 2, 4)
    }

    /// The CPUs that enqueue directly on one another's queues, group by group.
    #[track_caller]
    fn check_groups(queue: &str, expected: &[&[u16]]) {
        let topo = topo();
        let mut k = v6_1();
        k.ttwu_queue = queue.parse().expect("a value");
        let d = Domains::build(&topo, &k);
        for c in topo.all().iter() {
            let mates: Vec<u16> =
                topo.all().iter().filter(|&o| d.share_ttwu_group(c, o)).map(|o| o.0).collect();
            let group = expected.iter().find(|g| g.contains(&c.0)).expect("every CPU has one");
            assert_eq!(mates, *group, "{queue}: CPU {c}");
        }
    }

    #[test]
    fn groups() {
        check_groups("llc", &[&[0, 1, 2, 3, 8, 9, 10, 11], &[4, 5, 6, 7, 12, 13, 14, 15]]);
        let cores: Vec<Vec<u16>> = (0..8).map(|c| vec![c, c + 8]).collect();
        let cores: Vec<&[u16]> = cores.iter().map(Vec::as_slice).collect();
        check_groups("l2", &cores);
        // Eight a cache: half of it is every second core, a quarter a core.
        check_groups("4", &[&[0, 2, 8, 10], &[1, 3, 9, 11], &[4, 6, 12, 14], &[5, 7, 13, 15]]);
        check_groups("2", &cores);
        check_groups("8", &[&[0, 1, 2, 3, 8, 9, 10, 11], &[4, 5, 6, 7, 12, 13, 14, 15]]);
        // Across caches: 0 and 4 share none.
        check_groups("mod4", &[&[0, 4, 8, 12], &[1, 5, 9, 13], &[2, 6, 10, 14], &[3, 7, 11, 15]]);
        let alone: Vec<Vec<u16>> = (0..16).map(|c| vec![c]).collect();
        let alone: Vec<&[u16]> = alone.iter().map(Vec::as_slice).collect();
        check_groups("1", &alone);
        check_groups("all", &alone);
    }

    #[track_caller]
    fn check(k: &Release, waker: u16, target: u16, nr_running: u32, on_cpu: bool, queued: bool) {
        let d = Domains::build(&topo(), k);
        let got = ttwu_queue_cond(k, &d, Cpu(waker), Cpu(target), false, nr_running, on_cpu);
        assert_eq!(got, queued, "{}: {waker} wakes for {target}, {nr_running} there", k.ttwu_queue);
    }

    #[test]
    fn since_6_0_a_cpu_with_nothing_queued_enqueues_for_itself() {
        let mut k = v6_1();
        check(&k, 0, 1, 1, false, false);
        check(&k, 0, 1, 0, false, true);
        check(&k, 0, 0, 0, false, false);
        check(&k, 0, 4, 3, false, true);
        k.ttwu_queue = TtwuQueue::L2;
        check(&k, 0, 1, 1, false, true);
        check(&k, 0, 8, 1, false, false);
        check(&k, 0, 8, 0, false, true);
        k.ttwu_queue = TtwuQueue::All;
        check(&k, 0, 8, 1, false, true);
        check(&k, 0, 0, 1, false, false);
        k.ttwu_queue = TtwuQueue::None;
        check(&k, 0, 4, 0, true, false);
    }

    #[test]
    fn before_6_0_the_wakee_had_to_be_on_its_cpu_and_before_5_8_nothing_helped() {
        let mut k = v6_1();
        k.ttwu_queue_within = TtwuQueueWithin::OnCpu;
        check(&k, 0, 1, 0, false, false);
        check(&k, 0, 1, 1, true, true);
        check(&k, 0, 1, 2, true, false);
        check(&k, 0, 4, 2, false, true);
        k.ttwu_queue_within = TtwuQueueWithin::Never;
        check(&k, 0, 1, 0, true, false);
        check(&k, 0, 4, 0, false, true);
    }

    /// From one cache to another.
    #[test]
    pub(crate) fn since_6_12_a_stopper_is_never_queued() {
        for (k, queued) in [(v6_1(), true), (v6_12(), false)] {
            let d = Domains::build(&topo(), &k);
            let queues = |stopper| ttwu_queue_cond(&k, &d, Cpu(0), Cpu(4), stopper, 1, false);
            assert_eq!((queues(true), queues(false)), (queued, true));
        }
    }

    #[test]
    fn words() {
        for (word, value) in [
            ("off", TtwuQueue::None),
            ("true", TtwuQueue::Llc),
            ("16", TtwuQueue::Threads(16)),
            ("mod192", TtwuQueue::Modulo(192)),
        ] {
            assert_eq!(word.parse(), Ok(value));
        }
        for word in ["none", "llc", "l2", "8", "mod192", "all"] {
            assert_eq!(word.parse::<TtwuQueue>().map(|q| q.to_string()), Ok(word.into()));
        }
        for word in ["", "0", "mod0", "l3", "-2", "mod"] {
            assert!(word.parse::<TtwuQueue>().unwrap_err().contains("expected llc"), "{word}");
        }
    }
}
