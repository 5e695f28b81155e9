//! (temporary stand-in until the decision code of the queues is merged)
use vruntime_sched::release::Release;

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
