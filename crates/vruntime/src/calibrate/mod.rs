//! `vruntime calibrate`
use crate::cli::CalibrateArgs;
use crate::failure::{Done, Failure};
/// x
pub fn calibrate(_args: &CalibrateArgs) -> Result<Done, Failure> {
    Err(Failure::Interrupted)
}
