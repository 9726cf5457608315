//! What `stat` measures, checked: how many files, and how many calls at a time.

use super::{Scale, check::number};
use crate::{args::Args, error::LabError};

/// As many as have names of six digits.
const FILES_MAX: u64 = 1_000_000;

/// What `stat` measures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatPlan {
    /// How many files.
    pub files: u64,
    /// Calls at a time.
    pub depths: Vec<usize>,
}

impl StatPlan {
    /// Checks what was typed.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`], which names the value and what is accepted.
    pub(super) fn new(
        args: &Args,
        depths: Option<&[usize]>,
        scale: Scale,
    ) -> Result<StatPlan, LabError> {
        let files = number("--files", args.files.as_deref(), 1, FILES_MAX)?;
        let default = if scale == Scale::Quick { 10_000 } else { 100_000 };
        Ok(StatPlan {
            files: files.unwrap_or(default),
            depths: depths.map_or_else(|| vec![1, 32], <[usize]>::to_vec),
        })
    }
}
