//! Messaging on many machines: every message arrives, the ledger closes, runs repeat.
mod common;
use common::Messaging;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::program::ChannelKind;
use vruntime_kernel::record::*;
use vruntime_kernel::simulate::run;

#[test]
fn every_message_arrives() {
    let rels = std::env::var("REL").unwrap_or("v6.1 v6.12".into());
    for machine in ["uma-2", "numa-48", "spr-2s"] {
        for rel in rels.split(' ') {
            for kind in [ChannelKind::Pipe, ChannelKind::UnixStream] {
                let text = std::fs::read_to_string(format!("../../kernels/{rel}.toml")).unwrap();
                let spec = RunSpec {
                    machine: Arc::new(
                        vruntime_formats::machine_file::builtin_machine(machine).unwrap(),
                    ),
                    release: Arc::new(toml::from_str(&text).unwrap()),
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
                    timeline: 0,
                };
                let t0 = std::time::Instant::now();
                let a = run(&spec).unwrap();
                let dt = t0.elapsed();
                println!(
                    "{machine} {rel} {kind:?}: time {:?} complete {} messages {} events {} gap {} | {:.0} ns/msg {:.1} ns/event sw/msg {:.3}",
                    a.time,
                    a.complete,
                    a.counters.messages,
                    a.events,
                    a.ledger_gap,
                    dt.as_nanos() as f64 / a.counters.messages as f64,
                    dt.as_nanos() as f64 / a.events as f64,
                    a.counters.context_switches as f64 / a.counters.messages as f64
                );
                if !a.complete {
                    for e in a
                        .timeline
                        .iter()
                        .filter(|e| e.task.0 == 144 || e.a == 144)
                        .collect::<Vec<_>>()
                        .iter()
                        .rev()
                        .take(14)
                    {
                        println!(
                            "{} cpu {} {:?} task {} a {} b {} {:?}",
                            e.time,
                            e.cpu,
                            e.kind,
                            e.task,
                            e.a,
                            e.b,
                            e.cause.map(|c| c.name)
                        );
                    }
                }
                assert!(a.complete);
                assert!(a.groups.iter().all(|g| g.at_window_end == 10 * 10 * 300));
                assert_eq!(a.ledger_gap, 0);
                println!("{:?}", a.checks);
            }
        }
    }
}
