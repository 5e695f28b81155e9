//! A recording as `shadow` replays it: columns by name become plain rows.

use crate::cpu_numbers::CpuNumbers;
use vruntime_base::CpuMask;
use vruntime_formats::recording::Recording;
use vruntime_formats::table::{Column, EMPTY, Table};
use vruntime_kernel::shadow::rows::searched::{End, Searched, Twice};
use vruntime_kernel::shadow::rows::trace::{Parent, Row, RowKind, Side, Trace};

/// Averages above these are damage; they are cut so that sums of them stay in range.
const MOST: i64 = 1 << 28;
const MOST_UTIL: i64 = 1 << 12;

/// Columns of one entity.
struct SideColumns {
    /// pid, prio, policy, weight, vruntime, deadline, vlag, slice, sum_exec, on_rq, sched_delayed,
    /// depth, load_avg, util_avg, util_est, tg
    own: [Column; 16],
    /// nr_queued, zero_vruntime, load_weight, util_avg, load_avg
    cfs: [Column; 5],
    /// weight, vruntime, deadline, vlag, slice
    par: [Column; 5],
}

impl SideColumns {
    fn new(t: &Table, prefix: &str) -> SideColumns {
        let own = [
            "pid",
            "prio",
            "policy",
            "weight",
            "vruntime",
            "deadline",
            "vlag_or_vprot",
            "slice",
            "sum_exec",
            "on_rq",
            "sched_delayed",
            "depth",
            "load_avg",
            "util_avg",
            "util_est",
            "tg",
        ];
        let cfs = ["nr_queued", "zero_vruntime", "load_weight", "util_avg", "load_avg"];
        let par = ["weight", "vruntime", "deadline", "vlag", "slice"];
        SideColumns {
            own: own.map(|n| t.column(&format!("{prefix}_{n}"))),
            cfs: cfs.map(|n| t.column(&format!("{prefix}_cfs_{n}"))),
            par: par.map(|n| t.column(&format!("{prefix}_par_{n}"))),
        }
    }
    fn read(&self, t: &Table, row: usize) -> Option<Side> {
        let get = |c: Column| Some(t.get(row, c)).filter(|&v| v != EMPTY);
        let n = |c: Column| get(c).unwrap_or(0);
        let [
            pid,
            prio,
            policy,
            weight,
            vruntime,
            deadline,
            vlag,
            slice,
            sum_exec,
            on_rq,
            delayed,
            depth,
            load_avg,
            util_avg,
            util_est,
            tg,
        ] = self.own;
        let [nr, min_vruntime, load_weight, util, load] = self.cfs;
        let depth = n(depth);
        Some(Side {
            pid: get(pid)?,
            prio: n(prio),
            policy: n(policy),
            weight: n(weight) as u64,
            vruntime: n(vruntime) as u64,
            slop: 0,
            due_less: 0,
            deadline: n(deadline) as u64,
            vlag: n(vlag),
            slice: n(slice) as u64,
            sum_exec: n(sum_exec) as u64,
            on_rq: n(on_rq) != 0,
            sched_delayed: n(delayed) != 0,
            depth,
            load_avg: n(load_avg).clamp(0, MOST) as u64,
            util_avg: n(util_avg).clamp(0, MOST_UTIL) as u64,
            // The top bit marks an estimate that has not been updated yet.
            util_est: (n(util_est) & 0x7fff_ffff).min(MOST_UTIL) as u64,
            tg: n(tg),
            cfs_nr: n(nr),
            cfs_min_vruntime: n(min_vruntime) as u64,
            cfs_load_weight: n(load_weight) as u64,
            cfs_util_avg: n(util).clamp(0, MOST_UTIL) as u64,
            cfs_load_avg: n(load).clamp(0, MOST) as u64,
            load_more: 0,
            cfs_weight_more: 0,
            cfs_util_more: 0,
            cfs_load_more: 0,
            util_more: 0,
            util_est_less: 0,
            cfs_runnable: None,
            parent: (depth > 0).then(|| Parent {
                weight: n(self.par[0]) as u64,
                vruntime: n(self.par[1]) as u64,
                deadline: n(self.par[2]) as u64,
                vlag: n(self.par[3]),
                slice: n(self.par[4]) as u64,
            }),
        })
    }
}

/// Columns of what a choice of a CPU could see. Pairs: as it began and as it ended.
struct SearchedColumns {
    cpus: [Column; 2],
    idle: Twice<Column>,
    allowed: Column,
    h_load: [Column; 2],
    /// Of the waker's CPU and of prev: load, capacity, nr_running, nr_delayed, idle_cores,
    /// idle_scan
    ends: [[Twice<Column>; 6]; 2],
}

impl SearchedColumns {
    fn new(t: &Table) -> SearchedColumns {
        let twice = |n: &str| ["before", "after"].map(|when| t.column(&format!("{n}_{when}")));
        let of = ["load", "capacity", "nr_running", "nr_delayed", "idle_cores", "idle_scan"];
        SearchedColumns {
            cpus: ["cpu", "wake_cpu"].map(|n| t.column(n)),
            idle: twice("idle"),
            allowed: t.column("p_cpus_allowed"),
            h_load: ["wakee_h_load", "waker_h_load"].map(|n| t.column(n)),
            ends: ["this", "prev"].map(|end| of.map(|n| twice(&format!("{end}_{n}")))),
        }
    }
    /// `None` if the recording does not tell it.
    fn read(&self, t: &Table, row: usize, cpus: &CpuNumbers) -> Option<Box<Searched>> {
        let get = |c: Column| Some(t.get(row, c)).filter(|&v| v != EMPTY);
        let word = |c: Column| get(c).map(|v| cpus.mask(&CpuMask::from_word(v as u64)));
        let twice = |c: Twice<Column>| Some([get(c[0])?, get(c[1])?]);
        let cut = |v: i64| v.clamp(0, MOST) as u64;
        let end = |i: usize| {
            let [load, capacity, running, delayed, cores, scan] = self.ends[i].map(twice);
            // Below zero: a CPU without a cache domain.
            let known = |v: Option<Twice<i64>>| v.filter(|v| v.iter().all(|&n| n >= 0));
            Some(End {
                cpu: cpus.cpu(get(self.cpus[i])?)?,
                load: load?.map(cut),
                capacity: capacity?.map(cut),
                nr_running: running?.map(cut),
                nr_delayed: delayed?.map(cut),
                idle_cores: known(cores).map(|v| v.map(|n| n != 0)),
                idle_scan: known(scan).map(|v| v.map(cut)),
            })
        };
        Some(Box::new(Searched {
            idle: [word(self.idle[0])?, word(self.idle[1])?],
            allowed: word(self.allowed)?,
            ends: [end(0)?, end(1)?],
            h_load: [cut(get(self.h_load[0])?), cut(get(self.h_load[1])?)],
        }))
    }
}

/// The state capture numbers groups as it meets them; here the root has number 0. A task of the
/// root group has depth 0.
fn root_is_group_0(rows: &mut [Row]) {
    let mut sides = rows.iter().flat_map(|r| std::iter::once(r.p).chain(r.n));
    let Some(root) = sides.find(|s| s.depth == 0).map(|s| s.tg) else { return };
    let swapped = |tg| match tg {
        0 => root,
        tg if tg == root => 0,
        tg => tg,
    };
    for r in rows {
        r.p.tg = swapped(r.p.tg);
        if let Some(n) = &mut r.n {
            n.tg = swapped(n.tg);
        }
    }
}

/// All rows of `r` in order of time, how many were left out as of a CPU that is not among `cpus`,
/// and the first of these.
pub fn trace(r: &Recording, cpus: &CpuNumbers) -> (Trace, usize, Option<String>) {
    let t = &r.table;
    let col = |n: &str| t.column(n);
    let (p, n) = (SideColumns::new(t, "p"), SideColumns::new(t, "n"));
    let [ts, cpu, curr_pid, a, b, rq_cpu] =
        ["ts_ns", "cpu", "curr_pid", "a", "b", "rq_cpu"].map(col);
    let [nr_running, nr_switches, clock_task, wakee_flips, curr_wakee_flips] =
        ["rq_nr_running", "rq_nr_switches", "rq_clock_task", "wakee_flips", "curr_wakee_flips"]
            .map(col);
    let [wake_cpu, recent, onflags, curr_flags, curr_allowed, p_allowed, stack] = [
        "wake_cpu",
        "recent_used_cpu",
        "onflags",
        "curr_flags",
        "curr_nr_cpus_allowed",
        "p_nr_cpus_allowed",
        "stack",
    ]
    .map(col);
    let searched = SearchedColumns::new(t);
    let (mut foreign, mut first) = (0, None);
    let mut rows = Vec::with_capacity(t.len());
    for i in 0..t.len() {
        let get = |c: Column| Some(t.get(i, c)).filter(|&v| v != EMPTY);
        let n0 = |c: Column| get(c).unwrap_or(0);
        let cpu_of = |c: Column| cpus.cpu(n0(c));
        let (Some(on), Some(of)) = (cpu_of(cpu), cpu_of(rq_cpu)) else {
            let (c, q) = (n0(cpu), n0(rq_cpu));
            foreign += 1;
            first.get_or_insert_with(|| format!("state.csv:{}: CPU {c}, queue {q}", t.line(i)));
            continue;
        };
        let kind = match t.word(i) {
            "switch" => RowKind::Switch,
            "waking" => RowKind::Waking,
            "select_rq" => RowKind::SelectRq,
            "migrate" => RowKind::Migrate,
            "wakeup" => RowKind::Wakeup,
            "wakeup_new" => RowKind::WakeupNew,
            "need_resched" => RowKind::NeedResched,
            _ => RowKind::Other,
        };
        let Some(side) = p.read(t, i) else { continue };
        rows.push(Row {
            curr_pid: n0(curr_pid),
            a: if kind == RowKind::Switch { n0(a) } else { cpus.number(n0(a)) },
            b: if kind == RowKind::Migrate { cpus.number(n0(b)) } else { n0(b) },
            rq_cpu: of,
            nr_running: get(nr_running),
            nr_switches: get(nr_switches),
            clock_task: get(clock_task),
            wakee_flips: get(wakee_flips),
            curr_wakee_flips: get(curr_wakee_flips),
            wake_cpu: get(wake_cpu).map(|c| cpus.number(c)),
            recent_used_cpu: get(recent).map(|c| cpus.number(c)),
            on_cpu: get(onflags).map(|f| f & 1 != 0),
            curr_flags: get(curr_flags),
            curr_nr_cpus_allowed: get(curr_allowed),
            p_nr_cpus_allowed: get(p_allowed),
            p: side,
            n: if kind == RowKind::Switch { n.read(t, i) } else { None },
            searched: (kind == RowKind::SelectRq).then(|| searched.read(t, i, cpus)).flatten(),
            stack: get(stack).and_then(|s| usize::try_from(s).ok()),
            line: t.line(i),
            ..Row::new(n0(ts) as u64, on, kind)
        });
    }
    rows.sort_by_key(|r| r.ts);
    root_is_group_0(&mut rows);
    let stacks = &r.stacks;
    // Without one chain of a request nothing tells who asked.
    let has_chain = |r: &Row| r.stack.is_some_and(|s| stacks.get(s).is_some_and(|c| c.len() > 1));
    let asks = |r: &&Row| r.kind == RowKind::NeedResched;
    let plain = !rows.iter().filter(asks).any(has_chain);
    let (nr_cpus, isolated) = (cpus.count(), cpus.mask(&r.meta.isolated));
    (
        Trace { rows, stacks: stacks.clone(), nr_cpus, isolated, plain, ..Trace::default() },
        foreign,
        first,
    )
}
