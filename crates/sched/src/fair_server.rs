//! The fair server: what real-time tasks leave to the fair class, from 6.12 on.
//!
//! **What.** Every CPU has a deadline server with a budget for its fair tasks. What they run on
//! their own, and what the CPU idles, is taken off the budget; used up, it is renewed with a new
//! deadline. As long as RT tasks keep them from it the server waits for the last moment from which
//! the budget still fits before the deadline. Then fair tasks go before RT tasks until it is used
//! up.
//! **Source.** Linux 6.12.117, kernel/sched/deadline.c: `dl_server_start`, `dl_server_timer`,
//! `update_curr_dl_se`, `replenish_dl_new_period`. Recordings of 6.12.117 and 6.18.15 with a FIFO
//! and a fair task that never sleep: the fair one runs for 52 to 68 ms, again 952 to 973 ms after
//! it had to stop; twice for 101 ms, or after a full second.
//! **Equations.** budget = period − RT runtime = 50 ms, deadline = start + 1 s; zero laxity at
//! deadline − what is left of the budget. Looked at when a task is switched out, and at ticks.
//! **Departures.** D1: no other deadline tasks; so the server is ahead of all but stoppers. D2: a
//! budget that ends after its deadline is over, too, and the next one begins then (the kernel at
//! times goes on with it at once). D3: a queue to which balancing brings the first fair task
//! starts its server at the next tick, and one from which it takes the last stops it when the
//! timer is due. D4: the server's timer costs its interrupt only. D5: `rt_runtime_ns` sets the
//! budget; the kernel has files of its own for that (debugfs, `sched/fair_server`). D6: while no RT
//! task runs the server does not stop, as if the CPU were never idle.
//! **Example.** A FIFO task and a fair one never sleep, from 0 on. The fair one runs from 950 ms to
//! the tick after 1000 ms, and again 950 ms later.

use crate::cx::Cx;
use crate::release::{Release, RtLimit};
use vruntime_base::{Cause, CauseKind, Cpu, Ns};

/// Fair tasks have waited for RT tasks for as long as they may.
pub static FAIR_SERVER: Cause = Cause::new(CauseKind::Resched, "fair server: zero laxity");
/// Fair tasks have used up what they are to have beside RT tasks.
pub static BUDGET_USED: Cause = Cause::new(CauseKind::Resched, "fair server: budget used up");

#[derive(Clone, Copy, Debug)]
struct Server {
    /// Since when no RT task runs, as far as that is not off the budget; NEVER while one runs.
    since: Ns,
    /// What is left.
    budget: Ns,
    deadline: Ns,
    /// Fair tasks go before RT tasks.
    serves: bool,
    /// It has served with this budget (`dl_defer_running`): who comes back is served at once.
    served: bool,
    /// Fair tasks wait for an RT task.
    active: bool,
    /// When the timer is due; NEVER while it is off.
    timer: Ns,
}

/// The servers of all CPUs.
pub struct FairServer {
    period: Ns,
    budget: Ns,
    cpus: Vec<Server>,
    /// There are servers; else every CPU stays as if no RT task ran.
    on: bool,
}

impl FairServer {
    /// Nobody waits yet.
    pub fn new(nr_cpus: usize, release: &Release) -> FairServer {
        let period = Ns(release.rt_period_ns);
        let budget = period.saturating_sub(Ns(release.rt_runtime_ns));
        let on = release.rt_limit == RtLimit::FairServer && budget.0 > 0;
        let server = Server {
            since: Ns::ZERO,
            budget,
            deadline: period,
            serves: false,
            served: false,
            active: false,
            timer: Ns::NEVER,
        };
        FairServer { period, budget, cpus: vec![server; nr_cpus], on }
    }

    /// Fair tasks of `cpu` go before RT tasks.
    #[inline]
    pub fn serves(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.ix()].serves
    }

    fn renew(&mut self, cpu: Cpu, at: Ns) {
        let s = &mut self.cpus[cpu.ix()];
        (s.budget, s.deadline) = (self.budget, at + self.period);
    }

    /// No RT task has run on `cpu` until `now`. True if the server has to stop serving.
    pub fn ran(&mut self, cpu: Cpu, now: Ns) -> bool {
        let s = &mut self.cpus[cpu.ix()];
        if s.since == Ns::NEVER {
            return false;
        }
        let d = now.saturating_sub(s.since);
        s.since = now.max(s.since);
        if d < s.budget {
            s.budget -= d;
            return false;
        }
        // Several may have been used one after the other.
        let into = Ns((d - s.budget).0 % self.budget.0);
        let served = std::mem::take(&mut s.serves);
        s.served = false;
        self.renew(cpu, if served { now } else { now - into });
        if !served {
            self.cpus[cpu.ix()].budget -= into;
        }
        served
    }

    /// An RT task begins to run on `cpu`, beside `nr_fair` runnable fair tasks.
    pub fn rt_begins(&mut self, cx: &mut Cx, cpu: Cpu, nr_fair: u32) {
        if !self.on {
            return;
        }
        self.ran(cpu, cx.now);
        let s = &mut self.cpus[cpu.ix()];
        (s.since, s.serves, s.active) = (Ns::NEVER, false, nr_fair > 0);
        if s.active {
            self.wait_for_zero_laxity(cx, cpu);
        }
    }

    /// What is no RT task and no stopper begins to run on `cpu`.
    #[inline]
    pub fn rt_ends(&mut self, cpu: Cpu, now: Ns) {
        let s = &mut self.cpus[cpu.ix()];
        if s.since == Ns::NEVER {
            s.since = now;
            if !s.active {
                self.starts_anew(cpu, now);
            }
        }
    }

    /// `update_dl_entity` with `dl_entity_overflow`: who has had nobody to serve begins with a new
    /// budget if its deadline is over, or if what is left of the old one would be more than its
    /// share until then.
    fn starts_anew(&mut self, cpu: Cpu, now: Ns) {
        let s = &self.cpus[cpu.ix()];
        let left = s.deadline.saturating_sub(now);
        if u128::from(s.budget.0) * u128::from(self.period.0)
            > u128::from(left.0) * u128::from(self.budget.0)
        {
            self.renew(cpu, now);
        }
    }

    /// A fair task of `cpu` is queued: the first one that an RT task keeps waiting starts the
    /// server.
    pub fn starts(&mut self, cx: &mut Cx, cpu: Cpu) {
        let s = &mut self.cpus[cpu.ix()];
        if s.since != Ns::NEVER || s.active {
            return;
        }
        s.active = true;
        self.starts_anew(cpu, cx.now);
        let s = &mut self.cpus[cpu.ix()];
        if s.served {
            s.serves = true;
            cx.resched_curr(cpu, &FAIR_SERVER);
        } else {
            self.wait_for_zero_laxity(cx, cpu);
        }
    }

    fn wait_for_zero_laxity(&mut self, cx: &mut Cx, cpu: Cpu) {
        let s = &mut self.cpus[cpu.ix()];
        if s.timer == Ns::NEVER {
            s.timer = s.deadline.saturating_sub(s.budget).max(cx.now);
            cx.start_timer(cpu, s.timer);
        }
    }

    /// A timer has expired on `cpu`, which has `nr_fair` fair tasks.
    pub fn timer(&mut self, cx: &mut Cx, cpu: Cpu, nr_fair: u32) {
        let s = &mut self.cpus[cpu.ix()];
        if cx.now < s.timer {
            return;
        }
        s.timer = Ns::NEVER;
        if s.since != Ns::NEVER || nr_fair == 0 {
            s.active = false; // nobody waits
            return;
        }
        if cx.now < s.deadline.saturating_sub(s.budget) {
            self.wait_for_zero_laxity(cx, cpu); // they ran meanwhile
        } else {
            (s.serves, s.served) = (true, true);
            cx.resched_curr(cpu, &FAIR_SERVER);
        }
    }
}
