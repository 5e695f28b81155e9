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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Rest;
    use crate::sample::{PIPE, sim_on, uma_8};
    use vruntime_base::TaskId;
    use vruntime_machine::TopologySpec;

    const C: Cpu = Cpu(0);
    const SIBLING: Cpu = Cpu(1);

    /// Both threads of a core are busy, at speed 640, and what `C` does takes 160 ns, of which 80
    /// are over.
    fn half_way() -> Sim {
        let mut machine = uma_8();
        let TopologySpec::Regular(r) = &mut machine.topology else { panic!("uma-8 is regular") };
        (r.cores_per_node, r.cores_per_llc, r.threads_per_core) = (4, 4, 2);
        let mut both = machine.smt_speed[0].clone();
        (both.low, both.mid, both.high) = (640, 640, 640);
        machine.smt_speed.push(both);
        let mut s = sim_on(machine, "v6.1", 2);
        s.set_busy(C, true);
        s.set_busy(SIBLING, true);
        s.sh.rqs[C.ix()].curr = TaskId::from_ix(s.tasks.len() - 1);
        s.sh.ledger.book(C, Func::User, Resource::None, Ns(160));
        s.plan(C, s.now + Ns(160), Frame::Task);
        s.cpus[C.ix()].func = Func::User;
        s.now += Ns(80);
        s
    }

    fn booked(s: &Sim) -> u64 {
        s.sh.ledger.get(C, Func::User, Resource::None).0
    }

    #[test]
    fn the_other_half_takes_50_ns_beside_an_idle_sibling() {
        let mut s = half_way();
        let cpu = &mut s.cpus[C.ix()];
        (cpu.user_from, cpu.user_to) = (s.now + Ns(32), s.now + Ns(64));
        s.set_busy(SIBLING, false);
        let times = |s: &Sim| {
            let cpu = &s.cpus[C.ix()];
            [cpu.op_end, cpu.user_from, cpu.user_to].map(|t| (t - s.now).0)
        };
        assert_eq!((times(&s), booked(&s)), ([50, 20, 40], 130));
        // All of it is left when the sibling comes back.
        s.set_busy(SIBLING, true);
        assert_eq!((times(&s), booked(&s)), ([79, 31, 63], 159));
    }

    /// For 40 ns more interrupts are off, as in a switch: they keep their time, the others do not.
    #[test]
    fn what_is_done_with_interrupts_off_keeps_its_time() {
        let mut s = half_way();
        s.cpus[C.ix()].irqs_on_at = s.now + Ns(40);
        s.set_busy(SIBLING, false);
        assert_eq!((s.cpus[C.ix()].op_end, booked(&s)), (s.now + Ns(40 + 25), 145));
    }

    /// It releases the mutex sooner, and the CPU that spins for it has it three transfers later.
    #[test]
    fn a_held_mutex_is_released_when_its_operation_comes_to_it() {
        let mut s = half_way();
        let spinner = Cpu(2);
        let (owner, free_at) = (s.curr(C), s.now + Ns(64));
        let m = &mut s.pipe(PIPE).mutex;
        (m.owner, m.last_cpu, m.free_at, m.spin_head) = (owner, C, free_at, spinner);
        s.cpus[C.ix()].mutex = PIPE;
        s.set_busy(SIBLING, false);
        let free_at = s.now + Ns(40);
        assert_eq!((s.pipe(PIPE).mutex.free_at, s.cpus[C.ix()].op_end), (free_at, s.now + Ns(50)));
        let handover = vruntime_machine::HANDOVER * s.transfer(C, spinner).0;
        assert_eq!(s.cpus[spinner.ix()].op_end, free_at + Ns(handover));
    }

    /// What is left of an operation that was cut to wake somebody. The wakeup keeps its time.
    #[test]
    fn the_rest_of_a_cut_operation_changes() {
        for frame in [Frame::MutexWake, Frame::Wake, Frame::Rest] {
            let mut s = half_way();
            let end = s.now + Ns(7);
            let cpu = &mut s.cpus[C.ix()];
            (cpu.frames[0], cpu.op_end) = (frame, end);
            cpu.rest =
                Rest { takes: Ns(80), user_from: Ns(32), user_to: Ns(64), then: Frame::Task };
            s.set_busy(SIBLING, false);
            let Rest { takes, user_from, user_to, .. } = s.cpus[C.ix()].rest;
            assert_eq!([takes, user_from, user_to], [50, 20, 40].map(Ns), "{frame:?}");
            assert_eq!((s.cpus[C.ix()].op_end, booked(&s)), (end, 130), "{frame:?}");
        }
    }

    /// What is left of an operation that an interrupt or a softirq has suspended 10 ns ago. They
    /// keep their time.
    #[test]
    fn what_is_interrupted_changes() {
        for level in [1, 2] {
            let mut s = half_way();
            let (since, end) = (s.now - Ns(10), s.now + Ns(7));
            let cpu = &mut s.cpus[C.ix()];
            (cpu.level, cpu.op_end) = (level, end);
            (cpu.suspended_at[0], cpu.saved, cpu.mutex_left) = (since, [Ns(80); 2], Ns(64));
            (cpu.user_from, cpu.user_to) = (since + Ns(32), since + Ns(64));
            s.set_busy(SIBLING, false);
            let cpu = &s.cpus[C.ix()];
            assert_eq!((cpu.op_end, cpu.saved, cpu.mutex_left), (end, [Ns(50), Ns(80)], Ns(40)));
            assert_eq!((cpu.user_from, cpu.user_to), (since + Ns(20), since + Ns(40)));
            assert_eq!(booked(&s), 130);
        }
    }

    /// A switch, a wait for a lock, or the idle loop; who spins for a mutex; who was interrupted
    /// while spinning.
    #[test]
    fn what_is_no_work_of_a_task_keeps_its_time() {
        let kept = |change: &dyn Fn(&mut crate::frame::CpuSim)| {
            let mut s = half_way();
            change(&mut s.cpus[C.ix()]);
            let was = (s.cpus[C.ix()].op_end, s.cpus[C.ix()].saved);
            s.set_busy(SIBLING, false);
            assert_eq!(
                (s.cpus[C.ix()].op_end, s.cpus[C.ix()].saved, booked(&s)),
                (was.0, was.1, 160)
            );
            assert_eq!(s.cpus[C.ix()].slowdown, 1024);
        };
        for frame in [Frame::Schedule, Frame::Locked, Frame::QueueLocked, Frame::EnterIdle] {
            kept(&|cpu| cpu.frames[0] = frame);
        }
        kept(&|cpu| cpu.spin = PIPE);
        kept(&|cpu| (cpu.level, cpu.saved[0]) = (1, Ns::NEVER));
    }
}
