//! Balancing on behalf of CPUs that have stopped their tick.
//!
//! **What.** A busy CPU that has too much kicks one idle CPU, which balances for all idle CPUs
//! whose turn it is, itself last. The same visit lets their blocked averages decay.
//! **Source.** Linux 6.1.192 and 6.12.117, kernel/sched/fair.c: `nohz_balancer_kick`, `kick_ilb`,
//! `find_new_ilb`, `_nohz_idle_balance`, `nohz_balance_enter_idle`, `nohz_balance_exit_idle`;
//! switches for 5.5 and 5.7.
//! **Equations.** A kick balances if now ≥ nohz.next_balance and the CPU has two tasks, or more
//! than one CPU of its LLC is busy; it updates averages if some may still decay and 32 ms have
//! passed. Then a CPU that goes idle updates them itself if it expects at least
//! `migration_cost` of idle time.
//! **Departures.** D1: no kick for capacity, packing or misfit. D2: updating another CPU's averages
//! takes no lock. D3: no housekeeping mask. D4: a newly idle CPU updates averages of others as its
//! newidle balancing ends, with its own queue locked, not (5.13 and later) in the idle loop; up to
//! 5.12 it did so only if it searched no domain.
//! D5: a kick that is lost on a polling CPU costs it a softirq.
//! **Example.** CPU 0 runs two tasks, 1 and 2 are tickless: at its tick 0 kicks 1, which
//! balances for 2, then for itself.

use super::{IdleType, Run, Tables, World, far, periodic};
use crate::cx::Cx;
use crate::release::NohzKick;
use vruntime_base::{Cpu, Func, Resource};
use vruntime_machine::Line;

/// LOAD_AVG_PERIOD, ms.
const LOAD_AVG_PERIOD: u64 = 32;

/// What a kick asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Flags {
    /// NOHZ_STATS_KICK.
    stats: bool,
    /// NOHZ_BALANCE_KICK.
    balance: bool,
    /// NOHZ_NEXT_KICK.
    next: bool,
}

impl Flags {
    fn any(self) -> bool {
        self.stats || self.balance || self.next
    }
}

/// The structure `nohz`.
#[derive(Clone, Debug)]
pub(super) struct Global {
    nr_cpus: u32,
    next_balance: u64,
    next_blocked: u64,
    has_blocked: bool,
    needs_update: bool,
    /// `rq->nohz_flags` of every CPU.
    flags: Vec<Flags>,
}

impl Global {
    pub(super) fn new(nr_cpus: usize) -> Global {
        Global {
            nr_cpus: 0,
            next_balance: 0,
            next_blocked: 0,
            has_blocked: false,
            needs_update: false,
            flags: vec![Flags::default(); nr_cpus],
        }
    }
}

/// What a visit of all tickless CPUs keeps between passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    flags: Flags,
    /// Where the search for the next CPU goes on.
    from: usize,
    wrapped: bool,
    next_balance: u64,
    has_blocked: bool,
    /// A walk over the domains of `run.on` is under way.
    walking: bool,
    /// The CPU's own turn, which comes apart, has come.
    own_turn: bool,
}

/// The CPU stops its tick, or takes it up again (which only the next busy tick notices).
pub(super) fn tick_stopped(t: &mut Tables, cx: &mut Cx, cpu: Cpu, stopped: bool) {
    if !stopped {
        cx.charge(Func::Nohz, cx.machine.costs.nohz_exit);
        return;
    }
    cx.charge(Func::Nohz, cx.machine.costs.nohz_enter);
    t.nohz.has_blocked = true;
    cx.sh.rqs[cpu.ix()].has_blocked_load = true;
    if cx.sh.nohz_idle.has(cpu) {
        return;
    }
    cx.write(Line::Nohz, Func::Nohz, Resource::Global);
    cx.sh.nohz_idle.set(cpu);
    t.nohz.nr_cpus += 1;
    t.nohz.needs_update = true;
    count_busy(cx, cpu, false);
}

/// A tick on a busy CPU: it is tickless no longer (`nohz_balance_exit_idle`).
fn exit_idle(t: &mut Tables, cx: &mut Cx, cpu: Cpu) {
    if cx.sh.nohz_idle.has(cpu) {
        cx.write(Line::Nohz, Func::Tick, Resource::Global);
        cx.sh.nohz_idle.clear(cpu);
        t.nohz.nr_cpus -= 1;
        count_busy(cx, cpu, true);
    }
}

fn count_busy(cx: &mut Cx, cpu: Cpu, busy: bool) {
    if cx.sh.domains.sd_llc(cpu).is_none() {
        return;
    }
    let llc = cx.sh.domains.llc_id(cpu);
    cx.write(Line::LlcShared(llc), Func::Nohz, Resource::LlcShared);
    let n = &mut cx.sh.domains.shared_of_mut(cpu).nr_busy_cpus;
    *n = if busy { *n + 1 } else { *n - 1 };
}

/// `nohz_balancer_kick` at a tick of a busy CPU: the CPU to be kicked, if any.
pub(super) fn kick(t: &mut Tables, cx: &mut Cx, cpu: Cpu) -> Option<Cpu> {
    exit_idle(t, cx, cpu);
    if t.nohz.nr_cpus == 0 {
        return None;
    }
    let now = cx.jiffies();
    let mut flags =
        Flags { stats: t.nohz.has_blocked && now > t.nohz.next_blocked, ..Flags::default() };
    if now >= t.nohz.next_balance {
        let d = &cx.sh.domains;
        let two_tasks = cx.sh.loads[cpu.ix()].nr_running >= 2;
        if two_tasks || (d.sd_llc(cpu).is_some() && d.shared_of(cpu).nr_busy_cpus > 1) {
            flags.stats = true;
            flags.balance = true;
        }
    }
    flags.next = t.nohz.needs_update && !cx.sh.release.nohz_own_turn_apart;
    if !flags.any() {
        return None;
    }
    if flags.balance {
        t.nohz.next_balance = now + 1;
    }
    cx.read(Line::Nohz, Func::Tick, Resource::Global);
    let mut from = 0;
    let ilb = loop {
        let c = cx.sh.nohz_idle.next(from)?;
        from = c.ix() + 1;
        if c != cpu && cx.sh.idle_cpu(c) {
            break c;
        }
    };
    let pending = std::mem::replace(&mut t.nohz.flags[ilb.ix()], flags);
    let all = &mut t.nohz.flags[ilb.ix()];
    all.stats |= pending.stats;
    all.balance |= pending.balance;
    all.next |= pending.next;
    (!pending.any()).then_some(ilb)
}

/// `nohz_newidle_balance`: `cpu` has found nothing to run. If it is to be idle for a while it
/// brings the averages of tickless CPUs up to date.
pub(super) fn newly_idle(w: &mut World, cx: &mut Cx, cpu: Cpu) {
    let soon = cx.sh.rq(cpu).avg_idle.0 < cx.sh.release.migration_cost_ns;
    let n = &mut w.t.nohz;
    if soon || !n.has_blocked || cx.jiffies() < n.next_blocked {
        return;
    }
    n.has_blocked = false;
    let mut next_balance = far(cx);
    let idle = cx.sh.nohz_idle;
    for c in idle.iter() {
        if cx.sh.idle_cpu(c) {
            w.t.nohz.has_blocked |= update_nohz_stats(w, cx, c, Func::Newidle);
            next_balance = next_balance.min(cx.sh.rq(c).next_balance);
        }
    }
    if next_balance < far(cx) {
        w.t.nohz.next_balance = next_balance;
    }
    w.t.nohz.next_blocked = next_blocked(cx);
}

/// A newidle pass of 5.x: what sleepers left on the tickless CPUs of its domain decays first. If
/// some is left and they are all the tickless CPUs, the next visit comes 32 ms later.
pub(super) fn age_tickless(run: &Run, w: &mut World, cx: &mut Cx) {
    if !w.t.nohz.has_blocked {
        return;
    }
    let mut left = false;
    let tickless = cx.sh.nohz_idle;
    for c in tickless.and(&run.env.cpus).iter() {
        let rq = cx.sh.rq(c);
        if !rq.has_blocked_load {
            continue;
        }
        left |= cx.jiffies() <= rq.last_blocked_update || {
            cx.charge(Func::Newidle, cx.machine.costs.balance_cpu);
            w.fair.update_blocked_averages(cx, c)
        };
    }
    if left && tickless.is_subset(&cx.sh.domains.at(run.env.slot).span) {
        w.t.nohz.next_blocked = next_blocked(cx);
    }
}

/// `update_nohz_stats`: brings the averages of the tickless CPU `c` up to date, at most once a
/// jiffy (up to 5.12 at every visit). True if something is left to decay.
fn update_nohz_stats(w: &mut World, cx: &mut Cx, c: Cpu, func: Func) -> bool {
    cx.charge(func, cx.machine.costs.scan_cpu);
    cx.read_load_in_turn(c, func);
    let rq = cx.sh.rq(c);
    if !rq.has_blocked_load || cx.jiffies() <= rq.last_blocked_update {
        return rq.has_blocked_load;
    }
    cx.charge(func, cx.machine.costs.balance_cpu);
    w.fair.update_blocked_averages(cx, c)
}

/// Jiffies at which averages are to be looked after again.
fn next_blocked(cx: &Cx) -> u64 {
    cx.jiffies() + (LOAD_AVG_PERIOD * u64::from(cx.sh.release.hz)).div_ceil(1000)
}

/// The kicked CPU begins. False: it has work of its own.
pub(super) fn begin(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    let flags = std::mem::take(&mut w.t.nohz.flags[run.cpu.ix()]);
    if !flags.any() || !cx.sh.idle_cpu(run.cpu) || must_leave(run, cx) {
        return false;
    }
    if flags.stats {
        w.t.nohz.has_blocked = false;
    }
    if flags.next {
        w.t.nohz.needs_update = false;
    }
    let apart = cx.sh.release.nohz_own_turn_apart;
    run.nohz = State {
        flags,
        from: if apart { 0 } else { run.cpu.ix() + 1 },
        wrapped: false,
        next_balance: far(cx),
        has_blocked: false,
        walking: false,
        own_turn: false,
    };
    true
}

/// It is told to reschedule. Where a kick itself says so to a CPU that polls, later releases look
/// whether there is anything to run.
fn must_leave(run: &Run, cx: &Cx) -> bool {
    let told = cx.sh.rq(run.cpu).need_resched;
    told && !(cx.sh.release.nohz_kick == NohzKick::Call && cx.sh.idle_cpu(run.cpu))
}

/// Goes to the next domain of the next CPU whose turn it is. False: over.
pub(super) fn next(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    loop {
        if run.nohz.walking {
            if periodic::next(run, w, cx) {
                return true;
            }
            run.nohz.walking = false;
            if run.nohz.own_turn {
                break;
            }
            note_next(run, cx);
        }
        let Some(c) = next_cpu(run, cx) else {
            if cx.sh.release.nohz_own_turn_apart && own_turn(run, w, cx) {
                continue;
            }
            break;
        };
        if !cx.sh.idle_cpu(c) {
            continue;
        }
        if must_leave(run, cx) {
            abort(run, w, cx);
            return false;
        }
        if run.nohz.flags.stats {
            run.nohz.has_blocked |= update_nohz_stats(w, cx, c, run.func());
        }
        run.on = c;
        if cx.jiffies() >= cx.sh.rq(c).next_balance && run.nohz.flags.balance {
            periodic::walk(run, cx, c, IdleType::Idle);
            run.nohz.walking = true;
        } else {
            note_next(run, cx);
        }
    }
    finish(run, w, cx);
    false
}

/// After all others, this CPU, whether it is due or not. True if it balances.
fn own_turn(run: &mut Run, w: &mut World, cx: &mut Cx) -> bool {
    let cpu = run.cpu;
    cx.charge(run.func(), cx.machine.costs.balance_cpu);
    w.fair.update_blocked_averages(cx, cpu);
    run.nohz.has_blocked |= cx.sh.rq(cpu).has_blocked_load;
    if run.nohz.flags.balance {
        periodic::walk(run, cx, cpu, IdleType::Idle);
        (run.nohz.walking, run.nohz.own_turn) = (true, true);
    }
    run.nohz.walking
}

/// The next tickless CPU, round from the one after this; this one last. Where this one comes apart,
/// the next of the others.
fn next_cpu(run: &mut Run, cx: &Cx) -> Option<Cpu> {
    let n = &mut run.nohz;
    if cx.sh.release.nohz_own_turn_apart {
        let idle = &cx.sh.nohz_idle;
        let next = idle.next(n.from)?;
        let c = if next == run.cpu { idle.next(next.ix() + 1)? } else { next };
        n.from = c.ix() + 1;
        return Some(c);
    }
    if !n.wrapped {
        if let Some(c) = cx.sh.nohz_idle.next(n.from) {
            n.from = c.ix() + 1;
            return Some(c);
        }
        n.wrapped = true;
        n.from = 0;
    }
    let c = cx.sh.nohz_idle.next(n.from).filter(|c| c.ix() <= run.cpu.ix())?;
    n.from = c.ix() + 1;
    Some(c)
}

fn note_next(run: &mut Run, cx: &Cx) {
    run.nohz.next_balance = run.nohz.next_balance.min(cx.sh.rq(run.on).next_balance);
}

/// This CPU got work: the next kick does the rest.
fn abort(run: &mut Run, w: &mut World, cx: &Cx) {
    if cx.sh.release.nohz_own_turn_apart {
        set_next(run, w, cx);
    }
    if run.nohz.flags.stats || run.nohz.has_blocked {
        w.t.nohz.has_blocked = true;
    }
    if run.nohz.flags.next {
        w.t.nohz.needs_update = true;
    }
}

/// When the next kick balances.
fn set_next(run: &Run, w: &mut World, cx: &Cx) {
    if run.nohz.next_balance < far(cx) {
        w.t.nohz.next_balance = run.nohz.next_balance;
    }
}

/// The walk of an idle CPU is over: up to 5.12 no kick waits longer than for its next.
pub(super) fn walk_ended(w: &mut World, cx: &Cx, on: Cpu) {
    if cx.sh.release.nohz_own_turn_apart {
        w.t.nohz.next_balance = w.t.nohz.next_balance.min(cx.sh.rq(on).next_balance);
    }
}

fn finish(run: &mut Run, w: &mut World, cx: &Cx) {
    set_next(run, w, cx);
    if run.nohz.flags.stats {
        w.t.nohz.next_blocked = next_blocked(cx);
    }
    if run.nohz.has_blocked {
        w.t.nohz.has_blocked = true;
    }
}
