//! Whole balancings: what is locked, what moves, and when the next one comes.
//!
//! Every cost is 0 ns unless said otherwise. Tasks have nice 0; the first of a CPU runs, the last
//! has waited longest.

mod bounds;
mod clocks;
pub(crate) mod detach;
pub(crate) mod early;
mod gate;
pub(crate) mod idle;
pub(crate) mod nohz;
mod push;

use crate::balance::{Balancer, IdleType, LbStats, SdState};
use crate::cx::{Cx, Shared};
use crate::domains::SdFlags;
use crate::fair::{Fair, SeId};
use crate::release::Release;
use crate::sample::{machine, shared, sockets, task, v6_1, v6_12};
use crate::scheduler::{BalanceKind, BalanceStep, EnqueueFlags, Moved};
use vruntime_base::{Cause, Cpu, CpuMask, Ns, TaskId};
use vruntime_machine::{Arch, Machine, Regular, TopologySpec};

struct Lab {
    sh: Shared,
    machine: Machine,
    fair: Fair,
    balancer: Balancer,
    resched: Vec<(Cpu, &'static Cause)>,
    now: Ns,
}

/// Every cost is `ns`, but of lines that are read in turn each takes half of that.
fn machine_at(shape: Regular, ns: u32) -> Machine {
    let mut machine = machine(TopologySpec::Regular(shape), Arch::X86, ns);
    machine.costs.balance_scan = 500;
    machine
}

impl Lab {
    /// `llcs` caches of `cores` cores with `smt` threads; every cost is `ns`.
    fn new(k: &Release, llcs: u32, cores: u32, smt: u32, ns: u32) -> Lab {
        let machine = machine_at(sockets(1, llcs * cores, smt, cores), ns);
        let sh = shared(&machine.topo, k.clone());
        let n = sh.rqs.len();
        Lab {
            balancer: Balancer::new(&sh.domains, n),
            fair: Fair::new(n, k),
            machine,
            sh,
            resched: Vec::new(),
            now: Ns::from_ms(1000),
        }
    }

    /// Two nodes of `cores` cores with `smt` threads and a cache each; every cost is `ns`.
    fn numa(k: &Release, cores: u32, smt: u32, ns: u32) -> Lab {
        let mut lab = Lab::new(k, 1, 2 * cores, smt, ns);
        lab.machine = machine_at(sockets(2, cores, smt, cores), ns);
        lab.sh = shared(&lab.machine.topo, k.clone());
        lab.balancer = Balancer::new(&lab.sh.domains, lab.sh.rqs.len());
        lab
    }

    fn at<R>(&mut self, cpu: u16, f: impl FnOnce(&mut Balancer, &mut Fair, &mut Cx) -> R) -> R {
        let mut cx = Cx {
            now: self.now,
            cpu: Cpu(cpu),
            sh: &mut self.sh,
            machine: &mut self.machine,
            cost: Ns::ZERO,
            slowdown: 1024,
            resched: &mut self.resched,
        };
        let r = f(&mut self.balancer, &mut self.fair, &mut cx);
        self.now += cx.cost;
        r
    }

    /// Queues `n` tasks on `cpu`; the first becomes the running one. Ids ascend.
    fn tasks(&mut self, cpu: u16, n: usize) -> Vec<TaskId> {
        let c = Cpu(cpu);
        let mut ids = Vec::new();
        for i in 0..n {
            let p = TaskId::from_ix(self.sh.tasks.len());
            self.sh.tasks.push(crate::task::Task {
                cpu: c,
                on_rq: true,
                state: crate::task::TaskState::Running,
                ..task()
            });
            ids.push(p);
            let first = i == 0;
            self.sh.rqs[c.ix()].clock = self.now;
            self.at(cpu, |_, fair, cx| {
                fair.task_new_fair(cx, p, c);
                fair.task_fork_place_fair(cx, p);
                fair.enqueue_task_fair(
                    cx,
                    c,
                    p,
                    EnqueueFlags { initial: true, ..Default::default() },
                );
                if first {
                    fair.pick_next_task_fair(cx, c, SeId::NONE);
                    cx.sh.rqs[c.ix()].curr = p;
                }
            });
        }
        self.set_loads(cpu, n as u64);
        ids
    }

    /// What the balancer reads of a CPU with `n` saturated tasks.
    fn set_loads(&mut self, cpu: u16, n: u64) {
        let l = &mut self.sh.loads[cpu as usize];
        l.load_avg = 1024 * n;
        l.util_avg = if n > 0 { 1024 } else { 0 };
        l.util_est = 0;
        l.runnable_avg = 1024 * n as u32;
        let l = *l;
        let a = &mut self.fair.cfs[cpu as usize].avg;
        (a.load_avg, a.util_avg, a.runnable_avg) = (l.load_avg, l.util_avg, l.runnable_avg);
        a.last_update_time = self.now;
        self.sh.domains.overload |= n > 1;
    }

    /// Runs a balancing to its end: the steps as text.
    fn balance(&mut self, cpu: u16, kind: BalanceKind) -> String {
        let before = self.balancer.moved.len();
        let mut step = self.at(cpu, |b, fair, cx| b.begin(fair, cx, Cpu(cpu), kind));
        let mut text = String::new();
        loop {
            let word = match step {
                BalanceStep::Pass => "pass".into(),
                BalanceStep::Lock(c) => format!("lock {c}"),
                BalanceStep::Unlock(c) | BalanceStep::HandOver(c) => format!("unlock {c}"),
                BalanceStep::Stopper(c) => format!("stopper {c}"),
                BalanceStep::Done => format!("done {}", self.balancer.moved.len() - before),
            };
            text += &word;
            if step == BalanceStep::Done {
                assert!(!self.balancer.is_active(Cpu(cpu)));
                return text;
            }
            if let BalanceStep::Lock(c) = step {
                self.sh.rqs[c.ix()].clock = self.now;
            }
            text += ", ";
            step = self.at(cpu, |b, fair, cx| b.resume(fair, cx, Cpu(cpu)));
        }
    }

    fn newidle(&mut self, cpu: u16) -> String {
        self.balance(cpu, BalanceKind::Newidle)
    }
    fn periodic(&mut self, cpu: u16) -> String {
        self.at(cpu, |b, _, cx| b.tick(cx, Cpu(cpu)));
        self.balance(cpu, BalanceKind::Periodic)
    }

    /// Moves since the last call: `task from→to cause`.
    fn moved(&mut self) -> Vec<String> {
        let show = |m: Moved| format!("{} {}→{} {}", m.task, m.from, m.to, m.cause.name);
        self.balancer.moved.drain(..).map(show).collect()
    }

    fn pin(&mut self, p: TaskId, cpus: &[u16]) {
        let mask: CpuMask = cpus.iter().map(|c| Cpu(*c)).collect();
        self.sh.tasks[p.ix()].affinity = self.sh.affinities.intern(mask);
        self.sh.tasks[p.ix()].nr_cpus_allowed = cpus.len() as u16;
    }

    /// The task ran until `ago` before now.
    fn ran(&mut self, p: TaskId, ago: Ns) {
        let se = self.sh.tasks[p.ix()].se;
        self.fair.ses[se.ix()].exec_start = Ns(self.now.0 - ago.0);
    }

    fn nr(&self, cpu: u16) -> u32 {
        self.sh.loads[cpu as usize].nr_running
    }
    fn slot(&self, cpu: u16, level: usize) -> usize {
        self.sh.domains.slots(Cpu(cpu)).start + level
    }
    fn imbalanced(&self, slot: usize) -> Vec<bool> {
        let d = &self.sh.domains;
        d.at(slot).groups.iter().map(|g| d.imbalanced(g)).collect()
    }
    fn lb(&self, cpu: u16, level: usize, idle: IdleType) -> LbStats {
        self.balancer.stats()[self.slot(cpu, level)].lb[idle as usize]
    }
    fn state(&mut self, cpu: u16, level: usize) -> &mut SdState {
        let slot = self.slot(cpu, level);
        self.balancer.state_mut(slot)
    }
}

fn no_dice() -> Release {
    Release { ni_random: false, ..v6_1() }
}

#[test]
fn newidle_pulls_one_task_under_one_lock_at_a_time() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let ids = lab.tasks(2, 3);
    assert_eq!(lab.newidle(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    // The one at the tail of the list: the first that was queued and does not run.
    assert_eq!(lab.moved(), [format!("{} 2→0 newidle balance, MC", ids[1])]);
    let p = lab.sh.task(ids[1]);
    assert_eq!((p.cpu, p.wake_cpu), (Cpu(0), Cpu(0)));
    assert_eq!((lab.nr(0), lab.nr(2)), (1, 2));
    let lb = lab.lb(0, 0, IdleType::Newidle);
    assert_eq!(
        (lb.count, lb.gained, lb.balanced, lb.failed, lb.imbalance),
        (1, 1, 0, 0, [0, 0, 1])
    );
    assert_eq!(lab.sh.rq(Cpu(0)).idle_stamp, Ns::ZERO);
    assert_eq!(lab.resched[0].1.name, "balance: CPU was idle");
}

#[test]
fn without_config_preemption_newidle_takes_its_fill() {
    let k = Release { config_preemption: false, ..no_dice() };
    let mut lab = Lab::new(&k, 1, 4, 1, 0);
    lab.tasks(2, 7);
    assert_eq!(lab.newidle(0), "lock 2, unlock 2, lock 0, unlock 0, done 3");
    assert_eq!((lab.nr(0), lab.nr(2)), (3, 4));
}

#[test]
fn newidle_needs_an_overloaded_machine_and_idle_time() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 3);
    lab.sh.domains.overload = false;
    assert_eq!(lab.newidle(0), "done 0");
    assert_eq!(lab.lb(0, 0, IdleType::Newidle).count, 0);
    lab.sh.domains.overload = true;
    lab.state(0, 0).max_newidle_lb_cost = 50_001;
    lab.sh.rqs[0].avg_idle = Ns(50_000);
    assert_eq!(lab.newidle(0), "done 0");
    lab.state(0, 0).max_newidle_lb_cost = 50_000;
    assert_eq!(lab.newidle(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
}

#[test]
fn newidle_stops_for_a_pending_wakeup() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 3);
    lab.sh.rqs[0].ttwu_pending = true;
    assert_eq!(lab.newidle(0), "done 0");
}

#[test]
fn newidle_walks_up_while_time_is_left() {
    // Two caches; only the other one has tasks. SMT, MC, PKG cost nothing but what they are said
    // to.
    let mut lab = Lab::new(&no_dice(), 2, 2, 2, 0);
    lab.tasks(4, 3);
    lab.sh.rqs[0].avg_idle = Ns(20_000);
    lab.state(0, 2).max_newidle_lb_cost = 20_001;
    assert_eq!(lab.newidle(0), "done 0");
    assert_eq!(lab.lb(0, 1, IdleType::Newidle).nobusyg, 1);
    assert_eq!(lab.lb(0, 2, IdleType::Newidle).count, 0);
    lab.state(0, 2).max_newidle_lb_cost = 20_000;
    assert_eq!(lab.newidle(0), "lock 4, unlock 4, lock 0, unlock 0, done 1");
}

#[test]
fn a_search_takes_time_and_the_next_domain_is_seen_after_it() {
    // All costs 10 ns: newidle_base 10; MC: balance_domain 10 and 4·10; PKG: 10 and 8·10; besides
    // lines of seven other CPUs, two each, at half of 10.
    let mut lab = Lab::new(&no_dice(), 2, 4, 1, 10);
    lab.tasks(4, 1);
    lab.sh.domains.overload = true;
    let began = lab.now;
    assert_eq!(lab.newidle(0), "pass, pass, done 0");
    assert_eq!((lab.now - began).0, 10 + 10 + 40 + 6 * 5 + 10 + 80 + 8 * 5);
    assert_eq!(lab.state(0, 0).max_newidle_lb_cost, 80);
    assert_eq!(lab.state(0, 1).max_newidle_lb_cost, 130);
    assert_eq!(lab.sh.rq(Cpu(0)).max_idle_balance_cost, Ns(500_000));
    // Nobody had two tasks: the pass over the whole machine says so.
    assert!(!lab.sh.domains.overload);
    assert_eq!(lab.newidle(0), "done 0");
}

#[test]
fn newidle_remembers_that_it_found_the_queue_empty() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 2);
    let step = lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Newidle));
    assert_eq!(step, BalanceStep::Lock(Cpu(2)));
    // Meanwhile another CPU took the second task.
    assert_eq!(lab.newidle(1), "lock 2, unlock 2, lock 1, unlock 1, done 1");
    let step = lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
    assert_eq!(step, BalanceStep::Unlock(Cpu(2)));
    let step = lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
    assert_eq!(step, BalanceStep::Done);
    assert_eq!(lab.lb(0, 0, IdleType::Newidle).failed, 1);
    assert_eq!(lab.state(0, 0).nr_balance_failed, 0);
}

/// Two caches; a wakeup for CPU 0 arrives while its first pass takes time. Up to 6.6 that ends the
/// walk; from 6.10 on the next level is asked, and refuses.
#[test]
pub(crate) fn newidle_looks_further_unless_refused() {
    for (k, passes) in [(no_dice(), 0), (Release { ni_random: false, ..v6_12() }, 1)] {
        let mut lab = Lab::new(&k, 2, 4, 1, 10);
        lab.tasks(4, 1);
        lab.sh.domains.overload = true;
        let step = lab.at(0, |b, f, cx| b.begin(f, cx, Cpu(0), BalanceKind::Newidle));
        assert_eq!(step, BalanceStep::Pass);
        lab.sh.rqs[0].ttwu_pending = true;
        while lab.balancer.is_active(Cpu(0)) {
            lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
        }
        let lb = lab.lb(0, 1, IdleType::Newidle);
        assert_eq!((lb.count, lb.balanced), (passes, passes));
    }
}

/// The dearest pass so far took 1 us; one without a task counts as 1.5 us in 6.18, where the cost
/// itself, here nothing, counts before.
#[test]
pub(crate) fn a_failure_costs_half_as_much_again_in_6_18() {
    for (k, cost) in [(no_dice(), 1000), (crate::sample::v6_18(), 1500)] {
        let mut lab = Lab::new(&k, 1, 4, 1, 0);
        lab.tasks(2, 1);
        lab.sh.domains.overload = true;
        lab.state(0, 0).max_newidle_lb_cost = 1000;
        // So that the cost does not decay at once.
        lab.state(0, 0).last_decay = 250;
        assert_eq!(lab.newidle(0), "done 0");
        assert_eq!(lab.state(0, 0).max_newidle_lb_cost, cost);
    }
}

#[test]
fn ni_random_skips_by_its_ratio() {
    let mut lab = Lab::new(&v6_1(), 1, 4, 1, 0);
    lab.tasks(2, 1);
    lab.sh.domains.overload = true;
    for _ in 0..512 {
        lab.newidle(0);
        lab.sh.domains.overload = true;
    }
    let made = lab.lb(0, 0, IdleType::Newidle).count;
    // Chance 514/1024 at first. Costs are zero, so only skipped passes are counted as calls.
    assert!((215..300).contains(&made), "{made}");
    let skipped = 512 - made as u32;
    assert_eq!(lab.state(0, 0).newidle_call, 512 + skipped);
}

#[test]
fn all_pinned_drops_the_queue_and_searches_again() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    let pinned = lab.tasks(2, 3);
    pinned.iter().for_each(|p| lab.pin(*p, &[2]));
    let ids = lab.tasks(3, 2);
    let steps = "lock 2, unlock 2, lock 3, unlock 3, lock 0, unlock 0, done 1";
    assert_eq!(lab.newidle(0), steps);
    assert_eq!(lab.moved(), [format!("{} 3→0 newidle balance, MC", ids[1])]);
}

#[test]
fn pinned_tasks_make_the_group_imbalanced_for_the_level_above() {
    // Core {0,1}: both tasks of 1 are pinned to it.
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    lab.tasks(1, 3).iter().for_each(|p| lab.pin(*p, &[1]));
    lab.newidle(0);
    let mc = lab.slot(0, 1);
    assert_eq!(lab.imbalanced(mc), [true, false]);
    // CPU 2 sees an imbalanced group, finds nothing that may move.
    lab.newidle(2);
    assert_eq!(lab.lb(2, 1, IdleType::Newidle).imbalance, [0, 0, 1]);
    // Balanced below: the flag goes.
    lab.set_loads(1, 1);
    lab.sh.loads[1].nr_running = 1;
    lab.sh.loads[1].h_nr_queued = 1;
    // (The search without CPU 1 found nobody with two tasks, as the kernel's does.)
    assert!(!std::mem::replace(&mut lab.sh.domains.overload, true));
    lab.newidle(0);
    assert_eq!(lab.imbalanced(mc), [false, false]);
}

#[test]
fn a_task_pinned_elsewhere_in_the_group_goes_there() {
    // LLCs {0,1} {2,3}; both waiting tasks of 2 may run on 1, not on 0.
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    let ids = lab.tasks(2, 4);
    ids[1..].iter().for_each(|p| lab.pin(*p, &[1, 2]));
    let slot = lab.slot(0, 1);
    assert_eq!(lab.sh.domains.at(slot).name, "PKG");
    let steps = "lock 2, unlock 2, lock 2, unlock 2, lock 1, unlock 1, done 3";
    assert_eq!(lab.periodic(0), steps);
    assert_eq!(lab.moved()[0], format!("{} 2→1 periodic balance while idle, PKG", ids[1]));
}

#[test]
pub(crate) fn a_busy_cpu_balances_late_and_only_as_the_first_of_its_group() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(1, 1);
    lab.tasks(2, 4);
    lab.fair.cfs[0].avg.load_avg = 0;
    // 4 ms · 16 at 250 Hz: 16 jiffies, less one.
    lab.state(0, 0).last_balance = 250 - 14;
    assert_eq!(lab.periodic(0), "done 0");
    assert_eq!(lab.sh.rq(Cpu(0)).next_balance, 251);
    lab.state(0, 0).last_balance = 250 - 15;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
    assert_eq!(lab.sh.rq(Cpu(0)).next_balance, 250 + 15);
    assert_eq!(lab.state(0, 0).last_balance, 250);
}

#[test]
fn an_idle_cpu_balances_after_its_weight_in_ms() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(2, 4);
    lab.state(0, 0).last_balance = 249;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 2");
    assert_eq!((lab.nr(0), lab.nr(2)), (2, 2));
    // It is busy now.
    assert_eq!(lab.sh.rq(Cpu(0)).next_balance, 250 + 15);
}

#[test]
fn the_interval_doubles_while_balanced() {
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    let interval = |lab: &mut Lab| lab.state(0, 0).balance_interval;
    assert_eq!(interval(&mut lab), 4);
    lab.periodic(0);
    assert_eq!(interval(&mut lab), 8);
    lab.state(0, 0).last_balance = 0;
    lab.periodic(0);
    assert_eq!(interval(&mut lab), 8);
    assert_eq!(lab.lb(0, 0, IdleType::NotIdle).balanced, 2);
    lab.tasks(2, 4);
    lab.state(0, 0).last_balance = 0;
    lab.periodic(0);
    assert_eq!(interval(&mut lab), 4);
}

#[test]
fn one_cpu_of_a_group_balances() {
    // LLCs {0,1} {2,3} {4,5}: of the idle 0 and 1, CPU 0 balances PKG.
    let mut lab = Lab::new(&no_dice(), 3, 2, 1, 0);
    lab.tasks(4, 2);
    assert_eq!(lab.periodic(1), "done 0");
    assert_eq!(lab.lb(1, 1, IdleType::Idle).balanced, 1);
    assert_eq!(lab.periodic(0), "lock 4, unlock 4, lock 0, unlock 0, done 1");
}

#[test]
pub(crate) fn a_whole_idle_core_goes_first_from_6_6_on() {
    // Cores {0,1} {2,3} | {4,5} {6,7}; 1 runs a task. PKG: 6.1 takes CPU 0, 6.12 CPU 2.
    for (k, who) in [(v6_1(), 0u16), (v6_12(), 2)] {
        let mut lab = Lab::new(&k, 2, 2, 2, 0);
        lab.tasks(1, 1);
        let slot = lab.slot(0, 2);
        let sd = lab.sh.domains.at(slot);
        let idle: Vec<u16> = (0..4)
            .filter(|c| {
                super::super::pass::should_we_balance(
                    &lab.sh,
                    &lab.machine.topo,
                    sd,
                    Cpu(*c),
                    IdleType::Idle,
                    &sd.span,
                )
            })
            .collect();
        assert_eq!(idle, [who]);
        // With every core busy the first idle thread does it.
        lab.tasks(3, 1);
        let sd = lab.sh.domains.at(slot);
        assert!(super::super::pass::should_we_balance(
            &lab.sh,
            &lab.machine.topo,
            sd,
            Cpu(0),
            IdleType::Idle,
            &sd.span
        ));
    }
}

#[test]
fn periodic_balancing_sets_the_scan_limit() {
    let mut lab = Lab::new(&no_dice(), 1, 16, 1, 0);
    assert_eq!(lab.sh.domains.shared_of(Cpu(0)).nr_idle_scan, 0);
    for c in 0..16 {
        lab.sh.loads[c].util_avg = 512;
    }
    lab.sh.domains.overload = true;
    lab.newidle(0);
    assert_eq!(lab.sh.domains.shared_of(Cpu(0)).nr_idle_scan, 0);
    // 512 everywhere but where updating the CPU's own averages put zero: 480, 17 % of 1024 more.
    lab.periodic(0);
    assert_eq!(lab.sh.domains.shared_of(Cpu(0)).nr_idle_scan, 11);
}

#[test]
fn load_is_taken_within_the_imbalance() {
    // Local 3 tasks a CPU on {0,1}, 5 on {2,3}: avg 3072 and 5120, domain 4096: 2048 to move.
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    for (c, n) in [(0, 3), (1, 3), (2, 5), (3, 5)] {
        lab.tasks(c, n);
    }
    let pkg = lab.slot(0, 1);
    lab.balancer.state_mut(pkg - 1).last_balance = 1 << 40;
    lab.balancer.state_mut(pkg).last_balance = 0;
    lab.periodic(0);
    // task_h_load = 1024·5120/5121 = 1023, 1025 are left. The second task looks heavier, since the
    // hierarchical load is of this jiffy and the queue's is not: 1024·5120/4097 = 1279.
    assert_eq!(lab.lb(0, 1, IdleType::NotIdle).gained, 1);
    assert_eq!(lab.lb(0, 1, IdleType::NotIdle).imbalance, [2048, 0, 0]);
}

#[test]
fn a_task_too_heavy_fits_after_failures() {
    // avg = (200 + 3072)/4 = 818; min(3072 − 818, 818 − 200) = 618 < 1023; half of it fits.
    let mut lab = Lab::new(&no_dice(), 1, 4, 1, 0);
    lab.tasks(0, 1);
    lab.tasks(2, 3);
    lab.fair.cfs[0].avg.load_avg = 200;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, done 0");
    assert_eq!(lab.lb(0, 0, IdleType::NotIdle).imbalance, [618, 0, 0]);
    assert_eq!(lab.state(0, 0).nr_balance_failed, 1);
    lab.state(0, 0).last_balance = 0;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, lock 0, unlock 0, done 1");
}

#[test]
fn active_balance_pushes_the_running_task() {
    // One core with two running tasks, another idle: {0,1} idle, {2,3} one task each.
    let mut lab = Lab::new(&v6_12(), 1, 2, 2, 0);
    let a = lab.tasks(2, 1)[0];
    lab.tasks(3, 1);
    let mc = lab.slot(0, 1);
    let sd = lab.sh.domains.at(mc);
    assert!(sd.name == "MC" && sd.flags.has(SdFlags::SHARE_LLC));
    for failed in 1..=3 {
        lab.balancer.state_mut(mc).last_balance = 0;
        assert_eq!(lab.periodic(0), "done 0", "after {failed}");
        assert_eq!(lab.balancer.state(mc).nr_balance_failed, failed);
    }
    // cache_nice_tries + 2 = 3 failures were not enough, the fourth is.
    lab.balancer.state_mut(mc).last_balance = 0;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, stopper 2, done 0");
    assert!(lab.sh.rq(Cpu(2)).active_balance && lab.sh.rq(Cpu(2)).push_cpu == Cpu(0));
    // The stopper runs: it counts, the task does not run any more.
    lab.sh.loads[2].nr_running += 1;
    lab.sh.rqs[2].curr = TaskId(2);
    let pushed = lab.at(2, |b, f, cx| b.active_balance(f, cx, Cpu(2)));
    assert_eq!(pushed, Some(a));
    // Taken off under one lock, put on under the other.
    assert_eq!((lab.nr(2), lab.nr(0)), (1, 0));
    lab.at(2, |b, f, cx| b.attach(f, cx, a));
    assert_eq!((lab.nr(2), lab.nr(0)), (1, 1));
    assert_eq!(lab.moved(), [format!("{a} 2→0 active balance, MC")]);
    assert_eq!(lab.balancer.state(mc).nr_balance_failed, 0);
    let stats = lab.balancer.stats()[mc];
    assert_eq!((stats.alb_count, stats.alb_pushed, stats.alb_failed), (1, 1, 0));
    assert!(!lab.sh.rq(Cpu(2)).active_balance);
}

#[test]
fn active_balance_respects_affinity() {
    let mut lab = Lab::new(&v6_12(), 1, 2, 2, 0);
    let a = lab.tasks(2, 1)[0];
    let b = lab.tasks(3, 1)[0];
    lab.pin(a, &[2, 3]);
    lab.pin(b, &[2, 3]);
    let mc = lab.slot(0, 1);
    lab.balancer.state_mut(mc).nr_balance_failed = 4;
    assert_eq!(lab.periodic(0), "lock 2, unlock 2, done 0");
    assert!(!lab.sh.rq(Cpu(2)).active_balance);
}

#[test]
fn a_move_is_named_after_its_path_and_level() {
    for level in ["SMT", "CLS", "CACHE", "MC", "PKG", "NODE", "NUMA"] {
        let name = crate::balance::cause(crate::balance::Path::Nohz, level).name;
        assert_eq!(name, format!("nohz idle balance, {level}"));
    }
}

#[test]
fn an_idle_core_is_announced_once() {
    let mut lab = Lab::new(&no_dice(), 1, 2, 2, 0);
    lab.tasks(1, 1);
    lab.at(0, |b, _, cx| b.set_idle(cx, Cpu(0)));
    assert!(!lab.sh.domains.shared_of(Cpu(0)).has_idle_cores);
    lab.at(2, |b, _, cx| b.set_idle(cx, Cpu(2)));
    assert!(lab.sh.domains.shared_of(Cpu(0)).has_idle_cores);
}

#[test]
fn numa_domains_are_balanced_by_one_cpu_at_a_time() {
    let mut lab = Lab::numa(&no_dice(), 2, 1, 10);
    assert!(lab.balancer.tables.serialized.is_none());
    let level = lab.slot(0, 1);
    assert_eq!(lab.sh.domains.at(level).name, "NUMA");
    lab.state(0, 0).last_balance = 1 << 40;
    lab.state(2, 0).last_balance = 1 << 40;
    // CPU 0 is in the middle of its NUMA pass when CPU 2 begins one.
    for c in [0, 2] {
        lab.at(c, |b, _, cx| b.tick(cx, Cpu(c)));
    }
    let step = lab.at(0, |b, f, cx| {
        let step = b.begin(f, cx, Cpu(0), BalanceKind::Periodic);
        (step, b.tables.serialized)
    });
    assert_eq!(step, (BalanceStep::Pass, Cpu(0)));
    assert_eq!(lab.periodic(2), "done 0");
    assert_eq!(lab.lb(2, 1, IdleType::Idle).count, 0);
    let step = lab.at(0, |b, f, cx| b.resume(f, cx, Cpu(0)));
    assert_eq!(step, BalanceStep::Done);
    assert_eq!(lab.periodic(2), "pass, done 0");
}

/// One task runs on CPU 2 and two light ones wait, its neighbour 3 idles. Where the child domain
/// prefers siblings three tasks more are too many; by idle CPUs, two and one, all is well.
#[test]
fn the_child_says_whether_tasks_count() {
    // Cores {0,1} {2,3}, child SMT; nodes {0,1} {2,3}, child MC.
    for (smt, level) in [(2, "MC"), (1, "NUMA")] {
        let mut lab = Lab::numa(&no_dice(), 2, smt, 0);
        lab.tasks(2, 3);
        lab.sh.loads[2].runnable_avg = 1024;
        assert_eq!(lab.sh.domains.at(lab.slot(0, 1)).name, level);
        lab.newidle(0);
        let moved = lab.moved();
        assert!(moved[0].ends_with(&format!("2→0 newidle balance, {level}")), "{moved:?}");
    }
}

/// Every CPU of the overloaded cache has one fair task and something else: nobody to pull from.
#[test]
fn a_group_may_have_no_queue() {
    let mut lab = Lab::new(&no_dice(), 2, 2, 1, 0);
    for c in [2, 3] {
        lab.tasks(c, 1);
        lab.sh.loads[c as usize].nr_running = 2;
    }
    lab.sh.domains.overload = true;
    assert_eq!(lab.newidle(0), "done 0");
    let lb = lab.lb(0, 1, IdleType::Newidle);
    assert_eq!((lb.count, lb.balanced, lb.nobusyg, lb.nobusyq), (1, 1, 0, 1));
}
