//! The open of a name that somebody else chose: only a regular file comes out of it.
//!
//! Adapters and servers open names of their users. An open that waits for a FIFO, or a read from a device, would hold
//! up such a program.

use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::File;
use crate::{
    error::{Errno, Error},
    op::{Opcode, OpenOptions, Operation},
    ring::Ring,
};

impl File {
    /// Opens a regular file, and refuses everything else: use it for names that others choose.
    /// [`open`](Self::open) waits for the writer of a FIFO, and opens directories and devices.
    ///
    /// If another process has a lease of the file, this waits until that process gives it up (`F_SETLEASE` in
    /// fcntl(2)).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not a regular file; why it could not be opened.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the file is closed, if it was opened at all.
    ///
    /// # Examples
    ///
    /// ```
    /// use ringwise::{OpenOptions, Ring, fs::File};
    ///
    /// # futures::executor::block_on(async {
    /// let ring = Ring::new()?;
    /// let refused = File::open_regular(&ring, "/dev/null", OpenOptions::new().read(true)).await;
    /// assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub async fn open_regular(
        ring: &Ring,
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> Result<File, Error> {
        let path = path.as_ref();
        let refusal = || {
            let error = Error::new(Opcode::Open, Errno(libc::EINVAL));
            error.on_path(path).advise("it is not a regular file")
        };
        let file = match File::open(ring, path, options.without_waiting()).await {
            // Another process has a lease.
            Err(error) if error.errno() == libc::EAGAIN => {
                if !ring.submit(Operation::statx(path)).await.metadata()?.is_file() {
                    return Err(refusal());
                }
                File::open(ring, path, options).await?
            }
            opened => opened?,
        };
        if !file.metadata().await?.is_file() {
            return Err(refusal());
        }
        // Some file systems would refuse a read that has to wait.
        let flags = fcntl_getfl(&file.descriptor);
        flags
            .and_then(|flags| fcntl_setfl(&file.descriptor, flags.difference(OFlags::NONBLOCK)))
            .map_err(|error| file.error(Opcode::Open, error.raw_os_error()))?;
        Ok(file)
    }
}
