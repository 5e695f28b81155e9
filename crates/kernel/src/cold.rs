//! What a task finds cold when it comes to a CPU: its data, its translations, and the kernel's way
//! to it.
//!
//! *What.* On another CPU a task fetches its footprint again; on its own, tasks that ran since and
//! messages that passed have pushed it outwards. They push out what the kernel itself needs for a
//! switch, too. A CPU of x86 keeps the translations of six address spaces; a switch to another one
//! takes the place of one of them, in turn, and flushes.
//! *Source.* `vruntime_machine::cache`; Linux 6.1.192 and 6.12.117, arch/x86/mm/tlb.c
//! `choose_new_asid`, `TLB_NR_DYN_ASIDS`. In a Sapphire Rapids guest one writer and readers that it
//! wakes in turn, on one CPU, take as long a message whatever the number of readers if they are
//! threads, but 0.4 to 0.5 us more with 8 or 20 processes than with one. There, after 8 to 16 MiB
//! of memory have been written, the first of 20 sleeping threads that are called over two pipes
//! answers 6.7 to 7.9 us later and all but the first few 2.1 to 2.2: the way is two footprints.
//! *Equations.* See `vruntime_machine::cache`; a new address space costs `switch_new_asid`. What
//! has passed the caches is footprints, by the switch, and Unix messages, as they are charged, sent
//! and received.
//! *Departures.* D1: translations of six address spaces or fewer do not crowd each other out. D2:
//! no kernel here invalidates any. D3: messages in pipes, 100 bytes where a socket has 768, push
//! nothing out. D4: a footprint passes at each switch, though it may still be there; the way never
//! does. D5: a move costs what being pushed out costs (a thread that has been moved was seen to
//! make its next 20 calls in 0.8 to 0.9 us more, its switch not counted).
//! *Example.* Seven processes take turns: each switch flushes. Of six none does. A sender fills
//! sockets with 3 MiB, then a receiver gets the CPU: way and footprint, 12 KiB, come from behind an
//! L2 of 2 MiB.

use crate::frame::CpuSim;
use crate::sim::Sim;
use crate::task::KTask;
use vruntime_base::{Cpu, Func, Ns, Resource, TaskId};
use vruntime_machine::{Caches, Distance};

/// What the kernel itself needs for a wakeup, a switch and the calls around them, KiB.
const WAY_KIB: u32 = 8;

/// How much has passed a CPU's caches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed(u64);

impl Passed {
    /// `bytes` more.
    pub(crate) fn add(&mut self, bytes: u32) {
        self.0 += u64::from(bytes);
    }
    /// The same in KiB.
    pub(crate) fn add_kib(&mut self, kib: u32) {
        self.0 += u64::from(kib) << 10;
    }
    /// A stamp: whole KiB, modulo 2³².
    pub(crate) fn kib(self) -> u32 {
        (self.0 >> 10) as u32
    }
    /// KiB since that stamp.
    pub(crate) fn since(self, stamp: u32) -> u32 {
        self.kib().wrapping_sub(stamp)
    }
}

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

impl CpuSim {
    /// A task comes with `kib`: from where the way to it is fetched, and a stamp of what had passed
    /// before.
    fn way(&mut self, kib: u32, caches: &Caches) -> (Distance, Passed) {
        let before = self.passed;
        let from = caches.pushed_to(WAY_KIB, before.since(self.switched_stamp));
        self.switched_stamp = before.kib();
        self.passed.add_kib(kib);
        (from, before)
    }
}

impl Sim {
    /// `p` begins to run on `c` at `at`; returns when what it needs first is there.
    pub(crate) fn warm_up(&mut self, c: Cpu, p: TaskId, mut at: Ns) -> Ns {
        let mm = self.sh.tasks[p.ix()].mm;
        if mm != 0 && self.cpus[c.ix()].asids.load(mm) {
            at += self.work(c, Func::ContextSwitch, self.machine.costs.switch_new_asid);
        }
        let (way, data) = self.cold_cache(c, p);
        at += self.waited(c, Func::ContextSwitch, Resource::None, way);
        at + self.waited(c, Func::ColdCache, Resource::None, data)
    }

    /// How long the way to `p`, which begins to run on `c`, and its footprint take.
    fn cold_cache(&mut self, c: Cpu, p: TaskId) -> (Ns, Ns) {
        let KTask { last_cpu, passed_stamp, footprint_kib, .. } = self.tasks[p.ix()];
        let kib = u32::from(footprint_kib);
        let machine = &self.machine;
        let (way, before) = self.cpus[c.ix()].way(kib, &machine.caches);
        let from = if last_cpu.is_none() {
            Distance::Same
        } else {
            // Not nearer than where what came after it on its last CPU has pushed it.
            let passed = if last_cpu == c { before } else { self.cpus[last_cpu.ix()].passed };
            let pushed = machine.caches.pushed_to(kib, passed.since(passed_stamp));
            machine.topo.distance(last_cpu, c).max(pushed)
        };
        (machine.refill(WAY_KIB, way), machine.refill(kib, from))
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

    /// L1 32 KiB, L2 512: the way is pushed out by 25 and by 505 KiB, of messages or of the tasks
    /// that came between.
    #[test]
    fn the_way_is_pushed_out_too() {
        let caches = Caches { l1_kib: 32, l2_kib: 512, llc_mib: 32 };
        let mut cpu = CpuSim::new(Ns::ZERO);
        let mut way = |messages: u32, footprint| {
            cpu.passed.add(messages << 10);
            cpu.way(footprint, &caches).0
        };
        assert_eq!(way(24, 4), Distance::Same);
        // 4 KiB of the last task and these.
        assert_eq!([way(20, 4), way(21, 4)], [Distance::Same, Distance::L2]);
        assert_eq!([way(500, 4), way(501, 4)], [Distance::L2, Distance::Llc]);
        assert_eq!(
            [way(0, 600), way(0, 4), way(0, 4)],
            [Distance::Same, Distance::Llc, Distance::Same]
        );
    }
}
