//! Wakeup preemption: after every activation, does our code ask for a reschedule as the kernel
//! did?
//!
//! *What.* The activation row shows the wakee as queued and the clock; the running task's state at
//! that clock is computed from its last row. The kernel's answer is a call of `resched_curr` from
//! its preemption check, recorded just before the `wakeup` row (just after `wakeup_new`).
//! Nontrivial: both tasks are of the fair class.

use super::explain::{gap, known, size};
use super::result::{Disagreement, KindResult};
use crate::shadow::question::decide::{Decider, Wakee};
use crate::shadow::question::known::names::{ANSWER, DUE};
use crate::shadow::question::known::{Asker, Unknown, explore};
use crate::shadow::question::levels::{
    Ent, GROUP, IMPLAUSIBLE, Level, RUNNING, curr_ent, curr_now, ent, follows, later_state, level,
    members, off, plausible,
};
use crate::shadow::rows::trace::{Row, RowKind, Side, Trace};
use crate::shadow::state::queues::{LOST, NeedResched, Queues};
use vruntime_sched::release::{FairKind, Release, RtLimit};

/// Accounting the running task asks too, and a plain trace does not tell which of both did.
const ACCOUNTING: &str = "whether the check asked, or the accounting before it";

/// What our code answers, and why.
type Answer = (bool, &'static str);

/// Counts and disagreements of wakeup preemption.
pub struct Preempts<'a> {
    t: &'a Trace,
    k: &'a Release,
    decider: &'a Decider<'a>,
    next: &'a [Option<usize>],
    slack: u64,
    new_flags_only: bool,
    /// What the kernel did at the activation checked last, if that is known.
    pub kernel: Option<bool>,
    /// Counts.
    pub counts: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Preempts<'a> {
    /// At the start of the recording.
    pub fn new(
        t: &'a Trace,
        k: &'a Release,
        decider: &'a Decider<'a>,
        next: &'a [Option<usize>],
        slack: u64,
    ) -> Self {
        let counts = KindResult::new("wakeup_preemption");
        let asks = |r: &&Row| r.kind == RowKind::NeedResched;
        let new_flags_only = t.rows.iter().filter(asks).any(|r| t.shows_new_flags(r));
        let disagreements = vec![];
        Preempts { t, k, decider, next, slack, new_flags_only, kernel: None, counts, disagreements }
    }

    /// Rows of `resched_curr` that belong to the check of activation `at`: those that the check
    /// itself made, and whether its `update_curr` made one.
    pub fn asked(&self, at: usize, before: &[usize]) -> Vec<usize> {
        let r = &self.t.rows[at];
        let direct = |i: usize| {
            let stack = self.t.stack(&self.t.rows[i]);
            let by = stack.get(1).map_or("", String::as_str);
            self.t.rows[i].rq_cpu == r.rq_cpu
                && (by.starts_with("check_preempt") || by.starts_with("wakeup_preempt"))
        };
        if r.kind == RowKind::Wakeup {
            let ours = |&i: &usize| direct(i) && self.in_activation(r, i);
            return before.iter().copied().filter(ours).collect();
        }
        let mut out = vec![];
        let mut i = self.next[at];
        while let Some(j) = i {
            let x = &self.t.rows[j];
            match x.kind {
                RowKind::NeedResched if self.t.has_frame(x, "wake_up_new_task") => {
                    if direct(j) {
                        out.push(j);
                    }
                }
                RowKind::NeedResched | RowKind::Other => {}
                _ => break,
            }
            i = self.next[j];
        }
        out
    }

    /// The request of row `i`, before the activation `r`, can be part of it. It is not if another
    /// made it that checks as well: a move by the balancer, a change of nice value or class.
    fn in_activation(&self, r: &Row, i: usize) -> bool {
        let wake = ["try_to_wake_up", "sched_ttwu_pending", "ttwu_do_activate"];
        r.kind != RowKind::Wakeup || wake.iter().any(|f| self.t.has_frame(&self.t.rows[i], f))
    }

    /// Checks the activation `at`. `before`: `resched_curr` rows of the same CPU since its last
    /// activation or switch.
    pub fn check(&mut self, at: usize, before: &[usize], q: &Queues) {
        let r = &self.t.rows[at];
        let s = &q.cpus[r.rq_cpu.ix()];
        let asked = self.asked(at, before);
        let kernel = if self.t.plain { r.asked } else { Some(!asked.is_empty()) };
        self.kernel = kernel;
        let wakee = &r.p;
        let Some(curr) = s.curr else {
            return self.counts.miss(&[RUNNING]);
        };
        if s.lost {
            return self.counts.miss(&[LOST]);
        }
        if curr == wakee.pid {
            return; // woken before it slept: nothing to decide
        }
        let (Some(kernel), plain) = (kernel, self.t.plain) else {
            return self.counts.miss(&[ANSWER]);
        };
        let hidden = self.new_flags_only && !kernel;
        if curr == 0 {
            if hidden {
                // A polling idle task has the flag set without a call.
                return self.counts.miss(&[DUE]);
            }
            return self.record(r, kernel, (true, "curr is idle"), false, String::new);
        }
        let Some((side, _)) = s.running else {
            return self.counts.miss(&[RUNNING]);
        };
        if !side.is_fair() || !wakee.is_fair() {
            if side.is_fair() {
                if hidden && s.need_resched != NeedResched::No {
                    return self.counts.miss(&[DUE]);
                }
                let by = (true, "wakee of a higher class");
                return self.record(r, kernel, by, false, String::new);
            }
            if wakee.is_fair() {
                let alone = s.queued.values().all(|m| m.maybe || m.side.pid == wakee.pid);
                if plain && alone && self.k.rt_limit == RtLimit::FairServer {
                    // The first fair task starts the server, which may ask.
                    return self.counts.miss(&[ANSWER]);
                }
                let by = (false, "wakee of a lower class");
                return self.record(r, kernel, by, false, String::new);
            }
            return; // both real time: not the fair class's decision
        }
        let in_check = |i: &usize| {
            let stack = self.t.stack(&self.t.rows[*i]);
            stack.iter().take(4).any(|f| f.starts_with("check_preempt_wakeup"))
        };
        let of_curr = |i: &&usize| self.t.rows[**i].rq_cpu == r.rq_cpu;
        if hidden && (s.lazy.is_some() || before.iter().filter(of_curr).any(in_check)) {
            return self.counts.miss(&[DUE]);
        }
        let outside = before
            .iter()
            .filter(|i| of_curr(i) && !asked.contains(i))
            .filter(|&&i| !(in_check(&i) && self.in_activation(r, i)))
            .filter(|i| !self.t.is_lazy(&self.t.rows[**i]));
        let last = outside.map(|&i| self.t.rows[i].ts).max();
        let flag = match (last, s.need_resched) {
            _ if r.due == Some(true) => NeedResched::SetAt(r.ts),
            _ if r.due == Some(false) && last.is_none_or(|ts| r.ts - ts > self.slack) => {
                NeedResched::No
            }
            (Some(ts), _) => NeedResched::SetAt(ts),
            (None, NeedResched::SetAt(ts)) if before.iter().all(|&i| self.t.rows[i].ts != ts) => {
                NeedResched::SetAt(ts)
            }
            (None, f) if before.is_empty() => f,
            _ => NeedResched::No,
        };
        let question = |k: &mut Asker| -> Result<Answer, &'static str> {
            let u = Unknown { name: "need_resched of the running task", of: side.pid };
            let due = match flag {
                _ if plain => k.truth(u, r.due, false),
                NeedResched::No => false,
                NeedResched::SetAt(ts) => {
                    let known = (r.ts.saturating_sub(ts) <= self.slack).then_some(true);
                    k.truth(u, known, true)
                }
            };
            self.decide(k, at, q, &side, due)
        };
        let o = explore(question, |a, b| match (a, b) {
            (Ok(a), Ok(b)) => a.0 == b.0,
            _ => false,
        });
        match o.guess {
            Err(missing) => self.counts.miss(&[missing]),
            Ok(_) if !o.determined => {
                let missing: Vec<_> = o.all.iter().filter_map(|a| a.0.as_ref().err()).collect();
                if missing.is_empty() {
                    self.counts.miss(&o.tipping)
                } else {
                    self.counts.miss(missing)
                }
            }
            Ok(answer) if self.decider.one_level.contradicted() => {
                self.counts.set_aside(answer.0 == kernel);
            }
            Ok(answer) => {
                self.decider.one_level.note(answer.0 == kernel);
                let less = |a: u64, b: u64| gap(a.wrapping_sub(b) as i64);
                let ran = s.running.and_then(|x| Some(r.clock_task? - x.1));
                let now = || {
                    let now = r.clock_task.and_then(|clock| curr_now(self.k, s, clock, None));
                    now.map_or(side.vruntime, |(_, now)| now.vruntime)
                };
                let state = || {
                    format!(
                        "task {} runs, for {}, vlag {}; wakee less it: vruntime {}, deadline {}; \
                         {} on the queue; a reschedule {}",
                        side.pid,
                        known(ran, |ns| size(ns.max(0) as u64)),
                        gap(side.vlag),
                        less(wakee.vruntime, now()),
                        less(wakee.deadline, side.deadline),
                        wakee.cfs_nr,
                        match flag {
                            NeedResched::No => "is not asked for".into(),
                            NeedResched::SetAt(ts) => {
                                format!("was asked for {} before", size(r.ts.saturating_sub(ts)))
                            }
                        },
                    )
                };
                self.record(r, kernel, answer, true, state);
            }
        }
    }

    fn decide(
        &self,
        k: &mut Asker,
        at: usize,
        q: &Queues,
        side: &Side,
        need_resched: bool,
    ) -> Result<Answer, &'static str> {
        let r = &self.t.rows[at];
        let s = &q.cpus[r.rq_cpu.ix()];
        let wakee = &r.p;
        if wakee.tg != side.tg {
            // Both answers to the flag end here, unless it settles the matter.
            return if need_resched {
                Ok((false, "curr already needs resched"))
            } else {
                Err(GROUP)
            };
        }
        let later = later_state(self.t, at, r.rq_cpu.ix(), side.pid);
        if !self.t.rebuilt && later.is_some_and(|l| !follows(side, l)) {
            return Err(RUNNING);
        }
        let (_, now) = curr_now(self.k, s, r.clock_task.ok_or(RUNNING)?, later).ok_or(RUNNING)?;
        let curr = curr_ent(k, side, &now);
        let may_expire = now.deadline != (side.deadline, side.deadline);
        if self.t.plain && self.k.fair == FairKind::Eevdf && may_expire {
            return Err(ACCOUNTING);
        }
        let wakee_off = off(k, wakee);
        let w = Ent {
            pid: wakee.pid,
            vruntime: wakee.vruntime.wrapping_add(wakee_off),
            deadline: wakee.deadline.wrapping_add(wakee_off),
            slice: wakee.slice,
            weight: wakee.weight,
            policy: wakee.policy,
            delayed: false,
            seq: u64::MAX,
        };
        let together = |ents| Level { protected: now.protected, ..level(ents, Some(side.pid), s) };
        let mut ents = vec![curr];
        if self.k.fair == FairKind::Eevdf && !need_resched {
            let others = members(s, wakee.tg, &[side.pid, wakee.pid], wakee.cfs_nr, true)?;
            let near = (now.vruntime.wrapping_sub(wakee.vruntime) as i64).unsigned_abs() < 1 << 42;
            if !near || !plausible(wakee.vruntime, others.iter().copied()) {
                return Err(IMPLAUSIBLE);
            }
            ents.extend(others.into_iter().filter_map(|m| ent(k, m)));
            if self.t.plain && ents.len() > 1 {
                // The activation accounts the running task before its check, and may ask itself,
                // if the task is not alone.
                if let (true, why) = self.decider.tick(&together(ents.clone()), 0) {
                    return Ok((true, why));
                }
            }
        }
        ents.insert(1, w);
        let new = self.t.rows[at].kind == RowKind::WakeupNew;
        let wakee = Wakee { pid: wakee.pid, new, need_resched };
        Ok(self.decider.preempts(&together(ents), wakee))
    }

    fn record(
        &mut self,
        r: &Row,
        kernel: bool,
        (ours, rule): Answer,
        nontrivial: bool,
        state: impl FnOnce() -> String,
    ) {
        self.counts.count(ours == kernel, nontrivial, rule);
        if ours != kernel {
            let word = |b| if b { "asks for a reschedule" } else { "leaves curr alone" };
            self.disagreements.push(Disagreement {
                time: r.ts,
                line: r.line,
                kind: "wakeup_preemption".into(),
                task: r.p.pid,
                expected: word(kernel).into(),
                got: word(ours).into(),
                rule: rule.into(),
                state: state(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::state::one_level::OneLevel;
    use crate::shadow::tests::{release, row};
    use vruntime_base::Cpu;

    /// SCHED_IDLE 1 runs, `path` moves 2 there and asks, and 3 is woken: the kernel does not ask
    /// again, as a reschedule is due. The rule of ours, and whether it agrees.
    fn woken_after_a_request_of(path: &str) -> (String, u64) {
        let stack = ["resched_curr", "check_preempt_wakeup", "check_preempt_curr", path];
        let side = |pid, policy| Side { pid, policy, on_rq: true, prio: 120, ..Side::default() };
        let here = |r: Row, p| Row { p, clock_task: Some(r.ts as i64), ..r };
        let from_idle = here(Row::new(10, Cpu(0), RowKind::Switch), Side::default());
        let rows = vec![
            Row { n: Some(side(1, 5)), ..from_idle },
            Row { stack: Some(0), ..here(row(20, 0, RowKind::NeedResched, 1, 1), side(1, 5)) },
            here(row(30, 0, RowKind::Wakeup, 3, 1), side(3, 0)),
        ];
        let stacks = vec![stack.map(str::to_owned).to_vec()];
        let t = Trace { rows, stacks, nr_cpus: 1, ..Trace::default() };
        let k = release("v6.1");
        let decider = Decider::new(&k, 1, OneLevel::new(false));
        let next = [None; 3];
        let mut judge = Preempts::new(&t, &k, &decider, &next, 100);
        let mut q = Queues::new(&t);
        for r in &t.rows {
            q.apply(&t, r);
        }
        judge.check(2, &[1], &q);
        (judge.counts.rules.keys().map(ToString::to_string).collect(), judge.counts.agree)
    }

    #[test]
    fn a_request_of_the_balancer_is_due_and_one_of_the_wakeup_is_its_answer() {
        let due = woken_after_a_request_of("load_balance");
        assert_eq!(due, ("wakeup: reschedule is due already".to_owned(), 1));
        let own = woken_after_a_request_of("try_to_wake_up");
        assert_eq!(own, ("wakeup: SCHED_IDLE is running".to_owned(), 1));
    }

    /// A real-time task runs, 2 waits or nobody does, and 3 is woken, as a plain trace tells it:
    /// the first fair task starts the deadline server, which may ask.
    #[test]
    fn what_a_server_asks_is_not_the_answer_to_a_wakeup() {
        let judged = |kernel: &str, waits: bool| {
            let side = |pid, prio| Side { pid, prio, on_rq: true, ..Side::default() };
            let here = |ts, kind, p| Row { p, ..Row::new(ts, Cpu(0), kind) };
            let first = here(10, RowKind::Switch, Side::default());
            let mut rows = vec![Row { n: Some(side(1, 50)), clock_task: Some(10), ..first }];
            rows.extend(waits.then(|| here(20, RowKind::Wakeup, side(2, 120))));
            rows.push(Row { asked: Some(true), ..here(30, RowKind::Wakeup, side(3, 120)) });
            let t = Trace { rows, nr_cpus: 1, plain: true, ..Trace::default() };
            let k = release(kernel);
            let decider = Decider::new(&k, 1, OneLevel::new(false));
            let mut q = Queues::new(&t);
            let (last, before) = t.rows.split_last().unwrap();
            before.iter().for_each(|r| q.apply(&t, r));
            let next = vec![None; t.rows.len()];
            let mut judge = Preempts::new(&t, &k, &decider, &next, 100);
            judge.check(before.len(), &[], &q);
            assert_eq!(last.p.pid, 3);
            judge.counts.determined
        };
        assert_eq!(
            [judged("v6.12", false), judged("v6.12", true), judged("v6.1", false)],
            [0, 1, 1]
        );
    }

    /// 1 runs and is due later than 2, which is put on the queue: picked, but not if it is new.
    #[test]
    fn a_new_task_is_asked_about_as_one() {
        let rule = |kernel: &str, kind| {
            let slice = 2_800_000;
            let side = |pid, deadline| {
                let when = Side { vruntime: 1_000_000, deadline, slice, ..Side::default() };
                Side { pid, prio: 120, weight: 1 << 20, on_rq: true, cfs_nr: 2, ..when }
            };
            let here = |ts, kind, p| Row { p, clock_task: Some(10), ..Row::new(ts, Cpu(0), kind) };
            let first = here(10, RowKind::Switch, Side::default());
            let rows = vec![
                Row { n: Some(Side { cfs_nr: 1, ..side(1, 3_000_000) }), ..first },
                here(20, kind, side(2, 2_000_000)),
            ];
            let t = Trace { rows, nr_cpus: 1, ..Trace::default() };
            let k = release(kernel);
            let decider = Decider::new(&k, 1, OneLevel::new(false));
            let mut q = Queues::new(&t);
            q.apply(&t, &t.rows[0]);
            let next = [None; 2];
            let mut judge = Preempts::new(&t, &k, &decider, &next, 100);
            judge.check(1, &[], &q);
            judge.counts.rules.keys().map(ToString::to_string).collect::<String>()
        };
        assert_eq!(rule("v6.18.44-run_to_parity", RowKind::Wakeup), "wakeup: wakee is picked");
        assert_eq!(rule("v6.18.44-run_to_parity", RowKind::WakeupNew), "wakeup: wakee is new");
    }
}
