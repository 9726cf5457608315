//! The command line, and what it means: every default filled in, every value checked.

use std::{collections::HashSet, fmt, path::PathBuf, time::Duration};

use ringwise_lab::{
    LabError,
    dataset::block::BLOCK_BYTES,
    plan::ExtentChoice,
    sampling::job::{Cache, Timing},
    workload::form,
};
use ringwise_measure::quantity::{duration_text, parse_duration, parse_size, size_text};

use crate::peer::{self, Choice};

/// The most reads in flight: the lab's own limit. Lanes take memory, `tokio-fs` descriptors.
const DEPTH_MAX: u64 = 1024;

/// What the page cache can be for the reads, and what it is called.
const PROFILES: [(Cache, &str); 3] =
    [(Cache::Warm, "buffered"), (Cache::Bypassed, "direct"), (Cache::Cold, "cold")];

/// Returns the name of a profile.
pub fn profile_name(cache: Cache) -> &'static str {
    PROFILES.iter().find(|(own, _)| *own == cache).map_or("bounded", |(_, name)| name)
}

/// As typed.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Args {
    /// An existing directory on the device to be measured; the test file goes into a directory
    /// "ringwise-lab-data" in it [default: the current directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Bytes of the test file, such as 2g [default: 1g]
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,

    /// Tasks, or reads in flight, separated by commas [default: 1,8,32,128,512]
    #[arg(long, value_name = "N,N")]
    depth: Option<String>,

    /// What is read: buffered (all of it in the page cache), direct (past it), cold (nothing of it in the page cache,
    /// each block once) [default: all]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,

    /// Engines, separated by commas; ratios are to the first: tokio, tokio-fs, tokio-fs-uring, rustfs-uring, a10,
    /// uring-file, tokio-uring, compio, monoio, glommio, and of the lab sync (at depth 1 only), threads, aio, uring (with switches as
    /// in "uring+unverified"), fio, fio+fixed [default: all but aio and fio+fixed]
    #[arg(long, value_name = "A,B")]
    engines: Option<String>,

    /// Measured time per sample, such as 500ms [default: 500ms]
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,

    /// Reads per sample, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    reads: Option<String>,

    /// Interleaved blocks, each with two samples of every engine [default: 5]
    #[arg(long, value_name = "N")]
    repeats: Option<String>,

    /// Seed of the content, the random offsets and the order of engines [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<String>,

    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,

    /// Keep the test file for the next run
    #[arg(long)]
    keep: bool,
}

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the test file goes.
    pub directory: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Reads in flight, ascending.
    pub depths: Vec<usize>,
    /// What the page cache is for the reads, of [`PROFILES`], one after the other.
    pub profiles: Vec<Cache>,
    /// Who reads; the first is what ratios are to.
    pub engines: Vec<Choice>,
    /// How much each sample measures.
    pub extent: ExtentChoice,
    /// Interleaved blocks.
    pub repeats: usize,
    /// The seed of everything that is random.
    pub seed: u64,
    /// Where the results file goes, if anywhere.
    pub json: Option<PathBuf>,
    /// Where the table goes, if anywhere.
    pub table: Option<PathBuf>,
    /// Whether the test file stays.
    pub keep: bool,
}

impl Plan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub fn new(args: &Args) -> Result<Plan, LabError> {
        Ok(Plan {
            directory: args.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
            bytes: bytes(args.size.as_deref().unwrap_or("1g"))?,
            depths: depths(args.depth.as_deref().unwrap_or("1,8,32,128,512"))?,
            profiles: profiles(args.profile.as_deref())?,
            engines: engines(args.engines.as_deref().unwrap_or(peer::DEFAULT))?,
            extent: extent(args)?,
            repeats: number("--repeats", args.repeats.as_deref().unwrap_or("5"), 1, 1000)? as usize,
            seed: number("--seed", args.seed.as_deref().unwrap_or("1"), 0, u64::MAX)?,
            json: args.json.clone(),
            table: args.table.clone(),
            keep: args.keep,
        })
    }

    /// How long each sample takes. A cold cache is warm after the warm-up: there is none.
    pub fn timing(&self, profile: Cache) -> Timing {
        match (profile, form::timing(self.extent, 1)) {
            (Cache::Cold, Timing { extent, .. }) => Timing { warm_up: Duration::ZERO, extent },
            (_, timing) => timing,
        }
    }

    /// The options that make this run again, without what names this machine's paths.
    pub fn options(&self) -> String {
        let comma = |words: Vec<String>| words.join(",");
        let mut options = vec![
            format!("--size {}", size_text(self.bytes)),
            format!("--depth {}", comma(self.depths.iter().map(usize::to_string).collect())),
            format!("--engines {}", comma(self.engines.iter().map(Choice::to_string).collect())),
            match self.extent {
                ExtentChoice::Time(time) | ExtentChoice::Budget(time) => {
                    format!("--duration {}", duration_text(time))
                }
                ExtentChoice::Reads(count) => format!("--reads {count}"),
            },
            format!("--repeats {} --seed {}", self.repeats, self.seed),
        ];
        if let [profile] = self.profiles[..] {
            options.insert(0, format!("--profile {}", profile_name(profile)));
        }
        options.join(" ")
    }
}

fn bytes(text: &str) -> Result<u64, LabError> {
    let bytes = parse_size(text).map_err(|error| LabError::Usage(format!("--size: {error}")))?;
    let blocks = bytes / BLOCK_BYTES as u64;
    if blocks == 0 {
        return Err(usage("--size", text, "at least one block of 4k"));
    }
    Ok(blocks * BLOCK_BYTES as u64)
}

fn profiles(text: Option<&str>) -> Result<Vec<Cache>, LabError> {
    let Some(text) = text else { return Ok(PROFILES.map(|(cache, _)| cache).to_vec()) };
    let found = PROFILES.iter().find(|(_, name)| *name == text);
    let found =
        found.ok_or_else(|| usage("--profile", text, PROFILES.map(|(_, name)| name).join(", ")))?;
    Ok(vec![found.0])
}

fn depths(text: &str) -> Result<Vec<usize>, LabError> {
    let parsed = text.split(',').map(|word| number("--depth", word, 1, DEPTH_MAX));
    let mut depths =
        parsed.map(|depth| depth.map(|depth| depth as usize)).collect::<Result<Vec<_>, _>>()?;
    depths.sort_unstable();
    depths.dedup();
    Ok(depths)
}

fn engines(text: &str) -> Result<Vec<Choice>, LabError> {
    let mut seen = HashSet::new();
    text.split(',')
        .map(|word| {
            let choice = Choice::parse(word);
            let choice = choice.ok_or_else(|| usage("--engines", word, peer::accepted()))?;
            match seen.insert(choice.to_string()) {
                true => Ok(choice),
                false => Err(usage("--engines", word, "each engine once")),
            }
        })
        .collect()
}

fn extent(args: &Args) -> Result<ExtentChoice, LabError> {
    if let Some(reads) = &args.reads {
        return Ok(ExtentChoice::Reads(number("--reads", reads, 1, u64::MAX)?));
    }
    let text = args.duration.as_deref().unwrap_or("500ms");
    let time =
        parse_duration(text).map_err(|error| LabError::Usage(format!("--duration: {error}")))?;
    if !(Duration::from_millis(10)..=Duration::from_secs(600)).contains(&time) {
        return Err(usage("--duration", text, "10ms to 10m"));
    }
    Ok(ExtentChoice::Time(time))
}

fn number(flag: &str, text: &str, least: u64, most: u64) -> Result<u64, LabError> {
    let found = text.parse().ok().filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| usage(flag, text, format_args!("a whole number from {least} to {most}")))
}

fn usage(flag: &str, typed: &str, accepted: impl fmt::Display) -> LabError {
    LabError::Usage(format!("{flag} {typed:?}: expected {accepted}"))
}
