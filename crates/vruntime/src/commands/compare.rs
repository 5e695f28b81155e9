//! `vruntime compare`

use crate::cli::CompareArgs;
use crate::failure::{Done, Failure};
use crate::interrupt;
use clap::ValueEnum;
use vruntime_report::compare_text;

/// What makes a difference significant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sig {
    /// The 97.5 % interval of the paired difference does not hold zero
    Interval,
    /// The difference exceeds the two half-widths 1.96 sd together, as mmtests prints its star
    Mmtests,
}

impl From<Sig> for vruntime_measure::Sig {
    fn from(sig: Sig) -> vruntime_measure::Sig {
        match sig {
            Sig::Interval => vruntime_measure::Sig::Interval,
            Sig::Mmtests => vruntime_measure::Sig::Mmtests,
        }
    }
}

/// Runs every kernel with every seed and compares.
pub fn compare(args: &CompareArgs) -> Result<Done, Failure> {
    let s = &args.simulation;
    if args.kernel.len() < 2 {
        return Err(Failure::Usage(
            "compare: give -k at least twice, the first is the base".into(),
        ));
    }
    let batch = super::batch(s, &args.kernel, (1..=args.seeds).collect())?;
    let records = batch.run()?;
    super::note_windows(&batch, records.by_kernel.iter().flatten());
    let name = |k: &String| format!("{k}{}", batch.variation.without);
    let kernels: Vec<_> = args.kernel.iter().map(name).zip(records.by_kernel).collect();
    let comparison = vruntime_measure::compare(&kernels, args.sig.into());
    let done = if s.form.json {
        let mut value = super::to_json(&comparison)?;
        value["sampling"] = super::sampling_json(batch.sampling);
        value["interrupted"] = records.interrupted.into();
        Done::json(&value)
    } else {
        let by = interrupt::name();
        let notes = match records.interrupted {
            true => format!("ended by {by} before all seeds were complete"),
            false => String::new(),
        };
        Done::new(compare_text(&comparison, &notes))
    };
    Ok(done.interrupted(records.interrupted))
}
