//! `vruntime trace`

use crate::cli::TraceCheckArgs;
use crate::failure::{Done, Failure};

/// Replays recorded decisions through the model's own code.
pub fn check(_args: &TraceCheckArgs) -> Result<Done, Failure> {
    Err(Failure::Usage("trace check: not in this build".into()))
}
