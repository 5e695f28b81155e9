//! The one fitted number of the host's machine: a common factor on the scheduler's path costs.
//!
//! A ping-pong of two threads on one CPU passes through a dozen paths at once, so it cannot say
//! what each of them costs. It can say how fast this machine is at all of them together: the model
//! runs the same ping-pong, and the factor is moved until model and measurement agree.

use std::sync::Arc;
use vruntime_base::Ns;
use vruntime_formats::kernel_file::{builtin_kernels, kernel};
use vruntime_kernel::record::{RunSpec, Sampling};
use vruntime_kernel::simulate::run;
use vruntime_machine::{Cost, CostSpec, MachineSpec};
use vruntime_sched::release::Release;

/// What the model runs: the measured ping-pong in the words of a known tool.
pub const PING_PONG: &str = "taskset -c 0 perf bench sched pipe -T";

/// The paths that the factor moves.
pub const FITTED: [&str; 10] = [
    "ttwu",
    "select_base",
    "enqueue_base",
    "dequeue_base",
    "level",
    "pelt",
    "pick_base",
    "pick_level",
    "schedule_base",
    "switch_same_mm",
];

/// How the fit ended.
pub struct Fit {
    /// The factor.
    pub factor: f64,
    /// The model's round trip with it, ns.
    pub modelled: f64,
    /// The kernel that the model ran.
    pub kernel: String,
}

/// The cost of a fitted path.
pub fn path<'a>(costs: &'a mut CostSpec, name: &str) -> Option<&'a mut Cost> {
    Some(match name {
        "ttwu" => &mut costs.ttwu,
        "select_base" => &mut costs.select_base,
        "enqueue_base" => &mut costs.enqueue_base,
        "dequeue_base" => &mut costs.dequeue_base,
        "level" => &mut costs.level,
        "pelt" => &mut costs.pelt,
        "pick_base" => &mut costs.pick_base,
        "pick_level" => &mut costs.pick_level,
        "schedule_base" => &mut costs.schedule_base,
        "switch_same_mm" => &mut costs.switch_same_mm,
        _ => return None,
    })
}

/// `spec` with the fitted paths multiplied by `factor`, taken to a thousandth.
pub fn scaled(spec: &MachineSpec, factor: f64) -> MachineSpec {
    let mut spec = spec.clone();
    let permille = (1000.0 * factor).round() as u32;
    for name in FITTED {
        if let Some(cost) = path(&mut spec.costs, name) {
            cost.scale(permille);
        }
    }
    spec
}

/// The factor at which the model's round trip is `measured` ns; `None` if there is no such factor
/// between 1/10 and 10.
pub fn fit(spec: &MachineSpec, measured: f64) -> Option<Fit> {
    let release = Arc::new(running_kernel()?);
    let trip = |factor: f64| modelled(&scaled(spec, factor), &release);
    // Secant: the round trip is nearly linear in the factor.
    let (mut a, mut b) = (1.0, 2.0);
    let (mut at_a, mut at_b) = (trip(a)?, trip(b)?);
    for _ in 0..8 {
        if (at_b - at_a).abs() < 1e-9 || (at_b - measured).abs() < 0.002 * measured {
            break;
        }
        let next = (b + (measured - at_b) * (b - a) / (at_b - at_a)).clamp(0.1, 10.0);
        (a, at_a) = (b, at_b);
        (b, at_b) = (next, trip(next)?);
    }
    ((at_b - measured).abs() < 0.02 * measured).then(|| Fit {
        factor: b,
        modelled: at_b,
        kernel: release.name.clone(),
    })
}

/// The model's round trip, ns.
fn modelled(spec: &MachineSpec, release: &Arc<Release>) -> Option<f64> {
    let record = run(&RunSpec {
        sampling: Sampling::Window { warmup: Ns::from_ms(5), window: Ns::from_ms(20) },
        ..RunSpec::new(spec.clone(), Arc::clone(release), vruntime_workload::parse(PING_PONG).ok()?)
    })
    .ok()?;
    let span = record.window.1.saturating_sub(record.window.0).0 as f64;
    // A round trip is two messages.
    (record.counters.messages > 0).then(|| 2.0 * span / record.counters.messages as f64)
}

/// The kernel inside the program that stands for the one running here.
pub fn running_kernel() -> Option<Release> {
    let uname = nix::sys::utsname::uname().ok()?;
    let name = nearest(&uname.release().to_string_lossy())?;
    kernel(name).ok().map(|choice| choice.release)
}

/// The newest kernel inside the program that is not newer than `release`, or else the oldest.
fn nearest(release: &str) -> Option<&'static str> {
    let here = version(release);
    let of = |name: &'static str| Some((version(name.strip_prefix('v')?), name));
    let mut known: Vec<_> = builtin_kernels().iter().filter_map(|(name, _)| of(name)).collect();
    known.sort_unstable();
    known.iter().rev().find(|(v, _)| *v <= here).or(known.first()).map(|(_, name)| *name)
}

/// The kernel running here sees to the times of a pipe's inode in each call: up to 6.14.
pub fn sets_pipe_times() -> bool {
    let here = nix::sys::utsname::uname().map(|u| version(&u.release().to_string_lossy()));
    here.is_ok_and(|v| v < [6, 15, 0])
}

/// The three numbers at the start of `text`.
fn version(text: &str) -> [u32; 3] {
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|p| p.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vruntime_formats::machine_file::builtin_machine;

    #[test]
    fn the_factor_moves_all_fitted_paths_and_no_other() {
        let spec = builtin_machine("uma-2").unwrap();
        let twice = scaled(&spec, 2.0);
        for (old, new) in spec.costs.iter().zip(twice.costs.iter()) {
            let times = if FITTED.contains(&old.name) { 2 } else { 1 };
            assert_eq!(new.cost.mid, times * old.cost.mid, "{}", old.name);
        }
    }

    #[test]
    fn a_kernel_that_is_not_newer_stands_for_the_running_one() {
        let of = |release| nearest(release).unwrap();
        assert_eq!(
            [of("6.1.0-41-amd64"), of("6.9.1-arch"), of("6.15.2")],
            ["v6.1", "v6.6", "v6.12"]
        );
        assert_eq!([of("6.18.15"), of("6.18.44-fc"), of("4.19.0")], ["v6.18", "v6.18.44", "v5.5"]);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(version("6.9.1-arch") < version("6.12.0"));
        assert!(version("6.18.15") < version("6.18.44-fc"));
        assert_eq!(version("6.1-arch"), [6, 1, 0]);
    }
}
