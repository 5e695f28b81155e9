//! Decision tests of the queues that rows show.

use super::*;

/// 2 and 1 go into delayed dequeue, 3 is picked, and two are queued: 2 has left, for 1 was on
/// the queue still. Had 4 been delayed, too, with the first deadline, then that.
#[test]
fn the_pick_takes_off_the_first_of_the_delayed_but_not_who_was_queued_then() {
    let side = |pid, deadline| Side { pid, prio: 120, on_rq: true, deadline, ..Side::default() };
    let delayed = |pid, deadline| Side { sched_delayed: true, ..side(pid, deadline) };
    let switch = |ts, p, n, cfs_nr| Row {
        p,
        n: Some(Side { cfs_nr, ..n }),
        ..Row::new(ts, Cpu(0), RowKind::Switch)
    };
    let after = |fourth| {
        let rows = vec![
            switch(10, delayed(4, fourth), side(2, 30), 4),
            switch(20, delayed(2, 30), side(1, 20), 4),
            switch(30, delayed(1, 20), side(3, 40), 3),
        ];
        let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
        let mut q = Queues::new(&t);
        t.rows.iter().for_each(|r| q.apply(&t, r));
        q.cpus[0].queued.keys().copied().collect::<Vec<_>>()
    };
    assert_eq!([after(25), after(35)], [[1, 2, 3], [1, 3, 4]]);
}

/// 1 runs and 2 waits; then 2 goes to sleep and 3 runs. That 2 was switched to is `there` or
/// lost: whether 1 waits is known or not. Whether rows are missing before that, and who waits.
#[test]
fn who_waits_where_a_switch_is_lost_is_not_known() {
    let side = |pid| Side { pid, prio: 120, on_rq: true, cfs_nr: 3, ..Side::default() };
    let switch = |ts, p, to| {
        let n = Some(side(to)).filter(|n| n.pid != 0);
        Row { p, n, ..Row::new(ts, Cpu(0), RowKind::Switch) }
    };
    let wakeup = |ts, pid| Row { p: side(pid), ..Row::new(ts, Cpu(0), RowKind::Wakeup) };
    let after = |there: bool| {
        let sleeps = Side { on_rq: false, ..side(2) };
        let mut rows = vec![switch(10, Side::default(), 1), wakeup(20, 2), wakeup(30, 3)];
        rows.extend(there.then(|| switch(40, side(1), 2)));
        rows.push(switch(50, sleeps, 3));
        let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
        let mut q = Queues::new(&t);
        let mut lost = false;
        for r in &t.rows {
            lost = q.cpus[0].lost;
            q.apply(&t, r);
        }
        assert!(!q.cpus[0].lost);
        (lost, q.cpus[0].queued.keys().copied().collect::<Vec<_>>())
    };
    // A switch to 4 and one back are lost: the kernel counted them.
    let counted = |ts, from, to, nr| Row { nr_switches: Some(nr), ..switch(ts, side(from), to) };
    let rows = vec![counted(10, 1, 2, 7), counted(20, 2, 1, 8), counted(30, 1, 2, 11)];
    assert_eq!(gaps(&Trace { rows, nr_cpus: 1, ..Trace::default() }), [[20].into()]);
    assert_eq!(after(true), (false, vec![1, 3]));
    assert_eq!(after(false), (true, vec![3]));
}

#[test]
fn who_may_be_there_or_not_is_not_surely_delayed() {
    let mut q = Queues::new(&Trace { rebuilt: true, nr_cpus: 1, ..Trace::default() });
    for (pid, sched_delayed, maybe) in [(1, false, false), (2, true, false), (3, true, true)] {
        q.put(0, &Side { pid, sched_delayed, ..Side::default() }, (0, 0), true);
        q.cpus[0].queued.get_mut(&pid).unwrap().maybe = maybe;
    }
    assert_eq!(q.nr_surely_delayed(Cpu(0)), 1);
}

/// The kernel takes the queue's own virtual time out of that of a task on its way; a rebuilt
/// row does not, and says how far off it may be.
#[test]
fn a_rebuilt_row_of_a_move_says_where_the_task_is() {
    let moved = |rebuilt: bool| {
        let t = Trace { rebuilt, nr_cpus: 2, ..Trace::default() };
        let mut q = Queues::new(&t);
        (q.cpus[1].min_vruntime, q.cpus[1].curr) = ([(0, (5_000, 7))].into(), Some(0));
        let side = Side { pid: 2, prio: 120, vruntime: 300, slop: 20, ..Side::default() };
        let p = Side { on_rq: true, ..side };
        q.apply(&t, &Row { p, a: 0, b: 1, ..Row::new(10, Cpu(0), RowKind::Migrate) });
        q.cpus[1].queued[&2].vruntime
    };
    assert_eq!((moved(false), moved(true)), ((5_300, 5_300), (280, 320)));
}

/// The queue of a group has a virtual time of its own: 9000 there, 5000 at the root.
#[test]
fn a_move_within_a_group_adds_the_virtual_time_of_the_group() {
    let moved = |tg: i64| {
        let t = Trace { nr_cpus: 2, ..Trace::default() };
        let mut q = Queues::new(&t);
        q.cpus[1].curr = Some(0);
        q.cpus[1].min_vruntime = [(0, (5_000, 7)), (1, (9_000, 7))].into();
        let p = Side { pid: 2, prio: 120, vruntime: 300, on_rq: true, tg, ..Side::default() };
        q.apply(&t, &Row { p, a: 0, b: 1, ..Row::new(10, Cpu(0), RowKind::Migrate) });
        q.cpus[1].queued[&2].vruntime
    };
    assert_eq!([0, 1].map(moved), [(5_300, 5_300), (9_300, 9_300)]);
    assert_eq!(moved(2), UNKNOWN_VRUNTIME);
}

/// 1 runs for 10 us since the queue's virtual time was seen: at nice 0 it is 10 us further at
/// the most, if 1 is SCHED_IDLE 3.4 ms.
#[test]
fn virtual_time_goes_as_fast_as_the_lightest() {
    let moved = |weight: u64| {
        let t = Trace { nr_cpus: 2, ..Trace::default() };
        let mut q = Queues::new(&t);
        let side = |pid, weight| Side { pid, weight, prio: 120, on_rq: true, ..Side::default() };
        q.put(1, &side(1, weight), (0, 0), true);
        q.cpus[1].curr = Some(1);
        q.cpus[1].min_vruntime = [(0, (5_000, 7))].into();
        let p = Side { vruntime: 300, ..side(2, 1 << 20) };
        q.apply(&t, &Row { p, a: 0, b: 1, ..Row::new(10_007, Cpu(0), RowKind::Migrate) });
        q.cpus[1].queued[&2].vruntime
    };
    assert_eq!(moved(1 << 20), (5_300, 15_300));
    assert_eq!(moved(3 << 10), (5_300, 5_300 + 3_413_333));
}

/// 1 runs, SCHED_IDLE, and maybe others wait; `nr` as the last row says.
#[test]
fn only_sched_idle_tasks_make_a_sched_idle_cpu() {
    let side = |pid, policy| Side { pid, policy, prio: 120, on_rq: true, ..Side::default() };
    let delayed = Side { sched_delayed: true, ..side(4, 0) };
    let t = Trace { rows: vec![Row::new(1, Cpu(0), RowKind::Wakeup)], ..Trace::default() };
    let with_idle_tasks = |policy| {
        let mut t = Trace { nr_cpus: 1, ..t.clone() };
        t.rows[0].p = side(1, policy);
        Queues::new(&t)
    };
    let read = |waiting: &[Side], nr: i64, from: u64| {
        let mut q = with_idle_tasks(5);
        for s in waiting.iter().chain([&side(1, 5)]) {
            q.put(0, s, span(s), true);
        }
        let s = &mut q.cpus[0];
        (s.curr, s.running, s.since, s.nr) = (Some(1), Some((side(1, 5), 0)), 10, Some(nr));
        q.sched_idle(Cpu(0), from)
    };
    assert_eq!(read(&[], 1, 11), Some(true));
    assert_eq!(read(&[], 1, 10), None, "another may have run when it was read");
    assert_eq!(read(&[side(2, 5)], 2, 11), Some(true));
    assert_eq!(read(&[side(2, 0)], 2, 11), Some(false));
    assert_eq!(read(&[side(2, 0)], 1, 11), Some(true), "2 has left");
    assert_eq!(read(&[side(2, 0), side(3, 5)], 2, 11), None, "2 or 3 has left");
    assert_eq!(read(&[side(2, 5)], 3, 11), None, "a third is there");
    assert_eq!(read(&[side(2, 0)], 3, 11), Some(false));
    assert_eq!(read(&[delayed], 2, 11), None, "4 may be gone");
    assert_eq!(with_idle_tasks(0).sched_idle(Cpu(0), 11), Some(false));
}

/// 1 runs and is reniced; its call of exec, 5 us of run time later, shows that.
#[test]
fn a_call_of_exec_shows_the_running_task() {
    let t = Trace { nr_cpus: 1, ..Trace::default() };
    let mut q = Queues::new(&t);
    let p = Side { pid: 1, prio: 120, on_rq: true, sum_exec: 10_000, ..Side::default() };
    (q.cpus[0].curr, q.cpus[0].running) = (Some(1), Some((p, 700)));
    let later = Side { prio: 125, sum_exec: 15_000, ..p };
    q.apply(&t, &Row { p: later, ..Row::new(9, Cpu(0), RowKind::SelectRq) });
    assert_eq!(q.cpus[0].running, Some((later, 5_700)));
}

/// 1 runs on CPU 1 from 50; a row at 90 shows the virtual time as it was then, a move comes at
/// 100. Before that the CPU was idle since 10.
#[test]
fn a_virtual_time_that_is_the_same_still_is_as_old() {
    let t = Trace { nr_cpus: 2, ..Trace::default() };
    let mut q = Queues::new(&t);
    let side =
        |pid| Side { pid, prio: 120, on_rq: true, cfs_min_vruntime: 5_000, ..Side::default() };
    let idle = Side { cfs_min_vruntime: 5_000, ..Side::default() };
    let on = |ts, kind, p| Row { p, ..Row::new(ts, Cpu(1), kind) };
    q.apply(&t, &on(10, RowKind::Waking, Side { on_rq: false, ..side(1) }));
    q.apply(&t, &Row { n: Some(side(1)), ..on(50, RowKind::Switch, idle) });
    q.apply(&t, &on(90, RowKind::Wakeup, side(3)));
    let p = Side { vruntime: 300, ..side(2) };
    q.apply(&t, &Row { p, b: 1, ..Row::new(100, Cpu(0), RowKind::Migrate) });
    assert_eq!(q.cpus[1].queued[&2].vruntime, (5_300, 5_350));
}

/// 1, which is fair at both its switches, gives back a priority that it was lent.
#[test]
fn who_was_lent_a_priority_may_have_been_a_real_time_task() {
    let least = |by: &str| {
        let stacks = vec![vec!["resched_curr".to_owned(), by.to_owned()]];
        let t = Trace { nr_cpus: 1, stacks, ..Trace::default() };
        let mut q = Queues::new(&t);
        let p = Side { pid: 1, prio: 120, on_rq: true, ..Side::default() };
        let on = |ts, kind, p| Row { p, ..Row::new(ts, Cpu(0), kind) };
        q.apply(&t, &Row { n: Some(p), ..on(10, RowKind::Switch, Side::default()) });
        q.apply(&t, &Row { stack: Some(0), ..on(9_000_000, RowKind::NeedResched, p) });
        q.capacity(Cpu(0), 10_000_000).0
    };
    assert_eq!(["rt_mutex_setprio", "check_preempt_curr"].map(least), [810, 1024]);
}

/// 2, in delayed dequeue, is woken at 20.
#[test]
fn what_was_delayed_until_lately_is_known() {
    let t = Trace { nr_cpus: 1, ..Trace::default() };
    let mut q = Queues::new(&t);
    let p = Side { pid: 2, prio: 120, on_rq: true, ..Side::default() };
    q.put(0, &Side { sched_delayed: true, ..p }, (0, 0), true);
    q.apply(&t, &Row { p, ..Row::new(20, Cpu(0), RowKind::Wakeup) });
    assert_eq!([20, 21].map(|from| q.cpus[0].were_delayed(from)), [vec![1], vec![]]);
}
