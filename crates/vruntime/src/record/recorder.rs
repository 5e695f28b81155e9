//! Who records: perf, or tracefs where there is no perf.

use crate::failure::Failure;
use crate::interrupt;
use clap::ValueEnum;
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{fs, io};

/// The events of `perf sched record` that a [`vruntime_base::Timeline`] holds, the processes'
/// beginnings and ends, and for how long tasks were accounted, which `trace check` goes by.
const EVENTS: [&str; 9] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_stat_runtime",
];

/// Where tracefs is mounted: by itself, or below debugfs on older systems.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A way to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum With {
    /// `perf record`: perf.data
    Perf,
    /// A ring buffer of its own below /sys/kernel/tracing: ftrace text
    Tracefs,
}

/// A way to record that works here.
pub enum Recorder {
    /// perf.
    Perf,
    /// tracefs, mounted there.
    Tracefs(PathBuf),
}

/// What to record.
pub struct Request<'a> {
    /// Where the trace goes.
    pub dir: &'a Path,
    /// The program and its arguments.
    pub command: &'a [String],
    /// Buffer of each CPU.
    pub buffer_kib: u64,
    /// The command's output must not mix with ours.
    pub stdout_is_ours: bool,
}

/// What was recorded.
pub struct Recorded {
    /// The trace.
    pub file: PathBuf,
    /// How the command ended.
    pub status: ExitStatus,
}

impl Recorder {
    /// The recorder that was asked for, or the first that works; an error says why none does.
    pub fn find(with: Option<With>) -> Result<Recorder, Failure> {
        let perf = || perf_works().map(|()| Recorder::Perf).map_err(|e| format!("perf: {e}"));
        let tracefs =
            || tracefs_works().map(Recorder::Tracefs).map_err(|e| format!("tracefs: {e}"));
        let found = match with {
            Some(With::Perf) => perf(),
            Some(With::Tracefs) => tracefs(),
            None => {
                perf().or_else(|first| tracefs().map_err(|second| format!("{first}; {second}")))
            }
        };
        let needs = match nix::unistd::geteuid().is_root() {
            true => "",
            false => {
                " (it takes root, or perf_event_paranoid -1 and a readable /sys/kernel/tracing)"
            }
        };
        found.map_err(|why| {
            Failure::Input(format!("scheduling events cannot be recorded here{needs}: {why}"))
        })
    }
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Recorder::Perf => "perf",
            Recorder::Tracefs(_) => "tracefs",
        }
    }
    /// Runs the command and records until it ends.
    pub fn run(&self, request: &Request) -> Result<Recorded, Failure> {
        match self {
            Recorder::Perf => with_perf(request),
            Recorder::Tracefs(root) => with_tracefs(root, request),
        }
    }
}

/// Fails if there is no such program.
pub fn program(word: &str) -> Result<(), Failure> {
    if is_program(word) {
        return Ok(());
    }
    Err(Failure::Usage(format!("no program `{word}`; expected one in $PATH, or a path")))
}

/// True if a shell would find it.
fn is_program(word: &str) -> bool {
    let runs = |p: &Path| {
        use std::os::unix::fs::PermissionsExt;
        p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if word.contains('/') {
        return runs(Path::new(word));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| runs(&dir.join(word)))
}

/// perf, which a lost terminal (SIGHUP) must not end: what it has recorded could not be read.
fn perf(file: &Path, buffer_kib: u64) -> Command {
    let mut perf = Command::new("sh");
    perf.args(["-c", "trap '' HUP; exec perf \"$@\"", "perf"]);
    let events = EVENTS.map(|e| format!("sched:{e}")).join(",");
    perf.args(["record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-c", "1", "-R"])
        .args(["-m", &format!("{buffer_kib}K"), "-e", &events, "-o"])
        .arg(file)
        .arg("--");
    perf
}

/// Records `true`.
fn perf_works() -> Result<(), String> {
    if !is_program("perf") {
        return Err("there is no such program".into());
    }
    let file = std::env::temp_dir().join(format!("vruntime-{}.data", std::process::id()));
    let output = perf(&file, 64).arg("true").stdin(Stdio::null()).output();
    // Nothing was written if perf did not start.
    let _ = fs::remove_file(&file);
    let output = output.map_err(|e| format!("it cannot be started ({e})"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    Err(format!("it says \"{}\"", said.first().unwrap_or(&"nothing")))
}

fn with_perf(request: &Request) -> Result<Recorded, Failure> {
    let file = request.dir.join("perf.data");
    let mut command = perf(&file, request.buffer_kib);
    command.args(request.command).stdout(stdout(request)?);
    // perf ends as the command did, and SIGINT ends both.
    let status = wait(&mut command, Signal::SIGINT);
    let status = status.map_err(|e| Failure::Input(format!("perf: {e}")))?;
    if !file.is_file() {
        return Err(Failure::Input(format!("perf ended with {status} and left no perf.data")));
    }
    Ok(Recorded { file, status })
}

/// Runs `command` to its end; a signal that we get alone becomes `ends` for it.
fn wait(command: &mut Command, ends: Signal) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    interrupt::waits_for(Some((child.id(), ends)));
    let status = child.wait();
    interrupt::waits_for(None);
    status
}

/// Our own output, or the one for messages if ours is for a reader of JSON.
fn stdout(request: &Request) -> Result<Stdio, Failure> {
    if !request.stdout_is_ours {
        return Ok(Stdio::inherit());
    }
    let copy = io::stderr().as_fd().try_clone_to_owned();
    Ok(Stdio::from(copy.map_err(|e| Failure::Input(format!("stderr: {e}")))?))
}

fn tracefs_works() -> Result<PathBuf, String> {
    let root = TRACEFS.iter().map(Path::new).find(|root| root.join("instances").is_dir());
    let root = root.ok_or("it is not mounted, or only root may see it")?;
    Instance::new(root).map_err(|e| format!("{}: {e}", root.display()))?;
    Ok(root.into())
}

/// Removes the buffers of recordings that were killed.
fn remove_abandoned(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("vruntime-"));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A ring buffer of our own, gone when dropped.
struct Instance(PathBuf);

impl Instance {
    fn new(root: &Path) -> io::Result<Instance> {
        remove_abandoned(&root.join("instances"));
        let dir = root.join(format!("instances/vruntime-{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Instance(dir))
    }
    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(name), value)
    }
    fn begin(&self, buffer_kib: u64) -> io::Result<()> {
        self.set("tracing_on", "0")?;
        self.set("trace_clock", "mono")?;
        self.set("buffer_size_kb", &buffer_kib.to_string())?;
        for event in EVENTS {
            self.set(&format!("events/sched/{event}/enable"), "1")?;
        }
        self.set("tracing_on", "1")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        interrupt::removes(None);
        let _ = fs::remove_dir(&self.0);
    }
}

fn with_tracefs(root: &Path, request: &Request) -> Result<Recorded, Failure> {
    let at = |e: io::Error| Failure::Input(format!("{}: {e}", root.display()));
    let instance = Instance::new(root).map_err(at)?;
    instance.begin(request.buffer_kib).map_err(at)?;
    let (program, args) = (&request.command[0], &request.command[1..]);
    interrupt::removes(Some(instance.0.clone()));
    let status = wait(Command::new(program).args(args).stdout(stdout(request)?), Signal::SIGTERM);
    instance.set("tracing_on", "0").map_err(at)?;
    let status = status.map_err(|e| Failure::Usage(format!("{program}: {e}")))?;
    let file = request.dir.join("ftrace.txt");
    // A file of tracefs has no size, so it is read and written, not copied by the kernel.
    let copied = fs::File::open(instance.0.join("trace")).and_then(|mut from| {
        let mut to = io::BufWriter::with_capacity(1 << 20, fs::File::create(&file)?);
        io::copy(&mut from, &mut to)?;
        io::Write::flush(&mut to)
    });
    if copied.is_err() {
        let _ = fs::remove_file(&file);
    }
    copied.map_err(|e| Failure::Input(format!("{}: {e}", file.display())))?;
    Ok(Recorded { file, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(is_program("true") && is_program("/bin/sh"));
        assert!(
            !is_program("no-such-program") && !is_program("/bin") && !is_program("/etc/passwd")
        );
    }
}
