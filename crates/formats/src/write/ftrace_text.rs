//! What `/sys/kernel/tracing/trace` prints.
//!
//! Source: the header that ftrace prints above it, and `Documentation/trace/ftrace.rst`.

use super::tracepoints::{Hit, SWITCH, Value, Walk};
use super::{Origin, TraceFormat, content};
use std::io::{self, Write};
use vruntime_base::{Timeline, flag};

/// Writes the file.
pub(super) fn write(timeline: &Timeline, origin: &Origin, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "# tracer: nop\n#")?;
    let entries = content(TraceFormat::FtraceText, timeline, origin.nr_cpus).events;
    let nr_cpus = origin.nr_cpus;
    writeln!(out, "# entries-in-buffer/entries-written: {entries}/{entries}   #P:{nr_cpus}")?;
    writeln!(out, "#\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION")?;
    for (cpu, n) in origin.lost.by_cpu() {
        writeln!(out, "CPU:{cpu} [LOST {n} EVENTS]")?;
    }
    Walk::new(timeline, origin.nr_cpus).each(|hit| line(hit, out))?;
    out.flush()
}

fn line(hit: &Hit, out: &mut impl Write) -> io::Result<()> {
    let current = match hit.current.pid {
        0 => "<idle>",
        _ => &hit.current.comm,
    };
    let (s, us) = (hit.time / 1_000_000_000, hit.time / 1_000 % 1_000_000);
    let (pid, cpu, name) = (hit.current.pid, hit.cpu.0, hit.point().name);
    write!(out, "{current:>16}-{pid:<7} [{cpu:03}] {} {s:>5}.{us:06}: {name}:", flags(hit.flags))?;
    for (i, (field, value)) in hit.point().fields.iter().zip(hit.values()).enumerate() {
        if hit.point == SWITCH && i == 4 {
            write!(out, " ==>")?;
        }
        match (field.name, value) {
            (name, Value::Comm(comm)) => write!(out, " {name}={comm}")?,
            ("prev_state", Value::Number(n)) => {
                let letter = match n {
                    0 => "R",
                    0x10 => "X",
                    _ => "S",
                };
                write!(out, " prev_state={letter}")?;
            }
            ("target_cpu", Value::Number(n)) => write!(out, " target_cpu={n:03}")?,
            ("runtime", Value::Number(n)) => write!(out, " runtime={n} [ns]")?,
            (name, Value::Number(n)) => write!(out, " {name}={n}")?,
        }
    }
    writeln!(out)
}

/// Interrupts, reschedule, context; how deep preemption is disabled and migration is not known.
fn flags(flags: u8) -> String {
    let has = |bit: u8| flags & bit != 0;
    let resched = match (has(flag::NEED_RESCHED), has(flag::LAZY)) {
        (true, true) => 'b',
        (true, false) => 'n',
        (false, true) => 'l',
        (false, false) => '.',
    };
    let context = match (has(flag::HARDIRQ), has(flag::SOFTIRQ)) {
        (true, true) => 'H',
        (true, false) => 'h',
        (false, true) => 's',
        (false, false) => '.',
    };
    format!("{}{resched}{context}..", if has(flag::IRQS_OFF) { 'd' } else { '.' })
}
