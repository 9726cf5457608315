//! Reads records back, in the order of their numbers, one frame in memory at a time.

use std::{collections::VecDeque, fmt, sync::Arc};

use super::{
    catalog::Catalog,
    frame::split_record,
    reader::{Found, Reader},
};
use crate::{error::Error, op::OpenOptions};

/// A record of a [`Journal`](super::Journal), read back.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs::{Journal, JournalOptions}};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// # let ring = Ring::new()?;
/// let (journal, _) = Journal::open(&ring, directory, JournalOptions::default()).await?;
/// let number = journal.append("one").await?;
/// let record = journal.records(number).next_record().await?.expect("it is durable");
/// assert_eq!((record.number, record.bytes), (number, b"one".to_vec()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// What [`append`](super::Journal::append) gave for it.
    pub number: u64,
    /// What was appended.
    pub bytes: Vec<u8>,
}

/// The records of a [`Journal`](super::Journal) from a number on. Made by
/// [`records`](super::Journal::records).
///
/// One commit of records is in memory at a time: about as much as gathers at most
/// ([`JournalOptions::gathered_bytes`](super::JournalOptions::gathered_bytes)), or one long record.
///
/// # Cancel safety
///
/// No record is left out if a future of [`next_record`](Self::next_record) is dropped.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs::{Journal, JournalOptions}};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// # let ring = Ring::new()?;
/// let (journal, _) = Journal::open(&ring, directory, JournalOptions::default()).await?;
/// for record in ["one", "two", "three"] {
///     journal.append(record).await?;
/// }
/// let (mut records, mut bytes) = (journal.records(1), Vec::new());
/// while let Some(record) = records.next_record().await? {
///     bytes.extend(record.bytes);
/// }
/// assert_eq!(bytes, b"twothree");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Records {
    catalog: Arc<Catalog>,
    /// Segments that are not open yet.
    segments: VecDeque<u64>,
    reader: Option<Reader>,
    /// What was read of the records of the reader's frame, in bytes.
    read_bytes: usize,
    /// How many records of the frame are not read.
    unread: u32,
    /// The number of the next record in the segment.
    next: u64,
    /// Records before this one are left out.
    start: u64,
    /// The number after the last record.
    end: u64,
}

impl Records {
    pub(super) fn new(catalog: &Arc<Catalog>, start: u64, end: u64) -> Records {
        Records {
            catalog: Arc::clone(catalog),
            segments: catalog.segments_from(start),
            reader: None,
            read_bytes: 0,
            unread: 0,
            next: start,
            start,
            end,
        }
    }

    /// Gives the next record, or nothing at the end.
    ///
    /// # Errors
    ///
    /// Why a segment could not be opened or read; [`NotFound`](crate::ErrorKind::NotFound) if it was
    /// removed meanwhile. [`Corrupt`](crate::ErrorKind::Corrupt), with the file and the offset, if what is
    /// stored is not what was written, or if records are missing.
    pub async fn next_record(&mut self) -> Result<Option<Record>, Error> {
        while self.next < self.end {
            let Some(reader) = &mut self.reader else {
                let Some(first) = self.segments.front().copied() else { return Ok(None) };
                let options = OpenOptions::new().read(true);
                self.reader = Some(Reader::open(&self.catalog, first, options).await?);
                self.segments.pop_front();
                self.next = first;
                continue;
            };
            if self.unread == 0 {
                match reader.advance().await? {
                    Found::Frame(frame) => (self.unread, self.read_bytes) = (frame.count, 0),
                    Found::End if self.segments.front() == Some(&self.next) => self.reader = None,
                    Found::End | Found::Wrong => return Err(reader.damage()),
                }
                continue;
            }
            let records = reader.records();
            let Some((bytes, rest)) = split_record(&records[self.read_bytes..]) else {
                return Err(reader.damage());
            };
            self.read_bytes = records.len() - rest.len();
            let number = self.next;
            (self.unread, self.next) = (self.unread - 1, number + 1);
            if number >= self.start {
                return Ok(Some(Record { number, bytes: bytes.to_vec() }));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self.next..self.end;
        f.debug_struct("Records").field("numbers", &numbers).finish_non_exhaustive()
    }
}
