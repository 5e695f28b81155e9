//! The cache lines that a message drags along besides the pipe's mutex.
//!
//! *What.* Under the mutex, a write or read works on the slot (`struct pipe_buffer`) and on the
//! bytes in its page: both lie in the cache of whoever touched them last. Around the call, `fget`
//! and `fput` count the `struct file` – if several threads share the file table; a process with a
//! table of its own looks files up without counting.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c `pipe_write`, `pipe_read`; fs/file.c
//! `__fget_light`; include/linux/pipe_fs_i.h. Transfers: `line_transfer` of the machine. What of
//! them an operation waits for was measured (`vruntime calibrate` prints it as visits): two threads
//! on two CPUs of a Zen 4 guest, one filling 20 pipes with M messages of 100 bytes each, in turn,
//! then the other draining them one by one; more than on one CPU, in transfers (T = 37 ns in a
//! cache, about 200 ns between caches), of a whole visit to a pipe: a write 0 to 1 for any M, a
//! read 2 at M = 1, 1.9 to 2.8 at 3 and 10, 0 to 4 (between caches up to 10) at 30. Stores do not
//! wait for their lines, and what follows in a page is prefetched.
//! *Equations.* T(x) = transfer from CPU x; w: CPU of the last write. Besides the mutex's line a
//! write waits for nothing; a read waits T(w) if another CPU had the pipe since its last, else
//! T(w)/5.
//! File: T(last CPU that counted it), before the mutex – twice up to 6.12, where `get_file_rcu`
//! reads the count and then exchanges it – and once after it if another CPU has counted it in
//! between.
//! *Departures.* D1: the data of every message lies with the last writer, wherever older messages
//! were written. D2: who counts a file while its owner copies pays, the owner does not; counts do
//! not queue up. D3: the ends that readers read from have one file each and one user.
//! *Example.* T = 60 between any two CPUs. CPU 0 writes three messages, CPU 1 reads them: 0 and
//! 60 + 12 + 12 besides the mutex.

use crate::pipe::Pipe;
use vruntime_base::{Cpu, Ns};

/// Part of a transfer that a read waits for if it goes on in a page that it has been reading.
const PREFETCHED: u64 = 5;

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
    /// `c` has the mutex and is about to write.
    #[inline(always)]
    pub fn lines_of_write(&mut self, c: Cpu) {
        self.mutex.lines.writer = c;
    }
    /// `c` has the mutex and is about to read: what it waits for. `before` had the mutex before it.
    #[inline(always)]
    pub fn fetch_for_read(&mut self, c: Cpu, before: Cpu, transfer: impl Fn(Cpu, Cpu) -> Ns) -> Ns {
        let lines = &mut self.mutex.lines;
        lines.reader = c;
        let first = transfer(lines.writer, c);
        if before == c { Ns(first.0 / PREFETCHED) } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Cpu = Cpu(0);
    const B: Cpu = Cpu(1);
    const C: Cpu = Cpu(2);

    fn sixty(from: Cpu, to: Cpu) -> Ns {
        if from.is_none() || from == to { Ns::ZERO } else { Ns(60) }
    }

    #[test]
    fn example() {
        let mut p = Pipe::new(4096, 0);
        for _ in 0..3 {
            p.lines_of_write(A);
            p.write(100);
        }
        let read = |before| p.fetch_for_read(B, before, sixty).0;
        assert_eq!([A, B, B].map(read), [60, 12, 12]);
    }

    #[test]
    fn a_write_in_between_ends_the_stream() {
        let mut p = Pipe::new(4096, 0);
        p.lines_of_write(A);
        assert_eq!(p.fetch_for_read(B, A, sixty), Ns(60));
        p.lines_of_write(C);
        assert_eq!(p.fetch_for_read(B, C, sixty), Ns(60));
    }

    #[test]
    fn one_cpu_alone_fetches_nothing() {
        let mut p = Pipe::new(4096, 0);
        for _ in 0..100 {
            p.lines_of_write(A);
            p.write(100);
            assert_eq!(p.fetch_for_read(A, A, sixty), Ns(0));
            p.read(100);
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
