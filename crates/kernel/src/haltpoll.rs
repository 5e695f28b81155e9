//! The haltpoll governor: a guest polls for a while before it halts.
//!
//! *What.* A halt is an exit to the hypervisor, and so is the interrupt that ends it. So a CPU that
//! halted for a short time polls the next times, up to a limit, and halts if nothing came.
//! *Source.* Linux 6.1, drivers/cpuidle/governors/haltpoll.c; drivers/cpuidle/cpuidle-haltpoll.c,
//! whose driver asks for this governor; Documentation/virt/guest-halt-polling.rst for the limits.
//! *Equations.* After a halt of h: the limit doubles, from 50 us on and up to the machine's
//! `guest_halt_poll_ns` (200 us), if limit < h and h is at most that; it is halved if h is longer.
//! While it is zero there is no polling. The tick goes on while a CPU polls.
//! *Departures.* D1: of the requests for a latency only that of zero counts, as in the kernel, but
//! one below that of the halt takes the halt away altogether (`keep_within`).
//! *Example.* Halts of 8 us: the first has no limit yet; then one of 50 us, within which the next
//! event comes, and there are no more halts. Then nothing for a second: it polls 50 us, halts, and
//! the limit is 25 us.

use crate::menu::{Choice, Ended};
use vruntime_base::Ns;
use vruntime_machine::IdleState;

/// `guest_halt_poll_grow_start`.
const GROWS_FROM: Ns = Ns(50_000);

/// What a CPU remembers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Haltpoll {
    /// How long it polls: `poll_limit_ns`.
    limit: Ns,
    /// It has just polled to the limit.
    in_vain: bool,
}

impl Haltpoll {
    /// The CPU is about to be idle. Of `states` the first is the polling loop, the second the halt.
    pub fn choose(&self, states: &[IdleState]) -> Choice {
        if states.len() == 1 {
            return Choice { state: 0, stop_tick: !states[0].polling };
        }
        let halts = self.limit == Ns::ZERO || self.in_vain;
        Choice { state: usize::from(halts), stop_tick: halts }
    }

    /// How long a CPU polls at the most.
    pub fn poll_limit(&self) -> Ns {
        self.limit
    }

    /// It was idle for `idle`, until it was out of `state` again; `ended` by what. `most`: the
    /// machine's limit of polling.
    pub fn note(&mut self, state: usize, idle: Ns, ended: Ended, most: Ns) {
        self.in_vain = state == 0 && ended == Ended::Limit;
        if state == 0 {
            return;
        }
        if idle > most {
            self.limit = Ns(self.limit.0 / 2);
        } else if idle > self.limit {
            self.limit = Ns(2 * self.limit.0).max(GROWS_FROM).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> Vec<IdleState> {
        let state = |name: &str, polling| IdleState {
            name: name.into(),
            table_latency_ns: 1_000,
            target_residency_ns: 1_000,
            polling,
            exit_latency_ns: 0,
        };
        vec![state("POLL", true), state("haltpoll idle", false)]
    }

    /// As the module has it.
    const MOST: Ns = Ns(200_000);
    const HALTS: Choice = Choice { state: 1, stop_tick: true };
    const POLLS: Choice = Choice { state: 0, stop_tick: false };

    /// The example of the header.
    #[test]
    fn short_halts_make_it_poll_and_a_long_one_less() {
        let (mut h, states) = (Haltpoll::default(), states());
        assert_eq!(h.choose(&states), HALTS);
        h.note(1, Ns(8_000), Ended::Event, MOST);
        assert_eq!((h.choose(&states), h.poll_limit()), (POLLS, GROWS_FROM));
        h.note(0, Ns(8_000), Ended::Event, MOST);
        assert_eq!((h.choose(&states), h.poll_limit()), (POLLS, GROWS_FROM));
        h.note(0, GROWS_FROM, Ended::Limit, MOST);
        assert_eq!(h.choose(&states), HALTS);
        h.note(1, Ns::from_ms(1_000), Ended::Event, MOST);
        assert_eq!((h.choose(&states), h.poll_limit()), (POLLS, Ns(25_000)));
    }

    /// 60 us are beyond a limit of 50, and 150 beyond 100; 200 are the most, and what polling would
    /// have caught leaves it alone.
    #[test]
    fn the_limit_doubles_up_to_the_most() {
        let mut h = Haltpoll::default();
        for (halt_us, limit_us) in [(60, 50), (60, 100), (90, 100), (150, 200), (200, 200)] {
            h.note(1, Ns(halt_us * 1_000), Ended::Event, MOST);
            assert_eq!(h.poll_limit(), Ns(limit_us * 1_000), "{halt_us}");
        }
        h.note(1, Ns(200_001), Ended::Event, MOST);
        assert_eq!(h.poll_limit(), Ns(100_000));
    }

    /// With a limit of zero it always halts.
    #[test]
    fn a_guest_may_be_told_not_to_poll() {
        let mut h = Haltpoll::default();
        for halt in [100, 8_000, 300_000] {
            h.note(1, Ns(halt), Ended::Event, Ns::ZERO);
            assert_eq!(h.choose(&states()), HALTS);
        }
    }

    /// A request for a latency of zero leaves the polling loop alone.
    #[test]
    fn the_only_state_keeps_its_tick_if_it_polls() {
        let mut only = states();
        only.truncate(1);
        assert_eq!(Haltpoll::default().choose(&only), POLLS);
        only[0].polling = false;
        assert_eq!(Haltpoll::default().choose(&only), Choice { state: 0, stop_tick: true });
    }
}
