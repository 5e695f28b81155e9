//! The `vruntime` command.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use vruntime::failure;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: vruntime::bench::CountingAllocator = vruntime::bench::CountingAllocator;

/// Arrays from 128 KiB are always mapped on their own: then those that grow with tasks grow without
/// a copy and leave no holes. Left to itself glibc raises the limit with what is freed, and 100,000
/// tasks take a ninth more memory.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // No library in reach has it; it sets a number of the allocator.
fn map_large_arrays() {
    // SAFETY: no thread runs yet, and any value is allowed.
    unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, 128 << 10) };
}

/// `text` without what a terminal obeys: a trace may name its tasks as it likes.
fn harmless(text: String) -> String {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(obeyed) { text.replace(obeyed, "\u{fffd}") } else { text }
}

fn main() -> ExitCode {
    #[cfg(target_env = "gnu")]
    map_large_arrays();
    let (code, text) = match vruntime::cli::run(std::env::args_os()) {
        Ok(done) => (done.code, done.stdout),
        Err(failure) => {
            eprintln!("vruntime: {failure}");
            (failure.code(), String::new())
        }
    };
    let mut stdout = std::io::stdout();
    match stdout.write_all(harmless(text).as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that has seen enough (`| head`) is no error.
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            eprintln!("vruntime: stdout: {e}");
            ExitCode::from(failure::INPUT)
        }
        _ => ExitCode::from(code),
    }
}
