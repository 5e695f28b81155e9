//! Tick preemption: at a tick of a CPU whose queue holds more than the running task, does our code
//! ask for a reschedule as the kernel did?
//!
//! *What.* A tick that asks leaves a row from within `task_tick_fair`, which shows the running
//! entity as it was just accounted. A tick that does not ask leaves none; that it happened is
//! known only where the same interrupt went on to run expired timers, which a row shows.
//! Nontrivial: all of them, for a task alone on its queue is not asked about.
//! Most of what is judged are therefore ticks that asked.
//! *Departures.* D1: of a tick that is known by its timers the moment is known to half a tick.
//! D2: ticks of tasks in groups are not judged beyond the recorded level.

use super::decide::Decider;
use super::known::{Asker, Unknown, explore};
use super::levels::{Ent, GROUP, IMPLAUSIBLE, RUNNING, ent, level, members, plausible};
use super::queues::{NeedResched, Queues};
use super::result::{Disagreement, KindResult};
use super::trace::{Row, RowKind, Side, Trace};
use vruntime_sched::release::{FairKind, Release};

const DEADLINE: &str = "deadline of the running task";
/// A pick that takes it off and then keeps the running task leaves no row.
const DELAYED: &str = "whether an entity in delayed dequeue is still there";
const DUE: &str = "whether the kernel asked: the flag was set already";

/// What is known of a CPU's running task since it was picked.
#[derive(Clone, Copy, Debug, Default)]
struct Picked {
    pid: i64,
    /// `prev_sum_exec`.
    sum_exec: u64,
    /// Moment and `clock_task` of the last row of this queue.
    clock: Option<(u64, i64)>,
    /// `clock_task` when the queue last became one of several.
    crowded: Option<i64>,
    /// Last tick that was seen.
    tick: u64,
}

/// The running task at a tick.
struct AtTick {
    side: Side,
    /// Lowest and highest virtual runtime and total time run.
    vruntime: (u64, u64),
    sum_exec: (u64, u64),
}

/// Counts and disagreements of tick preemption.
pub struct Ticks<'a> {
    t: &'a Trace,
    k: &'a Release,
    decider: &'a Decider<'a>,
    picked: Vec<Picked>,
    new_flags_only: bool,
    /// Counts.
    pub counts: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Ticks<'a> {
    /// At the start of the recording.
    pub fn new(t: &'a Trace, k: &'a Release, decider: &'a Decider<'a>) -> Ticks<'a> {
        let asks = |r: &&Row| r.kind == RowKind::NeedResched;
        let new_flags_only = t.rows.iter().filter(asks).any(|r| t.shows_new_flags(r));
        Ticks {
            t,
            new_flags_only,
            k,
            decider,
            picked: vec![Picked::default(); t.nr_cpus],
            counts: KindResult::new("tick_preemption"),
            disagreements: vec![],
        }
    }

    /// Takes in a row, before `q` does.
    pub fn note(&mut self, r: &Row, q: &Queues) {
        let c = r.rq_cpu.ix();
        if let Some(clock) = r.clock_task {
            self.picked[c].clock = Some((r.ts, clock));
        }
        let alone = q.cpus[c].queued.len() < 2;
        let p = &mut self.picked[c];
        match r.kind {
            RowKind::Switch => {
                let n = r.n.unwrap_or_default();
                (p.pid, p.sum_exec) = (n.pid, n.sum_exec);
                p.crowded = if n.cfs_nr > 1 { r.clock_task } else { None };
            }
            RowKind::Wakeup | RowKind::WakeupNew if alone => p.crowded = r.clock_task,
            // The moment of an arrival by the balancer is not known.
            RowKind::Migrate if alone => {
                if let Some(to) = usize::try_from(r.b).ok().and_then(|b| self.picked.get_mut(b)) {
                    to.crowded = None;
                }
            }
            _ => {}
        }
    }

    /// Checks the tick that `r` shows, if it shows one.
    pub fn check(&mut self, r: &Row, q: &Queues) {
        let half_a_tick = self.k.tick_ns() / 2;
        if r.kind == RowKind::NeedResched && self.t.has_frame(r, "task_tick_fair") {
            self.picked[r.cpu.ix()].tick = r.ts;
            if r.rq_cpu == r.cpu && r.p.is_fair() {
                let exact = |x| (x, x);
                let now = AtTick {
                    side: r.p,
                    vruntime: exact(r.p.vruntime),
                    sum_exec: exact(r.p.sum_exec),
                };
                self.ask(r, q, now, true);
            }
            return;
        }
        let timers = self.t.has_frame(r, "run_timer_softirq")
            && self.t.stack(r).iter().any(|f| f.contains("sysvec_apic_timer"));
        let p = self.picked[r.cpu.ix()];
        if !timers || r.ts.saturating_sub(p.tick) < half_a_tick {
            return;
        }
        self.picked[r.cpu.ix()].tick = r.ts;
        let s = &q.cpus[r.cpu.ix()];
        let (Some((side, seen)), Some((ts, clock))) = (s.running, p.clock) else { return };
        if !side.is_fair() || s.queued.len() < 2 {
            return;
        }
        if self.new_flags_only && (s.need_resched != NeedResched::No || s.lazy.is_some()) {
            return self.counts.miss(&[DUE]);
        }
        let hi = (clock + r.ts.saturating_sub(ts) as i64 - seen).max(0) as u64;
        if hi < half_a_tick {
            // The tick may have come before the task was picked, or be the last one still.
            return;
        }
        if s.queued.values().any(|m| m.side.sched_delayed) {
            return self.counts.miss(&[DELAYED]);
        }
        let ran = (hi - half_a_tick, hi);
        let v = |d| side.vruntime.wrapping_add(Decider::virtual_time(d, side.weight));
        let now = AtTick {
            side,
            vruntime: (v(ran.0), v(ran.1)),
            sum_exec: (side.sum_exec + ran.0, side.sum_exec + ran.1),
        };
        self.ask(r, q, now, false);
    }

    fn ask(&mut self, r: &Row, q: &Queues, now: AtTick, kernel: bool) {
        let s = &q.cpus[r.cpu.ix()];
        let nr = if kernel { now.side.cfs_nr } else { s.queued.len() as i64 };
        if nr < 2 {
            return;
        }
        if now.side.tg != 0 {
            return self.counts.miss(&[GROUP]);
        }
        let picked = self.picked[r.cpu.ix()];
        let Some((before, clock)) = s.running.filter(|x| x.0.pid == now.side.pid) else {
            return self.counts.miss(&[RUNNING]);
        };
        if picked.pid != now.side.pid {
            return self.counts.miss(&[RUNNING]);
        }
        let eevdf = self.k.fair == FairKind::Eevdf;
        let others = match members(s, 0, &[now.side.pid], nr, eevdf) {
            Ok(o) => o,
            Err(missing) => return self.counts.miss(&[missing]),
        };
        if eevdf && !plausible(now.vruntime.0, others.iter().copied()) {
            return self.counts.miss(&[IMPLAUSIBLE]);
        }
        // A deadline that passes while the task is alone is renewed without a row.
        let past = |v: u64| v.wrapping_sub(before.deadline) as i64 >= 0;
        let alone_until = picked.crowded.map(|c| (c - clock).max(0) as u64);
        let then = |d| before.vruntime.wrapping_add(Decider::virtual_time(d, before.weight));
        let renewed = eevdf && past(now.vruntime.1) && alone_until.is_none_or(|d| past(then(d)));
        if renewed {
            return self.counts.miss(&[DEADLINE]);
        }
        let pid = now.side.pid;
        let question = |k: &mut Asker| {
            let half = Unknown { name: "moment of the tick", of: pid };
            let (lo, hi) = (now.sum_exec.0, now.sum_exec.1);
            let late = lo == hi || k.ask(half, &[1, 0]) == 1;
            let (v, sum) = if late { (now.vruntime.1, hi) } else { (now.vruntime.0, lo) };
            let curr = Ent {
                pid,
                vruntime: v,
                deadline: before.deadline,
                slice: before.slice,
                weight: before.weight,
                policy: before.policy,
                delayed: false,
                seq: 0,
            };
            let mut ents = vec![curr];
            ents.extend(others.iter().map(|m| ent(k, m)));
            let mut l = level(ents, Some(pid), s);
            l.protected = Decider::protected(self.k, &before, v);
            self.decider.tick(&l, sum.saturating_sub(picked.sum_exec))
        };
        let o = explore(question, |a, b| a.0 == b.0);
        if !o.determined {
            return self.counts.miss(&o.tipping);
        }
        let (ours, rule) = o.guess;
        self.counts.count(ours == kernel, true, rule);
        if ours != kernel {
            let word = |b| if b { "asks for a reschedule" } else { "lets curr go on" };
            let list: Vec<String> = others
                .iter()
                .map(|m| {
                    format!(
                        "{} v{:+}",
                        m.side.pid,
                        (m.side.vruntime.wrapping_sub(now.vruntime.1)) as i64
                    )
                })
                .collect();
            self.disagreements.push(Disagreement {
                time: r.ts,
                line: r.line,
                kind: "tick_preemption".into(),
                task: pid,
                expected: word(kernel).into(),
                got: word(ours).into(),
                rule: rule.into(),
                state: format!(
                    "ran {} to {}, deadline {:+}, others [{}]",
                    now.sum_exec.0.saturating_sub(picked.sum_exec),
                    now.sum_exec.1.saturating_sub(picked.sum_exec),
                    before.deadline.wrapping_sub(now.vruntime.1) as i64,
                    list.join(", "),
                ),
            });
        }
    }
}
