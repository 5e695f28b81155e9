//! `vruntime completions SHELL`

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Done;
use clap::CommandFactory;

/// Completions of the whole command line.
pub fn completions(args: &CompletionsArgs) -> Done {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vruntime", &mut text);
    Done::new(String::from_utf8_lossy(&text).into_owned())
}
