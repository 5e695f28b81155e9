//! The push by a stopper: when there is one, what it takes, and what is counted.

use super::*;

/// Cores {0,1} {2,3}; tasks on CPU 2, where the stopper runs for CPU 0. The tasks' ids, and the
/// slot of the domain that holds both.
fn lab(tasks: usize) -> (Lab, Vec<TaskId>, usize) {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    let ids = lab.tasks(2, tasks);
    // The stopper counts, and the first task does not run any more.
    lab.sh.loads[2].nr_running += 1;
    lab.sh.rqs[2].curr = TaskId(2);
    (lab.sh.rqs[2].active_balance, lab.sh.rqs[2].push_cpu) = (true, Cpu(0));
    let mc = lab.slot(0, 1);
    (lab, ids, mc)
}

fn push(lab: &mut Lab) -> Option<TaskId> {
    lab.at(2, |b, f, cx| b.active_balance(f, cx, Cpu(2)))
}

#[test]
fn a_push_must_be_asked_for_and_leave_something() {
    let (mut lab, _, mc) = lab(2);
    lab.sh.rqs[2].active_balance = false;
    assert_eq!(push(&mut lab), None);
    // Asked for, but all tasks are gone: there is only the stopper.
    lab.sh.loads[2].nr_running = 1;
    lab.sh.rqs[2].active_balance = true;
    assert_eq!(push(&mut lab), None);
    assert!(!lab.sh.rq(Cpu(2)).active_balance);
    assert_eq!(lab.balancer.stats()[mc].alb_count, 0);
}

/// The task ran until just now: no reason to leave it.
#[test]
fn a_hot_task_is_pushed_from_the_tail() {
    let (mut lab, ids, mc) = lab(2);
    ids.iter().for_each(|p| lab.ran(*p, Ns(1)));
    // A pass of CPU 2 over another domain, and what it left.
    lab.newidle(2);
    lab.balancer.moved.clear();
    lab.sh.rqs[2].active_balance = true;
    lab.balancer.state_mut(mc).nr_balance_failed = 4;
    assert_eq!(push(&mut lab), Some(ids[0]));
    assert_eq!(lab.moved(), [format!("{} 2→0 active balance, MC", ids[0])]);
    let stats = lab.balancer.stats()[mc];
    assert_eq!((stats.alb_count, stats.alb_pushed, stats.alb_failed), (1, 1, 0));
    assert_eq!(stats.lb[IdleType::Idle as usize].gained, 1);
    assert_eq!(lab.balancer.state(mc).nr_balance_failed, 0);
}

#[test]
fn a_push_without_a_task_that_may_go_has_failed() {
    let (mut lab, ids, mc) = lab(2);
    ids.iter().for_each(|p| lab.pin(*p, &[2, 3]));
    lab.balancer.state_mut(mc).nr_balance_failed = 4;
    assert_eq!(push(&mut lab), None);
    let stats = lab.balancer.stats()[mc];
    assert_eq!((stats.alb_count, stats.alb_pushed, stats.alb_failed), (1, 0, 1));
    assert_eq!(lab.balancer.state(mc).nr_balance_failed, 4);
    // Not even a hint for a pass: another CPU of the group could take them.
    assert!(lab.balancer.runs[2].env.new_dst_cpu.is_none());
}

/// `load_balance` keeps interrupts off from the source's lock to the destination's, if it has taken
/// anything off.
#[test]
fn tasks_between_two_queues_wait_for_no_interrupt() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 3);
    let mut steps = vec![lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Newidle))];
    while steps.last() != Some(&BalanceStep::Done) {
        steps.push(lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0))));
    }
    let [from, to] = [Cpu(2), Cpu(0)];
    let expected = [
        BalanceStep::Lock(from),
        BalanceStep::HandOver(from),
        BalanceStep::Lock(to),
        BalanceStep::Unlock(to),
        BalanceStep::Done,
    ];
    assert_eq!(steps, expected);
}
