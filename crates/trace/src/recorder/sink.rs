//! The file that a trace is written to, which is whole even if the disk is full.
//!
//! A write that fails is taken back, so that the file ends with a whole frame. The end record then takes the place of
//! the last frames, if there is no other. What went into a FIFO cannot be taken back: its reader sees a trace that was cut.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use super::fifo::Fifo;
use crate::{
    format::{Writer, end_frame},
    model::{End, Header, Reason, Record},
};

/// What takes the bytes of a trace.
#[derive(Debug)]
enum Place<'a> {
    File(File),
    Fifo(Fifo<'a>),
}

/// A file that has only whole writes.
#[derive(Debug)]
struct WholeWrites<'a> {
    place: Place<'a>,
    /// The bytes before the last write, and with it.
    before: u64,
    len: u64,
}

impl Write for WholeWrites<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = match &mut self.place {
                Place::File(file) => file.write(rest),
                Place::Fifo(fifo) => fifo.write(rest),
            };
            match written {
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

impl WholeWrites<'_> {
    fn take_back<T>(&mut self, error: io::Error) -> io::Result<T> {
        self.cut(self.len)?;
        Err(error)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let Place::File(file) = &mut self.place else { return Ok(()) };
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len)).map(drop)
    }
}

/// Where the records of a recording go.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    writer: Writer<WholeWrites<'a>>,
    records: u64,
    error: Option<io::Error>,
}

impl<'a> Sink<'a> {
    /// Begins a trace with its header, in a FIFO or in a new file.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be made or written.
    pub(super) fn create(
        path: &Path,
        fifo: Option<Fifo<'a>>,
        header: &Header,
    ) -> io::Result<Sink<'a>> {
        let place = match fifo {
            Some(fifo) => Place::Fifo(fifo),
            None => Place::File(OpenOptions::new().write(true).create_new(true).open(path)?),
        };
        let writer = Writer::new(WholeWrites { place, before: 0, len: 0 }, header)?;
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

    /// From now on it does not wait long for the reader of a FIFO.
    pub(super) fn hurry(&mut self) {
        if let Place::Fifo(fifo) = &mut self.writer.get_mut().place {
            fifo.is_ending = true;
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
