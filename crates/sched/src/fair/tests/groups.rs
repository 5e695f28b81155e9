//! Group shares, the shared sum, and load that travels with a task.

use super::*;
use vruntime_base::{Func, Resource};

fn group_lab(release: Release) -> (Lab, TgId) {
    let mut lab = Lab::new(release, "uma-8");
    let g = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, TgId(0)));
    (lab, g)
}

fn group_se(lab: &Lab, g: TgId, cpu: Cpu) -> &Entity {
    let q = &lab.linux.fair.cfs[lab.linux.fair.queue_of(g, cpu).ix()];
    &lab.linux.fair.ses[q.se.ix()]
}

/// One task on each of two CPUs: each CPU's entity gets half of the group's weight.
#[test]
fn a_group_divides_its_weight_among_its_cpus() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let (mut lab, g) = group_lab(release);
        let cpus = [Cpu(0), Cpu(1)];
        for c in cpus {
            lab.spawn(c, 0, g);
            lab.schedule(c);
        }
        run(&mut lab, &cpus, 1500);
        for c in cpus {
            let w = group_se(&lab, g, c).weight;
            assert!(w.abs_diff(512 << 10) < 20 << 10, "{w}");
        }
        check_invariants(&lab);
        let total = lab.linux.fair.groups[g.ix()].load_avg;
        assert!((2000..=2070).contains(&total), "{total}");
    }
}

/// A group of three and a task of the root group share a CPU equally, not one to three.
#[test]
fn a_group_counts_as_one() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let (mut lab, g) = group_lab(release);
        let alone = lab.spawn(Cpu(0), 0, TgId(0));
        for _ in 0..3 {
            lab.spawn(Cpu(0), 0, g);
        }
        lab.schedule(Cpu(0));
        run(&mut lab, &[Cpu(0)], 3000);
        let share = lab.ran(alone) / (30 * MS);
        assert!((46..=54).contains(&share), "{share} %");
    }
}

/// A new task brings half of what its CPU has left, and its weight: 512 and 1,024, to the root
/// queue as to its own, and however deep its group lies.
#[test]
fn a_groups_first_task_counts_once() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let (mut lab, g) = group_lab(release);
        let below = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, g));
        for (cpu, tg) in [(Cpu(1), g), (Cpu(2), below)] {
            lab.spawn(cpu, 0, tg);
            let root = &lab.sh.loads[cpu.ix()];
            assert_eq!((root.util_avg, root.runnable_avg), (512, 512), "{cpu:?}");
            assert!(root.load_avg <= 1024, "{cpu:?}: {}", root.load_avg);
        }
        check_invariants(&lab);
    }
}

/// Nice 0 and nice 5 share 1024 : 335.
#[test]
fn weights_divide_the_cpu() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        let b = lab.spawn(Cpu(0), 5, TgId(0));
        lab.schedule(Cpu(0));
        run(&mut lab, &[Cpu(0)], 6000);
        let (a, b) = (lab.ran(a), lab.ran(b));
        let permille = a * 1000 / (a + b);
        assert!((735..=772).contains(&permille), "{permille}, not 753");
    }
}

/// Tasks of the root group never touch the shared sum; others read it at every step.
#[test]
fn only_groups_pay_for_the_shared_sum() {
    let (mut lab, g) = group_lab(sample::v6_1());
    for tg in [TgId(0), g] {
        lab.spawn(Cpu(1), 0, tg);
        lab.schedule(Cpu(1));
        // Another CPU owns the line by now.
        let line = vruntime_machine::Line::TgLoadAvg(u32::from(g.0));
        lab.machine.write(line, Cpu(5));
        lab.sh.ledger = Ledger::new(8);
        lab.sleep(Cpu(1));
        let ns = lab.sh.ledger.sum(Func::UpdateCfsGroup, Resource::TgLoadAvg);
        assert_eq!(ns.0 != 0, tg == g, "{tg:?}");
    }
}

/// Each level of an enqueue and of a tick brings an entity and its queue up to date.
#[test]
fn load_tracking_is_booked_a_level() {
    let (mut lab, g) = group_lab(sample::v6_1());
    for (tg, levels) in [(TgId(0), 1), (g, 2)] {
        let pelt = u64::from(lab.machine.costs.pelt);
        let own = |lab: &Lab| lab.sh.ledger.sum(Func::UpdateLoadAvg, Resource::None).0;
        lab.sh.ledger = Ledger::new(8);
        lab.spawn(Cpu(1), 0, tg);
        assert_eq!(own(&lab), levels * pelt, "{tg:?}");
        lab.schedule(Cpu(1));
        lab.tick(Cpu(1));
        assert_eq!(own(&lab), 2 * levels * pelt, "{tg:?}");
        lab.sleep(Cpu(1));
    }
}

/// The write is limited to one a millisecond a queue where the release says so.
#[test]
pub(crate) fn the_ratelimit_limits_writes_not_reads() {
    let writes = |release: Release| {
        let (mut lab, g) = group_lab(release);
        let a = lab.spawn(Cpu(0), 0, g);
        lab.spawn(Cpu(0), 0, g);
        let mut n = 0;
        let q = lab.linux.fair.queue_of(g, Cpu(0));
        for i in 0..50 {
            // A task goes to and fro every 20 µs: every attach and detach wants to write.
            lab.pass(20_000);
            let before = lab.linux.fair.cfs[q.ix()].tg_load_avg_contrib;
            lab.move_queued(a, Cpu(1 - i % 2));
            n += u32::from(before != lab.linux.fair.cfs[q.ix()].tg_load_avg_contrib);
        }
        check_invariants(&lab);
        n
    };
    assert!(writes(sample::v6_1()) >= 45);
    assert!(writes(sample::v6_12()) <= 2);
}

/// The last task of a group leaves CPU 0 20 us after its load was published there: the limit
/// forbids to take it back. A queue that is forgotten just then is counted for ever.
#[test]
pub(crate) fn a_queue_that_is_still_counted_is_looked_after() {
    let counted = |release: Release| {
        let (mut lab, g) = group_lab(release);
        lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        let a = lab.spawn(Cpu(0), 0, g);
        lab.pass(20_000);
        lab.move_queued(a, Cpu(1));
        for ns in [20_000, 10 * MS] {
            lab.pass(ns);
            lab.hook(Cpu(0), |s, cx| s.fair.update_blocked_averages(cx, Cpu(0)));
        }
        lab.linux.fair.cfs[lab.linux.fair.queue_of(g, Cpu(0)).ix()].tg_load_avg_contrib
    };
    assert_eq!((counted(sample::v6_12()), counted(sample::v6_1())), (0, 0));
    let k = Release { tg_load_avg_ratelimit: true, ..sample::v6_1() };
    assert_eq!(counted(k), 1024);
}

/// A runs, B has come, and A is picked once more: up to 6.11 it stands before B again.
#[test]
pub(crate) fn who_is_picked_once_more_goes_first_up_to_6_11() {
    let first = |release: Release| {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        lab.spawn(Cpu(0), 19, TgId(0));
        assert_eq!(lab.schedule(Cpu(0)), a);
        lab.sh.rqs[0].cfs_tasks_head == a
    };
    assert_eq!((first(sample::v6_1()), first(sample::v6_12())), (true, false));
}

/// A sleeper woken elsewhere leaves its load in `removed`; the next update there takes it off.
#[test]
fn load_travels_with_a_woken_task() {
    let mut lab = Lab::new(sample::v6_1(), "uma-8");
    let a = lab.spawn(Cpu(0), 0, TgId(0));
    lab.schedule(Cpu(0));
    run(&mut lab, &[Cpu(0)], 400);
    lab.sleep(Cpu(0));
    let load = lab.sh.loads[0].load_avg;
    assert!((1000..=1024).contains(&load), "{load}");
    lab.wake(a, Cpu(1));
    assert_eq!(lab.sh.loads[0].load_avg, load, "still counted where it slept");
    assert_eq!(lab.linux.fair.cfs[0].removed.nr, 1);
    assert!(lab.sh.loads[1].load_avg >= 1000);
    let left = lab.hook(Cpu(0), |s, cx| s.fair.update_blocked_averages(cx, Cpu(0)));
    assert_eq!((lab.sh.loads[0].load_avg, left), (0, false));
}

/// A task with load 1024 sleeps for 32 ms on a CPU that goes idle and is woken elsewhere: with half
/// of it from 6.0 on, with all of it before. Its queue takes off what it still counts.
#[test]
pub(crate) fn a_sleeper_that_leaves_an_idle_cpu_has_decayed() {
    let woken = |release: Release| {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        run(&mut lab, &[Cpu(0)], 400);
        lab.sleep(Cpu(0));
        let load = lab.sh.loads[0].load_avg;
        lab.pass(32 << 20);
        lab.wake(a, Cpu(1));
        assert_eq!(lab.linux.fair.cfs[0].removed.load_avg, load);
        lab.sh.loads[1].load_avg
    };
    assert!((1000..=1024).contains(&woken(sample::v5_7())));
    assert!((495..=515).contains(&woken(sample::v6_1())));
}

/// 219 tasks of nice 0 wait on a CPU. One leaves: of a load sum of 218 · 1024 · 47,742 the kernel
/// keeps 32 bits, 218 · 48,887,808 − 2 · 2^32 = 2,067,607,552, and with the next segment the load
/// is what that stands for. Linux 6.1.192 (2 CPUs, 220 spinners let go from one): from 224,269 to
/// 57,315 within a tick.
#[test]
fn the_load_of_two_hundred_tasks_wraps_when_one_leaves() {
    let mut lab = Lab::new(sample::v6_1(), "uma-8");
    let tasks: Vec<_> = (0..219).map(|_| lab.spawn(Cpu(0), 0, TgId(0))).collect();
    lab.schedule(Cpu(0));
    run(&mut lab, &[Cpu(0)], 1000);
    let load = lab.sh.loads[0].load_avg;
    assert!((223_000..=224_400).contains(&load), "{load}");
    let mut waiting = tasks.iter().map(|t| lab.sh.tasks[t.ix()].se);
    let se = waiting.find(|&se| lab.linux.fair.cfs[0].curr != se).unwrap();
    lab.linux.fair.dequeue_load_avg(se);
    let sum = lab.linux.fair.cfs[0].avg.load_sum;
    assert!((1_900_000_000..=2_080_000_000).contains(&sum), "{sum}");
    run(&mut lab, &[Cpu(0)], 2);
    let load = lab.sh.loads[0].load_avg;
    assert!((44_000..=57_000).contains(&load), "{load}");
}

/// Two tasks of nice 0, load 1024 each. One becomes nice 5 (335): the queue has 1359 at once, not
/// when the difference has decayed; under another class it has none of it.
#[test]
fn a_change_of_weight_or_class_changes_the_queues_load() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let mut lab = Lab::new(release, "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        run(&mut lab, &[Cpu(0)], 400);
        let queue = |lab: &Lab| lab.linux.fair.cfs[0].avg.load_avg;
        assert!((2040..=2050).contains(&queue(&lab)), "{}", queue(&lab));
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, 5));
        assert!((1350..=1360).contains(&queue(&lab)), "{}", queue(&lab));
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Fifo, 1));
        assert!((1020..=1026).contains(&queue(&lab)), "{}", queue(&lab));
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, 0));
        assert!(queue(&lab) > 1300, "{}", queue(&lab));
    }
}

/// Who becomes less important while it runs gives way to who waits; who becomes more so does not,
/// nor who is alone.
#[test]
fn a_higher_nice_value_asks_for_a_reschedule() {
    let asked = |others: usize, nice: i8| {
        let mut lab = Lab::new(sample::v6_1(), "uma-8");
        let a = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        for _ in 0..others {
            lab.spawn(Cpu(0), 0, TgId(0));
        }
        lab.sh.rqs[0].need_resched = false;
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, a, Policy::Normal, nice));
        lab.sh.rqs[0].need_resched
    };
    assert_eq!([asked(1, 5), asked(1, -5), asked(0, 5)], [true, false, false]);
}

/// By hand: parent 1000 + group entity 500 of it, task 250 of the group's 400 + 1.
#[test]
fn hierarchical_load_is_a_share_of_a_share() {
    let (mut lab, g) = group_lab(sample::v6_1());
    let p = lab.spawn(Cpu(0), 0, g);
    let fair = &mut lab.linux.fair;
    let (root, q) = (CfsId(0), fair.queue_of(g, Cpu(0)));
    let gse = fair.cfs[q.ix()].se;
    fair.cfs[root.ix()].avg.load_avg = 1000;
    fair.ses[gse.ix()].avg.load_avg = 500;
    fair.cfs[q.ix()].avg.load_avg = 400;
    lab.se_mut(p).avg.load_avg = 250;
    // 1000 · 500 / 1001 = 499; 250 · 499 / 401 = 311.
    assert_eq!(lab.hook(Cpu(0), |s, cx| s.fair.task_h_load(cx, p)), 311);
    // Within the same jiffy the share is kept.
    lab.linux.fair.cfs[0].avg.load_avg = 5;
    assert_eq!(lab.hook(Cpu(0), |s, cx| s.fair.task_h_load(cx, p)), 311);
}

/// A new task: the cap where the queue is unused, and where the scaled weight overshoots.
#[test]
pub(crate) fn a_new_task_is_expected_to_use_half_of_what_is_left() {
    let mut lab = Lab::new(sample::v6_1(), "uma-8");
    let p = lab.spawn(Cpu(0), 0, TgId(0));
    assert_eq!(lab.se(p).avg.util_avg, 512);
    assert_eq!(lab.se(p).avg.load_avg, 1024);
    let q = &mut lab.linux.fair.cfs[1].avg;
    (q.util_avg, q.load_avg, q.last_update_time) = (424, 1023, lab.now);
    let p = lab.spawn(Cpu(1), 0, TgId(0));
    assert_eq!(lab.se(p).avg.util_avg, 300, "cap (1024 − 424)/2");
    let mut lab = Lab::new(sample::v6_18(), "uma-8");
    let q = &mut lab.linux.fair.cfs[1].avg;
    (q.util_avg, q.load_avg, q.last_update_time) = (200, 2047, lab.now);
    let p = lab.spawn(Cpu(1), 0, TgId(0));
    assert_eq!(lab.se(p).avg.util_avg, 100, "200 · 1024 / 2048");
}

/// The group's only task leaves: 6.1 and 6.10 read the sum for the empty queue, 6.12 does not.
#[test]
pub(crate) fn an_empty_queue_reads_the_sum() {
    use crate::release::GroupReweight;
    let changed = Release { group_reweight: GroupReweight::IfChanged, ..sample::v6_12() };
    for (k, reads) in [(sample::v6_1(), true), (changed, true), (sample::v6_12(), false)] {
        let (mut lab, g) = group_lab(k);
        lab.spawn(Cpu(1), 0, g);
        lab.schedule(Cpu(1));
        lab.pass(10_000_000);
        let q = lab.linux.fair.queue_of(g, Cpu(1));
        let se = lab.linux.fair.cfs[q.ix()].se;
        lab.sleep(Cpu(1));
        assert_eq!(lab.linux.fair.cfs[q.ix()].load_weight, 0);
        let line = vruntime_machine::Line::TgLoadAvg(u32::from(g.0));
        lab.machine.write(line, Cpu(5));
        lab.sh.ledger = Ledger::new(8);
        lab.hook(Cpu(1), |s, cx| s.fair.update_cfs_group(cx, se));
        let ns = lab.sh.ledger.sum(Func::UpdateCfsGroup, Resource::TgLoadAvg);
        assert_eq!(ns.0 != 0, reads);
    }
}

/// The estimate was 800; the task used 400, being runnable for 800: with one value it stays, since
/// less use while waiting says nothing. Before, a quarter of the difference goes: 700.
#[test]
pub(crate) fn the_estimate_of_a_task_that_had_to_wait() {
    for (k, estimate) in [(sample::v6_1(), 700), (sample::v6_12(), 800)] {
        let mut lab = Lab::new(k, "uma-8");
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        lab.sh.tasks[p.ix()].util_est_ewma = 800;
        lab.sh.tasks[p.ix()].util_est_enqueued = 800;
        let e = lab.se_mut(p);
        (e.avg.util_avg, e.avg.runnable_avg, e.util_changed) = (400, 800, true);
        let sh = &mut lab.sh;
        lab.linux.fair.util_est_update(sh, p);
        assert_eq!(lab.sh.tasks[p.ix()].util_est_ewma, estimate);
    }
}

/// A new task that sleeps before its averages have changed is estimated as what it was born with,
/// the next time only if it has used the CPU for a millisecond. To be woken on another CPU is no
/// use: it leaves the estimate alone, however much has decayed.
#[test]
pub(crate) fn the_first_sleep_makes_an_estimate_and_a_migration_none() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let mut lab = Lab::new(Release { delay_dequeue: false, ..release }, "uma-8");
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        let born = lab.se(p).avg.util_avg;
        assert!(born > 100, "{born}");
        lab.sleep(Cpu(0));
        let estimate = |lab: &Lab| lab.sh.tasks[p.ix()].util_est_ewma;
        assert_eq!(estimate(&lab), born);
        lab.pass(50 * MS);
        lab.wake(p, Cpu(1));
        lab.schedule(Cpu(1));
        assert!(lab.se(p).avg.util_avg < born / 2);
        lab.sleep(Cpu(1));
        assert_eq!(estimate(&lab), born);
    }
}

/// The last nice 0 task of a CPU sleeps and leaves one of SCHED_IDLE: from 5.6 on the CPU balances
/// at once.
#[test]
pub(crate) fn a_cpu_left_with_idle_tasks_balances_soon() {
    for (release, policy, soon) in [
        (sample::v6_1(), Policy::Idle, true),
        (sample::v6_1(), Policy::Normal, false),
        (sample::v5_5(), Policy::Idle, false),
    ] {
        let mut lab = Lab::new(release, "uma-8");
        let both = [0, 0].map(|nice| lab.spawn(Cpu(0), nice, TgId(0)));
        let runs = lab.schedule(Cpu(0));
        let other = both.into_iter().find(|p| *p != runs).unwrap();
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, other, policy, 0));
        lab.sh.rqs[0].next_balance = u64::MAX;
        lab.sleep(Cpu(0));
        assert_eq!(lab.sh.rqs[0].next_balance, if soon { 250 } else { u64::MAX });
    }
}

/// A task sleeps 10 ms after its last update: 6.12 takes its utilisation as it was then, 6.10 as it
/// is.
#[test]
pub(crate) fn the_estimate_before_or_after_the_last_stretch() {
    for (first, release) in [(false, sample::v6_1()), (true, sample::v6_12())] {
        let release = Release { util_est_single: true, ..release };
        assert_eq!(release.util_est_first, first);
        let mut lab = Lab::new(release, "uma-8");
        let p = lab.spawn(Cpu(0), 0, TgId(0));
        lab.schedule(Cpu(0));
        lab.pass(10 * MS);
        lab.tick(Cpu(0));
        let before = lab.se(p).avg.util_avg;
        lab.pass(10 * MS);
        lab.sleep(Cpu(0));
        let after = lab.se(p).avg.util_avg;
        assert!(after > before + 50, "{before} {after}");
        assert_eq!(lab.sh.tasks[p.ix()].util_est_ewma, if first { before } else { after });
    }
}

/// The task of a group within a group sleeps. As its load decays, the outer group's queue is aged
/// with it, and so finds itself up to date when its turn comes: 5.x leaves its part of the sum.
#[test]
pub(crate) fn the_sum_of_the_outer_group_follows_from_5_13_on() {
    for (release, follows) in [(sample::v5_7(), false), (sample::v6_1(), true)] {
        let (mut lab, outer) = group_lab(release);
        let inner = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, outer));
        lab.spawn(Cpu(0), 0, inner);
        lab.schedule(Cpu(0));
        run(&mut lab, &[Cpu(0)], 50);
        lab.sleep(Cpu(0));
        lab.pass(100 * MS);
        lab.hook(Cpu(0), |s, cx| s.fair.update_blocked_averages(cx, Cpu(0)));
        let q = &lab.linux.fair.cfs[lab.linux.fair.queue_of(outer, Cpu(0)).ix()];
        assert!(q.avg.load_avg > 0);
        assert_eq!(q.tg_load_avg_contrib == q.avg.load_avg, follows);
    }
}

/// The running task goes to another group and stays the running one: its entity, its load and the
/// counts of all queues go along, and the CPU is asked to choose again.
#[test]
fn a_running_task_changes_its_group() {
    for release in [sample::v5_7(), sample::v6_1(), sample::v6_12(), sample::v6_18()] {
        let (mut lab, g) = group_lab(release);
        let c = Cpu(0);
        let p = lab.spawn(c, 0, TgId(0));
        lab.spawn(c, 0, TgId(0));
        while lab.schedule(c) != p {
            lab.pass(10 * MS);
        }
        lab.pass(MS);
        lab.hook(c, |s, cx| s.set_task_group(cx, p, g));
        let queue = |lab: &Lab, tg: TgId| {
            let q = &lab.linux.fair.cfs[lab.linux.fair.queue_of(tg, c).ix()];
            (q.h_nr_queued, q.curr.is_some())
        };
        assert_eq!((queue(&lab, g), queue(&lab, TgId(0))), ((1, true), (2, true)));
        let own = lab.sh.tasks[p.ix()].se;
        assert!(lab.se(p).parent.is_some() && lab.se(p).depth == 1 && lab.se(p).avg.load_avg > 0);
        assert_eq!(lab.linux.fair.cfs[lab.se(p).cfs_rq.ix()].curr, own);
        assert!(lab.sh.rqs[c.ix()].need_resched);
        // And back: the group has no task left; its entity may be in delayed dequeue.
        lab.pass(MS);
        lab.hook(c, |s, cx| s.set_task_group(cx, p, TgId(0)));
        assert_eq!((queue(&lab, g), queue(&lab, TgId(0))), ((0, false), (2, true)));
        let group = group_se(&lab, g, c);
        assert!(!group.on_rq || group.sched_delayed);
        assert!(lab.se(p).parent.is_none() && lab.se(p).depth == 0);
        assert_eq!(lab.sh.loads[c.ix()].nr_running, 2);
    }
}
