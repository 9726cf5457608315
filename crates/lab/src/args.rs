//! The command line as typed: nothing here is checked yet. `plan` says what it means.
//!
//! A `--config` file is the same thing in JSON, with the flags' names as keys; what is typed wins.

use std::{fs, path::PathBuf};

use clap::Args as ClapArgs;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::Value;

use crate::{
    error::{LabError, plain},
    offline::Action,
};

/// Measure engines side by side on this machine, and say which one pays.
#[derive(Clone, Debug, Default, ClapArgs, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// What to do with saved results instead
    #[command(subcommand)]
    #[serde(skip)]
    pub action: Option<Action>,

    /// What to measure: read, latency, nop, chain, stat, echo, copy, log [default: the
    /// suite of all of them]
    #[serde(deserialize_with = "text")]
    pub workload: Option<String>,

    /// About two minutes (default)
    #[arg(long)]
    pub quick: bool,

    /// More depths, blocks of 512 to 4m, rings that poll, half a second per sample: half an hour
    #[arg(long, conflicts_with = "quick")]
    pub standard: bool,

    /// As large as published studies: 10 GB direct, eight depths, blocks of 512 to 4m, seconds per
    /// sample; the space and the time that it needs are said first
    #[arg(long, conflicts_with_all = ["quick", "standard"])]
    pub full: bool,

    /// An existing directory on the device to be measured; test files go into a directory
    /// "ringwise-lab-data" in it [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Where the results file goes [default: the current directory]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Engines, separated by commas: sync, threads, mmap, tokio, aio, uring, ringwise, fio,
    /// fio+fixed; ringwise is the library's files in tokio ("ringwise+driver-thread": not driven by
    /// the runtime, "ringwise+one-worker": a runtime with one worker thread); uring takes switches
    /// as in "uring-registered-buffers" or "uring+sqpoll":
    /// registered-buffers, registered-files, defer-taskrun (on unless taken away), coop-taskrun,
    /// sqpoll, iopoll; fio, the program, looks at nothing it reads, so "uring+unverified" and
    /// "ringwise+unverified" run beside it [default: all but ringwise and fio]
    #[arg(long, value_name = "A,B")]
    #[serde(deserialize_with = "text")]
    pub engines: Option<String>,

    /// Beside uring, the same with one switch changed, for each switch
    #[arg(long)]
    pub ablate: bool,

    /// Reads, calls or chains in flight, or for nop the batch [default: 1,32; nop: 1,32,256; chain:
    /// 170; --standard and --full: more]
    #[arg(long, value_name = "N,N")]
    #[serde(deserialize_with = "text")]
    pub depth: Option<String>,

    /// For chain: what makes a page durable: fsync, fdatasync, dsync [default: all three through the
    /// page cache, dsync past it]
    #[arg(long, value_name = "KIND,KIND")]
    #[serde(deserialize_with = "text")]
    pub sync: Option<String>,

    /// For echo and log: connections at a time [default: echo 1,2,50,1000; log 64, with --full
    /// 1,64,2000]
    #[arg(long, value_name = "N,N")]
    #[serde(deserialize_with = "text")]
    pub connections: Option<String>,

    /// For echo: bytes of a message, such as 64,4k [default: 64; --full: 64,512,4k,64k]; for log: of
    /// a line [default: 150]
    #[arg(long, value_name = "SIZE,SIZE")]
    #[serde(deserialize_with = "text")]
    pub length: Option<String>,

    /// For copy: data sets, of 1k, 32k, 1m, 32m, 1g (one file), small, medium, large, mix, many,
    /// flat (trees) [default: all]; its engines are ringwise, gnu, xcp, fcp, cpz [default: these],
    /// ringwise-sync, ringwise-uring, ringwise+durable, ringwise+verify, ringwise+atomic; --full has
    /// the data sets of their whole size
    #[arg(long, value_name = "A,B")]
    #[serde(deserialize_with = "text")]
    pub sets: Option<String>,

    /// For copy: instead of programs, the block sizes and depths of `ringwise cp --engine=uring`
    /// [default: --block 1k,4k,16k,64k,256k,1m,4m,32m --depth 1,4,16,64,256 --size 64m]
    #[arg(long)]
    pub study: bool,

    /// For echo and log: another server that is running, beside the engines uring, uring+spin,
    /// uring-spin, epoll, tokio, blocking, node of echo, and uring, epoll, rsyslog-imtcp,
    /// rsyslog-imptcp, rsyslog-relp, syslog-ng, uring+sqpoll of log (--quick: the first three); may
    /// be repeated
    #[arg(long, value_name = "NAME=IP:PORT")]
    pub target: Vec<String>,

    /// For log: what is true of a line that the sender may forget: none, written, durable
    /// [default: all; --quick: none,durable]
    #[arg(long, value_name = "G,G")]
    #[serde(deserialize_with = "text")]
    pub guarantee: Option<String>,

    /// For log: how lines come: plain, tls [default: plain; --full: both]
    #[arg(long, value_name = "T,T")]
    #[serde(deserialize_with = "text")]
    pub transport: Option<String>,

    /// For log: lines per second over all connections, or max for as many as are taken [default:
    /// 50000,max; --quick: max; --full: 200000,max]
    #[arg(long, value_name = "N,max")]
    #[serde(deserialize_with = "text")]
    pub rate: Option<String>,

    /// For log: what is one write of uring and epoll: batch, or receive for what each receive brought
    /// [default: batch]
    #[arg(long, value_name = "GATHER")]
    #[serde(deserialize_with = "text")]
    pub gather: Option<String>,

    /// For log: results that uring and epoll look at before the next are asked for; 1 also sends each
    /// answer by itself [default: all]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub batch: Option<String>,

    /// Serve, for a lab that runs this program as one of its echo servers
    #[arg(long, value_name = "NAME", hide = true)]
    #[serde(skip)]
    pub child_server: Option<String>,

    /// Bytes per read, such as 4k,32k [default: 4k]
    #[arg(long, value_name = "SIZE,SIZE")]
    #[serde(deserialize_with = "text")]
    pub block: Option<String>,

    /// Through the page cache or past it: buffered, direct [default: both]
    #[arg(long, value_name = "PROFILE")]
    #[serde(deserialize_with = "text")]
    pub profile: Option<String>,

    /// seq, random [default: buffered seq, direct random]
    #[arg(long, value_name = "PATTERN")]
    #[serde(deserialize_with = "text")]
    pub pattern: Option<String>,

    /// What the page cache holds in buffered runs: warm, cold; or bounded, bounded:SIZE: the run
    /// has a memory cgroup of that size, for random reads through the page cache, and with
    /// --profile direct for mmap beside direct reads [default: warm; bounded: a quarter of the files]
    #[arg(long, value_name = "STATE")]
    #[serde(deserialize_with = "text")]
    pub cache: Option<String>,

    /// Bytes of test files per profile, such as 1g [default: 1000m, or less where space or time
    /// are short; --full: buffered 1000m, direct 10g]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "text")]
    pub size: Option<String>,

    /// Test files per profile [default: buffered 10, direct 1; stat: 100000, in the quick
    /// suite 10000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub files: Option<String>,

    /// Threads of the engine "threads", beside one thread per unit of depth [default: processors]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub threads: Option<String>,

    /// Measured time per sample, such as 500ms [default: what fits into two minutes; --full: 2s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "text")]
    pub duration: Option<String>,

    /// Reads per sample, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[serde(deserialize_with = "text")]
    pub reads: Option<String>,

    /// Interleaved blocks, each with two samples of every engine [default: 5, and while an interval
    /// is too wide and time allows, up to three times as many]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub repeats: Option<String>,

    /// Seed of the content, the random offsets and the order of engines [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "text")]
    pub seed: Option<String>,

    /// The results file [default: ringwise-lab-DATE-TIME.json]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// A JSON file with these flags as keys
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Percentiles that the table shows: p50, p90, p99, p99.9, p99.99; the results file has them
    /// all [default: p50,p99,p99.9]
    #[arg(long, value_name = "P,P")]
    #[serde(deserialize_with = "text")]
    pub percentiles: Option<String>,

    /// Draw the latencies of each row over time: an SVG file for each and "index.svg" with all
    /// beside each other, into this directory, which is made if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "reads")]
    pub heatmap: Option<PathBuf>,

    /// Go on with an interrupted run, by its partial results file and with the flags that it had
    #[arg(long, value_name = "FILE", exclusive = true)]
    #[serde(skip)]
    pub resume: Option<PathBuf>,

    /// Check the lab with itself, in so many runs: every row of a depth is the same engine, so that
    /// at least 95 % of all rows have to show no difference; exit status 1 where they do not
    #[arg(long, value_name = "RUNS")]
    #[serde(deserialize_with = "text")]
    pub self_check: Option<String>,

    /// Keep the test files for the next run
    #[arg(long)]
    pub keep: bool,
}

impl Args {
    /// What was typed, and where nothing was, what the `--config` file says.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is not JSON, or has a key that is no flag.
    pub fn with_config(self) -> Result<Args, LabError> {
        let Some(path) = &self.config else { return Ok(self) };
        let name = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| LabError::Usage(format!("--config {name}: {}", plain(&error))))?;
        let config: Args = serde_json::from_str(&text)
            .map_err(|error| LabError::Usage(format!("--config {name}: {error}")))?;
        Ok(self.or(config))
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

    fn or(self, config: Args) -> Args {
        // A time that was typed replaces a count in the file, and the other way round.
        let extent_typed = self.duration.is_some() || self.reads.is_some();
        let scale_typed = self.quick || self.standard || self.full;
        Args {
            action: self.action,
            workload: self.workload.or(config.workload),
            quick: self.quick || (config.quick && !scale_typed),
            standard: self.standard || (config.standard && !scale_typed),
            full: self.full || (config.full && !scale_typed),
            dir: self.dir.or(config.dir),
            out: self.out.or(config.out),
            engines: self.engines.or(config.engines),
            ablate: self.ablate || config.ablate,
            depth: self.depth.or(config.depth),
            block: self.block.or(config.block),
            profile: self.profile.or(config.profile),
            pattern: self.pattern.or(config.pattern),
            cache: self.cache.or(config.cache),
            size: self.size.or(config.size),
            files: self.files.or(config.files),
            connections: self.connections.or(config.connections),
            length: self.length.or(config.length),
            sync: self.sync.or(config.sync),
            target: if self.target.is_empty() { config.target } else { self.target },
            sets: self.sets.or(config.sets),
            study: self.study || config.study,
            guarantee: self.guarantee.or(config.guarantee),
            transport: self.transport.or(config.transport),
            rate: self.rate.or(config.rate),
            gather: self.gather.or(config.gather),
            batch: self.batch.or(config.batch),
            child_server: self.child_server,
            threads: self.threads.or(config.threads),
            duration: self.duration.or(config.duration.filter(|_| !extent_typed)),
            reads: self.reads.or(config.reads.filter(|_| !extent_typed)),
            repeats: self.repeats.or(config.repeats),
            seed: self.seed.or(config.seed),
            json: self.json.or(config.json),
            percentiles: self.percentiles.or(config.percentiles),
            heatmap: self.heatmap.or(config.heatmap),
            config: self.config,
            resume: self.resume,
            self_check: self.self_check.or(config.self_check),
            keep: self.keep || config.keep,
        }
    }
}

/// A string, a number, or a list of them: as it would be typed.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
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
    let value = Value::deserialize(deserializer)?;
    match as_typed(&value) {
        Some(text) => Ok(Some(text)),
        None if value.is_null() => Ok(None),
        None => Err(D::Error::custom(format!("{value}: expected a string, a number or a list"))),
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
        let both = typed.or(config);
        assert_eq!((both.depth.as_deref(), both.reads.as_deref()), (Some("64"), Some("10")));
        assert_eq!((both.duration, both.quick, both.full), (None, true, false));
    }

    #[test]
    fn what_is_no_flag_is_named() {
        let error = config(r#"{"dept": 3}"#).unwrap_err();
        assert!(error.contains("`dept`") && error.contains("`depth`"), "{error}");
        for bad in ["", "[", "{\"depth\": {}}", "{\"keep\": 3}", "{\"config\": \"x\"}"] {
            let error = config(bad).unwrap_err();
            assert!(error.starts_with("--config /") && !error.contains('\n'), "{error}");
        }
    }
}
