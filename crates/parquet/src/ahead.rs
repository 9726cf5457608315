//! Read-ahead: the columns of the next row group are read while the program decodes those of this one.
//!
//! A scan asks for the same columns of one row group after the other. Two such requests in a row, or one for the first
//! row group, tell which one comes next. Data that the page cache had is not read ahead, because a copy from there is
//! cheaper when the decoder needs it.

use std::{
    fmt,
    future::poll_fn,
    ops::Range,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use crate::error::Error;

type Read = Result<Vec<Bytes>, Error>;

/// What a handle has read ahead, and what it needs to know for that.
#[derive(Default)]
pub(crate) struct ReadAhead {
    metadata: Option<Arc<ParquetMetaData>>,
    last: Option<Request>,
    reads: Option<Reads>,
}

/// A request for whole columns of a row group.
#[derive(PartialEq)]
struct Request {
    group: usize,
    columns: Vec<usize>,
}

/// Reads that began before the program asked for their ranges.
struct Reads {
    ranges: Vec<Range<u64>>,
    /// Only its owner polls it. The lock makes a handle `Sync`.
    state: Mutex<State>,
}

enum State {
    InFlight(BoxFuture<'static, Read>),
    /// The page cache had all of it.
    Cached(Read),
}

impl ReadAhead {
    /// Learns where the row groups are. What was read ahead may be from another version of the file, and is dropped.
    pub(crate) fn learn(&mut self, metadata: &Arc<ParquetMetaData>) {
        let is_new = !self.metadata.as_ref().is_some_and(|known| Arc::ptr_eq(known, metadata));
        if is_new {
            *self = ReadAhead { metadata: Some(metadata.clone()), ..ReadAhead::default() };
        }
    }

    /// Takes what was read ahead of these ranges: the first of them, or none.
    pub(crate) async fn take(&mut self, ranges: &[Range<u64>]) -> Result<Taken, Error> {
        let reads = self.reads.take().filter(|reads| ranges.starts_with(&reads.ranges));
        let Some(reads) = reads else {
            return Ok(Taken { first: Vec::new(), waited: false });
        };
        match reads.state.into_inner().unwrap_or_else(PoisonError::into_inner) {
            State::InFlight(reads) => Ok(Taken { first: reads.await?, waited: true }),
            State::Cached(read) => Ok(Taken { first: read?, waited: false }),
        }
    }

    /// Notes a request, and returns the ranges of the one that will come next: as many as have at most `bytes_max`
    /// together.
    pub(crate) fn next(&mut self, ranges: &[Range<u64>], bytes_max: u64) -> Vec<Range<u64>> {
        let Some(metadata) = &self.metadata else { return Vec::new() };
        let groups = metadata.row_groups();
        let request = Request::of(ranges, groups);
        let last = std::mem::replace(&mut self.last, request);
        let Some(request) = &self.last else { return Vec::new() };
        if request.group > 0 && !last.is_some_and(|last| last.precedes(request)) {
            return Vec::new();
        }
        let Some(next) = groups.get(request.group + 1) else { return Vec::new() };
        let mut rest = bytes_max;
        let ranges = request.columns.iter().map(|column| column_range(next, *column));
        ranges
            .take_while(|range| {
                let fits = range.end - range.start <= rest;
                rest = rest.saturating_sub(range.end - range.start);
                fits
            })
            .collect()
    }

    /// Begins reads of these ranges. They go on without being polled.
    pub(crate) fn begin(&mut self, ranges: Vec<Range<u64>>, mut reads: BoxFuture<'static, Read>) {
        let state = match reads.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => State::InFlight(reads),
            Poll::Ready(read) => State::Cached(read),
        };
        self.reads = Some(Reads { ranges, state: Mutex::new(state) });
    }
}

/// What was read ahead of a request.
pub(crate) struct Taken {
    /// The bytes of its first ranges.
    pub(crate) first: Vec<Bytes>,
    /// Whether some of it was not in the page cache.
    pub(crate) waited: bool,
}

impl Request {
    /// Returns which columns of which row group the ranges are, if they are that.
    fn of(ranges: &[Range<u64>], groups: &[RowGroupMetaData]) -> Option<Request> {
        let start = ranges.first()?.start;
        // Row groups lie behind each other.
        let behind = groups.partition_point(|group| {
            group.num_columns() > 0 && column_range(group, 0).start <= start
        });
        let number = behind.checked_sub(1)?;
        let group = &groups[number];
        let mut rest = ranges.iter().peekable();
        let mut is_next = |column: &usize| {
            rest.next_if(|range| **range == column_range(group, *column)).is_some()
        };
        let columns = (0..group.num_columns()).filter(&mut is_next).collect();
        rest.next().is_none().then_some(Request { group: number, columns })
    }

    fn precedes(&self, other: &Request) -> bool {
        self.group + 1 == other.group && self.columns == other.columns
    }
}

/// Where a column lies. `ColumnChunkMetaData::byte_range` panics if a damaged file has negative numbers.
fn column_range(group: &RowGroupMetaData, column: usize) -> Range<u64> {
    let column = group.column(column);
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).unwrap_or(u64::MAX);
    start..start.saturating_add(u64::try_from(column.compressed_size()).unwrap_or(0))
}

/// Awaits a future, and tells whether it had to wait.
pub(crate) async fn tell_wait<T>(future: impl Future<Output = T>) -> (T, bool) {
    let mut future = pin!(future);
    let mut waited = false;
    let output = poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        waited |= polled.is_pending();
        polled
    })
    .await;
    (output, waited)
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = self.reads.as_ref().map(|reads| &reads.ranges[..]).unwrap_or_default();
        f.debug_struct("ReadAhead").field("ranges", &ranges).finish_non_exhaustive()
    }
}
