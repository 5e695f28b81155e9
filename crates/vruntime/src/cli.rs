//! The command line: what can be said, and which command it goes to.

use crate::commands::{completions, list, man, run, show, trace, trace_convert, trace_stat};
use crate::failure::{Done, Failure};
use crate::record::With;
use crate::{bench, calibrate, commands, duration, record};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use vruntime_base::Ns;
use vruntime_kernel::record::Knockout;
use vruntime_machine::{Cost, nearest_name};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 the command that was recorded failed, 2 usage, 3 a \
file cannot be read or is not what it should be, 130 ended by ^C, SIGTERM or SIGHUP after \
reporting the seeds or cases that were complete.";

/// A laboratory for the Linux CPU scheduler.
#[derive(Parser)]
#[command(name = "vruntime", version, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run a benchmark on a machine under a kernel
    Run(RunArgs),
    /// Run a benchmark under several kernels and compare; the first -k is the base
    Compare(CompareArgs),
    /// Take the difference of two kernels apart by knock-outs
    Explain(ExplainArgs),
    /// Repeat a published experiment: its figures beside the model's
    Study(StudyArgs),
    /// Judge, measure and compare recorded traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Run a command on this machine, record its scheduling events, print their figures
    Record(RecordArgs),
    /// List what there is
    List(ListArgs),
    /// Show one machine, kernel, workload or study in full
    #[command(subcommand)]
    Show(ShowCommand),
    /// Measure this machine and write its machine file
    Calibrate(CalibrateArgs),
    /// Measure the speed of vruntime itself
    Bench(BenchArgs),
    /// Write manual pages
    Man(ManArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

/// How many runs at a time, and whether they are watched.
#[derive(Args)]
pub struct Workers {
    /// Threads; 0 for one per CPU. The result does not depend on it
    #[arg(short = 'j', long, value_name = "N", default_value_t = 0, allow_hyphen_values = true,
          value_parser = whole(0..=4096))]
    pub threads: u64,
    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// For people or for programs.
#[derive(Args)]
pub struct Json {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `run`, `compare` and `explain` have in common.
#[derive(Args)]
pub struct Simulation {
    /// Machine: a name (`vruntime list machines`), `host`, or a file or directory: TOML, hwloc XML,
    /// `lscpu -J`, a copy of /sys or an archive of one
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: String,
    /// Workload, in the real tool's words, as in 'hackbench -g 20 -f 20 --pipe --threads'
    #[arg(short, long, value_name = "COMMAND")]
    pub workload: String,
    /// Simulated time that is not measured, from the benchmark's start
    #[arg(long, value_name = "DURATION", default_value = "500ms",
          value_parser = duration::parse, allow_hyphen_values = true)]
    pub warmup: Ns,
    /// Simulated time that is measured; the benchmark's time is extrapolated from it
    #[arg(long, value_name = "DURATION", default_value = "1s",
          value_parser = duration::parse, allow_hyphen_values = true)]
    pub window: Ns,
    /// Simulate the whole benchmark instead of a window
    #[arg(long, conflicts_with_all = ["warmup", "window"])]
    pub full: bool,
    /// With --full: give up after this much simulated time [default: 600s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse,
          allow_hyphen_values = true)]
    pub limit: Option<Ns>,
    /// Leave this out of the model, as in --without rq_lock,ipi (`vruntime list knockouts`)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = knockout)]
    pub without: Vec<Knockout>,
    /// Who does it.
    #[command(flatten)]
    pub workers: Workers,
    /// Look at the run's invariants every simulated millisecond (slow; changes nothing else)
    #[arg(long)]
    pub checks: bool,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime run`
#[derive(Args)]
pub struct RunArgs {
    /// What to simulate.
    #[command(flatten)]
    pub simulation: Simulation,
    /// Kernel expression, as in v6.5 or v6.1+sis_util=off,hz=1000
    #[arg(short, long, value_name = "KERNEL")]
    pub kernel: String,
    /// Seed of the run
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true,
          value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Run the seeds 1 to N
    #[arg(long, value_name = "N", conflicts_with = "seed",
          allow_hyphen_values = true, value_parser = whole(1..=100_000))]
    pub seeds: Option<u64>,
    /// Write the run's events as a trace: perf.data (FILE ends in .data), trace.dat (.dat),
    /// Perfetto (.pftrace) or ftrace text (.txt)
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub trace: Option<PathBuf>,
    /// The trace holds the measured window only, not the whole run
    #[arg(long, requires = "trace")]
    pub trace_window: bool,
    /// The trace holds this many events at the most, the first ones
    #[arg(long, value_name = "N", default_value_t = 4_000_000, requires = "trace",
          allow_hyphen_values = true, value_parser = whole(1..=1_000_000_000))]
    pub trace_events: u64,
    /// Write the counters of the measured window as the kernel's /proc/schedstat shows them
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub schedstat: Option<PathBuf>,
}

/// `vruntime compare`
#[derive(Args)]
pub struct CompareArgs {
    /// What to simulate.
    #[command(flatten)]
    pub simulation: Simulation,
    /// Kernel expression; give it twice or more, the first is the base
    #[arg(short, long, value_name = "KERNEL", required = true)]
    pub kernel: Vec<String>,
    /// Run the seeds 1 to N under every kernel
    #[arg(long, value_name = "N", default_value_t = 10, allow_hyphen_values = true,
          value_parser = whole(1..=100_000))]
    pub seeds: u64,
    /// What the star means: `interval` is our confidence interval of the difference, `mmtests` the
    /// rule of mmtests
    #[arg(long, value_name = "RULE", default_value = "interval")]
    pub sig: commands::compare::Sig,
}

/// `vruntime explain`
#[derive(Args)]
pub struct ExplainArgs {
    /// What to simulate.
    #[command(flatten)]
    pub simulation: Simulation,
    /// Kernel expression; give it twice, the difference is the second less the first
    #[arg(short, long, value_name = "KERNEL", required = true)]
    pub kernel: Vec<String>,
    /// Run the seeds 1 to N
    #[arg(long, value_name = "N", default_value_t = 4,
          allow_hyphen_values = true, value_parser = whole(1..=1_000))]
    pub seeds: u64,
    /// What differs: a metric of `compare`
    #[arg(long, value_name = "METRIC", default_value = "time")]
    pub metric: String,
    /// Knock-outs to try; the default is all
    #[arg(long = "try", value_name = "NAME", value_delimiter = ',', value_parser = knockout)]
    pub tries: Vec<Knockout>,
    /// Divide the difference among this many parts, those that leave the least of it when left out
    #[arg(long, value_name = "N", default_value_t = 3, allow_hyphen_values = true,
          value_parser = clap::value_parser!(u8).range(1..=6))]
    pub split: u8,
    /// Add this many ns (of a share, permille) to a cost under the second kernel, as in --plant
    /// ttwu=500: a control
    #[arg(long, value_name = "COST=NS", value_delimiter = ',', value_parser = planted)]
    pub plant: Vec<(String, u32)>,
}

/// `vruntime study`
#[derive(Args)]
pub struct StudyArgs {
    /// A study (`vruntime study list`) or a TOML file
    pub name: String,
    /// Only cases whose id contains this
    #[arg(long, value_name = "TEXT")]
    pub case: Option<String>,
    /// Short windows: rough figures within minutes
    #[arg(long)]
    pub quick: bool,
    /// Fit one number for each machine on the figures before the change, and print it
    #[arg(long, conflicts_with_all = ["uncertainty", "explain", "page", "json"])]
    pub fit: bool,
    /// Draw cost tables between low and high, and count in how many each effect stays; how much is
    /// simulated with each the study says, else it is as rough as --quick
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100",
          allow_negative_numbers = true, value_parser = whole(1..=10_000))]
    pub uncertainty: Option<u64>,
    /// Begin with this cost table: those before it another run has drawn
    #[arg(long, value_name = "N", default_value = "1", requires = "uncertainty",
          allow_negative_numbers = true, value_parser = whole(1..=10_000))]
    pub first_draw: u64,
    /// Answer the study's questions by knock-outs, too
    #[arg(long)]
    pub explain: bool,
    /// Write a page in Markdown
    #[arg(long, conflicts_with = "json")]
    pub page: bool,
    /// Run the seeds 1 to N instead of what the study says
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole(1..=1_000))]
    pub seeds: Option<u64>,
    /// Who does it.
    #[command(flatten)]
    pub workers: Workers,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// Parses the name of a knock-out.
pub fn knockout(word: &str) -> Result<Knockout, String> {
    let names = || Knockout::ALL.iter().map(|k| k.name());
    Knockout::ALL.iter().copied().find(|k| k.name() == word).ok_or_else(|| {
        let near = nearest_name(word, names()).map(|n| format!("nearest is `{n}`; "));
        let all = names().collect::<Vec<_>>().join(", ");
        format!("no such knock-out; {}there are: {all}", near.unwrap_or_default())
    })
}

/// Parses `cost=ns`.
fn planted(text: &str) -> Result<(String, u32), String> {
    let (name, ns) = text.split_once('=').ok_or("expected COST=NS, as in ttwu=500")?;
    match ns.parse() {
        Ok(cost) if cost <= Cost::MAX => Ok((name.into(), cost)),
        _ => Err(format!("`{ns}`: expected a whole number of ns, at most {}", Cost::MAX)),
    }
}

/// `vruntime trace …`
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Replay recorded decisions and print how often the model decides as that kernel did
    Check(TraceCheckArgs),
    /// What made a switch, a wakeup or a migration: the rule and the state that it saw
    Why(TraceWhyArgs),
    /// Write a trace in another format, by the name of the file to write
    Convert(TraceConvertArgs),
    /// Figures of a recorded trace: perf.data, trace.dat, Perfetto, text of tracefs or perf script
    Stat(TraceStatArgs),
    /// Compare two recorded traces; the first is the base
    Diff(TraceDiffArgs),
}

/// What `trace check` and `trace why` decide as.
#[derive(Args)]
pub struct Setting {
    /// Kernel expression to decide as, instead of the release that a recording names; its recorded
    /// features and tunables hold but for what the expression sets
    #[arg(short, long, value_name = "KERNEL")]
    pub kernel: Option<String>,
    /// Machine that the recording is from, instead of the topology.txt beside it and of what
    /// perf.data says of its CPUs: as for `run`
    #[arg(short, long, value_name = "TOPOLOGY")]
    pub machine: Option<String>,
}

/// `vruntime trace why`
#[derive(Args)]
pub struct TraceWhyArgs {
    /// A recording: a directory, or a plain trace of a real kernel or of `run --trace`
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// Only decisions about this task: thread id or name
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// The moment nearest to this one, in seconds as the trace has them
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<String>,
    /// The rules by count
    #[arg(long)]
    pub top: bool,
    /// Instead of what the recording names.
    #[command(flatten)]
    pub setting: Setting,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime trace diff`
#[derive(Args)]
pub struct TraceDiffArgs {
    /// The base, plain or .xz
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// The trace to set beside it
    #[arg(value_name = "FILE")]
    pub other: PathBuf,
    /// Cut each trace into this many slices, for the intervals
    #[arg(long, value_name = "N", default_value_t = 10,
          allow_hyphen_values = true, value_parser = whole(2..=1_000))]
    pub slices: u64,
    /// When a change is starred
    #[arg(long, value_name = "RULE", default_value = "interval")]
    pub sig: commands::compare::Sig,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime trace convert`
#[derive(Args)]
pub struct TraceConvertArgs {
    /// The trace, plain or .xz; - is standard input
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Where to write: .data (perf), .dat (trace-cmd), .pftrace (Perfetto) or .txt (ftrace text);
    /// without it, or as -, standard output
    #[arg(value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// The format, whatever the name says
    #[arg(long, value_name = "FORMAT")]
    pub to: Option<trace_convert::Format>,
}

/// `vruntime trace stat`
#[derive(Args)]
pub struct TraceStatArgs {
    /// The trace, plain or .xz; - is standard input
    #[arg(value_name = "FILE")]
    pub path: PathBuf,
    /// Only the tasks of this name or thread id
    #[arg(long, value_name = "TASK")]
    pub task: Option<String>,
    /// Only this CPU in the table of CPUs
    #[arg(long, value_name = "CPU", allow_hyphen_values = true)]
    pub cpu: Option<u32>,
    /// Count wakeups by their distance on this machine, not on that of the topology.txt beside or
    /// of the trace itself: a name or a file as in `run -m`
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime trace check`
#[derive(Args)]
pub struct TraceCheckArgs {
    /// Recordings: directories, or plain traces (perf.data, trace.dat, Perfetto, text of tracefs or
    /// of perf script), plain or .xz
    #[arg(required = true, value_name = "FILE|DIR")]
    pub paths: Vec<PathBuf>,
    /// Instead of what the recording names.
    #[command(flatten)]
    pub setting: Setting,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime record`
#[derive(Args)]
pub struct RecordArgs {
    /// Directory for the trace and for what is known of the machine
    #[arg(short, long, value_name = "DIR", default_value = "vruntime-recording")]
    pub output: PathBuf,
    /// Replace a recording that is there
    #[arg(long)]
    pub force: bool,
    /// Record with this; the default is what works, perf first
    #[arg(long)]
    pub with: Option<With>,
    /// Buffer of each CPU in KiB; what does not fit is counted as lost
    #[arg(long, value_name = "KIB", default_value_t = 4096,
          allow_hyphen_values = true, value_parser = whole(64..=1 << 20))]
    pub buffer: u64,
    /// Print one JSON object; what the command prints goes to stderr
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `vruntime list`
#[derive(Args)]
pub struct ListArgs {
    /// What to list
    pub what: list::What,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime show …`
#[derive(Subcommand)]
pub enum ShowCommand {
    /// Topology, costs and sources of a machine
    Machine(ShowArgs),
    /// Every switch and tunable of a kernel (overrides may follow the name)
    Kernel(ShowArgs),
    /// What a workload's command line means
    Workload(ShowArgs),
    /// What a study compares, asks and found
    Study(ShowArgs),
}

/// `vruntime show WHAT NAME`
#[derive(Args)]
pub struct ShowArgs {
    /// Which one
    pub name: String,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
}

/// `vruntime calibrate`
#[derive(Args)]
pub struct CalibrateArgs {
    /// Where to write the machine file; the default is what `-m host` reads
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
    /// The other process of the ping-pong: send back what comes in, pinned to this CPU
    #[arg(long, hide = true, value_name = "CPU")]
    pub echo: Option<usize>,
    /// Measure once what takes one CPU, and print it
    #[arg(long, hide = true)]
    pub round: bool,
}

/// Where `bench` leaves its figures.
pub const BENCH_JSON: &str = "target/bench.json";

/// `vruntime bench`
#[derive(Args)]
pub struct BenchArgs {
    /// Where to write the figures
    #[arg(short, long, value_name = "FILE", default_value = BENCH_JSON)]
    pub output: PathBuf,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub case: String,
    /// Simulate this much of what a case has by default, in percent
    #[arg(long, value_name = "N", default_value_t = 100,
          allow_hyphen_values = true, value_parser = whole(1..=10_000))]
    pub percent: u64,
    /// Time every case so often; the fastest counts
    #[arg(long, value_name = "N", default_value_t = 3,
          allow_hyphen_values = true, value_parser = whole(1..=1_000))]
    pub repeat: u64,
    /// What is printed.
    #[command(flatten)]
    pub form: Json,
    /// Run one case and nothing else (used below callgrind)
    #[arg(long, hide = true, value_name = "CASE:KERNEL:WINDOW")]
    pub only: Option<String>,
}

/// `vruntime man`
#[derive(Args)]
pub struct ManArgs {
    /// Write one page for each command into this directory; the default is the main page on stdout
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `vruntime completions`
#[derive(Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// A whole number in `range`, or what was expected.
fn whole(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let (least, most) = (range.start(), range.end());
        let number = text.parse().ok().filter(|n| range.contains(n));
        number.ok_or_else(|| format!("`{text}`: expected a whole number from {least} to {most}"))
    }
}

/// Parses `args` and does what they say.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Done, Failure> {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Done::new(e.to_string()));
        }
        // clap knows its own way of showing this, and its code for it is 2 as well.
        Err(e) => e.exit(),
    };
    match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Compare(args) => commands::compare::compare(&args),
        Command::Study(args) => commands::study::study(&args),
        Command::Explain(args) => commands::explain::explain(&args),
        Command::Trace(TraceCommand::Check(args)) => trace::check(&args),
        Command::Trace(TraceCommand::Why(args)) => trace::why(&args),
        Command::Trace(TraceCommand::Convert(args)) => trace_convert::convert(&args),
        Command::Trace(TraceCommand::Stat(args)) => trace_stat::stat(&args),
        Command::Trace(TraceCommand::Diff(args)) => trace::diff(&args),
        Command::Record(args) => record::record(&args),
        Command::List(args) => list::list(&args),
        Command::Show(args) => show::show(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Man(args) => man::man(&args),
        Command::Completions(args) => Ok(completions::completions(&args)),
    }
}
