//! The idle loop: how deep a CPU stops and how it comes back.
//!
//! *What.* A CPU with nothing to run stops in the idle state that the governor chooses (`menu`, in
//! guests `haltpoll`), perhaps stops its tick, and leaves by a store to its flags (while polling or
//! in mwait) or by an interrupt.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/sched/idle.c `do_idle`, kernel/time/tick-sched.c;
//! the machine file for latencies.
//! *Equations.* None.
//! *Departures.* D1: a CPU that was interrupted only to balance goes straight back. D2: it polls
//! while it serves interrupts, too: as the kernel does in the polling state and in those entered
//! with interrupts on (C1 of intel_idle on servers); out of others the flag is cleared first.
//! *Example.* A CPU idle for 2 µs again and again expects 2 µs: it stops in C1 with its tick on and
//! comes back within C1's exit latency.

use crate::frame::Frame;
use crate::menu::{self, Choice, Ended, Rules};
use crate::sim::Sim;
use vruntime_base::{Cpu, Func, Ns, Resource};
use vruntime_machine::Governor;

impl Sim {
    /// The idle task is current; the CPU is about to stop.
    pub(crate) fn enter_idle(&mut self, c: Cpu) {
        let pending = self.sh.rqs[c.ix()].need_resched || !self.cpus[c.ix()].wake_list.is_empty();
        if pending {
            self.plan(c, self.now, Frame::IdleExit);
            return;
        }
        let mut at = self.now + self.work(c, Func::Idle, self.machine.costs.idle_enter);
        let cpu = &self.cpus[c.ix()];
        let timer = cpu.timer_at.saturating_sub(self.now);
        let to_tick = (cpu.tick_at < Ns::NEVER).then(|| cpu.tick_at.saturating_sub(self.now));
        let Choice { state, stop_tick } = self.choose_idle_state(c, timer, to_tick);
        if stop_tick && !self.sh.rqs[c.ix()].tick_stopped {
            let ((), cost) = self.hook(c, at, |s, cx| s.tick_stopped(cx, c, true));
            at += cost;
            self.sh.rqs[c.ix()].tick_stopped = true;
            self.cpus[c.ix()].tick_at = Ns::NEVER;
        }
        let polling = self.machine.idle[state].polling;
        let limit = self.poll_limit(c, state);
        self.set_busy(c, false);
        self.stats.idle[state].entered += 1;
        let cpu = &mut self.cpus[c.ix()];
        cpu.idle_state = state as u8;
        cpu.polling = polling;
        cpu.frames[0] = Frame::Idle;
        cpu.idle_since = at;
        cpu.idle_booked = at;
        cpu.op_end = limit.map_or(Ns::NEVER, |limit| at + limit);
        cpu.update_irq();
    }

    /// The state that the machine's governor has `c` enter: `timer` is the time to its next timer,
    /// `to_tick` that to its next tick, none if the tick is stopped.
    pub(crate) fn choose_idle_state(&mut self, c: Cpu, timer: Ns, to_tick: Option<Ns>) -> Choice {
        let (cpu, states) = (&mut self.cpus[c.ix()], &self.machine.idle);
        let release = &self.sh.release;
        match self.machine.governor {
            Governor::Menu => {
                let tick = Ns(release.tick_ns());
                cpu.menu.choose(states, timer, to_tick, tick, Rules::of(release))
            }
            Governor::Haltpoll(_) => cpu.haltpoll.choose(states),
        }
    }

    /// How long `c` stays in `state` at the most: only the polling loop has a limit.
    fn poll_limit(&self, c: Cpu, state: usize) -> Option<Ns> {
        let states = &self.machine.idle;
        match self.machine.governor {
            Governor::Menu => {
                let tick = Ns(self.sh.release.tick_ns());
                menu::poll_limit(states, state, self.machine.topo.arch(), tick)
            }
            Governor::Haltpoll(_) => {
                (state == 0 && states.len() > 1).then(|| self.cpus[c.ix()].haltpoll.poll_limit())
            }
        }
    }

    /// Nothing has come while it polled: it chooses anew.
    pub(crate) fn polled_long_enough(&mut self, c: Cpu) {
        let at = self.now + self.wake_from_stop(c, self.now);
        self.plan(c, at, Frame::EnterIdle);
    }

    /// The stopped CPU begins to come back at `at`: books its idle time and the exit latency.
    /// Returns the latency.
    pub(crate) fn wake_from_stop(&mut self, c: Cpu, at: Ns) -> Ns {
        let cpu = &mut self.cpus[c.ix()];
        // Woken while still entering: idle time is zero, not negative.
        let begin = cpu.idle_since.max(at);
        let idle = begin - cpu.idle_since;
        cpu.idle_since = begin;
        let state = &self.machine.idle[cpu.idle_state as usize];
        let latency = Ns(u64::from(state.exit_latency_ns));
        let ended = match () {
            _ if cpu.tick_at <= at => Ended::Tick,
            _ if cpu.op_end <= at => Ended::Limit,
            _ => Ended::Event,
        };
        match self.machine.governor {
            Governor::Menu => {
                cpu.menu.note(idle + latency, state, ended, Ns(self.sh.release.tick_ns()));
            }
            Governor::Haltpoll(most) => {
                cpu.haltpoll.note(usize::from(cpu.idle_state), idle + latency, ended, most);
            }
        }
        self.book_idle(c, begin);
        self.sh.ledger.book(c, Func::IdleExit, Resource::None, latency);
        begin - at + latency
    }

    /// Books what the stopped CPU has been idle since that was booked last.
    pub(crate) fn book_idle(&mut self, c: Cpu, until: Ns) {
        let cpu = &mut self.cpus[c.ix()];
        let d = until.saturating_sub(cpu.idle_booked);
        cpu.idle_booked = until.max(cpu.idle_booked);
        self.stats.idle[usize::from(cpu.idle_state)].time += d;
        self.sh.ledger.book(c, Func::Idle, Resource::None, d);
    }

    /// A store to its flags ends the idle state of `c` at `at`.
    pub(crate) fn leave_idle(&mut self, c: Cpu, at: Ns) {
        let out = at + self.wake_from_stop(c, at);
        self.plan(c, out, Frame::IdleExit);
        self.arm(c);
    }

    /// Out of the idle state by a store: the tick, the wake list, then `schedule()`.
    pub(crate) fn idle_exit(&mut self, c: Cpu) {
        self.set_busy(c, true);
        let at = self.restart_tick(c, self.now);
        if at > self.now {
            self.plan(c, at, Frame::Flush);
        } else {
            self.flush(c);
        }
    }

    /// An interrupt in idle is over at `at`.
    pub(crate) fn after_irq_in_idle(&mut self, c: Cpu, at: Ns) {
        if self.sh.rqs[c.ix()].need_resched || !self.cpus[c.ix()].wake_list.is_empty() {
            self.plan(c, at, Frame::IdleExit);
        } else {
            self.plan(c, at, Frame::EnterIdle);
        }
    }

    /// The tick runs again, on the common grid, from `at` on; returns when that is done.
    fn restart_tick(&mut self, c: Cpu, mut at: Ns) -> Ns {
        if !self.sh.rqs[c.ix()].tick_stopped && self.cpus[c.ix()].tick_at < Ns::NEVER {
            return at;
        }
        if self.sh.rqs[c.ix()].tick_stopped {
            self.sh.rqs[c.ix()].tick_stopped = false;
            let ((), cost) = self.hook(c, at, |s, cx| s.tick_stopped(cx, c, false));
            at += cost;
        }
        let tick = Ns(self.sh.release.tick_ns());
        let cpu = &mut self.cpus[c.ix()];
        cpu.tick_at = cpu.tick_after(at, tick);
        cpu.update_irq();
        at
    }
}
