//! Reads a trace in any of the formats that this crate knows, told apart by their content.
//!
//! Traces of other programs say less than one of `ringwise lab record`: [`Header::blind_spots`] says what is missing.

mod blktrace;
mod fio;
mod lines;
mod strace;

use std::{
    fmt,
    io::{BufRead, Read},
};

use crate::{
    error::TraceError,
    format::{MAGIC, Reader},
    model::{Header, Record},
};

/// A trace of any format.
pub struct AnyReader {
    header: Header,
    records: Box<dyn Iterator<Item = Result<Record, TraceError>>>,
}

impl AnyReader {
    /// Finds out the format and reads what comes before the first record.
    ///
    /// It takes traces of `ringwise lab record`, fio's iologs of version 2 and 3, the output of
    /// `strace -f -ttt -T -y` (or `-yy`), and binary events of blktrace (`blkparse -d`).
    ///
    /// # Errors
    ///
    /// [`TraceError::NotATrace`] for any other format, the errors of [`Reader::new`], or the error of the stream.
    pub fn new(mut input: impl BufRead + 'static) -> Result<AnyReader, TraceError> {
        // Long enough for a first line, whatever the stream hands out at once.
        let mut start = Vec::new();
        let is_whole_line = |start: &[u8]| start.len() >= MAGIC.len() && start.contains(&b'\n');
        while !is_whole_line(&start) && start.len() < 4096 {
            let mut byte = [0];
            match input.read(&mut byte)? {
                0 => break,
                _ => start.push(byte[0]),
            }
        }
        let lines = || start.split(|byte| *byte == b'\n');
        let first = lines().next().unwrap_or_default();
        let version = fio::version(first);
        let is_strace = lines().any(strace::is_meant);
        let is_own = !start.is_empty() && MAGIC.starts_with(&start[..start.len().min(MAGIC.len())]);
        let is_block = blktrace::is_meant(&start);
        let input = std::io::Cursor::new(start).chain(input);
        if is_block {
            let records = Box::new(blktrace::records(input));
            return Ok(AnyReader { header: blktrace::header(), records });
        }
        if is_own {
            let reader = Reader::new(input)?;
            return Ok(AnyReader { header: reader.header().clone(), records: Box::new(reader) });
        }
        match version {
            Some(version) => {
                let records = Box::new(fio::records(input, version));
                Ok(AnyReader { header: fio::header(version), records })
            }
            None if is_strace => {
                let records = Box::new(strace::records(input));
                Ok(AnyReader { header: strace::header(), records })
            }
            None => Err(TraceError::NotATrace),
        }
    }

    /// What is known before the first record.
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl Iterator for AnyReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next()
    }
}

impl fmt::Debug for AnyReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyReader").field("header", &self.header).finish_non_exhaustive()
    }
}
