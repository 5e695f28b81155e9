//! Kernel files and kernel expressions.
//!
//! A kernel is a TOML table of the fields of [`Release`], by path or from the set inside the
//! program. An expression names one and overrides fields:
//!
//! ```text
//! v6.5    v6.10+ttwu_queue=l2    v6.5+tg_load_avg_ratelimit-sis_util,hz=1000    ./mine.toml+hz=250
//! ```
//!
//! `+name` is true, `-name` false, `name=value` anything; comma, `+` and `-` separate. A `-` inside
//! a value (`kthread_stacking=in-task`) separates only if a field name follows it.

use crate::error::FileError;
use crate::text_file::{self, key_before, line_of, unknown_key};
use serde::Deserialize;
use std::path::Path;
use toml::{Table, Value};
use vruntime_machine::{hint, nearest_name};
use vruntime_sched::release::{FairKind, Release};
use vruntime_sched::{limits, registry};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The override that is no field of a release: how far this kernel's seeds are moved.
const SEED_OFFSET: &str = "seed_offset";

/// The scheduler that reads all fields.
pub const LINUX: &str = "linux";

/// Fields that say which kernel it is: no overrides.
const IDENTITY: [&str; 3] = ["name", "version", "description"];

/// What a kernel file has to have, and what does with less.
const ALL_KEYS: &str =
    "a kernel file sets every key; to change a few of a kernel, `-k v6.12+key=value`";

/// Overrides that do not depend on the class stack of Linux: what the kernel around a scheduler
/// does.
const OF_ALL_SCHEDULERS: [&str; 24] = [
    "scheduler",
    "hz",
    "schedstat_version",
    "preempt",
    "ttwu_queue",
    "ttwu_queue_within",
    "ttwu_list_order",
    "ttwu_pending_clear",
    "ttwu_pending",
    "ttwu_on_cpu_handover",
    "ttwu_runnable_full",
    "ttwu_runnable_skip_curr",
    "affinity_waits",
    "menu_leaves_out",
    "menu_checks_timers",
    "menu_polls_before_long",
    "idle_shortcut",
    "lazy_tlb_shootdown",
    "fget_exchanges",
    "clears_bhb",
    "pipe_updates_times",
    "pipe_wakes_on_freed_slot",
    "timer_slack_ns",
    SEED_OFFSET,
];

/// A kernel as an expression gives it.
#[derive(Clone, Debug)]
pub struct KernelChoice {
    /// The release with all overrides; its name is the expression.
    pub release: Release,
    /// Added to every seed of this kernel, so that its runs do not share another one's noise.
    pub seed_offset: u64,
    /// What is odd about it: overrides that its scheduler, or its fair class, never reads, and what
    /// is not that of its release.
    pub notes: Vec<String>,
}

fn names() -> String {
    KERNELS.iter().map(|&(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// The kernel whose version is nearest to that of `name`, or whose name is if it is no version.
fn nearest_kernel(name: &str) -> Option<&'static str> {
    let all = || KERNELS.iter().map(|&(name, _)| name);
    let distance = |other: &str| {
        let ([a, fine], [b, of]) = (numbers(name)?, numbers(other)?);
        Some((a.abs_diff(b), fine.abs_diff(of)))
    };
    all()
        .filter_map(|k| Some((distance(k)?, k)))
        .min()
        .map(|(_, k)| k)
        .or(nearest_name(name, all()))
}

/// A version as releases from the first on, some twenty each major number, and the point release.
fn numbers(name: &str) -> Option<[u64; 2]> {
    let numbers = name.strip_prefix('v').unwrap_or(name).split('.').map(|n| n.parse::<u32>().ok());
    let numbers: Option<Vec<u32>> = numbers.collect();
    match numbers?[..] {
        [major, minor] => Some([20 * u64::from(major) + u64::from(minor), 0]),
        [major, minor, point] => Some([20 * u64::from(major) + u64::from(minor), u64::from(point)]),
        _ => None,
    }
}

/// The kernels inside the program: name and TOML text, in the order of names and numbers.
pub fn builtin_kernels() -> &'static [(&'static str, &'static str)] {
    KERNELS
}

/// The kernel file that `expression` names, if it names one.
pub fn kernel_path(expression: &str) -> Option<&Path> {
    let (base, _) = split_base(expression);
    base.ends_with(".toml").then(|| Path::new(base))
}

/// The kernel that `expression` names, with its overrides.
pub fn kernel(expression: &str) -> Result<KernelChoice, FileError> {
    let (base, overrides) = split_base(expression);
    if let Some(path) = kernel_path(expression) {
        return kernel_str(&text_file::read(path)?, base, expression, overrides);
    }
    let Some((name, text)) = KERNELS.iter().find(|(name, _)| *name == base) else {
        return Err(FileError::Usage(format!(
            "no kernel named `{base}`{}; there are: {}; a file ends in .toml",
            hint(nearest_kernel(base)),
            names()
        )));
    };
    kernel_str(text, &format!("kernels/{name}.toml"), expression, overrides)
}

/// The kernel in the TOML text of `origin` with `overrides` (`+a-b,c=1`) applied.
pub fn kernel_str(
    text: &str,
    origin: &str,
    expression: &str,
    overrides: &str,
) -> Result<KernelChoice, FileError> {
    let in_file = |e: toml::de::Error| {
        let line = e.span().map(|s| line_of(text, s.start));
        let mut message = with_nearest(e.message());
        let is_toml = text.parse::<Table>().is_ok();
        let names_it = ["unknown key", "missing"].iter().any(|word| message.starts_with(word));
        let key = e.span().and_then(|s| key_before(text, s.start));
        if let Some(key) = key.filter(|_| !names_it && (is_toml || message.starts_with("invalid ")))
        {
            message = format!("{key}: {message}");
        }
        FileError::content(origin, line, message)
    };
    let mut release: Release = toml::from_str(text).map_err(in_file)?;
    let line_of_key = |key| text.lines().position(|l| l.starts_with(key)).map(|at| at + 1);
    limits::check(&release).map_err(|e| {
        let message = format!("{} = `{}`, expected {}", e.name, e.found, e.expected());
        FileError::content(origin, line_of_key(e.name), message)
    })?;
    registry::check(&release.scheduler)
        .map_err(|e| FileError::content(origin, line_of_key("scheduler"), e))?;
    // Written out again, every field has its canonical type.
    let mut table = Table::try_from(&release).map_err(|e| FileError::content(origin, None, e))?;
    let mut seed_offset = 0;
    let malformed = |what: String| FileError::Usage(format!("kernel `{expression}`: {what}"));
    let items = split_overrides(overrides).map_err(&malformed)?;
    for (i, &(name, word)) in items.iter().enumerate() {
        if items[..i].iter().any(|&(earlier, _)| earlier == name) {
            return Err(malformed(format!("`{name}` is set twice")));
        }
        let wrong = |found: &str, expected: String| {
            malformed(format!("{name} = `{found}`, expected {expected}"))
        };
        if name == SEED_OFFSET {
            seed_offset = word
                .parse()
                .map_err(|_| wrong(word, "a whole number, as in seed_offset=7".into()))?;
            continue;
        }
        let Some(old) = table.get(name).filter(|_| !IDENTITY.contains(&name)) else {
            return Err(malformed(format!(
                "no feature or tunable named `{name}`{}; `vruntime list features` shows all",
                hint(nearest_name(name, field_names()))
            )));
        };
        // What a name alone, after `+` or `-`, stands for.
        if old.is_integer() && ["true", "false"].contains(&word) {
            return Err(malformed(format!("{name} is a number: expected `+{name}=N`")));
        }
        let time = format!("{name}_ns");
        let is_time = old.is_bool() && word.parse::<u64>().is_ok_and(|n| n > 1);
        if is_time && field_names().any(|known| known == time) {
            return Err(wrong(word, format!("on or off; the time is {time}")));
        }
        let range = limits::expected(&release, name);
        let expected = |said: String| wrong(word, range.clone().unwrap_or(said));
        let value = value_like(old, word).map_err(&expected)?;
        table.insert(name.into(), value);
        release = Release::deserialize(Value::Table(table.clone()))
            .map_err(|e| expected(expected_of(e.message())))?;
        limits::check(&release).map_err(|e| wrong(word, e.expected()))?;
        registry::check(&release.scheduler).map_err(&malformed)?;
    }
    let notes = items.iter().filter_map(|&(name, _)| unread(&release, name));
    let notes = notes.chain(before_its_pipes(&release));
    let notes = notes.map(|why| format!("kernel `{expression}`: {why}")).collect();
    release.name = expression.into();
    Ok(KernelChoice { release, seed_offset, notes })
}

/// What no switch changes: the release in which pipes got the wait queues that are modelled.
fn before_its_pipes(release: &Release) -> Option<String> {
    let (version, _) = release.version.split_once('-').unwrap_or((&release.version, ""));
    let old = numbers(version)? < numbers("v5.6")?;
    old.then(|| "pipes are those of 5.6 on, which wake one waiter at a time, not all".to_string())
}

/// Why the field `name` changes nothing in `release`, if it does not.
fn unread(release: &Release, name: &str) -> Option<String> {
    let scheduler = &release.scheduler;
    if scheduler != LINUX {
        let read = OF_ALL_SCHEDULERS.contains(&name);
        return (!read).then(|| format!("with scheduler = {scheduler} {name} changes nothing"));
    }
    let (is, other) = match release.fair {
        FairKind::Cfs => ("cfs", "EEVDF"),
        FairKind::Eevdf => ("eevdf", "CFS"),
    };
    let (_, meaning) = Release::FIELDS.iter().find(|f| f.0 == name)?;
    let (of, _) = meaning.trim_start().split_once(':')?;
    let why = || format!("{name} is of {of}; with fair = {is} it changes nothing");
    (of == other).then(why)
}

/// What an override may set, each with a line about it.
pub fn features() -> impl Iterator<Item = (&'static str, &'static str)> {
    let fields = Release::FIELDS.iter().map(|&(name, text)| (name, text.trim()));
    let moved = "added to every seed of this kernel, so that it has noise of its own";
    fields.filter(|(name, _)| !IDENTITY.contains(name)).chain([(SEED_OFFSET, moved)])
}

/// Names that an override may set.
fn field_names() -> impl Iterator<Item = &'static str> {
    features().map(|(name, _)| name)
}

/// Base kernel and the rest of an expression. A path ends with its `.toml`, a name with the first
/// separator (behind a `/`, which no name has), unless a longer kernel name fits.
pub(crate) fn split_base(expression: &str) -> (&str, &str) {
    let ends = |rest: &str| rest.is_empty() || rest.starts_with(['+', '-', ',']);
    let paths = expression.match_indices(".toml").map(|(at, end)| at + end.len());
    if let Some(end) = paths.into_iter().find(|&end| ends(&expression[end..])) {
        return expression.split_at(end);
    }
    let fits = |name: &&str| expression.strip_prefix(name).is_some_and(ends);
    let known = KERNELS.iter().map(|&(name, _)| name).filter(fits).map(str::len).max();
    let file = expression.rfind('/').map_or(0, |at| at + 1);
    let first = expression[file..].find(['+', '-', ',']).map(|at| file + at);
    let first = first.unwrap_or(expression.len());
    expression.split_at(known.unwrap_or(first))
}

/// The overrides of `+a-b,c=1` as (name, value), or what is wrong.
fn split_overrides(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let mut items = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let off = rest.starts_with('-');
        let (separator, item) = rest.split_at(1);
        if item.is_empty() || item.starts_with(['+', '-', ',', '=']) {
            return Err(format!("expected a feature or tunable after `{separator}`"));
        }
        let name_end = item.find(['+', '-', ',', '=']).unwrap_or(item.len());
        let (name, after) = item.split_at(name_end);
        let Some(value) = after.strip_prefix('=') else {
            items.push((name, if off { "false" } else { "true" }));
            rest = after;
            continue;
        };
        if off {
            let set = &after[..after.find(['+', ',']).unwrap_or(after.len())];
            return Err(format!(
                "`-{name}{set}`: `-` switches off; expected `-{name}`, or `+{name}{set}`"
            ));
        }
        let value_end = value
            .char_indices()
            .position(|(i, c)| match c {
                '+' | ',' => true,
                '-' => i > 0 && begins_with_field(&value[i + 1..]),
                _ => false,
            })
            .map_or(value.len(), |nth| value.char_indices().nth(nth).map_or(0, |(i, _)| i));
        items.push((name, &value[..value_end]));
        rest = &value[value_end..];
    }
    Ok(items)
}

fn begins_with_field(text: &str) -> bool {
    let end = text.find(['+', '-', ',', '=']).unwrap_or(text.len());
    field_names().any(|name| name == &text[..end])
}

/// `word` as a value of the type of `old`, or what was expected.
fn value_like(old: &Value, word: &str) -> Result<Value, String> {
    match old {
        Value::Boolean(_) => match word {
            "on" | "true" | "1" => Ok(Value::Boolean(true)),
            "off" | "false" | "0" => Ok(Value::Boolean(false)),
            _ => Err("on or off".into()),
        },
        Value::Integer(_) => {
            word.parse().map(Value::Integer).map_err(|_| "a whole number".to_string())
        }
        _ => Ok(Value::String(word.into())),
    }
}

/// The part of serde's message that says what a value may be.
fn expected_of(message: &str) -> String {
    let message = message.lines().next().unwrap_or(message).trim();
    match message.split_once("expected ") {
        Some((_, "u32" | "u64")) => "a whole number from 0 on".into(),
        Some((_, expected)) => expected.to_string(),
        None => format!("a valid value ({message})"),
    }
}

/// Adds the nearest name to serde's message about an unknown key, and drops its long list.
fn with_nearest(message: &str) -> String {
    let message = message.lines().next().unwrap_or(message).trim();
    if message.starts_with("missing field") {
        return format!("{message}: {ALL_KEYS}");
    }
    let Some((key, valid)) = unknown_key(message) else {
        let message = message.replace("expected u32", "expected a whole number to 4294967295");
        return message.replace("expected u64", "expected a whole number from 0 on");
    };
    if key == "inherit" {
        return format!("unknown key `{key}`: {ALL_KEYS}");
    }
    format!("unknown key `{key}`{}", hint(nearest_name(key, valid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_separate_at_comma_plus_and_minus() {
        assert_eq!(
            split_overrides("+tg_load_avg_ratelimit-sis_util,hz=1000").unwrap(),
            [("tg_load_avg_ratelimit", "true"), ("sis_util", "false"), ("hz", "1000")]
        );
        assert_eq!(
            split_overrides("+kthread_stacking=in-task-wa_idle,seed_offset=7").unwrap(),
            [("kthread_stacking", "in-task"), ("wa_idle", "false"), ("seed_offset", "7")]
        );
        assert_eq!(split_overrides(""), Ok(vec![]));
        assert!(split_overrides("+,+").is_err());
        assert!(split_overrides("+hz,").is_err());
        assert_eq!(split_overrides("+hz=-5"), Ok(vec![("hz", "-5")]));
        let e = split_overrides("+sis_util-hz=1000,wa_idle").unwrap_err();
        assert_eq!(e, "`-hz=1000`: `-` switches off; expected `-hz`, or `+hz=1000`");
    }

    /// What a feature is of, its description says first.
    #[test]
    fn overrides_that_the_fair_class_does_not_read_are_noted() {
        let notes = |expression: &str| kernel(expression).unwrap().notes;
        assert!(notes("v6.1+start_debit=off,sis_util=off").is_empty());
        assert!(notes("v6.12-run_to_parity,base_slice_ns=3000000").is_empty());
        let said = notes("v6.1+place_lag,sis_util=off");
        let expected = "kernel `v6.1+place_lag,sis_util=off`: place_lag is of EEVDF; with fair = \
                        cfs it changes nothing";
        assert_eq!(said, [expected]);
        assert_eq!(notes("v6.12+latency_ns=1000000,alt_period").len(), 2);
        assert!(notes("v5.5")[0].contains("pipes are those of 5.6 on"));
        assert!(notes("v5.7").is_empty());
        assert!(notes("v6.12+scheduler=rr,hz=1000,ttwu_queue=l2,seed_offset=3").is_empty());
        let said = notes("v6.12+scheduler=rr,sis_util=off,run_to_parity");
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].ends_with(": with scheduler = rr sis_util changes nothing"), "{said:?}");
    }

    #[test]
    fn a_scheduler_that_there_is_not_has_its_line() {
        let (_, text) = builtin_kernels()[0];
        let wrong = text.replacen("scheduler = \"linux\"", "scheduler = \"linus\"", 1);
        let line = wrong.lines().position(|l| l.starts_with("scheduler")).unwrap() + 1;
        let e = kernel_str(&wrong, "my.toml", "my.toml", "").unwrap_err();
        assert!(!e.is_usage());
        let told = format!("my.toml:{line}: no scheduler `linus`, nearest is `linux`");
        assert!(e.to_string().starts_with(&told), "{e}");
        assert!(kernel("v6.1+scheduler=r").unwrap_err().is_usage());
    }

    #[test]
    fn a_path_is_a_base_too() {
        assert_eq!(split_base("./a-b/my.toml+hz=250"), ("./a-b/my.toml", "+hz=250"));
        assert_eq!(split_base("d.toml.d/k.toml-x"), ("d.toml.d/k.toml", "-x"));
        assert_eq!(split_base("k.tomlé"), ("k.tomlé", ""));
        assert_eq!(split_base("k.tomlXhz=1000"), ("k.tomlXhz=1000", ""));
        assert_eq!(split_base("v0.0-x"), ("v0.0", "-x"));
        assert_eq!(split_base("./a-b/my-x+hz=1"), ("./a-b/my", "-x+hz=1"));
        assert_eq!(split_base("./a-b/k.tml"), ("./a-b/k.tml", ""));
        assert_eq!(split_base("v0.0"), ("v0.0", ""));
    }

    #[test]
    fn the_nearest_release_is_nearest_by_number() {
        for (asked, near) in [
            ("v6.13", "v6.12"),
            ("6.12", "v6.12"),
            ("v6.17", "v6.18"),
            ("v6.18.43", "v6.18.44"),
            ("v5.19", "v6.1"),
            ("v7.0", "v6.18"),
            ("vv6.5", "v6.5"),
        ] {
            assert_eq!(nearest_kernel(asked), Some(near), "{asked}");
        }
    }

    #[test]
    fn a_word_takes_the_type_of_the_field() {
        let yes = Value::Boolean(true);
        assert_eq!(value_like(&yes, "off"), Ok(Value::Boolean(false)));
        assert_eq!(value_like(&yes, "1"), Ok(yes.clone()));
        assert_eq!(value_like(&yes, "maybe"), Err("on or off".into()));
        assert_eq!(value_like(&Value::Integer(3), "12"), Ok(Value::Integer(12)));
        assert!(value_like(&Value::Integer(3), "3ms").is_err());
    }
}
