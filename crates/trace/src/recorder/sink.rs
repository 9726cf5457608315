//! The file that a trace is written to, which is whole even if the disk is full.
//!
//! A write that fails is taken back, so that the file ends with a whole frame. The end record then takes the place of
//! the last frames, if there is no other. What went into a FIFO cannot be taken back: its reader sees a trace that was cut.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::FileTypeExt,
    path::Path,
};

use super::error::RecordError;
use crate::{
    format::{Writer, end_frame},
    model::{End, Header, Reason, Record},
};

/// A file that has only whole writes.
#[derive(Debug)]
struct WholeWrites {
    file: File,
    is_fifo: bool,
    /// The bytes before the last write, and with it.
    before: u64,
    len: u64,
}

impl Write for WholeWrites {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return self.take_back(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.take_back(error),
            }
        }
        self.before = self.len;
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WholeWrites {
    fn take_back<T>(&mut self, error: io::Error) -> io::Result<T> {
        self.cut(self.len)?;
        Err(error)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        if self.is_fifo {
            return Ok(());
        }
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len)).map(drop)
    }
}

/// Whether somebody can read the trace while it is written.
pub(super) fn is_fifo(path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.file_type().is_fifo())
}

/// Waits until somebody reads a FIFO, and keeps it open. None: the path is no FIFO.
///
/// # Errors
///
/// It cannot be opened.
pub(super) fn wait_for_reader(path: &Path) -> Result<Option<File>, RecordError> {
    if !is_fifo(path) {
        return Ok(None);
    }
    let opened = OpenOptions::new().write(true).open(path);
    opened.map(Some).map_err(|error| RecordError::on("writing", path, &error))
}

/// Where the records of a recording go.
#[derive(Debug)]
pub(super) struct Sink {
    writer: Writer<WholeWrites>,
    records: u64,
    error: Option<io::Error>,
}

impl Sink {
    /// Makes a new file with a header, or waits until somebody reads a FIFO.
    ///
    /// # Errors
    ///
    /// The file exists and is no FIFO, or cannot be made or written.
    pub(super) fn create(path: &Path, header: &Header) -> io::Result<Sink> {
        let is_fifo = is_fifo(path);
        let file = OpenOptions::new().write(true).create_new(!is_fifo).open(path)?;
        let writer = Writer::new(WholeWrites { file, is_fifo, before: 0, len: 0 }, header)?;
        Ok(Sink { writer, records: 0, error: None })
    }

    /// Adds a record. After an error of the file it only counts.
    pub(super) fn add(&mut self, record: &Record) {
        self.records += 1;
        if self.error.is_none() {
            self.error = self.writer.record(record).err();
        }
    }

    /// Writes what was added so far, so that a recorder that is killed has lost little.
    pub(super) fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.writer.flush().err();
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Writes the end record, and returns it as it was written.
    ///
    /// # Errors
    ///
    /// The end record has no place: the trace has whole frames and no end.
    pub(super) fn finish(mut self, mut end: End) -> io::Result<End> {
        self.flush();
        let (written, last) = self.writer.written_records();
        let mut file = self.writer.into_inner();
        let mut dropped = self.records - written;
        if self.error.is_none() {
            let frame = end_frame(&end)?;
            match file.write_all(&frame) {
                Ok(()) => return Ok(end),
                Err(error) => self.error = Some(error),
            }
        }
        end.reason = Reason::WriteFailed;
        end.detail = self.error.as_ref().map(super::error::plain).unwrap_or_default();
        end.dropped_records = dropped;
        if file.write_all(&end_frame(&end)?).is_ok() {
            return Ok(end);
        }
        dropped += last;
        end.dropped_records = dropped;
        // The last frame has at least as many bytes.
        let before = file.before;
        file.cut(before)?;
        file.len = before;
        file.write_all(&end_frame(&end)?)?;
        Ok(end)
    }
}
