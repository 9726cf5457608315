//! Reads the frames of one segment in order, a part of it at a time.
//!
//! It says where a frame is not what it should be. What that means is decided by whoever reads: at the end of
//! the last segment it is a commit that a crash cut short, and anywhere else it is damage.

use std::path::{Path, PathBuf};

use super::{
    catalog::Catalog,
    frame::{FRAME_BYTES, Frame, HEADING_BYTES, Heading, Look},
};
use crate::{
    buf::{BufResult, OwnedBufferMut},
    error::{Errno, Error},
    fs::File,
    op::{Opcode, OpenOptions},
};

/// How much is read at a time at least.
const CHUNK_BYTES: usize = 128 << 10;

/// An open segment.
pub(super) struct Reader {
    file: File,
    path: PathBuf,
    /// The length of the file when it was opened.
    len: u64,
    salt: u64,
    /// The number of the first record of the next frame.
    next: u64,
    /// Where the next frame begins; while a frame is there, where that begins.
    at: u64,
    /// The bytes of the file from `at` on, behind the first `used`.
    window: Vec<u8>,
    used: usize,
    frame: Option<Frame>,
}

/// What comes next in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Frame(Frame),
    /// The segment ends behind the last frame.
    End,
    /// No frame, or a part of one.
    Wrong,
}

impl Reader {
    pub(super) async fn open(
        catalog: &Catalog,
        first: u64,
        options: OpenOptions,
    ) -> Result<Reader, Error> {
        let path = catalog.path_of(first);
        let file = catalog.open_segment(first, options).await?;
        let about = file.metadata().await.map_err(|error| error.on_path(&path))?;
        let mut reader = Reader {
            file,
            path,
            len: about.len(),
            salt: 0,
            next: first,
            at: 0,
            window: Vec::new(),
            used: 0,
            frame: None,
        };
        let is_there = reader.fill(HEADING_BYTES).await?;
        match Heading::parse(&reader.window).filter(|heading| is_there && heading.first == first) {
            Some(heading) => reader.salt = heading.salt,
            None => return Err(reader.damage()),
        }
        reader.pass(HEADING_BYTES);
        Ok(reader)
    }

    /// Goes on to the next frame.
    pub(super) async fn advance(&mut self) -> Result<Found, Error> {
        if let Some(frame) = self.frame.take() {
            self.pass(frame.len());
        }
        if self.at >= self.len {
            return Ok(Found::End);
        }
        loop {
            let bytes = match Frame::look(&self.window[self.used..], self.salt, self.next) {
                Look::Needs(bytes) => bytes,
                Look::Wrong => return Ok(Found::Wrong),
                Look::Whole(frame) => {
                    (self.frame, self.next) = (Some(frame), frame.end());
                    return Ok(Found::Frame(frame));
                }
            };
            if !self.fill(bytes).await? {
                return Ok(Found::Wrong);
            }
        }
    }

    /// The records of the frame.
    pub(super) fn records(&self) -> &[u8] {
        let frame = self.frame.map_or(0, |frame| frame.len());
        self.window[self.used..].get(FRAME_BYTES..frame).unwrap_or_default()
    }

    /// Where the next frame should be, or the frame is; and the number of the next record.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.at, self.next)
    }

    /// How many bytes there are from there to the end.
    pub(super) fn rest(&self) -> u64 {
        self.len.saturating_sub(self.at)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Whether a later frame follows what is wrong. After this the reader is of no more use.
    pub(super) async fn has_later(&mut self) -> Result<bool, Error> {
        loop {
            if Frame::has_later(&self.window[self.used..], self.salt, self.next) {
                return Ok(true);
            }
            // What is left may be the beginning of a header.
            let passed = (self.window.len() - self.used).saturating_sub(FRAME_BYTES - 1);
            self.pass(passed);
            if !self.fill(FRAME_BYTES).await? {
                return Ok(false);
            }
        }
    }

    /// The error of a segment that is not as it was written.
    pub(super) fn damage(&self) -> Error {
        let error = Error::new(Opcode::Read, Errno(libc::EBADMSG));
        let error = error.on_path(&self.path).at_offset(self.at);
        error.advise("the journal is damaged here: what is stored is not what was written")
    }

    fn pass(&mut self, bytes: usize) {
        self.used += bytes;
        self.at += bytes as u64;
    }

    /// Reads until the window has so many bytes. False if the file has fewer.
    async fn fill(&mut self, bytes: usize) -> Result<bool, Error> {
        if self.rest() < bytes as u64 {
            return Ok(false);
        }
        self.window.drain(..std::mem::take(&mut self.used));
        while self.window.len() < bytes {
            let offset = self.at + self.window.len() as u64;
            // If this future is dropped, the window is empty, and is read again.
            let mut window = std::mem::take(&mut self.window);
            window.reserve((bytes - window.len()).max(CHUNK_BYTES));
            let BufResult(read, window) = self.file.read_at(window.spare(), offset).await;
            self.window = window.0;
            if read.map_err(|error| error.on_path(&self.path))? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
