//! What stands in front of a benchmark: `taskset`, `nice`, `chrt`.

use crate::error::WorkloadError;
use std::ops::RangeInclusive;
use vruntime_base::{Cpu, CpuMask, MAX_CPUS};
use vruntime_kernel::program::RootTask;
use vruntime_machine::parse_cpulist;
use vruntime_sched::task::Policy;

/// How the benchmark's first task starts; its children inherit it.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// `taskset`.
    pub cpus: Option<CpuMask>,
    /// `chrt`.
    pub policy: Policy,
    /// `nice -n N`.
    pub nice: i8,
    /// Priority under `chrt -f` and `chrt -r`, otherwise 0.
    pub rt_priority: u8,
}

impl Default for Launch {
    fn default() -> Self {
        Launch { cpus: None, policy: Policy::Normal, nice: 0, rt_priority: 0 }
    }
}

impl Launch {
    /// As a [`RootTask`] with this footprint.
    pub(crate) fn root(&self, footprint_kib: u16) -> RootTask {
        RootTask {
            cpus: self.cpus,
            group: 0,
            policy: self.policy,
            nice: self.nice,
            rt_priority: self.rt_priority,
            footprint_kib,
            ends_run: true,
            from_shell: true,
        }
    }

    /// The words again, with a space after them.
    pub(crate) fn prefix(&self) -> String {
        let mut s = String::new();
        if let Some(cpus) = &self.cpus {
            s += &format!("taskset -c {cpus} ");
        }
        if self.nice != 0 {
            s += &format!("nice -n {} ", self.nice);
        }
        match self.policy {
            Policy::Batch => s += "chrt -b 0 ",
            Policy::Idle => s += "chrt -i 0 ",
            Policy::Fifo => s += &format!("chrt -f {} ", self.rt_priority),
            Policy::Rr => s += &format!("chrt -r {} ", self.rt_priority),
            Policy::Normal | Policy::Stop => {}
        }
        s
    }
}

/// Takes the wrapper commands off the front of `words`.
pub(crate) fn parse(words: &[String]) -> Result<(Launch, &[String]), WorkloadError> {
    let mut l = Launch::default();
    let mut rest = words;
    loop {
        let Some((program, words)) = rest.split_first() else { return Ok((l, rest)) };
        // They may stand with their path.
        rest = match program.rsplit('/').next().unwrap_or(program) {
            "taskset" => taskset(&mut l, words)?,
            "nice" => nice(&mut l, words)?,
            "chrt" => chrt(&mut l, words)?,
            _ => return Ok((l, rest)),
        };
    }
}

/// `taskset -c LIST` or `taskset MASK`.
fn taskset<'w>(l: &mut Launch, words: &'w [String]) -> Result<&'w [String], WorkloadError> {
    let bad = |option: &str, expected: &str, found: Option<&String>| WorkloadError::Value {
        program: "taskset",
        option: option.into(),
        expected: expected.into(),
        found: found.map_or("nothing".into(), |w| format!("`{w}`")),
    };
    let of_list = |word: &String| parse_cpulist(word, "").ok().filter(|cpus| !cpus.is_empty());
    let known = ["-c", "--cpu-list"];
    let Some(word) = words.first() else { return Err(bad("options", &known.join(", "), None)) };
    let attached = known.iter().find_map(|k| match word.strip_prefix(k)? {
        "" => None,
        rest => Some(rest.trim_start_matches('=').to_string()),
    });
    let (cpus, option, expected, found, used) = if known.contains(&word.as_str()) {
        let list = words.get(1);
        (list.and_then(of_list), word.as_str(), "CPUs such as `3` or `0-3,8`", list, 2)
    } else if let Some(list) = &attached {
        (of_list(list), known[0], "CPUs such as `3` or `0-3,8`", Some(list), 1)
    } else if word.starts_with('-') {
        return Err(bad("options", &known.join(", "), Some(word)));
    } else {
        (of_mask(word), "mask", "hexadecimal digits such as `0x0f`, or -c LIST", Some(word), 1)
    };
    match cpus {
        Some(cpus) => l.cpus = Some(cpus),
        None => return Err(bad(option, expected, found)),
    }
    Ok(words.get(used..).unwrap_or_default())
}

/// A mask in hexadecimal digits; commas may stand between them, as in /proc.
fn of_mask(word: &str) -> Option<CpuMask> {
    let digits = word.trim_start_matches("0x").bytes().filter(|b| *b != b',').rev();
    let mut cpus = CpuMask::EMPTY;
    for (i, digit) in digits.enumerate() {
        let bits = char::from(digit).to_digit(16)?;
        for bit in (0..4).filter(|bit| bits & (1 << bit) != 0) {
            let cpu = 4 * i + bit;
            if cpu >= MAX_CPUS {
                return None;
            }
            cpus.set(Cpu::from_ix(cpu));
        }
    }
    (!cpus.is_empty()).then_some(cpus)
}

/// `nice -n N`, or `nice` alone for 10; each adds to what it was started with.
fn nice<'w>(l: &mut Launch, words: &'w [String]) -> Result<&'w [String], WorkloadError> {
    let alone = words.first().is_some_and(|w| !w.starts_with('-'));
    let (n, rest) = if alone {
        (10, words)
    } else {
        let (_, n, rest) = option("nice", words, &["-n", "--adjustment"], -20..=19, "")?;
        (n, rest)
    };
    l.nice = (i64::from(l.nice) + n).clamp(-20, 19) as i8;
    Ok(rest)
}

/// `chrt -f N` and so on; SCHED_RR without an option.
fn chrt<'w>(l: &mut Launch, words: &'w [String]) -> Result<&'w [String], WorkloadError> {
    const KNOWN: &[&str] =
        &["-b", "--batch", "-i", "--idle", "-o", "--other", "-f", "--fifo", "-r", "--rr"];
    let alone = words.first().filter(|w| w.parse::<u32>().is_ok());
    let word = alone.map_or_else(|| words.first().map_or("", String::as_str), |_| "-r");
    let (policy, range) = if word.starts_with("-b") || word.starts_with("--b") {
        (Policy::Batch, 0..=0)
    } else if word.starts_with("-i") || word.starts_with("--i") {
        (Policy::Idle, 0..=0)
    } else if word.starts_with("-f") || word.starts_with("--f") {
        (Policy::Fifo, 1..=99)
    } else if word.starts_with("-r") || word.starts_with("--r") {
        (Policy::Rr, 1..=99)
    } else {
        (Policy::Normal, 0..=0)
    };
    let meaning = "priority: ";
    let (priority, rest) = if alone.is_some() {
        (number("chrt", "priority", alone.map(String::as_str), range, meaning)?, &words[1..])
    } else {
        let (_, n, rest) = option("chrt", words, KNOWN, range, meaning)?;
        (n, rest)
    };
    (l.policy, l.rt_priority) = (policy, priority as u8);
    Ok(rest)
}

/// An option of `known`, its number in `range` – after it, attached to its letter, or after `=` –
/// and the words that follow.
fn option<'w>(
    program: &'static str,
    words: &'w [String],
    known: &'static [&'static str],
    range: RangeInclusive<i64>,
    meaning: &str,
) -> Result<(&'static str, i64, &'w [String]), WorkloadError> {
    let word = words.first().map(String::as_str);
    let attached = |k: &&'static str| {
        let rest = word?.strip_prefix(*k)?;
        let value = if k.starts_with("--") { rest.strip_prefix('=')? } else { rest };
        (!value.is_empty()).then_some((*k, Some(value), &words[1..]))
    };
    let (name, value, rest) = known
        .iter()
        .find(|k| word == Some(**k))
        .map(|k| (*k, words.get(1).map(String::as_str), words.get(2..).unwrap_or_default()))
        .or_else(|| known.iter().find_map(attached))
        .ok_or_else(|| WorkloadError::Value {
            program,
            option: "options".into(),
            expected: known.join(", "),
            found: word.map_or("nothing".into(), |w| format!("`{w}`")),
        })?;
    Ok((name, number(program, name, value, range, meaning)?, rest))
}

/// `value` as a number in `range`.
fn number(
    program: &'static str,
    option: &str,
    value: Option<&str>,
    range: RangeInclusive<i64>,
    meaning: &str,
) -> Result<i64, WorkloadError> {
    let (min, max) = (*range.start(), *range.end());
    let within = value.and_then(|v| v.parse::<i64>().ok()).filter(|n| range.contains(n));
    let wanted = if min == max { min.to_string() } else { format!("from {min} to {max}") };
    within.ok_or_else(|| WorkloadError::Value {
        program,
        option: option.into(),
        expected: format!("{meaning}a whole number {wanted}"),
        found: value.map_or("nothing".into(), |w| format!("`{w}`")),
    })
}

#[cfg(test)]
mod tests {
    use crate::parse;

    fn prefix(c: &str) -> String {
        match parse(&format!("{c} spin 1 1")) {
            Ok(w) => w.command_line().strip_suffix("spin 1 1").unwrap().to_string(),
            Err(e) => format!("error: {e}"),
        }
    }

    #[test]
    fn wrappers_in_their_spellings() {
        for c in ["taskset -c 3", "taskset -c3", "taskset --cpu-list 3", "taskset --cpu-list=3"] {
            assert_eq!(prefix(c), "taskset -c 3 ");
            assert_eq!(prefix(&format!("/usr/bin/{c}")), "taskset -c 3 ");
        }
        for c in ["nice -n -5", "nice -n-5", "nice --adjustment=-5", "nice -n 5 nice -n -10"] {
            assert_eq!(prefix(c), "nice -n -5 ");
        }
        assert_eq!(prefix("chrt -b 0"), "chrt -b 0 ");
        assert_eq!(prefix("chrt --idle 0"), "chrt -i 0 ");
        assert_eq!(prefix("chrt -b 0 chrt -o 0"), "");
        assert_eq!(prefix("chrt --fifo 50"), "chrt -f 50 ");
        assert_eq!(prefix("chrt -r1"), "chrt -r 1 ");
        assert_eq!(prefix("chrt 7"), "chrt -r 7 ");
        assert_eq!(prefix("nice"), "nice -n 10 ");
        assert_eq!(prefix("taskset 0x8"), "taskset -c 3 ");
        assert_eq!(prefix("taskset 10"), "taskset -c 4 ");
        assert_eq!(prefix("taskset -c 8,0-3"), "taskset -c 0-3,8 ");
        assert_eq!(prefix("taskset 1,0000000F"), "taskset -c 0-3,32 ");
        let all = "taskset -c 0 nice -n 19 chrt -i 0 ";
        assert_eq!(prefix("chrt -i 0 nice -n 19 taskset -c 0"), all);
    }

    #[test]
    fn wrong_wrappers() {
        assert_eq!(
            prefix("taskset -c 3-0"),
            "error: taskset: -c: expected CPUs such as `3` or `0-3,8`, found `3-0`"
        );
        assert_eq!(
            prefix("chrt -d 50"),
            "error: chrt: options: expected -b, --batch, -i, --idle, -o, --other, -f, --fifo, -r, \
             --rr, found `-d`"
        );
        assert!(prefix("chrt -b 1").contains("expected priority: a whole number 0, found `1`"));
        assert!(prefix("chrt -f 100").contains("from 1 to 99, found `100`"));
        assert!(prefix("chrt 0").contains("from 1 to 99, found `0`"));
        assert!(prefix("taskset 0").contains("hexadecimal digits"));
        assert!(prefix("taskset 5g").contains("hexadecimal digits"));
        assert!(prefix("taskset -c 1024").contains("found `1024`"));
        assert!(prefix("nice -n 20").contains("from -20 to 19, found `20`"));
        assert!(parse("taskset -c").err().unwrap().to_string().ends_with("found nothing"));
        assert!(parse("nice").err().unwrap().to_string().ends_with("found nothing"));
        let nothing = parse("taskset -c 1").err().unwrap().to_string();
        assert!(nothing.starts_with("workload `taskset -c 1`: expected a benchmark"), "{nothing}");
    }
}
