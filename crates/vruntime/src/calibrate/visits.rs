//! What a CPU waits for on a pipe that another CPU had before it.
//!
//! Two CPUs take turns at 20 pipes; nobody sleeps, nobody spins for a mutex. What a turn takes
//! more than the same calls on one CPU alone is the lines that come from the other. Much of it
//! hides behind the work itself, and how much depends on how far the writer is ahead of the reader:
//! lines farther ahead than about 1 KiB are fetched before they are wanted, nearer ones the two
//! CPUs take from each other again and again.

use super::probe::{CHANNELS, Sample, drain, pin};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use vruntime_machine::Distance;

/// What the second CPU does after the first has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Second {
    Reads,
    Writes,
}

/// How two CPUs use a pipe.
#[derive(Clone, Copy, Debug)]
struct Scene {
    name: &'static str,
    /// Messages between writer and reader.
    held: usize,
    /// Messages of a visit.
    messages: usize,
    second: Second,
}

const EMPTIED: Scene = Scene { name: "emptied pipe", held: 0, messages: 1, second: Second::Reads };
const NEAR: Scene =
    Scene { name: "pipe of 3 messages, 3 more", held: 3, messages: 3, second: Second::Reads };
const FAR: Scene =
    Scene { name: "pipe of 60 messages, 3 more", held: 60, messages: 3, second: Second::Reads };
const WRITERS: Scene =
    Scene { name: "pipe of 60 messages", held: 60, messages: 1, second: Second::Writes };

/// What each of the two CPUs waits for, ns a visit.
#[derive(Clone, Copy)]
pub struct Waits {
    first: Sample,
    second: Sample,
}

/// All scenes with one pair of CPUs.
#[derive(Clone, Copy)]
pub struct Visits {
    /// How far the two are apart.
    pub distance: Distance,
    pub emptied: Waits,
    pub near: Waits,
    pub far: Waits,
    pub writers: Waits,
}

impl Visits {
    /// Measures all scenes with CPUs `a` and `b`, which are so far apart.
    pub fn measure(distance: Distance, a: usize, b: usize) -> io::Result<Visits> {
        Ok(Visits {
            distance,
            emptied: waits(a, b, EMPTIED)?,
            near: waits(a, b, NEAR)?,
            far: waits(a, b, FAR)?,
            writers: waits(a, b, WRITERS)?,
        })
    }

    /// Name and value of everything measured. What the first of two writers waits for is not used:
    /// the reader that makes room again is on its own CPU.
    pub fn samples(&self) -> Vec<(String, Sample)> {
        let of = |what: &str, s: Scene| format!("{what}, {}, {}", s.name, self.distance.name());
        vec![
            (of("write", EMPTIED), self.emptied.first),
            (of("read", EMPTIED), self.emptied.second),
            (of("write", NEAR), self.near.first),
            (of("read", NEAR), self.near.second),
            (of("write", FAR), self.far.first),
            (of("read", FAR), self.far.second),
            (of("write after another CPU's", WRITERS), self.writers.second),
        ]
    }

    /// The shares of a transfer of `line` ns that they show, permille: `pipe_slot`,
    /// `pipe_emptied`, `pipe_near_write`, `pipe_near_read`, `pipe_far_read`. Every visit waits for
    /// the mutex's line first.
    pub fn shares(&self, line: f64) -> [Sample; 5] {
        let share = |of: Sample, messages: usize| {
            of.map(|ns| ((ns - line) / line / messages as f64 * 1000.0).clamp(0.0, 9_999.0))
        };
        [
            share(self.writers.second, WRITERS.messages),
            share(self.emptied.first, EMPTIED.messages),
            share(self.near.first, NEAR.messages),
            share(self.near.second, NEAR.messages),
            share(self.far.second, FAR.messages),
        ]
    }
}

/// Two ends of each of 20 pipes: what the first CPU writes to, what the second uses, and the
/// reading ends.
struct Ends {
    first: Vec<File>,
    second: Vec<File>,
    readers: Vec<File>,
}

impl Ends {
    /// With `held` messages in every pipe.
    fn new(scene: Scene) -> io::Result<Ends> {
        let (mut first, mut second, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..CHANNELS {
            let (reader, writer) = io::pipe()?;
            let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
            // A file of its own: threads that share one also hand its count to and fro.
            second.push(match scene.second {
                Second::Reads => File::from(reader.try_clone()?),
                Second::Writes => {
                    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
                    File::options().write(true).open(path)?
                }
            });
            first.push(File::from(writer));
            readers.push(File::from(reader));
        }
        fill(&mut first, scene.held)?;
        Ok(Ends { first, second, readers })
    }
}

/// Writes `n` messages to each, one pipe after the other; ns in all.
fn fill(writers: &mut [File], n: usize) -> io::Result<f64> {
    let start = Instant::now();
    for writer in writers {
        for _ in 0..n {
            writer.write_all(&[0; 100])?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64)
}

/// One turn of the second CPU.
fn second_turn(files: &mut [File], scene: Scene) -> io::Result<f64> {
    match scene.second {
        Second::Reads => drain(files, scene.messages),
        Second::Writes => fill(files, scene.messages),
    }
}

/// Both turns by one CPU: what each takes.
fn alone(own: &mut Ends, scene: Scene) -> io::Result<[f64; 2]> {
    let took = [fill(&mut own.first, scene.messages)?, second_turn(&mut own.second, scene)?];
    make_room(own, scene)?;
    Ok(took)
}

/// Where both have written, the readers take it out again.
fn make_room(ends: &mut Ends, scene: Scene) -> io::Result<()> {
    match scene.second {
        Second::Reads => Ok(()),
        Second::Writes => drain(&mut ends.readers, 2 * scene.messages).map(drop),
    }
}

/// What CPUs `a` and `b` wait for in `scene`: what their turns take more than the same turns on
/// pipes of their own, each on the same CPU – one of two neighbours may be slower.
fn waits(a: usize, b: usize, scene: Scene) -> io::Result<Waits> {
    const ROUNDS: u64 = 401;
    let mut pipes = Ends::new(scene)?;
    let (mut own_a, mut own_b) = (Ends::new(scene)?, Ends::new(scene)?);
    // Odd: the second CPU's turn.
    let turn = AtomicU64::new(0);
    let wait_for = |value: u64| while turn.load(Ordering::Acquire) != value {};
    let mut second_files = std::mem::take(&mut pipes.second);
    let (firsts, seconds) = std::thread::scope(|scope| {
        // Each side waits for every turn of the other, so a failure must not end a loop.
        let second = scope.spawn(|| {
            let pinned = pin(b);
            let turns: Vec<io::Result<f64>> = (0..ROUNDS)
                .map(|i| {
                    wait_for(2 * i + 1);
                    let took = second_turn(&mut second_files, scene);
                    let alone = alone(&mut own_b, scene).map(|[_, second]| second);
                    turn.store(2 * i + 2, Ordering::Release);
                    waited(took, alone)
                })
                .collect();
            pinned.and(turns.into_iter().collect::<io::Result<Vec<f64>>>())
        });
        let pinned = pin(a);
        let turns: Vec<io::Result<f64>> = (0..ROUNDS)
            .map(|i| {
                let alone = alone(&mut own_a, scene).map(|[first, _]| first);
                let took = fill(&mut pipes.first, scene.messages);
                turn.store(2 * i + 1, Ordering::Release);
                wait_for(2 * i + 2);
                make_room(&mut pipes, scene).and_then(|()| waited(took, alone))
            })
            .collect();
        let seconds = second.join().unwrap_or_else(|_| Err(io::Error::other("thread")));
        (pinned.and(turns.into_iter().collect::<io::Result<Vec<f64>>>()), seconds)
    });
    Ok(Waits { first: Sample::of(firsts?), second: Sample::of(seconds?) })
}

/// What a turn waited for, ns a visit.
fn waited(took: io::Result<f64>, alone: io::Result<f64>) -> io::Result<f64> {
    Ok((took? - alone?) / CHANNELS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_passes_all_its_messages() {
        if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            let v = Visits::measure(Distance::Llc, 0, 1).unwrap();
            for (name, s) in v.samples() {
                assert!(s.low <= s.mid && s.mid <= s.high && s.low != s.high, "{name}: {s:?}");
            }
        }
    }

    #[test]
    fn shares_are_what_is_left_without_the_line_of_the_mutex() {
        let about = |mid: f64| Sample { low: mid - 10.0, mid, high: mid + 10.0 };
        let waits = |first: f64, second: f64| Waits { first: about(first), second: about(second) };
        let v = Visits {
            distance: Distance::Llc,
            emptied: waits(200.0, 300.0),
            near: waits(250.0, 400.0),
            far: waits(100.0, 160.0),
            writers: waits(0.0, 210.0),
        };
        assert_eq!(
            v.shares(100.0).map(|s| s.mid.round()),
            [1_100.0, 1_000.0, 500.0, 1_000.0, 200.0]
        );
        assert_eq!(v.shares(100.0)[0].low, 1_000.0);
        // Faster than on one CPU: nothing is waited for.
        let fast = Visits { writers: waits(0.0, 50.0), ..v };
        assert_eq!(fast.shares(100.0)[0].mid, 0.0);
    }
}
