//! What a task finds cold when it comes to a CPU: its data and its translations.
//!
//! *What.* On another CPU a task fetches its footprint again; on its own, tasks that ran since have
//! pushed it outwards. A CPU of x86 keeps the translations of six address spaces; a switch to
//! another one takes the place of one of them, in turn, and flushes.
//! *Source.* `vruntime_machine::cache`; Linux 6.1.192 and 6.12.117, arch/x86/mm/tlb.c
//! `choose_new_asid`, `TLB_NR_DYN_ASIDS`. In a Sapphire Rapids guest one writer and readers that it
//! wakes in turn, on one CPU, take as long a message whatever the number of readers if they are
//! threads, but 0.4 to 0.5 us more with 8 or 20 processes than with one.
//! *Equations.* See `vruntime_machine::cache`; a new address space costs `switch_new_asid`.
//! *Departures.* D1: translations of six address spaces or fewer do not crowd each other out. D2:
//! no kernel here invalidates any.
//! *Example.* Seven processes take turns: each switch flushes. Of six none does.

use crate::sim::Sim;
use crate::task::KTask;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};

/// `TLB_NR_DYN_ASIDS`.
const NR_ASIDS: usize = 6;

/// The address spaces whose translations a CPU keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asids {
    mms: [u32; NR_ASIDS],
    next: u8,
}

impl Asids {
    /// Switches to `mm`, which is not zero. True if its translations are not there.
    fn load(&mut self, mm: u32) -> bool {
        if self.mms.contains(&mm) {
            return false;
        }
        self.mms[usize::from(self.next)] = mm;
        self.next = (self.next + 1) % NR_ASIDS as u8;
        true
    }
}

impl Sim {
    /// `p` begins to run on `c` at `at`; returns when what it needs first is there.
    pub(crate) fn warm_up(&mut self, c: Cpu, p: TaskId, mut at: Ns) -> Ns {
        let mm = self.sh.tasks[p.ix()].mm;
        if mm != 0 && self.cpus[c.ix()].asids.load(mm) {
            at += self.work(c, Func::ContextSwitch, self.machine.costs.switch_new_asid);
        }
        let data = self.cold_cache(c, p);
        at + self.waited(c, Func::ColdCache, Resource::None, data)
    }

    /// How long the footprint of `p` takes, which begins to run on `c`.
    fn cold_cache(&mut self, c: Cpu, p: TaskId) -> Ns {
        let KTask { last_cpu, kib_stamp, footprint_kib, .. } = self.tasks[p.ix()];
        let clock = self.cpus[c.ix()].kib_clock;
        let kib = u32::from(footprint_kib);
        self.cpus[c.ix()].kib_clock = clock.wrapping_add(kib);
        let from = if last_cpu.is_none() {
            return Ns::ZERO;
        } else if last_cpu != c {
            self.machine.topo.distance(last_cpu, c)
        } else {
            self.machine.caches.pushed_to(kib, clock.wrapping_sub(kib_stamp))
        };
        self.machine.refill(kib, from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six are kept; the seventh takes the place of the first, the first then that of the second.
    #[test]
    fn six_address_spaces_keep_their_translations() {
        let mut asids = Asids::default();
        let mut flushes = |mms: &[u32]| mms.iter().map(|&m| asids.load(m)).collect::<Vec<_>>();
        assert_eq!(flushes(&[1, 2, 3, 4, 5, 6]), [true; 6]);
        assert_eq!(flushes(&[6, 1, 3]), [false; 3]);
        assert_eq!(flushes(&[7, 1, 3, 2]), [true, true, false, true]);
    }
}
