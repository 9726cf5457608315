//! What `objects` measures, checked: the objects, their ranges, and how many requests at a time.

use std::time::Duration;

use ringwise_measure::quantity::{bytes_text, parse_size, size_text};

use super::geometry::{RANGES, object_bytes_min};
use crate::{
    dataset::Size,
    error::LabError,
    plan::{
        scale::Scale,
        typed::{COUNT_MAX, Typed, invalid, number, unknown, usage},
    },
    sampling::job::Cache,
    workload::read::plan::blocks,
};

const MIB: u64 = 1 << 20;
/// Objects, unless their number is typed.
const OBJECTS: u64 = 4;
/// The length of a range: about that of a compressed column of a row group.
const RANGE_BYTES: usize = 64 << 10;
/// The most memory for what is read at a time.
const BUFFERS_BYTES_MAX: u64 = 1 << 30;

/// What `objects` measures.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectsPlan {
    /// The states of the page cache.
    pub caches: Vec<Cache>,
    /// Bytes of a range.
    pub ranges_bytes: Vec<usize>,
    /// Requests at a time.
    pub depths: Vec<usize>,
    /// How many objects.
    pub files: u64,
    /// How large they are together.
    pub size: Size,
}

impl ObjectsPlan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub fn new(typed: &Typed<'_>) -> Result<ObjectsPlan, LabError> {
        let args = typed.args;
        let caches = match args.cache.as_deref() {
            None => vec![Cache::Warm, Cache::Cold],
            Some("warm") => vec![Cache::Warm],
            Some("cold") => vec![Cache::Cold],
            Some(other) => return Err(unknown("--cache", other, "warm, cold")),
        };
        let ranges_bytes = args.block.as_deref().map(blocks).transpose()?;
        let ranges_bytes = ranges_bytes.unwrap_or_else(|| vec![RANGE_BYTES]);
        let longest = ranges_bytes.iter().copied().max().unwrap_or(RANGE_BYTES);
        let depths = typed.depths.clone().unwrap_or_else(|| default_depths(typed));
        let deepest = depths.iter().copied().max().unwrap_or(1) as u64;
        let buffers = deepest.saturating_mul((RANGES * longest) as u64);
        if buffers > BUFFERS_BYTES_MAX {
            let text = format!(
                "times {RANGES} ranges of --block {} are {}: expected at most 1 GiB",
                size_text(longest as u64),
                bytes_text(buffers)
            );
            return Err(usage("--depth", text));
        }
        let files = number("--files", args.files.as_deref(), 1, COUNT_MAX)?.unwrap_or(OBJECTS);
        let size = size(typed, files, longest)?;
        Ok(ObjectsPlan { caches, ranges_bytes, depths, files, size })
    }
}

fn default_depths(typed: &Typed<'_>) -> Vec<usize> {
    match typed.scale {
        // The suite has other things to do too.
        Scale::Quick if typed.is_suite() => vec![8],
        Scale::Quick => vec![1, 8],
        Scale::Standard | Scale::Full => vec![1, 8, 32],
    }
}

fn size(typed: &Typed<'_>, files: u64, range_bytes: usize) -> Result<Size, LabError> {
    // Each object is a whole number of blocks, so it may get a little less than its share.
    let needed = files * (object_bytes_min(range_bytes)).next_multiple_of(4096);
    if let Some(text) = typed.args.size.as_deref() {
        let bytes = parse_size(text).map_err(|error| invalid("--size", text, error))?;
        if bytes < needed {
            let why = format!(
                "{files} objects with {RANGES} ranges of {} and as much between them need \
                 {needed} bytes",
                size_text(range_bytes as u64)
            );
            return Err(invalid("--size", text, why));
        }
        return Ok(Size::exactly(bytes));
    }
    let most = if typed.is_suite() && typed.scale == Scale::Quick { 128 } else { 1000 } * MIB;
    let time = Duration::from_secs(if typed.is_suite() { 2 } else { 6 });
    Ok(Size { most: most.max(needed), least: needed.max(64 * MIB), time })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    fn plan(change: impl FnOnce(&mut Args)) -> Result<ObjectsPlan, LabError> {
        let mut args = Args { workload: Some("objects".to_owned()), ..Args::default() };
        change(&mut args);
        ObjectsPlan::new(&Typed::of(&args).unwrap())
    }

    fn set(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn both_states_of_the_cache_and_fewer_depths_in_the_quick_suite() {
        let named = plan(|_| {}).unwrap();
        assert_eq!(named.caches, [Cache::Warm, Cache::Cold]);
        assert_eq!((&named.depths[..], &named.ranges_bytes[..]), (&[1, 8][..], &[64 << 10][..]));
        let suite = plan(|args| args.workload = None).unwrap();
        assert_eq!((&suite.depths[..], suite.size.most), (&[8][..], 128 * MIB));
        let full = plan(|args| args.full = true).unwrap();
        assert_eq!((&full.depths[..], full.size.most), (&[1, 8, 32][..], 1000 * MIB));
    }

    #[test]
    fn objects_have_room_for_a_request() {
        let long = plan(|args| args.block = set("2m")).unwrap();
        assert!(long.size.least >= OBJECTS * 2 * 128 * MIB, "{:?}", long.size);
        for (error, parts) in [
            (plan(|args| args.size = set("8m")), ["--size: invalid value '8m'", "33554432 bytes"]),
            (
                plan(|args| args.cache = set("bounded")),
                ["--cache: invalid value 'bounded': expected", "warm, cold"],
            ),
            (plan(|args| args.files = set("0")), ["--files: invalid value '0'", "1 to 1024"]),
            (
                plan(|args| (args.depth, args.block) = (set("1024"), set("64k"))),
                ["--depth times 64 ranges of --block 64k", "at most 1 GiB"],
            ),
        ] {
            let text = error.unwrap_err().to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
