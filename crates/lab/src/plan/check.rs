//! Checks what was typed, and says in one line what is wrong with it and what is accepted.

use std::{collections::HashSet, fmt, path::PathBuf, time::Duration};

use ringwise_measure::{
    cpu::allowed_cpus,
    quantity::{parse_duration, parse_size},
};

use super::{EngineName, ExtentChoice, Group, Plan, Profile, Workload};
use crate::{
    args::Args,
    dataset::{Size, block::BLOCK_BYTES},
    engine::uring::{Switch, Switches},
    error::LabError,
    job::{Cache, Pattern},
};

/// The most reads in flight, threads and files. Each thread takes a quarter of a mebibyte for its
/// latencies.
const COUNT_MAX: u64 = 1024;
/// The most memory for buffers: what one registered pool can hold.
const BUFFERS_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// What every direct read is at least a multiple of.
const SECTOR_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;

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
            Some(other) => return Err(unknown("workload", other, "read, nop")),
        };
        let depths = args.depth.as_deref().map(|text| counts("--depth", text)).transpose()?;
        let plan = Plan {
            groups: groups(args, depths.as_deref())?,
            batches: depths.unwrap_or_else(|| vec![1, 32, 256]),
            workloads,
            directory: args.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
            keep: args.keep,
            json: args.json.clone(),
            out: args.out.clone().unwrap_or_else(|| PathBuf::from(".")),
            seed: number("--seed", args.seed.as_deref(), 0, u64::MAX)?.unwrap_or(1),
            repeats: number("--repeats", args.repeats.as_deref(), 1, 1000)?.unwrap_or(5) as usize,
            extent: extent(args)?,
        };
        if !plan.out.is_dir() {
            let text = format!("--out {}: not a directory", plan.out.display());
            return Err(LabError::Usage(text));
        }
        Ok(plan)
    }
}

fn extent(args: &Args) -> Result<ExtentChoice, LabError> {
    if let Some(reads) = number("--reads", args.reads.as_deref(), 1, u64::MAX)? {
        return Ok(ExtentChoice::Reads(reads));
    }
    let Some(text) = args.duration.as_deref() else {
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

fn groups(args: &Args, depths: Option<&[usize]>) -> Result<Vec<Group>, LabError> {
    let profiles = match args.profile.as_deref() {
        None => vec![Profile::Buffered, Profile::Direct],
        Some("buffered") => vec![Profile::Buffered],
        Some("direct") => vec![Profile::Direct],
        Some(other) => return Err(unknown("--profile", other, "buffered, direct")),
    };
    let depths = depths.map_or_else(
        || if args.full { vec![1, 4, 8, 16, 32, 64, 128] } else { vec![1, 32] },
        <[usize]>::to_vec,
    );
    let blocks = args.block.as_deref().map_or_else(|| Ok(vec![4096]), blocks)?;
    let mut groups = Vec::new();
    for &profile in &profiles {
        for &block_bytes in &blocks {
            groups.push(group(args, profile, block_bytes, &depths)?);
        }
    }
    if args.cache.is_some() && profiles == [Profile::Direct] {
        return Err(usage(
            "--cache",
            "direct reads go past the page cache; use --profile buffered",
        ));
    }
    Ok(groups)
}

fn group(
    args: &Args,
    profile: Profile,
    block_bytes: usize,
    depths: &[usize],
) -> Result<Group, LabError> {
    let is_direct = profile == Profile::Direct;
    if is_direct && !(block_bytes as u64).is_multiple_of(SECTOR_BYTES) {
        let text = format!("{block_bytes}: direct reads take a multiple of 512, such as 512 or 4k");
        return Err(usage("--block", text));
    }
    let most = depths.iter().copied().max().unwrap_or(1) as u64 * block_bytes as u64;
    if most > BUFFERS_BYTES_MAX {
        return Err(usage("--depth", "times --block: expected at most 1 GiB of buffers"));
    }
    let files = number("--files", args.files.as_deref(), 1, COUNT_MAX)?;
    let files = files.unwrap_or(if is_direct { 1 } else { 10 });
    let threads = number("--threads", args.threads.as_deref(), 1, COUNT_MAX)?;
    let threads =
        threads.map_or_else(|| allowed_cpus().map_or(1, |cpus| cpus.len()), |n| n as usize);
    let group = Group {
        profile,
        pattern: pattern(args, profile)?,
        cache: cache(args, profile)?,
        block_bytes,
        depths: depths.to_vec(),
        threads,
        engines: engines(args)?,
        files,
        size: size(args, profile)?,
    };
    let least = files * (block_bytes as u64).next_multiple_of(BLOCK_BYTES as u64);
    if group.size.least < least {
        let text = format!(
            "{}: {files} files of at least one block need {least} bytes",
            args.size.as_deref().unwrap_or("default")
        );
        return Err(usage("--size", text));
    }
    Ok(group)
}

fn pattern(args: &Args, profile: Profile) -> Result<Pattern, LabError> {
    Ok(match args.pattern.as_deref() {
        None if profile == Profile::Direct => Pattern::Random,
        None | Some("seq") => Pattern::Sequential,
        Some("random") => Pattern::Random,
        Some(other) => return Err(unknown("--pattern", other, "seq, random")),
    })
}

fn cache(args: &Args, profile: Profile) -> Result<Cache, LabError> {
    let cache = match args.cache.as_deref() {
        None | Some("warm") => Cache::Warm,
        Some("cold") => Cache::Cold,
        Some(other) => return Err(unknown("--cache", other, "warm, cold")),
    };
    Ok(if profile == Profile::Direct { Cache::Bypassed } else { cache })
}

fn size(args: &Args, profile: Profile) -> Result<Size, LabError> {
    if let Some(text) = args.size.as_deref() {
        let bytes = parse_size(text).map_err(|error| usage("--size", error))?;
        return Ok(Size::exactly(bytes));
    }
    Ok(match (args.full, profile) {
        (true, Profile::Buffered) => Size::exactly(1000 * MIB),
        (true, Profile::Direct) => Size::exactly(10 << 30),
        // Less of it measures the same in a warm cache; a device shows its worst over much data.
        (false, _) => Size { most: 1000 * MIB, least: 64 * MIB, time: Duration::from_secs(6) },
    })
}

fn engines(args: &Args) -> Result<Vec<EngineName>, LabError> {
    let mut engines = Vec::new();
    match args.engines.as_deref() {
        None => engines.extend(EngineName::DEFAULT),
        Some(text) => {
            for name in text.split(',').map(str::trim) {
                let accepted = "sync, threads, mmap, tokio, aio, fio, fio+fixed, or uring with \
                                switches such as uring+sqpoll or uring-registered-buffers";
                let engine =
                    EngineName::parse(name).ok_or_else(|| unknown("engine", name, accepted))?;
                engines.push(engine);
            }
        }
    }
    if args.ablate {
        engines.push(EngineName::Uring(Switches::DEFAULT));
        engines.extend(Switches::ablations().into_iter().map(EngineName::Uring));
    }
    // fio looks at nothing that it reads; its counterpart must not either.
    let has_fio = engines.iter().any(|engine| matches!(engine, EngineName::Fio { .. }));
    if has_fio && engines.iter().any(|engine| engine.is_uring()) {
        let unverified = Switches::DEFAULT.with(Switch::Unverified, true);
        engines.push(EngineName::Uring(unverified));
    }
    let mut seen = HashSet::new();
    engines.retain(|engine| seen.insert(*engine));
    Ok(engines)
}

fn blocks(text: &str) -> Result<Vec<usize>, LabError> {
    list(text, |item| {
        let bytes = parse_size(item).map_err(|error| usage("--block", error))?;
        if (1..=BLOCK_BYTES_MAX).contains(&bytes) {
            Ok(bytes as usize)
        } else {
            Err(usage("--block", format_args!("{item}: expected 1 to 64m")))
        }
    })
}

fn counts(flag: &str, text: &str) -> Result<Vec<usize>, LabError> {
    list(text, |item| Ok(number(flag, Some(item), 1, COUNT_MAX)?.unwrap_or(1) as usize))
}

/// The items of a list in the order typed, each once.
fn list<T: PartialEq>(
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

fn number(flag: &str, text: Option<&str>, least: u64, most: u64) -> Result<Option<u64>, LabError> {
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

fn usage(flag: &str, what: impl fmt::Display) -> LabError {
    LabError::Usage(format!("{flag} {what}"))
}

fn unknown(what: &str, value: &str, accepted: &str) -> LabError {
    let what = if what.starts_with("--") { what.to_owned() } else { format!("unknown {what}") };
    LabError::Usage(format!("{what} {value:?}: expected {accepted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (refused(|a| a.cache = set("hot")), ["--cache \"hot\"", "warm, cold"]),
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
    fn odd_blocks_are_fine_through_the_cache() {
        let plan = Plan::new(&args(|args| {
            args.block = Some("3000".into());
            args.profile = Some("buffered".into());
        }));
        assert_eq!(plan.unwrap().groups[0].block_bytes, 3000);
    }
}
