//! What a loop may do: the operations that its builder asked for, on which files, and for how long it may
//! register more. It is a set of names and makes no syscall.
//!
//! The loop refuses the rest on every backend, in one place (`local/restricted.rs`). On a ring the kernel
//! refuses it too (`backend/uring/restrict.rs`).

use std::fmt;

use crate::op::Opcode;

/// Who refuses operations that the program did not ask for.
///
/// # Examples
///
/// ```
/// use ringwise::{Guard, Local, Opcode};
///
/// let local = Local::builder().restrict([Opcode::Read]).build()?;
/// match local.setup().guard() {
///     Guard::Kernel => println!("the kernel refuses everything but reads on this ring"),
///     guard => println!("refused by {guard}"),
/// }
/// # Ok::<(), ringwise::SetupError>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Guard {
    /// Nobody: every operation is allowed.
    #[default]
    Nobody,
    /// The library, because there is no ring.
    Library,
    /// The library, and the kernel for everything that reaches the ring.
    Kernel,
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Guard::Nobody => "nobody",
            Guard::Library => "the library",
            Guard::Kernel => "the kernel",
        })
    }
}

/// The operations of io_uring_register(2) that the library uses, with their numbers and the kernel's names.
///
/// A seccomp filter sees the number in the second argument of the syscall. `ringwise doctor
/// --seccomp-profile` prints a profile that allows these and no others.
///
/// # Examples
///
/// ```
/// use ringwise::REGISTER_OPCODES;
///
/// assert!(REGISTER_OPCODES.contains(&(12, "IORING_REGISTER_ENABLE_RINGS")));
/// ```
pub const REGISTER_OPCODES: [(u8, &str); 13] = [
    (2, "IORING_REGISTER_FILES"),
    (6, "IORING_REGISTER_FILES_UPDATE"),
    (8, "IORING_REGISTER_PROBE"),
    (11, "IORING_REGISTER_RESTRICTIONS"),
    (12, "IORING_REGISTER_ENABLE_RINGS"),
    (13, "IORING_REGISTER_FILES2"),
    (15, "IORING_REGISTER_BUFFERS2"),
    (16, "IORING_REGISTER_BUFFERS_UPDATE"),
    (19, "IORING_REGISTER_IOWQ_MAX_WORKERS"),
    (20, "IORING_REGISTER_RING_FDS"),
    (21, "IORING_UNREGISTER_RING_FDS"),
    (22, "IORING_REGISTER_PBUF_RING"),
    (23, "IORING_UNREGISTER_PBUF_RING"),
];

/// What a loop may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// A set of operations.
    allowed: u64,
    /// Only files of the table.
    pub(crate) data_only: bool,
    /// Nothing is registered after the setup.
    pub(crate) sealed: bool,
}

impl Default for Restriction {
    fn default() -> Restriction {
        Restriction { allowed: u64::MAX, data_only: false, sealed: false }
    }
}

impl Restriction {
    /// Allows these operations and no others but those that every loop needs.
    pub(crate) fn allow_only(&mut self, opcodes: impl IntoIterator<Item = Opcode>) {
        let own = [Opcode::Nop, Opcode::Timeout, Opcode::Cancel];
        self.allowed = opcodes.into_iter().chain(own).fold(0, |set, opcode| set | bit(opcode));
    }

    /// Whether anything is refused.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.allowed != u64::MAX || self.data_only || self.sealed
    }

    /// Whether the operation may be made, on some file.
    #[inline]
    pub(crate) fn allows(&self, opcode: Opcode) -> bool {
        self.allowed & bit(opcode) != 0 && (!self.data_only || moves_data(opcode))
    }
}

fn bit(opcode: Opcode) -> u64 {
    1 << opcode as u64
}

/// Whether it works on a file that is open already and opens none, or on no file at all.
fn moves_data(opcode: Opcode) -> bool {
    use Opcode::{
        Allocate, Cancel, Connect, Nop, Read, ReadVectored, Receive, ReceiveMessage, ReceiveMulti,
        Send, SendMessage, SendZeroCopy, SetLen, Sync, Timeout, Write, WriteVectored,
    };
    matches!(opcode, Read | ReadVectored | Write | WriteVectored | Sync | Allocate | SetLen)
        || matches!(opcode, Receive | ReceiveMessage | ReceiveMulti)
        || matches!(opcode, Send | SendMessage | SendZeroCopy | Connect)
        || matches!(opcode, Nop | Timeout | Cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_loop_needs_is_allowed() {
        let mut restriction = Restriction::default();
        assert!(!restriction.is_any());
        restriction.allow_only([Opcode::Read]);
        assert!(restriction.is_any());
        let allowed = Opcode::ALL.into_iter().filter(|opcode| restriction.allows(*opcode));
        let expected = [Opcode::Nop, Opcode::Read, Opcode::Timeout, Opcode::Cancel];
        assert_eq!(allowed.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn data_only_opens_nothing() {
        let restriction = Restriction { data_only: true, ..Restriction::default() };
        for opcode in [Opcode::Open, Opcode::Accept, Opcode::AcceptMulti, Opcode::Unlink] {
            assert!(!restriction.allows(opcode), "{opcode}");
        }
        assert!(restriction.allows(Opcode::Write) && restriction.allows(Opcode::Send));
    }
}
