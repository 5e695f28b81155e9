//! Placement: for every recorded choice of `select_task_rq_fair`, what would our code choose?
//!
//! *What.* [`View`] answers what the decision asks from the rows of this wakeup and from the
//! state tracked over all rows; where the value is not known it lists what is possible
//! (`question::known`). Nontrivial: the kernel chose another CPU than prev.
//! *State that is not recorded.* `has_idle_cores` follows from idle entries and from the searches
//! of earlier wakeups; for `nr_idle_scan` see `state::scan_limit`; where the recording tells what
//! the choice could see (`rows::searched`) nothing has to be inferred. What the kernel did tells
//! about such state only after the question was answered, for later questions.

use super::explain::{known, range, tasks};
use super::result::{Disagreement, KindResult, Outcome};
use crate::shadow::question::known::names::{CAPACITY, IDLE, SCHED_IDLE};
use crate::shadow::question::known::{
    Asker, Assumed, MOST_RUNS, Outcomes, Unknown, explore_up_to, step,
};
use crate::shadow::rows::searched::Searched;
use crate::shadow::rows::trace::{
    MAY_STAY, PREV_NOT_KNOWN, Row, RowKind, SYNC_NOT_KNOWN, Trace, WF_SYNC, WF_TTWU,
};
use crate::shadow::rows::wakes::Wakes;
use crate::shadow::state::idle::Idleness;
use crate::shadow::state::loads::Loads;
use crate::shadow::state::manners::Manners;
use crate::shadow::state::queues::Queues;
use crate::shadow::state::scan_limit::ScanLimits;
use crate::shadow::state::tasks::{Allowed, SeenOn, Stays, Tasks};
use crate::shadow::state::utilisation::Utilisation;
use std::collections::BTreeMap;
use vruntime_base::Cpu;
use vruntime_machine::Topology;
use vruntime_sched::domains::Domains;
use vruntime_sched::fair::select::{
    Decision, Effects, Fixed, PlacementView, WakeQuery, select_task_rq,
};
use vruntime_sched::release::Release;

/// Ways that one choice of a CPU may go: a plain trace leaves many open.
const RUNS: usize = 8 * MOST_RUNS;
/// A CPU that `select_fallback_rq` takes.
const FALLBACK: Cpu = Cpu(u16::MAX);
const SCAN: &str = "nr_idle_scan";
const AFFINITY: &str = "allowed CPUs of the wakee";
const CORES: &str = "has_idle_cores";
const SYNC: &str = "whether the wakeup is synchronous";
const STAYS: &str = "whether the wakee had left its CPU and its queue";

/// The choice of row `r` is for a fork or an exec.
pub fn is_slow(r: &Row) -> bool {
    r.wake_flags() & WF_TTWU == 0
}

/// What the whole recording tells.
pub struct Facts<'a> {
    /// Rows.
    pub trace: &'a Trace,
    /// Machine.
    pub topology: &'a Topology,
    /// Its scheduling domains.
    pub domains: &'a Domains,
    /// Kernel.
    pub release: &'a Release,
    /// Wakeups.
    pub wakes: &'a Wakes,
    /// Idle CPUs.
    pub idle: &'a Idleness,
    /// Loads.
    pub loads: &'a Loads,
    /// Tasks.
    pub tasks: &'a Tasks,
    /// Utilisations.
    pub utils: &'a Utilisation<'a>,
}

/// What placement tracks from row to row.
pub struct Placements<'a> {
    f: &'a Facts<'a>,
    /// `has_idle_cores` by LLC; absent: not known.
    idle_cores: BTreeMap<usize, bool>,
    scan: ScanLimits,
    manners: Manners,
    seen: SeenOn,
    stays: Stays,
    /// Rebuilt: what `recent_used_cpu` of a task can be.
    recent: BTreeMap<i64, Vec<Cpu>>,
    /// Counts of the fast path.
    pub fast: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Placements<'a> {
    /// At the start of the recording.
    pub fn new(f: &'a Facts<'a>) -> Placements<'a> {
        Placements {
            f,
            idle_cores: BTreeMap::new(),
            scan: ScanLimits::new(f.topology, f.domains, f.trace.rebuilt),
            manners: Manners::default(),
            seen: SeenOn::default(),
            stays: Stays::default(),
            recent: BTreeMap::new(),
            fast: KindResult::new("placement"),
            disagreements: vec![],
        }
    }

    /// A task ran (or was put) somewhere.
    pub fn note_cpu(&mut self, at: usize, r: &Row) {
        if self.f.trace.rebuilt && r.kind == RowKind::Wakeup {
            self.note_unseen_choice(at, r);
        }
        if r.kind == RowKind::WakeupNew {
            // Written before the slow path chooses: where the parent forked.
            self.recent.insert(r.p.pid, vec![r.cpu]);
        }
        self.seen.note(self.f.trace, r);
    }

    /// In a plain trace nobody asks about the wakeup of a task that is still leaving its CPU: its
    /// waker may have waited and chosen, and then it has written what the choice writes.
    fn note_unseen_choice(&mut self, at: usize, r: &Row) {
        let own = self.f.wakes.of_row(at).map(|w| &self.f.wakes.list[w]);
        let Some(waking) = own.filter(|w| w.select.is_none()).and_then(|w| w.waking) else {
            return;
        };
        let waking = &self.f.trace.rows[waking];
        self.wrote_recent(r.p.pid, waking.rq_cpu, None);
        if self.f.release.recent_used_on_hit {
            self.wrote_recent(waking.curr_pid, waking.cpu, None);
        }
    }

    /// `c` has become idle at `r`: `update_idle_core`.
    pub fn note_idle(&mut self, r: &Row) {
        let t = self.f.topology;
        if !self.f.domains.sd_llc(r.cpu).is_some() {
            return;
        }
        let mut others = t.smt(r.cpu).iter().filter(|&s| s != r.cpu);
        // The siblings are read just before the row.
        let states: Vec<_> = others.by_ref().map(|s| self.f.idle.at(s, r.ts, r.ts, None)).collect();
        let llc = t.llc_id(r.cpu).ix();
        if states.iter().all(|s| *s == Some(true)) {
            self.idle_cores.insert(llc, true);
        } else if !states.contains(&Some(false)) && self.idle_cores.get(&llc) == Some(&false) {
            self.idle_cores.remove(&llc);
        }
    }

    /// Checks the `select_rq` row `at`.
    pub fn check(&mut self, at: usize, queues: &Queues) {
        let f = self.f;
        let r = &f.trace.rows[at];
        let own = f.wakes.of_row(at);
        let waking = own.and_then(|w| f.wakes.list[w].waking).map(|i| &f.trace.rows[i]);
        let known_cpu = |c: &i64| (0..f.trace.nr_cpus as i64).contains(c);
        let (Some(waking), Some(prev)) = (waking, r.wake_cpu.filter(known_cpu)) else {
            self.fast.miss(&["waking row of this wakeup"]);
            return;
        };
        if r.wake_flags() & PREV_NOT_KNOWN != 0 {
            self.fast.miss(&["wake_cpu of a worker that is not bound"]);
            return;
        }
        let sync = r.wake_flags() & WF_SYNC != 0 && !f.tasks.waker_exits(f.trace, waking);
        let q = WakeQuery { this_cpu: r.cpu, prev: Cpu(prev as u16), sync };
        let mut told = (r.wake_flags() & SYNC_NOT_KNOWN == 0).then_some(sync);
        let mut looked = Looked::default();
        let mut question = |k: &mut Asker, told: Option<bool>, free: bool| -> Decision {
            let stays = Unknown { name: STAYS, of: r.p.pid };
            let stays = r.wake_flags() & MAY_STAY != 0 && k.truth(stays, None, false);
            let u = Unknown { name: SYNC, of: 0 };
            let q = WakeQuery { sync: k.truth(u, told, false), ..q };
            let looked = &mut looked;
            let mut v = View { p: self, k, looked, waking, select: r, own, queues, free };
            let mut d = select_task_rq(&mut v, &q);
            // A plain trace tells the CPU after `select_task_rq` has checked that it is allowed.
            if f.trace.rebuilt && !v.allowed(d.choice) {
                d.choice = FALLBACK;
            }
            if stays {
                // Nothing is chosen.
                (d.choice, d.effects) = (q.prev, Effects::default());
            }
            d
        };
        let same = |a: &Decision, b: &Decision| a.choice == b.choice;
        let mut o = explore_up_to(RUNS, |k| question(k, told, false), same);
        let kernel = Cpu(r.task_cpu() as u16);
        let habit = self.manners.of(f.trace, r.curr_pid, r.p.pid);
        let shown = (told.is_none() && o.complete).then(|| shown_sync(&o.all, kernel)).flatten();
        if told.is_none() && !o.determined && habit.is_some() {
            told = habit;
            o = explore_up_to(RUNS, |k| question(k, told, false), same);
        }
        let nontrivial = kernel != q.prev;
        let span = r.p_nr_cpus_allowed.unwrap_or(0);
        if f.trace.rebuilt && span <= 0 {
            let elsewhere = !nontrivial && !o.determined && {
                // Where a task that may use any CPU goes.
                let o = explore_up_to(RUNS, |k| question(k, told, true), same);
                o.complete && o.all.iter().all(|d| d.0.choice != q.prev)
            };
            if self.stays.note((r.p.pid, span), !nontrivial, elsewhere) {
                return;
            }
        }
        if o.determined {
            let agrees = o.guess.choice == kernel;
            self.fast.count(agrees, nontrivial, o.guess.rule.name);
            *self.fast.rules.entry(o.guess.affine.name.into()).or_default() += 1;
            let rule = format!("{}, {}", o.guess.affine.name, o.guess.rule.name);
            self.fast.last = Some(Outcome::Rule(rule, agrees));
            if !agrees {
                let state = self.state_text(&q, r, waking, own, queues);
                self.disagreements.push(Disagreement {
                    time: r.ts,
                    line: r.line,
                    kind: "placement".into(),
                    task: r.p.pid,
                    expected: format!("CPU {kernel}"),
                    got: format!("CPU {}", o.guess.choice),
                    rule: format!("{}, {}", o.guess.affine.name, o.guess.rule.name),
                    state,
                });
            }
        } else {
            self.fast.miss(&o.tipping);
        }
        if let Some(sync) = shown {
            self.manners.show(f.trace, r.curr_pid, r.p.pid, sync);
        }
        self.commit(&o, kernel);
        self.commit_recent(&o, kernel, r.p.pid, q.prev);
        self.commit_recent_of_waker(&o, kernel, r.curr_pid);
    }

    /// `recent_used_cpu` after a choice, going by the runs that end where the kernel did.
    fn commit_recent(&mut self, o: &Outcomes<Decision>, kernel: Cpu, pid: i64, prev: Cpu) {
        let same: Vec<_> = o.all.iter().filter(|d| d.0.choice == kernel).collect();
        let wrote = same.iter().filter(|d| d.0.effects.recent_used_cpu.is_some()).count();
        let told = o.complete && !same.is_empty();
        self.wrote_recent(pid, prev, told.then_some((wrote, same.len())));
    }

    /// The waker's, which an affine wakeup writes (5.x).
    fn commit_recent_of_waker(&mut self, o: &Outcomes<Decision>, kernel: Cpu, waker: i64) {
        let same: Vec<_> = o.all.iter().filter(|d| d.0.choice == kernel).collect();
        let wrote: Vec<Cpu> = same.iter().filter_map(|d| d.0.effects.waker_recent_cpu).collect();
        if let Some(&cpu) = wrote.first() {
            self.wrote_recent(waker, cpu, o.complete.then_some((wrote.len(), same.len())));
        }
    }

    /// So many of so many ways to go on have written `cpu`; `None`: no way is known.
    fn wrote_recent(&mut self, pid: i64, cpu: Cpu, ways: Option<(usize, usize)>) {
        match ways {
            Some((wrote, all)) if wrote == all => drop(self.recent.insert(pid, vec![cpu])),
            Some((0, _)) => {}
            _ => {
                if let Some(v) = self.recent.get_mut(&pid).filter(|v| !v.contains(&cpu)) {
                    v.push(cpu);
                }
            }
        }
    }

    /// What the search did to `has_idle_cores`, and what the choice tells about the scan limit,
    /// going by the runs that end where the kernel did.
    fn commit(&mut self, o: &Outcomes<Decision>, kernel: Cpu) {
        let runs = &o.all;
        if !o.complete {
            for c in runs.iter().filter_map(|d| d.0.effects.clear_idle_cores) {
                self.idle_cores.remove(&self.f.topology.llc_id(c).ix());
            }
            return;
        }
        let same: Vec<_> = runs.iter().filter(|d| d.0.choice == kernel).collect();
        let whole = |d: &(Decision, Vec<Assumed>)| {
            d.1.iter().find(|a| a.0.name == CORES).map(|a| (a.0.of as usize, a.1 != 0))
        };
        if self.f.trace.rebuilt
            && let Some((llc, v)) = same.first().and_then(|d| whole(d))
            && same.iter().all(|d| whole(d) == Some((llc, v)))
        {
            self.idle_cores.insert(llc, v);
        }
        let cleared = same.iter().filter_map(|d| d.0.effects.clear_idle_cores).next();
        if let Some(c) = cleared {
            let llc = self.f.topology.llc_id(c).ix();
            if same.iter().all(|d| d.0.effects.clear_idle_cores.is_some()) {
                self.idle_cores.insert(llc, false);
            } else {
                self.idle_cores.remove(&llc);
            }
        }
        let limit = |d: &(Decision, Vec<Assumed>)| {
            d.1.iter().find(|a| a.0.name == SCAN).map(|a| (a.0.of as usize, a.1 as u64))
        };
        let Some((llc, _)) = runs.iter().find_map(limit) else { return };
        let (lo, hi) = self.scan.range(llc);
        if same.iter().all(|d| limit(d) == Some((llc, hi))) {
            let examined = same.iter().map(|d| u64::from(d.0.effects.nr_scanned)).min();
            self.scan.learn(llc, (examined.unwrap_or(1).clamp(1, hi), hi));
        } else if same.iter().all(|d| limit(d) == Some((llc, lo))) {
            let full = runs.iter().filter(|d| limit(d) == Some((llc, hi)));
            if let Some(n) = full.map(|d| u64::from(d.0.effects.nr_scanned)).max() {
                self.scan.learn(llc, (lo, n.saturating_sub(1).max(lo)));
            }
        }
    }

    /// Utilisation as of a row, for the scan limit.
    pub fn note_util(&mut self, r: &Row, queues: &Queues) {
        self.scan.row(r, queues);
    }

    /// Lowest and highest `task_h_load` of a task with a load in `own`, on `c`, whose queue has the
    /// load `queue` now: the queue's `h_load` is refreshed once a jiffy, so it may be older.
    fn h_load(
        &self,
        own: (u64, u64),
        tg: i64,
        (c, queue): (Cpu, u64),
        now: u64,
        q: &Queues,
    ) -> (u64, u64) {
        if tg != 0 {
            return (0, 2 * own.1); // the loads of the groups above are not recorded
        }
        let since = self.f.utils.jiffies_since(q, now);
        if self.f.trace.rebuilt {
            let (lo, hi) = self.f.loads.refreshed(c, since, now).unwrap_or((0, 8192));
            return (own.0 * lo / 4096, own.1 * hi / 4096);
        }
        let seen = self.f.loads.seen(c, since, now);
        let (lo, hi) = seen.unwrap_or((queue, queue));
        (own.0 * lo / (queue + 1), own.1 * hi / (queue + 1))
    }

    fn state_text(
        &self,
        q: &WakeQuery,
        r: &Row,
        waking: &Row,
        own: Option<usize>,
        queues: &Queues,
    ) -> String {
        let f = self.f;
        let p = &waking.p;
        let on = (waking.rq_cpu, p.cfs_load_avg);
        let load = (p.load_avg, p.load_avg + p.load_more);
        let wakee_h = self.h_load(load, p.tg, on, waking.ts, queues);
        let waker = queues.curr_load(r.cpu, r.ts).map(|(load, _)| load);
        let load = |c: Cpu| known(f.loads.at(c, waking.ts, r.ts), range);
        let number = |n: Option<i64>| known(n, |n| n.to_string());
        let mut s = format!(
            "waker on CPU {}, prev {}, {}; recent_used_cpu {}; wakee_flips of the waker {}, of the \
             wakee {}; load of CPU {} {}, of CPU {} {}; h_load of the wakee {}; load of the waker \
             {}; tasks on CPU {} {}; idle (? = not known):",
            q.this_cpu,
            q.prev,
            if q.sync { "synchronous" } else { "not synchronous" },
            number(waking.recent_used_cpu),
            number(r.curr_wakee_flips),
            number(r.wakee_flips),
            q.this_cpu,
            load(q.this_cpu),
            q.prev,
            load(q.prev),
            range(wakee_h),
            known(waker, range),
            q.this_cpu,
            tasks(queues.nr_running(r.cpu, r, waking)),
        );
        for c in f.topology.all().iter() {
            match f.idle.at(c, waking.ts, r.ts, own) {
                Some(true) => s += &format!(" {c}"),
                Some(false) => {}
                None => s += &format!(" {c}?"),
            }
        }
        s
    }
}

/// Whether the wakeup was synchronous, if all runs that end where the kernel did assume the same.
fn shown_sync(runs: &[(Decision, Vec<Assumed>)], kernel: Cpu) -> Option<bool> {
    let assumed =
        |d: &(Decision, Vec<Assumed>)| d.1.iter().find(|a| a.0.name == SYNC).map(|a| a.1 != 0);
    let mut fits = runs.iter().filter(|d| d.0.choice == kernel).map(assumed);
    let first = fits.next()??;
    fits.all(|s| s == Some(first)).then_some(first)
}

/// What was found in the trace for one wakeup: the same in all runs of its question.
#[derive(Default)]
struct Looked {
    allowed: BTreeMap<Cpu, Option<bool>>,
    idle: BTreeMap<Cpu, Option<bool>>,
    ranges: BTreeMap<Unknown, Option<(u64, u64)>>,
}

/// What the decision may see of one wakeup.
struct View<'v, 'a> {
    p: &'v Placements<'a>,
    k: &'v mut Asker,
    looked: &'v mut Looked,
    waking: &'v Row,
    select: &'v Row,
    own: Option<usize>,
    queues: &'v Queues,
    /// As if the wakee were allowed everywhere.
    free: bool,
}

impl<'v> View<'v, '_> {
    /// What the choice could see, where that was recorded.
    fn seen(&self) -> Option<&'v Searched> {
        self.select.searched.as_deref()
    }
    /// One of the CPUs that `recent_used_cpu` can be: those noted, or any that may be idle.
    fn rebuilt_recent(&mut self) -> Cpu {
        let (from, to) = (self.waking.ts, self.select.ts);
        let f = self.p.f;
        let options: Vec<i64> = match self.p.recent.get(&self.select.p.pid) {
            Some(v) => v.iter().map(|c| i64::from(c.0)).collect(),
            None => {
                let busy = |c: &Cpu| f.idle.at(*c, from, to, self.own) == Some(false);
                let others = f.topology.all().iter().filter(|c| !busy(c));
                std::iter::once(self.select.cpu).chain(others).map(|c| i64::from(c.0)).collect()
            }
        };
        let u = Unknown { name: "recent_used_cpu", of: self.select.p.pid };
        Cpu(self.k.ask(u, &options) as u16)
    }
    /// Flips of `pid`, which may be `more` than `least`: that goes with what `of` had before the
    /// recording, of which none, all and some parts are tried; and `own` more besides.
    fn flips(
        &mut self,
        least: Option<i64>,
        pid: i64,
        (more, of, own): (i64, i64, i64),
        half: bool,
    ) -> u32 {
        let name = "wakee_flips";
        let Some(least) = least else { return self.span(name, pid, || None) as u32 };
        let parts: &[i64] = if more == 0 { &[0] } else { &[0, 4096, 8, 64, 512] };
        let part = self.k.ask(Unknown { name, of }, parts);
        let own = match own {
            0 => 0,
            n => self.k.ask(Unknown { name, of: pid + (1 << 32) }, &[0, n]),
        };
        let all = (least + more * part / 4096 + own) as u32;
        let halved = half && all > 0 && self.k.ask(Unknown { name, of: !pid }, &[0, 1]) == 1;
        if halved { all / 2 } else { all }
    }
    /// One end of what `find` tells, or anything.
    fn span(
        &mut self,
        name: &'static str,
        of: i64,
        find: impl FnOnce() -> Option<(u64, u64)>,
    ) -> u64 {
        let u = Unknown { name, of };
        let (lo, hi) = self.looked.ranges.entry(u).or_insert_with(find).unwrap_or((0, 4096));
        if lo == hi {
            return lo;
        }
        self.k.ask(u, &[hi as i64, lo as i64]) as u64
    }
}

impl Fixed for View<'_, '_> {
    fn k(&self) -> &Release {
        self.p.f.release
    }
    fn t(&self) -> &Topology {
        self.p.f.topology
    }
    fn d(&self) -> &Domains {
        self.p.f.domains
    }
}

impl PlacementView for View<'_, '_> {
    fn step<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        outcome: impl FnMut(&mut Self) -> T,
    ) -> T {
        step(self, |v| v.k, name, outcome)
    }
    fn allowed(&mut self, c: Cpu) -> bool {
        if self.free {
            return true;
        }
        if let Some(s) = self.seen() {
            return s.allowed.has(c);
        }
        let (judge, select) = (self.p, self.select);
        let find = || match judge.f.tasks.allowed(select, judge.f.trace.nr_cpus) {
            Allowed::Any => Some(true),
            Allowed::Some(n) => judge.seen.allowed(select.p.pid, n, c),
        };
        let known = *self.looked.allowed.entry(c).or_insert_with(find);
        let u = Unknown { name: AFFINITY, of: i64::from(c.0) };
        self.k.truth(u, known, true)
    }
    fn idle_cpu(&mut self, c: Cpu) -> bool {
        let (from, to) = (self.waking.ts, self.select.ts);
        let known = match self.seen() {
            Some(s) => s.idle(c),
            None => {
                let at = || self.p.f.idle.at(c, from, to, self.own);
                *self.looked.idle.entry(c).or_insert_with(at)
            }
        };
        let guess = || self.p.f.idle.at(c, to, to, self.own).unwrap_or(false);
        let u = Unknown { name: IDLE, of: i64::from(c.0) };
        let guess = known.unwrap_or_else(guess);
        self.k.truth(u, known, guess)
    }
    fn sched_idle_cpu(&mut self, c: Cpu) -> bool {
        let known = self.queues.sched_idle(c, self.waking.ts);
        let u = Unknown { name: SCHED_IDLE, of: i64::from(c.0) };
        self.k.truth(u, known, false)
    }
    fn nr_running(&mut self, c: Cpu) -> u32 {
        let of = i64::from(c.0);
        let seen = self.seen().and_then(|s| s.nr_running(c));
        let here = || self.queues.nr_running(c, self.select, self.waking);
        let (lo, hi) = seen.unwrap_or_else(here);
        // Asked is whether there is one: between the ends that makes a difference.
        let options: Vec<i64> = [hi, lo, 1].into_iter().map(|n| n as i64).collect();
        let distinct = match (lo, hi) {
            _ if lo == hi => 1,
            (0, 2..) => 3,
            _ => 2,
        };
        self.k.ask(Unknown { name: "nr_running", of }, &options[..distinct]) as u32
    }
    fn nr_delayed(&mut self, c: Cpu) -> u32 {
        if self.p.f.trace.rebuilt {
            // Whoever may be there or not is delayed.
            let (lo, _) = self.queues.nr_running(c, self.select, self.waking);
            let others = self.nr_running(c) - lo as u32;
            let surely = self.queues.nr_surely_delayed(c).min(lo) as u32;
            return surely + others.min(self.queues.nr_hidden(c) as u32);
        }
        let (seen, queues) = (self.seen(), self.queues);
        let find = || seen.and_then(|s| s.nr_delayed(c)).or_else(|| Some(queues.nr_delayed(c)));
        self.span("number of delayed tasks", i64::from(c.0), find) as u32
    }
    fn cpu_load(&mut self, c: Cpu) -> u64 {
        let (seen, loads) = (self.seen(), &self.p.f.loads);
        let (from, to) = (self.waking.ts, self.select.ts);
        let find = || seen.and_then(|s| s.load(c)).or_else(|| loads.at(c, from, to));
        self.span("load_avg of a CPU", i64::from(c.0), find)
    }
    fn capacity_of(&mut self, c: Cpu) -> u64 {
        let (seen, queues, now) = (self.seen(), self.queues, self.select.ts);
        let find = || seen.and_then(|s| s.capacity(c)).or_else(|| Some(queues.capacity(c, now)));
        self.span(CAPACITY, i64::from(c.0), find)
    }
    fn wakee_h_load(&mut self) -> u64 {
        if let Some(s) = self.seen() {
            return s.h_load[0];
        }
        let (judge, waking, queues) = (self.p, self.waking, self.queues);
        let p = &waking.p;
        let own = (p.load_avg, p.load_avg + p.load_more);
        let on = (waking.rq_cpu, p.cfs_load_avg);
        let find = || Some(judge.h_load(own, p.tg, on, waking.ts, queues));
        self.span("h_load of the wakee", p.pid, find)
    }
    fn waker_h_load(&mut self) -> u64 {
        if let Some(s) = self.seen() {
            return s.h_load[1];
        }
        let (judge, queues, waking) = (self.p, self.queues, self.waking.ts);
        let (c, ts) = (self.select.cpu, self.select.ts);
        let find = || {
            let (own, tg) = queues.curr_load(c, ts)?;
            let root = judge.f.loads.at(c, waking, ts).map_or(own.1, |l| l.1);
            Some(judge.h_load(own, tg, (c, root), ts, queues))
        };
        self.span("h_load of the waker", self.select.curr_pid, find)
    }
    fn waker_flips(&mut self) -> u32 {
        let r = self.select;
        let more = (r.flips_more.0, r.flips_of.0, r.flips_own.0);
        self.flips(r.curr_wakee_flips, r.curr_pid, more, r.flips_half.0)
    }
    fn wakee_flips(&mut self) -> u32 {
        let r = self.select;
        let more = (r.flips_more.1, r.flips_of.1, r.flips_own.1);
        self.flips(r.wakee_flips, r.p.pid, more, r.flips_half.1)
    }
    fn waker_is_per_cpu_kthread(&mut self) -> bool {
        let known = self.p.f.tasks.waker_is_per_cpu_kthread(self.select);
        let u = Unknown { name: "whether the waker is a per-CPU kthread", of: 0 };
        self.k.truth(u, known, false)
    }
    fn in_task(&mut self) -> bool {
        let (t, waking) = (self.p.f.trace, self.waking);
        let idle = t.rebuilt && waking.curr_pid == 0;
        let known = !idle && !t.in_interrupt(waking);
        let (flags, stack) = (waking.flags.map(|f| !f.interrupt), t.stack(waking));
        let u = Unknown { name: "whether the wakeup comes from an interrupt", of: 0 };
        let told = flags.or((idle || !stack.is_empty()).then_some(known));
        self.k.truth(u, told, known)
    }
    fn recent_used_cpu(&mut self) -> Cpu {
        if self.p.f.trace.rebuilt || self.waking.recent_used_cpu.is_none() {
            return self.rebuilt_recent();
        }
        let known = 0..self.p.f.trace.nr_cpus as i64;
        let recent = self.waking.recent_used_cpu.filter(|c| known.contains(c));
        recent.map_or(self.select.cpu, |c| Cpu(c as u16))
    }
    fn has_idle_cores(&mut self, c: Cpu) -> bool {
        let llc = self.p.f.topology.llc_id(c).ix();
        let known = match self.seen() {
            Some(s) => s.idle_cores(self.p.f.topology, c),
            None => self.p.idle_cores.get(&llc).copied(),
        };
        let u = Unknown { name: CORES, of: llc as i64 };
        self.k.truth(u, known, false)
    }
    fn nr_idle_scan(&mut self, c: Cpu) -> u32 {
        let llc = self.p.f.topology.llc_id(c).ix();
        let (seen, judge) = (self.seen(), self.p);
        let shown = || seen.and_then(|s| s.idle_scan(judge.f.topology, c));
        let find = || shown().or_else(|| Some(judge.scan.range(llc)));
        self.span(SCAN, llc as i64, find) as u32
    }
    /// A whole round, or as few as a search may look at: of a given set of idle CPUs no limit in
    /// between finds another one.
    fn scan_budget(&mut self) -> (u64, u64) {
        let u = Unknown { name: "avg_idle and avg_scan_cost", of: 0 };
        (self.k.ask(u, &[1_000_000, 0]) as u64, 0)
    }
}
