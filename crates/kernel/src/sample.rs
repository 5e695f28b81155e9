//! A simulation that has not begun, for tests of single moments.

use crate::program::{Builder, ChannelId, ChannelKind, Op, Program, Regs, RootTask, Workload};
use crate::record::RunSpec;
use crate::sim::Sim;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::{kernel_file, machine_file};
use vruntime_machine::MachineSpec;

/// The only channel of [`sim`].
pub const PIPE: ChannelId = ChannelId(0);

/// So many tasks that write to one pipe.
struct Writers(u32);

impl Program for Writers {
    fn next(&self, _: &mut Regs) -> Op {
        Op::Write { to: PIPE, bytes: 100 }
    }
}

impl Workload for Writers {
    fn command_line(&self) -> String {
        "writers".into()
    }
    fn comm(&self) -> &'static str {
        "writer"
    }
    fn description(&self) -> &'static str {
        "tasks that write to one pipe"
    }
    fn build(&self, b: &mut Builder) {
        b.channel(ChannelKind::Pipe, None);
        let writer = b.program(Writers(self.0));
        (0..self.0).for_each(|_| b.root(writer, Regs::default(), RootTask::default()));
    }
    fn result(&self, _: Ns) -> String {
        String::new()
    }
}

/// `uma-8` under `kernel`: all CPUs are idle, and two tasks (the last ones) are about to write to
/// [`PIPE`].
pub fn sim(kernel: &str) -> Sim {
    sim_on(uma_8(), kernel, 2)
}

/// The same on `machine`, with so many tasks.
pub fn sim_on(machine: MachineSpec, kernel: &str, tasks: u32) -> Sim {
    let kernel = kernel_file::kernel(kernel).unwrap().release;
    Sim::boot(&RunSpec::new(machine, kernel, Arc::new(Writers(tasks)))).unwrap()
}

/// Eight CPUs with one cache, without SMT.
pub fn uma_8() -> MachineSpec {
    machine_file::builtin_machine("uma-8").unwrap()
}
