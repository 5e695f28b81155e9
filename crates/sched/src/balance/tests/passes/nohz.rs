//! Balancing on behalf of CPUs without a tick: who is kicked, when, and for what.

use super::*;
use crate::sample::{v5_7, v6_5};
use crate::scheduler::TickWork;

fn tick(lab: &mut Lab, cpu: u16) -> TickWork {
    lab.at(cpu, |b, _, cx| b.tick(cx, Cpu(cpu)))
}
fn stop_tick(lab: &mut Lab, cpu: u16) {
    lab.at(cpu, |b, _, cx| b.tick_stopped(cx, Cpu(cpu), true));
}

/// CPU 2 has the load of 1,024 that sleepers left, with this sum.
fn sleepers_left(lab: &mut Lab, load_sum: u64) {
    let a = &mut lab.fair.cfs[2].avg;
    (a.load_avg, a.load_sum, a.last_update_time) = (1024, load_sum, lab.now);
    lab.fair.list_add_leaf_cfs_rq(crate::fair::CfsId(2));
}

#[test]
fn a_tick_raises_the_softirq_when_due() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.sh.rqs[0].next_balance = 251;
    assert!(!tick(&mut lab, 0).softirq);
    lab.sh.rqs[0].next_balance = 250;
    assert!(tick(&mut lab, 0).softirq);
}

#[test]
fn tickless_cpus_leave_the_mask_at_a_busy_tick() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let busy = |lab: &Lab| lab.sh.domains.shared_of(Cpu(0)).nr_busy_cpus;
    assert_eq!(busy(&lab), 4);
    stop_tick(&mut lab, 1);
    stop_tick(&mut lab, 1);
    assert_eq!((busy(&lab), lab.sh.nohz_idle.to_string().as_str()), (3, "1"));
    lab.at(1, |b, _, cx| b.tick_stopped(cx, Cpu(1), false));
    tick(&mut lab, 1);
    assert_eq!(busy(&lab), 3);
    lab.tasks(1, 1);
    tick(&mut lab, 1);
    assert_eq!((busy(&lab), lab.sh.nohz_idle.is_empty()), (4, true));
}

#[test]
fn two_tasks_kick_the_first_idle_cpu() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 2);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    stop_tick(&mut lab, 2);
    stop_tick(&mut lab, 3);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(2)));
    // It has been kicked already; and the next kick comes a jiffy later at the earliest.
    lab.now += Ns::from_ms(4);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    // It balances: CPU 3 first, itself last.
    let steps = lab.balance(2, BalanceKind::Nohz);
    assert_eq!(steps, "lock 0, unlock 0, lock 3, unlock 3, done 1");
    assert_eq!(lab.moved()[0].split(' ').nth(1), Some("0→3"));
}

#[test]
fn a_second_busy_cpu_of_the_cache_kicks_too() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    stop_tick(&mut lab, 1);
    stop_tick(&mut lab, 2);
    // 0 and 3 still have their ticks.
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    assert_eq!(lab.balance(1, BalanceKind::Nohz), "done 0");
    // Nothing but blocked averages once 3 stops as well, and those only after 32 ms.
    stop_tick(&mut lab, 3);
    lab.now += Ns::from_ms(4);
    tick(&mut lab, 0);
    lab.balance(1, BalanceKind::Nohz);
    lab.now += Ns::from_ms(4);
    lab.balancer.tables.nohz = crate::balance::nohz::Global::new(4);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
}

#[test]
fn a_kicked_cpu_with_work_does_nothing() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 3);
    stop_tick(&mut lab, 1);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    (lab.sh.rqs[1].need_resched, lab.sh.loads[1].nr_running) = (true, 1);
    assert_eq!(lab.balance(1, BalanceKind::Nohz), "done 0");
    assert_eq!(lab.lb(1, 0, IdleType::Idle).count, 0);
}

/// A CPU that polls in idle learns of the kick by being told to reschedule. That alone keeps it
/// from balancing up to 6.12, and no longer then.
#[test]
pub(crate) fn a_kick_of_a_polling_cpu_is_lost_before_2025() {
    for (release, passes_of_1) in [(v6_5(), 0), (v6_1(), 3)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..release.clone() }, 1, 4, 1, 0);
        lab.tasks(0, 2);
        (1..4).for_each(|c| stop_tick(&mut lab, c));
        assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
        lab.sh.rqs[1].need_resched = true;
        assert_eq!(passes(&mut lab), passes_of_1, "{}", release.name);
    }
}

/// CPU 0 runs `tasks` tasks, all others have stopped their ticks, and the tick of 0 kicks 1.
fn alone(tasks: usize) -> Lab {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, tasks);
    (1..4).for_each(|c| stop_tick(&mut lab, c));
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    lab
}

/// What CPU 1, kicked, has done: passes for all tickless CPUs.
fn passes(lab: &mut Lab) -> u64 {
    let count = |lab: &Lab| (1..4).map(|c| lab.lb(c, 0, IdleType::Idle).count).sum::<u64>();
    let before = count(lab);
    lab.balance(1, BalanceKind::Nohz);
    count(lab) - before
}

/// The only busy CPU of its cache asks for balancing only if it has two tasks.
#[test]
fn a_single_task_alone_asks_for_no_balancing() {
    assert_eq!(passes(&mut alone(1)), 0);
    let mut lab = alone(2);
    assert_eq!(passes(&mut lab), 3);
    assert!(lab.moved()[0].ends_with(" 0→2 nohz idle balance, MC"));
    // From here on the time of CPU 2 is the task's: its exit from idle, too.
    assert!(lab.sh.rqs[2].skip_clock_update && !lab.sh.rqs[1].skip_clock_update);
    // A second CPU with its tick makes up for the second task.
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    (1..3).for_each(|c| stop_tick(&mut lab, c));
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    assert_eq!(passes(&mut lab), 2);
}

/// Averages are brought up to date 32 ms (8 jiffies) after the last time at the earliest, and only
/// if a CPU has stopped its tick since; one more without a tick is noted at once.
#[test]
fn averages_are_looked_after_every_32_ms() {
    let mut lab = alone(1);
    lab.balance(1, BalanceKind::Nohz);
    let tick_at = |lab: &mut Lab, jiffy: u64| {
        lab.now = Ns::from_ms(4 * jiffy);
        tick(lab, 0).kick_ilb
    };
    assert_eq!(tick_at(&mut lab, 251), None);
    assert_eq!(tick_at(&mut lab, 259), None);
    // It was up for a moment.
    stop_tick(&mut lab, 1);
    assert_eq!(tick_at(&mut lab, 251), None);
    assert_eq!(tick_at(&mut lab, 258), None);
    assert_eq!(tick_at(&mut lab, 259), Some(Cpu(1)));
    assert_eq!(passes(&mut lab), 0);
    // CPU 3 has a task for a while: when it stops its tick again, that is noted.
    lab.tasks(3, 1);
    tick(&mut lab, 3);
    lab.balance(1, BalanceKind::Nohz);
    lab.sh.loads[3].nr_running = 0;
    lab.sh.rqs[3].curr = TaskId(3);
    stop_tick(&mut lab, 3);
    assert_eq!(tick_at(&mut lab, 260), Some(Cpu(1)));
}

/// What sleeping tasks left on CPU 2 has not decayed yet: it is looked after again.
#[test]
fn blocked_load_keeps_averages_looked_after() {
    let mut lab = alone(1);
    sleepers_left(&mut lab, 1024 * 47742);
    lab.balance(1, BalanceKind::Nohz);
    lab.now = Ns::from_ms(4 * 258);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    lab.now = Ns::from_ms(4 * 259);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
}

/// A CPU whose averages are down to nothing is not looked after again until it stops its tick once
/// more, and none twice in a jiffy.
#[test]
fn averages_are_looked_after_once_a_jiffy_and_while_there_are_any() {
    let mut lab = alone(1);
    let pass = |lab: &mut Lab| {
        lab.balance(1, BalanceKind::Nohz);
        let rq = lab.sh.rq(Cpu(2));
        (rq.has_blocked_load, rq.last_blocked_update)
    };
    sleepers_left(&mut lab, 1024 * 47742);
    let kick = |lab: &mut Lab, ms| {
        lab.now = Ns::from_ms(ms);
        assert_eq!(tick(lab, 0).kick_ilb, Some(Cpu(1)), "{ms}");
    };
    let first = pass(&mut lab);
    assert_eq!(first, (true, lab.at(0, |_, _, cx| cx.jiffies())));
    // Decayed: the last visit finds nothing, and later ones do not look.
    kick(&mut lab, 4_000);
    assert_eq!(pass(&mut lab), (false, 1_000));
    stop_tick(&mut lab, 3);
    kick(&mut lab, 8_000);
    assert_eq!(pass(&mut lab), (false, 1_000));
    stop_tick(&mut lab, 2);
    kick(&mut lab, 12_000);
    assert_eq!(pass(&mut lab), (false, 3_000));
}

/// CPU 2 is tickless with the load of a sleeper, 1,024, half of which goes in 32 ms. CPU 0 goes
/// idle: for at least 500 us, so it sees to that; again only 32 ms later, and if some is left.
#[test]
fn a_newly_idle_cpu_lets_others_decay() {
    let after = |avg_idle: u64, again: u64, overload: bool| {
        let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
        stop_tick(&mut lab, 2);
        sleepers_left(&mut lab, 1024 * 46718);
        lab.sh.rqs[0].avg_idle = Ns(avg_idle);
        for ms in [32, again] {
            lab.now += Ns(ms << 20);
            lab.sh.domains.overload = overload;
            assert_eq!(lab.newidle(0), "done 0");
        }
        let searches = lab.lb(0, 0, IdleType::Newidle).count;
        assert_eq!(searches, if overload { 2 } else { 0 });
        lab.sh.loads[2].load_avg
    };
    assert_eq!(after(499_999, 0, false), 0, "not looked at");
    for overload in [false, true] {
        assert_eq!(after(500_000, 0, overload), 511, "after a search, too");
        assert_eq!(after(500_000, 26, overload), 511, "too early");
        assert_eq!(after(500_000, 34, overload), 245);
    }
}

/// Doing so, it finds out when the first of them wants to balance: no kick before.
#[test]
fn a_newly_idle_cpu_finds_out_when_the_next_visit_is_due() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    (1..3).for_each(|c| stop_tick(&mut lab, c));
    sleepers_left(&mut lab, 1024 * 47742);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    lab.balance(1, BalanceKind::Nohz);
    lab.tasks(0, 1);
    (1..3).for_each(|c| lab.sh.rqs[c].next_balance = 263 + c as u64);
    lab.sh.rqs[3].avg_idle = Ns::from_ms(1);
    lab.now = Ns::from_ms(4 * 260);
    lab.newidle(3);
    let kicked = |lab: &mut Lab, jiffy: u64| {
        lab.now = Ns::from_ms(4 * jiffy);
        tick(lab, 0).kick_ilb.is_some()
    };
    assert_eq!([261, 263, 264].map(|jiffy| kicked(&mut lab, jiffy)), [false, false, true]);
}

/// At most one balancing a jiffy is asked for. CPU 1 has no time for the first.
#[test]
fn a_balancing_is_asked_for_once_a_jiffy() {
    let mut lab = alone(3);
    lab.sh.loads[1].nr_running = 1;
    assert_eq!(passes(&mut lab), 0);
    lab.sh.loads[1].nr_running = 0;
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)), "averages");
    assert_eq!(passes(&mut lab), 0);
    lab.now += Ns::from_ms(4);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    assert_eq!(passes(&mut lab), 3);
}

/// While a kick is on its way another adds what it asks for, and takes nothing away.
#[test]
fn kicks_add_up() {
    let mut lab = alone(1);
    lab.tasks(0, 1);
    lab.set_loads(0, 2);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    assert_eq!(passes(&mut lab), 3, "asked for by the second");
    let mut lab = alone(2);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    assert_eq!(passes(&mut lab), 3, "asked for by the first");
}

/// CPU 1 has got a task, but no tick yet: 2 is kicked. A kick that comes too late does nothing.
#[test]
fn only_an_idle_cpu_balances_for_others() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 2);
    (1..4).for_each(|c| stop_tick(&mut lab, c));
    lab.tasks(1, 1);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(2)));
    lab.tasks(2, 1);
    assert_eq!(lab.balance(2, BalanceKind::Nohz), "done 0");
    // Nobody has kicked this one.
    assert_eq!(passes(&mut lab), 0);
    assert_eq!([2, 3].map(|c| lab.lb(c, 0, IdleType::Idle).count), [0, 0]);
}

/// A CPU that is tickless no longer does not count: as if nobody were, no balancing is asked for,
/// and the next one is not put off.
#[test]
fn without_tickless_cpus_nobody_is_kicked() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 2);
    stop_tick(&mut lab, 1);
    tick(&mut lab, 1);
    lab.tasks(1, 1);
    tick(&mut lab, 1);
    assert_eq!(tick(&mut lab, 0).kick_ilb, None);
    stop_tick(&mut lab, 2);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(2)));
    lab.balance(2, BalanceKind::Nohz);
    assert_eq!(lab.moved().len(), 1);
}

/// CPU 1, kicked, finds that no tickless CPU is due before `due`. Whether two tasks on 0 ask for
/// balancing at each of these jiffies.
fn asks(due: u64, jiffies: [u64; 3]) -> [bool; 3] {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 2);
    (1..4).for_each(|c| stop_tick(&mut lab, c));
    lab.sh.rqs[1..].iter_mut().for_each(|rq| rq.next_balance = due);
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    assert_eq!(passes(&mut lab), 0);
    jiffies.map(|jiffy| {
        lab.now = Ns::from_ms(4 * jiffy);
        let kicked = tick(&mut lab, 0).kick_ilb.is_some();
        lab.sh.rqs[1].need_resched = true;
        lab.balance(1, BalanceKind::Nohz);
        lab.sh.rqs[1].need_resched = false;
        kicked
    })
}

#[test]
fn the_next_kick_waits_for_the_first_cpu_that_is_due() {
    assert_eq!(asks(260, [255, 259, 260]), [false, false, true]);
    assert_eq!(asks(10_000, [600, 9_999, 10_000]), [false, false, true]);
    // Nobody within a minute: nothing is known, the kick comes at the next tick.
    assert_eq!(asks(u64::MAX, [250, 251, 252]), [false, true, true]);
}

/// Amid its passes CPU 1 gets work: averages and the note stay to be looked after, at once.
#[test]
fn an_aborted_visit_is_made_up_for() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 10);
    lab.tasks(0, 2);
    (1..4).for_each(|c| stop_tick(&mut lab, c));
    assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
    let step = lab.at(1, |b, f, cx| b.begin(f, cx, Cpu(1), BalanceKind::Nohz));
    assert_eq!(step, BalanceStep::Lock(Cpu(0)));
    (lab.sh.rqs[1].need_resched, lab.sh.loads[1].nr_running) = (true, 1);
    while lab.balancer.is_active(Cpu(1)) {
        lab.at(1, |b, f, cx| b.resume(f, cx, Cpu(1)));
    }
    (lab.sh.rqs[1].need_resched, lab.sh.loads[1].nr_running) = (false, 0);
    // One task is left, which asks for nothing itself.
    lab.sh.loads[0].nr_running = 1;
    let tick_at = |lab: &mut Lab, jiffy: u64| {
        lab.now = Ns::from_ms(4 * jiffy);
        tick(lab, 0).kick_ilb
    };
    assert_eq!(tick_at(&mut lab, 251), Some(Cpu(1)));
    assert_eq!(passes(&mut lab), 0);
    // That was a visit for the averages: the next comes 8 jiffies later.
    stop_tick(&mut lab, 1);
    assert_eq!([tick_at(&mut lab, 259), tick_at(&mut lab, 260)], [None, Some(Cpu(1))]);
}

/// CPU 1 has been idle again since it was passed over, and 2 was kicked. In 5.x the turns are 1's,
/// 3's and that of 2 itself, which comes though it is not due: the waiting task goes to 1. Later
/// the turn of 3 comes first.
#[test]
pub(crate) fn in_5_x_the_kicked_cpu_comes_apart() {
    for (k, to, own) in [(v5_7(), 1, 1), (v6_1(), 3, 0)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        lab.tasks(0, 2);
        (1..4).for_each(|c| stop_tick(&mut lab, c));
        lab.sh.loads[1].nr_running = 1;
        assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(2)));
        lab.sh.loads[1].nr_running = 0;
        lab.sh.rqs[2].next_balance = 10_000;
        lab.balance(2, BalanceKind::Nohz);
        assert_eq!(lab.moved()[0].split(' ').nth(1), Some(&*format!("0→{to}")));
        assert_eq!(lab.lb(2, 0, IdleType::Idle).count, own);
    }
}

/// CPU 1 is kicked; it is due at 255, 2 and 3 are at 260. In 5.x its own time does not count.
#[test]
fn in_5_x_the_next_kick_is_due_with_the_others() {
    for (k, early) in [(v5_7(), false), (v6_1(), true)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        lab.tasks(0, 2);
        (1..4).for_each(|c| stop_tick(&mut lab, c));
        for c in 1..4 {
            lab.sh.rqs[c].next_balance = if c == 1 { 255 } else { 260 };
            // The domain itself is due a jiffy later.
            lab.state(c as u16, 0).last_balance = 250;
        }
        assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
        lab.balance(1, BalanceKind::Nohz);
        let at = |lab: &mut Lab, jiffy: u64| {
            lab.now = Ns::from_ms(4 * jiffy);
            tick(lab, 0).kick_ilb.is_some()
        };
        assert_eq!(at(&mut lab, 256), early);
        assert!(early || at(&mut lab, 260));
    }
}

/// A CPU that stops its tick is noted at the next tick of a busy one; not in 5.x.
#[test]
fn in_5_x_nobody_is_kicked_for_a_stopped_tick() {
    for (k, kicked) in [(v5_7(), None), (v6_1(), Some(Cpu(1)))] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        lab.tasks(0, 1);
        (1..3).for_each(|c| stop_tick(&mut lab, c));
        assert_eq!(tick(&mut lab, 0).kick_ilb, Some(Cpu(1)));
        lab.sh.rqs[1..3].iter_mut().for_each(|rq| rq.next_balance = 10_000);
        lab.balance(1, BalanceKind::Nohz);
        stop_tick(&mut lab, 3);
        lab.now += Ns::from_ms(4);
        assert_eq!(tick(&mut lab, 0).kick_ilb, kicked);
    }
}

/// CPU 2 was looked after; 27 ms later, before its time has come again, 0 searches the domain. 5.x
/// ages what it looks at.
#[test]
pub(crate) fn in_5_x_a_newidle_pass_ages_tickless_cpus() {
    for (k, ages) in [(v5_7(), true), (v6_1(), false)] {
        let mut lab = Lab::new(&Release { ni_random: false, ..k }, 1, 4, 1, 0);
        stop_tick(&mut lab, 2);
        sleepers_left(&mut lab, 1024 * 46718);
        lab.sh.rqs[0].avg_idle = Ns(500_000);
        for ms in [32, 26] {
            lab.now += Ns(ms << 20);
            lab.sh.domains.overload = true;
            assert_eq!(lab.newidle(0), "done 0");
        }
        assert_eq!(lab.sh.loads[2].load_avg < 511, ages);
    }
}
