use super::super::known::explore;
use super::*;
use crate::shadow::tests::{cores, release};
use vruntime_sched::balance::IdleType;
use vruntime_sched::scheduler::BalanceKind;

const MS: u64 = 1_000_000;

/// Two CPUs of one cache; nothing runs on CPU 0, `nr` tasks are on CPU 1.
fn two_cpus(nr: i64) -> (Ground, Moment) {
    two_cpus_under("v6.1", nr)
}

fn two_cpus_under(kernel: &str, nr: i64) -> (Ground, Moment) {
    let topo = cores(2, 2);
    let domains = Domains::build(&topo, &release(kernel));
    let cpu = |n: i64| CpuThen {
        counts: vec![Count { all: n, fair: n, hidden: 0 }],
        idle: Some(n == 0),
        load: (1024 * n as u64, 1024 * n as u64),
        util: (1024 * n.min(1) as u64, 1024 * n.min(1) as u64),
        runnable: (1024 * n as u64, 1024 * n as u64),
        ..CpuThen::default()
    };
    let on = Cpu(0);
    let slot = domains.slots(on).start;
    let pass = LonePass { kind: BalanceKind::Periodic, on, slot, idle: IdleType::Idle };
    let moment = Moment {
        pass,
        cpus: vec![cpu(0), cpu(nr)],
        source: domains.at(slot).group_of(Cpu(1)),
        marked: vec![],
        failed: vec![0],
        source_only: false,
    };
    (Ground::new(&topo, &domains, &release(kernel)), moment)
}

/// A task of nice 0 that last ran this long ago.
fn task(pid: i64, age: u64) -> TaskThen {
    TaskThen {
        pid,
        policy: 0,
        weight: 1 << 20,
        vruntime: (0, 0),
        slice: 3 * MS,
        delayed: false,
        curr: false,
        buddy: Some(false),
        bound: false,
        allowed: [(Cpu(0), true), (Cpu(1), true)].into(),
        age: (age, age),
        h_load: (1024, 1024),
        util: (1024, 1024),
    }
}

/// All ends of the pass, and what tips it.
fn ends(nr: i64, tasks: Vec<TaskThen>, change: impl Fn(&mut Moment)) -> (Vec<Pulled>, String) {
    ends_of(two_cpus(nr), tasks, change)
}

fn ends_of(
    (mut ground, mut m): (Ground, Moment),
    tasks: Vec<TaskThen>,
    change: impl Fn(&mut Moment),
) -> (Vec<Pulled>, String) {
    change(&mut m);
    let queue = QueueThen { tasks, placed: true };
    let o = explore(|k| ground.pull(k, &m, |_| Ok(queue.clone())), |a, b| a == b);
    let tipping: Vec<&str> = o.tipping.into_iter().collect();
    (o.all.into_iter().map(|x| x.0).collect(), tipping.join(", "))
}

/// The same pass 200 times: what a delayed task brings along does not stay on the ground.
#[test]
fn a_pass_leaves_no_averages_behind() {
    let (mut ground, m) = two_cpus(3);
    let (delayed, curr) = (true, true);
    let tasks = vec![
        TaskThen { delayed, ..task(2, 9 * MS) },
        task(3, 5 * MS),
        TaskThen { curr, ..task(1, 0) },
    ];
    let queue = QueueThen { tasks, placed: true };
    let mut pull = || ground.pull(&mut Asker::default(), &m, |_| Ok(queue.clone()));
    let first = pull();
    assert_eq!(first.tasks, [2]);
    assert!((0..200).all(|_| pull() == first));
}

/// 1 runs on CPU 1, and 2 and 3 wait, 2 longer: three tasks against none, so that one moves,
/// the one at the tail.
#[test]
fn an_idle_cpu_takes_the_task_that_has_waited_longest() {
    let queue = || vec![task(2, 9 * MS), task(3, 5 * MS), TaskThen { curr: true, ..task(1, 0) }];
    let (all, tipping) = ends(3, queue(), |_| {});
    assert_eq!((all.len(), &all[0].tasks[..], tipping.as_str()), (1, &[2][..], ""));
    assert_eq!((all[0].src, all[0].cause), (Some(Cpu(1)), Some("periodic balance while idle, MC")));
    // 0.1 ms ago is hot; a task that may use one CPU only stays as well.
    let mut hot = queue();
    hot[0] = task(2, MS / 10);
    assert_eq!(ends(3, hot, |_| {}).0[0].tasks, [3]);
    let mut bound = queue();
    bound[0].bound = true;
    assert_eq!(ends(3, bound, |_| {}).0[0].tasks, [3]);
}

/// 1 runs on CPU 1, and 2, 3 and 4 wait; another one runs on CPU 0, so that marks keep warm.
#[test]
fn who_is_marked_is_hot() {
    let taken = |buddy| {
        let curr = TaskThen { curr: true, ..task(1, 0) };
        let marked = TaskThen { buddy, ..task(2, 9 * MS) };
        let queue = vec![marked, task(3, 8 * MS), task(4, 7 * MS), curr];
        let (all, tipping) = ends(4, queue, |m| {
            m.cpus[0] = two_cpus(1).1.cpus.swap_remove(1);
            m.pass.idle = IdleType::NotIdle;
        });
        (all.into_iter().map(|p| p.tasks[0]).collect::<Vec<_>>(), tipping)
    };
    assert_eq!(taken(Some(false)), (vec![2], String::new()));
    assert_eq!(taken(Some(true)), (vec![3], String::new()));
    assert_eq!(taken(None), (vec![2, 3], BUDDY.to_owned()));
}

/// Two tasks or one on CPU 1: with one there is nothing to take.
#[test]
fn what_is_not_known_and_matters_is_named() {
    let queue = || vec![task(2, 9 * MS), TaskThen { curr: true, ..task(1, 0) }];
    let (all, tipping) = ends(2, queue(), |m| {
        m.cpus[1].counts.push(Count { all: 1, fair: 1, hidden: 0 });
    });
    assert_eq!((all.len(), tipping.as_str()), (2, COUNT));
    assert_eq!((&all[0].tasks[..], all[1].end), (&[2][..], LoneEnd::NoGroup));
    let mut open = queue();
    open[0].age = (0, MS);
    assert_eq!(ends(2, open, |_| {}).1, HOT);
}

/// Two tasks on CPU 1. One that was in delayed dequeue when the numbers were read did not count in
/// 6.18: there was one to run, and nothing to take.
#[test]
fn who_was_delayed_when_the_numbers_were_read_may_not_have_counted() {
    let tipping = |kernel| {
        let queue = vec![task(2, 9 * MS), TaskThen { curr: true, ..task(1, 0) }];
        ends_of(two_cpus_under(kernel, 2), queue, |m| {
            let then = &mut m.cpus[1];
            (then.util, then.runnable, then.were_delayed) = ((100, 100), (100, 100), vec![1]);
        })
        .1
    };
    assert_eq!([tipping("v6.18"), tipping("v6.12")], [DELAYED.to_owned(), String::new()]);
}

/// Beside a real-time task one waits that uses half of the CPU: the group is overloaded if the
/// real-time task has left that CPU little, and then only it is pulled from.
#[test]
fn what_real_time_tasks_have_left_matters_where_it_tells_the_groups_type() {
    let missing = |least: u64, util: u64| {
        let (all, _) = ends(2, vec![task(2, 9 * MS)], |m| {
            let then = &mut m.cpus[1];
            then.counts[0].fair = 1;
            (then.util, then.runnable, then.used) = ((util, util), (500, 500), 1024 - least);
        });
        all[0].missing
    };
    assert_eq!(missing(500, 465), Some(CAPACITY));
    // 1.17 times 100 fit into 500; 1.17 times 1,000 into neither, but what the load of an
    // overloaded group is compared as hangs on its capacity.
    assert_eq!([missing(500, 100), missing(500, 1_000)], [None, Some(CAPACITY)]);
}

/// A busy CPU beside one with three tasks. If it is fully busy and has little load it takes one; if
/// it has time to spare it takes nothing, as it runs, nor if it has more load than is usual. Its
/// utilisation and its load need not be at the same ends.
#[test]
fn load_and_utilisation_may_be_at_opposite_ends() {
    let queue = || {
        let h_load = (1_000, 1_000);
        let waits = |pid| TaskThen { h_load, ..task(pid, 9 * MS) };
        vec![waits(2), waits(3), TaskThen { curr: true, ..waits(1) }]
    };
    let moved = |load, util| {
        let (all, tipping) = ends_of(two_cpus_under("v6.12", 3), queue(), |m| {
            m.pass.idle = IdleType::NotIdle;
            let own = &mut m.cpus[0];
            own.counts = vec![Count { all: 1, fair: 1, hidden: 0 }];
            (own.idle, own.load, own.util, own.runnable) = (Some(false), load, util, util);
        });
        (all.iter().map(|x| x.tasks.len()).collect::<Vec<_>>(), tipping)
    };
    let at = |x| (x, x);
    assert_eq!(moved(at(500), at(1_000)).0, [1]);
    assert_eq!(moved(at(3_000), at(1_000)).0, [0]);
    assert_eq!(moved(at(500), at(200)).0, [0]);
    let (open, tipping) = moved((500, 3_000), (200, 1_000));
    assert!(open.contains(&0) && open.contains(&1), "{open:?}");
    assert_eq!(tipping, NUMBERS);
}

/// Six CPUs in two caches; CPU 0 is about to go idle beside two busy ones, and of CPUs 3 to 5 the
/// first two have two tasks. If these three are overloaded, the one with more utilisation is
/// pulled from, which may be CPU 4, but only as far as the first three have time to spare: so
/// CPU 3 is low while CPU 4 is high and the other cache is low.
#[test]
fn a_queue_may_be_low_with_the_other_groups() {
    let topo = cores(6, 3);
    let domains = Domains::build(&topo, &release("v6.6"));
    let cpu = |n: i64| CpuThen {
        counts: vec![Count { all: n, fair: n, hidden: 0 }],
        idle: Some(false),
        load: (1024 * n as u64, 1024 * n as u64),
        util: (600, 1024),
        runnable: (600, 1024),
        ..CpuThen::default()
    };
    let on = Cpu(0);
    let slot = domains.slots(on).end - 1;
    let idle = IdleType::Newidle;
    let moment = Moment {
        pass: LonePass { kind: BalanceKind::Newidle, on, slot, idle },
        cpus: [0, 1, 1, 2, 2, 1].map(cpu).to_vec(),
        source: domains.at(slot).group_of(Cpu(3)),
        marked: vec![],
        failed: vec![0],
        source_only: false,
    };
    let ground = Ground::new(&topo, &domains, &release("v6.6"));
    let tasks = vec![task(2, 9 * MS), TaskThen { curr: true, ..task(1, 0) }];
    let (all, tipping) = ends_of((ground, moment), tasks, |_| {});
    for queue in [Cpu(3), Cpu(4)] {
        assert!(all.iter().any(|p| p.src == Some(queue)), "{queue}: {all:?}");
    }
    assert_eq!(tipping, NUMBERS);
}

/// A pass over a queue of three, then the stopper twice over a task that has to stay: what was
/// counted before does not stay on the ground.
#[test]
fn a_pass_leaves_no_counts_behind() {
    let (mut ground, m) = two_cpus(3);
    let queue = |n: i64| {
        let bound = |pid| TaskThen { bound: true, ..task(pid, 9 * MS) };
        Ok(QueueThen { tasks: (1..=n).map(bound).collect(), placed: true })
    };
    ground.pull(&mut Asker::default(), &m, |_| queue(3));
    let mut push = || ground.push(&mut Asker::default(), &m, Cpu(1), queue(1)).tasks.len();
    assert_eq!([push(), push()], [0, 0]);
}

/// The first of a queue runs, then the stopper pushes the first of another.
#[test]
fn a_stopper_knows_nothing_of_who_ran_before_it() {
    let (mut ground, m) = two_cpus(3);
    let queue =
        |curr| Ok(QueueThen { tasks: vec![TaskThen { curr, ..task(2, 9 * MS) }], placed: true });
    ground.pull(&mut Asker::default(), &m, |_| queue(true));
    assert_eq!(ground.push(&mut Asker::default(), &m, Cpu(1), queue(false)).tasks, [2]);
}

/// A stopper passes over what runs and what is bound; that a task is hot does not count.
#[test]
fn a_stopper_pushes_the_first_task_that_may_go() {
    let (mut ground, m) = two_cpus(3);
    let mut tasks = vec![task(2, 9 * MS), task(3, 0), TaskThen { curr: false, ..task(1, 0) }];
    tasks[0].bound = true;
    let queue = || Ok(QueueThen { tasks: tasks.clone(), placed: true });
    let o = explore(|k| ground.push(k, &m, Cpu(1), queue()), |a, b| a == b);
    assert_eq!((o.determined, &o.guess.tasks[..]), (true, &[3][..]));
}
