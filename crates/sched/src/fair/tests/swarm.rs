//! Random sequences of hooks: the queues' own numbers always equal what the entities say, and
//! picking fast equals picking naively.

use super::*;
use vruntime_base::Stream;

fn swarm(release: Release, seed: u64, steps: u64) -> (u32, u32) {
    let noise = Noise::new(seed);
    let mut lab = Lab::new(release, "uma-8");
    let root = TgId(0);
    let (a, b) = lab.hook(Cpu(0), |s, cx| {
        let a = s.task_group_new(cx, root);
        (a, s.task_group_new(cx, a))
    });
    let (mut slept, mut delayed) = (0, 0);
    let mut tasks = Vec::new();
    for i in 0..steps {
        let r = |what: u64, n: u64| noise.below(Stream::Test, what, i, n);
        lab.pass(r(0, 3 * MS));
        let cpu = Cpu(r(1, 3) as u16);
        let curr = lab.curr(cpu);
        let is_idle = curr.ix() < 8;
        match r(2, 12) {
            0 if tasks.len() < 40 => {
                let tg = [root, a, b][r(3, 3) as usize];
                tasks.push(lab.spawn(cpu, r(4, 40) as i8 - 20, tg));
            }
            1..4 if !is_idle => {
                lab.sleep(cpu);
                slept += 1;
                delayed += u32::from(lab.se(curr).sched_delayed);
            }
            4..8 => {
                let asleep: Vec<TaskId> = tasks
                    .iter()
                    .copied()
                    .filter(|p| lab.sh.tasks[p.ix()].state == TaskState::Interruptible)
                    .collect();
                if !asleep.is_empty() {
                    lab.wake(asleep[r(6, asleep.len() as u64) as usize], cpu);
                }
            }
            8 => {
                let waiting: Vec<TaskId> = tasks
                    .iter()
                    .copied()
                    .filter(|p| {
                        let t = &lab.sh.tasks[p.ix()];
                        t.on_rq && lab.curr(t.cpu) != *p
                    })
                    .collect();
                if !waiting.is_empty() {
                    lab.move_queued(waiting[r(6, waiting.len() as u64) as usize], cpu);
                }
            }
            9 if !is_idle => lab.hook(cpu, |s, cx| s.yield_task(cx, cpu)),
            10 => {
                lab.hook(cpu, |s, cx| s.fair.update_blocked_averages(cx, cpu));
            }
            _ => lab.tick(cpu),
        }
        if lab.sh.rqs[cpu.ix()].need_resched {
            lab.schedule(cpu);
        }
        check_invariants(&lab);
    }
    // Everybody sleeps: all that was attached decays to nothing.
    for c in (0..3).map(Cpu) {
        while lab.curr(c).ix() >= 8 || lab.sh.loads[c.ix()].nr_running > 0 {
            lab.pass(10 * MS);
            if lab.curr(c).ix() < 8 {
                lab.schedule(c);
            } else {
                lab.sleep(c);
            }
        }
    }
    for _ in 0..30 {
        lab.pass(500 * MS);
        for c in (0..3).map(Cpu) {
            lab.hook(c, |s, cx| s.fair.update_blocked_averages(cx, c));
        }
    }
    check_invariants(&lab);
    for c in 0..3 {
        assert_eq!((lab.sh.loads[c].load_avg, lab.sh.loads[c].util_avg), (0, 0));
        assert_eq!(lab.sh.loads[c].util_est, 0);
    }
    (slept, delayed)
}

#[test]
fn cfs_keeps_its_books() {
    for seed in 0..8 {
        let (slept, delayed) = swarm(sample::v6_1(), seed, 3000);
        assert!(slept > 100 && delayed == 0);
    }
}

#[test]
fn eevdf_keeps_its_books() {
    for seed in 0..8 {
        let (slept, delayed) = swarm(sample::v6_12(), seed, 3000);
        assert!(delayed > 10 && delayed < slept, "{delayed} of {slept}");
    }
}

#[test]
fn eevdf_whose_wakeups_end_delays_keeps_its_books() {
    for seed in 0..8 {
        let (slept, delayed) = swarm(sample::v6_18_44(), seed, 3000);
        assert!(delayed > 10 && delayed < slept, "{delayed} of {slept}");
    }
}

#[test]
fn eevdf_without_the_late_mechanisms_keeps_its_books() {
    let release = Release {
        zero_vruntime: false,
        delay_dequeue: false,
        place_rel_deadline: false,
        preempt_short: false,
        yield_forfeits: false,
        fork_places_twice: true,
        ..sample::v6_12()
    };
    for seed in 0..4 {
        assert_eq!(swarm(release.clone(), seed, 2000).1, 0);
    }
}

/// Model test: a queue of random entities against the definition, computed with big numbers.
#[test]
fn the_fast_pick_is_the_naive_pick() {
    let noise = Noise::new(3);
    for i in 0..3000 {
        let r = |what: u64, n: u64| noise.below(Stream::Test, what, i, n);
        let mut b = Board::new(sample::v6_12(), 8);
        b.fair.cfs[0].min_vruntime = VTime(50 * MS);
        let n = 2 + r(0, 12);
        for k in 0..n {
            let v = 40 * MS + r(10 + k, 20) * MS;
            let se = b.edf(v, v + r(30 + k, 8) * MS, 3 * MS);
            let nice = if r(50 + k, 2) == 0 { 0 } else { r(70 + k, 40) as i8 - 20 };
            let e = &mut b.fair.ses[se.ix()];
            (e.weight, e.inv_weight) = crate::fair::weight::task_weight(nice, false);
            if k == 0 && r(1, 2) == 0 {
                b.fair.restore_curr(se);
            } else {
                b.fair.restore_queued(se);
            }
        }
        let q = &b.fair.cfs[0];
        let all: Vec<SeId> = (0..n as usize).map(SeId::from_ix).collect();
        let e = |s: SeId| &b.fair.ses[s.ix()];
        let w: i128 = all.iter().map(|s| e(*s).load() as i128).sum();
        let s: i128 = all.iter().map(|s| e(*s).vruntime.0 as i128 * e(*s).load() as i128).sum();
        let eligible = |x: SeId| s >= e(x).vruntime.0 as i128 * w;
        // The running entity loses ties: it comes last.
        let mut order: Vec<SeId> = all.iter().copied().filter(|s| *s != q.curr).collect();
        order.extend(all.iter().copied().filter(|s| *s == q.curr));
        let naive = order.into_iter().filter(|s| eligible(*s)).min_by_key(|s| e(*s).deadline.0);
        assert_eq!(Some(b.fair.pick_eevdf(&b.release, CfsId(0), false).0), naive, "queue {i}");
        for x in all {
            assert_eq!(b.fair.entity_eligible(CfsId(0), x), eligible(x));
        }
        assert_eq!(b.fair.mean_vruntime(CfsId(0)).0 as i128, s.div_euclid(w));
    }
}

#[test]
fn the_leftmost_is_the_least() {
    let noise = Noise::new(4);
    for i in 0..2000 {
        let r = |what: u64, n: u64| noise.below(Stream::Test, what, i, n);
        let mut b = Board::new(sample::v6_1(), 8);
        let runs = r(0, 2) == 0;
        let n = 1 + r(1, 12);
        for k in 0..n {
            let v = r(10 + k, 30) * MS;
            let _ = if k == 0 && runs { b.runs(v) } else { b.waits(v) };
        }
        // Least vruntime; in a tie the one that waits, and of those the first.
        let key =
            |s: &SeId| (b.fair.ses[s.ix()].vruntime.0, u32::from(*s == b.fair.cfs[0].curr), s.0);
        let naive = (0..n as usize).map(SeId::from_ix).min_by_key(key);
        assert_eq!(Some(b.fair.decide_pick_cfs(&b.release, CfsId(0)).0), naive);
    }
}
