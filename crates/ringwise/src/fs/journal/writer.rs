//! Writes batches to the last segment, and begins another one when that is long enough.
//!
//! Each opening of a journal begins a segment of its own, so no segment is written to by two. After a failure
//! it is not used any more.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    path::PathBuf,
    sync::Arc,
};

use super::{
    catalog::Catalog,
    frame::{Batch, HEADING_BYTES, Heading},
    queue::{Commit, Committed, Committing},
};
use crate::{buf::BufResult, error::Error, fs::File};

pub(super) struct Writer {
    catalog: Arc<Catalog>,
    /// A segment that would become longer is followed by another.
    segment_bytes: u64,
    /// None before the first batch.
    segment: Option<Segment>,
}

struct Segment {
    file: File,
    path: PathBuf,
    salt: u64,
    end: u64,
}

impl Writer {
    pub(super) fn new(catalog: Arc<Catalog>, segment_bytes: u64) -> Writer {
        Writer { catalog, segment_bytes, segment: None }
    }

    /// Writes a batch and makes it durable. Gives the batch's memory back.
    async fn write(&mut self, batch: Batch) -> BufResult<(), Vec<u8>> {
        let len = batch.len() as u64;
        let is_full = |segment: &Segment| {
            segment.end > HEADING_BYTES as u64 && segment.end + len > self.segment_bytes
        };
        let segment = match self.segment.take() {
            Some(segment) if !is_full(&segment) => segment,
            _ => match self.create(batch.first()).await {
                Ok(segment) => segment,
                Err(error) => return BufResult(Err(error), Vec::new()),
            },
        };
        let segment = self.segment.insert(segment);
        let bytes = batch.seal(segment.salt);
        let BufResult(result, bytes) = segment.file.write_durable_at(bytes, segment.end).await;
        segment.end += len;
        BufResult(result.map_err(|error| error.on_path(&segment.path)), bytes)
    }

    async fn create(&self, first: u64) -> Result<Segment, Error> {
        // The standard library draws the keys of its hash maps from the system's random numbers.
        let salt = RandomState::new().build_hasher().finish();
        let file = self.catalog.create(Heading { first, salt }).await?;
        let (path, end) = (self.catalog.path_of(first), HEADING_BYTES as u64);
        Ok(Segment { file, path, salt, end })
    }
}

impl Commit for Writer {
    fn commit(mut self, batch: Batch) -> Committing<Writer> {
        Box::pin(async move {
            let BufResult(result, bytes) = self.write(batch).await;
            let result = result.map_err(|error| {
                error.advise(
                    "the journal has failed: records that were not acknowledged may be lost; \
                     open it again",
                )
            });
            Committed { writer: self, bytes, result }
        })
    }
}
