//! A plain trace as `shadow` replays it: events become rows without state.

use vruntime_base::{Cpu, EventKind};
use vruntime_formats::read::{Recorded, flag};
use vruntime_kernel::shadow::answers;
use vruntime_kernel::shadow::trace::{Flags, Glimpse, Ran, Row, RowKind, Side, Trace};

/// `prev_state` of a task that sleeps or is dead.
const ASLEEP: i64 = 1;

/// All events of `r` that a machine of `nr_cpus` can have, and the number of the others.
pub fn plain_trace(r: &Recorded, nr_cpus: usize) -> (Trace, usize) {
    let mut running: Vec<i64> = vec![0; nr_cpus];
    let told = r.details.iter().any(|d| d.curr != 0);
    let mut left_out = 0;
    let mut rows = Vec::with_capacity(r.timeline.len());
    let mut glimpses = r.glimpses.iter().peekable();
    let mut between = vec![];
    for (i, e) in r.timeline.iter().enumerate() {
        let d = r.details.get(i).copied().unwrap_or_default();
        while let Some(g) = glimpses.next_if(|g| (g.time, g.order) < (e.time.0, d.order)) {
            if usize::from(g.cpu) < nr_cpus {
                between.push(Glimpse {
                    ts: g.time,
                    cpu: Cpu(g.cpu),
                    before: rows.len(),
                    curr_pid: i64::from(g.curr),
                    flags: g.flags.map(flags),
                    ran: g.ran.map(|r| Ran {
                        pid: i64::from(r.pid),
                        runtime: r.runtime,
                        vruntime: r.vruntime,
                    }),
                });
            }
        }
        let is_cpu = |n: u32| (n as usize) < nr_cpus;
        let known = match e.kind {
            EventKind::Migrate => is_cpu(e.a) && is_cpu(e.b),
            EventKind::Switch | EventKind::NeedResched => true,
            _ => is_cpu(e.a),
        };
        if e.cpu.ix() >= nr_cpus || !known {
            left_out += 1;
            continue;
        }
        let side = |id: u32, prio: u8| -> Side {
            let pid = r.timeline.tasks().get(id as usize).map_or(0, |t| i64::from(t.pid));
            Side { pid, prio: i64::from(prio), ..Side::default() }
        };
        let (kind, a, b) = match e.kind {
            EventKind::Switch => (RowKind::Switch, 0, if e.b == 1 { 0 } else { ASLEEP }),
            EventKind::Waking => (RowKind::Waking, i64::from(e.a), 0),
            EventKind::Wakeup => (RowKind::Wakeup, i64::from(e.a), 0),
            EventKind::WakeupNew => (RowKind::WakeupNew, i64::from(e.a), 0),
            EventKind::Migrate => (RowKind::Migrate, i64::from(e.a), i64::from(e.b)),
            EventKind::NeedResched => continue,
        };
        let p = side(e.task.0, d.prio);
        let n = (kind == RowKind::Switch).then(|| side(e.a, d.next_prio));
        let here = &mut running[e.cpu.ix()];
        let curr_pid = match kind {
            RowKind::Switch => p.pid,
            _ if told => i64::from(d.curr),
            _ => *here,
        };
        *here = n.map_or(*here, |n| n.pid);
        let rq_cpu = match kind {
            RowKind::Switch => e.cpu,
            _ => Cpu(e.a as u16),
        };
        rows.push(Row {
            curr_pid,
            a,
            b,
            rq_cpu,
            p,
            n,
            flags: d.flags.map(flags),
            line: i as u64 + 1,
            ..Row::new(e.time.0, e.cpu, kind)
        });
    }
    let mut trace = Trace { rows, nr_cpus, glimpses: between, plain: true, ..Trace::default() };
    answers::infer(&mut trace);
    (trace, left_out)
}

fn flags(f: u8) -> Flags {
    Flags {
        need_resched: f & flag::NEED_RESCHED != 0,
        lazy: f & flag::LAZY != 0,
        interrupt: f & (flag::HARDIRQ | flag::SOFTIRQ) != 0,
    }
}
