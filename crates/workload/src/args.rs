//! Reads options and checks values.
//!
//! As the real tools' parsers (getopt_long and perf's) do, a long option may be cut short as long
//! as it stays unambiguous: `--loop` for `--loops`. The value of a short one is the next word or
//! stands right behind it; `-g=5` has the value `=5` there.

use crate::error::{WorkloadError, nearest};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsStr;

/// The words after a program's name.
pub(crate) struct Args {
    program: &'static str,
    synopsis: &'static str,
    known: &'static [&'static str],
    /// Options of the real tool that the model does not have.
    others: &'static [&'static str],
    parser: Parser,
    /// The last option was a short one.
    short: bool,
}

impl Args {
    pub(crate) fn new(
        program: &'static str,
        synopsis: &'static str,
        known: &'static [&'static str],
        words: &[String],
    ) -> Args {
        let mut parser = Parser::from_args(words);
        parser.set_short_equals(false);
        Args { program, synopsis, known, others: &[], parser, short: false }
    }

    /// The real tool has these, too.
    pub(crate) fn but_not(self, others: &'static [&'static str]) -> Args {
        Args { others, ..self }
    }

    /// The next option as `-g` or `--groups`, or a plain word; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<String>, WorkloadError> {
        let next = self.parser.next();
        self.short = matches!(next, Ok(Some(Arg::Short(_))));
        match next {
            Ok(None) => Ok(None),
            Ok(Some(Arg::Short(c))) => Ok(Some(format!("-{c}"))),
            Ok(Some(Arg::Long(l))) => {
                let long = format!("--{l}");
                Ok(Some(self.whole(&long)))
            }
            Ok(Some(Arg::Value(v))) => Ok(Some(v.to_string_lossy().into_owned())),
            Err(e) => Err(self.bad("options", "an option", &e.to_string())),
        }
    }

    /// The option that `long` is, or is the unambiguous beginning of; otherwise `long` itself.
    fn whole(&self, long: &str) -> String {
        let mut fit = self.known.iter().filter(|k| k.starts_with(long));
        match (self.known.contains(&long), fit.next(), fit.next()) {
            (false, Some(one), None) => one.to_string(),
            _ => long.to_string(),
        }
    }

    /// The value of `option`, a whole number in `min ..= max`.
    pub(crate) fn number(
        &mut self,
        option: &str,
        min: u64,
        max: u64,
    ) -> Result<u64, WorkloadError> {
        let expected = format!("a whole number from {min} to {max}");
        let text = self.text(option, &expected)?;
        self.check(option, &text, min, max)
    }

    /// The value of `option`, which is to be `expected`.
    pub(crate) fn text(&mut self, option: &str, expected: &str) -> Result<String, WorkloadError> {
        match self.parser.value() {
            Ok(v) if self.short && v.as_encoded_bytes().starts_with(b"=") => {
                let found = v.to_string_lossy();
                let expected = format!("{expected} behind a space; `=` follows long options");
                Err(self.bad(option, &expected, &format!("`{found}`")))
            }
            Ok(v) => v.string().map_err(|_| self.bad(option, expected, "no text")),
            Err(_) => Err(self.bad(option, expected, "nothing")),
        }
    }

    /// The value of an option that may have none: attached to it, or the next word if that begins
    /// with a digit.
    pub(crate) fn optional(&mut self) -> Option<String> {
        let is_number = |w: &OsStr| w.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
        let attached = self.parser.optional_value();
        let value = attached.or_else(|| self.parser.try_raw_args()?.next_if(is_number))?;
        Some(value.to_string_lossy().into_owned())
    }

    /// `text` as a whole number in `min ..= max`.
    pub(crate) fn check(
        &self,
        option: &str,
        text: &str,
        min: u64,
        max: u64,
    ) -> Result<u64, WorkloadError> {
        match text.parse::<u64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(self.bad(
                option,
                &format!("a whole number from {min} to {max}"),
                &format!("`{text}`"),
            )),
        }
    }

    pub(crate) fn bad(&self, option: &str, expected: &str, found: &str) -> WorkloadError {
        WorkloadError::Value {
            program: self.program,
            option: option.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn unknown(&self, option: &str) -> WorkloadError {
        if self.others.contains(&option) {
            let (program, option, synopsis) = (self.program, option.into(), self.synopsis);
            return WorkloadError::NotModelled { program, option, synopsis };
        }
        WorkloadError::Option {
            program: self.program,
            option: option.into(),
            nearest: nearest(option, self.known.iter().copied()),
            synopsis: self.synopsis,
        }
    }
}
