//! What this machine lets `host-check` measure: tried before the first round, so that a command
//! that is not permitted costs its own rows and not those of the others.

use crate::host_timers::COMMANDS;

/// What counts the migrations of the command that follows.
pub const MIGRATIONS: [&str; 7] = ["perf", "stat", "-x", ",", "-e", "cpu-migrations", "--"];

/// Runs a command that must succeed: stdout and stderr.
type Run<'a> = &'a dyn Fn(&[&str]) -> Result<(String, String), String>;

/// What can be measured.
pub struct Able {
    /// `perf stat` may count migrations.
    pub migrations: bool,
    /// The command lines of cyclictest that work.
    pub timers: Vec<&'static str>,
    /// What is left out, each with its reason.
    pub left_out: Vec<String>,
}

/// Tries everything for some milliseconds.
pub fn able(run: Run) -> Able {
    let mut left_out = Vec::new();
    let mut works = |what: &str, result: Result<(), String>| {
        let ends = |problem: String| {
            let said = problem.lines().map(str::trim).filter(|l| !l.is_empty());
            let said: Vec<&str> = said.take(2).collect();
            left_out.push(format!("{what} (`{}`)", said.join(" ")));
        };
        result.map_err(ends).is_ok()
    };
    let count =
        run(&[&MIGRATIONS[..], &["true"]].concat()).and_then(|(_, e)| counted(&e).map(drop));
    let migrations = works("migrations", count);
    // A later -l counts.
    let briefly = |command: &str| {
        run(&command.split(' ').chain(["-l", "5", "-v"]).collect::<Vec<_>>()).map(drop)
    };
    let timers = COMMANDS.into_iter().filter(|c| works(&format!("`{c}`"), briefly(c))).collect();
    Able { migrations, timers, left_out }
}

/// The migrations that `perf stat -x ,` counted.
pub fn counted(stderr: &str) -> Result<f64, String> {
    let row = stderr.lines().find(|l| l.contains("cpu-migrations"));
    let count = row.and_then(|l| l.split(',').next()?.parse().ok());
    count.ok_or_else(|| format!("perf stat counts no migrations: {stderr}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One failure leaves out one thing, and says why.
    #[test]
    fn what_fails_is_left_out_and_the_rest_stays() {
        let all = able(&|_| Ok((String::new(), "0,,cpu-migrations,9,100.00,,\n".into())));
        assert!(all.migrations && all.left_out.is_empty());
        assert_eq!(all.timers, COMMANDS);
        let some = able(&|words| match words {
            ["perf", ..] => Ok((String::new(), "<not supported>,,cpu-migrations\n".into())),
            [_, "-p", ..] => Err("cyclictest: exit status: 1: \nunable to set scheduler\n".into()),
            [.., "-l", "5", "-v"] => Ok(Default::default()),
            _ => Err("not tried briefly".into()),
        });
        assert!(!some.migrations);
        assert_eq!(some.timers, COMMANDS[1..]);
        let [counts, timer] = &some.left_out[..] else { panic!("{:?}", some.left_out) };
        assert!(counts.starts_with("migrations (`perf stat counts no migrations: <not s"));
        let reason = "(`cyclictest: exit status: 1: unable to set scheduler`)";
        assert_eq!(*timer, format!("`{}` {reason}", COMMANDS[0]));
    }
}
