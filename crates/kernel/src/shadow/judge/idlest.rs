//! Placement at fork and exec: for every recorded choice of the slow path, what would our code
//! choose?
//!
//! *What.* `question::choice` runs `find_idlest_cpu` from what is known of the CPUs of the highest
//! domain that balances on fork or exec. Nontrivial: the kernel chose another CPU than the one on
//! which it was asked.
//! *Time.* The numbers are read between the last row of the CPU and the row of the choice, at the
//! most a few times as long before it as the choice for a wakeup takes.
//! *Idle stamps.* `idle_stamp` is the clock at which the pass began that found nothing to run, so
//! shortly before the clock that the switch to the idle task shows. After a task of a higher class
//! that pass is left out if entities in delayed dequeue seem to be something to run; the pick then
//! takes them off, and the CPU goes idle with the stamp that it had, or with none. So it is if a
//! deadline server of the fair class seems to be something to run, which no row shows.
//! Where a driver puts CPUs into idle states, exit latencies come first, and those are in no row.

use super::explain::range;
use super::migration::Migrations;
use super::placement::Facts;
use super::result::{Disagreement, KindResult};
use crate::shadow::question::choice::{Choice, OwnPart};
use crate::shadow::question::known::names::CAPACITY;
use crate::shadow::question::known::{Asker, explore_until_tipped};
use crate::shadow::question::moment::{CpuThen, Ground};
use crate::shadow::rows::neighbours::previous_rows;
use crate::shadow::rows::trace::{Row, RowKind, Trace, WF_FORK};
use crate::shadow::state::counts::READS;
use crate::shadow::state::queues::Queues;
use crate::shadow::state::tasks::Allowed;
use vruntime_base::{Cpu, CpuMask};
use vruntime_sched::domains::SdFlags;
use vruntime_sched::scheduler::Placement;

const AFFINITY: &str = "allowed CPUs of the task";
const BEFORE: &str = "where the task was before";

/// `idle_stamp` of all CPUs: earliest and latest.
#[derive(Clone, Debug)]
struct IdleStamps {
    by_cpu: Vec<(u64, u64)>,
    switches: Vec<Option<i64>>,
    slack: u64,
    /// CPUs idle without a driver.
    without_states: bool,
    /// The kernel has deadline servers.
    servers: bool,
}

impl IdleStamps {
    fn new(t: &Trace, slack: u64) -> IdleStamps {
        let shows = |f: fn(&str) -> bool| t.stacks.iter().flatten().any(|x| f(x));
        let without_states =
            shows(|f| f == "default_idle_call") && !shows(|f| f.starts_with("cpuidle_enter"));
        let clocks = t.rows.iter().filter_map(|r| Some(r.clock_task? - r.ts as i64));
        let ahead = clocks.max().unwrap_or(0);
        let first = t.rows.iter().find(|r| r.kind == RowKind::Switch).map_or(0, |r| r.ts);
        IdleStamps {
            // Idle since before the recording.
            by_cpu: vec![(0, first.saturating_add_signed(ahead)); t.nr_cpus],
            switches: vec![None; t.nr_cpus],
            slack,
            without_states,
            servers: shows(|f| f == "dl_task_timer"),
        }
    }

    /// Takes in the switch `r`, before `q` does. `since`: the row before it on the CPU.
    fn note(&mut self, r: &Row, since: u64, q: &Queues) {
        let c = r.cpu.ix();
        let before = std::mem::replace(&mut self.switches[c], r.nr_switches);
        let lost = before.zip(r.nr_switches).is_some_and(|(b, now)| now - b > 1);
        if r.n.is_none_or(|n| n.pid != 0) && !lost {
            return;
        }
        let clock = r.clock_task.map_or(u64::MAX >> 1, |k| k.max(0) as u64);
        let higher = r.p.pid != 0 && r.p.prio < 100;
        let delayed = || q.cpus[c].queued.values().any(|s| s.side.sched_delayed);
        self.by_cpu[c] = match r.clock_task {
            Some(_) if higher && delayed() => (0, self.by_cpu[c].1),
            Some(_) if higher && self.servers => (0, clock),
            Some(_) if !lost => {
                (clock.saturating_sub((r.ts - since).min(READS * self.slack)), clock)
            }
            _ => (0, clock),
        };
    }

    fn of(&self, c: Cpu) -> (u64, u64) {
        if self.without_states { self.by_cpu[c.ix()] } else { (0, u64::MAX >> 1) }
    }
}

/// Counts and disagreements of the slow path.
pub struct Idlest<'a> {
    f: &'a Facts<'a>,
    prev: Vec<Option<usize>>,
    stamps: IdleStamps,
    ground: Ground,
    /// What a CPU's last row shows is of a task in a group.
    in_groups: Vec<bool>,
    /// Counts of forks.
    pub forks: KindResult,
    /// Counts of execs.
    pub execs: KindResult,
    /// Disagreements.
    pub disagreements: Vec<Disagreement>,
}

impl<'a> Idlest<'a> {
    /// At the start of the recording. `next`: for every row, the next one of the same CPU.
    pub fn new(f: &'a Facts<'a>, next: &[Option<usize>], slack: u64) -> Idlest<'a> {
        Idlest {
            stamps: IdleStamps::new(f.trace, slack),
            prev: previous_rows(f.trace, next),
            in_groups: vec![false; f.trace.nr_cpus],
            ground: Ground::new(f.topology, f.domains, f.release),
            f,
            forks: KindResult::new("placement_fork"),
            execs: KindResult::new("placement_exec"),
            disagreements: vec![],
        }
    }

    /// Checks the `select_rq` row `at` of a fork or an exec; the answer is what was known.
    pub fn check(&mut self, at: usize, q: &Queues, m: &Migrations) -> Option<Choice> {
        let r = &self.f.trace.rows[at];
        let choice = self.choice(at, q, m);
        let result = if is_fork(r) { &mut self.forks } else { &mut self.execs };
        let choice = match choice {
            Ok(choice) => choice,
            Err(missing) => {
                result.miss(&[missing]);
                return None;
            }
        };
        let ground = &mut self.ground;
        type Run = Result<Placement, &'static str>;
        let same = |a: &Run, b: &Run| a.map(|x| x.cpu) == b.map(|x| x.cpu);
        let o = explore_until_tipped(|k: &mut Asker| ground.place(k, &choice), same);
        let missing = o.all.iter().find_map(|x| x.0.err());
        match o.guess {
            Ok(ours) if o.determined && missing.is_none() => {
                let kernel = Cpu(r.task_cpu() as u16);
                let agrees = ours.cpu == kernel;
                result.count(agrees, kernel != r.cpu, ours.rule.name);
                if !agrees {
                    self.disagreements.push(Disagreement {
                        time: r.ts,
                        line: r.line,
                        kind: result.kind.clone(),
                        task: r.p.pid,
                        expected: format!("CPU {kernel}"),
                        got: format!("CPU {}", ours.cpu),
                        rule: ours.rule.name.into(),
                        state: state(&choice, self.f)
                            .into_iter()
                            .map(|(name, value)| format!("{name}: {value}"))
                            .collect::<Vec<_>>()
                            .join("; "),
                    });
                }
            }
            _ => {
                let mut names = o.tipping;
                names.extend(missing);
                result.miss(&names);
            }
        }
        Some(choice)
    }

    fn choice(&self, at: usize, q: &Queues, m: &Migrations) -> Result<Choice, &'static str> {
        let f = self.f;
        let t = f.trace;
        let r = &t.rows[at];
        let known = |c: &i64| (0..t.nr_cpus as i64).contains(c);
        let prev = Cpu(r.wake_cpu.filter(known).ok_or(BEFORE)? as u16);
        let to = r.ts.saturating_sub(1);
        let since = self.prev[at].map_or(0, |p| t.rows[p].ts);
        let from = m.chooses_from(r.cpu, to).max(since).min(to);
        let fork = is_fork(r);
        let mut c = Choice {
            flag: if fork { SdFlags::BALANCE_FORK } else { SdFlags::BALANCE_EXEC },
            cpu: r.cpu,
            prev,
            allowed: self.allowed(r, m)?,
            cpus: vec![CpuThen::default(); t.nr_cpus],
            sched_idle: vec![None; t.nr_cpus],
            stamps: f.topology.all().iter().map(|c| self.stamps.of(c)).collect(),
            marked: vec![],
            own: None,
        };
        let span = self.ground.span(&c);
        for &cpu in &span {
            let then = &mut c.cpus[cpu.ix()];
            *then = m.cpu_then(cpu, q, from, to);
            if then.used > 0 {
                // What real-time tasks leave is not known.
                return Err(CAPACITY);
            }
            if self.in_groups[cpu.ix()] || q.cpus[cpu.ix()].queued.values().any(|s| s.side.tg != 0)
            {
                // Rows of its tasks show their own queues only.
                (then.load, then.util, then.runnable) = ((0, 1 << 20), (0, 1024), (0, 1 << 20));
            }
            if then.idle.is_none() {
                // It may just go idle.
                c.stamps[cpu.ix()].1 = u64::MAX >> 1;
            }
            c.sched_idle[cpu.ix()] = q.sched_idle(cpu, from);
        }
        c.marked = self.marked(&span, r, m);
        // Of its own CPU the row itself shows what was read.
        let here = &mut c.cpus[r.rq_cpu.ix()];
        if r.p.tg == 0 {
            here.load = (r.p.cfs_load_avg, r.p.cfs_load_avg);
        }
        if !fork {
            let util = m.util(r.rq_cpu, q, from, to);
            here.util = if r.p.tg == 0 { (r.p.cfs_util_avg, r.p.cfs_util_avg) } else { util };
            here.runnable.0 = here.util.0;
            let queued = q.cpus[prev.ix()].queued.values();
            let est = queued.filter(|s| !s.side.sched_delayed).map(|s| s.side.util_est).sum();
            c.own = Some(OwnPart {
                h_load: m.own_h_load(r, q),
                util: r.p.util_avg,
                util_est: if f.release.util_est { r.p.util_est } else { 0 },
                queue_util_est: if f.release.util_est { est } else { 0 },
            });
        }
        Ok(c)
    }

    fn marked(&self, span: &[Cpu], r: &Row, m: &Migrations) -> Vec<(usize, usize)> {
        let d = self.f.domains;
        let mut seen = vec![];
        let mut marked = vec![];
        for slot in span.iter().flat_map(|&c| d.slots(c).skip(1)) {
            if seen.contains(&d.id_at(slot)) {
                continue;
            }
            seen.push(d.id_at(slot));
            let groups = d.at(slot).groups.iter().enumerate();
            let may = groups.filter(|(_, g)| m.may_be_marked(g, r));
            marked.extend(may.map(|(i, _)| (slot, i)));
        }
        marked
    }

    /// Takes in row `i`, before `q` does.
    pub fn note(&mut self, i: usize, q: &Queues) {
        let rows = &self.f.trace.rows;
        let r = &rows[i];
        if r.kind == RowKind::Switch {
            self.stamps.note(r, self.prev[i].map_or(0, |p| rows[p].ts), q);
        }
        self.in_groups[r.rq_cpu.ix()] = r.p.tg != 0;
        if let Some(n) = r.n {
            self.in_groups[r.cpu.ix()] = n.tg != 0;
        }
    }

    fn allowed(&self, r: &Row, m: &Migrations) -> Result<CpuMask, &'static str> {
        let all = self.f.topology.all();
        if !is_fork(r) && r.p_nr_cpus_allowed == Some(1) {
            // It runs.
            return Ok(CpuMask::one(r.cpu));
        }
        if let Some(searched) = &r.searched {
            return Ok(searched.allowed);
        }
        let Allowed::Some(n) = self.f.tasks.allowed(r, self.f.trace.nr_cpus) else {
            return Ok(all.iter().collect());
        };
        // A child may use what its parent may.
        let who = match is_fork(r) {
            false => r.p.pid,
            true if r.curr_nr_cpus_allowed == Some(n) => r.curr_pid,
            true => return Err(AFFINITY),
        };
        let mut mask = CpuMask::EMPTY;
        for c in all.iter() {
            if m.may_use(who, n, c).ok_or(AFFINITY)? {
                mask.set(c);
            }
        }
        Ok(mask)
    }
}

/// The choice `r` is for a new task.
pub fn is_fork(r: &Row) -> bool {
    r.wake_flags() & WF_FORK != 0
}

/// What was known, by group of the highest domain: name and value.
pub fn state(m: &Choice, f: &Facts) -> Vec<(String, String)> {
    let d = f.domains;
    let Some(top) = vruntime_sched::fair::idlest::top_domain(d, m.cpu, m.flag) else {
        return vec![];
    };
    let sd = d.at(top);
    let cpu = |c: Cpu| {
        let then = &m.cpus[c.ix()];
        let counts: Vec<String> = then.counts.iter().map(|n| n.all.to_string()).collect();
        let util = range(then.util);
        match then.idle {
            Some(true) => format!("{c} idle since {} (util {util})", range(m.stamps[c.ix()])),
            idle => {
                let open = if idle.is_none() { "idle or " } else { "" };
                let (tasks, load) = (counts.join(" or "), range(then.load));
                format!("{c} {open}with {tasks} tasks (load {load}, util {util})")
            }
        }
    };
    let group =
        |g: &vruntime_sched::domains::Group| g.span.iter().map(cpu).collect::<Vec<_>>().join(", ");
    let all = sd.groups.iter().map(|g| {
        let here = if g.span.has(m.cpu) { " (its own)" } else { "" };
        let first = g.span.first().map_or(String::new(), |c| c.to_string());
        (format!("{} group of CPU {first}{here}", sd.name), group(g))
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::rows::trace::Side;

    fn switch(ts: u64, from: i64, prio: i64, to: i64) -> Row {
        let mut r = Row::new(ts, Cpu(0), RowKind::Switch);
        (r.clock_task, r.p.pid, r.p.prio) = (Some(ts as i64 + 7_000), from, prio);
        r.n = Some(Side { pid: to, prio: 120, ..Side::default() });
        r
    }

    /// 5 has gone to sleep and is in delayed dequeue while the stopper moves 6 away: the pick then
    /// takes 5 off without a pass for tasks to pull, so that the stamp is an older one, or none.
    #[test]
    fn a_stopper_that_leaves_delayed_entities_leaves_no_stamp() {
        let rows = vec![switch(10_000, 0, 120, 6), switch(50_000, 9, 0, 0)];
        let stacks = vec![vec!["default_idle_call".to_owned()]];
        let t = Trace { rows, stacks, nr_cpus: 1, ..Trace::default() };
        let stamp = |delayed: bool| {
            let mut q = Queues::new(&t);
            let side =
                Side { pid: 5, prio: 120, on_rq: true, sched_delayed: delayed, ..t.rows[0].p };
            let mut r = Row::new(20_000, Cpu(0), RowKind::Wakeup);
            r.p = side;
            q.apply(&t, &r);
            let mut s = IdleStamps::new(&t, 1_000);
            assert_eq!(s.of(Cpu(0)), (0, 17_000), "idle since before the recording");
            s.note(&t.rows[0], 0, &q);
            s.note(&t.rows[1], 49_000, &q);
            s.of(Cpu(0))
        };
        assert_eq!(stamp(true), (0, 17_000));
        // Since the row before it on the CPU.
        assert_eq!(stamp(false), (56_000, 57_000));
    }

    #[test]
    fn with_idle_states_the_order_is_not_known() {
        let stacks = vec![vec!["cpuidle_enter_state".to_owned(), "default_idle_call".to_owned()]];
        let t = Trace { stacks, nr_cpus: 1, ..Trace::default() };
        assert_eq!(IdleStamps::new(&t, 1_000).of(Cpu(0)), (0, u64::MAX >> 1));
    }
}
