//! `vruntime record`: runs a command on this machine while the kernel's scheduling events are
//! recorded, and leaves a directory that `trace stat` and `trace check` read.
//!
//! `recorder` starts perf or tracefs, whichever works; `surroundings` writes down the machine and
//! its kernel: what the events alone do not tell.

mod recorder;
mod surroundings;

use crate::cli::{Json, RecordArgs, TraceStatArgs};
use crate::commands::trace_stat;
use crate::failure::{Done, FINDING, Failure};
use crate::interrupt;
pub use recorder::With;
use recorder::{Recorder, Request};
use serde_json::json;
use std::path::Path;
use std::{fs, io};
use surroundings::Surroundings;

/// The command that was recorded.
const COMMAND: &str = "command.txt";
/// Of what the recording is.
const SUMMARY: &str = "summary.json";

/// Records, then prints the figures of what was recorded.
pub fn record(args: &RecordArgs) -> Result<Done, Failure> {
    recorder::program(&args.command[0])?;
    let at = |e: io::Error| Failure::Input(format!("{}: {e}", args.output.display()));
    let replaces = replaces(&args.output, args.force)?;
    let recorder = Recorder::find(args.with)?;
    // The old recording goes only when something can take its place.
    if replaces {
        empty(&args.output).map_err(at)?;
    }
    let command = args.command.join(" ");
    let was_there = args.output.exists();
    if let Err(e) = prepare(args, &recorder, &command) {
        // Nothing that looks like a recording.
        let _ = empty(&args.output);
        if !was_there {
            let _ = fs::remove_dir(&args.output);
        }
        return Err(e);
    }

    // The command and perf get ^C as well; what they leave is worth reading.
    interrupt::install();
    let request = Request {
        dir: &args.output,
        command: &args.command,
        buffer_kib: args.buffer,
        stdout_is_ours: args.json,
    };
    // What is not whole shall not look so.
    let unfinished = |e: Failure| {
        let _ = fs::remove_file(args.output.join(SUMMARY));
        e
    };
    let recorded = recorder.run(&request).map_err(unfinished)?;
    eprintln!("vruntime: recorded by {} into {}", recorder.name(), recorded.file.display());
    let stat = TraceStatArgs {
        path: recorded.file,
        task: None,
        cpu: None,
        machine: None,
        form: Json { json: args.json },
    };
    let done = trace_stat::stat(&stat);
    let status = recorded.status;
    if !status.success() {
        let events = if done.is_ok() { "; its events are recorded" } else { "" };
        eprintln!("vruntime: `{command}` ended with {status}{events}");
    }
    let mut done = done.map_err(unfinished)?.interrupted(interrupt::seen());
    if !status.success() {
        done.code = done.code.max(FINDING);
    }
    Ok(done)
}

/// Writes what stands beside a trace.
fn prepare(args: &RecordArgs, recorder: &Recorder, command: &str) -> Result<(), Failure> {
    let at = |name: &str, e: io::Error| {
        Failure::Input(format!("{}: {e}", args.output.join(name).display()))
    };
    let write =
        |name: &str, text: &str| fs::write(args.output.join(name), text).map_err(|e| at(name, e));
    fs::create_dir_all(&args.output).map_err(|e| at("", e))?;
    let surroundings = Surroundings::of_this_machine();
    for (name, text) in &surroundings.files {
        write(name, text)?;
    }
    for missing in &surroundings.missing {
        eprintln!("vruntime: {missing}");
    }
    write(COMMAND, &format!("{command}\n"))?;
    let summary = json!({
        "name": args.output.file_name().map(|n| n.to_string_lossy()),
        "command": command,
        "kernel": surroundings.release,
        "recorder": recorder.name(),
        "clock": "CLOCK_MONOTONIC",
    });
    write(SUMMARY, &format!("{summary:#}\n"))
}

/// Removes what is in `dir`, which stays: it may be where we are, or a mount point.
fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
    }
    Ok(())
}

/// Whether a recording in `dir` is to be replaced; fails if there is something that may not go.
fn replaces(dir: &Path, force: bool) -> Result<bool, Failure> {
    let at = |e: io::Error| Failure::Input(format!("{}: {e}", dir.display()));
    if !dir.exists() {
        return Ok(false);
    }
    let is_empty = dir.is_dir() && fs::read_dir(dir).map_err(at)?.next().is_none();
    if is_empty {
        return Ok(false);
    }
    if !force {
        return Err(Failure::Usage(format!(
            "{} exists; give another directory with -o, or --force to replace a recording",
            dir.display()
        )));
    }
    // Only what this command wrote: not the directory of somebody's thesis.
    let others = [SUMMARY, "topology.txt"];
    if !dir.join(COMMAND).is_file() || !others.iter().any(|o| dir.join(o).is_file()) {
        return Err(Failure::Usage(format!(
            "{} is not a recording of `vruntime record`: --force does not replace it",
            dir.display()
        )));
    }
    Ok(true)
}
