//! `vruntime bench`
use crate::cli::BenchArgs;
use crate::failure::{Done, Failure};
/// x
pub fn bench(_args: &BenchArgs) -> Result<Done, Failure> {
    Err(Failure::Interrupted)
}
