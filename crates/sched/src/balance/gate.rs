//! Which gate keeps an idle CPU from pulling a task that waits elsewhere: for checkers.
//!
//! **What.** What a periodic pass of the idle CPU over the lowest domain that holds both would
//! come to just now, by the same functions; the first refusal on the way is the gate.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `load_balance` and what it calls.
//! **Equations.** None.
//! **Departures.** D1: whether the task's load fits into the imbalance is not asked, since the
//! answer would change cached loads. D2: a pass over a higher domain may take the task, too.
//! **Example.** CPU 0 idles, 1 runs A while B waits, and B ran 0.1 ms ago: `can_migrate_task`, hot.

use super::detach::can_migrate_task;
use super::imbalance::{Imbalance, MigrationType};
use super::stats::{GroupStats, GroupType};
use super::{Balancer, IdleType, pass, periodic};
use crate::cx::Shared;
use crate::fair::Fair;
use std::fmt;
use vruntime_base::{Cpu, TaskId};
use vruntime_machine::Topology;

/// Why an idle CPU has not pulled a waiting task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gate {
    /// The idle CPU.
    pub cpu: Cpu,
    /// The domain, as in `/proc/schedstat`; empty if none holds both CPUs.
    pub domain: &'static str,
    /// What refused.
    pub held: Held,
}

/// The tests of a pass in their order: the later one refuses, the closer the pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Tasks of other classes are not balanced.
    OtherClass,
    /// No domain holds both CPUs.
    NoDomain,
    /// `should_we_balance`: another CPU of the group does it.
    NotItsTurn,
    /// `find_busiest_group`: this group against the busiest other one.
    Balanced(GroupStats, GroupStats),
    /// `find_busiest_queue`: none, or another one.
    Queue(Option<Cpu>),
    /// Its queue has no second task.
    Alone,
    /// `can_migrate_task`: failed passes so far, and tries before a hot task may move.
    Stays(u32, u32),
    /// None, but that the imbalance may be too small: it, and jiffies to the next pass.
    NotYet(Imbalance, u64),
}

impl Held {
    /// Its place among the tests.
    pub fn order(&self) -> u32 {
        match self {
            Held::OtherClass => 0,
            Held::NoDomain => 1,
            Held::NotItsTurn => 2,
            Held::Balanced(..) => 3,
            Held::Queue(_) => 4,
            Held::Alone => 5,
            Held::Stays(..) => 6,
            Held::NotYet(..) => 7,
        }
    }
}

impl Balancer {
    /// What keeps `cpu`, which is idle, from pulling `p`, which waits. `jiffies`: the time.
    pub fn gate(
        &self,
        fair: &Fair,
        sh: &Shared,
        topo: &Topology,
        jiffies: u64,
        cpu: Cpu,
        p: TaskId,
    ) -> Gate {
        let gate = |domain, held| Gate { cpu, domain, held };
        if !sh.task(p).policy.is_fair() {
            return gate("", Held::OtherClass);
        }
        let src = sh.task(p).cpu;
        let Some(slot) = sh.domains.lowest_common(cpu, src) else {
            return gate("", Held::NoDomain);
        };
        let sd = sh.domains.at(slot);
        let gate = |held| gate(sd.name, held);
        if !pass::should_we_balance(sh, topo, sd, cpu, IdleType::Idle, &sd.span) {
            return gate(Held::NotItsTurn);
        }
        let found = pass::find(sh, cpu, slot, cpu, IdleType::Idle, &sd.span, true);
        let Some((_, imbalance)) = found.pull else {
            let busiest = found.sds.busiest.map_or(GroupStats::default(), |(_, s)| s);
            return gate(Held::Balanced(found.sds.local.1, busiest));
        };
        if found.queue != Some(src) {
            return gate(Held::Queue(found.queue));
        }
        if sh.loads[src.ix()].nr_running <= 1 {
            return gate(Held::Alone);
        }
        let state = self.state(slot);
        let mut env = self.runs[cpu.ix()].env.clone();
        (env.slot, env.idle, env.dst_cpu, env.src_cpu) = (slot, IdleType::Idle, cpu, src);
        (env.imbalance, env.active) = (imbalance, false);
        if can_migrate_task(&mut env, state, fair, sh, p).is_none() {
            return gate(Held::Stays(state.nr_balance_failed, sd.cache_nice_tries));
        }
        let due = state.due(periodic::interval(sh, state.balance_interval, false));
        let next = due.max(sh.rq(cpu).next_balance);
        gate(Held::NotYet(imbalance, next.saturating_sub(jiffies)))
    }
}

/// A group as in `has spare, 3 running, 3 of them fair, weight 4`.
struct Shown<'a>(&'a GroupStats);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0.kind {
            GroupType::HasSpare => "has spare",
            GroupType::FullyBusy => "fully busy",
            GroupType::SmtBalance => "smt balance",
            GroupType::Imbalanced => "imbalanced",
            GroupType::Overloaded => "overloaded",
        };
        let GroupStats { sum_nr_running: nr, sum_h_nr_running: fair, group_weight, .. } = self.0;
        write!(f, "{kind}, {nr} running, {fair} of them fair, weight {group_weight}")
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.cpu)?;
        if !self.domain.is_empty() {
            write!(f, ", {}", self.domain)?;
        }
        f.write_str(": ")?;
        match &self.held {
            Held::OtherClass => f.write_str("not a fair task"),
            Held::NoDomain => f.write_str("no domain holds both"),
            Held::NotItsTurn => f.write_str("should_we_balance, another CPU of its group does"),
            Held::Balanced(local, busiest) => write!(
                f,
                "find_busiest_group, balanced (local {}; busiest {})",
                Shown(local),
                Shown(busiest)
            ),
            Held::Queue(None) => f.write_str("find_busiest_queue, none"),
            Held::Queue(Some(c)) => write!(f, "find_busiest_queue, CPU {c} is pulled from"),
            Held::Alone => f.write_str("its queue has no second task"),
            Held::Stays(failed, tries) => write!(
                f,
                "can_migrate_task, no (nr_balance_failed {failed}, cache_nice_tries {tries})"
            ),
            Held::NotYet(imbalance, jiffies) => {
                let unit = match imbalance.kind {
                    MigrationType::Load => "of load",
                    MigrationType::Util => "of utilisation",
                    MigrationType::Task => "tasks",
                };
                let amount = imbalance.amount;
                write!(f, "a pass in {jiffies} jiffies, which is to move {amount} {unit}")
            }
        }
    }
}
