//! In which order a line that the whole machine wants goes round: cache by cache.
//!
//! **What.** Who asks while a CPU of the same last-level cache waits already is served with that
//! CPU, before the line leaves for the next cache. Everybody else is served last.
//! **Source.** Requests for one line meet where a cache looks up what its cores hold; later ones
//! wait there for the answer to the first, and are answered from within (estimate: no vendor
//! documents it). Published rates bear it out: served strictly in order of arrival, 384 CPUs of
//! EPYC 9654 take 4.0 us of CPU time a message where `perf stat` had 2.1 (M. Desnoyers,
//! RFC of WAKEUP_BIAS_PREV_IDLE, 2023), and 2.3 with this rule; docs/studies/l2-queued-wakeups.md
//! has more.
//! **Equations.** A visit lasts from `begins` to `ends`. Who asks before it begins is served at its
//! end, with a transfer inside the cache; the line stays for that long, or for `read_occupancy`
//! with a reader that follows a reader. All later visits are put off by as much. Who asks when
//! the visit has begun is served after the last visit.
//! **Departures.** D1: who has been told when it is served is not told that an earlier visit has
//! become longer; who comes later waits for that (5 % of what is served at most, in the test).
//! D2: threads of one core are served like other neighbours. D3: the lines of single CPUs and
//! caches, which few want at once, are served in order of arrival.
//! **Example.** T(llc) = 60, T(remote) = 200; CPUs 0 and 1 share a cache, 4 and 5 another. CPU 4 has
//! the line until 1000. CPU 0 asks: served from 1000 to 1200. CPU 5 asks: from 1200 to 1400. CPU 1
//! asks: with CPU 0, from 1200 to 1260, and who asks next is served from 1460 on.

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

/// The visits of lines 0 … n-1 to every cache.
#[derive(Clone, Debug)]
pub(super) struct Visits {
    nr_llcs: usize,
    of: Vec<Visit>,
}

impl Visits {
    pub fn new(nr_llcs: usize) -> Visits {
        Visits { nr_llcs, of: Vec::new() }
    }

    /// Makes sure that lines 0 … n-1 have visits.
    pub fn grow(&mut self, n: usize) {
        let len = self.of.len().max(n * self.nr_llcs);
        self.of.resize(len, Visit::default());
    }

    /// A request of `llc` at `now` for a `line` whose last visit ends at `last`. If the line is to
    /// visit that cache anyway, and others later: when the request is served, and how long the
    /// line stays for it, which `keeps` tells for a clean line or not.
    pub fn join(
        &mut self,
        line: usize,
        llc: LlcId,
        now: Ns,
        last: u64,
        reads: bool,
        keeps: impl FnOnce(bool) -> u64,
    ) -> Option<(Ns, u64)> {
        let visits = &mut self.of[line * self.nr_llcs..][..self.nr_llcs];
        let Visit { begins, ends, clean } = visits[llc.ix()];
        if begins <= now.0 || ends == last {
            return None;
        }
        let longer = keeps(clean);
        for v in visits.iter_mut().filter(|v| v.begins >= ends) {
            v.begins += longer;
            v.ends += longer;
        }
        visits[llc.ix()] = Visit { begins, ends: ends + longer, clean: reads };
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
        let v = &mut self.of[line * self.nr_llcs + llc.ix()];
        let goes_on = v.ends == begins && v.begins > now.0;
        *v = Visit { begins: if goes_on { v.begins } else { begins }, ends, clean: reads };
    }
}
