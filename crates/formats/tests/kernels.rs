//! Kernel expressions and kernel files, right and wrong.

use vruntime_formats::kernel_file::{builtin_kernels, kernel, kernel_str};

#[test]
fn every_kernel_inside_the_program_reads_under_its_name() {
    for (name, text) in builtin_kernels() {
        let k = kernel(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(k.release.name, *name);
        assert_eq!(k.seed_offset, 0);
        assert!(text.contains(&format!("name = \"{name}\"")), "{name} calls itself otherwise");
    }
}

#[test]
fn overrides_apply_and_the_expression_becomes_the_name() {
    let expression = "v6.1+sis_util=off,base_slice_ns=2800000-wa_idle+hz=1000,seed_offset=7";
    let k = kernel(expression).unwrap();
    assert!(!k.release.sis_util);
    assert!(!k.release.wa_idle);
    assert_eq!((k.release.base_slice_ns, k.release.hz), (2_800_000, 1000));
    assert_eq!(k.seed_offset, 7);
    assert_eq!(k.release.name, expression);
}

/// A plain switch in a file is the old form of `llc` and `none`.
#[test]
fn queued_wakeups_take_a_group() {
    let queue = |expression: &str| kernel(expression).unwrap().release.ttwu_queue.to_string();
    for (name, _) in builtin_kernels() {
        for group in ["llc", "l2", "8", "mod192", "none", "all"] {
            assert_eq!(queue(&format!("{name}+ttwu_queue={group}")), group);
        }
        assert_eq!(queue(&format!("{name}-ttwu_queue")), "none");
    }
    let (_, text) = builtin_kernels()[0];
    let old = text.replacen("ttwu_queue = \"llc\"", "ttwu_queue = true", 1);
    let k = kernel_str(&old, "my.toml", "my.toml+ttwu_queue=l2", "+ttwu_queue=l2").unwrap();
    assert_eq!(k.release.ttwu_queue.to_string(), "l2");
    let k = kernel_str(&old, "my.toml", "my.toml", "").unwrap();
    assert_eq!(k.release.ttwu_queue.to_string(), "llc");
    let (text, usage) = error("v6.1+ttwu_queue=l3");
    assert!(text.contains("ttwu_queue = `l3`, expected llc (on), l2, none"), "{text}");
    assert!(usage);
}

#[track_caller]
fn error(expression: &str) -> (String, bool) {
    let e = kernel(expression).expect_err(expression);
    (e.to_string(), e.is_usage())
}

#[test]
fn mistakes_in_an_expression_are_usage_errors_with_the_nearest_name() {
    let (text, usage) = error("v6.l");
    assert!(text.starts_with("no kernel named `v6.l`, nearest is `v6."), "{text}");
    assert!(usage);
    let (text, usage) = error("v6.1+sis_utl");
    assert!(text.contains("named `sis_utl`, nearest is `sis_util`;"), "{text}");
    assert!(usage);
    let (text, _) = error("v6.1+sis_util=perhaps");
    assert!(text.ends_with("sis_util = `perhaps`, expected on or off"), "{text}");
    let (text, _) = error("v6.1+hz=1kHz");
    assert!(text.ends_with("hz = `1kHz`, expected a whole number from 24 to 10000"), "{text}");
    let (text, _) = error("v6.1+hz=-1");
    assert!(text.ends_with("hz = `-1`, expected a whole number from 24 to 10000"), "{text}");
    let (text, _) = error("v6.1+fair=cfq");
    assert!(text.contains("fair = `cfq`, expected") && text.contains("`eevdf`"), "{text}");
    let (text, _) = error("v6.1+seed_offset=x");
    assert!(text.contains("a whole number"), "{text}");
}

#[test]
fn mistakes_in_a_file_name_file_and_line() {
    let (_, text) = builtin_kernels()[0];
    let wrong = text.replacen("\nhz = ", "\nherz = ", 1);
    let line = 1 + text[..text.find("\nhz = ").unwrap() + 1].matches('\n').count();
    let e = kernel_str(&wrong, "my.toml", "my.toml", "").unwrap_err();
    assert!(!e.is_usage());
    assert_eq!(e.to_string(), format!("my.toml:{line}: unknown key `herz`, nearest is `hz`"));
    let e = kernel_str("hz = [", "my.toml", "my.toml", "").unwrap_err();
    assert!(e.to_string().starts_with("my.toml:1: "), "{e}");
    assert!(!kernel("no/such.toml").unwrap_err().is_usage());
}
