//! Does every message arrive, on machines of many shapes, and does the ledger close?
mod common;
use common::Messaging;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::{kernel_file, machine_file};
use vruntime_kernel::program::ChannelKind;
use vruntime_kernel::record::{GroupProgress, RunSpec, Sampling};
use vruntime_kernel::simulate::run;

#[test]
fn every_message_arrives() {
    for machine in ["uma-2", "numa-48", "spr-2s", "power10-96"] {
        for kernel in ["v6.1", "v6.12", "v6.1+scheduler=rr"] {
            for kind in [ChannelKind::Pipe, ChannelKind::UnixStream] {
                let spec = RunSpec {
                    checks: true,
                    ..RunSpec::new(
                        machine_file::builtin_machine(machine).unwrap(),
                        kernel_file::kernel(kernel).unwrap().release,
                        Arc::new(Messaging { groups: 3, fds: 10, loops: 300, bytes: 100, kind }),
                    )
                };
                let at = format!("{machine} {kernel} {kind:?}");
                let r = run(&spec).unwrap();
                assert!(r.complete, "{at}");
                assert!(r.groups.iter().all(|g| g.at_window_end == 10 * 10 * 300), "{at}");
                let checks = r.checks.unwrap();
                assert_eq!((checks.ledger_gap, r.ledger_gap), (0, 0), "{at}");
                assert_eq!((checks.nr_running_wrong, checks.stopped_with_work), (0, 0), "{at}");
                assert_eq!(run(&spec).unwrap().hash, r.hash, "{at}");
            }
        }
    }
}

/// More runnable tasks than CPUs: senders are interrupted or told to reschedule while they hold a
/// mutex that others then sleep for. In a debug build each step looks whether one was woken.
#[test]
fn nobody_who_sleeps_for_a_mutex_is_forgotten() {
    for release in ["v6.1+hz=1000", "v6.12"] {
        let (kind, window) = (ChannelKind::Pipe, Ns::from_ms(200));
        let spec = RunSpec {
            sampling: Sampling::Window { warmup: Ns::from_ms(100), window },
            ..RunSpec::new(
                machine_file::builtin_machine("numa-48").unwrap(),
                kernel_file::kernel(release).unwrap().release,
                Arc::new(Messaging { groups: 20, fds: 20, loops: 20_000, bytes: 100, kind }),
            )
        };
        let r = run(&spec).unwrap();
        assert!(r.groups.iter().all(|g| g.at_window_end > 1_000), "{release}");
        // The window's middle is in its middle, and so is what was done by then.
        assert_eq!(r.half.map(|half| half - r.window.0), Some(Ns(window.0 / 2)));
        let rises = |g: &GroupProgress| [g.at_window_start, g.at_half, g.at_window_end].is_sorted();
        assert!(r.groups.iter().all(rises) && r.groups.iter().any(|g| g.at_half > 0), "{release}");
    }
}

/// Counters, ledger and causes are those of the benchmark then, not of boot and benchmark.
#[test]
fn a_benchmark_that_ends_in_the_warm_up_is_measured_whole() {
    let with = |sampling| {
        let kind = ChannelKind::Pipe;
        let spec = RunSpec {
            sampling,
            ..RunSpec::new(
                machine_file::builtin_machine("uma-2").unwrap(),
                kernel_file::kernel("v6.1").unwrap().release,
                Arc::new(Messaging { groups: 1, fds: 10, loops: 300, bytes: 100, kind }),
            )
        };
        run(&spec).unwrap()
    };
    let whole = with(Sampling::Full { limit: Ns::from_ms(60_000) });
    let window = with(Sampling::Window { warmup: Ns::from_ms(50_000), window: Ns::from_ms(1_000) });
    assert!(whole.complete && whole.window.0 > Ns::ZERO);
    assert_eq!((window.window, window.time), (whole.window, whole.time));
    assert_eq!(window.counters, whole.counters);
    assert_eq!(window.switches, whole.switches);
    assert_eq!(window.cpu_time, whole.cpu_time);
    assert_eq!(window.sched_delay.count(), whole.sched_delay.count());
}
