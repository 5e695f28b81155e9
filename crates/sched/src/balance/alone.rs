//! Balancing while nothing else happens: for checkers that ask about a recorded moment.
//!
//! **What.** One pass over one domain, in the phases of [`super::pass`]. Every wait is over at once
//! and every lock is free.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `load_balance`.
//! **Equations.** None.
//! **Departures.** D1: what was taken off is not put on, for nobody asks about the destination's
//! queue. D2: a push by the stopper is not arranged.
//! **Example.** CPU 0 is idle, CPU 1 runs A, and B and C wait, B longer: the pass takes B.

use super::imbalance::Imbalance;
use super::{Balancer, IdleType, Phase, SdState, SdStats, World, pass};
use crate::cx::Cx;
use crate::fair::Fair;
use crate::scheduler::BalanceKind;
use vruntime_base::Cpu;

/// A pass over one domain: who balances what, and why.
#[derive(Clone, Copy, Debug)]
pub struct LonePass {
    /// Which balancing the pass is part of.
    pub kind: BalanceKind,
    /// The CPU whose domain is balanced.
    pub on: Cpu,
    /// The domain, by [`crate::domains::Domains::slots`] of `on`.
    pub slot: usize,
    /// Why.
    pub idle: IdleType,
}

/// A queue is about to be locked: all of it must be there by then.
#[derive(Clone, Copy, Debug)]
pub struct Locked {
    /// The CPU whose queue it is.
    pub src: Cpu,
    /// What is to be moved.
    pub imbalance: Imbalance,
}

/// How a lone pass ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoneEnd {
    /// It was not this CPU's turn (`should_we_balance`).
    NotItsTurn,
    /// No group is busy enough.
    NoGroup,
    /// The busiest group has no queue to pull from.
    NoQueue,
    /// This was to be moved; it may be that nothing could be.
    Pull(Imbalance),
}

impl Balancer {
    /// Runs `q` to its end. Whenever a queue is about to be locked, `lock` makes it, and the state
    /// of the domain, what they are by then. What was taken off is in [`Balancer::moved`].
    pub fn pass_alone(
        &mut self,
        fair: &mut Fair,
        cx: &mut Cx,
        q: &LonePass,
        mut lock: impl FnMut(Locked, &mut SdState, &mut Fair, &mut Cx),
    ) -> LoneEnd {
        let (slot, idle) = (q.slot, q.idle);
        self.tables.stats[slot] = SdStats::default();
        let run = &mut self.runs[q.on.ix()];
        let mut w = World { t: &mut self.tables, moved: &mut self.moved, fair };
        (run.kind, run.on, run.slot) = (q.kind, q.on, slot + 1);
        pass::prepare(run, &mut w, cx, slot, idle);
        run.phase = Phase::Search;
        while run.phase != Phase::Ended {
            run.phase = pass::phase(run, &mut w, cx).to();
            match run.phase {
                Phase::SourceLocked => {
                    let locked = Locked { src: run.env.src_cpu, imbalance: run.env.imbalance };
                    lock(locked, &mut w.t.sds[slot], w.fair, cx);
                }
                Phase::DestinationLocked => {
                    // D1.
                    for p in run.env.tasks.drain(..) {
                        cx.sh.tasks[p.ix()].migrating = false;
                    }
                    run.phase = Phase::DestinationLeft;
                }
                // D2.
                Phase::PushLocked => run.phase = Phase::Ended,
                _ => {}
            }
        }
        run.phase = Phase::Off;
        let s = &w.t.stats[slot].lb[idle as usize];
        if !w.moved.is_empty() || s.failed > 0 || run.env.all_pinned {
            LoneEnd::Pull(run.env.imbalance)
        } else if s.nobusyg > 0 {
            LoneEnd::NoGroup
        } else if s.nobusyq > 0 {
            LoneEnd::NoQueue
        } else {
            LoneEnd::NotItsTurn
        }
    }
}
