//! What stands in front of a benchmark: `taskset`, `nice`, `chrt`.

use crate::error::WorkloadError;
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

fn number(
    program: &'static str,
    option: &str,
    word: Option<&String>,
    range: std::ops::RangeInclusive<i64>,
) -> Result<i64, WorkloadError> {
    let found = word.map_or("nothing".to_string(), |w| format!("`{w}`"));
    match word.and_then(|w| w.parse::<i64>().ok()) {
        Some(n) if range.contains(&n) => Ok(n),
        _ => Err(WorkloadError::Value {
            program,
            option: option.into(),
            expected: format!("a whole number from {} to {}", range.start(), range.end()),
            found,
        }),
    }
}

/// Takes the wrapper commands off the front of `words`.
pub(crate) fn parse(words: &[String]) -> Result<(Launch, &[String]), WorkloadError> {
    let mut l = Launch { pin: None, policy: Policy::Normal, nice: 0 };
    let mut rest = words;
    loop {
        match rest.first().map(String::as_str) {
            Some("taskset") => {
                expect("taskset", rest.get(1), &["-c", "--cpu-list"])?;
                let cpu = number("taskset", "-c", rest.get(2), 0..=1023)?;
                l.pin = Some(Cpu(cpu as u16));
                rest = &rest[3..];
            }
            Some("nice") => {
                expect("nice", rest.get(1), &["-n", "--adjustment"])?;
                l.nice = number("nice", "-n", rest.get(2), -20..=19)? as i8;
                rest = &rest[3..];
            }
            Some("chrt") => {
                let word = expect("chrt", rest.get(1), &["-b", "-i", "-o"])?;
                number("chrt", word, rest.get(2), 0..=0)?;
                l.policy = match word {
                    "-b" => Policy::Batch,
                    "-i" => Policy::Idle,
                    _ => Policy::Normal,
                };
                rest = &rest[3..];
            }
            _ => return Ok((l, rest)),
        }
    }
}

fn expect(
    program: &'static str,
    word: Option<&String>,
    known: &'static [&'static str],
) -> Result<&'static str, WorkloadError> {
    known.iter().copied().find(|k| word.is_some_and(|w| w == k)).ok_or_else(|| {
        WorkloadError::Value {
            program,
            option: "options".into(),
            expected: known.join(", "),
            found: word.map_or("nothing".into(), |w| format!("`{w}`")),
        }
    })
}
