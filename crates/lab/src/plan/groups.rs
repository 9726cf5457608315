//! The groups of `read`, checked: profiles, engines, the state of the cache and the files' size.

use std::{collections::HashSet, time::Duration};

use ringwise_measure::{
    cpu::allowed_cpus,
    quantity::{bytes_text, parse_size, size_text},
};

use super::{
    EngineName, Group, Profile, Scale,
    check::{COUNT_MAX, list, number, unknown, usage},
};
use crate::{
    args::Args,
    dataset::{Size, block::BLOCK_BYTES},
    engine::{
        handle::Ringwise,
        uring::{Switch, Switches},
    },
    error::LabError,
    job::{Cache, Pattern},
};

/// The most memory for buffers: what one registered pool can hold.
const BUFFERS_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// What every direct read is at least a multiple of.
const SECTOR_BYTES: u64 = 512;
const MIB: u64 = 1 << 20;
/// The workload that has its groups from here too.
const LATENCY: &str = "latency";
/// All that can have one read at a time; `threads` is `sync` then.
const LATENCY_ENGINES: &str = "sync,mmap,tokio,aio,ringwise,uring";
/// The file of `latency`.
const LATENCY_SIZE: &str = "64m";

/// The block that all depths are tried with.
const BLOCK: usize = 4096;

/// The other blocks that a run of this size tries, and at which depths.
fn sweep(scale: Scale) -> (&'static [usize], &'static [usize]) {
    const KIB: usize = 1 << 10;
    match scale {
        Scale::Quick => (&[], &[]),
        Scale::Standard => (&[512, 64 * KIB, 1024 * KIB, 4096 * KIB], &[32]),
        Scale::Full => (&[512, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB], &[1, 32]),
    }
}

/// A group for each profile and block. Larger runs try more blocks than the usual one, at fewer depths.
///
/// # Errors
///
/// [`LabError::Usage`], which names the value and what is accepted.
pub(super) fn groups(args: &Args, depths: Option<&[usize]>) -> Result<Vec<Group>, LabError> {
    let scale = Scale::of(args);
    let own = depths.map_or_else(
        || match scale {
            Scale::Quick => vec![1, 32],
            Scale::Standard => vec![1, 8, 32, 128, 256],
            Scale::Full => vec![1, 4, 8, 16, 32, 64, 128, 256],
        },
        <[usize]>::to_vec,
    );
    let blocks = args.block.as_deref().map_or_else(|| Ok(vec![BLOCK]), blocks)?;
    let is_latency = args.workload.as_deref() == Some(LATENCY);
    // A bound leaves large blocks no room, and is about another question.
    let is_bounded = args.cache.as_deref().is_some_and(|cache| cache.starts_with("bounded"));
    let (swept, few) = match args.block.is_some() || is_latency || is_bounded {
        true => sweep(Scale::Quick),
        false => sweep(scale),
    };
    let few = depths.unwrap_or(few);
    let mut groups = Vec::new();
    for profile in profiles(args)? {
        for &block_bytes in &blocks {
            groups.push(group(args, profile, block_bytes, &own)?);
        }
        for &block_bytes in swept {
            groups.push(Group { is_swept: true, ..group(args, profile, block_bytes, few)? });
        }
    }
    let polling = match args.engines.is_none() && !is_latency && scale != Scale::Quick {
        true => polling(),
        false => Vec::new(),
    };
    for group in groups.iter_mut().filter(|group| !group.is_swept) {
        let possible = polling.iter().filter(|own| {
            // Through the page cache nothing is polled for.
            group.profile == Profile::Direct || !own.has(Switch::Iopoll)
        });
        group.engines.extend(possible);
    }
    if args.cache.is_some() && groups.iter().all(|group| group.cache == Cache::Bypassed) {
        let what = "direct reads go past the page cache; use --profile buffered, or a bounded \
                    cache and engine mmap";
        return Err(usage("--cache", what));
    }
    Ok(groups)
}

/// Rings that poll, for what is to be submitted and for what is done: what larger runs have beside the
/// engines of all. SQPOLL excludes DEFER_TASKRUN.
fn polling() -> Vec<EngineName> {
    let default = Switches::DEFAULT;
    let submission = default.with(Switch::DeferTaskrun, false).with(Switch::Sqpoll, true);
    [submission, default.with(Switch::Iopoll, true)].map(EngineName::Uring).to_vec()
}

/// The profiles asked for.
pub(super) fn profiles(args: &Args) -> Result<Vec<Profile>, LabError> {
    Ok(match args.profile.as_deref() {
        None => vec![Profile::Buffered, Profile::Direct],
        Some("buffered") => vec![Profile::Buffered],
        Some("direct") => vec![Profile::Direct],
        Some(other) => return Err(unknown("--profile", other, "buffered, direct")),
    })
}

/// Refuses more in flight than there may be memory for.
pub(super) fn buffers_fit(depths: &[usize], bytes_each: usize) -> Result<(), LabError> {
    let most = depths.iter().copied().max().unwrap_or(1) as u64 * bytes_each as u64;
    if most > BUFFERS_BYTES_MAX {
        return Err(usage("--depth", "times --block: expected at most 1 GiB of buffers"));
    }
    Ok(())
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
    buffers_fit(depths, block_bytes)?;
    let files = number("--files", args.files.as_deref(), 1, COUNT_MAX)?;
    let files = files.unwrap_or(if is_direct { 1 } else { 10 });
    let threads = number("--threads", args.threads.as_deref(), 1, COUNT_MAX)?;
    let threads =
        threads.map_or_else(|| allowed_cpus().map_or(1, |cpus| cpus.len()), |n| n as usize);
    let engines = engines(args)?;
    let (cache, bound_bytes) = cache(args)?;
    let cache = match profile {
        // Only a mapping has nothing else than the page cache.
        Profile::Direct if cache != Cache::Bounded || !engines.contains(&EngineName::Mmap) => {
            Cache::Bypassed
        }
        _ => cache,
    };
    let group = Group {
        set: if is_direct { "direct" } else { "buffered" },
        profile,
        pattern: pattern(args, profile, cache)?,
        cache,
        bound_bytes,
        block_bytes,
        is_swept: false,
        depths: depths.to_vec(),
        threads,
        engines,
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
    if group.cache == Cache::Bounded {
        bound(&group)?;
    }
    Ok(group)
}

/// A bound must leave room for the engines' own memory, and none for all of the files.
fn bound(group: &Group) -> Result<(), LabError> {
    let Some(bytes) = group.bound_bytes else { return Ok(()) };
    let (least, files) = (group.bound_bytes_min(), group.size.most);
    if bytes < least {
        let text = format!(
            "bounded:{}: threads and buffers of depth {} may need {} by themselves; expected at \
             least {}k",
            size_text(bytes),
            group.depth_max(),
            bytes_text(least),
            least.div_ceil(1024)
        );
        return Err(usage("--cache", text));
    }
    if bytes >= files {
        let text = format!(
            "bounded:{}: test files of {} would fit; lower it or raise --size",
            size_text(bytes),
            bytes_text(files)
        );
        return Err(usage("--cache", text));
    }
    Ok(())
}

/// What `latency` reads one at a time: through the page cache, warm and cold, and past it, over one
/// file, by all engines and the ring with each of its switches.
///
/// # Errors
///
/// As for [`groups`].
pub(super) fn latency(args: &Args) -> Result<Vec<Group>, LabError> {
    let caches = match args.cache.as_deref() {
        None => vec!["warm", "cold"],
        Some(state @ ("warm" | "cold")) => vec![state],
        Some(other) => return Err(unknown("--cache", other, "warm, cold")),
    };
    let mut groups = Vec::new();
    for profile in profiles(args)? {
        let states = match profile {
            Profile::Buffered => caches.iter().copied().map(Some).collect(),
            // A state that has no effect is refused below.
            Profile::Direct => vec![args.cache.as_deref().filter(|_| args.profile.is_some())],
        };
        for state in states {
            let own = Args {
                workload: Some(LATENCY.to_owned()),
                profile: Some(profile.to_string()),
                pattern: Some("random".to_owned()),
                cache: state.map(str::to_owned),
                engines: args.engines.clone().or_else(|| Some(LATENCY_ENGINES.to_owned())),
                ablate: args.ablate || args.engines.is_none(),
                size: args.size.clone().or_else(|| Some(LATENCY_SIZE.to_owned())),
                files: Some("1".to_owned()),
                threads: Some("1".to_owned()),
                ..args.clone()
            };
            let of_profile = self::groups(&own, Some(&[1]))?;
            groups.extend(of_profile.into_iter().map(|group| Group { set: "latency", ..group }));
        }
    }
    Ok(groups)
}

fn pattern(args: &Args, profile: Profile, cache: Cache) -> Result<Pattern, LabError> {
    let is_random = profile == Profile::Direct || cache == Cache::Bounded;
    Ok(match args.pattern.as_deref() {
        None if is_random => Pattern::Random,
        // What a cache that is too small holds of a sequence is chance.
        Some("seq") if cache == Cache::Bounded => {
            return Err(usage("--pattern", "seq: a bounded cache is for --pattern random"));
        }
        None | Some("seq") => Pattern::Sequential,
        Some("random") => Pattern::Random,
        Some(other) => return Err(unknown("--pattern", other, "seq, random")),
    })
}

/// The state, and the size of a bound that was typed.
fn cache(args: &Args) -> Result<(Cache, Option<u64>), LabError> {
    Ok(match args.cache.as_deref() {
        None | Some("warm") => (Cache::Warm, None),
        Some("cold") => (Cache::Cold, None),
        Some("bounded") => (Cache::Bounded, None),
        Some(other) => match other.strip_prefix("bounded:") {
            Some(size) => {
                let bytes = parse_size(size).map_err(|error| usage("--cache bounded:", error))?;
                (Cache::Bounded, Some(bytes))
            }
            None => {
                let accepted = "warm, cold, bounded or bounded:SIZE";
                return Err(unknown("--cache", other, accepted));
            }
        },
    })
}

fn size(args: &Args, profile: Profile) -> Result<Size, LabError> {
    if let Some(text) = args.size.as_deref() {
        let bytes = parse_size(text).map_err(|error| usage("--size", error))?;
        return Ok(Size::exactly(bytes));
    }
    Ok(match (args.full, profile) {
        (true, Profile::Buffered) => Size::exactly(1000 * MIB),
        (true, Profile::Direct) => Size::exactly(10 << 30),
        // The suite has other things to do too.
        (false, _) if args.workload.is_none() && Scale::of(args) == Scale::Quick => {
            Size { most: 120 * MIB, least: 64 * MIB, time: Duration::from_secs(2) }
        }
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
                let accepted = "sync, threads, mmap, tokio, aio, ringwise, ringwise+driver-thread, \
                                ringwise+one-worker, fio, fio+fixed, or uring with switches such as uring+sqpoll or \
                                uring-registered-buffers";
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
    let tasks = |engine: &EngineName| match *engine {
        EngineName::Ringwise(engine) => Some(engine),
        _ => None,
    };
    if has_fio {
        let unverified = engines.iter().filter_map(tasks);
        let unverified = unverified.map(|engine| Ringwise { unverified: true, ..engine });
        engines.extend(unverified.map(EngineName::Ringwise).collect::<Vec<_>>());
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
