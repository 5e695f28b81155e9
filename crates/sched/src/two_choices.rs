//! Two choices: how much of wakeup placement does a coin do?
//!
//! *What.* Round robin, but a waking task compares its CPU with one other, drawn from all it may
//! use, and goes where fewer tasks are. A baseline for placement heuristics: it knows no caches, no
//! nodes and no idle masks, and reads two run queues where the others read dozens.
//! *Source.* M. Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 1996; the
//! queues are those of [`crate::rr`].
//! *Equations.* With random arrivals the longest queue is of length log log n instead of log n.
//! *Departures.* D1: the first choice is the CPU that the task comes from, not a second draw.
//! D2: draws come from the stream of ties, entity `u64::MAX`, which no CPU has.
//! *Example.* A ran on CPU 0, where two tasks are now; CPU 5 is drawn and idle: A goes to CPU 5.

use crate::cx::Cx;
use crate::registry::Entry;
use crate::rr::Rr;
use crate::scheduler::*;
use crate::task::{Policy, TgId};
use vruntime_base::{Cause, CauseKind, Cpu, Func, Stream, TaskId};
use vruntime_machine::Topology;

/// For the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "two_choices",
    description: "round robin with wakeups to the shorter of two queues, prev's and a drawn one",
    heeds_policies: false,
    make: |topo, _, _| Box::new(TwoChoices::new(topo)),
};

/// Its own queue is not the longer one.
pub static PREV: Cause = Cause::new(CauseKind::Placement, "two choices: prev");
/// The drawn queue is shorter.
pub static DRAWN: Cause = Cause::new(CauseKind::Placement, "two choices: drawn CPU");

/// The scheduler.
pub struct TwoChoices {
    rr: Rr,
    /// Draws so far.
    draws: u64,
}

impl TwoChoices {
    /// One empty queue for each CPU of `topo`.
    pub fn new(topo: &Topology) -> TwoChoices {
        TwoChoices { rr: Rr::new(topo), draws: 0 }
    }
}

/// Tasks on `c`'s queue, one that is on its way included.
fn length(cx: &mut Cx, c: Cpu) -> u32 {
    cx.read_for_idle_test(c, Func::SelectTaskRq);
    cx.sh.seen_nr_running(c, cx.now) + u32::from(cx.sh.seen_pending(c, cx.now))
}

impl Scheduler for TwoChoices {
    fn select_task_rq(&mut self, cx: &mut Cx, p: TaskId, prev: Cpu, _: WakeFlags) -> Placement {
        cx.charge(Func::SelectTaskRq, cx.machine.costs.select_base);
        let allowed = *cx.sh.allowed(p);
        let n = allowed.weight() as u64;
        self.draws += 1;
        let nth = cx.sh.noise.below(Stream::Ties, u64::MAX, self.draws, n) as usize;
        let drawn = allowed.iter().nth(nth).unwrap_or(prev);
        if !allowed.has(prev) || length(cx, drawn) < length(cx, prev) {
            return Placement { cpu: drawn, rule: &DRAWN };
        }
        Placement { cpu: prev, rule: &PREV }
    }

    fn enqueue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: EnqueueFlags) {
        self.rr.enqueue_task(cx, cpu, p, flags);
    }
    fn dequeue_task(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: DequeueFlags) -> bool {
        self.rr.dequeue_task(cx, cpu, p, flags)
    }
    fn wakeup_preempt(&mut self, cx: &mut Cx, cpu: Cpu, p: TaskId, flags: WakeFlags) {
        self.rr.wakeup_preempt(cx, cpu, p, flags);
    }
    fn pick_next_task(&mut self, cx: &mut Cx, cpu: Cpu) -> Pick {
        self.rr.pick_next_task(cx, cpu)
    }
    fn task_tick(&mut self, cx: &mut Cx, cpu: Cpu) -> TickWork {
        self.rr.task_tick(cx, cpu)
    }
    fn task_group_new(&mut self, cx: &mut Cx, parent: TgId) -> TgId {
        self.rr.task_group_new(cx, parent)
    }
    fn moved(&mut self) -> &mut Vec<Moved> {
        self.rr.moved()
    }
    fn set_policy(&mut self, cx: &mut Cx, p: TaskId, policy: Policy, prio: i8) {
        self.rr.set_policy(cx, p, policy, prio);
    }
}
