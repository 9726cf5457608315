//! What `scale` measures, checked: how many threads, how much each has in flight, and where its files are.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use ringwise_measure::{cpu::allowed_cpus, quantity::parse_size};

use crate::{
    dataset::Size,
    error::LabError,
    plan::typed::{COUNT_MAX, Typed, invalid, list, number},
    workload::read::plan::{blocks, buffers_fit},
};

const MIB: u64 = 1 << 20;
/// What every direct read is at least a multiple of.
const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;
/// As many threads as there are processors.
const ALL: &str = "all";
/// Fewer and more threads than most machines have processors.
const THREADS: &str = "1,2,4,all";
/// Threads over memory beside those that are measured: with more threads than processors, only the lab itself could
/// make an operation dearer.
const NULL_THREADS: [usize; 2] = [8, 32];

/// What `scale` measures.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalePlan {
    /// Numbers of threads, in ascending order.
    pub threads: Vec<usize>,
    /// Reads in flight on each thread.
    pub depths: Vec<usize>,
    /// Bytes per read.
    pub blocks_bytes: Vec<usize>,
    /// The directories that files are in, each as it was typed.
    pub directories: Vec<PathBuf>,
    /// How many files are in each directory.
    pub files: u64,
    /// How large those of a directory are together.
    pub size: Size,
}

impl ScalePlan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted, or [`LabError::Failed`] for a directory that is
    /// not there.
    pub fn new(typed: &Typed<'_>) -> Result<ScalePlan, LabError> {
        let args = typed.args;
        let processors = allowed_cpus().map_or(1, |cpus| cpus.len());
        let threads = threads(args.threads.as_deref().unwrap_or(THREADS), processors)?;
        let most = threads.last().copied().unwrap_or(1);
        let depths = typed.depths.clone().unwrap_or_else(|| vec![1, 32]);
        let blocks_bytes = args.block.as_deref().map_or_else(|| Ok(vec![BLOCK_BYTES]), blocks)?;
        if let Some(block) = blocks_bytes.iter().find(|block| !block.is_multiple_of(SECTOR_BYTES)) {
            let why = "direct reads take a multiple of 512, such as 512 or 4k";
            return Err(invalid("--block", &block.to_string(), why));
        }
        let in_flight: Vec<usize> = depths.iter().map(|depth| depth * most).collect();
        let largest = blocks_bytes.iter().copied().max().unwrap_or(BLOCK_BYTES);
        buffers_fit(&in_flight, largest)?;
        let directories = directories(args.dir.as_deref().unwrap_or(Path::new(".")))?;
        let files = number("--files", args.files.as_deref(), 1, COUNT_MAX)?;
        let files = files.unwrap_or(most.div_ceil(directories.len()) as u64);
        let size = size(args.size.as_deref(), directories.len() as u64, files, largest)?;
        Ok(ScalePlan { threads, depths, blocks_bytes, directories, files, size })
    }

    /// Numbers of threads over memory, in ascending order.
    pub fn null_threads(&self) -> Vec<usize> {
        let mut threads = self.threads.clone();
        threads.extend(NULL_THREADS);
        threads.sort_unstable();
        threads.dedup();
        threads
    }
}

/// Reads numbers of threads, of which one may be all processors.
fn threads(text: &str, processors: usize) -> Result<Vec<usize>, LabError> {
    let one = |item: &str| match item {
        ALL => Ok(processors),
        item => match item.parse() {
            Ok(count) if (1..=COUNT_MAX as usize).contains(&count) => Ok(count),
            _ => {
                let why = format!("expected 1 to {COUNT_MAX}, or all for all processors");
                Err(invalid("--threads", item, why))
            }
        },
    };
    let mut threads = list(text, one)?;
    threads.sort_unstable();
    Ok(threads)
}

/// Reads a list of directories. A name with a comma that is there is one directory.
fn directories(typed: &Path) -> Result<Vec<PathBuf>, LabError> {
    let bytes = typed.as_os_str().as_bytes();
    let parts: Vec<PathBuf> = match typed.exists() {
        true => vec![typed.to_owned()],
        false => {
            bytes.split(|&byte| byte == b',').map(|part| OsStr::from_bytes(part).into()).collect()
        }
    };
    let mut known: Vec<PathBuf> = Vec::new();
    for part in &parts {
        if !part.is_dir() {
            let what = if part.exists() { "is not a directory" } else { "does not exist" };
            let text = format!("--dir {}: {what}; name existing directories", part.display());
            return Err(LabError::Failed(text));
        }
        let real = part.canonicalize().unwrap_or_else(|_| part.clone());
        if known.contains(&real) {
            let part = part.display().to_string();
            return Err(invalid("--dir", &part, "named twice; expected different directories"));
        }
        known.push(real);
    }
    Ok(parts)
}

/// How large the files of each directory are together.
fn size(typed: Option<&str>, directories: u64, files: u64, block: usize) -> Result<Size, LabError> {
    let least = files * (block as u64).next_multiple_of(4096);
    let Some(text) = typed else {
        let time = Duration::from_secs(6) / u32::try_from(directories).unwrap_or(u32::MAX);
        let most = (1000 * MIB / directories).max(least);
        return Ok(Size { most, least: least.max(64 * MIB / directories), time });
    };
    let bytes = parse_size(text).map_err(|error| invalid("--size", text, error))? / directories;
    if bytes < least {
        let all = least * directories;
        let why = format!("files of at least one block for each thread need {all} bytes");
        return Err(invalid("--size", text, why));
    }
    Ok(Size::exactly(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<ScalePlan, LabError> {
        let mut args = Args { workload: Some("scale".to_owned()), ..Args::default() };
        change(&mut args);
        ScalePlan::new(&Typed::of(&args).unwrap())
    }

    fn set(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn threads_are_a_list_in_which_all_is_a_number() {
        assert_eq!(threads("4,all,1, 2", 3).unwrap(), [1, 2, 3, 4]);
        assert_eq!(threads("all,2,2", 2).unwrap(), [2]);
        let plan = plan(|args| args.threads = set("3,1")).unwrap();
        assert_eq!((&plan.threads[..], &plan.depths[..]), (&[1, 3][..], &[1, 32][..]));
        assert_eq!(plan.null_threads(), [1, 3, 8, 32]);
        assert_eq!((plan.files, &plan.directories[..]), (3, &[PathBuf::from(".")][..]));
    }

    #[test]
    fn every_directory_has_a_file_for_each_of_its_threads_and_its_part_of_the_bytes() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let both = format!("{},{}", one.path().display(), other.path().display());
        let plan = plan(|args| {
            (args.dir, args.threads, args.size) = (Some(both.into()), set("1,5"), set("64m"))
        });
        let plan = plan.unwrap();
        assert_eq!(plan.directories, [one.path(), other.path()]);
        assert_eq!((plan.files, plan.size), (3, Size::exactly(32 * MIB)));
    }

    #[test]
    fn a_directory_with_a_comma_in_its_name_is_one() {
        let parent = tempfile::tempdir().unwrap();
        let odd = parent.path().join("a,b");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(directories(&odd).unwrap(), [odd]);
    }

    #[test]
    fn bad_input_is_named_with_what_is_accepted() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let here = parent.path().display().to_string();
        let dir = |other: &str| plan(|args| args.dir = Some(format!("{here},{other}").into()));
        let missing = format!("{here}/none");
        for (found, parts) in [
            (
                plan(|args| args.threads = set("0")),
                ["--threads: invalid value '0'", "1 to 1024, or all"],
            ),
            (
                plan(|args| args.threads = set("1,x")),
                ["--threads: invalid value 'x'", "1 to 1024, or all"],
            ),
            (
                plan(|args| args.threads = set("")),
                ["--threads: invalid value '':", "1 to 1024, or all"],
            ),
            (
                plan(|args| args.threads = set("1025")),
                ["--threads: invalid value '1025'", "1 to 1024"],
            ),
            (
                plan(|args| args.block = set("3000")),
                ["--block: invalid value '3000'", "multiple of 512"],
            ),
            (plan(|args| args.size = set("8k")), ["--size: invalid value '8k'", "bytes"]),
            (plan(|args| args.files = set("0")), ["--files: invalid value '0'", "1 to 1024"]),
            (
                plan(|args| {
                    (args.threads, args.depth, args.block) = (set("64"), set("1024"), set("64k"))
                }),
                ["--depth times --block", "1 GiB"],
            ),
            (dir(&missing), ["/none: does not exist", "name existing directories"]),
            (dir(&file.display().to_string()), ["/file: is not a directory", "name existing"]),
            (dir(&format!("{here}/.")), ["named twice", "different directories"]),
            (dir(""), ["--dir : does not exist", "name existing directories"]),
        ] {
            let text = found.unwrap_err().to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
