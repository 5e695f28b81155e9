//! Does a comparison say what is there, and nothing when nothing is?

use super::*;
use crate::sample::record;
use vruntime_base::{Histogram, Noise, Ns, Stream};

fn kernel(name: &str, seconds: &[f64]) -> (String, Vec<RunRecord>) {
    let runs = seconds.iter().enumerate().map(|(i, &s)| record(name, i as u64 + 1, s)).collect();
    (name.to_string(), runs)
}

#[test]
fn a_clear_difference() {
    let c =
        compare(&[kernel("a", &[4.0, 4.2, 4.1]), kernel("b", &[3.0, 3.2, 3.11])], Sig::Interval);
    let time = c.row("time").unwrap();
    assert_eq!(time.base, time.value[0]);
    assert_eq!(format!("{:.2}", time.delta_pct[1].unwrap()), "-24.31");
    assert_eq!((time.delta_pct[0], time.ci_low_pct[0]), (Some(0.0), None));
    assert_eq!(time.significant, [false, true]);
    assert!(time.ci_low_pct[1] < time.delta_pct[1] && time.delta_pct[1] < time.ci_high_pct[1]);
    let switches = c.row("context_switches").unwrap();
    assert_eq!((switches.delta_pct[1], switches.significant[1]), (Some(0.0), false));
    assert!(c.correlation["time"][1].unwrap() > 0.99);
    assert!(c.complete && !c.extrapolated && c.whole());
    assert_eq!((c.messages, c.window_ns), (vec![6000, 6000], 3_601_666_666));
}

#[test]
fn unknown_times_are_left_out_in_pairs() {
    let mut b = kernel("b", &[3.0, 3.2, 3.11]);
    b.1[1].time = None;
    b.1[1].complete = false;
    let c = compare(&[kernel("a", &[4.0, 4.2, 4.1]), b], Sig::Interval);
    let time = c.row("time").unwrap();
    assert_eq!(time.pairs, [2, 2]);
    assert!(!c.complete && !c.extrapolated && !c.whole());
    assert_eq!(c.row("migrations").unwrap().unit, "1/s");

    let mut none = kernel("a", &[4.0]);
    none.1[0].time = None;
    let c = compare(&[none, kernel("b", &[3.0])], Sig::Interval);
    let time = &c.rows[0];
    assert_eq!((time.metric, time.base, time.value[1]), ("time", None, Some(3.0)));
    assert_eq!(time.delta_pct, [None, None]);
}

/// One whose seeds are known in part only: its values, spread and change are of the same seeds, so
/// that a slow seed that only the base knows does not make both of them "faster".
#[test]
fn values_and_changes_are_of_the_same_seeds() {
    let mut b = kernel("b", &[4.0, 40.0, 4.4]);
    b.1[1].time = None;
    let c =
        compare(&[kernel("a", &[4.0, 30.0, 4.0]), b, kernel("c", &[2.0, 9.0, 2.0])], Sig::Interval);
    let time = c.row("time").unwrap();
    let rounded: Vec<String> = time.value.iter().map(|v| format!("{:.1}", v.unwrap())).collect();
    assert_eq!(rounded, ["4.0", "4.2", "2.0"]);
    for k in 1..3 {
        let by_values = 100.0 * (time.value[k].unwrap() / time.base.unwrap() - 1.0);
        assert!((by_values - time.delta_pct[k].unwrap()).abs() < 1e-9, "{time:?}");
    }
    assert_eq!((time.sd[0], time.pairs.clone()), (Some(0.0), vec![2, 2, 2]));
}

#[test]
fn nothing_to_compare() {
    assert!(compare(&[], Sig::Interval).rows.is_empty());
    assert!(compare(&[("a".into(), vec![])], Sig::Interval).rows.is_empty());
}

#[test]
fn field_names_are_a_contract() {
    let c = compare(&[kernel("a", &[4.0, 4.2]), kernel("b", &[3.0, 3.3])], Sig::Interval);
    let json = serde_json::to_value(&c).unwrap();
    let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    for key in [
        "schema",
        "machine",
        "workload",
        "kernels",
        "seeds",
        "warmup_ns",
        "window_ns",
        "extrapolated",
        "complete",
        "rows",
        "causes",
        "cpu_time",
        "correlation",
    ] {
        assert!(keys.contains(&key), "{key}");
    }
    assert_eq!(json["schema"], "vruntime/compare/1");
    let row = &json["rows"][0];
    for key in [
        "metric",
        "unit",
        "better",
        "base",
        "value",
        "delta_pct",
        "ci_low_pct",
        "ci_high_pct",
        "significant",
    ] {
        assert!(row.get(key).is_some(), "{key}");
    }
    assert_eq!((&row["metric"], &row["better"]), (&"time".into(), &"lower".into()));
    assert!(row["ci_low_pct"][0].is_null());
    assert_eq!(json["causes"]["switches"]["blocks"], serde_json::json!([6000, 6000]));
    assert!(json["causes"]["placements"].is_object() && json["causes"]["migrations"].is_object());
    assert_eq!(json["cpu_time"]["raw_spin_rq_lock: rq lock"], serde_json::json!([200, 200]));
    assert_eq!(json["cpu_time"]["user"], serde_json::json!([800, 800]));
    assert!(
        json["correlation"]["time"][1].is_null(),
        "two pairs have no correlation worth a number"
    );
}

/// Uniform in 0 < u < 1.
fn uniform(noise: &Noise, entity: u64, counter: &mut u64) -> f64 {
    *counter += 1;
    (noise.bits(Stream::Test, entity, *counter) >> 11) as f64 / (1u64 << 53) as f64 + 1e-17
}

fn normal(noise: &Noise, entity: u64, counter: &mut u64) -> f64 {
    let (a, b) = (uniform(noise, entity, counter), uniform(noise, entity, counter));
    (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
}

/// A draw with the given shape: around zero, spread about one.
fn draw(shape: &str, noise: &Noise, entity: u64, counter: &mut u64) -> f64 {
    match shape {
        "normal" => normal(noise, entity, counter),
        "skewed" => -uniform(noise, entity, counter).ln() - 1.0,
        // Student's t with 2 degrees of freedom: no finite variance.
        "heavy" => {
            let chi = -2.0 * uniform(noise, entity, counter).ln();
            normal(noise, entity, counter) / (chi / 2.0).sqrt()
        }
        // Whole steps, as a percentile out of a histogram.
        "steps" => normal(noise, entity, counter).round(),
        _ => unreachable!(),
    }
}

/// A run of which every metric is noise, 3 % wide.
fn noisy(shape: &str, noise: &Noise, entity: u64) -> RunRecord {
    let mut counter = 0;
    let mut around = |middle: f64| -> u64 {
        let x = draw(shape, noise, entity, &mut counter).clamp(-30.0, 30.0);
        (middle * (1.0 + 0.03 * x)).max(1.0) as u64
    };
    let mut r = record("same", entity, 1.0);
    r.window.1 = Ns(around(1e9));
    r.time = Some(Ns(around(1e9)));
    let c = &mut r.counters;
    for n in [
        &mut c.context_switches,
        &mut c.voluntary_switches,
        &mut c.involuntary_switches,
        &mut c.cpu_migrations,
        &mut c.messages,
    ] {
        *n = around(1e5);
    }
    for e in &mut r.cpu_time {
        e.2 = Ns(around(1e8));
    }
    for h in [&mut r.wakeup_latency, &mut r.sched_delay] {
        *h = Histogram::default();
        for _ in 0..50 {
            h.record(Ns(around(1e5)));
        }
    }
    r
}

/// 200 comparisons of a kernel with itself over independent seeds: at most 5 % of rows starred.
#[test]
fn null_test() {
    let noise = Noise::new(2024);
    for seeds in [3, 5, 10] {
        for shape in ["normal", "skewed", "heavy", "steps"] {
            let (mut rows, mut starred) = (0, 0);
            for i in 0..200_u64 {
                let runs = |side: u64| -> Vec<RunRecord> {
                    (0..seeds).map(|s| noisy(shape, &noise, (i * 2 + side) * 16 + s)).collect()
                };
                let c = compare(&[("a".into(), runs(0)), ("b".into(), runs(1))], Sig::Interval);
                rows += c.rows.len();
                starred += c.rows.iter().filter(|r| r.significant[1]).count();
            }
            println!("{seeds} seeds, {shape}: {starred} of {rows}");
            assert!(rows > 3000);
            assert!(starred * 20 <= rows, "{seeds} seeds, {shape}: {starred} of {rows}");
        }
    }
}

/// The test above must be able to fail: a difference of one spread is found.
#[test]
fn a_true_difference_is_starred() {
    let noise = Noise::new(7);
    let mut starred = 0;
    for i in 0..100_u64 {
        let runs = |side: u64| -> Vec<RunRecord> {
            (0..5).map(|s| noisy("normal", &noise, (i * 2 + side) * 16 + s)).collect()
        };
        let mut b = runs(1);
        for r in &mut b {
            r.time = r.time.map(|t| t.mul_div(115, 100));
        }
        let c = compare(&[("a".into(), runs(0)), ("b".into(), b)], Sig::Interval);
        starred += usize::from(c.row("time").unwrap().significant[1]);
    }
    assert!(starred > 90, "{starred}");
}
