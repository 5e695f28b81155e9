//! Is there a pull to be made: which group, how much, from which queue?
//!
//! A fixture: `llcs=2 cores=4 smt=1 sockets=1` (threads of a core and cores of a cache follow one
//! another; four sockets are two pairs of near ones), `isolated=7`, `level=PKG` (the domain; `TOP`
//! is the highest), `dst=0`, the kind of balancing (`idle` is the default, or `busy`, `newidle`),
//! and by CPU `nr=4:2,5:1`, and where they differ from what saturated tasks of weight 1024 would
//! show, `load=`, `util=`, `runnable=`, `h_nr=`; `pending=7:1` is a queued wakeup.

use crate::balance::IdleType;
use crate::balance::imbalance::{MigrationType, find_busiest_group, find_busiest_queue};
use crate::balance::stats::{GroupType, Question, update_sd_lb_stats};
use crate::cx::Shared;
use crate::domains::{Domains, SdFlags};
use crate::fixture::{Fixture, number};
use crate::release::Release;
use crate::sample::{self, shared, v5_5, v5_7, v6_1, v6_12};
use vruntime_base::Cpu;
use vruntime_machine::{Arch, Regular};

struct Found {
    text: String,
    local: GroupType,
    busiest: Option<GroupType>,
    overload: bool,
}

/// Two nodes, or two pairs of them.
fn distances(sockets: u32) -> Vec<Vec<u32>> {
    let distance = |a: u32, b: u32| match (a == b, a / 2 == b / 2) {
        (true, _) => 10,
        (_, true) => 21,
        _ => 32,
    };
    (0..sockets).map(|a| (0..sockets).map(|b| distance(a, b)).collect()).collect()
}

fn state(k: &Release, f: &Fixture) -> Shared {
    let n = |key: &str, default: u32| f.number(key, default);
    let (sockets, cores, llcs) = (n("sockets", 1), n("cores", 4), n("llcs", 1));
    let shape = sample::sockets(sockets, cores * llcs, n("smt", 1), cores);
    let topo = sample::build(Arch::X86, Regular { node_distance: distances(sockets), ..shape });
    let mut sh = shared(&topo, k.clone());
    if let Some(isolated) = f.get("isolated") {
        let isolated = isolated.split(',').map(|c| Cpu(number(c))).collect();
        sh.domains = Domains::build_without(&topo, k, &isolated);
    }
    for (c, nr) in f.by_cpu("nr") {
        let l = &mut sh.loads[c];
        l.nr_running = nr;
        l.h_nr_queued = nr;
        l.load_avg = 1024 * u64::from(nr);
        l.util_avg = if nr > 0 { 1024 } else { 0 };
        l.runnable_avg = 1024 * nr;
    }
    f.by_cpu("load").into_iter().for_each(|(c, x)| sh.loads[c].load_avg = x);
    f.by_cpu("util").into_iter().for_each(|(c, x)| sh.loads[c].util_avg = x);
    f.by_cpu("runnable").into_iter().for_each(|(c, x)| sh.loads[c].runnable_avg = x);
    f.by_cpu::<u8>("pending").into_iter().for_each(|(c, x)| sh.rqs[c].ttwu_pending = x == 1);
    f.by_cpu("h_nr").into_iter().for_each(|(c, x)| sh.loads[c].h_nr_queued = x);
    sh
}

fn find(k: &Release, fixture: &str) -> Found {
    let f = Fixture::new(fixture);
    let mut sh = state(k, &f);
    let idle = if f.has("busy") {
        IdleType::NotIdle
    } else if f.has("newidle") {
        IdleType::Newidle
    } else {
        IdleType::Idle
    };
    let dst_cpu = Cpu(f.number("dst", 0));
    let mut slots = sh.domains.slots(dst_cpu);
    let slot = match f.get("level").unwrap_or("PKG") {
        "TOP" => slots.next_back(),
        level => slots.find(|s| sh.domains.at(*s).name == level),
    };
    let slot = slot.expect("a level of the machine");
    if let Some(c) = f.get("imbalanced") {
        let group = sh.domains.at(slot).group_of(Cpu(number(c)));
        sh.domains.set_imbalanced(slot, group, true);
    }
    let d = &sh.domains;
    let sd = d.at(slot);
    let q = Question {
        sd,
        local: d.local(slot),
        child_prefers_sibling: slot > d.slots(dst_cpu).start
            && d.at(slot - 1).flags.has(SdFlags::PREFER_SIBLING),
        dst_cpu,
        idle,
        cpus: &sd.span,
        whole: true,
    };
    let sds = update_sd_lb_stats(&sh, &q);
    let text = match find_busiest_group(k, &q, &sds) {
        None => "balanced".into(),
        Some((g, i)) => {
            let kind = match i.kind {
                MigrationType::Load => "load",
                MigrationType::Util => "util",
                MigrationType::Task => "task",
            };
            let from =
                find_busiest_queue(&sh, &q, g, &i).map_or("nobody".into(), |c| c.to_string());
            format!("{}: {} {kind} from {from}", sd.groups[g].span, i.amount)
        }
    };
    Found {
        text,
        local: sds.local.1.kind,
        busiest: sds.busiest.map(|b| b.1.kind),
        overload: sds.overload,
    }
}

fn check_in(k: &Release, fixture: &str, expected: &str) {
    let f = find(k, fixture);
    let why = format!("{fixture} (local {:?}, busiest {:?})", f.local, f.busiest);
    assert_eq!(f.text, expected, "{why}");
}

fn check(fixture: &str, expected: &str) {
    check_in(&v6_1(), fixture, expected);
    check_in(&v6_12(), fixture, expected);
}

#[test]
fn nothing_to_pull() {
    check("llcs=2", "balanced");
    // Only the local group has tasks.
    check("llcs=2 nr=0:3", "balanced");
    // Tasks of other classes do not count as something to pull.
    check("llcs=2 nr=4:2 h_nr=4:0", "balanced");
}

#[test]
fn siblings_share_tasks_evenly() {
    // Four busy CPUs against none: 4 > 0 + 1, half of the difference.
    check("llcs=2 nr=4:1,5:1,6:1,7:1", "4-7: 2 task from 4");
    // 2 > 0 + 1: one task; 1 > 0 + 1 fails, and the group has only one task.
    check("llcs=2 nr=4:1,5:1", "4-7: 1 task from 4");
    check("llcs=2 nr=4:1", "balanced");
    // A difference of one is left alone.
    check("llcs=2 nr=0:1,4:1,5:1", "balanced");
    // The queue with the most tasks.
    check("llcs=2 nr=4:1,6:2,7:2 util=4:0,6:0,7:0 runnable=4:0,6:0,7:0", "4-7: 2 task from 6");
}

#[test]
pub(crate) fn a_busy_cpu_spreads_too_up_to_6_5() {
    // 6.12: the sibling imbalance is zero for a busy puller.
    let f = "llcs=2 dst=0 busy nr=0:1,4:1,5:1,6:1,7:1";
    check_in(&v6_1(), f, "4-7: 1 task from 4");
    check_in(&v6_12(), f, "balanced");
}

#[test]
fn spare_capacity_takes_utilisation_from_an_overloaded_group() {
    // Group 4-7: 8 tasks, util 4096·117 > 409600: overloaded. PKG does not share the cache: util
    // 4096 − 0 of the local group.
    let f = find(&v6_1(), "llcs=2 nr=4:2,5:2,6:2,7:2");
    assert_eq!((f.local, f.busiest), (GroupType::HasSpare, Some(GroupType::Overloaded)));
    check("llcs=2 nr=4:2,5:2,6:2,7:2", "4-7: 4096 util from 4");
    check("llcs=2 nr=4:2,5:2,6:2,7:2 util=0:96", "4-7: 4000 util from 4");
    // The CPU with the most utilisation among those with two tasks.
    let f = "llcs=2 nr=4:1,5:3,6:3,7:2 util=5:900,6:1000";
    check_in(&v6_1(), f, "4-7: 4096 util from 7");
    // No room by utilisation, but a CPU is idle: one task.
    check("llcs=2 nr=0:1,4:2,5:2,6:2,7:2 util=0:1024,1:1024,2:1024,3:1024", "4-7: 1 task from 4");
}

#[test]
pub(crate) fn runnable_time_boosts_the_choice_of_the_queue_from_6_5_on() {
    let f = "llcs=2 nr=4:2,5:2,6:2,7:2 util=4:990,5:995,6:800,7:800 \
             runnable=4:1000,5:960,6:800,7:800";
    // 995 wins in 6.1, max(990, 1000) in 6.12.
    check_in(&v6_1(), f, "4-7: 4096 util from 5");
    check_in(&v6_12(), f, "4-7: 4096 util from 4");
}

#[test]
fn inside_the_cache_idle_cpus_are_evened_out_by_tasks() {
    // MC without SMT: groups of one CPU. Two tasks on 1, dst idle: 2 > 0 + 1, (2 − 0)/2 = 1.
    check("cores=4 level=MC nr=1:2", "1: 1 task from 1");
    check("cores=4 level=MC nr=1:3,2:2", "1: 1 task from 1");
    check("cores=4 level=MC nr=1:4,2:2", "1: 2 task from 1");
    check("cores=4 level=MC nr=1:1", "balanced");
    check("cores=4 level=MC dst=0 newidle nr=1:2", "1: 1 task from 1");
}

#[test]
fn smt_cores_are_a_type_of_their_own_from_6_6_on() {
    // Cores {0,1} {2,3} {4,5}: one core with two tasks, one task a thread.
    let f = "cores=3 smt=2 level=MC nr=2:1,3:1";
    assert_eq!(find(&v6_1(), f).busiest, Some(GroupType::FullyBusy));
    assert_eq!(find(&v6_12(), f).busiest, Some(GroupType::SmtBalance));
    check(f, "2-3: 1 task from 2");
    // A single task is well where it is.
    assert_eq!(find(&v6_12(), "cores=3 smt=2 level=MC nr=2:1").busiest, Some(GroupType::HasSpare));
    // Not for a busy puller.
    let f = "cores=3 smt=2 level=MC busy nr=0:1,2:1,3:1";
    assert_eq!(find(&v6_12(), f).busiest, Some(GroupType::FullyBusy));
    check(f, "balanced");
    // With idle threads in one of two such cores the one without is busiest.
    let f = "cores=3 smt=2 level=MC nr=2:2,4:1,5:1 util=2:500 runnable=2:500";
    check_in(&v6_12(), f, "4-5: 1 task from 4");
    // Without, the first stays, however many tasks the other has.
    let f = "cores=3 smt=2 level=MC nr=2:1,3:1,4:2,5:1 util=4:9,5:9 runnable=4:9,5:9";
    check_in(&v6_12(), f, "2-3: 1 task from 2");
}

#[test]
pub(crate) fn fully_busy_ties() {
    // Two LLCs with four tasks each besides the local one; the pull is the same.
    let f = "llcs=3 nr=4:1,5:1,6:1,7:1,8:1,9:1,10:1,11:1";
    check_in(&v6_1(), f, "4-7: 2 task from 4");
    check_in(&v6_12(), f, "8-11: 2 task from 8");
}

#[test]
fn spare_groups_by_idle_cpus_then_by_tasks() {
    // Three CPUs idle against two: fewer idle CPUs are busier.
    let f = "llcs=3 nr=4:1,8:1,9:1";
    check(f, "8-11: 1 task from 8");
    // As many idle CPUs, more tasks (of low utilisation, so that neither is overloaded).
    let few = "util=4:9,5:9,8:9,9:9 runnable=4:9,5:9,8:9,9:9";
    check(&format!("llcs=3 nr=4:1,5:1,8:2,9:1 {few}"), "8-11: 1 task from 8");
    check(&format!("llcs=3 nr=4:2,5:1,8:2,9:1 {few}"), "4-7: 1 task from 4");
}

#[test]
fn overloaded_groups_by_load() {
    let busy = "llcs=3 nr=4:2,5:2,6:2,7:2,8:2,9:2,10:2,11:2";
    check(busy, "4-7: 4096 util from 4");
    check(&format!("{busy} load=8:9000"), "8-11: 4096 util from 8");
    check(&format!("{busy} load=4:9000"), "4-7: 4096 util from 4");
}

#[test]
pub(crate) fn two_overloaded_groups_are_compared_by_load() {
    // Loads 8·1024 and 12·1024 over 4096: avg 2048 and 3072, domain 2560.
    // min((3072 − 2560)·4096, (2560 − 2048)·4096)/1024 = 2048.
    let f = "llcs=2 nr=0:2,1:2,2:2,3:2,4:3,5:3,6:3,7:3";
    check(f, "4-7: 2048 load from 4");
    check(&format!("busy {f}"), "4-7: 2048 load from 4");
    // 117 % of 2048 is 2396.16: 2396 is within the allowance, 2397 is not.
    let g = |x: u64| format!("llcs=2 nr=0:2,1:2,2:2,3:2,4:2,5:2,6:2,7:2 load=4:{x},5:0,6:0,7:0");
    check(&g(2396 * 4), "balanced");
    // avg of both: (8192 + 9588)·1024/8192 = 2222; (2397 − 2222)·4096/1024 = 700, (2222 − 2048)·4.
    check(&g(2397 * 4), "4-7: 696 load from 4");
    // The local group is the more loaded one.
    check("llcs=2 nr=0:3,1:3,2:3,3:3,4:2,5:2,6:2,7:2", "balanced");
}

#[test]
fn a_single_task_heavier_than_the_imbalance_is_no_source() {
    let f = "llcs=2 nr=0:2,1:2,2:2,3:2,4:1,5:4,6:4,7:3 load=4:9000,5:1000,6:900,7:800";
    // avg: local 2048, busiest 11700/4 = 2925, domain 2486; min(439·4, 438·4) = 1752.
    check(f, "4-7: 1752 load from 5");
}

#[test]
fn a_fully_busy_local_group_takes_load_from_an_overloaded_one() {
    // Local 4 tasks on 4 CPUs: avg 1024; busiest 8: 2048; domain 1536. min(512·4, 512·4) = 2048.
    let f = "llcs=2 dst=0 busy nr=0:1,1:1,2:1,3:1,4:2,5:2,6:2,7:2";
    assert_eq!(find(&v6_1(), f).local, GroupType::FullyBusy);
    check(f, "4-7: 2048 load from 4");
    // A local group with more load per capacity than the domain takes none.
    check(&format!("{f} load=0:6000"), "balanced");
}

#[test]
fn imbalanced_groups_give_one_task() {
    let f = "llcs=2 imbalanced=4 nr=4:1,5:1,6:1";
    assert_eq!(find(&v6_1(), f).busiest, Some(GroupType::Imbalanced));
    check("llcs=2 imbalanced=4 nr=4:1", "4-7: 1 task from 4");
    check("llcs=2 imbalanced=4 busy nr=0:1,1:1,2:1,3:1,4:1", "4-7: 1 task from 4");
}

#[test]
fn a_weaker_type_is_left_alone() {
    // Local overloaded, the other fully busy.
    check("llcs=2 nr=0:2,1:2,2:2,3:2,4:1,5:1,6:1,7:1", "balanced");
}

#[test]
pub(crate) fn numa_nodes_leave_a_pair_alone() {
    // Two sockets of eight CPUs in one LLC each: imb_numa_nr = 8 >> 3 = 1.
    let s = |nr: &str| format!("sockets=2 cores=8 level=NUMA {nr}");
    // local.nr + 1 = 1 ≤ 1: a difference of 2 is forgiven, 3 is not.
    check(&s("nr=8:1,9:1"), "balanced");
    check(&s("nr=8:1,9:1,10:1"), "8-15: 1 task from 8");
    // local.nr + 1 = 2 > 1: nothing is forgiven.
    check(&s("nr=0:1,8:1,9:1,10:1"), "8-15: 1 task from 8");
    // 5.5 forgives nothing, 5.7 a pair wherever else tasks are.
    check_in(&v5_5(), &s("nr=8:1,9:1"), "8-15: 1 task from 8");
    check_in(&v5_7(), &s("nr=8:1,9:1"), "balanced");
    check_in(&v5_7(), &s("nr=0:1,8:1,9:1,10:1"), "8-15: 1 task from 8");
}

/// One idle CPU beside CPUs that use little: nothing but tasks is counted, and only while idle.
#[test]
fn an_idle_cpu_takes_one_of_two_light_tasks() {
    let f = "cores=4 level=MC nr=1:2 util=1:9 runnable=1:9";
    assert_eq!(find(&v6_1(), f).busiest, Some(GroupType::HasSpare));
    check(f, "1: 1 task from 1");
    // A busy one takes none, however many wait: MC has no child here that prefers siblings.
    let f = "cores=4 level=MC busy nr=0:1,1:3 util=0:9,1:9 runnable=0:9,1:9";
    assert_eq!(find(&v6_1(), f).busiest, Some(GroupType::HasSpare));
    check(f, "balanced");
}

/// Both groups have as many tasks as CPUs. An idle CPU asks for load only if its group has two idle
/// CPUs more; and only 5.5 goes on then, as a fully busy group's load is not computed, 0.
#[test]
fn fully_busy_groups_differ_by_two_idle_cpus() {
    let one = "llcs=2 nr=1:2,2:1,3:1,4:1,5:1,6:1,7:1 util=0:1024 load=4:9000";
    let f = find(&v6_1(), one);
    assert_eq!((f.local, f.busiest), (GroupType::FullyBusy, Some(GroupType::FullyBusy)));
    // Local load per capacity 1024, the domain's 2021: (2021 − 1024)·4; 0 − 2021 is huge. The one
    // task of 4 is heavier than that.
    let two = "llcs=2 nr=2:2,3:2,4:1,5:1,6:1,7:1 util=0:1024,1:1024 load=4:9000";
    let busy = "llcs=2 busy nr=0:1,1:1,2:1,3:1,4:1,5:1,6:1,7:1 load=4:9000";
    for f in [one, busy] {
        check_in(&v5_5(), f, "balanced");
    }
    check_in(&v5_5(), two, "4-7: 3988 load from 5");
    check(two, "balanced");
}

/// Three groups of load 2048, 3072 and 0 a CPU: the domain has 1706, the local group more.
#[test]
fn a_group_above_the_average_takes_nothing() {
    check("llcs=3 nr=0:2,1:2,2:2,3:2,4:3,5:3,6:3,7:3", "balanced");
}

/// Nodes {0,1} {2,3} near one another and {4,5} {6,7}: the top domain does not prefer siblings, so
/// idle CPUs are counted, 4 − 1; half of it.
#[test]
fn distant_nodes_even_out_idle_cpus() {
    let s = |nr: &str| format!("sockets=4 cores=2 level=TOP {nr}");
    check(&s("nr=4:1,5:1,6:1"), "4-7: 1 task from 4");
    check(&s("nr=0:1,4:1,5:1"), "balanced");
    // No task is queued on 7, but one is on its way there.
    check(&s("nr=4:1,5:1,6:1 pending=7:1"), "4-7: 2 task from 4");
}

/// 6.12, CPUs {0…3} and {4,5}, cores 4 and 2, tasks n and N: (2·(4N − 2n) + 6)/6, half of it.
#[test]
fn groups_of_different_size_are_compared_by_core() {
    let check = |nr: &str, expected| {
        check_in(&v6_12(), &format!("llcs=2 isolated=6,7 {nr}"), expected);
    };
    // (16 + 6)/6 = 3, (12 + 6)/6 = 3, (8 + 6)/6 = 2, (4 + 6)/6 = 1.
    check("nr=4:1,5:1", "4-5: 1 task from 4");
    check("nr=1:1,4:1,5:1", "4-5: 1 task from 4");
    check("nr=1:1,2:1,4:1,5:1", "4-5: 1 task from 4");
    check("nr=1:1,2:1,3:1,4:1,5:1", "balanced");
    // Six light tasks: (48 + 6)/6 = 9.
    let light = "util=4:9,5:9 runnable=4:9,5:9";
    check(&format!("nr=4:3,5:3 {light}"), "4-5: 4 task from 4");
}

/// 6.12, cores 2 and 8: (2·(2N − 8n) + 10)/10 is 1 for N = 2, but the group is empty.
#[test]
fn an_empty_small_group_takes_a_task() {
    let check = |nr: &str, expected| {
        let f = format!("cores=8 llcs=2 isolated=10,11,12,13,14,15 dst=8 {nr}");
        check_in(&v6_12(), &f, expected);
    };
    check("nr=0:1", "balanced");
    check("nr=0:1,1:1", "0-7: 1 task from 0");
    check("nr=9:1,0:1,1:1", "balanced");
    // (32 + 10)/10 = 4.
    let eight = "nr=0:1,1:1,2:1,3:1,4:1,5:1,6:1,7:1";
    check(eight, "0-7: 2 task from 0");
}

/// Load left behind by tasks that sleep makes no queue a source; a single task just as heavy as the
/// imbalance, (3072 − 2560)·4, does.
#[test]
fn what_makes_a_queue_a_source_of_load() {
    let f = "llcs=2 nr=0:2,1:2,2:2,3:2,4:4,6:4,7:4 load=5:9000";
    // avg: local 2048, busiest 21288/4 = 5322, domain 3685.
    check(f, "4-7: 6548 load from 4");
    let f = "llcs=2 nr=0:2,1:2,2:2,3:2,4:1,5:1,6:1,7:9 load=4:2048,5:5000,6:5240,7:0";
    check(f, "4-7: 2048 load from 4");
}

#[test]
fn overload_is_noticed() {
    assert!(!find(&v6_1(), "llcs=2 nr=0:1,4:1").overload);
    assert!(find(&v6_1(), "llcs=2 nr=0:2").overload);
}

#[test]
pub(crate) fn delayed_tasks_count_where_the_release_counts_them() {
    let k = Release { balance_counts_delayed: false, ..v6_12() };
    let mut sh = shared(&sample::regular(Arch::X86, 1, 4, 1, 4), k.clone());
    sh.loads[1].h_nr_queued = 3;
    sh.loads[1].h_nr_delayed = 2;
    assert_eq!(crate::balance::stats::h_nr(&k, &sh.loads[1]), 1);
    assert_eq!(crate::balance::stats::h_nr(&v6_12(), &sh.loads[1]), 3);
}

/// Five tasks on four CPUs which use little but wait much: overloaded, unless only utilisation
/// counts; then there is spare capacity and tasks are evened out, (5 − 0)/2.
#[test]
pub(crate) fn waiting_overloads_a_group_from_5_7_on() {
    let f = "llcs=2 nr=4:2,5:1,6:1,7:1 util=4:100,5:100,6:100,7:100 runnable=4:9000";
    check_in(&v5_5(), f, "4-7: 2 task from 4");
    check_in(&v5_7(), f, "4-7: 4096 util from 4");
}

/// As many idle CPUs in both: the first group stays busiest in 5.5, then the one with more tasks.
#[test]
pub(crate) fn spare_groups_by_tasks_from_5_7_on() {
    let few = "util=4:9,5:9,8:9,9:9 runnable=4:9,5:9,8:9,9:9";
    let f = format!("llcs=3 nr=4:1,5:1,8:2,9:1 {few}");
    check_in(&v5_5(), &f, "4-7: 1 task from 4");
    check_in(&v5_7(), &f, "8-11: 1 task from 8");
}

/// Two tasks on 1, overloaded; inside a cache 5.x fills the idle CPU's capacity, 6.1 counts tasks.
#[test]
pub(crate) fn inside_the_cache_5_x_moves_utilisation() {
    check_in(&v5_7(), "cores=4 level=MC nr=1:2", "1: 1024 util from 1");
    check_in(&v6_1(), "cores=4 level=MC nr=1:2", "1: 1 task from 1");
}

/// CPU 4 has one task and the most utilisation: it gives nothing that may leave it, but only from
/// 5.7 on is it passed over.
#[test]
pub(crate) fn utilisation_comes_from_a_queue_of_two_from_5_7_on() {
    let f = "llcs=2 nr=4:1,5:3,6:3,7:2 util=5:900,6:1000";
    check_in(&v5_5(), f, "4-7: 4096 util from 4");
    check_in(&v5_7(), f, "4-7: 4096 util from 7");
}

/// What slept on CPU 4 left more there than there is elsewhere: load in 5.5 and 5.7, of utilisation
/// only in 5.5. avg: local 2048, busiest 21288/4 = 5322, domain 3685; (5322 − 3685)·4 = 6548.
#[test]
pub(crate) fn an_idle_queue_is_busiest_in_5_x() {
    let load = "llcs=2 nr=0:2,1:2,2:2,3:2,5:4,6:4,7:4 load=4:9000 util=4:1024";
    let util = "llcs=2 nr=5:3,6:3,7:2 util=4:1020,5:900,6:1000,7:950";
    for (k, by_load, by_util) in [(v5_5(), 4, 4), (v5_7(), 4, 6), (v6_1(), 5, 6)] {
        check_in(&k, load, &format!("4-7: 6548 load from {by_load}"));
        check_in(&k, util, &format!("4-7: 4096 util from {by_util}"));
    }
}

/// A local group of load 2268 per capacity beside an overloaded one of 2048, domain 2158: both
/// differences are −110, which 5.5 does not see; as unsigned numbers they are huge.
#[test]
pub(crate) fn a_group_with_more_load_takes_none_from_5_7_on() {
    let f = "llcs=2 busy nr=0:1,1:1,2:1,3:1,4:2,5:2,6:2,7:2 load=0:6000";
    let huge = (u64::MAX - 110 * 4096 + 1) / 1024;
    check_in(&v5_5(), f, &format!("4-7: {huge} load from 4"));
    check_in(&v5_7(), f, "balanced");
    // Local 1500, busiest 2048, the third idle: the domain has 1182. (2048 − 1182)·4096/1024.
    let f = "llcs=3 busy nr=0:1,1:1,2:1,3:1,4:2,5:2,6:2,7:2 load=0:1500,1:1500,2:1500,3:1500";
    check_in(&v5_7(), f, "4-7: 3464 load from 4");
    check_in(&v6_1(), f, "balanced");
    // 125 % of 2048 is 2560. One more: the domain has 2304; (2304 − 2048)·4096/1024.
    let g = |x: u64| format!("llcs=2 nr=0:2,1:2,2:2,3:2,4:2,5:2,6:2,7:2 load=4:{x},5:0,6:0,7:0");
    check_in(&v5_7(), &g(2560 * 4), "balanced");
    check_in(&v5_7(), &g(2561 * 4), "4-7: 1024 load from 4");
}
