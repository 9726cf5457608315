//! The command line as typed: nothing here is checked yet. `plan` says what it means.
//!
//! A `--config` file is the same thing in JSON, with the flags' names as keys; what is typed wins.

use std::{ffi::OsString, fs, io, path::PathBuf};

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, from_value};

use crate::error::{LabError, plain};

/// Measure engines side by side on this machine, and say which one pays.
#[derive(Clone, Debug, Default, ClapArgs, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Draw or compare saved results, or record, explain or replay a program
    #[command(subcommand)]
    #[serde(skip)]
    pub action: Option<Action>,

    /// Measure this: read, latency, nop, chain, stat, echo, http, objects, copy,
    /// log or scale [default: all of these except scale]
    pub workload: Option<String>,

    /// Measure for about two minutes. This is the default, except for "lab log":
    /// without --quick it measures more daemons
    #[arg(long)]
    pub quick: bool,

    /// Measure for half an hour: at more depths and block sizes, and with rings
    /// that poll
    #[arg(long, conflicts_with = "quick")]
    pub standard: bool,

    /// Measure at the size of published studies; print the time and space needed
    /// first
    #[arg(long, conflicts_with_all = ["quick", "standard"])]
    pub full: bool,

    /// Put test files below this directory, on the device to be measured; scale:
    /// spread threads over several directories, such as A,B,C [default: the
    /// current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Put the results file here [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Compare these engines, separated by commas
    ///
    /// read, latency: sync, threads, mmap, tokio, aio, uring, ringwise, fio
    /// [default: all but fio; latency: all but fio and threads]. ringwise uses the
    /// library's files in tokio; variants are "ringwise+driver-thread" and
    /// "ringwise+one-worker". uring takes switches, such as
    /// "uring-registered-buffers" or "uring+sqpoll": registered-buffers,
    /// registered-files and defer-taskrun (on by default), coop-taskrun, sqpoll,
    /// iopoll. Variants of fio are "fio+fixed" and "fio+batches". fio does not check
    /// the data that it reads; beside it, "uring+unverified" and
    /// "ringwise+unverified" do not check it either.
    ///
    /// echo: uring, uring+spin, uring-spin, epoll, tokio, blocking, node.
    ///
    /// http: tokio, tokio+ringwise-files, ringwise, ringwise-classic [default: all].
    ///
    /// copy: ringwise, gnu, xcp, fcp, cpz [default: these], ringwise-sync,
    /// ringwise-uring, ringwise+durable, ringwise+verify, ringwise+atomic.
    ///
    /// log: uring, epoll, rsyslog-imtcp, rsyslog-imptcp, rsyslog-relp, syslog-ng,
    /// uring+sqpoll [--quick: the first three].
    #[arg(long, value_name = "A,B")]
    pub engines: Option<String>,

    /// Also run uring with each of its switches changed, one at a time
    #[arg(long)]
    pub ablate: bool,

    /// Keep this many operations in flight; nop: submit batches of this many;
    /// scale: keep this many in flight on each thread [default: 1,32; nop: 1,32,256;
    /// chain: 170; objects: 1,8]
    #[arg(long, value_name = "N,N")]
    pub depth: Option<String>,

    /// chain: make pages durable by fsync, fdatasync or dsync [default: all; with
    /// O_DIRECT: dsync]
    #[arg(long, value_name = "KIND,KIND")]
    pub sync: Option<String>,

    /// echo, http, log: open this many connections [default: echo 1,2,50,1000;
    /// http 16; log 64; --full: http 1,16,128, log 1,64,2000]
    #[arg(long, value_name = "N,N")]
    pub connections: Option<String>,

    /// echo, http, log: send messages, bodies or lines of this many bytes, such as
    /// 64,4k [default: echo 64, --full: 64,512,4k,64k; http 1k,64k,1m; log 150]
    #[arg(long, value_name = "SIZE,SIZE")]
    pub length: Option<String>,

    /// http: serve bodies from memory or files [default: both]
    #[arg(long, value_name = "A,B")]
    pub bodies: Option<String>,

    /// copy: copy these data sets: 1k, 32k, 1m, 32m, 1g (one file each), small,
    /// medium, large, mix, many, flat (trees), again (a tree, to the place of a
    /// removed copy) [default: all]
    #[arg(long, value_name = "A,B")]
    pub sets: Option<String>,

    /// copy: vary block size and depth of `ringwise cp --engine=uring` instead
    /// [default: --block 1k,4k,16k,64k,256k,1m,4m,32m --depth 1,4,16,64,256
    /// --size 64m]
    #[arg(long)]
    pub study: bool,

    /// echo, log: also measure this running server; may be repeated
    #[arg(long, value_name = "NAME=IP:PORT")]
    pub target: Vec<String>,

    /// log: give these guarantees: none, written, durable [default: all; --quick:
    /// none,durable]
    #[arg(long, value_name = "G,G")]
    pub guarantee: Option<String>,

    /// log: send over plain TCP or TLS: plain, tls [default: plain; --full: both]
    #[arg(long, value_name = "T,T")]
    pub transport: Option<String>,

    /// echo, log: send this many requests or lines per second, or as many as
    /// possible (max), or find a rate that all servers can hold (auto) [default:
    /// echo, log --quick: max, then auto if the load generator was the limit; log:
    /// 50000,max; log --full: 200000,max]
    #[arg(long, value_name = "N,max,auto")]
    pub rate: Option<String>,

    /// log: let the daemon process this many completions before it submits again;
    /// with 1 it also sends each answer separately [default: all]
    #[arg(long, value_name = "N")]
    pub batch: Option<String>,

    /// Serve as one of the servers of a lab
    #[arg(long, value_name = "NAME", hide = true)]
    #[serde(skip)]
    pub child_server: Option<String>,

    /// Read blocks of this many bytes, such as 4k,32k [default: 4k; objects: ranges
    /// of 64k]
    #[arg(long, value_name = "SIZE,SIZE")]
    pub block: Option<String>,

    /// Read through the page cache (buffered) or with O_DIRECT (direct) [default:
    /// both]
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,

    /// Read in this order: seq, random [default: buffered: seq, direct: random]
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<String>,

    /// Bring the page cache into this state: warm, cold, bounded, or bounded:SIZE
    /// (limited by a memory cgroup) [default: warm; latency, objects, copy: warm and
    /// cold; SIZE: a quarter of the files]
    #[arg(long, value_name = "STATE")]
    pub cache: Option<String>,

    /// Create this many bytes of test files per profile, such as 1g; scale: in all
    /// directories together [default: 1000m, or less if space or time is short;
    /// latency: 64m; chain: 32m, --standard 256m; --full: direct 10g]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,

    /// Create this many test files per profile [default: buffered: 10, direct: 1;
    /// objects: 4; stat: 100000, in the quick suite 10000; scale: the threads divided
    /// by the directories, in each directory]
    #[arg(long, value_name = "N")]
    pub files: Option<String>,

    /// read: also run the engine "threads" with this many [default: one per
    /// processor]; scale: run each engine with these numbers of threads; "all" is
    /// one per processor [default: 1,2,4,all]
    #[arg(long, value_name = "N,N")]
    pub threads: Option<String>,

    /// Measure each sample for this long, such as 500ms [default: as long as fits
    /// into two minutes; --standard: 500ms; --full: 2s]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,

    /// Measure this many reads per sample, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    pub reads: Option<String>,

    /// Take this many interleaved blocks of two samples per row [default: 5; copy: 4;
    /// log: 3, with --quick 2; up to three times as many while confidence intervals
    /// are wide]
    #[arg(long, value_name = "N")]
    pub repeats: Option<String>,

    /// Derive content, offsets and the order of engines from this number [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<String>,

    /// Write the results here [default: ringwise-lab-DATE-TIME.json]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Read options from a JSON file that has their names as keys
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Show these percentiles: p50, p90, p99, p99.9, p99.99 [default:
    /// p50,p99,p99.9]
    #[arg(long, value_name = "P,P")]
    pub percentiles: Option<String>,

    /// Draw latencies over time into this directory, as SVG files with an "index.svg"
    #[arg(long, value_name = "DIR", conflicts_with = "reads")]
    pub heatmap: Option<PathBuf>,

    /// Continue an interrupted run from its partial results file
    #[arg(long, value_name = "FILE", exclusive = true)]
    #[serde(skip)]
    pub resume: Option<PathBuf>,

    /// Check the lab itself: run the same engine in all rows, this many times, and
    /// exit with 1 if more than 5 % of the rows differ
    #[arg(long, value_name = "RUNS")]
    pub self_check: Option<String>,

    /// Keep the test files for the next run
    #[arg(long)]
    pub keep: bool,

    /// Print every table and verdict as soon as it is measured
    #[arg(long)]
    pub verbose: bool,
}

/// A help that begins with the three things that people do.
const EXAMPLES_OF_RECORD: &str = "\
{about-with-newline}
  ringwise lab record -- COMMAND           record a command until it ends
  ringwise lab record --pid PID            record a running process
  ringwise lab record --out t -- COMMAND   write the trace to the file t

{usage-heading} {usage}

{all-args}";

/// What to do in place of a measurement.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// Draw saved results again; show several runs side by side
    Report(ReportArgs),
    /// Compare two results files; exit with 1 if something became slower
    Compare(CompareArgs),
    /// Record the reads, writes, syncs, sends and receives of a program
    #[command(help_template = EXAMPLES_OF_RECORD)]
    Record(RecordArgs),
    /// Show where a recorded program waits, and what io_uring would change
    Explain(ExplainArgs),
    /// Repeat the I/O of a recorded program with several engines, and compare them
    Replay(ReplayArgs),
    /// Become the command of a recording
    #[command(hide = true)]
    RecordTracee(TraceeArgs),
}

/// What of saved results is wanted, and where.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ReportArgs {
    /// Read these results files
    #[arg(required = true, value_name = "JSON")]
    pub results: Vec<PathBuf>,

    /// Write an HTML page to this file; it loads nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print Markdown [default without --html, --csv and --fio-json]
    #[arg(long)]
    pub markdown: bool,

    /// Write comma-separated values to this file, one line per row
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the rows of the workload read to this file, as fio's JSON (json+); takes
    /// one results file
    #[arg(long, value_name = "FILE")]
    pub fio_json: Option<PathBuf>,
}

/// What is compared.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct CompareArgs {
    /// Read the earlier results from this file
    #[arg(value_name = "OLD")]
    pub old: PathBuf,

    /// Read the later results from this file
    #[arg(value_name = "NEW")]
    pub new: PathBuf,

    /// Allow each row to be slower, or to use more CPU time, by this share
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub threshold: String,
}

/// What is recorded, and where.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RecordArgs {
    /// Run this command and record it, with its children, until it ends
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "pid")]
    pub command: Vec<OsString>,

    /// Record a running process instead
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,

    /// End the recording after this time, such as 30s; the command goes on
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,

    /// Write the trace to this new file, or to this FIFO [default:
    /// ringwise-record-DATE-TIME.trace]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Hash file names, with a random key that is not kept
    #[arg(long)]
    pub private: bool,

    /// Keep at most this many bytes of perf's events in memory, 1m or more; count the
    /// events that do not fit, and drop them [default: 64m]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,

    /// Observe by perf (tracepoints), by ptrace (slower, and without io_uring), or by
    /// perf if it is allowed and ptrace if not (auto)
    #[arg(long, value_name = "METHOD", default_value = "auto", hide_possible_values = true)]
    pub method: RecordMethod,
}

/// What is explained, and where.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ExplainArgs {
    /// Read this trace: from `ringwise lab record`, from `strace -f -ttt -T -y`, a
    /// fio iolog, or binary events of blktrace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Look up measurements of the same kinds of I/O in this results file of the lab
    #[arg(long, value_name = "JSON")]
    pub results: Option<PathBuf>,

    /// Write an HTML page with charts to this file; it loads nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What is made again, and how.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct ReplayArgs {
    /// Read this trace: from `ringwise lab record`, from `strace -f -ttt -T -y`, a
    /// fio iolog, or binary events of blktrace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Put files like those of the trace below this directory, on the device to be
    /// measured [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Compare these engines with "recorded": uring, uring+one-ring, sync, tokio,
    /// ringwise [default: all that can replay this trace]
    #[arg(long, value_name = "A,B")]
    pub engines: Option<String>,

    /// Keep the recorded pauses between operations (recorded), leave them out (asap),
    /// or start each operation at its recorded time (open)
    #[arg(long, value_name = "PACE", default_value = "recorded", hide_possible_values = true)]
    pub pace: ReplayPace,

    /// Before each sample, load into the page cache: what the trace says was there,
    /// or all data if it does not say (recorded); all data (warm); nothing (cold)
    #[arg(long, value_name = "STATE", default_value = "recorded", hide_possible_values = true)]
    pub cache: ReplayCache,

    /// Record the replay with the same recorder, so that both I/O times include its
    /// cost. Needs a complete trace that was recorded by perf
    #[arg(long)]
    pub recorder: bool,

    /// Refuse a trace if its files need more space than this
    #[arg(long, value_name = "SIZE", default_value = "4g")]
    pub size_max: String,

    /// Take this many interleaved blocks of two samples per engine
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub repeats: u32,

    /// Derive the order of engines from this number
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
}

/// Whether a replay keeps the time between operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplayPace {
    /// As recorded.
    #[default]
    Recorded,
    /// As soon as possible.
    Asap,
    /// At the recorded times.
    Open,
}

/// What of the page cache a replay prepares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReplayCache {
    /// What the trace says.
    #[default]
    Recorded,
    /// All that is read.
    Warm,
    /// Nothing.
    Cold,
}

/// How events are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RecordMethod {
    /// By tracepoints if that is allowed, otherwise by ptrace(2).
    #[default]
    Auto,
    /// By tracepoints.
    Perf,
    /// By ptrace(2).
    Ptrace,
}

/// What the child of a recording becomes.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct TraceeArgs {
    /// How it is stopped, and the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<OsString>,
}

impl Args {
    /// What was typed, and where nothing was, what the `--config` file says.
    ///
    /// # Errors
    ///
    /// [`LabError::Failed`] if the file cannot be read or is not JSON, [`LabError::Usage`] for a key that is no flag and
    /// a value that it cannot have.
    pub fn with_config(self) -> Result<Args, LabError> {
        let Some(path) = &self.config else { return Ok(self) };
        let name = path.display().to_string();
        let unread = |why| LabError::Failed(format!("--config {name}: {why}"));
        let text = fs::read_to_string(path).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied => "name a file that you may read",
                io::ErrorKind::InvalidData => "name a file of JSON",
                _ => "name an existing file",
            };
            unread(format!("{}; {advice}", plain(&error)))
        })?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| unread(format!("is not JSON: {error}")))?;
        let failed = |error| LabError::Usage(format!("--config {name}: {error}"));
        let mut flags: Map<String, Value> = from_value(value).map_err(failed)?;
        flags.iter_mut().filter(|(name, _)| *name != "target").for_each(|(_, value)| {
            if let Some(typed) = as_typed(value) {
                *value = typed.into();
            }
        });
        self.or(flags).map_err(failed)
    }

    /// What was typed as a `--config` file would say it: the flags that were given.
    pub fn as_config(&self) -> Value {
        // A path that is no text cannot be in JSON; without it the rest is still worth having.
        let without_paths =
            || Args { dir: None, out: None, json: None, heatmap: None, ..self.clone() };
        let typed = serde_json::to_value(self).or_else(|_| serde_json::to_value(without_paths()));
        let Ok(Value::Object(mut flags)) = typed else { return Value::Null };
        flags.retain(|_, value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(items) => !items.is_empty(),
            _ => true,
        });
        Value::Object(flags)
    }

    /// The names of the flags that were given.
    pub fn given(&self) -> Vec<String> {
        let flags = self.as_config();
        flags.as_object().map_or_else(Vec::new, |flags| flags.keys().cloned().collect())
    }

    /// These flags, and of a file's the others.
    fn or(self, mut flags: Map<String, Value>) -> Result<Args, serde_json::Error> {
        // Unknown flags and wrong types are errors, even if they are not used.
        let config: Args = from_value(Value::Object(flags.clone()))?;
        let Value::Object(typed) = self.as_config() else { return Ok(self) };
        // A time that was typed replaces a count in the file, and the other way round.
        for together in [&["duration", "reads"][..], &["quick", "standard", "full"]] {
            if together.iter().any(|name| typed.contains_key(*name)) {
                together.iter().for_each(|name| drop(flags.remove(*name)));
            }
        }
        flags.extend(typed);
        let both: Args = from_value(Value::Object(flags))?;
        // A path that is no text is in no JSON.
        let (dir, out) = (self.dir.or(config.dir), self.out.or(config.out));
        let (json, heatmap) = (self.json.or(config.json), self.heatmap.or(config.heatmap));
        let Args { action, config, resume, child_server, .. } = self;
        Ok(Args { action, config, resume, child_server, dir, out, json, heatmap, ..both })
    }
}

/// A number or a list, as it would be typed.
fn as_typed(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(as_typed).collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<Args, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let args = Args { config: Some(file.path().into()), ..Args::default() };
        args.with_config().map_err(|error| error.to_string())
    }

    #[test]
    fn a_config_reads_as_if_typed() {
        let args = config(
            r#"{"depth": [1, 32], "block": "4k", "engines": ["sync", "uring"], "repeats": 7,
                "full": true, "dir": "/data", "ablate": true}"#,
        )
        .unwrap();
        assert_eq!(args.depth.as_deref(), Some("1,32"));
        assert_eq!(args.engines.as_deref(), Some("sync,uring"));
        assert_eq!((args.repeats.as_deref(), args.full, args.ablate), (Some("7"), true, true));
        assert_eq!(args.dir, Some("/data".into()));
    }

    #[test]
    fn what_is_typed_wins() {
        let config = Args {
            depth: Some("64".into()),
            duration: Some("1s".into()),
            full: true,
            ..Args::default()
        };
        let typed = Args { reads: Some("10".into()), quick: true, ..Args::default() };
        let Value::Object(config) = config.as_config() else { panic!("{config:?}") };
        let both = typed.or(config).unwrap();
        assert_eq!((both.depth.as_deref(), both.reads.as_deref()), (Some("64"), Some("10")));
        assert_eq!((both.duration, both.quick, both.full), (None, true, false));
    }

    #[test]
    fn what_is_no_flag_is_named() {
        let error = config(r#"{"dept": 3}"#).unwrap_err();
        assert!(error.contains("`dept`") && error.contains("`depth`"), "{error}");
        for bad in ["[]", "{\"depth\": {}}", "{\"keep\": 3}", "{\"config\": \"x\"}"] {
            let error = config(bad).unwrap_err();
            assert!(error.starts_with("--config /") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_config_that_cannot_be_read_is_a_failure_and_one_that_is_wrong_is_usage() {
        let read = |path: &str| {
            let args = Args { config: Some(path.into()), ..Args::default() };
            let error = args.with_config().unwrap_err();
            (error.exit_status(), error.to_string())
        };
        let nope = "--config nope: No such file or directory; name an existing file";
        assert_eq!(read("nope"), (1, nope.to_owned()));
        assert_eq!(read("."), (1, "--config .: Is a directory; name an existing file".to_owned()));
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        for (text, status, part) in [
            ("", 1, ": is not JSON: EOF while parsing"),
            ("[", 1, ": is not JSON: EOF while parsing"),
            ("{\"dept\": 3}", 2, ": unknown field `dept`"),
            ("{\"keep\": 3}", 2, ": invalid type: "),
        ] {
            fs::write(path, text).unwrap();
            let (own, error) = read(path);
            assert_eq!(own, status, "{error}");
            assert!(error.starts_with(&format!("--config {path}{part}")), "{error}");
        }
    }
}
