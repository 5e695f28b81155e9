//! `vruntime man`: manual pages from the command line's own description.

use crate::cli::{Cli, ManArgs};
use crate::failure::{Done, Failure};
use clap::CommandFactory;
use clap_mangen::{Man, generate_to};
use std::fs;

/// The main page on stdout, or all pages into a directory.
pub fn man(args: &ManArgs) -> Result<Done, Failure> {
    let Some(dir) = &args.output else {
        let mut page = Vec::new();
        let failed = |e: std::io::Error| Failure::Input(format!("manual page: {e}"));
        Man::new(Cli::command()).render(&mut page).map_err(failed)?;
        return Ok(Done::new(String::from_utf8_lossy(&page).into_owned()));
    };
    let failed = |e: std::io::Error| Failure::Input(format!("{}: {e}", dir.display()));
    fs::create_dir_all(dir).map_err(failed)?;
    generate_to(Cli::command(), dir).map_err(failed)?;
    Ok(Done::new(format!("manual pages written to {}\n", dir.display())))
}
