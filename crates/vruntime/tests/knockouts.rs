//! Knock-outs: does a run without something lack it, and stay sound? And does `explain` find a
//! cost of known size that was planted? That nothing else of the machine's costs and the kernel's
//! switches changes, `kernel/src/variation.rs` tests.

mod scenario;

use std::sync::Arc;
use vruntime::base::{Func, Ns, Resource};
use vruntime::formats::kernel_file::kernel;
use vruntime::kernel::record::{Knockout, RunRecord, RunSpec, Sampling, Variation};
use vruntime::kernel::simulate::{SetupError, run};
use vruntime::workload::parse;

const HACKBENCH: &str = "hackbench -g 8 -f 4 --pipe --threads -l 2500 -s 100";
const SOCKETS: &str = "hackbench -g 8 -f 4 --threads -l 500 -s 100";

fn spec(machine: &str, expression: &str, workload: &str, variation: Variation) -> RunSpec {
    RunSpec {
        sampling: Sampling::Full { limit: Ns::from_ms(20_000) },
        checks: true,
        variation,
        ..RunSpec::new(
            scenario::machine(machine),
            kernel(expression).unwrap().release,
            parse(workload).unwrap(),
        )
    }
}

fn without(k: Knockout) -> Variation {
    Variation { without: [k].into_iter().collect(), ..Variation::default() }
}

fn on(r: &RunRecord, resource: Resource) -> Ns {
    r.cpu_time.iter().filter(|e| e.1 == resource).fold(Ns::ZERO, |sum, e| sum + e.2)
}

fn of(r: &RunRecord, func: Func) -> Ns {
    r.cpu_time.iter().filter(|e| e.0 == func).fold(Ns::ZERO, |sum, e| sum + e.2)
}

/// What looks for an idle CPU wait for at the run queues' lines.
fn looks(r: &RunRecord) -> Ns {
    let of = |e: &&(Func, Resource, Ns)| (e.0, e.1) == (Func::SelectIdle, Resource::RqLine);
    r.cpu_time.iter().filter(of).fold(Ns::ZERO, |sum, e| sum + e.2)
}

/// What each knock-out takes out of the ledger, if it is a whole entry of it.
fn entry(k: Knockout, r: &RunRecord) -> Option<Ns> {
    Some(match k {
        Knockout::RqLock => on(r, Resource::RqLock),
        Knockout::RqLine => on(r, Resource::RqLine) - looks(r),
        Knockout::Scan => looks(r),
        Knockout::TgLoadAvg => on(r, Resource::TgLoadAvg),
        Knockout::LlcShared => on(r, Resource::LlcShared),
        Knockout::PipeMutex => on(r, Resource::PipeMutex),
        Knockout::WaitQueue => on(r, Resource::WaitQueueLock),
        Knockout::PipeData => on(r, Resource::PipeData),
        Knockout::FileCount => of(r, Func::Fget),
        Knockout::Socket => on(r, Resource::Socket),
        Knockout::MmCount => on(r, Resource::MmCount),
        Knockout::TaskLine => on(r, Resource::TaskLine),
        Knockout::GlobalLine => on(r, Resource::Global),
        Knockout::Ipi => of(r, Func::Ipi),
        Knockout::IdleExit => of(r, Func::IdleExit),
        Knockout::ColdCache => of(r, Func::ColdCache),
        _ => return None,
    })
}

/// On two sockets with SMT, everything happens that can be left out; the run stays sound.
#[test]
fn what_is_left_out_is_absent_and_the_run_is_sound() {
    for release in ["v6.1", "v6.12"] {
        let whole = |work| run(&spec("2x4x2", release, work, Variation::default())).unwrap();
        let [pipes, sockets] = [HACKBENCH, SOCKETS].map(whole);
        for &k in Knockout::ALL {
            let (work, whole) = match k {
                Knockout::Socket => (SOCKETS, &sockets),
                _ => (HACKBENCH, &pipes),
            };
            let r = run(&spec("2x4x2", release, work, without(k))).unwrap();
            let checks = r.checks.unwrap();
            let wrong = checks.nr_running_wrong + checks.stopped_with_work;
            assert_eq!((wrong, r.ledger_gap), (0, 0), "{release} without {k}");
            assert!(r.complete, "{release} without {k}");
            assert_eq!(r.kernel, format!("{release} without {k}"));
            assert_eq!(r.counters.messages, whole.counters.messages, "{release} without {k}");
            assert_ne!(r.hash, whole.hash, "{release} without {k}: nothing changed");
            let Some(left) = entry(k, &r) else { continue };
            assert_eq!(left, Ns::ZERO, "{release} without {k}");
            let before = entry(k, whole).expect("an entry, as above");
            assert!(before > left, "{release}: there was none of {k}");
        }
    }
}

/// Threads count the files that they share, pipes or sockets; processes do not.
#[test]
fn threads_count_files_of_sockets_too() {
    let counted = |threads: &str, without: Variation| {
        let work = format!("hackbench -g 2 -f 4 -l 50 {threads}");
        of(&run(&spec("2x4x2", "v6.12", &work, without)).unwrap(), Func::Fget)
    };
    assert!(counted("--threads", Variation::default()) > Ns::ZERO);
    assert_eq!(counted("--process", Variation::default()), Ns::ZERO);
    assert_eq!(counted("--threads", without(Knockout::FileCount)), Ns::ZERO);
}

#[test]
fn everything_at_once_is_sound() {
    let all = Variation { without: Knockout::ALL.iter().copied().collect(), ..Default::default() };
    let r = run(&spec("2x4x2", "v6.1", HACKBENCH, all)).unwrap();
    let checks = r.checks.unwrap();
    assert_eq!((checks.nr_running_wrong, checks.stopped_with_work, r.ledger_gap), (0, 0, 0));
    assert!(r.complete);
}

#[test]
fn drawn_costs_differ_and_repeat() {
    let draw = |n| Variation { draw: Some(n), ..Variation::default() };
    let hash = |v| run(&spec("uma-2", "v6.1", HACKBENCH, v)).unwrap().hash;
    assert_eq!(hash(draw(7)), hash(draw(7)));
    assert_ne!(hash(draw(7)), hash(draw(8)));
}

#[test]
fn a_planted_cost_needs_a_name() {
    let extra = vec![("ttwo".to_string(), 1)];
    let wrong = Variation { extra, ..Variation::default() };
    let e = run(&spec("uma-2", "v6.1", HACKBENCH, wrong)).err();
    assert!(matches!(e, Some(SetupError::Cost { nearest: Some("ttwu"), .. })), "{e:?}");
}

/// Those by distance end with their class, as `show machine` lists them.
#[test]
fn a_cost_by_distance_can_be_planted() {
    let wait = |name: &str| {
        let extra = vec![(name.to_string(), 500)];
        let variation = Variation { extra, ..Variation::default() };
        run(&spec("uma-2", "v6.1", HACKBENCH, variation)).map(|r| r.hash)
    };
    let hashes = ["line_transfer.llc", "line_transfer.remote"].map(|name| wait(name).unwrap());
    assert_ne!(hashes[0], hashes[1], "there is no other package");
    assert_eq!(
        hashes[1],
        run(&spec("uma-2", "v6.1", HACKBENCH, Variation::default())).unwrap().hash
    );
    let e = wait("line_transfr.llc").err();
    assert!(
        matches!(e, Some(SetupError::Cost { nearest: Some("line_transfer.llc"), .. })),
        "{e:?}"
    );
}

/// The positive control: one byte to and fro, every wakeup 2 us dearer, on the critical path of
/// both tasks: the benchmark takes as much longer as the ledger has more under try_to_wake_up.
/// Beside another difference `explain` finds 90 to 110 % of it. (While one task wakes, the other's
/// CPU is idle for longer and so in a deeper state: without idle_exit that stays out of the way.)
#[test]
fn explain_finds_a_planted_cost() {
    let [with, without] = [2000, 0].map(|ns| booked("ttwu", ns, Func::TryToWakeUp));
    let planted = with - without;
    assert!(planted > 0.01, "{planted} s");
    let json = explained("ttwu=2000", "--without idle_exit --try rq_lock,ipi");
    let found = amount(&json, "ttwu + 2000 ns") / planted;
    assert!((0.9..=1.1).contains(&found), "found {found} of it: {json}");
    assert!(amount(&json, "hz").abs() < 0.1 * planted, "{json}");
    assert!(json["conclusion"].as_str().unwrap().contains("ttwu + 2000 ns"), "{json}");
}

/// The same with its consequence: with writes that take 300 us longer the other CPU is idle for so
/// long that it stops in C6, which takes 40 us to leave and not 1. Explain divides the difference
/// into what was planted and what that adds: 39 for each 300, less where a tick has woken the CPU
/// before.
#[test]
fn explain_tells_a_cost_from_its_consequence() {
    let json = explained("pipe_write=300000", "--try rq_lock,idle_exit");
    let planted = booked("pipe_write", 300_000, Func::PipeWrite);
    let found = amount(&json, "rest") / (planted - booked("pipe_write", 0, Func::PipeWrite));
    assert!((0.99..=1.01).contains(&found), "found {found} of it: {json}");
    let adds = amount(&json, "idle_exit") / amount(&json, "rest");
    assert!((0.65 * 39.0 / 300.0..=39.0 / 300.0).contains(&adds), "{adds}: {json}");
}

const PIPE: &str = "perf bench sched pipe -l 3000";

/// Seconds in `func` with `ns` more of `cost` each time.
fn booked(cost: &str, ns: u32, func: Func) -> f64 {
    let variation = Variation { extra: vec![(cost.into(), ns)], ..Variation::default() };
    let r = run(&spec("uma-2", "v6.1", PIPE, variation)).unwrap();
    let own = r.cpu_time.iter().find(|e| (e.0, e.1) == (func, Resource::None));
    own.expect("there are some").2.0 as f64 / 1e9
}

fn explained(planted: &str, options: &str) -> serde_json::Value {
    let planted = format!("-k v6.1+hz=1000 --plant {planted} --full --seeds 3");
    explain(PIPE, &format!("{planted} {options}"))
}

/// v6.1 against what `options` say, on two CPUs.
fn explain(workload: &str, options: &str) -> serde_json::Value {
    let command = format!("explain -m uma-2 -k v6.1 --json -q --split 1 {options}");
    let out = assert_cmd::Command::cargo_bin("vruntime")
        .unwrap()
        .args(command.split_whitespace())
        .args(["-w", workload])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["schema"], "vruntime/explain/1");
    json
}

fn amount(json: &serde_json::Value, part: &str) -> f64 {
    let parts = json["parts"].as_array().unwrap();
    parts.iter().find(|p| p["mechanism"] == part).expect(part)["amount"].as_f64().unwrap()
}

/// Counts of whole benchmarks are totals, as in `compare`, also if a window holds them.
#[test]
fn a_window_that_holds_the_whole_run_counts_totals() {
    let counted = |window: &str| {
        let options = format!("--warmup 0ms --window {window} --seeds 1 --try ipi");
        explain(PIPE, &format!("-k v6.12 --metric context_switches {options}"))
    };
    let whole = counted("2s");
    assert_eq!((&whole["counting"], &whole["unit"]), (&"totals".into(), &"1".into()), "{whole}");
    let part = counted("1ms");
    assert_eq!((&part["counting"], &part["unit"]), (&"rates".into(), &"1/s".into()), "{part}");
}

/// In a few milliseconds a group may make no progress, and then nobody knows the run's time: that
/// takes its seed out, and not the question away.
#[test]
fn seeds_that_do_not_know_the_metric_are_left_out() {
    let asked = "-k v6.12 --metric time --try ipi,scan --seeds 5 --warmup 20ms --window 3ms";
    let json = explain("hackbench -g 4 -f 2 -l 20000", asked);
    let of = |name: &str| json[name].as_array().unwrap().len();
    let (seeds, left_out) = (of("seeds"), of("left_out"));
    assert!(left_out > 0 && seeds > 0 && left_out + seeds == 5, "{json}");
    assert!(json["conclusion"].as_str().unwrap().contains(" left out: "), "{json}");
    assert!(json["delta"].is_number(), "{json}");
}

/// Waiting for the counts that threads share, ns a message.
fn shared_counts(machine: &str, release: &str, workload: &str) -> (f64, f64) {
    let r = run(&spec(machine, release, workload, Variation::default())).unwrap();
    let each = |ns: Ns| ns.0 as f64 / r.counters.messages as f64;
    (each(on(&r, Resource::MmCount)), each(on(&r, Resource::FileCount)))
}

/// Processes have counts of their own. PowerPC stopped counting borrowers in 6.4; from 6.13 on a
/// file is counted in one transfer instead of two.
#[test]
fn threads_pay_for_the_counts_they_share() {
    let threads = "hackbench -g 2 -f 4 --pipe --threads -l 600";
    let (mm, file) = shared_counts("2x4x2", "v6.12", threads);
    assert!(mm > 0.0 && file > 0.0, "{mm} {file}");
    assert_eq!(shared_counts("2x4x2", "v6.12", &threads.replace("threads", "process")), (0.0, 0.0));
    let (_, added) = shared_counts("2x4x2", "v6.12-fget_exchanges", threads);
    assert!(file > 1.3 * added, "{file} ns exchanged, {added} ns added");
    assert!(shared_counts("power10-96", "v6.1", threads).0 > 0.0);
    assert_eq!(shared_counts("power10-96", "v6.5", threads).0, 0.0);
}

/// Up to 6.14 each write and read of a message sees to the times of the pipe's inode: on a machine
/// without SMT exactly the table's cost for each. Reads that sleep do so once, when they have data.
#[test]
fn pipes_set_times_in_kernels_up_to_6_14() {
    let costs = scenario::machine("uma-2").costs;
    let each = |release: &str| {
        let workload = "hackbench -g 1 -f 4 --pipe -l 600";
        let r = run(&spec("uma-2", release, workload, Variation::default())).unwrap();
        let calls = |func, cost: u32| {
            assert_eq!(of(&r, func).0 % u64::from(cost), 0);
            (of(&r, func).0 / u64::from(cost)) as f64 / r.counters.messages as f64
        };
        let write = calls(Func::FileUpdateTime, costs.pipe_mtime.mid);
        [write, calls(Func::FileAccessed, costs.pipe_atime.mid)]
    };
    for calls in each("v6.12") {
        assert!((1.0..1.01).contains(&calls), "{calls}");
    }
    assert_eq!(each("v6.18"), [0.0; 2]);
}

/// Kernels since 6.9 clear the branch history at the entry of each system call, where the processor
/// leaves that to a loop: on a machine without SMT exactly the table's cost for each.
#[test]
fn kernels_since_6_9_clear_the_branch_history() {
    let workload = "hackbench -g 1 -f 4 --pipe -l 600";
    let entry = |release: &str, loops: u32| {
        let mut spec = spec("uma-2", release, workload, Variation::default());
        let cost = &mut Arc::make_mut(&mut spec.machine).costs.bhb_clear;
        (cost.low, cost.mid, cost.high) = (loops, loops, loops);
        let r = run(&spec).unwrap();
        of(&r, Func::SyscallEntry).0 as f64 / r.counters.syscalls as f64
    };
    let each = f64::from(scenario::machine("uma-2").costs.syscall_entry.mid);
    for (release, loops, want) in
        [("v6.12", 0, each), ("v6.12", 30, each + 30.0), ("v6.12-clears_bhb", 30, each)]
    {
        let got = entry(release, loops);
        assert!((got / want - 1.0).abs() < 0.01, "{release}, {loops} ns: {got}, not {want}");
    }
    assert!(entry("v6.1", 30) > entry("v6.6", 30) + 25.0);
    let loops = |machine: &str| scenario::machine(machine).costs.bhb_clear.mid;
    assert_eq!(["milan-2s", "spr-2s", "power10-320"].map(loops), [0; 3]);
    assert!(loops("icelake-2s") > 0 && loops("cascadelake-2s") > 0);
}

/// A write and the read of each message are cancellation points. Only a program with threads pays
/// for them: on a machine without SMT exactly the table's cost for each, and for the few calls
/// that start and end a task.
#[test]
fn libc_minds_cancellation_in_programs_with_threads() {
    let threads = "hackbench -g 1 -f 4 --pipe --threads -l 600";
    let minded = |workload: &str| {
        let r = run(&spec("uma-2", "v6.12", workload, Variation::default())).unwrap();
        let each = u64::from(scenario::machine("uma-2").costs.cancellation_point.mid);
        let (calls, rest) = (of(&r, Func::Cancel).0 / each, of(&r, Func::Cancel).0 % each);
        assert_eq!(rest, 0);
        calls as f64 / r.counters.messages as f64
    };
    assert!((2.0..2.01).contains(&minded(threads)), "{}", minded(threads));
    assert_eq!(minded(&threads.replace("threads", "process")), 0.0);
}
