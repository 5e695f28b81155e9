//! A perf.data of ours as a big-endian machine would have written it.

use crate::numbers::perf_data::{FILE_HEADER, feature, record};

/// Turns around the bytes of numbers.
struct Swap(Vec<u8>);

impl Swap {
    fn turn(&mut self, at: usize, size: usize) {
        self.0[at..at + size].reverse();
    }
    /// Turns the numbers of these sizes that follow one another, and gives their end.
    fn row(&mut self, mut at: usize, sizes: &[usize]) -> usize {
        for size in sizes {
            self.turn(at, *size);
            at += size;
        }
        at
    }
    fn u64(&self, at: usize) -> usize {
        u64::from_le_bytes(self.0[at..at + 8].try_into().unwrap()) as usize
    }
    fn u32(&self, at: usize) -> usize {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap()) as usize
    }
    fn zero(&self, at: usize) -> usize {
        at + self.0[at..].iter().position(|b| *b == 0).unwrap()
    }
    /// A number of 8 bytes, and what it says the length of.
    fn sized(&mut self, at: usize) -> usize {
        let size = self.u64(at);
        self.turn(at, 8);
        at + 8 + size
    }

    fn record(&mut self, at: usize) -> usize {
        let (kind, size) = (self.u32(at), usize::from(self.0[at + 6]));
        self.row(at, &[4, 2, 2]);
        let body = at + 8;
        if kind == record::COMM as usize {
            self.row(body, &[4, 4]);
            self.row(body + 24, &[4, 4, 8, 8, 8]);
        } else if kind == record::SAMPLE as usize {
            let raw = self.row(body, &[8, 4, 4, 8, 4, 4, 8, 4]);
            self.raw(raw);
        }
        at + size
    }
    fn raw(&mut self, at: usize) {
        let id = usize::from(self.0[at]) + 256 * usize::from(self.0[at + 1]);
        self.row(at, &[2, 1, 1, 4]);
        let behind_comm = at + 24;
        match id {
            // sched_switch
            301 => {
                let next = self.row(behind_comm, &[4, 4, 8]);
                self.row(next + 16, &[4, 4]);
            }
            // sched_migrate_task
            305 => drop(self.row(behind_comm, &[4, 4, 4, 4])),
            // sched_stat_runtime
            306 => drop((self.turn(behind_comm, 4), self.turn(behind_comm + 8, 8))),
            _ => drop(self.row(behind_comm, &[4, 4, 4])),
        }
    }
    fn tracing_data(&mut self, mut at: usize) {
        at = self.zero(at + 10) + 1;
        self.0[at] = 1;
        at = self.row(at + 2, &[4]);
        for _ in 0..2 {
            at = self.zero(at) + 1;
            at = self.sized(at);
        }
        at = self.row(at, &[4, 4]);
        at = self.zero(at) + 1;
        let count = self.u32(at);
        at = self.row(at, &[4]);
        for _ in 0..count {
            at = self.sized(at);
        }
        at = self.row(at, &[4, 4]);
        self.sized(at);
    }
}

/// `file`, which is ours and little-endian, turned around.
pub(super) fn foreign(file: &[u8]) -> Vec<u8> {
    let mut s = Swap(file.to_vec());
    let (attrs, attrs_size, data, data_size) = (s.u64(24), s.u64(32), s.u64(40), s.u64(48));
    let flags = s.u64(72);
    s.turn(0, 8);
    s.row(8, &[8; 12]);
    for at in (FILE_HEADER as usize..attrs).step_by(8) {
        s.turn(at, 8);
    }
    for at in (attrs..attrs + attrs_size).step_by(128) {
        s.row(at, &[4, 4, 8, 8, 8, 8]);
        // The flags are bits from the first, which is the highest of a big-endian machine.
        s.row(at + 40, &[8]);
        s.row(at + 112, &[8, 8]);
    }
    let mut at = data;
    while at < data + data_size {
        at = s.record(at);
    }
    for feature in (0u64..64).filter(|f| flags >> f & 1 == 1) {
        let section = s.u64(at);
        s.row(at, &[8, 8]);
        at += 16;
        match feature {
            feature::TRACING_DATA => s.tracing_data(section),
            feature::NRCPUS => drop(s.row(section, &[4, 4])),
            // A text with its length.
            _ => s.turn(section, 4),
        }
    }
    s.0
}
