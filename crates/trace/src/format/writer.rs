//! Writes a trace as a stream of frames.

use std::{
    io::{self, Write},
    num::NonZeroU32,
};

use super::{
    encoding::Context,
    frame::{FRAME_HEAD_BYTES, MAGIC, PAYLOAD_BYTES_MAX, VERSION, checksum, kind},
};
use crate::model::{End, File, Header, Lost, Name, Operation, Record, Thread};

/// A frame is written when it has this many bytes. Larger frames save no space, and a cut trace loses more.
const PAYLOAD_BYTES: usize = 64 << 10;

/// The longest name that is written. Linux has no longer paths (`PATH_MAX`).
const NAME_BYTES_MAX: usize = 64 << 10;

/// Writes records to a [`Write`], frame by frame.
///
/// Records of a frame that was not written are lost if the writer is dropped. [`finish`](Writer::finish) writes them
/// and the end record.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    payload: Vec<u8>,
    context: Context,
    files: u32,
    threads: u32,
    /// Records in the frame that is being filled, in the last one that was written, and in all that were.
    frame_records: u64,
    last_records: u64,
    written_records: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the magic number, the version and the header.
    ///
    /// # Errors
    ///
    /// The error of the stream. A header of more than 1 MiB is invalid data.
    pub fn new(mut out: W, header: &Header) -> io::Result<Writer<W>> {
        let mut payload = vec![kind::HEADER];
        serde_json::to_writer(&mut payload, header)?;
        let mut start = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        put_frame(&mut start, &payload)?;
        out.write_all(&start)?;
        let payload = Vec::with_capacity(PAYLOAD_BYTES + 256);
        let context = Context::default();
        let (frame_records, last_records, written_records) = (0, 0, 0);
        Ok(Writer {
            out,
            payload,
            context,
            files: 0,
            threads: 0,
            frame_records,
            last_records,
            written_records,
        })
    }

    /// Writes a record of any kind. A file or thread needs the next free number.
    ///
    /// # Errors
    ///
    /// Those of the writer's other functions. An end record is invalid input: use [`finish`](Writer::finish).
    pub fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::File(file) => self.file(file),
            Record::Thread(thread) => self.thread(thread),
            Record::Operation(operation) => self.operation(operation),
            Record::Lost(lost) => self.lost(lost),
            Record::End(_) => Err(invalid("the end record is written by finish")),
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// The error of the stream. Invalid input: the number is not the next one, or the name has more than 64 KiB.
    pub fn file(&mut self, file: &File) -> io::Result<()> {
        if let Name::Path(path) = &file.name
            && path.len() > NAME_BYTES_MAX
        {
            return Err(invalid("the name of a file has more than 64 KiB"));
        }
        self.files = next(self.files, file.id.0)?;
        self.context.file(file, begun(&mut self.payload));
        self.flush_if_full()
    }

    /// Writes a thread.
    ///
    /// # Errors
    ///
    /// The error of the stream. Invalid input: the number is not the next one, or the name has more than 64 KiB.
    pub fn thread(&mut self, thread: &Thread) -> io::Result<()> {
        if thread.name.len() > NAME_BYTES_MAX {
            return Err(invalid("the name of a thread has more than 64 KiB"));
        }
        self.threads = next(self.threads, thread.id.0)?;
        self.context.thread(thread, begun(&mut self.payload));
        self.flush_if_full()
    }

    /// Writes an operation. Its files and its thread have been written before.
    ///
    /// # Errors
    ///
    /// The error of the stream. Invalid input: a file or thread has not been written, or more than 2^63 bytes moved.
    pub fn operation(&mut self, operation: &Operation) -> io::Result<()> {
        let files = [operation.file, operation.target];
        if files.into_iter().flatten().any(|file| file.0.get() > self.files)
            || operation.thread.0.get() > self.threads
        {
            return Err(invalid("an operation refers to a file or thread that was not written"));
        }
        if operation.bytes() > i64::MAX.cast_unsigned() {
            return Err(invalid("an operation has more than 2^63 bytes"));
        }
        self.context.operation(operation, begun(&mut self.payload));
        self.flush_if_full()
    }

    /// Writes that events were lost.
    ///
    /// # Errors
    ///
    /// The error of the stream.
    pub fn lost(&mut self, lost: &Lost) -> io::Result<()> {
        self.context.lost(lost, begun(&mut self.payload));
        self.flush_if_full()
    }

    /// Writes the frame that is being filled, and flushes the stream.
    ///
    /// # Errors
    ///
    /// The error of the stream.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_frame()?;
        self.out.flush()
    }

    /// Writes what is left and the end record, flushes the stream and returns it.
    ///
    /// # Errors
    ///
    /// The error of the stream.
    pub fn finish(mut self, end: &End) -> io::Result<W> {
        self.flush_frame()?;
        self.out.write_all(&end_frame(end)?)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// The stream.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    pub(crate) fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Gives the stream back, without the frame that is being filled.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// How many records stand in whole frames, and how many of them in the last frame.
    pub(crate) fn written_records(&self) -> (u64, u64) {
        (self.written_records, self.last_records)
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        self.frame_records += 1;
        if self.payload.len() < PAYLOAD_BYTES { Ok(()) } else { self.flush_frame() }
    }

    /// Writes a frame in one piece, so that a stream that keeps whole writes keeps whole frames.
    fn flush_frame(&mut self) -> io::Result<()> {
        if self.payload.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(self.payload.len() + FRAME_HEAD_BYTES);
        put_frame(&mut bytes, &self.payload)?;
        self.payload.clear();
        self.context = Context::default();
        let records = std::mem::take(&mut self.frame_records);
        self.out.write_all(&bytes)?;
        self.last_records = records;
        self.written_records += records;
        Ok(())
    }
}

/// The payload, with its first byte.
fn begun(payload: &mut Vec<u8>) -> &mut Vec<u8> {
    if payload.is_empty() {
        payload.push(kind::RECORDS);
    }
    payload
}

/// The frame of an end record, for a stream that has to end without its writer.
pub(crate) fn end_frame(end: &End) -> io::Result<Vec<u8>> {
    let mut payload = vec![kind::END];
    serde_json::to_writer(&mut payload, end)?;
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &payload)?;
    Ok(bytes)
}

fn put_frame(out: &mut Vec<u8>, payload: &[u8]) -> io::Result<()> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(invalid("a frame has more than 1 MiB"));
    }
    let len = (payload.len() as u32).to_le_bytes();
    out.extend_from_slice(&len);
    out.extend_from_slice(&checksum(len, payload).to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// The number of records so far, with this one.
fn next(count: u32, number: NonZeroU32) -> io::Result<u32> {
    match count.checked_add(1) {
        Some(expected) if expected == number.get() => Ok(expected),
        _ => Err(invalid("files and threads are numbered from 1 in the order of their records")),
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
