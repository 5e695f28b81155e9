//! What a plain trace tells of the kernel's answer to a wakeup: did it ask for a reschedule?
//!
//! *What.* `resched_curr` leaves no event in an ordinary trace, but every event carries the flag
//! TIF_NEED_RESCHED of the task that runs on its CPU. The last event before an activation shows the
//! flag as the preemption check found it; the activation's own event, if it is on that CPU, or else
//! the next one there shows it as the check left it. A switch clears the flag before its event;
//! there a task that is switched from while it can run tells the same.
//! *Limits.* Accounting a task leaves an event, `sched_stat_runtime`, and both a tick and a pass
//! through `schedule` account the task. If the trace has no such events, only an activation's own
//! flag is conclusive, and only against an event of the same wakeup. One that was accounted in an
//! interrupt may have been asked by a tick: such an event tells the flag before it, not after it.
//! *Ticks.* A tick accounts the running task in a hard interrupt, and so does a wakeup, but that is
//! then shown by its own events around it. The accounting's event shows the flag before the tick's
//! check, the next one on the CPU after it, unless another CPU put a task there meanwhile.
//! *Yields.* A task that is switched from while it can run, and was accounted just before, outside
//! of an interrupt and with a clear flag, was not asked: it called `sched_yield`, unless somebody
//! woke it as it was about to sleep.
//! *Departures.* D1: RCU's direct setting of the flag is taken for an answered request. D2: so is
//! `sched_yield` where accounting leaves no events.

use crate::shadow::rows::trace::{Flags, RowKind, Trace};
use vruntime_base::Cpu;

/// One CPU.
#[derive(Clone, Default)]
struct Sight {
    /// The flag of the running task, if nothing can have changed it since it was seen.
    set: Option<bool>,
    /// The flag at the last accounting in an interrupt.
    accounted: Option<bool>,
    /// The flag, if the last one was accounted outside of an interrupt and none came since.
    own: Option<bool>,
    /// Who runs, if a switch has told, and whether it has been woken since.
    curr: (i64, bool),
    /// The idle task runs.
    idle: bool,
    /// The last event is the start of this task's wakeup.
    waking: Option<i64>,
    /// A wakeup that was started here has not ended.
    in_wakeup: bool,
    /// Activations that wait for the next event on this CPU.
    open: Vec<usize>,
    tick: Option<MaybeTick>,
}

/// The last accounting was a tick's, if no activation follows that it belongs to.
#[derive(Clone, Copy)]
struct MaybeTick {
    /// Its glimpse.
    of: usize,
    /// The flag was clear before, and no other CPU has put a task here since.
    tells: bool,
    /// The first event after it has shown this.
    asked: Option<Option<bool>>,
}

impl Sight {
    /// The flag is `set` now; `None`: not shown.
    fn after_tick(&mut self, set: Option<bool>) {
        if let Some(t) = &mut self.tick {
            let of = |set: bool| (!set || t.tells).then_some(set);
            t.asked = t.asked.or(Some(set.and_then(of)));
        }
    }

    /// Another CPU accounts the running task, which may ask: what is seen next is not the answer to
    /// what came before. A wakeup accounts it before its own check, which knows that.
    fn accounted_by(&mut self, wakeup: bool) {
        self.open.clear();
        if let Some(t) = &mut self.tick {
            t.tells = false;
        }
        if !wakeup {
            (self.set, self.accounted) = (None, None);
        }
    }

    /// It was no activation's.
    fn is_tick(&mut self, ticks: &mut Vec<(usize, Option<bool>)>) {
        ticks.extend(self.tick.take().map(|t| (t.of, t.asked.flatten())));
    }
}

/// An event, for what it shows of its CPU.
struct Shown {
    cpu: Cpu,
    curr_pid: i64,
    flags: Option<Flags>,
    accounts: bool,
}

/// Fills `Row::asked` and `Row::due` of all activations, the latter of tasks that are switched from
/// though nobody asked, and `Glimpse::tick`.
/// `asks_when_accounted`: accounting a task asks for a reschedule at the end of its slice (EEVDF).
pub fn infer(t: &mut Trace, asks_when_accounted: bool) {
    let mut glimpses = std::mem::take(&mut t.glimpses);
    let mut ticks = vec![];
    let complete = glimpses.iter().any(|g| g.ran.is_some());
    let mut cpus = vec![Sight::default(); t.nr_cpus];
    let mut next = 0;
    for i in 0..t.rows.len() {
        while let Some(g) = glimpses.get(next).filter(|g| g.before <= i) {
            let shown = Shown {
                cpu: g.cpu,
                curr_pid: g.curr_pid,
                flags: g.flags,
                accounts: g.ran.is_some(),
            };
            let s = &mut cpus[g.cpu.ix()];
            let hard = g.flags.is_some_and(|f| f.hard);
            s.after_tick(g.flags.map(is_set));
            if shown.accounts || !hard {
                s.is_tick(&mut ticks);
            }
            let (of_wakeup, in_wakeup) = (s.waking.is_some(), s.in_wakeup);
            see(t, &mut cpus, &shown, complete);
            if let Some(ran) = g.ran.filter(|_| asks_when_accounted) {
                let others = cpus.iter_mut().enumerate().filter(|c| c.0 != g.cpu.ix());
                others.filter(|c| c.1.curr.0 == ran.pid).for_each(|c| c.1.accounted_by(in_wakeup));
            }
            // Without wakeups it may as well be for one that the CPU took off its wake list.
            let tick = hard && !of_wakeup && !t.wakings_only;
            if tick && g.ran.is_some_and(|r| r.pid == g.curr_pid) {
                let tells = g.flags.is_some_and(|f| !is_set(f));
                let asked = (!tells).then_some(None);
                cpus[g.cpu.ix()].tick = Some(MaybeTick { of: next, tells, asked });
            }
            next += 1;
        }
        let r = &t.rows[i];
        cpus[r.cpu.ix()].in_wakeup = match r.kind {
            RowKind::Waking => true,
            RowKind::Wakeup | RowKind::WakeupNew | RowKind::Switch => false,
            _ => cpus[r.cpu.ix()].in_wakeup,
        };
        if matches!(r.kind, RowKind::Waking | RowKind::Wakeup) {
            cpus.iter_mut().filter(|s| s.curr.0 == r.p.pid).for_each(|s| s.curr.1 = true);
        }
        let s = &mut cpus[r.cpu.ix()];
        let stays = r.prev_state() == 0 && r.p.pid != 0;
        let yields = stays && s.own == Some(false) && s.curr == (r.p.pid, false);
        if r.kind == RowKind::Switch && yields {
            t.rows[i].due = Some(false);
        }
        let r = &t.rows[i];
        match r.kind {
            RowKind::Switch => s.after_tick((stays && !yields).then_some(true)),
            RowKind::Wakeup if r.cpu == r.rq_cpu => s.tick = None,
            _ => s.after_tick(r.flags.map(is_set)),
        }
        s.is_tick(&mut ticks);
        match r.kind {
            RowKind::Switch => switch(t, &mut cpus, i, complete),
            RowKind::Wakeup | RowKind::WakeupNew => activation(t, &mut cpus, i, complete),
            _ => {
                let (cpu, curr_pid, flags) = (r.cpu, r.curr_pid, r.flags);
                let waking = (r.kind == RowKind::Waking).then_some(r.p.pid);
                see(t, &mut cpus, &Shown { cpu, curr_pid, flags, accounts: false }, complete);
                cpus[cpu.ix()].waking = waking;
            }
        }
    }
    for (of, asked) in ticks {
        glimpses[of].tick = Some(asked);
    }
    t.glimpses = glimpses;
}

fn is_set(f: Flags) -> bool {
    f.need_resched || f.lazy
}

/// Takes in an event on its own CPU.
fn see(t: &mut Trace, cpus: &mut [Sight], e: &Shown, complete: bool) {
    let s = &mut cpus[e.cpu.ix()];
    s.idle = e.curr_pid == 0;
    s.waking = None;
    let own = s.own.take();
    let Some(flags) = e.flags else { return };
    let set = is_set(flags);
    if !s.idle && complete {
        match (set, s.open.as_slice()) {
            (false, open) => open.iter().for_each(|&of| t.rows[of].asked = Some(false)),
            (true, &[of]) if t.rows[of].due == Some(false) => t.rows[of].asked = Some(true),
            _ => {}
        }
        s.open.clear();
    }
    if e.accounts && flags.interrupt && !set {
        // A tick would ask after this.
        (s.set, s.accounted) = (None, Some(false));
    } else {
        (s.set, s.accounted) = (Some(set), None);
    }
    s.own = match e.accounts {
        _ if flags.interrupt => None,
        true => Some(set),
        false => own.map(|own| own || set),
    };
}

fn switch(t: &mut Trace, cpus: &mut [Sight], i: usize, complete: bool) {
    let r = &t.rows[i];
    let s = &mut cpus[r.cpu.ix()];
    let (prev, next) = (r.p.pid, r.n.map_or(0, |n| n.pid));
    let preempted = r.prev_state() == 0 && r.due != Some(false);
    let open = std::mem::take(&mut s.open);
    *s = Sight { set: Some(false), curr: (next, false), idle: next == 0, ..Sight::default() };
    if prev == 0 {
        open.iter().for_each(|&of| t.rows[of].asked = Some(true));
    } else if let (&[of], true, true) = (open.as_slice(), preempted, complete)
        && t.rows[of].due == Some(false)
    {
        t.rows[of].asked = Some(true);
    }
}

fn activation(t: &mut Trace, cpus: &mut [Sight], i: usize, complete: bool) {
    let r = &t.rows[i];
    cpus[r.cpu.ix()].own = None;
    let (target, own) = (r.rq_cpu.ix(), r.cpu == r.rq_cpu && r.kind == RowKind::Wakeup);
    let after = r.flags.map(is_set).filter(|_| own);
    let s = &mut cpus[target];
    if t.wakings_only && r.cpu != r.rq_cpu {
        // When the other CPU took it off its wake list is not known.
        (s.set, s.accounted) = (None, None);
        return;
    }
    if r.cpu == r.rq_cpu {
        s.idle = r.curr_pid == 0;
    } else if let Some(tick) = &mut s.tick {
        tick.tells = false;
    }
    let one = complete || own && s.waking == Some(r.p.pid);
    let before = s.set.or(s.accounted).filter(|_| s.open.is_empty() && one);
    t.rows[i].due = before;
    if s.idle || after.is_none() {
        s.open.push(i);
        (s.set, s.accounted) = (None, None);
        return;
    }
    let open = std::mem::take(&mut s.open);
    if after == Some(false) && complete {
        open.iter().for_each(|&of| t.rows[of].asked = Some(false));
    }
    t.rows[i].asked = match (before, after) {
        (_, Some(false)) => Some(false),
        (Some(false), Some(true)) => Some(true),
        _ => None,
    };
    (s.set, s.accounted, s.waking) = (after, None, None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::{Glimpse, Ran, Row, Side};

    const ALL: Flags = Flags { need_resched: false, lazy: false, interrupt: false, hard: false };
    const SET: Flags = Flags { need_resched: true, ..ALL };

    fn row(kind: RowKind, on: u16, of: u16, flags: Flags) -> Row {
        let mut r = Row::new(0, Cpu(on), kind);
        (r.curr_pid, r.rq_cpu, r.flags) = (100 + i64::from(on), Cpu(of), Some(flags));
        r.p = Side { pid: 7, ..Side::default() };
        r
    }
    fn trace(rows: Vec<Row>) -> Trace {
        Trace { rows, nr_cpus: 2, plain: true, ..Trace::default() }
    }
    fn glimpse(cpu: u16, before: usize, flags: Flags, accounts: bool) -> Glimpse {
        let ran = accounts.then_some(Ran { pid: 1, runtime: 1, vruntime: None });
        let curr_pid = 100 + i64::from(cpu);
        let flags = Some(flags);
        Glimpse { ts: 0, cpu: Cpu(cpu), before, curr_pid, flags, ran, tick: None }
    }

    #[test]
    fn an_own_row_shows_the_flag_as_its_check_left_it() {
        let waking = row(RowKind::Waking, 0, 0, ALL);
        for (flags, due, asked) in [(ALL, Some(false), false), (SET, Some(false), true)] {
            let mut t = trace(vec![waking.clone(), row(RowKind::Wakeup, 0, 0, flags)]);
            infer(&mut t, true);
            assert_eq!((t.rows[1].due, t.rows[1].asked), (due, Some(asked)));
        }
        // It was set before: nobody can tell.
        let waking = row(RowKind::Waking, 0, 0, SET);
        let mut t = trace(vec![waking, row(RowKind::Wakeup, 0, 0, SET)]);
        infer(&mut t, true);
        assert_eq!((t.rows[1].due, t.rows[1].asked), (Some(true), None));
    }

    #[test]
    fn elsewhere_the_next_event_tells_unless_a_tick_came_between() {
        let in_irq = Flags { interrupt: true, ..ALL };
        let wakeup = row(RowKind::Wakeup, 0, 1, ALL);
        let before = glimpse(1, 0, ALL, true);
        let tick = glimpse(1, 1, in_irq, true);
        for (after, asked) in [
            (vec![glimpse(1, 1, SET, false)], Some(true)),
            (vec![glimpse(1, 1, ALL, false)], Some(false)),
            (vec![tick, glimpse(1, 1, SET, false)], Some(false)),
            (vec![], None),
        ] {
            let mut t = trace(vec![wakeup.clone(), row(RowKind::Waking, 0, 0, ALL)]);
            t.glimpses = std::iter::once(before).chain(after).collect();
            infer(&mut t, true);
            assert_eq!((t.rows[0].due, t.rows[0].asked), (Some(false), asked));
        }
    }

    #[test]
    fn without_accounting_events_a_switch_tells_nothing() {
        let mut switch = row(RowKind::Switch, 1, 1, ALL);
        (switch.p.pid, switch.n) = (101, Some(Side { pid: 7, ..Side::default() }));
        let mut t = trace(vec![row(RowKind::Wakeup, 0, 1, ALL), switch]);
        infer(&mut t, true);
        assert_eq!(t.rows[0].asked, None);
        t.glimpses = vec![glimpse(1, 0, ALL, true)];
        infer(&mut t, true);
        assert_eq!(t.rows[0].asked, Some(true));
    }

    /// 101 runs on CPU 1 and is accounted in a hard interrupt; `after` follows there.
    fn tick(after: Vec<Row>, glimpses: Vec<Glimpse>) -> Option<Option<bool>> {
        let hard = Flags { interrupt: true, hard: true, ..ALL };
        let ran = Some(Ran { pid: 101, runtime: 1, vruntime: None });
        let mut rows = vec![row(RowKind::Waking, 0, 0, ALL)];
        rows.extend(after);
        rows.push(row(RowKind::Waking, 0, 0, ALL));
        let mut t = trace(rows);
        t.glimpses = vec![Glimpse { ran, ..glimpse(1, 1, hard, false) }];
        t.glimpses.extend(glimpses);
        infer(&mut t, true);
        t.glimpses[0].tick
    }

    #[test]
    fn the_next_event_tells_what_a_tick_has_asked() {
        let hard = Flags { interrupt: true, hard: true, ..SET };
        let soft = Flags { interrupt: true, ..ALL };
        assert_eq!(tick(vec![], vec![glimpse(1, 1, soft, false)]), Some(Some(false)));
        let then = vec![glimpse(1, 1, hard, false), glimpse(1, 1, SET, false)];
        assert_eq!(tick(vec![], then), Some(Some(true)));
        let mut switch = row(RowKind::Switch, 1, 1, ALL);
        (switch.p.pid, switch.n) = (101, Some(Side { pid: 7, ..Side::default() }));
        assert_eq!(tick(vec![switch.clone()], vec![]), Some(Some(true)));
        switch.b = 1;
        assert_eq!(tick(vec![switch], vec![]), Some(None), "it sleeps");
        // CPU 0 puts a task there meanwhile, which may have asked as well.
        let wakeup = row(RowKind::Wakeup, 0, 1, ALL);
        let then = vec![glimpse(1, 2, SET, false)];
        assert_eq!(tick(vec![wakeup], then), Some(None));
    }

    /// 7 is put on CPU 1, where 101 runs; before CPU 1 is seen again, CPU 0 accounts 101 as it
    /// takes a task from there. With EEVDF that may have asked.
    #[test]
    fn another_cpus_accounting_may_have_asked() {
        let asked = |eevdf: bool, accounted: Option<i64>| {
            let mut switch = row(RowKind::Switch, 1, 1, ALL);
            (switch.p.pid, switch.n) = (8, Some(Side { pid: 101, ..Side::default() }));
            let wakeup = row(RowKind::Wakeup, 0, 1, ALL);
            let mut t = trace(vec![switch, wakeup, row(RowKind::Waking, 0, 0, ALL)]);
            t.glimpses = vec![glimpse(1, 1, ALL, true)];
            t.glimpses.extend(accounted.map(|pid| {
                let ran = Some(Ran { pid, runtime: 1, vruntime: None });
                Glimpse { ran, ..glimpse(0, 2, ALL, true) }
            }));
            t.glimpses.push(glimpse(1, 2, SET, false));
            infer(&mut t, eevdf);
            t.rows[1].asked
        };
        assert_eq!(asked(true, None), Some(true));
        assert_eq!(asked(true, Some(101)), None);
        assert_eq!([asked(true, Some(9)), asked(false, Some(101))], [Some(true); 2]);
    }

    /// 101 runs on CPU 1, is accounted outside of an interrupt and switched from, able to run.
    #[test]
    fn who_goes_though_nobody_asked_yields() {
        let yields = |flags: Flags, woken: bool| {
            let to = |p, n| {
                let mut r = row(RowKind::Switch, 1, 1, ALL);
                (r.p.pid, r.n) = (p, Some(Side { pid: n, ..Side::default() }));
                r
            };
            let mut wakeup = row(RowKind::Waking, 0, 1, ALL);
            wakeup.p.pid = if woken { 101 } else { 9 };
            let mut t = trace(vec![to(8, 101), wakeup, to(101, 7)]);
            t.glimpses = vec![glimpse(1, 2, flags, true)];
            infer(&mut t, true);
            t.rows[2].due
        };
        assert_eq!(yields(ALL, false), Some(false));
        assert_eq!([yields(SET, false), yields(ALL, true)], [None, None]);
        assert_eq!(yields(Flags { interrupt: true, ..ALL }, false), None);
    }

    #[test]
    fn what_is_accounted_for_a_wakeup_is_no_tick() {
        let hard = Flags { interrupt: true, hard: true, ..ALL };
        let wakeup = row(RowKind::Wakeup, 1, 1, hard);
        assert_eq!(tick(vec![wakeup.clone()], vec![glimpse(1, 1, hard, false)]), None);
        let waking = row(RowKind::Waking, 1, 1, ALL);
        assert_eq!(tick(vec![waking, wakeup], vec![]), Some(Some(false)));
    }
}
