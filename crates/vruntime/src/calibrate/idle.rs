//! How long a CPU takes to leave each of its idle states.
//!
//! Which state a sleep ends in is the governor's choice, and a guest may poll before it halts. So
//! sleeps of growing length are measured, and the counters of cpuidle say which state each was.

use super::probe::{self, Sample, Wakeup};
use std::time::Duration;
use std::{fs, io};
use vruntime_machine::IdleSpec;

/// Short enough for a CPU to be found polling, where it polls at all.
pub const SHORT_GAP: Duration = Duration::from_micros(20);
/// The sleeps; the last is long enough for the deepest state of most machines.
const GAPS: [Duration; 5] = [
    SHORT_GAP,
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(2),
    Duration::from_millis(10),
];
/// Where cpuidle counts.
const CPUS: &str = "/sys/devices/system/cpu";
/// Time for the wakeups of one length.
const ATTEMPT: Duration = Duration::from_millis(600);

/// Wakeups from one idle state.
pub struct Exit {
    /// Index in the machine's states.
    pub state: usize,
    /// Its name.
    pub name: String,
    /// How long the CPU slept each time.
    pub gap: Duration,
    /// The write.
    pub sent: Sample,
    /// From before the write to the reader in user mode.
    pub took: Sample,
}

/// Wakeups of CPU `b` by CPU `a` after sleeps of growing length, each with the state that `b` was
/// in most of the times.
pub fn exits(a: usize, b: usize, states: &[IdleSpec]) -> io::Result<Vec<Exit>> {
    let numbers = numbers(&names(b), states);
    let entries = || -> Vec<Option<u64>> {
        numbers.iter().map(|state| state.and_then(|s| entered(b, s))).collect()
    };
    let mut found = Vec::new();
    for gap in GAPS {
        let before = entries();
        let n = (nanos(ATTEMPT) / nanos(gap)).clamp(30, 2_000) as usize;
        let Wakeup { sent, took } = probe::wakeup(a, b, gap, n)?;
        let times: Vec<Option<u64>> = before
            .iter()
            .zip(entries())
            .map(|(from, to)| Some(to?.saturating_sub((*from)?)))
            .collect();
        let Some(state) = state_of(gap, n, &times, states) else { continue };
        found.push(Exit { state, name: states[state].name.clone(), gap, sent, took });
    }
    Ok(found)
}

/// The state that was entered most often, if at nearly all of the `n` wakeups: a CPU may be awake
/// still. Where nothing counts: the shallowest after the shortest sleep, the deepest that pays
/// after a longer one.
fn state_of(gap: Duration, n: usize, entered: &[Option<u64>], of: &[IdleSpec]) -> Option<usize> {
    let counted = entered.iter().enumerate().filter_map(|(i, times)| Some(((*times)?, i)));
    match counted.max() {
        Some((times, _)) if 10 * times < 9 * n as u64 => None,
        Some((_, state)) => Some(state),
        None if gap == SHORT_GAP => (!of.is_empty()).then_some(0),
        None => of.iter().rposition(|s| u64::from(s.target_residency_ns) <= nanos(gap)),
    }
}

fn nanos(d: Duration) -> u64 {
    d.as_nanos() as u64
}

/// The names of all states of `cpu`, those that are disabled as well.
fn names(cpu: usize) -> Vec<String> {
    let name = |s| fs::read_to_string(format!("{CPUS}/cpu{cpu}/cpuidle/state{s}/name"));
    let all = (0..).map_while(|s| name(s).ok());
    all.map(|text| text.trim().to_string()).collect()
}

/// The number that cpuidle has for each of `states`: the machine is without those that are
/// disabled, so positions do not tell.
fn numbers(names: &[String], states: &[IdleSpec]) -> Vec<Option<usize>> {
    let mut all = names.iter().enumerate();
    let of = |s: &IdleSpec| all.find(|(_, name)| **name == s.name).map(|(number, _)| number);
    states.iter().map(of).collect()
}

/// How often `cpu` has entered the state; `None` if nothing counts that.
fn entered(cpu: usize, state: usize) -> Option<u64> {
    let path = format!("{CPUS}/cpu{cpu}/cpuidle/state{state}/usage");
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::machine_file::builtin_machine;

    /// C1 is disabled: the machine's second state is cpuidle's third.
    #[test]
    fn states_are_found_by_their_names() {
        let states = builtin_machine("uma-2").unwrap().idle;
        let mut all: Vec<String> = states.iter().map(|s| s.name.clone()).collect();
        assert_eq!(numbers(&all, &states)[1], Some(1));
        all.insert(1, "disabled".into());
        assert_eq!(numbers(&all, &states)[..2], [Some(0), Some(2)]);
        assert_eq!(numbers(&[], &states)[0], None);
    }

    #[test]
    fn the_state_is_the_one_most_often_entered() {
        let states = builtin_machine("uma-2").unwrap().idle;
        let long = GAPS[3];
        let counts = |of: &[u64]| -> Vec<Option<u64>> { of.iter().copied().map(Some).collect() };
        assert_eq!(state_of(long, 100, &counts(&[3, 90, 7]), &states), Some(1));
        assert_eq!(state_of(long, 100, &counts(&[3, 89, 7]), &states), None);
        assert_eq!(state_of(long, 100, &counts(&[0, 0, 0]), &states), None);
        let unknown = vec![None; states.len()];
        assert_eq!(state_of(SHORT_GAP, 100, &unknown, &states), Some(0));
        assert!(state_of(long, 100, &unknown, &states) > Some(0));
        assert_eq!(state_of(SHORT_GAP, 100, &[], &[]), None);
    }
}
