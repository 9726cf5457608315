//! What `copy` compares: programs that copy, data sets, and the state of the page cache.

use ringwise_measure::quantity::parse_size;
use serde::Serialize;

use crate::{
    args::Args,
    error::LabError,
    plan::typed::{invalid, list, number, unknown, usage},
    results::row::RowKind,
    sampling::job::Cache,
};

/// What `copy` compares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CopyPlan {
    /// The programs.
    pub programs: Vec<&'static CopyProgram>,
    /// What they copy.
    pub sets: Vec<DataSet>,
    /// What the page cache holds of the sources.
    pub caches: Vec<Cache>,
    /// The block sizes of the parameter study, where that is wanted instead.
    pub blocks: Vec<usize>,
    /// And the depths.
    pub depths: Vec<usize>,
}

/// A program that copies, and how it is started.
#[derive(Debug, PartialEq, Eq)]
pub struct CopyProgram {
    /// What it is called in rows.
    pub name: &'static str,
    /// What is run; nothing is `ringwise cp` itself.
    pub command: Option<&'static str>,
    /// A flag that it gets.
    pub flag: Option<&'static str>,
    /// Whether it copies trees only with `-r`.
    pub has_r: bool,
}

const fn own(name: &'static str, flag: Option<&'static str>) -> CopyProgram {
    CopyProgram { name, command: None, flag, has_r: true }
}

const fn other(name: &'static str, command: &'static str, has_r: bool) -> CopyProgram {
    CopyProgram { name, command: Some(command), flag: None, has_r }
}

/// All programs. The first is the one that verdicts are about.
static PROGRAMS: [CopyProgram; 10] = [
    own("ringwise", None),
    other("gnu", "cp", true),
    other("xcp", "xcp", true),
    other("fcp", "fcp", false),
    other("cpz", "cpz", false),
    own("ringwise-sync", Some("--engine=sync")),
    own("ringwise-uring", Some("--engine=uring")),
    own("ringwise+durable", Some("--durable")),
    own("ringwise+verify", Some("--verify")),
    own("ringwise+atomic", Some("--atomic")),
];
/// How many of them are compared if none is named, and in the suite.
const DEFAULT: usize = 5;
const SUITE: usize = 2;

impl CopyProgram {
    fn parse(text: &str) -> Result<&'static CopyProgram, LabError> {
        let found = PROGRAMS.iter().find(|program| program.name == text);
        let accepted = || PROGRAMS.each_ref().map(|program| program.name).join(", ");
        // A program that is like another by its name alone is not meant.
        found.ok_or_else(|| invalid("--engines", text, format_args!("expected {}", accepted())))
    }

    /// What its rows are for.
    pub fn kind(&self) -> RowKind {
        match (self.command, self.flag) {
            (None, None) => RowKind::Subject,
            (None, Some(_)) => RowKind::Variant,
            (Some(_), _) => RowKind::Rival,
        }
    }
}

/// Files to be copied: directories of files of some lengths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataSet {
    /// What it is called.
    pub name: String,
    /// How many directories; none for a single file.
    pub directories: usize,
    /// Files of each length, over all directories.
    pub parts: Vec<Part>,
    /// Whether each copy goes to where the last one was removed.
    pub is_again: bool,
}

/// Files of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// How many.
    pub files: usize,
    /// Their length.
    pub bytes: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Name, directories, and files with their length; then the same for a run that is not `--full`.
type Definition = (&'static str, usize, &'static [(usize, u64)], &'static [(usize, u64)]);

/// The set whose copies go to where the last one was removed, as those of a user who copies again.
const AGAIN: &str = "again";

const SETS: [Definition; 12] = [
    ("1k", 0, &[(1, KIB)], &[(1, KIB)]),
    ("32k", 0, &[(1, 32 * KIB)], &[(1, 32 * KIB)]),
    ("1m", 0, &[(1, MIB)], &[(1, MIB)]),
    ("32m", 0, &[(1, 32 * MIB)], &[(1, 32 * MIB)]),
    ("1g", 0, &[(1, 1024 * MIB)], &[(1, 256 * MIB)]),
    ("small", 1, &[(1000, 32 * KIB)], &[(500, 32 * KIB)]),
    ("medium", 1, &[(1000, MIB)], &[(100, MIB)]),
    ("large", 1, &[(32, 32 * MIB)], &[(4, 32 * MIB)]),
    (
        "mix",
        4,
        &[(50, KIB), (50, 32 * KIB), (50, MIB), (50, 32 * MIB)],
        &[(5, KIB), (5, 32 * KIB), (5, MIB), (5, 32 * MIB)],
    ),
    ("many", 1000, &[(100_000, 4 * KIB)], &[(5_000, 4 * KIB)]),
    (AGAIN, 1, &[(1000, 32 * KIB)], &[(500, 32 * KIB)]),
    ("flat", 1, &[(50_000, 4 * KIB)], &[(5_000, 4 * KIB)]),
];

impl DataSet {
    fn of(definition: &Definition, full: bool) -> DataSet {
        let (name, directories, whole, scaled) = *definition;
        let parts = if full { whole } else { scaled };
        let parts: Vec<Part> = parts.iter().map(|&(files, bytes)| Part { files, bytes }).collect();
        let files: usize = parts.iter().map(|part| part.files).sum();
        let directories = directories.min(files.div_ceil(100));
        DataSet { name: name.to_owned(), directories, parts, is_again: name == AGAIN }
    }

    fn parse(text: &str, full: bool) -> Result<DataSet, LabError> {
        let accepted = || SETS.map(|definition| definition.0).join(", ");
        let found = SETS.iter().find(|definition| definition.0 == text);
        found
            .map(|definition| DataSet::of(definition, full))
            .ok_or_else(|| unknown("--sets", text, &accepted()))
    }

    /// How many files.
    pub fn files(&self) -> usize {
        self.parts.iter().map(|part| part.files).sum()
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.files as u64 * part.bytes).sum()
    }
}

/// What the study copies where no `--size` says otherwise.
const STUDY_BYTES: u64 = 64 << 20;
/// Blocks in flight may be this much memory together.
const STUDY_MEMORY_BYTES: usize = 256 << 20;

impl CopyPlan {
    /// Checks what was typed.
    pub fn new(args: &Args) -> Result<CopyPlan, LabError> {
        if args.duration.is_some() {
            return Err(usage("--duration", "is not for copy: it has --sets, --cache and --study"));
        }
        let caches = match args.cache.as_deref() {
            None => vec![Cache::Warm, Cache::Cold],
            Some(text) => list(text, |name| match name {
                "warm" => Ok(Cache::Warm),
                "cold" => Ok(Cache::Cold),
                other => Err(unknown("--cache", other, "warm, cold")),
            })?,
        };
        if args.study {
            return CopyPlan::study(args, caches);
        }
        for (flag, is_given) in [
            ("--block", args.block.is_some()),
            ("--depth", args.depth.is_some()),
            ("--size", args.size.is_some()),
        ] {
            if is_given {
                return Err(usage(flag, "is for copy --study"));
            }
        }
        let programs = match args.engines.as_deref() {
            Some(text) => list(text, CopyProgram::parse)?,
            None => PROGRAMS[..DEFAULT].iter().collect(),
        };
        let sets = match args.sets.as_deref() {
            Some(text) => list(text, |name| DataSet::parse(name, args.full))?,
            None => SETS.iter().map(|definition| DataSet::of(definition, args.full)).collect(),
        };
        Ok(CopyPlan { programs, sets, caches, blocks: Vec::new(), depths: Vec::new() })
    }

    /// What the suite copies: unless it is the full one, a tree of small files by the two programs
    /// that a verdict is about.
    pub fn of_suite(args: &Args) -> Result<CopyPlan, LabError> {
        if args.full {
            return CopyPlan::new(&Args { duration: None, ..args.clone() });
        }
        // Half of it: the suite shall write little.
        let small = DataSet::parse("small", false)?;
        let parts = small.parts.iter().map(|part| Part { files: part.files / 2, ..*part });
        Ok(CopyPlan {
            programs: PROGRAMS[..SUITE].iter().collect(),
            sets: vec![DataSet { parts: parts.collect(), ..small }],
            caches: vec![Cache::Warm],
            ..CopyPlan::default()
        })
    }

    fn study(args: &Args, caches: Vec<Cache>) -> Result<CopyPlan, LabError> {
        for (flag, is_given) in
            [("--engines", args.engines.is_some()), ("--sets", args.sets.is_some())]
        {
            if is_given {
                return Err(usage(flag, "is not for copy --study: it has --block and --depth"));
            }
        }
        let bytes = match args.size.as_deref().map(|text| (text, parse_size(text))) {
            None => STUDY_BYTES,
            Some((_, Ok(bytes @ 1..))) => bytes,
            Some((text, Ok(0))) => return Err(invalid("--size", text, "expected at least 1")),
            Some((text, Err(error))) => return Err(invalid("--size", text, error)),
        };
        let blocks = args.block.as_deref().unwrap_or("1k,4k,16k,64k,256k,1m,4m,32m");
        let depths = args.depth.as_deref().unwrap_or("1,4,16,64,256");
        let part = Part { files: 1, bytes };
        Ok(CopyPlan {
            programs: Vec::new(),
            sets: vec![DataSet {
                name: "study".to_owned(),
                directories: 0,
                parts: vec![part],
                is_again: false,
            }],
            caches,
            blocks: list(blocks, |text| match parse_size(text) {
                Ok(bytes @ 1024..=33_554_432) => Ok(bytes as usize),
                Ok(_) => Err(invalid("--block", text, "expected 1k to 32m")),
                Err(error) => Err(invalid("--block", text, error)),
            })?,
            depths: list(depths, |text| {
                Ok(number("--depth", Some(text), 1, 256)?.unwrap_or(1) as usize)
            })?,
        })
    }

    /// Whether blocks and depths are to be varied, instead of programs compared.
    pub fn is_study(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// The depths that are tried with a block: those whose blocks fit into memory together.
    pub fn depths_for(&self, block_bytes: usize) -> impl Iterator<Item = usize> {
        let fits = move |depth: &usize| depth * block_bytes <= STUDY_MEMORY_BYTES;
        self.depths.iter().copied().filter(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<CopyPlan, LabError> {
        let mut args = Args::default();
        change(&mut args);
        CopyPlan::new(&args)
    }

    #[test]
    fn nothing_typed_is_every_set_by_every_program() {
        let quick = plan(|_| {}).unwrap();
        assert_eq!((quick.programs.len(), quick.sets.len()), (5, 12));
        assert_eq!(quick.caches, [Cache::Warm, Cache::Cold]);
        let full = plan(|args| args.full = true).unwrap();
        let many = full.sets.iter().find(|set| set.name == "many").unwrap();
        assert_eq!((many.files(), many.directories, many.bytes()), (100_000, 1000, 409_600_000));
        let mix = full.sets.iter().find(|set| set.name == "mix").unwrap();
        assert_eq!(mix.files(), 200);
    }

    #[test]
    fn a_study_keeps_to_its_memory() {
        let study = plan(|args| args.study = true).unwrap();
        assert!(study.is_study());
        assert_eq!(study.depths_for(32 << 20).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(study.depths_for(1024).count(), 5);
    }

    #[test]
    fn bad_input_is_named_with_what_is_accepted() {
        let refused = |change: fn(&mut Args)| plan(change).unwrap_err().to_string();
        for (text, parts) in [
            (
                refused(|a| a.engines = Some("cp".into())),
                ["--engines: invalid value 'cp'", "gnu, xcp"],
            ),
            (
                refused(|a| a.sets = Some("huge".into())),
                ["--sets: invalid value 'huge'", "small, medium"],
            ),
            (
                refused(|a| a.cache = Some("hot".into())),
                ["--cache: invalid value 'hot'", "warm, cold"],
            ),
            (refused(|a| a.block = Some("4k".into())), ["--block", "--study"]),
            (refused(|a| a.duration = Some("4s".into())), ["--duration", "--sets"]),
            (
                refused(|a| {
                    a.study = true;
                    a.sets = Some("small".into())
                }),
                ["--sets", "--block"],
            ),
            (
                refused(|a| {
                    a.study = true;
                    a.block = Some("64m".into())
                }),
                ["--block: invalid value '64m'", "1k to 32m"],
            ),
        ] {
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
