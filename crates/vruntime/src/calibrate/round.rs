//! What takes one CPU, measured several times: the speed of a CPU changes from second to second
//! with what its neighbours do, and costs of different seconds do not go together.
//!
//! Each round is a process of its own, which has one thread to begin with, and other addresses.

use super::probe::{self, CHANNELS, Calls, MANY_CHANNELS, Sample, Sockets};
use serde::{Deserialize, Serialize};
use std::io;
use std::process::{Command, Stdio};
use vruntime_kernel::program::RootTask;
use vruntime_machine::Caches;

/// A round takes 3 to 6 s.
const ROUNDS: usize = 6;

/// Everything that is measured on one CPU, ns.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Round {
    /// System calls of a program with one thread.
    pub one: Calls,
    /// … with two, of which one sleeps.
    pub two: Calls,
    /// Messages on Unix stream sockets.
    pub sockets: Sockets,
    /// Round trip of two threads.
    pub threads: Sample,
    /// Round trip of two processes.
    pub processes: Sample,
    /// Once round [`CROWD`] threads.
    pub many_threads: Sample,
    /// Once round [`CROWD`] processes.
    pub many_processes: Sample,
    /// What a hop takes longer between two processes than between two threads.
    pub of_two: Sample,
    /// The same in rings of [`CROWD`].
    pub of_many: Sample,
    /// What a round trip takes longer if the thread has left the L2, where caches allow to see it.
    pub cold: Option<Sample>,
    /// The share of its time that a thread is interrupted.
    pub interrupted: f64,
}

/// More address spaces than the six that an x86 CPU keeps translations of.
pub const CROWD: usize = 8;

impl Round {
    /// One round. The first calls must be those of a program with one thread.
    pub fn measure(cpu: usize, caches: Caches) -> io::Result<Round> {
        let one = probe::calls(cpu)?;
        let sockets = probe::sockets(cpu, 60, CHANNELS, MANY_CHANNELS)?;
        // Close together, as they are compared; processes first, while this one has one thread.
        let processes = probe::processes_round_trip(cpu, 2)?;
        let many_processes = probe::processes_round_trip(cpu, CROWD)?;
        let threads = probe::threads_round_trip(cpu, 2)?;
        let many_threads = probe::threads_round_trip(cpu, CROWD)?;
        let more = |p: &Sample, t: &Sample, hops: usize| p.map(|ns| (ns - t.mid) / hops as f64);
        Ok(Round {
            one,
            two: probe::beside_a_thread(|| probe::calls(cpu))?,
            sockets,
            of_two: more(&processes, &threads, 2),
            of_many: more(&many_processes, &many_threads, CROWD),
            threads,
            processes,
            many_threads,
            many_processes,
            cold: cold_threads(cpu, caches)?,
            interrupted: probe::interrupted(cpu)?,
        })
    }

    /// The mean of some rounds.
    pub fn typical() -> io::Result<Round> {
        Ok(mean(&(0..ROUNDS).map(|_| in_a_process()).collect::<io::Result<Vec<_>>>()?))
    }
}

/// How much memory, KiB, is written so that a thread leaves the L2, or why that tells nothing:
/// twice the L2 at least must be written, and no more than half of the last cache; and the L2 must
/// hold the footprints of all threads.
pub fn cold_memory(caches: Caches) -> Result<u32, String> {
    let Caches { l2_kib, llc_mib, .. } = caches;
    let kib = (4 * l2_kib).min(llc_mib * 512);
    let all = u32::from(RootTask::default().footprint_kib) * CHANNELS as u32;
    if kib < 2 * l2_kib {
        return Err(format!("half of {llc_mib} MiB of last cache is not twice {l2_kib} KiB of L2"));
    }
    if l2_kib < 2 * all {
        let reason = format!("{l2_kib} KiB of L2 do not hold {CHANNELS} threads of 4 KiB twice");
        return Err(reason);
    }
    Ok(kib)
}

fn cold_threads(cpu: usize, caches: Caches) -> io::Result<Option<Sample>> {
    cold_memory(caches).ok().map(|kib| probe::cold_threads(cpu, kib)).transpose()
}

fn in_a_process() -> io::Result<Round> {
    let output = Command::new(std::env::current_exe()?)
        .args(["calibrate", "--round"])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("a round ended with {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Quantity by quantity. A CPU that has two speeds has no typical one: the mean, as of a benchmark
/// that runs for as long.
fn mean(rounds: &[Round]) -> Round {
    let of = |sample: &dyn Fn(&Round) -> Sample| {
        Sample::mean(&rounds.iter().map(sample).collect::<Vec<_>>())
    };
    let calls = |which: fn(&Round) -> &Calls| Calls {
        getppid: of(&|r| which(r).getppid),
        fcntl: of(&|r| which(r).fcntl),
        write: of(&|r| which(r).write),
        read: of(&|r| which(r).read),
    };
    Round {
        one: calls(|r| &r.one),
        two: calls(|r| &r.two),
        sockets: Sockets {
            send: of(&|r| r.sockets.send),
            recv: of(&|r| r.sockets.recv),
            backlog: of(&|r| r.sockets.backlog),
            crowded: of(&|r| r.sockets.crowded),
        },
        threads: of(&|r| r.threads),
        processes: of(&|r| r.processes),
        many_threads: of(&|r| r.many_threads),
        many_processes: of(&|r| r.many_processes),
        of_two: of(&|r| r.of_two),
        of_many: of(&|r| r.of_many),
        // The same caches in every round.
        cold: rounds.iter().map(|r| r.cold).collect::<Option<Vec<_>>>().map(|c| Sample::mean(&c)),
        interrupted: probe::mean(rounds.iter().map(|r| r.interrupted).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fastest round and the slowest do not move what the others say; quantities are on their
    /// own.
    #[test]
    fn one_round_that_is_fast_or_slow_does_not_count() {
        let round = |ns: f64, send: f64| {
            let s = Sample { low: ns - 1.0, mid: ns, high: ns + 1.0 };
            let calls = Calls { getppid: s, fcntl: s, write: s, read: s };
            let send = Sample { mid: send, ..s };
            let sockets = Sockets { send, recv: s, backlog: s, crowded: s };
            let (one, two) = (calls, calls);
            Round {
                one,
                two,
                sockets,
                threads: s,
                processes: s,
                many_threads: s,
                many_processes: s,
                of_two: s,
                of_many: s,
                cold: Some(s),
                interrupted: ns / 1e4,
            }
        };
        let rounds = [(50.0, 9.0), (99.0, 5.0), (100.0, 7.0), (125.0, 6.0), (500.0, 8.0)];
        let m = mean(&rounds.map(|(ns, send)| round(ns, send)));
        assert_eq!((m.one.write.mid, m.threads.low, m.sockets.recv.high), (108.0, 107.0, 109.0));
        assert_eq!((m.sockets.send.mid, m.of_two.mid), (7.0, 108.0));
        assert_eq!(m.cold.unwrap().mid, 108.0);
        assert!((m.interrupted - 0.0108).abs() < 1e-9);
    }

    /// What is not measured has a reason, and is no zero.
    #[test]
    fn caches_may_not_allow_to_see_a_cold_thread() {
        let of = |l2_kib, llc_mib| cold_memory(Caches { l1_kib: 32, l2_kib, llc_mib });
        assert_eq!(of(1024, 32), Ok(4096));
        assert!(of(1024, 2).unwrap_err().starts_with("half of 2 MiB"));
        assert!(of(128, 32).unwrap_err().starts_with("128 KiB of L2"));
        assert!(
            cold_threads(0, Caches { l1_kib: 32, l2_kib: 128, llc_mib: 32 }).unwrap().is_none()
        );
    }
}
