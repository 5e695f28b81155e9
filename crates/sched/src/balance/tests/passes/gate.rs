//! What keeps an idle CPU from pulling a waiting task, as checkers are told.

use super::{Lab, no_dice};
use vruntime_base::{Cpu, Ns, TaskId};

impl Lab {
    /// The gate between the idle `cpu` and `p`.
    fn gate(&self, cpu: u16, p: TaskId) -> String {
        let jiffies = self.now.0 / self.sh.release.tick_ns();
        let (b, topo) = (&self.balancer, &self.machine.topo);
        b.gate(&self.fair, &self.sh, topo, jiffies, Cpu(cpu), p).to_string()
    }
}

#[test]
fn the_first_refusal_of_a_pass_is_the_gate() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 3);
    // One of three: half the difference. The last pass is long over.
    assert_eq!(lab.gate(0, ids[1]), "CPU 0, MC: a pass in 0 jiffies, which is to move 1 tasks");
    lab.ran(ids[1], Ns(100_000));
    let hot = "CPU 0, MC: can_migrate_task, no (nr_balance_failed 0, cache_nice_tries 1)";
    assert_eq!(lab.gate(0, ids[1]), hot);
    lab.state(0, 0).nr_balance_failed = 2;
    lab.state(0, 0).last_balance = 249;
    // A pass every 4 ms, which is a tick: the next at 250, which is now.
    assert_eq!(lab.gate(0, ids[1]), "CPU 0, MC: a pass in 0 jiffies, which is to move 1 tasks");
    lab.state(0, 0).balance_interval = 8;
    assert_eq!(lab.gate(0, ids[1]), "CPU 0, MC: a pass in 1 jiffies, which is to move 1 tasks");
}

#[test]
fn other_queues_and_groups_may_come_first() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let waits = lab.tasks(1, 2)[1];
    lab.tasks(2, 3);
    // Queue 2 is longer.
    let gate = lab.gate(0, waits);
    let busier = "CPU 0, MC: find_busiest_queue, CPU 2 is pulled from";
    assert_eq!(gate, busier);
}

/// Cores of two threads: the first idle one of a core balances for it.
#[test]
fn another_cpu_of_the_group_may_be_the_one() {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    let waits = lab.tasks(2, 3)[1];
    assert_eq!(lab.gate(0, waits), "CPU 0, MC: a pass in 0 jiffies, which is to move 1 tasks");
    assert_eq!(lab.gate(1, waits), "CPU 1, MC: should_we_balance, another CPU of its group does");
}

/// Cores of two threads. Two tasks wait and run on one thread of the second core, one runs in the
/// first: a task more is no reason to pull, and its own sibling is the one to take it.
#[test]
fn a_difference_of_one_is_balanced() {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    lab.tasks(1, 1);
    let waits = lab.tasks(2, 2)[1];
    let gate = lab.gate(0, waits);
    let text = "CPU 0, MC: find_busiest_group, balanced \
                (local has spare, 1 running, 1 of them fair, \
                weight 2; busiest has spare, 2 running, 2 of them fair, weight 2)";
    assert_eq!(gate, text);
    assert_eq!(lab.gate(3, waits), "CPU 3, SMT: a pass in 0 jiffies, which is to move 1 tasks");
}
