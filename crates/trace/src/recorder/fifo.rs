//! A FIFO that a trace goes into while somebody reads it.
//!
//! Its opening waits for a reader, and a write waits while the reader takes nothing. A signal ends both waits, because
//! the recorder has to pass it on and to end.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::RecordError;

/// How often a wait looks for a signal.
const LOOK_TIME: Duration = Duration::from_millis(20);

/// How long a reader may take nothing after a signal.
const PATIENCE: Duration = Duration::from_secs(1);

/// A FIFO that has, or had, a reader.
#[derive(Debug)]
pub(super) struct Fifo<'a> {
    file: File,
    signal: &'a AtomicUsize,
    /// Whether a signal has ended the recording.
    pub(super) is_ending: bool,
    /// Whether it was waited for its reader in vain.
    is_given_up: bool,
}

/// Whether somebody can read the trace while it is written.
pub(super) fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

impl<'a> Fifo<'a> {
    /// Waits until somebody reads the FIFO. None: the path is no FIFO.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or a signal came first.
    pub(super) fn open(
        path: &Path,
        signal: &'a AtomicUsize,
    ) -> Result<Option<Fifo<'a>>, RecordError> {
        if !is_fifo(path) {
            return Ok(None);
        }
        loop {
            match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
                Ok(file) => {
                    return Ok(Some(Fifo { file, signal, is_ending: false, is_given_up: false }));
                }
                // Nobody reads it: open(2).
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
                Err(error) => return Err(RecordError::on("writing", path, &error)),
            }
            if signal.load(Ordering::Relaxed) != 0 {
                return Err(RecordError::Failed(format!(
                    "{}: a signal came before a reader; nothing was recorded",
                    path.display()
                )));
            }
            thread::sleep(LOOK_TIME);
        }
    }

    /// Waits until the reader has taken something or has gone.
    fn wait(&mut self) -> io::Result<()> {
        let look_time = Timespec::try_from(LOOK_TIME).ok();
        let mut asked_to_end = None;
        while !self.is_given_up {
            let ready = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], look_time.as_ref());
            if ready.is_ok_and(|count| count > 0) {
                return Ok(());
            }
            if self.is_ending || self.signal.load(Ordering::Relaxed) != 0 {
                let since = *asked_to_end.get_or_insert_with(Instant::now);
                self.is_given_up = since.elapsed() > PATIENCE;
            }
        }
        let told = "a signal came, and its reader took nothing for a second";
        Err(io::Error::new(io::ErrorKind::TimedOut, told))
    }
}

impl Write for Fifo<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
