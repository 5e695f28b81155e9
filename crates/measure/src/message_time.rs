//! Where the CPU time of a message goes, before and after a change: what the published functions
//! took, and by name what they did not.
//!
//! *Equations.* A row's time is that of its ledger entries over all CPUs, divided by messages; the
//! rows and idle time add up to CPUs × time / messages. A published share s of non-idle time
//! becomes s × CPUs × published time / messages: an upper bound, as idle time was not published.

use crate::stats::ratio;
use crate::study::StudyRow;
use serde::Serialize;
use vruntime_base::{Category, Func, Resource};
use vruntime_kernel::record::RunRecord;

/// A part of a message's CPU time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MessageTimeRow {
    /// Function, what it waits for, or kind of work.
    pub part: &'static str,
    /// Published ns before and after; null where no share was published.
    pub published: Option<(f64, f64)>,
    /// Modelled ns before and after.
    pub modelled: (f64, f64),
    /// Entries of the cost table that price most of it, those of waiting first; a name without its
    /// distance (`line_transfer`) stands for the costs of all distances.
    pub costs: &'static [&'static str],
}

/// What belongs to a part.
enum Of {
    /// Everything of these functions, their waiting too.
    Functions(&'static [Func]),
    /// What other functions wait for this.
    Waiting(Resource),
    /// Own work of other functions of this kind.
    Work(Category),
}

/// A part: its name, what belongs to it, the study's metric that publishes its share, its prices.
type Part = (&'static str, Of, Option<&'static str>, &'static [&'static str]);

/// One cost for each distance of the machine.
const TRANSFER: &str = "line_transfer";

/// Parts in the order of the table; an entry of the ledger belongs to the first that takes it.
const PARTS: [Part; 20] = [
    (
        "raw_spin_rq_lock",
        Of::Functions(&[Func::RqLock]),
        Some("rq_spin"),
        &[TRANSFER, "queue_from_outside", "queue_back"],
    ),
    (
        "update_cfs_group",
        Of::Functions(&[Func::UpdateCfsGroup]),
        Some("update_cfs_group"),
        &[TRANSFER, "read_occupancy", "level"],
    ),
    (
        "update_load_avg",
        Of::Functions(&[Func::UpdateLoadAvg]),
        Some("update_load_avg"),
        &[TRANSFER, "invalidate_per_sharer", "pelt"],
    ),
    (
        "waiting for pipe mutexes",
        Of::Waiting(Resource::PipeMutex),
        None,
        &[TRANSFER, "mutex_sleep"],
    ),
    (
        "waiting for pipes' wait queues",
        Of::Waiting(Resource::WaitQueueLock),
        None,
        &[TRANSFER, "wait_queue_wake"],
    ),
    (
        "waiting for pipe data",
        Of::Waiting(Resource::PipeData),
        None,
        &[TRANSFER, "pipe_slot", "pipe_near_read", "pipe_far_read"],
    ),
    ("waiting for file counts", Of::Waiting(Resource::FileCount), None, &[TRANSFER]),
    ("waiting for sockets", Of::Waiting(Resource::Socket), None, &[TRANSFER]),
    (
        "waiting for the wakee's lines",
        Of::Waiting(Resource::TaskLine),
        None,
        &[TRANSFER, "wakee", "wakee_back"],
    ),
    ("waiting for the wakee to leave its CPU", Of::Waiting(Resource::OnCpu), None, &[]),
    (
        "waiting for run queues' lines",
        Of::Waiting(Resource::RqLine),
        None,
        &[TRANSFER, "queue_from_outside", "queue_back"],
    ),
    ("waiting for sd_llc_shared", Of::Waiting(Resource::LlcShared), None, &[TRANSFER]),
    ("waiting for mm_count", Of::Waiting(Resource::MmCount), None, &[TRANSFER]),
    (
        "waiting for machine-wide lines",
        Of::Waiting(Resource::Global),
        None,
        &[TRANSFER, "read_occupancy"],
    ),
    ("refilling cold caches", Of::Functions(&[Func::ColdCache]), None, &["refill_kib"]),
    (
        "balancing and idle scans",
        Of::Functions(&[Func::Newidle, Func::LoadBalance, Func::SelectIdle]),
        None,
        &["scan_cpu", "newidle_base", "balance_cpu"],
    ),
    (
        "system calls",
        Of::Work(Category::Syscall),
        None,
        &[
            "syscall_entry",
            "bhb_clear",
            "syscall_exit",
            "pipe_lock",
            "pipe_write",
            "pipe_read",
            "pipe_unlock",
            "pipe_mtime",
            "pipe_atime",
            "file_count",
            "unix_send",
            "unix_recv",
            "unix_cold",
            "unix_far",
        ],
    ),
    ("the program", Of::Work(Category::User), None, &["user_loop", "cancellation_point"]),
    (
        "wakeups and switches",
        Of::Work(Category::Scheduler),
        None,
        &[
            "ttwu",
            "select_base",
            "wake_affine",
            "enqueue_base",
            "dequeue_base",
            "level",
            "pick_base",
            "pick_level",
            "schedule_base",
            "switch_same_mm",
            "switch_other_mm",
            "wake_list_push",
            "flush_task",
            "ipi_send",
        ],
    ),
    (
        "interrupts",
        Of::Work(Category::Irq),
        None,
        &["ipi_entry", "timer_irq", "tick_base", "tick_level", "interrupt"],
    ),
];

impl MessageTimeRow {
    /// Whether the entry `name` of the cost table is one that prices it.
    pub fn is_priced_by(&self, name: &str) -> bool {
        let of_a_distance = name.split_once('.').map_or(name, |n| n.0);
        self.costs.iter().any(|&c| c == name || c == of_a_distance)
    }
}

impl Of {
    fn takes(&self, func: Func, on: Resource) -> bool {
        match *self {
            Of::Functions(of) => of.contains(&func),
            Of::Waiting(what) => on == what,
            Of::Work(kind) => func.category() == kind,
        }
    }
}

/// ns a message of each part, and of idle CPUs; `None` without messages.
fn parts(runs: &[RunRecord]) -> Option<([f64; PARTS.len()], f64)> {
    let messages: u64 = runs.iter().map(|r| r.counters.messages).sum();
    let (mut of, mut idle) = ([0.0; PARTS.len()], 0.0);
    for &(func, on, ns) in runs.iter().flat_map(|r| &r.cpu_time) {
        let each = ratio(ns.0 as f64, messages as f64)?;
        match PARTS.iter().position(|p| p.1.takes(func, on)) {
            _ if func.category() == Category::Idle => idle += each,
            Some(i) => of[i] += each,
            None => unreachable!("own work and waiting both have a part"),
        }
    }
    (messages > 0).then_some((of, idle))
}

/// The CPU time of a message in the runs `before` and `after` a change, `rows` being the study's
/// figures of the same case and the benchmark `times` as long as the runs; empty where no messages
/// were counted. The last two rows are the sum of the others and idle CPUs.
pub fn message_time(
    before: &[RunRecord],
    after: &[RunRecord],
    rows: &[&StudyRow],
    times: f64,
) -> Vec<MessageTimeRow> {
    let Some(((b, b_idle), (a, a_idle))) = parts(before).zip(parts(after)) else {
        return Vec::new();
    };
    let row = |metric: &str| rows.iter().find(|r| r.metric == metric);
    let whole = row("time").and_then(|t| {
        let run = before.first()?;
        let messages = times * run.groups.iter().map(|g| g.goal).sum::<u64>() as f64;
        let of = |seconds: f64| ratio(run.nr_cpus as f64 * seconds * 1e9, messages);
        of(t.published_before).zip(of(t.published_after))
    });
    let published = |metric: Option<&str>| {
        let (share, whole) = (row(metric?)?, whole?);
        let ns = |pct: f64, of: f64| pct / 100.0 * of;
        Some((ns(share.published_before, whole.0), ns(share.published_after, whole.1)))
    };
    let part = |(i, p): (usize, &Part)| MessageTimeRow {
        part: p.0,
        published: published(p.2),
        modelled: (b[i], a[i]),
        costs: p.3,
    };
    let mut table: Vec<MessageTimeRow> = PARTS.iter().enumerate().map(part).collect();
    table.retain(|r| r.modelled != (0.0, 0.0));
    let line = |part, published, modelled| MessageTimeRow { part, published, modelled, costs: &[] };
    table.push(line("busy", whole, (b.iter().sum(), a.iter().sum())));
    table.push(line("idle", None, (b_idle, a_idle)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::record;
    use vruntime_kernel::record::GroupProgress;
    use vruntime_machine::costs::CostSpec;

    /// A name with no distance stands for all; every name is an entry of the cost table.
    #[test]
    fn parts_are_priced_by_costs_of_the_table() {
        let table = message_time(&[record("a", 1, 2.0)], &[record("a", 1, 2.0)], &[], 1.0);
        let lock = table.iter().find(|r| r.part == "raw_spin_rq_lock").expect("it takes time");
        assert!(lock.is_priced_by("line_transfer.remote") && lock.is_priced_by("queue_back"));
        assert!(!lock.is_priced_by("line") && !lock.is_priced_by("refill_kib.remote"));
        for (part, _, _, costs) in &PARTS {
            for cost in *costs {
                assert!(CostSpec::NAMES.contains(cost), "{part}: {cost}");
            }
        }
    }

    /// 2,000 messages, 1,000 ns of which 200 idle: 0.4 and 0.1 ns a message.
    #[test]
    fn parts_and_idle_time_add_up() {
        let (before, mut after) = ([record("a", 1, 2.0)], [record("a+x", 1, 2.0)]);
        after[0].cpu_time.retain(|e| e.0 != Func::RqLock);
        let table = message_time(&before, &after, &[], 1.0);
        let sum = |of: fn(&MessageTimeRow) -> f64| -> f64 {
            let parts = table.iter().filter(|r| !r.costs.is_empty());
            parts.map(of).sum()
        };
        let near = |(b, a): (f64, f64), want: (f64, f64)| {
            (b - want.0).abs() < 1e-9 && (a - want.1).abs() < 1e-9
        };
        let [.., busy, idle] = &table[..] else { panic!("{table:?}") };
        assert!(busy.part == "busy" && near(busy.modelled, (0.4, 0.35)), "{busy:?}");
        assert!(idle.part == "idle" && near(idle.modelled, (0.1, 0.1)), "{idle:?}");
        assert!((sum(|r| r.modelled.0) - 0.4).abs() < 1e-9);
        let first = &table[0];
        assert_eq!((first.part, first.modelled), ("raw_spin_rq_lock", (0.05, 0.0)));
        assert_eq!(first.published, None);
        assert_eq!(message_time(&[], &after, &[], 1.0), []);
    }

    /// 25 % of 2 CPUs that took 4 s for 5,000 messages, of which a run makes a tenth: 400 us each.
    #[test]
    fn a_published_share_is_of_the_published_time() {
        let mut runs = [record("a", 1, 2.0)];
        let goal = GroupProgress {
            goal: 250,
            at_window_start: 0,
            at_half: 0,
            at_window_end: 9,
            finished_at: None,
            seen_running: 1,
            seen_waiting: 0,
        };
        runs[0].groups = vec![goal.clone(), goal];
        let figure = |metric: &str, published: f64, modelled: f64| StudyRow {
            id: metric.into(),
            case: "c".into(),
            metric: metric.into(),
            published_before: published,
            published_before_spread_pct: None,
            published_after: published,
            published_delta_pct: None,
            modelled_before: Some(modelled),
            modelled_after: Some(modelled),
            modelled_delta_pct: None,
            seeds_before: vec![],
            seeds_after: vec![],
            effect_published: crate::study::Effect::Neutral,
            effect_modelled: None,
            fitted: false,
            scored: true,
            derived: false,
            stable: None,
            stable_effect: None,
        };
        let (time, share) = (figure("time", 4.0, 2.0), figure("rq_spin", 25.0, 12.0));
        let table = message_time(&runs, &runs, &[&time, &share], 10.0);
        assert_eq!(table[0].published, Some((400_000.0, 400_000.0)));
    }
}
