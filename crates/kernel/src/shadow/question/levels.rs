//! One level of a CPU's fair queue as the decision code wants it, made from what was seen.

use super::decide::Decider;
use super::known::names::{DEADLINE, PLACEMENT};
use super::known::{Asker, Unknown};
use crate::shadow::rows::trace::{RowKind, Side, Trace};
use crate::shadow::state::buddies::Buddies;
use crate::shadow::state::queues::{CpuState, Seen};
use vruntime_sched::fair::weight::task_virtual_time;
use vruntime_sched::release::Release;

/// One entity of a level.
#[derive(Clone, Copy, Debug)]
pub struct Ent {
    /// Its task.
    pub pid: i64,
    /// Virtual runtime.
    pub vruntime: u64,
    /// Virtual deadline.
    pub deadline: u64,
    /// Request size.
    pub slice: u64,
    /// Weight × 1024.
    pub weight: u64,
    /// SCHED_* number.
    pub policy: i64,
    /// In delayed dequeue.
    pub delayed: bool,
    /// Order of insertion.
    pub seq: u64,
}

/// One level of a queue.
#[derive(Clone, Debug)]
pub struct Level {
    /// Entities, the running one included if it is queued.
    pub ents: Vec<Ent>,
    /// The running one.
    pub curr: Option<i64>,
    /// It still has the deadline that it was picked with.
    pub protected: bool,
    /// Those that a preemption check of CFS marked.
    pub buddies: Buddies,
}

const NICE_0_LOAD: u64 = 1 << 20;

/// A virtual time that was rebuilt and is not exact enough.
const REBUILT: &str = "vruntime of a queued task";
/// Why a level cannot be put together.
pub const GROUP: &str = "group entity above the recorded level";
/// See [`GROUP`].
pub const CONTENT: &str = "an entity of the queue that no row has shown";
/// See [`GROUP`].
pub const RUNNING: &str = "state of the running task";

/// A pick that takes it off and then keeps the running task leaves no row.
pub const DELAYED: &str = "whether an entity in delayed dequeue is still there";

/// What the running task's deadline can be.
#[derive(Clone, Copy, Debug)]
pub struct CurrNow {
    /// Highest possible virtual runtime.
    pub vruntime: u64,
    /// The true one may be this much lower: each update of the running entity rounds down, and
    /// not all updates are recorded. Zero for nice 0.
    pub rounding: u64,
    /// Lowest and highest possible deadline.
    pub deadline: (u64, u64),
    /// It has not run past the deadline that it was picked with.
    pub protected: bool,
}

/// Each update of a running entity rounds its virtual time down, and not all updates are recorded:
/// by how much it can be less than `ran` gives. Zero for nice 0.
fn rounding(weight: u64, ran: u64) -> u64 {
    if weight == NICE_0_LOAD { 0 } else { 2 + ran / 1_000_000 }
}

/// `later` is what running has made of `side`. If not, it was taken off and put back in between:
/// its weight, its class or its affinity was changed, or it yielded, which leaves no row. When, and
/// so what its state was until then, is not known.
pub fn follows(side: &Side, later: &Side) -> bool {
    let ran = later.sum_exec.wrapping_sub(side.sum_exec);
    let v = side.vruntime.wrapping_add(task_virtual_time(ran, side.weight));
    let short = v.wrapping_sub(later.vruntime) as i64;
    let in_request = (later.vruntime.wrapping_sub(side.deadline) as i64) < 0;
    (side.prio, side.policy, side.weight) == (later.prio, later.policy, later.weight)
        && (0..=rounding(side.weight, ran) as i64).contains(&short)
        && (!in_request || side.deadline == later.deadline)
}

/// The running task of `s` at `clock`. `later`: its next recorded state, which tells when its
/// deadline was last renewed.
pub fn curr_now(
    k: &Release,
    s: &CpuState,
    clock: i64,
    later: Option<&Side>,
) -> Option<(Side, CurrNow)> {
    let (side, then) = s.running?;
    let ran = (clock - then).max(0) as u64;
    let vruntime = side.vruntime.wrapping_add(task_virtual_time(ran, side.weight));
    let past = vruntime.wrapping_sub(side.deadline) as i64;
    let mut now = CurrNow {
        vruntime,
        rounding: rounding(side.weight, ran),
        deadline: (side.deadline, side.deadline),
        protected: past < 0 && Decider::protected(k, &side, vruntime),
    };
    if past >= 0 {
        let request = task_virtual_time(side.slice, side.weight);
        let renewed = later.map(|l| l.deadline.wrapping_sub(request));
        now.deadline = match (later, renewed) {
            (Some(l), Some(at)) if (vruntime.wrapping_sub(at) as i64) >= 0 => {
                (l.deadline, l.deadline)
            }
            _ if past as u64 <= request => {
                (side.deadline.wrapping_add(request), vruntime.wrapping_add(request))
            }
            _ => (vruntime.wrapping_add(1), vruntime.wrapping_add(request)),
        };
    }
    Some((side, now))
}

/// The next recorded state of `pid` on the CPU of row `at`, after that row and not part of the
/// same preemption check.
pub fn later_state(t: &Trace, at: usize, cpu: usize, pid: i64) -> Option<&Side> {
    let rows = t.rows[at + 1..].iter().filter(|r| r.cpu.ix() == cpu || r.rq_cpu.ix() == cpu);
    for r in rows {
        let switched = r.kind == RowKind::Switch && r.cpu.ix() == cpu;
        if t.yields(r) && r.cpu.ix() == cpu {
            // Its deadline is not that of a renewal.
            return None;
        }
        if r.rq_cpu.ix() == cpu && r.p.pid == pid && (switched || r.kind == RowKind::NeedResched) {
            return Some(&r.p);
        }
        if switched {
            return None;
        }
    }
    None
}

/// A virtual runtime out of the possible ones: its ends, and its middle if they are further apart
/// than a slice. A task far behind takes the CPU whatever the others are, and one far ahead makes
/// all others eligible: what happens where it is near them, neither end shows.
fn vruntime(k: &mut Asker, s: &Seen) -> u64 {
    let (lo, hi) = s.vruntime;
    let wide = hi.wrapping_sub(lo) as i64;
    let name = match s.side.slop {
        0 => "vruntime of a task moved by the balancer",
        _ => REBUILT,
    };
    let u = Unknown { name, of: s.side.pid };
    let middle = lo.wrapping_add((wide / 2) as u64);
    let options = [lo, hi, middle].map(|v| v as i64);
    let asked = if wide > s.side.slice as i64 { &options[..] } else { &options[..2] };
    if lo == hi { lo } else { k.ask(u, asked) as u64 }
}

/// An entity as the decision code sees it; `None`: it is not there.
pub fn ent(k: &mut Asker, s: &Seen) -> Option<Ent> {
    let u = Unknown { name: DELAYED, of: s.side.pid };
    if s.maybe && !k.truth(u, None, true) {
        return None;
    }
    let vruntime = vruntime(k, s);
    let off = if s.side.slop == 0 { 0 } else { vruntime.wrapping_sub(s.side.vruntime) };
    let deadline = s.side.deadline.wrapping_add(off).wrapping_sub(less(k, &s.side));
    Some(Ent { vruntime, deadline, seq: s.seq, ..ent_of(&s.side) })
}

/// How much earlier a rebuilt deadline is: an end of what it may be.
fn less(k: &mut Asker, side: &Side) -> u64 {
    match side.due_less as i64 {
        0 => 0,
        n => k.ask(Unknown { name: DEADLINE, of: side.pid }, &[0, n]) as u64,
    }
}

/// A state as the decision code sees it.
pub fn ent_of(s: &Side) -> Ent {
    Ent {
        pid: s.pid,
        vruntime: s.vruntime,
        deadline: s.deadline,
        slice: s.slice,
        weight: s.weight,
        policy: s.policy,
        delayed: s.sched_delayed,
        seq: 0,
    }
}

/// The running task's entity.
pub fn curr_ent(k: &mut Asker, side: &Side, now: &CurrNow) -> Ent {
    let u = Unknown { name: "rounding of the running task's vruntime", of: side.pid };
    let rounding = match now.rounding {
        0 => 0,
        n => k.ask(u, &[0, n as i64]) as u64,
    };
    let u = Unknown { name: DEADLINE, of: side.pid };
    let (lo, hi) = now.deadline;
    let deadline = if lo == hi { lo } else { k.ask(u, &[hi as i64, lo as i64]) as u64 };
    let off = off(k, side);
    Ent {
        pid: side.pid,
        vruntime: now.vruntime.wrapping_sub(rounding).wrapping_add(off),
        deadline: deadline.wrapping_add(off).wrapping_sub(less(k, side)),
        slice: side.slice,
        weight: side.weight,
        policy: side.policy,
        delayed: false,
        seq: 0,
    }
}

/// How far a rebuilt virtual time is off: one of its two ends.
pub fn off(k: &mut Asker, side: &Side) -> u64 {
    match side.slop as i64 {
        0 => 0,
        n => k.ask(Unknown { name: REBUILT, of: side.pid }, &[0, n, -n]) as u64,
    }
}

/// EEVDF sums distances times weights: no queue of a kernel is wider than this.
pub fn plausible<'s>(of: u64, all: impl IntoIterator<Item = &'s Seen>) -> bool {
    all.into_iter().all(|s| {
        let far = |v: u64| (v.wrapping_sub(of) as i64).unsigned_abs() > 1 << 42;
        !far(s.side.vruntime) && s.side.weight <= 1 << 28
    })
}

/// See [`plausible`].
pub const IMPLAUSIBLE: &str = "plausible state of the queue";

/// All entities of group `tg` queued on `s`, without `except`; an error names what is missing.
/// `nr`: how many there are (with `except`), as the row says.
pub fn members<'s>(
    s: &'s CpuState,
    tg: i64,
    except: &[i64],
    nr: i64,
    eevdf: bool,
) -> Result<Vec<&'s Seen>, &'static str> {
    let all: Vec<&Seen> = s
        .queued
        .iter()
        .filter(|q| !except.contains(q.0) && q.1.side.tg == tg)
        .map(|q| q.1)
        .collect();
    if (all.iter().filter(|q| !q.maybe).count() + except.len()) as i64 != nr {
        return Err(if tg == 0 { CONTENT } else { GROUP });
    }
    if eevdf && all.iter().any(|q| !q.exact) {
        return Err(PLACEMENT);
    }
    Ok(all)
}

/// A level of these members.
pub fn level(ents: Vec<Ent>, curr: Option<i64>, s: &CpuState) -> Level {
    Level { ents, curr, protected: false, buddies: s.buddies }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 ms at nice 0 are 4 ms of virtual time; 1 ms at nice 5 is 3056716 ns, rounded down maybe
    /// more than once.
    #[test]
    fn what_running_makes_of_a_state_follows_from_it() {
        let ms = 1_000_000;
        let nice = |prio: i64, weight: u64| Side { prio, weight: weight << 10, ..Side::default() };
        let before = Side { vruntime: 7 * ms, deadline: 12 * ms, ..nice(120, 1024) };
        let after = Side { vruntime: 11 * ms, sum_exec: 4 * ms, ..before };
        assert!(follows(&before, &after));
        let other = |change: fn(&mut Side)| {
            let mut later = after;
            change(&mut later);
            follows(&before, &later)
        };
        assert!(!other(|l| l.weight = 335 << 10) && !other(|l| l.policy = 2));
        assert!(!other(|l| l.vruntime -= 1), "dequeued and enqueued");
        assert!(!other(|l| l.deadline += 3), "yielded, or asked for another slice");
        assert!(other(
            |l| (l.vruntime, l.sum_exec, l.deadline) = (13_000_000, 6_000_000, 16_000_000)
        ));
        let five = nice(125, 335);
        let at = |vruntime| follows(&five, &Side { vruntime, sum_exec: ms, ..five });
        assert_eq!([3_056_712, 3_056_713, 3_056_716].map(at), [false, true, true]);
    }
}
