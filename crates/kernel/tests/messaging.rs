//! Does every message arrive, on machines of many shapes, and does the ledger close?
mod common;
use common::Messaging;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::{kernel_file, machine_file};
use vruntime_kernel::program::ChannelKind;
use vruntime_kernel::record::{RunSpec, Sampling};
use vruntime_kernel::simulate::run;

#[test]
fn every_message_arrives() {
    for machine in ["uma-2", "numa-48", "spr-2s", "power10-96"] {
        for kernel in ["v6.1", "v6.12", "v6.1+scheduler=rr"] {
            for kind in [ChannelKind::Pipe, ChannelKind::UnixStream] {
                let spec = RunSpec {
                    machine: Arc::new(machine_file::builtin_machine(machine).unwrap()),
                    release: Arc::new(kernel_file::kernel(kernel).unwrap().release),
                    workload: Arc::new(Messaging {
                        groups: 3,
                        fds: 10,
                        loops: 300,
                        bytes: 100,
                        kind,
                    }),
                    seed: 1,
                    sampling: Sampling::Full { limit: Ns::from_ms(60_000) },
                    checks: true,
                    variation: Default::default(),
                    timeline: 0,
                };
                let at = format!("{machine} {kernel} {kind:?}");
                let r = run(&spec).unwrap();
                assert!(r.complete, "{at}");
                assert!(r.groups.iter().all(|g| g.at_window_end == 10 * 10 * 300), "{at}");
                let checks = r.checks.unwrap();
                assert_eq!((checks.ledger_gap, r.ledger_gap), (0, 0), "{at}");
                assert_eq!(checks.nr_running_wrong, 0, "{at}");
                assert_eq!(run(&spec).unwrap().hash, r.hash, "{at}");
            }
        }
    }
}
