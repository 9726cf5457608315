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
        // To make them takes longer than the quick suite has for all of it.
        let is_quick_suite = args.workload.is_none() && scale == Scale::Quick;
        let default = if is_quick_suite { 10_000 } else { 100_000 };
        Ok(StatPlan {
            files: files.unwrap_or(default),
            depths: depths.map_or_else(|| vec![1, 32], <[usize]>::to_vec),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{args::Args, plan::Plan};

    #[test]
    fn a_hundred_thousand_files_but_in_the_quick_suite() {
        let files = |args: Args| Plan::new(&args).unwrap().stat.files;
        let named = |full| Args { workload: Some("stat".to_owned()), full, ..Args::default() };
        assert_eq!(files(Args::default()), 10_000);
        assert_eq!(files(Args { standard: true, ..Args::default() }), 100_000);
        assert_eq!((files(named(false)), files(named(true))), (100_000, 100_000));
    }
}
