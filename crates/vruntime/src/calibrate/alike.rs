//! Whether one CPU can stand for all.
//!
//! The model's CPUs are all alike. What takes one CPU is measured on CPU 0, and of pairs only some:
//! on a machine with cores of two kinds that is half of the truth, and the user is told.

use std::fs;
use std::path::Path;

/// What CPUs of different kinds have different, below `devices/system/cpu/cpuN`.
const FILES: [(&str, &str); 2] =
    [("cpu_capacity", "cpu_capacity"), ("cpuinfo_max_freq", "cpufreq/cpuinfo_max_freq")];
/// Intel's two kinds of cores, each with counters of its own, below `devices`.
const KINDS: [&str; 2] = ["cpu_core", "cpu_atom"];

/// One line about what differs between the CPUs of the sysfs at `root`; `None` if nothing does, or
/// nothing tells.
pub fn difference(root: &Path, nr_cpus: usize) -> Option<String> {
    let read = |at: String| Some(fs::read_to_string(root.join(at)).ok()?.trim().to_string());
    let of_kind = |kind: &str| {
        let cpus = read(format!("devices/{kind}/cpus")).filter(|cpus| !cpus.is_empty())?;
        Some(format!("{kind} {cpus}"))
    };
    let kinds: Option<Vec<_>> = KINDS.iter().map(|kind| of_kind(kind)).collect();
    let numbers = |(name, file): &(&str, &str)| {
        let of = |c| read(format!("devices/system/cpu/cpu{c}/{file}"))?.parse::<u64>().ok();
        let all: Vec<u64> = (0..nr_cpus).map_while(of).collect();
        let (least, most) = (all.iter().min()?, all.iter().max()?);
        (least < most).then(|| format!("{name} {least} to {most}, of CPU 0 {}", all[0]))
    };
    let what = kinds.map(|kinds| kinds.join(", ")).or_else(|| FILES.iter().find_map(numbers))?;
    Some(format!("CPUs differ ({what}): figures are those of the CPUs measured, mostly CPU 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_two_kinds_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let put = |at: &str, text: &str| {
            let path = dir.path().join(at);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let told = || difference(dir.path(), 2);
        assert_eq!(told(), None);
        let cpu = |c: usize, file: &str| format!("devices/system/cpu/cpu{c}/{file}");
        put(&cpu(0, "cpu_capacity"), "1024\n");
        put(&cpu(1, "cpu_capacity"), "1024\n");
        put(&cpu(0, "cpufreq/cpuinfo_max_freq"), "4700000\n");
        put(&cpu(1, "cpufreq/cpuinfo_max_freq"), "4700000\n");
        put("devices/cpu_core/cpus", "0-1\n");
        assert_eq!(told(), None);
        put(&cpu(1, "cpufreq/cpuinfo_max_freq"), "3500000\n");
        let text = told().unwrap();
        assert!(text.contains("(cpuinfo_max_freq 3500000 to 4700000, of CPU 0 4700000)"), "{text}");
        put(&cpu(1, "cpu_capacity"), "446\n");
        assert!(told().unwrap().contains("(cpu_capacity 446 to 1024, of CPU 0 1024)"));
        put("devices/cpu_atom/cpus", "1\n");
        put("devices/cpu_core/cpus", "0\n");
        assert!(told().unwrap().starts_with("CPUs differ (cpu_core 0, cpu_atom 1): figures are"));
    }
}
