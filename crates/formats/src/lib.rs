//! Everyone else's bytes, in and out.

pub mod kernel_file;
pub mod machine_file;
