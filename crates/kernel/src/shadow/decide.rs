//! (temporary stand-in until the decision code is merged)
use vruntime_base::{Cause, CauseKind, Cpu};
use vruntime_machine::Topology;
use vruntime_sched::fair::select::{Decision, Effects, PlacementView, WakeQuery};
use vruntime_sched::release::Release;

macro_rules! rules { ($($n:ident = $s:literal;)*) => { $(static $n: Cause = Cause::new(CauseKind::Placement, $s);)* } }
rules! { TARGET="target idle"; PREV="prev idle"; STACK="kthread stacking"; RECENT="recent_used_cpu"; SMT="smt"; CORE="idle core"; SCAN="scan"; CORESCAN="idle cpu in core search"; BUSY="target busy"; }

pub fn place<V: PlacementView>(k: &Release, t: &Topology, q: &WakeQuery, v: &mut V) -> Decision {
    let (this, prev) = (q.this_cpu, q.prev);
    let share = |a: Cpu, b: Cpu| a == b || t.llc(a).has(b);
    let mut e = Effects::default();
    let mut target = prev;
    let (a, b) = (v.waker_flips(), v.wakee_flips());
    let f = t.llc(this).weight() as u32;
    let (hi, lo) = (a.max(b), a.min(b));
    let wide = lo >= f && hi >= lo * f;
    if !wide && v.allowed(this) && this != prev {
        target = 'w: {
            if v.idle_cpu(this) && share(this, prev) {
                break 'w if v.idle_cpu(prev) { prev } else { this };
            }
            if q.sync {
                let mut nr = v.nr_running(this);
                if k.wa_sync_minus_delayed { nr -= v.nr_delayed(this); }
                if nr == 1 { break 'w this; }
            }
            if v.idle_cpu(prev) { break 'w prev; }
            let pct = if t.smt(this).has(prev) { 105 } else { 108 };
            let mut te = v.cpu_load(this) as i64;
            if q.sync {
                let c = v.waker_h_load() as i64;
                if c > te { break 'w this; }
                te -= c;
            }
            let h = v.wakee_h_load() as i64;
            te = (te + h) * 100 * v.capacity_of(prev) as i64;
            let mut pe = (v.cpu_load(prev) as i64 - h) * pct * v.capacity_of(this) as i64;
            if q.sync { pe += 1; }
            if te < pe { this } else { prev }
        };
    }
    macro_rules! done { ($c:expr, $r:ident) => { return Decision { choice: $c, rule: &$r, effects: e } } }
    macro_rules! idle { ($c:expr) => { v.idle_cpu($c) || v.sched_idle_cpu($c) } }
    if idle!(target) { done!(target, TARGET) }
    if prev != target && share(prev, target) && idle!(prev) { done!(prev, PREV) }
    if v.waker_is_per_cpu_kthread() && prev == this && v.in_task() && v.nr_running(this) <= 1 { done!(prev, STACK) }
    let r = v.recent_used_cpu();
    e.recent_used_cpu = Some(prev);
    if r != prev && r != target && share(r, target) && idle!(r) && v.allowed(r) { done!(r, RECENT) }
    let mut core = false;
    if t.smt_width() > 1 {
        core = v.has_idle_cores(target);
        if !core && share(prev, target) {
            for c in t.smt(prev).iter() {
                if c != prev && v.allowed(c) && idle!(c) { done!(c, SMT) }
            }
        }
    }
    let mut nr = i64::MAX;
    if k.sis_util {
        nr = i64::from(v.nr_idle_scan(target)) + 1;
        if nr == 1 { done!(target, BUSY) }
    }
    let mut found = None;
    let mut dead = vruntime_base::CpuMask::EMPTY;
    for c in t.llc(target).iter_wrap(target.ix() + 1) {
        if dead.has(c) || !v.allowed(c) { continue }
        if core {
            let mut all = true;
            for s in t.smt(c).iter() {
                if !v.idle_cpu(s) {
                    all = false;
                    if found.is_none() { if v.sched_idle_cpu(s) && v.allowed(s) { found = Some(s); break } continue }
                    break;
                }
                if found.is_none() && v.allowed(s) { found = Some(s) }
            }
            if all { done!(c, CORE) }
            dead = dead.or(t.smt(c));
        } else {
            nr -= 1;
            if nr <= 0 { done!(target, BUSY) }
            if idle!(c) { done!(c, SCAN) }
        }
    }
    if core { e.clear_idle_cores = Some(target); }
    if let Some(c) = found { done!(c, CORESCAN) }
    done!(target, BUSY)
}

/// One entity of a level.
#[derive(Clone, Copy, Debug)]
pub struct Ent { pub pid: i64, pub v: u64, pub dl: u64, pub slice: u64, pub w: u64, pub idle: bool, pub delayed: bool, pub seq: u64 }
/// A level.
#[derive(Clone, Debug, Default)]
pub struct Level { pub ents: Vec<Ent>, pub curr: Option<i64>, pub protected: bool, pub next: Option<i64>, pub last: Option<i64>, pub nr_cpus: usize }

fn sd(a: u64, b: u64) -> i64 { a.wrapping_sub(b) as i64 }
pub fn delta_fair(d: u64, w: u64) -> u64 { if w == 1 << 20 || w == 0 { d } else { (u128::from(d) * (1 << 20) / u128::from(w)) as u64 } }

pub fn cfs_preempt(k: &Release, n: usize, curr: &Ent, wakee: &Ent) -> bool {
    let gran = delta_fair(k.wakeup_granularity_ns * k.scaling(n), wakee.w) as i64;
    let d = sd(curr.v, wakee.v);
    d > 0 && d > gran
}
pub fn cfs_pick(k: &Release, l: &Level) -> (i64, &'static str) {
    let gran = |e: &Ent| delta_fair(k.wakeup_granularity_ns * k.scaling(l.nr_cpus), e.w) as i64;
    let mut left = l.ents.iter().filter(|e| Some(e.pid) != l.curr).min_by(|a, b| sd(a.v, b.v).cmp(&0).then(a.seq.cmp(&b.seq)));
    if let Some(c) = l.ents.iter().find(|e| Some(e.pid) == l.curr) { if left.is_none_or(|x| sd(c.v, x.v) < 0) { left = Some(c) } }
    let left = left.unwrap();
    for (b, name) in [(l.next, "next buddy"), (l.last, "last buddy")] {
        if let Some(e) = l.ents.iter().find(|e| Some(e.pid) == b) {
            let d = sd(e.v, left.v);
            if d <= gran(left) { return (e.pid, name) }
        }
    }
    (left.pid, "leftmost")
}
pub fn eevdf_pick(l: &Level) -> (i64, &'static str) {
    if l.ents.is_empty() { return (0, "nothing") }
    if let [one] = l.ents[..] { return (one.pid, "only one") }
    let r = l.ents[0].v;
    let lw: i128 = l.ents.iter().map(|e| i128::from(e.w >> 10)).sum();
    let s: i128 = l.ents.iter().map(|e| i128::from(sd(e.v, r)) * i128::from(e.w >> 10)).sum();
    let elig = |e: &Ent| s >= i128::from(sd(e.v, r)) * lw;
    let curr = l.ents.iter().find(|e| Some(e.pid) == l.curr).filter(|e| elig(e));
    if let (Some(c), true) = (curr, l.protected) { return (c.pid, "protected") }
    let best = l.ents.iter().filter(|e| Some(e.pid) != l.curr && elig(e)).min_by(|a, b| sd(a.dl, b.dl).cmp(&0).then(a.seq.cmp(&b.seq)));
    match (curr, best) {
        (Some(c), Some(b)) if sd(c.dl, b.dl) < 0 => (c.pid, "curr has the earliest deadline"),
        (_, Some(b)) => (b.pid, "earliest eligible deadline"),
        (Some(c), None) => (c.pid, "only curr is eligible"),
        (None, None) => (l.ents[0].pid, "none eligible"),
    }
}
