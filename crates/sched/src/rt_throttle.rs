//! RT throttling: real-time tasks may use a part of each period, from 5.10 to 6.11.
//!
//! **What.** Every CPU counts how long it has run RT tasks. Beyond the runtime its RT tasks are
//! throttled: they stay queued, do not count in `nr_running`, and what runs is of a lower class, or
//! nothing. One timer for all CPUs ends a period and forgives each CPU one runtime; who has used
//! less than that may run again. The timer begins with the first RT task and stops when a period
//! has seen none.
//! **Source.** Linux 6.1.192, kernel/sched/rt.c: `update_curr_rt`, `sched_rt_runtime_exceeded`,
//! `do_sched_rt_period_timer`, `start_rt_bandwidth`. A recording of 6.1.192 with a FIFO task that
//! never sleeps: CPU idle, or with others, for 46 to 56 ms before each full second.
//! **Equations.** used ← max(0, used − runtime) per period; throttled while used > runtime.
//! Runtime 950 ms, period 1 s. Looked at when a task is switched out, blocks, and at ticks.
//! **Departures.** D1: no groups of RT tasks, no borrowing of other CPUs' runtime
//! (`RT_RUNTIME_SHARE`, on before 5.10: those kernels have no limit here). D2: time in interrupts
//! counts. D3: the timer does not wait for the queues' locks; looking at a CPU costs it what it
//! costs the balancer.
//! **Example.** A FIFO task starts at 0 and never sleeps. The tick after 950 ms throttles it, the
//! timer lets it go on at 1000 ms, with what the tick came late already used.

use crate::cx::Cx;
use crate::release::{Release, RtLimit};
use vruntime_base::{Cpu, Func, Ns};

#[derive(Clone, Copy, Debug)]
struct OfCpu {
    /// Its RT task runs since then, as far as that is not in `used`.
    since: Ns,
    used: Ns,
    throttled: bool,
}

/// State of all CPUs.
pub struct Throttle {
    runtime: Ns,
    period: Ns,
    cpus: Vec<OfCpu>,
    /// When the timer is due; NEVER while it is off.
    ends: Ns,
    /// There is a limit at all.
    on: bool,
}

impl Throttle {
    /// Nothing used yet.
    pub fn new(nr_cpus: usize, release: &Release) -> Throttle {
        let cpu = OfCpu { since: Ns::ZERO, used: Ns::ZERO, throttled: false };
        let (runtime, period) = (Ns(release.rt_runtime_ns), Ns(release.rt_period_ns));
        let on = release.rt_limit == RtLimit::Throttling && runtime < period;
        Throttle { runtime, period, cpus: vec![cpu; nr_cpus], ends: Ns::NEVER, on }
    }

    /// The RT tasks of `cpu` may not run.
    #[inline]
    pub fn is_throttled(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.ix()].throttled
    }

    /// An RT task was queued: periods begin if none is on.
    pub fn queued(&mut self, cx: &mut Cx) {
        if self.on && self.ends == Ns::NEVER {
            self.ends = cx.now + self.period;
            cx.start_timer(cx.cpu, self.ends);
        }
    }

    /// An RT task begins to run on `cpu`.
    pub fn begins(&mut self, cpu: Cpu, now: Ns) {
        self.cpus[cpu.ix()].since = now;
    }

    /// An RT task has run on `cpu` until `now`. True if the CPU is throttled from now on.
    pub fn ran(&mut self, cpu: Cpu, now: Ns) -> bool {
        let s = &mut self.cpus[cpu.ix()];
        s.used += now.saturating_sub(s.since);
        s.since = now.max(s.since);
        let exceeds = self.on && !s.throttled && s.used > self.runtime;
        s.throttled |= exceeds;
        exceeds
    }

    /// The timer has expired on `cx.cpu`. `nr_rt`: RT tasks that `cpu` has. Gives the CPUs whose
    /// tasks may run again.
    pub fn period(&mut self, cx: &mut Cx, nr_rt: impl Fn(Cpu) -> u32) -> Vec<Cpu> {
        if cx.now < self.ends {
            return vec![];
        }
        let mut freed = vec![];
        let mut idle = true;
        for (cpu, s) in self.cpus.iter_mut().enumerate().map(|(i, s)| (Cpu::from_ix(i), s)) {
            let none = nr_rt(cpu) == 0;
            if s.used.0 == 0 && none {
                continue;
            }
            cx.charge(Func::Timer, cx.machine.costs.balance_cpu);
            s.used = s.used.saturating_sub(self.runtime);
            idle &= s.used.0 == 0 && none;
            if s.throttled && s.used < self.runtime {
                s.throttled = false;
                freed.push(cpu);
            }
        }
        self.ends = if idle { Ns::NEVER } else { self.ends + self.period };
        if !idle {
            cx.start_timer(cx.cpu, self.ends);
        }
        freed
    }
}
