//! What a loop was built not to do. Every operation that is pushed or linked passes here, whichever
//! backend would make it.

use super::Local;
use crate::{
    descriptor::Target,
    error::{Errno, Error},
    op::{Closing, Hint, Kind, Opcode, Operation},
};

/// What is said of a registration with a loop that takes none any more.
pub(super) const SEALED: &str = "the loop is sealed (Builder::seal)";

impl Local {
    /// Why the loop may not make an operation, if it may not.
    #[inline]
    pub(super) fn forbidden(&self, operation: &Operation) -> Option<Error> {
        if !self.setup.restriction.is_any() {
            return None;
        }
        self.is_forbidden(operation).then(|| Error::refused(operation, Errno(libc::EACCES)))
    }

    #[cold]
    fn is_forbidden(&self, operation: &Operation) -> bool {
        let restriction = &self.setup.restriction;
        let changes_table = match operation.0.as_deref() {
            // The driver's own, by which others wake it.
            Some(Kind::Read { hint: Hint::Own, .. }) => return false,
            Some(Kind::Open(open)) => open.into_table,
            Some(Kind::Close(Closing::Registered(_))) => true,
            _ => false,
        };
        !restriction.allows(operation.opcode())
            || (restriction.data_only && matches!(operation.target(), Some(Target::Descriptor(_))))
            || (restriction.sealed && changes_table)
    }

    /// Whether the ring may be given an operation on this file.
    #[inline]
    pub(super) fn takes_file(&self, operation: &Operation) -> bool {
        !self.setup.restriction.data_only
            || !matches!(operation.target(), Some(Target::Descriptor(_)))
    }

    /// Refuses a registration with a loop that takes none any more.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        let sealed = || Error::new(Opcode::Register, Errno(libc::EACCES)).advise(SEALED);
        if self.setup.restriction.sealed { Err(sealed()) } else { Ok(()) }
    }
}
