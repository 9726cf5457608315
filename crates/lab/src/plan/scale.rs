//! How large a run is.

use crate::args::Args;

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// About two minutes.
    Quick,
    /// About half an hour.
    Standard,
    /// As large as the published studies.
    Full,
}

impl Scale {
    /// The scale that was typed.
    pub(crate) fn of(args: &Args) -> Scale {
        match (args.full, args.standard) {
            (true, _) => Scale::Full,
            (false, true) => Scale::Standard,
            (false, false) => Scale::Quick,
        }
    }
}
