//! What a journal does when it is opened: it finds the end of the last segment, and makes it durable.
//!
//! A crash can leave a part of the last commit. It was not acknowledged, so it is cut off. If a later frame
//! follows what is wrong, then what is wrong had been durable: that is damage, and an error.
//!
//! The last commit that is whole may be in the page cache alone: its sync may have failed, and the kernel does
//! not write such pages again (fsync(2)). So it is written once more before anybody relies on it. All others
//! are durable, since each commit begins after the sync of the one before. Older segments are not looked at.

use std::{ops::Range, path::PathBuf};

use super::{
    catalog::Catalog,
    reader::{Found, Reader},
};
use crate::{error::Error, fs::File, op::OpenOptions};

/// What [`Journal::open`](super::Journal::open) found.
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
/// let options = JournalOptions::default();
/// let (journal, recovery) = Journal::open(&ring, directory, options).await?;
/// assert_eq!(recovery.records, 0..0, "it is new");
/// journal.append("one").await?;
/// journal.close().await?;
///
/// let (_journal, recovery) = Journal::open(&ring, directory, options).await?;
/// assert_eq!((recovery.records, recovery.torn), (0..1, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// The numbers of the records. The next record gets the number at the end of the range.
    pub records: Range<u64>,
    /// A commit that was cut short.
    pub torn: Option<TornTail>,
}

/// The end of a segment that a crash had left, and that was cut off: a part of the last commit, of which no
/// record was acknowledged.
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
/// # let options = JournalOptions::default();
/// # let (journal, _) = Journal::open(&ring, directory, options).await?;
/// # journal.append("one").await?;
/// # journal.close().await?;
/// # let segment = std::fs::read_dir(directory)?.next().unwrap()?.path();
/// // A power loss left all but one byte of the last commit.
/// let file = std::fs::OpenOptions::new().write(true).open(&segment)?;
/// file.set_len(file.metadata()?.len() - 1)?;
///
/// let (_journal, recovery) = Journal::open(&ring, directory, options).await?;
/// let torn = recovery.torn.expect("the commit is cut off");
/// assert_eq!(torn.path, segment);
/// assert_eq!(file.metadata()?.len(), torn.offset);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TornTail {
    /// The segment.
    pub path: PathBuf,
    /// The length in bytes that it was cut to.
    pub offset: u64,
    /// How many bytes were cut off.
    pub bytes: u64,
}

/// Recovers the last segment.
pub(super) async fn recover(catalog: &Catalog) -> Result<Recovery, Error> {
    let Some((first, last)) = catalog.ends() else {
        return Ok(Recovery { records: 0..0, torn: None });
    };
    let options = OpenOptions::new().read(true).write(true);
    let mut reader = Reader::open(catalog, last, options).await?;
    let mut last_frame = None;
    let found = loop {
        match reader.advance().await? {
            Found::Frame(frame) => last_frame = Some((reader.position().0, frame.len())),
            found => break found,
        }
    };
    let (end, next) = reader.position();
    let path = reader.path().to_owned();
    let mut torn = None;
    if found == Found::Wrong {
        let (damage, bytes) = (reader.damage(), reader.rest());
        if reader.has_later().await? {
            return Err(damage);
        }
        torn = Some(TornTail { path: path.clone(), offset: end, bytes });
    }
    let settled = settle(reader.into_file(), end, last_frame, torn.is_some()).await;
    settled.map_err(|error| error.on_path(&path))?;
    Ok(Recovery { records: first..next, torn })
}

/// Makes the segment durable up to its end, the last frame by another write.
async fn settle(
    file: File,
    end: u64,
    last_frame: Option<(u64, usize)>,
    is_torn: bool,
) -> Result<(), Error> {
    if is_torn {
        file.set_len(end).await?;
    }
    let mut chain = file.chain();
    if let Some((offset, len)) = last_frame {
        let frame = file.read_exact_at(vec![0; len], offset).await.into_buffer()?;
        chain = chain.write_at(frame, offset);
    }
    for step in chain.sync_all().run().await {
        step.result?;
    }
    Ok(())
}
