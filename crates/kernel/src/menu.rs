//! The menu governor: which idle state a CPU enters, and whether it stops its tick.
//!
//! *What.* Predicts how long the CPU will be idle: from the last eight idle periods, if they are
//! alike, and from how much of the time to the next timer such periods have lasted.
//! *Source.* Linux 6.1, 6.12 and 6.18, drivers/cpuidle/governors/menu.c (commits 5484e31bbbff and
//! 80606f4eb8d7 for what it does not look at); drivers/cpuidle/cpuidle.c and cpuidle-pseries.c.
//! *Equations.* Typical period: the mean of the eight, if its standard deviation is at most 20 us,
//! or a sixth of it with six or more of them; if not, again without those as long as the longest;
//! none with six or fewer left. Correction: six factors, by the decade of the time to the next
//! timer, each a mean of (period / that time) of weight 1/8. Predicted: the smaller of typical
//! period and time × factor. State: the deepest that pays within it. The tick is stopped if the
//! prediction is at least a tick. A period that a tick has ended counts as 45 ms, one that the
//! limit of polling has ended as long as the timer was away. From 6.15 on, instead of the longest,
//! the end that is farther from the mean is left out. From 6.6 on eight periods of less than 1 us
//! tell nothing, and timers are not looked at if the typical period is at most 15 us: they then
//! count as never, and the tick as half a period away.
//! *Departures.* D1: no task waits for I/O. D2: every CPU has a timer within 4 s, that of the
//! watchdog. D3: the limit of polling is that of 5.11 on.
//! *Example.* Idle for 5 us again and again: C1, with the tick on. Then nothing comes: the first
//! seven ticks count as 45 ms each and are left out as outliers; after the eighth the tick stops.

use vruntime_base::Ns;
use vruntime_machine::{Arch, IdleState};
use vruntime_sched::release::{ChecksTimers, LeftOut, Release};

const INTERVALS: usize = 8;
const BUCKETS: usize = 6;
/// One, of a factor.
const UNITY: u64 = 1024 * DECAY;
const DECAY: u64 = 8;
/// Longer periods count as perfectly predicted.
const MAX_INTERESTING: Ns = Ns::from_ms(50);
/// What a period counts as that a tick has ended.
const ENDED_BY_TICK: Ns = Ns::from_ms(45);
/// A state that pays later does not replace polling.
const RESIDENCY_THRESHOLD: Ns = Ns(15_000);
/// Between two looks of the watchdog.
const WATCHDOG: Ns = Ns::from_ms(4_000);
/// The time to a timer that was not looked for.
const KTIME_MAX: Ns = Ns(i64::MAX as u64);
const US: u64 = 1_000;

/// What the governor keeps of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Menu {
    /// The last periods, us.
    intervals: [u32; INTERVALS],
    oldest: u8,
    /// By decade of the time to the next timer.
    factors: [u16; BUCKETS],
    /// Time to the next timer when it chose last.
    timer: Ns,
}

/// What releases do in different ways.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    left_out: LeftOut,
    checks_timers: ChecksTimers,
    polls_before_long: bool,
}

impl Rules {
    /// Those of `release`.
    pub fn of(release: &Release) -> Rules {
        Rules {
            left_out: release.menu_leaves_out,
            checks_timers: release.menu_checks_timers,
            polls_before_long: release.menu_polls_before_long,
        }
    }
}

/// What a CPU does while it is idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// State that it enters.
    pub state: usize,
    /// Without ticks.
    pub stop_tick: bool,
}

/// What has ended an idle period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The tick, which was not stopped.
    Tick,
    /// The limit of polling.
    Limit,
    /// Anything else.
    Event,
}

/// The first of `states` is the polling loop. A CPU that halts has none, whatever its table says.
fn has_a_loop(states: &[IdleState]) -> bool {
    states[0].polling && states[0].target_residency_ns == 0
}

/// How long a CPU stays in `state` at the most: only the polling state has a limit.
pub fn poll_limit(states: &[IdleState], state: usize, arch: Arch, tick: Ns) -> Option<Ns> {
    let polls = state == 0 && has_a_loop(states) && states.len() > 1;
    let pays_at = || states[1..].iter().map(|s| Ns(u64::from(s.target_residency_ns)));
    polls.then(|| match arch {
        Arch::X86 => {
            let most = Ns(tick.0 / 16);
            pays_at().find(|r| r.0 >= 10 * US).map_or(most, |r| r.min(most))
        }
        Arch::Powerpc => pays_at().next().unwrap_or(tick),
    })
}

impl Default for Menu {
    /// A CPU that has been idle for long.
    fn default() -> Menu {
        Menu {
            intervals: [(ENDED_BY_TICK.0 / US) as u32; INTERVALS],
            oldest: 0,
            factors: [UNITY as u16; BUCKETS],
            timer: WATCHDOG,
        }
    }
}

impl Menu {
    /// The CPU is about to be idle: `timer` is the time to its next timer, `to_tick` that to its
    /// next tick, none if the tick is stopped; `tick` the period of ticks.
    pub fn choose(
        &mut self,
        states: &[IdleState],
        timer: Ns,
        to_tick: Option<Ns>,
        tick: Ns,
        rules: Rules,
    ) -> Choice {
        let typical = self.typical(rules);
        let soon = typical.is_some_and(|us| us * US <= RESIDENCY_THRESHOLD.0);
        let looks = match rules.checks_timers {
            ChecksTimers::Always => true,
            ChecksTimers::IfLong => !soon,
            ChecksTimers::IfLongOrStopped => !soon || to_tick.is_none(),
        };
        let to_tick = to_tick.map(|to_tick| if looks { to_tick } else { Ns(tick.0 / 2) });
        self.timer = if looks { timer.min(WATCHDOG) } else { KTIME_MAX };
        let loops = has_a_loop(states);
        let polls = |state: usize| state == 0 && loops;
        let pays_at = |state: usize| Ns(u64::from(states[state].target_residency_ns));
        if states.len() == 1 || self.timer < pays_at(1) {
            return Choice { state: 0, stop_tick: !polls(0) };
        }
        let mut predicted = self.predicted(typical);
        if to_tick.is_none() && predicted < tick {
            // A short stay is no longer to be expected where nothing would end a long one.
            predicted = self.timer;
        }
        let wait_at_most = if to_tick.is_some() { predicted } else { Ns::NEVER };
        let mut chosen = 0;
        for (i, state) in states.iter().enumerate() {
            if pays_at(i) > predicted {
                let latency = Ns(u64::from(state.table_latency_ns));
                let late = rules.polls_before_long && pays_at(i) >= RESIDENCY_THRESHOLD;
                let fits = latency <= wait_at_most && pays_at(i) <= self.timer;
                if polls(chosen) && fits && !late {
                    // Rather than burn power.
                    (predicted, chosen) = (pays_at(i), i);
                } else if predicted >= tick && to_tick.is_some() {
                    // The tick stays on: there will be another choice.
                    predicted = pays_at(chosen);
                } else if predicted >= tick && pays_at(chosen) < tick && pays_at(i) <= self.timer {
                    chosen = i;
                }
                break;
            }
            if i > 0 && Ns(u64::from(state.table_latency_ns)) > wait_at_most {
                break;
            }
            chosen = i;
        }
        match to_tick {
            Some(to_tick) if polls(chosen) || predicted < tick => {
                while chosen > 0 && pays_at(chosen) > to_tick {
                    chosen -= 1;
                }
                Choice { state: chosen, stop_tick: false }
            }
            _ => Choice { state: chosen, stop_tick: true },
        }
    }

    /// It was idle for `idle`, until it was out of `state` again; `ended` by what.
    pub fn note(&mut self, idle: Ns, state: &IdleState, ended: Ended, tick: Ns) {
        let exit = Ns(u64::from(state.table_latency_ns));
        let measured = match idle > Ns(2 * exit.0) {
            _ if ended == Ended::Tick && self.timer > tick => ENDED_BY_TICK,
            _ if ended == Ended::Limit => self.timer,
            true => idle - exit,
            false => Ns(idle.0 / 2),
        };
        let measured = measured.min(self.timer);
        let share = match self.timer > Ns::ZERO && measured < MAX_INTERESTING {
            true => 1024 * measured.0 / self.timer.0,
            false => 1024,
        };
        let factor = &mut self.factors[bucket(self.timer)];
        *factor = *factor - *factor / DECAY as u16 + share as u16;
        self.intervals[usize::from(self.oldest)] = (measured.0 / US) as u32;
        self.oldest = (self.oldest + 1) % INTERVALS as u8;
    }

    /// By the typical period, us, and by the timer, if that was looked for.
    fn predicted(&self, typical: Option<u64>) -> Ns {
        let never = u64::MAX / US;
        let by_timer = match self.timer {
            KTIME_MAX => never,
            timer => {
                let factor = u64::from(self.factors[bucket(timer)]);
                (timer.0 * factor + UNITY * US / 2) / (UNITY * US)
            }
        };
        Ns(by_timer.min(typical.unwrap_or(never)) * US)
    }

    /// The typical period, us.
    fn typical(&self, rules: Rules) -> Option<u64> {
        let left_out = rules.left_out;
        let (mut shortest, mut longest) = match left_out {
            // What does not fit into an int is left out from the start.
            LeftOut::Longest => (0, i32::MAX as u64),
            LeftOut::Farthest => (0, u64::MAX),
        };
        loop {
            let all = self.intervals.iter().map(|&i| u64::from(i));
            let counted = || all.clone().filter(|i| (shortest..=longest).contains(i));
            let n = counted().count() as u64;
            let (min, max) = (counted().min()?, counted().max()?);
            if max == 0 && rules.checks_timers != ChecksTimers::Always {
                return None;
            }
            let mean = counted().sum::<u64>() / n;
            let square = |i: u64| u128::from(i) * u128::from(i);
            let variance = match left_out {
                LeftOut::Longest => {
                    counted().map(|i| square(i.abs_diff(mean))).sum::<u128>() / u128::from(n)
                }
                // Of rounded means; never negative, for the mean is rounded down.
                LeftOut::Farthest => {
                    counted().map(square).sum::<u128>() / u128::from(n) - square(mean)
                }
            };
            let most = 4 * n >= 3 * INTERVALS as u64;
            if variance <= 400 || most && square(mean) > 36 * variance {
                return Some(mean);
            }
            if 4 * n <= 3 * INTERVALS as u64 {
                return None;
            }
            match left_out {
                LeftOut::Farthest if mean - min > max - mean => shortest = min + 1,
                _ => longest = max - 1,
            }
        }
    }
}

/// The decade of a time to the next timer: below 10 us, 100 us, 1, 10, 100 ms, beyond.
fn bucket(timer: Ns) -> usize {
    let decades = [10 * US, 100 * US, 1_000 * US, 10_000 * US, 100_000 * US];
    decades.iter().take_while(|d| timer.0 >= **d).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Ns = Ns::from_ms(1);
    const FAR: Ns = Ns::from_ms(3_000);
    /// As 6.1 has them.
    const OLD: Rules = Rules {
        left_out: LeftOut::Longest,
        checks_timers: ChecksTimers::Always,
        polls_before_long: false,
    };
    /// As 6.6 has them.
    const NEW: Rules = Rules { checks_timers: ChecksTimers::IfLong, ..OLD };

    /// POLL, C1 from 2 us on, C6 from 600 us on.
    fn states() -> Vec<IdleState> {
        [(0, 0), (2_000, 1_000), (600_000, 290_000)]
            .map(|(residency, latency)| IdleState {
                name: String::new(),
                table_latency_ns: latency,
                target_residency_ns: residency,
                polling: true,
                exit_latency_ns: latency,
            })
            .to_vec()
    }

    /// One that has been idle for `us` each of the last eight times, with C1 and its tick on.
    fn after(us: [u64; 8]) -> Menu {
        let mut m = Menu::default();
        for us in us {
            m.timer = FAR;
            m.note(Ns(us * US + 1_000), &states()[1], Ended::Event, TICK);
        }
        m
    }

    fn choose(m: &mut Menu, timer: Ns, to_tick: Option<Ns>) -> (usize, bool) {
        let Choice { state, stop_tick } = m.choose(&states(), timer, to_tick, TICK, OLD);
        (state, stop_tick)
    }

    /// Where there is one state the tick goes on if that is the polling loop, not if it halts.
    #[test]
    fn a_machine_that_only_halts_stops_its_ticks() {
        for polling in [true, false] {
            let mut only = states();
            only.truncate(1);
            (only[0].target_residency_ns, only[0].polling) = (0, polling);
            let found = Menu::default().choose(&only, FAR, Some(TICK), TICK, OLD);
            assert_eq!((found.state, found.stop_tick), (0, !polling));
        }
    }

    /// A period of 12 us is expected, and polling is the deepest state that pays. One with a
    /// latency of 10 us is entered all the same, unless it pays after 15 us only.
    #[test]
    fn a_state_that_pays_late_does_not_replace_polling_in_long_term_releases() {
        for (pays_at, polls_before_long, state) in
            [(14_999, true, 1), (15_000, true, 0), (15_000, false, 1)]
        {
            let mut states = states();
            states.truncate(2);
            (states[0].target_residency_ns, states[1].target_residency_ns) = (0, pays_at);
            states[1].table_latency_ns = 10_000;
            let mut m = Menu::default();
            for _ in 0..INTERVALS {
                m.timer = FAR;
                m.note(Ns(12 * US), &states[0], Ended::Event, TICK);
            }
            let rules = Rules { polls_before_long, ..OLD };
            assert_eq!(m.choose(&states, FAR, Some(TICK), TICK, rules).state, state);
        }
    }

    #[test]
    fn long_idle_cpus_stop_deep_and_without_tick() {
        assert_eq!(choose(&mut Menu::default(), FAR, Some(TICK)), (2, true));
    }

    #[test]
    fn short_periods_keep_the_tick_until_the_eighth_has_come_in_idle() {
        let mut m = after([5; 8]);
        for _ in 0..8 {
            assert_eq!(choose(&mut m, FAR, Some(TICK)), (1, false));
            m.note(TICK - Ns(1_000), &states()[1], Ended::Tick, TICK);
        }
        assert_eq!(m.intervals, [45_000; 8]);
        assert_eq!(m.typical(OLD), Some(45_000));
        // The factor has followed, too: 3 s × (1 - (7/8)^8 × …) is far more than a tick.
        assert_eq!(choose(&mut m, FAR, Some(TICK)), (2, true));
    }

    /// From 6.6 on the timers are not looked at where 5 us are expected, nor is their factor used.
    #[test]
    fn where_soon_something_comes_timers_do_not_count() {
        let soon = Ns(1_000);
        let chosen = |rules: Rules, to_tick| {
            let mut m = after([5; 8]);
            let choice = m.choose(&states(), soon, to_tick, TICK, rules);
            (choice.state, m.timer)
        };
        // The timer comes before C1 pays.
        assert_eq!(chosen(OLD, Some(TICK)), (0, soon));
        assert_eq!(chosen(NEW, Some(TICK)), (1, KTIME_MAX));
        // A stopped tick makes 5 us unlikely, and nothing else will end the stay; who looks then
        // sees the timer.
        assert_eq!(chosen(NEW, None), (2, KTIME_MAX));
        let stopped = Rules { checks_timers: ChecksTimers::IfLongOrStopped, ..NEW };
        assert_eq!(chosen(stopped, Some(TICK)), (1, KTIME_MAX));
        assert_eq!(chosen(stopped, None), (0, soon));
    }

    /// Less than 1 us each time tells nothing from 6.6 on: the timer and its factor decide, and
    /// that does not fall below 7 of 8192.
    #[test]
    fn periods_of_nothing_tell_nothing() {
        let mut m = after([0; 8]);
        assert_eq!((m.typical(OLD), m.typical(NEW)), (Some(0), None));
        m.factors = [7; BUCKETS];
        // 3 s × 7 / 8192 = 2.6 ms.
        assert_eq!(m.clone().choose(&states(), FAR, Some(TICK), TICK, NEW).state, 2);
        assert_eq!(m.choose(&states(), FAR, Some(TICK), TICK, OLD).state, 0);
    }

    /// The limit of polling came while the timer was not looked at: 2^63 - 1 ns, of whose
    /// microseconds the lower 32 bits are kept. That is no int, and left out.
    #[test]
    fn polling_to_the_limit_without_a_timer_is_left_out() {
        let mut m = after([5; 8]);
        m.choose(&states(), FAR, Some(TICK), TICK, NEW);
        m.note(Ns(62_000), &states()[0], Ended::Limit, TICK);
        assert_eq!(m.intervals.iter().filter(|&&us| us == 0xa5e3_53f7).count(), 1);
        assert_eq!(m.typical(NEW), Some(5));
        // From 6.15 on it counts, and is the end that is farther from the mean; three at once, too.
        let both_ends = Rules { left_out: LeftOut::Farthest, ..NEW };
        assert_eq!(m.typical(both_ends), Some(5));
        m.intervals[..3].fill(0xa5e3_53f7);
        assert_eq!(m.typical(both_ends), Some(5));
    }

    #[test]
    fn outliers_do_not_count() {
        let both =
            |us| [OLD, Rules { left_out: LeftOut::Farthest, ..NEW }].map(|r| after(us).typical(r));
        assert_eq!(both([5, 5, 5, 5, 5, 5, 5, 9_000]), [Some(5); 2]);
        assert_eq!(both([5, 5, 5, 5, 5, 5, 400, 9_000]), [Some(5); 2]);
        // Of 100, 200 … 800 two are left out, and the rest is still no typical period.
        assert_eq!(both([100, 200, 300, 400, 500, 600, 700, 800]), [None; 2]);
        // A sixth: 600 us and 20 of deviation.
        assert_eq!(both([580, 620, 580, 620, 580, 620, 580, 620]), [Some(600); 2]);
        // All of the longest go at once, however many they are; or the shortest, which is farther
        // from the mean.
        assert_eq!(both([400, 800, 800, 800, 800, 800, 800, 800]), [Some(400), Some(800)]);
        assert_eq!(both([5, 800, 800, 800, 5, 800, 800, 800]), [Some(5), Some(800)]);
        assert_eq!(both([0; 8]), [Some(0), None]);
    }

    /// Nothing has come for as long as the timer was away, as far as the governor can tell.
    #[test]
    fn polling_has_a_limit() {
        let limit = |arch| [0, 1].map(|state| poll_limit(&states(), state, arch, TICK));
        assert_eq!(limit(Arch::X86), [Some(Ns(62_500)), None]);
        assert_eq!(limit(Arch::Powerpc), [Some(Ns(2_000)), None]);
        let mut m = after([5; 8]);
        m.note(Ns(62_500), &states()[0], Ended::Limit, TICK);
        assert_eq!(m.intervals[0], 3_000_000);
    }

    #[test]
    fn a_timer_in_sight_limits_the_prediction() {
        let mut m = Menu::default();
        assert_eq!(choose(&mut m, Ns(1_000), Some(TICK)), (0, false));
        assert_eq!(choose(&mut m, Ns(100_000), Some(TICK)), (1, false));
        assert_eq!(choose(&mut m, Ns(700_000), Some(TICK)), (2, false));
        // With the tick in 100 us C6 does not pay.
        assert_eq!(choose(&mut m, Ns(700_000), Some(Ns(100_000))), (1, false));
    }

    /// C1 rather than polling, where it may pay and one is out of it in time; with the tick stopped
    /// nobody would end a long stay in C1.
    #[test]
    fn a_short_prediction() {
        assert_eq!(choose(&mut after([1; 8]), FAR, Some(TICK)), (1, false));
        assert_eq!(choose(&mut after([0; 8]), FAR, Some(TICK)), (0, false));
        assert_eq!(choose(&mut after([1; 8]), FAR, None), (2, true));
    }

    #[test]
    fn the_exit_is_no_idle_time() {
        let mut m = after([5; 8]);
        let measured = |m: &mut Menu, idle: u64| {
            m.note(Ns(idle), &states()[1], Ended::Event, TICK);
            m.intervals[usize::from(m.oldest + 7) % 8]
        };
        assert_eq!([9_000, 2_000].map(|idle| measured(&mut m, idle)), [8, 1]);
    }
}
