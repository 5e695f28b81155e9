//! The part of `host-check` that sets cyclictest beside the model.
//!
//! A hypervisor that stops a CPU for milliseconds makes some latencies a thousand times the others,
//! so the median is shown, and the shortest, which nobody disturbed.

use crate::host_check::{Mean, output, percent_over, whole_runs};
use std::fmt::Write;

/// The command lines; real-time threads need a privilege.
pub const COMMANDS: [&str; 2] =
    ["cyclictest -p 80 -a 0 -l 2000 -q -N", "cyclictest -a 0 -l 2000 -q -N"];

/// One command in one round: latencies in us.
pub struct Timers {
    machine: Figures,
    model: Figures,
}

struct Figures {
    shortest: f64,
    median: f64,
}

/// `command` here and simulated.
pub fn pair(kernel: &str, machine: &str, command: &str, round: usize) -> Result<Timers, String> {
    let words: Vec<&str> = command.split(' ').chain(["-v"]).collect();
    let (stdout, _) = output(&words)?;
    let measured = of_verbose(&stdout).ok_or_else(|| format!("{command} -v: {stdout}"))?;
    let json = whole_runs(kernel, machine, command, 1, round)?;
    let latency = &json["runs"][0]["latencies"][0];
    let number = |name: &str| {
        let ns = latency[name].as_f64().filter(|_| latency["count"] != 0);
        ns.map(|ns| ns / 1e3).ok_or_else(|| format!("{command}: the model gives no {name}"))
    };
    let model = Figures { shortest: number("min_ns")?, median: number("mean_ns")? };
    Ok(Timers { machine: measured, model })
}

/// From the lines `thread: loop: latency` that `-v` prints.
fn of_verbose(text: &str) -> Option<Figures> {
    let latency = |line: &str| line.rsplit_once(':')?.1.trim().parse::<f64>().ok();
    let rows = text.lines().filter(|l| l.trim_start().starts_with("0:"));
    let mut all: Vec<f64> = rows.filter_map(latency).collect();
    all.sort_by(f64::total_cmp);
    Some(Figures { shortest: all.first()? / 1e3, median: all[all.len() / 2] / 1e3 })
}

/// The section of the page: each of `commands` with what its rounds gave; none without commands.
pub fn section(commands: &[&str], rounds: &[Vec<Timers>]) -> String {
    if commands.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "\n## Timers\n\nHow late a thread wakes, us. The median is of 2,000 loops of a round; the \
         model's is its mean.\n\n| benchmark | | shortest | median |\n|---|---|---:|---:|\n",
    );
    for (command, rounds) in commands.iter().zip(rounds) {
        let mut row = |name: &str, who: &str, of: fn(&Timers) -> &Figures| {
            let mean = |figure: fn(&Figures) -> f64| {
                Mean::of(&rounds.iter().map(|r| figure(of(r))).collect::<Vec<_>>()).text(2)
            };
            let (shortest, median) = (mean(|f| f.shortest), mean(|f| f.median));
            writeln!(out, "| {name} | {who} | {shortest} | {median} |").expect("a string grows");
        };
        row(&format!("`{command}`, {} rounds", rounds.len()), "machine", |t| &t.machine);
        row("", "model", |t| &t.model);
        let percent = |figure: fn(&Figures) -> f64| {
            let both = |t: &Timers| (vec![figure(&t.machine)], vec![figure(&t.model)]);
            let pairs: Vec<_> = rounds.iter().map(both).collect();
            percent_over(pairs.iter().map(|(a, b)| (a, b)))
        };
        let (shortest, median) = (percent(|f| f.shortest), percent(|f| f.median));
        writeln!(out, "| | model − machine | {shortest} | {median} |").expect("a string grows");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_first_thread() {
        let text = "Max CPUs = 2\nThread 0 Interval: 1500\n       0:       0:    7100\n       \
                    0:       1:    5200\n       0:       2: 6300000\n       1:       0:      79\n\
                    T: 0 (19446) P: 0 I:1000 C:      3 Min:   5200 Act:  630 Avg:   64 Max:   66\n";
        let f = of_verbose(text).unwrap();
        assert_eq!((f.shortest, f.median), (5.2, 7.1));
        assert!(of_verbose("unknown option").is_none());
    }
}
