//! One level of sharing as a partition of the CPUs, and the padded ids that levels make.

use crate::SpecError;
use crate::topology::Distance;
use vruntime_base::{Cpu, CpuMask};

/// One level: the group of every CPU and the set of every group.
#[derive(Clone, Debug)]
pub struct Level {
    /// Group of each CPU.
    pub of: Vec<u16>,
    /// CPUs of each group.
    pub sets: Vec<CpuMask>,
}

impl Level {
    /// Groups numbered in order of their lowest CPU.
    pub fn new(name: &str, masks: &[CpuMask]) -> Result<Level, SpecError> {
        let mut of = vec![u16::MAX; masks.len()];
        let mut sets = Vec::new();
        for (i, mask) in masks.iter().enumerate() {
            let c = Cpu::from_ix(i);
            if of[i] != u16::MAX && sets[of[i] as usize] == *mask {
                continue;
            }
            let odd = mask.iter().find(|m| masks.get(m.ix()) != Some(mask));
            if let Some(m) = if mask.has(c) { odd } else { Some(c) } {
                let expected = format!("a set with CPU {c} in it that CPU {m} sees as well");
                let found = if mask.is_empty() { "nothing".into() } else { mask.to_string() };
                return Err(SpecError::new(format!("{name} set of CPU {c}"), found, expected));
            }
            for m in mask.iter() {
                of[m.ix()] = sets.len() as u16;
            }
            sets.push(*mask);
        }
        Ok(Level { of, sets })
    }
    /// The group of `c`.
    #[inline(always)]
    pub fn set(&self, c: Cpu) -> &CpuMask {
        &self.sets[self.of[c.ix()] as usize]
    }
    /// Checks that every group lies within one group of `outer`.
    pub fn nests_in(&self, name: &str, outer: &Level, outer_name: &str) -> Result<(), SpecError> {
        for s in &self.sets {
            let c = s.first().expect("groups are not empty");
            if !s.is_subset(outer.set(c)) {
                return Err(SpecError::new(
                    format!("{name} set of CPU {c}"),
                    s,
                    format!("a part of its {outer_name} set {}", outer.set(c)),
                ));
            }
        }
        Ok(())
    }
}

/// Padded ids, and the distance class for each length of difference. `levels` go outwards.
pub fn pad(levels: &[&Level; 4], n: usize) -> (Vec<u32>, [Distance; 33]) {
    let cpus = Level {
        of: (0..n as u16).collect(),
        sets: (0..n).map(|c| CpuMask::one(Cpu::from_ix(c))).collect(),
    };
    let machine = Level { of: vec![0; n], sets: vec![CpuMask::first_n(n)] };
    let [smt, l2, llc, package] = *levels;
    // Each field numbers the groups of one level inside a group of the next.
    let fields = [
        (&cpus, smt, Distance::Smt),
        (smt, l2, Distance::L2),
        (l2, llc, Distance::Llc),
        (llc, package, Distance::Package),
        (package, &machine, Distance::Remote),
    ];
    let mut padded = vec![0u32; n];
    let mut class = [Distance::Same; 33];
    let mut shift = 0;
    for (inner, outer, distance) in fields {
        let (position, widest) = positions(inner, outer);
        let bits = u32::BITS - widest.leading_zeros();
        for (id, &group) in padded.iter_mut().zip(&inner.of) {
            *id |= position[group as usize] << shift;
        }
        for length in shift + 1..=shift + bits {
            class[length as usize] = distance;
        }
        shift += bits;
    }
    (padded, class)
}

/// The position of each `inner` group among those of its `outer` group, and the largest position.
fn positions(inner: &Level, outer: &Level) -> (Vec<u32>, u32) {
    let mut position = vec![u32::MAX; inner.sets.len()];
    let mut widest = 0;
    for set in &outer.sets {
        let mut next = 0;
        for c in set.iter() {
            let slot = &mut position[inner.of[c.ix()] as usize];
            if *slot == u32::MAX {
                *slot = next;
                widest = widest.max(next);
                next += 1;
            }
        }
    }
    (position, widest)
}
