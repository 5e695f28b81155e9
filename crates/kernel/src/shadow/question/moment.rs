//! The moment of a recorded balancing, put together for the balancer's own code.
//!
//! *What.* [`Ground`] is a machine without time and a scheduler without history. For each run the
//! numbers of the domain's CPUs are written into it as the pass can have read them, and, when the
//! pass is about to lock a queue, that queue's tasks in the order of its list. Then
//! [`Balancer::pass_alone`] decides. Nothing is decided here.
//! *Equation.* Loads and utilisations are intervals. The decision compares sums and single values
//! of different groups, rising in one and falling in the other, so the runs are: all in the
//! middle, all low, all high, and each group, and each queue that may be pulled from, at one end
//! with all others at the other; such a queue also with the other groups, against the rest of its
//! own.

use super::known::names::{CAPACITY, IDLE, PLACEMENT};
use super::known::{Asker, Unknown};
use super::levels::CONTENT;
use crate::shadow::rows::trace::fair_policy;
use crate::shadow::state::counts::Count;
use std::collections::BTreeMap;
use vruntime_base::{Cause, Cpu, CpuMask, Ledger, Noise, Ns, TaskId, VTime};
use vruntime_machine::{Machine, Topology};
use vruntime_sched::balance::alone::{Locked, LoneEnd, LonePass};
use vruntime_sched::balance::imbalance::MigrationType;
use vruntime_sched::balance::stats::{GroupStats, GroupType, group_classify};
use vruntime_sched::balance::{Balancer, SdState};
use vruntime_sched::cx::{Cx, Shared, WakeStats};
use vruntime_sched::domains::Domains;
use vruntime_sched::fair::{CfsId, Fair, SchedAvg, SeId};
use vruntime_sched::release::Release;
use vruntime_sched::task::{Affinities, Policy, Rq, RqLoad, Task};

const NOW: Ns = Ns(1 << 40);
const COUNT: &str = "tasks of a CPU whose count changed meanwhile";
const DELAYED: &str = "tasks in delayed dequeue on a CPU where that changed meanwhile";
pub(super) const NUMBERS: &str = "load or utilisation of a CPU between updates";
pub(super) const MARKED: &str = "whether a group is marked imbalanced";
const FAILED: &str = "nr_balance_failed";
const HOT: &str = "when a task last ran";
const BUDDY: &str = "whether a preemption check marked a queued task";
const UTIL: &str = "utilisation of a queued task";
const H_LOAD: &str = "h_load of a queued task";
const AFFINITY: &str = "allowed CPUs of a queued task";

/// What is known of one CPU when its numbers are read.
#[derive(Clone, Debug, Default)]
pub struct CpuThen {
    /// Tasks, the likeliest first.
    pub counts: Vec<Count>,
    /// Of the fair ones in delayed dequeue, by now.
    pub delayed: i64,
    /// How many there were while the numbers may have been read, if that changed.
    pub were_delayed: Vec<i64>,
    /// `idle_cpu`, if it has no task.
    pub idle: Option<bool>,
    /// Lowest and highest `load_avg`, utilisation and runnable time.
    pub load: (u64, u64),
    /// See `load`.
    pub util: (u64, u64),
    /// See `load`.
    pub runnable: (u64, u64),
    /// The most of its capacity that real-time tasks may have used.
    pub used: u64,
}

impl CpuThen {
    /// Of the fair tasks of `c` in delayed dequeue, when its numbers are read.
    fn delayed_when_read(&self, k: &mut Asker, c: Cpu) -> i64 {
        let mut options = vec![self.delayed];
        options.extend(self.were_delayed.iter().filter(|&&n| n != self.delayed));
        k.ask(Unknown { name: DELAYED, of: c.0.into() }, &options)
    }
}

/// What is known of a queued task when its queue is locked.
#[derive(Clone, Debug)]
pub struct TaskThen {
    /// Which.
    pub pid: i64,
    /// SCHED_* number.
    pub policy: i64,
    /// Weight × 1024.
    pub weight: u64,
    /// Virtual runtime and deadline.
    pub vruntime: (u64, u64),
    /// Request size.
    pub slice: u64,
    /// In delayed dequeue.
    pub delayed: bool,
    /// It runs.
    pub curr: bool,
    /// A preemption check has marked it.
    pub buddy: Option<bool>,
    /// A kernel thread that may use one CPU only.
    pub bound: bool,
    /// CPUs that it is known to be allowed on, or not; others are not known.
    pub allowed: BTreeMap<Cpu, bool>,
    /// Time since it last ran where it is: least and most.
    pub age: (u64, u64),
    /// Lowest and highest `task_h_load`.
    pub h_load: (u64, u64),
    /// Lowest and highest `task_util_est`.
    pub util: (u64, u64),
}

impl TaskThen {
    /// One in delayed dequeue of which no more is known.
    pub fn unseen() -> TaskThen {
        TaskThen {
            pid: -1,
            policy: 0,
            weight: 1 << 20,
            vruntime: (0, 0),
            slice: 0,
            delayed: true,
            curr: false,
            buddy: Some(false),
            bound: false,
            allowed: BTreeMap::new(),
            age: (u64::MAX, u64::MAX),
            h_load: (0, 0),
            util: (0, 0),
        }
    }
}

/// A queue when it is locked.
#[derive(Clone, Debug)]
pub struct QueueThen {
    /// Its tasks, the first to be asked first.
    pub tasks: Vec<TaskThen>,
    /// Their virtual times are known.
    pub placed: bool,
}

/// A pass as the balancer saw it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Who balances what.
    pub pass: LonePass,
    /// By CPU; CPUs outside of the domain are not looked at.
    pub cpus: Vec<CpuThen>,
    /// The group that the kernel pulled from: whose queues may be compared.
    pub source: usize,
    /// Groups that may be marked imbalanced.
    pub marked: Vec<usize>,
    /// What `nr_balance_failed` can be, the likeliest first.
    pub failed: Vec<u32>,
    /// Asked is which queue is pulled from, not which tasks: what only they hang on is left out.
    pub source_only: bool,
}

/// What one run ends with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pulled {
    /// How.
    pub end: LoneEnd,
    /// The queue that was locked last.
    pub src: Option<Cpu>,
    /// Tasks taken off, in order.
    pub tasks: Vec<i64>,
    /// By which path, if any was.
    pub cause: Option<&'static str>,
    /// What kept the question from being asked in full.
    pub missing: Option<&'static str>,
}

/// See the module.
pub struct Ground {
    pub(super) sh: Shared,
    machine: Machine,
    fair: Fair,
    balancer: Balancer,
    resched: Vec<(Cpu, &'static Cause)>,
}

impl Ground {
    /// An idle machine.
    pub fn new(topo: &Topology, domains: &Domains, release: &Release) -> Ground {
        let n = topo.nr_cpus();
        let sh = Shared {
            wakes: vec![WakeStats::default(); domains.nr_slots()],
            domains: domains.clone(),
            release: release.clone(),
            // The idle tasks, and one for whatever else runs.
            tasks: (0..=n).map(|c| Task::new(Cpu::from_ix(c.min(n - 1)), n)).collect(),
            rqs: (0..n).map(|c| Rq { clock: NOW, ..Rq::idle(Cpu::from_ix(c)) }).collect(),
            loads: vec![RqLoad::default(); n],
            affinities: Affinities::new(n),
            nohz_idle: CpuMask::EMPTY,
            ledger: Ledger::new(n),
            noise: Noise::new(1),
            accounted: None,
            timers: vec![],
        };
        Ground {
            balancer: Balancer::new(domains, n),
            fair: Fair::new(n, release),
            machine: Machine::free(topo),
            resched: vec![],
            sh,
        }
    }

    /// The domains.
    pub fn domains(&self) -> &Domains {
        &self.sh.domains
    }

    /// One run of the pass of `m`; `queue` tells of a queue that is locked.
    pub fn pull(
        &mut self,
        k: &mut Asker,
        m: &Moment,
        queue: impl Fn(Cpu) -> Result<QueueThen, &'static str>,
    ) -> Pulled {
        let pass = m.pass;
        let mut pulled = Pulled {
            end: LoneEnd::NotItsTurn,
            src: None,
            tasks: vec![],
            cause: None,
            missing: None,
        };
        if let Err(missing) = self.numbers(k, m) {
            pulled.missing = Some(missing);
            return pulled;
        }
        let idle_tasks = self.clear(m);
        let Ground { sh, machine, fair, balancer, resched } = self;
        let mut cx =
            Cx { now: NOW, cpu: pass.on, sh, machine, cost: Ns::ZERO, slowdown: 1024, resched };
        for g in 0..cx.sh.domains.at(pass.slot).groups.len() {
            let u = Unknown { name: MARKED, of: g as i64 };
            let flag = m.marked.contains(&g) && k.truth(u, None, false);
            cx.sh.domains.set_imbalanced(pass.slot, g, flag);
        }
        let mut pids = vec![];
        pulled.end = balancer.pass_alone(fair, &mut cx, &pass, |l, state, fair, cx| {
            if pulled.src == Some(l.src) {
                // It goes on with what it left there.
                return;
            }
            pulled.src = Some(l.src);
            let (mut queue, mut missing) = match queue(l.src) {
                Ok(queue) => (queue, None),
                Err(missing) => (QueueThen { tasks: vec![], placed: true }, Some(missing)),
            };
            let delayed = queue.tasks.iter().filter(|t| t.delayed).count();
            let then = &m.cpus[l.src.ix()];
            let since = then.delayed - then.delayed_when_read(k, l.src);
            let now = (i64::from(cx.sh.loads[l.src.ix()].h_nr_delayed) + since).max(0);
            let unseen = (now as usize).saturating_sub(delayed);
            let stay = cx.sh.release.detach_skips_delayed;
            if unseen > 0 && (l.imbalance.kind == MigrationType::Load || !stay) {
                missing = missing.or(Some(CONTENT));
            }
            // Other than for load they are passed over, wherever they are.
            queue.tasks.splice(0..0, std::iter::repeat_n(TaskThen::unseen(), unseen));
            pids.extend(queue.tasks.iter().map(|t| t.pid));
            pulled.missing = fill(k, m, l, state, &queue, fair, cx).or(missing).or(pulled.missing);
        });
        let moved = balancer.moved.iter();
        pulled.tasks = moved.map(|x| pids[x.task.ix() - idle_tasks]).collect();
        pulled.cause = balancer.moved.first().map(|x| x.cause.name);
        pulled
    }

    /// The task that the stopper of `src` pushes to `dst`.
    pub fn push(
        &mut self,
        k: &mut Asker,
        m: &Moment,
        src: Cpu,
        queue: Result<QueueThen, &'static str>,
    ) -> Pulled {
        let (end, missing) = (LoneEnd::NoQueue, queue.as_ref().err().copied());
        let mut pulled = Pulled { end, src: Some(src), tasks: vec![], cause: None, missing };
        let Ok(queue) = queue else { return pulled };
        let tasks = &queue.tasks;
        let idle_tasks = self.clear(m);
        (self.sh.loads[src.ix()], self.sh.loads[m.pass.on.ix()]) = Default::default();
        // The stopper runs, whoever ran in an earlier question.
        self.sh.rqs[src.ix()].curr = TaskId::from_ix(src.ix());
        let Ground { sh, machine, fair, balancer, resched } = self;
        let mut cx =
            Cx { now: NOW, cpu: src, sh, machine, cost: Ns::ZERO, slowdown: 1024, resched };
        let imbalance =
            vruntime_sched::balance::imbalance::Imbalance { kind: MigrationType::Task, amount: 1 };
        let locked = Locked { src, imbalance };
        fill(k, m, locked, balancer.state_mut(m.pass.slot), &queue, fair, &mut cx);
        // The stopper counts.
        cx.sh.loads[src.ix()].nr_running = tasks.len() as u32 + 1;
        let rq = &mut cx.sh.rqs[src.ix()];
        (rq.active_balance, rq.push_cpu) = (true, m.pass.on);
        let _ = balancer.active_balance(fair, &mut cx, src);
        let moved = balancer.moved.iter();
        pulled.tasks = moved.map(|x| tasks[x.task.ix() - idle_tasks].pid).collect();
        pulled.cause = balancer.moved.first().map(|x| x.cause.name);
        pulled
    }

    /// Forgets the run before; the answer is how many tasks there always are.
    fn clear(&mut self, m: &Moment) -> usize {
        for c in self.sh.domains.at(m.pass.slot).span.iter() {
            let cfs = CfsId(u32::from(c.0));
            self.fair.restore_empty(cfs);
            let q = &mut self.fair.cfs[cfs.ix()];
            (q.h_nr_queued, q.h_nr_runnable, q.idle_h_nr) = (0, 0, 0);
            q.avg = SchedAvg::default();
        }
        self.fair.ses.clear();
        let always = self.sh.rqs.len() + 1;
        self.sh.tasks.truncate(always);
        self.balancer.moved.clear();
        self.resched.clear();
        always
    }

    /// Writes the numbers of the domain's CPUs.
    fn numbers(&mut self, k: &mut Asker, m: &Moment) -> Result<(), &'static str> {
        let span: Vec<Cpu> = self.sh.domains.at(m.pass.slot).span.iter().collect();
        self.tasks(k, &m.cpus, &span)?;
        let groups = 0..self.sh.domains.at(m.pass.slot).groups.len();
        let types = groups.map(|g| self.types(m, g)).collect::<Result<Vec<_>, _>>()?;
        let ends = self.ends(k, m, &span, &types);
        self.averages(&m.cpus, &span, ends);
        Ok(())
    }

    /// Writes what runs and waits on the CPUs of `span`.
    pub(super) fn tasks(
        &mut self,
        k: &mut Asker,
        cpus: &[CpuThen],
        span: &[Cpu],
    ) -> Result<(), &'static str> {
        let n = self.sh.rqs.len();
        for &c in span {
            let then = &cpus[c.ix()];
            let options: Vec<i64> = (0..then.counts.len() as i64).collect();
            if options.is_empty() {
                return Err(COUNT);
            }
            let of = i64::from(c.0);
            let count = then.counts[k.ask(Unknown { name: COUNT, of }, &options) as usize];
            let idle = count.all == 0
                && k.truth(Unknown { name: IDLE, of }, then.idle, then.idle.unwrap_or(true));
            let delayed = then.delayed_when_read(k, c) + count.hidden;
            let l = &mut self.sh.loads[c.ix()];
            *l = RqLoad::default();
            l.nr_running = count.all.max(0) as u32;
            l.h_nr_queued = count.fair.clamp(0, count.all.max(0)) as u32;
            l.h_nr_delayed = delayed.clamp(0, i64::from(l.h_nr_queued)) as u32;
            let rq = &mut self.sh.rqs[c.ix()];
            *rq = Rq { clock: NOW, ..Rq::idle(c) };
            if !idle {
                rq.curr = TaskId::from_ix(n);
            }
        }
        Ok(())
    }

    /// Writes loads, utilisation and runnable time of the CPUs of `span`, at their `ends`.
    pub(super) fn averages(&mut self, cpus: &[CpuThen], span: &[Cpu], ends: Ends) {
        for &c in span {
            let then = &cpus[c.ix()];
            let at = |end, (lo, hi): (u64, u64)| match end {
                End::Low => lo,
                End::High => hi,
                End::Middle => lo.midpoint(hi),
            };
            let l = &mut self.sh.loads[c.ix()];
            l.load_avg = at(ends.of_load(c), then.load);
            l.util_avg = at(ends.of(c), then.util) as u32;
            l.runnable_avg = at(ends.of(c), then.runnable) as u32;
        }
    }

    /// What group `g` is with its numbers at their low and at their high ends, if that is the same
    /// whether real-time tasks have used what they may of its capacity, or nothing. Of an
    /// overloaded one they change what its load is compared as.
    fn types(&self, m: &Moment, g: usize) -> Result<[GroupType; 2], &'static str> {
        let sd = self.sh.domains.at(m.pass.slot);
        let group = &sd.groups[g];
        let full = 1024 * u64::from(group.weight);
        let used: u64 = group.span.iter().map(|c| m.cpus[c.ix()].used).sum();
        let ends: [fn((u64, u64)) -> u64; 2] = [|(lo, _)| lo, |(_, hi)| hi];
        let with = |group_capacity| {
            ends.map(|end| {
                let (group_weight, mut s) = (group.weight, GroupStats::default());
                for c in group.span.iter() {
                    let then = &m.cpus[c.ix()];
                    s.sum_nr_running += self.sh.loads[c.ix()].nr_running;
                    s.group_util += end(then.util);
                    s.group_runnable += end(then.runnable);
                }
                let s = GroupStats { group_weight, group_capacity, ..s };
                group_classify(sd.imbalance_pct, &s)
            })
        };
        let types = with(full);
        let compared = used > 0 && types.contains(&GroupType::Overloaded);
        if with(full - used) == types && !compared { Ok(types) } else { Err(CAPACITY) }
    }

    /// Which ends of their intervals the numbers of the CPUs are at in this run. `types`: what each
    /// group is at its low ends and its high ones.
    fn ends(&self, k: &mut Asker, m: &Moment, span: &[Cpu], types: &[[GroupType; 2]]) -> Ends {
        let sd = self.sh.domains.at(m.pass.slot);
        let open = |c: &Cpu| {
            let t = &m.cpus[c.ix()];
            [t.load, t.util, t.runnable].iter().any(|(lo, hi)| lo != hi)
        };
        let all = || sd.span;
        let spare = [GroupType::HasSpare; 2];
        if !span.iter().any(open) || types.iter().all(|t| *t == spare) {
            // Groups with time to spare are compared by tasks and idle CPUs alone.
            return Ends::default();
        }
        let none = CpuMask::EMPTY;
        let mut options =
            vec![Ends::default(), Ends::between(all(), none), Ends::between(none, all())];
        // Where a group's type hangs on its utilisation, its load may be at the other end.
        for g in [sd.group_of(m.pass.on), m.source] {
            if types[g][0] != types[g][1] {
                let crossed = sd.groups[g].span;
                options.push(Ends { crossed, ..Ends::between(all(), none) });
                options.push(Ends { crossed, ..Ends::between(none, all()) });
            }
        }
        let mut one = |mask: CpuMask| {
            let rest = all().minus(&mask);
            for e in [Ends::between(mask, rest), Ends::between(rest, mask)] {
                if !options.contains(&e) {
                    options.push(e);
                }
            }
        };
        sd.groups.iter().for_each(|g| one(g.span));
        let source = sd.groups[m.source].span;
        for c in source.iter() {
            if self.sh.loads[c.ix()].h_nr_queued > 0 && open(&c) {
                let queue = CpuMask::one(c);
                one(queue);
                // How much its group may send hangs on the others, too.
                one(source.minus(&queue));
            }
        }
        let numbers: Vec<i64> = (0..options.len() as i64).collect();
        options[k.ask(Unknown { name: NUMBERS, of: 0 }, &numbers) as usize]
    }
}

/// CPUs whose numbers are at the high ends, and at the low ends; the others are in the middle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    high: CpuMask,
    low: CpuMask,
    /// Their loads are at the other end than all else.
    crossed: CpuMask,
}

#[derive(Clone, Copy)]
pub(super) enum End {
    Low,
    High,
    Middle,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends::between(CpuMask::EMPTY, CpuMask::EMPTY)
    }
}

impl Ends {
    pub fn between(high: CpuMask, low: CpuMask) -> Ends {
        Ends { high, low, crossed: CpuMask::EMPTY }
    }
    pub fn of(&self, c: Cpu) -> End {
        match (self.high.has(c), self.low.has(c)) {
            (true, _) => End::High,
            (_, true) => End::Low,
            _ => End::Middle,
        }
    }
    fn of_load(&self, c: Cpu) -> End {
        match self.of(c) {
            End::High if self.crossed.has(c) => End::Low,
            End::Low if self.crossed.has(c) => End::High,
            end => end,
        }
    }
}

/// Makes the queue of `l.src` hold the tasks of `queue`; the answer is what is missing for that.
fn fill(
    k: &mut Asker,
    m: &Moment,
    l: Locked,
    state: &mut SdState,
    queue: &QueueThen,
    fair: &mut Fair,
    cx: &mut Cx,
) -> Option<&'static str> {
    let (src, tasks) = (l.src, &queue.tasks);
    let cfs = CfsId(u32::from(src.0));
    let by_task = l.imbalance.kind == MigrationType::Task;
    let by_util = l.imbalance.kind == MigrationType::Util;
    let by_load = l.imbalance.kind == MigrationType::Load;
    let dst_waits = cx.sh.loads[m.pass.on.ix()].h_nr_queued;
    let release = &cx.sh.release;
    let cost = release.migration_cost_ns;
    let by_mark = release.cache_hot_buddy && cx.sh.loads[m.pass.on.ix()].nr_running > 0;
    let marked = |t: &TaskThen| by_mark && t.buddy != Some(false);
    let may_be_hot = |t: &TaskThen| !t.curr && (t.age.0 < cost || marked(t));
    let first_counts = release.detach_first_wants_eligible && dst_waits > 0;
    state.nr_balance_failed = 0;
    let failed_counts = !by_task || first_counts || tasks.iter().any(may_be_hot);
    if failed_counts && !m.source_only {
        let options: Vec<i64> = m.failed.iter().map(|&n| i64::from(n)).collect();
        state.nr_balance_failed = k.ask(Unknown { name: FAILED, of: 0 }, &options) as u32;
    }
    fair.cfs[m.pass.on.ix()].nr_queued = dst_waits;
    let least = tasks.iter().map(|t| VTime(t.vruntime.0)).reduce(VTime::earlier);
    let rq = &mut cx.sh.rqs[src.ix()];
    (rq.cfs_tasks_head, rq.cfs_tasks_tail) = (TaskId::NONE, TaskId::NONE);
    let q = &mut fair.cfs[cfs.ix()];
    q.min_vruntime = least.unwrap_or_default();
    let jiffy = cx.jiffies();
    // Each task's own value is its share already.
    (q.avg.load_avg, q.h_load, q.last_h_load_update) = (1 << 30, (1 << 30) + 1, jiffy);
    q.avg.last_update_time = NOW;
    let first = cx.sh.tasks.len();
    for (i, t) in tasks.iter().enumerate() {
        let p = TaskId::from_ix(first + i);
        let se = fair.new_entity(p, vruntime_sched::task::TgId(0), src);
        let new = task(k, m, t, src, se, cx);
        cx.sh.tasks.push(new);
        let e = &mut fair.ses[se.ix()];
        e.set_weight((t.weight as u32).max(1 << 10));
        (e.vruntime, e.deadline, e.slice) = (VTime(t.vruntime.0), VTime(t.vruntime.1), t.slice);
        e.sched_delayed = t.delayed;
        e.idle = fair_policy(t.policy) == Policy::Idle;
        e.avg.last_update_time = NOW;
        let u = Unknown { name: HOT, of: t.pid };
        let open = t.age.0 < cost && !m.source_only;
        let hot = t.age.1 < cost || (open && k.truth(u, None, false));
        e.exec_start = if hot { NOW } else { Ns::ZERO };
        e.avg.util_avg = match t.util {
            (lo, hi) if lo == hi || !by_util || m.source_only => hi as u32,
            (lo, hi) => k.ask(Unknown { name: UTIL, of: t.pid }, &[hi as i64, lo as i64]) as u32,
        };
        e.avg.load_avg = match t.h_load {
            (lo, hi) if lo == hi || !by_load || m.source_only => hi,
            (lo, hi) => k.ask(Unknown { name: H_LOAD, of: t.pid }, &[hi as i64, lo as i64]) as u64,
        };
        let u = Unknown { name: BUDDY, of: t.pid };
        if by_mark && k.truth(u, t.buddy.or(m.source_only.then_some(false)), false) {
            // There are two marks at the most.
            let q = &mut fair.cfs[cfs.ix()];
            (q.last, q.next) = (q.next, se);
        }
        if t.curr {
            cx.sh.rqs[src.ix()].curr = p;
            e.exec_start = NOW;
            fair.restore_curr(se);
        } else {
            fair.restore_queued(se);
        }
        let q = &mut fair.cfs[cfs.ix()];
        q.h_nr_queued += 1;
        q.h_nr_runnable += u32::from(!t.delayed);
        q.idle_h_nr += u32::from(fair_policy(t.policy) == Policy::Idle);
        cx.sh.cfs_tasks_add(src, p);
    }
    let others = cx.sh.loads[src.ix()].nr_running - cx.sh.loads[src.ix()].h_nr_queued;
    cx.sh.loads[src.ix()].nr_running = tasks.len() as u32 + others;
    let needed = first_counts && state.nr_balance_failed == 0 && !m.source_only;
    (needed && !queue.placed).then_some(PLACEMENT)
}

fn task(k: &mut Asker, m: &Moment, t: &TaskThen, src: Cpu, se: SeId, cx: &mut Cx) -> Task {
    let n = cx.sh.rqs.len();
    let dst = m.pass.on;
    let mut ask = |c: Cpu, guess: bool| {
        let u = Unknown { name: AFFINITY, of: t.pid << 16 | i64::from(c.0) };
        k.truth(u, t.allowed.get(&c).copied(), guess)
    };
    let mut mask = CpuMask::first_n(n);
    if t.bound {
        mask = CpuMask::one(src);
    } else if t.pid < 0 {
        // Passed over before its affinity is looked at.
    } else if !t.curr && !ask(dst, true) {
        // The balancer then asks for others of its group.
        mask = CpuMask::one(src);
        let sd = cx.sh.domains.at(m.pass.slot);
        for c in sd.groups[sd.group_of(dst)].balance_mask.iter().filter(|&c| c != dst) {
            if ask(c, false) {
                mask.set(c);
            }
        }
    }
    Task {
        policy: fair_policy(t.policy),
        state: vruntime_sched::task::TaskState::Running,
        on_rq: true,
        kthread: t.bound,
        affinity: cx.sh.affinities.intern(mask),
        nr_cpus_allowed: mask.weight() as u16,
        se,
        ..Task::new(src, n)
    }
}

#[cfg(test)]
mod tests;
