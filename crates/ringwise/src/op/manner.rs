//! How a send ends: what its completion says, and whether it has one.

/// How a send ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// When some of it is sent.
    Some,
    /// When all of it is.
    Whole,
    /// At once, with a completion only where not all of it was taken.
    Quiet,
    /// A quiet one of which the loop has seen that it has a completion.
    Loud,
    /// When all is sent and the memory is no longer in use; `sent` came before.
    ZeroCopy { sent: Option<i32> },
    /// One of those that the kernel cannot do without a copy after all: as `Whole`, and still the
    /// loop's to look at, as its ticket says.
    Copied,
}

impl Manner {
    /// Whether the send is to end when all of it is sent.
    pub(crate) fn is_whole(self) -> bool {
        match self {
            Manner::Whole | Manner::Copied | Manner::ZeroCopy { .. } => true,
            Manner::Some | Manner::Quiet | Manner::Loud => false,
        }
    }
}
