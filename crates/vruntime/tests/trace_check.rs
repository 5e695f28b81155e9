//! Shadow: do our decisions agree with those of recorded kernels?

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use vruntime::trace_check::{Given, trace_check};

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

const V6_1: &str = "guest-6.1-16cpu-xfs-dbench6";
const V6_18: &str = "guest-6.18-16cpu-preempt-lazy-hackbench-pipe-g1";
/// Its rows tell what every choice of a CPU could see.
const SEEN: &str = "guest-6.12-8cpu-smt-seen";
const V6_12: &str = "guest-6.12-16cpu-preempt-full-hackbench-pipe-g1";

/// At least `least` permille of `part` in `all`, and enough of them to mean something.
fn at_least(what: &str, part: u64, all: u64, least: u64, enough: u64) {
    assert!(all >= enough, "{what}: only {all}");
    assert!(part * 1000 >= all * least, "{what}: {part} of {all}");
}

#[test]
fn a_recording_of_more_cpus_than_the_machine_has_is_refused() {
    let machine = vruntime::machine_choice::machine("uma-2").unwrap();
    let topology = machine.build_topology().unwrap();
    let given = Given { topology: Some(&topology), ..Given::default() };
    let e = trace_check(&[recording(SEEN)], given).unwrap_err().to_string();
    assert!(e.contains("state.csv") && e.contains("outside of 0-1") && e.contains("-m"), "{e}");
}

#[test]
fn decisions_agree_with_the_recorded_kernels() {
    for (name, determined, asked) in [(V6_1, 970, 980), (V6_12, 850, 980), (V6_18, 930, 900)] {
        let report = trace_check(&[recording(name)], Given::default()).unwrap();
        let text = report.text();
        let of = |kind: &str| report.kind(kind).unwrap_or_else(|| panic!("{text}"));
        let k = of("placement");
        let all = k.determined + k.undetermined;
        at_least("placement determined", k.determined, all, determined, 600);
        at_least("placement", k.agree, k.determined, 990, 590);
        at_least("placement elsewhere", k.nontrivial_agree, k.nontrivial, 970, 20);
        let k = of("wakeup_preemption");
        at_least("preemption determined", k.determined, k.determined + k.undetermined, asked, 1000);
        at_least("preemption", k.agree, k.determined, 990, 1000);
        at_least("preemption in the class", k.nontrivial_agree, k.nontrivial, 980, 200);
        let k = of("tick_preemption");
        at_least("tick preemption", k.agree, k.determined, 950, 10);
        let k = of("pick");
        at_least("pick determined", k.determined, k.determined + k.undetermined, 975, 1000);
        at_least("pick of several", k.nontrivial_agree, k.nontrivial, 980, 150);
    }
}

/// As a kernel that it was not: every kind of decision differs somewhere.
#[test]
fn disagreements_are_told_in_words() {
    let given = Given { kernel: Some("v6.5"), topology: None };
    let report = trace_check(&[V6_1, V6_18].map(recording), given).unwrap();
    let mut kinds = BTreeSet::new();
    for d in report.recordings.iter().flat_map(|r| &r.disagreements) {
        let text = format!("{} {} {}", d.expected, d.got, d.state);
        let raw = ["Some(", "None", "NoGroup", "NotItsTurn", "Newidle", "Pull(", "Err("];
        assert!(!raw.iter().any(|word| text.contains(word)), "{text}");
        kinds.insert(d.kind.trim_end_matches(", reconstructed").to_owned());
    }
    for kind in ["placement", "wakeup_preemption", "pick", "tick_preemption", "migration"] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
}

/// CFS judged on decisions of EEVDF: few of the ticks and preemptions within the class agree, and
/// from a plain trace what is set aside is told.
#[test]
fn the_wrong_kernel_shows() {
    let given = Given { kernel: Some("v6.5"), topology: None };
    let report = trace_check(&[recording(V6_12)], given).unwrap();
    for (kind, at_most) in [("wakeup_preemption", 850), ("tick_preemption", 700)] {
        let k = report.kind(kind).unwrap();
        assert!(k.nontrivial_agree * 1000 < k.nontrivial * at_most, "{}", report.text());
    }
    let aside = report.kind_from("tick_preemption", "reconstructed").unwrap();
    assert!(aside.set_aside > 10 && aside.set_aside_agree * 10 < aside.set_aside * 9, "{aside:?}");
    assert!(report.text().contains("or the kernel is another one"));
}

/// The passes of the balancer that moved something: the same queue, the same tasks.
#[test]
fn migrations_agree_with_the_recorded_kernels() {
    let report = trace_check(&[V6_1, V6_12, V6_18].map(recording), Given::default()).unwrap();
    for (kind, enough) in [("migration", 45), ("migration_tasks", 70)] {
        let k = report.kind(kind).unwrap();
        at_least(kind, k.agree, k.determined, 900, enough);
        assert!(k.rules.keys().any(|r| r.starts_with("newidle balance")), "{:?}", k.rules);
        assert!(k.rules.keys().any(|r| r.starts_with("nohz idle balance")), "{:?}", k.rules);
    }
}

/// The choices of a CPU for new tasks, and for those that call exec.
#[test]
fn the_slow_path_agrees_with_the_recorded_kernels() {
    let report = trace_check(&[V6_1, V6_12, V6_18].map(recording), Given::default()).unwrap();
    let k = report.kind("placement_fork").unwrap();
    at_least("forks determined", k.determined, k.determined + k.undetermined, 700, 110);
    at_least("forks", k.agree, k.determined, 970, 80);
    at_least("forks elsewhere", k.nontrivial_agree, k.nontrivial, 970, 80);
    let k = report.kind("placement_exec").unwrap();
    // One of 16 had been called known that was not: of a CPU that was looking for tasks just then.
    at_least("execs determined", k.determined, k.determined + k.undetermined, 810, 16);
    at_least("execs", k.agree, k.determined, 970, 13);
}

/// From plain columns alone: fewer decisions are determined, and those agree.
#[test]
fn decisions_agree_from_rebuilt_state() {
    // Of the second a few preemptions and picks had been called known that were not: those of tasks
    // that came while a CPU looked for work.
    for (name, least) in [(V6_1, [930, 950, 940]), (V6_12, [650, 785, 800])] {
        let report = trace_check(&[recording(name)], Given::default()).unwrap();
        let text = report.text();
        for (kind, least) in ["placement", "wakeup_preemption", "pick"].iter().zip(least) {
            let k = report.kind_from(kind, "reconstructed").unwrap_or_else(|| panic!("{text}"));
            let all = k.determined + k.undetermined;
            at_least(&format!("{kind} determined"), k.determined, all, least, 600);
            at_least(kind, k.agree, k.determined, 990, 400);
        }
        let picks = report.kind_from("pick", "reconstructed").unwrap();
        at_least("picks of several", picks.nontrivial_agree, picks.nontrivial, 980, 150);
    }
}

/// From plain traces: ticks and passes of the balancer, and a wrong request size shows in ticks.
#[test]
fn ticks_and_migrations_agree_from_rebuilt_state() {
    let report = trace_check(&[V6_1, V6_12].map(recording), Given::default()).unwrap();
    let of = |kind: &str| report.kind_from(kind, "reconstructed").unwrap();
    for (kind, enough) in [("tick_preemption", 40), ("migration", 25), ("migration_tasks", 35)] {
        at_least(kind, of(kind).agree, of(kind).determined, 950, enough);
    }
    let ticks = &of("tick_preemption").rules;
    assert!(ticks["goes on"] >= 10 && ticks["slice ended"] >= 10, "{ticks:?}");
    let paths = &of("migration_tasks").rules;
    for path in ["newidle", "nohz idle", "periodic", "active"] {
        assert!(paths.keys().any(|r| r.starts_with(&format!("{path} balance"))), "{paths:?}");
    }
    // A quarter too long. With twice the size the tasks are soon taken to be in groups.
    let longer = Given { kernel: Some("v6.12+base_slice_ns=3500000"), topology: None };
    let wrong = trace_check(&[recording(V6_12)], longer).unwrap();
    let k = wrong.kind_from("tick_preemption", "reconstructed").unwrap();
    assert!(k.determined > 10 && k.agree * 10 < k.determined * 8, "{}", wrong.text());
}

#[test]
fn a_wrong_kernel_is_caught() {
    let right = trace_check(&[recording(V6_1)], Given::default()).unwrap();
    let wrong = trace_check(
        &[recording(V6_1)],
        Given { kernel: Some("v6.1+kthread_stacking=absent"), ..Given::default() },
    )
    .unwrap();
    let agree = |r: &vruntime_report::check::CheckReport| r.kind("placement").unwrap().agree;
    assert!(agree(&wrong) + 20 < agree(&right), "{}", wrong.text());
}

#[test]
fn a_cut_recording_is_read_as_far_as_it_goes() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cut");
    fs::create_dir_all(&dir).unwrap();
    for f in ["topology.txt.xz", "README.md", "state-stacks.txt.xz"] {
        fs::copy(recording(V6_1).join(f), dir.join(f)).unwrap();
    }
    let whole = fs::read(recording(V6_1).join("state.csv.xz")).unwrap();
    fs::write(dir.join("state.csv.xz"), &whole[..whole.len() / 2]).unwrap();
    let report = trace_check(std::slice::from_ref(&dir), Given::default()).unwrap();
    assert!(report.kind("pick").unwrap().determined > 100, "{}", report.text());
    assert!(report.text().contains("damaged .xz"), "{}", report.text());
}

/// A copy of the recording `of` with another `state.csv`: what `edit` makes of its lines.
fn edited(of: &str, name: &str, edit: impl Fn(&str) -> String) -> PathBuf {
    let dir = folder(of, name, &["README.md", "topology.txt.xz", "state-stacks.txt.xz"]);
    let state = vruntime_formats::text::read_text(&recording(of), "state.csv").unwrap().unwrap();
    fs::write(dir.join("state.csv"), edit(&state.text)).unwrap();
    dir
}

/// A copy of the recording `of` whose `state.csv` lacks some columns.
fn without_columns(of: &str, name: &str, drop: &[&str]) -> PathBuf {
    edited(of, name, |state| {
        let mut lines = state.lines().map(|l| l.split(',').collect::<Vec<_>>());
        let head = lines.next().unwrap();
        let keep: Vec<bool> = head.iter().map(|n| !drop.contains(n)).collect();
        assert_eq!(keep.iter().filter(|k| !**k).count(), drop.len(), "{drop:?}");
        let mut text = String::new();
        for cells in std::iter::once(head).chain(lines) {
            let cells: Vec<&str> = cells.iter().zip(&keep).filter(|c| *c.1).map(|c| *c.0).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    })
}

#[test]
fn a_column_that_is_needed_is_named_if_it_is_missing() {
    for column in ["p_prio", "p_tg", "n_weight", "rq_clock_task", "p_depth", "n_load_avg", "stack"]
    {
        let dir = without_columns(V6_1, "needed", &[column]);
        let e = trace_check(&[dir], Given::default()).unwrap_err().to_string();
        assert!(e.ends_with(&format!("expected a column {column}")), "{e}");
    }
}

/// What is not recorded is not known; it is never taken to be zero.
#[test]
fn columns_that_are_missing_leave_decisions_undetermined_not_wrong() {
    for (i, drop) in [
        &["wakee_flips", "curr_wakee_flips", "recent_used_cpu"][..],
        &["curr_flags", "curr_nr_cpus_allowed", "p_nr_cpus_allowed", "p_flags", "onflags"],
        &["rq_nr_switches", "rq_avg_idle"],
    ]
    .iter()
    .enumerate()
    {
        let dir = without_columns(V6_1, &format!("optional-{i}"), drop);
        let report = trace_check(&[dir], Given::default()).unwrap();
        for kind in ["placement", "wakeup_preemption", "pick"] {
            let k = report.kind(kind).unwrap();
            at_least(&format!("{kind} without {drop:?}"), k.agree, k.determined, 980, 400);
        }
    }
    let dir = folder(V6_1, "no-stacks", &["README.md", "topology.txt.xz", "state.csv.xz"]);
    let report = trace_check(&[dir], Given::default()).unwrap();
    assert_eq!(report.kind("wakeup_preemption").unwrap().determined, 0);
    assert!(report.kind("pick").unwrap().determined > 1000);
    assert!(report.text().contains("state-stacks.txt: there is none"), "{}", report.text());
    // Without rows of requests nothing tells what the kernel asked for.
    let dir = edited(V6_12, "no-requests", |state| {
        state
            .lines()
            .filter(|l| !l.contains(",need_resched,"))
            .fold(String::new(), |s, l| s + l + "\n")
    });
    let report = trace_check(&[dir], Given::default()).unwrap();
    for kind in ["wakeup_preemption", "tick_preemption"] {
        let k = report.kind(kind);
        assert_eq!(k.map_or(0, |k| k.determined), 0, "{}", report.text());
    }
}

fn folder(of: &str, name: &str, files: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for f in files {
        fs::copy(recording(of).join(f), dir.join(f)).unwrap();
    }
    dir
}

#[test]
fn a_wrong_file_beside_a_recording_is_told() {
    let dir = folder(V6_1, "beside", &["README.md", "topology.txt.xz", "state.csv.xz"]);
    fs::write(dir.join("features.txt"), "FOO BAR\n").unwrap();
    fs::write(dir.join("sched-tunables.txt"), "sched_base_slice=7\nnr_migrate: many\n").unwrap();
    let text = trace_check(&[dir], Given::default()).unwrap().text();
    for told in [
        "features.txt names none of the release's (FOO, …)",
        "sched-tunables.txt:1: \"sched_base_slice=7\" is no `name: value`",
        "nr_migrate is `many`, no number",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// Whatever kernel is asked to decide, the recorded settings are its, but for what the caller sets.
#[test]
fn recorded_settings_are_those_of_the_callers_kernel_too() {
    let dir = folder(V6_1, "settings", &["README.md", "topology.txt.xz", "state.csv.xz"]);
    let decided_as = |kernel| {
        let given = Given { kernel, ..Given::default() };
        let report = trace_check(std::slice::from_ref(&dir), given).unwrap();
        report.recordings[0].release.clone()
    };
    let text = trace_check(std::slice::from_ref(&dir), Given::default()).unwrap().text();
    for missing in ["features are not recorded", "tunables are not recorded"] {
        assert!(text.contains(missing), "{missing}: {text}");
    }
    fs::write(dir.join("features.txt"), "TTWU_QUEUE NO_SIS_UTIL WA_IDLE\n").unwrap();
    fs::write(dir.join("sched-tunables.txt"), "nr_migrate: 7\n").unwrap();
    assert_eq!(decided_as(None), "v6.1-sis_util+nr_migrate=7");
    assert_eq!(decided_as(Some("v6.6")), "v6.6-sis_util+nr_migrate=7");
    assert_eq!(decided_as(Some("v6.6+nr_migrate=9")), "v6.6+nr_migrate=9-sis_util");
}

/// A number that the release cannot have is one that cannot be used, as a word is.
#[test]
fn a_tunable_out_of_range_is_told_as_it_is_written() {
    let dir = folder(V6_12, "range", &["topology.txt.xz", "state.csv.xz"]);
    fs::write(dir.join("README.md"), "Kernel: 6.12.1, HZ=99999\n").unwrap();
    let tunables = "base_slice_ns: 18446744073709551615\nnr_migrate: 4294967296\n";
    fs::write(dir.join("sched-tunables.txt"), tunables).unwrap();
    let text = trace_check(&[dir], Given::default()).unwrap().text();
    for told in [
        "base_slice_ns is `18446744073709551615`, expected 4000 to 4000000000; the release's",
        "nr_migrate is `4294967296`, too large a number; the release's is used",
        "hz is `99999`, expected 24 to 10000; the release's is used",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// What no kernel writes is left out, row by row; of nothing but that there is no report.
#[test]
fn rows_that_cannot_be_are_told() {
    let report = |name: &str, from: &str, to: &str, rows: usize| {
        let dir = edited(V6_12, name, |state| {
            let edit = |(i, l): (usize, &str)| {
                let part = i > 0 && i <= rows;
                if part { l.replacen(from, to, 1) } else { l.to_owned() }
            };
            state.lines().enumerate().map(|l| edit(l) + "\n").collect()
        });
        trace_check(&[dir], Given::default()).map(|r| r.text()).map_err(|e| e.to_string())
    };
    let text = report("unknown-some", ",switch,", ",zork,", 100).unwrap();
    assert!(text.contains("state.csv:2: no event is named `zork`"), "{text}");
    let some = edited(V6_12, "unknown-all", |state| {
        let with = |l: &str| {
            let mut cells: Vec<&str> = l.split(',').collect();
            cells[2] = if cells[2] == "event" { "event" } else { "zork" };
            cells.join(",") + "\n"
        };
        state.lines().map(with).collect()
    });
    let e = trace_check(&[some], Given::default()).unwrap_err().to_string();
    assert!(e.contains("state.csv:2: found event `zork`, and no other that is known"), "{e}");
    assert!(e.contains("expected one of switch, waking"), "{e}");
    let zero = edited(V6_12, "zero", |state| {
        let zero = |l: &str| match l.split_once(',') {
            Some(("ts_ns", _)) | None => l.to_owned() + "\n",
            Some((_, rest)) => format!("0,{rest}\n"),
        };
        state.lines().map(zero).collect()
    });
    let e = trace_check(&[zero], Given::default()).unwrap_err().to_string();
    assert!(e.contains("state.csv:2: ts_ns is \"0\"; expected 1 or more"), "{e}");
}

/// Where the rows tell what a choice could see, next to nothing is left to infer: what is idle, the
/// scan's limit and the loads are read, and used.
#[test]
fn a_choice_is_determined_where_the_recording_tells_what_it_saw() {
    let placement = |dir: PathBuf| {
        let report = trace_check(&[dir], Given::default()).unwrap();
        let k = report.kind("placement").unwrap();
        (k.determined + k.undetermined, k.determined, k.agree, k.nontrivial, k.nontrivial_agree)
    };
    let (all, determined, agree, elsewhere, agree_elsewhere) = placement(recording(SEEN));
    at_least("determined", determined, all, 995, 900);
    at_least("agree", agree, determined, 998, 900);
    at_least("elsewhere", agree_elsewhere, elsewhere, 995, 250);
    let inferred = without_columns(SEEN, "inferred", &["idle_before", "this_idle_scan_after"]);
    let (all, determined, ..) = placement(inferred);
    assert!(determined * 100 < all * 96, "{determined} of {all} without the columns");
    // The two CPUs taken for each other.
    let swapped = edited(SEEN, "swapped", |state| {
        let (head, rows) = state.split_once('\n').unwrap();
        let head = head.replace("this_load", "@").replace("prev_load", "this_load");
        head.replace('@', "prev_load") + "\n" + rows
    });
    let (_, determined, agree, ..) = placement(swapped);
    assert!(agree * 100 < determined * 98, "{agree} of {determined} with loads exchanged");
}

/// A recording that cannot be checked takes nothing from the others.
#[test]
fn a_recording_that_cannot_be_checked_is_named_beside_the_others() {
    let paths = [recording(V6_1), PathBuf::from("no/such"), recording(V6_12)];
    let report = trace_check(&paths, Given::default()).unwrap();
    assert_eq!(report.recordings.len(), 2);
    assert!(report.refused[0].starts_with("no/such: "), "{:?}", report.refused);
    assert!(trace_check(&paths[1..2], Given::default()).is_err());
}

#[test]
fn a_plain_trace_is_judged_with_what_stands_beside_it() {
    let dir = folder(V6_1, "plain", &["ftrace.txt.xz", "README.md", "topology.txt.xz"]);
    let of_dir = trace_check(std::slice::from_ref(&dir), Given::default()).unwrap();
    let of_file = trace_check(&[dir.join("ftrace.txt.xz")], Given::default()).unwrap();
    for report in [&of_dir, &of_file] {
        assert!(report.kind("pick").is_none(), "no state of the kernel's own");
        for (kind, least) in [("placement", 780), ("wakeup_preemption", 950), ("pick", 950)] {
            let k = report.kind_from(kind, "reconstructed").unwrap();
            at_least(kind, k.determined, k.determined + k.undetermined, least, 600);
            at_least(kind, k.agree, k.determined, 990, 400);
            if kind != "placement" {
                at_least(kind, k.nontrivial_agree, k.nontrivial, 980, 150);
            }
        }
    }
    let wrong = Given { kernel: Some("v6.1+wakeup_granularity_ns=100000000"), topology: None };
    let wrong = trace_check(&[dir], wrong).unwrap();
    let disagree = |r: &vruntime_report::check::CheckReport| {
        let k = r.kind_from("wakeup_preemption", "reconstructed").unwrap();
        k.determined - k.agree
    };
    assert!(disagree(&wrong) > disagree(&of_dir) + 10, "{}", wrong.text());
}

#[test]
fn what_a_plain_trace_lacks_is_named_with_the_option_that_gives_it() {
    let dir = folder(V6_1, "lacks", &["ftrace.txt.xz"]);
    let file = [dir.join("ftrace.txt.xz")];
    let said = |given| trace_check(&file, given).unwrap_err().to_string();
    let topology = vruntime::machine_choice::machine("uma-8").unwrap();
    let topology = topology.build_topology().unwrap();
    let machine = Given { topology: Some(&topology), kernel: None };
    let kernel = Given { kernel: Some("v6.1"), topology: None };
    assert!(said(kernel).contains("no topology; expected topology.txt"));
    assert!(said(kernel).ends_with("-m MACHINE"));
    assert!(said(machine).contains("no kernel version") && said(machine).ends_with("-k KERNEL"));
    let small = Given { kernel: Some("v6.1"), ..machine };
    assert!(said(small).contains("events on CPUs outside of 0-7; expected"), "{}", said(small));
    let e = trace_check(&[folder(V6_1, "empty", &[])], Given::default()).unwrap_err().to_string();
    assert!(e.contains("there is no recording; expected state.csv, perf.data"), "{e}");
}

#[test]
fn a_damaged_plain_trace_is_judged_as_far_as_it_goes() {
    let whole = fs::read(recording(V6_1).join("ftrace.txt.xz")).unwrap();
    let dir = folder(V6_1, "damaged", &["README.md", "topology.txt.xz"]);
    let file = dir.join("ftrace.txt.xz");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let report = trace_check(&[file], Given::default()).unwrap();
    assert!(report.kind_from("pick", "reconstructed").unwrap().determined > 100);
    assert!(report.text().contains("the .xz is damaged"), "{}", report.text());
}

#[test]
fn a_release_without_a_model_is_refused() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-release");
    fs::create_dir_all(&dir).unwrap();
    fs::copy(recording(V6_1).join("state.csv.xz"), dir.join("state.csv.xz")).unwrap();
    fs::write(dir.join("README.md"), "Kernel: Debian 7.2.12 (cloud-amd64)\n").unwrap();
    let e = trace_check(&[dir], Given::default()).unwrap_err().to_string();
    assert!(e.contains("no model for release 7.2.12; have v5.5, "), "{e}");
}
