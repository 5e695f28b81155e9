//! Plain traces of a few lines, judged.

use crate::shadow::judge::result::ShadowResult;
use crate::shadow::rebuild::moves::Mover;
use crate::shadow::rebuild::rebuild;
use crate::shadow::rows::trace::{Flags, Named, Row, RowKind, Side, Trace};
use vruntime_base::Cpu;
use vruntime_machine::{Arch, Numbering, Regular, Topology, TopologySpec};
use vruntime_sched::release::Release;

const TASK: Flags = Flags { need_resched: false, lazy: false, interrupt: false, hard: false };
const SOFT: Flags = Flags { interrupt: true, ..TASK };
const MS: u64 = 1_000_000;

/// The release of `kernels/NAME.toml`.
pub fn release(name: &str) -> Release {
    vruntime_formats::kernel_file::kernel(name).unwrap().release
}

/// One package of `n` cores of one thread each; `per_llc` of them share a cache.
pub fn cores(n: u32, per_llc: u32) -> Topology {
    let spec = TopologySpec::Regular(Regular {
        sockets: 1,
        nodes_per_socket: 1,
        cores_per_node: n,
        threads_per_core: 1,
        cores_per_l2: 1,
        cores_per_llc: per_llc,
        numbering: Numbering::SiblingsAdjacent,
        node_distance: vec![vec![10]],
    });
    spec.build(Arch::X86).unwrap()
}

/// `curr` runs on `cpu`; the row is about `pid`.
pub fn row(ts: u64, cpu: u16, kind: RowKind, pid: i64, curr: i64) -> Row {
    let p = Side { pid, prio: 120, ..Side::default() };
    Row { curr_pid: curr, p, flags: Some(TASK), ..Row::new(ts, Cpu(cpu), kind) }
}

/// A switch; the task switched from sleeps or is preempted.
pub fn switch(ts: u64, cpu: u16, from: i64, to: i64, sleeps: bool) -> Row {
    let n = Some(Side { pid: to, prio: 120, ..Side::default() });
    Row { n, b: sleeps.into(), ..row(ts, cpu, RowKind::Switch, from, from) }
}

/// `pid` is woken on `cpu`, where `curr` runs.
pub fn woken(ts: u64, cpu: u16, pid: i64, curr: i64) -> [Row; 2] {
    let a = i64::from(cpu);
    let waking = Row { a, ..row(ts, cpu, RowKind::Waking, pid, curr) };
    [waking, Row { a, ..row(ts + 1, cpu, RowKind::Wakeup, pid, curr) }]
}

/// CPU 0, on which `curr` runs, pulls `pid` from CPU 1.
pub fn pulled(ts: u64, pid: i64, curr: i64) -> Row {
    Row { a: 1, b: 0, ..row(ts, 0, RowKind::Migrate, pid, curr) }
}

/// `rows` of two CPUs under v6.1 with what can be rebuilt.
pub fn rebuilt(rows: Vec<Row>, named: &[(i64, Named)]) -> Vec<Row> {
    rebuilt_as("v6.1", rows, named)
}

/// The same under another release.
pub fn rebuilt_as(kernel: &str, rows: Vec<Row>, named: &[(i64, Named)]) -> Vec<Row> {
    let named = named.iter().copied().collect();
    let t = Trace { rows, nr_cpus: 2, plain: true, named, ..Trace::default() };
    rebuild(&t, &release(kernel)).rows
}

/// Two CPUs of one cache. On CPU 1 run 1, 2, 3 and 4, which may use both, and 1 runs last: 2 has
/// waited longest. CPU 0 is about to go idle, or is, and then come `rows`.
fn judge(rows: Vec<Row>, named: &[(i64, Named)]) -> ShadowResult {
    let mut all = vec![switch(10, 0, 8, 0, true), switch(20, 1, 9, 0, true)];
    for (i, pid) in [1, 2, 3, 4].into_iter().enumerate() {
        let ts = MS + 10_000 * i as u64;
        all.extend(woken(ts, 1, pid, if i == 0 { 0 } else { 1 }));
        if i == 0 {
            all.push(switch(ts + 2_000, 1, 0, 1, false));
        }
    }
    for (i, (from, to)) in [(1, 2), (2, 3), (3, 4), (4, 1)].into_iter().enumerate() {
        all.push(switch(2 * MS * (i as u64 + 1), 1, from, to, false));
    }
    all.extend(rows);
    // All kinds of rows go on to the end.
    all.extend(woken(90 * MS, 1, 7, 1));
    all.push(switch(91 * MS, 1, 1, 7, false));
    let mut k = release("v6.1");
    k.util_est = false;
    let topo = cores(2, 2);
    let workers = [1, 2, 3, 4].map(|pid| (pid, Named::Unbound));
    let named = workers.iter().chain(named).copied().collect();
    let t = Trace { rows: all, nr_cpus: 2, plain: true, named, ..Trace::default() };
    super::check(&rebuild(&t, &k), &topo, &k)
}

/// Determined, agreeing, undetermined.
fn of(r: &ShadowResult, kind: &str) -> (u64, u64, u64) {
    let k = r.kinds.iter().find(|k| k.kind == kind);
    k.map_or((0, 0, 0), |k| (k.determined, k.agree, k.undetermined))
}

/// 5 is woken on CPU 0 and sleeps again at 80 ms, when CPU 0 pulls `pid`.
fn newidle(pid: i64, goes_on: bool) -> ShadowResult {
    let ts = 80 * MS;
    let mut rows = woken(79 * MS, 0, 5, 0).to_vec();
    rows.push(switch(79 * MS + 2_000, 0, 0, 5, false));
    rows.push(Row { a: 1, b: 0, ..row(ts, 0, RowKind::Migrate, pid, 5) });
    if goes_on {
        rows.push(row(ts + 500, 0, RowKind::Waking, 6, 5));
    }
    rows.push(switch(ts + 1_000, 0, 5, pid, true));
    judge(rows, &[])
}

#[test]
fn a_newidle_pull_takes_who_has_waited_longest() {
    let right = newidle(2, false);
    assert_eq!(of(&right, "migration"), (1, 1, 0), "{:?}", right.kinds);
    assert_eq!(of(&right, "migration_tasks"), (1, 1, 0), "{:?}", right.kinds);
    assert!(right.kinds.iter().all(|k| k.state == "reconstructed"));
    let wrong = newidle(3, false);
    assert_eq!(of(&wrong, "migration"), (1, 1, 0));
    assert_eq!(of(&wrong, "migration_tasks"), (1, 0, 0), "{:?}", wrong.disagreements);
}

#[test]
fn a_move_by_a_cpu_that_goes_on_is_of_unknown_path() {
    let moved = newidle(2, true);
    assert_eq!(of(&moved, "migration"), (0, 0, 0));
    assert_eq!(of(&moved, "migration_tasks"), (0, 0, 1), "{:?}", moved.kinds);
}

/// CPU 0, idle, balances in a soft interrupt: half of what the other has more, unless bound.
#[test]
fn a_bound_task_stays_behind() {
    let pulls = |pids: [i64; 2], named: &[(i64, Named)]| {
        let mut rows = vec![];
        for (pid, ts) in pids.into_iter().zip(80 * MS..) {
            let moved = row(ts, 0, RowKind::Migrate, pid, 0);
            rows.push(Row { a: 1, b: 0, flags: Some(SOFT), ..moved });
        }
        rows.push(switch(80 * MS + 5_000, 0, 0, pids[1], false));
        of(&judge(rows, named), "migration_tasks")
    };
    assert_eq!(pulls([2, 3], &[]), (1, 1, 0));
    assert_eq!(pulls([3, 4], &[]), (1, 0, 0));
    assert_eq!(pulls([3, 4], &[(2, Named::Bound)]), (1, 1, 0));
}

/// 1 runs on CPU 0 and 2 waits there; a stopper brings 3, 1 ms behind 2 in virtual time and 2 ms
/// before 1. The check asks and marks 3: it is picked before 2, as it would not be unmarked.
#[test]
fn who_is_moved_by_a_stopper_may_become_the_next_buddy() {
    let picks = |asks: bool| {
        let side = |pid, vruntime_ms| Side {
            pid,
            prio: 120,
            weight: 1 << 20,
            vruntime: vruntime_ms * MS,
            on_rq: true,
            cfs_nr: 2,
            ..Side::default()
        };
        let at = |ts, cpu, kind, p| Row { p, curr_pid: 1, ..Row::new(ts * MS, Cpu(cpu), kind) };
        let switch = |ts, p, n| Row { n: Some(n), ..at(ts, 0, RowKind::Switch, p) };
        let stacks = [
            ["set_task_cpu", "move_queued_task", "migration_cpu_stop"],
            ["resched_curr", "check_preempt_wakeup", "move_queued_task"],
        ];
        let stacks = stacks.map(|s| s.map(str::to_owned).to_vec()).to_vec();
        let mut rows = vec![
            at(1, 0, RowKind::Waking, side(2, 100)),
            at(1, 0, RowKind::NeedResched, side(9, 90)),
            switch(
                2,
                Side { on_rq: false, ..side(9, 90) },
                Side { cfs_min_vruntime: 1, ..side(1, 97) },
            ),
            at(3, 0, RowKind::Wakeup, side(2, 100)),
            Row { a: 1, b: 0, stack: Some(0), ..at(4, 1, RowKind::Migrate, side(3, 101)) },
        ];
        let asked = at(4, 1, RowKind::NeedResched, side(1, 103));
        rows.extend(asks.then_some(Row { rq_cpu: Cpu(0), stack: Some(1), ..asked }));
        rows.push(switch(
            5,
            Side { cfs_nr: 3, ..side(1, 103) },
            Side { cfs_nr: 3, ..side(3, 101) },
        ));
        // All kinds of rows go on to the end.
        for kind in [RowKind::Waking, RowKind::NeedResched, RowKind::Wakeup] {
            rows.push(at(6, 0, kind, side(7, 101)));
        }
        let k = release("v6.1");
        let t = Trace { rows, stacks, nr_cpus: 2, ..Trace::default() };
        let found = super::check(&t, &cores(2, 2), &k);
        found.kinds.iter().find(|k| k.kind == "pick").map(|k| (k.determined, k.agree))
    };
    assert_eq!((picks(true), picks(false)), (Some((1, 1)), Some((1, 0))));
}

#[test]
fn every_path_has_a_chain_of_its_own() {
    let mut chains = Mover::ALL.map(Mover::chain).to_vec();
    chains.dedup();
    assert_eq!(chains.len(), Mover::ALL.len());
}
