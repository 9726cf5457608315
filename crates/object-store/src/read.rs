//! Reads of one object: whole, in a stream of chunks, or many ranges at once.

mod offered;

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt, TryStreamExt,
    future::{ready, try_join_all},
    stream::{self, BoxStream},
};
use object_store::{
    Attributes, GetOptions, GetResult, GetResultPayload, ObjectMeta, Result, path::Path,
};
use ringwise::{
    ErrorKind, OwnedBufferMut, Ring, Spare,
    fs::File,
    parts::{self, PART_BYTES},
};
use rustix::{
    fs::{OFlags, fcntl_setfl, fstat},
    io::Errno,
};

use self::offered::Offered;
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
/// Ranges are offered to other threads in shares of at least this length. If the page cache has 64 ranges of 64 KiB, that
/// was two to three times as fast as one thread; shares of 64 KiB to 1 MiB did not differ by more than the noise.
const SHARE_BYTES: u64 = 256 << 10;
/// Direct reads begin and end at multiples of this. It suits nearly every device.
const BLOCK_BYTES: u64 = 4096;
/// Without O_NONBLOCK the open of a FIFO waits for its writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// An object that is open.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    file: File,
    meta: Arc<ObjectMeta>,
    is_direct: bool,
}

impl Object {
    /// Opens an object for reading, past the page cache or through it.
    pub(crate) async fn open(
        ring: &Ring,
        root: &Arc<Root>,
        location: &Path,
        is_direct: bool,
    ) -> Result<Object> {
        let ring = ring.clone();
        let direct = if is_direct { OFlags::DIRECT } else { OFlags::empty() };
        let open = move |file: OwnedFd, meta: ObjectMeta| {
            fcntl_setfl(&file, direct).map_err(|error| match error {
                // What fcntl(2) says if the file system has no direct reads.
                Errno::INVAL if is_direct => {
                    Failure::NotDirect { location: meta.location.to_string() }.into()
                }
                error => failed(&meta.location, error),
            })?;
            let file = File::from_std(&ring, file.into());
            Ok(Object { file, meta: Arc::new(meta), is_direct })
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
        // They end at multiples of their length, so that all but the first and the last are whole blocks.
        let first = range.start / CHUNK_BYTES;
        let last = (range.end - 1) / CHUNK_BYTES;
        stream::iter(first..=last)
            .map(move |number| {
                let object = self.clone();
                let start = range.start.max(number * CHUNK_BYTES);
                let chunk = start..range.end.min((number + 1) * CHUNK_BYTES);
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

    /// Reads ranges. Those that are at most `gap` bytes apart are one read. In a runtime with several threads all shares of
    /// them are in flight together as far as threads are free; otherwise all ranges are.
    pub(crate) async fn ranges(&self, ranges: &[Range<u64>], gap: u64) -> Result<Vec<Bytes>> {
        for range in ranges {
            self.check(range)?;
        }
        // Two direct reads of one block would read it twice.
        let gap = if self.is_direct { gap.max(BLOCK_BYTES - 1) } else { gap };
        let merged = merge(ranges, gap);
        let Some(runtime) = offered::several_threads() else {
            let read = self.clone().read_share(merged.clone()).await?;
            return Ok(parts_of(&merged, &read, ranges));
        };
        let mut shares = shares(&merged).map(|share| self.clone().read_share(share.to_vec()));
        let own = shares.next();
        let others: Vec<_> = shares.map(|share| Offered::new(share, &runtime)).collect();
        let mut read = match own {
            Some(own) => own.await?,
            None => Vec::new(),
        };
        for share in try_join_all(others.into_iter().map(Offered::done)).await? {
            read.extend(share);
        }
        Ok(parts_of(&merged, &read, ranges))
    }

    async fn read_share(self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        try_join_all(ranges.into_iter().map(|range| self.read(range))).await
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
        if buffer.try_reserve_exact(usize::try_from(bytes).unwrap_or(usize::MAX)).is_err() {
            return Err(Failure::Memory { location: location.to_string(), bytes }.into());
        }
        let read = if range.is_empty() || bytes <= PART_BYTES as u64 && !self.is_direct {
            let read = self.file.read_exact_at(buffer, range.start).await;
            read.into_result().map(|((), buffer)| Bytes::from(buffer))
        } else {
            drop(buffer);
            self.read_parts(range).await
        };
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => changed(location),
            // Its blocks are longer.
            _ if self.is_direct && error.errno() == Errno::INVAL.raw_os_error() => {
                Failure::NotDirect { location: location.to_string() }.into()
            }
            _ => failed(location, error),
        })
    }

    /// Reads a range that is not empty, all parts of it in flight together. If reads are direct, it reads all blocks that
    /// the range touches.
    async fn read_parts(&self, range: Range<u64>) -> Result<Bytes, ringwise::Error> {
        let block_bytes = if self.is_direct { BLOCK_BYTES } else { 1 };
        let start = range.start - range.start % block_bytes;
        let len = (range.end.next_multiple_of(block_bytes) - start) as usize;
        let offsets = (start..).step_by(PART_BYTES);
        let parts = parts::split(len, block_bytes as usize).into_iter().zip(offsets);
        let reads = parts.map(|(part, offset)| {
            // The object may end within the last block.
            let least = part.capacity().min((range.end - offset) as usize);
            self.read_part(part, offset, least)
        });
        let whole = parts::join(try_join_all(reads).await?);
        Ok(whole.slice((range.start - start) as usize..(range.end - start) as usize))
    }

    /// Reads a part, and at least so many bytes of it.
    async fn read_part(
        &self,
        mut part: BytesMut,
        offset: u64,
        least: usize,
    ) -> Result<BytesMut, ringwise::Error> {
        while part.len() < least {
            let at = offset + part.len() as u64;
            let (count, Spare(read)) = self.file.read_at(part.spare(), at).await.into_result()?;
            if count == 0 {
                // This fails, since the file ends here, unless it has grown again.
                self.file.read_exact_at(vec![0], at).await.into_buffer()?;
            }
            part = read;
        }
        Ok(part)
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

/// Cuts a list of ranges into shares of at least [`SHARE_BYTES`], but for the last one.
fn shares(ranges: &[Range<u64>]) -> impl Iterator<Item = &[Range<u64>]> {
    let mut bytes = 0;
    ranges.chunk_by(move |range, _| {
        bytes += range.end - range.start;
        let goes_on = bytes < SHARE_BYTES;
        if !goes_on {
            bytes = 0;
        }
        goes_on
    })
}

/// The bytes of ranges, out of what was read.
fn parts_of(merged: &[Range<u64>], read: &[Bytes], ranges: &[Range<u64>]) -> Vec<Bytes> {
    let part = |range: &Range<u64>| {
        if range.is_empty() {
            return Bytes::new();
        }
        let at = merged.partition_point(|whole| whole.start <= range.start) - 1;
        let skipped = merged[at].start;
        read[at].slice((range.start - skipped) as usize..(range.end - skipped) as usize)
    };
    ranges.iter().map(part).collect()
}

/// Whether a range that begins at or behind the end of another is near it, and both are short together.
fn are_near(first: &Range<u64>, second: &Range<u64>, gap: u64) -> bool {
    second.start <= first.end.saturating_add(gap) && second.end - first.start <= MERGED_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;

    /// A read gives at most a page of such a file. The second one began at the buffer's beginning again.
    #[test]
    fn a_read_that_is_short_goes_on_where_it_ended() {
        let file = "/proc/kallsyms";
        let expected = std::fs::read(file).unwrap();
        let meta = ObjectMeta {
            location: "kallsyms".into(),
            last_modified: Utc::now(),
            size: 0,
            e_tag: None,
            version: None,
        };
        let file = File::from_std(&Ring::new().unwrap(), std::fs::File::open(file).unwrap());
        let object = Object { file, meta: Arc::new(meta), is_direct: false };
        let len = 3 * PART_BYTES / 2;
        assert!(expected.len() > len);
        let read = futures::executor::block_on(object.read_parts(0..len as u64)).unwrap();
        assert!(read == expected[..len]);
    }

    #[test]
    fn near_ranges_are_merged_and_empty_ones_are_not_read() {
        let ranges = [20..30, 0..10, 12..15, 25..40, 7..7];
        assert_eq!(merge(&ranges, 0), [0..10, 12..15, 20..40]);
        assert_eq!(merge(&ranges, 2), [0..15, 20..40]);
        assert_eq!(merge(&ranges, 5), vec![0..40; 1]);
        assert!(merge(&ranges[4..], 0).is_empty());
    }

    #[test]
    fn shares_are_of_whole_ranges_and_in_their_order() {
        let share = SHARE_BYTES;
        let ranges = [0..1, 2..share, share..3 * share, 4 * share..4 * share + 1];
        let cut: Vec<_> = shares(&ranges).collect();
        assert_eq!(cut, [&ranges[..3], &ranges[3..]]);
        assert_eq!(shares(&[]).count(), 0);
        let equal: Vec<_> = (0..8).map(|at| at * share..at * share + share / 4).collect();
        assert!(shares(&equal).all(|part| part.len() == 4));
        assert_eq!(shares(&equal).count(), 2);
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
