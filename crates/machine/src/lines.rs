//! Contended cache lines: who has a line, who must fetch it, who must wait.
//!
//! **What.** The scheduler's shared words by name. A line has an owner (the last writer) and
//! sharers (CPUs with a readable copy). Its home serves one request at a time, so writers to a hot
//! line queue up, and so do readers while it changes hands.
//! **Source.** MESI with a serialising home agent; transfers: `line_transfer` in machines/costs,
//! each value with its source; the share of `update_cfs_group` and `update_load_avg` on large
//! machines (Aaron Lu, RFC of August 2023) shows that reads of a written line queue like its
//! writes, and that they stop to when writes are rare.
//! **Equations.** With T = `line_transfer[distance]`:
//! read hit (owner or sharer) = 0;
//! read miss of a dirty line (no sharers): own T(owner), line busy for T;
//! read miss of a clean line: own T(nearest of owner and sharers by LLC and package), line busy
//! for `read_occupancy`;
//! write by the sole owner = 0;
//! other write: own max(T(owner), T(farthest sharer)) + `invalidate_per_sharer` · (sharers − 1),
//! line busy for that long, sharers gone.
//! Every miss waits until the line is idle. Where packages hold several last-level caches, groups'
//! and address spaces' lines go round cache by cache (`visits`): who is served with its neighbours
//! pays for a transfer from one. A CPU is in one event at a time, so a wait is bounded by the
//! number of CPUs times the transfers of one event.
//! `tg->load_avg` is touched more than once in an event, with work in between: written by
//! `update_tg_load_avg`, then read by `update_cfs_group` of the group's entity. Who had to wait for
//! it does not find it in its cache the next time, as those who came meanwhile took it: it waits
//! as long again, and then for the same transfer. A read keeps the line for the mean of a written
//! and a clean line's time.
//! **Departures.** D1: no evictions: a copy stays until somebody writes. D2: two named words never
//! share a line; what does share one in the kernel has one name. D3: a store costs what its
//! transfer costs, it does not retire into a store buffer. D4: all accesses of an event are made at
//! its beginning. How many come to wait behind one that waits is not known by then and taken to be
//! as many as it found before it (who found nobody waits for nobody), and of the lines of nested
//! groups only the last one is remembered; a line that everybody waits for serves up to a fifth
//! more than with one event for each access (test).
//! **Example.** T(llc) = 60. CPU 0 owns the line. CPU 1 reads: 60. CPU 2 reads: 60. CPU 1 reads
//! again: 0. CPU 0 writes: 60 + one further sharer. CPU 1 and 2 write at the same time: 60, and
//! 60 of waiting + 60; if CPU 2 then reads `tg->load_avg` in that event, 60 + 60 once more.

use crate::costs::Costs;
use crate::line::{Line, LineKind};
use crate::topology::{Distance, LlcId, Topology};
use visits::Visits;
use vruntime_base::{Cpu, Ns};

mod visits;

/// What an access costs the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LineCost {
    /// Transfer and invalidation.
    pub own: Ns,
    /// Waiting for requests of other CPUs.
    pub wait: Ns,
}

impl LineCost {
    /// A hit.
    pub const ZERO: LineCost = LineCost { own: Ns(0), wait: Ns(0) };
    /// Own and waiting time.
    #[inline]
    pub fn total(self) -> Ns {
        self.own + self.wait
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    busy_until: u64,
    owner: Cpu,
    /// Number of bits in the line's sharer words; the owner is not among them.
    nr_sharers: u16,
    /// The latest miss, which no miss may precede.
    #[cfg(debug_assertions)]
    asked_at: u64,
}

impl State {
    fn home(owner: Cpu) -> State {
        State {
            busy_until: 0,
            owner,
            nr_sharers: 0,
            #[cfg(debug_assertions)]
            asked_at: 0,
        }
    }
    #[inline]
    fn ask(&mut self, i: usize, now: Ns) -> Ns {
        #[cfg(debug_assertions)]
        {
            assert!(now.0 >= self.asked_at, "accesses to line {i} out of order at {now}");
            self.asked_at = now.0;
        }
        let _ = i;
        Ns(self.busy_until.saturating_sub(now.0))
    }
}

/// A miss of a line that is touched at intervals.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Ns,
    by: Cpu,
    line: usize,
    cost: LineCost,
    /// Served with its neighbours: somebody else has the line afterwards.
    joined: bool,
}

impl Asked {
    const NEVER: Asked =
        Asked { at: Ns::NEVER, by: Cpu::NONE, line: 0, cost: LineCost::ZERO, joined: false };
}

/// Every named line of a machine.
#[derive(Clone, Debug)]
pub struct Lines {
    states: Vec<State>,
    /// `words` bit words a line.
    sharers: Vec<u64>,
    words: usize,
    nr_cpus: u32,
    nr_llcs: u32,
    /// Bit per [`LineKind`].
    free: u8,
    /// See [`Lines::again`].
    asked: Asked,
    /// Of the lines of groups and address spaces, where they go round cache by cache.
    visits: Option<Visits>,
    near: Vec<Near>,
    /// `words` bit words for every entry of `near`.
    near_words: Vec<u64>,
}

/// The neighbourhood of a CPU: numbers of word sets, and the class of the farthest LLC member.
#[derive(Clone, Copy, Debug)]
struct Near {
    llc: LlcId,
    package: u32,
    llc_reach: Distance,
}

impl Lines {
    /// Lines of a machine with `nr_groups` task groups. Per-CPU lines are at their CPU, an LLC's
    /// line at its first CPU, the others at CPU 0.
    pub fn new(topo: &Topology, nr_groups: usize) -> Lines {
        let n = topo.nr_cpus();
        let words = n.div_ceil(64);
        let cpus = || (0..n).map(|c| State::home(Cpu::from_ix(c)));
        let llc_home = |l| topo.llc_cpus(LlcId::from_ix(l)).first().expect("LLC without CPU");
        let mut states: Vec<State> = cpus().chain(cpus()).collect();
        states.extend((0..topo.nr_llcs()).map(|l| State::home(llc_home(l))));
        let mut lines = Lines {
            sharers: vec![0; states.len() * words],
            states,
            words,
            nr_cpus: n as u32,
            nr_llcs: topo.nr_llcs() as u32,
            free: 0,
            asked: Asked::NEVER,
            visits: (topo.nr_llcs() > topo.nr_packages()).then(|| Visits::new(topo.nr_llcs())),
            near: Vec::with_capacity(n),
            near_words: vec![0; (topo.nr_llcs() + topo.nr_packages()) * words],
        };
        for c in topo.all().iter() {
            let llc = topo.llc_id(c);
            let package = topo.nr_llcs() + topo.package(c).ix();
            for set in [llc.ix(), package] {
                lines.near_words[set * words + c.ix() / 64] |= 1 << (c.ix() % 64);
            }
            let reach = topo.llc(c).iter().map(|o| topo.distance(c, o)).max();
            let llc_reach = reach.unwrap_or(Distance::Same);
            lines.near.push(Near { llc, package: package as u32, llc_reach });
        }
        lines.grow_groups(nr_groups);
        lines
    }

    /// Makes sure that task groups 0 … n-1 have lines.
    pub fn grow_groups(&mut self, n: usize) {
        self.grow(self.first_group() + 2 * n);
    }

    /// Makes sure that shared address spaces 0 … n-1 have lines.
    pub fn grow_mms(&mut self, n: usize) {
        self.grow(self.first_group() + 2 * n);
    }

    fn grow(&mut self, len: usize) {
        if len > self.states.len() {
            self.states.resize(len, State::home(Cpu(0)));
            self.sharers.resize(len * self.words, 0);
            let nr = len - self.first_group();
            if let Some(visits) = &mut self.visits {
                visits.grow(nr);
            }
        }
    }

    /// Makes a kind of line free of cost, or not: a knock-out.
    pub fn set_free(&mut self, kind: LineKind, free: bool) {
        let bit = 1 << kind as u8;
        self.free = if free { self.free | bit } else { self.free & !bit };
    }

    /// `cpu` reads `line` at `now`.
    #[inline(always)]
    pub fn read(
        &mut self,
        line: Line,
        cpu: Cpu,
        now: Ns,
        costs: &Costs,
        topo: &Topology,
    ) -> LineCost {
        let i = self.index(line);
        if self.states[i].owner == cpu || self.shares(i, cpu) || self.is_free(line) {
            return self.hit(i, line, cpu, now, costs.read_occupancy);
        }
        self.read_miss(i, line, cpu, now, costs, topo)
    }

    /// `cpu` writes `line`, or updates it atomically, at `now`.
    #[inline(always)]
    pub fn write(
        &mut self,
        line: Line,
        cpu: Cpu,
        now: Ns,
        costs: &Costs,
        topo: &Topology,
    ) -> LineCost {
        let i = self.index(line);
        let s = &self.states[i];
        if (s.owner == cpu && s.nr_sharers == 0) || self.is_free(line) {
            return self.hit(i, line, cpu, now, u32::MAX);
        }
        self.write_miss(i, line, cpu, now, costs, topo)
    }

    /// `cpu` has the line, which is free unless others have taken it meanwhile.
    #[inline(always)]
    fn hit(&mut self, i: usize, line: Line, cpu: Cpu, now: Ns, clean: u32) -> LineCost {
        if line.touched_at_intervals() { self.again(i, cpu, now, clean) } else { LineCost::ZERO }
    }

    /// `cpu` has fetched the line at this cost.
    #[inline(always)]
    fn fetched(&mut self, i: usize, line: Line, asked: Asked) -> LineCost {
        if line.touched_at_intervals() {
            self.asked = Asked { line: i, ..asked };
        }
        asked.cost
    }

    /// `cpu` has had the line already in this event. If it had to wait for it, then others have
    /// come to wait behind it by the time it needs the line again: it waits as long once more, or
    /// until those are through who are known to come after it, and half of the time finds the line
    /// written. `clean` is how long it keeps a clean line busy.
    #[inline]
    fn again(&mut self, i: usize, cpu: Cpu, now: Ns, clean: u32) -> LineCost {
        let cost = match self.asked_before(i, cpu, now) {
            Some(a) if a.cost.wait > Ns::ZERO && (a.joined || self.states[i].nr_sharers == 0) => {
                a.cost
            }
            _ => return LineCost::ZERO,
        };
        let s = &mut self.states[i];
        let through = Ns(s.busy_until).saturating_sub(now + cost.total());
        let longer = (cost.own.0 + u64::from(clean).min(cost.own.0)) / 2;
        s.busy_until += longer;
        let of = i - self.first_group();
        if let Some(visits) = &mut self.visits {
            visits.lengthen_last(of, longer);
        }
        LineCost { wait: cost.wait.max(through), ..cost }
    }

    /// What `cpu` has asked of the line in this very event.
    #[inline]
    fn asked_before(&self, i: usize, cpu: Cpu, now: Ns) -> Option<Asked> {
        let asked = self.asked;
        (asked.at == now && asked.by == cpu && asked.line == i).then_some(asked)
    }

    /// `cpu` has `line` to itself: it came over with what has been paid for already.
    pub fn take_over(&mut self, line: Line, cpu: Cpu) {
        let i = self.index(line);
        if self.states[i].nr_sharers > 0 {
            self.sharers[i * self.words..(i + 1) * self.words].fill(0);
        }
        let s = &mut self.states[i];
        (s.owner, s.nr_sharers) = (cpu, 0);
    }

    /// The CPU that wrote `line` last.
    pub fn owner(&self, line: Line) -> Cpu {
        self.states[self.index(line)].owner
    }

    /// `cpu` is served with those of its cache that wait already.
    #[inline]
    fn join(&mut self, i: usize, cpu: Cpu, now: Ns, reads: bool, costs: &Costs) -> Option<Asked> {
        let of = i.checked_sub(self.first_group())?;
        let Near { llc, llc_reach, .. } = self.near[cpu.ix()];
        let own = costs.line_transfer[llc_reach as usize];
        let keeps = |clean| if clean && reads { costs.read_occupancy.min(own) } else { own }.into();
        let (served, longer) = self.visits.as_mut()?.join(of, llc, now, reads, keeps)?;
        let s = &mut self.states[i];
        s.ask(i, now);
        s.busy_until += longer;
        let cost = LineCost { own: Ns(own.into()), wait: served - now };
        Some(Asked { at: now, by: cpu, cost, joined: true, ..Asked::NEVER })
    }

    /// `cpu` is served last: the line is its for `keeps` then. Returns how long it waits.
    #[inline]
    fn append(&mut self, i: usize, cpu: Cpu, now: Ns, reads: bool, keeps: u64) -> Ns {
        let first_group = self.first_group();
        let s = &mut self.states[i];
        let wait = s.ask(i, now);
        let begins = now.0 + wait.0;
        s.busy_until = begins + keeps;
        if let (Some(of), Some(visits)) = (i.checked_sub(first_group), &mut self.visits) {
            let llc = self.near[cpu.ix()].llc;
            visits.append(of, llc, now, begins, begins + keeps, reads);
        }
        wait
    }

    #[inline(never)]
    fn read_miss(
        &mut self,
        i: usize,
        line: Line,
        cpu: Cpu,
        now: Ns,
        costs: &Costs,
        topo: &Topology,
    ) -> LineCost {
        if self.asked_before(i, cpu, now).is_some_and(|a| a.joined) {
            return self.again(i, cpu, now, costs.read_occupancy);
        }
        if let Some(asked) = self.join(i, cpu, now, true, costs) {
            return self.fetched(i, line, asked);
        }
        let State { owner, nr_sharers, .. } = self.states[i];
        let mut distance = topo.distance(owner, cpu);
        if nr_sharers > 0 && distance > Distance::Llc {
            let near = self.near[cpu.ix()];
            if self.any_sharer_in(i, near.llc.0.into()) {
                distance = Distance::Llc;
            } else if distance > Distance::Package && self.any_sharer_in(i, near.package) {
                distance = Distance::Package;
            }
        }
        let own = costs.line_transfer[distance as usize];
        let occupancy = if nr_sharers == 0 { own } else { costs.read_occupancy.min(own) };
        let wait = self.append(i, cpu, now, true, occupancy.into());
        self.states[i].nr_sharers += 1;
        self.sharers[i * self.words + cpu.ix() / 64] |= 1 << (cpu.ix() % 64);
        let cost = LineCost { own: Ns(u64::from(own)), wait };
        self.fetched(i, line, Asked { at: now, by: cpu, cost, ..Asked::NEVER })
    }

    #[inline(never)]
    fn write_miss(
        &mut self,
        i: usize,
        line: Line,
        cpu: Cpu,
        now: Ns,
        costs: &Costs,
        topo: &Topology,
    ) -> LineCost {
        let before = self.asked_before(i, cpu, now);
        if before.is_some_and(|a| a.joined) {
            return self.again(i, cpu, now, u32::MAX);
        }
        if let Some(asked) = self.join(i, cpu, now, false, costs) {
            return self.fetched(i, line, asked);
        }
        let State { owner, nr_sharers, .. } = self.states[i];
        let others = u32::from(nr_sharers) - u32::from(self.shares(i, cpu));
        let mut distance = topo.distance(owner, cpu);
        if others > 0 {
            distance = distance.max(self.farthest_sharer(i, cpu, topo));
        }
        let own = u64::from(costs.line_transfer[distance as usize])
            + u64::from(costs.invalidate_per_sharer) * u64::from(others.saturating_sub(1));
        if nr_sharers > 0 {
            self.sharers[i * self.words..(i + 1) * self.words].fill(0);
        }
        let wait = self.append(i, cpu, now, false, own);
        // It does not wait for its own read of this event, see `again`.
        let wait = before.map_or(wait, |before| before.cost.wait);
        let s = &mut self.states[i];
        s.owner = cpu;
        s.nr_sharers = 0;
        let cost = LineCost { own: Ns(own), wait };
        self.fetched(i, line, Asked { at: now, by: cpu, cost, ..Asked::NEVER })
    }

    /// Distance class of the farthest sharer other than `cpu`. Several sharers inside the LLC
    /// count as far as the LLC's farthest member.
    fn farthest_sharer(&self, i: usize, cpu: Cpu, topo: &Topology) -> Distance {
        let near = self.near[cpu.ix()];
        let at = |set: u32| &self.near_words[set as usize * self.words..][..self.words];
        let (llc, package) = (at(near.llc.0.into()), at(near.package));
        let mut beyond_llc = 0;
        let mut beyond_package = 0;
        let mut inside = 0;
        let mut last = 0;
        for (w, &s) in self.sharer_words(i).iter().enumerate() {
            beyond_package |= s & !package[w];
            beyond_llc |= s & !llc[w];
            let others = if w == cpu.ix() / 64 { s & !(1 << (cpu.ix() % 64)) } else { s };
            inside += others.count_ones();
            if others != 0 {
                last = w * 64 + others.trailing_zeros() as usize;
            }
        }
        match (beyond_package != 0, beyond_llc != 0) {
            (true, _) => Distance::Remote,
            (_, true) => Distance::Package,
            _ if inside == 1 => topo.distance(cpu, Cpu::from_ix(last)),
            _ => near.llc_reach,
        }
    }

    #[inline]
    fn any_sharer_in(&self, i: usize, set: u32) -> bool {
        let set = &self.near_words[set as usize * self.words..][..self.words];
        self.sharer_words(i).iter().zip(set).any(|(s, m)| s & m != 0)
    }
    #[inline(always)]
    fn sharer_words(&self, i: usize) -> &[u64] {
        &self.sharers[i * self.words..][..self.words]
    }
    #[inline(always)]
    fn shares(&self, i: usize, cpu: Cpu) -> bool {
        self.states[i].nr_sharers > 0
            && self.sharers[i * self.words + cpu.ix() / 64] >> (cpu.ix() % 64) & 1 != 0
    }
    #[inline(always)]
    fn is_free(&self, line: Line) -> bool {
        self.free >> line.kind() as u8 & 1 != 0
    }
    #[inline(always)]
    fn first_group(&self) -> usize {
        (2 * self.nr_cpus + self.nr_llcs + 2) as usize
    }
    #[inline(always)]
    fn index(&self, line: Line) -> usize {
        let n = self.nr_cpus as usize;
        match line {
            Line::Rq(c) => c.ix(),
            Line::RqLoad(c) => n + c.ix(),
            Line::LlcShared(l) => 2 * n + l.ix(),
            Line::RootDomain => self.first_group() - 2,
            Line::Nohz => self.first_group() - 1,
            // Groups and address spaces take turns, as both kinds may grow.
            Line::TgLoadAvg(g) => self.first_group() + 2 * g as usize,
            Line::MmCount(m) => self.first_group() + 2 * m as usize + 1,
        }
    }
}

#[cfg(test)]
mod tests;
