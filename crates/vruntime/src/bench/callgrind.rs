//! Instructions by `valgrind --tool=callgrind`, if it is installed: the same in every run, where
//! times are not.

use super::case::Case;
use std::process::Command;

/// Instructions for each message of `case`: this program below callgrind with two windows, and
/// the difference. `None` without valgrind, or where the case is too large for it.
pub fn per_message(case: &Case, kernel: &str) -> Option<f64> {
    let window = case.callgrind?.0;
    let (short, long) = (count(case, kernel, window)?, count(case, kernel, 2 * window)?);
    let messages = long.1.checked_sub(short.1).filter(|n| *n > 0)?;
    Some(long.0.checked_sub(short.0)? as f64 / messages as f64)
}

/// Instructions and messages of one run.
fn count(case: &Case, kernel: &str, window_ns: u64) -> Option<(u64, u64)> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args(["bench", "--only", &format!("{}:{kernel}:{window_ns}", case.name)])
        .output()
        .ok()?;
    let messages = String::from_utf8_lossy(&output.stdout).trim().parse().ok()?;
    let log = String::from_utf8_lossy(&output.stderr);
    Some((collected(&log)?, messages))
}

/// The figure of callgrind's line `==1== Collected : 123`.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.split("Collected :").nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_callgrind_prints() {
        let log = "==12== Events    : Ir\n==12== Collected : 4803\n==12==\n";
        assert_eq!(collected(log), Some(4803));
        assert_eq!(collected("==12== error"), None);
    }
}
