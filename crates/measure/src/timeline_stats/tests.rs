use super::*;

/// CPU 0: the idle task, then A leaves that nobody switched in, then B, then idle again; A is
/// switched in, and the idle task leaves.
#[test]
fn time_before_a_switch_that_is_missing_is_nobodys() {
    use vruntime_base::{Cpu, Event, Ns, TaskRow};
    let mut t = Timeline::default();
    for (time, task, a) in [(0, 1, 0), (10, 1, 2), (13, 2, 0), (20, 0, 1), (25, 0, 2)] {
        let (time, cpu, task) = (Ns(time), Cpu(0), TaskId(task));
        t.push(Event { a, ..Event::new(time, cpu, EventKind::Switch, task) });
    }
    t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
    let stats = timeline_stats(&t);
    let cpu = &stats.cpus[0];
    assert_eq!((cpu.unknown_ns, cpu.unknown_left_idle_ns), (15, 5));
    assert_eq!((cpu.busy_ns, cpu.idle_ns), (3, 7));
    assert_eq!((stats.tasks[0].pid, stats.tasks[0].run_time_ns), (2, 3));
}

/// CPU 0 goes idle at 2. A is woken at 3, is seen to run at 5 and leaves at 9; what it is seen
/// to do later, after its switch, or on a CPU where it was switched in, tells nothing.
#[test]
fn a_task_that_is_seen_runs_though_its_switch_is_missing() {
    use vruntime_base::{Cpu, Event, Ns, SeenRunning, TaskRow};
    let mut t = Timeline::default();
    let switch = EventKind::Switch;
    let rows = [(0, switch, 1, 2), (2, switch, 2, 0), (3, EventKind::Wakeup, 1, 0)];
    for (time, kind, task, a) in rows.into_iter().chain([(9, switch, 1, 2), (12, switch, 2, 0)]) {
        let (time, cpu, task) = (Ns(time), Cpu(0), TaskId(task));
        t.push(Event { a, ..Event::new(time, cpu, kind, task) });
    }
    t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
    let at = |since, task| SeenRunning { since: Ns(since), cpu: Cpu(0), task: TaskId(task) };
    t.note_seen(vec![at(10, 1), at(5, 1)]);
    let stats = timeline_stats(&t);
    let cpu = &stats.cpus[0];
    assert_eq!((cpu.unknown_ns, cpu.idle_ns, cpu.busy_ns), (0, 3, 9));
    assert_eq!((cpu.nr_unrecorded, cpu.idle_unrecorded_ns), (1, 3));
    let times: Vec<_> = stats.tasks.iter().map(|t| (t.pid, t.run_time_ns)).collect();
    assert_eq!(times, [(2, 5), (1, 4)]);
    assert_eq!(stats.sched_delay.count, 0);
    assert_eq!((cpu.waited_ns, cpu.nr_switches), (2, 4));
}

/// A sleeps on CPU 0 and is woken and moved to CPU 1, where it waits from 4 to 9 until B, still
/// runnable, makes room. Idle tasks count nowhere.
#[test]
fn each_cpu_has_its_switches_moves_and_delays() {
    use vruntime_base::{Cpu, Event, Ns, TaskRow};
    let mut t = Timeline::default();
    for (time, cpu, kind, task, a, b) in [
        (0, 0, Switch, 0, 1, 1),
        (1, 1, Switch, 0, 2, 1),
        (2, 0, Switch, 1, 0, 0),
        (3, 0, Migrate, 1, 0, 1),
        (4, 0, Wakeup, 1, 1, 0),
        (9, 1, Switch, 2, 1, 1),
    ] {
        let (time, cpu, task) = (Ns(time), Cpu(cpu), TaskId(task));
        t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
    }
    t.name_tasks((0..3).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
    let stats = timeline_stats(&t);
    let of = |c: &CpuFigures| {
        let switches = [c.nr_switches, c.nr_voluntary, c.nr_involuntary];
        (switches, c.nr_migrated_out, c.nr_migrated_in, c.sched_delay.count)
    };
    let cpus: Vec<_> = stats.cpus.iter().map(of).collect();
    assert_eq!(cpus, [([2, 1, 0], 1, 0, 0), ([2, 0, 1], 0, 1, 1)]);
    let delay = stats.cpus[1].sched_delay;
    assert_eq!((delay.max_ns, delay.max_at_ns, delay), (5, 9, stats.sched_delay));
}

/// 2, 4 and 6: their deviation is 2, that of their mean 2/√3, 28.9 % of 4.
#[test]
fn single_runs_are_as_perf_sums_them_up() {
    let mut r = Runs::default();
    [4, 2, 6].into_iter().for_each(|ns| r.add(ns));
    let r = r.done();
    assert_eq!((r.count, r.min_ns, r.mean_ns, r.max_ns), (3, 2, 4, 6));
    assert!((r.stddev_percent - 28.867_513).abs() < 1e-6, "{r:?}");
    let mut once = Runs::default();
    once.add(5);
    assert_eq!((once.done().stddev_percent, Runs::default().done().mean_ns), (0.0, 0));
}

#[test]
fn percentiles_are_by_nearest_rank() {
    let d = Delay::of(Delays { ns: (1..=200).rev().collect(), longest: (200, 7) });
    assert_eq!(d.max_at_ns, 7);
    assert_eq!((d.p50_ns, d.p95_ns, d.p99_ns, d.max_ns, d.mean_ns), (100, 190, 198, 200, 100));
}

/// A timeline of tasks 0 (idle), A, B and C.
fn timeline(events: &[(u64, u16, EventKind, u32, u32, u32)]) -> Timeline {
    use vruntime_base::{Cpu, Ns, TaskRow};
    let mut t = Timeline::default();
    for &(time, cpu, kind, task, a, b) in events {
        let (time, cpu, task) = (Ns(time), Cpu(cpu), TaskId(task));
        t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
    }
    t.name_tasks((0..4).map(|pid| TaskRow { pid, ..TaskRow::default() }).collect());
    t
}

use EventKind::{Migrate, Switch, Wakeup, Waking};

/// A gets on at 0 and its departure is missing: that the idle task gave way to B at 10 does not
/// make those 10 ns idle.
#[test]
fn time_before_a_switch_from_idle_may_be_nobodys_too() {
    let t =
        timeline(&[(0, 0, Switch, 0, 1, 1), (10, 0, Switch, 0, 2, 1), (11, 0, Switch, 2, 0, 0)]);
    let cpu = &timeline_stats(&t).cpus[0];
    assert_eq!((cpu.unknown_ns, cpu.idle_ns, cpu.busy_ns), (10, 0, 1));
}

/// A wakes B, which is still on its way out on CPU 1.
#[test]
fn a_task_may_leave_its_cpu_between_waking_and_wakeup() {
    let t = timeline(&[(0, 0, Waking, 2, 1, 0), (1, 1, Switch, 2, 0, 0), (2, 0, Wakeup, 2, 1, 0)]);
    let b = &timeline_stats(&t).tasks[0];
    assert_eq!((b.nr_wakeups, b.nr_woken_on_prev, b.nr_voluntary), (1, 1, 1));
}

#[test]
fn who_is_only_moved_counts() {
    let stats = timeline_stats(&timeline(&[(0, 0, Migrate, 3, 0, 1)]));
    assert_eq!((stats.migrations, stats.cpu_migrations, stats.tasks.len()), (1, 0, 1));
}

/// A counts when it runs on CPU 2, once for two moves; B, which never moved, does not.
#[test]
fn perf_counts_who_runs_after_a_move() {
    let t = timeline(&[
        (0, 0, Migrate, 1, 0, 1),
        (1, 0, Migrate, 1, 1, 2),
        (2, 2, Switch, 0, 1, 1),
        (3, 2, Switch, 1, 2, 0),
        (4, 2, Switch, 2, 1, 0),
    ]);
    let stats = timeline_stats(&t);
    assert_eq!((stats.migrations, stats.cpu_migrations), (2, 1));
}

/// B waits from its waking at 1 until 4; C was moved to CPU 1 and waits from then, 3, until 5.
#[test]
fn without_wakeups_a_task_waits_from_its_waking_on() {
    let t = timeline(&[
        (0, 0, Switch, 0, 1, 1),
        (1, 0, Waking, 2, 0, 0),
        (2, 0, Waking, 3, 0, 0),
        (3, 0, Migrate, 3, 0, 1),
        (4, 0, Switch, 1, 2, 1),
        (5, 1, Switch, 0, 3, 1),
    ]);
    let stats = timeline_stats(&t);
    let delays: Vec<_> =
        stats.tasks.iter().map(|t| (t.pid, t.nr_wakeups, t.sched_delay.max_ns)).collect();
    assert_eq!(delays, [(1, 0, 0), (2, 1, 3), (3, 1, 2)]);
    assert_eq!((stats.cpus[0].waited_ns, stats.cpus[1].waited_ns), (3 + 1, 2));
    assert_eq!(stats.events.get("sched_wakeup"), None);
}
