//! Instructions by `valgrind --tool=callgrind`, if it is installed: the same in every run, where
//! times are not. The windows are a case's own, whatever share of the others is simulated.

use super::case::Case;
use crate::interrupt;
use nix::sys::signal::Signal;
use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};

/// Instructions for each message of `case`: this program below callgrind with two windows, and
/// the difference. `None` without valgrind, or where the case is too large for it; the error says
/// what is wrong with the valgrind that is there.
pub fn per_message(case: &Case, kernel: &str) -> Result<Option<f64>, String> {
    let Some(window) = case.callgrind else { return Ok(None) };
    let Some(short) = count(case, kernel, window.0)? else { return Ok(None) };
    let Some(long) = count(case, kernel, 2 * window.0)? else { return Ok(None) };
    let more = |a: u64, b: u64| a.checked_sub(b).filter(|n| *n > 0);
    match (more(long.0, short.0), more(long.1, short.1)) {
        (Some(instructions), Some(messages)) => Ok(Some(instructions as f64 / messages as f64)),
        _ => Err("twice the window has no more instructions and messages".into()),
    }
}

/// Instructions and messages of one run.
fn count(case: &Case, kernel: &str, window_ns: u64) -> Result<Option<(u64, u64)>, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(this)
        .args(["bench", "--only", &format!("{}:{kernel}:{window_ns}", case.name)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = match child {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        child => child.map_err(|e| format!("valgrind: {e}"))?,
    };
    interrupt::waits_for(Some((child.id(), Signal::SIGTERM)));
    let output = child.wait_with_output();
    interrupt::waits_for(None);
    if interrupt::seen() {
        return Ok(None);
    }
    counted(&output.map_err(|e| format!("valgrind: {e}"))?).map(Some)
}

/// Instructions and messages that `output` tells.
fn counted(output: &Output) -> Result<(u64, u64), String> {
    let log = String::from_utf8_lossy(&output.stderr);
    let last = log.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    if !output.status.success() {
        return Err(format!("valgrind ended with {}: {last}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout).trim().parse().ok();
    let both = collected(&log).zip(messages);
    both.ok_or_else(|| format!("valgrind's output was not understood: {last}"))
}

/// The figure of callgrind's line `==1== Collected : 123`.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains("Collected :"))?;
    line.split("Collected :").nth(1)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn reads_what_callgrind_prints() {
        let log = "==12== Events    : Ir\n==12== Collected : 4803\n==12==\n";
        assert_eq!(collected(log), Some(4803));
        assert_eq!(collected("==12== error"), None);
    }

    /// Figures of a run that failed are none, and it is told what valgrind said.
    #[test]
    fn a_broken_valgrind_says_so() {
        let of = |code: i32, stdout: &str, stderr: &str| {
            let (stdout, stderr) = (stdout.into(), stderr.into());
            counted(&Output { status: ExitStatus::from_raw(code << 8), stdout, stderr })
        };
        assert_eq!(of(0, "70\n", "==12== Collected : 4803\n"), Ok((4803, 70)));
        let e = of(1, "70\n", "==12== Collected : 4803\nvalgrind: no tool\n\n").unwrap_err();
        assert_eq!(e, "valgrind ended with exit status: 1: valgrind: no tool");
        assert!(of(0, "", "==12== Collected : 4803").unwrap_err().contains("not understood"));
    }
}
