//! Checks what was typed, and says in one line what is wrong with it and what is accepted.

use std::{fmt, path::PathBuf, time::Duration};

use ringwise_measure::quantity::parse_duration;

use super::{
    CopyPlan, EchoPlan, ExtentChoice, LogPlan, Percentile, Plan, SUITE, Scale, StatPlan, Workload,
    chain::chain,
    flags,
    groups::{groups, latency},
};
use crate::{args::Args, error::LabError};

/// The most reads in flight, threads and files. Each thread takes a quarter of a mebibyte for its
/// latencies.
pub(super) const COUNT_MAX: u64 = 1024;
/// The most runs of a check of the lab with itself: enough for any share.
const SELF_CHECKS_MAX: u64 = 100;
/// Two samples each: eight copies are enough for a median of seven or more.
const COPY_REPEATS: u64 = 4;

impl Plan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub fn new(args: &Args) -> Result<Plan, LabError> {
        let named = args.workload.as_deref().map(workload).transpose()?;
        flags::check(args, named)?;
        let suite = || SUITE.iter().map(|(workload, _)| *workload).collect();
        let workloads: Vec<Workload> = named.map_or_else(suite, |workload| vec![workload]);
        let has = |workload| workloads.contains(&workload);
        let scale = Scale::of(args);
        let depths = args.depth.as_deref().map(|text| counts("--depth", text)).transpose()?;
        let given = depths.as_deref();
        let (is_copy, is_log) = (named == Some(Workload::Copy), named == Some(Workload::Log));
        let plan = Plan {
            groups: if has(Workload::Read) { groups(args, given)? } else { Vec::new() },
            latency: if has(Workload::Latency) { latency(args)? } else { Vec::new() },
            stat: if has(Workload::Stat) {
                StatPlan::new(args, given, scale)?
            } else {
                StatPlan::default()
            },
            chain: if has(Workload::Chain) { chain(args, given, scale)? } else { Vec::new() },
            echo: if has(Workload::Echo) { EchoPlan::new(args)? } else { EchoPlan::default() },
            log: match named {
                Some(Workload::Log) => LogPlan::new(args)?,
                None => LogPlan::of_suite(args, scale)?,
                Some(_) => LogPlan::default(),
            },
            copy: match named {
                Some(Workload::Copy) => CopyPlan::new(args)?,
                None => CopyPlan::of_suite(args)?,
                Some(_) => CopyPlan::default(),
            },
            batches: depths.unwrap_or_else(|| match scale {
                Scale::Quick => vec![1, 32, 256],
                Scale::Standard | Scale::Full => (0..=10).map(|power| 1 << power).collect(),
            }),
            is_suite: named.is_none(),
            spare: spare(args, scale),
            workloads,
            directory: args.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
            keep: args.keep,
            json: args.json.clone(),
            out: args.out.clone().unwrap_or_else(|| PathBuf::from(".")),
            seed: number("--seed", args.seed.as_deref(), 0, u64::MAX)?.unwrap_or(1),
            repeats: repeats(args, is_copy, is_log)? as usize,
            self_check: number("--self-check", args.self_check.as_deref(), 1, SELF_CHECKS_MAX)?
                .map(|runs| runs as usize),
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

fn workload(name: &str) -> Result<Workload, LabError> {
    let accepted = Workload::ALL.map(Workload::name).join(", ");
    let found = Workload::ALL.into_iter().find(|workload| workload.name() == name);
    found.ok_or_else(|| unknown("workload", name, &accepted))
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
        return Ok(match Scale::of(args) {
            Scale::Full => ExtentChoice::Time(Duration::from_secs(2)),
            Scale::Standard => ExtentChoice::Time(Duration::from_millis(500)),
            Scale::Quick => ExtentChoice::Budget(Duration::from_secs(88)),
        });
    };
    let time = parse_duration(text).map_err(|error| usage("--duration", error))?;
    if !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(&time) {
        return Err(usage("--duration", format_args!("{text}: expected 10ms to 60m")));
    }
    Ok(ExtentChoice::Time(time))
}

/// Time for further blocks: none where their number was typed.
fn spare(args: &Args, scale: Scale) -> Duration {
    match scale {
        _ if args.repeats.is_some() => Duration::ZERO,
        Scale::Quick => Duration::from_secs(12),
        Scale::Standard => Duration::from_secs(300),
        Scale::Full => Duration::from_secs(3600),
    }
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
        plan::{EngineName, Group, Profile},
    };

    const MIB: u64 = 1 << 20;

    fn args(change: impl FnOnce(&mut Args)) -> Args {
        let mut args = Args { workload: Some("read".to_owned()), ..Args::default() };
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
        let names: Vec<&str> = plan.workloads.iter().map(|workload| workload.name()).collect();
        assert_eq!(names, ["read", "latency", "nop", "chain", "stat", "echo", "copy", "log"]);
        let log = &plan.log;
        assert_eq!((log.servers.len(), log.groups.len(), log.connections.len()), (2, 1, 1));
        assert_eq!((plan.repeats, plan.seed, plan.keep, plan.is_suite), (5, 1, false, true));
        let [buffered, direct] = &plan.groups[..] else { panic!("{plan:?}") };
        assert_eq!((buffered.pattern, buffered.cache), (Pattern::Sequential, Cache::Warm));
        assert_eq!((direct.pattern, direct.cache), (Pattern::Random, Cache::Bypassed));
        assert_eq!((buffered.files, buffered.size.most), (10, 120 * MIB));
        assert_eq!(direct.depths, [1, 32]);
        assert_eq!(direct.engines, EngineName::DEFAULT);
        let budget = |workload| match plan.extent_of(workload) {
            ExtentChoice::Budget(budget) => budget,
            other => panic!("{other:?}"),
        };
        let total: Duration = plan.workloads.iter().map(|&workload| budget(workload)).sum();
        assert!(total <= Duration::from_secs(105), "{total:?}");
    }

    #[test]
    fn latency_is_one_at_a_time_in_each_state_of_the_cache() {
        let plan = Plan::new(&args(|args| args.workload = Some("latency".into()))).unwrap();
        assert!(!plan.is_suite);
        let states: Vec<(Profile, Cache)> =
            plan.latency.iter().map(|group| (group.profile, group.cache)).collect();
        assert_eq!(
            states,
            [
                (Profile::Buffered, Cache::Warm),
                (Profile::Buffered, Cache::Cold),
                (Profile::Direct, Cache::Bypassed)
            ]
        );
        for group in &plan.latency {
            assert_eq!((&group.depths[..], group.pattern), (&[1][..], Pattern::Random));
            let names: Vec<String> = group.engines.iter().map(EngineName::to_string).collect();
            let all = ["sync", "mmap", "tokio", "aio", "ringwise", "uring"];
            assert_eq!((&names[..6], names.len()), (&all.map(str::to_owned)[..], 12), "{names:?}");
            assert_eq!((group.set, group.files), ("latency", 1));
        }
    }

    #[test]
    fn what_was_typed_is_not_repeated_further() {
        let spare = |repeats: Option<&str>| {
            let args = args(|args| args.repeats = repeats.map(str::to_owned));
            Plan::new(&args).unwrap().spare
        };
        assert_eq!(spare(Some("7")), Duration::ZERO);
        assert!(spare(None) > Duration::ZERO);
    }

    #[test]
    fn full_is_the_published_size() {
        let plan = Plan::new(&args(|args| args.full = true)).unwrap();
        let of = |profile| plan.groups.iter().filter(move |group| group.profile == profile);
        assert!(of(Profile::Direct).all(|group| group.size == Size::exactly(10 << 30)));
        assert!(of(Profile::Buffered).all(|group| group.size == Size::exactly(1000 * MIB)));
        let needs = crate::needs::Needs::of(&plan);
        assert_eq!(needs.space_bytes, (10 << 30) + 1000 * MIB, "groups share their files");
    }

    #[test]
    fn larger_runs_have_depth_256_all_blocks_and_the_polling_modes() {
        for (standard, suite) in [(false, false), (true, false), (false, true), (true, true)] {
            let plan = Plan::new(&args(|args| {
                args.workload = args.workload.take().filter(|_| !suite);
                (args.standard, args.full) = (standard, !standard);
            }));
            let groups = plan.unwrap().groups;
            for profile in [Profile::Buffered, Profile::Direct] {
                let own: Vec<&Group> = groups.iter().filter(|own| own.profile == profile).collect();
                let (main, swept) = own.split_first().unwrap();
                assert_eq!((main.block_bytes, main.depths.last()), (4096, Some(&256)));
                let blocks: Vec<usize> = swept.iter().map(|own| own.block_bytes).collect();
                assert_eq!((blocks[0], blocks[blocks.len() - 1]), (512, 4 << 20));
                assert!(swept.iter().all(|own| own.is_swept && own.depths.contains(&32)));
                let has = |name| main.engines.iter().any(|own| own.to_string() == name);
                assert!(has("uring-defer-taskrun+sqpoll"));
                assert_eq!(has("uring+iopoll"), profile == Profile::Direct);
                assert!(swept.iter().all(|own| own.engines == EngineName::DEFAULT));
            }
        }
        let quick = Plan::new(&args(|_| {})).unwrap().groups;
        assert!(quick.len() == 2 && quick.iter().all(|own| own.engines == EngineName::DEFAULT));
        let typed = Plan::new(&args(|args| {
            (args.full, args.block) = (true, Some("8k".to_owned()));
            args.engines = Some("uring".to_owned());
        }));
        let typed = typed.unwrap().groups;
        assert!(typed.iter().all(|own| own.block_bytes == 8192 && own.engines.len() == 1));
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
            (
                refused(|a| a.workload = set("raed")),
                ["unknown workload \"raed\"", "expected read, "],
            ),
            (refused(|a| a.engines = set("sync,uing")), ["unknown engine \"uing\"", "uring"]),
            (refused(|a| a.engines = set("uring+sqpol")), ["\"uring+sqpol\"", "uring+sqpoll"]),
            (refused(|a| a.engines = set("")), ["unknown engine \"\"", "uring"]),
            (refused(|a| a.depth = set("0")), ["--depth 0", "1 to 1024"]),
            (refused(|a| a.depth = set("1,,2")), ["--depth :", "1 to 1024"]),
            (refused(|a| a.depth = set("-1")), ["--depth -1", "1 to 1024"]),
            (refused(|a| a.block = set("3000")), ["--block 3000", "multiple of 512"]),
            (refused(|a| a.block = set("0")), ["--block 0", "1 to 64m"]),
            (refused(|a| a.block = set("4kb")), ["--block size \"4kb\"", "k, m, g or t"]),
            (refused(|a| a.profile = set("fast")), ["--profile \"fast\"", "buffered, direct"]),
            (refused(|a| a.pattern = set("up")), ["--pattern \"up\"", "seq, random"]),
            (refused(|a| a.cache = set("hot")), ["--cache \"hot\"", "warm, cold, bounded"]),
            (
                refused(|a| a.cache = set("bounded:x")),
                ["--cache bounded: size \"x\"", "k, m, g or t"],
            ),
            (refused(|a| a.cache = set("bounded:1m")), ["--cache bounded:1m", "at least"]),
            (refused(|a| a.cache = set("bounded:2g")), ["--cache bounded:2g", "--size"]),
            (
                refused(|a| {
                    a.cache = set("bounded");
                    a.pattern = set("seq")
                }),
                ["--pattern seq", "random"],
            ),
            (
                refused(|a| {
                    a.workload = set("chain");
                    a.sync = set("msync")
                }),
                ["--sync \"msync\"", "fsync, fdatasync, dsync"],
            ),
            (
                refused(|a| {
                    a.workload = set("chain");
                    a.size = set("1m")
                }),
                ["--size 1m", "170 chains in flight"],
            ),
            (refused(|a| a.sync = set("fsync")), ["--sync is for", "workload chain"]),
            (
                refused(|a| {
                    a.workload = set("nop");
                    a.engines = set("uring")
                }),
                ["--engines is for", "read, latency, echo"],
            ),
            (refused(|a| a.connections = set("1")), ["--connections is for", "echo"]),
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
            (refused(|a| a.size = set("lots")), ["--size size \"lots\"", "k, m, g or t"]),
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
