//! The text of `/proc/schedstat`, in the layout of the release.

use std::fmt::Write;
use vruntime_base::{Cpu, CpuMask};
use vruntime_kernel::schedstat::{CpuStats, DomainStats, IdleType, LbStats, Schedstat};

/// `/proc/schedstat` as a kernel of that release prints it.
pub fn schedstat_text(s: &Schedstat) -> String {
    let mut out = format!("version {}\ntimestamp {}\n", s.version, s.jiffies);
    let mut line = |text: String| writeln!(out, "{text}").expect("a string grows");
    let mut domains = s.domains.iter().peekable();
    for (i, cpu) in s.cpus.iter().enumerate() {
        line(format!("cpu{i} {}", numbers(&cpu_columns(cpu))));
        let mut level = 0;
        while let Some(d) = domains.next_if(|d| d.cpu.ix() == i) {
            let name = if s.version >= 17 { format!("{} ", d.name) } else { String::new() };
            let mask = bitmap(&d.span, s.cpus.len());
            line(format!("domain{level} {name}{mask} {}", numbers(&domain_columns(d, s.version))));
            level += 1;
        }
    }
    out
}

fn numbers(columns: &[u64]) -> String {
    columns.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// The second column is always 0.
fn cpu_columns(c: &CpuStats) -> [u64; 9] {
    let CpuStats { yld_count, sched_count, sched_goidle, ttwu_count, ttwu_local, .. } = *c;
    let (run, wait, pcount) = (c.rq_cpu_time, c.run_delay, c.pcount);
    [yld_count, 0, sched_count, sched_goidle, ttwu_count, ttwu_local, run, wait, pcount]
}

/// Up to version 15 an idle CPU comes first, later a busy one; from 17 on imbalances are kept apart
/// by kind: load, utilisation, tasks, misfit. Balancing at exec and fork was never counted.
fn domain_columns(d: &DomainStats, version: u32) -> Vec<u64> {
    let order = match version {
        ..16 => [IdleType::Idle, IdleType::NotIdle, IdleType::Newidle],
        _ => [IdleType::NotIdle, IdleType::Idle, IdleType::Newidle],
    };
    let mut all = Vec::new();
    for idle in order {
        let LbStats { count, balanced, failed, imbalance, gained, hot_gained, nobusyq, nobusyg } =
            d.balance.lb[idle as usize];
        all.extend([count, balanced, failed]);
        match version {
            ..17 => all.push(imbalance.iter().sum()),
            _ => all.extend(imbalance.iter().chain([&0])),
        }
        all.extend([gained, hot_gained, nobusyq, nobusyg]);
    }
    let b = &d.balance;
    all.extend([b.alb_count, b.alb_failed, b.alb_pushed, 0, 0, 0, 0, 0, 0]);
    all.extend([d.wakes.ttwu_wake_remote, d.wakes.ttwu_move_affine, 0]);
    all
}

/// A mask as bitmaps of the kernel: words of 32 bits in hexadecimal digits, the highest first and
/// no wider than `nr_cpus` needs.
fn bitmap(mask: &CpuMask, nr_cpus: usize) -> String {
    let word = |w: usize| {
        let bits = (0..32).filter(|b| mask.has(Cpu::from_ix(32 * w + b)));
        bits.fold(0u32, |word, b| word | 1 << b)
    };
    let top = (nr_cpus - 1) / 32;
    let digits = (nr_cpus - 32 * top).div_ceil(4);
    let mut text = format!("{:0digits$x}", word(top));
    for w in (0..top).rev() {
        write!(text, ",{:08x}", word(w)).expect("a string grows");
    }
    text
}
