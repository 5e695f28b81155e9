//! The kernel that a recording is judged as: the release that it names, or the caller's, with the
//! features and tunables that it lists; and what is taken for granted where it lists none.

use std::path::Path;
use vruntime_formats::error::FormatError;
use vruntime_formats::kernel_file::{LINUX, builtin_kernels, kernel};
use vruntime_formats::recording::Meta;
use vruntime_sched::limits;
use vruntime_sched::release::Release;

/// `v6.18.44` for exactly that, `v6.1` for 6.1.x; an error if there is no model of it.
pub fn series(path: &Path, meta: &Meta) -> Result<String, FormatError> {
    let version = meta.version.as_ref().ok_or_else(|| {
        FormatError::missing(
            path,
            "kernel version",
            "\"kernel\": \"6.1.192\" in summary.json or \"Kernel: … 6.1.192\" in README.md beside \
             it, or -k KERNEL",
        )
    })?;
    // A model run names its kernel expression.
    if let Ok(k) = kernel(version) {
        let scheduler = k.release.scheduler;
        if scheduler != LINUX {
            let found = format!("a run under scheduler `{scheduler}`");
            let expected = format!("`{LINUX}`, whose decisions are what is judged");
            return Err(FormatError::syntax(path, 0, found, expected));
        }
        return Ok(version.clone());
    }
    let mut parts = version.split('.');
    let series = format!("v{}.{}", parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    for name in [format!("v{version}"), series] {
        if builtin_kernels().iter().any(|(n, _)| *n == name) {
            return Ok(name);
        }
    }
    let have: Vec<&str> = builtin_kernels().iter().map(|k| k.0).collect();
    Err(FormatError::NoModel {
        path: path.to_owned(),
        version: version.clone(),
        have: have.join(", "),
    })
}

/// The kernel that decides: `given`, or the release's series, with the features and tunables that
/// the recording lists. What `given` sets stays.
pub fn expression_of(
    path: &Path,
    meta: &Meta,
    nr_cpus: usize,
    given: Option<&str>,
) -> Result<String, FormatError> {
    let expression = given.map_or_else(|| series(path, meta), |e| Ok(e.to_owned()))?;
    let base = kernel(&expression)
        .map_err(|e| FormatError::syntax(path, 0, e.to_string(), "a kernel expression"))?
        .release;
    let number = |name: &str, shown: &str| {
        let value = usable(&base, name, shown, nr_cpus)?.ok()?;
        Some(format!("+{name}={value}"))
    };
    let switch = |word: &String| {
        let (name, on) = feature(word);
        format!("{}{name}", if on { '+' } else { '-' })
    };
    let hz = meta.hz.and_then(|hz| number("hz", &hz.to_string()));
    let tunables = meta.tunables.iter().filter_map(|(name, value)| number(name, value));
    // One that changes nothing is left out, and so is one that is set: twice is an error.
    let changes = |item: &String| {
        let with = kernel(&(expression.clone() + item)).map(|k| k.release);
        with.is_ok_and(|with| Release { name: base.name.clone(), ..with } != base)
    };
    let all = hz.into_iter().chain(meta.features.iter().map(switch)).chain(tunables);
    let recorded: String = all.filter(changes).collect();
    Ok(expression + &recorded)
}

/// What a recorded tunable sets the number `name` of `r` to, or why it cannot: `None` if `r` has no
/// such number.
fn usable(r: &Release, name: &str, shown: &str, nr_cpus: usize) -> Option<Result<u64, String>> {
    let mut all = serde_json::to_value(r).ok()?;
    all.get(name)?.as_u64()?;
    let Ok(value) = shown.parse::<u64>() else { return Some(Err("no number".into())) };
    let scaled = ["base_slice_ns", "latency_ns", "min_granularity_ns", "wakeup_granularity_ns"];
    let times = if scaled.contains(&name) { r.scaling(nr_cpus) } else { 1 };
    all[name] = (value / times).into();
    let Ok(with) = serde_json::from_value::<Release>(all) else {
        return Some(Err("too large a number".into()));
    };
    Some(match limits::check(&with) {
        Err(e) if e.name == name => {
            let (least, most) = (e.least * times, e.most * times);
            Err(format!("expected {least} to {most}"))
        }
        _ => Ok(value / times),
    })
}

/// The switch that a feature is called in a release, and whether it is on.
fn feature(word: &str) -> (String, bool) {
    let off = word.strip_prefix("NO_");
    (off.unwrap_or(word).to_lowercase(), off.is_none())
}

/// The value of a field of `r`, as text.
fn field(r: &Release, name: &str) -> Option<String> {
    let all = serde_json::to_value(r).ok()?;
    Some(all.get(name)?.to_string())
}

/// What is taken for granted, in sentences.
pub fn assumptions(
    meta: &Meta,
    release: &Release,
    nr_cpus: usize,
    affinity: bool,
    plain: bool,
) -> Vec<String> {
    let mut v = vec![];
    if plain {
        let text = "a plain trace tells neither policies nor groups; fair tasks are taken to be";
        v.push(format!("{text} SCHED_OTHER"));
    }
    if !affinity {
        v.push("affinity is not recorded; wakees are taken to be free of it".to_owned());
    }
    if meta.features.is_empty() {
        v.push("features are not recorded; the release's defaults are used".to_owned());
    } else if !meta.features.iter().any(|f| field(release, &feature(f).0).is_some()) {
        let first = &meta.features[0];
        v.push(format!("features.txt names none of the release's ({first}, …); its own are used"));
    }
    let hz = meta.hz.map(|hz| ("hz".to_owned(), hz.to_string()));
    let tunables = meta.tunables.iter().map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in tunables.chain(hz) {
        if let Some(Err(why)) = usable(release, &name, &value, nr_cpus) {
            v.push(format!("{name} is `{value}`, {why}; the release's is used"));
        }
    }
    if meta.tunables.is_empty() {
        v.push("tunables are not recorded; the release's are used".to_owned());
    }
    if let (Some(first), Some(last)) = (meta.cpu_numbers.first(), meta.cpu_numbers.last()) {
        let n = meta.cpu_numbers.len();
        v.push(format!("{n} of the CPUs {first}-{last} were online; here they are 0-{}", n - 1));
    }
    if !meta.isolated.is_empty() {
        let list: Vec<String> = meta.isolated.iter().map(|c| c.0.to_string()).collect();
        v.push(format!("CPUs {} are isolated: in no scheduling domain", list.join(", ")));
    }
    if meta.hz.is_none() {
        v.push("HZ is not recorded; the release file's is used".to_owned());
    }
    v
}
