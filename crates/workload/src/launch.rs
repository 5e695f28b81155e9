//! What stands in front of a benchmark: `taskset`, `nice`, `chrt`.

use crate::error::WorkloadError;
use std::ops::RangeInclusive;
use vruntime_base::Cpu;
use vruntime_kernel::program::RootTask;
use vruntime_sched::task::Policy;

/// How the benchmark's first task starts; its children inherit it.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// `taskset -c N`.
    pub pin: Option<Cpu>,
    /// `chrt`.
    pub policy: Policy,
    /// `nice -n N`.
    pub nice: i8,
}

impl Launch {
    /// As a [`RootTask`] with this footprint.
    pub(crate) fn root(&self, footprint_kib: u32) -> RootTask {
        RootTask {
            pin: self.pin,
            policy: self.policy,
            nice: self.nice,
            footprint_kib,
            ends_run: true,
        }
    }

    /// The words again, with a space after them.
    pub(crate) fn prefix(&self) -> String {
        let mut s = String::new();
        if let Some(c) = self.pin {
            s += &format!("taskset -c {c} ");
        }
        if self.nice != 0 {
            s += &format!("nice -n {} ", self.nice);
        }
        match self.policy {
            Policy::Batch => s += "chrt -b 0 ",
            Policy::Idle => s += "chrt -i 0 ",
            _ => {}
        }
        s
    }
}

/// Takes the wrapper commands off the front of `words`.
pub(crate) fn parse(words: &[String]) -> Result<(Launch, &[String]), WorkloadError> {
    let mut l = Launch { pin: None, policy: Policy::Normal, nice: 0 };
    let mut rest = words;
    loop {
        match rest.first().map(String::as_str) {
            Some("taskset") => {
                let (_, cpu, r) =
                    option("taskset", &rest[1..], &["-c", "--cpu-list"], 0..=1023, "one CPU, ")?;
                (l.pin, rest) = (Some(Cpu(cpu as u16)), r);
            }
            Some("nice") => {
                // Each `nice` adds to what it was started with.
                let known = &["-n", "--adjustment"];
                let (_, n, r) = option("nice", &rest[1..], known, -20..=19, "")?;
                (l.nice, rest) = ((i64::from(l.nice) + n).clamp(-20, 19) as i8, r);
            }
            Some("chrt") => {
                let known = &["-b", "--batch", "-i", "--idle", "-o", "--other"];
                let (word, _, r) = option("chrt", &rest[1..], known, 0..=0, "priority: ")?;
                l.policy = match word {
                    "-b" | "--batch" => Policy::Batch,
                    "-i" | "--idle" => Policy::Idle,
                    _ => Policy::Normal,
                };
                rest = r;
            }
            _ => return Ok((l, rest)),
        }
    }
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
    let bad = |option: &str, expected: String, found: Option<&str>| WorkloadError::Value {
        program,
        option: option.into(),
        expected,
        found: found.map_or("nothing".into(), |w| format!("`{w}`")),
    };
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
        .ok_or_else(|| bad("options", known.join(", "), word))?;
    match value.and_then(|v| v.parse::<i64>().ok()) {
        Some(n) if range.contains(&n) => Ok((name, n, rest)),
        _ => {
            let (min, max) = range.into_inner();
            let number = if min == max { min.to_string() } else { format!("from {min} to {max}") };
            Err(bad(name, format!("{meaning}a whole number {number}"), value))
        }
    }
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
        }
        for c in ["nice -n -5", "nice -n-5", "nice --adjustment=-5", "nice -n 5 nice -n -10"] {
            assert_eq!(prefix(c), "nice -n -5 ");
        }
        assert_eq!(prefix("chrt -b 0"), "chrt -b 0 ");
        assert_eq!(prefix("chrt --idle 0"), "chrt -i 0 ");
        assert_eq!(prefix("chrt -b 0 chrt -o 0"), "");
        let all = "taskset -c 0 nice -n 19 chrt -i 0 ";
        assert_eq!(prefix("chrt -i 0 nice -n 19 taskset -c 0"), all);
    }

    #[test]
    fn wrong_wrappers() {
        assert_eq!(
            prefix("taskset -c 0-3"),
            "error: taskset: -c: expected one CPU, a whole number from 0 to 1023, found `0-3`"
        );
        assert_eq!(
            prefix("chrt -f 50"),
            "error: chrt: options: expected -b, --batch, -i, --idle, -o, --other, found `-f`"
        );
        assert!(prefix("chrt -b 1").contains("expected priority: a whole number 0, found `1`"));
        assert!(prefix("nice -n 20").contains("from -20 to 19, found `20`"));
        assert!(parse("taskset -c").err().unwrap().to_string().ends_with("found nothing"));
        assert!(parse("nice").err().unwrap().to_string().ends_with("found nothing"));
        assert!(parse("taskset -c 1").err().unwrap().to_string().starts_with("no workload ``"));
    }
}
