//! A plain trace as `shadow` replays it: events become rows without state.

use crate::cpu_numbers::CpuNumbers;
use std::collections::BTreeMap;
use vruntime_base::{Cpu, Event, EventKind, Ns, flag};
use vruntime_formats::read::{Detail, Glimpse, Recorded};
use vruntime_kernel::shadow::rebuild::answers;
use vruntime_kernel::shadow::rows::trace::{
    Flags, Glimpse as Seen, Named, Ran, Row, RowKind, Side, Trace,
};
use vruntime_measure::wakings::Placed;
use vruntime_sched::release::{FairKind, Release};

/// `prev_state` by what a timeline says of a task switched from: asleep, runnable, dead.
const PREV_STATES: [i64; 3] = [1, 0, 0x20];

/// All events of `r` on the CPUs `cpus`, and the number of the others. Where several have the same
/// time, as in a text cut to microseconds, each is taken to be a ns later than the one before: a
/// CPU that is chosen and taken in one microsecond was idle when it was chosen.
pub fn plain_trace(r: &Recorded, cpus: &CpuNumbers, k: &Release) -> (Trace, usize) {
    let nr_cpus = cpus.count();
    let mut running: Vec<i64> = vec![0; nr_cpus];
    let told = r.details.iter().any(|d| d.curr != 0);
    let mut left_out = 0;
    let mut rows = Vec::with_capacity(r.timeline.len());
    let mut glimpses = r.glimpses.iter().peekable();
    let mut between = vec![];
    let mut last = None;
    let after = |last: Option<u64>, time: u64| last.map_or(time, |last| time.max(last + 1));
    let (events, wakings_only) = with_wakeups(r);
    for (i, e, d) in events {
        while let Some(g) = glimpses.next_if(|g| (g.time, g.order) < (e.time.0, d.order)) {
            if let Some(cpu) = cpus.cpu(i64::from(g.cpu)) {
                between.push(Seen {
                    ts: after(last, g.time),
                    cpu,
                    before: rows.len(),
                    curr_pid: i64::from(g.curr),
                    flags: g.flags.map(flags),
                    ran: g.ran.map(|r| Ran {
                        pid: i64::from(r.pid),
                        runtime: r.runtime,
                        vruntime: r.vruntime,
                    }),
                    tick: None,
                });
            }
        }
        let cpu = cpus.cpu(i64::from(e.cpu.0));
        let (from, to) = (cpus.cpu(i64::from(e.a)), cpus.cpu(i64::from(e.b)));
        let known = match e.kind {
            EventKind::Migrate => from.is_some() && to.is_some(),
            EventKind::Switch | EventKind::Runtime => true,
            _ => from.is_some(),
        };
        let (Some(cpu), true) = (cpu, known) else {
            left_out += 1;
            continue;
        };
        let number = |c: Option<Cpu>| c.map_or(-1, |c| i64::from(c.0));
        let (from, to) = (number(from), number(to));
        let side = |id: u32, prio: i16| -> Side {
            let pid = r.timeline.tasks().get(id as usize).map_or(0, |t| i64::from(t.pid));
            Side { pid, prio: i64::from(prio), ..Side::default() }
        };
        let (kind, a, b) = match e.kind {
            EventKind::Switch => (RowKind::Switch, 0, PREV_STATES[e.b.min(2) as usize]),
            EventKind::Waking => (RowKind::Waking, from, 0),
            EventKind::Wakeup => (RowKind::Wakeup, from, 0),
            EventKind::WakeupNew => (RowKind::WakeupNew, from, 0),
            EventKind::Migrate => (RowKind::Migrate, from, to),
            EventKind::Runtime => continue,
        };
        let p = side(e.task.0, e.prio);
        let n = (kind == RowKind::Switch).then(|| side(e.a, e.next_prio));
        let here = &mut running[cpu.ix()];
        let curr_pid = match kind {
            RowKind::Switch => p.pid,
            _ if told => i64::from(d.curr),
            _ => *here,
        };
        *here = n.map_or(*here, |n| n.pid);
        let rq_cpu = match kind {
            RowKind::Switch => cpu,
            _ => Cpu(from as u16),
        };
        let ts = after(last, e.time.0);
        last = Some(ts);
        rows.push(Row {
            curr_pid,
            a,
            b,
            rq_cpu,
            p,
            n,
            flags: d.flags.map(flags),
            line: i as u64 + 1,
            ..Row::new(ts, cpu, kind)
        });
    }
    let tasks = r.timeline.tasks().iter();
    let named = tasks.filter_map(|t| Some((i64::from(t.pid), Named::of(&t.comm)?))).collect();
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut programs = BTreeMap::new();
    for t in r.timeline.tasks() {
        let next = names.len();
        programs.insert(i64::from(t.pid), *names.entry(&t.comm).or_insert(next));
    }
    let mut trace = Trace {
        programs,
        named,
        rows,
        nr_cpus,
        glimpses: between,
        plain: true,
        wakings_only,
        ..Trace::default()
    };
    answers::infer(&mut trace, k.fair == FairKind::Eevdf);
    (trace, left_out)
}

/// An event, its position and its details.
type Told = (usize, Event, Detail);

/// A wakeup takes so long at the most.
const WAKEUP_NS: u64 = 200_000;

/// All events with their positions and details; true: no wakeup was recorded, and behind each
/// waking stands one, after what is part of it: the accounting, and on the wakee's own CPU whatever
/// shows that no reschedule is due yet.
fn with_wakeups(r: &Recorded) -> (Box<dyn Iterator<Item = Told> + '_>, bool) {
    let detail = |(i, e)| (i, e, r.details.get(i).copied().unwrap_or_default());
    let events = r.timeline.iter().enumerate().map(detail);
    let Some(placed) = Placed::of(&r.timeline) else { return (Box::new(events), false) };
    let mut events: Vec<_> = events.collect();
    let mut wakeups = vec![];
    for (at, &(i, e, d)) in events.iter().enumerate() {
        let Some(wakeup) = placed.wakeup(i, &e) else { continue };
        let ends = |x: &&Told| {
            let here = x.1.cpu == e.cpu && x.1.kind != EventKind::Runtime;
            here || x.1.kind == EventKind::Switch && x.1.a == e.task.0
        };
        let most = e.time.0 + WAKEUP_NS;
        let near = events[at + 1..].iter().take_while(|x| x.1.time.0 <= most);
        let until = near.clone().find(ends).map_or((most, 0), |x| (x.1.time.0, x.2.order));
        let from = r.glimpses.partition_point(|g| (g.time, g.order) <= (e.time.0, d.order));
        let own = r.glimpses[from..].iter().take_while(|g| (g.time, g.order) < until);
        let here = wakeup.a == u32::from(e.cpu.0);
        let goes_on = |g: &&Glimpse| match g.flags {
            Some(f) if here => f & (flag::NEED_RESCHED | flag::LAZY) == 0,
            _ => g.ran.is_some(),
        };
        let part = own.filter(|g| g.cpu == e.cpu.0).take_while(goes_on).last();
        let (time, order) = part.map_or((e.time.0, d.order), |g| (g.time, g.order + 1));
        let detail = Detail { order, flags: None, ..d };
        wakeups.push((i, Event { time: Ns(time), ..wakeup }, detail));
    }
    events.extend(wakeups);
    // Stable: behind what it belongs to.
    events.sort_by_key(|(_, e, d)| (e.time, d.order));
    (Box::new(events.into_iter()), true)
}

fn flags(f: u8) -> Flags {
    Flags {
        need_resched: f & flag::NEED_RESCHED != 0,
        lazy: f & flag::LAZY != 0,
        interrupt: f & (flag::HARDIRQ | flag::SOFTIRQ) != 0,
        hard: f & flag::HARDIRQ != 0,
    }
}
