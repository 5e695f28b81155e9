//! Fixtures of decision tests: words, each `key=value` or a key alone. What a key means is said
//! where the test is.

use std::str::FromStr;

/// The words of a fixture.
pub struct Fixture<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fixture<'a> {
    pub fn new(text: &'a str) -> Fixture<'a> {
        Fixture(text.split_whitespace().map(|w| w.split_once('=').unwrap_or((w, ""))).collect())
    }
    /// The value of `key`, empty if it stands alone.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|w| w.0 == key).map(|w| w.1)
    }
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
    pub fn number<T: FromStr>(&self, key: &str, default: T) -> T {
        self.get(key).map_or(default, number)
    }
    /// What `key=cpu:value,cpu:value` says by CPU.
    pub fn by_cpu<T: FromStr>(&self, key: &str) -> Vec<(usize, T)> {
        let pairs = self.get(key).unwrap_or("").split(',').filter(|p| !p.is_empty()).map(|p| {
            let (c, x) = p.split_once(':').expect("cpu:value");
            (number(c), number(x))
        });
        pairs.collect()
    }
}

pub fn number<T: FromStr>(s: &str) -> T {
    s.parse().unwrap_or_else(|_| panic!("`{s}` is not a number"))
}
