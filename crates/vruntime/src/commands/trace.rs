//! `vruntime trace`

use crate::cli::TraceCheckArgs;
use crate::failure::{Done, Failure};
use crate::trace_check::trace_check;
use vruntime_formats::kernel_file::kernel;

/// Replays recorded decisions through the model's own code.
pub fn check(args: &TraceCheckArgs) -> Result<Done, Failure> {
    // A wrong expression is a mistake of the command line, not of a recording.
    args.kernel.as_deref().map(kernel).transpose()?;
    let report = trace_check(&args.paths, args.kernel.as_deref())
        .map_err(|e| Failure::Input(e.to_string()))?;
    if args.markdown {
        let tables =
            ["true", "reconstructed"].map(|s| format!("State: {s}\n\n{}", report.markdown(s)));
        return Ok(Done::new(tables.join("\n")));
    }
    if args.json {
        return Ok(Done::json(&super::to_json(&report)?));
    }
    Ok(Done::new(report.text()))
}
