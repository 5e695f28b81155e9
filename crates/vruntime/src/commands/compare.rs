//! `vruntime compare`

use crate::cli::CompareArgs;
use crate::failure::{Done, Failure};
use clap::ValueEnum;

/// What makes a difference significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sig {
    /// The confidence interval of the difference does not hold zero
    Interval,
    /// The two half-widths mean ± 1.96 sd do not overlap, as mmtests prints its star
    Mmtests,
}

/// Runs every kernel with every seed and compares.
pub fn compare(args: &CompareArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    let batch = super::batch(s, &args.kernel, (1..=args.seeds).collect())?;
    let _records = batch.run()?;
    Err(Failure::Usage("compare: not in this build".into()))
}
