//! Every reader on damaged files: no panic, no hang, memory in proportion to the bytes. Seeds are
//! fixed; a minute in `make test`, longer with `cargo run -p xtask -- fuzz SECONDS`. What
//! fails is kept in `target/fuzz`; small ones belong into `tests/data/traces/crashers`.

mod random;

use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vruntime::base::{Cpu, Event, EventKind, Ns, TaskId, TaskRow, Timeline};
use vruntime::bench::{CountingAllocator, bytes_peak_since_reset, reset_bytes_peak};
use vruntime::formats::lost::Lost;
use vruntime::formats::machine_file::builtin_machine;
use vruntime::formats::read;
use vruntime::formats::write::{Origin, TraceFormat, write_trace};
use vruntime::machine::Topology;
use vruntime::measure::{timeline_causes, timeline_stats};
use vruntime::trace_check::{Given, trace_check};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Bytes that reading may take whatever the file: the windows of xz and zstd, tables of threads.
const MEMORY: u64 = 200 << 20;
/// … and for each byte of the file. A short record becomes an event of some 60 bytes, twice.
const MEMORY_PER_BYTE: u64 = 200;
/// … if its events become rows with room for the kernel's state.
const MEMORY_PER_BYTE_OF_ROWS: u64 = 400;
/// No damaged file of these sizes takes longer, in a build for tests on a busy machine.
const TIME: Duration = Duration::from_secs(20);

/// One of `n`, the first if there are none.
fn below(random: &mut Random, n: usize) -> usize {
    (random.next() % n.max(1) as u64) as usize
}

/// Numbers at the edges of their types.
const EDGES: [u64; 12] = [
    0,
    1,
    7,
    8,
    0x7f,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 40,
    u64::MAX >> 1,
    u64::MAX,
];

/// Changes `bytes` somewhere, now and then in a way that sizes and places are hit.
fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=below(random, 4) {
        let n = bytes.len();
        let at = below(random, n);
        match below(random, 9) {
            0 | 1 if n > 0 => bytes[at] ^= 1 << below(random, 8),
            2 if n > 0 => bytes[at] = [0, 0xff, 0x7f, 0x80, b'\n'][below(random, 5)],
            3 | 4 => {
                let size = [1, 2, 4, 8][below(random, 4)];
                let edge = EDGES[below(random, EDGES.len())].to_le_bytes();
                // Numbers stand where they are aligned.
                let at = at / size * size;
                if let Some(place) = bytes.get_mut(at..at + size) {
                    place.copy_from_slice(&edge[..size]);
                }
            }
            5 => bytes.truncate(at),
            6 if n > 0 => {
                let length = below(random, 64).min(n - at);
                let part = bytes[at..at + length].to_vec();
                let to = below(random, n);
                bytes.splice(to..to, part);
            }
            7 if n > 0 => {
                let end = (at + below(random, 64)).min(n);
                bytes.drain(at..end);
            }
            8 if !other.is_empty() => {
                let from = below(random, other.len());
                let part = &other[from..(from + below(random, 256)).min(other.len())];
                let end = (at + part.len()).min(n);
                bytes.splice(at..end, part.iter().copied());
            }
            _ => {}
        }
    }
}

/// Reads `bytes`, and does with the timeline what the program does: how many events were read, or
/// what went wrong.
fn events(bytes: &[u8]) -> Result<usize, String> {
    let mut events = 0;
    let failure = limits(bytes, MEMORY_PER_BYTE, || {
        let Ok(recorded) = read::of_bytes(Path::new("fuzz"), bytes) else { return };
        assert!(recorded.diagnostics.len() <= 101);
        timeline_stats(&recorded.timeline);
        timeline_causes(&recorded.timeline);
        events = recorded.timeline.len();
    });
    failure.map_or(Ok(events), Err)
}

/// Does `work` with `bytes`. Says what went wrong.
fn limits(bytes: &[u8], per_byte: u64, work: impl FnOnce()) -> Option<String> {
    let start = Instant::now();
    reset_bytes_peak();
    let read = catch_unwind(AssertUnwindSafe(work));
    let (took, peak) = (start.elapsed(), bytes_peak_since_reset());
    let limit = MEMORY + per_byte * bytes.len() as u64;
    match read {
        Err(_) => Some("panic".into()),
        Ok(()) if peak > limit => Some(format!("{peak} bytes for a file of {}", bytes.len())),
        Ok(()) if took > TIME => Some(format!("{took:?}")),
        Ok(()) => None,
    }
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces")
}

const PERF_SCRIPT: &str = "\
swapper     0 [000]    10.000001: sched:sched_waking: comm=a pid=7 prio=120 target_cpu=000
swapper     0 [000]    10.000002: sched:sched_wakeup: a:7 [120] CPU:000
swapper     0 [000]    10.000003: sched:sched_switch: swapper/0:0 [120] R ==> a:7 [120]
      a     7/8     [000]    10.000900: sched:sched_stat_runtime: comm=a pid=7 runtime=897 [ns]
      a     7 [000]    10.001: sched:sched_migrate_task: comm=b pid=9 prio=120 orig_cpu=0 dest_cpu=1
            ffffffff810b1234 __traceiter_sched_switch+0x54 ([kernel.kallsyms])
      a     7 [000]    10.001001: sched:sched_switch: a:7 [120] S ==> swapper/0:0 [120]
";

/// What is damaged: the four formats as we write them, and files of other tools.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut out = vec![];
    let timeline = timeline();
    let origin = Origin {
        release: Some("6.1.0".into()),
        hostname: Some("h".into()),
        arch: Some("x86_64".into()),
        nr_cpus: 4,
        topology: None,
        command: vec!["c".into()],
        lost: Lost::default(),
    };
    for format in [
        TraceFormat::PerfData,
        TraceFormat::TraceDat,
        TraceFormat::Perfetto,
        TraceFormat::FtraceText,
    ] {
        let mut file = std::io::Cursor::new(vec![]);
        write_trace(format, &timeline, &origin, &mut file).unwrap();
        out.push((format!("{format:?}"), file.into_inner()));
    }
    out.push(("text of perf script".into(), PERF_SCRIPT.as_bytes().to_vec()));
    let mut files: Vec<PathBuf> = std::fs::read_dir(data())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "xz"))
        .collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let packed = std::fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        let (bytes, complaint) = vruntime::formats::xz::decompress(&packed);
        assert_eq!(complaint, None);
        out.push((format!("{name}, unpacked"), bytes));
        out.push((name, packed));
    }
    out
}

/// 300 events of 6 tasks on 4 CPUs.
fn timeline() -> Timeline {
    let mut t = Timeline::default();
    let mut random = Random(1);
    let mut running = [0u32, 1, 2, 3];
    for i in 0..300u64 {
        let cpu = below(&mut random, 4);
        let task = 4 + below(&mut random, 6) as u32;
        let (kind, task, a, b) = match below(&mut random, 4) {
            0 => (EventKind::Waking, task, 1, running[cpu]),
            1 => (EventKind::Wakeup, task, 2, 0),
            2 => (EventKind::Migrate, task, 1, 3),
            _ => (EventKind::Switch, std::mem::replace(&mut running[cpu], task), task, 1),
        };
        let (time, cpu, task) = (Ns(1_000 + i * i * 1_000), Cpu(cpu as u16), TaskId(task));
        t.push(Event { a, b, ..Event::new(time, cpu, kind, task) });
    }
    let row = |i: u32| {
        let pid = i.saturating_sub(3) * 100;
        TaskRow { comm: format!("task {i}"), pid, tgid: pid }
    };
    t.name_tasks((0..10).map(row).collect());
    t
}

#[test]
fn damaged_files_are_read_as_far_as_they_go() {
    let seconds = std::env::var("VRUNTIME_FUZZ_SECONDS").map_or(60, |s| s.parse::<u64>().unwrap());
    let start = Instant::now();
    let seeds = seeds();
    for (name, bytes) in &seeds {
        assert!(events(bytes).is_ok_and(|n| n > 0), "{name} as it is: {:?}", events(bytes));
    }
    // Panics are counted, not printed.
    std::panic::set_hook(Box::new(|_| {}));
    let (mut failures, mut runs, mut went_on) = (vec![], 0u64, 0u64);
    'rounds: for round in 0.. {
        for (i, (name, seed)) in seeds.iter().enumerate() {
            // Large ones less often.
            if seed.len() > 50_000 && round % 8 != 0 {
                continue;
            }
            let number = round << 8 | i as u64;
            let mut random = Random(number);
            let other = &seeds[below(&mut random, seeds.len())].1;
            let mut bytes = seed.clone();
            damage(&mut bytes, other, &mut random);
            runs += 1;
            match events(&bytes) {
                Ok(events) => went_on += u64::from(events > 0),
                Err(what) => {
                    let kept = kept(number, &bytes);
                    failures.push(format!("{name}, damage {number}: {what}; {kept}"));
                }
            }
        }
        if start.elapsed() > Duration::from_secs(seconds) || failures.len() > 10 {
            break 'rounds;
        }
    }
    let _ = std::panic::take_hook();
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{runs} damaged files in {seconds:.1} s, {went_on} of them with events");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(runs > 500 && went_on * 4 > runs, "{went_on} of {runs} had events");
}

/// Whether `trace check` judges decisions in `bytes` as the file `name` of a recording (it may
/// refuse), or what went wrong.
fn judges(dir: &Path, name: &str, bytes: &[u8], topology: &Topology) -> Result<bool, String> {
    std::fs::write(dir.join(name), bytes).unwrap();
    let given = Given { kernel: Some("v6.12"), topology: Some(topology) };
    let mut judged = false;
    let failure = limits(bytes, MEMORY_PER_BYTE_OF_ROWS, || {
        if let Ok(report) = trace_check(&[dir.to_path_buf()], given) {
            assert!(!report.text().is_empty());
            judged = report.kinds.iter().any(|k| k.determined > 0);
        }
    });
    failure.map_or(Ok(judged), Err)
}

#[test]
fn damaged_recordings_are_judged_as_far_as_they_go() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-check");
    let _ = std::fs::remove_dir_all(&dir);
    let topology = builtin_machine("guest-16").unwrap().build_topology().unwrap();
    let recording = data().join("../guest-6.12-16cpu-preempt-full-hackbench-pipe-g1");
    let state = std::fs::read(recording.join("state.csv.xz")).unwrap();
    let (state, complaint) = vruntime::formats::xz::decompress(&state);
    assert_eq!(complaint, None);
    // A header and some hundred rows, and plain traces of every kind.
    let end = state.len().min(60_000);
    let mut targets = vec![("state.csv", state[..end].to_vec())];
    let plain =
        [("perf.data", "PerfData"), ("trace.dat", "TraceDat"), ("ftrace.txt", "FtraceText")];
    let seeds = seeds();
    for (name, seed) in plain {
        let seed = seeds.iter().find(|s| s.0 == seed).unwrap();
        targets.push((name, seed.1.clone()));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut failures = vec![];
    for (name, seed) in &targets {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(judges(&dir, name, seed, &topology), Ok(true), "{name} as it is");
        let mut judged = 0;
        for number in 1..150 {
            let mut bytes = seed.clone();
            damage(&mut bytes, &targets[0].1, &mut Random(number));
            match judges(&dir, name, &bytes, &topology) {
                Ok(some) => judged += u64::from(some),
                Err(what) => {
                    let kept = kept(number, &bytes);
                    failures.push(format!("{name}, damage {number}: {what}; {kept}"));
                }
            }
        }
        assert!(judged > 50, "{name}: of 149 damaged ones {judged} were judged");
    }
    let _ = std::panic::take_hook();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Writes what failed where it can be looked at.
fn kept(number: u64, bytes: &[u8]) -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let path = dir.join(format!("{number}.bin"));
    let written = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&path, bytes));
    written.map_or_else(|e| e.to_string(), |()| path.display().to_string())
}

/// A table of events that goes on to the end of the file, with the same two megabytes as the ids
/// of each: read once for each of them, that would take minutes.
#[test]
fn a_table_of_events_that_share_their_ids() {
    const EVENT: usize = 128 + 16;
    let mut file = b"PERFILE2".to_vec();
    let ids = (104 + EVENT * 16_384) as u64;
    for word in [104, EVENT as u64, 104, 1 << 62, ids, 0, 0, 0, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    for _ in 0..16_384 {
        file.extend([0; EVENT - 16]);
        file.extend(ids.to_le_bytes());
        file.extend((2u64 << 20).to_le_bytes());
    }
    file.resize(file.len() + (2 << 20), 7);
    assert!(events(&file).is_ok(), "{:?}", events(&file));
}

#[test]
fn files_that_once_failed() {
    let mut found = 0;
    for entry in std::fs::read_dir(data().join("crashers")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "bin") {
            let read = events(&std::fs::read(&path).unwrap());
            assert!(read.is_ok(), "{}: {read:?}", path.display());
            found += 1;
        }
    }
    assert!(found > 0);
}
