//! What `stat` measures, checked: how many files, and how many calls at a time.

use crate::{
    error::LabError,
    plan::{
        scale::Scale,
        typed::{Typed, number},
    },
};

/// As many as have names of six digits.
const FILES_MAX: u64 = 1_000_000;

/// What `stat` measures.
#[derive(Clone, Debug, PartialEq)]
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
    pub fn new(typed: &Typed<'_>) -> Result<StatPlan, LabError> {
        let files = number("--files", typed.args.files.as_deref(), 1, FILES_MAX)?;
        // To make them takes longer than the quick suite has for all of it.
        let is_quick_suite = typed.is_suite() && typed.scale == Scale::Quick;
        let default = if is_quick_suite { 10_000 } else { 100_000 };
        let depths = typed.depths.clone().unwrap_or_else(|| vec![1, 32]);
        Ok(StatPlan { files: files.unwrap_or(default), depths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;

    #[test]
    fn a_hundred_thousand_files_but_in_the_quick_suite() {
        let files = |args: Args| StatPlan::new(&Typed::of(&args).unwrap()).unwrap().files;
        let named = |full| Args { workload: Some("stat".to_owned()), full, ..Args::default() };
        assert_eq!(files(Args::default()), 10_000);
        assert_eq!(files(Args { standard: true, ..Args::default() }), 100_000);
        assert_eq!((files(named(false)), files(named(true))), (100_000, 100_000));
    }
}
