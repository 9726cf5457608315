//! Text formats as records: a line at a time, bounded in length, with the records of each line.
//!
//! It knows no format. A [`Parser`] turns a line into records.

use std::{
    collections::VecDeque,
    io::{BufRead, Read},
};

use crate::{
    error::TraceError,
    model::{End, Record},
};

/// The longest line. strace writes at most a few KiB, unless it was told to write whole buffers.
const LINE_BYTES_MAX: usize = 1 << 20;

/// A format of lines.
pub(super) trait Parser {
    /// Adds the records of a line, without its line feed.
    fn line(&mut self, line: &[u8], records: &mut VecDeque<Record>) -> Result<(), String>;

    /// Adds the records that were waiting for a line that did not come, and returns the end record.
    fn end(&mut self, records: &mut VecDeque<Record>) -> End;
}

/// Iterates over the records of a text.
pub(super) struct Lines<R, P> {
    input: R,
    parser: P,
    line: Vec<u8>,
    number: u64,
    at_byte: u64,
    records: VecDeque<Record>,
    is_done: bool,
}

impl<R: BufRead, P: Parser> Lines<R, P> {
    pub(super) fn new(input: R, parser: P) -> Lines<R, P> {
        let (line, records) = (Vec::new(), VecDeque::new());
        Lines { input, parser, line, number: 0, at_byte: 0, records, is_done: false }
    }

    fn next_line(&mut self) -> Result<(), TraceError> {
        self.line.clear();
        self.number += 1;
        let mut input = self.input.by_ref().take(LINE_BYTES_MAX as u64);
        let len = input.read_until(b'\n', &mut self.line)?;
        if len == 0 {
            self.is_done = true;
            let end = self.parser.end(&mut self.records);
            self.records.push_back(Record::End(Box::new(end)));
            return Ok(());
        }
        if self.line.pop_if(|byte| *byte == b'\n').is_none() {
            return Err(match len {
                LINE_BYTES_MAX => TraceError::Line {
                    number: self.number,
                    what: format!("it has more than {LINE_BYTES_MAX} bytes"),
                },
                // Its last number could have had more digits.
                _ => TraceError::Cut { at_byte: self.at_byte },
            });
        }
        self.parser
            .line(&self.line, &mut self.records)
            .map_err(|what| TraceError::Line { number: self.number, what })?;
        self.at_byte += len as u64;
        Ok(())
    }
}

impl<R: BufRead, P: Parser> Iterator for Lines<R, P> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Some(Ok(record));
            }
            if self.is_done {
                return None;
            }
            if let Err(error) = self.next_line() {
                self.is_done = true;
                return Some(Err(error));
            }
        }
    }
}
