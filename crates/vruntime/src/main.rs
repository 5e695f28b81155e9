//! The `vruntime` command.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use vruntime::failure;

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
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that has seen enough (`| head`) is no error.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            eprintln!("vruntime: stdout: {e}");
            ExitCode::from(failure::INPUT)
        }
        _ => ExitCode::from(code),
    }
}
