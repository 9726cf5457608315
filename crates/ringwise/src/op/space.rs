//! What an allocation does with a range of a file. It knows no flag of the kernel: `flags.rs` has those.

/// What [`Operation::allocate`](crate::Operation::allocate) does with the range (fallocate(2)).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocateMode {
    /// Reserves space and extends the file where the range ends beyond it.
    Extend,
    /// Reserves space and leaves the length alone.
    KeepSize,
    /// Gives the space back; the range reads as zeros.
    PunchHole,
    /// Makes the range read as zeros, keeping space reserved where the file system can.
    ZeroRange,
}
