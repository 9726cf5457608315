//! Checks what was typed, and says in one line what is wrong with it and what is accepted.

use std::{fmt, path::PathBuf, time::Duration};

use ringwise_measure::quantity::parse_duration;

use super::{
    CopyPlan, EchoPlan, ExtentChoice, LogPlan, Percentile, Plan, Workload, groups::groups,
};
use crate::{args::Args, error::LabError};

/// The most reads in flight, threads and files. Each thread takes a quarter of a mebibyte for its
/// latencies.
pub(super) const COUNT_MAX: u64 = 1024;
/// Two samples each: eight copies are enough for a median of seven or more.
const COPY_REPEATS: u64 = 4;

impl Plan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub fn new(args: &Args) -> Result<Plan, LabError> {
        let workloads = match args.workload.as_deref() {
            // The suite; more workloads are to come.
            None | Some("read") => vec![Workload::Read],
            Some("nop") => vec![Workload::Nop],
            Some("echo") => vec![Workload::Echo],
            Some("log") => vec![Workload::Log],
            Some("copy") => vec![Workload::Copy],
            Some(other) => return Err(unknown("workload", other, "read, nop, echo, copy, log")),
        };
        let depths = args.depth.as_deref().map(|text| counts("--depth", text)).transpose()?;
        let is_echo = workloads == [Workload::Echo];
        let is_copy = workloads == [Workload::Copy];
        let is_log = workloads == [Workload::Log];
        only_for_servers(args, is_echo, is_log)?;
        if !is_copy && (args.sets.is_some() || args.study) {
            let flag = if args.study { "--study" } else { "--sets" };
            return Err(usage(flag, "is for the workload copy only"));
        }
        let plan = Plan {
            groups: match workloads[..] {
                [Workload::Echo | Workload::Copy | Workload::Log] => Vec::new(),
                _ => groups(args, depths.as_deref())?,
            },
            echo: if is_echo { EchoPlan::new(args)? } else { EchoPlan::default() },
            log: if is_log { LogPlan::new(args)? } else { LogPlan::default() },
            copy: if is_copy { CopyPlan::new(args)? } else { CopyPlan::default() },
            batches: depths.unwrap_or_else(|| vec![1, 32, 256]),
            workloads,
            directory: args.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
            keep: args.keep,
            json: args.json.clone(),
            out: args.out.clone().unwrap_or_else(|| PathBuf::from(".")),
            seed: number("--seed", args.seed.as_deref(), 0, u64::MAX)?.unwrap_or(1),
            repeats: repeats(args, is_copy, is_log)? as usize,
            extent: extent(args, is_log)?,
            percentiles: percentiles(args)?,
            heatmap: args.heatmap.clone(),
        };
        if !plan.out.is_dir() {
            return Err(usage("--out", format_args!("{}: not a directory", plan.out.display())));
        }
        heatmap(&plan)?;
        Ok(plan)
    }
}

/// Flags that would be without effect elsewhere.
fn only_for_servers(args: &Args, is_echo: bool, is_log: bool) -> Result<(), LabError> {
    let both = (is_echo || is_log, "workloads echo and log");
    let log = (is_log, "workload log");
    for (flag, is_given, (is_meant, whose)) in [
        ("--connections", args.connections.is_some(), both),
        ("--length", args.length.is_some(), both),
        ("--target", !args.target.is_empty(), both),
        ("--guarantee", args.guarantee.is_some(), log),
        ("--transport", args.transport.is_some(), log),
        ("--rate", args.rate.is_some(), log),
    ] {
        if is_given && !is_meant {
            return Err(usage(flag, format_args!("is for the {whose} only")));
        }
    }
    Ok(())
}

/// Interleaved blocks. Fewer than elsewhere where each sample of `log` starts a daemon.
fn repeats(args: &Args, is_copy: bool, is_log: bool) -> Result<u64, LabError> {
    let default = match (is_copy, is_log) {
        (true, _) => COPY_REPEATS,
        (_, true) if args.quick => 2,
        (_, true) if !args.full => 3,
        _ => 5,
    };
    Ok(number("--repeats", args.repeats.as_deref(), 1, 1000)?.unwrap_or(default))
}

/// Latencies over time need a time, and a place to go.
fn heatmap(plan: &Plan) -> Result<(), LabError> {
    let Some(path) = &plan.heatmap else { return Ok(()) };
    if plan.workloads != [Workload::Read] {
        return Err(usage("--heatmap", "is drawn for the workload read only"));
    }
    if matches!(plan.extent, ExtentChoice::Reads(_)) {
        return Err(usage("--heatmap", "needs a time: use --duration in place of --reads"));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let is_possible =
        path.is_dir() || (!path.exists() && parent.is_none_or(|parent| parent.is_dir()));
    if !is_possible {
        let what = format!("{}: neither a directory nor a new name in one", path.display());
        return Err(usage("--heatmap", what));
    }
    Ok(())
}

fn percentiles(args: &Args) -> Result<Vec<Percentile>, LabError> {
    let Some(text) = args.percentiles.as_deref() else {
        return Ok(Percentile::DEFAULT.to_vec());
    };
    list(text, |name| {
        let accepted = Percentile::ALL.map(Percentile::name).join(", ");
        Percentile::parse(name).ok_or_else(|| unknown("--percentiles", name, &accepted))
    })
}

fn extent(args: &Args, is_log: bool) -> Result<ExtentChoice, LabError> {
    if let Some(reads) = number("--reads", args.reads.as_deref(), 1, u64::MAX)? {
        return Ok(ExtentChoice::Reads(reads));
    }
    let Some(text) = args.duration.as_deref() else {
        if is_log {
            // A daemon is started and its files are read for each sample, so that a budget of time
            // would say little.
            let time = if args.quick { 250 } else { 500 };
            let time = if args.full { 2000 } else { time };
            return Ok(ExtentChoice::Time(Duration::from_millis(time)));
        }
        return Ok(match args.full {
            true => ExtentChoice::Time(Duration::from_secs(2)),
            false => ExtentChoice::Budget(Duration::from_secs(88)),
        });
    };
    let time = parse_duration(text).map_err(|error| usage("--duration", error))?;
    if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&time) {
        return Err(usage("--duration", format_args!("{text}: expected 10ms to 60m")));
    }
    Ok(ExtentChoice::Time(time))
}

fn counts(flag: &str, text: &str) -> Result<Vec<usize>, LabError> {
    list(text, |item| Ok(number(flag, Some(item), 1, COUNT_MAX)?.unwrap_or(1) as usize))
}

/// The items of a list in the order typed, each once.
pub(super) fn list<T: PartialEq>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, LabError>,
) -> Result<Vec<T>, LabError> {
    let mut items = Vec::new();
    for item in text.split(',') {
        let item = parse(item.trim())?;
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Ok(items)
}

pub(super) fn number(
    flag: &str,
    text: Option<&str>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, LabError> {
    let Some(text) = text else { return Ok(None) };
    let accepted = if most == u64::MAX {
        format!("a whole number of at least {least}")
    } else {
        format!("{least} to {most}")
    };
    match text.trim().parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => Err(usage(flag, format_args!("{text}: expected {accepted}"))),
    }
}

pub(super) fn usage(flag: &str, what: impl fmt::Display) -> LabError {
    LabError::Usage(format!("{flag} {what}"))
}

pub(super) fn unknown(what: &str, value: &str, accepted: &str) -> LabError {
    let what = if what.starts_with("--") { what.to_owned() } else { format!("unknown {what}") };
    LabError::Usage(format!("{what} {value:?}: expected {accepted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dataset::Size,
        job::{Cache, Pattern},
        plan::{EngineName, Group},
    };

    const MIB: u64 = 1 << 20;

    fn args(change: impl FnOnce(&mut Args)) -> Args {
        let mut args = Args::default();
        change(&mut args);
        args
    }

    fn refused(change: impl FnOnce(&mut Args)) -> String {
        let error = Plan::new(&args(change)).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn nothing_typed_is_the_quick_suite() {
        let plan = Plan::new(&Args::default()).unwrap();
        assert_eq!(plan.workloads, [Workload::Read]);
        assert_eq!((plan.repeats, plan.seed, plan.keep), (5, 1, false));
        assert!(matches!(plan.extent, ExtentChoice::Budget(_)));
        let [buffered, direct] = &plan.groups[..] else { panic!("{plan:?}") };
        assert_eq!((buffered.pattern, buffered.cache), (Pattern::Sequential, Cache::Warm));
        assert_eq!((direct.pattern, direct.cache), (Pattern::Random, Cache::Bypassed));
        assert_eq!((buffered.files, buffered.size.most), (10, 1000 * MIB));
        assert_eq!(direct.depths, [1, 32]);
        assert_eq!(direct.engines, EngineName::DEFAULT);
    }

    #[test]
    fn full_is_the_published_size() {
        let plan = Plan::new(&args(|args| args.full = true)).unwrap();
        assert_eq!(plan.groups[1].size, Size::exactly(10 << 30));
        assert_eq!(plan.groups[0].size, Size::exactly(1000 * MIB));
        assert_eq!(plan.groups[1].depths.last(), Some(&128));
    }

    #[test]
    fn lists_are_lists() {
        let plan = Plan::new(&args(|args| {
            args.engines = Some("sync, uring,uring-registered-files+sqpoll,uring,fio+fixed".into());
            args.depth = Some("8,1,8".into());
            args.block = Some("4k,32k".into());
            args.profile = Some("direct".into());
        }))
        .unwrap();
        assert_eq!(plan.groups.len(), 2);
        assert_eq!(plan.groups[1].block_bytes, 32 << 10);
        assert_eq!(plan.groups[0].depths, [8, 1]);
        let names: Vec<String> =
            plan.groups[0].engines.iter().map(|name| name.to_string()).collect();
        assert_eq!(
            names,
            ["sync", "uring", "uring-registered-files+sqpoll", "fio+fixed", "uring+unverified"]
        );
    }

    #[test]
    fn ablation_adds_each_switch_once() {
        let plan = Plan::new(&args(|args| {
            args.engines = Some("sync,uring+iopoll".into());
            args.ablate = true;
        }))
        .unwrap();
        let names: Vec<String> =
            plan.groups[0].engines.iter().map(|name| name.to_string()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names.iter().filter(|name| *name == "uring+iopoll").count(), 1);
    }

    #[test]
    fn bad_input_is_named_with_what_is_accepted() {
        let set = |text: &str| Some(text.to_owned());
        for (text, parts) in [
            (refused(|a| a.workload = set("raed")), ["unknown workload \"raed\"", "read, nop"]),
            (refused(|a| a.engines = set("sync,uing")), ["unknown engine \"uing\"", "uring"]),
            (refused(|a| a.engines = set("uring+sqpol")), ["\"uring+sqpol\"", "uring+sqpoll"]),
            (refused(|a| a.engines = set("")), ["unknown engine \"\"", "uring"]),
            (refused(|a| a.depth = set("0")), ["--depth 0", "1 to 1024"]),
            (refused(|a| a.depth = set("1,,2")), ["--depth :", "1 to 1024"]),
            (refused(|a| a.depth = set("-1")), ["--depth -1", "1 to 1024"]),
            (refused(|a| a.block = set("3000")), ["--block 3000", "multiple of 512"]),
            (refused(|a| a.block = set("0")), ["--block 0", "1 to 64m"]),
            (refused(|a| a.block = set("4kb")), ["--block size \"4kb\"", "k, m or g"]),
            (refused(|a| a.profile = set("fast")), ["--profile \"fast\"", "buffered, direct"]),
            (refused(|a| a.pattern = set("up")), ["--pattern \"up\"", "seq, random"]),
            (refused(|a| a.cache = set("hot")), ["--cache \"hot\"", "warm, cold, bounded"]),
            (refused(|a| a.cache = set("bounded:x")), ["--cache bounded: size \"x\"", "k, m or g"]),
            (refused(|a| a.cache = set("bounded:1m")), ["--cache bounded:1m", "at least"]),
            (refused(|a| a.cache = set("bounded:2g")), ["--cache bounded:2g", "--size"]),
            (
                refused(|a| {
                    a.cache = set("bounded");
                    a.pattern = set("seq")
                }),
                ["--pattern seq", "random"],
            ),
            (refused(|a| a.percentiles = set("p50,p95")), ["\"p95\"", "p50, p90, p99, p99.9"]),
            (
                refused(|a| a.heatmap = Some("/nonexistent/x".into())),
                ["--heatmap /nonexistent/x", "directory"],
            ),
            (
                refused(|a| {
                    a.heatmap = Some("x".into());
                    a.reads = set("10")
                }),
                ["--heatmap", "--duration"],
            ),
            (
                refused(|a| {
                    a.heatmap = Some("x".into());
                    a.workload = set("nop")
                }),
                ["--heatmap", "read"],
            ),
            (refused(|a| a.size = set("lots")), ["--size size \"lots\"", "k, m or g"]),
            (refused(|a| a.size = set("8k")), ["--size 8k", "need"]),
            (refused(|a| a.files = set("0")), ["--files 0", "1 to 1024"]),
            (refused(|a| a.threads = set("x")), ["--threads x", "1 to 1024"]),
            (refused(|a| a.repeats = set("0")), ["--repeats 0", "1 to 1000"]),
            (refused(|a| a.reads = set("0")), ["--reads 0", "at least 1"]),
            (refused(|a| a.seed = set("one")), ["--seed one", "whole number"]),
            (refused(|a| a.duration = set("1ms")), ["--duration 1ms", "10ms"]),
            (refused(|a| a.duration = set("soon")), ["--duration duration \"soon\"", "us, ms"]),
            (refused(|a| a.out = Some("/nonexistent".into())), ["--out /nonexistent", "directory"]),
            (
                refused(|a| {
                    a.depth = set("1024");
                    a.block = set("2m")
                }),
                ["--depth times --block", "1 GiB"],
            ),
            (
                refused(|a| {
                    a.profile = set("direct");
                    a.cache = set("cold")
                }),
                ["--cache", "buffered"],
            ),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_bounded_cache_is_for_all_that_reads_through_it() {
        let plan = Plan::new(&args(|args| {
            args.cache = Some("bounded:256m".into());
            args.engines = Some("mmap,uring".into());
            args.depth = Some("32".into());
        }))
        .unwrap();
        let [buffered, direct] = &plan.groups[..] else { panic!("{plan:?}") };
        assert_eq!(buffered.bound_bytes, Some(256 * MIB));
        assert_eq!((buffered.pattern, direct.pattern), (Pattern::Random, Pattern::Random));
        let caches = |group: &Group| ["mmap", "uring"].map(|engine| group.cache_of(engine));
        assert_eq!(caches(buffered), [Cache::Bounded, Cache::Bounded]);
        assert_eq!(caches(direct), [Cache::Bounded, Cache::Bypassed]);
        let without = Plan::new(&args(|args| {
            args.cache = Some("bounded".into());
            args.engines = Some("uring".into());
        }));
        assert_eq!(without.unwrap().groups[1].cache, Cache::Bypassed, "nothing to be bounded");
    }

    #[test]
    fn odd_blocks_are_fine_through_the_cache() {
        let plan = Plan::new(&args(|args| {
            args.block = Some("3000".into());
            args.profile = Some("buffered".into());
        }));
        assert_eq!(plan.unwrap().groups[0].block_bytes, 3000);
    }
}
