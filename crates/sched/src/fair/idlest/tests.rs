//! Decisions of the slow path, by hand.

use super::*;
use crate::fair::tests::Lab;
use crate::sample::{machine, regular, shared, sockets, task, v5_5, v5_7, v6_1, v6_12};
use crate::scheduler::Scheduler;
use crate::task::Task;
use vruntime_machine::{Arch, TopologySpec};

/// CPUs with tasks as `(cpu, nr)`, 1024 of load each. The newcomer is the last task.
fn lab(k: &Release, sockets: u32, llcs: u32, cores: u32, busy: &[(u16, u32)]) -> Shared {
    let topo = regular(Arch::X86, sockets, llcs * cores, 1, cores);
    let mut sh = shared(&topo, k.clone());
    for c in 0..sh.rqs.len() {
        sh.rqs[c].idle_stamp = Ns(100 + c as u64);
    }
    for &(c, n) in busy {
        let l = &mut sh.loads[c as usize];
        (l.nr_running, l.h_nr_queued) = (n, n);
        (l.load_avg, l.util_avg, l.runnable_avg) = (1024 * u64::from(n), 1024, 1024 * n);
        sh.rqs[c as usize].curr = TaskId(9999);
    }
    sh.tasks.push(Task { state: crate::task::TaskState::New, ..task() });
    sh
}

fn new_task(sh: &Shared) -> Newcomer {
    let p = TaskId::from_ix(sh.tasks.len() - 1);
    Newcomer { p, on: Cpu::NONE, h_load: 0, util: 0, util_est: 0, runnable: 0 }
}

fn fork(sh: &Shared, cpu: u16) -> (u16, &'static str) {
    let f = find_idlest_cpu(sh, &new_task(sh), Cpu(cpu), Cpu(cpu), SdFlags::BALANCE_FORK);
    (f.cpu.0, f.rule.name)
}

fn allow(sh: &mut Shared, cpus: &[u16]) {
    let mask = cpus.iter().map(|c| Cpu(*c)).collect();
    let p = sh.tasks.len() - 1;
    sh.tasks[p].affinity = sh.affinities.intern(mask);
}

#[test]
fn the_group_with_more_idle_cpus_and_in_it_the_last_to_go_idle() {
    let sh = lab(&v6_1(), 1, 2, 2, &[(0, 1), (1, 1)]);
    assert_eq!(fork(&sh, 0), (3, "slow path: idle CPU"));
    let mut sh = sh;
    sh.rqs[2].idle_stamp = Ns(500);
    assert_eq!(fork(&sh, 0), (2, "slow path: idle CPU"));
    // Idle since before anybody looked.
    sh.rqs.iter_mut().for_each(|rq| rq.idle_stamp = Ns::ZERO);
    assert_eq!(fork(&sh, 0), (2, "slow path: idle CPU"));
}

#[test]
fn the_local_group_wins_a_tie() {
    // LLCs {0,1} {2,3}: one idle CPU each; inside the local one, CPU 1.
    let sh = lab(&v6_12(), 1, 2, 2, &[(0, 1), (3, 1)]);
    assert_eq!(fork(&sh, 0), (1, "slow path: idle CPU"));
}

#[test]
fn no_idler_group_at_any_level() {
    let sh = lab(&v6_1(), 1, 2, 2, &[(0, 1), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(fork(&sh, 0), (0, "slow path: local group idlest"));
}

#[test]
fn overloaded_groups_by_load() {
    let all = [(0, 3), (1, 3), (2, 2), (3, 2)];
    let mut sh = lab(&v6_1(), 1, 2, 2, &all);
    // avg 3072 against 2048: 2048 + 174 < 3072, 307200 > 117·2048. In it CPU 2, the first least
    // one.
    assert_eq!(fork(&sh, 0), (2, "slow path: least loaded CPU"));
    // 2048 + 174 ≥ 2222 stays on this level; one level down groups of one CPU, equally loaded.
    sh.loads[0].load_avg = 2222;
    sh.loads[1].load_avg = 2222;
    assert_eq!(fork(&sh, 0), (0, "slow path: local group idlest"));
    sh.loads[0].load_avg = 2430;
    sh.loads[1].load_avg = 2430;
    assert_eq!(fork(&sh, 0).0, 2);
}

#[test]
pub(crate) fn a_sched_idle_cpu_is_taken_at_once() {
    let mut sh = lab(&v6_1(), 1, 2, 2, &[(0, 2), (1, 2), (2, 1), (3, 1)]);
    sh.loads[2].idle_h_nr = 1;
    sh.loads[2].util_avg = 0;
    assert_eq!(fork(&sh, 0), (2, "slow path: SCHED_IDLE CPU"));
}

/// In the cache {2,3} CPU 2 runs a SCHED_IDLE task, 3 nothing. Once 3 is busy there is only 2.
#[test]
pub(crate) fn a_sched_idle_cpu_comes_after_idle_ones_in_5_5() {
    for (k, cpu) in [(v5_5(), 3), (v6_1(), 2)] {
        let mut sh = lab(&k, 1, 2, 2, &[(0, 2), (1, 2), (2, 1)]);
        sh.loads[2].idle_h_nr = 1;
        let choice = |sh: &Shared| {
            let sd = sh.domains.at(sh.domains.slots(Cpu(0)).end - 1);
            let group = &sd.groups[sd.group_of(Cpu(2))];
            let found = find_idlest_group_cpu(sh, group, &sd.span, Cpu(0));
            (found.cpu.0, found.rule.name)
        };
        assert_eq!(choice(&sh).0, cpu);
        sh.loads[3].nr_running = 1;
        sh.rqs[3].curr = TaskId(9999);
        assert_eq!(choice(&sh), (2, "slow path: SCHED_IDLE CPU"));
    }
}

#[test]
fn affinity_skips_groups_and_cpus() {
    let mut sh = lab(&v6_1(), 1, 2, 2, &[(0, 1), (1, 1)]);
    allow(&mut sh, &[2]);
    assert_eq!(fork(&sh, 0), (2, "slow path: idle CPU"));
    // The local group is not allowed at all: the other one, busy or not.
    let mut sh = lab(&v6_1(), 1, 2, 2, &[(2, 2), (3, 2)]);
    allow(&mut sh, &[3]);
    assert_eq!(fork(&sh, 0), (3, "slow path: least loaded CPU"));
}

#[test]
fn numa_nodes_keep_new_tasks_while_nearly_empty() {
    // Two nodes of 16 CPUs in one LLC: imb_numa_nr = 16 >> 3 = 2.
    let k = v6_1();
    let one = lab(&k, 2, 1, 16, &[(0, 1)]);
    // Idle 15 against 16: difference 1 is forgiven as local.nr + 1 = 2 ≤ 2.
    assert!(fork(&one, 0).0 < 16);
    // local.nr + 1 = 3 > 2.
    let two = lab(&k, 2, 1, 16, &[(0, 1), (1, 1)]);
    assert!(fork(&two, 0).0 >= 16);
    // Allowed on two CPUs of the node and on the other node: imb is still 2; on one: 1.
    let mut sh = lab(&k, 2, 1, 16, &[(0, 1)]);
    allow(&mut sh, &[0, 16, 17]);
    assert!(fork(&sh, 0).0 >= 16);
    // Before 5.18: any idle CPU in the local node keeps it.
    for k in [v5_5(), v5_7()] {
        assert!(fork(&lab(&k, 2, 1, 16, &[(0, 1), (1, 1)]), 0).0 < 16);
    }
}

/// LLCs {0,1} {2,3}: two tasks on two CPUs are fully busy, one leaves spare capacity.
#[test]
fn a_weaker_type_is_idler() {
    for k in [v5_5(), v5_7(), v6_1(), v6_12()] {
        let sh = lab(&k, 1, 2, 2, &[(0, 1), (1, 1), (2, 1)]);
        assert_eq!(fork(&sh, 0), (3, "slow path: idle CPU"));
        assert_eq!(fork(&sh, 2), (3, "slow path: idle CPU"));
    }
    for k in [v5_7(), v6_1(), v6_12()] {
        // And an overloaded group is the last: CPU 2 of the fully busy one, as loaded as 3.
        let sh = lab(&k, 1, 2, 2, &[(0, 2), (1, 2), (2, 1), (3, 1)]);
        assert_eq!(fork(&sh, 0), (2, "slow path: least loaded CPU"));
    }
}

/// LLCs {0,1} {2,3} {4,5}: the local one is fully busy, the others have an idle CPU each and use
/// 1024 and 500, then 499 and 500. Before 5.9 use decides nothing: the next one in the ring.
#[test]
pub(crate) fn of_groups_as_idle_the_one_less_used_from_5_9_on() {
    for (k, cpu) in [(v5_5(), 3), (v5_7(), 3), (v6_1(), 5), (v6_12(), 5)] {
        let mut sh = lab(&k, 1, 3, 2, &[(0, 1), (1, 1), (2, 1), (4, 1)]);
        sh.loads[4].util_avg = 500;
        assert_eq!(fork(&sh, 0).0, cpu, "{}", k.name);
        sh.loads[2].util_avg = 499;
        assert_eq!(fork(&sh, 0).0, 3);
    }
}

/// LLCs {0,1} {2,3}, all used fully. In 5.5 both are overloaded, at a load of 0: no difference. And
/// with tasks on 0, 1 and 2, while sleepers used 800 of 3: 1824 · 125 > 2048 · 100 overloads {2,3},
/// which later has an idle CPU to spare.
#[test]
pub(crate) fn busy_groups_are_alike_in_5_5() {
    for (k, light, idle) in [(v5_5(), 0, 0), (v5_7(), 2, 3)] {
        let sh = lab(&k, 1, 2, 2, &[(0, 2), (1, 2), (2, 1), (3, 1)]);
        assert_eq!(fork(&sh, 0).0, light);
        let mut sh = lab(&k, 1, 2, 2, &[(0, 1), (1, 1), (2, 1)]);
        sh.loads[3].util_avg = 800;
        assert_eq!(fork(&sh, 0).0, idle);
    }
}

/// Fully busy groups of load 1000 and 840 a CPU: 117 % of 840 are 983, so a cache is left; but 840
/// and 174 are not below 1000, so a node is not. 5.7 allows 25 %: 1050, and stays in both cases.
#[test]
fn nodes_keep_a_task_for_a_small_difference() {
    for (k, stays) in [(v5_7(), true), (v6_1(), false), (v6_12(), false)] {
        let all = [(0, 1), (1, 1), (2, 1), (3, 1)];
        for (sockets, llcs) in [(2, 1), (1, 2)] {
            let mut sh = lab(&k, sockets, llcs, 2, &all);
            for c in 0..4 {
                sh.loads[c].load_avg = if c < 2 { 1000 } else { 840 };
            }
            let cpu = if stays || sockets == 2 { 0 } else { 2 };
            assert_eq!(fork(&sh, 0).0, cpu, "{sockets} sockets, {llcs} caches, {}", k.name);
        }
    }
}

/// Two tasks that use 100 of each CPU, but wait much: overloaded, unless only utilisation counts.
/// Then {0,1} has as many idle CPUs as {2,3}, none, and keeps the task.
#[test]
fn waiting_makes_a_group_busy_from_5_7_on() {
    for (k, cpu) in [(v5_5(), 0), (v5_7(), 2), (v6_1(), 2)] {
        let mut sh = lab(&k, 1, 2, 2, &[(0, 2), (1, 2), (2, 1), (3, 1)]);
        for c in 0..4 {
            sh.loads[c].util_avg = 100;
        }
        for c in 2..4 {
            sh.loads[c].runnable_avg = 100;
            sh.loads[c].load_avg = 2048;
        }
        assert_eq!(fork(&sh, 0).0, cpu, "{}", k.name);
    }
}

#[test]
fn back_ported_kernels_sum_allowed_cpus_only() {
    // LLCs {0,1,2} {3,4,5}: two idle CPUs here; there three, of which one is allowed.
    let leaves = |only: bool| {
        let k = Release { idlest_group_allowed_only: only, ..v6_1() };
        let mut sh = lab(&k, 1, 2, 3, &[(0, 1)]);
        allow(&mut sh, &[0, 1, 2, 3]);
        fork(&sh, 0).0 == 3
    };
    assert!(!leaves(true) && leaves(false));
}

/// LLCs {0,1} {2,3}, all idle but 0. Marked, the local one is left for the other, the other is not
/// taken though idler, and if both are, the task stays: a mark outweighs idle CPUs.
#[test]
fn a_group_marked_imbalanced_comes_after_those_with_time_to_spare() {
    for k in [v5_5(), v5_7(), v6_1(), v6_12()] {
        for (local, other, busy, cpu) in [
            (false, false, 2, 1),
            (true, false, 2, 3),
            (false, false, 0, 3),
            (false, true, 0, 1),
            (true, true, 0, 1),
        ] {
            let mut sh = lab(&k, 1, 2, 2, &[(0, 1), (busy, 1)]);
            let top = sh.domains.slots(Cpu(0)).end - 1;
            sh.domains.set_imbalanced(top, 0, local);
            sh.domains.set_imbalanced(top, 1, other);
            assert_eq!(fork(&sh, 0).0, cpu, "{}: {local} {other} {busy}", k.name);
        }
    }
}

#[test]
fn an_execing_task_does_not_count_itself() {
    // p runs alone on 0; without it 0 is as idle as the rest of its cache.
    let mut sh = lab(&v6_1(), 1, 2, 2, &[(0, 1), (2, 1)]);
    let p = sh.tasks.len() - 1;
    sh.rqs[0].curr = TaskId::from_ix(p);
    sh.tasks[p].on_rq = true;
    let who = Newcomer { on: Cpu(0), h_load: 1024, util: 1024, runnable: 1024, ..new_task(&sh) };
    let f = find_idlest_cpu(&sh, &who, Cpu(0), Cpu(0), SdFlags::BALANCE_EXEC);
    assert_eq!((f.cpu.0, f.rule.name), (0, "slow path: local group idlest"));
}

#[test]
fn no_domain() {
    let sh = lab(&v6_1(), 1, 1, 1, &[(0, 1)]);
    assert_eq!(fork(&sh, 0), (0, "slow path: no domain"));
}

/// LLCs {0,1} {2,3}, everything 10 ns. A fork on CPU 0 looks at the two CPUs of its cache and at
/// all four: 60. Of the other three it fetches two lines each, at half a transfer: 30; the next
/// fork has those already. Before all that comes `select_base`.
#[test]
fn a_fork_pays_for_each_cpu_of_each_level_and_once_for_its_lines() {
    let mut machine = machine(TopologySpec::Regular(sockets(1, 4, 1, 2)), Arch::X86, 10);
    machine.costs.balance_scan = 500;
    let mut lab = Lab::on(v6_1(), machine);
    let p = TaskId::from_ix(lab.sh.tasks.len());
    lab.sh.tasks.push(Task { state: crate::task::TaskState::New, ..task() });
    lab.hook(Cpu(0), |s, cx| s.task_new(cx, p, None));
    let mut fork = || {
        let flags = WakeFlags { fork: true, ..WakeFlags::default() };
        lab.hook(Cpu(0), |s, cx| {
            s.fair.select_task_rq_fair(cx, p, Cpu(0), flags);
            cx.cost
        })
    };
    assert_eq!(fork(), Ns(10 + (2 + 4) * 10 + 3 * 2 * 5));
    assert_eq!(fork(), Ns(10 + (2 + 4) * 10));
}
