//! Everyone else's bytes, in and out.

pub mod machine_file;
