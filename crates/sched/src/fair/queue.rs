//! placeholder: see the owner of the fair core.
#[derive(Clone, Debug, Default)]
/// Sorted queue.
pub struct Queue {}
