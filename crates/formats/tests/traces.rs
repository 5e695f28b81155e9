//! Files that perf and trace-cmd wrote, beside what they themselves count in them.

use std::collections::BTreeMap;
use std::path::Path;
use vruntime_base::EventKind;
use vruntime_formats::read;

/// Switches, wakings, wakeups, new tasks, migrations of a file in `tests/data/traces`.
#[track_caller]
fn check(name: &str, format: &str, release: &str, counts: [usize; 5]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/traces").join(name);
    let r = read::open(&path).unwrap();
    assert_eq!((r.format, r.diagnostics.len(), r.lost), (format, 0, 0), "{:?}", r.diagnostics);
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
    check("perf-z.data.xz", "perf.data", "6.18.44-fc-v445", [123, 64, 64, 1, 0]);
}

#[test]
fn perf_data_through_a_pipe() {
    check("perf-pipe.data.xz", "perf.data (pipe)", "6.18.44-fc-v445", [122, 63, 63, 1, 1]);
    check("perf-z-pipe.data.xz", "perf.data (pipe)", "6.18.44-fc-v445", [123, 62, 62, 1, 1]);
}

#[test]
fn compressed_trace_dat() {
    check("trace-v7-zstd.dat.xz", "trace.dat v7", "v6.12", [45, 19, 19, 5, 0]);
}
