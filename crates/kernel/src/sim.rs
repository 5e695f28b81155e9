//! `simulate`: the state of a run and its event loop.
//!
//! *What.* Every CPU is in the middle of one operation; the loop takes the CPU whose operation (or
//! interrupt) comes next, lets its kernel code act at that moment, and plans the CPU's next
//! operation. State changes happen at events only; between two events of a CPU nothing that
//! another CPU could see changes.
//! *Source.* ARCHITECTURE.md, "How time passes".
//! *Equations.* For each CPU: booked in the ledger = elapsed + planned beyond now.
//! *Departures.* D1: short stretches with interrupts off inside system calls are not modelled;
//! wakeups, `schedule()` and whoever holds a run queue lock keep interrupts off.
//! *Example.* One CPU, one task that computes 1 ms: the events are its wakeup, a switch, ticks, and
//! the exit.

use crate::event::Events;
use crate::files::FileTable;
use crate::frame::{CpuSim, Frame};
use crate::lazy_tlb::SharedMms;
use crate::path::Pace;
use crate::pipe_ops::Rules;
use crate::program::{ChannelId, Program};
use crate::queue_lines::QueueLines;
use crate::stats::Stats;
use crate::stop::StopWork;
use crate::task::KTask;
use crate::unix::UnixSock;
use crate::variation::Knockouts;
use crate::wait::WaitQueue;
use crate::{pipe::Pipe, simulate::Watch};
use vruntime_base::{Cause, Cpu, Event, EventKind, Func, Ns, Resource, TaskId, flag};
use vruntime_machine::{Lock, LockQueue, Machine};
use vruntime_sched::cx::{Cx, Shared};
use vruntime_sched::scheduler::Scheduler;

/// One direction of data between tasks.
pub enum Channel {
    /// A pipe.
    Pipe(Pipe),
    /// One direction of a Unix stream socket.
    Unix(UnixSock),
}

/// A run in progress.
pub struct Sim {
    /// The current event's moment.
    pub(crate) now: Ns,
    pub(crate) sched: Box<dyn Scheduler>,
    pub(crate) sh: Shared,
    pub(crate) machine: Machine,
    /// Reschedules asked for by the hook being called.
    pub(crate) resched: Vec<(Cpu, &'static Cause)>,
    pub(crate) events: Events,
    pub(crate) cpus: Vec<CpuSim>,
    pub(crate) tasks: Vec<KTask>,
    pub(crate) channels: Vec<Channel>,
    /// By address space; those beyond its end are as they were made.
    pub(crate) files: Vec<FileTable>,
    pub(crate) futexes: Vec<WaitQueue>,
    pub(crate) programs: Vec<Box<dyn Program>>,
    pub(crate) rq_locks: Vec<Lock>,
    pub(crate) queue_lines: QueueLines,
    /// The address spaces that threads share.
    pub(crate) shared_mms: SharedMms,
    /// Who waits behind whom for a lock, of a run queue or a wait queue.
    pub(crate) spinners: LockQueue,
    /// Work for the stopper of each CPU.
    pub(crate) stop_work: Vec<Vec<StopWork>>,
    /// Busy hardware threads of each core, by the core's first CPU.
    pub(crate) core_busy: Vec<u8>,
    /// By number of busy threads in a core, less one.
    pub(crate) paces: Vec<Pace>,
    /// Position of each CPU among simultaneous events, drawn from the seed.
    pub(crate) slot_of: Vec<u16>,
    pub(crate) cpu_of: Vec<Cpu>,
    pub(crate) stats: Stats,
    pub(crate) groups_of_workload: Vec<vruntime_sched::task::TgId>,
    pub(crate) without: Knockouts,
    pub(crate) pipe_rules: Rules,
}

impl Sim {
    /// Calls hooks of the scheduler at `at` on `c`; gives what `call` gives, and what it cost.
    #[inline(always)]
    pub(crate) fn hook<R>(
        &mut self,
        c: Cpu,
        at: Ns,
        call: impl FnOnce(&mut dyn Scheduler, &mut Cx) -> R,
    ) -> (R, Ns) {
        let mut cx = Cx {
            now: at,
            cpu: c,
            cost: Ns::ZERO,
            slowdown: self.cpus[c.ix()].slowdown,
            sh: &mut self.sh,
            machine: &mut self.machine,
            resched: &mut self.resched,
        };
        let result = call(&mut *self.sched, &mut cx);
        let cost = cx.cost;
        if self.sh.accounted.is_some() {
            self.note_accounted(c, at);
        }
        if !self.sh.timers.is_empty() {
            self.start_timers();
        }
        (result, cost)
    }

    /// `tracing_gen_ctx`: what the scheduler's events on `c` tell of it after the first `asked`
    /// requests of a hook. Interrupts are off there.
    #[inline]
    fn trace_flags(&self, c: Cpu, asked: usize) -> u8 {
        let cpu = &self.cpus[c.ix()];
        let asked = &self.resched[..asked.min(self.resched.len())];
        let resched = self.sh.rqs[c.ix()].need_resched || asked.iter().any(|r| r.0 == c);
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        flag::IRQS_OFF
            | bit(resched, flag::NEED_RESCHED)
            | bit(cpu.level == 2, flag::HARDIRQ)
            | bit(cpu.in_softirq, flag::SOFTIRQ)
    }

    /// Events of what a hook that `c` called at `at` accounted.
    #[cold]
    fn note_accounted(&mut self, c: Cpu, at: Ns) {
        let Some(mut list) = self.sh.accounted.take() else { return };
        for (task, ran, asked) in list.drain(..) {
            let (a, b) = (ran.0 as u32, (ran.0 >> 32) as u32);
            self.trace_after(asked, Event { a, b, ..Event::new(at, c, EventKind::Runtime, task) });
        }
        self.sh.accounted = Some(list);
    }

    /// Puts an event on `e.cpu` into the timeline, with what is known there of the moment.
    #[inline]
    pub(crate) fn trace(&mut self, e: Event) {
        self.trace_after(usize::MAX, e);
    }

    /// The same of an event after which the hook went on: it had asked for `asked` reschedules.
    #[inline]
    fn trace_after(&mut self, asked: usize, e: Event) {
        if self.stats.keeps_events() {
            let flags = self.trace_flags(e.cpu, asked);
            let next_prio = match e.kind {
                EventKind::Switch => self.prio(TaskId(e.a)),
                _ => e.next_prio,
            };
            let e = Event { flags, prio: self.prio(e.task), next_prio, ..e };
            self.stats.event(self.now, e);
        }
    }

    /// `p->prio`: see [`Event::prio`].
    fn prio(&self, p: TaskId) -> i16 {
        let t = &self.sh.tasks[p.ix()];
        match i16::from(t.rt_priority) {
            0 => Event::NICE_0 + i16::from(t.nice),
            rt => 99 - rt,
        }
    }

    /// Handles events until the run is over.
    pub(crate) fn run(&mut self, watch: &mut Watch) {
        let nr_cpus = self.cpus.len();
        loop {
            let (t, slot) = self.events.next();
            debug_assert!(t >= self.now, "time runs backwards");
            self.now = t;
            self.machine.event_time = t;
            self.stats.events += 1;
            if slot >= nr_cpus {
                if self.control(watch, t) {
                    return;
                }
                continue;
            }
            let c = self.cpu_of[slot];
            self.stats.fold(t, c);
            let cpu = &self.cpus[c.ix()];
            if cpu.interrupt_at() <= t {
                self.interrupt(c);
            } else {
                debug_assert!(cpu.op_end == t);
                if cpu.level == 0 && cpu.frames[0] == Frame::Task {
                    self.task_step(c);
                } else {
                    self.act(c);
                }
            }
            debug_assert!(
                self.resched.is_empty(),
                "not carried out: {:?} by {c}, now {:?}",
                self.resched,
                self.cpus[c.ix()].frames
            );
            self.events.set(slot, self.cpus[c.ix()].acts_at());
            if self.stats.look {
                self.stats.look = false;
                self.events.set(nr_cpus, self.now);
                if self.stats.over {
                    return;
                }
            }
        }
    }

    /// Tells the event tree when `c` acts next.
    #[inline]
    pub(crate) fn arm(&mut self, c: Cpu) {
        self.events.set(self.slot_of[c.ix()] as usize, self.cpus[c.ix()].acts_at());
    }

    /// Books `ns` of work at full speed for `func` on `c`; returns the time it takes there.
    #[inline(always)]
    pub(crate) fn work(&mut self, c: Cpu, func: Func, ns: u32) -> Ns {
        let d = Ns((u64::from(ns) * u64::from(self.cpus[c.ix()].slowdown)) >> 10);
        self.sh.ledger.book(c, func, Resource::None, d);
        d
    }

    /// Books waiting.
    #[inline(always)]
    pub(crate) fn waited(&mut self, c: Cpu, func: Func, on: Resource, d: Ns) -> Ns {
        self.sh.ledger.book(c, func, on, d);
        d
    }

    /// The operation of `c` ends at `at`, then `frame` acts.
    #[inline(always)]
    pub(crate) fn plan(&mut self, c: Cpu, at: Ns, frame: Frame) {
        debug_assert!(at >= self.now);
        let cpu = &mut self.cpus[c.ix()];
        let level = cpu.level as usize;
        cpu.frames[level] = frame;
        cpu.op_end = at;
    }

    /// `update_rq_clock` of `rq`.
    #[inline(always)]
    pub(crate) fn update_rq_clock(&mut self, rq: Cpu, at: Ns) {
        self.sh.rqs[rq.ix()].update_clock(at);
    }

    /// `is_idle_task`: idle tasks are numbered first.
    #[inline(always)]
    pub(crate) fn is_idle_task(&self, p: TaskId) -> bool {
        p.ix() < self.cpus.len()
    }

    /// Current task of `c`.
    #[inline(always)]
    pub(crate) fn curr(&self, c: Cpu) -> TaskId {
        self.sh.rqs[c.ix()].curr
    }

    /// The pipe `ch`. Panics if it is a socket: callers have looked.
    #[inline(always)]
    pub(crate) fn pipe(&mut self, ch: ChannelId) -> &mut Pipe {
        match &mut self.channels[ch.ix()] {
            Channel::Pipe(p) => p,
            Channel::Unix(_) => unreachable!("a socket used as a pipe"),
        }
    }

    /// A cache line goes from `from` to `to`.
    #[inline(always)]
    pub(crate) fn transfer(&self, from: Cpu, to: Cpu) -> Ns {
        self.machine.transfer(from, to)
    }
}
