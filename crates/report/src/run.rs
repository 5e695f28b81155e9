//! One run: the workload's own lines, then what perf stat, perf sched and the model's ledger say.

use crate::blocks::{Columns, all_causes_text, cpu_time_text};
use crate::numbers::{duration, head, si, thousands, unsteady_text, value};
use std::fmt::Write;
use vruntime_base::Histogram;
use vruntime_kernel::record::RunRecord;
use vruntime_measure::metrics::{drift_pct, group_rates, window};
use vruntime_measure::{CauseRates, CauseTables, CpuTime};

/// The whole report. `result_lines` is what the real tool would have printed.
pub fn run_text(r: &RunRecord, result_lines: &str) -> String {
    let mut out = String::new();
    if !result_lines.is_empty() {
        out += result_lines.trim_end();
        out += "\n\n";
    }
    out += &header(r);
    out += &counters(r);
    out += &time(r);
    out += &latencies(r);
    let runs = [std::slice::from_ref(r)];
    let names = [r.kernel.clone()];
    let columns = Columns { names: &names };
    out += &all_causes_text(&CauseTables::of(&runs), &CauseRates::of(&runs), columns);
    out += &cpu_time_text(&CpuTime::of(&runs), columns);
    out += &idle_states(r);
    out += &checks(r);
    writeln!(out, "{} model events, hash {:016x}", thousands(r.events), r.hash).unwrap();
    out
}

fn header(r: &RunRecord) -> String {
    format!(
        " Performance counter stats for '{}'\n on {} ({} CPUs), kernel {}, {} tasks, seed {}:\n\n",
        r.workload,
        r.machine,
        r.nr_cpus,
        r.kernel,
        thousands(r.nr_tasks as u64),
        r.seed
    )
}

/// perf stat's lines: count, event, rate per second of the window, rate per message. What is
/// indented adds up to the line above, as far as it is listed; a local wakeup may be any of them.
fn counters(r: &RunRecord) -> String {
    let seconds = window(r).0 as f64 / 1e9;
    let busy = r.counters.task_clock_ns;
    let mut out = String::new();
    let clock = format!("{:.2}", busy as f64 / 1e6);
    write!(out, "{clock:>18} msec {:<24}", "task-clock").unwrap();
    if seconds > 0.0 {
        write!(out, "# {:>9.3} CPUs utilized", busy as f64 / 1e9 / seconds).unwrap();
    }
    out = out.trim_end().to_string() + "\n";
    let c = &r.counters;
    for (name, n) in [
        ("context-switches", c.context_switches),
        ("  voluntary", c.voluntary_switches),
        ("  involuntary", c.involuntary_switches),
        ("  from idle", c.context_switches - c.voluntary_switches - c.involuntary_switches),
        ("cpu-migrations", c.cpu_migrations),
        ("wakeups", c.wakeups),
        ("  activated", c.wakeups.saturating_sub(c.wakeups_queued + c.wakeups_on_rq)),
        ("  on its rq", c.wakeups_on_rq),
        ("  queued", c.wakeups_queued),
        ("    on its CPU", c.wakeups_on_cpu),
        ("local wakeups", c.wakeups_local),
        ("ipis", c.ipis),
        ("ticks", c.ticks),
        ("syscalls", c.syscalls),
        ("messages", c.messages),
        ("forks", c.forks),
    ] {
        let mut line = format!("{:>18}      {name:<24}", thousands(n));
        if seconds > 0.0 && n > 0 {
            write!(line, "#{:>12}/sec", si(n as f64 / seconds)).unwrap();
            if c.messages > 0 && name != "messages" {
                write!(line, "{:>12} per message", value(n as f64 / c.messages as f64)).unwrap();
            }
        }
        out += line.trim_end();
        out.push('\n');
        if name == "messages" {
            out += &groups(r);
        }
    }
    out
}

/// How evenly the groups got on.
fn groups(r: &RunRecord) -> String {
    let Some(g) = group_rates(r) else { return String::new() };
    let mut out = String::new();
    for (name, rate) in [("slowest", g.slowest), ("median", g.median), ("fastest", g.fastest)] {
        let name = format!("  {name} group");
        writeln!(out, "{:>24}{name:<24}#{:>12}/sec", "", si(rate)).unwrap();
    }
    out
}

/// The benchmark's time and where it comes from.
fn time(r: &RunRecord) -> String {
    let span = duration(window(r).0);
    let after = duration(r.window.0.saturating_sub(r.started).0);
    let measured = format!("measured {span} after {after}");
    match r.time {
        Some(t) => {
            let how = match r.complete {
                true if r.window.0 <= r.started => {
                    format!("the benchmark ended; rates are over {span}")
                }
                true => format!("the benchmark ended; counts: {measured}"),
                false => format!("extrapolated: {measured}"),
            };
            let unsteady = unsteady_text(drift_pct(r));
            let unsteady =
                unsteady.map_or(String::new(), |text| format!("{:>18} not steady: {text}\n", ""));
            format!("\n{:>18.9} seconds time elapsed  ({how})\n{unsteady}\n", t.0 as f64 / 1e9)
        }
        None => format!("\n{:>18} the benchmark did not end: time unknown; {measured}\n\n", "-"),
    }
}

fn latencies(r: &RunRecord) -> String {
    let mut out = format!("{:<18}{:>12}", "latency", "count");
    for name in ["mean", "p50", "p90", "p99", "p99.9", "max"] {
        write!(out, "{name:>12}").unwrap();
    }
    out.push('\n');
    for (name, h) in [("wakeup latency", &r.wakeup_latency), ("sched delay", &r.sched_delay)] {
        out += &latency_line(name, h);
    }
    out + "\n"
}

/// How often CPUs entered each idle state of the machine, for how long in the mean, and how much of
/// all CPUs' time that is.
fn idle_states(r: &RunRecord) -> String {
    let all = window(r).0 as f64 * r.nr_cpus as f64;
    if all == 0.0 || r.idle_states.iter().all(|u| u.time.0 == 0) {
        return String::new();
    }
    let mut out = format!("{:<18}{:>12}{:>12}{:>12}\n", "idle states", "entered", "mean", "of all");
    for u in &r.idle_states {
        let state = head(&u.state, 16);
        write!(out, "  {state:<16}{:>12}", thousands(u.entered)).unwrap();
        let mean = u.time.0.checked_div(u.entered).map_or("-".into(), duration);
        write!(out, "{mean:>12}").unwrap();
        writeln!(out, "{:>10.2} %", 100.0 * u.time.0 as f64 / all).unwrap();
    }
    out + "\n"
}

fn latency_line(name: &str, h: &Histogram) -> String {
    let mut out = format!("  {name:<16}{:>12}", thousands(h.count()));
    if h.count() > 0 {
        for d in [
            h.mean(),
            h.per_mille(500),
            h.per_mille(900),
            h.per_mille(990),
            h.per_mille(999),
            h.max(),
        ] {
            write!(out, "{:>12}", duration(d.0)).unwrap();
        }
    }
    out + "\n"
}

/// What the checkers found, if they were asked; and the ledger, if it does not close.
fn checks(r: &RunRecord) -> String {
    let mut out = String::new();
    if r.ledger_gap > 0 {
        writeln!(out, "the ledger does not close: {} are missing", duration(r.ledger_gap)).unwrap();
    }
    if let Some(c) = &r.checks {
        writeln!(
            out,
            "checks: nr_running wrong {} times, a CPU stopped with work {} times; longest wait \
             beside an idle CPU of the same LLC {}, of an RT task beside less important work {}; \
             ledger gap {}",
            c.nr_running_wrong,
            c.stopped_with_work,
            duration(c.idle_beside_waiting.0),
            duration(c.rt_beside_lower.0),
            duration(c.ledger_gap)
        )
        .unwrap();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::record;
    use expect_test::expect;
    use vruntime_base::Ns;
    use vruntime_kernel::record::GroupProgress;

    #[test]
    fn a_complete_run() {
        expect![[r#"
            Total time: 2.000 [sec]

             Performance counter stats for 'perf bench sched pipe'
             on two (2 CPUs), kernel v6.5, 2 tasks, seed 1:

                       1500.00 msec task-clock              #     0.750 CPUs utilized
                         4,000      context-switches        #     2.000 K/sec       2.000 per message
                         3,000        voluntary             #     1.500 K/sec       1.500 per message
                         1,000        involuntary           #    500.000 /sec      0.5000 per message
                             0        from idle
                           100      cpu-migrations          #     50.000 /sec     0.05000 per message
                             0      wakeups
                             0        activated
                             0        on its rq
                             0        queued
                             0          on its CPU
                             0      local wakeups
                             0      ipis
                             0      ticks
                             0      syscalls
                         2,000      messages                #     1.000 K/sec
                             0      forks

                   2.000000000 seconds time elapsed  (the benchmark ended; rates are over 2.000 s)

            latency                  count        mean         p50         p90         p99       p99.9         max
              wakeup latency           100    50.50 us    50.05 us    89.86 us    99.07 us   100.00 us   100.00 us
              sched delay              100    50.50 us    50.05 us    89.86 us    99.07 us   100.00 us   100.00 us

            switches by cause, per message
              blocks                                     1.500    75.0 %
              preempted                                 0.5000    25.0 %
              total                                      2.000   100.0 %

            placements by rule, per message
              prev idle                                  1.000   100.0 %
              total                                      1.000   100.0 %

            migrations by cause, per message
              wakeup                                   0.05000   100.0 %
              total                                    0.05000   100.0 %

            CPU time, % of non-idle
              user                                               50.00 %
              pipe_read                                          25.00 %
              raw_spin_rq_lock: rq lock                          12.50 %
              pipe_read: pipe mutex                               6.25 %
              scheduler_tick                                      5.00 %
              __schedule                                          1.25 %
              idle, % of all                                     20.00 %

            idle states            entered        mean      of all
              POLL                       0           -      0.00 %
              C1                        40    25.00 ms     25.00 %

            12,345 model events, hash 0000000000000abc
        "#]].assert_eq(&run_text(&record("v6.5", 1, 2.0), "Total time: 2.000 [sec]\n"));
    }

    #[test]
    fn groups_that_got_on_unevenly() {
        let mut r = record("v6.5", 1, 2.0);
        let group = |made: u64, finished_at| GroupProgress {
            goal: 5000,
            at_window_start: 1000,
            at_half: 0,
            at_window_end: 1000 + made,
            finished_at,
            seen_running: 1,
            seen_waiting: 0,
        };
        let half = Ns((r.window.0.0 + r.window.1.0) / 2);
        r.groups = vec![group(4000, Some(half)), group(300, None), group(2000, None)];
        expect![[r#"
            messages
                                      slowest group         #    150.000 /sec
                                      median group          #     1.000 K/sec
                                      fastest group         #     4.000 K/sec
        "#]]
        .assert_eq(&format!("messages\n{}", groups(&r)));
    }

    /// Counts are those of the window, also if the benchmark came to its end in it.
    #[test]
    fn a_window_that_the_benchmark_ended_in_is_named() {
        let mut r = record("v6.5", 1, 2.0);
        r.window.0 = r.started + Ns::from_ms(500);
        let line = time(&r);
        let end = "(the benchmark ended; counts: measured 1.500 s after 500.00 ms)";
        assert!(line.trim_end().ends_with(end), "{line}");
    }

    #[test]
    fn a_run_that_was_given_up() {
        let mut r = record("v6.5", 1, 2.0);
        (r.time, r.complete) = (None, false);
        (r.counters, r.wakeup_latency) = Default::default();
        r.switches.clear();
        r.placements.clear();
        r.cpu_time.clear();
        r.ledger_gap = 1500;
        expect![[r#"
             Performance counter stats for 'perf bench sched pipe'
             on two (2 CPUs), kernel v6.5, 2 tasks, seed 1:

                          0.00 msec task-clock              #     0.000 CPUs utilized
                             0      context-switches
                             0        voluntary
                             0        involuntary
                             0        from idle
                             0      cpu-migrations
                             0      wakeups
                             0        activated
                             0        on its rq
                             0        queued
                             0          on its CPU
                             0      local wakeups
                             0      ipis
                             0      ticks
                             0      syscalls
                             0      messages
                             0      forks

                             - the benchmark did not end: time unknown; measured 2.000 s after 0 ns

            latency                  count        mean         p50         p90         p99       p99.9         max
              wakeup latency             0
              sched delay              100    50.50 us    50.05 us    89.86 us    99.07 us   100.00 us   100.00 us

            migrations by cause, per second
              wakeup                                     50.00   100.0 %
              total                                      50.00   100.0 %

            idle states            entered        mean      of all
              POLL                       0           -      0.00 %
              C1                        40    25.00 ms     25.00 %

            the ledger does not close: 1.50 us are missing
            12,345 model events, hash 0000000000000abc
        "#]].assert_eq(&run_text(&r, ""));
    }

    #[test]
    fn extrapolated() {
        let mut r = record("v6.5", 1, 2.0);
        r.complete = false;
        r.window.0 = vruntime_base::Ns::from_ms(500);
        expect![
            "2.000000000 seconds time elapsed  (extrapolated: measured 1.500 s after 500.00 ms)"
        ]
        .assert_eq(time(&r).trim());
        // 1,000 messages in the first half of the window, 800 in the second.
        r.half = Some(Ns::from_ms(1_250));
        let (goal, at_window_start, at_half, at_window_end) = (5_000, 0, 1_000, 1_800);
        r.groups = vec![GroupProgress {
            goal,
            at_window_start,
            at_half,
            at_window_end,
            finished_at: None,
            seen_running: 1,
            seen_waiting: 0,
        }];
        let told = "not steady: second half of the window 20 % slower than the first";
        assert_eq!(time(&r).trim().lines().nth(1).map(str::trim), Some(told));
    }
}
