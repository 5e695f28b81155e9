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

#[test]
fn no_cut_or_changed_byte_makes_a_reader_panic() {
    let data = perf_sample();
    for sample in [TEXT.to_vec(), data, sample(TraceFormat::TraceDat)] {
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

fn perf_sample() -> Vec<u8> {
    sample(TraceFormat::PerfData)
}

/// The text in another format.
fn sample(format: TraceFormat) -> Vec<u8> {
    let origin = Origin {
        release: "6.1.0-x".into(),
        hostname: "h".into(),
        arch: "x86_64".into(),
        nr_cpus: 2,
        command: vec!["c".into()],
    };
    let mut out = std::io::Cursor::new(vec![]);
    let timeline = parse(TEXT).unwrap().0.timeline;
    write_trace(format, &timeline, &origin, &mut out).unwrap();
    out.into_inner()
}

#[test]
fn what_was_written_is_read_again() {
    let shown = |t: &Timeline| {
        let name = |id: u32| t.tasks()[id as usize].comm.clone();
        let state = |e: &Event| if e.kind == EventKind::Switch { e.b } else { 0 };
        let row = |e: Event| (e.time.0, e.kind, e.cpu.0, name(e.task.0), state(&e));
        t.iter().map(row).collect::<Vec<_>>()
    };
    for (format, release) in
        [(TraceFormat::PerfData, Some("6.1.0-x")), (TraceFormat::TraceDat, None)]
    {
        let (r, notes) = parse(&sample(format)).unwrap();
        assert_eq!(notes, Vec::<String>::new(), "{format:?}");
        assert_eq!(r.release.as_deref(), release);
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
    for sample in [TEXT.to_vec(), perf_sample(), sample(TraceFormat::TraceDat)] {
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
    assert_eq!(notes, [format!("byte {long}: a line of {} bytes; left out", (3 << 20) + 1)]);
    assert!(super::parse(&mut Input::pipe(&vec![b'\n'; 17 << 20]), Glimpses::Left).is_err());
}
