//! A result that brings its buffer back, on failure too.

use crate::error::Error;

/// What an operation with a buffer comes to: its result, and the buffer.
///
/// # Examples
///
/// ```
/// use ringwise::{BufResult, Ring, fs::File};
///
/// # futures::executor::block_on(async {
/// let ring = Ring::new()?;
/// let file = File::from_std(&ring, std::fs::File::open("/proc/self/comm")?);
///
/// // Where a failure ends everything, and the buffer may go with it:
/// let (count, bytes) = file.read_at(vec![0; 64], 0).await.into_result()?;
/// assert!(bytes[..count].ends_with(b"\n"));
///
/// // Where the buffer is used again whatever came:
/// let BufResult(read, bytes) = file.read_exact_at(bytes, 0).await;
/// assert!(read.is_err(), "the name is shorter");
/// assert_eq!(bytes.len(), 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the operation may have failed"]
pub struct BufResult<T, B>(
    /// What the operation came to.
    pub Result<T, Error>,
    /// The buffer, on failure too.
    pub B,
);

impl<T, B> BufResult<T, B> {
    /// Both, for `?`; on failure the buffer is dropped.
    ///
    /// # Errors
    ///
    /// What the operation failed with.
    pub fn into_result(self) -> Result<(T, B), Error> {
        let BufResult(result, buffer) = self;
        result.map(|value| (value, buffer))
    }

    /// The buffer alone, for `?`.
    ///
    /// # Errors
    ///
    /// What the operation failed with.
    pub fn into_buffer(self) -> Result<B, Error> {
        self.into_result().map(|(_, buffer)| buffer)
    }

    /// Both, apart.
    pub fn into_parts(self) -> (Result<T, Error>, B) {
        (self.0, self.1)
    }

    /// Changes the value of a success.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> BufResult<U, B> {
        BufResult(self.0.map(change), self.1)
    }

    /// Changes the buffer.
    pub fn map_buffer<C>(self, change: impl FnOnce(B) -> C) -> BufResult<T, C> {
        BufResult(self.0, change(self.1))
    }

    /// Both of a success.
    ///
    /// # Panics
    ///
    /// With the error of a failure.
    #[track_caller]
    pub fn unwrap(self) -> (T, B) {
        (self.0.unwrap(), self.1)
    }
}

impl<T, B> From<BufResult<T, B>> for Result<(T, B), Error> {
    fn from(done: BufResult<T, B>) -> Result<(T, B), Error> {
        done.into_result()
    }
}
