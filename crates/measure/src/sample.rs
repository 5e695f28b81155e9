//! A small made-up run for tests, those of `report` too.

use vruntime_base::{Func, Histogram, Ns, Resource, Timeline};
use vruntime_kernel::program::Latency;
use vruntime_kernel::record::{Counters, IdleUse, RunRecord};

/// A complete run of 2 CPUs that took `seconds`; counts do not depend on it.
pub fn record(kernel: &str, seed: u64, seconds: f64) -> RunRecord {
    let end = Ns((seconds * 1e9).round() as u64);
    let mut latency = Histogram::default();
    for i in 1..=100 {
        latency.record(Ns(i * 1000));
    }
    let (min, last, max) = (Ns(2_000), Ns(3_000), Ns(4_000));
    let timer = Latency { pid: 3005, count: 3, min, last, sum: Ns(9_000), sum_us: 9, max };
    RunRecord {
        machine: "two".into(),
        kernel: kernel.into(),
        workload: "perf bench sched pipe".into(),
        seed,
        nr_cpus: 2,
        nr_tasks: 2,
        started: Ns::ZERO,
        window: (Ns::ZERO, end),
        half: None,
        complete: true,
        time: Some(end),
        groups: Vec::new(),
        counters: Counters {
            context_switches: 4000,
            voluntary_switches: 3000,
            involuntary_switches: 1000,
            cpu_migrations: 100,
            messages: 2000,
            task_clock_ns: 1_500_000_000,
            ..Counters::default()
        },
        switches: vec![("blocks", 3000), ("preempted", 1000)],
        placements: vec![("prev idle", 2000)],
        migrations: vec![("wakeup", 100)],
        cpu_time: vec![
            (Func::User, Resource::None, Ns(400)),
            (Func::PipeRead, Resource::None, Ns(200)),
            (Func::PipeRead, Resource::PipeMutex, Ns(50)),
            (Func::Schedule, Resource::None, Ns(10)),
            (Func::RqLock, Resource::RqLock, Ns(100)),
            (Func::Tick, Resource::None, Ns(40)),
            (Func::Idle, Resource::None, Ns(200)),
        ],
        idle_states: vec![
            IdleUse { state: "POLL".into(), entered: 0, time: Ns::ZERO },
            IdleUse { state: "C1".into(), entered: 40, time: Ns(end.0 / 2) },
        ],
        wakeup_latency: latency.clone(),
        sched_delay: latency,
        latencies: vec![timer],
        events: 12345,
        hash: 0xabc,
        bytes_per_task: 192,
        ledger_gap: 0,
        checks: None,
        timeline: Timeline::default(),
        schedstat: None,
    }
}
