//! The decision code of the fair class, asked about a recorded level.
//!
//! A [`Level`] becomes a queue of [`Fair`], entity by entity in the order of insertion, and the
//! same functions decide that decide under `simulate`. Nothing is decided here.

use super::levels::{Ent, Level};
use crate::shadow::rows::trace::{Side, fair_policy};
use crate::shadow::state::one_level::OneLevel;
use std::cell::RefCell;
use vruntime_base::{Cpu, Ns, TaskId, VTime};
use vruntime_sched::fair::cfs::PreemptView;
use vruntime_sched::fair::{CfsId, Entity, Fair, SeId, weight};
use vruntime_sched::release::Release;
use vruntime_sched::task::{Policy, Task, TaskState, TgId};

const QUEUE: CfsId = CfsId(0);

/// The decision code with room for one level.
pub struct Decider<'a> {
    k: &'a Release,
    fair: RefCell<Fair>,
    /// Whether all tasks are on the level that it is asked about.
    pub one_level: OneLevel,
}

/// Whom a queue's running task may have to make room for.
#[derive(Clone, Copy, Debug)]
pub struct Wakee {
    /// The task.
    pub pid: i64,
    /// It has never run.
    pub new: bool,
    /// The running task is to be rescheduled already.
    pub need_resched: bool,
}

impl<'a> Decider<'a> {
    /// Decides as `k` does on a machine of `nr_cpus`.
    pub fn new(k: &'a Release, nr_cpus: usize, one_level: OneLevel) -> Decider<'a> {
        Decider { k, fair: RefCell::new(Fair::new(nr_cpus, k)), one_level }
    }

    /// The task picked from `l`, and the rule. Delayed entities that are picked leave the queue,
    /// as in the kernel, and the pick starts over. `None`: nothing is left.
    pub fn pick(&self, l: &Level) -> Option<(i64, &'static str)> {
        let mut f = self.fair.borrow_mut();
        let mut ents = l.ents.clone();
        while !ents.is_empty() {
            let ses = fill(&mut f, &ents, l);
            let (se, rule) = f.decide_pick(self.k, QUEUE);
            let i = ses.iter().position(|&s| s == se)?;
            if !ents[i].delayed {
                return Some((ents[i].pid, rule.name));
            }
            ents.remove(i);
        }
        None
    }

    /// Whether the running task of `l` is to be rescheduled for `wakee`, and the rule. Delayed
    /// entities leave as in [`Decider::pick`] where the release says so.
    pub fn preempts(&self, l: &Level, wakee: Wakee) -> (bool, &'static str) {
        let Wakee { pid, new: fork, need_resched } = wakee;
        let mut f = self.fair.borrow_mut();
        let mut ents = l.ents.clone();
        loop {
            let ses = fill(&mut f, &ents, l);
            let task = |pid: i64| {
                let i = ents.iter().position(|e| e.pid == pid);
                i.map(|i| task(&ents[i], ses[i]))
            };
            let (Some(curr), Some(wakee)) = (task(l.curr.unwrap_or(0)), task(pid)) else {
                return (false, "not on one level");
            };
            let (curr, wakee) = (&curr, &wakee);
            let view = PreemptView { release: self.k, curr, wakee, need_resched, fork };
            let d = f.decide_wakeup_preempt(&view);
            let Some(i) = ses.iter().position(|&s| s == d.delayed) else {
                return (d.preempt, d.rule.name);
            };
            ents.remove(i);
        }
    }

    /// Whether a tick that finds `l`, its running task accounted, asks for a reschedule, and the
    /// rule. `ran`: how long that task has run since it was picked.
    pub fn tick(&self, l: &Level, ran: u64) -> (bool, &'static str) {
        let mut f = self.fair.borrow_mut();
        let ses = fill(&mut f, &l.ents, l);
        let Some(i) = l.ents.iter().position(|e| Some(e.pid) == l.curr) else {
            return (false, "nothing runs");
        };
        f.cfs[QUEUE.ix()].h_nr_queued = l.ents.len() as u32;
        f.ses[ses[i].ix()].ran = Ns(ran);
        let ended = f.eevdf && f.update_deadline(ses[i]);
        let why = f.decide_tick(self.k, ses[i], ended);
        (why.is_some(), why.map_or("goes on", |c| c.name))
    }

    /// Whether the protection that `side` was picked with still holds at `vruntime`.
    pub fn protected(k: &Release, side: &Side, vruntime: u64) -> bool {
        let mut f = Fair::new(1, k);
        let se = f.new_entity(TaskId(0), TgId(0), Cpu(0));
        let e = &mut f.ses[se.ix()];
        (e.vruntime, e.deadline, e.vlag) = (VTime(vruntime), VTime(side.deadline), side.vlag);
        f.is_protected(se)
    }
}

/// A level holds tasks: their weights have the inverses of the kernel's table.
fn weigh(e: &mut Entity, weight: u64) {
    e.weight = (weight as u32).max(1 << weight::LOAD_SHIFT);
    e.inv_weight = weight::task_inverse(e.weight);
}

/// Makes the queue hold exactly `ents`; their entities in the same order.
fn fill(f: &mut Fair, ents: &[Ent], l: &Level) -> Vec<SeId> {
    f.ses.clear();
    f.restore_empty(QUEUE);
    let reference = ents.iter().map(|e| VTime(e.vruntime)).reduce(VTime::earlier);
    f.cfs[QUEUE.ix()].min_vruntime = reference.unwrap_or_default();
    let mut order: Vec<usize> = (0..ents.len()).collect();
    order.sort_by_key(|&i| ents[i].seq);
    let mut ses = vec![SeId::NONE; ents.len()];
    for i in order {
        let e = &ents[i];
        let se = f.new_entity(TaskId(i as u32), TgId(0), Cpu(0));
        ses[i] = se;
        let x = &mut f.ses[se.ix()];
        weigh(x, e.weight);
        x.vruntime = VTime(e.vruntime);
        x.deadline = VTime(e.deadline);
        x.slice = e.slice;
        x.idle = fair_policy(e.policy) == Policy::Idle;
        x.sched_delayed = e.delayed;
        if Some(e.pid) == l.curr {
            f.restore_curr(se);
            f.restore_protection(se, l.protected);
        } else {
            f.restore_queued(se);
        }
    }
    let of = |pid: Option<i64>| {
        ents.iter().position(|e| Some(e.pid) == pid).map_or(SeId::NONE, |i| ses[i])
    };
    let q = &mut f.cfs[QUEUE.ix()];
    (q.next, q.last, q.skip) = (of(l.buddies.next), of(l.buddies.last), of(l.buddies.skip));
    ses
}

fn task(e: &Ent, se: SeId) -> Task {
    Task {
        policy: fair_policy(e.policy),
        state: TaskState::Running,
        on_rq: true,
        se,
        ..Task::new(Cpu(0), 1)
    }
}
