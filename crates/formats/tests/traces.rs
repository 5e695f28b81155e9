//! Files that perf and trace-cmd wrote, beside what they themselves count in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vruntime_base::{Cpu, CpuMask, EventKind};
use vruntime_formats::lost::Lost;
use vruntime_formats::read;
use vruntime_formats::recording::Meta;
use vruntime_formats::topology_text::DumpedTopology;
use vruntime_formats::write::{Origin, TraceFormat, write_trace};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces").join(name)
}

/// Switches, wakings, wakeups, new tasks, migrations of a trace.
#[track_caller]
fn check(path: &Path, format: &str, release: &str, counts: [usize; 5]) {
    let r = read::open(path).unwrap();
    assert_eq!(
        (r.format, r.diagnostics.len(), r.lost.total()),
        (format, 0, 0),
        "{:?}",
        r.diagnostics
    );
    assert_eq!(r.release.as_deref(), Some(release));
    let mut found = BTreeMap::new();
    for e in r.timeline.iter() {
        *found.entry(e.kind as u8).or_insert(0) += 1;
    }
    let kinds = [
        EventKind::Switch,
        EventKind::Waking,
        EventKind::Wakeup,
        EventKind::WakeupNew,
        EventKind::Migrate,
    ];
    assert_eq!(kinds.map(|k| found.get(&(k as u8)).copied().unwrap_or(0)), counts);
    assert!(r.timeline.tasks().iter().all(|t| !t.comm.is_empty() || t.pid == 0));
}

#[test]
fn compressed_perf_data() {
    check(&data("perf-z.data.xz"), "perf.data", "6.18.44-fc-v445", [123, 64, 64, 1, 0]);
}

#[test]
fn perf_data_through_a_pipe() {
    check(&data("perf-pipe.data.xz"), "perf.data (pipe)", "6.18.44-fc-v445", [122, 63, 63, 1, 1]);
    check(&data("perf-z-pipe.data.xz"), "perf.data (pipe)", "6.18.44-fc-v445", [123, 62, 62, 1, 1]);
}

#[test]
fn compressed_trace_dat() {
    check(&data("trace-v7-zstd.dat.xz"), "trace.dat v7", "v6.12", [45, 19, 19, 5, 0]);
}

/// What `perf record --threads` left; the counts are those of perf script.
#[test]
fn a_directory_of_perf_is_read_with_all_its_parts() {
    let dir = std::env::temp_dir().join(format!("vruntime-threads-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for name in ["data", "data.0", "data.1"] {
        let packed = std::fs::read(data("perf-threads").join(format!("{name}.xz"))).unwrap();
        std::fs::write(dir.join(name), vruntime_formats::xz::decompress(&packed).0).unwrap();
    }
    check(&dir, "perf.data", "6.18.44-fc-v445", [22, 9, 9, 0, 3]);
    let whole = read::open(&dir).unwrap();
    let times: Vec<u64> = whole.timeline.iter().map(|e| e.time.0).collect();
    assert!(times.is_sorted());
    assert!([0, 1].iter().all(|cpu| whole.timeline.iter().any(|e| e.cpu.0 == *cpu)));

    // The first file alone says that it is not all.
    let says = |path: &Path, what: &str| {
        let found = read::open(path).unwrap().diagnostics;
        assert!(found.iter().any(|d| d.text.contains(what)), "{found:?}");
    };
    says(&dir.join("data"), "read their directory");
    // Damage in a part is said of the part.
    std::fs::write(dir.join("data.1"), b"nothing of the kind").unwrap();
    says(&dir, "data.1: ");
    // One that is not there is told where a later one shows it.
    std::fs::remove_file(dir.join("data.0")).unwrap();
    says(&dir, "data.1 without data.0");
    std::fs::remove_dir_all(dir).unwrap();
}

/// Times from event to event (`perf script --deltatime`), or lines in any order, are no times of a
/// trace: what is made of them is told.
#[test]
fn lines_out_of_order_are_told() {
    let said = |times: [&str; 4]| {
        let waking = "sched_waking: comm=w pid=2000 prio=120 target_cpu=001";
        let line = |time| format!(" busy-1000  [000] d..2.  {time}: {waking}\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.txt");
        std::fs::write(&path, times.map(line).concat()).unwrap();
        let read = read::open(&path).unwrap();
        assert!(read.timeline.len() == 4 && read.timeline.iter().is_sorted_by_key(|e| e.time));
        read.diagnostics.iter().map(|d| d.text.clone()).collect::<Vec<_>>()
    };
    assert!(said(["1.000010", "1.000010", "1.000020", "1.000030"]).is_empty());
    let told = said(["0.000000", "0.000040", "0.000001", "0.000003"]).concat();
    assert!(told.contains("earlier than a line before it; sorted by time (and 1 more"), "{told}");
}

/// A thread that no switch shows runs all the same: whoever it wakes was woken by it, also in what
/// is written of it. With `trace-cmd report --ts-diff` the time since the last event stands first.
#[test]
fn who_wakes_is_who_ran_though_no_switch_says_so() {
    let waking = "sched_waking: comm=w pid=2000 prio=120 target_cpu=001";
    let switch = "sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> \
                  next_comm=w next_pid=2000 next_prio=120";
    let text = format!(
        "            busy-1000  [000] d..2.     1.000010: (+0)   {waking}\n          \
         <idle>-0     [001] d..2.     1.000020: (+10)  {switch}\n            \
         busy-1000  [000] d..2.     1.000090: (+70)  {waking}\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let read = read::open(&path).unwrap();
    let kinds: Vec<EventKind> = read.timeline.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Waking, EventKind::Switch, EventKind::Waking]);
    let origin = Origin {
        release: Some("6.12".into()),
        hostname: Some("here".into()),
        arch: Some("x86_64".into()),
        nr_cpus: 2,
        topology: None,
        command: Vec::new(),
        lost: Lost::default(),
    };
    let path = dir.path().join("out.txt");
    let mut out = std::fs::File::create(&path).unwrap();
    write_trace(TraceFormat::FtraceText, &read.timeline, &origin, &mut out).unwrap();
    let written = std::fs::read_to_string(&path).unwrap();
    let wakers: Vec<&str> = written
        .lines()
        .filter(|l| l.contains("sched_waking:"))
        .map(|l| l.split_whitespace().next().unwrap())
        .collect();
    assert!(wakers.len() == 2 && wakers.iter().all(|w| w.ends_with("-1000")), "{written}");
}

/// What perf tells of a guest's CPUs is what sysfs shows there, but for the distance of its nodes.
#[test]
fn perf_data_describes_the_machine() {
    let told = read::open(&data("../machines/perf.data.xz")).unwrap().topology.unwrap();
    let recording = data("../guest-6.1-16cpu-xfs-dbench6");
    let shown = Meta::in_dir(&recording, &mut vec![]).unwrap().topology.unwrap();
    let same = told.masks;
    assert_eq!((&same.smt, &same.l2, &same.llc), (&shown.smt, &shown.l2, &shown.llc));
    assert_eq!((&same.package, &same.nodes), (&shown.package, &shown.nodes));
    assert_eq!((same.nodes.len(), told.distances), (2, false));
    assert_eq!(told.numbers, Vec::from_iter(0..16));
}

/// Two cores with a last-level cache; perf writes no caches into a pipe.
#[test]
fn a_machine_whose_caches_are_not_told_is_not_told() {
    let told = read::open(&data("perf-z.data.xz")).unwrap().topology.unwrap();
    assert_eq!(told.masks.smt, [CpuMask::one(Cpu(0)), CpuMask::one(Cpu(1))]);
    assert_eq!(told.masks.llc, [CpuMask::first_n(2); 2]);
    assert!(told.distances);
    assert!(read::open(&data("perf-pipe.data.xz")).unwrap().topology.is_none());
}

/// What a perf.data says of its machine goes into the file that is made of it, with the kernel's
/// numbers where CPUs are offline.
#[test]
fn a_machine_goes_from_perf_data_to_perf_data() {
    let recorded = read::open(&data("perf-z.data.xz")).unwrap();
    let told = read::open(&data("../machines/perf.data.xz")).unwrap().topology.unwrap();
    let numbers = (0..16).map(|n| if n < 4 { n } else { n + 2 }).collect();
    let told = DumpedTopology { numbers, ..told };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.data");
    let origin = Origin {
        release: None,
        hostname: None,
        arch: Some("x86_64".into()),
        nr_cpus: 18,
        topology: Some(told.clone()),
        command: Vec::new(),
        lost: Lost::default(),
    };
    let mut out = std::fs::File::create(&path).unwrap();
    write_trace(TraceFormat::PerfData, &recorded.timeline, &origin, &mut out).unwrap();
    let back = read::open(&path).unwrap().topology.unwrap();
    assert_eq!(back.numbers, told.numbers);
    let all = |t: &DumpedTopology| {
        let m = t.masks.clone();
        (m.smt, m.l2, m.llc, m.package, m.nodes, t.distances)
    };
    assert_eq!(all(&back), all(&told));
}
