//! A journal: many tasks append records, and one write and one sync make all durable that came meanwhile.
//!
//! A sync takes about as long for a thousand records as for one. So while one batch is committed, the records
//! of other tasks gather, and are the next batch. Reading order: `frame` (the format), `queue` (who waits for
//! what, without I/O), `catalog` (the directory), `writer`, `reader`, `recovery`, `records`.
//!
//! It knows nothing of what records mean. It keeps one copy on one file system, and it does not hide a failed
//! sync: docs/explanation/durability.md says why nobody can.

mod catalog;
mod frame;
mod queue;
mod reader;
mod records;
mod recovery;
mod writer;

use std::{fmt, future::poll_fn, path::Path, sync::Arc};

use catalog::Catalog;
use queue::Queue;
pub use records::{Record, Records};
pub use recovery::{Recovery, TornTail};
use writer::Writer;

use crate::{
    error::{Errno, Error},
    op::Opcode,
    ring::Ring,
};

/// The longest record, and the most that gathers.
const BYTES_MAX: usize = 1 << 30;

/// Records in the files of one directory, appended by any number of tasks. Clones are the same journal.
///
/// One write and one sync make all records durable that came while the last ones were written. No task and no
/// thread of its own does this: the first append begins, and the ring's driver goes on. More tasks make longer
/// batches, not more syncs.
///
/// Records are numbered in the order in which they were appended, from 0 on. They are stored in segments: files
/// that are named for their first record. Only this type should write to the directory, which it locks
/// (flock(2)).
///
/// # After a failure
///
/// If a write or a sync fails, also for want of space, every append that waits and every later one fails with
/// that error. The journal never syncs again: the kernel reports a lost write once, and the next sync succeeds
/// although the data is gone (docs/explanation/durability.md). [Close](Self::close) the journal and
/// [open](Self::open) it again. It then has every record that was acknowledged, and all or none of the batch that failed.
///
/// # Cancel safety
///
/// If the future of an append is dropped, the record is stored as a whole or not at all, and others are not
/// disturbed. A commit goes on without its futures. If the journal is dropped, the records that it was given
/// are still written; [`settled`](Self::settled) and [`close`](Self::close) wait for them, and so does the next
/// [`open`](Self::open) of the directory, for up to a second.
///
/// # Examples
///
/// ```
/// use ringwise::{Ring, fs::{Journal, JournalOptions}};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let ring = Ring::new()?;
/// let (journal, recovery) = Journal::open(&ring, directory, JournalOptions::default()).await?;
/// let mut records = journal.records(recovery.records.start);
/// while let Some(record) = records.next_record().await? {
///     println!("{}: {} bytes", record.number, record.bytes.len());
/// }
///
/// // Tasks do this at the same time.
/// let appends = futures::future::join(journal.append("one"), journal.append("other"));
/// let (one, other) = appends.await;
/// assert_eq!((one?, other?), (0, 1)); // both are durable
/// journal.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Journal {
    catalog: Arc<Catalog>,
    queue: Arc<Queue<Writer>>,
}

/// How a [`Journal`] stores its records.
///
/// # Examples
///
/// ```
/// use ringwise::fs::JournalOptions;
///
/// let options = JournalOptions::default().segment_bytes(8 << 20).gathered_bytes(256 << 10);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    segment_bytes: u64,
    gathered_bytes: usize,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions { segment_bytes: 64 << 20, gathered_bytes: 1 << 20 }
    }
}

impl JournalOptions {
    /// Sets the length of a segment; 64 MiB unless set. A batch that would make the segment longer begins
    /// another one, so a segment is only longer if it has a single batch.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets how many bytes of records gather while a batch is written; 1 MiB unless set, and 1 GiB at most.
    /// Appends beyond that wait for room, in their order. Memory for twice as much is in use, since the
    /// batch that is written has as much. A record that is longer gathers alone.
    #[must_use]
    pub fn gathered_bytes(mut self, bytes: usize) -> Self {
        self.gathered_bytes = bytes.min(BYTES_MAX);
        self
    }
}

impl Journal {
    /// Opens the journal in a directory, which has to exist. An empty directory is an empty journal.
    ///
    /// This reads the last segment. It cuts off what a crash left of a commit that was not acknowledged, and
    /// makes the rest durable. [`records`](Self::records) reads older segments, and verifies them then.
    ///
    /// If another journal has the directory open, this waits for up to a second. A journal that was just
    /// dropped still writes what it was given, and a program that is replaced may still be ending.
    ///
    /// # Errors
    ///
    /// Why the directory or the last segment could not be opened, read or written.
    /// [`Busy`](crate::ErrorKind::Busy) if another journal still has the directory open after a second, or
    /// still writes to it. [`Corrupt`](crate::ErrorKind::Corrupt), with the file and the offset, if a record that
    /// had been durable is not what was written. The end of the last segment is the exception: damage to its
    /// last commit looks like a commit that was cut short.
    pub async fn open(
        ring: &Ring,
        directory: impl AsRef<Path>,
        options: JournalOptions,
    ) -> Result<(Journal, Recovery), Error> {
        let catalog = Arc::new(Catalog::open(ring, directory.as_ref()).await?);
        let recovery = recovery::recover(&catalog).await?;
        let writer = Writer::new(Arc::clone(&catalog), options.segment_bytes);
        let queue = Queue::new(writer, recovery.records.end, options.gathered_bytes);
        Ok((Journal { catalog, queue: Arc::new(queue) }, recovery))
    }

    /// Appends a record of at most 1 GiB, and gives its number when the record is durable. The record is
    /// copied.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a longer record;
    /// [`ShutDown`](crate::ErrorKind::ShutDown) if the journal was closed. Any other error is why the journal
    /// failed, with the path. The record may be stored all the same: it is then among the records when the
    /// journal is opened again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the record is stored as a whole or not at all. A record that waited for room is
    /// not stored. Appends wait for room in their order, so poll the future until it is done, or drop it: one that
    /// is kept and not polled holds up all behind it.
    pub async fn append(&self, record: impl AsRef<[u8]>) -> Result<u64, Error> {
        if record.as_ref().len() > BYTES_MAX {
            let error = Error::new(Opcode::Write, Errno(libc::EINVAL));
            return Err(error.advise("a record of a journal has at most 1 GiB"));
        }
        let mut place = self.queue.place();
        poll_fn(move |context| place.poll_append(record.as_ref(), context)).await
    }

    /// Waits until every record is durable that was appended before, also those whose futures were dropped.
    ///
    /// # Errors
    ///
    /// Why the journal failed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost if the future is dropped.
    pub async fn settled(&self) -> Result<(), Error> {
        let mut place = self.queue.place();
        poll_fn(move |context| place.poll_settled(context)).await
    }

    /// Closes the journal for all clones: it takes no more records, waits for those that it has, and unlocks the
    /// directory. A [`remove_before`](Self::remove_before) of a clone that is under way keeps the lock until its
    /// operation has ended, and then fails.
    ///
    /// Without this, a journal that is dropped keeps the directory locked for as long as it still writes, or
    /// somebody still reads its [`records`](Self::records). Only this call tells how the writes ended.
    ///
    /// # Errors
    ///
    /// Why the journal failed. It is closed all the same.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the journal takes no more records, and the directory is unlocked as after a
    /// drop.
    pub async fn close(self) -> Result<(), Error> {
        self.queue.close();
        let settled = self.settled().await;
        self.catalog.close();
        settled
    }

    /// Reads the records from the number `start` on that are durable by now. If records before `start` were
    /// removed, it begins with the first that is left. Appends may go on meanwhile.
    pub fn records(&self, start: u64) -> Records {
        Records::new(&self.catalog, start, self.queue.durable())
    }

    /// Removes segments whose records all have a number before this one. The last segment stays.
    ///
    /// # Errors
    ///
    /// Why a segment could not be removed; [`ShutDown`](crate::ErrorKind::ShutDown) if the journal was closed. Those
    /// before it are gone.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, some segments may be left. The next call removes them.
    pub async fn remove_before(&self, number: u64) -> Result<(), Error> {
        self.catalog.remove_before(number).await
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let durable = self.queue.durable();
        f.debug_struct("Journal").field("durable", &durable).finish_non_exhaustive()
    }
}
