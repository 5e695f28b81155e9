//! What a wakeup waits for when wakee and run queue are another CPU's.
//!
//! Tasks sleep on CPU `b`, where an owner spins, so that nobody there is idle and a wakee has to be
//! enqueued under the lock of `b`'s run queue; they are SCHED_BATCH, so that none of them preempts.
//! Either they are woken from CPU `a`, one after the other, or by the owner itself. The
//! first wakeup from `a` fetches the queue, each of them its wakee; then the owner gets its queue
//! back when it wakes another task, and each wakee its own lines when it runs. Before it counts,
//! either side wakes a task of its own, so that the path itself is warm.

use super::probe::{Sample, pin};
use nix::libc;
use rustix::thread::futex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tasks that are woken in a row.
const WAKEES: usize = 7;
/// Rounds of all cases; some 0.3 s.
const ROUNDS: usize = 300;

/// Who has woken the wakees before the owner's own wakeup is timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Case {
    Nobody,
    /// CPU `a` woke one.
    One,
    /// CPU `a` woke all.
    All,
    /// The owner woke all.
    Owner,
}

impl Case {
    const ALL: [Case; 4] = [Case::Nobody, Case::One, Case::All, Case::Owner];

    /// Wakees woken, by whomever.
    fn woken(self) -> usize {
        match self {
            Case::Nobody => 0,
            Case::One => 1,
            Case::All | Case::Owner => WAKEES,
        }
    }
    /// Of these, those that CPU `a` wakes.
    fn outside(self) -> usize {
        if self == Case::Owner { 0 } else { self.woken() }
    }
}

/// What is waited for, ns.
#[derive(Clone, Copy)]
pub struct Wakes {
    /// By a waker, for another CPU's queue.
    pub queue: Sample,
    /// By a queue's own CPU after one wakeup from outside.
    pub queue_back: Sample,
    /// By a waker, for a wakee that ran on another CPU.
    pub wakee: Sample,
    /// By a wakee that runs after a wakeup from outside.
    pub wakee_back: Sample,
}

impl Wakes {
    /// Measures wakeups of tasks on CPU `b` by CPU `a`.
    pub fn measure(a: usize, b: usize) -> io::Result<Wakes> {
        let stage = Stage::new();
        let stage = &stage;
        let (waker, owner) = std::thread::scope(|scope| {
            let sleepers: Vec<_> = stage
                .wakees
                .iter()
                .chain(&stage.owners)
                .map(|bed| (b, bed))
                .chain([(a, &stage.wakers)])
                .map(|(cpu, bed)| scope.spawn(move || stage.sleep(cpu, bed)))
                .collect();
            let owner = scope.spawn(move || stage.own(b));
            let waker = stage.wake_in_rounds(a);
            stage.stop();
            let join = |failed| io::Error::other(format!("a thread of the wakeups: {failed:?}"));
            for sleeper in sleepers {
                sleeper.join().map_err(join)??;
            }
            io::Result::Ok((waker?, owner.join().map_err(join)??))
        })?;
        Ok(difference(&waker, &owner))
    }

    /// Name and value of everything measured.
    pub fn samples(&self) -> Vec<(String, Sample)> {
        let rows = [
            ("wakeup, for another CPU's queue", self.queue),
            ("own wakeup after that", self.queue_back),
            ("wakeup, for another CPU's task", self.wakee),
            ("its run after that", self.wakee_back),
        ];
        rows.map(|(name, sample)| (name.to_string(), sample)).to_vec()
    }

    /// The shares of a transfer of `line` ns that they show, permille: `queue_from_outside`,
    /// `queue_back`, `wakee`, `wakee_back`. The lock's line and that of the wakee's state are
    /// apart.
    pub fn shares(&self, line: f64) -> [Sample; 4] {
        let share = |of: Sample, apart: f64| {
            of.map(|ns| ((ns / line - apart) * 1000.0).clamp(0.0, 30_000.0))
        };
        [
            share(self.queue, 1.0),
            share(self.queue_back, 1.0),
            share(self.wakee, 1.0),
            share(self.wakee_back, 0.0),
        ]
    }
}

/// Makes the calling thread SCHED_BATCH. (Light ones, of nice 19, would not preempt either, but
/// with EEVDF they owe time after every run, and stay queued.)
#[allow(unsafe_code)] // No library in reach has it; the kernel copies `param` and keeps nothing.
fn become_batch() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The times of the wakeups in a row, ns.
#[derive(Clone, Copy, Default)]
struct Row {
    first: f64,
    /// Mean of those after the second.
    further: f64,
}

impl Row {
    fn of(took: &[f64]) -> Row {
        let Some((first, _)) = took.split_first() else { return Row::default() };
        let further = took.get(2..).unwrap_or_default();
        Row { first: *first, further: further.iter().sum::<f64>() / further.len().max(1) as f64 }
    }
}

/// What the owner sees in one round, by [`Case`].
#[derive(Clone, Copy, Default)]
struct Owned {
    /// Its wakeups of all wakees.
    row: Row,
    /// Its one wakeup after the wakees'.
    own: [f64; 4],
    /// From a wakee's switch to the next one's.
    run: [f64; 4],
}

/// Round by round, so that a change of the CPUs' speed meets both sides of a difference.
fn difference(waker: &[Row], owner: &[Owned]) -> Wakes {
    let rounds = || waker.iter().zip(owner);
    let [nobody, one, all, by_owner] = Case::ALL.map(|case| case as usize);
    Wakes {
        queue: Sample::of(
            rounds().map(|(w, o)| (w.first - w.further) - (o.row.first - o.row.further)).collect(),
        ),
        queue_back: Sample::of(owner.iter().map(|o| o.own[one] - o.own[nobody]).collect()),
        wakee: Sample::of(rounds().map(|(w, o)| w.further - o.row.further).collect()),
        wakee_back: Sample::of(owner.iter().map(|o| o.run[all] - o.run[by_owner]).collect()),
    }
}

/// Where a task sleeps; a line of its own.
#[repr(align(256))]
#[derive(Default)]
struct Bed(AtomicU32);

impl Bed {
    /// Wakes who sleeps here; ns in the system call.
    fn wake(&self) -> f64 {
        self.0.fetch_add(1, Ordering::Release);
        let start = Instant::now();
        // That nobody sleeps here is not worth failing for: the median stands.
        let _ = futex::wake(&self.0, futex::Flags::empty(), 1);
        start.elapsed().as_nanos() as f64
    }
}

/// Everything that the threads share.
struct Stage {
    wakees: [Bed; WAKEES],
    /// Two that the owner wakes for itself.
    owners: [Bed; 2],
    /// One that the waker wakes for itself.
    wakers: Bed,
    /// What the owner is asked for, see [`Order`]; 0 when it is done.
    order: AtomicU32,
    /// Wakees that have not run yet.
    to_run: AtomicU32,
    start: Instant,
    /// When the last of them had run, ns since `start`.
    ran_at: AtomicU64,
    stopping: AtomicBool,
}

/// What the owner is asked for.
#[derive(Clone, Copy)]
enum Order {
    WarmUp = 1,
    Stop,
    /// And the number of the case.
    Case,
}

impl Stage {
    fn new() -> Stage {
        Stage {
            wakees: Default::default(),
            owners: Default::default(),
            wakers: Bed::default(),
            order: AtomicU32::new(0),
            to_run: AtomicU32::new(0),
            start: Instant::now(),
            ran_at: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// A task that sleeps in `bed` on `cpu` whenever it is not woken.
    fn sleep(&self, cpu: usize, bed: &Bed) -> io::Result<()> {
        pin(cpu)?;
        become_batch()?;
        let mut seen = 0;
        loop {
            // Woken, or not asleep because the word has changed: both are seen below.
            let _ = futex::wait(&bed.0, futex::Flags::empty(), seen, None);
            if self.stopping.load(Ordering::Acquire) {
                return Ok(());
            }
            let word = bed.0.load(Ordering::Acquire);
            // A wakee that was too late for its round must not count below zero.
            if word != seen
                && self.is_wakee(bed)
                && self.to_run.load(Ordering::Acquire) > 0
                && self.to_run.fetch_sub(1, Ordering::AcqRel) == 1
            {
                self.ran_at.store(self.now(), Ordering::Release);
            }
            seen = word;
        }
    }

    fn is_wakee(&self, bed: &Bed) -> bool {
        self.wakees.as_ptr_range().contains(&std::ptr::from_ref(bed))
    }

    fn ask(&self, order: u32) {
        self.order.store(order, Ordering::Release);
        while self.order.load(Ordering::Acquire) != 0 {}
    }

    /// The waker: all rounds. It asks even if it could not be pinned, for the owner waits.
    fn wake_in_rounds(&self, cpu: usize) -> io::Result<Vec<Row>> {
        let pinned = pin(cpu);
        let mut rows = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            for case in Case::ALL {
                self.to_run.store(case.woken() as u32, Ordering::Release);
                self.ask(Order::WarmUp as u32);
                self.wakers.wake();
                let took: Vec<f64> = self.wakees[..case.outside()].iter().map(Bed::wake).collect();
                if case == Case::All {
                    rows.push(Row::of(&took));
                }
                self.ask(Order::Case as u32 + case as u32);
                std::thread::sleep(Duration::from_micros(30));
            }
        }
        pinned.map(|()| rows)
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ask(Order::Stop as u32);
        for bed in self.wakees.iter().chain(&self.owners).chain([&self.wakers]) {
            bed.wake();
        }
    }

    /// The owner: does what it is asked for, and spins.
    fn own(&self, cpu: usize) -> io::Result<Vec<Owned>> {
        let pinned = pin(cpu);
        let mut rounds = vec![Owned::default()];
        loop {
            let order = self.order.load(Ordering::Acquire);
            if order == Order::Stop as u32 {
                break;
            }
            if order == Order::WarmUp as u32 {
                self.owners[0].wake();
            } else if order >= Order::Case as u32 {
                let case = Case::ALL[(order - Order::Case as u32) as usize];
                let round = rounds.last_mut().expect("never empty");
                self.own_case(case, round);
                if case == Case::Owner {
                    rounds.push(Owned::default());
                }
            } else {
                continue;
            }
            self.order.store(0, Ordering::Release);
        }
        self.order.store(0, Ordering::Release);
        rounds.pop();
        pinned.map(|()| rounds)
    }

    fn own_case(&self, case: Case, round: &mut Owned) {
        if case == Case::Owner {
            let took: Vec<f64> = self.wakees.iter().map(Bed::wake).collect();
            round.row = Row::of(&took);
        }
        round.own[case as usize] = self.owners[1].wake();
        let from = self.now();
        // The wakees run and sleep again.
        std::thread::sleep(Duration::from_micros(200));
        let ran_at = self.ran_at.load(Ordering::Acquire);
        round.run[case as usize] = ran_at.saturating_sub(from) as f64 / WAKEES as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside other work a wakee may not run in time, and then one of the samples says nothing.
    #[test]
    fn wakeups_from_outside_are_timed_and_everybody_goes_home() {
        if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            let samples = Wakes::measure(0, 1).unwrap().samples();
            assert!(samples.iter().any(|(_, s)| s.low != s.high), "nothing was timed");
            for (name, s) in samples {
                let ordered = s.low <= s.mid && s.mid <= s.high;
                assert!(ordered && s.low.is_finite() && s.high.is_finite(), "{name}: {s:?}");
            }
        }
    }

    #[test]
    fn differences_are_taken_round_by_round() {
        // The second round runs at half the speed; both show the same order of costs.
        let waker =
            [Row { first: 1_900.0, further: 1_500.0 }, Row { first: 3_800.0, further: 3_000.0 }];
        let owned = |speed: f64| Owned {
            row: Row { first: 1_000.0 * speed, further: 900.0 * speed },
            own: [900.0, 2_000.0, 0.0, 0.0].map(|ns| ns * speed),
            run: [0.0, 0.0, 3_600.0, 2_700.0].map(|ns| ns * speed),
        };
        let w = difference(&waker[..1], &[owned(1.0)]);
        let mid = |w: &Wakes| [w.queue, w.queue_back, w.wakee, w.wakee_back].map(|s| s.mid);
        assert_eq!(mid(&w), [300.0, 1_100.0, 600.0, 900.0]);
        assert_eq!(w.shares(100.0).map(|s| s.mid.round()), [2_000.0, 10_000.0, 5_000.0, 9_000.0]);
        let both = difference(&waker, &[owned(1.0), owned(2.0)]);
        assert_eq!((both.queue.low, both.queue.high), (300.0, 600.0));
    }

    #[test]
    fn faster_than_on_one_cpu_is_no_wait() {
        let none = Sample { low: -50.0, mid: -10.0, high: 20.0 };
        let w = Wakes { queue: none, queue_back: none, wakee: none, wakee_back: none };
        assert_eq!(w.shares(100.0).map(|s| s.mid), [0.0; 4]);
        assert_eq!(w.shares(100.0)[3].high, 200.0);
    }

    #[test]
    fn a_row_is_its_first_and_the_mean_of_those_after_the_second() {
        let row = Row::of(&[9.0, 100.0, 4.0, 6.0]);
        assert_eq!((row.first, row.further), (9.0, 5.0));
    }
}
