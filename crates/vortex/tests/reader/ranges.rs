//! Ranges, beside the bytes of the file and beside Vortex's own reader.

use std::{io::ErrorKind, os::unix::fs::FileExt, path::Path, sync::Arc};

use futures::{FutureExt, StreamExt, executor::block_on};
use proptest::prelude::*;
use ringwise::{BackendChoice, Descriptor, OpenOptions, drop_page_cache, fs::File};
use ringwise_vortex::FileSource;
use vortex_buffer::{Alignment, ByteBuffer};
use vortex_error::VortexError;
use vortex_io::{
    CoalesceConfig, ReadAtRequest, VortexReadAt,
    runtime::{BlockingRuntime, current::CurrentThreadRuntime, tokio::TokioRuntime},
    std_file::FileReadAt,
};

use crate::{BACKENDS, place, ring};

const LEN: usize = (5 << 20) + 123;

/// Writes bytes that differ at each offset, to the disk too.
fn write(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..LEN as u32).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    std::fs::write(path, &bytes).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
    bytes
}

fn check(read: &ByteBuffer, request: ReadAtRequest, bytes: &[u8]) {
    let start = request.offset as usize;
    assert!(read.as_slice() == &bytes[start..start + request.length], "{request:?}");
    assert_eq!(read.alignment(), request.alignment);
    assert!(request.alignment.is_ptr_aligned(read.as_ptr()), "{request:?}");
    // Vortex decodes memory with this alignment faster, so its own reader has it too.
    let is_preferred = Alignment::DEFAULT_ALIGNMENT.is_ptr_aligned(read.as_ptr());
    assert!(is_preferred || read.is_empty(), "{request:?}");
}

async fn read(source: &dyn VortexReadAt, request: ReadAtRequest) -> ByteBuffer {
    let ReadAtRequest { offset, length, alignment } = request;
    source.read_at(offset, length, alignment).await.unwrap().unwrap_host()
}

fn request(offset: usize, length: usize, alignment: usize) -> ReadAtRequest {
    ReadAtRequest::new(offset as u64, length, Alignment::new(alignment))
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_the_bytes_of_the_file() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let requests = [
        request(0, LEN, 256),
        request(0, 1, 1),
        request(LEN - 1, 1, 64 << 10),
        request(0, 0, 64),
        request(99, 0, 4096),
        request(4095, 3, 8),
        request(1, 1 << 20, 64),
        request(3, (1 << 20) + 1, 64),
        request(777, 4 << 20, 64 << 10),
    ];
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        for request in requests {
            check(&read(&source, request).await, request, &bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_are_all_answered() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let requests: Arc<[_]> = (0..500).map(|at| request(at * 10_007, 1 + at * 97, 64)).collect();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap().with_concurrency(500);
        let mut answered: Vec<_> = source.read_ranges(requests.clone()).collect().await;
        answered.sort_unstable_by_key(|(request, _)| request.offset);
        assert_eq!(answered.len(), requests.len());
        for ((request, result), asked) in answered.into_iter().zip(requests.iter()) {
            assert_eq!(request, *asked);
            check(&result.unwrap().unwrap_host(), request, &bytes);
        }
    }
}

#[test]
fn random_ranges_are_those_of_the_own_reader() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (_directory, path) = place();
    let bytes = write(&path);
    let _entered = runtime.enter();
    let open = |choice| runtime.block_on(FileSource::open(&ring(choice), &path)).unwrap();
    let sources = BACKENDS.map(open);
    let own = FileReadAt::open(&path, TokioRuntime::current()).unwrap();
    let length = prop_oneof![0..50_usize, 0..20_000_usize, 0..LEN];
    let request = (0..LEN, length, 0..13_u32).prop_map(|(start, length, exponent)| {
        request(start, length.min(LEN - start), 1 << exponent)
    });
    let requests = prop::collection::vec(request, 1..12);
    proptest!(ProptestConfig::with_cases(64), |(requests in requests)| {
        runtime.block_on(async {
            for source in &sources {
                let requests: Arc<[_]> = requests.clone().into();
                let mut answers = source.read_ranges(requests.clone());
                let mut count = 0;
                while let Some((request, result)) = answers.next().await {
                    let buffer = result.unwrap().unwrap_host();
                    check(&buffer, request, &bytes);
                    assert_eq!(buffer, read(&own, request).await);
                    count += 1;
                }
                assert_eq!(count, requests.len());
            }
        });
    });
}

#[test]
fn the_parts_of_a_long_range_are_in_flight_at_once() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let ring = ring(BackendChoice::Auto);
    let source = block_on(FileSource::open(&ring, &path)).unwrap();
    let descriptor = Descriptor::from(std::fs::File::open(&path).unwrap());
    drop_page_cache(&descriptor, 0, LEN as u64).unwrap();
    if ringwise::page_cache(&descriptor, 0, 0).is_ok_and(|state| state.cached_pages > 0) {
        println!("skipped: the file system keeps the file in memory");
        return;
    }
    let before = ring.stats().submitted;
    let mut read = source.read_at(0, LEN, Alignment::new(64));
    assert!((&mut read).now_or_never().is_none());
    assert_eq!(ring.stats().submitted - before, LEN.div_ceil(1 << 20) as u64);
    check(&block_on(read).unwrap().unwrap_host(), request(0, LEN, 64), &bytes);
}

/// The runtime has one thread, so a task does not run before this test waits.
#[tokio::test]
async fn long_reads_are_tasks_and_short_ones_of_cached_data_need_no_wait() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let source = FileSource::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let short = request(77, (256 << 10) - 1, 64);
    let long = request(77, 256 << 10, 64);
    // So that the page cache has both. More would end the turn of this thread, and the read would wait for that.
    check(&read(&source, long).await, long, &bytes);
    let read = source.read_at(short.offset, short.length, short.alignment).now_or_never();
    check(&read.expect("a wait").unwrap().unwrap_host(), short, &bytes);
    let mut read = source.read_at(long.offset, long.length, long.alignment);
    assert!((&mut read).now_or_never().is_none(), "the thread that polls has read it");
    check(&read.await.unwrap().unwrap_host(), long, &bytes);
}

#[test]
fn a_runtime_that_ends_fails_its_reads() {
    let (_directory, path) = place();
    write(&path);
    let ring = ring(BackendChoice::Auto);
    let source = block_on(FileSource::open(&ring, &path)).unwrap();
    // It never runs a task.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut read = source.read_at(0, LEN, Alignment::new(64));
    let entered = runtime.enter();
    assert!((&mut read).now_or_never().is_none());
    drop(entered);
    drop(runtime);
    let error = block_on(read).unwrap_err().to_string();
    assert!(error.contains("the runtime ended before the read"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_its_length_is_read_as_it_is() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // One that is read in one part, and one in several.
    let requests = [request(LEN - 500, 500, 64), request(LEN - (3 << 20), 3 << 20, 64)];
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        for request in requests {
            check(&read(&source, request).await, request, &bytes);
            file.set_len(LEN as u64 - 1).unwrap();
            let ReadAtRequest { offset, length, alignment } = request;
            let result = source.read_at(offset, length, alignment).await;
            let Err(VortexError::Io(error, _)) = result else { panic!("{result:?}") };
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            assert_eq!(source.size().await.unwrap(), LEN as u64 - 1);
            let shorter = ReadAtRequest::new(offset, length - 1, alignment);
            check(&read(&source, shorter).await, shorter, &bytes);
            file.write_all_at(&bytes[LEN - 1..], LEN as u64 - 1).unwrap();
            check(&read(&source, request).await, request, &bytes);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_read_harms_no_other() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let descriptor = Descriptor::from(std::fs::File::open(&path).unwrap());
    let requests: Vec<_> = (0..64).map(|at| request(at * 80_000, 70_000, 64)).collect();
    for choice in BACKENDS {
        let source = FileSource::open(&ring(choice), &path).await.unwrap();
        for _ in 0..20 {
            drop_page_cache(&descriptor, 0, LEN as u64).unwrap();
            let mut dropped: Vec<_> = requests
                .iter()
                .map(|request| source.read_at(request.offset, request.length, request.alignment))
                .collect();
            for read in &mut dropped {
                let _ = read.now_or_never();
            }
            drop(dropped);
            for request in &requests {
                check(&read(&source, *request).await, *request, &bytes);
            }
        }
    }
}

#[test]
fn a_runtime_of_vortex_reads_without_tokio() {
    let (_directory, path) = place();
    let bytes = write(&path);
    for choice in BACKENDS {
        let ring = ring(choice);
        CurrentThreadRuntime::new().block_on(async {
            let source = FileSource::open(&ring, &path).await.unwrap();
            assert_eq!(source.size().await.unwrap(), LEN as u64);
            let request = request(12_345, 3 << 20, 64);
            check(&read(&source, request).await, request, &bytes);
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn size_and_hints_are_those_of_the_own_reader_unless_set() {
    let (_directory, path) = place();
    write(&path);
    let ring = ring(BackendChoice::Auto);
    let own = FileReadAt::open(&path, TokioRuntime::current()).unwrap();
    let file = File::open(&ring, &path, OpenOptions::new().read(true)).await.unwrap();
    let source = FileSource::new(file, path.to_str().unwrap());
    let hints = |source: &dyn VortexReadAt| {
        let CoalesceConfig { distance, max_size } = source.coalesce_config().unwrap();
        (distance, max_size, source.concurrency())
    };
    assert_eq!(hints(&source), hints(&own));
    assert_eq!(source.uri(), own.uri());
    assert_eq!(source.size().await.unwrap(), own.size().await.unwrap());
    let source = source.with_coalescing(CoalesceConfig::new(5, 9)).with_concurrency(7);
    assert_eq!(hints(&source), (5, 9, 7));
    // With none, Vortex would never read.
    assert_eq!(source.with_concurrency(0).concurrency(), 1);
}
