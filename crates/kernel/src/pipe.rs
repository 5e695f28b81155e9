//! Pipes: the ring, its mutex and its two wait queues.
//!
//! *What.* What `write` and `read` do to the ring, and the state that mutex and wait queues keep.
//! Whom they wake is decided in `pipe_ops`.
//! *Source.* Linux fs/pipe.c (`pipe_write`, `pipe_read`), 5.6 to 6.18.
//! *Equations.* A ring of 16 slots of a page each. When a write begins, what it has beyond whole
//! pages is appended to the last slot if all of that fits there; the rest takes new slots, and so
//! does all of a write that has waited for room. 40 messages of 100 bytes fill a slot of 4 KiB, 640
//! a pipe; 16 writers that had to wait fill it with 16.
//! *Departures.* D1: copying never faults. D2: who writes may have 16 slots: root, or a user with
//! less than 16,384 pages in pipes (others get two).
//! *Example.* Pages of 4 KiB: a write of 4000 bytes takes a new slot, 96 more are appended to it, 1
//! more takes the next slot.

use crate::pipe_lines::PipeLines;
use crate::wait::WaitQueue;
use vruntime_base::{Cpu, Ns, TaskId};

/// Slots of a pipe of default size.
pub const PIPE_SLOTS: usize = 16;

/// A sleeping lock with optimistic spinning (`struct mutex`).
#[derive(Clone, Copy, Debug)]
pub struct Mutex {
    /// Owner; NONE when free. With `free_at` in the past the owner has released it.
    pub owner: TaskId,
    /// When the owner releases it, where that is known.
    pub free_at: Ns,
    /// CPU that held it last: its line lies there.
    pub last_cpu: Cpu,
    /// First CPU spinning for it (the MCS queue).
    pub spin_head: Cpu,
    /// Last CPU spinning for it.
    pub spin_tail: Cpu,
    /// Tasks sleeping for it.
    pub sleepers: WaitQueue,
    /// Where the lines are that it guards.
    pub lines: PipeLines,
}

impl Default for Mutex {
    fn default() -> Self {
        Mutex {
            owner: TaskId::NONE,
            free_at: Ns::ZERO,
            last_cpu: Cpu::NONE,
            spin_head: Cpu::NONE,
            spin_tail: Cpu::NONE,
            sleepers: WaitQueue::default(),
            lines: PipeLines::default(),
        }
    }
}

/// `struct pipe_inode_info`: its ring on one cache line, everything else on a second.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Pipe {
    /// Bytes left in each slot.
    left: [u32; PIPE_SLOTS],
    /// `pipe->mutex`.
    pub mutex: Mutex,
    /// Readers that wait.
    pub rd_wait: WaitQueue,
    /// Writers that wait.
    pub wr_wait: WaitQueue,
    /// Where the newest slot's data ends in its page.
    last_end: u32,
    /// Who keeps the locks of `rd_wait` and `wr_wait` (`CpuSim::held`): their last holders, or the
    /// next ones.
    pub wakers: [Cpu; 2],
    /// Progress group; `u16::MAX` for none.
    pub group: u16,
    head: u8,
    tail: u8,
    /// log2 of the bytes of a page.
    page_shift: u8,
    /// Somebody has polled it.
    pub poll_usage: bool,
    /// It was empty, has been written since, and nobody has read since then.
    pub slot_unread: bool,
}

impl Pipe {
    /// An empty pipe of 16 slots of `page` bytes.
    pub fn new(page: u32, group: u16) -> Pipe {
        Pipe {
            mutex: Mutex::default(),
            rd_wait: WaitQueue::default(),
            wr_wait: WaitQueue::default(),
            left: [0; PIPE_SLOTS],
            last_end: 0,
            wakers: [Cpu::NONE; 2],
            head: 0,
            tail: 0,
            page_shift: page.ilog2() as u8,
            group,
            poll_usage: false,
            slot_unread: false,
        }
    }
    /// No data.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }
    /// No free slot.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        usize::from(self.head - self.tail) >= PIPE_SLOTS
    }
    /// It has data, and less than `bytes` of it in all.
    #[inline(always)]
    pub fn holds_less_than(&self, bytes: u32) -> bool {
        let slot = |i: u8| self.left[i as usize % PIPE_SLOTS];
        match self.head - self.tail {
            1 => slot(self.tail) < bytes,
            2 => slot(self.tail) + slot(self.tail + 1) < bytes,
            _ => false,
        }
    }
    /// Stores up to `bytes`, of a write that `begins` or has waited for room; returns how many went
    /// in and how many new slots they took.
    #[inline(always)]
    pub fn write(&mut self, bytes: u32, begins: bool) -> (u32, u32) {
        let page = 1 << self.page_shift;
        let odd = bytes & (page - 1);
        if begins && odd != 0 && !self.is_empty() && self.last_end + odd <= page {
            self.left[(self.head as usize - 1) % PIPE_SLOTS] += odd;
            self.last_end += odd;
            if odd == bytes {
                return (bytes, 0);
            }
            let (n, new_slots) = self.fill_slots(bytes - odd, page);
            return (odd + n, new_slots);
        }
        self.fill_slots(bytes, page)
    }
    /// Stores up to `bytes` in new slots; returns how many, in how many slots.
    #[inline(never)]
    fn fill_slots(&mut self, mut bytes: u32, page: u32) -> (u32, u32) {
        let wanted = bytes;
        let mut new_slots = 0;
        while bytes > 0 && !self.is_full() {
            let n = bytes.min(page);
            self.left[self.head as usize % PIPE_SLOTS] = n;
            self.head += 1;
            self.last_end = n;
            bytes -= n;
            new_slots += 1;
        }
        self.rebase();
        (wanted - bytes, new_slots)
    }
    /// Takes up to `bytes`; returns how many came out and whether a slot became free.
    #[inline(always)]
    pub fn read(&mut self, bytes: u32) -> (u32, bool) {
        let slot = &mut self.left[self.tail as usize % PIPE_SLOTS];
        if *slot > bytes && self.head != self.tail {
            *slot -= bytes;
            return (bytes, false);
        }
        self.empty_slots(bytes)
    }
    /// Takes up to `bytes`, whole slots among them.
    #[inline(never)]
    fn empty_slots(&mut self, bytes: u32) -> (u32, bool) {
        let mut want = bytes;
        let mut freed = false;
        while want > 0 && !self.is_empty() {
            let slot = &mut self.left[self.tail as usize % PIPE_SLOTS];
            let n = want.min(*slot);
            *slot -= n;
            want -= n;
            if *slot == 0 {
                self.tail += 1;
                freed = true;
            }
        }
        (bytes - want, freed)
    }
    /// Keeps `head` and `tail` small, so that they never wrap.
    #[inline]
    fn rebase(&mut self) {
        const ROUNDS: u8 = 8 * PIPE_SLOTS as u8;
        if self.tail >= ROUNDS {
            self.tail -= ROUNDS;
            self.head -= ROUNDS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_two_lines() {
        assert_eq!(size_of::<Pipe>(), 128);
        assert_eq!(size_of::<crate::sim::Channel>(), 128);
    }

    #[test]
    fn forty_messages_to_a_slot_640_to_a_pipe() {
        let mut p = Pipe::new(4096, 0);
        let mut slots = 0;
        for i in 0..640 {
            assert!(!p.is_full() || i > 600, "full after {i}");
            let (n, new) = p.write(100, true);
            assert_eq!(n, 100);
            slots += new;
        }
        assert_eq!(slots, 16);
        assert_eq!(p.write(100, true), (0, 0));
        // The 40th read frees the first slot, and room for 40 more appears.
        for i in 1..=40 {
            assert_eq!(p.read(100), (100, i == 40));
        }
        assert!(!p.is_full());
        assert_eq!(p.write(100, true), (100, 1));
    }

    #[test]
    fn big_pages_and_short_reads() {
        let mut p = Pipe::new(65536, 0);
        assert_eq!(p.write(100_000, true), (100_000, 2));
        assert_eq!(p.read(70_000), (70_000, true));
        assert_eq!(p.read(70_000), (30_000, true));
        assert!(p.is_empty());
        assert_eq!(p.read(1), (0, false));
    }

    #[test]
    fn the_ring_goes_round_for_ever() {
        let mut p = Pipe::new(4096, 0);
        p.write(4096, true);
        for i in 0..200_000 {
            assert_eq!(p.write(4096 + i % 2, true), (4096 + i % 2, 1 + i % 2));
            assert_eq!(p.read(4096 + i % 2), (4096 + i % 2, true), "page {i}");
        }
        assert!(p.holds_less_than(4097) && !p.holds_less_than(4096));
    }

    #[test]
    fn a_full_last_page_takes_a_new_slot() {
        let mut p = Pipe::new(4096, 0);
        assert_eq!(p.write(4000, true), (4000, 1));
        assert_eq!(p.write(96, true), (96, 0));
        assert_eq!(p.write(1, true), (1, 1));
    }

    #[test]
    fn what_is_beyond_whole_pages_goes_to_the_last_slot() {
        let mut p = Pipe::new(4096, 0);
        p.write(100, true);
        assert_eq!(p.write(4096 + 50, true), (4146, 1));
        // 150 and 4096.
        assert_eq!((p.read(150), p.read(4096)), ((150, true), (4096, true)));
    }

    /// A full pipe: each read of 40 messages frees a slot, for one writer that has waited. Who
    /// comes then appends to what that one wrote.
    #[test]
    fn who_has_waited_takes_a_slot_of_its_own() {
        let mut p = Pipe::new(4096, 0);
        (0..640).for_each(|_| assert_eq!(p.write(100, true).0, 100));
        for _ in 0..2 {
            (0..40).for_each(|_| assert_eq!(p.read(100).0, 100));
            assert_eq!(p.write(100, false), (100, 1));
            assert_eq!(p.write(100, false), (0, 0));
        }
        assert_eq!(p.write(100, true), (100, 0));
    }
}
