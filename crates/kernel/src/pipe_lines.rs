//! The cache lines that a message drags along besides the pipe's mutex.
//!
//! *What.* Under the mutex, a write or read works on the slot (`struct pipe_buffer`) and on the
//! bytes in its page: both lie in the cache of whoever touched them last. Around the call, `fget`
//! and `fput` count the `struct file` – if several threads share the file table; a process with a
//! table of its own looks files up without counting.
//! *Source.* Linux 6.1.192 and 6.12.117, fs/pipe.c `pipe_write`, `pipe_read`; fs/file.c
//! `__fget_light`; include/linux/pipe_fs_i.h. Transfers: `line_transfer` of the machine.
//! *Equations.* T(x) = transfer from CPU x; w, r: CPUs of the last write and of the last read.
//! Slot of a write: T(w), or T of whoever used the pipe last if there is one slot only, as readers
//! then work on the same. Slot of a read: the same with 0 for T(w), as readers have their slot to
//! themselves. Data: a read fetches what was written, T(w); a write takes the lines from readers
//! and from the writer before it, at the same time: max(T(w), T(r)).
//! File: T(last CPU that counted it), before the mutex – twice up to 6.12, where `get_file_rcu`
//! reads the count and then exchanges it – and once after it if another CPU has counted it in
//! between.
//! *Departures.* D1: the data of every message lies with the last writer, wherever older messages
//! were written. D2: who counts a file while its owner copies pays, the owner does not; counts do
//! not queue up. D3: the ends that readers read from have one file each and one user.
//! *Example.* T = 60 between any two CPUs. Three CPUs: 0 writes, 1 reads, 2 writes, all in one
//! slot. The read pays 60 for the slot and 60 for the data, the second write the same; so would
//! CPU 0 as a reader that comes next.

use crate::pipe::Pipe;
use vruntime_base::{Cpu, Ns};

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
    /// `c` has the mutex and is about to write: what slot and data cost. `before` had the mutex
    /// before it.
    #[inline(always)]
    pub fn fetch_for_write(
        &mut self,
        c: Cpu,
        before: Cpu,
        transfer: impl Fn(Cpu, Cpu) -> Ns,
    ) -> Ns {
        let one_slot = self.has_one_slot();
        let lines = &mut self.mutex.lines;
        let (w, r) = (transfer(lines.writer, c), transfer(lines.reader, c));
        let slot = if one_slot && before != lines.writer { r } else { w };
        lines.writer = c;
        slot + w.max(r)
    }
    /// `c` has the mutex and is about to read: what slot and data cost.
    #[inline(always)]
    pub fn fetch_for_read(&mut self, c: Cpu, before: Cpu, transfer: impl Fn(Cpu, Cpu) -> Ns) -> Ns {
        let one_slot = self.has_one_slot();
        let lines = &mut self.mutex.lines;
        let w = transfer(lines.writer, c);
        let slot = if one_slot && before == lines.writer { w } else { Ns::ZERO };
        lines.reader = c;
        slot + w
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
        assert_eq!(p.fetch_for_write(A, Cpu::NONE, sixty), Ns(0));
        p.write(100);
        assert_eq!(p.fetch_for_read(B, A, sixty), Ns(120));
        assert_eq!(p.fetch_for_write(C, B, sixty), Ns(120));
        p.write(100);
        assert_eq!(p.fetch_for_read(A, C, sixty), Ns(120));
    }

    #[test]
    fn with_two_slots_a_reader_has_its_own() {
        let mut p = Pipe::new(4096, 0);
        p.write(4096);
        p.fetch_for_write(A, Cpu::NONE, sixty);
        p.write(4096);
        assert_eq!(p.fetch_for_read(B, A, sixty), Ns(60));
        assert_eq!(p.fetch_for_write(A, B, sixty), Ns(60), "the page was read by B");
    }

    #[test]
    fn one_cpu_alone_fetches_nothing() {
        let mut p = Pipe::new(4096, 0);
        for _ in 0..100 {
            assert_eq!(p.fetch_for_write(A, A, sixty), Ns(0));
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
