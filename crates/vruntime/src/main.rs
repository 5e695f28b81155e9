//! The `vruntime` command.

use std::io::Write;
use std::process::ExitCode;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: vruntime::bench::CountingAllocator = vruntime::bench::CountingAllocator;

fn main() -> ExitCode {
    let (code, text) = match vruntime::cli::run(std::env::args_os()) {
        Ok(done) => (done.code, done.stdout),
        Err(failure) => {
            eprintln!("vruntime: {failure}");
            (failure.code(), String::new())
        }
    };
    // A reader that has seen enough (`| head`) is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(code)
}
