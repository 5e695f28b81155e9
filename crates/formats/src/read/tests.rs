use super::*;
use crate::write::{Origin, TraceFormat, write_trace};
use vruntime_base::{Event, EventKind};

fn parse(bytes: &[u8]) -> Result<(Recorded, Vec<String>), String> {
    let (recorded, notes) = super::parse(&mut Input::memory(bytes), Glimpses::Left)?;
    Ok((recorded, notes.texts().collect()))
}

const TEXT: &[u8] = b"# tracer: nop\n\
    a b-c-7   (      7) [001] d..2.  10.000001: sched_waking: comm=x: y \
pid=9 prio=120 target_cpu=000\n\
    a b-c-7   (      7) [001] d..2.  10.000002: sched_wakeup: comm=x: y \
pid=9 prio=120 target_cpu=000\n\
    <idle>-0  (-------) [000] d..2.  10.000009: sched_switch: prev_comm=swapper/0 prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=x: y next_pid=9 next_prio=120\n";

#[test]
fn a_comm_may_hold_anything() {
    let (r, notes) = parse(TEXT).unwrap();
    assert_eq!((r.timeline.len(), notes.len()), (3, 0));
    let e = r.timeline.get(2);
    assert_eq!((e.time.0, e.b), (10_000_009_000, 1));
    assert_eq!(r.timeline.tasks()[e.a as usize].comm, "x: y");
    assert_eq!(r.timeline.tasks()[r.timeline.get(0).b as usize].pid, 7);
}

/// `trace-cmd report` with the plugin of libtraceevent shows the same events otherwise.
#[test]
fn the_form_of_the_plugin_is_the_same_trace() {
    let report = b"cpus=2\n\
    a b-c-7     [001]    10.000001: sched_waking:         comm=x: y pid=9 prio=120 target_cpu=000\n\
    a b-c-7     [001]    10.000002: sched_wakeup:         x: y:9 [120] CPU:000\n\
    <idle>-0    [000]    10.000009: sched_switch:         swapper/0:0 [120] R ==> x: y:9 [120]\n";
    let (r, notes) = parse(report).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(shown(&r.timeline), shown(&parse(TEXT).unwrap().0.timeline));
    let names: Vec<&str> = r.timeline.tasks().iter().map(|t| t.comm.as_str()).collect();
    assert!(names.contains(&"x: y") && names.contains(&"swapper/0"), "{names:?}");
    // An arrow in a name, a wakeup of an older kernel, and every kind of state.
    let odd = b"a-7 [001] 1.000001: sched_switch: a ==> b: c:7 [98] D|K ==> d [1]:8 [120]\n\
    d-8 [001] 1.000002: sched_wakeup_new: a ==> b: c:7 [98] success=1 CPU:001\n\
    d-8 [001] 1.000003: sched_switch: d [1]:8 [120] + ==> a ==> b: c:7 [98]\n\
    a-7 [001] 1.000004: sched_switch: a ==> b: c:7 [98] Z ==> swapper/1:0 [120]\n";
    let (r, notes) = parse(odd).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    let states: Vec<u32> = r.timeline.iter().map(|e| e.b).collect();
    assert_eq!([states[0], states[2], states[3]], [0, 1, 2]);
    assert_eq!(r.timeline.tasks().iter().find(|t| t.pid == 7).unwrap().comm, "a ==> b: c");
    assert_eq!(r.timeline.tasks().iter().find(|t| t.pid == 8).unwrap().comm, "d [1]");
}

#[test]
fn no_cut_or_changed_byte_makes_a_reader_panic() {
    for sample in samples() {
        for cut in (0..sample.len()).step_by(1 + sample.len() / 2_000) {
            let _ = parse(&sample[..cut]);
        }
        let mut seed = 1u64;
        for _ in 0..2_000 {
            let mut changed = sample.clone();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % changed.len();
                changed[at] = (seed >> 24) as u8;
            }
            let _ = parse(&changed);
        }
    }
}

fn samples() -> [Vec<u8>; 4] {
    let [perf, dat, perfetto] =
        [TraceFormat::PerfData, TraceFormat::TraceDat, TraceFormat::Perfetto].map(sample);
    [TEXT.to_vec(), perf, dat, perfetto]
}

fn perf_sample() -> Vec<u8> {
    sample(TraceFormat::PerfData)
}

/// The text in another format.
fn sample(format: TraceFormat) -> Vec<u8> {
    sample_with(format, Lost::default())
}

fn origin(lost: Lost) -> Origin {
    Origin {
        release: Some("6.1.0-x".into()),
        hostname: Some("h".into()),
        arch: Some("x86_64".into()),
        nr_cpus: 2,
        topology: None,
        command: vec!["c".into()],
        lost,
    }
}

fn sample_with(format: TraceFormat, lost: Lost) -> Vec<u8> {
    let mut out = std::io::Cursor::new(vec![]);
    let timeline = parse(TEXT).unwrap().0.timeline;
    write_trace(format, &timeline, &origin(lost), &mut out).unwrap();
    out.into_inner()
}

fn shown(t: &Timeline) -> Vec<(u64, EventKind, u16, String, u32)> {
    let name = |id: u32| t.tasks()[id as usize].comm.clone();
    let state = |e: &Event| if e.kind == EventKind::Switch { e.b } else { 0 };
    let row = |e: Event| (e.time.0, e.kind, e.cpu.0, name(e.task.0), state(&e));
    t.iter().map(row).collect()
}

/// So many lost events of CPU 0 and of CPU 1.
fn lost(of_0: u64, of_1: u64) -> Lost {
    let mut lost = Lost::default();
    lost.add(Some(0), of_0);
    lost.add(Some(1), of_1);
    lost
}

#[test]
fn a_loss_survives_every_format() {
    for format in [
        TraceFormat::PerfData,
        TraceFormat::TraceDat,
        TraceFormat::Perfetto,
        TraceFormat::FtraceText,
    ] {
        let (r, notes) = parse(&sample_with(format, lost(3, 1_234))).unwrap();
        assert_eq!((r.lost, r.timeline.len()), (lost(3, 1_234), 3), "{format:?}");
        assert_eq!(notes.len(), 2, "{notes:?}");
    }
}

#[test]
fn every_text_of_a_loss_is_known() {
    let lines = "CPU:0 [LOST 12 EVENTS]\nCPU:1 [78 EVENTS DROPPED]\nCPU:1 [EVENTS DROPPED]\n\
                 CPU:1 [LOST EVENTS]\n";
    let (r, notes) = parse(&[lines.as_bytes(), TEXT].concat()).unwrap();
    assert_eq!(r.lost, lost(12, 78));
    assert_eq!(
        notes,
        [
            "byte 0: the recorder lost 12 events of CPU 0",
            "byte 23: the recorder lost 78 events of CPU 1",
            "byte 49: the recorder lost some events of CPU 1 (and 1 more of the same)"
        ]
    );
}

/// A buffer that was full holds its last events; the header counts all. Where lines tell of the
/// same losses, or perf does so at its end, the greater counts.
#[test]
fn what_a_header_says_is_overwritten_is_lost() {
    let header = "# entries-in-buffer/entries-written: 3/45   #P:2\n";
    let line = "CPU:0 [LOST 12 EVENTS]\n";
    let perf =
        "  a 5 [000] 1.2: PERF_RECORD_LOST lost 30\n  a 5 [000] 1.2: PERF_RECORD_LOST lost 20\n";
    let end = "  a 5 [000] 1.3: PERF_RECORD_LOST_SAMPLES lost 50\n";
    for (lines, expected) in [
        (header.to_string(), 42),
        (header.replace("45", "3"), 0),
        (header.to_string() + line, 42),
        (header.replace("45", "5") + line, 12),
        (perf.to_string() + end, 50),
        (perf.to_string(), 50),
        (end.to_string(), 50),
    ] {
        let (r, notes) = parse(&[lines.as_bytes(), TEXT].concat()).unwrap();
        assert_eq!(r.lost, lost(expected, 0), "{lines}");
        assert_eq!(notes.is_empty(), expected == 0 || lines == end, "{notes:?}");
    }
}

/// The same switches in the words of several tools; `perf script -F` may leave the pid out, and a
/// comm may look like anything.
#[test]
fn a_line_of_text_is_known_in_any_words() {
    let fields = "prev_comm=x ==> y prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=kworker/1 \
                  next_pid=8 next_prio=120";
    for head in [
        "  x ==> y-7     [001] d..2.   1.000001: sched_switch:",
        "  t [1] u-7     [001] d..2.   1.000001: sched_switch:",
        "kworker/1     7 [001]     1.000001: sched:sched_switch:",
        "kworker/1   6/7 [001]     1.000001: sched:sched_switch:",
        "kworker/1 [001]     1.000001: sched:sched_switch:",
        "x y [001]     1.000001: sched:sched_switch:",
    ] {
        let line = format!("{head} {fields}\n");
        let (r, notes) = parse(line.as_bytes()).unwrap();
        assert_eq!(notes, [""; 0], "{head}");
        let [(time, kind, cpu, name, state)] = &shown(&r.timeline)[..] else { panic!("{head}") };
        assert_eq!(
            (*time, *kind, *cpu, &name[..], *state),
            (1_000_001_000, EventKind::Switch, 1, "x ==> y", 0)
        );
    }
    // A frame of a call chain is no event; a torn line was meant to be one.
    let frame = "\tffffffff8 sched_setaffinity+0x154 ([kernel.kallsyms])\n";
    let torn = "x 7 [00     1.0: sched:sched_switch: prev_comm=x\n";
    let (_, notes) = parse(&[frame.as_bytes(), torn.as_bytes(), TEXT].concat()).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("byte 55: not a whole line"), "{notes:?}");
}

/// The statistics of a CPU and its pages report the same loss: the greater counts.
#[test]
fn what_pages_say_is_missed_counts_once() {
    for (said, expected) in [(0, 78), (50, 78), (100, 100)] {
        let mut sample = sample_with(TraceFormat::TraceDat, lost(0, said));
        let page = sample.len() - 4096;
        let used = usize::from(u16::from_le_bytes([sample[page + 8], sample[page + 9]]));
        // RB_MISSED_EVENTS and RB_MISSED_STORED; how many stands behind the events.
        sample[page + 11] |= 0xc0;
        sample[page + 16 + used] = 78;
        let (r, notes) = parse(&sample).unwrap();
        assert_eq!((r.lost, r.timeline.len()), (lost(0, expected), 3));
        assert_eq!(notes.len(), 1 + usize::from(said > 0), "{notes:?}");
    }
}

#[test]
fn what_was_written_is_read_again() {
    for format in [TraceFormat::PerfData, TraceFormat::TraceDat, TraceFormat::Perfetto] {
        let (r, notes) = parse(&sample(format)).unwrap();
        assert_eq!(notes, Vec::<String>::new(), "{format:?}");
        assert_eq!((r.release.as_deref(), r.arch.as_deref()), (Some("6.1.0-x"), Some("x86_64")));
        assert_eq!(r.nr_cpus, Some(2), "{format:?}");
        assert_eq!(shown(&r.timeline), shown(&parse(TEXT).unwrap().0.timeline), "{format:?}");
    }
}

#[test]
fn a_cut_file_gives_its_events_and_says_where_it_ends() {
    let sample = perf_sample();
    assert!(parse(&sample[..50]).is_err());
    let (r, notes) = parse(TEXT.split_at(TEXT.len() - 60).0).unwrap();
    assert_eq!((r.timeline.len(), notes.len()), (2, 1));
    let at = TEXT.windows(6).position(|w| w == b"<idle>").unwrap();
    assert!(notes[0].starts_with(&format!("byte {at}:")), "{notes:?}");
}

/// The sample without the sections behind its data.
fn without_sections(sample: &[u8]) -> &[u8] {
    let word = |at: usize| u64::from_le_bytes(sample[at..at + 8].try_into().unwrap()) as usize;
    &sample[..word(40) + word(48)]
}

#[test]
fn a_file_that_ends_before_its_sections_is_one_problem() {
    let sample = perf_sample();
    let cut = without_sections(&sample);
    let (r, notes) = parse(cut).unwrap();
    assert_eq!((r.timeline.len(), notes.len()), (0, 3), "{notes:?}");
    let end =
        format!("byte {0}: the file ends; its data should end at byte {0}, and 7 ", cut.len());
    assert!(notes[0].starts_with(&end), "{notes:?}");
    assert!(
        notes[1].ends_with("an event that the file does not describe (and 2 more of the same)")
    );
    assert_eq!(notes[2], "byte 0: no event of the scheduler in it");
}

#[test]
fn records_behind_damage_are_found() {
    let mut sample = perf_sample();
    let whole = parse(&sample).unwrap().0.timeline.len();
    let word = |at: usize| u64::from_le_bytes(sample[at..at + 8].try_into().unwrap()) as usize;
    let data = word(40);
    let second = data + usize::from(sample[data + 6]);
    sample[second..second + 8].fill(0);
    let (r, notes) = parse(&sample).unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with(&format!("byte {second}: ")), "{notes:?}");
    // The record that was damaged is one that names a task.
    assert_eq!(r.timeline.len(), whole);
}

#[test]
fn what_comes_through_a_pipe_is_the_same() {
    for sample in samples() {
        let (piped, notes) = super::parse(&mut Input::pipe(&sample), Glimpses::Left).unwrap();
        let (file, _) = parse(&sample).unwrap();
        assert_eq!(notes.texts().count(), 0);
        assert_eq!(format!("{:?}", piped.timeline), format!("{:?}", file.timeline));
    }
}

#[test]
fn a_line_without_end_is_left_out() {
    let mut sample = TEXT.to_vec();
    sample.extend(vec![b'x'; 3 << 20]);
    let long = TEXT.len();
    sample.extend_from_slice(b"\n");
    sample.extend_from_slice(TEXT);
    let (r, notes) = parse(&sample).unwrap();
    assert_eq!(r.timeline.len(), 6);
    assert_eq!(notes[0], format!("byte {long}: a line of {} bytes; left out", (3 << 20) + 1));
    assert!(notes.len() == 2 && notes[1].contains("earlier than a line before it"), "{notes:?}");
    assert!(super::parse(&mut Input::pipe(&vec![b'\n'; 17 << 20]), Glimpses::Left).is_err());
}

#[test]
fn a_text_with_fewer_events_than_its_header_tells_is_noted() {
    for (held, note) in
        [(3, None), (5, Some("3 lines for the 5 events that the header tells: cut short?"))]
    {
        let mut sample = format!("# entries-in-buffer/entries-written: {held}/{held}   #P:2\n");
        sample.push_str(std::str::from_utf8(TEXT).unwrap());
        let (_, notes) = parse(sample.as_bytes()).unwrap();
        assert_eq!(notes.len(), usize::from(note.is_some()), "{notes:?}");
        assert!(note.is_none_or(|note| notes[0].ends_with(note)), "{notes:?}");
    }
}

/// A field with bytes in it.
fn field(number: u64, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    let mut out = vec![];
    let mut key = number << 3 | 2;
    while key >= 0x80 {
        out.push(key as u8 | 0x80);
        key >>= 7;
    }
    out.extend([key as u8, content.len() as u8]);
    out.extend_from_slice(content);
    out
}

/// Switches and wakings of a CPU in columns: times are differences, names places in a table. Who
/// leaves is who came before.
#[test]
fn perfetto_columns() {
    let columns = [
        field(5, b"swapper/3"),
        field(5, b"worker"),
        field(1, &[100, 20, 30]), // switches at 100, 120, 150
        field(2, &[0, 0, 2]),
        field(3, &[0, 7, 0]),
        field(4, &[120, 110, 120]),
        field(6, &[0, 1, 0]),
        field(7, &[110, 30]), // wakings at 110 and 140
        field(8, &[7, 7]),
        field(9, &[3, 3]),
        field(10, &[110, 110]),
        field(11, &[1, 1]),
    ];
    let bundle = [vec![8, 3], field(4, &columns.concat())].concat();
    let trace = field(1, &field(1, &bundle));
    let (r, notes) = parse(&trace).unwrap();
    assert_eq!(notes, ["byte 0: the first switch of CPU 3 does not say who left"]);
    let pid = |id: u32| r.timeline.tasks()[id as usize].pid;
    let rows: Vec<_> = r
        .timeline
        .iter()
        .map(|e| (e.time.0, e.kind, e.cpu.0, pid(e.task.0), pid_or(e, pid)))
        .collect();
    let (switch, waking) = (EventKind::Switch, EventKind::Waking);
    let expected = [
        (110, waking, 3, 7, 0),
        (120, switch, 3, 0, 7),
        (140, waking, 3, 7, 7),
        (150, switch, 3, 7, 0),
    ];
    assert_eq!(rows, expected);
    // D is sleep; the idle task stays runnable.
    assert_eq!((r.timeline.get(1).b, r.timeline.get(3).b), (1, 0));
    assert_eq!(r.timeline.tasks().iter().find(|t| t.pid == 7).unwrap().comm, "worker");

    // Through zlib, and with rubbish between two packets.
    let mut packed = flate2::write::ZlibEncoder::new(vec![], flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &trace).unwrap();
    let packed = field(1, &field(50, &packed.finish().unwrap()));
    let (r, notes) = parse(&[&packed[..], &[0xff, 0xff, 0x0a], &packed].concat()).unwrap();
    assert_eq!(r.timeline.len(), 4 + 5);
    assert_eq!(notes[1], format!("byte {}: 3 bytes that are no packet", packed.len()));
}

/// Who comes at a switch, or who wakes.
fn pid_or(e: Event, pid: impl Fn(u32) -> u32) -> u32 {
    pid(if e.kind == EventKind::Switch { e.a } else { e.b })
}

#[test]
fn a_foreign_byte_order_is_the_same_trace() {
    let sample = perf_sample();
    let foreign = super::foreign::foreign(&sample);
    assert!(foreign.starts_with(b"2ELIFREP"));
    let (ours, _) = parse(&sample).unwrap();
    let (turned, notes) = parse(&foreign).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!((turned.nr_cpus, turned.release.as_deref()), (Some(2), Some("6.1.0-x")));
    assert_eq!(format!("{:?}", turned.timeline), format!("{:?}", ours.timeline));
}

/// The ring buffer has 59 bits for the time between two events of a page.
#[test]
fn events_18_years_apart_keep_their_times() {
    let switches = [0, (1 << 59) - 1, 1 << 60].map(|time: u64| {
        let (s, ns) = (1 + time / 1_000_000_000, time % 1_000_000_000);
        format!(
            "<idle>-0 [000] {s}.{ns:09}: sched_switch: prev_comm=swapper/0 prev_pid=0 \
             prev_prio=120 prev_state=R ==> next_comm=x next_pid=9 next_prio=120\n"
        )
    });
    let timeline = parse(switches.concat().as_bytes()).unwrap().0.timeline;
    let mut out = std::io::Cursor::new(vec![]);
    write_trace(TraceFormat::TraceDat, &timeline, &origin(Lost::default()), &mut out).unwrap();
    let (r, notes) = parse(&out.into_inner()).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(r.timeline.len(), 3);
    assert_eq!(shown(&r.timeline), shown(&timeline));
}
