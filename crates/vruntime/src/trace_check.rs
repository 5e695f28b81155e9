//! `trace check`: replays recordings and compares the kernel's decisions with ours.

use crate::replay;
use std::path::{Path, PathBuf};
use vruntime_formats::error::FormatError;
use vruntime_formats::kernel_file::{builtin_kernels, kernel};
use vruntime_formats::recording::{Meta, Recording};
use vruntime_kernel::shadow;
use vruntime_kernel::shadow::trace::Trace;
use vruntime_machine::Topology;
use vruntime_report::check::{CheckReport, RecordingCheck};
use vruntime_sched::fair::select::idle_sibling;
use vruntime_sched::release::Release;

/// Checks the recordings in `paths`. `release`: a kernel expression instead of the release that
/// each recording names.
pub fn trace_check(paths: &[PathBuf], release: Option<&str>) -> Result<CheckReport, FormatError> {
    let mut checks = Vec::new();
    for path in paths {
        checks.push(check_one(path, release)?);
    }
    let rules: Vec<&str> = idle_sibling::RULES.iter().map(|c| c.name).collect();
    Ok(CheckReport::new(checks, &rules))
}

fn check_one(path: &Path, release: Option<&str>) -> Result<RecordingCheck, FormatError> {
    let r = Recording::open(path)?;
    let expression = match release {
        Some(e) => e.to_owned(),
        None => expression_of(path, &r.meta)?,
    };
    let release: Release = kernel(&expression)
        .map_err(|e| FormatError::syntax(path, 0, e.to_string(), "a kernel expression"))?
        .release;
    let (trace, left_out) = replay::trace(&r)?;
    let masks = r.meta.topology.as_ref().ok_or_else(|| {
        FormatError::missing(path, "topology.txt", "the sysfs topology, plain or .xz")
    })?;
    let topology = Topology::from_masks(masks).map_err(|e| {
        FormatError::syntax(&path.join("topology.txt"), 0, e.to_string(), "a consistent topology")
    })?;
    let mut found = shadow::check(&trace, &topology, &release);
    let plain = shadow::rebuild::rebuild(&trace, &release);
    let mut rebuilt = shadow::check(&plain, &topology, &release);
    for d in &mut rebuilt.disagreements {
        d.kind += ", reconstructed";
    }
    found.kinds.extend(rebuilt.kinds);
    found.disagreements.extend(rebuilt.disagreements);
    Ok(RecordingCheck {
        name: r.name(),
        version: r.meta.version.clone(),
        release: expression,
        kinds: found.kinds,
        disagreements: found.disagreements,
        assumptions: assumptions(&r.meta, &trace),
        diagnostics: r.diagnostics.iter().map(|d| d.to_string()).chain(left_out).collect(),
    })
}

/// `v6.1` for 6.1.x, with the features and tunables that the recording lists.
fn expression_of(path: &Path, meta: &Meta) -> Result<String, FormatError> {
    let mut parts = meta.version.split('.');
    let series = format!("v{}.{}", parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    if !builtin_kernels().iter().any(|(n, _)| *n == series) {
        let have: Vec<&str> = builtin_kernels().iter().map(|k| k.0).collect();
        return Err(FormatError::NoModel {
            path: path.to_owned(),
            version: meta.version.clone(),
            have: have.join(", "),
        });
    }
    let base = kernel(&series)
        .map_err(|e| FormatError::syntax(path, 0, e.to_string(), "a kernel of this series"))?;
    let mut expression = series;
    for f in &meta.features {
        let (name, on) = match f.strip_prefix("NO_") {
            Some(n) => (n.to_lowercase(), false),
            None => (f.to_lowercase(), true),
        };
        if field(&base.release, &name).is_some_and(|v| v != on.to_string()) {
            expression += &format!("{}{name}", if on { '+' } else { '-' });
        }
    }
    let nr_cpus = meta.topology.as_ref().map_or(1, |t| t.smt.len());
    for (name, value) in &meta.tunables {
        let Ok(shown) = value.parse::<u64>() else { continue };
        let scaled = ["base_slice_ns", "latency_ns", "min_granularity_ns", "wakeup_granularity_ns"]
            .contains(&name.as_str());
        let value = if scaled { shown / base.release.scaling(nr_cpus) } else { shown };
        if field(&base.release, name).is_some_and(|v| v != value.to_string()) {
            expression += &format!("+{name}={value}");
        }
    }
    Ok(expression)
}

/// The value of a field of `r`, as text.
fn field(r: &Release, name: &str) -> Option<String> {
    let all = serde_json::to_value(r).ok()?;
    Some(all.get(name)?.to_string())
}

fn assumptions(meta: &Meta, trace: &Trace) -> Vec<String> {
    let mut v = vec![];
    if !trace.rows.iter().any(|r| r.p_nr_cpus_allowed.is_some()) {
        v.push("affinity is not recorded; wakees are taken to be free of it".to_owned());
    }
    if meta.features.is_empty() {
        v.push("features are not recorded; the release's defaults are used".to_owned());
    }
    if meta.hz.is_none() {
        v.push("HZ is not recorded; the release file's is used".to_owned());
    }
    v
}
