//! The measured wakeup of a stopped CPU, as the model has it.
//!
//! Of a wakeup over an interrupt two costs cannot be seen from user mode: what the sender pays for
//! the interrupt, and how long the other CPU takes to leave its idle state. In a guest either is an
//! exit to the hypervisor, some microseconds, where the table has those of bare machines. So the
//! model runs the measured wakeup, and what the machine takes longer becomes theirs.

use super::fit::running_kernel;
use std::sync::Arc;
use vruntime_base::{Cpu, CpuMask, Ns};
use vruntime_kernel::program::*;
use vruntime_kernel::record::RunSpec;
use vruntime_kernel::simulate::run;
use vruntime_machine::MachineSpec;

/// Means of the model's wakeups, ns.
pub struct Modelled {
    /// The `write`, for the writer.
    pub sent: f64,
    /// From the waker's `try_to_wake_up` until the reader runs.
    pub latency: f64,
}

/// Wakeups that are timed.
const N: u32 = 500;

/// Wakeups of CPU `b` of `spec`, stopped in idle state `state`, by CPU `a`.
pub fn modelled(spec: &MachineSpec, state: usize, (a, b): (usize, usize)) -> Option<Modelled> {
    let mut spec = spec.clone();
    spec.idle = vec![spec.idle.swap_remove(state)];
    (spec.idle[0].table_latency_ns, spec.idle[0].target_residency_ns) = (0, 0);
    // Long enough for everything that a wakeup leaves behind, short enough for ticks not to count.
    let gap = Ns::from_us(20) + Ns(2 * u64::from(spec.idle[0].exit_latency.mid));
    let wakeups = Arc::new(Wakeups { gap, a, b });
    let record = run(&RunSpec::new(spec, running_kernel()?, wakeups)).ok()?;
    let period = record.time?.0 as f64 / f64::from(N);
    let latency = record.wakeup_latency.mean().0 as f64;
    Some(Modelled { sent: period - gap.0 as f64, latency })
}

/// A writer on CPU `a` that wakes a reader on CPU `b` at intervals.
struct Wakeups {
    gap: Ns,
    a: usize,
    b: usize,
}

/// Computes and writes in turn. `i`: operations so far.
struct Writer {
    gap: Ns,
    to: ChannelId,
}

impl Program for Writer {
    fn next(&self, r: &mut Regs) -> Op {
        r.i += 1;
        match r.i - 1 {
            0 => Op::MarkStart,
            i if i > 2 * N + 1 => Op::Exit,
            i if i > 2 * N => Op::MarkStop,
            i if i % 2 == 1 => Op::Run(self.gap),
            _ => Op::Write { to: self.to, bytes: 1 },
        }
    }
}

/// Reads.
struct Reader {
    from: ChannelId,
}

impl Program for Reader {
    fn next(&self, _: &mut Regs) -> Op {
        Op::Read { from: self.from, bytes: 1 }
    }
}

impl Workload for Wakeups {
    fn command_line(&self) -> String {
        format!("wakeups of CPU {} by CPU {}", self.b, self.a)
    }
    fn comm(&self) -> &'static str {
        "wakeups"
    }
    fn description(&self) -> &'static str {
        "a CPU wakes a sleeper on another one at intervals"
    }
    fn build(&self, b: &mut Builder) {
        let group = b.progress_group(u64::from(N));
        let ch = b.channel(ChannelKind::Pipe, Some(group));
        let writer = b.program(Writer { gap: self.gap, to: ch });
        let reader = b.program(Reader { from: ch });
        for (program, cpu, ends_run) in [(writer, self.a, true), (reader, self.b, false)] {
            let cpus = Some(CpuMask::one(Cpu::from_ix(cpu)));
            b.root(program, Regs::default(), RootTask { cpus, ends_run, ..RootTask::default() });
        }
    }
    fn result(&self, _time: Ns) -> String {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::machine_file::builtin_machine;

    /// The sender's interrupt costs the sender, the idle state the wakee, and nothing else: that is
    /// why what the machine takes longer may be given to them. (A tick wakes the CPU at times.)
    #[test]
    fn an_interrupt_is_the_senders_and_leaving_idle_the_wakees() {
        let mut spec = builtin_machine("uma-2").unwrap();
        // As of a guest, whose CPUs halt.
        spec.idle[2].polling = false;
        let before = modelled(&spec, 2, (0, 1)).unwrap();
        (spec.costs.ipi_send.mid, spec.costs.ipi_send.high) = (5_100, 5_100);
        let with_ipi = modelled(&spec, 2, (0, 1)).unwrap();
        assert!((with_ipi.sent - before.sent - 5_000.0).abs() < 50.0);
        spec.idle[2].exit_latency.mid -= 3_000;
        let with_both = modelled(&spec, 2, (0, 1)).unwrap();
        assert!((with_both.sent - with_ipi.sent).abs() < 50.0);
        assert!((with_ipi.latency - with_both.latency - 3_000.0).abs() < 100.0);
    }
}
