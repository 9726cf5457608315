//! Ranges, beside the bytes of the file.

use std::{ops::Range, path::Path, time::Duration};

use futures::FutureExt;
use parquet::arrow::async_reader::AsyncFileReader;
use proptest::prelude::*;
use ringwise::{BackendChoice, Descriptor, drop_page_cache};
use ringwise_parquet::{ParquetFile, ParquetFileOptions};

use crate::{BACKENDS, open_direct, place, ring};

const LEN: usize = (3 << 20) + 123;

/// Writes bytes that differ at each offset, to the disk too.
fn write(path: &Path) -> Vec<u8> {
    let bytes: Vec<u8> = (0..LEN as u32).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    std::fs::write(path, &bytes).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap();
    bytes
}

fn check(read: &[bytes::Bytes], ranges: &[Range<u64>], bytes: &[u8]) {
    assert_eq!(read.len(), ranges.len());
    for (read, range) in read.iter().zip(ranges) {
        assert!(*read == bytes[range.start as usize..range.end as usize], "{range:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_the_bytes_of_the_file() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let len = LEN as u64;
    let requests: [&[Range<u64>]; 7] = [
        &[0..len],
        &[len - 1..len, 0..1, 0..0, 99..99, len..len],
        &[5..7, 2..6, 6..9, 0..1, 5..7],
        &[4095..4097, 8191..8193, 1 << 20..(1 << 20) + 1, 2 << 20..3 << 20],
        &[1..2_000_000, 1_999_999..len],
        &[u64::MAX..u64::MAX],
        &[],
    ];
    for choice in BACKENDS {
        let ring = ring(choice);
        let mut files = vec![ParquetFile::open(&ring, &path).await.unwrap()];
        files.push(ParquetFileOptions::new().gap(u64::MAX).open(&ring, &path).await.unwrap());
        files.extend(open_direct(&ring, &path).await);
        for file in &mut files {
            assert_eq!(file.len(), len);
            for ranges in requests {
                let read = file.get_byte_ranges(ranges.to_vec()).await.unwrap();
                // Of an empty range nothing is read, wherever it is.
                let within = |range: &Range<u64>| match range.is_empty() {
                    true => 0..0,
                    false => range.clone(),
                };
                let ranges: Vec<_> = ranges.iter().map(within).collect();
                check(&read, &ranges, &bytes);
                for range in ranges {
                    let read = file.get_bytes(range.clone()).await.unwrap();
                    check(&[read], &[range], &bytes);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_ranges_are_in_flight_at_once() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let ring = ring(BackendChoice::Auto);
    let Some(mut file) = open_direct(&ring, &path).await else { return };
    let ranges: Vec<_> = (0..16).map(|number| number * 100_000..number * 100_000 + 10).collect();
    let before = ring.stats().submitted;
    let mut reads = file.get_byte_ranges(ranges.clone());
    assert!((&mut reads).now_or_never().is_none());
    assert_eq!(ring.stats().submitted - before, 16);
    check(&reads.await.unwrap(), &ranges, &bytes);
}

/// The kernel reads ahead of one read in its order. Past the page cache, only what is in flight is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_range_is_one_read_or_if_direct_parts_that_are_in_flight_at_once() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let ring = ring(BackendChoice::Auto);
    let Some(direct) = open_direct(&ring, &path).await else { return };
    let descriptor = Descriptor::from(std::fs::File::open(&path).unwrap());
    // Pages that the kernel moves at the moment stay.
    let is_forgotten = (0..1000).any(|attempt| {
        std::thread::sleep(Duration::from_millis(attempt.min(1)));
        drop_page_cache(&descriptor, 0, LEN as u64).unwrap();
        !ringwise::page_cache(&descriptor, 0, 0).is_ok_and(|state| state.cached_pages > 0)
    });
    assert!(is_forgotten, "a file system with direct reads keeps nothing in memory");
    let buffered = ParquetFile::open(&ring, &path).await.unwrap();
    for (mut file, expected) in [(buffered, 1), (direct, 4)] {
        let whole = 0..LEN as u64;
        let before = ring.stats().submitted;
        let mut read = file.get_bytes(whole.clone());
        assert!((&mut read).now_or_never().is_none());
        assert_eq!(ring.stats().submitted - before, expected);
        check(&[read.await.unwrap()], &[whole], &bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn near_ranges_share_memory_and_others_do_not() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let ring = ring(BackendChoice::Auto);
    let ranges = [0..10, 20..30, 5_000..5_010];
    for (gap, is_shared) in [(0, [false, false]), (10, [true, false]), (5_000, [true, true])] {
        let options = ParquetFileOptions::new().gap(gap);
        let mut file = options.open(&ring, &path).await.unwrap();
        let read = file.get_byte_ranges(ranges.to_vec()).await.unwrap();
        check(&read, &ranges, &bytes);
        for (at, is_shared) in is_shared.into_iter().enumerate() {
            let distance = ranges[at + 1].start - ranges[at].start;
            let actual = read[at + 1].as_ptr().addr().wrapping_sub(read[at].as_ptr().addr());
            assert_eq!(actual as u64 == distance, is_shared, "gap {gap}, range {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_read_harms_no_other() {
    let (_directory, path) = place();
    let bytes = write(&path);
    let ring = ring(BackendChoice::Auto);
    let Some(mut file) = open_direct(&ring, &path).await else { return };
    let ranges: Vec<_> = (0..64).map(|number| number * 40_000..number * 40_000 + 30_000).collect();
    for _ in 0..20 {
        let mut dropped = file.get_byte_ranges(ranges.clone());
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        check(&file.get_byte_ranges(ranges.clone()).await.unwrap(), &ranges, &bytes);
    }
}

#[test]
fn random_ranges_are_the_bytes_of_the_file() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (_directory, path) = place();
    let bytes = write(&path);
    let _entered = runtime.enter();
    let ring = ring(BackendChoice::Auto);
    let range = (0..LEN as u64, prop_oneof![0..50_u64, 0..20_000_u64, 0..LEN as u64])
        .prop_map(|(start, len)| start..(start + len).min(LEN as u64));
    let ranges = prop::collection::vec(range, 0..12);
    let gap = prop_oneof![Just(0_u64), 0..100_000_u64, Just(u64::MAX)];
    let strategy = (ranges, gap, any::<bool>());
    proptest!(ProptestConfig::with_cases(96), |((ranges, gap, direct) in strategy)| {
        runtime.block_on(async {
            let options = ParquetFileOptions::new().gap(gap);
            let mut file = options.open(&ring, &path).await.unwrap();
            if direct {
                let Some(direct) = open_direct(&ring, &path).await else { return };
                file = direct;
            }
            check(&file.get_byte_ranges(ranges.clone()).await.unwrap(), &ranges, &bytes);
        });
    });
}
