//! What is measured: small loops over real system calls, on CPUs of the machine's own choosing.
//!
//! Every probe repeats a batch many times and reports the median of the batches with the 10th and
//! 90th percentile, so an interrupt or a busy neighbour moves the range and not the middle.

use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Pid, getppid, read, write};
use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One measured quantity, ns: of a round, or the means of these over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// 10th percentile.
    pub low: f64,
    /// Median.
    pub mid: f64,
    /// 90th percentile.
    pub high: f64,
}

impl Sample {
    /// Median and percentiles; zero if there are no values.
    pub fn of(mut values: Vec<f64>) -> Sample {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            values.get((values.len().saturating_sub(1) as f64 * part).round() as usize).copied()
        };
        Sample {
            low: at(0.1).unwrap_or(0.0),
            mid: at(0.5).unwrap_or(0.0),
            high: at(0.9).unwrap_or(0.0),
        }
    }

    /// Each figure on average, without its lowest and its highest if there are three or more.
    pub fn mean(of: &[Sample]) -> Sample {
        let all = |figure: fn(&Sample) -> f64| mean(of.iter().map(figure).collect());
        Sample { low: all(|s| s.low), mid: all(|s| s.mid), high: all(|s| s.high) }
    }

    /// Each figure through `f`.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Sample {
        Sample { low: f(self.low), mid: f(self.mid), high: f(self.high) }
    }
}

/// The mean of `values` without the lowest and the highest, of fewer than three that of all; zero
/// if there are none.
pub fn mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let values = match values.len() {
        n @ 3.. => &values[1..n - 1],
        _ => &values[..],
    };
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Binds the calling thread to `cpu`.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    let of = |e: nix::Error| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), format!("a thread cannot be bound to CPU {cpu}: {e}"))
    };
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(of)
}

/// Whether a thread may be bound to each of `nr_cpus` CPUs: in a cpuset of fewer some refuse. A
/// probe of two CPUs would wait for the one that never comes.
pub fn may_use(nr_cpus: usize) -> io::Result<()> {
    let tried = std::thread::spawn(move || (0..nr_cpus).try_for_each(pin));
    let allowed = tried.join().unwrap_or_else(|_| Err(io::Error::other("thread")));
    allowed.map_err(|e| {
        let all = "all CPUs of the machine are measured, which a cpuset of fewer does not allow";
        io::Error::new(e.kind(), format!("{e}: {all}"))
    })
}

/// Runs `batch` many times on `cpu` and divides each time by `n`.
fn repeat(
    cpu: usize,
    batches: usize,
    n: usize,
    mut batch: impl FnMut() -> io::Result<()>,
) -> io::Result<Sample> {
    pin(cpu)?;
    batch()?;
    let mut values = Vec::with_capacity(batches);
    for _ in 0..batches {
        let start = Instant::now();
        batch()?;
        values.push(start.elapsed().as_nanos() as f64 / n as f64);
    }
    Ok(Sample::of(values))
}

/// System calls that neither sleep nor wake.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Calls {
    /// `getppid` does nothing: entry and exit.
    pub getppid: Sample,
    /// `fcntl(F_GETFL)` looks up a file and does nothing with it, and is no cancellation point.
    pub fcntl: Sample,
    /// Write of 100 bytes to one of [`CHANNELS`] pipes with room, each in turn.
    pub write: Sample,
    /// Read of 100 bytes from one that holds data, one pipe after the other.
    pub read: Sample,
}

/// Batches of each in turn, so that a change of the CPU's speed meets all. Messages go to
/// [`CHANNELS`] pipes in turn, as hackbench's do: of one alone all lines would be in the L1.
pub fn calls(cpu: usize) -> io::Result<Calls> {
    /// Three pages of a pipe.
    const IN_A_PIPE: usize = 120;
    const N: usize = 600;
    pin(cpu)?;
    let pipes = (0..CHANNELS).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>()?;
    let (mut readers, mut writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    let mut took = [const { vec![] }; 4];
    for _ in 0..301 {
        let getppid = timed(|| {
            for _ in 0..N {
                std::hint::black_box(getppid());
            }
            Ok(())
        });
        let lookup = timed(|| {
            for _ in 0..N {
                std::hint::black_box(fcntl(&readers[0], FcntlArg::F_GETFL)?);
            }
            Ok(())
        });
        let write = fill(&mut writers, IN_A_PIPE);
        let read = drain(&mut readers, IN_A_PIPE);
        let messages = IN_A_PIPE * CHANNELS;
        for (all, (ns, n)) in
            took.iter_mut().zip([(getppid, N), (lookup, N), (write, messages), (read, messages)])
        {
            all.push(ns? / n as f64);
        }
    }
    let [getppid, fcntl, write, read] = took.map(Sample::of);
    Ok(Calls { getppid, fcntl, write, read })
}

/// How long it took, ns.
fn timed(calls: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    calls()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// The share of its time that a thread which only looks at the clock does not have: ticks, other
/// interrupts, other work, and what a hypervisor takes.
pub fn interrupted(cpu: usize) -> io::Result<f64> {
    const LOOKS: usize = 4_000_000;
    const FOR: Duration = Duration::from_millis(200);
    pin(cpu)?;
    // Written before, so that no page is missing.
    let mut gaps = vec![u32::MAX; LOOKS];
    let start = Instant::now();
    let (mut last, mut n) = (start, 0);
    while last - start < FOR && n < LOOKS {
        let now = Instant::now();
        gaps[n] = (now - last).as_nanos().min(u128::from(u32::MAX)) as u32;
        (last, n) = (now, n + 1);
    }
    Ok(lost(&mut gaps[..n]))
}

/// The share that is lost of the sum of `gaps` between looks, ns: what is beyond the usual gap in
/// those of more than 1 us and five times that.
fn lost(gaps: &mut [u32]) -> f64 {
    let all: f64 = gaps.iter().copied().map(f64::from).sum();
    if all == 0.0 {
        return 0.0;
    }
    let middle = gaps.len() / 2;
    let usual = f64::from(*gaps.select_nth_unstable(middle).1);
    let long = gaps.iter().copied().map(f64::from).filter(|g| *g > f64::max(1_000.0, 5.0 * usual));
    long.map(|g| g - usual).sum::<f64>() / all
}

/// Measures while this program has a second thread, which sleeps.
pub fn beside_a_thread<T>(measure: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    std::thread::scope(|scope| {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || wait.recv());
        let measured = measure();
        drop(done);
        measured
    })
}

/// Messages on a socket: the usual buffer holds 278.
pub const ON_A_SOCKET: usize = 250;

/// Messages of 100 bytes on Unix stream sockets.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Sockets {
    /// A send on one with room.
    pub send: Sample,
    /// A receive from one with data.
    pub recv: Sample,
    /// Both, with [`CHANNELS`] that are filled in turn and drained one by one: 4 MiB.
    pub backlog: Sample,
    /// The same with [`MANY_CHANNELS`]: 73 MiB, as of twenty groups of hackbench.
    pub crowded: Sample,
}

/// All in turn, so that a change of the CPU's speed meets all: `turns` times, with so many
/// sockets for `backlog`, and every twentieth time with so many for `crowded`.
pub fn sockets(cpu: usize, turns: usize, some: usize, many: usize) -> io::Result<Sockets> {
    pin(cpu)?;
    may_open(2 * (1 + some + many))?;
    let pairs = |n| -> io::Result<(Vec<_>, Vec<_>)> {
        Ok((0..n).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip())
    };
    let (mut one, mut some, mut many) = (pairs(1)?, pairs(some)?, pairs(many)?);
    let both = |(senders, receivers): &mut (Vec<UnixStream>, Vec<UnixStream>)| {
        let n = (senders.len() * ON_A_SOCKET) as f64;
        Ok::<_, io::Error>((fill(senders, ON_A_SOCKET)? / n, drain(receivers, ON_A_SOCKET)? / n))
    };
    let [mut send, mut recv, mut backlog, mut crowded] = [const { vec![] }; 4];
    for turn in 0..turns {
        // The first of three brings back what the others have pushed out.
        both(&mut one)?;
        for _ in 0..2 {
            let (sent, received) = both(&mut one)?;
            send.push(sent);
            recv.push(received);
        }
        let (sent, received) = both(&mut some)?;
        backlog.push(sent + received);
        if turn % 20 == 10 {
            both(&mut many)?;
            let (sent, received) = both(&mut many)?;
            crowded.push(sent + received);
        }
    }
    let [send, recv, backlog, crowded] = [send, recv, backlog, crowded].map(Sample::of);
    Ok(Sockets { send, recv, backlog, crowded })
}

/// Sees to it that `n` more files may be open.
fn may_open(n: usize) -> io::Result<()> {
    const OTHERS: u64 = 32;
    let wanted = n as u64 + OTHERS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if hard < wanted {
        let problem = format!("{n} sockets need {wanted} open files, `ulimit -Hn` says {hard}");
        return Err(io::Error::other(problem));
    }
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(())
}

/// Writes `n` messages of 100 bytes to each, one to each in turn; ns in all.
fn fill(writers: &mut [impl Write], n: usize) -> io::Result<f64> {
    let start = Instant::now();
    for _ in 0..n {
        for writer in &mut *writers {
            writer.write_all(&[0; 100])?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64)
}

/// Reads `n` messages from each, one channel after the other; ns in all.
pub fn drain(readers: &mut [impl Read], n: usize) -> io::Result<f64> {
    let start = Instant::now();
    let mut message = [0u8; 100];
    for reader in readers {
        for _ in 0..n {
            reader.read_exact(&mut message)?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64)
}

/// `n` round trips of 4 bytes a batch.
fn ping(cpu: usize, n: usize, to: impl AsFd, from: impl AsFd) -> io::Result<Sample> {
    let mut word = [0u8; 4];
    repeat(cpu, 201, n, || {
        for _ in 0..n {
            write(&to, &word)?;
            if read(&from, &mut word)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    })
}

/// Passes on what comes in, until there is no more. The bare calls: every page that a process
/// touches here is looked up again after a switch that flushes, as in any other small program.
pub fn echo(cpu: usize, from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    pin(cpu)?;
    let mut word = [0u8; 4];
    while read(&from, &mut word)? != 0 {
        write(&to, &word)?;
    }
    Ok(())
}

/// How many round trips of a ring of so many tasks are a batch.
fn batch_of(tasks: usize) -> usize {
    1_000 / tasks
}

/// Once round a ring of threads on one CPU: each makes a write, a read, and is switched to.
pub fn threads_round_trip(cpu: usize, threads: usize) -> io::Result<Sample> {
    let (mut last, first) = io::pipe()?;
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let (from, to) = io::pipe()?;
            let from = std::mem::replace(&mut last, from);
            scope.spawn(move || echo(cpu, from, to));
        }
        let sample = ping(cpu, batch_of(threads), &first, &last);
        drop(first);
        sample
    })
}

/// What calling one of 20 sleeping threads over two pipes takes longer after `memory_kib` have
/// been written than when each has just been called. The first few called after it bring in the
/// kernel's own way, and do not count.
pub fn cold_threads(cpu: usize, memory_kib: u32) -> io::Result<Sample> {
    const BATCHES: usize = 100;
    const WAY: usize = 3;
    pin(cpu)?;
    std::thread::scope(|scope| {
        let mut called = Vec::new();
        for _ in 0..CHANNELS {
            let (from, there) = io::pipe()?;
            let (back, to) = io::pipe()?;
            scope.spawn(move || echo(cpu, from, to));
            called.push((there, back));
        }
        let mut word = [0u8; 4];
        let mut call = |(to, from): &(PipeWriter, PipeReader)| {
            timed(|| {
                write(to, &word)?;
                read(from, &mut word).map(drop).map_err(io::Error::from)
            })
        };
        let mut memory = vec![0u64; memory_kib as usize * 1024 / size_of::<u64>()];
        let (mut cold, mut hot) = (Vec::new(), Vec::new());
        for _ in 0..BATCHES {
            memory.iter_mut().for_each(|w| *w = std::hint::black_box(*w + 1));
            let first: Vec<f64> = called.iter().map(&mut call).collect::<io::Result<_>>()?;
            cold.extend(&first[WAY..]);
            for pipes in &called {
                call(pipes)?;
            }
            for pipes in &called {
                hot.push(call(pipes)?);
            }
        }
        let hot = Sample::of(hot).mid;
        Ok(Sample::of(cold).map(|ns| ns - hot))
    })
}

/// The same of processes: this one, and this program so many times less one.
pub fn processes_round_trip(cpu: usize, processes: usize) -> io::Result<Sample> {
    let (mut last, first) = io::pipe()?;
    let mut children = Vec::new();
    for _ in 1..processes {
        let (from, to) = io::pipe()?;
        let from = std::mem::replace(&mut last, from);
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["calibrate", "--echo", &cpu.to_string()]).stdin(from).stdout(to);
        children.push(child.spawn()?);
    }
    let sample = ping(cpu, batch_of(processes), &first, &last);
    // Each child passes the end on to the next one.
    drop(first);
    for mut child in children {
        child.wait()?;
    }
    sample
}

/// A word on a line of its own.
#[repr(align(256))]
struct Alone(AtomicU64);

/// One-way transfer of a cache line between two CPUs: half a round trip of a flag.
pub fn line_transfer(a: usize, b: usize) -> io::Result<Sample> {
    const N: u64 = 2_000;
    const BATCHES: u64 = 101;
    let flag = Alone(AtomicU64::new(0));
    let wait_for = |value: u64| while flag.0.load(Ordering::Acquire) != value {};
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Each side waits for every turn of the other, so a failed pin must not end the loop.
            let pinned = pin(b);
            for i in 0..N * BATCHES {
                wait_for(2 * i + 1);
                flag.0.store(2 * i + 2, Ordering::Release);
            }
            pinned
        });
        let pinned = pin(a);
        let mut values = Vec::new();
        for batch in 0..BATCHES {
            let start = Instant::now();
            for i in batch * N..(batch + 1) * N {
                flag.0.store(2 * i + 1, Ordering::Release);
                wait_for(2 * i + 2);
            }
            values.push(start.elapsed().as_nanos() as f64 / (2 * N) as f64);
        }
        let joined: io::Result<()> =
            other.join().unwrap_or_else(|_| Err(io::Error::other("thread")));
        joined.and(pinned).map(|()| Sample::of(values))
    })
}

/// Channels that are filled in turn.
pub const CHANNELS: usize = 20;
/// So many that full sockets hold 73 MiB.
pub const MANY_CHANNELS: usize = 20 * CHANNELS;

/// What a wakeup of another CPU takes.
pub struct Wakeup {
    /// The `write`.
    pub sent: Sample,
    /// From before it until the reader is back in user mode.
    pub took: Sample,
}

/// A `write` on CPU `a` wakes a reader on CPU `b` that has slept for `gap`; CPU `a` spins
/// meanwhile.
pub fn wakeup(a: usize, b: usize, gap: Duration, n: usize) -> io::Result<Wakeup> {
    let (reader, writer) = io::pipe()?;
    let start = Instant::now();
    let sent = AtomicU64::new(0);
    let since = || start.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        let sent = &sent;
        let sleeper = scope.spawn(move || sleep_and_stamp(b, reader, n, since, sent));
        let woken = wake(a, writer, gap, n, since, sent);
        let values = sleeper.join().unwrap_or_else(|_| Err(io::Error::other("thread")))?;
        woken.map(|writes| Wakeup { sent: Sample::of(writes), took: Sample::of(values) })
    })
}

fn sleep_and_stamp(
    cpu: usize,
    mut reader: PipeReader,
    n: usize,
    now: impl Fn() -> u64,
    sent: &AtomicU64,
) -> io::Result<Vec<f64>> {
    pin(cpu)?;
    let mut values = Vec::with_capacity(n);
    let mut byte = [0u8; 1];
    while values.len() < n && reader.read(&mut byte)? == 1 {
        values.push(now().saturating_sub(sent.load(Ordering::Acquire)) as f64);
    }
    Ok(values)
}

fn wake(
    cpu: usize,
    mut writer: PipeWriter,
    gap: Duration,
    n: usize,
    now: impl Fn() -> u64,
    sent: &AtomicU64,
) -> io::Result<Vec<f64>> {
    pin(cpu)?;
    let mut writes = Vec::with_capacity(n);
    for _ in 0..n {
        let until = Instant::now() + gap;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let at = now();
        sent.store(at, Ordering::Release);
        writer.write_all(&[0])?;
        writes.push((now() - at) as f64);
    }
    Ok(writes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_percentiles() {
        let s = Sample::of((0..=100).rev().map(f64::from).collect());
        assert_eq!(s, Sample { low: 10.0, mid: 50.0, high: 90.0 });
        assert_eq!(Sample::of(vec![]).mid, 0.0);
    }

    /// No thread can be bound to a CPU that no set of CPUs has room for.
    #[test]
    fn a_cpu_that_may_not_be_used_is_named() {
        assert!(may_use(0).is_ok());
        let e = may_use(CpuSet::count() + 1).unwrap_err().to_string();
        assert!(e.contains("cannot be bound to CPU ") && e.contains("a cpuset of fewer"), "{e}");
    }

    /// Of 1,000 looks at 30 ns two are 6 us late, and one 0.9 us, which counts for nothing.
    #[test]
    fn what_is_lost_lies_in_long_gaps() {
        let mut gaps = vec![30; 1_000];
        (gaps[7], gaps[8], gaps[9]) = (6_030, 930, 6_030);
        assert_eq!(lost(&mut gaps), 12_000.0 / (997.0 * 30.0 + 930.0 + 12_060.0));
        // A clock that takes 2 us to read loses nothing by that.
        assert_eq!(lost(&mut [2_000; 100]), 0.0);
        assert_eq!(lost(&mut []), 0.0);
    }

    #[test]
    fn a_message_costs_more_than_an_empty_one() {
        let Calls { getppid, fcntl, write, read } = calls(0).unwrap();
        let Sockets { send, recv, .. } = sockets(0, 20, 2, 4).unwrap();
        assert!(getppid.mid > 5.0 && fcntl.mid > 5.0);
        for call in [write, read, send, recv] {
            assert!(call.mid > getppid.mid);
        }
    }
}
