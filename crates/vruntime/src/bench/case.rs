//! The cases: hackbench on pipes, from 2 CPUs to 1,024, and with half of 384 CPUs idle.

use crate::failure::Failure;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::kernel;
use vruntime_formats::machine_file::builtin_machine;
use vruntime_kernel::record::{RunSpec, Sampling};
use vruntime_machine::{MachineSpec, Numbering, Regular, TopologySpec};

/// One case.
pub struct Case {
    /// Name in the results.
    pub name: &'static str,
    /// A machine inside the program, or `None` for the generated one of 1,024 CPUs.
    machine: Option<&'static str>,
    /// Groups of 40 tasks.
    groups: u32,
    /// Simulated time before anything is measured.
    warmup: Ns,
    /// Simulated time that is measured.
    pub window: Ns,
    /// The same below callgrind, which is fifty times slower; `None` where even the start of the
    /// benchmark would take too long, or where instructions say nothing new.
    pub callgrind: Option<Ns>,
}

/// The kernels that every case runs under. Rows of the first appear without kernel, too.
pub const KERNELS: [&str; 2] = ["v6.1", "v6.12"];

/// All cases.
pub static CASES: [Case; 6] = [
    Case {
        name: "hackbench-pipe-2",
        machine: Some("uma-2"),
        groups: 1,
        warmup: Ns::from_ms(50),
        window: Ns::from_ms(3_000),
        callgrind: Some(Ns::from_ms(40)),
    },
    Case {
        name: "hackbench-pipe-48",
        machine: Some("numa-48"),
        groups: 9,
        warmup: Ns::from_ms(50),
        window: Ns::from_ms(250),
        callgrind: Some(Ns::from_ms(4)),
    },
    Case {
        name: "hackbench-pipe-320",
        machine: Some("power10-320"),
        groups: 60,
        warmup: Ns::from_ms(30),
        window: Ns::from_ms(40),
        callgrind: Some(Ns::from_ms(1)),
    },
    Case {
        name: "hackbench-pipe-384",
        machine: Some("genoa-2s"),
        groups: 64,
        warmup: Ns::from_ms(20),
        window: Ns::from_ms(40),
        callgrind: None,
    },
    Case {
        name: "hackbench-pipe-384-half",
        machine: Some("genoa-2s"),
        groups: 8,
        warmup: Ns::from_ms(20),
        window: Ns::from_ms(40),
        callgrind: None,
    },
    Case {
        name: "hackbench-pipe-1024x100k",
        machine: None,
        groups: 2_500,
        warmup: Ns::from_ms(10),
        window: Ns::from_ms(15),
        callgrind: None,
    },
];

impl Case {
    /// The case of that name.
    pub fn by_name(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }
    /// The run with this window. All tasks are in one task group.
    pub fn spec(&self, kernel_name: &str, window: Ns) -> Result<RunSpec, Failure> {
        let machine = match self.machine {
            Some(name) => builtin_machine(name)?,
            None => machine_1024()?,
        };
        let choice = kernel(&format!("{kernel_name}+autogroup"))?;
        let command =
            format!("hackbench -g {} -f 20 --pipe --threads -l 1000000 -s 100", self.groups);
        let workload =
            vruntime_workload::parse(&command).map_err(|e| Failure::Usage(e.to_string()))?;
        Ok(RunSpec {
            sampling: Sampling::Window { warmup: self.warmup, window },
            ..RunSpec::new(machine, choice.release, workload)
        })
    }
}

/// Eight sockets of 64 cores with two threads, 8 cores a last-level cache.
fn machine_1024() -> Result<MachineSpec, Failure> {
    let mut spec = builtin_machine("milan-2s")?;
    let row = |i: usize| (0..8).map(|j| if i == j { 10 } else { 32 }).collect();
    spec.name = "generated-1024".into();
    spec.description = "8 sockets of 64 cores, SMT2, 8 cores a last-level cache".into();
    spec.topology = TopologySpec::Regular(Regular {
        sockets: 8,
        nodes_per_socket: 1,
        cores_per_node: 64,
        threads_per_core: 2,
        cores_per_l2: 1,
        cores_per_llc: 8,
        numbering: Numbering::SiblingsLast,
        node_distance: (0..8).map(row).collect(),
    });
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_a_valid_run_of_the_size_that_its_name_says() {
        for (case, nr_cpus) in CASES.iter().zip([2, 48, 320, 384, 384, 1024]) {
            for kernel in KERNELS {
                let spec = case.spec(kernel, case.window).unwrap_or_else(|e| panic!("{e}"));
                let topo = spec.machine.build_topology().unwrap();
                assert_eq!(topo.nr_cpus(), nr_cpus, "{}", case.name);
                assert!(spec.release.autogroup);
            }
        }
    }
}
