//! Shares: does everybody get what weights, groups three levels deep and policies promise?
//!
//! Eight CPUs, ticks of 1 ms, a second to settle and a second or more to measure.

use super::*;

/// What each of `parts`, lists of tasks, got of `cpus` in `ms`, in permille.
fn permille(lab: &mut Lab, cpus: &[Cpu], ms: u64, parts: &[Vec<TaskId>]) -> Vec<u64> {
    let ran = |lab: &Lab| -> Vec<u64> {
        // What runs at the moment is accounted by the tick before.
        let sum = |part: &Vec<TaskId>| part.iter().map(|p| lab.ran(*p)).sum();
        parts.iter().map(sum).collect()
    };
    run(lab, cpus, 1000);
    let before = ran(lab);
    run(lab, cpus, ms);
    let got: Vec<u64> = ran(lab).iter().zip(&before).map(|(a, b)| a - b).collect();
    let all: u64 = got.iter().sum();
    assert_eq!(all, ms * MS * cpus.len() as u64, "the CPUs are never idle");
    got.iter().map(|x| x * 1000 / all).collect()
}

#[track_caller]
fn close(found: &[u64], expected: &[u64], by: u64) {
    let near = found.iter().zip(expected).all(|(f, e)| f.abs_diff(*e) <= by);
    assert!(near && found.len() == expected.len(), "{found:?}, not {expected:?}");
}

fn spawn_all(lab: &mut Lab, cpus: &[Cpu], nice: i8, tg: TgId) -> Vec<TaskId> {
    cpus.iter().map(|c| lab.spawn(*c, nice, tg)).collect()
}

/// A : B = 100 : 300; in A, A1 : A2 = 100 : 200; in A1, x : y = 100 : 100. In thousandths: x and y
/// 1000/4/3/2 = 41.7 each, A2 166.7, B 750, whose task is three levels down as well.
#[test]
fn groups_three_deep() {
    for release in [sample::v6_1(), sample::v6_12(), sample::v6_18(), sample::v5_7()] {
        for n in [1, 4] {
            let mut lab = Lab::new(release.clone(), "uma-8");
            let mut group = |parent: TgId, weight: u64| {
                let g = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, parent));
                lab.linux.fair.groups[g.ix()].shares = (weight * 1024 / 100) << 10;
                g
            };
            let (a, b) = (group(TgId(0), 100), group(TgId(0), 300));
            let (a1, a2) = (group(a, 100), group(a, 200));
            let (x, y) = (group(a1, 100), group(a1, 100));
            let b1 = group(b, 100);
            let b2 = group(b1, 50);
            let cpus: Vec<Cpu> = (0..n).map(Cpu).collect();
            let parts: Vec<Vec<TaskId>> =
                [x, y, a2, b2].map(|g| spawn_all(&mut lab, &cpus, 0, g)).into();
            for c in &cpus {
                lab.schedule(*c);
            }
            let found = permille(&mut lab, &cpus, 1000, &parts);
            close(&found, &[42, 42, 167, 750], 10);
            check_invariants(&lab);
        }
    }
}

/// A group with a task on every CPU has there what a group with one task has on its own CPU: the
/// weight goes where the load is. On CPU 0 of 4, G has a quarter of its weight, H all: 1 : 4.
#[test]
fn a_group_on_many_cpus_has_little_on_each() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let mut lab = Lab::new(release, "uma-8");
        let g = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, TgId(0)));
        let h = lab.hook(Cpu(0), |s, cx| s.task_group_new(cx, TgId(0)));
        let cpus: Vec<Cpu> = (0..4).map(Cpu).collect();
        let all = spawn_all(&mut lab, &cpus, 0, g);
        let one = lab.spawn(Cpu(0), 0, h);
        for c in &cpus {
            lab.schedule(*c);
        }
        run(&mut lab, &cpus, 1000);
        let found = permille(&mut lab, &cpus[..1], 2000, &[vec![all[0]], vec![one]]);
        close(&found, &[200, 800], 20);
    }
}

/// Weights 1024, 335 and 15 of 1374.
#[test]
fn nice_levels() {
    for release in [sample::v6_1(), sample::v6_12(), sample::v6_18(), sample::v5_7()] {
        let mut lab = Lab::new(release, "uma-8");
        let cpus = [Cpu(0)];
        let parts: Vec<Vec<TaskId>> =
            [0, 5, 19].map(|nice| spawn_all(&mut lab, &cpus, nice, TgId(0))).into();
        lab.schedule(Cpu(0));
        close(&permille(&mut lab, &cpus, 4000, &parts), &[745, 244, 11], 5);
    }
}

/// Weights 1024 and 3: 2.9 of a thousand.
#[test]
fn sched_idle_gets_the_crumbs() {
    for release in [sample::v6_1(), sample::v6_12(), sample::v5_7()] {
        let mut lab = Lab::new(release, "uma-8");
        let (p, idle) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, idle, Policy::Idle, 0));
        lab.schedule(Cpu(0));
        let found = permille(&mut lab, &[Cpu(0)], 10_000, &[vec![p], vec![idle]]);
        close(&found, &[997, 3], 1);
    }
}

/// The policy changes who preempts whom at a wakeup, not who gets how much.
#[test]
fn sched_batch_gets_its_weight() {
    for release in [sample::v6_1(), sample::v6_12()] {
        let mut lab = Lab::new(release, "uma-8");
        let (p, batch) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
        lab.hook(Cpu(0), |s, cx| s.set_policy(cx, batch, Policy::Batch, 0));
        lab.schedule(Cpu(0));
        let found = permille(&mut lab, &[Cpu(0)], 2000, &[vec![p], vec![batch]]);
        close(&found, &[500, 500], 10);
    }
}
