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

/// Records, then prints the figures of what was recorded.
pub fn record(args: &RecordArgs) -> Result<Done, Failure> {
    recorder::program(&args.command[0])?;
    let at = |e: io::Error| Failure::Input(format!("{}: {e}", args.output.display()));
    let replaces = replaces(&args.output, args.force)?;
    let recorder = Recorder::find(args.with)?;
    // The old recording goes only when something can take its place.
    if replaces {
        fs::remove_dir_all(&args.output).map_err(at)?;
    }
    fs::create_dir_all(&args.output).map_err(at)?;
    let surroundings = Surroundings::of_this_machine();
    for (name, text) in &surroundings.files {
        fs::write(args.output.join(name), text).map_err(at)?;
    }
    for missing in &surroundings.missing {
        eprintln!("vruntime: {missing}");
    }
    let command = args.command.join(" ");
    fs::write(args.output.join("command.txt"), format!("{command}\n")).map_err(at)?;
    let summary = json!({
        "name": args.output.file_name().map(|n| n.to_string_lossy()),
        "command": command,
        "kernel": surroundings.release,
        "recorder": recorder.name(),
        "clock": "CLOCK_MONOTONIC",
    });
    fs::write(args.output.join("summary.json"), format!("{summary:#}\n")).map_err(at)?;

    // The command and perf get ^C as well; what they leave is worth reading.
    interrupt::install();
    let request = Request {
        dir: &args.output,
        command: &args.command,
        buffer_kib: args.buffer,
        stdout_is_ours: args.json,
    };
    let recorded = recorder.run(&request)?;
    eprintln!("vruntime: recorded by {} into {}", recorder.name(), recorded.file.display());
    let stat = TraceStatArgs {
        path: recorded.file,
        task: None,
        cpu: None,
        machine: None,
        form: Json { json: args.json },
    };
    let mut done = trace_stat::stat(&stat)?.interrupted(interrupt::seen());
    if !recorded.status.success() {
        eprintln!("vruntime: `{command}` ended with {}; its events are recorded", recorded.status);
        done.code = done.code.max(FINDING);
    }
    Ok(done)
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
    if !dir.join("command.txt").is_file() || !dir.join("summary.json").is_file() {
        return Err(Failure::Usage(format!(
            "{} is not a recording of `vruntime record`: --force does not replace it",
            dir.display()
        )));
    }
    Ok(true)
}
