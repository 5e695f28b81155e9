//! Idle states: how long a CPU takes to come back.
//!
//! **What.** A CPU without work enters one of a few states. A deeper state saves power and takes
//! longer to leave. A state in which the CPU watches the need-resched flag (polling, mwait) is left
//! by a store from another CPU; the others need an interrupt.
//! **Source.** Tables of `drivers/idle/intel_idle.c`, `cpuidle-pseries.c` and ACPI; measured wake
//! times where they differ. Values per machine in its file.
//! **Equations.** Wake by store: line transfer + exit latency. Wake by interrupt: delivery + exit
//! latency.
//! **Departures.** D1: entering is not interruptible and costs `idle_enter` alone. D2: the state
//! of an SMT sibling does not limit the depth.
//! **Example.** A store over 93 ns to a CPU in C1 with 1 µs: 1,093 ns until it looks.

use crate::cost::Cost;
use serde::{Deserialize, Serialize};
use vruntime_base::Ns;

/// An idle state as the machine file gives it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleSpec {
    /// The driver's name for it.
    pub name: String,
    /// What the kernel's table says, ns; governors use it, the model does not wait for it.
    pub table_latency_ns: u32,
    /// The kernel's table again: shortest stay that pays, ns.
    pub target_residency_ns: u32,
    /// A store to the idle task's flags wakes it, without an IPI.
    pub polling: bool,
    /// From the wake event to the first instruction of the idle loop, ns.
    pub exit_latency: Cost,
}

/// An idle state as the model uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleState {
    /// The driver's name for it.
    pub name: String,
    /// What the kernel's table says, ns.
    pub table_latency_ns: u32,
    /// Shortest stay that pays, ns.
    pub target_residency_ns: u32,
    /// A store wakes it, without an IPI.
    pub polling: bool,
    /// From the wake event to the first instruction of the idle loop, ns.
    pub exit_latency_ns: u32,
}

/// Who chooses the state that a CPU enters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Governor {
    /// By how long the CPU will probably be idle.
    Menu,
    /// Of guests: polls before it halts, this long at the most (`guest_halt_poll_ns`).
    Haltpoll(Ns),
}

/// What `guest_halt_poll_ns` is if nobody sets it.
const GUEST_HALT_POLL: u32 = 200_000;

impl Governor {
    /// The governor that the driver of `states` has: `cpuidle-haltpoll`, whose states are a polling
    /// loop and `haltpoll idle`, asks for its own.
    pub fn of(states: &[IdleSpec], guest_halt_poll_ns: Option<u32>) -> Governor {
        let most = Ns(u64::from(guest_halt_poll_ns.unwrap_or(GUEST_HALT_POLL)));
        match states.iter().any(|s| s.name.starts_with("haltpoll")) {
            true => Governor::Haltpoll(most),
            false => Governor::Menu,
        }
    }
}

/// Leaves only the states that cpuidle may enter if nobody is to wait longer than `limit` for a
/// CPU; the shallowest always stays.
pub fn keep_within(states: &mut Vec<IdleState>, limit: Ns) {
    let mut index = 0;
    states.retain(|s| {
        index += 1;
        index == 1 || u64::from(s.table_latency_ns) <= limit.0
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_of_guests_asks_for_its_governor() {
        let states = |name: &str| {
            let state = |name: &str| IdleSpec {
                name: name.into(),
                table_latency_ns: 0,
                target_residency_ns: 0,
                polling: false,
                exit_latency: Cost { low: 0, mid: 0, high: 0, source: String::new() },
            };
            [state("POLL"), state(name)]
        };
        assert_eq!(Governor::of(&states("C1"), None), Governor::Menu);
        let of = |most| Governor::of(&states("haltpoll idle"), most);
        assert_eq!(of(None), Governor::Haltpoll(Ns(200_000)));
        assert_eq!(of(Some(0)), Governor::Haltpoll(Ns::ZERO));
    }

    /// States of 0, 2 and 133 us.
    #[test]
    fn a_state_may_take_as_long_as_the_limit() {
        let left = |limit: Ns| {
            let state = |table_latency_ns: u32| IdleState {
                name: String::new(),
                table_latency_ns,
                target_residency_ns: 0,
                polling: false,
                // Measured times do not count.
                exit_latency_ns: 1_000_000,
            };
            let mut states = [0, 2_000, 133_000].map(state).to_vec();
            keep_within(&mut states, limit);
            states.iter().map(|s| s.table_latency_ns).collect::<Vec<_>>()
        };
        assert_eq!(left(Ns(133_000)), [0, 2_000, 133_000]);
        assert_eq!(left(Ns(132_999)), [0, 2_000]);
        assert_eq!(left(Ns(2_000)), [0, 2_000]);
        assert_eq!(left(Ns(1_999)), [0]);
        assert_eq!(left(Ns(0)), [0]);
    }

    /// A table may begin with a state that takes time.
    #[test]
    fn the_shallowest_state_always_stays() {
        let state = IdleState {
            name: "C1".into(),
            table_latency_ns: 1_000,
            target_residency_ns: 0,
            polling: false,
            exit_latency_ns: 0,
        };
        let mut states = vec![state.clone(), state];
        keep_within(&mut states, Ns(0));
        assert_eq!(states.len(), 1);
    }
}
