//! The moment of a recorded fork or exec, put together for the slow path's own code.
//!
//! *What.* For each run the numbers of the CPUs that `find_idlest_cpu` reads are written into the
//! [`Ground`], as they can have been, and the code chooses. Nothing is decided here.
//! *Equation.* Groups are compared by sums and CPUs by single values, as in [`super::moment`]: all
//! in the middle, all low, all high, and each group and CPU of each domain at one end with all
//! others at the other. Of idle CPUs the last to go idle is taken: where that is not known, each of
//! those that can have been is it once, and, as a cache has cores, each two of one domain below the
//! highest: there the choice goes on.

use super::known::names::SCHED_IDLE;
use super::known::{Asker, Unknown};
use super::moment::{CpuThen, End, Ends, Ground, MARKED, NUMBERS};
use vruntime_base::{Cpu, CpuMask, Ns, TaskId};
use vruntime_sched::domains::SdFlags;
use vruntime_sched::fair::idlest::{Newcomer, find_idlest_cpu, top_domain};
use vruntime_sched::scheduler::Placement;
use vruntime_sched::task::Task;

const LAST_IDLE: &str = "which idle CPU went idle last";

/// What a task that calls exec adds to the numbers of its CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnPart {
    /// Lowest and highest `task_h_load`.
    pub h_load: (u64, u64),
    /// Its utilisation.
    pub util: u64,
    /// Its utilisation estimate.
    pub util_est: u64,
    /// The estimates of all that is queued there.
    pub queue_util_est: u64,
}

/// A choice as the kernel saw it.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Fork or exec.
    pub flag: SdFlags,
    /// Where it was made.
    pub cpu: Cpu,
    /// Where the task was.
    pub prev: Cpu,
    /// The task's CPUs.
    pub allowed: CpuMask,
    /// By CPU; CPUs outside of the highest domain are not looked at.
    pub cpus: Vec<CpuThen>,
    /// By CPU: all its tasks are SCHED_IDLE.
    pub sched_idle: Vec<Option<bool>>,
    /// By CPU: `idle_stamp`, earliest and latest.
    pub stamps: Vec<(u64, u64)>,
    /// Groups that may be marked imbalanced: domain, and which of its groups.
    pub marked: Vec<(usize, usize)>,
    /// Exec: the task runs on `prev`.
    pub own: Option<OwnPart>,
}

impl Ground {
    /// One run of `m`.
    pub fn place(&mut self, k: &mut Asker, m: &Choice) -> Result<Placement, &'static str> {
        let span = self.span(m);
        self.tasks(k, &m.cpus, &span)?;
        for &c in &span {
            let u = Unknown { name: SCHED_IDLE, of: i64::from(c.0) };
            let l = &mut self.sh.loads[c.ix()];
            if l.nr_running > 0 && k.truth(u, m.sched_idle[c.ix()], false) {
                l.idle_h_nr = l.nr_running;
            }
        }
        for i in 0..self.sh.domains.nr_slots() {
            for g in 0..self.sh.domains.at(i).groups.len() {
                self.sh.domains.set_imbalanced(i, g, false);
            }
        }
        for (i, &(slot, group)) in m.marked.iter().enumerate() {
            let flag = k.truth(Unknown { name: MARKED, of: i as i64 }, None, false);
            self.sh.domains.set_imbalanced(slot, group, flag);
        }
        let p = self.newcomer(m);
        let (ends, lasts) = (self.ends_of(m, &span), self.lasts(m, &span));
        let mut table = vec![];
        for &e in &ends {
            let who = self.write(m, &span, e, p);
            let mut row = vec![];
            for last in &lasts {
                self.stamp(m, &span, last);
                row.push(find_idlest_cpu(&self.sh, &who, m.cpu, m.prev, m.flag));
            }
            table.push(row);
        }
        // Only what makes a difference is asked for.
        let same = |a: &Placement, b: &Placement| a.cpu == b.cpu;
        let all = |a: &[Placement], b: &[Placement]| a.iter().zip(b).all(|(a, b)| same(a, b));
        let options = distinct(&table, |a, b| all(a, b));
        let row = &table[k.ask(Unknown { name: NUMBERS, of: 0 }, &options) as usize];
        let options = distinct(row, same);
        Ok(row[k.ask(Unknown { name: LAST_IDLE, of: 0 }, &options) as usize])
    }

    /// The CPUs whose numbers are read.
    pub fn span(&self, m: &Choice) -> Vec<Cpu> {
        let d = &self.sh.domains;
        let top = top_domain(d, m.cpu, m.flag);
        top.map_or(vec![m.cpu, m.prev], |slot| d.at(slot).span.iter().collect())
    }

    /// The task that a place is looked for.
    fn newcomer(&mut self, m: &Choice) -> TaskId {
        let n = self.sh.rqs.len();
        self.sh.tasks.truncate(n + 1);
        let p = TaskId::from_ix(n + 1);
        let affinity = self.sh.affinities.intern(m.allowed);
        let task = Task { affinity, on_rq: m.own.is_some(), ..Task::new(m.prev, n) };
        self.sh.tasks.push(task);
        if m.own.is_some() {
            self.sh.rqs[m.prev.ix()].curr = p;
        }
        p
    }

    /// Writes the averages of this run.
    fn write(&mut self, m: &Choice, span: &[Cpu], ends: Ends, p: TaskId) -> Newcomer {
        self.averages(&m.cpus, span, ends);
        let none = Newcomer { p, on: Cpu::NONE, h_load: 0, util: 0, util_est: 0, runnable: 0 };
        let Some(own) = m.own else { return none };
        self.sh.loads[m.prev.ix()].util_est = own.queue_util_est as u32;
        let (lo, hi) = own.h_load;
        // The more of a load is its own, the less is of others.
        let h_load = match ends.of(m.prev) {
            End::Low => hi,
            End::High => lo,
            End::Middle => lo.midpoint(hi),
        };
        let util = own.util as u32;
        Newcomer { on: m.prev, h_load, util, util_est: own.util_est as u32, runnable: util, ..none }
    }

    fn ends_of(&self, m: &Choice, span: &[Cpu]) -> Vec<Ends> {
        let wide = |c: Cpu| {
            let t = &m.cpus[c.ix()];
            let own = m.own.filter(|_| c == m.prev).map_or((0, 0), |o| o.h_load);
            [t.load, t.util, t.runnable, own].iter().any(|(lo, hi)| lo != hi)
        };
        let all: CpuMask = span.iter().copied().collect();
        let open: CpuMask = span.iter().copied().filter(|&c| wide(c)).collect();
        let mut options = vec![Ends::default()];
        if open == CpuMask::EMPTY {
            return options;
        }
        let d = &self.sh.domains;
        let slots = span.iter().flat_map(|&c| d.slots(c)).map(|slot| d.at(slot));
        let groups = slots.filter(|sd| sd.span.minus(&all) == CpuMask::EMPTY);
        let groups = groups.flat_map(|sd| sd.groups.iter().map(|g| g.span));
        for mask in std::iter::once(all).chain(groups).map(|g| g.and(&open)) {
            let rest = open.minus(&mask);
            for e in [Ends::between(mask, rest), Ends::between(rest, mask)] {
                if !options.contains(&e) {
                    options.push(e);
                }
            }
        }
        options
    }

    /// Sets of CPUs that may have gone idle last, the others as early as they can have.
    fn lasts(&self, m: &Choice, span: &[Cpu]) -> Vec<Vec<Cpu>> {
        let idle: Vec<Cpu> = span.iter().copied().filter(|&c| self.sh.idle_cpu(c)).collect();
        let stamp = |c: Cpu| m.stamps[c.ix()];
        let overlap = |c: Cpu, o: Cpu| stamp(c).0 <= stamp(o).1 && stamp(o).0 <= stamp(c).1;
        let open = |c: &&Cpu| idle.iter().any(|&o| o != **c && overlap(**c, o));
        let open: Vec<Cpu> = idle.iter().filter(open).copied().collect();
        let threads = self.sh.domains.slots(m.cpu).start;
        let cores = open.len() > 2 && self.sh.domains.at(threads).name == "SMT";
        // Below the highest domain the choice goes on near the first one.
        let top =
            top_domain(&self.sh.domains, m.cpu, m.flag).map(|slot| self.sh.domains.at(slot).span);
        let below = |c: Cpu| {
            let spans = self.sh.domains.slots(c).map(|slot| self.sh.domains.at(slot).span);
            spans.take_while(|&span| Some(span) != top).last()
        };
        // The guess: as late as they can have.
        let mut sets = vec![open.clone()];
        for (i, &c) in open.iter().enumerate() {
            sets.push(vec![c]);
            let near = below(c).filter(|_| cores).unwrap_or(CpuMask::EMPTY);
            let others = open[i + 1..].iter().filter(|&&o| near.has(o));
            sets.extend(others.map(|&o| vec![c, o]));
        }
        sets
    }

    fn stamp(&mut self, m: &Choice, span: &[Cpu], last: &[Cpu]) {
        for &c in span {
            let (lo, hi) = m.stamps[c.ix()];
            self.sh.rqs[c.ix()].idle_stamp = Ns(if last.contains(&c) { hi } else { lo });
        }
    }
}

/// The first of each kind, by number.
fn distinct<T>(all: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<i64> {
    let mut first: Vec<usize> = vec![];
    for (i, x) in all.iter().enumerate() {
        if !first.iter().any(|&f| same(&all[f], x)) {
            first.push(i);
        }
    }
    first.into_iter().map(|i| i as i64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::known::explore;
    use super::super::known::names::IDLE;
    use super::*;
    use crate::shadow::state::counts::Count;
    use crate::shadow::tests::{cores, release};
    use vruntime_sched::domains::Domains;

    /// Caches {0,1} and {2,3}; on CPU 0 runs the task that forks, the others are idle, 1 since 101,
    /// 2 since 102, 3 since 103.
    fn two_caches() -> (Ground, Choice) {
        let topo = cores(4, 2);
        let release = release("v6.1");
        let domains = Domains::build(&topo, &release);
        let mut m = Choice {
            flag: SdFlags::BALANCE_FORK,
            cpu: Cpu(0),
            prev: Cpu(0),
            allowed: topo.all().iter().collect(),
            cpus: vec![CpuThen::default(); 4],
            sched_idle: vec![Some(false); 4],
            stamps: (100..104).map(|s| (s, s)).collect(),
            marked: vec![],
            own: None,
        };
        (0..4).for_each(|c| runs(&mut m, c, i64::from(c == 0)));
        (Ground::new(&topo, &domains, &release), m)
    }

    /// `nr` tasks on CPU `c`, each of them of load 1024.
    fn runs(m: &mut Choice, c: usize, nr: i64) {
        let load = 1024 * nr as u64;
        m.cpus[c] = CpuThen {
            counts: vec![Count { all: nr, fair: nr, ..Count::default() }],
            idle: Some(nr == 0),
            load: (load, load),
            util: (load.min(1024), load.min(1024)),
            runnable: (load, load),
            ..CpuThen::default()
        };
    }

    /// All CPUs that are chosen, and what tips that.
    fn chosen(change: impl Fn(&mut Choice)) -> (Vec<u16>, String) {
        let (mut ground, mut m) = two_caches();
        change(&mut m);
        type Run = Result<Placement, &'static str>;
        let cpu = |r: &Run| r.expect("nothing is missing").cpu.0;
        let o = explore(|k| ground.place(k, &m), |a: &Run, b: &Run| cpu(a) == cpu(b));
        let mut cpus: Vec<u16> = o.all.iter().map(|x| cpu(&x.0)).collect();
        cpus.dedup();
        (cpus, o.tipping.into_iter().collect::<Vec<_>>().join(", "))
    }

    fn sure(c: u16) -> (Vec<u16>, String) {
        (vec![c], String::new())
    }

    /// The other cache has two idle CPUs against one; of them 3 went idle last.
    #[test]
    fn who_went_idle_last_is_asked_where_it_matters() {
        assert_eq!(chosen(|_| {}), sure(3));
        // 2 may have gone idle after 3.
        let (cpus, tips) = chosen(|m| m.stamps[2] = (100, 105));
        assert_eq!((cpus, tips.as_str()), (vec![2, 3], LAST_IDLE));
        // Not before it, and of its own cache nobody asks.
        assert_eq!(chosen(|m| m.stamps[2] = (50, 102)), sure(3));
        assert_eq!(chosen(|m| m.stamps[1] = (50, 1000)), sure(3));
    }

    #[test]
    fn whether_a_cpu_is_idle_tips_it_unless_another_one_is_as_good() {
        // With 3 busy it is 1 : 1, and a tie stays in the cache.
        let (cpus, tips) = chosen(|m| m.cpus[3].idle = None);
        assert_eq!((cpus, tips.as_str()), (vec![3, 1], IDLE));
        let (cpus, tips) =
            chosen(|m| m.cpus[3].counts.push(Count { all: 1, fair: 1, ..Count::default() }));
        assert_eq!(
            (cpus, tips.as_str()),
            (vec![3, 1], "tasks of a CPU whose count changed meanwhile")
        );
        assert_eq!(chosen(|m| m.cpus[1].idle = None), sure(3));
    }

    /// Both caches are overloaded, {0,1} with a load of 2560 a CPU: left if the other one has 174
    /// less and 1.17 times less.
    #[test]
    fn loads_are_intervals() {
        let busy = |m: &mut Choice, load: (u64, u64)| {
            (0..4).for_each(|c| runs(m, c, 2));
            runs(m, 3, 3);
            m.cpus[3].load = load;
            m.cpus[0].load = (3072, 3072);
        };
        // (2048 + 1500) / 2 is 1774, 1.44 times less; in that cache 3 has less than 2.
        assert_eq!(chosen(|m| busy(m, (1000, 1500))), sure(3));
        // (2048 + 3000) / 2 is 2524: not less enough. Then 1 has less than 0.
        let (cpus, tips) = chosen(|m| busy(m, (1000, 3000)));
        assert!(cpus.contains(&1) && cpus.contains(&3) && tips == NUMBERS, "{cpus:?} {tips}");
    }

    /// A mark outweighs the two idle CPUs.
    #[test]
    fn a_group_that_may_be_marked_is_asked_about() {
        let (mut ground, m) = two_caches();
        let top = top_domain(&ground.sh.domains, m.cpu, m.flag).unwrap();
        let (cpus, tips) = chosen(|m| m.marked = vec![(top, 1)]);
        assert_eq!((cpus, tips.as_str()), (vec![3, 1], MARKED));
        // The mark is gone in the next run.
        let o = explore(|k| ground.place(k, &m).map(|p| p.cpu.0), |a, b| a == b);
        assert_eq!((o.guess, o.determined), (Ok(3), true));
    }

    /// What calls exec leaves its own CPU as idle as the rest of the cache, and stays; a second
    /// task there makes it go.
    #[test]
    fn a_task_that_calls_exec_does_not_count_itself() {
        let exec = |m: &mut Choice, nr: i64| {
            m.flag = SdFlags::BALANCE_EXEC;
            runs(m, 0, nr);
            let (h_load, util) = ((1024, 1024), 1024);
            m.own = Some(OwnPart { h_load, util, ..OwnPart::default() });
        };
        assert_eq!(chosen(|m| exec(m, 1)), sure(0));
        assert_eq!(chosen(|m| exec(m, 2)), sure(3));
    }

    #[test]
    fn only_allowed_cpus_are_chosen() {
        assert_eq!(chosen(|m| m.allowed = [Cpu(0), Cpu(1)].into_iter().collect()), sure(1));
    }
}
