//! What an allocation does with a range of a file. It knows no flag of the kernel: `flags.rs` has those.

/// What [`Operation::allocate`](crate::Operation::allocate) does with the range (fallocate(2)).
///
/// # Examples
///
/// ```
/// use ringwise::{AllocateMode, OpenOptions, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// # let ring = Ring::new()?;
/// # let options = OpenOptions::new().read(true).write(true).create(true);
/// let file = File::open(&ring, &path, options).await?;
/// file.allocate(AllocateMode::Extend, 0, 1 << 20).await?;
/// assert_eq!(file.metadata().await?.len(), 1 << 20);
/// file.write_all_at("text", 0).await.into_result()?;
/// file.allocate(AllocateMode::PunchHole, 0, 4096).await?;
/// assert_eq!(file.read_exact_at([1; 4], 0).await.into_buffer()?, [0; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocateMode {
    /// Reserves space and extends the file where the range ends beyond it.
    Extend,
    /// Reserves space and leaves the length alone.
    KeepSize,
    /// Gives the space back; the range reads as zeros.
    PunchHole,
    /// Makes the range read as zeros, and extends the file if the range ends beyond it. Space stays reserved
    /// if the file system can do that.
    ZeroRange,
}
