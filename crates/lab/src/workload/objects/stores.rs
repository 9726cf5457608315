//! The stores of `objects`, behind one engine: a task of tokio for each request in flight, and what
//! differs is who reads its ranges.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use object_store::{ObjectStore, local::LocalFileSystem, path};
use ringwise::{Ring, RingStats};
use ringwise_object_store::RingFileSystem;
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinSet, spawn_blocking},
};

use super::geometry::ranges;
use crate::{
    dataset::DataFile,
    engine::{Engine, Tally, unavailable},
    error::plain,
    sampling::{
        job::{Failure, Job, Start},
        lane::{Counts, Lane},
    },
};

/// Who reads the ranges of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// `LocalFileSystem` of the `object_store` crate: one blocking call reads one range after the other.
    Local,
    /// `spawn_blocking` for each range: all of them at once, as far as tokio has threads.
    Pool,
    /// `RingFileSystem` of `ringwise-object-store`: all of them at once, by a ring.
    Ring,
    /// The same, past the page cache.
    Direct,
}

impl Store {
    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Store::Local => "local",
            Store::Pool => "pool",
            Store::Ring => "ringwise",
            Store::Direct => "ringwise-direct",
        }
    }

    /// Opens the store. The context of the runtime that is to drive it has to be entered.
    fn open(self, directory: &Path) -> Result<Reader, Failure> {
        Ok(match self {
            Store::Local => {
                let store = LocalFileSystem::new_with_prefix(directory).map_err(unavailable)?;
                Reader { store: Some(Arc::new(store)), ring: None }
            }
            Store::Pool => Reader { store: None, ring: None },
            Store::Ring | Store::Direct => {
                let ring = Ring::new().map_err(unavailable)?;
                let store = RingFileSystem::with_ring(ring.clone(), directory);
                let store = store.map_err(unavailable)?.with_direct_reads(self == Store::Direct);
                Reader { store: Some(Arc::new(store)), ring: Some(ring) }
            }
        })
    }
}

impl Engine for Store {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let starting = |error: io::Error| {
            Failure::Unavailable(format!("starting the runtime: {}", plain(&error)))
        };
        // Its own defaults: a worker per processor, and up to 512 blocking threads.
        let runtime = Builder::new_multi_thread().enable_io().build().map_err(starting)?;
        let directory = job.files[0].path.parent().unwrap_or(Path::new("."));
        let reader = {
            let _context = runtime.enter();
            self.open(directory)?
        };
        let window = start.ready()?;
        let lanes =
            drive(&runtime, job, &reader, &|index| Lane::new(job, window, index, job.depth));
        let counts = lanes.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(reader.tell(Tally::of(job, &window, counts)))
    }
}

/// Runs a task for each request in flight, to its end.
fn drive(
    runtime: &Runtime,
    job: &Arc<Job>,
    reader: &Reader,
    lane: &dyn Fn(usize) -> Lane,
) -> Vec<Result<Counts, Failure>> {
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for index in 0..job.depth {
            tasks.spawn(read_all(job.clone(), reader.clone(), lane(index)));
        }
        tasks.join_all().await
    })
}

async fn read_all(job: Arc<Job>, reader: Reader, mut lane: Lane) -> Result<Counts, Failure> {
    while let Some(request) = lane.next_request() {
        let wanted = ranges(&job, request);
        let began_ns = lane.clock();
        lane.begin(1, began_ns);
        let read = reader.read(&job.files[request.file], &wanted).await;
        let ended_ns = lane.clock();
        let result = read.and_then(|read| {
            let offsets = wanted.iter().map(|range| range.start);
            let parts = offsets.zip(read.iter().map(|bytes| &bytes[..]));
            lane.complete_ranges(request, began_ns, ended_ns, parts)
        });
        if result.is_err() {
            job.failed.store(true, Ordering::Relaxed);
            result?;
        }
    }
    Ok(lane.into_counts())
}

/// A store that is open; none where the pool reads files itself.
#[derive(Clone)]
struct Reader {
    store: Option<Arc<dyn ObjectStore>>,
    /// The ring of the store, if it has one.
    ring: Option<Ring>,
}

impl Reader {
    async fn read(&self, object: &DataFile, wanted: &[Range<u64>]) -> Result<Vec<Bytes>, Failure> {
        let path = &object.path;
        let failed = |error: String| Failure::Io(format!("reading {}: {error}", path.display()));
        match &self.store {
            Some(store) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let location = path::Path::from(name.as_ref());
                let read = store.get_ranges(&location, wanted).await;
                read.map_err(|error| failed(error.to_string()))
            }
            None => in_the_pool(path, wanted).await.map_err(|error| failed(plain(&error))),
        }
    }

    /// Adds what the ring counted and why it is none, if it is none.
    fn tell(&self, tally: Tally) -> Tally {
        let Some(ring) = &self.ring else { return tally };
        let RingStats { submitted, inline_hits, .. } = ring.stats();
        let detail = format!(
            "{}, {inline_hits} of {} ranges from the page cache",
            ring.setup().backend(),
            submitted + inline_hits
        );
        let lacks = ring.setup().fallback().map(|reason| format!("it has no ring: {reason}"));
        Tally { lacks, detail: Some(detail), ..tally }
    }
}

/// Opens a file and reads all ranges at once, each by a call of its own.
async fn in_the_pool(path: &Path, wanted: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let path = path.to_owned();
    let file = spawn_blocking(move || File::open(path)).await.expect("an open does not panic")?;
    let file = Arc::new(file);
    let read = |range: &Range<u64>| {
        let (file, Range { start, end }) = (file.clone(), range.clone());
        spawn_blocking(move || {
            let mut bytes = vec![0; (end - start) as usize];
            file.read_exact_at(&mut bytes, start).map(|()| Bytes::from(bytes))
        })
    };
    let reads: Vec<_> = wanted.iter().map(read).collect();
    let mut all = Vec::with_capacity(reads.len());
    for read in reads {
        all.push(read.await.expect("a read does not panic")?);
    }
    Ok(all)
}
