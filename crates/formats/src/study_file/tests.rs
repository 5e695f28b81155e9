//! Studies read, and what is said of wrong ones.

use super::*;

#[test]
fn every_study_inside_the_program_reads_under_its_name() {
    for (name, _) in builtin_studies() {
        let s = study(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(s.name, *name);
        assert!(!s.rows.is_empty());
        let ids: std::collections::BTreeSet<&str> = s.rows.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids.len(), s.rows.len(), "ids are unique");
    }
}

#[test]
fn mistakes_name_file_and_line() {
    let e = study("l2-queued-wakeup").unwrap_err();
    assert!(e.is_usage() && e.to_string().contains("nearest is `l2-queued-wakeups`"), "{e}");
    let named = |(name, _): &&(&str, &str)| *name == "l2-queued-wakeups";
    let (_, text) = builtin_studies().iter().find(named).unwrap();
    let wrong = text.replacen("loops_divided_by", "loops_divided", 1);
    let e = study_str(&wrong, "my.toml").unwrap_err();
    assert!(e.to_string().starts_with("my.toml:"), "{e}");
    assert!(e.to_string().contains("loops_divided"), "{e}");
    let fit = |machine: &str, row: &str| {
        let row = format!("rows = [\"l2-queued-wakeups.{row}\"]");
        format!("[[fit]]\nmachine = \"{machine}\"\n{row}\npermille = 1100\nresidual_pct = 9.0\n\n")
    };
    let fits = fit("spr-2s", "spr-nolimit.g10.time") + &fit("genoa-2s", "group-size.16-to-8");
    let text = &text.replacen("[explain]", &format!("{fits}[explain]"), 1);
    let s = study_str(text, "fitted").unwrap();
    assert_eq!(s.fits.len(), 2);
    // Windows but for a quick look, which is of short runs.
    assert!([&s.full, &s.explain].iter().all(|e| matches!(e.span(), Span::Window { .. })));
    assert!(matches!(s.quick.span(), Span::Shortened(50)));
    for (old, new, what) in [
        ("seeds = ", "seeds = 0 #", "[full]: seeds = 0: expected 1 to 1000"),
        ("seeds = ", "seeds = 99999999999 #", "[full]: seeds = 99999999999: expected 1 to"),
        ("warmup_ms = ", "warmup_ms = 18446744073710 #", "[full]: warmup_ms = 18446744"),
        ("machine = \"genoa-2s\"\nrows", "machine = \"genoa\"\nrows", "no case on machine `genoa`"),
        ("nolimit.g10.time\"]", "nolimit.g11.time\"]", "no row `l2-queued-wakeups.spr-no"),
        ("message_time = [\"spr", "message_time = [\"srp", "`message_time`: no case `srp-no"),
        ("nolimit.g10.rq_spin\"\ncase", "nolimit.g10.rq_spin\"\n#", "missing field `case`"),
        ("metric = \"rq_spin\"", "metric = \"time\"", "g10.time` has `time` of that case already"),
        (
            "\nbase = ",
            "\nother = \"base+hz=1000\"\nbase = ",
            "`other`: expected a kernel, not `base`",
        ),
        ("split = ", "split = 7 #", "split = 7: expected 1 to 6"),
        ("id = \"spr-nolimit.g20\"", "id = \"spr-nolimit.g10\"", "two cases have the id"),
        ("warmup_ms = ", "#", "[full]: expected loops_divided_by, or else warmup_ms"),
        ("loops_divided_by = ", "#", "[quick]: expected loops_divided_by, or else warmup_ms"),
        ("loops_divided_by = ", "loops_divided_by = 0 #", "[quick]: loops_divided_by = 0"),
        ("[draw]\nwarmup_ms = ", "[draw]\n#", "[draw]: expected loops_divided_by, or else"),
        ("window_ms = ", "window_ms = 0 #", "[full]: window_ms = 0"),
        ("\nseeds = 4", "\nseeds = 0", "`spr-nolimit.g32`: seeds = 0: expected 1 to 1000"),
        ("\nseeds = 4", "\nloops_divided_by = 0", "`spr-nolimit.g32`: loops_divided_by = 0: exp"),
        ("\nseeds = 4", "\nseeds = \"4\"", "seeds: invalid type: string \"4\", expected a whole"),
        ("\nseeds = 4", "\nseedz = 4", "unknown key `seedz`, nearest is `seeds`"),
        ("spread_pct = ", "spread_pct = 1", "before_spread_pct = 125: expected 0 to 100"),
        (
            "before = \"base\"",
            "before = \"bsae+ttwu_queue=l2\"",
            "kernel named `bsae`, nearest is `base`",
        ),
        ("\nbase = ", "\n\"my-base\" = ", "kernels: `my-base`: expected a name without"),
        ("knockouts = [", "knockouts = [] # ", "`fewer-migrations`: knockouts = []: expected at"),
        ("\nbase = ", "\n\"v6.1\" = ", "kernels: `v6.1`: expected a name that no kernel has"),
        ("effect = \"improves\"", "effect = \"worsens\"", "effect = \"worsens\", but from "),
        ("rows = [\"l2", "rows = [] # [", "0 rows, residual_pct = 9: expected at least one"),
        ("residual_pct = 9.0", "residual_pct = nan", "1 rows, residual_pct = NaN: expected"),
        (
            "spr-nolimit.g10.time\"]",
            "group-size.16-to-8\"]",
            "no row on spr-2s `l2-queued-wakeups.gr",
        ),
    ] {
        let e = study_str(&text.replacen(old, new, 1), "my.toml").unwrap_err();
        assert!(e.to_string().contains(what), "{e}");
    }
    let line_of = |key: &str| text.lines().position(|l| l.starts_with(key)).unwrap() + 1;
    for (old, new, key) in [
        ("\nseeds = 4", "\nseeds = 0", "id = \"spr-nolimit.g32\""),
        ("\ntime = 2.5", "\ntime = -2.5", "time = 2.5"),
    ] {
        let e = study_str(&text.replacen(old, new, 1), "my.toml").unwrap_err();
        assert!(e.to_string().starts_with(&format!("my.toml:{}: ", line_of(key))), "{e}");
    }
    let none = text.split("[[case]]").next().unwrap();
    let e = study_str(&none.replacen("[kernels]", "case = []\nrow = []\n[kernels]", 1), "my.toml");
    assert!(e.unwrap_err().to_string().contains("no [[case]]: expected what is run"));
    let wrong = text.replacen("case = \"epyc.8\"", "case = \"epic.8\"", 1);
    let e = study_str(&wrong, "my.toml").unwrap_err();
    assert!(e.to_string().contains("no case `epic.8`, nearest is `epyc.8`"), "{e}");
    assert!(!study("no/such.toml").unwrap_err().is_usage());
}
