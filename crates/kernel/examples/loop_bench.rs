//! Runs the messaging workload for profiling: `loop_bench MACHINE GROUPS LOOPS KERNEL_TOML`.
#[path = "../tests/common/mod.rs"]
mod common;
use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_kernel::{program::ChannelKind, record::*, simulate::run};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&a[4]).unwrap();
    let spec = RunSpec {
        machine: Arc::new(vruntime_formats::machine_file::builtin_machine(&a[1]).unwrap()),
        release: Arc::new(toml::from_str(&text).unwrap()),
        workload: Arc::new(common::Messaging {
            groups: a[2].parse().unwrap(),
            fds: 20,
            loops: a[3].parse().unwrap(),
            bytes: 100,
            kind: ChannelKind::Pipe,
        }),
        seed: 1,
        sampling: Sampling::Full { limit: Ns::from_ms(1_000_000) },
        checks: false,
        timeline: 0,
    };
    let mut x = 88172645463325252u64;
    let t = std::time::Instant::now();
    for _ in 0..if std::env::var("NOX").is_ok() { 1 } else { 200_000_000 } {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    let unit = t.elapsed().as_nanos() as f64 / 2e8;
    let t = std::time::Instant::now();
    let r = run(&spec).unwrap();
    let dt = t.elapsed().as_nanos() as f64;
    let m = r.groups.iter().map(|g| g.at_window_end).sum::<u64>() as f64;
    println!(
        "X {unit:.2} ns ({}) | {:.1} ns/msg = {:.1} X | {:.1} ns/event, {:.2} events/msg, {:.3} switches/msg, {:.4} migr/msg, time {:?} gap {} bytes/task {}",
        x & 1,
        dt / m,
        dt / m / unit,
        dt / r.events as f64,
        r.events as f64 / m,
        r.counters.context_switches as f64 / m,
        r.counters.cpu_migrations as f64 / m,
        r.time,
        r.ledger_gap,
        r.bytes_per_task
    );
}
