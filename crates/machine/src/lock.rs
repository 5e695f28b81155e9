//! A FIFO spin lock over simulated time.
//!
//! **What.** A queued spin lock (`rq->lock`). CPUs get it in the order of their requests; each
//! waits for everyone before it and for the lock's line to come over. The grant is an event of the
//! waiter, so what the holder does inside is evaluated at the grant and nested waits come out
//! right.
//! **Source.** Linux `kernel/locking/qspinlock.c` (MCS queue, one hand-over per release).
//! **Equations.** Free: `cost = T(last owner → cpu)`. Held: `grant = release + 3 · T(holder → first
//! waiter)`, where T is one line transfer: the release takes the line from the waiter that looks at
//! it, the waiter looks again, and takes it. The next waiter's grant time is known when the new
//! holder has announced its release.
//! **Departures.** D1: the pending bit and lock stealing by a CPU that spins at the right moment
//! are not modelled. D2: waiters do not slow the holder down.
//! **Example.** T = 50. CPU 0 gets the lock at 0 and announces release at 300. CPU 1 asks at 100:
//! granted at 450. CPU 2 asks at 120; CPU 1 announces 750: granted at 900.

use vruntime_base::{Cpu, Ns};

/// A lock. Its waiters are chained through a [`LockQueue`].
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// When the holder lets go; [`UNKNOWN`] until it has announced that.
    free_at: u64,
    /// The latest request, which no request may precede.
    asked_at: u64,
    /// Holder, or last holder.
    owner: Cpu,
    head: Cpu,
    tail: Cpu,
}

/// Line transfers from the release of a lock until a CPU that spins for it has it.
pub const HANDOVER: u64 = 3;

/// Release time of a holder that has not announced it.
const UNKNOWN: u64 = u64::MAX;

/// The links of all locks' waiting lines: a CPU waits for at most one lock.
#[derive(Clone, Debug)]
pub struct LockQueue {
    /// The CPU behind, the CPU itself if it is the last, or none if it waits for nothing.
    next: Vec<Cpu>,
}

impl LockQueue {
    /// Links for `nr_cpus` CPUs, none of them waiting.
    pub fn new(nr_cpus: usize) -> LockQueue {
        LockQueue { next: vec![Cpu::NONE; nr_cpus] }
    }
    /// True if `cpu` waits for some lock.
    #[inline]
    pub fn is_waiting(&self, cpu: Cpu) -> bool {
        self.next[cpu.ix()].is_some()
    }
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The lock was free and is taken; its line arrives after `cost`.
    Granted {
        /// Line transfer from the last owner.
        cost: Ns,
    },
    /// The CPU is in the waiting line.
    Wait {
        /// When it will be granted, if it is first and the holder has announced its release.
        grant_at: Option<Ns>,
    },
}

impl Lock {
    /// A free lock whose line is in the cache of `home`.
    pub const fn new(home: Cpu) -> Lock {
        Lock { free_at: 0, asked_at: 0, owner: home, head: Cpu::NONE, tail: Cpu::NONE }
    }

    /// Asks for the lock at `now`. `transfer` gives the line transfer between two CPUs in ns.
    /// When the lock is granted at once, the CPU holds it from `now` on and must announce its
    /// release with [`Lock::hold`].
    #[inline]
    pub fn request(
        &mut self,
        q: &mut LockQueue,
        cpu: Cpu,
        now: Ns,
        transfer: impl Fn(Cpu, Cpu) -> Ns,
    ) -> Request {
        assert!(now.0 >= self.asked_at, "lock requests out of order: {self:?} at {now}");
        assert!(!q.is_waiting(cpu), "CPU {cpu} waits for two locks");
        self.asked_at = now.0;
        if self.head.is_some() {
            q.next[self.tail.ix()] = cpu;
            q.next[cpu.ix()] = cpu;
            self.tail = cpu;
            return Request::Wait { grant_at: None };
        }
        if self.free_at <= now.0 {
            let cost = transfer(self.owner, cpu);
            self.owner = cpu;
            self.free_at = UNKNOWN;
            return Request::Granted { cost };
        }
        assert!(self.owner != cpu, "CPU {cpu} asks for a lock that it holds");
        q.next[cpu.ix()] = cpu;
        self.head = cpu;
        self.tail = cpu;
        let known = self.free_at != UNKNOWN;
        Request::Wait { grant_at: known.then(|| self.grant_time(transfer)) }
    }

    /// The holder announces that it releases the lock at `until`. Returns the first waiter and the
    /// time of its grant event, if anyone waits.
    #[inline]
    pub fn hold(
        &mut self,
        q: &LockQueue,
        cpu: Cpu,
        until: Ns,
        transfer: impl Fn(Cpu, Cpu) -> Ns,
    ) -> Option<(Cpu, Ns)> {
        assert!(self.owner == cpu, "CPU {cpu} announces the release of CPU {}'s lock", self.owner);
        self.free_at = until.0;
        if self.head.is_none() {
            return None;
        }
        debug_assert!(q.is_waiting(self.head));
        Some((self.head, self.grant_time(transfer)))
    }

    /// The grant event of the first waiter: it leaves the line and holds the lock. It must
    /// announce its release with [`Lock::hold`].
    #[inline]
    pub fn granted(&mut self, q: &mut LockQueue, cpu: Cpu, now: Ns) {
        assert!(self.head == cpu, "granted to CPU {cpu}, but CPU {} is first", self.head);
        assert!(self.free_at <= now.0, "granted while held until {}", self.free_at);
        let behind = q.next[cpu.ix()];
        q.next[cpu.ix()] = Cpu::NONE;
        if behind == cpu {
            self.head = Cpu::NONE;
            self.tail = Cpu::NONE;
        } else {
            self.head = behind;
        }
        self.owner = cpu;
        self.free_at = UNKNOWN;
    }

    /// True if a request at `now` would have to wait.
    #[inline]
    pub fn is_held(&self, now: Ns) -> bool {
        now.0 < self.free_at || self.head.is_some()
    }
    /// True if `cpu` holds it and has not announced its release.
    #[inline]
    pub fn is_held_by(&self, cpu: Cpu) -> bool {
        self.owner == cpu && self.free_at == UNKNOWN
    }
    /// The holder, or the last one.
    #[inline]
    pub fn owner(&self) -> Cpu {
        self.owner
    }
    /// Waiters in the order in which they will get the lock.
    #[cfg(test)]
    fn waiters<'a>(&self, q: &'a LockQueue) -> impl Iterator<Item = Cpu> + use<'a> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let cpu = at.is_some().then_some(at)?;
            let behind = q.next[cpu.ix()];
            at = if behind == cpu { Cpu::NONE } else { behind };
            Some(cpu)
        })
    }

    #[inline]
    fn grant_time(&self, transfer: impl Fn(Cpu, Cpu) -> Ns) -> Ns {
        Ns(self.free_at + HANDOVER * transfer(self.owner, self.head).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::{Noise, Stream};

    fn fifty(a: Cpu, b: Cpu) -> Ns {
        if a == b { Ns(0) } else { Ns(50) }
    }

    #[test]
    fn example() {
        let (mut l, mut q) = (Lock::new(Cpu(0)), LockQueue::new(4));
        let free = l.request(&mut q, Cpu(0), Ns(0), fifty);
        assert_eq!(free, Request::Granted { cost: Ns(0) });
        assert_eq!(l.hold(&q, Cpu(0), Ns(300), fifty), None);
        let first = l.request(&mut q, Cpu(1), Ns(100), fifty);
        assert_eq!(first, Request::Wait { grant_at: Some(Ns(450)) });
        let second = l.request(&mut q, Cpu(2), Ns(120), fifty);
        assert_eq!(second, Request::Wait { grant_at: None });
        assert_eq!(l.waiters(&q).collect::<Vec<_>>(), [Cpu(1), Cpu(2)]);
        l.granted(&mut q, Cpu(1), Ns(450));
        assert_eq!(l.hold(&q, Cpu(1), Ns(750), fifty), Some((Cpu(2), Ns(900))));
        l.granted(&mut q, Cpu(2), Ns(900));
        assert_eq!(l.hold(&q, Cpu(2), Ns(1000), fifty), None);
        assert!(l.is_held(Ns(999)) && !l.is_held(Ns(1000)));
        assert_eq!(l.owner(), Cpu(2));
        let far = l.request(&mut q, Cpu(3), Ns(1000), fifty);
        assert_eq!(far, Request::Granted { cost: Ns(50) });
    }

    #[test]
    fn is_small() {
        assert!(size_of::<Lock>() <= 24);
    }

    #[test]
    #[should_panic(expected = "out of order")]
    fn refuses_the_past() {
        let (mut l, mut q) = (Lock::new(Cpu(0)), LockQueue::new(2));
        l.request(&mut q, Cpu(0), Ns(10), fifty);
        l.request(&mut q, Cpu(1), Ns(9), fifty);
    }

    /// CPUs ask at random times for random spans; who gets it when must equal what a plain list
    /// of requests gives: start = ask + transfer, or end of the one before + hand-over.
    #[test]
    fn equals_a_naive_queue() {
        for seed in 0..200 {
            let n = Noise::new(seed);
            let cpus = 2 + n.below(Stream::Test, 0, 0, 7) as usize;
            let gap = 1 + n.below(Stream::Test, 0, 1, 400);
            let transfer = |a: Cpu, b: Cpu| Ns(u64::from(a.0.abs_diff(b.0)) * 10);
            let span = |cpu: usize, k: u64| 1 + n.below(Stream::Test, 100 + cpu as u64, k, 300);

            // (ask time, cpu, round) in order of asking: a CPU asks again only after its release,
            // so the expected schedule and the asks are built together.
            let mut next_ask: Vec<(u64, usize, u64)> =
                (0..cpus).map(|c| (n.below(Stream::Test, 1, c as u64, gap), c, 0)).collect();
            let mut free_at = 0;
            let mut last = Cpu(0);
            let mut expected = Vec::new();
            let mut asks = Vec::new();
            while expected.len() < 60 {
                let &(t, c, k) = next_ask.iter().min().unwrap();
                let cpu = Cpu::from_ix(c);
                let way = transfer(last, cpu).0;
                let start = if t < free_at { free_at + HANDOVER * way } else { t + way };
                let end = start + span(c, k);
                asks.push((t, cpu, end - start));
                expected.push((cpu, start));
                (free_at, last) = (end, cpu);
                next_ask[c] = (end + n.below(Stream::Test, 2 + c as u64, k, gap), c, k + 1);
            }
            assert_eq!(replay(&asks, cpus, transfer), expected, "seed {seed}");
        }
    }

    /// Runs requests through [`Lock`] with a small event loop; returns who held it from when.
    fn replay(
        asks: &[(u64, Cpu, u64)],
        cpus: usize,
        transfer: impl Fn(Cpu, Cpu) -> Ns + Copy,
    ) -> Vec<(Cpu, u64)> {
        let (mut l, mut q) = (Lock::new(Cpu(0)), LockQueue::new(cpus));
        let mut span = vec![0; cpus];
        let mut grant: Option<(Cpu, Ns)> = None;
        let mut got = Vec::new();
        let mut asks = asks.iter().peekable();
        loop {
            let ask_first = match (asks.peek(), grant) {
                (None, None) => return got,
                (Some(&&(t, ..)), Some((_, at))) => t <= at.0,
                (ask, None) => ask.is_some(),
                (None, Some(_)) => false,
            };
            if !ask_first {
                let (cpu, at) = grant.take().unwrap();
                l.granted(&mut q, cpu, at);
                got.push((cpu, at.0));
                grant = l.hold(&q, cpu, Ns(at.0 + span[cpu.ix()]), transfer);
                continue;
            }
            let &(t, cpu, len) = asks.next().unwrap();
            span[cpu.ix()] = len;
            match l.request(&mut q, cpu, Ns(t), transfer) {
                Request::Granted { cost } => {
                    got.push((cpu, t + cost.0));
                    grant = l.hold(&q, cpu, Ns(t + cost.0 + len), transfer);
                }
                Request::Wait { grant_at: Some(at) } => grant = Some((cpu, at)),
                Request::Wait { grant_at: None } => {}
            }
        }
    }
}
