//! What a run leaves out of the model, or adds to it: for experiments about the model itself.
//!
//! *What.* A knock-out makes one contended resource or one kind of cost free, or takes one piece of
//! knowledge away, and changes nothing else: same machine, kernel, workload and seed. A run can
//! also add to a cost (a planted difference) and draw its cost table between low and high.
//! *Source.* Not of the kernel: one factor is left out at a time, as in an ablation experiment. The
//! ranges of the costs are in `machines/costs/*.toml`.
//! *Equations.* Free = 0 ns, whoever asks and however many wait.
//! *Departures.* D1: a lock that is free excludes nobody: two CPUs may be inside at overlapping
//! times. Events are atomic, so nothing is torn. D2: a waker's wait for a wakee that is still on
//! its CPU (`on_cpu`) is not left out: it could be enqueued while it runs.
//! *Example.* Without `rq_lock` no CPU ever waits for a run queue: `raw_spin_rq_lock: rq lock` is
//! absent from the ledger.

use crate::boot::SetupError;
use std::fmt;
use vruntime_base::{Noise, Stream};
use vruntime_machine::{Cost, Costs, LineKind, Machine, MachineSpec};
use vruntime_sched::release::{Release, TtwuPendingSeen};

macro_rules! knockouts {
    ($($name:ident $word:literal $doc:literal,)*) => {
        /// One thing to leave out.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Knockout { $(#[doc = $doc] $name,)* }
        impl Knockout {
            /// Every knock-out, in order.
            pub const ALL: &'static [Knockout] = &[$(Knockout::$name,)*];
            /// Name on the command line and in results.
            pub const fn name(self) -> &'static str {
                match self { $(Knockout::$name => $word,)* }
            }
            /// What it leaves out.
            pub const fn doc(self) -> &'static str {
                match self { $(Knockout::$name => $doc,)* }
            }
        }
    };
}

knockouts! {
    RqLock "rq_lock" "waiting for run queue locks",
    RqLine "rq_line" "fetching lines of run queues: locks, loads, wake lists, enqueues, and back",
    TgLoadAvg "tg_load_avg" "reading and writing tg->load_avg",
    LlcShared "sd_llc_shared" "reading and writing sd_llc_shared",
    PipeMutex "pipe_mutex" "waiting for pipe mutexes, and their lines",
    WaitQueue "wait_queue" "waiting for the locks of pipes' wait queues",
    PipeData "pipe_data" "fetching a pipe's slots and data from where they were touched last",
    FileCount "file_count" "counting files that threads share (fget, fput)",
    Socket "socket" "waiting for a socket's lock and lines",
    MmCount "mm_count" "counting who borrows the address space that threads share (mmgrab, mmdrop)",
    TaskLine "task_line" "fetching the lines of a task from where it was last touched",
    GlobalLine "global_line" "reading and writing machine-wide lines: root domain, nohz",
    Ipi "ipi" "interrupts between CPUs: sending, delivery, entry",
    IdleExit "idle_exit" "the exit latency of idle states",
    ColdCache "cold_cache" "refilling cold caches, after a move or of what was pushed out",
    Scan "scan" "looking for an idle CPU: examining CPUs, and the first line of their queues",
    Smt "smt" "the slow-down by a busy sibling",
    TtwuPending "ttwu_pending" "seeing that a CPU has wakees on its list: the idle tests of \
        placement, newidle's bail-out, should_we_balance (ttwu_pending=nowhere)",
    StaleRq "stale_rq" "seeing what a run queue was while it is being changed (nr_running, curr)",
    ScanLimit "scan_limit" "the limit of idle scans by utilisation (sis_util=off)",
}

impl fmt::Display for Knockout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of knock-outs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Knockouts(u32);

impl Knockouts {
    /// Those and this one.
    pub const fn with(self, k: Knockout) -> Knockouts {
        Knockouts(self.0 | 1 << k as u8)
    }
    /// This one is among them.
    #[inline(always)]
    pub const fn has(self, k: Knockout) -> bool {
        self.0 >> k as u8 & 1 != 0
    }
}

/// ` without rq_lock,ipi`, to follow the name of a kernel; nothing for the empty set.
impl fmt::Display for Knockouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Knockout::ALL.iter().filter(|&&k| self.has(k));
        for (i, k) in names.enumerate() {
            write!(f, "{}{k}", if i == 0 { " without " } else { "," })?;
        }
        Ok(())
    }
}

impl FromIterator<Knockout> for Knockouts {
    fn from_iter<I: IntoIterator<Item = Knockout>>(all: I) -> Knockouts {
        all.into_iter().fold(Knockouts::default(), Knockouts::with)
    }
}

/// How a run differs from what machine, kernel and workload say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Variation {
    /// What is left out.
    pub without: Knockouts,
    /// Added to the cost of this name, ns.
    pub extra: Vec<(String, u32)>,
    /// Costs are not at their middle values but drawn between low and high, by this number.
    pub draw: Option<u64>,
}

impl Variation {
    /// The machine of `spec` under this variation.
    pub(crate) fn machine(&self, spec: &MachineSpec) -> Result<Machine, SetupError> {
        let mut m = match self.draw {
            None => Machine::new(spec),
            Some(n) => {
                let noise = Noise::new(n);
                Machine::draw(spec, |name| noise.bits(Stream::Costs, fnv(name), 0))
            }
        }
        .map_err(SetupError::Machine)?;
        for (name, ns) in &self.extra {
            let unknown = || SetupError::Cost { name: name.clone(), nearest: Costs::nearest(name) };
            let cost = m.costs.by_name_mut(name).ok_or_else(unknown)?;
            *cost = cost.saturating_add(*ns).min(Cost::MAX);
        }
        for &k in Knockout::ALL.iter().filter(|&&k| self.without.has(k)) {
            leave_out(&mut m, k);
        }
        Ok(m)
    }

    /// The kernel of a run under this variation.
    pub(crate) fn release(&self, release: &Release) -> Release {
        let mut r = release.clone();
        if self.without.has(Knockout::TtwuPending) {
            r.ttwu_pending = TtwuPendingSeen::Nowhere;
        }
        if self.without.has(Knockout::ScanLimit) {
            r.sis_util = false;
        }
        r
    }
}

/// Makes the hardware's part of `k` free. Locks, and lines that are fetched in one piece, are left
/// to the kernel's code.
fn leave_out(m: &mut Machine, k: Knockout) {
    match k {
        Knockout::RqLine => {
            m.costs.balance_scan = 0;
            m.lines.set_free(LineKind::RqLoad, true);
        }
        Knockout::TgLoadAvg => m.lines.set_free(LineKind::TgLoadAvg, true),
        Knockout::MmCount => m.lines.set_free(LineKind::MmCount, true),
        Knockout::LlcShared => m.lines.set_free(LineKind::LlcShared, true),
        Knockout::GlobalLine => {
            m.lines.set_free(LineKind::RootDomain, true);
            m.lines.set_free(LineKind::Nohz, true);
        }
        Knockout::Ipi => {
            (m.costs.ipi_send, m.costs.ipi_entry) = (0, 0);
            m.costs.ipi_deliver = [0; 6];
        }
        Knockout::IdleExit => m.idle.iter_mut().for_each(|s| s.exit_latency_ns = 0),
        Knockout::ColdCache => m.costs.refill_kib = [0; 6],
        Knockout::Scan => {
            (m.costs.scan_cpu, m.costs.idle_test, m.costs.idle_scan) = (0, 0, 0);
        }
        Knockout::Smt => m.set_full_speed(),
        Knockout::RqLock
        | Knockout::PipeMutex
        | Knockout::WaitQueue
        | Knockout::PipeData
        | Knockout::FileCount
        | Knockout::Socket
        | Knockout::TaskLine
        | Knockout::TtwuPending
        | Knockout::StaleRq
        | Knockout::ScanLimit => {}
    }
}

/// Hash of a name (FNV-1a).
fn fnv(name: &str) -> u64 {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_base::Cpu;
    use vruntime_formats::kernel_file::kernel;
    use vruntime_formats::machine_file::builtin_machine;
    use vruntime_machine::Line;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let set: Knockouts = [Knockout::Ipi, Knockout::ScanLimit].into_iter().collect();
        let held: Vec<_> = Knockout::ALL.iter().filter(|&&k| set.has(k)).collect();
        assert_eq!(held, [&Knockout::Ipi, &Knockout::ScanLimit]);
        assert!(Knockout::ALL.len() <= 32);
        assert_eq!(set.to_string(), " without ipi,scan_limit");
        assert_eq!(Knockouts::default().to_string(), "");
    }

    /// Every cost, idle exit, speed, line and field that a variation may change, with its value.
    fn parts(without: Knockouts) -> Vec<String> {
        let v = Variation { without, ..Variation::default() };
        let spec = builtin_machine("spr-2s").unwrap();
        let mut m = v.machine(&spec).unwrap();
        let mut costs = m.costs;
        let names = spec.costs.iter().map(|row| row.name);
        let cost = |name: &str| format!("{name}: {}", costs.by_name_mut(name).unwrap());
        let mut all: Vec<String> = names.map(cost).collect();
        all.extend(m.idle.iter().map(|s| format!("{}: {}", s.name, s.exit_latency_ns)));
        let speeds = 1..=m.topo.smt_width();
        all.extend(speeds.map(|busy| format!("smt_speed({busy}): {}", m.smt_speed(busy))));
        m.lines.grow_mms(1);
        let (here, there) = (Cpu(0), Cpu::from_ix(m.topo.nr_cpus() - 1));
        for line in [
            Line::Rq(here),
            Line::RqLoad(here),
            Line::LlcShared(m.topo.llc_id(here)),
            Line::TgLoadAvg(0),
            Line::MmCount(0),
            Line::RootDomain,
            Line::Nohz,
        ] {
            let costs = [m.read(line, there), m.write(line, there)].map(|c| c.total().0 > 0);
            all.push(format!("{}: {costs:?}", line.kind().name()));
        }
        let release = v.release(&kernel("v6.1").unwrap().release);
        all.extend(format!("{release:#?}").lines().map(|l| l.trim().trim_end_matches(',').into()));
        all
    }

    /// What the kernel's code leaves out, which is all of some, is not among these.
    #[test]
    fn a_knockout_changes_what_it_names_and_nothing_else() {
        let whole = parts(Knockouts::default());
        for &k in Knockout::ALL {
            let left = parts(Knockouts::default().with(k));
            assert_eq!(left.len(), whole.len());
            let changed = left.into_iter().zip(&whole).filter(|(a, b)| a != *b).map(|(a, _)| a);
            let expected = match k {
                Knockout::RqLine => "balance_scan: 0, rq_load: [false, false]",
                Knockout::TgLoadAvg => "tg_load_avg: [false, false]",
                Knockout::LlcShared => "sd_llc_shared: [false, false]",
                Knockout::MmCount => "mm_count: [false, false]",
                Knockout::GlobalLine => "root_domain: [false, false], nohz: [false, false]",
                Knockout::Ipi => {
                    "ipi_send: 0, ipi_entry: 0, ipi_deliver.same: 0, ipi_deliver.smt: 0, \
                     ipi_deliver.l2: 0, ipi_deliver.llc: 0, ipi_deliver.package: 0, \
                     ipi_deliver.remote: 0"
                }
                Knockout::IdleExit => "POLL: 0, C1: 0, C1E: 0, C6: 0",
                Knockout::ColdCache => {
                    "refill_kib.l2: 0, refill_kib.llc: 0, refill_kib.package: 0, \
                     refill_kib.remote: 0"
                }
                Knockout::Scan => "scan_cpu: 0, idle_test: 0, idle_scan: 0",
                Knockout::Smt => "smt_speed(2): 1024",
                Knockout::TtwuPending => "ttwu_pending: Nowhere",
                Knockout::ScanLimit => "sis_util: false",
                Knockout::RqLock
                | Knockout::PipeMutex
                | Knockout::WaitQueue
                | Knockout::PipeData
                | Knockout::FileCount
                | Knockout::Socket
                | Knockout::TaskLine
                | Knockout::StaleRq => "",
            };
            assert_eq!(changed.collect::<Vec<_>>().join(", "), expected, "{k}");
        }
    }
}
