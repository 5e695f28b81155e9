//! Swarm: do random machines, kernels and workloads run to their end under all checkers?
//!
//! A draw is a function of its number. `SWARM=first..end` runs other draws than the usual ones:
//! `SWARM=0..5000 cargo test --release -p vruntime --test swarm -- --nocapture`.

mod canary;
mod random;
mod scenario;

use canary::{Canary, Fault};
use random::Random;
use scenario::Scenario;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use vruntime::base::Ns;
use vruntime::formats::kernel_file::{builtin_kernels, kernel};
use vruntime::kernel::program::Workload;
use vruntime::kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime::kernel::simulate::{SetupError, run, run_with};
use vruntime::machine::topology_spec::TopologySpec;
use vruntime::machine::{LlcId, MachineSpec};
use vruntime::sched::release::Release;
use vruntime::sched::rt;

/// Draws of an ordinary test run.
const DRAWS: std::ops::Range<u64> = 0..400;

/// How long an RT task may wait beside less important work: looks are a millisecond apart, and code
/// inside the kernel is not preempted.
const RT_PATIENCE: Ns = Ns::from_ms(2);

/// What is drawn from a seed.
struct Draw(Random);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next() % n
    }
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// 1 to 24 CPUs: one or two sockets, up to two caches in each, with or without SMT.
    fn machine(&mut self) -> MachineSpec {
        let (sockets, threads) = (1 + self.below(2), 1 + self.below(2));
        let llcs = 1 + self.below(2);
        let cores = 1 + self.below(24 / (sockets * threads * llcs));
        let mut m = scenario::machine(&format!("{sockets}x{}x{threads}", cores * llcs));
        let TopologySpec::Regular(r) = &mut m.topology else { unreachable!() };
        r.cores_per_llc = cores as u32;
        m.name = format!("{}, {llcs} caches a socket", m.name);
        m
    }

    /// A kernel expression with up to three switches the other way round.
    fn kernel(&mut self) -> String {
        let names: Vec<&str> = builtin_kernels().iter().map(|(name, _)| *name).collect();
        let mut e = match self.below(5) {
            0 => String::from("v6.1+scheduler=rr"),
            1 | 2 => String::from(self.one_of(&["v6.1", "v6.12"])),
            _ => String::from(self.one_of(&names)),
        };
        e += &format!("+hz={}", self.one_of(&[100, 250, 250, 1000]));
        let release = serde_json::to_value(kernel(&e).unwrap().release).unwrap();
        let mut switches: Vec<(&String, bool)> = release
            .as_object()
            .unwrap()
            .iter()
            .filter_map(|(name, v)| Some((name, v.as_bool()?)))
            .collect();
        for _ in 0..self.below(4) {
            let (name, on) = switches.swap_remove(self.below(switches.len() as u64) as usize);
            e += &format!("{}{name}", if on { '-' } else { '+' });
        }
        if self.below(3) == 0 {
            let period = self.one_of(&[200_000, 1_000_000, 5_000_000, 40_000_000]);
            e += &format!(
                "+rt_limit={},rt_period_ns={period},rt_runtime_ns={}",
                self.one_of(&["none", "throttling", "fair-server"]),
                period * (1 + self.below(99)) / 100,
            );
        }
        if self.below(3) == 0 {
            e += &format!(
                "+ttwu_queue={},ttwu_queue_within={},ttwu_list_order={},ttwu_pending={}",
                self.one_of(&["llc", "l2", "2", "mod3", "none", "all"]),
                self.one_of(&["never", "on-cpu", "nothing-running"]),
                self.one_of(&["fifo", "lifo"]),
                self.one_of(&["nowhere", "idle-tests", "everywhere"]),
            );
            e += &format!(",migration_window_ns={}", self.one_of(&[0, 1_000_000]));
        }
        e
    }

    /// Now and then a few things are left out.
    fn variation(&mut self) -> Variation {
        let n = if self.below(4) == 0 { 1 + self.below(3) } else { 0 };
        let without = (0..n).map(|_| self.one_of(Knockout::ALL)).collect();
        Variation { without, ..Variation::default() }
    }

    /// A benchmark, or scripts of their own for a few tasks.
    fn workload(&mut self, nr_cpus: u64) -> Arc<dyn Workload> {
        let nice = match self.below(4) {
            0 => format!("nice -n {} ", self.below(20)),
            _ => String::new(),
        };
        let pin = match self.below(8) {
            0 => format!("taskset -c {} ", self.below(nr_cpus)),
            _ => String::new(),
        };
        let command = match self.below(6) {
            0 | 1 => format!(
                "hackbench {} {} -g {} -f {} -l {} -s {}",
                self.one_of(&["--pipe", "", "--pipe"]),
                self.one_of(&["--threads", "--process"]),
                1 + self.below(3),
                1 + self.below(6),
                10 + self.below(60),
                self.one_of(&[1, 100, 4000])
            ),
            2 => format!("perf bench sched pipe -l {}", 100 + self.below(900)),
            3 => format!(
                "sleeper {} {} {} {}",
                1 + self.below(2 * nr_cpus),
                100 + self.below(5000),
                20 + self.below(3000),
                1 + self.below(15)
            ),
            4 => format!("spin {} {}", 1 + self.below(2 * nr_cpus + 2), 1 + self.below(30)),
            _ => return self.scripts(nr_cpus),
        };
        vruntime::workload::parse(&format!("{pin}{nice}{command}")).unwrap()
    }

    /// Tasks of all policies that compute, sleep, yield and move.
    fn scripts(&mut self, nr_cpus: u64) -> Arc<dyn Workload> {
        let mut text = String::from("uma-2 v6.1, 1 ms\n");
        for letter in ('A'..).take(2 + self.below(2 * nr_cpus.min(10)) as usize) {
            text.push(letter);
            if self.below(3) == 0 {
                text += &format!(" on {}", self.below(nr_cpus));
            }
            text += &match self.below(8) {
                0 => " batch".into(),
                1 => " idle".into(),
                2 => format!(" fifo {}", 1 + self.below(3)),
                3 => format!(" rr {}", 1 + self.below(3)),
                _ => format!(" nice {}", self.below(40) as i64 - 20),
            };
            let words: Vec<String> = (0..2 + self.below(8))
                .map(|_| match self.below(8) {
                    0 => "yield".into(),
                    1 => format!("pin {}", self.below(nr_cpus)),
                    2 => "exec".into(),
                    3 | 4 => format!("sleep {}us", 1 + self.below(6000)),
                    _ => format!("run {}us", 1 + self.below(9000)),
                })
                .collect();
            text += &format!(": {}\n", words.join(", "));
        }
        Scenario::parse(&text).workload(true)
    }
}

/// One draw.
fn drawn(number: u64) -> RunSpec {
    let mut d = Draw(Random(number));
    let machine = d.machine();
    let release = kernel(&d.kernel()).unwrap().release;
    let nr_cpus = vruntime::machine::Machine::new(&machine).unwrap().topo.nr_cpus();
    let workload = d.workload(nr_cpus as u64);
    RunSpec {
        seed: number,
        sampling: Sampling::Full { limit: Ns::from_ms(20_000) },
        checks: true,
        variation: d.variation(),
        ..RunSpec::new(machine, release, workload)
    }
}

/// How long a task may wait beside an idle CPU: two intervals of the LLC's idle balancing, each as
/// many ms as it has CPUs in whole ticks, and a tick.
fn patience(m: &MachineSpec, k: &Release) -> Ns {
    let topo = vruntime::machine::Machine::new(m).unwrap().topo;
    let widest = (0..topo.nr_llcs()).map(|l| topo.llc_cpus(LlcId::from_ix(l)).weight());
    let interval = Ns::from_ms(widest.max().unwrap() as u64).0.next_multiple_of(k.tick_ns());
    Ns(2 * interval + k.tick_ns())
}

/// What two runs of the same specification show that must not be. `late`: beside waiting.
fn findings(spec: &RunSpec, go: impl Fn(&RunSpec) -> Result<RunRecord, SetupError>) -> Vec<String> {
    let both = catch_unwind(AssertUnwindSafe(|| (go(spec).unwrap(), go(spec).unwrap())));
    let Ok((a, b)) = both else { return vec!["panic".into()] };
    let checks = a.checks.unwrap();
    let mut found = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            found.push(what);
        }
    };
    must(a.hash == b.hash && a.counters == b.counters, "two runs differ".into());
    must(a.complete, "not complete".into());
    must(checks.nr_running_wrong == 0, format!("nr_running wrong {} x", checks.nr_running_wrong));
    let stopped = checks.stopped_with_work;
    must(stopped == 0, format!("a CPU stopped with work {stopped} x"));
    let spent: u64 = a.cpu_time.iter().map(|row| row.2.0).sum();
    let nr_cpus = spec.machine.build_topology().unwrap().nr_cpus() as u64;
    let elapsed = nr_cpus * (a.window.1 - a.window.0).0;
    must(spent == elapsed, format!("{spent} ns of {elapsed} are accounted for"));
    must(a.ledger_gap == 0 && checks.ledger_gap == 0, format!("ledger gap {}", checks.ledger_gap));
    if spec.release.scheduler == "linux" {
        let most = patience(&spec.machine, &spec.release);
        let waited = checks.idle_beside_waiting;
        let gate = checks.gate.map_or("nobody balances".into(), |gate| gate.to_string());
        let late = format!("late: {waited} beside an idle CPU, limit {most}; {gate}");
        must(waited <= most, late);
        let rt = checks.rt_beside_lower;
        must(rt <= RT_PATIENCE, format!("rt: {rt} beside less important work"));
    }
    found
}

fn describe(number: u64, spec: &RunSpec) -> String {
    let (m, k, w) = (&spec.machine.name, &spec.release.name, spec.workload.command_line());
    format!("draw {number}: {m} | {k} | {w}")
}

#[test]
fn random_runs_pass_all_checkers() {
    let draws = std::env::var("SWARM").map_or(DRAWS, |range| {
        let (first, end) = range.split_once("..").expect("SWARM=first..end");
        first.parse().unwrap()..end.parse().unwrap()
    });
    let (mut wrong, mut late) = (Vec::new(), Vec::new());
    let all = draws.clone().count();
    for number in draws {
        let spec = drawn(number);
        let found = findings(&spec, run);
        for finding in found {
            let text = format!("{}: {finding}", describe(number, &spec));
            println!("{text}");
            if finding.starts_with("late") { late.push(text) } else { wrong.push(text) }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Work conservation is a promise of statistics, not of every instant.
    assert!(late.len() * 100 <= all, "{}", late.join("\n"));
}

/// Without pushes a preempted RT task waits beside fair work, without pulls one that waits stays
/// when another CPU's more important work ends.
#[test]
fn rt_tasks_that_stay_where_they_wait_are_caught() {
    let pushed = "uma-2 v6.1, 60 ms
        A fifo 10: until 2ms, run 20ms
        B on 0 fifo 20: until 4ms, run 10ms
        C on 1: run 40ms";
    let pulled = "uma-2 v6.12, 60 ms
        A on 0 fifo 30: until 2ms, run 30ms
        B on 1 fifo 20: until 2ms, run 4ms
        C fifo 10: until 3ms, run 20ms
        D on 1: run 60ms";
    for (text, rules, caught) in [
        (pushed, vec![], false),
        (pulled, vec![], false),
        (pushed, vec![rt::RT_PUSH.id], true),
        (pulled, vec![rt::RT_PULL.id], true),
    ] {
        let mut scenario = Scenario::parse(text);
        scenario.release.disabled_rules = rules;
        let checks = scenario.record().checks.unwrap();
        assert_eq!(checks.rt_beside_lower > RT_PATIENCE, caught, "{text}: {checks:?}");
    }
}

#[test]
fn a_wrong_policy_is_caught() {
    let sleeper = "sleeper 12 3000 9000 20";
    for (fault, command, evidence) in [
        (Fault::None, sleeper, ""),
        (Fault::None, "spin 4 20", ""),
        (Fault::Forgets, sleeper, "not complete"),
        (Fault::Miscounts, sleeper, "nr_running wrong"),
        (Fault::Stacks, sleeper, "late"),
        (Fault::DropsWakeup, "spin 4 20", "not complete"),
    ] {
        let spec = RunSpec {
            sampling: Sampling::Full { limit: Ns::from_ms(3_000) },
            checks: true,
            ..RunSpec::new(
                scenario::machine("1x4x1"),
                kernel("v6.1").unwrap().release,
                vruntime::workload::parse(command).unwrap(),
            )
        };
        let go = |s: &RunSpec| run_with(s, &move |topo| Box::new(Canary::new(topo, fault)));
        let found = findings(&spec, go);
        println!("{fault:?}: {found:?}");
        let caught = found.iter().any(|f| f.starts_with(evidence) && !evidence.is_empty());
        let right = if fault == Fault::None { found.is_empty() } else { caught };
        assert!(right, "{fault:?}: {found:?}");
    }
}
