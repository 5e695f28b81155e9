//! In which order a line that the whole machine writes goes round: cache by cache.
//!
//! **What.** Where a package holds several last-level caches, who asks while a CPU of the same
//! cache waits already is served with that CPU, before the line leaves for the next cache.
//! Everybody else is served last.
//! **Source.** Such a cache asks for a line once for all of its cores: later requests meet the one
//! under way, and are answered from within (estimate: no vendor documents it; chosen with published
//! rates in view: in order of arrival 384 CPUs of EPYC 9654 take 4.0 us of CPU time a message where
//! `perf stat` had 2.1, M. Desnoyers, RFC of WAKEUP_BIAS_PREV_IDLE, 2023). Sockets with one cache
//! are not known to do so: a second one makes a contended line much slower at once (published:
//! slides of SUSECON 2014), and 224 CPUs of Sapphire Rapids spend the published share of their time
//! on `tg->load_avg` in order of arrival (docs/studies/l2-queued-wakeups.md).
//! **Equations.** A visit lasts from `begins` to `ends`. Who asks before it begins is served at its
//! end, with a transfer inside the cache; the line stays for that long, or for `read_occupancy`
//! with a reader that follows a reader. All later visits are put off by as much. Who asks when
//! the visit has begun is served after the last visit, and so is who would be the last to write,
//! or read what nobody writes after: so whoever is served last leaves the line as it was told.
//! **Departures.** D1: who has been told when it is served is not told that an earlier visit has
//! become longer; who comes later waits for that (6 % of what is served at most, in the test).
//! D2: threads of one core are served like other neighbours, and who is served with its neighbours
//! invalidates no copies. D3: all other lines, which few want at once, are served in order of
//! arrival, and so is every line between sockets with one cache each.
//! **Example.** T(llc) = 60, T(remote) = 200; CPUs 0 and 1 share a cache, 4 and 5 another. CPU 5
//! has the line until 1000. CPU 0 writes: served from 1000 to 1200. CPU 4: from 1200 to 1400. CPU
//! 1: with CPU 0, from 1200 to 1260, and who asks next is served from 1460 on.

use crate::topology::LlcId;
use vruntime_base::Ns;

/// A line's next stay in a cache, or the latest one.
#[derive(Clone, Copy, Debug, Default)]
struct Visit {
    begins: u64,
    ends: u64,
    /// The last to be served reads, so the next reader finds the line clean.
    clean: bool,
}

/// How a line's visits end.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// The cache that is visited last.
    llc: LlcId,
    /// When the last writer has been served.
    written: u64,
}

/// The visits of lines 0 … n-1 to every cache.
#[derive(Clone, Debug)]
pub(super) struct Visits {
    nr_llcs: usize,
    of: Vec<Visit>,
    last: Vec<Last>,
}

impl Visits {
    pub fn new(nr_llcs: usize) -> Visits {
        Visits { nr_llcs, of: Vec::new(), last: Vec::new() }
    }

    /// Makes sure that lines 0 … n-1 have visits.
    pub fn grow(&mut self, n: usize) {
        let n = self.last.len().max(n);
        self.of.resize(n * self.nr_llcs, Visit::default());
        self.last.resize(n, Last { llc: LlcId::from_ix(0), written: 0 });
    }

    /// A request of `llc` at `now` for a `line`. If the line is to visit that cache anyway, and
    /// others to write it later: when the request is served, and how long the line stays for it,
    /// which `keeps` tells for a clean line or not.
    pub fn join(
        &mut self,
        line: usize,
        llc: LlcId,
        now: Ns,
        reads: bool,
        keeps: impl FnOnce(bool) -> u64,
    ) -> Option<(Ns, u64)> {
        let visits = &mut self.of[line * self.nr_llcs..][..self.nr_llcs];
        let last = &mut self.last[line];
        let Visit { begins, ends, clean } = visits[llc.ix()];
        if begins <= now.0 || last.llc == llc || last.written <= ends {
            return None;
        }
        let longer = keeps(clean);
        for v in visits.iter_mut().filter(|v| v.begins >= ends) {
            v.begins += longer;
            v.ends += longer;
        }
        visits[llc.ix()] = Visit { begins, ends: ends + longer, clean: reads };
        last.written += longer;
        Some((Ns(ends), longer))
    }

    /// A request of `llc` at `now` is served last, from `begins` to `ends`.
    pub fn append(
        &mut self,
        line: usize,
        llc: LlcId,
        now: Ns,
        begins: u64,
        ends: u64,
        reads: bool,
    ) {
        let last = &mut self.last[line];
        let v = &mut self.of[line * self.nr_llcs + llc.ix()];
        let goes_on = last.llc == llc && v.begins > now.0;
        *v = Visit { begins: if goes_on { v.begins } else { begins }, ends, clean: reads };
        last.llc = llc;
        if !reads {
            last.written = ends;
        }
    }

    /// The last visit takes longer.
    pub fn lengthen_last(&mut self, line: usize, by: u64) {
        let llc = self.last[line].llc;
        self.of[line * self.nr_llcs + llc.ix()].ends += by;
    }
}
