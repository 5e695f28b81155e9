//! The descriptions of events that perf.data and trace.dat have in common: magic, endianness,
//! page layout, a format per tracepoint, names of tasks.
//!
//! Source: `Documentation/trace-cmd/trace-cmd.dat.v6.5.txt` of trace-cmd; perf's
//! `tools/perf/util/trace-event-read.c` reads the same with version 0.6.

use super::tracepoints::{COMMON_FIELDS, Field, TRACEPOINTS, Tracepoint};
use std::fmt::Write;
use vruntime_base::Timeline;

/// Bytes of a ring-buffer page.
pub(super) const PAGE: usize = 4096;
/// Bytes before the events of a page: time and length.
pub(super) const PAGE_HEADER: usize = 16;

/// Begins both formats.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Everything up to and including the names of tasks. `version` is `6` or `0.6`.
pub(super) fn tracing_data(version: &str, timeline: &Timeline) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    text(version, &mut out);
    // Little-endian, longs of 8 bytes.
    out.extend_from_slice(&[0, 8]);
    out.extend_from_slice(&(PAGE as u32).to_le_bytes());
    text("header_page", &mut out);
    sized(&header_page(), &mut out);
    text("header_event", &mut out);
    sized(HEADER_EVENT, &mut out);
    // No events of ftrace's own; one system.
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    text("sched", &mut out);
    out.extend_from_slice(&(TRACEPOINTS.len() as u32).to_le_bytes());
    for point in &TRACEPOINTS {
        sized(&format(point), &mut out);
    }
    // No addresses of functions or of printk formats.
    out.extend_from_slice(&[0; 8]);
    let mut names = String::new();
    for task in timeline.tasks().iter().filter(|t| t.pid != 0) {
        writeln!(names, "{} {}", task.pid, task.comm).expect("a string grows");
    }
    sized(&names, &mut out);
    out
}

/// The description of one tracepoint.
fn format(point: &Tracepoint) -> String {
    let mut out = format!("name: {}\nID: {}\nformat:\n", point.name, point.id);
    let mut offset = 0;
    let mut line = |f: &Field| {
        let name = match f.kind {
            "char" => format!("{}[{}]", f.name, f.size),
            _ => f.name.to_string(),
        };
        let (kind, size, signed) = (f.kind, f.size, u8::from(f.signed));
        offset = f.offset(offset);
        let line =
            format!("\tfield:{kind} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
        offset += size;
        line
    };
    out.extend(COMMON_FIELDS.iter().map(&mut line));
    out.push('\n');
    out.extend(point.fields.iter().map(&mut line));
    writeln!(out, "\nprint fmt: {}", point.print).expect("a string grows");
    out
}

fn header_page() -> String {
    let data = PAGE - PAGE_HEADER;
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{PAGE_HEADER};\tsize:{data};\tsigned:1;\n"
    )
}

const HEADER_EVENT: &str = "# compressed entry header\n\
    \ttype_len    :    5 bits\n\
    \ttime_delta  :   27 bits\n\
    \tarray       :   32 bits\n\n\
    \tpadding     : type == 29\n\
    \ttime_extend : type == 30\n\
    \ttime_stamp : type == 31\n\
    \tdata max type_len  == 28\n";

/// Appends a text with its final zero.
fn text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Appends a text with its length before it.
fn sized(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel lays them out: a hole of four bytes before the only number of eight that
    /// follows one of four.
    #[test]
    fn fields_are_aligned() {
        for point in &TRACEPOINTS {
            let mut end = 0;
            for f in COMMON_FIELDS.iter().chain(point.fields) {
                let offset = f.offset(end);
                let hole =
                    if point.name == "sched_stat_runtime" && f.name == "runtime" { 4 } else { 0 };
                assert_eq!(offset - end, hole, "{}.{}", point.name, f.name);
                end = offset + f.size;
            }
        }
        let runtime = format(TRACEPOINTS.last().unwrap());
        assert!(runtime.contains("u64 runtime;\toffset:32;\tsize:8;"), "{runtime}");
    }
}
