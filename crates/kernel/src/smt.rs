//! SMT: how fast a thread runs while its siblings are busy.
//!
//! *What.* A thread's speed depends on nothing but the number of busy threads in its core: of
//! those that have not stopped in an idle state, whatever they do. When that number changes, what
//! each of them is doing takes longer or shorter from that moment on.
//! *Source.* Throughput per core with all threads busy over one thread busy, as vendors and
//! benchmark papers give it; values per machine in its file (`smt_speed`).
//! *Equations.* Speed in 1/1024 of full speed for `k` busy threads; slowdown = 1024² / speed; what
//! is left of an operation becomes left × new slowdown / old slowdown.
//! *Departures.* D1: all programs suffer alike. D2: a polling idle thread counts as idle. D3: what
//! is done with interrupts off (a switch under the run queue lock), in an interrupt, in a softirq
//! or in the idle loop keeps the time that it was begun with, and so do waits for a lock; of any
//! other operation all that is left changes, its waits for lines included.
//! *Example.* At speed 640, 100 ns of work take 160 ns. If the sibling goes idle after half of
//! them, the other half takes 50 ns.

use crate::frame::Frame;
use crate::sim::Sim;
use vruntime_base::{Cpu, Func, Ns, Resource};

impl Sim {
    /// `c` becomes busy or idle: its siblings slow down or speed up from now on.
    pub(crate) fn set_busy(&mut self, c: Cpu, busy: bool) {
        let was = std::mem::replace(&mut self.cpus[c.ix()].busy, busy);
        if self.paces.len() == 1 || was == busy {
            return;
        }
        let core = self.machine.topo.core_id(c);
        let n = &mut self.core_busy[core];
        if busy {
            *n += 1;
        } else {
            *n -= 1;
        }
        let pace = (*n).max(1) - 1;
        let siblings = *self.machine.topo.smt(c);
        for s in siblings.iter() {
            if s == c {
                self.cpus[s.ix()].pace = pace;
                self.cpus[s.ix()].slowdown = self.paces[pace as usize].slowdown;
            } else {
                self.change_speed(s, pace);
            }
        }
    }

    /// The operation in progress on `c` takes longer or shorter from now on.
    fn change_speed(&mut self, c: Cpu, pace: u8) {
        let now = self.now;
        let slowdown = self.paces[pace as usize].slowdown;
        let cpu = &mut self.cpus[c.ix()];
        let old = cpu.slowdown;
        cpu.pace = pace;
        cpu.slowdown = slowdown;
        if old == slowdown {
            return;
        }
        if matches!(cpu.frames[0], Frame::MutexWake | Frame::Rest | Frame::Wake) {
            self.change_speed_of_rest(c, old, slowdown);
            return;
        }
        if !matches!(cpu.frames[0], Frame::Task) || cpu.spin.is_some() {
            return;
        }
        if cpu.level != 0 {
            self.change_speed_of_interrupted(c, old, slowdown);
            return;
        }
        if cpu.op_end >= Ns::NEVER || cpu.op_end <= now {
            return;
        }
        // What is done with interrupts off (a switch under the run queue lock) keeps its time.
        let from = now.max(cpu.irqs_on_at);
        let (num, den) = (u64::from(slowdown), u64::from(old));
        let stretch =
            |t: Ns| -> Ns { if t <= from { t } else { from + (t - from).mul_div(num, den) } };
        let end = stretch(cpu.op_end);
        let was = cpu.op_end;
        cpu.op_end = end;
        cpu.user_from = stretch(cpu.user_from);
        cpu.user_to = stretch(cpu.user_to);
        let func = cpu.func;
        let mutex = cpu.mutex;
        self.rebook(c, func, was, end);
        if mutex.is_some() && self.holds_mutex(c, mutex) {
            let free_at = stretch(self.pipe(mutex).mutex.free_at);
            self.mutex_free_at(c, mutex, free_at);
        }
        self.arm(c);
    }

    /// As `change_speed`, for what is left of an operation that was cut; what comes before that
    /// keeps its time.
    fn change_speed_of_rest(&mut self, c: Cpu, old: u32, slowdown: u32) {
        let cpu = &mut self.cpus[c.ix()];
        let scale = |d: Ns| d.mul_div(u64::from(slowdown), u64::from(old));
        let rest = &mut cpu.rest;
        let was = rest.takes;
        rest.takes = scale(was);
        (rest.user_from, rest.user_to) = (scale(rest.user_from), scale(rest.user_to));
        let (func, takes) = (cpu.func, rest.takes);
        self.rebook(c, func, was, takes);
    }

    /// As `change_speed`, for what is left of an operation that an interrupt has suspended.
    fn change_speed_of_interrupted(&mut self, c: Cpu, old: u32, slowdown: u32) {
        let cpu = &mut self.cpus[c.ix()];
        let (from, left) = (cpu.suspended_at[0], cpu.saved[0]);
        if left >= Ns::NEVER {
            return;
        }
        let scale = |d: Ns| d.mul_div(u64::from(slowdown), u64::from(old));
        let stretch = |t: Ns| if t <= from { t } else { from + scale(t - from) };
        let scaled = scale(left);
        cpu.saved[0] = scaled;
        cpu.user_from = stretch(cpu.user_from);
        cpu.user_to = stretch(cpu.user_to);
        cpu.mutex_left = scale(cpu.mutex_left);
        let func = cpu.func;
        self.rebook(c, func, left, scaled);
    }

    /// What was booked as `was` takes until `is` instead.
    fn rebook(&mut self, c: Cpu, func: Func, was: Ns, is: Ns) {
        if is >= was {
            self.sh.ledger.book(c, func, Resource::None, is - was);
        } else {
            self.sh.ledger.unbook(c, func, Resource::None, was - is);
        }
    }
}
