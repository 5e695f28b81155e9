//! What a comparison looks like.

use super::*;
use crate::sample::record;
use expect_test::expect;
use vruntime_base::Ns;
use vruntime_kernel::record::{GroupProgress, RunRecord};
use vruntime_measure::compare;

fn kernel(name: &str, seconds: &[f64]) -> (String, Vec<RunRecord>) {
    let runs = seconds.iter().enumerate().map(|(i, &s)| record(name, i as u64 + 1, s)).collect();
    (name.to_string(), runs)
}

fn narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 110, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn two_kernels() {
    let mut faster = kernel("v6.5+ttwu_queue=l2", &[36.0, 37.5, 37.5]);
    for r in &mut faster.1 {
        r.counters.involuntary_switches = 1500;
        r.switches[1].1 = 1500;
        r.cpu_time[4].2 = Ns(60);
    }
    let c = compare(&[kernel("v6.5", &[45.0, 46.5, 46.5]), faster], Sig::Interval);
    let text = compare_text(&c, "fitted      nothing");
    narrow(&text);
    expect![[r#"
        machine     two
        workload    perf bench sched pipe
        kernels     v6.5  (base)
                    v6.5+ttwu_queue=l2
        seeds       1-3 (3)
        simulated   from start to end; counts are totals
        pairing     correlation of time over the seeds with the base: 1.00
        fitted      nothing

                                                                v6.5      v6.5+ttwu_queue=l2       97.5 % interval
        Amean    time                   s           46.00 (   0.00%)        37.00 *  19.57%* [  19.57,  19.57]
        Stddev   time                   s          0.8660                  0.8660
        CoeffVar time                   %           1.883                   2.341
        Amean    context_switches                 4000.00 (   0.00%)      4000.00 (   0.00%) [   0.00,   0.00]
        Amean    voluntary_switches               3000.00 (   0.00%)      3000.00 (   0.00%) [   0.00,   0.00]
        Amean    involuntary_switches             1000.00 (   0.00%)      1500.00 *  50.00%* [  50.00,  50.00]
        Amean    migrations                        100.00 (   0.00%)       100.00 (   0.00%) [   0.00,   0.00]
        Amean    wakeup_latency_p50     ns       50048.00 (   0.00%)     50048.00 (   0.00%) [   0.00,   0.00]
        Amean    wakeup_latency_p99     ns       99072.00 (   0.00%)     99072.00 (   0.00%) [   0.00,   0.00]
        Amean    sched_delay_p99        ns       99072.00 (   0.00%)     99072.00 (   0.00%) [   0.00,   0.00]
        Amean    timer_latency_mean     ns        3000.00 (   0.00%)      3000.00 (   0.00%) [   0.00,   0.00]
        Amean    timer_latency_max      ns        4000.00 (   0.00%)      4000.00 (   0.00%) [   0.00,   0.00]
        Amean    switches_per_message               2.000 (   0.00%)        2.000 (   0.00%) [   0.00,   0.00]
        Amean    migrations_per_message           0.05000 (   0.00%)      0.05000 (   0.00%) [   0.00,   0.00]
        Amean    messages_per_second    1/s         43.49 (   0.00%)        54.07 *  24.34%* [  20.59,  28.09]
        Amean    user                   %           50.00 (   0.00%)        52.63 *   5.26%* [   5.26,   5.26]
        Amean    syscall                %           31.25 (   0.00%)        32.89 *   5.26%* [   5.26,   5.26]
        Amean    scheduler              %           13.75 (   0.00%)        9.211 * -33.01%* [ -33.01, -33.01]
        Amean    irq                    %           5.000 (   0.00%)        5.263 *   5.26%* [   5.26,   5.26]
        Amean    rq_lock_wait           %           12.50 (   0.00%)        7.895 * -36.84%* [ -36.84, -36.84]
        Amean    tg_load_avg            %            0.00 (   0.00%)         0.00 (   0.00%) [   0.00,   0.00]
        Amean    pipe_mutex_wait        %           6.250 (   0.00%)        6.579 *   5.26%* [   5.26,   5.26]
        Amean    idle                   %           20.00 (   0.00%)        20.83 *   4.17%* [   4.17,   4.17]

        positive % = better (time, latency, messages), else more; * = the paired 97.5 % interval excludes zero

        switches by cause, per message                          v6.5      v6.5+ttwu_queue=l2
          blocks                                     1.500    75.0 %         1.500    66.7 %
          preempted                                 0.5000    25.0 %        0.7500    33.3 %
          total                                      2.000   100.0 %         2.250   100.0 %

        placements by rule, per message                         v6.5      v6.5+ttwu_queue=l2
          prev idle                                  1.000   100.0 %         1.000   100.0 %
          total                                      1.000   100.0 %         1.000   100.0 %

        migrations by cause, per message                        v6.5      v6.5+ttwu_queue=l2
          wakeup                                   0.05000   100.0 %       0.05000   100.0 %
          total                                    0.05000   100.0 %       0.05000   100.0 %

        CPU time, % of non-idle                                 v6.5      v6.5+ttwu_queue=l2
          user                                               50.00 %      52.63 %    (+2.63)
          pipe_read                                          25.00 %      26.32 %    (+1.32)
          raw_spin_rq_lock: rq lock                          12.50 %       7.89 %    (-4.61)
          pipe_read: pipe mutex                               6.25 %       6.58 %    (+0.33)
          scheduler_tick                                      5.00 %       5.26 %    (+0.26)
          __schedule                                          1.25 %       1.32 %    (+0.07)
          idle, % of all                                     20.00 %      20.83 %    (+0.83)
    "#]].assert_eq(&text);
}

#[test]
fn four_kernels_take_two_tables() {
    let all: Vec<_> = ["v6.5", "v6.6", "v6.10", "v6.12+preempt=lazy,hz=1000,psi"]
        .iter()
        .enumerate()
        .map(|(k, name)| kernel(name, &[46.0 - k as f64, 47.0, 48.0 + k as f64]))
        .collect();
    let text = compare_text(&compare(&all, Sig::Mmtests), "");
    narrow(&text);
    assert_eq!(text.matches("\nAmean    time ").count(), 2);
    let first: String = text.lines().take(20).map(|l| l.to_string() + "\n").collect();
    expect![[r#"
        machine     two
        workload    perf bench sched pipe
        kernels     v6.5  (base)
                    v6.6
                    v6.10
                    v6.12+preempt=lazy,hz=1000,psi
        seeds       1-3 (3)
        simulated   from start to end; counts are totals
        pairing     correlation of time over the seeds with the base: 1.00, 1.00, 1.00

                                                                v6.5                    v6.6                   v6.10
        Amean    time                   s           47.00 (   0.00%)        47.00 (   0.00%)        47.00 (   0.00%)
                                                                           [  -7.62,   7.62]       [ -15.25,  15.25]
        Stddev   time                   s           1.000                   2.000                   3.000
        CoeffVar time                   %           2.128                   4.255                   6.383
        Amean    context_switches                 4000.00 (   0.00%)      4000.00 (   0.00%)      4000.00 (   0.00%)
                                                                           [   0.00,   0.00]       [   0.00,   0.00]
        Amean    voluntary_switches               3000.00 (   0.00%)      3000.00 (   0.00%)      3000.00 (   0.00%)
                                                                           [   0.00,   0.00]       [   0.00,   0.00]
        Amean    involuntary_switches             1000.00 (   0.00%)      1000.00 (   0.00%)      1000.00 (   0.00%)
    "#]].assert_eq(&first);
}

#[test]
fn a_window() {
    let mut a = kernel("a", &[4.0]);
    a.1[0].complete = false;
    a.1[0].window.0 = Ns::from_ms(1500);
    expect![[r#"
        machine     two
        workload    perf bench sched pipe
        kernels     a  (base)
        seeds       1 (one seed: no intervals)
        simulated   warm-up 1.500 s, window 2.500 s; counts are per second, time is extrapolated
                    from each group's progress
    "#]]
    .assert_eq(&header(&compare(&[a], Sig::Interval)));
}

#[test]
fn extremes_stay_narrow() {
    let mut huge = kernel("b", &[1e9, 2e9, 3e9]);
    for r in &mut huge.1 {
        r.counters.context_switches = u64::MAX / 8;
    }
    narrow(&compare_text(&compare(&[kernel("a", &[1e-9, 2e-9, 2e-9]), huge], Sig::Interval), ""));
    assert!(compare_text(&compare(&[], Sig::Interval), "").contains("nothing was measured"));
}

/// One kernel's runs end within the window, the other's do not.
#[test]
fn each_kernel_says_what_was_measured() {
    let mut slow = kernel("v6.1", &[36.0, 37.0]);
    let mut fast = kernel("v6.12", &[3.0, 3.5]);
    for r in slow.1.iter_mut().chain(&mut fast.1) {
        (r.started, r.window.0) = (Ns(0), Ns::from_ms(500));
    }
    for r in &mut slow.1 {
        (r.complete, r.window.1) = (false, Ns::from_ms(1500));
    }
    fast.1[0].window.1 = Ns::from_ms(1300);
    fast.1[1].window.1 = Ns::from_ms(1400);
    let text = header(&compare(&[slow.clone(), fast.clone()], Sig::Interval));
    expect![[r#"
        simulated   warm-up 500.00 ms; counts are per second of the window
                    v6.1: window 1.000 s, extrapolated in 2 of 2 seeds
                    v6.12: window 800.00 ms to 900.00 ms, ended in 2 of 2 seeds
    "#]]
    .assert_eq(&text[text.find("simulated").unwrap()..]);
    // One of the slow ones makes 10 messages in the first half of its window and 12 in the second,
    // the other 10 and 14.
    for (r, second) in slow.1.iter_mut().zip([12, 14]) {
        r.half = Some(Ns::from_ms(1000));
        r.groups = vec![GroupProgress {
            goal: 100,
            at_window_start: 5,
            at_half: 15,
            at_window_end: 15 + second,
            finished_at: None,
            seen_running: 1,
            seen_waiting: 0,
        }];
    }
    let unsteady = header(&compare(&[slow.clone(), fast.clone()], Sig::Interval));
    expect![[r#"
        not steady  v6.1: second half of the window 30 % faster than the first
                    a longer --warmup, or --full, tells more
    "#]]
    .assert_eq(&unsteady[unsteady.find("not steady").unwrap()..]);
    fast.1[1].complete = false;
    fast.1[1].time = None;
    let text = header(&compare(&[slow, fast], Sig::Interval));
    assert!(
        text.contains("v6.12: window 800.00 ms to 900.00 ms, ended in 1, time unknown in 1 of 2")
    );
}
