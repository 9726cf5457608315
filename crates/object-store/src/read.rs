//! Reads of one object: whole, in a stream of chunks, or many ranges at once.

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{
    StreamExt, TryStreamExt,
    future::{ready, try_join_all},
    stream::{self, BoxStream},
};
use object_store::{
    Attributes, GetOptions, GetResult, GetResultPayload, ObjectMeta, Result, path::Path,
};
use ringwise::{
    ErrorKind, Ring,
    fs::File,
    parts::{self, PART_BYTES},
};
use rustix::fs::{OFlags, fcntl_setfl, fstat};

use crate::{
    attributes,
    failure::{Failure, changed, failed, not_an_object},
    location::name,
    object,
    root::Root,
    threads::blocking,
};

/// Ranges up to here are one chunk, which callers get without a copy.
const SINGLE_BYTES_MAX: u64 = 4 << 20;
/// The length of a chunk of a longer range.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks in flight.
const CHUNKS_AHEAD: usize = 4;
/// Ranges that do not overlap are one read only up to this length. So a part of it keeps little more memory
/// than its own, and long ranges are in flight together.
const MERGED_BYTES_MAX: u64 = 1 << 20;
/// Without O_NONBLOCK the open of a FIFO waits for its writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// An object that is open.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    file: File,
    meta: Arc<ObjectMeta>,
}

impl Object {
    /// Opens an object for reading.
    pub(crate) async fn open(ring: &Ring, root: &Arc<Root>, location: &Path) -> Result<Object> {
        let ring = ring.clone();
        let open = move |file: OwnedFd, meta: ObjectMeta| {
            let clear = fcntl_setfl(&file, OFlags::empty());
            clear.map_err(|error| failed(&meta.location, error))?;
            Ok(Object { file: File::from_std(&ring, file.into()), meta: Arc::new(meta) })
        };
        find(root, location, READ, open).await
    }

    /// Answers a request for the object, with its attributes if the store has them.
    pub(crate) async fn get(self, options: &GetOptions, has_attributes: bool) -> Result<GetResult> {
        let meta = ObjectMeta::clone(&self.meta);
        options.check_preconditions(&meta)?;
        let range = wanted(options, &meta)?;
        let attributes = match has_attributes {
            true => attributes_of(self.file.clone(), &meta.location).await?,
            false => Attributes::new(),
        };
        let is_conditional = options.if_match.is_some() || options.if_unmodified_since.is_some();
        let chunks = self.clone().chunks(range.clone());
        let payload = if is_conditional { self.checked_after(chunks) } else { chunks };
        Ok(result(meta, range, attributes, payload))
    }

    /// Reads a range, in chunks that are in flight ahead of the caller.
    fn chunks(self, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
        let len = range.end - range.start;
        if len <= SINGLE_BYTES_MAX {
            return stream::once(async move { self.read(range).await }).boxed();
        }
        let starts = (range.start..range.end).step_by(CHUNK_BYTES as usize);
        stream::iter(starts)
            .map(move |start| {
                let object = self.clone();
                let chunk = start..range.end.min(start + CHUNK_BYTES);
                async move { object.read(chunk).await }
            })
            .buffered(CHUNKS_AHEAD)
            .boxed()
    }

    /// Ends a stream with an error if the object was changed meanwhile.
    fn checked_after(
        self,
        chunks: BoxStream<'static, Result<Bytes>>,
    ) -> BoxStream<'static, Result<Bytes>> {
        let check = stream::once(blocking(move || {
            let stat = fstat(&self.file).map_err(|error| failed(&self.meta.location, error))?;
            match self.meta.e_tag.as_deref() == Some(&object::e_tag(&stat)) {
                true => Ok(Bytes::new()),
                false => Err(changed(&self.meta.location)),
            }
        }));
        chunks.chain(check).try_filter(|chunk| ready(!chunk.is_empty())).boxed()
    }

    /// Reads ranges, all of them in flight together. Those that are at most `gap` bytes apart are one read.
    pub(crate) async fn ranges(&self, ranges: &[Range<u64>], gap: u64) -> Result<Vec<Bytes>> {
        for range in ranges {
            self.check(range)?;
        }
        let merged = merge(ranges, gap);
        let read = try_join_all(merged.iter().map(|range| self.read(range.clone()))).await?;
        let part = |range: &Range<u64>| {
            if range.is_empty() {
                return Bytes::new();
            }
            let at = merged.partition_point(|whole| whole.start <= range.start) - 1;
            let skipped = merged[at].start;
            read[at].slice((range.start - skipped) as usize..(range.end - skipped) as usize)
        };
        Ok(ranges.iter().map(part).collect())
    }

    /// Refuses a range that the object does not have all of.
    fn check(&self, range: &Range<u64>) -> Result<()> {
        let (Range { start, end }, size) = (range.clone(), self.meta.size);
        if start <= end && (start == end || end <= size) {
            return Ok(());
        }
        let location = self.meta.location.to_string();
        Err(Failure::Range { location, start, end, size }.into())
    }

    /// Reads a range that the object has.
    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let location = &self.meta.location;
        let bytes = range.end - range.start;
        let mut buffer = Vec::new();
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        if buffer.try_reserve_exact(len).is_err() {
            return Err(Failure::Memory { location: location.to_string(), bytes }.into());
        }
        let read = if len <= PART_BYTES {
            let read = self.file.read_exact_at(buffer, range.start).await;
            read.into_result().map(|((), buffer)| Bytes::from(buffer))
        } else {
            drop(buffer);
            self.read_parts(range.start, len).await
        };
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => changed(location),
            _ => failed(location, error),
        })
    }

    /// Reads a long range, all parts of it in flight together.
    async fn read_parts(&self, start: u64, len: usize) -> Result<Bytes, ringwise::Error> {
        let offsets = (start..).step_by(PART_BYTES);
        let reads =
            parts::split(len, 1).into_iter().zip(offsets).map(|(part, offset)| async move {
                self.file.read_exact_at(part, offset).await.into_buffer()
            });
        Ok(parts::join(try_join_all(reads).await?))
    }
}

/// Answers a request for an object's metadata only, and its attributes if the store has them.
pub(crate) async fn head(
    root: &Arc<Root>,
    location: &Path,
    options: &GetOptions,
    has_attributes: bool,
) -> Result<GetResult> {
    let flags = if has_attributes { READ } else { OFlags::PATH };
    let (file, meta) = find(root, location, flags, |file, meta| Ok((file, meta))).await?;
    options.check_preconditions(&meta)?;
    let range = wanted(options, &meta)?;
    let attributes = match has_attributes {
        true => attributes_of(file, location).await?,
        false => Attributes::new(),
    };
    Ok(result(meta, range, attributes, stream::empty().boxed()))
}

async fn attributes_of(file: impl AsFd + Send + 'static, location: &Path) -> Result<Attributes> {
    let location = location.clone();
    blocking(move || attributes::read(file).map_err(|error| failed(&location, error))).await
}

/// Opens an object and passes it to `make`, on this thread if nothing of that waits for anything.
async fn find<T: Send + 'static>(
    root: &Arc<Root>,
    location: &Path,
    flags: OFlags,
    make: impl FnOnce(OwnedFd, ObjectMeta) -> Result<T> + Send + 'static,
) -> Result<T> {
    name(location)?;
    if let Some(found) = root.find_cached(location.as_ref(), flags) {
        return look_at(found, location, make);
    }
    let (root, location) = (root.clone(), location.clone());
    blocking(move || look_at(root.find_blocking(location.as_ref(), flags), &location, make)).await
}

fn look_at<T>(
    found: rustix::io::Result<OwnedFd>,
    location: &Path,
    make: impl FnOnce(OwnedFd, ObjectMeta) -> Result<T>,
) -> Result<T> {
    let found = found.and_then(|file| Ok((fstat(&file)?, file)));
    let (stat, file) = found.map_err(|error| failed(location, error))?;
    match object::is_object(&stat) {
        true => make(file, object::meta(&stat, location.clone())),
        false => Err(not_an_object(location)),
    }
}

/// The range that a request is for.
fn wanted(options: &GetOptions, meta: &ObjectMeta) -> Result<Range<u64>> {
    let range = options.range.as_ref().map_or(Ok(0..meta.size), |range| range.as_range(meta.size));
    range.map_err(|source| object_store::Error::Generic {
        store: crate::failure::STORE,
        source: Box::new(source),
    })
}

fn result(
    meta: ObjectMeta,
    range: Range<u64>,
    attributes: Attributes,
    payload: BoxStream<'static, Result<Bytes>>,
) -> GetResult {
    GetResult {
        payload: GetResultPayload::Stream(payload),
        meta,
        range,
        attributes,
        #[cfg(not(feature = "object_store_0_13"))]
        extensions: Default::default(),
    }
}

/// The ranges to read, in their order in the file. Those that overlap are one, and so are those that are at
/// most `gap` bytes apart and short together.
fn merge(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start < last.end || are_near(last, &range, gap) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Whether a range that begins at or behind the end of another is near it, and both are short together.
fn are_near(first: &Range<u64>, second: &Range<u64>, gap: u64) -> bool {
    second.start <= first.end.saturating_add(gap) && second.end - first.start <= MERGED_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_merged_and_empty_ones_are_not_read() {
        let ranges = [20..30, 0..10, 12..15, 25..40, 7..7];
        assert_eq!(merge(&ranges, 0), [0..10, 12..15, 20..40]);
        assert_eq!(merge(&ranges, 2), [0..15, 20..40]);
        assert_eq!(merge(&ranges, 5), vec![0..40; 1]);
        assert!(merge(&ranges[4..], 0).is_empty());
    }

    #[test]
    fn long_ranges_are_merged_only_if_they_overlap() {
        let long = MERGED_BYTES_MAX;
        assert_eq!(merge(&[0..long, long..long + 1], 0), [0..long, long..long + 1]);
        assert_eq!(merge(&[0..long - 1, long - 1..long], 0), vec![0..long; 1]);
        assert_eq!(merge(&[0..long, long - 1..2 * long], 0), vec![0..2 * long; 1]);
        assert_eq!(merge(&[0..8, long - 1..long + 1], u64::MAX), [0..8, long - 1..long + 1]);
    }
}
