//! Whose time is it? The clock of a run queue around a wakeup that preempts.

use super::*;

/// A, past V, wakes B: from the wakeup on the clock stands until `schedule()`, so that what A still
/// does is B's time. A wakeup that leaves A alone changes nothing, nor one when A leaves anyway.
#[test]
fn schedule_leaves_the_clock_of_a_wakeup_that_preempts() {
    for release in [sample::v6_1(), sample::v6_12(), sample::v6_18()] {
        let awake = |ran: u64, blocks: bool| {
            let mut lab = Lab::new(release.clone(), "uma-8");
            let (a, b) = (lab.spawn(Cpu(0), 0, TgId(0)), lab.spawn(Cpu(0), 0, TgId(0)));
            let (a, b) = if lab.schedule(Cpu(0)) == a { (a, b) } else { (b, a) };
            lab.hook(Cpu(0), |s, cx| {
                s.dequeue_task(
                    cx,
                    Cpu(0),
                    b,
                    DequeueFlags { sleep: true, ..DequeueFlags::default() },
                )
            });
            lab.sh.tasks[b.ix()].on_rq = false;
            lab.sh.rqs[0].skip_clock_update = false;
            lab.pass(ran);
            lab.tick(Cpu(0));
            lab.sh.rqs[0].need_resched = blocks;
            lab.sh.tasks[a.ix()].on_rq = !blocks;
            lab.wake(b, Cpu(0));
            (lab.sh.rqs[0].need_resched, lab.sh.rqs[0].skip_clock_update)
        };
        assert_eq!(awake(20 * MS, false), (true, true), "{}", release.name);
        assert_eq!(awake(1, false), (false, false), "{}", release.name);
        assert_eq!(awake(20 * MS, true), (true, false), "{}", release.name);
    }
}

/// The idle task counts as queued.
#[test]
fn it_stands_for_the_idle_task_too() {
    let mut lab = Lab::new(sample::v6_12(), "uma-8");
    lab.spawn(Cpu(0), 0, TgId(0));
    assert!(lab.sh.rqs[0].need_resched && lab.sh.rqs[0].skip_clock_update);
}
