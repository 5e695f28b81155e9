//! System calls: entry, exit, and what each operation does.
//!
//! *What.* A task's step acts when its operation ends; it does what the kernel does at that moment
//! and plans the next operation. The way out of a system call, the user code, and the way into the
//! next one are fused into one operation; a reschedule request cuts it where user mode begins.
//! *Source.* Linux 6.1.192 and 6.12.117, kernel/entry/common.c (preemption points), fs/select.c,
//! kernel/futex, kernel/time/hrtimer.c `do_nanosleep`, fs/exec.c.
//! *Equations.* None.
//! *Departures.* D1: to wait for all children is one operation: a task joins its threads in the
//! order in which it made them, then waits for any process until none is left; what `wait4` does
//! for each costs nothing. D2: no signals, no time-outs. D3: `cond_resched` does nothing, also
//! under preempt=none: no system call here is long enough.
//! *Example.* A sender writes 640 messages into a pipe: 640 operations of write-exit-user-entry,
//! then it sleeps.

use crate::frame::Frame;
use crate::program::{ChannelId, Op};
use crate::rq_lock::Under;
use crate::sim::{Channel, Sim};
use crate::stop::StopWork;
use crate::task::{Step, WaitsFor};
use vruntime_base::{Cpu, CpuMask, Func, Ns, TaskId};
use vruntime_sched::scheduler::WakeFlags;
use vruntime_sched::task::{TaskState, TgId};

impl Sim {
    /// The current task of `c` goes on at its step.
    #[inline(never)]
    pub(crate) fn task_step(&mut self, c: Cpu) {
        debug_assert!(!self.forgot_sleepers(c), "nobody was woken who sleeps for the mutex");
        let now = self.now;
        let (mut hot, channels) = self.split(c);
        if let (Step::Begin, Op::Write { to: ch, .. } | Op::Read { from: ch, .. }) =
            (hot.k.step, hot.k.op)
            && let Channel::Pipe(pipe) = &mut channels[ch.ix()]
        {
            if let Err(at) = hot.pipe_call(pipe, ch, now, true) {
                let p = hot.p;
                self.pipe_contended(c, p, ch, at);
            }
        } else {
            let p = hot.p;
            self.other_step(c, p);
        }
    }

    #[inline(never)]
    fn other_step(&mut self, c: Cpu, p: TaskId) {
        let cpu = &mut self.cpus[c.ix()];
        cpu.no_user();
        // Whatever mutex the last operation held has been released within it.
        cpu.mutex = ChannelId::NONE;
        match self.tasks[p.ix()].step {
            Step::Begin => self.begin(c, p),
            Step::RunEnd | Step::NextOp => self.next_op(c, p, self.now),
            Step::Start => self.start(c, p),
            Step::ExitToUser => self.exit_to_user(c, p),
            Step::WriteUnlocked => self.write_unlocked(c, p),
            Step::ReadUnlocked => self.read_unlocked(c, p),
            Step::WritePrepare => self.write_prepare(c, p),
            Step::ReadPrepare => self.read_prepare(c, p),
            Step::PipeWakes => self.pipe_wakes(c, p),
            Step::PipeEnd => self.pipe_end(c, p),
            Step::Woken => self.syscall_return(c, p, self.now),
            Step::ForkEnd => self.fork_end(c, p),
            Step::ExecEnd => self.exec_end(c, p),
            Step::ExitEnd => self.exit_end(c, p),
            Step::ExitMm => self.exit_mm_end(c, p),
            Step::ExitNotify => self.exit_notify(c, p),
            Step::MutexSpin => self.mutex_spin(c, p),
            Step::MutexRetry => self.pipe_lock(c, p, self.now),
            Step::MutexSlow => self.mutex_slow(c, p),
            Step::Stopper => self.stopper(c, p),
            Step::SocketGoesOn => self.socket_goes_on(c, p),
            Step::SocketSent => self.socket_sent(c, p),
            Step::SocketReceived => self.socket_received(c, p),
        }
    }

    /// The system call of `p` is done at `at`: leave the kernel, run user code, enter the next.
    pub(crate) fn syscall_return(&mut self, c: Cpu, p: TaskId, at: Ns) {
        debug_assert_eq!(p, self.curr(c));
        self.split(c).0.syscall_return(at);
    }

    /// In user mode from `at` on: asks the program what it does next.
    fn next_op(&mut self, c: Cpu, p: TaskId, at: Ns) {
        debug_assert_eq!(p, self.curr(c));
        self.split(c).0.next_op(at);
    }

    /// The preemption point at the return to user mode.
    fn exit_to_user(&mut self, c: Cpu, p: TaskId) {
        if self.sh.rqs[c.ix()].need_resched {
            self.tasks[p.ix()].step = Step::NextOp;
            self.schedule(c);
        } else {
            self.next_op(c, p, self.now);
        }
    }

    /// A system call has been entered.
    fn begin(&mut self, c: Cpu, p: TaskId) {
        match self.tasks[p.ix()].op {
            Op::Write { to: ch, .. } | Op::Read { from: ch, .. } => self.socket_begin(c, p, ch),
            Op::Poll(ch) => self.poll(c, p, ch),
            Op::Open(ch) => self.open_channel(c, p, ch),
            Op::Fork { .. } => {
                let costs = &self.machine.costs;
                let cost = if self.fork_is_thread(p) { costs.clone_thread } else { costs.fork };
                self.plan_kernel(c, p, Func::Fork, cost, Step::ForkEnd);
            }
            Op::Exec => self.exec(c, p),
            Op::WaitChildren => {
                let awaited = self.awaited_child(p);
                let costs = &self.machine.costs;
                let (func, cost) = match awaited {
                    WaitsFor::Thread(_) => (Func::Futex, costs.futex_wait),
                    _ => (Func::Wait4, costs.pipe_wait),
                };
                let at = self.now + self.work(c, func, cost);
                if awaited == WaitsFor::Nothing {
                    self.syscall_return(c, p, at);
                } else {
                    // Looks again after each child.
                    self.tasks[p.ix()].waits_for = awaited;
                    self.block(c, p, at, Step::Begin, TaskState::Interruptible);
                }
            }
            Op::Exit => {
                let costs = &self.machine.costs;
                let cost = if self.is_thread(p) { costs.exit_thread } else { costs.exit };
                self.plan_kernel(c, p, Func::Exit, cost, Step::ExitEnd);
            }
            Op::Sleep(d) => self.sleep(c, p, self.now + d),
            Op::SleepUntil(t) => self.sleep(c, p, t),
            Op::FutexWait(f) => {
                let at = self.now + self.work(c, Func::Futex, self.machine.costs.futex_wait);
                self.futexes[f.ix()].add(&mut self.tasks, p, true);
                self.tasks[p.ix()].waits_for = WaitsFor::Futex(f);
                self.block(c, p, at, Step::Woken, TaskState::Interruptible);
            }
            Op::FutexWake { futex, n } => {
                let at = self.now + self.work(c, Func::Futex, self.machine.costs.futex_wake);
                for _ in 0..n {
                    let Some(w) = self.futexes[futex.ix()].pop(&mut self.tasks) else { break };
                    self.cpus[c.ix()].wakes.push_back((w, false));
                }
                self.tasks[p.ix()].step = Step::Woken;
                self.plan_wakes(c, at, Frame::Task);
            }
            Op::Yield => self.sched_yield(c, p),
            Op::Pin(cpu) => self.pin(c, p, cpu),
            Op::SetPolicy { .. } => self.change(c, Func::SetScheduler),
            Op::JoinGroup(_) => self.change(c, Func::MoveTask),
            Op::Run(_) | Op::MarkStart | Op::MarkStop | Op::Clock { .. } => {
                unreachable!("not system calls")
            }
        }
    }

    /// Plans `cost` of kernel work, then `step`.
    pub(crate) fn plan_kernel(&mut self, c: Cpu, p: TaskId, func: Func, cost: u32, step: Step) {
        let at = self.now + self.work(c, func, cost);
        self.tasks[p.ix()].step = step;
        self.cpus[c.ix()].func = func;
        self.plan(c, at, Frame::Task);
    }

    /// `p` sets its state and calls `schedule()` at `at`; woken, it goes on at `step`.
    pub(crate) fn block(&mut self, c: Cpu, p: TaskId, at: Ns, step: Step, state: TaskState) {
        self.tasks[p.ix()].step = step;
        self.sh.tasks[p.ix()].state = state;
        self.plan(c, at, Frame::Schedule);
    }

    /// The timer of a task that is not real-time may be late by its slack.
    fn sleep(&mut self, c: Cpu, p: TaskId, until: Ns) {
        let at = self.now + self.work(c, Func::Sleep, self.machine.costs.hrtimer_start);
        if until <= at {
            self.syscall_return(c, p, at);
            return;
        }
        let is_rt = self.sh.tasks[p.ix()].rt_priority > 0;
        let slack = if is_rt { 0 } else { self.sh.release.timer_slack_ns };
        self.sleep_until(c, p, until, slack);
        self.block(c, p, at, Step::Woken, TaskState::Interruptible);
    }

    fn poll(&mut self, c: Cpu, p: TaskId, ch: ChannelId) {
        let at = self.now + self.work(c, Func::Poll, self.machine.costs.poll_call);
        let tasks = &mut self.tasks;
        let (empty, queue) = match &mut self.channels[ch.ix()] {
            Channel::Pipe(pipe) => {
                pipe.poll_usage = true;
                (pipe.is_empty(), &mut pipe.rd_wait)
            }
            Channel::Unix(s) => (s.is_empty(), &mut s.rd_wait),
        };
        if !empty {
            self.syscall_return(c, p, at);
            return;
        }
        queue.add(tasks, p, false);
        self.tasks[p.ix()].waits_for = WaitsFor::Data(ch);
        self.block(c, p, at, Step::Begin, TaskState::Interruptible);
    }

    fn sched_yield(&mut self, c: Cpu, p: TaskId) {
        self.tasks[p.ix()].step = Step::Woken;
        let at = self.now + self.work(c, Func::Yield, self.machine.costs.sched_yield);
        self.lock_rq(c, c, at, Under::Yield);
    }

    pub(crate) fn yield_with_lock(&mut self, c: Cpu, at: Ns) {
        self.update_rq_clock(c, at);
        self.stats.cpus[c.ix()].yld_count += 1;
        let ((), cost) = self.hook(c, at, |s, cx| s.yield_task(cx, c));
        self.resched.retain(|r| r.0 != c);
        self.hold_rq(c, c, at + cost);
        self.cpus[c.ix()].switch_cause = Some(&crate::schedule::YIELDS);
        self.plan(c, at + cost, Frame::Schedule);
    }

    /// The affinity that it has is changed to nothing.
    fn pin(&mut self, c: Cpu, p: TaskId, cpu: Cpu) {
        let t = &self.sh.tasks[p.ix()];
        if t.nr_cpus_allowed == 1 && t.cpu == cpu {
            self.syscall_return(c, p, self.now);
        } else {
            self.change(c, Func::SetAffinity);
        }
    }

    /// `affine_move_task`, `p` being the caller. It either is preempted by the stopper that it
    /// wakes, or sleeps until that has moved it.
    fn leave(&mut self, c: Cpu, p: TaskId, to: Cpu, at: Ns) {
        self.tasks[p.ix()].step = Step::Woken;
        if self.sh.release.affinity_waits {
            self.tasks[p.ix()].waits_for = WaitsFor::Stopper;
            self.sh.tasks[p.ix()].state = TaskState::Uninterruptible;
        }
        self.ask_stopper(c, c, StopWork::Move { p, to }, at, Frame::Schedule);
    }

    /// A change of the task itself, which takes it off its queue and puts it back. What the system
    /// call does before (permissions; of a control group, its locks) is left out.
    fn change(&mut self, c: Cpu, func: Func) {
        let at = self.now + self.work(c, func, self.machine.costs.sched_yield);
        self.lock_rq(c, c, at, Under::Change);
    }

    pub(crate) fn change_with_lock(&mut self, c: Cpu, at: Ns) {
        let p = self.curr(c);
        self.update_rq_clock(c, at);
        let ((), cost) = match self.tasks[p.ix()].op {
            Op::SetPolicy { policy, prio } => {
                self.hook(c, at, |s, cx| s.set_policy(cx, p, policy, prio))
            }
            Op::JoinGroup(n) => {
                let tg = self.groups_of_workload[usize::from(n)];
                self.hook(c, at, |s, cx| s.set_task_group(cx, p, tg))
            }
            Op::Pin(cpu) => {
                let affinity = self.sh.affinities.intern(CpuMask::one(cpu));
                self.hook(c, at, |s, cx| s.set_affinity(cx, p, affinity, 1))
            }
            // `sched_autogroup_exit_task`.
            Op::Exit => self.hook(c, at, |s, cx| s.set_task_group(cx, p, TgId(0))),
            _ => unreachable!("no change of a task"),
        };
        let at = self.unlock_rq(c, c, at + cost);
        self.cpus[c.ix()].irqs_on(at);
        match self.tasks[p.ix()].op {
            Op::Exit => self.plan(c, at, Frame::Task),
            Op::Pin(to) if to != c => self.leave(c, p, to, at),
            _ => self.syscall_return(c, p, at),
        }
    }

    fn exec(&mut self, c: Cpu, p: TaskId) {
        let flags = WakeFlags { exec: true, ..WakeFlags::default() };
        let prev = self.sh.tasks[p.ix()].cpu;
        let (place, cost) = self.hook(c, self.now, |s, cx| s.select_task_rq(cx, p, prev, flags));
        self.stats.placements.count(place.rule);
        self.tasks[p.ix()].step = Step::ExecEnd;
        let at = self.now + cost;
        if place.cpu == c {
            self.plan(c, at, Frame::Task);
        } else {
            self.ask_stopper(c, c, StopWork::Move { p, to: place.cpu }, at, Frame::Schedule);
        }
    }

    /// A thread that gets an address space of its own is none any more: who joins it is woken.
    fn exec_end(&mut self, c: Cpu, p: TaskId) {
        self.mm_release(c, p);
        self.stats.next_mm += 1;
        self.sh.tasks[p.ix()].mm = self.stats.next_mm;
        self.tasks[p.ix()].step = Step::Woken;
        self.cpus[c.ix()].func = Func::Exec;
        let at = self.now + self.work(c, Func::Exec, self.machine.costs.exec);
        self.plan_wakes(c, at, Frame::Task);
    }
}
