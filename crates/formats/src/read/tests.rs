use super::*;

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
    assert_eq!((r.timeline.len(), notes.0.len()), (3, 0));
    let e = r.timeline.get(2);
    assert_eq!((e.time.0, e.b), (10_000_009_000, 1));
    assert_eq!(r.timeline.tasks()[e.a as usize].comm, "x: y");
    assert_eq!(r.timeline.tasks()[r.timeline.get(0).b as usize].pid, 7);
}

#[test]
fn no_cut_or_changed_byte_makes_a_reader_panic() {
    let data = perf_sample();
    for sample in [TEXT.to_vec(), data] {
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
    use crate::write::{Origin, TraceFormat, write_trace};
    let origin = Origin {
        release: "6.1.0-x".into(),
        hostname: "h".into(),
        arch: "x86_64".into(),
        nr_cpus: 2,
        command: vec!["c".into()],
    };
    let mut out = std::io::Cursor::new(vec![]);
    let timeline = parse(TEXT).unwrap().0.timeline;
    write_trace(TraceFormat::PerfData, &timeline, &origin, &mut out).unwrap();
    out.into_inner()
}

#[test]
fn what_was_written_as_perf_data_is_read_again() {
    let (r, notes) = parse(&perf_sample()).unwrap();
    assert_eq!(notes.0, Vec::<String>::new());
    assert_eq!(r.release.as_deref(), Some("6.1.0-x"));
    let e: Vec<_> = r.timeline.iter().map(|e| (e.time.0, e.kind, e.cpu.0)).collect();
    let text = parse(TEXT).unwrap().0.timeline;
    let expected: Vec<_> = text.iter().map(|e| (e.time.0, e.kind, e.cpu.0)).collect();
    assert_eq!(e, expected);
}

#[test]
fn a_cut_file_gives_its_events_and_says_where_it_ends() {
    let sample = perf_sample();
    assert!(parse(&sample[..50]).is_err());
    let (r, notes) = parse(TEXT.split_at(TEXT.len() - 60).0).unwrap();
    assert_eq!((r.timeline.len(), notes.0.len()), (2, 1));
    let at = TEXT.windows(6).position(|w| w == b"<idle>").unwrap();
    assert!(notes.0[0].starts_with(&format!("byte {at}:")), "{:?}", notes.0);
}
