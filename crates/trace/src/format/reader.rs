//! Reads a trace record by record, with the memory of one frame.

use std::{
    io::{self, Read},
    num::NonZeroU32,
};

use super::{
    encoding::{Body, Context},
    frame::{FRAME_HEAD_BYTES, MAGIC, PAYLOAD_BYTES_MAX, VERSION, checksum, kind},
};
use crate::{
    error::TraceError,
    model::{Header, Operation, Record},
};

/// Iterates over the records of a trace, in their order.
///
/// The last item is the end record. If the trace has none, the last item is [`TraceError::Cut`]; if a frame is not what
/// was written, it is [`TraceError::Corrupt`]. All records before an error are whole.
///
/// It keeps one frame in memory, of at most 1 MiB. It reads in small pieces: give it a [`std::io::BufReader`].
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: R,
    header: Header,
    /// The payload of the current frame, and how much of it was used.
    payload: Vec<u8>,
    used: usize,
    context: Context,
    /// The first byte of the current frame, and the one after it.
    frame_at: u64,
    next_at: u64,
    files: u32,
    threads: u32,
    is_done: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`TraceError::NotATrace`], [`TraceError::Newer`], [`TraceError::Cut`] or [`TraceError::Corrupt`] in the header,
    /// or the error of the stream.
    pub fn new(input: R) -> Result<Reader<R>, TraceError> {
        let mut reader = Reader {
            input,
            header: Header::default(),
            payload: Vec::new(),
            used: 0,
            context: Context::default(),
            frame_at: 0,
            next_at: 0,
            files: 0,
            threads: 0,
            is_done: false,
        };
        let mut start = [0; 10];
        let len = fill(&mut reader.input, &mut start)?;
        let magic = &start[..len.min(MAGIC.len())];
        if magic.is_empty() || *magic != MAGIC[..magic.len()] {
            return Err(TraceError::NotATrace);
        }
        if len < start.len() {
            return Err(TraceError::Cut { at_byte: 0 });
        }
        let version = u16::from_le_bytes([start[8], start[9]]);
        if version > VERSION {
            return Err(TraceError::Newer { version, supported: VERSION });
        }
        reader.next_at = start.len() as u64;
        if version == 0 || reader.next_frame()? != kind::HEADER {
            return Err(reader.corrupt("expected a header"));
        }
        reader.header = serde_json::from_slice(&reader.payload[1..])
            .map_err(|_| reader.corrupt("the header is not the expected JSON"))?;
        reader.used = reader.payload.len();
        Ok(reader)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn next_record(&mut self) -> Result<Record, TraceError> {
        while self.used == self.payload.len() {
            match self.next_frame()? {
                kind::RECORDS => {}
                kind::END => {
                    let end = serde_json::from_slice(&self.payload[1..])
                        .map_err(|_| self.corrupt("the end record is not the expected JSON"))?;
                    self.is_done = true;
                    return Ok(Record::End(end));
                }
                _ => return Err(self.corrupt("unknown kind of frame")),
            }
        }
        let mut rest = &self.payload[self.used..];
        let body = self.context.take(&mut rest);
        self.used = self.payload.len() - rest.len();
        match body.ok_or_else(|| self.corrupt("a record has unknown values"))? {
            Body::File(file) => {
                self.files = self.next_number(self.files, file.id.0)?;
                Ok(Record::File(file))
            }
            Body::Thread(thread) => {
                self.threads = self.next_number(self.threads, thread.id.0)?;
                Ok(Record::Thread(thread))
            }
            Body::Operation(operation) if self.is_known(&operation) => {
                Ok(Record::Operation(operation))
            }
            Body::Operation(_) => {
                Err(self.corrupt("an operation refers to an unknown file or thread"))
            }
            Body::Lost(lost) => Ok(Record::Lost(lost)),
        }
    }

    fn next_number(&self, count: u32, number: NonZeroU32) -> Result<u32, TraceError> {
        match count.checked_add(1) {
            Some(expected) if expected == number.get() => Ok(expected),
            _ => Err(self.corrupt("a number of a file or thread is not the next one")),
        }
    }

    fn is_known(&self, operation: &Operation) -> bool {
        let files = [operation.file, operation.target];
        operation.thread.0.get() <= self.threads
            && files.into_iter().flatten().all(|file| file.0.get() <= self.files)
    }

    /// Reads the next frame and returns its kind.
    fn next_frame(&mut self) -> Result<u8, TraceError> {
        self.frame_at = self.next_at;
        let cut = TraceError::Cut { at_byte: self.frame_at };
        let mut head = [0; FRAME_HEAD_BYTES];
        if fill(&mut self.input, &mut head)? < head.len() {
            return Err(cut);
        }
        let [len @ .., _, _, _, _] = head;
        let [_, _, _, _, sum @ ..] = head;
        let payload_len = u32::from_le_bytes(len) as usize;
        if payload_len == 0 || payload_len > PAYLOAD_BYTES_MAX {
            return Err(self.corrupt("a frame has an impossible length"));
        }
        self.payload.clear();
        self.payload.resize(payload_len, 0);
        if fill(&mut self.input, &mut self.payload)? < payload_len {
            return Err(cut);
        }
        if checksum(len, &self.payload) != u32::from_le_bytes(sum) {
            return Err(self.corrupt("the checksum of a frame is wrong"));
        }
        self.next_at += (head.len() + payload_len) as u64;
        self.context = Context::default();
        self.used = 1;
        Ok(self.payload[0])
    }

    fn corrupt(&self, what: &'static str) -> TraceError {
        TraceError::Corrupt { at_byte: self.frame_at, what }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let record = self.next_record();
        self.is_done |= record.is_err();
        Some(record)
    }
}

/// Reads until the buffer is full or the stream ends, and returns how many bytes there were.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
