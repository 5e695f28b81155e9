//! Load and utilisation as far as a plain trace tells them: intervals.
//!
//! *What.* Averages decay, and what is not known of them with them: half is left after 32 ms. The
//! model's own averages ([`Fair::age`] and what attaches and detaches) run twice over the events,
//! once with everything zero at the start and once with everything as large as it can be. The truth
//! lies between the two: each event adds and takes the same in both.
//! *Equation.* In a segment v goes to L + (v − L)·y, y^32 = 1/2; L is what is queued, all of it.
//! *Departures.* D1: the phase of the segments in which the kernel counts is not known: what it has
//! may be one segment older or younger, with any L that there was in between. D2: a task that may
//! have stayed for delayed dequeue is off the queue in the lower run and on it in the upper one.
//! D3: what was queued before the recording and has not run is missing in both until it runs.

use super::queue_frame::MOST_TASKS;
use crate::shadow::rows::trace::Side;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vruntime_base::{Cpu, Ns, TaskId};
use vruntime_sched::fair::load::estimate_update;
use vruntime_sched::fair::pelt::{SEGMENT_NS, decay_load, divider};
use vruntime_sched::fair::weight::weight_of_prio;
use vruntime_sched::fair::{CfsId, Entity, Fair, SchedAvg, SeId};
use vruntime_sched::release::Release;
use vruntime_sched::task::{Task, TgId};

/// A queue is taken to have held no more load than this before the recording.
const MOST_LOAD: u64 = MOST_TASKS as u64 * FULL;
const FULL: u64 = 1024;

/// One run: the fair class's averages, and the tasks' estimates by entity.
struct Run {
    f: Fair,
    tasks: Vec<Task>,
    /// Everything was as large as it can be.
    upper: bool,
    /// CPUs that run nothing.
    idle: Vec<bool>,
}

/// What the averages of a queue go to: load, runnable time, utilisation.
type Levels = [u64; 3];

/// Between which levels a queue was lately.
#[derive(Clone, Default)]
struct Lately {
    /// Lowest and highest, now.
    now: [Levels; 2],
    /// The same until a moment, the oldest first; what is older than a segment is dropped.
    was: VecDeque<(u64, [Levels; 2])>,
}

impl Lately {
    fn note(&mut self, now: u64, levels: [Levels; 2]) {
        if levels != self.now {
            self.was.push_back((now, std::mem::replace(&mut self.now, levels)));
            while self.was.front().is_some_and(|x| x.0 + SEGMENT_NS < now) {
                self.was.pop_front();
            }
        }
    }

    /// Lowest and highest level `i` within the segment before `now`.
    fn level(&self, i: usize, now: u64) -> (u64, u64) {
        let was = self.was.iter().filter(|x| x.0 + SEGMENT_NS >= now).map(|x| &x.1);
        let all = was.chain([&self.now]);
        all.fold((u64::MAX, 0), |(lo, hi), l| (lo.min(l[0][i]), hi.max(l[1][i])))
    }
}

/// Lowest and highest that `(lo, hi)` can be a segment earlier or later, if it went to a level
/// between `least` and `most` meanwhile.
fn spread((lo, hi): (u64, u64), (least, most): (u64, u64)) -> (u64, u64) {
    let (mut low, mut high) = (lo, hi);
    for level in [least, most] {
        for v in [lo, hi] {
            let gap = v.abs_diff(level);
            let less = gap - decay_load(gap, 1);
            // Towards the level, and further away from it.
            let (nearer, farther) = match v < level {
                true => (v + less, v.saturating_sub(less)),
                false => (v - less, v + less),
            };
            low = low.min(nearer).min(farther);
            high = high.max(nearer).max(farther);
        }
    }
    (low, high)
}

/// The averages of all tasks and queues.
pub struct Averages<'a> {
    k: &'a Release,
    runs: [Run; 2],
    ids: BTreeMap<i64, SeId>,
    /// Queue that a task's averages are part of.
    at: BTreeMap<i64, usize>,
    /// Upper run: tasks that may be in delayed dequeue.
    delayed: BTreeSet<i64>,
    /// By queue.
    lately: Vec<Lately>,
    now: u64,
}

fn ends(a: u64, b: u64) -> (u64, u64) {
    (a.min(b), a.max(b))
}

/// All of `load` for ever.
fn saturate(sa: &mut SchedAvg, weight: u64, per_queue: u64) {
    let d = divider(sa);
    (sa.load_avg, sa.util_avg) = (weight, FULL as u32);
    (sa.load_sum, sa.util_sum) = (per_queue * d, (FULL * d) as u32);
    (sa.runnable_avg, sa.runnable_sum) = (FULL as u32, FULL * d);
}

impl Run {
    /// Takes `se` off its queue at `now`.
    fn dequeue(&mut self, k: &Release, se: SeId, now: Ns, sleeps: bool) {
        if !self.f.ses[se.ix()].on_rq {
            return;
        }
        self.f.age(now, se);
        let e = &mut self.f.ses[se.ix()];
        (e.on_rq, e.sched_delayed) = (false, false);
        let q = &mut self.f.cfs[e.cfs_rq.ix()];
        q.load_weight = q.load_weight.saturating_sub(u64::from(e.weight));
        q.h_nr_runnable = q.h_nr_runnable.saturating_sub(1);
        if q.curr == se {
            q.curr = SeId::NONE;
        }
        if sleeps {
            estimate_update(k, &mut self.tasks[se.ix()], e);
        }
    }

    /// Its averages leave its queue: at once, or, of a sleeper, when the queue next looks.
    fn detach(&mut self, k: &Release, se: SeId, now: Ns) {
        let e = &self.f.ses[se.ix()];
        if e.avg.last_update_time == Ns::ZERO {
            return;
        }
        let c = e.cfs_rq.ix();
        if e.on_rq {
            self.f.age(now, se);
            self.dequeue(k, se, now, false);
            self.f.detach_entity_load_avg(se);
        } else {
            self.f.remove_entity_load_avg(se);
            if k.migrate_pelt_lag && self.idle[c] {
                self.f.decay_sleeper(se, now);
            }
        }
        self.f.ses[se.ix()].avg.last_update_time = Ns::ZERO;
    }

    /// `reweight_task`: what it has run counts by its new weight. Of a sleeper the kernel takes it
    /// as it stood when that was last brought up to date: more than what is left.
    fn reweight(&mut self, k: &Release, se: SeId, weight: u32, now: Ns) {
        let e = &self.f.ses[se.ix()];
        let (queued, attached) = (e.on_rq, e.avg.last_update_time != Ns::ZERO);
        let curr = self.f.cfs[e.cfs_rq.ix()].curr;
        let grows = !queued && weight > e.weight;
        if attached {
            if !grows || !self.upper {
                self.f.age(now, se);
            }
            self.dequeue(k, se, now, false);
            self.f.detach_entity_load_avg(se);
        }
        if weight == 0 {
            return;
        }
        let e = &mut self.f.ses[se.ix()];
        e.set_weight(weight);
        if !grows || self.upper {
            e.avg.load_avg = e.load() * e.avg.load_sum / divider(&e.avg);
        }
        if queued {
            self.enqueue(se, now);
            let c = self.f.ses[se.ix()].cfs_rq;
            self.f.cfs[c.ix()].curr = curr;
        } else if attached {
            self.f.attach_entity_load_avg(se);
        }
    }

    fn enqueue(&mut self, se: SeId, now: Ns) {
        self.f.age(now, se);
        let e = &mut self.f.ses[se.ix()];
        let attached = e.avg.last_update_time != Ns::ZERO;
        if !std::mem::replace(&mut e.on_rq, true) {
            let q = &mut self.f.cfs[e.cfs_rq.ix()];
            q.load_weight += u64::from(e.weight);
            q.h_nr_runnable += 1;
        }
        if !attached {
            self.f.attach_entity_load_avg(se);
        }
    }
}

impl<'a> Averages<'a> {
    /// At the start of a recording, `now`.
    pub fn new(k: &'a Release, nr_cpus: usize, now: u64) -> Averages<'a> {
        let run = |upper: bool| {
            let mut f = Fair::new(nr_cpus, k);
            for q in f.cfs.iter_mut().take(nr_cpus) {
                q.avg.last_update_time = Ns(now);
                if upper {
                    saturate(&mut q.avg, MOST_LOAD, MOST_LOAD);
                }
            }
            Run { f, tasks: vec![], upper, idle: vec![true; nr_cpus] }
        };
        let (ids, at, delayed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let lately = vec![Lately::default(); nr_cpus];
        Averages { k, runs: [run(false), run(true)], ids, at, delayed, lately, now }
    }

    /// The next event is at `now`.
    pub fn reach(&mut self, now: u64) {
        self.now = now;
    }

    /// Something has changed on queue `c`.
    fn noted(&mut self, c: usize, now: u64) {
        let levels = |r: &Run| {
            let q = &r.f.cfs[c];
            let runs = if q.curr.is_some() { FULL } else { 0 };
            [q.load_weight >> 10, u64::from(q.h_nr_runnable) * FULL, runs]
        };
        let [a, b] = [levels(&self.runs[0]), levels(&self.runs[1])];
        let both = std::array::from_fn::<(u64, u64), 3, _>(|i| ends(a[i], b[i]));
        self.lately[c].note(now, [both.map(|x| x.0), both.map(|x| x.1)]);
    }

    fn add(&mut self, pid: i64, prio: i64, c: usize) -> SeId {
        let w = weight_of_prio(prio);
        let mut id = SeId::NONE;
        for r in &mut self.runs {
            id = r.f.new_entity(TaskId(0), TgId(0), Cpu::from_ix(c));
            r.f.ses[id.ix()].set_weight(w);
            r.tasks.push(Task::new(Cpu::from_ix(c), 1));
        }
        self.ids.insert(pid, id);
        self.at.insert(pid, c);
        id
    }

    /// `pid`, if it has not been seen before, has been part of queue `c`.
    fn known(&mut self, pid: i64, prio: i64, c: usize) -> SeId {
        if let Some(&id) = self.ids.get(&pid) {
            return id;
        }
        let id = self.add(pid, prio, c);
        for r in &mut self.runs {
            let q = &r.f.cfs[c].avg;
            let (last, contrib) = (q.last_update_time, q.period_contrib);
            let e: &mut Entity = &mut r.f.ses[id.ix()];
            (e.avg.last_update_time, e.avg.period_contrib) = (last, contrib);
            if r.upper {
                let w = e.load();
                saturate(&mut e.avg, w, 1);
                (r.tasks[id.ix()].util_est_ewma, e.util_changed) = (FULL as u32, true);
            }
        }
        id
    }

    /// `pid`, not seen before, sleeps; it last ran on `c`.
    pub fn asleep(&mut self, pid: i64, prio: i64, c: usize) {
        self.known(pid, prio, c);
    }

    /// `pid` is new and starts on `c`.
    pub fn fork(&mut self, pid: i64, prio: i64, c: usize, now: u64) {
        let id = self.add(pid, prio, c);
        for r in &mut self.runs {
            r.f.init_entity_runnable_average(id);
            if r.upper {
                // At most half of what is left of the CPU.
                let a = &mut r.f.ses[id.ix()].avg;
                (a.util_avg, a.runnable_avg) = (FULL as u32 / 2, FULL as u32 / 2);
            }
            r.enqueue(id, Ns(now));
        }
        self.noted(c, now);
    }

    /// `pid` is queued on `c`, wherever it was.
    pub fn enter(&mut self, pid: i64, prio: i64, c: usize, now: u64) {
        let id = self.known(pid, prio, c);
        self.delayed.remove(&pid);
        let before = self.at.insert(pid, c).unwrap_or(c);
        for r in &mut self.runs {
            if before != c {
                r.detach(self.k, id, Ns(now));
                r.f.ses[id.ix()].cfs_rq = CfsId(c as u32);
            } else if r.f.ses[id.ix()].sched_delayed {
                r.dequeue(self.k, id, Ns(now), false);
            }
            r.enqueue(id, Ns(now));
        }
        self.noted(before, now);
        self.noted(c, now);
    }

    /// The priority of `pid`, `old`, becomes `new` before it is next seen: the lower weight counts
    /// in one run and the higher in the other until then. Real-time: it has none.
    pub fn will_change(&mut self, pid: i64, old: i64, new: i64, now: u64) {
        let of = |prio: i64| if prio >= 100 { weight_of_prio(prio) } else { 0 };
        let (lo, hi) = (of(old).min(of(new)), of(old).max(of(new)));
        self.reweight(pid, [lo, hi], now);
    }

    /// `pid` is seen to have `prio`.
    pub fn has_changed(&mut self, pid: i64, prio: i64, now: u64) {
        self.will_change(pid, prio, prio, now);
    }

    /// Zero: it leaves the fair class, and comes back when it is next seen there.
    fn reweight(&mut self, pid: i64, weights: [u32; 2], now: u64) {
        let Some(&id) = self.ids.get(&pid) else { return };
        for (r, w) in self.runs.iter_mut().zip(weights) {
            r.reweight(self.k, id, w, Ns(now));
        }
        self.noted(self.at[&pid], now);
    }

    /// A wakeup of `pid` has chosen another CPU.
    pub fn chosen(&mut self, pid: i64, now: u64) {
        let Some(&id) = self.ids.get(&pid) else { return };
        for r in &mut self.runs {
            r.detach(self.k, id, Ns(now));
        }
        self.noted(self.at[&pid], now);
    }

    /// `pid` sleeps from now on; `hides`: it may stay on the queue, delayed.
    pub fn leave(&mut self, pid: i64, hides: bool, now: u64) {
        let Some(&id) = self.ids.get(&pid) else { return };
        for r in &mut self.runs {
            if r.upper && hides {
                r.f.age(Ns(now), id);
                r.f.ses[id.ix()].sched_delayed = true;
                let c = r.f.ses[id.ix()].cfs_rq;
                r.f.cfs[c.ix()].curr = SeId::NONE;
                self.delayed.insert(pid);
            } else {
                r.dequeue(self.k, id, Ns(now), true);
            }
        }
        self.noted(self.at[&pid], now);
    }

    /// `pid`, which has left, is no more.
    pub fn exit(&mut self, pid: i64, now: u64) {
        self.gone(pid, now);
        self.chosen(pid, now);
        self.ids.remove(&pid);
        self.at.remove(&pid);
    }

    /// A tick brings queue `c` and its running task up to date.
    pub fn tick(&mut self, c: usize, now: u64) {
        for r in &mut self.runs {
            let curr = r.f.cfs[c].curr;
            if curr.is_some() {
                r.f.age(Ns(now), curr);
            }
        }
    }

    /// `pid` is not in delayed dequeue.
    pub fn gone(&mut self, pid: i64, now: u64) {
        if self.delayed.remove(&pid) {
            self.runs[1].dequeue(self.k, self.ids[&pid], Ns(now), true);
            self.noted(self.at[&pid], now);
        }
    }

    /// `pid` (0: nothing; `None`: a task of another class) runs on `c` from now on.
    pub fn run(&mut self, c: usize, pid: Option<i64>, now: u64) {
        let next = pid.and_then(|p| self.ids.get(&p).copied());
        if pid == Some(0) {
            // An idle CPU has nothing queued: who was woken while in delayed dequeue came too late.
            let empty = self.runs.iter().all(|r| r.f.cfs[c].load_weight == 0);
            let here = self.at.iter().filter(|x| *x.1 == c && !empty).map(|x| *x.0);
            for p in here.collect::<Vec<i64>>() {
                self.leave(p, false, now);
                self.delayed.remove(&p);
            }
        }
        for r in &mut self.runs {
            r.idle[c] = pid == Some(0);
            let curr = r.f.cfs[c].curr;
            for se in [curr, next.unwrap_or(SeId::NONE)].into_iter().filter(|s| s.is_some()) {
                r.f.age(Ns(now), se);
            }
            r.f.cfs[c].curr = next.unwrap_or(SeId::NONE);
        }
        self.noted(c, now);
    }

    /// Writes the averages of `s`'s task and of queue `c` into it.
    pub fn tell(&self, s: &mut Side, c: usize) {
        if let Some(id) = self.ids.get(&s.pid) {
            let e = |i: usize| &self.runs[i].f.ses[id.ix()];
            let load = ends(e(0).avg.load_avg, e(1).avg.load_avg);
            let most = e(0).load().max(e(1).load());
            let (lo, hi) = spread(load, (0, most));
            let hi = hi.min(most).max(lo);
            (s.load_avg, s.load_more) = (lo, hi - lo);
            let est = |i: usize| {
                let t = &self.runs[i].tasks[id.ix()];
                u64::from(t.util_est_ewma.max(t.util_est_enqueued))
            };
            let util = |i: usize| u64::from(e(i).avg.util_avg);
            let (lo, hi) = spread(ends(util(0), util(1)), (0, FULL));
            (s.util_est, s.util_est_less) = (est(1), est(1).saturating_sub(est(0)));
            s.util_avg = lo;
            s.util_more = hi.max(est(1)).min(FULL).max(lo) - lo;
        }
        let q = |i: usize| &self.runs[i].f.cfs[c];
        let (lo, hi) = ends(q(0).load_weight, q(1).load_weight);
        (s.cfs_load_weight, s.cfs_weight_more) = (lo, hi - lo);
        let level = |i: usize| self.lately[c].level(i, self.now);
        let load = spread(ends(q(0).avg.load_avg, q(1).avg.load_avg), level(0));
        (s.cfs_load_avg, s.cfs_load_more) = (load.0, load.1 - load.0);
        let util = |i: usize| u64::from(q(i).avg.util_avg);
        let (lo, hi) = spread(ends(util(0), util(1)), level(2));
        let hi = hi.min(FULL).max(lo);
        (s.cfs_util_avg, s.cfs_util_more) = (lo, hi - lo);
        let runnable = ends(q(0).avg.runnable_avg.into(), q(1).avg.runnable_avg.into());
        s.cfs_runnable = Some(spread(runnable, level(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1 << 20; // one segment

    fn release() -> Release {
        crate::shadow::tests::release("v6.1")
    }
    /// Lowest and highest load of task 7 and of queue `c`.
    fn told(a: &Averages, c: usize) -> [(u64, u64); 2] {
        let mut s = Side { pid: 7, ..Side::default() };
        a.tell(&mut s, c);
        [(s.load_avg, s.load_avg + s.load_more), (s.cfs_load_avg, s.cfs_load_avg + s.cfs_load_more)]
    }
    fn near((lo, hi): (u64, u64), v: u64) -> bool {
        lo <= v && v <= hi && hi - lo <= 60 + v / 16
    }

    #[test]
    fn what_is_not_known_halves_in_32_ms() {
        let k = release();
        let mut a = Averages::new(&k, 2, MS);
        a.asleep(7, 120, 0);
        let (lo, hi) = told(&a, 0)[0];
        assert!(lo == 0 && hi >= 1024, "{lo} to {hi}");
        a.enter(7, 120, 0, 33 * MS);
        let (lo, hi) = told(&a, 0)[0];
        assert!(lo == 0 && (512..540).contains(&hi), "{lo} to {hi}");
    }

    /// A new task (load 1024) sleeps 32 ms on CPU 0 and is woken on CPU 1: 512 go with it.
    #[test]
    fn a_sleeper_takes_what_is_left_of_its_load_along() {
        let k = release();
        let mut a = Averages::new(&k, 2, MS);
        let start = 1_000 * MS;
        a.fork(7, 120, 0, start);
        assert!(told(&a, 0).into_iter().all(|s| near(s, 1024)), "{:?}", told(&a, 0));
        a.run(0, Some(7), start);
        a.leave(7, false, start);
        a.run(0, Some(0), start);
        a.chosen(7, start + 32 * MS);
        a.enter(7, 120, 1, start + 32 * MS);
        assert!(told(&a, 1).into_iter().all(|s| near(s, 512)), "{:?}", told(&a, 1));
        // CPU 0 takes it off when it is next brought up to date.
        a.enter(8, 120, 0, start + 33 * MS);
        let [_, (_, hi)] = told(&a, 0);
        assert!(hi < 120, "{hi}");
    }

    /// A new task (load 1024) is reniced to 5 (335) some time before that is seen.
    #[test]
    fn the_load_of_a_reniced_task_is_between_both_until_it_is_seen() {
        let k = release();
        let mut a = Averages::new(&k, 1, MS);
        let now = 1_000 * MS;
        a.fork(7, 120, 0, now);
        a.will_change(7, 120, 125, now);
        let weight = |a: &Averages| {
            let mut s = Side { pid: 7, ..Side::default() };
            a.tell(&mut s, 0);
            (s.cfs_load_weight >> 10, s.cfs_weight_more >> 10)
        };
        assert_eq!(weight(&a), (335, 1024 - 335));
        let (lo, hi) = told(&a, 0)[0];
        assert!(lo <= 335 && hi >= 1000, "{lo} to {hi}");
        a.has_changed(7, 125, now);
        assert_eq!(weight(&a), (335, 0));
        assert!(told(&a, 0).into_iter().all(|s| near(s, 335)), "{:?}", told(&a, 0));
    }

    #[test]
    fn a_task_that_may_be_delayed_is_on_the_queue_of_one_run() {
        let k = release();
        let mut a = Averages::new(&k, 1, MS);
        a.fork(7, 120, 0, 1_000 * MS);
        a.run(0, Some(7), 1_000 * MS);
        a.leave(7, true, 1_000 * MS);
        let weight = |a: &Averages| {
            let mut s = Side::default();
            a.tell(&mut s, 0);
            (s.cfs_load_weight >> 10, s.cfs_weight_more >> 10)
        };
        assert_eq!(weight(&a), (0, 1024));
        a.run(0, Some(0), 1_001 * MS);
        assert_eq!(weight(&a), (0, 0));
    }

    /// A new task (load 1024) is over before it has run for a segment: nothing of it is left when
    /// its CPU is next brought up to date, where a sleeper would leave half for 32 ms.
    #[test]
    fn a_task_that_exits_takes_its_load_along() {
        let k = release();
        let now = 1_000 * MS;
        let high = |a: &Averages| told(a, 0)[1].1;
        for exits in [false, true] {
            let mut a = Averages::new(&k, 1, MS);
            a.fork(7, 120, 0, now);
            a.run(0, Some(7), now);
            a.leave(7, exits, now);
            if exits {
                a.exit(7, now);
            }
            a.run(0, Some(0), now);
            a.gone(7, now);
            a.enter(8, 139, 0, now + MS);
            assert_eq!(high(&a) < 60, exits, "{}", high(&a));
        }
    }

    /// 7 is woken while it is in delayed dequeue, and its CPU goes idle before that counts.
    #[test]
    fn an_idle_cpu_has_nothing_queued() {
        let k = release();
        let mut a = Averages::new(&k, 1, MS);
        a.fork(7, 120, 0, 1_000 * MS);
        a.run(0, Some(7), 1_000 * MS);
        a.leave(7, true, 1_000 * MS);
        a.enter(7, 120, 0, 1_000 * MS);
        a.run(0, Some(0), 1_001 * MS);
        let mut s = Side::default();
        a.tell(&mut s, 0);
        assert_eq!((s.cfs_load_weight, s.cfs_weight_more), (0, 0));
    }

    /// A segment takes 512 to 501 (nothing queued) or to 523 (1024 is); the one before took 523
    /// or 501 to it.
    #[test]
    fn a_segment_earlier_or_later() {
        assert_eq!(spread((1024, 1024), (1024, 1024)), (1024, 1024));
        assert_eq!(spread((512, 512), (0, 0)), (501, 523));
        assert_eq!(spread((512, 512), (1024, 1024)), (501, 523));
        assert_eq!(spread((1024, 1024), (0, 1024)), (1002, 1046));
    }

    /// A task joins another that has run for long: 2048 are queued from now on, 1024 were.
    #[test]
    fn what_was_queued_counts_for_a_segment() {
        let mut l = Lately::default();
        l.note(10, [[1024; 3]; 2]);
        l.note(20, [[2048; 3]; 2]);
        assert_eq!(l.level(0, 30), (0, 2048));
        assert_eq!(l.level(0, 15 + SEGMENT_NS), (1024, 2048));
        assert_eq!(l.level(0, 30 + SEGMENT_NS), (2048, 2048));
    }
}
