//! The cache lines that a message drags along besides the pipe's mutex.
//!
//! *What.* Under the mutex, a write or read works on the slot (`struct pipe_buffer`) and on the
//! bytes in its page: both lie in the cache of whoever touched them last. Around the call, `fget`
//! and `fput` count the `struct file` – if several threads share the file table; a process with a
//! table of its own looks files up without counting.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c `pipe_write`, `pipe_read`; fs/file.c
//! `__fget_light`; include/linux/pipe_fs_i.h. Transfers: `line_transfer` of the machine. What of
//! them an operation waits for is five shares in its cost table, measured by `vruntime calibrate`:
//! two CPUs take turns at 20 pipes. On Sapphire Rapids, in transfers a visit, the mutex's included
//! (M messages a visit, D between writer and reader; medians of three quiet runs, lower sextile):
//!
//! | D | write, M = 1 | 3 | 6 | read, M = 1 | 3 | 6 |
//! |---|---|---|---|---|---|---|
//! | 0 | 2.1 | 3.7 | 4.5 | 3.2 | 4.2 | 7.5 |
//! | 2 | 1.2 | 2.2 | 3.2 | 1.9 | 3.8 | 6.5 |
//! | 5 | 1.5 | 2.2 | 3.4 | 1.6 | 2.7 | 4.2 |
//! | 10 | 1.2 | 1.5 | 2.3 | 1.1 | 1.4 | 2.5 |
//! | 20 to 100 | 1.0 | 1.1 | 1.4 | 1.0 | 1.1 | 1.3 |
//!
//! and a write after another CPU's write 2.1 to 2.3 with 100 messages between. In less quiet runs,
//! and by the median, far reads wait for up to 0.7 transfers a message, near ones for 1 to 1.5, and
//! a write after another CPU's for up to 3.
//! *Equations.* T(x) = transfer from CPU x; w, r: CPUs of the last write and read. Besides the
//! mutex's line a write waits for `pipe_slot` · T(w) if another CPU wrote last; if the pipe is
//! empty, for `pipe_emptied` · T(r); if it holds less than 1 KiB, for `pipe_near_write` · T(r). A
//! read waits for `pipe_slot` · T(w) if the pipe was empty since the last read, and for
//! `pipe_near_read` · T(w) with less than 1 KiB in the pipe, else `pipe_far_read` · T(w): far from
//! the writer lines are fetched before they are wanted.
//! File: T(last CPU that counted it), before the mutex – twice up to 6.12, where `get_file_rcu`
//! reads the count and then exchanges it – and once after it if another CPU has counted it in
//! between.
//! *Departures.* D1: the data of every message lies with the last writer, wherever older messages
//! were written. D2: who counts a file while its owner copies pays, the owner does not; counts do
//! not queue up. D3: the ends that readers read from have one file each and one user. D4: a
//! message is taken to be about 100 bytes long, as those that were measured.
//! *Example.* T = 60 between any two CPUs, Sapphire Rapids' shares (1.1, 1, 0.5, 1, 0.3). CPU 0
//! writes three messages into a pipe that CPU 1 has emptied, CPU 1 reads them: 60 + 30 + 30 and
//! 126 + 60 + 60 besides the mutex.

use crate::pipe::Pipe;
use vruntime_base::Cpu;
use vruntime_machine::Costs;

/// Bytes between writer and reader below which they are after the same lines.
const NEAR: u32 = 1024;

/// Who touched what last; `Cpu::NONE` at first.
#[derive(Clone, Copy, Debug)]
pub struct PipeLines {
    /// CPU of the last write.
    writer: Cpu,
    /// CPU of the last read.
    reader: Cpu,
    /// CPU that last counted the file that writers share.
    file: Cpu,
}

impl Default for PipeLines {
    fn default() -> Self {
        PipeLines { writer: Cpu::NONE, reader: Cpu::NONE, file: Cpu::NONE }
    }
}

impl PipeLines {
    /// `c` counts the file through which it writes or reads; returns where its line was.
    #[inline(always)]
    pub fn count_file(&mut self, c: Cpu, write: bool) -> Cpu {
        if write { std::mem::replace(&mut self.file, c) } else { self.reader }
    }
}

impl Pipe {
    /// `c` has the mutex and is about to write: how much (permille) of a transfer from which CPU it
    /// waits for.
    #[inline(always)]
    pub fn fetch_for_write(&mut self, c: Cpu, costs: &Costs) -> (Cpu, u32) {
        let empty = self.is_empty();
        self.slot_unread |= empty;
        let before = std::mem::replace(&mut self.mutex.lines.writer, c);
        let reader = self.mutex.lines.reader;
        if before != c {
            (before, costs.pipe_slot)
        } else if reader == c {
            (c, 0)
        } else if empty {
            (reader, costs.pipe_emptied)
        } else if self.holds_less_than(NEAR) {
            (reader, costs.pipe_near_write)
        } else {
            (reader, 0)
        }
    }
    /// `c` has the mutex and is about to read from a pipe with data: as
    /// [`Pipe::fetch_for_write`].
    #[inline(always)]
    pub fn fetch_for_read(&mut self, c: Cpu, costs: &Costs) -> (Cpu, u32) {
        let unread = std::mem::take(&mut self.slot_unread);
        self.mutex.lines.reader = c;
        let writer = self.mutex.lines.writer;
        if writer == c {
            return (c, 0);
        }
        let near = self.holds_less_than(NEAR);
        let of_data = if near { costs.pipe_near_read } else { costs.pipe_far_read };
        (writer, if unread { costs.pipe_slot + of_data } else { of_data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::Ns;

    const A: Cpu = Cpu(0);
    const B: Cpu = Cpu(1);
    const C: Cpu = Cpu(2);

    const COSTS: Costs = Costs {
        pipe_slot: 1_100,
        pipe_emptied: 1_000,
        pipe_near_write: 500,
        pipe_near_read: 1_000,
        pipe_far_read: 300,
        ..Costs::FREE
    };

    /// A transfer takes 60 ns.
    fn waits(c: Cpu, (from, share): (Cpu, u32)) -> u64 {
        if from.is_none() || from == c { 0 } else { Ns(60).permille(share).0 }
    }

    fn write(p: &mut Pipe, c: Cpu) -> u64 {
        let waits = waits(c, p.fetch_for_write(c, &COSTS));
        assert_eq!(p.write(100, true).0, 100);
        waits
    }

    fn read(p: &mut Pipe, c: Cpu) -> u64 {
        let waits = waits(c, p.fetch_for_read(c, &COSTS));
        assert_eq!(p.read(100).0, 100);
        waits
    }

    /// A pipe that A fills and B has emptied, with `n` messages of A's in it.
    fn between_a_and_b(n: usize) -> Pipe {
        let mut p = Pipe::new(4096, 0);
        write(&mut p, A);
        read(&mut p, B);
        for _ in 0..n {
            write(&mut p, A);
        }
        p
    }

    #[test]
    fn example() {
        let mut p = between_a_and_b(0);
        assert_eq!([A, A, A].map(|c| write(&mut p, c)), [60, 30, 30]);
        assert_eq!([B, B, B].map(|c| read(&mut p, c)), [126, 60, 60]);
    }

    #[test]
    fn a_second_writer_fetches_the_slot() {
        let mut p = between_a_and_b(100);
        assert_eq!([A, C, C, A].map(|c| write(&mut p, c)), [0, 66, 0, 66]);
    }

    /// The first read after an empty pipe is for the slot, too.
    #[test]
    fn a_kib_between_them_hides_most() {
        let mut p = between_a_and_b(20);
        assert_eq!([A, A].map(|c| write(&mut p, c)), [0, 0]);
        assert_eq!([B, B].map(|c| read(&mut p, c)), [84, 18]);
        for _ in 0..9 {
            assert_eq!(read(&mut p, B), 18);
        }
        // 11 messages are left; the next but one finds 1,000 bytes.
        assert_eq!([B, B].map(|c| read(&mut p, c)), [18, 60]);
        assert_eq!(write(&mut p, A), 30);
    }

    #[test]
    fn one_cpu_alone_fetches_nothing() {
        let mut p = Pipe::new(4096, 0);
        for _ in 0..100 {
            assert_eq!((write(&mut p, A), read(&mut p, A)), (0, 0));
        }
    }

    #[test]
    fn senders_hand_the_file_on_and_a_reader_keeps_its_own() {
        let mut l = PipeLines::default();
        assert_eq!(l.count_file(A, true), Cpu::NONE);
        assert_eq!(l.count_file(A, true), A);
        assert_eq!(l.count_file(B, true), A);
        assert_eq!(l.count_file(A, true), B);
        l.reader = C;
        assert_eq!(l.count_file(C, false), C);
    }
}
