//! `fio`: the fio program's own io_uring engine on the same files, for comparison. Only on demand,
//! since it is another program.
//!
//! It is run anew for each sample, so that it takes part in the interleaving, with these
//! arguments: `--ioengine=io_uring --direct=1 --iodepth=DEPTH --bs=BLOCK --rw=randread
//! --norandommap --time_based --ramp_time=... --runtime=...`; a run with a cold cache is without `--norandommap`;
//! `fio+fixed` adds `--fixedbufs --registerfiles`, and `fio+batches` has as many operations in a call as the lab's ring,
//! where fio hands each one over alone. Its figures are its own: operations per second, latencies from its histogram
//! (`lat_percentiles=1`: from before an operation is submitted, as the lab's own begin; its completion
//! latency begins when io_uring_enter(2) has come back, which at depth 1 is most of the time), and the CPU time (usr + sys) of its thread. It verifies nothing, and pays
//! nothing for it.

use std::{
    fmt,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use ringwise_measure::Latency;
use serde::Deserialize;

use super::{Engine, Named, Tally, rolling::Batches};
use crate::{
    error::plain,
    sampling::{
        job::{Cache, Extent, Failure, Job, Pattern, Start, Timing},
        lane::Counts,
    },
};

/// How fio works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// As it does by itself.
    Alone,
    /// With registered buffers and files.
    Fixed,
    /// With the lab's number of operations in a call.
    Batches,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Alone, Way::Fixed, Way::Batches];

    /// What the name of the engine has after `fio`.
    fn suffix(self) -> &'static str {
        match self {
            Way::Alone => "",
            Way::Fixed => "+fixed",
            Way::Batches => "+batches",
        }
    }
}

impl Named for Way {
    const DEFAULT: Way = Way::Alone;

    fn parse(text: &str) -> Option<Way> {
        Way::ALL.into_iter().find(|way| way.suffix() == text)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.suffix())
    }

    fn engine(self, timing: Timing) -> Box<dyn Engine> {
        Box::new(Fio { way: self, timing })
    }
}

/// The engine.
#[derive(Debug)]
pub struct Fio {
    /// How it is configured.
    pub way: Way,
    /// How long fio measures; it keeps its own time.
    pub timing: Timing,
}

impl Engine for Fio {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let mut command = Command::new("fio");
        command.args(self.arguments(job)).stdin(Stdio::null()).stderr(Stdio::piped());
        start.ready()?;
        let output = command
            .output()
            .map_err(|error| Failure::Unavailable(format!("running fio: {}", plain(&error))))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or("no message");
            return Err(Failure::Unavailable(format!("fio failed ({}): {line}", output.status)));
        }
        parse(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Fio {
    fn arguments(&self, job: &Job) -> Vec<String> {
        // fio splits names at colons.
        let names: Vec<String> = job
            .files
            .iter()
            .map(|file| file.path.to_string_lossy().replace('\\', "\\\\").replace(':', "\\:"))
            .collect();
        let total_bytes: u64 = job.files.iter().map(|file| file.bytes).sum();
        let is_random = job.pattern == Pattern::Random;
        let mut arguments = vec![
            "--name=ringwise".to_owned(),
            "--readonly".to_owned(),
            format!("--filename={}", names.join(":")),
            format!("--size={total_bytes}"),
            "--ioengine=io_uring".to_owned(),
            format!("--direct={}", u8::from(job.cache == Cache::Bypassed)),
            format!("--invalidate={}", u8::from(job.cache == Cache::Cold)),
            format!("--iodepth={}", job.depth),
            format!("--bs={}", job.block_bytes),
            format!("--rw={}", if is_random { "randread" } else { "read" }),
            format!("--randseed={}", job.order_seed),
            "--output-format=json+".to_owned(),
            "--lat_percentiles=1".to_owned(),
            "--eta=never".to_owned(),
        ];
        if is_random {
            arguments.push("--file_service_type=random".into());
            // A cold cache has no block that was read before.
            if job.cache != Cache::Cold {
                arguments.push("--norandommap".into());
            }
        } else {
            arguments.push("--file_service_type=sequential".into());
        }
        match self.timing.extent {
            Extent::Time(time) => arguments.extend([
                "--time_based".to_owned(),
                format!("--ramp_time={}", microseconds(self.timing.warm_up)),
                format!("--runtime={}", microseconds(time)),
            ]),
            Extent::Operations(count) => arguments.push(format!("--number_ios={count}")),
        }
        match self.way {
            Way::Alone => {}
            Way::Fixed => arguments.extend(["--fixedbufs".into(), "--registerfiles".into()]),
            Way::Batches => {
                let Batches { fresh_max, wanted } = Batches::of(job.cache, job.depth);
                arguments.extend([
                    format!("--iodepth_batch_submit={}", fresh_max.min(job.depth)),
                    format!("--iodepth_batch_complete_min={wanted}"),
                    format!("--iodepth_batch_complete_max={}", job.depth),
                ]);
            }
        }
        arguments
    }
}

fn microseconds(duration: Duration) -> String {
    format!("{}us", duration.as_micros())
}

#[derive(Deserialize)]
struct Report {
    jobs: Vec<JobReport>,
}

#[derive(Deserialize)]
struct JobReport {
    read: Direction,
    usr_cpu: f64,
    sys_cpu: f64,
    /// Milliseconds; what the shares of CPU time are of.
    job_runtime: f64,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    io_bytes: u64,
    iops: f64,
    lat_ns: Latencies,
}

#[derive(Deserialize)]
struct Latencies {
    #[serde(default)]
    bins: std::collections::BTreeMap<u64, u64>,
}

fn parse(text: &str) -> Result<Tally, Failure> {
    let unexpected = |what: &str| Failure::Unavailable(format!("fio's output: {what}"));
    // Warnings come before the report.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Report =
        serde_json::from_str(json).map_err(|error| unexpected(&error.to_string()))?;
    let [job] = &report.jobs[..] else { return Err(unexpected("not one job")) };
    if job.read.iops <= 0.0 {
        return Err(unexpected("no operation"));
    }
    let mut latency = Latency::new();
    if job.read.lat_ns.bins.is_empty() {
        return Err(unexpected("no latencies (lat_ns.bins): it wants fio 3.17 or later"));
    }
    job.read.lat_ns.bins.iter().for_each(|(&ns, &count)| latency.record_many_ns(ns, count));
    let operations = job.read.total_ios;
    let elapsed_ns = operations as f64 * 1e9 / job.read.iops;
    let cpu_ns = (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime * 1e6;
    Ok(Tally {
        counts: Counts { operations, bytes: job.read.io_bytes, ..Counts::default() },
        latency,
        elapsed_ns: elapsed_ns as u64,
        foreign_cpu_ns: Some(cpu_ns as u64),
        detail: Some("another program; not verified".to_owned()),
        ..Tally::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dataset::DataFile, sampling::lane::Record};

    #[test]
    fn a_report_is_read() {
        let text = r#"fio: a warning
            {"fio version": "fio-3.33", "jobs": [{"usr_cpu": 1.0, "sys_cpu": 31.0,
            "job_runtime": 300, "read": {"io_bytes": 409600, "total_ios": 100, "iops": 1000.0,
            "clat_ns": {"bins": {"100": 99, "5000": 1}},
            "lat_ns": {"bins": {"900": 99, "6000": 1}}}}]}"#;
        let tally = parse(text).unwrap();
        assert_eq!((tally.counts.operations, tally.elapsed_ns), (100, 100_000_000));
        assert_eq!(tally.foreign_cpu_ns, Some(96_000_000));
        assert_eq!(tally.latency.count(), 100);
        let p50 = tally.latency.percentiles().p50;
        assert!((899..=901).contains(&p50), "from the submission on, not from its end: {p50}");
        let without =
            text.replace(r#""lat_ns": {"bins": {"900": 99, "6000": 1}}"#, r#""lat_ns": {}"#);
        assert!(matches!(parse(&without), Err(Failure::Unavailable(_))));
        for bad in ["", "{}", "not json", r#"{"jobs": []}"#, "{\"jobs\": [{}]}"] {
            assert!(matches!(parse(bad), Err(Failure::Unavailable(_))), "{bad}");
        }
    }

    fn job(cache: Cache) -> Job {
        Job {
            files: [DataFile { path: "/a:b/c".into(), number: 0, bytes: 8192 }].into(),
            seed: 1,
            block_bytes: 4096,
            depth: 32,
            pattern: Pattern::Random,
            cache,
            order_seed: 9,
            heatmap: false,
            interrupt: Arc::default(),
            failed: false.into(),
            latency: Record::default(),
        }
    }

    #[test]
    fn only_a_cold_cache_has_each_block_read_once() {
        let timing = Timing { warm_up: Duration::ZERO, extent: Extent::Operations(2) };
        for (cache, repeats) in [(Cache::Cold, false), (Cache::Warm, true), (Cache::Bypassed, true)]
        {
            let arguments = Fio { way: Way::Alone, timing }.arguments(&job(cache));
            assert_eq!(arguments.contains(&"--norandommap".to_owned()), repeats, "{cache}");
        }
    }

    #[test]
    fn names_with_colons_stay_whole() {
        let timing = Timing {
            warm_up: Duration::from_millis(40),
            extent: Extent::Time(Duration::from_millis(400)),
        };
        let of = |way| Fio { way, timing }.arguments(&job(Cache::Bypassed)).join(" ");
        let arguments = of(Way::Fixed);
        assert!(arguments.contains(r"--filename=/a\:b/c "), "{arguments}");
        assert!(arguments.contains(" --lat_percentiles=1 "), "{arguments}");
        assert!(arguments.contains("--direct=1") && arguments.contains("--iodepth=32"));
        assert!(arguments.contains("--ramp_time=40000us --runtime=400000us --fixedbufs"));
        assert!(!of(Way::Alone).contains("batch"));
        let batches = "--iodepth_batch_submit=4 --iodepth_batch_complete_min=2 --iodepth_batch_complete_max=32";
        assert!(of(Way::Batches).ends_with(batches), "{}", of(Way::Batches));
    }
}
