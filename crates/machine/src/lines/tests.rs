use super::*;
use crate::topology::Arch;
use crate::topology_spec::{Numbering, Regular, TopologySpec};
use std::collections::BTreeSet;
use vruntime_base::{Noise, Stream};

/// 2 sockets × 4 cores × 2 threads, 2 cores an LLC: CPU c and c + 8 are siblings, {0,1,8,9} is an
/// LLC, {0-3,8-11} a socket.
fn topology() -> Topology {
    let regular = Regular {
        sockets: 2,
        nodes_per_socket: 1,
        cores_per_node: 4,
        threads_per_core: 2,
        cores_per_l2: 1,
        cores_per_llc: 2,
        numbering: Numbering::SiblingsLast,
        node_distance: vec![vec![10, 21], vec![21, 10]],
    };
    TopologySpec::Regular(regular).build(Arch::X86).unwrap()
}

fn costs() -> Costs {
    Costs {
        line_transfer: [0, 10, 20, 60, 100, 200],
        invalidate_per_sharer: 3,
        read_occupancy: 8,
        ..Costs::FREE
    }
}

struct Check {
    lines: Lines,
    topo: Topology,
    costs: Costs,
}

impl Check {
    fn new() -> Check {
        let topo = topology();
        Check { lines: Lines::new(&topo, 1), topo, costs: costs() }
    }
    /// (own, wait) of a read.
    fn read(&mut self, line: Line, cpu: u16, now: u64) -> (u64, u64) {
        let c = self.lines.read(line, Cpu(cpu), Ns(now), &self.costs, &self.topo);
        (c.own.0, c.wait.0)
    }
    /// (own, wait) of a write.
    fn write(&mut self, line: Line, cpu: u16, now: u64) -> (u64, u64) {
        let c = self.lines.write(line, Cpu(cpu), Ns(now), &self.costs, &self.topo);
        (c.own.0, c.wait.0)
    }
}

const TG: Line = Line::TgLoadAvg(0);

#[test]
fn example() {
    let mut t = Check::new();
    assert_eq!(t.read(TG, 1, 0), (60, 0));
    assert_eq!(t.read(TG, 9, 1_000), (60, 0));
    assert_eq!(t.read(TG, 1, 2_000), (0, 0), "shares it");
    assert_eq!(t.write(TG, 0, 3_000), (60 + 3, 0), "one further sharer");
    assert_eq!(t.write(TG, 1, 4_000), (60, 0));
    assert_eq!(t.write(TG, 0, 4_000), (60, 60), "queued behind CPU 1");
    assert_eq!(t.write(TG, 0, 5_000), (0, 0), "sole owner");
}

#[test]
fn transfers_cost_by_distance() {
    for (cpu, own) in [(8, 10), (1, 60), (2, 100), (4, 200)] {
        assert_eq!(Check::new().read(TG, cpu, 0), (own, 0), "read by {cpu}");
        assert_eq!(Check::new().write(TG, cpu, 0), (own, 0), "write by {cpu}");
    }
}

#[test]
fn a_clean_line_comes_from_the_nearest_copy() {
    let mut t = Check::new();
    assert_eq!(t.read(TG, 4, 0), (200, 0), "from CPU 0");
    assert_eq!(t.read(TG, 5, 1_000), (60, 0), "from CPU 4");
    assert_eq!(t.read(TG, 6, 2_000), (100, 0), "from the socket");
    assert_eq!(t.read(TG, 6, 3_000), (0, 0));
}

#[test]
fn readers_of_a_clean_line_do_not_queue_for_whole_transfers() {
    let mut t = Check::new();
    assert_eq!(t.read(TG, 4, 0), (200, 0), "dirty: the line is busy until 200");
    assert_eq!(t.read(TG, 5, 100), (60, 100), "busy 8 more");
    assert_eq!(t.read(TG, 1, 200), (60, 8));
    assert_eq!(t.read(TG, 2, 300), (100, 0));
}

#[test]
fn an_invalidation_reaches_the_farthest_copy() {
    let mut t = Check::new();
    t.read(TG, 8, 0);
    assert_eq!(t.write(TG, 0, 1_000), (10, 0), "only the sibling had a copy");
    t.read(TG, 8, 2_000);
    t.read(TG, 2, 3_000);
    assert_eq!(t.write(TG, 0, 4_000), (100 + 3, 0));
    t.read(TG, 7, 5_000);
    assert_eq!(t.write(TG, 7, 6_000), (200, 0), "an upgrade invalidates the owner");
    assert_eq!(t.lines.owner(TG), Cpu(7));
}

#[test]
fn who_waited_for_a_line_waits_for_it_again_within_one_event() {
    let mut t = Check::new();
    t.write(TG, 1, 1_000);
    assert_eq!(t.write(TG, 0, 1_000), (60, 60));
    assert_eq!(t.read(TG, 0, 1_000), (60, 60), "others came while it waited");
    assert_eq!(t.write(TG, 2, 1_000), (100, 120 + (60 + 8) / 2));
    assert_eq!(t.read(TG, 2, 2_000), (0, 0), "a later event: it has the line");
    t.write(TG, 0, 3_000);
    assert_eq!(t.read(TG, 0, 3_000), (0, 0), "it did not wait, so nobody waits behind it");
    t.write(TG, 1, 3_500);
    assert_eq!(t.read(TG, 0, 3_500), (60, 60));
    assert_eq!(t.read(TG, 0, 3_500), (0, 0), "readers do not take a copy away");
    assert_eq!(t.write(TG, 0, 3_500), (60, 60), "its own read is nothing to wait for");
    let rq = Line::Rq(Cpu(5));
    t.write(rq, 4, 4_000);
    t.write(rq, 1, 4_000);
    assert_eq!(t.read(rq, 1, 4_000), (0, 0), "the words of a run queue are read at once");
}

/// What a loop of N CPUs does with `tg->load_avg`: work, write it, work a little, read it. In one
/// event, as a hook does, or in two, as it comes about.
fn updates_a_ms(cpus: u16, work: u64, in_one_event: bool) -> u64 {
    const UPDATES: u64 = 20_000;
    const BETWEEN: u64 = 100;
    let mut t = Check::new();
    let noise = Noise::new(7);
    let pause = |cpu: u16, n| noise.below(Stream::Test, u64::from(cpu), n, 2 * work);
    let mut next: BTreeSet<(u64, u16, bool)> = (0..cpus).map(|c| (pause(c, 0), c, true)).collect();
    let mut done = 0;
    let cost = |(own, wait): (u64, u64)| own + wait;
    while let Some((now, cpu, write)) = next.pop_first() {
        let mut at = now;
        if write {
            at += cost(t.write(TG, cpu, now)) + BETWEEN;
        }
        if write && !in_one_event {
            next.insert((at, cpu, false));
            continue;
        }
        at += cost(t.read(TG, cpu, now));
        done += 1;
        if done == UPDATES {
            return UPDATES * 1_000_000 / now;
        }
        next.insert((at + pause(cpu, done), cpu, true));
    }
    unreachable!("everybody goes on")
}

/// From a line that nobody waits for to one that everybody waits for.
#[test]
fn two_accesses_in_one_event_load_a_line_as_two_events_do() {
    for work in [200, 500, 1_000, 2_000, 4_000, 8_000, 16_000] {
        let [one, two] = [true, false].map(|e| updates_a_ms(16, work, e));
        let most = if work < 500 { two / 5 } else { two / 8 };
        assert!(one.abs_diff(two) <= most, "{one} against {two} at {work} ns of work");
    }
}

#[test]
fn lines_do_not_share_state() {
    let mut t = Check::new();
    let lines = [
        Line::Rq(Cpu(0)),
        Line::Rq(Cpu(15)),
        Line::RqLoad(Cpu(0)),
        Line::RqLoad(Cpu(15)),
        Line::LlcShared(LlcId(0)),
        Line::LlcShared(LlcId(3)),
        Line::RootDomain,
        Line::Nohz,
        TG,
        Line::TgLoadAvg(1),
    ];
    t.lines.grow_groups(2);
    for (i, line) in lines.into_iter().enumerate() {
        let cpu = 3 + i as u16;
        assert_ne!(t.lines.owner(line), Cpu(cpu), "{line}");
        t.write(line, cpu, 0);
    }
    for (i, line) in lines.into_iter().enumerate() {
        assert_eq!(t.lines.owner(line), Cpu(3 + i as u16), "{line}");
    }
    t.lines.grow_groups(40);
    assert_eq!(t.lines.owner(Line::TgLoadAvg(1)), Cpu(12), "growing keeps the old");
    assert_eq!(lines[5].to_string(), "sd_llc_shared[3]");
}

#[test]
fn a_free_kind_costs_nothing() {
    let mut t = Check::new();
    t.lines.set_free(LineKind::TgLoadAvg, true);
    assert_eq!(t.write(TG, 4, 0), (0, 0));
    assert_eq!(t.write(Line::Nohz, 4, 0), (200, 0));
    t.lines.set_free(LineKind::TgLoadAvg, false);
    assert_eq!(t.write(TG, 4, 0), (200, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "out of order")]
fn refuses_the_past() {
    let mut t = Check::new();
    t.write(TG, 1, 10);
    t.write(TG, 2, 9);
}

/// The example of `visits`, and what else may come.
#[test]
fn a_line_goes_round_cache_by_cache() {
    let mut t = Check::new();
    t.write(TG, 4, 0);
    assert_eq!(t.write(TG, 5, 940), (60, 0), "until 1000");
    assert_eq!(t.write(TG, 0, 950), (200, 50), "until 1200");
    assert_eq!(t.write(TG, 4, 960), (200, 240), "the line is there, but about to leave");
    assert_eq!(t.write(TG, 1, 970), (60, 230), "from 1200 to 1260, with CPU 0");
    assert_eq!(t.write(TG, 2, 980), (200, 480), "from 1460 to 1660");
    assert_eq!(t.read(TG, 0, 990), (60, 270), "from 1260 to 1320");
    assert_eq!(t.read(TG, 8, 990), (60, 330), "from 1320 to 1328: a clean line");
    assert_eq!(t.write(TG, 12, 999), (60, 529), "from 1528 to 1588, with CPU 4");
    assert_eq!(t.write(TG, 1, 1_001), (100, 787), "that visit has begun: last, from 1788");
    assert_eq!(t.lines.owner(TG), Cpu(1));
    let rq = Line::Rq(Cpu(4));
    t.write(rq, 5, 2_000);
    assert_eq!(t.write(rq, 0, 2_000), (200, 60));
    assert_eq!(t.write(rq, 4, 2_000), (200, 260));
    assert_eq!(t.write(rq, 1, 2_000), (200, 460), "a CPU's line: in order of arrival");
}

/// CPU 1 is served with CPU 0, and CPU 4 after it. When CPU 1 needs the line again in that event,
/// it waits as long as before, and the line is busy for as long as with any other.
#[test]
fn who_was_served_with_its_neighbours_has_lost_the_line_since() {
    for (read, busy) in [(true, (60 + 8) / 2), (false, 60)] {
        let mut t = Check::new();
        t.write(TG, 5, 1_000);
        t.write(TG, 0, 1_000);
        t.write(TG, 4, 1_000);
        assert_eq!(t.write(TG, 1, 1_000), (60, 400));
        let again = if read { t.read(TG, 1, 1_000) } else { t.write(TG, 1, 1_000) };
        assert_eq!(again, (60, 400));
        assert_eq!(t.write(TG, 2, 1_000), (200, 660 + busy));
    }
}

/// Nobody overtakes the last writer, nor who reads after it: whoever is told to be last has it.
#[test]
fn nobody_is_served_before_a_reader_that_comes_after_the_last_write() {
    let mut t = Check::new();
    t.write(TG, 5, 1_000);
    t.write(TG, 0, 1_000);
    assert_eq!(t.read(TG, 4, 1_000), (200, 400));
    assert_eq!(t.write(TG, 1, 1_000), (200, 600), "after the reader");
    assert_eq!(t.lines.owner(TG), Cpu(1));
    assert_eq!(t.read(TG, 1, 5_000), (0, 0));
    assert_eq!(t.read(TG, 4, 5_000), (200, 0));
}

/// CPUs that work and write a line in turn, as `visits` has it or by a server that decides what
/// comes next when it is through: the others of its visit, else the cache that waits longest.
fn served(work: u64, exactly: bool) -> u64 {
    const WRITES: u64 = 20_000;
    let mut t = Check::new();
    let noise = Noise::new(5);
    let pause = |cpu: u16, n| noise.below(Stream::Test, u64::from(cpu), n, 2 * work);
    let mut asks: BTreeSet<(u64, u16)> = (0..16).map(|c| (pause(c, 0), c)).collect();
    let llc = |t: &Check, c: u16| t.topo.llc_id(Cpu(c));
    let (mut now, mut owner) = (0, 0u16);
    let (mut visit, mut waiting) = (Vec::<u16>::new(), Vec::<(u64, u16)>::new());
    for n in 1..=WRITES {
        if !exactly {
            let (at, cpu) = asks.pop_first().expect("everybody goes on");
            let (own, wait) = t.write(TG, cpu, at);
            now = at;
            asks.insert((at + own + wait + pause(cpu, n), cpu));
            continue;
        }
        if visit.is_empty() {
            if waiting.is_empty() {
                waiting.push(asks.pop_first().expect("everybody goes on"));
                now = now.max(waiting[0].0);
            }
            while let Some(&next) = asks.first().filter(|(at, _)| *at <= now) {
                asks.remove(&next);
                waiting.push(next);
            }
            let first = llc(&t, waiting[0].1);
            let here = |&(_, c): &(u64, u16)| llc(&t, c) == first;
            visit = waiting.iter().filter(|w| here(w)).map(|w| w.1).collect();
            waiting.retain(|w| !here(w));
        }
        let cpu = visit.remove(0);
        let far = t.topo.distance(Cpu(owner), Cpu(cpu));
        now += u64::from(t.costs.line_transfer[far as usize]);
        owner = cpu;
        asks.insert((now + pause(cpu, n), cpu));
    }
    WRITES * 1_000_000 / now
}

/// From a line that nobody waits for to one that everybody waits for.
#[test]
fn visits_serve_as_many_as_a_server_that_decides_late() {
    for work in [100, 500, 1_000, 2_000, 4_000, 16_000] {
        let [told, exact] = [false, true].map(|e| served(work, e));
        assert!(told.abs_diff(exact) * 16 <= exact, "{told} against {exact} at {work} ns of work");
    }
}

/// Random accesses to one line against sets and the equations in the header.
#[test]
fn equals_the_equations() {
    let far = |topo: &Topology, cpu: Cpu, set: &BTreeSet<Cpu>| {
        let d = set.iter().map(|&s| topo.distance(cpu, s)).max().unwrap_or(Distance::Same);
        // Several copies in the LLC count as far as its farthest member.
        if set.len() > 1 && d <= Distance::Llc { Distance::Llc } else { d }
    };
    // In order of arrival: what one CPU's line does, and any line in one cache.
    let everywhere: Vec<u16> = (0..16).collect();
    let lines = [(Line::RqLoad(Cpu(0)), everywhere), (TG, vec![0, 1, 8, 9])];
    for (seed, (line, cpus)) in (0..50).flat_map(|s| lines.iter().map(move |l| (s, l))) {
        let line = *line;
        let mut t = Check::new();
        let n = Noise::new(seed);
        let (mut owner, mut sharers, mut busy) = (Cpu(0), BTreeSet::<Cpu>::new(), 0u64);
        let (mut now, mut last) = (0, Cpu::NONE);
        for k in 0..400 {
            let pick = |what, below| n.below(Stream::Test, what, k, below);
            let cpu = Cpu(cpus[pick(1, cpus.len() as u64) as usize]);
            // What one CPU does at one moment is one event, and another test's.
            now += pick(0, 150).max(u64::from(last == cpu));
            last = cpu;
            let write = pick(2, 3) == 0;
            let mut others = sharers.clone();
            others.remove(&cpu);
            let hit = owner == cpu && (!write || sharers.is_empty());
            let wait = busy.saturating_sub(now);
            let (own, keeps) = if hit || (!write && sharers.contains(&cpu)) {
                (0, None)
            } else if write {
                let d = t.topo.distance(owner, cpu).max(far(&t.topo, cpu, &others));
                let extra = 3 * (others.len() as u64).saturating_sub(1);
                let own = u64::from(t.costs.line_transfer[d as usize]) + extra;
                (own, Some(own))
            } else {
                let near = sharers.iter().map(|&s| t.topo.distance(s, cpu).max(Distance::Llc));
                let d = near.chain([t.topo.distance(owner, cpu)]).min().unwrap();
                let own = u64::from(t.costs.line_transfer[d as usize]);
                (own, Some(if sharers.is_empty() { own } else { own.min(8) }))
            };
            let wait = if keeps.is_some() { wait } else { 0 };
            let got = if write { t.write(line, cpu.0, now) } else { t.read(line, cpu.0, now) };
            assert_eq!(got, (own, wait), "seed {seed}, access {k}");
            if let Some(keeps) = keeps {
                busy = now + wait + keeps;
            }
            match write {
                true => (owner, sharers) = (cpu, BTreeSet::new()),
                false if owner != cpu => drop(sharers.insert(cpu)),
                false => {}
            }
        }
    }
}
