//! From measured quantities to the costs that they determine. `docs/calibrate.md` has the sums.

use super::fit::{FITTED, Fit, fit, path, scaled};
use super::idle::Exit;
use super::probe::{CHANNELS, MANY_CHANNELS, ON_A_SOCKET, Sample, Sockets};
use super::round::Round;
use super::stopped::modelled;
use super::visits::Visits;
use super::wakes::Wakes;
use vruntime_kernel::cold_when_drained;
use vruntime_kernel::program::RootTask;
use vruntime_machine::{Cost, Costs, Distance, MachineSpec, Source};

/// Everything that was measured, ns.
pub struct Measured {
    /// What takes one CPU.
    pub round: Round,
    /// One-way line transfers.
    pub lines: Vec<Line>,
    /// Visits to pipes that another CPU had before, by distance.
    pub visits: Vec<Visits>,
    /// Wakeups by another CPU, of the nearest pair that share a cache and are no threads of a core.
    pub wakes: Option<Wakes>,
    /// Wakeup of a CPU that has been idle for a short time, by distance.
    pub wakeups: Vec<(Distance, Sample)>,
    /// The nearest two CPUs, of different cores if there are such.
    pub nearest: Option<(usize, usize)>,
    /// Wakeups of the one by the other after sleeps of growing length.
    pub exits: Vec<Exit>,
}

/// A cache line between two CPUs.
pub struct Line {
    /// How far they are apart.
    pub distance: Distance,
    /// One of them.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// One way.
    pub took: Sample,
}

/// The line transfers of each distance: how many pairs, and the median of their medians between
/// the lowest and the highest of all.
pub fn line_transfers(lines: &[Line]) -> Vec<(Distance, usize, Sample)> {
    let of = |d: &Distance| lines.iter().filter(|l| l.distance == *d).map(|l| l.took).collect();
    let group = |d: Distance| {
        let all: Vec<Sample> = of(&d);
        let mid = Sample::of(all.iter().map(|s| s.mid).collect()).mid;
        let low = all.iter().map(|s| s.low).reduce(f64::min)?;
        let high = all.iter().map(|s| s.high).reduce(f64::max)?;
        Some((d, all.len(), Sample { low, mid, high }))
    };
    Distance::ALL.into_iter().filter_map(group).collect()
}

/// A machine with the measured costs in it.
pub struct Derived {
    /// The machine.
    pub spec: MachineSpec,
    /// Names of the costs that a measurement determined.
    pub measured: Vec<String>,
    /// Names of the others that are not as in the table: paths times its `path_permille`, and what
    /// is part of a measured cost.
    pub others: Vec<String>,
    /// The fit, if it succeeded.
    pub fit: Option<Fit>,
}

/// Puts into `base` what `m` determines, where calls to pipes set times or not (the kernel's
/// `pipe_updates_times`). `origin` becomes the source of those costs.
pub fn derive(base: &MachineSpec, m: &Measured, origin: &str, times: bool) -> Derived {
    let mut spec = base.clone();
    let Round { one, two, sockets, threads, of_two, of_many, cold, .. } = &m.round;
    let Sockets { send, recv, backlog, crowded } = sockets;
    let interrupted = m.round.interrupted.min(0.5);
    let mut measured = Vec::new();
    let cost = |of: &Sample, part: f64, minus: f64, how: &str| {
        beyond(&of.map(|ns| ns * part), minus, format!("{origin}: {how}"))
    };
    // What is measured is exact at its own speed, without interruptions: the table's factor is no
    // longer wanted. It stays in what is not measured.
    let of_table = base.path_permille.mid;
    spec.costs.scale_paths(of_table);
    let permille = whole(1000.0 / (1.0 - interrupted));
    let percent = 100.0 * interrupted;
    let source = format!("{origin}: a thread is interrupted for {percent:.1} % of its time");
    spec.path_permille = Cost { low: 1000, mid: permille, high: permille, source };

    let c = &mut spec.costs;
    let syscall = one.getppid.mid;
    // The loop that measures has a libc wrapper, a compare and a branch, too.
    let user = f64::from(c.user_loop.mid);
    c.syscall_entry = cost(&one.getppid, 0.5, user / 2.0, "half of getppid less user_loop");
    c.syscall_exit = c.syscall_entry.clone();
    c.bhb_clear = Cost { low: 0, mid: 0, high: 0, source: format!("{origin}: in syscall_entry") };
    // One write in 40 takes a new page; the rest of a write is entry, mutex, copy, exit.
    let mutex = f64::from(c.pipe_lock.mid + c.pipe_unlock.mid);
    let page = f64::from(c.pipe_new_page.mid) / 40.0;
    let around = syscall + mutex;
    let (mtime, atime) = (f64::from(c.pipe_mtime.mid), f64::from(c.pipe_atime.mid));
    let (write, read) = match times {
        true => (
            (around + page + mtime, "write less getppid, mutex, 1/40 page and pipe_mtime"),
            (around + atime, "read less getppid, mutex and pipe_atime"),
        ),
        false => (
            (around + page, "write less getppid, mutex and 1/40 page"),
            (around, "read less getppid and mutex"),
        ),
    };
    c.pipe_write = cost(&one.write, 1.0, write.0, write.1);
    c.pipe_read = cost(&one.read, 1.0, read.0, read.1);
    // Each call beside getppid in the same program: the CPU's speed changes between programs.
    let less = two.getppid.mid + (one.fcntl.mid - syscall);
    let how = "F_GETFL less getppid, two threads less one";
    c.file_count = cost(&two.fcntl, 1.0, less, how);
    let less = two.getppid.mid + (one.write.mid - syscall) + f64::from(c.file_count.mid);
    let how = "write less getppid, two threads less one, less file_count";
    c.cancellation_point = cost(&two.write, 1.0, less, how);
    let around = syscall + f64::from(c.unix_wake_check.mid);
    c.unix_send = cost(send, 1.0, around, "send less getppid and unix_wake_check");
    let hot = send.mid + recv.mid;
    let how = |n: usize| {
        format!("send and receive on {n} full sockets less on one, in the model's terms")
    };
    // A batch on full sockets takes milliseconds and is interrupted; one on a single socket hardly
    // ever is.
    let more = |of: &Sample| of.mid * (1.0 - interrupted) - hot;
    let [near, far] = cold_and_far(spec.caches.l2_kib, more(backlog), more(crowded));
    c.unix_cold = cost(backlog, 1.0, backlog.mid - near, &how(CHANNELS));
    c.unix_far = cost(crowded, 1.0, crowded.mid - far, &how(MANY_CHANNELS));
    // Even on one socket messages wait behind others.
    let around = syscall + when_drained(&Costs::mid(c), spec.caches.l2_kib, 1);
    c.unix_recv = cost(recv, 1.0, around, "receive less getppid and its part of unix_cold");
    let direct = ["syscall_entry", "syscall_exit", "pipe_write", "pipe_read"];
    let shared = ["file_count", "cancellation_point"];
    let sockets = ["unix_send", "unix_recv", "unix_cold", "unix_far"];
    measured.extend(direct.into_iter().chain(shared).chain(sockets).map(String::from));

    // The last calls' footprints come from the L2 in the model: twenty are more than an L1 holds.
    let refill = &mut c.refill_kib;
    let kib = f64::from(RootTask::default().footprint_kib);
    if let Some(cold) = cold.filter(|cold| cold.mid > 0.0) {
        let hot = f64::from(refill.l2.mid);
        refill.llc =
            cost(&cold, 1.0 / kib, -hot, "a cold thread less a warm one, a KiB of footprint");
        measured.push("refill_kib.llc".into());
        // Farther away is no nearer.
        let farther = [("package", &mut refill.package), ("remote", &mut refill.remote)];
        for (name, Cost { low, mid, high, source }) in farther {
            if *mid < refill.llc.mid {
                measured.push(format!("refill_kib.{name}"));
                let Cost { low: a, mid: b, high: c, .. } = refill.llc;
                (*low, *mid, *high) = ((*low).max(a), (*mid).max(b), (*high).max(c));
                source.push_str("; no less than refill_kib.llc");
            }
        }
    }
    for (distance, pairs, sample) in line_transfers(&m.lines) {
        let slot = match distance {
            Distance::Same => continue,
            Distance::Smt => &mut c.line_transfer.smt,
            Distance::L2 => &mut c.line_transfer.l2,
            Distance::Llc => &mut c.line_transfer.llc,
            Distance::Package => &mut c.line_transfer.package,
            Distance::Remote => &mut c.line_transfer.remote,
        };
        let how = format!("half a round trip of a flag, {pairs} pairs of CPUs");
        *slot = cost(&sample, 1.0, 0.0, &how);
        measured.push(format!("line_transfer.{}", distance.name()));
    }

    if let Some((visits, line)) = beyond_a_core(m) {
        let c = &mut spec.costs;
        let mut put = |slots: &mut [(&str, &mut Cost)], shares: &[Sample], how: &str| {
            for ((name, slot), share) in slots.iter_mut().zip(shares) {
                **slot = cost(share, 1.0, 0.0, how);
                measured.push((*name).into());
            }
        };
        let mut slots = [
            ("pipe_slot", &mut c.pipe_slot),
            ("pipe_emptied", &mut c.pipe_emptied),
            ("pipe_near_write", &mut c.pipe_near_write),
            ("pipe_near_read", &mut c.pipe_near_read),
            ("pipe_far_read", &mut c.pipe_far_read),
        ];
        let how = "what a visit to a pipe waits for beyond the mutex";
        put(&mut slots, &visits.shares(line), how);
        if let Some(wakes) = &m.wakes {
            let mut slots = [
                ("queue_from_outside", &mut c.queue_from_outside),
                ("queue_back", &mut c.queue_back),
                ("wakee", &mut c.wakee),
                ("wakee_back", &mut c.wakee_back),
            ];
            put(&mut slots, &wakes.shares(line), "what a wakeup from another CPU waits for");
        }
    }

    // A batch of round trips takes milliseconds: it is interrupted, as the model is.
    let fit = fit(&spec, threads.mid);
    if let Some(found) = &fit {
        spec = scaled(&spec, found.factor);
        for name in FITTED {
            if let Some(c) = path(&mut spec.costs, name) {
                let times = found.factor * f64::from(of_table) / 1000.0;
                c.source = format!("{origin}: table times {times:.3}, the fit");
            }
            measured.push(name.into());
        }
    }
    // A thread makes two calls a hop that cost it more than a process.
    let calls = 2.0 * f64::from(spec.costs.file_count.mid + spec.costs.cancellation_point.mid);
    let same = f64::from(spec.costs.switch_same_mm.mid);
    let extra = |more: f64| whole(same + (more + calls).max(0.0));
    spec.costs.switch_other_mm = Cost {
        low: extra(of_two.low),
        mid: extra(of_two.mid),
        high: extra(of_two.high),
        source: format!("{origin}: switch_same_mm and what processes' switches take more"),
    };
    measured.push("switch_other_mm".into());
    let how = "what processes' hops take more in a ring of 8 than of 2";
    spec.costs.switch_new_asid = cost(of_many, 1.0, of_two.mid, how);
    measured.push("switch_new_asid".into());

    // The median wakeup is not interrupted.
    let with_interruptions = spec.path_permille.clone();
    spec.path_permille.mid = 1000;
    measured.extend(wakeups_of_stopped(&mut spec, m, origin));
    spec.path_permille = with_interruptions;
    spec.sources.retain(|s| s.what != "costs");
    spec.sources.push(Source { what: "costs that name it".into(), place: origin.into() });
    let both = base.costs.iter().zip(spec.costs.iter());
    let differ =
        both.filter(|(old, new)| old.cost != new.cost).map(|(_, new)| new.name.to_string());
    let others = differ.filter(|name| !measured.contains(name)).collect();
    let mut place = String::from("the inherited table");
    if of_table != 1000 {
        place += &format!(", paths times its path_permille, {:.3}", f64::from(of_table) / 1000.0);
    }
    spec.sources.push(Source { what: "other costs".into(), place });
    Derived { spec, measured, others, fit }
}

/// What the model's messages take longer to receive where so many sockets are filled and drained.
fn when_drained(costs: &Costs, l2_kib: u32, sockets: usize) -> f64 {
    let all = cold_when_drained(costs, l2_kib, sockets, ON_A_SOCKET);
    all as f64 / (sockets * ON_A_SOCKET) as f64
}

/// `unix_cold` and `unix_far` with which the model's messages take as much longer on full sockets
/// than on one as was measured, on 20 and on 400.
fn cold_and_far(l2_kib: u32, near: f64, far: f64) -> [f64; 2] {
    // What they take is a sum of both, and so is what is measured.
    let shares = |sockets: usize| {
        const UNIT: u32 = 1_000_000;
        let of = |unix_cold, unix_far| {
            let costs = Costs { unix_cold, unix_far, ..Costs::FREE };
            let more = |n| when_drained(&costs, l2_kib, n);
            (more(sockets) - more(1)) / f64::from(UNIT)
        };
        let far = of(0, UNIT);
        [of(UNIT, UNIT) - far, far]
    };
    let ([a, b], [c, d]) = (shares(CHANNELS), shares(MANY_CHANNELS));
    let by = a * d - b * c;
    // So small a cache that even one socket's messages leave it.
    if by < 0.1 {
        return [near.max(0.0), far.max(near).max(0.0)];
    }
    match [(near * d - b * far) / by, (a * far - c * near) / by] {
        [cold, _] if cold < 0.0 => [0.0, (far / d).max(0.0)],
        // More sockets never take less time in the model.
        [cold, far_off] if far_off < cold => [((near + far) / (a + b + c + d)).max(0.0); 2],
        both => both,
    }
}

/// The visits between the nearest CPUs that are no threads of one core, and their transfer; those
/// of a core share its caches.
fn beyond_a_core(m: &Measured) -> Option<(&Visits, f64)> {
    let visits = m.visits.iter().find(|v| v.distance != Distance::Smt)?;
    let lines = line_transfers(&m.lines);
    let line = lines.iter().find(|(distance, ..)| *distance == visits.distance)?.2.mid;
    (line > 0.0).then_some((visits, line))
}

/// What the sender's interrupt costs, and leaving each idle state: what a measured wakeup takes
/// longer than the model's, without them. Returns the names of the costs that it set.
fn wakeups_of_stopped(spec: &mut MachineSpec, m: &Measured, origin: &str) -> Vec<String> {
    let Some(pair) = m.nearest else { return vec![] };
    // A write up to the wakeup and a read after it: two calls with one way in and out between them.
    let around = m.round.one.write.mid + m.round.one.read.mid - m.round.one.getppid.mid;
    let (mut measured, mut known) = (Vec::new(), vec![]);
    for exit in &m.exits {
        // The shortest sleep in a state counts: what a hypervisor does with a CPU that it has put
        // away for long is not the state's.
        if known.contains(&exit.state) {
            continue;
        }
        known.push(exit.state);
        let slept = exit.gap.as_micros();
        // A polling CPU is told by a store.
        if !spec.idle[exit.state].polling && measured.is_empty() {
            let Some(model) = modelled(spec, exit.state, pair) else { continue };
            let without = model.sent - f64::from(spec.costs.ipi_send.mid);
            let how = format!("a write that wakes after {slept} us less the model's");
            spec.costs.ipi_send = beyond(&exit.sent, without, format!("{origin}: {how}"));
            measured.push("ipi_send".into());
        }
        let Some(model) = modelled(spec, exit.state, pair) else { continue };
        let state = &mut spec.idle[exit.state];
        let without = model.latency + around - f64::from(state.exit_latency.mid);
        let how = format!("wakeup after {slept} us less the model's");
        state.exit_latency = beyond(&exit.took, without, format!("{origin}: {how}"));
    }
    measured
}

/// What `took` has beyond `without`.
fn beyond(took: &Sample, without: f64, source: String) -> Cost {
    let [low, mid, high] = [took.low, took.mid, took.high].map(|ns| whole(ns - without));
    Cost { low, mid, high, source }
}

fn whole(ns: f64) -> u32 {
    ns.round().clamp(0.0, f64::from(Cost::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::super::probe::Calls;
    use super::*;
    use vruntime_formats::machine_file::{builtin_machine, load_machine_str};
    use vruntime_machine::Machine;

    fn about(mid: f64) -> Sample {
        Sample { low: mid * 0.9, mid, high: mid * 1.2 }
    }

    fn calls(getppid: f64, fcntl: f64, write: f64) -> Calls {
        let [getppid, fcntl, write, read] = [getppid, fcntl, write, 450.0].map(about);
        Calls { getppid, fcntl, write, read }
    }

    fn line(distance: Distance, ns: f64) -> Line {
        Line { distance, a: 0, b: 1, took: about(ns) }
    }

    fn exit(state: usize, us: u64, took: f64) -> Exit {
        let gap = std::time::Duration::from_micros(us);
        Exit { state, name: format!("C{state}"), gap, sent: about(7_000.0), took: about(took) }
    }

    fn measured(exits: Vec<Exit>) -> Measured {
        Measured {
            round: Round {
                one: calls(200.0, 210.0, 500.0),
                two: calls(220.0, 250.0, 620.0),
                sockets: Sockets {
                    send: about(900.0),
                    recv: about(700.0),
                    backlog: about(2_000.0),
                    crowded: about(2_600.0),
                },
                threads: about(4_000.0),
                processes: about(5_000.0),
                many_threads: about(20_000.0),
                many_processes: about(28_000.0),
                of_two: about(500.0),
                of_many: about(1_000.0),
                cold: Some(about(2_000.0)),
                interrupted: 0.02,
            },
            lines: [30.0, 50.0, 40.0].map(|ns| line(Distance::Llc, ns)).into(),
            visits: vec![],
            wakes: None,
            wakeups: vec![(Distance::Llc, about(3_000.0))],
            nearest: Some((0, 1)),
            exits,
        }
    }

    #[test]
    fn sums_close() {
        let mut base = builtin_machine("uma-2").unwrap();
        // As of a guest, whose CPUs halt.
        base.idle[2].polling = false;
        let m = measured(vec![exit(1, 20, 3_000.0), exit(2, 2_000, 40_000.0)]);
        let d = derive(&base, &m, "test", false);
        let c = &d.spec.costs;
        // A call in the model is one in the loop that was measured, user mode included.
        let call = c.user_loop.mid + c.syscall_entry.mid + c.syscall_exit.mid;
        assert_eq!((call, c.syscall_entry.mid), (200, c.syscall_exit.mid));
        assert_eq!(call + c.pipe_lock.mid + c.pipe_read.mid + c.pipe_unlock.mid, 450);
        let before = derive(&base, &m, "test", true).spec.costs;
        assert_eq!(before.pipe_read.mid + before.pipe_atime.mid, c.pipe_read.mid);
        assert_eq!(before.pipe_write.mid + before.pipe_mtime.mid, c.pipe_write.mid);
        assert_eq!(c.unix_send.mid + c.unix_wake_check.mid, 700);
        // In the model full sockets are received as much later as was measured.
        let drained = |n| when_drained(&Costs::mid(c), base.caches.l2_kib, n);
        // 2,000 and 2,600 ns less 2 %, less the 900 of a send.
        for (sockets, measured) in [(1, 700.0), (20, 1_060.0), (400, 1_648.0)] {
            let total = 200.0 + f64::from(c.unix_recv.mid) + drained(sockets);
            assert!((total - measured).abs() < 3.0, "{sockets}: {total}, not {measured}");
        }
        let table = &base.costs.refill_kib;
        assert_eq!(c.refill_kib.llc.mid, 500 + table.l2.mid);
        assert!(table.remote.mid < 500 && c.refill_kib.remote.mid == c.refill_kib.llc.mid);
        assert!(d.measured.contains(&"refill_kib.remote".into()), "it is written");
        assert_eq!(c.line_transfer.llc.mid, 40);
        assert_eq!((c.file_count.mid, c.cancellation_point.mid), (20, 80));
        assert_eq!(c.switch_other_mm.mid, c.switch_same_mm.mid + 500 + 2 * (20 + 80));
        // Processes' hops take 1 us more than threads' among eight, 0.5 us more between two.
        assert_eq!(c.switch_new_asid.mid, 500);
        assert_eq!((c.line_transfer.llc.low, c.line_transfer.llc.high), (27, 60));
        // 0.98 of 1,020 us are a millisecond.
        assert_eq!(d.spec.path_permille.mid, 1_020);
        // Uninterrupted, the model's wakeups are now those that were measured.
        let mut calm = d.spec.clone();
        calm.path_permille.mid = 1_000;
        let around = m.round.one.write.mid + m.round.one.read.mid - m.round.one.getppid.mid;
        for e in &m.exits {
            let model = modelled(&calm, e.state, (0, 1)).unwrap();
            let total = model.latency + around;
            assert!((total - e.took.mid).abs() < 0.01 * e.took.mid, "{}: {total}", e.name);
        }
        let model = modelled(&calm, 2, (0, 1)).unwrap();
        assert!((model.sent - 7_000.0).abs() < 50.0 && d.measured.contains(&"ipi_send".into()));
        assert!(d.spec.check().is_ok());
    }

    /// POWER's paths are half as long again as the table's; what is not measured stays so, also in
    /// the file, and is lengthened by interruptions besides.
    #[test]
    fn what_is_not_measured_keeps_the_factor_of_its_table() {
        let mut base = builtin_machine("power10-320").unwrap();
        // Smaller, so that the fit is quick.
        base.topology = builtin_machine("uma-2").unwrap().topology;
        let d = derive(&base, &measured(vec![]), "test", false);
        let own: Vec<&str> = d.measured.iter().chain(&d.others).map(String::as_str).collect();
        let text = super::super::file::text(&d.spec, &own, "head").unwrap();
        let back = load_machine_str(&text, "test").unwrap();
        let tick = |spec| f64::from(Machine::new(spec).unwrap().costs.tick_base);
        for spec in [&d.spec, &back] {
            let times = tick(spec) / tick(&base);
            assert!((times - 1.0 / 0.98).abs() < 0.002, "{times}");
        }
        assert_eq!(back.costs, d.spec.costs);
        assert!(d.others.contains(&"tick_base".into()) && !d.others.contains(&"ttwu".into()));
        let x86 = derive(&builtin_machine("uma-2").unwrap(), &measured(vec![]), "test", false);
        assert_eq!(x86.others, ["bhb_clear"]);
    }

    /// Costs of the model are never negative, never fall with the number of sockets, and close the
    /// sum where they can.
    #[test]
    fn noise_between_full_sockets_does_not_become_costs() {
        let played = |l2_kib, near, far| {
            let [cold, far_off] = cold_and_far(l2_kib, near, far);
            assert!(cold >= 0.0 && far_off >= cold && far_off.is_finite(), "{cold} {far_off}");
            let costs = Costs { unix_cold: cold as u32, unix_far: far_off as u32, ..Costs::FREE };
            let more = |n| when_drained(&costs, l2_kib, n) - when_drained(&costs, l2_kib, 1);
            [more(CHANNELS), more(MANY_CHANNELS)]
        };
        for l2_kib in [512, 1024, 2048, 4096] {
            let [near, far] = played(l2_kib, 300.0, 1_200.0);
            assert!((near - 300.0).abs() < 3.0 && (far - 1_200.0).abs() < 3.0, "{near} {far}");
        }
        for l2_kib in [16, 32, 48, 94, 200, 1024, 2048] {
            for (near, far) in [(450.0, 450.0), (450.0, 300.0), (-50.0, 900.0), (-9.0, -20.0)] {
                played(l2_kib, near, far);
            }
        }
    }
}
