//! What `chain` measures, checked: through the page cache and past it, by each kind of sync.

use ringwise_measure::quantity::{parse_size, size_text};

use crate::{
    dataset::{Size, block::BLOCK_BYTES},
    engine::chain::SyncKind,
    error::LabError,
    plan::{
        scale::Scale,
        typed::{Typed, invalid, list, unknown},
    },
    sampling::job::{Cache, Pattern, Profile},
    workload::read::{
        group::Group,
        plan::{buffers_fit, profiles},
    },
};

/// The batch of the studies that this repeats.
const DEPTH: usize = 170;
const MIB: u64 = 1 << 20;

/// Chains that are compared with each other in one interleaved run.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainGroup {
    /// The profile, the file and the depths.
    pub group: Group,
    /// What makes a page durable.
    pub sync: SyncKind,
}

/// A group for each profile and each kind of sync.
///
/// # Errors
///
/// [`LabError::Usage`], which names the value and what is accepted.
pub fn groups(typed: &Typed<'_>) -> Result<Vec<ChainGroup>, LabError> {
    let (args, scale) = (typed.args, typed.scale);
    let all = if scale == Scale::Quick { vec![DEPTH] } else { vec![1, 8, 32, DEPTH] };
    let depths = typed.depths.clone().unwrap_or(all);
    buffers_fit(&depths, 2 * BLOCK_BYTES)?;
    let size = match args.size.as_deref() {
        Some(text) => parse_size(text).map_err(|error| invalid("--size", text, error))?,
        None if scale == Scale::Quick => 32 * MIB,
        None => 256 * MIB,
    };
    let deepest = depths.iter().copied().max().unwrap_or(1) as u64;
    let least = 2 * deepest * BLOCK_BYTES as u64;
    if size < least {
        let why =
            format!("{deepest} chains in flight, each on a page of its own, need {least} bytes");
        return Err(invalid("--size", &size_text(size), why));
    }
    let syncs = args.sync.as_deref().map_or_else(|| Ok(Vec::new()), syncs)?;
    let is_quick_suite = typed.is_suite() && scale == Scale::Quick;
    let mut groups = Vec::new();
    for profile in profiles(args)? {
        let chosen = match (&syncs[..], profile) {
            // Of the quick suite, which is not to write more than 2 GiB, the one of the studies.
            ([], Profile::Buffered) if is_quick_suite => &[SyncKind::Fsync][..],
            ([], Profile::Buffered) => &SyncKind::ALL[..],
            // What a program that goes past the cache would do.
            ([], Profile::Direct) => &[SyncKind::Dsync][..],
            (syncs, _) => syncs,
        };
        groups.extend(chosen.iter().map(|&sync| ChainGroup {
            sync,
            group: Group {
                set: "chain",
                profile,
                pattern: Pattern::Sequential,
                cache: match profile {
                    Profile::Buffered => Cache::Warm,
                    Profile::Direct => Cache::Bypassed,
                },
                bound_bytes: None,
                block_bytes: BLOCK_BYTES,
                is_swept: false,
                depths: depths.clone(),
                threads: 1,
                engines: Vec::new(),
                files: 1,
                size: Size::exactly(size),
            },
        }));
    }
    Ok(groups)
}

fn syncs(text: &str) -> Result<Vec<SyncKind>, LabError> {
    list(text, |name| {
        let accepted = SyncKind::ALL.map(SyncKind::name).join(", ");
        let found = SyncKind::ALL.into_iter().find(|sync| sync.name() == name);
        found.ok_or_else(|| unknown("--sync", name, &accepted))
    })
}
