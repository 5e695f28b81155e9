//! The CPUs of a recording, which may have gaps where some were offline, numbered without gaps.

use vruntime_base::{Cpu, CpuMask};
use vruntime_formats::recording::Meta;

/// From the kernel's numbers to ours. The order stays, and with it the order of every search.
#[derive(Clone, Debug)]
pub struct CpuNumbers {
    count: usize,
    /// Ours, by the kernel's; empty if they are the same.
    index: Vec<Option<u16>>,
}

impl CpuNumbers {
    /// The CPUs 0 … `count` - 1.
    pub fn without_gaps(count: usize) -> CpuNumbers {
        CpuNumbers { count, index: vec![] }
    }
    /// Those that `meta` lists, `count` of them.
    pub fn of(meta: &Meta, count: usize) -> CpuNumbers {
        let mut index = vec![];
        for (ix, &n) in meta.cpu_numbers.iter().enumerate() {
            index.resize((n as usize + 1).max(index.len()), None);
            index[n as usize] = Some(ix as u16);
        }
        CpuNumbers { count, index }
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Our number of the kernel's CPU `n`.
    pub fn cpu(&self, n: i64) -> Option<Cpu> {
        let n = usize::try_from(n).ok()?;
        match self.index.as_slice() {
            [] => (n < self.count).then(|| Cpu::from_ix(n)),
            index => index.get(n).copied().flatten().map(Cpu),
        }
    }
    /// As [`CpuNumbers::cpu`]; -1 for a CPU that is not there.
    pub fn number(&self, n: i64) -> i64 {
        self.cpu(n).map_or(-1, |c| i64::from(c.0))
    }
    /// Our numbers of a set of the kernel's.
    pub fn mask(&self, m: &CpuMask) -> CpuMask {
        m.iter().filter_map(|c| self.cpu(i64::from(c.0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_closed_in_order() {
        let meta = Meta { cpu_numbers: vec![0, 2, 3, 8], ..Meta::default() };
        let n = CpuNumbers::of(&meta, 4);
        assert_eq!([0, 2, 8].map(|c| n.number(c)), [0, 1, 3]);
        assert_eq!([1, 9, -1, i64::MIN].map(|c| n.number(c)), [-1; 4]);
        let set: CpuMask = [Cpu(1), Cpu(3), Cpu(8)].into_iter().collect();
        assert_eq!(n.mask(&set), [Cpu(2), Cpu(3)].into_iter().collect());
        assert_eq!(CpuNumbers::without_gaps(2).number(2), -1);
    }
}
