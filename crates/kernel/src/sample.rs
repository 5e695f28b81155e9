//! A simulation that has not begun, for tests of single moments.

use crate::program::{Builder, ChannelId, ChannelKind, Op, Program, Regs, RootTask, Workload};
use crate::record::RunSpec;
use crate::sim::Sim;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::{kernel_file, machine_file};

/// The only channel of [`sim`].
pub const PIPE: ChannelId = ChannelId(0);

/// Two tasks that write to one pipe.
struct Writers;

impl Program for Writers {
    fn next(&self, _: &mut Regs) -> Op {
        Op::Write { to: PIPE, bytes: 100 }
    }
}

impl Workload for Writers {
    fn command_line(&self) -> String {
        "writers".into()
    }
    fn description(&self) -> &'static str {
        "two tasks that write to one pipe"
    }
    fn build(&self, b: &mut Builder) {
        b.channel(ChannelKind::Pipe, None);
        let writer = b.program(Writers);
        b.root(writer, Regs::default(), RootTask::default());
        b.root(writer, Regs::default(), RootTask::default());
    }
    fn result(&self, _: Ns) -> String {
        String::new()
    }
}

/// `uma-8` under `kernel`: all CPUs are idle, and two tasks (the last ones) are about to write to
/// [`PIPE`].
pub fn sim(kernel: &str) -> Sim {
    let machine = machine_file::builtin_machine("uma-8").unwrap();
    let kernel = kernel_file::kernel(kernel).unwrap().release;
    Sim::boot(&RunSpec::new(machine, kernel, Arc::new(Writers))).unwrap()
}
